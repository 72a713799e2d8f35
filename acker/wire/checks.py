"""Records that decode and are wrong all the same, and what cannot be read: logged once for each kind.

Records of ackers' inputs, with misplaced positions or lengths that differ, are quarantined whole; nothing of
them is applied. Only ackers write to ``_ack_verdict``: a wrong record there is none of theirs, and its
readers pass over it whole. Each check returns what is wrong, in a few words, or an empty text.

Anybody who may write to ``_ack_init`` may write in the name of any group. So a record may claim nothing that
a later one could not exceed: the epoch and the clock of a session are compared with the time at which the
broker has the record (`written_ms`). Example: by a record of 12:00:00.000 an epoch may be as high as
1,000,000 and the milliseconds from 1970 to 12:00:00.000; by a record of 12:00:00.001 it may be higher by one.

Source: docs/design/protocol.md, section 4, "Fine print" and "What one record can claim".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from acker.errors import CodecError
from acker.id_ranges import INPUT_ID_MAX
from acker.identity import (
    ACKER_BLOCK_BITS,
    GENERATION_MAX,
    REPLAY_ID_OFFSET,
    WIRE_BLOCK_BITS,
    acker_partition,
    input_id_of,
)
from acker.wire.codec import wire_codec
from acker.wire.events import (
    Acks,
    Fails,
    Init,
    PositionRun,
    SourceRun,
    Take,
    Taken,
    Tick,
    Verdicts,
    positions,
)

NAME_CHARS: Final = 1_000
"""Names (group, session, lane, topic) may be this long; Kafka's own are at most 249."""

NUMBER_MAX: Final = 1 << 53
"""No epoch, and no time in ms, lies further from 0: 285,000 years, and sums of some still have 64 bits."""

_INT64_MAX: Final = (1 << 63) - 1

CLOCK_AHEAD_MS_MAX: Final = 2 * 3_600_000
"""So far a session's clock may be ahead of the time of its record: the clock of its machine may be wrong by
an hour, and be set right while the session lives."""

HELD_LANE: Final = "/held"
"""How the name of a lane ends that contributes what Spark's state holds."""

HELD_LONGER_MS_MAX: Final = 365 * 86_400_000
"""The longest `held_timeout`."""

EPOCHS_FREE: Final = 1_000_000
"""An epoch may be higher by this than the milliseconds from 1970 to its record. A session adds one to the
epoch before it, so no group has had a session for each millisecond. The million is room for clocks that are
slow by up to 16 minutes, and for logs without times."""

AHEAD: Final = "ahead of the time of its record"
"""Part of the text for a clock that is too far ahead; who is refused by it has to set a clock."""

NAMED_MAX: Final = 1 << 20
"""Positions that the runs of one record may name, those named twice counted twice; a block has 32,768."""

OUTSIDE: Final = "a position lies outside the block"

_NOT_PACKED: Final = "packed positions are not a multiple of 8 bytes"
_PACKED = 8
_BLOCK_MAX: Final = 1 << (63 - WIRE_BLOCK_BITS)


def epoch_max(written_ms: int) -> int:
    """Return the highest epoch that a record of this time may have; the next record may have a higher one."""
    return EPOCHS_FREE + max(0, written_ms)


def wrong_epoch(epoch: int, written_ms: int) -> str:
    """Tell whether an epoch is higher than any session's can be; `written_ms` is the time of its record."""
    if epoch > epoch_max(written_ms):
        return f"an epoch that no session can have by then: {epoch}"
    return ""


def wrong_clock(now: int, written_ms: int) -> str:
    """Tell whether a time of a session's clock is too far ahead of the time of its record."""
    ahead_ms = now - max(0, written_ms)
    if ahead_ms > CLOCK_AHEAD_MS_MAX:
        return f"its clock is {AHEAD} by more than {CLOCK_AHEAD_MS_MAX // 1_000} s: {ahead_ms // 1_000}"
    return ""


def wrong_names(*names: str) -> str:
    """Tell whether a name is longer than `NAME_CHARS`."""
    longest = max(len(name) for name in names)
    return f"a name of {longest} characters" if longest > NAME_CHARS else ""


def wrong_numbers(*numbers: int) -> str:
    """Tell whether an epoch or a time lies beyond `NUMBER_MAX`."""
    for number in numbers:
        if abs(number) > NUMBER_MAX:
            return f"{number} is no epoch and no time"
    return ""


