"""Where the benchmarks run: an embedded broker of their own, with topics of their own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from rich.console import Console

import acker.config.topics
from acker.config.topics import Topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Producer
from acker.provisioning.provision import create_topics
from spout.local.broker_settings import HOST
from spout.local.embedded import SERVER_JVM, EmbeddedBroker
from tests.torture.stage.proxy import Proxy

INPUT = "bench"
PARTITIONS = 4
ACKERS = 4
TIMEOUT = "60s"
_PROXIED: Final = "PROXIED"


@dataclass(frozen=True, slots=True)
class World:
    """A running broker, the topics.yaml for it, and a folder that goes when the benchmark ends."""

    bootstrap: str
    config: Path
    topics: Topics
    folder: Path


@contextmanager
def bench_world(
    console: Console,
    groups: int = 1,
    timeout: str = TIMEOUT,
    settings: Sequence[Mapping[str, Any]] = (),
    proxy: Proxy | None = None,
    partitions: int = PARTITIONS,
    ackers: int = ACKERS,
) -> Iterator[World]:
    """Start a broker and create topics.

    Args:
        console: where progress is shown.
        groups: how many groups read the one source topic; their inputs are ``bench``, ``bench-2`` and so on.
        timeout: of the inputs, as topics.yaml has it.
        settings: further settings of each input, in their order.
        proxy: what all clients that have the topics.yaml connect through; None: they connect to the broker.
        partitions: of the source topic.
        ackers: acker partitions.
    """
    with tempfile.TemporaryDirectory(prefix="windhover-bench-") as name:
        folder = Path(name)
        listeners = {} if proxy is None else {_PROXIED: proxy.port}
        with EmbeddedBroker(
            folder / "kafka", progress=console.print, jvm=SERVER_JVM, listeners=listeners
        ) as broker:
            bootstrap = broker.bootstrap
            if proxy is not None:
                proxy.connect_to(broker.listener_port(_PROXIED))
                bootstrap = f"{HOST}:{proxy.port}"
            config = folder / "topics.yaml"
            text = _config(bootstrap, groups, timeout, settings, partitions, ackers)
            config.write_text(text, encoding="utf-8")
            topics = acker.config.topics.load_topics(config, os.environ)
            create_topics(topics)
            yield World(broker.bootstrap, config, topics, folder)


def input_name(number: int) -> str:
    """Name the input of the group with that number, from 1."""
    return INPUT if number == 1 else f"{INPUT}-{number}"


@contextmanager
def bulk_producer(world: World) -> Iterator[Producer]:
    """Give a producer that fills topics fast; what was sent is durable when the context ends."""
    log = KafkaLog({**world.topics.kafka, "compression.type": "lz4", "linger.ms": "20"})
    producer = log.producer()
    yield producer
    producer.flush(60_000)
    producer.close()
    log.close()


def _config(
    bootstrap: str,
    groups: int,
    timeout: str,
    settings: Sequence[Mapping[str, Any]],
    partitions: int,
    ackers: int,
) -> str:
    inputs = {
        input_name(number): {
            "id": number,
            "topic": INPUT,
            "group": f"bench-{number}",
            "partitions": partitions,
            "timeout": timeout,
            "max_spout_pending": 4_000_000,
            **(settings[number - 1] if settings else {}),
        }
        for number in range(1, groups + 1)
    }
    document = {
        "kafka": {"bootstrap.servers": bootstrap},
        "acker": {"partitions": ackers},
        "inputs": inputs,
    }
    return yaml.safe_dump(document, sort_keys=False)
