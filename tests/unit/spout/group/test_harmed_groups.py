"""Groups that somebody harmed: by what they come back, and what their queries are told."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from acker.errors import Disagreement
from acker.identity import acker_partition, generation_of, position_at, source_of
from acker.kafka.port import Outgoing
from acker.ledger.cohort import Session
from acker.ledger.sessions import GENERATION_FIRST_MAX, GENERATION_STEP_MAX, Clock
from acker.wire.checks import CLOCK_AHEAD_MS_MAX, EPOCHS_FREE
from acker.wire.codec import wire_codec
from acker.wire.events import Event, Init, SourceRun, Take, TakeSource, Tick
from spout.group.opening import clock_after, epoch_above, generation_steps
from spout.inspect.operate import GroupSession
from spout.planning.journal import BEGINNING, Journal
from spout.planning_process.planner import Planner
from tests.support.worlds.planning import WALL_MS, World, batch

SOURCE = source_of(1, 0)
HOUR_MS = 3_600_000


def write(world: World, events: Sequence[Event], partitions: Sequence[int] = (0, 1, 2)) -> None:
    """Write to ``_ack_init``, whoever's name it is in, and let the acker read it."""
    producer = world.log.producer()
    for event in events:
        for partition in partitions:
            value = wire_codec().encode(event)
            producer.send(Outgoing(world.topics.ack_topics.init, partition, value))
    producer.flush(0)
    world.run(300)


def works(world: World, planner: Planner, start: Journal) -> Journal:
    """Check that what is emitted is acked, and that it times out where it is not."""
    world.produce(3)
    end = batch(planner, start, world)
    world.publish(start, end, skip=(planner.first_uninitialised_positions()[SOURCE] - 1,))
    world.run(1_000)
    assert planner.status(world.now_ms).pending == 1
    world.run(8_000)
    assert planner.status(world.now_ms).pending == 0
    return end


def harm_of_former_days(world: World, *, epoch: int, clock_ms: int) -> None:
    """Let the ackers have an owner with an epoch and a clock, as ackers without bounds could believe."""
    assert world.acker is not None
    for acker in world.acker._owned_ackers.values():
        group = acker.core.sessions.groups["g"]
        forged = Session("g", epoch, "forged") if epoch else group.owner
        group.owner = forged
        group.clocks[forged] = Clock(clock_ms, clock_ms)
        acker.record_change(world.now_ms, has_read_acks_or_fails=True)
    world.run(1_500)
    world.kill_acker()
    world.start_acker()
    world.run(1_500)


def release(world: World) -> None:
    """Take the group over without a successor, as `windhover release --take-over` does."""
    operation = GroupSession(
        world.cluster.log(), world.topics, "g", new_id="op", take_over=True,
        report=lambda event, _fields: world.told.append(event),
    )  # fmt: skip
    while not operation.step(world.now_ms):
        world.run(100)
    operation.finish()


FAR = 1 << 53


@pytest.mark.parametrize(
    ("epoch", "clock_ms", "told"),
    [
        (FAR, WALL_MS, ["epoch_left_behind"]),
        (FAR - 1, FAR, ["epoch_left_behind", "clock_left_behind"]),
        (0, FAR, ["clock_left_behind"]),
        (2, -FAR, []),
        (WALL_MS, WALL_MS, []),
    ],
)
def test_release_brings_a_group_back_whose_state_has_what_ackers_once_believed(
    epoch: int, clock_ms: int, told: list[str]
) -> None:
    """O1802: State with such an owner and clock is read; a new session leaves both behind, and says so."""
    world = World()
    first = world.ready()
    works(world, first, BEGINNING)
    world.kill(first)
    harm_of_former_days(world, epoch=epoch, clock_ms=clock_ms)
    release(world)
    assert [event for event in world.told if event.endswith("left_behind")] == told
    planner = world.ready()
    assert planner.status(0).epoch <= world.now_ms + EPOCHS_FREE
    works(world, planner, BEGINNING)
    world.kill(planner)
    assert world.ready(take_over=True).status(0).epoch > planner.status(0).epoch


def test_what_an_owner_that_is_not_real_has_open_is_abandoned() -> None:
    world = World()
    world.produce(3)
    first = world.ready()
    batch(first, BEGINNING, world)
    world.run(300)
    world.kill(first)
    harm_of_former_days(world, epoch=FAR, clock_ms=0)
    topic_id = world.log.topics(["sentences"])["sentences"].id
    init = Init("g", "forged", FAR, 0, 0, 0, 3, "sentences", topic_id, (SourceRun(SOURCE, 3, 5),))
    write(world, [init], [acker_partition(SOURCE, 3, 3)])
    release(world)
    assert world.acker is not None
    assert (world.lost("ABANDONED"), world.acker.status().open_roots) == (5, 0)


