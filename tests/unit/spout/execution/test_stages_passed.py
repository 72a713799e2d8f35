"""Rows that pass from stage to stage: to the bolt that reads them, past stages that do not, to the sink."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import spout
from acker.errors import BoltStopped
from acker.identity import position_at
from spout.bolts.hooks import BoltContext
from spout.builder.topology import TopologyBuilder
from spout.execution.stage_run import StageRun
from spout.planning.order import Gate, LineUp
from spout.topology.chain import Chain, Step
from spout.tuples.anchors import ORDINAL_BITS, AnchorForm, Anchors
from spout.tuples.columns import ANCHOR, ROOT, TO
from spout.tuples.counts import What
from spout.tuples.messages import MessageRows
from spout.tuples.rows import ArrowRows
from tests.support.outcomes import failed_by_cause, older_failed, open_roots_of
from tests.support.worlds.keyed_world import KeyedQuery
from tests.support.worlds.topology_world import (
    SOURCE,
    TOPICS,
    Ran,
    record,
    run,
    schema_of,
    stages_of,
)


class Split(spout.BasicBolt):
    """Emits the words of a line."""

    output = "word string"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit each word."""
        for word in tuple["value"].decode().split():
            collector.emit((word,))


class Keep(spout.BasicBolt):
    """Passes words on, with where they came from and the task; fails those that say so."""

    output = "word string, came_from string, task int"

    def prepare(self, context: spout.BoltContext) -> None:
        """Keep the task."""
        self._task = context.partition

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit the word."""
        came_from = tuple.source_component
        if tuple["word"] == f"bad-{came_from}":
            raise ValueError(tuple["word"])
        collector.emit((tuple["word"], came_from, self._task))


class Sum(spout.KeyedBolt):
    """Holds words."""

    output = "word string"

    def execute(self, key: Any, held: Any, collector: spout.KeyedCollector) -> None:
        """Hold on."""


def chain_of_stages() -> TopologyBuilder:
    """Make a topology of three stages; the last bolt reads the first one's stream, too."""
    builder = TopologyBuilder()
    builder.set_spout("lines", TOPICS, "lines")
    builder.set_bolt("split", Split()).shuffle_grouping("lines")
    builder.set_bolt("keep", Keep(), 3).fields_grouping("split", "word")
    last = builder.set_bolt("last", Keep(), 2)
    last.fields_grouping("keep", "word").fields_grouping("split", "word")
    return builder


LINES = [b"a b c", b"b d", b"", b"e a"]
WORDS = Counter(b" ".join(LINES).decode().split())


def rows_by_output(ran: Ran) -> dict[int, list[tuple[Any, ...]]]:
    """Return the rows of the sink by the number of its output."""
    rows: dict[int, list[tuple[Any, ...]]] = {}
    for batch in ran.rows:
        for row in batch.to_pylist():
            [values] = [values for name, values in row.items() if name != TO and values is not None]
            rows.setdefault(row[TO], []).append(tuple(values.values()))
    return rows


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("tasks", [1, 3])
def test_the_sink_gets_the_streams_of_all_stages_and_each_bolt_what_it_reads(
    tracked: bool, tasks: int
) -> None:
    """Also where a stage between does not read them; each row comes once."""
    sink: Any = {"split": print, "keep": print, "last": print}
    ran = run(chain_of_stages(), LINES, sink, tasks=tasks, tracked=tracked)
    by_size: dict[int, Counter[tuple[Any, ...]]] = {}
    for rows in rows_by_output(ran).values():
        came_from = {row[1] for row in rows} if len(rows[0]) > 1 else set()
        by_size[len(came_from)] = Counter(row[:2] for row in rows)
    assert by_size == {
        0: Counter({(word,): count for word, count in WORDS.items()}),
        1: Counter({(word, "split"): count for word, count in WORDS.items()}),
        2: Counter({(word, name): count for word, count in WORDS.items() for name in ("split", "keep")}),
    }
    assert not failed_by_cause(ran.outcome)
    if tracked:
        assert not len(open_roots_of(ran.outcome))


