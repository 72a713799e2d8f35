"""The demo's live bar: done of total, records/s, pending, replayed, dead, and whether it is throttled."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from spout.demo.observer import OutcomeCounts
from spout.planner.mailbox import PlannerStatus, read_status
from spout.planning.pace import TIMEOUT_SHARE

LINE_SECONDS = 2.0
"""How often a line is printed where there is no terminal to redraw one on."""

SPEED_UPDATES = 30
"""Over how many updates, of 0.1 s each, the speed is computed."""

BAR_CELLS = 40

THROTTLED_FROM = 1.5
"""When a batch took this many times longer than it should, the demo shows that its size is cut: the aim is a
quarter of the timeout, and batches vary around it.
"""


def status_line(
    status: PlannerStatus | None, counts: OutcomeCounts, per_second: float, timeout_ms: int
) -> str:
    """Describe the progress in a line; `timeout_ms` 0: the records never time out."""
    parts = [
        f"{per_second:,.0f} records/s",
        f"pending {status.pending if status else 0:,}",
        f"replayed {counts.copies:,}",
        f"dead {counts.dead_letters:,}",
    ]
    took_ms = status.batch_ms if status else 0
    if timeout_ms and took_ms * TIMEOUT_SHARE > timeout_ms * THROTTLED_FROM:
        parts.append(f"throttled: batch took {took_ms / 1000:.1f} s of {timeout_ms / 1000:g} s timeout")
    return "  ".join(parts)


class DemoProgress:
    """Redraws a bar on a terminal; elsewhere prints a line from time to time."""

    def __init__(self, console: Console, status_path: Path, total: int, timeout_ms: int) -> None:
        self._console = console
        self._status_path = status_path
        self._total = total
        self._timeout_ms = timeout_ms
        self._live = (
            Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        )
        self._printed_at = 0.0
        self._seen: deque[tuple[float, int]] = deque(maxlen=SPEED_UPDATES)

    def __enter__(self) -> DemoProgress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, records_done: int, counts: OutcomeCounts) -> None:
        """Show the present counts."""
        now = time.monotonic()
        self._seen.append((now, records_done))
        since, done = self._seen[0]
        per_second = (records_done - done) / (now - since) if now > since else 0.0
        line = status_line(read_status(self._status_path), counts, per_second, self._timeout_ms)
        of = f"{records_done:,} of {self._total:,}"
        if self._live is not None:
            row = Table.grid(padding=(0, 1))
            row.add_row(ProgressBar(self._total, records_done, width=BAR_CELLS), of)
            self._live.update(Group(row, Text(line)))
        elif now - self._printed_at >= LINE_SECONDS:
            self._printed_at = now
            self._console.print(f"{of}  {line}", highlight=False, soft_wrap=True)
