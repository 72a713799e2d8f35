"""Order: which record is blocked behind which, and which may go to the bolts; pure.

The records of one partition of an ordered input form *lines*: one for each hash of a key (`key`),
or one for all of them (`partition`). A line is a number. A record's *origin* is, in this module,
the offset of its first emission alone. The rule is: a record is acked only after every record of
its line with a lower origin was acked, or became a dead letter. A line is *stopped* where a record
of it waits for its replay, or failed: what comes behind that is blocked.

* Planning reads which records wait for a replay (`spout.planning_process.order_watch`), decides how a
  partition goes on (`turn_of`), and journals with the batch which lines are blocked (`LineUp`).
* The read task gives a record to the bolts unless an earlier one of its line waits, or failed in this task
  (`Gate`). Otherwise it fails at once with cause `HELD`, which is no attempt. A child process that works on
  records gets their lines (`GateState`). A record is named by its *index* in the plan.
* A record may fail where the read task cannot see it: behind a shuffle, or in a batch bolt. Then the driver
  fails the records that passed it (`find_blocked_behind`).

Source: docs/design/protocol.md, section 5.1 ("Order"); Kafka Streams' and
Spring Kafka's blocking retries.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from acker.hot_paths import among, distinct, rows_among
from acker.identity import I64
from acker.wire.causes import HELD
from spout.tuples.failures import Cause

KEY: Final = "key"
PARTITION: Final = "partition"

WHOLE: Final = 0
"""The only line of a partition that is blocked as a whole."""

ROOM_FIRST: Final = 10_000
"""New records of a partition that a batch may have at first."""

ROOM_GROWS: Final = 16
"""A batch may have so many times as many as any before it. Each takes 0.25 s more than its records
do, so a query that begins, or goes on behind failures, should have few small ones.
"""

LOST_FEW: Final = 500
"""Records that a batch may lose of a partition. To copy those of four
partitions takes 0.25 s, and so much of any batch does not depend on its size:
with this number both together cost a record least.
"""

_INDEX, _LINE, _ORIGIN = range(3)
"""The columns of a table of records in lines, ``(n, 3) int64``."""

LINES_KEPT: Final = 100_000
"""Keys whose lines a task keeps; with more, it begins anew."""

KEYS_BYTES_MAX: Final = 16 << 20
"""So many bytes of keys a task keeps of a partition before it finds their
lines though nobody has asked; all keys of a chunk count as its first one.
"""

_ENTRY_BYTES: Final = 16


def line_of_key(key: bytes) -> int:
    """Return the line of a key: 64 bits, signed, the same in every process.

    Two keys with the same line wait for each other. Of 40 million inputs with
    a million keys one has a pair.
    """
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big", signed=True)


@dataclass(frozen=True, slots=True)
class LineUp:
    """Which records of one partition are blocked in a batch, ordered by
    ``key`` or by ``partition``.

    Attributes:
        by: ``key`` or ``partition``.
        waiting: for each line in which a record waits, the lowest origin of
            those that wait.
        copies_max: how many copies of the partition may go to the bolts;
            None: any number. New records are bounded when they are planned:
            they have a part of the batch's room of their own.
    """

    by: str
    waiting: Mapping[int, int] = field(default_factory=dict)
    copies_max: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return its JSON for the journal, which `line_up_of` reads.

        It has some 22 characters for each line in which a record waits.
        """
        # line and origin, 16 bytes for each line; sorted, since Spark
        # compares offsets as text
        rows = np.array(sorted(self.waiting.items()), "<i8")
        packed = base64.b64encode(rows.tobytes()).decode()
        value: dict[str, Any] = {"by": self.by, "waiting": packed}
        if self.copies_max is not None:
            value["most"] = self.copies_max
        return value


def line_up_of(value: Mapping[str, Any]) -> LineUp:
    """Read a `LineUp` from the journal; KeyError, TypeError or ValueError if it is none."""
    by = value["by"]
    copies_max = value.get("most")
    if by not in (KEY, PARTITION):
        raise ValueError(f"{by!r:.40} is no order")
    if copies_max is not None and (type(copies_max) is not int or copies_max < 1):
        raise ValueError(f"{copies_max!r:.40} is no number of records")
    packed = base64.b64decode(value["waiting"], validate=True)
    if len(packed) % _ENTRY_BYTES:
        raise ValueError("lines are packed in 16 bytes each")
    rows = np.frombuffer(packed, "<i8").reshape(-1, 2)
    return LineUp(by, waiting=dict(rows.tolist()), copies_max=copies_max)


