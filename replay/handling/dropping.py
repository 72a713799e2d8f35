"""Drops lost roots that nobody will ever replay: ``windhover replay drop``.

A root is *foreign* if it was emitted under the id of an input by a group that is not the input's,
or under an id that no input has. When it is lost, the replay workers put it aside, since they
cannot know whether a newer topics.yaml has its input. Here an operator says that none will. A root
of an input's own group is never dropped.

This takes each partition of `_ack_due` with such roots over
(`replay.handling.due_partition`). It reads once more what waits there, now
that nobody else writes, writes a tombstone for each root, and leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from acker.config.topics import Topics
from acker.kafka.port import Log, Outgoing, TopicPartition
from acker.service.passed_over import BY_HEADER, WHY_HEADER
from acker.untrusted import UntrustedName
from replay.handling.due_partition import due_records, own_partition
from replay.records.due import Due, root_key
from replay.records.due_fold import DueFold, EntriesByRoot, of_input, whole_entry

TOMBSTONES_PER_TRANSACTION: Final = 10_000
"""So many tombstones are written in one transaction."""


@dataclass(frozen=True, slots=True)
class ForeignRoots:
    """The foreign roots that wait in one partition of `_ack_due`; there may be none."""

    due_partition: TopicPartition
    roots: Sequence[Due]

    def lines(self) -> list[str]:
        """Describe them, a line for each group and topic."""
        topic, number = self.due_partition
        count_by_group_and_topic = Counter((due.group, due.topic) for due in self.roots)
        lines: list[str] = []
        for (group, emitted_topic), count in sorted(count_by_group_and_topic.items()):
            names = f"group {UntrustedName(group)}, topic {UntrustedName(emitted_topic)}"
            lines.append(f"{topic}/{number}: {count:,} of {names}")
        return lines


@dataclass(frozen=True, slots=True)
class Dropping:
    """Finds and drops the foreign roots under one input id.

    Attributes:
        input_id: may be one that topics.yaml does not have.
        group: only roots of this group; None: of every group but the input's
            own.
    """

    log: Log
    topics: Topics
    input_id: int
    group: str | None = None

    def find(self) -> list[ForeignRoots]:
        """Return the foreign roots of each partition of `_ack_due` that has any; change nothing."""
        partitions: list[ForeignRoots] = []
        for number in range(self.topics.acker.partitions):
            foreign_roots = self._read_foreign_roots(number)
            if foreign_roots.roots:
                partitions.append(foreign_roots)
        return partitions

    def drop(self, why: str, by: str) -> int:
        """Write a tombstone for each foreign root that waits; return how many there were.

        `why` and `by`, who drops them, are written beside each.

        Raises `Aborted` (repeat the command), `NotAuthorized` or `TopicError`
        (`_ack_due` is missing).
        """
        dropped_count = 0
        timeout_ms = self.topics.replay.limits.operation_timeout_ms
        for foreign_roots in self.find():
            partition_number = foreign_roots.due_partition.partition
            with own_partition(self.log, self.topics, partition_number) as transactions:
                # read again, now that the replay worker is fenced: since find()
                # it may have replayed some of them
                roots = self._read_foreign_roots(partition_number).roots
                for chunk_start in range(0, len(roots), TOMBSTONES_PER_TRANSACTION):
                    transactions.begin()
                    for due in roots[chunk_start : chunk_start + TOMBSTONES_PER_TRANSACTION]:
                        transactions.send(self._tombstone(partition_number, due, why, by))
                    transactions.commit(timeout_ms)
                dropped_count += len(roots)
        return dropped_count

    def _tombstone(self, number: int, due: Due, why: str, by: str) -> Outgoing:
        """Return the record that removes a root from a partition, with why and by whom."""
        headers = ((WHY_HEADER, why.encode()), (BY_HEADER, by.encode()))
        return Outgoing(self.topics.ack_topics.due, number, None, root_key(due), headers)

    def _read_foreign_roots(self, number: int) -> ForeignRoots:
        """Read which foreign roots wait in a partition of `_ack_due`, by its number."""
        entries = EntriesByRoot[Due]()
        fold = DueFold(whole_entry, entries, keeps_key=of_input(self.input_id))
        for record in due_records(self.log, self.topics, number):
            fold.put(record)  # keeps in `entries` what waits
        # topics.yaml has the id once, or not at all
        inputs = self.topics.inputs.values()
        own_groups = {input.group for input in inputs if input.id == self.input_id}
        foreign = [
            due
            for due in entries.waiting.values()
            if due.group not in own_groups and self.group in (None, due.group)
        ]
        return ForeignRoots(TopicPartition(self.topics.ack_topics.due, number), foreign)
