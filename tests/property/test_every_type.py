"""A value of any type that a bolt emits and others pass on is the same value behind each form of a bolt."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

import spout
from spout.bolts.hooks import BoltContext, TaskHook
from spout.execution.stage_run import StageRun
from spout.isolation.isolation import IsolatedRun
from spout.topology.stage_pass import StagePass
from tests.support.bolts import type_bolts as bolts
from tests.support.outcomes import failed_by_cause
from tests.support.worlds.topology_world import TOPICS, run

LINES = [b"%d" % number for number in range(bolts.ROWS)]
FORMS: list[type[Any]] = [
    bolts.PassesTypes,
    bolts.PassesTypesByHand,
    bolts.PassesTypesAsColumns,
    bolts.PassesTypesAsNewColumns,
]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("hooks", "is_in_child"), [(0, False), (1, False), (0, True)])
@pytest.mark.parametrize("form", FORMS)
def test_a_value_that_a_bolt_passes_on_stays_the_same(form: type[Any], hooks: int, is_in_child: bool) -> None:
    """O811: beside the bolt before it, behind a shuffle, with a hook, in a child process."""
    children: list[IsolatedRun] = []

    def child(stage: StagePass, context: BoltContext) -> IsolatedRun:
        children.append(IsolatedRun(stage, context, 0, partial(StageRun, context=context)))
        return children[-1]

    builder = spout.TopologyBuilder()
    builder.set_spout("lines", TOPICS, "lines")
    builder.set_bolt("emits", bolts.EmitsTypes()).shuffle_grouping("lines")
    builder.set_bolt("beside", form()).shuffle_grouping("emits")
    builder.set_bolt("behind", form(), 1).shuffle_grouping("beside")
    for _ in range(hooks):
        builder.add_hook(TaskHook())
    try:
        made = run(builder, LINES, print, tasks=1, begin=child if is_in_child else None)
    finally:
        for isolated in children:
            isolated.close()
    assert not failed_by_cause(made.outcome)
    rows = sorted(made.values, key=lambda values: int(values[0]))
    assert [values[0] for values in rows] == list(range(bolts.ROWS))
    for number, passed in enumerate(rows):
        for kind, value, now in zip(("id", *bolts.COLUMNS), bolts.row(number), passed, strict=True):
            assert bolts.shown(now) == bolts.shown(value), kind
