"""Bundles: how rows pass from one stage to the next, where Spark shuffles between them and no more.

Spark shuffles row by row, and makes a row of its own of each on both sides. A bundle is one such row for all
rows of one kind that a batch has for one task: the task's number, and the rows as a stream of Arrow. So ten
thousand tuples cost as much as one. What Spark copies and compresses is kept small: texts that repeat are
written once, and hidden columns as narrow as they are.

Source: docs/design/protocol.md, section 5.2; Arrow's stream format,
https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from acker.errors import TupleError
from acker.identity import I64, U64, mix64_in_place
from spout.topology.routing import modulo, value_keys
from spout.tuples.anchors import ORDINAL_BITS, ORDINALS_MAX, PATHS_TYPE, Carry, Fingerprint, fingerprint_of
from spout.tuples.columns import ANCHOR, BUNDLE, TASK, TO
from spout.tuples.places import Hop, Numbers, Places, alike

BUNDLES: Final = pa.schema([(TASK, pa.int32()), (BUNDLE, pa.binary())])

ROWS_MAX: Final = 10_000
"""Rows that a bolt receives at once; Spark's own batches have as many."""

BYTES_MAX: Final = (1 << 31) - 1
"""Bytes of all bundles of one batch: Arrow's binary columns have no more."""

_HOP: Final = ANCHOR + "_{}"
"""In a bundle: the ordinals of a hop; ``_windhover`` has the indices of roots, less `_FIRST`."""

_FIRST: Final = b"windhover.first"
"""In a bundle's metadata: the lowest index of a root."""

_SAME: Final = b"windhover.same."
"""In a bundle's metadata: the number that a hidden column has in every row, by the column's name."""

_SUBSCRIPTIONS: Final = b"windhover.subscriptions"
"""In a bundle's metadata: of anchors that are paths, the key of each hop (`spout.tuples.places.Hop`)."""

_SAMPLE: Final = 1_000
"""Values that are looked at to tell whether a column's values repeat."""

_RADIX_MAX: Final = 1 << 16
"""NumPy sorts numbers of so many values by their digits, in a tenth of the time."""

_NARROW: Final = (np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.uint32))


class PlacedRows(NamedTuple):
    """Rows that leave or reach a task together.

    Attributes:
        places: theirs, where they have no column of anchors.
        to: this and the next: of rows that leave a stage of a topology, the number in the column ``_to``.
        tasks: what the column ``_task`` is to have, `(n,) int64`.
    """

    rows: pa.RecordBatch
    places: Places | None = None
    to: int = 0
    tasks: I64 | None = None

    def take(self, rows: I64) -> PlacedRows:
        return PlacedRows(self.rows.take(pa.array(rows)), self.places and self.places.take(rows))

    def fingerprint(self, carry: Carry) -> Fingerprint:
        """Return the fingerprint; `carry`: the form of the column of anchors, if there is one."""
        if self.places is not None:
            return self.places.fingerprint()
        return fingerprint_of(carry, self.rows.column(ANCHOR))


