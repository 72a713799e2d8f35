"""A bolt whose code would never run is refused; one that returns something fails its tuple."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import spout
from acker.errors import TupleError, UsageError
from acker.wire.causes import error_class
from spout.bolts.bolts import BasicBolt
from spout.bolts.collectors import BasicCollector
from spout.bolts.hooks import TaskHook
from spout.builder.topology import TopologyBuilder
from spout.execution.stage_run import StageRun
from spout.topology.chain import Chain, Step
from spout.tuples.messages import MessageRows
from spout.tuples.tuple import Tuple
from tests.support.worlds.topology_world import SOURCE, TOPICS, ran, record, schema_of


class Fine(BasicBolt):
    """Does nothing."""

    output = "value string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Drop the tuple."""


class Yields(BasicBolt):
    """Yields in the place of emitting."""

    output = "value string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> Iterator[str]:  # type: ignore[override]  # on purpose
        """Emit nothing."""
        yield tuple["value"]


class Awaits(BasicBolt):
    """Is never awaited."""

    output = "value string"

    async def execute(self, tuple: Tuple, collector: BasicCollector) -> None:  # type: ignore[override]  # on purpose
        """Emit nothing."""


class Streams(BasicBolt):
    """An async generator."""

    output = "value string"

    async def execute(self, tuple: Tuple, collector: BasicCollector) -> Any:  # type: ignore[override]  # on purpose
        """Emit nothing."""
        yield tuple


class Nothing(BasicBolt):
    """Says nothing of what it does."""

    output = "value string"


class Prepares(Fine):
    """Is not prepared."""

    async def prepare(self, context: spout.BoltContext) -> None:  # type: ignore[override]  # on purpose
        """Never run."""


class YieldsColumns(spout.ArrowBolt):
    """Yields batches."""

    output = "value string"

    def execute(self, batch: Any, collector: spout.BatchCollector) -> Iterator[Any]:  # type: ignore[override]  # on purpose
        """Emit nothing."""
        yield batch


class AwaitsByHand(spout.Bolt):
    """Is never awaited."""

    output = "value string"

    def prepare(self, context: spout.BoltContext, collector: spout.OutputCollector) -> None:
        """Keep nothing."""

    async def execute(self, tuple: Tuple) -> None:  # type: ignore[override]  # on purpose
        """Emit nothing."""


class Unprepared(spout.Bolt):
    """Has no collector."""

    output = "value string"

    def execute(self, tuple: Tuple) -> None:
        """Do nothing."""


class Ticks(spout.KeyedBolt):
    """Yields at a tick."""

    output = "value string"

    def execute(self, key: Any, held: Any, collector: spout.KeyedCollector) -> None:
        """Wait."""

    def tick(self, key: Any, held: Any, collector: spout.KeyedCollector) -> Iterator[Any]:  # type: ignore[override]  # on purpose
        """Emit nothing."""
        yield key


class Mute(spout.KeyedBolt):
    """Says nothing of what it does."""

    output = "value string"


class Late(TaskHook):
    """Is never awaited."""

    async def emit(self, info: spout.EmitInfo) -> None:  # type: ignore[override]  # on purpose
        """See nothing."""


BAD = {
    "generator": (Yields(), r"'it': Yields.execute has a yield.*collector\.emit"),
    "async": (Awaits(), r"'it': Awaits.execute is async.*asyncio.run"),
    "async generator": (Streams(), r"'it': Streams.execute is async"),
    "class": (Fine, r"'it': Fine is a class; pass an instance: Fine\(\)"),
    "no execute": (Nothing(), r"'it': Nothing has no execute; define it"),
    "prepare": (Prepares(), r"'it': Prepares.prepare is async"),
}
FORMS = {
    "arrow": (YieldsColumns(), r"'it': YieldsColumns.execute has a yield"),
    "rich": (AwaitsByHand(), r"'it': AwaitsByHand.execute is async"),
    "rich without a collector": (Unprepared(), r"'it': Unprepared has no prepare; define it"),
}
KEYED = {
    "tick": (Ticks(), r"'it': Ticks.tick has a yield"),
    "no execute": (Mute(), r"'it': Mute has no execute; define it"),
    "class": (Mute, r"'it': Mute is a class; pass an instance: Mute\(\)"),
}


def attach_to_topology(bolt: Any) -> object:
    return TopologyBuilder().set_bolt("it", bolt)


