"""What leaves a task of a topology: rows for later stages and for the sink, as `spout.topology.stage_pass`
says.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from acker.identity import I64
from spout.topology.stage_pass import StagePass, StreamPass
from spout.tuples.columns import ANCHOR, ROOT, TASK, TO, Origins
from spout.tuples.places import column_of, only_roots
from spout.tuples.tuple import Delivery


class TaskOutbox:
    """Collects the rows that leave one task. `origins` knows where their roots stand, where rows say so."""

    def __init__(self, pass_: StagePass) -> None:
        self.origins = Origins()
        self._pass = pass_
        self._parts: list[pa.RecordBatch] = []

    def add(
        self,
        stream: StreamPass,
        number: int,
        tuples: pa.RecordBatch,
        tasks: I64,
        deliveries: Sequence[tuple[Delivery, ...]],
    ) -> None:
        """Put tuples of a stream on rows.

        Args:
            number: of the subscription or output that the tuples are for.
            tasks: the task that each one goes to.
            deliveries: the places of each in its trees.
        """
        if self._pass.bare:
            self._parts.append(tuples)
            return
        if self._pass.frame is not None:
            anchors = column_of(deliveries, self._pass.carry)
            self._parts.append(
                pa.RecordBatch.from_arrays([*tuples.columns, anchors], schema=self._pass.schema)
            )
            return
        rows = tuples.num_rows
        own = pa.StructArray.from_arrays(tuples.columns, fields=list(stream.schema))
        columns = {TO: pa.repeat(pa.scalar(number, pa.int32()), rows), stream.column: own}
        if not self._pass.is_last:
            columns |= {TASK: pa.array(tasks, pa.int32()), ANCHOR: column_of(deliveries)}
        if self._pass.carries_roots:
            columns[ROOT] = self.origins.column(only_roots(deliveries))
        self._parts.append(self._row(columns, rows))

    def pass_on(self, number: int, rows: pa.RecordBatch) -> None:
        """Hand rows of the stage before on, to a later stage or to the sink."""
        if self._pass.bare:
            stream = self._pass.passing[number]
            tuples = rows.column(stream.column).flatten()
            self._parts.append(pa.RecordBatch.from_arrays(tuples, schema=stream.schema))
            return
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        self._parts.append(self._row(columns, rows.num_rows))

    def take(self) -> pa.RecordBatch:
        """Return what was collected since this was called last, as one batch."""
        parts, self._parts = self._parts, []
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return pa.RecordBatch.from_pylist([], schema=self._pass.schema)
        return pa.concat_batches(parts)

    def _row(self, columns: Mapping[str, pa.Array], rows: int) -> pa.RecordBatch:
        """Bring columns into the order of the rows that leave; those of other streams are null."""
        found = [
            columns[field.name] if field.name in columns else pa.nulls(rows, field.type)
            for field in self._pass.schema
        ]
        return pa.RecordBatch.from_arrays(found, schema=self._pass.schema)
