"""What a planning process writes to the ack topics: takes, inits, ticks, and what left the log.

Everything here is harmless from a zombie of the same session: a repeated init lies below the watermark, the
highest tick counts, and an absent root that is settled stays as it is. A lower session is refused.

Source: DESIGN.md, sections 4 and 5.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from acker.codec import wire_codec
from acker.events import Acks, Event, Init, Run, SourceRun, Take, TakeSource, Tick
from acker.identity import ACKER_BLOCK_BITS, WIRE_BLOCK_BITS, acker_partition
from acker.log import Log, Outgoing
from acker.settings import AckTopics
from spout.session import SessionName
from spout.sources import SourceSpec

FLUSH_MS = 30_000
"""The broker has this long to make an announcement durable before the query fails."""

INIT_RUNS_MAX = 10_000
"""Runs in one Init: at most some 300 kB."""


def pieces(runs: Iterable[SourceRun], partitions: int) -> Iterator[tuple[int, SourceRun]]:
    """Cut runs by acker partition.

    Yields:
        (acker partition, run), in the order of the runs; blocks of one partition that touch stay together.
    """
    for source, start, end in runs:
        while start < end:
            owner = acker_partition(source, start, partitions)
            stop = min(_block_end(start), end)
            while stop < end and acker_partition(source, stop, partitions) == owner:
                stop = min(_block_end(stop), end)
            yield owner, SourceRun(source, start, stop)
            start = stop


def _block_end(position: int) -> int:
    return ((position >> ACKER_BLOCK_BITS) + 1) << ACKER_BLOCK_BITS


class Announcer:
    """Writes for one group; each call returns when what it wrote is durable."""

    def __init__(self, log: Log, topics: AckTopics, group: str, partitions: int) -> None:
        """Open a producer for a group and N acker partitions."""
        self._producer = log.producer()
        self._codec = wire_codec()
        self._topics = topics
        self._group = group
        self._partitions = partitions

    def take(self, name: SessionName, now: int, sources: Sequence[TakeSource], to: Iterable[int]) -> None:
        """Announce a session to acker partitions; epoch 0 asks and changes nothing."""
        take = Take(self._group, name.id, name.epoch, now, self._partitions, tuple(sources))
        for partition in to:
            self._send(self._topics.init, partition, take)
        self._producer.flush(FLUSH_MS)

    def init(
        self, name: SessionName, now: int, wall_ms: int, runs: Iterable[SourceRun],
        specs: Mapping[int, SourceSpec],
    ) -> None:  # fmt: skip
        """Initialise ranges, one acker partition after another.

        A part is sent when the one before it is durable: should the process die in between, what is
        initialised is a prefix of the parts, and `Taken` says which.
        """
        parts: dict[tuple[int, str], list[SourceRun]] = {}
        for owner, run in pieces(runs, self._partitions):
            parts.setdefault((owner, specs[run.source].place.topic), []).append(run)
        for (owner, topic), found in sorted(parts.items()):
            spec = specs[found[0].source]
            for first in range(0, len(found), INIT_RUNS_MAX):
                init = Init(
                    self._group, name.id, name.epoch, now, wall_ms, spec.input.timeout_ms, self._partitions,
                    topic, spec.topic_id, tuple(found[first : first + INIT_RUNS_MAX]),
                )  # fmt: skip
                self._send(self._topics.init, owner, init)
                self._producer.flush(FLUSH_MS)

    def tick(self, name: SessionName, now: int, to: Iterable[int]) -> None:
        """Tell acker partitions the session's clock."""
        for partition in to:
            self._send(self._topics.init, partition, Tick(self._group, name.id, name.epoch, now))
        self._producer.flush(FLUSH_MS)

    def absent(self, name: SessionName, lane: str, seq: int, now: int, runs: Iterable[SourceRun]) -> None:
        """Contribute that the log holds no record at initialised positions.

        Args:
            name: the session.
            lane: of this process alone.
            seq: higher than at the call before.
            now: the session's clock, ms.
            runs: ascending, disjoint.
        """
        blocks: dict[tuple[int, int], list[Run]] = {}
        for source, start, end in runs:
            for block in range(start >> WIRE_BLOCK_BITS, ((end - 1) >> WIRE_BLOCK_BITS) + 1):
                low, high = block << WIRE_BLOCK_BITS, (block + 1) << WIRE_BLOCK_BITS
                blocks.setdefault((source, block), []).append(Run(max(start, low), min(end, high)))
        for (source, block), found in sorted(blocks.items()):
            acks = Acks(
                lane, seq, self._group, name.id, name.epoch, source, block,
                runs=(), positions=b"", values=b"", absent=tuple(found), touched=b"", touched_at=now,
            )  # fmt: skip
            owner = acker_partition(source, block << WIRE_BLOCK_BITS, self._partitions)
            self._send(self._topics.ack, owner, acks)
        self._producer.flush(FLUSH_MS)

    def close(self) -> None:
        """Leave."""
        self._producer.close()

    def _send(self, topic: str, partition: int, event: Event) -> None:
        self._producer.send(Outgoing(topic, partition, self._codec.encode(event)))
