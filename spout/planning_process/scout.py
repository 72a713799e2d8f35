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
from spout.group.announce import Sightings, SightRequest
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
    """What is known of a partition: which offsets in [start, seen_to) hold a record.

    Attributes:
        offsets: those that do, ascending.
        missed_plannings: how many plannings have waited, one after another, and learnt nothing.
        is_unreadable: whether the partition cannot be read here: then nothing more will be known.
    """

    start: int
    seen_to: int
    offsets: list[int] = field(default_factory=list)
    missed_plannings: int = 0
    is_unreadable: bool = False

    def can_show(self, offset: int) -> bool:
        """Return whether it shows an offset, or will once its reader has come there.

        A blank one, whose reader is on its way through a hole, will show all offsets behind its
        start.
        """
        return self.start <= offset <= self.seen_to or (self.start <= offset and self.is_blank)

    @property
    def is_blank(self) -> bool:
        """Whether nothing has come yet."""
        return self.seen_to == self.start and not self.is_unreadable

    def forget_below(self, start: int) -> None:
        """Drop what is below an offset, if the view has come as far as that."""
        if self.start < start <= self.seen_to:
            self.start = start
            self.offsets = [offset for offset in self.offsets if offset >= start]

    def has_enough(self, request: SightRequest) -> bool:
        """Return whether there is no need to read on for a request: enough is known, or no more can be."""
        if self.is_unreadable or self.seen_to >= request.end or len(self.offsets) >= request.record_count:
            return True
        offset_count = self.seen_to - self.start
        record_count = len(self.offsets)
        empty_count = offset_count - record_count
        # of 100 offsets 10 may be empty: then each one behind them counts as a record
        is_dense = empty_count * SPARSE_SHARE <= offset_count
        return record_count >= SAMPLE_MIN and is_dense

    def add(self, offsets: Sequence[int], position: int) -> bool:
        """Add the records that were read up to the reader's position.

        Return whether that has moved on.
        """
        has_moved = position > self.seen_to
        if has_moved:
            self.missed_plannings = 0
        self.offsets += offsets
        self.seen_to = max(self.seen_to, position)
        return has_moved

    def as_sighting(self) -> Sighting:
        """Return what is known, by offsets of the partition."""
        return Sighting(self.start, self.seen_to, np.array(self.offsets, np.int64))


