"""A read task over several partitions, generations and copies: positions, indices, lines, columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

import spout
from acker.errors import Damaged
from acker.identity import copies_source, position_at, source_of
from acker.kafka.port import DamagedRun
from acker.wire.causes import DAMAGED, HELD
from acker.wire.events import SourceRun
from replay.records.headers import ORIGIN
from spout.planning.order import LineUp
from spout.planning.plan import BatchPlan, ReadTask
from spout.publishing.delayed import HighestTime
from spout.publishing.fold import TaskReport
from spout.streaming import read_task
from spout.streaming.consume import Share
from spout.streaming.options import SealedStage, SourceOptions
from spout.topology.chain import Chain, Step
from spout.tuples.anchors import ORDINAL_BITS, AnchorForm
from spout.tuples.columns import ANCHOR, SOURCE_COLUMNS
from spout.tuples.counts import Counted, What
from spout.tuples.messages import SPOUT
from tests.support.outcomes import absent_of
from tests.support.reports import failures_in, untracked_in
from tests.support.worlds.topology_world import TOPICS

Places = dict[tuple[int, bool], "Log"]


@dataclass
class Log:
    """What a share of a partition has: records by offset, as key and value, and damage as [start, end).

    Attributes:
        origins: by the offset of a copy, the offset of its first emission.
    """

    records: Mapping[int, tuple[bytes, bytes | None]]
    damaged: tuple[tuple[int, int], ...] = ()
    origins: Mapping[int, int] = field(default_factory=dict)


class Reader:
    """Stands for `TaskReader`, over `logs` by partition and whether they are of copies."""

    logs: ClassVar[Places] = {}
    shares: ClassVar[list[Share]] = []

    def __init__(self, _kafka: object, shares: list[Share]) -> None:
        self.lost = 3
        self.damaged: list[DamagedRun] = []
        Reader.shares = shares

    def close(self) -> None:
        """Do nothing."""

    def chunks(self, share: Share) -> Iterator[list[Message]]:
        """Yield records two at a time; damage is noted before what lies behind it."""
        log = self.logs[share.partition, share.of_copies]
        damaged = list(log.damaged)
        chunk: list[Message] = []
        for offset in range(share.start, share.end):
            if damaged and offset == damaged[0][0]:
                if chunk:
                    yield chunk
                    chunk = []
                self.damaged.append(
                    DamagedRun("lines", share.partition, *damaged.pop(0), "its checksum is wrong")
                )
            if offset not in log.records:
                continue
            chunk.append(self._record(log, share, offset))
            if len(chunk) == 2:
                yield chunk
                chunk = []
        if chunk:
            yield chunk

    def _record(self, log: Log, share: Share, offset: int) -> Message:
        key, value = log.records[offset]
        headers = []
        if offset in log.origins:
            headers.append((ORIGIN, b"lines/%d@%d" % (share.partition, log.origins[offset])))
        return Message(
            topic="lines",
            partition=share.partition,
            offset=offset,
            key=key,
            value=value,
            timestamp=(TIMESTAMP_CREATE_TIME, 1_000 + offset),
            headers=headers,
        )


@dataclass
class Read:
    """What a task returned and reported."""

    batches: list[pa.RecordBatch]
    report: TaskReport | None

    @property
    def values(self) -> list[bytes]:
        """The values of the rows."""
        return [value for batch in self.batches for value in batch.column("value").to_pylist()]

    @property
    def sure_report(self) -> TaskReport:
        """The report, of a tracked task."""
        assert self.report is not None
        return self.report

    def failed(self, error: str) -> dict[str, list[int]]:
        """Return the indices of roots that failed by an error, by the cause's message."""
        return {
            cause.message: roots.tolist()
            for cause, roots in failures_in(self.sure_report)
            if cause.error == error
        }


def read(
    monkeypatch: pytest.MonkeyPatch,
    logs: Places,
    runs: list[SourceRun],
    order: Mapping[int, LineUp] | None = None,
    **options: Any,
) -> Read:
    """Let a task read runs of a batch, which has all of them."""
    reports: list[TaskReport | None] = []
    monkeypatch.setattr(read_task, "TaskReader", Reader)
    monkeypatch.setattr(Reader, "logs", logs)
    monkeypatch.setattr(read_task, "add_report", lambda _ledger, _stream, report: reports.append(report))
    plan = BatchPlan("g", "s", 1, 2, 7, 30_000, True, tuple(sorted(runs)))
    topics = {run.source: "lines" for run in runs}
    task = ReadTask(plan, tuple(runs), topics, order or {}, {"lines": "id-of-lines"})
    settings = SourceOptions(TOPICS, ("lines",), "q", ledger=object(), **options)
    batches = list(read_task.read(task, settings))
    [report] = reports
    return Read(batches, report)


