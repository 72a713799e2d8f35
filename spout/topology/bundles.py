"""Bundles: how rows pass from one stage to the next, where Spark shuffles between them and no more.

Spark shuffles row by row, and makes a row of its own of each on both sides. A bundle is one
such row for all rows of one kind that a batch has for one task: the task's number, and the rows
as a stream of Arrow. So ten thousand tuples cost as much as one. What Spark copies and
compresses is kept small: texts that repeat are written once, and hidden columns as narrow as
they are.

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
from spout.tuples.anchors import (
    ORDINAL_BITS,
    ORDINALS_MAX,
    PATHS_TYPE,
    Carry,
    Fingerprint,
    fingerprint_of,
)
from spout.tuples.columns import ANCHOR, BUNDLE, TASK, TO
from spout.tuples.places import Hop, Numbers, Places, uniform_places

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
"""In a bundle's metadata: the number that a hidden column has in every row, by the column's
name."""

_SUBSCRIPTIONS: Final = b"windhover.subscriptions"
"""In a bundle's metadata: of anchors that are paths, the key of each hop
(`spout.tuples.places.Hop`)."""

_SAMPLE: Final = 1_000
"""Values that are looked at to tell whether a column's values repeat."""

_RADIX_MAX: Final = 1 << 16
"""NumPy sorts numbers of so many values by their digits, in a tenth of the time."""

_NARROW: Final = (np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.uint32))


class PlacedRows(NamedTuple):
    """Rows that leave or reach a task together.

    Attributes:
        places: those of the rows, where they have no column of anchors.
        to: of rows that leave a stage of a topology, the number for the column ``_to``.
        tasks: of such rows, the numbers for the column ``_task``, `(n,) int64`; None: of a
            DataFrame.
    """

    rows: pa.RecordBatch
    places: Places | None = None
    to: int = 0
    tasks: I64 | None = None

    def take(self, rows: I64) -> PlacedRows:
        """Return some of the rows, by their numbers."""
        places = self.places and self.places.take(rows)
        return PlacedRows(self.rows.take(pa.array(rows)), places)

    def fingerprint(self, carry: Carry) -> Fingerprint:
        """Return the fingerprint; `carry`: the form of the column of anchors, if there is one."""
        if self.places is not None:
            return self.places.fingerprint()
        return fingerprint_of(carry, self.rows.column(ANCHOR))


