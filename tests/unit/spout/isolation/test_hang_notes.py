"""A hang outside of a child that does not repeat: the next attempt of the task reports its records."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from acker.errors import BoltStopped
from acker.wire.causes import without_code_line
from spout.bolts.bolts import AnyBolt, ArrowBolt, BasicBolt, BatchCollector, Bolt
from spout.bolts.collectors import BasicCollector, OutputCollector
from spout.bolts.hooks import BoltContext, TaskHook
from spout.isolation import task_runs
from spout.isolation.hang_notes import NOTE_BYTES_MAX, ROOTS_MAX, HangNote, HangNotes, TaskPlace
from spout.isolation.safety import Safety
from spout.isolation.task_runs import running_stage
from spout.publishing.fold import TaskReport
from spout.runtime import watchdog
from spout.topology.chain import Chain, Step
from spout.topology.stage_pass import StagePass
from spout.tuples.anchors import ORDINAL_BITS, AnchorForm, Anchors
from spout.tuples.poison import HUNG
from spout.tuples.rows import ArrowRows
from spout.tuples.tuple import Tuple
from tests.support.reports import failures_in, passed_in

LIMIT_MS = 300
WORD = pa.schema([("word", pa.string())])
PLACE = TaskPlace("query", 7, "split", 3)
LINES = ["a", "b", "wait", "c"]
HUNG_ROOT = 2


class Ended(Exception):
    """Stands for the end of the worker, in the thread of its task: bolts stop on it."""


class Waits:
    """Waits at the word ``wait``, as often as it is told to; the first one is ended by `released`."""

    def __init__(self, marks: Path, times: int, released: threading.Event) -> None:
        self._marks = marks
        self._times = times
        self._released = released

    def act(self, word: str) -> None:
        """Wait for ever, unless that was done often enough."""
        done = len(list(self._marks.iterdir()))
        if word != "wait" or done >= self._times:
            return
        (self._marks / str(done)).touch()
        if done:  # in a child, which is killed
            threading.Event().wait()
        self._released.wait()
        raise Ended


class Row(BasicBolt):
    output = "value string"
    stops_on = (Ended,)

    def __init__(self, waits: Waits) -> None:
        self._waits = waits

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Wait, perhaps."""
        self._waits.act(tuple[0])


class Rich(Bolt):
    output = "value string"
    stops_on = (Ended,)

    def __init__(self, waits: Waits) -> None:
        self._waits = waits

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Wait, perhaps, and ack."""
        self._waits.act(tuple[0])
        self._collector.ack(tuple)


class Batch(ArrowBolt):
    output = "value string"
    stops_on = (Ended,)

    def __init__(self, waits: Waits) -> None:
        self._waits = waits

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Wait, perhaps."""
        for word in batch.column(0).to_pylist():
            self._waits.act(word)


FORMS = [
    pytest.param(Row, False, [HUNG_ROOT], id="basic"),
    pytest.param(Row, True, [HUNG_ROOT], id="basic with hooks"),
    pytest.param(Rich, False, [HUNG_ROOT], id="rich"),
    pytest.param(Rich, True, [HUNG_ROOT], id="rich with hooks"),
    # which row of a call for many it was nobody can tell
    pytest.param(Batch, False, [0, 1, 2, 3], id="arrow"),
    pytest.param(Batch, True, [0, 1, 2, 3], id="arrow with hooks"),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a folder for temporary files of the test's own; no alarm ends the tests on a slow machine."""
    made = tmp_path / "temporary"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    monkeypatch.setattr(watchdog.faulthandler, "dump_traceback_later", lambda *_, **__: None)
    return made


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Waits]]:
    """Make what a bolt waits by; the end of a worker ends the wait instead of this process."""
    released = threading.Event()
    monkeypatch.setattr(task_runs, "end_worker", lambda _hang: released.set())
    marks = tmp_path / "marks"
    marks.mkdir()
    yield lambda times: Waits(marks, times, released)
    released.set()


def stage_of(bolt: AnyBolt, *, hooked: bool) -> StagePass:
    hooks = (TaskHook(),) if hooked else ()
    step = Step("work", bolt, WORD, hooks=hooks)
    return Chain((step,), arriving_form=AnchorForm.PACKED).stage


def attempt(stage: StagePass, *, again: bool) -> TaskReport:
    """Run one attempt of a task; `again`: isolated."""
    rows = ArrowRows(pa.RecordBatch.from_pydict({"line": pa.array(LINES, pa.string())}))
    anchors = Anchors(AnchorForm.PACKED, pa.array(np.arange(len(LINES)) << ORDINAL_BITS))
    with running_stage(stage, Safety(LIMIT_MS), runs_again=again) as run:
        run.feed(rows, anchors)
        run.finish()
        return run.report()


