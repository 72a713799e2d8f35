"""Which partitions stand, and which only seem to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from acker.config.limits import STANDS_MS
from acker.kafka.port import Bound, OffsetAnswers, Outgoing, TopicPartition
from acker.kafka.standing import (
    ASKS_PER_LIMIT,
    INTERVAL_MS_MAX,
    QUEUED_MAX,
    REPEAT_MS,
    StandingPartitions,
    StandingReaders,
    StandingWatch,
)
from tests.support.memory.clients import MemoryReader
from tests.support.memory.cluster import MemoryCluster, NoFaults

A, B = TopicPartition("words", 0), TopicPartition("words", 1)
STEP_MS = 1_000
NOTICED_MS = STANDS_MS + STANDS_MS // ASKS_PER_LIMIT
"""When it is noticed at the latest: the end is asked once in a while, and from then on time counts."""
NO_LEADER = OffsetAnswers({}, {A: "has no leader: its replicas are on broker 2"})


@dataclass
class Look:
    """A reader whose partitions are looked at, each second of a clock that a test sets."""

    ends: dict[TopicPartition, int] = field(default_factory=lambda: {A: 10, B: 10})
    positions: dict[TopicPartition, int] = field(default_factory=lambda: {A: 5, B: 10})
    troubles: Mapping[TopicPartition, str] = field(default_factory=dict)
    now_ms: int = 1_000_000
    told: list[str] = field(default_factory=list)
    partitions: StandingPartitions = field(default_factory=StandingPartitions)

    def at(self, now_ms: int, *, is_drained: bool = True) -> None:
        """Look once at a time."""
        self.now_ms = now_ms
        self.partitions.record_positions(self.positions, now_ms, is_drained=is_drained)
        asked = [place for place in self.partitions.partitions_to_ask() if place not in self.troubles]
        self.partitions.record_ends(
            OffsetAnswers({place: self.ends[place] for place in asked}, self.troubles)
        )
        news = self.partitions.take_news()
        self.told += [f"{each.name} stands" for each in news.stand]
        self.told += [f"{place.topic}/{place.partition} goes on" for place in news.go_on]

    def for_ms(self, wait_ms: int, *, is_drained: bool = True) -> None:
        """Look each second for a while."""
        for now_ms in range(self.now_ms + STEP_MS, self.now_ms + wait_ms + 1, STEP_MS):
            self.at(now_ms, is_drained=is_drained)


def test_a_partition_that_does_not_go_on_is_named_with_position_end_and_since() -> None:
    """O404: once, then once a minute; and that it goes on again."""
    look = Look()
    look.for_ms(STANDS_MS)
    assert look.told == [], "not before: an election fits in"
    look.for_ms(NOTICED_MS - STANDS_MS + STEP_MS)
    assert look.told == ["words/0 stands"]
    (standing,) = look.partitions.standing()
    assert str(standing).startswith(
        "words/0 stands at 5 since 1970-01-01T00:16:51Z, 30 s: its log goes on to 10,"
    )
    look.for_ms(REPEAT_MS)
    assert look.told == ["words/0 stands"] * 2
    look.positions[A] = 6
    look.for_ms(STEP_MS)
    assert look.told[2:] == ["words/0 goes on"]
    assert look.partitions.standing() == ()


def test_a_partition_without_a_leader_stands_though_nobody_knows_its_end() -> None:
    look = Look(troubles=NO_LEADER.troubles)
    look.for_ms(NOTICED_MS + STEP_MS)
    (standing,) = look.partitions.standing()
    assert "it has no leader: its replicas are on broker 2" in str(standing)
    look.troubles = {}
    look.ends[A] = 5
    look.for_ms(NOTICED_MS)
    assert look.told == ["words/0 stands", "words/0 goes on"], "nothing was written to it meanwhile"


@pytest.mark.parametrize(
    "moves",
    [
        pytest.param([(A, 1)], id="it goes on slowly"),
        pytest.param([(A, -1)], id="it was set back"),
    ],
)
def test_a_position_that_moves_does_not_stand(moves: Iterable[tuple[TopicPartition, int]]) -> None:
    look = Look(ends={A: 1_000, B: 1_000}, positions={A: 500, B: 1_000})
    for _ in range(5):
        look.for_ms(STANDS_MS - STEP_MS)
        for place, by in moves:
            look.positions[place] += by
    assert look.told == []


def test_a_partition_at_its_end_does_not_stand_when_a_record_comes_after_hours() -> None:
    """How long it has not moved says nothing: there was nothing to read."""
    look = Look(ends={A: 5, B: 10})
    look.for_ms(3_600_000)
    look.ends[A] = 6
    look.for_ms(STANDS_MS)
    look.positions[A] = 6
    look.for_ms(NOTICED_MS)
    assert look.told == []


def test_a_log_that_was_cut_below_the_position_does_not_stand() -> None:
    look = Look(ends={A: 3, B: 10})
    look.for_ms(2 * NOTICED_MS)
    assert look.told == []


def test_what_is_not_read_on_purpose_does_not_stand() -> None:
    """A limit is reached for a while, again and again: the partition is not told meanwhile."""
    look = Look()
    for _ in range(5):
        look.for_ms(STANDS_MS - STEP_MS)
        del look.positions[A]
        look.for_ms(STEP_MS)
        look.positions[A] = 5
    assert look.told == []


def test_a_partition_behind_others_in_a_slow_reader_does_not_stand() -> None:
    """O405: the client has its records behind what it fetched of others before."""
    look = Look(ends={A: 10, B: 10_000_000})
    slow = QUEUED_MAX // (10 * NOTICED_MS // STEP_MS)
    for _ in range(10 * NOTICED_MS // STEP_MS):
        look.for_ms(STEP_MS, is_drained=False)
        look.positions[B] += slow
    assert look.told == []


def test_nothing_waits_behind_more_records_than_a_client_fetches_ahead() -> None:
    look = Look(ends={A: 10, B: 10_000_000})
    look.for_ms(STEP_MS, is_drained=False)
    look.positions[B] += QUEUED_MAX + 1
    look.for_ms(NOTICED_MS + 2 * STEP_MS, is_drained=False)
    assert look.told == ["words/0 stands"]


@pytest.mark.parametrize(
    "jump_ms",
    [
        pytest.param(3_600_000, id="the process was stopped for an hour"),
        pytest.param(-3_600_000, id="the clock was set back"),
    ],
)
def test_time_in_which_nobody_looked_counts_little(jump_ms: int) -> None:
    """O406: a process that was stopped has read nothing; it does so now."""
    look = Look()
    look.for_ms(STANDS_MS // 2)
    look.at(look.now_ms + jump_ms)
    look.for_ms(STANDS_MS // 2 - INTERVAL_MS_MAX - STEP_MS)
    assert look.told == []
    look.for_ms(NOTICED_MS)
    assert look.told == ["words/0 stands"]


@pytest.mark.parametrize("committed", [True, False])
def test_an_open_transaction_holds_up_no_reader_of_committed_records(*, committed: bool) -> None:
    """A dead producer's may be open for a quarter of an hour."""
    cluster = MemoryCluster()
    cluster.create_topic("words", 1)
    log = cluster.log()
    owner = log.transactions("owner")
    owner.init(1_000)
    owner.begin()
    owner.send(Outgoing("words", 0, b"open"))
    reader = MemoryReader(cluster, NoFaults(), committed=committed)
    reader.assign({A: 0})
    bound = Bound.STABLE_END if committed else Bound.END
    watch = StandingWatch(log, bound)
    for now_ms in range(0, 3 * NOTICED_MS, STEP_MS):
        reader.poll(0)
        news = watch.check_positions({A: reader.position(A)}, now_ms)
        assert news.stand == []
    owner.commit(1_000)
    cluster.fall_silent("words", 0)
    stood = [
        each.position
        for now_ms in range(3 * NOTICED_MS, 6 * NOTICED_MS, STEP_MS)
        for each in watch.check_positions({A: 0}, now_ms).stand
    ]
    assert stood, "what is committed must come"


