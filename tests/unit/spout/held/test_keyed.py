"""A bolt that holds tuples of a key, over a state like Spark's."""

from __future__ import annotations

import inspect
import json
import pickle
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from typing import Any, ClassVar

import pandas as pd
import pyarrow as pa
import pytest

from acker.errors import BoltStopped, TupleError, UsageError
from acker.wire.causes import error_class
from spout.bolts.bolts import BasicBolt
from spout.bolts.collectors import BasicCollector
from spout.bolts.hooks import BoltContext
from spout.bolts.keyed_bolt import KeyedBolt, KeyedCollector, KeyedTuple
from spout.held.keyed_exit import (
    ACKED,
    EMITTED,
    REPORT,
    RESET,
    ExitTask,
    counts_text,
    read_reports,
    stage_of_keyed_bolt,
)
from spout.held.keyed_rows import TUPLE, KeyedTask, counts_of, key_columns, keyed
from spout.publishing.fold import TaskReport
from spout.publishing.root_marks import RootMark
from spout.tuples.anchor_columns import HELD_TYPE
from spout.tuples.columns import ANCHOR
from spout.tuples.counts import Counted, Measure, What, count_of
from spout.tuples.failures import Cause
from spout.tuples.raised import Raised
from spout.tuples.tuple import SPARK, StreamId, Tuple
from tests.support.fake_ledger import FakeLedger
from tests.support.fake_state import FakeState
from tests.support.outcomes import positions_by_cause


class Pairs(KeyedBolt):
    """Emits two at a time; fails ``bad``, breaks on ``worse``; a ``z`` has its timeout reset."""

    output = "both string"
    tick_ms = 500

    def execute(self, key: tuple[Any, ...], held: Sequence[KeyedTuple], collector: KeyedCollector) -> None:
        """Hold a single one."""
        if any(each["n"] == "worse" for each in held):
            collector.ack(held[0])
            raise ValueError("worse")
        for each in [each for each in held if each["n"] == "bad"]:
            collector.fail(each, "bad")
        collector.reset_timeout(*(each for each in held if each["n"] == "z"))
        if len(collector.held) == 2:
            collector.emit(("".join(each["n"] for each in held if each["n"] != "bad"),))
            collector.ack(*tuple(collector.held))


_LINES, _FIRST = inspect.getsourcelines(Pairs)
PLACE = f"test_keyed.py:{next(n for n, line in enumerate(_LINES, _FIRST) if 'raise ValueError' in line)}"
WORSE = Cause("pairs", "ValueError", f"worse ({PLACE})")


BOTH = pa.schema([("both", pa.string())])


def value_of(row: dict[str, Any]) -> Any:
    """Return the value of an emitted row; None: nothing was emitted."""
    packed = row[EMITTED]
    return packed and pa.ipc.read_record_batch(pa.py_buffer(packed), BOTH).to_pylist()[0]["both"]


class Key:
    """One key at work, batch for batch."""

    def __init__(self, bolt: KeyedBolt | None = None) -> None:
        self.state = FakeState()
        self.task = KeyedTask("pairs", bolt or Pairs(), BOTH, count(0, 7).__next__)
        self.work: dict[str, list[int]] = {}
        self.rows: list[dict[str, Any]] = []
        self.raised: list[Raised] = []

    def get(self, *values: str, ticks: bool = False, tracked: bool = True) -> list[tuple[Any, ...]]:
        """Let tuples come, or a tick; return the rows: value, what is said, and offsets that are carried.

        The last row, which counts if there is something to count, is kept apart, and tracebacks are.
        """
        self.state.hasTimedOut = ticks
        anchors = [{"source": 1, "position": ord(n[0]), "edge": 7} if tracked else None for n in values]
        part = pd.DataFrame({TUPLE: [{"n": value} for value in values], ANCHOR: anchors})
        frames = self.task(("k",), [] if ticks else [part], self.state)  # type: ignore[arg-type]
        self.rows = [row for frame in frames for row in frame.to_dict("records")]
        rows = [row for row in self.rows if not str(row[REPORT]).startswith(("{", "[["))]
        self.work, self.raised = {}, []
        for row in self.rows[len(rows) :]:
            told = json.loads(row[REPORT])
            if isinstance(told, dict):
                self.work = {what: measure[:2] for (what, _, _), measure in told["counts"]}
            else:
                self.raised = [Raised(*each) for each in told]
        return [
            (value_of(row), row[REPORT], "".join(chr(each["position"]) for each in row[ANCHOR]))
            for row in rows
        ]


