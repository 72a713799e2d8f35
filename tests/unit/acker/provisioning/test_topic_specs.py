"""What topics there must be, and what is wrong with those that there are; no broker."""

from __future__ import annotations

import pytest

from acker.config.topics import Topics, parse
from acker.kafka.port import TopicInfo
from acker.provisioning.topic_specs import (
    COPY_HEADERS_BYTES,
    MESSAGE_BYTES,
    Finding,
    Level,
    TopicRole,
    TopicSpec,
    missing_topic_finding,
    plan,
    refused_by_client,
    required_topics,
    topic_findings,
)

FILE = """
acker: {partitions: 3, replication_factor: 3}
inputs: {a: {id: 1, group: g, partitions: 6}}
"""


NO_LIMIT = str((1 << 63) - 1)


def read(text: str = FILE) -> Topics:
    return parse(text, file="topics.yaml", environ={})


def made(spec: TopicSpec, partitions: int | None = None, **settings: str) -> TopicInfo:
    """The topic that a broker would have after making it, with some settings changed."""
    changed = {name.replace("_", "."): value for name, value in settings.items()}
    count = partitions or spec.partitions or 1
    return TopicInfo(spec.name, "id", count, max(1, spec.replication), {**spec.settings, **changed})


def spec_of(role: TopicRole, text: str = FILE) -> TopicSpec:
    return next(spec for spec in required_topics(read(text), {}) if spec.role is role)


def levels(findings: list[Finding]) -> list[Level]:
    return [finding.level for finding in findings]


def test_each_topic_is_wanted_once_with_its_role_and_partitions() -> None:
    specs = {spec.name: (spec.role, spec.partitions) for spec in required_topics(read(), {})}

    assert specs == {
        "_ack_init": (TopicRole.LOG, 3),
        "_ack_ack": (TopicRole.LOG, 3),
        "_ack_fail": (TopicRole.LOG, 3),
        "_ack_verdict": (TopicRole.LOG, 3),
        "_ack_state": (TopicRole.TABLE, 3),
        "_ack_due": (TopicRole.TABLE, 3),
        "_ack_quarantine": (TopicRole.LOG, 3),
        "_ack_sink": (TopicRole.TABLE, 3),
        "a": (TopicRole.SOURCE, 6),
        "a.g.replay": (TopicRole.REPLAY, 6),
        "a.g.dlq": (TopicRole.DEAD_LETTER, 6),
    }


def test_no_wanted_topic_forgets_records_by_itself_or_elects_an_unclean_leader() -> None:
    for spec in required_topics(read(), {}):
        assert spec.settings["unclean.leader.election.enable"] == "false"
        assert spec.settings["min.insync.replicas"] == "2"
        if spec.role in (TopicRole.LOG, TopicRole.REPLAY, TopicRole.DEAD_LETTER):
            assert spec.settings["cleanup.policy"] == "delete"
            assert spec.settings["retention.ms"] == spec.settings["retention.bytes"] == "-1"
        if spec.role is TopicRole.TABLE:
            assert spec.settings["cleanup.policy"] == "compact"


def test_the_broker_says_when_sessions_have_written() -> None:
    """O1806, D401: a wrong clock dates no record, and is no reason to refuse one."""
    topics = read()
    specs = required_topics(topics, {})
    names = {spec.name for spec in specs if spec.settings.get("message.timestamp.type") == "LogAppendTime"}
    assert names == set(topics.ack_topics.names())


def test_the_brokers_default_replication_leaves_its_min_insync_replicas_alone() -> None:
    specs = required_topics(read("inputs: {a: {id: 1, group: g, partitions: 6}}"), {})

    assert all(spec.replication == -1 and "min.insync.replicas" not in spec.settings for spec in specs)


def test_a_topic_as_it_was_made_has_no_findings() -> None:
    for spec in required_topics(read(), {}):
        assert topic_findings(spec, made(spec)) == []


