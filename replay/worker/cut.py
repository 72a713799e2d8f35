"""Copies whose transaction failed: a part of them may be committed all the same.

A request to commit that was delayed on its way ends the next transaction early
(`acker.service.partition`): it *cuts* that transaction in two. If it comes
among the copies, those before it are committed, and the rest is refused: the
roots of all of them still wait in `_ack_due`. So before such a root gets a
copy, the worker looks for the one that it wrote first; and likewise for dead
letters, which are called copies here, too.

It looks only after a transaction that failed, and only from the end of the
topic on that it recorded before it wrote. In doubt it writes a second copy: a
copy too many is better than a lost record. Another worker that becomes the
owner meanwhile does not know of these copies, and writes them again.
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
    """A copy, or a dead letter: then `dead` is why it is one; of a copy it is None."""

    record: Outgoing
    dead: DeadReason | None

    @property
    def place(self) -> TopicPartition:
        """Return the partition to which it was sent."""
        return TopicPartition(self.record.topic, self.record.partition)


_Content = tuple[bytes | None, Headers]
"""Key and headers of a record: by these a copy is known again. Its headers have its origin and attempt."""


class DoubtfulCopy(NamedTuple):
    """A copy that may be committed; if it is, then at `first_offset` of its partition or behind it."""

    copy: SentCopy
    first_offset: int


ENDS_MS: Final = 10_000
"""The ends of topics are asked for again before copies are written, if they were asked for longer ago.

To ask takes 2 ms each time. With an older end, a look for copies has more to
read.
"""


class CutCopies:
    """What one verdict partition knows of copies whose transactions failed.

    It outlives `VerdictPartition`, which is made anew after each of them.
    Copies are kept without values.
    """

    def __init__(self) -> None:
        """Begin with no copy in doubt."""
        # where each topic partition ended, as the broker was asked at
        # `_ends_read_ms`, wall time
        self._ends: dict[TopicPartition, int] = {}
        self._ends_read_ms = 0
        # by their roots, which wait in `_ack_due`: copies that may be in the
        # log, and those that were found there
        self._doubtful: dict[Root, DoubtfulCopy] = {}
        self._committed: dict[Root, SentCopy] = {}

    def forget_done(self, table: DueTable) -> None:
        """Forget the roots that wait no more; `table` has those that do."""
        if not self._doubtful and not self._committed:
            return
        waiting = table.among({*self._doubtful, *self._committed})
        for root in self._doubtful.keys() - waiting:
            del self._doubtful[root]
        for root in self._committed.keys() - waiting:
            del self._committed[root]

    def record_ends(self, log: Log, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        """Record where some partitions end, before copies are written to them.

        The broker is asked only for ends that are older than `ENDS_MS`, or not
        known.
        """
        # abs: a clock that was set back must not keep old ends for long
        if abs(now_ms - self._ends_read_ms) >= ENDS_MS:
            self._ends = {}
            self._ends_read_ms = now_ms
        unknown = list(set(partitions) - self._ends.keys())
        if unknown:
            self._ends.update(log.ends(unknown))

    def record_unsure(self, copies: Iterable[tuple[Root, SentCopy]]) -> None:
        """Record the copies of a transaction that was not committed, or only perhaps."""
        for root, copy in copies:
            # key and headers are enough to know it again, and a value may have
            # a megabyte
            without_value = copy._replace(record=copy.record._replace(value=None))
            self._doubtful[root] = DoubtfulCopy(without_value, self._ends[copy.place])
        self._ends = {}  # so that a later search does not begin before these copies

    def forget_committed(self, roots: Iterable[Root]) -> None:
        """Forget roots whose tombstones are committed."""
        if self._committed:
            for root in roots:
                self._committed.pop(root, None)

    def find_committed(
        self, log: Log, wait_ms: int, note_operation: Callable[[str], None]
    ) -> Mapping[Root, SentCopy]:
        """Search the topics for the doubtful copies; return all that are known to be committed, by
        root.

        Their roots wait in `_ack_due` nevertheless. Afterwards no copy is in
        doubt any more: of a partition that cannot be read each root gets a
        second copy.

        `wait_ms` is how long the broker may send nothing.
        """
        # by partition: the root of each copy, by the copy's key and headers
        roots_by_partition: dict[TopicPartition, dict[_Content, Root]] = {}
        for root, doubtful in self._doubtful.items():
            record = doubtful.copy.record
            root_by_content = roots_by_partition.setdefault(doubtful.copy.place, {})
            root_by_content[record.key, record.headers] = root
        for place, root_by_content in roots_by_partition.items():
            first_offset = min(self._doubtful[root].first_offset for root in root_by_content.values())
            try:
                start = max(first_offset, log.starts([place])[place])
                end = log.ends([place])[place]
                records = read_piece(
                    log,
                    place,
                    start,
                    end,
                    committed=True,
                    wait_ms=wait_ms,
                    alive=lambda: note_operation("looking for copies of a transaction that was refused"),
                )
                for record_read in records:
                    committed_root = root_by_content.get((record_read.key, record_read.headers))
                    if committed_root is not None:
                        self._committed[committed_root] = self._doubtful[committed_root].copy
            except (ConfigError, Damaged, OutOfRange, Unreachable):
                continue  # what is committed there is not known: a second copy is written
        self._doubtful = {}
        return self._committed
