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

The *line* of a record is a hash of its key: records of one line are kept in order. The *turn* of a
partition says what its next batch may read. A verdict is *taken over* once a replay worker has read
it. The *leftover* is what a process before initialised and did not journal; it is pending, and
still to be emitted.

Source: docs/design/protocol.md, section 5.1 ("Order": why the pending roots of step 1 will be acked).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, TypeGuard

from acker.config.limits import ReplayLimits
from acker.identity import copies_source, first_source
from acker.kafka.port import Bound, Record
from acker.wire.events import SourceRun, Verdicts, positions
from replay.records.headers import RecordPlace
from replay.worker.fetch import Fetcher, cannot_be_read
from spout.group.announce import PlannerContext
from spout.group.due import DueEntries, WaitingRoot
from spout.group.running_session import RunningSession
from spout.group.sources import SourceSpec
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

UNDER_WAY: Final = "waits for what is under way: "
"""Begins the text of a wait that passes by itself, mostly within a round trip."""


_Root = tuple[int, int]
"""Source and position; a key only."""

_VerdictPlace = tuple[int, int]
"""Acker partition and offset of the record with the verdict of a lost root."""


def _is_of(origin: RecordPlace | None, spec: SourceSpec) -> TypeGuard[RecordPlace]:
    """Return whether an origin is known, and lies in a partition."""
    return origin is not None and origin.topic_partition == spec.place


