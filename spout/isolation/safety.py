"""When a query's tasks let their bolts work in a child process, and how long one call may last.

It is a module of its own, without what runs bolts (`spout.isolation.task_runs`),
since the planning process needs only this.

Spark has a limit of its own that may end a worker, its *idle limit*: `idleTimeoutSeconds` with
`killOnIdleTimeout`. Spark hears from a worker only when a batch of rows is
done. So the limit is for all calls of bolts for a batch of rows together. Of a child that hangs it
ends the parent as well, which waits for the child. Then no record fails for the hang: the query
ends, at each start anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acker.config.topics import Input
from acker.errors import UsageError
from acker.units import duration_text

IDLE_LIMITS: Final = (
    "spark.sql.execution.pyspark.udf.idleTimeoutSeconds",
    "spark.python.worker.idleTimeoutSeconds",
)
"""Spark's settings of how long a worker may send nothing; the first that is set counts."""

IDLE_KILLS: Final = (
    "spark.sql.execution.pyspark.udf.killOnIdleTimeout",
    "spark.python.worker.killOnIdleTimeout",
)
"""Whether Spark ends a worker at that limit, or only says so in its log; the first that is set
counts.
"""

# Either tuple has the setting of SQL functions first. The other one is for all Python workers.
_LIMIT_OF_ALL_WORKERS: Final = IDLE_LIMITS[1]
_KILL_OF_ALL_WORKERS: Final = IDLE_KILLS[1]

_SPARK_TIME = re.compile(r"\s*(\d+)\s*(us|ms|s|m|min|h|d)?\s*", re.IGNORECASE)
_UNITS_MS: Final = {
    "us": 0.001,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}

_TRIED_ONCE = re.compile(r"local(\[[^,\]]*\])?")


@dataclass(frozen=True, slots=True)
class Safety:
    """What tasks need to know: how long a call may last, and whether the batch was run before.

    Attributes:
        bolt_timeout_ms: how long one call of a bolt may last; 0: for ever.
        mark: path of a file that exists if the batch is run again; empty: there is no such
            file, so that only the number of tries counts.
    """

    bolt_timeout_ms: int = 0
    mark: str = ""

    def isolates(self, tries: int) -> bool:
        """Return whether a task calls its bolts in a child process.

        `tries`: how often Spark has tried the task before.
        """
        if not hasattr(os, "fork"):
            return False
        is_marked = bool(self.mark) and Path(self.mark).exists()
        return tries > 0 or is_marked


def bolt_timeout_ms(inputs: Sequence[Input]) -> int:
    """Return the `bolt_timeout` of a query, ms: the longest of its inputs.

    0: one of them has none.
    """
    limits_ms = [input.bolt_timeout_ms for input in inputs]
    return max(limits_ms) if all(limits_ms) else 0


def tried_once(master: str) -> bool:
    """Return whether a Spark master tries each task once, so that a worker's end is the query's.

    ``local`` and ``local[4]`` do so, ``local[4,3]`` and ``spark://host:7077``
    do not.
    """
    return _TRIED_ONCE.fullmatch(master) is not None


def idle_limit_ms(settings: Mapping[str, str]) -> int:
    """Return Spark's idle limit for workers, ms, in whole seconds.

    0: Spark ends none.

    `settings`: those of the Spark session. A time without a unit is in seconds.

    >>> idle_limit_ms({"spark.python.worker.idleTimeoutSeconds": "2min", IDLE_KILLS[0]: "true"})
    120000
    """
    if _first_of(settings, IDLE_KILLS, "false").strip().lower() != "true":
        return 0
    time_match = _SPARK_TIME.fullmatch(_first_of(settings, IDLE_LIMITS, "0"))
    if time_match is None:  # Spark refuses it
        return 0
    unit_count, unit = time_match.groups()
    unit_ms = _UNITS_MS[(unit or "s").lower()]
    exact_ms = int(int(unit_count) * unit_ms)
    return exact_ms // 1_000 * 1_000  # as Spark, which takes whole seconds


def _first_of(settings: Mapping[str, str], names: Sequence[str], default: str) -> str:
    """Return the value of the first of some settings that is set; `default` if none is."""
    for name in names:
        if name in settings:
            return settings[name]
    return default


def refuse_idle_limit(bolt_limit_ms: int, idle_ms: int) -> None:
    """Raise `UsageError` if Spark would end a worker before `bolt_timeout` shows what hangs.

    Args:
        bolt_limit_ms: as `bolt_timeout_ms` returns it; 0: there is none.
        idle_ms: as `idle_limit_ms` returns it; 0: Spark ends no worker.
    """
    if bolt_limit_ms and 0 < idle_ms <= bolt_limit_ms:
        raise UsageError(
            f"bolt_timeout is {duration_text(bolt_limit_ms)}, and Spark ends a Python worker that says"
            f" nothing for {duration_text(idle_ms)} ({_KILL_OF_ALL_WORKERS} with"
            f" {_LIMIT_OF_ALL_WORKERS}): a call that"
            " hangs would end the query at each start, and fail no record. Set the one to false, raise the"
            " other well above bolt_timeout, or lower bolt_timeout"
        )


def idle_warning(idle_ms: int) -> str:
    """Return what to log about Spark's idle limit, `idle_ms`; empty: Spark ends no worker."""
    if not idle_ms:
        return ""
    return (
        f"idle_workers_are_ended after={duration_text(idle_ms)}: all calls of bolts for one batch of rows"
        " together have to be shorter, or the query ends, at each start anew, and no record fails for it; set"
        f" {_KILL_OF_ALL_WORKERS} to false, and bolt_timeout for what hangs"
    )
