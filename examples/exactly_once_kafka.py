"""Words from one topic of Kafka to another, each of them once for readers of committed records.

A broker, the topics, an acker and a replay worker run in one terminal, this query in another::

    uv run windhover up --config examples/topics.yaml
    echo "the hawk waits" | kafka-console-producer.sh --bootstrap-server 127.0.0.1:9092 --topic lines
    uv run python examples/exactly_once_kafka.py

The records of a micro-batch, and what is acked and failed for it, are one transaction of Kafka. A reader
without ``isolation.level=read_committed`` would also see those of transactions that were aborted.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from pyspark.sql import SparkSession

import spout
from acker.config.topics import Topics
from spout.local.spark_session import local_session


class SplitSentence(spout.BasicBolt):
    """Splits a line into words."""

    output = "word string, length int"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit each word; all of them are anchored on the line."""
        for word in tuple["value"].decode().lower().split():
            collector.emit((word, len(word)))


def write_words(spark: SparkSession, topics: Topics, folder: Path) -> None:
    """Write the words of what is there now: the word is the key, the value an object of JSON."""
    lines = spout.read_stream(spark, topics, "lines", startingOffsets="earliest")
    words = lines.transform(spout.bolt(SplitSentence(), name="split", anchored=True))
    topic = topics.input("split_words").topic
    with closing(spout.KafkaStore(topics, topic, key="word", value="json")) as store:
        writer = words.writeStream.foreachBatch(spout.exact_sink(store, words))
        spout.run_once(writer.option("checkpointLocation", str(folder / "checkpoint")).start())


def counts(topics: Topics) -> Counter[str]:
    """Count the words that a reader of committed records sees."""
    source = topics.input("split_words")
    settings = {**topics.kafka, "group.id": "words-of-lines", "enable.auto.commit": False}
    settings |= {"isolation.level": "read_committed", "enable.partition.eof": True}
    words: Counter[str] = Counter()
    with closing(Consumer(settings)) as reader:
        unread = set(range(source.partitions or 1))
        reader.assign([TopicPartition(source.topic, number, OFFSET_BEGINNING) for number in unread])
        while unread:
            for message in reader.consume(1_000, timeout=1):
                error = message.error()
                if error is None:
                    words[json.loads(message.value())["word"]] += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition())
                else:
                    raise RuntimeError(error)
    return words


def main() -> None:
    """Write the words of the topics of topics.yaml, and count what the topic has of them."""
    topics = spout.load(Path(__file__).with_name("topics.yaml"))
    with tempfile.TemporaryDirectory(prefix="exactly-once-") as name:
        folder = Path(name)
        write_words(local_session("exactly-once-kafka", folder), topics, folder)
    for word, times in counts(topics).most_common():
        print(f"{times:8,}  {word}")


if __name__ == "__main__":
    main()