def source(partition: int) -> int:
    return source_of(3, partition)


def run_of(of_source: int, start: int, end: int, generation: int = 0) -> SourceRun:
    return SourceRun(of_source, position_at(generation, start), position_at(generation, end))


def records(*offsets: int, key: bytes = b"k") -> dict[int, tuple[bytes, bytes | None]]:
    """Return records whose values are their offsets."""
    return {offset: (key, b"%d" % offset) for offset in offsets}


GENERATIONS = pytest.mark.parametrize("generation", [0, 2])


@GENERATIONS
def test_each_root_has_its_index_in_the_plan_whichever_partition_it_is_of(
    monkeypatch: pytest.MonkeyPatch, generation: int
) -> None:
    """Ranges begin anywhere, in any generation; a hole is absent at its own position."""
    logs = {
        (0, False): Log(records(5, 6, 8)),
        (1, False): Log(records(20, 23)),
    }
    runs = [run_of(source(1), 20, 25, generation), run_of(source(0), 5, 9, generation)]
    task = read(monkeypatch, logs, runs, anchored=True, columns=("value", "offset"))
    rows = [row for batch in task.batches for row in batch.to_pylist()]
    # the plan has partition 0 first: its four positions are 0 to 3
    assert {row["offset"]: row[ANCHOR] >> ORDINAL_BITS for row in rows} == {
        20: 4,
        23: 7,
        5: 0,
        6: 1,
        8: 3,
    }
    shift = position_at(generation, 0)
    absent = [(run.source, run.start - shift, run.end - shift) for run in absent_of(task.sure_report.missing)]
    assert absent == [(source(0), 7, 8), (source(1), 21, 23), (source(1), 24, 25)]
    assert Reader.shares == [Share("lines", 1, 20, 25), Share("lines", 0, 5, 9)]
    assert task.sure_report.missing.lost_count == 3
    counts = {counted.what: measure.tuples for counted, measure in task.sure_report.counts.items()}
    assert counts == {What.EMITTED: 5}


def test_rows_have_the_columns_that_are_read_and_anchors_where_somebody_needs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logs, runs = {(0, False): Log(records(5, 6))}, [run_of(source(0), 5, 7)]
    bare = read(monkeypatch, logs, runs).batches[0]
    assert bare.schema.names == list(SOURCE_COLUMNS)
    untracked = read(monkeypatch, logs, runs, anchored=True, tracked=False, columns=("offset",))
    assert untracked.batches[0].to_pylist() == [
        {"offset": 5, ANCHOR: None},
        {"offset": 6, ANCHOR: None},
    ]
    assert untracked.report is None
    wide = read(monkeypatch, logs, runs, anchored=True, root_form=AnchorForm.WIDE).batches[0]
    assert wide.column(ANCHOR).type == AnchorForm.WIDE.type
    anchors = wide.column(ANCHOR).to_pylist()
    assert len({str(anchor) for anchor in anchors}) == 2
    assert all(str(source(0)) in str(anchor) for anchor in anchors)


def test_without_a_ledger_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_task, "TaskReader", Reader)
    monkeypatch.setattr(Reader, "logs", {(0, False): Log(records(5))})
    reports: list[object] = []
    monkeypatch.setattr(read_task, "add_report", lambda *report: reports.append(report))
    run = run_of(source(0), 5, 6)
    plan = BatchPlan("g", "s", 1, 2, 7, 30_000, True, (run,))
    task = ReadTask(plan, (run,), {run.source: "lines"}, {})
    [batch] = read_task.read(task, SourceOptions(TOPICS, ("lines",), "q"))
    assert batch.num_rows == 1
    assert reports == []


# in order ---------------------------------------------------------------------------------------------------


