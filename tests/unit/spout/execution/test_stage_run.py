"""A stage at work: where tuples go, what bolts may do, what hooks see, and what is counted."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from acker.errors import TupleError
from acker.wire.causes import error_class, without_code_line
from spout.bolts.bolts import ArrowBolt, BasicBolt, BatchCollector, Bolt, OutputDeclarer
from spout.bolts.collectors import BasicCollector, OutputCollector
from spout.bolts.hooks import AckInfo, BoltContext, EmitInfo, ExecuteInfo, FailInfo, TaskHook
from spout.builder.topology import TopologyBuilder
from spout.execution.stage_run import StageRun
from spout.planning.order import Gate, LineUp
from spout.topology.graph import Kind
from spout.topology.routing import tasks_for, value_keys
from spout.tuples.anchors import ORDINAL_BITS, AnchorForm, Anchors
from spout.tuples.counts import Counted, What
from spout.tuples.messages import MessageRows
from spout.tuples.tuple import Delivery, StreamId, Tuple
from tests.support.outcomes import failed_by_cause, open_roots_of
from tests.support.reports import failures_in
from tests.support.worlds.topology_world import SOURCE, TOPICS, record, run, schema_of, stages_of


class Words(BasicBolt):
    """Splits a line; says where it is done."""

    output = "word string, task int"

    def prepare(self, context: BoltContext) -> None:
        """Know the task."""
        self._task = context.partition

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit each word."""
        for word in (tuple["value"].decode() if "value" in tuple else tuple["word"]).split():
            collector.emit((word, self._task))


class Odd(BasicBolt):
    """Emits what a line says, whether it fits or not."""

    def declare(self, declarer: OutputDeclarer) -> None:
        """Declare a number."""
        declarer.declare("number int")

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit by the line's name."""
        line = tuple["value"].decode()
        if line == "two":
            collector.emit((1, 2))
        elif line == "stream":
            collector.emit((1,), stream="other")
        elif line == "direct":
            collector.emit_direct(0, (1,))
        else:
            collector.emit((7 if line == "fits" else line,))


class Late(Bolt):
    """Breaks a rule of the collector in the way that a line says."""

    output = "word string"

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Ack, then do what may not follow."""
        self._collector.ack(tuple)
        act = tuple["value"].decode()
        if act == "emit":
            self._collector.emit(("late",), anchors=tuple)
        elif act != "none":
            getattr(self._collector, act)(tuple)


class Caps(ArrowBolt):
    """Makes lines big, whole batches at once; a line without letters fails."""

    output = "line string"

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit every line, the failing ones too."""
        lines = pc.utf8_upper(batch.column("value").cast(pa.string()))
        collector.emit([lines], np.arange(batch.num_rows))
        for row in pc.indices_nonzero(pc.equal(lines, "1")).to_pylist():
            collector.fail(row, "no letters")


def one_bolt(bolt: BasicBolt | Bolt | ArrowBolt, parallelism: int | None = None) -> TopologyBuilder:
    """Make a topology of one bolt, ``bolt``."""
    builder = TopologyBuilder()
    builder.set_spout("lines", TOPICS, "lines")
    builder.set_bolt("bolt", bolt, parallelism).shuffle_grouping("lines")
    return builder


def causes(ran: Any) -> dict[int, tuple[str, str]]:
    """Return why roots failed: error and message of each, without the place behind it."""
    return {
        index: (cause.error, without_code_line(cause.message)[0])
        for cause, indices in failed_by_cause(ran.outcome)
        for index in indices.tolist()
    }


def test_what_does_not_fit_its_stream_fails_its_root_and_names_the_bolt() -> None:
    ran = run(one_bolt(Odd()), [b"fits", b"two", b"stream", b"direct", b"text"], print)
    assert ran.values == [(7,)]
    found = causes(ran)
    assert found[1][1] == "bolt 'bolt' emitted 2 values on stream 'default', whose fields are number"
    assert found[2][1].startswith("bolt 'bolt' emitted on stream 'other', which it does not declare; it has")
    assert found[3][1].startswith("bolt 'bolt' named a task on stream 'default', which is not direct")
    assert error_class(found[4][0]) == "ArrowInvalid"


