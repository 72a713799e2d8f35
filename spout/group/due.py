"""The lost roots that wait for their replay, read from `_ack_due`.

A root leaves the topic in the transaction that writes its copy or its dead letter. So once nothing of a group
is in it, every copy is on the replay topic.

Source: docs/design/protocol.md, sections 5.1 and 5.4; `spout.planner.order_watch` says when it is exact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from acker.errors import UnknownVersion
from acker.identity import first_source, input_id_of, offset_of, partition_of
from acker.kafka.port import Log, OffsetAnswers, Record, TopicPartition
from acker.kafka.reading import Follower
from acker.service.passed_over import damage_passed_over, require_passed_over
from acker.wire.clusters import require_cluster
from replay.records.due import Aside, Due, Pause, Progress, RefusedRoot, sound
from replay.records.headers import parse_location
from replay.worker.fetch import RecordPlace

PATIENCE_MS: Final = 10
"""How long one call waits for the broker: the planner has other work, and calls again."""

READ_MAX: Final = 200_000
"""How many records one call reads; the next one reads the rest."""

EntryName = tuple[int, bytes]
"""The partition of `_ack_due` and the key there, which name an entry until its tombstone."""


class DueReader(ABC):
    """Follows N partitions of the topic from their beginning.

    Attributes:
        taken_over: by verdict partition, the first record that no replay worker has taken over completely.
    """

    def __init__(self, log: Log, topic: str, partitions: int) -> None:
        self.taken_over: dict[int, int] = dict.fromkeys(range(partitions), 0)
        self._log = log
        self._cluster_id = log.cluster_id()
        places = [TopicPartition(topic, number) for number in range(partitions)]
        self._follower = Follower(
            log, places, READ_MAX, patience_ms=PATIENCE_MS, on_damage=damage_passed_over(log)
        )

    def read(self) -> bool:
        """Read on; return whether everything was read that was stable at the time of this call.

        Raises:
            Disagreement: a record was written in another cluster.
            UnknownVersion: a newer replay worker wrote a record.
        """
        for record in self._follower.read():
            self._take(record)
        return self._follower.is_whole

    def answers(self) -> OffsetAnswers:
        """Return the ends of the partitions, as of the last `read`, and which of them have none."""
        return self._follower.answers

    def close(self) -> None:
        self._follower.close()

    def _take(self, record: Record) -> None:
        require_cluster(record.place, record.headers, self._cluster_id)
        try:
            value = None if record.value is None else sound(record)
        except UnknownVersion as error:
            cure = "a newer replay worker wrote it, run the spout with that version"
            # it raises unless an operator has said that this record is passed over
            require_passed_over(self._log, record, error, cure)
            value = None
        if isinstance(value, Progress):
            self.taken_over[record.partition] = value.next
        elif isinstance(value, Pause):
            self._note_pause(record, value)
        else:
            self._put(record, value)

    def _note_pause(self, record: Record, pause: Pause) -> None:  # noqa: B027 - most readers need none
        """Note that an input is paused in the record's partition, until a tombstone of the record's key."""

    @abstractmethod
    def _put(self, record: Record, due: Due | None) -> None:
        """Note a record and the root in it, `due`.

        None: the record is a tombstone, or, where `record.value` is not None, something that cannot be read.
        """


class WaitingReplay(NamedTuple):
    """A lost root that waits.

    Attributes:
        due_ms: when it is to be replayed, wall time.
        aside: why a replay worker has put it aside; empty: it has not, and replays the root when it is due.
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


