"""The band of a partition: what each cell shows, and that it stays small however much is pending."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from acker.service.view import OpenRange
from spout.inspect.overview import Overview
from spout.inspect.readings import OLD_MS, DeadRecords, PartitionState, Reading, SourceProgress
from spout.planning.journal import BEGINNING
from spout.ui.strip import BandKind, Strip, copies_strip_of, strip_of
from tests.support.worlds.planning import COPIES, World, batch, emit_ten, fail_first_copy_untaken, yaml_of

YAML = yaml_of(
    timeout="4s",
    max_spout_pending="2000000",
    retry="{attempts: 2, initial: 60s, jitter: 0}",
    dead_letter="{max_ratio: 1}",
)


@pytest.fixture
def world() -> World:
    return World(YAML)


def state(world: World) -> PartitionState:
    """Return the state of partition 0."""
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        return overview.snapshot(world.now_ms).partitions[0]


def band(world: World, cells_max: int = 240) -> Strip:
    found = strip_of(state(world), cells_max)
    assert found.value is not None, found.unknown
    return found.value


def shown(strip: Strip) -> list[tuple[BandKind, int, int]]:
    return [(run.kind, run.first, run.end) for run in strip.runs]


def test_each_offset_shows_what_became_of_it(world: World) -> None:
    """Committed, then what is open and settled behind it, what waits until when, and what is not emitted."""
    world.start_replays()
    emit_ten(world, skip=(3,), fail=(6,), then_ms=3_900)
    world.produce(2)
    strip = band(world)
    assert shown(strip) == [
        (BandKind.COMMITTED, 0, 3), (BandKind.OPEN, 3, 4), (BandKind.SETTLED, 4, 6), (BandKind.WAITING, 6, 7),
        (BandKind.SETTLED, 7, 10), (BandKind.NEW, 10, 12),
    ]  # fmt: skip
    assert (strip.blocking, strip.unknown) == (3, [])
    due_ms = strip.runs[3].due_ms
    assert due_ms is not None
    assert 50_000 < due_ms - world.now_ms < 60_000
    assert [run.text() for run in strip.runs[:2]] == ["0 to 2: committed", "offset 3: 1 open"]


def test_nobody_knows_what_was_emitted_since_an_acker_works_no_longer(world: World) -> None:
    planner, end = emit_ten(world, skip=(3,), then_ms=3_900)
    world.kill_acker()
    world.produce(5)
    batch(planner, end, world)
    world.run(OLD_MS)
    strip = band(world)
    assert shown(strip)[-1] == (BandKind.UNKNOWN, 10, 15)
    (why,) = strip.unknown
    assert why.startswith("what was emitted since is unknown: the State of an acker partition is ")


def test_a_failure_that_no_replay_worker_has_taken_over_waits_without_a_time(world: World) -> None:
    world.produce(4)
    end = batch(world.ready(), BEGINNING, world)
    world.publish(BEGINNING, end, fail=(2,))
    world.run(500)
    waiting = band(world).runs[1]
    assert (waiting.kind, waiting.first, waiting.due_ms) == (BandKind.WAITING, 2, None)


def test_a_lost_copy_whose_record_nobody_has_looked_up_is_missing_in_the_band_which_says_so(
    world: World,
) -> None:
    world.start_replays()
    fail_first_copy_untaken(world, *emit_ten(world, fail=(6,), then_ms=62_000))
    strip = band(world)
    assert shown(strip) == [(BandKind.COMMITTED, 0, 10)]
    (why,) = strip.unknown
    assert why.startswith("where 1 more that wait began is unknown: no replay worker has taken over")
    copies = copies_strip_of(state(world)).value
    assert copies is not None
    assert shown(copies) == [(BandKind.WAITING, 0, 1), (BandKind.SETTLED, 1, 2)]


def test_while_it_is_unknown_what_waits_nothing_is_called_settled(world: World) -> None:
    """It was drawn so, and a lost root among it waited for its replay."""
    world.produce(4)
    end = batch(world.ready(), BEGINNING, world)
    world.publish(BEGINNING, end, skip=(0,), fail=(2,))
    world.run(500)
    gone: Reading[Any] = Reading(unknown="no leader")
    strip = strip_of(replace(state(world), due_at=gone, replays_due=gone)).value
    assert strip is not None
    assert shown(strip) == [(BandKind.OPEN, 0, 1), (BandKind.UNKNOWN, 1, 4)]
    assert strip.unknown == ["what waits for a replay is unknown: no leader"]


def test_a_copy_waits_and_dies_at_the_offset_of_its_record(world: World) -> None:
    """Also behind the commit, which a dead letter does not block."""
    world.start_replays()
    planner, end = emit_ten(world, fail=(6,), then_ms=62_000)
    copies = copies_strip_of(state(world)).value
    assert copies is not None
    assert shown(copies) == [(BandKind.NEW, 0, 2)]  # the copy, and the marker of its transaction
    following = batch(planner, end, world)
    world.run(1_500)
    copies = copies_strip_of(state(world)).value
    assert copies is not None
    assert shown(copies) == [(BandKind.OPEN, 0, 2)]
    world.publish(end, following, fail=(0,), of=COPIES)
    world.run(1_000)
    assert shown(band(world)) == [
        (BandKind.COMMITTED, 0, 6),
        (BandKind.DEAD, 6, 7),
        (BandKind.COMMITTED, 7, 10),
    ]


def test_what_waits_behind_another_record_is_blocked() -> None:
    world = World(YAML.replace("timeout: 4s", "timeout: 4s\n    ordering: partition"))
    world.start_replays()
    world.produce(4)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end, fail=(0,))
    world.run(1_000)
    world.produce(2)
    following = batch(planner, end, world)
    world.publish(end, following)
    world.run(1_000)
    assert BandKind.WAITING in [run.kind for run in band(world).runs]


def test_a_cell_of_many_offsets_shows_the_worst_of_them_and_counts_all(world: World) -> None:
    world.start_replays()
    world.produce(1_000)
    end = batch(world.ready(), BEGINNING, world)
    world.publish(BEGINNING, end, skip=(501, 502), fail=(503,))
    world.run(1_000)
    strip = band(world, cells_max=10)
    assert shown(strip) == [
        (BandKind.SETTLED, 0, 500),
        (BandKind.WAITING, 500, 600),
        (BandKind.SETTLED, 600, 1_000),
    ]
    assert strip.runs[1].counts == (2, 1, 0, 0)
    assert strip.runs[1].text() == "500 to 599: 2 open, 1 waits for replay"
    assert strip.runs[1]._replace(counts=(0, 2, 0, 0)).text() == "500 to 599: 2 wait for replay"


def test_what_cannot_be_read_is_shown_as_unknown_and_the_rest_stays(world: World) -> None:
    """Without any State nobody can say what was emitted; the log and its ends can be read all the same."""
    world.produce(4)
    strip = band(world)
    assert shown(strip) == [(BandKind.UNKNOWN, 0, 4)]
    assert [line.partition(":")[0] for line in strip.unknown] == ["what is open is unknown"]
    assert "acker partition 0 has no State yet" in strip.unknown[0]


def test_a_partition_whose_leader_does_not_answer_has_no_band(world: World) -> None:
    world.produce(4)
    found = strip_of(replace(state(world), end=Reading(unknown="no leader")))
    assert (found.value, found.unknown) == (None, "no leader")


def test_an_empty_log_has_an_empty_band(world: World) -> None:
    world.ready()
    world.run(1_000)
    assert (band(world).cells, band(world).runs) == (0, [])


@pytest.mark.parametrize(
    ("length", "cells_max"), [(1, 240), (7, 240), (241, 240), (1_000, 7), (999_983, 240)]
)
def test_the_cells_cover_the_log_without_gap_or_overlap(length: int, cells_max: int) -> None:
    """Every offset is counted in the run that has its number."""
    world = World(YAML)
    world.ready()
    world.run(1_000)
    offsets = np.unique(np.linspace(0, length - 1, 50).astype(np.int64))
    some = replace(
        state(world), start=Reading(0), end=Reading(length), dead_at=Reading(DeadRecords(offsets, offsets))
    )
    strip = strip_of(some, cells_max).value
    assert strip is not None
    assert [run.first for run in strip.runs] == [0, *(run.end for run in strip.runs[:-1])]
    assert strip.runs[-1].end == length
    assert strip.runs[-1].cell_end == strip.cells == min(length, cells_max)
    for run in strip.runs:
        inside = ((offsets >= run.first) & (offsets < run.end)).sum()
        assert run.counts[3] == inside


def test_a_million_pending_records_are_counted_in_their_cells() -> None:
    """Every second one is open: the least regular that there is."""
    world = World(YAML)
    world.ready()
    world.run(1_000)
    at = np.arange(0, 2_000_000, 2)
    ranges = [
        OpenRange(1 << 16, start, at[:50_000], "g", "s", 1, 0, 0, False, 1_000, 1_000)
        for start in range(0, 2_000_000, 100_000)
    ]
    progress = SourceProgress(True, 0, 2_000_000, ranges)
    some = replace(state(world), end=Reading(2_000_000), progress=Reading(progress))
    strip = strip_of(some).value
    assert strip is not None
    assert sum(run.counts[0] for run in strip.runs) == 1_000_000
