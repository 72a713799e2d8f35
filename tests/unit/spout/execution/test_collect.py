"""`spout.collect` runs a tuple through any form of bolt without Spark, and checks rows against `output`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import spout
from acker.errors import MessageIdUnknown, TupleError, UsageError


class Words(spout.BasicBolt):
    """Emits the words of a line; ``reject``, ``fail`` and ``raise`` do what they say."""

    output = "word string, size double"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit each word with its size."""
        for word in tuple["line"].split():
            if word == "reject":
                raise spout.RejectTuple("no word")
            if word == "fail":
                raise spout.FailTuple("not now")
            if word == "raise":
                raise LookupError("no such word")
            collector.emit((word, "big" if word == "unfit" else len(word)))


class WordsByHand(spout.Bolt):
    """The same by hand; ``open`` is left open, and ``last`` is said in cleanup."""

    output = Words.output

    def prepare(self, context: spout.BoltContext, collector: spout.OutputCollector) -> None:
        """Keep the collector."""
        self.collector = collector

    def execute(self, tuple: spout.Tuple) -> None:
        """Emit each word with its size, anchored."""
        words = tuple["line"].split()
        for word in words:
            if word == "reject":
                return self.collector.fail(tuple, spout.RejectTuple("no word"))
            if word == "fail":
                return self.collector.fail(tuple, "not now")
            if word == "raise":
                raise LookupError("no such word")
            self.collector.emit((word, "big" if word == "unfit" else len(word)), anchors=tuple)
        if "open" not in words:
            self.collector.ack(tuple)
        return None

    def cleanup(self) -> None:
        """Emit a last word."""
        self.collector.emit(("end", 3))


class WordsByColumn(spout.ArrowBolt):
    """The same by the column."""

    output = Words.output
    fields = ("line",)

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> None:
        """Emit each word with its size."""
        words = batch.column("line")[0].as_py().split()
        if "reject" in words:
            return collector.fail(0, spout.RejectTuple("no word"))
        if "fail" in words:
            return collector.fail(0, "not now")
        if "raise" in words:
            raise LookupError("no such word")
        if "open" in words:
            collector.leave_open(0)
        column = pa.array(words, pa.string())
        sizes: Any = pa.array(["big"] * len(words)) if "unfit" in words else pc.utf8_length(column)
        return collector.emit([column, sizes], pa.array([0] * len(words), pa.int64()))


class WordsOfKey(spout.KeyedBolt):
    """The words of all lines of a key."""

    output = Words.output

    def execute(self, key: tuple[Any, ...], held: Any, collector: spout.KeyedCollector) -> None:
        """Emit each word with its size."""
        for line in held:
            words = line["line"].split()
            if "reject" in words:
                collector.fail(line, spout.RejectTuple("no word"))
            elif "fail" in words:
                collector.fail(line, "not now")
            elif "raise" in words:
                raise LookupError("no such word")
            else:
                for word in words:
                    collector.emit((word, "big" if word == "unfit" else len(word)))
                if "open" not in words:
                    collector.ack(line)


FORMS = [Words, WordsByHand, WordsByColumn, WordsOfKey]


def line(text: str, **more: Any) -> spout.Tuple:
    return spout.tuple_of({"line": text, **more})


@pytest.fixture(params=FORMS, ids=["BasicBolt", "Bolt", "ArrowBolt", "KeyedBolt"])
def bolt(request: pytest.FixtureRequest) -> Any:
    return request.param()


def test_rows_are_as_the_output_says(bolt: Any) -> None:
    """D2112: an int that is emitted as double is a float, as it is behind Spark."""
    rows = spout.collect(bolt, line("the hawk"))
    assert rows[:2] == [("the", 3.0), ("hawk", 4.0)]
    assert all(type(size) is float for _word, size in rows)


def test_several_tuples_are_worked_on_in_order(bolt: Any) -> None:
    rows = spout.collect(bolt, line("the"), line("hawk waits"))
    assert [word for word, _size in rows][:3] == ["the", "hawk", "waits"]


def test_no_tuple_is_no_row(bolt: Any) -> None:
    assert spout.collect(bolt) == ([("end", 3.0)] if isinstance(bolt, WordsByHand) else [])


