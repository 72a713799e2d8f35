"""What an acker writes beside State for people: headers of State's first piece, which no verdict depends on.

They tell a view what State's body cannot: its schema is published and stays
as it is. A reader of another version passes over them, and a header with
something wrong counts as if it were not there.

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
from acker.untrusted import is_whole_number
from acker.wire.lateness import LateCounts, read_too_late, too_late_header

RESTORED_HEADER: Final = "windhover.restored"
"""The last restore of the writer."""

DEADLINES_HEADER: Final = "windhover.deadlines"
"""The deadlines of ranges that were moved as a whole, such as those that Spark's state holds."""

LATE_HEADER: Final = "windhover.late-total"
"""A group, and how many of its roots and rows came too late; the header behind it may have the last note."""

GROUPS_MAX: Final = 100
"""So many groups have a header for what came too late, of some 300 bytes and the runs that a note names."""

DEADLINES_BYTES_MAX: Final = 50_000
"""With a piece of 800,000 bytes the record stays below the wire's limit; 20,000 ranges and more fit in."""

DEADLINES_MAX: Final = 1_000_000
"""So many moved deadlines are read at most, 16 MB, whoever wrote them."""

_COUNT_END: Final = 1 << 63

_DEADLINE_BYTES: Final = 16
"""Of a range's number and its deadline, before they are compressed."""


class LastRestore(NamedTuple):
    """When an acker partition was restored.

    Attributes:
        at_ms: wall time of the end of the restore.
        took_ms: how long it took since the partition was assigned.
    """

    at_ms: int
    took_ms: int


@dataclass(frozen=True, slots=True)
class StateNotes:
    """The headers of a State, as values.

    Attributes:
        restored: None if an acker wrote the State in the step of its restore,
            or an earlier version did.
        deadlines_ms: the session clock at which the roots of a range expire,
            by the range's number in State. Ranges whose deadline was not
            moved, or only that of some roots, are missing.
        too_late: what came too late for a watermark, by group; empty if an
            earlier version wrote the State.
    """

    restored: LastRestore | None = None
    deadlines_ms: Mapping[int, int] = field(default_factory=dict)
    too_late: Mapping[str, LateCounts] = field(default_factory=dict)

    def headers(self) -> Headers:
        """Return the notes as headers of a State's first piece.

        They are the last restore, moved deadlines, and what came too late by group. A note that
        is missing or empty has no header. Of what came too late only the first `GROUPS_MAX`
        groups have headers.
        """
        headers: list[tuple[str, bytes | None]] = []
        if self.restored is not None:
            headers.append((RESTORED_HEADER, json.dumps(self.restored).encode()))
        if self.deadlines_ms:
            headers.append((DEADLINES_HEADER, _pack_deadlines(self.deadlines_ms)))
        for group, counts in list(self.too_late.items())[:GROUPS_MAX]:
            # The sums of a group. The header of its newest note comes right behind: `read_notes`
            # pairs them by this order.
            group_and_counts = json.dumps([group, counts.roots, counts.rows]).encode()
            headers.append((LATE_HEADER, group_and_counts))
            if counts.newest_note is not None:
                headers.append(too_late_header(counts.newest_note))
        return tuple(headers)


def moved_deadlines(cohorts: Iterable[RootCohort]) -> dict[int, int]:
    """Return the deadlines (session clock) that were moved for all roots of a cohort, by its
    number in State.

    `cohorts` are in the order of State. A cohort that is in a bin is missing: its
    bin has its deadlines.
    """
    deadlines_ms: dict[int, int] = {}
    for number, cohort in enumerate(cohorts):
        if cohort.bin_number is None and cohort.is_moved:
            deadlines_ms[number] = cohort.first_deadline_ms()
    return deadlines_ms


def read_notes(headers: Headers) -> StateNotes:
    """Return the notes in the headers of a State; those that are missing or wrong are left empty."""
    values = dict(headers)
    return StateNotes(
        restored=_read_last_restore(values.get(RESTORED_HEADER)),
        deadlines_ms=_unpack_deadlines(values.get(DEADLINES_HEADER)),
        too_late=_read_late_counts(headers),
    )


def _read_late_counts(headers: Headers) -> dict[str, LateCounts]:
    """Return by group how much came too late for a watermark, with the last note on it.

    The counts of a group are one header; the note, if there is one, is the
    header behind it. A header with something wrong is left out.
    """
    counts_by_group: dict[str, LateCounts] = {}
    no_header: Headers = (("", None),)  # follows the last one, so that this comes as a pair, too
    for (name, value), next_header in pairwise((*headers, *no_header)):
        if name != LATE_HEADER:
            continue
        try:
            group, roots, rows = json.loads(value or b"")
            last_note = read_too_late([next_header])  # None: it is another header
            counts_by_group[str(group)] = LateCounts(_count(roots), _count(rows), last_note)
        except (ValueError, TypeError, RecursionError):
            continue
    return counts_by_group


def _read_last_restore(value: bytes | None) -> LastRestore | None:
    """Return the last restore that the value of a header says; None if it is missing or wrong."""
    try:
        at_ms, took_ms = json.loads(value or b"")
        return LastRestore(_count(at_ms), _count(took_ms))
    except (ValueError, TypeError, RecursionError):
        return None


def _count(value: object) -> int:
    """Return a number of a note's JSON; `ValueError` if no acker writes such a one.

    A larger one than 63 bits hold would end who shows it: a float has no room for 10 ** 400.
    """
    if not is_whole_number(value, 0, _COUNT_END):
        raise ValueError(f"{value!r} is no number of a note")
    return value


def _pack_deadlines(deadlines_ms: Mapping[int, int]) -> bytes:
    """Pack deadlines, by the numbers of ranges, into `DEADLINES_BYTES_MAX` bytes at most.

    If there are too many, those of the later half of the ranges are left out,
    and again until the others have room: operators ask for the oldest ranges
    first.
    """
    rows = np.array(sorted(deadlines_ms.items()), np.int64)  # (n, 2): number and deadline
    while True:
        # Numbers and deadlines mostly ascend in even steps, and so shrink to
        # a tenth: of 3, 4, 5 the steps are 3, 1, 1.
        steps = np.diff(rows, axis=0, prepend=np.zeros((1, 2), np.int64))
        columns = steps.T.astype("<i8")  # all numbers, then all deadlines
        packed = zlib.compress(columns.tobytes(), 1)
        if len(packed) <= DEADLINES_BYTES_MAX:
            return packed
        rows = rows[: len(rows) // 2]


def _unpack_deadlines(value: bytes | None) -> dict[int, int]:
    """Return what `_pack_deadlines` packed; empty if it is missing, wrong, or more than `DEADLINES_MAX`."""
    try:
        unpacking = zlib.decompressobj()
        unpacked = unpacking.decompress(value or b"", _DEADLINE_BYTES * DEADLINES_MAX)
        if not unpacking.eof:  # it is longer, or cut off
            return {}
        # those of the numbers, of the deadlines
        steps = np.frombuffer(unpacked, "<i8").reshape(2, -1)
        numbers, deadlines_ms = np.cumsum(steps, axis=1)
    except (zlib.error, ValueError):
        return {}
    return dict(zip(numbers.tolist(), deadlines_ms.tolist(), strict=True))
