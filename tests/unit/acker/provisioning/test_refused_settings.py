"""`windhover topics create` where a cluster refuses settings: what is left out, what is said of others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # no __all__
    ConfigSource,
    NewTopic,
)

from acker.config.topics import Topics, parse
from acker.errors import NotAuthorized, TopicError, Unreachable, UsageError
from acker.kafka.port import TopicInfo
from acker.provisioning import admin
from acker.provisioning.admin import KafkaAdmin
from acker.provisioning.provision import check, create
from acker.provisioning.refused_settings import (
    LOST_WITHOUT,
    PAGE,
    defaults_of_brokers,
    defaults_of_topics,
    require_settings,
)
from acker.provisioning.topic_specs import TopicSpec, required_topics

FILE: Final = parse("inputs: {a: {id: 1, group: g, partitions: 2}}", file="topics.yaml", environ={})
FILE_WITH_COPIES: Final = parse(
    "acker: {replication_factor: 3}\ninputs: {a: {id: 1, group: g, partitions: 2}}",
    file="topics.yaml",
    environ={},
)
DEFAULTS: Final = {
    "cleanup.policy": "delete",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "unclean.leader.election.enable": "false",
}
WORDS: Final = "POLICY_VIOLATION: not allowed here"


class Hosted:
    """A cluster that refuses settings; the topics that it makes have its defaults."""

    def __init__(
        self,
        refuses: Callable[[TopicSpec], bool],
        defaults: Mapping[str, str] | None = DEFAULTS,
    ) -> None:
        self._refuses = refuses
        self._defaults = defaults
        self.found: dict[str, TopicInfo] = {}
        self.trials = 0

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        return {name: self.found[name] for name in names if name in self.found}

    def refusals(self, specs: Iterable[TopicSpec]) -> dict[str, str]:
        self.trials += 1
        return {spec.name: WORDS for spec in specs if self._refuses(spec)}

    def setting_defaults(self) -> Mapping[str, str] | None:
        return self._defaults

    def make(self, specs: Iterable[TopicSpec]) -> None:
        for spec in specs:
            assert not self._refuses(spec)
            settings = {**DEFAULTS, **spec.settings}
            self.found[spec.name] = TopicInfo(spec.name, "id", spec.partitions or 1, 1, settings)

    def grow(self, specs: Iterable[TopicSpec]) -> None:
        assert not list(specs)

    def holding_records(self, infos: Iterable[TopicInfo]) -> list[str]:
        return []


def refusing(*settings: str) -> Hosted:
    return Hosted(lambda spec: not spec.settings.keys().isdisjoint(settings))


def made(cluster: Any, topics: Topics = FILE) -> list[str]:
    return create(topics, cluster).lines()


def refusal(cluster: Any, topics: Topics = FILE) -> list[str]:
    with pytest.raises(TopicError) as caught:
        create(topics, cluster)
    assert not cluster.found
    return str(caught.value).splitlines()


def test_a_cluster_that_refuses_nothing_gets_every_setting_and_is_tried_once_a_step() -> None:
    """D2001: a default may be changed later, so what may be set is set."""
    cluster = refusing()
    lines = made(cluster)
    assert not any("left out" in line for line in lines)
    assert cluster.found.keys() == {spec.name for spec in required_topics(FILE, {})}
    assert cluster.trials == 2  # the topics, and those that stand behind their source


@pytest.mark.parametrize(
    "setting", ["retention.bytes", "unclean.leader.election.enable", "max.message.bytes"]
)
def test_a_refused_setting_that_is_the_default_is_left_out(setting: str) -> None:
    """D2001: and it is said, with the topics."""
    topics = parse("inputs: {a: {id: 1, group: g, partitions: 2, ackers: 0}}", file="f", environ={})
    cluster = refusing(setting)

    (line,) = [line for line in made(cluster, topics) if "left out" in line]

    (spec, *_) = required_topics(topics, {})
    assert line.startswith(f"left out {setting}={spec.settings[setting]} of _ack_init, _ack_ack, ")
    assert len(cluster.found) == len(required_topics(topics, {}))
    assert not [finding for finding in check(topics, cluster).findings if setting in finding.text]  # type: ignore[arg-type]


REFUSED: Final = [
    ("segment.bytes", "67108864", "_ack_state, _ack_due", "its default is 1073741824", "nothing is lost"),
    ("min.cleanable.dirty.ratio", "0.2", "_ack_state, _ack_due", "its default is 0.5", "nothing is lost"),
    (
        "message.timestamp.type",
        "LogAppendTime",
        "_ack_init, _ack_ack, ",
        "its default is CreateTime",
        "clock",
    ),
    ("retention.ms", "-1", "_ack_init, _ack_ack, _ack_fail, ", "its default is 604800000", "are deleted"),
    ("cleanup.policy", "compact", "_ack_state, _ack_due", "its default is delete", "topics check"),
    ("max.message.bytes", "2097164", "a.g.replay, a.g.dlq", "its default is 1048588", "dead letter"),
]


@pytest.mark.parametrize(
    ("setting", "value", "names", "default", "lost"), REFUSED, ids=[row[0] for row in REFUSED]
)
def test_the_error_names_the_setting_its_topics_and_what_happens_without_it(
    setting: str, value: str, names: str, default: str, lost: str
) -> None:
    """D2002: and nothing is made."""
    *lines, cure = refusal(refusing(setting))
    (line,) = lines
    assert line.startswith(names)
    assert f": the cluster refuses {setting}={value} ({WORDS}), and {default}. Without it " in line
    assert lost in line
    assert PAGE in cure


@pytest.mark.parametrize("setting", ["min.insync.replicas", "segment.bytes", "message.timestamp.type"])
def test_a_refused_setting_that_one_can_do_without_is_left_out_on_wish(setting: str) -> None:
    """D2007: the command says what happens without it; else nothing is made."""
    cluster = Hosted(lambda spec: setting in spec.settings)
    lines = create(FILE_WITH_COPIES, cluster, [setting]).lines()  # type: ignore[arg-type]
    named = [line for line in lines if line.startswith(f"left out {setting}=")]
    assert named
    assert all(line.endswith(f"as --without says; {LOST_WITHOUT[setting]}") for line in named)
    specs = required_topics(FILE_WITH_COPIES, {})
    assert cluster.found.keys() == {spec.name for spec in specs}


def test_what_a_topic_cannot_do_without_is_not_left_out_unless_it_is_the_default() -> None:
    """D2007"""
    cluster = Hosted(lambda _: False)
    with pytest.raises(TopicError, match=r"_ack_init: retention.ms must be -1, and the default is 604800000"):
        create(FILE, cluster, ["retention.ms"])  # type: ignore[arg-type]
    assert not cluster.found
    lines = create(FILE, cluster, ["retention.bytes"]).lines()  # type: ignore[arg-type]
    assert any(line.startswith("left out retention.bytes=-1 of _ack_init") for line in lines)


def test_a_default_that_nobody_knows_is_not_taken_for_what_must_be() -> None:
    """D2007"""
    cluster = Hosted(lambda _: False, defaults=None)
    with pytest.raises(TopicError, match="the default is unknown"):
        create(FILE, cluster, ["retention.bytes"])  # type: ignore[arg-type]


def test_a_name_that_no_topic_is_made_with_is_refused_with_the_nearest() -> None:
    """D2007"""
    with pytest.raises(UsageError, match=r"--without retention.byte: .* did you mean retention.bytes\?"):
        require_settings(["retention.byte"])
    require_settings(["retention.bytes"])


def test_several_refused_settings_are_all_named_at_once() -> None:
    """D2002: nobody asks the provider three times."""
    *lines, _ = refusal(refusing("segment.bytes", "retention.ms", "retention.bytes"))
    assert [line.split(" the cluster refuses ")[1].split("=")[0] for line in lines] == [
        "retention.ms",
        "segment.bytes",
    ]


def test_a_default_of_which_nothing_is_known_is_not_taken_for_the_right_one() -> None:
    """D2003"""
    cluster = Hosted(lambda spec: "retention.bytes" in spec.settings, defaults=None)
    line, _ = refusal(cluster)
    assert "retention.bytes=-1" in line
    assert "the cluster does not say what its default is" in line


def test_a_topic_that_is_refused_without_settings_too_is_refused_for_itself() -> None:
    """D2004: too many copies or partitions, or a name: no setting is blamed for it."""
    cluster = Hosted(lambda spec: spec.name == "_ack_due")
    (line,) = refusal(cluster)
    assert line == f"_ack_due: the cluster refuses this topic, whatever its settings are: {WORDS}"


def test_settings_that_are_refused_only_together_are_said_to_be() -> None:
    """D2004"""
    cluster = Hosted(lambda spec: len(spec.settings) > 4)
    lines = refusal(cluster)
    assert all("takes each of its settings alone, but not together" in line for line in lines)
    assert any(line.startswith("_ack_state: ") and "segment.bytes=67108864" in line for line in lines)


BROKER: Final = {
    "log.retention.hours": "168",
    "log.retention.bytes": "-1",
    "log.message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
}


@pytest.mark.parametrize(
    ("changed", "retention"),
    [
        ({}, "604800000"),
        ({"log.retention.minutes": "5"}, "300000"),
        ({"log.retention.minutes": "5", "log.retention.ms": "7"}, "7"),
        ({"log.retention.ms": "-1"}, "-1"),
        ({"log.retention.hours": "-1"}, "-1"),
    ],
)
def test_the_time_that_brokers_keep_records_is_the_smallest_unit_that_is_set(
    changed: dict[str, str], retention: str
) -> None:
    """D2003"""
    assert defaults_of_brokers([BROKER | changed])["retention.ms"] == retention


def test_what_two_brokers_or_topics_have_otherwise_is_no_default() -> None:
    """D2003: who makes a topic does not choose its broker."""
    other = BROKER | {"min.insync.replicas": "2"}
    assert "min.insync.replicas" not in defaults_of_brokers([BROKER, other])
    assert defaults_of_brokers([BROKER, other])["retention.bytes"] == "-1"
    assert defaults_of_brokers([]) == {}
    assert defaults_of_topics([{"segment.bytes": "1"}, {"segment.bytes": "2", "retention.ms": "3"}]) == {
        "retention.ms": "3"
    }


def answered(value: Any = None, error: int | None = None) -> Future[Any]:
    future: Future[Any] = Future()
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(KafkaException(KafkaError(error, "as the broker says")))
    return future


class Client:
    """An `AdminClient` of a cluster with two brokers and a topic."""

    def __init__(self, answers: Mapping[str, Future[Any]], trial: Future[Any] | None = None) -> None:
        self._answers = answers
        self._trial = trial or answered()

    def list_topics(self, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(brokers={1: None, 2: None}, topics={"a": None})

    def describe_configs(self, resources: Sequence[Any], **_: Any) -> dict[Any, Future[Any]]:
        return {resource: self._answers[resource.name] for resource in resources}

    def create_topics(self, new: list[NewTopic], *, validate_only: bool, **_: Any) -> dict[str, Future[Any]]:
        assert validate_only
        return {topic.topic: self._trial for topic in new}

    def poll(self, _: float) -> int:
        return 0


def entry(value: str | None, source: Any = ConfigSource.DEFAULT_CONFIG) -> SimpleNamespace:
    return SimpleNamespace(value=value, source=source.value)


def connected(client: Client, monkeypatch: pytest.MonkeyPatch) -> KafkaAdmin:
    monkeypatch.setattr(admin, "AdminClient", lambda _: client)
    return KafkaAdmin({"bootstrap.servers": "kafka:9092"})


FORBIDDEN: Final = KafkaError.CLUSTER_AUTHORIZATION_FAILED
NAMED: Final = {
    "retention.bytes": entry("-1"),
    "segment.bytes": entry("7", ConfigSource.DYNAMIC_TOPIC_CONFIG),
}
BROKERS: Final = {
    "log.retention.bytes": entry("-1"),
    "log.segment.bytes": entry("9"),
    "log.retention.ms": entry(None),
}


@pytest.mark.parametrize(
    ("answers", "defaults"),
    [
        (
            {"1": answered(BROKERS), "2": answered(BROKERS)},
            {"retention.bytes": "-1", "segment.bytes": "9"},
        ),
        ({"1": answered(error=FORBIDDEN), "a": answered(NAMED)}, {"retention.bytes": "-1"}),
        ({"1": answered(error=FORBIDDEN), "a": answered(error=KafkaError.TOPIC_AUTHORIZATION_FAILED)}, None),
    ],
    ids=["brokers say it", "a topic says it", "nobody says it"],
)
def test_defaults_are_asked_of_brokers_then_of_topics(
    answers: dict[str, Future[Any]], defaults: dict[str, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D2003"""
    assert connected(Client(answers), monkeypatch).setting_defaults() == defaults


def test_a_broker_that_is_silent_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """D2004: no answer, and no right, are what they are, not a refused setting."""
    spec = required_topics(FILE, {})[0]
    for code, error in ((KafkaError._TIMED_OUT, Unreachable), (FORBIDDEN, NotAuthorized)):
        client = Client({}, answered(error=code))
        with pytest.raises(error):
            connected(client, monkeypatch).refusals([spec])
    there = Client({}, answered(error=KafkaError.TOPIC_ALREADY_EXISTS))
    assert connected(there, monkeypatch).refusals([spec]) == {}
    refused = Client({}, answered(error=KafkaError.POLICY_VIOLATION))
    assert connected(refused, monkeypatch).refusals([spec]) == {
        "_ack_init": "POLICY_VIOLATION: as the broker says"
    }
