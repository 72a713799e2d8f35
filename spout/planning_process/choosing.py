"""Chooses what a batch takes of each source, within limits that count records.

Where all that there is fits, all of it is taken, unseen. Where a limit binds, the next positions of each
source are looked at (`spout.group.announce.Sight`): a source with fewer records than positions leaves the
rest of its share to the others.

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
        self._specs = context.sources
        self._sight = context.sight

    def see(self, needs: Mapping[int, SourceNeed]) -> tuple[dict[int, Sighting], set[int]]:
        """Return what is seen of sources, and of which of them more will be known soon."""
        seen: dict[int, Sighting] = {}
        awaited: set[int] = set()
        if not needs:
            return seen, awaited
        requests: dict[TopicPartition, SightRequest] = {}
        for source, (run, records) in needs.items():
            requests[self._specs[source].place] = SightRequest(
                offset_of(run.start), offset_of(run.end), records
            )
        sights = self._sight.see(requests)
        for source, (run, _) in needs.items():
            place = self._specs[source].place
            if place in sights.waits:
                awaited.add(source)
            elif place in sights.seen:
                # what is seen are offsets, and positions have a generation
                seen[source] = sights.seen[place].moved(position_at(generation_of(run.start), 0))
        return seen, awaited

    def supply(self, source: int, runs: Sequence[PositionRun]) -> Supply:
        """Look at runs of a source, which are all to be taken, and return what they supply."""
        if not runs:
            return Supply(source, runs)
        whole = PositionRun(runs[0].start, runs[-1].end)
        seen, _ = self.see({source: SourceNeed(whole, whole.end - whole.start)})
        return Supply(source, runs, seen.get(source))

    def follow(self, nexts: Mapping[int, int]) -> None:
        """Begin to look from these positions of sources on; see `Sight.follow`."""
        next_offsets = {self._specs[source].place: offset_of(position) for source, position in nexts.items()}
        self._sight.follow(next_offsets)


class Chooser:
    """Chooses for the batches of one tenure, one after another."""

    def __init__(self, context: PlannerContext, tenure: Tenure) -> None:
        self._sharing = Sharing()
        self._specs = context.sources
        self._sight = SourceSight(context)
        self._hole_min = context.spec.hole_min
        self._tenure = tenure

    def choose(self, free: Mapping[int, Sequence[PositionRun]], room: Room) -> tuple[Portion, int]:
        """Choose free positions, and begin to look at what comes behind them.

        `free` has the free positions of each source that takes part. Returns what is chosen, and for how many
        of `room.chosen` there is room.
        """
        supplies = [Supply(source, runs) for source, runs in free.items() if runs]
        input_ids = {supply.source: self._specs[supply.source].input.id for supply in supplies}
        intake = BatchIntake(supplies, input_ids, room, self._sharing)
        is_limited = intake.is_limited
        awaited: set[int] = set()
        for _ in range(ROUNDS if is_limited else 0):
            needs: dict[int, SourceNeed] = {}
            for source, records in intake.records_to_find().items():
                runs = intake.free(source)
                needs[source] = SourceNeed(PositionRun(runs[0].start, runs[-1].end), records)
            seen, waits = self._sight.see(needs)
            awaited |= waits
            if not intake.add_sightings(seen, waits):
                break
        empty_of = self._tenure.window.empty_of
        holes_left = {source: max(0, HOLE_POSITIONS_MAX - empty_of(source)) for source in free}
        portions = intake.take(holes_left, self._hole_min)
        nexts: dict[int, int] = {}
        for source in (*portions, *awaited) if is_limited else ():
            taken_to = portions[source].end_of(source) if source in portions else None
            nexts[source] = taken_to or self._tenure.cursors[source].first_free
        self._sight.follow(nexts)
        return joined_portions(portions.values()), intake.granted

    def sift(self, runs: Iterable[SourceRun]) -> Portion:
        """Divide runs into what tasks read and holes; nothing of them is left out."""
        portions: list[Portion] = []
        for run in runs:
            source, start, end = run
            if end - start < self._hole_min:
                portions.append(Portion((run,)))
                continue
            supply = self._sight.supply(source, [PositionRun(start, end)])
            portion = supply.take(end - start, hole_min=self._hole_min)
            taken_to = portion.end_of(source) or start
            rest = (SourceRun(source, taken_to, end),) if taken_to < end else ()
            portions.append(portion._replace(ranges=(*portion.ranges, *rest)))
        return joined_portions(portions)