@pytest.mark.parametrize(("form", "hooked", "roots"), FORMS)
def test_a_hang_outside_of_a_child_that_does_not_repeat_leaves_its_records(
    form: type[Row | Rich | Batch],
    hooked: bool,
    roots: list[int],
    hanging: Callable[[int], Waits],
    folder: Path,
) -> None:
    """D1410"""
    stage = stage_of(form(hanging(1)), hooked=hooked)
    with pytest.raises(BoltStopped):
        attempt(stage, again=False)
    assert len(list(folder.iterdir())) == 1
    report = attempt(stage, again=True)
    assert failures_in(report) == ()
    ((cause, indices),) = passed_in(report)
    assert (cause.operator, cause.error) == ("work", HUNG)
    assert cause.message == "took longer than bolt_timeout, 300ms"
    assert indices.tolist() == roots
    assert list(folder.iterdir()) == [], "the next batch that hangs there begins anew"
    assert passed_in(attempt(stage, again=True)) == ()


@pytest.mark.parametrize(("form", "hooked", "roots"), FORMS)
def test_a_hang_that_repeats_fails_its_record_and_is_not_shown_twice(
    form: type[Row | Rich | Batch], hooked: bool, roots: list[int], hanging: Callable[[int], Waits]
) -> None:
    """D1411"""
    stage = stage_of(form(hanging(9)), hooked=hooked)
    with pytest.raises(BoltStopped):
        attempt(stage, again=False)
    report = attempt(stage, again=True)
    ((cause, indices),) = failures_in(report)
    assert (cause.error, indices.tolist()) == (HUNG, [HUNG_ROOT])
    assert without_code_line(cause.message)[0] == "took longer than bolt_timeout, 300ms"
    assert passed_in(report) == ()
    assert HUNG_ROOT in roots


def test_an_attempt_that_ends_by_an_error_leaves_the_note_to_the_next_one(
    hanging: Callable[[int], Waits], folder: Path
) -> None:
    stage = stage_of(Row(hanging(1)), hooked=False)
    with pytest.raises(BoltStopped):
        attempt(stage, again=False)
    with pytest.raises(Ended), running_stage(stage, Safety(LIMIT_MS), runs_again=True):
        raise Ended
    assert len(list(folder.iterdir())) == 1
    assert len(passed_in(attempt(stage, again=True))) == 1


def test_another_task_reads_no_note_of_this_one(folder: Path) -> None:
    HangNotes(PLACE).write(HangNote("split", (4, 5)))
    others = [
        PLACE._replace(query="other"),
        PLACE._replace(batch=8),
        PLACE._replace(operator="count"),
        PLACE._replace(partition=4),
    ]
    assert [HangNotes(place).read() for place in others] == [None] * 4
    assert HangNotes(PLACE).read() == HangNote("split", (4, 5))
    assert HangNotes(PLACE, folder.parent).read() is None


def test_a_note_is_for_this_user_alone_and_the_later_one_counts() -> None:
    notes = HangNotes(PLACE)
    notes.write(HangNote("split", (4, 5)))
    notes.write(HangNote("count", tuple(range(ROOTS_MAX + 5))))
    assert notes.read() == HangNote("count", tuple(range(ROOTS_MAX)))
    assert notes.path.stat().st_mode & 0o777 == 0o600
    notes.remove()
    notes.remove()
    assert notes.read() is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "7",
        "[]",
        '["split"]',
        '["split", 7]',
        '["split", ["4"]]',
        '["split", [true]]',
        json.dumps(["split", [1 << 63]]),
        "[7, [4]]",
        "[" * 100_000,
        json.dumps(["split", [1] * NOTE_BYTES_MAX]),
    ],
)
def test_what_no_worker_wrote_is_passed_over(text: str) -> None:
    """D1410: it is in a folder where others may write."""
    notes = HangNotes(PLACE)
    notes.path.write_text(text)
    assert notes.read() is None


def test_no_link_is_followed(folder: Path) -> None:
    """Else who may write in the folder would let a worker write where it alone may."""
    notes = HangNotes(PLACE)
    target = folder.parent / "target"
    target.write_text('["split", [4]]')
    notes.path.symlink_to(target)
    assert notes.read() is None
    notes.write(HangNote("count", (1,)))
    assert target.read_text() == '["split", [4]]'
    assert notes.read() == HangNote("count", (1,))


def test_the_note_of_another_user_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = HangNotes(PLACE)
    notes.write(HangNote("split", (4,)))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert notes.read() is None


def test_a_folder_in_which_nobody_can_write_changes_nothing(folder: Path) -> None:
    notes = HangNotes(PLACE, folder / "missing")
    notes.write(HangNote("split", (4,)))
    assert notes.read() is None
    notes.remove()
