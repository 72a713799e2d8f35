"""The streaming source in a real Spark on a real broker, without bolts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import spout
from acker.config.topics import Topics, load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing, TopicPartition
from acker.kafka.read_to_end import read_piece
from acker.provisioning.provision import create_topics
from acker.wire.codec import wire_codec
from acker.wire.events import Verdicts
from spout.runtime.child import Child
from tests.support.brokers import Broker
from tests.support.ended_queries import run_to_end

pytestmark = pytest.mark.slow


# No replay worker runs here: a root that timed out on a slow machine would keep `availableNow` going.
TEXT = """
kafka: {{bootstrap.servers: "{bootstrap}"}}
acker: {{partitions: 2, topic_prefix: "{prefix}"}}
inputs:
  lines: {{id: 1, topic: "{prefix}lines", group: "{prefix}g", partitions: 2, timeout: 5m}}
"""


@pytest.fixture
def config(broker: Broker, prefix: str, tmp_path: Path) -> Path:
    """A topics.yaml with an input of two partitions, its topics created."""
    path = tmp_path / "topics.yaml"
    path.write_text(TEXT.format(bootstrap=broker.bootstrap, prefix=prefix), encoding="utf-8")
    create_topics(load_topics(path, {}))
    return path


@pytest.fixture
def topics(config: Path) -> Topics:
    """What the file says."""
    return load_topics(config, {})


def produce(topics: Topics, first: int, count: int) -> None:
    """Write numbered lines, half of them to each partition."""
    log = KafkaLog(topics.kafka)
    producer = log.producer()
    for number in range(first, first + count):
        producer.send(Outgoing(topics.input("lines").topic, number % 2, b"line %d" % number))
    producer.flush(30_000)
    producer.close()
    log.close()


def run_to_the_end(frame: DataFrame, checkpoint: Path, rows: list[tuple[str, int, int]]) -> None:
    """Run a query until all is read and done, and append what it read to `rows`."""

    def write(batch: DataFrame, _batch_id: int) -> None:
        rows.extend((row.value.decode(), row.partition, row.offset) for row in batch.collect())

    writer = frame.writeStream.foreachBatch(spout.sink(write)).option("checkpointLocation", str(checkpoint))
    if not run_to_end(writer, timeout_s=120):
        raise TimeoutError("the query did not end")


def begin_and_die(frame: DataFrame, checkpoint: Path) -> None:
    """Let a query end, by its sink, when its first batch is planned and nothing of it is read."""

    def die(_batch: DataFrame, _batch_id: int) -> None:
        raise ConnectionError("the sink is away")

    with pytest.raises(StreamingQueryException, match="the sink is away"):
        frame.writeStream.foreachBatch(spout.sink(die)).option(
            "checkpointLocation", str(checkpoint)
        ).start().awaitTermination(120)


def expected(first: int, end: int) -> list[tuple[str, int, int]]:
    """Return the rows of numbered lines."""
    return sorted((f"line {n}", n % 2, n // 2) for n in range(first, end))


def committed(topics: Topics) -> list[int]:
    """Return the offsets that the group has committed."""
    lines = topics.input("lines")
    log = KafkaLog(topics.kafka)
    found = log.committed(lines.group, [TopicPartition(lines.topic, partition) for partition in range(2)])
    log.close()
    return [offset for _, offset in sorted(found.items())]


def settled(topics: Topics) -> tuple[int, int, int]:
    """Return how many roots were acked, absent and lost, as the verdict log says."""
    log = KafkaLog(topics.kafka)
    places = [TopicPartition(topics.ack_topics.verdict, partition) for partition in range(2)]
    acked = absent = lost = 0
    for place, end in log.stable_ends(places).items():
        for record in read_piece(log, place, 0, end, committed=True, wait_ms=30_000):
            event = wire_codec().decode(record.value)
            if isinstance(event, Verdicts):
                acked += sum(run.end - run.start for run in event.acked)
                absent += sum(run.end - run.start for run in event.absent)
                lost += len(event.lost)
    log.close()
    return acked, absent, lost


@pytest.mark.both_brokers
@pytest.mark.parametrize("tracked", [False, True])
def test_every_record_is_read_once_and_a_restart_goes_on_behind_it(
    spark: SparkSession, config: Path, topics: Topics, tmp_path: Path, tracked: bool
) -> None:
    """P14, S148, S74: ranges, offsets, commits and the status file, through Spark's checkpoint."""
    rows: list[tuple[str, int, int]] = []
    status_path = tmp_path / "status.json"
    frame = spout.read_stream(
        spark, topics, "lines", maxOffsetsPerTrigger=1_000, tracked=tracked, status_path=str(status_path)
    )
    with Child("acker", config) as acker:
        acker.wait_ready()
        for first, end in ((0, 3_000), (3_000, 3_010)):
            produce(topics, first, end - first)
            rows.clear()
            run_to_the_end(frame, tmp_path / "checkpoint", rows)
            status = json.loads(status_path.read_text())
            assert sorted(rows) == expected(first, end)
            assert (status["emitted"], status["acked"]) == (end - first, end - first)
            assert (status["pending"], status["error"], status["epoch"]) == (0, "", int(tracked))
            assert committed(topics) == [end // 2, end // 2]


TRACED_ACKER = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
provider, out = TracerProvider(), open(sys.argv.pop(1), "a")
exporter = ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(indent=None) + "\\n")
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
from spout.cli.main import main
main()
"""


def test_the_acker_writes_the_span_of_a_record_that_a_query_acked_where_its_driver_traces(
    spark: SparkSession,
    config: Path,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a provider in the driver nobody looks into a header, and the acker has nothing to write."""
    spans, headers = tmp_path / "spans", (("traceparent", b"00-%032x-%016x-01" % (7, 5)),)
    program = ("-c", TRACED_ACKER, str(spans), "acker", "run", "--config", str(config))
    with Child("acker", config, program=program) as acker:
        acker.wait_ready()
        for provider in (trace.NoOpTracerProvider(), TracerProvider()):
            monkeypatch.setattr(trace, "get_tracer_provider", lambda provider=provider: provider)
            log, rows = KafkaLog(topics.kafka), list[tuple[str, int, int]]()
            producer = log.producer()
            producer.send(Outgoing(topics.input("lines").topic, 1, b"plain"))
            producer.send(Outgoing(topics.input("lines").topic, 1, b"traced", headers=headers))
            producer.flush(30_000)
            producer.close()
            log.close()
            run_to_the_end(spout.read_stream(spark, topics, "lines"), tmp_path / "checkpoint", rows)
            assert [row[0] for row in rows] == ["plain", "traced"]
    (found,) = [json.loads(line) for line in spans.read_text(encoding="utf-8").splitlines()]
    place = topics.input("lines").topic + "/1@3"
    assert (found["name"], found["parent_id"]) == ("spout lines", f"0x{5:016x}")
    assert found["context"]["trace_id"] == f"0x{7:032x}"
    assert found["attributes"]["windhover.verdict"] == "ACKED"
    assert found["attributes"]["windhover.origin"] == place
    assert found["start_time"] < found["end_time"]


