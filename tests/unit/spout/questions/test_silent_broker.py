"""A command that needs all of some topics waits as long as its limit says, and ends at the first error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from acker.config.topics import Topics, parse
from acker.errors import Unreachable
from acker.kafka.port import Log
from acker.kafka.read_to_end import POLL_MS
from replay.records.letters import Filter
from spout.picture.loader import PicturePart
from spout.questions.kept_letters import KeptLetters
from spout.questions.letters import details_of
from spout.questions.open_roots import root_picture
from spout.questions.redrives import redrive_rows
from tests.support.memory.cluster import NoFaults
from tests.support.pictures import picture_of, values_of
from tests.support.worlds.letters_world import HOUR_MS, NOW_MS, SENTENCES, Kind
from tests.support.worlds.redrives_world import RedrivesWorld
from tests.support.worlds.roots_world import world_of_roots

YAML = """
acker: {{partitions: 2}}
replay: {{limits: {{operation_timeout: {seconds}s}}}}
inputs:
  sentences: {{id: 1, group: g, partitions: 2}}
  orders: {{id: 2, group: h, partitions: 2}}
"""


class Calls(NoFaults):
    """Counts what is asked of a broker; questions about States fail, if they are to."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.fails_at = ""

    def before(self, operation: str) -> None:
        self.counts[operation] += 1
        if operation == self.fails_at:
            raise Unreachable(f"no answer to {operation}")


def _show(log: Log, topics: Topics, letter: str) -> list[dict[str, Any]]:
    return details_of(log, topics, [letter])


def _kept(log: Log, topics: Topics, letter: str) -> list[dict[str, Any]]:
    """Read letters into a file that has none."""
    filters = [(topics.inputs["sentences"], Filter())]
    with (
        TemporaryDirectory() as folder,
        closing(KeptLetters(Path(folder, "letters"))) as kept,
        kept.letters_read(log, topics, filters) as letters,
    ):
        return letters.rows()


def _redrives(log: Log, topics: Topics, letter: str) -> list[dict[str, Any]]:
    return redrive_rows(log, topics, [topics.inputs["sentences"]])


@pytest.mark.parametrize("seconds", [2, 12])
@pytest.mark.parametrize("silent", [SENTENCES, "sentences.g.replay"])
@pytest.mark.parametrize("command", [_show, _kept, _redrives])
def test_a_silent_partition_is_waited_for_as_long_as_an_operation_may_take(
    seconds: int, silent: str, command: Callable[[Log, Topics, str], list[dict[str, Any]]]
) -> None:
    """A poll waits for a tenth of a second, and none of them gets anything."""
    world = RedrivesWorld(parse(YAML.format(seconds=seconds), file="topics.yaml", environ={}))
    letter = world.let_die(SENTENCES, 1, Kind(), HOUR_MS, b"k")
    world.begin(SENTENCES, "r1", HOUR_MS)
    world.replay(letter, "r1")
    calls = Calls()
    log = world.cluster.log(calls)
    command(log, world.topics, letter)
    calls.counts.clear()
    if command is not _redrives and silent != SENTENCES:
        return  # copies say nothing of a letter
    world.cluster.fall_silent(silent, 0, 1)
    with pytest.raises(Unreachable):
        command(log, world.topics, letter)
    assert calls.counts["poll"] == pytest.approx(seconds * 1_000 / POLL_MS, abs=8)


def test_the_first_state_that_cannot_be_read_ends_the_command() -> None:
    """Each of many acker partitions would take the time of an operation, for the same answer."""
    world, _ = world_of_roots()
    calls = Calls()
    log = world.cluster.log(calls)
    inputs = tuple(world.topics.inputs.values())
    with root_picture(log, world.topics, inputs) as picture:
        whole = picture.open_roots(older_than_ms=0, limit=100, now_ms=world.now_ms)
        calls.counts.clear()
        calls.fails_at = "poll"
        with pytest.raises(Unreachable, match="no answer to poll"):
            picture.open_roots(older_than_ms=0, limit=100, now_ms=world.now_ms)
        assert calls.counts["poll"] == 1
        # the picture reads on as if nothing had been
        calls.fails_at = ""
        again = picture.open_roots(older_than_ms=0, limit=100, now_ms=world.now_ms)
    assert (again.total, again.rows) == (whole.total, whole.rows)


def test_dead_letters_that_cannot_be_read_are_a_hole_of_outcomes_where_these_are_asked_for() -> None:
    """Which letters a redrive handled is said by marks behind them."""
    world = RedrivesWorld()
    world.let_die(SENTENCES, 1, Kind(), HOUR_MS, b"k")
    world.cluster.fall_silent(SENTENCES, 1)
    holes = f"SELECT what FROM unknown WHERE topic = '{SENTENCES}' AND what LIKE 'letters%'"
    whole = picture_of(world.log, world.topics, NOW_MS)
    assert values_of(whole, holes) == [("letters, redrives, outcomes",)]
    letters_alone = picture_of(world.log, world.topics, NOW_MS, parts={PicturePart.LETTERS})
    assert values_of(letters_alone, holes) == [("letters, redrives",)]
