"""The installation's figures as metrics: what the page shows, and nothing where nobody knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from acker.errors import NotAuthorized, Unreachable
from spout.inspect.overview import Overview, Snapshot
from spout.inspect.readings import DeadRecords, Reading
from spout.ui.metrics import STALE_MS, view_metrics
from spout.ui.serve import LOOPBACK
from spout.ui.watch import LatestState, Watch
from tests.support.page_server import pages_of
from tests.support.worlds.planning import World, world_with_one_open

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]

OF = {"input": "sentences", "group": "g", "topic": "sentences", "partition": "0"}


@pytest.fixture
def world() -> World:
    return world_with_one_open()


@pytest.fixture
def watch(world: World) -> Iterator[Watch]:
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        yield Watch(overview.snapshot, world.topics, lambda: world.now_ms)


def value(found: Series, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


def series(world: World, snapshot: Snapshot, *, number: int = 1, later_ms: int = 0) -> Series:
    """Return the series of a snapshot, as a scrape `later_ms` after it gets them."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in view_metrics(LatestState(number, snapshot), world.topics, snapshot.at_ms + later_ms)
        for sample in family.samples
    }


def snapshot_of(world: World) -> Snapshot:
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        return overview.snapshot(world.now_ms)


def scraped(world: World, watch: Watch) -> Series:
    """Read once, and ask the page for its metrics."""
    watch.read()
    pages = pages_of(world, watch)[0].application(LOOPBACK)
    answer = TestClient(pages, base_url="http://localhost:8095").get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_a_scrape_has_what_the_page_and_the_command_show(world: World, watch: Watch) -> None:
    found = scraped(world, watch)
    assert value(found, "windhover_view_up", reason="") == 1
    assert value(found, "windhover_view_updated_timestamp_seconds") == world.now_ms / 1_000
    for row in watch.latest.snapshot.rows():
        of = {**OF, "partition": row["source"].partition("/")[2]}
        for name, field in {
            "pending_roots": "pending",
            "not_done_records": "lag",
            "due_roots": "replays_due",
            "dead_letters": "dead_letters",
            "committed_offset": "committed",
            "end_offset": "end",
        }.items():
            assert value(found, f"windhover_{name}", **of) == row[field], (name, row["source"])
        assert value(found, "windhover_oldest_pending_age_seconds", **of) == row["oldest_ms"] / 1_000
    assert value(found, "windhover_pending_roots", **OF) == 1
    assert value(found, "windhover_blocking_age_seconds", **OF) == 1
    assert value(found, "windhover_blocking_age_seconds", **{**OF, "partition": "1"}) is None
    assert value(found, "windhover_timeout_seconds", input="sentences", group="g") == 4
    assert value(found, "windhover_pending_roots_limit", input="sentences", group="g") == 200_000
    assert value(found, "windhover_session_up", group="g") == 1
    assert value(found, "windhover_session_epoch", group="g") == 1
    assert value(found, "windhover_ackers") == value(found, "windhover_replay_workers") == 1
    assert value(found, "windhover_acker_lag_records", partition="0") is not None
    assert any(name == "windhover_build_info" for name, _ in found)


def test_the_next_deadline_is_that_of_the_open_root(world: World) -> None:
    found = series(world, snapshot_of(world))
    at_s = value(found, "windhover_nearest_deadline_timestamp_seconds", **OF)
    assert at_s is not None
    # emitted 1 s ago with a timeout of 4 s; the State of the acker is up to a second old
    assert 2 <= at_s - world.now_ms / 1_000 <= 4


def test_without_a_query_the_clock_stands_still_and_there_is_no_deadline(world: World) -> None:
    world.kill(world.planners[0])
    world.run(20_000)
    found = series(world, snapshot_of(world))
    assert value(found, "windhover_session_up", group="g") == 0
    assert value(found, "windhover_pending_roots", **OF) == 1
    assert value(found, "windhover_nearest_deadline_timestamp_seconds", **OF) is None


def test_a_dead_letter_has_its_time(world: World) -> None:
    snapshot = snapshot_of(world)
    dead = Reading(DeadRecords(np.array([4, 5]), np.array([world.now_ms - 7_000, world.now_ms - 9_000])))
    first, *others = snapshot.partitions
    found = series(world, replace(snapshot, partitions=[replace(first, dead_at=dead), *others]))
    name = "windhover_newest_dead_letter_timestamp_seconds"
    assert value(found, name, **OF) == world.now_ms / 1_000 - 7
    assert value(found, name, **{**OF, "partition": "1"}) is None


