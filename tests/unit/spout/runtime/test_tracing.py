"""Spans of OpenTelemetry: for records with a trace context, where an SDK is configured; else nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Message
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import spout
from acker.identity import copies_source, position_at, root_edges, source_of
from acker.kafka.port import Outgoing, Record
from acker.ledger.cohort import InitEmission, Session
from acker.ledger.verdicts import VerdictSet
from acker.service.service import AckerService
from acker.wire.events import TRACES, pack_root_numbers
from replay.handling.letter_handling import CHUNK_MAX, Order, RateLimit
from replay.handling.redrive import Redrive, RedriveLimits
from replay.records.letters import Filter, LetterAction
from replay.worker.report import Written
from spout.bolts.hooks import BoltContext
from spout.bolts.trace_hook import TraceHook
from spout.execution.stage_run import StageRun
from spout.planning.journal import BEGINNING, Journal, batch_ranges
from spout.planning.plan import BatchPlan
from spout.publishing.delayed import RootPositions
from spout.publishing.publish import BatchLane, Publisher, publication_of
from spout.publishing.root_marks import RootMarks
from spout.runtime.traced_tally import TracedTally
from spout.runtime.tracing import configured_spans, lost_root_spans, trace_ids, traceparent_in
from spout.topology.chain import Chain, Step
from spout.tuples.anchors import ORDINAL_BITS, AnchorForm, Anchors
from spout.tuples.counts import count_of
from spout.tuples.messages import MessageRows
from spout.tuples.rows import ArrowRows
from tests.support.outcomes import outcome_from
from tests.support.reports import failures_in
from tests.support.worlds.kestrel_world import KestrelWorld
from tests.support.worlds.planning import World as QueryWorld
from tests.support.worlds.planning import yaml_of
from tests.support.worlds.replay_world import World, topics

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01".encode()
WORD = pa.schema([("word", pa.string()), ("traceparent", pa.string())])
CONTEXT = BoltContext("pass", 0, 9)

EXPORTER = InMemorySpanExporter()


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    """Keep the spans of this process; a provider can be configured once in its life."""
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
        trace.set_tracer_provider(provider)
    EXPORTER.clear()
    yield EXPORTER
    EXPORTER.clear()


def facts(span: ReadableSpan) -> tuple[str, str, str]:
    """Return a span's name, its verdict or outcome, and the trace and span that it belongs to."""
    assert span.context is not None
    assert span.parent is not None
    of = f"{span.context.trace_id:032x}/{span.parent.span_id:016x}"
    return span.name, span.status.status_code.name, of


def written_spans() -> Written:
    """Return what a replay worker calls for each record that it has written."""
    spans = configured_spans()
    assert spans is not None
    return lost_root_spans(spans)


class Split(spout.BasicBolt):
    """Emits each word with the trace context of its line; ``bad`` fails it."""

    output = "value string"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        for word in tuple["value"].decode().split():
            if word == "bad":
                raise ValueError("a bad word")
            collector.emit((word, spout.traceparent(tuple)))


class Count(spout.BasicBolt):
    """Emits nothing."""

    output = "value string"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        pass


def records(
    *values: bytes, headers: list[tuple[str, bytes]] | None, traced: Sequence[int] = ()
) -> MessageRows:
    """Make records of sentences/3, from offset 1042 on, with the same headers; some have a trace context."""
    messages = [
        Message(
            topic="sentences", partition=3, offset=1_042 + at, key=None, value=value,
            headers=[("traceparent", TRACEPARENT)] if at in traced else headers, timestamp=(1, 1_000),
        )
        for at, value in enumerate(values)
    ]  # fmt: skip
    at = np.arange(len(values)) + position_at(0, 1_042)
    return MessageRows(messages, source_of(1, 3), at)


def run_bolts(rows: MessageRows, hook: TraceHook | None = None) -> StageRun:
    """Run two bolts on records, each with a hook."""
    steps = (
        Step("split", Split(), WORD, hooks=(hook or TraceHook(),)),
        Step("count", Count(), WORD, hooks=(TraceHook(),)),
    )
    run = StageRun(
        Chain(steps, arriving_form=AnchorForm.PACKED, leaving_form=AnchorForm.PACKED, consumer="").stage,
        CONTEXT,
    )
    run.feed(rows, Anchors(AnchorForm.PACKED, pa.array(np.arange(len(rows)) << ORDINAL_BITS)))
    run.finish()
    return run


