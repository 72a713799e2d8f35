"""Waiting for a condition, never for a time."""

from __future__ import annotations

import inspect
import os
import select
import threading
import time
from collections.abc import Callable, Iterable

from acker.kafka.port import Log, Record, TopicPartition
from acker.kafka.read_to_end import read_piece

TIMEOUT_S = 60.0


def eventually(
    condition: Callable[[], object],
    timeout_s: float = TIMEOUT_S,
    *,
    told: Callable[[], object] | None = None,
    step: Callable[[], object] | None = None,
) -> None:
    """Return as soon as a condition is true; fail with it and `told` if it is not within `timeout_s`.

    `step` does a piece of the work that the condition waits for, in place of a pause between two looks.
    """
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            found = "" if told is None else f": {told()}"
            raise AssertionError(f"not within {timeout_s:g} s: {_text_of(condition)}{found}")
        if step is None:
            pause.wait(0.02)
        else:
            step()


def _text_of(condition: Callable[[], object]) -> str:
    """Return a condition as its file has it: the name of a function, or the line of a lambda."""
    name = getattr(condition, "__name__", "<lambda>")
    if name != "<lambda>":
        return name.replace("_", " ")
    try:
        lines, number = inspect.getsourcelines(condition)
    except OSError:
        return repr(condition)
    return f"line {number}: {' '.join(' '.join(lines).split())[:200]}"


def settled(log: Log, places: Iterable[TopicPartition]) -> None:
    """Return when no transaction is open: a commit is answered before its markers are written."""
    places = list(places)
    eventually(lambda: log.stable_ends(places) == log.ends(places))


def committed(log: Log, places: Iterable[TopicPartition]) -> list[Record]:
    """Return the committed records of partitions, up to their ends once no transaction is open."""
    places = list(places)
    settled(log, places)
    ends = log.stable_ends(places)
    return [
        record
        for place, end in ends.items()
        for record in read_piece(log, place, 0, end, committed=True, wait_ms=int(TIMEOUT_S * 1_000))
    ]


class Watch:
    """Tells when a process is gone, whoever's child it is. It has to be there when this is made."""

    def __init__(self, pid: int) -> None:
        self._descriptor = os.pidfd_open(pid)

    def ended(self, timeout_s: float = TIMEOUT_S) -> bool:
        """Whether the process ends within `timeout_s`."""
        # not select(), which takes no descriptor beyond the first 1,024 of a process
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(timeout_s * 1_000))

    def close(self) -> None:
        """Stop watching."""
        os.close(self._descriptor)
