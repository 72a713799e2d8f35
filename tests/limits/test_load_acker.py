"""What one acker partition does when much waits, much is carried, or a record is as large as it can be."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from acker.config.limits import AckerLimits
from acker.identity import source_of
from acker.kafka.port import Outgoing, Record, TopicPartition, record_bytes
from acker.ledger.cohort import InitEmission, RootCohort, Session
from acker.ledger.output import AckerEventKind
from acker.ledger.roots import Roots
from acker.service.bins import BIN_ROOTS, REWRITE_STEPS, Bins
from acker.service.core import PartitionCore
from acker.service.snapshot import carried_bin
from acker.service.state import bin_part, state_codec
from acker.wire.codec import RECORD_BYTES_MAX, wire_codec
from acker.wire.events import Event, Take, TakeSource, Tick
from tests.support.cpu_time import within
from tests.support.worlds.acker_world import SOURCE, TOPICS, World, edge

QUIET = AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0)


def test_the_ticks_of_forty_groups_that_an_acker_missed_are_read_at_once() -> None:
    """It was away for ten minutes: 48,000 ticks took two minutes, since each looked at all that waited."""
    codec = wire_codec()
    groups = range(40)
    events: list[Event] = [
        Take(f"g{n}", f"s{n}", 1, 0, 1, (TakeSource(source_of(n + 1, 0), f"t{n}", "id", 0, 0),))
        for n in groups
    ]
    events += [Tick(f"g{n}", f"s{n}", 1, 500 * tick) for tick in range(1_200) for n in groups]
    core = PartitionCore(0, 1, AckerLimits(), codec)
    records = [Record("_ack_init", 0, at, None, codec.encode(event)) for at, event in enumerate(events)]
    with within(cpu_seconds=15):
        core.read_inits(records)
        assert len(core.sessions.queue) == 40 * (1 + core.limits.pending_ticks)
        core.set_barrier(0, 0)
        assert core.apply_reached_ticks()
    holders = [group.owner for group in core.sessions.groups.values()]
    assert {core.sessions.clock(holder).counted_ms for holder in holders} == {500 * 1_199}
    assert len(core.sessions.queue) == 0


def test_the_takes_that_forty_groups_repeat_while_an_acker_is_away_are_read_at_once() -> None:
    """Each repeats its take every 5 s; for an hour and a half that took minutes, as the ticks above."""
    codec = wire_codec()
    takes = [
        Take(f"g{n}", f"s{n}", 1, 0, 1, (TakeSource(source_of(n + 1, 0), f"t{n}", "id", 0, 0),))
        for n in range(40)
    ]
    core = PartitionCore(0, 1, AckerLimits(), codec)
    values = [codec.encode(take) for take in takes] * 1_000
    with within(cpu_seconds=15):
        core.read_inits(Record("_ack_init", 0, at, None, value) for at, value in enumerate(values))
    assert len(core.sessions.queue) == 40_000


def test_a_days_ticks_before_a_contribution_are_applied_in_steps_of_so_many() -> None:
    """`step_records`: all of them at once took gigabytes, and longer than a step may."""
    world = World(limits=AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0, step_records=500))
    writer = world.session()
    writer.take()
    writer.init((0, 2))
    world.settle()
    for now in range(5_000):
        writer.tick(now)
    writer.init((2, 4), now=5_000)
    writer.fails(0)
    writer.acks(runs=[(0, 4)])
    inits, waiting = TopicPartition(TOPICS.init, 0), list[int]()
    while not world.of():
        world.step()
        committed = world.writer_log.committed("windhover-acker", [inits])[inits]
        waiting.append(world.writer_log.ends([inits])[inits] - committed)
    assert max(before - after for before, after in pairwise(waiting)) <= 500 + 200
    assert world.of() == {0: "FAILED", 1: "ACKED", 2: "ACKED", 3: "ACKED"}


def emission_of(timeout_ms: int = 30_000) -> InitEmission:
    """Return an emission."""
    return InitEmission(Session("g", 1, "s"), "t", "id", 0, 0, timeout_ms)


def test_a_bin_of_single_roots_fills_up_in_one_pass_and_fits_a_record() -> None:
    """32,768 ranges of which one root each is left, all touched: filling took minutes.

    What each misses and when each is due are random, so nothing of it compresses.
    """
    bins, emission, draw = Bins(), emission_of(), np.random.default_rng(1)
    missing = draw.integers(1, 1 << 63, BIN_ROOTS + 1, np.uint64)
    later_ms = draw.integers(1, 1 << 40, BIN_ROOTS + 1)
    with within(cpu_seconds=10):
        for n in range(BIN_ROOTS + 1):
            roots = Roots(SOURCE, (3 << 48) + n * 40_000, 1)
            roots.load(np.zeros(1, np.int64), missing[n : n + 1])
            cohort = RootCohort(roots, emission, 0, n)
            cohort.load_touched(np.zeros(1, np.int64), later_ms[n : n + 1])
            bins.add(cohort)
    assert [len(bins.remove_settled(number)) for number in bins.numbers()] == [BIN_ROOTS, 1]
    codec = state_codec()
    part = bin_part(codec, 0, 0, carried_bin(bins.remove_settled(0)))
    assert len(codec.encode(part)) < RECORD_BYTES_MAX


def test_bins_go_on_being_filled_when_lower_numbers_were_given_back() -> None:
    """A new bin takes a free number; the next ranges go into it, not into a bin each."""
    bins = Bins()
    full = [RootCohort(Roots(SOURCE, n << 15, BIN_ROOTS), emission_of(), 0, n) for n in range(3)]
    for cohort in full:
        bins.add(cohort)
    full[0].roots.settle_all()
    assert bins.remove_settled(0) == []
    for n in range(100):
        bins.add(RootCohort(Roots(SOURCE, (1 << 40) + n, 1), emission_of(), 0, 3 + n))
    assert [len(bins.remove_settled(number)) for number in bins.numbers()] == [100, 1, 1]


def test_every_bin_is_written_again_in_its_turn_though_one_changes_all_the_time() -> None:
    """A restart looks for bins from the end of the log: none lies far back, and no step writes them all."""
    bins = Bins()
    for n in range(3):
        bins.add(RootCohort(Roots(SOURCE, n << 15, BIN_ROOTS), emission_of(), 0, n))
    assert bins.take_due_bins({0, 1, 2}) == {0, 1, 2}
    steps = [bins.take_due_bins({1}) for _ in range(3 * REWRITE_STEPS)]
    assert all(steps.count({1, number}) in (2, 3) for number in (0, 2))
    assert max(map(len, steps)) == 2


def test_a_step_that_carries_many_ranges_says_so_once() -> None:
    """An event for each of them would be thousands of lines in the log."""
    world = World(limits=AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0, refold_bytes=0))
    writer = world.session()
    writer.take()
    for n in range(200):
        writer.init((2 * n, 2 * n + 1))
    writer.acks(values=[(2 * n, 5) for n in range(200)])
    world.settle()
    told = [event.detail for event in world.events if event.kind is AckerEventKind.CARRIED]
    assert len(told) == 1
    assert told[0].startswith("200 open roots are carried in State")
    writer.acks(values=[(2 * n, 5 ^ edge(2 * n)) for n in range(200)], seq=1)
    world.settle()
    assert set(world.of().values()) == {"ACKED"}


@pytest.mark.parametrize("topic", [TOPICS.init, TOPICS.ack, TOPICS.fail])
def test_garbage_of_the_largest_size_never_stops_an_acker(topic: str) -> None:
    """A key as large as the broker takes was copied whole, and with the headers the copy was refused.

    The transaction was aborted, the partition restored, the record read again, and in the end the acker
    gave up: one record that anybody may write had stopped the group.
    """
    world = World(limits=QUIET)
    writer = world.session()
    writer.take()
    writer.init((0, 3))
    world.settle()
    largest = 1_048_588 - record_bytes(Outgoing(topic, 0, None))
    for key in (b"", b"k" * 200_000, b"k" * largest):
        producer = world.writer_log.producer()
        producer.send(Outgoing(topic, 0, b"v" * (largest - len(key)), key))
        producer.flush(1_000)
    writer.acks(runs=[(0, 3)])
    world.settle()
    assert world.of() == dict.fromkeys(range(3), "ACKED")
    assert [len(r.key or b"") + len(r.value or b"") for r in world.quarantined()] == [900_000] * 3
