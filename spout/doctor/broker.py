"""Asks a broker what `spout.doctor.live` judges; nothing is changed. What goes wrong is an unknown value."""

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
from acker.kafka.cluster import KafkaLog, answer_of, copies_in_sync, describe_group, missing_in
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
WATCH_MS: Final = 1_500
"""How long new records are watched for that tell a clock."""

WATCH_EVERY_S: Final = 0.1
SIGNS_MAX: Final = 1_000
"""Of each partition of `_ack_due` so many of the last records are read for the progress of its worker."""

BROKER_TOPICS: Final = ("__transaction_state", "__consumer_offsets")
"""Brokers write into these with their own clock."""

T = TypeVar("T")
Wall = Callable[[], int]
_ANSWERS: Final = re.compile(r"ApiKey (\w+) \(-?\d+\) Versions \d+\.\.(\d+)")


class _RequestVersions(logging.Handler):
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

    def __init__(self, topics: Topics, wall_ms: Wall, deadline_ms: int = DEADLINE_MS) -> None:
        """Make the client; `ConfigError`: librdkafka refuses a setting. `wall_ms` is this machine's clock."""
        self._topics = topics
        self._wall_ms = wall_ms
        self._client = KafkaClient(topics.kafka, "windhover-doctor", deadline_ms, time.monotonic)
        self._background = Background(time.monotonic)
        self._admin = self._client.make_client(AdminClient, {}, LOGGED, self._background)

    def facts(self, file: str) -> BrokerFacts:
        """Ask all questions; if the first one gets no answer, no other is asked.

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
        self._client.share_deadline()  # one of several brokers may be silent all the same
        input_groups = sorted({input.group for input in self._topics.inputs.values()})
        service_groups = (self._topics.acker.group, self._topics.acker.replay_group)
        group_answers = {group: self._group(group) for group in (*input_groups, *service_groups)}
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
            members={
                group: group_answers[group].then(lambda answer: answer.members) for group in input_groups
            },
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
        # nobody has this operation but who may do everything
        may_do_everything = AclOperation.CLUSTER_ACTION in (cluster_operations.value or ())
        return Allowed(may_do_everything, operations)

    def services(self, file: str) -> ServiceFacts:
        """Ask who is in the groups of ackers and replay workers, and read who wrote the last States."""
        acker = self._topics.acker
        members = {group: self._service_members(group) for group in (acker.group, acker.replay_group)}
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
                # all partitions are of one topic: the others have the same error
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
        """Return the signs of the last minutes: a clock may have been set right since an older one."""
        now_ms = self._wall_ms()
        return {
            partition: sign
            for partition, sign in signs.items()
            if sign.appended_ms is not None and now_ms - sign.appended_ms <= YOUNG_MS
        }

    def _signs_of_workers(self, log: KafkaLog) -> Mapping[int, WriterTime]:
        """Return by partition when a replay worker wrote its progress last, as far back as is read."""
        tails = Tails(log, int(PATIENCE_S * 1_000), SIGNS_MAX)
        fold = progress_and_pauses()
        signs: dict[int, WriterTime] = {}
        for partition in range(self._topics.acker.partitions):
            # records come in their order: the last progress stays
            for record in tails.last(self._topics.ack_topics.due, partition, ""):
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
                host = member.host.lstrip("/")  # Kafka writes an address as "/10.0.0.1"
                places = member.assignment.topic_partitions or ()
                members.append(
                    ServiceMember(
                        name=f"{member.client_id} on {host}",
                        topics=frozenset(place.topic for place in places),
                        host=host,
                        partitions=frozenset(place.partition for place in places),
                    )
                )
            return members

        return self._reading(lambda: self._ask(f"describing group {group}", ask, use))

    def _new_admin(self) -> AdminClient:
        return self._client.make_client(AdminClient, {}, LOGGED, self._background)

    def _last_state(self, log: KafkaLog, partition: int) -> LastState | None:
        """Read the last State of an acker partition; None: nobody has written one."""
        place = kafka_port.TopicPartition(self._topics.ack_topics.state, partition)
        return read_last_state(log, place, state_codec(), wait_ms=int(PATIENCE_S * 1_000))

    def servers(self) -> Reading[Sequence[tuple[str, int]]]:
        """Return host and port of each bootstrap server, and of each broker as clients are sent to it."""
        bootstrap_servers = kafka_servers(self._client.bootstrap)
        try:
            brokers = self._admin.list_topics(timeout=PATIENCE_S).brokers.values()
        except KafkaException:
            return Reading(bootstrap_servers)  # they are to be reached in any case
        advertised = [(str(broker.host), broker.port) for broker in brokers]
        without_repeats = dict.fromkeys([*bootstrap_servers, *advertised])
        return Reading(list(without_repeats))

    def _cluster(self) -> str:
        """Return the cluster's id and how many brokers it has, as a text."""
        metadata = self._admin.list_topics(timeout=PATIENCE_S)
        count = len(metadata.brokers)
        return f"cluster {metadata.cluster_id}, {count} broker{'s' if count != 1 else ''}"

    def _replicas(self) -> tuple[Sequence[MissingBroker], Mapping[str, tuple[int, int]]]:
        """Return which brokers are missing, and which topics lack copies in sync; see `BrokerFacts`."""
        names = topics_of_installation(self._topics)
        question = partial(self._admin.list_topics, timeout=PATIENCE_S)
        metadata = self._reading(lambda: self._ask("asking which brokers there are", question)).value
        if metadata is None:
            return (), {}
        return missing_in(metadata, names), copies_in_sync(metadata, names)

    def _versions(self) -> Reading[Mapping[str, int]]:
        """Read which requests the broker answers from librdkafka's log, the only place that has them."""
        request_versions = _RequestVersions()
        logger = logging.Logger("doctor")
        logger.addHandler(request_versions)
        debug = {"debug": "feature", "log_level": 7, "logger": logger}
        admin = self._client.make_client(AdminClient, {}, debug, self._background)
        try:
            admin.list_topics(timeout=PATIENCE_S)
        except KafkaException as error:
            return Reading(unknown=str(self._client.error(error.args[0], "asking for what it answers")))
        admin.poll(1.0)  # serves the log
        if not request_versions.versions:
            return Reading(unknown="the client does not log it")
        return Reading(request_versions.versions)

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
            TopicCollection(sorted(names)), include_authorized_operations=True, request_timeout=PATIENCE_S
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
            return Reading(unknown=str(self._client.error(error.args[0], f"describing {use.topic}")))
        return Reading(_port_operations(description.authorized_operations))

    def _group(self, group: str) -> Reading[_GroupAnswer]:
        """Ask what we may do with a group, and who is in it."""
        use = Use(Operation.DESCRIBE, group=group)

        def ask() -> _GroupAnswer:
            description = describe_group(self._new_admin, group, PATIENCE_S, rights=True)
            members = [f"{member.client_id} on {member.host.lstrip('/')}" for member in description.members]
            return _GroupAnswer(_port_operations(description.authorized_operations), members)

        return self._reading(lambda: self._ask(f"describing group {group}", ask, use))

    def _skew(self, names: Iterable[str]) -> Reading[int]:
        """Watch topics for new records, and return by how many ms their clock is ahead of ours."""
        places = self._reading(lambda: self._ask("listing topics", lambda: self._places(names)))
        if not places.value:
            return Reading(unknown=places.unknown or f"there is no topic {' or '.join(names)}")
        polls: list[Poll] = []
        until = time.monotonic() + WATCH_MS / 1000
        while time.monotonic() < until:
            before_ms = self._wall_ms()
            newest = self._reading(lambda: self._ask("listing offsets", lambda: self._newest(places.value)))
            if newest.value is None:
                return Reading(unknown=newest.unknown)
            polls.append(Poll(before_ms, self._wall_ms(), newest.value))
            time.sleep(WATCH_EVERY_S)
        ahead_ms = skew_ms(polls)
        if ahead_ms is None:
            return Reading(unknown=f"nothing was written for {WATCH_MS} ms")
        return Reading(ahead_ms)

    def _drivers_ahead_ms(self) -> int | None:
        """Return by how much a driver's clock is ahead of ours, of several the worst; None: unknown.

        The broker dates the signs of life, and the drivers say in them what their clocks say.
        """
        topics = self._topics
        with closing(self._log()) as log:
            partitions = range(topics.acker.partitions)
            signs = [kafka_port.TopicPartition(topics.ack_topics.init, partition) for partition in partitions]
            clocks = watch_clocks(log, signs, self._wall_ms)
            if clocks.here_ahead_ms is None:
                return clocks.driver_ahead_ms
            broker_now_ms = self._wall_ms() - clocks.correction_ms
            groups = {input.group for input in topics.inputs.values() if input.tracked}
            queries = [live_query(log, topics, group, broker_now_ms) for group in groups]
        # both are ahead of the broker: their difference is how far a driver is ahead of this machine
        aheads_ms = [query.ahead_ms for query in queries if query.ahead_ms is not None]
        ahead_of_us_ms = [ahead_ms - clocks.here_ahead_ms for ahead_ms in aheads_ms]
        return max(ahead_of_us_ms, key=abs, default=None)

    def _reading_or_none(self, question: Callable[[], int | None]) -> Reading[int]:
        """Ask by a question whose answer is None where no query has written anything."""
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
        log.share_deadline()  # of partitions without a leader only the first one is waited for
        return log

    def _places(self, names: Iterable[str]) -> list[TopicPartition]:
        """Return all partitions of those topics that exist."""
        topics = self._admin.list_topics(timeout=PATIENCE_S).topics
        existing = [topics[name] for name in names if name in topics]
        return [TopicPartition(str(topic.topic), number) for topic in existing for number in topic.partitions]

    def _newest(self, places: Sequence[TopicPartition] | None) -> int:
        """Return the time in ms of the newest record of some partitions."""
        latest: OffsetSpec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]  # the client's stubs
        futures = self._admin.list_offsets(dict.fromkeys(places or (), latest), request_timeout=PATIENCE_S)
        use = Use(Operation.DESCRIBE, topic=", ".join(sorted({place.topic for place in futures})))
        return max(int(answer_of(future, PATIENCE_S, use).timestamp) for future in futures.values())

    def _reading(self, question: Callable[[], T]) -> Reading[T]:
        """Ask a question; if it fails, its answer is unknown for that reason."""
        try:
            return Reading(question())
        except WindhoverError as error:
            return Reading(unknown=str(error))

    def _ask(self, doing: str, question: Callable[[], T], use: Use | None = None) -> T:
        """Ask the broker until it answers or the client's deadline has passed; `doing` names it in errors."""

        def ask() -> T:
            try:
                return question()
            except KafkaException:
                self._admin.poll(0.1)  # what its threads have reported goes to `Background`
                raise

        about = use or Use(Operation.DESCRIBE)
        return self._client.retry(doing, self._client.deadline(), ask, self._background, about)


def _origin_of(state: LastState) -> StateOrigin:
    # in the step of its restore an acker of this version does not note it yet, but names the cluster
    is_former = state.notes.restored is None and not state.cluster
    return StateOrigin(state.state.partitions, is_former)


def _port_operations(acl_operations: Iterable[Enum] | None) -> frozenset[Operation]:
    """Return the operations that we know of; a broker names others beside them."""
    names = {operation.name for operation in acl_operations or ()}
    return frozenset(Operation[name] for name in names & Operation.__members__.keys())
