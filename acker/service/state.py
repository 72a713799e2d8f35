"""State: what an acker partition needs after a restart, as records of ``_ack_state``, and the last one read
again.

Each transaction writes one `Carried` for each bin that changed, then one `State`, cut into pieces if it is
long. So a restart reads ``_ack_state`` from its end, and takes the last State of which all pieces are there,
with the bins before it. What stands behind these is of a transaction that was committed in part
(docs/design/protocol.md, section 5.3): it does not count, and the next State writes all bins anew.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from acker.errors import CodecError, Disagreement
from acker.kafka.port import Headers, Log, Record, TopicPartition
from acker.ledger.cohort import Session
from acker.service.passed_over import CURE, kind_of, marked_offset, read_ours
from acker.service.state_notes import StateNotes, read_notes
from acker.wire.clusters import cluster_of, require_cluster
from acker.wire.codec import HEADER_BYTES, READ_BYTES_MAX, Codec, load_schema
from acker.wire.item_counts import require_few_items
from acker.wire.leader_epochs import LeaderEpochs, read_epochs
from acker.writer_clocks import WriterTime, writer_time

BIN_PART: Final = 1_000_000
"""Part number of the first bin."""

PIECE_BYTES: Final = 800_000
"""Most compressed bytes in one piece."""

STATE_BYTES_MAX: Final = 128 << 20
"""Most unpacked bytes of a State: what a million ranges need, of 32 bytes, each of an emission of its own, of
60 bytes. A reader takes twice as much for a moment. Deflate packs a gigabyte into a megabyte."""

STATE_ITEMS_MAX: Final = 1_000_000
"""Most sources, sessions, lanes, emissions and the like of a State altogether, and most ranges. Each takes
half a kilobyte of memory."""

CARRIED_BYTES_MAX: Final = 16 << 20
"""Most unpacked bytes of a bin: ten times what its 32,768 roots need."""

CARRIED_ITEMS_MAX: Final = 32_768
"""Most ranges of a bin: each has an open root."""

_COUNTED_FROM_BYTES: Final = 1 << 20
"""In fewer bytes there is no room for too many items."""

_PART_DIGITS: Final = 9

NO_BIN: Final = -1
RESTART: Final = -1


@dataclass(frozen=True, slots=True)
class StatePart:
    """One record of ``_ack_state``."""

    partition: int
    part: int
    parts: int
    body: bytes


class StoredSource(NamedTuple):
    """A source, and its watermark."""

    source: int
    group: str
    topic: str
    topic_id: str
    generation: int
    from_: int
    next: int


class StoredSession(NamedTuple):
    """A session, and its clock if it is `timed`."""

    group: str
    epoch: int
    session: str
    holds: bool
    timed: bool
    counted: int
    read: int


class StoredPending(NamedTuple):
    """A tick or take that does not count yet."""

    session: int
    take: bool
    now: int
    before: int


class StoredLane(NamedTuple):
    session: int
    name: str
    seq: int
    sources: bytes
    blocks: bytes
    crcs: bytes


class StoredEmission(NamedTuple):
    """What the ranges of one `Init` share."""

    session: int
    topic: str
    topic_id: str
    now: int
    wall: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class State:
    """The whole state of an acker partition, except the values of open roots."""

    partition: int
    partitions: int
    init: int
    ack: int
    fail: int
    safe: int
    verdict: int
    sources: tuple[StoredSource, ...]
    sessions: tuple[StoredSession, ...]
    pending: tuple[StoredPending, ...]
    acks: tuple[StoredLane, ...]
    fails: tuple[StoredLane, ...]
    emissions: tuple[StoredEmission, ...]
    ranges: bytes


class CarriedRange(NamedTuple):
    """The open roots of a range, with what each of them misses and the deadlines that were moved."""

    source: int
    start: int
    at: bytes
    missing: bytes
    touched: bytes
    deadlines: bytes


@dataclass(frozen=True, slots=True)
class Carried:
    """The ranges of a bin that have open roots."""

    ranges: tuple[CarriedRange, ...]


class StoredRange(NamedTuple):
    emission: int
    source: int
    bin: int
    size: int
    start: int
    ack_from: int


_RANGE = np.dtype(list(zip(StoredRange._fields, ("<i4", "<i4", "<i4", "<i4", "<i8", "<i8"), strict=True)))


Stored = StatePart | State | Carried
S = TypeVar("S", State, Carried)


_SCHEMAS: Final[Mapping[type[Stored], Mapping[str, Any]]] = MappingProxyType(
    {
        StatePart: load_schema("acker.wire", "state_part"),
        State: load_schema("acker.wire", "state"),
        Carried: load_schema("acker.wire", "state_carried"),
    }
)


@cache
def state_codec() -> Codec[Stored]:
    return Codec(_SCHEMAS)


def pack_ranges(ranges: Iterable[StoredRange]) -> bytes:
    """Pack ranges as columns, which compress well, since neighbouring values of a column are similar."""
    rows = np.array([tuple(stored) for stored in ranges], _RANGE)
    return b"".join(rows[name].tobytes() for name in StoredRange._fields)


def unpack_ranges(packed: bytes) -> Iterator[StoredRange]:
    """Unpack what `pack_ranges` packed; `CodecError` if the columns are of different lengths."""
    range_count, extra_bytes = divmod(len(packed), _RANGE.itemsize)
    if extra_bytes:
        raise CodecError(f"live ranges of State: {len(packed)} bytes are not a multiple of {_RANGE.itemsize}")
    columns: list[list[int]] = []
    column_start = 0
    for name in StoredRange._fields:
        column: npt.NDArray[np.signedinteger] = np.frombuffer(packed, _RANGE[name], range_count, column_start)
        columns.append(column.tolist())
        column_start += column.nbytes
    return (StoredRange(*row) for row in zip(*columns, strict=True))


def part_key(partition: int, part: int) -> bytes:
    return f"{partition}/{part}".encode()


def part_of_key(partition: int, key: bytes | None) -> int | None:
    """Return the part number in a key; None for a key that is not of this partition's State."""
    number = (key or b"").rpartition(b"/")[2]
    if len(number) > _PART_DIGITS or not number.isdigit() or not number.isascii():
        return None
    return int(number) if key == part_key(partition, int(number)) else None


