"""Counts the lost roots that wait for a replay, or to become a dead letter.

Some have a record in ``_ack_due``. Roots of the latest verdicts may have none until a replay worker has taken
them over; its record ``progress`` shows how far it has.

Source: docs/design/protocol.md, section 5.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from acker.config.topics import Topics
from acker.identity import OFFSET_MAX, input_id_of, partition_of
from acker.kafka.port import Log, Record, TopicPartition
from acker.kafka.reading import read_piece
from acker.wire.causes import HELD
from acker.wire.checks import read_verdicts
from acker.wire.events import positions
from replay.records.due import Due, DueView, Pause, Progress, due_codec, parse_root_key, sound_or_none
from replay.records.headers import parse_location
from spout.runtime.follow import Follower

Place = tuple[int, int]
"""An input's id, and a partition of its topic."""


class Line(NamedTuple):
    """What waits in one partition of an ordered input.

    Attributes:
        held: how many blocked records wait behind another one.
        first: the origin of the first that waits, ``topic/partition@offset``; empty where none does.
        due_ms: wall time at which that one is replayed, or becomes a dead letter.
    """

    held: int = 0
    first: str = ""
    due_ms: int = 0


class WaitingRoots:
    """Follows `_ack_due`, and reads the verdicts that are not in it yet."""

    def __init__(self, log: Log, topics: Topics, read_max: int) -> None:
        """Begin at the log starts; a call reads at most `read_max` records, and as many of one partition."""
        numbers = range(topics.acker.partitions)
        names = topics.ack_topics
        self._log = log
        self._group = topics.acker.replay_group
        self._wait_ms = topics.replay.limits.operation_timeout_ms
        self._read_max = read_max
        self._verdicts = [TopicPartition(names.verdict, number) for number in numbers]
        self._due = Follower(log, [TopicPartition(names.due, number) for number in numbers], read_max)
        self._waiting: dict[tuple[int, bytes], Place] = {}
        self._view = DueView()
        self._ordered = frozenset(found.id for found in topics.inputs.values() if found.ordered)
        self._dues: dict[tuple[int, bytes], tuple[Place, Due]] = {}
        self._held_since = Counter[Place]()
        self._aside: dict[tuple[int, bytes], Place] = {}

    def count(self) -> Counter[Place] | None:
        """Return how many roots of each place wait; None when not all was read.

        Raises:
            Unreachable: the broker does not answer.
        """
        for record in self._due.look():
            self._put(record)
        if not self._due.is_whole:
            return None
        found = Counter(self._waiting.values())
        self._held_since.clear()
        starts, ends = self._log.starts(self._verdicts), self._log.stable_ends(self._verdicts)
        committed = self._log.committed(self._group, self._verdicts)
        for where in self._verdicts:
            progress = self._view.progress.get(where.partition) or Progress(committed.get(where, 0), 0)
            first, end = max(progress.next, starts[where]), ends[where]
            if end - first > self._read_max:
                return None
            for record in read_piece(self._log, where, first, end, committed=True, wait_ms=self._wait_ms):
                skip = progress.skip if record.offset == progress.next else 0
                lost = list(islice(_lost(record), skip, None))
                found.update(place for place, _ in lost)
                self._held_since.update(place for place, is_held in lost if is_held)
        return found

    def lines(self) -> Mapping[Place, Line]:
        """Return what waits in each partition of an ordered input, as of the last `count`."""
        found: dict[Place, Line] = {}
        for place, due in sorted(self._dues.values(), key=lambda each: _rank(each[1])):
            line = found.get(place) or Line(0, due.origin, due.due_ms)
            found[place] = line._replace(held=line.held + due.last_was_blocked)
        for place, count in self._held_since.items():
            line = found.get(place, Line())
            found[place] = line._replace(held=line.held + count)
        return found

    def aside(self) -> Mapping[Place, int]:
        """Return how many roots of each place were put aside, as of the last `count`."""
        return Counter(self._aside.values())

    def pauses(self) -> Mapping[int, Pause]:
        """Return the inputs that are paused in some partition, by id, as of the last `count`."""
        return self._view.pauses()

    def close(self) -> None:
        """Close the reader."""
        self._due.close()

    def _put(self, record: Record) -> None:
        self._view.put(record)
        root = parse_root_key(record.key)
        if root is None or record.key is None:
            return
        name = record.partition, record.key
        self._waiting.pop(name, None)
        self._aside.pop(name, None)
        self._dues.pop(name, None)
        if record.value is None:
            return
        self._waiting[name] = _place(root.source)
        if due_codec().is_aside(record.value):
            self._aside[name] = _place(root.source)
        if input_id_of(root.source) in self._ordered:
            due = sound_or_none(record)
            if isinstance(due, Due):
                self._dues[name] = _place(root.source), due


def _rank(due: Due) -> int:
    place = parse_location(due.origin)
    return OFFSET_MAX if place is None else place[2]  # a copy that was put aside: still unknown


def _lost(record: Record) -> list[tuple[Place, bool]]:
    """Return for each lost root of a verdict record, in order, its place and whether it was blocked."""
    event = read_verdicts(record.value)
    if event is None:
        return []  # the replay worker reports it
    return [
        (_place(lost.source), lost.error == HELD)
        for lost in event.lost
        for _ in range(len(positions(lost.positions)))
    ]


def _place(source: int) -> Place:
    return input_id_of(source), partition_of(source)
