"""The lost roots that wait for their replay, read from `_ack_due`.

A replay worker puts a root *aside* if it can write neither its copy nor its dead letter, and tries
it again each minute; an operator has to look at what is refused.

A root leaves the topic in the transaction that writes its copy or its dead letter. So once nothing
of a group is in it, every copy is on the replay topic.

Source: docs/design/protocol.md, sections 5.1 and 5.4; `spout.planning_process.order_watch` says
when it is exact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from acker.errors import UnknownVersion
from acker.identity import Root, first_source, input_id_of
from acker.kafka.port import Log, OffsetAnswers, Record, TopicPartition
from acker.kafka.read_to_end import Follower
from acker.service.passed_over import damage_handler, require_passed_over
from acker.wire.clusters import require_cluster
from replay.records.due import Aside, Due, Pause, RefusedRoot
from replay.records.due_fold import (
    DueFold,
    EntryName,
    name_of,
    whole_entry,
)
from replay.records.headers import RecordPlace, parse_location

PATIENCE_MS: Final = 10
"""How long one call waits for the broker: the planner has other work, and calls again."""

READ_MAX: Final = 200_000
"""How many records one call reads; the next one reads the rest."""

E = TypeVar("E")


class DueReader(ABC, Generic[E]):
    """Follows N partitions of the topic from their beginning; a subclass keeps what it needs.

    Attributes:
        taken_over_to: by verdict partition, the offset of the first verdict record of which no
            replay worker has *taken over* all lost roots, that is written them to `_ack_due`.
    """

    def __init__(self, log: Log, topic: str, partitions: int) -> None:
        """Follow the partitions of `_ack_due`, which is `topic`, from their beginning."""
        self.taken_over_to: dict[int, int] = dict.fromkeys(range(partitions), 0)
        self._log = log
        self._cluster_id = log.cluster_id()
        # what the records read so far mean together: roots that wait, pauses, progress of replay workers
        self._fold = DueFold(self.read_entry, self, on_newer=partial(_require_passed_over, log))
        places = [TopicPartition(topic, number) for number in range(partitions)]
        self._follower = Follower(
            log, places, READ_MAX, patience_ms=PATIENCE_MS, on_damage=damage_handler(log)
        )

    def read(self) -> bool:
        """Read new records; return whether everything was read that was stable at the time of this call.

        Raises:
            Disagreement: a record was written in another cluster.
            UnknownVersion: a newer replay worker wrote a record.
        """
        for record in self._follower.read():
            require_cluster(record.place, record.headers, record.value, self._cluster_id)
            self._fold.put(record)
        for partition, progress in self._fold.progress.items():
            self.taken_over_to[partition] = progress.next
        return self._follower.is_whole

    def answers(self) -> OffsetAnswers:
        """Return the end offsets of the partitions, as of the last `read`, and why some are unknown."""
        return self._follower.answers

    def close(self) -> None:
        """Read no more."""
        self._follower.close()

    @abstractmethod
    def read_entry(self, record: Record, root: Root) -> E | None:
        """Return what is kept of the entry of a root that waits; None: nothing is."""

    @abstractmethod
    def put(self, record: Record, root: Root, entry: E) -> None:
        """Keep an entry, in place of an earlier one of its root."""

    @abstractmethod
    def end(self, record: Record, root: Root) -> None:
        """Forget a root that waits no more; one that was not kept changes nothing."""


def _require_passed_over(log: Log, record: Record, error: UnknownVersion) -> str:
    """Return the flaw of a record that an operator lets be passed over; raise for any other record."""
    cure = "a newer replay worker wrote it, run the spout with that version"
    return require_passed_over(log, record, error, cure)


class WaitingReplay(NamedTuple):
    """A lost root that waits.

    Attributes:
        due_ms: when it is to be replayed, wall time.
        aside: why a replay worker has put it aside; empty: it has not, and replays the root when it
            is due.
    """

    input_id: int
    due_ms: int
    aside: str


class WaitingKind(NamedTuple):
    """What waiting roots are counted by: their partition of `_ack_due`, their input, and if put aside."""

    partition: int
    input_id: int
    is_aside: bool


class StandingInput(NamedTuple):
    """An input whose lost roots wait for an operator.

    Attributes:
        roots: how many wait.
        why: why it was paused, or why its roots were put aside.
        pause: None: it is not paused, its roots were put aside.
    """

    input_id: int
    roots: int
    why: str
    pause: Pause | None


class DueWatch(DueReader[WaitingReplay]):
    """Follows which lost roots of one group still wait, for queries that end when none does."""

    def __init__(self, log: Log, topic: str, partitions: int, group: str, sources: frozenset[int]) -> None:
        """Follow the roots that `group` emitted; those that another group emitted are not waited for."""
        super().__init__(log, topic, partitions)
        self._group = group
        self._sources = sources
        self._entry_changes = 0  # how many entries and tombstones of these roots were read
        self._waiting: dict[EntryName, WaitingReplay] = {}
        # how many wait; kept, so that `standing` need not go through 200,000 roots at each call
        self._counts = Counter[WaitingKind]()
        # why some were put aside last, by partition of `_ack_due` and input id
        self._aside_why: dict[tuple[int, int], str] = {}

    def read_entry(self, record: Record, root: Root) -> WaitingReplay | None:
        """Return what is kept of an entry; None: the group did not emit the root, or not from its sources."""
        due = whole_entry(record, root)
        if due.source in self._sources and due.group == self._group:
            return WaitingReplay(input_id_of(due.source), due.due_ms, _aside_text(due))
        return None

    def put(self, record: Record, root: Root, entry: WaitingReplay) -> None:
        """Keep an entry, in place of an earlier one of its root."""
        self.end(record, root)
        self._entry_changes += 1
        self._waiting[name_of(record)] = entry
        self._counts[WaitingKind(record.partition, entry.input_id, bool(entry.aside))] += 1
        if entry.aside:
            self._aside_why[record.partition, entry.input_id] = entry.aside

    def end(self, record: Record, root: Root) -> None:
        """Forget a root that waits no more; one that was not kept changes nothing."""
        entry = self._waiting.pop(name_of(record), None)
        if entry is not None:
            self._entry_changes += 1
            self._counts[WaitingKind(record.partition, entry.input_id, bool(entry.aside))] -= 1

    @property
    def changes(self) -> int:
        """How many records about these roots, and pauses, were read.

        While it is the same, no replay worker has done anything about them.
        """
        return self._entry_changes + self._fold.pause_changes

    @property
    def waiting_count(self) -> int:
        """How many roots wait."""
        return len(self._waiting)

    def not_taken_over(self, lost_below: Mapping[int, int]) -> list[int]:
        """Return the verdict partitions of which a replay worker has not taken over every lost root yet.

        `lost_below` has by verdict partition the offset behind the last verdict of a lost root.
        """
        waiting_partitions: list[int] = []
        for partition, offset in lost_below.items():
            if self.taken_over_to[partition] < offset:
                waiting_partitions.append(partition)
        return sorted(waiting_partitions)

    def has_replayed_all(self, lost_below: Mapping[int, int]) -> bool:
        """Return whether every lost root has a copy or a dead letter; `lost_below` as in `not_taken_over`."""
        return not self._waiting and not self.not_taken_over(lost_below)

    def standing(self) -> dict[int, StandingInput]:
        """Return, by their ids, the inputs whose roots wait for an operator: paused, or put aside."""
        pauses = self._fold.paused_by_partition()
        inputs: dict[int, StandingInput] = {}
        for (partition, input_id, is_aside), count in self._counts.items():
            pause = pauses.get((partition, input_id))
            if not count or (pause is None and not is_aside):
                continue
            # an input has roots in several partitions: their numbers are added
            so_far = inputs.get(input_id)
            root_count = count if so_far is None else so_far.roots + count
            # a pause in one partition is named before what was put aside in another
            if pause is None and so_far is not None:
                pause = so_far.pause
            aside_why = self._aside_why.get((partition, input_id), "")
            why = aside_why if pause is None else pause.why
            inputs[input_id] = StandingInput(input_id, root_count, why, pause)
        return inputs

    def next_due_ms(self) -> int | None:
        """Return when the first root is due that waits for no operator, wall time; None: there is none.

        Roots that were put aside, or whose input is paused, wait for an operator. All roots are gone
        through here, so call it when one of them has changed.
        """
        pauses = self._fold.paused_by_partition()
        first_due_ms: int | None = None
        for (partition, _key), root in self._waiting.items():
            if root.aside or (partition, root.input_id) in pauses:
                continue
            if first_due_ms is None or root.due_ms < first_due_ms:
                first_due_ms = root.due_ms
        return first_due_ms


def _aside_text(due: Due) -> str:
    """Return why a replay worker has put a root aside; empty where it has not."""
    if isinstance(due, RefusedRoot):
        return f"what is written for them is refused ({due.letter_why or due.copy_why})"
    if isinstance(due, Aside):
        return "their input could not go on"
    return ""


class WaitingRoot(NamedTuple):
    """A root that waits for its replay, in a source that is read in order.

    Attributes:
        origin: where its record was first emitted; None: unknown.
        place: where its record is read from: the origin, or the last copy.
        is_blocked: it did not fail itself, but waits behind one that did.
    """

    origin: RecordPlace | None
    place: RecordPlace
    is_blocked: bool


class DueEntries(DueReader[WaitingRoot]):
    """Follows the waiting roots of some inputs, which are read in order; `inputs` are their ids."""

    def __init__(self, log: Log, topic: str, partitions: int, inputs: Iterable[int]) -> None:
        """Follow the partitions of `_ack_due`, which is `topic`."""
        super().__init__(log, topic, partitions)
        self._inputs = frozenset(inputs)
        # by the source of their first emissions, then by the names of their entries
        self._waiting: dict[int, dict[EntryName, WaitingRoot]] = {}

    def read_entry(self, record: Record, root: Root) -> WaitingRoot | None:
        """Return what is kept of an entry; None: the root is of another input."""
        due = whole_entry(record, root)
        if input_id_of(root.source) not in self._inputs:
            return None
        return WaitingRoot(parse_location(due.origin), due.place, due.last_was_blocked)

    def put(self, record: Record, root: Root, entry: WaitingRoot) -> None:
        """Keep an entry, in place of an earlier one of its root."""
        self.end(record, root)  # so that the latest entry is the last one
        self._waiting.setdefault(first_source(root.source), {})[name_of(record)] = entry

    def end(self, record: Record, root: Root) -> None:
        """Forget a root that waits no more; one that was not kept changes nothing."""
        self._waiting.get(first_source(root.source), {}).pop(name_of(record), None)

    def waiting_of(self, source: int) -> Sequence[WaitingRoot]:
        """Return the waiting roots of a partition; `source` is its source, not that of its copies."""
        return list(self._waiting.get(source, {}).values())