class Scout:
    """Looks ahead with a reader of its own; implements `spout.group.announce.Sight`."""

    def __init__(self, log: Log) -> None:
        """Begin without a reader; the first look opens one."""
        self._log = log
        self._reader: OffsetReader | None = None
        self._view_by_partition: dict[TopicPartition, _View] = {}
        # those that the reader reads for now
        self._assigned_views: dict[TopicPartition, _View] = {}
        self._blind_plannings_left = 0  # how many plannings still go without a look, after an error

    def find_records(self, requests: Mapping[TopicPartition, SightRequest]) -> Sightings:
        """Look as far as it is cheap; return what was seen, and partitions of which more will be
        known soon.

        Nothing is returned of partitions behind the first `PLACES_MAX`, and for some plannings
        after an error of the broker.
        """
        if self._blind_plannings_left:
            self._blind_plannings_left -= 1
            return Sightings({}, awaited=())
        served = dict(islice(requests.items(), PLACES_MAX))
        for place, request in served.items():
            self._move_view(place, request.start)
        try:
            awaited = self._read_until_enough(served)
        except WindhoverError:
            self._stop_looking()
            return Sightings({}, awaited=())
        by_partition = {place: self._view_by_partition[place].as_sighting() for place in served}
        return Sightings(by_partition, awaited)

    def fetch_ahead(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        """Begin to fetch partitions from these offsets on, and no others; without waiting."""
        offset_by_place = dict(islice(next_offsets.items(), PLACES_MAX))
        for place, offset in offset_by_place.items():
            self._move_view(place, offset)
        self._view_by_partition = {place: self._view_by_partition[place] for place in offset_by_place}
        if self._blind_plannings_left or (self._reader is None and not offset_by_place):
            return
        try:
            # a read that does not wait has the client fetch
            self._read(self._assign(offset_by_place), POLL_RECORDS_MAX, wait_ms=0)
        except WindhoverError:
            self._stop_looking()

    def close(self) -> None:
        """Close the reader, and forget all views; a later look opens a new one."""
        self._view_by_partition = {}
        if self._reader is not None:
            self._reader.close()
        self._reader = None

    def _stop_looking(self) -> None:
        """Close the reader, and look at nothing in the next plannings: the broker does not answer,
        say.

        Read tasks report that.
        """
        self.close()
        self._blind_plannings_left = PATIENCE

    def _move_view(self, place: TopicPartition, offset: int) -> None:
        """Have the view of a partition begin at an offset: a new view, if the present one cannot
        show it.
        """
        view = self._view_by_partition.get(place)
        if view is None or not view.can_show(offset):
            self._view_by_partition[place] = _View(start=offset, seen_to=offset)
        else:
            view.forget_below(offset)

    def _assign(self, places: Collection[TopicPartition]) -> OffsetReader:
        """Assign the reader these partitions, each from where its view ends; return the reader.

        The first call opens it. Partitions that cannot be read are left out.
        """
        if self._reader is None:
            self._reader = self._log.offset_reader()
        self._assigned_views = {}
        for place in places:
            view = self._view_by_partition[place]
            if not view.is_unreadable:
                self._assigned_views[place] = view
        self._reader.assign({place: view.seen_to for place, view in self._assigned_views.items()})
        return self._reader

    def _read_until_enough(self, requests: Mapping[TopicPartition, SightRequest]) -> list[TopicPartition]:
        """Read until enough is known of partitions, or it takes too long.

        Return those to wait for, from which nothing came: planning leaves them out, `PATIENCE`
        times at most.
        """
        waited_ms = 0  # only reads that brought nothing count
        records_left = RECORDS_MAX
        unfinished = self._places_with_too_little(requests)
        while unfinished and records_left > 0 and waited_ms < self._time_to_wait_ms(requests, unfinished):
            read_count = self._read(self._assign(unfinished), POLL_RECORDS_MAX, POLL_MS)
            records_left -= read_count
            if not read_count:
                waited_ms += POLL_MS
            unfinished = self._places_with_too_little(requests)
        for place in unfinished:
            if self._view_by_partition[place].is_blank:
                self._view_by_partition[place].missed_plannings += 1
        awaited: list[TopicPartition] = []
        for place in unfinished:
            missed_plannings = self._view_by_partition[place].missed_plannings
            # 0: something has come; it is planned, and each position behind it counts as a record
            if 0 < missed_plannings <= PATIENCE:
                awaited.append(place)
        return awaited

    def _places_with_too_little(
        self, requests: Mapping[TopicPartition, SightRequest]
    ) -> list[TopicPartition]:
        """Return the partitions of which not enough is known for their requests."""
        return [
            place
            for place, request in requests.items()
            if not self._view_by_partition[place].has_enough(request)
        ]

    def _time_to_wait_ms(
        self, requests: Collection[TopicPartition], unfinished: Collection[TopicPartition]
    ) -> int:
        """Return how long a planning waits: long for a first answer, or if there is nothing else to
        plan.

        `requests` are all partitions that are looked at, `unfinished` those that are still read.
        """
        blank = [
            self._view_by_partition[place] for place in unfinished if self._view_by_partition[place].is_blank
        ]
        is_first_wait = any(not view.missed_plannings for view in blank)
        are_all_blank = len(blank) == len(requests)
        has_nothing_else = are_all_blank and all(view.missed_plannings < PATIENCE for view in blank)
        return WAIT_MS if is_first_wait or has_nothing_else else POLL_MS

    def _read(self, reader: OffsetReader, records_max: int, wait_ms: int) -> int:
        """Read once into the assigned views.

        Return how many records came, 1 at least if anything is new.
        """
        views = self._assigned_views
        try:
            offsets_by_partition = reader.offsets(wait_ms, records_max)
        except WindhoverError:
            # an error of some partitions ends their views alone; any other one is the caller's
            troubled = [views[place] for place in reader.troubled if place in views]
            if not troubled:
                raise
            for view in troubled:
                view.is_unreadable = True
            return 1
        moved_count = 0
        for place, view in views.items():
            has_moved = view.add(offsets_by_partition.get(place, ()), reader.position(place))
            if has_moved:
                moved_count += 1
        # a view that moved over markers alone has learnt something, too
        record_count = sum(map(len, offsets_by_partition.values()))
        return max(record_count, moved_count)