def test_what_is_neither_acked_nor_failed_is_held_until_later() -> None:
    """S31, S81."""
    key = Key()
    assert key.get("a") == []
    assert key.get("c") == [("ac", None, ""), (None, "", "ac")]
    assert not key.state.exists


def test_a_tick_flushes_what_a_quiet_key_holds() -> None:
    key = Key()
    key.get("a")
    assert key.state.timeout_ms == 500
    assert key.get(ticks=True) == [(None, "", "a")]
    assert not key.state.exists


class Paced(Pairs):
    """Is ticked every 700 ms, whatever comes; a quiet key after 500 ms."""

    tick_every_ms = 700

    def execute(self, key: tuple[Any, ...], held: Sequence[KeyedTuple], collector: KeyedCollector) -> None:
        """Hold everything."""


def test_a_key_that_is_never_quiet_is_ticked_at_a_pace() -> None:
    """Storm's topology.tick.tuple.freq.secs: 700 ms behind the first tuple, then behind the tick."""
    key = Key(Paced())
    waits = []
    for name in "abcd":
        assert key.get(name) == []
        waits.append(key.state.timeout_ms)
        key.state.now_ms += 200
    assert waits == [500, 500, 300, 100]
    assert key.get("e") == [(None, "", "abcde")]
    assert not key.state.exists
    assert key.get("f") == []
    key.state.now_ms += 500
    assert key.get(ticks=True) == [(None, "", "f")]


def test_a_clock_that_is_set_back_holds_up_no_tick_of_a_key_that_gets_tuples() -> None:
    class Steady(Paced):
        tick_ms = 0

    key = Key(Steady())
    assert key.get("a") == []
    key.state.now_ms -= 3_600_000
    assert key.get("b") == []
    assert key.state.timeout_ms == 700
    key.state.now_ms += 700
    assert key.get("c") == [(None, "", "abc")]


def test_a_tick_that_holds_on_comes_again_at_its_pace() -> None:
    class HoldsOn(Paced):
        def tick(self, key: tuple[Any, ...], held: Sequence[KeyedTuple], collector: KeyedCollector) -> None:
            """Reset the timeouts."""
            collector.reset_timeout(*held)

    key = Key(HoldsOn())
    key.get("a")
    for now_ms, ticks, said in ((1_600, False, []), (1_700, True, ["reset"]), (2_399, False, []),
                                (2_400, False, ["reset"])):  # fmt: skip
        key.state.now_ms = now_ms
        assert [row[1] for row in key.get(*([] if ticks else ["b"]), ticks=ticks)] == said


def test_what_a_state_of_before_holds_is_taken_up() -> None:
    """It knows nothing of a pace: one begins with the next batch."""
    key = Key(Paced())
    key.state.update((pickle.dumps([KeyedTuple({"n": "a"}, (1, ord("a"), 7))]),))
    assert key.get("b") == []
    key.state.now_ms += 700
    assert key.get("c") == [(None, "", "abc")]


def test_a_state_that_names_a_class_where_it_was_is_taken_up() -> None:
    """Version 0.1 had it in a module of another name, which a pickle names."""
    key = Key(Paced())
    # protocol 3 writes names as lines
    now = pickle.dumps((0, [KeyedTuple({"n": "a"}, (1, ord("a"), 7))]), protocol=3)
    before = now.replace(f"c{KeyedTuple.__module__}\n".encode(), b"cspout.keyed_bolt\n")
    assert before != now
    key.state.update((before,))
    assert key.get("b") == []
    key.state.now_ms += 700
    assert key.get("c") == [(None, "", "abc")]


def test_one_tuple_fails_alone_and_an_exception_fails_all_that_the_key_holds() -> None:
    """S83, S84."""
    key = Key()
    assert key.get("a", "bad") == [(None, json.dumps(Cause("pairs", "", "bad")), "b")]
    assert key.get("worse") == [(None, json.dumps(WORSE), "aw")]
    assert not key.state.exists


