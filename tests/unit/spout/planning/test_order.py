"""The pure parts of order: lines, turns, the gate, what stands behind a failure, and how it is journalled."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest

from acker.config.topics import Topics, parse
from acker.errors import Disagreement, UsageError
from acker.identity import source_of
from acker.wire.causes import HELD
from acker.wire.events import PositionRun, SourceRun
from spout.planning.intake import BatchIntake, Room, Sharing
from spout.planning.journal import Journal, SourceMark, journal_of
from spout.planning.order import (
    LOST_FEW,
    ROOM_FIRST,
    ROOM_GROWS,
    Gate,
    LinedRecords,
    LineUp,
    OrderedRoom,
    WaitingRecord,
    find_blocked_behind,
    line_of_key,
    turn_of,
)
from spout.planning.pace import BatchPace
from spout.planning.plan import BatchPlan, ReadTask, read_tasks
from spout.planning.supply import Supply
from spout.publishing.blob import decode, encode
from spout.publishing.fold import TaskReport
from spout.publishing.settle import settle
from spout.standalone.kafka_spout import KafkaSpout
from spout.streaming.ordered_read import Copies, Copy, origin_of
from spout.streaming.stream import _group_and_tracked
from spout.tuples.failures import Cause
from tests.support.odd_keys import KEYS
from tests.support.outcomes import failed_by_cause
from tests.support.reports import changed_report, reported, task_report

A, B = line_of_key(b"a"), line_of_key(b"b")
JOURNAL = Journal("s", 1, 7, 2, MappingProxyType({65_536: SourceMark(0, 9)}), (SourceRun(65_536, 4, 9),))
PLAN = BatchPlan("g", "s", 1, 2, 7, 30_000, True, (SourceRun(65_536, 0, 6),))
NONE = np.empty(0, np.int64)


def ordered(more: str) -> Topics:
    return parse(f"inputs:\n  lines: {{id: 1, group: g, {more}}}\n", file="topics.yaml", environ={})


def test_the_line_of_a_key_is_the_same_in_every_process() -> None:
    """A checkpoint of another machine holds it."""
    assert (line_of_key(b""), A) == (-1970711489451281740, 4681665781835383343)
    assert A != B


def test_by_key_a_turn_names_the_first_that_waits_of_each_line() -> None:
    waiting = [
        WaitingRecord(5, A, False),
        WaitingRecord(3, A, True),
        WaitingRecord(9, B, False),
        WaitingRecord(1, None, False),
    ]
    turn = turn_of("key", 100, waiting, 6, "t/0")
    assert turn == (True, 90, LineUp("key", {A: 3, B: 9}), "")


def test_by_key_a_partition_waits_for_room_but_not_its_copies() -> None:
    turn = turn_of("key", 3, [WaitingRecord(5, A, False), WaitingRecord(6, A, True)], 1, "t/0")
    assert (turn.takes_copies, turn.new_max) == (True, 0)
    assert turn.why == "waits: 3 records wait or are held, as many as max_held"


def test_beyond_max_held_a_partition_waits_as_a_whole() -> None:
    waiting = [WaitingRecord(5, A, False), WaitingRecord(6, A, True)]
    turn = turn_of("key", 2, waiting, 1, "t/0")
    assert turn == (False, 0, LineUp("partition", {0: 5}), "waits for t/0@5; 3 wait, max_held is 2")
    assert turn_of("key", 2, [], 3, "t/0") == (True, 0, LineUp("key"), "")


def test_a_partition_waits_for_its_first_record_then_takes_the_copies_then_what_is_new() -> None:
    waiting = [WaitingRecord(7, None, True), WaitingRecord(5, None, False)]
    assert turn_of("partition", 9, waiting, 4, "t/0") == (
        False,
        0,
        LineUp("partition", {0: 5}),
        "waits for t/0@5",
    )
    assert turn_of("partition", 9, [], 4, "t/0") == (True, 0, LineUp("partition"), "")
    assert turn_of("partition", 9, [], 0, "t/0") == (True, 9, LineUp("partition"), "")


def test_a_gate_holds_what_stands_behind_what_waits_or_failed_here() -> None:
    gate = Gate("t/0", "lines", LineUp("key", {A: 5}))
    assert gate.admit(0, b"a", 4) is None
    assert gate.admit(1, b"a", 5) is None, "the copy of the very record that waits"
    assert gate.admit(2, b"a", 6) == Cause("lines", HELD, "waits for t/0@5")
    assert gate.admit(3, b"b", 7) is None
    assert gate.admit(4, b"b", 9) is None
    assert gate.why_blocked_now(4) is None
    gate.fail(3)
    assert gate.why_blocked_now(4) == Cause("lines", HELD, "waits for t/0@7")
    assert gate.admit(5, b"b", 8) == gate.why_blocked_now(4)
    assert gate.admit(6, b"b", 3) is None
    assert gate.admit(7, None, 10) is None
    assert gate.admit(8, b"b", None) is None
    assert gate.lined_records().rows.tolist() == [
        [0, A, 4], [1, A, 5], [2, A, 6], [3, B, 7], [4, B, 9], [5, B, 8], [6, B, 3],
    ]  # fmt: skip


def test_a_gate_by_partition_makes_no_difference_between_keys() -> None:
    gate = Gate("t/0", "lines", LineUp("partition"))
    assert gate.admit(0, b"a", 4) is None
    gate.fail(0)
    assert [gate.admit(1, b"b", 5), gate.admit(2, None, 6)] == [Cause("lines", HELD, "waits for t/0@4")] * 2


def test_a_gate_lets_no_more_through_than_the_batch_has_room_for() -> None:
    gate = Gate("t/0", "lines", LineUp("key", {A: 0}, 2))
    assert gate.admit(0, b"a", 1) is not None, "what is held takes no room"
    assert [gate.admit(1, b"b", 2), gate.admit(2, None, 3)] == [None, None]
    assert gate.admit(3, b"b", 4) == Cause("lines", HELD, "the batch has room for 2 copies of t/0")


def test_a_new_record_passes_copies_without_room_unless_one_is_of_its_line() -> None:
    """O507, O509: the room of a batch for copies is none of theirs."""
    gate = Gate("t/0", "lines", LineUp("key", copies_max=1))
    assert [gate.admit(0, b"a", 1) is None, gate.admit(1, b"b", 2) is None] == [True, False]
    gate.begin_new()
    assert gate.admit(2, b"b", 7) == Cause("lines", HELD, "waits for t/0@2")
    assert [gate.admit(3, b"a", 8), gate.admit(4, b"c", 9)] == [None, None]
    assert gate.admit_all(np.array([5, 6]), [b"c", b"b"], np.array([10, 11])).keys() == {1}


@pytest.mark.parametrize(
    "line_up", [LineUp("key"), LineUp("key", {A: 5}), LineUp("partition"), LineUp("key", {}, 2)]
)
@pytest.mark.parametrize("failed", [None, 0])
def test_records_that_are_admitted_together_are_blocked_as_one_by_one(
    line_up: LineUp, failed: int | None
) -> None:
    indices, origins = list(range(20, 27)), [4, 5, None, 7, 8, 9, 3]
    keys = [b"a", b"b", b"a", b"a", None, b"b", b"a"]
    alone, together = Gate("t/0", "lines", line_up), Gate("t/0", "lines", line_up)
    for gate in (alone, together):
        gate.admit(0, b"a", 0)
        if failed is not None:
            gate.fail(failed)
    one_by_one = {
        row: cause
        for row, record in enumerate(zip(indices, keys, origins, strict=True))
        if (cause := alone.admit(*record)) is not None
    }
    assert together.admit_all(np.array(indices), keys, origins) == one_by_one
    assert sorted(together.lined_records().rows.tolist()) == sorted(alone.lined_records().rows.tolist())
    for gate in (alone, together):
        gate.fail(21)
    held = [[gate.why_blocked_now(index) for index in indices] for gate in (alone, together)]
    assert held[0] == held[1]
    assert together.state_for(indices) == alone.state_for(indices)


def test_a_gate_forgets_lines_before_its_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spout.planning.order.LINES_KEPT", 2)
    gate = Gate("t/0", "lines", LineUp("key"))
    keys = [b"a", b"b", b"c", b"a"]
    gate.admit_all(np.arange(4), keys, np.arange(4))
    assert gate.lined_records().lines.tolist() == list(map(line_of_key, keys))


def test_of_records_that_passed_only_the_lines_of_those_that_stop_others_are_told() -> None:
    gate = Gate("t/0", "lines", LineUp("key"))
    gate.admit(0, b"a", 0)
    gate.admit_all(np.arange(1, 5), [b"b", b"a", None, b"c"], np.arange(1, 5))
    assert gate.lined_records(np.array([2, 3])).rows.tolist() == [[0, A, 0], [2, A, 2]]
    assert gate.lined_records(np.array([3])).rows.tolist() == []
    assert gate.lined_records(NONE).rows.shape == (0, 3)
    assert gate.lined_records().indices.tolist() == [0, 1, 2, 4]


def test_a_gate_keeps_few_keys_whose_lines_nobody_has_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spout.planning.order.KEYS_BYTES_MAX", 5)
    gate = Gate("t/0", "lines", LineUp("key"))
    sizes: list[int] = []
    for key in (b"abc", b"abd", b"", b"abe"):
        gate.admit_all(np.arange(1), [key], np.arange(1))
        sizes.append(len(gate._kept_without_lines))
    gate.admit_all(np.arange(0), [], np.arange(0))
    assert sizes == [1, 0, 1, 2]
    assert len(gate.lined_records().rows) == 4


def test_what_is_refused_holds_back_its_line() -> None:
    gate = Gate("t/0", "lines", LineUp("key"))
    assert gate.refuse(0, b"a", 1, "no room").message == "no room"
    assert gate.admit(1, b"a", 2) == Cause("lines", HELD, "waits for t/0@1")
    assert gate.admit(2, b"b", 2) is None


def test_behind_a_failure_that_no_task_saw_stands_the_rest_of_its_line() -> None:
    rows = np.array([[0, A, 1], [1, A, 2], [2, B, 3], [3, A, 4], [4, A, 0], [5, A, 9]], np.int64)
    lined_records = [LinedRecords("t/0", "lines", rows)]
    found = find_blocked_behind(lined_records, np.array([3, 1]), NONE, np.array([5]))
    assert [(cause, at.tolist()) for cause, at in found] == []
    found = find_blocked_behind(lined_records, np.array([1]), NONE, NONE)
    assert [(cause.message, at.tolist()) for cause, at in found] == [("waits for t/0@2", [3, 5])]
    assert find_blocked_behind(lined_records, NONE, NONE, NONE) == []


def test_behind_a_record_that_is_open_stands_the_rest_of_its_line_open_or_not() -> None:
    """Seed 296, profile `ordered`: an open one behind it was done before what came between them."""
    rows = np.array([[0, A, 0], [1, A, 1], [2, A, 2], [3, A, 3], [4, B, 4]], np.int64)
    found = find_blocked_behind([LinedRecords("t/0", "lines", rows)], NONE, np.array([1, 3, 4]), NONE)
    assert [(cause.message, at.tolist()) for cause, at in found] == [("waits for t/0@1", [2, 3])]


def settled(report: TaskReport) -> dict[Cause, list[int]]:
    read = decode(encode(replace(report, plan=PLAN, ranges=PLAN.ranges)))
    outcome = settle([reported(1, 0, 0, read)], (), lambda _stage: None)
    return {cause: roots.tolist() for cause, roots in failed_by_cause(outcome)}


@pytest.mark.parametrize("rows", [[], [[7, A, 2], [8, B, 4], [3, A, 9]]])
def test_the_lines_of_a_task_come_whole_from_an_executor(rows: list[list[int]]) -> None:
    there = LinedRecords("t/0", "lines", np.array(rows, np.int64).reshape(-1, 3))
    (here,) = decode(encode(task_report("split", lined_records=(there,)))).lined_records
    assert (here.partition_name, here.operator, here.rows.tolist()) == ("t/0", "lines", rows)


def test_what_passed_a_failed_or_an_open_record_of_its_line_fails_as_held_at_publication() -> None:
    rows = np.array([[n, A if n % 2 else B, n] for n in range(6)], np.int64)
    lined_records = (LinedRecords("t/0", "lines", rows),)
    boom = Cause("split", "ValueError", "boom")
    assert settled(task_report("split", failures=((boom, np.array([1])),), lined_records=lined_records)) == {
        boom: [1],
        Cause("lines", HELD, "waits for t/0@1"): [3, 5],
    }
    still_open = {(7,): np.array([[2, 0]])}
    assert settled(task_report("split", outstanding=still_open, lined_records=lined_records)) == {
        Cause("lines", HELD, "waits for t/0@2"): [4]
    }
    assert settled(task_report("split", lined_records=lined_records)) == {}


def test_what_stands_behind_a_record_that_an_earlier_evaluation_failed_is_held_too() -> None:
    """The newer one acked it, and did not tell its line."""
    boom = Cause("split", "ValueError", "boom")
    rows = np.array([[n, A, n] for n in (1, 3)], np.int64)
    done = task_report(
        "split", plan=PLAN, ranges=PLAN.ranges, lined_records=(LinedRecords("t/0", "lines", rows[:0]),)
    )
    failed = changed_report(
        done, failures=((boom, np.array([1])),), lined_records=(LinedRecords("t/0", "lines", rows),)
    )
    outcome = settle([reported(1, 0, 0, failed), reported(2, 1, 0, done)], (), lambda _stage: None)
    found = {cause: roots.tolist() for cause, roots in failed_by_cause(outcome)}
    assert found == {boom: [1], Cause("lines", HELD, "waits for t/0@1"): [3]}


def test_best_effort_records_are_neither_held_nor_waited_for() -> None:
    rows = np.array([[n, A, n] for n in range(6)], np.int64)
    lined_records = (LinedRecords("t/0", "lines", rows),)
    boom = Cause("split", "ValueError", "boom")
    free = np.array([1, 4])
    report = task_report(
        "split", failures=((boom, np.array([1])),), lined_records=lined_records, untracked=free
    )
    assert settled(report) == {}
    later = task_report(
        "split", failures=((boom, np.array([2])),), lined_records=lined_records, untracked=free
    )
    assert settled(later)[Cause("lines", HELD, "waits for t/0@2")] == [3, 5]


def test_a_failure_outweighs_that_a_record_was_held_in_another_evaluation() -> None:
    """Else a record that always fails would be held for ever."""
    zoo = Cause("zoo", "ValueError", "boom")
    report = task_report(
        "zoo", failures=((Cause("a", HELD, "waits"), np.array([1, 2])), (zoo, np.array([1])))
    )
    assert settled(report) == {zoo: [1], Cause("a", HELD, "waits"): [2]}


def test_what_a_batch_holds_back_is_journalled_with_it() -> None:
    order = {65_536: LineUp("key", {A: 3, B: 2**47}), 65_537: LineUp("partition", {0: 0}, 7)}
    journal = replace(JOURNAL, order=order)
    text = json.dumps(journal.to_json())
    assert journal_of(json.loads(text)) == journal
    assert json.dumps(journal_of(json.loads(text)).to_json()) == text
    many = LineUp("key", {line_of_key(b"%d" % n): n for n in range(10_000)})
    assert len(json.dumps(many.to_json())) < 220_000


def test_a_journal_without_order_reads_as_before_and_one_of_unordered_inputs_is_the_same_text() -> None:
    value = JOURNAL.to_json()
    assert "order" not in value
    assert journal_of(value).order == {}


@pytest.mark.parametrize(
    "order",
    [
        5, {"x": {}}, {"65536": {"by": "none", "waiting": ""}}, {"65536": {"by": "key", "waiting": "AAAA"}},
        {"65536": {"by": "key", "waiting": "?"}}, {"65536": {"by": "key", "waiting": "", "most": 0}},
        {"65536": {"by": "key"}},
    ],
)  # fmt: skip
def test_an_order_that_is_none_of_ours_is_refused(order: object) -> None:
    with pytest.raises(Disagreement, match="an offset that is not Windhover's"):
        journal_of({**JOURNAL.to_json(), "order": order})


def test_a_partition_in_order_is_whole_in_one_task_with_its_copies() -> None:
    sources = [source_of(1, n) for n in range(3)]
    copies = [source_of(1, n, replay=True) for n in range(3)]
    loose = source_of(2, 0)
    ranges = tuple(SourceRun(s, 0, 9_000) for s in sorted([*sources, *copies, loose]))
    plan = replace(PLAN, ranges=ranges)
    order = {source: LineUp("key") for source in sources}
    tasks = read_tasks(plan, dict.fromkeys([*sources, *copies, loose], "t"), 2, order)
    assert sorted(run for task in tasks for run in task.ranges if run.source != loose) == sorted(
        run for run in ranges if run.source != loose
    )
    for source, copy in zip(sources, copies, strict=True):
        (owner,) = [task for task in tasks if source in {run.source for run in task.ranges}]
        assert copy in {run.source for run in owner.ranges}
        assert source in owner.order
    assert len([task for task in tasks if task.order]) == 2
    assert all(not task.order for task in tasks if loose in {run.source for run in task.ranges})


def test_a_task_travels_with_what_it_holds_back() -> None:
    task = ReadTask(PLAN, PLAN.ranges, {65_536: "t"}, {65_536: LineUp("key", {A: 1}, 5)})
    assert pickle.loads(pickle.dumps(task)) == task


def test_a_copy_tells_its_origin_and_one_of_another_partition_none() -> None:
    headers = (("windhover.origin", b"lines/3@42"),)
    assert origin_of(headers, "lines", 3) == 42
    assert [origin_of(headers, "lines", 2), origin_of(headers, "other", 3), origin_of((), "lines", 3)] == [
        None
    ] * 3
    assert origin_of((("windhover.origin", b"\xff"),), "lines", 3) is None


def test_no_more_of_a_source_is_chosen_than_its_cap() -> None:
    supplies = [Supply(source, [PositionRun(0, 100)]) for source in (65_536, 65_537)]
    room = Room(50, {1: 1_000}, caps={65_536: 3})
    portions = BatchIntake(supplies, {65_536: 1, 65_537: 1}, room, Sharing()).take()
    assert [portion.ranges for portion in portions.values()] == [
        (SourceRun(65_536, 0, 3),),
        (SourceRun(65_537, 0, 47),),
    ]


def test_what_was_held_does_not_make_the_next_batch_larger() -> None:
    pace = BatchPace(4_000)
    pace.begin_batch(1_000, 0)
    pace.take_off_records(900)
    pace.end_batch(100)
    assert pace.next_records_max() == 2_000, "a hundred in 100 ms; all thousand would allow ten times as many"


def test_a_kafka_spout_refuses_an_ordered_input_by_name() -> None:
    with pytest.raises(UsageError, match="input lines has an ordering, which KafkaSpout does not keep"):
        KafkaSpout(ordered("ordering: key"), "lines")


@pytest.mark.parametrize("option", ["tracked", "delayed_acks"])
def test_a_stream_refuses_what_does_not_go_with_an_ordering(option: str) -> None:
    options = {option: option != "tracked"}
    with pytest.raises(UsageError, match=f"input lines has an ordering, which does not go with {option}="):
        _group_and_tracked(ordered("ordering: partition"), ("lines",), options)  # type: ignore[arg-type]
    _group_and_tracked(ordered("ordering: none"), ("lines",), options)  # type: ignore[arg-type]


def test_what_may_be_held_stays_within_what_may_be_pending() -> None:
    found = ordered("ordering: key, max_held: 500, max_spout_pending: 200").input("lines")
    assert (found.ordered, found.blocked_max, found.hold_ms) == (True, 200, 1_000)


class Message:
    """As much of a client's message as sorting copies needs."""

    def __init__(self, size: int, key: bytes) -> None:
        self._size, self._key = size, key

    def __len__(self) -> int:
        return self._size

    def key(self) -> bytes:
        """Return the key."""
        return self._key


