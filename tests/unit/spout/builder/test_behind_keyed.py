"""Bolts behind a keyed bolt, without Spark: what becomes of records that earlier batches emitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from acker.errors import TrackingError, UsageError
from acker.identity import root_edge
from spout.bolts.bolts import BasicBolt, Bolt
from spout.bolts.collectors import BasicCollector, OutputCollector
from spout.bolts.hooks import BoltContext
from spout.bolts.keyed_bolt import KeyedBolt, KeyedCollector, KeyedTuple
from spout.builder.topology import TopologyBuilder
from spout.publishing.batch_warnings import held_left_open
from spout.publishing.delayed import find_keyed_roots
from spout.tuples.tuple import Tuple
from tests.support.bolts.keyed_topology_bolts import Words
from tests.support.outcomes import failed_by_cause, older_failed, older_sums, open_edges_of, open_roots_of
from tests.support.reports import keyed_marks
from tests.support.worlds.keyed_world import KeyedQuery
from tests.support.worlds.topology_world import SOURCE, TOPICS, Ran, schema_of


class Pairs(KeyedBolt):
    """Emits the length of what it holds once there are two, on both if it anchors, and acks them."""

    output = "word string, tuples int"

    def __init__(self, *, anchors: bool = True) -> None:
        """Anchor, or emit without an anchor."""
        self._anchors = anchors

    def execute(self, key: tuple[Any, ...], held: Sequence[KeyedTuple], collector: KeyedCollector) -> None:
        """Wait for two."""
        if len(held) == 2:
            collector.emit((held[0]["word"], 2), anchors=held if self._anchors else ())
            collector.ack(*held)


class Follows(KeyedBolt):
    """Emits on the oldest tuple with each one that comes, and acks no tuple."""

    output = "word string, tuples int"

    def execute(self, key: tuple[Any, ...], held: Sequence[KeyedTuple], collector: KeyedCollector) -> None:
        """Emit."""
        collector.emit((held[0]["word"], len(held)), anchors=held[0])


class Passes(BasicBolt):
    """Hands words on; fails the word ``bad``."""

    output = "word string, tuples int"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit."""
        if tuple["word"] == "bad":
            raise ValueError("bad")
        collector.emit((tuple["word"], tuple["tuples"]))


class Keeps(Bolt):
    """Neither acks nor fails."""

    output = "word string"

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Need nothing."""

    def execute(self, tuple: Tuple) -> None:
        """Forget it."""


def topology(keyed: KeyedBolt, last: BasicBolt | Bolt, parallelism: int | None = None) -> TopologyBuilder:
    """Put two bolts behind a keyed one: one in its stage, and one there or behind a shuffle."""
    made = TopologyBuilder()
    made.set_spout("lines", TOPICS, "lines")
    made.set_bolt("split", Words()).shuffle_grouping("lines")
    made.set_bolt("pairs", keyed).fields_grouping("split", "word")
    made.set_bolt("pass", Passes()).shuffle_grouping("pairs")
    made.set_bolt("last", last, parallelism).shuffle_grouping("pass")
    return made


def left_open(ran: Ran) -> dict[int, int]:
    """Return what is missing in the sums of the batch's own roots, by index."""
    return dict(zip(open_roots_of(ran.outcome).tolist(), open_edges_of(ran.outcome).tolist(), strict=True))


def older(ran: Ran) -> dict[int, int]:
    """Return what the batch contributes to roots of earlier batches."""
    positions, edges = older_sums(ran.outcome).get(SOURCE, ([], []))
    return dict(zip(positions, edges, strict=True))


