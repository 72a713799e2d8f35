"""Tries a call of Spark once more if Spark's Python process was too slow to start, and names that as a cause.

Spark gives each Python process 10 s to start, and has no setting for that. A process is slow
where the machine reads its files for the first time; the second time they are in memory, and it
is quick.

Source: Spark's PythonWorkerFactory, "Python worker failed to connect back".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

_LOGGER = logging.getLogger("windhover.spout")

T = TypeVar("T")

SPARK_ERRORS: Final = (PySparkException, Py4JError)
"""What a call of Spark raises: PySpark's own exceptions, and those of the JVM that it has no
class for."""

_TOO_SLOW: Final = "failed to connect back"
"""A part of Spark's message: the process did not connect to the JVM within the 10 s."""


_WHY: Final = "Spark gives a Python process 10 s to start, and this machine needed longer"

_CURE: Final = (
    "fewer processes on the machine, or a SPARK_HOME without pyspark.zip, as"
    " docs/operate/faq.md has it; nothing is lost, so the query can start again from its"
    " checkpoint"
)


def is_too_slow(error: Exception) -> bool:
    """Return whether a Python process of Spark's did not start within its 10 s."""
    return _TOO_SLOW in str(error)


def tried_twice(doing: str, call: Callable[[], T]) -> T:
    """Call Spark, once more if a Python process was too slow to start; return the call's result.

    `doing` names the call in the log. An error of the second call is raised.
    """
    try:
        return call()
    except SPARK_ERRORS as error:
        if not is_too_slow(error):
            raise
    _LOGGER.warning(
        "worker_too_slow: %s: %s; it is tried once more. If that fails too: %s",
        doing,
        _WHY,
        _CURE,
    )
    return call()


class RunningQuery(Protocol):
    """What is needed of a `StreamingQuery`; it answers when its run has ended, too."""

    @property
    def id(self) -> str: ...

    @property
    def runId(self) -> str: ...  # noqa: N802 - Spark's name

    def exception(self) -> Exception | None:
        """Return what has ended it; None: it was stopped, or runs."""


class SlowStarts:
    """Logs each query that has ended since a Python process was too slow to start, with what helps.

    A query's first worker is tried twice. One that Spark starts later, for another query of the
    session or in the midst of one, is Spark's own affair: the query ends by it.
    """

    def __init__(self) -> None:
        self._running: dict[str, RunningQuery] = {}  # by the run's id, as of the last call

    def log_ended(self, active: Iterable[RunningQuery]) -> None:
        """Log queries that ran at the last call, and were ended since by a process too slow.

        `active` are the queries that run now; the next call compares with them.
        """
        running = {query.runId: query for query in active}
        running_before = self._running
        self._running = running
        for run_id, query in running_before.items():
            if run_id in running:
                continue
            error = query.exception()
            if error is not None and is_too_slow(error):
                _LOGGER.warning("worker_too_slow: query %s has ended: %s. Cure: %s", query.id, _WHY, _CURE)
