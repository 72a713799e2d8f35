"""Where the product reads a clock, and that what is done from time to time goes on by one that steps.

A wall clock is set: by a person, by NTP, when a machine wakes up. What a process does every half minute it
must neither leave undone for an hour, nor do again and again while the clock stands.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from acker.service.service import AckerService
from replay.worker.service import ReplayService
from spout.inspect.overview import Overview
from spout.inspect.summary import SERIES_EVERY_MS, History
from spout.planning.journal import BEGINNING
from tests.support.memory.clients import NoFaults
from tests.support.worlds.planning import World, batch

ROOT = Path(__file__).parents[2]
HOUR_MS = 3_600_000
ROUND_MS = 250
ROUNDS = 180
"""45 s: longer than what a process does from time to time, of which most is done every 30 s."""

WALL_CLOCKS = {
    "acker/kafka/client.py": "when an outage began, and how far it is from the broker's clock: for people",
    "acker/kafka/tokens.py": "compared with the end of a token, which is wall time, when the token comes",
    "spout/bolts/trace_hook.py": "when a span ended: for people",
    "spout/builder/streams.py": "tests/unit/spout/builder/test_stream_metrics.py",
    "spout/builder/submitted.py": "how old a status is: for metrics",
    "spout/cli/common.py": "tests/unit/test_clocks.py",
    "spout/demo/run.py": "when the demo killed a driver: for its report",
    "spout/doctor/on_executor.py": "how far an executor's clock is from the driver's, within some seconds",
    "spout/sinks/batch_end.py": "when something came too late: for people",
    "spout/standalone/engine.py": "read once: a monotonic clock goes on from there",
    "spout/standalone/kafka_spout.py": "since when a process runs: for people",
    "spout/streaming/source.py": "tests/unit/spout/planning_process/test_stepping_clock.py",
}
"""Each file that reads the wall clock, with the test that steps it, or why a step does no harm."""

WALL_CLOCK = re.compile(r"\b(time\.time(_ns)?|datetime\.(utc)?now|datetime\.today)\b(?! *=)")


def test_each_place_that_reads_the_wall_clock_has_a_test_that_steps_it_or_a_reason() -> None:
    """All else gets the time as an argument, or reads a clock that nobody can set."""
    files = [path for room in ("acker", "replay", "spout") for path in (ROOT / room).rglob("*.py")]
    readers = {
        path.relative_to(ROOT).as_posix()
        for path in files
        if WALL_CLOCK.search(path.read_text(encoding="utf-8"))
    }
    assert readers == WALL_CLOCKS.keys()
    tests = [why for why in WALL_CLOCKS.values() if why.startswith("tests/")]
    assert all((ROOT / name).is_file() for name in tests)


class Counting(NoFaults):
    """Counts the requests of a process, by kind."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def before(self, operation: str) -> None:
        """Count one."""
        self.counts[operation] += 1


SELDOM = {"topics", "members", "committed", "commit_offsets", "missing_brokers", "delete_before"}
"""Requests that no process sends in each round."""

Process = Callable[[Counting], Callable[[int], object]]
"""Makes a process that is ready; what it returns lets it do one round at a time."""


def idle_planner(counting: Counting) -> Callable[[int], object]:
    world = World()
    planner = world.ready(faults=counting)
    return lambda now_ms: planner.step(planner.poll(0), now_ms)


def planner_with_roots(counting: Counting) -> Callable[[int], object]:
    world = World()
    world.produce(5)
    planner = world.ready(faults=counting)
    batch(planner, BEGINNING, world)
    return lambda now_ms: planner.step(planner.poll(0), now_ms)


def acker(counting: Counting) -> Callable[[int], object]:
    world = World()
    world.kill_acker()
    topics = world.topics
    service = AckerService(
        world.cluster.log(counting), topics.ack_topics, topics.acker.partitions, group=topics.acker.group,
        limits=topics.acker.limits,
    )  # fmt: skip
    return service.step