class Loud(Bolt):
    """Emits, unanchored, what does not fit its output."""

    output = "number int"

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Emit text."""
        self._collector.emit(("seven",))
        self._collector.ack(tuple)


def test_what_does_not_fit_and_is_unanchored_ends_the_query_and_names_the_way_out() -> None:
    says = "bolt 'bolt' emitted, unanchored, what does not fit stream 'default': .*; no input fails for it"
    with pytest.raises(TupleError, match=f"^{says}, so the query ends: anchor it, .* or emit what fits$"):
        run(one_bolt(Loud()), [b"a"], print)


class Directs(BasicBolt):
    """Emits on a direct stream as a line says: to a task by its number, or to none."""

    def declare(self, declarer: OutputDeclarer) -> None:
        """Declare the stream."""
        declarer.declare("word string", direct=True)

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit."""
        line = tuple["value"].decode()
        if line == "none":
            collector.emit((line,))
        else:
            collector.emit_direct(int(line), (line,))


def test_on_a_direct_stream_an_emission_names_a_task_that_there_is() -> None:
    builder = one_bolt(Directs())
    builder.set_bolt("again", Words(), 3).direct_grouping("bolt")
    ran = run(builder, [b"2", b"3", b"-1", b"none"], print)
    assert ran.values == [("2", 2)]
    found = {index: message for index, (_, message) in causes(ran).items()}
    outside = "bolt 'bolt' emitted to task {} on stream 'default'; its consumers have tasks 0 to 2"
    assert found == {
        1: outside.format(3),
        2: outside.format(-1),
        3: "bolt 'bolt' emitted on 'default' without a task; it is direct: use emit_direct",
    }


@pytest.mark.parametrize("act", ["emit", "ack", "fail", "reset_timeout"])
def test_what_follows_an_ack_names_the_bolt(act: str) -> None:
    """S80: in a topology as elsewhere."""
    ran = run(one_bolt(Late()), [b"none", act.encode()], print)
    [(error, message)] = causes(ran).values()
    assert error_class(error) == "TupleError"
    assert message.startswith("bolt 'bolt' ")
    assert "which it had acked" in message


def test_an_arrow_bolt_works_in_a_topology() -> None:
    ran = run(one_bolt(Caps()), [b"a", b"1", b"b"], print)
    assert ran.values == [("A",), ("B",)]
    assert causes(ran) == {1: ("", "no letters")}
    counts = ran.outcome.counts
    assert counts[Counted(What.EXECUTED, "bolt", StreamId("lines"))].tuples == 3
    assert counts[Counted(What.ACKED, "bolt", StreamId("lines"))].tuples == 2
    assert counts[Counted(What.FAILED, "bolt", StreamId("lines"))].tuples == 1


def two_steps(grouping: str, *fields: str, parallelism: int = 3) -> TopologyBuilder:
    """Make a topology of two bolts with a grouping between them."""
    builder = one_bolt(Words())
    declarer = builder.set_bolt("again", Words(), parallelism)
    getattr(declarer, f"{grouping}_grouping")("bolt", *fields)
    return builder


LINES = [b"a b c", b"b c d", b"a", b"e f g h", b"a b"] * 4


def test_fields_grouping_brings_equal_values_to_one_task() -> None:
    ran = run(two_steps("fields", "word"), LINES, print)
    tasks: dict[str, set[int]] = {}
    for word, task in ran.values:
        tasks.setdefault(word, set()).add(task)
    assert all(len(found) == 1 for found in tasks.values())
    assert len(set().union(*tasks.values())) > 1
    assert len(ran.values) == sum(len(line.split()) for line in LINES)


def test_partial_key_grouping_splits_a_frequent_value_over_two_tasks() -> None:
    ran = run(two_steps("partial_key", "word", parallelism=5), [b"a b"] * 60, print)
    by_word = Counter(ran.values)
    for word in "ab":
        counts = [count for (each, _), count in by_word.items() if each == word]
        assert len(counts) == 2
        assert min(counts) > 10


