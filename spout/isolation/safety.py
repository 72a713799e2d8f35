"""When a query's tasks let their bolts work in a child process, and how long one call may last.

Apart from what runs bolts (`spout.isolation.task_runs`): the planning process needs only this.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from acker.config.topics import Input

_TRIED_ONCE = re.compile(r"local(\[[^,\]]*\])?")


@dataclass(frozen=True, slots=True)
class Safety:
    """What the tasks of a query need to know.

    Attributes:
        limit_ms: how long one call of a bolt may last; 0: for ever.
        mark: file that says that the batch is run again; empty: none does.
    """

    limit_ms: int = 0
    mark: str = ""

    def isolates(self, tries: int) -> bool:
        """Tell whether a task that was tried so often before lets its bolts work in a child."""
        return hasattr(os, "fork") and (tries > 0 or bool(self.mark and Path(self.mark).exists()))


def limit_ms(inputs: Sequence[Input]) -> int:
    """Return the `bolt_timeout` of a query, ms: the longest of its inputs; 0, never, is longer than any."""
    limits = [each.bolt_timeout_ms for each in inputs]
    return max(limits) if all(limits) else 0


def tried_once(master: str) -> bool:
    """Tell whether a Spark master tries each task once, so that a worker's end is the query's."""
    return _TRIED_ONCE.fullmatch(master) is not None