class WaitingRecord(NamedTuple):
    """A record that waits for its replay; `is_blocked`: it did not fail itself.

    Attributes:
        origin: offset of its first emission; -1: unknown, so that it comes
            before all candidates.
        line: its line; None: it is in no line, or the record is gone.
        is_unreadable: nobody can read it (a damaged batch), so that it may be
            in any line.
    """

    origin: int
    line: int | None
    is_blocked: bool
    is_unreadable: bool = False


class NotAcked(NamedTuple):
    """A root that is not acked when its batch is published.

    `line` None: in no line, and `origin` is -1.
    """

    source: int
    position: int
    line: int | None
    origin: int


class Turn(NamedTuple):
    """What the next batch may read of a partition: all copies that are
    written or none, and new records.

    Attributes:
        new_max: how many new records may be planned.
        why: what the partition waits for, in words; empty if it does not wait.
    """

    takes_copies: bool
    new_max: int
    line_up: LineUp
    why: str = ""


def turn_of(by: str, held_max: int, waiting: Sequence[WaitingRecord], unread_count: int, name: str) -> Turn:
    """Decide what the next batch may read of a partition; all its written copies are still unread.

    By partition, nothing is read as long as a record waits, not even copies, which come behind it.
    Then only the copies are read, since records behind them may have to wait again. By key, all
    lines go on in which no record waits; without room for records that may have to wait, or where
    the line of one that waits is not known, the partition waits as a whole.

    Args:
        by: what it is ordered by, ``key`` or ``partition``.
        held_max: how many of its records may wait, be blocked, or be emitted
            at once.
        waiting: its records that wait for their replay.
        unread_count: how many copies on the replay topic are not read yet.
        name: ``topic/partition``, for messages.
    """
    undone_count = len(waiting) + unread_count
    is_any_unreadable = any(record.is_unreadable for record in waiting)
    goes_as_a_whole = by == PARTITION or is_any_unreadable or undone_count > held_max
    # 1. as a whole, and nothing waits: copies come alone, since records behind them may have to
    # wait again
    if goes_as_a_whole and not waiting:
        new_max = 0 if unread_count else held_max
        return Turn(takes_copies=True, new_max=new_max, line_up=LineUp(by))
    # 2. as a whole, and a record waits: nothing is read until it is replayed
    if goes_as_a_whole:
        if is_any_unreadable:
            why_as_a_whole = "; a record that waits cannot be read, so its key is unknown"
        elif by == PARTITION:
            why_as_a_whole = ""
        else:
            why_as_a_whole = f"; {undone_count:,} wait, max_held is {held_max:,}"
        lowest_origin = min(record.origin for record in waiting)
        line_up = LineUp(PARTITION, {WHOLE: lowest_origin})
        why = f"waits for {name}@{lowest_origin}{why_as_a_whole}"
        return Turn(takes_copies=False, new_max=0, line_up=line_up, why=why)
    # 3. line by line: all copies, and so many new records that all of them could wait
    room = held_max - undone_count
    why = ""
    if not room:
        why = f"waits: {undone_count:,} records wait or are held, as many as max_held"
    line_up = LineUp(by, _lowest_by_line(waiting))
    return Turn(takes_copies=True, new_max=room, line_up=line_up, why=why)


def _lowest_by_line(waiting: Sequence[WaitingRecord]) -> dict[int, int]:
    """Return by line the lowest origin of the records that wait in it."""
    lowest_by_line: dict[int, int] = {}
    for record in waiting:
        if record.line is not None:
            lowest = lowest_by_line.get(record.line, record.origin)
            lowest_by_line[record.line] = min(record.origin, lowest)
    return lowest_by_line


