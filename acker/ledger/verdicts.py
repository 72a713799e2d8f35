"""Collects the verdicts of a step and writes them in one canonical form: runs merged, everything
ascending.

Lost roots are ordered by verdict (FAILED, TIMED_OUT, ABANDONED), then by emission time, source and
position. So a reader gets the oldest of each verdict first.

Source: docs/design/protocol.md, rules 2 and 9, section 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np

from acker.hot_paths import Indices, as_array
from acker.identity import I64, is_replay
from acker.ledger.cohort import InitEmission
from acker.root_sets.root_set import RootSet
from acker.wire.causes import Cause
from acker.wire.events import Lost, SourceRun, Verdicts, pack_positions
from acker.wire.verdict import LOST_VERDICTS, LostVerdict

RUN_BYTES: Final = 24
"""Size of a run on the wire, at most: 4 bytes for the source and 10 for each of two positions."""

SOURCE_BYTES: Final = 40
"""Size of a source in an answer, without its topic id: a few numbers of at most 10 bytes, most shorter."""

RECORD_BUDGET_BYTES: Final = 850_000
"""A record is filled up to this size.

The 50,000 bytes that are left up to the limit are for array counts and headers.
"""

ListRow = tuple[int, Any, int]
"""A value of one list of a record: the number of the list, the value, and its size in bytes.

