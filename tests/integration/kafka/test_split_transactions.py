"""A request to end a transaction that was delayed on its way ends the next one early, by a commit or by an
abort: nothing is lost or decided twice.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from acker.config.topics import load_topics
from acker.errors import TopicError, WindhoverError
from acker.identity import source_of
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing, TopicPartition
from acker.kafka.transactions import KafkaTransactions
from acker.provisioning.provision import create_topics
from acker.service.service import AckerService
from acker.wire.codec import wire_codec
from acker.wire.events import (
    Acks,
    Event,
    Init,
    Lost,
    PositionRun,
    SourceRun,
    Take,
    TakeSource,
    Verdicts,
    pack_positions,
)
from acker.wire.verdict import Verdict
from replay.worker.report import ReplayEvent
from replay.worker.service import ReplayService
from spout.local.embedded import EmbeddedBroker
from tests.support.waiting import eventually

PRODUCE, ADD_PARTITIONS, END_TXN = 0, 24, 26
"""Numbers of requests in Kafka's protocol."""

AFTER_S: Final = 0.5
"""The broker has this long to work on the delayed request before what came behind it is passed on."""

SOURCE: Final = source_of(1, 0)
ROOTS: Final = 10
TIMEOUT_MS: Final = 30_000

YAML: Final = """
kafka: {bootstrap.servers: "%s"}
acker: {partitions: 1}
inputs: {sentences: {id: 1, group: g, partitions: 1, retry: {attempts: 5, initial: 3s, jitter: 0}}}
"""


