"""The port: what the services need of Kafka, and nothing more.

`KafkaLog` (``acker.kafka.cluster``) is the real one; tests and the simulation
have another, in memory, and one contract suite runs on both. No method waits
longer than the deadline it is given or its client is configured with. What
goes wrong surfaces as an error of ``acker.errors``: `Unreachable`,
`OutOfRange`, `Fenced`, `Aborted`, `TopicError`, `LogError`. A question about
several partitions of which some have no answer raises `PartitionStands`, an
`Unreachable` that names them; `Log.bounds` returns the other answers.

"End" of a partition is its high watermark, the offset that the next record
gets; "stable end" is the last stable offset, where a read_committed reader
stops. A reader's position may pass control records and records of aborted
transactions, so it can be compared with an end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, TypeVar

from acker.errors import LogError
from acker.listing import range_text

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Headers = tuple[tuple[str, bytes | None], ...]

NO_EPOCH: Final = -1
"""The leader epoch of a record, an answer or a commit that has none."""

RECORD_OVERHEAD_BYTES: Final = 80
"""What a record costs beside its key, value and headers, in a batch of its
own: 61 bytes of the batch, and at most 4 each for the lengths of record, key
and value, 2 for the number of headers, 3 for the rest."""

HEADER_OVERHEAD_BYTES: Final = 6
"""What a header costs beside its name and value: at most 3 bytes for the length of each."""


class UnreadableName(str):
    """The name of a header of which the bytes are no UTF-8: a placeholder, such as ``\\xff\\xfe``.

    Only a reader makes one, and no client can write such a name again: a copy
    of the record would have another header. Its value is the record's own.
    """

    __slots__ = ()

    @classmethod
    def of(cls, name: bytes | None) -> UnreadableName:
        """Return the placeholder of a name; None: nobody knows its bytes.

        Bytes that are no text are escaped, as ``\\xff``.
        """
        if name is None:
            return cls("\\x??")
        return cls(name.decode("utf-8", "backslashreplace"))


class TopicPartition(NamedTuple):
    """One partition of one topic.

    >>> TopicPartition("sentences", 3).name
    'sentences/3'
    """

    topic: str
    partition: int

    @property
    def name(self) -> str:
        """Its name in messages, ``topic/partition``."""
        return f"{self.topic}/{self.partition}"


class TimestampType(IntEnum):
    """Whose time a record has, by Kafka's numbers, which are those of Spark's connector, too."""

    NONE = -1
    """The record is of a format without times."""
    CREATED = 0
    """The producer's, ``CreateTime``."""
    APPENDED = 1
    """The broker's, ``LogAppendTime``."""


