"""What a broker says, judged from facts; a test of the integration ring causes them for real."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acker.clock_watch import Poll, skew_ms
from acker.config.topics import parse
from acker.kafka.port import MissingBroker, Operation, Resource, TopicInfo
from acker.provisioning.roles import Role, rights
from acker.provisioning.topic_specs import Finding, Level, required_topics, topic_findings
from spout.doctor import codes
from spout.doctor.codes import (
    CLOCKS,
    GROUPS,
    LOGIN,
    REACHABLE,
    REPLICAS,
    REQUESTS,
    RETENTION,
    RIGHTS,
    SIZES,
    TOPICS,
    CheckCode,
    CheckHealth,
    CheckResult,
)
from spout.doctor.live import REQUESTS_NEEDED, Allowed, BrokerFacts, judge_live
from spout.inspect.readings import Reading

FILE = parse("inputs: {a: {id: 1, group: g}}", file="topics.yaml", environ={})
EVERYTHING = Allowed(True, {})
RIGHT = BrokerFacts(
    "topics.yaml", "kafka:9092", Reading("cluster x, 3 brokers"), False, Reading(REQUESTS_NEEDED),
    Reading(EVERYTHING), Reading(()), {"clock of the brokers": Reading(0)}, {"g": Reading(())},
)  # fmt: skip


def judged(facts: BrokerFacts, role: Role | None = None) -> list[CheckResult]:
    return list(judge_live(facts, FILE, role))


def wrong(facts: BrokerFacts, role: Role | None = None) -> list[tuple[CheckCode, CheckHealth]]:
    return [(each.code, each.health) for each in judged(facts, role) if each.health is not CheckHealth.OK]


def cure_of(facts: BrokerFacts, code: CheckCode) -> str:
    (found,) = [each.cure for each in judged(facts) if each.code is code and each.cure]
    return found


def test_a_right_broker_passes_every_check() -> None:
    assert wrong(RIGHT) == []
    live = {each for each in codes.CODES if each.code >= "WH020" and each.code < "WH030"}
    assert {each.code for each in judged(RIGHT)} == live


def test_a_missing_broker_is_the_first_result_and_copies_that_lack_are_a_warning() -> None:
    """D1007: it gave 21 ok at two of three in-sync copies."""
    facts = replace(
        RIGHT,
        missing=[MissingBroker(3, replicas=2)],
        copies={"a": (2, 3), "b": (2, 3), "c": (0, 1)},
    )
    results = judged(facts)
    assert (results[0].code, results[0].health, results[0].subject) == (
        REACHABLE,
        CheckHealth.FAILED,
        "broker 3",
    )
    assert "is missing, the other brokers do not see it" in results[0].observed
    copies = [(result.subject, result.health) for result in results if result.code is REPLICAS]
    assert copies == [("topic c", CheckHealth.WARNING), ("topic a, b", CheckHealth.WARNING)]
    assert "--under-replicated-partitions" in results[0].cure


def test_a_broker_that_does_not_answer_fails_and_all_else_could_not_be_told() -> None:
    found = wrong(replace(RIGHT, cluster=Reading(unknown="no answer")))
    assert found[0] == (REACHABLE, CheckHealth.FAILED)
    assert {health for _, health in found[1:]} == {CheckHealth.UNKNOWN}
    assert len(found) == 10


@pytest.mark.parametrize(("servers", "port"), [("127.0.0.1:9392", 9392), ("a:1,b:2", 1), ("localhost", 9092)])
def test_the_cure_for_a_missing_broker_starts_one_where_topics_yaml_looks_for_it(
    servers: str, port: int
) -> None:
    facts = replace(RIGHT, bootstrap=servers, cluster=Reading(unknown="no answer"))
    assert cure_of(facts, REACHABLE) == f"windhover up --port {port}  # or start your own: {servers}"


def test_a_broker_that_refuses_us_answers() -> None:
    facts = replace(RIGHT, cluster=Reading(unknown="wrong password"), is_refused=True)
    assert (LOGIN, CheckHealth.FAILED) in wrong(facts)
    assert REACHABLE not in dict(wrong(facts))


def test_an_old_broker_fails_with_what_it_lacks() -> None:
    versions = {**REQUESTS_NEEDED, "Metadata": 9}
    del versions["DeleteRecords"]
    facts = replace(RIGHT, versions=Reading(versions))
    assert wrong(facts) == [(REQUESTS, CheckHealth.FAILED)]
    (text,) = [each.observed for each in judged(facts) if each.code is REQUESTS]
    assert text == "answers no DeleteRecords, Metadata up to version 9 of 10"


def allowed_all_but(lacking: Operation | None, name: str) -> BrokerFacts:
    """Return the facts of an acker's user who has all its rights but one."""
    found: dict[tuple[Resource, str], Reading[frozenset[Operation]]] = {}
    for right in rights(FILE, Role.ACKER):
        if right.resource is not Resource.TRANSACTIONAL_ID:
            had = (
                found.get((right.resource, right.name), Reading(frozenset[Operation]())).value or frozenset()
            )
            found[right.resource, right.name] = Reading(had | {right.operation})
    whole = found[Resource.TOPIC, name].value or frozenset()
    found[Resource.TOPIC, name] = Reading(whole - {lacking})
    return replace(RIGHT, allowed=Reading(Allowed(False, found)))