def wrong_source(source: int) -> str:
    """Tell whether a number is of no source: Avro's decoder lets an int have 64 bits."""
    is_source = source >> 16 < 2 * REPLAY_ID_OFFSET and 1 <= input_id_of(source) <= INPUT_ID_MAX
    return "" if is_source else f"source {source} is of no input"


def wrong_take(take: Take | Tick, written_ms: int) -> str:
    """Tell what is wrong with a take or a tick that the broker has since `written_ms`."""
    names = [take.group, take.session]
    found = "" if take.group and take.session else "it names no group, or no session"
    for source in take.sources if isinstance(take, Take) else ():
        names += [source.topic, source.topic_id]
        found = found or wrong_source(source.source)
        if not 0 <= source.generation <= GENERATION_MAX:
            found = found or f"generation {source.generation} does not exist"
    found = found or wrong_names(*names) or wrong_numbers(take.epoch, take.now)
    return found or wrong_epoch(take.epoch, written_ms) or wrong_clock(take.now, written_ms)


def wrong_init(init: Init, partition: int, partitions: int, roots_max: int, written_ms: int) -> str:
    """Tell what is wrong with an init that acker partition `partition` of `partitions` has read.

    The broker has it since `written_ms`.
    """
    found = wrong_names(init.group, init.session, init.topic, init.topic_id)
    found = found or wrong_numbers(init.epoch, init.now, init.wall, init.timeout_ms)
    found = found or wrong_clock(max(init.now, init.wall), written_ms)
    for source in {run.source for run in init.runs}:
        found = found or wrong_source(source)
    if found:
        return found
    if any(run.end < run.start for run in init.runs):
        return "a run ends before it starts"
    count = sum(run.end - run.start for run in init.runs)
    if count > roots_max:
        return f"{count} positions, more than {roots_max}"
    for run in init.runs:
        blocks = range(run.start >> ACKER_BLOCK_BITS, ((run.end - 1) >> ACKER_BLOCK_BITS) + 1)
        for block in blocks if run.end > run.start else ():
            if acker_partition(run.source, block << ACKER_BLOCK_BITS, partitions) != partition:
                return f"positions from {block << ACKER_BLOCK_BITS} on are not of this acker partition"
    return ""


def left_out_block(source: int, first: int, start: int, partition: int, partitions: int) -> int | None:
    """Return the first position of a block that an init leaves out, None if it leaves out none.

    Before it, `first` was the first position that may be initialised; the init begins at `start`. Of the
    blocks between the blocks of these two, some are other acker partitions'. Example, with one acker
    partition: after position 10 an init may begin at 131,071, in the next block, and not at 131,072.
    """
    for block in range((first >> ACKER_BLOCK_BITS) + 1, start >> ACKER_BLOCK_BITS):
        if acker_partition(source, block << ACKER_BLOCK_BITS, partitions) == partition:
            return block << ACKER_BLOCK_BITS
    return None


def wrong_touch(acks: Acks, written_ms: int) -> str:
    """Tell whether a timeout is reset to a time too far ahead: it would never end. See `wrong_clock`.

    What Spark's state holds may wait for as long as the longest `held_timeout`; only its lanes may say so.
    """
    if not acks.touched:
        return ""
    longer_ms = HELD_LONGER_MS_MAX if acks.lane.endswith(HELD_LANE) else 0
    return wrong_clock(acks.touched_at - longer_ms, written_ms)


def wrong_acks(acks: Acks, partition: int, partitions: int) -> str:
    """Tell what is wrong with contributions that acker partition `partition` of `partitions` has read.

    Whether packed positions lie in the block is checked by `Contribution.outside`, which reads them anyway.
    """
    if len(acks.positions) != len(acks.values):
        return "positions and values differ in length"
    if len(acks.positions) % _PACKED:
        return _NOT_PACKED
    return (
        _wrong_head(acks, partition, partitions)
        or wrong_numbers(acks.touched_at)
        or _wrong_runs(acks.block, acks.runs)
        or _wrong_runs(acks.block, acks.absent)
        or _wrong_total(acks)
        or _wrong_packed(acks.block, (acks.touched,))
    )