class StateSize(NamedTuple):
    """How large a State is, in what limits it: ranges, other items, and bytes before they are packed."""

    ranges: int
    items: int
    bytes: int

    @property
    def share(self) -> float:
        """What part of a limit it takes, of the one that it is nearest to; above 1 nobody could read it."""
        return max(self.ranges / STATE_ITEMS_MAX, self.items / STATE_ITEMS_MAX, self.bytes / STATE_BYTES_MAX)

    def __str__(self) -> str:
        """Describe it beside its limits."""
        return (
            f"{self.ranges:,} live ranges and {self.items:,} other items in {self.bytes:,} bytes; at most"
            f" {STATE_ITEMS_MAX:,} of each in {STATE_BYTES_MAX:,} can be read again"
        )


EMPTY_SIZE: Final = StateSize(0, 0, 0)

FILLING_SHARE: Final = 0.5
"""A State that takes this part of a limit is named by acker, `status` and `check`; above 1 none is there."""

NEARLY_FULL_SHARE: Final = 0.9
"""At this part it is CRITICAL for `check`."""

FULL_CURE: Final = (
    "let queries take larger batches, shorten timeouts and holds, or lower max_spout_pending;"
    " `windhover roots` shows what is open, and `windhover release` frees what a group has open"
)


class EncodedState(NamedTuple):
    """A State as it is written, before it is packed."""

    partition: int
    encoded: bytes
    size: StateSize

    def parts(self) -> list[StatePart]:
        """Return it in pieces that fit into records.

        Raises `CodecError`: it is larger than what can be read again; then nothing is written.
        """
        if self.size.share > 1:
            raise CodecError(f"State of acker partition {self.partition} would have {self.size}: {FULL_CURE}")
        body = zlib.compress(self.encoded, 1)
        pieces = [body[start : start + PIECE_BYTES] for start in range(0, len(body), PIECE_BYTES)]
        return [StatePart(self.partition, part, len(pieces), cut) for part, cut in enumerate(pieces)]


