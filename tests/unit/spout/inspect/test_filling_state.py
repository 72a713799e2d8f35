"""An acker partition whose State fills: every view of the machinery names it, with the cure."""

from __future__ import annotations

from contextlib import closing

import pytest

from acker.kafka.partition_troubles import TroubleKind
from acker.service import state as state_module
from acker.service.state import NEARLY_FULL_SHARE
from spout.inspect.overview import Overview, Snapshot
from spout.ui.attention import Thresholds, problems
from tests.support.worlds.planning import BEGINNING, World, batch

BATCHES = 12


def snapshot_of(world: World) -> Snapshot:
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        return overview.snapshot(world.now_ms)


@pytest.mark.parametrize(
    ("items_max", "warns", "is_critical"), [(1_000, False, False), (20, True, False), (13, True, True)]
)
def test_views_name_a_state_that_fills(
    monkeypatch: pytest.MonkeyPatch, items_max: int, *, warns: bool, is_critical: bool
) -> None:
    """O1931: `check` warns from half of a limit on, and is CRITICAL from 90 %."""
    monkeypatch.setattr(state_module, "STATE_ITEMS_MAX", items_max)
    world = World()
    planner, end = world.ready(), BEGINNING
    for _ in range(BATCHES):
        world.produce(1)
        before, end = end, batch(planner, end, world)
        world.publish(before, end, skip=range(1_000))
    world.run(2_000)
    snapshot = snapshot_of(world)
    troubles = [trouble for trouble in snapshot.partition_troubles if trouble.kind is TroubleKind.FILLING]
    assert [trouble.partition.topic for trouble in troubles] == ["_ack_state"] * warns
    assert any("% full" in text and "windhover release" in text for text in snapshot.troubles()) is warns
    for limits, is_named in ((Thresholds(), warns), (Thresholds(filling=NEARLY_FULL_SHARE), is_critical)):
        flags = [flag.name for flag in problems(snapshot, world.topics, limits)]
        assert any(name.startswith("filling: ") for name in flags) is is_named