class DelayingProxy:
    """Passes requests on, one by one. Armed, it keeps the next request to end a transaction, and closes the
    client's connection; the broker gets it before the request number `before` of a `kind` that comes then.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.is_armed = False
        self.target = 0
        self.kind, self.before = PRODUCE, 0
        self.kept: tuple[socket.socket, bytes] | None = None
        self._lock = threading.Lock()
        self._passed = 0
        self._sockets: list[socket.socket] = [self._listener]

    def serve(self) -> None:
        """Accept connections until the proxy is closed."""
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self.target))
                self._sockets += [client, broker]
                threading.Thread(target=self._requests, args=(client, broker), daemon=True).start()
                threading.Thread(target=self._answers, args=(broker, client), daemon=True).start()

    def close(self) -> None:
        """End all connections."""
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _answers(self, broker: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := broker.recv(1 << 16):
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)

    def _requests(self, client: socket.socket, broker: socket.socket) -> None:
        with suppress(OSError), client.makefile("rb") as stream:
            while head := stream.read(4):
                (length,) = struct.unpack(">i", head)
                request = head + stream.read(length)
                if not self._keeps(request, broker):
                    broker.sendall(request)
                else:
                    client.shutdown(socket.SHUT_RDWR)

    def _keeps(self, request: bytes, broker: socket.socket) -> bool:
        (kind,) = struct.unpack(">h", request[4:6])
        with self._lock:
            if kind == END_TXN and self.is_armed:
                self.is_armed = False
                self.kept = broker, request
                self._passed = 0
                return True
            if kind == self.kind and self.kept is not None:
                self._passed += 1
                if self._passed == self.before:
                    (late, delayed), self.kept = self.kept, None
                    late.sendall(delayed)
                    threading.Event().wait(AFTER_S)
        return False


class Installation:
    """A broker, an acker whose requests go through the proxy, and a session played by the test."""

    def __init__(self, broker: EmbeddedBroker, proxy: DelayingProxy, config: Path) -> None:
        config.write_text(YAML % broker.bootstrap, encoding="utf-8")
        self.topics = load_topics(config, {})
        create_topics(self.topics)
        self.log = KafkaLog(self.topics.kafka)
        self.names = self.topics.ack_topics
        self.proxy = proxy
        self.now_ms = 0
        self.found: dict[int, list[str]] = {}
        self.acker = self._start()
        self._codec = wire_codec()
        self._producer = self.log.producer()
        self._reader = self.log.reader(committed=True)
        self._reader.assign({TopicPartition(self.names.verdict, 0): 0})

    def _start(self) -> AckerService:
        return AckerService(self.through(), self.names, 1, group=self.topics.acker.group)

    def through(self, client: type[KafkaLog] = KafkaLog) -> KafkaLog:
        """Return a client whose requests go through the proxy."""
        return client({**self.topics.kafka, "bootstrap.servers": f"127.0.0.1:{self.proxy.port}"})

    def restart(self) -> None:
        """Let another acker process take the partition over; nothing that this one knows is left."""
        self.acker.close()
        self.acker = self._start()

    def write(self, topic: str, *events: Event) -> None:
        """Write records of the session."""
        for event in events:
            self._producer.send(Outgoing(topic, 0, self._codec.encode(event)))
        self._producer.flush(TIMEOUT_MS)

    def open(self, start: int, end: int) -> None:
        """Emit roots that do not expire."""
        runs = (SourceRun(SOURCE, start, end),)
        self.write(self.names.init, Init("g", "s", 1, 0, 0, 0, 1, "sentences", "id", runs))

    def ack(self, start: int, end: int) -> None:
        """Complete roots."""
        edges = PositionRun(start, end)
        self.write(self.names.ack, Acks("q/b", start, "g", "s", 1, SOURCE, 0, (edges,), b"", b"", (), b"", 0))

    def step(self) -> None:
        """Let the acker work, and read what it has decided."""
        self.now_ms += 200  # contributions are paced
        self.acker.step(self.now_ms)
        for record in self._reader.poll(10, 1_000):
            event = self._codec.decode(record.value)
            for _source, start, end in event.acked if isinstance(event, Verdicts) else ():
                for position in range(start, end):
                    self.found.setdefault(position, []).append("ACKED")

    def settle(self, end: int) -> None:
        """Work until all roots below a position have a verdict."""
        eventually(lambda: len(self.found) >= end, step=self.step)

    def close(self) -> None:
        """Leave."""
        with suppress(WindhoverError):
            self.acker.close()
        self._reader.close()
        self.log.close()


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    proxy = DelayingProxy()
    with EmbeddedBroker(tmp_path / "kafka", listeners={"DELAYED": proxy.port}) as broker:
        proxy.target = broker.listener_port("DELAYED")
        threading.Thread(target=proxy.serve, daemon=True).start()
        opened = Installation(broker, proxy, tmp_path / "topics.yaml")
        yield opened
        opened.close()
        proxy.close()


@pytest.mark.parametrize("before", [1, 2], ids=["before the verdicts", "between verdicts and State"])
def test_a_delayed_commit_neither_doubles_nor_loses_a_verdict(
    installation: Installation, before: int
) -> None:
    """The acker's second transaction is committed after its verdicts, or before them, by the first one's."""
    proxy = installation.proxy
    installation.write(
        installation.names.init, Take("g", "s", 1, 0, 1, (TakeSource(SOURCE, "sentences", "id", 0, 0),))
    )
    for number in range(3):  # ranges of their own, so that no State tells of verdicts in a live range
        installation.open(number * ROOTS, (number + 1) * ROOTS)
    installation.ack(0, ROOTS)
    installation.settle(ROOTS)
    proxy.before, proxy.is_armed = before, True
    installation.ack(ROOTS, 2 * ROOTS)
    installation.settle(2 * ROOTS)
    assert proxy.kept is not None  # the second commit of the same transaction has ended it
    installation.ack(2 * ROOTS, 3 * ROOTS)
    installation.settle(3 * ROOTS)
    assert proxy.kept is None
    installation.restart()
    installation.open(3 * ROOTS, 4 * ROOTS)
    installation.ack(3 * ROOTS, 4 * ROOTS)
    installation.settle(4 * ROOTS)
    assert installation.found == {position: ["ACKED"] for position in range(4 * ROOTS)}


class Replays:
    """A replay worker whose requests go through the proxy; no acker works, the test gives the verdicts."""

    def __init__(
        self, installation: Installation, sizes: list[int], client: type[KafkaLog] = KafkaLog
    ) -> None:
        """Write source records of some sizes; each value tells its offset."""
        self._installation = installation
        self._log = installation.through(client)
        self.events: list[ReplayEvent] = []
        self.worker = ReplayService(
            self._log, installation.topics, jitter=lambda: 0.0, report=self.events.append
        )
        self.copies: list[int] = []
        self._reader = installation.log.reader(committed=True)
        self._reader.assign({TopicPartition("sentences.g.replay", 0): 0})
        producer = installation.log.producer()
        for offset, size in enumerate(sizes):
            producer.send(Outgoing("sentences", 0, (b"%d " % offset).ljust(size, b".")))
        producer.flush(TIMEOUT_MS)

    def lose(self, start: int, end: int) -> None:
        """Let roots fail, with as long a cause as `_ack_due` keeps."""
        topic_id = self._installation.log.topics(["sentences"])["sentences"].id
        lost = Lost(
            Verdict.FAILED, "g", "sentences", topic_id, "s" * 256, "ValueError", "x" * 900, 0, 0, 0, SOURCE,
            pack_positions(np.arange(start, end)),
        )  # fmt: skip
        self._installation.write(self._installation.names.verdict, Verdicts((), (), (lost,)))

    def until(self, condition: Callable[[], bool]) -> None:
        """Let the worker work, and read its copies, until a condition is true."""
        eventually(condition, step=self._step)

    def _step(self) -> None:
        self.worker.step(time.time_ns() // 1_000_000)
        self.copies += [int((each.value or b"").split()[0]) for each in self._reader.poll(10, 10_000)]

    @property
    def is_refused(self) -> bool:
        return any(event.name in ("aborted", "unreachable") for event in self.events)

    def close(self) -> None:
        """Leave."""
        self.worker.close()
        self._reader.close()
        self._log.close()


def test_a_delayed_commit_among_the_copies_gives_one_copy_of_each_root(installation: Installation) -> None:
    """Each copy fills a request: the takeover's commit commits the first one, and the second is refused."""
    proxy = installation.proxy
    replays = Replays(installation, [700_000] * 3)
    proxy.before, proxy.is_armed = 2, True
    replays.lose(0, 3)
    replays.until(lambda: replays.worker.status().waiting == 3)
    assert proxy.kept is not None  # the second commit of the same transaction has ended it
    replays.until(lambda: replays.is_refused)
    assert proxy.kept is None
    replays.until(lambda: len(replays.copies) >= 3 and not replays.worker.status().waiting)
    assert replays.copies == [0, 1, 2]
    replays.close()


