"""Logs what bolts raised: the full traceback, of each kind once a minute.

An executor logs when a task reports, so that who reads its log finds what its tasks did. The driver logs what
the tasks of a batch reported. Where both are one process (a local master), the driver alone does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from spout.raised import Raised

TELL_MS: Final = 60_000
"""A bolt that goes on raising one exception at one place is told of this often."""

KINDS_MAX: Final = 1_000
"""So many kinds are told apart; then all of them may be logged once more."""

_LOGGER = logging.getLogger("windhover.spout")


class TracebackLog:
    """Logs the tracebacks of one process, or of one stream."""

    def __init__(self, now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000) -> None:
        """Begin with nothing logged."""
        self._now_ms = now_ms
        self._logged_ms: dict[tuple[str, str, str], int] = {}

    def tell(self, raised: Iterable[Raised], batch: int) -> None:
        """Log what was raised in a batch, unless its kind was logged within `TELL_MS`."""
        now_ms = self._now_ms()
        for each in raised:
            last_ms = self._logged_ms.get(each.kind)
            if last_ms is not None and now_ms - last_ms < TELL_MS:
                continue
            if len(self._logged_ms) >= KINDS_MAX:
                self._logged_ms.clear()
            self._logged_ms[each.kind] = now_ms
            _LOGGER.warning(
                "bolt_raised operator=%s error=%s place=%s batch=%d: tuples fail by it; it is traced once in"
                " %d s\n%s",
                each.operator, each.error, each.place, batch, TELL_MS // 1_000, each.text,
            )  # fmt: skip


OF_WORKER: Final = TracebackLog()
"""What this process of an executor has logged; Spark lets one process do task after task."""
