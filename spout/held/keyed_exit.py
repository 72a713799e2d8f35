"""Behind a keyed bolt: what it settled is reported, and what it emitted goes on to bolts or to the sink.

Spark runs a keyed bolt where nothing can report to the ledger. So it reports in rows, each a text in the
column `REPORT` beside anchors, and the next operator takes them out. What it emitted is in the column
`EMITTED`, each row as Arrow has it: Spark would make a pandas column of the rows of all keys, which shifts
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

If Spark evaluates rows without a result that counts, the counts in them do not count either.
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

from spout.held.held_plan import refuse_left_out
from spout.held.holding import RowAnchors, anchors_of, released_by
from spout.isolation.safety import Safety
from spout.isolation.task_runs import no_garbage_collection, running_stage
from spout.publishing.delayed import KeyedRoots
from spout.publishing.report_accumulator import add
from spout.publishing.root_marks import RootMarks
from spout.streaming.application import Application
from spout.streaming.frames import streams_behind, through
from spout.streaming.query_plan import label
from spout.topology.stage_pass import StagePass, StreamPass
from spout.topology.stages import SinkOutput
from spout.tuples.anchors import PATHS_TYPE, Anchors, Carry
from spout.tuples.columns import ANCHOR
from spout.tuples.counts import Counted, Counts, Measure, What, added
from spout.tuples.failures import Cause
from spout.tuples.raised import Raised, first_of_each
from spout.tuples.rows import ArrowRows, batch_of, one_batch
from spout.tuples.tuple import StreamId

REPORT = "_windhover_report"
"""The column with the texts."""

EMITTED = "_windhover_emitted"
"""The column with the emitted rows."""

ACKED = ""
RESET = "reset"


def packed_row(values: Sequence[Any], schema: pa.Schema, bolt: str) -> bytes:
    """Write one row as a message of Arrow; errors as `batch_of`."""
    packed: bytes = batch_of([values], schema, bolt).serialize().to_pybytes()
    return packed


def unpacked_rows(column: pa.Array, schema: pa.Schema, bolt: str) -> pa.RecordBatch:
    """Return the rows in messages of Arrow; `TupleError`: all are too large for one batch."""
    rows = [pa.ipc.read_record_batch(message.as_buffer(), schema) for message in column]
    return one_batch(rows, schema, bolt)


def counts_text(counts: Counts) -> str:
    return json.dumps({"counts": list(counts.items())})


class KeyedReports(NamedTuple):
    """What the texts of rows mean: row numbers of fails with their causes, and of resets; counts; tracebacks.

    Rows that were emitted or acked are in no list.
    """

    failed: list[tuple[int, Cause]]
    reset: list[int]
    counts: list[Counts]
    raised: list[Raised]


def read_reports(column: pa.Array) -> KeyedReports:
    found = KeyedReports([], [], [], [])
    for row, text in enumerate(column.to_pylist()):
        if text == RESET:
            found.reset.append(row)
        elif text:
            report = json.loads(text)
            if isinstance(report, dict):
                found.counts.append(dict(map(_count, report["counts"])))
            elif isinstance(report[0], list):
                found.raised.extend(Raised(*each) for each in report)
            else:
                found.failed.append((row, Cause(*report)))
    return found


def _count(pair: Any) -> tuple[Counted, Measure]:
    (what, bolt, stream), (tuples, total_ns, *times) = pair
    pairs = tuple((at, count) for pairs in times for at, count in pairs)
    return Counted(What(what), bolt, StreamId(*stream)), Measure(tuples, total_ns, pairs)


@dataclass(frozen=True, slots=True)
class ExitTask:
    """The work of one task behind a keyed bolt; without `stream` and `ledger` nothing is tracked.

    `stage` is the keyed bolt's, with the bolts behind it that need no shuffle.
    """

    stage: StagePass
    stream: str = ""
    ledger: Any = None
    safety: Safety = field(default_factory=Safety)

    @property
    def _schema(self) -> pa.Schema:
        if self.stage.keyed is None:
            raise TypeError(f"stage {self.stage.name} is no keyed bolt's")
        return self.stage.keyed.schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Hand emitted rows on; report after the last row was taken."""
        with no_garbage_collection(), running_stage(self.stage, self.safety) as run:
            released: list[RootMarks] = []
            counts: list[Counts] = []
            raised: list[Raised] = []
            roots: list[KeyedRoots] = []
            for batch in batches:
                is_emitted = batch.column(REPORT).is_null()
                settled = batch.filter(pc.invert(is_emitted))
                reports = read_reports(settled.column(REPORT))
                done = RowAnchors.of(settled.column(ANCHOR))
                released.append(released_by(done, reports.failed, reports.reset))
                counts += reports.counts
                raised += reports.raised
                emitted = batch.filter(is_emitted)
                anchors = emitted.column(ANCHOR)
                places, edges = anchors_of(anchors)
                roots.append(KeyedRoots(edges, places))
                rows = ArrowRows(unpacked_rows(emitted.column(EMITTED), self._schema, self.stage.name))
                yield run.feed(rows, Anchors(Carry.HOPS, paths_of(anchors)) if self.stage.tracked else None)
            yield from run.finish()
            if self.ledger is not None:
                report = run.report()
                emitted_on = KeyedRoots.together(roots).marks()
                report = replace(
                    report,
                    marks=RootMarks.together([report.marks, *released, emitted_on]),
                    counts=added([report.counts, *counts]),
                    raised=first_of_each(chain(report.raised, raised)),
                )
                add(self.ledger, self.stream, report)


def paths_of(anchors: pa.ListArray) -> pa.Array:
    """Return the places of emitted rows in their trees, in the HOPS form: each begins at an edge."""
    edges = anchors.flatten().field("edge")
    paths = pa.ListArray.from_arrays(pa.array(np.arange(len(edges) + 1, dtype=np.int32)), edges)
    ends = np.cumsum(np.asarray(anchors.value_lengths(), dtype=np.int32), dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(np.concatenate([[np.int32(0)], ends])), paths).cast(PATHS_TYPE)


def lone_stage(bolt: str, schema: pa.Schema, *, tracked: bool) -> StagePass:
    """Return the stage of a keyed bolt on a DataFrame: its rows are all that leaves."""
    id_ = StreamId(bolt)
    emitted = StreamPass(id_, schema, "", (), (SinkOutput(0, id_, 0),))
    return StagePass(bolt, (), schema, tracked, is_last=True, keyed=emitted, is_behind_keyed=True)


def behind_keyed(rows: DataFrame, bolt: str, stage: StagePass) -> DataFrame:
    """Put the stage of a keyed bolt behind the rows in which it reports."""
    refuse_left_out(rows, bolt)
    read = streams_behind(rows)
    for stream in read:
        stream.loose.add(bolt)
    if not read:
        return through(rows, ExitTask(stage), stage.leaving)
    ledger = Application.of(rows.sparkSession).ledger.accumulator
    task = ExitTask(stage, read[0].id, ledger, read[0].safety)
    return through(rows, task, stage.leaving, label(stage.name))
