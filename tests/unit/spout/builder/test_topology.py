"""A topology before it runs: what is refused and how, which bolts share a pass, and the plan in words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import spout
from acker.config.topics import parse
from acker.errors import UsageError
from spout.bolts.bolts import BasicBolt, Bolt, OutputDeclarer
from spout.bolts.collectors import BasicCollector, OutputCollector
from spout.bolts.hooks import BoltContext
from spout.builder.topology import BoltDeclarer, TopologyBuilder
from spout.topology.stages import Layout
from spout.tuples.tuple import StreamId, Tuple
from tests.support.worlds.topology_world import TOPICS, schema_of

ELSEWHERE = parse("inputs:\n  more: {id: 4, group: g}\n", file="topics.yaml", environ={})


class Words(BasicBolt):
    """Emits words."""

    output = "word string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit none."""


class Several(Bolt):
    """Emits on three streams, one of them direct."""

    def declare(self, declarer: OutputDeclarer) -> None:
        """Declare them."""
        declarer.declare("word string")
        declarer.declare("word string, length int", stream="long")
        declarer.declare("word string", stream="named", direct=True)

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Keep nothing."""

    def execute(self, tuple: Tuple) -> None:
        """Emit none."""


class Nothing(Bolt):
    """Emits nothing."""

    def declare(self, declarer: OutputDeclarer) -> None:
        """Declare no stream."""

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Keep nothing."""

    def execute(self, tuple: Tuple) -> None:
        """Emit none."""


def builder(*names: str) -> TopologyBuilder:
    """Begin a topology with a spout, ``lines``, and bolts behind each other by shuffles."""
    made = TopologyBuilder()
    made.set_spout("lines", TOPICS, "lines")
    before = "lines"
    for name in names:
        made.set_bolt(name, Words()).shuffle_grouping(before)
        before = name
    return made


def compiled(made: TopologyBuilder, sink: object = None) -> Layout:
    """Compile a topology for four cores."""
    return made.compile(schema_of, sink, cores=4).layout  # type: ignore[arg-type]  # wrong ones are refused


def two_spouts(made: TopologyBuilder, inputs: str, **options: bool) -> None:
    """Add a second spout, and a bolt that reads both."""
    made.set_spout("others", TOPICS, inputs, **options)  # type: ignore[arg-type]  # any option
    made.set_bolt("both", Words()).shuffle_grouping("lines").shuffle_grouping("others")


def cycle(made: TopologyBuilder) -> None:
    """Let three bolts read from each other."""
    made.set_bolt("a", Words()).shuffle_grouping("lines").shuffle_grouping("c")
    made.set_bolt("b", Words()).shuffle_grouping("a")
    made.set_bolt("c", Words()).shuffle_grouping("b")


def reading(*groupings: Callable[[BoltDeclarer], object]) -> Callable[[TopologyBuilder], None]:
    """Add a bolt with several streams, and one that reads of them."""

    def add(made: TopologyBuilder) -> None:
        made.set_bolt("several", Several()).shuffle_grouping("lines")
        reader = made.set_bolt("reader", Words())
        for grouping in groupings:
            grouping(reader)

    return add


