"""What a step wants written and told, collected in order.

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
class Output:
    """What a step wants written.

    Attributes:
        verdicts: records of the verdict topic, encoded, in order.
        quarantined: records that cannot be applied, each with why.
        events: what happened.
    """

    verdicts: list[bytes] = field(default_factory=list)
    quarantined: list[tuple[Record, str]] = field(default_factory=list)
    events: list[AckerEvent] = field(default_factory=list)


class Outbox:
    """Collects the output of one acker partition."""

    def __init__(self, partition: int, codec: Codec[Event]) -> None:
        """Begin with nothing to write for acker partition `partition`."""
        self._partition = partition
        self._codec = codec
        self._output = Output()
        self._told = Told()

    def __bool__(self) -> bool:
        """Tell whether anything was collected."""
        return bool(self._output.verdicts or self._output.quarantined or self._output.events)

    def write(self, events: Iterable[Event]) -> None:
        """Add records of the verdict topic."""
        self._output.verdicts += [self._codec.encode(event) for event in events]

    def tell(self, kind: AckerEventKind, detail: str) -> None:
        """Add something that happened."""
        self._output.events.append(AckerEvent(kind, self._partition, detail))

    def quarantine(self, record: Record, why: str) -> None:
        """Add a record that cannot be applied; it is told of once for each kind."""
        self._output.quarantined.append((record, why))
        if self._told.is_first(record.topic, why):
            where = f"{record.topic}/{record.partition}@{record.offset}"
            self.tell(AckerEventKind.QUARANTINED, f"{where}: {why}; further ones like it are only counted")

    def pass_over(self, record: Record, why: str) -> None:
        """Tell of a record that a restart passes over, once for each kind."""
        if self._told.is_first(record.topic, why):
            where = f"{record.topic}/{record.partition}@{record.offset}"
            self.tell(AckerEventKind.UNDECODABLE, f"{where} is passed over: {why}")

    def take(self) -> Output:
        """Hand over what was collected since the last call."""
        output, self._output = self._output, Output()
        return output
