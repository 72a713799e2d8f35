"""What came too late for its window, as people see it: the story of a record, tables, page and metrics."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import Metric

from acker.identity import Root, position_at, source_of
from acker.wire.events import SourceRun
from acker.wire.lateness import LateCounts, Mover, TooLate
from spout.doctor.monitor import MonitorState, monitor_report
from spout.inspect.diagnosis import explained
from spout.inspect.overview import Overview, Snapshot, late_notes
from spout.inspect.readings import Reading, too_late_counts
from spout.inspect.trail import EvidenceReader, RootVerdicts
from spout.planning.journal import BEGINNING
from spout.publishing.fold import LateNote
from spout.runtime.metrics import acker_metrics
from spout.ui.attention import Thresholds, problems
from spout.ui.metrics import view_metrics
from spout.ui.watch import LatestState
from tests.support.worlds.planning import World, batch, yaml_of

YAML = yaml_of(timeout="4s", max_spout_pending="200000", retry="{attempts: 2, initial: 1s, jitter: 0}")
MOVED_AT_MS = 1_924_992_000_000
MOVED_BY = "sentences/0@3 (event time 2031-01-01T00:00:00Z)"
WATERMARK = "the watermark 2030-12-31T23:59:50Z"
NEW_MS = Thresholds().new_ms


def note_of(world: World, *, rows: int, mover: Mover | None = None) -> LateNote:
    mover = mover or Mover(MOVED_AT_MS, (SourceRun(source_of(1, 0), 3, 4),))
    return LateNote(world.now_ms, MOVED_AT_MS - 10_000, rows, mover)


def world_with(*, late: tuple[int, ...], rows: int, fails_late: bool = False) -> World:
    """Return a world whose one batch has ten records, of which some, or rows of some, came too late."""
    world = World(YAML)
    world.start_replays()
    world.produce(10)
    end = batch(world.ready(), BEGINNING, world)
    world.publish_held(BEGINNING, end, late=late, note=note_of(world, rows=rows), fails_late=fails_late)
    world.run(1_000)
    return world


def story_of(world: World, offset: int) -> dict[str, Any]:
    trail = EvidenceReader(world.cluster.log(), world.topics)
    (here,) = trail.records_at(f"sentences/0@{offset}")
    evidence = trail.read_evidence(here)
    return explained(evidence, trail.circumstances(here, evidence, world.now_ms), world.now_ms)


def snapshot_of(world: World) -> Snapshot:
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        return overview.snapshot(world.now_ms)


def figures(metrics: list[Metric]) -> dict[str, float]:
    """Return the samples of group g that are about what came too late."""
    return {
        sample.name: sample.value
        for metric in metrics
        for sample in metric.samples
        if sample.labels == {"group": "g"} and ("late" in sample.name or "dropped" in sample.name)
    }


def test_a_record_that_was_too_late_for_its_window_is_not_called_done() -> None:
    """O1505: it names the watermark and the record that moved it, whose story is the next command."""
    world = world_with(late=(1, 4), rows=0)
    for offset in (1, 4):
        story = story_of(world, offset)
        assert story["situation"] == "TOO_LATE"
        assert f"It came too late: {WATERMARK}, moved by {MOVED_BY}, had passed the end" in story["why"]
        assert story["next"] == "windhover inspect sentences/0@3"
    others = [story_of(world, offset) for offset in (0, 2, 3, 5, 9)]
    assert [(story["situation"], story["next"]) for story in others] == [("DONE", "")] * 5


def test_a_record_whose_batch_lost_rows_is_done_or_too_late() -> None:
    """O1505: without `hold` nobody knows of which records the rows were that Spark dropped."""
    world = world_with(late=(), rows=8)
    story = story_of(world, 5)
    assert (story["situation"], story["now"]) == (
        "DONE",
        "done, or too late: Spark dropped rows of its batch",
    )
    assert (
        f"Spark dropped 8 rows of its batch that came too late: {WATERMARK}, moved by {MOVED_BY}"
        in story["why"]
    )
    assert story["next"] == "windhover inspect sentences/0@3"


def test_a_record_that_failed_as_too_late_says_what_moved_the_watermark() -> None:
    """O1505: while it waits for its replay."""
    world = world_with(late=(1,), rows=0, fails_late=True)
    story = story_of(world, 1)
    assert story["situation"] == "DUE"
    assert (
        f"It came too late for its window: {WATERMARK}, moved by {MOVED_BY}, had passed its end."
        in story["why"]
    )


@pytest.mark.parametrize(
    ("late", "rows", "text"),
    [
        ((1, 4), 0, "2 records came too late for their windows"),
        ((), 8, "Spark dropped 8 rows that came too late"),
        ((1,), 8, "1 record came too late for its window and Spark dropped 8 rows that came too late"),
    ],
)
def test_every_view_counts_records_and_rows_apart(late: tuple[int, ...], rows: int, text: str) -> None:
    """O1506: in a query with and without `hold`, and in one that has both."""
    world = world_with(late=late, rows=rows)
    snapshot = snapshot_of(world)
    [line] = late_notes(snapshot, world.topics)
    assert line.startswith(f"group g: {text}, the last ones at ")
    assert line.endswith(f" by {WATERMARK}, moved by {MOVED_BY}")
    for row in snapshot.rows():
        assert (row["too_late"], row["dropped_rows"]) == (len(late), rows)

    [flag] = [flag for flag in problems(snapshot, world.topics) if flag.name == "late: g"]
    assert flag.text == line
    shown = figures(list(view_metrics(LatestState(1, snapshot), world.topics, world.now_ms)))
    assert shown == {
        "windhover_too_late_roots_total": len(late),
        "windhover_dropped_rows_total": rows,
    }
    assert world.acker is not None
    counted = figures(list(acker_metrics(world.acker.status(), world.topics)))
    assert counted == {
        "windhover_acker_too_late_roots_total": len(late),
        "windhover_acker_dropped_rows_total": rows,
    }


def test_a_monitor_warns_of_what_came_too_late_until_it_is_old() -> None:
    """O1506: it is no reason to wake somebody, so it is never critical."""
    world = world_with(late=(), rows=8)
    warning, critical = Thresholds(stuck_timeouts=1.5), Thresholds(late=False)

    def state() -> MonitorState:
        return monitor_report(snapshot_of(world), world.topics, warning, critical, Reading(())).state

    assert state() is MonitorState.WARNING
    world.run(NEW_MS)
    assert "late: g" not in [flag.name for flag in problems(snapshot_of(world), world.topics)]
    [line] = late_notes(snapshot_of(world), world.topics)
    assert "8 rows" in line, "status goes on saying it"


def test_a_group_without_anything_too_late_says_nothing_and_counts_zero() -> None:
    """O1506: 0 is known, and is no blank."""
    world = World(YAML)
    world.start_replays()
    world.produce(10)
    end = batch(world.ready(), BEGINNING, world)
    world.publish(BEGINNING, end)
    world.run(1_000)
    snapshot = snapshot_of(world)
    assert list(late_notes(snapshot, world.topics)) == []
    for row in snapshot.rows():
        assert (row["too_late"], row["dropped_rows"]) == (0, 0)
        assert not {"too_late", "dropped_rows"} & row["unknown"].keys()


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({}, "an acker of an earlier version wrote the State of acker partition 0: replace it"),
        ({"another": LateCounts()}, "what came too late of 100 groups, and not of this one"),
    ],
)
def test_a_state_that_counts_nothing_of_a_group_says_only_what_is_known(
    counts: dict[str, LateCounts], text: str
) -> None:
    """D910: State has room for the counts of 100 groups; a former version writes those of none."""
    world = world_with(late=(), rows=0)
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        views = overview.snapshot(world.now_ms).views
    for view in views:
        assert view.value is not None
        view.value.too_late = counts
    assert text in too_late_counts(views, "g").unknown


def test_a_mover_that_is_not_known_gives_its_runs_and_no_command() -> None:
    """O1505: the event time is computed by Spark's own expressions, in a query without `hold`."""
    world = World(YAML)
    world.produce(10)
    end = batch(world.ready(), BEGINNING, world)
    mover = Mover(MOVED_AT_MS, (SourceRun(source_of(1, 0), 0, 9),))
    world.publish_held(BEGINNING, end, note=note_of(world, rows=2, mover=mover))
    world.run(1_000)
    story = story_of(world, 5)
    assert "moved by one of sentences/0@0 to 8 (event time 2031-01-01T00:00:00Z)" in story["why"]
    assert story["next"] == ""


def test_a_record_that_a_note_names_stays_named_whatever_later_notes_say_of_its_batch() -> None:
    """O1505: its batch is published again after a crash, when nobody knows the record any more."""
    root = Root(source_of(1, 0), position_at(0, 1))
    run = SourceRun(root.source, root.position, root.position + 1)
    named = TooLate("g", "q/s1", 1, True, 1, 2, 3, 4, (), (run,), (run,))
    later = replace(named, seq=2, roots=())
    decided = RootVerdicts({}, {}, {})
    for note in (later, named, later):
        decided.record_too_late(note, [root])
    assert decided.too_late == {root: named}
