"""How a task guards itself against bolts that end or hang their process.

A batch that ended with its query and is run again runs in isolation from the start: what ended the query may
have been a bolt. The planning process knows that, since Spark asks for the partitions of such a batch without
having asked for its end. Tasks that read learn it with their share; those behind a shuffle find a mark, where
the planning process, the driver and the workers are on one machine. Elsewhere a task is tried several times,
and the second attempt knows by its number.

Source: docs/design/protocol.md, section 5.2.
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
        """Tell whether a task lets its bolts work in a child.

        Args:
            tries: how often the task was tried before.
        """
        return hasattr(os, "fork") and (tries > 0 or bool(self.mark and Path(self.mark).exists()))


def limit_ms(inputs: Sequence[Input]) -> int:
    """Return the `bolt_timeout` of a query, ms: the longest of its inputs; 0, never, is longer than any."""
    limits = [each.bolt_timeout_ms for each in inputs]
    return max(limits) if all(limits) else 0


def tried_once(master: str) -> bool:
    """Tell whether a Spark master tries each task once, so that a worker's end is the query's."""
    return _TRIED_ONCE.fullmatch(master) is not None
