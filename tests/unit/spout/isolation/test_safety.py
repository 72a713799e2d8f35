"""When tasks isolate their bolts, how long these may take, and how isolated records are named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from acker.config.topics import Topics, parse
from acker.errors import UsageError
from acker.identity import position_at, source_of
from acker.wire.events import SourceRun
from replay.policy.disposition import Action, Rule, rule_of
from spout.builder.submitted import TopologyStatus, topology_metrics
from spout.isolation.safety import (
    IDLE_KILLS,
    IDLE_LIMITS,
    Safety,
    bolt_timeout_ms,
    idle_limit_ms,
    idle_warning,
    refuse_idle_limit,
    tried_once,
)
from spout.isolation.task_runs import MALLOC_VARIABLES
from spout.link.planner_link import PlannerLink
from spout.planning.plan import BatchPlan
from spout.publishing.batch_warnings import isolated_counts, isolated_records
from spout.streaming.application import WorkDone
from spout.tuples.failures import Cause
from spout.tuples.poison import HUNG, WORKER_DIED
from tests.support.outcomes import outcome_from

TOPICS: Topics = parse(
    """
inputs:
  a: {id: 1, group: g, bolt_timeout: 2s}
  b: {id: 2, group: g, bolt_timeout: 5s}
  c: {id: 3, group: g}
""",
    file="topics.yaml",
    environ={},
)


def test_a_task_isolates_when_it_is_tried_again_or_its_batch_is_run_again(tmp_path: Path) -> None:
    mark = PlannerLink(tmp_path, "stream", "g").mark
    safety = Safety(mark=str(mark))
    assert [safety.isolates(tries) for tries in (0, 1, 2)] == [False, True, True]
    mark.touch()
    assert safety.isolates(0)
    assert not Safety(mark=str(PlannerLink(tmp_path, "other", "g").mark)).isolates(0)
    assert not Safety().isolates(0)


@pytest.mark.parametrize(("names", "limit"), [("a", 2_000), ("ab", 5_000), ("abc", 0), ("c", 0)])
def test_a_query_takes_the_longest_limit_of_its_inputs(names: str, limit: int) -> None:
    assert bolt_timeout_ms([TOPICS.input(name) for name in names]) == limit


@pytest.mark.parametrize(
    ("master", "once"),
    [
        ("local", True),
        ("local[2]", True),
        ("local[*]", True),
        ("local[2,3]", False),
        ("local[*, 3]", False),
        ("local-cluster[2,1,1024]", False),
        ("spark://host:7077", False),
        ("yarn", False),
    ],
)
def test_masters_that_try_a_task_once_are_known(master: str, once: bool) -> None:
    assert tried_once(master) is once


def test_isolated_records_are_named_by_their_place_and_counted() -> None:
    ranges = (
        SourceRun(source_of(1, 3), position_at(0, 1_000), position_at(0, 1_010)),
        SourceRun(source_of(9, 0), position_at(2, 5), position_at(2, 6)),
        SourceRun(source_of(1, 3, replay=True), position_at(0, 7), position_at(0, 9)),
    )
    plan = BatchPlan("g", "s", 1, 4, 0, 0, True, ranges)
    died, hung = Cause("split", WORKER_DIED, "SIGSEGV"), Cause("split", HUNG, "took long")
    outcome = outcome_from(
        plan,
        (
            (died, np.array([0, 9, 10])),
            (Cause("split", "ValueError", "no"), np.array([3])),
            (hung, np.array([11, 12])),
        ),
    )
    named = [(record.place, record.cause) for record in isolated_records(outcome, TOPICS.inputs_of("g"))]
    assert named == [
        ("a/3@1000", died),
        ("a/3@1009", died),
        (f"{source_of(9, 0)}/0@5", died),
        ("a.g.replay/3@7", hung),
        ("a.g.replay/3@8", hung),
    ]
    assert isolated_counts(outcome) == {WORKER_DIED: 3, HUNG: 2}
    work = WorkDone()
    work.add({}, (), isolated_counts(outcome))
    work.add({}, (), {HUNG: 1})
    assert work.isolated == {WORKER_DIED: 3, HUNG: 3}


def test_isolated_records_stand_in_a_topology_s_metrics() -> None:
    status = TopologyStatus("active", None, {}, isolated={HUNG: 2})
    samples = [
        (sample.labels, sample.value)
        for metric in topology_metrics(status, "g", 0)
        for sample in metric.samples
        if sample.name == "windhover_topology_isolated_total"
    ]
    assert samples == [({"group": "g", "cause": HUNG}, 2)]


@pytest.mark.parametrize("error", [WORKER_DIED, HUNG])
def test_a_rule_of_topics_yaml_may_name_what_an_isolated_record_failed_by(error: str) -> None:
    text = f"inputs: {{a: {{id: 1, group: g, retry: {{causes: [{{error: {error}, then: dead_letter}}]}}}}}}"
    [named] = parse(text, file="topics.yaml", environ={}).inputs["a"].retry.causes
    rules = [Rule(named.error, named.operator, Action(named.then))]
    assert rule_of(rules, "split", error).then is Action.DEAD_LETTER
    assert rule_of([Rule("Exception", None, Action.DEAD_LETTER)], "split", error).then is Action.RETRY
    assert rule_of([], "split", error).then is Action.RETRY


FAULTS = """
import resource
import numpy as np
from spout.isolation.task_runs import no_garbage_collection

