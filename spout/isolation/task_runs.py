"""Starts a stage in the task that this process works on: in the process itself, or in a child of it.

A batch that ended with its query and is run again runs in isolation (in a
child) from the start: what ended the query may have been a bolt. The planning
process knows that, since Spark asks for the partitions of such a batch without
having asked for its end. It tells tasks that read with what they are to read;
those behind a shuffle find a file (`Safety.mark`), where the planning process,
the driver and the workers are on one machine. Elsewhere a task is tried several
times, and the second attempt knows by its number.
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
"""Blocks of memory below this size are kept when they are freed; the most that glibc takes."""

KEPT_BYTES: Final = 128 << 20
"""Freed memory above this goes back to the system."""

MALLOC_VARIABLES: Final = frozenset({"GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"})
"""Environment by which somebody sets the same."""

_M_TRIM_THRESHOLD: Final = -1  # https://man7.org/linux/man-pages/man3/mallopt.3.html
_M_MMAP_THRESHOLD: Final = -3


@contextmanager
def running_stage(pass_: StagePass, safety: Safety, *, again: bool = False) -> Iterator[TaskRun]:
    """Yield a stage at work, in this process, or in a child if the batch was tried before.

    Close it behind.

    `again`: the batch is known to be run again. Bolts on rows that are not
    tracked are neither isolated nor watched: nobody could fail a record for
    them.
    """
    task = task_name()
    context = BoltContext(pass_.name, task.partition, task.batch)
    notes = HangNotes(TaskPlace(task.query, task.batch, pass_.name, task.partition))
    tries_before = task.tries + again  # the batch's first run was a try, too
    has_tracked_bolts = bool(pass_.bolts) and pass_.tracked
    if has_tracked_bolts and safety.isolates(tries_before):
        begin = partial(StageRun, context=context)
        run = IsolatedRun(pass_, context, safety.limit_ms, begin, hung=notes.read())
        with closing(run):
            yield run
        notes.remove()  # not where an error ended this attempt, too: the next one needs it
    else:
        pulse = Pulse()
        limit_ms = safety.limit_ms if pass_.tracked else 0
        with Watchdog(pulse, limit_ms, partial(_end_hung, notes), place_of=place_of_thread):
            yield StageRun(pass_, context, pulse)


def _end_hung(notes: HangNotes, hang: Hang) -> None:
    """Write a note for the next attempt of the task about the call that hangs, and end this
    worker.
    """
    notes.write(HangNote(hang.bolt, hang.roots))
    end_worker(hang)


_FROZEN = Event()
"""Is set once this process has frozen its objects; global, since a worker process outlives its tasks."""


@contextmanager
def no_garbage_collection(frozen: Event = _FROZEN) -> Iterator[None]:
    """Switch Python's cyclic garbage collector off as long as the context lasts, and keep freed memory.

    Thousands of messages or tuples would trigger it, and none of them is in a
    cycle. Spark collects once behind each task, and the next task waits for
    that: some 50 ms for the 110,000 objects of imported modules. They live as
    long as the process, so its first task freezes them, which takes them out of
    all collections.

    `frozen`: is set when that was done. To ask Python for the number of frozen
    objects counts them, which takes 13 ms.
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

    It returns large blocks to the system at once, and the system clears them
    page by page when they are asked for again: a tenth of the time of a block
    of 10,000 lines. Somebody who set it by environment keeps that.
    """
    if not MALLOC_VARIABLES.isdisjoint(os.environ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, MMAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
