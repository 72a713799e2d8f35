"""What tuples carry, over drawn rows: anchors, times with a zone, keys, counts, and tuples made by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Message
from hypothesis import example, given
from hypothesis import strategies as st

from acker.errors import MessageIdUnknown
from replay.records.record_time import RecordTime, time_headers
from spout.tuples import anchor_columns
from spout.tuples.anchor_columns import ANCHORS, HELD, anchor_types_of, joined_anchors, with_one_anchor_column
from spout.tuples.anchors import AnchorForm, Anchors, pack, wide_column
from spout.tuples.casts import in_zone, pairs_of, schema_with_zone
from spout.tuples.columns import ANCHOR
from spout.tuples.counts import Counted, Counts, Measure, What, count_of
from spout.tuples.exact import zone_of
from spout.tuples.messages import record_key, record_keys, time_of_original
from spout.tuples.rows import tuple_of, unknown_id
from spout.tuples.tuple import StreamId
from tests.support.computed_columns import ANCHORS_TYPE, COMPUTED_FUNCTIONS, HELD_TYPE, Computed, Frame, frame

NAMES = st.text(st.characters(categories=["L"]), min_size=1, max_size=4)
I64S = st.integers(-(1 << 63), (1 << 63) - 1)
ZONES = st.sampled_from(["UTC", "America/New_York", "Asia/Kolkata", "+05:45", "-11:00"])
MICROSECONDS = st.integers(-(10**15), 2 * 10**15) | st.none()

ANCHOR_VALUES = st.tuples(I64S, I64S, I64S) | st.none()
COLUMNS_OF_ANCHORS = st.one_of(
    st.tuples(st.just(HELD_TYPE), ANCHOR_VALUES),
    st.tuples(st.just(ANCHORS_TYPE), st.lists(ANCHOR_VALUES.filter(bool), max_size=3) | st.none()),
)


def anchors_in(value: Any) -> list[Any]:
    """Return the anchors of a value of either form; a null has none."""
    if value is None:
        return []
    return list(value) if isinstance(value, list) else [value]


@given(st.lists(COLUMNS_OF_ANCHORS, min_size=1, max_size=4))
def test_a_row_behind_a_join_has_the_anchors_of_all_columns_in_their_order(
    columns: list[tuple[Any, Any]],
) -> None:
    kinds = [kind for kind, _ in columns]
    row = ["a line", *(value for number, (_, anchors) in enumerate(columns) for value in (anchors, number))]
    rows = frame(*kinds, rows=[row])
    expected = [anchor for _, value in columns for anchor in anchors_in(value)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anchor_columns, "sql", COMPUTED_FUNCTIONS)
        assert anchor_types_of(rows) == [HELD if kind is HELD_TYPE else ANCHORS for kind in kinds]
        readers: list[Any] = [
            Computed(partial(lambda place, row: row[1 + 2 * place], place)) for place in range(len(columns))
        ]
        joined = cast("Computed", joined_anchors(readers, anchor_types_of(rows)))
        together = cast("Frame", with_one_anchor_column(rows, "ack"))
    assert joined.read(row) == expected
    numbers = list(range(len(columns)))
    if kinds == [ANCHORS_TYPE]:  # nothing is to be joined, so a null stays one
        assert together is rows
    else:
        assert together.columns == ["line", *(f"n{number}" for number in numbers), ANCHOR]
        assert together.rows == [["a line", *numbers, expected]]


WIDE_ROWS = st.lists(
    st.tuples(st.integers(0, 1 << 30), st.integers(0, 1 << 20), I64S, I64S), min_size=1, max_size=8
)


@given(WIDE_ROWS, st.data())
def test_a_wide_column_keeps_source_and_position_of_each_row_and_so_do_its_children(
    rows: list[tuple[int, int, int, int]], data: st.DataObject
) -> None:
    indices, ordinals, sources, positions = map(list, zip(*rows, strict=True))
    packed = pack(np.array(indices), np.array(ordinals), "split")
    column = wide_column(pa.array(packed), pa.array(sources), pa.array(positions))
    assert column.type == AnchorForm.WIDE.type
    anchors = Anchors(AnchorForm.WIDE, column)
    assert (anchors.roots().tolist(), anchors.ordinals().tolist()) == (indices, ordinals)
    assert column.field("source").to_pylist() == sources
    assert column.field("position").to_pylist() == positions
    parents = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=6))
    children = anchors.descendants_column(np.array(parents, np.int64), packed[parents])
    assert children.to_pylist() == [column[parent].as_py() for parent in parents]


def zoned(zone: str) -> list[pa.DataType]:
    """Return types with times of a zone, alone and within others, and one without."""
    time = pa.timestamp("us", zone)
    return [
        time,
        pa.list_(time),
        pa.struct([("at", time), ("n", pa.int32())]),
        pa.map_(pa.string(), time),
        pa.timestamp("us"),
    ]


@given(ZONES, ZONES, st.lists(MICROSECONDS, max_size=4), st.integers(0, 4))
def test_a_batch_in_another_zone_has_the_same_instants(
    old: str, new: str, times: list[int | None], kind: int
) -> None:
    values = {
        0: times,
        1: [[time, time] for time in times],
        2: [{"at": time, "n": 1} for time in times],
        3: [[("a key", time)] for time in times],
        4: times,
    }[kind]
    plain = pa.array(values, _unzoned(kind))
    batch = pa.record_batch([plain.cast(zoned(old)[kind])], ["value"])
    moved = in_zone(batch, new)
    assert moved.schema.field(0).type == zoned(new)[kind]
    assert moved.schema == schema_with_zone(batch.schema, new)
    assert moved.column(0).cast(_unzoned(kind)).to_pylist() == plain.to_pylist()
    assert (moved is batch) is (old == new or kind == 4)


def _unzoned(kind: int) -> pa.DataType:
    """Return the same type with numbers, us since 1970, in place of times."""
    number = pa.int64()
    return [
        number,
        pa.list_(number),
        pa.struct([("at", number), ("n", pa.int32())]),
        pa.map_(pa.string(), number),
        number,
    ][kind]


MAPS = st.lists(st.dictionaries(NAMES, I64S | st.none(), max_size=3) | st.none(), max_size=6)


@given(MAPS, st.integers(0, 6), st.integers(0, 6))
def test_the_pairs_of_maps_are_those_of_their_own_rows_also_in_a_part_of_an_array(
    maps: list[dict[str, int | None] | None], start: int, length: int
) -> None:
    rows = [None if row is None else list(row.items()) for row in maps]
    column = pa.array(rows, pa.map_(pa.string(), pa.int64()))
    pairs = pairs_of(column.slice(start, length))
    expected = rows[start : start + length]
    assert pairs.to_pylist() == [
        None if row is None else [{"key": key, "value": value} for key, value in row] for row in expected
    ]


@given(st.integers(-14 * 60, 14 * 60))
def test_an_offset_is_the_zone_that_it_says(minutes: int) -> None:
    sign = "-" if minutes < 0 else "+"
    name = f"{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
    noon = datetime(2026, 7, 1, 12, tzinfo=UTC)
    assert noon.astimezone(zone_of(name)).utcoffset() == timedelta(minutes=minutes)


@given(st.text(max_size=12))
@example("")
@example("/etc/passwd")
@example("../UTC")
@example("America")
@example("a\0b")
@example("\ud800")
@example("+25:00")
@example("+05:99")
@example("x" * 300)
def test_a_name_that_is_no_zone_is_refused_by_name(name: str) -> None:
    said = ""
    try:
        zone = zone_of(name)
        at = datetime(2026, 7, 1, tzinfo=UTC).astimezone(zone)
    except pa.ArrowInvalid as error:
        at, said = None, str(error)
    assert repr(name) in said if at is None else at.utcoffset() is not None


COUNTS = st.dictionaries(
    st.builds(
        Counted,
        st.sampled_from(What),
        st.sampled_from("ab"),
        st.builds(StreamId, st.sampled_from("ab"), st.sampled_from("xy")),
    ),
    st.builds(Measure, st.integers(0, 9)),
)


@given(COUNTS, st.sampled_from(What), st.sampled_from("ab"), st.sampled_from(["a", "b", None]))
def test_the_tuples_of_a_component_are_those_of_all_its_streams_or_of_one(
    counts: Counts, what: What, component: str, source: str | None
) -> None:
    expected = 0
    for counted, measure in counts.items():
        if counted.what is what and counted.component == component:
            expected += measure.tuples if source in (None, counted.stream.component) else 0
    assert count_of(counts, what, component, source) == expected
    assert count_of(counts, str(what), component, source) == expected


@given(st.lists(st.binary(max_size=5) | st.none(), max_size=5))
def test_keys_of_records_are_bytes_or_nothing(keys: list[bytes | None]) -> None:
    messages = [Message(topic="t", key=key) for key in keys]
    assert record_keys(messages) == [record_key(message) for message in messages] == keys


@given(I64S, st.integers(0, 1), st.integers(0, 1 << 50), st.integers(1, 2), st.booleans())
def test_a_copy_has_the_time_that_its_headers_say_or_else_its_own(
    ms: int, kind: int, own_ms: int, own_kind: int, has_headers: bool
) -> None:
    time = RecordTime(ms, kind)
    headers = list(time_headers(time)) if has_headers else None
    message = Message(topic="t", headers=headers, timestamp=(own_kind, own_ms))
    assert time_of_original(message) == (time if has_headers else RecordTime(own_ms, own_kind - 1))


@given(
    st.dictionaries(NAMES, I64S | st.binary() | st.none()),
    st.none() | st.just("t/0@1"),
    st.integers(1, 9),
)
def test_a_tuple_made_by_hand_has_its_values_and_a_message_id_if_it_has_an_origin(
    values: dict[str, Any], origin: str | None, attempt: int
) -> None:
    made = tuple_of(values, origin=origin, attempt=attempt)
    assert (made.fields, made.values) == (tuple(values), tuple(values.values()))
    assert {name: made[name] for name in values} == values
    if origin is not None:
        assert (made.message_id.origin, made.message_id.attempt) == (origin, attempt)
        return
    with pytest.raises(MessageIdUnknown, match="row 0"):
        _ = made.message_id


@given(st.integers(0, 1 << 40))
def test_an_id_that_is_not_known_is_refused_with_its_row(row: int) -> None:
    with pytest.raises(MessageIdUnknown, match=rf"\(row {row}\)"):
        unknown_id(row)
