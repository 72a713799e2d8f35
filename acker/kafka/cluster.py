"""The real Kafka: the port of ``acker.kafka.port`` over confluent-kafka.

`KafkaLog` asks its questions through one admin client and makes readers and
writers; each of those is a client of its own, used by one thread at a time.
Ends, starts and times cost one request for all partitions. librdkafka sends
it to the leader of each partition, and gets an answer or an error for each:

====================  ================================================================================
error                 what it means
====================  ================================================================================
LEADER_NOT_AVAILABLE  the partition has no leader, as another broker says
no offset, _TIMED_OUT its leader does not answer
_NOENT for all        none has a leader, or there is no such partition: the metadata tell which
====================  ================================================================================

`KafkaLog.bounds` returns the answers that there are; `ends` and the like wait
for all of them.

A consumer of the group, which never joins, is asked what the group has
committed. An admin client would end the process (SIGSEGV, librdkafka's issue
5315) at a second such question, if the group's coordinator has moved
meanwhile, as it does at each preferred-leader election. Commits for a group
without members go through the admin client: it survives such a move, but goes
on asking the former coordinator, so it is given up then.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import accumulate, repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import confluent_kafka
from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but the package has no __all__
    AclOperation,
    AdminClient,
    ConfigResource,
    ConsumerGroupDescription,
    OffsetSpec,
)

from acker.errors import ConfigError, OutOfRange
from acker.kafka.client import (
    LEADERS_S,
    LOGGED,
    SILENCE,
    SILENT,
    TRANSIENT,
    UNAUTHORIZED,
    Background,
    Clock,
    KafkaClient,
    Refused,
    Troubled,
    Use,
    by_topic,
    trouble_text,
)
from acker.kafka.epochs import intact_to
from acker.kafka.group import KafkaMembership
from acker.kafka.port import (
    NO_EPOCH,
    Bound,
    DamagedRun,
    GroupMember,
    Membership,
    MissingBroker,
    OffsetAnswers,
    OffsetReader,
    Operation,
    Picker,
    Producer,
    Reader,
    ReadTo,
    TopicInfo,
    TopicPartition,
    Transactions,
    UnderWay,
)
from acker.kafka.reader import (
    DEFAULTS,
    FORCED,
    ONE_BATCH,
    PATIENT,
    KafkaOffsetReader,
    KafkaPicker,
    KafkaReader,
    client_partition,
)
from acker.kafka.transactions import KafkaTransactions
from acker.kafka.writer import KafkaProducer
from acker.waits import LongWait

_log = logging.getLogger(__name__)

PROGRESS_PAUSE_MS: Final = 30_000
"""A read that goes on after so long a pause counts as another read."""

OPERATION_TIMEOUT_MS: Final = 30_000
"""How long a call without a timeout of its own may take; an election or a restart fits into it."""

FIRST_PATIENCE_MS: Final = 3_000
"""How long a first try waits for its answer; each further one twice as
long, up to `LAST_PATIENCE_MS`. A request for a leader or coordinator whose
broker died waits as long as it may, though another request would be answered
at once. Its client must then be given up: a request that timed out ends the
process, by an assertion of librdkafka, when that client meets its broker
again."""

LAST_PATIENCE_MS: Final = 5_000
"""How long a try waits at most. So an answer comes at most so much later than a new leader."""

if TYPE_CHECKING:
    from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but the package has no __all__
        ClusterMetadata,
        PartitionMetadata,
    )

T = TypeVar("T")

_STALE_LEADER: Final = frozenset(
    {KafkaError.FENCED_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_LEADER_EPOCH}
)
"""Errors of a broker that was asked as the leader, and is not, or not in the epoch that we know."""

_STALE_CLIENT: Final = frozenset({KafkaError._TIMED_OUT, KafkaError.NOT_COORDINATOR})
"""After these a question needs a new client: this one goes on asking where it has asked before."""

SILENT_AGAIN_S: Final = 6.0
"""After so long `KafkaLog.bounds` asks a silent leader again: each time it
holds up the others for `FIRST_PATIENCE_MS`. Another leader of the same
partition is asked as soon as the metadata name it.
"""

LEADERS_EVERY_S: Final = 0.5
"""While a leader is silent, `KafkaLog.bounds` asks so often whether the
partition has another one. A broker that has died is without its partitions
after 9 s (`broker.session.timeout.ms`).
"""

LOST_S: Final = 30.0
"""For so long after the connection to a broker was lost `KafkaLog.bounds`
asks who leads the partitions before it asks their leaders: librdkafka
remembers leaders for a quarter of an hour, and would wait for the dead one.
"""

LATE_SHARE: Final = 0.9
"""An answer that takes this part of its time, or more, has waited for a silent leader."""

TEXT_S: Final = 10.0
"""The trouble text of a partition, which names its leader, is asked for anew so often."""

LEADERLESS_S: Final = 1.0
"""A client that finds no leader is replaced at this age: it may go on finding
none when there is one. Not sooner, since there may be none for ten seconds,
and each try takes some ms.
"""

_COMMIT_ASKER: Mapping[str, Any] = MappingProxyType({**FORCED, **SILENT, "isolation.level": "read_committed"})
"""Settings of the consumer that asks for offsets. With this isolation
librdkafka asks for stable ones: what was committed in a transaction counts as
soon as the commit was answered. Nobody polls it, so no line of its log may
queue up."""

_LATEST: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the package's stubs
_EARLIEST: Final[OffsetSpec] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # the package's stubs
_SPEC_BY_BOUND: Mapping[Bound, OffsetSpec] = MappingProxyType(
    {Bound.START: _EARLIEST, Bound.END: _LATEST, Bound.STABLE_END: _LATEST}
)
"""Of both ends, which one is returned is for the isolation level to say."""

_PASSING_ERRORS: Final = TRANSIENT | SILENCE | {KafkaError._NOENT}
"""Errors of one partition, in an answer about several, that may be gone at a next try."""


class _Answer(NamedTuple, Generic[T]):
    """What one request got: by partition a value, or an error that may be gone at a next try."""

    values: dict[TopicPartition, T]
    errors: dict[TopicPartition, KafkaError]

    @property
    def is_silence(self) -> bool:
        """Whether nobody answered at all."""
        return not self.values and all(error.code() in SILENCE for error in self.errors.values())


class _OffsetsAnswer(NamedTuple):
    """The answer about some offsets.

    `epochs` has by partition the epoch of the leader that gave it, if it said so.
    """

    answer: _Answer[int]
    epochs: dict[TopicPartition, int]


class _Silence(NamedTuple):
    """A leader that did not answer.

    Attributes:
        error: what came in place of its answer.
        until_s: until when it is not asked (`Clock`).
        leader: the id of its broker. -1: the metadata named none; None: no
            broker gave the metadata.
    """

    error: KafkaError
    until_s: float
    leader: int | None


class _TroubleText(NamedTuple):
    """The text of a partition in trouble, and when it was created (`Clock`)."""

    text: str
    created_s: float


class ThreadCall(Generic[T]):
    """A call in a thread of its own, which ends with it; implements `acker.kafka.port.UnderWay`."""

    def __init__(self, call: Callable[[], T]) -> None:
        """Begin the call."""
        thread = ThreadPoolExecutor(1, "windhover-beside")
        self._future = thread.submit(call)
        thread.shutdown(wait=False)

    def is_over(self, wait_ms: int = 0) -> bool:
        if wait_ms > 0:
            wait([self._future], wait_ms / 1000)
        return self._future.done()

    def result(self) -> T:
        return self._future.result()


class KafkaLog:
    """A Kafka cluster; implements `acker.kafka.port.Log`."""

    def __init__(
        self,
        settings: Mapping[str, str],
        *,
        client_id: str = "windhover",
        process: str = "",
        operation_timeout_ms: int = OPERATION_TIMEOUT_MS,
        clock: Clock = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        make_admin: Callable[[dict[str, Any]], AdminClient] = AdminClient,
    ) -> None:
        """Keep the settings, by librdkafka's names; nothing is connected before the first call.

        Args:
            process: a host and a number, by which members of a group differ
                that have the same `client_id`.
            operation_timeout_ms: how long a call without a timeout of its own
                may take.
            clock: monotonic seconds.
            make_admin: makes the admin client from its settings.
        """
        self._client = KafkaClient(settings, client_id, operation_timeout_ms, clock, sleep)
        self._long_read = LongWait()
        self._progress_recorded_ms = 0  # when `log_progress` was called last
        self._member_id = f"{client_id}-{process}" if process else client_id
        self._make_admin = make_admin
        self._background = Background(clock)
        self._clock = clock
        self._admin: AdminClient | None = None  # None: the next question makes one
        self._admin_created_s = 0.0
        self._cluster_id: str | None = None  # None: it was not asked yet
        # the consumer that asks what a group has committed, and that group; None: none has asked
        # yet
        self._commit_consumer: Consumer | None = None
        self._commit_consumer_group = ""
        # leaders that did not answer a moment ago: by partition, and by the broker's number
        self._silence_by_partition: dict[TopicPartition, _Silence] = {}
        self._silence_by_broker: dict[int, _Silence] = {}
        # by partition, the number of the broker that leads it; -1: none does
        self._leader_by_partition: dict[TopicPartition, int] = {}
        # when it was asked last who leads: what is to be asked about, and what silent brokers led
        self._leaders_read_s = clock()
        self._silent_leaders_read_s = clock()
        # why partitions do not answer
        self._text_by_partition: dict[TopicPartition, _TroubleText] = {}

    def __repr__(self) -> str:
        return f"KafkaLog({self._client.bootstrap})"

    def share_deadline(self) -> None:
        self._client.share_deadline()

    def reader(self, *, committed: bool, patient: bool = False) -> Reader:
        defaults = PATIENT if patient else DEFAULTS
        return KafkaReader(self._client, committed=committed, defaults=defaults)

    def picker(self) -> Picker:
        return KafkaPicker(self._client)

    def offset_reader(self) -> OffsetReader:
        return KafkaOffsetReader(self._client)

    def message_reader(self) -> KafkaReader:
        """Make a reader of what is committed that may be polled for the client's own messages."""
        return KafkaReader(self._client, committed=True, defaults={**DEFAULTS, **ONE_BATCH})

    def producer(self) -> Producer:
        return KafkaProducer(self._client)

    def transactions(self, transactional_id: str) -> Transactions:
        return KafkaTransactions(self._client, transactional_id, self._forbidden_topics)

    def begin(self, call: Callable[[], T]) -> UnderWay[T]:
        return ThreadCall(call)

    def join(self, group: str, topics: Sequence[str], *, pause_ms: int | None = None) -> Membership:
        return KafkaMembership(self._client, group, topics, client_id=self._member_id, pause_ms=pause_ms)

    def ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._offsets(Bound.END, partitions)

    def stable_ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._offsets(Bound.STABLE_END, partitions)

    def starts(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._offsets(Bound.START, partitions)

    def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> Mapping[TopicPartition, int]:
        """Return the first offsets at a time or later, or the ends where there are none."""
        # In this order: an end that is asked for afterwards may lie behind a
        # record that came meanwhile.
        ends = self.ends(partitions)
        return _end_where_negative(self._offsets(timestamp_ms, ends), ends)

    def bounds(self, bound: Bound | int, partitions: Iterable[TopicPartition]) -> OffsetAnswers:
        """Return offsets of those partitions that have an answer now, and a trouble text for each of
        the others; see `acker.kafka.port.Log`.

        `bound` is an end of the log; or a wall time in ms, for the first record
        at that time or later, or the end of the log if there is none.
        """
        requested = tuple(dict.fromkeys(partitions))
        if isinstance(bound, Bound):
            return self._bounds(bound, requested)
        # The ends first: an end that is fetched later may lie behind a record that came meanwhile.
        end_answers = self._bounds(Bound.END, requested)
        answers_at_time = self._bounds(bound, end_answers.offsets)
        offsets = _end_where_negative(answers_at_time.offsets, end_answers.offsets)
        return OffsetAnswers(offsets, troubles={**end_answers.troubles, **answers_at_time.troubles})

    def intact_to(
        self, read_to_by_partition: Mapping[TopicPartition, ReadTo]
    ) -> Mapping[TopicPartition, int]:
        return intact_to(self._client, read_to_by_partition) if read_to_by_partition else {}

    def cluster_id(self) -> str:
        if self._cluster_id is None:
            use = Use(Operation.DESCRIBE)
            self._cluster_id = self._ask_until_answered("id of the cluster", self._ask_for_cluster_id, use)
        return self._cluster_id

    def _ask_for_cluster_id(self, timeout_s: float) -> str:
        future = self._admin_client().describe_cluster(request_timeout=timeout_s)
        return answer_of(future, timeout_s, Use(Operation.DESCRIBE)).cluster_id or ""

    def topics(self, names: Iterable[str], *, settings: bool = False) -> Mapping[str, TopicInfo]:
        """Return those of the named topics that exist, by name; see `acker.kafka.port.Log`."""
        requested = list(dict.fromkeys(names))
        if not requested:
            return {}
        return self._ask_until_answered(
            f"describing {', '.join(requested)}",
            lambda timeout_s: describe_topics(self._admin_client(), requested, timeout_s, settings=settings),
            Use(Operation.DESCRIBE, topic=", ".join(requested)),
        )

    def missing_brokers(self, names: Iterable[str]) -> Sequence[MissingBroker]:
        """Return brokers with replicas of topics that are missing or silent.

        See `acker.kafka.port.Log`.
        """
        needed = frozenset(names)

        def ask(timeout_s: float) -> list[MissingBroker]:
            metadata = self._admin_client().list_topics(timeout=timeout_s)
            self._forget_silent_brokers()
            return missing_brokers_in(metadata, needed, self._silence_by_broker)

        return self._ask_until_answered("asking which brokers there are", ask, Use(Operation.DESCRIBE))

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the offsets that a group has committed.

        It waits for an open transaction of the group.
        """
        commits = self._read_commits(group, partitions)
        return {TopicPartition(commit.topic, commit.partition): commit.offset for commit in commits}

    def committed_epochs(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Return the leader epochs beside committed offsets; see `acker.kafka.port.Log`."""
        epochs: dict[TopicPartition, int] = {}
        for commit in self._read_commits(group, partitions):
            if commit.leader_epoch is not None:
                epochs[TopicPartition(commit.topic, commit.partition)] = commit.leader_epoch
        return epochs

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        metadata: str = "",
        epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> None:
        """Commit offsets of a group without members; see `acker.kafka.port.Log`."""
        if not offsets:
            return
        requested: list[confluent_kafka.TopicPartition] = []
        for partition, offset in offsets.items():
            epoch = epochs.get(partition, NO_EPOCH)
            requested.append(confluent_kafka.TopicPartition(*partition, offset, metadata, epoch))
        request = ConsumerGroupTopicPartitions(group, requested)
        use = Use(Operation.READ, group=group)

        def ask(timeout_s: float) -> None:
            futures = self._admin_client().alter_consumer_group_offsets([request], request_timeout=timeout_s)
            answer = answer_of(futures[group], timeout_s, use)
            _require_no_errors(answer.topic_partitions, Operation.READ)

        self._ask_until_answered(f"committing offsets of group {group}", ask, use)

    def commit_metadata(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, str]:
        commits = self._read_commits(group, partitions)
        return {TopicPartition(commit.topic, commit.partition): commit.metadata or "" for commit in commits}

    def members(self, group: str) -> Sequence[GroupMember]:
        """Return the members of a group, none where it does not exist.

        See `acker.kafka.port.Log`.
        """
        use = Use(Operation.DESCRIBE, group=group)

        # a client for this one question: `describe_group` says why
        def make_admin() -> AdminClient:
            return self._client.make_client(self._make_admin, {}, LOGGED, self._background)

        def ask(timeout_s: float) -> Sequence[GroupMember]:
            try:
                return _members_of(describe_group(make_admin, group, timeout_s))
            except KafkaException as error:
                if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                    return ()
                raise

        # `by_one_broker`: only the coordinator of the group can answer
        return self._ask_until_answered(f"members of group {group}", ask, use, by_one_broker=True)

    def delete_before(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, str]:
        """Delete records below offsets, and return troubles; see `acker.kafka.port.Log`."""
        if not offsets:
            return {}
        requested = [client_partition(partition, offset) for partition, offset in offsets.items()]

        def ask(timeout_s: float) -> _Answer[object]:
            futures = self._admin_client().delete_records(requested, request_timeout=timeout_s)
            answer = self._wait_for_answers(futures, timeout_s, Operation.DELETE)
            _require_an_answer(answer)
            return answer

        names = ", ".join(sorted({partition.topic for partition in offsets}))
        use = Use(Operation.DELETE, topic=names)
        try:
            answer = self._ask_until_answered(f"deleting records of {names}", ask, use)
        except OutOfRange:
            # Kafka takes an offset below the start of the log, where all is deleted already; other
            # implementations refuse it
            starts = self.bounds(Bound.START, offsets).offsets
            offsets_behind_start = {
                partition: offset
                for partition, offset in offsets.items()
                if partition not in starts or starts[partition] < offset
            }
            if len(offsets_behind_start) == len(offsets):  # so this was not why it was refused
                raise
            return self.delete_before(offsets_behind_start)
        self._remember_silence(answer)
        return self._trouble_texts_of(answer.errors)

    def passed_over(self) -> Sequence[DamagedRun]:
        return list(self._client.passed_over)

    def log_progress(self, partition: TopicPartition, position: int, end: int) -> None:
        """Log each minute that a read of a partition goes on; see `acker.kafka.port.Log`."""
        now_ms = int(self._client.clock() * 1000)
        # nothing was read for so long: this is another read
        if now_ms - self._progress_recorded_ms > PROGRESS_PAUSE_MS:
            self._long_read.over()
        self._progress_recorded_ms = now_ms
        waited_ms = self._long_read.record_wait("read", now_ms)
        if waited_ms is not None:
            name = partition.name
            progress = {"partition": name, "offset": position, "end": end}
            _log.warning("a long read goes on", extra={"waited_s": waited_ms // 1000, **progress})

    def close(self) -> None:
        # the clients end with their last reference
        self._admin = None
        self._commit_consumer = None

    def _offsets(self, bound: Bound | int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Ask until there is an answer for each partition.

        Raises:
            PartitionStands: some partitions have no answer.
            Unreachable: Kafka does not answer at all.
        """
        requested = tuple(partitions)
        if not requested:
            return {}

        def ask(timeout_s: float) -> dict[TopicPartition, int]:
            answer = self._list_offsets(bound, requested, timeout_s).answer
            _require_an_answer(answer)
            if answer.errors:
                first_error = next(iter(answer.errors.values()))
                raise Troubled(first_error, lambda: self._trouble_texts_of(answer.errors))
            return answer.values

        doing, use = _question_name_and_use(bound, requested)
        return self._ask_until_answered(doing, ask, use)

    def _bounds(self, bound: Bound | int, partitions: Collection[TopicPartition]) -> OffsetAnswers:
        """Ask for what can be answered now. Leaders that were silent a moment ago are not asked.

        Records which leaders are silent, for the next questions.
        """
        self._forget_silences()
        self._record_partitions_of_silent_brokers(partitions)
        # by partition that is not asked: what came from its leader a moment ago
        errors: dict[TopicPartition, KafkaError] = {}
        for partition in partitions:
            if partition in self._silence_by_partition:
                errors[partition] = self._silence_by_partition[partition].error
        requested_partitions = [partition for partition in partitions if partition not in errors]
        if not requested_partitions:
            return OffsetAnswers({}, troubles=self._trouble_texts_of(errors))

        def ask(timeout_s: float) -> _OffsetsAnswer:
            self._refresh_leaders(requested_partitions)
            offsets_answer = self._list_offsets(bound, requested_partitions, timeout_s)
            _require_an_answer(offsets_answer.answer)
            return offsets_answer

        doing, use = _question_name_and_use(bound, requested_partitions)
        answer, epochs = self._ask_until_answered(doing, ask, use, by_one_broker=True)
        self._remember_silence(answer)
        if bound is Bound.START:
            epochs = {}  # these are epochs of the first records, and say nothing of the leaders
        errors |= answer.errors  # those of this question, beside those of leaders that were not asked
        return OffsetAnswers(answer.values, troubles=self._trouble_texts_of(errors), epochs=epochs)

    def _list_offsets(
        self, bound: Bound | int, partitions: Collection[TopicPartition], timeout_s: float
    ) -> _OffsetsAnswer:
        """Ask for offsets once; of a wall time (`bound`) after the last record the offset is -1.

        Raises `KafkaException` for an error that concerns no single
        partition, or that will not pass.
        """
        is_stable = bound is Bound.STABLE_END
        isolation = IsolationLevel.READ_COMMITTED if is_stable else IsolationLevel.READ_UNCOMMITTED
        spec = _spec_of(bound)
        specs_by_partition = {client_partition(partition): spec for partition in partitions}
        sent_s = self._clock()
        futures = self._admin_client().list_offsets(
            specs_by_partition, isolation_level=isolation, request_timeout=timeout_s
        )
        answer = self._wait_for_answers(futures, timeout_s, Operation.DESCRIBE)
        # An answer without error may leave a partition out: at once, under
        # load; or when the time is over, since its leader is silent.
        is_late = self._clock() - sent_s >= LATE_SHARE * timeout_s
        code = KafkaError._TIMED_OUT if is_late else KafkaError.LEADER_NOT_AVAILABLE
        left_out = KafkaError(code, "the answer leaves it out")
        offsets: dict[TopicPartition, int] = {}
        epochs: dict[TopicPartition, int] = {}
        errors = dict(answer.errors)
        for partition, result in answer.values.items():
            # `OFFSET_INVALID`: the answer leaves the partition out. -1: there
            # is no record so late, which is an answer about a wall time only;
            # a start and an end there always is.
            if result.offset == OFFSET_INVALID or (result.offset < 0 and isinstance(bound, Bound)):
                errors[partition] = left_out
            else:
                offsets[partition] = result.offset
            if result.leader_epoch is not None and result.leader_epoch >= 0:
                epochs[partition] = result.leader_epoch
        return _OffsetsAnswer(_Answer(offsets, errors), epochs)

    def _wait_for_answers(
        self,
        futures: Mapping[confluent_kafka.TopicPartition, Future[T]],
        timeout_s: float,
        operation: Operation,
    ) -> _Answer[T]:
        """Wait for the answers about some partitions, at most `timeout_s` for each of them.

        `operation` is what was asked of them.

        Raises `KafkaException` for an error that concerns all of them, or
        that will not pass.
        """
        values: dict[TopicPartition, T] = {}
        errors: dict[TopicPartition, KafkaError] = {}
        for requested, future in futures.items():
            partition = TopicPartition(requested.topic, requested.partition)
            try:
                use = Use(operation, topic=partition.topic)
                values[partition] = answer_of(future, timeout_s, use)
            except KafkaException as error:
                if error.args[0].code() not in _PASSING_ERRORS:
                    raise
                errors[partition] = error.args[0]
        codes = {error.code() for error in errors.values()}
        if KafkaError._NOENT in codes:
            # librdkafka says so of a partition that does not exist, and of one
            # without a leader. Those that exist are without one.
            self._require_existing(errors, timeout_s)
            no_leader = KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "no leader")
            errors = dict.fromkeys(errors, no_leader)
        elif codes & _STALE_LEADER:
            # librdkafka remembers leaders for a quarter of an hour, even when
            # they refuse: make it ask
            for topic in {partition.topic for partition in errors}:
                self._admin_client().list_topics(topic, timeout=timeout_s)
        return _Answer(values, errors)

    def _require_existing(self, partitions: Iterable[TopicPartition], timeout_s: float) -> None:
        """Raise `KafkaException` if a partition does not exist, or may not be described."""
        for partition in partitions:
            # asked for by its name: among all topics, one that we have no
            # right to would just be missing
            metadata = self._admin_client().list_topics(partition.topic, timeout_s)
            topic = metadata.topics[partition.topic]
            if topic.error is not None and topic.error.code() in UNAUTHORIZED:
                raise Refused(topic.error, Use(Operation.DESCRIBE, topic=partition.topic))
            if partition.partition not in topic.partitions:
                name = partition.name
                raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, name))

    def _remember_silence(self, answer: _Answer[Any]) -> None:
        """Remember which leaders were silent, and give up the admin client that has waited for
        them.

        `answer` is that to a question about several partitions. `_bounds`
        does not ask the silent leaders again before `SILENT_AGAIN_S` are
        over, unless the partition gets another one.
        """
        now_s = self._clock()
        silent_errors = {
            partition: error for partition, error in answer.errors.items() if error.code() in SILENCE
        }
        for partition, error in silent_errors.items():
            leader = self._leader_by_partition.get(partition)
            self._silence_by_partition[partition] = _Silence(error, now_s + SILENT_AGAIN_S, leader)
        # a broker that has answered for another partition of the same
        # question is not silent
        answering_brokers = set(map(self._leader_by_partition.get, answer.values))
        for partition in silent_errors:
            leader = self._leader_by_partition.get(partition)
            if leader is not None and leader >= 0 and leader not in answering_brokers:
                self._silence_by_broker[leader] = self._silence_by_partition[partition]
        # A client whose request timed out may not meet that broker again
        # (`FIRST_PATIENCE_MS`). One that has found no leader for long is
        # replaced, too: it may go on finding none when there is one.
        client_age_s = now_s - self._admin_created_s
        if silent_errors or (answer.errors and client_age_s >= SILENT_AGAIN_S):
            self._give_up_admin()

    def _forget_silences(self) -> None:
        """Forget leaders that were silent long ago, and partitions that have another leader by now.

        Who leads them is asked at most every `LEADERS_EVERY_S`.
        """
        now_s = self._clock()
        # lists, since another thread may add to what is gone through
        recent_silences = {
            partition: silence
            for partition, silence in list(self._silence_by_partition.items())
            if now_s < silence.until_s
        }
        self._silence_by_partition = recent_silences
        if not recent_silences or now_s - self._silent_leaders_read_s < LEADERS_EVERY_S:
            return
        self._silent_leaders_read_s = now_s
        leaders = self._ask_leader_ids(recent_silences)
        # where nobody says who leads now, it counts as the same leader
        self._silence_by_partition = {
            partition: silence
            for partition, silence in list(recent_silences.items())
            if leaders.get(partition, silence.leader) == silence.leader
        }

    def _forget_silent_brokers(self) -> None:
        """Forget brokers that were silent long ago."""
        now_s = self._clock()
        for number, silence in list(self._silence_by_broker.items()):
            if now_s >= silence.until_s:
                self._silence_by_broker.pop(number, None)  # another thread may have done it

    def _record_partitions_of_silent_brokers(self, partitions: Iterable[TopicPartition]) -> None:
        """Record as silent, too, those of `partitions` whose leader is a silent broker.

        Without that, each question that meets the broker with other partitions
        would wait `FIRST_PATIENCE_MS` for it again: five such questions took 15 s.
        """
        self._forget_silent_brokers()
        partitions_to_check = [
            partition for partition in partitions if partition not in self._silence_by_partition
        ]
        # mostly: no broker is silent, or all of these partitions are recorded already
        if not self._silence_by_broker or not partitions_to_check:
            return
        leaders = self._ask_leader_ids(partitions_to_check)
        self._leader_by_partition |= leaders
        for partition, leader in leaders.items():
            if leader in self._silence_by_broker:
                self._silence_by_partition[partition] = self._silence_by_broker[leader]

    def _refresh_leaders(self, partitions: Collection[TopicPartition]) -> None:
        """Ask who leads partitions if it is not known, or if the connection to a broker was lost
        lately.

        librdkafka then sends questions about them to these leaders. While a
        connection is lost, it is asked at most every `LEADERS_EVERY_S`.
        """
        if self._admin is not None:
            self._admin.poll(0)  # what its threads have reported goes to `Background`
        has_unknown_leader = not self._leader_by_partition.keys() >= set(partitions)
        is_question_due = self._clock() - self._leaders_read_s >= LEADERS_EVERY_S
        has_lost_connection = self._background.lost_connection_within(LOST_S)
        if has_unknown_leader or (is_question_due and has_lost_connection):
            self._leaders_read_s = self._clock()
            self._leader_by_partition |= self._ask_leader_ids(partitions)

    def _ask_leader_ids(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return, by partition, the id of the broker that leads it now; -1: no broker leads it.

        If no broker answers for a topic, its partitions are missing. The
        question has an effect, too: from then on librdkafka sends questions
        about these partitions to the leaders that the answer names.
        """
        leaders: dict[TopicPartition, int] = {}
        for topic, partitions_of_topic in by_topic(partitions).items():
            # without an answer the partitions of this topic are missing
            with suppress(KafkaException):
                metadata = self._admin_client().list_topics(topic, LEADERS_S)
                described = metadata.topics[topic].partitions
                for partition in partitions_of_topic:
                    if partition.partition in described:
                        leaders[partition] = described[partition.partition].leader
        return leaders

    def _trouble_texts_of(self, errors: Mapping[TopicPartition, KafkaError]) -> dict[TopicPartition, str]:
        """Return the trouble texts of partitions without an answer.

        They name the leader that should have answered, or where the replicas
        are. The texts are kept for `TEXT_S`: they cost a question for each
        topic.
        """
        now_s = self._clock()
        # the texts that are still young enough
        text_by_partition = {
            partition: text
            for partition, text in self._text_by_partition.items()
            if now_s - text.created_s < TEXT_S
        }
        topics_to_ask = {partition.topic for partition in errors.keys() - text_by_partition.keys()}
        for topic in topics_to_ask:
            with suppress(KafkaException):  # the text is then the one that names no leader
                metadata = self._admin_client().list_topics(topic, FIRST_PATIENCE_MS / 1000)
                for partition, error in errors.items():
                    if partition.topic == topic:
                        new_text = trouble_text(metadata, partition, error.name())
                        text_by_partition[partition] = _TroubleText(new_text, now_s)
        self._text_by_partition = text_by_partition
        without_leader_name = _TroubleText("has no answer from its leader", now_s)
        texts: dict[TopicPartition, str] = {}
        for partition in errors:
            texts[partition] = text_by_partition.get(partition, without_leader_name).text
        return texts

    def _read_commits(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> list[confluent_kafka.TopicPartition]:
        """Return the commits of a group in the client's form.

        A partition without one is missing.
        """
        requested = [client_partition(partition) for partition in partitions]
        if not requested:
            return []
        use = Use(Operation.DESCRIBE, group=group)

        def ask(timeout_s: float) -> list[confluent_kafka.TopicPartition]:
            commit_consumer = self._commit_consumer_of(group)
            try:
                commits = commit_consumer.committed(requested, timeout_s)
            except KafkaException as error:
                # some brokers answer so if a group has committed nothing; Kafka's own brokers do not
                if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                    return []
                # the next try gets a new consumer
                self._commit_consumer = None
                # if we have no right to read the commits, only this event has that reason
                event = commit_consumer.poll(0)
                refusal = None if event is None else event.error()
                if refusal is not None and refusal.code() in UNAUTHORIZED:
                    raise Refused(refusal, use) from None
                raise
            # a partition with the error GROUP_ID_NOT_FOUND has no commit, which is no error
            commits_of_group = [commit for commit in commits if not _is_of_no_group(commit)]
            _require_no_errors(commits_of_group, Operation.DESCRIBE)
            # a negative offset: the group has committed none of the partition
            return [commit for commit in commits_of_group if commit.offset >= 0]

        return self._ask_until_answered(f"offsets of group {group}", ask, use, by_one_broker=True)

    def _ask_until_answered(
        self, doing: str, question: Callable[[float], T], use: Use, *, by_one_broker: bool = False
    ) -> T:
        """Ask until there is an answer, each time with more patience; errors are those of `Log`.

        `question` is called with the seconds that it may take, and raises `KafkaException`.

        `by_one_broker`: only one broker can answer, a leader or a
        coordinator. If the question shares a deadline with others, it is
        asked once while a broker is known to be silent. A question that any
        broker can answer is asked on: it has to be found out that a broker is
        missing, or what is on it would be called gone.
        """
        self._forget_silent_brokers()
        deadline = self._client.deadline(is_one_silent=by_one_broker and bool(self._silence_by_broker))
        patiences_s = _patiences_s()

        def ask() -> T:
            patience_s = min(next(patiences_s), deadline.left_s)
            try:
                # 0.1: a request that may take nothing is never answered
                return question(max(patience_s, deadline.wait_min_s, 0.1))
            except KafkaException as error:
                code = error.args[0].code()
                admin_age_s = self._clock() - self._admin_created_s
                finds_no_leader = code == KafkaError.LEADER_NOT_AVAILABLE and admin_age_s >= LEADERLESS_S
                if code in _STALE_CLIENT or finds_no_leader:
                    self._give_up_admin()  # the next try makes another one
                raise

        return self._client.retry(doing, deadline, ask, self._background, use)

    def _give_up_admin(self) -> None:
        """Drop the admin client, and forget what it knew; the next question makes another one."""
        if self._admin is not None:
            self._admin.poll(0)  # what its threads have reported goes to `Background`
            self._admin = None
            self._cluster_id = None  # the next client may find another cluster behind the same name
            self._leader_by_partition = {}

    def _admin_client(self) -> AdminClient:
        """Return the admin client; make it first if there is none."""
        if self._admin is None:
            self._admin_created_s = self._clock()
            self._admin = self._client.make_client(self._make_admin, {}, LOGGED, self._background)
        return self._admin

    def _commit_consumer_of(self, group: str) -> Consumer:
        """Return the consumer that asks what a group has committed.

        There is one, of the last group asked.
        """
        if self._commit_consumer is None or self._commit_consumer_group != group:
            self._commit_consumer = None  # it ends before the next one begins
            self._commit_consumer = self._client.make_client(
                Consumer, {}, {**_COMMIT_ASKER, "group.id": group}, self._background
            )
            self._commit_consumer_group = group
        return self._commit_consumer

    def _forbidden_topics(self, operation: Operation, names: Collection[str]) -> list[str]:
        """Return those of some topics for which we have no right to `operation`.

        A writer calls it from whatever thread it works in.
        """
        requested_right = AclOperation[operation.name]
        deadline = self._client.deadline()
        use = Use(Operation.DESCRIBE, topic=", ".join(names))

        def ask() -> list[str]:
            """Return the topics of `names` for which we have no right to the operation.

            Raise `KafkaException` if nobody answers.
            """
            # A new client for each try: the log's own client is for one thread at a time, and a
            # client that got no answer is dropped.
            admin = self._client.make_client(self._make_admin, {}, LOGGED, self._background)
            # 0.1: a request that may take nothing is never answered
            timeout_s = max(deadline.next_wait_s, 0.1)
            futures = admin.describe_topics(
                TopicCollection(list(names)), include_authorized_operations=True, request_timeout=timeout_s
            )
            forbidden_names: list[str] = []
            for name, future in futures.items():
                rights = answer_of(future, timeout_s, use).authorized_operations
                if requested_right not in (rights or ()):
                    forbidden_names.append(name)
            return forbidden_names

        doing = f"asking for rights to {use.topic}"
        return self._client.retry(doing, deadline, ask, self._background, use)


def _patiences_s() -> Iterator[float]:
    """Return without end how long each try of a question waits, in seconds: 3, 5, 5 and so on."""

    def longer(patience_s: float, _: float) -> float:
        return min(2 * patience_s, LAST_PATIENCE_MS / 1000)

    return accumulate(repeat(FIRST_PATIENCE_MS / 1000), longer)


def missing_brokers_in(
    metadata: ClusterMetadata, names: Collection[str], silent_numbers: Collection[int] = ()
) -> list[MissingBroker]:
    """Return the brokers that have a replica of a partition of the named topics, and are not there.

    Not there is a broker that the cluster's metadata do not list, or that is listed and did not
    answer us: `silent_numbers` are the numbers of these.
    """
    # by a broker's number: how many partitions have a replica there, and how many of these no leader
    replica_counts: Counter[int] = Counter()
    leaderless_counts: Counter[int] = Counter()
    for partition in _partitions_in(metadata, names):
        has_leader = partition.leader in metadata.brokers
        for number in partition.replicas:
            replica_counts[number] += 1
            if not has_leader:
                leaderless_counts[number] += 1
    missing: list[MissingBroker] = []
    for number, replica_count in sorted(replica_counts.items()):
        is_listed = number in metadata.brokers
        if not is_listed or number in silent_numbers:
            leaderless = leaderless_counts[number]
            broker = MissingBroker(number, replica_count, leaderless, is_silent=is_listed)
            missing.append(broker)
    return missing


def _partitions_in(metadata: ClusterMetadata, names: Iterable[str]) -> Iterator[PartitionMetadata]:
    """Yield the partitions of those of the named topics that exist."""
    for name in names:
        topic = metadata.topics.get(name)
        if topic is not None:
            yield from topic.partitions.values()


class ReplicasInSync(NamedTuple):
    """How many replicas of a partition are in sync, and how many it should have."""

    in_sync: int
    expected: int


def topics_lacking_replicas(metadata: ClusterMetadata, names: Collection[str]) -> dict[str, ReplicasInSync]:
    """Return by name the topics of which a partition lacks replicas in sync, with its worst partition."""
    worst_by_topic: dict[str, ReplicasInSync] = {}
    for name in names:
        for partition in _partitions_in(metadata, [name]):
            # a leader that is gone is still named as the last one in sync
            in_sync_count = len(set(partition.isrs) & metadata.brokers.keys())
            replicas = ReplicasInSync(in_sync_count, expected=len(partition.replicas))
            worst = worst_by_topic.get(name)
            is_worst = worst is None or replicas.in_sync < worst.in_sync
            if replicas.in_sync < replicas.expected and is_worst:
                worst_by_topic[name] = replicas
    return worst_by_topic


def _members_of(description: ConsumerGroupDescription) -> list[GroupMember]:
    """Return the members of a group, by name; see `GroupMember`."""
    # while the group shares its partitions out anew, the broker names no assignments
    is_shared_out = description.state is ConsumerGroupState.STABLE
    members: list[GroupMember] = []
    for member in description.members:
        partitions: frozenset[int] | None = None  # None: nobody can say it now
        if is_shared_out:
            assigned = member.assignment.topic_partitions
            partitions = frozenset(partition.partition for partition in assigned)
        name = f"{member.client_id} on {member.host.lstrip('/')}"
        members.append(GroupMember(name, partitions, id=member.member_id))
    return sorted(members, key=lambda member: member.name)


def _question_name_and_use(
    bound: Bound | int,
    partitions: Iterable[TopicPartition],
) -> tuple[str, Use]:
    """Return how messages name a question about offsets, and what it uses.

    The name is as "ends of sentences, words".
    """
    topics = sorted({partition.topic for partition in partitions})
    bound_text = bound.value if isinstance(bound, Bound) else "times"
    return f"{bound_text} of {', '.join(topics)}", Use(Operation.DESCRIBE, topic=topics[0])


def _end_where_negative(
    offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the first offset at a wall time or later, by partition.

    A negative one of `offsets` means that no record is so late: then it is the end.
    """
    offsets_or_ends: dict[TopicPartition, int] = {}
    for partition, offset in offsets.items():
        offsets_or_ends[partition] = ends[partition] if offset < 0 else offset
    return offsets_or_ends


def _spec_of(bound: Bound | int) -> OffsetSpec:
    """Return how the client asks for an end of the log, or for the offset at a wall time in ms."""
    if isinstance(bound, Bound):
        return _SPEC_BY_BOUND[bound]
    at_time: OffsetSpec = OffsetSpec.for_timestamp(bound)
    return at_time


def _require_an_answer(answer: _Answer[T]) -> None:
    """Raise `KafkaException` if no leader answered: then perhaps no broker does, and it is asked again."""
    if answer.is_silence:
        raise KafkaException(next(iter(answer.errors.values())))


def _is_of_no_group(partition: confluent_kafka.TopicPartition) -> bool:
    """Return whether a broker said of a partition that there is no such group."""
    return partition.error is not None and partition.error.code() == KafkaError.GROUP_ID_NOT_FOUND


def _require_no_errors(partitions: Iterable[confluent_kafka.TopicPartition], operation: Operation) -> None:
    """Raise the first error of a partition in an answer, as one of this operation on its topic."""
    for partition in partitions:
        if partition.error is not None:
            raise Refused(partition.error, Use(operation, topic=partition.topic))


OLD_BROKER: Final = (
    "the broker does not give the ids of topics, so it is older than Kafka 2.8; Windhover works with 2.8 and"
    " newer: upgrade the broker"
)


def describe_topics(
    admin: AdminClient, names: Iterable[str], timeout_s: float, *, settings: bool
) -> dict[str, TopicInfo]:
    """Return those of the named topics that exist, in the order of the names, each once.

    With `settings` their settings are asked for, too; `timeout_s` is for each
    of the two answers.
    """
    requested = list(names)
    futures = admin.describe_topics(TopicCollection(requested), request_timeout=timeout_s)
    try:
        descriptions = _answers_of_existing(futures, timeout_s, Operation.DESCRIBE)
    except KafkaException as error:
        # librdkafka looks for ids of topics in the answer, which came with 2.8
        if error.args[0].code() == KafkaError._BAD_MSG:
            raise ConfigError(OLD_BROKER) from error
        raise
    settings_by_topic: dict[str, dict[str, str]] = {}
    if settings and descriptions:
        settings_by_topic = _read_settings(admin, descriptions, timeout_s)
    topics: dict[str, TopicInfo] = {}
    for name in requested:
        description = descriptions.get(name)
        # with settings: a topic may have gone between the two questions
        if description is None or (settings and name not in settings_by_topic):
            continue
        topics[name] = TopicInfo(
            name=name,
            id=str(description.topic_id),
            partitions=len(description.partitions),
            replication=min((len(partition.replicas) for partition in description.partitions), default=0),
            settings=settings_by_topic.get(name, {}),
        )
    return topics


def describe_group(
    make: Callable[[], AdminClient], group: str, timeout_s: float, *, rights: bool = False
) -> ConsumerGroupDescription:
    """Ask the coordinator of a group to describe it, through a client that `make` returns.

    `rights`: the answer names our rights to the group, too.

    The client ends with the question. One that lives on ends the process when
    the coordinator has moved, or when it meets a coordinator again whose
    answer it gave up (librdkafka's issues 5315 and 4605). So it may not be
    left to the garbage collector either, as an error's traceback would do.
    """
    admin = make()
    try:
        futures = admin.describe_consumer_groups(
            [group], include_authorized_operations=rights, request_timeout=timeout_s
        )
        description: ConsumerGroupDescription = answer_of(
            futures[group], timeout_s, Use(Operation.DESCRIBE, group=group)
        )
        return description
    finally:
        del admin  # its last reference


def _answers_of_existing(
    futures: Mapping[str, Future[T]], timeout_s: float, operation: Operation
) -> dict[str, T]:
    """Return by topic the answers for those that exist; `operation` is what was asked of them."""
    answers: dict[str, T] = {}
    for name, future in futures.items():
        try:
            answers[name] = answer_of(future, timeout_s, Use(operation, topic=name))
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
    return answers


def _read_settings(admin: AdminClient, names: Iterable[str], timeout_s: float) -> dict[str, dict[str, str]]:
    """Return by topic the settings of the named topics that exist, by their names."""
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    futures_by_resource = admin.describe_configs(resources, request_timeout=timeout_s)
    futures = {resource.name: future for resource, future in futures_by_resource.items()}
    settings_by_topic: dict[str, dict[str, str]] = {}
    for name, entries in _answers_of_existing(futures, timeout_s, Operation.DESCRIBE_CONFIGS).items():
        settings = {key: entry.value for key, entry in entries.items() if entry.value is not None}
        settings_by_topic[name] = settings
    return settings_by_topic


def answer_of(future: Future[T], timeout_s: float, use: Use) -> T:
    """Wait for an answer, or a part of one, and return it.

    Raises `KafkaException`; of these `Refused` if we have no right to this `use`.
    """
    try:
        # the client itself ends the request after `timeout_s`; the second
        # more is for a client that hangs
        return future.result(timeout_s + 1)
    except TimeoutError as error:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer")) from error
    except KafkaException as error:
        if error.args[0].code() in UNAUTHORIZED:
            raise Refused(error.args[0], use) from error
        raise