def test_a_tuple_whose_timeout_is_reset_is_held_on_and_neither_acked_nor_failed() -> None:
    """S16."""
    key = Key()
    assert key.get("z") == [(None, RESET, "z")]
    assert key.state.exists
    assert key.get("a") == [("za", None, ""), (None, ACKED, "za"), (None, RESET, "z")]
    assert key.get("z", "worse") == [(None, json.dumps(WORSE), "zw")]


def test_a_traceback_comes_beside_the_cause_once_in_a_task_and_the_step_behind_reports_it() -> None:
    key = Key()
    key.get("worse")
    [raised] = key.raised
    assert raised.kind == ("pairs", "ValueError", PLACE)
    assert 'raise ValueError("worse")' in raised.text
    rows = pd.DataFrame(key.rows)
    assert key.get("worse") == [(None, json.dumps(WORSE), "w")]
    assert key.raised == []
    [report] = reports_of(rows)
    assert report.raised == (raised,)
    assert positions_by_cause(report.marks) == [(WORSE, [ord("w")])]


def test_the_timeout_of_what_is_not_held_cannot_be_reset() -> None:
    here, gone, other = (KeyedTuple({"n": n}, (1, 2, 3)) for n in "abc")
    collector = KeyedCollector("pairs", [here, gone])
    collector.ack(gone)
    for wrong in (gone, other):
        with pytest.raises(TupleError, match=r"'pairs' reset the timeout of .*, which it does not hold"):
            collector.reset_timeout(here, wrong)
    assert collector.touched == []


def test_what_a_call_did_is_counted_and_a_tuple_that_waited_was_at_work_all_that_time() -> None:
    """S74: each call takes 7 ns; the second batch begins 2 ms behind the first one."""
    key = Key()
    key.get("a")
    assert key.work == {"executed": [1, 7]}
    key.state.now_ms += 2
    key.get("c", "bad")
    assert key.work == {"executed": [2, 7], "acked": [2, 2_000_014], "failed": [1, 7]}
    key.get("d")
    key.get(ticks=True)
    assert key.work == {"acked": [1, 7]}
    old = KeyedCollector("pairs", [KeyedTuple({}, None)])
    old.ack(*tuple(old.held))
    acked = {Counted(What.ACKED, "pairs", SPARK): Measure(1, 7)}
    assert counts_of([], old, 1_000, 7, "pairs") == acked, "since when an older version's waits is unknown"


def test_counts_of_calls_reach_the_step_behind_with_their_histograms_and_of_an_older_version_without() -> (
    None
):
    executed, acked = (Counted(what, "pairs", SPARK) for what in (What.EXECUTED, What.ACKED))
    counts = {executed: Measure(3, 7_000, ((1, 2), (4, 1))), acked: Measure(1, 7)}
    older = json.dumps({"counts": [(executed, (3, 7_000))]})
    found = read_reports(pa.array([counts_text(counts), older])).counts
    assert found == [counts, {executed: Measure(3, 7_000)}]


def reports_of(rows: pd.DataFrame, *emitted: str) -> list[TaskReport]:
    """Return what the step behind a keyed bolt reports of its rows; it hands on what was emitted."""
    names = pa.schema([(EMITTED, pa.binary()), (REPORT, pa.string()), (ANCHOR, pa.list_(HELD_TYPE))])
    stage = stage_of_keyed_bolt("pairs", BOTH, tracked=True)
    ledger = FakeLedger()
    # by a table: the texts of rows that were put together have several chunks in pandas 3
    [batch] = pa.Table.from_pandas(rows, names, False).combine_chunks().to_batches()
    [out] = ExitTask(stage, "stream", ledger)([batch])
    assert out.to_pydict() == {"both": list(emitted)}
    return ledger.reports


def test_the_step_behind_reports_what_the_rows_say() -> None:
    key = Key()
    key.get("z", "bad")
    rows = pd.DataFrame(key.rows)
    key.get("a")
    rows = pd.concat([rows, pd.DataFrame(key.rows)])
    [report] = reports_of(rows, "za")
    assert report.marks.of(RootMark.RELEASED).positions.tolist() == [ord("z"), ord("a")]
    assert report.marks.of(RootMark.HELD_ON).positions.tolist() == [ord("z"), ord("z")]
    [(cause, failed)] = positions_by_cause(report.marks)
    assert (cause.message, failed) == ("bad", [ord("b")])
    counts = {what: count_of(report.counts, what, "pairs") for what in What}
    assert counts == {What.EXECUTED: 3, What.ACKED: 2, What.FAILED: 1, What.EMITTED: 1, What.TRANSFERRED: 0}


