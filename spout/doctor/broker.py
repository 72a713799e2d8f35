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
from typing import Any, Final, TypeVar

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
from acker.kafka.cluster import KafkaLog, copies_in_sync, describe_group, missing_in, settled
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


class _Lines(logging.Handler):
    """Keeps what librdkafka logs of the kinds of requests that a broker answers."""

    def __init__(self) -> None:
        super().__init__()
        self.versions: dict[str, int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if found := _ANSWERS.search(record.getMessage()):
            self.versions[found[1]] = int(found[2])


class BrokerProbe:
    """A connection for the doctor's questions."""

    def __init__(self, topics: Topics, wall_ms: Wall, deadline_ms: int = DEADLINE_MS) -> None:
        """Make the client; `ConfigError`: librdkafka refuses a setting. `wall_ms` is this machine's clock."""
        self._topics = topics
        self._wall_ms = wall_ms
        self._client = KafkaClient(topics.kafka, "windhover-doctor", deadline_ms, time.monotonic)
        self._background = Background(time.monotonic)
        self._admin = self._client.make(AdminClient, {}, LOGGED, self._background)

    def facts(self, file: str) -> BrokerFacts:
        """Ask all questions; where nothing answers, only the first."""
        bootstrap = self._client.bootstrap
        away: Reading[Any] = Reading(unknown="it was not asked")
        try:
            text = self._ask("asking for the cluster", self._cluster)
        except WindhoverError as error:
            refused = isinstance(error, NotAuthenticated)
            answer: Reading[str] = Reading(unknown=str(error))
            return BrokerFacts(file, bootstrap, answer, refused, away, away, away, {}, {})
        self._client.share_deadline()  # one of several brokers may be silent all the same
        groups = sorted({each.group for each in self._topics.inputs.values()})
        own = (self._topics.acker.group, self._topics.acker.replay_group)
        found = {group: self._group(group) for group in (*groups, *own)}
        ours = self._reading(lambda: self._ask("describing the cluster", self._cluster_operations))
        allowed = Allowed(
            AclOperation.CLUSTER_ACTION in (ours.value or ()),  # only who may do everything has this one
            self._topic_operations()
            | {(Resource.GROUP, group): each.then(lambda pair: pair[0]) for group, each in found.items()},
        )
        admin = KafkaAdmin(self._topics.kafka, deadline_ms=self._client.operation_timeout_ms)
        return BrokerFacts(
            file,
            bootstrap,
            Reading(text),
            False,
            self._versions(),
            Reading(allowed),
            self._reading(lambda: check(self._topics, admin).findings),
            {
                "clock of the brokers": self._skew(BROKER_TOPICS),
                "clock of the queries' drivers": self._reading_or_none(self._drivers_ahead_ms),
            },
            {group: found[group].then(lambda pair: pair[1]) for group in groups},
            *self._replicas(),
        )

    def services(self, file: str) -> ServiceFacts:
        """Ask who is in the groups of ackers and replay workers, and read who wrote the last States."""
        acker = self._topics.acker
        members = {group: self._service_members(group) for group in (acker.group, acker.replay_group)}
        log = self._log()
        origins: dict[int, Reading[StateOrigin | None]] = {}
        unreadable = {}
        signs_of_ackers: dict[int, WriterTime] = {}
        for number in range(acker.partitions):
            try:
                last = self._last_state(log, number)
                origins[number] = Reading(None if last is None else _origin_of(last))
                if last is not None:
                    signs_of_ackers[number] = last.written
            except TopicError as error:  # all partitions are of one topic
                origins |= dict.fromkeys(range(number, acker.partitions), Reading(unknown=str(error)))
                break
            except Disagreement as error:
                unreadable[number] = str(error)
            except WindhoverError as error:
                origins[number] = Reading(unknown=str(error))
        signs: dict[str, Reading[Mapping[int, WriterTime]]] = {
            acker.group: Reading(self._lately(signs_of_ackers)),
            acker.replay_group: self._reading(lambda: self._lately(self._signs_of_workers(log))),
        }
        return ServiceFacts(file, members, origins, unreadable, signs)

    def _lately(self, signs: Mapping[int, WriterTime]) -> Mapping[int, WriterTime]:
        """Return the signs of the last minutes: a clock may have been set right since an older one."""
        now_ms = self._wall_ms()
        return {
            number: sign
            for number, sign in signs.items()
            if sign.appended_ms is not None and now_ms - sign.appended_ms <= YOUNG_MS
        }

    def _signs_of_workers(self, log: KafkaLog) -> Mapping[int, WriterTime]:
        """Return by partition when a replay worker wrote its progress last, as far back as is read."""
        tails = Tails(log, int(PATIENCE_S * 1_000), SIGNS_MAX)
        fold = progress_and_pauses()
        signs: dict[int, WriterTime] = {}
        for number in range(self._topics.acker.partitions):
            for record in tails.last(self._topics.ack_topics.due, number, ""):
                if isinstance(fold.put(record), Progress):
                    signs[number] = writer_time(record)
        return signs

    def _service_members(self, group: str) -> Reading[Sequence[ServiceMember]]:
        use = Use(Operation.DESCRIBE, group=group)

        def make() -> AdminClient:
            return self._client.make(AdminClient, {}, LOGGED, self._background)

        def ask() -> Sequence[ServiceMember]:
            description = describe_group(make, group, PATIENCE_S)
            return [
                ServiceMember(
                    f"{member.client_id} on {member.host.lstrip('/')}",
                    frozenset(place.topic for place in member.assignment.topic_partitions or ()),
                    member.host.lstrip("/"),
                    frozenset(place.partition for place in member.assignment.topic_partitions or ()),
                )
                for member in description.members
            ]

        return self._reading(lambda: self._ask(f"describing group {group}", ask, use))

    def _last_state(self, log: KafkaLog, number: int) -> LastState | None:
        place = kafka_port.TopicPartition(self._topics.ack_topics.state, number)
        return read_last_state(log, place, state_codec(), wait_ms=int(PATIENCE_S * 1_000))

    def servers(self) -> Reading[Sequence[tuple[str, int]]]:
        """Return host and port of each broker as clients are sent to it, and of the bootstrap servers."""
        named = kafka_servers(self._client.bootstrap)
        try:
            brokers = self._admin.list_topics(timeout=PATIENCE_S).brokers.values()
        except KafkaException:
            return Reading(named)  # they are to be reached in any case
        return Reading(list(dict.fromkeys([*named, *((str(each.host), each.port) for each in brokers)])))

    def _cluster(self) -> str:
        found = self._admin.list_topics(timeout=PATIENCE_S)
        return f"cluster {found.cluster_id}, {len(found.brokers)} broker{'s' * (len(found.brokers) != 1)}"

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
        lines, logger = _Lines(), logging.Logger("doctor")
        logger.addHandler(lines)
        debug = {"debug": "feature", "log_level": 7, "logger": logger}
        admin = self._client.make(AdminClient, {}, debug, self._background)
        try:
            admin.list_topics(timeout=PATIENCE_S)
        except KafkaException as error:
            return Reading(unknown=str(self._client.error(error.args[0], "asking for what it answers")))
        admin.poll(1.0)  # serves the log
        return Reading(lines.versions) if lines.versions else Reading(unknown="the client does not log it")

    def _cluster_operations(self) -> frozenset[AclOperation]:
        future: Future[Any] = self._admin.describe_cluster(
            include_authorized_operations=True, request_timeout=PATIENCE_S
        )
        found = settled(future, PATIENCE_S, Use(Operation.DESCRIBE))
        return frozenset(found.authorized_operations or ())

    def _topic_operations(self) -> dict[tuple[Resource, str], Reading[frozenset[Operation]]]:
        names = {
            right.name
            for role in Role
            for right in rights(self._topics, role)
            if right.resource is Resource.TOPIC
        }
        futures = self._admin.describe_topics(
            TopicCollection(sorted(names)), include_authorized_operations=True, request_timeout=PATIENCE_S
        )
        return {
            (Resource.TOPIC, name): self._operations(future, Use(Operation.DESCRIBE, topic=name))
            for name, future in futures.items()
        }

    def _operations(self, future: Future[Any], use: Use) -> Reading[frozenset[Operation]]:
        try:
            found = settled(future, PATIENCE_S, use)
        except Refused:
            return Reading(frozenset())
        except KafkaException as error:
            return Reading(unknown=str(self._client.error(error.args[0], f"describing {use.topic}")))
        return Reading(_operations_of(found.authorized_operations))

    def _group(self, group: str) -> Reading[tuple[frozenset[Operation], Sequence[str]]]:
        """Ask what we may do with a group, and who is in it."""
        use = Use(Operation.DESCRIBE, group=group)

        def make() -> AdminClient:
            return self._client.make(AdminClient, {}, LOGGED, self._background)

        def ask() -> tuple[frozenset[Operation], Sequence[str]]:
            found = describe_group(make, group, PATIENCE_S, rights=True)
            members = [f"{each.client_id} on {each.host.lstrip('/')}" for each in found.members]
            return _operations_of(found.authorized_operations), members

        return self._reading(lambda: self._ask(f"describing group {group}", ask, use))

    def _skew(self, names: Iterable[str]) -> Reading[int]:
        """Watch topics for new records, and compare their times with our clock."""
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
        found = skew_ms(polls)
        return Reading(found, "" if found is not None else f"nothing was written for {WATCH_MS} ms")

    def _drivers_ahead_ms(self) -> int | None:
        """Return by how much a driver's clock is ahead of ours, of several the worst; None: unknown.

        The broker dates the signs of life, and the drivers say in them what their clocks say.
        """
        topics = self._topics
        with closing(self._log()) as log:
            numbers = range(topics.acker.partitions)
            signs = [kafka_port.TopicPartition(topics.ack_topics.init, number) for number in numbers]
            clocks = watch_clocks(log, signs, self._wall_ms)
            if clocks.here_ms is None:
                return clocks.drivers_ms
            now_ms = self._wall_ms() - clocks.correction_ms
            groups = {one.group for one in topics.inputs.values() if one.tracked}
            aheads_ms = [live_query(log, topics, group, now_ms).ahead_ms for group in groups]
        ahead_of_here_ms = [ahead_ms - clocks.here_ms for ahead_ms in aheads_ms if ahead_ms is not None]
        return max(ahead_of_here_ms, key=abs, default=None)

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
        listed = self._admin.list_topics(timeout=PATIENCE_S).topics
        return [
            TopicPartition(name, number)
            for name in names
            if name in listed
            for number in listed[name].partitions
        ]

    def _newest(self, places: Sequence[TopicPartition] | None) -> int:
        latest: OffsetSpec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]  # the client's stubs
        futures = self._admin.list_offsets(dict.fromkeys(places or (), latest), request_timeout=PATIENCE_S)
        use = Use(Operation.DESCRIBE, topic=", ".join(sorted({part.topic for part in futures})))
        return max(int(settled(each, PATIENCE_S, use).timestamp) for each in futures.values())

    def _reading(self, question: Callable[[], T]) -> Reading[T]:
        try:
            return Reading(question())
        except WindhoverError as error:
            return Reading(unknown=str(error))

    def _ask(self, doing: str, question: Callable[[], T], use: Use | None = None) -> T:
        def ask() -> T:
            try:
                return question()
            except KafkaException:
                self._admin.poll(0.1)  # what its threads have reported goes to `Background`
                raise

        about = use or Use(Operation.DESCRIBE)
        return self._client.retry(doing, self._client.deadline(), ask, self._background, about)


def _origin_of(last: LastState) -> StateOrigin:
    # in the step of its restore an acker of this version does not note it yet, but names the cluster
    is_former = last.notes.restored is None and not last.cluster
    return StateOrigin(last.state.partitions, is_former)


def _operations_of(found: Iterable[Enum] | None) -> frozenset[Operation]:
    return frozenset(Operation[each.name] for each in found or () if each.name in Operation.__members__)