def test_a_right_that_a_role_lacks_fails_and_transactional_ids_could_not_be_told() -> None:
    facts = allowed_all_but(Operation.READ, "_ack_init")
    assert wrong(facts, Role.ACKER) == [(RIGHTS, CheckHealth.FAILED), (RIGHTS, CheckHealth.UNKNOWN)]
    (found, doubt) = [each for each in judged(facts, Role.ACKER) if each.code is RIGHTS]
    assert found.observed == "this user lacks Topic _ack_init: Read"
    assert found.cure == "windhover acls topics.yaml --role acker --principal User:NAME"
    assert "TransactionalId windhover-acker-0, windhover-acker-1" in doubt.observed


def test_a_user_with_all_rights_of_the_role_passes() -> None:
    facts = allowed_all_but(None, "_ack_init")
    assert wrong(facts, Role.ACKER) == [(RIGHTS, CheckHealth.UNKNOWN)]


def test_without_a_role_a_missing_right_is_a_warning() -> None:
    facts = allowed_all_but(Operation.READ, "_ack_init")
    assert (RIGHTS, CheckHealth.WARNING) in wrong(facts)
    assert (RIGHTS, CheckHealth.FAILED) not in wrong(facts)


@pytest.mark.parametrize(
    ("setting", "code"),
    [
        ("retention.ms=-1", RETENTION), ("min.insync.replicas=2", REPLICAS),
        ("max.message.bytes=1048588", SIZES), ("cleanup.policy=delete", TOPICS), ("", TOPICS),
    ],
)  # fmt: skip
def test_a_fault_of_a_topic_has_the_code_of_its_setting(setting: str, code: CheckCode) -> None:
    def facts(level: Level) -> BrokerFacts:
        return replace(RIGHT, findings=Reading([Finding("_ack_init", level, "has another", setting)]))

    assert wrong(facts(Level.ERROR)) == [(code, CheckHealth.FAILED)]
    assert wrong(facts(Level.WARNING)) == [(code, CheckHealth.WARNING)]
    assert cure_of(facts(Level.ERROR), code) == (
        "kafka-configs.sh --bootstrap-server kafka:9092 --alter --entity-type topics --entity-name _ack_init"
        f" --add-config {setting}"
        if setting
        else "windhover topics create topics.yaml"
    )


@pytest.mark.parametrize("skew", [2_001, -2_001])
def test_a_clock_that_differs_fails(skew: int) -> None:
    assert wrong(replace(RIGHT, skews={"clock": Reading(skew)})) == [(CLOCKS, CheckHealth.FAILED)]
    assert wrong(replace(RIGHT, skews={"clock": Reading(skew // 2)})) == []


def test_a_stranger_in_the_group_fails_and_is_named() -> None:
    facts = replace(RIGHT, members={"g": Reading(["kcat on 10.0.0.7"])})
    assert wrong(facts) == [(GROUPS, CheckHealth.FAILED)]
    assert "kcat on 10.0.0.7" in next(each.observed for each in judged(facts) if each.code is GROUPS)


def test_what_the_broker_does_not_answer_could_not_be_told() -> None:
    away = "no answer"
    facts = replace(
        RIGHT, versions=Reading(unknown=away), allowed=Reading(unknown=away), findings=Reading(unknown=away),
        skews={"clock": Reading(unknown=away)}, members={"g": Reading(unknown=away)},
    )  # fmt: skip
    found = wrong(facts)
    assert {health for _, health in found} == {CheckHealth.UNKNOWN}
    assert {code for code, _ in found} == {
        REQUESTS,
        RIGHTS,
        TOPICS,
        RETENTION,
        REPLICAS,
        SIZES,
        CLOCKS,
        GROUPS,
    }


@pytest.mark.parametrize(
    ("polls", "skew"),
    [
        ([(0, 5, 100), (100, 105, 100)], None),  # nothing came
        ([(1000, 1005, 900), (1100, 1105, 1050)], 0),  # it came in between
        ([(1000, 1005, 900), (1100, 1105, 9105)], 8000),
        ([(10_000, 10_005, 900), (10_100, 10_105, 5000)], -5000),
        ([(1000, 1005, -1), (1100, 1105, 1103)], 0),  # the first record of all
        ([(1000, 1005, 99_000), (1100, 1105, 99_000)], 97_895),  # from the future, though nothing came
        ([], None),
        ([(0, 1, 9), (100, 101, 95), (4_000, 4_001, 95), (4_100, 4_101, 1_500)], 0),  # it was shown late
    ],
)
def test_a_clock_is_told_from_what_comes_between_two_polls(
    polls: list[tuple[int, int, int]], skew: int | None
) -> None:
    assert skew_ms([Poll(*poll) for poll in polls]) == skew


def test_copies_are_added_by_a_reassignment_since_creating_topics_adds_none() -> None:
    (spec,) = (each for each in required_topics(FILE, {}) if each.name == "_ack_init")
    found = topic_findings(spec, TopicInfo(spec.name, "id", spec.partitions or 0, 1, spec.settings))
    results = judged(replace(RIGHT, findings=Reading(found)))
    (result,) = (each for each in results if each.code is TOPICS)
    assert result.code is TOPICS
    assert result.expected == f"3 copies, made as {TOPICS.docs} says"
    assert result.cure.startswith(f"kafka-reassign-partitions.sh --bootstrap-server {RIGHT.bootstrap} ")


def test_what_several_topics_share_is_one_result() -> None:
    one_copy = [Finding(name, Level.WARNING, "has one copy") for name in ("a", "b")]
    short = [Finding(name, Level.WARNING, "short", "retention.ms=-1") for name in ("a", "b")]
    results = judged(replace(RIGHT, findings=Reading([*one_copy, *short])))
    assert [(each.subject, each.observed) for each in results if each.health is CheckHealth.WARNING] == [
        ("topic a, b", "has one copy"), ("topic a", "short"), ("topic b", "short"),
    ]  # fmt: skip
