"""Which positions of a source were never initialised, and which of them go
into the next batch; pure.

Each acker partition has its own watermark, and owns every Nth block of a source's positions. So
after a crash between the messages of one batch's Init some blocks may be initialised although lower
ones are not. The uninitialised positions below the highest watermark are the *gaps*; they are
planned before anything above it. A *cursor* knows all uninitialised positions of one source.

*Room* is how many records may be taken, of one input or in all. A source's
*share* is how many of its records there is room for. Its *supply* is the uninitialised positions
that a batch may take, with what was seen of them.

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
    """The positions of one source that were never initialised: all from `next` on, and the gaps
    below.

    Attributes:
        from_: the first position of its generation.
        next: the position behind the highest initialised one.
        leader_epoch: an epoch of its leader in which the log had all positions before `next`;
            `NO_EPOCH`: none is known.
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
        """Return how many positions below `end` were never initialised."""
        return sum(run.end - run.start for run in self.uninitialised_runs(end))

    def uninitialised_runs(self, end: int) -> list[PositionRun]:
        """Return the positions below `end` that were never initialised, ascending."""
        runs = self._gaps.within(self.from_, end)
        if self.next < end:
            return [*runs, PositionRun(self.next, end)]
        return runs

    def mark_initialised(self, start: int, end: int) -> None:
        """Mark [start, end) as initialised; positions between `next` and `start` become a gap."""
        self._gaps.remove(start, min(end, self.next))
        if end > self.next:
            self._gaps.add(self.next, start)
            self.next = end

    def mark(self) -> SourceMark:
        """Return what the journal keeps of it: what is uninitialised counts as not emitted."""
        return SourceMark(self.from_, self.next, tuple(self._gaps), self.leader_epoch)


