"""One partition of an ack topic has no leader, or nothing of it arrives: what waits, and what goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from acker.config.limits import STANDS_MS, AckerLimits
from acker.errors import PartitionStands
from acker.identity import acker_partition
from acker.kafka.port import TopicPartition
from acker.ledger.output import AckerEventKind
from acker.service.step_reader import STALLED_ASK_MS
from acker.wire.events import Tick, Verdicts
from tests.support.memory.cluster import MemoryCluster
from tests.support.worlds.acker_world import CODEC, GROUP, SOURCE, TOPICS, World, edge, outcomes_of

PARTITIONS = 3
LOST = 0
SECONDS = 2 * STANDS_MS // 1_000
"""In which a partition that stands is noticed."""

Change = Callable[[MemoryCluster, str, int], None]
NO_LEADER: tuple[Change, Change] = (MemoryCluster.lose_leader, MemoryCluster.elect_leader)
SILENT: tuple[Change, Change] = (MemoryCluster.fall_silent, MemoryCluster.speak_again)

TROUBLES = [
    pytest.param(topic, way, id=f"{topic} {name}")
    for name, way, topics in (
        ("has no leader", NO_LEADER, (TOPICS.init, TOPICS.fail, TOPICS.ack, TOPICS.verdict, TOPICS.state)),
        ("is silent", SILENT, (TOPICS.init, TOPICS.fail, TOPICS.ack)),
    )
    for topic in topics
]
WRITES = ("fail", "ack", "tick")
"""What is written of each partition: of its three roots one fails, one is acked, one is given no time."""

DONE = ["ACKED", "FAILED", "TIMED_OUT"]


def first_of(partition: int) -> int:
    """Return the first position of a block that an acker partition owns."""
    blocks = (block << 16 for block in range(100))
    return next(position for position in blocks if acker_partition(SOURCE, position, PARTITIONS) == partition)


@dataclass
class Installation:
    """An acker of three partitions with three open roots in each; one is acked, one fails, one times out."""

    world: World = field(
        default_factory=lambda: World(PARTITIONS, AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0))
    )
    unwritten: list[tuple[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.writer = self.world.session()
        self.writer.take()
        for partition in range(PARTITIONS):
            self.writer.init((first_of(partition), first_of(partition) + 3))
        self.world.settle()

    def write(self) -> None:
        """Settle all roots; what cannot be written, for want of a leader, is written by the next call."""
        writes = self.unwritten or [(kind, number) for number in range(PARTITIONS) for kind in WRITES]
        self.unwritten = []
        for kind, number in writes:
            try:
                self._write(kind, number)
            except PartitionStands:
                self.unwritten.append((kind, number))

    def _write(self, kind: str, number: int) -> None:
        first = first_of(number)
        if kind == "fail":
            self.writer.fails(first + 1)
        elif kind == "ack":
            self.writer.acks(values=[(first, edge(first))])
        else:
            self.world.write(TOPICS.init, Tick(GROUP, "s1", 1, 30_000), number)

    def pass_seconds(self, seconds: int) -> None:
        for _ in range(seconds):
            self.world.now_ms += 1_000
            for _ in range(3):
                self.world.step()

    def outcomes(self, partition: int) -> dict[int, list[str]]:
        """Return by position what is in the verdict log, also while that has no leader."""
        log = self.world.cluster.partition(TopicPartition(TOPICS.verdict, partition))
        records, _ = log.read(log.start, 1_000, committed=True)
        events = [CODEC.decode(record.value) for record in records]
        by_position: dict[int, list[str]] = {}
        for event in events:
            for (_, position), (outcome, _) in outcomes_of(event) if isinstance(event, Verdicts) else ():
                by_position.setdefault(position, []).append(outcome)
        return by_position

    def verdicts(self, partition: int) -> list[str | None]:
        """Return the outcomes of the partition's three roots; each has one at most."""
        outcomes = self.outcomes(partition)
        assert all(len(verdicts) == 1 for verdicts in outcomes.values()), outcomes
        return [outcomes.get(first_of(partition) + which, [None])[0] for which in range(3)]

    def told(self, kind: AckerEventKind) -> list[str]:
        return [event.detail for event in self.world.events if event.kind is kind]


@pytest.fixture
def installed() -> Installation:
    return Installation()