@GENERATIONS
@pytest.mark.parametrize("by", ["key", "partition"])
def test_copies_come_by_their_origins_before_what_is_new_and_hold_what_is_behind_them(
    monkeypatch: pytest.MonkeyPatch, generation: int, by: str
) -> None:
    """Of a partition between two others; each names what it waits for by the offset of its origin."""
    copies = {7: (b"k", b"second"), 8: (b"k", b"bad"), 9: (b"k", b"last")}
    logs = {
        (0, False): Log(records(50, 51)),
        (0, True): Log({}),
        (1, False): Log(records(40, 42)),
        (1, True): Log(copies, origins={7: 22, 8: 21, 9: 30}),
        (2, False): Log(records(60)),
    }
    runs = [
        run_of(source(1), 40, 43, generation),
        run_of(source(0), 50, 52, generation),
        run_of(copies_source(source(1)), 7, 10, generation),
        run_of(copies_source(source(0)), 3, 4, generation),
        run_of(source(2), 60, 61, generation),
    ]
    order = {source(0): LineUp(by), source(1): LineUp(by)}
    steps = (Step("careful", Careful(), pa.schema([("value", pa.binary())])),)
    stage = SealedStage(Chain(steps, arriving_form=AnchorForm.PACKED, leaving_form=AnchorForm.NONE).stage)
    task = read(monkeypatch, logs, runs, order, sealed_stage=stage)
    assert task.values == [b"60", b"50", b"51"], "without an order first, then partition by partition"
    plan = BatchPlan("g", "s", 1, 2, 7, 30_000, True, tuple(sorted(runs)))
    index = plan.index()

    def index_of(of_source: int, offset: int) -> int:
        return int(index.of(of_source, pa.array([position_at(generation, offset)]).to_numpy())[0])

    copies_of = copies_source(source(1))
    assert task.failed(HELD) == {
        "waits for lines/1@21": [
            *sorted([index_of(copies_of, 7), index_of(copies_of, 9)]),
            *sorted([index_of(source(1), 40), index_of(source(1), 42)]),
        ]
    }
    [(bad, roots)] = [(cause, roots) for cause, roots in failures_in(task.sure_report) if cause.error != HELD]
    assert (bad.operator, roots.tolist()) == ("careful", [index_of(copies_of, 8)])
    # the reader fetches the next share ahead: in the order in which they are read
    assert [(share.partition, share.of_copies) for share in Reader.shares] == [
        (2, False), (0, True), (0, False), (1, True), (1, False),
    ]  # fmt: skip
    lined_records = task.sure_report.lined_records
    assert [lined.partition_name for lined in lined_records] == ["lines/0", "lines/1"]
    # the gate lets the copies pass, behind one of which the bolt blocks others, and no new record
    counts = task.sure_report.counts
    assert counts[Counted(What.EMITTED, SPOUT.component, SPOUT)].tuples == 6
    assert counts[Counted(What.TRANSFERRED, SPOUT.component, SPOUT)].tuples == 6


class Careful(spout.BasicBolt):
    """Passes a value on; fails one that says so."""

    output = "value binary"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit it."""
        if tuple["value"] == b"bad":
            raise ValueError("bad")
        collector.emit((tuple["value"],))


@GENERATIONS
def test_damage_among_copies_stops_what_is_behind_any_origin(
    monkeypatch: pytest.MonkeyPatch, generation: int
) -> None:
    """A copy that cannot be read may have had any origin; a new record only its own."""
    logs = {
        (0, False): Log(records(40, 41)),
        (0, True): Log({7: (b"k", b"copy"), 9: (b"k", b"copy")}, ((8, 9),), {7: 5, 9: 4}),
        (1, False): Log(records(60, 61, 64), ((62, 64),)),
        (1, True): Log({}),
    }
    runs = [
        run_of(source(0), 40, 42, generation),
        run_of(copies_source(source(0)), 7, 10, generation),
        run_of(source(1), 60, 65, generation),
    ]
    order = {source(0): LineUp("key"), source(1): LineUp("key")}
    task = read(monkeypatch, logs, runs, order)
    assert task.values == [b"60", b"61"]
    # the plan's order: partition 0 (0, 1), partition 1 (2 to 6), the copies (7 to 9)
    assert task.failed(DAMAGED) == {
        "offsets 62 to 63 of lines/1 cannot be read: its checksum is wrong": [4, 5],
        "offset 8 of lines/0 cannot be read: its checksum is wrong": [8],
    }
    assert {message: sorted(roots) for message, roots in task.failed(HELD).items()} == {
        "waits for lines/0@8, which cannot be read": [0, 1, 7, 9],
        "waits for lines/1@62, which cannot be read": [6],
    }
    assert absent_of(task.sure_report.missing) == ()
    skipped = read(monkeypatch, logs, runs, order, fail_on_data_loss=False)
    assert len(skipped.values) == 7
    assert Reader.shares[0].skips_loss
    assert not task.failed("")
    with pytest.raises(Damaged, match=r"lines/1@62"):
        read(monkeypatch, logs, runs[2:], tracked=False)


def test_damage_at_the_end_of_a_range_fails_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record comes behind it in this task."""
    logs = {
        (0, False): Log(records(5), ((6, 8),)),
        (1, False): Log({}, ((20, 22),)),
    }
    runs = [run_of(source(0), 5, 8), run_of(source(1), 20, 22)]
    task = read(monkeypatch, logs, runs)
    assert task.values == [b"5"]
    assert sorted(root for roots in task.failed(DAMAGED).values() for root in roots) == [1, 2, 3, 4]
    assert absent_of(task.sure_report.missing) == ()