class OrderedRoom:
    """How many new records of each partition a batch may have, below what `turn_of` allows.

    A record is *lost* here if its batch did not ack it. All records that come behind a failed one
    of their line in its batch are copied and read again. So what a batch loses grows with the
    square of its size. The next one has as many as let it lose `LOST_FEW`, and at most `ROOM_GROWS`
    times as many as any before it. A copy that is lost again does not count: it would be, whatever
    the size.
    """

    def __init__(self) -> None:
        self._new_max_by_source: dict[int, int] = {}  # those without an entry: `ROOM_FIRST`

    def new_max_of(self, source: int) -> int:
        """Return how many new records of a partition the next batch may have."""
        return self._new_max_by_source.get(source, ROOM_FIRST)

    def record_batch(self, source: int, record_count: int, lost_count: int) -> None:
        """Set how many the next batch may have, by one that was published.

        Args:
            record_count: how many new records of the partition it had.
            lost_count: how many of these it did not ack.
        """
        max_by_losses: float = math.inf
        if lost_count:
            # of 20,000 records 2,000 were lost, four times `LOST_FEW`: half as many lose a fourth
            # of that
            max_by_losses = max(LOST_FEW, record_count * math.sqrt(LOST_FEW / lost_count))
        # it grows only behind a large batch: a small one does not show that a larger one is safe
        max_by_growth = max(self.new_max_of(source), ROOM_GROWS * record_count)
        self._new_max_by_source[source] = int(min(max_by_losses, max_by_growth))


class GateState(NamedTuple):
    """A gate's state for some records, for a second gate in the child process that works on them.

    Attributes:
        partition_name, operator: as in `Gate`.
        rows_in_lines: of each record that is in a line its index, line and origin.
        failed: by line, the lowest origin that failed.
    """

    partition_name: str
    operator: str
    rows_in_lines: tuple[tuple[int, int, int], ...]
    failed: Mapping[int, int]


class _Stop(NamedTuple):
    """What blocks every record of any line behind an origin, and the cause that they get."""

    origin: int
    cause: Cause


class _LineCache(dict[bytes | None, int | None]):
    """The line of each key that a task has seen lately: hashing one takes as long as a bolt does."""

    def __missing__(self, key: bytes | None) -> int | None:
        if len(self) >= LINES_KEPT:
            self.clear()
        line = None if key is None else line_of_key(key)
        self[key] = line
        return line


