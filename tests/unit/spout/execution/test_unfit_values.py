"""A value that its field would bend fails its own record, in each form of a bolt, and is named."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import spout
from acker.errors import BoltStopped
from acker.wire.causes import without_code_line
from spout.bolts.hooks import BoltContext, TaskHook
from spout.execution.stage_run import StageRun
from spout.topology.chain import Chain, Step
from spout.tuples.anchors import ORDINAL_BITS, AnchorForm, Anchors
from spout.tuples.messages import MessageRows
from tests.support.reports import failures_in
from tests.support.worlds.topology_world import SOURCE, ran, record, schema_of

VALUES: dict[str, Any] = {
    "fits": 7, "whole": 7.0, "half": 1.5, "below zero": -0.9, "decimal": Decimal("1.5"), "large": 2**31,
    "text": "one",
}  # fmt: skip
FITS = {"fits", "whole"}
LINES = ["fits", "half", "whole", "below zero", "fits", "decimal", "large", "text", "fits"]


class ByRow(spout.BasicBolt):
    """Emits a value for each line, and before it one that fits."""

    output = "line string, n int"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit both."""
        line = tuple["value"].decode()
        collector.emit((line, 0))
        collector.emit((line, VALUES[line]))


class ByHand(spout.Bolt):
    """The same, by hand."""

    output = "line string, n int"

    def prepare(self, context: spout.BoltContext, collector: spout.OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: spout.Tuple) -> None:
        """Emit both."""
        line = tuple["value"].decode()
        self._collector.emit((line, 0), anchors=tuple)
        self._collector.emit((line, VALUES[line]), anchors=tuple)
        self._collector.ack(tuple)


@pytest.mark.parametrize("where", ["rows", "child", "topology"])
@pytest.mark.parametrize("hooks", [0, 1])
@pytest.mark.parametrize("bolt", [ByRow(), ByHand()])
def test_a_row_with_a_value_that_does_not_fit_fails_its_record(bolt: Any, hooks: int, where: str) -> None:
    """O806, D1404: 1.5 became 1, and -0.9 became 0; the place is the bolt's code, which had returned."""
    rows: list[Any] = []
    failed = ran(bolt, [line.encode() for line in LINES], [TaskHook()] * hooks, where, rows)
    assert [LINES[root] for root in sorted(failed)] == [line for line in LINES if line not in FITS]
    for root, cause in failed.items():
        assert cause.message.startswith(f"bolt 'it' emitted {VALUES[LINES[root]]!r}, a "), cause
        assert "as 'n', which is int: " in cause.message
        assert without_code_line(cause.message)[1].startswith(" (test_unfit_values.py:")
    kept = [(line, value) for line in LINES if line in FITS for value in (0, 7)]
    assert sorted(row for row in rows if row[0] in FITS) == sorted(kept)


class Panic(BaseException):
    """As PyO3 derives the panic of a library in Rust."""


class Untrue(Exception):
    """Has a truth of its own, which nobody may ask for."""

    def __bool__(self) -> bool:
        raise SystemExit("no truth")


class Ending:
    """A value that ends its process, whatever it is turned into."""

    def __int__(self) -> int:
        raise ENDS[0]("no number")

    def __repr__(self) -> str:
        raise ENDS[0]("no text")

    __len__ = __iter__ = __float__ = __index__ = __int__


class EndingRow(list[Any]):
    """A row that ends its process when its values are put in order."""

    def __len__(self) -> int:
        raise ENDS[0]("no size")

    def __iter__(self) -> Iterator[Any]:
        raise ENDS[0]("no values")


ENDS: list[type[BaseException]] = [Panic]
"""What they raise."""