@dataclass(frozen=True, slots=True)
class Bundling:
    """Which rows go to which of `tasks` tasks.

    Attributes:
        fields: rows with equal values of them go to one task; none: rows are spread evenly.
            Those of a stage of a topology name their tasks themselves.
    """

    tasks: int
    fields: tuple[str, ...] = ()
    bytes_max: int = BYTES_MAX

    def bundle(self, loads: Sequence[PlacedRows], rows_before: int = 0) -> pa.RecordBatch:
        """Return a bundle for each load and each task that rows of it go to.

        `rows_before`: how many rows the task has sent before. Raises `TupleError`: all have
        more than `bytes_max` bytes.
        """
        tasks: list[int] = []
        bundles: list[pa.Buffer] = []
        for load in loads:
            for task, bundle in self._bundles(load, rows_before):
                tasks.append(task)
                bundles.append(bundle)
            rows_before += load.rows.num_rows
        # as Arrow has a binary column: all bytes behind each other, and where each value
        # begins; of bundles of 10 and 30 bytes 0, 10 and 40
        offsets = np.cumsum([0, *(bundle.size for bundle in bundles)])
        if offsets[-1] > self.bytes_max:
            raise TupleError(
                f"{sum(load.rows.num_rows for load in loads):,} tuples that bolts emitted at"
                f" once have {offsets[-1]:,} bytes, and Spark takes {self.bytes_max:,} at most:"
                " emit smaller tuples, or fewer for one record"
            )
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(b"".join(bundles))]
        bundle_column = pa.BinaryArray.from_buffers(pa.binary(), len(bundles), buffers)
        return pa.RecordBatch.from_arrays([pa.array(tasks, pa.int32()), bundle_column], schema=BUNDLES)

    def _bundles(self, load: PlacedRows, rows_before: int) -> Iterator[tuple[int, pa.Buffer]]:
        """Yield a load's rows for each task that gets some, as a stream of Arrow."""
        batch = self.coded(load.rows)
        keys = self._keys(batch, rows_before) if load.tasks is None else load.tasks.view(np.uint64)
        tasks = modulo(keys, self.tasks)
        # rows of one task together, in the order in which they were
        sort_keys = tasks.astype(np.uint16) if self.tasks <= _RADIX_MAX else tasks
        order = np.argsort(sort_keys, kind="stable")
        counts = np.bincount(tasks, minlength=self.tasks)
        starts = np.cumsum(counts) - counts
        rows, hidden = self._narrowed(batch, load)
        rows = rows.take(pa.array(order))
        for task in np.flatnonzero(counts).tolist():
            yield task, _written(rows.slice(starts[task], counts[task]), hidden)

    def coded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Write texts as numbers of a list where they repeat so that the lists of all tasks are shorter."""
        for index, name in enumerate(batch.schema.names):
            column = batch.column(index)
            kind = column.type
            if pa.types.is_struct(kind) and kind.num_fields and not column.null_count:
                fields = [field.name for field in kind]
                children = [_coded(child, self.tasks) for child in column.flatten()]
                coded_column = pa.StructArray.from_arrays(children, fields)
            else:
                coded_column = _coded(column, self.tasks)
            batch = batch.set_column(index, name, coded_column)
        return batch

    def _narrowed(self, batch: pa.RecordBatch, load: PlacedRows) -> tuple[pa.RecordBatch, list[str]]:
        """Add hidden columns, which are named, as narrow as they are.

        Anchors as index and ordinals.
        """
        numbers_by_column: dict[str, Numbers] = {}
        metadata: dict[bytes, str] = {}
        if load.tasks is not None:
            numbers_by_column[TO] = load.to
            if load.tasks.max() >= self.tasks:  # other tasks than the bundle's, behind the next stage
                numbers_by_column[TASK] = load.tasks
        places = load.places
        anchor_index = batch.schema.get_field_index(ANCHOR)
        packed = _packed(batch)
        if packed is not None:
            places = Places(packed >> ORDINAL_BITS, (Hop(0, packed & (ORDINALS_MAX - 1)),))
        elif anchor_index >= 0 and batch.schema.field(anchor_index).type == PATHS_TYPE:
            places = uniform_places(batch.column(anchor_index))
        if places is not None and len(places):
            if anchor_index >= 0:
                batch = batch.remove_column(anchor_index)
            # indices of a batch are near each other: with 70,000 as the first, 70,003 is
            # written as 3
            first_root = int(places.roots.min())
            metadata[_FIRST] = str(first_root)
            metadata[_SUBSCRIPTIONS] = ",".join(str(hop.key) for hop in places.hops)
            numbers_by_column[ANCHOR] = places.roots - first_root
            for depth, hop in enumerate(places.hops):
                numbers_by_column[_HOP.format(depth)] = hop.ordinals
        hidden: list[str] = []
        for name, numbers in numbers_by_column.items():
            if isinstance(numbers, int):
                metadata[_SAME + name.encode()] = str(numbers)
            else:
                batch = batch.append_column(name, _narrow(numbers))
                hidden.append(name)
        return batch.replace_schema_metadata(metadata), hidden

    def _keys(self, batch: pa.RecordBatch, rows_before: int) -> U64:
        """Return a number for each row: a tuple's depends on it alone, so it goes the same way again."""
        packed = None if self.fields else _packed(batch)
        keys: U64
        if self.fields:
            keys = value_keys(batch, self.fields)
        elif packed is not None:
            keys = packed.astype(np.uint64)
            mix64_in_place(keys)
        elif ANCHOR in batch.schema.names and not batch.column(ANCHOR).null_count:
            keys = value_keys(batch, [ANCHOR])
        else:
            # nothing is tracked: by turns
            return np.arange(rows_before, rows_before + batch.num_rows, dtype=np.uint64)
        return keys >> np.uint64(1)


