"""The doctor on ackers and replay workers that run with another file, or another version."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from acker.config.topics import parse
from spout.doctor.codes import SERVICES, CheckHealth, CheckResult
from spout.doctor.services import ServiceFacts, ServiceMember, StateOrigin, judge_services
from spout.inspect.readings import Reading

FILE: Final = parse("acker: {partitions: 2}\ninputs: {a: {id: 1, group: g}}", file="topics.yaml", environ={})
ACKERS, REPLAY = FILE.acker.group, FILE.acker.replay_group
ACKER: Final = ServiceMember(
    "windhover-acker-h-1 on 10.0.0.1", frozenset({"_ack_init", "_ack_ack", "_ack_fail"})
)
WORKER: Final = ServiceMember("windhover-replay-h-2 on 10.0.0.2", frozenset({"_ack_verdict"}))
OURS: Final = Reading(StateOrigin(2, is_former=False))
RIGHT: Final = ServiceFacts(
    "my topics.yaml", {ACKERS: Reading([ACKER]), REPLAY: Reading([WORKER])}, {0: OURS, 1: OURS}, {}
)


def judged(facts: ServiceFacts) -> list[CheckResult]:
    return list(judge_services(facts, FILE))


def wrong(facts: ServiceFacts) -> CheckResult:
    (result,) = [result for result in judged(facts) if result.health is not CheckHealth.OK]
    return result


def test_services_of_this_file_and_version_pass() -> None:
    """D2706: nobody there, and no State yet, are no faults: `status` says who lives."""
    assert {(result.code, result.health) for result in judged(RIGHT)} == {(SERVICES, CheckHealth.OK)}
    shares_out = ServiceMember("windhover-acker-h-3 on 10.0.0.3", frozenset())
    new = replace(
        RIGHT,
        members={ACKERS: Reading([shares_out]), REPLAY: Reading([])},
        origins={0: Reading(None), 1: Reading(None)},
    )
    assert {result.health for result in judged(new)} == {CheckHealth.OK}


@pytest.mark.parametrize(
    ("group", "topic", "command"),
    [(ACKERS, "x_ack_init", "acker run"), (REPLAY, "x_ack_verdict", "replay run")],
)
def test_a_service_with_another_prefix_in_the_same_group_is_found(
    group: str, topic: str, command: str
) -> None:
    """D2706: it takes part in the group, and works for somebody else."""
    other = ServiceMember("windhover-other on 10.0.0.9", frozenset({topic}))
    result = wrong(replace(RIGHT, members={**RIGHT.members, group: Reading([other])}))
    assert (result.code, result.health) == (SERVICES, CheckHealth.FAILED)
    assert f"windhover-other on 10.0.0.9 has partitions of {topic}" in result.observed
    assert result.cure.endswith(f"windhover {command} --config 'my topics.yaml'")


def test_a_state_of_another_number_of_partitions_is_found() -> None:
    """D2706: of all its partitions at once."""
    four = Reading(StateOrigin(4, is_former=False))
    result = wrong(replace(RIGHT, origins={0: four, 1: four}))
    assert (result.code, result.health) == (SERVICES, CheckHealth.FAILED)
    assert result.subject == "State of acker partitions 0, 1"
    assert "acker.partitions: 4 wrote it, this file has 2" in result.observed


def test_another_version_is_found_by_what_it_wrote() -> None:
    """D2706: an earlier one is a warning, since this version reads it; a later one cannot be read."""
    former = wrong(replace(RIGHT, origins={0: Reading(StateOrigin(2, is_former=True)), 1: OURS}))
    assert (former.code, former.health) == (SERVICES, CheckHealth.WARNING)
    assert former.subject == "State of acker partition 0"
    later = wrong(replace(RIGHT, origins={0: OURS}, unreadable={1: "a newer acker wrote it"}))
    assert (later.code, later.health) == (SERVICES, CheckHealth.FAILED)
    assert later.observed == "a newer acker wrote it"


def test_what_could_not_be_read_is_unknown() -> None:
    """D2706"""
    away: Reading[StateOrigin | None] = Reading(unknown="no leader")
    result = wrong(replace(RIGHT, origins={0: away, 1: away}))
    assert result.health is CheckHealth.UNKNOWN
    assert "no leader" in result.observed
    group = wrong(replace(RIGHT, members={**RIGHT.members, ACKERS: Reading(unknown="no right")}))
    assert group.health is CheckHealth.UNKNOWN
