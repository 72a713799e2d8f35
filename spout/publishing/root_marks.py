"""`RootMarks`: what happened to roots in a batch, as one table; pure.

A row says of one root that one thing happened to it. Of a root to which two things happened there
are two rows; of one that was simply acked there is none. So the table of most batches is empty::

    source  position  kind         value      cause
         7      1042  OPEN         an edge
         7      1042  TOUCHED
         7      1044  FAILED                  split, ValueError, "no words"

A task may not know where a root is. What it gets through a shuffle has only the root's index in
the batch's plan, and what comes from a keyed bolt only a number. The task writes these as positions
of two pseudo sources, `PLANNED` and `NUMBERED`. `spout.publishing.settle` resolves them before it
does anything else.

Source: docs/design/protocol.md, section 5.2 ("The ledger goes beside the data").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from acker.errors import TrackingError
from acker.hot_paths import xor_sums
from acker.identity import I64, U64, WIRE_BLOCK_BITS
from acker.root_sets.numbering import RootNumbers
from acker.root_sets.root_set import RootSet
from acker.root_sets.runs import is_first_row, rows_by_block, stretches_of_rows
from acker.wire.causes import Cause

I8 = npt.NDArray[np.int8]
I32 = npt.NDArray[np.int32]
RowChoice = npt.NDArray[np.bool_] | I64 | slice
"""Rows of a table: a flag for each, their numbers, or those from one to another."""

COMPRESSED_ROWS: Final = 1_000
"""Of more rows than these the bytes are compressed by LZ4, which takes 30 ns a row."""

PLANNED: Final = -1
"""The pseudo source of roots that are named by their indices in the batch's plan."""

NUMBERED: Final = -2
"""The pseudo source of roots that are named by numbers of a keyed bolt; see `RootMark.KEYED`."""

STEP_WIDTHS: Final = (np.int8, np.int16, np.int32, np.int64)
"""The types that differences of neighbouring numbers may have as bytes."""

FIRST_POSITION: Final = "first_position"
"""What the bytes call the position of the first row."""

NO_CAUSE: Final = -1
"""The number of the cause of what has none."""


