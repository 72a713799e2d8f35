"""What the embedded broker's `server.properties` and `log4j2.xml` say; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

HOST = "127.0.0.1"
"""The broker listens here alone. Not `localhost`, which may mean ::1 first."""


class Door(NamedTuple):
    """A further listener: its name, where it listens, and where clients are told that it is."""

    name: str
    port: int
    advertised_port: int


def server_properties(
    port: int, controller_port: int, doors: Sequence[Door] = (), further: Mapping[str, str] | None = None
) -> str:
    """Write the settings of a single KRaft node.

    Args:
        port: of the plain listener; clients are told this very port.
        controller_port: of the node's own controller.
        doors: further listeners.
        further: settings that stand behind the others, and so win over them.
    """
    listeners = [("PLAINTEXT", port), ("CONTROLLER", controller_port), *(door[:2] for door in doors)]
    advertised = [("PLAINTEXT", port), *((door.name, door.advertised_port) for door in doors)]
    text = _SETTINGS.format(
        host=HOST,
        controller_port=controller_port,
        listeners=_addresses(listeners),
        advertised=_addresses(advertised),
        protocols=",".join(f"{name}:PLAINTEXT" for name, _ in listeners),
    )
    return text + "".join(f"{name}={_escaped(value)}\n" for name, value in (further or {}).items())


def _escaped(value: str) -> str:
    """Write a value so that Java's `Properties` reads it back, whatever it holds."""
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def _addresses(listeners: Sequence[tuple[str, int]]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in listeners)


_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
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