class Record(NamedTuple):
    """A record as it was read.

    `timestamp_ms` is any int64, and -1 where the log has none;
    `timestamp_type` is a `TimestampType`. `leader_epoch` is that of the
    leader that wrote it, or `NO_EPOCH`: a log that was cut and grew again has
    other records at the same offsets, and they have a higher one.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = -1
    timestamp_type: int = TimestampType.CREATED
    leader_epoch: int = -1

    @property
    def place(self) -> str:
        """Where it stands, as messages name it: ``topic/partition@offset``."""
        return f"{self.topic}/{self.partition}@{self.offset}"

    @property
    def unreadable_names(self) -> tuple[UnreadableName, ...]:
        """The placeholders of header names that are no UTF-8, in order; mostly there is none."""
        return tuple([name for name, _ in self.headers if type(name) is UnreadableName])


class Outgoing(NamedTuple):
    """A record to write. The partition is always ours to compute.

    `timestamp_ms` is any int64; None: the present time. So is 0, since
    librdkafka cannot write a time of 0.
    """

    topic: str
    partition: int
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class OutgoingColumns:
    """Records to write into one topic, by columns of one length; no record is an object.

    `keys`, `headers` and `timestamps_ms` may be None: no record has one.
    """

    topic: str
    partitions: Sequence[int]
    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[Headers] | None = None
    timestamps_ms: Sequence[int | None] | None = None

    def __post_init__(self) -> None:
        """Raise `ValueError` if a column is shorter than another: records would be lost."""
        columns = (self.partitions, self.values, self.keys, self.headers, self.timestamps_ms)
        lengths = {len(column) for column in columns if column is not None}
        if len(lengths) > 1:
            raise ValueError(
                f"the columns of records for {self.topic} have several lengths: {sorted(lengths)}"
            )

    def record(self, index: int) -> Outgoing:
        """Return one of the records."""
        return Outgoing(
            self.topic,
            self.partitions[index],
            self.values[index],
            None if self.keys is None else self.keys[index],
            () if self.headers is None else self.headers[index],
            None if self.timestamps_ms is None else self.timestamps_ms[index],
        )

    def records(self) -> Iterator[Outgoing]:
        """Yield the records in their order."""
        return map(self.record, range(len(self.values)))


def unwritable(record: Outgoing) -> LogError:
    """Return the error of a record that no client can write, for the name of one of its headers."""
    where = f"writing {record.topic}/{record.partition}"
    names = ", ".join(name for name, _ in record.headers if type(name) is UnreadableName)
    if not names:
        return LogError(f"{where}: the name of a header has a null byte, where the client would cut it")
    return LogError(
        f"{where}: the name of a header is no UTF-8 ({names:.200}), and no"
        " client can write it; give the placeholder as plain text, and say that it is one"
    )


def record_bytes(record: Record | Outgoing) -> int:
    """Return how many bytes a record takes, uncompressed, as the broker counts them; rounded up."""
    size = RECORD_OVERHEAD_BYTES
    for name, value in record.headers:
        # an ASCII name has as many bytes as characters: mostly none needs to be encoded
        size += len(name) if name.isascii() else len(name.encode())
        size += HEADER_OVERHEAD_BYTES
        if value is not None:
            size += len(value)
    return size + len(record.key or b"") + len(record.value or b"")


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the broker describes it.

    Attributes:
        id: Kafka's id of the topic; another one once the topic was re-created.
        partitions: how many it has.
        replication: how many replicas each of its partitions has.
        settings: by their names; empty if nobody asked for them.
    """

    name: str
    id: str
    partitions: int
    replication: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True, order=True)
class MissingBroker:
    """A broker that should have replicas of partitions, and that the others do not see, or that is
    silent.

    Attributes:
        number: its id (``node.id``).
        replicas: how many partitions of the topics in question have a replica
            on it.
        leaderless: how many of these have no leader now: their other replicas
            are missing, or not in sync.
        is_silent: whether the others still count on it, and it does not
            answer us.
    """

    number: int
    replicas: int
    leaderless: int = 0
    is_silent: bool = False

    def __str__(self) -> str:
        """Return a sentence that names the broker, its replicas, and what to do."""
        state = "is missing, the other brokers do not see it"
        if self.is_silent:
            state = "does not answer"
        partitions_text = f"{self.replicas:,} partitions of ours"
        if self.replicas == 1:
            partitions_text = "1 partition of ours"
        if self.leaderless:
            partitions_text = f"{partitions_text}, and {self.leaderless:,} of them have no leader now"
        has_text = f"it has a copy of {partitions_text}"
        return f"broker {self.number} {state}: {has_text}; start it, or mend its network"


def broker_names(brokers: Sequence[MissingBroker]) -> str:
    """Return the subject and verb of a sentence on missing brokers; empty without any.

    Examples: ``broker 2 is missing``, ``brokers 2, 3 are missing``.
    """
    if not brokers:
        return ""
    numbers = ", ".join(str(broker.number) for broker in brokers)
    if len(brokers) == 1:
        return f"broker {numbers} is missing"
    return f"brokers {numbers} are missing"


class Bound(StrEnum):
    """Which offset of a partition a question is about."""

    START = "starts"
    END = "ends"
    STABLE_END = "stable ends"


@dataclass(frozen=True, slots=True)
class OffsetAnswers:
    """The answers to a question about some partitions: each partition is in `offsets` or in
    `troubles`.

    Attributes:
        offsets: the answers.
        troubles: why there is no answer: words that follow the partition's
            name, "has no leader".
        epochs: of the leader that gave an answer about an end, where it said
            so.
    """

    offsets: Mapping[TopicPartition, int]
    troubles: Mapping[TopicPartition, str]
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)


class ReadTo(NamedTuple):
    """How far a partition was read: up to `offset`.

    In the epoch `leader_epoch` of its leader the log had all records below that offset.
    """

    offset: int
    leader_epoch: int


