"""Starts a stage in the task of this process: in the process itself, or in a child of it.

Bolts run in a *child* process, where a tuple that kills or hangs it can be found, if the task or
its batch was tried before: what ended the process then may have been a bolt. A task knows that

* by the number of its try, which Spark counts;
* by what it is to read (`runs_again`). If a query has ended with a batch that was not done, its
  next run begins with that batch. The planning process notices, since Spark asks for the
  partitions of the batch without having asked for its end, and tells the tasks that read;
* by a file (`Safety.mark`), which the planning process writes at the same time for the tasks behind
  a shuffle, if it and the workers are on one machine.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache, partial
from threading import Event
from typing import Final

from spout.bolts.hooks import BoltContext
from spout.execution.stage_run import StageRun, TaskRun
from spout.isolation.hang_notes import HangNote, HangNotes, TaskPlace
from spout.isolation.isolation import IsolatedRun
from spout.isolation.safety import Safety
from spout.publishing.report_accumulator import task_name
from spout.runtime.pulse import Pulse
from spout.runtime.watchdog import Hang, Watchdog, end_worker
from spout.topology.stage_pass import StagePass
from spout.tuples.raised import place_of_thread

MMAP_BYTES: Final = 32 << 20
"""Memory of arrays below this size is kept when they are freed; the most that glibc takes."""

KEPT_BYTES: Final = 128 << 20
"""Freed memory above this goes back to the system."""

MALLOC_VARIABLES: Final = frozenset({"GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"})
"""Environment variables by which somebody sets the same."""

_M_TRIM_THRESHOLD: Final = -1  # https://man7.org/linux/man-pages/man3/mallopt.3.html
_M_MMAP_THRESHOLD: Final = -3


@contextmanager
def running_stage(
    stage: StagePass,
    safety: Safety,
    *,
    runs_again: bool = False,
) -> Iterator[TaskRun]:
    """Start a stage of bolts, and yield it at work; at the end of the context it is ended.

    It works in a child process if the task or its batch was tried before, else in this process,
    with a thread that watches for hangs.

    Bolts on rows that are not tracked run in this process, and nobody watches them: no record could
    fail for what they do.

    Args:
        safety: how long a call may last, and whether the task was tried before.
        runs_again: whether another process planned the batch, and the query ended in it.
    """
    task = task_name()
    context = BoltContext(stage.name, task.partition, task.batch)
    hang_notes = HangNotes(TaskPlace(task.query, task.batch, stage.name, task.partition))
    tries_before = task.tries
    if runs_again:  # the batch's first run was a try, too
        tries_before += 1
    has_tracked_bolts = bool(stage.bolts) and stage.tracked
    if has_tracked_bolts and safety.isolates(tries_before):
        start_stage = partial(StageRun, context=context)  # the child calls it
        run = IsolatedRun(
            stage,
            context,
            safety.bolt_timeout_ms,
            start_stage,
            earlier_hang=hang_notes.read(),
        )
        with closing(run):
            yield run
        # only here: if an error ends this run of the task, the next one needs it
        hang_notes.remove()
    else:
        pulse = Pulse()
        limit_ms = safety.bolt_timeout_ms if stage.tracked else 0  # 0: nothing is watched
        with Watchdog(pulse, limit_ms, partial(_end_hung, hang_notes), place_of=place_of_thread):
            yield StageRun(stage, context, pulse)


def _end_hung(notes: HangNotes, hang: Hang) -> None:
    """Write down the call that hangs, for the next run of the task, and end this worker."""
    notes.write(HangNote(hang.bolt, hang.roots))
    end_worker(hang)


_FROZEN = Event()
"""Is set once this process has frozen its objects; global, since a worker process outlives its
tasks.
"""


@contextmanager
def no_garbage_collection(frozen: Event = _FROZEN) -> Iterator[None]:
    """Switch Python's cyclic garbage collector off as long as the context lasts.

    Thousands of messages or tuples would trigger it, and none of them is in a
    cycle. Spark collects once behind each task, and the next task waits for
    that: some 50 ms for the 110,000 objects of imported modules. They live as
    long as the process, so its first task freezes them, which takes them out of
    all collections.

    It also has the process keep freed memory for the next arrays.

    `frozen`: is set once the objects are frozen. To ask Python instead (`gc.get_freeze_count`)
    takes 13 ms, since it counts them.
    """
    _keep_freed_memory()
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if not frozen.is_set():
            frozen.set()
            gc.collect()
            gc.freeze()
        if was_on:
            gc.enable()


@cache
def _keep_freed_memory() -> None:
    """Make the C library keep the memory of freed arrays for the next ones, where it is glibc.

    Otherwise it returns large pieces of memory to the system at once, and the system clears them
    page by page when they are asked for again: that was a tenth of the time of 10,000 text lines.
    What somebody has set by environment variables stays.
    """
    if not MALLOC_VARIABLES.isdisjoint(os.environ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # None: another C library than glibc
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, MMAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
