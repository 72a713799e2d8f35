"""Pieces of a log, read to their ends past holes and damage; and what a follower does as time goes by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from acker.errors import Damaged, DataLoss, Unreachable
from acker.kafka.port import Bound, DamagedRun, OffsetAnswers, Outgoing, Record, TopicPartition
from acker.kafka.read_to_end import (
    PATIENCE_MS,
    PIECE_RECORDS,
    POLL_MS,
    POLLS,
    Follower,
    pass_damage,
    poll_past_damage,
    raise_damage,
    read_piece,
    require_start,
)
from tests.support.memory.cluster import MemoryCluster, MemoryLog

PLACE = TopicPartition("state", 2)
A, B, C = (TopicPartition("due", number) for number in range(3))
WAIT_MS = 1_000


@dataclass
class Script:
    """A log with one reader, whose polls bring what a test says.

    Attributes:
        polls: what each poll brings: offsets of records, and the position behind it.
        asked: the arguments of each poll.
        progress: how far the read had come when it was told.
        open: how many readers are open.
        damage_end: up to where a damaged batch goes.
    """

    polls: list[tuple[Sequence[int], int]] = field(default_factory=list)
    asked: list[tuple[int, int]] = field(default_factory=list)
    progress: list[tuple[int, int]] = field(default_factory=list)
    open: int = 0
    damage_end: int = 0
    passed: int = 0
    _position: int = 0

    def reader(self, *, committed: bool) -> Script:
        self.committed = committed
        self.open += 1
        return self

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        [(place, self._position)] = positions.items()
        assert place == PLACE

    def poll(self, timeout_ms: int, max_records: int) -> list[Record]:
        self.asked.append((timeout_ms, max_records))
        if self._position < self.damage_end and not self.polls:
            raise Damaged(*PLACE, self._position, "its checksum is wrong")
        offsets, self._position = self.polls.pop(0) if self.polls else ((), self._position)
        return [Record(*PLACE, offset, None, b"", (), 0) for offset in offsets]

    def position(self, place: TopicPartition) -> int:
        assert place == PLACE
        return self._position

    def pass_over(self, place: TopicPartition) -> DamagedRun:
        run = DamagedRun(*place, self._position, self.damage_end, "its checksum is wrong")
        self._position = self.damage_end
        self.passed += 1
        return run

    def log_progress(self, partition: TopicPartition, position: int, end: int) -> None:
        assert partition == PLACE
        self.progress.append((position, end))

    def close(self) -> None:
        self.open -= 1


def piece(script: Script, start: int, end: int, **options: Any) -> list[int]:
    """Read a piece; return the offsets of its records."""
    log: Any = script
    records = read_piece(log, PLACE, start, end, committed=True, wait_ms=WAIT_MS, **options)
    return [record.offset for record in records]


def test_a_piece_has_its_records_and_none_behind_its_end() -> None:
    """What is written meanwhile comes with the last of them; markers and holes are no records."""
    script = Script([((3, 4), 5), ((), 8), ((8, 9, 10, 11), 12)])
    lives: list[int] = []
    assert piece(script, 3, 10, report_alive=lambda: lives.append(script._position)) == [3, 4, 8, 9]
    assert lives == [3, 5, 8], "before each poll"
    assert script.progress == [(3, 10), (5, 10), (8, 10)]
    assert script.asked == [(WAIT_MS // POLLS, PIECE_RECORDS)] * 3
    assert script.open == 0
    assert script.committed


@pytest.mark.parametrize("last", [9, 10])
def test_a_piece_ends_at_its_end_whether_or_not_a_record_lies_there(last: int) -> None:
    assert piece(Script([((9,), 10)] if last == 9 else [((9, 10), 11)]), 9, 10) == [9]


@pytest.mark.parametrize(("start", "end"), [(5, 5), (6, 5)])
def test_a_piece_without_offsets_needs_no_reader(start: int, end: int) -> None:
    script = Script()
    assert piece(script, start, end) == []
    assert not script.asked


def test_a_piece_is_given_up_after_so_many_polls_without_a_move_and_not_before() -> None:
    """Each move begins the wait anew."""
    idle: list[tuple[Sequence[int], int]] = [((), 4)] * (POLLS - 1)
    script = Script([((3,), 4), *idle, ((4,), 5), *[((), 5)] * (POLLS - 1), ((), 6), *[((), 6)] * POLLS])
    with pytest.raises(Unreachable, match=r"state/2: nothing after offset 6 for 1000 ms, .* on to 9"):
        piece(script, 3, 9)
    assert len(script.asked) == 3 * POLLS + 1
    assert script.open == 0


def test_a_short_wait_is_no_poll_without_end() -> None:
    """A timeout of 0 would poll as fast as the processor can."""
    log: Any = (script := Script([((0,), 1)]))
    assert [record.offset for record in read_piece(log, PLACE, 0, 1, committed=False, wait_ms=3)] == [0]
    assert script.asked[0][0] == 1
    assert not script.committed


def test_a_piece_that_is_not_read_to_its_end_leaves_no_reader_open() -> None:
    script = Script([((0, 1), 2), ((2,), 3)])
    log: Any = script
    records = read_piece(log, PLACE, 0, 9, committed=True, wait_ms=WAIT_MS)
    next(records)
    records.close()  # type: ignore[attr-defined]  # a generator
    assert script.open == 0


def test_damage_in_a_piece_is_raised_behind_what_lies_before_it() -> None:
    script = Script([((0, 1), 2)], damage_end=7)
    log: Any = script
    records = read_piece(log, PLACE, 0, 9, committed=True, wait_ms=WAIT_MS)
    assert [next(records).offset, next(records).offset] == [0, 1]
    with pytest.raises(Damaged, match="state/2@2: "):
        next(records)
    assert (script.open, script.passed) == (0, 0)


def test_damage_that_may_be_passed_over_is_a_hole() -> None:
    script = Script([((0, 1), 2)], damage_end=9)
    assert piece(script, 0, 9, on_damage=pass_damage) == [0, 1]
    assert script.passed == 1


@pytest.mark.parametrize(
    ("allowed", "firsts"),
    [
        pytest.param([None], [5], id="all of it"),
        pytest.param([20], [5], id="just as far as it goes"),
        pytest.param([30], [5], id="further than it goes"),
        pytest.param([10, 15, 20], [5, 10, 15], id="in parts"),
        pytest.param([10, None], [5, 10], id="a part, then the rest"),
    ],
)
def test_it_is_asked_for_each_part_of_a_damage_whether_it_may_be_passed_over(
    allowed: list[int | None], firsts: list[int]
) -> None:
    asked: list[int] = []
    answers = iter(allowed)

    def on_damage(error: Damaged) -> int | None:
        asked.append(error.first)
        assert error.why == "its checksum is wrong"
        return next(answers)

    reader: Any = Script(damage_end=20, _position=5)
    assert poll_past_damage(reader, 10, 100, on_damage) == ()
    assert asked == firsts
    assert reader.passed == 1
    assert list(answers) == []


def test_where_nothing_may_be_passed_over_nothing_is() -> None:
    reader: Any = Script(damage_end=20, _position=5)
    with pytest.raises(Damaged):
        poll_past_damage(reader, 10, 100, raise_damage)
    assert (reader.passed, reader.asked) == (0, [(10, 100)])


# where a log begins -------------------------------------------------------------------------------------


def written(**counts: int) -> tuple[MemoryCluster, MemoryLog]:
    """Return a cluster of a topic `due` with so many records in its partitions `p0`, `p1` and so on."""
    cluster = MemoryCluster()
    cluster.create_topic("due", len(counts))
    log = cluster.log()
    write(log, {TopicPartition("due", int(name[1:])): count for name, count in counts.items()})
    return cluster, log


def write(log: MemoryLog, counts: Mapping[TopicPartition, int]) -> None:
    """Write so many records to partitions."""
    producer = log.producer()
    for place, count in counts.items():
        for _ in range(count):
            producer.send(Outgoing(*place, b"x"))
    producer.flush(1_000)


@pytest.mark.parametrize("needed", [3, 4, 9])
def test_a_log_that_begins_where_it_is_needed_or_before_is_whole(needed: int) -> None:
    cluster, log = written(p0=5, p1=5)
    cluster.delete_before(A, 3)
    require_start(log, A, needed, "records")
    with pytest.raises(DataLoss, match="due/0 begins at 3, but what was open are needed from 2 on: "):
        require_start(log, A, 2, "what was open")


# a follower ---------------------------------------------------------------------------------------------


def read(follower: Follower) -> list[tuple[int, int]]:
    """Return the places of what a call brings, in order."""
    return sorted((record.partition, record.offset) for record in follower.read())


def test_each_record_comes_once_however_often_it_is_read() -> None:
    _, log = written(p0=2, p1=0, p2=1)
    follower = Follower(log, [A, B, C], patience_ms=PATIENCE_MS)
    assert not follower.is_whole
    assert read(follower) == [(0, 0), (0, 1), (2, 0)]
    assert follower.is_whole
    assert (follower.fraction_read, follower.answers.offsets) == (1.0, {A: 2, B: 0, C: 1})
    assert read(follower) == []
    write(log, {B: 2, C: 1})
    assert read(follower) == [(1, 0), (1, 1), (2, 1)]
    assert follower.is_whole
    follower.close()
    assert not log.open_readers


def test_a_call_ends_after_so_many_records_and_says_how_far_it_has_come() -> None:
    _, log = written(p0=6, p1=2)
    follower = Follower(log, [A, B], read_max=3, patience_ms=PATIENCE_MS)
    shares = []
    for expected in (3, 3, 2):
        assert len(read(follower)) == expected
        shares.append(follower.fraction_read)
        assert follower.is_whole is (expected == 2)
        assert follower.why_not_whole() == "", "there is more to read, and nothing stands"
    assert shares == [3 / 8, 6 / 8, 1.0]
    assert follower.fraction_read == 1.0


def test_a_call_that_is_not_read_to_its_end_was_not_whole() -> None:
    _, log = written(p0=2)
    follower = Follower(log, [A], patience_ms=PATIENCE_MS)
    assert read(follower) == [(0, 0), (0, 1)]
    write(log, {A: 5})
    next(follower.read())
    assert not follower.is_whole


def test_a_log_without_records_is_read_at_once() -> None:
    _, log = written(p0=0)
    follower = Follower(log, [A], patience_ms=PATIENCE_MS)
    assert follower.fraction_read == 1.0
    assert read(follower) == []
    assert (follower.is_whole, follower.fraction_read) == (True, 1.0)


@pytest.mark.parametrize("when", ["before it is made", "before it is read"])
@pytest.mark.parametrize("silent", [[0], [0, 1]], ids=str)
def test_of_what_nobody_can_read_no_part_is_read(when: str, silent: list[int]) -> None:
    """Partition 1 is empty, so that nothing is read where only 0 has no leader, too."""
    cluster, log = written(p0=2, p1=0)
    if when == "before it is read":
        follower = Follower(log, [A, B], patience_ms=PATIENCE_MS)
    for partition in silent:
        cluster.lose_leader("due", partition)
    if when == "before it is made":
        follower = Follower(log, [A, B], patience_ms=PATIENCE_MS)
        assert follower.fraction_read == 0.0
    assert read(follower) == []
    assert (follower.is_whole, follower.fraction_read) == (False, 0.0)
    for partition in silent:
        cluster.elect_leader("due", partition)
    assert read(follower) == [(0, 0), (0, 1)]
    assert (follower.is_whole, follower.fraction_read) == (True, 1.0)


@pytest.mark.parametrize("is_known", [True, False])
def test_where_it_begins_is_the_log_start_or_what_it_is_given(is_known: bool) -> None:
    cluster, log = written(p0=5, p1=5)
    cluster.delete_before(A, 2)
    first = {A: 3, B: 4} if is_known else None
    follower = Follower(log, [A, B], first_offsets=first, patience_ms=PATIENCE_MS)
    assert read(follower)[0] == ((0, 3) if is_known else (0, 2))
    assert len(read(follower)) == 0
    assert follower.fraction_read == 1.0
    assert follower.is_whole


def test_partitions_that_are_added_are_read_from_their_starts_and_the_others_go_on() -> None:
    cluster, log = written(p0=2, p1=2, p2=2)
    cluster.delete_before(C, 1)
    follower = Follower(log, [A], patience_ms=PATIENCE_MS)
    read(follower)
    follower.follow([A])
    write(log, {A: 1})
    follower.follow([A, B, C])
    follower.follow([A, B, C])
    assert read(follower) == [(0, 2), (1, 0), (1, 1), (2, 1)]
    assert follower.is_whole


def test_a_partition_that_is_added_without_a_leader_is_begun_when_it_has_one() -> None:
    cluster, log = written(p0=1, p1=2)
    follower = Follower(log, [A], patience_ms=PATIENCE_MS)
    cluster.lose_leader("due", 1)
    follower.follow([B])
    assert read(follower) == [(0, 0)]
    assert not follower.is_whole
    assert follower.why_not_whole() == "due/1 has no leader: its replicas are on broker 1"
    cluster.elect_leader("due", 1)
    follower.follow([])
    assert read(follower) == [(1, 0), (1, 1)]
    assert follower.is_whole


@pytest.mark.parametrize("committed", [True, False])
def test_only_who_asks_for_it_sees_an_open_transaction(committed: bool) -> None:
    cluster, log = written(p0=1)
    owner = log.transactions("owner")
    owner.init(1_000)
    owner.begin()
    owner.send(Outgoing("due", 0, b"open"))
    follower = Follower(log, [A], committed=committed, patience_ms=PATIENCE_MS)
    assert read(follower) == ([(0, 0)] if committed else [(0, 0), (0, 1)])
    assert follower.is_whole, "as far as anybody may read"
    owner.commit(1_000)
    assert read(follower) == ([(0, 1)] if committed else [])
    assert cluster.partition(A).end == 3


def test_what_is_deleted_while_it_is_followed_is_left_out_and_all_else_comes_once() -> None:
    cluster, log = written(p0=3, p1=3)
    follower = Follower(log, [A, B], patience_ms=PATIENCE_MS)
    assert len(read(follower)) == 6
    write(log, {A: 6, B: 2})
    cluster.delete_before(A, 7)
    assert read(follower) == [(0, 7), (0, 8), (1, 3), (1, 4)]
    assert follower.is_whole


def test_damage_is_raised_and_the_next_call_goes_on_behind_what_it_has_read() -> None:
    cluster, log = written(p0=6, p1=1)
    cluster.partition(A).damage(2, 4)
    follower = Follower(log, [A, B], patience_ms=PATIENCE_MS)
    records = follower.read()
    seen = [next(records) for _ in range(3)]
    assert sorted((record.partition, record.offset) for record in seen) == [(0, 0), (0, 1), (1, 0)]
    with pytest.raises(Damaged, match="due/0@2: "):
        next(records)
    assert not follower.is_whole
    cluster.partition(A).mend()
    assert read(follower) == [(0, offset) for offset in (2, 3, 4, 5)]
    passing = Follower(log, [A, B], patience_ms=PATIENCE_MS, on_damage=pass_damage)
    cluster.partition(A).damage(2, 4)
    assert read(passing) == [(0, 0), (0, 1), (0, 4), (0, 5), (1, 0)]
    assert passing.is_whole


class Waiting(MemoryLog):
    """A log whose readers tell how long they were to wait."""

    def reader(self, *, committed: bool, patient: bool = False) -> Any:
        reader = super().reader(committed=committed, patient=patient)
        poll = reader.poll

        def noting(timeout_ms: int, max_records: int = 1_000) -> Sequence[Record]:
            self.polls.append((timeout_ms, max_records))
            return poll(timeout_ms, max_records)

        reader.poll = noting  # type: ignore[method-assign]
        return reader

    polls: list[tuple[int, int]]


@pytest.mark.parametrize("patience_ms", [30, POLL_MS, 350, PATIENCE_MS])
def test_a_partition_of_which_nothing_comes_is_waited_for_no_longer_than_it_is_said(patience_ms: int) -> None:
    cluster, log = written(p0=1, p1=1)
    waiting = Waiting(cluster, log._faults)
    waiting.polls = []
    cluster.fall_silent("due", 1)
    follower = Follower(waiting, [A, B], patience_ms=patience_ms)
    assert read(follower) == [(0, 0)]
    assert follower.why_not_whole() == "due/1 stands at 0 of 1"
    waits_ms = [timeout_ms for timeout_ms, _ in waiting.polls[1:]]
    assert set(waits_ms) == {min(POLL_MS, patience_ms)}
    assert patience_ms <= sum(waits_ms) < patience_ms + POLL_MS
    cluster.speak_again("due", 1)
    assert read(follower) == [(1, 0)]
    assert (follower.is_whole, follower.why_not_whole()) == (True, "")


def test_polls_ask_for_no_more_than_what_is_left_of_a_call() -> None:
    cluster, log = written(p0=1_500)
    waiting = Waiting(cluster, log._faults)
    waiting.polls = []
    follower = Follower(waiting, [A], read_max=1_200, patience_ms=PATIENCE_MS)
    assert len(read(follower)) == 1_200
    assert [most for _, most in waiting.polls] == [1_000, 200]


def test_progress_is_told_of_the_first_partition_that_is_not_read_to_its_end() -> None:
    _, log = written(p0=0, p1=2, p2=1)
    told: list[tuple[TopicPartition, int, int]] = []
    log.log_progress = lambda place, position, end: told.append((place, position, end))  # type: ignore[method-assign]
    read(Follower(log, [A, B, C], patience_ms=PATIENCE_MS))
    assert told[0] == (B, 0, 2)


def test_the_end_of_a_partition_without_an_answer_counts_for_nobody() -> None:
    """It was begun, and has lost its leader since."""
    cluster, log = written(p0=2, p1=2)
    follower = Follower(log, [A, B], patience_ms=PATIENCE_MS)
    cluster.lose_leader("due", 1)
    assert read(follower) == [(0, 0), (0, 1)]
    assert (follower.fraction_read, follower.is_whole) == (1.0, False)
    assert follower.answers.troubles.keys() == {B}


def test_a_follower_whose_first_question_fails_leaves_no_reader_open() -> None:
    _, log = written(p0=1)

    def fail(_bound: Bound, _places: object) -> OffsetAnswers:
        raise Unreachable("nobody answers")

    log.bounds = fail  # type: ignore[method-assign,assignment]
    with pytest.raises(Unreachable):
        Follower(log, [A])
    assert not log.open_readers