def test_a_sink_of_one_stream_gets_bare_rows_from_whichever_stage() -> None:
    for name in ("split", "keep", "last"):
        ran = run(chain_of_stages(), LINES, {name: print})  # type: ignore[dict-item]  # any function does
        words = Counter(row[0] for row in ran.values)
        assert words == (WORDS if name != "last" else WORDS + WORDS)
        assert all(TO not in batch.schema.names for batch in ran.rows)


@pytest.mark.parametrize("name", ["keep", "split"])
def test_a_root_fails_by_the_one_way_on_which_its_tuple_failed(name: str) -> None:
    """The other copy of the word is worked on."""
    ran = run(chain_of_stages(), [b"a", f"bad-{name} b".encode(), b"c"], print)
    [(cause, roots)] = failed_by_cause(ran.outcome)
    assert roots.tolist() == [1]
    # "keep" reads it from "split" first
    assert cause.operator == ("keep" if name == "split" else "last")


def test_a_bolt_runs_in_so_many_tasks_of_its_stage_as_it_has() -> None:
    """Another bolt of the stage may have more."""
    prepared: list[tuple[str, int]] = []

    class Noted(Keep):
        def prepare(self, context: spout.BoltContext) -> None:
            prepared.append((context.name, context.partition))
            super().prepare(context)

    builder = TopologyBuilder()
    builder.set_spout("lines", TOPICS, "lines")
    builder.set_bolt("split", Split()).shuffle_grouping("lines")
    for component, tasks in (("two", 2), ("three", 3)):
        builder.set_bolt(component, Noted(), tasks).fields_grouping("split", "word")
    sink: Any = {"two": print, "three": print}
    compiled = builder.compile(schema_of, sink, cores=1)
    stage = stages_of(compiled)[1]
    assert compiled.layout.partitions[1] == 3
    for task in range(3):
        StageRun(stage, BoltContext(stage.name, task, 5))
    assert sorted(prepared) == [*(("three", task) for task in range(3)), ("two", 0), ("two", 1)]


def test_a_stage_has_the_gate_that_it_was_given_last() -> None:
    [stage] = stages_of(one_stage().compile(schema_of, print, cores=1))
    worker = StageRun(stage, BoltContext(stage.name, 0, 5))
    assert worker.gate is None
    gates = [Gate(f"lines/{number}", "lines", LineUp("key")) for number in range(2)]
    for gate in (*gates, None):
        worker.gate = gate
        assert worker.gate is gate


def one_stage() -> TopologyBuilder:
    """Make a topology whose bolt is behind its spout."""
    builder = TopologyBuilder()
    builder.set_spout("lines", TOPICS, "lines")
    builder.set_bolt("split", Split()).shuffle_grouping("lines")
    return builder


class ReachedKeyedBolt(Exception):
    """The rows are there that Spark groups by key."""


@pytest.mark.parametrize("stages_before", [1, 2])
def test_rows_before_a_keyed_bolt_name_their_roots_by_source_and_position(
    stages_before: int,
) -> None:
    """It holds them beyond their batch, whose plan has them by index."""
    builder = one_stage()
    before = "split"
    if stages_before == 2:
        builder.set_bolt("keep", Keep(), 3).fields_grouping("split", "word")
        before = "keep"
    builder.set_bolt("sum", Sum()).fields_grouping(before, "word")
    lines = [b"a b", b"c", b"d e f"]
    rows: list[dict[str, Any]] = []

    def read_rows(_stage: object, _compiled: object, batches: list[pa.RecordBatch]) -> Any:
        rows.extend(row for batch in batches for row in batch.to_pylist())
        raise ReachedKeyedBolt

    with pytest.raises(ReachedKeyedBolt):
        run(builder, lines, None, first=40, entry=read_rows)
    position_by_word: dict[str, tuple[int, int]] = {}
    for row in rows:
        [values] = [values for name, values in row.items() if name.startswith("s")]
        position_by_word[values["word"]] = (row[ROOT]["source"], row[ROOT]["position"])
        assert row[ANCHOR], "it has its places, too"
    assert position_by_word == {
        word: (SOURCE, position_at(0, 40 + number))
        for number, line in enumerate(lines)
        for word in line.decode().split()
    }


