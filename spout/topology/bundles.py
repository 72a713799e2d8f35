"""Bundles: how rows pass from one stage to the next, where Spark shuffles between them and no more.

Spark shuffles row by row, and makes a row of its own of each on both sides. A bundle is one such row for all
rows that a batch has for one task: the task's number, and the rows as a stream of Arrow. So ten thousand
tuples cost as much as one. What Spark copies and compresses is kept small: where the values by which rows are
grouped repeat, each is written once, and packed anchors are written as narrow as they are.

Source: docs/design/protocol.md, section 5.2; Arrow's stream format,
https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from acker.identity import I64, U64, mix64_in_place
from spout.topology.routing import value_keys
from spout.tuples.anchors import ORDINAL_BITS, ORDINALS_MAX
from spout.tuples.columns import ANCHOR, BUNDLE, TASK

BUNDLES: Final = pa.schema([(TASK, pa.int32()), (BUNDLE, pa.binary())])

ROWS_MAX: Final = 10_000
"""Rows that a bolt receives at once; Spark's own batches have as many."""

_ORDINAL: Final = f"{ANCHOR}_ordinal"
"""In a bundle: the lower half of packed anchors; ``_windhover`` has the upper one, less `_FIRST`."""

_FIRST: Final = b"windhover.first"
"""In a bundle's metadata: the lowest index of a root."""

_RADIX_MAX: Final = 1 << 16
"""NumPy sorts numbers of so many values by their digits, in a tenth of the time."""

_NARROW: Final = (np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.uint32))


@dataclass(frozen=True, slots=True)
class Bundling:
    """Which rows go to which of `tasks` tasks; `fields`: equal values to one task, none: spread evenly.

    `named`: the rows name their tasks themselves, in the column ``_task``.
    """

    tasks: int
    fields: tuple[str, ...] = ()
    named: bool = False

    def bundle(self, batch: pa.RecordBatch, first: int = 0) -> pa.RecordBatch:
        """Return a bundle for each task that rows of a batch go to; `first`: the rows that went before."""
        batch = self._coded(batch)
        tasks = self._tasks_of(batch, first) % self.tasks
        small = tasks.astype(np.uint16) if self.tasks <= _RADIX_MAX else tasks
        order = np.argsort(small, kind="stable")
        counts = np.bincount(tasks, minlength=self.tasks)
        starts = np.cumsum(counts) - counts
        rows = _narrowed(batch).take(pa.array(order))
        found = np.flatnonzero(counts)
        streams = [_written(rows.slice(starts[task], counts[task])) for task in found]
        offsets = np.cumsum([0, *(each.size for each in streams)], dtype=np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(streams))]
        bundles = pa.BinaryArray.from_buffers(pa.binary(), len(streams), buffers)
        return pa.RecordBatch.from_arrays([pa.array(found, pa.int32()), bundles], schema=BUNDLES)

    def _coded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Code texts by which rows are grouped, where they repeat so that a list for each task is shorter."""
        for name in self.fields:
            place = batch.schema.get_field_index(name)
            column = batch.column(place)
            if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
                continue
            coded = column.dictionary_encode()
            values = len(coded.dictionary)
            if values * self.tasks * 2 <= len(column):
                indices = coded.indices.cast(pa.from_numpy_dtype(_fitting(values + 1)))  # null is one more
                column = pa.DictionaryArray.from_arrays(indices, coded.dictionary)
                batch = batch.set_column(place, name, column)
        return batch

    def _tasks_of(self, batch: pa.RecordBatch, first: int) -> I64:
        """Return a number for each row: a tuple's depends on it alone, so it goes the same way again."""
        if self.named:
            return np.asarray(batch.column(TASK), dtype=np.int64)
        keys: U64
        if self.fields:
            keys = value_keys(batch, self.fields)
        elif (packed := _packed(batch)) is not None:
            keys = packed.astype(np.uint64)
            mix64_in_place(keys)
        elif ANCHOR in batch.schema.names and not batch.column(ANCHOR).null_count:
            keys = value_keys(batch, [ANCHOR])
        else:
            return np.arange(first, first + batch.num_rows)
        return (keys >> np.uint64(1)).astype(np.int64)


def unbundled(bundles: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Return the rows of bundles, at most `ROWS_MAX` at once."""
    for each in bundles.column(BUNDLE):
        written = pa.ipc.open_stream(each.as_buffer()).read_next_batch()
        columns = [_widened(written, field) for field in schema]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        for start in range(0, rows.num_rows, ROWS_MAX):
            yield rows.slice(start, ROWS_MAX)


def _packed(batch: pa.RecordBatch) -> I64 | None:
    """Return packed anchors; None: the rows have others, or none."""
    place = batch.schema.get_field_index(ANCHOR)
    column = None if place < 0 else batch.column(place)
    if column is None or column.null_count or not pa.types.is_int64(column.type):
        return None
    return np.asarray(column, dtype=np.int64)


def _narrowed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Split packed anchors into index and ordinal, each as narrow as it can be."""
    packed = _packed(batch)
    if packed is None or not len(packed):
        return batch
    indices, ordinals = packed >> ORDINAL_BITS, packed & (ORDINALS_MAX - 1)
    first = int(indices.min())
    upper = (indices - first).astype(_fitting(int(indices.max()) - first + 1))
    lower = ordinals.astype(_fitting(int(ordinals.max()) + 1))
    place = batch.schema.get_field_index(ANCHOR)
    split = batch.set_column(place, ANCHOR, pa.array(upper)).append_column(_ORDINAL, pa.array(lower))
    return split.replace_schema_metadata({_FIRST: str(first).encode()})


def _fitting(values: int) -> np.dtype[Any]:
    """Return the narrowest type that holds so many values from 0 on."""
    return next((each for each in _NARROW if values <= np.iinfo(each).max + 1), np.dtype(np.int64))


def _widened(written: pa.RecordBatch, field: pa.Field) -> pa.Array:
    """Return a column as it was before it was written."""
    column = written.column(field.name)
    if field.name == ANCHOR and _ORDINAL in written.schema.names:
        upper = np.asarray(column).astype(np.int64) + int((written.schema.metadata or {})[_FIRST])
        return pa.array(upper << ORDINAL_BITS | np.asarray(written.column(_ORDINAL)).astype(np.int64))
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _written(rows: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return sink.getvalue()
