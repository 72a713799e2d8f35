"""Delayed acks for DataFrames: hold tuples in Spark's state, and ack them with the row that they
end up in.

`hold` gives every row an anchor that stays valid after its batch. `collect_anchors` keeps the
anchors in the aggregate, so that Spark's state store, and with it the checkpoint, has all tuples
that are not acked yet; a join keeps them with its rows. `ack_anchors` acks them when the row that
they ended up in is written.

An *anchor* in the column `ANCHOR` has one of several forms (`AnchorForm`). Before `hold` it has
source
and position of its root, beside what it has within a batch (WIDE). Behind `hold` it has source and
position of its root, and an *edge*, which names the delivery into Spark's state (`HELD_TYPE`).

Source: docs/design/protocol.md, section 5.2; ``spout.publishing.delayed``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import LongType

from acker.errors import UsageError
from acker.identity import I64, subscription_key
from spout.bolts.bolts import ArrowBolt, BasicBolt, bolt_name, check_bolt, check_hooks
from spout.bolts.hooks import TaskHook
from spout.bolts.outputs import output_schema, zone_of_session
from spout.execution.calls import RowFailure
from spout.held.conditions import visible_schema, with_anchors
from spout.held.held_plan import refuse_holds_left_out
from spout.isolation.safety import Safety
from spout.isolation.task_runs import no_garbage_collection, running_stage
from spout.publishing.delayed import (
    NEVER_MS,
    HeldAt,
    RootPositions,
    held_edges,
    held_marks,
    holder_of,
)
from spout.publishing.fold import TaskReport
from spout.publishing.report_accumulator import add_report, task_name
from spout.publishing.root_marks import RootMark, RootMarks
from spout.spark.arrow_types import spark_type_of
from spout.spark.column_functions import column_function
from spout.spark.private import logical_plan
from spout.streaming.application import Application
from spout.streaming.frames import hidden_column, streams_behind, through
from spout.streaming.query_plan import label, refuse_limit, streams_read
from spout.topology.chain import Chain, Step
from spout.tuples.anchor_columns import EDGE, HELD_TYPE, UNTIL, with_one_anchor_column
from spout.tuples.anchors import ORDINAL_BITS, WIDE_TYPE, AnchorForm, Anchors
from spout.tuples.columns import ANCHOR
from spout.tuples.failures import Cause
from spout.tuples.rows import ArrowRows
from spout.tuples.tuple import DEFAULT_STREAM, SPARK

_DROPPED_MS = -1
"""The time in place of a null: every watermark has passed it, so the row counts as too late."""


LATE_CHOICES: Final = (
    'late="fail": its record is failed by LATE, and is a dead letter in the end; or late="ack": its record'
    " counts as done, in no window, and is only counted and logged"
)
"""What may become of a tuple that a watermark drops. Nobody knows which is right, so there is no
default.
"""


def hold(
    until: Column | str | None, *, late: str | None = None, name: str = "hold"
) -> Callable[[DataFrame], DataFrame]:
    """Return a function for `DataFrame.transform` after which a later micro-batch can ack the rows.

    >>> lines = spout.read_stream(spark, topics, "sentences", delayed_acks=True)
    >>> minutes = lines.selectExpr("*", "window(timestamp, '1 minute') AS minute")
    >>> held = minutes.transform(spout.hold("minute.end", late="fail"))
    >>> held.select("minute", "_windhover").dtypes[1]
    ('_windhover', 'struct<source:bigint,position:bigint,edge:bigint>')

    Behind it every row must reach an aggregate with `collect_anchors`, or a join (`join_anchors`).
    A record stays pending until `ack_anchors` has acked all its rows. Its `timeout` ends with the
    batch that holds it; from then on `held_timeout` counts, three days by default. If that passes
    it is replayed, and counts again in a window that is still open. So `held_timeout` must be
    longer than a window, its delay and any time in which the topic is quiet, and
    `max_spout_pending` larger than the number of records in the open windows. The records of rows
    that a filter behind it drops stay pending for so long, so filter before it. So do those of rows
    of an inner join without a match, or with a null in its condition; use an outer join to decide
    about them. Compute sliding windows before it (``withColumn("window", window(...))``), so that
    each copy of a row is held separately. Hold each side of a join before the join, under its own
    name.

    Args:
        until: the event time at which a watermark drops the row: the window's end, or the event
            time itself if rows are grouped by it or a join's side has its watermark on it. It must
            be the value that Spark compares. A null counts as too late. None: no watermark drops
            rows.
        late: what becomes of a record if one of its tuples comes too late: ``fail`` (error LATE; it
            is replayed, comes too late again, and is a dead letter in the end), or ``ack`` (it
            counts as done, and is in no window). Both are logged and counted, and
            `windhover inspect` shows it. You must choose, unless `until` is None.
        name: the operator's name in causes, unique in the query.

    Raises:
        UsageError: `late` is not chosen; the rows come from a `read_stream` without
            ``delayed_acks=True``, from behind a second grouping or a rich bolt, or from behind
            `withWatermark` (call it behind `hold`).
    """
    if late is None and until is not None:
        raise UsageError(
            f"hold(until=...) leaves open what becomes of a tuple that comes too late: {LATE_CHOICES}"
        )
    if late not in (None, "ack", "fail"):
        raise UsageError(f"hold(late={late!r}): ack or fail. {LATE_CHOICES}")
    drop_time = sql.expr(until) if isinstance(until, str) else until
    until_ms = sql.lit(NEVER_MS)  # no watermark drops rows
    if drop_time is not None:
        until_ms = _rounded_up_ms(drop_time)

    def attach(rows: DataFrame) -> DataFrame:
        """Return the rows with anchors that stay valid after their batch, in the last column."""
        anchored = with_anchors(rows, name)
        if ANCHOR not in anchored.columns and not streams_read(anchored):
            # rows of plain DataFrames have nothing to hold, and the same columns all the same
            no_anchor = sql.lit(None).cast(spark_type_of(HELD_TYPE))
            return anchored.withColumn(ANCHOR, no_anchor)
        # `subscriptions`: over which the tuples came from the source, as part of their edges
        stream, anchor_form, subscriptions = hidden_column(anchored, name)
        # only the WIDE form has source and position, which mean something in later batches too; the
        # others name a root by its index in this batch's plan
        if anchor_form is not AnchorForm.WIDE:
            raise UsageError(
                f"{name!r}: these rows cannot be held: read them with read_stream(..., delayed_acks=True),"
                " and hold them behind that, BasicBolts or fail_when, before any grouping"
            )
        refuse_limit(logical_plan(anchored))
        # `settle` raises if no task of this operator has reported of a batch
        stream.names_behind_spark.add(name)
        accumulator = Application.of(anchored.sparkSession).ledger.accumulator
        task = HoldTask(name, stream.id, accumulator, subscriptions, fails_late=late == "fail")
        return _held_rows(anchored.withColumn(UNTIL, until_ms), task)

    return attach


def _held_rows(timed: DataFrame, task: HoldTask) -> DataFrame:
    """Return rows with the anchors of held rows in place of their own.

    Args:
        timed: the rows, with the column `UNTIL`, which is taken off.
        task: returns the edge of each row, by its anchor and `UNTIL`.
    """

    # plans show it under its name
    def run(columns: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        return task(columns)

    run.__name__ = label(task.name)
    # Spark calls it once for each row, and also for those that a later filter drops
    edge_function = column_function(run, LongType())
    anchor = timed[ANCHOR]
    anchor_fields = [anchor[field.name] for field in WIDE_TYPE]
    edged = timed.select("*", edge_function(*anchor_fields, timed[UNTIL]).alias(EDGE))
    edge = edged[EDGE]
    held_anchor = sql.struct(anchor["source"], anchor["position"], edge.alias("edge"))
    # a row without an edge has no anchor either: it is of another stream
    held_or_null = sql.when(edge.isNotNull(), held_anchor).alias(ANCHOR)
    # the last column, as plans and the states of joins have it
    return edged.select("*", held_or_null).drop(anchor, timed[UNTIL], edge)


def ack_anchors(
    bolt: BasicBolt | ArrowBolt | None = None,
    *,
    name: str | None = None,
    hooks: Sequence[TaskHook] = (),
) -> Callable[[DataFrame], DataFrame]:
    """Return a function for `DataFrame.transform` that acks the held tuples of its rows when they
    are written.

    >>> lines = spout.read_stream(spark, topics, "sentences", delayed_acks=True)
    >>> minute = sql.window("timestamp", "1 minute")
    >>> counts = (
    ...     lines.transform(spout.hold(until=minute.end, late="fail"))
    ...     .withWatermark("timestamp", "10 seconds")
    ...     .groupBy(minute, "key")
    ...     .agg(sql.count("*").alias("lines"), spout.collect_anchors())
    ...     .transform(spout.ack_anchors())
    ... )
    >>> counts.columns
    ['window', 'key', 'lines']

    Use it as the last operator, behind `groupBy(...).agg(..., spout.collect_anchors())` or a join
    of held rows, in output mode ``append``. Behind a join it finds the anchors of both sides by
    itself. When the micro-batch that writes a row is published, so are the acks of all tuples that
    went into the row. After a crash before that, the batch runs again. If state is lost with its
    checkpoint, no record is lost: nothing of it was acked, so its records are replayed when the
    next session takes over.

    A tuple that a join matches several times in one batch is acked once, failed if the bolt fails
    one of these rows, and else left open if it leaves one open. A tuple that matches again in a
    later batch was acked with its first row. If a row fails then, only the tuples of its other side
    are replayed, and they find this one in Spark's state.

    Args:
        bolt: a bolt that works on the rows first; if it fails a row, the records of all tuples in
            the row fail.
        name: the operator's name in causes, unique in the query; None: the bolt's class, or
            ``ack_anchors``.
        hooks: observers of the bolt; every task works on copies of them.

    Raises:
        UsageError: the rows have no column of anchors, a join dropped those of one side, two
            columns for the bolt have the same name, or the bolt is no BasicBolt or ArrowBolt.
    """
    operator_name = name or "ack_anchors"
    if bolt is not None:
        operator_name = bolt_name(bolt, name or None)
        check_bolt(operator_name, bolt)
        if not isinstance(bolt, BasicBolt | ArrowBolt):
            raise UsageError(
                f"{operator_name!r}: ack_anchors takes a BasicBolt or an ArrowBolt, which acks by"
                " itself, and"
                f" {type(bolt).__name__} is none; derive it from one of them"
            )
    observers = check_hooks(operator_name, hooks)

    def attach(rows: DataFrame) -> DataFrame:
        """Return the rows, or what the bolt emits for them, behind a task that acks anchors."""
        refuse_holds_left_out(rows, operator_name)
        # behind a join: with the anchors of both sides in one column
        anchored = with_one_anchor_column(rows, operator_name)
        step: Step | None = None  # None: no bolt works on the rows
        if bolt is None:
            schema = visible_schema(anchored, operator_name)
        else:
            _refuse_namesakes(anchored, operator_name)
            schema = output_schema(operator_name, bolt, zone_of_session(anchored.sparkSession))
            step = Step(operator_name, bolt, schema, observers)
        tracked_streams = streams_behind(anchored)
        if not tracked_streams:
            # rows of plain DataFrames have nothing to ack, and go through the bolt alone
            return through(anchored, AckTask(operator_name, step=step), schema)
        # `settle` raises if no task of this operator has reported of a batch
        for stream in tracked_streams:
            stream.names_behind_spark.add(operator_name)
        # each query has one tracked stream: one with several is refused when it starts
        stream = tracked_streams[0]
        task = AckTask(
            operator_name,
            stream_id=stream.id,
            accumulator=Application.of(anchored.sparkSession).ledger.accumulator,
            step=step,
            safety=stream.safety,
        )
        return through(anchored, task, schema, label(operator_name))

    return attach


@dataclass(frozen=True, slots=True)
class HoldTask:
    """Holds the rows of one task: computes their edges, and reports them as outstanding.

    Of a row it gets the anchor and the time until which it is held, and returns the edge. Spark
    puts the anchor of the held row together, and keeps the other columns: each column that goes
    through Python costs time.

    Attributes:
        stream_id: of the tracked stream.
        accumulator: of Spark's; reports go to it.
        subscriptions: the keys of the subscriptions over which the tuples came from the source, in
            order.
        fails_late: whether a row that a watermark dropped fails its root; else it is acked.
    """

    name: str
    stream_id: str
    accumulator: Any
    subscriptions: tuple[int, ...]
    fails_late: bool

    def __call__(self, columns: Iterable[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        """Yield the edges of the rows of one task, batch by batch.

        Report the rows as held after the last one.

        `columns`: for each batch the packed anchors, source and position of the roots, and the
        event times, ms, at which a watermark drops the rows.
        """
        # who holds the tuples, in the form of a cause
        holder_cause = holder_of(self.name, fails_late=self.fails_late)
        marks_by_batch: list[RootMarks] = []
        subscription = subscription_key(SPARK.component, DEFAULT_STREAM, self.name)
        # part of each edge: where a row is held, so that two equal rows have different edges
        held_at = HeldAt(subscription, task_name().partition, first_row=0)
        for packed_anchors, sources, positions, until_column in columns:
            anchors = Anchors(AnchorForm.PACKED, pa.array(_numbers(packed_anchors)))
            roots = RootPositions(_numbers(sources), _numbers(positions))
            edges = held_edges(roots, self.subscriptions, anchors.ordinals(), held_at)
            # the rows of a task are numbered through all its batches
            held_at = held_at._replace(first_row=held_at.first_row + len(packed_anchors))
            # a null: the row counts as too late
            until_ms = _numbers(until_column, null=_DROPPED_MS)
            # rows of another stream have no anchor, so nothing is reported of them
            unanchored_flags: npt.NDArray[np.bool_] | None = None  # None: all have one
            anchored_rows: I64 | slice = slice(None)  # all rows
            if packed_anchors.null_count:
                unanchored_flags = np.asarray(packed_anchors.is_null())
                anchored_rows = np.flatnonzero(~unanchored_flags)
            # copies: otherwise they would keep the whole batch, whose columns share one buffer
            held_roots = RootPositions(
                roots.sources[anchored_rows].copy(),
                roots.positions[anchored_rows].copy(),
            )
            held_until_ms = until_ms[anchored_rows].copy()
            marks = held_marks(holder_cause, held_roots, edges[anchored_rows], held_until_ms)
            marks_by_batch.append(marks)
            yield pa.array(edges.view(np.int64), mask=unanchored_flags)
        report = TaskReport(self.name, marks=RootMarks.together(marks_by_batch))
        add_report(self.accumulator, self.stream_id, report)


@dataclass(frozen=True, slots=True)
class AckTask:
    """Acks the anchors on the rows of one task, and passes the rows on, through a bolt if any.

    Attributes:
        stream_id: of the tracked stream; empty where nothing is tracked.
        accumulator: of Spark's; reports go to it. None where nothing is tracked.
        step: the bolt that works on the rows; None: there is none.
        safety: how long a call of the bolt may last, and whether it runs in a child process.
    """

    name: str
    stream_id: str = ""
    accumulator: Any = None
    step: Step | None = None
    safety: Safety = field(default_factory=Safety)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass rows on without anchors, through the bolt; report after the last one.

        To the bolt each row is a root of its own: row 5 of the task is the root with the index 5.
        It acks and fails rows, and the report says the same of the anchors on them.
        """
        # an empty one first, so that no batch at all is no error
        anchors_by_batch = [RowAnchors.of(pa.array([], pa.list_(HELD_TYPE)))]
        bolt_report = TaskReport(self.name)  # without a bolt it stays empty
        if self.step is None:
            for batch in batches:
                # without numbers of rows: all anchors are acked, so nobody asks which row has which
                anchors_by_batch.append(RowAnchors.of(batch.column(ANCHOR)))
                yield batch.drop_columns([ANCHOR])
        else:
            is_tracked = self.accumulator is not None
            anchor_form = AnchorForm.PACKED if is_tracked else AnchorForm.NONE
            stage = Chain((self.step,), arriving_form=anchor_form).stage
            with no_garbage_collection(), running_stage(stage, self.safety) as run:
                rows_before = 0
                for batch in batches:
                    anchors_by_batch.append(RowAnchors.of(batch.column(ANCHOR), rows_before))
                    row_numbers = np.arange(rows_before, rows_before + batch.num_rows)
                    rows_before += batch.num_rows
                    roots: Anchors | None = None
                    if is_tracked:
                        # a packed anchor has the index of its root in the upper bits
                        roots = Anchors(AnchorForm.PACKED, pa.array(row_numbers << ORDINAL_BITS))
                    yield run.feed(ArrowRows(batch.drop_columns([ANCHOR])), roots)
                yield from run.finish()
                bolt_report = run.report()
        if self.accumulator is not None:
            anchors = RowAnchors.together(anchors_by_batch)
            add_report(
                self.accumulator,
                self.stream_id,
                self._report_of_anchors(anchors, bolt_report),
            )

    def _report_of_anchors(self, anchors: RowAnchors, bolt_report: TaskReport) -> TaskReport:
        """Return the report that says of the anchors what the bolt's report says of their rows.

        `bolt_report`: its roots are the numbers of rows.
        """
        failed_rows: list[RowFailure] = []
        for cause, marks in bolt_report.marks.of(RootMark.FAILED).by_cause():
            failed_rows += [(row, cause) for row in marks.positions.tolist()]
        rows_left_open: list[int] = []
        for paths in bolt_report.outstanding.values():
            rows_left_open += paths[:, 0].tolist()  # a path begins with its root, which is the row
        return TaskReport(
            self.name,
            marks=marks_of_anchors(anchors, failed_rows, left_open=rows_left_open, operator=self.name),
            counts=bolt_report.counts,
            errors=bolt_report.errors,
            raised=bolt_report.raised,
        )