@pytest.mark.parametrize(
    ("grouping", "copies", "tasks"), [("all", 3, {0, 1, 2}), ("global", 1, {0}), ("shuffle", 1, {0, 1, 2})]
)
def test_all_brings_copies_global_one_task_and_shuffle_an_even_share(
    grouping: str, copies: int, tasks: set[int]
) -> None:
    """S54: each copy has an edge of its own."""
    ran = run(two_steps(grouping), LINES, print)
    assert Counter(word for word, _ in ran.values) == {
        word: copies * times for word, times in Counter(b" ".join(LINES).decode().split()).items()
    }
    assert {task for _, task in ran.values} == tasks
    assert not failed_by_cause(ran.outcome)
    assert not len(open_roots_of(ran.outcome))


def test_a_way_depends_on_the_tuple_alone() -> None:
    """So a task that runs again sends its tuples to the same tasks, whatever order they came in."""
    deliveries = [(Delivery(root, ((7, 0),)),) for root in range(200)]
    for kind in (Kind.SHUFFLE, Kind.PARTIAL_KEY, Kind.FIELDS):
        words = pa.RecordBatch.from_pydict({"word": [str(n % 9) for n in range(200)]})
        keys = None if kind is Kind.SHUFFLE else value_keys(words, ["word"])
        found = tasks_for(kind, 4, keys, deliveries)
        order = np.random.default_rng(1).permutation(200)
        again = tasks_for(kind, 4, None if keys is None else keys[order], [deliveries[n] for n in order], 17)
        assert again.tolist() == found[order].tolist()
        assert set(found.tolist()) == {0, 1, 2, 3}


def test_keys_are_those_of_the_values_in_any_batch() -> None:
    one = pa.RecordBatch.from_pydict({"word": ["a", None, "b"], "list": [[1], [2], None]})
    other = pa.RecordBatch.from_pydict({"word": ["b", "a", None], "list": [None, [1], [2]]})
    assert (
        value_keys(one, ["word", "list"]).tolist()
        == value_keys(other.take([1, 2, 0]), ["word", "list"]).tolist()
    )
    assert len(set(value_keys(one, ["word"]).tolist())) == 3


def test_nothing_is_tracked_where_nothing_is() -> None:
    """S77, S79: acks and fails say nothing; FailTuple drops its input, another exception ends the task."""
    ran = run(two_steps("fields", "word"), LINES, print, tracked=False)
    assert len(ran.values) == sum(len(line.split()) for line in LINES)
    with pytest.raises(TupleError):
        run(one_bolt(Late()), [b"ack"], print, tracked=False)


class Watch(TaskHook):
    """Counts what it sees."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def emit(self, info: EmitInfo) -> None:
        """Count an emission."""
        self.seen["emit"] += 1

    def ack(self, info: AckInfo) -> None:
        """Count an ack."""
        self.seen["ack"] += 1

    def fail(self, info: FailInfo) -> None:
        """Count a fail."""
        self.seen["fail"] += 1

    def execute(self, info: ExecuteInfo) -> None:
        """Count a return of ``execute``."""
        assert info.latency_ms >= 0
        self.seen["execute"] += 1


class Watched(Bolt):
    """Emits what its hook has seen so far, twice, and acks and fails in turn."""

    output = "emitted int, acked int, failed int, executed int"

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Add the hook, as a bolt of Storm does."""
        self._hook = Watch()
        context.add_hook(self._hook)
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Emit, then ack or fail."""
        seen = self._hook.seen
        values = (seen["emit"], seen["ack"], seen["fail"], seen["execute"])
        for _ in range(2):
            self._collector.emit(values)
        if seen["ack"] == seen["fail"]:
            self._collector.ack(tuple)
        else:
            self._collector.fail(tuple)


def test_hooks_see_what_a_bolt_does_in_its_order() -> None:
    """S85: Storm counts a bolt's ack as a second emission, to its acker; here the bolt emits twice."""
    ran = run(one_bolt(Watched()), [b"x"] * 4, print, tasks=1)
    assert ran.values[::2] == [(0, 0, 0, 0), (2, 1, 0, 1), (4, 1, 1, 2), (6, 2, 1, 3)]


