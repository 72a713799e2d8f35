"""The steps of docs/operate/rename-an-input.md, on a broker, with a query, an acker and a replay worker."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spout
from acker.config.topics import Topics, load_topics
from acker.kafka.cluster import KafkaLog
from spout.cli import main as cli
from spout.runtime.child import Child
from tests.support.bolts.sample_bolts import OnceBad
from tests.support.brokers import Broker
from tests.support.waiting import eventually
from tests.support.worlds.stream_worlds import DEADLINE_S, config_of, produce_lines

PAGE = Path(__file__).parents[3] / "docs/operate/rename-an-input.md"


def named_files(folder: Path, broker: Broker) -> tuple[Path, Path]:
    """Write the file with the former name, make its topics, and write the one with the newer name."""
    config = config_of(
        folder,
        broker,
        (),
        '  sentences: {{id: 1, topic: "{prefix}sentences", group: "{prefix}g", partitions: 2, '
        "retry: {{initial: 10s, jitter: 0}}}}",
    )
    newer = folder / "newer.yaml"
    newer.write_text(config.read_text().replace("  sentences: {", "  lines: {"))
    return config, newer


def start(spark: SparkSession, topics: Topics, name: str, folder: Path, written: list[str]) -> StreamingQuery:
    """Start the query of an input under a name, from the checkpoint of all its names."""

    def write(batch: DataFrame, _batch_id: int) -> None:
        written.extend(row.line for row in batch.collect())

    rows = spout.read_stream(spark, topics, name, startingOffsets="earliest")
    lines = rows.transform(spout.bolt(OnceBad(), name="lines"))
    writer = lines.writeStream.foreachBatch(spout.sink(write))
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Sequence[str]:
    assert cli.run(arguments) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.slow
def test_a_renamed_input_goes_on_where_it_was(
    spark: SparkSession, broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """D2111: a record that waits for its replay, and a dead letter, are those of the input's newer name."""
    config, newer = named_files(tmp_path, broker)
    topics = load_topics(config, {})
    source = topics.input("sentences").topic
    log = KafkaLog(topics.kafka)
    written: list[str] = []
    with Child("acker", config) as acker, Child("replay", config) as worker:
        acker.wait_ready()
        worker.wait_ready()
        query = start(spark, topics, "sentences", tmp_path, written)
        produce_lines(log, source, ["first", "late", "never"])

        def has_failed() -> bool:
            assert query.exception() is None
            rows = printed(capsys, "dlq", "list", "--input", "sentences", "--config", str(config))
            return "first" in written and any("RejectTuple" in row for row in rows)

        eventually(has_failed, DEADLINE_S)
        # 2. compare
        shown = PAGE.read_text(encoding="utf-8")
        compared = printed(capsys, "validate", str(config), str(newer))
        assert len(compared) == 3, compared
        assert [line for line in compared if f"        {line}\n" not in shown] == []
        # 3. and 4. the file, and the workers
        shutil.move(newer, config)
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGHUP)
        eventually(lambda: "replay.topics_taken" in worker.log.read_text(), DEADLINE_S)
        # 5. the query
        query.stop()
        topics = load_topics(config, {})
        query = start(spark, topics, "lines", tmp_path, written)
        produce_lines(log, source, ["second"])

        def all_written() -> bool:
            assert query.exception() is None
            return sorted(written) == ["first", "late", "second"]

        eventually(all_written, DEADLINE_S, told=lambda: written)
        # the end: former letters under the newer name
        rows = printed(capsys, "dlq", "list", "--input", "lines", "--config", str(config))
        assert any("RejectTuple" in row for row in rows)
        query.stop()
    log.close()
