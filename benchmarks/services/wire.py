"""A writer that speaks the wire, for benchmarks of the acker: no Spark, no spout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from acker.config.topics import AckTopics
from acker.errors import Unreachable
from acker.identity import (
    ACKER_BLOCK_BITS,
    WIRE_BLOCK_BITS,
    acker_partition,
    root_edges_of_run,
    source_of,
)
from acker.kafka.port import Log, Outgoing, TopicPartition
from acker.wire.codec import wire_codec
from acker.wire.events import (
    Acks,
    Init,
    PositionRun,
    SourceRun,
    Take,
    Taken,
    TakeSource,
    pack_positions,
    pack_values,
)

FLUSH_MS_MAX = 30_000
POLL_MS = 100
ANSWER_POLLS_MAX = 600


@dataclass(frozen=True, slots=True)
class Session:
    """Who writes."""

    group: str
    name: str
    epoch: int
    input_id: int
    topic: str
    topic_id: str


class WireWriter:
    """Writes one session's records to the ack topics, from its first Take on."""

    def __init__(self, log: Log, names: AckTopics, partitions: int, session: Session) -> None:
        """Prepare a writer for `partitions` (N) acker partitions."""
        self._log, self._names, self._partitions = log, names, partitions
        self._session = session
        self._codec = wire_codec()
        self._producer = log.producer()
        self.source = source_of(session.input_id, 0)

    def take(self) -> None:
        """Announce the session to every partition and wait for every answer.

        Raises:
            Unreachable: an acker partition did not answer within a minute.
        """
        s = self._session
        verdicts = [TopicPartition(self._names.verdict, p) for p in range(self._partitions)]
        reader = self._log.reader(committed=True)
        reader.assign(self._log.ends(verdicts))
        source = TakeSource(self.source, s.topic, s.topic_id, 0, 0)
        event = Take(s.group, s.name, s.epoch, 0, self._partitions, (source,))
        for partition in range(self._partitions):
            self._producer.send(Outgoing(self._names.init, partition, self._codec.encode(event)))
        self._producer.flush(FLUSH_MS_MAX)
        waiting = set(range(self._partitions))
        for _ in range(ANSWER_POLLS_MAX):
            for record in reader.poll(POLL_MS):
                answer = self._codec.decode(record.value)
                if isinstance(answer, Taken) and answer.asked_by == s.name and not answer.refused:
                    waiting.discard(record.partition)
            if not waiting:
                reader.close()
                return
        raise Unreachable(f"no answer to Take from acker partitions {sorted(waiting)}; is an acker running?")

    def init(self, start: int, end: int) -> None:
        """Initialise the positions [start, end), one record for each stretch of one acker partition."""
        s = self._session
        for run in cut(self.source, start, end, ACKER_BLOCK_BITS):
            event = Init(s.group, s.name, s.epoch, 0, 0, 0, self._partitions, s.topic, s.topic_id, (run,))
            self._send(self._names.init, run.start, self._codec.encode(event))

    def ack(self, start: int, end: int, seq: int) -> None:
        """Ack the positions [start, end) whole, one record for each block."""
        for data, position in self.encoded_acks(start, end, seq):
            self._send(self._names.ack, position, data)

    def encoded_acks(
        self, start: int, end: int, seq: int, *, packed: bool = False
    ) -> Iterator[tuple[bytes, int]]:
        """Yield (record, a position in it) for each block of [start, end).

        Args:
            start: first position.
            end: position behind the last.
            seq: the records' sequence number.
            packed: name every root by itself, with the value that completes it, instead of as a run.
        """
        s = self._session
        for run in cut(self.source, start, end, WIRE_BLOCK_BITS):
            runs: tuple[PositionRun, ...] = (PositionRun(run.start, run.end),)
            at = values = b""
            if packed:
                runs = ()
                at = pack_positions(np.arange(run.start, run.end, dtype=np.int64))
                values = pack_values(root_edges_of_run(run.source, run.start, run.end))
            event = Acks(
                f"bench/{s.name}", seq, s.group, s.name, s.epoch, run.source, run.start >> WIRE_BLOCK_BITS,
                runs, at, values, (), b"", 0,
            )  # fmt: skip
            yield self._codec.encode(event), run.start

    def send_encoded(self, records: Sequence[tuple[bytes, int]]) -> None:
        """Send records that `encoded_acks` made."""
        for data, position in records:
            self._send(self._names.ack, position, data)

    def flush(self) -> None:
        """Wait until everything is durable."""
        self._producer.flush(FLUSH_MS_MAX)

    def close(self) -> None:
        """Leave."""
        self._producer.close()

    def _send(self, topic: str, position: int, data: bytes) -> None:
        partition = acker_partition(self.source, position, self._partitions)
        self._producer.send(Outgoing(topic, partition, data))


def cut(source: int, start: int, end: int, bits: int) -> Iterator[SourceRun]:
    """Cut positions [start, end) at multiples of 2^bits."""
    while start < end:
        stop = min(end, ((start >> bits) + 1) << bits)
        yield SourceRun(source, start, stop)
        start = stop