def sound(installed: Installation) -> list[list[str | None]]:
    """Return the verdicts of the partitions that are not in trouble."""
    return [installed.verdicts(partition) for partition in range(PARTITIONS) if partition != LOST]


@pytest.mark.parametrize("runs", [pytest.param(True, id="runs"), pytest.param(False, id="starts")])
@pytest.mark.parametrize(("topic", "way"), TROUBLES)
def test_a_partition_in_trouble_keeps_only_its_own_roots_waiting(
    installed: Installation, topic: str, way: tuple[Change, Change], *, runs: bool
) -> None:
    """O407: the others get their verdicts, and it is named; its own come when it goes on.

    Before, all waited, and after five minutes the acker ended; or its own waited and nobody said it.
    """
    begin, end = way
    world = installed.world
    if not runs:
        with suppress(ValueError):
            world.acker.close()
        world.acker = world.start()
    begin(world.cluster, topic, LOST)
    installed.write()
    installed.pass_seconds(5)
    assert sound(installed) == [DONE, DONE], "soon, not when a wait is over"
    installed.pass_seconds(SECONDS)

    assert all(verdict in (None, done) for verdict, done in zip(installed.verdicts(LOST), DONE, strict=True))
    assert installed.verdicts(LOST) != DONE
    name = f"{topic}/{LOST}"
    assert any(name in text for text in installed.told(AckerEventKind.STANDS)), world.events
    assert list(world.status().standing) == [name]

    end(world.cluster, topic, LOST)
    installed.write()
    world.now_ms += world.limits.unreachable_ms
    installed.pass_seconds(10)
    assert [installed.verdicts(partition) for partition in range(PARTITIONS)] == [DONE] * PARTITIONS
    assert world.status().standing == {}
    if way is SILENT:
        assert any(name in text for text in installed.told(AckerEventKind.GOES_ON)), world.events


def test_contributions_that_come_before_their_inits_can_be_read_count_when_these_can(
    installed: Installation,
) -> None:
    """O407: they are in the log once; nobody writes them again."""
    world = installed.world
    first = first_of(LOST) + 3
    world.cluster.fall_silent(TOPICS.init, LOST)
    installed.writer.init((first, first + 2))
    installed.writer.fails(first)
    installed.writer.acks(values=[(first + 1, edge(first + 1))])
    installed.pass_seconds(SECONDS)
    assert world.status().standing, "the partition is apart by now"
    world.cluster.speak_again(TOPICS.init, LOST)
    installed.pass_seconds(10)
    assert world.status().open_roots == 3 * PARTITIONS, "the roots of before are open, and no others"
    assert installed.outcomes(LOST) == {first: ["FAILED"], first + 1: ["ACKED"]}


@pytest.mark.parametrize("topic", [TOPICS.init, TOPICS.fail])
def test_a_partition_that_is_apart_holds_few_contributions_and_takes_no_room_of_others(
    installed: Installation, topic: str
) -> None:
    """Of its contributions and fails no more are fetched than one step may have."""
    world = installed.world
    world.cluster.lose_leader(topic, LOST)
    for seq in range(3 * world.limits.step_records):
        installed.writer.acks(values=[(first_of(LOST), edge(first_of(LOST)))], seq=seq, lane=f"lane-{seq}")
        if topic != TOPICS.fail and not seq % 2:
            installed.writer.fails(first_of(LOST) + 1, seq=seq, lane=f"lane-{seq}")
    installed.write()
    installed.pass_seconds(10)
    assert sound(installed) == [DONE, DONE]
    held = world.acker._reader.records[LOST]
    assert len(held.acks) <= world.limits.step_records
    assert len(held.fails) <= 2 * world.limits.step_records


def test_ends_of_a_partition_that_is_apart_are_asked_once_a_second(installed: Installation) -> None:
    world = installed.world
    world.cluster.lose_leader(TOPICS.init, LOST)
    installed.write()
    installed.pass_seconds(1)
    asked: list[TopicPartition] = []
    known = type(world.acker._log).bounds

    def note(log: object, bound: object, places: object) -> object:
        asked.extend(places)
        return known(log, bound, places)

    steps = 100
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(world.acker._log), "bounds", note)
        for _ in range(steps):
            world.now_ms += STALLED_ASK_MS // 20
            world.step()
    assert asked.count(TopicPartition(TOPICS.init, LOST)) <= steps // 20 + 2
