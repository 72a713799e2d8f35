"""Bundles: how rows pass from one stage to the next, where Spark shuffles between them and no more.

Spark shuffles row by row, and makes a row of its own of each on both sides. A bundle is one such row for all
rows that a batch has for one task: the task's number, and the rows as a stream of Arrow. So ten thousand
tuples cost as much as one. What Spark copies and compresses is kept small: texts that repeat are written
once, and hidden columns as narrow as they are.

Source: docs/design/protocol.md, section 5.2; Arrow's stream format,
https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from acker.errors import TupleError
from acker.identity import I64, U64, mix64_in_place
from spout.topology.routing import value_keys
from spout.tuples.anchors import ORDINAL_BITS, ORDINALS_MAX, PATHS_TYPE
from spout.tuples.columns import ANCHOR, BUNDLE, TASK, TO
from spout.tuples.places import Places, alike

BUNDLES: Final = pa.schema([(TASK, pa.int32()), (BUNDLE, pa.binary())])

ROWS_MAX: Final = 10_000
"""Rows that a bolt receives at once; Spark's own batches have as many."""

BYTES_MAX: Final = (1 << 31) - 1
"""Bytes of all bundles of one batch: Arrow's binary columns have no more."""

_HOP: Final = ANCHOR + "_{}"
"""In a bundle: the ordinals of a hop; ``_windhover`` has the indices of roots, less `_FIRST`."""

_FIRST: Final = b"windhover.first"
"""In a bundle's metadata: the lowest index of a root."""

_SUBSCRIPTIONS: Final = b"windhover.subscriptions"
"""In a bundle's metadata: of anchors that are paths, the upper halves of their hops."""

_WORD: Final = 32
_WORD_MASK: Final = (1 << _WORD) - 1

