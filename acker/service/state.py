"""State: what an acker partition needs after a restart. It is written to ``_ack_state`` and read from there.

Each transaction writes one `Carried` for each bin that changed, then one
`State`, cut into pieces if it is long. So a restart reads ``_ack_state`` from
its end, and takes the last State of which all pieces are there, with the bins
before it. Pieces and bins behind that State are of a transaction that was
committed in part (docs/design/protocol.md, section 5.3): they do not count,
and the next State writes all bins anew.

A *part* is one record: a *piece* of a State, numbered from 0, or a *bin*, numbered from `BIN_PART`,
which has the values of roots that State carries. A *range* is a cohort of the ledger: the roots of
one init in one block. *Live* ranges have open roots. A *lane* is one query of one session, as a
writer of numbered batches.

An operator *marks* a record that cannot be read, so that all pass over it
(`acker.service.passed_over`).

The classes up to `StoredRange` are those of the published schema: hence their short names of
fields.
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
from acker.service.passed_over import CURE, likely_writer, offset_to_pass_over, read_ack_topic
from acker.service.state_notes import StateNotes, read_notes
from acker.wire.clusters import cluster_of, require_cluster
from acker.wire.codec import HEADER_BYTES, READ_BYTES_MAX, Codec, load_schema
from acker.wire.item_counts import require_few_items
from acker.wire.leader_epochs import LeaderEpochs, read_epochs
from acker.writer_clocks import WriterTime, writer_time

BIN_PART: Final = 1_000_000
"""Part number of bin 0; those of a State's pieces are 0, 1, 2 and so on."""

PIECE_BYTES: Final = 800_000
"""Most compressed bytes in one piece."""

STATE_BYTES_MAX: Final = 128 << 20
"""Most unpacked bytes of a State: what a million ranges need, of 32 bytes,
each of an emission of its own, of 60 bytes. A reader takes twice as much for
a moment. Deflate packs a gigabyte into a megabyte."""

STATE_ITEMS_MAX: Final = 1_000_000
"""Most sources, sessions, lanes, emissions and the like of a State
altogether, and most ranges. Each takes half a kilobyte of memory."""

CARRIED_BYTES_MAX: Final = 16 << 20
"""Most unpacked bytes of a bin: ten times what its 32,768 roots need."""

CARRIED_ITEMS_MAX: Final = 32_768
"""Most ranges of a bin: each has an open root."""

_COUNTED_FROM_BYTES: Final = 1 << 20
"""In fewer bytes there is no room for too many items."""

_PART_DIGITS: Final = 9
"""A part number has so many digits at most."""

NO_BIN: Final = -1
"""The bin of a range that State does not carry by value."""

RESTART: Final = -1
"""`StoredPending.before` of a tick, and of the take of a restart."""


@dataclass(frozen=True, slots=True)
class StatePart:
    """One record of ``_ack_state``: a piece of a State, or a bin.

    Attributes:
        part: its number.
        parts: how many pieces the State has; 1 for a bin.
        body: the bytes of this piece.
    """

    partition: int
    part: int
    parts: int
    body: bytes


class StoredSource(NamedTuple):
    """A source, with `from_`, the first position that its session reads, and `next`, its watermark."""

    source: int
    group: str
    topic: str
    topic_id: str
    generation: int
    from_: int
    next: int


class StoredSession(NamedTuple):
    """A session.

    Attributes:
        holds: whether it owns its group.
        timed: whether it has a clock; else `counted` and `read` are 0.
        counted: its clock (ms) by the ticks that count; `read`: by all ticks
            that were read.
    """

    group: str
    epoch: int
    session: str
    holds: bool
    timed: bool
    counted: int
    read: int


class StoredPending(NamedTuple):
    """A tick or take that does not count yet.

    Attributes:
        session: its number in State.
        take: whether it is a take.
        now: its session's clock, ms.
        before: what the former owner's clock showed when the take was read,
            ms; or `RESTART`.
    """

    session: int
    take: bool
    now: int
    before: int


class StoredLane(NamedTuple):
    """The last batch of a lane: its number, and three columns with an entry for each record of it."""

    session: int
    name: str
    seq: int
    sources: bytes
    blocks: bytes
    crcs: bytes


