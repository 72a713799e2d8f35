"""What a broker says of topics; shared by what reads and writes records and by what makes topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but the package has no __all__
    AdminClient,
    ConfigResource,
)

from acker.kafka.port import Operation, TopicInfo
from acker.kafka.refusals import UNAUTHORIZED, Refused, Use

T = TypeVar("T")


def describe_topics(
    admin: AdminClient, names: Iterable[str], timeout_s: float, *, settings: bool
) -> dict[str, TopicInfo]:
    """Return those of the named topics that exist, in the order of the names, each once.

    `timeout_s` is for each of two answers: with `settings` theirs are asked for too.
    """
    requested = list(names)
    futures = admin.describe_topics(TopicCollection(requested), request_timeout=timeout_s)
    described = _existing(futures, timeout_s, Operation.DESCRIBE)
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
