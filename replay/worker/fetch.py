"""Fetches single records by topic, partition and offset.

A gap between two wanted offsets of a partition is read through when it is smaller than 64 KB, by the mean
size of what was read, and a larger one is jumped over. Reading stops at the last wanted offset. An offset
without a record is answered with why there is none; what does not fit into the bytes of one call is not
answered, and asked for again.

Source: docs/design/protocol.md, section 5.4.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from operator import itemgetter
from typing import Final, NamedTuple

from acker.config.limits import ReplayLimits
from acker.errors import OutOfRange, TopicError, Unreachable
from acker.kafka.port import RECORD_OVERHEAD_BYTES, Log, Picker, Record, TopicPartition, record_bytes
from acker.made import made

_POLL_MS: Final = 100
_PICK_RECORDS: Final = 5_000
_PICK_FIRST: Final = 500
"""So many are read before the mean size of a record is known."""

_TRIES: Final = 3

_PLACE: Callable[[Record], tuple[str, int, int]] = itemgetter(0, 1, 2)


class Wanted(NamedTuple):
    """One record of a log."""

    topic: str
    partition: int
    offset: int


_wanted = made(Wanted)


class Absence(Enum):
    """Why there is no record at an offset.

    ``GONE``
        The log no longer holds it, or has not come so far: retention, compaction, a topic that was cut.
    ``NEVER``
        There has been none: the offset is that of a transaction's marker, or of a record that was aborted.
        In a compacted topic nobody can tell that from a record that was compacted away, which is GONE. Nor
        in one that was compacted once, and is no more: who knows that there was a record says so himself
        (`replay.records.proof`).
    """

    GONE = "gone"
    NEVER = "never"


Answers = Mapping[Wanted, Record | Absence]

_Offsets = Mapping[TopicPartition, Sequence[int]]


class Fetcher:
    """Fetches records, with one picker that it keeps.

    Attributes:
        read_records: records read so far, those between the wanted ones among them.
        read_bytes: their size; of those between, key and headers are not counted.
    """

    def __init__(self, log: Log, limits: ReplayLimits) -> None:
        """Prepare to fetch from a log; nothing is opened before the first fetch."""
        self._log = log
        self._limits = limits
        self._picker: Picker | None = None
        self.read_records = 0
        self.read_bytes = 0

    def fetch(self, wanted: Iterable[Wanted], *, why: bool = True) -> Answers:
        """Read committed records.

        Args:
            wanted: which.
            why: whether to find out why there is none, for which the settings of the topic are asked, by a
                right of its own; otherwise what is missing is GONE.

        Returns:
            For each answered one the record, or why there is none. At least one is answered if any is
            wanted.

        Raises:
            Unreachable: the broker sent nothing for `fetch_patience_ms`.
        """
        targets = list(wanted)
        offsets = _by_partition(targets)
        for _ in range(_TRIES):
            try:
                return self._fetch(targets, offsets, why=why) if targets else {}
            except OutOfRange:
                continue  # retention passed a wanted offset after the log starts were asked: ask again
            finally:
                if self._picker is not None:
                    self._picker.assign({})
        raise Unreachable(f"{targets[0].topic} loses records faster than they are fetched")

    def close(self) -> None:
        """Leave."""
        if self._picker is not None:
            self._picker.close()
            self._picker = None

    def _fetch(self, targets: Sequence[Wanted], offsets: _Offsets, *, why: bool) -> Answers:
        if self._picker is None:
            self._picker = self._log.picker()
        run = _Run(self._picker, self._inside(offsets), self._limits.fetch_gap_bytes)
        patience_ms = self._limits.fetch_patience_ms
        while run.left and run.kept_bytes < self._limits.fetch_bytes_max:
            if run.read():
                patience_ms = self._limits.fetch_patience_ms
                continue
            patience_ms -= _POLL_MS
            if patience_ms < 0:
                raise Unreachable(
                    f"no record of {', '.join(sorted({name.topic for name in run.left}))} was sent within"
                    f" {self._limits.fetch_patience_ms} ms; check that the broker leads its partitions"
                )
        self.read_records += run.read_records
        self.read_bytes += run.read_bytes
        if len(run.found) == sum(map(len, offsets.values())):
            return run.found
        answers: dict[Wanted, Record | Absence] = dict.fromkeys(targets, Absence.GONE)
        for unread in run.unread():
            del answers[unread]
        answers.update(run.found)
        if why:
            answers.update(dict.fromkeys(self._never(run.holes()), Absence.NEVER))
        return answers

    def _never(self, holes: Collection[Wanted]) -> list[Wanted]:
        """Return those of the offsets inside a log, but without a record, that never had one."""
        infos = self._log.topics({hole.topic for hole in holes}, settings=True) if holes else {}
        kept = {
            name for name, info in infos.items() if "compact" not in info.settings.get("cleanup.policy", "")
        }
        return [hole for hole in holes if hole.topic in kept]

    def _existing(self, names: Collection[TopicPartition]) -> set[TopicPartition]:
        """Leave out partitions that topics do not have; of a topic that is gone, none."""
        infos = self._log.topics({name.topic for name in names})
        return {
            name for name in names if name.topic not in infos or name.partition < infos[name.topic].partitions
        }

    def _inside(self, offsets: _Offsets) -> dict[TopicPartition, Sequence[int]]:
        """Leave out what lies outside the log: it is answered by its absence."""
        names: Collection[TopicPartition] = offsets.keys()
        try:
            starts, ends = self._log.starts(names), self._log.stable_ends(names)
        except TopicError:
            names = self._existing(names)  # a root may name what never was
            starts, ends = self._log.starts(names), self._log.stable_ends(names)
        inside = {
            name: offsets[name][
                bisect_left(offsets[name], starts[name]) : bisect_left(offsets[name], ends[name])
            ]
            for name in names
        }
        return {name: found for name, found in inside.items() if found}


def _by_partition(wanted: Iterable[Wanted]) -> _Offsets:
    """Return the offsets of each partition, ascending, each once."""
    offsets: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for topic, partition, offset in wanted:
        offsets[topic, partition].append(offset)
    return {TopicPartition(*name): sorted(set(found)) for name, found in sorted(offsets.items())}


class _Run:
    """One fetch under way: what is still to be read of each partition, and what was found."""

    def __init__(self, picker: Picker, inside: _Offsets, gap_bytes: int) -> None:
        self.left = dict(inside)
        self.found: dict[Wanted, Record] = {}
        self.kept_bytes = 0
        self.read_bytes = 0
        self.read_records = 0
        self._inside = inside
        self._wanted = {name: frozenset(offsets) for name, offsets in inside.items()}
        self._picker = picker
        self._gap_bytes = gap_bytes
        self._positions = {name: offsets[0] for name, offsets in inside.items()}
        picker.assign(self._positions)

    def read(self) -> bool:
        """Read once; False when nothing moved."""
        picked = self._picker.pick(_POLL_MS, self._wanted, self._near())
        places = map(_wanted, map(_PLACE, picked.records))
        self.found.update(zip(places, picked.records, strict=True))
        picked_bytes = sum(map(record_bytes, picked.records))
        self.kept_bytes += picked_bytes
        self.read_records += picked.passed + len(picked.records)
        self.read_bytes += picked_bytes + picked.passed_bytes + picked.passed * RECORD_OVERHEAD_BYTES
        return self._settle()

    def _near(self) -> int:
        """Return how many records lie up to the last wanted ones that are near: what lies behind is left."""
        near, most = 0, _PICK_RECORDS if self.read_records else _PICK_FIRST
        for name, offsets in self.left.items():
            position = self._positions[name]
            behind = bisect_left(offsets, position + _PICK_RECORDS)
            near += offsets[behind - 1] - position + 1 if behind else _PICK_RECORDS
        return min(near, most)

    def unread(self) -> Iterable[Wanted]:
        """Name what was not come to."""
        places = (Wanted(*name, offset) for name, offsets in self.left.items() for offset in offsets)
        return [place for place in places if place not in self.found]

    def holes(self) -> Sequence[Wanted]:
        """Name the offsets that were passed without a record."""
        unread = sum(map(len, self.left.values()))
        if len(self.found) + unread == sum(map(len, self._inside.values())):
            return ()
        left = set(self.unread())
        places = [Wanted(*name, offset) for name, offsets in self._inside.items() for offset in offsets]
        return [place for place in places if place not in self.found and place not in left]

    def _settle(self) -> bool:
        """Drop what the picker has passed, and let it jump over large gaps and leave finished partitions."""
        mean_bytes = self.read_bytes / max(1, self.read_records)
        moved = jumps = False
        for name in list(self.left):
            position = self._picker.position(name)
            moved |= position != self._positions[name]
            self._positions[name] = position
            offsets = self.left[name] = self.left[name][bisect_left(self.left[name], position) :]
            if not offsets:
                del self.left[name], self._positions[name]
                jumps = True
            elif (offsets[0] - position) * mean_bytes > self._gap_bytes:
                self._positions[name] = offsets[0]
                jumps = True
        if jumps:
            self._picker.assign(self._positions)
        return moved