class StoredEmission(NamedTuple):
    """What the ranges of one `Init` share, with the number of its session."""

    session: int
    topic: str
    topic_id: str
    now: int
    wall: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class State:
    """The whole state of an acker partition, except the values of open roots.

    Attributes:
        init: the next offset to apply of ``_ack_init``; so `ack` and `fail`
            of their topics.
        safe: the first contribution that a restart reads again, up to `ack`.
        verdict: the first verdict that a restart reads; negative: see
            `not_needed_from`.
        pending: ticks and takes that do not count yet, in their order.
        acks: the marks of lanes at `safe`; `fails`: those at `fail`.
        ranges: rows of `StoredRange`, packed by `pack_ranges`.
    """

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
    """The open roots of a range, with what each of them misses and the deadlines that were moved.

    Attributes:
        at: indices of the open roots, int32; `missing` has the value of each,
            uint64.
        touched: indices of roots with a deadline of their own, int32;
            `deadlines` has it, int64, ms.
    """

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
    """A range with open roots, with the numbers of its emission and bin."""

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
    """Return the codec of the records of ``_ack_state``, and of what their bodies unpack to."""
    return Codec(_SCHEMAS)


def pack_ranges(ranges: Iterable[StoredRange]) -> bytes:
    """Pack ranges as bytes, column by column: similar values are neighbours then, which
    compresses well.
    """
    rows = np.array([tuple(stored) for stored in ranges], _RANGE)
    return b"".join(rows[name].tobytes() for name in StoredRange._fields)


def unpack_ranges(packed: bytes) -> Iterator[StoredRange]:
    """Unpack what `pack_ranges` packed; `CodecError` if the bytes are no whole number of ranges."""
    range_count, extra_bytes = divmod(len(packed), _RANGE.itemsize)
    if extra_bytes:
        raise CodecError(f"live ranges of State: {len(packed)} bytes are not a multiple of {_RANGE.itemsize}")
    columns: list[list[int]] = []
    column_start = 0  # in bytes
    for name in StoredRange._fields:
        column: npt.NDArray[np.signedinteger] = np.frombuffer(packed, _RANGE[name], range_count, column_start)
        columns.append(column.tolist())
        column_start += column.nbytes
    return (StoredRange(*row) for row in zip(*columns, strict=True))


def part_key(partition: int, part: int) -> bytes:
    """Return the key of the record of a part, such as ``3/0``."""
    return f"{partition}/{part}".encode()


def part_of_key(partition: int, key: bytes | None) -> int | None:
    """Return the part number in the key of a record of State, such as 0 for ``3/0``.

    None: it is not a key of this acker partition's State.
    """
    _, _, digits = (key or b"").rpartition(b"/")
    if len(digits) > _PART_DIGITS or not digits.isdigit() or not digits.isascii():
        return None
    part = int(digits)
    # the whole key is compared: another partition may stand before the number, or zeros
    return part if key == part_key(partition, part) else None


class StateSize(NamedTuple):
    """How large a State is, in what limits it: ranges, other items, and bytes before they are packed."""

    ranges: int
    items: int
    bytes: int

    @property
    def share(self) -> float:
        """The part that it takes of the limit to which it is nearest; above 1 nobody could read it."""
        return max(self.ranges / STATE_ITEMS_MAX, self.items / STATE_ITEMS_MAX, self.bytes / STATE_BYTES_MAX)

    def __str__(self) -> str:
        """Return the numbers beside their limits, for messages."""
        return (
            f"{self.ranges:,} live ranges and {self.items:,} other items in {self.bytes:,} bytes; at most"
            f" {STATE_ITEMS_MAX:,} of each in {STATE_BYTES_MAX:,} can be read again"
        )


EMPTY_SIZE: Final = StateSize(0, 0, 0)

FILLING_SHARE: Final = 0.5
"""A State that takes this share of a limit is reported by acker, `status` and
`check`. None is above 1: it is not written."""

