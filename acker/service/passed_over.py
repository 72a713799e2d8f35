"""What stops the readers of an ack topic until ``windhover topics repair`` lets them all pass over it.

In `_ack_verdict`, `_ack_due` and `_ack_state` an unreadable record may be
from a newer Windhover, so a process that reads one stops. If the record is
garbage, an operator writes a mark, and every process passes over the record.
In any ack topic, a damaged batch stops the processes that need its topic,
too.

A mark is a later record in the same partition. Its key is ``passed-over/``
and the offset; for several offsets a header says where they end. So a process
that may read the record may read the mark, a mark stays as long as its
record, and only a process that met such a record has to search for marks. The
value of a mark is text, which older versions pass over like any garbage.

Here and in `acker.service.state` a *mark* is this; the ledger's marks, of lanes, are something
else.

Source: docs/design/protocol.md, section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from acker.errors import Damaged, UnknownVersion, WindhoverError
from acker.kafka.port import Headers, Log, Outgoing, Record, TopicPartition
from acker.kafka.read_to_end import OnDamage, pass_damage, read_piece
from acker.wire.codec import HEADER_BYTES, MAGIC

PASSED_OVER: Final = b"passed-over/"
"""The key of a mark begins with this; the offset follows, in decimal digits."""

WHY_HEADER: Final = "windhover.why"
"""The operator's reason for a mark, or why a record is in the quarantine."""

BY_HEADER: Final = "windhover.by"
"""Who wrote a mark."""

UNTIL_HEADER: Final = "windhover.until"
"""Of a mark for several offsets: where they end, in decimal digits."""

WAIT_MS: Final = 10_000
"""How long a read waits for a record before it gives up."""

_FIRST_PIECE_RECORDS: Final = 1_000
"""So many last records of a partition are searched for a mark first; then 8 times as many, and so on."""

DAMAGE_CURE: Final = (
    "bring back a replica of the partition that is whole; where there is none, `windhover topics repair`"
    " shows the batch, and --execute --why lets all pass over it"
)

CURE: Final = "if none did, `windhover topics repair` shows it, and --execute --why lets all pass over it"


def passed_over_mark(place: TopicPartition, offset: int, why: str, by: str, until: int = 0) -> Outgoing:
    """Return the record (a *mark*) that lets all readers pass over an unreadable offset of an ack
    topic.

    With an `until` it is for the offsets [`offset`, `until`). `why` is the
    operator's reason, and `by` the operator's name.
    """
    headers: Headers = ((WHY_HEADER, why.encode()), (BY_HEADER, by.encode()))
    if until > offset + 1:
        headers += ((UNTIL_HEADER, b"%d" % until),)
    return Outgoing(
        topic=place.topic,
        partition=place.partition,
        value=b"passed over: " + why.encode(),
        key=PASSED_OVER + b"%d" % offset,
        headers=headers,
    )


def is_mark(record: Record) -> bool:
    """Return whether a record is a mark: an operator wrote it, so it is no garbage itself."""
    return offset_to_pass_over(record) is not None


def offset_to_pass_over(record: Record) -> int | None:
    """Return the offset of the record that a mark is about; None for a record that is no mark."""
    key = record.key
    if key is None or record.value is None or not key.startswith(PASSED_OVER):
        return None
    return _number(key[len(PASSED_OVER) :])


def offsets_to_pass_over(record: Record) -> range:
    """Return the offsets that an operator's mark lets readers pass over.

    An empty range: the record is no mark.
    """
    first_offset = offset_to_pass_over(record)
    if first_offset is None:
        return range(0)
    # a mark for one offset has no `UNTIL_HEADER`; a wrong end counts as one offset, too
    end_offset = _number(dict(record.headers).get(UNTIL_HEADER) or b"") or 0
    return range(first_offset, max(first_offset + 1, end_offset))


def _number(digits: bytes) -> int | None:
    """Return the number that decimal digits are; None for other bytes, and for 20 digits or more."""
    # the largest offset of Kafka has 19 digits
    if not digits.isdigit() or len(digits) >= 20:
        return None
    return int(digits)