class RootMark(IntEnum):
    """What can happen to a root in a batch. Its number is in a task's report, so none is used again.

    Attributes:
        OUTSTANDING: a delivery of it was not acked; the value is its edge. A task reports it only
            behind a keyed bolt, where it becomes RELEASED; of other tasks `settle` makes it.
        RELEASED: a tuple of it was acked that Spark's state had held; the value is its edge. Of a
            root of an earlier batch an outcome has one row, with the XOR of the edges.
        OPEN: the batch emitted it, and not all of it is acked; the value is what the batch XORs
            into its sum. Only an outcome has it.
        FAILED: a tuple of it failed, by the cause.
        TOUCHED: a bolt reset its timeout.
        HELD: Spark's state holds tuples of it.
        HELD_ON: a keyed bolt holds tuples of it on, and has reset its timeout.
        LATE: a watermark dropped a tuple of it.
        LEFT_OPEN: the cause's operator settled a tuple of it neither way that had been held; the
            value is its edge, so that no other row of the batch acks the tuple. Of what a keyed
            bolt emitted it is 0.
        FIRST_EMITTED: it is a copy; the value is when its record was emitted first, wall time, ms.
        TRACED: it belongs to a trace: three rows in succession have the three numbers of the trace.
        UNTRACKED: it is best effort: acked with the batch, whatever was done to it.
        PASSED: a call for several rows, one of them of this root, hung or ended its process by the
            cause, and passed when it came again, divided. It fails nothing; the value is the call's
            number in its task.
        HELD_TUPLE: the cause's operator handed a tuple of it to Spark's state; the value is its
            edge. If a watermark drops the tuple, the root fails where the cause's error is `LATE`;
            otherwise it is acked.
        HELD_UNTIL: when a watermark drops a tuple: at this event time, ms, or a later one. The
            first of these rows is of the tuple of the first `HELD_TUPLE`, the second of the second,
            and so on.
        KEYED: a keyed bolt emitted a tuple on it; the value is the number by which the bolts behind
            that one name it.
    """

    OUTSTANDING = 1
    RELEASED = 2
    FAILED = 3
    TOUCHED = 4
    HELD = 5
    HELD_ON = 6
    LATE = 7
    LEFT_OPEN = 8
    FIRST_EMITTED = 9
    TRACED = 10
    UNTRACKED = 11
    PASSED = 12
    KEYED = 13
    HELD_TUPLE = 14
    HELD_UNTIL = 15
    OPEN = 16

    @property
    def has_cause(self) -> bool:
        """Whether each mark of this kind has a cause; else none has."""
        match self:
            case RootMark.FAILED | RootMark.LEFT_OPEN | RootMark.PASSED | RootMark.HELD_TUPLE:
                return True
            case (
                RootMark.OUTSTANDING
                | RootMark.RELEASED
                | RootMark.OPEN
                | RootMark.TOUCHED
                | RootMark.HELD
                | RootMark.HELD_ON
                | RootMark.LATE
                | RootMark.FIRST_EMITTED
                | RootMark.TRACED
                | RootMark.UNTRACKED
                | RootMark.KEYED
                | RootMark.HELD_UNTIL
            ):
                return False
            case _:
                assert_never(self)

    @property
    def is_of_any_evaluation(self) -> bool:
        """Whether it holds whoever reports it, also a task whose report does not count
        (`settle`).
        """
        match self:
            case RootMark.FAILED | RootMark.OUTSTANDING | RootMark.LEFT_OPEN | RootMark.PASSED:
                return True
            case RootMark.KEYED:  # a number is of one root, whoever reports it
                return True
            case (
                RootMark.RELEASED
                | RootMark.OPEN
                | RootMark.TOUCHED
                | RootMark.HELD
                | RootMark.HELD_ON
                | RootMark.LATE
                | RootMark.FIRST_EMITTED
                | RootMark.TRACED
                | RootMark.UNTRACKED
                | RootMark.HELD_TUPLE
                | RootMark.HELD_UNTIL
            ):
                return False
            case _:
                assert_never(self)


def steps_of(numbers: I64) -> npt.NDArray[np.signedinteger]:
    """Return the difference of each number to the one before it, in the narrowest type that fits.

    The first one is 0: of 7, 8 and 10 they are 0, 1 and 2, in one byte each.
    """
    steps = np.diff(numbers, prepend=numbers[:1])
    low, high = (int(steps.min()), int(steps.max())) if len(steps) else (0, 0)
    for width in STEP_WIDTHS[:-1]:
        limits = np.iinfo(width)
        if limits.min <= low and high <= limits.max:
            return steps.astype(width)
    return steps


class MarkRow(NamedTuple):
    """One row, for whoever reads them one by one; the value is as the kind says, 0: it has none.

    Attributes:
        cause: None where the kind has none.
    """

    source: int
    position: int
    kind: RootMark
    value: int
    cause: Cause | None


def roots_of(source: int, positions: I64) -> tuple[I64, I64]:
    """Return roots of one source as `RootMarks` takes them: sources and positions, one for one."""
    return np.full(len(positions), source, np.int64), positions


