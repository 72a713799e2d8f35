"""One record's whole story, assembled from what the topics have about it; pure.

An *emission* is a root: the record as it was read from its topic, once in each generation, and each copy of
it on the replay topic. The state of an emission comes from the first of these that has it: the acker's view
(open, or not emitted yet), a verdict, or the history in a later copy or dead letter. If none of the topics
that were read has it, the state is unknown, and the story shows that.

Source: docs/design/protocol.md, sections 2 and 5.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from acker.identity import Root, generation_of
from acker.kafka.port import Record
from acker.service.view import OpenRange
from acker.untrusted import Untrusted, UntrustedName
from acker.wire.causes import HELD, error_class
from acker.wire.events import Lost
from acker.wire.lateness import TooLate
from acker.wire.verdict import Verdict
from replay.policy.disposition import DeadReason
from replay.records.due import LEFT_OUT, Due, Loss, left_out_count, left_out_entry
from replay.records.headers import Lineage
from replay.records.letters import Letter
from replay.worker.fetch import Absence
from spout.inspect.letter_rows import bytes_field, moment, name_field
from spout.inspect.tables import UNKNOWN, Column, count, span

ATTEMPTS: Final = (
    Column("attempt", "attempt", count),
    Column("root", "root"),
    Column("state", "state"),
    Column("emitted", "emitted"),
    Column("after", "age_ms", span),
    Column("settled", "settled"),
    Column("operator", "operator"),
    Column("error", "error"),
    Column("message", "message"),
)

NOT_EMITTED: Final = "not emitted"
ANNOUNCED: Final = "announced"
PENDING: Final = "pending"
SETTLED: Final = "settled, how is unknown"


@dataclass(frozen=True, slots=True)
class LoggedVerdict:
    """A verdict in the log: which one, its record's place, offset and time, and the loss if it is one."""

    name: Verdict
    place: str
    offset: int
    at_ms: int
    lost: Lost | None = None


class LateBy(NamedTuple):
    """A watermark that dropped something and what moved it there, in words.

    `record` is the place of the record that did; empty: nobody knows which one.
    """

    text: str
    record: str


