"""What a bolt stops on ends its query in place of failing the input, in all three forms, wherever it runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

from acker.errors import BoltStopped, UsageError
from acker.wire.causes import error_class
from spout.bolts.bolts import AnyBolt, ArrowBolt, BasicBolt, BatchCollector, Bolt
from spout.bolts.collectors import BasicCollector, OutputCollector
from spout.bolts.hooks import BoltContext, TaskHook
from spout.builder.topology import TopologyBuilder
from spout.execution.stage_run import StageRun, TaskRun
from spout.isolation.isolation import IsolatedRun
from spout.planning.order import Gate, LineUp
from spout.topology.chain import Chain, Step
from spout.topology.stage_pass import StagePass
from spout.tuples.anchors import ORDINAL_BITS, AnchorForm, Anchors
from spout.tuples.failures import FailTuple, RejectTuple
from spout.tuples.poison import WORKER_DIED
from spout.tuples.rows import ArrowRows
from spout.tuples.tuple import Tuple
from tests.support.outcomes import failed_by_cause
from tests.support.reports import failures_in
from tests.support.worlds.topology_world import TOPICS, Begin, run

VALUE = pa.schema([("value", pa.string())])
CONTEXT = BoltContext("pass", 0, 1)
SAYS = "^bolt 'save' stops on ConnectionRefusedError: no answer; mend what it needs"


def act(value: bytes | str) -> str:
    """Do what a line says, or return it."""
    line = value.decode() if isinstance(value, bytes) else value
    if line == "gone":
        raise ConnectionRefusedError("no answer")
    if line == "raise":
        raise KeyError("raise")
    if line == "fail":
        raise RejectTuple("said so")
    if line == "exit":
        os._exit(3)
    return line


class Save(BasicBolt):
    """Hands lines on, unless its service is gone."""

    output = "value string"

    stops_on: ClassVar[tuple[type[Exception], ...]] = (ConnectionError,)

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Do what the line says, and hand it on."""
        collector.emit((act(tuple["value"]),))


class SaveRich(Bolt):
    """Does it by hand."""

    output = "value string"

    stops_on = (ConnectionError,)

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Do what the line says, hand it on and ack it."""
        self._collector.emit((act(tuple["value"]),), anchors=tuple)
        self._collector.ack(tuple)


class SaveAll(ArrowBolt):
    """Does it for whole batches."""

    output = "value string"

    stops_on = (ConnectionError,)

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Do what the lines say, and hand them on."""
        lines = [act(value) for value in batch.column("value").to_pylist()]
        collector.emit([pa.array(lines, pa.string())], np.arange(len(lines)))


class StopsOnAll(Save):
    """Stops on whatever is raised."""

    stops_on = (Exception,)


class StopsOnAllRich(SaveRich):
    """Stops on whatever is raised."""

    stops_on = (Exception,)


class StopsOnAllBatch(SaveAll):
    """Stops on whatever is raised."""

    stops_on = (Exception,)


FORMS = [Save, SaveRich, SaveAll]
FORMS_ON_ALL = [StopsOnAll, StopsOnAllRich, StopsOnAllBatch]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """End all children with the test."""
    with ExitStack() as opened:
        yield opened


def pass_of(
    bolt: AnyBolt, arriving_form: AnchorForm = AnchorForm.PACKED, *, hooks: tuple[TaskHook, ...] = ()
) -> StagePass:
    """Make a pass of one bolt, ``save``."""
    return Chain((Step("save", bolt, VALUE, hooks),), arriving_form=arriving_form).stage


def fed(run: TaskRun, *lines: str) -> dict[int, str]:
    """Let a pass work on lines, each a root; return why roots failed."""
    anchors = Anchors(AnchorForm.PACKED, pa.array(np.arange(len(lines)) << ORDINAL_BITS))
    run.feed(ArrowRows(pa.RecordBatch.from_pydict({"value": list(lines)})), anchors)
    run.finish()
    return {root: cause.error for cause, roots in failures_in(run.report()) for root in roots.tolist()}


def in_child(pass_: StagePass, *lines: str) -> dict[int, str]:
    """Let a pass work in a child."""
    with closing(IsolatedRun(pass_, CONTEXT, 0, partial(StageRun, context=CONTEXT))) as run:
        return fed(run, *lines)


@pytest.mark.parametrize("bolt", FORMS)
def test_what_a_bolt_stops_on_is_raised_and_names_it(bolt: type[AnyBolt]) -> None:
    """S84: subclasses too; the exception itself is told as its cause."""
    with pytest.raises(BoltStopped, match=SAYS) as stopped:
        fed(StageRun(pass_of(bolt()), CONTEXT), "a", "gone", "b")
    assert isinstance(stopped.value.__cause__, ConnectionRefusedError)


@pytest.mark.parametrize("bolt", FORMS)
def test_other_exceptions_fail_the_input_as_ever(bolt: type[AnyBolt]) -> None:
    failed = fed(StageRun(pass_of(bolt()), CONTEXT), "a", "raise")
    assert error_class(failed[1]) == "KeyError"


@pytest.mark.parametrize("bolt", FORMS_ON_ALL)
def test_a_tuple_that_is_failed_by_name_never_stops_anything(bolt: type[AnyBolt]) -> None:
    assert issubclass(RejectTuple, FailTuple)
    assert 1 in fed(StageRun(pass_of(bolt()), CONTEXT), "a", "fail")
    assert 1 in in_child(pass_of(bolt()), "a", "fail")