class GroupMember(NamedTuple):
    """A member of a consumer group.

    Attributes:
        name: its client id and host.
        partitions: the partition numbers that the group has assigned to it.
            None while the group shares its partitions out anew: nobody can
            say then.
        id: what the broker calls it; empty: that is unknown.
    """

    name: str
    partitions: frozenset[int] | None
    id: str = ""


class DamagedRun(NamedTuple):
    """The offsets [start, end) of a partition that cannot be read; a reader stood at `start`.

    `why` is what the client reported, in its words.
    """

    topic: str
    partition: int
    start: int
    end: int
    why: str

    def __str__(self) -> str:
        """Return its name in messages, ``topic/partition@first to last``; of one offset, that."""
        return f"{self.topic}/{self.partition}@{range_text(self.start, self.end)}"


class Assigned(Protocol):
    """Has partitions to read, each at a position."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Replace the assignment: read each partition of `positions` from its offset there.

        A partition that stays assigned at its present position keeps what was
        fetched for it.
        """

    def position(self, partition: TopicPartition) -> int:
        """Return the offset below which all was returned or passed, control records too."""

    def pass_over(self, partition: TopicPartition) -> DamagedRun:
        """Go on where a damaged partition can be read again; return the offsets that are left out.

        These are of the damaged batch at which it stands, and of damaged
        batches directly after it. The call may take some seconds. If the
        partition can be read by now, the run is empty.

        Raises `Unreachable`: the broker does not answer.
        """

    def close(self) -> None:
        """Leave; further calls are errors."""


class Reader(Assigned, Protocol):
    """Reads assigned partitions at one isolation level, fixed when it was made."""

    def poll(self, timeout_ms: int, max_records: int = 1000) -> Sequence[Record]:
        """Return records as soon as there are any, or none when `timeout_ms` is over.

        Raises:
            OutOfRange: a position is not in the log; never a silent jump.
            Damaged: a partition stands at a batch that cannot be read; what
                lies before it was returned. This is raised once, as soon as
                it is so, and then by each call that has nothing else to
                return. The other partitions are read on, this one after
                `pass_over` or an assignment that names it.
        """


class Picked(NamedTuple):
    """What one call of a picker read.

    Attributes:
        records: those that were asked for.
        passed: how many other records it read on its way; `passed_bytes` is their size.
    """

    records: Sequence[Record]
    passed: int
    passed_bytes: int


class Picker(Assigned, Protocol):
    """Reads single committed records of assigned partitions, near each other or far between."""

    def pick(
        self, timeout_ms: int, offsets: Mapping[TopicPartition, Sequence[int]], max_records: int = 1000
    ) -> Picked:
        """Read at most `max_records` records, and return those of them that lie at `offsets`.

        `offsets` are by partition, ascending; of a partition that is missing
        there none is returned. A record that is not returned counts to `max_records`,
        too. Raises as `Reader.poll` does.
        """


class OffsetReader(Assigned, Protocol):
    """Reads which offsets of assigned partitions hold a committed record; the records are thrown
    away.

    It fetches little ahead, so it jumps as often as its user likes.
    """

    def offsets(self, timeout_ms: int, max_records: int = 1000) -> Mapping[TopicPartition, Sequence[int]]:
        """Return the offsets of the next records by partition, ascending, at most `max_records`.

        It waits for the first of them up to `timeout_ms`. An empty mapping:
        there was none. It comes before `timeout_ms` is over if a position
        passed control records at the end of its partition. Raises as
        `Reader.poll` does.
        """

    @property
    def troubled(self) -> Collection[TopicPartition]:
        """The partitions for whose sake `offsets` raises, until the next `assign`."""


class Producer(Protocol):
    """Writes records outside any transaction, idempotently and with acks=all."""

    def send(self, record: Outgoing) -> None:
        """Queue a record; records to one partition keep their order."""

    def flush(self, timeout_ms: int) -> None:
        """Wait until all that was sent is durable.

        Raises:
            Unreachable: it was not within `timeout_ms`.
            LogError: a record was refused.
        """

    def close(self) -> None:
        """Leave; what was not flushed may be lost."""


