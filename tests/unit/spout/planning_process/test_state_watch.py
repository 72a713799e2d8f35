"""What Spark's state holds does not come again while it waits there: acker, driver and planner together."""

from __future__ import annotations

import pytest

from acker.identity import source_of
from acker.kafka.port import TopicPartition
from acker.service.view import ViewReader
from acker.wire.codec import wire_codec
from acker.wire.events import Acks, SourceRun, positions
from spout.planning.journal import BEGINNING
from spout.planning_process.planner import Planner
from spout.planning_process.state_watch import RESETS_A_TIMEOUT, RUNS_MIN, StateWatch
from spout.publishing.fold import BatchOutcome
from spout.publishing.publish import held_runs
from tests.support.worlds.planning import World, batch, yaml_of

A = source_of(1, 0)
TIMEOUT_MS, HELD_MS = 4_000, 20_000
YAML = yaml_of(timeout="4s", held_timeout="20s", max_spout_pending="200000")
LATE_MS = 1_000
"""No root times out later than this."""


def resets(world: World) -> list[int]:
    """Return, for each record by which a planning process reset timeouts, how many roots it named."""
    reader = world.log.reader(committed=False)
    ack = world.topics.ack_topics.ack
    reader.assign({TopicPartition(ack, number): 0 for number in range(world.topics.acker.partitions)})
    events = [wire_codec().decode(record.value) for record in reader.poll(0, 100_000)]
    return [
        len(positions(each.touched))
        for each in events
        if isinstance(each, Acks) and each.lane.endswith("/resets")
    ]


def runs_listed(state: StateWatch) -> int:
    """Return how many runs a planning process lists of what Spark's state holds."""
    return len(state._held_roots.table)


@pytest.mark.parametrize("acker_dies", [False, True])
def test_what_the_state_holds_outlives_a_quiet_topic_and_what_a_bolt_left_open_does_not(
    acker_dies: bool,
) -> None:
    """O1401, O1402: no batch runs meanwhile, and a restart of the acker changes nothing."""
    world = World(YAML)
    world.produce(10)
    end = batch(world.ready(), BEGINNING, world)
    world.publish_held(BEGINNING, end, held=(2, 5), left_open=(7,))
    world.run(TIMEOUT_MS - 500)
    assert world.lost("TIMED_OUT") == 0
    if acker_dies:
        world.kill_acker()
        world.start_acker()
    world.run(500 + LATE_MS + 500)
    assert world.lost("TIMED_OUT") == 1
    world.run(HELD_MS - TIMEOUT_MS - 2_000)
    assert world.lost("TIMED_OUT") == 1
    world.run(500 + LATE_MS + 500)
    assert world.lost("TIMED_OUT") == 3, "a limit has a name, and is kept"


@pytest.mark.parametrize("wakes", [True, False])
def test_a_batch_that_runs_for_longer_than_the_timeout_keeps_its_roots_where_the_state_may_hold_them(
    wakes: bool,
) -> None:
    """O1403: its rows are in the state before it is published, and a copy would be counted beside them."""
    world = World(YAML)
    world.produce(10)
    planner = world.ready(wakes=wakes)
    end = batch(planner, BEGINNING, world)
    world.run(3 * TIMEOUT_MS)
    assert world.lost("TIMED_OUT") == (0 if wakes else 10)
    assert all(count == 10 for count in resets(world))
    assert len(resets(world)) in (range(1, 3 * RESETS_A_TIMEOUT + 1) if wakes else range(1))
    outcome = world.publish_held(BEGINNING, end, held=(2, 5), left_open=(7,))
    planner.record_held_roots(held_runs(outcome))
    before = len(resets(world))
    world.run(TIMEOUT_MS + LATE_MS + 500)
    assert len(resets(world)) == before, "it is published"
    assert world.lost("TIMED_OUT") == (1 if wakes else 10)


def test_a_batch_that_hangs_times_out_when_what_the_state_holds_would() -> None:
    world = World(YAML)
    world.produce(10)
    batch(world.ready(wakes=True), BEGINNING, world)
    world.run(HELD_MS - 500)
    assert world.lost("TIMED_OUT") == 0
    world.run(500 + TIMEOUT_MS + LATE_MS + 500)
    assert world.lost("TIMED_OUT") == 10


