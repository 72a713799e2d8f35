"""Bundles: every row arrives, once, at the task that its values or its place name, and at no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from acker.errors import TupleError
from spout.topology.bundles import BUNDLES, ROWS_MAX, Bundling, PlacedRows, unbundled, unbundled_with_places
from spout.topology.graph import Kind
from spout.topology.routing import tasks_for
from spout.tuples.anchors import PATHS_TYPE, AnchorForm, fingerprint_of, hops_column
from spout.tuples.columns import ANCHOR, BUNDLE, TASK, TO
from spout.tuples.places import Places
from spout.tuples.tuple import Delivery

WORDS = pa.schema([("word", pa.string()), ("size", pa.int64())])


def words(*named: str | None) -> pa.RecordBatch:
    columns = [pa.array(named, pa.string()), pa.array(np.arange(len(named)))]
    return pa.RecordBatch.from_arrays(columns, schema=WORDS)


def anchored(numbers: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], names=[ANCHOR])


def bundled(bundling: Bundling, rows: pa.RecordBatch, first: int = 0) -> pa.RecordBatch:
    return bundling.bundle([PlacedRows(rows)], first)


def naming(
    tasks: list[int], batch: pa.RecordBatch | None = None, places: Places | None = None, to: int = 0
) -> tuple[PlacedRows, pa.Schema]:
    """Return rows that name their tasks (of the numbers of rows without `batch`), and the schema behind."""
    if batch is None:
        batch = pa.RecordBatch.from_arrays([pa.array(range(len(tasks)))], names=["no"])
    hidden = [(TO, pa.int32()), (TASK, pa.int32())]
    if places is not None:
        hidden.append((ANCHOR, PATHS_TYPE))
    return PlacedRows(batch, places, to, np.array(tasks)), pa.schema([*batch.schema, *hidden])


def by_task(bundles: pa.RecordBatch, schema: pa.Schema) -> dict[int, list[dict[str, object]]]:
    assert bundles.schema == BUNDLES
    return {
        bundles.column(TASK)[row].as_py(): [
            values for rows in unbundled(bundles.slice(row, 1), schema) for values in rows.to_pylist()
        ]
        for row in range(bundles.num_rows)
    }


def test_equal_values_go_to_one_task_whatever_stands_beside_them() -> None:
    bundling = Bundling(3, ("word",))
    names = ["hawk", "kite", None, "wren", "hawk", "", None, "kite"]
    found = by_task(bundled(bundling, words(*names)), WORDS)
    rows = [row for task in found.values() for row in task]
    assert sorted(rows, key=lambda row: str(row["size"])) == words(*names).to_pylist()
    home = {row["word"]: task for task, rows in found.items() for row in rows}
    for name in dict.fromkeys(names):
        [(task, rows)] = by_task(bundled(bundling, words(name)), WORDS).items()
        assert (task, [row["word"] for row in rows]) == (home[name], [name])


def test_rows_of_one_task_keep_their_order() -> None:
    [rows] = by_task(bundled(Bundling(1, ("word",)), words(*"hawk waits")), WORDS).values()
    assert [row["size"] for row in rows] == list(range(10))


def test_a_tuple_that_runs_again_goes_the_same_way_and_all_tasks_have_their_share() -> None:
    """By its place: beside other rows, behind others, in another order."""
    numbers = [root << 24 for root in range(1_000)]
    bundling, schema = Bundling(4), anchored([]).schema
    found = by_task(bundled(bundling, anchored(numbers)), schema)
    home = {row[ANCHOR]: task for task, rows in found.items() for row in rows}
    assert all(150 < len(rows) < 350 for rows in found.values())
    again = by_task(bundled(bundling, anchored(numbers[::-2]), first=77), schema)
    assert {row[ANCHOR]: task for task, rows in again.items() for row in rows}.items() <= home.items()


def test_a_row_of_several_places_goes_the_same_way_again() -> None:
    rows = [(Delivery(root, ((1, 0),)), Delivery(root + 1, ())) for root in range(100)]
    batch = pa.RecordBatch.from_arrays([hops_column(rows)], names=[ANCHOR])
    found = by_task(bundled(Bundling(2), batch), batch.schema)
    again = by_task(bundled(Bundling(2), batch.take(pa.array(range(99, -1, -1)))), batch.schema)
    assert sorted(found) == [0, 1]
    assert {task: rows[::-1] for task, rows in again.items()} == found


def test_rows_without_a_place_are_dealt_out_by_turns_across_batches() -> None:
    bundling, sizes = Bundling(2), {0: 0, 1: 0}
    for first in range(5):
        for task, rows in by_task(bundled(bundling, words("hawk"), first), WORDS).items():
            sizes[task] += len(rows)
    assert sizes == {0: 3, 1: 2}


def test_rows_that_name_their_task_go_there() -> None:
    load, schema = naming([5, 0, 2, 5])
    found = by_task(Bundling(3).bundle([load]), schema)
    assert {task: [row[TASK] for row in rows] for task, rows in found.items()} == {0: [0], 2: [5, 2, 5]}


@pytest.mark.parametrize("rows", [0, 1, ROWS_MAX, ROWS_MAX + 1])
def test_a_bolt_receives_no_more_rows_at_once_than_spark_would_hand_it(rows: int) -> None:
    bundles = bundled(Bundling(1), anchored(list(range(rows))))
    assert bundles.num_rows == min(1, rows)
    batches = [*unbundled(bundles, anchored([]).schema)]
    assert [batch.num_rows for batch in batches] == [ROWS_MAX] * (rows // ROWS_MAX) + [rows % ROWS_MAX] * (
        rows % ROWS_MAX > 0
    )
    assert [number for batch in batches for number in batch.column(ANCHOR).to_pylist()] == list(range(rows))


@pytest.mark.parametrize("repeats", [1, 300], ids=["plain", "coded"])
@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.int64(), pa.float64(), pa.list_(pa.string())])
def test_values_arrive_as_they_left(kind: pa.DataType, repeats: int) -> None:
    of: dict[Any, list[Any]] = {
        pa.int64(): [7, -1],
        pa.float64(): [0.5, float("inf")],
        pa.list_(pa.string()): [["a"], []],
    }
    values = [*of.get(kind, ["hawk", "kite"]), None] * repeats
    batch = pa.RecordBatch.from_arrays([pa.array(values, kind)], names=["it"])
    arrived = [*unbundled(bundled(Bundling(2, ("it",)), batch), batch.schema)]
    assert all(rows.schema == batch.schema for rows in arrived)
    found = [value for rows in arrived for value in rows.column("it").to_pylist()]
    assert sorted(found, key=repr) == sorted(batch.column("it").to_pylist(), key=repr)


@pytest.mark.parametrize("distinct", [255, 256, 257, 70_000])
def test_texts_that_repeat_are_written_once(distinct: int) -> None:
    batch = words(*([str(number) for number in range(distinct)] * 4), *[None] * 4)
    coded, plain = (bundled(Bundling(2, fields), batch) for fields in (("word",), ()))
    assert sum(map(len, coded.column(BUNDLE).to_pylist())) < sum(map(len, plain.column(BUNDLE).to_pylist()))
    found = sorted(str(word) for rows in unbundled(coded, WORDS) for word in rows.column("word").to_pylist())
    assert found == sorted(map(str, batch.column("word").to_pylist()))


def test_packed_anchors_arrive_whole_however_far_apart_they_are() -> None:
    for numbers in ([0], [5 << 24 | 3, 4 << 24], [7, (1 << 39) - 1 << 24 | (1 << 24) - 1], [1 << 62, 0]):
        batch = anchored(numbers)
        found = [
            n for rows in unbundled(bundled(Bundling(2), batch), batch.schema) for n in rows[0].to_pylist()
        ]
        assert sorted(found) == sorted(numbers)


@pytest.mark.parametrize("keys", [[7], [7, -3], [0, 1, 2], []])
def test_paths_of_one_form_arrive_as_they_left(keys: list[int]) -> None:
    roots = [5, 4, 1_000_000, 4]
    rows = [(Delivery(root, tuple((key & 0xFFFFFFFF, root % 3) for key in keys)),) for root in roots]
    batch = pa.RecordBatch.from_arrays([hops_column(rows), pa.array(range(4))], names=[ANCHOR, "no"])
    load, schema = naming([1, 1, 0, 1], batch)
    arrived = [*unbundled(Bundling(2).bundle([load]), schema)]
    found = [values for rows in arrived for values in rows.select(batch.schema.names).to_pylist()]
    assert sorted(found, key=str) == sorted(batch.to_pylist(), key=str)
    assert all(rows.schema == schema for rows in arrived)


def test_paths_of_several_forms_arrive_as_they_left() -> None:
    one, other, none = (Delivery(3, ((1, 0),)),), (Delivery(3, ((2, 0),)), Delivery(4, ())), ()
    for rows in ([one, other], [one, none], [none], [one, (Delivery(3, ((2, 0),)),)]):
        columns = [hops_column(rows), pa.array(range(len(rows)))]
        batch = pa.RecordBatch.from_arrays(columns, names=[ANCHOR, "no"])
        found = [n for rows in unbundled(bundled(Bundling(1), batch), batch.schema) for n in rows.to_pylist()]
        assert found == batch.to_pylist()


@pytest.mark.parametrize("key", [9, (1 << 32) - 3])
def test_places_of_several_subscriptions_are_shuffled_as_each_of_them_is(key: int) -> None:
    """Bundles of one row have one number for a hop; the key in its upper half may make it negative."""
    rows = [(Delivery(0, ((key, 0),)),), (Delivery(1, ((7, 0),)),)]
    load, schema = naming([0, 1], pa.RecordBatch.from_arrays([hops_column(rows)], names=[ANCHOR]))
    arrived = [each.places or () for each in unbundled_with_places(Bundling(2).bundle([load]), schema)]
    assert [place for places in arrived for place in places] == rows
    for places in arrived:
        one_by_one = tasks_for(Kind.SHUFFLE, 1_000, None, list(places))
        assert tasks_for(Kind.SHUFFLE, 1_000, None, places).tolist() == one_by_one.tolist()


@pytest.mark.parametrize("times", [1, 500])
def test_structs_arrive_as_they_left(times: int) -> None:
    kind = pa.struct([("word", pa.string()), ("at", pa.struct([("line", pa.binary()), ("no", pa.int64())]))])
    values = [{"word": "hawk", "at": {"line": b"x", "no": 1}}, {"word": None, "at": None}] * times
    of_other = [None, {"word": "kite", "at": None}] * times
    batch = pa.RecordBatch.from_arrays([pa.array(values, kind), pa.array(of_other, kind)], names=["s0", "s1"])
    arrived = [*unbundled(bundled(Bundling(1), batch), batch.schema)]
    assert [row for rows in arrived for row in rows.to_pylist()] == batch.to_pylist()


def test_anchors_that_are_missing_arrive_missing() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([None, None], pa.int64())], names=[ANCHOR])
    [rows] = unbundled(bundled(Bundling(1), batch), batch.schema)
    assert rows == batch


def test_more_bytes_than_spark_takes_are_refused_by_name() -> None:
    with pytest.raises(
        TupleError, match=r"9 tuples that bolts emitted at once have \d\d\d bytes, .* 99 at most: emit"
    ):
        bundled(Bundling(1, bytes_max=99), words(*"hawk waits"[:9]))


def test_a_bundle_holds_its_own_rows_only() -> None:
    """A slice of a batch is written without the rows around it."""
    load, _ = naming([0] * 5_000 + [1])
    large, small = (len(each.as_py()) for each in Bundling(2).bundle([load]).column(BUNDLE))
    assert small < large / 10


def test_a_hidden_column_that_is_the_same_in_every_row_is_not_written() -> None:
    sizes = []
    for tasks in ([9] * 10_000, [9] * 9_999 + [7]):
        load, schema = naming(tasks, pa.RecordBatch.from_arrays([pa.nulls(10_000)], names=["no"]), to=3)
        bundles = Bundling(2).bundle([load])
        found = [row for rows in unbundled(bundles, schema) for row in rows.to_pylist()]
        assert found == [{"no": None, TO: 3, TASK: task} for task in tasks]
        sizes.append(len(bundles.column(BUNDLE)[0].as_py()))
    assert sizes[0] < 1_000 < 10_000 < sizes[1]


def test_a_user_may_name_columns_as_the_hidden_ones() -> None:
    """Rows of a DataFrame name no tasks, so its columns of these names are values like any other."""
    columns = [pa.array([-1, None, 1 << 40, 7]), pa.array(["a", "b", "c", None]), pa.array([5] * 4)]
    batch = pa.RecordBatch.from_arrays(columns, names=[TASK, TO, ANCHOR])
    [rows] = unbundled(bundled(Bundling(1), batch), batch.schema)
    assert rows.to_pylist() == batch.to_pylist()


@pytest.mark.parametrize("key", [7, (1 << 32) - 3])
def test_places_leave_without_a_column_and_arrive_as_one(key: int) -> None:
    places = Places(np.array([5, 4, 9])).children(np.array([2, 0, 0]), key, np.array([0, 1, 0]))
    load, schema = naming([1, 0, 1], places=places)
    bundles = Bundling(2).bundle([load, load])
    with_column, _ = naming([1, 0, 1], load.rows.append_column(ANCHOR, places.column()))
    assert by_task(bundles.slice(2), schema) == by_task(Bundling(2).bundle([with_column]), schema)
    assert by_task(bundles.slice(0, 2), schema) == by_task(bundles.slice(2), schema)
    [arrived] = unbundled(Bundling(1).bundle([load]), schema)
    assert places.fingerprint() == fingerprint_of(AnchorForm.HOPS, arrived.column(ANCHOR))


def test_columns_of_other_streams_arrive_as_nulls() -> None:
    load, schema = naming([0])
    schema = schema.append(pa.field("s1", pa.struct([("word", pa.string())])))
    [rows] = unbundled(Bundling(1).bundle([load]), schema)
    assert rows.to_pylist() == [{"no": 0, TO: 0, TASK: 0, "s1": None}]


@pytest.mark.parametrize("key", [7, (1 << 32) - 3])
def test_places_with_one_number_at_a_hop_are_those_with_an_array_of_it(key: int) -> None:
    every = np.arange(3)
    one, many = (Places(np.array([5, 4, 9])).children(every, key, n) for n in (2, np.full(3, 2)))
    parents = np.array([2, 0, 0, 1])
    one, many = (each.children(parents, 8, np.array([0, 0, 1, 0])) for each in (one, many))
    assert list(one) == list(many)
    assert one.column() == many.column()
    assert one.fingerprint() == many.fingerprint() == fingerprint_of(AnchorForm.HOPS, one.column())
    assert one.numbers().tolist() == many.numbers().tolist()
    assert list(one[1:3]) == list(many)[1:3]
    left = [naming([0, 1, 0, 1], places=each) for each in (one, many)]
    found = [by_task(Bundling(2).bundle([load]), schema) for load, schema in left]
    assert found[0] == found[1]


def test_places_arrive_apart_and_in_parts() -> None:
    rows = 2 * ROWS_MAX + 1
    places = Places(np.array([5, 4, 9])).children(np.arange(rows) % 3, 7, np.arange(rows))
    load, schema = naming([0] * rows, places=places)
    bundles = Bundling(1).bundle([load])
    arrived = [*unbundled_with_places(bundles, schema)]
    assert [each.rows.num_rows for each in arrived] == [ROWS_MAX, ROWS_MAX, 1]
    assert all(ANCHOR not in each.rows.schema.names for each in arrived)
    assert [place for each in arrived for place in each.places or ()] == list(places)
    with_column = [place for rows in unbundled(bundles, schema) for place in rows.column(ANCHOR).to_pylist()]
    assert with_column == places.column().to_pylist()