@dataclass(frozen=True, slots=True)
class Bundling:
    """Which rows go to which of `tasks` tasks.

    Attributes:
        fields: rows with equal values of them go to one task; none: rows are spread evenly. Those of a stage
            of a topology name their tasks themselves.
    """

    tasks: int
    fields: tuple[str, ...] = ()
    bytes_max: int = BYTES_MAX

    def bundle(self, loads: Sequence[PlacedRows], first: int = 0) -> pa.RecordBatch:
        """Return a bundle for each load and each task that rows of it go to.

        `first`: the rows that went before. Raises `TupleError`: all have more than `bytes_max` bytes.
        """
        found: list[tuple[int, pa.Buffer]] = []
        for load in loads:
            found += self._bundles(load, first)
            first += load.rows.num_rows
        offsets = np.cumsum([0, *(written.size for _, written in found)])
        if offsets[-1] > self.bytes_max:
            raise TupleError(
                f"{sum(load.rows.num_rows for load in loads):,} tuples that bolts emitted at once have"
                f" {offsets[-1]:,} bytes, and Spark takes {self.bytes_max:,} at most: emit smaller tuples, or"
                " fewer for one record"
            )
        tasks = pa.array([task for task, _ in found], pa.int32())
        written = b"".join(written for _, written in found)
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(written)]
        bundles = pa.BinaryArray.from_buffers(pa.binary(), len(found), buffers)
        return pa.RecordBatch.from_arrays([tasks, bundles], schema=BUNDLES)

    def _bundles(self, load: PlacedRows, first: int) -> Iterator[tuple[int, pa.Buffer]]:
        batch = self.coded(load.rows)
        keys = self._keys(batch, first) if load.tasks is None else load.tasks.view(np.uint64)
        tasks = modulo(keys, self.tasks)
        small = tasks.astype(np.uint16) if self.tasks <= _RADIX_MAX else tasks
        order = np.argsort(small, kind="stable")
        counts = np.bincount(tasks, minlength=self.tasks)
        starts = np.cumsum(counts) - counts
        rows, hidden = self._narrowed(batch, load)
        rows = rows.take(pa.array(order))
        for task in np.flatnonzero(counts).tolist():
            yield task, _written(rows.slice(starts[task], counts[task]), hidden)

    def coded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
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

    def _narrowed(self, batch: pa.RecordBatch, load: PlacedRows) -> tuple[pa.RecordBatch, list[str]]:
        """Add hidden columns, which are named, as narrow as they are; anchors as index and ordinals."""
        numbers: dict[str, Numbers] = {}
        metadata: dict[bytes, str] = {}
        if load.tasks is not None:
            numbers[TO] = load.to
            if load.tasks.max() >= self.tasks:  # other tasks than the bundle's, behind the next stage
                numbers[TASK] = load.tasks
        places, at = load.places, batch.schema.get_field_index(ANCHOR)
        if (packed := _packed(batch)) is not None:
            places = Places(packed >> ORDINAL_BITS, (Hop(0, packed & (ORDINALS_MAX - 1)),))
        elif at >= 0 and batch.schema.field(at).type == PATHS_TYPE:
            places = alike(batch.column(at))
        if places is not None and len(places):
            if at >= 0:
                batch = batch.remove_column(at)
            first = int(places.roots.min())
            metadata = {_FIRST: str(first), _SUBSCRIPTIONS: ",".join(str(hop.key) for hop in places.hops)}
            numbers[ANCHOR] = places.roots - first
            numbers |= {_HOP.format(depth): hop.ordinals for depth, hop in enumerate(places.hops)}
        hidden: list[str] = []
        for name, each in numbers.items():
            if isinstance(each, int):
                metadata[_SAME + name.encode()] = str(each)
            else:
                batch = batch.append_column(name, _narrow(each))
                hidden.append(name)
        return batch.replace_schema_metadata(metadata), hidden

    def _keys(self, batch: pa.RecordBatch, first: int) -> U64:
        """Return a number for each row: a tuple's depends on it alone, so it goes the same way again."""
        keys: U64
        if self.fields:
            keys = value_keys(batch, self.fields)
        elif (packed := _packed(batch)) is not None:
            keys = packed.astype(np.uint64)
            mix64_in_place(keys)
        elif ANCHOR in batch.schema.names and not batch.column(ANCHOR).null_count:
            keys = value_keys(batch, [ANCHOR])
        else:
            return np.arange(first, first + batch.num_rows, dtype=np.uint64)
        return keys >> np.uint64(1)


