"""Looks which of the next positions of a partition hold a record, for a batch that cannot take all of them.

Planning reads no records. Where a batch has a limit it must know how many records lie in a range: a hole of
50,000 aborted records would take fifty batches of 1,000. So where a limit binds, planning looks at what comes
next. That is cheap, since it needs little of it:

1. What follows the end of a batch is fetched while the batch runs: one answer of the broker, at most 64 KB of
   a partition or one batch of its producer. So the next planning finds it there.
2. Where nearly all of these positions hold a record, that is enough: each position behind them counts as a
   record.
3. Where many are empty, as between transactions of one record each, or in a compacted topic, it reads on
   until the records that a batch may have are counted, up to `RECORDS_MAX`.
4. Where nothing came yet, as in a hole, it waits for `WAIT_MS`. The reader goes on by itself. Until it has
   come through, nothing of this partition is planned, for `PATIENCE` plannings; others go on.

A view is a help and no condition: where it fails, positions are planned one for one, and the read task tells
what is wrong.

Source: docs/design/protocol.md, section 5.1 ("Planning").
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import numpy as np

from acker.errors import WindhoverError
from acker.kafka.port import Log, OffsetReader, TopicPartition
from spout.group.announce import Looked, SightRequest
from spout.planning.supply import Sighting

POLL_MS: Final = 20

WAIT_MS: Final = 500
"""How long one planning waits for what comes next of a partition. Meanwhile a reader passes some million
aborted records of 100 bytes. Where other partitions go on, later plannings do not wait for it again."""

RECORDS_MAX: Final = 20_000
"""Records that one look counts: some 20 to 40 ms. What a larger batch has beyond counts one for one."""

POLL_RECORDS_MAX: Final = 1_000

SPARSE_SHARE: Final = 10
"""A look reads on where more than one of so many positions is empty; else a limit is kept well enough."""

SAMPLE_MIN: Final = 20
"""Fewer records do not show whether nearly all positions hold one."""

PLACES_MAX: Final = 200
"""Partitions that are looked at in one planning, in 13 MB; the others of a batch are planned one for one."""

PATIENCE: Final = 20
"""So many plannings wait for a partition of which nothing comes: 11 s of a query that has nothing else to do.
Then its positions are planned one for one. After an error so many plannings go without a look."""


@dataclass(slots=True)
class _View:
    """What is known of a partition: which offsets in [start, to) hold a record.

    Attributes:
        offsets: those that do, ascending.
        misses: how many plannings have waited, one after another, and learnt nothing.
        is_over: whether the partition cannot be read here.
    """

    start: int
    to: int
    offsets: list[int] = field(default_factory=list)
    misses: int = 0
    is_over: bool = False

    def leads_to(self, offset: int) -> bool:
        """Return whether it shows an offset, or will once its reader has come there.

        A blank one, whose reader is on its way through a hole, leads to all offsets behind its
        start.
        """
        return self.start <= offset <= self.to or (self.start <= offset and self.is_blank)

    @property
    def is_blank(self) -> bool:
        """Whether nothing has come yet."""
        return self.to == self.start and not self.is_over

    def forget_below(self, start: int) -> None:
        """Drop what is below an offset, if the view has come as far as that."""
        if self.start < start <= self.to:
            self.start = start
            self.offsets = [offset for offset in self.offsets if offset >= start]

    def is_enough(self, request: SightRequest) -> bool:
        """Return whether there is no need to read on for a request: enough is known, or no more can be."""
        if self.is_over or self.to >= request.end or len(self.offsets) >= request.records:
            return True
        size = self.to - self.start
        records = len(self.offsets)
        # of 100 offsets 10 may be empty
        return records >= SAMPLE_MIN and (size - records) * SPARSE_SHARE <= size

    def add(self, offsets: Sequence[int], position: int) -> bool:
        """Add the records that were read up to the reader's position.

        Return whether that has moved on.
        """
        has_moved = position > self.to
        if has_moved:
            self.misses = 0
        self.offsets += offsets
        self.to = max(self.to, position)
        return has_moved

    def seen(self) -> Sighting:
        """Return what is known, by offsets."""
        return Sighting(self.start, self.to, np.array(self.offsets, np.int64))


class Scout:
    """Looks ahead with a reader of its own; implements `spout.group.announce.Sight`."""

    def __init__(self, log: Log) -> None:
        """Begin without a reader; the first look opens one."""
        self._log = log
        self._reader: OffsetReader | None = None
        self._views: dict[TopicPartition, _View] = {}
        self._assigned: dict[TopicPartition, _View] = {}  # the views that the reader reads for now
        self._rests_left = 0  # how many plannings go without a look, after an error

    def find_records(self, requests: Mapping[TopicPartition, SightRequest]) -> Looked:
        """Look as far as it is cheap; of partitions that cannot be read nothing is returned."""
        if self._rests_left:
            self._rests_left -= 1
            return Looked({}, ())
        served = dict(islice(requests.items(), PLACES_MAX))
        for place, request in served.items():
            self._move_view(place, request.start)
        try:
            waits = self._read_until_enough(served)
        except WindhoverError:
            self._rest()
            return Looked({}, ())
        return Looked({place: self._views[place].seen() for place in served}, waits)

    def fetch_ahead(self, nexts: Mapping[TopicPartition, int]) -> None:
        """Begin to fetch partitions from these offsets on, and no others; without waiting."""
        offset_by_place = dict(islice(nexts.items(), PLACES_MAX))
        for place, offset in offset_by_place.items():
            self._move_view(place, offset)
        self._views = {place: self._views[place] for place in offset_by_place}
        if self._rests_left or (self._reader is None and not offset_by_place):
            return
        try:
            # a read that does not wait has the client fetch
            self._read(self._assign(offset_by_place), POLL_RECORDS_MAX, wait_ms=0)
        except WindhoverError:
            self._rest()

    def close(self) -> None:
        """Close the reader, and forget all views; a later look opens a new one."""
        self._views = {}
        if self._reader is not None:
            self._reader.close()
        self._reader = None

    def _rest(self) -> None:
        """Look at nothing in the next plannings: the broker does not answer, say.

        Read tasks report that.
        """
        self.close()
        self._rests_left = PATIENCE

    def _move_view(self, place: TopicPartition, offset: int) -> None:
        """Have the view of a partition begin at an offset: a new view, if the present one leads not there."""
        view = self._views.get(place)
        if view is None or not view.leads_to(offset):
            self._views[place] = _View(start=offset, to=offset)
        else:
            view.forget_below(offset)

    def _assign(self, places: Collection[TopicPartition]) -> OffsetReader:
        """Assign the reader these partitions, each from where its view ends; return the reader."""
        if self._reader is None:
            self._reader = self._log.offset_reader()
        views = {place: self._views[place] for place in places}
        self._assigned = {place: view for place, view in views.items() if not view.is_over}
        self._reader.assign({place: view.to for place, view in self._assigned.items()})
        return self._reader

    def _read_until_enough(self, requests: Mapping[TopicPartition, SightRequest]) -> list[TopicPartition]:
        """Read until enough is known of partitions, or it takes too long.

        Return those to wait for, from which nothing came: planning leaves them out, `PATIENCE`
        times at most.
        """
        waited_ms = 0
        records_left = RECORDS_MAX
        unknown = self._unknown(requests)
        while unknown and records_left > 0 and waited_ms < self._patience_ms(requests, unknown):
            read_count = self._read(self._assign(unknown), POLL_RECORDS_MAX, POLL_MS)
            records_left -= read_count
            if not read_count:
                waited_ms += POLL_MS
            unknown = self._unknown(requests)
        for place in unknown:
            if self._views[place].is_blank:
                self._views[place].misses += 1
        # 0 misses: something has come, which is planned with what is unknown behind it
        return [place for place in unknown if 0 < self._views[place].misses <= PATIENCE]

    def _unknown(self, requests: Mapping[TopicPartition, SightRequest]) -> list[TopicPartition]:
        """Return the partitions of which not enough is known for their requests."""
        return [place for place, request in requests.items() if not self._views[place].is_enough(request)]

    def _patience_ms(self, requests: Collection[TopicPartition], unknown: Collection[TopicPartition]) -> int:
        """Return how long a planning waits: long for a first answer, or if there is nothing else to plan."""
        blank = [self._views[place] for place in unknown if self._views[place].is_blank]
        is_first_wait = any(not view.misses for view in blank)
        are_all_blank = len(blank) == len(requests)
        has_nothing_else = are_all_blank and all(view.misses < PATIENCE for view in blank)
        return WAIT_MS if is_first_wait or has_nothing_else else POLL_MS

    def _read(self, reader: OffsetReader, records_max: int, wait_ms: int) -> int:
        """Read once into the assigned views.

        Return how many records came, 1 at least if anything is new.
        """
        views = self._assigned
        try:
            offsets = reader.offsets(wait_ms, records_max)
        except WindhoverError:
            troubled = [views[place] for place in reader.troubled if place in views]
            if not troubled:
                raise
            for view in troubled:
                view.is_over = True
            return 1
        moved_count = 0
        for place, view in views.items():
            has_moved = view.add(offsets.get(place, ()), reader.position(place))
            moved_count += has_moved
        # a view that moved over markers alone has learnt something, too
        record_count = sum(map(len, offsets.values()))
        return max(record_count, moved_count)