def test_each_bolt_writes_a_span_in_the_trace_of_the_record(exporter: InMemorySpanExporter) -> None:
    """The second bolt has the context as a field that the first one has emitted."""
    run = run_bolts(records(b"the hawk", b"bad", headers=[("traceparent", TRACEPARENT)]))
    ((cause, _),) = failures_in(run.report())
    assert re.fullmatch(r"a bad word \(test_tracing\.py:\d+\)", cause.message), "the place is the bolt's"
    of = f"{TRACE}/{PARENT}"
    spans = exporter.get_finished_spans()
    assert sorted(map(facts, spans)) == [
        ("bolt count", "UNSET", of),
        ("bolt count", "UNSET", of),
        ("bolt split", "ERROR", of),
        ("bolt split", "UNSET", of),
    ]
    (failed,) = [each for each in spans if each.status.status_code.name == "ERROR"]
    assert failed.status.description == "ValueError"
    assert failed.attributes is not None
    assert failed.attributes["windhover.origin"] == "sentences/3@1043"
    assert failed.start_time is not None
    assert failed.end_time is not None
    assert failed.start_time <= failed.end_time


@pytest.mark.parametrize(
    "headers",
    [
        None,
        [("other", b"x")],
        [("traceparent", b"nonsense")],
        [("traceparent", b"00-" + 32 * b"0" + b"-b7ad6b7169203331-01")],
    ],
)
def test_a_record_without_a_trace_context_makes_no_span(
    exporter: InMemorySpanExporter, headers: list[tuple[str, bytes]] | None
) -> None:
    run_bolts(records(b"the hawk", headers=headers))
    assert exporter.get_finished_spans() == ()


def test_of_many_records_only_those_with_a_trace_context_are_watched(exporter: InMemorySpanExporter) -> None:
    """And what the bolt emits for them is the same."""
    rows = records(b"a b", b"the hawk", b"bad", b"c", headers=None, traced=[1])
    counts = run_bolts(rows).report().counts
    assert count_of(counts, "emitted", "split") == 5
    assert count_of(counts, "acked", "split") == 3
    names = [each.name for each in exporter.get_finished_spans()]
    assert names == ["bolt split", "bolt count", "bolt count"]


