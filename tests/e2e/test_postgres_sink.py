"""The examples with a sink in PostgreSQL, in a real one: each word once, whatever comes again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from acker.config.topics import load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import TopicPartition
from examples.opaque_counts import CountTable
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


def test_a_batch_that_comes_again_with_other_records_counts_in_place_of_what_it_was(database: str) -> None:
    """D3211: other counts, words that it had not before, and words that it has no more."""
    table = CountTable(database)
    table.add("q/6", {"the": 2, "hawk": 1})
    table.add("q/7", {"the": 1, "hawk": 1, "waits": 1})
    table.add("q/7", {"the": 3, "hovers": 1})
    assert table.counts() == {"the": 5, "hawk": 1, "hovers": 1}
    table.close()
    again = CountTable(database)
    again.add("q/7", {"the": 1, "hawk": 1, "waits": 1})
    again.add("q/8", {"waits": 1})
    assert again.counts() == {"the": 3, "hawk": 2, "waits": 2}
    again.close()


LINES = ["the hawk waits", "the hawk hovers"]
WORDS = {"the": 2, "hawk": 2, "waits": 1, "hovers": 1}


EXAMPLES = {
    "postgres_sink": "SELECT word, count(*) FROM words GROUP BY word",
    "opaque_counts": "SELECT word, count FROM word_counts",
}
"""Examples that run until they are stopped, and what reads the counts of their words."""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_writes_the_words_of_a_topic_and_their_lines_are_acked(
    name: str, broker: Broker, database: str, tmp_path: Path
) -> None:
    """As a user runs it, in the folder that has its topics.yaml."""
    topics = load_topics(config_of(tmp_path, broker, ["sentences"]), {})
    source, log = topics.input("sentences"), KafkaLog(topics.kafka)
    produce_lines(log, source.topic, LINES)
    places = [TopicPartition(source.topic, number) for number in range(2)]
    example = (ROOT / "examples" / f"{name}.py",)
    with (
        serving(tmp_path / "topics.yaml", "acker"),
        running(example, tmp_path / "log", folder=tmp_path, environ={"DATABASE": database}) as program,
    ):
        program.until(lambda: log.committed(source.group, places) == dict.fromkeys(places, 1))
    log.close()
    with psycopg.connect(database) as connection:
        assert dict(connection.execute(EXAMPLES[name]).fetchall()) == WORDS


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_example_that_writes_exactly_once_goes_on_where_its_database_is(
    broker: Broker, database: str, tmp_path: Path
) -> None:
    """Each of its runs has a fresh checkpoint; the counter that the trigger keeps is that of the rows."""
    topics = load_topics(config_of(tmp_path, broker, ["sentences"]), {})
    log = KafkaLog(topics.kafka)
    example = (ROOT / "examples" / "exactly_once_postgres.py",)
    with serving(tmp_path / "topics.yaml", "acker"):
        for times in (1, 2):
            produce_lines(log, topics.input("sentences").topic, LINES)
            log_file = tmp_path / f"log{times}"
            with running(example, log_file, folder=tmp_path, environ={"DATABASE": database}) as program:
                assert program.ended() == 0, program.said
            counts = {word: times * count for word, count in WORDS.items()}
            assert {f"{count}  {word}" for word, count in counts.items()} <= {
                line.strip() for line in program.said.splitlines()
            }
            with psycopg.connect(database) as connection:
                rows = connection.execute("SELECT word, count(*) FROM words GROUP BY word").fetchall()
            assert dict(rows) == counts
    log.close()
