"""The examples of public names that need Spark, a topic or PostgreSQL do what they say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from acker.config.topics import Topics, parse
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing
from spout.local.embedded import free_port
from tests.support.brokers import Broker
from tests.support.documented import (
    ON_KAFKA,
    ON_POSTGRES,
    ON_SPARK,
    RECORDS,
    ROOT,
    plain_names,
    run_examples,
)
from tests.support.servers.postgres import postgres
from tests.support.worlds.stream_worlds import config_of, serving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Make topics with the records of the examples, an input for each name, and run an acker for them."""
    config = config_of(tmp_path_factory.mktemp("documented"), broker, sorted(ON_KAFKA))
    topics = parse(config.read_text(), file="topics.yaml", environ={})
    log = KafkaLog(topics.kafka)
    producer = log.producer()
    for name in ON_KAFKA:
        for value in RECORDS:
            producer.send(Outgoing(topics.input(name).topic, 0, value))
    producer.flush(30_000)
    producer.close()
    log.close()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("words", 2, 1)])["words"].result(30)
    with serving(config, "acker"):
        yield config.read_text()


def sentences(text: str, name: str) -> Topics:
    """Let the input of an example be called as the examples call it."""
    return parse(text.replace(f"  {name}: {{", "  sentences: {"), file="topics.yaml", environ={})


@pytest.mark.parametrize("name", sorted(ON_SPARK))
def test_an_example_on_spark_does_what_it_says(
    name: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    run_examples(name, plain_names() | {"spark": spark, "port": free_port()})


@pytest.mark.parametrize("name", sorted(ON_KAFKA))
def test_an_example_on_a_topic_does_what_it_says(
    name: str, spark: SparkSession, served: str, tmp_path: Path
) -> None:
    run_examples(
        name,
        plain_names() | {"spark": spark, "topics": sentences(served, name), "folder": str(tmp_path)},
    )


@pytest.mark.parametrize("name", sorted(ON_POSTGRES))
def test_an_example_on_postgresql_does_what_it_says(name: str) -> None:
    with postgres() as dsn:
        run_examples(name, plain_names() | {"dsn": dsn})
