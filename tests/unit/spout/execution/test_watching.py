"""What bolts on DataFrames do is counted exactly, and their hooks see it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np
import pyarrow as pa

from spout.bolts.bolts import AnyBolt, ArrowBolt, BasicBolt, BatchCollector, Bolt
from spout.bolts.collectors import BasicCollector, OutputCollector
from spout.bolts.hooks import AckInfo, BoltContext, EmitInfo, ExecuteInfo, FailInfo, TaskHook
from spout.execution.stage_run import StageRun
from spout.publishing.blob import decode, encode
from spout.topology.chain import Chain, Step
from spout.topology.stage_pass import StagePass
from spout.tuples.anchors import ORDINAL_BITS, AnchorForm, Anchors
from spout.tuples.counts import TIME_BOUNDS_NS, Counted, Counts, Measure, What, count_of, sum_of_counts
from spout.tuples.failures import Cause
from spout.tuples.rows import ArrowRows
from spout.tuples.tuple import SPARK, Rows, StreamId, Tuple
from tests.support.reports import failures_in

WORD = pa.schema([("word", pa.string())])
CONTEXT = BoltContext("pass", 2, 9)
MS = 1_000_000


class Split(BasicBolt):
    """Splits a line; ``bad`` fails it, ``odd`` is reported, a number does not fit."""

    output = "value string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit each word, also those of a line that fails then."""
        for word in tuple[0].split():
            collector.emit([7 if word == "7" else word])
            if word == "odd":
                collector.report_error("an odd word")
            if word == "bad":
                raise ValueError("a bad word")


class Upper(ArrowBolt):
    """Emits each word twice; the first row fails twice."""

    output = "value string"

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit, then fail."""
        rows = np.arange(batch.num_rows)
        for _ in range(2):
            collector.emit([batch.column(0)], rows)
            collector.fail(0, "first")


class Hold(Bolt):
    """Holds lines up to the end of the task; ``bad`` fails, ``now`` is acked at once, ``forget`` never."""

    output = "value string"

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Begin with none."""
        self._collector = collector
        self._held: list[Tuple] = []

    def execute(self, tuple: Tuple) -> None:
        """Do as the line says."""
        if tuple["line"] == "bad":
            raise ValueError("bad")
        if tuple["line"] == "now":
            self._collector.emit(["now"], anchors=tuple)
            self._collector.ack(tuple)
        elif tuple["line"] != "forget":
            self._held.append(tuple)

    def cleanup(self) -> None:
        """Emit one word for all that are held."""
        self._collector.report_error("the end")
        self._collector.emit(["held"], anchors=self._held)
        for held in self._held:
            self._collector.ack(held)


class Log(TaskHook):
    """Writes down what it sees; `refuses` is a word whose emission it does not bear."""

    def __init__(self, refuses: str = "") -> None:
        self.seen: list[tuple[object, ...]] = []
        self.refuses = refuses

    def prepare(self, context: BoltContext) -> None:
        self.seen.append(("prepare", context.name, context.partition, context.batch_id))

    def emit(self, info: EmitInfo) -> None:
        self.seen.append(("emit", *info.values, info.stream, info.deliveries))
        if self.refuses in info.values:
            raise RuntimeError("refused")

    def execute(self, info: ExecuteInfo) -> None:
        self.seen.append(("execute", info.tuple[0]))

    def ack(self, info: AckInfo) -> None:
        self.seen.append(("ack", info.tuple[0]))

    def fail(self, info: FailInfo) -> None:
        self.seen.append(("fail", info.tuple[0], info.cause.error))

    def cleanup(self) -> None:
        self.seen.append(("cleanup",))


def lines(*texts: str) -> ArrowRows:
    """Make rows of one column, ``line``."""
    return ArrowRows(pa.RecordBatch.from_pydict({"line": list(texts)}))


def packed(rows: Rows) -> Anchors:
    """Anchor each row on a root of its own."""
    return Anchors(AnchorForm.PACKED, pa.array(np.arange(len(rows)) << ORDINAL_BITS))


def pass_of(*bolts: AnyBolt, hooks: Sequence[TaskHook] = (), consumer: str = "") -> StagePass:
    """Make a tracked pass; the hooks watch its first bolt."""
    steps = [Step(type(each).__name__, each, WORD) for each in bolts]
    steps[0] = steps[0]._replace(hooks=tuple(hooks))
    carry = AnchorForm.HOPS if any(isinstance(each, Bolt) for each in bolts) else AnchorForm.PACKED
    return Chain(tuple(steps), arriving_form=AnchorForm.PACKED, leaving_form=carry, consumer=consumer).stage


def tuples(counts: Counts) -> dict[str, int]:
    """Return how many tuples each thing was counted for, by component, thing and source."""
    return {f"{of.component} {of.what} {of.stream}": measure.tuples for of, measure in counts.items()}


