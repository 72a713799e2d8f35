"""Copies of a transaction that was refused, or in doubt: a part of them may be committed all the same.

A request to commit that was delayed on its way ends the next transaction early (`acker.service.partition`).
If it comes among the copies, those before it are committed, and the rest is refused: the roots of all of them
still wait in `_ack_due`. So before such a root gets a copy, the worker looks for the one that it wrote first;
and likewise for dead letters, which are called copies here, too.

It looks only after a transaction that did not end well, and only behind an end of the topic that it noted
before it wrote. In doubt it writes a second copy: a copy too many is better than a lost record. Another
worker that becomes the owner meanwhile does not know of these copies, and writes them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from acker.errors import ConfigError, Damaged, OutOfRange, Unreachable
from acker.identity import Root
from acker.kafka.port import Headers, Log, Outgoing, TopicPartition
from acker.kafka.read_to_end import read_piece
from replay.policy.disposition import DeadReason
from replay.worker.waiting import DueTable


class SentCopy(NamedTuple):
    """A copy, or a dead letter: then `dead` is why it is one."""

    record: Outgoing
    dead: DeadReason | None

    @property
    def place(self) -> TopicPartition:
        """Return the partition to which it was sent."""
        return TopicPartition(self.record.topic, self.record.partition)


class DoubtfulCopy(NamedTuple):
    """A copy that may be committed; if it is, then at `first_offset` of its partition or behind it."""

    copy: SentCopy
    first_offset: int


ENDS_MS: Final = 10_000
"""An end that is older is asked for again before copies are written: a request takes 2 ms, and a look reads
what was written in this time and since."""


class CutCopies:
    """What one verdict partition knows of copies whose transactions did not end well.

    It outlives `VerdictPartition`, which is made anew after each of them. Copies are kept without values.
    """

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, int] = {}
        self._noted_ms = 0
        self._doubtful: dict[Root, DoubtfulCopy] = {}
        self._committed: dict[Root, SentCopy] = {}

    def keep(self, table: DueTable) -> None:
        """Forget the roots that wait no more."""
        if self._doubtful or self._committed:
            waiting = table.among({*self._doubtful, *self._committed})
            self._doubtful = {root: copy for root, copy in self._doubtful.items() if root in waiting}
            self._committed = {root: copy for root, copy in self._committed.items() if root in waiting}

    def begin(self, log: Log, places: Iterable[TopicPartition], now_ms: int) -> None:
        """Note where the partitions end to which copies are written next."""
        if abs(now_ms - self._noted_ms) >= ENDS_MS:
            self._ends, self._noted_ms = {}, now_ms
        missing = list(set(places) - self._ends.keys())
        if missing:
            self._ends.update(log.ends(missing))

    def refused(self, copies: Iterable[tuple[Root, SentCopy]]) -> None:
        """Remember the copies of a transaction that did not commit, or perhaps did not."""
        for root, copy in copies:
            # key and headers are enough to know it again, and a value may have a megabyte
            without_value = copy._replace(record=copy.record._replace(value=None))
            self._doubtful[root] = DoubtfulCopy(without_value, self._ends[copy.place])
        self._ends = {}  # so that the next look does not read what was written before

    def committed(self, roots: Iterable[Root]) -> None:
        """Forget roots whose tombstones are committed."""
        if self._committed:
            for root in roots:
                self._committed.pop(root, None)

    def find_committed(
        self, log: Log, wait_ms: int, note_operation: Callable[[str], None]
    ) -> Mapping[Root, SentCopy]:
        """Read on for the doubtful copies; return those that are committed, of roots that wait nevertheless.

        A partition that cannot be read leaves its copies in doubt: then each root gets a second copy.
        """
        sought: dict[TopicPartition, dict[tuple[bytes | None, Headers], Root]] = {}
        for root, doubtful in self._doubtful.items():
            record = doubtful.copy.record
            sought.setdefault(doubtful.copy.place, {})[record.key, record.headers] = root
        for place, root_by_content in sought.items():
            first_offset = min(self._doubtful[root].first_offset for root in root_by_content.values())
            try:
                start = max(first_offset, log.starts([place])[place])
                end = log.ends([place])[place]
                for read in read_piece(
                    log,
                    place,
                    start,
                    end,
                    committed=True,
                    wait_ms=wait_ms,
                    alive=lambda: note_operation("looking for copies of a transaction that was refused"),
                ):
                    committed_root = root_by_content.get((read.key, read.headers))
                    if committed_root is not None:
                        self._committed[committed_root] = self._doubtful[committed_root].copy
            except (ConfigError, Damaged, OutOfRange, Unreachable):
                continue  # in doubt
        self._doubtful = {}
        return self._committed
