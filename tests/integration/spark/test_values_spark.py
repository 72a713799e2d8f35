"""Values that bolts read and emit in a real Spark whose session is not in UTC: none is shifted or cut."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from copy import copy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sql

import spout
from acker.config.topics import load_topics
from acker.errors import UsageError
from spout.builder.topology import TopologyBuilder
from tests.support.bolts.value_bolts import (
    Forwards,
    HoldsTimes,
    Localizes,
    LocalizesColumns,
    PassesByHand,
    PassesByRow,
    PassesColumns,
    PassesKeyed,
    PassesWhole,
    Times,
    Whole,
    WholeColumns,
)
from tests.support.brokers import Broker
from tests.support.waiting import eventually
from tests.support.worlds.stream_worlds import (
    DEADLINE_S,
    VerdictWorld,
    config_of,
    read_held,
    serving,
)

pytestmark = [pytest.mark.slow, pytest.mark.by_turns]

ZONE = "America/New_York"
INPUTS = (
    "times",
    "shuffled",
    "held",
    "whole",
    "whole_columns",
    "whole_chain",
    "whole_shuffled",
    "topology",
    "keyed",
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

INSTANTS = [
    datetime(2026, 1, 1, 12, 0, 0, 5, tzinfo=UTC),
    datetime(2026, 11, 1, 5, 30, tzinfo=UTC), datetime(2026, 11, 1, 6, 30, tzinfo=UTC),  # 1:30 twice
    datetime(2026, 3, 8, 7, 30, tzinfo=UTC), datetime(2050, 7, 1, 4, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), datetime(1883, 1, 1, tzinfo=UTC),
    datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC),
]  # fmt: skip
"""Among them times of summer and winter, of an hour that is there twice, of before a standard time."""

LOCAL = [
    ("2026-01-01 12:00:00.000005", 0), ("2026-11-01 01:30:00", 0), ("2026-03-08 02:30:00", 0),
    ("2050-07-01 00:00:00", 0), ("1883-01-01 00:00:00", 0), ("0001-01-02 00:00:00", 0),
    ("9999-12-30 00:00:00", 0),
]  # fmt: skip
"""Times without a zone; among them one that the clock skips."""


def micros(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


@pytest.fixture(scope="module", autouse=True)
def new_york(spark: SparkSession) -> Iterator[None]:
    """Let the session be in New York, and the process where it is."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    yield
    spark.conf.set("spark.sql.session.timeZone", before or "UTC")


def timed(spark: SparkSession) -> DataFrame:
    """Return the instants in each place that a field has for a time."""
    rows = spark.createDataFrame([(micros(at),) for at in INSTANTS], "us bigint").coalesce(1)
    at = rows.select(sql.timestamp_micros("us").alias("at"))
    return at.selectExpr(
        "at", "array(at) AS times", "named_struct('at', at) AS named", "map('k', at) AS by",
        "CAST(at AS timestamp_ntz) AS ntz",
    )  # fmt: skip


EXACT = (
    "unix_micros(at) AS at", "unix_micros(times[0]) AS times", "unix_micros(named.at) AS named",
    "unix_micros(by['k']) AS by", "CAST(ntz AS string) AS ntz",
)  # fmt: skip
"""What times are, whatever the zone of the session and of this process."""

PASSING = [PassesByRow(), PassesByHand(), PassesColumns()]


@pytest.mark.parametrize("hooks", [0, 1])
@pytest.mark.parametrize("grouping", [None, spout.shuffle()])
@pytest.mark.parametrize("bolt", PASSING, ids=lambda bolt: type(bolt).__name__)
def test_a_time_that_is_read_and_emitted_is_the_same_instant_and_shows_local_time(
    spark: SparkSession, bolt: Any, grouping: Any, hooks: int
) -> None:
    """O904: behind another bolt too, and beside a hook; the clock shows what Spark shows."""
    rows = timed(spark)
    watching = [spout.TaskHook()] * hooks
    passed = rows.transform(spout.bolt(bolt, name="first", hooks=watching)).transform(
        spout.bolt(copy(bolt), name="second", grouping=grouping, hooks=watching)
    )
    expected = sorted(rows.selectExpr(*EXACT, "CAST(at AS string) AS wall").collect())
    assert sorted(passed.selectExpr(*EXACT, "wall").collect()) == expected