A plain tuple, since a step may have a row for each root.
"""

LOST_ROOTS: Final = 100_000
"""Most positions of one `Lost`: 800,000 bytes."""


class LossCause(NamedTuple):
    """Why roots were lost, and when their session's clock showed the verdict's time."""

    reason: LostVerdict
    operator: str
    error: str
    message: str
    decided_at_ms: int

    @classmethod
    def without_operator(cls, reason: LostVerdict, decided_at_ms: int) -> LossCause:
        """Return the cause of a root that no bolt failed: it timed out, or was abandoned."""
        return cls(reason, "", "", "", decided_at_ms)


class RunCollector:
    """Collects roots of one step as they come, and returns them as runs.

    Before that it is no set: a root may be in it twice.
    """

    __slots__ = ("_neighbours", "_scattered")

    def __init__(self) -> None:
        """Begin without a root."""
        self._neighbours: list[tuple[int, int, int]] = []  # runs: source, start and end
        self._scattered: list[tuple[int, I64]] = []  # single positions: source, and positions

    def __bool__(self) -> bool:
        return bool(self._neighbours or self._scattered)

    def add(self, source: int, start: int, indices: Indices) -> None:
        """Add the positions ``start + i`` for each i of `indices`."""
        if not len(indices):
            return
        if isinstance(indices, range):
            self._neighbours.append((source, start + indices.start, start + indices.stop))
        else:
            self._scattered.append((source, indices + start))

    def runs(self) -> list[SourceRun]:
        """Return maximal runs, ascending by source, then by position."""
        return (RootSet.of_runs(self._neighbours) | RootSet.of_parts(self._scattered)).runs()


class _LostRoots(NamedTuple):
    """Lost roots of one cause, emission and source; positions ascend, and there is at least one."""

    cause: LossCause
    emission: InitEmission
    source: int
    positions: I64

    def sort_key(self) -> tuple[int, int, int, int]:
        """Return what lost roots are sorted by: verdict, emission time, source, first position.

        No two have the same first root, so the order is always the same.
        """
        verdict_rank = LOST_VERDICTS.index(self.cause.reason)
        return verdict_rank, self.emission.at_ms, self.source, int(self.positions[0])


class AckedRoots(NamedTuple):
    """Acked roots of one emission, at the positions ``start + i`` for each i of `indices`."""

    emission: InitEmission
    source: int
    start: int
    indices: Indices


class AckedCopies(NamedTuple):
    """Acked roots of one emission that are copies, all of them."""

    emission: InitEmission
    source: int
    positions: I64


class VerdictSet:
    """The verdicts of one step.

    Attributes:
        acked: the positions of all acked roots.
        absent: the positions of all roots that are ABSENT.
        acked_roots: acked roots that are no copies, in parts; they are in `acked`, too.
        acked_copies: acked roots that are copies, in parts; they are in `acked`, too.
    """

    def __init__(self) -> None:
        """Begin without a verdict."""
        self.acked = RunCollector()
        self.absent = RunCollector()
        self.acked_roots: list[AckedRoots] = []
        self.acked_copies: list[AckedCopies] = []
        # by cause, emission and source: the positions of lost roots, in parts
        self._lost_parts: dict[tuple[LossCause, InitEmission, int], list[I64]] = {}

    def __bool__(self) -> bool:
        return bool(self.acked or self.absent or self._lost_parts)

    def ack(self, emission: InitEmission, source: int, start: int, indices: Indices) -> None:
        """Add roots that were acked, at the positions ``start + i`` for each i of `indices`."""
        if len(indices):
            self.acked.add(source, start, indices)
            # apart from them, for metrics; of a copy each position is kept, since its record was
            # emitted first at a time of its own
            if is_replay(source):
                self.acked_copies.append(AckedCopies(emission, source, as_array(indices) + start))
            else:
                self.acked_roots.append(AckedRoots(emission, source, start, indices))

    def lost_counts(self) -> Iterator[tuple[LossCause, int, int]]:
        """Yield the causes of losses, each with a source and how many roots of it were lost."""
        for (cause, _, source), parts in self._lost_parts.items():
            yield cause, source, sum(map(len, parts))

    def lose(
        self, cause: LossCause, emission: InitEmission, source: int, start: int, indices: Indices
    ) -> None:
        """Add roots that were lost: `indices` are indices, of which 0 is the position `start`."""
        positions = as_array(indices) + start
        if len(positions):
            self._lost_parts.setdefault((cause, emission, source), []).append(positions)

    def records(self) -> list[Verdicts]:
        """Return all verdicts as records in canonical order, each below the size limit of the wire."""
        # the three lists of `Verdicts`, by number in the order of its fields
        acked_list, absent_list, lost_list = range(3)
        rows: Iterator[ListRow] = chain(
            ((acked_list, run, RUN_BYTES) for run in self.acked.runs()),
            ((absent_list, run, RUN_BYTES) for run in self.absent.runs()),
            ((lost_list, lost, _lost_bytes(lost)) for lost in self._lost_entries()),
        )
        return [Verdicts(*lists) for lists in split_into_records(3, rows)]

    def _lost_entries(self) -> Iterator[Lost]:
        """Yield the lost roots in canonical order, at most `LOST_ROOTS` of them in each `Lost`."""
        # 1. join the parts of each cause, emission and source, and sort
        lost_roots: list[_LostRoots] = []
        for (cause, emission, source), parts in self._lost_parts.items():
            positions = np.sort(np.concatenate(parts))
            lost_roots.append(_LostRoots(cause, emission, source, positions))
        lost_roots.sort(key=_LostRoots.sort_key)
        # 2. write them, each at most `LOST_ROOTS` positions at a time
        for cause, emission, source, positions in lost_roots:
            # with what is too long for the wire cut
            wire_cause = Cause.of(cause.operator, cause.error, cause.message)
            for first_row in range(0, len(positions), LOST_ROOTS):
                yield Lost(
                    reason=cause.reason,
                    group=emission.session.group,
                    topic=emission.topic,
                    topic_id=emission.topic_id,
                    operator=wire_cause.operator,
                    error=wire_cause.error,
                    message=wire_cause.message,
                    emitted_at=emission.at_ms,
                    emitted_wall=emission.wall_ms,
                    decided_at=cause.decided_at_ms,
                    source=source,
                    positions=pack_positions(positions[first_row : first_row + LOST_ROOTS]),
                )


def _lost_bytes(lost: Lost) -> int:
    """Return at least the size on the wire: a character of the BMP has 3 bytes of UTF-8, the numbers 100."""
    texts = (lost.group, lost.topic, lost.topic_id, lost.operator, lost.error, lost.message)
    return len(lost.positions) + 3 * sum(len(text) for text in texts) + 100


def split_into_records(list_count: int, rows: Iterable[ListRow]) -> list[tuple[tuple[Any, ...], ...]]:
    """Distribute values over the lists of records of at most `RECORD_BUDGET_BYTES` each, in order.

    Each record has `list_count` lists. A row says in which list its value belongs, and how many
    bytes that takes. Returns the lists of each record, as tuples; without a row there is no record.
    """
    records: list[list[list[Any]]] = []
    used_bytes = RECORD_BUDGET_BYTES  # as if there were a full one: so the first row begins a record
    for list_number, value, row_bytes in rows:
        if used_bytes + row_bytes > RECORD_BUDGET_BYTES:
            records.append([[] for _ in range(list_count)])
            used_bytes = 0
        records[-1][list_number].append(value)
        used_bytes += row_bytes
    return [tuple(map(tuple, record)) for record in records]
