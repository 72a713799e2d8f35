"""Delayed acks for DataFrames: hold tuples in Spark's state, and ack them with the row that they end up in.

`hold` gives every row an anchor that stays valid after its batch. `collect_anchors` keeps the anchors in the
aggregate, so that Spark's state store, and with it the checkpoint, has all tuples that are not acked yet; a
join keeps them with its rows. `ack_anchors` acks them when the row that they ended up in is written.

Source: docs/design/protocol.md, section 5.2; ``spout.publishing.delayed``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.pandas.functions import arrow_udf

from acker.errors import UsageError
from acker.identity import I64, subscription_key
from spout.bolts.bolts import ArrowBolt, BasicBolt, bolt_name, check_bolt, check_hooks
from spout.bolts.hooks import TaskHook
from spout.bolts.outputs import output_schema, zone_of_session
from spout.execution.calls import RowFailure
from spout.held.conditions import visible_schema, with_anchors
from spout.held.held_plan import refuse_left_out
from spout.isolation.safety import Safety
from spout.isolation.task_runs import no_garbage_collection, running_stage
from spout.publishing.delayed import NEVER_MS, HeldAt, HeldTuples, RootPositions, held_edges
from spout.publishing.fold import TaskReport
from spout.publishing.report_accumulator import add, task_name
from spout.publishing.root_marks import RootMark, RootMarks
from spout.spark.private import logical_plan, spark_type_of
from spout.streaming.application import Application
from spout.streaming.frames import hidden_column, streams_behind, through
from spout.streaming.query_plan import label, refuse_limit, streams_read
from spout.topology.chain import Chain, Step
from spout.tuples.anchor_columns import EDGE, HELD_TYPE, UNTIL, gathered
from spout.tuples.anchors import ORDINAL_BITS, WIDE_TYPE, Anchors, Carry
from spout.tuples.columns import ANCHOR
from spout.tuples.failures import Cause
from spout.tuples.rows import ArrowRows
from spout.tuples.tuple import DEFAULT_STREAM, SPARK

_DROPPED = -1


LATE_CHOICES: Final = (
    'late="fail": its record is failed by LATE, and is a dead letter in the end; or late="ack": its record'
    " counts as done, in no window, and is only counted and logged"
)
"""What may become of a tuple that a watermark drops. Nobody knows which is right, so there is no default."""


def hold(
    until: Column | str | None, *, late: str | None = None, name: str = "hold"
) -> Callable[[DataFrame], DataFrame]:
    """Return a function for `DataFrame.transform` after which a later micro-batch can ack the rows.

    >>> lines = spout.read_stream(spark, topics, "sentences", delayed_acks=True)
    >>> minutes = lines.selectExpr("*", "window(timestamp, '1 minute') AS minute")
    >>> held = minutes.transform(spout.hold("minute.end", late="fail"))
    >>> held.select("minute", "_windhover").dtypes[1]
    ('_windhover', 'struct<source:bigint,position:bigint,edge:bigint>')

    Behind it every row must reach an aggregate with `collect_anchors`, or a join (`join_anchors`). A record
    stays open until `ack_anchors` has acked all its rows. Its `timeout` ends with the batch that holds it;
    from then on `held_timeout` counts, three days by default. If that passes it is replayed, and counts again
    in a window that is still open. So `held_timeout` must be longer than a window, its delay and any time in
    which the topic is quiet, and `max_spout_pending` larger than the number of records in the open windows.
    Rows that a filter behind it drops stay open for so long, so filter before it. So do rows of an inner join
    without a match, or with a null in its condition; use an outer join to decide about them. Compute sliding
    windows before it (``withColumn("window", window(...))``), so that each copy of a row is held separately.
    Hold each side of a join before the join, under its own name.

    Args:
        until: the event time at which a watermark drops the row: the window's end, or the event time itself
            if rows are grouped by it or a join's side has its watermark on it. It must be the value that
            Spark compares. A null counts as too late. None: no watermark drops rows.
        late: what becomes of a record if one of its tuples comes too late: ``fail`` (error LATE; it is
            replayed, comes too late again, and is a dead letter in the end), or ``ack`` (it counts as done,
            and is in no window). Both are logged and counted, and `windhover inspect` shows it. You must
            choose, unless `until` is None.
        name: the operator's name in causes, unique in the query.

    Raises:
        UsageError: `late` is not chosen; the rows come from a `read_stream` without ``delayed_acks=True``,
            from behind a second grouping or a rich bolt, or from behind `withWatermark` (call it behind
            `hold`).
    """
    if late is None and until is not None:
        raise UsageError(
            f"hold(until=...) leaves open what becomes of a tuple that comes too late: {LATE_CHOICES}"
        )
    if late not in (None, "ack", "fail"):
        raise UsageError(f"hold(late={late!r}): ack or fail. {LATE_CHOICES}")
    moment = sql.expr(until) if isinstance(until, str) else until
    at_ms = sql.lit(NEVER_MS) if moment is None else _ceiled_ms(moment)

    def attach(rows: DataFrame) -> DataFrame:
        whole = with_anchors(rows, name)
        if ANCHOR not in whole.columns and not streams_read(whole):
            return whole.withColumn(ANCHOR, sql.lit(None).cast(spark_type_of(HELD_TYPE)))
        stream, carry, subscriptions = hidden_column(whole, name)
        if carry is not Carry.WIDE:
            raise UsageError(
                f"{name!r}: these rows cannot be held: read them with read_stream(..., delayed_acks=True),"
                " and hold them behind that, BasicBolts or fail_when, before any grouping"
            )
        refuse_limit(logical_plan(whole))
        stream.loose.add(name)
        ledger = Application.of(whole.sparkSession).ledger.accumulator
        task = HoldTask(name, stream.id, ledger, subscriptions, late == "fail")
        timed = whole.withColumn(UNTIL, at_ms)
        anchor = timed[ANCHOR]

        # Spark derives the kind of a function from its type hints; plans show it under its name
        def run(columns: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
            return task(columns)

        run.__name__ = label(name)
        edge_function = arrow_udf(run, "bigint")  # type: ignore[call-overload]  # the stub requires the kind
        # Not deterministic: otherwise Spark could hold rows twice, or only those that a later filter keeps.
        edge_of = edge_function.asNondeterministic()
        numbers = [anchor[field.name] for field in WIDE_TYPE]
        edged = timed.select("*", edge_of(*numbers, timed[UNTIL]).alias(EDGE))
        edge, source, position = edged[EDGE], anchor["source"], anchor["position"]
        held = sql.when(edge.isNotNull(), sql.struct(source, position, edge.alias("edge"))).alias(ANCHOR)
        # the last column, as plans and the states of joins have it
        return edged.select("*", held).drop(anchor, timed[UNTIL], edge)

    return attach


def ack_anchors(
    bolt: BasicBolt | ArrowBolt | None = None, *, name: str | None = None, hooks: Sequence[TaskHook] = ()
) -> Callable[[DataFrame], DataFrame]:
    """Return a function for `DataFrame.transform` that acks the held tuples of its rows when they are
    written.

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

    Use it as the last operator, behind `groupBy(...).agg(..., spout.collect_anchors())` or a join of held
    rows, in output mode ``append``. Behind a join it finds the anchors of both sides by itself. When the
    micro-batch that writes a row is published, so are the acks of all tuples that went into the row. After a
    crash before that, the batch runs again. If state is lost with its checkpoint, no record is lost: nothing
    of it was acked, so its records are replayed when the next session takes over.

    A tuple that a join matches several times in one batch is acked once, failed if the bolt fails one of
    these rows, and else left open if it leaves one open. A tuple that matches again in a later batch was
    acked with its first row. If a row fails then, only the tuples of its other side are replayed, and they
    find this one in Spark's state.

    Args:
        bolt: a bolt that works on the rows first; if it fails a row, the records of all tuples in the row
            fail.
        name: the operator's name in causes, unique in the query; None: the bolt's class, or ``ack_anchors``.
        hooks: observers of the bolt; every task works on copies of them.

    Raises:
        UsageError: the rows have no column of anchors, a join dropped those of one side, two columns for the
            bolt have the same name, or the bolt is no BasicBolt or ArrowBolt.
    """
    called = name or ("ack_anchors" if bolt is None else bolt_name(bolt, None))
    if bolt is not None:
        check_bolt(called, bolt)
        if not isinstance(bolt, BasicBolt | ArrowBolt):
            raise UsageError(
                f"{called!r}: ack_anchors takes a BasicBolt or an ArrowBolt, which acks by itself, and"
                f" {type(bolt).__name__} is none; derive it from one of them"
            )
    watching = check_hooks(called, hooks)

    def attach(rows: DataFrame) -> DataFrame:
        """Return the rows, or those of the bolt, behind a task that acks their anchors."""
        refuse_left_out(rows, called)
        anchored = gathered(rows, called)  # behind a join with the anchors of both sides in one column
        if bolt is None:
            step, schema = None, visible_schema(anchored, called)
        else:
            _refuse_namesakes(anchored, called)
            schema = output_schema(called, bolt, zone_of_session(anchored.sparkSession))
            step = Step(called, bolt, schema, watching)
        tracked_streams = streams_behind(anchored)
        if not tracked_streams:  # rows of plain DataFrames have nothing to ack, and go through the bolt alone
            return through(anchored, AckTask(called, step=step), schema)
        for stream in tracked_streams:
            stream.loose.add(called)  # it runs behind Spark's own operators
        ledger = Application.of(anchored.sparkSession).ledger.accumulator
        # a query that runs has one tracked stream: one with several is refused at its start
        stream = tracked_streams[0]
        task = AckTask(called, stream.id, ledger, step, stream.safety)
        return through(anchored, task, schema, label(called))

    return attach


@dataclass(frozen=True, slots=True)
class HoldTask:
    """Holds the rows of one task: gives each of them an edge, and reports them as outstanding.

    Of a row it takes the anchor and the time, and returns the edge: Spark keeps the rest of it meanwhile, and
    puts the anchor of the held row together, since each column through Python costs. `subscriptions`:
    the keys along the paths that arrive; `fails_late`: a row that a watermark dropped fails its root.
    """

    name: str
    stream: str
    ledger: Any
    subscriptions: tuple[int, ...]
    fails_late: bool

    def __call__(self, columns: Iterable[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        """Hold rows, by the fields of their anchors and their times; report after the last row was taken."""
        held: list[HeldTuples] = []
        entry = HeldAt(subscription_key(SPARK.component, DEFAULT_STREAM, self.name), task_name().partition, 0)
        for packed, sources, positions, until_ms in columns:
            anchors = Anchors(Carry.PACKED, pa.array(_numbers(packed)))
            places = RootPositions(_numbers(sources), _numbers(positions))
            edges = held_edges(places, self.subscriptions, anchors.ordinals(), entry)
            entry = entry._replace(first_row=entry.first_row + len(packed))
            times_ms = _numbers(until_ms, _DROPPED)
            # rows of another stream have no anchor: they are best effort, and nothing is reported of them
            is_free = np.asarray(packed.is_null()) if packed.null_count else None
            anchored = slice(None) if is_free is None else np.flatnonzero(~is_free)
            # a copy: the columns of a batch share one buffer
            roots = RootPositions(places.sources[anchored].copy(), places.positions[anchored].copy())
            held.append(HeldTuples(roots, edges[anchored], times_ms[anchored].copy()))
            yield pa.array(edges.view(np.int64), mask=is_free)
        marks = HeldTuples.together(held).marks(self.name, fails_late=self.fails_late)
        add(self.ledger, self.stream, TaskReport(self.name, marks=marks))


@dataclass(frozen=True, slots=True)
class AckTask:
    """Acks the anchors on the rows of one task, and passes the rows on without them, through a bolt if any.

    `ledger`: the accumulator; None where nothing is tracked.
    """

    name: str
    stream: str = ""
    ledger: Any = None
    step: Step | None = None
    safety: Safety = field(default_factory=Safety)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass rows on, to the bolt each as a root of its own; report after the last one was taken."""
        anchors = [RowAnchors.of(pa.array([], pa.list_(HELD_TYPE)))]
        done = TaskReport(self.name)
        if self.step is None:
            for batch in batches:
                anchors.append(RowAnchors.of(batch.column(ANCHOR)))
                yield batch.drop_columns([ANCHOR])
        else:
            arrives = Carry.NONE if self.ledger is None else Carry.PACKED
            stage = Chain((self.step,), arrives=arrives).stage
            with no_garbage_collection(), running_stage(stage, self.safety) as run:
                first = 0
                for batch in batches:
                    anchors.append(RowAnchors.of(batch.column(ANCHOR), first))
                    # to the bolt row 5 of the task is the root with the index 5
                    row_roots = pa.array(np.arange(first, first + batch.num_rows) << ORDINAL_BITS)
                    first += batch.num_rows
                    roots = None if self.ledger is None else Anchors(Carry.PACKED, row_roots)
                    yield run.feed(ArrowRows(batch.drop_columns([ANCHOR])), roots)
                yield from run.finish()
                done = run.report()
        if self.ledger is not None:
            # the roots of this report are rows, as they were numbered above
            failed: list[RowFailure] = []
            for cause, marks in done.marks.of(RootMark.FAILED).by_cause():
                failed += [(row, cause) for row in marks.positions.tolist()]
            left_open = [row for paths in done.outstanding.values() for row in paths[:, 0].tolist()]
            report = TaskReport(
                self.name,
                marks=released_by(
                    RowAnchors.together(anchors), failed, left_open=left_open, operator=self.name
                ),
                counts=done.counts,
                errors=done.errors,
                raised=done.raised,
            )
            add(self.ledger, self.stream, report)


