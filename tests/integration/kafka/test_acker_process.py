"""Ackers on a real broker: shared, paused, killed, restored, and every verdict is given once all the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from acker.config import topics as topics_yaml
from acker.identity import acker_partition, root_edges_of_run, source_of
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing, TopicPartition
from acker.provisioning.provision import create_topics
from acker.root_sets.position_set import PositionSet
from acker.service.service import AckerService
from acker.wire.codec import wire_codec
from acker.wire.events import (
    Acks,
    Event,
    FailCause,
    Fails,
    Init,
    PositionRun,
    SourceRun,
    Take,
    Taken,
    TakeSource,
    Tick,
    Verdicts,
    pack_positions,
    pack_values,
    positions,
)
from spout.runtime.child import Child
from tests.support.brokers import Broker

N = 4
ROOTS = 1000
"""Positions that each source emits, from 0 on."""
SOURCES = tuple(source_of(9, partition) for partition in range(8))
RECORDS = 10
"""Records over which the contributions to one source are spread, in ascending seq."""
ROOT_TIMEOUT_MS = 500
DEADLINE_S = 90.0
TIMEOUT_MS = 30_000

YAML = """
kafka: {bootstrap.servers: "%(bootstrap)s", session.timeout.ms: 6000}
acker: {partitions: 4, topic_prefix: "%(prefix)s"}
inputs: {sentences: {id: 9, group: "%(prefix)sg", topic: "%(prefix)ssentences", partitions: 8}}
"""
"""Who is killed is a member of its group for the session timeout: the shortest that brokers take."""

EXPECTED = {
    (source, position): {7: "FAILED", 8: "ABSENT", 9: "TIMED_OUT"}.get(position % 10, "ACKED")
    for source in SOURCES
    for position in range(ROOTS)
}
"""One in ten fails, one is absent, one is never contributed to; two need both lanes, five one of them."""


class Installation:
    """Topics on a broker, a session played by the test, and the verdicts as they come."""

    def __init__(self, bootstrap: str, prefix: str, config: Path) -> None:
        self.config = config
        config.write_text(YAML % {"bootstrap": bootstrap, "prefix": prefix})
        self.topics = topics_yaml.load_topics(config, {})
        create_topics(self.topics)
        self.log = KafkaLog(self.topics.kafka)
        self.names = self.topics.ack_topics
        self.group = f"{prefix}g"
        self.outcomes: dict[tuple[int, int], list[str]] = {}
        self.taken: list[Taken] = []
        self._codec = wire_codec()
        self._producer = self.log.producer()
        self._verdicts = self.log.reader(committed=True)
        self._verdicts.assign({TopicPartition(self.names.verdict, number): 0 for number in range(N)})

    def acker(self, **settings: str) -> AckerService:
        """Make an acker in this process."""
        log = KafkaLog({**self.topics.kafka, **settings})
        return AckerService(log, self.names, N, group=self.topics.acker.group)

    def take(self) -> None:
        """Announce the session to every partition."""
        named = tuple(TakeSource(source, "sentences", "id", 0, 0) for source in SOURCES)
        for partition in range(N):
            self._write(self.names.init, partition, Take(self.group, "s", 1, 0, N, named))
        self._producer.flush(TIMEOUT_MS)

    def emit(self) -> None:
        """Initialise all roots."""
        for source in SOURCES:
            init = Init(
                self.group, "s", 1, 0, 1, ROOT_TIMEOUT_MS, N, "sentences", "id",
                (SourceRun(source, 0, ROOTS),),
            )  # fmt: skip
            self._write(self.names.init, acker_partition(source, 0, N), init)
        self._producer.flush(TIMEOUT_MS)

    def contribute(self, first: int, last: int) -> None:
        """Write the records with seq `first` up to `last` of both lanes: fails, flushed, then acks."""
        for seq in range(first, last):
            for source in SOURCES:
                self._write(self.names.fail, acker_partition(source, 0, N), self._fails(source, seq))
        self._producer.flush(TIMEOUT_MS)
        for seq in range(first, last):
            for source in SOURCES:
                for acks in self._acks(source, seq):
                    self._write(self.names.ack, acker_partition(source, 0, N), acks)
        self._producer.flush(TIMEOUT_MS)

    def tick(self) -> None:
        """Let the session's clock pass every deadline."""
        for now in (ROOT_TIMEOUT_MS // 2, ROOT_TIMEOUT_MS):
            for partition in range(N):
                self._write(self.names.init, partition, Tick(self.group, "s", 1, now))
        self._producer.flush(TIMEOUT_MS)

    def look(self) -> None:
        """Read the verdicts that were given since the last look; waits a moment for one."""
        for record in self._verdicts.poll(50, 10_000):
            event = self._codec.decode(record.value)
            if isinstance(event, Taken):
                self.taken.append(event)
            elif isinstance(event, Verdicts):
                self._note(event)

    def given(self) -> int:
        """Return how many roots have a verdict."""
        return len(self.outcomes)

    def until(self, what: str, done: Callable[[], bool], *ackers: AckerService) -> None:
        """Let ackers of this process work, and look, until something is the case."""
        deadline = time.monotonic() + DEADLINE_S
        while not done():
            for acker in ackers:
                acker.step(int(time.time() * 1000))
            self.look()
            if time.monotonic() > deadline:
                pytest.fail(f"{what}: not within {DEADLINE_S} s; {self.given()} verdicts of {len(EXPECTED)}")

    def until_all_are_given(self, *ackers: AckerService) -> None:
        """Wait for a verdict on every root; then see that each has the expected one, once."""
        self.until("all verdicts", lambda: self.given() == len(EXPECTED), *ackers)
        deadline = time.monotonic() + 1
        self.until("a second for verdicts too many", lambda: time.monotonic() > deadline, *ackers)
        assert self.outcomes == {root: [outcome] for root, outcome in EXPECTED.items()}

    def close(self) -> None:
        """Close the clients."""
        for client in (self._verdicts, self._producer, self.log):
            client.close()

    def _write(self, topic: str, partition: int, event: Event) -> None:
        self._producer.send(Outgoing(topic, partition, self._codec.encode(event)))

    def _fails(self, source: int, seq: int) -> Fails:
        failed = pack_positions(_of(seq, 7))
        cause = FailCause("split", "ValueError", "bad", failed)
        return Fails("a/s", seq, self.group, "s", 1, source, 0, (cause,))

    def _acks(self, source: int, seq: int) -> Iterator[Acks]:
        """Give lane a what needs one contribution and half of the rest, lane b the other halves."""
        edges, halves = root_edges_of_run(source, 0, ROOTS), _of(seq, 5, 6)
        first = edges[halves] * np.uint64(3) + np.uint64(1)
        whole = tuple(PositionSet.of_positions(_of(seq, 0, 1, 2, 3, 4)))
        absent = tuple(PositionRun(at, at + 1) for at in _of(seq, 8).tolist())
        for lane, runs, values, gone in (
            ("a/s", whole, first, absent),
            ("b/s", (), first ^ edges[halves], ()),
        ):
            yield Acks(
                lane, seq, self.group, "s", 1, source, 0,
                runs, pack_positions(halves), pack_values(values), gone, b"", 0,
            )  # fmt: skip

    def _note(self, verdicts: Verdicts) -> None:
        for name, runs in (("ACKED", verdicts.acked), ("ABSENT", verdicts.absent)):
            for run in runs:
                for position in range(run.start, run.end):
                    self.outcomes.setdefault((run.source, position), []).append(name)
        for lost in verdicts.lost:
            for position in positions(lost.positions).tolist():
                self.outcomes.setdefault((lost.source, position), []).append(lost.reason.value)


def _of(seq: int, *digits: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the positions of one record whose last digit is one of the given."""
    share = ROOTS // RECORDS
    every = np.arange(seq * share, (seq + 1) * share)
    return every[np.isin(every % 10, digits)]


@pytest.fixture
def installation(broker: Broker, prefix: str, tmp_path: Path) -> Iterator[Installation]:
    """Topics of its own for each test."""
    made = Installation(broker.bootstrap, prefix, tmp_path / "topics.yaml")
    yield made
    made.close()


def test_an_acker_gives_exact_verdicts(installation: Installation) -> None:
    """Rules 2, 3, 4 and 8, through every kind of record of the wire."""
    made, acker = installation, installation.acker()
    made.take()
    made.until("answers to the take", lambda: len(made.taken) == N, acker)
    assert {taken.refused for taken in made.taken} == {""}
    made.emit()
    made.contribute(0, RECORDS)
    in_time = sum(outcome != "TIMED_OUT" for outcome in EXPECTED.values())
    made.until("verdicts without a tick", lambda: made.given() == in_time, acker)
    made.tick()
    made.until_all_are_given(acker)
    assert acker.status().open_roots == 0
    acker.close()


def test_two_ackers_share_the_partitions(installation: Installation) -> None:
    """Each gives a part of the verdicts; one that leaves hands its part over without losing any."""
    made = installation
    first, second = made.acker(), made.acker()
    made.until(
        "two partitions each",
        lambda: [len(acker.status().partitions) for acker in (first, second)] == [2, 2],
        first,
        second,
    )
    made.take()
    made.emit()
    made.contribute(0, 5)
    made.until(
        "verdicts of both",
        lambda: min(first.status().counts.acked, second.status().counts.acked) > 0,
        first,
        second,
    )
    second.close()
    made.contribute(5, RECORDS)
    made.tick()
    made.until_all_are_given(first)
    first.close()


def test_an_acker_that_was_paused_gives_no_verdict_twice(installation: Installation) -> None:
    """Rule 7: it lost its place to a successor and does not know it; then it goes on."""
    made = installation
    paused = made.acker(**{"max.poll.interval.ms": "6000", "session.timeout.ms": "6000"})
    made.take()
    made.emit()
    made.contribute(0, 5)
    made.until("verdicts of the first", lambda: made.given() > 0, paused)
    successor = made.acker()
    made.contribute(5, RECORDS)
    made.until("the successor owns all", lambda: len(successor.status().partitions) == N, successor)
    made.until("verdicts of the successor", lambda: successor.status().counts.acked > 0, successor)
    made.tick()
    made.until_all_are_given(paused, successor)
    paused.close()
    successor.close()


@pytest.mark.both_brokers
def test_ackers_that_are_killed_and_restarted_give_the_verdicts_once(installation: Installation) -> None:
    """Rule 7: killed by SIGKILL between the halves of their contributions, and stopped by SIGTERM."""
    made = installation
    with Child("acker", made.config) as first, Child("acker", made.config) as second:
        first.wait_ready()
        made.take()
        made.emit()
        made.contribute(0, 3)
        made.until("the first verdicts", lambda: made.given() > 0)
        second.kill()
        made.contribute(3, 6)
        second.start()
        first.kill()
        made.contribute(6, 8)
        first.start()
        made.until("more verdicts", lambda: made.given() > len(EXPECTED) // 2)
        assert first.stop()
        assert second.stop()
        made.contribute(8, RECORDS)
        made.tick()
        second.start()
        made.until_all_are_given()
        assert second.stop()
