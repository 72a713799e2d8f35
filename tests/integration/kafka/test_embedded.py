"""The broker as everything else relies on it: it keeps what it has, and dies with whoever started it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata
from confluent_kafka.cimpl import NewTopic

from acker.errors import Unreachable, UsageError
from spout.local import embedded
from spout.local.embedded import STARTS_MAX, EmbeddedBroker, free_port
from spout.local.embedded_cluster import EmbeddedCluster
from spout.local.jars import CACHE, Repository, kafka_jars
from spout.local.up import interruptible
from tests.support.brokers import Broker
from tests.support.waiting import Watch, eventually

TIMEOUT_S = 30.0

JAVA = """\
#!/bin/sh
case "$*" in
  -version) echo 'openjdk version "17.0.1"' >&2 ;;
  *StorageTool*) mkdir -p data && echo features > data/bootstrap.checkpoint ;;
  *ArchiveClassesAtExit=*) trap 'echo classes > classes.jsa; exit 143' TERM ;;
esac
echo "$*" >> "{calls}"
case "$*" in *kafka.Kafka*) while :; do sleep 0.1; done ;; esac
"""
"""A Java that writes down its calls. Of what Kafka does it formats, and keeps classes at its end."""


def create(bootstrap: str, topic: str) -> None:
    """Create a topic of one partition and wait until it is there."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(TIMEOUT_S)


def topics(bootstrap: str) -> set[str]:
    """Return the names of all topics."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return set(admin.list_topics(timeout=TIMEOUT_S).topics)


def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """Return the first committed records of partition 0, at most `count`."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
    consumer.close()
    return found


@pytest.mark.both_brokers
def test_a_transaction_is_committed_and_read_back(broker: Broker, prefix: str) -> None:
    topic = f"{prefix}t"
    create(broker.bootstrap, topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"{prefix}writer"})
    producer.init_transactions(TIMEOUT_S)
    for value, keep in ((b"undone", False), (b"kept", True)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(TIMEOUT_S)
        if keep:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)
    assert read(broker.bootstrap, topic, 1) == [b"kept"]


@pytest.mark.both_brokers
def test_a_topic_is_never_created_by_using_it(broker: Broker, prefix: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 3000, "log_level": 0})
    errors: list[object] = []
    producer.produce(f"{prefix}missing", b"x", on_delivery=lambda error, _message: errors.append(error))
    producer.flush(TIMEOUT_S)
    assert [error is None for error in errors] == [False]
    assert f"{prefix}missing" not in topics(broker.bootstrap)


def test_a_killed_broker_comes_back_at_its_address_with_its_records() -> None:
    with EmbeddedBroker() as broker:
        address = broker.bootstrap
        create(address, "kept")
        producer = Producer({"bootstrap.servers": address})
        producer.produce("kept", b"one")
        assert producer.flush(TIMEOUT_S) == 0
        broker.kill()
        with pytest.raises(KafkaException):
            AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=0.5)
        broker.restart()
        assert broker.bootstrap == address
        assert read(address, "kept", 1) == [b"one"]


def test_a_directory_that_is_named_keeps_the_records_for_the_next_broker(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "kafka") as first:
        create(first.bootstrap, "kept")
    assert "broker.log" in {path.name for path in (tmp_path / "kafka").iterdir()}
    with EmbeddedBroker(tmp_path / "kafka") as second:
        assert "kept" in topics(second.bootstrap)


@pytest.mark.parametrize("is_there", [False, True], ids=["made", "there before"])
def test_the_records_of_a_directory_that_is_named_are_its_owners_alone(
    tmp_path: Path, is_there: bool
) -> None:
    """D2902: a folder that was there keeps its own rights; the records in it are for nobody else."""
    folder = tmp_path / "kafka"
    if is_there:
        (folder / "data").mkdir(parents=True)
        for made in (folder, folder / "data"):
            made.chmod(0o755)
    with EmbeddedBroker(folder):
        assert (folder / "data").stat().st_mode & 0o777 == 0o700
        assert folder.stat().st_mode & 0o777 == (0o755 if is_there else 0o700)


