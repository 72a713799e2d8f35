"""One acker partition in the hands of its owner, which writes the output of steps in transactions.

All that a step produces is written in one transaction: verdicts and answers, State, and quarantined
records. Steps that only read inits and ticks share one transaction. State contains the positions up
to which the three topics are read. Each transaction writes State, and a fenced owner cannot commit
any; the offsets that the consumer group commits (`read_offsets`) only follow. If it does not
commit, the partition is restored, which reads the same records and gives the same verdicts.

A transaction is not always whole. A request to commit that was delayed on its way, and sent again,
may come while the next transaction is open, and commits what that has written so far: librdkafka
uses one epoch for all transactions (https://cwiki.apache.org/confluence/display/KAFKA/KIP-890, part
2). So the verdicts are in the log before State is sent, a restore reads the verdicts behind State,
too, and nothing is written again.
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
from acker.service.snapshot import carried_bin, carry_old_cohorts, take_snapshot
from acker.service.state import (
    BIN_PART,
    FILLING_SHARE,
    FULL_CURE,
    StatePart,
    StateSize,
    Stored,
    bin_part,
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
"""So many records of one transaction that cannot be applied, and are not copied, are named in the log."""

EMPTIER_SHARE = 0.4
"""State that takes `FILLING_SHARE` of a limit is reported once, and again only if it took less than this."""

RESTORE_WRITTEN_AFTER_MS = 5_000
"""So long after a restore State is written to have it, if there was no other reason to write State."""


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
        first_ack_offset: offset of the first contribution that a restart reads.
        first_verdict_offset: offset of the first verdict that a restart reads; negative: it reads
            none of those that are written by now, see `not_needed_from`.
        has_restore: whether State says when its partition was restored last.
    """

    records: Sequence[Outgoing]
    output: StepOutput
    first_ack_offset: int = 0
    first_verdict_offset: int = -1
    has_restore: bool = False


