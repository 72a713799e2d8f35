"""What an acker counts and reports, and what a step of it writes, as plain values.

Source: docs/design/protocol.md, rules 10 and 11, section 5.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

from acker.kafka.port import Headers, Record
from acker.ledger.tally import VerdictTally
from acker.ledger.verdicts import VerdictSet
from acker.wire.checks import LogOnce
from acker.wire.codec import Codec
from acker.wire.events import Event
from acker.wire.lateness import TooLate
from acker.wire.leader_epochs import LeaderEpochs
from acker.wire.stacks import KEPT_MAX, CauseKey, Stacks, key_of, stacks_header


@dataclass(slots=True)
class Counts:
    """Totals since the process started, in roots, contributions or records.

    See docs/reference/metrics.md.

    Attributes:
        refused: positions of an ``Init`` of a lower session, or of a source or generation that no
            ``Take`` announced; and ticks of a lower session.
        late: contributions and fails for roots that had their verdict already, or are of another
            session.
        undecodable_records: records of the verdict topic that a restart could not use and passed
            over.
    """

    initialised: int = 0
    ignored: int = 0
    refused: int = 0
    acked: int = 0
    failed: int = 0
    timed_out: int = 0
    abandoned: int = 0
    absent: int = 0
    folded: int = 0
    late: int = 0
    above: int = 0
    repeated_records: int = 0
    nondeterministic_records: int = 0
    quarantined_records: int = 0
    undecodable_records: int = 0
    refused_takes: int = 0
    carried: int = 0
    restores: int = 0
    transactions: int = 0

    def add(self, counts: Counts) -> None:
        """Add the totals of another partition."""
        for counter in fields(self):
            total = getattr(self, counter.name) + getattr(counts, counter.name)
            setattr(self, counter.name, total)


@dataclass(frozen=True, slots=True)
class AckerStatus:
    """The state of an acker service at one moment.

    See docs/reference/metrics.md. It shares nothing with it.

    Attributes:
        partitions: those that the acker owns and has restored, ascending.
        sessions: sessions that own a group, as ``group/session``.
        restored: partitions that were restored, and `restored_ms` how long they took together,
            from their assignment on.
        standing: partitions of the ack topics that do not go on, as ``topic/partition``, each with
            why.
    """

    partitions: tuple[int, ...]
    assigned: int
    open_roots: int
    ranges: int
    never_expiring: int
    sessions: tuple[str, ...]
    pending: int
    counts: Counts
    restored: int = 0
    restored_ms: int = 0
    verdicts: VerdictTally = field(default_factory=VerdictTally, repr=False)
    standing: Mapping[str, str] = field(default_factory=dict)


class AckerEventKind(StrEnum):
    """What kinds of events an acker reports to the code that runs it."""

    RESTORED = "partition_restored"
    LOST = "partition_lost"
    FENCED = "partition_fenced"
    ABORTED = "transaction_aborted"
    UNREACHABLE = "broker_unreachable"
    STANDS = "partition_stands"
    GOES_ON = "partition_goes_on"
    CLOCK = "clocks_differ"
    DAMAGED = "damaged"
    QUARANTINED = "record_quarantined"
    NOT_COPIED = "quarantine_refused"
    UNDECODABLE = "undecodable"
    REFUSED = "take_refused"
    QUERIED = "group_queried"
    TAKEN = "group_taken"
    NONDETERMINISTIC = "record_differs"
    CARRIED = "range_carried"
    FILLING = "state_half_full"
    FULL = "state_full"


@dataclass(frozen=True, slots=True)
class AckerEvent:
    """Something that happened in an acker partition.

    `detail` is a sentence without secrets or payload.
    """

    kind: AckerEventKind
    partition: int
    detail: str


@dataclass(slots=True)
class StepOutput:
    """What a step writes and reports.

    Attributes:
        verdicts: encoded records of the verdict topic, in order.
        headers: by the index of a record in `verdicts`, its headers; others have none.
        settled: the verdicts of the step, as values.
        too_late: what came too late for a watermark; each becomes the header of a record.
        notes: headers that are passed on as they came, each in a record of its own.
        quarantined: records that cannot be applied, each with why.
        events: what to report.
    """

    verdicts: list[bytes] = field(default_factory=list)
    headers: dict[int, Headers] = field(default_factory=dict)
    settled: list[VerdictSet] = field(default_factory=list)
    too_late: list[TooLate] = field(default_factory=list)
    notes: list[tuple[str, bytes | None]] = field(default_factory=list)
    quarantined: list[tuple[Record, str]] = field(default_factory=list)
    events: list[AckerEvent] = field(default_factory=list)


class OutputBuilder:
    """Collects what a step of one acker partition writes and reports, until `take`."""

    def __init__(self, partition: int, codec: Codec[Event]) -> None:
        """Begin with nothing collected."""
        self._partition = partition
        self._codec = codec
        self._output = StepOutput()
        self._log_once = LogOnce()
        self._stacks: dict[CauseKey, str] = {}  # by cause, the stack for the verdicts of this step

    def __bool__(self) -> bool:
        """Return whether there is something to write or to report."""
        output = self._output
        return bool(output.verdicts or output.too_late or output.notes or output.quarantined or output.events)

    def add_records(self, events: Iterable[Event]) -> None:
        """Encode records for the verdict topic."""
        self._output.verdicts += [self._codec.encode(event) for event in events]

    def add_verdicts(self, settled: VerdictSet, epochs: LeaderEpochs) -> None:
        """Add the verdicts of a step, encoded as records of the verdict topic.

        Headers of a record have the leader epochs in which its lost roots were emitted
        (`epochs`), and the stacks of their causes.
        """
        if not settled:
            return
        for verdicts in settled.records():
            stack_keys = [key_of(lost.operator, lost.error, lost.message) for lost in verdicts.lost]
            headers = (*epochs.headers_of(verdicts), *stacks_header(stack_keys, self._stacks))
            if headers:
                record_index = len(self._output.verdicts)  # of the one that is written next
                self._output.headers[record_index] = headers
            self.add_records([verdicts])
        self._output.settled.append(settled)

    def keep_stacks(self, stacks: Stacks) -> None:
        """Keep stacks for the verdicts of this step, the first of each cause, `KEPT_MAX` at most."""
        for key, stack in stacks.items():
            if len(self._stacks) < KEPT_MAX:
                self._stacks.setdefault(key, stack)

    def add_too_late(self, note: TooLate) -> None:
        """Add what a watermark dropped."""
        self._output.too_late.append(note)

    def add_note(self, header: tuple[str, bytes | None]) -> None:
        """Add a header, which is written as it is behind the verdicts of this step."""
        self._output.notes.append(header)

    def report(self, kind: AckerEventKind, detail: str) -> None:
        """Add an event of this partition."""
        self._output.events.append(AckerEvent(kind, self._partition, detail))

    def add_quarantined(self, record: Record, why: str) -> None:
        """Add a record that cannot be applied, and the reason `why`.

        It is written to the quarantine. Only the first one of a kind is reported as an event.
        Records of one topic with the same `why`, except for a number at its end, are one kind.
        """
        self._output.quarantined.append((record, why))
        if self._log_once.add_if_new(record.topic, why):
            text = f"{record.place}: {why}; further ones like it are only counted"
            self.report(AckerEventKind.QUARANTINED, text)

    def report_passed_over(self, record: Record, why: str) -> None:
        """Add an event for a record that a restart passes over; only for the first of each kind."""
        if self._log_once.add_if_new(record.topic, why):
            self.report(AckerEventKind.UNDECODABLE, f"{record.place} is passed over: {why}")

    def take(self) -> StepOutput:
        """Return what was collected since the last call, and start a new collection."""
        self._stacks = {}
        output, self._output = self._output, StepOutput()
        return output