class RowAnchors(NamedTuple):
    """The anchors of rows, one for one: the row's number, ascending, the place, and the edge as int64."""

    rows: I64
    places: RootPositions
    edges: I64

    @classmethod
    def of(cls, column: pa.Array, first: int = 0) -> RowAnchors:
        """Copy them out of a batch, whose columns share one buffer; its first row has the number `first`."""
        (sources, positions), edges = anchors_of(column)
        places = RootPositions(sources.copy(), positions.copy())
        return cls(_numbers(pc.list_parent_indices(column)) + first, places, edges.copy())

    @classmethod
    def together(cls, parts: Sequence[RowAnchors]) -> RowAnchors:
        return cls(
            np.concatenate([part.rows for part in parts]),
            RootPositions.together(part.places for part in parts),
            np.concatenate([part.edges for part in parts]),
        )


def released_by(
    anchors: RowAnchors,
    failed: Sequence[RowFailure] = (),
    reset: Sequence[int] = (),
    left_open: Sequence[int] = (),
    operator: str = "",
) -> RootMarks:
    """Release the anchors of rows, but not of those that failed, are reset or left open, by row numbers.

    A keyed bolt holds on those whose timeout it resets; `operator` is the bolt that left rows open.
    """
    rows, places, edges = anchors
    if not (len(failed) or len(reset) or len(left_open)):
        return RootMarks.of_roots(RootMark.RELEASED, places, edges)
    failed_rows = np.array([row for row, _ in failed], np.int64)
    # a mask over the anchors for each thing that can become of them
    touched, opened = np.isin(rows, reset), np.isin(rows, left_open)
    acked = ~(touched | opened | np.isin(rows, failed_rows))
    # Rows ascend, so the anchors of one failed row stand side by side: of rows [4, 5, 5, 8] those of row 5
    # are [1, 3). To look through all rows for each failed one would never end where most fail.
    starts = np.searchsorted(rows, failed_rows)
    counts = np.searchsorted(rows, failed_rows + 1) - starts
    # of stretches [1, 3) and [7, 8) the numbers 0 and 1 move by 1, and 2 moves by 5
    failed_anchors = np.arange(counts.sum()) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
    # each cause once, with its number
    numbers_by_cause: dict[Cause, int] = {}
    numbers = [numbers_by_cause.setdefault(cause, len(numbers_by_cause)) for _, cause in failed]
    cause_numbers = np.repeat(np.array(numbers, np.int64), counts)
    causes = tuple(numbers_by_cause)
    opener = Cause.of(operator, "", "")
    return RootMarks.together(
        [
            RootMarks.of_roots(RootMark.RELEASED, places.at(acked), edges[acked]),
            RootMarks.of_causes(RootMark.FAILED, places.at(failed_anchors), cause_numbers, causes),
            RootMarks.of_roots(RootMark.HELD_ON, places.at(touched)),
            RootMarks.of_roots(RootMark.LEFT_OPEN, places.at(opened), edges[opened], opener),
        ]
    )


