"""What bolts leave open is told: by the bolt's name, of the right roots, and not too often."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from acker.config.topics import Input
from spout.bolts.bolts import Bolt
from spout.bolts.collectors import OutputCollector
from spout.bolts.hooks import BoltContext
from spout.builder.topology import TopologyBuilder
from spout.publishing.batch_warnings import WARN_MS, LeftOpen, left_open
from spout.publishing.delayed import RootPositions
from spout.publishing.settle import Moment, settle
from spout.tuples.failures import Cause
from spout.tuples.tuple import Tuple
from tests.support.outcomes import open_edges_of, open_roots_of, outcome_from, released_marks
from tests.support.reports import reported, task_report
from tests.support.worlds.topology_world import TOPICS, Ran, run

INPUTS: tuple[Input, ...] = (TOPICS.input("lines"),)


class Drops(Bolt):
    """Hands lines on, and neither acks nor fails those that begin with its letter."""

    output = "value string"

    def __init__(self, letter: str) -> None:
        """Drop lines that begin with a letter."""
        self._letter = letter

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, tuple: Tuple) -> None:
        """Hand the line on; ack it, fail it, or forget it."""
        line = tuple["value"].decode() if isinstance(tuple["value"], bytes) else tuple["value"]
        self._collector.emit((line,), anchors=tuple)
        if line.startswith("fail"):
            self._collector.fail(tuple)
        elif not line.startswith(self._letter):
            self._collector.ack(tuple)


def two(first: str, second: str, *fields: str) -> TopologyBuilder:
    """Let a bolt read what another one emits, in its task, or by fields in another one."""
    builder = TopologyBuilder()
    builder.set_spout("lines", TOPICS, "lines")
    builder.set_bolt("first", Drops(first)).shuffle_grouping("lines")
    declarer = builder.set_bolt("second", Drops(second))
    if fields:
        declarer.fields_grouping("first", *fields)
    else:
        declarer.shuffle_grouping("first")
    return builder


def told(ran: Ran) -> dict[str, list[int]]:
    """Return the bolts that are named, with the roots of each."""
    return {bolt: roots.tolist() for bolt, roots in left_open(ran.evaluated, ran.outcome).items()}


LINES = [b"a", b"b", b"c", b"a", b"d", b"fail"]


@pytest.mark.parametrize("fields", [(), ("value",)], ids=["one task", "shuffled"])
def test_the_bolt_that_received_the_tuple_is_named_and_nobody_behind_it(fields: tuple[str, ...]) -> None:
    """S81: what it emitted is outstanding too, whoever acked it."""
    assert told(run(two("a", "-", *fields), LINES, print)) == {"first": [0, 3]}
    assert told(run(two("-", "b", *fields), LINES, print)) == {"second": [1]}
    assert told(run(two("a", "b", *fields), LINES, print)) == {"first": [0, 3], "second": [1]}


def test_nobody_is_named_where_everything_is_acked_or_failed() -> None:
    assert told(run(two("-", "-"), LINES, print)) == {}


def test_a_root_that_failed_elsewhere_waits_for_no_timeout() -> None:
    ran = run(two("f", "-"), [b"fine", b"fail"], print)
    assert told(ran) == {"first": [0]}


def test_what_is_held_on_purpose_is_no_ones_fault() -> None:
    """`spout.hold` and `spout.keyed` list apart what waits; its sum misses an edge all the same."""
    plan = run(two("-", "-"), LINES, print).outcome.plan
    outcome = outcome_from(plan, partial=np.array([0, 1]), residual=np.array([5, 6], np.uint64))
    assert left_open([reported(0, 0, 0, task_report("hold"))], outcome) == {}


def test_an_evaluation_that_does_not_count_names_nobody() -> None:
    ran, other = run(two("-", "-"), LINES, print), run(two("a", "-"), LINES, print)
    assert left_open([*ran.evaluated, *other.evaluated], ran.outcome) == {}


def test_a_best_effort_root_is_not_told_of() -> None:
    """Whatever was done to it, it was acked with its batch: the settled batch does not list it."""
    ran = run(two("a", "-"), LINES, print)
    free = outcome_from(ran.outcome.plan, partial=np.array([3]), residual=np.array([9], np.uint64))
    assert {b: r.tolist() for b, r in left_open(ran.evaluated, free).items()} == {"first": [3]}


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        """Begin at some time."""
        self.ms = 7_000

    def __call__(self) -> int:
        """Return the time."""
        return self.ms


def test_a_bolt_is_told_of_at_once_and_then_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    teller = LeftOpen(clock)
    one, both = run(two("a", "-"), LINES, print, first=100), run(two("a", "b"), LINES, print, first=200)
    with caplog.at_level(logging.WARNING, "windhover.spout"):
        for ran in (one, one, both):
            teller.warn("q", ran.evaluated, ran.outcome, INPUTS)
        clock.ms += WARN_MS
        teller.warn("q", one.evaluated, one.outcome, INPUTS)
        teller.warn("another query", one.evaluated, one.outcome, INPUTS)
    said = [record.getMessage().partition(":")[0] for record in caplog.records]
    assert said == [
        "left_open operator=first roots=2 first=lines/0@100",
        "left_open operator=second roots=1 first=lines/0@201",
        "left_open operator=first roots=6 first=lines/0@100",
        "left_open operator=first roots=2 first=lines/0@100",
    ]
    assert (
        caplog.records[0]
        .getMessage()
        .endswith(
            "bolt 'first' neither acked nor failed tuples of these roots; they time out, the first after 30s,"
            " and are replayed"
        )
    )


def test_the_bolt_of_ack_anchors_is_named_with_a_record_of_an_earlier_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of a root that failed by another row, nobody waits for the timeout."""
    plan = run(two("-", "-"), LINES, print, first=100).outcome.plan
    source, cause = plan.ranges[0].source, Cause("other", "ValueError", "")

    def places(*positions: int) -> RootPositions:
        return RootPositions(np.full(len(positions), source), np.array(positions))

    read = task_report("read_stream", plan=plan, ranges=plan.ranges, failures=((cause, np.array([1])),))
    released = released_marks(
        failures=((cause, places(7)),),
        open_places=places(101, 9, 102, 9, 8, 7),
        open_edges=np.arange(6).astype(np.uint64),
    )
    evaluations = [reported(1, 0, 0, read), reported(2, 0, 0, task_report("ack", marks=released))]
    outcome = settle(evaluations, (), lambda _stage: 1, Moment(plan, 0))
    with caplog.at_level(logging.WARNING, "windhover.spout"):
        LeftOpen().warn("q", evaluations, outcome, INPUTS)
    [record] = caplog.records
    assert record.getMessage() == (
        "left_open operator=ack roots=3 first=lines/0@8: bolt 'ack' neither acked nor failed tuples of these"
        " roots; they time out, the first within 3d, and are replayed"
    )


def test_failures_of_the_batch_do_not_hide_the_other_roots() -> None:
    ran = run(two("a", "-"), LINES, print)
    cause = Cause("other", "ValueError", "")
    failed = outcome_from(
        ran.outcome.plan,
        ((cause, np.array([0])),),
        partial=open_roots_of(ran.outcome),
        residual=open_edges_of(ran.outcome),
    )
    assert {b: r.tolist() for b, r in left_open(ran.evaluated, failed).items()} == {"first": [3]}
