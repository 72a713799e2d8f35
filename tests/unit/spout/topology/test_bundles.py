"""Bundles: every row arrives, once, at the task that its values or its place name, and at no other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from acker.errors import TupleError
from spout.topology.bundles import BUNDLES, ROWS_MAX, Bundling, unbundled
from spout.tuples.anchors import hops_column
from spout.tuples.columns import ANCHOR, BUNDLE, TASK
from spout.tuples.tuple import Delivery

WORDS = pa.schema([("word", pa.string()), ("size", pa.int64())])


def words(*named: str | None) -> pa.RecordBatch:
    columns = [pa.array(named, pa.string()), pa.array(np.arange(len(named)))]
    return pa.RecordBatch.from_arrays(columns, schema=WORDS)


def anchored(numbers: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], names=[ANCHOR])


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
    found = by_task(bundling.bundle(words(*names)), WORDS)
    rows = [row for task in found.values() for row in task]
    assert sorted(rows, key=lambda row: str(row["size"])) == words(*names).to_pylist()
    home = {row["word"]: task for task, rows in found.items() for row in rows}
    for name in dict.fromkeys(names):
        [(task, rows)] = by_task(bundling.bundle(words(name)), WORDS).items()
        assert (task, [row["word"] for row in rows]) == (home[name], [name])


def test_rows_of_one_task_keep_their_order() -> None:
    [rows] = by_task(Bundling(1, ("word",)).bundle(words(*"hawk waits")), WORDS).values()
    assert [row["size"] for row in rows] == list(range(10))


def test_a_tuple_that_runs_again_goes_the_same_way_and_all_tasks_have_their_share() -> None:
    """By its place: beside other rows, behind others, in another order."""
    numbers = [root << 24 for root in range(1_000)]
    bundling, schema = Bundling(4), anchored([]).schema
    found = by_task(bundling.bundle(anchored(numbers)), schema)
    home = {row[ANCHOR]: task for task, rows in found.items() for row in rows}
    assert all(150 < len(rows) < 350 for rows in found.values())
    again = by_task(bundling.bundle(anchored(numbers[::-2]), first=77), schema)
    assert {row[ANCHOR]: task for task, rows in again.items() for row in rows}.items() <= home.items()


def test_a_row_of_several_places_goes_the_same_way_again() -> None:
    rows = [(Delivery(root, ((1, 0),)), Delivery(root + 1, ())) for root in range(100)]
    batch = pa.RecordBatch.from_arrays([hops_column(rows)], names=[ANCHOR])
    found = by_task(Bundling(2).bundle(batch), batch.schema)
    again = by_task(Bundling(2).bundle(batch.take(pa.array(range(99, -1, -1)))), batch.schema)
    assert sorted(found) == [0, 1]
    assert {task: rows[::-1] for task, rows in again.items()} == found


def test_rows_without_a_place_are_dealt_out_by_turns_across_batches() -> None:
    bundling, sizes = Bundling(2), {0: 0, 1: 0}
    for first in range(5):
        for task, rows in by_task(bundling.bundle(words("hawk"), first), WORDS).items():
            sizes[task] += len(rows)
    assert sizes == {0: 3, 1: 2}


def test_rows_that_name_their_task_go_there() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([5, 0, 2, 5], pa.int32())], names=[TASK])
    found = by_task(Bundling(3, named=True).bundle(batch), batch.schema)
    assert {task: [row[TASK] for row in rows] for task, rows in found.items()} == {0: [0], 2: [5, 2, 5]}


@pytest.mark.parametrize("rows", [0, 1, ROWS_MAX, ROWS_MAX + 1])
def test_a_bolt_receives_no_more_rows_at_once_than_spark_would_hand_it(rows: int) -> None:
    bundles = Bundling(1).bundle(anchored(list(range(rows))))
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
    arrived = [*unbundled(Bundling(2, ("it",)).bundle(batch), batch.schema)]
    assert all(rows.schema == batch.schema for rows in arrived)
    found = [value for rows in arrived for value in rows.column("it").to_pylist()]
    assert sorted(found, key=repr) == sorted(batch.column("it").to_pylist(), key=repr)


@pytest.mark.parametrize("distinct", [255, 256, 257, 70_000])
def test_texts_that_repeat_are_written_once(distinct: int) -> None:
    batch = words(*([str(number) for number in range(distinct)] * 4), *[None] * 4)
    coded, plain = (Bundling(2, fields).bundle(batch) for fields in (("word",), ()))
    assert sum(map(len, coded.column(BUNDLE).to_pylist())) < sum(map(len, plain.column(BUNDLE).to_pylist()))
    found = sorted(str(word) for rows in unbundled(coded, WORDS) for word in rows.column("word").to_pylist())
    assert found == sorted(map(str, batch.column("word").to_pylist()))


def test_packed_anchors_arrive_whole_however_far_apart_they_are() -> None:
    for numbers in ([0], [5 << 24 | 3, 4 << 24], [7, (1 << 39) - 1 << 24 | (1 << 24) - 1], [1 << 62, 0]):
        batch = anchored(numbers)
        found = [
            n for rows in unbundled(Bundling(2).bundle(batch), batch.schema) for n in rows[0].to_pylist()
        ]
        assert sorted(found) == sorted(numbers)


@pytest.mark.parametrize("keys", [[7], [7, -3], [0, 1, 2], []])
def test_paths_of_one_form_arrive_as_they_left(keys: list[int]) -> None:
    roots = [5, 4, 1_000_000, 4]
    rows = [(Delivery(root, tuple((key & 0xFFFFFFFF, root % 3) for key in keys)),) for root in roots]
    batch = pa.RecordBatch.from_arrays(
        [hops_column(rows), pa.array([1, 1, 0, 1], pa.int32())], names=[ANCHOR, TASK]
    )
    arrived = [*unbundled(Bundling(2, named=True).bundle(batch), batch.schema)]
    found = [values for rows in arrived for values in rows.to_pylist()]
    assert sorted(found, key=str) == sorted(batch.to_pylist(), key=str)
    assert all(rows.schema == batch.schema for rows in arrived)


def test_paths_of_several_forms_arrive_as_they_left() -> None:
    one, other, none = (Delivery(3, ((1, 0),)),), (Delivery(3, ((2, 0),)), Delivery(4, ())), ()
    for rows in ([one, other], [one, none], [none], [one, (Delivery(3, ((2, 0),)),)]):
        batch = pa.RecordBatch.from_arrays([hops_column(rows)], names=[ANCHOR])
        found = [n for rows in unbundled(Bundling(1).bundle(batch), batch.schema) for n in rows.to_pylist()]
        assert found == batch.to_pylist()


@pytest.mark.parametrize("times", [1, 500])
def test_structs_arrive_as_they_left(times: int) -> None:
    kind = pa.struct([("word", pa.string()), ("at", pa.struct([("line", pa.binary()), ("no", pa.int64())]))])
    values = [{"word": "hawk", "at": {"line": b"x", "no": 1}}, {"word": None, "at": None}] * times
    of_other = [None, {"word": "kite", "at": None}] * times
    batch = pa.RecordBatch.from_arrays([pa.array(values, kind), pa.array(of_other, kind)], names=["s0", "s1"])
    arrived = [*unbundled(Bundling(1).bundle(batch), batch.schema)]
    assert [row for rows in arrived for row in rows.to_pylist()] == batch.to_pylist()


def test_anchors_that_are_missing_arrive_missing() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([None, None], pa.int64())], names=[ANCHOR])
    [rows] = unbundled(Bundling(1).bundle(batch), batch.schema)
    assert rows == batch


def test_more_bytes_than_spark_takes_are_refused_by_name() -> None:
    with pytest.raises(
        TupleError, match=r"9 tuples that bolts emitted at once have \d\d\d bytes, .* 99 at most: emit"
    ):
        Bundling(1, bytes_max=99).bundle(words(*"hawk waits"[:9]))


def test_a_bundle_holds_its_own_rows_only() -> None:
    """A slice of a batch is written without the rows around it."""
    batch = pa.RecordBatch.from_arrays([pa.array([0] * 5_000 + [1], pa.int32())], names=[TASK])
    large, small = (len(each.as_py()) for each in Bundling(2, named=True).bundle(batch).column(BUNDLE))
    assert small < large / 10