class PassedHere(NamedTuple):
    """A call that hung, or ended its process, while it worked on an emission, and passed when it came again.

    `at_ms` is when an acker wrote that, wall time.
    """

    operator: str
    error: str
    how: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class TracedEmission:
    """A root as which the record was, or will be, emitted.

    Attributes:
        name: its name for people.
        place: ``topic/partition@offset``.
        lineage: the emissions before it, from its headers; the record itself has none.
        copy: whether it is a copy on the replay topic.
        watermark: how far the acker has emitted its source, from the acker's State; None: unknown.
        open: the range in which it is open; None: it is not open, or that is unknown.
        announced: whether an Init that is newer than the acker's State has it.
        batches: how many batches acked part of it, while it is open or where it timed out; None: unknown.
        is_acked_whole: whether these acked all of it; the acker has not read that yet where it is open.
        former: whether it is of a generation that is over, in which it may never have been emitted.
        verdict: its verdict in the verdict log; None: none was found.
        history: of a copy, how the emissions before it were lost.
        late: what a watermark dropped of it, or of its batch; None: nothing.
        late_by: that watermark, and what moved it there.
        passed: calls that worked on it, did not return, and passed when they were made again.
    """

    root: Root
    name: str
    place: str
    lineage: Lineage
    copy: bool
    watermark: int | None = None
    open: OpenRange | None = None
    announced: bool = False
    batches: int | None = None
    is_acked_whole: bool = False
    former: bool = False
    verdict: LoggedVerdict | None = None
    history: Sequence[Loss] = ()
    late: TooLate | None = None
    late_by: LateBy | None = None
    passed: tuple[PassedHere, ...] = ()

    @property
    def is_late(self) -> bool:
        """Whether a tuple of it came too late for its window."""
        return self.late is not None and self.late.names(*self.root)

    @property
    def loss(self) -> Loss | None:
        """How its verdict says that it was lost; None: no verdict says so.

        The error has its base classes.
        """
        lost = self.verdict.lost if self.verdict is not None else None
        if lost is None:
            return None
        return Loss(
            attempt=self.lineage.attempt,
            reason=lost.reason,
            operator=lost.operator,
            error=lost.error,
            message=lost.message,
            emitted_ms=lost.emitted_wall,
            age_ms=max(0, lost.decided_at - lost.emitted_at),
            root=self.name,  # with the generation; histories have the place
        )

    @property
    def state(self) -> str:
        """What became of the emission, as far as acker and verdicts show."""
        if self.verdict is not None:
            return self.verdict.name.value
        if self.open is not None:
            return PENDING
        if self.announced:
            return ANNOUNCED
        if self.watermark is None:
            return UNKNOWN
        return NOT_EMITTED if self.root.position >= self.watermark else SETTLED


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that was read about one record.

    Attributes:
        place: ``topic/partition@offset`` of the record.
        record: the record from its topic, or why it is absent; None: unknown, the topic is missing.
        written: whether the log has reached its offset; True where that is unknown.
        emissions: of the record itself in former generations, and their copies; then of its present one, and
            its copies, in the order of the log.
        letters: its dead letters with their marks, by the time of death.
        dues: its emissions that wait for a replay, or to become a dead letter.
        taken_over: whether the replay workers have read the verdict of the last emission; None: unknown.
        committed: the group's committed offset; None if it has none.
        history: how its emissions were lost, from the copies, dead letters and dues.
        notes: what was not read.
        paused: why the input is paused in the partition of its waiting emissions; empty: it is not.
        missing: the topics that do not exist; what they would have is unknown.
        uncommitted: whether a transaction that is open there keeps readers from it.
        recreated: whether its topic was created again, and no query has begun with the new one.
    """

    place: str
    input: str
    group: str
    record: Record | Absence | None
    written: bool
    emissions: Sequence[TracedEmission]
    letters: Sequence[Letter] = ()
    stacks: Mapping[str, str] = field(default_factory=dict)
    dues: Mapping[Root, Due] = field(default_factory=dict)
    taken_over: bool | None = None
    committed: int | None = None
    history: Sequence[Loss] = ()
    notes: Sequence[str] = ()
    paused: str = ""
    missing: Sequence[str] = ()
    uncommitted: bool = False
    recreated: bool = False


def facts_of(evidence: Evidence, now_ms: int) -> dict[str, Any]:
    """Return what the topics have about a record, with a row for each attempt."""
    record = evidence.record if isinstance(evidence.record, Record) else None
    return {
        "in_the_log": _in_the_log(evidence),
        "key": None if record is None else bytes_field(record.key),
        "timestamp": None if record is None else moment(record.timestamp_ms),
        "payload": None if record is None else bytes_field(record.value),
        "payload_bytes": None if record is None else len(record.value or b""),
        "committed": "none" if evidence.committed is None and evidence.record else evidence.committed,
        "attempts": attempts_of(evidence, now_ms),
        "passed_calls": [
            _passed_row(emission, call) for emission in evidence.emissions for call in emission.passed
        ],
        "waiting": [_due_row(due, now_ms) for due in evidence.dues.values()],
        "dead_letters": [
            _letter_row(letter) | {"stack": evidence.stacks.get(letter.place, "")}
            for letter in evidence.letters
            if not letter.is_note
        ],
        "dropped": [_letter_row(letter) for letter in evidence.letters if letter.is_note],
        "not_read": list(evidence.notes),
    }


def is_letter_of(letter: Letter, emission: TracedEmission) -> bool:
    """Return whether a letter may be of an emission: it has its loss, or no history.

    After a rewind the record is emitted again at the same place, and may have a letter of the
    generation before. Without the verdict of the emission nobody can tell the two letters apart, so
    none counts as its own.
    """
    # a generation above 0: the record was emitted before, at the same place
    is_rewound = not emission.copy and generation_of(emission.root.position) > 0
    if is_rewound and emission.loss is None:
        return False
    return may_come_from(letter.history, emission)


def may_come_from(history: Sequence[Loss], emission: TracedEmission) -> bool:
    """Return whether a copy or letter with this history may come of an emission that was lost.

    It may if the history has a loss of the same place and time. Without a history it may, too; and
    if the verdict of the emission was not read, the place alone decides.
    """
    if not history:
        return True
    emitted_ms = None if emission.loss is None else emission.loss.emitted_ms
    return any(loss.root == emission.place and emitted_ms in (None, loss.emitted_ms) for loss in history)


def attempts_of(evidence: Evidence, now_ms: int) -> list[dict[str, Any]]:
    """Return a row for each emission, and for each loss that only a history has.

    They are in this order: the record in former generations; losses from then that only a history
    has; copies from then; the present emission; later losses that only a history has; later copies.

    Column `repeats`: a blocked row whose neighbours the same record blocked. It need not be shown.
    """
    emissions = evidence.emissions
    # 1. a row for each emission
    loss_by_emission, losses_without_emission = losses_of_history(evidence)
    rows: list[dict[str, Any]] = []
    for emission, loss in zip(emissions, loss_by_emission, strict=True):
        rows.append(_row_of(emission, loss, now_ms))

    # 2. the losses that only a history has, before and since the present emission of the record
    indices_of_record = [index for index, emission in enumerate(emissions) if not emission.copy]
    present_since_ms = _present_since_ms(emissions[indices_of_record[-1]]) if indices_of_record else None
    rows_before: list[dict[str, Any]] = []
    rows_since: list[dict[str, Any]] = []
    for loss in losses_without_emission:
        is_since = present_since_ms is not None and loss.emitted_ms >= present_since_ms
        if is_since:
            rows_since.append(_row_of_loss(loss))
        else:
            rows_before.append(_row_of_loss(loss))

    # 3. all of them in order; the emissions of former generations of the record are the first
    former_end = max(0, len(indices_of_record) - 1)
    present_end = indices_of_record[-1] + 1 if indices_of_record else 0
    rows_of_former = rows[:former_end]
    rows_up_to_present = rows[former_end:present_end]
    rows_of_copies_since = rows[present_end:]
    return _with_repeats_column(
        [*rows_of_former, *rows_before, *rows_up_to_present, *rows_since, *rows_of_copies_since]
    )


class HistoryLosses(NamedTuple):
    """The losses of a record's histories: those whose emission the log has, and all others.

    Attributes:
        by_emission: for each emission, in the order of `Evidence.emissions`, how a history says that
            it was lost; None: a verdict says it, it is open, or no history has it.
        without_emission: all others, in their order. An entry may stand for those that a history
            has left out.
    """

    by_emission: Sequence[Loss | None]
    without_emission: Sequence[Loss]


def losses_of_history(evidence: Evidence) -> HistoryLosses:
    """Return which loss of the histories is of which emission.

    A history names a root by its place alone. After a rewind the record is emitted again at the
    same place, so a loss at that place may be of a former generation.
    """
    loss_by_place = {loss.root: loss for loss in evidence.history}
    by_emission: list[Loss | None] = []
    shown_losses: set[tuple[str, int]] = set()  # by root and time of emission
    for emission in evidence.emissions:
        # after a rewind it is unknown without the verdict of which generation a loss is
        is_rewound = not emission.copy and generation_of(emission.root.position) > 0
        loss = None
        if emission.state in (SETTLED, UNKNOWN) and not is_rewound:
            loss = loss_by_place.get(emission.place)
        by_emission.append(loss)
        if loss is not None:
            shown_losses.add((loss.root, loss.emitted_ms))
        if emission.loss is not None:
            shown_losses.add((emission.place, emission.loss.emitted_ms))
    losses = _with_one_left_out_entry(evidence.history)
    without_emission = [loss for loss in losses if (loss.root, loss.emitted_ms) not in shown_losses]
    return HistoryLosses(by_emission, without_emission)


def _with_repeats_column(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with a column `repeats`: one record blocked it and both neighbours."""
    # the message of a blocked emission names the record that blocks it; empty: it is not blocked
    blocked_by = [row["message"] if row["error"] == HELD else "" for row in rows]
    rows_with_repeats = []
    for index, row in enumerate(rows):
        neighbours = blocked_by[max(0, index - 1) : index + 2]
        repeats = bool(blocked_by[index]) and neighbours.count(blocked_by[index]) == 3
        rows_with_repeats.append({**row, "repeats": repeats})
    return rows_with_repeats


