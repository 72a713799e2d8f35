"""Rules 1 to 6 of docs/design/protocol.md, section 3: what is emitted, and its verdict. See `checkers`."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from acker.identity import generation_of, offset_of, partition_of, position_at
from acker.kafka.port import Outgoing, TopicPartition
from acker.wire.events import Lost
from acker.wire.verdict import Verdict
from spout.group.commits import COMMIT_EVERY_MS
from tests.simulation.truth.checker import Checker
from tests.simulation.truth.facts import COMPLETE, Evaluation, Journalled, RootTruth, SpoutLook
from tests.simulation.truth.originals import content_flaw
from tests.simulation.truth.truth import Truth
from tests.support.flaws import replacement_flaw, verdict_flaw


class EmittedOnce(Checker):
    """Rule 1."""

    rule = "each position of a source is initialised at most once, ever"

    def __init__(self) -> None:
        """Begin with nothing journalled."""
        self._batches: dict[tuple[str, str, int, int], int] = {}

    def initialised(self, truth: Truth, roots: Sequence[RootTruth]) -> None:
        """Refuse what lies below the start of its group."""
        for root in roots:
            first = truth.froms.get((root.source, generation_of(root.position)))
            if first is None or root.position < first:
                raise self.broken(f"{root} is initialised below the start of group {root.group}")

    def verdict(
        self, truth: Truth, partition: int, place: tuple[int, int], root: RootTruth | None, kind: Verdict,
        lost: Lost | None,
    ) -> None:  # fmt: skip
        """Compare what a verdict says of the emission with the one that counts."""
        if root is None:
            raise self.broken(f"{kind} for position {place}, which was never initialised")
        if lost is not None and (lost.emitted_at, lost.emitted_wall) != (root.emitted_at, root.wall):
            raise self.broken(f"{kind} for {root} names an emission that does not count")

    def journalled(self, truth: Truth, batch: Journalled) -> None:
        """Refuse a position that stands in two batches, and one that was another session's before."""
        for source, start, end in batch.ranges:
            for position in range(start, end):
                self._position(truth, batch, source, position)

    def _position(self, truth: Truth, batch: Journalled, source: int, position: int) -> None:
        key = batch.query, batch.holder.id, source, position
        if self._batches.setdefault(key, batch.batch) != batch.batch:
            raise self.broken(
                f"{source}@{position} stands in batches {self._batches[key]} and {batch.batch} of one query"
            )
        root = truth.roots.get((source, position))
        held = truth.partition_of(source, position).holders.get(batch.group)
        if held is not None and held > batch.holder:
            return
        if root is None:
            if self._is_reset(truth, batch, source, position):
                return
            raise self.broken(f"{source}@{position} is planned by {batch.holder} and was never initialised")
        if root.holder != batch.holder and root.at < batch.opened_at:
            raise self.broken(f"{root} is planned by {batch.holder} but was emitted by {root.holder} before")

    @staticmethod
    def _is_reset(truth: Truth, batch: Journalled, source: int, position: int) -> bool:
        """Tell whether a reset that has ended the session elsewhere began a generation above the position.

        A restart of the session spreads that generation to partitions that the reset did not reach, and is
        refused by the others; so the partition of the position still has the old holder.
        """
        known = truth.partition_of(source, position).known.get(source)
        is_old = known is not None and known.generation > generation_of(position)
        return is_old and any(
            part.holders.get(batch.group, batch.holder) > batch.holder for part in truth.partitions
        )


class OneVerdict(Checker):
    """Rule 2."""

    rule = "each initialised root gets one verdict"

    def verdict(
        self, truth: Truth, partition: int, place: tuple[int, int], root: RootTruth | None, kind: Verdict,
        lost: Lost | None,
    ) -> None:  # fmt: skip
        """Refuse a second verdict, and one of another acker partition."""
        if root is None:
            return
        if flaw := verdict_flaw([*filter(None, [root.verdict]), kind]):
            raise self.broken(f"{root} {flaw}")
        if root.partition != partition:
            raise self.broken(f"{root} gets its verdict from partition {partition}, not {root.partition}")

    def end(self, truth: Truth) -> None:
        """Every root has its verdict."""
        for root in truth.roots.values():
            if flaw := verdict_flaw(list(filter(None, [root.verdict]))):
                raise self.broken(f"{root} {flaw}")


