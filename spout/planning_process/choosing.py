"""Chooses what a batch takes of each source, within limits that count records.

Where all that there is fits, all of it is taken, without looking. Where a limit binds, the next
positions of each source are looked at (`spout.group.announce.Sight`): a source with fewer records
than positions leaves the rest of its share of the room to the others. A *sighting* says which
positions were seen to hold a record.

Source: docs/design/protocol.md, section 5.1 ("Planning").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from acker.identity import generation_of, offset_of, position_at
from acker.kafka.port import TopicPartition
from acker.wire.events import PositionRun, SourceRun
from spout.group.announce import PlannerContext, SightRequest
from spout.group.tenure import Tenure
from spout.planning.intake import BatchIntake, Room, Sharing
from spout.planning.supply import HOLE_POSITIONS_MAX, Portion, Sighting, Supply, joined_portions

ROUNDS: Final = 3
"""What is seen of one source changes the shares of the others; so often they are looked at again, at most."""


class SourceNeed(NamedTuple):
    """How many records are looked for, from the first position of a run on."""

    run: PositionRun
    records: int


class SourceSight:
    """A `Sight` of sources: by their positions, which have a generation, and not by offsets of partitions."""

    def __init__(self, context: PlannerContext) -> None:
        """Look by the `sight` of the context."""
        self._specs = context.sources
        self._sight = context.sight

    def find_records(self, needs: Mapping[int, SourceNeed]) -> tuple[dict[int, Sighting], set[int]]:
        """Look at what comes next of sources.

        Return what is seen, and of which more will be known soon.
        """
        seen: dict[int, Sighting] = {}
        awaited: set[int] = set()
        if not needs:
            return seen, awaited
        requests: dict[TopicPartition, SightRequest] = {}
        for source, (run, records) in needs.items():
            requests[self._specs[source].place] = SightRequest(
                offset_of(run.start), offset_of(run.end), records
            )
        sights = self._sight.find_records(requests)
        for source, (run, _) in needs.items():
            place = self._specs[source].place
            if place in sights.waits:
                awaited.add(source)
            elif place in sights.seen:
                # what is seen are offsets, and positions have a generation
                seen[source] = sights.seen[place].moved(position_at(generation_of(run.start), 0))
        return seen, awaited

    def supply(self, source: int, runs: Sequence[PositionRun]) -> Supply:
        """Look at runs of a source, which are all to be taken, and return what records they supply."""
        if not runs:
            return Supply(source, runs)
        whole = PositionRun(runs[0].start, runs[-1].end)
        need = SourceNeed(whole, records=whole.end - whole.start)
        sightings, _ = self.find_records({source: need})
        return Supply(source, runs, sightings.get(source))

    def fetch_ahead(self, nexts: Mapping[int, int]) -> None:
        """Begin to fetch sources from these positions on, for a later look.

        See `Sight.fetch_ahead`.
        """
        next_offsets = {self._specs[source].place: offset_of(position) for source, position in nexts.items()}
        self._sight.fetch_ahead(next_offsets)


class Chosen(NamedTuple):
    """What a batch takes of what is free, and how many of the copies that it has already have room."""

    portion: Portion
    granted_copies: int


class Chooser:
    """Chooses for the batches of one tenure, one after another."""

    def __init__(self, context: PlannerContext, tenure: Tenure) -> None:
        """Begin; no source is owed room from a batch before."""
        self._sharing = Sharing()
        self._specs = context.sources
        self._sight = SourceSight(context)
        self._hole_min = context.spec.hole_min
        self._tenure = tenure

    def choose(self, free: Mapping[int, Sequence[PositionRun]], room: Room) -> Chosen:
        """Choose free positions, and begin to fetch what comes behind them.

        `free` has by source its free positions, of each source that takes part.
        """
        supplies = [Supply(source, runs) for source, runs in free.items() if runs]
        input_ids = {supply.source: self._specs[supply.source].input.id for supply in supplies}
        intake = BatchIntake(supplies, input_ids, room, self._sharing)
        # asked before anything is taken: then a limit may bind no more
        is_limited = intake.is_limited
        awaited = self._find_records(intake) if is_limited else set()
        empty_of = self._tenure.window.empty_of
        hole_room = {source: max(0, HOLE_POSITIONS_MAX - empty_of(source)) for source in free}
        portion_by_source = intake.take(hole_room, self._hole_min)
        next_positions: dict[int, int] = {}
        for source in (*portion_by_source, *awaited) if is_limited else ():
            taken_to = None
            if source in portion_by_source:
                taken_to = portion_by_source[source].end_of(source)
            next_positions[source] = taken_to or self._tenure.cursors[source].first_uninitialised
        self._sight.fetch_ahead(next_positions)
        return Chosen(joined_portions(portion_by_source.values()), intake.granted)

    def _find_records(self, intake: BatchIntake) -> set[int]:
        """Look at what comes next of the sources that compete for room, and add what was seen to the intake.

        Return the sources of which more will be known soon; nothing is taken of them until then.
        """
        awaited: set[int] = set()
        for _ in range(ROUNDS):
            needs: dict[int, SourceNeed] = {}
            for source, record_count in intake.records_to_find().items():
                runs = intake.free(source)
                needs[source] = SourceNeed(PositionRun(runs[0].start, runs[-1].end), record_count)
            sightings, awaited_now = self._sight.find_records(needs)
            awaited |= awaited_now
            has_changed = intake.add_sightings(sightings, awaited_now)
            if not has_changed:
                break
        return awaited

    def divide(self, runs: Iterable[SourceRun]) -> Portion:
        """Divide runs into ranges that tasks read, and holes; nothing of them is left out."""
        portions: list[Portion] = []
        for run in runs:
            source, start, end = run
            if end - start < self._hole_min:  # too short for a hole: no look is needed
                portions.append(Portion((run,)))
                continue
            supply = self._sight.supply(source, [PositionRun(start, end)])
            portion = supply.take(end - start, hole_min=self._hole_min)
            # holes are limited: what is left of the run is read
            taken_to = portion.end_of(source) or start
            rest = (SourceRun(source, taken_to, end),) if taken_to < end else ()
            portions.append(portion._replace(ranges=(*portion.ranges, *rest)))
        return joined_portions(portions)