def _present_since_ms(present_emission: TracedEmission) -> int | None:
    """Return from which wall time on a loss that only a history has is of the present generation.

    0: there is no former generation, so all losses are of the present one. None: no loss of the
    present emission was read, so all of them count as losses of former generations.
    """
    if not generation_of(present_emission.root.position):
        return 0
    return None if present_emission.loss is None else present_emission.loss.emitted_ms


def _with_one_left_out_entry(history: Sequence[Loss]) -> Sequence[Loss]:
    """Return the losses of several joined histories, with one entry for those that all have left out.

    A history has the first loss and the last ones; an entry stands for those between, and counts
    them. What one history has left out, another may have.
    """
    losses = [loss for loss in history if not left_out_count(loss)]
    if len(losses) == len(history):
        return losses
    entry = [loss for loss in history if left_out_count(loss)][-1]
    listed_count = 0
    for loss in losses[1:]:
        is_last_left_out = (loss.emitted_ms, loss.attempt) == (entry.emitted_ms, entry.attempt)
        if loss.error != HELD and (loss.emitted_ms < entry.emitted_ms or is_last_left_out):
            listed_count += 1
    missing_count = left_out_count(entry) - listed_count
    if missing_count <= 0:
        return losses
    return [*losses[:1], left_out_entry(entry, missing_count), *losses[1:]]


