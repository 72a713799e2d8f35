"""Where a record is and why it is not done, in words, with the next command to type; pure.

`diagnose` looks at the last emission of a record and at what is around it, `Circumstances`: which processes
live, and how much is pending. The first line of the table whose condition holds names the situation::

    the topic ends before the record                   NOT_WRITTEN
    no generation of the group emitted it              LEFT_OUT
    verdict ACKED                                      TOO_LATE or DONE
    verdict ABSENT                                     DONE, LOST_FROM_LOG or LEFT_OUT
    it waits in `_ack_due`                             PAUSED, PUT_ASIDE, BLOCKED, HELD_UP, TIMED_OUT or DUE
    not emitted                                        LOST_FROM_LOG, HELD_UP, GATE_CLOSED or NOT_EMITTED
    open                                               ACKED_LATE, SESSION_DEAD, IN_STATE or IN_BATCH
    announced                                          ACKED_LATE, SESSION_DEAD or IN_BATCH
    a dead letter, or the note that it was dropped     LOST_FROM_LOG, DEAD or DROPPED
    lost, and in no topic yet                          BLOCKED, HELD_UP, TIMED_OUT, DUE or TOO_OLD
    settled, and its verdict was not found             TOO_OLD
    else                                               UNKNOWN

Source: docs/operate/night.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, assert_never

from acker.errors import UnreadableKind
from acker.kafka.port import Record
from acker.service.view import OpenRange
from acker.untrusted import Untrusted, UntrustedName, shell_word
from acker.wire.causes import HELD, LATE, UNREADABLE_CAUSES
from acker.wire.verdict import Verdict
from replay.policy.damage import held_up_cure
from replay.policy.disposition import DeadReason
from replay.records.due import Aside, Due, Loss, RefusedRoot
from replay.records.headers import parse_location
from replay.records.letters import Letter, LetterAction
from replay.worker.fetch import Absence
from spout.inspect.readings import (
    HELD_BY_SPARK,
    STOPPED_ON_PURPOSE,
    Reading,
    row_of,
    timeout_text,
)
from spout.inspect.story import (
    ANNOUNCED,
    NOT_EMITTED,
    SETTLED,
    Evidence,
    TracedEmission,
    facts_of,
    is_letter_of,
)
from spout.inspect.tables import UNKNOWN, span, with_config


class Situation(StrEnum):
    """Where a record is, in one word."""

    NOT_WRITTEN = "NOT_WRITTEN"
    LEFT_OUT = "LEFT_OUT"
    """The group begins behind it, or left it out with a damaged batch."""
    NOT_EMITTED = "NOT_EMITTED"
    GATE_CLOSED = "GATE_CLOSED"
    """Not emitted, since the input has as many pending roots as it may have."""
    IN_BATCH = "IN_BATCH"
    """Emitted, and in a micro-batch that runs; or a bolt neither acked nor failed a tuple of it."""
    IN_STATE = "IN_STATE"
    """Spark's state holds it: it waits for its window, for the other side of a join, or in a keyed bolt."""
    ACKED_LATE = "ACKED_LATE"
    """All of it is acked in the log, and the acker, which is behind or away, has not read that yet."""
    SESSION_DEAD = "SESSION_DEAD"
    """Open, and the process that emitted it is gone: nobody will ack it, and its clock stands still."""
    DUE = "DUE"
    """Failed or abandoned, and waits for its replay."""
    TIMED_OUT = "TIMED_OUT"
    BLOCKED = "BLOCKED"
    """Waits behind an earlier record of its key or partition."""
    PAUSED = "PAUSED"
    """The input's breaker is open: nothing of it is replayed."""
    PUT_ASIDE = "PUT_ASIDE"
    """The replay workers cannot go on with its input."""
    HELD_UP = "HELD_UP"
    """Nobody can read it: `acker.errors.UnreadableKind`, a damaged batch, say; others are not held up."""
    LOST_FROM_LOG = "LOST_FROM_LOG"
    """Retention, compaction or damage took it before it was done."""
    DEAD = "DEAD"
    DROPPED = "DROPPED"
    TOO_LATE = "TOO_LATE"
    """Acked, and in no window: a watermark had passed its end before the record came."""
    DONE = "DONE"
    TOO_OLD = "TOO_OLD"
    """Settled, by a verdict that is no longer in the log, or not in the part that was read."""
    UNKNOWN = "UNKNOWN"


