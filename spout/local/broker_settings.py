"""The contents of the embedded broker's `server.properties` and `log4j2.xml`; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

HOST = "127.0.0.1"
"""The broker's only address. It is not `localhost`, which may mean ::1 first."""


class Listener(NamedTuple):
    """A further listener: its name, its port, and the port that clients are to use."""

    name: str
    port: int
    advertised_port: int


@dataclass(frozen=True, slots=True)
class Member:
    """A node of a cluster, and what it knows of it.

    Attributes:
        controller_ports: of all nodes, by their ids.
        cluster_id: 16 bytes in base64.
    """

    node_id: int
    controller_ports: Mapping[int, int]
    cluster_id: str


def server_properties(
    port: int,
    controller_ports: Mapping[int, int],
    further_listeners: Sequence[Listener] = (),
    overriding: Mapping[str, str] | None = None,
    *,
    node_id: int = 1,
) -> str:
    """Return the settings of one KRaft node, which is a broker and a controller.

    Args:
        port: of the plain listener.
        controller_ports: of all nodes, by their ids.
        overriding: settings that replace those of here.
    """
    ports_by_listener = {"PLAINTEXT": port, "CONTROLLER": controller_ports[node_id]}
    advertised_ports_by_listener = {"PLAINTEXT": port}
    for listener in further_listeners:
        ports_by_listener[listener.name] = listener.port
        advertised_ports_by_listener[listener.name] = listener.advertised_port
    voters = [f"{voter_id}@{HOST}:{voter_port}" for voter_id, voter_port in controller_ports.items()]
    text = _SETTINGS.format(
        node_id=node_id,
        voters=",".join(voters),
        listeners=_addresses(ports_by_listener),
        advertised=_addresses(advertised_ports_by_listener),
        protocols=",".join(f"{name}:PLAINTEXT" for name in ports_by_listener),
    )
    for name, value in (overriding or {}).items():
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n")  # as Java's `Properties` reads it
        text += f"{name}={escaped}\n"
    return text


def settings_of_a_cluster(brokers: int) -> dict[str, str]:
    """Return settings of each node of a cluster, which replace those of a single broker.

    Every topic has a replica on each broker, three at most; of three, two must have a write.
    """
    replica_count = min(brokers, 3)
    in_sync_min = str(max(replica_count - 1, 1))
    settings = {
        "default.replication.factor": str(replica_count),
        "min.insync.replicas": in_sync_min,
        "unclean.leader.election.enable": "false",
        # Kafka's own defaults: a test waits for a failover here as long as an installation
        "broker.session.timeout.ms": "9000",
        "broker.heartbeat.interval.ms": "2000",
        # with the defaults of 2 s, 2 s and 1 s the controllers of a busy machine elect without end
        "controller.quorum.request.timeout.ms": "6000",
        "controller.quorum.fetch.timeout.ms": "6000",
        "controller.quorum.election.timeout.ms": "2000",
    }
    for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        settings[f"{topic}.replication.factor"] = str(replica_count)
        # enough for each broker to coordinate some groups and transactions
        settings[f"{topic}.num.partitions"] = str(2 * brokers)
    for topic in ("transaction.state.log", "share.coordinator.state.topic"):
        settings[f"{topic}.min.isr"] = in_sync_min
    return settings


def _addresses(ports_by_listener: Mapping[str, int]) -> str:
    """Return addresses as Kafka's settings have them: ``PLAINTEXT://127.0.0.1:9092,…``."""
    return ",".join(f"{name}://{HOST}:{port}" for name, port in ports_by_listener.items())


_SETTINGS = """\
process.roles=broker,controller
node.id={node_id}
controller.quorum.voters={voters}
listeners={listeners}
advertised.listeners={advertised}
listener.security.protocol.map={protocols}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs=data
auto.create.topics.enable=false
num.partitions=1
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
# how long a broker that was killed keeps its successor from registering; the default is 9 s
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
# the default of 128 MiB would be a quarter of the heap
log.cleaner.dedupe.buffer.size=8388608
"""

LOG4J = """\
<Configuration>
  <Appenders>
    <Console name="out"><PatternLayout pattern="[%d] %p %m (%c)%n"/></Console>
  </Appenders>
  <Loggers>
    <Root level="INFO"><AppenderRef ref="out"/></Root>
  </Loggers>
</Configuration>
"""
