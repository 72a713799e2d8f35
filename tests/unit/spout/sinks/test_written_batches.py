"""What a sink makes of what its function did with a batch: wrote it, skipped it, read a part, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from acker.errors import TrackingError, UsageError
from acker.root_sets.root_set import NO_ROOTS
from acker.wire.events import SourceRun
from spout.publishing.publish import BATCH_SKIPPED
from spout.publishing.report_accumulator import QUERY_PROPERTY, RUN_PROPERTY
from spout.publishing.watermarks import NOTHING_DROPPED, Dropped
from spout.sinks import foreach_batch
from spout.sinks.drain import Unread
from spout.sinks.foreach_batch import RunPlan, Sink, sink, skipped
from spout.tuples.columns import ANCHOR
from tests.support.linked import batch_plan

PLAN = batch_plan("s", (SourceRun(65_536, 0, 10),))
SETTLED = "settled"
DROPPED = Dropped(rows=7)


@dataclass
class World:
    """One batch of a query, without Spark: its rows, what tasks report, and what is published.

    Attributes:
        run_plan: what the plan of the run shows.
        reports_plan: the plan that a read task has reported; None: none has.
        logged: what Spark's offset log has of the batch; None: nothing.
        runs_again: whether another run of the query planned the batch.
        partitions: how many partitions the rows have.
        nothing_to_publish: whether all was read untracked.
        is_shuffled: whether Spark shuffled the batch behind the last bolt.
        stays: whether the rows come to the sink as the query left them.
        stream: the stream that has reported.
        drained: the partitions that were read to their end.
        unread: how many partitions were not.
        evaluated: how often the rows were evaluated without being written.
        published: what was published, with what was dropped.
        forgotten: what was forgotten, in its order.
    """

    run_plan: RunPlan = field(default_factory=RunPlan)
    reports_plan: Any = PLAN
    logged: Any = field(default_factory=lambda: SimpleNamespace(emitted_nothing=False))
    runs_again: bool = False
    partitions: int = 2
    nothing_to_publish: bool = False
    is_shuffled: bool = False
    stays: bool = True
    stream: Any = "stream"
    drained: frozenset[int] = frozenset()
    unread: int = 0
    jobs: list[int] = field(default_factory=lambda: [3])
    reported: int = 1
    evaluated: int = 0
    through: list[Any] = field(default_factory=list)
    published: list[tuple[Any, Any, Any]] = field(default_factory=list)
    forgotten: list[object] = field(default_factory=list)
    seen: list[tuple[tuple[str, ...], int]] = field(default_factory=list)
    columns: tuple[str, ...] = ("word", ANCHOR)
    query: str = "q"

    def read(self) -> None:
        """Let the tasks of a job report on the batch."""
        self.run_job()
        self.reported += 1

    def run_job(self) -> None:
        """Run a job."""
        self.jobs.append(self.jobs[-1] + 1)

    @property
    def rows(self) -> Any:
        """The rows of the batch."""
        properties = {QUERY_PROPERTY: self.query or None, RUN_PROPERTY: "r1"}
        context = SimpleNamespace(getLocalProperty=properties.get)
        session = SimpleNamespace(sparkContext=context)

        def without(column: str) -> Any:
            return SimpleNamespace(columns=tuple(name for name in self.columns if name != column))

        def evaluate() -> None:
            self.evaluated += 1

        modes = SimpleNamespace(
            mode=lambda mode: SimpleNamespace(save=evaluate) if mode == "overwrite" else None
        )
        write = SimpleNamespace(format=lambda name: modes if name == "noop" else None)
        return SimpleNamespace(sparkSession=session, columns=self.columns, drop=without, write=write)

    def write_with(self, function: Callable[[int], object], *, deterministic: bool = False) -> None:
        """Let a sink write the batch by a function."""

        def write(visible: Any, batch_id: int) -> object:
            self.seen.append((visible.columns, batch_id))
            return function(batch_id)

        Sink(write, deterministic=deterministic)(self.rows, 7)

    @property
    def outcome(self) -> Any:
        """What was published: `SETTLED`, or the outcome of a batch that was skipped; nothing else was."""
        [(stream, outcome, _)] = self.published
        assert stream == "stream"
        return outcome


class FakeDrain:
    """Follows the rows as the world says."""

    world: World

    def __init__(self, _ledger: object, query: str, batch: int) -> None:
        assert (query, batch) == ("q", 7)

    def with_drain(self, rows: Any) -> Any:
        self.world.through.append(rows)
        return rows

    @property
    def ended_partitions(self) -> frozenset[int]:
        return self.world.drained

    def find_unread(self, _rows: object) -> Unread:
        return Unread(self.world.unread, self.world.partitions)

    def forget(self) -> None:
        self.world.forgotten.append("drain")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A batch of ten records, of which no task has reported yet since the sink was called."""
    made = World()
    ledger = SimpleNamespace(
        count=lambda query, batch: made.reported if (query, batch) == ("q", 7) else -1,
        forget=lambda *lane: made.forgotten.append(lane),
    )

    def reports(_query: str, _batch: int) -> Any:
        return SimpleNamespace(
            plan=made.reports_plan, absent=NO_ROOTS, nothing_to_publish=made.nothing_to_publish
        )

    application = SimpleNamespace(
        ledger=ledger,
        sunk=set(),
        reports=reports,
        link=lambda _stream: SimpleNamespace(runs_again=lambda plan: made.runs_again and plan is PLAN),
    )

    class End:
        """Publishes into the world."""

        def __init__(self, application: Any, lane: Any) -> None:
            self.application, self.query_batch = application, lane
            self.batch_id = lane.seq

        def record_and_find_stream(self, _reports: object) -> Any:
            return made.stream

        def settle(self, stream: Any, _reports: object) -> Any:
            return SETTLED

        def publish(self, stream: Any, outcome: Any, dropped: Dropped = NOTHING_DROPPED) -> None:
            made.published.append((stream, outcome, dropped))

    last = SimpleNamespace(executedPlan=lambda: "executed")
    execution = SimpleNamespace(analyzedPlan=lambda: made.run_plan, lastExecution=lambda: last)
    FakeDrain.world = made
    monkeypatch.setattr(foreach_batch, "Application", SimpleNamespace(of=lambda _session: application))
    monkeypatch.setattr(foreach_batch, "BatchEnd", End)
    monkeypatch.setattr(foreach_batch, "Drain", FakeDrain)
    monkeypatch.setattr(foreach_batch, "execution_of_running_query", lambda _session, _query: execution)
    monkeypatch.setattr(foreach_batch, "refuse_query", lambda _plan: None)
    monkeypatch.setattr(foreach_batch, "log_unfit_rules_of", lambda _plan, _application: None)
    monkeypatch.setattr(foreach_batch, "may_shuffle", lambda plan: plan.may_shuffle)
    monkeypatch.setattr(
        foreach_batch, "hold_name_of_each_watermark", lambda plan: plan.hold_name_of_each_watermark
    )
    monkeypatch.setattr(foreach_batch, "jobs_of", lambda _context, run: made.jobs if run == "r1" else [])
    monkeypatch.setattr(foreach_batch, "crosses_stages", lambda _plan: made.is_shuffled)
    monkeypatch.setattr(foreach_batch, "stays", lambda _rows: made.stays)
    monkeypatch.setattr(foreach_batch, "dropped_rows", lambda _execution, _holds: DROPPED)
    monkeypatch.setattr(foreach_batch, "partition_count_of", lambda _rows: made.partitions)
    monkeypatch.setattr(foreach_batch, "logged", lambda _application, _lane: made.logged)
    return made


