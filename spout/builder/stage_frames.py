"""From a compiled topology to a DataFrame: one chain of stages, with one shuffle between each and the next.

At the stage of a keyed bolt Spark shuffles by its key, and keeps its state.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from acker.errors import UsageError
from spout.builder.compiled import Compiled
from spout.held.keyed_entry import EntryTask, keyed_frame, keyed_streams
from spout.planner.mailbox import Mailbox
from spout.streaming.application import Application, Stream
from spout.streaming.frames import Node, narrowed, node_of, through
from spout.streaming.map_task import MapTask
from spout.streaming.stream import read_stream
from spout.topology.stage_pass import Parts, StagePass, passes_of
from spout.tuples.columns import TASK


@dataclass(frozen=True, slots=True)
class TopologyFrame:
    """The DataFrame of a topology, the passes that it runs, the stream that it reads, and its two files."""

    rows: DataFrame
    passes: tuple[StagePass, ...]
    stream: Stream
    mailbox: Mailbox
    status_path: Path


def frame_of(spark: SparkSession, compiled: Compiled) -> TopologyFrame:
    """Build the DataFrame of a topology; `UsageError`: as `spout.read_stream`."""
    read = compiled.read
    application = Application.of(spark)
    options: Any = dict(read.options) | ({"delayed_acks": True} if compiled.keyed else {})
    source = node_of(read_stream(spark, read.topics, read.inputs, **options))
    if source is None or source.options is None:
        raise UsageError("read_stream returned rows that are not its own")
    stream = application.streams[source.options.stream]
    passes = passes_of(compiled.layout, _parts(compiled, tracked=stream.tracked))
    ledger = application.ledger.accumulator if stream.tracked else None
    rows = Node(spark, source.stream, options=narrowed(source.options, passes[0])).read()
    for before, stage, partitions in zip(passes, passes[1:], compiled.layout.partitions[1:], strict=False):
        if compiled.keyed is not None and stage.keyed is not None:
            reads = keyed_streams(compiled.layout, stage)
            entry = EntryTask(compiled.layout.keyed, before.name, reads, stream.id, ledger)
            rows = keyed_frame(rows, before, entry, compiled.keyed, stage)
        else:
            task = MapTask(stage, stream.id, ledger, stream.safety)
            rows = through(rows.repartitionById(partitions, sql.col(TASK)), task, stage.leaving)
    status_path = Path(source.options.status_path or "")
    return TopologyFrame(rows, passes, stream, application.mailbox(stream), status_path)


def _parts(compiled: Compiled, *, tracked: bool) -> Parts:
    inputs = {
        name: tuple(compiled.read.topics.input(each).id for each in inputs)
        for name, inputs in compiled.inputs.items()
    }
    return Parts(compiled.bolts, compiled.schemas, inputs, compiled.hooks, tracked)
