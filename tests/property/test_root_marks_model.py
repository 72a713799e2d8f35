"""`RootMarks` against lists of plain tuples: what is put in comes out, by kind, cause, root and block."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker.errors import TrackingError
from acker.identity import WIRE_BLOCK_BITS
from acker.wire.causes import LATE
from spout.publishing.delayed import (
    RootPositions,
    find_keyed_roots,
    held_marks,
    holder_of,
    marks_of_older,
    released_once,
)
from spout.publishing.root_marks import MarkRow, RootMark, RootMarks
from spout.tuples.failures import Cause

BLOCK = 1 << WIRE_BLOCK_BITS
CAUSES = [Cause("b", "E", ""), Cause("b", "E", "é"), Cause("a", "", "late")]


@st.composite
def mark_rows(draw: st.DrawFn) -> MarkRow:
    """Draw a mark of one of few roots, some at the border of a block."""
    kind = draw(st.sampled_from(RootMark))
    return MarkRow(
        draw(st.sampled_from([1 << 16, 2 << 16, 2 << 16 | 1])),
        draw(st.sampled_from([0, 1, BLOCK - 1, BLOCK, 3 * BLOCK + 5])),
        kind,
        draw(st.sampled_from([0, 1, -1, (1 << 63) - 1, -(1 << 63)])),
        draw(st.sampled_from(CAUSES)) if kind.has_cause else None,
    )


def marks_of(rows: list[MarkRow]) -> RootMarks:
    """Build the table one row at a time."""
    return RootMarks.together(
        RootMarks.of_roots(
            row.kind,
            (np.array([row.source]), np.array([row.position])),
            np.array([row.value], np.int64),
            row.cause,
        )
        for row in rows
    )


ROWS = st.lists(mark_rows(), max_size=12)


@given(ROWS)
def test_marks_are_read_as_they_were_written(rows: list[MarkRow]) -> None:
    marks = marks_of(rows)
    assert marks.rows() == rows
    assert len(marks) == len(rows)
    assert marks.edges.tolist() == [row.value % (1 << 64) for row in rows]
    assert RootMarks.unpacked(marks.packed()).rows() == rows


@given(st.lists(ROWS, max_size=4))
def test_parts_stand_behind_each_other(parts: list[list[MarkRow]]) -> None:
    together = RootMarks.together(marks_of(rows) for rows in parts)
    assert together.rows() == [row for rows in parts for row in rows]
    assert len(set(together.causes)) == len(together.causes)


@given(ROWS, st.sets(st.sampled_from(RootMark), min_size=1))
def test_the_rows_of_some_kinds_keep_their_order(rows: list[MarkRow], kinds: set[RootMark]) -> None:
    assert marks_of(rows).of(*kinds).rows() == [row for row in rows if row.kind in kinds]


@given(ROWS)
def test_ascending_rows_are_sorted_by_root_alone(rows: list[MarkRow]) -> None:
    assert marks_of(rows).ascending().rows() == sorted(rows, key=lambda row: (row.source, row.position))


@given(ROWS)
def test_each_root_stands_once_for_each_cause(rows: list[MarkRow]) -> None:
    first_rows: dict[tuple[int, int, Cause | None], MarkRow] = {}
    for row in rows:
        first_rows.setdefault((row.source, row.position, row.cause), row)
    once = marks_of(rows).once().rows()
    assert sorted(once, key=str) == sorted(first_rows.values(), key=str)
    roots = [(row.source, row.position) for row in once]
    assert roots == sorted(roots)


@given(ROWS)
def test_each_root_stands_once_with_its_first_row(rows: list[MarkRow]) -> None:
    first_rows: dict[tuple[int, int], MarkRow] = {}
    for row in rows:
        first_rows.setdefault((row.source, row.position), row)
    assert marks_of(rows).once_for_each_root().rows() == [row for _, row in sorted(first_rows.items())]


def sums_of(rows: Iterable[MarkRow]) -> list[tuple[int, int, int]]:
    """Return source, position and XOR of the values of each root, ascending, without those that cancel."""
    sums: dict[tuple[int, int], int] = {}
    for row in rows:
        root = row.source, row.position
        sums[root] = sums.get(root, 0) ^ row.value
    return [(*root, value) for root, value in sorted(sums.items()) if value]


@given(ROWS)
def test_the_values_of_a_root_are_summed_up_by_xor(rows: list[MarkRow]) -> None:
    summed = marks_of(rows).summed(RootMark.OPEN)
    assert [(row.source, row.position, row.value) for row in summed.rows()] == sums_of(rows)
    assert {row.kind for row in summed.rows()} <= {RootMark.OPEN}


@given(ROWS)
def test_a_tuple_is_released_once_and_not_where_a_row_of_it_is_open(rows: list[MarkRow]) -> None:
    left_open = {row.value for row in rows if row.kind is RootMark.LEFT_OPEN}
    released = [row for row in rows if row.kind is RootMark.RELEASED and row.value not in left_open]
    once = released_once(marks_of(rows)).rows()
    assert sorted(once, key=str) == sorted(set(released), key=str)
    assert sums_of(marks_of_older(marks_of(rows)).of(RootMark.RELEASED).rows()) == sums_of(set(released))


@given(st.dictionaries(st.integers(-5, 5), st.integers(0, 40), max_size=6), st.lists(st.integers(-6, 6)))
def test_the_roots_of_numbers_are_those_that_keyed_bolts_named(
    position_by_number: dict[int, int], numbers: list[int]
) -> None:
    # each mark twice, as of a root with two tuples
    rows = [
        MarkRow(position % 3, position, RootMark.KEYED, number, None)
        for number, position in position_by_number.items()
    ]
    marks = marks_of(rows * 2)
    if not position_by_number.keys() >= set(numbers):
        with pytest.raises(TrackingError, match="behind a keyed bolt"):
            find_keyed_roots(marks, np.array(numbers, np.int64))
        return
    roots = find_keyed_roots(marks, np.array(numbers, np.int64))
    positions = [position_by_number[number] for number in numbers]
    assert roots.positions.tolist() == positions
    assert roots.sources.tolist() == [position % 3 for position in positions]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 9)), max_size=6), st.booleans())
def test_each_tuple_that_is_held_has_its_edge_and_its_time(
    held: list[tuple[int, int]], fails_late: bool
) -> None:
    """Of several tables that come together, too: the first time is of the first tuple."""
    positions, until_ms = np.array(held, np.int64).reshape(-1, 2).T
    roots = RootPositions(np.full(len(held), 1 << 16), positions)
    holder = holder_of("hold", fails_late=fails_late)
    table = held_marks(holder, roots, positions.astype(np.uint64) + 7, until_ms)
    marks = RootMarks.together([table, table])
    tuples = marks.of(RootMark.HELD_TUPLE)
    assert tuples.positions.tolist() == [position for position, _ in held * 2]
    assert tuples.edges.tolist() == [position + 7 for position, _ in held * 2]
    assert marks.of(RootMark.HELD_UNTIL).values.tolist() == [time_ms for _, time_ms in held * 2]
    assert all((row.cause or holder).operator == "hold" for row in tuples.rows())
    assert {cause.error for cause in tuples.used_causes()} <= {LATE if fails_late else ""}


@given(ROWS)
def test_of_older_roots_each_kind_stands_once_for_each_root_and_cause(rows: list[MarkRow]) -> None:
    older = marks_of_older(marks_of(rows)).rows()
    for kind in (RootMark.FAILED, RootMark.TOUCHED, RootMark.HELD_ON):
        named = [(row.source, row.position, row.cause) for row in older if row.kind is kind]
        assert len(named) == len(set(named))
        assert set(named) == {(row.source, row.position, row.cause) for row in rows if row.kind is kind}


@given(ROWS)
def test_each_block_has_its_rows_in_their_order(rows: list[MarkRow]) -> None:
    expected: dict[tuple[int, int], list[MarkRow]] = {}
    for row in rows:
        expected.setdefault((row.source, row.position // BLOCK), []).append(row)
    blocks = marks_of(rows).by_block()
    assert {key: marks.rows() for key, marks in blocks.items()} == expected
    assert list(blocks) == sorted(expected)


@given(ROWS)
def test_each_cause_has_its_rows_in_their_order(rows: list[MarkRow]) -> None:
    expected: dict[Cause, list[MarkRow]] = {}
    for row in rows:
        if row.cause is not None:
            expected.setdefault(row.cause, []).append(row)
    marks = marks_of(rows)
    assert {cause: of_cause.rows() for cause, of_cause in marks.by_cause()} == expected
    assert set(marks.used_causes()) == set(expected)
    failed = marks.of(RootMark.FAILED)
    assert set(failed.used_causes()) == {row.cause for row in rows if row.kind is RootMark.FAILED}


@given(ROWS, ROWS)
def test_rows_are_of_a_set_of_roots_or_not(rows: list[MarkRow], others: list[MarkRow]) -> None:
    marks, roots = marks_of(rows), marks_of(others).roots()
    named = {(row.source, row.position) for row in others}
    assert len(roots) == len(named)
    assert marks.is_of(roots).tolist() == [(row.source, row.position) in named for row in rows]
    assert marks.without(roots).rows() == [row for row in rows if (row.source, row.position) not in named]
    inside, outside = marks.divided(roots)
    assert inside.rows() == marks.within(roots).rows()
    assert outside.rows() == marks.without(roots).rows()


@given(ROWS.filter(bool), st.integers(0, 1 << 30), st.integers(0, 255))
def test_a_damaged_table_is_refused_or_is_another_table(rows: list[MarkRow], at: int, byte: int) -> None:
    packed = bytearray(marks_of(rows).packed())
    packed[at % len(packed)] = byte
    try:
        read = RootMarks.unpacked(bytes(packed))
    except TrackingError:
        return
    assert len(read.rows()) == len(read)