def is_skipped(outcome: Any) -> bool:
    """Return whether an outcome fails the batch as one that was skipped."""
    return outcome != SETTLED and {cause.error for cause in outcome.marks.used_causes()} == {BATCH_SKIPPED}


# without a shuffle ------------------------------------------------------------------------------------------


def test_a_batch_that_was_read_is_settled_and_its_hidden_column_is_not_seen(world: World) -> None:
    world.write_with(lambda _batch: world.read())
    assert world.seen == [(("word",), 7)]
    assert world.published == [("stream", SETTLED, NOTHING_DROPPED)]
    assert world.forgotten == [("q", 7)]
    assert world.evaluated == 0
    assert world.through == []


def test_rows_without_a_hidden_column_are_handed_on_as_they_are(world: World) -> None:
    world.columns = ("word",)
    world.write_with(lambda _batch: world.read())
    assert world.seen == [(("word",), 7)]


@pytest.mark.parametrize("reads", [True, False])
def test_a_batch_that_the_function_skips_fails_its_roots_whether_or_not_it_has_read_it(
    world: World, reads: bool
) -> None:
    def write(batch: int) -> None:
        if reads:
            world.read()
        skipped(batch)

    world.write_with(write)
    assert is_skipped(world.outcome)
    assert world.evaluated == 0


