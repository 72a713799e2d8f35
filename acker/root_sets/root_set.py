"""`RootSet`: these positions of these sources, as one value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import numpy as np

from acker.identity import ACKER_BLOCK_BITS, I64, WIRE_BLOCK_BITS, acker_partitions
from acker.root_sets.packing import packed_table, unpacked_table
from acker.root_sets.runs import (
    IN_BOTH,
    IN_FIRST_ALONE,
    PositionRun,
    SourceRun,
    canonical,
    cut_by_block,
    flaw_of_table,
    intersection_or_difference,
    order_flaw,
    rows_by_block,
    rows_within,
    table_of_positions,
    table_of_roots,
)


def _no_runs() -> I64:
    return np.empty((0, 3), np.int64)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RootSet:
    """A set of roots, which never changes; its cost is the number of its runs, not of its roots.

    >>> left = RootSet.of_runs([(7, 0, 10), (9, 5, 6)]) - RootSet.of_positions(7, np.array([4]))
    >>> left
    RootSet([(7, 0, 4), (7, 5, 10), (9, 5, 6)])
    >>> len(left), (7, 4) in left
    (10, False)

    Attributes:
        table: a row for each run: source, start, end; canonical, see `acker.root_sets.runs`. Nobody writes to
            it: others may hold it.
    """

    table: I64 = field(default_factory=_no_runs)

    def __post_init__(self) -> None:
        """Refuse with a `ValueError` an array that is no canonical table."""
        flaw = flaw_of_table(self.table) or order_flaw(self.table)
        if flaw:
            raise ValueError(f"{flaw}; RootSet.of_runs takes runs in any order")

    @classmethod
    def of_runs(cls, runs: Iterable[tuple[int, int, int]]) -> RootSet:
        """Return the set of the roots in runs (source, start, end), which may overlap, or be empty.

        They are in any order.

        Raises `ValueError`: a run ends before it starts, or has a negative number.
        """
        numbers = np.fromiter(chain.from_iterable(runs), np.int64)
        return cls.of_table(numbers.reshape(-1, 3)) if len(numbers) else NO_ROOTS

    @classmethod
    def of_table(cls, table: I64) -> RootSet:
        """Do as `of_runs` for runs that are the rows of an ``(n, 3)`` int64 array."""
        flaw = flaw_of_table(table)
        if flaw:
            raise ValueError(flaw)
        return _of_canonical(canonical(table))

    @classmethod
    def union_of(cls, sets: Iterable[RootSet]) -> RootSet:
        """Return the union of any number of sets, sorted once; `|` would sort them each time.

        >>> RootSet.union_of([RootSet.of_runs([(7, 5, 8)]), NO_ROOTS, RootSet.of_runs([(7, 0, 5)])])
        RootSet([(7, 0, 8)])
        """
        tables = [roots.table for roots in sets if roots]
        return _of_canonical(canonical(np.concatenate(tables))) if tables else NO_ROOTS

    @classmethod
    def of_positions(cls, sources: int | I64, positions: I64) -> RootSet:
        """Return a set of roots, in any order; a root may come twice.

        Args:
            sources: the source of all of them, or of each one, ``(n,)`` int64.
            positions: ``(n,)`` int64.

        Raises `ValueError`: the arrays differ in length, or a number is negative.
        """
        if not len(positions) and (isinstance(sources, int) or not len(sources)):
            return NO_ROOTS
        if isinstance(sources, int):
            table = table_of_positions(sources, positions)
        elif len(sources) == len(positions):
            table = table_of_roots(sources, positions)
        else:
            raise ValueError(f"{len(sources):,} sources are named for {len(positions):,} positions")
        flaw = flaw_of_table(table)
        if flaw:
            raise ValueError(flaw)
        return _of_canonical(table)

    @classmethod
    def of_parts(cls, parts: Iterable[tuple[int, I64]]) -> RootSet:
        """Do as `of_positions` for several arrays of positions, each with its source."""
        parts_by_source: dict[int, list[I64]] = {}
        for source, positions in parts:
            parts_by_source.setdefault(source, []).append(positions)
        # a sort of one source's positions takes half the time of one of (source, position)
        tables = [
            table_of_positions(source, arrays[0] if len(arrays) == 1 else np.concatenate(arrays))
            for source, arrays in parts_by_source.items()
        ]
        return cls.of_table(np.concatenate(tables)) if tables else NO_ROOTS

    @classmethod
    def unpacked(cls, packed: bytes) -> RootSet:
        """Read what `packed` returned. Raises `ValueError`: the bytes are something else."""
        return cls(unpacked_table(packed))

    def packed(self) -> bytes:
        """Return the set as bytes: 2 to 16 for each run, the fewer the closer runs are."""
        return packed_table(self.table)

    def __or__(self, other: RootSet) -> RootSet:
        if not self or not other:
            return self or other
        return _of_canonical(canonical(np.concatenate([self.table, other.table])))

    def __and__(self, other: RootSet) -> RootSet:
        if not self or not other:
            return NO_ROOTS
        return _of_canonical(intersection_or_difference(self.table, other.table, IN_BOTH))

    def __sub__(self, other: RootSet) -> RootSet:
        if not self or not other:
            return self
        return _of_canonical(intersection_or_difference(self.table, other.table, IN_FIRST_ALONE))

    def __len__(self) -> int:
        lengths = self.table[:, 2] - self.table[:, 1]
        # in two halves: together, whole sources may have more positions than an int64 can count
        return (int((lengths >> 32).sum()) << 32) + int((lengths & 0xFFFF_FFFF).sum())

    def __bool__(self) -> bool:
        return len(self.table) > 0

    def __contains__(self, root: tuple[int, int]) -> bool:
        source, position = root
        runs = self.table[self.rows_of_source(source)]
        nearest = int(np.searchsorted(runs[:, 1], position, side="right")) - 1
        return nearest >= 0 and position < int(runs[nearest, 2])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RootSet) and np.array_equal(self.table, other.table)

    def __hash__(self) -> int:
        return hash(self.table.tobytes())

    def runs(self) -> list[SourceRun]:
        """Return the runs, ascending; of one source none touches another."""
        # A set has no `__iter__`: `list` would ask its length, and make room for as many runs as
        # there are roots. `tuple.__new__` makes a named tuple in a third of the time.
        return list(map(partial(tuple.__new__, SourceRun), self.table.tolist()))

    def __repr__(self) -> str:
        return f"RootSet({[tuple(run) for run in self.runs()]})"

    def sources(self) -> list[int]:
        """Return the sources that have a root in the set, ascending."""
        return sorted(set(self.table[:, 0].tolist()))

    def runs_of_source(self, source: int) -> list[PositionRun]:
        """Return the runs of one source, ascending."""
        bounds = self.table[self.rows_of_source(source), 1:].tolist()
        return list(map(partial(tuple.__new__, PositionRun), bounds))

    def each_root(self) -> tuple[I64, I64]:
        """Return source and position of each root, ascending, ``(n,)`` int64 each: this costs them all."""
        lengths = self.table[:, 2] - self.table[:, 1]
        # of runs [10, 13) and [20, 22) the numbers 0 to 2 move by 10, and 3 to 4 by 17
        shifts = self.table[:, 1] - (np.cumsum(lengths) - lengths)
        return np.repeat(self.table[:, 0], lengths), np.arange(len(self)) + np.repeat(shifts, lengths)

    def rows_of_source(self, source: int) -> slice:
        """Return which rows of the table are of a source."""
        sources = self.table[:, 0]
        if not len(sources) or sources[0] == source == sources[-1]:  # as of what is cut by block
            return slice(None)
        return rows_within(sources, source, source + 1)

    def by_block(self) -> dict[tuple[int, int], RootSet]:
        """Return the roots of each wire block of 32,768 positions, by source and number of the block.

        Blocks without a root are missing; the others ascend. A run costs a row for each of its
        blocks.
        """
        parts, blocks = self._cut_by_wire_block()
        return {block: _of_canonical(parts[rows]) for block, rows in blocks.items()}

    def runs_by_block(self) -> dict[tuple[int, int], tuple[PositionRun, ...]]:
        """Do as `by_block`, and return the runs of each block, as an `Acks` has them."""
        parts, blocks = self._cut_by_wire_block()
        runs = list(map(partial(tuple.__new__, PositionRun), parts[:, 1:].tolist()))
        return {block: tuple(runs[rows]) for block, rows in blocks.items()}

    def _cut_by_wire_block(self) -> tuple[I64, dict[tuple[int, int], slice]]:
        """Cut the runs at the ends of blocks; return their parts, and which are of each block.

        The parts are rows (source, start, end). A block is (source, number of the block).
        """
        parts = cut_by_block(self.table, WIRE_BLOCK_BITS)
        return parts, rows_by_block(parts[:, 0], parts[:, 1], WIRE_BLOCK_BITS)

    def by_acker_partition(self, partitions: int) -> dict[int, RootSet]:
        """Return the roots that each of N acker partitions keeps, by number; those without any are missing.

        Positions of one block of 65,536 have one acker partition. So a run is cut at block borders,
        and costs a row for each of its blocks.
        """
        if not self:
            return {}
        rows = cut_by_block(self.table, ACKER_BLOCK_BITS)
        partition_of_rows = acker_partitions(rows[:, 0], rows[:, 1], partitions)
        if (partition_of_rows == partition_of_rows[0]).all():  # as of a few neighbouring roots
            return {int(partition_of_rows[0]): self}
        # sorted by acker partition, so that `split` may cut them where the next one begins
        order = np.argsort(partition_of_rows, kind="stable")
        numbers, first_rows = np.unique(partition_of_rows[order], return_index=True)
        rows_of_partitions = np.split(rows[order], first_rows[1:])
        # neighbouring blocks of one acker partition become one run again
        return {
            number: _of_canonical(canonical(rows_of_partition))
            for number, rows_of_partition in zip(numbers.tolist(), rows_of_partitions, strict=True)
        }


def _of_canonical(table: I64) -> RootSet:
    """Return a set of a table that is canonical already: it is not looked through again."""
    roots = object.__new__(RootSet)
    object.__setattr__(roots, "table", table)
    return roots


NO_ROOTS = RootSet()
