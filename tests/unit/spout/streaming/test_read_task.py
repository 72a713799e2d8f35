"""What a read task reports: positions that it did not find, and records that `tracked_when` refuses."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import Any, ClassVar

import numpy as np
import pytest
from confluent_kafka import Message

from acker.errors import TrackingError
from acker.identity import copies_source, position_at
from acker.wire.causes import HELD
from acker.wire.events import SourceRun
from spout.isolation.task_runs import no_garbage_collection
from spout.planning.order import LineUp
from spout.planning.plan import BatchPlan, ReadTask, holes
from spout.publishing.blob import decode, encode
from spout.publishing.fold import TaskReport
from spout.streaming import read_task
from spout.streaming.consume import Share
from spout.streaming.map_task import Received
from spout.streaming.options import SourceOptions
from spout.tuples.failures import Cause
from spout.tuples.tuple import Tuple
from tests.support.worlds.topology_world import SOURCE, TOPICS


def test_positions_between_records_are_holes() -> None:
    """S91, P6: they never held a record."""
    found = holes(7, 10, np.array([11, 12, 15, 19]))
    assert found == [(7, 10, 11), (7, 13, 15), (7, 16, 19)]
    assert holes(7, 11, np.array([11, 12, 13])) == []
    assert holes(7, 11, np.array([13])) == [(7, 11, 13)]


def test_the_collector_is_switched_on_again_whatever_happens() -> None:
    def fail() -> None:
        with no_garbage_collection():
            raise KeyError(gc.isenabled())

    with pytest.raises(KeyError, match="False"):
        fail()
    assert gc.isenabled()


def test_the_first_task_takes_what_is_imported_out_of_later_collections() -> None:
    gc.unfreeze()
    done = Event()
    with no_garbage_collection(done):
        assert not gc.get_freeze_count()
    frozen = gc.get_freeze_count()
    assert frozen > 10 * len(gc.get_objects())
    with no_garbage_collection(done):
        mine: list[list[int]] = [[]]
    assert any(each is mine for each in gc.get_objects())
    gc.unfreeze()


def test_roots_that_come_once_are_marked_and_one_that_comes_twice_is_named() -> None:
    received = Received("split")
    received.mark(np.array([5, 0]))
    received.mark(np.array([], np.int64))
    received.mark(np.array([2]))
    assert received.marks().tolist() == [True, False, True, False, False, True]
    for again in ([2], [9, 9]):
        with pytest.raises(TrackingError, match="'split' received a root twice"):
            received.mark(np.array(again))


def not_debug(tuple: Tuple) -> bool:
    """Break on a tombstone, as who forgets them would."""
    return b"debug" not in tuple["value"]


@dataclass(slots=True)
class Read:
    """What became of a read task: the values of the rows that it returned, and its report."""

    values: list[bytes | None] = field(default_factory=list)
    reports: list[TaskReport | None] = field(default_factory=list)

    @property
    def report(self) -> TaskReport:
        """The one report."""
        [report] = self.reports
        assert report is not None
        return report

    @property
    def failed(self) -> dict[Cause, list[int]]:
        """The failed roots by cause."""
        return {cause: roots.tolist() for cause, roots in self.report.failures}


class Log:
    """Stands for `TaskReader`, over values of records with the key ``k``; offsets count from 0."""

    values: ClassVar[list[bytes | None]] = []
    more: ClassVar[Mapping[int, list[tuple[str, bytes]]]] = {
        1: [("traceparent", b"00-%032x-%016x-01" % (7, 5))],
        2: [("traceparent", b"00-%032x-%016x-00" % (8, 5))],
        3: [("traceparent", b"nonsense")],
    }

    def __init__(self, _kafka: object, _shares: object) -> None:
        """Read shares."""
        self.lost = 0

    def chunks(self, share: Share) -> Iterator[list[Message]]:
        """Return the records, two at a time."""
        for begin in range(share.start, share.end, 2):
            offsets = range(begin, min(begin + 2, share.end))
            yield [
                Message(
                    topic="lines",
                    partition=0,
                    offset=offset,
                    key=b"k",
                    value=self.values[offset],
                    headers=[
                        ("windhover.first-emitted", b"%d" % (1_000 + offset)),
                        *self.more.get(offset, ()),
                    ],
                )
                for offset in offsets
            ]


def read(
    monkeypatch: pytest.MonkeyPatch,
    *values: bytes | None,
    order: Mapping[int, LineUp] | None = None,
    source: int = SOURCE,
    **options: Any,
) -> Read:
    """Let a task read records of these values; nothing runs behind it."""
    found = Read()
    monkeypatch.setattr(read_task, "TaskReader", Log)
    monkeypatch.setattr(Log, "values", list(values))
    monkeypatch.setattr(read_task, "add", lambda _ledger, _stream, report: found.reports.append(report))
    run = SourceRun(source, position_at(0, 0), position_at(0, len(values)))
    plan = BatchPlan("g", "s", 1, 2, 7, 30_000, True, (run,))
    task = ReadTask(plan, (run,), {source: "lines"}, order or {})
    asked = SourceOptions(TOPICS, ("lines",), "q", tracked_when=not_debug, ledger=object(), **options)
    for batch in read_task.read(task, asked):
        found.values += batch.column("value").to_pylist()
    return found


def test_a_record_for_which_tracked_when_raises_fails_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is tracked, so that it comes again, and is a dead letter in the end; no bolt sees it."""
    found = read(monkeypatch, b"a", None, None, b"debug", b"b")
    assert found.values == [b"a", b"debug", b"b"]
    [(cause, roots)] = found.failed.items()
    assert roots == [1, 2]
    assert (cause.operator, cause.error) == ("lines", "TypeError")
    assert cause.message.startswith("tracked_when: ")
    assert found.report.untracked.tolist() == [3]