def copy(origin: int | None, position: int, size: int = 0) -> Copy:
    return Copy(origin, position, Message(size, b"a"))  # type: ignore[arg-type]


def test_copies_come_by_their_origins_whatever_the_order_of_the_log() -> None:
    copies = Copies()
    copies.add([copy(7, 0), copy(3, 1)])
    copies.add([copy(None, 2), copy(3, 3), copy(0, 4)])
    assert [[each.position for each in some] for some in copies.in_order(3)] == [[2, 4, 1], [3, 0]]


def test_what_does_not_fit_into_the_memory_of_a_task_is_held_from_its_end_on() -> None:
    copies = Copies(bytes_max=3_000)
    copies.add([copy(origin, 100 - origin, 400) for origin in range(5)])
    copies.add([copy(9, 200, 400)])
    assert [each.origin for some in copies.in_order(10) for each in some] == [0, 1]
    gate = Gate("t/0", "lines", LineUp("key"))
    refused = copies.refuse_left_over(gate, lambda position: position)
    assert sorted(index for index, _ in refused) == [96, 97, 98, 200]
    assert {cause.error for _, cause in refused} == {HELD}
    assert gate.admit(300, b"a", 10) == Cause("lines", HELD, "waits for t/0@2")


def test_a_small_copy_does_not_overtake_a_large_one_for_which_there_was_no_room() -> None:
    """Its bolt would see it before the other one, behind which it waits."""
    copies = Copies(bytes_max=3_000)
    copies.add([copy(0, 0, 400), copy(1, 1, 400), copy(4, 2, 2_000)])
    copies.add([copy(5, 3)])
    assert [each.origin for some in copies.in_order(10) for each in some] == [0, 1]
    assert [origin for origin, _, _ in copies.left_over] == [4, 5]


