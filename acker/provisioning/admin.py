"""Asks a broker about topics and makes them; what there must be says ``acker.provisioning.topic_specs``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but the package has no __all__
    AdminClient,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from acker.errors import TopicError, Unreachable, WindhoverError
from acker.kafka.client import (
    RETRY_PAUSE_S,
    SILENCE,
    SILENT,
    UNAUTHORIZED,
    Background,
    KafkaClient,
    Use,
)
from acker.kafka.cluster import answer_of, describe_topics
from acker.kafka.port import Operation, TopicInfo
from acker.provisioning.refused_settings import defaults_of_brokers, defaults_of_topics
from acker.provisioning.topic_specs import TopicSpec
from acker.redaction import cut
from acker.untrusted import Untrusted

DEADLINE_MS: Final = 10_000
"""A broker that does not answer a question within this is unreachable."""

PARTITION_MS_MAX: Final = 50
"""By how much longer a new topic may stay unseen for each partition that we ordered so far.

A broker makes the logs of one order before it shows the next: 1.8 to 7 ms a partition, on two cores.
"""

DEFAULTS_TOPICS_MAX: Final = 20
"""So many topics are asked for the defaults of a cluster whose brokers may not be asked."""

T = TypeVar("T")


class KafkaAdmin:
    """A connection for questions about topics; each waits for its deadline at most."""

    def __init__(self, settings: Mapping[str, str], *, deadline_ms: int = DEADLINE_MS) -> None:
        """Make the client; the broker is asked on first use. `ConfigError`: librdkafka refuses a setting."""
        self._client = KafkaClient(settings, "windhover-admin", deadline_ms, time.monotonic, time.sleep)
        self._background = Background(time.monotonic)
        self._admin = self._client.make_client(AdminClient, {}, SILENT, self._background)
        self._wait_s = deadline_ms / 1000
        self._partitions_ordered = 0  # how many this process has had made so far

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Return what the broker has of topics, with their settings, by name.

        Topics that do not exist are missing.
        """
        return self._ask(
            "describing topics", lambda: describe_topics(self._admin, names, self._wait_s, settings=True)
        )

    def holding_records(self, infos: Iterable[TopicInfo]) -> list[str]:
        """Return the names of those topics to which anything was ever written."""
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the client's stubs
        offset_spec_by_partition: dict[TopicPartition, OffsetSpec] = {}
        for info in infos:
            for number in range(info.partitions):
                offset_spec_by_partition[TopicPartition(info.name, number)] = latest

        def topics_with_records() -> set[str]:
            """Return the names of the topics with a partition that ends above 0.

            Something was written there once, perhaps deleted since.
            """
            wait_s = self._wait_s
            futures = self._admin.list_offsets(offset_spec_by_partition, request_timeout=wait_s)
            names: set[str] = set()
            for partition, future in futures.items():
                use = Use(Operation.DESCRIBE, topic=partition.topic)
                if answer_of(future, wait_s, use).offset > 0:  # the end offset
                    names.add(partition.topic)
            return names

        return sorted(self._ask("listing offsets", topics_with_records))

    def make(self, specs: Iterable[TopicSpec]) -> None:
        """Make topics and wait until they are there; one that somebody else made meanwhile is as good.

        Raises `TopicError` if the broker refuses some. So does `grow`.
        """
        new_topics = [_new_topic(spec) for spec in specs]
        if not new_topics:
            return
        futures = self._admin.create_topics(
            new_topics, operation_timeout=self._wait_s, request_timeout=self._wait_s
        )
        already_there = self._wait_for_answers(
            "making", futures, KafkaError.TOPIC_ALREADY_EXISTS, Operation.CREATE
        )
        self._partitions_ordered += sum(topic.num_partitions for topic in new_topics)
        partitions_by_topic = {topic.topic: topic.num_partitions for topic in new_topics}
        # how many partitions somebody else has made is not known here; one shows that the topic is there
        self._wait_until_shown(partitions_by_topic | dict.fromkeys(already_there, 1))

    def refusals(self, specs: Iterable[TopicSpec]) -> dict[str, str]:
        """Try to make topics without making them; return by refused topic the broker's words.

        One that is there is not refused: somebody else has made it meanwhile.
        """
        new_topics = [_new_topic(spec) for spec in specs]
        if not new_topics:
            return {}
        futures = self._admin.create_topics(
            new_topics, operation_timeout=self._wait_s, request_timeout=self._wait_s, validate_only=True
        )
        _, error_by_topic = self._collect_errors(
            "trying to make", futures, KafkaError.TOPIC_ALREADY_EXISTS, Operation.CREATE
        )
        return {topic: f"{cause.name()}: {cut(cause.str())}" for topic, cause in error_by_topic.items()}

    def setting_defaults(self) -> dict[str, str] | None:
        """Return what topics get where nothing is set; None: the cluster does not say it.

        The brokers say it. Where we may not ask them, topics of the cluster that we may see do, by the
        settings that they have as defaults.
        """
        metadata = self._ask("listing brokers", lambda: self._admin.list_topics(timeout=self._wait_s))
        entries_of_brokers = self._read_configs(ConfigResource.Type.BROKER, map(str, metadata.brokers))
        if entries_of_brokers:
            return defaults_of_brokers(map(_values, entries_of_brokers))
        requested_topics = sorted(metadata.topics)[:DEFAULTS_TOPICS_MAX]
        entries_of_topics = self._read_configs(ConfigResource.Type.TOPIC, requested_topics)
        if not entries_of_topics:
            return None
        return defaults_of_topics(map(_default_values, entries_of_topics))

    def _read_configs(self, kind: Any, names: Iterable[str]) -> list[Mapping[str, Any]]:
        """Return the entries of the settings of each resource, by name of a setting.

        Empty where the cluster does not let us see one of the resources. `kind` is a
        `ConfigResource.Type`, of which the client's stubs make no type.
        """
        entries_of_resources: list[Mapping[str, Any]] = []
        for name in names:  # librdkafka takes one broker a request
            futures = self._admin.describe_configs([ConfigResource(kind, name)], request_timeout=self._wait_s)
            for future in futures.values():
                try:
                    entries_of_resources.append(future.result())
                except KafkaException as error:
                    cause: KafkaError = error.args[0]
                    if cause.code() in SILENCE:
                        raise self._error(f"asking for settings of {name}", cause) from None
                    return []
        return entries_of_resources

    def grow(self, specs: Iterable[TopicSpec]) -> None:
        """Add partitions, and wait until they are there; somebody else may have added them meanwhile."""
        new_counts = [NewPartitions(spec.name, spec.partitions or 1) for spec in specs]
        if not new_counts:
            return
        futures = self._admin.create_partitions(
            new_counts, operation_timeout=self._wait_s, request_timeout=self._wait_s
        )
        # Kafka says INVALID_PARTITIONS if the topic has as many already
        self._wait_for_answers(
            "adding partitions to", futures, KafkaError.INVALID_PARTITIONS, Operation.ALTER
        )
        self._partitions_ordered += sum(topic.new_total_count for topic in new_counts)
        self._wait_until_shown({topic.topic: topic.new_total_count for topic in new_counts})

    def _wait_for_answers(
        self, doing: str, futures: Mapping[str, Future[None]], harmless_code: int, operation: Operation
    ) -> set[str]:
        """Wait for the answers; return the topics whose error was the harmless one.

        Raises `TopicError` for other errors. The arguments are those of `_collect_errors`.
        """
        harmless_topics, error_by_topic = self._collect_errors(doing, futures, harmless_code, operation)
        if error_by_topic:
            lines = [
                f"{topic}: {doing} it was refused: {Untrusted(cut(cause.str()))}"
                for topic, cause in error_by_topic.items()
            ]
            raise TopicError("\n".join(lines))
        return harmless_topics

    def _collect_errors(
        self, doing: str, futures: Mapping[str, Future[None]], harmless_code: int, operation: Operation
    ) -> tuple[set[str], dict[str, KafkaError]]:
        """Wait for answers; return the topics with the harmless error, and other errors by topic.

        Args:
            doing: what was asked, for messages, such as ``making``.
            futures: the answers, by topic.
            harmless_code: of an error that is as good as none, such as that a topic is there
                already.
            operation: what we must be allowed to do for it.

        Raises the client's error if nobody answers, or we may not do it.
        """
        harmless_topics, error_by_topic = set[str](), dict[str, KafkaError]()
        for topic, future in futures.items():
            try:
                future.result()
            except KafkaException as error:
                cause: KafkaError = error.args[0]
                if cause.code() in SILENCE or cause.code() in UNAUTHORIZED:
                    use = Use(operation, topic=topic)
                    raise self._error(f"{doing} {topic}", cause, use) from None
                if cause.code() == harmless_code:
                    harmless_topics.add(topic)
                else:
                    error_by_topic[topic] = cause
        return harmless_topics, error_by_topic

    def _wait_until_shown(self, partitions_by_topic: Mapping[str, int]) -> None:
        """Wait until the broker that answers us shows topics with so many partitions.

        The controller has made them; other brokers get to know it a little later. Raises
        `Unreachable`: it takes too long.
        """
        timeout_ms = self._client.operation_timeout_ms + self._partitions_ordered * PARTITION_MS_MAX
        deadline = self._client.deadline(timeout_ms)
        while True:
            topics_shown = self._ask(
                "listing topics", lambda: self._admin.list_topics(timeout=self._wait_s)
            ).topics
            late_topics = [
                topic
                for topic, count in partitions_by_topic.items()
                if topic not in topics_shown or len(topics_shown[topic].partitions) < count
            ]
            if not late_topics:
                return
            if deadline.is_over:
                late = late_topics[0]
                raise Unreachable(
                    f"waiting for {late}: Kafka at {self._client.bootstrap} took the order, but has not "
                    f"shown all {partitions_by_topic[late]} partitions within {timeout_ms} ms; wait, then"
                    " try again"
                )
            time.sleep(RETRY_PAUSE_S)

    def _ask(self, doing: str, question: Callable[[], T]) -> T:
        """Ask until there is an answer, and return it; `doing` is the subject of messages.

        A broker may not know yet of a topic that another one has just made, or of its leader: such a
        question is asked again, unless the deadline is over; so it waits twice as long at most.
        Raises the client's error as one of ours.
        """

        def ask_once() -> T:
            try:
                return question()
            except KafkaException:
                self._admin.poll(0)  # the connection's own report says why nothing answered
                raise

        return self._client.retry(doing, self._client.deadline(), ask_once, self._background, None)

    def _error(self, doing: str, cause: KafkaError, use: Use | None = None) -> WindhoverError:
        """Return an error of the client as one of ours; `doing` is the subject of its message.

        Where nothing answers, it has what the connection itself reported.
        """
        self._admin.poll(0)  # takes over what the connection's threads have reported
        return self._client.error(cause, doing, self._client.operation_timeout_ms, self._background, use)


def _values(entries: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of those settings of a resource that have one."""
    return {name: entry.value for name, entry in entries.items() if entry.value is not None}


def _default_values(entries: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of those settings of a topic that were not set for the topic itself."""
    own_source = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return _values({name: entry for name, entry in entries.items() if entry.source != own_source})


def _new_topic(spec: TopicSpec) -> NewTopic:
    """Return a topic as the client makes it; without a number it gets one partition."""
    return NewTopic(
        spec.name,
        num_partitions=spec.partitions or 1,
        replication_factor=spec.replication,
        config=dict(spec.settings),
    )