def cursor_of(source: int, from_: int, watermarks: Mapping[int, int], partitions: int) -> SourceCursor:
    """Return the cursor of a source's highest generation, which begins at `from_`.

    `watermarks` has by acker partition its first position of the source that was never initialised;
    there are `partitions` of these. One that is missing has initialised nothing.
    """
    generation = generation_of(from_)
    # a partition whose watermark is of a lower generation has initialised
    # nothing of this one
    watermark_by_partition = dict.fromkeys(range(partitions), from_)
    for partition, watermark in watermarks.items():
        if generation_of(watermark) == generation:
            watermark_by_partition[partition] = max(from_, watermark)
    highest = max(watermark_by_partition.values(), default=from_)
    # Below the lowest watermark all is initialised. A partition without a
    # block of the source keeps it low, and then the loop visits more blocks,
    # which is all that it costs.
    start = min(watermark_by_partition.values(), default=from_)
    gaps = PositionSet()
    while start < highest:
        block_end = min((start // _BLOCK + 1) * _BLOCK, highest)
        partition = acker_partition(source, start, partitions)
        # the block's partition has initialised what is below its watermark:
        # with 5 the gap of [0, 10) is [5, 10)
        gaps.add(max(start, watermark_by_partition[partition]), block_end)
        start = block_end
    return SourceCursor(from_, highest, gaps)


@dataclass(frozen=True, slots=True)
class Room:
    """How many records a batch may take.

    Attributes:
        total: of all sources together; None: any number.
        by_input: of each input, by its id.
        caps: by source, how many at most; a source without one has none.
        chosen: by source, how many copies the batch has already; they take room of
            `total` alone, since `by_input` is what they leave.
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
        # in quarters of a record: what new records did not get of their share in former batches
        self._owed_quarters = 0

    def kept_in(self, room: int) -> int:
        """Return how many records of a room are kept for new records; change nothing."""
        # a quarter of the room, and what is owed: of rooms for one record each the fourth is kept
        return (self._owed_quarters + room) // NEW_SHARE

    def record_share(self, room: int, new_count: int) -> None:
        """Record how many new records got a place in a room for which copies competed with them."""
        # of a room of 10 a quarter is theirs, which is 10 quarters of a record; each that they got
        # pays 4
        owed_quarters = self._owed_quarters + room - NEW_SHARE * new_count
        # a whole record, and more than their share, are not carried over
        self._owed_quarters = min(max(0, owed_quarters), NEW_SHARE - 1)


class Sharing:
    """Shares the room of batches between copies and new records.

    Room is how many records a batch may have: of one input, and in all. What new records did not
    get of their part in one batch is owed to them in the next ones.
    """

    def __init__(self) -> None:
        self._new_share_of_batch = NewShare()
        self._new_share_by_input: dict[int, NewShare] = {}  # by input id, of those that had a batch

    def share_out(
        self, count_by_source: Mapping[int, int], input_by_source: Mapping[int, int], room: Room
    ) -> dict[int, int]:
        """Share the room of a batch out; nothing is recorded.

        Copies come before new records, for which a part is kept; else sources get equal parts.

        Args:
            count_by_source: how many records of each source compete for room.
            input_by_source: the id of its input.

        Returns:
            By source, those of `room.chosen` too, how many records there is
            room for; sources that get nothing are missing.
        """
        # 1. the room of each input
        share_by_source: dict[int, int] = {}
        for input_id, input_room in room.by_input.items():
            input_counts = _counts_of_input(count_by_source, input_by_source, input_id)
            # an input without a batch yet is owed nothing
            new_share = self._new_share_by_input.get(input_id) or NewShare()
            share_by_source |= _divide_room(input_counts, input_room, new_share)
        share_by_source |= room.chosen
        # 2. what the inputs have room for competes for the batch's room
        if room.total is not None:
            share_by_source = _divide_room(share_by_source, room.total, self._new_share_of_batch)
        return dict(sorted(share_by_source.items()))

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
            new_share = self._new_share_by_input.setdefault(input_id, NewShare())
            input_counts = _counts_of_input(count_by_source, input_by_source, input_id)
            _record_share_of_new(input_counts, share_by_source, input_room, new_share)
        if room.total is not None:
            # of the sources of chosen copies, these alone compete for the
            # batch's room
            counts = {**count_by_source, **room.chosen}
            _record_share_of_new(counts, share_by_source, room.total, self._new_share_of_batch)


def _counts_of_input(
    count_by_source: Mapping[int, int], input_by_source: Mapping[int, int], input_id: int
) -> dict[int, int]:
    """Return the counts of the sources of one input."""
    return {source: count for source, count in count_by_source.items() if input_by_source[source] == input_id}


def _divide_room(count_by_source: Mapping[int, int], room: int, new_share: NewShare) -> dict[int, int]:
    """Divide a room between copies and new records.

    Return by source how many records it has room for.

    `count_by_source` has how many there are, and `new_share` how much of the room is kept for new
    ones.
    """
    copy_counts, new_counts = _copies_and_new(count_by_source)
    kept_for_new = 0
    if copy_counts and new_counts:
        kept_for_new = min(sum(new_counts.values()), new_share.kept_in(room))
    shares_of_copies = fair_shares(copy_counts, room - kept_for_new)
    # what copies leave goes to new records, too
    room_for_new = room - sum(shares_of_copies.values())
    return shares_of_copies | fair_shares(new_counts, room_for_new)


def _record_share_of_new(
    count_by_source: Mapping[int, int],
    share_by_source: Mapping[int, int],
    room: int,
    new_share: NewShare,
) -> None:
    """Record in `new_share` what new records got of a room, if copies competed with them for it.

    They did not if all records had room: then nothing is owed to anybody.
    """
    copy_counts, new_counts = _copies_and_new(count_by_source)
    if copy_counts and new_counts and sum(count_by_source.values()) > room:
        new_count = sum(share_by_source.get(source, 0) for source in new_counts)
        new_share.record_share(room, new_count)


def _copies_and_new(count_by_source: Mapping[int, int]) -> tuple[dict[int, int], dict[int, int]]:
    """Return by source the counts of copies, and those of new records; no count is 0."""
    copy_counts: dict[int, int] = {}
    new_counts: dict[int, int] = {}
    for source, count in count_by_source.items():
        if count > 0:
            counts = copy_counts if is_replay(source) else new_counts
            counts[source] = count
    return copy_counts, new_counts


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
        """Begin with the supply of each source, and share the room out.

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
        shares = self._share_by_source
        return any(shares.get(supply.source, 0) < supply.count_max for supply in supplies)

    @property
    def granted_copies(self) -> int:
        """How many of the copies that the batch has already (`Room.chosen`) there is room for."""
        return sum(self._share_by_source.get(source, 0) for source in self._room.chosen)

    def records_to_find(self) -> dict[int, int]:
        """Return by source how many of its next records somebody should look for.

        They are as many as there is room for. A source is missing if it is known where these are.
        """
        count_by_source: dict[int, int] = {}
        for source, supply in self._supplies.items():
            # one at least: a source without any record does not compete for room, and its empty
            # positions are passed
            count = max(1, self._share_by_source.get(source, 0))
            if not supply.is_seen(count):
                count_by_source[source] = count
        return count_by_source

    def uninitialised_runs(self, source: int) -> Sequence[PositionRun]:
        """Return the positions of a source that were never initialised, ascending."""
        return self._supplies[source].runs

    def add_sightings(self, seen: Mapping[int, Sighting], awaited: Iterable[int]) -> bool:
        """Add what was seen of sources, and share the room out anew.

        Return whether fewer records compete for the room by that: then others have a larger share,
        and have to be looked at further. Nothing is taken of the `awaited` sources, of which more
        will be known soon.
        """
        count_before = sum(self._count_by_source.values())
        for source, sighting in seen.items():
            self._supplies[source] = Supply(source, self._supplies[source].runs, sighting)
        for source in awaited:
            del self._supplies[source]
        self._share_out()
        return sum(self._count_by_source.values()) < count_before

    def take(
        self, holes_left: Mapping[int, int] = MappingProxyType({}), hole_min: int = HOLE_MIN
    ) -> dict[int, Portion]:
        """Return by source what the batch takes of it, and record in `sharing` what new records
        got.

        `holes_left` has by source how many positions its holes may have, at most
        `HOLE_POSITIONS_MAX`, which holds where it is missing. `hole_min`: see `Supply.take`.
        """
        shares = self._share_by_source
        self._sharing.record_shares(self._count_by_source, self._input_ids, self._room, shares)
        portions: dict[int, Portion] = {}
        for source, supply in self._supplies.items():
            share = self._share_by_source.get(source, 0)
            portions[source] = supply.take(
                # without a record a source is empty to its end, which is
                # passed with any batch
                share if supply.count_max else 1,
                hole_min=hole_min,
                holes_left=holes_left.get(source, HOLE_POSITIONS_MAX),
                ends_with_block=share < self._count_by_source[source],
            )
        return portions

    def _share_out(self) -> None:
        """Set anew, by source, how many records compete for the room, and how many of them have
        room.
        """
        self._count_by_source: dict[int, int] = {}
        for source, supply in self._supplies.items():
            cap = self._room.caps.get(source, supply.count_max)
            self._count_by_source[source] = min(supply.count_max, cap)
        self._share_by_source = self._sharing.share_out(self._count_by_source, self._input_ids, self._room)


def fair_shares(available: Mapping[int, int], budget: int) -> dict[int, int]:
    """Return by source its part of a budget of records: equal parts, and none more than it has
    available.

    What cannot be divided goes to the sources that have most; of equal ones
    to those with the highest numbers. Sources that get nothing are missing.
    """
    # the smallest first: what one has too little to take goes to those behind it, which have
    # more. Of a budget of 10 sources with 1, 5 and 9 records get 1, 4 and 5.
    smallest_first = sorted((count, source) for source, count in available.items() if count > 0)
    share_by_source: dict[int, int] = {}
    budget_left = max(0, budget)
    for rank, (count, source) in enumerate(smallest_first):
        sources_left = len(smallest_first) - rank
        share = min(count, budget_left // sources_left)
        budget_left -= share
        if share:
            share_by_source[source] = share
    return dict(sorted(share_by_source.items()))
