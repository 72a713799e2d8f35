"""Follows partitions from their log start, or from given offsets: each look reads what came since, within a
bound.

Source: docs/design/protocol.md, section 3 rule 10.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from acker.errors import OutOfRange
from acker.kafka.port import Log, Record, TopicPartition

PATIENCE_MS: Final = 5_000
"""Nothing may come for so long before a look ends early."""

POLL_MS: Final = 100

READ_MAX: Final = 1_000_000
"""Records that one look reads; with more the counts are unknown until a further look has read them."""


class Follower:
    """Reads records of some partitions, in order, once each."""

    def __init__(
        self, log: Log, places: Sequence[TopicPartition], read_max: int = READ_MAX, *,
        first: Mapping[TopicPartition, int] | None = None, committed: bool = True,
        patience_ms: int = PATIENCE_MS,
    ) -> None:  # fmt: skip
        """Begin.

        Args:
            log: the cluster.
            places: the partitions.
            read_max: records that one look reads at most.
            first: where to begin in each; None: at the log starts.
            committed: whether only committed records count, and an open transaction holds back what follows.
            patience_ms: a look ends early when nothing comes for so long.
        """
        self._log = log
        self._read_max = read_max
        self._patience_ms = patience_ms
        self._reader = log.reader(committed=committed)
        self._ends = log.stable_ends if committed else log.ends
        self._at: dict[TopicPartition, int] = dict(log.starts(places) if first is None else first)
        self._reader.assign(self._at)
        self.is_whole = False

    def look(self) -> Iterator[Record]:
        """Yield what came since the last look; `is_whole` tells afterwards whether that was all.

        Raises:
            Unreachable: the broker does not answer.
        """
        self.is_whole = False
        ends = self._ends(self._at)
        poll_ms = min(POLL_MS, self._patience_ms)
        left, idle_ms = self._read_max, 0
        while any(self._reader.position(place) < end for place, end in ends.items()):
            if left <= 0 or idle_ms >= self._patience_ms:
                return
            try:
                records = self._reader.poll(poll_ms, min(left, 1_000))
            except OutOfRange:
                # What was deleted under us is gone for every reader: go on where the log begins now.
                starts = self._log.starts(self._at)
                self._reader.assign({p: max(starts[p], self._reader.position(p)) for p in self._at})
                records = ()
            left -= len(records)
            idle_ms = 0 if records else idle_ms + poll_ms
            yield from records
        self.is_whole = True

    def close(self) -> None:
        """Leave."""
        self._reader.close()