def unbundled(bundles: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of bundles, at most `ROWS_MAX` at once."""
    for rows, places, *_ in unbundled_apart(bundles, schema):
        if places is None:
            yield rows
            continue
        columns_by_name = dict(zip(rows.schema.names, rows.columns, strict=True))
        columns_by_name[ANCHOR] = places.column()
        columns = [columns_by_name[name] for name in schema.names]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def unbundled_apart(bundles: pa.RecordBatch, schema: pa.Schema) -> Iterator[PlacedRows]:
    """Yield the rows of bundles as `unbundled` does.

    Anchors that are paths become places beside the rows. That is where the bundle has them as
    index and ordinals; other paths stay a column.
    """
    for task, bundle in zip(*bundles.select([TASK, BUNDLE]).columns, strict=True):
        written = pa.ipc.open_stream(bundle.as_buffer()).read_next_batch()
        places: Places | None = None
        fields = list(schema)
        has_places = _FIRST in (written.schema.metadata or {})
        if has_places and schema.field(ANCHOR).type == PATHS_TYPE:
            places = _places(written)
            fields = [field for field in schema if field.name != ANCHOR]
        columns = [_widened(written, field, task.as_py()) for field in fields]
        rows = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
        for start in range(0, rows.num_rows, ROWS_MAX):
            places_of_rows = None if places is None else places[start : start + ROWS_MAX]
            yield PlacedRows(rows.slice(start, ROWS_MAX), places_of_rows)


def _coded(column: pa.Array, tasks: int) -> pa.Array:
    """Return a text column with each value once, if a list of them for each task is half as long as it."""
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        return column
    rows = len(column)
    sample = column.slice(0, _SAMPLE)
    repeated = len(sample) - len(sample.unique())
    # Of V equally frequent values n rows have about n * n / 2V that occurred before. So V is
    # about n * n / (2 * repeated): with 1,000 rows and 100 repeated ones, 5,000. The list of V
    # for each task is to be at most half as long as the column.
    if not repeated or len(sample) * len(sample) * tasks > rows * repeated:
        return column
    encoded = column.dictionary_encode()
    values = len(encoded.dictionary)
    if 2 * values * tasks > rows:
        return column
    indices = encoded.indices.cast(pa.from_numpy_dtype(_fitting(values + 1)))  # null is one more
    return pa.DictionaryArray.from_arrays(indices, encoded.dictionary)


def _packed(batch: pa.RecordBatch) -> I64 | None:
    """Return the column of packed anchors; None: the rows have none, or anchors of another form."""
    index = batch.schema.get_field_index(ANCHOR)
    if index < 0:
        return None
    column = batch.column(index)
    if column.null_count or not pa.types.is_int64(column.type):
        return None
    return np.asarray(column, dtype=np.int64)


def _narrow(numbers: I64) -> pa.Array:
    """Return numbers in the narrowest type that holds them; one below 0 needs all 64 bits."""
    # as unsigned numbers those below 0 are the highest
    highest = int(numbers.view(np.uint64).max())
    return pa.array(numbers.astype(_fitting(highest + 1)))


def _fitting(values: int) -> np.dtype[Any]:
    """Return the narrowest type that tells so many values apart, from 0."""
    for narrow_type in _NARROW:
        if values <= np.iinfo(narrow_type).max + 1:
            return narrow_type
    return np.dtype(np.int64)


def _widened(written: pa.RecordBatch, field: pa.Field, task: int) -> pa.Array:
    """Return a column of the rows of a bundle for a task.

    Of other streams than theirs it has nulls.
    """
    metadata = written.schema.metadata or {}
    if field.name == ANCHOR and _FIRST in metadata:
        ordinals = _numbers(written, _HOP.format(0))
        return pa.array(_roots(written) << ORDINAL_BITS | ordinals)
    if field.name in written.schema.names:
        return _decoded(written.column(field.name), field.type)
    if _SAME + field.name.encode() in metadata:
        return pa.array(_numbers(written, field.name), field.type)
    if field.name == TASK:
        # not written where it is the bundle's own
        return pa.array(np.full(written.num_rows, task), field.type)
    return pa.nulls(written.num_rows, field.type)


def _numbers(written: pa.RecordBatch, name: str) -> I64:
    """Return a hidden column, whether it was written or is the same in every row."""
    numbers = _number_or_numbers(written, name)
    return np.full(written.num_rows, numbers) if isinstance(numbers, int) else numbers


def _number_or_numbers(written: pa.RecordBatch, name: str) -> Numbers:
    """Return a hidden column; one number where it is the same in every row."""
    same_number = written.schema.metadata.get(_SAME + name.encode())
    if same_number is not None:
        return int(same_number)
    return np.asarray(written.column(name)).astype(np.int64)


def _roots(written: pa.RecordBatch) -> I64:
    """Return the index of each row's root."""
    return _numbers(written, ANCHOR) + int(written.schema.metadata[_FIRST])


def _places(written: pa.RecordBatch) -> Places:
    """Return the places of the rows of a bundle that has them as index and ordinals."""
    keys = written.schema.metadata[_SUBSCRIPTIONS].decode()
    subscriptions = [int(key) for key in keys.split(",") if key]
    ordinals = [_number_or_numbers(written, _HOP.format(depth)) for depth in range(len(subscriptions))]
    return Places(_roots(written), tuple(map(Hop, subscriptions, ordinals)))


def _decoded(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column as the type that it had before `Bundling.coded` and `_narrow`."""
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    if column.type == kind or not pa.types.is_struct(kind):
        return column.cast(kind)
    children = [_decoded(child, field.type) for child, field in zip(column.flatten(), kind, strict=True)]
    return pa.StructArray.from_arrays(children, fields=list(kind))


def _written(rows: pa.RecordBatch, hidden: Sequence[str]) -> pa.Buffer:
    """Return rows as a stream of Arrow.

    A hidden column with one number in all rows is written as that.
    """
    metadata = dict(rows.schema.metadata or {})
    for name in hidden:
        numbers = np.asarray(rows.column(name))
        if (numbers == numbers[0]).all():
            metadata[_SAME + name.encode()] = str(numbers[0]).encode()
            rows = rows.remove_column(rows.schema.get_field_index(name))
    rows = rows.replace_schema_metadata(metadata)
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, rows.schema) as stream:
        stream.write_batch(rows)
    return buffer.getvalue()