_SAMPLE: Final = 1_000
"""Values that are looked at to tell whether a column's values repeat."""

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
    bytes_max: int = BYTES_MAX

    def bundle(self, batch: pa.RecordBatch, first: int = 0) -> pa.RecordBatch:
        """Return a bundle for each task that rows of a batch go to; `first`: the rows that went before.

        Raises `TupleError`: they have more than `bytes_max` bytes.
        """
        batch = self._with_codes(batch)
        tasks = self._tasks_of(batch, first) % self.tasks
        small = tasks.astype(np.uint16) if self.tasks <= _RADIX_MAX else tasks
        order = np.argsort(small, kind="stable")
        counts = np.bincount(tasks, minlength=self.tasks)
        starts = np.cumsum(counts) - counts
        rows = _narrowed(batch).take(pa.array(order))
        found = np.flatnonzero(counts)
        streams = [_written(rows.slice(starts[task], counts[task])) for task in found]
        offsets = np.cumsum([0, *(each.size for each in streams)])
        if offsets[-1] > self.bytes_max:
            raise TupleError(
                f"{batch.num_rows:,} tuples that bolts emitted at once have {offsets[-1]:,} bytes, and Spark"
                f" takes {self.bytes_max:,} at most: emit smaller tuples, or fewer for one record"
            )
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(b"".join(streams))]
        bundles = pa.BinaryArray.from_buffers(pa.binary(), len(streams), buffers)
        return pa.RecordBatch.from_arrays([pa.array(found, pa.int32()), bundles], schema=BUNDLES)

    def _with_codes(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Write texts as numbers of a list where they repeat so that the lists of all tasks are shorter."""
        for place, name in enumerate(batch.schema.names):
            column = batch.column(place)
            if pa.types.is_struct(column.type) and column.type.num_fields and not column.null_count:
                fields = [field.name for field in column.type]
                coded = [_coded(each, self.tasks) for each in column.flatten()]
                batch = batch.set_column(place, name, pa.StructArray.from_arrays(coded, fields))
            else:
                batch = batch.set_column(place, name, _coded(column, self.tasks))
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


def _coded(column: pa.Array, tasks: int) -> pa.Array:
    """Return a text column with each value once, if a list of them for each task is half as long as it."""
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        return column
    rows = len(column)
    some = column.slice(0, _SAMPLE)
    twice = len(some) - len(some.unique())
    # of V equally frequent values n rows have about n * n / 2V that occurred before
    if not twice or len(some) * len(some) * tasks > rows * twice:
        return column
    found = column.dictionary_encode()
    values = len(found.dictionary)
    if 2 * values * tasks > rows:
        return column
    indices = found.indices.cast(pa.from_numpy_dtype(_fitting(values + 1)))  # null is one more
    return pa.DictionaryArray.from_arrays(indices, found.dictionary)


def _packed(batch: pa.RecordBatch) -> I64 | None:
    """Return packed anchors; None: the rows have others, or none."""
    place = batch.schema.get_field_index(ANCHOR)
    column = None if place < 0 else batch.column(place)
    if column is None or column.null_count or not pa.types.is_int64(column.type):
        return None
    return np.asarray(column, dtype=np.int64)


def _narrowed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Write hidden columns as narrow as they are; anchors of one form split into index and ordinals."""
    if not batch.num_rows:
        return batch
    for name in (TO, TASK):
        if (place := batch.schema.get_field_index(name)) >= 0:
            batch = batch.set_column(place, name, _narrow(np.asarray(batch.column(place), dtype=np.int64)))
    if (place := batch.schema.get_field_index(ANCHOR)) < 0:
        return batch
    packed = _packed(batch)
    if packed is not None:
        roots, hops = packed >> ORDINAL_BITS, [packed & (ORDINALS_MAX - 1)]
        subscriptions = ""
    else:
        places = alike(batch.column(place)) if batch.schema.field(place).type == PATHS_TYPE else None
        if places is None or any(np.ptp(hop >> _WORD) for hop in places.hops):
            return batch
        roots, hops = places.roots, [hop & _WORD_MASK for hop in places.hops]
        subscriptions = ",".join(str(int(hop[0] >> _WORD)) for hop in places.hops)
    first = int(roots.min())
    batch = batch.set_column(place, ANCHOR, _narrow(roots - first))
    for depth, ordinals in enumerate(hops):
        batch = batch.append_column(_HOP.format(depth), _narrow(ordinals))
    return batch.replace_schema_metadata({_FIRST: str(first), _SUBSCRIPTIONS: subscriptions})


def _narrow(numbers: I64) -> pa.Array:
    return pa.array(numbers.astype(_fitting(int(numbers.max()) + 1)))


def _fitting(values: int) -> np.dtype[Any]:
    """Return the narrowest type that holds so many values from 0 on."""
    return next((each for each in _NARROW if values <= np.iinfo(each).max + 1), np.dtype(np.int64))


def _widened(written: pa.RecordBatch, field: pa.Field) -> pa.Array:
    """Return a column as it was before it was written."""
    column = written.column(field.name)
    if field.name != ANCHOR or _FIRST not in (written.schema.metadata or {}):
        return _decoded(column, field.type)
    roots = np.asarray(column).astype(np.int64) + int(written.schema.metadata[_FIRST])
    named = written.schema.metadata[_SUBSCRIPTIONS].decode()
    subscriptions = [int(each) for each in named.split(",") if each]
    names = [name for name in written.schema.names if name.startswith(_HOP.format(""))]
    hops = [np.asarray(written.column(name)).astype(np.int64) for name in names]
    if field.type != PATHS_TYPE:
        return pa.array(roots << ORDINAL_BITS | hops[0])
    upper = zip(subscriptions, hops, strict=True)
    return Places(roots, tuple(np.int64(key) << _WORD | ordinals for key, ordinals in upper)).column()


def _decoded(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    if column.type == kind or not pa.types.is_struct(kind):
        return column.cast(kind)
    children = [_decoded(child, field.type) for child, field in zip(column.flatten(), kind, strict=True)]
    return pa.StructArray.from_arrays(children, fields=list(kind))


def _written(rows: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return sink.getvalue()