class NoEarlyCompletion(Checker):
    """Rule 3."""

    rule = "a root with an outstanding edge is never ACKED"

    def verdict(
        self, truth: Truth, partition: int, place: tuple[int, int], root: RootTruth | None, kind: Verdict,
        lost: Lost | None,
    ) -> None:  # fmt: skip
        """An ACKED root was consumed whole in an evaluation whose output stood when it was completed."""
        if root is None or kind != Verdict.ACKED:
            return
        stood = [
            one
            for one in truth.evaluations.get((root.holder.id, *place), ())
            if one.written or one.published_at
        ]
        for number, one in enumerate(stood):
            session = root.holder.id
            acked = all((session, *place, edge) in truth.consumed for edge in one.remote)
            whole = one.result == COMPLETE and acked
            if whole and not self._overruled(root, stood[number + 1 :]):
                return
        raise self.broken(
            f"{root} is ACKED, but no evaluation that stands has consumed all of it:"
            f" {', '.join(one.result for one in stood) or 'it was never evaluated'}"
        )

    @staticmethod
    def _overruled(root: RootTruth, later: Sequence[Evaluation]) -> bool:
        """Tell whether a later evaluation said otherwise before the root was completed."""
        completed_at = root.complete_at or 0
        said = [one.published_at for one in later if one.written and one.result != COMPLETE]
        return any(published_at is not None and published_at < completed_at for published_at in said)


class FailBeatsZero(Checker):
    """Rule 4."""

    rule = "a root that was failed before it was complete is never ACKED"

    def verdict(
        self, truth: Truth, partition: int, place: tuple[int, int], root: RootTruth | None, kind: Verdict,
        lost: Lost | None,
    ) -> None:  # fmt: skip
        """A fail that stands in the log before the last contribution wins."""
        if root is None or kind != Verdict.ACKED or root.failed_at is None:
            return
        if root.complete_at is None or root.failed_at < root.complete_at:
            raise self.broken(f"{root} is ACKED although it was failed before, by {sorted(root.causes)}")


