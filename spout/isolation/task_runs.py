"""Starts a stage in the task that this process works on: in the process itself, or in a child of it.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

from spout.bolts.hooks import BoltContext
from spout.execution.safety import Safety
from spout.execution.stage_run import StageRun, TaskRun
from spout.isolation.isolation import IsolatedRun
from spout.publishing.ledger import task_name
from spout.runtime.pulse import Pulse
from spout.runtime.watchdog import Watchdog
from spout.topology.stage_pass import StagePass


@contextmanager
def running_stage(pass_: StagePass, safety: Safety, *, again: bool = False) -> Iterator[TaskRun]:
    """Run a stage as long as the context lasts.

    Untracked, bolts are neither isolated nor watched: nobody could fail a record in their place.

    Args:
        pass_: the stage.
        safety: of the query.
        again: whether the batch is known to be run again.
    """
    name = task_name()
    context = BoltContext(pass_.name, name.partition, name.batch)
    pulse = Pulse()
    if pass_.bolts and pass_.tracked and safety.isolates(name.tries + again):
        with closing(IsolatedRun(pass_, context, safety.limit_ms, partial(StageRun, context=context))) as run:
            yield run
    else:
        with Watchdog(pulse, safety.limit_ms if pass_.tracked else 0):
            yield StageRun(pass_, context, pulse)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Switch Python's cyclic garbage collector off.

    Thousands of messages or tuples would trigger it, and none of them is in a cycle.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