def wrong_fails(fails: Fails, partition: int, partitions: int) -> str:
    """Tell what is wrong with fails that acker partition `partition` of `partitions` has read."""
    return _wrong_head(fails, partition, partitions) or _wrong_packed(
        fails.block, (cause.positions for cause in fails.causes)
    )


def _wrong_head(record: Acks | Fails, partition: int, partitions: int) -> str:
    if not 0 <= record.block < _BLOCK_MAX:
        return f"block {record.block} does not exist"
    if acker_partition(record.source, record.block << WIRE_BLOCK_BITS, partitions) != partition:
        return "the block is not of this acker partition"
    found = wrong_source(record.source) or wrong_numbers(record.epoch, record.seq)
    return found or wrong_names(record.lane, record.group, record.session)


def _wrong_runs(block: int, runs: Iterable[PositionRun]) -> str:
    first, end = block << WIRE_BLOCK_BITS, (block + 1) << WIRE_BLOCK_BITS
    for run in runs:
        if run.end < run.start:
            return "a run ends before it starts"
        if run.start < first or run.end > end:
            return "a run leaves the block"
    return ""


def _wrong_total(acks: Acks) -> str:
    if (len(acks.runs) + len(acks.absent)) << WIRE_BLOCK_BITS <= NAMED_MAX:
        return ""
    named = sum(run.end - run.start for run in (*acks.runs, *acks.absent))
    return f"its runs name {named} positions" if named > NAMED_MAX else ""


def _wrong_packed(block: int, columns: Iterable[bytes]) -> str:
    first, end = block << WIRE_BLOCK_BITS, (block + 1) << WIRE_BLOCK_BITS
    for column in columns:
        if len(column) % _PACKED:
            return _NOT_PACKED
        if not column:
            continue
        named = positions(column)
        if int(named.min()) < first or int(named.max()) >= end:
            return OUTSIDE
    return ""


def read_verdicts(value: bytes | None) -> Verdicts | None:
    """Return a record's verdicts, for who only looks; None for an answer and what cannot be read."""
    try:
        event = wire_codec().decode(value)
    except CodecError:
        return None
    return event if isinstance(event, Verdicts) and not wrong_verdicts(event) else None


def wrong_verdicts(verdicts: Verdicts) -> str:
    found = _wrong_source_runs(verdicts.done_runs())
    for lost in verdicts.lost:
        found = found or wrong_source(lost.source)
        found = found or wrong_numbers(lost.emitted_at, lost.emitted_wall, lost.decided_at)
        if found:
            return found
        if len(lost.positions) % _PACKED:
            return f"{len(lost.positions)} bytes of positions are no whole number of them"
        if not lost.positions:
            continue
        lowest, highest = positions(lost.positions).min(), positions(lost.positions).max()
        if lowest < 0:
            return f"a position of source {lost.source} is below 0"
        if highest == _INT64_MAX:  # a run with it has no end that an int64 could hold
            return f"a position of source {lost.source} is above every other one"
    return found


def wrong_taken(taken: Taken) -> str:
    if not 0 <= taken.part < taken.parts:
        return f"part {taken.part} of {taken.parts}"
    if abs(taken.clock) > NUMBER_MAX or abs(taken.epoch) > NUMBER_MAX:
        return "its clock or epoch is none"
    for source in taken.sources:
        if not 0 <= source.generation <= GENERATION_MAX or min(source.from_, source.next) < 0:
            return f"source {source.source} is in generation {source.generation}"
    return _wrong_source_runs(taken.open)


def _wrong_source_runs(runs: Iterable[SourceRun]) -> str:
    for source, start, end in runs:
        found = wrong_source(source)
        if found or not 0 <= start <= end:
            return found or f"a run of source {source} goes from {start} to {end}"
    return ""


KINDS_MAX: Final = 100
"""Kinds that are logged; further ones are only counted."""


class LogOnce:
    def __init__(self) -> None:
        self._kinds: set[tuple[str, str]] = set()

    def is_first(self, topic: str, why: str) -> bool:
        """Tell whether a flaw is the first of its kind; texts that differ in a last number are one kind."""
        kind = (topic, why.rstrip("0123456789 "))
        if kind in self._kinds or len(self._kinds) >= KINDS_MAX:
            return False
        self._kinds.add(kind)
        return True