@pytest.mark.parametrize("bolt", FORMS)
def test_a_hook_does_not_hide_it(bolt: type[AnyBolt]) -> None:
    with pytest.raises(BoltStopped, match=SAYS):
        fed(StageRun(pass_of(bolt(), hooks=(TaskHook(),)), CONTEXT), "gone")


@pytest.mark.parametrize("bolt", FORMS)
def test_nor_does_an_ordered_partition(bolt: type[AnyBolt]) -> None:
    run = StageRun(pass_of(bolt()), CONTEXT)
    run.gate = Gate("lines/0", "lines", LineUp("partition"))
    with pytest.raises(BoltStopped, match=SAYS):
        fed(run, "gone")


@pytest.mark.parametrize("bolt", FORMS)
def test_where_nothing_is_tracked_the_bolt_is_named_too(bolt: type[AnyBolt]) -> None:
    with pytest.raises(BoltStopped, match=SAYS):
        fed(StageRun(pass_of(bolt(), AnchorForm.NONE), CONTEXT), "gone")


@pytest.mark.parametrize("bolt", FORMS)
def test_it_is_raised_out_of_a_child(bolt: type[AnyBolt]) -> None:
    with pytest.raises(BoltStopped, match=SAYS):
        in_child(pass_of(bolt()), "a", "gone")


@pytest.mark.parametrize("bolt", FORMS)
def test_it_is_raised_out_of_a_child_that_has_poison(bolt: type[AnyBolt]) -> None:
    """An Arrow bolt is called for parts of its rows then, each by itself."""
    with pytest.raises(BoltStopped, match=SAYS):
        in_child(pass_of(bolt()), "a", "exit", "b", "gone")


@pytest.mark.parametrize("bolt", FORMS_ON_ALL)
def test_a_record_that_ends_its_process_fails_whatever_its_bolt_stops_on(bolt: type[AnyBolt]) -> None:
    """The bolt has raised nothing: what stands for it in the next child is no exception of the bolt's."""
    assert in_child(pass_of(bolt()), "a", "exit", "b") == {1: WORKER_DIED}


def topology(bolt: AnyBolt) -> TopologyBuilder:
    """Make a topology of one bolt, ``save``."""
    builder = TopologyBuilder()
    builder.set_spout("lines", TOPICS, "lines")
    builder.set_bolt("save", bolt).shuffle_grouping("lines")
    return builder


def children(stack: ExitStack) -> Begin:
    """Begin stages in children."""

    def starts(pass_: StagePass, context: BoltContext) -> IsolatedRun:
        return stack.enter_context(
            closing(IsolatedRun(pass_, context, 0, partial(StageRun, context=context)))
        )

    return starts


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("bolt", FORMS)
def test_in_a_topology_it_ends_the_query_too(bolt: type[AnyBolt], *, tracked: bool) -> None:
    with pytest.raises(BoltStopped, match=SAYS):
        run(topology(bolt()), [b"a", b"gone"], print, tracked=tracked)


@pytest.mark.parametrize("bolt", FORMS)
def test_in_a_topology_hooks_do_not_hide_it(bolt: type[AnyBolt]) -> None:
    builder = topology(bolt())
    builder.add_hook(TaskHook())
    with pytest.raises(BoltStopped, match=SAYS):
        run(builder, [b"gone"], print)


@pytest.mark.parametrize("bolt", FORMS)
def test_in_a_topology_it_is_raised_out_of_a_child(bolt: type[AnyBolt], stack: ExitStack) -> None:
    with pytest.raises(BoltStopped, match=SAYS):
        run(topology(bolt()), [b"a", b"exit", b"gone"], print, tasks=1, begin=children(stack))


@pytest.mark.parametrize("bolt", FORMS_ON_ALL)
def test_in_a_topology_a_tuple_that_is_failed_by_name_fails_alone(bolt: type[AnyBolt]) -> None:
    ran = run(topology(bolt()), [b"fail"], print, tasks=1)
    assert [roots.tolist() for _, roots in failed_by_cause(ran.outcome)] == [[0]]


@pytest.mark.parametrize("form", [BasicBolt, Bolt, ArrowBolt])
@pytest.mark.parametrize("named", [OSError, ("OSError",), (KeyboardInterrupt,), None])
def test_what_is_no_tuple_of_exceptions_is_refused_before_anything_runs(form: type, named: object) -> None:
    with pytest.raises(UsageError, match=r"^Bad\.stops_on is .* it is a tuple of exception classes"):
        type("Bad", (form,), {"stops_on": named})


def test_a_bolt_stops_on_nothing_unless_it_says_so() -> None:
    assert [form.stops_on for form in (BasicBolt, Bolt, ArrowBolt)] == [(), (), ()]


class Origins(BasicBolt):
    """Hands on what a line descends from."""

    output = "value string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit the origin."""
        collector.emit((str(tuple.message_id.origin),))


class OriginsRich(SaveRich):
    """Does it by hand."""

    stops_on = ()

    def execute(self, tuple: Tuple) -> None:
        """Emit the origin and ack the line."""
        self._collector.emit((str(tuple.message_id.origin),), anchors=tuple)
        self._collector.ack(tuple)


@pytest.mark.parametrize("bolt", [Origins, OriginsRich])
@pytest.mark.parametrize("work", [lambda p, *lines: fed(StageRun(p, CONTEXT), *lines), in_child])
def test_a_message_id_that_nobody_knows_stops_the_query_by_name(
    bolt: type[AnyBolt], work: Callable[..., dict[int, str]]
) -> None:
    """It is a mistake in the topology: every record of the stream would become a dead letter."""
    with pytest.raises(BoltStopped, match=r"^bolt 'save': message_id is known in the bolts directly behind"):
        work(pass_of(bolt()), "a", "b")
