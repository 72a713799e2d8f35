"""Records that decode and are wrong all the same, and what cannot be read: logged once for each
kind.

Records of ackers' inputs, with misplaced positions or lengths that differ, are quarantined whole;
nothing of them is applied. Only ackers write to ``_ack_verdict``: a wrong record there is none of
theirs, and its readers pass over it whole. Each check returns what is wrong, in a few words, or an
empty text.

Anybody who may write to ``_ack_init`` may write in the name of any group. So a record may claim
nothing that a later one could not exceed: the epoch and the clock of a session are compared with
the time at which the broker has the record (`written_ms`). Example: by a record of 12:00:00.000 an
epoch may be as high as 1,000,000 and the milliseconds from 1970 to 12:00:00.000; by a record of
12:00:00.001 it may be higher by one.

A *lane* is one writer's sequence of numbered batches. Of a source's positions an acker partition
has *acker blocks* of 65,536 neighbouring ones, and a record of contributions or fails concerns one
*wire block* of 32,768.

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
    Lost,
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
"""So far a session's clock may be ahead of the time of its record: the clock of its machine may be
wrong by an hour, and be set right while the session lives."""

HELD_LANE: Final = "/held"
"""How the name of a lane ends that contributes what Spark's state holds."""

HELD_LONGER_MS_MAX: Final = 365 * 86_400_000
"""The longest `held_timeout`."""

EPOCHS_FREE: Final = 1_000_000
"""An epoch may be higher by this than the milliseconds from 1970 to its record. A session adds one
to the epoch before it, so no group has had a session for each millisecond. The million is room for
clocks that are slow by up to 16 minutes, and for logs without times."""

AHEAD: Final = "ahead of the time of its record"
"""Part of the text for a clock that is too far ahead; who is refused by it has to set a clock."""

NAMED_MAX: Final = 1 << 20
"""Positions that the runs of one record may name, those named twice counted twice.

A block has 32,768.
"""

OUTSIDE: Final = "a position lies outside the block"

_NOT_PACKED: Final = "packed positions are not a multiple of 8 bytes"
_POSITION_BYTES = 8
_BLOCK_COUNT: Final = 1 << (63 - WIRE_BLOCK_BITS)


def epoch_max(written_ms: int) -> int:
    """Return the highest epoch that a record of this time may have.

    The next record may have a higher one.
    """
    return EPOCHS_FREE + max(0, written_ms)


def wrong_epoch(epoch: int, written_ms: int) -> str:
    """Return what is wrong with an epoch, if it is higher than any session's can be by then.

    `written_ms` is the time of its record.
    """
    if epoch > epoch_max(written_ms):
        return f"an epoch that no session can have by then: {epoch}"
    return ""


def wrong_clock(now: int, written_ms: int) -> str:
    """Return what is wrong with a time of a session's clock, if it is too far ahead of its record's."""
    ahead_ms = now - max(0, written_ms)
    if ahead_ms > CLOCK_AHEAD_MS_MAX:
        return f"its clock is {AHEAD} by more than {CLOCK_AHEAD_MS_MAX // 1_000} s: {ahead_ms // 1_000}"
    return ""


def wrong_names(*names: str) -> str:
    """Return what is wrong with names, if one is longer than `NAME_CHARS`."""
    longest_chars = max(len(name) for name in names)
    if longest_chars > NAME_CHARS:
        return f"a name of {longest_chars} characters"
    return ""


def wrong_numbers(*numbers: int) -> str:
    """Return what is wrong with epochs and times, if one lies beyond `NUMBER_MAX`."""
    for number in numbers:
        if abs(number) > NUMBER_MAX:
            return f"{number} is no epoch and no time"
    return ""


def wrong_source(source: int) -> str:
    """Return what is wrong with a number, if it is of no source: Avro's decoder lets an int have 64 bits."""
    is_source = source >> 16 < 2 * REPLAY_ID_OFFSET and 1 <= input_id_of(source) <= INPUT_ID_MAX
    return "" if is_source else f"source {source} is of no input"


def wrong_take(record: Take | Tick, written_ms: int) -> str:
    """Return what is wrong with a take or a tick; empty: nothing.

    `written_ms` is the wall time at which the broker got it.
    """
    if not (record.group and record.session):
        return "it names no group, or no session"
    names = [record.group, record.session]
    sources = record.sources if isinstance(record, Take) else ()  # a tick names none
    for source in sources:
        names += [source.topic, source.topic_id]
        flaw = wrong_source(source.source)
        if flaw:
            return flaw
        if not 0 <= source.generation <= GENERATION_MAX:
            return f"generation {source.generation} does not exist"
    return (
        wrong_names(*names)
        or wrong_numbers(record.epoch, record.now)
        or wrong_epoch(record.epoch, written_ms)
        or wrong_clock(record.now, written_ms)
    )


