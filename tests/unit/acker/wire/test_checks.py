"""What makes a record wrong that decodes: each limit at its last good value and at the first wrong one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from acker.id_ranges import INPUT_ID_MAX
from acker.identity import (
    ACKER_BLOCK_BITS,
    GENERATION_MAX,
    REPLAY_ID_OFFSET,
    WIRE_BLOCK_BITS,
    acker_partition,
    source_of,
)
from acker.wire.checks import (
    CLOCK_AHEAD_MS_MAX,
    EPOCHS_FREE,
    HELD_LANE,
    HELD_LONGER_MS_MAX,
    KINDS_MAX,
    NAME_CHARS,
    NAMED_MAX,
    NUMBER_MAX,
    OUTSIDE,
    LogOnce,
    emission_wall,
    epoch_max,
    read_verdicts,
    start_of_left_out_block,
    wrong_acks,
    wrong_clock,
    wrong_epoch,
    wrong_fails,
    wrong_init,
    wrong_names,
    wrong_numbers,
    wrong_source,
    wrong_take,
    wrong_taken,
    wrong_touch,
    wrong_verdicts,
)
from acker.wire.codec import wire_codec
from acker.wire.events import (
    Acks,
    FailCause,
    Fails,
    Init,
    Lost,
    PositionRun,
    SourceRun,
    Take,
    Taken,
    TakenSource,
    TakeSource,
    Tick,
    Verdicts,
    pack_positions,
)
from acker.wire.verdict import Verdict

NOW_MS = 1_800_000_000_000
SOURCE = source_of(1, 0)
BLOCK = 5
FIRST, END = BLOCK << WIRE_BLOCK_BITS, (BLOCK + 1) << WIRE_BLOCK_BITS
LONG = "n" * NAME_CHARS
TOO_LONG = LONG + "n"
NO_SOURCES = (-1, 0, 65_535, (INPUT_ID_MAX + 1) << 16, 2 * REPLAY_ID_OFFSET << 16, 1 << 40)
SOURCES = (
    1 << 16,
    source_of(INPUT_ID_MAX, 65_535),
    source_of(1, 0, replay=True),
    source_of(INPUT_ID_MAX, 65_535, replay=True),
)


def packed(*packed_positions: int) -> bytes:
    """Pack positions."""
    return pack_positions(np.array(packed_positions, np.int64))


TAKE = Take("g", "s", 3, NOW_MS, 1, (TakeSource(SOURCE, "lines", "id", 0, 0),))
TICK = Tick("g", "s", 3, NOW_MS)
INIT = Init("g", "s", 3, NOW_MS, NOW_MS, 30_000, 1, "lines", "id", (SourceRun(SOURCE, 5, 9),))
ACKS = Acks(
    "q", 1, "g", "s", 3, SOURCE, BLOCK, (PositionRun(FIRST, FIRST + 3),), packed(FIRST + 9), packed(4),
    (PositionRun(FIRST + 4, FIRST + 5),), packed(FIRST + 7), NOW_MS,
)  # fmt: skip
FAILS = Fails("q", 1, "g", "s", 3, SOURCE, BLOCK, (FailCause("split", "E", "", packed(FIRST, END - 1)),))
LOST = Lost(Verdict.FAILED, "g", "t", "id", "split", "E", "", 5, NOW_MS, 6, SOURCE, packed(0, 5))
VERDICTS = Verdicts((SourceRun(SOURCE, 0, 5),), (SourceRun(SOURCE, 5, 5),), (LOST,))
TAKEN = Taken(
    "g", "s", 3, "s", "", 0, 1, 5, (TakenSource(SOURCE, "id", 0, 0, 0),), (SourceRun(SOURCE, 0, 5),)
)


def of_source(**fields: Any) -> Take:
    """Return a take whose source has other fields."""
    return replace(TAKE, sources=(TAKE.sources[0]._replace(**fields),))


def of_lost(**fields: Any) -> Verdicts:
    """Return verdicts whose lost roots have other fields."""
    return replace(VERDICTS, lost=(LOST._replace(**fields),))


def of_taken(**fields: Any) -> Taken:
    """Return an answer whose source has other fields."""
    return replace(TAKEN, sources=(TAKEN.sources[0]._replace(**fields),))


def test_an_epoch_may_be_a_million_above_the_time_of_its_record() -> None:
    assert epoch_max(NOW_MS) == EPOCHS_FREE + NOW_MS
    assert epoch_max(-1) == epoch_max(0) == EPOCHS_FREE, "a log without times has them at 0"
    for written_ms in (-1, 0, NOW_MS):
        assert not wrong_epoch(epoch_max(written_ms), written_ms)
        assert str(epoch_max(written_ms) + 1) in wrong_epoch(epoch_max(written_ms) + 1, written_ms)


@pytest.mark.parametrize("written_ms", [-1, 0, 1, NOW_MS])
def test_a_clock_may_be_two_hours_ahead_of_the_time_of_its_record(written_ms: int) -> None:
    latest_ms = max(0, written_ms) + CLOCK_AHEAD_MS_MAX
    assert not wrong_clock(latest_ms, written_ms)
    assert wrong_clock(latest_ms + 1, written_ms).endswith("more than 7200 s: 7200")
    assert wrong_clock(latest_ms + 1_000, written_ms).endswith(": 7201")


def test_names_and_numbers_have_their_limits_at_both_ends() -> None:
    assert not wrong_names("a", LONG)
    assert wrong_names("a", TOO_LONG, "b") == f"a name of {NAME_CHARS + 1} characters"
    for sign in (-1, 1):
        assert not wrong_numbers(0, sign * NUMBER_MAX)
        assert (
            wrong_numbers(0, sign * (NUMBER_MAX + 1)) == f"{sign * (NUMBER_MAX + 1)} is no epoch and no time"
        )


def test_a_source_is_of_an_input_or_of_its_replay_topic() -> None:
    assert [wrong_source(source) for source in SOURCES] == [""] * len(SOURCES)
    assert [wrong_source(source) for source in NO_SOURCES] == [
        f"source {n} is of no input" for n in NO_SOURCES
    ]


GOOD_TAKES: dict[str, Take | Tick] = {
    "a take": TAKE,
    "a tick": TICK,
    "no source": replace(TAKE, sources=()),
    "the last generation": of_source(generation=GENERATION_MAX),
    "long names": of_source(topic=LONG, topic_id=LONG),
    "the last epoch": replace(TAKE, epoch=epoch_max(NOW_MS)),
    "the latest clock": replace(TICK, now=NOW_MS + CLOCK_AHEAD_MS_MAX),
}
WRONG_TAKES: dict[str, tuple[Take | Tick, str]] = {
    "no group": (replace(TAKE, group=""), "names no group"),
    "no session": (replace(TICK, session=""), "names no group, or no session"),
    "no source": (of_source(source=0), "of no input"),
    "a generation too high": (of_source(generation=GENERATION_MAX + 1), "generation 32768 does not exist"),
    "a generation below 0": (of_source(generation=-1), "generation -1 does not exist"),
    "a long group": (replace(TICK, group=TOO_LONG), "1001 characters"),
    "a long session": (replace(TICK, session=TOO_LONG), "1001 characters"),
    "a long topic": (of_source(topic=TOO_LONG), "1001 characters"),
    "a long topic id": (of_source(topic_id=TOO_LONG), "1001 characters"),
    "an epoch beyond all": (replace(TAKE, epoch=-NUMBER_MAX - 1), "no epoch"),
    "a time beyond all": (replace(TAKE, now=-NUMBER_MAX - 1), "no time"),
    "an epoch too high": (replace(TICK, epoch=epoch_max(NOW_MS) + 1), "no session can have"),
    "a clock too high": (replace(TICK, now=NOW_MS + CLOCK_AHEAD_MS_MAX + 1), "ahead of the time"),
}


@pytest.mark.parametrize("kind", GOOD_TAKES)
def test_a_good_take_is_not_wrong(kind: str) -> None:
    assert wrong_take(GOOD_TAKES[kind], NOW_MS) == ""


@pytest.mark.parametrize("kind", WRONG_TAKES)
def test_a_wrong_take_says_what_is_wrong(kind: str) -> None:
    take, why = WRONG_TAKES[kind]
    assert why in wrong_take(take, NOW_MS)


def test_the_first_thing_that_is_wrong_with_a_take_is_told() -> None:
    two = replace(TAKE, sources=(TAKE.sources[0]._replace(source=0), TAKE.sources[0]._replace(generation=-1)))
    assert wrong_take(two, NOW_MS) == "source 0 is of no input"
    assert wrong_take(replace(two, group=""), NOW_MS) == "it names no group, or no session"


GOOD_INITS: dict[str, Init] = {
    "an init": INIT,
    "an empty run": replace(INIT, runs=(SourceRun(SOURCE, 5, 5),)),
    "no run": replace(INIT, runs=()),
    "as many as may be": replace(INIT, runs=(SourceRun(SOURCE, 0, 60), SourceRun(SOURCE, 60, 100))),
    "the latest clock": replace(INIT, now=NOW_MS + CLOCK_AHEAD_MS_MAX),
    "a wall time of the future": replace(INIT, wall=NUMBER_MAX),
    "long names": replace(INIT, group=LONG, session=LONG, topic=LONG, topic_id=LONG),
}
WRONG_INITS: dict[str, tuple[Init, str]] = {
    "a long group": (replace(INIT, group=TOO_LONG), "1001 characters"),
    "a long session": (replace(INIT, session=TOO_LONG), "1001 characters"),
    "a long topic": (replace(INIT, topic=TOO_LONG), "1001 characters"),
    "a long topic id": (replace(INIT, topic_id=TOO_LONG), "1001 characters"),
    "an epoch beyond all": (replace(INIT, epoch=NUMBER_MAX + 1), "no epoch"),
    "a clock beyond all": (replace(INIT, now=-NUMBER_MAX - 1), "no time"),
    "a wall time beyond all": (replace(INIT, wall=-NUMBER_MAX - 1), "no time"),
    "a timeout beyond all": (replace(INIT, timeout_ms=NUMBER_MAX + 1), "no time"),
    "a clock too high": (replace(INIT, now=NOW_MS + CLOCK_AHEAD_MS_MAX + 1), "ahead of the time"),
    "no source": (replace(INIT, runs=(SourceRun(0, 5, 9),)), "of no input"),
    "a run backwards": (replace(INIT, runs=(SourceRun(SOURCE, 5, 4),)), "ends before it starts"),
    "too many": (replace(INIT, runs=(SourceRun(SOURCE, 0, 60), SourceRun(SOURCE, 60, 101))), "101 positions"),
}


@pytest.mark.parametrize("kind", GOOD_INITS)
def test_a_good_init_is_not_wrong(kind: str) -> None:
    assert wrong_init(GOOD_INITS[kind], 0, 1, 100, NOW_MS) == ""


@pytest.mark.parametrize("kind", WRONG_INITS)
def test_a_wrong_init_says_what_is_wrong(kind: str) -> None:
    init, why = WRONG_INITS[kind]
    assert why in wrong_init(init, 0, 1, 100, NOW_MS)


@pytest.mark.parametrize(
    ("wall_ms", "written_ms", "expected_ms"),
    [
        (NOW_MS, NOW_MS, NOW_MS),
        (NOW_MS + CLOCK_AHEAD_MS_MAX, NOW_MS, NOW_MS + CLOCK_AHEAD_MS_MAX),
        (NOW_MS + CLOCK_AHEAD_MS_MAX + 1, NOW_MS, NOW_MS),
        (NUMBER_MAX, NOW_MS, NOW_MS),
        (0, NOW_MS, 0),
        (-NUMBER_MAX, NOW_MS, -NUMBER_MAX),
        (NOW_MS, -1, 0),  # a log without times
    ],
)
def test_a_wall_time_that_is_too_far_ahead_is_that_of_the_record(
    wall_ms: int, written_ms: int, expected_ms: int
) -> None:
    assert emission_wall(replace(INIT, wall=wall_ms), written_ms) == expected_ms


@pytest.mark.parametrize("partitions", [2, 7])
def test_an_init_has_positions_of_its_acker_partition_alone(partitions: int) -> None:
    """Each block of 65,536 that a run meets is looked at: its first, its last, and those between."""
    size = 1 << ACKER_BLOCK_BITS
    for first in range(8):
        for start, end in (
            (0, 1),
            (size - 1, size),
            (size - 1, size + 1),
            (5, 3 * size),
            (0, 2 * size),
            (9, 9),
        ):
            run = SourceRun(SOURCE, first * size + start, first * size + end)
            blocks = {position // size for position in range(run.start, run.end, size - 1)}
            blocks |= {(run.end - 1) // size} if run.end > run.start else set()
            homes = [(block, acker_partition(SOURCE, block * size, partitions)) for block in sorted(blocks)]
            for partition in range(partitions):
                foreign = [block for block, home in homes if home != partition]
                found = wrong_init(replace(INIT, runs=(run,)), partition, partitions, 1 << 30, NOW_MS)
                expected = (
                    f"positions from {foreign[0] * size} on are not of this acker partition"
                    if foreign
                    else ""
                )
                assert found == expected


@pytest.mark.parametrize("partitions", [1, 3])
def test_an_init_leaves_out_no_block_of_its_acker_partition(partitions: int) -> None:
    size = 1 << ACKER_BLOCK_BITS
    for first in (0, 10, size - 1, size, 3 * size + 5):
        for start in (0, first, size - 1, size, 2 * size - 1, 2 * size, 6 * size, 9 * size + 7):
            between = [block for block in range(20) if first // size < block < start // size]
            for partition in range(partitions):
                own = [
                    block
                    for block in between
                    if acker_partition(SOURCE, block * size, partitions) == partition
                ]
                expected = own[0] * size if own else None
                assert start_of_left_out_block(SOURCE, first, start, partition, partitions) == expected


@pytest.mark.parametrize("lane", ["q", f"q{HELD_LANE}", f"{HELD_LANE}/q"])
def test_a_touch_may_be_as_far_ahead_as_a_clock_and_what_state_holds_a_year_further(lane: str) -> None:
    longer_ms = HELD_LONGER_MS_MAX if lane.endswith(HELD_LANE) else 0
    latest = replace(ACKS, lane=lane, touched_at=NOW_MS + CLOCK_AHEAD_MS_MAX + longer_ms)
    assert wrong_touch(latest, NOW_MS) == ""
    later = replace(latest, touched_at=latest.touched_at + 1)
    assert "ahead of the time" in wrong_touch(later, NOW_MS)
    assert wrong_touch(replace(later, touched=b""), NOW_MS) == ""


def run_of(start: int, end: int) -> tuple[PositionRun, ...]:
    return (PositionRun(start, end),)


MANY = NAMED_MAX >> WIRE_BLOCK_BITS
"""So many whole blocks are as many positions as a record may name."""

GOOD_ACKS: dict[str, Acks] = {
    "acks": ACKS,
    "the whole block": replace(ACKS, runs=run_of(FIRST, END), absent=()),
    "an empty run at the end": replace(ACKS, runs=run_of(END, END)),
    "the last position": replace(ACKS, touched=packed(END - 1), absent=run_of(END - 1, END)),
    "as many as may be": replace(ACKS, runs=run_of(FIRST, END) * MANY, absent=()),
    "many runs of little": replace(ACKS, runs=run_of(FIRST, FIRST + 1) * (2 * MANY)),
    "the first block": replace(ACKS, block=0, runs=(), absent=(), touched=b""),
    "the last block": replace(ACKS, block=(1 << 48) - 1, runs=(), absent=(), touched=b""),
    "long names": replace(ACKS, lane=LONG, group=LONG, session=LONG),
    "nothing": replace(ACKS, runs=(), positions=b"", values=b"", absent=(), touched=b""),
}
WRONG_ACKS: dict[str, tuple[Acks, str]] = {
    "lengths that differ": (replace(ACKS, values=b""), "differ in length"),
    "no whole positions": (replace(ACKS, positions=b"1234567", values=b"1234567"), "multiple of 8"),
    "a block below 0": (replace(ACKS, block=-1), "block -1 does not exist"),
    "a block too high": (replace(ACKS, block=1 << 48), "does not exist"),
    "no source": (replace(ACKS, source=7), "of no input"),
    "an epoch beyond all": (replace(ACKS, epoch=NUMBER_MAX + 1), "no epoch"),
    "a batch beyond all": (replace(ACKS, seq=NUMBER_MAX + 1), "no epoch"),
    "a long lane": (replace(ACKS, lane=TOO_LONG), "1001 characters"),
    "a long group": (replace(ACKS, group=TOO_LONG), "1001 characters"),
    "a long session": (replace(ACKS, session=TOO_LONG), "1001 characters"),
    "a touch beyond all": (replace(ACKS, touched_at=NUMBER_MAX + 1), "no time"),
    "a run backwards": (replace(ACKS, runs=run_of(FIRST + 5, FIRST + 4)), "ends before it starts"),
    "a run before the block": (replace(ACKS, runs=run_of(FIRST - 1, FIRST + 1)), "a run leaves the block"),
    "a run behind the block": (replace(ACKS, runs=run_of(END - 1, END + 1)), "a run leaves the block"),
    "an absent run before": (replace(ACKS, absent=run_of(FIRST - 1, FIRST)), "a run leaves the block"),
    "an absent run behind": (replace(ACKS, absent=run_of(END, END + 1)), "a run leaves the block"),
    "too many in runs": (
        replace(ACKS, runs=(*run_of(FIRST, END) * MANY, *run_of(FIRST, FIRST + 1)), absent=()),
        f"name {NAMED_MAX + 1} positions",
    ),
    "too many with absent ones": (
        replace(ACKS, runs=run_of(FIRST, END) * MANY, absent=run_of(FIRST, FIRST + 1)),
        f"name {NAMED_MAX + 1} positions",
    ),
    "no whole touches": (replace(ACKS, touched=b"123"), "multiple of 8"),
    "a touch before the block": (replace(ACKS, touched=packed(FIRST, FIRST - 1)), OUTSIDE),
    "a touch behind the block": (replace(ACKS, touched=packed(END, FIRST)), OUTSIDE),
}


@pytest.mark.parametrize("kind", GOOD_ACKS)
def test_good_acks_are_not_wrong(kind: str) -> None:
    assert wrong_acks(GOOD_ACKS[kind], 0, 1) == ""


@pytest.mark.parametrize("kind", WRONG_ACKS)
def test_wrong_acks_say_what_is_wrong(kind: str) -> None:
    acks, why = WRONG_ACKS[kind]
    assert why in wrong_acks(acks, 0, 1)


def test_acks_and_fails_are_of_the_acker_partition_of_their_block() -> None:
    home = acker_partition(SOURCE, FIRST, 7)
    for partition in range(7):
        why = "" if partition == home else "the block is not of this acker partition"
        assert (wrong_acks(ACKS, partition, 7), wrong_fails(FAILS, partition, 7)) == (why, why)


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ((packed(FIRST), packed(END - 1)), ""),
        ((b"", packed(FIRST)), ""),
        ((b"", packed(FIRST - 1)), OUTSIDE),
        ((packed(FIRST), packed(FIRST, END)), OUTSIDE),
        ((packed(FIRST), b"1234"), "packed positions are not a multiple of 8 bytes"),
    ],
)
def test_fails_name_positions_of_their_block_for_each_cause(columns: tuple[bytes, ...], why: str) -> None:
    causes = tuple(FailCause("split", "E", "", column) for column in columns)
    assert wrong_fails(replace(FAILS, causes=causes), 0, 1) == why


GOOD_VERDICTS: dict[str, Verdicts] = {
    "verdicts": VERDICTS,
    "nothing": Verdicts((), (), ()),
    "no position": of_lost(positions=b""),
}
WRONG_VERDICTS: dict[str, tuple[Verdicts, str]] = {
    "acked of no source": (replace(VERDICTS, acked=(SourceRun(0, 0, 5),)), "of no input"),
    "absent of no source": (replace(VERDICTS, absent=(SourceRun(0, 0, 5),)), "of no input"),
    "acked backwards": (replace(VERDICTS, acked=(SourceRun(SOURCE, 5, 4),)), "goes from 5 to 4"),
    "absent below 0": (replace(VERDICTS, absent=(SourceRun(SOURCE, -1, 4),)), "goes from -1 to 4"),
    "lost of no source": (of_lost(source=0), "of no input"),
    "emitted at no time": (of_lost(emitted_at=NUMBER_MAX + 1), "no time"),
    "emitted at no wall time": (of_lost(emitted_wall=NUMBER_MAX + 1), "no time"),
    "decided at no time": (of_lost(decided_at=-NUMBER_MAX - 1), "no time"),
    "no whole positions": (of_lost(positions=b"123"), "no whole number"),
    "a position below 0": (of_lost(positions=packed(4, -1)), "below 0"),
    "a position without one behind it": (of_lost(positions=packed(4, (1 << 63) - 1)), "above every other"),
    "the second of two": (replace(VERDICTS, lost=(LOST, LOST._replace(source=0))), "of no input"),
    "the first of two": (replace(VERDICTS, lost=(LOST._replace(source=0), LOST)), "of no input"),
}


@pytest.mark.parametrize("kind", GOOD_VERDICTS)
def test_good_verdicts_are_read(kind: str) -> None:
    verdicts = GOOD_VERDICTS[kind]
    assert wrong_verdicts(verdicts) == ""
    assert read_verdicts(wire_codec().encode(verdicts)) == verdicts


@pytest.mark.parametrize("kind", WRONG_VERDICTS)
def test_wrong_verdicts_say_what_is_wrong_and_are_not_read(kind: str) -> None:
    verdicts, why = WRONG_VERDICTS[kind]
    assert why in wrong_verdicts(verdicts)
    assert read_verdicts(wire_codec().encode(verdicts)) is None


@pytest.mark.parametrize("value", [None, b"", b"nonsense", wire_codec().encode(TAKEN)])
def test_what_is_no_record_of_verdicts_is_none(value: bytes | None) -> None:
    assert read_verdicts(value) is None


GOOD_ANSWERS: dict[str, Taken] = {
    "an answer": TAKEN,
    "its last part": replace(TAKEN, part=2, parts=3),
    "numbers at their limits": replace(TAKEN, clock=-NUMBER_MAX, epoch=NUMBER_MAX),
    "the last generation": of_taken(generation=GENERATION_MAX),
}
WRONG_ANSWERS: dict[str, tuple[Taken, str]] = {
    "a part too high": (replace(TAKEN, part=1), "part 1 of 1"),
    "a part below 0": (replace(TAKEN, part=-1), "part -1 of 1"),
    "a clock beyond all": (replace(TAKEN, clock=NUMBER_MAX + 1), "clock or epoch"),
    "an epoch beyond all": (replace(TAKEN, epoch=-NUMBER_MAX - 1), "clock or epoch"),
    "a generation too high": (of_taken(generation=GENERATION_MAX + 1), "in generation 32768"),
    "a generation below 0": (of_taken(generation=-1), "in generation -1"),
    "a first position below 0": (of_taken(from_=-1), "in generation"),
    "a next position below 0": (of_taken(next=-1), "in generation"),
    "open runs backwards": (replace(TAKEN, open=(SourceRun(SOURCE, 5, 4),)), "goes from 5 to 4"),
}


@pytest.mark.parametrize("kind", GOOD_ANSWERS)
def test_a_good_answer_is_not_wrong(kind: str) -> None:
    assert wrong_taken(GOOD_ANSWERS[kind]) == ""


@pytest.mark.parametrize("kind", WRONG_ANSWERS)
def test_a_wrong_answer_says_what_is_wrong(kind: str) -> None:
    taken, why = WRONG_ANSWERS[kind]
    assert why in wrong_taken(taken)


def test_each_kind_of_flaw_is_logged_once_and_not_more_kinds_than_may_be() -> None:
    """Somebody who writes a text of his own to each record must not fill the log."""
    log = LogOnce()
    assert [log.add_if_new("a", "no block 12"), log.add_if_new("a", "no block 13")] == [True, False]
    assert log.add_if_new("b", "no block 12")
    firsts = [log.add_if_new("a", "x" * number) for number in range(1, KINDS_MAX + 5)]
    assert firsts == [True] * (KINDS_MAX - 2) + [False] * 6