def attach_keyed(bolt: Any) -> object:
    return spout.keyed(bolt, by="user", name="it")


def attach_to_anchors(bolt: Any) -> object:
    return spout.ack_anchors(bolt, name="it")


def attach_to_rows(bolt: Any) -> object:
    return spout.bolt(bolt, name="it")


@pytest.mark.parametrize(
    ("attach", "bolt", "says"),
    [
        pytest.param(attach, *case, id=f"{attach.__name__} {name}")
        for attach, cases in (
            (attach_to_rows, BAD | FORMS),
            (attach_to_topology, BAD | FORMS | KEYED),
            (attach_to_anchors, BAD),
            (attach_keyed, KEYED),
        )
        for name, case in cases.items()
    ],
)
def test_a_bolt_whose_code_would_never_run_is_refused_when_it_is_attached(
    attach: Callable[[Any], object], bolt: object, says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        attach(bolt)


@pytest.mark.parametrize("attach", [spout.bolt, spout.ack_anchors])
@pytest.mark.parametrize(
    ("hooks", "says"),
    [
        ([Late()], r"'Fine': Late.emit is async"),
        ([Late], r"a hook of bolt 'Fine': Late is a class; pass an instance: Late\(\)"),
        (TaskHook(), r"bolt 'Fine': hooks=.*; give a list of hooks"),
        ([print], r"bolt 'Fine': <built-in function print> is no hook; derive it from spout.TaskHook"),
    ],
)
def test_a_hook_whose_code_would_never_run_is_refused(attach: Any, hooks: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        attach(Fine(), hooks=hooks)


def test_a_hook_of_all_bolts_is_looked_at_too() -> None:
    with pytest.raises(UsageError, match=r"Late.emit is async"):
        TopologyBuilder().add_hook(Late())


def test_a_rich_bolt_does_not_fit_what_acks_by_itself() -> None:
    class Rich(spout.Bolt):
        output = "value string"

        def prepare(self, context: spout.BoltContext, collector: spout.OutputCollector) -> None: ...

        def execute(self, tuple: Tuple) -> None: ...

    with pytest.raises(UsageError, match=r"takes a BasicBolt or an ArrowBolt, .* and Rich is none"):
        spout.ack_anchors(Rich())  # type: ignore[arg-type]  # on purpose


def test_a_class_is_named_where_no_name_was_given() -> None:
    with pytest.raises(UsageError, match=r"bolt 'Fine': Fine is a class; pass an instance: Fine\(\)"):
        spout.bolt(Fine)  # type: ignore[arg-type]  # on purpose


def test_tracked_when_that_is_async_is_refused() -> None:
    async def wanted(tuple: Tuple) -> bool:
        return False

    with pytest.raises(UsageError, match="tracked_when is async, and nothing awaits it"):
        spout.read_stream(None, TOPICS, "lines", tracked_when=wanted)  # type: ignore[arg-type]  # none is needed


@pytest.mark.parametrize(
    ("option", "value", "cure"),
    [
        ("failOnDataLoss", "false", "'false': it is True or False"),
        ("maxOffsetsPerTrigger", "1000", "'1000': it is a number of at least 1"),
        ("minPartitions", True, "True: it is a number of at least 1"),
        ("startingOffsets", '{"lines": {"0": 23}}', "give earliest, latest, or a time"),
        ("subscribe", "lines", "has no option subscribe; it has startingOffsets"),
    ],
)
def test_what_only_the_options_of_sparks_connector_may_be_is_refused(
    option: str, value: str, cure: str
) -> None:
    with pytest.raises(UsageError, match=cure):
        spout.read_stream(None, TOPICS, "lines", **{option: value})  # type: ignore[arg-type]  # on purpose


def test_the_path_of_a_topics_yaml_in_the_place_of_what_it_holds_is_refused() -> None:
    with pytest.raises(UsageError, match=r"reads 'topics.yaml'; give it what spout.load\("):
        spout.read_stream(None, "topics.yaml", "lines")  # type: ignore[arg-type]  # on purpose


def test_a_sink_that_is_async_is_refused_before_it_writes_nothing() -> None:
    async def write(batch: object, batch_id: int) -> None: ...

    says = "the sink's function write is async, and nothing awaits it"
    with pytest.raises(UsageError, match=says):
        spout.sink(write)
    builder = TopologyBuilder()
    builder.set_spout("lines", TOPICS, "lines")
    builder.set_bolt("it", Fine()).shuffle_grouping("lines")
    for sink in (write, {"it": write}):
        with pytest.raises(UsageError, match=says):
            builder.compile(schema_of, sink, cores=2)


class Returns(BasicBolt):
    """Returns for a word what the word says, after it has emitted the word."""

    output = "word string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> Any:
        """Emit the word."""
        word = tuple["value"].decode()
        collector.emit((word,))
        return {"list": [word], "false": False, "generator": (each for each in "ab"),
                "coroutine": later() if word == "coroutine" else None}.get(word)  # fmt: skip


async def later() -> None: ...


class ReturnsByHand(spout.Bolt):
    """Acks, then returns."""

    output = "word string"

    def prepare(self, context: spout.BoltContext, collector: spout.OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: Tuple) -> Any:
        """Emit the word."""
        word = tuple["value"].decode()
        self._collector.emit((word,), anchors=tuple)
        self._collector.ack(tuple)
        return [word] if word == "list" else None


class ReturnsColumns(spout.ArrowBolt):
    """Returns its batch where a row says so."""

    output = "word string"

    def execute(self, batch: pa.RecordBatch, collector: spout.BatchCollector) -> Any:
        """Emit all rows."""
        words = batch.column("value").cast(pa.string())
        collector.emit([words], np.arange(batch.num_rows))
        return batch if "list" in words.to_pylist() else None


class Counts(TaskHook):
    """Returns a number where it is told to."""

    def __init__(self, method: str) -> None:
        """Return from this method."""
        self._method = method

    def emit(self, info: spout.EmitInfo) -> Any:
        """See an emission."""
        return 1 if self._method == "emit" else None

    def execute(self, info: spout.ExecuteInfo) -> Any:
        """See the end of a call."""
        return 1 if self._method == "execute" else None

    def ack(self, info: spout.AckInfo) -> Any:
        """See an ack."""
        return 1 if self._method == "ack" else None


@pytest.mark.parametrize("where", ["rows", "topology", "child"])
@pytest.mark.parametrize("hooks", [[], [TaskHook()]], ids=["bare", "watched"])
def test_what_a_bolt_returns_fails_its_tuple(where: str, hooks: list[TaskHook]) -> None:
    """Somebody meant it to be emitted."""
    found = ran(Returns(), [b"fine", b"list", b"false", b"generator", b"coroutine"], hooks, where)
    assert {
        index: (cause.operator, error_class(cause.error)) for index, cause in found.items()
    } == dict.fromkeys((1, 2, 3, 4), ("it", "TupleError"))
    message, _, place = found[1].message.rpartition(" (")
    assert message == (
        "bolt 'it': Returns.execute returned a list, which nobody takes; emit rows by the collector, and"
        " return nothing"
    )
    assert re.fullmatch(r"test_attached_bolts\.py:\d+\)", place)
    assert "returned a bool" in found[2].message
    assert "returned a generator, which nobody takes; its code has not run" in found[3].message
    assert (
        "returned a coroutine, which nobody takes; its code has not run: call asyncio.run" in found[4].message
    )


@pytest.mark.parametrize("where", ["rows", "topology", "child"])
@pytest.mark.parametrize(("bolt", "failed"), [(ReturnsByHand(), {1}), (ReturnsColumns(), {0, 1})])
def test_so_does_what_the_other_forms_return(where: str, bolt: Any, failed: set[int]) -> None:
    found = ran(bolt, [b"fine", b"list"], [], where)
    assert found.keys() == failed
    [says] = {cause.message for cause in found.values()}
    assert says.startswith(f"bolt 'it': {type(bolt).__name__}.execute returned a ")


@pytest.mark.parametrize("where", ["rows", "topology"])
@pytest.mark.parametrize("method", ["emit", "execute", "ack"])
def test_so_does_what_a_hook_returns(where: str, method: str) -> None:
    found = ran(Returns(), [b"fine"], [Counts(method)], where)
    assert "returned a int, which nobody takes" in found[0].message


def test_untracked_what_a_bolt_returns_ends_the_task() -> None:
    word = pa.schema([("word", pa.string())])
    run = StageRun(Chain((Step("it", Returns(), word),)).stage, spout.BoltContext("it", 0, 1))
    with pytest.raises(TupleError, match=r"bolt 'it': Returns.execute returned a list, which nobody takes"):
        run.feed(MessageRows([record(b"list", 0)], SOURCE, np.arange(1)), None)