def test_a_replay_topic_takes_partitions_and_size_from_the_source_that_exists() -> None:
    source = TopicInfo(
        "a", "id", 9, 3, {"max.message.bytes": "5000000", "message.timestamp.after.max.ms": "7"}
    )

    specs = {spec.role: spec for spec in required_topics(read(), {"a": source})}

    assert specs[TopicRole.REPLAY].partitions == 9
    assert specs[TopicRole.REPLAY].settings["max.message.bytes"] == str(5_000_000 + COPY_HEADERS_BYTES)
    assert specs[TopicRole.DEAD_LETTER].settings["message.timestamp.after.max.ms"] == NO_LIMIT


def test_a_replay_topic_takes_copies_of_records_of_any_age() -> None:
    """What the source took in time may be replayed days later, with its own time."""
    before = "message.timestamp.before.max.ms"
    source = TopicInfo("a", "id", 6, 3, {before: "3600000"})
    (spec,) = (each for each in required_topics(read(), {"a": source}) if each.role is TopicRole.REPLAY)
    assert topic_findings(spec, made(spec)) == []

    (finding,) = topic_findings(spec, made(spec, message_timestamp_before_max_ms="3600000"))

    assert finding.level is Level.ERROR
    assert f"has {before}=3600000" in finding.text
    assert finding.setting == f"{before}={(1 << 63) - 1}"


@pytest.mark.parametrize("inputs", ["{one}, {two}", "{two}, {one}"])
def test_of_two_inputs_on_one_topic_it_is_enough_that_one_names_the_partitions(inputs: str) -> None:
    one, two = "a: {id: 1, group: g, topic: t}", "b: {id: 2, group: h, topic: t, partitions: 5}"
    topics = read(f"inputs: {{{inputs.format(one=one, two=two)}}}")

    specs = required_topics(topics, {})
    found = {
        spec.name: spec.partitions for spec in specs if spec.role not in (TopicRole.LOG, TopicRole.TABLE)
    }

    assert found == dict.fromkeys(("t", "t.g.replay", "t.g.dlq", "t.h.replay", "t.h.dlq"), 5)
    assert set(found) <= {spec.name for spec in plan(specs, {}).make}


def test_an_untracked_input_has_no_replay_topic() -> None:
    """S53"""
    specs = required_topics(read("inputs: {a: {id: 1, group: g, partitions: 6, ackers: 0}}"), {})

    assert [spec.name for spec in specs if spec.role not in (TopicRole.LOG, TopicRole.TABLE)] == ["a"]


def test_dead_letters_that_another_input_reads_are_kept_as_dead_letters() -> None:
    text = (
        "inputs: {b: {id: 2, group: h, topic: a.g.dlq, partitions: 6}, a: {id: 1, group: g, partitions: 6}}"
    )

    roles = {spec.name: spec.role for spec in required_topics(read(text), {})}

    assert roles["a.g.dlq"] is TopicRole.DEAD_LETTER


def test_what_exists_is_not_made_again_and_a_replay_topic_grows_with_its_source() -> None:
    first = required_topics(read(), {})
    found = {spec.name: made(spec) for spec in first if spec.name != "_ack_due"}
    found["a"] = made(spec_of(TopicRole.SOURCE), partitions=8)

    todo = plan(required_topics(read(), found), found)

    assert [spec.name for spec in todo.make] == ["_ack_due"]
    assert [(spec.name, spec.partitions) for spec in todo.grow] == [("a.g.replay", 8)]
    assert {spec.name for spec in todo.existing} == {spec.name for spec in first} - {"_ack_due", "a.g.replay"}


def test_a_source_topic_without_partitions_must_exist() -> None:
    text = "inputs: {a: {id: 1, group: g}}"
    specs = required_topics(read(text), {})

    assert not any(spec.role is TopicRole.SOURCE for spec in plan(specs, {}).make)
    assert (
        missing_topic_finding(spec_of(TopicRole.SOURCE, text)).text
        == "does not exist; create it, or give inputs.a.partitions"
    )


def test_only_the_topic_of_queries_that_write_exactly_once_may_be_missing() -> None:
    findings = [missing_topic_finding(spec) for spec in required_topics(read(), {})]
    warnings = [finding for finding in findings if finding.level is Level.WARNING]
    assert [finding.topic for finding in warnings] == ["_ack_sink"]
    assert "exactly once into Kafka need it; run `windhover topics create`" in warnings[0].text