@pytest.mark.parametrize("bolt", [Localizes(), LocalizesColumns()], ids=lambda bolt: type(bolt).__name__)
def test_a_time_without_a_zone_is_local_time_of_the_session(spark: SparkSession, bolt: Any) -> None:
    """O905: as Spark's own literal; it was taken as UTC, five hours off."""
    texts = spark.createDataFrame(LOCAL, "text string, fold int").coalesce(1)
    found = texts.transform(spout.bolt(bolt)).selectExpr(*EXACT).collect()
    local = "CAST(text AS timestamp)"
    literal = texts.selectExpr(
        f"{local} AS at", f"array({local}) AS times", f"named_struct('at', {local}) AS named",
        f"map('k', {local}) AS by", "CAST(text AS timestamp_ntz) AS ntz",
    ).selectExpr(*EXACT)  # fmt: skip
    assert found == literal.collect()


def test_the_second_of_two_equal_times_is_told_by_its_fold(spark: SparkSession) -> None:
    """O905."""
    text = spark.createDataFrame([("2026-11-01 01:30:00", 1)], "text string, fold int")
    [row] = text.transform(spout.bolt(Localizes())).selectExpr("unix_micros(at) AS at").collect()
    assert row.at == micros(datetime(2026, 11, 1, 6, 30, tzinfo=UTC))


def test_a_session_whose_zone_python_does_not_know_is_refused_where_there_are_times(
    spark: SparkSession,
) -> None:
    """O906: by the bolt that needs it; Java's offsets and names of UTC are known."""
    texts = spark.createDataFrame(LOCAL[:1], "text string, fold int")
    for zone, hour in (("GMT+5", 7), ("Z", 12), ("-03:00", 15)):
        spark.conf.set("spark.sql.session.timeZone", zone)
        [row] = texts.transform(spout.bolt(Localizes())).selectExpr("unix_micros(at) AS at").collect()
        assert row.at == micros(datetime(2026, 1, 1, hour, 0, 0, 5, tzinfo=UTC)), zone
    spark.conf.set("spark.sql.session.timeZone", "PST")
    with pytest.raises(
        UsageError, match=r"bolt 'Localizes': .* has a timestamp, .*'PST' is not known .* region"
    ):
        texts.transform(spout.bolt(Localizes()))
    words = spark.createDataFrame([(b"hawk",)], "value binary")
    assert words.transform(spout.bolt(Whole())).count() == 1, "which has no times"
    spark.conf.set("spark.sql.session.timeZone", ZONE)