def test_a_batch_that_is_run_again_keeps_its_roots_from_the_first_tick_on() -> None:
    """O1403: the process before died shortly before they timed out, and the clock stood still since."""
    world = World(YAML)
    world.produce(10)
    planner = world.ready(wakes=True)
    end = batch(planner, BEGINNING, world)
    world.planners.remove(planner)
    for _ in range((TIMEOUT_MS - 300) // 100):  # its clock goes on, and it resets nothing
        world.cluster.now_ms += 100
        planner._require_owned().state_watch.under_way = None
        planner.step(planner.poll(0), world.now_ms)
        world.acker.step(world.now_ms)
    again = world.make(wakes=True)
    again.open(end, world.now_ms, runs_again=True)
    world.run(3 * TIMEOUT_MS)
    assert world.lost("TIMED_OUT") == 0
    assert again.under_way == end
    world.publish_held(BEGINNING, end, held=(3,))
    again.record_held_roots([SourceRun(A, 3, 4)])
    world.run(3_000)
    assert world.lost("TIMED_OUT") == 0
    assert again.status(world.now_ms).pending == 1


@pytest.mark.parametrize("is_carried", [False, True])
def test_a_view_tells_what_the_state_holds_from_what_is_left_open(is_carried: bool) -> None:
    """O1405: from State, whether it carries the roots by value or a restart would read its logs again."""
    limits = "  limits: {refold_bytes: 0, retention_interval: 1s}\n" if is_carried else ""
    world = World(YAML.replace("acker: {partitions: 3}\n", f"acker:\n  partitions: 3\n{limits}"))
    world.produce(10)
    planner = world.ready()
    first = batch(planner, BEGINNING, world)
    world.publish_held(BEGINNING, first, held=(2, 5))
    world.produce(10)
    world.run(300)
    second = batch(planner, first, world)
    world.publish_held(first, second, left_open=(1,))
    world.run(1_500)
    acker = world.topics.acker
    reader = ViewReader(world.cluster.log(), acker.topics, acker.partitions, acker.limits)
    views = [found for number in range(acker.partitions) if (found := reader.view(number)) is not None]
    held, left_open = sorted(
        (each for view in views for each in view.open_ranges()), key=lambda each: each.first
    )
    assert [each.carried for each in (held, left_open)] == [is_carried, is_carried]
    assert (held.first, held.in_state, left_open.first, left_open.in_state) == (2, True, 11, False)
    assert held.left_ms is not None
    assert HELD_MS - 3_000 < held.left_ms < HELD_MS
    assert left_open.left_ms is not None
    assert left_open.left_ms < TIMEOUT_MS


def published(planner: Planner, outcome: BatchOutcome) -> None:
    """Let the planner know what the driver says."""
    planner.record_held_roots(held_runs(outcome))


def test_a_query_that_ends_when_all_is_done_does_not_wait_for_what_the_state_holds() -> None:
    """O1404: `availableNow`; it waits for verdicts under way, and for what a bolt left open."""
    world = World(YAML)
    world.start_replays()
    world.produce(10)
    planner = world.ready(stops_at_ends=True, wakes=True)
    end = batch(planner, BEGINNING, world)
    assert not planner.is_drained()
    outcome = world.publish_held(BEGINNING, end, held=(2, 5), left_open=(7,))
    published(planner, outcome)
    assert not planner.is_drained(), "the verdicts of the others are under way"
    world.run(500)
    assert planner.status(world.now_ms).pending == 3
    assert not planner.is_drained(), "the root that was left open times out, and is replayed"
    world.run(TIMEOUT_MS + LATE_MS)
    assert planner.status(world.now_ms).pending == 2
    assert not planner.is_drained(), "its copy is due"
    world.run(2_000)
    copies = batch(planner, end, world)
    assert copies != end
    world.publish(end, copies, absent=[SourceRun(source_of(1, 0, replay=True), 1, 2)])
    planner.record_held_roots(())
    world.run(1_000)
    assert planner.is_drained()


def test_the_next_start_of_a_query_that_ends_does_not_wait_for_what_the_state_holds_either() -> None:
    """O1404: a restart is told what is pending, and what was published is in the checkpoint's state."""
    world = World(YAML)
    world.produce(10)
    planner = world.ready(stops_at_ends=True, wakes=True)
    end = batch(planner, BEGINNING, world)
    published(planner, world.publish_held(BEGINNING, end, held=(2, 5)))
    world.run(500)
    assert planner.is_drained()
    planner.close()
    world.kill(planner)
    again = world.ready(end, stops_at_ends=True, wakes=True)
    assert again.status(world.now_ms).pending == 2
    first = batch(again, end, world)
    assert again.is_drained()
    assert not first.ranges
    plain = world.ready(first, stops_at_ends=True)
    assert not plain.is_drained(), "without delayed acks nothing is in any state"


def test_of_a_batch_that_holds_too_many_pieces_all_counts_as_held() -> None:
    """The file between driver and planning process stays small."""
    world = World(YAML)
    world.produce(10)
    planner = world.ready(stops_at_ends=True, wakes=True)
    end = batch(planner, BEGINNING, world)
    world.publish_held(BEGINNING, end, held=(2,))
    planner.record_held_roots(None)
    assert planner.is_drained()


def test_what_has_got_its_verdict_is_forgotten_once_it_is_most_of_what_was_held() -> None:
    world = World(YAML)
    world.produce(4 * RUNS_MIN)
    planner = world.ready(wakes=True)
    start, end = BEGINNING, batch(planner, BEGINNING, world)
    runs = [SourceRun(A, at, at + 1) for at in range(0, 4 * RUNS_MIN, 2)]
    planner.record_held_roots(runs)
    world.publish(start, end)
    world.run(500)
    world.produce(1)
    start, end = end, batch(planner, end, world)
    planner.record_held_roots([SourceRun(A, 4 * RUNS_MIN, 4 * RUNS_MIN + 1)])
    state = planner._require_owned().state_watch
    assert state is not None
    assert state.holds_all_pending()
    assert runs_listed(state) == 1