@dataclass(frozen=True, slots=True, eq=False)
class RootMarks:
    """Marks of roots, in any order; the arrays are of one length, and nobody writes to them.

    Attributes:
        kinds: members of `RootMark`, as int8.
        values: 0 where the kind has none; edges are uint64, of which this has the bits.
        cause_numbers: which of `causes`, or `NO_CAUSE`.
        causes: each once; some may be of no row.
    """

    sources: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    positions: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    kinds: I8 = field(default_factory=lambda: np.empty(0, np.int8))
    values: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    cause_numbers: I32 = field(default_factory=lambda: np.empty(0, np.int32))
    causes: tuple[Cause, ...] = ()

    @classmethod
    def of_roots(
        cls,
        kind: RootMark,
        roots: tuple[I64, I64],
        values: I64 | U64 | None = None,
        cause: Cause | None = None,
    ) -> RootMarks:
        """Mark all of some roots with one kind, and with one cause if there is one.

        Args:
            roots: sources and positions, one for one.
            values: of each root, as the kind says; None: the kind has none.
        """
        sources, _ = roots
        if cause is None:
            causes: tuple[Cause, ...] = ()
            cause_numbers = np.full(len(sources), NO_CAUSE, np.int32)
        else:
            causes = (cause,)
            cause_numbers = np.zeros(len(sources), np.int32)
        return cls.of_causes(kind, roots, cause_numbers, causes, values)

    @classmethod
    def of_causes(
        cls,
        kind: RootMark,
        roots: tuple[I64, I64],
        cause_numbers: npt.NDArray[np.integer],
        causes: Sequence[Cause],
        values: I64 | U64 | None = None,
    ) -> RootMarks:
        """Mark roots with one kind, each with a cause of its own.

        Args:
            roots: sources and positions, one for one.
            cause_numbers: of each root, the index in `causes`, or `NO_CAUSE`.
            values: of each root, as the kind says; None: the kind has none.

        Raises `ValueError`: the arrays differ in length.
        """
        sources, positions = roots
        bits = np.zeros(len(sources), np.int64) if values is None else values.view(np.int64)
        if not len(sources) == len(positions) == len(bits) == len(cause_numbers):
            raise ValueError(
                f"{len(sources):,} sources, {len(positions):,} positions, {len(bits):,} values and"
                f" {len(cause_numbers):,} causes are not of the same roots"
            )
        kinds = np.full(len(sources), kind, np.int8)
        return cls(sources, positions, kinds, bits, cause_numbers.astype(np.int32), tuple(causes))

    @classmethod
    def of_failures(cls, source: int, failures: Iterable[tuple[int, Cause]]) -> RootMarks:
        """Mark roots of one source as failed, each a position with its cause."""
        numbers_by_cause: dict[Cause, int] = {}
        positions: list[int] = []
        cause_numbers: list[int] = []
        for position, cause in failures:
            positions.append(position)
            cause_numbers.append(numbers_by_cause.setdefault(cause, len(numbers_by_cause)))
        roots = roots_of(source, np.array(positions, np.int64))
        return cls.of_causes(
            RootMark.FAILED, roots, np.array(cause_numbers, np.int32), list(numbers_by_cause)
        )

    @classmethod
    def of_traces(cls, roots: tuple[I64, I64], ids: I64) -> RootMarks:
        """Mark roots with the traces that they belong to; `ids` is ``(n, 3)`` int64, of each root
        its trace.

        A root gets three rows, one for each number of its trace.
        """
        sources, positions = (np.repeat(column, 3) for column in roots)
        return cls.of_roots(RootMark.TRACED, (sources, positions), np.ascontiguousarray(ids).reshape(-1))

    @classmethod
    def together(cls, parts: Iterable[RootMarks]) -> RootMarks:
        """Put the rows of all parts behind each other; equal causes become one."""
        filled = [part for part in parts if part]
        if not filled:
            return NO_MARKS
        if len(filled) == 1:
            return filled[0]
        cause_numbers, causes = _causes_of_all(filled)
        return cls(
            np.concatenate([part.sources for part in filled]),
            np.concatenate([part.positions for part in filled]),
            np.concatenate([part.kinds for part in filled]),
            np.concatenate([part.values for part in filled]),
            cause_numbers,
            causes,
        )

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def edges(self) -> U64:
        """The values of rows whose kind has an edge."""
        return self.values.view(np.uint64)

    def at(self, rows: RowChoice) -> RootMarks:
        """Return some rows: those of a mask, those with some row numbers, or a slice."""
        return RootMarks(
            self.sources[rows],
            self.positions[rows],
            self.kinds[rows],
            self.values[rows],
            self.cause_numbers[rows],
            self.causes,
        )

    def of(self, *kinds: RootMark) -> RootMarks:
        """Return the rows whose kind is one of these."""
        if not len(self):
            return self
        # some comparisons of bytes take less time than one `np.isin`
        first_kind, *other_kinds = kinds
        is_of_kind = self.kinds == first_kind
        for kind in other_kinds:
            is_of_kind |= self.kinds == kind
        return self._chosen(is_of_kind)

    def _chosen(self, is_chosen: npt.NDArray[np.bool_]) -> RootMarks:
        """Return the rows of a mask; where they are neighbours, nothing is copied."""
        count = int(np.count_nonzero(is_chosen))
        if count == len(self):
            return self
        if not count:
            return NO_MARKS
        # a task writes one kind after the other, so the rows of a kind mostly are neighbours
        first = int(is_chosen.argmax())
        if is_chosen[first : first + count].all():
            return self.at(slice(first, first + count))
        return self.at(is_chosen)

    def divided(self, roots: RootSet) -> tuple[RootMarks, RootMarks]:
        """Return the rows whose roots are in a set, and the others."""
        is_inside = self.is_of(roots)
        return self._chosen(is_inside), self._chosen(~is_inside)

    def ascending(self) -> RootMarks:
        """Return the rows by source and position; rows of one root keep their order."""
        return self._ordered_by(self.positions)

    def _ordered_by(self, numbers: I64) -> RootMarks:
        """Return the rows by source, then by a number of each row; equal ones keep their order."""
        if len(self) < 2:
            return self
        higher_source = self.sources[1:] > self.sources[:-1]
        same_source = self.sources[1:] == self.sources[:-1]
        # mostly they are in order, and to see that takes less time than to sort them
        is_in_order = higher_source | (same_source & (numbers[1:] >= numbers[:-1]))
        return self if is_in_order.all() else self.at(np.lexsort((numbers, self.sources)))

    def by_block(self) -> dict[tuple[int, int], RootMarks]:
        """Return the rows of each wire block of 32,768 positions, by source and number of the block.

        Blocks ascend, and without rows they are missing; the rows of a block keep their order.
        """
        if not len(self):  # as of most kinds of marks in most batches
            return {}
        ordered = self._ordered_by(self.positions >> WIRE_BLOCK_BITS)
        rows_of_blocks = rows_by_block(ordered.sources, ordered.positions, WIRE_BLOCK_BITS)
        return {block: ordered.at(rows) for block, rows in rows_of_blocks.items()}

    def by_cause(self) -> list[tuple[Cause, RootMarks]]:
        """Return the rows of each cause, in the order of `causes`; a cause without rows is missing.

        The rows of one cause keep their order.
        """
        if not len(self):
            return []
        # one cause of all rows, as mostly of a block: nothing is sorted or copied
        if len(self.causes) == 1 and (self.cause_numbers == 0).all():
            return [(self.causes[0], self)]
        ordered = self.at(np.argsort(self.cause_numbers, kind="stable"))
        marks_by_cause: list[tuple[Cause, RootMarks]] = []
        for rows in stretches_of_rows(ordered.cause_numbers):
            number = int(ordered.cause_numbers[rows.start])
            if number != NO_CAUSE:
                marks_by_cause.append((self.causes[number], ordered.at(rows)))
        return marks_by_cause

    def used_causes(self) -> list[Cause]:
        """Return the causes that rows have, in the order of `causes`."""
        used_numbers = np.unique(self.cause_numbers).tolist()
        return [self.causes[number] for number in used_numbers if number != NO_CAUSE]

    def once(self) -> RootMarks:
        """Return each root once for each cause, ascending; of equal ones the first row."""
        return self._once_by(self.cause_numbers)

    def once_for_each_value(self) -> RootMarks:
        """Return each root once for each value, ascending; of equal ones the first row."""
        return self._once_by(self.values)

    def _once_by(self, numbers: I64 | I32) -> RootMarks:
        """Return each root once for each number of its rows, ascending; of equal rows the first."""
        if len(self) < 2:
            return self
        # sorted, equal rows are neighbours
        order = np.lexsort((numbers, self.positions, self.sources))
        is_first = is_first_row(self.sources[order], self.positions[order], numbers[order])
        return self.at(order[is_first])

    def once_for_each_root(self) -> RootMarks:
        """Return each root once, ascending, with the first of its rows."""
        ordered = self.ascending()
        return ordered._chosen(is_first_row(ordered.sources, ordered.positions))

    def summed(self, kind: RootMark) -> RootMarks:
        """Return one mark of a kind for each root, ascending; its value is the XOR of the root's edges.

        A root whose edges cancel has none.
        """
        if not len(self):  # as of most batches
            return self
        order = np.argsort(self.sources, kind="stable")
        sources, positions, edges = self.sources[order], self.positions[order], self.edges[order]
        parts: list[RootMarks] = []
        # by source, since positions alone are added up faster than pairs
        for rows in stretches_of_rows(sources):
            summed_positions, sums = xor_sums(positions[rows], edges[rows])
            roots = roots_of(int(sources[rows.start]), summed_positions)
            parts.append(RootMarks.of_roots(kind, roots, sums))
        return RootMarks.together(parts)

    def roots(self) -> RootSet:
        """Return all roots that have a mark."""
        return RootSet.of_positions(self.sources, self.positions)

    def within(self, roots: RootSet) -> RootMarks:
        """Return the rows whose roots are in a set."""
        return self._chosen(self.is_of(roots))

    def without(self, roots: RootSet) -> RootMarks:
        """Return the rows whose roots are not in a set."""
        if not roots or not len(self):
            return self
        return self._chosen(~self.is_of(roots))

    def with_values(self) -> RootMarks:
        """Return the rows whose value is not 0."""
        return self._chosen(self.values != 0)

    def is_of(self, roots: RootSet) -> npt.NDArray[np.bool_]:
        """Return for each row whether its root is in a set."""
        if not len(self):
            return np.zeros(0, np.bool_)
        return RootNumbers(roots).find_roots(self.sources, self.positions) >= 0

    def rows(self) -> list[MarkRow]:
        """Return the rows one by one."""
        columns = (self.sources, self.positions, self.kinds, self.values, self.cause_numbers)
        rows: list[MarkRow] = []
        for source, position, kind, value, number in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            cause = None if number == NO_CAUSE else self.causes[number]
            rows.append(MarkRow(source, position, RootMark(kind), value, cause))
        return rows

    def packed(self) -> bytes:
        """Return the table as a stream of Arrow's; no marks are no bytes."""
        if not len(self):
            return b""
        # 1. The columns. Positions mostly ascend: as narrow steps they take a third of the time and
        # hardly a byte.
        steps = pa.array(steps_of(self.positions))
        sources, kinds, values = map(pa.array, (self.sources, self.kinds, self.values))
        causes = pa.DictionaryArray.from_arrays(self._packed_cause_numbers(), _packed_causes(self.causes))
        columns = [sources, steps, kinds, values, causes]
        # 2. The bytes.
        schema = _schema(steps.type, {FIRST_POSITION: str(self.positions[0])})
        sink = pa.BufferOutputStream()
        compression = "lz4" if len(self) > COMPRESSED_ROWS else None
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_stream(sink, schema, options=options) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        return bytes(sink.getvalue())

    def _packed_cause_numbers(self) -> pa.Array:
        """Return the number of each row's cause as Arrow's array; null: it has no cause."""
        return pa.array(self.cause_numbers, mask=self.cause_numbers == NO_CAUSE)

    @classmethod
    def unpacked(cls, packed: bytes) -> RootMarks:
        """Read what `packed` returned. Raises `TrackingError`: the bytes are something else."""
        if not packed:
            return NO_MARKS
        try:
            # one batch, or unpacking raises `ValueError`
            [batch] = pa.ipc.open_stream(packed)
            batch.validate(full=True)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _unreadable(f"{type(error).__name__}: {error}") from error
        return _marks_of(batch)


