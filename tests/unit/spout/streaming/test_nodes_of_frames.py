"""How DataFrames with bolts are built, on a session that is none: what is read, carried, hidden, refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, LongType, StructField, StructType

import spout
from acker.config.topics import parse
from acker.errors import UsageError
from spout.streaming import frames
from spout.streaming.application import Stream
from spout.streaming.frames import (
    Node,
    UntrackedSource,
    hidden_column,
    node_behind_spark,
    node_of,
    streams_behind,
)
from spout.streaming.options import BOLTS_OPTION, STREAM_OPTION, SourceOptions
from spout.streaming.query_plan import operators_in
from spout.streaming.source import WindhoverSource
from spout.topology.chain import Chain, Step
from spout.tuples.anchors import AnchorForm
from spout.tuples.columns import ANCHOR
from tests.support.plan_nodes import Node as PlanNode
from tests.support.plan_nodes import bolt, source

TOPICS = parse("inputs: {lines: {id: 1, group: g}}", file="topics.yaml", environ={})
WORD = pa.schema([("word", pa.string())])
HELD_TYPE = StructType([StructField(name, LongType()) for name in ("source", "position", "edge")])


class Rows:
    """Rows of a DataFrame: their columns, how they came to be, and the metadata of the hidden column."""

    def __init__(self, session: Session, columns: StructType, *made_by: Any, plan: Any = None) -> None:
        self.sparkSession = session
        self.schema = columns
        self.made_by = made_by
        self.isStreaming = True
        execution = SimpleNamespace(analyzed=lambda: plan or source())
        self._jdf = SimpleNamespace(queryExecution=lambda: execution)

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    @property
    def about(self) -> Any:
        """What the metadata of the hidden column has."""
        metadata: dict[str, Any] = self.schema[ANCHOR].metadata or {}
        return metadata.get("windhover")

    def withMetadata(self, column: str, metadata: dict[str, Any]) -> Rows:  # noqa: N802 - Spark's name
        fields = [
            StructField(kept.name, kept.dataType, metadata=metadata) if kept.name == column else kept
            for kept in self.schema.fields
        ]
        return Rows(self.sparkSession, StructType(fields), *self.made_by)

    def mapInArrow(self, function: Any, columns: StructType) -> Rows:  # noqa: N802 - Spark's name
        return Rows(self.sparkSession, columns, self, function)


@dataclass(eq=False)
class Session:
    """A session: the sources that were registered, and an application of streams."""

    streams: dict[str, Stream] = field(default_factory=dict)
    sources: list[type[WindhoverSource]] = field(default_factory=list)
    number: int = 1

    @property
    def dataSource(self) -> Any:  # noqa: N802 - Spark's name
        return SimpleNamespace(register=self.sources.append)

    @property
    def readStream(self) -> Any:  # noqa: N802 - Spark's name
        return SimpleNamespace(format=lambda name: Reader(self, name))


@dataclass
class Reader:
    """A reader of a registered source."""

    session: Session
    name: str
    options: dict[str, str] = field(default_factory=dict)

    def option(self, key: str, value: str) -> Reader:
        self.options[key] = value
        return self

    def load(self) -> Rows:
        kind = self.session.sources[-1]
        assert kind.name() == self.name
        options = kind.source_options
        assert options is not None
        columns = [StructField("value", BinaryType())]
        if options.anchored or (options.sealed_stage is not None and options.sealed_stage.stage.leaving_form):
            columns.append(StructField(ANCHOR, LongType()))
        return Rows(self.session, StructType(columns), self)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    """A session whose application has what the session has."""
    made = Session()

    def application_of(of_session: Session) -> Any:
        return SimpleNamespace(
            streams=of_session.streams,
            number_of=lambda numbered: numbered.number,
            ledger=SimpleNamespace(accumulator="accumulator"),
        )

    monkeypatch.setattr(frames, "Application", SimpleNamespace(of=application_of))
    return made


def stream_of(session: Session, carry: AnchorForm = AnchorForm.PACKED, name: str = "s") -> Stream:
    none: Any = None
    of_session: Any = session
    session.streams[name] = Stream(name, "g", True, 1, none, of_session, root_form=carry)
    return session.streams[name]


class Words(spout.BasicBolt):
    """Does nothing."""

    output = "word string"

    def execute(self, tuple: spout.Tuple, collector: spout.BasicCollector) -> None:
        """Do nothing."""


class Rich(spout.Bolt):
    """Does nothing."""

    output = "word string"

    def prepare(self, context: spout.BoltContext, collector: spout.OutputCollector) -> None:
        """Need nothing."""

    def execute(self, tuple: spout.Tuple) -> None:
        """Do nothing."""


def step(name: str, instance: Any = None) -> Step:
    return Step(name, instance or Words(), WORD)


def node(session: Session, stream: Stream | None) -> Node:
    """Return the node of what `read_stream` reads."""
    of_session: Any = session
    return Node(of_session, stream, options=SourceOptions(TOPICS, ("lines",), "s"))


def built(of_node: Node, *, anchored: bool = False) -> Rows:
    rows: Any = of_node.frame(anchored=anchored)
    assert node_of(rows) is of_node
    return rows  # type: ignore[no-any-return]  # a stand-in


def test_what_is_read_shows_its_stream_and_describes_its_hidden_column(session: Session) -> None:
    tracked = node(session, stream_of(session))
    rows = built(tracked, anchored=True)
    assert rows.made_by[0].options == {STREAM_OPTION: "s"}
    assert rows.about == {"stream": "s", "carry": str(AnchorForm.PACKED), "subscriptions": ""}
    assert session.sources[-1].name() == "windhover"
    assert tracked.options is not None
    assert not tracked.options.anchored, "the next bolt extends what carries nothing yet"
    bare = built(tracked)
    assert ANCHOR not in bare.columns
    session.number = 2
    built(tracked)
    assert session.sources[-1].name() == "windhover_2"
    assert node_of(bare.mapInArrow(None, WORD)) is None  # type: ignore[arg-type]  # a stand-in


def test_what_is_not_tracked_shows_nothing(session: Session) -> None:
    untracked = node(session, None).extended(step("split"))
    rows = built(untracked, anchored=True)
    assert issubclass(session.sources[-1], UntrackedSource)
    assert rows.made_by[0].options == {}
    assert (untracked.carrying(), untracked.names) == (untracked, ("split",))
    assert untracked.chain is not None
    assert untracked.chain.arriving_form is AnchorForm.NONE


def test_bolts_behind_the_source_run_within_it_in_one_chain(session: Session) -> None:
    first = node(session, stream_of(session)).extended(step("split"))
    second = first.extended(step("count"))
    assert (first.names, second.names) == (("split",), ("split", "count"))
    assert first.id != second.id
    for one, names in ((first, ["split"]), (second, ["split", "count"])):
        assert one.chain is not None
        assert one.chain.arriving_form is AnchorForm.PACKED
        assert [kept.name for kept in one.chain.steps] == names
        assert one.options is not None
        assert one.options.sealed_stage is not None
        assert [kept.name for kept in one.options.sealed_stage.stage.bolts] == names
        options = built(one).made_by[0].options
        assert (operators_in(options[BOLTS_OPTION]), options[STREAM_OPTION]) == (names, "s")
    rows = built(second, anchored=True)
    assert rows.about["carry"] == str(AnchorForm.PACKED)
    assert len(rows.about["subscriptions"].split(",")) == 1


@pytest.mark.parametrize(
    ("carry", "instances", "consumer", "expected"),
    [
        (AnchorForm.PACKED, [Words()], "", AnchorForm.PACKED),
        (AnchorForm.PACKED, [Words()], "next", AnchorForm.PACKED),
        (AnchorForm.PACKED, [Words(), Rich()], "", AnchorForm.HOPS),
        (AnchorForm.WIDE, [Words()], "", AnchorForm.WIDE),
        (AnchorForm.WIDE, [Rich()], "", AnchorForm.HOPS),
        (AnchorForm.WIDE, [Rich()], "next", AnchorForm.HOPS),
    ],
)
def test_rows_carry_their_roots_or_the_hops_of_their_paths(
    session: Session, carry: AnchorForm, instances: list[Any], consumer: str, expected: AnchorForm
) -> None:
    """A rich bolt has any number of roots for a row."""
    of_bolts = node(session, stream_of(session, carry))
    for number, instance in enumerate(instances):
        of_bolts = of_bolts.extended(step(f"bolt-{number}", instance))
    carrying = of_bolts.carrying(consumer)
    assert carrying.chain is not None
    assert (carrying.chain.leaving_form, carrying.chain.consumer) == (expected, consumer)
    assert (carrying.id == of_bolts.id) is (not consumer), "each consumer's chain has an id of its own"
    other = of_bolts.carrying(consumer)
    assert (other.id == carrying.id) is (not consumer)


@pytest.mark.parametrize(
    ("arriving_form", "subscriptions", "consumer", "expected"),
    [
        (AnchorForm.PACKED, (5,), "", AnchorForm.HOPS),
        (AnchorForm.WIDE, (5,), "", AnchorForm.WIDE),
        (AnchorForm.WIDE, (5,), "next", AnchorForm.HOPS),
        (AnchorForm.HOPS, (), "", AnchorForm.HOPS),
    ],
)
def test_behind_other_chains_a_row_that_may_be_held_carries_its_root_alone(
    session: Session,
    arriving_form: AnchorForm,
    subscriptions: tuple[int, ...],
    consumer: str,
    expected: AnchorForm,
) -> None:
    stream = stream_of(
        session, AnchorForm.WIDE if arriving_form is not AnchorForm.PACKED else AnchorForm.PACKED
    )
    of_session: Any = session
    chain = Chain((step("count"),), arriving_form=arriving_form, subscriptions=subscriptions)
    behind = Node(of_session, stream, base=None, chain=chain)
    carrying = behind.carrying(consumer)
    assert carrying.chain is not None
    assert carrying.chain.leaving_form is expected


# behind Spark's operators -----------------------------------------------------------------------------------


def hidden(session: Session, about: dict[str, str] | None, *, plan: Any = None) -> Rows:
    """Return rows with the hidden column, and what describes it."""
    metadata = None if about is None else {"windhover": about}
    column = StructField(ANCHOR, LongType(), metadata=metadata)
    return Rows(session, StructType([StructField("value", BinaryType()), column]), plan=plan)


ABOUT = {"stream": "s", "carry": str(AnchorForm.PACKED), "subscriptions": "5,7"}


def test_behind_operators_a_bolt_finds_its_roots_by_the_hidden_column(session: Session) -> None:
    stream = stream_of(session)
    rows: Any = hidden(session, ABOUT, plan=PlanNode("Filter", source()))
    assert hidden_column(rows, "count") == (stream, AnchorForm.PACKED, (5, 7))
    behind = node_behind_spark(rows, step("count"))
    assert behind.chain is not None
    assert (behind.chain.arriving_form, behind.chain.subscriptions) == (AnchorForm.PACKED, (5, 7))
    assert (behind.base, behind.stream, behind.names) == (rows, stream, ("count",))
    assert stream.names_behind_spark == {"count"}
    made = built(behind)
    assert made.made_by[0] is rows
    assert operators_in(made.made_by[1].__name__) == ["count"]
    no_path: Any = hidden(session, {**ABOUT, "subscriptions": ""})
    assert hidden_column(no_path, "count")[2] == ()
    cut: Any = hidden(session, ABOUT, plan=PlanNode("GlobalLimit", bolt(source())))
    with pytest.raises(UsageError, match="GlobalLimit stands behind a tracked stream"):
        node_behind_spark(cut, step("count"))


def test_rows_that_have_lost_the_hidden_column_are_refused_where_their_stream_is_tracked(
    session: Session,
) -> None:
    columns = StructType([StructField("value", BinaryType())])
    tracked: Any = Rows(session, columns, plan=bolt(source()))
    with pytest.raises(UsageError, match="bolt 'count' stands behind operators that dropped the hidden"):
        node_behind_spark(tracked, step("count"))
    table: Any = Rows(session, columns, plan=bolt(source()))
    table.isStreaming = False
    free: Any = Rows(session, columns, plan=source(tracked=False))
    for rows in (table, free):
        behind = node_behind_spark(rows, step("count"))
        assert (behind.stream, behind.base, behind.names) == (None, rows, ("count",))
        made = built(behind, anchored=True)
        assert made.made_by[1].__name__ == "run"
        assert ANCHOR not in made.columns


@pytest.mark.parametrize("about", [None, {}, {**ABOUT, "stream": "elsewhere"}])
def test_a_hidden_column_that_was_computed_or_renamed_is_refused(
    session: Session, about: dict[str, str] | None
) -> None:
    stream_of(session)
    rows: Any = hidden(session, about)
    with pytest.raises(UsageError, match=f"bolt 'count': the column '{ANCHOR}' lost what describes it"):
        hidden_column(rows, "count")


@pytest.mark.parametrize("held", [HELD_TYPE, ArrayType(HELD_TYPE)])
def test_a_bolt_does_not_stand_behind_what_is_held(session: Session, held: Any) -> None:
    stream_of(session)
    rows: Any = Rows(session, StructType([StructField(ANCHOR, held, metadata={"windhover": ABOUT})]))
    with pytest.raises(UsageError, match=r"'count' stands behind spout\.hold.*spout\.ack_anchors"):
        hidden_column(rows, "count")


def test_the_streams_behind_rows_are_those_of_this_application(session: Session) -> None:
    first, second = stream_of(session), stream_of(session, name="t")
    branches = source(), source(stream="t"), source(stream="elsewhere")
    rows: Any = Rows(session, StructType([]), plan=PlanNode("Union", *branches))
    assert {stream.id for stream in streams_behind(rows)} == {first.id, second.id}


def test_rows_without_a_base_are_no_rows_of_a_bolt(session: Session) -> None:
    of_session: Any = session
    for chain in (None, Chain((step("count"),))):
        with pytest.raises(UsageError, match="these rows do not come from a bolt"):
            Node(of_session, None, chain=chain).read()
    no_chain: Any = object()
    with pytest.raises(UsageError, match="these rows do not come from a bolt"):
        Node(of_session, None, base=no_chain).read()