def unbundled(bundles: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of bundles, at most `ROWS_MAX` at once."""
    for rows, places, *_ in unbundled_apart(bundles, schema):
        if places is None:
            yield rows
        else:
            columns = [places.column() if name == ANCHOR else rows.column(name) for name in schema.names]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def unbundled_apart(bundles: pa.RecordBatch, schema: pa.Schema) -> Iterator[PlacedRows]:
    """Yield the same; where anchors are paths that were split, without a column of them, but their places."""
    for task, each in zip(*bundles.select([TASK, BUNDLE]).columns, strict=True):
        written = pa.ipc.open_stream(each.as_buffer()).read_next_batch()
        places, fields = None, list(schema)
        if _FIRST in (written.schema.metadata or {}) and schema.field(ANCHOR).type == PATHS_TYPE:
            places, fields = _places(written), [field for field in schema if field.name != ANCHOR]
        rows = pa.RecordBatch.from_arrays(
            [_widened(written, field, task.as_py()) for field in fields], schema=pa.schema(fields)
        )
        for start in range(0, rows.num_rows, ROWS_MAX):
            some = None if places is None else places[start : start + ROWS_MAX]
            yield PlacedRows(rows.slice(start, ROWS_MAX), some)


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
    """Return packed anchors, if that is what the rows have."""
    place = batch.schema.get_field_index(ANCHOR)
    column = None if place < 0 else batch.column(place)
    if column is None or column.null_count or not pa.types.is_int64(column.type):
        return None
    return np.asarray(column, dtype=np.int64)


def _narrow(numbers: I64) -> pa.Array:
    return pa.array(numbers.astype(_fitting(int(numbers.view(np.uint64).max()) + 1)))  # below 0: whole


def _fitting(values: int) -> np.dtype[Any]:
    return next((each for each in _NARROW if values <= np.iinfo(each).max + 1), np.dtype(np.int64))


def _widened(written: pa.RecordBatch, field: pa.Field, task: int) -> pa.Array:
    """Build a column of the rows of a bundle for a task; of other streams than theirs it has nulls."""
    metadata = written.schema.metadata or {}
    if field.name == ANCHOR and _FIRST in metadata:
        return pa.array(_roots(written) << ORDINAL_BITS | _numbers(written, _HOP.format(0)))
    if field.name in written.schema.names:
        return _decoded(written.column(field.name), field.type)
    if _SAME + field.name.encode() in metadata:
        return pa.array(_numbers(written, field.name), field.type)
    if field.name == TASK:
        return pa.array(np.full(written.num_rows, task), field.type)
    return pa.nulls(written.num_rows, field.type)


def _numbers(written: pa.RecordBatch, name: str) -> I64:
    """Return a hidden column, whether it was written or is the same in every row."""
    found = _number_or_numbers(written, name)
    return np.full(written.num_rows, found) if isinstance(found, int) else found


def _number_or_numbers(written: pa.RecordBatch, name: str) -> Numbers:
    same = written.schema.metadata.get(_SAME + name.encode())
    return np.asarray(written.column(name)).astype(np.int64) if same is None else int(same)


def _roots(written: pa.RecordBatch) -> I64:
    return _numbers(written, ANCHOR) + int(written.schema.metadata[_FIRST])


def _places(written: pa.RecordBatch) -> Places:
    named = written.schema.metadata[_SUBSCRIPTIONS].decode()
    subscriptions = [int(each) for each in named.split(",") if each]
    ordinals = [_number_or_numbers(written, _HOP.format(depth)) for depth in range(len(subscriptions))]
    return Places(_roots(written), tuple(map(Hop, subscriptions, ordinals)))


def _decoded(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    if column.type == kind or not pa.types.is_struct(kind):
        return column.cast(kind)
    children = [_decoded(child, field.type) for child, field in zip(column.flatten(), kind, strict=True)]
    return pa.StructArray.from_arrays(children, fields=list(kind))


def _written(rows: pa.RecordBatch, hidden: Sequence[str]) -> pa.Buffer:
    """Write rows; of a hidden column that is the same in all of them, that number."""
    metadata = dict(rows.schema.metadata or {})
    for name in hidden:
        numbers = np.asarray(rows.column(name))
        if (numbers == numbers[0]).all():
            metadata[_SAME + name.encode()] = str(numbers[0]).encode()
            rows = rows.remove_column(rows.schema.get_field_index(name))
    rows = rows.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return sink.getvalue()