@pytest.mark.parametrize("parallelism", [None, 3])
@pytest.mark.parametrize("anchors", [True, False])
def test_what_bolts_behind_ack_completes_records_of_earlier_batches(
    parallelism: int | None, anchors: bool
) -> None:
    """Rule 3: each record waits for both batches; the edges behind the keyed bolt cancel."""
    query = KeyedQuery(topology(Pairs(anchors=anchors), Passes(), parallelism), sink=print)
    first = query.batch(b"hawk", b"kite")
    assert left_open(first).keys() == {0, 1}
    second = query.batch(b"hawk")
    assert second.values == [("hawk", 2)]
    assert not left_open(second)
    assert older(second) == {0: left_open(first)[0]}
    assert not failed_by_cause(second.outcome)
    assert query.keys == {("hawk",), ("kite",)}


@pytest.mark.parametrize("parallelism", [None, 3])
def test_what_a_bolt_behind_fails_is_failed_for_all_its_anchors(parallelism: int | None) -> None:
    """Rule 5: the record of this batch, and that of an earlier one."""
    query = KeyedQuery(topology(Pairs(), Passes(), parallelism), sink=print)
    query.batch(b"bad", b"kite")
    ran = query.batch(b"bad", b"kite")
    [(cause, own)] = failed_by_cause(ran.outcome)
    [(same, failed)] = older_failed(ran.outcome).items()
    assert (cause.operator, cause.error.split("(")[0], own.tolist()) == ("pass", "ValueError", [0])
    assert (same, failed[SOURCE]) == (cause, [0])
    assert ran.values == [("kite", 2)]


def test_an_emission_without_an_anchor_fails_nothing() -> None:
    """As Storm's: nobody learns what becomes of it."""
    query = KeyedQuery(topology(Pairs(anchors=False), Passes(), 3), sink=print)
    first = query.batch(b"bad")
    second = query.batch(b"bad")
    assert not failed_by_cause(second.outcome)
    assert not older_failed(second.outcome)
    assert older(second) == left_open(first)


@pytest.mark.parametrize("parallelism", [None, 3])
def test_what_a_bolt_behind_keeps_leaves_its_records_open(parallelism: int | None) -> None:
    """The keyed bolt has acked; another edge is missing now, until the record times out."""
    query = KeyedQuery(topology(Pairs(), Keeps(), parallelism))
    first = query.batch(b"hawk")
    second = query.batch(b"hawk")
    assert left_open(second).keys() == {0}
    assert older(second).keys() == {0}
    assert older(second)[0] not in (0, left_open(first)[0], root_edge(SOURCE, 0))
    assert (held_left_open(first.outcome), held_left_open(second.outcome)) == (
        {},
        {"last": [(SOURCE, 0), (SOURCE, 1)]},
    ), "the driver logs its name"
    ran = KeyedQuery(topology(Pairs(anchors=False), Keeps())).batch(b"hawk hawk")
    assert not open_roots_of(ran.outcome).size


def test_two_emissions_on_one_tuple_in_two_batches_have_two_edges() -> None:
    """Two equal ones would cancel, and the record would be acked with neither of them done."""
    query = KeyedQuery(topology(Follows(), Keeps()))
    query.batch(b"hawk")
    second, third = older(query.batch(b"hawk")), older(query.batch(b"hawk"))
    assert second[0] != third[0]


def test_rows_that_do_not_reach_the_bolts_behind_stop_the_batch() -> None:
    """Rule 3: they are counted and fingerprinted on both sides of the shuffle."""
    query = KeyedQuery(topology(Pairs(), Passes(), 3), sink=print)
    query.batch(b"hawk", b"kite")
    with pytest.raises(TrackingError, match=r"bolt 'last' did not receive, or not finish, the 2 tuples that"):
        query.batch(b"hawk", b"kite", lose=lambda rows: [each.slice(1) for each in rows])


