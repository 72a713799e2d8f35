"""Readers, writers and memberships of the in-memory log: what a client keeps for itself.

A client that crashes is one that is dropped without `close`: what it had queued is gone, its transaction
stays open until it is fenced, its place in a group stays until `MemoryMembership.vanish`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from acker.errors import (
    Aborted,
    Damaged,
    Fenced,
    LogError,
    OutOfRange,
    RecordRefused,
    TopicError,
    Unreachable,
    WindhoverError,
)
from acker.kafka.port import (
    DamagedRun,
    Outgoing,
    OutgoingColumns,
    Picked,
    Reader,
    Record,
    TopicPartition,
)
from tests.support.memory.broker import MemoryBroker, TransactionState
from tests.support.memory.partition import DAMAGE_TEXT

T = TypeVar("T")


class Faults(Protocol):
    """Decides which calls to the cluster go wrong, by raising an error of ``acker.errors``.

    Operations: ``poll``, ``flush``, ``init``, ``commit``, ``abort``, ``membership``, ``ends``,
    ``stable_ends``, ``starts``, ``offsets_at``, ``topics``, ``committed``, ``commit_offsets``,
    ``commit_soon``, ``delete_before``.
    """

    def before(self, operation: str) -> None:
        """Raise to let the call fail without effect; `Aborted` before ``commit`` aborts for real."""

    def after(self, operation: str) -> None:
        """Raise so that the call fails although it took effect, as when an answer is lost."""


class NoFaults:
    """Lets everything succeed."""

    def before(self, operation: str) -> None:
        """Do nothing."""

    def after(self, operation: str) -> None:
        """Do nothing."""


class Failing(NoFaults):
    """Lets calls of an operation fail while it is on."""

    def __init__(self, operation: str, error: Exception) -> None:
        self._operation, self._error = operation, error
        self.is_on = False

    def before(self, operation: str) -> None:
        """Raise, while it is on."""
        if self.is_on and operation == self._operation:
            raise self._error


class FailingByPlan(NoFaults):
    """Lets an operation fail by a plan: True is a failure; behind the plan it goes well."""

    def __init__(self, operation: str, error: Exception, plan: Iterable[bool]) -> None:
        self._operation, self._error = operation, error
        self._plan = iter(plan)
        self.failures = 0

    def before(self, operation: str) -> None:
        """Raise where the plan says so."""
        if operation == self._operation and next(self._plan, False):
            self.failures += 1
            raise self._error


class MemoryCall(Generic[T]):
    """A call that was begun; implements `acker.kafka.port.UnderWay`.

    It is made, whole, when it is begun, or at `is_over` where that lets it be made.
    """

    def __init__(self, call: Callable[[], T], may_be_made: Callable[[], bool] = lambda: True) -> None:
        """Make the call, if it may be made now."""
        self._call = call
        self._may_be_made = may_be_made
        self._results: list[T] = []
        self._error: WindhoverError | None = None
        self.is_over()

    def is_over(self, wait_ms: int = 0) -> bool:
        """Make the call if it may be made now; return whether it was made."""
        if not self._is_made and self._may_be_made():
            self._make()
        return self._is_made

    def result(self) -> T:
        """Make the call, if it was not; return its result, or raise its error."""
        if not self._is_made:
            self._make()
        if self._error is not None:
            raise self._error
        return self._results[0]

    @property
    def _is_made(self) -> bool:
        return bool(self._results) or self._error is not None

    def _make(self) -> None:
        try:
            self._results.append(self._call())
        except WindhoverError as error:
            self._error = error


class MemoryReader:
    """Reads assigned partitions in turn; implements `acker.kafka.port.Reader`."""

    def __init__(
        self,
        broker: MemoryBroker,
        faults: Faults,
        *,
        committed: bool,
        open_readers: set[Reader] | None = None,
        passed_over: dict[DamagedRun, None] | None = None,
    ) -> None:
        """Begin without partitions; it is among the `open_readers` until it is closed.

        `passed_over` gets what it leaves out.
        """
        self._passed_over = {} if passed_over is None else passed_over
        self._broker = broker
        self._faults = faults
        self._committed = committed
        self._open_readers = set() if open_readers is None else open_readers
        self._open_readers.add(self)
        self._positions: dict[TopicPartition, int] = {}
        self._told: dict[TopicPartition, int] = {}  # where partitions stand whose damage was raised
        self._turn = 0

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Replace the assignment."""
        self._positions = dict(positions)
        self._told = {}
        self._turn = 0

    def poll(self, timeout_ms: int, max_records: int = 1000) -> Sequence[Record]:
        """Return what is there now, at most `max_records`; it never waits."""
        self._faults.before("poll")
        positions = self._positions
        partitions = [self._broker.partition(name) for name in positions]
        for partition in partitions:
            at = positions[partition.name]
            if not self._broker.is_readable(partition.name):
                continue
            if not partition.start <= at <= partition.end:
                raise OutOfRange(
                    f"position {at} of {partition.name.topic}/{partition.name.partition} is not in its log,"
                    f" which holds {partition.start} to {partition.end}"
                )
        stopped = [part.name for part in partitions if part.damage_at(positions[part.name])]
        for name in stopped:
            if self._told.get(name) != positions[name]:
                self._told[name] = positions[name]
                raise self._damaged(name)
        found: list[Record] = []
        for partition in partitions[self._turn :] + partitions[: self._turn]:
            at = positions[partition.name]
            if at == partition.end or not self._broker.is_readable(partition.name):
                continue
            records, positions[partition.name] = partition.read(
                at, max_records - len(found), committed=self._committed
            )
            found += records
        self._turn = (self._turn + 1) % len(partitions) if partitions else 0
        self._faults.after("poll")
        if stopped and not found:
            raise self._damaged(stopped[0])
        return found

    def pass_over(self, partition: TopicPartition) -> DamagedRun:
        """Go on behind the damage at which a partition stands."""
        self._faults.before("poll")
        start = end = self.position(partition)
        why = self._why_damaged(partition)
        while (damage := self._broker.partition(partition).damage_at(end)) is not None:
            end = damage[1]
        self._positions[partition] = end
        run = DamagedRun(*partition, start, end, why)
        self._passed_over[run] = None
        return run

    def _damaged(self, name: TopicPartition) -> Damaged:
        return Damaged(*name, self._positions[name], self._why_damaged(name))

    def _why_damaged(self, name: TopicPartition) -> str:
        damage = self._broker.partition(name).damage_at(self._positions[name])
        return DAMAGE_TEXT if damage is None else damage[2]

    def position(self, partition: TopicPartition) -> int:
        """Return the offset up to which everything was returned, control records passed."""
        try:
            return self._positions[partition]
        except KeyError:
            raise LogError(f"{partition} is not assigned to this reader") from None

    def close(self) -> None:
        """Forget the assignment."""
        self._positions = {}
        self._open_readers.discard(self)


