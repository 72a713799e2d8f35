"""One acker partition without a log: what a record changes, counts, passes on and refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from acker.config.limits import AckerLimits
from acker.identity import position_at, root_edge, source_of
from acker.kafka.port import Headers, Record
from acker.ledger.cohort import Pin, Session
from acker.ledger.output import AckerEventKind, StepOutput
from acker.ledger.sessions import SourceGeneration
from acker.service.core import RECORD_BYTES, PartitionCore, read_cost_bytes
from acker.service.snapshot import carry_old_cohorts, take_snapshot
from acker.wire.checks import CLOCK_AHEAD_MS_MAX
from acker.wire.clusters import cluster_header
from acker.wire.codec import RECORD_BYTES_MAX, wire_codec
from acker.wire.events import (
    Acks,
    Event,
    FailCause,
    Fails,
    Init,
    PositionRun,
    SourceRun,
    Take,
    Taken,
    TakeSource,
    Tick,
    pack_positions,
    pack_values,
)
from acker.wire.lateness import LateCounts, TooLate, too_late_header
from acker.wire.leader_epochs import UNKNOWN_EPOCH, epochs_of_runs
from acker.wire.passed_calls import PassedCall, passed_calls_header
from acker.wire.stacks import STACKS, CauseKey, stacks_header

CODEC = wire_codec()
A, B = source_of(1, 3), source_of(1, 4)
NOW_MS = 1_800_000_000_000
BLOCK = 1 << 16
TAKE = Take("g", "s1", 1, 0, 1, (TakeSource(A, "t", "id", 0, 0), TakeSource(B, "t", "id", 0, 0)))
INIT = Init("g", "s1", 1, 0, 0, 30_000, 1, "t", "id", ())
ACKS = Acks("q/s1", 1, "g", "s1", 1, A, 0, (), b"", b"", (), b"", 0)
NOTE = TooLate("g", "q/s1", 7, True, 5, 6, 8, 9, (), (SourceRun(A, 1, 2),), ())


def packed(*positions: int) -> bytes:
    return pack_positions(np.array(positions, np.int64))


FAILS = Fails("q/s1", 1, "g", "s1", 1, A, 0, (FailCause("split", "ValueError", "no", packed(2)),))


@dataclass
class Partition:
    """A partition that session s1 of group g owns, and the output since."""

    core: PartitionCore = field(default_factory=lambda: PartitionCore(0, 1, AckerLimits(), CODEC))
    offset: int = 0

    def record(self, event: Event, headers: Headers = (), offset: int | None = None) -> Record:
        self.offset += 1
        return Record(
            "_ack", 0, self.offset if offset is None else offset, None, CODEC.encode(event), headers, NOW_MS
        )

    def read(self, *events: Event, headers: Headers = ()) -> None:
        self.core.read_inits([self.record(event, headers) for event in events])
        self.core.set_barrier(0, 0)
        self.core.apply_reached_ticks()

    def ack(self, *events: Event, headers: Headers = ()) -> None:
        self.core.apply_acks([self.record(event, headers) for event in events])

    def fail(self, *events: Event, headers: Headers = ()) -> None:
        self.core.apply_fails([self.record(event, headers) for event in events])

    def init(self, *runs: tuple[int, int], source: int = A, headers: Headers = ()) -> None:
        self.read(replace(INIT, runs=tuple(SourceRun(source, *run) for run in runs)), headers=headers)

    def output(self) -> StepOutput:
        return self.core.take_output()


@pytest.fixture
def owned() -> Partition:
    partition = Partition()
    partition.read(TAKE)
    partition.output()
    partition.core.init_next = 0
    return partition


def kinds(output: StepOutput) -> list[AckerEventKind]:
    return [event.kind for event in output.events]


# positions -----------------------------------------------------------------------------------------------


def test_a_new_partition_begins_at_the_beginning() -> None:
    core = PartitionCore(0, 1, AckerLimits(), CODEC)
    assert (core.init_next, core.fail_next, core.ack_next) == (0, 0, 0)
    assert (core.ack_bytes, core.ahead_inits_end, core.cluster_id) == (0, 0, "")
    assert not core.has_output


def test_a_record_moves_the_position_of_its_topic_behind_it(owned: Partition) -> None:
    core = owned.core
    core.read_inits([owned.record(Tick("g", "s1", 1, 5), offset=7)])
    assert (core.init_next, core.fail_next, core.ack_next) == (8, 0, 0)
    core.apply_fails([owned.record(FAILS, offset=4)])
    assert (core.init_next, core.fail_next, core.ack_next) == (8, 5, 0)
    core.apply_acks([owned.record(ACKS, offset=9)])
    assert (core.init_next, core.fail_next, core.ack_next) == (8, 5, 10)
    # also what cannot be applied
    core.read_inits([Record("_ack", 0, 20, None, b"x")])
    core.apply_fails([Record("_ack", 0, 30, None, None)])
    core.apply_acks([Record("_ack", 0, 40, None, b"x")])
    assert (core.init_next, core.fail_next, core.ack_next) == (21, 31, 41)


@pytest.mark.parametrize("before", [(5, 6, 7), (7, 6, 5)])
@pytest.mark.parametrize("to", [(0, 0, 0), (5, 6, 7), (6, 0, 0), (0, 9, 0), (0, 0, 9), (8, 9, 10)])
def test_positions_pass_markers_and_never_go_back(
    owned: Partition, before: tuple[int, int, int], to: tuple[int, int, int]
) -> None:
    core = owned.core
    core.init_next, core.fail_next, core.ack_next = before
    core.move_next_offsets(*to)
    assert (core.init_next, core.fail_next, core.ack_next) == tuple(map(max, before, to))


@pytest.mark.parametrize(("init_next", "is_kept"), [(9, True), (10, False), (11, False)])
def test_verdicts_that_were_ahead_are_forgotten_behind_their_inits(
    owned: Partition, init_next: int, is_kept: bool
) -> None:
    owned.core.ledger.first_pin_without_init = Pin(3, 0)
    owned.core.ahead_inits_end = 10
    owned.core.move_next_offsets(init_next, 0, 0)
    assert (owned.core.ledger.first_pin_without_init is not None) is is_kept


@pytest.mark.parametrize(
    ("value", "cost"),
    [(None, RECORD_BYTES), (b"", RECORD_BYTES), (bytes(RECORD_BYTES), RECORD_BYTES),
     (bytes(RECORD_BYTES + 1), RECORD_BYTES + 1)],
)  # fmt: skip
def test_reading_again_costs_the_bytes_and_something_a_record(value: bytes | None, cost: int) -> None:
    assert read_cost_bytes(value) == cost
    core = PartitionCore(0, 1, AckerLimits(), CODEC)
    core.apply_acks([Record("_ack", 0, offset, None, value) for offset in range(3)])
    assert core.ack_bytes == 3 * cost


def test_what_was_committed_moves_the_next_verdict_behind_its_marker(owned: Partition) -> None:
    core = owned.core
    core.move_verdict_end([])
    assert core.ledger.verdict_end_pin == Pin(0, 0)
    core.move_verdict_end([b"x", bytes(RECORD_BYTES + 5), b""])
    assert core.ledger.verdict_end_pin == Pin(4, 3 * RECORD_BYTES + 5)
    core.move_verdict_end([b""])
    assert core.ledger.verdict_end_pin == Pin(6, 4 * RECORD_BYTES + 5)


SIZES = [1_048_575, 1, 1_048_575, 3, 400_000, 400_000, 248_576, 0, 1_048_576, 1, 1_048_575, 7, 3_000_000, 5]


class NotedSweeps(PartitionCore):
    """Notes how large the records of each sweep are, and applies none."""

    sweeps: list[list[int]]

    def _apply_sweep(self, records: Sequence[Record]) -> None:
        self.sweeps.append([len(record.value or b"") for record in records])


def test_contributions_are_applied_by_the_megabyte() -> None:
    """In each sweep what is absent counts before what is acked, so where they end is told by their sizes."""
    core = NotedSweeps(0, 1, AckerLimits(), CODEC)
    core.sweeps = []
    core.apply_acks(Record("_ack", 0, offset, None, bytes(size)) for offset, size in enumerate(SIZES))
    expected: list[list[int]] = [[]]
    for size in SIZES:
        expected[-1].append(size)
        if sum(expected[-1]) >= 1 << 20:
            expected.append([])
    assert core.sweeps == expected


def test_a_count_says_whether_anything_counted(owned: Partition) -> None:
    core = owned.core
    assert core.apply_reached_ticks() is False
    core.read_inits([owned.record(Tick("g", "s1", 1, 5))])
    assert core.apply_reached_ticks() is False
    core.set_barrier(1, 0)
    assert core.apply_reached_ticks() is False
    core.move_next_offsets(0, 0, 1)
    assert core.apply_reached_ticks() is True
    assert core.apply_reached_ticks() is False


def test_state_names_the_first_verdict_that_a_restart_needs(owned: Partition) -> None:
    """Of a range with open roots, or of what was settled before its init."""
    owned.core.move_verdict_end([b"x"])
    owned.init((0, 10))
    owned.ack(
        replace(
            ACKS,
            runs=(PositionRun(0, 1),),
            positions=packed(2),
            values=pack_values(np.array([root_edge(A, 2)], np.uint64)),
        )
    )
    assert take_snapshot(owned.core).verdict == 2
    for offset in (1, 5):
        owned.core.ledger.first_pin_without_init = Pin(offset, 0)
        assert take_snapshot(owned.core).verdict == min(2, offset)


def test_roots_are_carried_where_more_than_so_much_would_be_read_again() -> None:
    """Of contributions and of verdicts; what lies before their own ranges does not count."""
    partition = Partition(PartitionCore(0, 1, AckerLimits(refold_bytes=2 * RECORD_BYTES), CODEC))
    core = partition.core
    partition.read(TAKE)
    garbage = Record("_ack", 0, 1, None, b"x")
    core.apply_acks([garbage] * 3)
    core.move_verdict_end([b""] * 3)
    partition.init((0, 10))
    partition.ack(replace(ACKS, runs=(PositionRun(0, 1),)))
    core.apply_acks([garbage])
    core.move_verdict_end([b""] * 2)
    carry_old_cohorts(core)
    assert core.ledger.counts.carried == 0
    core.move_verdict_end([b""])
    carry_old_cohorts(core)
    assert core.ledger.counts.carried == 1
    partition.init((10, 20), source=B)
    partition.ack(replace(ACKS, source=B, positions=packed(15), values=pack_values(np.array([7], np.uint64))))
    core.apply_acks([garbage])
    carry_old_cohorts(core)
    assert core.ledger.counts.carried == 1
    core.apply_acks([garbage])
    carry_old_cohorts(core)
    assert core.ledger.counts.carried == 2


# inits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("timeout_ms", "is_longer"), [(-1, False), (0, False), (1, True), (30_000, True)])
def test_a_timeout_is_longer_while_two_processes_may_live_and_none_stays_none(
    owned: Partition, timeout_ms: int, is_longer: bool
) -> None:
    owned.core.sessions.set_shared_until(Session("g", 1, "s1"), 1 << 40)
    owned.read(replace(INIT, timeout_ms=timeout_ms, runs=(SourceRun(A, 0, 5),)))
    [cohort] = owned.core.ledger.cohorts()
    assert (cohort.emission.timeout_ms > timeout_ms) is is_longer
    assert cohort.emission.timeout_ms >= timeout_ms


def epochs(source: int, epoch: int, start: int = 0) -> Headers:
    return epochs_of_runs([SourceRun(source, start, start + 1)], {source: epoch})


def test_roots_have_the_epoch_in_which_they_were_emitted_first(owned: Partition) -> None:
    owned.init((0, 10), headers=epochs(A, 4))
    owned.init((5, 20), headers=epochs(A, 7, 5))
    # nothing of this is new
    owned.init((0, 20), headers=epochs(A, 9))
    at = [owned.core.leader_epochs.at(A, position) for position in (0, 9, 10, 19, 20)]
    assert at == [4, 4, 7, 7, 7]
    assert owned.core.leader_epochs.at(B, 0) == UNKNOWN_EPOCH


LAST = position_at(1, 0)
"""The first position behind generation 0."""


@pytest.mark.parametrize(
    ("start", "end", "is_emitted"),
    [(LAST - 10, LAST, True), (LAST - 1, LAST, True), (LAST - 10, LAST + 1, False),
     (LAST - 1, LAST + 1, False), (LAST, LAST + 10, False), (LAST - 10, LAST - 9, True)],
)  # fmt: skip
def test_a_run_lies_in_the_generation_of_its_source(start: int, end: int, is_emitted: bool) -> None:
    partition = Partition()
    partition.read(replace(TAKE, sources=(TakeSource(A, "t", "id", 0, LAST - 10),)))
    partition.init((start, end))
    assert partition.core.ledger.open_count == (end - start if is_emitted else 0)
    assert partition.core.ledger.counts.refused == (0 if is_emitted else end - start)
    assert partition.core.ledger.counts.quarantined_records == 0


def test_an_init_may_not_leave_out_a_block_behind_a_run_that_is_refused(owned: Partition) -> None:
    later = position_at(3, 0)
    runs = (SourceRun(A, later, later + 1), SourceRun(B, 2 * BLOCK, 2 * BLOCK + 1))
    owned.read(replace(INIT, runs=runs))
    [(_, why)] = owned.output().quarantined
    assert f"it leaves out positions of source {B} from {BLOCK} on, before {2 * BLOCK}" in why


def test_runs_of_one_init_follow_each_other(owned: Partition) -> None:
    owned.init((0, 2 * BLOCK), (2 * BLOCK, 2 * BLOCK + 3), (5, 9), (3 * BLOCK, 3 * BLOCK + 2))
    assert owned.output().quarantined == []
    assert owned.core.ledger.open_count == 2 * BLOCK + 5


@pytest.mark.parametrize(
    "event",
    [
        Tick("g", "s0", 0, 5),
        replace(INIT, session="s0", epoch=0, runs=(SourceRun(A, 0, 5), SourceRun(A, 7, 8))),
    ],
)
def test_what_a_lower_session_sends_is_counted_by_its_roots(event: Event) -> None:
    partition = Partition()
    partition.read(replace(TAKE, epoch=9), event)
    assert partition.core.ledger.counts.refused == (1 if isinstance(event, Tick) else 6)
    assert partition.core.ledger.open_count == 0


def test_what_another_cluster_wrote_opens_nothing(owned: Partition) -> None:
    owned.core.cluster_id = "here"
    owned.init((0, 5), headers=cluster_header("there"))
    assert owned.core.ledger.open_count == 0
    [(_, why)] = owned.output().quarantined
    assert "there" in why
    owned.init((0, 5), headers=cluster_header("here"))
    assert owned.core.ledger.open_count == 5


# takes ---------------------------------------------------------------------------------------------------


def answers(output: StepOutput) -> list[Taken]:
    events = [CODEC.decode(value) for value in output.verdicts]
    return [event for event in events if isinstance(event, Taken)]


@pytest.mark.parametrize(
    ("take", "is_answered"),
    [
        (replace(TAKE, session="s2", epoch=2, now=NOW_MS + CLOCK_AHEAD_MS_MAX + 1_000), True),
        (replace(TAKE, session="s2", epoch=2, sources=(TakeSource(A, "t", "id", -1, 0),)), False),
        (replace(TAKE, session="s2", epoch=2, sources=(TakeSource(A, "t", "id", 999_999, 0),)), False),
    ],
)
def test_of_wrong_takes_only_that_of_a_wrong_clock_is_answered(
    owned: Partition, take: Take, is_answered: bool
) -> None:
    """Somebody waits there who can mend it."""
    owned.read(take)
    output = owned.output()
    assert len(output.quarantined) == 1
    texts = [answer.refused for answer in answers(output)] if is_answered else []
    assert len(answers(output)) == is_answered
    assert all("ahead" in text for text in texts)
    assert owned.core.ledger.counts.refused_takes == is_answered
    assert (AckerEventKind.REFUSED in kinds(output)) is is_answered


def test_each_take_that_is_refused_counts_and_is_reported(owned: Partition) -> None:
    for count in (1, 2):
        owned.read(replace(TAKE, session="s0", epoch=1))
        output = owned.output()
        assert [answer.refused for answer in answers(output)] == ["session s1 (epoch 1) holds group g"]
        assert owned.core.ledger.counts.refused_takes == count
        assert kinds(output) == [AckerEventKind.REFUSED]


def test_a_take_that_counts_forgets_lower_sessions_whatever_they_left(owned: Partition) -> None:
    """One had only a clock, the other one roots and marks as well."""
    owned.read(replace(TAKE, session="s2", epoch=2))
    owned.read(replace(INIT, session="s2", epoch=2, runs=(SourceRun(A, 0, 5),)))
    owned.ack(replace(ACKS, session="s2", epoch=2, runs=(PositionRun(0, 1),)))
    assert not owned.core.sessions.has_clock(Session("g", 1, "s1"))
    owned.read(replace(TAKE, session="s3", epoch=3))
    assert not owned.core.sessions.has_clock(Session("g", 2, "s2"))
    assert owned.core.sessions.has_clock(Session("g", 3, "s3"))
    assert owned.core.ledger.open_count == 0
    assert not owned.core.ack_marks.latest.sessions("g")


def test_an_answer_with_many_sources_fits_into_records(owned: Partition) -> None:
    """Also where topics have the longest ids."""
    sources = [source_of(2, number) for number in range(2_000)]
    for source in sources:
        owned.core.sessions.set_source(source, SourceGeneration("g", "t", "i" * 1_000, 0, 0))
    owned.read(replace(TAKE, session="s2", epoch=2))
    output = owned.output()
    assert max(map(len, output.verdicts)) < RECORD_BYTES_MAX
    named = {source.source for answer in answers(output) for source in answer.sources}
    assert named == {A, B, *sources}
    assert len(output.verdicts) < 5


# contributions and fails ---------------------------------------------------------------------------------


def test_a_repeat_with_other_content_fails_what_it_names_and_counts(owned: Partition) -> None:
    """And nothing else: the root at position 0 stays open."""
    owned.init((0, 10))
    values = pack_values(np.array([1], np.uint64))
    owned.ack(replace(ACKS, positions=packed(3), values=values))
    owned.ack(
        replace(
            ACKS,
            positions=packed(4),
            values=values,
            absent=(PositionRun(6, 7),),
            runs=(PositionRun(8, 9),),
            touched=packed(9),
        )
    )
    assert owned.core.ledger.counts.nondeterministic_records == 1
    assert owned.core.ledger.open_count == 6
    [kind] = [kind for kind in kinds(owned.output()) if kind is AckerEventKind.NONDETERMINISTIC]
    owned.fail(FAILS)
    owned.fail(replace(FAILS, causes=(FailCause("split", "KeyError", "no", packed(1)),)))
    assert owned.core.ledger.counts.nondeterministic_records == 2
    assert owned.core.ledger.open_count == 4
    assert kind in kinds(owned.output())


def test_a_repeat_counts_and_changes_nothing(owned: Partition) -> None:
    owned.init((0, 10))
    for count in range(3):
        owned.ack(
            replace(ACKS, positions=packed(3), values=pack_values(np.array([root_edge(A, 3)], np.uint64)))
        )
        assert owned.core.ledger.counts.repeated_records == count
    assert owned.core.ledger.open_count == 9


CALL = PassedCall("split", "ValueError", "passed", (SourceRun(A, 0, 5),))
CALLS = passed_calls_header("q/s1", 7, [CALL])
KEY = CauseKey.of("split", "ValueError", "")


def test_notes_beside_contributions_and_fails_are_passed_on(owned: Partition) -> None:
    owned.init((0, 10))
    owned.ack(ACKS, headers=(("other", b"x"), *CALLS, too_late_header(NOTE)))
    owned.fail(FAILS, headers=(*CALLS, *stacks_header([KEY], {KEY: "Traceback"})))
    output = owned.output()
    assert output.notes == [*CALLS, *CALLS]
    assert output.too_late == [NOTE]
    [headers] = output.headers.values()
    assert STACKS in dict(headers)
    assert owned.core.late_counts_by_group == {"g": LateCounts(1, 8, replace(NOTE, roots=()))}
    owned.ack(replace(ACKS, seq=2))
    output = owned.output()
    assert (output.notes, output.too_late) == ([], [])


@pytest.mark.parametrize(
    ("session", "note"),
    [
        ("s1", replace(NOTE, group="h")),
        ("s9", NOTE),
        ("s9", replace(NOTE, group="h")),
        ("s1", replace(NOTE, wall=NOW_MS + CLOCK_AHEAD_MS_MAX + 1)),
    ],
)
def test_a_note_of_another_group_or_session_or_of_tomorrow_is_none(
    owned: Partition, session: str, note: TooLate
) -> None:
    owned.ack(
        replace(ACKS, session=session, epoch=1 if session == "s1" else 9), headers=(too_late_header(note),)
    )
    assert owned.output().too_late == []
    assert owned.core.late_counts_by_group == {}
