"""Order: who waits behind whom, and who may go; pure.

Records of one partition of an ordered input stand in *lines*, by the hash of their key (`key`) or all in one
(`partition`), and each has its origin, the offset of its first emission. One rule holds: a record is acked
only after every record of its line with a lower origin was acked, or became a dead letter.

* Planning reads off `_ack_due` what waits (`spout.planner.order_watch`) and decides how a partition goes on
  (`turn_of`). What a batch must hold back for it is journalled with the batch (`LineUp`).
* The read task hands a record to the bolts unless one before it waits, or failed in this task (`Gate`). Else
  it fails at once, cause `HELD`, which costs it nothing: it comes back, and goes when its turn has come.
  Where a child of the task works on the records, it is told where they stand (`Slip`).
* The driver fails those that passed a record which failed where the task could not see it (`behind`): behind
  a shuffle, in a batch bolt. They ran too early, and run again, in order.

Nothing here is remembered from batch to batch: after a restart the same is read off the same topics.

Source: docs/design/protocol.md, sections 5.1 and 5.4; Kafka Streams' and Spring Kafka's blocking retries by
key.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np

from acker.identity import I64
from acker.sorted_arrays import among, distinct
from acker.wire.causes import HELD
from spout.tuples.collector import Cause

KEY: Final = "key"
PARTITION: Final = "partition"

WHOLE: Final = 0
"""The one line of a partition that waits as a whole."""

_ENTRY_BYTES: Final = 16


def line_of_key(key: bytes) -> int:
    """Return the line of a key: 64 bits, signed, the same in every process.

    Two keys that meet in one wait for each other, and nothing else: of a million keys some do once in 40
    million installations.
    """
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big", signed=True)


@dataclass(frozen=True, slots=True)
class LineUp:
    """What a batch must hold back in one partition.

    Attributes:
        by: ``key`` or ``partition``.
        waiting: of each line in which a record waits, the lowest origin that does.
        most: how many records of it may go to the bolts; None: any number.
    """

    by: str
    waiting: Mapping[int, int] = field(default_factory=dict)
    most: int | None = None

    def __reduce__(self) -> tuple[type[LineUp], tuple[object, ...]]:
        """Pickle the lines as a plain dict, since a mapping proxy has no pickle."""
        return LineUp, (self.by, dict(self.waiting), self.most)

    def line(self, key: bytes | None) -> int | None:
        """Return the line of a record; None: it stands in none."""
        if self.by == PARTITION:
            return WHOLE
        return None if key is None else line_of_key(key)

    def to_json(self) -> dict[str, Any]:
        """Return it for the journal: 22 characters for each line in which a record waits."""
        rows = np.array(sorted(self.waiting.items()), "<i8")
        packed = base64.b64encode(rows.tobytes()).decode()
        return {"by": self.by, "waiting": packed, **({} if self.most is None else {"most": self.most})}


def line_up_of(value: Mapping[str, Any]) -> LineUp:
    """Read one from the journal.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    by, most = value["by"], value.get("most")
    if by not in (KEY, PARTITION):
        raise ValueError(f"{by!r:.40} is no order")
    if most is not None and (type(most) is not int or most < 1):
        raise ValueError(f"{most!r:.40} is no number of records")
    packed = base64.b64decode(value["waiting"], validate=True)
    if len(packed) % _ENTRY_BYTES:
        raise ValueError("lines are packed in 16 bytes each")
    rows = np.frombuffer(packed, "<i8").reshape(-1, 2)
    return LineUp(by, dict(rows.tolist()), most)


class Held(NamedTuple):
    """A record that waits.

    Attributes:
        origin: offset of its first emission; -1 where nobody knows, so that it stands before all others.
        line: its line; None where it stands in none, or its record is gone.
        is_held: whether it only waits behind another one.
    """

    origin: int
    line: int | None
    is_held: bool


class Turn(NamedTuple):
    """How a partition goes on.

    Attributes:
        takes_copies: whether the copies that are there are planned, all of them.
        most: how many new records may be planned.
        line_up: what the batch must hold back.
        why: what it waits for, in words; empty when it goes on.
    """

    takes_copies: bool
    most: int
    line_up: LineUp
    why: str = ""


def turn_of(by: str, held_max: int, waiting: Sequence[Held], unread: int, name: str) -> Turn:
    """Decide how a partition goes on; every copy that is out stands unread in its replay partition.

    A partition that waits as a whole takes nothing as long as a record of it waits, not even the copies: they
    stand behind that record. Then the copies alone, for what comes behind them may have to wait again.

    By key all goes on, but for the lines in which a record waits, and as long as there is room for what may
    have to wait. Beyond that the partition waits as a whole.

    Args:
        by: ``key`` or ``partition``.
        held_max: how many records of it may wait, be held, or be emitted at once.
        waiting: what waits.
        unread: how many copies are out.
        name: of the partition, ``topic/partition``, for what is told.
    """
    first = min((held.origin for held in waiting), default=-1)
    if by == PARTITION or len(waiting) + unread > held_max:
        if waiting:
            lined = LineUp(PARTITION, {WHOLE: first})
            full = "" if by == PARTITION else f"; {len(waiting) + unread:,} wait, max_held is {held_max:,}"
            return Turn(False, 0, lined, f"waits for {name}@{first}{full}")
        return Turn(True, 0 if unread else held_max, LineUp(by))
    lines: dict[int, int] = {}
    for held in waiting:
        if held.line is not None:
            lines[held.line] = min(held.origin, lines.get(held.line, held.origin))
    room = held_max - len(waiting) - unread
    why = "" if room else f"waits: {len(waiting) + unread:,} records wait or are held, as many as max_held"
    return Turn(True, room, LineUp(by, lines), why)


