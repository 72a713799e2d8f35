"""Exceptions that are hostile to whoever looks at them, in each form of a bolt: one record's trouble only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import spout
from acker.wire.causes import TEXT_BYTES_MAX
from spout.bolts.bolts import AnyBolt
from spout.bolts.hooks import TaskHook
from spout.bolts.keyed_bolt import KeyedBolt, KeyedCollector, KeyedTuple
from spout.execution.collect import collect
from spout.held.keyed_exit import REPORT
from spout.held.keyed_rows import TUPLE, KeyedTask
from spout.tuples.columns import ANCHOR
from spout.tuples.failures import Cause
from spout.tuples.poison import WORKER_DIED
from spout.tuples.rows import tuple_of
from spout.tuples.tuple import Tuple
from tests.support.fake_state import FakeState
from tests.support.worlds.topology_world import ran

BAD = b"bad"


class Raising:
    """An object whose text, and whose representation, raise."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class Ending:
    """An object whose text ends its process, as by a panic of a library in Rust."""

    def __init__(self, error: type[BaseException]) -> None:
        self._error = error

    def __str__(self) -> str:
        raise self._error("no text")

    __repr__ = __str__


class OddMeta(type):
    """A class of classes that do not say what they are called."""

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise ValueError("no name")


class Nameless(Exception, metaclass=OddMeta):
    """An exception whose class has no name."""


class Posing(Exception):
    """An exception that does not say of which class it is."""

    @property
    def __class__(self) -> Any:
        raise ValueError("no class")

    @__class__.setter
    def __class__(self, value: Any) -> None: ...


class PosingBadly(Exception):
    """An exception that ends its process when it is to say of which class it is."""

    @property
    def __class__(self) -> Any:
        raise Panic("no class")

    @__class__.setter
    def __class__(self, value: Any) -> None: ...


class Unpicklable(Exception):
    """An exception that no other process can have."""

    def __reduce__(self) -> Any:
        raise ValueError("no pickle")


class EndingPickle(Exception):
    """An exception that ends its process when it is to be sent to another one."""

    def __reduce__(self) -> Any:
        raise Panic("no pickle")


class Panic(BaseException):
    """As PyO3 derives the panic of a library in Rust."""


def chained() -> Exception:
    """Return an error that is its own cause."""
    first, second = ValueError("first"), ValueError("second")
    first.__cause__ = second
    second.__cause__ = first
    return first


ERRORS: dict[str, Callable[[], BaseException]] = {
    "a text that raises, of a TypeError": lambda: TypeError(Raising()),
    "a text that raises, of a ValueError": lambda: ValueError(Raising()),
    "a text that raises, of a KeyError": lambda: KeyError(Raising()),
    "a text that raises, of a note": lambda: _noted(ValueError("x"), "n" * 100_000),
    "a text that panics": lambda: ValueError(Ending(Panic)),
    "a text that is cancelled": lambda: ValueError(Ending(asyncio.CancelledError)),
    "a panic whose text panics": lambda: Panic(Ending(Panic)),
    "a group of texts that panic": lambda: ExceptionGroup("several", [TypeError(Ending(Panic))]),
    "a text of 10 MB": lambda: ValueError("é" * 5_000_000),
    "a text of surrogates and NUL": lambda: ValueError("\ud800\x00\udfff"),
    "no pickle": lambda: Unpicklable("x"),
    "no pickle, but a panic": lambda: EndingPickle("x"),
    "no class name": Nameless,
    "no class": Posing,
    "no class, but a panic": PosingBadly,
    "a hostile class name": lambda: type("a\n\x1b[2J`rm`\u202e(", (Exception,), {})("x"),
    "a class name of 1 MB": lambda: type("N" * 1_000_000, (Exception,), {})("x"),
    "its own cause": chained,
    "a group": lambda: ExceptionGroup("several", [ValueError("a"), TypeError(Raising())]),
    "MemoryError": MemoryError,
    "RecursionError": lambda: RecursionError("maximum recursion depth exceeded"),
    "StopIteration": lambda: StopIteration(7),
    "StopAsyncIteration": StopAsyncIteration,
    "GeneratorExit": GeneratorExit,
    "SystemExit": lambda: SystemExit(3),
    "SystemExit of nothing": SystemExit,
    "SystemExit of a text": lambda: SystemExit("usage: leaves FILE"),
    "KeyboardInterrupt": KeyboardInterrupt,
    "CancelledError": asyncio.CancelledError,
    "a panic": lambda: Panic("index out of bounds"),
}


def _is_exception(error: BaseException) -> bool:
    return issubclass(type(error), Exception)


def _noted(error: Exception, note: str) -> Exception:
    error.add_note(note)
    return error


def word_of(received: Any) -> bytes:
    """Return the value of a tuple."""
    value: bytes = received["value"]
    return value


class Rows(spout.BasicBolt):
    """Raises for the bad record."""

    output = "value binary"

    def __init__(self, error: str) -> None:
        self.error = error

    def execute(self, tuple: Tuple, collector: spout.BasicCollector) -> None:
        """Emit, and raise."""
        collector.emit((word_of(tuple),))
        if word_of(tuple) == BAD:
            raise ERRORS[self.error]()