class Counted(TraceHook):
    """A hook of a user's own that sees more."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def execute(self, info: spout.ExecuteInfo) -> None:
        self.seen += 1


def test_a_hook_that_is_derived_sees_what_it_asks_for(exporter: InMemorySpanExporter) -> None:
    hook = Counted()
    run_bolts(records(b"the hawk", b"waits", headers=None), hook)
    assert hook.seen == 2
    assert exporter.get_finished_spans() == ()


def test_headers_as_a_column_of_spark_are_read_too() -> None:
    column = pa.array([[{"key": "traceparent", "value": TRACEPARENT}], None])
    rows = ArrowRows(pa.RecordBatch.from_arrays([column], names=["headers"]))
    assert spout.traceparent(spout.Tuple(rows, 0)) == TRACEPARENT.decode()
    assert spout.traceparent(spout.Tuple(rows, 1)) == ""


@pytest.mark.parametrize("own", ["text", 7, [1, 2], {"key": 1}, b"\xff"])
def test_a_field_of_that_name_with_something_else_in_it_is_no_trace_context(
    exporter: InMemorySpanExporter, own: object
) -> None:
    """A bolt may emit headers of its own; it would end the query, or fail where it asks for the context."""
    rows = ArrowRows(pa.record_batch({"headers": pa.array([own])}))
    assert spout.traceparent(spout.Tuple(rows, 0)) == ""
    step = Step("count", Count(), WORD, hooks=(TraceHook(),))
    run = StageRun(Chain((step,), arriving_form=AnchorForm.PACKED).stage, CONTEXT)
    run.feed(rows, Anchors(AnchorForm.PACKED, pa.array([0])))
    assert failures_in(run.report()) == ()
    assert exporter.get_finished_spans() == ()


def test_of_a_header_that_comes_twice_the_last_counts() -> None:
    other = TRACEPARENT.replace(b"0af7", b"1af7")
    assert traceparent_in((("traceparent", other), ("traceparent", TRACEPARENT))) == TRACEPARENT.decode()


def test_where_no_sdk_is_installed_a_hook_does_nothing_and_nothing_is_imported() -> None:
    program = (
        "import sys\n"
        "import spout.cli.main, spout.standalone.kafka_spout, spout.streaming.stream\n"
        "from spout.bolts.trace_hook import TraceHook\n"
        "from spout.bolts.hooks import BoltContext\n"
        "from spout.runtime.tracing import configured_spans\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
        "sys.modules['opentelemetry'] = None\n"
        "assert configured_spans() is None\n"
        "TraceHook().prepare(BoltContext('split', 0, 0))\n"
        "print('fine')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "fine\n", done.stderr


def test_where_nobody_has_configured_the_sdk_nothing_is_written() -> None:
    program = "from spout.runtime.tracing import configured_spans\nprint(configured_spans())\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "None\n", done.stderr


def test_a_spout_without_spark_writes_a_span_from_emission_to_verdict(exporter: InMemorySpanExporter) -> None:
    world = KestrelWorld(yaml_of(topic="lines"))
    producer = world.log.producer()
    producer.send(Outgoing("lines", 0, b"0", headers=(("traceparent", TRACEPARENT),)))
    producer.send(Outgoing("lines", 0, b"1"))
    producer.flush(1_000)
    spout_ = world.spout()
    client = spout_.client("a")
    for _ in range(30):
        if len(items := client.open(2)) == 2:
            break
        client.abort(items)
        world.run(100)
    assert client.confirm(items, wait_ms=0) == 2
    world.run(2_000)
    (span,) = exporter.get_finished_spans()
    assert facts(span) == ("spout sentences", "UNSET", f"{TRACE}/{PARENT}")
    assert span.attributes == {
        "windhover.input": "sentences",
        "windhover.verdict": "ACKED",
        "windhover.origin": "lines/0@0",
    }


def traced_world() -> QueryWorld:
    """Start an acker that writes spans, a planning process, and three records."""
    world = QueryWorld()
    spans = configured_spans()
    assert spans is not None
    assert world.acker is not None
    world.acker.close()
    settings = world.topics.acker
    world.acker = AckerService(
        world.cluster.log(), world.topics.ack_topics, settings.partitions, group=settings.group,
        tally=TracedTally(spans, world.topics.inputs.values()),
    )  # fmt: skip
    world.produce(3)
    return world


def publish(world: QueryWorld, start: Journal, end: Journal, seq: int = 0, **outcome: Any) -> None:
    """Publish a batch of a query as its driver does."""
    plan = BatchPlan("g", end.session, end.epoch, 3, end.now, 4_000, True, batch_ranges(start, end))
    publisher = Publisher(world.cluster.log, world.topics.ack_topics)
    publisher.publish(publication_of(outcome_from(plan, **outcome), BatchLane("q/s", seq)), 3)
    publisher.close()


def traces_of(source: int, *positions: int) -> RootMarks:
    ids = trace_ids([("traceparent", TRACEPARENT)])
    places = RootPositions(np.full(len(positions), source), np.array(positions))
    return RootMarks.of_traces(places, np.array([ids] * len(positions)))


def test_an_acker_writes_a_span_of_a_traced_record_that_a_query_of_spark_acked(
    exporter: InMemorySpanExporter,
) -> None:
    """From its emission to the verdict; the other two records are acked in the same step, and have none."""
    world = traced_world()
    planner = world.ready()
    emitted_ms = world.now_ms
    end = planner.plan(BEGINNING, None, world.now_ms)
    world.run(1_000)
    assert exporter.get_finished_spans() == ()
    publish(world, BEGINNING, end, traces=traces_of(source_of(1, 0), 1))
    world.run(1_000)
    (span,) = exporter.get_finished_spans()
    assert facts(span) == ("spout sentences", "UNSET", f"{TRACE}/{PARENT}")
    assert span.attributes == {
        "windhover.input": "sentences",
        "windhover.verdict": "ACKED",
        "windhover.origin": "sentences/0@1",
    }
    assert span.start_time == emitted_ms * 1_000_000
    assert span.end_time is not None
    assert 1_000 <= (span.end_time - span.start_time) // 1_000_000 <= 2_000


def test_the_span_of_a_record_that_was_held_comes_with_the_batch_that_acks_it(
    exporter: InMemorySpanExporter,
) -> None:
    world, source = traced_world(), source_of(1, 0)
    end = world.ready().plan(BEGINNING, None, world.now_ms)
    every = np.arange(3)
    edges = root_edges(source, every)
    publish(world, BEGINNING, end, partial=every, residual=edges, traces=traces_of(source, 1))
    world.run(1_000)
    assert exporter.get_finished_spans() == ()
    publish(world, end, end, seq=1, released={source: (every, edges)})
    world.run(1_000)
    assert [facts(each)[0] for each in exporter.get_finished_spans()] == ["spout sentences"]


def test_an_acker_keeps_the_traces_of_so_many_open_roots_at_most(
    exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spout.runtime.traced_tally.TRACED_ROOTS_MAX", 2)
    world, source = traced_world(), source_of(1, 0)
    end = world.ready().plan(BEGINNING, None, world.now_ms)
    publish(world, BEGINNING, end, traces=traces_of(source, 0, 1, 2))
    world.run(1_000)
    origins = [(each.attributes or {})["windhover.origin"] for each in exporter.get_finished_spans()]
    assert sorted(map(str, origins)) == ["sentences/0@1", "sentences/0@2"]


def test_an_acked_copy_has_a_span_in_the_trace_of_its_record(exporter: InMemorySpanExporter) -> None:
    spans = configured_spans()
    assert spans is not None
    tally, settled, copies = TracedTally(spans, topics().inputs.values()), VerdictSet(), copies_source(65_536)
    traces = traces_of(copies, 7, 9)
    value = pack_root_numbers(copies, traces.positions[::3], traces.values.reshape(-1, 3))
    tally.record_headers([Record("_ack_ack", 0, 0, None, b"", ((TRACES, value), (TRACES, b"garbage")))])
    emission = InitEmission(Session("g", 1, "s"), "sentences", "t", 0, 1_000, 4_000)
    settled.ack(emission, copies, 0, np.array([3, 9, 12]))
    tally.add([settled], 5_000)
    (span,) = exporter.get_finished_spans()
    assert facts(span) == ("spout sentences", "UNSET", f"{TRACE}/{PARENT}")
    assert span.attributes == {"windhover.input": "sentences", "windhover.verdict": "ACKED"}
    assert tally.inputs[1].verdicts == {"ACKED": 3}, "it counts as every tally does"


def test_a_lost_record_keeps_its_trace_context_in_its_copy_its_dead_letter_and_its_redrive(
    exporter: InMemorySpanExporter,
) -> None:
    """The replay worker writes when each attempt was emitted, lost, and written again."""
    world, twice = World(), topics(attempts=2)
    worker = world.worker(of=twice, written=written_spans())
    world.lose(world.emit(b"x", headers=(("traceparent", TRACEPARENT), ("other", b"1"))))
    world.settle(worker, until_ms=world.now_ms + 60_000)
    (copy,) = world.copies()
    assert traceparent_in(copy.headers) == TRACEPARENT.decode()
    world.lose(world.emission_of(copy))
    world.settle(worker, until_ms=world.now_ms + 60_000)
    worker.close()
    (letter,) = world.letters()
    assert traceparent_in(letter.headers) == TRACEPARENT.decode()

    one = twice.input("sentences")
    order = Order(LetterAction.REPLAYED, Filter(), "kim", "fixed in 1.3", "r1")
    drive = Redrive(
        world.cluster.log(),
        twice,
        [(one, Filter())],
        order,
        RateLimit(None, world.now_ms, CHUNK_MAX),
        RedriveLimits(),
    )
    for _ in range(100):
        if len(copies := world.copies()) == 2:
            break
        world.now_ms += max(1, drive.step(world.now_ms))
    assert [traceparent_in(each.headers) for each in copies] == 2 * [TRACEPARENT.decode()]

    spans = exporter.get_finished_spans()
    of = f"{TRACE}/{PARENT}"
    assert [facts(each) for each in spans] == [
        ("spout sentences", "ERROR", of),
        ("replay sentences", "UNSET", of),
        ("spout sentences", "ERROR", of),
        ("dead letter sentences", "UNSET", of),
    ]
    first, waited = spans[:2]
    assert first.attributes is not None
    assert first.attributes["windhover.verdict"] == "FAILED"
    assert first.attributes["windhover.operator"] == "split"
    assert first.end_time == waited.start_time
    assert waited.start_time is not None
    assert waited.end_time is not None
    assert waited.end_time - waited.start_time == 1_050_000_000, "the back-off"


def test_a_lost_record_without_a_trace_context_makes_no_span(exporter: InMemorySpanExporter) -> None:
    world = World()
    worker = world.worker(of=topics(attempts=1), written=written_spans())
    world.lose(world.emit(b"x", headers=(("other", b"1"),)))
    world.settle(worker)
    assert len(world.letters()) == 1
    assert exporter.get_finished_spans() == ()


def test_a_hook_that_traces_nothing_takes_itself_off_so_that_its_bolt_runs_at_full_speed() -> None:
    program = (
        "from spout.bolts.hooks import BoltContext\n"
        "from spout.bolts.trace_hook import TraceHook\n"
        "context = BoltContext('split', 0, 0)\n"
        "hook = TraceHook()\n"
        "context.add_hook(hook)\n"
        "hook.prepare(context)\n"
        "print(context.hooks, hook.is_tracing)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "[] False\n", done.stderr
