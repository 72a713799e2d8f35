"""Stages of a topology in child processes: what dies fails, and all else comes out as without it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pyarrow as pa
import pytest

from acker.errors import TrackingError
from acker.identity import source_of
from spout.bolts.bolts import AnyBolt, ArrowBolt, BasicBolt, BatchCollector, Bolt
from spout.bolts.collectors import BasicCollector, OutputCollector
from spout.bolts.hooks import BoltContext, FailInfo, TaskHook
from spout.builder.topology import TopologyBuilder
from spout.execution.stage_run import StageRun
from spout.isolation.feeds import RowBlock, pack_block, unpack_block
from spout.isolation.isolation import IsolatedRun, can_keep_blocks
from spout.topology.stage_pass import StagePass
from spout.tuples.anchors import ORDINAL_BITS, AnchorForm, Anchors, wide_column
from spout.tuples.counts import Counts
from spout.tuples.messages import MessageRows
from spout.tuples.poison import WORKER_DIED
from spout.tuples.rows import ArrowRows
from spout.tuples.tuple import Tuple
from tests.support.bolts import sample_bolts
from tests.support.outcomes import failed_by_cause, open_edges_of, open_roots_of
from tests.support.worlds.topology_world import TOPICS, Ran, record, run, schema_of, stages_of


class Split(BasicBolt):
    """Splits lines into words."""

    output = "word string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit each word; ``worse`` fails."""
        for word in tuple["value"].decode().split():
            if word == "worse":
                raise ValueError(word)
            collector.emit((word,))
        collector.report_error(f"seen {tuple['offset']}")


def end(word: str) -> None:
    """Raise, or end this process, as a word says."""
    if word == "raise":
        raise ValueError("exit status 3")
    if word == "exit":
        os._exit(3)


class Keep(BasicBolt):
    """Hands words on."""

    output = "word string"

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Emit the word, and what it says happens."""
        collector.emit((tuple["word"],))
        end(tuple["word"])


class Count(sample_bolts.Count):
    """Counts the words of a task, after what a word says has happened."""

    def execute(self, tuple: Tuple) -> None:
        """Keep the word, or forget it."""
        end(tuple["word"])
        super().execute(tuple)


class KeepAll(ArrowBolt):
    """Hands words on, whole batches at once."""

    output = "word string"

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit the words; ``raise`` fails by hand."""
        for row, word in enumerate(batch.column("word").to_pylist()):
            if word == "raise":
                collector.fail(row, ValueError("exit status 3"))
            else:
                end(word)
        collector.emit([batch.column("word")], np.arange(batch.num_rows))


