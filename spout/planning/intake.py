"""Which positions of a source were never initialised, and which of them go
into the next batch; pure.

Each acker partition has its own watermark. So after a crash between the parts of one batch's Init
some blocks may be initialised although lower ones are not. The free positions below the highest
watermark are the *gaps*; they are planned before anything above it.

*Room* is how many records may be taken, of one input or in all. A source's
*share* is how many of its records there is room for.

Source: docs/design/protocol.md, sections 3 (rule 1), 4 ("Take and Taken") and
5.1 ("Planning").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from acker.identity import (
    ACKER_BLOCK_BITS,
    acker_partition,
    generation_of,
    is_replay,
    position_at,
)
from acker.kafka.port import NO_EPOCH
from acker.root_sets.position_set import PositionSet
from acker.wire.events import PositionRun
from spout.planning.journal import SourceMark
from spout.planning.supply import HOLE_MIN, HOLE_POSITIONS_MAX, Portion, Sighting, Supply

NEW_SHARE: Final = 4
"""One record in so many stays for what is new, where copies would take a batch's room, or all that
may be pending: records that always fail would else keep every other one waiting."""

_BLOCK = 1 << ACKER_BLOCK_BITS


class SourceCursor:
    """The *free* positions of one source: those that were never initialised, all from `next` on, and gaps.

    Its generation begins at `from_`.

    `leader_epoch` is an epoch of its leader in which the log had all
    positions before `next`, or `NO_EPOCH`.
    """

    __slots__ = ("_gaps", "from_", "leader_epoch", "next")

    def __init__(
        self, from_: int, next: int, gaps: PositionSet | None = None, leader_epoch: int = NO_EPOCH
    ) -> None:
        self.from_ = from_
        self.next = next
        self.leader_epoch = leader_epoch
        self._gaps = gaps if gaps is not None else PositionSet()

    @property
    def first_uninitialised(self) -> int:
        """The lowest position that was never initialised."""
        gap = self._gaps.first
        return self.next if gap is None else gap

    def position_of(self, offset: int) -> int:
        """Return the position of an offset in the cursor's generation."""
        return position_at(generation_of(self.from_), offset)

    def count_uninitialised_below(self, end: int) -> int:
        """Return how many positions below `end` are free."""
        return sum(run.end - run.start for run in self.uninitialised_runs(end))

    def uninitialised_runs(self, end: int) -> list[PositionRun]:
        """Return the free positions below `end`, ascending."""
        runs = self._gaps.within(self.from_, end)
        return [*runs, PositionRun(self.next, end)] if self.next < end else runs

    def mark_initialised(self, start: int, end: int) -> None:
        """Mark [start, end) as initialised; positions between `next` and `start` become a gap."""
        self._gaps.remove(start, min(end, self.next))
        if end > self.next:
            self._gaps.add(self.next, start)
            self.next = end

    def mark(self) -> SourceMark:
        """Return what the journal keeps of the source: what is free counts as not emitted."""
        return SourceMark(self.from_, self.next, tuple(self._gaps), self.leader_epoch)


