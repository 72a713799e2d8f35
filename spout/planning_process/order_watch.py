"""Reads from the topics how each partition of an ordered input goes on.

What waits is what `_ack_due` holds, and what is on its way there. The two markers of a transaction over two
topics become visible at different moments. So a partition is looked at, and its next batch planned, only when
it is known what becomes of all that is under way, in this order:

1. Every root of it that is pending, copies included, is of a batch of this process that was published, and of
   which the driver has named the roots that are not acked (`spout.planning.order.NotAcked`).
2. `_ack_due` is read to its stable end, and every verdict that lost a root of it is taken over, or is that of
   a root that the driver named. It was read so before, and now need not be, where nothing waits and nothing
   was lost since: a replay worker writes its progress each second, and to read that takes some 100 ms.
3. Its replay partition has become stable up to its end as seen after that. A tombstone that was read belongs
   to a copy that was sent before it, so the copy can be read now.

Then every record that is not done is among those that wait, or is a copy that is out and still unread. Their
keys are not in `_ack_due`: the driver has named their lines, or each is read once, from where the replay
worker reads the record. One that is gone then holds back nobody.

Source: docs/design/protocol.md, section 5.1 ("Order": why the pending roots of step 1 will be acked).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, TypeGuard

from acker.config.limits import ReplayLimits
from acker.identity import copies_source, first_source
from acker.kafka.port import Bound, Record, TopicPartition
from acker.wire.events import SourceRun, Verdicts, positions
from replay.worker.fetch import Fetcher, RecordPlace, cannot_be_read
from spout.group.announce import PlannerContext
from spout.group.due import DueEntries, WaitingRoot
from spout.group.sources import SourceSpec
from spout.group.tenure import Tenure
from spout.planning.journal import Journal
from spout.planning.order import (
    KEY,
    PARTITION,
    NotAcked,
    OrderedRoom,
    Turn,
    WaitingRecord,
    line_of_key,
    turn_of,
)
from spout.planning_process.choosing import SourceSight

LOST_MAX: Final = 100_000
"""Lost roots that are remembered one by one until they are taken over; of more, only their verdicts are."""

FETCH_MAX: Final = 1_000
"""Keys that one look reads; while more are unknown, the partition waits."""

UNKNOWN: Final = "waits for what is under way: "
"""Begins the text of a wait that passes by itself, mostly within a round trip."""


_Root = tuple[int, int]
"""Source and position."""


def _is_of(origin: RecordPlace | None, spec: SourceSpec) -> TypeGuard[RecordPlace]:
    """Return whether an origin is known, and lies in a partition."""
    return origin is not None and origin[:2] == tuple(spec.place)


def _places_of_keys(
    waiting: Mapping[int, Sequence[WaitingRoot]], specs: Mapping[int, SourceSpec]
) -> dict[RecordPlace, RecordPlace]:
    """Return of the roots whose keys must be known where to read each record, by its origin."""
    places: dict[RecordPlace, RecordPlace] = {}
    for source, roots in waiting.items():
        if specs[source].input.ordering != KEY:
            continue
        for root in roots:
            if _is_of(root.origin, specs[source]):
                places[root.origin] = root.place
    return places


class OrderWatch:
    """Decides, batch by batch, how the partitions of ordered inputs go on.

    By ``topic/partition``, `why` has what partitions wait for, and `blocked` how many records each
    blocks. The *line* of a record is a hash of its key: records of one line are kept in order.
    """

    def __init__(self, context: PlannerContext, tenure: Tenure, answered_at: Mapping[int, int]) -> None:
        """`answered_at` has by acker partition the offset of its answer to our `Take`.

        The verdicts of what was lost before are below it.
        """
        self._context = context
        self._tenure = tenure
        self._answered_at = dict(answered_at)
        # by source: roots that an acker lost, with the partition and offset of their verdicts
        self._lost: dict[int, dict[_Root, tuple[int, int]]] = {}
        # by source and verdict partition: beyond `LOST_MAX` roots only the offset behind the last
        # verdict that lost one
        self._lost_below: dict[int, dict[int, int]] = {}
        # by source: roots that the driver has not acked with their batch, with their lines
        self._not_acked: dict[int, dict[_Root, NotAcked]] = {}
        self._published: dict[int, list[SourceRun]] = {}  # by source; copies have their own
        self._ordered_room = OrderedRoom()
        # whether the batch that is planned now has roots that were initialised by another process
        self._has_older_roots = False
        self._due: DueEntries | None = None  # None: nobody has asked yet what waits
        self._was_due_read = False  # whether `_ack_due` was read to its end once
        self._fetcher = Fetcher(context.log, ReplayLimits())
        self._sight = SourceSight(context)
        # by origin of a record that waits: its line; None: it has no key
        self._line_by_origin: dict[RecordPlace, int | None] = {}
        self._unreadable: set[RecordPlace] = set()  # origins of which nobody can tell the line
        # of replay topics: the offset below which no transaction is open
        self._stable_ends: Mapping[TopicPartition, int] = {}
        # by source: what was reported last that it waits for; empty: that it goes on
        self._reported_why: dict[int, str] = {}
        self.why: dict[str, str] = {}
        self.blocked: dict[str, int] = {}

    def record_lost(self, partition: int, offset: int, verdicts: Verdicts) -> None:
        """Record which roots an acker partition has lost, by its record at an offset."""
        for lost in verdicts.lost:
            source = first_source(lost.source)
            if self._ordering(source) not in (KEY, PARTITION):
                continue
            lost_count = sum(map(len, self._lost.values()))
            if lost_count >= LOST_MAX:
                self._lost_below.setdefault(source, {})[partition] = offset + 1
                continue
            verdict_place = (partition, offset)
            lost_roots = self._lost.setdefault(source, {})
            for position in positions(lost.positions).tolist():
                lost_roots[lost.source, position] = verdict_place

    def record_published(self, end: Journal, not_acked: Sequence[NotAcked]) -> None:
        """Record that the last batch was published, and which of its roots are not acked by that.

        Nothing is recorded if a root may have timed out before: if the clock has passed its deadline, or if
        another process, which lived when the batch was planned, may have initialised it earlier. Nor is
        anything of a partition that was blocked as a whole: its records were not put in lines by their keys.
        """
        timeout_ms, tenure = self._context.spec.timeout_ms, self._tenure
        is_late = timeout_ms and tenure.clock.now >= end.now + timeout_ms
        if is_late or self._has_older_roots:
            return
        in_lines = {source for source, line_up in end.order.items() if line_up.by == self._ordering(source)}
        records = Counter[int]()
        for run in end.ranges:
            if first_source(run.source) in in_lines:
                self._published.setdefault(run.source, []).append(run)
                records[run.source] += run.end - run.start
        lost = Counter[int]()
        for root in not_acked:
            source = first_source(root.source)
            if source in in_lines:
                self._not_acked.setdefault(source, {})[root.source, root.position] = root
                lost[root.source] += 1
        for ordered in in_lines:
            self._ordered_room.published(ordered, records[ordered], lost[ordered])

    def turns(self, planned: Mapping[int, int]) -> dict[int, Turn]:
        """Read what waits; return by source the turn of each ordered partition that has one.

        A partition that waits for something under way has none. Keeps in `why` what partitions wait
        for.

        `planned` has by source how many pending roots are still to be emitted. Raises `Unreachable`, or
        `UnknownVersion` if a newer replay worker wrote to `_ack_due`.
        """
        specs = self._ordered_specs()
        self._has_older_roots = bool(planned) or self._tenure.sibling is not None
        # step 1 of the module's list; a text: why it is not known what becomes of pending roots
        why = {source: self._why_undecidable(source, planned) for source in specs}
        decidable = [source for source, text in why.items() if not text]
        turns: dict[int, Turn] = {}
        if decidable:
            turns, why_without_turn = self._find_turns_of(decidable, specs, planned)
            why |= why_without_turn
        self._report_waits(specs, why | {source: turn.why for source, turn in turns.items()})
        return turns

    def close(self) -> None:
        """Close what reads the lost roots, and their keys."""
        self._fetcher.close()
        if self._due is not None:
            self._due.close()

    def _ordering(self, source: int) -> str | None:
        """Return by what a source is ordered; None: this process does not read it."""
        spec = self._context.sources.get(source)
        return None if spec is None else spec.input.ordering

    def _ordered_specs(self) -> dict[int, SourceSpec]:
        """Return the partitions of ordered inputs that take part, each with its copies."""
        return {
            source: spec
            for source, spec in self._context.sources.items()
            if spec.input.ordered and not spec.is_replay and copies_source(source) in self._tenure.cursors
        }

    def _why_undecidable(self, source: int, planned: Mapping[int, int]) -> str:
        """Return that roots of a partition are pending of which nobody knows what becomes; empty: none is."""
        unaccounted_count = 0
        # records and their copies are sources of their own
        for part in (source, copies_source(source)):
            accounted_count = planned.get(part, 0) + self._count_pending_published(part)
            unaccounted_count += self._tenure.window.pending_of(part) - accounted_count
        return f"{UNKNOWN}{unaccounted_count:,} roots are pending" if unaccounted_count else ""

    def _count_pending_published(self, source: int) -> int:
        """Return how many roots are pending of batches that were published; forget runs that are settled.

        The driver has named those that it did not ack, so it is known what becomes of them.
        """
        pending = 0
        unsettled: list[SourceRun] = []
        for run in self._published.pop(source, ()):
            parts = self._tenure.window.pending_within(*run)
            if parts:
                unsettled.append(run)
                pending += sum(part.end - part.start for part in parts)
        if unsettled:
            self._published[source] = unsettled
        return pending

    def _find_turns_of(
        self, decidable: Sequence[int], specs: Mapping[int, SourceSpec], planned: Mapping[int, int]
    ) -> tuple[dict[int, Turn], dict[int, str]]:
        """Read what waits of some partitions; return their turns, and why others of them have none.

        Of their pending roots it is known what becomes of them (`decidable`). Both answers are by source. The
        steps are those of the module's list.
        """
        # step 2
        due = self._due_entries()
        why = self._read_due_entries(due, decidable)
        self._take_named_lines(specs)
        self._drop_taken_over(due)
        for source in decidable:
            if source in why:
                continue
            behind = self._not_taken_over(source)
            if behind:
                why[source] = f"{UNKNOWN}no replay worker has taken over what was lost, in {behind}"
        # step 3
        why |= self._why_unstable([source for source in decidable if source not in why])
        # now every record that is not done is known: the turns follow from those that wait
        waiting = {source: due.waiting_of(source) for source in decidable if source not in why}
        self._fetch_lines(_places_of_keys(waiting, specs))
        turns: dict[int, Turn] = {}
        for source, roots in waiting.items():
            turn = self._turn(specs[source], roots)
            if turn is None:
                why[source] = f"{UNKNOWN}keys of records that wait are being read"
            elif planned.get(source) or planned.get(copies_source(source)):
                # what a process before has initialised may time
                # out in this batch: nothing new may pass it
                turns[source] = turn._replace(new_max=0)
            else:
                turns[source] = turn
        return turns, why

    def _due_entries(self) -> DueEntries:
        """Return the lost roots of ordered inputs that wait; the first call begins to read them."""
        if self._due is None:
            spec = self._context.spec
            ordered_ids = [input.id for input in spec.inputs if input.ordered]
            self._due = DueEntries(self._context.log, spec.topics.due, spec.partitions, ordered_ids)
        return self._due

    def _read_due_entries(self, due: DueEntries, decidable: Sequence[int]) -> dict[int, str]:
        """Read `_ack_due`; return by source why some have to wait until it is read to its end."""
        is_whole = due.read()
        self._context.troubles.record_answers(due.answers())
        if is_whole:
            self._was_due_read = True
            return {}
        text = f"{UNKNOWN}{self._context.spec.topics.due} is being read"
        return {source: text for source in decidable if not self._was_due_read or self._may_wait(source, due)}

    def _take_named_lines(self, specs: Mapping[int, SourceSpec]) -> None:
        """Keep the lines that the driver has named: these records need not be read for their keys."""
        for source, not_acked in self._not_acked.items():
            place = specs[source].place
            for root in not_acked.values():
                if root.line is not None:
                    self._line_by_origin[RecordPlace(*place, root.origin)] = root.line

    def _may_wait(self, source: int, due: DueEntries) -> bool:
        """Return whether a record of a partition waits, or may do so once `_ack_due` is read."""
        lost = self._lost.get(source), self._lost_below.get(source), self._not_acked.get(source)
        return any(lost) or bool(due.waiting_of(source))

    def _drop_taken_over(self, due: DueEntries) -> None:
        """Forget lost roots that `_ack_due` has by now, and named roots that have a verdict since."""
        for source, verdicts in self._lost.items():
            self._lost[source] = {
                root: (partition, offset)
                for root, (partition, offset) in verdicts.items()
                if due.taken_over_to[partition] <= offset
            }
        pending_within = self._tenure.window.pending_within
        for source, not_acked in self._not_acked.items():
            lost = self._lost.get(source, {})
            self._not_acked[source] = {
                root: named
                for root, named in not_acked.items()
                if root in lost or pending_within(named.source, named.position, named.position + 1)
            }

    def _not_taken_over(self, source: int) -> str:
        """Return the verdict partitions in which no replay worker has read all verdicts that lost a root.

        Only roots of this source count, and none that the driver named: it is known what becomes of
        them. Empty: there is no such partition.
        """
        # by verdict partition: behind the last verdict that lost a root, and behind the answer to our Take
        lost_below = dict(self._lost_below.get(source, {}))
        not_acked = self._not_acked.get(source, {})
        for root, (partition, offset) in self._lost.get(source, {}).items():
            if root not in not_acked:
                lost_below[partition] = max(offset + 1, lost_below.get(partition, 0))
        behind: list[str] = []
        for partition, answered_at in self._answered_at.items():
            read_to = max(answered_at, lost_below.get(partition, 0))
            if self._due is None or self._due.taken_over_to[partition] < read_to:
                behind.append(f"{self._context.spec.topics.verdict}/{partition}")
        return ", ".join(behind)

    def _why_unstable(self, sources: Sequence[int]) -> dict[int, str]:
        """Ask for the ends of replay partitions; return by source why the copies of some are not known yet.

        They are being written, or nobody can say whether they are. Keeps the stable ends.
        """
        places = {source: self._copies_place(source) for source in sources}
        if not places:
            return {}
        # the ends are asked for first: the stable ones must reach as far
        ends = self._context.log.bounds(Bound.END, places.values())
        stable = self._context.log.bounds(Bound.STABLE_END, ends.offsets)
        self._context.troubles.record_answers(ends)
        self._context.troubles.record_answers(stable)
        self._stable_ends = stable.offsets
        why: dict[int, str] = {}
        for source, place in places.items():
            name = f"{place.topic}/{place.partition}"
            if place not in self._stable_ends:
                why[source] = f"{UNKNOWN}which copies there are in {name} cannot be asked"
            elif self._stable_ends[place] < ends.offsets[place]:
                why[source] = f"{UNKNOWN}copies in {name} are being written"
        return why

    def _copies_place(self, source: int) -> TopicPartition:
        """Return the replay partition of a source."""
        return self._context.sources[copies_source(source)].place

    def _fetch_lines(self, places: Mapping[RecordPlace, RecordPlace]) -> None:
        """Fetch the keys of records that wait, and keep their lines: each once, `FETCH_MAX` in a call.

        `places` has for each origin where to read: a copy is still there when the source topic was
        compacted. What is not in `places` is forgotten.
        """
        self._line_by_origin = {
            origin: line for origin, line in self._line_by_origin.items() if origin in places
        }
        self._unreadable &= places.keys()
        unread_origins = sorted(places.keys() - self._line_by_origin)[:FETCH_MAX]
        if not unread_origins:
            return
        origin_by_place = {places[origin]: origin for origin in unread_origins}
        for place, record in self._fetcher.fetch(origin_by_place, tells_never=False).items():
            origin = origin_by_place[place]
            if cannot_be_read(record):
                self._unreadable.add(origin)
            key = record.key if isinstance(record, Record) else None
            self._line_by_origin[origin] = None if key is None else line_of_key(key)

    def _turn(self, spec: SourceSpec, roots: Sequence[WaitingRoot]) -> Turn | None:
        """Return the turn of a partition of which `roots` wait; None: a key of them was not read yet.

        Keeps in `blocked` how many records are blocked.
        """
        ordering = spec.input.ordering
        waiting: list[WaitingRecord] = []
        for origin, _, is_blocked in roots:
            if not _is_of(origin, spec):
                # its origin is unknown, or in another partition: it is before all, of no known line
                waiting.append(WaitingRecord(origin=-1, line=None, is_blocked=is_blocked))
            elif ordering == KEY and origin not in self._line_by_origin:
                return None
            else:
                is_unreadable = ordering == KEY and origin in self._unreadable
                line = self._line_by_origin.get(origin)
                waiting.append(WaitingRecord(origin.offset, line, is_blocked, is_unreadable))
        self.blocked[str(spec)] = sum(record.is_blocked for record in waiting)
        not_acked = self._not_acked.get(spec.source, {}).values()
        waiting += [WaitingRecord(named.origin, named.line, is_blocked=False) for named in not_acked]
        unread = self._count_unread_copies(spec, spec.input.blocked_max - len(waiting))
        turn = turn_of(ordering, spec.input.blocked_max, waiting, unread, str(spec))
        return turn._replace(new_max=min(turn.new_max, self._ordered_room.of(spec.source)))

    def _count_unread_copies(self, spec: SourceSpec, room: int) -> int:
        """Return how many copies of a partition are not planned yet, at most.

        The number is exact if it is over `room`.
        """
        copies = copies_source(spec.source)
        cursor = self._tenure.cursors[copies]
        free = cursor.free_runs(cursor.position_of(self._stable_ends[self._copies_place(spec.source)]))
        positions_free = sum(run.end - run.start for run in free)
        if positions_free <= room:
            return positions_free
        # most of them may be empty: markers of transactions, a hole
        return self._sight.supply(copies, free).count

    def _report_waits(self, specs: Mapping[int, SourceSpec], why: Mapping[int, str]) -> None:
        """Keep what partitions wait for.

        Report those that begin to wait for records or room, or go on.
        """
        self.why = {str(specs[source]): text for source, text in why.items() if text}
        for source, text in why.items():
            if text.startswith(UNKNOWN):
                continue  # passes within a round trip
            before = self._reported_why.get(source, "")
            if bool(text) != bool(before):
                name = "partition_waits" if text else "partition_goes_on"
                self._context.report(name, {"partition": str(specs[source]), "why": text or before})
            self._reported_why[source] = text