def test_a_stage_is_fed_what_it_works_on_and_nothing_else() -> None:
    """Its first one gets records, a later one rows of the stage before."""
    compiled = chain_of_stages().compile(schema_of, print, cores=1)
    stages = stages_of(compiled)
    worker = StageRun(stages[1], BoltContext(stages[1].name, 0, 5))
    rows: Any = spout.tuple_of({"word": "a"})
    with pytest.raises(TypeError, match="a stage is fed messages or Arrow rows, not Tuple"):
        worker.feed(rows, None)


def test_what_is_received_and_sent_is_compared_from_stage_to_stage() -> None:
    """By fingerprints, which the driver adds up over all tasks."""
    ran = run(chain_of_stages(), LINES, print)
    sent: Counter[str] = Counter()
    received: Counter[str] = Counter()
    for evaluated in ran.evaluated:
        report: Any = getattr(evaluated, "report", evaluated)
        sent[report.consumer] += report.sent_fingerprint.rows
        received[report.operator] += report.received_fingerprint.rows
    sent.pop("", None)
    assert sum(sent.values()) > sum(WORDS.values())
    for consumer, rows in sent.items():
        [of_consumer] = [count for name, count in received.items() if name.split("+")[0] == consumer]
        assert of_consumer == rows


@pytest.mark.parametrize("outputs", [("one", "two"), ("one", "two", "split")])
def test_rows_of_several_destinations_may_come_in_one_batch(outputs: tuple[str, ...]) -> None:
    """Those of a bundle have one; whatever they come in, each bolt gets its own."""
    builder = one_stage()
    for component in ("one", "two"):
        builder.set_bolt(component, Keep(), 2).fields_grouping("split", "word")
    sink: Any = dict.fromkeys(outputs, print)
    first, second = stages_of(builder.compile(schema_of, sink, cores=1))
    worker = StageRun(first, BoltContext(first.name, 0, 5))
    messages = [record(line, number) for number, line in enumerate([b"a b", b"c"])]
    positions = np.arange(2)
    anchors = Anchors(AnchorForm.PACKED, pa.array(positions << ORDINAL_BITS))
    left = [worker.feed(MessageRows(messages, SOURCE, positions), anchors), *worker.finish()]
    rows_sent: list[dict[str, Any]] = []
    schema: pa.Schema | None = None
    for bundles in left:
        for rows, places, *_ in second.arriving_rows(bundles):
            batch = rows if places is None else rows.append_column(ANCHOR, places.column())
            schema = batch.schema if schema is None else pa.unify_schemas([schema, batch.schema])
            rows_sent += batch.to_pylist()
    together = pa.RecordBatch.from_pylist(rows_sent, schema)
    assert len(set(together.column(TO).to_pylist())) == len(outputs)
    behind = StageRun(second, BoltContext(second.name, 0, 5))
    leaving = behind.feed(ArrowRows(together), None)
    by_output: Counter[tuple[int, str]] = Counter()
    for row in leaving.to_pylist():
        [values] = [values for name, values in row.items() if name != TO and isinstance(values, dict)]
        by_output[row[TO], values["word"]] += 1
    assert {word for _, word in by_output} == {"a", "b", "c"}
    assert (len(by_output), set(by_output.values())) == (3 * len(outputs), {1})
    assert not behind.report().outstanding


class Late(spout.Bolt):
    """Holds its tuples, and emits them in its cleanup."""

    output = "word string"

    def prepare(self, context: spout.BoltContext, collector: spout.OutputCollector) -> None:
        """Begin without tuples."""
        self._collector = collector
        self._held: list[spout.Tuple] = []

    def execute(self, tuple: spout.Tuple) -> None:
        """Hold it."""
        self._held.append(tuple)

    def cleanup(self) -> None:
        """Emit and ack all."""
        for held in self._held:
            self._collector.emit((held["word"],), anchors=held)
            self._collector.ack(held)


def chain_of(bolt: Any, **about: Any) -> StageRun:
    """Begin a task of a bolt on a DataFrame."""
    chain = Chain((Step("it", bolt, pa.schema([("word", pa.string())])),), **about)
    return StageRun(chain.stage, BoltContext("it", 0, 5))


def test_untracked_a_bolt_holds_rows_of_a_dataframe_that_have_no_places() -> None:
    task = chain_of(Late())
    rows = ArrowRows(pa.record_batch({"word": ["a", "b"]}))
    assert task.feed(rows, None).num_rows == 0
    [left] = task.finish()
    assert left.column("word").to_pylist() == ["a", "b"]
    assert not task.report().outstanding


