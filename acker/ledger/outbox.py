"""Collects what a step writes and reports, in order.

Source: docs/design/protocol.md, section 5.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from acker.kafka.port import Record
from acker.ledger.counters import AckerEvent, AckerEventKind
from acker.log_once import Told
from acker.wire.codec import Codec
from acker.wire.events import Event


@dataclass(slots=True)
class StepOutput:
    """What a step writes and reports.

    Attributes:
        verdicts: records of the verdict topic, encoded, in order.
        quarantined: records that cannot be applied, each with the reason.
        events: what happened, for the log of the process.
    """

    verdicts: list[bytes] = field(default_factory=list)
    quarantined: list[tuple[Record, str]] = field(default_factory=list)
    events: list[AckerEvent] = field(default_factory=list)


class OutputBuilder:
    """Collects the output of one acker partition."""

    def __init__(self, partition: int, codec: Codec[Event]) -> None:
        """Start empty, for acker partition `partition`."""
        self._partition = partition
        self._codec = codec
        self._output = StepOutput()
        self._told = Told()

    def __bool__(self) -> bool:
        """Return whether anything was collected."""
        return bool(self._output.verdicts or self._output.quarantined or self._output.events)

    def write(self, events: Iterable[Event]) -> None:
        """Add records of the verdict topic."""
        self._output.verdicts += [self._codec.encode(event) for event in events]

    def tell(self, kind: AckerEventKind, detail: str) -> None:
        """Add an event."""
        self._output.events.append(AckerEvent(kind, self._partition, detail))

    def quarantine(self, record: Record, why: str) -> None:
        """Add a record that cannot be applied; only the first of each kind is also added as an event."""
        self._output.quarantined.append((record, why))
        if self._told.is_first(record.topic, why):
            where = f"{record.topic}/{record.partition}@{record.offset}"
            self.tell(AckerEventKind.QUARANTINED, f"{where}: {why}; further ones like it are only counted")

    def pass_over(self, record: Record, why: str) -> None:
        """Add an event for a record that a restart passes over; only for the first of each kind."""
        if self._told.is_first(record.topic, why):
            where = f"{record.topic}/{record.partition}@{record.offset}"
            self.tell(AckerEventKind.UNDECODABLE, f"{where} is passed over: {why}")

    def take(self) -> StepOutput:
        """Return what was collected since the last call, and start a new collection."""
        output, self._output = self._output, StepOutput()
        return output