class PartitionAcker:
    """An acker partition and the transactional id that makes its owner the only one.

    Attributes:
        unwritten_since_ms: wall time of the first change since the last commit; None if nothing changed.
        why_full: why nothing is written: State would be too large for its readers; empty: it is not.
        needed_offsets: the first offset of each log that a restart would read, at the last commit;
            empty before one.
        read_offsets: the offsets up to which the three topics were read, at the last commit.
        quarantine_form: how much of records that cannot be applied is copied.
        has_quarantined: whether the last transaction copied such records, committed or not.
    """

    def __init__(
        self,
        core: PartitionCore,
        transactions: Transactions,
        topics: AckTopics,
        limits: AckerLimits,
        state_codec: Codec[Stored],
    ) -> None:
        """Begin with nothing to write.

        `core` is a new one, or one that a restore returned. `transactions` are those of the
        partition's owner: `init` was called already.
        """
        self.core = core
        self._transactions = transactions
        self._topics = topics
        self._limits = limits
        self._state_codec = state_codec

        # what these mean: see the class
        self.unwritten_since_ms: int | None = None
        self.why_full = ""  # empty: State is not full
        self.needed_offsets: dict[TopicPartition, int] = {}  # empty until the first commit
        self.read_offsets = self._current_read_offsets()
        self.quarantine_form = QuarantineForm.WHOLE
        self.has_quarantined = False

        # whether contributions or fails were read since the last commit
        self._has_read_acks_or_fails = False
        self._last_restore: LastRestore | None = None  # None: it was not timed yet
        # whether the last State that was written has `_last_restore`
        self._has_written_restore = False
        self._range_count_when_full = 0  # how many ranges State had when it was measured as full
        # whether State is reported as half full (FILLING), and was not clearly below since
        self._is_filling = False

    @property
    def is_quiet(self) -> bool:
        """Whether no root is open, and nothing waits to be written or to count."""
        core = self.core
        has_work = core.ledger.open_count or core.sessions.queue
        return self.unwritten_since_ms is None and not has_work

    def record_change(self, now_ms: int, *, has_read_acks_or_fails: bool) -> None:
        """Record that a step changed the core, and whether it read more than inits and ticks."""
        if self.unwritten_since_ms is None:
            self.unwritten_since_ms = now_ms
        self._has_read_acks_or_fails |= has_read_acks_or_fails

    def record_restore(self, took_ms: int, now_ms: int) -> None:
        """Record how long the restore took, which ended at `now_ms`: State says it from now on."""
        self._last_restore = LastRestore(now_ms, took_ms)

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
            return self._must_write_restore(now_ms)
        if self.why_full and self.core.ledger.ranges >= self._range_count_when_full:
            return False  # to measure a large State takes a second, and it has not become smaller
        # a clock that was set back makes it late, too
        is_late = not 0 <= now_ms - since_ms < self._limits.put_off_ms
        return is_late or self._has_read_acks_or_fails or self.core.has_output

    def _must_write_restore(self, now_ms: int) -> bool:
        """Return whether State is written only to say when the partition was restored.

        That is so if nothing else made it be written for `RESTORE_WRITTEN_AFTER_MS` after the
        restore.
        """
        last_restore = self._last_restore
        # a partition of which nothing was ever read has no State yet, and needs none
        if last_restore is None or self._has_written_restore or not self.core.init_next:
            return False
        return abs(now_ms - last_restore.at_ms) >= RESTORE_WRITTEN_AFTER_MS

    def write(self, now_ms: int | None = None) -> StepOutput:
        """Write the output of the core in a transaction; return it when that has committed.

        `now_ms` is as in `prepare`. Raises what `write_transaction` raises.
        """
        write = self.prepare(now_ms)
        self.write_transaction(write)
        return self.record_written(write)

    def prepare(self, now_ms: int | None = None) -> PreparedWrite:
        """Take the output of the core, and return it as the records of a transaction.

        The caller passes them to `write_transaction`, then to `record_written`. Nothing may be
        applied to the core in between.

        Where State is larger than what can be read again, nothing is to be written, and the core
        keeps its output: State and verdicts are of one transaction. What is read from then on
        makes room, since acks, timeouts and takes settle roots, and sessions without verdicts
        stop to emit at `max_spout_pending`.

        Args:
            now_ms: wall time that State has as the time of this machine's clock; None: it has none.
        """
        # 1. State; first the values of old roots go into bins, so that a restart need not read
        # far back
        core = self.core
        carry_old_cohorts(core)
        state = take_snapshot(core)
        encoded = encode_state(self._state_codec, state)
        if encoded.size.share > 1:  # more than a limit allows
            return self._keep_output_since_full(encoded.size)
        # 2. verdicts, answers and what is quarantined
        output = core.take_output()
        output.events += self._record_fitting_size(encoded.size)
        # 3. all of it as records
        headers = (*self._state_headers(), *clock_header(now_ms))
        records = self._transaction_records(output, encoded.parts(), self._take_bin_parts(), headers)
        self.has_quarantined = bool(output.quarantined)
        return PreparedWrite(
            records,
            output,
            first_ack_offset=state.safe,
            first_verdict_offset=state.verdict,
            has_restore=self._last_restore is not None,
        )

    def write_transaction(self, write: PreparedWrite) -> None:
        """Write in one transaction, and wait until it has committed; any thread may call it.

        Raises:
            Aborted: the transaction was aborted; restore the partition.
            RecordRefused: an `Aborted`, too: the broker refuses a record. If `has_quarantined`, the
                quarantined records may be the cause: reduce `quarantine_form` before the next try.
            Fenced: another process owns the partition; give it up.
            Unreachable: the transaction may have committed or not; restore the partition.
        """
        # a write without records comes from a full State: there is no transaction then
        if write.records:
            self._write_in_transaction(write.records)

    def record_written(self, write: PreparedWrite) -> StepOutput:
        """Take note that the transaction of a write has committed; return the step's output.

        The caller reports the events of that output.
        """
        core, output = self.core, write.output
        if not write.records:  # State was full, so nothing was written
            return output
        self.read_offsets = self._current_read_offsets()
        # each note is a record of the verdict topic, too, with a short value; see
        # `_transaction_records`
        note_values = [b""] * (len(output.too_late) + len(output.notes))
        core.move_verdict_end([*output.verdicts, *note_values])
        self._has_written_restore = write.has_restore
        self.unwritten_since_ms = None
        self._has_read_acks_or_fails = False
        core.ledger.counts.transactions += 1
        verdict_place = TopicPartition(self._topics.verdict, core.partition)
        first_verdict_offset = write.first_verdict_offset
        if first_verdict_offset < 0:  # a restart needs none of those that are written by now
            first_verdict_offset = core.ledger.verdict_end_pin.offset
        ack_place = TopicPartition(self._topics.ack, core.partition)
        self.needed_offsets = {
            **self.read_offsets,
            ack_place: write.first_ack_offset,
            verdict_place: first_verdict_offset,
        }
        output.events += core.take_output().events  # those that were reported since `prepare`
        if self.quarantine_form is QuarantineForm.NOTHING:
            output.events += [
                AckerEvent(AckerEventKind.NOT_COPIED, core.partition, f"{record.place}: {why}")
                for record, why in output.quarantined[:NAMED_MAX]
            ]
        return output

    def _keep_output_since_full(self, size: StateSize) -> PreparedWrite:
        """Return a write without records, since State is too large to be written: `size`.

        The output stays in the core. `why_full` is the reason from now on. The write has an event
        the first time only.
        """
        was_full = bool(self.why_full)
        self.why_full = (
            f"State would have {size}. Verdicts are held back until there is room, by acks or timeouts:"
            f" {FULL_CURE}"
        )
        # `must_write` does not measure State again before it has fewer ranges
        self._range_count_when_full = size.ranges
        self.has_quarantined = False  # this write copies no record to the quarantine
        events: list[AckerEvent] = []
        if not was_full:
            events.append(AckerEvent(AckerEventKind.FULL, self.core.partition, self.why_full))
        # the core's own output stays in the core, for the next `prepare`
        return PreparedWrite(records=(), output=StepOutput(events=events))

    def _record_fitting_size(self, size: StateSize) -> list[AckerEvent]:
        """Record that State is small enough to be written.

        Returns events: it was full, or is half full now. `size.share` is the part that it
        takes of the limit to which it is nearest. Most often there is no event.
        """
        events: list[AckerEvent] = []
        if self.why_full:
            self.why_full = ""
            text = f"State is small enough again: {size}"
            events.append(AckerEvent(AckerEventKind.GOES_ON, self.core.partition, text))
        was_filling = self._is_filling
        # A State about half full goes up and down: it is reported again only when it was clearly
        # below. At 0.51, 0.49, 0.51 it is reported once; at 0.51, 0.39, 0.51 twice.
        filling_from_share = EMPTIER_SHARE if was_filling else FILLING_SHARE
        self._is_filling = size.share >= filling_from_share
        if self._is_filling and not was_filling:
            text = f"State has {size}. When it is full, verdicts are held back: {FULL_CURE}"
            events.append(AckerEvent(AckerEventKind.FILLING, self.core.partition, text))
        return events

    def close(self) -> None:
        self._transactions.close()

    def _current_read_offsets(self) -> dict[TopicPartition, int]:
        """Return the offsets up to which the core has read its three topics."""
        core, topics = self.core, self._topics
        return {
            TopicPartition(topics.init, core.partition): core.init_next,
            TopicPartition(topics.ack, core.partition): core.ack_next,
            TopicPartition(topics.fail, core.partition): core.fail_next,
        }

    def _take_bin_parts(self) -> list[tuple[int, StatePart | None]]:
        """Return the bins that this step writes, each with its part number; record them as written.

        A bin is a record of State with the XOR values of some open roots. None stands for a bin
        that
        has no open root any more: its record is removed.
        """
        core = self.core
        numbered_parts: list[tuple[int, StatePart | None]] = []
        changed_bins = core.ledger.take_changed_bins()
        for bin_number in sorted(core.bins.take_due_bins(changed_bins)):
            cohorts = core.bins.remove_settled(bin_number)
            part = None
            if cohorts:  # those that have open roots
                part = bin_part(self._state_codec, core.partition, bin_number, carried_bin(cohorts))
            numbered_parts.append((BIN_PART + bin_number, part))
        return numbered_parts

    def _transaction_records(
        self,
        output: StepOutput,
        parts: Sequence[StatePart],
        bins: Sequence[tuple[int, StatePart | None]],
        state_headers: Headers,
    ) -> list[Outgoing]:
        """Return the records of one transaction, in the order in which they are written.

        Args:
            parts: the pieces of State.
            bins: by part number; None for a bin that has no open roots any more.
            state_headers: of the first piece of State.
        """
        partition = self.core.partition
        cluster = cluster_header(self.core.cluster_id)
        verdict_topic = self._topics.verdict
        records: list[Outgoing] = []
        for index, value in enumerate(output.verdicts):
            headers = (*cluster, *output.headers.get(index, ()))
            records.append(Outgoing(verdict_topic, partition, value, headers=headers))
        # a note is the header of a record that has no verdict
        no_verdict = self.core.codec.encode(NOTHING_DECIDED)
        note_headers = (*map(too_late_header, output.too_late), *output.notes)
        for note_header in note_headers:
            headers = (*cluster, note_header)
            records.append(Outgoing(verdict_topic, partition, no_verdict, headers=headers))
        if self.quarantine_form is not QuarantineForm.NOTHING:
            for record, why in output.quarantined:
                records.append(self._record_for_quarantine(record, why))
        # bins before the State that names them; the first piece of State (0) has its headers
        numbered_parts = [*bins, *((part.part, part) for part in parts)]
        for part_number, part in numbered_parts:
            encoded = None if part is None else self._state_codec.encode(part)  # None removes an empty bin
            part_headers = state_headers if part_number == 0 else ()
            key = part_key(partition, part_number)
            records.append(Outgoing(self._topics.state, partition, encoded, key, part_headers))
        return records

    def _state_headers(self) -> Headers:
        """Return the headers of a State's first piece.

        They have the cluster, notes for people, sessions of which two processes may live, and the
        leader epochs in which roots were emitted.
        """
        core = self.core
        # a group of which nothing was late gets zeros
        late_counts = {
            group: core.late_counts_by_group.get(group, LateCounts()) for group in core.sessions.groups
        }
        notes = StateNotes(self._last_restore, moved_deadlines(core.ledger.cohorts()), late_counts)
        # sessions of which two processes may live
        shared = shared_headers(core.sessions.shared_until_ms())
        cluster = cluster_header(core.cluster_id)
        return (*cluster, *notes.headers(), *shared, *core.leader_epochs.headers())

    def _record_for_quarantine(self, record: Record, why: str) -> Outgoing:
        """Return what is written to the quarantine for a record that cannot be applied, and `why`.

        By the present `quarantine_form` that is its key and value, cut to `QUARANTINE_BYTES`
        together, or neither of the two. Its headers say where the record is, and why it cannot be
        applied.
        """
        topic, partition = self._topics.quarantine, self.core.partition
        why_bytes_max = QUARANTINE_BYTES // 10  # headers have room beside key and value
        headers = (
            (ORIGIN_HEADER, record.place.encode()),
            (WHY_HEADER, why.encode()[:why_bytes_max]),
        )
        if self.quarantine_form is QuarantineForm.PLACE:
            return Outgoing(topic, partition, None, None, headers)
        key = None if record.key is None else record.key[:QUARANTINE_BYTES]
        value_bytes_max = QUARANTINE_BYTES - len(key or b"")
        value = None if record.value is None else record.value[:value_bytes_max]
        return Outgoing(topic, partition, value, key, headers)

    def _write_in_transaction(self, records: Sequence[Outgoing]) -> None:
        """Write records in one transaction, and wait until it has committed.

        Raises what `write_transaction` raises. All other records are in the log before State is
        sent. A delayed request to commit may commit a part of the transaction. If that part were
        State without its verdicts, these would be lost.
        """
        timeout_ms = self._limits.operation_ms
        self._transactions.begin()
        self._transactions.send_all(record for record in records if record.topic != self._topics.state)
        self._transactions.flush(timeout_ms)
        # now the log has all that State counts on
        self._transactions.send_all(record for record in records if record.topic == self._topics.state)
        self._transactions.commit(timeout_ms)
