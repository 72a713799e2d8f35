"""What the logs say, in the plainest way: every root, take and contribution, and what follows from them.

`reader` fills it, and the checkers judge by it and by nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from acker.config.settings import AckTopics, Input
from acker.config.topics import Topics
from acker.identity import acker_partition, is_replay, offset_of, partition_of
from acker.kafka.port import Record, TopicPartition
from tests.simulation.truth.facts import (
    AckerPartition,
    Evaluation,
    Holder,
    RootTruth,
    Stamp,
)
from tests.simulation.truth.seen import SeenCluster

NO_CUT: Final = 1 << 63
"""An offset that no log reaches."""

FORGED: Final = "forged"
"""The header of a record in another's name; no process of the product reads it."""


class Truth:
    """What is known so far; see the module."""

    def __init__(self, topics: Topics, tell: Callable[..., None]) -> None:
        """Begin with empty logs."""
        self.topics = topics
        self.names: AckTopics = topics.ack_topics
        self.count = topics.acker.partitions
        self.at = 0
        self.cluster: SeenCluster
        self.roots: dict[tuple[int, int], RootTruth] = {}
        self.located: dict[str, list[RootTruth]] = {}
        self.open: dict[tuple[str, Holder], int] = {}
        self.open_roots = 0
        self.undisposed = 0
        self.owing: list[dict[RootTruth, None]] = [{} for _ in range(self.count)]
        self.partitions = [AckerPartition() for _ in range(self.count)]
        self.froms: dict[tuple[int, int], int] = {}
        self.settled_to: dict[tuple[int, int], int] = {}
        self.evaluations: dict[tuple[str, int, int], list[Evaluation]] = {}
        self.consumed: set[tuple[str, int, int, int]] = set()
        self.alive: dict[str, list[list[int]]] = {}
        self.skew_ms_max = 0
        self.parents: dict[tuple[str, int, int], RootTruth] = {}
        self.deleted: dict[tuple[str, int], int] = {}
        self.forged: set[str] = set()
        self.cuts: dict[TopicPartition, int] = {}
        self.verdicts = 0
        self.owed = 0
        self.is_exact = False
        self.tell = tell
        self._by_id = {found.id: found for found in topics.inputs.values()}

    @property
    def now_ms(self) -> int:
        """The time."""
        return self.cluster.now_ms

    def input_of(self, root: RootTruth) -> Input:
        """Return the input of a root."""
        wire_id = root.source >> 16
        return self._by_id[wire_id - 16_384 if is_replay(root.source) else wire_id]

    def is_owed(self, root: RootTruth) -> bool:
        """Tell whether a root is still to be put back or buried; where there never was a record, none is."""
        if root.is_cut:
            held = root.cut_record is not None
        else:
            held = self.cluster.at(root.topic, partition_of(root.source)).ever_held(offset_of(root.position))
        return root.lost is not None and not root.copies and held

    def was_cut(self, place: TopicPartition, offset: int) -> None:
        """Note that a log is about to lose its records from an offset on, and which roots had them."""
        self.cuts[place] = min(offset, self.cuts.get(place, offset))
        log = self.cluster.at(*place)
        for root in self.roots.values():
            here = TopicPartition(root.topic, partition_of(root.source)) == place
            if here and offset_of(root.position) >= offset and not root.is_cut:
                root.is_cut, root.cut_record = True, log.original(int(offset_of(root.position)))

    def first_cut(self, root: RootTruth) -> int:
        """Return the lowest offset from which on the log of a root ever lost records, or `NO_CUT`."""
        return self.cuts.get(TopicPartition(root.topic, partition_of(root.source)), NO_CUT)

    def is_visible(self, root: RootTruth) -> bool:
        """Return whether the log has the record of a root now.

        Behind a cut it has another one. A session that has not heard of it yet may emit that in the old
        generation, and it is emitted in the new one for certain.
        """
        if offset_of(root.position) >= self.first_cut(root):
            return False
        return (
            self.cluster.at(root.topic, partition_of(root.source)).visible(int(offset_of(root.position)))
            is not None
        )

    def partition_of(self, source: int, position: int) -> AckerPartition:
        """Return the acker partition of a root."""
        return self.partitions[acker_partition(source, position, self.count)]

    def first_due(self, root: RootTruth) -> Stamp | None:
        """Return the first tick that reaches the deadline a root has without being touched."""
        return self.tick_at(root, root.emitted_at + root.timeout_ms) if root.timeout_ms else None

    def tick_at(self, root: RootTruth, clock_ms: int) -> Stamp | None:
        """Return the first tick of a root's session, since its init, whose clock reaches a time."""
        for stamp in self.partitions[root.partition].ticks.get((root.group, root.holder), ()):
            if stamp.at > root.at and stamp.clock_ms >= clock_ms:
                return stamp
        return None

    def told_clock(self, root: RootTruth, holder: Holder, clock_ms: int) -> bool:
        """Tell whether the acker partition of a root has ever heard a clock of a session, by take or tick."""
        part, key = self.partitions[root.partition], (root.group, holder)
        told = (stamp.clock_ms for stamp in part.ticks.get(key, ()))
        return part.begun.get(key) == clock_ms or clock_ms in told

    def original(self, root: RootTruth) -> Record | None:
        """Return the record of a root as it was written, whatever became of it; None if there was none."""
        if root.is_cut:
            return root.cut_record
        where = self.cluster.at(root.topic, partition_of(root.source))
        return where.original(int(offset_of(root.position)))

    def settled_below(self, source: int) -> int:
        """Return the offset below which each root of a source's newest generation has its verdict."""
        generation = max(g for s, g in self.froms if s == source)
        key = source, generation
        at = max(self.settled_to.get(key, 0), self.froms[key])
        while (root := self.roots.get((source, at))) is not None and root.verdict is not None:
            at += 1
        self.settled_to[key] = at
        settled = int(offset_of(at))
        # a generation that began at a cut leaves roots before the cut open, in the same session
        roots = self.roots.values() if self.cuts else ()
        is_open = (root for root in roots if root.source == source and root.verdict is None)
        return min([settled, *(int(offset_of(root.position)) for root in is_open)])

    def clock_before(self, root: RootTruth) -> int:
        """Return the clock of a root's session as it stood when the root's init was written."""
        stamps = self.partitions[root.partition].ticks.get((root.group, root.holder), ())
        return max((stamp.clock_ms for stamp in stamps if stamp.at < root.at), default=0)

    def has_gone_on(self, group: str, lane: str, seq: int) -> bool:
        """Tell whether a later batch of a lane was published, so that an earlier one counts no more."""
        return any(
            marked > seq
            for part in self.partitions
            for (_, owner, _, name), (marked, _) in part.marks.items()
            if owner == group and name == lane
        )

    def put_back_at(self, root: RootTruth) -> int | None:
        """Return where the first take of a higher session stands that came after a root's init."""
        for at, holder in self.partitions[root.partition].takes.get(root.group, ()):
            if at > root.at and holder > root.holder:
                return at
        return None

    def alive_ms(self, session: str, first_ms: int, last_ms: int) -> int:
        """Return for how long, between two times, some process of a session lived."""
        spans = sorted((max(a, first_ms), min(b, last_ms)) for a, b in self.alive.get(session, ()))
        total, reached = 0, first_ms
        for start, end in spans:
            start = max(start, reached)
            if end > start:
                total += end - start
                reached = end
        return total

    def processes(self, session: str, first_ms: int, last_ms: int) -> int:
        """Count the processes of a session that lived between two times."""
        return sum(1 for a, b in self.alive.get(session, ()) if a <= last_ms and b >= first_ms)

    def rivals(self, session: str) -> int:
        """Count the processes of a session that lived together with the one that was started last."""
        spans = self.alive.get(session, ())
        latest = max((start for start, _ in spans), default=0)
        return sum(1 for _, end in spans if end > latest)
