"""Behind a keyed bolt: what it settled is reported, and what it emitted goes on to bolts or to the
sink.

Spark runs a keyed bolt where nothing can report to the ledger, the accumulator that brings reports
of tasks to the driver. So it reports in rows, each a text in the column `REPORT` beside anchors,
and the next operator (`ExitTask`) takes them out. What it emitted is in the column `EMITTED`, each
row as an Arrow message: Spark would make a pandas column of the rows of all keys, which shifts
times, takes NaN for null, and refuses the rows of all keys for a value of one.

==============  =================================================  =======================
the text        meaning of the row                                 its anchors
==============  =================================================  =======================
null            the bolt emitted this row                          carry it
empty           an ack                                             are acked
``reset``       resets timeouts                                    stay held
a JSON list     a fail, with its cause                             are failed by the cause
list of lists   tracebacks, for the log                            none
a JSON object   counts of one call, under ``counts``               none
==============  =================================================  =======================

If Spark evaluates rows and drops the result, the counts in them are dropped with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from spout.execution.calls import RowFailure
from spout.held.held_plan import refuse_holds_left_out
from spout.held.holding import RowAnchors, anchors_of, marks_of_anchors
from spout.isolation.safety import Safety
from spout.isolation.task_runs import no_garbage_collection, running_stage
from spout.publishing.report_accumulator import add_report
from spout.publishing.root_marks import RootMark, RootMarks
from spout.streaming.application import Application
from spout.streaming.frames import streams_behind, through
from spout.streaming.query_plan import label
from spout.topology.stage_pass import StagePass, StreamPass
from spout.topology.stages import SinkOutput
from spout.tuples.anchors import PATHS_TYPE, AnchorForm, Anchors
from spout.tuples.columns import ANCHOR
from spout.tuples.counts import Counted, Counts, Measure, What, sum_of_counts
from spout.tuples.failures import Cause
from spout.tuples.raised import Raised, first_of_each
from spout.tuples.rows import ArrowRows, batch_of, one_batch
from spout.tuples.tuple import StreamId

REPORT = "_windhover_report"
"""The column with the texts."""

EMITTED = "_windhover_emitted"
"""The column with the emitted rows."""

ACKED = ""
"""The text of a row whose anchors are acked."""

RESET = "reset"
"""The text of a row that resets the timeouts of its anchors."""


def packed_row(values: Sequence[Any], schema: pa.Schema, bolt: str) -> bytes:
    """Return one row as an Arrow message; errors as `batch_of`."""
    message: bytes = batch_of([values], schema, bolt).serialize().to_pybytes()
    return message


def unpacked_rows(column: pa.Array, schema: pa.Schema, bolt: str) -> pa.RecordBatch:
    """Return the rows in Arrow messages; `TupleError`: they are too large for one batch."""
    rows = [pa.ipc.read_record_batch(message.as_buffer(), schema) for message in column]
    return one_batch(rows, schema, bolt)


def counts_text(counts: Counts) -> str:
    """Return the text of a row that has the counts of one call; `read_reports` reads it."""
    return json.dumps({"counts": list(counts.items())})


class KeyedReports(NamedTuple):
    """What the texts of some rows mean; rows whose anchors are acked are in no list.

    Attributes:
        failed: the numbers of the rows that fail their anchors, with their causes.
        reset: the numbers of the rows that reset the timeouts of their anchors.
        counts: of each call of the bolt.
        raised: tracebacks, for the log.
    """

    failed: list[RowFailure]
    reset: list[int]
    counts: list[Counts]
    raised: list[Raised]


def read_reports(column: pa.Array) -> KeyedReports:
    """Return what the texts in a column mean, by the table of this module; none is null."""
    reports = KeyedReports(failed=[], reset=[], counts=[], raised=[])
    for row, text in enumerate(column.to_pylist()):
        if text == ACKED:
            continue
        if text == RESET:
            reports.reset.append(row)
            continue
        report = json.loads(text)
        if isinstance(report, dict):
            counts = dict(map(_count_of_json, report["counts"]))
            reports.counts.append(counts)
        elif isinstance(report[0], list):  # each list has the fields of a `Raised`
            reports.raised.extend(Raised(*fields) for fields in report)
        else:  # a list with the fields of a `Cause`
            reports.failed.append((row, Cause(*report)))
    return reports


def _count_of_json(entry: Any) -> tuple[Counted, Measure]:
    """Return what is counted, and its count with times, from the JSON of both.

    That is [[what, bolt, stream], [tuples, total ns, histogram]]. A histogram has the number of
    each class of times, and how many tuples are in it; an entry of an earlier version has none.
    """
    (what, bolt, stream), (tuple_count, total_ns, *optional_histogram) = entry
    times: list[tuple[int, int]] = []
    for histogram in optional_histogram:  # one, or none
        times += [(class_number, count) for class_number, count in histogram]
    counted = Counted(What(what), bolt, StreamId(*stream))
    return counted, Measure(tuple_count, total_ns, tuple(times))


@dataclass(frozen=True, slots=True)
class ExitTask:
    """Reports for a keyed bolt in one task, and passes on what it emitted, through bolts if any.

    Attributes:
        stage: the keyed bolt's, with the bolts behind it that need no shuffle.
        stream_id: of the tracked stream; empty where nothing is tracked.
        accumulator: reports go to it; None where nothing is tracked.
        safety: how long a call of a bolt may last, and whether bolts run in a child process.
    """

    stage: StagePass
    stream_id: str = ""
    accumulator: Any = None
    safety: Safety = field(default_factory=Safety)

    @property
    def _schema(self) -> pa.Schema:
        """Return the schema of what the keyed bolt emits."""
        if self.stage.keyed_stream is None:
            raise TypeError(f"stage {self.stage.name} is no keyed bolt's")
        return self.stage.keyed_stream.schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass emitted rows on; report after the last row was taken."""
        with no_garbage_collection(), running_stage(self.stage, self.safety) as stage_run:
            marks_by_batch: list[RootMarks] = []
            counts: list[Counts] = []
            raised: list[Raised] = []
            marks_of_emitted: list[RootMarks] = []
            for batch in batches:
                is_emitted = batch.column(REPORT).is_null()
                # the rows that report are taken out: what became of their anchors goes to the
                # ledger
                reporting = batch.filter(pc.invert(is_emitted))
                reports = read_reports(reporting.column(REPORT))
                reported_anchors = RowAnchors.of(reporting.column(ANCHOR))
                # a row that neither fails nor resets its anchors acks them
                marks = marks_of_anchors(reported_anchors, reports.failed, reports.reset)
                marks_by_batch.append(marks)
                counts += reports.counts
                raised += reports.raised
                # the rows that were emitted go on, to bolts or to the sink
                emitted = batch.filter(is_emitted)
                emitted_anchors = emitted.column(ANCHOR)
                roots, edges = anchors_of(emitted_anchors)
                # the bolts behind name roots by the edges of held tuples: these marks say which
                # source and position each one is
                marks_of_emitted.append(RootMarks.of_roots(RootMark.KEYED, roots, edges))
                tuples = unpacked_rows(emitted.column(EMITTED), self._schema, self.stage.name)
                anchors: Anchors | None = None  # None: nothing is tracked
                if self.stage.tracked:
                    anchors = Anchors(AnchorForm.HOPS, paths_of(emitted_anchors))
                yield stage_run.feed(ArrowRows(tuples), anchors)
            yield from stage_run.finish()
            if self.accumulator is not None:
                report = stage_run.report()
                # several tuples of one root have the same mark: each is kept once
                keyed_marks = RootMarks.together(marks_of_emitted).once_for_each_value()
                report = replace(
                    report,
                    marks=RootMarks.together([report.marks, *marks_by_batch, keyed_marks]),
                    counts=sum_of_counts([report.counts, *counts]),
                    raised=first_of_each(chain(report.raised, raised)),
                )
                add_report(self.accumulator, self.stream_id, report)