def test_what_an_older_version_holds_is_held_on() -> None:
    old = KeyedTuple.__new__(KeyedTuple)
    old.__setstate__((None, {"values": {"n": "a"}, "anchor": (1, 2, 3)}))
    found = pickle.loads(pickle.dumps(old, protocol=5))
    assert (found["n"], found.root, found.since_ms) == ("a", (1, 2), 0)
    assert (found.came_from, found.source_component) == (SPARK, "spark")
    assert KeyedTuple({}, None).root is None


GENDERS, AGES = StreamId("genders"), StreamId("ages", "late")


class TwoStreams(Key):
    """One key of a bolt that reads two streams; its tuples are structs."""

    def __init__(self, bolt: KeyedBolt) -> None:
        super().__init__(bolt)
        self.task = replace(self.task, streams={"s0": GENDERS, "s3": AGES})
        self.told: list[Any] = []

    def come(self, *tuples: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
        """Let tuples come, each with its column; return the rows."""
        part = pd.DataFrame(
            {
                "_key0": [7] * len(tuples),
                **{
                    name: [struct if name == own else None for own, struct in tuples] for name in ("s0", "s3")
                },
                ANCHOR: [{"source": 1, "position": n, "edge": n + 1} for n in range(len(tuples))],
            }
        )
        frames = self.task((7,), [part], self.state)  # type: ignore[arg-type]
        return [row for frame in frames for row in frame.to_dict("records")]


class Joins(KeyedBolt):
    """Emits what it holds and from where, once it holds two."""

    output = "both string"

    def execute(self, key: tuple[Any, ...], held: Sequence[KeyedTuple], collector: KeyedCollector) -> None:
        """Wait for two."""
        if len(held) == 2:
            collector.emit((str([(e.source_component, e.source_stream, dict(e.values)) for e in held]),))
            collector.ack(*held)


def test_a_held_tuple_knows_its_source_in_a_later_batch() -> None:
    """As Storm's Tuple; a number stays a whole one beside a stream that lacks the field."""
    key = TwoStreams(Joins())
    key.come(("s0", {"id": 7, "gender": "f"}))
    [emitted, acked, counted] = key.come(("s3", {"id": 7, "age": 2**60 + 1}))
    assert value_of(emitted) == str(
        [("genders", "default", {"id": 7, "gender": "f"}), ("ages", "late", {"id": 7, "age": 2**60 + 1})]
    )
    assert [each["position"] for each in acked[ANCHOR]] == [0, 0]
    counts = {
        (what, *stream): tuples for (what, _, stream), (tuples, *_) in json.loads(counted[REPORT])["counts"]
    }
    assert counts == {
        ("executed", "ages", "late"): 1,
        ("acked", "genders", "default"): 1,
        ("acked", "ages", "late"): 1,
    }


def test_a_tuple_that_an_older_version_held_is_of_the_only_stream_or_of_spark() -> None:
    """Its state has no source; with a second stream nobody can tell which it was."""
    for streams, source in (({TUPLE: GENDERS}, "genders"), ({"s0": GENDERS, "s3": AGES}, "spark")):
        key = TwoStreams(Joins())
        key.task = replace(key.task, streams=streams)
        key.state.update((before_sources(KeyedTuple({"id": 7, "gender": "f"}, (1, 5, 7))),))
        if source == "spark":
            [emitted, *_] = key.come(("s3", {"id": 7, "age": 3}))
        else:
            part = pd.DataFrame({TUPLE: [{"id": 7}], ANCHOR: [{"source": 1, "position": 2, "edge": 3}]})
            [frame] = key.task((7,), [part], key.state)  # type: ignore[arg-type]
            emitted = frame.to_dict("records")[0]
        assert value_of(emitted).startswith(f"[('{source}', 'default', {{'id': 7, 'gender': 'f'}}), (")


class Before:
    """Pickles a tuple with the three attributes that it had before it knew its source."""

    def __init__(self, held: KeyedTuple) -> None:
        self._held = held

    def __reduce__(self) -> tuple[Any, ...]:
        then = {name: getattr(self._held, name) for name in ("anchor", "since_ms", "values")}
        return KeyedTuple.__new__, (KeyedTuple,), (None, then)


def before_sources(*held: KeyedTuple) -> bytes:
    """Write a state as a version did whose tuples had no source."""
    state = pickle.dumps((0, [Before(each) for each in held]), protocol=5)
    assert b"source" not in state
    return state


def test_a_cause_keeps_its_class_on_the_way_to_the_bolt_that_fails_the_row() -> None:
    """A rule for exceptions fits it as it fits any bolt's."""
    cause = Cause("pairs", "Undecodable(RejectTuple, FailTuple)", "no text")
    assert read_reports(pa.array(["", json.dumps(cause)])).failed == [(1, cause)]


def test_an_exception_is_raised_where_nothing_is_tracked() -> None:
    with pytest.raises(ValueError, match="worse"):
        Key().get("worse", tracked=False)


def test_a_key_that_holds_an_unanchored_tuple_fails_the_others_where_rows_are_tracked() -> None:
    """Nobody replays it; the query goes on."""
    key = Key()
    key.task = replace(key.task, tracked=True)
    key.get("a")
    [(_, said, carried)] = key.get("worse", tracked=False)
    assert "worse" in said
    assert carried == "a"
    assert not key.state.exists


class Saves(Pairs):
    """Its service may be gone, when a tuple comes or at a tick."""

    stops_on: ClassVar[tuple[type[Exception], ...]] = (ConnectionError,)

    def execute(self, key: tuple[Any, ...], held: Sequence[KeyedTuple], collector: KeyedCollector) -> None:
        """Write what has come."""
        if held[-1]["n"] == "gone":
            raise ConnectionRefusedError("no answer")
        super().execute(key, held, collector)

    def tick(self, key: tuple[Any, ...], held: Sequence[KeyedTuple], collector: KeyedCollector) -> None:
        """Write what is left."""
        raise ConnectionResetError("no answer")


def test_what_a_keyed_bolt_stops_on_ends_the_query_and_leaves_what_the_key_held() -> None:
    """S84: nothing is failed; any other exception is, under its own name."""
    key = Key(Saves())
    key.get("a")
    kept = key.state.kept
    with pytest.raises(BoltStopped, match=r"^bolt 'pairs' stops on ConnectionRefusedError: no answer; mend"):
        key.get("gone")
    with pytest.raises(BoltStopped, match=r"^bolt 'pairs' stops on ConnectionResetError: no answer; mend"):
        key.get(ticks=True)
    assert key.state.kept == kept
    [(_, said, offsets)] = key.get("worse")
    assert ("ValueError" in said, offsets) == (True, "aw")
    with pytest.raises(UsageError, match=r"stops_on is .*it is a tuple of exception classes"):
        type("Wrong", (KeyedBolt,), {"stops_on": ConnectionError})


class Returns(Pairs):
    """Returns what it should emit, in a call and at a tick; counts how often it is prepared."""

    def __init__(self) -> None:
        """Begin with none."""
        self.contexts: list[BoltContext] = []

    def prepare(self, context: BoltContext) -> None:
        """Count."""
        self.contexts.append(context)

    def execute(self, key: tuple[Any, ...], held: Sequence[KeyedTuple], collector: KeyedCollector) -> Any:
        """Hold everything; ``row`` returns a row."""
        return ("row",) if held[-1]["n"] == "row" else None

    def tick(self, key: tuple[Any, ...], held: Sequence[KeyedTuple], collector: KeyedCollector) -> Any:
        """Yield nothing."""
        return (each for each in held)


def test_what_a_keyed_bolt_returns_fails_all_that_the_key_holds() -> None:
    key = Key(Returns())
    [(_, said, offsets)] = key.get("row")
    assert offsets == "r"
    assert "bolt 'pairs': Returns.execute returned a tuple, which nobody takes; emit rows by the" in said
    key.get("a")
    [(_, said, offsets)] = key.get(ticks=True)
    assert offsets == "a"
    assert "bolt 'pairs': Returns.tick returned a generator, which nobody takes; its code has not" in said


def test_a_keyed_bolt_is_prepared_once_for_all_keys_of_a_task() -> None:
    """As every other bolt: what it opens there is opened once."""
    bolt = Returns()
    one, other = Key(bolt), Key(bolt)
    other.task = one.task
    for key in (one, other, one):
        key.get("a")
    assert [(each.name, each.batch_id) for each in bolt.contexts] == [("pairs", -1)]


def test_a_tuple_is_settled_once() -> None:
    """S80: twice acked its edge would cancel."""
    one = KeyedTuple({"n": "a"}, (1, 2, 3))
    collector = KeyedCollector("pairs", [one])
    collector.ack(one)
    for again in (collector.ack, collector.fail):
        with pytest.raises(TupleError, match="which it does not hold"):
            again(one)
    assert collector.held == []


class KeepsCollector(KeyedBolt):
    """Emits by the collector of its first call."""

    output = "value string"

    kept: KeyedCollector | None = None

    def execute(self, key: tuple[Any, ...], held: Sequence[KeyedTuple], collector: KeyedCollector) -> None:
        """Emit, and ack by the one of this call."""
        self.kept = self.kept or collector
        self.kept.emit((held[0]["n"],))
        collector.ack(*held)


def test_what_is_emitted_by_the_collector_of_an_earlier_call_fails_and_is_not_lost() -> None:
    key = Key(KeepsCollector())
    assert key.get("a") == [("a", None, ""), (None, "", "a")]
    [(row, cause, failed)] = key.get("b")
    assert (row, failed) == (None, "b")
    assert "emitted by the collector of a call that had returned; use this call's" in cause


class Says(KeyedBolt):
    """Emits a good row, then what it was made with, and acks."""

    output = "value string"

    def __init__(self, values: Any) -> None:
        """Emit these values."""
        self._values = values

    def execute(self, key: tuple[Any, ...], held: Sequence[KeyedTuple], collector: KeyedCollector) -> None:
        """Emit."""
        collector.emit(("good",))
        collector.emit(self._values)
        collector.ack(*held)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ((1, 2), "bolt 'says' emitted 2 values, whose fields are both"),
        ((), "bolt 'says' emitted 0 values, whose fields are both"),
        ((7,), "bolt 'says' emitted 7, a int, as 'both', which is string: "),
        (("\ud800",), r"bolt 'says' emitted '\ud800', a str, as 'both', which is string: "),
    ],
)
def test_a_row_that_does_not_fit_fails_what_the_key_holds_and_not_the_query(values: Any, says: str) -> None:
    key = Key()
    key.task = KeyedTask("says", Says(values), BOTH)
    [(emitted, said, anchors)] = key.get("a", "b")
    assert (emitted, anchors) == (None, "ab")
    cause = Cause(*json.loads(said))
    assert cause.operator == "says"
    assert cause.error.startswith("TupleError")
    assert cause.message.startswith(says)
    assert not key.state.exists