def test_a_row_that_does_not_fit_the_output_is_refused_with_value_and_field(bolt: Any) -> None:
    """D2113: it would fail its record as a dead letter; the test falls in its place."""
    with pytest.raises((TupleError, ValueError, TypeError), match=r"emitted '?big'?.* as 'size'.*double"):
        spout.collect(bolt, line("unfit"))


@pytest.mark.parametrize(
    ("word", "kind", "says"),
    [
        ("reject", spout.RejectTuple, "no word"),
        ("fail", spout.FailTuple, "not now"),
        ("raise", LookupError, "no such word"),
    ],
)
def test_what_fails_a_tuple_is_raised_in_the_test(
    bolt: Any, word: str, kind: type[Exception], says: str
) -> None:
    """D2114: by an exception, or by hand."""
    with pytest.raises(kind, match=says) as raised:
        spout.collect(bolt, line(word))
    assert type(raised.value) is kind


def test_a_tuple_that_is_left_open_is_noticed(bolt: Any) -> None:
    """D2115: its record would time out; a keyed bolt holds it, which is what it is for."""
    if isinstance(bolt, WordsByHand | WordsByColumn):
        with pytest.raises(TupleError, match="neither acked nor failed a tuple"):
            spout.collect(bolt, line("open"))
    assert spout.collect(bolt, line("open"), may_leave_open=True)[0] == ("open", 4.0)


def test_a_bolt_emits_in_its_cleanup_too() -> None:
    assert spout.collect(WordsByHand(), line("hawk")) == [("hawk", 4.0), ("end", 3.0)]


class OfUser(spout.KeyedBolt):
    """Counts the actions of a user when he leaves."""

    output = "user string, actions int"

    def execute(self, key: tuple[Any, ...], held: Any, collector: spout.KeyedCollector) -> None:
        """Emit the count."""
        if held[-1]["action"] == "leave":
            collector.emit((*key, len(held)))
            collector.ack(*held)


def test_a_keyed_bolt_gets_all_tuples_of_a_key_at_once() -> None:
    actions = [("u1", "enter"), ("u2", "enter"), ("u1", "leave")]
    tuples = [spout.tuple_of({"user": user, "action": action}) for user, action in actions]
    assert spout.collect(OfUser(), *tuples, by="user") == [("u1", 2)]
    assert spout.collect(OfUser(), *tuples, by=["user", "action"][:1]) == [("u1", 2)]
    with pytest.raises(KeyError, match="no field 'usr'"):
        spout.collect(OfUser(), *tuples, by="usr")


def test_only_a_keyed_bolt_has_keys() -> None:
    with pytest.raises(UsageError, match="is no KeyedBolt"):
        spout.collect(Words(), line("hawk"), by="line")


class Sorted(spout.BasicBolt):
    """Sorts words by their size, on two streams."""

    output = "word string"

    def declare(self, declarer: spout.OutputDeclarer) -> None:
        """Declare a stream for each."""
        declarer.declare("word string")
        declarer.declare("word string, size int", stream="long")

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit."""
        for word in tuple["line"].split():
            if len(word) > 3:
                collector.emit((word, len(word)), stream="long")
            else:
                collector.emit((word,))


def test_the_rows_of_a_named_stream_are_returned() -> None:
    assert spout.collect(Sorted(), line("the hawk")) == [("the",)]
    assert spout.collect(Sorted(), line("the hawk"), stream="long") == [("hawk", 4)]
    with pytest.raises(UsageError, match="has no stream 'short'; it declares default, long"):
        spout.collect(Sorted(), line("the hawk"), stream="short")


class Identity(spout.BasicBolt):
    """Emits where its record lies."""

    output = "origin string"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit the origin."""
        collector.emit((tuple.message_id.origin,))


def test_a_tuple_of_a_record_has_its_message_id() -> None:
    record = spout.tuple_of({"value": b""}, origin="sentences/3@1042")
    assert spout.collect(Identity(), record) == [("sentences/3@1042",)]
    with pytest.raises(Exception, match="message_id is known in the bolts directly behind") as raised:
        spout.collect(Identity(), line(""))
    assert isinstance(raised.value.__cause__ or raised.value, MessageIdUnknown)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [(Words, "is a class; pass an instance"), (object(), "declares no stream"), (len, "declares no stream")],
)
def test_what_is_no_bolt_is_refused(wrong: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        spout.collect(wrong, line("hawk"))