@pytest.mark.slow
def test_a_delayed_commit_that_cuts_a_takeover_gives_one_copy_of_each_root(
    installation: Installation,
) -> None:
    """What waits fills more than a request: its progress is refused behind a part that is committed."""
    many, proxy = 1_900, installation.proxy
    replays = Replays(installation, [10] * (many + 1))
    proxy.before, proxy.is_armed = 2, True
    replays.lose(0, 1)
    replays.until(lambda: replays.worker.status().waiting == 1)
    assert proxy.kept is not None
    replays.lose(1, many + 1)
    replays.until(lambda: replays.is_refused)
    assert proxy.kept is None
    replays.until(lambda: len(replays.copies) > many and not replays.worker.status().waiting)
    assert sorted(replays.copies) == list(range(many + 1))
    replays.close()


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("kind", "before"), [(ADD_PARTITIONS, 1), (ADD_PARTITIONS, 2), (PRODUCE, 1), (PRODUCE, 2), (PRODUCE, 3)]
)
def test_a_delayed_abort_loses_no_copy(installation: Installation, kind: int, before: int) -> None:
    """A topic is refused, and the copies are written again: it comes among these and their tombstones."""
    proxy = installation.proxy

    class RefusedOnce(KafkaTransactions):
        """Refuses the topic of the copies, by the second commit: the first one is that of the takeover."""

        commits = 0

        def commit(self, timeout_ms: int) -> None:
            """Commit, or refuse."""
            RefusedOnce.commits += 1
            if RefusedOnce.commits == 2:
                proxy.kind, proxy.before, proxy.is_armed = kind, before, True
                raise TopicError("there is no such topic")
            super().commit(timeout_ms)

    class Client(KafkaLog):
        def transactions(self, transactional_id: str) -> KafkaTransactions:
            """Return transactions one of which is refused."""
            return RefusedOnce(self._client, transactional_id, self._forbidden_topics)

    replays = Replays(installation, [10] * 3, Client)
    replays.lose(0, 3)
    replays.until(lambda: proxy.kept is not None)  # the second abort of the same transaction has ended it
    replays.until(lambda: proxy.kept is None)
    replays.until(lambda: len(replays.copies) >= 3 and not replays.worker.status().waiting)
    assert replays.copies == [0, 1, 2]
    replays.close()