@pytest.mark.parametrize(
    ("start", "end", "expected"), [(0, 1_000, None), (1, 11, 0.1), (2, 1_002, 0.0), (7, 12, -1.0)]
)
def test_the_headroom_of_a_log_is_what_retention_may_still_delete(
    world: World, start: int, end: int, expected: float | None
) -> None:
    """The record at offset 2 is not done. A log that begins at 0 has lost nothing so far."""
    snapshot = snapshot_of(world)
    first, *others = snapshot.partitions
    state = replace(first, start=Reading(start), end=Reading(end))
    found = series(world, replace(snapshot, partitions=[state, *others]))
    assert value(found, "windhover_log_headroom_ratio", **OF) == expected


def test_what_is_unknown_has_no_series_and_the_view_is_down() -> None:
    fresh = World()
    fresh.produce(4)
    found = series(fresh, snapshot_of(fresh))
    names = {name for name, _ in found}
    assert value(found, "windhover_view_up", reason="no_acker_state") == 0
    assert "windhover_pending_roots" not in names
    assert "windhover_not_done_records" not in names
    assert value(found, "windhover_end_offset", **OF) == 4
    assert value(found, "windhover_due_roots", **OF) == 0


@pytest.mark.parametrize(
    ("reason", "changed"),
    [
        ("broker_away", {"broker_error": Unreachable("no answer"), "partitions": ()}),
        ("not_authorized", {"refused": NotAuthorized("no right")}),
        ("topic_missing", {"missing": ["sentences"]}),
        ("no_acker_state", {"views": [Reading(unknown="no State")] * 3}),
        ("unreadable", {"ends": [Reading(unknown="no leader")] * 3}),
    ],
)
def test_a_view_that_is_down_says_why(world: World, reason: str, changed: dict[str, object]) -> None:
    found = series(world, replace(snapshot_of(world), **changed))  # type: ignore[arg-type]
    assert [each for each in found if each[0] == "windhover_view_up"] == [
        ("windhover_view_up", frozenset({("reason", reason)}))
    ]
    assert value(found, "windhover_view_up", reason=reason) == 0


def test_a_leader_that_is_away_hides_the_figures_of_its_partition_alone(world: World) -> None:
    snapshot = snapshot_of(world)
    gone: Reading[int] = Reading(unknown="partition 0 has no leader")
    first, *others = snapshot.partitions
    state = replace(first, end=gone, lag=gone)
    found = series(world, replace(snapshot, partitions=[state, *others]))
    assert value(found, "windhover_view_up", reason="unreadable") == 0
    assert value(found, "windhover_not_done_records", **OF) is None
    assert value(found, "windhover_not_done_records", **{**OF, "partition": "1"}) == 0


def test_before_the_first_reading_and_after_a_minute_without_one_there_is_no_figure(world: World) -> None:
    snapshot = snapshot_of(world)
    assert {name for name, _ in series(world, snapshot, number=0)} == {"windhover_view_up"}
    found = series(world, snapshot, later_ms=STALE_MS)
    assert value(found, "windhover_view_up", reason="stale") == 0
    assert {name for name, _ in found} == {
        "windhover_view_up",
        "windhover_view_updated_timestamp_seconds",
    }
    assert value(series(world, snapshot, later_ms=STALE_MS - 1), "windhover_view_up", reason="") == 1


@pytest.mark.parametrize(
    ("later_ms", "is_up"),
    [(-3_600_000, False), (-STALE_MS, False), (1 - STALE_MS, True), (0, True), (3_600_000, False)],
)
def test_a_reading_of_the_future_is_stale_too(world: World, later_ms: int, is_up: bool) -> None:
    """D3003: the clock was set back, and a view that stands passed for a fresh one until that time came."""
    found = series(world, snapshot_of(world), later_ms=later_ms)
    assert value(found, "windhover_view_up", reason="" if is_up else "stale") == is_up


def test_no_label_names_a_record(world: World, watch: Watch) -> None:
    labels = {name for _, pairs in scraped(world, watch) for name, _ in pairs}
    assert labels <= {"input", "group", "topic", "partition", "reason", "version"}
