"""Chooses what a batch takes of each source, within limits that count records.

Where all that there is fits, all of it is taken, without looking. Where a limit binds, the next
positions of each source are looked at (`spout.group.announce.Sight`): a source with fewer records
than positions leaves the rest of its share of the room to the others. A *sighting* says which
positions were seen to hold a record. A *supply* is the positions of a source that were never
initialised, with what was seen of them; an *intake* shares the room of one batch out between
supplies.

Source: docs/design/protocol.md, section 5.1 ("Planning").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from acker.identity import generation_of, offset_of, position_at
from acker.kafka.port import TopicPartition
from acker.wire.events import PositionRun, SourceRun
from spout.group.announce import PlannerContext, SightRequest
from spout.group.running_session import RunningSession
from spout.planning.intake import BatchIntake, Room, Sharing
from spout.planning.supply import HOLE_POSITIONS_MAX, Portion, Sighting, Supply, joined_portions

ROUNDS: Final = 3
"""What is seen of one source changes the shares of the others; so often they are looked at again, at most."""


class SourceNeed(NamedTuple):
    """How many records are looked for, from the first position of a run on."""

    run: PositionRun
    record_count: int


class SourceSightings(NamedTuple):
    """What was seen of sources, by their positions.

    `awaited` are those of which more will be known soon.
    """

    by_source: dict[int, Sighting]
    awaited: set[int]


class SourceSight:
    """A `Sight` of sources: by their positions, which have a generation, and not by offsets of partitions."""

    def __init__(self, context: PlannerContext) -> None:
        """Look by the `sight` of the context."""
        self._spec_by_source = context.sources
        self._sight = context.sight

    def find_records(self, needs: Mapping[int, SourceNeed]) -> SourceSightings:
        """Look at what comes next of sources; those of which nothing is seen are missing."""
        sightings = SourceSightings({}, set())
        if not needs:
            return sightings
        requests: dict[TopicPartition, SightRequest] = {}
        for source, need in needs.items():
            start, end = offset_of(need.run.start), offset_of(need.run.end)
            place = self._spec_by_source[source].place
            requests[place] = SightRequest(start, end, need.record_count)
        seen = self._sight.find_records(requests)
        for source, need in needs.items():
            place = self._spec_by_source[source].place
            if place in seen.awaited:
                sightings.awaited.add(source)
            elif place in seen.by_partition:
                # what is seen are offsets, and positions have a generation
                first_position = position_at(generation_of(need.run.start), 0)
                sightings.by_source[source] = seen.by_partition[place].moved(first_position)
        return sightings

    def find_supply(self, source: int, runs: Sequence[PositionRun]) -> Supply:
        """Look at runs of a source, which are all to be taken, and return what records they supply."""
        if not runs:
            return Supply(source, runs)
        whole = PositionRun(runs[0].start, runs[-1].end)
        need = SourceNeed(whole, record_count=whole.end - whole.start)
        sightings = self.find_records({source: need})
        return Supply(source, runs, sightings.by_source.get(source))

    def fetch_ahead(self, next_by_source: Mapping[int, int]) -> None:
        """Begin to fetch sources from these positions on, for a later look.

        See `Sight.fetch_ahead`.
        """
        next_offsets = {
            self._spec_by_source[source].place: offset_of(position)
            for source, position in next_by_source.items()
        }
        self._sight.fetch_ahead(next_offsets)


class Chosen(NamedTuple):
    """What a batch takes of what is free, and how many of the copies that it has already have room."""

    portion: Portion
    granted_copies: int


class Chooser:
    """Chooses for the batches of one session, one after another."""

    def __init__(self, context: PlannerContext, session: RunningSession) -> None:
        """Begin; no batch before has left new records without their share of the room."""
        self._sharing = Sharing()
        self._spec_by_source = context.sources
        self._sight = SourceSight(context)
        self._hole_min = context.spec.hole_min
        self._session = session

    def choose(self, uninitialised: Mapping[int, Sequence[PositionRun]], room: Room) -> Chosen:
        """Choose of positions that were never initialised, and begin to fetch what comes behind
        them.

        `uninitialised` has these by source, for each source of which some may be taken.
        """
        # 1. look, if not everything has room
        supplies = [Supply(source, runs) for source, runs in uninitialised.items() if runs]
        specs = self._spec_by_source
        input_ids = {supply.source: specs[supply.source].input.id for supply in supplies}
        intake = BatchIntake(supplies, input_ids, room, self._sharing)
        # asked before anything is taken: then a limit may bind no more
        is_limited = intake.is_limited
        awaited = self._find_and_add_sightings(intake) if is_limited else set()
        # 2. take; holes that have no verdict yet count against those of this batch
        hole_room: dict[int, int] = {}  # by source: how many positions its holes may have
        for source in uninitialised:
            pending_in_holes = self._session.window.count_empty(source)
            hole_room[source] = max(0, HOLE_POSITIONS_MAX - pending_in_holes)
        portion_by_source = intake.take(hole_room, self._hole_min)
        # 3. fetch what comes behind; without a limit nobody will look at it
        next_by_source: dict[int, int] = {}
        if is_limited:
            for source in (*portion_by_source, *awaited):
                taken_to = None
                if source in portion_by_source:
                    taken_to = portion_by_source[source].end_of(source)
                next_by_source[source] = taken_to or self._session.cursors[source].first_uninitialised
        self._sight.fetch_ahead(next_by_source)
        return Chosen(joined_portions(portion_by_source.values()), intake.granted_copies)

    def _find_and_add_sightings(self, intake: BatchIntake) -> set[int]:
        """Look at what comes next of the sources that compete for room, and add what was seen to the intake.

        Return the sources of which more will be known soon; nothing is taken of them until then.
        """
        awaited: set[int] = set()
        for _ in range(ROUNDS):
            needs: dict[int, SourceNeed] = {}
            for source, record_count in intake.records_to_find().items():
                runs = intake.uninitialised_runs(source)
                needs[source] = SourceNeed(PositionRun(runs[0].start, runs[-1].end), record_count)
            sightings = self._sight.find_records(needs)
            awaited |= sightings.awaited
            # what one source has too little to take goes to others: these are looked at further
            has_freed_room = intake.add_sightings(sightings.by_source, sightings.awaited)
            if not has_freed_room:
                break
        return awaited

    def divide(self, runs: Iterable[SourceRun]) -> Portion:
        """Divide runs into ranges that tasks read, and holes; nothing of them is left out.

        They are initialised already, or copies that are taken whole.
        """
        portions: list[Portion] = []
        for run in runs:
            source, start, end = run
            if end - start < self._hole_min:  # too short for a hole: no look is needed
                portions.append(Portion((run,)))
                continue
            supply = self._sight.find_supply(source, [PositionRun(start, end)])
            portion = supply.take(end - start, hole_min=self._hole_min)
            taken_to = portion.end_of(source) or start
            if taken_to < end:  # a portion's holes are limited: what is left of the run is read
                rest = SourceRun(source, taken_to, end)
                portion = portion._replace(ranges=(*portion.ranges, rest))
            portions.append(portion)
        return joined_portions(portions)