class Gate:
    """Lets the records of a partition, by their index in the plan, pass to a
    task's bolts, or blocks them.

    Records are admitted in their order (`admit`, `admit_all`), and then fail or not (`fail`): a
    record that has passed may be blocked later (`why_blocked_now`).

    Attributes:
        partition_name: ``topic/partition``, for messages.
        failed: by line, the lowest origin that failed here. While it is
            empty, no record that passed is blocked.
    """

    def __init__(self, partition_name: str, operator: str, line_up: LineUp) -> None:
        """Begin with no record; `operator` is named in the causes of blocked ones."""
        self.partition_name = partition_name
        self._operator = operator
        self._line_up = line_up
        self._line_cache = _LineCache()
        self._passed_count = 0  # of all records that were admitted and not blocked
        self._pass_max = line_up.copies_max  # how many of them there may be; None: any number
        self.failed: dict[int, int] = {}
        # lines that are stopped, ascending; None: they have changed, and are gathered when they are
        # needed
        self._stopped_lines: I64 | None = None
        self._stop_of_all_lines: _Stop | None = None  # None: every record could be read
        # Index, line and origin of each record that is in a line: of those
        # that were admitted one by one, and of those that were admitted
        # together, an array `(n, 3) int64` for each call.
        self._rows_one_by_one: list[tuple[int, int, int]] = []
        self._rows_together: list[I64] = []
        # by index: the line and the origin of a record that is in a line, for `why_blocked_now` and
        # `fail`; of `_rows_together` only the first `_copied_array_count` arrays are in it
        self._line_and_origin_by_index: dict[int, tuple[int, int]] = {}
        self._copied_array_count = 0
        # Indices, keys and origins of what was admitted together and is not
        # in `_rows_together` yet, since nobody has asked for the lines.
        self._kept_without_lines: list[tuple[I64, Sequence[bytes | None], I64 | Sequence[int | None]]] = []
        self._kept_key_bytes = 0

    def admit_all(
        self, indices: I64, keys: Sequence[bytes | None], origins: I64 | Sequence[int | None]
    ) -> dict[int, Cause]:
        """Admit records in their order as `admit` does.

        Return by row (the number of a record among these, from 0) why it is blocked; those that may
        go to the bolts are missing.

        1. If their number or a record that cannot be read counts, each is
           admitted alone.
        2. Else they are kept, and no key is hashed as long as no line is
           stopped.
        3. In a line that is stopped a record may be blocked.
        """
        causes_by_row: dict[int, Cause] = {}
        # 1. one by one
        if self._pass_max is not None or self._stop_of_all_lines is not None:
            records = zip(indices.tolist(), keys, list_of(origins), strict=True)
            for row, (index, key, origin) in enumerate(records):
                cause = self.admit(index, key, origin)
                if cause is not None:
                    causes_by_row[row] = cause
            return causes_by_row
        # 2. keep them
        self._kept_without_lines.append((indices, keys, origins))
        if keys:  # each counts as the first one does
            self._kept_key_bytes += len(keys) * len(keys[0] or b"")
        if self._kept_key_bytes > KEYS_BYTES_MAX:
            self._put_in_lines()
        # 3. stopped lines
        if self._stopped_lines is None:
            stopped_lines = sorted(self._line_up.waiting.keys() | self.failed.keys())
            self._stopped_lines = np.array(stopped_lines, np.int64)
        if len(self._stopped_lines):
            self._put_in_lines()
            rows_of_these = self._rows_together[-1]  # they were kept last
            causes_by_index = self._causes_by_index(rows_of_these, self._stopped_lines)
            if causes_by_index:
                for row, index in enumerate(indices.tolist()):
                    if index in causes_by_index:
                        causes_by_row[row] = causes_by_index[index]
        self._passed_count += len(indices) - len(causes_by_row)
        return causes_by_row

    def _causes_by_index(self, rows: I64, stopped_lines: I64) -> dict[int, Cause]:
        """Return by index why records in lines are blocked; the others are missing.

        `rows` are index, line and origin, `(n, 3) int64`; `stopped_lines` ascend.
        """
        causes_by_index: dict[int, Cause] = {}
        # where the order is by key, few records are in one of these lines
        is_in_stopped_line = among(rows[:, _LINE], stopped_lines)
        for index, line, origin in rows[is_in_stopped_line].tolist():
            cause = self._why_blocked(line, origin)
            if cause is not None:
                causes_by_index[index] = cause
        return causes_by_index

    def admit(self, index: int, key: bytes | None, origin: int | None) -> Cause | None:
        """Admit a record: return why it is blocked; None: it may go to the bolts.

        `origin` None: it was not first emitted in this partition, so it is in no line.
        """
        # 1. a stopped line
        line = None if origin is None else self._line_of(key)
        cause = None
        if line is not None and origin is not None:
            self._keep_line(index, line, origin)
            cause = self._why_blocked(line, origin)
        # 2. no room for more copies
        copies_max = self._pass_max
        if cause is None and copies_max is not None and self._passed_count >= copies_max:
            message = f"the batch has room for {copies_max:,} copies of {self.partition_name}"
            cause = Cause.of(self._operator, HELD, message)
            if line is not None and origin is not None:
                # new records of its line may not pass either: they come
                # behind it
                self._block_behind(line, origin)
        if cause is None:
            self._passed_count += 1
        return cause

    def begin_new(self) -> None:
        """Admit from now on any number of records: these are new ones, no copies."""
        self._pass_max = None

    def refuse(self, index: int, key: bytes | None, origin: int | None, why: str) -> Cause:
        """Block a record for the reason `why`, and with it the later ones of its line; see `admit`."""
        line = None if origin is None else self._line_of(key)
        if line is not None and origin is not None:
            self._keep_line(index, line, origin)
            self.fail(index)
        return Cause.of(self._operator, HELD, why)

    def stop_all(self, origin: int, why: str) -> None:
        """Block every record of any line behind an origin.

        The record at the origin cannot be read, so it may be in each of the lines.
        """
        if self._stop_of_all_lines is None or origin < self._stop_of_all_lines.origin:
            self._stop_of_all_lines = _Stop(origin, Cause.of(self._operator, HELD, why))

    def why_blocked_now(self, index: int) -> Cause | None:
        """Return why a record that has passed is blocked now.

        None: no earlier one of its line failed, or it is in no line.
        """
        if not self.failed:
            return None
        line_and_origin = self._lines_and_origins().get(index)
        if line_and_origin is None:
            return None
        line, origin = line_and_origin
        return self._why_blocked(line, origin) if line in self.failed else None

    def why_any_blocked_now(self, indices: Iterable[int]) -> Cause | None:
        """Return why a tuple that descends from these records is blocked now; None: it is not."""
        for index in indices:
            cause = self.why_blocked_now(index)
            if cause is not None:
                return cause
        return None

    def fail(self, index: int) -> None:
        """Block the later records of the line of one that failed; one in no line blocks nothing."""
        line_and_origin = self._lines_and_origins().get(index)
        if line_and_origin is not None:
            line, origin = line_and_origin
            self._block_behind(line, origin)

    def fail_all(self, indices: Iterable[int]) -> None:
        """Block the later records of the lines of these; see `fail`."""
        for index in indices:
            self.fail(index)

    def state_for(self, indices: Iterable[int]) -> GateState:
        """Return the state for some records, for a gate in another process."""
        lines_and_origins = self._lines_and_origins()
        rows_in_lines = tuple(
            (index, *lines_and_origins[index]) for index in indices if index in lines_and_origins
        )
        return GateState(self.partition_name, self._operator, rows_in_lines, dict(self.failed))

    def add_state(self, gate_state: GateState) -> None:
        """Add the state of another gate of the same partition."""
        for index, line, origin in gate_state.rows_in_lines:
            self._line_and_origin_by_index[index] = line, origin
        for line, origin in gate_state.failed.items():
            self._block_behind(line, origin)

    def lined_records(self, stops: I64 | None = None) -> LinedRecords:
        """Return the records that are in lines, for `find_blocked_behind`.

        `stops` has the indices, ascending, of all that fails of the partition, or stays open: then
        only records of their lines are returned. None: those of all lines.
        """
        if stops is not None and not len(stops):
            return LinedRecords(self.partition_name, self._operator, np.empty((0, 3), np.int64))
        rows_one_by_one = np.array(self._rows_one_by_one, np.int64).reshape(-1, 3)
        self._put_in_lines()
        rows = np.concatenate([rows_one_by_one, *self._rows_together])
        of_partition = LinedRecords(self.partition_name, self._operator, rows)
        if stops is None:
            return of_partition
        stopped_lines = distinct(of_partition.lines[among(of_partition.indices, stops)])
        return of_partition.at(among(of_partition.lines, stopped_lines))

    def _line_of(self, key: bytes | None) -> int | None:
        """Return the line of a record by its key; None: it is in no line."""
        return WHOLE if self._line_up.by == PARTITION else self._line_cache[key]

    def _keep_line(self, index: int, line: int, origin: int) -> None:
        """Remember in which line a record is that is admitted alone."""
        self._rows_one_by_one.append((index, line, origin))
        self._line_and_origin_by_index[index] = line, origin

    def _put_in_lines(self) -> None:
        """Find the lines of what was admitted together; add them to `_rows_together`.

        That is put off until somebody asks for them: where nothing waits or fails, nobody does, and
        no key is hashed.
        """
        for indices, keys, origins in self._kept_without_lines:
            lines: Sequence[int | None]
            if self._line_up.by == PARTITION:
                lines = [WHOLE] * len(keys)
            else:
                lines = list(map(self._line_cache.__getitem__, keys))
            self._rows_together.append(_rows_in_lines(indices, lines, origins))
        self._kept_without_lines.clear()
        self._kept_key_bytes = 0

    def _lines_and_origins(self) -> dict[int, tuple[int, int]]:
        """Return by index the line and the origin of each record that is in a line."""
        self._put_in_lines()
        # the arrays before are in the dictionary already
        for rows in self._rows_together[self._copied_array_count :]:
            indices, lines, origins = rows.T.tolist()
            lines_and_origins = zip(lines, origins, strict=True)
            self._line_and_origin_by_index.update(zip(indices, lines_and_origins, strict=True))
        self._copied_array_count = len(self._rows_together)
        return self._line_and_origin_by_index

    def _why_blocked(self, line: int, origin: int) -> Cause | None:
        """Return why a record of a line is blocked; None: it is not.

        An earlier one of its line waits or failed here, or one that may be in any line.
        """
        for lowest_origin_by_line in (self._line_up.waiting, self.failed):
            lowest_origin = lowest_origin_by_line.get(line)
            if lowest_origin is not None and lowest_origin < origin:
                return waits_for(self._operator, self.partition_name, lowest_origin)
        if self._stop_of_all_lines is not None and self._stop_of_all_lines.origin < origin:
            return self._stop_of_all_lines.cause
        return None

    def _block_behind(self, line: int, origin: int) -> None:
        """Block what comes behind an origin of a line, from now on."""
        if line not in self.failed:
            self._stopped_lines = None  # they are more now
        self.failed[line] = min(origin, self.failed.get(line, origin))


