"""Bundles: how rows pass from one stage to the next, where Spark shuffles between them and no more.

Spark shuffles row by row, and makes a row of its own of each on both sides. A bundle is one
such row for all rows of one kind that a batch has for one task: the task's number, and the rows
as a stream of Arrow. So ten thousand tuples cost as much as one. What Spark copies and
compresses is kept small: texts that repeat are written once, and hidden columns as narrow as
they are.

A row's *place* in its trees is its root and the *hops* from there to the row. A hop has a
*subscription*, one bolt's receiving of one stream, and an *ordinal*: the number of the row among
those that its parent had for that subscription (`spout.tuples.places`).

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
    AnchorForm,
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

# In a bundle a row's place is kept as numbers, in hidden columns: `_windhover` has the index of its
# root in the batch, `_windhover_0` its ordinal at the first hop, `_windhover_1` the one at the
# second hop, and so on. The bundle's metadata has the subscriptions of the hops.

_HOP_COLUMN: Final = ANCHOR + "_{}"
"""The hidden column with the ordinals of a hop; in the brackets the hop's number, from 0."""

_FIRST_ROOT: Final = b"windhover.first"
"""In a bundle's metadata: the lowest index of a root; the column of roots counts from there."""

_SAME_NUMBER: Final = b"windhover.same."
"""In a bundle's metadata, before the name of a hidden column: the number that all rows have.

The column itself is left out then.
"""

_SUBSCRIPTIONS: Final = b"windhover.subscriptions"
"""In a bundle's metadata: the keys of the hops' subscriptions, separated by commas."""

_SAMPLE_ROWS: Final = 1_000
"""So many values of a column show whether its values repeat."""

_RADIX_TASKS_MAX: Final = 1 << 16
"""NumPy sorts numbers of 16 bits by their digits, in a tenth of the time."""

_NARROW_TYPES: Final = (np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.uint32))


class PlacedRows(NamedTuple):
    """Rows that leave or reach a task together, and their places in their trees.

    Attributes:
        places: None: the rows have them in a column of anchors, or are not tracked.
        to: of rows that leave a stage of a topology, the number of who gets them, for the column
            ``_to``.
        tasks: of such rows, the task to which each goes, for the column ``_task``, `(n,) int64`;
            None: the rows are of a DataFrame.
    """

    rows: pa.RecordBatch
    places: Places | None = None
    to: int = 0
    tasks: I64 | None = None

    def take(self, rows: I64) -> PlacedRows:
        """Return some of the rows, by their numbers; for rows that have reached their task."""
        places = None if self.places is None else self.places.take(rows)
        return PlacedRows(self.rows.take(pa.array(rows)), places)

    def fingerprint(self, form: AnchorForm) -> Fingerprint:
        """Return a checksum of the rows' anchors, which does not depend on the order of the rows.

        `form`: of the column of anchors, if the rows have one.
        """
        if self.places is not None:
            return self.places.fingerprint()
        return fingerprint_of(form, self.rows.column(ANCHOR))


