"""Tries a call of Spark once more if Spark's Python process was too slow to start.

Spark gives each Python process 10 s to start, and has no setting for that. A process is slow where the
machine reads its files for the first time; the second time they are in memory, and it is quick.

Source: Spark's PythonWorkerFactory, "Python worker failed to connect back".
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

_LOGGER = logging.getLogger("windhover.spout")

T = TypeVar("T")

SPARK_ERRORS: Final = (PySparkException, Py4JError)
"""What a call of Spark raises: PySpark's own exceptions, and those of the JVM that it has no class for."""

_TOO_SLOW: Final = "failed to connect back"
"""A part of Spark's message: the process did not connect to the JVM within the 10 s."""


def is_too_slow(error: Exception) -> bool:
    """Return whether a Python process of Spark's did not start within its 10 s."""
    return _TOO_SLOW in str(error)


def tried_twice(doing: str, call: Callable[[], T]) -> T:
    """Call Spark, and return what it returns; call it once more if a Python process was too slow to start.

    `doing` names the call in the log. What the second call raises is raised.
    """
    try:
        return call()
    except SPARK_ERRORS as error:
        if not is_too_slow(error):
            raise
    _LOGGER.warning(
        "worker_too_slow: %s: Spark gives a Python process 10 s to start, and this machine needed longer; it"
        " is tried once more. If that fails too: fewer processes on the machine, or a SPARK_HOME without"
        " pyspark.zip, as docs/operate/faq.md has it; nothing is lost, so the query can start again from its"
        " checkpoint",
        doing,
    )
    return call()
