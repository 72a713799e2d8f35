"""Reads off the topics how each partition of an ordered input goes on.

What waits is what `_ack_due` holds. A root leaves it in the transaction that writes its copy or dead letter,
and enters it some time after its verdict; the two markers of a transaction over two topics become visible at
different moments. So a partition is looked at, and its next batch planned, only when nothing of it is under
way, in this order:

1. No root of it is pending, copies included.
2. `_ack_due` is read to its stable end, and every verdict that lost a root of it is taken over.
3. Its replay partition has become stable up to its end as seen after that. A tombstone that was read belongs
   to a copy that was sent before it, so the copy can be read now.

Then what waits is exact, and every copy that is out stands unread. The price is one round trip of verdicts
between two batches of a partition.

The records' keys are not in `_ack_due`: each is read once, from where the replay worker reads the record. One
that is gone holds back nobody.

Source: docs/design/protocol.md, sections 5.1 and 5.4; `spout.planning.order`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeGuard

from acker.config.limits import ReplayLimits
from acker.identity import copies_source, first_source, generation_of, position_at
from acker.kafka.port import Log, Record, TopicPartition
from acker.wire.events import Verdicts
from replay.worker.fetch import Fetcher, RecordPlace
from spout.group.due_entries import DueEntries, Entry
from spout.group.ground import Ground
from spout.group.sources import SourceSpec
from spout.group.tenure import Tenure
from spout.planning.order import KEY, Held, Turn, line_of_key, turn_of

FETCH_MAX: Final = 1_000
"""Keys that one look reads; while more are unknown, the partition waits."""

UNKNOWN: Final = "waits for what is under way: "


def _is_of(origin: RecordPlace | None, spec: SourceSpec) -> TypeGuard[RecordPlace]:
    """Tell whether a record was first emitted by a source; a copy of an unknown one by none."""
    return origin is not None and origin[:2] == tuple(spec.place)


class Lines:
    """The lines of records that wait, each read once, by their origins."""

    def __init__(self, log: Log) -> None:
        """Begin with none known."""
        self._fetcher = Fetcher(log, ReplayLimits())
        self._known: dict[RecordPlace, int | None] = {}

    def find(self, places: Mapping[RecordPlace, RecordPlace]) -> Mapping[RecordPlace, int | None]:
        """Return the lines that are known now, by origin: of some wanted records, perhaps not of all.

        Args:
            places: of each origin, where its record is read from: a copy is still there when the source topic
                was compacted.

        Raises:
            Unreachable: the broker sent nothing for half a minute.
        """
        self._known = {origin: line for origin, line in self._known.items() if origin in places}
        missing = {places[origin]: origin for origin in sorted(places.keys() - self._known)[:FETCH_MAX]}
        for place, record in (self._fetcher.fetch(missing, why=False) if missing else {}).items():
            key = record.key if isinstance(record, Record) else None
            self._known[missing[place]] = None if key is None else line_of_key(key)
        return self._known

    def close(self) -> None:
        """Leave."""
        self._fetcher.close()


class OrderWatch:
    """Decides, batch by batch, how the partitions of ordered inputs go on."""

    def __init__(self, ground: Ground, tenure: Tenure, answered_at: Mapping[int, int]) -> None:
        """Prepare; nothing is read before `look`.

        Args:
            ground: cluster, task and sources.
            tenure: the session's books.
            answered_at: of each acker partition, the offset of its answer to our `Take`: what was lost
                before stands below it.
        """
        self._ground = ground
        self._tenure = tenure
        self._answered_at = dict(answered_at)
        self._lost_below: dict[int, dict[int, int]] = {}
        self._due: DueEntries | None = None
        self._lines = Lines(ground.log)
        self._stable: Mapping[TopicPartition, int] = {}
        self._told: dict[int, str] = {}
        self.why: dict[str, str] = {}
        self.held: dict[str, int] = {}

    def heard(self, partition: int, offset: int, verdicts: Verdicts) -> None:
        """Learn what an acker partition decided, in the record at an offset."""
        for lost in verdicts.lost:
            self._lost_below.setdefault(first_source(lost.source), {})[partition] = offset + 1

    def look(self, planned: Mapping[int, int]) -> dict[int, Turn]:
        """Return how each partition goes on that can; what waits for something under way is missing.

        Args:
            planned: of sources, how many of their pending roots are still to be emitted.

        Raises:
            Unreachable: the broker does not answer.
            UnknownVersion: a newer replay worker wrote to `_ack_due`.
        """
        specs = {
            source: one
            for source, one in self._ground.sources.items()
            if one.input.ordered and not one.is_replay and copies_source(source) in self._tenure.cursors
        }
        why = {source: self._under_way(source, planned) for source in specs}
        quiet = [source for source, text in why.items() if not text]
        turns: dict[int, Turn] = {}
        if quiet:
            why |= self._settled(quiet, specs, turns, planned)
        self._tell(specs, {**why, **{source: turn.why for source, turn in turns.items()}})
        return turns

    def close(self) -> None:
        """Leave."""
        self._lines.close()
        if self._due is not None:
            self._due.close()

    def _under_way(self, source: int, planned: Mapping[int, int]) -> str:
        of = self._tenure.window.pending_of
        pending = sum(of(each) - planned.get(each, 0) for each in (source, copies_source(source)))
        return f"{UNKNOWN}{pending:,} roots are pending" if pending else ""

    def _settled(
        self, quiet: Sequence[int], specs: Mapping[int, SourceSpec], turns: dict[int, Turn],
        planned: Mapping[int, int],
    ) -> dict[int, str]:  # fmt: skip
        """Find the turns of partitions of which nothing is pending; return why others have none."""
        spec = self._ground.spec
        if self._due is None:
            ordered = (found.id for found in spec.inputs if found.ordered)
            self._due = DueEntries(self._ground.log, spec.topics.due, spec.partitions, ordered)
        if not self._due.read():
            return dict.fromkeys(quiet, f"{UNKNOWN}{spec.topics.due} is being read")
        why: dict[int, str] = {}
        for source in quiet:
            behind = self._not_taken_over(source)
            if behind:
                why[source] = f"{UNKNOWN}no replay worker has taken over what was lost, in {behind}"
        left = [source for source in quiet if source not in why]
        why |= self._unstable(left)
        left = [source for source in left if source not in why]
        waiting = {source: self._due.of(source) for source in left}
        lines = self._lines.find(
            {
                entry.origin: entry.place
                for source, entries in waiting.items()
                for entry in entries
                if specs[source].input.ordering == KEY and _is_of(entry.origin, specs[source])
            }
        )
        ends = self._copies_ends(left)
        for source in left:
            turn = self._turn(specs[source], waiting[source], lines, ends[source])
            if turn is None:
                why[source] = f"{UNKNOWN}keys of records that wait are being read"
            elif planned.get(source) or planned.get(copies_source(source)):
                # what a process before has initialised may time out in the batch: nothing new may pass it
                turns[source] = turn._replace(most=0)
            else:
                turns[source] = turn
        return why

    def _not_taken_over(self, source: int) -> str:
        """Name the verdict partitions in which something was lost that nobody has taken over."""
        due = self._due
        lost = self._lost_below.get(source, {})
        below = {number: max(at, lost.get(number, 0)) for number, at in self._answered_at.items()}
        behind = [number for number, at in below.items() if due is None or due.taken_over[number] < at]
        return ", ".join(f"{self._ground.spec.topics.verdict}/{number}" for number in behind)

    def _unstable(self, sources: Sequence[int]) -> dict[int, str]:
        """Name the replay partitions that hold what is not decided yet."""
        places = {source: self._copies_place(source) for source in sources}
        if not places:
            return {}
        ends = self._ground.log.ends(places.values())  # before the stable ones: they must reach as far
        self._stable = self._ground.log.stable_ends(places.values())
        return {
            source: f"{UNKNOWN}copies in {place.topic}/{place.partition} are being written"
            for source, place in places.items()
            if self._stable[place] < ends[place]
        }

    def _copies_ends(self, sources: Sequence[int]) -> dict[int, int]:
        return {source: self._stable[self._copies_place(source)] for source in sources}

    def _copies_place(self, source: int) -> TopicPartition:
        return self._ground.sources[copies_source(source)].place

    def _turn(
        self, spec: SourceSpec, entries: Sequence[Entry], lines: Mapping[RecordPlace, int | None], end: int
    ) -> Turn | None:
        """Return how a partition goes on; None while a key is not known."""
        by = spec.input.ordering
        waiting: list[Held] = []
        for origin, _, is_held in entries:
            if not _is_of(origin, spec):
                waiting.append(Held(-1, None, is_held))
            elif by == KEY and origin not in lines:
                return None
            else:
                waiting.append(Held(origin.offset, lines.get(origin), is_held))
        self.held[str(spec)] = sum(held.is_held for held in waiting)
        cursor = self._tenure.cursors[copies_source(spec.source)]
        unread = cursor.free_below(position_at(generation_of(cursor.from_), end))
        turn = turn_of(by, spec.input.blocked_max, waiting, unread, str(spec))
        first = self._tenure.cursors[spec.source]
        gaps = first.free_below(first.next)  # below what was emitted already: it stands before that
        return turn._replace(most=max(turn.most, gaps))

    def _tell(self, specs: Mapping[int, SourceSpec], why: Mapping[int, str]) -> None:
        """Report what begins to wait for a record, or for room, and what goes on."""
        self.why = {str(specs[source]): text for source, text in why.items() if text}
        for source, text in why.items():
            if text.startswith(UNKNOWN):
                continue  # passes within a round trip
            before = self._told.get(source, "")
            if bool(text) != bool(before):
                name = "partition_waits" if text else "partition_goes_on"
                self._ground.report(name, {"partition": str(specs[source]), "why": text or before})
            self._told[source] = text
