"""The real Kafka: the port of ``acker.kafka.port`` over confluent-kafka.

`KafkaLog` asks its questions through one admin client and makes readers and writers; each of those is a
client of its own, used by one thread at a time. Ends, starts and times cost one request for all partitions.
librdkafka sends it to the leader of each partition, and has an answer or an error for each:

====================  ================================================================================
error                 what it means
====================  ================================================================================
LEADER_NOT_AVAILABLE  the partition has no leader, as another broker says
no offset, _TIMED_OUT its leader does not answer
_NOENT for all        none has a leader, or there is no such partition: the metadata tell which
====================  ================================================================================

`KafkaLog.bounds` returns the answers that there are; `ends` and the like wait for all of them.

What a group has committed it asks through a consumer of that group which never joins. An admin client that
has asked this before ends the process (SIGSEGV, librdkafka's issue 5315) when the group's coordinator has
moved meanwhile, as it does at each preferred-leader election. Commits for a group without members go through
the admin client: it survives such a move, but goes on asking the former coordinator, so it is given up then.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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

from acker.errors import ConfigError
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
"""What is read so long after another read is no part of it."""

OPERATION_TIMEOUT_MS: Final = 30_000
"""How long a call without a timeout of its own may take; an election or a restart fits into it."""

FIRST_PATIENCE_MS: Final = 3_000
"""How long a first attempt waits for its answer; each further one twice as long, up to `LAST_PATIENCE_MS`. A
request for a leader or coordinator whose broker died waits out whatever it is given, though another would be
answered at once. Its client must then be given up: a request that timed out ends the process, by an assertion
of librdkafka, when that client meets its broker again."""

LAST_PATIENCE_MS: Final = 5_000
"""How long an attempt waits at most: an answer comes so much later than the leaders do, no more."""

if TYPE_CHECKING:
    from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but the package has no __all__
        ClusterMetadata,
    )

T = TypeVar("T")

_STALE_LEADER: Final = frozenset(
    {KafkaError.FENCED_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_LEADER_EPOCH}
)
"""What a broker answers to who asks the leader of another time."""

_STALE_CLIENT: Final = frozenset({KafkaError._TIMED_OUT, KafkaError.NOT_COORDINATOR})
"""After these a question needs a new client: this one goes on asking where it has asked before."""

SILENT_AGAIN_S: Final = 6.0
"""`KafkaLog.bounds` asks a silent leader so long afterwards again: each time it holds up the others for
`FIRST_PATIENCE_MS`. Another leader of the same partition is asked as soon as the metadata name him.
"""

LEADERS_EVERY_S: Final = 0.5
"""While a leader is silent, `KafkaLog.bounds` looks so often whether the partition has another one. A broker
that has died is without its partitions after 9 s (`broker.session.timeout.ms`).
"""

LOST_S: Final = 30.0
"""For so long after the connection to a broker was lost `KafkaLog.bounds` asks who leads before it asks them:
librdkafka remembers leaders for a quarter of an hour, and would wait for the dead one.
"""

LATE_SHARE: Final = 0.9
"""An answer that comes after this part of the time that it may take has waited for a silent leader."""

TEXT_S: Final = 10.0
"""Who leads a partition in trouble is asked so often, to say it."""

LEADERLESS_S: Final = 1.0
"""A client that finds no leader is replaced at this age: it may go on finding none when there is one. Not
sooner, since there may be none for ten seconds, and each try takes some ms.
"""

_ASKER: Mapping[str, Any] = MappingProxyType({**FORCED, **SILENT, "isolation.level": "read_committed"})
"""Settings of the consumer that asks for offsets. With this isolation librdkafka asks for stable ones: what
was committed in a transaction counts as soon as the commit was answered. Nobody polls it, so no line of its
log may queue up."""

_LATEST: Final[OffsetSpec] = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the package's stubs
_EARLIEST: Final[OffsetSpec] = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # the package's stubs
_SPECS: Mapping[Bound, OffsetSpec] = MappingProxyType(
    {Bound.START: _EARLIEST, Bound.END: _LATEST, Bound.STABLE_END: _LATEST}
)

_OF_A_PARTITION: Final = TRANSIENT | SILENCE | {KafkaError._NOENT}
"""Errors of one partition in an answer about several that may pass."""


class _Answer(NamedTuple, Generic[T]):
    """What one request got, by partition: a value or an error, which may pass."""

    found: dict[TopicPartition, T]
    errors: dict[TopicPartition, KafkaError]

    @property
    def is_silence(self) -> bool:
        """Whether nobody answered at all."""
        return not self.found and all(error.code() in SILENCE for error in self.errors.values())


class _Listed(NamedTuple):
    """The answer about some offsets, and the epochs of the leaders that gave it, where they said so."""

    answer: _Answer[int]
    epochs: dict[TopicPartition, int]


class _Silent(NamedTuple):
    """Why a leader did not answer, and until when it is not asked (`Clock`).

    `leader` is the id of its broker; -1: the metadata named none, None: no broker gave the metadata.
    """

    error: KafkaError
    until_s: float
    leader: int | None


class _Text(NamedTuple):
    """What is said of a partition in trouble, and since when (`Clock`)."""

    text: str
    at_s: float


class ThreadCall(Generic[T]):
    """A call in a thread of its own, which ends with it; implements `acker.kafka.port.UnderWay`."""

    def __init__(self, call: Callable[[], T]) -> None:
        """Begin the call."""
        thread = ThreadPoolExecutor(1, "windhover-beside")
        self._future = thread.submit(call)
        thread.shutdown(wait=False)

    def is_over(self, wait_ms: int = 0) -> bool:
        return bool(wait([self._future], wait_ms / 1000).done)

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

        `process` tells members of a group apart that have one `client_id`: a host and a number.
        """
        self._client = KafkaClient(settings, client_id, operation_timeout_ms, clock, sleep)
        self._long_read = LongWait()
        self._progress_ms = 0
        self._member_id = f"{client_id}-{process}" if process else client_id
        self._make_admin = make_admin
        self._background = Background(clock)
        self._clock = clock
        self._admin: AdminClient | None = None
        self._cluster_id: str | None = None
        self._admin_since = 0.0
        self._asker: tuple[str, Consumer] | None = None
        self._silent: dict[TopicPartition, _Silent] = {}
        self._silent_brokers: dict[int, _Silent] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._leaders_s = clock()
        self._texts: dict[TopicPartition, _Text] = {}

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
        return KafkaTransactions(self._client, transactional_id, self._forbidden)

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
        # In this order: an end that is asked for afterwards may lie behind a record that came meanwhile.
        ends = self.ends(partitions)
        return _or_end(self._offsets(timestamp_ms, ends), ends)

    def bounds(self, bound: Bound | int, partitions: Iterable[TopicPartition]) -> OffsetAnswers:
        places = tuple(dict.fromkeys(partitions))
        if isinstance(bound, Bound):
            return self._bounds(bound, places)
        ends = self._bounds(Bound.END, places)  # first, as in `offsets_at`
        times = self._bounds(bound, ends.offsets)
        return OffsetAnswers(_or_end(times.offsets, ends.offsets), {**ends.troubles, **times.troubles})

    def intact_to(self, read: Mapping[TopicPartition, ReadTo]) -> Mapping[TopicPartition, int]:
        return intact_to(self._client, read) if read else {}

    def cluster_id(self) -> str:
        if self._cluster_id is None:
            use = Use(Operation.DESCRIBE)
            self._cluster_id = self._ask("id of the cluster", self._ask_for_cluster_id, use)
        return self._cluster_id

    def _ask_for_cluster_id(self, timeout_s: float) -> str:
        future = self._connected().describe_cluster(request_timeout=timeout_s)
        return settled(future, timeout_s, Use(Operation.DESCRIBE)).cluster_id or ""

    def topics(self, names: Iterable[str], *, settings: bool = False) -> Mapping[str, TopicInfo]:
        requested = list(dict.fromkeys(names))
        if not requested:
            return {}
        return self._ask(
            f"describing {', '.join(requested)}",
            lambda timeout_s: describe_topics(self._connected(), requested, timeout_s, settings=settings),
            Use(Operation.DESCRIBE, topic=", ".join(requested)),
        )

    def missing_brokers(self, names: Iterable[str]) -> Sequence[MissingBroker]:
        needed = frozenset(names)

        def ask(timeout_s: float) -> list[MissingBroker]:
            metadata = self._connected().list_topics(timeout=timeout_s)
            return missing_in(metadata, needed, self._silent_now())

        return self._ask("asking which brokers there are", ask, Use(Operation.DESCRIBE))

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the offsets that a group has committed; it waits for an open transaction of the group."""
        found = self._committed(group, partitions)
        return {TopicPartition(p.topic, p.partition): p.offset for p in found}

    def committed_epochs(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        found = self._committed(group, partitions)
        return {
            TopicPartition(p.topic, p.partition): p.leader_epoch for p in found if p.leader_epoch is not None
        }

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        metadata: str = "",
        epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> None:
        if not offsets:
            return
        requested = [
            confluent_kafka.TopicPartition(p.topic, p.partition, offset, metadata, epochs.get(p, NO_EPOCH))
            for p, offset in offsets.items()
        ]
        request = ConsumerGroupTopicPartitions(group, requested)
        use = Use(Operation.READ, group=group)

        def ask(timeout_s: float) -> None:
            futures = self._connected().alter_consumer_group_offsets([request], request_timeout=timeout_s)
            _sound(settled(futures[group], timeout_s, use).topic_partitions, Operation.READ)

        self._ask(f"committing offsets of group {group}", ask, use)

    def commit_metadata(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, str]:
        found = self._committed(group, partitions)
        return {TopicPartition(p.topic, p.partition): p.metadata or "" for p in found}

    def members(self, group: str) -> Sequence[GroupMember]:
        use = Use(Operation.DESCRIBE, group=group)

        def make() -> AdminClient:
            return self._client.make(self._make_admin, {}, LOGGED, self._background)

        def ask(timeout_s: float) -> Sequence[GroupMember]:
            try:
                found = describe_group(make, group, timeout_s)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                    return ()
                raise
            is_shared = found.state is ConsumerGroupState.STABLE  # else the broker names no assignments
            members = (
                GroupMember(
                    f"{each.client_id} on {each.host.lstrip('/')}",
                    frozenset(p.partition for p in each.assignment.topic_partitions) if is_shared else None,
                    each.member_id,
                )
                for each in found.members
            )
            return sorted(members, key=lambda each: each.name)

        return self._ask(f"members of group {group}", ask, use, of_one=True)

    def delete_before(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, str]:
        if not offsets:
            return {}
        requested = [client_partition(p, offset) for p, offset in offsets.items()]

        def ask(timeout_s: float) -> _Answer[object]:
            futures = self._connected().delete_records(requested, request_timeout=timeout_s)
            answer = self._sorted(futures, timeout_s, Operation.DELETE)
            _require_an_answer(answer)
            return answer

        names = ", ".join(sorted({p.topic for p in offsets}))
        use = Use(Operation.DELETE, topic=names)
        answer = self._ask(f"deleting records of {names}", ask, use)
        self._note_silence(answer)
        return self._texts_of(answer.errors)

    def passed_over(self) -> Sequence[DamagedRun]:
        return list(self._client.passed_over)

    def note_progress(self, place: TopicPartition, position: int, end: int) -> None:
        now_ms = int(self._client.clock() * 1000)
        if now_ms - self._progress_ms > PROGRESS_PAUSE_MS:  # nothing was read in between: another read
            self._long_read.over()
        self._progress_ms = now_ms
        waited_ms = self._long_read.look("read", now_ms)
        if waited_ms is not None:
            where = {"partition": f"{place.topic}/{place.partition}", "offset": position, "end": end}
            _log.warning("a long read goes on", extra={"waited_s": waited_ms // 1000, **where})

    def close(self) -> None:
        self._admin = self._asker = None

    def _offsets(self, bound: Bound | int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Ask until there is an answer for each partition; else `PartitionStands`, or `Unreachable`."""
        places = tuple(partitions)
        if not places:
            return {}

        def ask(timeout_s: float) -> dict[TopicPartition, int]:
            answer = self._listed(bound, places, timeout_s).answer
            _require_an_answer(answer)
            if answer.errors:
                error = next(iter(answer.errors.values()))
                raise Troubled(error, lambda: self._texts_of(answer.errors))
            return answer.found

        doing, use = _doing(bound, places)
        return self._ask(doing, ask, use)

    def _bounds(self, bound: Bound | int, places: Collection[TopicPartition]) -> OffsetAnswers:
        """Ask for what can be answered now. Leaders that were silent a moment ago are not asked."""
        self._forget_silence()
        self._note_led_by_silent(places)
        errors = {place: self._silent[place].error for place in places if place in self._silent}
        answering = [place for place in places if place not in errors]
        if not answering:
            return OffsetAnswers({}, self._texts_of(errors))

        def ask(timeout_s: float) -> _Listed:
            self._learn_leaders(answering)
            listed = self._listed(bound, answering, timeout_s)
            _require_an_answer(listed.answer)
            return listed

        doing, use = _doing(bound, answering)
        answer, epochs = self._ask(doing, ask, use, of_one=True)
        self._note_silence(answer)
        # that of a start is the epoch of the first record, and says nothing of the leader
        of_leaders = {} if bound is Bound.START else epochs
        return OffsetAnswers(answer.found, self._texts_of({**errors, **answer.errors}), of_leaders)

    def _listed(self, bound: Bound | int, places: Collection[TopicPartition], timeout_s: float) -> _Listed:
        """Ask once. Raises `KafkaException` for what concerns no single partition, or will not pass."""
        is_stable = bound is Bound.STABLE_END
        isolation = IsolationLevel.READ_COMMITTED if is_stable else IsolationLevel.READ_UNCOMMITTED
        spec = _SPECS[bound] if isinstance(bound, Bound) else OffsetSpec.for_timestamp(bound)
        requested = {client_partition(place): spec for place in places}
        sent_s = self._clock()
        futures = self._connected().list_offsets(
            requested, isolation_level=isolation, request_timeout=timeout_s
        )
        answer = self._sorted(futures, timeout_s, Operation.DESCRIBE)
        # An answer without error may leave a partition out: at once, under load; or when the time is over,
        # since its leader is silent.
        is_late = self._clock() - sent_s >= LATE_SHARE * timeout_s
        code = KafkaError._TIMED_OUT if is_late else KafkaError.LEADER_NOT_AVAILABLE
        left_out = KafkaError(code, "the answer leaves it out")
        offsets = {place: result.offset for place, result in answer.found.items()}
        errors = dict(answer.errors)
        for place, offset in list(offsets.items()):
            # -1 means that there is no record so late; a start and an end there always is
            if offset == OFFSET_INVALID or (offset < 0 and isinstance(bound, Bound)):
                errors[place] = left_out
                del offsets[place]
        epochs = {
            place: result.leader_epoch
            for place, result in answer.found.items()
            if result.leader_epoch is not None and result.leader_epoch >= 0
        }
        return _Listed(_Answer(offsets, errors), epochs)

    def _sorted(
        self,
        futures: Mapping[confluent_kafka.TopicPartition, Future[T]],
        timeout_s: float,
        operation: Operation,
    ) -> _Answer[T]:
        """Wait for the answers about some partitions; raise what concerns all of them, or will not pass."""
        found: dict[TopicPartition, T] = {}
        errors: dict[TopicPartition, KafkaError] = {}
        for requested, future in futures.items():
            place = TopicPartition(requested.topic, requested.partition)
            try:
                found[place] = settled(future, timeout_s, Use(operation, topic=place.topic))
            except KafkaException as error:
                if error.args[0].code() not in _OF_A_PARTITION:
                    raise
                errors[place] = error.args[0]
        if any(error.code() == KafkaError._NOENT for error in errors.values()):
            self._require_existing(errors, timeout_s)
            no_leader = KafkaError(KafkaError.LEADER_NOT_AVAILABLE, "no leader")
            errors = dict.fromkeys(errors, no_leader)
        if any(error.code() in _STALE_LEADER for error in errors.values()):
            # librdkafka remembers leaders for a quarter of an hour, even when they refuse
            for topic in {place.topic for place in errors}:
                self._connected().list_topics(topic, timeout=timeout_s)
        return _Answer(found, errors)

    def _require_existing(self, places: Iterable[TopicPartition], timeout_s: float) -> None:
        """Raise `KafkaException` where a partition does not exist, or may not be described."""
        for place in places:
            # asked for by its name: among all topics, one that we may not know of would just be missing
            topic = self._connected().list_topics(place.topic, timeout_s).topics[place.topic]
            if topic.error is not None and topic.error.code() in UNAUTHORIZED:
                raise Refused(topic.error, Use(Operation.DESCRIBE, topic=place.topic))
            if place.partition not in topic.partitions:
                name = f"{place.topic}/{place.partition}"
                raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, name))

    def _note_silence(self, answer: _Answer[Any]) -> None:
        """Remember which leaders were silent, and give up the admin client that has waited for them.

        `answer` is that to a question about several partitions. `_bounds` does not ask the silent leaders
        again before `SILENT_AGAIN_S` are over, unless the partition gets another one.
        """
        now_s, errors = self._clock(), answer.errors
        silent = {place: error for place, error in errors.items() if error.code() in SILENCE}
        for place, error in silent.items():
            self._silent[place] = _Silent(error, now_s + SILENT_AGAIN_S, self._leaders.get(place))
        # who has answered for another partition of the same question is no silent broker
        answering = {self._leaders.get(place) for place in answer.found}
        for place in silent:
            leader = self._leaders.get(place)
            if leader is not None and leader >= 0 and leader not in answering:
                self._silent_brokers[leader] = self._silent[place]
        # Its request timed out, so it may not meet that broker again (`FIRST_PATIENCE_MS`). A client that has
        # found no leader for long is replaced, too: it may go on finding none when there is one.
        client_age_s = now_s - self._admin_since
        if silent or (errors and client_age_s >= SILENT_AGAIN_S):
            self._give_up_admin()

    def _forget_silence(self) -> None:
        """Let leaders be asked that were silent long ago, and those that others have taken the place of."""
        now_s = self._clock()
        silent = {place: silence for place, silence in self._silent.items() if now_s < silence.until_s}
        if silent and now_s - self._leaders_s >= LEADERS_EVERY_S:
            leaders = self._leaders_of(silent)
            silent = {
                place: silence
                for place, silence in silent.items()
                if leaders.get(place, silence.leader) == silence.leader
            }
        self._silent = silent

    def _note_led_by_silent(self, places: Iterable[TopicPartition]) -> None:
        """Note as silent what a silent broker leads besides.

        Each question that met it with other partitions waited `FIRST_PATIENCE_MS` for it: a view of five
        such questions took 15 s.
        """
        silent = self._silent_now()
        others = [place for place in places if place not in self._silent]
        if not silent or not others:
            return
        leaders = self._leaders_of(others)
        self._leaders |= leaders
        for place, leader in leaders.items():
            if leader in silent:
                self._silent[place] = silent[leader]

    def _silent_now(self) -> Mapping[int, _Silent]:
        """Return the brokers, by id, that answered for nothing that they lead a moment ago."""
        now_s = self._clock()
        brokers = self._silent_brokers.items()
        self._silent_brokers = {number: silence for number, silence in brokers if now_s < silence.until_s}
        return self._silent_brokers

    def _learn_leaders(self, places: Collection[TopicPartition]) -> None:
        """Let the client learn who leads, once, and anew when a broker was lost a moment ago."""
        if self._admin is not None:
            self._admin.poll(0)  # what its threads have reported goes to `Background`
        is_due = self._clock() - self._leaders_s >= LEADERS_EVERY_S
        if not self._leaders.keys() >= set(places) or (is_due and self._background.lost_within(LOST_S)):
            self._leaders |= self._leaders_of(places)

    def _leaders_of(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Ask which brokers lead partitions, -1 for none; without those whose topic nobody describes.

        librdkafka then sends questions about these partitions to the same brokers.
        """
        self._leaders_s = self._clock()
        leaders: dict[TopicPartition, int] = {}
        for topic, of_topic in by_topic(places).items():
            with suppress(KafkaException):  # whoever leads them, they are asked again in `SILENT_AGAIN_S`
                partitions = self._connected().list_topics(topic, LEADERS_S).topics[topic].partitions
                for place in of_topic:
                    if place.partition in partitions:
                        leaders[place] = partitions[place.partition].leader
        return leaders

    def _texts_of(self, errors: Mapping[TopicPartition, KafkaError]) -> dict[TopicPartition, str]:
        """Return who should have answered for partitions in trouble, and where their replicas are."""
        now_s = self._clock()
        self._texts = {place: text for place, text in self._texts.items() if now_s - text.at_s < TEXT_S}
        for topic in {place.topic for place in errors.keys() - self._texts.keys()}:
            own = {place: error for place, error in errors.items() if place.topic == topic}
            with suppress(KafkaException):  # the text then says less
                metadata = self._connected().list_topics(topic, FIRST_PATIENCE_MS / 1000)
                self._texts |= {
                    place: _Text(trouble_text(metadata, place, error.name()), now_s)
                    for place, error in own.items()
                }
        unknown = _Text("has no answer from its leader", now_s)
        return {place: self._texts.get(place, unknown).text for place in errors}

    def _committed(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> list[confluent_kafka.TopicPartition]:
        requested = [client_partition(p) for p in partitions]
        if not requested:
            return []
        use = Use(Operation.DESCRIBE, group=group)

        def ask(timeout_s: float) -> list[confluent_kafka.TopicPartition]:
            asker = self._asker_of(group)
            try:
                found = asker.committed(requested, timeout_s)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                    return []  # as some brokers say of a group that has committed nothing; Kafka's own do not
                self._asker = None
                event = asker.poll(0)  # only the consumer's own thread knows that we may not ask
                refused = None if event is None else event.error()
                if refused is not None and refused.code() in UNAUTHORIZED:
                    raise Refused(refused, use) from None
                raise
            answered = [p for p in found if not _is_of_no_group(p)]
            return [p for p in _sound(answered, Operation.DESCRIBE) if p.offset >= 0]

        return self._ask(f"offsets of group {group}", ask, use, of_one=True)

    def _ask(self, doing: str, question: Callable[[float], T], use: Use, *, of_one: bool = False) -> T:
        """Ask until there is an answer, each time with more patience, and anew where none came at all.

        `of_one`: one broker alone can answer, a leader or a coordinator. If it shares a deadline with others,
        it is asked once while a broker is known to be silent. What any broker can answer is asked on: that
        one is missing has to be found out, or what it hides would be called gone.
        """
        deadline = self._client.deadline(is_one_silent=of_one and bool(self._silent_now()))
        patience_s = accumulate(
            repeat(FIRST_PATIENCE_MS / 1000), lambda last, _: min(2 * last, LAST_PATIENCE_MS / 1000)
        )

        def ask() -> T:
            try:
                return question(max(min(next(patience_s), deadline.left_s), deadline.least_s, 0.1))
            except KafkaException as error:
                code, age_s = error.args[0].code(), self._clock() - self._admin_since
                is_leaderless = code == KafkaError.LEADER_NOT_AVAILABLE and age_s >= LEADERLESS_S
                if code in _STALE_CLIENT or is_leaderless:
                    self._give_up_admin()
                raise

        return self._client.retry(doing, deadline, ask, self._background, use)

    def _give_up_admin(self) -> None:
        if self._admin is not None:
            self._admin.poll(0)  # what its threads have reported goes to `Background`
            self._admin = None
            self._cluster_id = None  # the next client may find another cluster behind the same name
            self._leaders = {}

    def _connected(self) -> AdminClient:
        if self._admin is None:
            self._admin_since = self._clock()
            self._admin = self._client.make(self._make_admin, {}, LOGGED, self._background)
        return self._admin

    def _asker_of(self, group: str) -> Consumer:
        if self._asker is None or self._asker[0] != group:
            self._asker = None
            consumer = self._client.make(Consumer, {}, {**_ASKER, "group.id": group}, self._background)
            self._asker = group, consumer
        return self._asker[1]

    def _forbidden(self, operation: Operation, names: Collection[str]) -> list[str]:
        """Return the topics that we may not use so; a writer asks it, in whatever thread it works."""
        requested, deadline = AclOperation[operation.name], self._client.deadline()
        use = Use(Operation.DESCRIBE, topic=", ".join(names))

        def ask() -> list[str]:
            # The log's own client is for one thread at a time. One that got no answer is given up.
            admin = self._client.make(self._make_admin, {}, LOGGED, self._background)
            timeout_s = max(deadline.piece_s, 0.1)
            futures = admin.describe_topics(
                TopicCollection(list(names)), include_authorized_operations=True, request_timeout=timeout_s
            )
            allowed = {name: settled(f, timeout_s, use).authorized_operations for name, f in futures.items()}
            return [name for name, rights in allowed.items() if requested not in (rights or ())]

        doing = f"asking for rights to {use.topic}"
        return self._client.retry(doing, deadline, ask, self._background, use)


def missing_in(
    metadata: ClusterMetadata, names: Collection[str], silent: Collection[int] = ()
) -> list[MissingBroker]:
    """Return the brokers that metadata name as replicas of topics, and do not list among the brokers.

    `silent` are brokers that they list and that did not answer us.
    """
    copies: Counter[int] = Counter()
    leaderless: Counter[int] = Counter()
    for name in names:
        topic = metadata.topics.get(name)
        for partition in () if topic is None else topic.partitions.values():
            has_leader = partition.leader in metadata.brokers
            for number in partition.replicas:
                copies[number] += 1
                leaderless[number] += not has_leader
    return [
        MissingBroker(number, count, leaderless[number], is_silent=number in metadata.brokers)
        for number, count in sorted(copies.items())
        if number not in metadata.brokers or number in silent
    ]


def copies_in_sync(metadata: ClusterMetadata, names: Collection[str]) -> dict[str, tuple[int, int]]:
    """Return of the topics that lack copies in sync how many the worst partition has, and should have."""
    lacking: dict[str, tuple[int, int]] = {}
    for name in names:
        topic = metadata.topics.get(name)
        for partition in () if topic is None else topic.partitions.values():
            # a leader that is gone is still named as the last one in sync
            in_sync = len(set(partition.isrs) & metadata.brokers.keys())
            expected = len(partition.replicas)
            if in_sync < min(expected, lacking.get(name, (expected, 0))[0]):
                lacking[name] = in_sync, expected
    return lacking


def _doing(bound: Bound | int, places: Iterable[TopicPartition]) -> tuple[str, Use]:
    """Return what a question is about, for messages."""
    topics = sorted({place.topic for place in places})
    what = bound.value if isinstance(bound, Bound) else "times"
    return f"{what} of {', '.join(topics)}", Use(Operation.DESCRIBE, topic=topics[0])


def _or_end(
    found: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return offsets of a time; where there is no record so late, the end."""
    return {place: ends[place] if offset < 0 else offset for place, offset in found.items()}


def _require_an_answer(answer: _Answer[T]) -> None:
    """Raise `KafkaException` where no leader answered: then nobody may, and the question is asked again."""
    if answer.is_silence:
        raise KafkaException(next(iter(answer.errors.values())))


def _is_of_no_group(partition: confluent_kafka.TopicPartition) -> bool:
    return partition.error is not None and partition.error.code() == KafkaError.GROUP_ID_NOT_FOUND


def _sound(
    partitions: list[confluent_kafka.TopicPartition], operation: Operation
) -> list[confluent_kafka.TopicPartition]:
    for partition in partitions:
        if partition.error is not None:
            raise Refused(partition.error, Use(operation, topic=partition.topic))
    return partitions


OLD_BROKER: Final = (
    "the broker does not give the ids of topics, so it is older than Kafka 2.8; Windhover works with 2.8 and"
    " newer: upgrade the broker"
)


def describe_topics(
    admin: AdminClient, names: Iterable[str], timeout_s: float, *, settings: bool
) -> dict[str, TopicInfo]:
    """Return those of the named topics that exist, in the order of the names, each once.

    `timeout_s` is for each of two answers: with `settings` theirs are asked for too.
    """
    requested = list(names)
    futures = admin.describe_topics(TopicCollection(requested), request_timeout=timeout_s)
    try:
        described = _existing(futures, timeout_s, Operation.DESCRIBE)
    except KafkaException as error:
        # librdkafka looks for ids of topics in the answer, which came with 2.8
        if error.args[0].code() == KafkaError._BAD_MSG:
            raise ConfigError(OLD_BROKER) from error
        raise
    configured = _settings(admin, described, timeout_s) if settings and described else {}
    if settings:  # one may have gone between the two questions
        described = {name: found for name, found in described.items() if name in configured}
    return {
        name: TopicInfo(
            name=name,
            id=str(found.topic_id),
            partitions=len(found.partitions),
            replication=min((len(part.replicas) for part in found.partitions), default=0),
            settings=configured.get(name, {}),
        )
        for name in requested
        if (found := described.get(name)) is not None
    }


def describe_group(
    make: Callable[[], AdminClient], group: str, timeout_s: float, *, rights: bool = False
) -> ConsumerGroupDescription:
    """Ask the coordinator of a group for it, with our `rights` to it, through a client that `make` returns.

    The client is gone with the question. One that lives on ends the process when the coordinator has moved,
    or when it meets a coordinator again whose answer it gave up (librdkafka's issues 5315 and 4605). So it
    may not be left to the garbage collector either, which an error's traceback would do.
    """
    admin = make()
    try:
        futures = admin.describe_consumer_groups(
            [group], include_authorized_operations=rights, request_timeout=timeout_s
        )
        found: ConsumerGroupDescription = settled(
            futures[group], timeout_s, Use(Operation.DESCRIBE, group=group)
        )
        return found
    finally:
        del admin


def _existing(futures: Mapping[str, Future[T]], timeout_s: float, operation: Operation) -> dict[str, T]:
    """Return the answers for topics that exist, by topic; `operation` is what was asked of them."""
    found: dict[str, T] = {}
    for name, future in futures.items():
        try:
            found[name] = settled(future, timeout_s, Use(operation, topic=name))
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
    return found


def _settings(admin: AdminClient, names: Iterable[str], timeout_s: float) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    futures = {
        place.name: future
        for place, future in admin.describe_configs(resources, request_timeout=timeout_s).items()
    }
    found = _existing(futures, timeout_s, Operation.DESCRIBE_CONFIGS)
    return {
        name: {key: entry.value for key, entry in entries.items() if entry.value is not None}
        for name, entries in found.items()
    }


def settled(future: Future[T], timeout_s: float, use: Use) -> T:
    """Wait for an answer, or a part of one; raise `Refused` where we may not make this `use` of it."""
    try:
        return future.result(timeout_s + 1)
    except TimeoutError as error:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer")) from error
    except KafkaException as error:
        if error.args[0].code() in UNAUTHORIZED:
            raise Refused(error.args[0], use) from error
        raise