def replay_worker(counting: Counting) -> Callable[[int], object]:
    world = World()
    service = ReplayService(world.cluster.log(counting), world.topics, jitter=lambda: 0.0)
    return service.step


PROCESSES = pytest.mark.parametrize(
    "process", [idle_planner, planner_with_roots, acker, replay_worker], ids=lambda made: made.__name__
)


def requests_in(
    step: Callable[[int], object], counting: Counting, now_ms: int, round_ms: int
) -> Counter[str]:
    """Let a process do its rounds, and return its requests by kind."""
    counting.counts.clear()
    for number in range(ROUNDS):
        step(now_ms + number * round_ms)
    return Counter(counting.counts)


@PROCESSES
@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS], ids=["back", "ahead"])
def test_what_a_process_does_from_time_to_time_goes_on_by_a_clock_that_steps(
    process: Process, step_ms: int
) -> None:
    counting = Counting()
    step, now_ms = process(counting), World().now_ms + 10 * HOUR_MS
    requests_in(step, counting, now_ms, ROUND_MS)  # what it does once, at first
    now_ms += ROUNDS * ROUND_MS
    before = requests_in(step, counting, now_ms, ROUND_MS)
    now_ms += ROUNDS * ROUND_MS + step_ms
    after = requests_in(step, counting, now_ms, ROUND_MS)
    assert before.keys() <= after.keys(), "it is left undone"
    less = {
        kind: (count, after[kind])
        for kind, count in before.items()
        if kind in SELDOM and after[kind] < 0.75 * count
    }
    more = {kind: (before[kind], count) for kind, count in after.items() if count > 2 * before[kind] + 5}
    assert (less, more) == ({}, {})


@PROCESSES
def test_nothing_is_done_again_and_again_while_the_clock_stands(process: Process) -> None:
    counting = Counting()
    step, now_ms = process(counting), World().now_ms + 10 * HOUR_MS
    requests_in(step, counting, now_ms, ROUND_MS)
    now_ms += ROUNDS * ROUND_MS
    while_it_stands = requests_in(step, counting, now_ms, 0)
    # a question of two parts is two requests
    assert {kind: count for kind, count in while_it_stands.items() if kind in SELDOM and count > 6} == {}


@pytest.mark.parametrize("step_ms", [-HOUR_MS, 0, HOUR_MS], ids=["back", "none", "ahead"])
def test_the_series_of_the_page_go_on_by_a_clock_that_steps(step_ms: int) -> None:
    world = World()
    overview, history = Overview(world.log, world.topics), History()
    first = overview.snapshot(world.now_ms + 2 * HOUR_MS)
    history.record(first, world.topics)
    world.cluster.now_ms += 2 * HOUR_MS + step_ms + SERIES_EVERY_MS
    second = overview.snapshot(world.now_ms)
    points = history.record(second, world.topics)
    overview.close()
    assert all(series[-1][0] == second.at_ms for series in points.values())
    times = [[at_ms for at_ms, _ in series] for series in points.values()]
    assert all(series == sorted(series) for series in times)


VIEWS = ("spout/cli", "spout/demo", "spout/doctor", "spout/inspect", "spout/questions", "spout/ui")
"""Rooms that show ages, and do nothing by them: what they show is wrong for as long as the clock is."""