@pytest.mark.parametrize("partitions", [2, 4])
def test_an_ack_topic_with_another_n_is_refused_with_the_way_out(partitions: int) -> None:
    for role in (TopicRole.LOG, TopicRole.TABLE):
        (finding,) = topic_findings(spec_of(role), made(spec_of(role), partitions=partitions))

        assert finding.level is Level.ERROR
        assert f"has {partitions} partitions, acker.partitions is 3" in finding.text
        assert "another acker.topic_prefix" in finding.text


LOSES = [
    (TopicRole.LOG, {"cleanup_policy": "compact"}, "compaction would drop records"),
    (TopicRole.LOG, {"cleanup_policy": "compact,delete"}, "compaction would drop records"),
    (TopicRole.LOG, {"retention_ms": "604800000"}, "open roots need would be deleted"),
    (TopicRole.LOG, {"retention_bytes": "1000"}, "open roots need would be deleted"),
    (TopicRole.LOG, {"max_message_bytes": "100000"}, f"set it to {MESSAGE_BYTES}"),
    (TopicRole.LOG, {"unclean_leader_election_enable": "true"}, "acknowledged records can vanish"),
    (TopicRole.TABLE, {"cleanup_policy": "delete"}, "state that a restart needs would be deleted"),
    (TopicRole.TABLE, {"cleanup_policy": "compact,delete"}, "state that a restart needs would be deleted"),
    (TopicRole.TABLE, {"unclean_leader_election_enable": "true"}, "acknowledged records can vanish"),
    (TopicRole.REPLAY, {"cleanup_policy": "compact"}, "would replace another one"),
    (TopicRole.REPLAY, {"retention_ms": "604800000"}, "may be deleted before it is read"),
    (TopicRole.REPLAY, {"max_message_bytes": "1000"}, "copies are refused"),
    (TopicRole.REPLAY, {"unclean_leader_election_enable": "true"}, "acknowledged records can vanish"),
    (TopicRole.DEAD_LETTER, {"cleanup_policy": "compact"}, "would replace another one"),
    (TopicRole.DEAD_LETTER, {"max_message_bytes": "1000"}, "copies are refused"),
]


@pytest.mark.parametrize(("role", "changed", "says"), LOSES)
def test_a_setting_that_would_lose_records_is_an_error_that_says_why(
    role: TopicRole, changed: dict[str, str], says: str
) -> None:
    (finding,) = topic_findings(spec_of(role), made(spec_of(role), **changed))

    assert finding.level is Level.ERROR
    assert says in finding.text


def test_a_replay_topic_with_fewer_partitions_than_its_source_is_an_error() -> None:
    (finding,) = topic_findings(spec_of(TopicRole.REPLAY), made(spec_of(TopicRole.REPLAY), partitions=5))

    assert finding.level is Level.ERROR
    assert "has 5 partitions, its source 6" in finding.text


@pytest.mark.parametrize(
    ("partitions", "cure"),
    [
        (2, "correct the file; or add partitions by Kafka's own tool, then run `windhover topics create`"),
        (8, "correct the file"),
    ],
)
def test_a_source_topic_of_another_size_is_not_changed_and_its_cure_is_named(
    partitions: int, cure: str
) -> None:
    (finding,) = topic_findings(
        spec_of(TopicRole.SOURCE), made(spec_of(TopicRole.SOURCE), partitions=partitions)
    )

    assert finding.level is Level.WARNING
    assert f"has {partitions} partitions, topics.yaml says 6; {cure}" in finding.text
    assert ("add partitions" in finding.text) == (partitions < 6)