NEARLY_FULL_SHARE: Final = 0.9
"""From this share on it is CRITICAL for `check`."""

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
        """Return the State, compressed, in pieces that each fit into a record.

        Raises `CodecError`: it is larger than what can be read again, so that it
        must not be written.
        """
        if self.size.share > 1:
            raise CodecError(f"State of acker partition {self.partition} would have {self.size}: {FULL_CURE}")
        body = zlib.compress(self.encoded, 1)
        pieces = [body[start : start + PIECE_BYTES] for start in range(0, len(body), PIECE_BYTES)]
        return [StatePart(self.partition, number, len(pieces), piece) for number, piece in enumerate(pieces)]


def encode_state(codec: Codec[Stored], state: State) -> EncodedState:
    """Encode a State, and measure it in what limits its readers: ranges, other items and bytes."""
    encoded = codec.encode(state)
    item_lists = (state.sources, state.sessions, state.pending, state.acks, state.fails, state.emissions)
    size = StateSize(
        ranges=len(state.ranges) // _RANGE.itemsize,  # they are packed, as rows of one size
        items=sum(map(len, item_lists)),
        bytes=len(encoded),
    )
    return EncodedState(state.partition, encoded, size)


def parts_of(codec: Codec[Stored], state: State) -> list[StatePart]:
    """Return a State in pieces, as `EncodedState.parts` does."""
    return encode_state(codec, state).parts()


def bin_part(codec: Codec[Stored], partition: int, number: int, carried: Carried) -> StatePart:
    """Return the record of bin `number` with its ranges; a bin is never cut into pieces."""
    body = zlib.compress(codec.encode(carried), 1)
    return StatePart(partition, part=BIN_PART + number, parts=1, body=body)


def unpack_state(codec: Codec[Stored], parts: Mapping[int, StatePart]) -> State | None:
    """Join the pieces of a State, and unpack it; None if one of them is missing in `parts`.

    `parts` are records of State by their numbers, of which pieces have 0, 1, 2
    and so on. Raises `CodecError`: it does not unpack, or to more than
    `STATE_BYTES_MAX`, or has too many items.
    """
    first_piece = parts.get(0)
    if first_piece is None:
        return None
    piece_numbers = range(first_piece.parts)
    if any(number not in parts for number in piece_numbers):
        return None
    body = b"".join(parts[number].body for number in piece_numbers)
    state = _unpack(codec, body, State, UnpackLimits(STATE_BYTES_MAX, STATE_ITEMS_MAX))
    # ranges are packed, as rows of one size
    range_count = len(state.ranges) // _RANGE.itemsize
    if len(state.ranges) > STATE_ITEMS_MAX * _RANGE.itemsize:
        raise CodecError(f"State has {range_count:,} live ranges, more than {STATE_ITEMS_MAX:,}")
    return state


def unpack_carried(codec: Codec[Stored], part: StatePart) -> Carried:
    """Unpack a bin; `CodecError`: it does not unpack, or to more than a bin may have."""
    return _unpack(codec, part.body, Carried, UnpackLimits(CARRIED_BYTES_MAX, CARRIED_ITEMS_MAX))


class UnpackLimits(NamedTuple):
    """To how many bytes something may be unpacked, and to how many items in its arrays."""

    bytes_max: int
    items_max: int


def _unpack(codec: Codec[Stored], body: bytes, kind: type[S], limits: UnpackLimits) -> S:
    """Unpack and decode the body of a State or a bin, whoever wrote it.

    Raises `CodecError`: it is no value of the class `kind`, or has more bytes or
    items than `limits` allow.
    """
    try:
        unpacking = zlib.decompressobj()
        unpacked = unpacking.decompress(body, limits.bytes_max)
    except zlib.error as error:
        raise CodecError(f"{kind.__name__} cannot be unpacked: {error}") from error
    if not unpacking.eof:  # the end of the compressed bytes was not reached
        raise CodecError(
            f"{kind.__name__} of {len(body):,} bytes is cut off, or unpacks to more than {limits.bytes_max:,}"
        )
    # items are counted before they are decoded: each takes a hundred times
    # its bytes in memory
    if len(unpacked) > _COUNTED_FROM_BYTES and unpacked[:HEADER_BYTES] == codec.header(kind):
        require_few_items(unpacked, HEADER_BYTES, _SCHEMAS[kind], limits.items_max)
    value = codec.decode(unpacked, limits.bytes_max)
    if not isinstance(value, kind):
        raise CodecError(f"{type(value).__name__} where {kind.__name__} belongs")
    return value


