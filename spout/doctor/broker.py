"""Asks a broker what `spout.doctor.live` judges; an error becomes an unknown value."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but the package has no __all__
    AclOperation,
    AdminClient,
    OffsetSpec,
)

from acker.clock_watch import Poll, skew_ms
from acker.config.topics import Topics
from acker.errors import Disagreement, NotAuthenticated, TopicError, WindhoverError
from acker.kafka import port as kafka_port
from acker.kafka.client import LOGGED, Background, KafkaClient, Refused, Use
from acker.kafka.cluster import (
    KafkaLog,
    answer_of,
    describe_group,
    missing_brokers_in,
    topics_lacking_replicas,
)
from acker.kafka.port import MissingBroker, Operation, Resource
from acker.provisioning.admin import KafkaAdmin
from acker.provisioning.provision import check
from acker.provisioning.roles import Role, rights
from acker.service.state import LastState, read_last_state, state_codec
from acker.writer_clocks import WriterTime, writer_time
from replay.records.due import Progress
from replay.records.due_fold import progress_and_pauses
from spout.doctor.executors import kafka_servers
from spout.doctor.live import Allowed, BrokerFacts
from spout.doctor.services import ServiceFacts, ServiceMember, StateOrigin
from spout.group.clocks import WATCH_MS as SIGNS_WATCH_MS
from spout.group.clocks import YOUNG_MS, watch_clocks
from spout.inspect.overview import live_query, topics_of_installation
from spout.inspect.readings import Reading
from spout.runtime.tails import Tails

DEADLINE_MS: Final = 10_000
"""A broker that does not answer the first question within this is unreachable."""

PATIENCE_S: Final = 3.0
"""How long one question waits for its answer."""

WATCH_MS: Final = 1_500
"""How long topics are watched for new records, whose times show what a clock says."""

WATCH_EVERY_S: Final = 0.1
"""The pause between two looks at the newest records."""

SIGNS_MAX: Final = 1_000
"""How many of the last records of an `_ack_due` partition are read for its worker's progress."""

BROKER_TOPICS: Final = ("__transaction_state", "__consumer_offsets")
"""Brokers write into these with their own clock."""

T = TypeVar("T")
_ANSWERS: Final = re.compile(r"ApiKey (\w+) \(-?\d+\) Versions \d+\.\.(\d+)")


