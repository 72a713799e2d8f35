"""What a broker says of topics; shared by what reads and writes records and by what makes topics."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but the package has no __all__
    AdminClient,
    ConfigResource,
)

from acker.log import TopicInfo

T = TypeVar("T")


def describe_topics(admin: AdminClient, names: Iterable[str], timeout_s: float) -> dict[str, TopicInfo]:
    """Return those of the named topics that exist, in the order of the names.

    Args:
        admin: a client of the cluster.
        names: topics, each once.
        timeout_s: longest wait for each of the two answers.

    Raises:
        KafkaException: the broker does not answer, or refuses.
    """
    wanted = list(names)
    if not wanted:
        return {}
    described = {}
    for name, future in admin.describe_topics(TopicCollection(wanted), request_timeout=timeout_s).items():
        try:
            described[name] = settled(future, timeout_s)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in described]
    configured = admin.describe_configs(resources, request_timeout=timeout_s) if resources else {}
    settings = {resource.name: settled(future, timeout_s) for resource, future in configured.items()}
    return {
        name: TopicInfo(
            name=name,
            id=str(described[name].topic_id),
            partitions=len(described[name].partitions),
            replication=min((len(part.replicas) for part in described[name].partitions), default=0),
            settings={key: entry.value for key, entry in settings[name].items() if entry.value is not None},
        )
        for name in wanted
        if name in described
    }


def settled(future: Future[T], timeout_s: float) -> T:
    """Wait for an answer; the client gives up at the timeout by itself, this is a second lock."""
    try:
        return future.result(timeout_s + 1)
    except TimeoutError as error:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer")) from error