@dataclass(frozen=True, slots=True)
class Bundling:
    """Which rows go to which of `tasks` tasks.

    Attributes:
        fields: rows with equal values of them go to one task; none: rows are spread evenly. They
            are not used where rows name their tasks (`PlacedRows.tasks`).
        bytes_max: how many bytes all bundles of a batch may have together.
    """

    tasks: int
    fields: tuple[str, ...] = ()
    bytes_max: int = BYTES_MAX

    def bundle(self, placed_batches: Sequence[PlacedRows], rows_before: int = 0) -> pa.RecordBatch:
        """Return bundles, one for each batch of rows and each task that gets rows of it.

        `rows_before`: how many rows this task has sent before. Raises `TupleError`: all bundles
        together have more than `bytes_max` bytes.
        """
        # 1. the bundles, and to which task each goes
        tasks: list[int] = []
        bundles: list[pa.Buffer] = []
        row_count = 0
        for placed in placed_batches:
            for task, bundle in self._bundles(placed, rows_before + row_count):
                tasks.append(task)
                bundles.append(bundle)
            row_count += placed.rows.num_rows
        # 2. as Arrow has a binary column: all bytes behind each other, and where each value
        # begins; of bundles of 10 and 30 bytes 0, 10 and 40
        offsets = np.cumsum([0, *(bundle.size for bundle in bundles)])
        if offsets[-1] > self.bytes_max:
            raise TupleError(
                f"{row_count:,} tuples that bolts emitted at"
                f" once have {offsets[-1]:,} bytes, and Spark takes {self.bytes_max:,} at most:"
                " emit smaller tuples, or fewer for one record"
            )
        no_nulls = None  # in the place of the bitmap of nulls
        buffers = [no_nulls, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(b"".join(bundles))]
        bundle_column = pa.BinaryArray.from_buffers(pa.binary(), len(bundles), buffers)
        task_column = pa.array(tasks, pa.int32())
        return pa.RecordBatch.from_arrays([task_column, bundle_column], schema=BUNDLES)

    def _bundles(self, placed: PlacedRows, rows_before: int) -> Iterator[tuple[int, pa.Buffer]]:
        """Yield each task that gets some of the rows, and these as a stream of Arrow.

        `rows_before` is how many rows this task has sent before.
        """
        batch = self.dictionary_encoded(placed.rows)
        if placed.tasks is None:
            keys = self._routing_keys(batch, rows_before)
        else:
            keys = placed.tasks.view(np.uint64)
        # a later stage may have more tasks than the next one, where its rows only pass through
        tasks = modulo(keys, self.tasks)
        # rows of one task together, in the order in which they were
        sort_keys = tasks.astype(np.uint16) if self.tasks <= _RADIX_TASKS_MAX else tasks
        order = np.argsort(sort_keys, kind="stable")
        # of tasks that get 2, 0 and 3 rows the first rows are 0, 2 and 2
        counts = np.bincount(tasks, minlength=self.tasks)
        starts = np.cumsum(counts) - counts
        rows, hidden_names = self._with_hidden_columns(batch, placed)
        rows = rows.take(pa.array(order))
        for task in np.flatnonzero(counts).tolist():
            yield task, _arrow_stream_of(rows.slice(starts[task], counts[task]), hidden_names)

    def dictionary_encoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with texts as a dictionary and indices, in each column where that is shorter.

        Each task gets a dictionary of its own, so that the texts must repeat often enough. A struct
        without nulls is encoded field by field.
        """
        for index, name in enumerate(batch.schema.names):
            column = batch.column(index)
            column_type = column.type
            if pa.types.is_struct(column_type) and column_type.num_fields and not column.null_count:
                fields = [field.name for field in column_type]
                children = [_dictionary_encoded(child, self.tasks) for child in column.flatten()]
                encoded_column = pa.StructArray.from_arrays(children, fields)
            else:
                encoded_column = _dictionary_encoded(column, self.tasks)
            batch = batch.set_column(index, name, encoded_column)
        return batch

    def _with_hidden_columns(
        self, batch: pa.RecordBatch, placed: PlacedRows
    ) -> tuple[pa.RecordBatch, list[str]]:
        """Return the rows with hidden columns, and the names of these.

        Hidden columns tell where a row goes, and its place. A column of anchors is replaced by
        them if all rows have the same hops; else it stays. `batch` has the rows of `placed`,
        encoded. Each hidden column has the narrowest type that holds its numbers.
        """
        numbers_by_column: dict[str, Numbers] = {}
        metadata: dict[bytes, str] = {}
        # 1. where the rows go
        if placed.tasks is not None:
            numbers_by_column[TO] = placed.to
            # behind the next stage rows may go to more tasks than the next stage has; there the
            # task of the bundle does not tell the row's
            if placed.tasks.max() >= self.tasks:
                numbers_by_column[TASK] = placed.tasks
        # 2. their places
        places = placed.places
        if places is None:
            places = _places_in_column(batch)
        if places is not None and len(places):
            anchor_index = batch.schema.get_field_index(ANCHOR)
            if anchor_index >= 0:
                batch = batch.remove_column(anchor_index)
            # indices of a batch are near each other: with 70,000 as the first, 70,003 is
            # written as 3
            first_root = int(places.roots.min())
            metadata[_FIRST_ROOT] = str(first_root)
            metadata[_SUBSCRIPTIONS] = ",".join(str(hop.key) for hop in places.hops)
            numbers_by_column[ANCHOR] = places.roots - first_root
            for hop_number, hop in enumerate(places.hops):
                numbers_by_column[_HOP_COLUMN.format(hop_number)] = hop.ordinals
        # 3. a number that all rows have goes into the metadata, others into a column
        hidden_names: list[str] = []
        for name, numbers in numbers_by_column.items():
            if isinstance(numbers, int):
                metadata[_SAME_NUMBER + name.encode()] = str(numbers)
            else:
                batch = batch.append_column(name, _narrowed(numbers))
                hidden_names.append(name)
        return batch.replace_schema_metadata(metadata), hidden_names

    def _routing_keys(self, batch: pa.RecordBatch, rows_before: int) -> U64:
        """Return for each row the number whose remainder is its task.

        A tuple's number depends on the tuple alone, so that it goes to the same task again if this
        one is run again. Rows that are not tracked have nothing of that kind; they are numbered.
        """
        packed = None if self.fields else _packed_anchors(batch)  # None also if there are none
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
        # without their lowest bit, as every version has sent them: with another number a tuple
        # would go to another task if a batch runs again under a newer version
        return keys >> np.uint64(1)


def unbundled(bundles: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of bundles, at most `ROWS_MAX` at once.

    They have the columns of `schema`, so those that are tracked have a column of anchors.
    """
    for placed in unbundled_with_places(bundles, schema):
        if placed.places is None:
            yield placed.rows
            continue
        # its places become the column of anchors again
        column_by_name = dict(zip(placed.rows.schema.names, placed.rows.columns, strict=True))
        column_by_name[ANCHOR] = placed.places.column()
        columns = [column_by_name[name] for name in schema.names]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def unbundled_with_places(bundles: pa.RecordBatch, schema: pa.Schema) -> Iterator[PlacedRows]:
    """Yield the rows of bundles, at most `ROWS_MAX` at once, with their places in their trees.

    They have the columns of `schema`. Rows of a bundle without hidden columns of places keep their
    column of anchors, and have no places beside them (None).
    """
    task_column, bundle_column = bundles.select([TASK, BUNDLE]).columns
    for task, bundle in zip(task_column, bundle_column, strict=True):
        bundled = pa.ipc.open_stream(bundle.as_buffer()).read_next_batch()
        places: Places | None = None  # None: the rows have a column of anchors, or are not tracked
        fields = list(schema)
        has_places = _FIRST_ROOT in (bundled.schema.metadata or {})
        # packed anchors become a column again
        if has_places and schema.field(ANCHOR).type == PATHS_TYPE:
            places = _places_of_bundle(bundled)
            fields = [field for field in schema if field.name != ANCHOR]
        columns = [_unbundled_column(bundled, field, task.as_py()) for field in fields]
        rows = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
        for start in range(0, rows.num_rows, ROWS_MAX):
            places_of_rows = None if places is None else places[start : start + ROWS_MAX]
            yield PlacedRows(rows.slice(start, ROWS_MAX), places_of_rows)