with no_garbage_collection():
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(50):
            np.ones(250_000)  # 2 MB
        print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.parametrize(
    "own", [{}, {"MALLOC_MMAP_THRESHOLD_": "131072"}], ids=["as it comes", "set by hand"]
)
def test_a_task_does_not_ask_the_system_for_the_same_memory_again(own: dict[str, str]) -> None:
    """Each page of memory that was given back and is asked for again is a fault."""
    environment = {name: value for name, value in os.environ.items() if name not in MALLOC_VARIABLES} | own
    run = [sys.executable, "-c", FAULTS]
    ran = subprocess.run(run, env=environment, capture_output=True, text=True, check=True, timeout=60)
    *_, last = map(int, ran.stdout.split())
    assert last > 20_000 if own else last < 600


@pytest.mark.parametrize("kills", IDLE_KILLS)
@pytest.mark.parametrize("limit", IDLE_LIMITS)
@pytest.mark.parametrize(
    ("written", "idle_ms"), [("10", 10_000), ("10s", 10_000), ("2min", 120_000), ("1H", 3_600_000), ("0", 0)]
)
def test_spark_s_own_limit_is_read_as_spark_reads_it(
    kills: str, limit: str, written: str, idle_ms: int
) -> None:
    """D2405: by either name of each setting; a number alone is in seconds."""
    assert idle_limit_ms({kills: "true", limit: written}) == idle_ms
    assert idle_limit_ms({kills: "TRUE", limit: written}) == idle_ms
    assert idle_limit_ms({kills: "false", limit: written}) == 0
    assert idle_limit_ms({limit: written}) == 0


def test_the_setting_of_sql_counts_before_that_of_the_core() -> None:
    """D2405: as in Spark."""
    assert idle_limit_ms({IDLE_KILLS[0]: "false", IDLE_KILLS[1]: "true", IDLE_LIMITS[1]: "9"}) == 0
    assert idle_limit_ms({IDLE_KILLS[1]: "true", IDLE_LIMITS[0]: "7", IDLE_LIMITS[1]: "9"}) == 7_000


@pytest.mark.parametrize(("bolt_ms", "idle_ms"), [(10_000, 10_000), (60_000, 10_000), (10_001, 10_000)])
def test_a_bolt_timeout_that_spark_s_limit_forestalls_is_refused(bolt_ms: int, idle_ms: int) -> None:
    """D2405: a call that hangs would end the query."""
    with pytest.raises(UsageError, match=r"bolt_timeout is .*killOnIdleTimeout.*lower bolt_timeout"):
        refuse_idle_limit(bolt_ms, idle_ms)


@pytest.mark.parametrize(("bolt_ms", "idle_ms"), [(500, 0), (0, 10_000), (9_000, 10_000)])
def test_other_limits_of_spark_s_are_accepted_and_said(bolt_ms: int, idle_ms: int) -> None:
    """D2405: there is none, none of ours, or ours comes first; a line says what Spark will do."""
    refuse_idle_limit(bolt_ms, idle_ms)
    assert ("bolt_timeout" in idle_warning(idle_ms)) == bool(idle_ms)
