"""Transactions of Kafka under one transactional id.

librdkafka knows four ends of a transaction that did not commit: one that must be aborted (`Aborted`,
after it was), one whose producer is dead because another owner of the id was initialised (`Fenced`), one
whose outcome is unknown when the deadline is over (`Unreachable`), and one whose producer dies of its abort
(`Unreachable` as well: a new owner of the id ends what there is, and looks). The last happens where the abort
overtakes the request that would have begun the transaction at the coordinator, which then knows of none
(librdkafka's issue 4849). A refused record makes the transaction one of the first kind; but that a right is
missing is reported as it is, for no other attempt would find it.

What librdkafka had put into a request, but not sent, when a transaction was undone it drops, and counts its
sequence numbers on: the broker misses them in the next transaction, and refuses it. With one request under
way at each broker that is what a refused record leaves behind, as a rule. So what goes into the transaction
after one that was undone is kept until its end, and written once more if it is aborted: by then the epoch is
a new one, whose numbers begin at zero.

No group's offsets go with a transaction: `send_offsets_to_transaction` waits without end, whatever its
timeout, when the group's coordinator goes away gracefully (librdkafka's issues 5456 and 5511). What a
transaction writes says itself how far its reader has come, so the producer's epoch, which the coordinator
checks when a partition is added and when the transaction ends, is all the fencing there must be.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

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
from acker.kafka.client import Deadline, KafkaClient, Use, unauthorized
from acker.kafka.port import Operation, Outgoing, Resource, Right
from acker.kafka.writer import KafkaWriter, doing

_UNEXPLAINED = frozenset({KafkaError._INCONSISTENT, KafkaError._STATE})
"""What librdkafka says when a record was refused, or had been before the call; not why."""

Forbidden = Callable[[Operation, Collection[str]], Collection[str]]
"""Finds, among topics, those that we may not use so."""

_REPORT_POLL_S = 0.05

FLUSH_PIECE_S: Final = 0.2
"""A flush looks so often whether its transaction is still open."""

SERVED_EVERY: Final = 1_000
"""Records between two polls for callbacks: a poll costs more than queueing a record, since others may run."""


@dataclass(slots=True)
class _Reports:
    """Delivery reports of one transaction: how many are missing, and who gets what if it commits."""

    missing: int = 0
    found: list[tuple[Callable[[int], None], int]] = field(default_factory=list)


class KafkaTransactions(KafkaWriter):
    """Writes in transactions; implements `acker.kafka.port.Transactions`."""

    def __init__(self, client: KafkaClient, transactional_id: str, forbidden: Forbidden) -> None:
        super().__init__(client, {"transactional.id": transactional_id})
        self._id = transactional_id
        self._forbidden = forbidden
        self._in_transaction = False
        self._dead: Fenced | Unreachable | None = None
        self._reports = _Reports()
        self._unserved = 0
        self._was_undone = False
        self._kept: list[Callable[[], None]] | None = None

    def init(self, timeout_ms: int) -> None:
        deadline = self._client.deadline(timeout_ms)
        self._connect(timeout_ms)
        self._call("taking over", deadline, lambda: self._producer.init_transactions(deadline.piece_s))

    def begin(self) -> None:
        """Open a transaction; what it writes is kept if the one before was undone."""
        self._begin()
        self._kept = [] if self._was_undone else None

    def _begin(self) -> None:
        self._call("beginning", self._client.deadline(0), self._producer.begin_transaction)
        self._in_transaction = True
        self._refused = None
        self._reports = _Reports()
        self._written.clear()

    def send(self, record: Outgoing, placed: Callable[[int], None] | None = None) -> None:
        if self._dead is not None or not self._in_transaction:
            self._require_open()
        if self._kept is not None:
            self._kept.append(lambda: self.send(record, placed))
        try:
            self._produce(record, self._report(placed) if placed is not None else None)
        except KafkaException as error:
            self._refuse(error.args[0], doing(record), record.topic)
        self._unserved += 1
        if self._unserved >= SERVED_EVERY:
            self._unserved = 0
            self._serve(record.topic)

    def send_all(self, records: Iterable[Outgoing]) -> None:
        self._require_open()
        if self._kept is not None:
            records = tuple(records)
            self._kept.append(partial(self.send_all, records))
        produce = self._produce
        for number, record in enumerate(records, 1):
            try:
                produce(record)
            except KafkaException as error:
                self._refuse(error.args[0], doing(record), record.topic)
            if not number % SERVED_EVERY:
                self._serve(record.topic)

    def flush(self, timeout_ms: int) -> None:
        self._require_open()
        if self._reports.missing:  # their callbacks would run with a fatal error's exception already set
            raise LogError(f"transactional id {self._id}: flush before records whose offsets are asked for")
        if not self._written:
            return
        self._once_more(self._flush, self._client.deadline(timeout_ms))
        if self._kept is not None:
            self._kept.append(lambda: self._flush(self._client.deadline(timeout_ms)))

    def _flush(self, deadline: Deadline) -> None:
        doing = f"writing a transaction of {self._id}"
        while True:
            left = 0
            with suppress(KafkaException):  # what killed the producer is raised below
                left = self._producer.flush(min(FLUSH_PIECE_S, deadline.piece_s))
            # where a partition was refused to the transaction, its records fail or stay in the queue
            self._call("writing", deadline, self._require_sound)
            if not left:
                return
            text = f"{left} records are not acknowledged"
            if deadline.is_over:
                raise self._unacknowledged(doing, deadline.timeout_ms, left)
            self._client.outage.waits(doing, deadline.past_ms, text)

    def _require_sound(self) -> None:
        """Raise what has happened to the open transaction: librdkafka tells it to who would begin another."""
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            if cause.txn_requires_abort() or cause.fatal():
                raise

    def commit(self, timeout_ms: int) -> None:
        """Commit the open transaction, or abort it if a record of it was refused."""
        self._require_open()
        self._once_more(self._commit, self._client.deadline(timeout_ms))
        self._was_undone = False

    def _once_more(self, end: Callable[[Deadline], None], deadline: Deadline) -> None:
        """Do the last of what is done to a transaction; if it is aborted, write what was kept once more."""
        try:
            end(deadline)
        except RecordRefused:
            raise  # for its own sake, so it would be refused again
        except Aborted:
            kept, self._kept = self._kept, None
            if kept is None:
                raise
            self._begin()
            for write in kept:
                write()
            end(deadline)

    def _commit(self, deadline: Deadline) -> None:
        if self._refused is None:
            self._commit_sound(deadline)
        else:
            try:
                self._undo(deadline)
            finally:
                if isinstance(self._refused, NotAuthorized):  # which the abort may not hide
                    raise self._refused
            text = f"transaction of {self._id} aborted: {self._refused}"
            if isinstance(self._refused, RecordRefused):  # by the client, before it was sent
                raise RecordRefused(text, self._refused.reason)
            raise Aborted(text)
        self._in_transaction = False
        self._await_reports(deadline)

    def _commit_sound(self, deadline: Deadline) -> None:
        """Commit; `PartitionStands` where a record is for a partition without a leader."""
        try:
            self._call("committing", deadline, lambda: self._producer.commit_transaction(deadline.piece_s))
        except Unreachable as error:
            leaderless = self._client.leaderless(self._producer, self._written)
            if not leaderless:
                raise
            doing = f"committing a transaction of {self._id} within {deadline.timeout_ms} ms"
            raise self._client.stands(doing, leaderless) from error

    def abort(self, timeout_ms: int) -> None:
        if self._in_transaction:
            self._undo(self._client.deadline(timeout_ms))

    def _report(self, placed: Callable[[int], None]) -> Callable[[KafkaError | None, Message], None]:
        reports = self._reports
        reports.missing += 1

        def delivered(error: KafkaError | None, message: Message) -> None:
            reports.missing -= 1
            offset = message.offset()
            if error is None and offset is not None:
                reports.found.append((placed, offset))

        return delivered

    def _await_reports(self, deadline: Deadline) -> None:
        reports = self._reports
        while reports.missing:
            if deadline.is_over:
                what, text = (
                    f"committing a transaction of {self._id}",
                    f"{reports.missing} reports are missing",
                )
                raise self._client.unreachable(what, deadline.timeout_ms, text)
            self._producer.poll(min(_REPORT_POLL_S, max(deadline.left_s, 0.001)))
        for placed, offset in reports.found:
            placed(offset)

    def _undo(self, deadline: Deadline) -> None:
        self._was_undone = True
        try:
            self._call("aborting", deadline, lambda: self._producer.abort_transaction(deadline.piece_s))
        except LogError as error:
            if _code_of(error) != KafkaError.INVALID_TXN_STATE:
                raise
            self._in_transaction = False
            self._dead = Unreachable(f"{error}; what became of it is not known: make a new owner, and look")
            raise self._dead from error
        self._in_transaction = False

    def _call(self, what: str, deadline: Deadline, call: Callable[[], None]) -> None:
        self._require_alive()
        use = Use(Operation.WRITE, transactional_id=self._id)
        doing = f"{what} a transaction of {self._id}"
        try:
            self._client.retry(doing, deadline, lambda: self._fatal(call), self._background, use)
        except Fenced as fenced:
            self._dead = fenced
            self._in_transaction = False
            raise
        except NotAuthorized:
            if what != "aborting":
                with suppress(WindhoverError):  # the missing right is the one to tell
                    self.abort(self._client.operation_timeout_ms)
            self._raise_forbidden(doing)
            raise
        except Aborted as aborted:
            try:
                if what != "aborting":
                    self._undo(self._client.deadline())
            finally:
                if _code_of(aborted) in _UNEXPLAINED:
                    self._raise_forbidden(doing)
            self._raise_refused_time(doing, aborted)
            raise

    def _raise_refused_time(self, doing: str, aborted: Aborted) -> None:
        """Raise how far the clocks are apart, if the time of a record is refused; the transaction is over."""
        error = aborted.__cause__
        if isinstance(error, KafkaException) and error.args[0].code() == KafkaError.INVALID_TIMESTAMP:
            ahead_ms = self._client.ahead_of_broker_ms(self._written)
            raise self._client.refused_time(doing, error.args[0], ahead_ms) from error

    def _raise_forbidden(self, doing: str) -> None:
        """Name the topic that we may not use as the transaction does, if there is one."""
        topics = {place.topic for place in self._written}
        for name in self._forbidden(Operation.WRITE, topics) if topics else ():
            right = Right(Operation.WRITE, Resource.TOPIC, name)
            raise NotAuthorized(unauthorized(doing, right, self._client.bootstrap, "it was refused"))

    def _fatal(self, call: Callable[[], None]) -> None:
        """Call, and put what killed or silenced the producer in the place of the news that it is so."""
        try:
            call()
        except KafkaException as error:
            if error.args[0].code() in (KafkaError._FATAL, KafkaError._TIMED_OUT):
                self._producer.poll(0)  # raises what killed it, the first time
            raise

    def _require_alive(self) -> None:
        if self._dead is not None:
            raise type(self._dead)(str(self._dead))

    def _require_open(self) -> None:
        self._require_alive()
        if not self._in_transaction:
            raise LogError(f"transactional id {self._id} has no open transaction; call begin first")


def _code_of(error: WindhoverError) -> int | None:
    cause = error.__cause__
    return cause.args[0].code() if isinstance(cause, KafkaException) else None
