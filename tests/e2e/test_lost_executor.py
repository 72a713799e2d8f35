"""An executor that is lost costs its tasks' time, and no record."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from acker.config.topics import load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import TopicPartition
from tests.support.bolts.exact_lost_executor_job import DATABASE, NARROW, SHUFFLED
from tests.support.brokers import Broker
from tests.support.programs import ROOT, running
from tests.support.worlds.stream_worlds import config_of, produce_lines, serving

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.by_turns]

LINES = 400
STARTS_MAX = 3


@pytest.mark.timeout(600)
def test_a_batch_that_lost_an_executor_is_acked_whole(broker: Broker, tmp_path: Path) -> None:
    """It dies in the bolt's stage, of which Spark repeats what is missing; then in the one behind it."""
    config = config_of(tmp_path, broker, ["lines"])
    topics = load_topics(config, {})
    one = topics.input("lines")
    log = KafkaLog(topics.kafka)
    lines = [f"{'first' if number < LINES // 2 else 'second'} {number}" for number in range(LINES)]
    produce_lines(log, one.topic, lines)
    with (
        serving(config, "acker"),
        running(
            ("-m", "tests.support.bolts.lost_executor_job", config, tmp_path),
            tmp_path / "log",
            environ={"PYTHONPATH": str(ROOT)},
        ) as job,
    ):
        assert job.ended() == 0, job.said[-4_000:]
    assert {each.name for each in tmp_path.glob("killed-*")} == {
        "killed-in-the-bolt",
        "killed-behind-the-bolt",
    }
    rows = parquet.read_table(tmp_path / "rows")["line"].to_pylist()
    assert sorted(rows) == sorted(line.upper() for line in lines)
    places = [TopicPartition(one.topic, part) for part in range(2)]
    assert log.committed(one.group, places) == dict.fromkeys(places, LINES // 2)
    assert not any(log.ends([TopicPartition(one.replay_topic, part) for part in range(2)]).values())
    log.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", [NARROW, SHUFFLED])
def test_a_batch_that_lost_an_executor_is_written_exactly_once(
    kind: str, broker: Broker, tmp_path: Path
) -> None:
    """D3222: where the tasks before a shuffle ran again, the run ends by name, and the next one goes on."""
    config = config_of(tmp_path, broker, ["lines"])
    topics = load_topics(config, {})
    log = KafkaLog(topics.kafka)
    lines = [f"{'first' if number < LINES // 2 else 'second'} {number}" for number in range(LINES)]
    produce_lines(log, topics.input("lines").topic, lines)
    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection:
        connection.execute("CREATE TABLE rows (line TEXT)")
    program = ("-m", "tests.support.bolts.exact_lost_executor_job", config, tmp_path, kind)
    with serving(config, "acker", "replay"):
        for start in range(STARTS_MAX):
            with running(program, tmp_path / f"log{start}", environ={"PYTHONPATH": str(ROOT)}) as job:
                code = job.ended()
                said = job.said
            if code == 0:
                break
            assert kind == SHUFFLED, said[-4_000:]
            assert "RowsChanged" in said
    log.close()
    assert code == 0, said[-4_000:]
    assert (tmp_path / "killed-in-the-bolt").exists()
    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection:
        rows = [line for (line,) in connection.execute("SELECT line FROM rows")]
    assert sorted(rows) == sorted(line.upper() for line in lines)
