"""Values of every type in a real Spark whose session is not in UTC: each form of a bolt passes them on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import spout
from acker.errors import UsageError
from spout.held.keyed_values import type_around_array
from spout.spark.versions import CARRIES_NESTED_ARRAYS
from spout.tuples.casts import in_zone
from tests.support.bolts import type_bolts as bolts

pytestmark = [pytest.mark.slow, pytest.mark.by_turns]

DEADLINE_S = 240.0
ROOTED = "named_struct('source', 65536L, 'position', id, 'edge', id) AS _windhover"
WITHOUT_CODEGEN = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For so many columns it takes minutes."""


@pytest.fixture(scope="module", autouse=True)
def settings(spark: SparkSession) -> Iterator[None]:
    """Let the session be in New York."""
    wanted = {**WITHOUT_CODEGEN, "spark.sql.session.timeZone": "America/New_York"}
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    yield
    for name, value_before in before.items():
        if value_before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value_before)


@pytest.fixture(scope="module")
def emitted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """Rows of values that a bolt has emitted, in a file."""
    file = str(tmp_path_factory.mktemp("types") / "rows")
    numbers = spark.range(bolts.ROWS).coalesce(1).selectExpr("CAST(id AS string) AS value")
    numbers.transform(spout.bolt(bolts.EmitsTypes())).write.parquet(file)
    return spark.read.parquet(file)


def wrong(
    rows: DataFrame, copies: int = 1, names: Sequence[str] = tuple(bolts.NAMES)
) -> list[tuple[str, str, str]]:
    """Return what is not what was emitted: its type, what it was, and what it is."""
    positions = [0, *(1 + list(bolts.NAMES).index(name) for name in names)]
    table = rows.select("id", *names).toArrow()
    batches: list[pa.RecordBatch] = table.combine_chunks().to_batches()
    passed = sorted(
        (tuple(row.values()) for batch in batches for row in in_zone(batch, "UTC").to_pylist()),
        key=lambda row: int(row[0]),
    )
    assert [row[0] for row in passed] == [number for number in range(bolts.ROWS) for _ in range(copies)]
    return [
        (kind, bolts.shown(value), bolts.shown(now))
        for row in passed
        for kind, value, now in zip(
            ("id", *(bolts.NAMES[name] for name in names)),
            [bolts.row(row[0])[position] for position in positions],
            row,
            strict=True,
        )
        if bolts.shown(value) != bolts.shown(now)
    ]


def test_an_emitted_value_is_the_same_in_spark(emitted: DataFrame) -> None:
    """O811."""
    assert wrong(emitted) == []


@pytest.mark.parametrize(
    "forms",
    [
        [bolts.PassesTypes, bolts.PassesTypesByHand],
        [bolts.PassesTypesAsColumns, bolts.PassesTypesAsNewColumns],
    ],
    ids=["rows", "columns"],
)
def test_a_value_that_bolts_pass_on_is_the_same(emitted: DataFrame, forms: Sequence[type[Any]]) -> None:
    """O811: beside the bolt before it, and behind a shuffle."""
    rows = emitted
    for number, form in enumerate(forms):
        rows = rows.transform(spout.bolt(form(), name=f"beside{number}"))
        rows = rows.transform(spout.bolt(form(), name=f"behind{number}", grouping=spout.shuffle(2)))
    assert wrong(rows) == []


@pytest.mark.parametrize("by", [["id"], ["id", "array<array<double>>", "array<struct<f:int>>"]])
def test_a_value_that_a_keyed_bolt_holds_and_passes_on_is_the_same(
    spark: SparkSession, emitted: DataFrame, tmp_path: Path, by: list[str]
) -> None:
    """O811: an array of arrays with dictionaries within ended the query, as [[1.0], [1.0, 2.0]] does."""
    source, written = str(tmp_path / "in"), str(tmp_path / "out")
    names = carried(emitted)
    kinds = {kind: name for name, kind in bolts.NAMES.items()}
    key = [kinds.get(name, name) for name in by]
    carried_rows = emitted.select("id", *names)
    for _ in range(2):
        carried_rows.coalesce(1).write.mode("append").parquet(source)
    schema = carried_rows.schema
    rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(source)
    key = [name for name in key if name in ("id", *names)]
    keyed = spout.keyed(bolts.PassesTypesByKey(names), by=key)

    def write(batch: DataFrame, _batch_id: int) -> None:
        batch.select("id", *names).write.mode("append").parquet(written)

    query = (
        rows.selectExpr("*", ROOTED)
        .transform(keyed)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(DEADLINE_S)
    assert wrong(spark.read.schema(schema).parquet(written), copies=2, names=names) == []


def carried(emitted: DataFrame) -> list[str]:
    """Return the columns whose types this version of Spark carries to a keyed bolt."""
    if CARRIES_NESTED_ARRAYS:
        return list(bolts.NAMES)
    types = {field.name: field.dataType for field in emitted.schema.fields}
    return [name for name in bolts.NAMES if type_around_array(types[name]) is None]


def test_a_type_that_spark_cannot_carry_is_refused_by_its_name_where_the_bolt_is_attached(
    emitted: DataFrame,
) -> None:
    """O811: before 4.2 its worker reads beside what it has got where an inner array is empty."""
    rows = emitted.selectExpr("*", ROOTED)
    refusals: dict[str, str] = {}
    for name in bolts.NAMES:
        try:
            rows.select("id", name, "_windhover").transform(
                spout.keyed(bolts.PassesTypesByKey([name]), by="id")
            )
        except UsageError as error:
            refusals[name] = str(error)
    assert refusals.keys() == set(bolts.NAMES) - set(carried(emitted))
    assert all("cannot carry the type" in text for text in refusals.values())
    assert all("to_json" in text for text in refusals.values())


def test_a_key_that_pandas_may_have_no_form_of_is_refused_where_the_bolt_is_attached(
    emitted: DataFrame,
) -> None:
    """O811: it ended the query at the first key whose arrays differ in length."""
    kinds = {kind: name for name, kind in bolts.NAMES.items()}
    name = kinds["array<array<struct<f:int>>>"]
    refusal = r"a key has values of the type .* group by to_json"
    if not CARRIES_NESTED_ARRAYS:
        refusal = r"cannot carry the type .* to_json"
    with pytest.raises(UsageError, match=refusal):
        emitted.selectExpr("*", ROOTED).transform(spout.keyed(bolts.PassesTypesByKey(), by=name))