def _dictionary_encoded(column: pa.Array, tasks: int) -> pa.Array:
    """Return a column of texts as a dictionary of its values, and an index for each row.

    That is if the dictionaries of all tasks together are at most half as long as the column; any
    other column is returned as it is.
    """
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        return column
    row_count = len(column)
    # 1. guess from a sample, which is cheaper than to encode the column
    sample = column.slice(0, _SAMPLE_ROWS)
    repeated_count = len(sample) - len(sample.unique())
    # Of V equally frequent values n rows have about n * n / 2V that occurred before. So V is
    # about n * n / (2 * repeated): with 1,000 rows and 100 repeated ones, 5,000. The list of V
    # for each task is to be at most half as long as the column.
    if not repeated_count or len(sample) * len(sample) * tasks > row_count * repeated_count:
        return column
    # 2. count
    encoded = column.dictionary_encode()
    value_count = len(encoded.dictionary)
    if 2 * value_count * tasks > row_count:
        return column
    # the index of a null is one more
    index_type = pa.from_numpy_dtype(_narrowest_type(value_count + 1))
    return pa.DictionaryArray.from_arrays(encoded.indices.cast(index_type), encoded.dictionary)


def _places_in_column(batch: pa.RecordBatch) -> Places | None:
    """Return the places that rows have in their column of anchors.

    None: there is no such column; or the rows have different numbers of anchors or hops, so that
    the
    column stays.
    """
    packed = _packed_anchors(batch)
    if packed is not None:
        # a packed anchor is the root's index, then `ORDINAL_BITS` bits of the ordinal. It has one
        # hop,
        # without the key of its subscription (0)
        ordinals = packed & (ORDINALS_MAX - 1)
        return Places(packed >> ORDINAL_BITS, (Hop(0, ordinals),))
    anchor_index = batch.schema.get_field_index(ANCHOR)
    if anchor_index >= 0 and batch.schema.field(anchor_index).type == PATHS_TYPE:
        return uniform_places(batch.column(anchor_index))
    return None


def _packed_anchors(batch: pa.RecordBatch) -> I64 | None:
    """Return the column of packed anchors (`AnchorForm.PACKED`).

    None: there is no such column, it has another form, or a row has no anchor (nothing is tracked).
    """
    index = batch.schema.get_field_index(ANCHOR)
    if index < 0:
        return None
    column = batch.column(index)
    if column.null_count or not pa.types.is_int64(column.type):
        return None
    return np.asarray(column, dtype=np.int64)


