"""One acker partition in the hands of its owner, which writes the output of steps in transactions.

All that a step produces is written in one transaction: verdicts and answers, State, and quarantined records.
Steps that only read inits and ticks share one transaction. State contains the positions up to which the three
topics are read. Each transaction writes State, and a fenced owner cannot commit any; the offsets that the
consumer group commits (`done`) only follow. If it does not commit, the partition is restored, which reads the
same records and gives the same verdicts.

A transaction is not always whole. A request to commit that was delayed on its way, and sent again, may come
while the next transaction is open, and commits what that has written so far: librdkafka uses one epoch for
all transactions (https://cwiki.apache.org/confluence/display/KAFKA/KIP-890, part 2). So the verdicts are in
the log before State is sent, a restore reads the verdicts behind State, too, and nothing is written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from acker.config.limits import AckerLimits
from acker.config.settings import AckTopics
from acker.kafka.port import Headers, Outgoing, Record, TopicPartition, Transactions
from acker.ledger.output import AckerEvent, AckerEventKind, StepOutput
from acker.service.core import PartitionCore
from acker.service.passed_over import WHY_HEADER
from acker.service.snapshot import carried_of, carry, state_of
from acker.service.state import (
    BIN_PART,
    FILLING_SHARE,
    FULL_CURE,
    StatePart,
    StateSize,
    Stored,
    bin_of,
    encode_state,
    part_key,
    shared_headers,
)
from acker.service.state_notes import LastRestore, StateNotes, moved_deadlines
from acker.wire.clusters import cluster_header
from acker.wire.codec import Codec
from acker.wire.lateness import NOTHING_DECIDED, LateCounts, too_late_header
from acker.writer_clocks import clock_header

ORIGIN_HEADER = "windhover.origin"
QUARANTINE_BYTES = 900_000
"""A longer key and value would not fit into a quarantined record with its headers, so they are cut."""

NAMED_MAX = 100
"""So many records of one transaction are named in the log that cannot be applied and are not copied."""

EMPTIER_SHARE = 0.4
"""What part of a limit State takes at most to be named again when it takes `FILLING_SHARE`."""

NAMED_AFTER_MS = 5_000
"""So long after a restore State is written to name it, if there was no other reason to write State."""


class QuarantineForm(IntEnum):
    """How much of a record that cannot be applied is copied to the quarantine.

    Each form is for where the broker refused the one before. The record itself stays where it is.
    """

    WHOLE = 0
    """Key and value, up to `QUARANTINE_BYTES`."""
    PLACE = 1
    """Neither of the two: where it is, and why it cannot be applied."""
    NOTHING = 2
    """It is only named in the log."""

    def lesser(self) -> QuarantineForm:
        return QuarantineForm(min(self + 1, QuarantineForm.NOTHING))


@dataclass(frozen=True, slots=True)
class PreparedWrite:
    """What one transaction of an acker partition writes, and what is known when it has committed.

    Attributes:
        records: none where State is full; then there is nothing to commit.
        output: what the core has given out.
        safe: the first contribution that a restart reads.
        verdict: the first verdict that a restart reads, as State has it; negative: the next one.
        names_restore: whether State has the last restore.
    """

    records: Sequence[Outgoing]
    output: StepOutput
    safe: int = 0
    verdict: int = -1
    names_restore: bool = False


class PartitionAcker:
    """An acker partition and the transactional id that makes its owner the only one.

    Attributes:
        unwritten_since_ms: wall time of the first change since the last commit; None if nothing changed.
        full: why nothing is written: State would be too large for its readers; empty: it is not.
        needed: the first offset of each log that a restart would read, at the last commit; empty before one.
        done: the offsets up to which the three topics were read, at the last commit.
        quarantine_form: how much of records that cannot be applied is copied.
        has_quarantined: whether the last transaction copied such records, committed or not.
    """

    def __init__(
        self,
        core: PartitionCore,
        transactions: Transactions,
        topics: AckTopics,
        limits: AckerLimits,
        stored: Codec[Stored],
    ) -> None:
        self.core = core
        self.unwritten_since_ms: int | None = None
        self.quarantine_form = QuarantineForm.WHOLE
        self.has_quarantined = False
        self._has_read_acks = False
        self._transactions = transactions
        self._topics = topics
        self.needed: dict[TopicPartition, int] = {}
        self.done = self._positions()
        self._limits = limits
        self._stored = stored
        self._restored: LastRestore | None = None
        self._is_named = False
        self.full = ""
        self._ranges_when_full = 0
        self._is_filling = False

    @property
    def is_quiet(self) -> bool:
        """Whether no root is open, and nothing waits to be written or to count."""
        core = self.core
        return self.unwritten_since_ms is None and not core.ledger.open and not core.sessions.line

    def changed(self, now_ms: int, *, has_read_acks: bool) -> None:
        """Record that a step changed the core, and whether it read more than inits and ticks."""
        if self.unwritten_since_ms is None:
            self.unwritten_since_ms = now_ms
        self._has_read_acks |= has_read_acks

    def restored(self, took_ms: int, now_ms: int) -> None:
        """Record how long the restore took: State says it from now on."""
        self._restored = LastRestore(now_ms, took_ms)

    def must_write(self, now_ms: int) -> bool:
        """Return whether `write` is due.

        It is due at once when others wait for the output of a step. It is also due when a step read
        contributions or fails: without a commit, a restart would read them again, and one that was dropped
        because its root had no init yet might then come after the init. Inits, and ticks by which nothing
        expired, mean the same whenever they are read again. They may wait up to the limit `put_off_ms`, since
        a transaction for them alone costs the broker as much as one with verdicts.
        """
        since_ms = self.unwritten_since_ms
        if since_ms is None:
            return self._must_name(now_ms)
        if self.full and self.core.ledger.ranges >= self._ranges_when_full:
            return False  # to measure a large State takes a second, and it has not become smaller
        is_late = not 0 <= now_ms - since_ms < self._limits.put_off_ms
        return is_late or self._has_read_acks or self.core.has_output

    def _must_name(self, now_ms: int) -> bool:
        """Return whether State is written for the restore alone."""
        restored = self._restored
        if restored is None or self._is_named or not self.core.init_next:
            return False
        return abs(now_ms - restored.at_ms) >= NAMED_AFTER_MS

    def write(self, now_ms: int | None = None) -> StepOutput:
        """Write the output of the core, and return it when it has committed; see `commit`."""
        write = self.prepare(now_ms)
        self.commit(write)
        return self.finish(write)

    def prepare(self, now_ms: int | None = None) -> PreparedWrite:
        """Take the output of the core; `commit` writes it, and then `finish` is called.

        Nothing may be applied to the core in between.

        Where State is larger than what can be read again, nothing is written, and the output is kept: State
        and verdicts are of one transaction. What is read from then on makes room, since acks, timeouts and
        takes close ranges, and sessions without verdicts stop to emit at `max_spout_pending`.
        State says that this machine's clock says `now_ms`, wall time; None: it does not say it.
        """
        core = self.core
        carry(core)
        state = state_of(core)
        encoded = encode_state(self._stored, state)
        if encoded.size.share > 1:
            return self._put_off(encoded.size)
        output = core.take_output()
        output.events += self._news_of(encoded.size)
        headers = (*self._headers(), *clock_header(now_ms))
        records = self._records(output, encoded.parts(), self._bins(), headers)
        self.has_quarantined = bool(output.quarantined)
        names_restore = self._restored is not None
        return PreparedWrite(records, output, state.safe, state.verdict, names_restore)

    def commit(self, write: PreparedWrite) -> None:
        """Write in one transaction, and wait until it has committed; in whatever thread.

        Raises:
            Aborted: the transaction was aborted; restore the partition.
            RecordRefused: the same; if it `has_quarantined`, copy less of such records then.
            Fenced: another process owns the partition; give it up.
            Unreachable: the transaction may have committed or not; restore the partition.
        """
        if write.records:
            self._commit(write.records)

    def finish(self, write: PreparedWrite) -> StepOutput:
        """Record that a write has committed; return its output."""
        core, output = self.core, write.output
        if not write.records:
            return output
        self.done = self._positions()
        core.committed([*output.verdicts, *(b"" for _ in (*output.too_late, *output.notes))])
        self._is_named = write.names_restore
        self.unwritten_since_ms = None
        self._has_read_acks = False
        core.ledger.counts.transactions += 1
        verdict_place = TopicPartition(self._topics.verdict, core.partition)
        first_verdict = write.verdict if write.verdict >= 0 else core.ledger.verdict_next.offset
        ack_place = TopicPartition(self._topics.ack, core.partition)
        self.needed = {**self.done, ack_place: write.safe, verdict_place: first_verdict}
        output.events += core.take_output().events
        if self.quarantine_form is QuarantineForm.NOTHING:
            output.events += [
                AckerEvent(AckerEventKind.NOT_COPIED, core.partition, f"{record.place}: {why}")
                for record, why in output.quarantined[:NAMED_MAX]
            ]
        return output

    def _put_off(self, size: StateSize) -> PreparedWrite:
        """Write nothing until fewer ranges are open; report it once."""
        is_new = not self.full
        self.full = (
            f"State would have {size}. Verdicts are held back until there is room, by acks or timeouts:"
            f" {FULL_CURE}"
        )
        self._ranges_when_full = size.ranges
        self.has_quarantined = False
        event = AckerEvent(AckerEventKind.FULL, self.core.partition, self.full)
        return PreparedWrite((), StepOutput(events=[event] if is_new else []))

    def _news_of(self, size: StateSize) -> list[AckerEvent]:
        """Return what is to be reported of a State that is small enough."""
        events: list[AckerEvent] = []
        if self.full:
            self.full = ""
            text = f"State is small enough again: {size}"
            events.append(AckerEvent(AckerEventKind.GOES_ON, self.core.partition, text))
        was_filling = self._is_filling
        # a State at the limit goes up and down: it is named again only when it was clearly below
        self._is_filling = size.share >= (EMPTIER_SHARE if was_filling else FILLING_SHARE)
        if self._is_filling and not was_filling:
            text = f"State has {size}. When it is full, verdicts are held back: {FULL_CURE}"
            events.append(AckerEvent(AckerEventKind.FILLING, self.core.partition, text))
        return events

    def close(self) -> None:
        self._transactions.close()

    def _positions(self) -> dict[TopicPartition, int]:
        core, topics = self.core, self._topics
        return {
            TopicPartition(topics.init, core.partition): core.init_next,
            TopicPartition(topics.ack, core.partition): core.ack_next,
            TopicPartition(topics.fail, core.partition): core.fail_next,
        }

    def _bins(self) -> list[tuple[int, StatePart | None]]:
        parts: list[tuple[int, StatePart | None]] = []
        for number in sorted(self.core.bins.due(self.core.ledger.changed_bins())):
            cohorts = self.core.bins.live(number)
            part = bin_of(self._stored, self.core.partition, number, carried_of(cohorts)) if cohorts else None
            parts.append((BIN_PART + number, part))
        return parts

    def _records(
        self,
        output: StepOutput,
        parts: Sequence[StatePart],
        bins: Sequence[tuple[int, StatePart | None]],
        state_headers: Headers,
    ) -> list[Outgoing]:
        partition = self.core.partition
        cluster = cluster_header(self.core.cluster_id)
        records = [
            Outgoing(
                self._topics.verdict, partition, value, headers=(*cluster, *output.headers.get(index, ()))
            )
            for index, value in enumerate(output.verdicts)
        ]
        nothing = self.core.codec.encode(NOTHING_DECIDED)
        records += [
            Outgoing(self._topics.verdict, partition, nothing, headers=(*cluster, too_late_header(note)))
            for note in output.too_late
        ]
        records += [
            Outgoing(self._topics.verdict, partition, nothing, headers=(*cluster, note))
            for note in output.notes
        ]
        if self.quarantine_form is not QuarantineForm.NOTHING:
            records += [self._quarantined(record, why) for record, why in output.quarantined]
        for number, part in [*bins, *((part.part, part) for part in parts)]:
            value = None if part is None else self._stored.encode(part)
            headers = () if number else state_headers
            records.append(
                Outgoing(self._topics.state, partition, value, part_key(partition, number), headers)
            )
        return records

    def _headers(self) -> Headers:
        """Return the headers of a State's first piece."""
        core = self.core
        too_late = {group: core.too_late.get(group, LateCounts()) for group in core.sessions.groups}
        notes = StateNotes(self._restored, moved_deadlines(core.ledger.cohorts()), too_late)
        shared = shared_headers(core.sessions.shared())
        cluster = cluster_header(core.cluster_id)
        return (*cluster, *notes.headers(), *shared, *core.leader_epochs.headers())

    def _quarantined(self, record: Record, why: str) -> Outgoing:
        headers = (
            (ORIGIN_HEADER, record.place.encode()),
            (WHY_HEADER, why.encode()[: QUARANTINE_BYTES // 10]),
        )
        if self.quarantine_form is QuarantineForm.PLACE:
            return Outgoing(self._topics.quarantine, self.core.partition, None, None, headers)
        key = None if record.key is None else record.key[:QUARANTINE_BYTES]
        room = QUARANTINE_BYTES - len(key or b"")
        value = None if record.value is None else record.value[:room]
        return Outgoing(self._topics.quarantine, self.core.partition, value, key, headers)

    def _commit(self, records: Sequence[Outgoing]) -> None:
        timeout_ms = self._limits.operation_ms
        self._transactions.begin()
        self._transactions.send_all(record for record in records if record.topic != self._topics.state)
        self._transactions.flush(timeout_ms)
        self._transactions.send_all(record for record in records if record.topic == self._topics.state)
        self._transactions.commit(timeout_ms)