def test_what_a_pass_does_is_counted_by_bolt_and_source() -> None:
    """S74: each tuple once, those of a failed call as failed, and what such a call emitted not at all."""
    run = StageRun(pass_of(Split(), Upper()), CONTEXT)
    for texts in (["a b", "c bad", "d d"], ["e"]):
        run.feed(lines(*texts), packed(lines(*texts)))
    run.finish()
    assert tuples(decode(encode(run.report())).counts) == {
        "Split executed spark": 4,
        "Split acked spark": 3,
        "Split failed spark": 1,
        "Split emitted Split": 5,
        "Split transferred Split": 5,
        "Upper executed Split": 5,
        "Upper acked Split": 3,
        "Upper failed Split": 2,
        "Upper emitted Upper": 6,
    }


def test_a_tuple_whose_emission_does_not_fit_the_output_is_counted_as_failed() -> None:
    run = StageRun(pass_of(Split(), consumer="count"), CONTEXT)
    run.feed(lines("a 7", "b"), packed(lines("a 7", "b")))
    assert tuples(run.report().counts) == {
        "Split executed spark": 2,
        "Split acked spark": 1,
        "Split failed spark": 1,
        "Split emitted Split": 1,
        "Split transferred Split": 1,
    }


def test_a_rich_bolt_is_counted_when_it_settles_a_tuple_in_its_cleanup_too() -> None:
    """What it forgets was executed, and neither acked nor failed."""
    run = StageRun(pass_of(Hold(), Split(), consumer="count"), CONTEXT)
    texts = lines("a", "now", "bad", "forget", "b")
    run.feed(texts, packed(texts))
    run.finish()
    report = run.report()
    assert tuples(report.counts) == {
        "Hold executed spark": 5,
        "Hold acked spark": 3,
        "Hold failed spark": 1,
        "Hold emitted Hold": 2,
        "Hold transferred Hold": 2,
        "Split executed Hold": 2,
        "Split acked Hold": 2,
        "Split emitted Split": 2,
        "Split transferred Split": 2,
    }
    assert report.errors == (Cause("Hold", "", "the end"),)


def test_what_a_basic_bolt_reports_is_kept_and_fails_nothing() -> None:
    run = StageRun(pass_of(Split()), CONTEXT)
    run.feed(lines("odd", "a"), packed(lines("odd", "a")))
    report = run.report()
    assert report.errors == (Cause("Split", "", "an odd word"),)
    assert failures_in(report) == ()


def test_times_are_those_of_execute_and_shared_by_what_became_of_the_tuples() -> None:
    """A batch that takes 8 ms for four tuples, one of which fails: 6 ms of acked ones, 2 of the failed."""
    clock = iter((100 * MS, 108 * MS))
    run = StageRun(pass_of(Split()), CONTEXT, clock_ns=lambda: next(clock))
    run.feed(lines("a", "b", "bad", "d"), packed(lines("a", "b", "bad", "d")))
    assert {of.what: measure for of, measure in run.report().counts.items() if measure.total_ns} == {
        What.EXECUTED: Measure(4, 8 * MS, ((bisect_left(TIME_BOUNDS_NS, 2 * MS), 4),)),
        What.ACKED: Measure(3, 6 * MS),
        What.FAILED: Measure(1, 2 * MS),
    }


def test_each_tuple_counts_with_the_mean_time_of_the_rows_that_it_was_timed_with() -> None:
    """Two batches of one run, 2 ms and 50 ms a tuple; a second report begins anew."""
    clock = iter((0, 8 * MS, 10 * MS, 110 * MS, 120 * MS, 121 * MS))
    run = StageRun(pass_of(Split()), CONTEXT, clock_ns=lambda: next(clock))
    for texts in (["a", "b", "c", "d"], ["e", "f"]):
        run.feed(lines(*texts), packed(lines(*texts)))
    first = decode(encode(run.pop_report())).counts
    run.feed(lines("g"), packed(lines("g")))
    second = decode(encode(run.pop_report())).counts
    executed = Counted(What.EXECUTED, "Split", SPARK)
    ms = {number * MS: bisect_left(TIME_BOUNDS_NS, number * MS) for number in (1, 2, 50)}
    assert first[executed].times == ((ms[2 * MS], 4), (ms[50 * MS], 2))
    assert second[executed].times == ((ms[MS], 1),)
    both = sum_of_counts([first, second])[executed]
    assert both == Measure(7, 109 * MS, ((ms[MS], 1), (ms[2 * MS], 4), (ms[50 * MS], 2)))
    assert all(TIME_BOUNDS_NS[at - 1] < each <= TIME_BOUNDS_NS[at] for each, at in ms.items())


