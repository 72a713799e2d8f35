"""The watchdog: what hangs is found, not too early, also where nothing of Python's runs any more."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spout.bolts.bolts import ArrowBolt, BasicBolt, BatchCollector, Bolt
from spout.bolts.collectors import BasicCollector, OutputCollector
from spout.bolts.hooks import BoltContext
from spout.builder.topology import TopologyBuilder
from spout.execution.stage_run import StageRun
from spout.runtime import watchdog
from spout.runtime.pulse import OverdueCalls, Pulse, Work
from spout.runtime.watchdog import EXIT_HUNG, Watchdog
from spout.topology.chain import Chain, Step
from spout.tuples.anchors import ORDINAL_BITS, AnchorForm, Anchors
from spout.tuples.messages import MessageRows
from spout.tuples.rows import ArrowRows
from spout.tuples.tuple import Tuple
from tests.support.waiting import eventually
from tests.support.worlds.topology_world import SOURCE, TOPICS, record, schema_of, stages_of

CONTEXT = BoltContext("pass", 0, 1)
SCHEMA = pa.schema([("word", pa.string())])


def test_a_call_is_overdue_when_it_was_seen_for_as_long_as_the_limit() -> None:
    done: list[int] = []
    calls = OverdueCalls(1_000)
    watch = Pulse()
    watch.begin("split", done.__len__)
    assert not calls.record_sample(watch.work, 5_000)
    assert not calls.record_sample(watch.work, 5_999)
    assert calls.record_sample(watch.work, 6_000) == "split"
    done.append(1)
    assert not calls.record_sample(watch.work, 6_500)
    assert not calls.record_sample(watch.work, 7_499)
    watch.begin("split", done.__len__)
    assert not calls.record_sample(watch.work, 7_500)
    watch.end()
    assert not calls.record_sample(watch.work, 7_600)
    assert not calls.record_sample(watch.work, 99_999)


class Asking:
    """Remembers what a watch says while a bolt works."""

    def __init__(self) -> None:
        """Look at nothing yet."""
        self.watch = Pulse()
        self.seen: list[tuple[str, int]] = []
        self.works: list[Work | None] = []
        self.roots: list[list[int]] = []

    def look(self) -> None:
        """Look, from within a bolt."""
        work = self.watch.work
        self.works.append(work)
        self.roots.append(sorted(work[2]()) if work else [])
        self.seen.append((work[0], work[1]()) if work else ("", -1))


def rows_of(*words: str) -> tuple[ArrowRows, Anchors]:
    """Make rows with anchors."""
    rows = ArrowRows(pa.RecordBatch.from_pydict({"word": pa.array(words, pa.string())}))
    return rows, Anchors(AnchorForm.PACKED, pa.array(np.arange(len(words)) << ORDINAL_BITS))


def test_each_form_of_a_bolt_tells_each_call() -> None:
    asking = Asking()

    class Row(BasicBolt):
        output = "value string"

        def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
            asking.look()
            collector.emit((tuple[0],))

    class Batch(ArrowBolt):
        output = "value string"

        def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
            asking.look()
            collector.emit(batch.columns, np.arange(batch.num_rows))

    class Rich(Bolt):
        output = "value string"

        def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
            self._collector = collector

        def execute(self, tuple: Tuple) -> None:
            asking.look()
            self._collector.ack(tuple)

    for bolts, seen in (
        ((Row(), Batch()), [("0", 0), ("0", 1), ("1", 0)]),
        ((Row(), Rich()), [("0", 0), ("0", 1), ("1", 0), ("1", 1)]),
    ):
        asking.__init__()  # type: ignore[misc]
        steps = tuple(Step(str(n), bolt, SCHEMA) for n, bolt in enumerate(bolts))
        made = StageRun(Chain(steps, arriving_form=AnchorForm.PACKED).stage, CONTEXT, asking.watch)
        made.feed(*rows_of("a", "b"))
        assert asking.seen == seen
        # D1410: the row that is worked on, or all rows of a call for many
        assert asking.roots == [[0], [1], *([[0], [1]] if len(seen) == 4 else [[0, 1]])]
        distinct = {(id(work), number) for work, (_, number) in zip(asking.works, asking.seen, strict=True)}
        assert len(distinct) == len(seen)
        assert asking.watch.work is None


@pytest.mark.parametrize(
    "act", ["while True: pass", "threading.Event().wait()", "ctypes.PyDLL(None).pause()"]
)
def test_a_bolt_that_hangs_ends_its_worker_with_its_place_and_a_trace(act: str, tmp_path: Path) -> None:
    """D1409"""
    locked = "PyDLL" in act
    # the alarm needs no lock: on a machine that stands still it would come before the thread
    alarm_limits = watchdog.ALARM_LIMITS if locked else 1_000
    program = f"""
import ctypes, threading
from spout.runtime import watchdog
from spout.runtime.pulse import Pulse
from spout.runtime.watchdog import Watchdog
from spout.tuples.raised import place_of_thread
watch = Pulse()
watchdog.ALARM_LIMITS = {alarm_limits}

def hangs():
    {act}

with Watchdog(watch, 200, place_of=place_of_thread):
    watch.begin("slow")
    hangs()
"""
    path = tmp_path / "hanging.py"
    path.write_text(program)
    line = 1 + program[: program.index(f"    {act}\n")].count("\n")
    found = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert found.returncode == (1 if locked else EXIT_HUNG)
    assert "in hangs" in found.stderr
    assert locked or f"bolt_hung bolt=slow limit=200ms place=hanging.py:{line} pid=" in found.stderr


def test_a_watchdog_leaves_alone_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that waits for Kafka or Spark is at no bolt, however long."""
    # the alarm would end the tests where this machine is too busy to wind it up
    monkeypatch.setattr(watchdog.faulthandler, "dump_traceback_later", lambda *_, **__: None)
    ended: list[str] = []
    looks: list[int] = []

    class Counting(Pulse):
        __slots__ = ()

        @property
        def work(self) -> Work | None:  # type: ignore[override]
            looks.append(1)
            return None

        @work.setter
        def work(self, value: Work | None) -> None:
            pass

    with Watchdog(Counting(), 40, lambda hang: ended.append(hang.bolt)):
        eventually(lambda: len(looks) > 20)
    assert not ended
    with Watchdog(Pulse(), 0):
        assert not any(thread.name == "windhover-watchdog" for thread in threading.enumerate())


def test_a_watchdog_whose_thread_cannot_start_leaves_no_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would end the process in the middle of a later task."""
    alarms: list[str] = []
    monkeypatch.setattr(watchdog.faulthandler, "dump_traceback_later", lambda *_, **__: alarms.append("set"))
    monkeypatch.setattr(watchdog.faulthandler, "cancel_dump_traceback_later", alarms.clear)

    def start(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError, match="new thread"), Watchdog(Pulse(), 40):
        pass
    assert alarms == []


def test_a_topology_tells_each_call() -> None:
    asking = Asking()

    class Row(BasicBolt):
        output = "word string"

        def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
            asking.look()

    builder = TopologyBuilder()
    builder.set_spout("lines", TOPICS, "lines")
    builder.set_bolt("bolt", Row()).shuffle_grouping("lines")
    [stage] = stages_of(builder.compile(schema_of, cores=2))
    rows = MessageRows([record(b"a", n) for n in range(3)], SOURCE, np.arange(3))
    made = StageRun(stage, CONTEXT, asking.watch)
    made.feed(rows, Anchors(AnchorForm.PACKED, pa.array(np.arange(3) << ORDINAL_BITS)))
    assert asking.seen == [("bolt", 0), ("bolt", 1), ("bolt", 2)]
