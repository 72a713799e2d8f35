"""What an acker writes beside State for people: headers of State's first piece, which no verdict depends on.

They tell a view what State's body cannot: its schema is published and stays as it is. A reader of another
version passes over them, and what is wrong with one counts as if it were not there.

Source: docs/design/protocol.md, section 4.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from acker.kafka.port import Headers
from acker.ledger.cohort import RootCohort
from acker.wire.lateness import LateCounts, read_too_late, too_late_header

RESTORED_HEADER: Final = "windhover.restored"
"""The last restore of the writer."""

DEADLINES_HEADER: Final = "windhover.deadlines"
"""The deadlines of ranges that were moved as a whole, as those of what Spark's state holds."""

LATE_HEADER: Final = "windhover.late-total"
"""A group, and how many of its roots and rows came too late; the header behind it may have the last note."""

GROUPS_MAX: Final = 100
"""Of so many groups it is noted what came too late, in some 300 bytes and what runs their notes name."""

DEADLINES_BYTES_MAX: Final = 50_000
"""With a piece of 800,000 bytes the record stays below the wire's limit; 20,000 ranges and more fit in."""

DEADLINES_MAX: Final = 1_000_000
"""So many moved deadlines are read at most: 16 MB, of whoever wrote them."""


class LastRestore(NamedTuple):
    """When an acker partition was restored, wall time, and how long that took since its assignment."""

    at_ms: int
    took_ms: int


@dataclass(frozen=True, slots=True)
class StateNotes:
    """The headers of a State, as values.

    Attributes:
        restored: None where an acker wrote it in the step of its restore, or one of an earlier version did.
        deadlines_ms: the session clock at which the roots of a range expire, by the range's number in State;
            of ranges whose deadline was not moved, or only that of some roots, there is none.
        too_late: what came too late for a watermark, by group; without a group an earlier version wrote it.
    """

    restored: LastRestore | None = None
    deadlines_ms: Mapping[int, int] = field(default_factory=dict)
    too_late: Mapping[str, LateCounts] = field(default_factory=dict)

    def headers(self) -> Headers:
        """Return the headers for State, one for each kind of note that there is."""
        headers: Headers = ()
        if self.restored is not None:
            headers = (*headers, (RESTORED_HEADER, json.dumps(self.restored).encode()))
        if self.deadlines_ms:
            headers = (*headers, (DEADLINES_HEADER, _pack_deadlines(self.deadlines_ms)))
        for group, counts in list(self.too_late.items())[:GROUPS_MAX]:
            total = json.dumps([group, counts.roots, counts.rows]).encode()
            headers = (*headers, (LATE_HEADER, total))
            if counts.last is not None:
                headers = (*headers, too_late_header(counts.last))
        return headers


def moved_deadlines(cohorts: Iterable[RootCohort]) -> dict[int, int]:
    """Return the moved deadlines of cohorts by their places; one that State carries has them in its bin."""
    return {
        number: cohort.first_deadline_ms()
        for number, cohort in enumerate(cohorts)
        if cohort.bin is None and cohort.is_moved
    }


def read_notes(headers: Headers) -> StateNotes:
    values = dict(headers)
    return StateNotes(
        _restored(values.get(RESTORED_HEADER)), _deadlines(values.get(DEADLINES_HEADER)), _too_late(headers)
    )


def _too_late(headers: Headers) -> dict[str, LateCounts]:
    """Read the counts of each group, and behind them its last note."""
    counts_by_group: dict[str, LateCounts] = {}
    nothing: Headers = (("", None),)
    for (name, value), following in pairwise((*headers, *nothing)):
        if name != LATE_HEADER:
            continue
        try:
            group, roots, rows = json.loads(value or b"")
            counts_by_group[str(group)] = LateCounts(int(roots), int(rows), read_too_late([following]))
        except (ValueError, TypeError, OverflowError):
            continue
    return counts_by_group


def _restored(value: bytes | None) -> LastRestore | None:
    try:
        at_ms, took_ms = json.loads(value or b"")
        return LastRestore(int(at_ms), int(took_ms))
    except (ValueError, TypeError, OverflowError):
        return None


def _pack_deadlines(deadlines_ms: Mapping[int, int]) -> bytes:
    """Pack those of the oldest ranges, as many as there is room for: operators ask for the oldest first."""
    rows = np.array(sorted(deadlines_ms.items()), np.int64)
    while True:
        # numbers and deadlines mostly ascend in even steps, and so shrink to a tenth
        steps = np.diff(rows, axis=0, prepend=np.zeros((1, 2), np.int64))
        packed = zlib.compress(steps.T.astype("<i8").tobytes(), 1)
        if len(packed) <= DEADLINES_BYTES_MAX:
            return packed
        rows = rows[: len(rows) // 2]


def _deadlines(value: bytes | None) -> dict[int, int]:
    try:
        unpacking = zlib.decompressobj()
        unpacked = unpacking.decompress(value or b"", 16 * DEADLINES_MAX)
        if not unpacking.eof:
            return {}
        numbers, deadlines_ms = np.cumsum(np.frombuffer(unpacked, "<i8").reshape(2, -1), axis=1)
    except (zlib.error, ValueError):
        return {}
    return dict(zip(numbers.tolist(), deadlines_ms.tolist(), strict=True))