class KeepLate(Bolt):
    """Hands words on when its task ends."""

    output = "word string"

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Begin without words."""
        self._collector = collector
        self._held: list[Tuple] = []

    def execute(self, tuple: Tuple) -> None:
        """Hold the word."""
        self._held.append(tuple)

    def cleanup(self) -> None:
        """Hand all on, unless one says otherwise."""
        for each in self._held:
            end(each["word"])
        for each in self._held:
            self._collector.emit((each["word"],), anchors=each)
            self._collector.ack(each)


class SeeFails(TaskHook):
    """Shows that there is a hook."""

    def fail(self, info: FailInfo) -> None:
        """See it."""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """End all children with the test."""
    with ExitStack() as opened:
        yield opened


def topology(*bolts: AnyBolt, hook: TaskHook | None = None) -> TopologyBuilder:
    """Make a topology of bolts in a row; the last one is behind a fields grouping."""
    builder = TopologyBuilder()
    builder.set_spout("lines", TOPICS, "lines")
    before = "lines"
    for number, bolt in enumerate(bolts):
        declared = builder.set_bolt(f"bolt-{number}", bolt)
        if number + 1 == len(bolts):
            declared.fields_grouping(before, "word")
        else:
            declared.shuffle_grouping(before)
        before = f"bolt-{number}"
    if hook is not None:
        builder.add_hook(hook)
    return builder


def isolated(builder: TopologyBuilder, lines: list[bytes], stack: ExitStack) -> Ran:
    """Run a topology with all its bolts in children."""

    def starts(pass_: StagePass, context: BoltContext) -> IsolatedRun:
        made = IsolatedRun(pass_, context, 0, lambda guarded: StageRun(guarded, context))
        stack.callback(made.close)
        return made

    return run(builder, lines, print, begin=starts)


def tuples(counts: Counts) -> dict[object, int]:
    """Return counts without times."""
    return {counted: measure.tuples for counted, measure in counts.items()}


LINES = ["a b a", "worse", "c {} b", "", "lost a", "{}", "d " * 30]


@pytest.mark.parametrize("last", [Keep, Count, KeepAll])
@pytest.mark.parametrize("hooked", [False, True])
def test_a_topology_reports_the_same_but_for_what_has_died(
    last: type[AnyBolt], hooked: bool, stack: ExitStack
) -> None:
    known, made = (
        run_it(topology(Split(), Keep(), last(), hook=SeeFails() if hooked else None), how)
        for how, run_it in (
            ("raise", lambda builder, how: run(builder, [x.format(how).encode() for x in LINES], print)),
            ("exit", lambda builder, how: isolated(builder, [x.format(how).encode() for x in LINES], stack)),
        )
    )
    assert Counter(made.values) == Counter(known.values)
    failed = {index: cause for cause, roots in failed_by_cause(known.outcome) for index in roots.tolist()}
    found = {index: cause for cause, roots in failed_by_cause(made.outcome) for index in roots.tolist()}
    assert sorted(found) == sorted(failed) == [1, 2, 5]
    assert found[2] == ("bolt-1", WORKER_DIED, "exit status 3")
    assert failed[1] == found[1]
    assert open_roots_of(made.outcome).tolist() == open_roots_of(known.outcome).tolist()
    assert open_edges_of(made.outcome).tolist() == open_edges_of(known.outcome).tolist()
    assert tuples(made.outcome.counts) == tuples(known.outcome.counts)
    assert Counter(made.outcome.errors) == Counter(known.outcome.errors)


@pytest.mark.parametrize("last", [Count, KeepAll])
def test_a_tuple_that_dies_behind_a_shuffle_fails_its_roots(last: type[AnyBolt], stack: ExitStack) -> None:
    made = isolated(topology(Split(), last()), [b"a exit b", b"b c", b"exit", b"a"], stack)
    found = {index: cause for cause, roots in failed_by_cause(made.outcome) for index in roots.tolist()}
    assert found == dict.fromkeys((0, 2), ("bolt-1", WORKER_DIED, "exit status 3"))
    words = Counter(word for word, *_ in made.values)
    assert {"a", "b", "c"} == set(words)
    assert not len(open_roots_of(made.outcome))


def test_a_held_tuple_that_dies_behind_a_shuffle_is_found_by_trial(stack: ExitStack) -> None:
    made = isolated(topology(Split(), KeepLate()), [b"a", b"exit", *[b"b"] * 6], stack)
    found = {index: cause for cause, roots in failed_by_cause(made.outcome) for index in roots.tolist()}
    assert found == {1: ("bolt-1", WORKER_DIED, "exit status 3")}
    assert Counter(made.values) == Counter({("a",): 1, ("b",): 6})


def test_a_hook_or_a_rich_bolt_lets_a_task_begin_anew() -> None:
    plain, hooked = (
        stages_of(topology(Split(), Keep(), hook=hook).compile(schema_of, cores=2))
        for hook in (None, SeeFails())
    )
    assert all(can_keep_blocks(stage) for stage in plain)
    assert not any(can_keep_blocks(stage) for stage in hooked)
    counting = stages_of(topology(Split(), Count()).compile(schema_of, cores=2))
    assert [can_keep_blocks(stage) for stage in counting] == [True, False]


def test_records_reach_a_child_as_they_are() -> None:
    positions = np.arange(5, 8)
    rows = MessageRows(
        [record(value, 5 + n) for n, value in enumerate([b"x", b"", b"z"])], source_of(4, 1), positions
    )
    column = pa.array(np.arange(3) << ORDINAL_BITS)
    wide = wide_column(column, pa.array([1, 2, 3]), pa.array([4, 5, 6]))
    for anchors in (None, Anchors(AnchorForm.PACKED, column, (7,)), Anchors(AnchorForm.WIDE, wide)):
        for part, block in enumerate(RowBlock(rows, anchors).cut(2)):
            found = unpack_block(pack_block(block))
            assert isinstance(found.rows, MessageRows)
            fields = [*rows.names, "headers"]
            assert found.rows.arrow(fields).equals(rows.arrow(fields).slice(2 * part, 2))
            assert found.rows.message_id(0) == rows.message_id(2 * part)
            assert found.rows.came_from == rows.came_from
            if anchors is not None:
                assert found.anchors is not None
                assert found.anchors.column.equals(anchors.column.slice(2 * part, 2))
                assert found.anchors.subscriptions == anchors.subscriptions
    arrow = RowBlock(ArrowRows(rows.arrow(None)), None)
    assert unpack_block(pack_block(arrow)).rows.value("offset", 2) == 7


class NoPickle(Exception):
    """An error that cannot be written down."""

    def __reduce__(self) -> str:
        raise RuntimeError("not me")


class NoDatabase(Keep):
    """Cannot be prepared."""

    def prepare(self, context: BoltContext) -> None:
        raise NoPickle("no database")


def test_what_prepare_raises_in_a_child_is_told_even_where_it_cannot_travel(stack: ExitStack) -> None:
    with pytest.raises(TrackingError, match=r"^NoPickle: no database$"):
        isolated(topology(Split(), NoDatabase()), [b"a"], stack)