def list_of(origins: I64 | Sequence[int | None]) -> Sequence[int | None]:
    """Return origins as numbers of Python, whichever form they have."""
    return origins.tolist() if isinstance(origins, np.ndarray) else origins


def _rows_in_lines(indices: I64, lines: Sequence[int | None], origins: I64 | Sequence[int | None]) -> I64:
    """Return index, line and origin of those records that have both a line
    and an origin: `(n, 3) int64`. The three sequences are as long as each other.
    """
    try:
        columns = [indices, np.array(lines, np.int64), np.asarray(origins, np.int64)]
        return np.stack(columns, axis=1)
    except TypeError:
        # NumPy takes no None. Mostly there is none, so it is tried first: to
        # look for one takes as long.
        records = zip(indices.tolist(), lines, list_of(origins), strict=True)
        rows = [record for record in records if None not in record]
        return np.array(rows, np.int64).reshape(-1, 3)


def waits_for(operator: str, partition_name: str, origin: int) -> Cause:
    """Return the cause of a record that waits for the one at the offset `origin` of its
    partition.
    """
    return Cause.of(operator, HELD, f"waits for {partition_name}@{origin}")


class LinedRecords(NamedTuple):
    """The records of one partition that are in lines, row by row.

    Attributes:
        partition_name: ``topic/partition``.
        operator: the bolts that the read task runs.
        rows: ``(n, 3) int64``; its columns are `indices`, `lines` and `origins`.
    """

    partition_name: str
    operator: str
    rows: I64

    @property
    def indices(self) -> I64:
        """Each record's number in the plan."""
        return self.rows[:, _INDEX]

    @property
    def lines(self) -> I64:
        """The line of each record."""
        return self.rows[:, _LINE]

    @property
    def origins(self) -> I64:
        """The offset at which each record was emitted first."""
        return self.rows[:, _ORIGIN]

    def at(self, rows: npt.NDArray[np.bool_] | I64) -> LinedRecords:
        """Return some records: those of a mask, or those at some row numbers."""
        return self._replace(rows=self.rows[rows])