class NoLoss(Checker):
    """Rule 5."""

    rule = "what is committed has a verdict; what was lost becomes one copy or one dead letter"

    def verdict(
        self, truth: Truth, partition: int, place: tuple[int, int], root: RootTruth | None, kind: Verdict,
        lost: Lost | None,
    ) -> None:  # fmt: skip
        """ABSENT is what the log really does not hold."""
        if root is None or kind != Verdict.ABSENT:
            return
        if truth.is_visible(root):
            raise self.broken(f"{root} is ABSENT, but the log holds it")

    def disposed(self, truth: Truth, root: RootTruth | None, record: Outgoing, dead: bool) -> None:
        """A copy or a dead letter holds all of the record that it stands for."""
        if root is not None and root.lost is not None:
            self.require(content_flaw(truth, root, record, dead=dead), root, dead=dead)

    def committed(self, truth: Truth, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Everything below a committed offset has a verdict, in one generation at least."""
        inputs = [found for found in truth.topics.inputs.values() if found.group == group]
        for where, offset in offsets.items():
            for found in inputs:
                if where.topic in (found.topic, found.replay_topic):
                    replay = where.topic == found.replay_topic
                    self._prefix(
                        truth, (found.id + (16_384 if replay else 0)) << 16 | where.partition, offset
                    )

    def _prefix(self, truth: Truth, source: int, offset: int) -> None:
        generations = sorted((g for s, g in truth.froms if s == source), reverse=True)
        first_open = None
        for generation in generations:
            end = position_at(generation, offset)
            at = max(truth.settled_to.get((source, generation), 0), truth.froms[source, generation])
            while at < end:
                root = truth.roots.get((source, at))
                if root is None or root.verdict is None:
                    break
                at += 1
            truth.settled_to[source, generation] = at
            if at >= end:
                return
            first_open = at if first_open is None else first_open
        if first_open is not None:
            raise self.broken(
                f"offset {offset} of source {source} is committed, but {first_open} has no verdict"
            )

    def end(self, truth: Truth) -> None:
        """Every lost root was put back or buried, and every record that is there was emitted."""
        for root in truth.roots.values():
            if truth.is_owed(root):
                raise self.broken(f"{root} {replacement_flaw(str(root.verdict), 0)}")
        for found in truth.topics.inputs.values():
            for replay in (False, True):
                topic = found.replay_topic if replay else found.topic
                for number, log in enumerate(truth.cluster.topic(topic).partitions):
                    source = (found.id + (16_384 if replay else 0)) << 16 | number
                    self._all_emitted(truth, source, log.stable_end)

    def _all_emitted(self, truth: Truth, source: int, end: int) -> None:
        generation = max((g for s, g in truth.froms if s == source), default=None)
        if generation is None:
            raise self.broken(f"source {source} was never taken")
        first = truth.froms[source, generation]
        for position in range(first, position_at(generation, end)):
            if (source, position) not in truth.roots:
                raise self.broken(f"offset {offset_of(position)} of source {source} was never emitted")


class NothingBlocks(Checker):
    """Rule 6."""

    rule = "a restart emits nothing that was settled, and a failing record holds nothing back"

    SLACK_MS = 500
    """A commit may be late by one look of the planning thread."""

    def __init__(self) -> None:
        """Begin with nothing committed."""
        self._committed: dict[tuple[str, TopicPartition], int] = {}
        self._settled: dict[str, deque[tuple[int, dict[TopicPartition, int]]]] = {}

    def committed(self, truth: Truth, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Note how far a group has come; another process may commit less afterwards, and that heals."""
        for where, offset in offsets.items():
            self._committed[group, where] = max(offset, self._committed.get((group, where), 0))

    def spout_stepped(self, truth: Truth, look: SpoutLook) -> None:
        """What was settled some seconds ago is committed, whatever is pending behind it."""
        looks = self._settled.setdefault(look.process, deque())
        if any(part.holders.get(look.group) != look.holder for part in truth.partitions):
            looks.clear()
            return
        while looks and looks[0][0] < look.since_ms:
            looks.popleft()
        while looks and looks[0][0] <= look.wall_ms - COMMIT_EVERY_MS - self.SLACK_MS:
            for where, settled_then in looks.popleft()[1].items():
                committed = self._committed.get((look.group, where), 0)
                # what was settled behind a cut is of records that are gone: the next generation commits anew
                settled = min(settled_then, truth.cuts.get(where, settled_then))
                if committed < settled:
                    raise self.broken(
                        f"{look.group} has committed {committed} of {where.topic}/{where.partition},"
                        f" and {settled} was settled more than {COMMIT_EVERY_MS} ms ago"
                    )
        looks.append((look.ended_ms, self._prefixes(truth, look.group)))

    @staticmethod
    def _prefixes(truth: Truth, group: str) -> dict[TopicPartition, int]:
        """Return of each partition of a group's inputs, replay topics too, up to where all is settled."""
        known = truth.partitions[0].known.items()
        return {
            TopicPartition(one.topic, partition_of(source)): truth.settled_below(source)
            for source, one in known
            if one.group == group
        }

    def journalled(self, truth: Truth, batch: Journalled) -> None:
        """A new batch holds nothing that had its verdict before the process was started."""
        for source, start, end in batch.ranges:
            for position in range(start, end):
                root = truth.roots.get((source, position))
                if root is not None and root.verdict is not None and root.verdict_at < batch.opened_at:
                    raise self.broken(
                        f"{root} was {root.verdict} and is planned again, in batch {batch.batch}"
                    )

    def end(self, truth: Truth) -> None:
        """The group's offsets have come to the ends."""
        for found in truth.topics.inputs.values():
            committed = truth.cluster.committed(found.group)
            for number, log in enumerate(truth.cluster.topic(found.topic).partitions):
                kept = committed.get(TopicPartition(found.topic, number))
                if log.stable_end > log.start and (kept is None or kept.offset < log.stable_end):
                    raise self.broken(
                        f"{found.group} has committed {kept} of {found.topic}/{number}, not {log.stable_end}"
                    )