def test_what_leaves_the_log_between_planning_and_reading_is_passed_over(
    spark: SparkSession, config: Path, topics: Topics, tmp_path: Path
) -> None:
    """`on_data_loss: skip`: the batch that Spark runs again settles what is gone as ABSENT, and goes on."""
    rows: list[tuple[str, int, int]] = []
    frame = spout.read_stream(spark, topics, "lines", failOnDataLoss=False)
    with Child("acker", config) as acker:
        acker.wait_ready()
        produce(topics, 0, 1_000)
        begin_and_die(frame, tmp_path / "checkpoint")
        log = KafkaLog(topics.kafka)
        log.delete_before({TopicPartition(topics.input("lines").topic, 0): 40})
        log.close()
        run_to_the_end(frame, tmp_path / "checkpoint", rows)
    assert sorted(rows) == sorted(row for row in expected(0, 1_000) if row[1] or row[2] >= 40)
    assert settled(topics) == (960, 40, 0)
    assert committed(topics) == [500, 500]


def test_a_restored_copy_of_a_checkpoint_is_refused_and_with_take_over_its_acks_count(
    spark: SparkSession, config: Path, topics: Topics, tmp_path: Path
) -> None:
    """Spark uses the batch numbers behind the copy a second time; the third run would wait for a timeout."""
    rows: list[tuple[str, int, int]] = []
    checkpoint, copy = tmp_path / "checkpoint", tmp_path / "copy"
    frame = spout.read_stream(spark, topics, "lines", maxOffsetsPerTrigger=500)
    with Child("acker", config) as acker:
        acker.wait_ready()
        produce(topics, 0, 1_000)
        run_to_the_end(frame, checkpoint, rows)
        shutil.copytree(checkpoint, copy)
        produce(topics, 1_000, 2_000)
        run_to_the_end(frame, checkpoint, rows)
        shutil.rmtree(checkpoint)
        shutil.copytree(copy, checkpoint)
        produce(topics, 3_000, 1_000)
        refusal = r"older than what its query did.*lines/[01] offsets 500 to \d+ are ACKED.*fresh checkpoint"
        with pytest.raises(StreamingQueryException, match=refusal):
            run_to_the_end(frame, checkpoint, rows)
        assert sorted(rows) == expected(0, 3_000)
        frame = spout.read_stream(spark, topics, "lines", maxOffsetsPerTrigger=500, take_over=True)
        run_to_the_end(frame, checkpoint, rows)
        assert sorted(rows) == expected(0, 4_000)
        assert settled(topics) == (4_000, 0, 0)
        produce(topics, 4_000, 10)
        run_to_the_end(frame, checkpoint, rows)
    assert sorted(rows) == expected(0, 4_010)
    assert committed(topics) == [2_005, 2_005]
