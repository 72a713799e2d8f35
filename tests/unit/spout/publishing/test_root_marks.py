"""The table of what happened to roots: garbage is refused, and nothing else is lost on the way."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from acker.errors import TrackingError
from spout.publishing.root_marks import COMPRESSED_ROWS, FIRST_POSITION, NO_MARKS, RootMark, RootMarks
from spout.tuples.failures import Cause

BAD, WORSE = Cause("split", "ValueError", "no words"), Cause("split", "ValueError", "")
NONE = np.empty(0, np.int64)


def failed(*positions: int, source: int = 7, cause: Cause = BAD) -> RootMarks:
    """Fail roots of one source."""
    at = np.array(positions, np.int64)
    return RootMarks.of_roots(RootMark.FAILED, (np.full(len(at), source), at), cause=cause)


def packed_with(name: str, column: pa.Array) -> bytes:
    """Pack a mark, and write one of its columns anew."""
    batch = next(iter(pa.ipc.open_stream(failed(3).packed())))
    number = batch.schema.get_field_index(name)
    changed = batch.set_column(number, pa.field(name, column.type), column)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, changed.schema) as writer:
        writer.write_batch(changed)
    return bytes(sink.getvalue())


def test_no_marks_are_no_bytes() -> None:
    assert NO_MARKS.packed() == b""
    assert failed().packed() == b""
    assert not RootMarks.unpacked(b"")


def test_no_marks_have_no_blocks_no_causes_and_no_roots() -> None:
    assert (NO_MARKS.by_block(), NO_MARKS.by_cause(), NO_MARKS.used_causes()) == ({}, [], [])
    assert not NO_MARKS.roots()
    assert (len(NO_MARKS.ascending()), len(NO_MARKS.of(RootMark.FAILED)), NO_MARKS.rows()) == (0, 0, [])
    assert len(NO_MARKS.without(failed(3).roots())) == 0


def test_marks_of_different_lengths_are_refused() -> None:
    one, two = np.array([1]), np.array([1, 2])
    for roots, values in (((one, two), None), ((two, one), None), ((one, one), two), ((two, two), one)):
        with pytest.raises(ValueError, match="are not of the same roots"):
            RootMarks.of_roots(RootMark.TOUCHED, roots, values)
    with pytest.raises(ValueError, match="are not of the same roots"):
        RootMarks.of_causes(RootMark.FAILED, (two, two), np.array([0]), [BAD])


def test_equal_causes_of_several_parts_are_one() -> None:
    every = RootMarks.together(
        [failed(1), failed(2, cause=WORSE), NO_MARKS, failed(3), failed(4, cause=WORSE)]
    )
    assert every.causes == (BAD, WORSE)
    assert [(cause, rows.positions.tolist()) for cause, rows in every.by_cause()] == [
        (BAD, [1, 3]),
        (WORSE, [2, 4]),
    ]


def test_a_mark_without_a_cause_keeps_none_beside_marks_with_one() -> None:
    touched = RootMarks.of_roots(RootMark.TOUCHED, (np.array([7]), np.array([9])))
    for parts in ([failed(1), touched], [touched, failed(1)]):
        [row] = RootMarks.together(parts).of(RootMark.TOUCHED).rows()
        assert row.cause is None
    assert [cause for cause, _ in RootMarks.together([touched, failed(1)]).by_cause()] == [BAD]


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("kind", pa.array([99], pa.int8())),
        ("kind", pa.array([None], pa.int8())),
        ("source", pa.array([None], pa.int64())),
        ("step", pa.array([1], pa.uint8())),
        ("step", pa.array([None], pa.int8())),
        ("value", pa.array(["x"])),
        ("cause", pa.array([None], pa.int32())),
    ],
)
def test_a_table_that_is_none_of_ours_is_refused(name: str, column: pa.Array) -> None:
    with pytest.raises(TrackingError, match="a task's marks cannot be read"):
        RootMarks.unpacked(packed_with(name, column))


@pytest.mark.parametrize("kind", [kind for kind in RootMark if kind.has_cause])
def test_a_mark_that_lacks_its_cause_is_refused(kind: RootMark) -> None:
    without = RootMarks.of_roots(kind, (np.array([7]), np.array([1])))
    with pytest.raises(TrackingError, match="a mark has no cause"):
        RootMarks.unpacked(without.packed())


def test_a_number_beyond_the_causes_is_refused() -> None:
    marks = RootMarks.of_causes(RootMark.FAILED, (np.array([7]), np.array([1])), np.array([2]), [BAD])
    with pytest.raises((TrackingError, pa.ArrowException)):
        RootMarks.unpacked(marks.packed())


@pytest.mark.parametrize("first", [None, "", "x", str(1 << 64)])
def test_a_table_that_does_not_say_where_its_positions_begin_is_refused(first: str | None) -> None:
    batch = next(iter(pa.ipc.open_stream(failed(3, 5).packed())))
    schema = batch.schema.with_metadata({} if first is None else {FIRST_POSITION: first})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    with pytest.raises(TrackingError, match="nothing says where its positions begin"):
        RootMarks.unpacked(bytes(sink.getvalue()))


@pytest.mark.parametrize("rows", [2, COMPRESSED_ROWS + 1])
@pytest.mark.parametrize("step", [1, -1, 127, 128, -129, 1 << 20, 1 << 40])
def test_positions_come_back_whatever_lies_between_them(rows: int, step: int) -> None:
    positions = (1 << 50) + step * np.arange(rows)
    for places in (positions, positions[::-1], np.array([-(1 << 63), (1 << 63) - 1])):
        marks = RootMarks.of_roots(RootMark.TOUCHED, (np.full(len(places), 7), places))
        assert RootMarks.unpacked(marks.packed()).positions.tolist() == places.tolist()


def test_neighbours_take_no_bytes_of_their_own() -> None:
    few, many = (len(failed(*range(1 << 40, (1 << 40) + rows)).packed()) for rows in (2_000, 100_000))
    assert many - few < 30_000


def test_bytes_that_were_cut_off_are_refused() -> None:
    packed = failed(1, 2, 3).packed()
    for end in range(1, len(packed) - 8, 7):
        with pytest.raises(TrackingError, match="a task's marks cannot be read"):
            RootMarks.unpacked(packed[:end])
    for garbage in (b"\x00", b"x" * 100, b"\xff" * 1_000):
        with pytest.raises(TrackingError, match="a task's marks cannot be read"):
            RootMarks.unpacked(garbage)
