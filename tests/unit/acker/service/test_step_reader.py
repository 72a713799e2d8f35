"""What a step fetches: in which order, how much at once, and how long it waits for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from acker.config.limits import AckerLimits
from acker.config.settings import AckTopics
from acker.errors import Unreachable
from acker.kafka.port import Bound, OffsetAnswers, Record, TimestampType, TopicPartition
from acker.service.step_reader import (
    BURST,
    STALLED_ASK_MS,
    STALLED_POLL_MS,
    STALLED_POLLS,
    StepReader,
    StepRecords,
)
from acker.wire.codec import RECORD_BYTES_MAX

TOPICS = AckTopics.with_prefix("")
POLL_MS, QUIET_MS, PACE_MS = 50, 250, 200
INIT, FAIL = TopicPartition(TOPICS.init, 0), TopicPartition(TOPICS.fail, 0)
FETCH = 200
"""So many records a poll asks for at most."""


@dataclass
class ScriptedReader:
    """Returns what lies behind its positions, in pieces of `piece`; notes each poll."""

    log: ScriptedLog
    name: str
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    is_closed: bool = False

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self.positions = dict(positions)

    def poll(self, timeout_ms: int, max_records: int = 1_000) -> Sequence[Record]:
        self.log.polls.append((self.name, timeout_ms, max_records))
        if self.log.error is not None:
            raise self.log.error
        records: list[Record] = []
        for place, position in self.positions.items():
            if place not in self.log.silent:
                records += [r for r in self.log.records if r[:2] == place and r.offset >= position]
        records = records[: min(max_records, self.log.piece)]
        for record in records:
            self.positions[TopicPartition(*record[:2])] = record.offset + 1
        return records

    def position(self, place: TopicPartition) -> int:
        return self.positions[place]

    def close(self) -> None:
        self.is_closed = True


class ScriptedLog:
    """A log of some records; of `silent` places nothing arrives, of `leaderless` ones nobody says the end."""

    def __init__(self) -> None:
        """Begin empty."""
        self.records: list[Record] = []
        self.polls: list[tuple[str, int, int]] = []
        self.readers: list[tuple[bool, bool]] = []
        self.made: list[ScriptedReader] = []
        self.silent: set[TopicPartition] = set()
        self.leaderless: set[TopicPartition] = set()
        self.error: Exception | None = None
        self.piece = 1_000
        self.bounds_calls = 0

    def reader(self, *, committed: bool, patient: bool = False) -> ScriptedReader:
        self.readers.append((committed, patient))
        self.made.append(ScriptedReader(self, ("acks", "control")[len(self.made)]))
        return self.made[-1]

    def bounds(self, bound: Bound, places: Iterable[TopicPartition]) -> OffsetAnswers:
        assert bound is Bound.END
        self.bounds_calls += 1
        ends = {place: self.end(place) for place in places if place not in self.leaderless}
        return OffsetAnswers(ends, {})

    def end(self, place: TopicPartition) -> int:
        return max((r.offset + 1 for r in self.records if r[:2] == place), default=0)

    def write(
        self, topic: str, count: int = 1, *, size: int = 10, number: int = 0, time_ms: int = -1
    ) -> None:
        place = TopicPartition(topic, number)
        for _ in range(count):
            kind = TimestampType.APPENDED if time_ms >= 0 else TimestampType.CREATED
            self.records.append(Record(*place, self.end(place), None, bytes(size), (), time_ms, kind))


@dataclass
class Fetching:
    """A step reader of some partitions, over a scripted log."""

    partitions: Collection[int] = (0,)
    limits: AckerLimits = field(
        default_factory=lambda: AckerLimits(
            poll_ms=POLL_MS, quiet_ms=QUIET_MS, pace_ms=PACE_MS, step_bytes=1 << 40
        )
    )
    log: ScriptedLog = field(default_factory=ScriptedLog)

    def __post_init__(self) -> None:
        self.reader = StepReader(self.log, TOPICS, self.limits)
        self.reader.assign(dict.fromkeys(self.partitions, (0, 0, 0)))

    def fetch(self, now_ms: int = 0, *, is_quiet: bool = False) -> StepRecords:
        """Fetch, and take what may be applied to the first partition."""
        self.log.polls = []
        self.reader.fetch(now_ms, is_quiet=is_quiet)
        return self.reader.take_ready(0)

    def waits(self) -> list[tuple[str, int]]:
        """Return the polls of the last fetch that waited."""
        return [(name, timeout_ms) for name, timeout_ms, _ in self.log.polls if timeout_ms]


@pytest.fixture
def fetching() -> Fetching:
    return Fetching()


def offsets(records: Iterable[Record]) -> list[int]:
    return [record.offset for record in records]


def test_both_readers_are_patient_and_read_what_is_not_committed(fetching: Fetching) -> None:
    """A stable end would be held back by one dead producer; and rules go by where a log ends."""
    assert fetching.log.readers == [(False, True), (False, True)]
    fetching.reader.close()
    assert [reader.is_closed for reader in fetching.log.made] == [True, True]


# waiting ---------------------------------------------------------------------------------------------------


def test_a_step_waits_for_contributions_and_takes_the_inits_that_are_there(fetching: Fetching) -> None:
    fetching.log.write(TOPICS.init, 2)
    records = fetching.fetch()
    assert fetching.log.polls == [("acks", POLL_MS, FETCH), ("control", 0, FETCH)]
    assert (offsets(records.inits), records.acks, records.fails) == ([0, 1], [], [])


def test_a_quiet_step_waits_for_inits_and_takes_the_contributions_that_are_there(fetching: Fetching) -> None:
    fetching.log.write(TOPICS.init)
    assert offsets(fetching.fetch(is_quiet=True).inits) == [0]
    assert fetching.log.polls == [("control", QUIET_MS, FETCH), ("acks", 0, FETCH), ("control", 0, FETCH)]


def test_a_step_behind_contributions_is_not_quiet(fetching: Fetching) -> None:
    """More of them are likely."""
    fetching.log.write(TOPICS.ack)
    assert offsets(fetching.fetch(is_quiet=True).acks) == [0]
    fetching.fetch(1, is_quiet=True)
    assert fetching.waits() == [("acks", POLL_MS)]
    fetching.fetch(2, is_quiet=True)
    assert fetching.waits() == [("control", QUIET_MS)]


@pytest.mark.parametrize("topic", [TOPICS.ack, TOPICS.fail])
@pytest.mark.parametrize("begin_ms", [0, 1_000_000])
def test_after_a_burst_each_fetch_with_contributions_is_paid_with_time(topic: str, begin_ms: int) -> None:
    fetching = Fetching()
    for number in range(BURST):
        fetching.log.write(topic)
        fetching.fetch(begin_ms)
        assert fetching.log.polls[0][0] == "acks", number
    fetching.log.write(topic)
    fetching.fetch(begin_ms)
    # that was the last one for which nothing had to be paid
    assert fetching.log.polls[0][0] == "acks"
    for after_ms, wait_ms in ((0, POLL_MS), (PACE_MS - 51, POLL_MS), (PACE_MS - 30, 30), (PACE_MS - 1, 1)):
        fetching.fetch(begin_ms + after_ms)
        assert fetching.log.polls == [("control", wait_ms, FETCH)]
    fetching.fetch(begin_ms + PACE_MS)
    assert fetching.log.polls[0][0] == "acks"


def test_inits_that_come_while_a_fetch_is_paid_are_taken(fetching: Fetching) -> None:
    for _ in range(BURST + 1):
        fetching.log.write(TOPICS.ack)
        fetching.fetch()
    fetching.log.write(TOPICS.init)
    fetching.log.write(TOPICS.ack)
    records = fetching.fetch(1)
    assert (offsets(records.inits), records.acks) == ([0], [])


def test_a_clock_that_is_set_back_makes_nobody_pay_for_long(fetching: Fetching) -> None:
    for _ in range(BURST + 1):
        fetching.log.write(TOPICS.ack)
        fetching.fetch(1_000_000)
    fetching.fetch(5)
    assert fetching.log.polls[0][0] == "acks"


def test_what_was_not_fetched_at_once_is_not_paid_for() -> None:
    """There is a backlog: it is read as fast as it can be."""
    fetching = Fetching(limits=AckerLimits(poll_ms=POLL_MS, pace_ms=PACE_MS, step_records=3))
    fetching.log.write(TOPICS.ack, 100)
    for number in range(2 * BURST):
        assert offsets(fetching.fetch().acks) == [3 * number, 3 * number + 1, 3 * number + 2]


def test_bytes_that_wait_count_against_the_next_step() -> None:
    limits = AckerLimits(poll_ms=POLL_MS, pace_ms=0, step_bytes=3 * RECORD_BYTES_MAX)
    fetching = Fetching(limits=limits)
    fetching.log.write(TOPICS.ack, size=3 * RECORD_BYTES_MAX - 1)
    fetching.reader.fetch(0)
    fetching.log.write(TOPICS.ack, 10)
    fetching.log.polls = []
    fetching.reader.fetch(0)
    assert next(most for name, _, most in fetching.log.polls if name == "acks") == 1


def test_only_the_first_poll_for_contributions_waits(fetching: Fetching) -> None:
    fetching.log.write(TOPICS.ack, 5)
    fetching.log.piece = 2
    assert offsets(fetching.fetch().acks) == [0, 1, 2, 3, 4]
    acks = [timeout_ms for name, timeout_ms, _ in fetching.log.polls if name == "acks"]
    assert acks == [POLL_MS, 0, 0, 0]


# how much --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("written", "taken"), [(0, 0), (4, 4), (5, 5), (6, 5), (100, 5)])
@pytest.mark.parametrize("piece", [1, 2, 1_000])
def test_a_step_takes_so_many_records(written: int, taken: int, piece: int) -> None:
    fetching = Fetching(limits=AckerLimits(poll_ms=POLL_MS, pace_ms=0, step_records=5))
    fetching.log.write(TOPICS.ack, written)
    fetching.log.piece = piece
    assert len(fetching.fetch().acks) == taken
    assert next(most for name, _, most in fetching.log.polls if name == "acks") == 5


@pytest.mark.parametrize(
    ("size", "most"),
    [(1, [200]), (RECORD_BYTES_MAX, [4, 3, 2]), (3 * RECORD_BYTES_MAX - 1, [4, 1]),
     (3 * RECORD_BYTES_MAX, [4]), (2 * RECORD_BYTES_MAX, [4, 2]), (RECORD_BYTES_MAX + 1, [4, 2, 1])],
)  # fmt: skip
def test_a_step_takes_so_many_bytes_and_one_record_at_most_beyond(size: int, most: list[int]) -> None:
    """A poll asks for as many of the largest records as have room, and one more."""
    bound = 3 * RECORD_BYTES_MAX if size > 1 else 1 << 40
    fetching = Fetching(limits=AckerLimits(poll_ms=POLL_MS, pace_ms=0, step_bytes=bound))
    fetching.log.write(TOPICS.ack, 10 if size > 1 else 0, size=size)
    fetching.log.piece = 1
    fetching.fetch()
    assert [most for name, _, most in fetching.log.polls if name == "acks"] == most


def test_contributions_that_wait_count_against_the_next_step() -> None:
    """They wait while the control topics are read, and the next fetch asks for less."""
    fetching = Fetching(limits=AckerLimits(poll_ms=POLL_MS, pace_ms=0, step_records=5))
    fetching.log.write(TOPICS.ack, 3)
    fetching.reader.fetch(0)
    fetching.log.write(TOPICS.ack, 10)
    fetching.log.polls = []
    fetching.reader.fetch(0)
    assert [poll for poll in fetching.log.polls if poll[0] == "acks"] == [("acks", 0, 2)]
    assert len(fetching.reader.take_ready(0).acks) == 5


# the order between the topics ------------------------------------------------------------------------------


def test_fails_wait_for_the_inits_before_them_and_no_later_ones_come_with_them(fetching: Fetching) -> None:
    fetching.log.write(TOPICS.ack, 2)
    fetching.log.write(TOPICS.fail, 3)
    fetching.log.write(TOPICS.init, 4)
    records = fetching.fetch()
    assert (offsets(records.inits), offsets(records.fails), offsets(records.acks)) == (
        [0, 1, 2, 3],
        [0, 1, 2],
        [0, 1],
    )
    assert records.fails_ready_until == 3
    assert fetching.reader.taken_offsets(0) == (4, 3, 2)
    # what is taken is gone
    assert fetching.reader.take_ready(0) == StepRecords(fails_ready_until=3)


def test_fails_behind_the_end_that_was_found_wait_for_the_next_step(fetching: Fetching) -> None:
    held = [Record(TOPICS.fail, 0, offset, None, b"") for offset in range(5)]
    acks = [Record(TOPICS.ack, 0, offset, None, b"") for offset in (7, 8)]
    fetching.reader.records[0] = StepRecords([], held, acks, fails_ready_until=3)
    assert fetching.reader.taken_offsets(0) == (0, 0, 7)
    records = fetching.reader.take_ready(0)
    assert (offsets(records.fails), offsets(records.acks)) == ([0, 1, 2], [7, 8])
    assert fetching.reader.taken_offsets(0) == (0, 3, 0)
    assert offsets(fetching.reader.take_ready(0).fails) == []


@pytest.mark.parametrize(("records_max", "inits"), [(5, [9, 6, 0]), (6, [9, 6, 0]), (7, [12, 3, 0])])
def test_a_backlog_of_ticks_is_read_in_several_steps_and_all_else_waits(
    records_max: int, inits: list[int]
) -> None:
    """Three come at once; what came before their end was found does not count."""
    fetching = Fetching(limits=AckerLimits(poll_ms=POLL_MS, pace_ms=0, step_records=records_max))
    fetching.log.write(TOPICS.init, 15)
    fetching.log.write(TOPICS.ack, 2)
    fetching.log.piece = 3
    taken = [fetching.fetch(now_ms) for now_ms in range(3)]
    assert [len(records.inits) for records in taken] == inits
    assert [len(records.acks) for records in taken] == [0, 2, 0]


def test_a_partition_with_a_backlog_may_be_given_up() -> None:
    fetching = Fetching((0, 1), limits=AckerLimits(poll_ms=POLL_MS, pace_ms=0, step_records=5))
    fetching.log.write(TOPICS.init, 15)
    fetching.log.write(TOPICS.ack, 2)
    fetching.log.piece = 3
    fetching.reader.fetch(0)
    fetching.reader.forget(0)
    fetching.log.write(TOPICS.init, number=1)
    fetching.reader.fetch(1)
    assert offsets(fetching.reader.take_ready(1).inits) == [0]


def test_a_reader_of_nothing_fetches_nothing() -> None:
    log = ScriptedLog()
    reader = StepReader(log, TOPICS, AckerLimits())
    assert list(reader.fetch(0).stand) == []
    assert (reader.clock_news, reader.standing()) == ("", ())


def test_a_partition_is_set_apart_as_many_polls_after_the_last_progress() -> None:
    fetching = Fetching((0,))
    fetching.log.write(TOPICS.ack)
    fetching.log.write(TOPICS.init, 3)
    fetching.log.write(TOPICS.fail)
    fetching.log.piece = 1
    fetching.log.silent = {FAIL}
    fetching.fetch()
    # one init comes before, two in a poll each
    assert fetching.waits()[1:] == [("control", STALLED_POLL_MS)] * (2 + STALLED_POLLS)


def test_barriers_are_where_both_topics_end() -> None:
    fetching = Fetching((0, 1, 2, 3))
    for number in range(4):
        fetching.log.write(TOPICS.ack, number + 1, number=number)
        fetching.log.write(TOPICS.fail, number + 5, number=number)
    fetching.log.leaderless = {TopicPartition(TOPICS.ack, 1), TopicPartition(TOPICS.fail, 2)}
    assert fetching.reader.read_barriers([0, 1, 2, 3]) == {0: (1, 5), 3: (4, 8)}
    assert fetching.reader.read_barriers([3]) == {3: (4, 8)}


# partitions that are apart ---------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [INIT, FAIL])
def test_a_partition_of_which_nothing_arrives_is_set_apart_after_some_polls(place: TopicPartition) -> None:
    """What came of its contributions waits, and the other partition goes on."""
    fetching = Fetching((0, 1))
    for number in (0, 1):
        fetching.log.write(TOPICS.ack, number=number)
        fetching.log.write(TOPICS.init, number=number)
        fetching.log.write(TOPICS.fail, number=number)
    fetching.log.silent = {place}
    records = fetching.fetch()
    assert fetching.waits()[1:] == [("control", STALLED_POLL_MS)] * STALLED_POLLS
    assert (records.acks, records.fails) == ([], [])
    other = fetching.reader.take_ready(1)
    assert (offsets(other.acks), offsets(other.fails), offsets(other.inits)) == ([0], [0], [0])
    records = fetching.fetch(1)
    assert (records.acks, records.fails) == ([], [])
    fetching.log.silent = set()
    fetching.fetch(2)
    records = fetching.fetch(3)
    assert (offsets(records.acks), offsets(records.fails)) == ([0], [0])
    assert fetching.reader.taken_offsets(0) == (1, 1, 1)


@pytest.mark.parametrize("place", [INIT, FAIL])
def test_ends_that_nobody_says_are_looked_for_at_times(place: TopicPartition) -> None:
    fetching = Fetching((0, 1))
    fetching.log.write(TOPICS.ack)
    fetching.log.write(TOPICS.init)
    fetching.log.write(TOPICS.fail)
    fetching.log.leaderless = {place}
    assert fetching.fetch(1_000).acks == []
    calls: list[int] = []
    for now_ms in (
        1_000,
        1_001,
        1_000 + STALLED_ASK_MS - 1,
        1_000 + STALLED_ASK_MS,
        1_001 + STALLED_ASK_MS,
        500,
    ):
        before = fetching.log.bounds_calls
        assert fetching.fetch(now_ms).acks == []
        calls.append(fetching.log.bounds_calls - before)
    assert calls == [0, 0, 0, 2, 0, 2]
    fetching.log.leaderless = set()
    fetching.fetch(500 + STALLED_ASK_MS)
    fetching.fetch(501 + STALLED_ASK_MS)
    assert fetching.reader.taken_offsets(0)[2] == 1


def test_a_partition_that_is_given_up_leaves_nothing() -> None:
    """Who gets it again begins where it is told to."""
    fetching = Fetching((0, 1))
    fetching.log.write(TOPICS.ack)
    fetching.log.write(TOPICS.init, 3)
    fetching.log.silent = {INIT}
    fetching.reader.fetch(0)
    fetching.reader.forget(0)
    fetching.log.silent = set()
    fetching.reader.fetch(1)
    assert set(fetching.log.made[0].positions) == {TopicPartition(TOPICS.ack, 1)}
    fetching.reader.assign({0: (1, 0, 0), 1: (9, 9, 9)})
    records = fetching.fetch(2)
    assert (offsets(records.inits), offsets(records.acks)) == ([1, 2], [0])
    # the other one went on where it was
    assert fetching.reader.taken_offsets(1) == (0, 0, 0)


# errors ----------------------------------------------------------------------------------------------------


def test_after_an_error_the_readers_begin_behind_what_is_held(fetching: Fetching) -> None:
    fetching.log.write(TOPICS.ack, 3)
    fetching.log.piece = 1
    fetching.fetch()
    acks = fetching.log.made[0]
    fetching.log.error = Unreachable("away")
    with pytest.raises(Unreachable):
        fetching.fetch(1)
    fetching.log.error = None
    # what the client fetched and did not hand out is lost with the error
    acks.positions = dict.fromkeys(acks.positions, 77)
    fetching.log.write(TOPICS.ack, 1)
    assert offsets(fetching.fetch(2).acks) == [3]


def test_readers_are_not_assigned_again_without_an_error(fetching: Fetching) -> None:
    acks = fetching.log.made[0]
    for now_ms in range(3):
        before = acks.positions
        fetching.fetch(now_ms)
        assert acks.positions is before
    fetching.reader.forget(0)
    fetching.reader.assign({0: (0, 0, 0)})
    before = acks.positions
    fetching.fetch(3)
    assert acks.positions is before


@pytest.mark.parametrize("topic", [TOPICS.init, TOPICS.ack])
def test_clocks_are_compared_by_ticks_alone(topic: str, fetching: Fetching) -> None:
    """Contributions may have waited in the client."""
    news: list[str] = []
    for now_ms in range(0, 60_000, 1_000):
        fetching.fetch(now_ms)
        news.append(fetching.reader.clock_news)
        fetching.log.write(topic, time_ms=now_ms + 600_000)
        fetching.fetch(now_ms + 1)
        news.append(fetching.reader.clock_news)
    assert len([text for text in news if text]) == (1 if topic == TOPICS.init else 0)
