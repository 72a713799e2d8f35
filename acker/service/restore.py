"""Restores an acker partition to its state after the last committed step.

1. Read State: the last record of each of its parts.
2. Settle the roots with a verdict in the verdict log: from the first verdict of a range with open roots on,
   or from those that were written with State, to its end. Verdicts without a State of their own count, too.
3. Fold the contributions in [safe, position) again, except to roots that State carries by value.

To *fold* contributions is to XOR them into what their roots miss. Only the
verdict log decides what is settled: contributions that are read
again give no verdict. ``_ack_init`` and ``_ack_fail`` are not read again:
State has the roots that inits opened, and the step that read a fail also
wrote its verdicts.

The order of 2 and 3 does not change the result; in this one fewer
contributions are folded.

A *pin* is the place of a record in a log, by its offset and by the bytes before it: a ledger keeps
with each range of roots the first record that the next restart needs for it.

Source: docs/design/protocol.md, section 5.3, "Restore".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from acker.config.limits import AckerLimits
from acker.config.settings import AckTopics
from acker.errors import CodecError, DataLoss, Disagreement, Fenced, OutOfRange, UnknownVersion
from acker.hot_paths import distinct
from acker.kafka.port import Log, Record, TopicPartition
from acker.kafka.read_to_end import require_start
from acker.ledger.cohort import Pin, Session
from acker.ledger.marks import Seen
from acker.service.core import PartitionCore, read_cost_bytes, wrong_headers
from acker.service.passed_over import is_mark, read_ack_topic, require_passed_over
from acker.service.snapshot import load_state
from acker.service.state import (
    LastState,
    State,
    Stored,
    damaged_state_as_disagreement,
    first_verdict_to_read,
    read_last_state,
)
from acker.wire.checks import wrong_verdicts
from acker.wire.clusters import require_cluster
from acker.wire.codec import Codec
from acker.wire.events import Acks, Event, Verdicts, positions


def _load_last_state(core: PartitionCore, last_state: LastState) -> None:
    """Load a State into a new acker partition (`core`), with what its bins and headers have."""
    load_state(core, last_state.state, last_state.bins)
    # sessions of which two processes may live until their clock shows `until_ms`
    for session, until_ms in last_state.shared.items():
        core.sessions.set_shared_until(session, until_ms)
    core.late_counts_by_group = dict(last_state.notes.too_late)
    core.leader_epochs = last_state.leader_epochs
    if not last_state.is_last:
        # Behind this State there may be bins (records with the values of
        # roots) of a transaction that was committed in part. They do not
        # count: the next step writes all bins again.
        for cohort in core.ledger.cohorts():
            core.ledger.mark_bin_changed(cohort)


@dataclass(frozen=True, slots=True)
class Restore:
    """Restores acker partitions.

    Attributes:
        partitions: how many there are, the N of topics.yaml.
        codec: of the wire's records; `state_codec` is that of State's.
        name_operation: called with the name of what is done now, before each record that is read,
            so that a watchdog sees that a long restore goes on.
    """

    log: Log
    topics: AckTopics
    partitions: int
    limits: AckerLimits
    codec: Codec[Event]
    state_codec: Codec[Stored]
    name_operation: Callable[[str], None] = lambda _what: None

    def restore(self, partition: int) -> PartitionCore:
        """Restore an acker partition, after the transaction of its former owner has ended.

        Raises:
            Disagreement: its State was written with another N or in another
                cluster, or is missing although there are verdicts.
            DataLoss: records that are still needed are no longer in the log.
            Fenced: another process became the owner of the partition
                meanwhile.
        """
        place = TopicPartition(self.topics.state, partition)
        state_end = self.log.stable_ends([place])[place]
        try:
            return self._restore(partition)
        except (DataLoss, Disagreement, OutOfRange) as error:
            # Only an owner of our transactional id writes State. If another
            # process writes it while we restore, that process has fenced us,
            # and deletes the records that it does not need: so the records
            # that we miss are not lost.
            if self.log.stable_ends([place])[place] > state_end:
                raise Fenced(f"partition {partition} has got another owner; give it up") from error
            raise

    def _restore(self, partition: int) -> PartitionCore:
        """Restore an acker partition, once, after its former owner's transaction has ended.

        Raises what `restore` raises, and `OutOfRange`.
        """
        core = PartitionCore(partition, self.partitions, self.limits, self.codec)
        core.cluster_id = self.log.cluster_id()
        # 1. State; without one the partition is new, and its logs must have no verdict
        with damaged_state_as_disagreement(TopicPartition(self.topics.state, partition)):
            last_state = self._read_state(partition)
            state = last_state.state if last_state else None
            if last_state is not None:
                _load_last_state(core, last_state)
        self._require_logs(core, state)
        verdict_place = TopicPartition(self.topics.verdict, partition)
        verdict_end = self.log.stable_ends([verdict_place])[verdict_place]
        if state is None:
            self._require_no_verdict(core, verdict_place, verdict_end)
        else:
            # 2. verdicts
            self._settle_logged_roots(core, state, verdict_place, verdict_end)
            # there are verdicts of roots whose inits are not read yet
            if core.ledger.first_pin_without_init:
                init_place = TopicPartition(self.topics.init, partition)
                core.ahead_inits_end = self.log.ends([init_place])[init_place]
            # 3. contributions
            self._refold_contributions(core, state)
        # the next verdict gets this offset; the bytes that were read up to it stay
        core.ledger.verdict_end_pin = Pin(verdict_end, core.ledger.verdict_end_pin.bytes)
        # the ledger has collected what it settled: drop that, since the log has these verdicts
        core.ledger.take_settled()
        return core

    # -- 1. State

    def _read_state(self, partition: int) -> LastState | None:
        """Return the last State of a partition; None: it never wrote one.

        Raises `Disagreement`: it was written with another number of partitions.
        """
        place = TopicPartition(self.topics.state, partition)
        last_state = read_last_state(self.log, place, self.state_codec, wait_ms=self.limits.operation_ms)
        if last_state is None:
            return None
        state_partitions = last_state.state.partitions
        if state_partitions != self.partitions:
            raise Disagreement(
                f"State of acker partition {partition} was written with acker.partitions:"
                f" {state_partitions}, topics.yaml says {self.partitions}. N is fixed for life: set it"
                " back, or begin anew under another acker.topic_prefix once nothing is pending"
            )
        return last_state

    # -- checks of the logs

    def _require_logs(self, core: PartitionCore, state: State | None) -> None:
        """Raise `DataLoss` if a log begins behind the first record that the restore needs of it.

        `state` None: there is no State, so that all contributions are needed and no verdict.
        """
        self._require_start(core, self.topics.init, core.init_next, "takes and inits")
        self._require_start(core, self.topics.ack, state.safe if state else 0, "contributions")
        self._require_start(core, self.topics.fail, core.fail_next, "fails")
        if state is not None and state.verdict >= 0:  # else none is needed
            self._require_start(core, self.topics.verdict, state.verdict, "verdicts")

    def _require_start(self, core: PartitionCore, topic: str, needed_offset: int, what: str) -> None:
        require_start(self.log, TopicPartition(topic, core.partition), needed_offset, what)

    def _require_no_verdict(self, core: PartitionCore, place: TopicPartition, end: int) -> None:
        """Raise `Disagreement` if the log has verdicts, since there is no State.

        Records that no acker wrote, or that an operator lets pass, are no verdicts.
        """
        start = self.log.starts([place])[place]
        wait_ms = self.limits.operation_ms
        self.name_operation("restoring: looking for verdicts without State")
        for record in read_ack_topic(self.log, place, start, end, committed=True, wait_ms=wait_ms):
            if self._decode(core, record) is None:
                continue
            raise Disagreement(
                f"{record.topic}/{record.partition} holds verdicts (first at {record.offset}) but"
                f" {self.topics.state} holds no State for it. Without State no root is known to be settled:"
                " bring the topic back, or begin anew under another acker.topic_prefix"
            )

    # -- 2. verdicts

    def _settle_logged_roots(
        self, core: PartitionCore, state: State, place: TopicPartition, end: int
    ) -> None:
        """Read the verdicts that State does not contain, up to `end`, and settle their roots."""
        first_offset = first_verdict_to_read(self.log, place, state, end)
        # A pin, the place of a record, has also the bytes before it. They count from the first
        # verdict that is read here, since only differences of two pins matter.
        bytes_read = 0
        wait_ms = self.limits.operation_ms
        for record in read_ack_topic(self.log, place, first_offset, end, committed=True, wait_ms=wait_ms):
            self.name_operation("restoring: verdicts")
            verdicts = self._verdicts_of(core, record)
            if verdicts is not None:
                core.ledger.settle_logged(verdicts, Pin(record.offset, bytes_read))
            bytes_read += read_cost_bytes(record.value)
        core.ledger.verdict_end_pin = Pin(end, bytes_read)

    def _verdicts_of(self, core: PartitionCore, record: Record) -> Verdicts | None:
        """Return the verdicts of a record of the verdict topic; None if it has none that count.

        An answer to a take has none. A record that no acker can have written is
        reported and passed over.
        """
        event = self._decode(core, record)
        if not isinstance(event, Verdicts):
            return None
        flaw = wrong_verdicts(event)
        if flaw:
            core.report_passed_over(record, flaw)
            return None
        return event

    def _decode(self, core: PartitionCore, record: Record) -> Event | None:
        """Decode a record of the verdict topic; None: it is passed over.

        That is so if no acker wrote it, or an operator marked it as to be passed
        over, which is reported. A mark itself is passed over without a report.

        Raises:
            Disagreement: perhaps a newer acker wrote it, and the roots that
                it settled must not be settled again. Or it was written in
                another cluster, where the roots are others.
        """
        require_cluster(record.place, record.headers, record.value, core.cluster_id)
        try:
            return self.codec.decode(record.value)
        except UnknownVersion as error:
            why = require_passed_over(
                self.log,
                record,
                error,
                cure="a newer acker wrote it, run that version",
                error_class=Disagreement,
                wait_ms=self.limits.operation_ms,
            )
            core.report_passed_over(record, why)
        except CodecError as error:
            if not is_mark(record):
                core.report_passed_over(record, str(error))
        return None

    # -- 3. contributions

    def _refold_contributions(self, core: PartitionCore, state: State) -> None:
        """Read again the contributions that State does not contain, and XOR them into their
        roots' values.
        """
        place = TopicPartition(self.topics.ack, core.partition)
        wait_ms = self.limits.operation_ms
        # `committed=False` also reads records of aborted transactions: they were applied, too
        records = read_ack_topic(self.log, place, state.safe, state.ack, committed=False, wait_ms=wait_ms)
        for record in records:
            self.name_operation("restoring: contributions")
            # in this order, as when it was applied first: `ack_bytes` are
            # those that lie before the record
            self._refold_record(core, record)
            core.ack_bytes += read_cost_bytes(record.value)

    def _refold_record(self, core: PartitionCore, record: Record) -> None:
        """Apply a record of contributions again: XOR them into their roots' values, and move
        deadlines.

        A record that was quarantined when it was read first changes nothing, and
        so does a repeat.
        """
        # 1. leave out what the acker left out when it read the record first, by the same checks:
        # records that it quarantined, and repeats
        if wrong_headers(record):
            return
        try:
            acks = self.codec.decode(record.value)
        except CodecError:
            return
        if not isinstance(acks, Acks):  # another kind of record, which was quarantined
            return
        contribution, _ = core.unpack_contributions(acks, record.timestamp_ms)
        if contribution is None:
            return
        session = Session(acks.group, acks.epoch, acks.session)
        if core.compare_and_mark_acks(record, session, acks) is not Seen.NEW:
            return
        # 2. apply it. Its pin is its offset, and how many bytes of the log were read before it.
        pin = Pin(record.offset, core.ack_bytes)
        core.ledger.refold(session, contribution, pin)
        # roots whose deadline the record moves, since Spark's state holds a tuple of them
        if acks.touched:
            touched_positions = distinct(positions(acks.touched))
            core.ledger.retouch(session, acks.source, touched_positions, acks.touched_at, pin)
