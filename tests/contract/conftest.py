"""The contract suite runs every test on the in-memory cluster and on a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spout.local.embedded import EmbeddedBroker
from spout.local.embedded_cluster import EmbeddedCluster
from tests.contract.clusters import Cluster, InMemoryCluster, KafkaCluster, KafkaSpread, MemorySpread, Spread
from tests.support.servers.kafka_releases import KafkaOfRelease
from tests.support.servers.postgres import postgres

MEMORY = "memory"
KAFKA = "kafka"


@pytest.fixture(params=[MEMORY, pytest.param(KAFKA, marks=pytest.mark.kafka)])
def cluster(request: pytest.FixtureRequest, prefix: str) -> Iterator[Cluster]:
    """A cluster of each kind, with names that no other test uses; what was opened is closed."""
    if request.param == MEMORY:
        opened: Cluster = InMemoryCluster(prefix)
    else:
        broker = request.getfixturevalue("broker")
        has_files = isinstance(broker, EmbeddedBroker | KafkaOfRelease)
        data = broker.directory / "data" if has_files else None
        opened = KafkaCluster(prefix, broker.bootstrap, data)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def database() -> Iterator[str]:
    """The connection string of a real PostgreSQL; each test has a schema of its own there."""
    with postgres() as dsn:
        yield dsn


@pytest.fixture(scope="module")
def three_brokers() -> Iterator[EmbeddedCluster]:
    """Three brokers that are one cluster."""
    with EmbeddedCluster() as brokers:
        yield brokers


@pytest.fixture(params=[MEMORY, pytest.param(KAFKA, marks=[pytest.mark.kafka, pytest.mark.slow])])
def spread(request: pytest.FixtureRequest, prefix: str) -> Iterator[Spread]:
    """A cluster of each kind in which a partition can be without a leader; all have one afterwards."""
    opened: Spread
    if request.param == MEMORY:
        opened = MemorySpread(prefix)
    else:
        opened = KafkaSpread(prefix, request.getfixturevalue("three_brokers"))
    yield opened
    opened.elect_leader()
    opened.cluster.close()
