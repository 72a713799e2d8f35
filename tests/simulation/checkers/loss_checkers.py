"""Rules 7 to 11 of docs/design/protocol.md, section 3: what is lost, and its fate. See `checkers`."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import assert_never

from acker.identity import offset_of
from acker.kafka.port import Outgoing, Record, UnreadableName
from acker.ledger.sessions import UNSENT_MS_MAX
from acker.wire.causes import error_class
from acker.wire.events import Lost, Taken
from acker.wire.verdict import Verdict
from replay.policy.disposition import Backoff, delay_ms
from replay.records.dead_letter import DEAD
from replay.records.headers import ORIGIN, parse_location
from tests.simulation.truth.checker import Checker
from tests.simulation.truth.facts import Holder, RootTruth
from tests.simulation.truth.originals import story_flaw
from tests.simulation.truth.truth import Truth
from tests.support.flaws import replacement_flaw

MESSAGE_BYTES_MAX = 500

HOPELESS = ("RejectTuple", "UnicodeDecodeError", "ModuleNotFoundError", "SyntaxError", "TupleError")
"""What is a dead letter at once where no rule of the input says otherwise."""

FINAL = {"dead_letter": "CAUSE", "drop": "DROPPED"}
"""What a dead letter says by a rule of its input."""

ZOMBIE_MS = 60_000
"""What a process of a session wrote may be felt for so long after its end."""


class CrashCostsNoReplay(Checker):
    """Rule 7."""

    rule = "verdicts and copies are those that would have been without a crash, once"

    def verdict(
        self, truth: Truth, partition: int, place: tuple[int, int], root: RootTruth | None, kind: Verdict,
        lost: Lost | None,
    ) -> None:  # fmt: skip
        """Every verdict has its reason in the log."""
        if root is None:
            return
        if not _is_told(truth, root, kind):
            raise self.broken(f"{root} is {kind}, and nothing in the log says so")

    def disposed(self, truth: Truth, root: RootTruth | None, record: Outgoing, dead: bool) -> None:
        """A root is put back or buried once, and only if it was lost."""
        what = "dead letter" if dead else "copy"
        if root is None:
            raise self.broken(f"a {what} of a root that nobody knows: {dict(record.headers).get(ORIGIN)!r}")
        if flaw := replacement_flaw(root.verdict or "", len(root.copies) + 1):
            raise self.broken(f"{root} {flaw}")


def _is_told(truth: Truth, root: RootTruth, verdict: Verdict) -> bool:
    """Return whether the log has what a verdict on a root says."""
    match verdict:
        case Verdict.ACKED:
            return root.complete_at is not None
        case Verdict.ABSENT:
            return root.absent_at is not None
        case Verdict.FAILED:
            return root.failed_at is not None
        case Verdict.TIMED_OUT:
            return truth.first_due(root) is not None
        case Verdict.ABANDONED:
            return truth.put_back_at(root) is not None
        case _:
            assert_never(verdict)


class HonestDeadlines(Checker):
    """Rule 8."""

    rule = "a root times out when its session's clock passes its deadline, and by nothing else"

    SLACK_MS = 100
    """What the clock may gain on the time that its processes lived: one look by each of them."""

    LATE_MS = 1_000

    def verdict(
        self, truth: Truth, partition: int, place: tuple[int, int], root: RootTruth | None, kind: Verdict,
        lost: Lost | None,
    ) -> None:  # fmt: skip
        """Look at the clock of a root that timed out, and at what another kind of loss would hide."""
        if root is None or lost is None:
            return
        if lost.reason is Verdict.ABANDONED:
            self._before(root, truth.put_back_at(root), "the takeover")
        self._told(truth, root, lost)
        match lost.reason:
            case Verdict.TIMED_OUT:
                self._timed_out(truth, root, lost)
            case Verdict.FAILED | Verdict.ABANDONED:
                pass
            case _:
                assert_never(lost.reason)

    def _timed_out(self, truth: Truth, root: RootTruth, lost: Lost) -> None:
        """Refuse a root that timed out early, or late, or by a tick that never came."""
        due = truth.first_due(root)
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
        # Another process of the session has a clock of its own, and ticks where it holds roots.
        lived = truth.processes(root.holder.id, root.now_ms - ZOMBIE_MS, tick.now_ms)
        # A take that was repeated looks to an acker like that of another process.
        late_ms_max = self.LATE_MS + (UNSENT_MS_MAX if root.is_shared else 0)
        if late_ms > late_ms_max and not root.touches and lived <= 1:
            raise self.broken(f"{root} timed out at {lost.decided_at}, {late_ms} ms late")
        self._stands_still(truth, root, lost, tick.now_ms)

    def _told(self, truth: Truth, root: RootTruth, lost: Lost) -> None:
        """Refuse a time of decision that no take or tick of the session that decides has told."""
        holders = [root.holder]
        if is_abandoned := lost.reason is Verdict.ABANDONED:
            takes = truth.partitions[root.partition].takes.get(root.group, ())
            holders = [holder for _, holder in takes if holder > root.holder]
        if not any(truth.told_clock(root, holder, lost.decided_at) for holder in holders):
            whose = "a higher session" if is_abandoned else "its session"
            raise self.broken(f"{root} is {lost.reason} at {lost.decided_at}, which {whose} never told")

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
        passed_ms = lost.decided_at - root.clock_ms
        timeout_ms = truth.input_of(root).timeout_ms
        if lived_ms + self.SLACK_MS < timeout_ms:
            raise self.broken(f"{root} timed out when its session had lived {lived_ms} ms of {timeout_ms}")
        # Another process of the session has a clock of its own, which may be ahead of this root's.
        alone = truth.processes(root.holder.id, root.now_ms - ZOMBIE_MS, tick_ms) <= 1
        if alone and passed_ms > lived_ms + self.SLACK_MS:
            raise self.broken(
                f"{root} timed out after {passed_ms} ms of its session's clock, which lived {lived_ms} ms"
            )


class PutBack(Checker):
    """Rule 9."""

    rule = "a takeover puts the open roots back, oldest first; a lower session is refused"

    def __init__(self) -> None:
        """Begin with no takeover."""
        self._last: dict[int, tuple[int, tuple[int, int, int]]] = {}
        self._latest: dict[tuple[int, str, int], tuple[int, tuple[str, int, int] | None]] = {}

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
        self, truth: Truth, partition: int, place: tuple[int, int], root: RootTruth | None, kind: Verdict,
        lost: Lost | None,
    ) -> None:  # fmt: skip
        """What one takeover abandons comes oldest first."""
        if root is None or kind != Verdict.ABANDONED:
            return
        at = truth.put_back_at(root) or 0
        order = root.emitted_at, root.source, root.position
        last_at, last = self._last.get(partition, (0, (0, 0, 0)))
        if at == last_at and order < last:
            raise self.broken(f"{root} is abandoned after a root that is younger, of one takeover")
        self._last[partition] = at, order

    def disposed(self, truth: Truth, root: RootTruth | None, record: Outgoing, dead: bool) -> None:
        """A copy is never early; what does not wait comes in the order of the verdicts, oldest first."""
        if root is None or root.lost is None or root.was_held:
            return
        early_ms = root.verdict_ms + _wait_ms(truth, root, 0.0) - truth.now_ms
        if early_ms > 2 * truth.skew_ms_max and not dead:
            raise self.broken(f"{root} is put back {early_ms} ms before its back-off is over")
        # Clocks that disagree let an older one be due later, when another worker takes the rest over.
        if _is_first_takeover(root) and not truth.skew_ms_max:
            line, origin = (root.partition, record.topic, record.partition), parse_location(root.origin)
            number, behind = self._latest.get(line, (0, None))
            # A transaction's copies come in the order of their origins. A record that waited for another has
            # its copy before that one's, so the two may be abandoned in the other order.
            if root.verdict_number < number and (not origin or not behind or origin < behind):
                raise self.broken(f"{root} is put back after a root that was abandoned behind it")
            self._latest[line] = root.verdict_number, origin

    def worker_rests(self, truth: Truth, partition: int, at: int, now_ms: int) -> None:
        """What was abandoned for the first time waits for nothing, and nothing waits beyond its back-off."""
        for root in truth.owing[partition]:
            if root.verdict_at >= at:
                continue
            if root.waits_since_ms is None:
                root.waits_since_ms = now_ms
            waited_ms = now_ms - root.waits_since_ms
            longest_ms = _wait_ms(truth, root, 1.0) + 2 * truth.skew_ms_max
            if waited_ms > longest_ms or longest_ms == 0:
                raise self.broken(
                    f"{root} is {root.verdict} and was not put back when the replay worker rested,"
                    f" {waited_ms} ms after it knew; its back-off is at most {longest_ms} ms"
                )

    def acker_rests(self, truth: Truth, partition: int) -> None:
        """An acker that has nothing to do owes nobody an answer."""
        for (group, session), owed in truth.partitions[partition].unanswered.items():
            if owed > 0:
                raise self.broken(
                    f"partition {partition} rests and never answered session {session} of {group}"
                )


def _is_first_takeover(root: RootTruth) -> bool:
    """Tell whether a root is put back without back-off."""
    return root.verdict == Verdict.ABANDONED and not root.abandoned


def _wait_ms(truth: Truth, root: RootTruth, jitter: float) -> int:
    """Return how long a lost root waits, with no jitter or the whole of it."""
    found = truth.input_of(root)
    if root.was_held:
        return found.hold_ms
    is_abandoned = root.verdict == Verdict.ABANDONED
    abandoned = root.abandoned + is_abandoned
    number = abandoned - 1 if is_abandoned else max(1, root.attempt - abandoned - root.held)
    backoff = Backoff(found.retry.initial_ms, found.retry.multiplier, found.retry.max_ms, 0.0)
    wait_ms = delay_ms(backoff, number, 0.0) if number > 0 else 0
    return ceil(wait_ms * (1.0 + found.retry.jitter * jitter))


class Limits(Checker):
    """Rule 10."""

    rule = "pending roots, attempts and takeovers stay within their limits"

    def initialised(self, truth: Truth, roots: Sequence[RootTruth]) -> None:
        """Count what is pending of a group's session."""
        root = roots[0]
        # Each process of a session gates what it knows of, and a zombie's may be news to its successor.
        limit = truth.input_of(root).max_spout_pending * max(1, truth.rivals(root.holder.id))
        pending = truth.open[root.group, root.holder]
        if pending > limit:
            # what holds no record, as a marker of a transaction, is pending until a read task says so
            pending = sum(
                self._has_record(truth, each) for each in truth.roots.values() if each.is_like(root)
            )
        if pending > limit:
            raise self.broken(f"{pending} roots of group {root.group} are pending, {limit} may be")

    @staticmethod
    def _has_record(truth: Truth, root: RootTruth) -> bool:
        return truth.is_visible(root)

    def disposed(self, truth: Truth, root: RootTruth | None, record: Outgoing, dead: bool) -> None:
        """Compare the counters with the policy, and what became of the root."""
        if root is None or root.lost is None:
            return
        retry = truth.input_of(root).retry
        abandoned = root.abandoned + (root.verdict == Verdict.ABANDONED)
        over = abandoned > retry.max_abandoned
        if root.verdict != Verdict.ABANDONED:
            over = max(1, root.attempt - abandoned - root.held) >= retry.attempts and not root.was_held
        if over and not dead:
            raise self.broken(
                f"{root} is put back as attempt {root.attempt + 1}, {abandoned} of them abandoned; policy:"
                f" {retry.attempts} attempts, {retry.max_abandoned} abandoned"
            )
        reason = (dict(record.headers).get(DEAD) or b"").decode() if dead else ""
        has_no_record = reason in ("GONE", "RECREATED") or (
            reason == "UNWRITABLE" and _has_unreadable_names(truth.original(root))
        )
        final = _final_reason(truth, root)
        if final and reason != final and not has_no_record:
            raise self.broken(
                f"{root} failed by {root.lost.error}, so it is {final}, not {reason or 'put back'}"
            )
        if reason in FINAL.values() and not final:
            raise self.broken(f"{root} is buried as {reason}, which no rule says of {root.lost.error!r}")
        if dead and not over and not final and not has_no_record:
            raise self.broken(f"{root} is buried as {reason} though the policy lets it be tried again")
        is_there = root.topic_id == truth.cluster.topic(root.topic).info.id and truth.is_visible(root)
        if reason == "GONE" and is_there:
            raise self.broken(f"{root} is buried as GONE, but the log holds it")
        if reason == "RECREATED" and offset_of(root.position) < truth.first_cut(root):
            raise self.broken(f"{root} is buried as RECREATED, but its log was not cut there")