def paths_of(anchors: pa.ListArray) -> pa.Array:
    """Return the paths of emitted rows, for each row a list (`AnchorForm.HOPS`).

    A path leads from a root to a tuple. Behind a keyed bolt it begins with the edge of the held
    tuple, in place of the root's index. So a row that is anchored on tuples with the edges a and b
    has the paths [[a], [b]].
    """
    edges = anchors.flatten().field("edge")
    path_borders = np.arange(len(edges) + 1, dtype=np.int32)  # each path has one edge
    paths = pa.ListArray.from_arrays(pa.array(path_borders), edges)
    anchor_counts = np.asarray(anchors.value_lengths(), dtype=np.int32)
    row_ends = np.cumsum(anchor_counts, dtype=np.int32)
    row_borders = np.concatenate([[np.int32(0)], row_ends])
    return pa.ListArray.from_arrays(pa.array(row_borders), paths).cast(PATHS_TYPE)


def stage_of_keyed_bolt(bolt: str, schema: pa.Schema, *, tracked: bool) -> StagePass:
    """Return the stage of a keyed bolt on a DataFrame. No other bolt is in it.

    Args:
        bolt: the bolt's name, which the stage has, too.
        schema: of what the bolt emits.
        tracked: whether the rows come from a tracked stream.
    """
    stream_id = StreamId(bolt)
    # a DataFrame has one stream, which leaves as the only output of the sink
    output = SinkOutput(number=0, stream=stream_id, stage=0)
    emitted_stream = StreamPass(
        stream_id,
        schema,
        column="",  # the rows have the stream's own columns
        routes=(),
        outputs=(output,),
    )
    return StagePass(
        name=bolt,
        bolts=(),  # Spark calls the keyed bolt, and no other bolt stands behind it
        schema=schema,
        tracked=tracked,
        is_last=True,
        keyed_stream=emitted_stream,
        is_behind_keyed=True,  # its roots are named by the edges of held tuples
    )


def with_keyed_stage(rows: DataFrame, bolt: str, stage: StagePass) -> DataFrame:
    """Return the rows that leave the stage of a keyed bolt.

    `rows`: those in which the bolt emits and reports.

    Raises `UsageError`: anchors of held rows do not reach these rows.
    """
    refuse_holds_left_out(rows, bolt)
    tracked_streams = streams_behind(rows)
    if not tracked_streams:  # rows of plain DataFrames: there is nothing to report
        return through(rows, ExitTask(stage), stage.leaving_schema)
    for stream in tracked_streams:
        stream.names_behind_spark.add(bolt)  # it runs behind Spark's own operators
    # each query has one tracked stream: one with several is refused when it starts
    stream = tracked_streams[0]
    task = ExitTask(
        stage,
        stream_id=stream.id,
        accumulator=Application.of(rows.sparkSession).ledger.accumulator,
        safety=stream.safety,
    )
    return through(rows, task, stage.leaving_schema, label(stage.name))