class Slip(NamedTuple):
    """What a gate knows of some records, for a gate in the process that works on them.

    Attributes:
        place: ``topic/partition`` of the source.
        operator: who holds, as causes name it.
        standing: of each record that stands in a line, its index, line and origin.
        failed: of lines, the lowest origin that failed.
    """

    place: str
    operator: str
    standing: tuple[tuple[int, int, int], ...]
    failed: Mapping[int, int]


class Gate:
    """Lets the records of one partition pass to the bolts of one task, or holds them.

    A record is named by its index into the batch's plan.
    """

    def __init__(self, place: str, operator: str, line_up: LineUp) -> None:
        """Begin with nobody through.

        Args:
            place: ``topic/partition`` of the source.
            operator: who holds, as causes name it.
            line_up: what waits already.
        """
        self.place = place
        self._operator = operator
        self._line_up = line_up
        self._through = 0
        self._failed: dict[int, int] = {}
        self._standing: dict[int, tuple[int, int]] = {}

    def admit(self, index: int, key: bytes | None, origin: int | None) -> Cause | None:
        """Tell why a record is held; None: it may go.

        Args:
            index: its root.
            key: its key.
            origin: offset of its first emission; None: it has none in this partition, and stands in no line.
        """
        most = self._line_up.most
        line = None if origin is None else self._line_up.line(key)
        if line is None or origin is None:
            cause = None
        else:
            self._standing[index] = line, origin
            before = self._line_up.waiting.get(line)
            cause = self._behind(before) if before is not None and before < origin else self.holds(index)
        if cause is None and most is not None and self._through >= most:
            cause = Cause(self._operator, HELD, f"the batch has room for {most:,} records of {self.place}")
        self._through += cause is None
        return cause

    def refuse(self, index: int, key: bytes | None, origin: int | None, why: str) -> Cause:
        """Hold a record for another reason, and what stands behind it; see `admit`."""
        line = None if origin is None else self._line_up.line(key)
        if line is not None and origin is not None:
            self._standing[index] = line, origin
            self.fail(index)
        return Cause(self._operator, HELD, why)

    def holds(self, index: int) -> Cause | None:
        """Tell why a record that was let through is held now: one before it failed; None: nothing is so."""
        if not self._failed:
            return None
        standing = self._standing.get(index)
        if standing is None:
            return None
        failed = self._failed.get(standing[0])
        return self._behind(failed) if failed is not None and failed < standing[1] else None

    def holds_any(self, indices: Iterable[int]) -> Cause | None:
        """Tell why a tuple that descends from these records is held now; None: it may go."""
        return next((cause for index in indices if (cause := self.holds(index)) is not None), None)

    def fail(self, index: int) -> None:
        """Learn that a record failed; those behind it in its line are held from now on."""
        standing = self._standing.get(index)
        if standing is not None:
            self._has_failed(*standing)

    def slip(self, indices: Iterable[int]) -> Slip:
        """Return what is known of some records."""
        placed = [(index, self._standing[index]) for index in indices if index in self._standing]
        standing = tuple((index, *standing) for index, standing in placed)
        return Slip(self.place, self._operator, standing, dict(self._failed))

    def learn(self, slip: Slip) -> None:
        """Know what another gate of the same partition knew."""
        self._standing.update({index: (line, origin) for index, line, origin in slip.standing})
        for line, origin in slip.failed.items():
            self._has_failed(line, origin)

    def lined(self) -> Lined:
        """Return what stood in lines, for `behind`."""
        listed = [(index, *standing) for index, standing in self._standing.items()]
        return Lined(self.place, self._operator, np.array(listed, np.int64).reshape(-1, 3))

    def _has_failed(self, line: int, origin: int) -> None:
        self._failed[line] = min(origin, self._failed.get(line, origin))

    def _behind(self, origin: int) -> Cause:
        return waits_for(self._operator, self.place, origin)


def waits_for(operator: str, place: str, origin: int) -> Cause:
    """Say why a record is held; `place` is ``topic/partition``, `origin` the record that it waits for."""
    return Cause(operator, HELD, f"waits for {place}@{origin}")


class Lined(NamedTuple):
    """Records of one partition that stand in lines: rows of index, line and origin."""

    place: str
    operator: str
    rows: I64


def behind(lined: Iterable[Lined], failed: I64, open_: I64, free: I64) -> list[tuple[Cause, I64]]:
    """Return, by cause, what stands behind a record that failed or is open, and did not fail itself.

    Args:
        lined: of each read task what stood in lines.
        failed: indices of what failed, in any order.
        open_: indices of what is not done when the batch ends: it may still fail, or time out.
        free: ascending indices of what is best effort.
    """
    failed = distinct(failed)
    stops = distinct(np.concatenate([failed, open_]))
    if not len(stops):
        return []
    found: list[tuple[Cause, I64]] = []
    for place, operator, rows in lined:
        rows = rows[~among(rows[:, 0], free)]
        has_failed = among(rows[:, 0], failed)
        heads: dict[int, int] = {}
        for _, line, origin in rows[among(rows[:, 0], stops)].tolist():
            heads[line] = min(origin, heads.get(line, origin))
        late: dict[int, list[int]] = {}
        for index, line, origin in rows[~has_failed].tolist() if heads else ():
            head = heads.get(line)
            if head is not None and head < origin:
                late.setdefault(head, []).append(index)
        found += [(waits_for(operator, place, head), np.array(at, np.int64)) for head, at in late.items()]
    return found
