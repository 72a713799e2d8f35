"""What goes to the brokers of a batch: each record where its acker reads it, headers within bounds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pytest

from acker.config.topics import parse
from acker.identity import I64, WIRE_BLOCK_BITS, acker_partition
from acker.kafka.port import Headers, Outgoing
from acker.wire.codec import RECORD_BYTES_MAX, wire_codec
from acker.wire.events import FIRST_EMISSIONS, Acks, Fails, SourceRun, positions
from acker.wire.stacks import CauseKey
from spout.planning.order import LinedRecords
from spout.planning.plan import BatchPlan
from spout.publishing.delayed import RootPositions
from spout.publishing.fold import LateNote
from spout.publishing.publish import (
    HELD_RUNS_MAX,
    NOT_ACKED_MAX,
    BatchLane,
    Publication,
    Publisher,
    ack_headers,
    held_runs,
    merge_causes,
    not_acked,
    publication_of,
)
from spout.publishing.root_marks import RootMark, RootMarks
from spout.tuples.failures import Cause
from tests.support.outcomes import outcome_from

A, B = 1 << 16, 1 << 16 | 1
BLOCK = 1 << WIRE_BLOCK_BITS
LANE = BatchLane("q/s", 3)
BAD = Cause("split", "ValueError", "bad")
TOPICS = parse("inputs: {lines: {id: 1, group: g}}", file="topics.yaml", environ={}).ack_topics
NOTE: Headers = (("windhover.note", b"n" * 10),)


def plan_of(*ranges: SourceRun) -> BatchPlan:
    """Make a plan of ranges."""
    return BatchPlan("g", "s", 2, 4, 77, 30_000, tracked=True, ranges=ranges)


def numbers(*values: int) -> I64:
    """Make an array."""
    return np.array(values, np.int64)


@dataclass(slots=True)
class WrittenLog:
    """A log that keeps what is sent, and in which order it is flushed and closed."""

    sent: list[Outgoing] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    opened: int = 0

    def open(self) -> Any:
        """Open it once more."""
        self.opened += 1
        return self

    def producer(self) -> Any:
        """Return a producer that writes here."""
        return _Producer(self)

    def close(self) -> None:
        """Note that the log was closed."""
        self.events.append("log closed")


@dataclass(slots=True)
class _Producer:
    log: WrittenLog

    def send(self, record: Outgoing) -> None:
        self.log.sent.append(record)
        self.log.events.append(type(wire_codec().decode(cast("bytes", record.value))).__name__)

    def flush(self, _timeout_ms: int) -> None:
        self.log.events.append("flushed")

    def close(self) -> None:
        self.log.events.append("producer closed")


def sent(publication: Publication, partitions: int = 4) -> WrittenLog:
    """Publish a batch."""
    log = WrittenLog()
    Publisher(log.open, TOPICS).publish(publication, partitions)
    return log


def test_each_record_goes_to_the_partition_of_its_block() -> None:
    """Rule 5: several sources and blocks, what is failed, acked and held."""
    plan = plan_of(SourceRun(A, BLOCK - 2, 3 * BLOCK), SourceRun(B, 7 * BLOCK, 7 * BLOCK + 4))
    outcome = outcome_from(plan, ((BAD, numbers(0, 3, plan.count - 1)),), held=numbers(5, plan.count - 2))
    publication = publication_of(outcome, LANE, {1: 1_000})
    log = sent(publication, 32)
    assert len(log.sent) == len(publication.fails) + len(publication.acks) + len(publication.held)
    assert len(publication.held) == 2
    for record in log.sent:
        event = wire_codec().decode(cast("bytes", record.value))
        assert isinstance(event, Acks | Fails)
        assert record.partition == acker_partition(event.source, event.block * BLOCK, 32)
        assert record.topic == (TOPICS.fail if isinstance(event, Fails) else TOPICS.ack)
    fails, acks = len(publication.fails), len(publication.acks) + 2
    assert log.events == ["Fails"] * fails + ["flushed"] + ["Acks"] * acks + ["flushed"]


def test_a_publisher_opens_its_log_once_and_again_when_it_was_closed() -> None:
    log = WrittenLog()
    publisher = Publisher(log.open, TOPICS)
    publisher.close()
    assert log.events == [], "nothing was open"
    publication = publication_of(outcome_from(plan_of(SourceRun(A, 1, 2))), LANE)
    for _ in range(2):
        publisher.publish(publication, 1)
    assert log.opened == 1
    publisher.close()
    assert log.events[-2:] == ["producer closed", "log closed"]
    publisher.close()
    assert log.events.count("log closed") == 1
    publisher.publish(publication, 1)
    assert log.opened == 2


@pytest.mark.parametrize("is_failed", [False, True], ids=["acked", "all failed"])
def test_the_first_record_of_a_batch_alone_has_its_note(is_failed: bool) -> None:
    """The acker of each that had it would pass it on."""
    plan = plan_of(SourceRun(A, 0, 4), SourceRun(B, 0, 4), SourceRun(B, BLOCK, BLOCK + 2))
    failed = ((BAD, np.arange(plan.count)),) if is_failed else ((BAD, numbers(0, 4)),)
    publication = replace(publication_of(outcome_from(plan, failed), LANE), note=NOTE)
    noted = [record for record in sent(publication).sent if NOTE[0] in record.headers]
    first = (publication.fails if is_failed else publication.acks)[0]
    assert [wire_codec().decode(cast("bytes", record.value)) for record in noted] == [first]


@pytest.mark.parametrize("is_failed", [False, True], ids=["acked", "failed"])
@pytest.mark.parametrize("over", [0, 1], ids=["fits", "a byte too much"])
def test_a_note_is_left_out_where_its_record_has_no_room(is_failed: bool, over: int) -> None:
    failed = ((BAD, numbers(0, 1)),) if is_failed else ()
    publication = publication_of(outcome_from(plan_of(SourceRun(A, 0, 2)), failed), LANE)
    [record] = sent(publication).sent
    room = RECORD_BYTES_MAX - len(record.value or b"")
    note: Headers = (("none", None), ("windhover.note", b"n" * (room + over)))
    [record] = sent(replace(publication, note=note)).sent
    assert record.headers == (() if over else note)


def test_stacks_have_the_room_that_the_note_leaves() -> None:
    """A stack that does not fit is left out."""
    plan = plan_of(SourceRun(A, 0, 1))
    bad = Cause("split", "ValueError", "bad (split.py:12)")
    publication = publication_of(outcome_from(plan, ((bad, numbers(0)),)), LANE)
    stacks = {CauseKey.of("split", "ValueError", "split.py:12"): "Traceback\n" + "x" * 100}
    publication = replace(publication, stacks=stacks)
    for length in (10, RECORD_BYTES_MAX - 400):
        [record] = sent(replace(publication, note=(("n", b"n" * length),))).sent
        size = len(record.value or b"") + sum(len(value or b"") for _, value in record.headers)
        assert size <= RECORD_BYTES_MAX
        assert len(record.headers) == 2 or length > 10


def test_what_came_too_late_takes_room_from_emission_times() -> None:
    """And the note does, too; a record with all of them stays below the limit."""
    every = np.arange(BLOCK)
    firsts = RootMarks.of_roots(RootMark.FIRST_EMITTED, RootPositions(np.full(BLOCK, A), every), every)
    outcome = outcome_from(
        plan_of(SourceRun(A, 0, BLOCK)), late_count=BLOCK // 2, late_roots=every[::2], firsts=firsts
    )
    publication = publication_of(outcome, LANE, late=LateNote(5, 6, 7, None))
    [acks] = publication.acks
    too_late, _ = ack_headers(acks, publication, 100)
    taken = len(too_late[1] or b"")
    assert taken > 5_000
    for value_bytes in (100, RECORD_BYTES_MAX - taken - 1_000):
        headers = ack_headers(acks, publication, value_bytes)
        assert [name for name, _ in headers][1:] == [FIRST_EMISSIONS]
        assert value_bytes + sum(len(value or b"") for _, value in headers) <= RECORD_BYTES_MAX + 100
    note: Headers = (("windhover.note", b"n" * (RECORD_BYTES_MAX - 200_000)),)
    [record] = sent(replace(publication, note=note)).sent
    size = len(record.value or b"") + sum(len(value or b"") for _, value in record.headers)
    assert size <= RECORD_BYTES_MAX + 100


@pytest.mark.parametrize(("count", "is_named"), [(NOT_ACKED_MAX, True), (NOT_ACKED_MAX + 1, False)])
def test_so_many_roots_that_are_not_acked_are_named_and_no_more(count: int, is_named: bool) -> None:
    lined_records = (LinedRecords("t/0", "split", np.zeros((0, 3), np.int64)),)
    outcome = outcome_from(
        plan_of(SourceRun(A, 0, count)), ((BAD, np.arange(count)),), lined_records=lined_records
    )
    named = not_acked(outcome)
    assert (named is not None and len(named) == count) == is_named


def test_roots_of_a_batch_without_lines_or_with_damage_are_not_named() -> None:
    plan = plan_of(SourceRun(A, 0, 2))
    lined_records = (LinedRecords("t/0", "split", np.zeros((0, 3), np.int64)),)
    assert not_acked(outcome_from(plan)) is None
    damaged = outcome_from(
        plan, ((Cause("lines", "UNREADABLE", ""), numbers(0)),), lined_records=lined_records
    )
    assert (not_acked(damaged) is None) == damaged.stops_for_damage
    assert not_acked(outcome_from(plan, lined_records=lined_records)) == []


@pytest.mark.parametrize(("count", "is_named"), [(HELD_RUNS_MAX, True), (HELD_RUNS_MAX + 1, False)])
def test_so_many_runs_that_the_state_holds_are_named_and_no_more(count: int, is_named: bool) -> None:
    outcome = outcome_from(plan_of(SourceRun(A, 0, 2 * count)), held=np.arange(0, 2 * count, 2))
    runs = held_runs(outcome)
    assert (runs is not None and len(runs) == count) == is_named


@pytest.mark.parametrize("kinds", [1, 3])
@pytest.mark.parametrize("count", [11, 12, 13])
def test_causes_share_entries_only_where_there_are_too_many(kinds: int, count: int) -> None:
    """Each kind has its part of the entries; one more cause than its part, and the last ones share one."""
    causes = [
        (Cause(f"bolt{number % kinds}", "E", f"{number:02}"), numbers(count - number))
        for number in range(count)
    ]
    merged = merge_causes(causes[::-1], limit=12)
    assert [cause for cause, _ in merged] == sorted(cause for cause, _ in merged)
    assert sorted(at for _, roots in merged for at in roots.tolist()) == list(range(1, count + 1))
    if count <= 12:
        assert [cause for cause, _ in merged] == sorted(cause for cause, _ in causes)
    else:
        shared = [cause for cause, _ in merged if cause.message.startswith("and ")]
        expected = {1: ["and 1 more, first: 11"], 3: ["and 1 more, first: 09"]}
        assert [cause.message for cause in shared] == expected[kinds]


def test_so_many_causes_as_there_is_room_for_stay_apart_whatever_their_kinds() -> None:
    causes = [(Cause("a" if n < 10 else "b", "E", f"{n:02}"), numbers(n)) for n in range(12)]
    assert [cause for cause, _ in merge_causes(causes, limit=12)] == [cause for cause, _ in causes]


def test_each_cause_of_a_block_keeps_its_roots() -> None:
    causes = [Cause("split", "E", message) for message in "xyz"]
    failed = ((causes[0], numbers(0, 5)), (causes[1], numbers(1, 4)), (causes[2], numbers(2, 6)))
    [fails] = publication_of(outcome_from(plan_of(SourceRun(A, 0, 8)), failed), LANE).fails
    named = {cause.message: positions(cause.positions).tolist() for cause in fails.causes}
    assert named == {"x": [0, 5], "y": [1, 4], "z": [2, 6]}