def _has_unreadable_names(record: Record | None) -> bool:
    """Return whether no client can write a copy with all of a record's headers."""
    return record is not None and any(isinstance(name, UnreadableName) for name, _ in record.headers)


def _final_reason(truth: Truth, root: RootTruth) -> str:
    """Return why a root is buried at once by a rule of its input; empty when no rule fits."""
    if root.lost is None or root.verdict != Verdict.FAILED:
        return ""
    own = {rule.error: rule.then for rule in truth.input_of(root).retry.causes}
    rules: dict[str | None, str] = {**dict.fromkeys(HOPELESS, "dead_letter"), **own}
    return FINAL.get(rules.get(error_class(root.lost.error), ""), "")


class FailureHasAName(Checker):
    """Rule 11."""

    rule = "operator, error, message, attempt and age reach verdict, copy and dead letter"

    def verdict(
        self, truth: Truth, partition: int, place: tuple[int, int], root: RootTruth | None, kind: Verdict,
        lost: Lost | None,
    ) -> None:  # fmt: skip
        """A FAILED root names a cause that the log gave it."""
        if root is None or lost is None or kind != Verdict.FAILED:
            return
        named = lost.operator, lost.error, "" if lost.error == "NONDETERMINISTIC" else lost.message
        if root.causes and named not in root.causes:
            raise self.broken(f"{root} failed by {named}, the log says {sorted(root.causes)}")
        if len(lost.message.encode()) > MESSAGE_BYTES_MAX:
            raise self.broken(f"{root} failed with a message of {len(lost.message)} characters")

    def disposed(self, truth: Truth, root: RootTruth | None, record: Outgoing, dead: bool) -> None:
        """The headers tell its whole past: which attempt it was, why each one ended, and where it began."""
        if root is not None and root.lost is not None:
            self.require(story_flaw(truth, root, record, dead=dead), root, dead=dead)
