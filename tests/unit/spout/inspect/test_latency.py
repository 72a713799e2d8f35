"""Completion times from the log, and what another timeout would have done, against a run that has it."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from acker.errors import TopicError
from acker.identity import acker_partition, root_edge, source_of
from acker.kafka.port import Outgoing, TopicPartition
from acker.wire.codec import wire_codec
from acker.wire.events import Acks, Init, SourceRun, pack_positions, pack_values
from spout.inspect.latency import CompletionLog, TimedCohort, quantile, shares_timed_out, time_bounds
from spout.planning.journal import BEGINNING, Journal
from tests.support.memory.cluster import NoFaults
from tests.support.worlds.planning import STEP_MS, World, batch, emit_ten

YAML = """
# a verdict waits for the pace, so the times of a run are longer by as much than what its timeout needs
acker: {{partitions: 3, limits: {{pace: 100ms}}}}
inputs:
  sentences: {{id: 1, group: g, partitions: 2, timeout: {timeout}, max_spout_pending: 200000}}
"""
RECORDS = 300
LONGEST_MS = 20_000


def delays() -> list[int]:
    """Return after how many ms each record is acked: some at once, and a long tail."""
    drawn = random.Random(16)
    return [min(LONGEST_MS, int(drawn.expovariate(1 / 3_000))) for _ in range(RECORDS)]


def run(timeout: str) -> World:
    """Let records be acked one after the other, each after its own time."""
    world = World(YAML.format(timeout=timeout))
    world.produce(RECORDS)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    left = dict(enumerate(delays()))
    began_ms = world.now_ms
    while world.now_ms - began_ms <= LONGEST_MS + 2_000:
        due = {number for number, delay in left.items() if delay <= world.now_ms - began_ms}
        if due:
            world.publish(BEGINNING, end, skip=[number for number in range(RECORDS) if number not in due])
        left = {number: delay for number, delay in left.items() if number not in due}
        world.run(STEP_MS)
    return world


def completions(world: World) -> CompletionLog:
    found = CompletionLog(world.cluster.log(), world.topics, [world.topics.input("sentences")])
    found.read()
    return found


def row_of(world: World, timeout_ms: int | None = None) -> dict[str, Any]:
    (row,) = completions(world).rows(world.now_ms, timeout_ms)
    return row


@pytest.fixture(scope="module")
def patient() -> World:
    """Return a run whose timeout no record needs."""
    return run("60s")


@pytest.mark.parametrize("seconds", [2, 4, 8])
def test_a_share_that_would_time_out_is_that_of_a_run_with_this_timeout(patient: World, seconds: int) -> None:
    predicted = row_of(patient, seconds * 1_000)["would_time_out"]
    measured = run(f"{seconds}s").lost("TIMED_OUT") / RECORDS
    assert measured > 0
    assert predicted == pytest.approx(measured, rel=0.1)


def test_late_acks_tell_what_a_longer_timeout_would_have_saved(patient: World) -> None:
    """They are in the log although the verdict was TIMED_OUT."""
    hasty = run("4s")
    row = row_of(hasty, 8_000)
    assert row["timed_out"] == hasty.lost("TIMED_OUT")
    assert row["late"] == row["timed_out"], "each was acked in the end"
    assert row["late_p50_ms"] > 4_000
    assert row["would_time_out"] == pytest.approx(row_of(patient, 8_000)["would_time_out"], rel=0.1)


class CountedPolls(NoFaults):
    """Counts how often records are read."""

    def __init__(self) -> None:
        self.polls = 0

    def before(self, operation: str) -> None:
        self.polls += operation == "poll"


def hasty_batch(world: World) -> Journal:
    """Emit twenty records, none of which is acked before it times out."""
    world.produce(20)
    end = batch(world.ready(), BEGINNING, world)
    world.run(6_000)
    return end


def late(found: CompletionLog, world: World) -> int:
    found.read()
    (row,) = found.rows(world.now_ms)
    return int(row["late"])


def test_acks_are_read_once_although_roots_wait_for_more_of_them() -> None:
    world, faults = World(YAML.format(timeout="4s")), CountedPolls()
    end = hasty_batch(world)
    found = CompletionLog(world.cluster.log(faults), world.topics, [world.topics.input("sentences")])
    world.publish(BEGINNING, end, skip=range(5))
    assert late(found, world) == 15
    faults.polls = 0
    assert late(found, world) == 15
    assert faults.polls == 0
    world.publish(BEGINNING, end, skip=range(5, 20))
    assert late(found, world) == 20


def test_an_ack_that_is_read_again_for_another_root_counts_once() -> None:
    """Half of what a root misses comes first, the other half when a younger root has timed out as well."""
    world = World(YAML.format(timeout="4s"))
    end = hasty_batch(world)
    found = completions(world)
    half, source = 77, source_of(1, 0)
    owner = acker_partition(source, 3, 3)
    producer = world.log.producer()

    def ack(number: int, value: int) -> None:
        acks = Acks(
            "q/late",
            number,
            "g",
            end.session,
            end.epoch,
            source,
            0,
            (),
            pack_positions(np.array([3])),
            pack_values(np.array([value], np.uint64)),
            (),
            b"",
            end.now,
        )
        producer.send(Outgoing("_ack_ack", owner, wire_codec().encode(acks)))
        producer.flush(0)

    ack(1, half)
    assert late(found, world) == 0
    world.produce(20)
    (planner,) = world.planners
    batch(planner, end, world)
    world.run(6_000)
    assert late(found, world) == 0
    ack(2, half ^ int(root_edge(source, 3)))
    assert late(found, world) == 1


def test_of_more_late_roots_than_are_kept_the_oldest_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spout.inspect.latency.LATE_MAX", 6)
    world = World(YAML.format(timeout="4s"))
    end = hasty_batch(world)
    found = completions(world)
    world.publish(BEGINNING, end)
    assert late(found, world) == 6


def test_the_quantiles_are_those_of_the_drawn_times(patient: World) -> None:
    row = row_of(patient)
    assert (row["emitted"], row["acked"], row["timed_out"], row["late"]) == (RECORDS, RECORDS, 0, 0)
    drawn = sorted(delays())
    for name, share in (("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99)):
        assert drawn[int(share * RECORDS) - 1] <= row[name] <= drawn[int(share * RECORDS) - 1] + 500
    assert row["timeout_ms"] == 60_000
    assert row["by_bolt"] is None
    assert row["unknown"]["by_bolt"]


def test_what_is_not_known_is_no_number(patient: World) -> None:
    fresh = World(YAML.format(timeout="30s"))
    row = row_of(fresh)
    assert (row["emitted"], row["p50_ms"], row["would_time_out"]) == (0, None, None)
    assert row_of(patient, 10**9)["would_time_out"] is None, "no root is that old"
    fresh.cluster.delete_topic("_ack_init")
    with pytest.raises(TopicError, match="_ack_init is missing"):
        row_of(fresh)


def test_roots_whose_emission_left_the_log_are_counted_in_a_note() -> None:
    world = run("60s")
    log = world.cluster.log()
    places = [TopicPartition("_ack_init", number) for number in range(3)]
    log.delete_before(log.ends(places))
    found = completions(world)
    assert found.rows(world.now_ms)[0]["acked"] == 0
    world.produce(1)
    (planner,) = world.planners
    batch(planner, batch(planner, BEGINNING, world), world)
    found.read()
    (note,) = found.notes()
    assert note.startswith(f"sentences: {RECORDS} roots were settled whose emission is no longer in the log")


RUNS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20)), min_size=1, max_size=6)


@settings(max_examples=30, deadline=None)
@given(runs=RUNS)
@example(runs=[(5, 5), (0, 10)])
@example(runs=[(5, 1), (8, 2), (0, 20)])
@example(runs=[(0, 10), (5, 5)])
def test_roots_that_several_inits_name_are_counted_once(runs: list[tuple[int, int]]) -> None:
    """A run may begin before those that it repeats, lie within one, or hold several."""
    world = World(YAML.format(timeout="60s"))
    producer = world.log.producer()
    source = source_of(1, 0)
    for start, length in runs:
        run = SourceRun(source, start, start + length)
        init = Init("g", "s", 1, 0, world.now_ms, 60_000, 3, "sentences", "id", (run,))
        producer.send(Outgoing("_ack_init", 0, wire_codec().encode(init)))
    producer.flush(0)
    with closing(completions(world)) as found:
        cohorts = sorted(
            (cohort.start, cohort.end) for cohort in found.cohorts(world.topics.input("sentences"))
        )
    counted = [position for start, end in cohorts for position in range(start, end)]
    assert counted == sorted(
        {position for start, length in runs for position in range(start, start + length)}
    )


def test_reading_in_pieces_gives_the_same(patient: World) -> None:
    found = completions(patient)
    before = found.rows(patient.now_ms)
    found.read()
    assert found.rows(patient.now_ms) == before


def test_a_share_counts_only_roots_that_are_old_enough() -> None:
    old = TimedCohort(
        0, 12, 0, 30_000, Counter({400: 3, 900: 2}), Counter({450: 1}), Counter({2_000: 4}), 4, 2
    )
    young = TimedCohort(12, 20, 8_950, 30_000)
    timeouts_ms = [100, 500, 1_000, 3_000, 9_000]
    *shares, none = shares_timed_out([old, young], timeouts_ms, 9_000 - 1)
    assert shares == pytest.approx([1.0, 0.6, 0.4, 0.0])
    assert none is None
    assert shares_timed_out([], timeouts_ms, 9_000) == [None] * 5


def test_a_histogram_counts_each_root_once(patient: World) -> None:
    assert time_bounds(0) == [0]
    assert time_bounds(30) == [0, 1, 2, 5, 10, 20, 50]
    row = row_of(patient)
    bins = row["histogram"]
    assert bins[0]["from_ms"] == 0
    assert bins[-1]["to_ms"] >= row["timeout_ms"]
    assert sum(each["acked"] for each in bins) == row["acked"] == RECORDS
    median = next(each for each in bins if each["from_ms"] < row["p50_ms"] <= each["to_ms"])
    assert median["acked"] > 0


def test_each_timeout_that_is_compared_has_the_share_of_the_option(patient: World) -> None:
    row = row_of(patient)
    shares = {each["timeout_ms"]: each["would_time_out"] for each in row["timeouts"]}
    tried_ms = min(shares, key=lambda at: abs(at - 4_000))
    assert shares[tried_ms] == row_of(patient, tried_ms)["would_time_out"]
    assert list(shares) == sorted(shares)
    assert shares[row["timeout_ms"]] == row["would_time_out"]
    assert max(shares) >= 2 * row["timeout_ms"]
    known = [share for share in shares.values() if share is not None]
    assert known == sorted(known, reverse=True), "a longer timeout loses no more"


def test_a_quantile_is_a_time_that_some_root_took() -> None:
    times = Counter({10: 50, 20: 40, 30: 9, 40: 1})
    assert [quantile(times, share) for share in (0.5, 0.9, 0.99, 0.999)] == [10, 20, 30, 40]
    assert quantile({}, 0.5) is None


def row_by_a_clock_ahead(ahead_ms: int) -> dict[str, Any]:
    """Return the row where twenty records are emitted by a clock that was set ahead: 15 are acked in time."""
    world = World(YAML.format(timeout="10s"))
    planner = world.ready()
    world.produce(20)
    world.spouts_ahead_ms = ahead_ms
    end = batch(planner, BEGINNING, world)
    world.run(1_000)
    world.publish(BEGINNING, end, skip=range(5))
    world.run(15_000)
    world.publish(BEGINNING, end, skip=range(5, 20))
    world.run(1_000)
    return row_of(world)


@pytest.mark.parametrize(
    "ahead_ms",
    [30_000, 5_400_000, 3 * 3_600_000, 86_400_000, 10 * 365 * 86_400_000],
    ids=["30 s", "90 min", "3 h", "a day", "ten years"],
)
def test_a_clock_that_was_set_ahead_changes_no_time(ahead_ms: int) -> None:
    """The time of the record of an init counts then: roots are emitted before it is appended."""
    row = row_by_a_clock_ahead(ahead_ms)
    assert (row["acked"], row["timed_out"], row["late"]) == (15, 5, 5)
    assert row == row_by_a_clock_ahead(0)


@pytest.mark.parametrize("read_max", [1, 2, 3, 4])
def test_verdicts_are_read_though_the_first_records_of_the_inits_are_none(read_max: int) -> None:
    """Such a reading took itself for a whole one, or gave up when it found how many verdicts there are."""
    world = World()
    emit_ten(world)
    inputs = [world.topics.input("sentences")]
    with closing(CompletionLog(world.cluster.log(), world.topics, inputs, read_max)) as found:
        list(found.read_all())
        (row,) = found.rows(world.now_ms)
        assert (row["emitted"], row["acked"], found.notes()) == (10, 10, [])


@pytest.mark.parametrize("seed", range(20))
def test_a_root_that_several_inits_name_counts_once(seed: int) -> None:
    """Their runs may begin before those of an earlier init, reach into them, or enclose them."""
    random_numbers = random.Random(seed)
    world = World()
    source = source_of(1, 0)
    named: set[int] = set()
    producer = world.log.producer()
    for _ in range(6):
        start = random_numbers.randrange(20)
        run = SourceRun(source, start, start + random_numbers.randrange(1, 12))
        named.update(range(run.start, run.end))
        init = Init("g", "session", 1, 0, world.now_ms, 30_000, 3, "sentences", "", (run,))
        producer.send(Outgoing("_ack_init", acker_partition(source, 0, 3), wire_codec().encode(init)))
    producer.flush(0)
    assert row_of(world)["emitted"] == len(named)
