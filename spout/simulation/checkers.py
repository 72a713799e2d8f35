"""The rules of DESIGN.md, section 3: one checker for each, which watches the logs from outside.

A checker is told what happens and raises `Broken` when that breaks its rule. It knows nothing of what any
process keeps in memory: only what was written, in which order, and what really happened to each record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from acker.events import Lost, Taken
from acker.identity import generation_of, is_replay, offset_of, partition_of, position_at
from acker.log import Outgoing, TopicPartition
from replay.backoff import Backoff, delay_ms
from replay.dead_letter import DEAD
from replay.headers import ABANDONED, ATTEMPT, CAUSE, OPERATOR, ORIGIN, REASON
from spout.simulation.truth import (
    COMPLETE,
    Broken,
    Evaluation,
    Holder,
    Journalled,
    RootTruth,
    Truth,
)

MESSAGE_BYTES_MAX = 500

ZOMBIE_MS = 60_000
"""What a process of a session wrote may be felt for so long after its end."""


class Checker:
    """Watches one rule; by default everything is right."""

    rule: ClassVar[str]
    """What the rule says, in one line."""

    def initialised(self, truth: Truth, roots: Sequence[RootTruth]) -> None:
        """An `Init` that counts was written; it opens these roots."""

    def taken(self, truth: Truth, partition: int, taken: Taken) -> None:
        """An acker partition answered a `Take`."""

    def verdict(
        self, truth: Truth, partition: int, place: tuple[int, int], root: RootTruth | None, kind: str,
        lost: Lost | None,
    ) -> None:  # fmt: skip
        """A verdict was committed for the position at `place`; `root` is None if it was never initialised."""

    def disposed(self, truth: Truth, root: RootTruth | None, record: Outgoing, dead: bool) -> None:
        """A copy or a dead letter was committed."""

    def committed(self, truth: Truth, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """A group's offsets were committed."""

    def journalled(self, truth: Truth, batch: Journalled) -> None:
        """Spark's checkpoint holds a batch from here on."""

    def acker_rests(self, truth: Truth, partition: int) -> None:
        """The acker of a partition has read, applied and committed everything that is there."""

    def end(self, truth: Truth) -> None:
        """Everything was healed, and nothing moves any more."""

    def broken(self, message: str) -> Broken:
        """Make the error of this rule."""
        return Broken(type(self).__name__, message)


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
        self, truth: Truth, partition: int, place: tuple[int, int], root: RootTruth | None, kind: str,
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
            raise self.broken(f"{source}@{position} is planned by {batch.holder} and was never initialised")
        if root.holder != batch.holder and root.at < batch.opened_at:
            raise self.broken(f"{root} is planned by {batch.holder} but was emitted by {root.holder} before")


class OneVerdict(Checker):
    """Rule 2."""

    rule = "each initialised root gets one verdict"

    def verdict(
        self, truth: Truth, partition: int, place: tuple[int, int], root: RootTruth | None, kind: str,
        lost: Lost | None,
    ) -> None:  # fmt: skip
        """Refuse a second verdict, and one of another acker partition."""
        if root is None:
            return
        if root.verdict is not None:
            raise self.broken(f"{root} is {root.verdict} and then {kind}")
        if root.partition != partition:
            raise self.broken(f"{root} gets its verdict from partition {partition}, not {root.partition}")

    def end(self, truth: Truth) -> None:
        """Every root has its verdict."""
        for root in truth.roots.values():
            if root.verdict is None:
                raise self.broken(f"{root} never got a verdict")


class NoEarlyCompletion(Checker):
    """Rule 3."""

    rule = "a root with an outstanding edge is never ACKED"

    def verdict(
        self, truth: Truth, partition: int, place: tuple[int, int], root: RootTruth | None, kind: str,
        lost: Lost | None,
    ) -> None:  # fmt: skip
        """An ACKED root was consumed whole in an evaluation whose output stood when it was completed."""
        if root is None or kind != "ACKED":
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
        said = [one.published_at for one in later if one.result != COMPLETE]
        return any(published_at is not None and published_at < completed_at for published_at in said)