class MemoryPicker:
    """Reads as a reader, and leaves out records that nobody needs; implements `acker.kafka.port.Picker`."""

    def __init__(self, reader: Reader) -> None:
        """Read with a reader of what is committed."""
        self._reader = reader

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Replace the assignment."""
        self._reader.assign(positions)

    def pick(
        self, timeout_ms: int, offsets: Mapping[TopicPartition, Sequence[int]], max_records: int = 1000
    ) -> Picked:
        """Read what is there now."""
        kept, passed = list[Record](), list[Record]()
        for offsets_of_partition in offsets.values():
            # Kafka's picker finds them by their order
            assert list(offsets_of_partition) == sorted(set(offsets_of_partition))
        offsets_to_keep = {place: frozenset(of_place) for place, of_place in offsets.items()}
        for record in self._reader.poll(timeout_ms, max_records):
            place = TopicPartition(record.topic, record.partition)
            is_kept = record.offset in offsets_to_keep.get(place, ())
            (kept if is_kept else passed).append(record)
        return Picked(kept, len(passed), sum(len(record.value or b"") for record in passed))

    def position(self, partition: TopicPartition) -> int:
        """Return the offset up to which everything was passed or returned."""
        return self._reader.position(partition)

    def pass_over(self, partition: TopicPartition) -> DamagedRun:
        """Go on behind the damage at which a partition stands."""
        return self._reader.pass_over(partition)

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()


class MemoryOffsetReader(MemoryReader):
    """Reads as a reader, and keeps the offsets alone; implements `acker.kafka.port.OffsetReader`."""

    def offsets(self, timeout_ms: int, max_records: int = 1000) -> Mapping[TopicPartition, Sequence[int]]:
        """Return the offsets of what is there now."""
        found: dict[TopicPartition, list[int]] = {}
        for record in self.poll(timeout_ms, max_records):
            found.setdefault(TopicPartition(record.topic, record.partition), []).append(record.offset)
        return found

    @property
    def troubled(self) -> Collection[TopicPartition]:
        """Return the partitions whose position is not in the log."""
        partitions = {place: self._broker.partition(place) for place in self._positions}
        return [
            place
            for place, partition in partitions.items()
            if not partition.start <= self._positions[place] <= partition.end
        ]


def as_sent(record: Outgoing) -> Outgoing:
    """Return a record as librdkafka sends it: it takes a time of 0 for none."""
    return record._replace(timestamp_ms=None) if record.timestamp_ms == 0 else record


class MemoryProducer:
    """Writes at `flush` what was sent; implements `acker.kafka.port.Producer`.

    Nothing is in the log before `flush`: code that forgets to flush must fail a test.
    """

    def __init__(self, broker: MemoryBroker, faults: Faults) -> None:
        """Begin with nothing queued."""
        self._broker = broker
        self._faults = faults
        self._queue: list[Outgoing] = []

    def send(self, record: Outgoing) -> None:
        """Queue a record."""
        self._queue.append(record)

    def flush(self, timeout_ms: int) -> None:
        """Append everything sent; a refused record is dropped and raised, and delays no other.

        What is for a partition without a leader goes on waiting.
        """
        self._faults.before("flush")
        queue, self._queue = self._queue, []
        refused: LogError | TopicError | None = None
        for record in queue:
            if self._broker.trouble_of(TopicPartition(record.topic, record.partition)):
                self._queue.append(record)
                continue
            try:
                self._broker.check(record).append(as_sent(record), self._broker.now_ms)
            except (LogError, TopicError) as error:
                refused = refused or error
        if refused is not None:
            raise refused
        self._broker.require_leaders(TopicPartition(*record[:2]) for record in self._queue)
        self._faults.after("flush")

    def close(self) -> None:
        """Lose what was not flushed."""
        self._queue = []


class MemoryTransactions:
    """Writes in transactions; implements `acker.kafka.port.Transactions`.

    Records are in the log as soon as they are sent, so they hold the stable end back, as in Kafka. A
    fenced owner learns it where the broker's answer is awaited: in `commit` and `abort`.
    """

    def __init__(self, broker: MemoryBroker, faults: Faults, transactional_id: str) -> None:
        """Name the transactional id; nothing happens at the cluster before `init`."""
        self._broker = broker
        self._faults = faults
        self._id = transactional_id
        self._epoch = 0
        self._in_transaction = False
        self._is_fenced = False
        self._is_closed = False
        self._refused: LogError | TopicError | None = None
        self._stuck: set[TopicPartition] = set()

    def init(self, timeout_ms: int) -> None:
        """Fence the predecessor and abort its transaction."""
        self._faults.before("init")
        if self._epoch:
            raise LogError(f"transactional id {self._id} was initialised before; make a new owner")
        self._epoch = self._broker.init_transactions(self._id)
        self._faults.after("init")

    def begin(self) -> None:
        """Open a transaction."""
        self._require(begun=False)
        self._in_transaction = True
        self._refused = None
        self._stuck = set()

    def send(self, record: Outgoing, on_offset: Callable[[int], None] | None = None) -> None:
        """Append a record to the open transaction, and report its offset."""
        self._require(begun=True)
        try:
            state = self._broker.transaction(self._id, self._epoch)
            partition = self._broker.check(record)
        except Fenced:
            return  # as a broker's refusal that has not arrived yet; `commit` will raise it
        except (LogError, TopicError) as error:
            self._refused = self._refused or error
            return
        if self._broker.trouble_of(partition.name):
            self._stuck.add(partition.name)
            return
        state.touched[partition.name] = partition
        offset = partition.append(as_sent(record), self._broker.now_ms, self._id)
        if on_offset is not None:
            on_offset(offset)

    def send_all(self, records: Iterable[Outgoing]) -> None:
        """Append records into the open transaction, one after the other."""
        for record in records:
            self.send(record)

    def send_columns(self, columns: OutgoingColumns) -> None:
        """Append records into the open transaction, one after the other."""
        self.send_all(columns.records())

    def flush(self, timeout_ms: int) -> None:
        """Do nothing: what was sent is in the log, and what can go wrong goes wrong in `commit`.

        But what is for a partition without a leader is not in the log, and the transaction is in doubt.
        """
        self._require(begun=True)
        self._broker.require_leaders(self._stuck)

    def commit(self, timeout_ms: int) -> None:
        """Commit the open transaction, or abort it if a record of it was refused."""
        self._require(begun=True)
        try:
            self._faults.before("commit")
            if self._refused is not None:
                text = f"transaction of {self._id} aborted: {self._refused}"
                if isinstance(self._refused, RecordRefused):
                    raise RecordRefused(text, self._refused.reason)
                raise Aborted(text)
            self._broker.require_leaders(self._stuck)
        except Aborted:
            self._end(committed=False)
            raise
        self._end(committed=True)
        self._faults.after("commit")

    def abort(self, timeout_ms: int) -> None:
        """Undo the open transaction, if there is one."""
        if not self._in_transaction:
            return
        self._faults.before("abort")
        self._end(committed=False)
        self._faults.after("abort")

    def close(self) -> None:
        """Leave; an open transaction stays open."""
        self._is_closed = True

    def _owned(self) -> TransactionState:
        try:
            return self._broker.transaction(self._id, self._epoch)
        except Fenced:
            self._is_fenced = True
            raise

    def _end(self, *, committed: bool) -> None:
        self._owned()
        self._broker.end_transaction(self._id, committed=committed)
        self._in_transaction = False

    def _require(self, *, begun: bool) -> None:
        if self._is_fenced:
            raise Fenced(f"transactional id {self._id} has another owner; give its partition up")
        if self._is_closed:
            raise LogError(f"the writer of transactional id {self._id} is closed")
        if not self._epoch:
            raise LogError(f"transactional id {self._id} was not initialised; call init first")
        if self._in_transaction != begun:
            raise LogError(f"transactional id {self._id} has {'no' if begun else 'an'} open transaction")


class MemoryMembership:
    """A place in a group; implements `acker.kafka.port.Membership`."""

    def __init__(self, broker: MemoryBroker, faults: Faults, group: str, topics: tuple[str, ...]) -> None:
        """Name the group; the place is taken by the first `poll`."""
        self._broker = broker
        self._faults = faults
        self._group = group
        self._topics = topics
        self.is_out = False
        self._member: int | None = None
        self._wanted: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}

    def poll(self, timeout_ms: int) -> frozenset[int]:
        """Return the partition numbers owned now; one that had vanished joins again."""
        self._faults.before("membership")
        owned = None if self._member is None else self._broker.owned(self._group, self._member)
        if owned is None:
            self._member = self._broker.join(self._group, self._topics)
            owned = self._broker.owned(self._group, self._member)
        self._send()
        self._faults.after("membership")
        return owned or frozenset()

    def commit_soon(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit, now or at a later poll, what the group lets this member commit."""
        self._wanted.update(offsets)
        self._send()

    def vanish(self) -> None:
        """Let the group's session timeout pass: the others get the partitions, and this member does not
        notice.
        """
        if self._member is not None:
            self._broker.leave(self._group, self._member)

    def close(self) -> None:
        """Leave the group at once."""
        self._send()
        self.vanish()
        self._member = None

    def _send(self) -> None:
        owned = None if self._member is None else self._broker.owned(self._group, self._member)
        self._wanted = {p: offset for p, offset in self._wanted.items() if p.partition in (owned or ())}
        self._committed = {p: offset for p, offset in self._committed.items() if p in self._wanted}
        due = {p: offset for p, offset in self._wanted.items() if self._committed.get(p) != offset}
        if not due or self._member is None:
            return
        try:
            self._faults.before("commit_soon")
            self._broker.commit_of_member(self._group, self._member, due)
            self._committed |= due
            self._faults.after("commit_soon")
        except (LogError, Unreachable):
            return  # as an answer that does not come: the next poll sends it again
