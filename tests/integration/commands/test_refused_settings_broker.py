"""`windhover topics create` on brokers that refuse settings of topics: by a policy, or by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from acker.config.topics import Topics, parse
from acker.errors import TopicError
from acker.provisioning.admin import KafkaAdmin
from acker.provisioning.provision import check_topics, create_topics, topics_needed
from acker.provisioning.refused_settings import PAGE, leave_out_refused
from acker.provisioning.topic_specs import required_topics
from spout.local.embedded import EmbeddedBroker
from tests.support.brokers import Broker
from tests.support.topic_policy import WORDS, broker_that_refuses, can_compile

REFUSED = (
    "min.insync.replicas",
    "segment.bytes",
    "unclean.leader.election.enable",
    "message.timestamp.type",
    "retention.bytes",
)
"""What hosted clusters are known to refuse when a topic is made."""


def topics_on(bootstrap: str, prefix: str = "") -> Topics:
    return parse(
        f"kafka: {{bootstrap.servers: '{bootstrap}'}}\n"
        f"acker: {{partitions: 2, topic_prefix: '{prefix}'}}\n"
        f"inputs: {{a: {{id: 1, group: g, topic: '{prefix}a', partitions: 3}}}}\n",
        file="topics.yaml",
        environ={},
    )


@pytest.fixture(scope="module")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    if not can_compile():
        pytest.skip("a policy of a broker is a class, which javac makes")
    with broker_that_refuses(REFUSED, tmp_path_factory.mktemp("policy")) as broker:
        yield broker


def test_a_policy_is_named_by_its_settings_and_topics_made_by_hand_are_right(hosted: EmbeddedBroker) -> None:
    """D2002, D2006: two settings have no default that is right; the topics without them are not refused."""
    topics = topics_on(hosted.bootstrap)

    with pytest.raises(TopicError) as caught:
        create_topics(topics)

    *lines, cure = str(caught.value).splitlines()
    assert [line.split(" (")[0] for line in lines] == [
        "_ack_init, _ack_ack, _ack_fail, _ack_verdict, _ack_state, _ack_due, _ack_quarantine, _ack_sink: the"
        " cluster refuses message.timestamp.type=LogAppendTime",
        "_ack_state, _ack_due, _ack_sink: the cluster refuses segment.bytes=67108864",
    ]
    assert all(f"(POLICY_VIOLATION: {WORDS}), and its default is " in line for line in lines)
    assert PAGE in cure
    admin = KafkaAdmin(topics.kafka)
    assert admin.topics(topics_needed(topics)) == {}

    by_hand = [
        replace(spec, settings={name: value for name, value in spec.settings.items() if name not in REFUSED})
        for spec in required_topics(topics, {})
    ]
    admin.make(by_hand)

    there, *warnings = check_topics(topics)
    assert there.startswith("there: _ack_init, ")
    assert all(line.startswith("warning: ") for line in warnings)
    assert not any(line.startswith("made") for line in create_topics(topics))


def test_topics_are_made_without_what_somebody_can_do_without(hosted: EmbeddedBroker) -> None:
    """D2007: the two that have no default that is right; what has one is left out by itself."""
    topics = topics_on(hosted.bootstrap, "wished-")
    wished = ["message.timestamp.type", "segment.bytes"]
    lines = create_topics(topics, wished)
    assert sum(line.startswith("made ") for line in lines) == 11
    by_wish = {line.split("=")[0] for line in lines if "as --without says" in line}
    assert by_wish == {f"left out {name}" for name in wished}
    there, *warnings = check_topics(topics)
    assert there.startswith("there: wished-_ack_init, ")
    assert all(line.startswith("warning: ") for line in warnings)


def test_what_a_cluster_refuses_and_has_anyway_is_left_out(tmp_path: Path) -> None:
    """D2001"""
    if not can_compile():
        pytest.skip("a policy of a broker is a class, which javac makes")
    refused = ["retention.bytes", "unclean.leader.election.enable", "min.insync.replicas"]
    with broker_that_refuses(refused, tmp_path) as broker:
        topics = topics_on(broker.bootstrap)
        lines = create_topics(topics)
        checked = check_topics(topics)

    assert sum(line.startswith("made ") for line in lines) == 11
    assert [line.split(" of ")[0] for line in lines if "left out" in line] == [
        "left out unclean.leader.election.enable=false",
        "left out retention.bytes=-1",
    ]
    assert not any("retention.bytes" in line for line in checked)


@pytest.mark.parametrize(
    ("setting", "value"), [("segment.bytes", "7"), ("no.such.setting", "1")], ids=["a value", "a setting"]
)
def test_a_setting_that_a_broker_itself_refuses_is_named(
    setting: str, value: str, broker: Broker, prefix: str
) -> None:
    """D2002: INVALID_CONFIG, as where a broker is too old for a setting."""
    specs = required_topics(topics_on(broker.bootstrap, prefix), {})
    wrong = [
        replace(spec, settings={**spec.settings, setting: value}) if "_ack_due" in spec.name else spec
        for spec in specs
    ]
    admin = KafkaAdmin({"bootstrap.servers": broker.bootstrap})

    with pytest.raises(TopicError) as caught:
        leave_out_refused(wrong, admin)

    line, _ = str(caught.value).splitlines()
    assert line.startswith(f"{prefix}_ack_due: the cluster refuses {setting}={value} (INVALID_CONFIG: ")
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert not any(name.startswith(prefix) for name in client.list_topics(timeout=10).topics)


def test_more_copies_than_brokers_are_no_fault_of_a_setting(broker: Broker, prefix: str) -> None:
    """D2004"""
    specs = [
        replace(spec, replication=3) for spec in required_topics(topics_on(broker.bootstrap, prefix), {})
    ]
    with pytest.raises(
        TopicError, match="refuses this topic, whatever its settings are: INVALID_REPLICATION"
    ):
        leave_out_refused(specs, KafkaAdmin({"bootstrap.servers": broker.bootstrap}))