def test_to_skip_another_batch_skips_nothing(world: World) -> None:
    def write(batch: int) -> None:
        world.read()
        skipped(batch + 1)

    world.write_with(write)
    assert world.outcome == SETTLED


def test_what_was_skipped_in_one_batch_is_not_skipped_in_the_next(world: World) -> None:
    world.write_with(skipped)
    world.write_with(lambda _batch: world.read())
    assert [outcome == SETTLED for _, outcome, _ in world.published] == [False, True]


def test_nothing_is_skipped_outside_of_a_sink_nor_after_a_function_that_raised(world: World) -> None:
    def write(_batch: int) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        world.write_with(write)
    assert world.published == []
    assert world.forgotten == [("q", 7)], "the next run counts nothing of this one"
    with pytest.raises(UsageError, match=r"within the function that spout\.sink was given"):
        skipped(7)


def test_a_function_that_reads_nothing_of_a_batch_with_records_has_skipped_it(world: World) -> None:
    world.write_with(lambda _batch: None)
    assert is_skipped(world.outcome)


@pytest.mark.parametrize("logged", [None, SimpleNamespace(emitted_nothing=True)])
def test_a_function_that_reads_nothing_of_nothing_has_written_it(world: World, logged: Any) -> None:
    world.logged = logged
    world.write_with(lambda _batch: None)
    assert world.outcome == SETTLED


def test_a_batch_of_which_nothing_is_tracked_may_be_read_or_not(world: World) -> None:
    world.nothing_to_publish = True
    world.write_with(lambda _batch: None)
    world.write_with(lambda _batch: world.run_job())
    assert [outcome for _, outcome, _ in world.published] == [SETTLED] * 2


@pytest.mark.parametrize("logged", [None, SimpleNamespace(emitted_nothing=True)])
def test_a_job_that_reports_nothing_is_no_part_of_a_batch_without_records(world: World, logged: Any) -> None:
    world.logged = logged
    world.write_with(lambda _batch: world.run_job())
    assert world.outcome == SETTLED


def test_a_job_that_reads_a_part_of_a_batch_acks_nothing(world: World) -> None:
    with pytest.raises(TrackingError, match=r"batch 7 was evaluated in part only \(take, limit"):
        world.write_with(lambda _batch: world.run_job())
    assert world.published == []


def test_a_run_without_any_job_has_run_none(world: World) -> None:
    world.jobs = []
    world.write_with(lambda _batch: None)
    assert is_skipped(world.outcome)


@pytest.mark.parametrize(
    "jobs", [([3], [4]), ([3, 4], [4]), ([3, 5], [3, 5, 6]), ([], [1]), ([1, 9], [2, 9])]
)
def test_a_job_is_seen_by_the_number_of_jobs_or_by_the_first_or_the_last_of_them(
    world: World, jobs: tuple[list[int], list[int]]
) -> None:
    """Spark forgets old ones."""
    before, world_jobs = jobs
    world.jobs = before

    def write(_batch: int) -> None:
        world.jobs = world_jobs

    with pytest.raises(TrackingError, match="in part only"):
        world.write_with(write)


# a batch that runs again ------------------------------------------------------------------------------------


@pytest.mark.parametrize("runs_again", [True, False])
@pytest.mark.parametrize("deterministic", [True, False])
def test_what_was_skipped_counts_only_where_an_earlier_run_has_planned_it_and_emits_the_same(
    world: World, runs_again: bool, deterministic: bool
) -> None:
    """What a sink has of a batch that this run planned is of another checkpoint."""
    world.runs_again = runs_again
    world.write_with(skipped, deterministic=deterministic)
    assert (world.outcome == SETTLED) is (runs_again and deterministic)
    assert world.evaluated == (1 if deterministic else 0), "to know what its bolts do, without writing it"


def test_a_skipped_batch_that_no_task_has_reported_is_evaluated_and_one_without_partitions_is_not(
    world: World,
) -> None:
    world.reports_plan = None
    world.write_with(skipped)
    assert world.evaluated == 1
    assert world.outcome == SETTLED, "still without a plan: there is nothing to fail"
    world.partitions = 0
    world.write_with(skipped)
    assert world.evaluated == 1


def test_a_batch_of_no_stream_of_ours_is_not_published(world: World) -> None:
    world.stream = None
    world.write_with(lambda _batch: world.read())
    assert world.published == []
    assert world.forgotten == [("q", 7)]


# behind a shuffle -------------------------------------------------------------------------------------------