@pytest.mark.parametrize("upstream", ["", "before"])
def test_what_a_dataframe_brings_is_compared_with_what_an_operator_has_sent(upstream: str) -> None:
    """Of what comes from the source nobody has sent anything."""
    task = chain_of(Late(), arriving_form=AnchorForm.PACKED, upstream=upstream)
    anchors = Anchors(AnchorForm.PACKED, pa.array(np.arange(2) << ORDINAL_BITS))
    task.feed(ArrowRows(pa.record_batch({"word": ["a", "b"]})), anchors)
    task.finish()
    assert task.report().received_fingerprint.rows == (2 if upstream else 0)


class Forward(spout.Bolt):
    """Passes lines on, anchored or not as the line says."""

    output = "word string"

    def prepare(self, context: spout.BoltContext, collector: spout.OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: spout.Tuple) -> None:
        """Emit and ack."""
        line = tuple["value"].decode()
        self._collector.emit((line,), anchors=tuple if line != "unanchored" else ())
        self._collector.ack(tuple)


class Origin(spout.BasicBolt):
    """Says of which record a word is."""

    output = "word string, origin string"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Emit both."""
        collector.emit((tuple["word"], tuple.message_id.origin))


def test_behind_a_rich_bolt_a_tuple_has_the_message_id_of_its_first_anchor() -> None:
    """In the same task. One without an anchor has none, which is a mistake in the topology."""
    builder = TopologyBuilder()
    builder.set_spout("lines", TOPICS, "lines")
    builder.set_bolt("forward", Forward()).shuffle_grouping("lines")
    builder.set_bolt("origin", Origin()).local_or_shuffle_grouping("forward")
    ran = run(builder, [b"a", b"b"], print, first=40, tasks=1)
    assert ran.values == [("a", "lines/0@40"), ("b", "lines/0@41")]
    with pytest.raises(BoltStopped, match="message_id is known in the bolts directly behind"):
        run(builder, [b"unanchored"], print)


class Pairs(spout.KeyedBolt):
    """Emits a word once it holds two of it, and acks them."""

    output = "word string"

    def execute(self, key: Any, held: Any, collector: spout.KeyedCollector) -> None:
        """Emit it."""
        if len(held) > 1:
            collector.emit(key, anchors=held)
            collector.ack(*held)


@pytest.mark.parametrize("parallelism", [None, 3])
def test_behind_a_keyed_bolt_a_tuple_fails_or_acks_the_roots_of_all_that_it_was_made_of(
    parallelism: int | None,
) -> None:
    """In its own stage and behind a shuffle; roots of earlier batches are named by source and position."""
    builder = one_stage()
    builder.set_bolt("pairs", Pairs()).fields_grouping("split", "word")
    builder.set_bolt("pass", Keep()).shuffle_grouping("pairs")
    builder.set_bolt("last", Keep(), parallelism).shuffle_grouping("pass")
    sink: Any = {"pass": print, "last": print}
    query = KeyedQuery(builder, sink)
    assert rows_by_output(query.batch(b"a bad-pass", b"c")) == {}
    ran = query.batch(b"a", b"bad-pass", b"c")
    words = sorted(
        sorted((word, came_from) for word, came_from, _ in rows) for rows in rows_by_output(ran).values()
    )
    assert words == [
        [("a", "pairs"), ("bad-pass", "pairs"), ("c", "pairs")],
        [("a", "pass"), ("c", "pass")],
    ]
    [(cause, roots)] = failed_by_cause(ran.outcome)
    assert (cause.operator, roots.tolist()) == ("last", [1])
    [(older_cause, older_roots)] = older_failed(ran.outcome).items()
    assert (older_cause, older_roots[SOURCE]) == (cause, [0])
    assert not len(open_roots_of(ran.outcome))
    counts = {
        (counted.component, counted.what): measure.tuples for counted, measure in ran.outcome.counts.items()
    }
    assert counts["pass", What.EXECUTED] == counts["pass", What.EMITTED] == 3
    assert (counts["last", What.ACKED], counts["last", What.FAILED]) == (2, 1)
