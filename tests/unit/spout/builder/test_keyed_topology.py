"""A topology that ends in a keyed bolt, without Spark: refusals, the plan, what is held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from acker.config.topics import parse
from acker.errors import TrackingError, UsageError
from spout.bolts.hooks import BoltContext, TaskHook
from spout.bolts.keyed_bolt import KeyedBolt, KeyedCollector, KeyedTuple
from spout.builder.compiled import Compiled
from spout.builder.topology import TopologyBuilder
from spout.execution.stage_run import StageRun
from spout.held.keyed_entry import EntryTask, held_batch, keyed_streams
from spout.isolation.isolation import IsolatedRun
from spout.publishing.delayed import holder_of, marks_of_older
from spout.publishing.fold import TaskReport
from spout.publishing.root_marks import RootMark, RootMarks
from spout.topology.keyed_graph import check_trigger
from spout.topology.stage_pass import StagePass
from spout.tuples.anchors import hops_column
from spout.tuples.columns import ANCHOR, ROOT_TYPE, Origins
from spout.tuples.places import Places, only_roots
from spout.tuples.tuple import Delivery, StreamId
from tests.support.bolts.keyed_topology_bolts import Again, Both, Words
from tests.support.fake_ledger import FakeLedger
from tests.support.outcomes import (
    failed_by_cause,
    open_edges_of,
    open_roots_of,
    sums_by_source,
)
from tests.support.worlds.topology_world import SOURCE, TOPICS, Ran, run, schema_of, stages_of

ORDERED = parse("inputs:\n  lines: {id: 3, group: g, ordering: partition}\n", file="topics.yaml", environ={})


class Sum(KeyedBolt):
    """Holds everything."""

    output = "word string, tuples int"

    def execute(self, key: tuple[Any, ...], held: Sequence[KeyedTuple], collector: KeyedCollector) -> None:
        """Ack none."""


def words(**options: Any) -> TopologyBuilder:
    """Begin a topology that splits lines."""
    made = TopologyBuilder()
    made.set_spout("lines", TOPICS, "lines", **options)
    made.set_bolt("split", Words()).shuffle_grouping("lines")
    return made


def summed(made: TopologyBuilder, before: str = "split") -> TopologyBuilder:
    """End it in a keyed bolt."""
    made.set_bolt("sum", Sum()).fields_grouping(before, "word")
    return made


def compiled(made: TopologyBuilder, sink: Any = None) -> Compiled:
    """Compile for four cores."""
    return made.compile(schema_of, sink, cores=4)


def hooked() -> TopologyBuilder:
    """Watch every bolt."""
    made = summed(words())
    made.add_hook(TaskHook())
    return made


def ordered() -> TopologyBuilder:
    """Read in order."""
    made = TopologyBuilder()
    made.set_spout("lines", ORDERED, "lines")
    made.set_bolt("sum", Sum()).fields_grouping("lines", "key")
    return made


def keyed_by(
    made: TopologyBuilder, group: Callable[[Any], object], parallelism: int | None = None
) -> TopologyBuilder:
    """End a topology in a keyed bolt, and subscribe it."""
    group(made.set_bolt("sum", Sum(), parallelism))
    return made


def grouped(group: Callable[[Any], object], parallelism: int | None = None) -> TopologyBuilder:
    """Subscribe a keyed bolt."""
    return keyed_by(words(), group, parallelism)


def two() -> TopologyBuilder:
    """Have two keyed bolts."""
    made = summed(words())
    made.set_bolt("most", Sum()).fields_grouping("split", "length")
    return made


REFUSED: dict[str, tuple[Callable[[], TopologyBuilder], str]] = {
    "two": (two, "bolts 'sum' and 'most' are KeyedBolts, and a topology has one: let one bolt do the work"),
    "keys of two types": (
        lambda: grouped(lambda bolt: bolt.fields_grouping("split", "word").fields_grouping("lines", "key")),
        r"a KeyedBolt, groups split by word \(string\) and lines by key \(binary\), .*emit each of them"
        r" with one type \(see the output of 'lines', or let a bolt before 'sum' convert it\)",
    ),
    "keys of two lengths": (
        lambda: grouped(
            lambda bolt: bolt.fields_grouping("split", "word").fields_grouping("lines", "topic", "offset")
        ),
        r"split by word \(string\) and lines by topic \(string\), offset \(int64\), .*by as many fields",
    ),
    "shuffled": (
        lambda: grouped(lambda bolt: bolt.shuffle_grouping("split")),
        r"reads split by shuffle; it holds tuples by key: read it by \.fields_grouping\(\"split\", ...\)",
    ),
    "two keys": (
        lambda: grouped(lambda bolt: bolt.partial_key_grouping("split", "word")),
        "reads split by partial_key; it holds tuples by key",
    ),
    "a field twice": (
        lambda: grouped(lambda bolt: bolt.fields_grouping("split", "word", "word")),
        "bolt 'sum' names a field of its key twice: word, word",
    ),
    "an unknown field": (
        lambda: grouped(lambda bolt: bolt.fields_grouping("split", "wrod")),
        "bolt 'sum' groups split by wrod; its fields are: word, length",
    ),
    "parallelism": (
        lambda: grouped(lambda bolt: bolt.fields_grouping("split", "word"), 3),
        "has parallelism=3; it has as many tasks as spark.sql.shuffle.partitions says .*leave parallelism",
    ),
    "no delayed acks": (
        lambda: summed(words(delayed_acks=False)),
        "bolt 'sum' is a KeyedBolt, which acks in a later batch; leave delayed_acks=False out",
    ),
    "an ordering": (ordered, "bolt 'sum' is a KeyedBolt, and input 'lines' has an ordering.*ordering: none"),
    "hooks": (hooked, "bolt 'sum' is a KeyedBolt, which hooks cannot watch.*by context.add_hook"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_end_in_a_keyed_bolt_is_refused_with_the_cure(case: str) -> None:
    make, says = REFUSED[case]
    with pytest.raises(UsageError, match=says):
        compiled(make())


def test_beside_a_keyed_bolt_the_sink_gets_nothing() -> None:
    """Rows that pass by the state store would be read and worked on twice."""
    made = summed(words())
    made.set_bolt("audit", Again()).shuffle_grouping("split")
    with pytest.raises(UsageError, match=r"the sink gets audit beside 'sum', .*sink=\{\"sum\": write\}"):
        compiled(made, {"audit": print, "sum": print})
    [output] = compiled(made, {"sum": print}).layout.outputs
    assert output.stream == StreamId("sum")
    assert not compiled(made).layout.outputs


class Ticks(Sum):
    """Holds everything until it ticks."""

    tick_ms = 1_000


def test_a_query_that_ends_when_nothing_is_pending_has_no_ticks() -> None:
    """Spark runs no batch while the source waits for the verdicts on what is held."""
    reads = compiled(summed(words())).layout.keyed_bolt
    assert reads == "sum"
    for trigger in ({}, {"processingTime": "1 second"}, {"once": True}):
        check_trigger(reads, Ticks(), trigger)
    check_trigger(reads, Sum(), {"availableNow": True})
    with pytest.raises(UsageError, match=r"'sum' is a KeyedBolt that ticks, .* leave the trigger out"):
        check_trigger(reads, Ticks(), {"availableNow": True})


def test_the_plan_says_where_spark_keeps_state() -> None:
    """The keyed bolt stands behind all others, whatever they read."""
    made = summed(words())
    made.set_bolt("audit", Again(), parallelism=3).fields_grouping("split", "length")
    assert made.explain(sink={"sum": print}).splitlines() == [
        "stage 0: one Python pass, in the source's read task",
        "  spout lines",
        "  bolt split",
        "    <- lines, shuffle: stays in its task, edges are folded there",
        "shuffle by task: split; edges are carried (split passes through the next stage)",
        "stage 1: one Python pass, 3 tasks",
        "  bolt audit",
        "    <- split, fields(length): to one of 3 tasks",
        "shuffle by key: split; each tuple is held by its edge",
        "stage 2: Spark's state store, spark.sql.shuffle.partitions tasks",
        "  keyed bolt sum",
        "    <- split, fields(word): held by key across micro-batches, until it is acked",
        "  sink <- sum; what is settled with these rows is acked when the batch is written",
    ]


def enter(
    last: StagePass, found: Compiled, rows: list[pa.RecordBatch]
) -> tuple[list[pa.RecordBatch], Sequence[TaskReport]]:
    """Hand the rows of the last stage to the keyed bolt, by two tasks."""
    ledger = FakeLedger()
    streams = keyed_streams(found.layout, stages_of(found)[-1])
    task = EntryTask(found.layout.keyed_bolt, last.name, streams, "stream", ledger)
    half = len(rows) // 2
    return [*task(rows[:half]), *task(rows[half:])], ledger.reports


def acked_at_last(ran: Ran) -> bool:
    """Tell whether all that is held, once acked, completes the trees of a batch."""
    outcome = ran.outcome
    batch = pa.concat_batches(ran.rows)
    held = batch.column(ANCHOR).filter(batch.column(ANCHOR).is_valid())
    numbers = [np.asarray(held.field(name), np.int64) for name in ("source", "position", "edge")]
    released = RootMarks.of_roots(RootMark.RELEASED, (numbers[0], numbers[1]), numbers[2])
    older = marks_of_older(released)
    expected = {
        int(position) + outcome.plan.ranges[0].start: int(edge)
        for position, edge in zip(open_roots_of(outcome), open_edges_of(outcome), strict=True)
    }
    positions, edges = sums_by_source(older).get(SOURCE, ([], []))
    return dict(zip(positions, edges, strict=True)) == expected


LINES = [b"the hawk waits", b"", b"kite hovers", b"end"]


def behind_a_diamond() -> TopologyBuilder:
    """Let words go two ways, and come together before the keyed bolt."""
    made = words()
    made.set_bolt("left", Again(), parallelism=2).shuffle_grouping("split")
    made.set_bolt("right", Again(), parallelism=3).fields_grouping("split", "length")
    both = made.set_bolt("both", Both(), parallelism=1)
    both.fields_grouping("left", "word").fields_grouping("right", "word")
    return summed(made, "both")


def of_two_streams() -> TopologyBuilder:
    """Let the keyed bolt read two streams, one of them from a stage before the last one, by other names."""
    made = words()
    made.set_bolt("again", Again(), parallelism=3).fields_grouping("split", "word")
    return keyed_by(
        made, lambda bolt: bolt.fields_grouping("again", "word").fields_grouping("lines", "topic")
    )


@pytest.mark.parametrize(
    ("make", "waiting"),
    [
        (of_two_streams, {0, 1, 2, 3}),
        (lambda: summed(words()), {0, 2, 3}),
        (lambda: summed(made_of_shuffles(), "again"), {0, 2, 3}),
        (lambda: grouped(lambda bolt: bolt.fields_grouping("lines", "key")), {0, 1, 2, 3}),
    ],
)
def test_what_a_keyed_bolt_is_given_stays_open_until_it_is_acked(
    make: Callable[[], TopologyBuilder], waiting: set[int]
) -> None:
    """Rule 3: nothing of it is acked with its batch; the edges that are kept are those that are missing."""
    ran = run(make(), LINES, entry=enter)

    assert set(open_roots_of(ran.outcome).tolist()) == waiting
    assert not failed_by_cause(ran.outcome)
    assert acked_at_last(ran)


def test_tuples_of_several_streams_meet_by_the_values_of_their_keys_and_keep_their_own_fields() -> None:
    """Their names may differ, as Storm's do; in the rows of the other stream a field is nowhere."""
    batch = pa.concat_batches(run(of_two_streams(), [b"hawk waits", b"end"], entry=enter).rows)
    keys = Counter(batch.column("_key0").to_pylist())
    assert keys == {"hawk": 1, "waits": 1, "end": 1, "lines": 2}
    [again, lines] = batch.schema.names[1:3]
    for key, line, word in zip(
        *(batch.column(name).to_pylist() for name in ("_key0", lines, again)), strict=True
    ):
        assert (line is None) != (word is None)
        assert key == (word["word"] if line is None else line["topic"])
    assert batch.column(ANCHOR).null_count == 0