class RowAnchors(NamedTuple):
    """The anchors of some rows, of which each may have several, or none: one entry for each anchor.

    Attributes:
        rows: the number of the row that has the anchor, `(n,) int64`, ascending.
        roots: source and position of the anchor's root.
        edges: `(n,) int64`: the 64 bits of its edge.
    """

    rows: I64
    roots: RootPositions
    edges: I64

    @classmethod
    def of(cls, column: pa.Array, first_row: int = 0) -> RowAnchors:
        """Return the anchors in a column of lists of held anchors.

        They are copies: otherwise they would keep the whole batch, whose columns share one buffer.

        `first_row`: the number of the batch's first row.
        """
        roots, edges = anchors_of(column)
        rows = _numbers(pc.list_parent_indices(column)) + first_row
        copied_roots = RootPositions(roots.sources.copy(), roots.positions.copy())
        return cls(rows, copied_roots, edges.copy())

    @classmethod
    def together(cls, batches: Sequence[RowAnchors]) -> RowAnchors:
        """Return the anchors of several batches as one; there is at least one."""
        return cls(
            np.concatenate([batch.rows for batch in batches]),
            RootPositions.together(batch.roots for batch in batches),
            np.concatenate([batch.edges for batch in batches]),
        )


def marks_of_anchors(
    anchors: RowAnchors,
    failed: Sequence[RowFailure] = (),
    reset: Sequence[int] = (),
    left_open: Sequence[int] = (),
    operator: str = "",
) -> RootMarks:
    """Return what became of the anchors of rows, as marks of their roots.

    The anchors of rows that no argument names are acked: what is held is released.

    Args:
        failed: the numbers of failed rows, with their causes.
        reset: the numbers of rows of which a keyed bolt resets the timeouts: it holds on to their
            anchors.
        left_open: the numbers of rows that the bolt neither acked nor failed.
        operator: the bolt's name; needed if rows are left open.
    """
    rows, roots, edges = anchors
    are_all_acked = not (len(failed) or len(reset) or len(left_open))
    if are_all_acked:
        return RootMarks.of_roots(RootMark.RELEASED, roots, edges)
    failed_rows = np.array([row for row, _ in failed], np.int64)
    # a mask over the anchors for each thing that can become of them
    is_reset = np.isin(rows, reset)
    is_open = np.isin(rows, left_open)
    is_acked = ~(is_reset | is_open | np.isin(rows, failed_rows))
    # Rows ascend, so the anchors of one failed row stand side by side: of rows [4, 5, 5, 8] those
    # of row 5 are [1, 3). To look through all rows for each failed one would never end where most
    # fail.
    starts = np.searchsorted(rows, failed_rows)
    anchor_counts = np.searchsorted(rows, failed_rows + 1) - starts
    failed_anchors = _numbers_in_ranges(starts, anchor_counts)
    # each distinct cause has a number, in the order in which they come: 0, 1, 2
    number_by_cause: dict[Cause, int] = {}
    cause_numbers: list[int] = []  # one for each failed row
    for _row, cause in failed:
        cause_numbers.append(number_by_cause.setdefault(cause, len(number_by_cause)))
    cause_numbers_of_anchors = np.repeat(np.array(cause_numbers, np.int64), anchor_counts)
    causes = tuple(number_by_cause)
    failed_roots = roots.at(failed_anchors)
    open_cause = Cause.of(operator, "", "")  # it names the operator alone
    return RootMarks.together(
        [
            RootMarks.of_roots(RootMark.RELEASED, roots.at(is_acked), edges[is_acked]),
            RootMarks.of_causes(RootMark.FAILED, failed_roots, cause_numbers_of_anchors, causes),
            RootMarks.of_roots(RootMark.HELD_ON, roots.at(is_reset)),
            RootMarks.of_roots(RootMark.LEFT_OPEN, roots.at(is_open), edges[is_open], open_cause),
        ]
    )


