"""What Spark does in Python at a start is tried once more, where its Python process was too slow to start.

Spark gives each Python process 10 s, and has no setting for it. A process that was slow because the machine
reads its files for the first time is quick the second time.

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
"""What a call of Spark raises: PySpark's own exceptions, and those that it has no class for."""

_TOO_SLOW: Final = "failed to connect back"


def is_too_slow(error: Exception) -> bool:
    """Return whether a Python process of Spark's did not start within its 10 s."""
    return _TOO_SLOW in str(error)


def tried_twice(doing: str, call: Callable[[], T]) -> T:
    """Return what a call of Spark returns; try it once more where a Python process was too slow to start.

    `doing` is what the call does, for the log. Raises what the second call raises.
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