class EmitsEnds(spout.BasicBolt):
    """Emits for each line a row that fits, and for the bad one what ends its process, too."""

    output = "line string, n int"

    def __init__(self, ending: str) -> None:
        self._ending = ending

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit both."""
        line = tuple["value"].decode()
        collector.emit((line, 0))
        if line == "bad":
            collector.emit(EndingRow() if self._ending == "row" else (line, Ending()))


@pytest.mark.parametrize("ends", [Panic, CancelledError, Untrue])
@pytest.mark.parametrize("where", ["rows", "child", "topology"])
@pytest.mark.parametrize("hooks", [0, 1])
@pytest.mark.parametrize("ending", ["value", "row"])
def test_a_value_that_ends_the_process_fails_its_record_alone(
    ending: str, hooks: int, where: str, ends: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """O813: bolts emit objects of libraries, which have code of their own."""
    monkeypatch.setitem(globals(), "ENDS", [ends])
    rows: list[Any] = []
    failed = ran(EmitsEnds(ending), [b"a", b"bad", b"b"], [TaskHook()] * hooks, where, rows)
    assert list(failed) == [1]
    assert sorted(row[0] for row in rows if row[0] != "bad") == ["a", "b"]


class Columns(spout.ArrowBolt):
    """Emits columns, and before them a row for each line that fits."""

    output = "line string, n int"
    first: int | None = 0

    def __init__(self, *columns: pa.Array) -> None:
        """Emit these, one after the other."""
        self._columns = columns

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Emit all."""
        lines = batch.column("value").cast(pa.string())
        collector.emit([lines, pa.array([self.first] * len(lines))], np.arange(len(lines)))
        row = 0
        for column in self._columns:
            parents = np.arange(row, row + len(column))
            collector.emit([lines.take(pa.array(parents)), column], parents)
            row += len(column)


@pytest.mark.parametrize("where", ["rows", "child", "topology"])
@pytest.mark.parametrize("hooks", [0, 1])
@pytest.mark.parametrize(
    ("columns", "bad"),
    [
        ([pa.array([7.0, 1.5, 7.0, 7.0, -0.9, 7.0, None, float("nan")])], {1, 4, 7}),
        ([pa.array([7, 2**31]), pa.array([Decimal("1.5")] * 3 + [Decimal("7.0")] * 3)], {1, 2, 3, 4}),
        ([pa.chunked_array([[7, 2**40], [], [7, 7, 2**40, 7, 7, 7]])], {1, 4}),
        ([pa.array(["7", "one", "7", "7", "7", "7", "", "7.5"])], {1, 6, 7}),
        ([pa.array([1.5] * 8)], set(range(8))),
        ([pa.array([7.0] * 8)], set()),
    ],
)  # fmt: skip
def test_a_column_with_such_values_fails_their_records_alone(
    columns: list[pa.Array], bad: set[int], hooks: int, where: str
) -> None:
    """O807, D1404: all records of the batch failed, of 1,000 healthy ones each."""
    rows: list[Any] = []
    lines = [b"%d" % number for number in range(8)]
    failed = ran(Columns(*columns), lines, [TaskHook()] * hooks, where, rows)
    assert failed.keys() == bad
    values = [value for column in columns for value in column.to_pylist()]
    for root, cause in failed.items():
        assert cause.message.startswith("bolt 'it' emitted "), cause
        assert "as 'n', which is int: " in cause.message
        assert str(values[root])[:3] in cause.message
        assert without_code_line(cause.message)[1].startswith(" (test_unfit_values.py:")
    assert {int(line) for line, _ in rows} == set(range(8)) - bad


FAR_US = 253_402_300_800_000_001
"""Behind the end of the year 9999, and no midnight."""


def _times(*micros: int) -> pa.Array:
    return pa.array(micros, pa.int64()).cast(pa.timestamp("us"))


def _large(unit_type: pa.DataType, count: int) -> pa.Array:
    return pa.array([0, count, 0], pa.int64()).cast(unit_type)


def _texts(*values: bytes) -> pa.Array:
    """Return a column of texts, as Spark has them, though one is no UTF-8."""
    stored = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(values), stored.buffers())


NO_FORM_IN_PYTHON = {
    "text": ("int", _texts(b"7", b"\xff", b"8"), "\ufffd"),
    "text for a time": ("timestamp_ntz", _texts(b"2026-01-01", b"\xff", b"2026-01-02"), "\ufffd"),
    "text for a decimal": ("decimal(9, 2)", _texts(b"7", b"\xff", b"8"), "\ufffd"),
    "text within a struct": (
        "struct<n: int>", pa.StructArray.from_arrays([_texts(b"7", b"\xff", b"8")], ["n"]), "\ufffd"
    ),
    "a far time for a date": ("date", _times(0, FAR_US, 0), "10000-01-01"),
    "seconds": ("timestamp_ntz", _large(pa.timestamp("s"), 1 << 62), "out of range"),
    "a duration": ("interval day to second", _large(pa.duration("s"), 1 << 60), str(1 << 60)),
    "a key of a map": (
        "map<int, int>",
        pa.MapArray.from_arrays([0, 1, 2, 3], _texts(b"7", b"\xff", b"8"), pa.array([1, 2, 3])), "\ufffd",
    ),
}  # fmt: skip
"""An output, a column whose second value does not fit it and has no form in Python, and how that is shown."""


