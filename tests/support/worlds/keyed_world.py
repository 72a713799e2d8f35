"""A topology with a keyed bolt, without Spark: its state outlives each batch, and the bolts behind it run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pyarrow as pa

from spout.builder.compiled import Compiled
from spout.builder.topology import TopologyBuilder
from spout.held.keyed_entry import EntryTask, keyed_streams
from spout.held.keyed_exit import EMITTED, REPORT, ExitTask
from spout.held.keyed_rows import KEY, ONE_KEY, KeyedTask
from spout.publishing.fold import TaskReport
from spout.streaming.map_task import MapTask
from spout.topology.bundles import unbundled
from spout.topology.stage_pass import StagePass
from spout.tuples.anchor_columns import HELD_TYPE
from spout.tuples.columns import ANCHOR
from tests.support.fake_ledger import FakeLedger
from tests.support.fake_state import FakeState
from tests.support.worlds.topology_world import Ran, run, schema_of, stages_of

Lose = Callable[[list[pa.RecordBatch]], list[pa.RecordBatch]]


class KeyedQuery:
    """Runs batch after batch. The bolt reads one stream: by fields, or all tuples as one key.

    Attributes:
        keys: the keys with which the bolt was called.
    """

    def __init__(self, builder: TopologyBuilder, sink: Any = None) -> None:
        self._builder = builder
        self._sink = sink
        self._states: dict[Any, FakeState] = {}
        self._records = 0
        self._lose: Lose = list
        self.keys: set[tuple[Any, ...]] = set()

    def batch(self, *lines: bytes, lose: Lose = list) -> Ran:
        """Run a batch; `lose` returns what arrives of the rows that leave the keyed bolt's stage."""
        self._lose = lose
        first, self._records = self._records, self._records + len(lines)
        return run(self._builder, lines, self._sink, first=first, entry=self._enter)

    def _enter(
        self, last: StagePass, compiled: Compiled, rows: list[pa.RecordBatch]
    ) -> tuple[list[pa.RecordBatch], Sequence[TaskReport]]:
        ledger = FakeLedger()
        number = compiled.layout.keyed_stage
        stage, *behind = stages_of(compiled)[number:]
        entry = EntryTask(
            compiled.layout.keyed_bolt, last.name, keyed_streams(compiled.layout, stage), "stream", ledger
        )
        left = [*ExitTask(stage, "stream", ledger)(self._held(compiled, pa.concat_batches(entry(rows))))]
        for each in behind:
            assert each.arriving_schema is not None
            arriving = [rows for batch in left for rows in unbundled(batch, each.arriving_schema)]
            left = [*MapTask(replace(each, arriving_schema=None), "stream", ledger)(self._lose(arriving))]
        return left, ledger.reports

    def _held(self, compiled: Compiled, rows: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        layout = compiled.layout
        [reads] = layout.graph.inputs_of(layout.keyed_bolt)
        bolt = compiled.keyed
        assert bolt is not None
        key = [KEY.format(number) for number in range(len(reads.fields))] or [ONE_KEY]
        task = KeyedTask(
            layout.keyed_bolt,
            bolt,
            schema_of(layout.keyed_bolt, bolt.output),
            tracked=True,
            streams={name: reads.producer for name in rows.schema.names if name not in (ANCHOR, *key)},
            has_one_key=not reads.fields,
        )
        frame = rows.to_pandas()

        frames = []
        for values, part in frame.groupby(key) if len(frame) else ():
            state = self._states.setdefault(values, FakeState())
            self.keys.add(() if task.has_one_key else values)
            frames += task(values, [part], state)  # type: ignore[arg-type]  # a stand-in
        schema = pa.schema([(EMITTED, pa.binary()), (REPORT, pa.string()), (ANCHOR, pa.list_(HELD_TYPE))])
        for each in frames or [pd.DataFrame(columns=schema.names, dtype=object)]:
            yield pa.RecordBatch.from_pandas(each, schema, preserve_index=False)
