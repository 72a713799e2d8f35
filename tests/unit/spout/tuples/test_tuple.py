"""The collectors: what a bolt may do with a tuple, and what is raised when it does something else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from acker.errors import TupleError
from acker.wire.causes import TEXT_BYTES_MAX, cut_text
from spout.bolts.collectors import EmittedStream, Outlet, OutputCollector
from spout.tuples.failures import Cause, FailTuple, cause_of
from spout.tuples.messages import MessageRows
from spout.tuples.rows import ArrowRows, ListRows
from spout.tuples.tuple import AnchoredTuple, Delivery, Rows, StreamId, Tuple
from tests.support.worlds.topology_world import SOURCE, record


def received(collector: OutputCollector, *roots: int, bolt: str = "split") -> AnchoredTuple:
    """Let a bolt receive a tuple that descends from roots."""
    tuple_ = AnchoredTuple(ListRows(["line"], [["a b"]]), 0, [tuple(Delivery(r, ()) for r in roots)], bolt)
    collector.receive(tuple_)
    return tuple_


@pytest.fixture
def collector() -> OutputCollector:
    """The collector of a bolt named ``split`` that emits on subscription 7."""
    return OutputCollector("split", emits(7))


def emits(subscription: int) -> dict[str, EmittedStream]:
    """Return the default stream of a bolt, which one other reads."""
    return {"default": EmittedStream(("word",), (Outlet(subscription),))}


def emitted(collector: OutputCollector) -> list[tuple[Delivery, ...]]:
    """Return the deliveries of each emission."""
    return [sent.deliveries(0, 7) for sent in collector.sent]


def test_an_emission_is_anchored_on_every_distinct_anchor_once(collector: OutputCollector) -> None:
    """S30: the same anchor listed twice counts once; S76: one edge for each root."""
    first, second = received(collector, 1), received(collector, 2)
    collector.emit(["a"], anchors=[first, second, first])
    assert emitted(collector) == [(Delivery(1, ((7, 0),)), Delivery(2, ((7, 0),)))]


def test_ordinals_count_the_deliveries_of_their_parent(collector: OutputCollector) -> None:
    one, other = received(collector, 1), received(collector, 2)
    for anchor in (one, other, one):
        collector.emit(["a"], anchors=anchor)
    assert [deliveries[0].path for deliveries in emitted(collector)] == [
        ((7, 0),),
        ((7, 0),),
        ((7, 1),),
    ]


def test_what_is_emitted_without_anchors_belongs_to_no_root(collector: OutputCollector) -> None:
    """S77: nobody's root is affected by what becomes of it."""
    tuple_ = received(collector, 1)
    collector.emit(["a"])
    collector.ack(tuple_)
    assert emitted(collector) == [()]
    assert list(collector.outstanding()) == []


@pytest.mark.parametrize("settle", ["ack", "fail"])
def test_a_tuple_without_anchors_says_nothing_when_it_is_settled(
    collector: OutputCollector, settle: str
) -> None:
    """S75: no root waits for it, none is failed by it."""
    getattr(collector, settle)(received(collector))
    assert list(collector.outstanding()) == []
    assert collector.failures == []


@pytest.mark.parametrize("settle", ["ack", "fail"])
@pytest.mark.parametrize("then", ["emit", "ack", "fail", "reset_timeout"])
def test_whatever_follows_a_settled_tuple_raises_and_changes_nothing(
    collector: OutputCollector, settle: str, then: str
) -> None:
    """S80: storm lets the root time out instead."""
    tuple_ = received(collector, 1)
    getattr(collector, settle)(tuple_)
    failures = list(collector.failures)
    again: dict[str, Sequence[Any]] = {"emit": (["a"], tuple_)}
    with pytest.raises(TupleError, match=f"'split'.*had {settle}ed"):
        getattr(collector, then)(*again.get(then, (tuple_,)))
    assert collector.sent == []
    assert collector.failures == failures
    assert collector.touched == set()


def test_a_tuple_of_another_bolt_is_refused(collector: OutputCollector) -> None:
    """P43."""
    foreign = received(OutputCollector("count", emits(8)), 1, bolt="count")
    with pytest.raises(TupleError, match="no input of it"):
        collector.ack(foreign)