def cursor_of(source: int, from_: int, watermarks: Mapping[int, int], partitions: int) -> SourceCursor:
    """Return the free positions of a source's highest generation, which begins at `from_`.

    `watermarks` has by acker partition its first position of the source that was never initialised.
    """
    generation = generation_of(from_)
    # a partition whose watermark is of a lower generation has initialised
    # nothing of this one
    watermark_by_partition = dict.fromkeys(range(partitions), from_)
    for partition, watermark in watermarks.items():
        if generation_of(watermark) == generation:
            watermark_by_partition[partition] = max(from_, watermark)
    highest = max(watermark_by_partition.values(), default=from_)
    # Below the lowest watermark nothing is free. A partition without a block
    # of the source keeps it low, and then the loop visits more blocks, which
    # is all that it costs.
    start = min(watermark_by_partition.values(), default=from_)
    gaps = PositionSet()
    while start < highest:
        block_end = min((start // _BLOCK + 1) * _BLOCK, highest)
        partition = acker_partition(source, start, partitions)
        # what the block's partition has initialised is not free: 0 to 4 of
        # [0, 10) if its watermark is 5
        gaps.add(max(start, watermark_by_partition[partition]), block_end)
        start = block_end
    return SourceCursor(from_, highest, gaps)


@dataclass(frozen=True, slots=True)
class Room:
    """How many records a batch may take.

    Attributes:
        total: in all, None: any number.
        by_input: of each input, by its id.
        caps: of some sources, at most.
        chosen: by source, how many copies the batch has already; they are a
            part of `total` alone.
    """

    total: int | None
    by_input: Mapping[int, int]
    caps: Mapping[int, int] = field(default_factory=dict)
    chosen: Mapping[int, int] = field(default_factory=dict)


class NewShare:
    """What stays for new records while copies compete with them for room: one
    in `NEW_SHARE` in the long run.

    Copies come first, so without it an input whose records always fail would
    emit nothing else. Room for one record cannot be divided, so what is owed
    to new records adds up: they get every fourth such room.
    """

    def __init__(self) -> None:
        self._owed = 0  # to new records, in parts of a record, of which it has `NEW_SHARE`

    def part_of(self, room: int) -> int:
        """Return how many records of a room are kept for new records; change nothing."""
        return (self._owed + room) // NEW_SHARE

    def record_share(self, room: int, new_count: int) -> None:
        """Record how many new records got a place in a room for which copies competed with them."""
        # of a room of 10 a quarter is owed, which is 10 parts; a record pays 4
        owed = self._owed + room - NEW_SHARE * new_count
        self._owed = min(max(0, owed), NEW_SHARE - 1)


class Sharing:
    """Shares the room of batches between copies and new records.

    Room is how many records a batch may have: of one input, and in all. What new records did not
    get of their part in one batch is owed to them in the next ones.
    """

    def __init__(self) -> None:
        self._batch_share = NewShare()
        self._share_by_input: dict[int, NewShare] = {}

    def share_out(
        self, count_by_source: Mapping[int, int], input_by_source: Mapping[int, int], room: Room
    ) -> dict[int, int]:
        """Share the room of a batch out.

        Copies come before new records, for which a part is kept; else sources get equal parts.

        Args:
            count_by_source: how many records there are.
            input_by_source: the id of its input.

        Returns:
            By source, those of `room.chosen` too, how many records there is
            room for; sources that get nothing are missing.
        """
        shares: dict[int, int] = {}
        for input_id, input_room in room.by_input.items():
            input_counts = _counts_of_input(count_by_source, input_by_source, input_id)
            # nothing is recorded here: an input without a batch yet is owed
            # nothing
            new_share = self._share_by_input.get(input_id) or NewShare()
            shares |= _shares_of(input_counts, input_room, new_share)
        shares |= room.chosen
        if room.total is not None:
            # what the inputs have room for competes for the batch's room
            shares = _shares_of(shares, room.total, self._batch_share)
        return dict(sorted(shares.items()))

    def record_shares(
        self,
        count_by_source: Mapping[int, int],
        input_by_source: Mapping[int, int],
        room: Room,
        share_by_source: Mapping[int, int],
    ) -> None:
        """Record the shares that `share_out` returned, once their records are planned.

        What new records did not get of their part is owed to them from now on. The first three
        arguments are those of `share_out`; `share_by_source` is what it returned.
        """
        for input_id, input_room in room.by_input.items():
            new_share = self._share_by_input.setdefault(input_id, NewShare())
            input_counts = _counts_of_input(count_by_source, input_by_source, input_id)
            _record_new(input_counts, share_by_source, input_room, new_share)
        if room.total is not None:
            # of the sources of chosen copies, these alone compete for the
            # batch's room
            batch_counts = {**count_by_source, **room.chosen}
            _record_new(batch_counts, share_by_source, room.total, self._batch_share)


def _counts_of_input(
    count_by_source: Mapping[int, int], input_by_source: Mapping[int, int], input_id: int
) -> dict[int, int]:
    """Return the counts of the sources of one input."""
    return {source: count for source, count in count_by_source.items() if input_by_source[source] == input_id}


def _shares_of(count_by_source: Mapping[int, int], room: int, new_share: NewShare) -> dict[int, int]:
    """Divide a room between copies and new records.

    Return by source how many of its records there is room for.
    """
    copies, new = _by_kind(count_by_source)
    kept_for_new = 0
    if copies and new:
        kept_for_new = min(sum(new.values()), new_share.part_of(room))
    shares_of_copies = fair_shares(copies, room - kept_for_new)
    # what copies leave goes to new records, too
    room_for_new = room - sum(shares_of_copies.values())
    return shares_of_copies | fair_shares(new, room_for_new)


def _record_new(
    count_by_source: Mapping[int, int],
    share_by_source: Mapping[int, int],
    room: int,
    new_share: NewShare,
) -> None:
    """Record in `new_share` what new records got of a room, if copies competed with them for it."""
    copies, new = _by_kind(count_by_source)
    if copies and new and sum(count_by_source.values()) > room:
        new_count = sum(share_by_source.get(source, 0) for source in new)
        new_share.record_share(room, new_count)


def _by_kind(counts: Mapping[int, int]) -> tuple[dict[int, int], dict[int, int]]:
    """Return the counts of copies, and those of new records; sources without a record are missing."""
    copies = {source: count for source, count in counts.items() if count > 0 and is_replay(source)}
    new = {source: count for source, count in counts.items() if count > 0 and not is_replay(source)}
    return copies, new


class BatchIntake:
    """What one batch takes: the supplies of sources, shared out as far as there is room.

    1. `records_to_find` returns of which sources it should be known where records are;
       `add_sightings` adds what was seen.
    2. That may change what other sources get, so ask again until it returns nothing.
    3. Call `take` once.
    """

    def __init__(
        self, supplies: Iterable[Supply], input_ids: Mapping[int, int], room: Room, sharing: Sharing
    ) -> None:
        """Begin with the free positions of each source, and share the room out.

        Args:
            supplies: one of each source.
            input_ids: by source, the id of its input.
            room: how many records the batch may take.
            sharing: divides it; `take` records there what new records are owed.
        """
        self._supplies = {supply.source: supply for supply in supplies}
        self._input_ids = input_ids
        self._room = room
        self._sharing = sharing
        self._share_out()

    @property
    def is_limited(self) -> bool:
        """Whether there may be more records than there is room for."""
        supplies = self._supplies.values()
        return any(self._shares.get(supply.source, 0) < supply.count for supply in supplies)

    @property
    def granted(self) -> int:
        """How many of the copies that the batch has already there is room for."""
        return sum(self._shares.get(source, 0) for source in self._room.chosen)

    def records_to_find(self) -> dict[int, int]:
        """Return by source how many of its next records somebody should look for.

        They are as many as there is room for. A source is missing if it is known where these are.
        """
        count_by_source: dict[int, int] = {}
        for source, supply in self._supplies.items():
            # one at least: a source without any record does not compete for room, and its empty
            # positions are passed
            count = max(1, self._shares.get(source, 0))
            if not supply.is_seen(count):
                count_by_source[source] = count
        return count_by_source

    def free(self, source: int) -> Sequence[PositionRun]:
        """Return the free positions of a source, ascending."""
        return self._supplies[source].free

    def add_sightings(self, seen: Mapping[int, Sighting], awaited: Iterable[int]) -> bool:
        """Add what was seen of sources, and share the room out anew.

        Return whether there are fewer records by that.

        Nothing is taken of the `awaited` sources, of which more will be known soon.
        """
        count_before = sum(self._counts.values())
        for source, sighting in seen.items():
            self._supplies[source] = Supply(source, self._supplies[source].free, sighting)
        for source in awaited:
            del self._supplies[source]
        self._share_out()
        return sum(self._counts.values()) < count_before

    def take(
        self, holes_left: Mapping[int, int] = MappingProxyType({}), hole_min: int = HOLE_MIN
    ) -> dict[int, Portion]:
        """Return what is taken of each source; see `Supply.take`.

        Some have a bound for their holes.
        """
        self._sharing.record_shares(self._counts, self._input_ids, self._room, self._shares)
        portions: dict[int, Portion] = {}
        for source, supply in self._supplies.items():
            share = self._shares.get(source, 0)
            portions[source] = supply.take(
                # without a record a source is empty to its end, which is
                # passed with any batch
                share if supply.count else 1,
                hole_min=hole_min,
                holes_left=holes_left.get(source, HOLE_POSITIONS_MAX),
                ends_with_block=share < self._counts[source],
            )
        return portions

    def _share_out(self) -> None:
        """Set, by source, how many records compete for the room, and how many there is room for."""
        self._counts: dict[int, int] = {}
        for source, supply in self._supplies.items():
            cap = self._room.caps.get(source, supply.count)
            self._counts[source] = min(supply.count, cap)
        self._shares = self._sharing.share_out(self._counts, self._input_ids, self._room)


def fair_shares(available: Mapping[int, int], budget: int) -> dict[int, int]:
    """Distribute a budget of records over sources in equal parts.

    None gets more than it has available.

    What cannot be divided goes to the sources that have most; of equal ones
    to those with the highest numbers. Sources that get nothing are missing.
    """
    shares: dict[int, int] = {}
    by_size = sorted((count, source) for source, count in available.items() if count > 0)
    budget_left = max(0, budget)
    # What one has too little to take goes to those behind it, which have
    # more: the last one leaves nothing. Of a budget of 10 sources with 1, 5
    # and 9 records get 1, 4 and 5.
    for rank, (count, source) in enumerate(by_size):
        sources_left = len(by_size) - rank
        shares[source] = min(count, budget_left // sources_left)
        budget_left -= shares[source]
    return {source: share for source, share in sorted(shares.items()) if share}
