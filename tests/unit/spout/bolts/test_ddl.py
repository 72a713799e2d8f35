"""What can be read of an output without Spark: its fields, and what is wrong with it for sure."""

from __future__ import annotations

from typing import Any

import pytest

import spout
from acker.errors import UsageError
from spout.bolts.ddl import field_names
from spout.builder.topology import TopologyBuilder


@pytest.mark.parametrize(
    ("output", "names"),
    [
        ("word string", ["word"]), (" a\n int ,\n b STRING NOT NULL\n", ["a", "b"]),
        ("a: int, b: array<int>", ["a", "b"]),
        ("m map<string,array<decimal(3,1)>> not null comment 'x, y)'", ["m"]),
        ("`a b` int, `c``d` int", ["a b", "c`d"]),
        ("s struct<x int not null comment 'a,b', `y z`: string>", ["s"]),
        ("struct<a: int, b: int>", ["a", "b"]),
        ("i interval day to second, j interval hour", ["i", "j"]), ("t timestamp without time zone", ["t"]),
        ("t time(6), v variant, n void, d dec(5, 2)", ["t", "v", "n", "d"]), ("s struct<>", ["s"]),
        ("timestamp timestamp_ntz, select int", ["timestamp", "select"]),
    ],
)  # fmt: skip
def test_the_names_of_an_output_are_read(output: str, names: list[str]) -> None:
    assert field_names("it", output) == names


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("", "each once, in the class"), ("  ", "each once, in the class"), (None, "a text in Spark's DDL"),
        (7, "a text in Spark's DDL"), (["a int"], "a text in Spark's DDL"), ("word", "'word' has no type"),
        ("word string,", "a field is empty"),
        ("a strin", "the type 'strin', which is none"), ("a int b int", "has 'b int' behind its type"),
        ("a array", "as array<int>"),
        ("a array<strin>", "'strin', which is none"), ("a map<string>", "map<string, int>"),
        ("a array<int", "a > is missing"),
        ("a int)", "a ) closes nothing"), ("`a int", "is not closed"), ("a varchar(5)", "declare string"),
        ("a char(3)", "declare string"),
        ("a interval", "declare interval day to second"), ("a interval month", "declare int"),
        ("a string collate x", "declare string"),
        ("a geometry(4326)", "declare binary"), ("a int, a string", "each once"),
        ("_task int", "none _task"), ("_To int", "none _task"),
        ("_windhover_x int", "none _task"), ("a struct<x: int, x: int>", "names each of its fields once"),
    ],
)  # fmt: skip
def test_what_is_wrong_for_sure_is_refused_without_spark(output: Any, says: str) -> None:
    """O1102: with the bolt, the text and a cure."""
    with pytest.raises(UsageError, match="bolt 'it': output = ") as refused:
        field_names("it", output)
    assert says in str(refused.value)


class Nothing(spout.BasicBolt):
    """Says no output."""

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit nothing."""


class Declares(Nothing):
    """Declares a stream that cannot be read."""

    def declare(self, declarer: spout.OutputDeclarer) -> None:
        """Declare two."""
        declarer.declare("word string")
        declarer.declare("word strin", stream="odd")


class Ends(Nothing):
    """Declares that it emits nothing."""

    def declare(self, declarer: spout.OutputDeclarer) -> None:
        """Declare none."""


class ByKey(spout.KeyedBolt):
    """Says no output."""

    def execute(self, key: Any, held: Any, collector: spout.KeyedCollector) -> None:
        """Hold."""


@pytest.mark.parametrize("bolt", [Nothing(), Declares(), ByKey()])
def test_a_topology_refuses_such_a_bolt_when_it_is_set(bolt: Any) -> None:
    """O1102, O1103: each record failed, or the query ended at its first batch."""
    builder = TopologyBuilder()
    with pytest.raises(UsageError, match=r"bolt 'it': output = '.*'"):
        builder.set_bolt("it", bolt)
    builder.set_bolt("it", Ends())


@pytest.mark.parametrize("attach", [spout.bolt, lambda bolt, name: spout.keyed(bolt, by="key", name=name)])
def test_so_does_a_data_frame_before_there_is_a_session(attach: Any) -> None:
    """O1103."""
    bolt = Nothing() if attach is spout.bolt else ByKey()
    with pytest.raises(UsageError, match="bolt 'it': output = ''; name fields and types"):
        attach(bolt, name="it")