def test_failing_fails_every_root_that_the_tuple_descends_from(collector: OutputCollector) -> None:
    """S29, S78: a child with two roots fails both."""
    collector.fail(received(collector, 3, 5), ValueError("bad"))
    assert collector.failures == [
        (3, Cause("split", "ValueError", "bad")),
        (5, Cause("split", "ValueError", "bad")),
    ]


def test_what_is_neither_acked_nor_failed_stays_outstanding(collector: OutputCollector) -> None:
    """S81: its own edge and those of what was emitted on it are missing."""
    held = received(collector, 1)
    collector.emit(["a"], anchors=held)
    collector.ack(received(collector, 2))
    assert list(collector.outstanding()) == [Delivery(1, ()), Delivery(1, ((7, 0),))]


def test_an_explicit_fail_has_no_error_class() -> None:
    assert cause_of("split", FailTuple("not now")) == Cause("split", "", "not now")
    assert cause_of("split", "not now") == Cause("split", "", "not now")
    assert cause_of("split", KeyError("id")) == Cause("split", "KeyError", "'id'")


@pytest.mark.parametrize("text", ["x" * 600, "é" * 400, "𝄞" * 200, "\ud800" * 600])
def test_a_message_is_cut_to_its_bytes_and_never_inside_a_character(text: str) -> None:
    short = cut_text(text).encode("utf-8", "replace")
    assert len(short) <= TEXT_BYTES_MAX
    assert short.decode()  # raises if a character were cut


@pytest.mark.parametrize("why", [5, ValueError, ["not now"]])
def test_what_is_neither_a_text_nor_an_exception_is_no_cause(why: object) -> None:
    """A class is the usual slip."""
    with pytest.raises(TupleError, match=r"bolt 'split' gave .* as a cause; give a text or an exception"):
        cause_of("split", cast("Any", why))


@pytest.mark.parametrize("size", [TEXT_BYTES_MAX - 1, TEXT_BYTES_MAX, TEXT_BYTES_MAX + 1])
def test_a_message_is_whole_up_to_the_last_byte_that_it_may_have(size: int) -> None:
    place = " (split.py:12)"
    text = "x" * (size - len(place)) + place
    assert cut_text(text) == "x" * (min(size, TEXT_BYTES_MAX) - len(place)) + place


def test_a_tuple_gives_its_values_by_name_and_by_position() -> None:
    tuple_ = Tuple(ListRows(["word", "length"], [["a", 1], ["bb", 2]]), 1)
    assert (tuple_["word"], tuple_[1], tuple_.value(0)) == ("bb", 2, "bb")
    assert tuple_.fields == ("word", "length")
    assert list(tuple_) == ["bb", 2]
    assert "word" in tuple_
    with pytest.raises(KeyError):
        tuple_["count"]


@pytest.mark.parametrize(
    "rows",
    [
        ListRows(["word", "length"], [["a", 1]], came_from=StreamId("split")),
        ArrowRows(pa.RecordBatch.from_pydict({"word": ["a"], "length": [1]}), came_from=StreamId("split")),
    ],
)
def test_a_field_that_is_not_there_is_told_with_those_that_are(rows: Rows) -> None:
    tuple_ = Tuple(rows, 0)
    with pytest.raises(KeyError, match="no field 'wrod' in a tuple of split; its fields are: word, length"):
        tuple_["wrod"]
    for read in (tuple_.__getitem__, tuple_.value):
        with pytest.raises(IndexError, match="no field 2 in a tuple of split; its fields are: word, length"):
            read(2)


def test_a_field_that_a_record_of_a_topic_does_not_have_is_told() -> None:
    rows = MessageRows([record(b"a", 1)], SOURCE, np.array([1]))
    with pytest.raises(
        KeyError, match="no field 'word' in a tuple of spout; its fields are: key, value, top"
    ):
        Tuple(rows, 0)["word"]


def test_the_message_id_is_refused_where_only_the_tree_is_known() -> None:
    with pytest.raises(TupleError, match="directly behind read_stream"):
        _ = Tuple(ListRows(["word"], [["a"]]), 0).message_id