def test_a_restart_whose_clock_no_acker_believes_is_told_so_and_goes_on_with_a_new_session() -> None:
    world = World()
    first = world.ready()
    end = works(world, first, BEGINNING)
    world.kill(first)
    harm_of_former_days(world, epoch=0, clock_ms=world.now_ms + 24 * HOUR_MS)
    with pytest.raises(
        Disagreement, match=r"clock of session 1/s1 of group g is 86\d{3} s ahead.*take_over=True"
    ):
        world.ready(end)
    world.planners.clear()
    again = world.ready(end, take_over=True)
    assert again.status(0).session != "s1"
    works(world, again, end)


def test_who_has_a_wrong_clock_is_told_to_set_it() -> None:
    """By the time that the broker gives its records; before, every newcomer would inherit that clock."""
    world = World()
    ahead_ms = CLOCK_AHEAD_MS_MAX + 60_000
    planner = world.make()
    world.planners.remove(planner)
    planner.open(BEGINNING, world.now_ms + ahead_ms)

    def step_on() -> None:
        for _ in range(100):
            world.run(100)
            planner.step(planner.poll(0), world.now_ms + ahead_ms)

    with pytest.raises(Disagreement, match=r"its clock is ahead.*7260; set the clock of this machine and"):
        step_on()


@pytest.mark.parametrize("stays", [False, True])
def test_generations_that_somebody_raised_in_one_acker_partition_are_spread_to_the_others(
    stays: bool,
) -> None:
    """An acker refuses a jump; a session goes there in steps, which a rewind and a restart do as well."""
    world = World()
    first = world.ready()
    end = works(world, first, BEGINNING)
    world.kill(first)
    for generation in range(GENERATION_STEP_MAX, 5 * GENERATION_STEP_MAX, GENERATION_STEP_MAX):
        named = TakeSource(SOURCE, "sentences", world.log.topics(["sentences"])["sentences"].id, generation,
                           int(position_at(generation, 3)))  # fmt: skip
        write(world, [Take("g", "s1", 1, 0, 3, (named,))], [1])
    planner = world.ready(end) if stays else world.ready()
    assert generation_of(planner.first_uninitialised_positions()[SOURCE]) == 4 * GENERATION_STEP_MAX
    works(world, planner, end if stays else BEGINNING)
    world.kill(planner)
    world.run(11_000)
    world.rewind(0)
    assert generation_of(world.ready().first_uninitialised_positions()[SOURCE]) == 4 * GENERATION_STEP_MAX + 1


def test_a_wrong_tick_of_a_living_session_changes_nothing() -> None:
    """O1803: before, nothing of the group timed out ever again, new sessions included."""
    world = World()
    planner = world.ready()
    write(world, [Tick("g", "s1", 1, FAR), Tick("g", "s1", 1, world.now_ms + 24 * HOUR_MS)])
    works(world, planner, BEGINNING)
    assert world.acker is not None
    assert world.acker.status().counts.quarantined_records == 6


def test_the_steps_to_a_generation_are_no_wider_than_an_acker_takes() -> None:
    step, first = GENERATION_STEP_MAX, GENERATION_FIRST_MAX
    far, near = TakeSource(1, "t", "", 40, int(position_at(40, 7))), TakeSource(2, "t", "", 3, 5)
    steps = list(generation_steps((far, near), {1: 3, 2: 3}))
    assert [[(one.source, one.generation, one.from_) for one in sources] for sources in steps] == [
        [(1, 3 + step, position_at(3 + step, 7))],
        [(1, 3 + 2 * step, position_at(3 + 2 * step, 7))],
    ]
    assert list(generation_steps((far,), {1: 40 - step})) == []
    unknown = replace_generation(far, first + 1)
    assert [sources[0].generation for sources in generation_steps((unknown,), {})] == [first]
    assert list(generation_steps((replace_generation(far, first),), {})) == []


def replace_generation(source: TakeSource, generation: int) -> TakeSource:
    return source._replace(generation=generation, from_=int(position_at(generation, 0)))


def test_a_new_session_follows_on_each_owner_that_is_real_and_leaves_others_behind() -> None:
    assert (epoch_above(0, WALL_MS), epoch_above(7, WALL_MS)) == (1, 8)
    assert epoch_above(WALL_MS + EPOCHS_FREE - 1, WALL_MS) == WALL_MS + EPOCHS_FREE
    assert epoch_above(WALL_MS + EPOCHS_FREE, WALL_MS) == WALL_MS
    assert (clock_after(5, WALL_MS), clock_after(WALL_MS + 60_000, WALL_MS)) == (WALL_MS, WALL_MS + 60_000)
    assert clock_after(WALL_MS + CLOCK_AHEAD_MS_MAX, WALL_MS) == WALL_MS
