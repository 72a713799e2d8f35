"""Copies whose transaction failed: a part of them may be committed all the same.

A request to commit that was delayed on its way ends the next transaction early
(`acker.service.partition`): it *cuts* that transaction in two. If it comes
among the copies, those before it are committed, and the rest is refused: the
roots of all of them still wait in `_ack_due`. So before such a root gets a
copy, the worker searches for the one that it wrote first; and likewise for dead
letters, which are called copies here, too.

It searches only after a transaction that failed, and only from the end of the
topic on that it recorded before it wrote. In doubt it writes a second copy: a
copy too many is better than a lost record. Another worker that becomes the
owner meanwhile does not know of these copies, and writes them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from acker.errors import ConfigError, Damaged, OutOfRange, Unreachable
from acker.identity import Root
from acker.kafka.port import Headers, Log, Outgoing, TopicPartition
from acker.kafka.read_to_end import read_piece
from replay.policy.disposition import DeadReason
from replay.worker.waiting import DueTable


class SentCopy(NamedTuple):
    """A copy, or a dead letter, that was sent to the broker.

    `dead_reason` is why a dead letter is one; None: it is a copy.
    """

    record: Outgoing
    dead_reason: DeadReason | None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition to which it was sent."""
        return TopicPartition(self.record.topic, self.record.partition)


_KeyAndHeaders = tuple[bytes | None, Headers]
"""By these a copy is known again: its headers have its origin and attempt."""


class DoubtfulCopy(NamedTuple):
    """A copy that may be committed: if it is, at `first_offset` of its partition or behind it."""

    copy: SentCopy
    first_offset: int


ENDS_VALID_MS: Final = 10_000
"""The ends of topics are asked for again before copies are written, if they were asked for longer ago.

To ask takes 2 ms each time. With an older end, a search for copies has more to
read.
"""


class CutCopies:
    """What one verdict partition knows of copies whose transactions failed, by their roots.

    A copy is *doubtful* until somebody has searched for it in the log. It outlives
    `VerdictPartition`, which is made anew after each transaction that fails.
    """

    def __init__(self) -> None:
        """Begin with no copy in doubt."""
        # where each topic partition ended when the broker was asked last, at
        # `_ends_read_at_ms`, wall time
        self._end_by_partition: dict[TopicPartition, int] = {}
        self._ends_read_at_ms = 0
        # by their roots, which wait in `_ack_due`: copies that may be in the
        # log, and those that were found there; without their values
        self._doubtful_by_root: dict[Root, DoubtfulCopy] = {}
        self._committed_by_root: dict[Root, SentCopy] = {}

    def forget_all_but_waiting(self, table: DueTable) -> None:
        """Forget the copies of roots that wait no more; `table` has those that do."""
        if not self._doubtful_by_root and not self._committed_by_root:  # the usual case
            return
        waiting = table.among({*self._doubtful_by_root, *self._committed_by_root})
        for root in self._doubtful_by_root.keys() - waiting:
            del self._doubtful_by_root[root]
        for root in self._committed_by_root.keys() - waiting:
            del self._committed_by_root[root]

    def record_ends(self, log: Log, partitions: Iterable[TopicPartition], now_ms: int) -> None:
        """Record where some partitions end before copies are written there.

        A search for these copies begins at the recorded end. The broker has to
        answer only if no end is recorded, or if the recorded ones are older
        than `ENDS_VALID_MS`.
        """
        # abs: a clock that was set back must not keep old ends for long
        if abs(now_ms - self._ends_read_at_ms) >= ENDS_VALID_MS:
            self._end_by_partition = {}
            self._ends_read_at_ms = now_ms
        without_end = list(set(partitions) - self._end_by_partition.keys())
        if without_end:
            self._end_by_partition.update(log.ends(without_end))

    def record_doubtful(self, copies: Iterable[tuple[Root, SentCopy]]) -> None:
        """Record copies that a failed transaction sent: they may be committed.

        `record_ends` was called for their partitions before they were sent.
        """
        for root, copy in copies:
            # the search compares key and headers; the value is left out, since it
            # may have a megabyte
            without_value = copy._replace(record=copy.record._replace(value=None))
            first_offset = self._end_by_partition[copy.topic_partition]
            self._doubtful_by_root[root] = DoubtfulCopy(without_value, first_offset)
        # the recorded ends lie before these copies: the next copies must not be
        # searched for from there, so the ends are fetched again before those
        self._end_by_partition = {}

    def forget_committed(self, roots: Iterable[Root]) -> None:
        """Forget the copies of roots whose tombstones are committed."""
        if self._committed_by_root:
            for root in roots:
                self._committed_by_root.pop(root, None)

    def find_committed(
        self, log: Log, wait_ms: int, note_operation: Callable[[str], None]
    ) -> Mapping[Root, SentCopy]:
        """Search the topics for the doubtful copies; return all that are committed, by root.

        Their roots still wait in `_ack_due`, since the tombstones were not
        committed. Afterwards no copy is doubtful any more: a root whose copy is
        not in the log, or whose partition cannot be read, gets a second copy.

        `wait_ms` is how long the broker may send nothing. `note_operation` is
        called with what is done now, for the watchdog.
        """
        roots_by_partition: dict[TopicPartition, list[Root]] = {}
        for root, doubtful in self._doubtful_by_root.items():
            roots_by_partition.setdefault(doubtful.copy.topic_partition, []).append(root)
        for partition, roots in roots_by_partition.items():
            # if a partition cannot be read to its end, the copies up to there
            # count, and the others are written again
            with suppress(ConfigError, Damaged, OutOfRange, Unreachable):
                self._search_partition(log, partition, roots, wait_ms, note_operation)
        self._doubtful_by_root = {}
        return self._committed_by_root

    def _search_partition(
        self,
        log: Log,
        partition: TopicPartition,
        roots: Sequence[Root],
        wait_ms: int,
        note_operation: Callable[[str], None],
    ) -> None:
        """Record which doubtful copies of some roots are committed in a partition.

        Raises `ConfigError`, `Damaged`, `OutOfRange` or `Unreachable`: the
        partition cannot be read, or not to its end.
        """
        root_by_key_and_headers: dict[_KeyAndHeaders, Root] = {}
        for root in roots:
            sent_record = self._doubtful_by_root[root].copy.record
            root_by_key_and_headers[sent_record.key, sent_record.headers] = root
        first_offset = min(self._doubtful_by_root[root].first_offset for root in roots)
        operation = "looking for copies of a transaction that was refused"
        records = read_piece(
            log,
            partition,
            max(first_offset, log.starts([partition])[partition]),
            log.ends([partition])[partition],
            committed=True,
            wait_ms=wait_ms,
            report_alive=lambda: note_operation(operation),
        )
        for record in records:
            root_of_copy = root_by_key_and_headers.get((record.key, record.headers))
            if root_of_copy is not None:
                self._committed_by_root[root_of_copy] = self._doubtful_by_root[root_of_copy].copy
