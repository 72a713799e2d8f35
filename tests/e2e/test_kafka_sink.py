"""`spout.start` into Spark's own Kafka sink, in a Spark that was started with the connector's jars."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from acker.config.topics import load_topics
from acker.errors import Unreachable
from acker.kafka.port import TopicPartition
from spout.local.jars import Repository, kafka_jars, parse_lock
from tests.support.bolts.sample_bolts import NoOrigin, place_in
from tests.support.brokers import Broker
from tests.support.lacking import lacking
from tests.support.programs import running
from tests.support.waiting import eventually, settled
from tests.support.worlds.stream_worlds import StreamWorld, config_of, serving

pytestmark = [pytest.mark.slow, pytest.mark.spark]

LOCK = Path(__file__).parents[1] / "data" / "spark_kafka.lock"


def connector() -> str:
    """Return the connector's jars, fetched once as the broker's are, and the client of the broker's jars."""
    repository = Repository.of(os.environ)
    jars = parse_lock(LOCK.read_text(encoding="ascii"))
    try:
        folder = repository.fetch(jars)
    except Unreachable as error:
        lacking(f"Spark's Kafka connector cannot be fetched: {error}")
    client = next(jar for jar in kafka_jars() if jar.artifact == "kafka-clients")
    files = [folder / jar.file for jar in jars] + [repository.fetch(kafka_jars()) / client.file]
    return ",".join(map(str, files))


@pytest.mark.timeout(600)
def test_words_go_to_a_topic_and_their_lines_are_acked(broker: Broker, tmp_path: Path) -> None:
    """S53: what fails is failed by name; the others' words are in the topic once they are acked."""
    config = config_of(tmp_path, broker, ["lines"])
    topics = load_topics(config, {})
    out = topics.input("lines").dead_letter.topic  # a topic that is there, and that nothing else writes to
    world = StreamWorld(topics, None, tmp_path)  # type: ignore[arg-type]  # the query runs in a Spark of its own
    world.produce("lines", "a b", "c bad", "d")
    arguments = ("-m", "tests.support.bolts.kafka_sink_job", config, out, tmp_path)
    environ = {"PYSPARK_SUBMIT_ARGS": f"--jars {connector()} pyspark-shell"}
    with serving(config, "acker"), running(arguments, tmp_path / "log", environ=environ) as job:
        job.until(lambda: world.published("lines").said == 3)
        found = world.published("lines")
    place = place_in(NoOrigin, 'raise ValueError("a bad word")')
    assert found.acked == {0, 2}
    assert found.failed == {1: ("split", "ValueError", f"a bad word ({place})")}
    places = [TopicPartition(out, part) for part in range(2)]
    settled(world.log, places)
    reader = world.log.reader(committed=True)
    reader.assign(dict.fromkeys(places, 0))
    words: list[bytes | None] = []

    def all_there() -> bool:
        words.extend(record.value for record in reader.poll(200))
        return len(words) >= 3

    eventually(all_there)
    reader.close()
    world.close()
    assert sorted(words, key=str) == [b"a", b"b", b"d"]
