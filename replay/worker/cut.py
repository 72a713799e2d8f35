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
from typing import Final

from acker.errors import ConfigError, Damaged, OutOfRange, Unreachable
from acker.identity import Root
from acker.kafka.port import Headers, Log, Outgoing, TopicPartition
from acker.kafka.reading import read_piece
from replay.policy.disposition import DeadReason
from replay.worker.waiting import DueTable

Written = tuple[Outgoing, DeadReason | None]
"""A copy, or a dead letter with why it is one."""

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
        self._unsure: dict[Root, tuple[Written, int]] = {}  # a copy, and an end before it
        self._there: dict[Root, Written] = {}

    def keep(self, table: DueTable) -> None:
        """Forget the roots that wait no more."""
        if self._unsure or self._there:
            waiting = table.among({*self._unsure, *self._there})
            self._unsure = {root: found for root, found in self._unsure.items() if root in waiting}
            self._there = {root: copy for root, copy in self._there.items() if root in waiting}

    def begin(self, log: Log, places: Iterable[tuple[str, int]], now_ms: int) -> None:
        """Note where the partitions end to which copies are written next."""
        if abs(now_ms - self._noted_ms) >= ENDS_MS:
            self._ends, self._noted_ms = {}, now_ms
        missing = [TopicPartition(*place) for place in set(places) - self._ends.keys()]
        if missing:
            self._ends.update(log.ends(missing))

    def refused(self, copies: Iterable[tuple[Root, Written]]) -> None:
        """Remember the copies of a transaction that did not commit, or perhaps did not."""
        for root, (copy, dead) in copies:
            first = self._ends[TopicPartition(copy.topic, copy.partition)]
            self._unsure[root] = (copy._replace(value=None), dead), first
        self._ends = {}  # so that the next look does not read what was written before

    def committed(self, roots: Iterable[Root]) -> None:
        """Forget roots whose tombstones are committed."""
        if self._there:
            for root in roots:
                self._there.pop(root, None)

    def look(self, log: Log, wait_ms: int, at: Callable[[str], None]) -> Mapping[Root, Written]:
        """Return the copies that are committed, of roots that wait nevertheless."""
        sought: dict[TopicPartition, dict[tuple[bytes | None, Headers], Root]] = {}
        for root, ((copy, _), _) in self._unsure.items():
            place = TopicPartition(copy.topic, copy.partition)
            sought.setdefault(place, {})[copy.key, copy.headers] = root
        for place, roots in sought.items():
            first = min(self._unsure[root][1] for root in roots.values())
            try:
                start, end = max(first, log.starts([place])[place]), log.ends([place])[place]
                for record in read_piece(
                    log, place, start, end, committed=True, wait_ms=wait_ms,
                    alive=lambda: at("looking for copies of a transaction that was refused"),
                ):  # fmt: skip
                    found = roots.get((record.key, record.headers))
                    if found is not None:
                        self._there[found] = self._unsure[found][0]
            except (ConfigError, Damaged, OutOfRange, Unreachable):
                continue  # in doubt
        self._unsure = {}
        return self._there
