"""The clock of a planning process steps back an hour, ahead an hour, or stands: its roots and its group."""

from __future__ import annotations

import pytest

from acker.errors import SessionRefused
from acker.kafka.port import Outgoing
from acker.wire.codec import wire_codec
from acker.wire.events import Tick
from spout.group.opening import GIVE_UP_MS
from spout.group.presence import SIGN_EVERY_MS, SILENT_MS_MAX, Presence, sign_headers
from spout.planning.journal import BEGINNING, Journal
from spout.planning.session import SessionName
from spout.planning_process.planner import Planner
from tests.support.worlds.planning import FLUSH_MS, STEP_MS, WHO, World, batch

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
TIMEOUT_MS = 4_000
STEPS = pytest.mark.parametrize(
    "step_ms", [0, -HOUR_MS, HOUR_MS, -600, 2_500], ids=["none", "back", "ahead", "a-bit-back", "a-bit-ahead"]
)


def timed_out_after_ms(world: World) -> int:
    """Let time pass until a root has timed out; return how much, at most a minute."""
    began_ms = world.now_ms
    while not world.lost("TIMED_OUT") and world.now_ms - began_ms < MINUTE_MS:
        world.run(STEP_MS)
    return world.now_ms - began_ms


def begun_at(world: World, planner: Planner, *, had_roots: bool) -> Journal:
    """Return where the next batch begins; with `had_roots` behind one of three roots that is acked."""
    if not had_roots:
        return BEGINNING
    world.produce(3)
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end)
    world.run(1_000)
    return end


@STEPS
@pytest.mark.parametrize("had_roots", [False, True], ids=["first batch", "after another"])
@pytest.mark.parametrize("at_ms", [0, 700], ids=["at once", "meanwhile"])
def test_roots_time_out_neither_early_nor_late(step_ms: int, had_roots: bool, at_ms: int) -> None:
    """The clock of the session follows the process's, by at most a second a reading, and never back."""
    world = World()
    planner = world.ready()
    end = begun_at(world, planner, had_roots=had_roots)
    world.produce(5)
    batch(planner, end, world)
    world.run(at_ms)
    world.spouts_ahead_ms += step_ms
    passed_ms = at_ms + timed_out_after_ms(world)
    # one reading adds a second at most, so what lies ahead counts as no more
    assert TIMEOUT_MS - 1_000 - STEP_MS <= passed_ms <= TIMEOUT_MS + 1_500
    assert world.lost("TIMED_OUT") == 5


def test_nothing_times_out_while_the_clock_stands_and_all_does_when_it_goes_on() -> None:
    world = World()
    world.produce(5)
    planner = world.ready()
    batch(planner, BEGINNING, world)
    for _ in range(100):
        world.spouts_ahead_ms -= STEP_MS
        world.run(STEP_MS)
    assert world.lost("TIMED_OUT") == 0
    assert TIMEOUT_MS - STEP_MS <= timed_out_after_ms(world) <= TIMEOUT_MS + 1_500


@STEPS
def test_an_idle_owner_is_seen_to_live_by_whoever_would_take_its_group(step_ms: int) -> None:
    """Its signs of life go on by its own clock, whatever that shows."""
    world = World()
    world.ready(who=WHO)
    world.run(1_000)
    world.spouts_ahead_ms += step_ms
    world.run(SILENT_MS_MAX)
    topic, partitions = world.topics.ack_topics.init, world.topics.acker.partitions
    presence = Presence(world.log, topic, partitions, "g", world.now_ms)  # its clock is the broker's
    assert SILENT_MS_MAX - SIGN_EVERY_MS - STEP_MS <= presence.wait_ms(SessionName(1, "s1")) <= SILENT_MS_MAX


@STEPS
def test_a_living_owner_keeps_its_group_where_the_clock_of_a_newcomer_steps(step_ms: int) -> None:
    """D3001: it was taken from it where the clock was set ahead."""
    world = World()
    world.ready(who=WHO)
    world.run(1_000)
    world.planner()
    world.run(200)
    world.spouts_ahead_ms += step_ms
    with pytest.raises(SessionRefused, match="is held by session 1/s1"):
        world.run(SIGN_EVERY_MS + 1_000)