def _row_of(emission: TracedEmission, loss_in_history: Loss | None, now_ms: int) -> dict[str, Any]:
    """Return the row of an emission.

    `loss_in_history` is how a later history has it; then the row is that of this loss, since no
    verdict was read. None: the row is of its verdict, or of its state if it has none.
    """
    if loss_in_history is not None:
        return _row_of_loss(loss_in_history)
    open_range = emission.open
    row: dict[str, Any] = {
        "attempt": emission.lineage.attempt,
        "root": emission.name,
        "state": emission.state,
        "emitted": moment(open_range.emitted_ms) if open_range else None,
        "age_ms": max(0, now_ms - open_range.emitted_ms) if open_range else None,
        "left_ms": None,
        "settled": "",
        "verdict": "",
        "operator": "",
        "error": "",
        "message": "",
    }
    if emission.loss is not None:
        row = _row_of_loss(emission.loss)
    if emission.verdict is not None:
        row |= {"settled": moment(emission.verdict.at_ms), "verdict": emission.verdict.place}
    # an emission with a verdict is not open
    return row | {"left_ms": open_range.left_ms if open_range else None}


def _row_of_loss(loss: Loss) -> dict[str, Any]:
    """Return the row of an emission that was lost."""
    return {
        "attempt": loss.attempt,
        "root": name_field(loss.root),
        # LEFT_OUT: the entry stands for several losses that a full history lacks
        "state": LEFT_OUT if left_out_count(loss) else loss.reason.value,
        "emitted": moment(loss.emitted_ms),
        "age_ms": loss.age_ms or None,  # 0: nobody knows, since the session's clock did not move
        "left_ms": None,
        "settled": None,
        "verdict": "",
        "operator": name_field(loss.operator),
        "error": name_field(error_class(loss.error)),
        "message": loss.message,
    }


def _due_row(due: Due, now_ms: int) -> dict[str, Any]:
    """Return when a lost root is due, and what becomes of it then."""
    becomes = f"attempt {due.attempt + 1}"
    if due.dead == DeadReason.DROPPED:
        becomes = "dropped"
    elif due.dead:
        becomes = f"dead letter ({UntrustedName(due.dead)})"
    return {
        "due": moment(due.due_ms),
        "in_ms": due.due_ms - now_ms,
        "attempt_lost": due.attempt,
        "becomes": becomes,
    }


def _passed_row(emission: TracedEmission, call: PassedHere) -> dict[str, Any]:
    """Return a call that did not return while it worked on an emission, and passed when made again."""
    return {
        "attempt": emission.lineage.attempt,
        "root": emission.name,
        "operator": name_field(call.operator),
        "error": name_field(call.error),
        "how": f"{Untrusted(call.how)}, and passed when it was made again",
        "noted": moment(call.at_ms),
    }


def _letter_row(letter: Letter) -> dict[str, Any]:
    """Return a dead letter, and who has handled it; `handled` is empty where nobody has."""
    mark = letter.mark
    handled = ""
    if mark is not None:
        handled = f"{mark.action} {moment(mark.at_ms)} by {Untrusted(mark.by)}: {Untrusted(mark.why)}"
    return {
        "letter": letter.place,
        "died": moment(letter.died_ms),
        "dead": name_field(letter.dead),
        "attempts": letter.lineage.attempt,
        "handled": handled,
    }


def _in_the_log(evidence: Evidence) -> str:
    """Return whether the record is in its topic, and why not, in words."""
    if evidence.uncommitted:
        return "there, behind the begin of a transaction that is open"
    if not evidence.written:
        return "not written yet"
    if evidence.record is None:
        return "unknown: its topic is missing"
    if evidence.record is Absence.NEVER:
        return "no record: a transaction's marker, or aborted"
    if evidence.record is Absence.GONE:
        return "gone: retention or compaction took it"
    if isinstance(evidence.record, Absence) and evidence.record.unreadable is not None:
        return f"there, and nobody can read it: it {evidence.record.unreadable.phrase}"
    return "there"
