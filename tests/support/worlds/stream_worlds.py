"""Worlds for tests of queries: topics of their own, ackers and replay workers beside the one Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

from acker.config.topics import load
from acker.kafka.port import Log, Outgoing
from acker.provisioning.provision import create_topics
from spout.runtime.child import Child
from tests.support.brokers import Broker

TEXT = """
kafka: {{bootstrap.servers: "{bootstrap}"}}
acker: {{partitions: 2, topic_prefix: "{prefix}", limits: {{retention_interval: 1d}}}}
inputs:
{inputs}
"""
INPUT = (
    '  {name}: {{id: {id}, topic: "{prefix}{name}", group: "{prefix}{name}", partitions: 2, timeout: 300s}}'
)


def config_of(folder: Path, broker: Broker, names: Sequence[str], *more: str) -> Path:
    """Write a topics.yaml with an input for each name, and `more` inputs as they are; create its topics."""
    prefix = f"{folder.name}-"
    inputs = [INPUT.format(name=name, id=n, prefix=prefix) for n, name in enumerate(names, 1)]
    text = "\n".join([*inputs, *(each.format(prefix=prefix) for each in more)])
    config = folder / "topics.yaml"
    config.write_text(TEXT.format(bootstrap=broker.bootstrap, prefix=prefix, inputs=text), encoding="utf-8")
    create_topics(load(config, {}))
    return config


def produce_lines(log: Log, topic: str, lines: Iterable[str]) -> None:
    """Write lines to a topic, half of them to each of its two partitions."""
    producer = log.producer()
    for number, line in enumerate(lines):
        producer.send(Outgoing(topic, number % 2, line.encode()))
    producer.flush(30_000)
    producer.close()


@contextmanager
def serving(config: Path, *kinds: Literal["acker", "replay"]) -> Iterator[None]:
    """Run services as long as the context lasts."""
    with ExitStack() as stack:
        for child in [stack.enter_context(Child(kind, config)) for kind in kinds]:
            child.wait_ready()
        yield