def test_files_and_settings_of_a_broker_are_readable_for_nobody_else(tmp_path: Path) -> None:
    files = {"server.pem": b"a key"}
    with EmbeddedBroker(
        tmp_path, listeners={"OTHER": None}, settings={"num.partitions": "7"}, files=files
    ) as broker:
        there = [tmp_path / "server.pem", tmp_path / "server.properties"]
        assert there[0].read_bytes() == b"a key"
        assert "num.partitions=7" in there[1].read_text().splitlines()
        assert [path.stat().st_mode & 0o077 for path in there] == [0, 0]
        assert topics(f"127.0.0.1:{broker.listener_port('OTHER')}") == topics(broker.bootstrap)


def with_java(folder: Path, script: str) -> dict[str, str]:
    """Return the environment of a broker whose Java is a script."""
    jars = Repository.of(os.environ).fetch(kafka_jars())
    home, cache = folder / "java", folder / "cache"
    for each in (home / "bin", home / "lib" / "server", cache):
        each.mkdir(parents=True)
    (cache / jars.name).symlink_to(jars)
    (home / "lib" / "server" / "classes.jsa").touch()
    (home / "bin" / "java").write_text(script)
    (home / "bin" / "java").chmod(0o755)
    return {**os.environ, "JAVA_HOME": str(home), CACHE: str(cache)}


def test_what_the_first_broker_takes_longest_for_is_kept_for_the_next_ones(tmp_path: Path) -> None:
    """Kafka's tool formats one storage, and the others are copies; its classes are parsed once."""
    cache, calls = tmp_path / "cache", tmp_path / "calls"
    environ = with_java(tmp_path, JAVA.format(calls=calls))
    for number, name in enumerate(("first", "second"), 1):
        broker = EmbeddedBroker(tmp_path / name, environ=environ)
        broker.launch()
        eventually(lambda number=number: calls.read_text().count(" kafka.Kafka ") == number)
        broker.stop()
        assert (tmp_path / name / "data" / "bootstrap.checkpoint").read_text() == "features\n"
    assert "node.id=1\n" in (tmp_path / "second" / "data" / "meta.properties").read_text()
    assert calls.read_text().count("StorageTool format") == 1
    (classes,) = cache.glob("*.jsa")
    assert classes.read_text() == "classes\n"
    assert f"-XX:SharedArchiveFile={classes} " in calls.read_text().splitlines()[-1]
    assert not list(tmp_path.glob("*/classes.jsa"))


def test_nothing_is_left_of_a_broker_without_a_directory() -> None:
    with EmbeddedBroker() as broker:
        directory, pid = broker.directory, broker.pid
        assert pid is not None
        watch = Watch(pid)
    assert watch.ended(0)
    watch.close()
    assert not directory.exists()


def test_a_port_that_is_in_use_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} .* is in use"):
            EmbeddedBroker(tmp_path, port).start()
    assert list(tmp_path.iterdir()) == []


class Thief:
    """Takes the port of a broker's plain listener when it was chosen and Kafka is still to start."""

    def __init__(self, *, is_broker: bool = False) -> None:
        self.port = 0
        self._is_broker = is_broker
        self._stack = ExitStack()

    def __call__(self, sentence: str) -> None:
        if not self.port and (found := re.match(r"starting Kafka on 127\.0\.0\.1:(\d+)", sentence)):
            self.port = int(found[1])
            self._stack.enter_context(
                EmbeddedBroker(port=self.port)
                if self._is_broker
                else socket.create_server(("127.0.0.1", self.port))
            )

    def __enter__(self) -> Thief:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def test_a_port_that_is_taken_after_it_was_chosen_is_not_the_one_of_the_broker() -> None:
    with Thief() as thief, EmbeddedBroker(progress=thief, listeners={"OTHER": None}) as broker:
        other = f"127.0.0.1:{broker.listener_port('OTHER')}"
        assert thief.port != 0
        assert broker.bootstrap not in (f"127.0.0.1:{thief.port}", other)
        assert topics(broker.bootstrap) == topics(other) == set()


