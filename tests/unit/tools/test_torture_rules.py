"""The simulation's checkers over recorded topics: they find what they find in the simulation, and no more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from acker.kafka.port import TopicPartition
from replay.records.headers import OPERATOR
from tests.simulation.ablations.ablations import ABLATIONS
from tests.simulation.options import draw
from tests.simulation.run import Run, run_options, seeds
from tests.torture.judging.recording import Recording
from tests.torture.judging.rules import JUDGES, checks

SEEDS = 60
FEW_SEEDS = 15
"""Seeds of which each profile is judged always."""
MISSED = 120
"""Seeds of its profile in which a safeguard that is taken out must be missed."""

DELETES = frozenset({"retention", "compaction"})
"""Faults after which a log does not hold any more what was judged by it."""


def recording_of(run: Run) -> Recording:
    """Return what would have read every committed record of a run, and the commits of its only group."""
    cluster, topics = run.world.cluster, run.world.topics
    recording = Recording()
    names = set(topics.ack_topics.names())
    for found in topics.inputs.values():
        names |= {found.topic, found.replay_topic, found.dead_letter.topic}
        recording.commits = {place: kept.offset for place, kept in cluster.committed(found.group).items()}
    recording.infos = {name: cluster.topic(name).info for name in names}
    ends = {}
    for name, info in recording.infos.items():
        for number in range(info.partitions):
            partition = cluster.at(name, number)
            ends[TopicPartition(name, number)] = partition.stable_end
            for offset in range(partition.stable_end):
                record = partition.original(offset)
                if record is not None:
                    recording.read(record)
    recording.ends = ends
    return recording


def found_in(run: Run, recording: Recording) -> dict[str, str]:
    """Return the rules that a recording breaks, each with what broke it."""
    judged = checks(recording, run.world.topics, run.world.truth.skew_ms_max)
    return {check.name: check.found for check in judged if not check.passed}


def is_recorded_whole(run: Run) -> bool:
    """Whether its logs still hold everything, for one group."""
    groups = {found.group for found in run.world.topics.inputs.values()}
    return len(groups) == 1 and not DELETES & run.world.faults.keys()


def broken_by(name: str) -> Iterator[Run]:
    """Run without a safeguard, and yield those runs in which a checker has missed it."""
    ablation = ABLATIONS[name]
    for seed in range(ablation.begin, ablation.begin + MISSED):
        run = run_options(draw(seed, ablation.profile, name), ablation)
        if run.broken is not None and run.broken.rule in ablation.falls:
            yield run


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, FEW_SEEDS), pytest.param(FEW_SEEDS, SEEDS - FEW_SEEDS, marks=pytest.mark.slow)],
    ids=["few", "more"],
)
@pytest.mark.parametrize("profile", ["calm", "mixed"])
def test_what_was_right_in_a_simulated_run_is_right_in_its_recording(
    profile: str, first: int, count: int
) -> None:
    runs = [run for run in seeds(first, count, profile) if is_recorded_whole(run)]
    assert len(runs) > count / 6
    assert [(run.options.seed, found) for run in runs if (found := found_in(run, recording_of(run)))] == []


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("removed", "rule"),
    [
        ("from-of-a-session", "EmittedOnce"),
        ("settled-by-verdict-log", "OneVerdict"),
        ("fail-beats-zero", "FailBeatsZero"),
        ("last-stable-offset", "NoLoss"),
        ("verdicts-kept-for-replay", "NothingBlocks"),
        ("marks-per-topic", "CrashCostsNoReplay"),
        ("ticks-and-takes-last", "Deadlines"),
        ("oldest-first", "PutBack"),
        ("dead-letter", "Limits"),
    ],
)
def test_a_safeguard_that_is_missing_is_missed_in_the_recording(removed: str, rule: str) -> None:
    run = next(broken_by(removed))
    said = found_in(run, recording_of(run)).values()
    assert any(text.startswith(f"{rule}: ") for text in said), (run.broken, said)


def test_a_copy_that_forgets_its_operator_is_missed_in_the_recording() -> None:
    for run in seeds(0, SEEDS, "mixed"):
        recording = recording_of(run)
        for found in run.world.topics.inputs.values():
            copies = recording.records.get(TopicPartition(found.replay_topic, 0), {})
            named = [copy for copy in copies.values() if dict(copy.headers).get(OPERATOR)]
            if named and is_recorded_whole(run):
                headers = tuple(header for header in named[0].headers if header[0] != OPERATOR)
                recording.read(named[0]._replace(headers=headers))
                assert any("FailureHasAName" in text for text in found_in(run, recording).values())
                return
    pytest.fail("no copy names an operator")


def test_each_rule_is_judged_once() -> None:
    assert len({judge().rule for judge in JUDGES}) == len(JUDGES) == 10
