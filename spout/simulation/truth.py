"""What the logs say, read in the order in which it was written, and what really happened to each record.

The truth is kept apart from the product: it decodes the records and folds the contributions by itself, in
the plainest way. The checkers of ``spout.simulation.checkers`` judge by it and by nothing else.

Every append and every commit has a number, `at`; "before" in a rule means a lower one. An event that is
written here happened at that moment for everybody who looks later.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from acker.config.settings import AckTopics, Input
from acker.config.topics import Topics
from acker.identity import acker_partition, is_replay, offset_of, partition_of
from acker.kafka.port import Outgoing, Record, TopicPartition
from acker.wire.codec import wire_codec
from acker.wire.events import Lost, Taken, Verdicts, positions
from replay.records.headers import HISTORY
from spout.simulation.facts import (
    AckerPartition,
    Evaluation,
    Holder,
    Journalled,
    RootTruth,
    SpoutLook,
    Stamp,
)
from spout.simulation.truth_contributions import ContributionTruth
from spout.simulation.truth_inits import InitTruth

if TYPE_CHECKING:
    from spout.simulation.checker import Checker
    from spout.simulation.seen import SeenCluster


class Truth:
    """Watches the cluster; see the module."""

    def __init__(self, topics: Topics, checkers: Sequence[Checker], tell: Callable[..., None]) -> None:
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
        self.verdicts = 0
        self.owed = 0
        self.checkers = checkers
        self.tell = tell
        self._codec = wire_codec()
        self._pending: dict[str, dict[TopicPartition, list[tuple[int, Outgoing]]]] = {}
        self._inputs: dict[str, Input] = {}
        for found in topics.inputs.values():
            self._inputs[found.replay_topic] = found
            self._inputs[found.dead_letter.topic] = found
        self._by_id = {found.id: found for found in topics.inputs.values()}
        self._groups = {found.group for found in topics.inputs.values()}
        contributions = ContributionTruth(self)
        self._reads = {
            self.names.init: InitTruth(self).read,
            self.names.ack: contributions.read_acks,
            self.names.fail: contributions.read_fails,
        }
        self._kept = {self.names.verdict, self.names.due, *self._inputs}

    @property
    def now_ms(self) -> int:
        """The time."""
        return self.cluster.now_ms

    def input_of(self, root: RootTruth) -> Input:
        """Return the input of a root."""
        wire_id = root.source >> 16
        return self._by_id[wire_id - 16_384 if is_replay(root.source) else wire_id]

    # -- what the cluster tells

    def appended(self, where: TopicPartition, offset: int, record: Outgoing, owner: str | None) -> None:
        """Read what was appended to an ack topic; keep what waits for a commit."""
        self.at += 1
        if owner is not None:
            if where.topic in self._kept:
                self._pending.setdefault(owner, {}).setdefault(where, []).append((offset, record))
            return
        read = self._reads.get(where.topic)
        if read is not None:
            read(where.partition, record.value)

    def ended(self, where: TopicPartition, owner: str, offsets: Sequence[int], *, committed: bool) -> None:
        """Read what a transaction wrote, once it has committed."""
        self.at += 1
        written = self._pending.get(owner, {}).pop(where, [])
        if not committed:
            return
        for offset, record in written:
            if where.topic == self.names.verdict:
                self._verdict_topic(where.partition, record.value)
            elif where.topic == self.names.due:
                continue
            else:
                self._disposed(where, offset, record)

    def kept(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str) -> None:
        """Look at what a group commits."""
        self.at += 1
        if group not in self._groups:
            return
        self.tell("commit", group, *(f"{p.topic}/{p.partition}={at}" for p, at in offsets.items()))
        for checker in self.checkers:
            checker.committed(self, group, offsets)

    # -- _ack_verdict

    def _verdict_topic(self, number: int, value: bytes | None) -> None:
        event = self._codec.decode(value)
        if isinstance(event, Taken):
            self._taken(number, event)
        elif isinstance(event, Verdicts):
            for kind, runs in (("ACKED", event.acked), ("ABSENT", event.absent)):
                for run in runs:
                    for position in range(run.start, run.end):
                        self._settled(number, run.source, position, kind, None)
            for lost in event.lost:
                for position in positions(lost.positions).tolist():
                    self._settled(number, lost.source, position, str(lost.reason), lost)

    def _taken(self, number: int, taken: Taken) -> None:
        part = self.partitions[number]
        key = taken.group, taken.asked_by
        if taken.part == 0:
            part.unanswered[key] = part.unanswered.get(key, 0) - 1
            self.owed -= 1
        self.tell("taken", number, taken.group, taken.asked_by, taken.refused or "accepted")
        for checker in self.checkers:
            checker.taken(self, number, taken)

    def _settled(self, number: int, source: int, position: int, kind: str, lost: Lost | None) -> None:
        root = self.roots.get((source, position))
        self.tell("verdict", number, kind, str(root or f"{source}@{position}"))
        for checker in self.checkers:
            checker.verdict(self, number, (source, position), root, kind, lost)
        if root is None or root.verdict is not None:
            return
        root.verdict, root.verdict_at, root.verdict_ms, root.lost = kind, self.at, self.now_ms, lost
        self.verdicts += 1
        self.open_roots -= 1
        self.open[root.group, root.holder] -= 1
        root.verdict_number = self.verdicts
        if self.is_owed(root):
            self.undisposed += 1
            self.owing[root.partition][root] = None

    # -- copies and dead letters

    def is_owed(self, root: RootTruth) -> bool:
        """Tell whether a root is still to be put back or buried; where there never was a record, none is."""
        held = self.cluster.at(root.topic, partition_of(root.source)).ever_held(offset_of(root.position))
        return root.lost is not None and not root.copies and held

    def _disposed(self, where: TopicPartition, offset: int, record: Outgoing) -> None:
        found = self._inputs[where.topic]
        dead = where.topic == found.dead_letter.topic
        headers = dict(record.headers)
        loss = _last_loss(headers.get(HISTORY))
        location = str(loss.get("root"))
        named = loss.get("reason"), loss.get("emitted_ms")
        roots = [root for root in self.located.get(location, ()) if root.group == found.group]
        # One offset is another root in each generation; what the history says of the loss tells them apart.
        meant = [root for root in roots if (root.verdict, root.wall) == named] or roots
        waiting = [root for root in meant if not root.copies]
        root = waiting[0] if waiting else meant[-1] if meant else None
        self.tell("letter" if dead else "copy", str(root or location), f"{where.partition}@{offset}")
        for checker in self.checkers:
            checker.disposed(self, root, record, dead)
        if root is None:
            return
        if self.is_owed(root):
            self.undisposed -= 1
        self.owing[root.partition].pop(root, None)
        root.copies.append(record)
        if not dead:
            self.parents[where.topic, where.partition, offset] = root

    # -- what the model of Spark tells

    def evaluated(self, session: str, source: int, position: int, evaluation: Evaluation) -> None:
        """Note what an evaluation did to a root."""
        self.evaluations.setdefault((session, source, position), []).append(evaluation)

    def journalled(self, batch: Journalled) -> None:
        """Note that a batch is journalled, so that it will be emitted."""
        for checker in self.checkers:
            checker.journalled(self, batch)

    def acker_rests(self, number: int) -> None:
        """Note that an acker which owns a partition has read everything that is there."""
        for checker in self.checkers:
            checker.acker_rests(self, number)

    def worker_rests(self, number: int, at: int, now_ms: int) -> None:
        """Note that a replay worker had nothing to do in a verdict partition, as of an event and a time."""
        for checker in self.checkers:
            checker.worker_rests(self, number, at, now_ms)

    def spout_stepped(self, look: SpoutLook) -> None:
        """Note that a planning thread has read all verdicts, and has had the chance to commit."""
        for checker in self.checkers:
            checker.spout_stepped(self, look)

    def end(self) -> None:
        """Note that everything was healed and has had its time."""
        for checker in self.checkers:
            checker.end(self)

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
        return int(offset_of(at))

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


def _last_loss(history: bytes | None) -> dict[str, object]:
    """Return the latest entry of a history, as its header has it."""
    losses: list[dict[str, object]] = json.loads(history or b"[]")
    return losses[-1] if losses else {}