def test_the_types_of_keys_need_no_spark_and_are_open_in_a_plan() -> None:
    assert "keyed bolt sum\n    <- again, fields(word): held" in of_two_streams().explain()
    assert "lines, fields(topic): held by key across" in of_two_streams().explain()


def made_of_shuffles() -> TopologyBuilder:
    """Put two shuffles before the keyed bolt, and a bolt beside it."""
    made = words()
    made.set_bolt("first", Again(), parallelism=2).fields_grouping("split", "word")
    made.set_bolt("again", Again(), parallelism=3).global_grouping("first")
    made.set_bolt("audit", Again(), parallelism=2).all_grouping("split")
    return made


def test_bolts_in_children_hand_the_keyed_bolt_the_same() -> None:
    """Where a stage is isolated its child knows where the roots stand."""
    with ExitStack() as stack:

        def starts(pass_: StagePass, context: BoltContext) -> IsolatedRun:
            made = IsolatedRun(pass_, context, 0, lambda guarded: StageRun(guarded, context))
            stack.callback(made.close)
            return made

        ran = run(behind_a_diamond(), [b"hawk waits", b"end"], entry=enter, begin=starts)
    assert set(open_roots_of(ran.outcome).tolist()) == {0, 1}
    assert acked_at_last(ran)


def test_a_tuple_of_two_tuples_of_one_root_is_held_by_both_edges() -> None:
    ran = run(behind_a_diamond(), [b"hawk waits", b"end"], entry=enter)
    assert not failed_by_cause(ran.outcome)
    assert set(open_roots_of(ran.outcome).tolist()) == {0, 1}
    assert acked_at_last(ran)


