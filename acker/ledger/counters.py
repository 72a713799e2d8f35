"""What an acker counts and reports, as plain values for metrics, logs and tests.

Source: docs/design/protocol.md, rules 10 and 11.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum


@dataclass(slots=True)
class Counts:
    """Totals since the process started.

    Attributes:
        initialised: roots that were opened.
        ignored: positions of an ``Init`` that were below the watermark (emitted before).
        refused: positions of an ``Init`` of a lower session, or of a source or generation that no ``Take``
            announced; and ticks of a lower session.
        acked: verdicts ACKED.
        failed: verdicts FAILED.
        timed_out: verdicts TIMED_OUT.
        abandoned: verdicts ABANDONED.
        absent: verdicts ABSENT.
        folded: contributions that counted.
        late: contributions and fails for roots that had their verdict already, or are of another session.
        above: contributions and fails for positions that were never initialised.
        repeated_records: records that were applied before, and were ignored now.
        nondeterministic_records: records that came again with different content.
        quarantined_records: records that no acker can apply.
        undecodable_records: records of the verdict topic that a restart could not use and passed over.
        refused_takes: takes that were answered with a refusal.
        carried: ranges that were moved into State with their values.
        restores: times that a partition was restored.
        transactions: transactions committed.
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

    def add(self, other: Counts) -> None:
        """Add other counts, field by field."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


@dataclass(frozen=True, slots=True)
class AckerStatus:
    """The state of an acker service at one moment. `counts` is a copy.

    Attributes:
        partitions: acker partitions that this process owns now, ascending.
        open_roots: roots without a verdict, in all owned partitions.
        ranges: emitted ranges with such roots.
        never_expiring: open roots without a timeout.
        sessions: sessions that own a group, as ``group/session``.
        pending: ticks and takes that were read and do not count yet.
        counts: totals since the process started.
    """

    partitions: tuple[int, ...]
    open_roots: int
    ranges: int
    never_expiring: int
    sessions: tuple[str, ...]
    pending: int
    counts: Counts


class AckerEventKind(StrEnum):
    """What kinds of events an acker reports to the code that runs it."""

    OWNED = "partition_owned"
    RESTORED = "partition_restored"
    LOST = "partition_lost"
    FENCED = "partition_fenced"
    ABORTED = "transaction_aborted"
    UNREACHABLE = "broker_unreachable"
    QUARANTINED = "record_quarantined"
    UNDECODABLE = "undecodable"
    REFUSED = "take_refused"
    ASKED = "group_asked_for"
    TAKEN = "group_taken"
    NONDETERMINISTIC = "record_differs"
    CARRIED = "range_carried"


@dataclass(frozen=True, slots=True)
class AckerEvent:
    """Something that happened in an acker partition. `detail` is a sentence without secrets or payload."""

    kind: AckerEventKind
    partition: int
    detail: str