def is_passed_over(log: Log, record: Record, *, wait_ms: int) -> bool:
    """Return whether the log has a mark that lets all pass over a record."""
    place = TopicPartition(record.topic, record.partition)
    return _end_behind_mark(log, place, record.offset, wait_ms) is not None


def damage_handler(log: Log, wait_ms: int = WAIT_MS) -> OnDamage:
    """Return the function that readers of ack topics call at each damaged batch.

    If an operator has written a mark for the batch (see the head of this module),
    it returns the offset behind the offsets that the mark names: the reader goes
    on there. If not, it raises `Damaged` with the way out.
    """

    # `OnDamage` allows None, too; this one never returns it
    def offset_behind_damage(damage: Damaged) -> int:
        """Return where the mark of a damaged batch ends; raise the damage if there is no mark."""
        place = TopicPartition(damage.topic, damage.partition)
        end_offset = _end_behind_mark(log, place, damage.first, wait_ms)
        if end_offset is None:
            raise damage.with_cure(DAMAGE_CURE) from damage
        return end_offset

    return offset_behind_damage


def read_ack_topic(
    log: Log,
    place: TopicPartition,
    start: int,
    end: int,
    *,
    committed: bool,
    wait_ms: int,
    report_alive: Callable[[], None] = lambda: None,
) -> Iterator[Record]:
    """Yield the records of an ack topic's partition in the offsets [`start`, `end`).

    A damaged batch is left out if an operator has marked it as to be passed over.

    Args:
        committed: whether records of aborted transactions are left out.
        wait_ms: how long to wait for the next record at most.
        report_alive: is called before each poll, so that a long read does not count as hung.

    Raises:
        Damaged: a damaged batch is not marked; the error names the way out.
    """
    on_damage = damage_handler(log, wait_ms)
    return read_piece(
        log,
        place,
        start,
        end,
        committed=committed,
        wait_ms=wait_ms,
        report_alive=report_alive,
        on_damage=on_damage,
    )


def _end_behind_mark(log: Log, place: TopicPartition, offset: int, wait_ms: int) -> int | None:
    """Find an operator's mark, which lets all pass over one offset; return where its offsets end.

    None: there is no mark. A mark is a later record of the same partition, for one offset or
    several. So the partition is searched from its end back to the offset, in pieces that grow;
    damaged batches there are passed over.
    """
    piece_end = log.stable_ends([place])[place]
    piece_records = _FIRST_PIECE_RECORDS
    while True:
        piece_start = max(offset + 1, piece_end - piece_records, log.starts([place])[place])
        piece = read_piece(
            log,
            place,
            piece_start,
            piece_end,
            committed=True,
            wait_ms=wait_ms,
            on_damage=pass_damage,
        )
        for record in piece:
            marked = offsets_to_pass_over(record)
            if offset in marked:
                return marked.stop
        if piece_end - piece_records <= offset + 1:
            return None  # all behind the offset was searched
        piece_end, piece_records = piece_start, piece_records * 8


def require_passed_over(
    log: Log,
    record: Record,
    error: UnknownVersion,
    cure: str,
    error_class: type[WindhoverError] = UnknownVersion,
    wait_ms: int = WAIT_MS,
) -> str:
    """Require that an operator has marked a record of an unknown version as to be passed over.

    Returns the text of `error`, to report it. Raises an error of the class
    `error_class` if there is no mark; `cure` is what to do if a newer Windhover
    wrote the record.
    """
    if is_passed_over(log, record, wait_ms=wait_ms):
        return str(error)
    raise error_class(f"{record.place}: {error}: if {cure}; {CURE}") from error


def likely_writer(value: bytes | None) -> str:
    """Return what a record that cannot be decoded may be, in words: a newer Windhover's, or
    garbage.
    """
    # the header, C3 01 and a fingerprint, is as our records have it: then only the version is
    # unknown
    if value is not None and value[:2] == MAGIC and len(value) >= HEADER_BYTES:
        return "perhaps a newer Windhover's: C3 01 and a fingerprint that this version does not know"
    return "garbage: it does not begin with C3 01 as all records of Windhover do"
