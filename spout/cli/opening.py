"""Helpers of the commands that read topics: open the file and the cluster, parse times."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from acker.config.topics import Topics
    from acker.kafka.port import Log


@contextmanager
def opened(config: Path, command: str) -> Iterator[tuple[Topics, Log]]:
    """Load a topics.yaml and connect to its cluster, as long as the context lasts."""
    from acker.config.topics import load
    from acker.kafka.cluster import KafkaLog

    topics = load(config, os.environ)
    with closing(KafkaLog(topics.kafka, client_id=f"windhover-{command}")) as log:
        yield topics, log


def time_given(option: str, text: str | None, now_ms: int) -> int | None:
    """Parse a time, or a duration before now; None without a text.

    Raises:
        typer.BadParameter: it is neither.
    """
    from acker.units import duration_ms, time_ms

    if text is None:
        return None
    try:
        return max(0, now_ms - duration_ms(text))
    except ValueError:
        pass  # then it is a time, or an error
    try:
        return time_ms(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{option} {text}: {error}; give a time such as 2026-07-01T00:00:00Z, or 2h for so long ago"
        ) from error
