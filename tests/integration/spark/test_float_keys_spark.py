"""Keys of floats in a real Spark: 0.0 and -0.0 are one, all NaN are one, and a null is neither."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import spout
from tests.support.bolts.keyed_bolts import ShowsKey

pytestmark = pytest.mark.slow

DEADLINE_S = 240.0
ROOTED = "named_struct('source', 65536L, 'position', id, 'edge', id) AS _windhover"
QUIET_NAN, NEGATIVE_NAN, OTHER_NAN = (
    float(np.array([bits], np.uint64).view(np.float64)[0])
    for bits in (0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001)
)
"""The second one is what inf - inf is on most machines."""

FORMS: Final[dict[str, list[float | None]]] = {
    "None": [None],
    "nan": [QUIET_NAN, NEGATIVE_NAN, OTHER_NAN],
    "0.0": [0.0, -0.0],
    "1.5": [1.5],
}
"""By how a key is written, the forms that it may have."""

Wrap = Callable[[Any], Any]

KINDS: Final[dict[str, tuple[str, pa.DataType, Wrap, str]]] = {
    "double": ("double", pa.float64(), lambda number: number, "{}"),
    "float": ("float", pa.float32(), lambda number: number, "{}"),
    "array": ("array<double>", pa.list_(pa.float64()), lambda number: [number], "[{}]"),
    "pair": ("array<float>", pa.list_(pa.float32()), lambda number: [2.0, number], "[2.0, {}]"),
    "struct": (
        "struct<f:double>", pa.struct({"f": pa.float64()}), lambda number: {"f": number}, "{{f: {}}}",
    ),
    "nested": (
        "struct<a:array<double>,n:bigint>",
        pa.struct({"a": pa.list_(pa.float64()), "n": pa.int64()}),
        lambda number: {"a": [number], "n": 7},
        "{{a: [{}], n: 7}}",
    ),
    "structs": (
        "array<struct<f:double>>", pa.list_(pa.struct({"f": pa.float64()})),
        lambda number: [{"f": number}], "[{{f: {}}}]",
    ),
    "tables": (
        "array<array<double>>", pa.list_(pa.list_(pa.float64())), lambda number: [[number]], "[[{}]]",
    ),
}  # fmt: skip
"""Kinds of keys: as Spark and as Arrow call them, how a number becomes one, and how that is written."""


def write_files(folder: Path, kind: pa.DataType, wrap: Wrap) -> dict[str, list[int]]:
    """Write each form of each key to three files; return the numbers of the rows of each key."""
    ids_by_key: dict[str, list[int]] = {}
    folder.mkdir()
    number = 0
    for file in range(3):
        ids: list[int] = []
        values: list[Any] = []
        for shown, forms in FORMS.items():
            # another form comes first in each file, since Spark takes the first one for the key
            for form in [*forms[file % len(forms) :], *forms[: file % len(forms)]]:
                ids_by_key.setdefault(shown, []).append(number)
                ids.append(number)
                values.append(wrap(form))
                number += 1
        table = pa.table({"id": pa.array(ids, pa.int64()), "k": pa.array(values, kind)})
        pq.write_table(table, folder / f"{file}.parquet")
    return ids_by_key


def longest(rows: Sequence[tuple[str, list[int]]]) -> dict[str, list[list[int]]]:
    """Return the largest sets of rows that were held together, by the key that the bolt saw last."""
    held: list[tuple[str, set[int]]] = [(shown, set(ids)) for shown, ids in rows]
    last = [(shown, ids) for shown, ids in held if not any(ids < others for _, others in held)]
    found: dict[str, list[list[int]]] = {}
    for shown, ids in last:
        found.setdefault(shown, []).append(sorted(ids))
    return found


def test_keys_of_floats_are_one_where_spark_says_so(spark: SparkSession, tmp_path: Path) -> None:
    """O812: over micro-batches too, whose state goes by the bytes of a key."""
    wanted: dict[str, dict[str, list[list[int]]]] = {}
    rows_by_kind: dict[str, list[tuple[str, list[int]]]] = {name: [] for name in KINDS}
    queries = []

    def writer_of(name: str) -> Callable[[DataFrame, int], None]:
        def write(batch: DataFrame, _batch_id: int) -> None:
            rows_by_kind[name] += [(row.shown, row.ids) for row in batch.collect()]

        return write

    for name, (kind, arrow, wrap, form) in KINDS.items():
        ids_by_key = write_files(tmp_path / name, arrow, wrap)
        wanted[name] = {form.format(shown): [ids] for shown, ids in ids_by_key.items()}
        stream = spark.readStream.schema(f"id bigint, k {kind}").option("maxFilesPerTrigger", 1)
        rows = stream.parquet(str(tmp_path / name)).selectExpr("*", ROOTED)
        queries.append(
            rows.transform(spout.keyed(ShowsKey(), by="k"))
            .writeStream.foreachBatch(writer_of(name))
            .option("checkpointLocation", str(tmp_path / f"{name}-checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
    for query in queries:
        assert query.awaitTermination(DEADLINE_S)
    assert {name: longest(rows) for name, rows in rows_by_kind.items()} == wanted