class FailBeatsZero(Checker):
    """Rule 4."""

    rule = "a root that was failed before it was complete is never ACKED"

    def verdict(
        self, truth: Truth, partition: int, place: tuple[int, int], root: RootTruth | None, kind: str,
        lost: Lost | None,
    ) -> None:  # fmt: skip
        """A fail that stands in the log before the last contribution wins."""
        if root is None or kind != "ACKED" or root.failed_at is None:
            return
        if root.complete_at is None or root.failed_at < root.complete_at:
            raise self.broken(f"{root} is ACKED although it was failed before, by {sorted(root.causes)}")


class NoLoss(Checker):
    """Rule 5."""

    rule = "what is committed has a verdict; what was lost becomes one copy or one dead letter"

    def verdict(
        self, truth: Truth, partition: int, place: tuple[int, int], root: RootTruth | None, kind: str,
        lost: Lost | None,
    ) -> None:  # fmt: skip
        """ABSENT is what the log really does not hold."""
        if root is None or kind != "ABSENT":
            return
        where = truth.cluster.at(root.topic, partition_of(root.source))
        if where.visible(int(offset_of(root.position))) is not None:
            raise self.broken(f"{root} is ABSENT, but the log holds it")

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
            if root.lost is not None and not root.copies:
                raise self.broken(f"{root} is {root.verdict} and has neither copy nor dead letter")
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


class CrashCostsNoReplay(Checker):
    """Rule 7."""

    rule = "verdicts and copies are those that would have been without a crash, once"

    def verdict(
        self, truth: Truth, partition: int, place: tuple[int, int], root: RootTruth | None, kind: str,
        lost: Lost | None,
    ) -> None:  # fmt: skip
        """Every verdict has its reason in the log."""
        if root is None:
            return
        why = {
            "ACKED": root.complete_at is not None,
            "ABSENT": root.absent_at is not None,
            "FAILED": root.failed_at is not None,
            "TIMED_OUT": truth.first_due(root) is not None,
            "ABANDONED": truth.put_back_at(root) is not None,
        }
        if not why[kind]:
            raise self.broken(f"{root} is {kind}, and nothing in the log says so")

    def disposed(self, truth: Truth, root: RootTruth | None, record: Outgoing, dead: bool) -> None:
        """A root is put back or buried once, and only if it was lost."""
        what = "dead letter" if dead else "copy"
        if root is None:
            raise self.broken(f"a {what} of a root that nobody knows: {dict(record.headers).get(ORIGIN)!r}")
        if root.lost is None:
            raise self.broken(f"a {what} of {root}, whose verdict is {root.verdict}")
        if root.copies:
            raise self.broken(f"{root} became a copy or dead letter {len(root.copies) + 1} times")


class HonestDeadlines(Checker):
    """Rule 8."""

    rule = "a root times out when its session's clock passes its deadline, and by nothing else"

    SLACK_MS = 100
    """What the clock may gain on the time that its processes lived: one look by each of them."""

    LATE_MS = 1_000

    def verdict(
        self, truth: Truth, partition: int, place: tuple[int, int], root: RootTruth | None, kind: str,
        lost: Lost | None,
    ) -> None:  # fmt: skip
        """Look at the clock of a root that timed out, and at what another kind of loss would hide."""
        if root is None or lost is None:
            return
        due = truth.first_due(root)
        if kind == "ABANDONED":
            self._before(root, truth.put_back_at(root), "the takeover")
        if kind != "TIMED_OUT":
            return
        if due is None:
            raise self.broken(f"{root} timed out at {lost.decided_at}, which no tick of its session says")
        self._before(root, due.at, "the tick")
        tick = truth.tick_at(root, lost.decided_at)
        if tick is None or tick.clock_ms != lost.decided_at:
            raise self.broken(f"{root} timed out at {lost.decided_at}, which no tick of its session says")
        deadline = root.emitted_at + root.timeout_ms
        for at, touched_at in root.touches:
            if at < tick.at:
                deadline = max(deadline, touched_at + root.timeout_ms)
        if lost.decided_at < deadline:
            raise self.broken(f"{root} timed out at {lost.decided_at}, before its deadline {deadline}")
        late_ms = lost.decided_at - max(deadline, truth.clock_before(root))
        # A zombie without an open root lets its own clock jump, and ticks if it plans what was planned.
        lived = truth.processes(root.holder.id, root.now_ms - ZOMBIE_MS, tick.now_ms)
        if late_ms > self.LATE_MS and not root.touches and lived <= 1:
            raise self.broken(f"{root} timed out at {lost.decided_at}, {late_ms} ms late")
        self._stands_still(truth, root, lost, tick.now_ms)

    def _before(self, root: RootTruth, at: int | None, what: str) -> None:
        """Refuse a loss that a contribution or a fail written before it makes wrong."""
        if at is None:
            return
        if root.complete_at is not None and root.complete_at < at:
            raise self.broken(f"{root} was acked in the log before {what} that lost it")
        if root.failed_at is not None and root.failed_at < at:
            raise self.broken(f"{root} was failed in the log before {what} that lost it")
        if root.absent_at is not None and root.absent_at < at:
            raise self.broken(f"{root} was absent in the log before {what} that lost it")

    def _stands_still(self, truth: Truth, root: RootTruth, lost: Lost, tick_ms: int) -> None:
        # The clock was read some time before the Init was durable; its wall time says when, but for the skew.
        emitted_ms = min(root.now_ms, root.wall - truth.skew_ms_max)
        lived_ms = truth.alive_ms(root.holder.id, emitted_ms, tick_ms)
        passed_ms = lost.decided_at - root.emitted_at
        if passed_ms > lived_ms + self.SLACK_MS + 1_000 * truth.clock_jumps:
            raise self.broken(
                f"{root} timed out after {passed_ms} ms of its session's clock, which lived {lived_ms} ms"
            )