ODD = [
    (TopicRole.SOURCE, {"cleanup_policy": "compact"}, "can be gone before it is replayed"),
    (TopicRole.SOURCE, {"unclean_leader_election_enable": "true"}, "acknowledged records can vanish"),
    (TopicRole.SOURCE, {"max_message_bytes": "77"}, "no transaction can end there, since its mark has 78"),
    (TopicRole.LOG, {"message_timestamp_type": "CreateTime"}, "which its writer chooses"),
    (TopicRole.LOG, {"min_insync_replicas": "1"}, "set it to 2"),
    (TopicRole.LOG, {"min_insync_replicas": "4"}, "later ones take it when every copy has it; lower it"),
    (TopicRole.DEAD_LETTER, {"retention_ms": "604800000"}, "set it to -1"),
    (TopicRole.REPLAY, {"message_timestamp_type": "LogAppendTime"}, "in a header alone"),
]


@pytest.mark.parametrize(("role", "changed", "says"), ODD)
def test_what_is_odd_but_loses_nothing_by_itself_is_a_warning(
    role: TopicRole, changed: dict[str, str], says: str
) -> None:
    (finding,) = topic_findings(spec_of(role), made(spec_of(role), **changed))

    assert finding.level is Level.WARNING
    assert says in finding.text


def test_more_partitions_than_wanted_are_a_warning_for_a_source_and_nothing_for_a_replay_topic() -> None:
    source, replay = spec_of(TopicRole.SOURCE), spec_of(TopicRole.REPLAY)

    assert levels(topic_findings(source, made(source, partitions=8))) == [Level.WARNING]
    assert topic_findings(replay, made(replay, partitions=8)) == []


@pytest.mark.parametrize(
    ("factor", "copies", "expected"), [(-1, 1, 1), (1, 1, 0), (3, 2, 1), (2, 2, 0), (-1, 2, 0)]
)
def test_too_few_copies_are_a_warning_unless_one_was_asked_for(
    factor: int, copies: int, expected: int
) -> None:
    spec = spec_of(TopicRole.LOG, f"acker: {{replication_factor: {factor}}}")
    settings = {**spec.settings, "min.insync.replicas": "1"}

    found = topic_findings(spec, TopicInfo(spec.name, "id", 4, copies, settings))

    assert levels(found) == [Level.WARNING] * expected


AFTER, BEFORE, DIFFERENCE = (f"message.timestamp.{name}.max.ms" for name in ("after", "before", "difference"))
TYPE = "message.timestamp.type"
HOUR = {AFTER: "3600000"}
REFUSING = [
    (TopicRole.REPLAY, {AFTER: NO_LIMIT}, HOUR, Level.WARNING, f"{AFTER}={NO_LIMIT}"),
    (TopicRole.REPLAY, {AFTER: "7200000"}, HOUR, Level.WARNING, f"{AFTER}={NO_LIMIT}"),
    (TopicRole.REPLAY, {AFTER: "3600000"}, HOUR, None, ""),
    (TopicRole.REPLAY, {AFTER: NO_LIMIT, TYPE: "LogAppendTime"}, HOUR, None, ""),
    (TopicRole.REPLAY, {AFTER: NO_LIMIT}, {**HOUR, TYPE: "LogAppendTime"}, Level.WARNING,
     f"{TYPE}=CreateTime"),
    (TopicRole.REPLAY, {BEFORE: "1"}, {BEFORE: "3600000"}, Level.ERROR, f"{BEFORE}={NO_LIMIT}"),
    (TopicRole.REPLAY, {DIFFERENCE: NO_LIMIT}, {DIFFERENCE: "1"}, Level.ERROR, f"{DIFFERENCE}={NO_LIMIT}"),
    (TopicRole.REPLAY, {}, {"max.message.bytes": "1048588"}, Level.WARNING, "max.message.bytes=2097164"),
    (TopicRole.REPLAY, {}, {"max.message.bytes": "1048587"}, Level.ERROR, "max.message.bytes=2097164"),
    (TopicRole.REPLAY, {"max.message.bytes": "500"}, {"max.message.bytes": "1048588"}, Level.WARNING,
     "max.message.bytes=1049076"),
    (TopicRole.REPLAY, {}, {"confluent.value.schema.validation": "true"}, Level.WARNING,
     "confluent.value.schema.validation=false"),
    (TopicRole.REPLAY, {}, {"confluent.value.schema.validation": "false"}, None, ""),
    (TopicRole.DEAD_LETTER, {AFTER: NO_LIMIT}, HOUR, Level.WARNING, f"{AFTER}={NO_LIMIT}"),
    (TopicRole.DEAD_LETTER, {BEFORE: NO_LIMIT}, {BEFORE: "3600000"}, Level.WARNING, f"{BEFORE}={NO_LIMIT}"),
    (TopicRole.DEAD_LETTER, {AFTER: NO_LIMIT}, {AFTER: "1000"}, Level.WARNING, f"{AFTER}={NO_LIMIT}"),
    (TopicRole.DEAD_LETTER, {BEFORE: "1"}, {BEFORE: "1000"}, Level.WARNING, f"{BEFORE}={NO_LIMIT}"),
    (TopicRole.DEAD_LETTER, {}, {TYPE: "LogAppendTime"}, None, ""),
    (TopicRole.DEAD_LETTER, {}, {TYPE: "LogAppendTime", AFTER: "1000"}, None, ""),
    (TopicRole.DEAD_LETTER, {}, {"max.message.bytes": "1048588"}, Level.WARNING, "max.message.bytes=2097164"),
]  # fmt: skip


