"""The doctor on ackers and replay workers that run with another file, or another version."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from acker.clock_watch import CLOCKS_APART_MS, SKEW_MS_MAX
from acker.config.topics import parse
from acker.writer_clocks import UNKNOWN_TIME, WriterTime
from spout.doctor.codes import CLOCKS, SERVICES, CheckHealth, CheckResult
from spout.doctor.services import (
    ServiceFacts,
    ServiceMember,
    StateOrigin,
    judge_service_clocks,
    judge_services,
)
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


NOW_MS: Final = 1_800_000_000_000
HOUR_MS: Final = 3_600_000
KINDS = pytest.mark.parametrize(
    ("kind", "group"), [("ackers", ACKERS), ("replay workers", REPLAY)], ids=["acker", "worker"]
)


def machine(number: int, *partitions: int) -> ServiceMember:
    return ServiceMember(
        f"windhover-{number} on 10.0.0.{number}", frozenset({"t"}), f"10.0.0.{number}", frozenset(partitions)
    )


def ahead(ms: int, appended_ms: int = NOW_MS) -> WriterTime:
    return WriterTime(appended_ms + ms, appended_ms)


def clocks_of(
    group: str, members: Reading[list[ServiceMember]], signs: Reading[dict[int, WriterTime]]
) -> list[CheckResult]:
    """Judge the clocks of one kind of process; the other kind has nobody."""
    nobody: dict[str, Reading[list[ServiceMember]]] = {ACKERS: Reading([]), REPLAY: Reading([])}
    nothing: dict[str, Reading[dict[int, WriterTime]]] = {ACKERS: Reading({}), REPLAY: Reading({})}
    facts = replace(RIGHT, members={**nobody, group: members}, signs={**nothing, group: signs})
    return [result for result in judge_service_clocks(facts, FILE) if "run" not in result.observed]


@KINDS
@pytest.mark.parametrize(
    ("ahead_ms", "how"),
    [
        (2 * HOUR_MS, "2.0 h ahead of"),
        (-2 * HOUR_MS, "2.0 h behind"),
        (SKEW_MS_MAX + 1, "2.0 s ahead of"),
        (-CLOCKS_APART_MS - 1, "1.0 min behind"),
    ],
)
def test_the_machine_whose_clock_is_off_is_named_by_how_much_with_the_cure(
    kind: str, group: str, ahead_ms: int, how: str
) -> None:
    """D414: the others beside it are right."""
    members = [machine(1, 0), machine(2, 1, 2)]
    signs = {0: ahead(0), 1: ahead(0, NOW_MS - 10), 2: ahead(ahead_ms)}
    (result,) = clocks_of(group, Reading(members), Reading(signs))
    assert (result.code, result.health, result.subject) == (CLOCKS, CheckHealth.FAILED, f"clocks of {kind}")
    assert result.observed.startswith(f"{how} the broker's, on the machine of windhover-2 on 10.0.0.2")
    assert "acker partitions 1, 2" in result.observed
    assert result.cure == "ssh 10.0.0.2 chronyc tracking"


@KINDS
@pytest.mark.parametrize("ahead_ms", [0, SKEW_MS_MAX, -CLOCKS_APART_MS])
def test_a_clock_that_may_be_right_passes(kind: str, group: str, ahead_ms: int) -> None:
    """D414: a record that took a while to its broker seems to come from a clock that is behind."""
    members = [machine(1, 0), machine(2)]
    (result,) = clocks_of(group, Reading(members), Reading({0: ahead(ahead_ms), 5: ahead(HOUR_MS)}))
    assert (result.health, result.subject) == (CheckHealth.OK, f"clocks of {kind}")
    assert result.observed == "of 1 of 2, none differs from the broker's"


@KINDS
@pytest.mark.parametrize(
    ("members", "signs", "why"),
    [
        (Reading(unknown="no answer"), Reading({}), "no answer"),
        (Reading([machine(1, 0)]), Reading(unknown="no answer"), "no answer"),
        (Reading([machine(1, 0)]), Reading({}), "none of them has written lately"),
        (Reading([machine(1, 0)]), Reading({0: UNKNOWN_TIME}), "none of them has written lately"),
        (Reading([machine(1, 0)]), Reading({0: WriterTime(5)}), "none of them has written lately"),
        (Reading([machine(1, 0)]), Reading({0: WriterTime(None, 5)}), "none of them has written lately"),
        (Reading([machine(1, 0)]), Reading({1: ahead(HOUR_MS)}), "none of them has written lately"),
    ],
)
def test_what_nobody_says_is_unknown(
    kind: str,
    group: str,
    members: Reading[list[ServiceMember]],
    signs: Reading[dict[int, WriterTime]],
    why: str,
) -> None:
    """D410, D414"""
    (result,) = clocks_of(group, members, signs)
    assert (result.health, result.subject) == (CheckHealth.UNKNOWN, f"clocks of {kind}")
    assert why in result.observed


def test_where_nobody_runs_no_clock_is_wrong() -> None:
    results = list(judge_service_clocks(replace(RIGHT, members={ACKERS: Reading([]), REPLAY: Reading([])},
        signs={ACKERS: Reading({}), REPLAY: Reading({})}), FILE))  # fmt: skip
    assert [result.observed for result in results] == [
        "could not tell: no ackers run",
        "could not tell: no replay workers run",
    ]