_FIRST_READ_RECORDS: Final = 64
"""So many last records of the state log are read first; each further read is of 8 times as many."""


SHARED_HEADER: Final = "windhover.shared"
"""In the first piece of a State: sessions of which two processes may live, and until which clock.

A JSON list of ``[group, epoch, session, until_ms]``. A reader may pass it
over: then a root that one of them emits may time out up to a second early.
"""


def shared_headers(shared: Mapping[Session, int]) -> Headers:
    """Return the header of sessions, each with the clock until which two processes may live; or none."""
    if not shared:
        return ()
    rows = [[*session, until_ms] for session, until_ms in shared.items()]
    return ((SHARED_HEADER, json.dumps(rows).encode()),)


def read_shared_until_ms(headers: Headers) -> dict[Session, int]:
    """Return the sessions of which two processes may live, each with the clock (ms) at which that
    ends: what `shared_headers` wrote.

    Empty: there is no such header, or another program wrote it.
    """
    value = dict(headers).get(SHARED_HEADER) or b"[]"
    if len(value) > READ_BYTES_MAX:
        return {}
    until_ms_by_session: dict[Session, int] = {}
    try:
        for group, epoch, session_id, until_ms in json.loads(value):
            session = Session(str(group), int(epoch), str(session_id))
            until_ms_by_session[session] = int(until_ms)
    except (ValueError, TypeError, OverflowError, RecursionError):
        # wrong in part: none of it counts, and a root may time out up to a second early
        return {}
    return until_ms_by_session