OPEN_DIFFERENCES = {
    "acker/clock_watch.py:broker_ms": "never below nothing; the broker's time, for reports",
    "acker/clock_watch.py:compare": "it compares clocks: a jump is what it looks for",
    "acker/clocks.py:clocks_differ": "the other clock's time, for people",
    "acker/kafka/cluster.py:log_progress": "by the clock of its client, which nobody can set",
    "acker/kafka/standing.py:find_standing": "a clock that was set back makes it the first look again",
    "acker/kafka/standing.py:record_positions": "a look counts for a second at most, and never backwards",
    "acker/kafka/standing.py:standing": "by the time that its own looks have counted",
    "acker/ledger/tally.py:_add_copies": "how long roots took, for metrics",
    "acker/ledger/tally.py:add": "how long roots took, for metrics",
    "acker/service/service.py:_deletable_ends": "from which offset on verdicts are kept: a time in the log",
    "acker/service/service.py:_record_restore_times": "how long a restore took, for people",
    "acker/service/silent.py:overdue": "by a clock that nobody can set",
    "acker/units.py:past_ms": "a time that a person gave, such as 2h",
    "acker/waits.py:record_wait": "a line in the log, by whatever clock its caller has",
    "acker/waits.py:read": "`PassedTime`, which bounds it",
    "acker/waits.py:waited_ms": "by the clock of its caller: `PassedTime` where a wait ends by it",
    "replay/handling/letter_handling.py:allowed_letters": "at most what a second allows, not below nothing",
    "replay/policy/breaker.py:_second_of_now": "the second that a loss counts in; a jump empties the window",
    "replay/policy/breaker.py:_forget_old": "the second that a loss counts in; a jump empties the window",
    "replay/policy/breaker.py:_window_length_ms": "for people",
    "replay/worker/partition.py:_next_batch": "progress alone is written at once where the clock was set",
    "replay/worker/worker.py:is_too_old": "the age of a record by the time in it, as `max_age` is meant",
    "spout/group/clocks.py:wrong_clocks": "it compares clocks, and passes over what is old",
    "spout/group/presence.py:__init__": "from which offset on signs are read: a time in the log",
    "spout/isolation/child_process.py:_end_if_stuck": "by a clock that nobody can set",
    "spout/planning_process/draining.py:_wait_for_replays": "no more than what has passed by `PassedTime`",
    "spout/planning_process/draining.py:verdict_wait": "an age for people",
    "spout/planning_process/planner.py:status": "an age for people",
    "spout/planning/pace.py:end_batch": "the pace of one batch, which the next one corrects",
    "spout/planning/session.py:advance": "it moves a session's clock by a second at most, and never back",
    "spout/publishing/batch_warnings.py:warn": "by a clock that nobody can set",
    "spout/publishing/watermarks.py:report": "by a clock that nobody can set",
    "spout/runtime/process.py:publish_status_if_due": "when a line in the log says that a process stands by",
    "spout/runtime/pulse.py:record_sample": "by a clock that nobody can set",
    "spout/standalone/engine.py:_plan": "by a clock that nobody can set",
    "spout/standalone/store.py:_begin_window_if_over": "by a clock that nobody can set",
}
"""Where a time is taken from now, without a bound on both sides, and why that ends nothing too early."""


def open_differences(path: Path) -> set[str]:
    """Return the functions of a file that take a time from now.

    ``0 <= now_ms - since_ms < limit_ms`` and ``abs(now_ms - since_ms) >= limit_ms`` are bounded on both
    sides: what they wait for comes at once where the clock was set back.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bounded = set[ast.AST]()
    for node in ast.walk(tree):
        has_two_bounds = isinstance(node, ast.Compare) and len(node.ops) == 2
        is_absolute = isinstance(node, ast.Call) and ast.unparse(node.func) == "abs"
        if has_two_bounds or is_absolute:
            bounded.update(ast.walk(node))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {
        f"{path.relative_to(ROOT).as_posix()}:{function.name}"
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and ast.unparse(node.left) in ("now_ms", "wall_ms")
        and node not in bounded
    }


def test_what_waits_for_a_time_to_pass_has_two_bounds_or_a_reason() -> None:
    """D413: a wait that ends by the wall clock ends at once where somebody sets that ahead."""
    files = [path for room in ("acker", "replay", "spout") for path in (ROOT / room).rglob("*.py")]
    doing = [path for path in files if not path.relative_to(ROOT).as_posix().startswith(VIEWS)]
    assert set().union(*map(open_differences, doing)) == OPEN_DIFFERENCES.keys()
