"""A stage at work in one task: of a topology, or the bolts in a row on a DataFrame.

A topology is cut into *stages* where its tuples go to other tasks; a `StagePass` says what the
tasks of one of them do. In a task, tuples go through the stage's bolts in the order of the graph:
each bolt has an inbox, and what it emits goes into the inboxes of the bolts behind it. What belongs
to a later stage, to the sink or to the DataFrame goes into the task's outbox and leaves the task.

Words of this module:

* The *places* of a tuple are its `Deliveries`: one for each root that it descends from, with the
  path from the root to the tuple. Each step of the path is a *hop*.
* A *route* leads a stream to one bolt. A grouping may send each tuple to several tasks of that
  bolt: then the route has several *copies*, and each copy of a tuple has places of its own.
* A *destination* is a subscription of a later stage, or an output of the sink, by its number.
* Rows that leave may travel in *bundles*: those for one destination and one task as one row.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from acker.errors import TupleError
from acker.identity import I64, input_id_of
from spout.bolts.collectors import OutputCollector
from spout.bolts.hooks import BoltContext
from spout.execution.bolt_work import BoltWork
from spout.execution.calls import ClockNs
from spout.execution.emitted import Emissions
from spout.planning.order import Gate
from spout.publishing.fold import TaskReport, outstanding_of, report_behind_keyed
from spout.publishing.root_marks import NUMBERED, PLANNED, RootMark, RootMarks, roots_of
from spout.runtime.pulse import Pulse
from spout.topology.bundles import PlacedRows
from spout.topology.graph import Kind
from spout.topology.routing import tasks_for, value_keys
from spout.topology.stage_pass import Arrival, Frame, StagePass, StreamPass
from spout.topology.stages import Route
from spout.tuples.anchors import AnchorForm, Anchors, Fingerprint, fingerprint_of
from spout.tuples.columns import ANCHOR, ROOT, TASK, TO, Origins
from spout.tuples.counts import Counted, Tally, What, sum_of_counts
from spout.tuples.messages import MessageRows
from spout.tuples.places import (
    Deliveries,
    Descendants,
    Places,
    children_of,
    column_of,
    only_roots,
    places_of,
)
from spout.tuples.raised import first_of_each
from spout.tuples.rows import ArrowRows, one_batch
from spout.tuples.tuple import Delivery, Rows


class TaskRun(Protocol):
    """A stage at work in one task: in this process, or in a child of it.

    `gate`: blocks the records that must not pass a failed one; None: order does not matter.
    """

    gate: Gate | None

    def feed(self, rows: Rows, anchors: Anchors | None) -> pa.RecordBatch:
        """Work on rows, and return those that leave the task; `anchors` as in `StageRun.feed`."""

    def finish(self) -> list[pa.RecordBatch]:
        """Clean the bolts up, and return the rows that leave by that; often none."""

    def report(self) -> TaskReport:
        """Return what was done; called last."""


class ReceivedRows(NamedTuple):
    """Rows of one stream that a bolt receives, with the places of each in its trees."""

    rows: Rows
    places: Sequence[Deliveries]


class StageRun:
    """A stage in one task.

    Attributes:
        frame_rows_received: how many rows of a DataFrame the task has received so far. It is set in
            a child process before each block of rows, since other children may have worked on the
            rows before.
    """

    def __init__(
        self,
        stage: StagePass,
        context: BoltContext,
        pulse: Pulse | None = None,
        clock_ns: ClockNs = time.perf_counter_ns,
    ) -> None:
        """Prepare the bolts that run in this task.

        Args:
            stage: what the stage does.
            context: of the task; each bolt gets one with its own name.
            pulse: is called when a call of a bolt begins and ends, for the thread that watches for
                hangs; None: nobody watches.
            clock_ns: by which bolts are timed.
        """
        self._gate: Gate | None = None
        self._stage = stage
        self._outbox = TaskOutbox(stage)
        self.frame_rows_received = 0
        # by groupings that give each task a tuple in turn (shuffle)
        self._tuples_sent_by_grouping = 0
        self._rows_bundled = 0  # rows that have left in bundles
        self._partition = context.partition
        # of the rows from the stage before, and of those for the stage behind: the driver compares
        # what one stage sent with what the next one received
        self._received_fingerprint = Fingerprint()
        self._sent_fingerprint = Fingerprint()
        self._tally = Tally()  # of what spouts emit
        self._work_by_bolt: dict[str, BoltWork] = {}  # bolts that run in this task, producers first
        self._inbox_by_bolt: dict[str, list[ReceivedRows]] = {}
        for bolt in stage.bolts:
            # also of a bolt that does not run in this task: nothing is sent to it
            self._inbox_by_bolt[bolt.name] = []
            # 0 tasks: it runs in all of the stage
            runs_here = not bolt.tasks or context.partition < bolt.tasks
            if runs_here:
                bolt_context = BoltContext(
                    bolt.name,
                    context.partition,
                    context.batch_id,
                    stage.tasks,
                )
                self._work_by_bolt[bolt.name] = BoltWork(
                    bolt,
                    bolt_context,
                    tracked=stage.tracked,
                    pulse=pulse,
                    clock_ns=clock_ns,
                )

    @property
    def gate(self) -> Gate | None:
        """What blocks the records that must not pass a failed one; None: order does not matter.

        The bolts ask it before each tuple.
        """
        return self._gate

    @gate.setter
    def gate(self, gate: Gate | None) -> None:
        self._gate = gate
        for work in self._work_by_bolt.values():
            work.gate = gate

    def feed(self, rows: Rows, anchors: Anchors | None) -> pa.RecordBatch:
        """Work on a batch of rows with the stage's bolts, and return what leaves the task.

        Args:
            rows: records, which their spout emits first; rows of a keyed bolt; rows of the stage
                before; or, where the bolts work on a DataFrame, its rows.
            anchors: of records, a keyed bolt's and a DataFrame's rows; None where nothing is
                tracked. Rows of the stage before have their places with them, or in a column.

        Raises `TypeError`: the rows are of another kind than the stage works on.
        """
        # the bolts work on a DataFrame
        if self._stage.frame is not None:
            self._put_frame_into_inbox(self._stage.frame, rows, anchors)
        elif isinstance(rows, MessageRows):
            # a keyed bolt ends the topology: what leaves names its roots by position as well
            if self._stage.carries_roots and anchors is not None:
                self._outbox.origins.add_roots(anchors.roots(), anchors.column)
            spout_stream = self._stage.spouts[input_id_of(rows.source)]
            self._emit(spout_stream, rows, anchors)
        elif self._stage.keyed_stream is not None:
            self._emit(self._stage.keyed_stream, rows, anchors)
        elif isinstance(rows, ArrowRows):
            self._sort_rows_of_stage_before(rows.batch, rows.places)
        else:
            raise TypeError(f"a stage is fed messages or Arrow rows, not {type(rows).__name__}")
        return self._run_bolts()

    def _put_frame_into_inbox(self, frame: Frame, rows: Rows, anchors: Anchors | None) -> None:
        """Put rows of a DataFrame into the inbox of the first bolt; `anchors` as in `feed`."""
        if anchors is not None and self._stage.upstream:  # an operator before has sent them
            arrived_fingerprint = fingerprint_of(anchors.form, anchors.column)
            self._received_fingerprint = self._received_fingerprint.plus(arrived_fingerprint)
        rows_before = self.frame_rows_received
        self.frame_rows_received += len(rows)

        @cache
        def places_of_rows() -> Sequence[Deliveries]:
            """Return the places of each row; the first call builds them."""
            if anchors is None:  # nothing is tracked
                return [()] * len(rows)
            places = places_of(anchors)
            # behind operators of Spark's own, which may have repeated a row
            if frame.entry_key:
                places = self._with_hops_of_task_and_row(places, frame.entry_key, rows_before)
            return places

        places: Sequence[Deliveries]
        if frame.by_row:
            # Only the row from which each tuple descends is kept. Mostly bolts settle each tuple at
            # once, and no places are needed
            places = Descendants(anchors, np.arange(len(rows)), places_of_rows)
        else:
            places = places_of_rows()
        first_bolt = self._stage.bolts[0].name
        self._inbox_by_bolt[first_bolt].append(ReceivedRows(rows, places))

    def _with_hops_of_task_and_row(
        self, places: Sequence[Deliveries], subscription: int, rows_before: int
    ) -> Sequence[Deliveries]:
        """Return places that differ for equal rows, since Spark's operators may repeat a row.

        Two rows with equal places would have equal edges, which cancel in the XOR value. So two
        hops are added to each place: one with the number of this task, and one with the number of
        the row in this task.

        Args:
            subscription: the key of the subscription on which the operators deliver.
            rows_before: how many rows the task received before.
        """
        row_numbers = np.arange(len(places))
        places_in_task = children_of(places, row_numbers, subscription, self._partition)
        return children_of(places_in_task, row_numbers, subscription, row_numbers + rows_before)

    def _emit(self, stream: StreamPass, rows: Rows, anchors: Anchors | None) -> None:
        """Emit rows of a spout or of a keyed bolt on their stream, and count them.

        `anchors`: of the rows; None: nothing is tracked.
        """
        rows.came_from = stream.id
        places = places_of(anchors) if anchors is not None else [()] * len(rows)
        row_numbers = np.arange(len(rows))
        # for each route and copy of it, in the order in which `_distribute` reads them
        places_by_copy: list[Sequence[Deliveries]] = []
        for route in stream.routes:
            for copy in range(route.receiving_tasks):
                # The ordinal numbers the deliveries of one parent on one subscription. A row is
                # emitted once, so these are its copies
                places_of_copy = children_of(places, row_numbers, route.subscription.key, copy)
                places_by_copy.append(places_of_copy)
        self._tally.add(Counted(What.EMITTED, stream.id.component, stream.id), len(rows))
        if places_by_copy:
            transferred = Counted(What.TRANSFERRED, stream.id.component, stream.id)
            self._tally.add(transferred, len(places_by_copy) * len(rows))
        # None: all its readers are in this task, and take the rows as they are
        batch = rows.arrow(stream.schema.names) if stream.leaves_task else None
        self._distribute(Emissions(stream, rows, batch, places_by_copy))

    def _sort_rows_of_stage_before(self, batch: pa.RecordBatch, places: Places | None) -> None:
        """Put rows of the stage before into inboxes, or forward those that no bolt here receives.

        Each row has its destination in the column ``_to``.

        `places`: of all rows; None: the rows have them in a column.
        """
        received = PlacedRows(batch, places)
        # the driver compares it with that of what the stage before sent
        fingerprint = received.fingerprint(AnchorForm.HOPS)
        self._received_fingerprint = self._received_fingerprint.plus(fingerprint)
        destinations = batch.column(TO).to_numpy(zero_copy_only=False)
        # the rows of a bundle have one destination, so mostly there is nothing to divide
        have_one_destination = (destinations == destinations[:1]).all()
        distinct = destinations[:1]  # empty if there are no rows
        if not have_one_destination:
            distinct = np.unique(destinations)
        for destination in distinct.tolist():
            rows_for_it = received
            if len(distinct) > 1:
                rows_for_it = received.take(np.flatnonzero(destinations == destination))
            arrival = self._stage.arrival_by_number.get(destination)
            if arrival is None:  # no bolt of this stage receives them
                self._outbox.forward(destination, rows_for_it.rows, rows_for_it.places)
            else:
                self._put_into_inbox(arrival, rows_for_it)

    def _put_into_inbox(self, arrival: Arrival, placed_rows: PlacedRows) -> None:
        """Put rows of one subscription into the inbox of its bolt, as tuples of their stream.

        `arrival`: the stream of the rows, and the bolt that reads it.
        """
        stream = arrival.stream
        fields = placed_rows.rows.column(stream.column).flatten()
        tuples = pa.RecordBatch.from_arrays(fields, schema=stream.schema)
        places: Sequence[Deliveries] | None = placed_rows.places
        if not places:  # the rows have them in a column; or there are no rows
            places = places_of(Anchors(AnchorForm.HOPS, placed_rows.rows.column(ANCHOR)))
        # a keyed bolt comes later: rows that leave have source and position of their root, too
        if self._stage.carries_roots:
            self._outbox.origins.add_roots(only_roots(places), placed_rows.rows.column(ROOT))
        rows = ArrowRows(tuples, came_from=stream.id)
        self._inbox_by_bolt[arrival.consumer].append(ReceivedRows(rows, places))

    def finish(self) -> list[pa.RecordBatch]:
        """Clean the bolts up, and return the rows that leave by that: one batch, or none."""
        leaving = self._run_bolts(with_cleanup=True)
        return [leaving] if leaving.num_rows else []

    def _run_bolts(self, *, with_cleanup: bool = False) -> pa.RecordBatch:
        """Call each bolt for what is in its inbox, producers first; return what leaves the task.

        `with_cleanup`: clean each bolt up behind its last tuple. What its cleanup emits is received
        by the bolts behind it, which are cleaned up later.
        """
        for name, work in self._work_by_bolt.items():
            inbox = self._inbox_by_bolt[name]
            self._inbox_by_bolt[name] = []
            for rows, places in inbox:
                work.call_bolt(rows, places)
            if with_cleanup:
                work.cleanup()
            for emissions in work.pop_emissions():
                self._distribute(emissions)
        return self._pop_leaving_rows()

    def report(self) -> TaskReport:
        """Return what the bolts did since the last `pop_report`.

        Raises `TupleError`: a bolt emitted after its task had ended.
        """
        self._refuse_late_emissions()
        collectors = [work.collector for work in self._work_by_bolt.values()]
        # One set for all bolts: two of them may leave descendants of one row open, and both name
        # the row. What is outstanding is XORed, where twice the same would cancel
        left_open = set[Delivery]().union(*(collector.left_open for collector in collectors))
        open_tuples = chain.from_iterable(collector.outstanding() for collector in collectors)
        outstanding = outstanding_of(chain(open_tuples, left_open))
        counts_of_bolts = [work.tally.counts() for work in self._work_by_bolt.values()]
        report = TaskReport(
            operator=self._stage.name,
            upstream=self._stage.upstream,
            consumer=self._stage.consumer,
            outstanding=outstanding,
            marks=self._root_marks(collectors),
            received_fingerprint=self._received_fingerprint,
            sent_fingerprint=self._sent_fingerprint,
            counts=sum_of_counts([self._tally.counts(), *counts_of_bolts]),
            errors=tuple(chain.from_iterable(collector.errors for collector in collectors)),
            raised=first_of_each(chain(*(collector.tracebacks for collector in collectors))),
        )
        return report_behind_keyed(report) if self._stage.is_behind_keyed else report

    def _refuse_late_emissions(self) -> None:
        """Raise `TupleError` if a bolt emitted after its task had ended.

        A thread of the bolt went on. What it has acked meanwhile would be lost.
        """
        for name, work in self._work_by_bolt.items():
            if work.collector.sent:
                raise TupleError(
                    f"bolt {name!r} emitted after its task had ended, so that nobody receives it: let cleanup"
                    " wait for the threads of the bolt"
                )

    def _root_marks(self, collectors: Sequence[OutputCollector]) -> RootMarks:
        """Return the roots that failed, with causes, and those whose timeout was reset."""
        # by what roots are named: their index in the batch's plan; or, behind a keyed bolt, which
        # holds roots of earlier batches, the edge of the held tuple
        root_source = NUMBERED if self._stage.is_behind_keyed else PLANNED
        failures = chain.from_iterable(collector.failures for collector in collectors)
        touched = set[int]().union(*(collector.touched for collector in collectors))
        touched_roots = np.array(sorted(touched), np.int64)
        marks = [
            RootMarks.of_failures(root_source, failures),
            RootMarks.of_roots(RootMark.TOUCHED, roots_of(root_source, touched_roots)),
        ]
        return RootMarks.together(marks)

    def pop_report(self) -> TaskReport:
        """Return the report of what was done since the last call, and begin a new one.

        Called while no bolt holds tuples.
        """
        report = self.report()
        self._received_fingerprint = Fingerprint()
        self._sent_fingerprint = Fingerprint()
        self._tally.clear()
        for work in self._work_by_bolt.values():
            work.clear_report()
        return report

    def _distribute(self, emissions: Emissions) -> None:
        """Give tuples of one stream to all who read it.

        Those are bolts in this task, by their inboxes; later stages and the sink, by the outbox.
        """
        if not len(emissions.rows):
            return
        stream = emissions.stream
        batch = self._encoded_for_bundles(emissions)
        # for each route and copy of it, in the order of the two loops
        places_by_copy = iter(emissions.places_by_copy)
        for route in stream.routes:
            for copy in range(route.receiving_tasks):
                places = next(places_by_copy)
                if route.stays_in_task:  # its bolt runs in this task
                    received = ReceivedRows(emissions.rows, places)
                    self._inbox_by_bolt[route.subscription.consumer].append(received)
                elif batch is not None:
                    # None: the stream is not direct, so the grouping decides
                    tasks = emissions.tasks
                    if tasks is None:
                        tasks = self._tasks_of(route, copy, batch, places)
                    self._outbox.add_tuples(stream, route.number, batch, tasks, places)
        if batch is not None:
            self._send_to_sink(stream, batch, len(emissions.rows))

    def _encoded_for_bundles(self, emissions: Emissions) -> pa.RecordBatch | None:
        """Return emissions as Arrow rows, dictionary-encoded if they leave in bundles.

        That is done once for all routes, before tasks are found by the values. None: nobody needs
        Arrow rows.
        """
        leaves_in_bundles = emissions.stream.leaves_task and self._stage.frame is None
        if emissions.arrow_rows is None or self._stage.bundling is None or not leaves_in_bundles:
            return emissions.arrow_rows
        return self._stage.bundling.dictionary_encoded(emissions.arrow_rows)

    def _send_to_sink(self, stream: StreamPass, batch: pa.RecordBatch, count: int) -> None:
        """Put tuples into the outbox for each output of the sink that gets their stream.

        They have no places, since no bolt gets them.
        """
        no_places: list[Deliveries] = [()] * count
        for output in stream.outputs:
            tasks = np.zeros(count, np.int64)
            if not self._stage.is_last:
                # Which task of a later stage forwards them does not matter, but a tuple that runs
                # again must take the same way: so its values decide. Of the 64 bits of their key
                # the upper 31 are taken, which fit into the column
                keys = value_keys(batch, stream.schema.names)
                tasks = (keys >> np.uint64(33)).astype(np.int64)
            self._outbox.add_tuples(stream, output.number, batch, tasks, no_places)

    def _tasks_of(
        self,
        route: Route,
        copy: int,
        batch: pa.RecordBatch,
        places: Sequence[Deliveries],
    ) -> I64:
        """Return the task that each tuple goes to by the route's grouping, `(n,) int64`.

        Args:
            copy: the number of the copy among those of the route.
            batch: the tuples, whose values a grouping by fields reads.
            places: of the tuples.
        """
        if route.subscription.kind is Kind.ALL:  # each task gets a copy: task 3 copy 3
            return np.full(len(places), copy, np.int64)
        fields = route.subscription.fields
        keys = value_keys(batch, fields) if fields else None  # None: no grouping by fields
        # tuples without a place go to the tasks by turns: they are counted, so that the next ones
        # go on
        # with the next task
        dealt_before = self._tuples_sent_by_grouping
        self._tuples_sent_by_grouping += len(places)
        return tasks_for(route.subscription.kind, route.tasks, keys, places, dealt_before)

    def _pop_leaving_rows(self) -> pa.RecordBatch:
        """Empty the outbox; return its rows, in bundles or one by one, as one batch."""
        leaving = self._outbox.pop_rows()
        # an operator of this package receives them next: the driver compares what was sent with
        # what
        # that one received. Behind the last stage the sink or Spark's own operators do, which
        # report
        # nothing
        if self._stage.consumer:
            for placed_rows in leaving:
                fingerprint = placed_rows.fingerprint(self._stage.leaving_form)
                self._sent_fingerprint = self._sent_fingerprint.plus(fingerprint)
        if self._stage.bundling is None:
            batches = [placed_rows.rows for placed_rows in leaving]
            return one_batch(batches, self._stage.schema, self._stage.name)
        # rows that are not tracked have nothing that chooses their task: they are numbered through,
        # and go by turns
        rows_before = self._rows_bundled
        self._rows_bundled += sum(placed_rows.rows.num_rows for placed_rows in leaving)
        return self._stage.bundling.bundle(leaving, rows_before)


class TaskOutbox:
    """Collects the rows that leave one task.

    What a row has depends on the stage:

    * the tuple alone, if the sink gets one stream and this is the last stage (`has_bare_rows`);
    * the tuple and its anchor, on a DataFrame (`StagePass.frame`);
    * else the tuple as a struct in the column of its stream, its destination, its task, and its
      places.

    Attributes:
        origins: source and position of each root of the task's input, for rows that carry them
            (before a keyed bolt).
    """

    def __init__(self, stage: StagePass) -> None:
        self.origins = Origins()
        self._stage = stage
        self._leaving: list[PlacedRows] = []

    def add_tuples(
        self,
        stream: StreamPass,
        destination: int,
        tuples: pa.RecordBatch,
        tasks: I64,
        places: Sequence[Deliveries],
    ) -> None:
        """Make rows of emitted tuples, and collect them.

        Args:
            destination: the number of the subscription or of the sink's output.
            tasks: `(n,) int64`: the task that each one goes to.
            places: of each tuple.
        """
        if self._stage.has_bare_rows:
            self._leaving.append(PlacedRows(tuples))
        elif self._stage.frame is not None:
            anchors = column_of(places, self._stage.leaving_form, stream.id.component)
            columns = [*tuples.columns, anchors]
            rows = pa.RecordBatch.from_arrays(columns, schema=self._stage.schema)
            self._leaving.append(PlacedRows(rows))
        else:
            self._collect(self._as_structs(stream, destination, tuples, tasks, places))

    def _as_structs(
        self,
        stream: StreamPass,
        destination: int,
        tuples: pa.RecordBatch,
        tasks: I64,
        places: Sequence[Deliveries],
    ) -> PlacedRows:
        """Return tuples as structs in the column of their stream, with their places.

        The arguments are those of `add_tuples`.
        """
        structs = pa.StructArray.from_arrays(tuples.columns, names=stream.schema.names)
        columns = {stream.column: structs}
        places_beside: Places | None = None
        if isinstance(places, Places):
            # places that are arrays stay beside the rows: a bundle takes them so, and only rows
            # that leave one by one need a column of them
            places_beside = places
        elif not self._stage.is_last:  # behind the last stage no bolt needs places
            columns[ANCHOR] = column_of(places)
        if self._stage.carries_roots:
            columns[ROOT] = self.origins.column(only_roots(places))
        rows = pa.RecordBatch.from_pydict(columns)
        return PlacedRows(rows, places_beside, destination, tasks)

    def forward(self, destination: int, rows: pa.RecordBatch, places: Places | None) -> None:
        """Collect rows of the stage before, as they came, for a later stage or for the sink.

        Args:
            destination: the number of the subscription or of the sink's output.
            places: of the rows; None: they have them in a column, or need none.
        """
        if self._stage.has_bare_rows:
            stream = self._stage.passing_streams[destination]
            fields = rows.column(stream.column).flatten()
            tuples = pa.RecordBatch.from_arrays(fields, schema=stream.schema)
            self._leaving.append(PlacedRows(tuples))
            return
        tasks = np.asarray(rows.column(TASK), dtype=np.int64)
        rows_without_way = rows.drop_columns([TO, TASK])
        self._collect(PlacedRows(rows_without_way, places, destination, tasks))

    def pop_rows(self) -> list[PlacedRows]:
        """Remove all rows that were collected, and return them."""
        leaving, self._leaving = self._leaving, []
        return leaving

    def _collect(self, placed_rows: PlacedRows) -> None:
        """Collect rows for one destination.

        For a bundle they stay as they are. Rows that leave one by one get all columns of the
        stage's schema; the columns of other streams are null.
        """
        if self._stage.bundling is not None:
            self._leaving.append(placed_rows)
            return
        count = placed_rows.rows.num_rows
        columns = dict(zip(placed_rows.rows.schema.names, placed_rows.rows.columns, strict=True))
        columns[TO] = pa.array(np.full(count, placed_rows.to, np.int32))
        columns[TASK] = pa.array(placed_rows.tasks, pa.int32())
        if placed_rows.places is not None and ANCHOR in self._stage.schema.names:
            columns[ANCHOR] = placed_rows.places.column()
        ordered_columns: list[pa.Array] = []
        for field in self._stage.schema:
            if field.name in columns:
                ordered_columns.append(columns[field.name])
            else:
                ordered_columns.append(pa.nulls(count, field.type))
        rows = pa.RecordBatch.from_arrays(ordered_columns, schema=self._stage.schema)
        self._leaving.append(PlacedRows(rows))