@pytest.mark.parametrize("where", ["rows", "child", "topology"])
@pytest.mark.parametrize("hooks", [0, 1])
@pytest.mark.parametrize(("kind", "column", "shown"), NO_FORM_IN_PYTHON.values(), ids=NO_FORM_IN_PYTHON)
def test_a_value_that_python_has_no_form_of_fails_its_record_alone(
    kind: str, column: pa.Array, shown: str, hooks: int, where: str
) -> None:
    """O807: the error was to name the value, could not, and so failed all records of the batch."""
    rows: list[Any] = []
    bolt = Columns(column)
    bolt.output = f"line string, n {kind}"
    bolt.first = None
    failed = ran(bolt, [b"0", b"1", b"2"], [TaskHook()] * hooks, where, rows)
    assert failed.keys() == {1}
    assert failed[1].message.startswith("bolt 'it' emitted "), failed
    assert shown in failed[1].message.partition(" as 'n', which is ")[0]
    assert sorted(line for line, _ in rows) == ["0", "0", "2", "2"]


@pytest.mark.parametrize("hooks", [0, 1])
def test_a_column_is_passed_on_as_it_is_beside_a_value_that_python_has_no_form_of(hooks: int) -> None:
    """O807: where hooks watch, a column becomes rows; a null map became empty, and the others failed."""
    times = pa.array([FAR_US, 0, 1, 2], pa.int64()).cast(pa.timestamp("us"))
    no_map = pa.array([False, False, True, False])
    column = pa.MapArray.from_arrays([0, 1, 2, 2, 4], pa.array(["k", "l", "m", "n"]), times, mask=no_map)
    bolt = Columns(column)
    bolt.output = "line string, n map<string, timestamp_ntz>"
    bolt.first = None
    step = Step("it", bolt, schema_of("it", bolt.output), (TaskHook(),) * hooks)
    run = StageRun(Chain((step,), arriving_form=AnchorForm.PACKED).stage, BoltContext("it", 0, 1))
    messages = [record(b"%d" % number, number) for number in range(4)]
    anchors = Anchors(AnchorForm.PACKED, pa.array(np.arange(4) << ORDINAL_BITS))
    batches = [run.feed(MessageRows(messages, SOURCE, np.arange(4)), anchors), *run.finish()]
    assert list(failures_in(run.report())) == []
    passed = pa.concat_arrays([batch.column("n") for batch in batches])
    # in Arrow's own text, since Python has no form of one of them
    shown = [str(passed.slice(row, 1)) for row in range(len(column), len(passed))]
    assert shown == [str(column.slice(row, 1)) for row in range(len(column))]


def test_a_column_of_another_kind_fails_the_whole_batch() -> None:
    """There is no value of it that would fit."""
    failed = ran(Columns(pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * 2)), [b"0", b"1"], [], "rows")
    assert failed.keys() == {0, 1}
    assert "emitted timestamp[us, tz=UTC] as 'n', which is int" in failed[0].message


def untracked(bolt: Any, lines: list[bytes]) -> Iterator[Any]:
    """Let a bolt work on lines that nothing tracks."""
    run = StageRun(
        Chain((Step("it", bolt, schema_of("it", bolt.output)),)).stage, spout.BoltContext("it", 0, 1)
    )
    messages = [record(line, offset) for offset, line in enumerate(lines)]
    yield run.feed(MessageRows(messages, SOURCE, np.arange(len(lines))), None)


def test_untracked_such_a_value_ends_the_task() -> None:
    with pytest.raises(pa.ArrowInvalid, match=r"bolt 'it' emitted 1\.5 as 'n', which is int"):
        list(untracked(Columns(pa.array([7.0, 1.5])), [b"0", b"1"]))
    with pytest.raises(pa.ArrowInvalid, match=r"bolt 'it' emitted 1\.5, a float, as 'n', which is int"):
        list(untracked(ByRow(), [b"half"]))


class Stops(Columns):
    """Stops at what does not fit."""

    stops_on = (pa.ArrowException,)


def test_a_value_that_does_not_fit_is_no_exception_of_execute() -> None:
    """It fails its record even where the bolt stops on PyArrow's errors; a column of another kind is one."""
    assert ran(Stops(pa.array([7.0, 1.5])), [b"0", b"1"], [], "rows").keys() == {1}
    with pytest.raises(BoltStopped):
        ran(Stops(pa.array([datetime(2026, 1, 1)] * 2)), [b"0", b"1"], [], "rows")