@pytest.mark.parametrize(("role", "source", "changed", "level", "setting"), REFUSING)
def test_a_topic_that_refuses_what_its_source_takes_is_found_with_the_setting_that_cures_it(
    role: TopicRole, source: dict[str, str], changed: dict[str, str], level: Level | None, setting: str
) -> None:
    """O210: of times, of sizes, whose time a record has, and schemas."""
    info = TopicInfo("a", "id", 6, 3, source)
    (spec,) = (each for each in required_topics(read(), {"a": info}) if each.role is role)
    assert topic_findings(spec, made(spec)) == [], (
        "as it is made, it takes a copy of whatever its source takes"
    )

    has = TopicInfo(spec.name, "id", 6, 3, {**spec.settings, **changed})
    findings = topic_findings(spec, has)

    assert levels(findings) == ([] if level is None else [level])
    assert [finding.setting for finding in findings] == ([setting] if level else [])


@pytest.mark.parametrize(("limit", "found"), [("1000000", 2), ("2097164", 0), ("100000000", 0)])
def test_a_client_that_refuses_what_the_topics_take_is_found(limit: str, found: int) -> None:
    """O210: for both topics that a replay worker writes records to."""
    topics = read(f"kafka: {{message.max.bytes: '{limit}'}}\n{FILE}")

    findings = [
        each for spec in required_topics(topics, {}) for each in refused_by_client(spec, topics.kafka)
    ]

    assert levels(findings) == [Level.WARNING] * found
    assert all(f"message.max.bytes in topics.yaml is {limit}" in each.text for each in findings)


@pytest.mark.parametrize("name", read().ack_topics.names())
@pytest.mark.parametrize("limit", [AFTER, BEFORE, DIFFERENCE])
def test_an_ack_topic_that_refuses_a_wrong_clock_is_found_with_its_cure(name: str, limit: str) -> None:
    """D402: installations of former versions have it so."""
    (spec,) = (each for each in required_topics(read(), {}) if each.name == name)
    former = {**spec.settings, TYPE: "CreateTime", limit: "3600000"}

    (finding,) = topic_findings(spec, TopicInfo(name, "id", 3, 3, former))

    assert finding.level is Level.WARNING
    assert "wrong clock" in finding.text
    assert finding.setting == f"{TYPE}=LogAppendTime"
    cured = {**former, **dict([finding.setting.split("=")])}
    assert topic_findings(spec, TopicInfo(name, "id", 3, 3, cured)) == []


@pytest.mark.parametrize("name", ["_ack_fail", "_ack_verdict", "_ack_state", "_ack_due", "_ack_quarantine"])
def test_an_ack_topic_that_takes_any_time_is_as_good(name: str) -> None:
    """D402: nobody compares the times of these."""
    (spec,) = (each for each in required_topics(read(), {}) if each.name == name)
    former = {**spec.settings, TYPE: "CreateTime", AFTER: NO_LIMIT, BEFORE: NO_LIMIT}

    assert topic_findings(spec, TopicInfo(name, "id", 3, 3, former)) == []
