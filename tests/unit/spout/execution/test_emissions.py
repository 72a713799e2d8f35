"""What may be emitted: values in the order of the fields or by their names; all else is refused by name."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import spout
from acker.errors import TupleError
from acker.wire.causes import error_class, without_code_line
from spout.bolts.collectors import BasicCollector
from spout.bolts.hooks import TaskHook
from spout.bolts.keyed_bolt import KeyedTuple
from spout.execution.stage_run import StageRun
from spout.held.keyed_rows import KeyedTask
from spout.topology.chain import Chain, Step
from spout.tuples.messages import MessageRows
from spout.tuples.tuple import Tuple
from tests.support.worlds.topology_world import SOURCE, ran, record, schema_of

SCHEMA = schema_of("it", "word string, n int")


class Pair(NamedTuple):
    """A row with names."""

    word: str
    n: Any


class Address:
    """Shows where it lies, which differs from process to process."""


def emission(line: str) -> Any:
    """Return what a line says."""
    return {
        "mapping": {"n": 1, "word": line},
        "missing": {"word": line},
        "unknown": {"word": line, "n": 1, "m": 2},
        "set": {line, 1},
        "generator": (each for each in (line, 1)),
        "text": "ab",
        "bytes": b"ab",
        "null": None,
        "named": Pair(line, 1),
        "list": [line, 1],
        "value": {"word": line, "n": "x" * 1_000},
        "object": (Address(), 1),
    }.get(line, (line, 1))


class Emits(spout.BasicBolt):
    """Emits a row that fits, then what a line says."""

    output = "word string, n int"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit both."""
        collector.emit(("first", 0))
        collector.emit(emission(tuple["value"].decode()))