LEFT_OPEN: Final = "If a bolt forgot it, `left_open` in the driver's log names the bolt."


class Diagnosis(NamedTuple):
    """Where a record is, and why it is not done.

    Attributes:
        situation: in one word.
        now: where it is, in a phrase.
        text: why, in sentences.
        next: the command to type next; empty where there is nothing to do.
    """

    situation: Situation
    now: str
    text: str
    next: str = ""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is around a record: which processes live, and how much of its input is pending.

    Attributes:
        query_lives: whether a query of its group lives.
        session_lives: whether the process of the session that emitted it last lives.
        ackers: how many live. Likewise `replay_workers`.
        pending: open roots of the input.
        pending_max: how many it may have.
        is_read: whether the query of its group that lives reads the input; where it does not say, that is so.
        stopped: why the input is stopped on purpose; empty: it is not.
    """

    query_lives: Reading[bool]
    session_lives: Reading[bool]
    ackers: Reading[int]
    replay_workers: Reading[int]
    pending: Reading[int]
    pending_max: int
    is_read: bool = True
    stopped: str = ""


def explained(
    evidence: Evidence, circumstances: Circumstances, now_ms: int, config: Path | None = None
) -> dict[str, Any]:
    """Return a record's story with its diagnosis: what ``windhover inspect`` prints.

    `config` is the topics.yaml that the command to type next has to name; None: the default one.
    """
    diagnosis = diagnose(evidence, circumstances, now_ms)
    return {
        "record": evidence.place,
        "input": evidence.input,
        "group": evidence.group,
        "now": diagnosis.now,
        "situation": diagnosis.situation.value,
        "why": diagnosis.text,
        "next": diagnosis.next and with_config(diagnosis.next, config),
        **facts_of(evidence, now_ms),
        "unknown": row_of(circumstances)["unknown"],
    }


def diagnose(evidence: Evidence, circumstances: Circumstances, now_ms: int) -> Diagnosis:
    """Return where a record is, why it is not done, and what to type next; `now_ms` is wall time.

    What is known for certain comes first: the log, then the verdict, then what waits, then what the
    acker has.
    """
    case = _Case(evidence, circumstances, now_ms)
    states = {emission.state for emission in evidence.emissions}
    was_emitted = bool(states - {NOT_EMITTED, UNKNOWN})
    is_seen = was_emitted or bool(evidence.letters)
    if evidence.uncommitted and not is_seen:
        return case.uncommitted()
    if not evidence.written and not is_seen:
        text = "The topic ends before this offset: nobody has written the record yet."
        now = "not written yet: the topic ends before it"
        return Diagnosis(Situation.NOT_WRITTEN, now, text, case.watch_command)
    if not evidence.emissions:
        text = f"Group {case.group_name} begins behind it: a reset, or its first start, left it out."
        now = "in the log, and left out: the group begins behind it"
        return Diagnosis(Situation.LEFT_OUT, now, text, f"windhover offsets reset {evidence.input} --help")
    emission = evidence.emissions[-1]
    if emission.verdict is not None:
        match emission.verdict.name:
            case Verdict.ACKED:
                return case.acked(emission)
            case Verdict.ABSENT:
                return case.absent()
            case Verdict.FAILED | Verdict.TIMED_OUT | Verdict.ABANDONED:
                pass  # it waits, has a copy or a letter, or nobody took it over: see below
            case _:
                assert_never(emission.verdict.name)
    due = evidence.dues.get(emission.root)
    if due is not None:
        return case.waiting(emission, due)
    if emission.state == NOT_EMITTED:
        return case.not_emitted(emission)
    if emission.verdict is None and emission.open is not None:
        return case.pending(emission, emission.open)
    if emission.state == ANNOUNCED:
        return case.announced(emission)
    letters = [letter for letter in evidence.letters if is_letter_of(letter, emission)]
    if letters:
        return case.given_up(letters[-1])
    if evidence.missing and (emission.verdict is not None or emission.state in (SETTLED, UNKNOWN)):
        return case.hidden(emission)
    if emission.verdict is not None:
        return case.lost(emission)
    if emission.state == SETTLED:
        text = (
            "It got its verdict so long ago that the part of the log that was read does not have it. If it"
            " became a dead letter, the command shows that letter, as long as the topic has it."
        )
        return Diagnosis(Situation.TOO_OLD, SETTLED, text, f"windhover dlq list {evidence.place} --all")
    return case.without_state()


@dataclass(frozen=True, slots=True)
class _Case:
    """What is known about one record; each method explains it in one situation.

    In all of them `now` is a phrase that says where the record is, and `text` says why, in
    sentences.
    """

    evidence: Evidence
    circumstances: Circumstances
    now_ms: int

    @property
    def group_name(self) -> UntrustedName:
        """The group, as a sentence has it."""
        return UntrustedName(self.evidence.group)

    @property
    def watch_command(self) -> str:
        """The command that shows this record again and again: there is nothing to do but wait."""
        return f"windhover inspect {self.evidence.place} --watch 2"

    def uncommitted(self) -> Diagnosis:
        """Explain a record behind the begin of an open transaction."""
        text = (
            "A transaction is open that begins at this offset or before it. Until it ends, nobody reads"
            " what comes after its begin. Its producer commits it, or the broker ends it after its"
            " `transaction.timeout.ms`; `kafka-transactions.sh find-hanging` finds one that hangs."
        )
        now = "in the log, behind the begin of a transaction that is open"
        return Diagnosis(Situation.NOT_EMITTED, now, text, self.watch_command)

    def acked(self, emission: TracedEmission) -> Diagnosis:
        """Explain a root that is acked: fully processed, or dropped by a watermark."""
        late, late_by = emission.late, emission.late_by
        if late is None or late_by is None:
            return Diagnosis(Situation.DONE, "done: fully processed", "It is fully processed.")
        command = f"windhover inspect {late_by.record}" if late_by.record else ""
        if emission.is_late:
            now = "too late for its window: acked, and not in it"
            text = (
                f"It came too late: {late_by.text}, had passed the end of its window, or of one of them."
                " It counts as done, as the `late` of its `hold` says, but it is not in that window."
            )
            return Diagnosis(Situation.TOO_LATE, now, text, command)
        now = "done, or too late: Spark dropped rows of its batch"
        text = (
            f"All of it was acked. But Spark dropped {late.rows:,} rows of its batch that came too late:"
            f" {late_by.text}, had passed the ends of their windows. Without `hold`, nobody knows of which"
            " records they were."
        )
        return Diagnosis(Situation.DONE, now, text, command)

    def absent(self) -> Diagnosis:
        """Explain a root of which the log had no record that could be read when it was emitted."""
        evidence = self.evidence
        unreadable = _unreadable(evidence.record)
        if unreadable is not None:
            now = f"left out: it {unreadable.phrase}"
            text = (
                f"It {unreadable.phrase}, and nobody has processed it: input {evidence.input} has"
                " `on_data_loss: skip`."
            )
            return Diagnosis(Situation.LOST_FROM_LOG, now, text)
        if isinstance(evidence.record, Record):
            now = "in the log, and left out: it could not be read when its batch was emitted"
            text = (
                "It could not be read when its batch was emitted, and can be now: its batch was damaged, say,"
                " or it is larger than a query or a `KafkaSpout` takes. Nobody has processed it."
            )
            command = f"windhover offsets reset {evidence.input} --help"
            return Diagnosis(Situation.LEFT_OUT, now, text, command)
        now = "done: the log holds no such record"
        return Diagnosis(Situation.DONE, now, "The log holds no record at this offset.")

    def hidden(self, emission: TracedEmission) -> Diagnosis:
        """Explain a root of which nobody knows what became, since topics are missing."""
        why = "" if emission.verdict is None else f"{_how_lost(emission, None).text} "
        names = self.evidence.missing
        which = "these topics are" if len(names) > 1 else "a topic is"
        text = f"{why}What became of it is unknown, since {which} missing: {', '.join(names)}."
        now = emission.state
        if self.evidence.taken_over is False:
            now = _not_taken_over(emission)
        elif emission.verdict is not None:
            now = f"lost ({emission.state}); what became of it is unknown: {', '.join(names)} missing"
        return Diagnosis(Situation.UNKNOWN, now, text, "windhover topics create")

    def without_state(self) -> Diagnosis:
        """Explain a record whose acker partition has no State: no query or no acker ran."""
        text = "The acker partition of this record has no State: whether it was emitted is unknown."
        command = self.watch_command
        if self.circumstances.ackers.value == 0:
            text, command = f"{text} No acker lives.", "windhover acker run"
        elif self.circumstances.query_lives.value is False:
            query = (
                f"No query of group {self.group_name} lives, and State begins with one:"
                f" {self._start_cure('start it')}."
            )
            text, command = f"{text} {query}", "windhover status"
        return Diagnosis(Situation.UNKNOWN, UNKNOWN, text, command)

    def waiting(self, emission: TracedEmission, due: Due) -> Diagnosis:
        """Explain a lost root that waits for its replay, or to become a dead letter."""
        evidence = self.evidence
        last_loss = due.history[-1] if due.history else None
        why, situation = _how_lost(emission, last_loss)
        left_ms = due.due_ms - self.now_ms  # below 0: it is overdue
        due_text = f"in {span(left_ms)}" if left_ms > 0 else f"since {span(-left_ms)}"
        if isinstance(due, Aside):
            now = "put aside: its input cannot go on; the replay workers' log and `windhover status` say why"
            text = (
                f"{why} It was put aside: the replay workers cannot go on with its input. Their log says why."
            )
            return Diagnosis(Situation.PUT_ASIDE, now, text, "windhover status")
        if isinstance(due, RefusedRoot):
            return self._refused(due, why)
        unreadable = self._held_up_by(emission, due)
        if unreadable is not None:
            now = f"held up: it {unreadable.phrase}"
            text = (
                f"It {unreadable.phrase}. The replay workers hold it up, alone, and try it again now and"
                f" then. {held_up_cure(unreadable)}."
            )
            return Diagnosis(Situation.HELD_UP, now, text, self.watch_command)
        again = due_text if left_ms > 0 else "now"
        if due.last_was_blocked and not due.dead:
            waits_behind = Untrusted(due.history[-1].message)
            now = f"blocked: it {waits_behind}; no bolt has seen it since. It is looked at again {again}"
        elif due.dead == DeadReason.DROPPED:
            now = f"waiting for the note that a rule drops it, due {due_text}"
        elif due.dead:
            now = f"waiting for its dead letter, due {due_text}"
        else:
            now = f"waiting for its replay, due {due_text}"
        if evidence.paused:
            text = f"{why} Replays of the input are paused: {Untrusted(evidence.paused)}."
            return Diagnosis(Situation.PAUSED, now, text, f"windhover replay resume {evidence.input}")
        fate = "becomes a dead letter" if due.dead else f"is replayed as attempt {due.attempt + 1}"
        when = f"It {fate} {due_text}." if left_ms > 0 else f"It {fate} now: due {due_text}."
        if self.circumstances.replay_workers.value == 0:
            text = f"{why} {when} But no replay worker lives."
            return Diagnosis(situation, now, text, "windhover replay run")
        if situation is Situation.BLOCKED:
            text = f"{why} It is looked at again {again}."
            return Diagnosis(situation, now, text, self._blocker_command(due.history[-1].message))
        return Diagnosis(situation, now, f"{why} {when}", self.watch_command)

    def _held_up_by(self, emission: TracedEmission, due: Due) -> UnreadableKind | None:
        """Return why replay workers cannot read the record of a root that waits; None: they can.

        It is also None if something else keeps the root: it becomes a dead letter, no worker lives,
        or its input is paused.
        """
        if due.dead or self.circumstances.replay_workers.value == 0 or self.evidence.paused:
            return None
        why_lost = UNREADABLE_CAUSES.get(due.history[-1].error) if due.history else None
        # workers take larger records than the read task that could not read it, and let them die
        if why_lost is not None and why_lost is not UnreadableKind.OVERSIZED:
            return why_lost
        return None if emission.copy else _unreadable(self.evidence.record)

    def _refused(self, due: RefusedRoot, why: str) -> Diagnosis:
        """Explain a root whose copy or dead letter a topic refuses; `why` says how it was lost."""
        copy_why, letter_why = Untrusted(due.copy_why), Untrusted(due.letter_why)
        if not due.dead:
            now = f"put aside: its copy is refused: {copy_why}"
            text = f"{why} Its copy is refused ({copy_why}), and is tried again."
            return Diagnosis(Situation.PUT_ASIDE, now, text, "windhover topics check")
        now = f"put aside: its dead letter ({UntrustedName(due.dead)}) is refused: {letter_why}"
        copy_sentence = f" Its copy was refused ({copy_why})." if copy_why else ""
        text = f"{why}{copy_sentence} Its dead letter is refused ({letter_why}), and is tried again."
        return Diagnosis(Situation.PUT_ASIDE, now, text, "windhover topics check")

    def given_up(self, letter: Letter) -> Diagnosis:
        """Explain a record whose last record is a dead letter, or the note that a rule dropped it.

        With its mark, if a person has handled it.
        """
        if letter.is_note:
            error = UntrustedName(letter.error)
            now = f"dropped: a rule drops what fails by {error}; its note is {letter.place}"
            text = f"A rule of `causes` drops what fails by {error}. The note of it is {letter.place}."
            return Diagnosis(Situation.DROPPED, now, text, f"windhover dlq show {letter.place}")
        mark = letter.mark
        now = f"dead letter at {letter.place}"
        if mark is not None and mark.action is LetterAction.DROPPED:  # by a person
            by, reason = Untrusted(mark.by), Untrusted(mark.why)
            text = f"{by} gave it up: {reason or 'no reason given'}."
            return Diagnosis(Situation.DROPPED, f"dropped by {by}: {reason}", text)
        if mark is not None:  # the mark is REPLAYED
            by = Untrusted(mark.by)
            now = f"{now}, replayed by {by}; its copy was not read"
            text = f"{by} let it be replayed; its copy is not in the part of the log that was read."
            return Diagnosis(Situation.TOO_OLD, now, text, self.watch_command)
        # no mark; `dead` is the DeadReason for which it became a dead letter
        if letter.dead in (DeadReason.GONE, DeadReason.RECREATED):
            text = (
                f"Retention, compaction or a deleted topic took the record before it was replayed. The dead"
                f" letter {letter.place} has its history, and no payload."
            )
            return Diagnosis(Situation.LOST_FROM_LOG, now, text, "windhover topics check")
        if letter.dead in UNREADABLE_CAUSES:
            text = (
                f"It {UNREADABLE_CAUSES[letter.dead].phrase}, and input {self.evidence.input} has"
                f" `on_data_loss: skip`. The dead letter {letter.place} has its history, and no payload."
            )
            return Diagnosis(Situation.LOST_FROM_LOG, now, text, f"windhover dlq show {letter.place}")
        loss = letter.history[-1] if letter.history else None
        why = f" {_how_lost(None, loss).text}" if loss is not None else ""
        attempts = letter.lineage.attempt
        text = (
            f"It is a dead letter ({UntrustedName(letter.dead)}) after"
            f" {'one attempt' if attempts == 1 else f'{attempts:,} attempts'}.{why} Repair what failed it"
            " first, then replay it."
        )
        return Diagnosis(Situation.DEAD, now, text, f"windhover dlq replay {letter.place}")

    def lost(self, emission: TracedEmission) -> Diagnosis:
        """Explain a root that was lost by its verdict.

        No copy, dead letter or entry of `_ack_due` was read of it.
        """
        why, situation = _how_lost(emission, None)
        # not None: the verdict was read, and _ack_due exists; else the root counts as hidden
        if self.evidence.taken_over is False:
            if self.circumstances.replay_workers.value == 0:
                text, command = f"{why} No replay worker lives that takes it over.", "windhover replay run"
            else:
                text, command = f"{why} No replay worker has taken it over yet.", self.watch_command
            return Diagnosis(situation, _not_taken_over(emission), text, command)
        if situation is Situation.BLOCKED and emission.loss is not None:
            # in every `hold` it is emitted again: its next copy is often written after the replay topic
            # was read and before _ack_due was
            now = f"blocked: it {Untrusted(emission.loss.message)}; its newest copy came after this was read"
            text = f"{why} It is emitted again in every `hold`; the newest copy came after this was read."
            return Diagnosis(situation, now, text, self._blocker_command(emission.loss.message))
        now = f"lost ({emission.state}) and taken over; its copy or dead letter was not read"
        text = f"{why} It was taken over, and its copy or dead letter is not in what was read."
        return Diagnosis(Situation.TOO_OLD, now, text, f"windhover dlq list {self.evidence.place} --all")

    def acked_late(self, now: str) -> Diagnosis:
        """Explain a root that is acked whole, and open only because its acker has not read that."""
        why, command = "the acker is behind", self.watch_command
        if self.circumstances.ackers.value == 0:
            why, command = "no acker lives", "windhover acker run"
        text = f"All of it is acked in the log, and its acker has not read that yet: {why}."
        return Diagnosis(Situation.ACKED_LATE, now, text, command)

    def pending(self, emission: TracedEmission, open_range: OpenRange) -> Diagnosis:
        """Explain a root that is open."""
        circumstances = self.circumstances
        age = span(max(0, self.now_ms - open_range.emitted_ms))
        limit = timeout_text(open_range, circumstances.session_lives, circumstances.ackers)
        if emission.is_acked_whole:
            return self.acked_late(f"pending: open for {age}; {_acked_so_far_text(emission)}")
        where = f" {HELD_BY_SPARK}" if open_range.in_state else ""
        now = f"pending: open for {age}{where}, {limit}; {_acked_so_far_text(emission)}"
        if circumstances.session_lives.value is False:
            text = (
                f"It was emitted {age} ago by a process that is gone, so nobody acks it, and {limit}."
                f" {self._start_cure('Start the query again')}; or give what it left open to others"
                " with the command."
            )
            command = f"windhover release {shell_word(self.evidence.group)}"
            return Diagnosis(Situation.SESSION_DEAD, now, text, command)
        if open_range.in_state and circumstances.ackers.value != 0:
            text = (
                f"Emitted {age} ago, and {HELD_BY_SPARK} since: it waits for its window, for the other side"
                " of a join, or in a keyed bolt. It is acked with the row that it becomes. A topic without"
                f" new records moves no watermark, so it closes no window. It {limit}."
            )
            return Diagnosis(Situation.IN_STATE, now, text, self.watch_command)
        how = ": its micro-batch is running, or its bolts neither acked nor failed it"
        if emission.batches:
            batches = _batches(emission.batches)
            how = f", and acked in part by {batches}: a tuple of it is neither acked nor failed"
        text = f"Emitted {age} ago{how}. {LEFT_OPEN} It {limit}."
        if circumstances.ackers.value == 0:
            text = f"{text} No acker lives: nothing gets a verdict."
            return Diagnosis(Situation.IN_BATCH, now, text, "windhover acker run")
        return Diagnosis(Situation.IN_BATCH, now, text, self.watch_command)

    def announced(self, emission: TracedEmission) -> Diagnosis:
        """Explain a root that an init newer than the acker's State names."""
        if emission.is_acked_whole:
            return self.acked_late(f"announced to the ackers; {_acked_so_far_text(emission)}")
        now = "planned: announced to the ackers"
        circumstances = self.circumstances
        # `is False`: an unknown value proves nothing, and counts as alive
        if circumstances.session_lives.value is False or circumstances.query_lives.value is False:
            start = self._start_cure("Start the query again")
            text = f"It was announced by a process that is gone. {start}; it goes on from there."
            command = f"windhover release {shell_word(self.evidence.group)}"
            return Diagnosis(Situation.SESSION_DEAD, now, text, command)
        if circumstances.ackers.value == 0:
            text = "It was announced to the ackers, and no acker lives: nothing gets a verdict."
            return Diagnosis(Situation.IN_BATCH, now, text, "windhover acker run")
        text = "It is in the micro-batch that was planned last, and is just being emitted."
        return Diagnosis(Situation.IN_BATCH, now, text, self.watch_command)

    def _start_cure(self, cure: str) -> str:
        """Return a cure such as "start it", behind what comes first if the input is stopped.

        An input that is stopped because of "migration" gives "input words is stopped on purpose
        (migration); when `inputs.words.stopped` is removed, start it".
        """
        if not self.circumstances.stopped:
            return cure
        name = self.evidence.input
        reason = f"input {name} is {STOPPED_ON_PURPOSE} ({self.circumstances.stopped})"
        return f"{reason}; when `inputs.{name}.stopped` is removed, {cure[0].lower()}{cure[1:]}"

    def not_emitted(self, emission: TracedEmission) -> Diagnosis:
        """Explain a record, or its copy, that no query has emitted yet.

        First what keeps every query from it, then whether one lives and reads its input, then its
        limit.
        """
        evidence, circumstances = self.evidence, self.circumstances
        what = "Its copy" if emission.copy else "It"
        where = f"on the replay topic as a copy at {emission.place}" if emission.copy else "in the log"
        now = f"{where}, not emitted yet"
        if evidence.record is Absence.GONE and not emission.copy:
            text = "Retention or compaction took it before any query emitted it."
            return Diagnosis(Situation.LOST_FROM_LOG, now, text, "windhover topics check")
        unreadable = None if emission.copy else _unreadable(evidence.record)
        if unreadable is not None:
            text = (
                f"It {unreadable.phrase}, so no query can emit it. A reset of its partition goes on after"
                " the batch."
            )
            command = f"windhover offsets reset {evidence.input} --help"
            return Diagnosis(Situation.HELD_UP, now, text, command)
        if evidence.recreated and not emission.copy:
            text = (
                f"Its topic was created again, and group {self.group_name} knows the former one: no query of"
                " the group begins before you reset the input."
            )
            return Diagnosis(
                Situation.NOT_EMITTED, now, text, f"windhover offsets reset {evidence.input} --help"
            )
        if circumstances.query_lives.value is False:
            start = self._start_cure("start it")
            text = f"{what} is not emitted yet, and no query of group {self.group_name} lives: {start}."
            return Diagnosis(Situation.NOT_EMITTED, now, text, "windhover status")
        if circumstances.query_lives.value and not circumstances.is_read and circumstances.stopped:
            text = f"{what} is not emitted yet: {self._start_cure('give it to its query again')}."
            return Diagnosis(Situation.NOT_EMITTED, now, text, "windhover status")
        if circumstances.query_lives.value and not circumstances.is_read:
            text = (
                f"{what} is not emitted yet, and no query reads input {evidence.input}: the one of group"
                f" {self.group_name} that lives reads other inputs. Give its read_stream this one as well."
            )
            return Diagnosis(Situation.NOT_EMITTED, now, text, "windhover status")
        if (
            circumstances.pending.value is not None
            and circumstances.pending.value >= circumstances.pending_max
        ):
            text = (
                f"{what} is in the log, not emitted yet: {circumstances.pending.value:,} roots of"
                f" {evidence.input} are pending, and `max_spout_pending` is"
                f" {circumstances.pending_max:,}. It is emitted when some of them are done."
            )
            command = f"windhover roots --group {shell_word(evidence.group)}"
            return Diagnosis(Situation.GATE_CLOSED, now, text, command)
        text = f"{what} is in the log, not emitted yet: the query has not come so far."
        return Diagnosis(Situation.NOT_EMITTED, now, text, self.watch_command)

    def _blocker_command(self, message: str) -> str:
        """Return the command that shows the record for which a blocked one waits.

        The last word of `message`, that of its loss, is the place of that record. If it is none,
        the command shows the blocked record itself.
        """
        place = message.rpartition(" ")[2]
        return self.watch_command if parse_location(place) is None else f"windhover inspect {place}"