def ticking(step_ms: int) -> Iterator[int]:
    """A clock that goes on by so much whenever it is read."""
    return count(0, step_ms * MS)


def test_the_time_of_a_rich_bolts_tuple_ends_with_its_ack() -> None:
    """The clock is read when rows arrive, when a tuple begins, at its ack, and when all were executed."""
    clock = ticking(1)
    run = StageRun(pass_of(Hold()), CONTEXT, clock_ns=lambda: next(clock))
    texts = lines("a", "now")
    run.feed(texts, packed(texts))
    run.finish()
    counts = run.report().counts
    # the rows arrive at 0; a: begun at 1; now: begun at 2, acked at 3; the end at 4; a acked at 5
    assert counts[Counted(What.EXECUTED, "Hold", SPARK)][:2] == (2, 4 * MS)
    assert counts[Counted(What.ACKED, "Hold", SPARK)] == Measure(2, (3 - 2 + 5 - 1) * MS)


def test_hooks_see_a_basic_bolts_tuples_in_the_order_in_which_things_happen() -> None:
    hook = Log()
    run = StageRun(pass_of(Split(), Upper(), hooks=[hook]), CONTEXT)
    run.feed(lines("a b", "bad"), packed(lines("a b", "bad")))
    run.finish()
    assert hook.seen == [
        ("prepare", "Split", 2, 9),
        ("emit", "a", "default", 1),
        ("emit", "b", "default", 1),
        ("ack", "a b"),
        ("execute", "a b"),
        ("emit", "bad", "default", 1),
        ("fail", "bad", "ValueError"),
        ("cleanup",),
    ]
    assert count_of(run.report().counts, "acked", "Split") == 1


def test_what_a_hook_raises_fails_the_input_that_the_bolt_works_on() -> None:
    hook = Log(refuses="b")
    run = StageRun(pass_of(Split(), hooks=[hook]), CONTEXT)
    out = run.feed(lines("a", "b", "c"), packed(lines("a", "b", "c")))
    assert out.column("word").to_pylist() == ["a", "c"]
    [(cause, roots)] = failures_in(run.report())
    assert (cause.operator, cause.error, roots.tolist()) == ("Split", "RuntimeError", [1])
    assert cause.message.startswith("refused (test_watching.py:")


def test_hooks_see_each_row_of_an_arrow_bolt() -> None:
    hook = Log()
    run = StageRun(pass_of(Upper(), hooks=[hook]), CONTEXT)
    run.feed(lines("a", "b"), packed(lines("a", "b")))
    assert hook.seen[1:] == [
        ("emit", "b", "default", 0),
        ("emit", "b", "default", 0),
        ("ack", "b"),
        ("fail", "a", ""),
    ]


def test_what_a_hook_of_an_arrow_bolt_raises_fails_the_batch_as_what_the_bolt_raises() -> None:
    hook = Log(refuses="b")
    run = StageRun(pass_of(Upper(), hooks=[hook]), CONTEXT)
    out = run.feed(lines("a", "b"), packed(lines("a", "b")))
    assert out.num_rows == 0
    assert hook.seen[1:] == [
        ("emit", "b", "default", 0),
        ("fail", "a", "RuntimeError"),
        ("fail", "b", "RuntimeError"),
    ]


def test_hooks_see_what_a_rich_bolt_settles_by_hand() -> None:
    hook = Log()
    run = StageRun(pass_of(Hold(), hooks=[hook]), CONTEXT)
    texts = lines("a", "now", "bad")
    run.feed(texts, packed(texts))
    run.finish()
    assert hook.seen[1:] == [
        ("execute", "a"),
        ("emit", "now", "default", 0),
        ("ack", "now"),
        ("execute", "now"),
        ("fail", "bad", "ValueError"),
        ("emit", "held", "default", 0),
        ("ack", "a"),
        ("cleanup",),
    ]


def test_a_bolt_may_add_a_hook_when_it_is_prepared() -> None:
    hook = Log()

    class Watched(Split):
        def prepare(self, context: BoltContext) -> None:
            context.add_hook(hook)

    StageRun(pass_of(Watched()), CONTEXT).feed(lines("a"), packed(lines("a")))
    assert [what for what, *_ in hook.seen] == ["emit", "ack", "execute"]


def test_counts_of_one_source_are_told_from_those_of_another() -> None:
    counts = {
        Counted(What.ACKED, "join", StreamId("left")): Measure(2),
        Counted(What.ACKED, "join", StreamId("right", "errors")): Measure(3),
        Counted(What.FAILED, "join", StreamId("left")): Measure(5),
    }
    assert count_of(counts, "acked", "join") == 5
    assert count_of(counts, "acked", "join", "right") == 3