@pytest.fixture
def shuffled(world: World) -> World:
    """A batch that Spark has shuffled behind the last bolt, and evaluated up to there."""
    world.run_plan = RunPlan(may_shuffle=True)
    world.is_shuffled = True
    return world


def test_behind_a_shuffle_reports_of_bolts_say_nothing_and_drained_partitions_do(shuffled: World) -> None:
    def write(_batch: int) -> None:
        shuffled.read()
        shuffled.drained = frozenset({0, 1})

    shuffled.write_with(write)
    assert shuffled.outcome == SETTLED
    assert len(shuffled.through) == 1
    assert shuffled.forgotten == ["drain", ("q", 7)]


def test_behind_a_shuffle_what_was_read_in_part_acks_nothing(shuffled: World) -> None:
    shuffled.unread, shuffled.partitions = 3, 8
    with pytest.raises(TrackingError, match=r"batch 7 was .*: 3 of the 8 partitions behind its last"):
        shuffled.write_with(lambda _batch: shuffled.read())
    assert shuffled.forgotten == ["drain", ("q", 7)]


def test_behind_a_shuffle_a_function_that_reads_nothing_has_skipped_the_batch(shuffled: World) -> None:
    shuffled.unread = 2
    shuffled.write_with(lambda _batch: None)
    assert is_skipped(shuffled.outcome)


def test_behind_a_shuffle_without_partitions_there_is_nothing_to_read(shuffled: World) -> None:
    shuffled.partitions = 0
    shuffled.write_with(lambda _batch: None)
    assert shuffled.outcome == SETTLED


def test_behind_a_shuffle_a_partition_that_was_drained_by_no_job_of_the_run_counts(shuffled: World) -> None:
    """The jobs may have been another thread's, or Spark may have forgotten them."""
    shuffled.drained, shuffled.unread = frozenset({0}), 1
    with pytest.raises(TrackingError, match="1 of the 2 partitions"):
        shuffled.write_with(lambda _batch: None)


def test_a_query_that_may_shuffle_and_has_not_is_followed_by_its_bolts(
    shuffled: World,
) -> None:
    shuffled.is_shuffled = False
    shuffled.write_with(lambda _batch: shuffled.read())
    assert shuffled.outcome == SETTLED
    assert shuffled.through == []
    assert shuffled.forgotten == [("q", 7)]


def test_rows_that_were_shuffled_again_before_the_sink_got_them_are_refused(shuffled: World) -> None:
    shuffled.stays = False
    with pytest.raises(TrackingError, match=r"batch 7 was shuffled by its query and again before"):
        shuffled.write_with(lambda _batch: shuffled.read())
    assert shuffled.seen == []


# what Spark counted -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("holds", [(), ("wait",)])
@pytest.mark.parametrize("function", ["read", "nothing"])
def test_what_a_watermark_dropped_is_published_with_what_is_settled(
    world: World, holds: tuple[str, ...], function: str
) -> None:
    world.run_plan = RunPlan(hold_name_of_each_watermark=holds)
    if function == "nothing":
        world.logged = None
    world.write_with((lambda _batch: world.read()) if function == "read" else (lambda _batch: None))
    assert world.published == [("stream", SETTLED, DROPPED if holds else NOTHING_DROPPED)]


def test_what_was_dropped_of_a_skipped_batch_that_emits_the_same_is_published_too(world: World) -> None:
    world.run_plan, world.runs_again = RunPlan(hold_name_of_each_watermark=("wait",)), True
    world.write_with(skipped, deterministic=True)
    assert world.published == [("stream", SETTLED, DROPPED)]


# what a sink is ---------------------------------------------------------------------------------------------


def test_a_batch_outside_of_a_query_is_written_by_no_plan(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody calls the sink with rows of his own."""
    world.query = ""
    monkeypatch.setattr(
        foreach_batch, "execution_of_running_query", lambda *_: pytest.fail("there is no query")
    )
    world.logged = None
    world.write_with(lambda _batch: None)
    assert world.outcome == SETTLED
    assert world.forgotten == [("", 7)]


def test_a_sink_promises_nothing_of_its_bolts_unless_it_is_told_to() -> None:
    def write(_rows: object, _batch: int) -> None:
        """Write nothing."""

    assert sink(write, deterministic=True)._is_deterministic
    assert not sink(write)._is_deterministic
    assert not Sink(write)._is_deterministic


def test_a_function_that_would_not_run_is_no_sink() -> None:
    def write(_rows: object, _batch: int) -> Iterator[int]:
        yield 7

    with pytest.raises(UsageError, match="the sink's function write has a yield"):
        sink(write)