def _narrowed(numbers: I64) -> pa.Array:
    """Return numbers in the narrowest type that holds them; one below 0 needs all 64 bits."""
    # as unsigned numbers those below 0 are the highest
    highest = int(numbers.view(np.uint64).max())
    return pa.array(numbers.astype(_narrowest_type(highest + 1)))


def _narrowest_type(values: int) -> np.dtype[Any]:
    """Return the narrowest type that tells so many values apart, from 0."""
    for narrow_type in _NARROW_TYPES:
        if values <= np.iinfo(narrow_type).max + 1:
            return narrow_type
    return np.dtype(np.int64)


def _unbundled_column(bundled: pa.RecordBatch, field: pa.Field, task: int) -> pa.Array:
    """Return a column of a bundle's rows as it was before `Bundling.bundle`.

    `task`: the one that the bundle goes to.
    """
    metadata = bundled.schema.metadata or {}
    # 1. packed anchors, from the hidden columns of root and ordinal; other anchors are no column
    # of `field` any more where a bundle has places
    if field.name == ANCHOR and _FIRST_ROOT in metadata:
        ordinals = _hidden_numbers(bundled, _HOP_COLUMN.format(0))
        return pa.array(_root_indices(bundled) << ORDINAL_BITS | ordinals)
    # 2. a column of the bundle
    if field.name in bundled.schema.names:
        return _with_type(bundled.column(field.name), field.type)
    # 3. a number that all rows have
    if _SAME_NUMBER + field.name.encode() in metadata:
        return pa.array(_hidden_numbers(bundled, field.name), field.type)
    # 4. the rows' task, where it is the bundle's
    if field.name == TASK:
        return pa.array(np.full(bundled.num_rows, task), field.type)
    # 5. the struct of another stream
    return pa.nulls(bundled.num_rows, field.type)


def _hidden_numbers(bundled: pa.RecordBatch, name: str) -> I64:
    """Return the number of each row in a hidden column, `(n,) int64`."""
    numbers = _hidden_number_or_numbers(bundled, name)
    return np.full(bundled.num_rows, numbers) if isinstance(numbers, int) else numbers


def _hidden_number_or_numbers(bundled: pa.RecordBatch, name: str) -> Numbers:
    """Return the numbers of a hidden column; a single one if it is the same in every row."""
    same_number = bundled.schema.metadata.get(_SAME_NUMBER + name.encode())
    if same_number is not None:
        return int(same_number)
    return np.asarray(bundled.column(name)).astype(np.int64)


def _root_indices(bundled: pa.RecordBatch) -> I64:
    """Return the index of each row's root in the batch."""
    return _hidden_numbers(bundled, ANCHOR) + int(bundled.schema.metadata[_FIRST_ROOT])


def _places_of_bundle(bundled: pa.RecordBatch) -> Places:
    """Return the places of a bundle's rows in their trees: the root of each, and the hops from
    there.

    A hop is one subscription over which all of the rows came, with an ordinal for each row. Its
    ordinals are in a hidden column, the key of its subscription is in the metadata.
    """
    subscriptions_text = bundled.schema.metadata[_SUBSCRIPTIONS].decode()
    subscription_keys = [int(key) for key in subscriptions_text.split(",") if key]
    hops: list[Hop] = []
    for hop_number, subscription_key in enumerate(subscription_keys):
        ordinals = _hidden_number_or_numbers(bundled, _HOP_COLUMN.format(hop_number))
        hops.append(Hop(subscription_key, ordinals))
    return Places(_root_indices(bundled), tuple(hops))


def _with_type(column: pa.Array, original_type: pa.DataType) -> pa.Array:
    """Return a column in its type before `Bundling.dictionary_encoded` and `_narrowed`."""
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    if column.type == original_type or not pa.types.is_struct(original_type):
        return column.cast(original_type)
    children: list[pa.Array] = []
    for child, field in zip(column.flatten(), original_type, strict=True):
        children.append(_with_type(child, field.type))
    return pa.StructArray.from_arrays(children, fields=list(original_type))


def _arrow_stream_of(rows: pa.RecordBatch, hidden_names: Sequence[str]) -> pa.Buffer:
    """Return rows, at least one, as the bytes of an Arrow stream.

    If all rows have the same number in a hidden column, the column is left out, and the metadata
    has
    the number. `hidden_names`: of the hidden columns.
    """
    metadata = dict(rows.schema.metadata or {})
    for name in hidden_names:
        numbers = np.asarray(rows.column(name))
        if (numbers == numbers[0]).all():
            metadata[_SAME_NUMBER + name.encode()] = str(numbers[0]).encode()
            rows = rows.remove_column(rows.schema.get_field_index(name))
    rows = rows.replace_schema_metadata(metadata)
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, rows.schema) as stream:
        stream.write_batch(rows)
    return buffer.getvalue()