def _causes_of_all(parts: Sequence[RootMarks]) -> tuple[I32, tuple[Cause, ...]]:
    """Return the numbers of the causes of all rows of some parts, and these causes, each once."""
    # parts of one table have its causes: their numbers stay, however many there are
    causes = parts[0].causes
    if all(part.causes is causes for part in parts):
        return np.concatenate([part.cause_numbers for part in parts]), causes
    # a part's causes get new numbers: 0, 1 of the first part, and 0, 2 of a second one whose
    # first cause is the same
    numbers_by_cause: dict[Cause, int] = {}
    cause_numbers: list[I32] = []
    for part in parts:
        renumbered = [numbers_by_cause.setdefault(cause, len(numbers_by_cause)) for cause in part.causes]
        # a row without a cause has the number -1, so that it takes the last one
        new_numbers = np.array([*renumbered, NO_CAUSE], np.int32)
        cause_numbers.append(new_numbers[part.cause_numbers])
    return np.concatenate(cause_numbers), tuple(numbers_by_cause)


def _packed_causes(causes: Sequence[Cause]) -> pa.StructArray:
    """Return causes as Arrow's array of three texts each."""
    texts = [
        pa.array([cause.operator for cause in causes], pa.string()),
        pa.array([cause.error for cause in causes], pa.string()),
        pa.array([cause.message for cause in causes], pa.string()),
    ]
    return pa.StructArray.from_arrays(texts, fields=list(_CAUSE_TYPE))