def test_a_tuple_of_several_records_fails_them_by_name() -> None:
    """The state has one anchor for a tuple; neither record may be acked without it."""
    ran = run(behind_a_diamond(), [b"hawk", b"hawk"], entry=swapped)
    [(cause, roots)] = failed_by_cause(ran.outcome)
    assert (cause.operator, roots.tolist()) == ("sum", [0, 1])
    assert "anchored on tuples of several records" in cause.message
    assert sum(batch.num_rows for batch in ran.rows) == 0


def swapped(
    last: StagePass, found: Compiled, rows: list[pa.RecordBatch]
) -> tuple[list[pa.RecordBatch], Sequence[TaskReport]]:
    """As `enter`, with rows of `Both` that joined halves of two records."""
    batch = pa.concat_batches(rows)
    assert batch.column(ANCHOR).value_lengths().to_pylist() == [2, 2]
    assert batch.column("_root").null_count == 2
    return enter(last, found, rows)


def test_what_does_not_reach_the_keyed_bolt_stops_the_batch() -> None:
    """Rule 3: rows are counted and fingerprinted on both sides of the shuffle-less step."""

    def lose(
        last: StagePass, found: Compiled, rows: list[pa.RecordBatch]
    ) -> tuple[list[pa.RecordBatch], Sequence[TaskReport]]:
        return enter(last, found, [batch.slice(1) for batch in rows])

    with pytest.raises(TrackingError, match="bolt 'sum/hold' did not receive, or not finish, the 6 tuples"):
        run(summed(words()), LINES, entry=lose)


