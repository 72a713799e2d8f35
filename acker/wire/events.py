"""The records of the ack topics as Python values. The codec reads and writes them; the ledger
applies them.

Each class has the fields of its Avro schema in ``acker/wire/``. Packed arrays (positions int64,
values uint64, little-endian) stay bytes, so that a record can be compared, hashed and passed on
without a copy; `positions` and `values` view them as NumPy arrays. Runs are half-open: [start,
end). Times are milliseconds of the session's clock; only fields called ``wall`` are wall time.

Source: docs/design/protocol.md, section 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, assert_never

import numpy as np

from acker.identity import I64, U64
from acker.root_sets.runs import PositionRun as PositionRun
from acker.root_sets.runs import SourceRun as SourceRun
from acker.wire.verdict import DONE_VERDICTS, DoneVerdict, LostVerdict, Verdict


@dataclass(frozen=True, slots=True)
class Take:
    """A session's request to own its group, written to every partition of ``_ack_init`` at every
    start.

    `now` is the session's clock in ms, here and in `Init` and `Tick`; `epoch` is the session's
    number.
    """

    group: str
    session: str
    epoch: int
    now: int
    partitions: int
    sources: tuple[TakeSource, ...]


class TakeSource(NamedTuple):
    """A partition of an input, as a session describes it.

    `from_` is the field ``from`` on the wire.
    """

    source: int
    topic: str
    topic_id: str
    generation: int
    from_: int


@dataclass(frozen=True, slots=True)
class Taken:
    """An acker partition's answer to a `Take`. `refused` is the reason of a refusal, else empty.

    `clock` is the session's clock there, in ms, and `open` are the runs of open roots. Long
    answers come in `parts` records, of which this is number `part`, from 0.
    """

    group: str
    session: str
    epoch: int
    asked_by: str
    refused: str
    part: int
    parts: int
    clock: int
    sources: tuple[TakenSource, ...]
    open: tuple[SourceRun, ...]


class TakenSource(NamedTuple):
    """A source, as an acker partition describes it. `next` is its watermark."""

    source: int
    topic_id: str
    generation: int
    from_: int
    next: int


@dataclass(frozen=True, slots=True)
class Init:
    """Ranges that a session emits, all of one acker partition.

    It is durable before their first tuple exists.
    """

    group: str
    session: str
    epoch: int
    now: int
    wall: int
    timeout_ms: int
    partitions: int
    topic: str
    topic_id: str
    runs: tuple[SourceRun, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    """The clock of a session."""

    group: str
    session: str
    epoch: int
    now: int


@dataclass(frozen=True, slots=True)
class Acks:
    """What one batch of one lane contributes to the roots of one block of one source."""

    lane: str
    seq: int
    group: str
    session: str
    epoch: int
    source: int
    block: int
    runs: tuple[PositionRun, ...]
    positions: bytes
    values: bytes
    absent: tuple[PositionRun, ...]
    touched: bytes
    touched_at: int


class FailCause(NamedTuple):
    """A cause, and the roots that failed of it."""

    operator: str
    error: str
    message: str
    positions: bytes


@dataclass(frozen=True, slots=True)
class Fails:
    """The roots of one block of one source that one batch of one lane failed."""

    lane: str
    seq: int
    group: str
    session: str
    epoch: int
    source: int
    block: int
    causes: tuple[FailCause, ...]


class Lost(NamedTuple):
    """Roots of one source that are lost, all with the same verdict, `reason` on the wire, and cause."""

    reason: LostVerdict
    group: str
    topic: str
    topic_id: str
    operator: str
    error: str
    message: str
    emitted_at: int
    emitted_wall: int
    decided_at: int
    source: int
    positions: bytes


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What became of roots. Each root gets one verdict in its life."""

    acked: tuple[SourceRun, ...]
    absent: tuple[SourceRun, ...]
    lost: tuple[Lost, ...]

    def done(self) -> Iterator[tuple[DoneVerdict, tuple[SourceRun, ...]]]:
        """Yield each verdict after which nothing follows, with the runs of roots that got it."""
        for verdict in DONE_VERDICTS:
            yield verdict, self._runs_of(verdict)

    def done_runs(self) -> Iterator[SourceRun]:
        """Yield all runs of roots that are not lost."""
        for _, runs in self.done():
            yield from runs

    def _runs_of(self, verdict: DoneVerdict) -> tuple[SourceRun, ...]:
        """Return the runs of roots with a verdict that is not a loss."""
        match verdict:
            case Verdict.ACKED:
                return self.acked
            case Verdict.ABSENT:
                return self.absent
            case _:
                assert_never(verdict)


Event = Take | Taken | Init | Tick | Acks | Fails | Verdicts


def positions(packed: bytes) -> I64:
    """View packed positions as a read-only int64 array, without a copy."""
    return np.frombuffer(packed, "<i8")


def values(packed: bytes) -> U64:
    """View packed values as a read-only uint64 array, without a copy."""
    return np.frombuffer(packed, "<u8")


def pack_positions(array: I64) -> bytes:
    """Pack positions for the wire: int64, little-endian."""
    return array.astype("<i8", copy=False).tobytes()


def pack_values(array: U64) -> bytes:
    """Pack values for the wire: uint64, little-endian."""
    return array.astype("<u8", copy=False).tobytes()


FIRST_EMISSIONS: Final = "windhover.first-emissions"
"""The header of a record of `_ack_ack` that says when records were emitted first whose copies it
acks.

Its value is int64 little-endian: a replay source, as many positions of it as there are, and a wall
time for each. Verdicts do not depend on it: without it the times of an acker's metrics begin with
the copy.
"""

FIRST_EMISSION_BYTES: Final = 16
"""What each of them takes in the header, beside 8 bytes for the source."""


class HeaderNumbers(NamedTuple):
    """What a header says of roots of one source: of ``positions[i]`` it has ``numbers[i]``, int64."""

    source: int
    positions: I64
    numbers: I64


def first_emissions(value: bytes | None) -> HeaderNumbers | None:
    """Return the header's numbers, the wall time of each root in ms, ``(n,)``; None: it is no such header."""
    return _header_numbers(value, FIRST_EMISSION_BYTES)


TRACES: Final = "windhover.traces"
"""The header of a record of `_ack_ack` that says to which traces some of its roots belong.

Its value is int64 little-endian: a source, as many positions of it as there are, and for each of
them three numbers, the bytes of W3C's trace id and parent id. Verdicts do not depend on it.
"""

TRACE_BYTES: Final = 32
"""What each of them takes in the header, beside 8 bytes for the source."""


def traces(value: bytes | None) -> HeaderNumbers | None:
    """Return the header's numbers, the ids of each root, ``(n, 3)``; None: it is no such header."""
    traced = _header_numbers(value, TRACE_BYTES)
    if traced is None:
        return None
    return traced._replace(numbers=traced.numbers.reshape(-1, 3))


def pack_root_numbers(source: int, root_positions: I64, numbers: I64) -> bytes:
    """Pack the value of either header: positions of a source, and the numbers of each, ``(n, ...)`` int64."""
    return np.concatenate([[source], root_positions, numbers.ravel()]).astype("<i8").tobytes()


def _header_numbers(value: bytes | None, root_bytes: int) -> HeaderNumbers | None:
    """Read the source, its positions, and all their numbers in one row.

    A root takes `root_bytes` of it.
    """
    if not value or len(value) % root_bytes != 8:
        return None
    words = np.frombuffer(value, "<i8").astype(np.int64, copy=False)
    root_count = len(value) // root_bytes
    return HeaderNumbers(int(words[0]), words[1 : 1 + root_count], words[1 + root_count :])