class Transactions(Protocol):
    """Writes records in transactions under one transactional id.

    After `Aborted` the transaction is gone and `begin` may be called again;
    after `Fenced` nothing may, and after `Unreachable` what became of it is
    for a new owner to find out.
    """

    def init(self, timeout_ms: int) -> None:
        """End the transaction of a predecessor of the same id, and fence it.

        Call it once, first.
        """

    def begin(self) -> None:
        """Open a transaction."""

    def send(self, record: Outgoing, on_offset: Callable[[int], None] | None = None) -> None:
        """Queue a record into the open transaction.

        `on_offset` is called with the record's offset before `commit`
        returns; of one partition in the order of sending. None: nobody wants
        to know it.
        """

    def send_all(self, records: Iterable[Outgoing]) -> None:
        """Queue records whose offsets nobody wants to know; of one partition in the order given."""

    def send_columns(self, columns: OutgoingColumns) -> None:
        """Queue records that are given by columns; as `send_all`, for a fraction of its time."""

    def flush(self, timeout_ms: int) -> None:
        """Wait until the log has what was sent, so that it comes before whatever is sent later.

        Nobody can read it before `commit`. A record that was refused does not
        raise here, but in `commit`. Call it before any record with `on_offset`
        is sent: else it raises `LogError`, since the callbacks of these records
        would run while a fatal error is being raised.

        Raises:
            Aborted, Fenced: as `commit`.
            Unreachable: it took too long. Open new `Transactions` with the same
                id: their `init` ends this transaction.
        """

    def commit(self, timeout_ms: int) -> None:
        """Make the open transaction durable and visible, whole.

        Raises:
            Aborted: it was aborted instead; nothing of it is visible.
            Fenced: another owner of the id was initialised.
            Unreachable: it is not known whether it was committed; `init` a
                new owner, and find out.
        """

    def abort(self, timeout_ms: int) -> None:
        """Undo the open transaction. Without an open one nothing happens."""

    def close(self) -> None:
        """Leave. An open transaction stays open until it is fenced or times out at the broker."""


class UnderWay(Protocol[T_co]):
    """A call that was begun, and waits for the broker beside its caller."""

    def is_over(self, wait_ms: int = 0) -> bool:
        """Return whether the call is over; wait for that, at most so long."""

    def result(self) -> T_co:
        """Wait until the call is over; return what it returned, or raise what it raised."""