class EmitsByHand(spout.Bolt):
    """The same, anchored and acked by hand."""

    output = "word string, n int"

    def prepare(self, context: spout.BoltContext, collector: spout.OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Emit both, and ack."""
        self._collector.emit(("first", 0), anchors=tuple)
        self._collector.emit(emission(tuple["value"].decode()), anchors=tuple)
        self._collector.ack(tuple)


FIELDS = "whose fields are word, n"
SAYS = {
    "missing": f"bolt 'it' emitted a mapping without n, {FIELDS}",
    "unknown": f"bolt 'it' emitted a mapping with the unknown 'm', {FIELDS}",
    "set": f", a set, which has no order; emit a tuple of its values, {FIELDS}",
    "generator": "bolt 'it' emitted <generator object emission.<locals>.<genexpr>",
    "text": f"bolt 'it' emitted 'ab' for a row; emit a tuple of its values, {FIELDS}",
    "bytes": f"bolt 'it' emitted b'ab' for a row; emit a tuple of its values, {FIELDS}",
    "null": f"bolt 'it' emitted None for a row; emit a tuple of its values, {FIELDS}",
}
MISFITS = {
    "value": f"bolt 'it' emitted '{'x' * 59}, a str, as 'n', which is int: ",
    "object": "bolt 'it' emitted <test_emissions.Address object>, a Address, as 'word', which is",
}


@pytest.mark.parametrize("where", ["rows", "topology"])
@pytest.mark.parametrize(
    ("bolt", "hooks"),
    [(Emits(), []), (Emits(), [TaskHook()]), (EmitsByHand(), [])],
    ids=["basic", "watched", "rich"],
)
def test_values_go_by_field_name_or_in_their_order_and_nothing_else_does(
    bolt: Any, hooks: list[TaskHook], where: str
) -> None:
    """Keys of a mapping were written as values; what is refused fails its own tuple alone."""
    lines = ["mapping", "named", "list", *SAYS, *MISFITS, "fine"]
    rows: list[Any] = []
    found = ran(bolt, [line.encode() for line in lines], hooks, where, rows)
    kept = [row for row in rows if row[0] != "first"]
    assert kept == [("mapping", 1), ("named", 1), ("list", 1), ("fine", 1)]
    assert sorted(found) == list(range(3, 3 + len(SAYS) + len(MISFITS)))
    for line, says in SAYS.items():
        cause = found[lines.index(line)]
        assert (cause.operator, error_class(cause.error)) == ("it", "TupleError")
        assert says in cause.message
        assert " at 0x" not in cause.message
    for line, says in MISFITS.items():
        cause = found[lines.index(line)]
        assert cause.message.startswith(says)
        assert error_class(cause.error).startswith("Arrow"), "rules name the class that it has"


class ReplacesItsExecute(EmitsByHand):
    """Takes the first line for a header, and all others by another method."""

    def execute(self, tuple: Tuple) -> None:
        """Emit the header, and replace this method."""
        self._collector.emit(("header", 0), anchors=tuple)
        self._collector.ack(tuple)
        self.execute = self._execute_row  # type: ignore[method-assign]  # that is what is tested

    def _execute_row(self, tuple: Tuple) -> None:
        self._collector.emit(("row", 1), anchors=tuple)
        self._collector.ack(tuple)


@pytest.mark.parametrize("where", ["rows", "topology", "child"])
def test_a_bolt_that_replaces_its_execute_has_the_next_tuple_by_the_new_one(where: str) -> None:
    rows: list[Any] = []
    assert ran(ReplacesItsExecute(), [b"a", b"b", b"c"], [], where, rows) == {}
    assert rows == [("header", 0), ("row", 1), ("row", 1)]


class EmitsOne(spout.BasicBolt):
    """Fills one mapping again and again."""

    output = "word string, n int"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit it for each word."""
        row: dict[str, Any] = {}
        for n, word in enumerate(tuple["value"].decode().split()):
            row.update(word=word, n=n)
            collector.emit(row)


def test_a_mapping_that_was_changed_after_it_was_emitted_does_not_write_its_last_values_twice() -> None:
    rows: list[Any] = []
    found = ran(EmitsOne(), [b"one", b"a b"], [], "rows", rows)
    assert rows == [("one", 0)]
    assert "bolt 'it' emitted one dict 2 times, which may have changed in between" in found[1].message
    for hooks, where in (([], "topology"), ([TaskHook()], "rows")):
        rows.clear()
        assert ran(EmitsOne(), [b"a b"], list(hooks), where, rows) == {}
        assert rows == [("a", 0), ("b", 1)]


class Columns(spout.ArrowBolt):
    """Emits columns by name."""

    output = "word string, n int"

    def __init__(self, n: str = "n", kind: str = "int") -> None:
        """Call the second one so."""
        self._n = n
        self._kind = kind

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Emit every row."""
        rows = np.arange(batch.num_rows)
        n = pa.array(rows) if self._kind == "int" else pa.array(["x"] * len(rows))
        collector.emit({self._n: n, "word": batch.column("value").cast(pa.string())}, rows)


@pytest.mark.parametrize("where", ["rows", "topology"])
def test_columns_go_by_field_name_too(where: str) -> None:
    rows: list[Any] = []
    assert ran(Columns(), [b"a", b"b"], [], where, rows) == {}
    assert rows == [("a", 0), ("b", 1)]
    found = ran(Columns("m"), [b"a"], [], where)
    text = f"bolt 'it' emitted a mapping without n and with the unknown 'm', {FIELDS}"
    assert without_code_line(found[0].message)[0] == text
    found = ran(Columns(kind="text"), [b"a"], [], where)
    assert found[0].message.startswith("bolt 'it' emitted ")
    assert "as 'n', which is int" in found[0].message


def test_untracked_a_value_that_does_not_fit_is_named_too() -> None:
    run = StageRun(Chain((Step("it", Emits(), SCHEMA),)).stage, spout.BoltContext("it", 0, 1))
    for line, says in (("value", "a str, as 'n', which is int"), ("missing", "a mapping without n")):
        with pytest.raises((TupleError, pa.ArrowException), match=f"bolt 'it' emitted .*{says}"):
            run.feed(MessageRows([record(line.encode(), 0)], SOURCE, np.arange(1)), None)


class Mute(spout.KeyedBolt):
    """Emits nothing."""

    output = "word string, n int"

    def execute(self, key: Any, held: Any, collector: spout.KeyedCollector) -> None:
        """Hold on."""


def test_a_keyed_bolt_emits_by_field_name_too() -> None:
    task = KeyedTask("it", Mute(), SCHEMA)
    collector = spout.KeyedCollector("it", [KeyedTuple({}, None)], task._check_emission, ["word", "n"])
    collector.emit({"n": 1, "word": "a"})
    assert collector.emissions == [("a", 1)]
    refused: list[tuple[Any, str]] = [
        ({"word": "a"}, "a mapping without n"),
        ({"a", 1}, "a set, which has no order"),
        ("ab", "for a row"),
        (("a", "x"), "'x', a str, as 'n', which is int"),
    ]
    for wrong, says in refused:
        with pytest.raises(TupleError, match=f"bolt 'it' emitted .*{says}"):
            collector.emit(wrong)
    by_hand = spout.KeyedCollector("it", [])
    by_hand.emit({"n": 1, "word": "a"})
    assert by_hand.emissions == [{"n": 1, "word": "a"}], "where the fields are unknown, nothing is guessed"