class DueWatch(DueReader):
    """Follows which lost roots of one group still wait, for queries that end when none does.

    Attributes:
        changes: how many records about these roots were read; while it is the same, no replay worker has
            done anything about them.
    """

    def __init__(self, log: Log, topic: str, partitions: int, group: str, sources: frozenset[int]) -> None:
        """Follow the roots that `group` emitted; those that another group emitted are not waited for."""
        super().__init__(log, topic, partitions)
        self.changes = 0
        self._group = group
        self._sources = sources
        self._waiting: dict[EntryName, WaitingReplay] = {}
        # kept beside `_waiting`, so that `standing` need not go through 200,000 roots at each call
        self._counts = Counter[WaitingKind]()
        self._aside_why: dict[tuple[int, int], str] = {}  # by partition and input
        self._pauses: dict[EntryName, Pause] = {}

    @property
    def waiting(self) -> int:
        """How many roots wait."""
        return len(self._waiting)

    def not_taken_over(self, lost_below: Mapping[int, int]) -> list[int]:
        """Return the verdict partitions of which a replay worker has not taken over every lost root yet.

        `lost_below` has by verdict partition the offset behind the last verdict of a lost root.
        """
        return sorted(
            partition for partition, offset in lost_below.items() if self.taken_over[partition] < offset
        )

    def has_replayed_all(self, lost_below: Mapping[int, int]) -> bool:
        """Return whether every lost root has a copy or a dead letter; `lost_below` as in `not_taken_over`."""
        return not self._waiting and not self.not_taken_over(lost_below)

    def standing(self) -> dict[int, StandingInput]:
        """Return, by their ids, the inputs whose roots wait for an operator: paused, or put aside."""
        pauses = self._pauses_by_input()
        inputs: dict[int, StandingInput] = {}
        for (partition, input_id, is_aside), count in self._counts.items():
            pause = pauses.get((partition, input_id))
            if not count or (pause is None and not is_aside):
                continue
            # an input has roots in several partitions: their numbers are added
            before = inputs.get(input_id)
            roots = count if before is None else before.roots + count
            # a pause in one partition is named before what was put aside in another
            if pause is None and before is not None:
                pause = before.pause
            why = pause.why if pause is not None else self._aside_why.get((partition, input_id), "")
            inputs[input_id] = StandingInput(input_id, roots, why, pause)
        return inputs

    def next_due_ms(self) -> int | None:
        """Return when the first root is due that waits for no operator, wall time; None: there is none.

        It goes through all roots: call it when one of them has changed.
        """
        pauses = self._pauses_by_input()
        due_ms = [
            root.due_ms
            for (partition, _key), root in self._waiting.items()
            if not root.aside and (partition, root.input_id) not in pauses
        ]
        return min(due_ms, default=None)

    def _pauses_by_input(self) -> dict[tuple[int, int], Pause]:
        """Return the pauses by partition and input: each partition of the topic has pauses of its own."""
        return {(partition, pause.input): pause for (partition, _key), pause in self._pauses.items()}

    def _note_pause(self, record: Record, pause: Pause) -> None:
        self.changes += 1
        self._pauses[record.partition, record.key or b""] = pause

    def _put(self, record: Record, due: Due | None) -> None:
        name = record.partition, record.key or b""
        if record.value is None:
            # a tombstone does not say whether its key was that of a pause or of a root
            was_pause = self._pauses.pop(name, None) is not None
            if was_pause:
                self.changes += 1
            else:
                self._remove(name)
        elif due is not None:
            self._remove(name)  # whosever entry this is, it replaces the one before
            if due.source in self._sources and due.group == self._group:
                self._add(name, WaitingReplay(input_id_of(due.source), due.due_ms, _aside_text(due)))

    def _add(self, name: EntryName, root: WaitingReplay) -> None:
        self.changes += 1
        self._waiting[name] = root
        partition, _key = name
        self._counts[WaitingKind(partition, root.input_id, bool(root.aside))] += 1
        if root.aside:
            self._aside_why[partition, root.input_id] = root.aside

    def _remove(self, name: EntryName) -> None:
        root = self._waiting.pop(name, None)
        if root is not None:
            self.changes += 1
            partition, _key = name
            self._counts[WaitingKind(partition, root.input_id, bool(root.aside))] -= 1


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


class DueEntries(DueReader):
    """Follows the waiting roots of some inputs, which are read in order; `inputs` are their ids."""

    def __init__(self, log: Log, topic: str, partitions: int, inputs: Iterable[int]) -> None:
        super().__init__(log, topic, partitions)
        self._inputs = frozenset(inputs)
        self._waiting: dict[int, dict[EntryName, WaitingRoot]] = {}
        self._source_of: dict[EntryName, int] = {}

    def waiting_of(self, source: int) -> Sequence[WaitingRoot]:
        """Return the waiting roots of a partition; `source` is its source, not that of its copies."""
        return list(self._waiting.get(source, {}).values())

    def _put(self, record: Record, due: Due | None) -> None:
        if due is None and record.value is not None:
            return  # it cannot be read; the root whose entry it replaced waits on: its replay worker has it
        name = record.partition, record.key or b""
        before = self._source_of.pop(name, None)
        if before is not None:
            self._waiting[before].pop(name, None)
        if due is not None and input_id_of(due.source) in self._inputs:
            source = first_source(due.source)
            location = parse_location(due.origin)
            origin = None if location is None else RecordPlace(*location)
            place = RecordPlace(due.topic, partition_of(due.source), offset_of(due.position))
            self._source_of[name] = source
            self._waiting.setdefault(source, {})[name] = WaitingRoot(origin, place, due.last_was_blocked)