def wrong_init(init: Init, partition: int, partitions: int, roots_max: int, written_ms: int) -> str:
    """Return what is wrong with an init; empty: nothing.

    Acker partition `partition` of `partitions` has read it. It may name `roots_max` roots;
    `written_ms` is the wall time at which the broker got it. The wall time in the init is not
    checked.
    """
    # `init.now` is the session's clock. `init.wall` may be ahead: `emission_wall` corrects it
    flaw = (
        wrong_names(init.group, init.session, init.topic, init.topic_id)
        or wrong_numbers(init.epoch, init.now, init.wall, init.timeout_ms)
        or wrong_clock(init.now, written_ms)
    )
    # an init may have thousands of runs, and has few sources
    for source in {run.source for run in init.runs}:
        flaw = flaw or wrong_source(source)
    if flaw:
        return flaw
    if any(run.end < run.start for run in init.runs):
        return "a run ends before it starts"
    # counted before their blocks are walked: a run may claim 2^63 positions
    root_count = sum(run.end - run.start for run in init.runs)
    if root_count > roots_max:
        return f"{root_count} positions, more than {roots_max}"
    # each block of each run must be of this acker partition
    for run in init.runs:
        if run.start == run.end:  # it has no position
            continue
        first_block = run.start >> ACKER_BLOCK_BITS
        last_block = (run.end - 1) >> ACKER_BLOCK_BITS
        for block in range(first_block, last_block + 1):
            if acker_partition(run.source, block << ACKER_BLOCK_BITS, partitions) != partition:
                return f"positions from {block << ACKER_BLOCK_BITS} on are not of this acker partition"
    return ""


def emission_wall(init: Init, written_ms: int) -> int:
    """Return when the roots of an init were emitted, in wall time.

    `init.wall` is what its writer's machine shows. If that is too far ahead of `written_ms`, the
    time of the record, somebody has set the machine's clock meanwhile, and the time of the record
    counts. The init stays valid: no later one could initialise its roots, so they would be lost.
    """
    return max(0, written_ms) if wrong_clock(init.wall, written_ms) else init.wall


def start_of_left_out_block(
    source: int, first_allowed: int, init_start: int, partition: int, partitions: int
) -> int | None:
    """Return the first position of an acker block that an init leaves out.

    None: it leaves out none. An acker block is 65,536 neighbouring positions of a source, which
    have one acker partition. What is left out could never be initialised any more, since an init
    only goes on above the one before it. Example, with one acker partition: after position 10 an
    init may begin at 131,071, in the next acker block, and not at 131,072.

    Args:
        first_allowed: the first position that might be initialised before the init.
        init_start: the first position of the init.
        partition: the acker partition that reads it, one of `partitions`. Between the acker
            blocks of the two positions some may be other partitions'.
    """
    first_between = (first_allowed >> ACKER_BLOCK_BITS) + 1
    end_between = init_start >> ACKER_BLOCK_BITS
    # the acker blocks that lie wholly between the two positions
    for block in range(first_between, end_between):
        block_start = block << ACKER_BLOCK_BITS
        is_own_block = acker_partition(source, block_start, partitions) == partition
        if is_own_block:
            return block_start
    return None


def wrong_touch(acks: Acks, written_ms: int) -> str:
    """Return what is wrong with a record that moves deadlines too far ahead; empty: nothing.

    Its roots would never time out. A deadline counts from `acks.touched_at`, a time of the
    session's clock, so that may be ahead of the record's time `written_ms` only as far as a clock
    may. What Spark's state holds may wait for as long as the longest `held_timeout`; only the
    lanes that contribute for it (`HELD_LANE`) may say so.
    """
    if not acks.touched:  # it moves no deadline
        return ""
    is_of_held = acks.lane.endswith(HELD_LANE)
    longer_ms = HELD_LONGER_MS_MAX if is_of_held else 0
    return wrong_clock(acks.touched_at - longer_ms, written_ms)


def wrong_acks(acks: Acks, partition: int, partitions: int) -> str:
    """Return what is wrong with a record of contributions; empty: nothing.

    Acker partition `partition` of `partitions` has read it. Whether `positions` lie in the block
    is not checked here: `Contribution.is_outside` does it, since it reads them anyway.
    """
    if len(acks.positions) != len(acks.values):
        return "positions and values differ in length"
    if len(acks.positions) % _POSITION_BYTES:
        return _NOT_PACKED
    return (
        _wrong_common_fields(acks, partition, partitions)
        or wrong_numbers(acks.touched_at)
        or _wrong_runs(acks.block, acks.runs)
        or _wrong_runs(acks.block, acks.absent)
        or _wrong_total(acks)
        or _wrong_packed(acks.block, (acks.touched,))
    )


def wrong_fails(fails: Fails, partition: int, partitions: int) -> str:
    """Return what is wrong with fails that acker partition `partition` of `partitions` has read."""
    columns = [cause.positions for cause in fails.causes]
    return _wrong_common_fields(fails, partition, partitions) or _wrong_packed(fails.block, columns)