def encode_state(codec: Codec[Stored], state: State) -> EncodedState:
    """Encode a State, and measure it as its readers do."""
    encoded = codec.encode(state)
    lists = (state.sources, state.sessions, state.pending, state.acks, state.fails, state.emissions)
    size = StateSize(len(state.ranges) // _RANGE.itemsize, sum(map(len, lists)), len(encoded))
    return EncodedState(state.partition, encoded, size)


def parts_of(codec: Codec[Stored], state: State) -> list[StatePart]:
    """Return a State in pieces, as `EncodedState.parts` does."""
    return encode_state(codec, state).parts()


def bin_of(codec: Codec[Stored], partition: int, number: int, carried: Carried) -> StatePart:
    return StatePart(partition, BIN_PART + number, 1, zlib.compress(codec.encode(carried), 1))


def state_from(codec: Codec[Stored], parts: Mapping[int, StatePart]) -> State | None:
    """Join the pieces of a State and unpack it; None if `parts` lacks one of them.

    Raises `CodecError`: it does not unpack, or to more than `STATE_BYTES_MAX`, or has too many items.
    """
    head = parts.get(0)
    if head is None or any(part not in parts for part in range(head.parts)):
        return None
    body = b"".join(parts[part].body for part in range(head.parts))
    state = _open(codec, body, State, Unpacked(STATE_BYTES_MAX, STATE_ITEMS_MAX))
    if len(state.ranges) > STATE_ITEMS_MAX * _RANGE.itemsize:
        raise CodecError(
            f"State has {len(state.ranges) // _RANGE.itemsize:,} live ranges, more than {STATE_ITEMS_MAX:,}"
        )
    return state


def carried_from(codec: Codec[Stored], part: StatePart) -> Carried:
    """Unpack a bin; `CodecError`: as of `state_from`, by the limits of a bin."""
    return _open(codec, part.body, Carried, Unpacked(CARRIED_BYTES_MAX, CARRIED_ITEMS_MAX))


class Unpacked(NamedTuple):
    """How far something may be unpacked: to so many bytes, and to so many items in its arrays."""

    bytes_max: int
    items_max: int


def _open(codec: Codec[Stored], body: bytes, kind: type[S], limits: Unpacked) -> S:
    try:
        unpacking = zlib.decompressobj()
        unpacked = unpacking.decompress(body, limits.bytes_max)
    except zlib.error as error:
        raise CodecError(f"{kind.__name__} cannot be unpacked: {error}") from error
    if not unpacking.eof:
        raise CodecError(
            f"{kind.__name__} of {len(body):,} bytes is cut off, or unpacks to more than {limits.bytes_max:,}"
        )
    if len(unpacked) > _COUNTED_FROM_BYTES and unpacked[:HEADER_BYTES] == codec.header(kind):
        require_few_items(unpacked, HEADER_BYTES, _SCHEMAS[kind], limits.items_max)
    value = codec.decode(unpacked, limits.bytes_max)
    if not isinstance(value, kind):
        raise CodecError(f"{type(value).__name__} where {kind.__name__} belongs")
    return value


_TAIL: Final = 64
"""Number of last records of the state log that are read first; each further try reads 8 times as many."""


SHARED_HEADER: Final = "windhover.shared"
"""In the first piece of a State: sessions of which two processes may live, and until which clock.

A JSON list of ``[group, epoch, session, until_ms]``. A reader may pass it over: then a root that one of them
emits may time out up to a second early.
"""


def shared_headers(shared: Mapping[Session, int]) -> Headers:
    if not shared:
        return ()
    rows = [[*session, until_ms] for session, until_ms in shared.items()]
    return ((SHARED_HEADER, json.dumps(rows).encode()),)


def read_shared(headers: Headers) -> dict[Session, int]:
    """Return what the header says; nothing where it is missing, or something else wrote it."""
    try:
        value = dict(headers).get(SHARED_HEADER) or b"[]"
        rows = json.loads(value) if len(value) <= READ_BYTES_MAX else []
        return {
            Session(str(group), int(epoch), str(session)): int(until_ms)
            for group, epoch, session, until_ms in rows
        }
    except (ValueError, TypeError, OverflowError, RecursionError):
        return {}


class LastState(NamedTuple):
    """A state, its bins, the wall time at which it was written, and what its writer noted beside it.

    `shared` are the sessions of which two processes may live, each with the clock at which that ends.
    `leader_epochs` are those in which roots were emitted; none where a former version wrote it.
    `is_last` is False if pieces or bins of another State follow that do not count.
    `cluster` is the id of the cluster in which it was written; empty where a former version wrote it.
    `written` is when by its writer's clock, and by the broker's.
    """

    state: State
    bins: dict[int, Carried]
    at_ms: int
    notes: StateNotes
    shared: dict[Session, int]
    leader_epochs: LeaderEpochs
    is_last: bool
    cluster: str
    written: WriterTime = WriterTime()


def read_last_state(
    log: Log, where: TopicPartition, codec: Codec[Stored], *, wait_ms: int
) -> LastState | None:
    """Read the last State of an acker partition; None when it never wrote one.

    Raises `Disagreement`: it is incomplete, unreadable, or of another cluster; `OutOfRange`: the log was
    shortened meanwhile.
    """
    end = log.stable_ends([where])[where]
    start = log.starts([where])[where]
    reach = _TAIL
    while True:
        read_from = max(start, end - reach)
        latest, complete = _last_records(log, where, codec, read_from, end, wait_ms)
        # an error where one cannot be read, also if an older State is complete: it may be of a newer version
        parts = _parts(codec, latest)
        is_last = complete == latest
        if not is_last:
            parts = _parts(codec, complete)
        last_state = _loaded(log, codec, complete, parts, is_last=is_last)
        if last_state is not None:
            return last_state
        if read_from == start:
            if not latest:
                return None
            raise Disagreement(
                f"{where.topic}/{where.partition} holds pieces of a State but not all of them; is its"
                " cleanup.policy compact? Begin anew under another acker.topic_prefix"
            )
        reach *= 8


def _loaded(
    log: Log,
    codec: Codec[Stored],
    records: Mapping[int, Record],
    parts: Mapping[int, StatePart],
    *,
    is_last: bool,
) -> LastState | None:
    """Return the State that is in records, by the numbers of their parts; None: a piece or bin is missing.

    Bins are written when they change, so some are older than the State, perhaps older than what was read.

    Args:
        parts: what the records decode to.
        is_last: whether no newer State was begun.
    """
    with _named(records.get(0)):
        state = state_from(codec, parts)
    if state is None:
        return None
    first_piece = records[0]
    require_cluster(first_piece.place, first_piece.headers, first_piece.value, log.cluster_id())
    numbers_needed = {row.bin for row in unpack_ranges(state.ranges)} - {NO_BIN}
    if not all(BIN_PART + number in parts for number in numbers_needed):
        return None
    bins: dict[int, Carried] = {}
    for number in numbers_needed:
        with _named(records[BIN_PART + number]):
            bins[number] = carried_from(codec, parts[BIN_PART + number])
    headers = first_piece.headers
    return LastState(
        state=state,
        bins=bins,
        at_ms=max(record.timestamp_ms for record in records.values()),
        notes=read_notes(headers),
        shared=read_shared(headers),
        leader_epochs=read_epochs(headers),
        is_last=is_last,
        cluster=cluster_of(headers),
        written=writer_time(first_piece),
    )


@contextmanager
def _named(record: Record | None) -> Iterator[None]:
    """Name the record in the error of what it holds: a State that does not unpack, or to too much."""
    try:
        yield
    except CodecError as error:
        if record is None:
            raise
        raise _unreadable(record, str(error)) from error


def not_needed_from(offset: int) -> int:
    """Return what `State.verdict` is where no range needs a verdict and those of its own transaction begin at
    `offset`. A former version took any negative number for that, and wrote -1.
    """
    return -2 - offset


def verdicts_from(log: Log, place: TopicPartition, state: State, end: int) -> int:
    """Return from which offset on the verdicts up to `end` are read; what is not needed may be gone."""
    if state.verdict >= 0:
        return state.verdict
    own_start = -2 - state.verdict  # see `not_needed_from`
    return end if own_start < 0 else max(log.starts([place])[place], own_start)


def _last_records(
    log: Log, place: TopicPartition, codec: Codec[Stored], start: int, end: int, wait_ms: int
) -> tuple[dict[int, Record], dict[int, Record]]:
    """Return the last record of each part, and the same as of the last State that has all of its pieces.

    A mark lets pass over what cannot be read, and over nothing else: passing over a State that is sound would
    lose what it says.
    """
    latest: dict[int, Record] = {}
    complete: dict[int, Record] = {}
    passed_offsets: set[int] = set()
    must_repeat = True
    while must_repeat:
        latest, complete = {}, {}
        next_piece, piece_count = 0, -1
        for record in read_ours(log, place, start, end, committed=True, wait_ms=wait_ms):
            part = part_of_key(place.partition, record.key)
            is_passed = record.offset in passed_offsets and not is_sound_part(codec, part, record)
            if part is not None and record.value is not None and not is_passed:
                latest[part] = record
                if part == 0:
                    next_piece, piece_count = 0, _pieces(codec, record)
                next_piece = next_piece + 1 if part == next_piece else 0
                if next_piece == piece_count:
                    complete = dict(latest)
            elif (offset := marked_offset(record)) is not None:
                passed_offsets.add(offset)
        must_repeat = any(
            record.offset in passed_offsets and not is_sound_part(codec, part, record)
            for part, record in latest.items()
        )
    return latest, complete


def _pieces(codec: Codec[Stored], first_piece: Record) -> int:
    """Return how many pieces a State has, by its first one; -1 if that cannot be read."""
    try:
        return _part(codec, 0, first_piece).parts
    except Disagreement:  # it is only an error where no later State has taken its place
        return -1


def is_sound_part(codec: Codec[Stored], number: int | None, record: Record) -> bool:
    """Return whether a record is the piece or bin that its key names; a whole one must unpack, too."""
    try:
        part = None if number is None else _part(codec, number, record)
        if part is not None and part.part >= BIN_PART:
            carried_from(codec, part)
        elif part is not None and part.parts == 1:
            state_from(codec, {0: part})
    except (CodecError, Disagreement):
        return False
    return part is not None


def _parts(codec: Codec[Stored], records: Mapping[int, Record]) -> dict[int, StatePart]:
    return {number: _part(codec, number, record) for number, record in records.items()}


def _part(codec: Codec[Stored], number: int, record: Record) -> StatePart:
    try:
        part = codec.decode(record.value)
    except CodecError as error:
        raise _unreadable(record, f"{error} ({kind_of(record.value)})") from error
    if not isinstance(part, StatePart) or (part.partition, part.part) != (record.partition, number):
        raise _unreadable(record, "it is not the part of this partition's State that its key names")
    return part


@contextmanager
def loading(where: TopicPartition) -> Iterator[None]:
    """While a State is read and loaded, turn errors of its content into `Disagreement`."""
    try:
        yield
    except (CodecError, LookupError, ValueError, OverflowError) as error:
        raise Disagreement(
            f"{where.topic}/{where.partition} holds a State that cannot be loaded"
            f" ({type(error).__name__}: {error}); was it written by another program? Begin anew under another"
            " acker.topic_prefix"
        ) from error


def _unreadable(record: Record, why: str) -> Disagreement:
    return Disagreement(
        f"{record.place} cannot be read as State: {why}. If a newer"
        f" version of Windhover wrote it, run that; {CURE}, so that the State before it counts. Where the"
        " topic holds that no more, begin anew under another acker.topic_prefix"
    )
