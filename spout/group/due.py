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
READ_MAX: Final = 200_000
"""Records of one call; the next one reads the rest."""


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

        Raises `UnknownVersion` if a newer replay worker wrote a record, `Disagreement` if one was written in
        another cluster.
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
        """Note a record and the root in it; None: a tombstone, or garbage, which does have a value."""


class WaitingReplay(NamedTuple):
    """A lost root that waits: of which input, until when (wall time, ms), and why it was put aside.

    `aside` is empty where it was not: then a replay worker replays it when it is due.
    """

    input_id: int
    due_ms: int
    aside: str


class StandingInput(NamedTuple):
    """An input of which lost roots wait for somebody; `pause` is None where they were put aside instead."""

    input_id: int
    roots: int
    why: str
    pause: Pause | None


class DueWatch(DueReader):
    """Which lost roots of one group's sources still wait, for queries that end when none does.

    Attributes:
        changes: how many records about these roots were read; while it is the same, nothing has moved.
    """

    def __init__(self, log: Log, topic: str, partitions: int, group: str, sources: frozenset[int]) -> None:
        """Follow the roots that `group` emitted; those that another group emitted are not waited for."""
        super().__init__(log, topic, partitions)
        self.changes = 0
        self._group = group
        self._sources = sources
        self._waiting: dict[tuple[int, bytes], WaitingReplay] = {}
        # by partition, input and whether they are put aside: a call must not walk through 200,000 roots
        self._counts = Counter[tuple[int, int, bool]]()
        self._aside_why: dict[tuple[int, int], str] = {}
        self._pauses: dict[tuple[int, bytes], Pause] = {}

    @property
    def waiting(self) -> int:
        """How many roots wait."""
        return len(self._waiting)

    def not_taken_over(self, lost_below: Mapping[int, int]) -> list[int]:
        """Return the verdict partitions of which a replay worker has not taken over every lost root yet.

        `lost_below` has by verdict partition the offset behind the last verdict of a lost root.
        """
        return sorted(p for p, offset in lost_below.items() if self.taken_over[p] < offset)

    def is_over(self, lost_below: Mapping[int, int]) -> bool:
        """Return whether nothing waits of what was read; `lost_below` as in `not_taken_over`."""
        return not self._waiting and not self.not_taken_over(lost_below)

    def standing(self) -> dict[int, StandingInput]:
        """Return, by their ids, the inputs of which roots wait for somebody: paused, or put aside."""
        pauses = {(partition, pause.input): pause for (partition, _), pause in self._pauses.items()}
        inputs: dict[int, StandingInput] = {}
        for (partition, input_id, is_aside), count in self._counts.items():
            pause = pauses.get((partition, input_id))
            if not count or (pause is None and not is_aside):
                continue
            before = inputs.get(input_id)
            roots = count if before is None else before.roots + count
            # a pause says more than that something was put aside meanwhile
            if pause is None and before is not None:
                pause = before.pause
            why = pause.why if pause is not None else self._aside_why.get((partition, input_id), "")
            inputs[input_id] = StandingInput(input_id, roots, why, pause)
        return inputs

    def next_due_ms(self) -> int | None:
        """Return when the first root is due that waits for nothing else, wall time; None: there is none.

        It walks through all of them.
        """
        paused = {(partition, pause.input) for (partition, _), pause in self._pauses.items()}
        times = [
            root.due_ms
            for (partition, _), root in self._waiting.items()
            if not root.aside and (partition, root.input_id) not in paused
        ]
        return min(times, default=None)

    def _note_pause(self, record: Record, pause: Pause) -> None:
        self.changes += 1
        self._pauses[record.partition, record.key or b""] = pause

    def _put(self, record: Record, due: Due | None) -> None:
        name = record.partition, record.key or b""
        if record.value is None and self._pauses.pop(name, None) is not None:
            self.changes += 1
        elif record.value is None:
            self._remove(name)
        elif due is not None and due.source in self._sources and due.group == self._group:
            self._remove(name)
            self._add(name, WaitingReplay(input_id_of(due.source), due.due_ms, _aside_text(due)))

    def _add(self, name: tuple[int, bytes], root: WaitingReplay) -> None:
        self.changes += 1
        self._waiting[name] = root
        self._counts[name[0], root.input_id, bool(root.aside)] += 1
        if root.aside:
            self._aside_why[name[0], root.input_id] = root.aside

    def _remove(self, name: tuple[int, bytes]) -> None:
        root = self._waiting.pop(name, None)
        if root is not None:
            self.changes += 1
            self._counts[name[0], root.input_id, bool(root.aside)] -= 1


def _aside_text(due: Due) -> str:
    """Return why a replay worker has put a root aside; empty where it has not."""
    if isinstance(due, RefusedRoot):
        return f"what is written for them is refused ({due.letter_why or due.copy_why})"
    return "their input could not go on" if isinstance(due, Aside) else ""


class WaitingRoot(NamedTuple):
    """A root that waits for its replay; `is_blocked` if it did not fail itself.

    Its record was first emitted at `origin` (None: unknown), and is read from `place`, of it or its last
    copy.
    """

    origin: RecordPlace | None
    place: RecordPlace
    is_blocked: bool


class DueEntries(DueReader):
    """The waiting roots of some inputs, by their ids, for what is read in order."""

    def __init__(self, log: Log, topic: str, partitions: int, inputs: Iterable[int]) -> None:
        super().__init__(log, topic, partitions)
        self._inputs = frozenset(inputs)
        self._waiting: dict[int, dict[bytes, WaitingRoot]] = {}
        self._source_of: dict[bytes, int] = {}

    def of(self, source: int) -> Sequence[WaitingRoot]:
        """Return the waiting roots of a partition; `source` is its source, not that of its copies."""
        return list(self._waiting.get(source, {}).values())

    def _put(self, record: Record, due: Due | None) -> None:
        if due is None and record.value is not None:
            return  # what was beneath it waits on, as its replay worker has it
        key = record.key or b""
        before = self._source_of.pop(key, None)
        if before is not None:
            self._waiting[before].pop(key, None)
        if due is not None and input_id_of(due.source) in self._inputs:
            source = first_source(due.source)
            found = parse_location(due.origin)
            self._source_of[key] = source
            place = RecordPlace(due.topic, partition_of(due.source), offset_of(due.position))
            root = WaitingRoot(None if found is None else RecordPlace(*found), place, due.last_was_blocked)
            self._waiting.setdefault(source, {})[key] = root
