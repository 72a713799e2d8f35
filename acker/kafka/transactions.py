"""Transactions of Kafka under one transactional id.

librdkafka knows four ends of a transaction that did not commit:

1. It must be aborted: `Aborted`, after it was.
2. Its producer is dead, because another owner of the id was initialised: `Fenced`.
3. Its outcome is unknown when the deadline is over: `Unreachable`.
4. Its producer dies of its abort: `Unreachable` as well; a new owner of the id ends the
   transaction, and finds out. This happens if the abort overtakes the request that would have begun
   the transaction at the coordinator, which then knows of none (librdkafka's issue 4849).

A refused record makes the transaction one of the first kind; but that a right
is missing is reported as it is, for no other try would succeed.

When a transaction is undone, librdkafka drops the records that it had put
into a request and not sent yet, and counts their sequence numbers on: the
broker misses these numbers in the next transaction, and refuses it. With one
request under way at each broker that is what a refused record leaves behind,
as a rule. So the writes of the transaction after one that was undone are kept
until its end, and made once more if it is aborted: by then the epoch is a new
one, whose numbers begin at zero.

No group's offsets go with a transaction: `send_offsets_to_transaction` waits
without end, whatever its timeout, when the group's coordinator goes away
gracefully (librdkafka's issues 5456 and 5511). The records of a transaction
themselves say how far its reader has come, so the producer's epoch is all the
fencing there must be: the coordinator checks it when a partition is added and
when the transaction ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NoReturn

from confluent_kafka import KafkaError, KafkaException, Message

from acker.errors import (
    Aborted,
    Fenced,
    LogError,
    NotAuthorized,
    RecordRefused,
    Unreachable,
    WindhoverError,
)
from acker.kafka.client import Deadline, KafkaClient, Use, missing_right_text
from acker.kafka.port import Operation, Outgoing, OutgoingColumns, Resource, Right
from acker.kafka.writer import SERVED_EVERY, DeliveryCallback, KafkaWriter, writing_text

_UNEXPLAINED: Final = frozenset({KafkaError._INCONSISTENT, KafkaError._STATE})
"""What librdkafka says when a record was refused, or had been before the call; not why."""

Forbidden = Callable[[Operation, Collection[str]], Collection[str]]
"""Returns those of some topics to which we have no right for an operation."""

_REPORT_POLL_S: Final = 0.05
"""How long one poll for delivery reports waits."""

_ABORTING: Final = "aborting"
"""What messages call an abort, which is not aborted itself when it fails."""

FLUSH_PIECE_S: Final = 0.2
"""So often a flush asks whether its transaction is still open."""


@dataclass(slots=True)
class _OffsetReports:
    """Delivery reports of the records of one transaction whose offsets are asked for.

    Attributes:
        missing_count: how many have not come yet.
        offsets: those of the reports that have come, each with the callback
            that gets it after the commit.
    """

    missing_count: int = 0
    offsets: list[tuple[Callable[[int], None], int]] = field(default_factory=list)


class KafkaTransactions(KafkaWriter):
    """Writes in transactions; implements `acker.kafka.port.Transactions`."""

    def __init__(self, client: KafkaClient, transactional_id: str, forbidden: Forbidden) -> None:
        """Make a producer; nothing is connected before `init`.

        `forbidden` is a function; it returns the topics to which a refused
        transaction may not write.
        """
        super().__init__(client, {"transactional.id": transactional_id})
        self._id = transactional_id
        self._forbidden = forbidden
        self._in_transaction = False  # whether a transaction is open
        self._fatal_error: Fenced | Unreachable | None = None  # what killed the producer; None: it is alive
        # delivery reports of records whose offset the caller waits for
        self._offset_reports = _OffsetReports()
        self._unserved_count = 0  # records that were queued since the last poll for callbacks
        self._was_aborted = False  # whether a transaction was aborted since the last one that committed
        # what was written in the open transaction, as calls that write it
        # again if it is aborted; None: it is not written again
        self._writes_to_repeat: list[Callable[[], None]] | None = None

    def init(self, timeout_ms: int) -> None:
        """End a predecessor's transaction and fence it; see `acker.kafka.port.Transactions`."""
        deadline = self._client.deadline(timeout_ms)
        self._connect(timeout_ms)
        self._call_until_done(
            "taking over", deadline, lambda: self._producer.init_transactions(deadline.next_wait_s)
        )

    def begin(self) -> None:
        """Open a transaction; its writes are kept, to be repeated, if the one before was aborted."""
        self._begin()
        self._writes_to_repeat = [] if self._was_aborted else None

    def _begin(self) -> None:
        """Open a transaction, without records and reports."""
        self._call_until_done("beginning", self._client.deadline(0), self._producer.begin_transaction)
        self._in_transaction = True
        self._first_refusal = None
        self._offset_reports = _OffsetReports()
        self._written_partitions.clear()

    def send(self, record: Outgoing, on_offset: Callable[[int], None] | None = None) -> None:
        """Queue a record; one that the client refuses is for `commit` to raise.

        `on_offset` is called with the record's offset, when that is known.
        """
        # One check, since this is done for each record; only if it fails,
        # `_require_open` finds out which of the two it was.
        if self._fatal_error is not None or not self._in_transaction:
            self._require_open()
        if self._writes_to_repeat is not None:  # in case this transaction is undone and written again
            self._writes_to_repeat.append(lambda: self.send(record, on_offset))
        on_delivery = self._count_expected_report(on_offset) if on_offset is not None else None
        self._enqueue_or_remember(record, on_delivery)
        self._unserved_count += 1
        if self._unserved_count >= SERVED_EVERY:
            self._unserved_count = 0
            self._run_callbacks(record.topic)

    def send_all(self, records: Iterable[Outgoing]) -> None:
        """Queue records; those that the client refuses are for `commit` to raise."""
        self._require_open()
        if self._writes_to_repeat is not None:
            records = tuple(records)  # read twice: now, and when they are written once more
            self._writes_to_repeat.append(partial(self.send_all, records))
        enqueue = self._enqueue  # as a local, since it is called for each record
        for number, record in enumerate(records, 1):
            try:
                enqueue(record)
            except KafkaException as error:
                self._remember_refusal(error.args[0], writing_text(record), record.topic)
            if not number % SERVED_EVERY:
                self._run_callbacks(record.topic)

    def send_columns(self, columns: OutgoingColumns) -> None:
        """Queue records given by columns; those that are refused are for `commit` to raise."""
        self._require_open()
        if self._writes_to_repeat is not None:
            self._writes_to_repeat.append(partial(self.send_columns, columns))
        self._enqueue_columns(columns)

    def flush(self, timeout_ms: int) -> None:
        """Wait until all records are in the log; see `acker.kafka.port.Transactions`."""
        self._require_open()
        if self._offset_reports.missing_count:  # their callbacks would run with a fatal error's exception set
            raise LogError(f"transactional id {self._id}: flush before records whose offsets are asked for")
        if not self._written_partitions:
            return
        self._do_or_repeat_once(self._flush_queue, self._client.deadline(timeout_ms))
        if self._writes_to_repeat is not None:
            self._writes_to_repeat.append(lambda: self._flush_queue(self._client.deadline(timeout_ms)))

    def _flush_queue(self, deadline: Deadline) -> None:
        """Wait until no record is queued, or the transaction must be aborted.

        It raises as `flush` does.
        """
        doing = f"writing a transaction of {self._id}"
        while True:
            queued_count = 0
            with suppress(KafkaException):  # what killed the producer is raised below
                queued_count = self._producer.flush(min(FLUSH_PIECE_S, deadline.next_wait_s))
            # asked each time: if a partition was refused to the transaction,
            # its records fail, or stay in the queue for ever
            self._call_until_done("writing", deadline, self._require_sound)
            if not queued_count:
                return
            if deadline.is_over:
                raise self._unacknowledged(doing, deadline.timeout_ms, queued_count)
            why = f"{queued_count} records are not acknowledged"
            self._client.outage.record_wait(doing, deadline.elapsed_ms, why)

    def _require_sound(self) -> None:
        """Raise `KafkaException` if the open transaction must be aborted, or the producer is dead.

        librdkafka only says it when another transaction is begun; of a sound
        one it says that one is open.
        """
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            if cause.txn_requires_abort() or cause.fatal():
                raise

    def commit(self, timeout_ms: int) -> None:
        """Commit the open transaction, or abort it if a record of it was refused."""
        self._require_open()
        self._do_or_repeat_once(self._commit, self._client.deadline(timeout_ms))
        self._was_aborted = False

    def _do_or_repeat_once(self, step: Callable[[Deadline], None], deadline: Deadline) -> None:
        """Call `step`, a flush or a commit.

        If the transaction is aborted, write its records again in a new one, and
        call `step` once more. This is possible only if the transaction before
        this one was aborted, too: only then does `begin` keep the writes. Such
        an abort is mostly a leftover of the former one; see the head of this
        module. Raises `Aborted`: the writes are not kept, or the second try was
        aborted as well.
        """
        try:
            step(deadline)
        except RecordRefused:
            raise  # the record would be refused again
        except Aborted:
            # None from now on: they are repeated once
            writes_to_repeat, self._writes_to_repeat = self._writes_to_repeat, None
            if writes_to_repeat is None:
                raise
            self._begin()
            for write in writes_to_repeat:
                write()
            step(deadline)

    def _commit(self, deadline: Deadline) -> None:
        """Commit the open transaction, then call each record's `on_offset` with its offset.

        If a record was refused, abort the transaction instead, and raise why.
        """
        if self._first_refusal is None:
            self._commit_open(deadline)
        else:
            self._abort_refused(self._first_refusal, deadline)  # always raises
        self._in_transaction = False
        self._hand_out_offsets(deadline)

    def _abort_refused(self, refusal: WindhoverError, deadline: Deadline) -> NoReturn:
        """Abort the open transaction, and raise why.

        That is `refusal`, the error of its first refused record.
        """
        try:
            self._abort_open(deadline)
        finally:
            # a missing right is raised as it is, also if the abort fails; any other refusal is
            # raised below, by an error that names the transaction
            if isinstance(refusal, NotAuthorized):
                raise refusal
        text = f"transaction of {self._id} aborted: {refusal}"
        if isinstance(refusal, RecordRefused):  # by the client, before it was sent
            raise RecordRefused(text, refusal.reason)
        raise Aborted(text)

    def _commit_open(self, deadline: Deadline) -> None:
        """Commit the open transaction, of which no record was refused.

        Raises `PartitionStands`: a record is for a partition without a leader.
        """
        try:
            self._call_until_done(
                "committing", deadline, lambda: self._producer.commit_transaction(deadline.next_wait_s)
            )
        except Unreachable as error:
            partitions = self._written_partitions
            leaderless_texts = self._client.leaderless_troubles(self._producer, partitions)
            if not leaderless_texts:
                raise
            doing = f"committing a transaction of {self._id} within {deadline.timeout_ms} ms"
            raise self._client.partition_stands_error(doing, leaderless_texts) from error

    def abort(self, timeout_ms: int) -> None:
        if self._in_transaction:
            self._abort_open(self._client.deadline(timeout_ms))

    def _count_expected_report(self, on_offset: Callable[[int], None]) -> DeliveryCallback:
        """Count the delivery report of a record as missing; return the callback that gets it.

        `on_offset` is called with the record's offset after the commit.
        """
        reports = self._offset_reports  # those of this transaction, also if a report comes in the next one
        reports.missing_count += 1

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            reports.missing_count -= 1
            offset = message.offset()
            if error is None and offset is not None:
                reports.offsets.append((on_offset, offset))

        return on_delivery

    def _hand_out_offsets(self, deadline: Deadline) -> None:
        """Wait for the reports of a transaction that has committed, and hand out the offsets."""
        reports = self._offset_reports
        while reports.missing_count:
            if deadline.is_over:
                doing = f"committing a transaction of {self._id}"
                text = f"{reports.missing_count} reports are missing"
                raise self._client.unreachable_error(doing, deadline.timeout_ms, text)
            self._producer.poll(min(_REPORT_POLL_S, max(deadline.left_s, 0.001)))
        for on_offset, offset in reports.offsets:
            on_offset(offset)

    def _abort_open(self, deadline: Deadline) -> None:
        """Abort the open transaction; raise `Unreachable` if the producer dies of it: end 4 above."""
        self._was_aborted = True
        try:
            self._call_until_done(
                _ABORTING, deadline, lambda: self._producer.abort_transaction(deadline.next_wait_s)
            )
        except LogError as error:
            if _code_of(error) != KafkaError.INVALID_TXN_STATE:
                raise
            self._in_transaction = False
            self._fatal_error = Unreachable(
                f"{error}; what became of it is not known: make a new owner, and look"
            )
            raise self._fatal_error from error
        self._in_transaction = False

    def _call_until_done(self, step_name: str, deadline: Deadline, call: Callable[[], None]) -> None:
        """Call the client until it succeeds, and raise its error as one of ours.

        `step_name` is what is done to the transaction, for messages, as
        "committing". If the transaction cannot go on, it is aborted before
        the error is raised, except if `step_name` is `_ABORTING`.

        The error is the most exact one: where a right to a topic is missing,
        `NotAuthorized` names the topic; where the time of a record was
        refused, it says how far the clocks are apart.
        """
        self._require_alive()
        use = Use(Operation.WRITE, transactional_id=self._id)
        doing = f"{step_name} a transaction of {self._id}"
        try:
            self._client.retry(doing, deadline, lambda: self._call_once(call), self._background, use)
        except Fenced as fenced:
            # the producer is dead: each later call raises this again (`_require_alive`)
            self._fatal_error = fenced
            self._in_transaction = False
            raise
        except NotAuthorized:
            if step_name != _ABORTING:
                with suppress(WindhoverError):  # the missing right is the error to raise
                    self.abort(self._client.operation_timeout_ms)
            self._raise_if_forbidden(doing)
            raise
        except Aborted as aborted:
            try:
                if step_name != _ABORTING:
                    self._abort_open(self._client.deadline())
            finally:
                # perhaps a right is missing: librdkafka does not say it here
                if _code_of(aborted) in _UNEXPLAINED:
                    self._raise_if_forbidden(doing)
            self._raise_if_time_refused(doing, aborted)
            raise

    def _raise_if_time_refused(self, doing: str, aborted: Aborted) -> None:
        """Raise how far the clocks are apart, if the time of a record was refused.

        It is called after the abort.
        """
        error = aborted.__cause__
        if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.INVALID_TIMESTAMP:
            ahead_ms = self._client.ahead_of_broker_ms(self._written_partitions)
            raise self._client.refused_time_error(doing, error.args[0], ahead_ms) from error

    def _raise_if_forbidden(self, doing: str) -> None:
        """Raise `NotAuthorized` with a topic of the transaction that we may not write to.

        Nothing is raised if there is none. `doing` begins the message.
        """
        topics = {partition.topic for partition in self._written_partitions}
        if not topics:
            return
        for name in self._forbidden(Operation.WRITE, topics):
            right = Right(Operation.WRITE, Resource.TOPIC, name)
            bootstrap = self._client.bootstrap
            raise NotAuthorized(missing_right_text(doing, right, bootstrap, "it was refused"))

    def _call_once(self, call: Callable[[], None]) -> None:
        """Call the client once.

        If the call fails because the producer is dead or silent, raise the error
        that killed it, which only the next poll has.
        """
        try:
            call()
        except KafkaException as error:
            if error.args[0].code() in (KafkaError._FATAL, KafkaError._TIMED_OUT):
                # raises the first error that killed the producer, only once; without one, the
                # call's own error is raised
                self._producer.poll(0)
            raise

    def _require_alive(self) -> None:
        """Raise again what killed the producer; nothing, if it lives."""
        if self._fatal_error is not None:
            # a new error of the same class: the old one has the traceback of the first call
            raise type(self._fatal_error)(str(self._fatal_error))

    def _require_open(self) -> None:
        """Raise if the producer is dead, or no transaction is open."""
        self._require_alive()
        if not self._in_transaction:
            raise LogError(f"transactional id {self._id} has no open transaction; call begin first")


def _code_of(error: WindhoverError) -> int | None:
    """Return the client's code of an error of ours; None: the client has not raised it."""
    cause = error.__cause__
    return cause.args[0].code() if isinstance(cause, KafkaException) else None