def anchors_of(column: pa.Array) -> tuple[RootPositions, I64]:
    """Return the places and the edges, as int64, of all anchors of some rows."""
    anchors = column.flatten()
    source, position, edge = (_numbers(anchors.field(name)) for name in HELD_TYPE.names)
    return RootPositions(source, position), edge


def _ceiled_ms(moment: Column) -> Column:
    """Return a time in ms, rounded up: a watermark reaches this value exactly when it reaches the time."""
    # in numbers: to add an interval Spark makes a date of each row's time, and asks for its time zone
    return sql.unix_millis(sql.timestamp_micros(sql.unix_micros(moment.cast("timestamp")) + 999))


def _refuse_namesakes(rows: DataFrame, operator: str) -> None:
    """Raise `UsageError` if two columns that a bolt receives have one name, as behind a join."""
    twice = sorted({name for name in rows.columns if rows.columns.count(name) > 1})
    if twice:
        raise UsageError(
            f"{operator!r} would receive two columns called {twice[0]!r}: select the one that it needs, or"
            " rename one before the join"
        )


def _numbers(column: pa.Array, null: int = 0) -> I64:
    # to fill nulls where there are none takes a quarter of the time of `HoldTask`
    return np.asarray(pc.fill_null(column, null) if column.null_count else column, dtype=np.int64)
