"""Fetches single records by topic, partition and offset.

The wanted offsets of a partition are read in segments: a gap of less than 64 KB between two of them is read
through, a larger one is skipped. Reading stops at the last wanted offset. An offset without a record is
answered with why there is none; what does not fit into the bytes of one call is not answered, and asked for
again.

Source: DESIGN.md, section 5.4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from acker.errors import OutOfRange, Unreachable
from acker.log import Log, Reader, Record, TopicPartition
from replay.copies import RECORD_OVERHEAD_BYTES
from replay.limits import ReplayLimits

_POLL_MS: Final = 100
_POLL_RECORDS: Final = 500
_TRIES: Final = 3


class Wanted(NamedTuple):
    """One record of a log."""

    topic: str
    partition: int
    offset: int


class Absence(Enum):
    """Why there is no record at an offset.

    ``GONE``
        The log no longer holds it, or has not come so far: retention, compaction, a topic that was cut.
    ``NEVER``
        There has been none: the offset is that of a transaction's marker, or of a record that was aborted.
        In a compacted topic nobody can tell that from a record that was compacted away, which is GONE.
    """

    GONE = "gone"
    NEVER = "never"


Answers = Mapping[Wanted, Record | Absence]


def record_bytes(record: Record) -> int:
    """Return the size of a record: key, value, headers and overhead."""
    headers = sum(len(name) + len(value or b"") + 4 for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + RECORD_OVERHEAD_BYTES


def segments(offsets: Iterable[int], gap_max: int) -> deque[deque[int]]:
    """Split ascending, distinct offsets wherever more than `gap_max` unwanted ones lie between two."""
    found: deque[deque[int]] = deque()
    for offset in offsets:
        if found and offset - found[-1][-1] - 1 <= gap_max:
            found[-1].append(offset)
        else:
            found.append(deque([offset]))
    return found


class Fetcher:
    """Fetches records, with one reader that it keeps."""

    def __init__(self, log: Log, limits: ReplayLimits) -> None:
        """Prepare to fetch from a log; nothing is opened before the first fetch."""
        self._log = log
        self._limits = limits
        self._reader: Reader | None = None
        # The first guess at a record's size; later ones are the mean of what the last fetch read.
        self._mean_bytes = 1_024

    def fetch(self, wanted: Iterable[Wanted]) -> Answers:
        """Read committed records.

        Returns:
            For each answered one the record, or why there is none. At least one is answered if any is
            wanted.

        Raises:
            Unreachable: the broker sent nothing for `fetch_patience_ms`.
        """
        targets = sorted(set(wanted))
        for _ in range(_TRIES):
            try:
                return self._fetch(targets) if targets else {}
            except OutOfRange:
                continue  # retention passed a wanted offset after the log starts were asked: ask again
            finally:
                if self._reader is not None:
                    self._reader.assign({})
        raise Unreachable(f"{targets[0].topic} loses records faster than they are fetched")

    def close(self) -> None:
        """Leave."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _fetch(self, targets: list[Wanted]) -> Answers:
        if self._reader is None:
            self._reader = self._log.reader(committed=True)
        run = _Run(self._reader, self._plan(targets))
        patience_ms = self._limits.fetch_patience_ms
        while run.segments and run.kept_bytes < self._limits.fetch_bytes_max:
            if run.read():
                patience_ms = self._limits.fetch_patience_ms
                continue
            patience_ms -= _POLL_MS
            if patience_ms < 0:
                raise Unreachable(
                    f"no record of {', '.join(sorted({name.topic for name in run.segments}))} was sent within"
                    f" {self._limits.fetch_patience_ms} ms; check that the broker leads its partitions"
                )
        if run.read_records:
            self._mean_bytes = max(1, run.read_bytes // run.read_records)
        answers: dict[Wanted, Record | Absence] = dict.fromkeys(targets, Absence.GONE)
        for left in run.unread():
            del answers[left]
        holes = (run.wanted & answers.keys()) - run.found.keys()
        return {**answers, **dict.fromkeys(self._never(holes), Absence.NEVER), **run.found}

    def _never(self, holes: Collection[Wanted]) -> list[Wanted]:
        """Return those of the offsets inside a log, but without a record, that never had one."""
        infos = self._log.topics({hole.topic for hole in holes}) if holes else {}
        kept = {
            name for name, info in infos.items() if "compact" not in info.settings.get("cleanup.policy", "")
        }
        return [hole for hole in holes if hole.topic in kept]

    def _plan(self, targets: list[Wanted]) -> dict[TopicPartition, deque[deque[int]]]:
        """Leave out what lies outside the log: it is answered by its absence."""
        names = {TopicPartition(target.topic, target.partition) for target in targets}
        starts, ends = self._log.starts(names), self._log.stable_ends(names)
        offsets: dict[TopicPartition, list[int]] = {}
        for topic, partition, offset in targets:
            name = TopicPartition(topic, partition)
            if starts[name] <= offset < ends[name]:
                offsets.setdefault(name, []).append(offset)
        gap_max = self._limits.fetch_gap_bytes // self._mean_bytes
        return {name: segments(wanted, gap_max) for name, wanted in offsets.items()}


class _Run:
    """One fetch under way: what is still to be read of each partition, and what was found."""

    def __init__(self, reader: Reader, planned: dict[TopicPartition, deque[deque[int]]]) -> None:
        self.segments = planned
        self.found: dict[Wanted, Record] = {}
        self.kept_bytes = 0
        self.read_bytes = 0
        self.read_records = 0
        self._reader = reader
        self._positions = {name: parts[0][0] for name, parts in planned.items()}
        self.wanted = {
            Wanted(*name, offset) for name, parts in planned.items() for part in parts for offset in part
        }
        reader.assign(self._positions)

    def read(self) -> bool:
        """Poll once; False when nothing moved."""
        for record in self._reader.poll(_POLL_MS, _POLL_RECORDS):
            size = record_bytes(record)
            self.read_bytes += size
            self.read_records += 1
            place = Wanted(record.topic, record.partition, record.offset)
            if place in self.wanted:
                self.found[place] = record
                self.kept_bytes += size
        return self._settle()

    def unread(self) -> Iterable[Wanted]:
        """Name what was not come to."""
        return [
            Wanted(*name, offset)
            for name, parts in self.segments.items()
            for part in parts
            for offset in part
            if Wanted(*name, offset) not in self.found
        ]

    def _settle(self) -> bool:
        """Drop what the reader has passed, and let it jump over large gaps and leave finished partitions."""
        moved = jumps = False
        for name in list(self.segments):
            parts = self.segments[name]
            position = self._reader.position(name)
            moved |= position != self._positions[name]
            self._positions[name] = position
            while parts[0] and parts[0][0] < position:
                parts[0].popleft()
            if not parts[0]:
                parts.popleft()
                jumps = True
                if not parts:
                    del self.segments[name], self._positions[name]
                elif parts[0][0] > position:
                    self._positions[name] = parts[0][0]
        if jumps:
            self._reader.assign(self._positions)
        return moved