class _VersionLogHandler(logging.Handler):
    """Collects what librdkafka logs of the kinds of requests that a broker answers.

    Attributes:
        versions: of each kind of request the highest version that the broker answers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.versions: dict[str, int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        answer = _ANSWERS.search(record.getMessage())
        if answer:
            request, highest_version = answer.groups()
            self.versions[request] = int(highest_version)


class _GroupAnswer(NamedTuple):
    """What a broker says of a group: what we may do with it, and who is in it (client and host)."""

    operations: frozenset[Operation]
    members: Sequence[str]


class BrokerProbe:
    """A connection for the doctor's questions."""

    def __init__(
        self,
        topics: Topics,
        wall_ms: Callable[[], int],
        deadline_ms: int = DEADLINE_MS,
    ) -> None:
        """Make the client; `ConfigError`: librdkafka refuses a setting. `wall_ms` is our clock."""
        self._topics = topics
        self._wall_ms = wall_ms
        self._client = KafkaClient(topics.kafka, "windhover-doctor", deadline_ms, time.monotonic)
        self._background = Background(time.monotonic)
        self._admin = self._client.make_client(AdminClient, {}, LOGGED, self._background)

    def facts(self, file: str) -> BrokerFacts:
        """Ask all questions, or only the first one, if it gets no answer.

        `file` is the path of topics.yaml, for the cures.
        """
        bootstrap = self._client.bootstrap
        try:
            cluster = self._ask("asking for the cluster", self._cluster)
        except WindhoverError as error:
            unasked: Reading[Any] = Reading(unknown="it was not asked")
            return BrokerFacts(
                file,
                bootstrap,
                cluster=Reading(unknown=str(error)),
                is_refused=isinstance(error, NotAuthenticated),
                versions=unasked,
                allowed=unasked,
                findings=unasked,
                skews={},
                members={},
            )
        # one of several brokers may be silent, though another one answers
        self._client.share_deadline()
        input_groups = sorted({input.group for input in self._topics.inputs.values()})
        service_groups = (self._topics.acker.group, self._topics.acker.replay_group)
        group_answers = {group: self._group(group) for group in (*input_groups, *service_groups)}
        members = {}
        for group in input_groups:
            members[group] = group_answers[group].then(lambda answer: answer.members)
        admin = KafkaAdmin(self._topics.kafka, deadline_ms=self._client.operation_timeout_ms)
        missing_brokers, copies = self._replicas()
        return BrokerFacts(
            file,
            bootstrap,
            cluster=Reading(cluster),
            is_refused=False,
            versions=self._versions(),
            allowed=Reading(self._allowed(group_answers)),
            findings=self._reading(lambda: check(self._topics, admin).findings),
            skews={
                "clock of the brokers": self._skew(BROKER_TOPICS),
                "clock of the queries' drivers": self._reading_or_none(self._drivers_ahead_ms),
            },
            members=members,
            missing=missing_brokers,
            copies=copies,
        )

    def _allowed(self, group_answers: Mapping[str, Reading[_GroupAnswer]]) -> Allowed:
        """Ask what the broker lets us do with topics, and join it with what is known of groups."""
        cluster_operations = self._reading(
            lambda: self._ask("describing the cluster", self._cluster_operations)
        )
        operations = self._topic_operations()
        for group, group_answer in group_answers.items():
            operations[Resource.GROUP, group] = group_answer.then(lambda answer: answer.operations)
        # only a user who may do everything has this operation
        may_do_everything = AclOperation.CLUSTER_ACTION in (cluster_operations.value or ())
        return Allowed(may_do_everything, operations)

    def services(self, file: str) -> ServiceFacts:
        """Ask who is in the groups of ackers and replay workers, and read who wrote the States."""
        acker = self._topics.acker
        groups = (acker.group, acker.replay_group)
        members = {group: self._service_members(group) for group in groups}
        log = self._log()
        origins: dict[int, Reading[StateOrigin | None]] = {}
        unreadable: dict[int, str] = {}
        signs_of_ackers: dict[int, WriterTime] = {}
        for partition in range(acker.partitions):
            try:
                state = self._last_state(log, partition)
                origins[partition] = Reading(None if state is None else _origin_of(state))
                if state is not None:
                    signs_of_ackers[partition] = state.written
            except TopicError as error:
                # all partitions are of one topic: the remaining ones have the same error
                remaining = range(partition, acker.partitions)
                origins |= dict.fromkeys(remaining, Reading(unknown=str(error)))
                break
            except Disagreement as error:
                unreadable[partition] = str(error)
            except WindhoverError as error:
                origins[partition] = Reading(unknown=str(error))
        signs: dict[str, Reading[Mapping[int, WriterTime]]] = {
            acker.group: Reading(self._lately(signs_of_ackers)),
            acker.replay_group: self._reading(lambda: self._lately(self._signs_of_workers(log))),
        }
        return ServiceFacts(file, members, origins, unreadable, signs)

    def _lately(self, signs: Mapping[int, WriterTime]) -> Mapping[int, WriterTime]:
        """Return the signs of the last minutes: a clock may have been set right since then."""
        now_ms = self._wall_ms()
        return {
            partition: sign
            for partition, sign in signs.items()
            if sign.appended_ms is not None and now_ms - sign.appended_ms <= YOUNG_MS
        }

    def _signs_of_workers(self, log: KafkaLog) -> Mapping[int, WriterTime]:
        """Return by partition when a replay worker wrote its progress last; none: long ago."""
        tails = Tails(log, int(PATIENCE_S * 1_000), SIGNS_MAX)
        fold = progress_and_pauses()
        signs: dict[int, WriterTime] = {}
        for partition in range(self._topics.acker.partitions):
            # records come in the order of their offsets: the last progress replaces the others
            for record in tails.read_last(self._topics.ack_topics.due, partition, ""):
                if isinstance(fold.put(record), Progress):
                    signs[partition] = writer_time(record)
        return signs

    def _service_members(self, group: str) -> Reading[Sequence[ServiceMember]]:
        """Ask which processes are in a group, and which partitions each one has."""
        use = Use(Operation.DESCRIBE, group=group)

        def ask() -> Sequence[ServiceMember]:
            description = describe_group(self._new_admin, group, PATIENCE_S)
            members = []
            for member in description.members:
                places = member.assignment.topic_partitions or ()
                members.append(
                    ServiceMember(
                        name=_name_of(member),
                        topics=frozenset(place.topic for place in places),
                        host=_host_of(member),
                        partitions=frozenset(place.partition for place in places),
                    )
                )
            return members

        return self._reading(lambda: self._ask(f"describing group {group}", ask, use))

    def _new_admin(self) -> AdminClient:
        """Return a client for one question, which logs nothing."""
        return self._client.make_client(AdminClient, {}, LOGGED, self._background)

    def _last_state(self, log: KafkaLog, partition: int) -> LastState | None:
        """Read the last State of an acker partition; None: nobody has written one."""
        place = kafka_port.TopicPartition(self._topics.ack_topics.state, partition)
        return read_last_state(log, place, state_codec(), wait_ms=int(PATIENCE_S * 1_000))

    def servers(self) -> Reading[Sequence[tuple[str, int]]]:
        """Return host and port of each bootstrap server, and those that each broker advertises."""
        bootstrap_servers = kafka_servers(self._client.bootstrap)
        try:
            brokers = self._admin.list_topics(timeout=PATIENCE_S).brokers.values()
        except KafkaException:
            return Reading(bootstrap_servers)  # every client has to reach these in any case
        advertised = [(str(broker.host), broker.port) for broker in brokers]
        without_repeats = dict.fromkeys([*bootstrap_servers, *advertised])
        return Reading(list(without_repeats))

    def _cluster(self) -> str:
        """Return the cluster's id and how many brokers it has, as a text."""
        metadata = self._admin.list_topics(timeout=PATIENCE_S)
        count = len(metadata.brokers)
        return f"cluster {metadata.cluster_id}, {count} broker{'s' if count != 1 else ''}"

    def _replicas(self) -> tuple[Sequence[MissingBroker], Mapping[str, tuple[int, int]]]:
        """Return `missing` and `copies` of `BrokerFacts`; empty: none is missing, or no answer."""
        names = topics_of_installation(self._topics)
        question = partial(self._admin.list_topics, timeout=PATIENCE_S)
        answer = self._reading(lambda: self._ask("asking which brokers there are", question))
        metadata = answer.value
        if metadata is None:
            return (), {}
        return missing_brokers_in(metadata, names), topics_lacking_replicas(metadata, names)

    def _versions(self) -> Reading[Mapping[str, int]]:
        """Read from librdkafka's log, which alone has them, which requests the broker answers."""
        version_handler = _VersionLogHandler()
        logger = logging.Logger("doctor")
        logger.addHandler(version_handler)
        # with this setting the client logs which versions of requests the broker answers
        debug = {"debug": "feature", "log_level": 7, "logger": logger}
        admin = self._client.make_client(AdminClient, {}, debug, self._background)
        try:
            admin.list_topics(timeout=PATIENCE_S)
        except KafkaException as error:
            problem = self._client.error(error.args[0], "asking for what it answers")
            return Reading(unknown=str(problem))
        admin.poll(1.0)  # hands the lines of the log to the logger
        if not version_handler.versions:
            return Reading(unknown="the client does not log it")
        return Reading(version_handler.versions)

    def _cluster_operations(self) -> frozenset[AclOperation]:
        future: Future[Any] = self._admin.describe_cluster(
            include_authorized_operations=True, request_timeout=PATIENCE_S
        )
        description = answer_of(future, PATIENCE_S, Use(Operation.DESCRIBE))
        return frozenset(description.authorized_operations or ())

    def _topic_operations(self) -> dict[tuple[Resource, str], Reading[frozenset[Operation]]]:
        """Ask what we may do with each topic on which some role has a right."""
        needed_rights = [right for role in Role for right in rights(self._topics, role)]
        names = {right.name for right in needed_rights if right.resource is Resource.TOPIC}
        futures = self._admin.describe_topics(
            TopicCollection(sorted(names)),
            include_authorized_operations=True,
            request_timeout=PATIENCE_S,
        )
        return {
            (Resource.TOPIC, name): self._operations(future, Use(Operation.DESCRIBE, topic=name))
            for name, future in futures.items()
        }

    def _operations(self, future: Future[Any], use: Use) -> Reading[frozenset[Operation]]:
        """Return what we may do with a topic; a topic that we may not even see allows nothing."""
        try:
            description = answer_of(future, PATIENCE_S, use)
        except Refused:
            return Reading(frozenset())
        except KafkaException as error:
            problem = self._client.error(error.args[0], f"describing {use.topic}")
            return Reading(unknown=str(problem))
        return Reading(_port_operations(description.authorized_operations))

    def _group(self, group: str) -> Reading[_GroupAnswer]:
        """Ask what we may do with a group, and who is in it."""
        use = Use(Operation.DESCRIBE, group=group)

        def ask() -> _GroupAnswer:
            description = describe_group(self._new_admin, group, PATIENCE_S, rights=True)
            names = [_name_of(member) for member in description.members]
            return _GroupAnswer(_port_operations(description.authorized_operations), names)

        return self._reading(lambda: self._ask(f"describing group {group}", ask, use))

    def _skew(self, names: Iterable[str]) -> Reading[int]:
        """Return by how many ms the clock of those who write topics is ahead of ours.

        The topics are watched for new records for `WATCH_MS`; unknown: there was none.
        """
        places = self._reading(lambda: self._ask("listing topics", lambda: self._places(names)))
        if not places.value:
            return Reading(unknown=places.unknown or f"there is no topic {' or '.join(names)}")
        polls: list[Poll] = []
        until = time.monotonic() + WATCH_MS / 1000
        while time.monotonic() < until:
            before_ms = self._wall_ms()
            question = partial(self._newest, places.value)
            newest = self._reading(partial(self._ask, "listing offsets", question))
            if newest.value is None:
                return Reading(unknown=newest.unknown)
            polls.append(Poll(before_ms, self._wall_ms(), newest.value))
            time.sleep(WATCH_EVERY_S)
        ahead_ms = skew_ms(polls)
        if ahead_ms is None:
            return Reading(unknown=f"nothing was written for {WATCH_MS} ms")
        return Reading(ahead_ms)

    def _drivers_ahead_ms(self) -> int | None:
        """Return by how many ms the driver's clock that differs most is ahead of ours.

        Below 0: it is behind; None: unknown. A sign of life has two times: its driver's, and the broker's.
        """
        topics = self._topics
        with closing(self._log()) as log:
            init_topic = topics.ack_topics.init
            places = [
                kafka_port.TopicPartition(init_topic, partition)
                for partition in range(topics.acker.partitions)
            ]
            clocks = watch_clocks(log, places, self._wall_ms)
            if clocks.here_ahead_ms is None:
                # no record had the broker's time: drivers are compared with this machine itself
                return clocks.driver_ahead_ms
            # with a wrong clock of ours a query that lives would count as gone
            broker_now_ms = self._wall_ms() - clocks.correction_ms
            groups = {input.group for input in topics.inputs.values() if input.tracked}
            queries = [live_query(log, topics, group, broker_now_ms) for group in groups]
        # by the broker's clock a driver 5 s ahead and we 2 s: the driver is 3 s ahead of us
        ahead_of_broker_ms = [query.ahead_ms for query in queries if query.ahead_ms is not None]
        ahead_of_us_ms = [ahead_ms - clocks.here_ahead_ms for ahead_ms in ahead_of_broker_ms]
        return max(ahead_of_us_ms, key=abs, default=None)

    def _reading_or_none(self, question: Callable[[], int | None]) -> Reading[int]:
        """Ask a question whose answer is None if no query gave a sign of life: then unknown."""
        answer = self._reading(question)
        if answer.value is None and not answer.unknown:
            return Reading(unknown=f"no query gave a sign of life for {SIGNS_WATCH_MS} ms")
        return Reading(answer.value, answer.unknown)

    def _log(self) -> KafkaLog:
        log = KafkaLog(
            self._topics.kafka,
            client_id="windhover-doctor",
            operation_timeout_ms=self._client.operation_timeout_ms,
        )
        # one timeout for all reads: of partitions without a leader only the first one is waited for
        log.share_deadline()
        return log

    def _places(self, names: Iterable[str]) -> list[TopicPartition]:
        """Return all partitions of those topics that exist."""
        topics = self._admin.list_topics(timeout=PATIENCE_S).topics
        places = []
        for name in names:
            if name in topics:
                places += [TopicPartition(name, number) for number in topics[name].partitions]
        return places

    def _newest(self, places: Sequence[TopicPartition] | None) -> int:
        """Return the time in ms of the newest record of some partitions; `places` is not empty."""
        latest: OffsetSpec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]  # the client's stubs
        question = dict.fromkeys(places or (), latest)
        futures = self._admin.list_offsets(question, request_timeout=PATIENCE_S)
        use = Use(Operation.DESCRIBE, topic=", ".join(sorted({place.topic for place in futures})))
        return max(int(answer_of(future, PATIENCE_S, use).timestamp) for future in futures.values())

    def _reading(self, question: Callable[[], T]) -> Reading[T]:
        """Ask a question; if it fails, its answer is unknown for that reason."""
        try:
            return Reading(question())
        except WindhoverError as error:
            return Reading(unknown=str(error))

    def _ask(self, doing: str, question: Callable[[], T], use: Use | None = None) -> T:
        """Ask the broker until it answers or the client's deadline has passed.

        `doing` names the question in errors.
        """

        def ask() -> T:
            try:
                return question()
            except KafkaException:
                self._admin.poll(0.1)  # it passes the reports of its threads on to `Background`
                raise

        about = use or Use(Operation.DESCRIBE)
        return self._client.retry(doing, self._client.deadline(), ask, self._background, about)


def _host_of(member: Any) -> str:
    """Return the host of a member as the client describes it: Kafka writes it as "/10.0.0.1"."""
    return str(member.host).lstrip("/")


def _name_of(member: Any) -> str:
    """Return a member's client id and host, as people read them."""
    return f"{member.client_id} on {_host_of(member)}"


def _origin_of(state: LastState) -> StateOrigin:
    """Return who wrote a State: with how many acker partitions, and whether of a former version."""
    # an acker of this version notes its restore only after that step, and always the cluster
    is_former = state.notes.restored is None and not state.cluster
    return StateOrigin(state.state.partitions, is_former)


def _port_operations(acl_operations: Iterable[Enum] | None) -> frozenset[Operation]:
    """Return the operations that Windhover uses; a broker names others beside them."""
    names = {operation.name for operation in acl_operations or ()}
    return frozenset(Operation[name] for name in names & Operation.__members__.keys())
