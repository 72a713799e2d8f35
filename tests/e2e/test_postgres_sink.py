"""The example with a sink in PostgreSQL, in a real one: each word once, whatever comes again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from acker.config.topics import load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import TopicPartition
from examples.postgres_sink import WordTable
from tests.support.brokers import Broker
from tests.support.programs import ROOT, running
from tests.support.servers.postgres import postgres
from tests.support.worlds.stream_worlds import config_of, produce_lines, serving

ROWS = [
    {"record_id": "sentences/0@7", "ordinal": 0, "word": "the"},
    {"record_id": "sentences/0@7", "ordinal": 1, "word": "hawk"},
    {"record_id": "sentences/1@7", "ordinal": 0, "word": "the"},
]


@pytest.fixture
def database() -> Iterator[str]:
    """A PostgreSQL of this test alone."""
    with postgres() as dsn:
        yield dsn


def test_rows_that_come_again_stand_once_and_a_batch_that_fails_writes_none(database: str) -> None:
    """At least once into the sink, each word once in the table; a restart finds it as it was."""
    table = WordTable(database)
    table.upsert(ROWS)
    table.upsert(ROWS[1:])
    assert table.counts() == {"the": 2, "hawk": 1}
    with pytest.raises(psycopg.Error):
        table.upsert(
            [{"record_id": "sentences/1@8", "ordinal": 0, "word": "lost"}, {**ROWS[0], "word": None}]
        )
    table.close()
    again = WordTable(database)
    again.upsert([{**ROWS[0], "word": "a"}])
    assert again.counts() == {"a": 1, "the": 1, "hawk": 1}
    again.close()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(400)
def test_the_example_writes_the_words_of_a_topic_and_their_lines_are_acked(
    broker: Broker, database: str, tmp_path: Path
) -> None:
    """As a user runs it, in the folder that has its topics.yaml."""
    topics = load_topics(config_of(tmp_path, broker, ["sentences"]), {})
    source, log = topics.input("sentences"), KafkaLog(topics.kafka)
    produce_lines(log, source.topic, ["the hawk waits", "the hawk hovers"])
    places = [TopicPartition(source.topic, number) for number in range(2)]
    example = (ROOT / "examples" / "postgres_sink.py",)
    with (
        serving(tmp_path / "topics.yaml", "acker"),
        running(example, tmp_path / "log", folder=tmp_path, environ={"DATABASE": database}) as program,
    ):
        program.until(lambda: log.committed(source.group, places) == dict.fromkeys(places, 1))
    log.close()
    table = WordTable(database)
    assert table.counts() == {"the": 2, "hawk": 2, "waits": 1, "hovers": 1}
    table.close()