WHOLE = pa.struct([pa.field("a", pa.int32(), nullable=False)])


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        (pa.field("f", pa.int32()), [None, 1, 2.0], ["x", 2**40, [1], 1.5, float("nan")]),
        (
            pa.field("f", pa.timestamp("us", "America/New_York")),
            [None, datetime(2026, 1, 1, tzinfo=UTC), pd.Timestamp("2026-01-01")],
            ["now", True, 1],
        ),
        (pa.field("f", pa.list_(pa.int32())), [None, [1, None], (1,)], [["x"], 1]),
        (pa.field("f", pa.struct([("a", pa.int32())])), [None, {"a": 1}, {}, (1,)], [{"a": "x"}, 1]),
        (pa.field("f", pa.map_(pa.string(), pa.int32())), [None, {"a": 1}], [{"a": "x"}, {None: 1}]),
        (pa.field("f", pa.int32(), nullable=False), [0, 2.0], [None, pd.NaT]),
        (pa.field("f", pa.string(), nullable=False), [""], [None]),
        (pa.field("f", WHOLE), [None, {"a": 1}], [{"a": None}, {}]),
    ],
)
def test_a_value_that_does_not_fit_its_field_fails_where_it_is_emitted(
    field: pa.Field, good: Sequence[Any], bad: Sequence[Any]
) -> None:
    """O808: what Spark refuses would end the query, with the rows of all keys of the task."""
    task = KeyedTask("b", Pairs(), pa.schema([field]))
    for value in good:
        task._check_emission((value,))
    for value in bad:
        with pytest.raises(TupleError, match=r"^bolt 'b' emitted .*(as 'f', which is |NOT NULL)"):
            task._check_emission((value,))


