"""Random histories of an ordered input: whatever fails or dies, each line is acked in order, and all of it.

The acker, the replay worker and the planning process are the real ones, on the in-memory cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acker.identity import is_replay, offset_of, partition_of
from acker.kafka.port import Record
from replay.records.headers import parse_lineage, parse_location
from tests.support.worlds.order_world import OrderWorld

KEYS = [b"a", b"b", b"c", None]
DEEDS = ["produce", "live", "live", "live", "rerun", "restart", "replays", "acker", "unplanned", "wait"]

histories = st.fixed_dictionaries(
    {
        "deeds": st.lists(
            st.tuples(st.sampled_from(DEEDS), st.integers(0, 3), st.integers(1, 12)), min_size=4, max_size=14
        ),
        "keys": st.lists(st.integers(0, 3), min_size=1, max_size=12),
        "fails": st.dictionaries(
            st.tuples(st.integers(0, 1), st.integers(0, 60)), st.integers(1, 6), max_size=12
        ),
        "behind_a_shuffle": st.booleans(),
        "max_held": st.sampled_from([3, 10, 1_000]),
        "limit": st.sampled_from([None, None, 4]),
        "timeout": st.sampled_from(["30s", "2s"]),
    }
)


class Acked(NamedTuple):
    """A record that was acked, and the batch that it was acked in."""

    batch: int
    origin: int
    partition: int
    key: bytes | None


def origin_of(record: Record) -> tuple[int, int]:
    lineage = parse_lineage(record.headers, record.topic, record.partition, record.offset)
    place = parse_location(lineage.origin)
    assert place is not None
    return place[1], place[2]


def acked(world: OrderWorld) -> list[Acked]:
    """Return each acked record, batch by batch, in a batch by origin: so a task runs them."""
    there: dict[tuple[bool, int, int], Record] = {}
    for topic in ("sentences", "sentences.g.replay"):
        for record in world.records(topic):
            there[topic != "sentences", record.partition, record.offset] = record
    found: list[Acked] = []
    for source, position in world.acked():
        record = there[is_replay(source), partition_of(source), offset_of(position)]
        origin = origin_of(record)[1] if is_replay(source) else record.offset
        found.append(Acked(world.batch_of[source, position], origin, record.partition, record.key))
    return sorted(found)


def line(ordering: str, partition: int, key: bytes | None) -> Any:
    return (partition, key) if ordering == "key" else partition


class History:
    """One group's life."""

    def __init__(self, ordering: str, drawn: dict[str, Any]) -> None:
        self.world = OrderWorld(ordering, timeout=drawn["timeout"], max_held=drawn["max_held"], attempts=3)
        self.world.behind_a_shuffle = drawn["behind_a_shuffle"]
        self.world.bolt = self.bolt
        self.fails = dict(drawn["fails"])
        self.keys = [KEYS[number] for number in drawn["keys"]]
        self.limit = drawn["limit"]
        self.produced = [0, 0]
        self.deeds: dict[str, Callable[[int, int], None]] = {
            "produce": self.produce,
            "live": lambda _choice, count: self.world.live(count * 100, limit=self.limit),
            "rerun": self.rerun,
            "restart": lambda _choice, _count: self.world.restart(),
            "replays": lambda _choice, _count: self.world.restart_replays(),
            "acker": lambda _choice, _count: self.crash_acker(),
            "unplanned": self.unplanned,
            "wait": lambda _choice, count: self.world.run(count * 300),
        }

    def bolt(self, _record: Record, partition: int, origin: int) -> str:
        left = self.fails.get((partition, origin), 0)
        self.fails[partition, origin] = left - 1
        return "ValueError" if left > 0 else ""

    def produce(self, choice: int, count: int) -> None:
        partition = choice % 2
        for _ in range(count):
            key = self.keys[self.produced[partition] % len(self.keys)]
            self.world.produce(1, partition=partition, keys=() if key is None else (key,))
            self.produced[partition] += 1

    def rerun(self, choice: int, _count: int) -> None:
        """Spark dies in a batch, before or after it was published, and runs it again."""
        self.world.plan(self.limit)
        self.world.execute(publish=choice % 2 == 0, end=False)
        self.world.restart()

    def unplanned(self, _choice: int, _count: int) -> None:
        """The planning process dies after it has initialised what Spark never journals."""
        if self.world.running is None:
            self.world.spout.plan(self.world.done, self.limit, self.world.now_ms)
            self.world.restart()

    def crash_acker(self) -> None:
        self.world.kill_acker()
        self.world.start_acker()


@pytest.mark.parametrize("ordering", ["key", "partition"])
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn=histories)
def test_whatever_fails_or_dies_each_line_is_acked_in_order_and_nothing_is_lost(
    ordering: str, drawn: dict[str, Any]
) -> None:
    history = History(ordering, drawn)
    world = history.world
    drawn["reruns"] = any(deed == "rerun" for deed, _, _ in drawn["deeds"])
    history.produce(0, 8)
    history.produce(1, 8)
    for deed, choice, count in drawn["deeds"]:
        history.deeds[deed](choice, count)
    world.rest(most_ms=90_000)
    lines: dict[Any, list[int]] = {}
    done: list[tuple[int, int]] = []
    for each in acked(world):
        done.append((each.partition, each.origin))
        if ordering == "partition" or each.key is not None:
            lines.setdefault(line(ordering, each.partition, each.key), []).append(each.origin)
    for name, origins in lines.items():
        assert origins == sorted(origins), name
    dead = [origin_of(letter) for letter in world.letters()]
    everything = [(p, offset) for p, count in enumerate(history.produced) for offset in range(count)]
    assert sorted([*done, *dead]) == everything
    for batch in range(world.batches):
        ran = [each for each in world.ran if each.batch == batch and not each.failed and each.key is not None]
        for name in {line(ordering, each.partition, each.key) for each in ran}:
            here = [each.origin for each in ran if line(ordering, each.partition, each.key) == name]
            if not drawn["reruns"] and not drawn["behind_a_shuffle"]:
                assert here == sorted(here), name