class PutBack(Checker):
    """Rule 9."""

    rule = "a takeover puts the open roots back, oldest first; a lower session is refused"

    def __init__(self) -> None:
        """Begin with no takeover."""
        self._last: dict[int, tuple[int, tuple[int, int, int]]] = {}

    def taken(self, truth: Truth, partition: int, taken: Taken) -> None:
        """Only the highest session is accepted, and nothing of a lower one is open then."""
        held = truth.partitions[partition].holders.get(taken.group)
        holder = Holder(taken.epoch, taken.session)
        if taken.refused:
            return
        if taken.asked_by != taken.session or held is None:
            raise self.broken(f"{taken.asked_by} is accepted, but {taken.session} holds group {taken.group}")
        before = [one for _, one in truth.partitions[partition].takes[taken.group]]
        if holder not in before:
            raise self.broken(f"session {holder} is accepted though it is lower than {held}")
        for root in truth.roots.values():
            mine = root.partition == partition and root.group == taken.group
            if mine and root.verdict is None and root.holder < holder:
                raise self.broken(f"{root} of session {root.holder} is open after {holder} was accepted")

    def verdict(
        self, truth: Truth, partition: int, place: tuple[int, int], root: RootTruth | None, kind: str,
        lost: Lost | None,
    ) -> None:  # fmt: skip
        """What one takeover abandons comes oldest first."""
        if root is None or kind != "ABANDONED":
            return
        at = truth.put_back_at(root) or 0
        order = root.emitted_at, root.source, root.position
        last_at, last = self._last.get(partition, (0, (0, 0, 0)))
        if at == last_at and order < last:
            raise self.broken(f"{root} is abandoned after a root that is younger, of one takeover")
        self._last[partition] = at, order

    def disposed(self, truth: Truth, root: RootTruth | None, record: Outgoing, dead: bool) -> None:
        """A copy is never early; the first one after a takeover does not wait."""
        if root is None or root.lost is None or dead:
            return
        retry = truth.input_of(root).retry
        abandoned = root.abandoned + (root.verdict == "ABANDONED")
        number = abandoned - 1 if root.verdict == "ABANDONED" else max(1, root.attempt - abandoned)
        backoff = Backoff(retry.initial_ms, retry.multiplier, retry.max_ms, 0.0)
        wait_ms = delay_ms(backoff, number, 0.0) if number > 0 else 0
        early_ms = root.verdict_ms + wait_ms - truth.now_ms
        if early_ms > 2 * truth.skew_ms_max:
            raise self.broken(f"{root} is put back {early_ms} ms before its back-off is over")

    def acker_rests(self, truth: Truth, partition: int) -> None:
        """An acker that has nothing to do owes nobody an answer."""
        for (group, session), owed in truth.partitions[partition].unanswered.items():
            if owed > 0:
                raise self.broken(
                    f"partition {partition} rests and never answered session {session} of {group}"
                )