def test_hooks_of_the_topology_watch_every_bolt() -> None:
    builder = two_steps("global")
    builder.add_hook(Failing())
    ran = run(builder, [b"a", b"stop b"], print)
    assert ran.values == [("a", 0)]
    assert causes(ran) == {1: ("ValueError", "not this one")}


class Failing(TaskHook):
    """Raises when it sees a word."""

    def emit(self, info: EmitInfo) -> None:
        """Refuse a word."""
        if "stop" in info.values:
            raise ValueError("not this one")


def test_what_is_done_is_counted_exactly_by_component_and_stream() -> None:
    """S74: nothing is sampled."""
    counts = run(two_steps("all"), [b"a b", b"c"], print).outcome.counts
    bolt, again, lines = StreamId("bolt"), StreamId("again"), StreamId("lines")
    assert {counted: measure.tuples for counted, measure in counts.items()} == {
        Counted(What.EMITTED, "lines", lines): 2,
        Counted(What.TRANSFERRED, "lines", lines): 2,
        Counted(What.EXECUTED, "bolt", lines): 2,
        Counted(What.ACKED, "bolt", lines): 2,
        Counted(What.EMITTED, "bolt", bolt): 3,
        Counted(What.TRANSFERRED, "bolt", bolt): 9,
        Counted(What.EXECUTED, "again", bolt): 9,
        Counted(What.ACKED, "again", bolt): 9,
        Counted(What.EMITTED, "again", again): 9,
    }
    assert all(measure.total_ns > 0 for counted, measure in counts.items() if counted.what is What.ACKED)


def test_records_of_several_spouts_come_from_the_spout_of_their_input() -> None:
    builder = TopologyBuilder()
    builder.set_spout("others", TOPICS, "more")
    builder.set_spout("lines", TOPICS, "lines")
    seen = builder.set_bolt("seen", Where())
    seen.shuffle_grouping("others").shuffle_grouping("lines")
    assert run(builder, [b"x"], print).values == [("lines/default", f"{SOURCE >> 16}")]


class Where(BasicBolt):
    """Says where a tuple came from."""

    output = "stream string, input string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit it."""
        source = f"{tuple.source_component}/{tuple.source_stream}"
        collector.emit((source, str(tuple.message_id.root.source >> 16)))


class Bad(BasicBolt):
    """Passes lines on, but fails what begins with a capital."""

    output = "word string"
    seen: ClassVar[list[str]] = []

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """See a line."""
        word = tuple["value"].decode() if "value" in tuple else tuple["word"]
        self.seen.append(word)
        if word[1:].isupper():
            raise ValueError(word)
        collector.emit((word,))


def test_in_order_a_bolt_of_a_topology_does_not_see_what_stands_behind_a_record_that_failed() -> None:
    """By key, which is a line's first letter; in the bolt that fails and in those behind it."""
    lines = [b"a0", b"aX", b"b1", b"a2", b"b3"]
    compiled = one_bolt(Bad()).compile(schema_of, print, cores=1)
    [stage] = stages_of(compiled)
    worker = StageRun(stage, BoltContext(stage.name, 0, 5))
    gate = Gate("lines/0", "lines", LineUp("key"))
    assert all(gate.admit(n, line[:1], n) is None for n, line in enumerate(lines))
    worker.gate = gate
    positions = np.arange(len(lines))
    rows = MessageRows([record(line, n) for n, line in enumerate(lines)], SOURCE, positions)
    Bad.seen.clear()
    worker.feed(rows, Anchors(AnchorForm.PACKED, pa.array(positions << ORDINAL_BITS)))
    worker.gate = None
    worker.finish()
    assert Bad.seen == ["a0", "aX", "b1", "b3"]
    report = worker.report()
    failed = {(c.error, without_code_line(c.message)[0]): roots.tolist() for c, roots in failures_in(report)}
    assert failed == {("ValueError", "aX"): [1], ("HELD", "waits for lines/0@1"): [3]}
    executed = report.counts[Counted(What.EXECUTED, "bolt", StreamId("lines"))]
    assert executed.tuples == 4