REFUSED: dict[str, tuple[Callable[[TopologyBuilder], object], str]] = {
    "cycle": (cycle, r"the topology has a cycle: (a -> b -> c -> a|b -> c -> a -> b|c -> a -> b -> c);"),
    "itself": (
        lambda made: made.set_bolt("a", Words()).shuffle_grouping("lines").shuffle_grouping("a"),
        "cycle: a -> a;",
    ),
    "producer": (
        lambda made: made.set_bolt("a", Words()).shuffle_grouping("line"),
        "bolt 'a' reads from 'line', which was never set; did you mean 'lines'?",
    ),
    "stream": (
        reading(lambda bolt: bolt.shuffle_grouping("several", "lang")),
        "reads stream 'lang', which bolt 'several' does not declare; did you mean 'long'?",
    ),
    "field": (
        reading(lambda bolt: bolt.fields_grouping("several", "length")),
        "bolt 'reader' groups several by length; its fields are: word",
    ),
    "a list of fields": (
        reading(lambda bolt: bolt.fields_grouping("several", ["word"])),  # type: ignore[arg-type]  # on purpose
        r"bolt 'reader' groups several by \['word'\]; give the fields' names one by one",
    ),
    "no field": (reading(lambda bolt: bolt.partial_key_grouping("several")), "by fields and names none"),
    "not direct": (
        reading(lambda bolt: bolt.direct_grouping("several", "long")),
        "reads several/long by direct grouping, and its emitter names no task: declare the stream",
    ),
    "direct": (
        reading(lambda bolt: bolt.all_grouping("several", "named")),
        "it is a direct stream, whose emitter names the task: read it by direct_grouping",
    ),
    "twice": (
        reading(lambda bolt: bolt.shuffle_grouping("several"), lambda bolt: bolt.all_grouping("several")),
        "bolt 'reader' subscribes to several twice, by shuffle and by all",
    ),
    "reads nothing": (lambda made: made.set_bolt("a", Words()), "bolt 'a' reads nothing; subscribe it"),
    "name": (lambda made: made.set_bolt("lines", Words()), "two components are called 'lines'"),
    "odd name": (lambda made: made.set_bolt("a+b", Words()), "cannot be called 'a\\+b'"),
    "no bolt": (lambda made: made.set_bolt("a", object()), "is a object, no BasicBolt"),  # type: ignore[arg-type]  # on purpose
    "no task": (
        lambda made: made.set_bolt("a", Words(), parallelism=0),
        "parallelism=0; it is a whole number of tasks",
    ),
    "groups": (
        lambda made: two_spouts(made, "other"),
        "'lines' of group 'g' and 'others' of group 'h' belong to several groups.*submit a topology",
    ),
    "one input twice": (
        lambda made: two_spouts(made, "lines"),
        "'lines' and 'others' both read input 'lines'.*let all bolts read from 'lines'",
    ),
    "half a task": (
        lambda made: made.set_bolt("a", Words(), parallelism=2.5),  # type: ignore[arg-type]  # on purpose
        "bolt 'a': parallelism=2.5; it is a whole number of tasks, at least 1",
    ),
    "a text of tasks": (
        lambda made: made.set_bolt("a", Words(), parallelism="2"),  # type: ignore[arg-type]  # on purpose
        "bolt 'a': parallelism='2'; it is a whole number of tasks, at least 1",
    ),
    "options": (
        lambda made: (
            made.set_spout("others", TOPICS, "more", tracked=True),
            made.set_spout("third", TOPICS, [], tracked=False),
        ),
        "spout 'third' says tracked=False, another one True; read options hold for the whole topology",
    ),
    "another topics.yaml": (
        lambda made: made.set_spout("others", ELSEWHERE, "more"),
        "spout 'others' reads another topics.yaml; one topology reads one installation",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_run_is_refused_with_the_cure(case: str) -> None:
    add, says = REFUSED[case]
    made = builder()
    with pytest.raises(UsageError, match=says):
        compiled((add(made), made)[1])


def test_two_subscriptions_of_one_crc_are_refused() -> None:
    """Their edges could not be told apart, so two of them would cancel (rule 3)."""
    clash = builder()
    clash.set_bolt("plumless", Words()).shuffle_grouping("lines")
    clash.set_bolt("buckeroo", Words()).shuffle_grouping("lines")
    says = "lines -> plumless, shuffle and lines -> buckeroo, .*have one CRC-32.*rename 'buckeroo'"
    with pytest.raises(UsageError, match=says):
        compiled(clash)


@pytest.mark.parametrize(
    ("sink", "says"),
    [
        (lambda batch, batch_id: None, r"several are left: several/long, several/named"),
        ({"reader": print, ("several", "lnog"): print}, "the sink reads stream 'lnog'.*did you mean 'long'"),
        ({"raeder": print}, "the sink reads from 'raeder', which was never set; did you mean 'reader'"),
        ({("reader",): print}, r"the sink of \('reader',\): name a component, or \(component, stream\)"),
        ({5: print}, r"the sink of 5: name a component, or \(component, stream\)"),
        ({None: print}, r"the sink of None: name a component, or \(component, stream\)"),
        ({b"ab": print}, r"the sink of b'ab': name a component, or \(component, stream\)"),
        ({"reader": "write"}, "the sink is 'write', no function of a batch's rows and its id"),
    ],
)
def test_a_sink_names_what_it_gets_unless_one_stream_is_left(sink: object, says: str) -> None:
    made = builder()
    reading(lambda bolt: bolt.shuffle_grouping("several"))(made)
    with pytest.raises(UsageError, match=says):
        compiled(made, sink)
    assert [output.stream for output in compiled(builder("a", "b"), print).outputs] == [StreamId("b")]


def test_bolts_share_a_pass_until_a_grouping_moves_their_tuples() -> None:
    """Directly behind the spout they run in its read task; a shuffle without a parallelism moves nothing."""
    made = builder("a", "b")
    made.set_bolt("wide", Words(), parallelism=3).shuffle_grouping("b")
    made.set_bolt("after", Words()).none_grouping("wide").local_or_shuffle_grouping("a")
    made.set_bolt("last", Nothing()).fields_grouping("after", "word")
    found = compiled(made)
    assert found.stages == (("lines", "a", "b"), ("wide", "after"), ("last",))
    assert found.partitions == (0, 3, 4)
    stays = {str(route.subscription): route.stays_in_task for route in found.routes}
    assert stays["a -> after, local_or_shuffle"] is False
    assert stays["wide -> after, none"] is True
    assert [route.tasks for route in found.routes] == [0, 0, 3, 3, 3, 4]
    assert [str(stream) for stream in found.streams_leaving(0)] == ["b", "a"]


def test_a_bolt_behind_a_diamond_stands_behind_both_of_its_ways() -> None:
    made = builder("left")
    made.set_bolt("right", Words()).fields_grouping("lines", "key")
    join = made.set_bolt("join", Words(), parallelism=2)
    join.fields_grouping("left", "word").fields_grouping("right", "word")
    found = compiled(made, print)
    assert found.stages == (("lines", "left"), ("right",), ("join",))
    assert [str(stream) for stream in found.streams_leaving(0)] == ["lines", "left"]


def test_the_plan_is_told_in_words() -> None:
    made = builder("split")
    made.set_bolt("count", Words(), parallelism=2).fields_grouping("split", "word")
    made.set_bolt("watch", Words(), parallelism=3).all_grouping("count")
    assert made.explain(cores=2, sink={"watch": print, "split": print}).splitlines() == [
        "stage 0: one Python pass, in the source's read task",
        "  spout lines",
        "  bolt split",
        "    <- lines, shuffle: stays in its task, edges are folded there",
        "  sink <- split; acked when the batch is written",
        "shuffle by task: split; edges are carried (split passes through the next stage)",
        "stage 1: one Python pass, 2 tasks",
        "  bolt count",
        "    <- split, fields(word): to one of 2 tasks",
        "shuffle by task: count, split; edges are carried",
        "stage 2: one Python pass, 3 tasks",
        "  bolt watch",
        "    <- count, all: to each of 3 tasks",
        "  sink <- watch; acked when the batch is written",
    ]


def test_the_public_names_are_the_builders() -> None:
    assert spout.TopologyBuilder is TopologyBuilder
    assert spout.OutputDeclarer is OutputDeclarer


def test_a_stream_is_declared_once_and_has_a_name() -> None:
    declarer = OutputDeclarer()
    declarer.declare("word string", stream="long")
    for stream, says in (("long", "declared twice"), ("a/b", "cannot be called"), ("", "cannot be called")):
        with pytest.raises(UsageError, match=says):
            declarer.declare("word string", stream=stream)
