"""Bolts that change their process: what one record brings about there bends and ends nothing of another."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal, getcontext
from pathlib import Path
from typing import Any

import pytest

import spout
from spout.tuples.tuple import Tuple
from tests.support.worlds.topology_world import ran

BAD = b"bad"
ROOT = Path(__file__).parents[4]


def close_streams() -> None:
    """Close what is printed to."""
    sys.stdout.close()
    sys.stderr.close()


def remove_streams() -> None:
    """Do as a daemon does that detaches itself."""
    sys.stdout = sys.stderr = sys.stdin = None  # type: ignore[assignment]


def cut_decimals() -> None:
    """Compute with three digits from now on, and raise where one is lost."""
    getcontext().prec = 3
    getcontext().traps = dict.fromkeys(getcontext().traps, True)


def fail_warnings() -> None:
    """Let each warning be an error."""
    warnings.simplefilter("error")


def log_all() -> None:
    """Print all that anybody logs."""
    logging.getLogger().setLevel(logging.DEBUG)


DEEDS: dict[str, Callable[[], object]] = {
    "closes its streams": close_streams,
    "removes its streams": remove_streams,
    "cuts decimals": cut_decimals,
    "lets warnings fail": fail_warnings,
    "logs all": log_all,
    "changes its folder": lambda: os.chdir("/"),
    "empties its environment": os.environ.clear,
    "has no more recursion": lambda: sys.setrecursionlimit(150),
}


class Changes(spout.BasicBolt):
    """Does a deed at the bad record, which fails then; hands others on."""

    output = "value string, price decimal(20,4), at timestamp"

    def __init__(self, deed: str) -> None:
        self.deed = deed

    def execute(self, tuple: Tuple, collector: spout.BasicCollector) -> None:
        """Do it, or emit."""
        if tuple["value"] == BAD:
            DEEDS[self.deed]()
            raise ValueError("done")
        collector.emit((tuple["value"].decode(), Decimal("1234567890123.4567"), tuple["timestamp"]))


@contextmanager
def restored() -> Iterator[None]:
    """Keep the process as it is, whatever is done to it within; a fixture would have pytest's own streams."""
    streams = sys.stdout, sys.stderr, sys.stdin
    folder, environment, limit = os.getcwd(), dict(os.environ), sys.getrecursionlimit()
    context = getcontext().copy()
    level = logging.getLogger().level
    sys.stdout, sys.stderr = (os.fdopen(os.open(os.devnull, os.O_WRONLY), "w") for _ in range(2))
    try:
        with warnings.catch_warnings():
            yield
    finally:
        sys.stdout, sys.stderr, sys.stdin = streams
    sys.setrecursionlimit(limit)
    os.chdir(folder)
    os.environ.update(environment)
    getcontext().prec, getcontext().traps = context.prec, context.traps
    logging.getLogger().setLevel(level)


@pytest.mark.parametrize("places", [("rows", "child"), ("topology", "topology"), ("child", "rows")], ids=str)
@pytest.mark.parametrize("deed", DEEDS)
def test_what_one_record_does_to_the_process_bends_no_other(deed: str, places: Sequence[str]) -> None:
    """O815: its values neither; a task that begins behind it works, in a child too."""
    tasks = [b"a", BAD, b"b"], [b"c", BAD, b"d"]
    rows_of_tasks: list[list[Any]] = [[], []]
    failed: list[dict[int, Any]] = []
    with restored():
        for where, lines, rows in zip(places, tasks, rows_of_tasks, strict=True):
            failed.append(ran(Changes(deed), lines, [], where, rows))
    assert [list(failed_of_task) for failed_of_task in failed] == [[1], [1]]
    for lines, rows in zip(tasks, rows_of_tasks, strict=True):
        good = [line.decode() for line in lines if line != BAD]
        assert [row[:2] for row in rows] == [(line, Decimal("1234567890123.4567")) for line in good]


FORKS = """
import os
import spout
from tests.support.worlds.topology_world import ran

class Forks(spout.BasicBolt):
    output = "value string"
    def execute(self, tuple, collector):
        if tuple["value"] == b"bad":
            os.fork()
        collector.emit((tuple["value"].decode(),))

rows = []
ran(Forks(), [b"a", b"bad", b"b"], [], "rows", rows)
os.write(1, (" ".join(row[0] for row in rows) + "\\n").encode())
"""


def test_a_child_that_a_bolt_forks_and_that_comes_back_writes_nothing() -> None:
    """O815: all that follows would be done twice, and two processes would answer Spark."""
    ended = subprocess.run(
        [sys.executable, "-c", FORKS], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stdout == "a bad b\n", ended.stderr