class LastState(NamedTuple):
    """A State that was read, with its bins and headers.

    Attributes:
        bins: by their numbers.
        at_ms: wall time of its newest record.
        notes: what its writer noted beside it.
        shared: sessions of which two processes may live, each with the clock
            at which that ends.
        leader_epochs: those in which roots were emitted; none if a former
            version wrote it.
        is_last: False if pieces or bins of another State follow, which do not
            count.
        cluster: the id of the cluster in which it was written; empty if a
            former version wrote it.
        written: when, by its writer's clock and by the broker's.
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
    log: Log, place: TopicPartition, codec: Codec[Stored], *, wait_ms: int
) -> LastState | None:
    """Read the last State of an acker partition; None if it never wrote one.

    Raises:
        Disagreement: it is incomplete, unreadable, or of another cluster.
        OutOfRange: the log was shortened meanwhile.
    """
    end = log.stable_ends([place])[place]
    start = log.starts([place])[place]
    records_to_read = _FIRST_READ_RECORDS
    while True:
        # the last records of the log, 8 times as many of them in each turn
        read_start = max(start, end - records_to_read)
        records = _read_last_records(log, place, codec, read_start, end, wait_ms)
        # This raises if the latest cannot be read, also if an older State is
        # complete: a newer version may have written it.
        parts = _decode_parts(codec, records.latest)
        # `complete` has the parts of the last State of which all pieces are there. False: behind it
        # there are pieces or bins of another one
        is_last = records.complete == records.latest
        if not is_last:
            parts = _decode_parts(codec, records.complete)
        last_state = _unpack_last_state(log, codec, records.complete, parts, is_last=is_last)
        if last_state is not None:
            return last_state
        if read_start == start:  # nothing is left to read
            if not records.latest:
                return None
            raise Disagreement(
                f"{place.topic}/{place.partition} holds pieces of a State but not all of them; is its"
                " cleanup.policy compact? Begin anew under another acker.topic_prefix"
            )
        records_to_read *= 8


def _unpack_last_state(
    log: Log,
    codec: Codec[Stored],
    records: Mapping[int, Record],
    parts: Mapping[int, StatePart],
    *,
    is_last: bool,
) -> LastState | None:
    """Return the State that is in some records, with its bins; None: a piece or bin is missing.

    A State is cut into pieces. Its bins, records with the values of roots, are
    written when they change. So a bin may be older than the State. It may even lie
    before the records that were read: then it is missing.

    Args:
        records: of ``_ack_state``, by the numbers of their parts (pieces or bins).
        parts: what the records decode to, by the same numbers.
        is_last: whether no newer State was begun.

    Raises:
        Disagreement: it cannot be read, or was written in another cluster.
    """
    # without piece 0 `unpack_state` returns None, and names nothing
    with _disagreement_naming(records.get(0)):
        state = unpack_state(codec, parts)
    if state is None:
        return None
    first_piece = records[0]
    require_cluster(first_piece.place, first_piece.headers, first_piece.value, log.cluster_id())
    needed_bin_numbers = {stored_range.bin for stored_range in unpack_ranges(state.ranges)}
    needed_bin_numbers -= {NO_BIN}
    if not all(BIN_PART + number in parts for number in needed_bin_numbers):
        return None
    bins: dict[int, Carried] = {}
    for number in needed_bin_numbers:
        with _disagreement_naming(records[BIN_PART + number]):
            bins[number] = unpack_carried(codec, parts[BIN_PART + number])
    headers = first_piece.headers
    return LastState(
        state=state,
        bins=bins,
        # the newest of all records, since bins may be older
        at_ms=max(record.timestamp_ms for record in records.values()),
        notes=read_notes(headers),
        shared=read_shared_until_ms(headers),
        leader_epochs=read_epochs(headers),
        is_last=is_last,
        cluster=cluster_of(headers),
        written=writer_time(first_piece),
    )


@contextmanager
def _disagreement_naming(record: Record | None) -> Iterator[None]:
    """Turn a `CodecError` into a `Disagreement` that names the record; without a record it stays as it is."""
    try:
        yield
    except CodecError as error:
        if record is None:
            raise
        raise _unreadable(record, str(error)) from error


def not_needed_from(offset: int) -> int:
    """Return what `State.verdict` is if a restart needs no verdict before State: -2 for 0, -3 for
    1, ...

    `offset` is where the verdicts of the State's own transaction begin. A
    former version wrote -1 in any such case.
    """
    return -2 - offset


def first_verdict_to_read(log: Log, place: TopicPartition, state: State, end: int) -> int:
    """Return the offset of the first verdict that a restart reads; it reads up to `end`.

    `place` is the partition of the verdict topic. If no open root of `state`
    needs an older verdict, it reads those of State's own transaction and those
    behind it. Verdicts before these may be deleted.
    """
    if state.verdict >= 0:
        return state.verdict
    # the number that `not_needed_from` made: -3 stands for the offset 1
    own_start = -2 - state.verdict
    if own_start < 0:  # -1, of a former version: it does not say where its transaction begins
        return end
    return max(log.starts([place])[place], own_start)


class _LastRecords(NamedTuple):
    """Records of the state log, by the numbers of their parts.

    Attributes:
        latest: the last record of each part.
        complete: the same as it was behind the last State of which all pieces
            are there; empty without one.
    """

    latest: dict[int, Record]
    complete: dict[int, Record]


def _read_last_records(
    log: Log, place: TopicPartition, codec: Codec[Stored], start: int, end: int, wait_ms: int
) -> _LastRecords:
    """Return the last records of State in the offsets [start, end), without those to be passed
    over.

    An operator's mark lets all pass over a record that cannot be read. A record
    that can be read counts all the same: to pass over it would lose what it
    says. A mark comes after its record, so all is read once more if a marked
    record was taken for one that counts.
    """
    offsets_to_pass_over: set[int] = set()  # `_read_parts` adds those of the marks that it reads
    while True:
        records = _read_parts(log, place, codec, start, end, wait_ms, offsets_to_pass_over)
        must_repeat = any(
            record.offset in offsets_to_pass_over and not is_sound_part(codec, part_number, record)
            for part_number, record in records.latest.items()
        )
        if not must_repeat:
            return records


def _read_parts(
    log: Log,
    place: TopicPartition,
    codec: Codec[Stored],
    start: int,
    end: int,
    wait_ms: int,
    offsets_to_pass_over: set[int],
) -> _LastRecords:
    """Read the offsets [start, end) of the state log once; return its last records, without some.

    A record is passed over if its offset is in `offsets_to_pass_over` and it cannot be
    read. The offsets that an operator's marks name are added to
    `offsets_to_pass_over`.
    """
    latest: dict[int, Record] = {}  # by part number
    complete: dict[int, Record] = {}  # by part number
    # of the State whose first piece came last: the number of the piece that must follow, and how
    # many pieces it has; -1: it is unknown, so it never becomes complete
    next_piece, piece_count = 0, -1
    for record in read_ack_topic(log, place, start, end, committed=True, wait_ms=wait_ms):
        part_number = part_of_key(place.partition, record.key)
        is_passed = record.offset in offsets_to_pass_over and not is_sound_part(codec, part_number, record)
        if part_number is not None and record.value is not None and not is_passed:
            latest[part_number] = record
            if part_number == 0:
                next_piece, piece_count = 0, _piece_count_of(codec, record)
            # a piece out of turn, or a bin among them, begins the count anew: that State is not
            # whole
            next_piece = next_piece + 1 if part_number == next_piece else 0
            if next_piece == piece_count:
                complete = dict(latest)
            continue
        offset = offset_to_pass_over(record)
        if offset is not None:
            offsets_to_pass_over.add(offset)
    return _LastRecords(latest, complete)


def _piece_count_of(codec: Codec[Stored], first_piece: Record) -> int:
    """Return how many pieces a State has, by its first one; -1 if that cannot be read."""
    try:
        return _decode_part(codec, 0, first_piece).parts
    except Disagreement:  # it is only an error if no later State has taken its place
        return -1


def is_sound_part(codec: Codec[Stored], number: int | None, record: Record) -> bool:
    """Return whether a record of the state log is the piece or bin that its key names, and can be
    read.

    A bin, and a State of one piece, must unpack, too; of one of several pieces
    only all of them together unpack. `number` is the part number in the key;
    None: the key has none.
    """
    if number is None:
        return False
    try:
        part = _decode_part(codec, number, record)
        is_bin = part.part >= BIN_PART
        if is_bin:
            unpack_carried(codec, part)
        elif part.parts == 1:
            unpack_state(codec, {0: part})
    except (CodecError, Disagreement):
        return False
    return True


def _decode_parts(codec: Codec[Stored], records: Mapping[int, Record]) -> dict[int, StatePart]:
    """Decode records, by the numbers of their parts; raises `Disagreement` as `_decode_part` does."""
    return {number: _decode_part(codec, number, record) for number, record in records.items()}


def _decode_part(codec: Codec[Stored], number: int, record: Record) -> StatePart:
    """Decode a record of the state log.

    Raises `Disagreement` if it is not the part with this number.
    """
    try:
        part = codec.decode(record.value)
    except CodecError as error:
        raise _unreadable(record, f"{error} ({likely_writer(record.value)})") from error
    if not isinstance(part, StatePart) or (part.partition, part.part) != (record.partition, number):
        raise _unreadable(record, "it is not the part of this partition's State that its key names")
    return part


@contextmanager
def damaged_state_as_disagreement(place: TopicPartition) -> Iterator[None]:
    """Raise `Disagreement` in place of the error that wrong content of a State causes while it is
    read and loaded.

    `place` is the partition of the state topic that holds it.
    """
    try:
        yield
    except (CodecError, LookupError, ValueError, OverflowError) as error:
        raise Disagreement(
            f"{place.topic}/{place.partition} holds a State that cannot be loaded"
            f" ({type(error).__name__}: {error}); was it written by another program? Begin anew under another"
            " acker.topic_prefix"
        ) from error


def _unreadable(record: Record, why: str) -> Disagreement:
    """Return the error of a record that is not the part of State that its key names, with the
    ways out.
    """
    return Disagreement(
        f"{record.place} cannot be read as State: {why}. If a newer"
        f" version of Windhover wrote it, run that; {CURE}, so that the State before it counts. Where the"
        " topic holds that no more, begin anew under another acker.topic_prefix"
    )
