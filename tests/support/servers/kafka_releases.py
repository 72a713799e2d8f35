"""Other releases of Kafka as brokers of the tests: the real program, whose jars are fetched once.

`tests/brokers/locks` lists the jars of each release with their checksums. A release that cannot run without
ZooKeeper has one beside it, from the same jars. ``python -m tests.support.servers.kafka_releases 2.8 4.0``
fetches jars and prints their folders.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from acker.errors import Unreachable
from spout.local import java
from spout.local.broker_settings import HOST, LOG4J, server_properties
from spout.local.embedded import SMALL_JVM, free_port, new_cluster_id
from spout.local.jars import Jar, Repository, parse_lock
from spout.runtime import tether
from tests.support.lacking import lacking
from tests.support.servers.process_broker import ProcessBroker
from tests.support.waiting import eventually

LOCKS: Final = Path(__file__).parents[2] / "brokers" / "locks"
RELEASES: Final = ("2.8", "3.9", "4.0", "4.4")
WITH_ZOOKEEPER: Final = ("2.8",)
"""Releases whose brokers keep what they know of the cluster in ZooKeeper."""

_NODE_ID: Final = 1
_FORMAT_S_MAX: Final = 180.0
_CONNECT_S: Final = 0.5
_STILL_REGISTERED: Final = "NodeExistsException"
"""Kafka's log, where ZooKeeper has not noticed yet that the broker of the last start is dead."""

_ZOOKEEPER_SETTINGS: Final = """\
dataDir=zookeeper
clientPortAddress={host}
clientPort={port}
admin.enableServer=false
"""

_BROKER_SETTINGS: Final = """\
broker.id={node_id}
zookeeper.connect={host}:{zookeeper_port}
zookeeper.connection.timeout.ms=60000
listeners=PLAINTEXT://{host}:{port}
log.dirs=data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=8388608
"""


def jars_of(release: str) -> tuple[Jar, ...]:
    """Return the jars of a release, such as 2.8.

    >>> [jar.version for jar in jars_of("2.8") if jar.artifact == "kafka_2.13"]
    ['2.8.2']
    """
    return parse_lock((LOCKS / f"{release}.lock").read_text(encoding="ascii"))


def version_of(release: str) -> str:
    """Return the version that stands for a release.

    >>> version_of("3.9")
    '3.9.2'
    """
    [version] = [jar.version for jar in jars_of(release) if jar.artifact == "kafka-clients"]
    return version


class KafkaOfRelease(ProcessBroker):
    """One node of KRaft, which is its own controller."""

    start_s_max = 180.0  # as for the embedded broker: a JVM starts in two seconds on an idle machine

    def __init__(self, program: Path, jars: Path, folder: Path) -> None:
        super().__init__(folder)
        self._program = program
        self._jars = jars

    def prepare(self) -> None:
        """Write its settings, and give its storage an identity, before its first start."""
        ports_by_node = {_NODE_ID: free_port(besides=[self.port])}
        settings = server_properties(self.port, ports_by_node, node_id=_NODE_ID)
        self._write_settings("server.properties", settings)
        arguments = ("format", f"--cluster-id={new_cluster_id()}", "--config", "server.properties")
        tool = self.spawn("kafka.tools.StorageTool", *arguments)
        with suppress(subprocess.TimeoutExpired):
            tool.wait(_FORMAT_S_MAX)
        tether.kill(tool)  # unless it has ended
        if tool.returncode != 0:
            raise AssertionError(f"the storage cannot be formatted:\n{tether.last_lines(self.log)}")

    def command(self) -> Sequence[str]:
        """Return what starts the broker in its folder."""
        return self._java("kafka.Kafka", "server.properties")

    def spawn(self, main_class: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a class of the jars beside the broker; it writes into the same log."""
        command = tether.Command(self._java(main_class, *arguments), self.log, self.directory)
        return tether.spawn(command)

    def _write_settings(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text, encoding="ascii")
        (self.directory / "log4j2.xml").write_text(LOG4J, encoding="ascii")

    def _java(self, main_class: str, *arguments: str) -> list[str]:
        """Return the command that runs a class of the jars in the broker's folder."""
        log_option = "-Dlog4j2.configurationFile=log4j2.xml"
        return [
            str(self._program),
            *SMALL_JVM,
            log_option,
            "-cp",
            f"{self._jars}/*",
            main_class,
            *arguments,
        ]


class KafkaWithZookeeper(KafkaOfRelease):
    """One broker, and the ZooKeeper that keeps its metadata, which outlives a kill of the broker."""

    def __init__(self, program: Path, jars: Path, folder: Path) -> None:
        super().__init__(program, jars, folder)
        self._zookeeper_port = free_port(besides=[self.port])
        self._zookeeper: subprocess.Popen[bytes] | None = None  # None: it does not run

    def prepare(self) -> None:
        """Write the settings of both, start ZooKeeper, and wait until it listens."""
        zookeeper_settings = _ZOOKEEPER_SETTINGS.format(host=HOST, port=self._zookeeper_port)
        self._write_settings("zookeeper.properties", zookeeper_settings)
        settings = _BROKER_SETTINGS.format(
            host=HOST, port=self.port, zookeeper_port=self._zookeeper_port, node_id=_NODE_ID
        )
        self._write_settings("server.properties", settings)
        main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self._zookeeper = self.spawn(main_class, "zookeeper.properties")
        eventually(self._zookeeper_listens, told=lambda: tether.last_lines(self.log))

    def _zookeeper_listens(self) -> bool:
        try:
            socket.create_connection((HOST, self._zookeeper_port), _CONNECT_S).close()
        except OSError:
            return False
        return True

    def start(self) -> None:
        """Start it; where its registration before a kill still stands, for 18 s, start it again."""
        deadline_s = time.monotonic() + self.start_s_max
        while True:
            log_start_bytes = self.log.stat().st_size
            try:
                super().start()
            except AssertionError:
                log = self.log.read_bytes()[log_start_bytes:]
                if _STILL_REGISTERED.encode() not in log or time.monotonic() > deadline_s:
                    raise
            else:
                return

    def end_zookeeper(self) -> None:
        """End ZooKeeper, after the broker."""
        if self._zookeeper is not None:
            tether.kill(self._zookeeper)
            self._zookeeper = None


@contextmanager
def kafka_of(release: str) -> Iterator[KafkaOfRelease]:
    """Run Kafka of a release as long as the context lasts; what is missing for it, a test says."""
    try:
        program = java.find(os.environ).executable
        jars = Repository.of(os.environ).fetch(jars_of(release))
    except Unreachable as error:
        lacking(f"Kafka {release} cannot run: {error}")
    with tempfile.TemporaryDirectory(prefix=f"windhover-kafka-{release}-") as folder:
        kind = KafkaWithZookeeper if release in WITH_ZOOKEEPER else KafkaOfRelease
        broker = kind(program, jars, Path(folder))
        try:
            broker.prepare()
            broker.start()
            yield broker
        finally:
            broker.stop()
            if isinstance(broker, KafkaWithZookeeper):
                broker.end_zookeeper()


if __name__ == "__main__":
    for asked_release in sys.argv[1:]:
        print(Repository.of(os.environ).fetch(jars_of(asked_release)))  # noqa: T201