class Limits(Checker):
    """Rule 10."""

    rule = "pending roots, attempts and takeovers stay within their limits"

    def initialised(self, truth: Truth, roots: Sequence[RootTruth]) -> None:
        """Count what is pending of a group's session."""
        root = roots[0]
        # Each process of a session gates what it knows of, and a zombie's may be news to its successor.
        lived = truth.processes(root.holder.id, truth.now_ms - ZOMBIE_MS, truth.now_ms)
        limit = truth.input_of(root).max_spout_pending * max(1, lived)
        pending = truth.open[root.group, root.holder]
        if pending > limit:
            raise self.broken(f"{pending} roots of group {root.group} are pending, {limit} may be")

    def disposed(self, truth: Truth, root: RootTruth | None, record: Outgoing, dead: bool) -> None:
        """Compare the counters with the policy, and what became of the root."""
        if root is None or root.lost is None:
            return
        retry = truth.input_of(root).retry
        abandoned = root.abandoned + (root.verdict == "ABANDONED")
        over = abandoned > retry.max_abandoned
        if root.verdict != "ABANDONED":
            over = max(1, root.attempt - abandoned) >= retry.attempts
        if over and not dead:
            raise self.broken(
                f"{root} is put back as attempt {root.attempt + 1}, {abandoned} of them abandoned; policy:"
                f" {retry.attempts} attempts, {retry.max_abandoned} abandoned"
            )
        reason = (dict(record.headers).get(DEAD) or b"").decode() if dead else ""
        if dead and not over and reason not in ("GONE", "RECREATED"):
            raise self.broken(f"{root} is buried as {reason} though the policy lets it be tried again")
        if reason == "GONE" and root.topic_id == truth.cluster.topic(root.topic).info.id:
            where = truth.cluster.at(root.topic, partition_of(root.source))
            if where.visible(int(offset_of(root.position))) is not None:
                raise self.broken(f"{root} is buried as GONE, but the log holds it")


class FailureHasAName(Checker):
    """Rule 11."""

    rule = "operator, error, message, attempt and age reach verdict, copy and dead letter"

    def verdict(
        self, truth: Truth, partition: int, place: tuple[int, int], root: RootTruth | None, kind: str,
        lost: Lost | None,
    ) -> None:  # fmt: skip
        """A FAILED root names a cause that the log gave it."""
        if root is None or lost is None or kind != "FAILED":
            return
        named = lost.operator, lost.error, "" if lost.error == "NONDETERMINISTIC" else lost.message
        if root.causes and named not in root.causes:
            raise self.broken(f"{root} failed by {named}, the log says {sorted(root.causes)}")
        if len(lost.message.encode()) > MESSAGE_BYTES_MAX:
            raise self.broken(f"{root} failed with a message of {len(lost.message)} characters")

    def disposed(self, truth: Truth, root: RootTruth | None, record: Outgoing, dead: bool) -> None:
        """The headers say which attempt it was, and why it ended."""
        if root is None or root.lost is None:
            return
        headers = dict(record.headers)
        attempt = root.attempt if dead else root.attempt + 1
        gone = dead and headers.get(DEAD, b"") in (b"GONE", b"RECREATED")
        if gone and is_replay(root.source):
            return  # what was before stood in the headers of a record that is no longer there
        wanted = {
            ORIGIN: root.origin, ATTEMPT: str(attempt), REASON: root.verdict, OPERATOR: root.lost.operator,
            CAUSE: ": ".join(part for part in (root.lost.error, root.lost.message) if part),
            ABANDONED: str(root.abandoned + (root.verdict == "ABANDONED")),
        }  # fmt: skip
        for name, value in wanted.items():
            if headers.get(name, b"") != (value or "").encode():
                raise self.broken(f"{root}: header {name} is {headers.get(name)!r}, should be {value!r}")


def checkers() -> list[Checker]:
    """Make one of each, in the order of the rules."""
    return [
        EmittedOnce(), OneVerdict(), NoEarlyCompletion(), FailBeatsZero(), NoLoss(), NothingBlocks(),
        CrashCostsNoReplay(), HonestDeadlines(), PutBack(), Limits(), FailureHasAName(),
    ]  # fmt: skip