@STEPS
@pytest.mark.parametrize("is_before", [True, False], ids=["before it begins", "while it waits"])
def test_the_group_of_a_dead_owner_is_taken_after_its_silence(step_ms: int, is_before: bool) -> None:
    """D3001: an hour ahead, its signs are an hour old; an hour behind, they are from the future."""
    world = World()
    world.kill(world.ready(who=WHO))
    if is_before:
        world.spouts_ahead_ms = step_ms
    newcomer = world.planner()
    world.run(500)
    if not is_before:
        world.spouts_ahead_ms = step_ms
    began_ms = world.now_ms - 500
    while not newcomer.is_ready and world.now_ms - began_ms < MINUTE_MS:
        world.run(STEP_MS)
    silent_ms = world.now_ms - began_ms
    assert newcomer.is_ready
    assert silent_ms <= SILENT_MS_MAX + 1_500
    if not is_before:  # who looks first by a clock an hour ahead takes the signs for old
        assert silent_ms >= SILENT_MS_MAX - SIGN_EVERY_MS - 1_500


@pytest.mark.parametrize("ahead_ms", [-HOUR_MS, 0, HOUR_MS], ids=["behind", "right", "ahead"])
@pytest.mark.parametrize("is_seen_later", [False, True], ids=["by the first look", "by a later one"])
@pytest.mark.parametrize("others", [0, 2], ids=["alone", "beside others"])
def test_a_sign_counts_from_when_it_was_read_where_its_time_is_of_the_future(
    ahead_ms: int, is_seen_later: bool, others: int
) -> None:
    """The broker gives a sign its time, and the reader's clock may be behind the broker's."""
    world = World()
    topic, name = world.topics.ack_topics.init, SessionName(1, "s1")
    producer = world.log.producer()
    sign = wire_codec().encode(Tick("g", "s1", 1, world.now_ms))

    def send() -> None:
        for number in range(others + 1):
            who = WHO._replace(pid=WHO.pid + number)
            producer.send(Outgoing(topic, number, sign, headers=sign_headers(who)))
        producer.flush(FLUSH_MS)

    if not is_seen_later:
        send()
    now_ms = world.now_ms - ahead_ms
    presence = Presence(world.log, topic, 3, "g", now_ms)
    if is_seen_later:
        send()
        now_ms += 1_000
        presence.read_new_signs(now_ms)
    # who looks by a clock an hour ahead takes the sign for an hour old
    left_ms = 0 if ahead_ms < 0 else SILENT_MS_MAX
    assert left_ms - 1_000 <= presence.wait_ms(name) <= left_ms
    for _ in range(SILENT_MS_MAX // 1_000):
        now_ms += 1_000
        presence.read_new_signs(now_ms)
    assert presence.wait_ms(name) == 0


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS], ids=["back", "ahead"])
def test_silent_ackers_are_waited_for_as_long_as_the_error_says(step_ms: int) -> None:
    """D3002."""
    world = World()
    world.kill_acker()
    world.planner()
    world.run(2_000)
    world.spouts_ahead_ms += step_ms
    world.run(GIVE_UP_MS // 2)
    world.start_acker()
    world.run(3_000)
    assert world.planners[0].is_ready


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS], ids=["back", "ahead"])
def test_a_query_that_ends_waits_for_verdicts_by_a_clock_that_steps(step_ms: int) -> None:
    """D3002: the acker is away for half a minute, in which the clock is set."""
    world = World()
    world.produce(5)
    planner = world.ready(stops_at_ends=True)
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end)
    acker, world.acker = world.acker, None
    for number in range(60):
        world.run(500)
        if number == 20:
            world.spouts_ahead_ms += step_ms
        assert not planner.is_drained()
    world.acker = acker
    world.run(5_000)
    assert planner.is_drained()


@pytest.mark.parametrize("is_published", [True, False], ids=["acked", "timed out"])
@pytest.mark.parametrize("had_roots", [False, True], ids=["first batch", "after another"])
@pytest.mark.parametrize(
    "step_ms",
    [3 * HOUR_MS, 24 * HOUR_MS, 87_600 * HOUR_MS, -87_600 * HOUR_MS],
    ids=["three hours ahead", "a day ahead", "ten years ahead", "ten years back"],
)
def test_what_is_emitted_by_a_clock_that_is_far_off_has_its_verdict(
    step_ms: int, had_roots: bool, is_published: bool
) -> None:
    """D415: an acker that passes over its init would never have these roots, and they would be lost."""
    world = World()
    planner = world.ready()
    end = begun_at(world, planner, had_roots=had_roots)
    world.spouts_ahead_ms += step_ms
    world.produce(5)
    start, end = end, batch(planner, end, world)
    if is_published:
        world.publish(start, end)
        world.run(3_000)
        runs = [run for verdicts in world.verdicts() for run in verdicts.acked]
        assert sum(end - start for _source, start, end in runs) == 5 + 3 * had_roots
    else:
        timed_out_after_ms(world)
        assert world.lost("TIMED_OUT") == 5
        walls_ms = [lost.emitted_wall for verdicts in world.verdicts() for lost in verdicts.lost]
        # the replay worker counts from it when a copy is due
        assert max(walls_ms) <= world.now_ms