# predicates and times ---------------------------------------------------------------------------------------


def tracks(received: spout.Tuple) -> bool:
    """Track even numbers; break on 6."""
    number = int(received["value"])
    if number == 6:
        raise ValueError("six")
    return number % 2 == 0


@pytest.mark.parametrize("order", [{}, {source(0): LineUp("partition")}], ids=["unordered", "in_order"])
def test_best_effort_is_of_single_records_in_each_chunk(
    monkeypatch: pytest.MonkeyPatch, order: Mapping[int, LineUp]
) -> None:
    """In order, it is not held either, though the record before it fails."""
    logs = {(0, False): Log(records(*range(3, 10))), (0, True): Log({})}
    task = read(monkeypatch, logs, [run_of(source(0), 3, 10)], order, tracked_when=tracks)
    assert untracked_in(task.sure_report) == [0, 2, 4, 6]
    [(cause, roots)] = [
        (cause, roots) for cause, roots in failures_in(task.sure_report) if cause.error != HELD
    ]
    assert (cause.operator, cause.error, roots.tolist()) == ("lines", "ValueError", [3])
    assert cause.message.startswith("tracked_when: six")
    held = [8] if order else []
    expected = [number for number in range(3, 10) if number != 6 and number not in held]
    assert task.values == [b"%d" % number for number in expected]
    assert task.failed(HELD) == ({"waits for lines/0@6": [5]} if order else {})
    assert [raised.error for raised in task.sure_report.raised] == ["ValueError"]


class TwoTimes(spout.BasicBolt):
    """Emits two columns of times; the first one never has any."""

    output = pa.schema([
        ("value", pa.binary()),
        ("none", pa.timestamp("s", "UTC")),
        ("fine", pa.timestamp("ns", "UTC")),
        ("coarse", pa.timestamp("s", "UTC")),
    ])  # fmt: skip

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit the value as both."""
        number = int(tuple["value"])
        times = pa.array([number * 1_000_000_000], pa.timestamp("ns", "UTC"))[0].as_py()
        collector.emit((tuple["value"], None, times, times))


def test_each_column_of_times_has_its_highest_one_in_ms_and_the_first_records_that_may_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever its unit; a column without a time hides no other one."""
    stage = Chain((Step("times", TwoTimes(), TwoTimes.output),), arriving_form=AnchorForm.PACKED).stage
    values = (5, 9, 9, 7, 3, 1)
    logs = {(0, False): Log({20 + number: (b"k", b"%d" % value) for number, value in enumerate(values)})}
    task = read(monkeypatch, logs, [run_of(source(0), 20, 26)], sealed_stage=SealedStage(stage))
    both = SourceRun(source(0), 20, 22)
    assert task.sure_report.highest_times == (
        HighestTime("fine", 9_000, both),
        HighestTime("coarse", 9_000, both),
    )
    bare = read(monkeypatch, logs, [run_of(source(0), 20, 26)])
    assert bare.sure_report.highest_times == (HighestTime("timestamp", 1_025, SourceRun(source(0), 25, 26)),)