class ByHand(spout.Bolt):
    """The same by hand."""

    output = "value binary"

    def __init__(self, error: str) -> None:
        self.error = error

    def prepare(self, context: spout.BoltContext, collector: spout.OutputCollector) -> None:
        """Keep the collector."""
        self.collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Raise, or hand on."""
        if word_of(tuple) == BAD:
            raise ERRORS[self.error]()
        self.collector.emit((word_of(tuple),), anchors=tuple)
        self.collector.ack(tuple)


class FailsByHand(ByHand):
    """Fails the bad record with the exception, and raises nothing."""

    def execute(self, tuple: Tuple) -> None:
        """Fail, or hand on."""
        if word_of(tuple) == BAD:
            self.collector.fail(tuple, ERRORS[self.error]())
        else:
            self.collector.emit((word_of(tuple),), anchors=tuple)
            self.collector.ack(tuple)


class Columns(spout.ArrowBolt):
    """Fails the bad row with the exception."""

    output = "value binary"
    fields: ClassVar[tuple[str, ...] | None] = ("value",)

    def __init__(self, error: str) -> None:
        self.error = error

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Emit all but the bad one."""
        values = batch.column("value").to_pylist()
        good = [row for row, value in enumerate(values) if value != BAD]
        for row, value in enumerate(values):
            if value == BAD:
                collector.fail(row, ERRORS[self.error]())
        collector.emit([pa.array([values[row] for row in good], pa.binary())], np.array(good, np.int64))


class RaisesForColumns(Columns):
    """Raises for a batch with the bad row."""

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Raise, or emit all."""
        if BAD in batch.column("value").to_pylist():
            raise ERRORS[self.error]()
        super().execute(batch, collector)


class ByKey(KeyedBolt):
    """Raises for the bad key, in `execute` or by `fail`."""

    output = "value binary"

    def __init__(self, error: str, way: str) -> None:
        self.error, self.way = error, way

    def execute(self, key: Any, held: Sequence[KeyedTuple], collector: KeyedCollector) -> None:
        """Emit the key, and raise."""
        collector.emit(key)
        if key != (BAD,):
            collector.ack(*held)
        elif self.way == "raises":
            raise ERRORS[self.error]()
        else:
            collector.fail(held[0], ERRORS[self.error]())


FORMS: dict[str, type[Any]] = {"rows": Rows, "by hand": ByHand, "fails": FailsByHand, "columns": Columns}
LINES = [b"a", BAD, b"b", b"c"]
WAYS = {
    "rows": ("rows", []),
    "watched": ("rows", [TaskHook()]),
    "topology": ("topology", []),
    "child": ("child", []),
}
"""Where a bolt runs, and the hooks that watch it."""

ELSEWHERE = (
    "no pickle", "no pickle, but a panic", "no class", "MemoryError", "SystemExit", "a panic",
    "a text that panics",
)  # fmt: skip
"""Tried in a topology and in a child, too, which take their time."""

EXCEPTIONS = [name for name, make in ERRORS.items() if _is_exception(make())]
ENDS = [name for name in ERRORS if name not in EXCEPTIONS]
each_way = pytest.mark.parametrize(
    ("error", "way"),
    [(error, way) for error in ERRORS for way in WAYS if way in ("rows", "watched") or error in ELSEWHERE],
)


def check_cause(cause: Cause) -> None:
    """See that a cause can be published."""
    assert all(len(text.encode()) <= TEXT_BYTES_MAX for text in cause)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@each_way
def test_it_fails_its_record_alone(error: str, form: Callable[[str], AnyBolt], way: str) -> None:
    """O813: also by what ends a process otherwise, as `sys.exit` in a library does."""
    rows: list[Any] = []
    where, hooks = WAYS[way]
    failed = ran(form(error), LINES, hooks, where, rows)
    assert list(failed) == [1]
    assert [row[0] for row in rows] == [line for line in LINES if line != BAD]
    check_cause(failed[1])


@pytest.mark.parametrize("way", ["rows", "watched"])
@pytest.mark.parametrize("error", EXCEPTIONS)
def test_it_fails_the_rows_that_its_columns_bolt_was_called_for(error: str, way: str) -> None:
    """O813."""
    where, hooks = WAYS[way]
    failed = ran(RaisesForColumns(error), LINES, hooks, where)
    assert sorted(failed) == list(range(len(LINES)))
    check_cause(failed[1])


@pytest.mark.parametrize("error", ENDS)
def test_what_ends_the_process_of_a_columns_bolt_fails_one_row(error: str) -> None:
    """O813: in a child it is called for parts of its rows, down to this one."""
    rows: list[Any] = []
    failed = ran(RaisesForColumns(error), LINES, [], "child", rows)
    assert {row: cause.error for row, cause in failed.items()} == {1: WORKER_DIED}
    assert [row[0] for row in rows] == [line for line in LINES if line != BAD]


@pytest.mark.parametrize("way", ["raises", "fails"])
@pytest.mark.parametrize("error", ERRORS)
def test_it_fails_what_its_key_holds(error: str, way: str) -> None:
    """O813: a keyed bolt is not isolated, so `sys.exit` in it ended the query at each start."""
    schema = pa.schema([("value", pa.binary())])
    task = KeyedTask("it", ByKey(error, way), schema, tracked=True, key_paths={TUPLE: [("value",)]})
    for number, line in enumerate(LINES):
        anchor = {"source": 1, "position": number, "edge": 7}
        part = pd.DataFrame({TUPLE: [{"value": line}], ANCHOR: [anchor]})
        frames = list(task((line,), [part], FakeState()))  # type: ignore[arg-type]  # a stand-in
        reported = [row for frame in frames for row in frame.to_dict("records")]
        causes = [row for row in reported if str(row[REPORT]).startswith('["it"')]
        assert [row[ANCHOR][0]["position"] for row in causes] == ([number] if line == BAD else [])


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
@pytest.mark.parametrize("form", [Rows, ByHand, RaisesForColumns])
def test_what_ends_a_process_ends_it_where_nothing_is_tracked(
    form: Callable[[str], AnyBolt], raised: type[BaseException]
) -> None:
    """O814: a test of a bolt that somebody interrupts, too."""
    with pytest.raises(raised):
        collect(form(raised.__name__), tuple_of({"value": BAD}))