def _wrong_common_fields(record: Acks | Fails, partition: int, partitions: int) -> str:
    """Return the first flaw in what records of acks and of fails have in common.

    Empty: there is none. Acker partition `partition` of `partitions` has read the record. All
    positions of its block have the same acker partition.
    """
    if not 0 <= record.block < _BLOCK_COUNT:
        return f"block {record.block} does not exist"
    if acker_partition(record.source, record.block << WIRE_BLOCK_BITS, partitions) != partition:
        return "the block is not of this acker partition"
    return (
        wrong_source(record.source)
        or wrong_numbers(record.epoch, record.seq)
        or wrong_names(record.lane, record.group, record.session)
    )


def _wrong_runs(block: int, runs: Iterable[PositionRun]) -> str:
    """Return what is wrong with runs that must lie in one wire block; empty: nothing."""
    block_start, block_end = block << WIRE_BLOCK_BITS, (block + 1) << WIRE_BLOCK_BITS
    for run in runs:
        if run.end < run.start:
            return "a run ends before it starts"
        if run.start < block_start or run.end > block_end:
            return "a run leaves the block"
    return ""


def _wrong_total(acks: Acks) -> str:
    """Return a text if the runs of a record name too many positions; else empty."""
    # few runs cannot name too many: each one stays in its block
    if (len(acks.runs) + len(acks.absent)) << WIRE_BLOCK_BITS <= NAMED_MAX:
        return ""
    position_count = sum(run.end - run.start for run in (*acks.runs, *acks.absent))
    return f"its runs name {position_count} positions" if position_count > NAMED_MAX else ""


def _wrong_packed(block: int, columns: Iterable[bytes]) -> str:
    """Return what is wrong with packed positions that must lie in one wire block; empty: nothing."""
    block_start, block_end = block << WIRE_BLOCK_BITS, (block + 1) << WIRE_BLOCK_BITS
    for column in columns:
        if len(column) % _POSITION_BYTES:
            return _NOT_PACKED
        if not column:
            continue
        column_positions = positions(column)
        if int(column_positions.min()) < block_start or int(column_positions.max()) >= block_end:
            return OUTSIDE
    return ""


def read_verdicts(value: bytes | None) -> Verdicts | None:
    """Return a record's verdicts, for a reader that only looks; None: it is an answer, or cannot be read."""
    try:
        event = wire_codec().decode(value)
    except CodecError:
        return None
    return event if isinstance(event, Verdicts) and not wrong_verdicts(event) else None


def wrong_verdicts(verdicts: Verdicts) -> str:
    """Return what is wrong with the verdicts of one record."""
    flaw = _wrong_source_runs(verdicts.done_runs())
    for lost in verdicts.lost:
        flaw = flaw or _wrong_lost(lost)
    return flaw


def _wrong_lost(lost: Lost) -> str:
    """Return what is wrong with the lost roots of one cause; empty: nothing."""
    flaw = wrong_source(lost.source) or wrong_numbers(lost.emitted_at, lost.emitted_wall, lost.decided_at)
    if flaw:
        return flaw
    if len(lost.positions) % _POSITION_BYTES:
        return f"{len(lost.positions)} bytes of positions are no whole number of them"
    if not lost.positions:
        return ""
    lost_positions = positions(lost.positions)
    if lost_positions.min() < 0:
        return f"a position of source {lost.source} is below 0"
    if lost_positions.max() == _INT64_MAX:  # a run with it has no end that an int64 could hold
        return f"a position of source {lost.source} is above every other one"
    return ""


def wrong_taken(taken: Taken) -> str:
    """Return what is wrong with an acker's answer to a take; empty: nothing."""
    # a long answer comes in several records, its parts
    if not 0 <= taken.part < taken.parts:
        return f"part {taken.part} of {taken.parts}"
    if abs(taken.clock) > NUMBER_MAX or abs(taken.epoch) > NUMBER_MAX:
        return "its clock or epoch is none"
    for source in taken.sources:
        has_generation = 0 <= source.generation <= GENERATION_MAX
        has_positions = source.from_ >= 0 and source.next >= 0
        if not has_generation or not has_positions:
            return f"source {source.source} is in generation {source.generation}"
    return _wrong_source_runs(taken.open)


def _wrong_source_runs(runs: Iterable[SourceRun]) -> str:
    """Return what is wrong with runs of any sources; empty: nothing."""
    for source, start, end in runs:
        flaw = wrong_source(source)
        if flaw:
            return flaw
        if not 0 <= start <= end:
            return f"a run of source {source} goes from {start} to {end}"
    return ""


KINDS_MAX: Final = 100
"""Kinds that are logged; further ones are only counted."""


class LogOnce:
    """Remembers which kinds of flaws were logged, so that each kind is logged once."""

    def __init__(self) -> None:
        """Begin with no kind."""
        self._kinds: set[tuple[str, str]] = set()  # topic, and text without its last number

    def add_if_new(self, topic: str, why: str) -> bool:
        """Remember the kind of a flaw in records of a topic.

        Returns whether it is new, so that it is logged. `why` is the flaw. Texts that differ
        only in a number at their end are one kind. After `KINDS_MAX` kinds none is new.
        """
        kind = (topic, why.rstrip("0123456789 "))
        if kind in self._kinds or len(self._kinds) >= KINDS_MAX:
            return False
        self._kinds.add(kind)
        return True
