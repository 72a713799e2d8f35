"""What the logs say, read in the order in which it was written, and what really happened to each record.

The truth is kept apart from the product: it decodes the records and folds the contributions by itself, in
the plainest way. The checkers of ``tests.simulation.checkers`` judge by it and by nothing else.

Every append and every commit has a number, `at`; "before" in a rule means a lower one. An event that is
written here happened at that moment for everybody who looks later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.kafka.port import Outgoing, TopicPartition
from acker.service.partition import ORIGIN_HEADER
from acker.wire.codec import wire_codec
from acker.wire.events import Lost, Taken, Verdicts
from acker.wire.verdict import Verdict
from spout.demo.judge import loss_of, settled_runs
from tests.simulation.truth.checker import Checker
from tests.simulation.truth.facts import (
    Evaluation,
    Journalled,
    RootTruth,
    SinkRow,
    SpoutLook,
)
from tests.simulation.truth.truth import FORGED, Truth
from tests.simulation.truth.truth_contributions import ContributionTruth
from tests.simulation.truth.truth_inits import InitTruth


class TruthReader(Truth):
    """Watches the cluster, and tells the checkers what happens."""

    def __init__(self, topics: Topics, checkers: Sequence[Checker], tell: Callable[..., None]) -> None:
        """Begin with empty logs."""
        super().__init__(topics, tell)
        self.checkers = checkers
        self._codec = wire_codec()
        self._pending: dict[str, dict[TopicPartition, list[tuple[int, Outgoing]]]] = {}
        self._inputs: dict[str, Input] = {}
        for found in topics.inputs.values():
            self._inputs[found.replay_topic] = found
            self._inputs[found.dead_letter.topic] = found
        self._groups = {found.group for found in topics.inputs.values()}
        contributions = ContributionTruth(self)
        self._reads = {
            self.names.init: InitTruth(self, self._initialised).read,
            self.names.ack: contributions.read_acks,
            self.names.fail: contributions.read_fails,
        }
        self._kept = {self.names.verdict, self.names.due, self.names.quarantine, *self._inputs}

    # -- what the cluster tells

    def appended(self, where: TopicPartition, offset: int, record: Outgoing, owner: str | None) -> None:
        """Read what was appended to an ack topic; keep what waits for a commit."""
        self.at += 1
        if owner is not None:
            if where.topic in self._kept:
                self._pending.setdefault(owner, {}).setdefault(where, []).append((offset, record))
            return
        read = self._reads.get(where.topic)
        if FORGED in dict(record.headers):
            self.forged.add(f"{where.topic}/{where.partition}@{offset}")
        elif read is not None:
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
            elif where.topic == self.names.quarantine:
                self.forged.discard((dict(record.headers)[ORIGIN_HEADER] or b"").decode())
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

    def _initialised(self, fresh: Sequence[RootTruth]) -> None:
        for checker in self.checkers:
            checker.initialised(self, fresh)

    # -- _ack_verdict

    def _verdict_topic(self, number: int, value: bytes | None) -> None:
        event = self._codec.decode(value)
        if isinstance(event, Taken):
            self._taken(number, event)
        elif isinstance(event, Verdicts):
            for run in settled_runs(event):
                for position in range(run.start, run.end):
                    self._settled(number, run.source, position, run.verdict, run.lost)

    def _taken(self, number: int, taken: Taken) -> None:
        part = self.partitions[number]
        key = taken.group, taken.asked_by
        if taken.part == 0 and key in part.unanswered:
            part.unanswered[key] -= 1
            self.owed -= 1
        self.tell("taken", number, taken.group, taken.asked_by, taken.refused or "accepted")
        for checker in self.checkers:
            checker.taken(self, number, taken)

    def _settled(self, number: int, source: int, position: int, kind: Verdict, lost: Lost | None) -> None:
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

    def _disposed(self, where: TopicPartition, offset: int, record: Outgoing) -> None:
        found = self._inputs[where.topic]
        dead = where.topic == found.dead_letter.topic
        loss = loss_of(record.headers)
        location = loss.root if loss else ""
        named = (loss.reason, loss.emitted_ms) if loss else None
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

    def stored(self, rows: Sequence[SinkRow]) -> None:
        """Note that a store committed rows, in one transaction."""
        self.at += 1
        for checker in self.checkers:
            checker.stored(self, rows)

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