def test_a_record_for_which_tracked_when_raises_holds_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(monkeypatch, b"a", None, b"debug", b"b", order={SOURCE: LineUp("key")})
    assert found.values == [b"a", b"debug"]
    assert [(cause.error, roots) for cause, roots in found.failed.items()] == [
        ("TypeError", [1]),
        (HELD, [3]),
    ]
    assert found.report.untracked.tolist() == [2]


def test_what_waits_already_is_held_before_its_predicate_fails_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting costs it nothing; failing costs an attempt."""
    line_up = LineUp("partition", {0: 0})
    found = read(monkeypatch, b"a", None, b"debug", order={SOURCE: line_up})
    assert found.values == [b"a", b"debug"]
    assert found.failed == {Cause("lines", HELD, "waits for lines/0@0"): [1]}


def test_copies_are_reported_with_their_first_emissions_and_other_records_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copies = copies_source(SOURCE)
    places, wall_ms = decode(encode(read(monkeypatch, b"a", None, b"b", source=copies).report)).firsts
    assert (places.sources.tolist(), places.positions.tolist()) == ([copies] * 2, [0, 2])
    assert wall_ms.tolist() == [1_000, 1_002]
    assert len(read(monkeypatch, b"a", b"b").report.firsts.wall_ms) == 0


def test_sampled_traces_are_reported_where_the_driver_writes_spans_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = b"a", b"b", b"c", b"d"
    places, ids = decode(encode(read(monkeypatch, *values, traced=True).report)).traces
    assert (places.sources.tolist(), places.positions.tolist()) == ([SOURCE], [1])
    assert ids.astype("<i8").tobytes().hex() == f"{7:032x}{5:016x}"
    assert len(read(monkeypatch, *values).report.traces.ids) == 0
    monkeypatch.setattr(read_task, "TRACED_MAX", 0)
    assert len(read(monkeypatch, *values, traced=True).report.traces.ids) == 0


def test_tracked_when_is_not_asked_where_nothing_is_tracked(monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(monkeypatch, b"a", None, b"debug", tracked=False)
    assert found.values == [b"a", None, b"debug"]
    assert found.reports == [None]