def test_another_broker_that_answers_at_a_port_is_not_taken_for_the_one_that_was_started() -> None:
    """Two that begin at once may choose the same port; each has the id 1."""
    with Thief(is_broker=True) as thief, EmbeddedBroker(progress=thief) as broker:
        assert thief.port != 0
        assert broker.bootstrap != f"127.0.0.1:{thief.port}"
        create(f"127.0.0.1:{thief.port}", "of-the-first")
        assert topics(broker.bootstrap) == set()


def test_a_port_that_was_named_and_is_taken_meanwhile_is_refused(tmp_path: Path) -> None:
    port = free_port()
    with Thief() as thief, pytest.raises(UsageError, match=f"port {port} .* is in use"):
        EmbeddedBroker(tmp_path, port, progress=thief).start()
    assert thief.port == port


@pytest.mark.slow
def test_a_cluster_chooses_other_ports_where_one_is_taken_meanwhile() -> None:
    with Thief() as thief, EmbeddedCluster(brokers=2, progress=thief) as cluster:
        assert thief.port != 0
        assert f"127.0.0.1:{thief.port}" not in cluster.bootstrap.split(",")
        assert topics(cluster.bootstrap) == set()


TAKEN = """\
#!/bin/sh
case "$*" in
  -version) echo 'openjdk version "17.0.1"' >&2 ;;
  *StorageTool*) mkdir data; touch data/bootstrap.checkpoint; echo cluster.id=x > data/meta.properties ;;
  *) port=$(sed -n 's/^listeners=PLAINTEXT:..127.0.0.1:\\([0-9]*\\).*/\\1/p' server.properties)
     echo "Socket server failed to bind to 127.0.0.1:$port: Address already in use."; exit 1 ;;
esac
"""


def test_ports_are_chosen_only_so_often(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path / "kafka", environ=with_java(tmp_path, TAKEN))
    with pytest.raises(Unreachable, match="Address already in use"):
        broker.start()
    tried = re.findall(r"bind to 127\.0\.0\.1:(\d+)", broker.log.read_text())
    assert len(set(tried)) == len(tried) == STARTS_MAX


def test_a_signal_while_a_client_is_destroyed_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    signalled: list[int] = []

    class Client:
        """A client that gets a signal while it is destroyed, in which nothing can be raised."""

        def __init__(self, settings: dict[str, str | int]) -> None:
            self._client = AdminClient(settings)

        def list_topics(self, timeout: float) -> ClusterMetadata:
            return self._client.list_topics(timeout=timeout)

        def __del__(self) -> None:
            if not signalled:
                signalled.append(signal.SIGINT)
                os.kill(os.getpid(), signal.SIGINT)

    def command() -> int:
        with EmbeddedBroker():
            return 0

    monkeypatch.setattr(embedded, "AdminClient", Client)
    assert interruptible(command) == 130


def test_a_directory_that_another_broker_uses_is_refused(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path), pytest.raises(UsageError, match="another broker"):
        EmbeddedBroker(tmp_path).start()


def test_a_broker_that_cannot_start_says_why_and_leaves_no_process(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path):
        pass
    (tmp_path / "data" / "meta.properties").write_text("version=1\nnode.id=7\ncluster.id=x\n")
    broker = EmbeddedBroker(tmp_path)
    with pytest.raises(Unreachable, match=r"broker\.log ends with"):
        broker.start()
    assert broker.pid is None


def test_the_broker_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\n"
        "from spout.local.embedded import EmbeddedBroker\n"
        "broker = EmbeddedBroker(pathlib.Path(sys.argv[1]))\n"
        "broker.start()\n"
        "print(broker.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        watch = Watch(pid)
        parent.send_signal(signal.SIGKILL)
    assert watch.ended()
    watch.close()
