"""What is told of topics while they go."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from acker.kafka.cluster import describe_topics

TIMEOUT_S = 1.0


class Admin:
    """Answers two questions, of which the second may come when topics are gone."""

    def __init__(self, gone: Iterable[str], code: int = KafkaError.UNKNOWN_TOPIC_OR_PART) -> None:
        self._gone, self._code = set(gone), code

    def describe_topics(self, wanted: Any, **_: object) -> dict[str, Future[object]]:
        """Answer for all of them."""
        of = SimpleNamespace(topic_id="id", partitions=[SimpleNamespace(replicas=[1])])
        return {name: self._answer(of) for name in ("a", "b")}

    def describe_configs(self, resources: Any, **_: object) -> dict[object, Future[object]]:
        """Answer for those that are left."""
        entries = {"retention.ms": SimpleNamespace(value="1")}
        return {r: self._answer(entries, gone=r.name in self._gone) for r in resources}

    def _answer(self, value: object, *, gone: bool = False) -> Future[object]:
        future: Future[object] = Future()
        if gone:
            future.set_exception(KafkaException(KafkaError(self._code)))
        else:
            future.set_result(value)
        return future


def test_a_topic_that_goes_between_two_questions_is_gone() -> None:
    admin: Any = Admin({"b"})
    found = describe_topics(admin, ["a", "b"], TIMEOUT_S, settings=True)
    assert {name: info.settings for name, info in found.items()} == {"a": {"retention.ms": "1"}}


def test_a_topic_whose_settings_cannot_be_had_is_an_error() -> None:
    admin: Any = Admin({"b"}, KafkaError.BROKER_NOT_AVAILABLE)
    with pytest.raises(KafkaException):
        describe_topics(admin, ["a", "b"], TIMEOUT_S, settings=True)