class Membership(Protocol):
    """A membership in a consumer group that shares the partitions 0..N-1 of co-partitioned topics.

    Attributes:
        is_out: whether the group has put this member out. Until it has
            another share, it owns what it owned, and others may get it: what
            one of them has fenced is not ours any more.
    """

    is_out: bool

    def poll(self, timeout_ms: int) -> frozenset[int]:
        """Stay a member and return the partition numbers that this one owns now.

        A partition that moves away is missing from the result from the next
        call on; its new owner fences us by the transactional id, so that
        being late here is harmless.
        """

    def commit_soon(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of the group some time later, for tools that show lag.

        The call does not wait for an answer. These offsets do not decide where
        a member goes on: State and `_ack_due` do. An acker also reads those of
        the replay workers, and keeps the verdicts above them.

        At most one request is under way. A later `poll` sends what has changed
        meanwhile, and again what was refused. `close` tries once more to send
        what is left then, and that may be lost. A member that the group has put
        out commits nothing.
        """

    def close(self) -> None:
        """Leave the group at once, so that the partitions move without waiting for a timeout."""


class Log(Protocol):
    """A cluster. Makes readers and writers, and answers questions about topics and groups."""

    def share_deadline(self) -> None:
        """Set one deadline for all questions from now on together.

        It is as much time as one question alone may take. If it is called again, the time
        begins again. It is for commands: if one broker is silent while others answer, each
        question to that broker would wait for a deadline of its own. A question that has no
        answer in time raises `Unreachable`.
        """

    def reader(self, *, committed: bool, patient: bool = False) -> Reader:
        """Make a reader: of `committed` records only, or of all (read_uncommitted).

        A `patient` reader is for partitions that are quiet most of the time:
        its broker answers less often that there is nothing. Records come as
        soon as ever; only the first ones after `Reader.assign`, and a
        position that passes control records at a partition's end, may come
        600 ms later.
        """

    def picker(self) -> Picker:
        """Make a reader of single records."""

    def offset_reader(self) -> OffsetReader:
        """Make a reader of offsets."""

    def producer(self) -> Producer:
        """Make a producer without transactions."""

    def transactions(self, transactional_id: str) -> Transactions:
        """Make a transactional producer."""

    def begin(self, call: Callable[[], T]) -> UnderWay[T]:
        """Begin a call that waits for the broker, beside the caller where the client can.

        It has a deadline, and writers and readers of its own. Until it is over nobody else may use
        or close these.
        """

    def join(self, group: str, topics: Sequence[str], *, pause_ms: int | None = None) -> Membership:
        """Join a consumer group that shares topics of equal size, one partition number to one
        member.

        `pause_ms` is how long this member may go without `Membership.poll`;
        None: as Kafka's client has it.
        """

    def ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the high watermark of each partition, asked of the broker now."""

    def stable_ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the last stable offset of each partition, asked of the broker now."""

    def starts(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the log start offset of each partition, asked of the broker now."""

    def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> Mapping[TopicPartition, int]:
        """Return the first offset at or after a wall time for each partition, or its end when none is."""

    def bounds(self, bound: Bound | int, partitions: Iterable[TopicPartition]) -> OffsetAnswers:
        """Ask as `starts`, `ends`, `stable_ends` do, and name the partitions that have no answer
        now.

        It is for callers that can go on without them: a partition that has no
        leader, or whose leader is silent, holds up the others for some
        seconds at most. With a wall time (ms) as the `bound` it asks as
        `offsets_at` does.

        Raises `Unreachable`: Kafka does not answer at all.
        """

    def intact_to(
        self, read_to_by_partition: Mapping[TopicPartition, ReadTo]
    ) -> Mapping[TopicPartition, int]:
        """Return up to which offset each log still has what was read of it.

        After an unclean leader election a log is shorter than it was, and
        grows again with other records. The leader of today says where the
        records end that were written in the epoch that we read (KIP-320).
        Example: we read up to 900 in epoch 5. If epoch 5 ends at 880 now, the
        records from 880 on are lost, and 880 is returned; else 900. A
        partition without an answer is missing: ask again.

        Raises `Disagreement`: a leader does not know our epoch, since all of
        its epochs are higher or lower. So nobody can say what was lost.
        """

    def cluster_id(self) -> str:
        """Return the id of the cluster; empty where its brokers say none."""

    def topics(self, names: Iterable[str], *, settings: bool = False) -> Mapping[str, TopicInfo]:
        """Return those of the named topics that exist, by name.

        With `settings` their settings are asked for, too; this needs a right
        of its own.
        """

    def missing_brokers(self, names: Iterable[str]) -> Sequence[MissingBroker]:
        """Return the brokers that have replicas of the named topics and that the other brokers do
        not see.

        A broker that the others still see is among them if it did not answer
        `bounds` a moment ago.
        """

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the offsets a group has committed; partitions without one are missing."""

    def committed_epochs(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Return the leader epoch beside each committed offset.

        Partitions without one are missing.
        """

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        metadata: str = "",
        epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> None:
        """Commit next offsets of a group that has no members, each with a short text kept beside
        it.

        `epochs` are those of `ReadTo`, where they are known; Kafka keeps them
        beside the offsets, too.
        """

    def commit_metadata(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, str]:
        """Return the text kept beside each committed offset.

        Partitions without a commit are missing.
        """

    def members(self, group: str) -> Sequence[GroupMember]:
        """Return the members that a consumer group has now, by name.

        Without such a group there are none.
        """

    def delete_before(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, str]:
        """Make the broker delete the records below `offsets`; return troubles as in
        `OffsetAnswers`.

        A partition with a trouble keeps its records.
        """

    def passed_over(self) -> Sequence[DamagedRun]:
        """Return what readers of this view have passed over since it was made, each run once."""

    def log_progress(self, partition: TopicPartition, position: int, end: int) -> None:
        """Record how far a read of a partition to `end` has come.

        Log each minute that it goes on.
        """

    def close(self) -> None:
        """Release what the log itself holds; readers and writers are closed on their own."""


class Resource(StrEnum):
    """What a right is for, as Kafka calls it."""

    TOPIC = "Topic"
    GROUP = "Group"
    TRANSACTIONAL_ID = "TransactionalId"


class Operation(StrEnum):
    """What a right allows, as Kafka calls it."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"


@dataclass(frozen=True, slots=True)
class Right:
    """One operation on one resource."""

    operation: Operation
    resource: Resource
    name: str

    def __str__(self) -> str:
        """Return its name in messages, ``Read on Topic _ack_init``."""
        return f"{self.operation} on {self.resource} {self.name}"