def other_anchors(rows: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Give all rows the anchors of the first one."""
    batch = pa.concat_batches(rows)
    place = batch.schema.get_field_index("_windhover")
    return [batch.set_column(place, "_windhover", batch.column(place).take(pa.array([0, 0])))]


def test_rows_with_other_anchors_stop_the_batch() -> None:
    query = KeyedQuery(topology(Pairs(), Passes(), 3), sink=print)
    query.batch(b"hawk", b"kite")
    with pytest.raises(TrackingError, match=r"bolt 'last' did not receive, or not finish, the 2 tuples that"):
        query.batch(b"hawk", b"kite", lose=other_anchors)


def test_a_root_that_the_keyed_bolt_never_named_is_refused() -> None:
    edges = np.array([7, -3, 7])
    keyed = keyed_marks(edges, (np.full(3, SOURCE), edges + 1))
    assert find_keyed_roots(keyed, np.array([7, -3])).positions.tolist() == [8, -2]
    assert find_keyed_roots(keyed, np.array([], np.int64)).positions.tolist() == []
    for unknown in (8, 6, -4):
        with pytest.raises(TrackingError, match="1 tuples behind a keyed bolt have roots on which"):
            find_keyed_roots(keyed, np.array([7, unknown]))


def test_a_global_grouping_gives_all_tuples_one_key() -> None:
    """Storm's TotalRankingsBolt: one task has them all."""
    made = TopologyBuilder()
    made.set_spout("lines", TOPICS, "lines")
    made.set_bolt("split", Words()).shuffle_grouping("lines")
    made.set_bolt("pairs", Pairs()).global_grouping("split")
    made.set_bolt("last", Passes()).shuffle_grouping("pairs")
    query = KeyedQuery(made, sink=print)
    query.batch(b"hawk")
    assert query.batch(b"kite").values == [("hawk", 2)]
    assert query.keys == {()}


def chained() -> TopologyBuilder:
    """Put a keyed bolt behind another one."""
    made = topology(Pairs(), Passes())
    made.set_bolt("again", Pairs()).fields_grouping("last", "word")
    return made


def passing_by() -> TopologyBuilder:
    """Let a bolt read what is before the keyed bolt, and what is behind it."""
    made = topology(Pairs(), Passes())
    made.set_bolt("both", Passes()).shuffle_grouping("pass").shuffle_grouping("split")
    return made


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (chained(), "bolts 'pairs' and 'again' are KeyedBolts, and a topology has one: let one bolt do the"),
        (
            passing_by(),
            "bolt 'both' reads split, and also what comes after 'pairs', .*Let 'pairs' read split, too",
        ),
    ],
)
def test_what_cannot_stand_behind_a_keyed_bolt_is_refused_with_the_cure(
    made: TopologyBuilder, says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        made.compile(schema_of, None, cores=4)


def test_one_key_and_fields_do_not_meet() -> None:
    made = TopologyBuilder()
    made.set_spout("lines", TOPICS, "lines")
    made.set_bolt("split", Words()).shuffle_grouping("lines")
    made.set_bolt("pairs", Pairs()).fields_grouping("split", "word").global_grouping("lines")
    with pytest.raises(UsageError, match=r"groups split by word \(string\) and lines by no field, "):
        made.compile(schema_of, None, cores=4)


def test_the_plan_shows_the_bolts_behind() -> None:
    made = topology(Pairs(), Passes(), 3)
    made.set_bolt("audit", Words(), 2).all_grouping("lines")
    assert made.explain(sink={"pass": print, "last": print}).splitlines()[-15:] == [
        "stage 1: one Python pass, 2 tasks",
        "  bolt audit",
        "    <- lines, all: to each of 2 tasks",
        "shuffle by key: split; each tuple is held by its edge",
        "stage 2: Spark's state store, spark.sql.shuffle.partitions tasks",
        "  keyed bolt pairs",
        "    <- split, fields(word): held by key across micro-batches, until it is acked",
        "  bolt pass",
        "    <- pairs, shuffle: stays in its task, edges are folded there",
        "  sink <- pass; acked when the batch is written",
        "shuffle by task: pass; edges are carried",
        "stage 3: one Python pass, 3 tasks",
        "  bolt last",
        "    <- pass, shuffle: to one of 3 tasks",
        "  sink <- last; acked when the batch is written",
    ]