def _places_of_keys(
    waiting: Mapping[int, Sequence[WaitingRoot]], specs: Mapping[int, SourceSpec]
) -> dict[RecordPlace, RecordPlace]:
    """Return by origin where to read each waiting record whose key must be known.

    That is where the replay worker reads it: its copy, if there was one.
    """
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

    Attributes:
        wait_by_partition: by ``topic/partition`` that waits, what it waits for.
        blocked_by_partition: by ``topic/partition``, how many of its records are blocked.
    """

    def __init__(
        self, context: PlannerContext, session: RunningSession, answered_at: Mapping[int, int]
    ) -> None:
        """Begin with nothing read.

        `answered_at` has by acker partition the offset of its answer to our question for the group.
        The verdicts of what was lost before are below it.
        """
        self._context = context
        self._session = session
        self._answer_offset_by_partition = dict(answered_at)
        # by source: roots that an acker lost, with the partition and offset of their verdicts
        self._lost_roots: dict[int, dict[_Root, _VerdictPlace]] = {}
        # by source and acker partition: beyond `LOST_MAX` roots only the offset behind the last
        # verdict that lost one
        self._lost_below_by_source: dict[int, dict[int, int]] = {}
        # by source: roots that the driver has not acked with their batch, with their lines
        self._not_acked: dict[int, dict[_Root, NotAcked]] = {}
        # by source, copies apart from records: what of published batches may still be pending
        self._published_runs: dict[int, list[SourceRun]] = {}
        # how many new records a batch may have, by what former ones lost
        self._ordered_room = OrderedRoom()
        # whether the batch that is planned now has roots that were initialised by another process
        self._has_older_roots = False
        self._due_entries: DueEntries | None = None  # None: nobody has asked yet what waits
        self._was_due_read_to_end = False  # once at least
        self._fetcher = Fetcher(context.log, ReplayLimits())
        self._sight = SourceSight(context)
        # by origin of a record that waits: its line; None: it has no key
        self._line_by_origin: dict[RecordPlace, int | None] = {}
        self._unreadable: set[RecordPlace] = set()  # origins of which nobody can tell the line
        # by source: what was reported last that it waits for; empty: that it goes on
        self._reported_wait_by_source: dict[int, str] = {}
        self.wait_by_partition: dict[str, str] = {}
        self.blocked_by_partition: dict[str, int] = {}

    def record_lost(self, partition: int, offset: int, verdicts: Verdicts) -> None:
        """Record which roots of ordered inputs an acker partition has lost, by its record at an
        offset.
        """
        for lost in verdicts.lost:
            source = first_source(lost.source)  # that of the records, also for copies
            if self._ordering(source) not in (KEY, PARTITION):
                continue
            lost_count = sum(map(len, self._lost_roots.values()))
            if lost_count >= LOST_MAX:  # so many at most are kept one by one
                self._lost_below_by_source.setdefault(source, {})[partition] = offset + 1
                continue
            verdict_place = (partition, offset)
            lost_roots = self._lost_roots.setdefault(source, {})
            for position in positions(lost.positions).tolist():
                lost_roots[lost.source, position] = verdict_place

    def record_published(self, end: Journal, not_acked: Sequence[NotAcked]) -> None:
        """Record that the batch that ends at `end` was published, and which of its roots that did
        not ack.

        What is recorded counts as known: pending roots of such a batch will be acked, except those
        of `not_acked`. So nothing is recorded if a root may have timed out before: if the clock has
        passed its deadline, or if another process, which lived when the batch was planned, may have
        initialised it earlier. Nor is anything of a partition that was blocked as a whole: its
        records were not put in lines by their keys.
        """
        timeout_ms = self._context.spec.timeout_ms  # 0: no root times out
        is_late = timeout_ms and self._session.clock.now >= end.now + timeout_ms
        if is_late or self._has_older_roots:
            return
        # ordered sources that were not blocked as a whole
        in_lines = {source for source, line_up in end.order.items() if line_up.by == self._ordering(source)}
        record_counts = Counter[int]()
        for run in end.ranges:
            if first_source(run.source) in in_lines:
                self._published_runs.setdefault(run.source, []).append(run)
                record_counts[run.source] += run.end - run.start
        not_acked_counts = Counter[int]()
        for root in not_acked:
            source = first_source(root.source)
            if source in in_lines:
                self._not_acked.setdefault(source, {})[root.source, root.position] = root
                not_acked_counts[root.source] += 1
        # only new records: what becomes of copies does not tell how many new ones are safe
        for ordered in in_lines:
            self._ordered_room.record_batch(ordered, record_counts[ordered], not_acked_counts[ordered])

    def read_turns(self, leftover_counts: Mapping[int, int]) -> dict[int, Turn]:
        """Read what waits; return by source the turn of each ordered partition that has one.

        A partition that waits for something under way has none. Keeps in `wait_by_partition` what
        partitions wait for, and reports it.

        `leftover_counts` has by source how many roots of the leftover there are. Raises
        `Unreachable`, or `UnknownVersion` if a newer replay worker wrote to `_ack_due`.
        """
        specs = self._ordered_specs()
        self._has_older_roots = bool(leftover_counts) or self._session.sibling is not None
        # step 1 of the module's list. By source: for what it waits; empty: for nothing
        wait_by_source: dict[int, str] = {}
        for source in specs:
            wait_by_source[source] = self._why_undecidable(source, leftover_counts)
        decidable_sources = [source for source, text in wait_by_source.items() if not text]
        turns: dict[int, Turn] = {}
        if decidable_sources:
            turns, waits = self._find_turns_of(decidable_sources, specs, leftover_counts)
            wait_by_source |= waits  # of those that have no turn
        for source, turn in turns.items():
            wait_by_source[source] = turn.why
        self._keep_and_report_waits(specs, wait_by_source)
        return turns

    def close(self) -> None:
        """Close what reads the lost roots, and their keys."""
        self._fetcher.close()
        if self._due_entries is not None:
            self._due_entries.close()

    def _ordering(self, source: int) -> str | None:
        """Return by what a source is ordered; None: this process does not read it."""
        spec = self._context.sources.get(source)
        return None if spec is None else spec.input.ordering

    def _ordered_specs(self) -> dict[int, SourceSpec]:
        """Return by source the partitions of ordered inputs whose copies can be read, too; not
        those copies.

        A new partition, or its replay partition, joins later than the other: it takes part with
        both.
        """
        specs: dict[int, SourceSpec] = {}
        for source, spec in self._context.sources.items():
            has_copies = copies_source(source) in self._session.cursors
            if spec.input.ordered and not spec.is_replay and has_copies:
                specs[source] = spec
        return specs

    def _why_undecidable(self, source: int, leftover_counts: Mapping[int, int]) -> str:
        """Return that roots of a partition are pending of which nobody knows what becomes; empty:
        none is.

        Known are the leftover, which comes with this batch, and what is pending of published
        batches.
        """
        unaccounted_count = 0
        # records and their copies are sources of their own
        for log_source in (source, copies_source(source)):
            published_count = self._count_pending_published(log_source)
            accounted_count = leftover_counts.get(log_source, 0) + published_count
            unaccounted_count += self._session.window.count_pending(log_source) - accounted_count
        return f"{UNDER_WAY}{unaccounted_count:,} roots are pending" if unaccounted_count else ""

    def _count_pending_published(self, source: int) -> int:
        """Return how many roots are pending of batches that were published; forget runs that are settled.

        The driver has named those that it did not ack, so it is known what becomes of them.
        """
        pending_count = 0
        unsettled: list[SourceRun] = []
        for run in self._published_runs.pop(source, ()):
            pending_runs = self._session.window.pending_within(run.source, run.start, run.end)
            if pending_runs:
                unsettled.append(run)
                pending_count += sum(pending.end - pending.start for pending in pending_runs)
        if unsettled:
            self._published_runs[source] = unsettled
        return pending_count

    def _find_turns_of(
        self,
        decidable_sources: Sequence[int],
        specs: Mapping[int, SourceSpec],
        leftover_counts: Mapping[int, int],
    ) -> tuple[dict[int, Turn], dict[int, str]]:
        """Read what waits of some partitions.

        Return their turns, and for what those wait that have none.

        Both answers are by source; each of `decidable_sources`, of whose pending roots it is known
        what becomes of them, is in one of the two. The steps are those of the module's list.
        """
        # step 2
        due_entries = self._open_due_entries()
        # by source: for what it waits; a source without an entry does not wait
        wait_by_source = self._read_due_entries(due_entries, decidable_sources)
        self._keep_named_lines(specs)
        self._drop_taken_over(due_entries)
        for source in decidable_sources:
            if source in wait_by_source:
                continue
            unread_partitions = self._partitions_not_taken_over(source)
            if unread_partitions:
                why = f"no replay worker has taken over what was lost, in {unread_partitions}"
                wait_by_source[source] = f"{UNDER_WAY}{why}"
        # step 3
        taken_over = [source for source in decidable_sources if source not in wait_by_source]
        stable_ends, waits_for_end = self._ask_stable_ends(taken_over)
        wait_by_source |= waits_for_end
        # now every record that is not done is known: the turns follow from those that wait
        waiting_by_source: dict[int, Sequence[WaitingRoot]] = {}
        for source in stable_ends:
            waiting_by_source[source] = due_entries.waiting_of(source)
        self._fetch_lines(_places_of_keys(waiting_by_source, specs))
        turns: dict[int, Turn] = {}
        for source, roots in waiting_by_source.items():
            turn = self._decide_turn(specs[source], roots, stable_ends[source])
            if turn is None:
                wait_by_source[source] = f"{UNDER_WAY}keys of records that wait are being read"
            elif leftover_counts.get(source) or leftover_counts.get(copies_source(source)):
                # what a process before has initialised may time
                # out in this batch: nothing new may pass it
                turns[source] = turn._replace(new_max=0)
            else:
                turns[source] = turn
        return turns, wait_by_source

    def _open_due_entries(self) -> DueEntries:
        """Return the lost roots of ordered inputs that wait; the first call begins to read them."""
        if self._due_entries is None:
            spec = self._context.spec
            ordered_ids = [input.id for input in spec.inputs if input.ordered]
            self._due_entries = DueEntries(self._context.log, spec.topics.due, spec.partitions, ordered_ids)
        return self._due_entries

    def _read_due_entries(self, due: DueEntries, decidable_sources: Sequence[int]) -> dict[int, str]:
        """Read `_ack_due`; return by source why some have to wait until it is read to its end.

        Once it was read to its end, those go on of which nothing waited then, and nothing was lost
        since.
        """
        is_whole = due.read()
        self._context.troubles.record_answers(due.answers())
        if is_whole:
            self._was_due_read_to_end = True
            return {}
        wait_by_source: dict[int, str] = {}
        for source in decidable_sources:
            if not self._was_due_read_to_end or self._may_have_waiting(source, due):
                wait_by_source[source] = f"{UNDER_WAY}{self._context.spec.topics.due} is being read"
        return wait_by_source

    def _keep_named_lines(self, specs: Mapping[int, SourceSpec]) -> None:
        """Keep the lines that the driver has named: these records need not be read for their keys."""
        for source, not_acked in self._not_acked.items():
            topic, partition = specs[source].place
            for root in not_acked.values():
                if root.line is not None:
                    self._line_by_origin[RecordPlace(topic, partition, root.origin)] = root.line

    def _may_have_waiting(self, source: int, due: DueEntries) -> bool:
        """Return whether a record of a partition waits, or may do so once `_ack_due` is read."""
        may_be_lost = (
            bool(self._lost_roots.get(source))
            or bool(self._lost_below_by_source.get(source))
            or bool(self._not_acked.get(source))
        )
        return may_be_lost or bool(due.waiting_of(source))

    def _drop_taken_over(self, due: DueEntries) -> None:
        """Forget lost roots that `_ack_due` has by now, and named roots that have a verdict since.

        A named root that was lost is kept until `_ack_due` has it: before, only this tells that it
        waits.
        """
        for source, place_by_root in self._lost_roots.items():
            self._lost_roots[source] = {
                root: (partition, offset)
                for root, (partition, offset) in place_by_root.items()
                if due.taken_over_to[partition] <= offset
            }
        pending_within = self._session.window.pending_within
        for source, not_acked in self._not_acked.items():
            lost_roots = self._lost_roots.get(source, {})
            self._not_acked[source] = {
                root: named
                for root, named in not_acked.items()
                if root in lost_roots or pending_within(named.source, named.position, named.position + 1)
            }

    def _partitions_not_taken_over(self, source: int) -> str:
        """Return the verdict partitions in which no replay worker has read all verdicts that lost a root.

        Only roots of this source count, and none that the driver named: it is known what becomes of
        them. They are in one text, by commas; empty: there is no such partition.
        """
        # by acker partition: the offset behind the last verdict that lost a root
        lost_below = dict(self._lost_below_by_source.get(source, {}))
        not_acked = self._not_acked.get(source, {})
        for root, (partition, offset) in self._lost_roots.get(source, {}).items():
            if root not in not_acked:
                lost_below[partition] = max(offset + 1, lost_below.get(partition, 0))
        unread_partitions: list[str] = []
        for partition, answered_at in self._answer_offset_by_partition.items():
            # what was lost before this process began is below the answer to its question for the
            # group
            take_over_to = max(answered_at, lost_below.get(partition, 0))
            if self._due_entries is None or self._due_entries.taken_over_to[partition] < take_over_to:
                unread_partitions.append(f"{self._context.spec.topics.verdict}/{partition}")
        return ", ".join(unread_partitions)

    def _ask_stable_ends(self, sources: Sequence[int]) -> tuple[dict[int, int], dict[int, str]]:
        """Ask up to where the copies of partitions are known, and all of them.

        Return, by source, the offset at which its replay partition ends, no transaction being open
        below it; and why others have no such end: copies are being written, or nobody can say
        whether they are.
        """
        place_by_source = {source: self._context.sources[copies_source(source)].place for source in sources}
        stable_end_by_source: dict[int, int] = {}
        wait_by_source: dict[int, str] = {}
        if not place_by_source:
            return stable_end_by_source, wait_by_source
        # the ends are asked for first: the stable ones must reach as far
        ends = self._context.log.bounds(Bound.END, place_by_source.values())
        stable_ends = self._context.log.bounds(Bound.STABLE_END, ends.offsets)
        self._context.troubles.record_answers(ends)
        self._context.troubles.record_answers(stable_ends)
        for source, place in place_by_source.items():
            name = f"{place.topic}/{place.partition}"
            stable_end = stable_ends.offsets.get(place)
            if stable_end is None:
                why = f"which copies there are in {name} cannot be asked"
                wait_by_source[source] = f"{UNDER_WAY}{why}"
            elif stable_end < ends.offsets[place]:
                wait_by_source[source] = f"{UNDER_WAY}copies in {name} are being written"
            else:
                stable_end_by_source[source] = stable_end
        return stable_end_by_source, wait_by_source

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
        # without asking why a record is missing: it is gone, and holds back nobody
        for place, record in self._fetcher.fetch(origin_by_place, tells_never=False).items():
            origin = origin_by_place[place]
            if cannot_be_read(record):
                self._unreadable.add(origin)
            line = None  # of a record that is gone, or has no key
            if isinstance(record, Record) and record.key is not None:
                line = line_of_key(record.key)
            self._line_by_origin[origin] = line

    def _decide_turn(self, spec: SourceSpec, roots: Sequence[WaitingRoot], stable_end: int) -> Turn | None:
        """Return the turn of a partition of which `roots` wait; None: a key of them was not read yet.

        Keeps in `blocked_by_partition` how many records are blocked. `stable_end` is the offset at
        which its replay partition ends.
        """
        ordering = spec.input.ordering
        waiting: list[WaitingRecord] = []
        # 1. what waits in `_ack_due`
        for root in roots:
            origin = root.origin
            if not _is_of(origin, spec):
                # its origin is unknown, or in another partition: it is before all, of no known line
                waiting.append(WaitingRecord(origin=-1, line=None, is_blocked=root.is_blocked))
            elif ordering == KEY and origin not in self._line_by_origin:
                return None
            else:
                is_unreadable = ordering == KEY and origin in self._unreadable
                line = self._line_by_origin.get(origin)
                waiting.append(WaitingRecord(origin.offset, line, root.is_blocked, is_unreadable))
        self.blocked_by_partition[str(spec)] = sum(record.is_blocked for record in waiting)
        # 2. what will wait there: roots of published batches that the driver did not ack
        not_acked = self._not_acked.get(spec.source, {}).values()
        waiting += [WaitingRecord(named.origin, named.line, is_blocked=False) for named in not_acked]
        # 3. the turn, by these and by the copies that are out
        room_for_copies = spec.input.blocked_max - len(waiting)
        unread_count = self._count_unread_copies(spec.source, stable_end, room_for_copies)
        turn = turn_of(ordering, spec.input.blocked_max, waiting, unread_count, str(spec))
        return turn._replace(new_max=min(turn.new_max, self._ordered_room.new_max_of(spec.source)))

    def _count_unread_copies(self, source: int, stable_end: int, room: int) -> int:
        """Return how many copies of a partition below an offset are not planned yet.

        Up to `room` each position counts as one. Only if they are more does it matter which of them
        are empty, as markers of transactions are: then they are looked at.
        """
        copies = copies_source(source)
        cursor = self._session.cursors[copies]
        runs = cursor.uninitialised_runs(cursor.position_of(stable_end))
        position_count = sum(run.end - run.start for run in runs)
        if position_count <= room:
            return position_count
        return self._sight.find_supply(copies, runs).count_max

    def _keep_and_report_waits(
        self, specs: Mapping[int, SourceSpec], wait_by_source: Mapping[int, str]
    ) -> None:
        """Keep in `wait_by_partition` what partitions wait for.

        Report who begins to wait, or goes on.

        `wait_by_source`: for what it waits; empty: it goes on. What passes by itself is not
        reported.
        """
        self.wait_by_partition = {}
        for source, text in wait_by_source.items():
            if text:
                self.wait_by_partition[str(specs[source])] = text
        for source, text in wait_by_source.items():
            if text.startswith(UNDER_WAY):
                continue  # passes within a round trip
            reported_text = self._reported_wait_by_source.get(source, "")
            partition = str(specs[source])
            if text and not reported_text:
                self._context.report("partition_waits", {"partition": partition, "why": text})
            elif reported_text and not text:
                self._context.report("partition_goes_on", {"partition": partition, "why": reported_text})
            self._reported_wait_by_source[source] = text