def find_blocked_behind(
    lined_records: Sequence[LinedRecords], failed: I64, open_: I64, best_effort: I64
) -> list[tuple[Cause, I64]]:
    """Return the records that come behind one of their line that failed or is open, by their cause.

    They are pairs of a cause and the indices of all records with that cause. Records that failed
    themselves are not among them. Each record is named by its index.

    1. Leave out records that are best effort.
    2. Find the head of each line: the lowest origin that failed or is open.
    3. Of the candidates in these lines take those behind their head.

    Args:
        lined_records: from each read task, the records in lines.
        failed: indices of the records that failed.
        open_: indices of the roots that are not done when the batch ends:
            they may still fail, or time out.
        best_effort: indices, ascending, of the records that are best effort: they wait for nobody.
    """
    if not lined_records:  # nothing is in order
        return []
    failed = distinct(failed)
    stops = distinct(np.concatenate([failed, open_]))
    if not len(stops):
        return []
    indices_by_cause: list[tuple[Cause, I64]] = []
    for of_task in lined_records:
        # 1. best effort
        ordered = of_task.at(~among(of_task.indices, best_effort))
        # 2. heads: sorted by line, then by origin, the first row of a line has it
        stopping = ordered.at(among(ordered.indices, stops))
        stopping = stopping.at(np.lexsort((stopping.origins, stopping.lines)))
        stopped_lines, first_rows = np.unique(stopping.lines, return_index=True)
        head_by_line = stopping.origins[first_rows]  # row by row as `stopped_lines`
        # 3. what is behind: where origin 3 of a line failed, 5 and 9 are; 2 is not, and went before
        is_stopped = among(ordered.lines, stopped_lines) & ~among(ordered.indices, failed)
        candidates = ordered.at(is_stopped)
        heads = head_by_line[rows_among(candidates.lines, stopped_lines)]
        is_behind = heads < candidates.origins
        indices_by_head: dict[int, list[int]] = {}
        indices_behind = candidates.indices[is_behind].tolist()
        for head, index in zip(heads[is_behind].tolist(), indices_behind, strict=True):
            indices_by_head.setdefault(head, []).append(index)
        for head, indices in indices_by_head.items():
            cause = waits_for(of_task.operator, of_task.partition_name, head)
            indices_by_cause.append((cause, np.array(indices, np.int64)))
    return indices_by_cause