@pytest.mark.parametrize(("zone", "like"), [("", "udf"), ("UTC", "pandas"), ("Asia/Kathmandu", "pandas")])
def test_a_process_may_have_another_zone_than_its_session(tmp_path: Path, zone: str, like: str) -> None:
    """O908: the session's counts, as for Spark's literals and pandas; a UDF has the process's."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.bolts.zone_job", str(tmp_path), *([zone] if zone else [])],
        env={**os.environ, "TZ": ZONE}, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["bolt"] == said[like], said
    if not zone:
        assert said["udf"] == said["pandas"]


def test_a_schema_says_not_null_where_the_output_does(spark: SparkSession) -> None:
    words = spark.createDataFrame([(b"hawk",)], "value binary").transform(spout.bolt(Whole()))
    assert words.schema.simpleString() == (
        "struct<line:string,named:struct<n:int>,a `b:array<struct<c d:int>>>"
    )
    assert [field.nullable for field in words.schema.fields] == [False, False, True]
    assert words.collect() == [Row(line="hawk", named=Row(n=7), **{"a `b": [Row(**{"c d": 7})]})]


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("word strin", "'strin', which is none"), ("word", "has no type"),
        ("word string,", "a field is empty"),
        ("word varchar(5)", "declare string"), ("months interval year to month", "declare int"),
        ("word string collate UTF8_LCASE", "declare string, and a cast"),
        ("at time(3)", "Arrow cannot carry it"),
        ("a int, A int", "each once"), ("s struct<a: int, a: int>", "each of its fields once"),
        ("s struct<a: int, A: int>", "each once"), ("_TASK int", "none _task"),
        ("d decimal(39, 1)", "max precision"),
        ("place geometry(4326)", "declare binary"), ("", "each once"), (None, "a text in Spark's DDL"),
    ],
)  # fmt: skip
def test_an_output_that_cannot_be_emitted_is_refused_where_the_bolt_is_attached(
    spark: SparkSession, output: Any, says: str
) -> None:
    """O1102: in the first batch, or by an error of py4j; each form of attaching."""

    class Odd(spout.BasicBolt):
        def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
            """Emit nothing."""

    class OddByKey(spout.KeyedBolt):
        def execute(self, key: Any, held: Any, collector: spout.KeyedCollector) -> None:
            """Hold."""

    basic, by_key = Odd(), OddByKey()
    basic.output = by_key.output = output  # type: ignore[misc]  # drawn
    rows = spark.createDataFrame([(b"hawk",)], "value binary")
    held = rows.transform(spout.hold(None))
    for attach in (
        lambda: rows.transform(spout.bolt(basic, name="odd")),
        lambda: held.transform(spout.keyed(by_key, by="value", name="odd")),
        lambda: rows.withColumn(
            "_windhover", sql.lit(None).cast("array<struct<source:bigint,position:bigint,edge:bigint>>")
        ).transform(spout.ack_anchors(basic, name="odd")),
    ):
        with pytest.raises(UsageError, match="bolt 'odd': output = ") as refused:
            attach()
        assert says in str(refused.value)


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VerdictWorld]:
    """Make the topics of all tests here, and run an acker for them."""
    folder = tmp_path_factory.mktemp("values")
    config = config_of(folder, broker, INPUTS)
    made = VerdictWorld(load_topics(config, {}), spark, folder)
    with serving(config, "acker"):
        yield made
    made.close()


HALF = "is no whole number"


def shown(rows: list[tuple[Any, ...]]) -> dict[str, tuple[int, bool]]:
    """Return of each line the time, µs, and whether the clock on the wall showed local time in New York."""
    local = {line: datetime.fromisoformat(wall) for line, _, wall, *_ in rows}
    return {
        str(line): (
            at,
            timedelta(hours=-5)
            <= local[line] - (EPOCH + timedelta(microseconds=at)).replace(tzinfo=None)
            <= timedelta(hours=-4),
        )
        for line, at, *_ in rows
    }


def in_micros(frame: DataFrame) -> DataFrame:
    return frame.withColumn("at", sql.unix_micros("at"))


@pytest.mark.parametrize("name", ["times", "shuffled"])
def test_the_time_of_a_record_is_local_and_the_same_instant_behind_a_shuffle(
    world: VerdictWorld, name: str
) -> None:
    """O904, O806: and a value that is no whole number fails its record alone."""
    world.produce(name, "hawk", "half", "kite", "half too")
    began = micros(datetime.now(UTC))
    frame = world.read(name).transform(spout.bolt(Times()))
    if name == "shuffled":
        frame = frame.transform(spout.bolt(Forwards(), grouping=spout.fields("line", partitions=2)))
    with world.running(name, in_micros(frame)) as query:
        found = world.wait_for(name, 4, query)
    assert found.acked == {0, 2}
    assert found.failed.keys() == {1, 3}
    assert all(operator == "Times" and HALF in message for operator, _, message in found.failed.values())
    times = shown(world.rows[name])
    assert times.keys() == {"hawk", "kite"}
    assert all(is_local and abs(at - began) < 600_000_000 for at, is_local in times.values())


def test_a_keyed_bolt_passes_times_on_as_they_are(world: VerdictWorld) -> None:
    """O907: it read a time without a zone, and what it emitted counted as UTC; a NaN became a null."""
    world.produce("held", "a", "b", "half", "c", "null", "d")
    when = "CASE WHEN CAST(value AS string) IN {} THEN {} WHEN CAST(value AS string) IN {} THEN {} ELSE 0 END"
    second, first = micros(INSTANTS[2]), micros(INSTANTS[1])
    at = when.format("('a', 'b')", second, "('half', 'c')", first)
    lines = read_held(world, "held").selectExpr(
        "CAST(value AS string) AS line", f"timestamp_micros({at}) AS at", "_windhover"
    )
    rows = lines.transform(spout.hold(None)).transform(spout.keyed(HoldsTimes(), by="at"))
    kept: list[tuple[Any, ...]] = []

    def write(batch: DataFrame, _batch_id: int) -> None:
        exact = batch.selectExpr(
            "line", "unix_micros(at) AS at", "wall", "half", "unix_micros(key) AS key", "ratio"
        )
        kept.extend(tuple(row) for row in exact.collect())

    query = (
        rows.writeStream.foreachBatch(spout.sink(write))
        .option("checkpointLocation", str(world.folder / "held-cp"))
        .start()
    )
    try:
        eventually(lambda: query.exception() or len(world.verdicts("held")) == 6, DEADLINE_S)
        if error := query.exception():
            raise error
    finally:
        query.stop()
    by_line = {line: row for line, *row in kept}
    assert {line: (row[0], row[3]) for line, row in by_line.items()} == {
        "a": (second, second),
        "b": (second, second),
    }
    assert by_line["a"][1] == "2026-11-01 01:30:00", "the second one, of two"
    assert all(row[4] != row[4] for row in by_line.values()), "NaN is NaN"
    verdicts = world.verdicts("held")
    assert sorted(verdicts.values()).count("ACKED") == 2
    assert sum("HoldsTimes: TupleError" in why for why in verdicts.values()) == 4


GOOD = {
    "line": "'a'", "day": "DATE'1600-02-29'", "local": "TIMESTAMP_NTZ'1900-01-01 00:00:00.000001'",
    "at": "TIMESTAMP'2026-11-01 01:30:00'", "ratios": "array(1D, NULL, 2D)", "lines": "array('a', NULL)",
    "by": "map('a', NULL, 'b', DATE'9999-12-31')", "named": "named_struct('line', 'a')",
}  # fmt: skip
NO_TEXT = "CAST(X'FF' AS string)"
ODD = {
    "line": NO_TEXT, "day": "date_add(DATE'9999-12-31', 1)",
    "local": "TIMESTAMP_NTZ'9999-12-31 00:00:00' + INTERVAL '1' DAY", "at": "timestamp_micros(1L << 61)",
    "lines": f"array('a', {NO_TEXT})", "by": f"map({NO_TEXT}, NULL)",
    "named": f"named_struct('line', {NO_TEXT})",
}  # fmt: skip
"""Values that Spark has, and that Python or pandas has no form of."""

FAR_KEYS = {"at": "TIMESTAMP'0001-01-01 00:00:00'", "local": "TIMESTAMP_NTZ'1600-01-01 00:00:00'"}
"""Times that Python has, and that pandas has not where they are a key."""

ROOTED = "named_struct('source', 65536L, 'position', id, 'edge', id) AS _windhover"


@pytest.mark.parametrize("key", [["id"], ["line", "day", "local", "at"], ["lines", "named"]])
def test_a_value_that_python_has_no_form_of_fails_its_tuple_before_a_keyed_bolt_alone(
    spark: SparkSession, tmp_path: Path, key: list[str]
) -> None:
    """O810: such a value, or such a key, ended the query at each start; a null among numbers became NaN."""
    far = FAR_KEYS if "at" in key else {}
    odds = [GOOD, *({**GOOD, name: odd} for name, odd in [*ODD.items(), *far.items()])]
    spark.range(len(odds) + 1).coalesce(1).write.parquet(str(tmp_path / "in"))
    columns = []
    for name, good in GOOD.items():
        whens = " ".join(f"WHEN {number} THEN {values[name]}" for number, values in enumerate(odds))
        columns.append(f"CASE id {whens} ELSE {good} END AS {name}")
    rows = spark.readStream.schema("id bigint").parquet(str(tmp_path / "in"))
    held = rows.selectExpr("id", ROOTED, *columns)
    texts = [f"CAST({name} AS string) AS {name}" for name in GOOD]
    passed: list[Row] = []

    def write(batch: DataFrame, _batch_id: int) -> None:
        passed.extend(batch.selectExpr("id", *texts).collect())

    query = (
        held.transform(spout.keyed(PassesKeyed(), by=key))
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(DEADLINE_S)
    assert sorted(row.id for row in passed) == [0, len(odds)]
    literals = [f"CAST({good} AS string)" for good in GOOD.values()]
    assert {row[1:] for row in passed} == {tuple(spark.range(1).selectExpr(*literals).collect()[0])}


def test_a_map_whose_keys_python_cannot_hold_is_refused_where_the_keyed_bolt_is_attached(
    spark: SparkSession,
) -> None:
    """O810: the query ended with the first such map."""
    rows = spark.range(1).selectExpr("id", "map(named_struct('n', 1), 1) AS by", ROOTED)
    with pytest.raises(UsageError, match=r"a map has keys of the type struct<n:int>"):
        rows.transform(spout.keyed(PassesKeyed(), by="id"))


@pytest.mark.parametrize("name", ["whole", "whole_columns", "whole_chain", "whole_shuffled"])
def test_a_null_in_a_field_that_is_not_null_fails_its_record(world: VerdictWorld, name: str) -> None:
    """O1101: the query ended at each batch, by a mismatch of schemas; also where another bolt follows."""
    world.produce(name, "hawk", "null", "in", "kite")
    bolt = WholeColumns() if name == "whole_columns" else Whole()
    frame = world.read(name).transform(spout.bolt(bolt, name="whole"))
    if name in ("whole_chain", "whole_shuffled"):
        grouping = spout.shuffle(2) if name == "whole_shuffled" else None
        frame = frame.transform(spout.bolt(PassesWhole(), grouping=grouping))
    assert [field.nullable for field in frame.schema.fields if field.name != "_windhover"][:2] == [
        False,
        False,
    ]
    with world.running(name, frame) as query:
        found = world.wait_for(name, 4, query)
    assert found.acked == {0, 3}
    assert {line: operator for line, (operator, *_) in found.failed.items()} == {1: "whole", 2: "whole"}
    assert "emitted a null as 'line', which is NOT NULL" in found.failed[1][2]
    assert "emitted a null as 'n', which is NOT NULL" in found.failed[2][2]
    assert sorted(row[0] for row in world.rows[name]) == ["hawk", "kite"]


@pytest.mark.parametrize("name", ["topology", "keyed"])
def test_a_topology_keeps_times_and_refuses_nulls_as_well(world: VerdictWorld, name: str) -> None:
    """O904, O907, O1101: across its shuffles, and through its keyed bolt."""
    lines = ["hawk", "null", "half", "kite"] if name == "topology" else ["hawk", "hawk", "null", "null"]
    world.produce(name, *lines)
    began = micros(datetime.now(UTC))
    builder = TopologyBuilder()
    builder.set_spout("lines", world.topics, name, startingOffsets="earliest", minPartitions=1)
    builder.set_bolt("times", Times()).shuffle_grouping("lines")
    builder.set_bolt("forwards", Forwards(), 2).fields_grouping("times", "line")
    last = "forwards"
    if name == "keyed":
        builder.set_bolt("holds", HoldsTimes()).fields_grouping("forwards", "line")
        last = "holds"
    kept: list[tuple[Any, ...]] = []

    def write(batch: DataFrame, _batch_id: int) -> None:
        kept.extend(tuple(row) for row in in_micros(batch).collect())

    running = builder.submit(
        world.spark, sink={last: write}, checkpoint=world.folder / f"{name}-checkpoint",
    )  # fmt: skip
    try:
        eventually(lambda: len(world.verdicts(name)) == 4, DEADLINE_S, told=running.status)
    finally:
        running.kill()
    times = shown(kept)
    assert all(is_local and abs(at - began) < 600_000_000 for at, is_local in times.values())
    lost = [why for why in world.verdicts(name).values() if why != "ACKED"]
    if name == "topology":
        assert (times.keys(), len(lost)) == ({"hawk", "null", "kite"}, 1)
        assert lost[0].startswith("times: ")
    else:
        assert (times.keys(), len(lost)) == ({"hawk"}, 2)
        assert all(why.startswith("holds: TupleError") for why in lost)
