"""Records of odd times, and such as were dead letters before, in a real Spark on a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import spout
from acker.config.topics import Topics, load_topics
from acker.kafka.port import TopicPartition
from acker.provisioning.provision import create_topics
from acker.units import TIME_MS_MAX, TIME_MS_MIN
from spout.runtime.child import Child
from spout.tuples.messages import COLUMN_MS_MAX
from tests.support.bolts.odd_bolts import ATTEMPTS, Columns, Rows
from tests.support.brokers import Broker
from tests.support.odd_times import NANOSECONDS, ODD_TIMES_MS, YEAR_2100_MS
from tests.support.raw_records import RawRecord, encode_batch, produce
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

DEADLINE_S = 120.0
TEXT = """
kafka: {{bootstrap.servers: "{bootstrap}"}}
acker: {{partitions: 2, topic_prefix: "{prefix}"}}
inputs:
  odd:
    id: 1
    topic: "{prefix}odd"
    group: "{prefix}g"
    partitions: 1
    timeout: 5m
    retry: {{initial: 100ms, attempts: 9}}
"""
OWN = [("trace", b"1"), ("windhover.note", b"of the user"), ("windhover.attempt", b"7"),
       ("__dlq.errors.group", None)]  # fmt: skip


@pytest.fixture
def config(broker: Broker, prefix: str, tmp_path: Path) -> Path:
    """A topics.yaml with an input that takes records of all times, its topics created."""
    path = tmp_path / "topics.yaml"
    path.write_text(TEXT.format(bootstrap=broker.bootstrap, prefix=prefix), encoding="utf-8")
    settings = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(f"{prefix}odd", 1, 1, config=settings)]).values():
        future.result()
    create_topics(load_topics(path, {}))
    return path


@pytest.fixture
def topics(config: Path) -> Topics:
    """What the file says."""
    return load_topics(config, {})


@pytest.fixture
def services(config: Path) -> Iterator[None]:
    """An acker and a replay worker."""
    with Child("acker", config) as acker, Child("replay", config) as worker:
        acker.wait_ready()
        worker.wait_ready()
        yield


def write(topics: Topics, times_ms: dict[bytes, int]) -> None:
    """Write records of these times by no client of ours."""
    headers = [(name.encode(), value) for name, value in OWN]
    place = TopicPartition(topics.input("odd").topic, 0)
    for value, time_ms in times_ms.items():
        batch = encode_batch([RawRecord(value, b"k", headers, time_ms)])
        produce(topics.kafka["bootstrap.servers"], place, batch)


def seen_of(spark: SparkSession, topics: Topics, bolt: spout.AnyBolt, path: Path, count: int) -> list[Any]:
    """Run a query with one bolt until all records were acked, and return what it noted."""
    rows: list[Any] = []

    def collect(batch: DataFrame, _batch_id: int) -> None:
        rows.extend(row.value for row in batch.collect())

    frame = spout.read_stream(spark, topics, "odd", startingOffsets="earliest")
    writer = frame.transform(spout.bolt(bolt)).writeStream.foreachBatch(spout.sink(collect))
    query = writer.option("checkpointLocation", str(path.parent / "checkpoint")).start()
    try:
        eventually(lambda: len(rows) >= count or not query.isActive, DEADLINE_S, told=query.exception)
    finally:
        query.stop()
    assert len(rows) == count, query.exception()
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def python_time(topics: Topics, offset: int, time_ms: int) -> str:
    """Return a time as a tuple has it, or the error that names the record."""
    if TIME_MS_MIN <= time_ms <= TIME_MS_MAX:
        return (datetime(1970, 1, 1, tzinfo=UTC) + np.timedelta64(time_ms, "ms").item()).isoformat()
    return f"the timestamp of {topics.input('odd').topic}/0@{offset} is {time_ms} ms after 1970"


@pytest.mark.usefixtures("services")
def test_a_bolt_sees_the_same_time_and_headers_at_each_attempt(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """O1001, O1003, O1301: in a tuple; an error names the copy where its time cannot be read."""
    times = {b"%d" % number: time_ms for number, time_ms in enumerate(ODD_TIMES_MS)}
    write(topics, times)
    path = tmp_path / "seen"
    seen = seen_of(spark, topics, Rows(str(path)), path, len(times))
    headers = [list(pair) for pair in ((name, value and value.decode()) for name, value in OWN)]
    for number, time_ms in enumerate(ODD_TIMES_MS):
        attempts = sorted(row[1:] for row in seen if row[0] == str(number))
        assert [row[0] for row in attempts] == [1, 2, 3]
        assert [row[2:] for row in attempts] == [[0, headers]] * ATTEMPTS
        is_shown = TIME_MS_MIN <= time_ms <= TIME_MS_MAX
        texts = {row[1] if is_shown else row[1].partition(" is ")[2].partition(",")[0] for row in attempts}
        wanted = python_time(topics, number, time_ms)
        assert texts == {wanted if is_shown else f"{time_ms} ms after 1970"}


@pytest.mark.usefixtures("services")
def test_the_columns_have_the_same_time_and_headers_at_each_attempt(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """O1001, O1002, O1302, O1305: null where Spark's timestamp does not reach."""
    times = {b"%d" % number: time_ms for number, time_ms in enumerate(ODD_TIMES_MS)}
    write(topics, times)
    path = tmp_path / "seen"
    seen = seen_of(spark, topics, Columns(str(path)), path, len(times))
    headers = [[name, value and value.decode()] for name, value in OWN]
    for number, time_ms in enumerate(ODD_TIMES_MS):
        micros = time_ms * 1_000 if abs(time_ms) <= COLUMN_MS_MAX else None
        attempts = sorted(row[1:] for row in seen if row[0] == str(number))
        assert attempts == [[attempt, micros, 0, headers] for attempt in range(1, ATTEMPTS + 1)]


@pytest.mark.usefixtures("services")
def test_a_time_that_spark_cannot_hold_moves_no_watermark(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """O1002: before, one record in nanoseconds moved it by ninety thousand years: all others were late."""
    write(topics, {b"nano": NANOSECONDS, b"now": 1_700_000_000_000, b"2100": YEAR_2100_MS})
    frame = spout.read_stream(spark, topics, "odd", startingOffsets="earliest")
    shown: dict[str, object] = {}

    def collect(batch: DataFrame, _batch_id: int) -> None:
        shown.update({row.value.decode(): row.at for row in batch.collect()})

    rows = frame.withWatermark("timestamp", "10 seconds").dropDuplicates(["value"])
    micros = rows.select("value", sql.unix_micros("timestamp").alias("at"))
    query = (
        micros.writeStream.foreachBatch(spout.sink(collect))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        eventually(lambda: len(shown) == 3 or not query.isActive, DEADLINE_S, told=query.exception)
        eventually(lambda: any("max" in (each.eventTime or {}) for each in query.recentProgress), DEADLINE_S)
        found = [each.eventTime["max"] for each in query.recentProgress if "max" in (each.eventTime or {})]
    finally:
        query.stop()
    assert shown == {"nano": None, "now": 1_700_000_000_000_000, "2100": YEAR_2100_MS * 1_000}
    assert found[0] == "2100-01-01T00:00:00.000Z"
