"""What `windhover topics create` makes on a broker with settings of its own, and beside somebody else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from acker.config.topics import Topics, parse
from acker.errors import TopicError
from acker.kafka.port import TopicInfo
from acker.provisioning.provision import Provisioned, create
from acker.provisioning.topic_specs import (
    COPY_HEADERS_BYTES,
    MESSAGE_BYTES_MAX,
    Finding,
    Level,
    TopicSpec,
    required_topics,
)

FILE = "inputs: {a: {id: 1, group: g, partitions: 2}}"
BEFORE = "message.timestamp.before.max.ms"


def read(text: str = FILE) -> Topics:
    return parse(text, file="topics.yaml", environ={})


class Broker:
    """Makes topics with its own settings where none are given; `meanwhile` runs before the first."""

    def __init__(self, *, meanwhile: Callable[[Broker], None] = lambda _: None, **defaults: str) -> None:
        self._defaults = {name.replace("_", "."): value for name, value in defaults.items()}
        self._meanwhile = meanwhile
        self.found: dict[str, TopicInfo] = {}

    def put(self, name: str, partitions: int, **settings: str) -> None:
        changed = {key.replace("_", "."): value for key, value in settings.items()}
        self.found[name] = TopicInfo(name, "id", partitions, 1, self._defaults | changed)

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        return {name: self.found[name] for name in names if name in self.found}

    def make(self, specs: Iterable[TopicSpec]) -> None:
        self._meanwhile(self)
        for spec in specs:
            if spec.name not in self.found:
                self.put(spec.name, spec.partitions or 1, **spec.settings)

    def refusals(self, specs: Iterable[TopicSpec]) -> dict[str, str]:
        return {}

    def grow(self, specs: Iterable[TopicSpec]) -> None:
        for spec in specs:
            self.put(spec.name, spec.partitions or 1, **self.found[spec.name].settings)

    def holding_records(self, infos: Iterable[TopicInfo]) -> list[str]:
        return []


def made(broker: Any, text: str = FILE) -> dict[str, TopicInfo]:
    create(read(text), broker)
    infos: dict[str, TopicInfo] = broker.found
    return infos


def test_copies_of_what_a_topic_takes_that_is_made_beside_theirs_fit() -> None:
    """The broker's own limit was not seen, so its copies were refused, and `topics check` failed."""
    found = made(Broker(max_message_bytes="10000000", message_timestamp_before_max_ms="3600000"))

    assert found["a"].settings["max.message.bytes"] == "10000000"
    for name in ("a.g.replay", "a.g.dlq"):
        assert found[name].settings["max.message.bytes"] == str(10_000_000 + COPY_HEADERS_BYTES)
    assert found["a.g.replay"].settings[BEFORE] == str((1 << 63) - 1)


def test_dead_letters_that_another_input_reads_are_made_before_its_copies() -> None:
    b, a = "{id: 2, group: h, topic: a.g.dlq, partitions: 6}", "{id: 1, group: g, partitions: 6}"
    text = f"inputs: {{b: {b}, a: {a}}}"

    found = made(Broker(max_message_bytes="10000000"), text)

    size = int(found["a.g.dlq.h.replay"].settings["max.message.bytes"])
    assert size == 10_000_000 + 2 * COPY_HEADERS_BYTES
    assert found["a.g.dlq.h.replay"].partitions == 6


def test_the_largest_records_that_a_broker_takes_have_a_replay_topic() -> None:
    found = made(Broker(max_message_bytes=str(MESSAGE_BYTES_MAX)))

    assert found["a.g.replay"].settings["max.message.bytes"] == str(MESSAGE_BYTES_MAX)


def test_a_source_that_somebody_else_makes_larger_meanwhile_has_as_large_a_replay_topic() -> None:
    found = made(Broker(meanwhile=lambda broker: broker.put("a", 5)))

    assert found["a.g.replay"].partitions == 5


def test_an_ack_topic_that_somebody_else_makes_of_another_size_meanwhile_is_an_error() -> None:
    """It was made by a process with another topics.yaml, and counted as made."""
    broker = Broker(meanwhile=lambda broker: broker.put("_ack_due", 8))
    with pytest.raises(TopicError, match=r"_ack_due: has 8 partitions, acker\.partitions is 4"):
        made(broker)


@pytest.mark.parametrize("role", ["created", "grown", "existing"])
def test_a_warning_names_every_topic_only_if_each_one_has_it(role: str) -> None:
    """`role` is what became of the topic without the warning."""
    specs = required_topics(read(), {})[:4]
    warned = [Finding(spec.name, Level.WARNING, "one copy") for spec in specs]
    parts: dict[str, tuple[TopicSpec, ...]] = {
        "created": specs[:1],
        "grown": specs[1:2],
        "existing": specs[2:],
    }
    [line] = [line for line in Provisioned(**parts, findings=tuple(warned)).lines() if "warning" in line]
    assert line == "warning: every topic: one copy"
    without = parts[role][0].name
    findings = tuple(finding for finding in warned if finding.topic != without)
    [line] = [line for line in Provisioned(**parts, findings=findings).lines() if "warning" in line]
    assert "every topic" not in line
    assert without not in line