def test_one_copy_is_kept_however_large_it_is() -> None:
    copies = Copies(bytes_max=10)
    copies.add([copy(5, 0, 400), copy(2, 1, 400)])
    assert [each.origin for some in copies.in_order(10) for each in some] == [2]


def test_a_partition_has_more_room_behind_full_batches_that_lost_little() -> None:
    room = OrderedRoom()
    assert room.new_max_of(7) == ROOM_FIRST
    room.record_batch(7, ROOM_FIRST, lost_count=0)
    assert (room.new_max_of(7), room.new_max_of(9)) == (ROOM_GROWS * ROOM_FIRST, ROOM_FIRST)
    room.record_batch(
        7, ROOM_GROWS * ROOM_FIRST, lost_count=LOST_FEW // 4
    )  # twice as many lose four times as many
    assert room.new_max_of(7) == 2 * ROOM_GROWS * ROOM_FIRST
    room.record_batch(7, ROOM_FIRST, lost_count=0)  # a small batch shows nothing
    assert room.new_max_of(7) == 2 * ROOM_GROWS * ROOM_FIRST


@pytest.mark.parametrize(("records", "lost", "next_"), [
    (ROOM_FIRST, 4 * LOST_FEW, ROOM_FIRST // 2),  # half as many lose a quarter
    (LOST_FEW, LOST_FEW, LOST_FEW),  # all of it is lost: fewer would gain nothing
    (1, 1, LOST_FEW),  # nor is it known how many more would be
])  # fmt: skip
def test_a_partition_has_less_room_behind_a_batch_that_lost_much(records: int, lost: int, next_: int) -> None:
    room = OrderedRoom()
    room.record_batch(7, records, lost)
    assert room.new_max_of(7) == next_


@pytest.mark.parametrize("together", [True, False])
def test_each_key_has_a_line_of_its_own_and_a_null_one_has_none(together: bool) -> None:
    """An empty key is a key: its records wait for each other; those without a key wait for nobody."""
    gate = Gate("t/0", "lines", LineUp("key"))
    keys = [*KEYS.values(), *KEYS.values()]
    count = len(KEYS)
    if together:
        assert gate.admit_all(np.arange(count), keys[:count], np.arange(count)) == {}
    else:
        assert [gate.admit(at, keys[at], at) for at in range(count)] == [None] * count
    gate.fail_all(range(count))
    later = range(count, 2 * count)
    if together:
        held = gate.admit_all(np.array(later), keys[count:], np.array(later)).keys()
        blocked = [count + row for row in held]
    else:
        blocked = [at for at in later if gate.admit(at, keys[at], at) is not None]
    assert blocked == [at for at in later if keys[at] is not None]
