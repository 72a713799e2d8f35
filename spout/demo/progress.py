"""The demo's live line: emitted, pending, acked, replayed, dead, oldest pending."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from spout.demo.observer import Tally

LINE_SECONDS = 2.0
"""How often a line is printed where there is no terminal to redraw one on."""


def read_status(path: Path) -> dict[str, float]:
    """Read the planner's status file; empty while there is none yet.

    The planner replaces the file whole, so what is read is never half of one.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return {key: value for key, value in data.items() if isinstance(value, int | float)}


class Progress:
    """Redraws one line on a terminal, and prints one now and then elsewhere."""

    def __init__(self, console: Console, status_path: Path) -> None:
        """Show progress on `console`, from the planner's status file and from what was observed."""
        self._console = console
        self._status_path = status_path
        self._live = (
            Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        )
        self._printed_at = 0.0

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, records_done: int, tally: Tally) -> None:
        """Show the counts as they are now."""
        status = read_status(self._status_path)
        oldest = status.get("oldest_pending_ms", 0) / 1000
        line = (
            f"emitted {int(status.get('emitted', 0)):,}  pending {int(status.get('pending', 0)):,}  "
            f"acked {tally.acked:,}  replayed {tally.copies:,}  dead {tally.dead_letters:,}  "
            f"oldest pending {oldest:.1f} s  ({records_done:,} records done)"
        )
        if self._live is not None:
            self._live.update(Text(line))
        elif time.monotonic() - self._printed_at >= LINE_SECONDS:
            self._printed_at = time.monotonic()
            self._console.print(line, highlight=False, soft_wrap=True)
