"""Notes beside records, of what came too late and of calls that passed: only what is ours is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from acker.wire.events import SourceRun
from acker.wire.lateness import (
    MOVED_BY_MAX,
    TOO_LATE,
    LateCounts,
    Mover,
    TooLate,
    read_too_late,
    too_late_header,
)
from acker.wire.passed_calls import (
    CALLS_MAX,
    NOTE_BYTES_MAX,
    PASSED_CALLS,
    RUNS_MAX,
    PassedCall,
    PassedCalls,
    passed_calls_header,
    read_passed_calls,
)

A, B = 65_536, 65_537
OTHER = ("other", b"x")
EMPTY = TooLate("g", "q/s", 7, True, 5, 6, 0, 9, (), (), ())


# what came too late ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runs", "is_record"),
    [
        ((), False),
        ((SourceRun(A, 5, 6),), True),
        ((SourceRun(A, 0, 1),), True),
        ((SourceRun(A, 5, 7),), False),
        ((SourceRun(A, 5, 5),), False),
        ((SourceRun(A, 5, 6), SourceRun(B, 5, 6)), False),
        ((SourceRun(A, 5, 7), SourceRun(B, 5, 6)), False),
    ],
)
def test_a_mover_is_a_record_where_it_is_one_position(runs: tuple[SourceRun, ...], is_record: bool) -> None:
    assert Mover(3, runs).record == (runs[0] if is_record else None)
    assert replace(EMPTY, moved_by=runs).mover == (Mover(9, runs) if runs else None)


def test_a_note_names_what_lies_in_its_runs() -> None:
    runs = (SourceRun(A, 5, 8), SourceRun(B, 0, 2))
    note = replace(EMPTY, roots=runs)
    within = {(A, 5), (A, 7), (B, 0), (B, 1)}
    for place in {*within, (A, 4), (A, 8), (A, 0), (B, 2), (B, 5), (99, 6)}:
        assert note.names(*place) is (place in within)
        # of a batch of which no row was dropped, nothing can have been dropped
        assert not replace(EMPTY, batch=runs).may_have_dropped(*place)
        for rows in (1, 2):
            assert replace(EMPTY, batch=runs, rows=rows).may_have_dropped(*place) is (place in within)
    assert note.root_count == 5
    assert not note.may_have_dropped(A, 5)


def test_the_rows_of_a_batch_count_once() -> None:
    assert replace(EMPTY, rows=8).rows_counted == 8
    assert replace(EMPTY, rows=8, first=False).rows_counted == 0


def test_counts_are_sums_and_keep_the_last_note_without_its_roots() -> None:
    movers = tuple(SourceRun(A, number, number + 1) for number in range(MOVED_BY_MAX + 2))
    first = replace(EMPTY, rows=8, roots=(SourceRun(A, 5, 8),), batch=(SourceRun(A, 0, 9),))
    last = replace(first, seq=8, rows=2, roots=(SourceRun(A, 9, 10),), moved_by=movers)
    counts = LateCounts().plus(first).plus(last)
    kept = replace(last, roots=(), batch=(), moved_by=movers[:MOVED_BY_MAX])
    assert counts == LateCounts(4, 10, kept)


def test_a_note_is_found_among_other_headers() -> None:
    note = replace(EMPTY, rows=3, roots=(SourceRun(A, 0, 5), SourceRun(B, 7, 7)))
    assert read_too_late([OTHER, too_late_header(note), OTHER]) == note
    assert read_too_late([too_late_header(EMPTY)]) == EMPTY
    assert read_too_late([OTHER]) is None
    assert read_too_late([]) is None


@pytest.mark.parametrize("value", [None, b"", b"x", too_late_header(EMPTY)[1] + b"x"])
def test_a_note_that_cannot_be_read_is_none(value: bytes | None) -> None:
    assert read_too_late([(TOO_LATE, value)]) is None


@pytest.mark.parametrize("field", ["moved_by", "roots", "batch"])
@pytest.mark.parametrize(
    ("run", "is_read"),
    [
        (SourceRun(A, 0, 0), True),
        (SourceRun(A, 0, 1), True),
        (SourceRun(A, 3, 3), True),
        (SourceRun(A, -1, 1), False),
        (SourceRun(A, 3, 2), False),
    ],
)
def test_runs_that_are_none_spoil_a_note(field: str, run: SourceRun, is_read: bool) -> None:
    note = replace(EMPTY, **{field: (SourceRun(A, 1, 2), run)})
    assert read_too_late([too_late_header(note)]) == (note if is_read else None)


@pytest.mark.parametrize(("rows", "is_read"), [(0, True), (1, True), (-1, False)])
def test_no_note_takes_rows_away(rows: int, is_read: bool) -> None:
    for roots in ((), (SourceRun(A, 1, 2),)):
        note = replace(EMPTY, rows=rows, roots=roots)
        assert read_too_late([too_late_header(note)]) == (note if is_read else None)


# calls that passed ----------------------------------------------------------------------------------------

CALL = PassedCall("split", "ValueError", "passed", (SourceRun(A, 0, 5), SourceRun(B, 7, 8)))
MANY_RUNS = tuple(SourceRun(A, 2 * number, 2 * number + 1) for number in range(RUNS_MAX + 1))


def read_back(*calls: PassedCall, lane: str = "q/s", seq: int = 0) -> PassedCalls | None:
    return read_passed_calls([OTHER, *passed_calls_header(lane, seq, calls), OTHER])


@pytest.mark.parametrize("seq", [0, 1, (1 << 63) - 1])
def test_calls_that_passed_come_back(seq: int) -> None:
    other = CALL._replace(bolt="", error="", explanation="", runs=())
    assert read_back(CALL, other, lane="", seq=seq) == PassedCalls("", seq, (CALL, other))
    assert read_back() is None
    assert passed_calls_header("q/s", 1, []) == ()


def test_a_note_of_calls_is_bounded() -> None:
    """And what is as long as may be is read."""
    long = PassedCall("é" * 200, "E" * 201, "h" * 200, MANY_RUNS)
    cut = PassedCall("é" * 100, "E" * 200, "h" * 200, MANY_RUNS[:RUNS_MAX])
    assert read_back(*[long] * (CALLS_MAX + 1)) == PassedCalls("q/s", 0, (cut,) * CALLS_MAX)


GOOD: list[Any] = ["q/s", 5, [["b", "e", "h", [[A, 0, 1], [A, 3, 4]]], ["c", "e", "h", [[B, 0, 1]]]]]


def written(change: Callable[[list[Any]], object]) -> PassedCalls | None:
    """Return what is read of a note that was right until it was changed."""
    note = json.loads(json.dumps(GOOD))
    change(note)
    return read_passed_calls([(PASSED_CALLS, json.dumps(note).encode())])


WHOLE_END = 1 << 63
NO_NUMBERS: list[Any] = [-1, WHOLE_END, 1.5, True, "1", None]


def put(*path: int | Any) -> Callable[[list[Any]], None]:
    """Return the change that writes the last argument to the place that the others lead to."""
    *keys, last_key, value = path

    def change(note: list[Any]) -> None:
        for step in keys:
            note = note[step]
        note[last_key] = value

    return change


CHANGES = [
    *(put(1, number) for number in NO_NUMBERS),
    *(put(2, 0, 3, 0, place, number) for number in NO_NUMBERS for place in range(3)),
    *(put(2, 1, 3, 0, place, number) for number in NO_NUMBERS for place in range(3)),
    *(put(2, call, text, value) for call in (0, 1) for text in range(3) for value in (1, None, [])),
    put(0, 7), put(0, None), put(2, 7), put(2, 0, 7), put(2, 0, 3, 7), put(2, 0, 3, 0, 7),
    put(2, 0, 3, 1, [A, 4, 4]), put(2, 0, 3, 1, [A, 5, 4]), put(2, 1, 3, 0, [B, 1]),
    put(2, 0, 3, 1, [A, 1, 2, 3]),
    lambda note: note.pop(), lambda note: note.append(1), lambda note: note[2][0].pop(),
    lambda note: note[2].extend([GOOD[2][0]] * (CALLS_MAX - 1)),
    lambda note: note[2][0][3].extend([[A, 9, 10]] * (RUNS_MAX - 1)),
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_note_that_no_program_of_ours_writes_is_none(change: Callable[[list[Any]], None]) -> None:
    assert written(change) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda note: None,
        put(1, 0),
        put(1, WHOLE_END - 1),
        put(2, 0, 3, 0, [0, 0, WHOLE_END - 1]),
        lambda note: note[2].extend([GOOD[2][0]] * (CALLS_MAX - 2)),
        lambda note: note[2][0][3].extend([[A, 9, 10]] * (RUNS_MAX - 2)),
    ],
)
def test_a_note_at_its_limits_is_read(change: Callable[[list[Any]], None]) -> None:
    note = json.loads(json.dumps(GOOD))
    change(note)
    lane, seq, rows = note
    calls = tuple(PassedCall(*texts, tuple(SourceRun(*run) for run in runs)) for *texts, runs in rows)  # type: ignore[call-arg]
    assert written(change) == PassedCalls(lane, seq, calls)


@pytest.mark.parametrize("value", [None, b"", b"x", b"\xff", b"7", b"[" * 50_000, b"{}"])
def test_a_header_that_holds_no_note_is_none(value: bytes | None) -> None:
    assert read_passed_calls([(PASSED_CALLS, value)]) is None


@pytest.mark.parametrize(("more", "is_read"), [(0, True), (1, False)])
def test_a_longer_header_is_none_of_ours(more: int, is_read: bool) -> None:
    value = json.dumps(GOOD).encode().ljust(NOTE_BYTES_MAX + more)
    assert (read_passed_calls([(PASSED_CALLS, value)]) is not None) is is_read