def test_ends_are_asked_only_of_partitions_that_do_not_move_and_not_often() -> None:
    """An idle process asks once in ten seconds."""
    partitions = StandingPartitions()
    asked: list[TopicPartition] = []
    seconds = 10 * STANDS_MS // STEP_MS
    for number in range(seconds):
        partitions.record_positions({A: number, B: 10}, number * STEP_MS)
        places = partitions.partitions_to_ask()
        asked += places
        partitions.record_ends(OffsetAnswers(dict.fromkeys(places, 10), {}))
    assert set(asked) == {B}
    assert len(asked) <= 10 * ASKS_PER_LIMIT


@pytest.mark.parametrize("step_ms", [0, -3_600_000, 3_600_000], ids=["no step", "back", "ahead"])
@pytest.mark.parametrize("is_drained", [True, False], ids=["reader has time", "reader is busy"])
@pytest.mark.parametrize("others", [0, 1], ids=["alone", "beside another"])
def test_a_partition_that_moves_slowly_does_not_stand_by_any_clock(
    step_ms: int, is_drained: bool, others: int
) -> None:
    """One record in nearly the time after which it would stand; its end goes on as well."""
    look = Look(ends={A: 1_000, B: 10}, positions={A: 5, B: 10})
    if not others:
        look.positions.pop(B)
    for number in range(10):
        look.for_ms(STANDS_MS - 2_000, is_drained=is_drained)
        look.positions[A] += 1
        if number == 5:
            look.now_ms += step_ms
    assert look.told == []
    look.for_ms(2 * NOTICED_MS)
    assert look.told[:1] == ["words/0 stands"], "and once it does not move, it does"


@pytest.mark.parametrize("step_ms", [0, -3_600_000, 3_600_000], ids=["no step", "back", "ahead"])
@pytest.mark.parametrize("moves", [True, False], ids=["slow", "stands"])
def test_a_reader_that_catches_up_slowly_does_not_stand_for_who_looks_by_any_clock(
    step_ms: int, moves: bool
) -> None:
    """D3003: who looks knows the positions alone; by a first look a late one may stand."""
    readers = StandingReaders(STANDS_MS)
    positions, ends, now_ms = {A: 5}, {A: 1_000}, 10_000_000
    readers.find_standing({}, {}, {}, now_ms)
    named: list[bool] = []
    for number in range(40):
        now_ms += STANDS_MS // 4 + (step_ms if number == 20 else 0)
        if moves and not number % 3:
            positions[A] += 1
        named.append(bool(readers.find_standing(positions, {A: 900}, ends, now_ms)))
    assert named[-1] is not moves
    if moves and step_ms <= 0:
        assert sum(named) <= 1, "the first look behind a step back may err"
