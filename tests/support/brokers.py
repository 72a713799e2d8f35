"""What every test of the kafka ring gets as `broker`, and the kinds of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from spout.local.embedded import EmbeddedBroker
from tests.support.servers.kafka_releases import RELEASES, kafka_of
from tests.support.servers.kfake import kfake

EMBEDDED = "embedded"
CONTAINER = "container"
KFAKE = "kfake"
KINDS = (EMBEDDED, CONTAINER, KFAKE, *RELEASES)


class Broker(Protocol):
    """A broker that clients reach over a socket, whatever it runs in."""

    @property
    def bootstrap(self) -> str:
        """The value of `bootstrap.servers` for a client on this machine."""

    def kill(self) -> None:
        """End it by SIGKILL."""

    def restart(self) -> None:
        """Start it again, at the same address and with its data."""


def set_topic(bootstrap: str, topic: str, setting: str, value: str) -> None:
    """Change one setting of a topic; what a broker answers or does next may be older by a moment."""
    admin = AdminClient({"bootstrap.servers": bootstrap})  # it must live until it has the answer
    change = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


@contextmanager
def running(kind: str) -> Iterator[Broker]:
    """Run a broker of a kind as long as the context lasts."""
    if kind == EMBEDDED:
        with EmbeddedBroker() as embedded:
            yield embedded
    elif kind == KFAKE:
        with kfake() as other:
            yield other
    elif kind in RELEASES:
        with kafka_of(kind) as release:
            yield release
    else:
        # imported late: testcontainers requests Docker's address at import
        from tests.support.servers.kafka_container import KafkaContainer

        with KafkaContainer() as container:
            yield container