def test_a_bolt_that_is_not_keyed_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="'Basic' is no KeyedBolt; derive it from one"):
        keyed(Basic(), by=["user"])  # type: ignore[arg-type]  # on purpose


class Basic(BasicBolt):
    """Is not keyed."""

    output = "value string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit none."""


def test_an_unknown_field_of_a_held_tuple_is_told_with_those_there_are() -> None:
    with pytest.raises(KeyError, match="no field 'usr' in a held tuple; its fields are: user, n"):
        KeyedTuple({"user": "u", "n": 1}, None)["usr"]


@pytest.mark.parametrize(
    ("by", "says"),
    [([], "needs a column"), ([7], "the columns of the key by name"), (7, "the columns of the key by name")],
)
def test_a_key_names_its_columns(by: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        keyed(Pairs(), by=by)


def test_one_column_is_a_key() -> None:
    assert key_columns("pairs", "user") == ("user",)
    assert key_columns("pairs", ["user", "day"]) == ("user", "day")


class KeepsAfterError(KeyedBolt):
    """Keeps the collector and the tuples of its first call, which ends as `ends` says; uses them later."""

    output = "both string"
    tick_ms = 500

    def __init__(self, ends: str, does: str) -> None:
        self._ends = ends
        self._does = does
        self._collector: KeyedCollector | None = None
        self._tuples: list[KeyedTuple] = []

    def execute(self, key: tuple[Any, ...], held: Sequence[KeyedTuple], collector: KeyedCollector) -> None:
        """Keep them, or do by the kept collector what belongs to this one; then ack."""
        if self._collector is None:
            self._collector, self._tuples = collector, list(held)
            if self._ends != "raises in tick":
                self._end(collector)
            return
        own = held[-1]
        if self._does == "emit":
            self._collector.emit((own["n"],))
        elif self._does == "emit on":
            self._collector.emit((own["n"],), anchors=self._tuples[0])
        else:
            getattr(self._collector, self._does)(self._tuples[0])
        collector.ack(*held)

    def tick(self, key: tuple[Any, ...], held: Sequence[KeyedTuple], collector: KeyedCollector) -> None:
        """End the first call."""
        self._collector = collector
        self._end(collector)

    def _end(self, collector: KeyedCollector) -> None:
        if "ack" in self._ends:
            collector.ack(*self._tuples)
        if "raises" in self._ends:
            raise ValueError(self._ends)


@pytest.mark.parametrize("does", ["emit", "emit on", "ack", "fail", "reset_timeout"])
@pytest.mark.parametrize("ends", ["raises", "acks, then raises", "raises in tick", "acks", "holds"])
@pytest.mark.parametrize("is_same_key", [True, False], ids=["the same key", "another key"])
def test_what_a_bolt_does_by_the_collector_of_an_earlier_call_fails_its_tuples(
    ends: str, does: str, is_same_key: bool
) -> None:
    """Rule 3: nobody would write the row, and its tuple would be acked; so it is behind an error too."""
    key = Key(KeepsAfterError(ends, does))
    first = key.get("a")
    if ends == "raises in tick":
        assert first == []
        first = key.get(ticks=True)
    if "raises" in ends:
        [(_, report, roots)] = first
        assert json.loads(report)[1] == "ValueError"
        assert roots == "a"
    else:
        assert first == ([(None, ACKED, "a")] if ends == "acks" else [])
    if not is_same_key:
        key.state = FakeState()
    [(value, report, roots)] = key.get("b")
    cause = Cause(*json.loads(report))
    assert value is None
    assert error_class(cause.error) == "TupleError"
    assert "by the collector of a call that had returned; use this call's" in cause.message
    assert roots == ("ab" if ends == "holds" and is_same_key else "b")