def test_an_unanchored_tuple_is_held_and_best_effort() -> None:
    roots = pa.array([None, {"source": SOURCE, "position": 5}], ROOT_TYPE)
    found = held_batch(hops_column([(), (Delivery(0, ((7, 1),)),)]), roots, holder_of("sum/hold"))
    assert found.anchors.is_valid().to_pylist() == [False, True]
    held = found.marks.of(RootMark.HELD_TUPLE)
    assert (held.positions.tolist(), found.refused_rows.tolist()) == ([5], [])


def test_untracked_nothing_is_held_open() -> None:
    def take(
        last: StagePass, found: Compiled, rows: list[pa.RecordBatch]
    ) -> tuple[list[pa.RecordBatch], Sequence[TaskReport]]:
        task = EntryTask("sum", last.name, keyed_streams(found.layout, stages_of(found)[-1]), "", None)
        taken = pa.concat_batches(task(rows))
        assert taken.column(ANCHOR).null_count == taken.num_rows == 6
        raise KeyError("all was seen")

    with pytest.raises(KeyError, match="all was seen"):
        run(summed(words()), LINES, tracked=False, entry=take)


THREE = Delivery(3, ())


def test_roots_are_told_apart_by_their_number() -> None:
    origins = Origins()
    origins.add_roots(np.array([4, -1]), pa.array([{"source": 1, "position": 2}, None], ROOT_TYPE))
    named = origins.column(np.array([4, -1, 4])).to_pylist()
    assert named == [{"source": 1, "position": 2}, None, {"source": 1, "position": 2}]
    assert origins.column(np.array([], np.int64)).to_pylist() == []
    with pytest.raises(KeyError):
        origins.column(np.array([5]))
    places = [(), (THREE,), (THREE, THREE), (THREE, Delivery(4, ()))]
    assert only_roots(places).tolist() == [-1, 3, 3, -1]
    assert only_roots(Places(np.array([7, 8]))).tolist() == [7, 8]