class _HowLost(NamedTuple):
    """How an emission was lost, in sentences; and the situation of its record while it waits."""

    text: str
    situation: Situation


def _how_lost(emission: TracedEmission | None, loss_in_history: Loss | None) -> _HowLost:
    """Describe how an emission was lost: by its verdict, else by the loss in a later history.

    `emission` None: only a history has it. `loss_in_history` None: no history has its loss.
    """
    lost = (emission.loss if emission is not None else None) or loss_in_history
    if lost is None:
        return _HowLost("It was lost.", Situation.DUE)
    if lost.error == HELD:
        text = f"It is blocked: it {Untrusted(lost.message)}, and no bolt has seen it since."
        return _HowLost(text, Situation.BLOCKED)
    match lost.reason:
        case Verdict.TIMED_OUT:
            after = f" after {span(lost.age_ms)}" if lost.age_ms else ""
            text = f"It timed out{after}: {_why_timed_out(emission)}. {LEFT_OPEN}"
            return _HowLost(text, Situation.TIMED_OUT)
        case Verdict.ABANDONED:
            text = "It was abandoned: another session took the group while it was open."
            return _HowLost(text, Situation.DUE)  # like a failed root it waits for its replay
        case Verdict.FAILED:
            return _how_failed(emission, lost)
        case _:
            assert_never(lost.reason)