def _marks_of(batch: pa.RecordBatch) -> RootMarks:
    """Return the marks of a batch of Arrow's, as `RootMarks.packed` made it.

    Raises `TrackingError`: a column has what no mark has. So nothing behind it need check.
    """
    # 1. The columns.
    if not any(batch.schema.equals(schema) for schema in _SCHEMAS):
        raise _unreadable("its columns are others")
    try:
        first_position = np.int64((batch.schema.metadata or {})[FIRST_POSITION.encode()])
    except (LookupError, ValueError, OverflowError) as error:
        raise _unreadable("nothing says where its positions begin") from error
    *number_columns, causes = batch.columns
    if any(column.null_count for column in number_columns) or causes.dictionary.null_count:
        raise _unreadable("a number or a cause is missing")
    sources, steps, kinds, values = (np.asarray(column) for column in number_columns)
    positions = np.cumsum(steps, dtype=np.int64)
    positions += first_position
    # 2. The kinds.
    unknown_kinds = set(np.unique(kinds).tolist()) - {int(kind) for kind in RootMark}
    if unknown_kinds:
        raise _unreadable(f"{unknown_kinds} are no marks")
    # 3. The causes.
    cause_numbers = np.asarray(causes.indices.fill_null(NO_CAUSE), np.int32)
    kinds_with_cause = [kind for kind in RootMark if kind.has_cause]
    if ((cause_numbers == NO_CAUSE) & np.isin(kinds, kinds_with_cause)).any():
        raise _unreadable("a mark has no cause")
    texts = [causes.dictionary.field(part).to_pylist() for part in range(3)]
    if any(text is None for column in texts for text in column):
        raise _unreadable("a cause lacks a text")
    return RootMarks(sources, positions, kinds, values, cause_numbers, tuple(map(Cause, *texts)))


def _unreadable(why: str) -> TrackingError:
    return TrackingError(
        f"a task's marks cannot be read ({why}); install one version of Windhover on driver and executors"
    )


_CAUSE_TYPE: Final = pa.struct(
    [pa.field(name, pa.string(), nullable=False) for name in ("operator", "error", "message")]
)


def _schema(step_type: pa.DataType, metadata: dict[str, str] | None = None) -> pa.Schema:
    """Return the schema of packed marks.

    `step_type`: the type of a position's difference to the one before it.
    """
    return pa.schema(
        [
            ("source", pa.int64()),
            ("step", step_type),
            ("kind", pa.int8()),
            ("value", pa.int64()),
            ("cause", pa.dictionary(pa.int32(), _CAUSE_TYPE)),
        ],
        metadata=metadata,
    )


_SCHEMAS: Final = [_schema(pa.from_numpy_dtype(width)) for width in STEP_WIDTHS]

NO_MARKS: Final = RootMarks()