def _numbers_in_ranges(starts: I64, lengths: I64) -> I64:
    """Return all numbers in some ranges, one range after the other, `(n,) int64`.

    Of the starts 1 and 7, and the lengths 2 and 1, they are 1, 2 and 7.
    """
    numbers_before = np.cumsum(lengths) - lengths
    # in the example 0 and 1 move by 1, and 2 moves by 5
    moves = np.repeat(starts - numbers_before, lengths)
    numbers: I64 = np.arange(lengths.sum()) + moves
    return numbers


def anchors_of(column: pa.Array) -> tuple[RootPositions, I64]:
    """Return the roots and the edges, as int64, of all anchors of some rows."""
    anchors = column.flatten()
    sources = _numbers(anchors.field("source"))
    positions = _numbers(anchors.field("position"))
    return RootPositions(sources, positions), _numbers(anchors.field("edge"))


def _rounded_up_ms(time: Column) -> Column:
    """Return a time in ms, rounded up: a watermark reaches this when it reaches the time."""
    # in numbers, since Spark adds an interval to a time by way of its date and its time zone, for
    # each row
    time_us = sql.unix_micros(time.cast("timestamp"))
    # 1,001 us become 2,000 us, and so 2 ms
    return sql.unix_millis(sql.timestamp_micros(time_us + 999))


def _refuse_namesakes(rows: DataFrame, operator: str) -> None:
    """Raise `UsageError` if two columns that a bolt receives have one name, as behind a join."""
    namesakes = sorted({name for name in rows.columns if rows.columns.count(name) > 1})
    if namesakes:
        raise UsageError(
            f"{operator!r} would receive two columns called {namesakes[0]!r}: select the one that"
            " it needs, or rename one before the join"
        )


def _numbers(column: pa.Array, null: int = 0) -> I64:
    """Return a column as an array, with `null` in place of its nulls."""
    # to fill nulls where there are none takes a quarter of the time of `HoldTask`
    if column.null_count:
        column = pc.fill_null(column, null)
    return np.asarray(column, dtype=np.int64)