def _how_failed(emission: TracedEmission | None, lost: Loss) -> _HowLost:
    """Describe which bolt failed an emission, and by which error, or what kept it from all bolts."""
    if lost.error in UNREADABLE_CAUSES:
        unreadable = UNREADABLE_CAUSES[lost.error]
        # what is too large for a query the replay workers can read: it becomes a dead letter, and
        # nothing holds it up
        situation = Situation.DUE if unreadable is UnreadableKind.OVERSIZED else Situation.HELD_UP
        return _HowLost(f"It {unreadable.phrase}, so no bolt has seen it.", situation)
    if lost.error == LATE:
        late_by = emission.late_by if emission is not None else None
        why = Untrusted(lost.message) if late_by is None else f"{late_by.text}, had passed its end"
        return _HowLost(f"It came too late for its window: {why}.", Situation.DUE)
    by_error = f" by {UntrustedName(lost.error)}" if lost.error else ""
    message = f": {Untrusted(lost.message)}" if lost.message else ""
    bolt = UntrustedName(lost.operator) or "unknown"
    return _HowLost(f"Bolt {bolt} failed it{by_error}{message}.", Situation.DUE)


def _unreadable(record: Record | Absence | None) -> UnreadableKind | None:
    """Return why nobody can read a record in its topic; None: somebody can, or it is not there."""
    return record.unreadable if isinstance(record, Absence) else None


