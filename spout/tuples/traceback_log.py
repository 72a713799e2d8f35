"""Logs what bolts raised: the full traceback, of each kind once a minute.

An executor logs when a task reports, so that who reads its log finds what its tasks did. The driver logs what
the tasks of a batch reported. Where both are one process (a local master), the driver alone does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from spout.runtime.recurring import RECURRING_EVERY_S, OncePerKind
from spout.tuples.raised import Raised

_LOGGER = logging.getLogger("windhover.spout")


class TracebackLog:
    """Logs the tracebacks of one process, or of one stream."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._kinds = OncePerKind(clock)

    def tell(self, raised: Iterable[Raised], batch: int) -> None:
        """Log what was raised in a batch, unless its kind was logged within `RECURRING_EVERY_S`."""
        for each in raised:
            if self._kinds.left_out(each.kind) is None:
                continue
            _LOGGER.warning(
                "bolt_raised operator=%s error=%s place=%s batch=%d: tuples fail by it; it is traced once in"
                " %.0f s\n%s",
                each.operator,
                each.error,
                each.place,
                batch,
                RECURRING_EVERY_S,
                each.text,
            )


OF_WORKER: Final = TracebackLog()
"""What this process of an executor has logged; Spark lets one process do task after task."""
