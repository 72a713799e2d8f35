"""Drops lost roots that nobody will ever replay: ``windhover replay drop``.

A stranger may emit roots under the id of an input that he has no right to, or under one that no
input has. When they are lost, the replay workers put them aside, since they cannot know whether a
newer topics.yaml has their input. Here an operator says that none will. A root of an input's own
group is never dropped.

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

DROPPED_MAX: Final = 10_000
"""So many tombstones are written in one transaction."""


@dataclass(frozen=True, slots=True)
class StrangeRoots:
    """Roots that wait in one partition of `_ack_due`, and whose group has no right to the input's id."""

    place: TopicPartition
    roots: Sequence[Due]

    def lines(self) -> list[str]:
        """Describe them, a line for each group and topic."""
        counts = Counter((due.group, due.topic) for due in self.roots)
        lines: list[str] = []
        for (group, topic), count in sorted(counts.items()):
            place = f"{self.place.topic}/{self.place.partition}"
            strangers = f"group {UntrustedName(group)}, topic {UntrustedName(topic)}"
            lines.append(f"{place}: {count:,} of {strangers}")
        return lines


@dataclass(frozen=True, slots=True)
class Dropping:
    """Finds and drops the roots of strangers under one input id.

    Attributes:
        group: only those of this group; None: of every group but the input's
            own.
    """

    log: Log
    topics: Topics
    input_id: int
    group: str | None = None

    def find(self) -> list[StrangeRoots]:
        """Read which partitions of `_ack_due` have such roots, and return these; change nothing."""
        partitions: list[StrangeRoots] = []
        for number in range(self.topics.acker.partitions):
            strange_roots = self._read_strange_roots(number)
            if strange_roots.roots:
                partitions.append(strange_roots)
        return partitions

    def drop(self, why: str, by: str) -> int:
        """Drop the roots of strangers that wait; return how many there were.

        `why` and `by`, who drops them, are written beside each.

        Raises `Aborted` (repeat the command), `NotAuthorized` or `TopicError`
        (`_ack_due` is missing).
        """
        dropped_count = 0
        timeout_ms = self.topics.replay.limits.operation_timeout_ms
        for strange_roots in self.find():
            number = strange_roots.place.partition
            with own_partition(self.log, self.topics, number) as transactions:
                # read again, now that the replay worker is fenced: it may have
                # replayed one of them before
                roots = self._read_strange_roots(number).roots
                for begin in range(0, len(roots), DROPPED_MAX):
                    transactions.begin()
                    for due in roots[begin : begin + DROPPED_MAX]:
                        transactions.send(self._tombstone(number, due, why, by))
                    transactions.commit(timeout_ms)
                dropped_count += len(roots)
        return dropped_count

    def _tombstone(self, number: int, due: Due, why: str, by: str) -> Outgoing:
        """Return the record that removes a root from a partition, with why and by whom."""
        headers = ((WHY_HEADER, why.encode()), (BY_HEADER, by.encode()))
        return Outgoing(self.topics.ack_topics.due, number, None, root_key(due), headers)

    def _read_strange_roots(self, number: int) -> StrangeRoots:
        """Read which roots of strangers wait in a partition; it may be none."""
        entries = EntriesByRoot[Due]()
        fold = DueFold(whole_entry, entries, wants=of_input(self.input_id))
        for record in due_records(self.log, self.topics, number):
            fold.put(record)
        # topics.yaml has the id once, or not at all
        own_groups = {input.group for input in self.topics.inputs.values() if input.id == self.input_id}
        strange = [
            due
            for due in entries.waiting.values()
            if due.group not in own_groups and self.group in (None, due.group)
        ]
        return StrangeRoots(TopicPartition(self.topics.ack_topics.due, number), strange)