def _not_taken_over(emission: TracedEmission) -> str:
    """Describe a lost root that no replay worker has taken over, in a phrase."""
    how = f"lost ({emission.state})"
    if emission.loss is not None and emission.loss.error == HELD:
        how = f"blocked: it {Untrusted(emission.loss.message)}"
    return f"{how}; no replay worker has taken it over yet"


def _acked_so_far_text(emission: TracedEmission) -> str:
    """Describe how much of an open root is acked, in a phrase."""
    if emission.batches is None:
        return "what was acked of it is unknown"
    if not emission.batches:
        return "nothing of it was acked yet"
    if emission.is_acked_whole:
        return "all of it is acked in the log, and its acker has not read that yet"
    return f"acked in part by {_batches(emission.batches)}: some tuple of it is outstanding"


def _why_timed_out(emission: TracedEmission | None) -> str:
    """Describe how much of a root that timed out was acked, in a phrase."""
    if emission is None or emission.batches is None:
        return "what was acked of it can no longer be read"
    if not emission.batches:
        return (
            "nothing of it was acked, so its micro-batch took longer, or a bolt neither acked nor failed it"
        )
    batches = _batches(emission.batches)
    return f"it was acked in part by {batches}, and some tuple of it was neither acked nor failed"


def _batches(count: int) -> str:
    """Return a number of batches in words."""
    return "a batch" if count == 1 else f"{count:,} batches"
