"""Ranges of a ledger that a record names beside: they stay as they were, and cost nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from acker.identity import source_of
from acker.ledger.cohort import InitEmission, Pin, RootCohort, Session
from acker.ledger.contribution import Contribution
from acker.ledger.ledger import Ledger, Register, block_runs
from acker.ledger.verdicts import LossCause
from acker.wire.events import (
    Acks,
    Lost,
    PositionRun,
    SourceRun,
    Verdicts,
    pack_positions,
    pack_values,
)
from acker.wire.verdict import Verdict

SESSION, OTHER = Session("g", 1, "a"), Session("g", 2, "b")
SOURCE = source_of(1, 0)
BLOCK = 32_768
STARTS, SIZE = (100, 120, 140), 10
CAUSE = LossCause(Verdict.FAILED, "split", "ValueError", "", 0)
PIN = Pin(7, 70)


def emission_of(session: Session = SESSION) -> InitEmission:
    """Return an emission with a timeout."""
    return InitEmission(session, "lines", "id", 0, 0, 30_000)


def ledger_of(*starts: int) -> tuple[Ledger, list[RootCohort]]:
    """Return a ledger with ranges of ten roots."""
    ledger = Ledger()
    for start in starts:
        ledger.open_run(emission_of(), SourceRun(SOURCE, start, start + SIZE), 0)
    return ledger, list(ledger.cohorts())


def contribution(start: int, end: int, *, by_run: bool) -> Contribution:
    """Contribute to neighbours."""
    neighbours = np.arange(start, end)
    packed = (b"", b"") if by_run else (pack_positions(neighbours), pack_values(neighbours.astype(np.uint64)))
    runs = (PositionRun(start, end),) if by_run else ()
    return Contribution(Acks("q", 1, "g", "a", 1, SOURCE, start // BLOCK, runs, *packed, (), b"", 0))


def logged(start: int, end: int, *, is_lost: bool) -> Verdicts:
    """Return a record of the log with verdicts of neighbours."""
    if not is_lost:
        return Verdicts((SourceRun(SOURCE, start, end),), (), ())
    packed = pack_positions(np.arange(start, end))
    return Verdicts((), (), (Lost(Verdict.FAILED, "g", "t", "", "", "", "", 0, 0, 0, SOURCE, packed),))


Operation = Callable[[Ledger, Session, int, int], None]
OPERATIONS: dict[str, Operation] = {
    "fail": lambda ledger, session, start, end: ledger.fail(session, SOURCE, np.arange(start, end), CAUSE),
    "absent": lambda ledger, session, start, end: ledger.settle_absent(
        session, SOURCE, [PositionRun(start, end)]
    ),
    "fold a run": lambda ledger, session, start, end: ledger.fold(
        session, contribution(start, end, by_run=True), PIN
    ),
    "fold values": lambda ledger, session, start, end: ledger.fold(
        session, contribution(start, end, by_run=False), PIN
    ),
    "refold a run": lambda ledger, session, start, end: ledger.refold(
        session, contribution(start, end, by_run=True), PIN
    ),
    "refold values": lambda ledger, session, start, end: ledger.refold(
        session, contribution(start, end, by_run=False), PIN
    ),
    "touch": lambda ledger, session, start, end: ledger.touch(session, SOURCE, np.arange(start, end), 9, PIN),
    "retouch": lambda ledger, session, start, end: ledger.retouch(
        session, SOURCE, np.arange(start, end), 9, PIN
    ),
    "verdicts of acked roots": lambda ledger, _, start, end: ledger.settle_logged(
        logged(start, end, is_lost=False), PIN
    ),
    "verdicts of lost roots": lambda ledger, _, start, end: ledger.settle_logged(
        logged(start, end, is_lost=True), PIN
    ),
}


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("named", [(98, 100), (110, 120), (130, 140), (150, 152), (118, 118)])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_named_beside_ranges_leaves_them_as_they_were(
    operation: str, named: tuple[int, int], count: int
) -> None:
    """Up to the position before one, and from the one behind it on; it is not even allocated memory for."""
    ledger, cohorts = ledger_of(*STARTS[:count])
    for cohort in cohorts:
        cohort.bin_number = 4
    OPERATIONS[operation](ledger, SESSION, *named)
    ledger.settled.records()
    assert ledger.open_count == SIZE * count
    assert [cohort.roots.bytes for cohort in cohorts] == [0] * count
    assert [(cohort.ack_pin, cohort.verdict_pin, cohort.is_moved) for cohort in cohorts] == [
        (None, None, False)
    ] * count
    assert ledger.take_changed_bins() == set()


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("operation", [name for name in OPERATIONS if "verdicts" not in name])
def test_what_another_session_names_leaves_ranges_as_they_were(operation: str, count: int) -> None:
    ledger, cohorts = ledger_of(*STARTS[:count])
    OPERATIONS[operation](ledger, OTHER, 95, 155)
    assert ledger.open_count == SIZE * count
    assert [(cohort.roots.bytes, cohort.ack_pin, cohort.is_moved) for cohort in cohorts] == [
        (0, None, False)
    ] * count


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("named", [(99, 101), (109, 111), (100, 101), (109, 110)])
@pytest.mark.parametrize("operation", [name for name in OPERATIONS if "touch" not in name])
def test_what_is_named_at_the_edge_of_a_range_changes_just_its_first_or_last_root(
    operation: str, named: tuple[int, int], count: int
) -> None:
    ledger, cohorts = ledger_of(*STARTS[:count])
    edge = 100 if named[0] < 102 else 109
    OPERATIONS[operation](ledger, SESSION, *named)
    untouched, _ = ledger_of(*STARTS[:count])
    before = dict(zip(range(100, 110), next(untouched.cohorts()).roots.missing().tolist(), strict=True))
    open_at = [100 + index for index in cohorts[0].roots.open_at()]
    after = dict(zip(open_at, cohorts[0].roots.missing().tolist(), strict=True))
    assert [position for position in range(100, 110) if before[position] != after.get(position)] == [edge]
    assert [cohort.roots.bytes for cohort in cohorts[1:]] == [0] * (count - 1)


@pytest.mark.parametrize("is_lost", [False, True])
def test_verdicts_from_before_an_init_settle_just_what_they_name(is_lost: bool) -> None:
    """Those on both sides of a range cost it nothing."""
    ledger = Ledger()
    for start, end in ((95, 100), (110, 115), (130, 131)):
        ledger.settle_logged(logged(start, end, is_lost=is_lost), PIN)
    for start in (100, 120, 130):
        ledger.open_run(emission_of(), SourceRun(SOURCE, start, start + SIZE), 0)
    beside, other, named = ledger.cohorts()
    assert (beside.roots.bytes, other.roots.bytes) == (0, 0)
    assert list(named.roots.open_at()) == list(range(1, SIZE))
    assert (beside.verdict_pin, named.verdict_pin, ledger.first_pin_without_init) == (None, PIN, PIN)
    ledger.forget_verdicts_ahead()
    assert ledger.first_pin_without_init is None


def test_a_record_of_runs_alone_needs_no_values() -> None:
    """A byte for each root says which are settled; a run that completes all needs nothing."""
    ledger, [cohort] = ledger_of(100)
    ledger.fold(SESSION, contribution(100, 103, by_run=True), PIN)
    assert (cohort.roots.has_contributions, cohort.roots.bytes, cohort.ack_pin) == (False, SIZE, None)


def test_neighbours_that_are_completed_together_come_as_a_run() -> None:
    """Their verdicts then cost 16 bytes, and not 8 for each."""
    _, [cohort] = ledger_of(100)
    named = np.arange(102, 106)
    packed = pack_positions(named), pack_values(cohort.roots.missing()[2:6])
    record = Acks("q", 1, "g", "a", 1, SOURCE, 0, (), *packed, (), b"", 0)
    counted, hits = Contribution(record).fold_and_settle(cohort)
    assert (counted, hits) == (4, [range(2, 6)])


def test_a_watermark_that_is_set_is_the_first_position_that_can_be_opened() -> None:
    ledger = Ledger()
    assert (ledger.watermark(SOURCE), ledger.verdict_end_pin) == (0, Pin(0, 0))
    ledger.set_watermark(SOURCE, 104)
    ledger.open_run(emission_of(), SourceRun(SOURCE, 100, 110), 0)
    assert [(cohort.start, cohort.end) for cohort in ledger.cohorts()] == [(104, 110)]
    assert (ledger.counts.ignored, ledger.counts.initialised) == (4, 6)


def test_positions_are_grouped_by_their_block() -> None:
    named = np.array([5, 9, BLOCK - 1, BLOCK, 3 * BLOCK + 2, 3 * BLOCK + 7])
    assert list(block_runs(SOURCE, named)) == [
        SourceRun(SOURCE, 5, BLOCK),
        SourceRun(SOURCE, BLOCK, BLOCK + 1),
        SourceRun(SOURCE, 3 * BLOCK + 2, 3 * BLOCK + 8),
    ]
    assert list(block_runs(SOURCE, np.zeros(0, np.int64))) == []


@pytest.mark.parametrize("reach", [1, 2, 3, 90])
def test_a_verdict_of_many_blocks_settles_all_between_and_nothing_else(reach: int) -> None:
    """A run of the log may span more blocks than have ranges, or fewer."""
    ledger, cohorts = ledger_of(*(block * BLOCK + 5 for block in range(1, 7)))
    end = (1 + reach) * BLOCK + 7
    ledger.settle_logged(logged(BLOCK + 7, end, is_lost=False), PIN)
    expected = [
        [position for position in range(cohort.start, cohort.end) if not BLOCK + 7 <= position < end]
        for cohort in cohorts
    ]
    assert [[cohort.start + index for index in cohort.roots.open_at()] for cohort in cohorts] == expected


@pytest.mark.parametrize("is_carried", [False, True])
@pytest.mark.parametrize(("offset", "counts"), [(6, False), (7, True), (8, True)])
@pytest.mark.parametrize("operation", ["refold values", "refold a run", "retouch"])
def test_what_is_read_again_counts_from_the_offset_on_at_which_a_range_began(
    operation: str, offset: int, counts: bool, is_carried: bool
) -> None:
    """What was read before the init never counted; what State carries by value has it already."""
    ledger = Ledger()
    ledger.open_run(emission_of(), SourceRun(SOURCE, 100, 110), ack_from=7)
    [cohort] = ledger.cohorts()
    if is_carried:
        cohort.bin_number = 4
    pin = Pin(offset, 10 * offset)
    if operation == "retouch":
        ledger.retouch(SESSION, SOURCE, np.arange(102, 104), 9, pin)
    else:
        ledger.refold(SESSION, contribution(102, 104, by_run=operation.endswith("run")), pin)
    assert cohort.ack_pin == (pin if counts and not is_carried else None)
    untouched, _ = ledger_of(100)
    [other] = untouched.cohorts()
    changed = (cohort.roots.missing() != other.roots.missing()).any() or len(cohort._later_indices) > 0
    assert changed == (counts and not is_carried)


@pytest.mark.parametrize("starts", [STARTS[:1], STARTS], ids=["one range", "several ranges"])
def test_an_empty_run_lies_in_no_range(starts: tuple[int, ...]) -> None:
    """Wherever it is; nor does one that ends before it begins."""
    register = Register()
    _, cohorts = ledger_of(*starts)
    for cohort in cohorts:
        register.add(cohort)
    for start in range(95, 155):
        for end in (start - 1, start):
            assert list(register.cohorts_within(SESSION, SOURCE, start, end)) == []
        overlapping = [cohort for cohort in cohorts if cohort.start <= start < cohort.end]
        assert list(register.cohorts_within(SESSION, SOURCE, start, start + 1)) == overlapping
        assert list(register.cohorts_within(OTHER, SOURCE, start, start + 1)) == []


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("last", range(4))
@pytest.mark.parametrize("at", [0, 1, BLOCK - 2, BLOCK - 1])
@pytest.mark.parametrize("others", [0, 9])
def test_a_run_of_any_length_spans_the_ranges_that_it_overlaps(
    others: int, at: int, last: int, first: int
) -> None:
    """Ranges in three of four blocks, and far away; runs that begin and end at each edge of a block."""
    register = Register()
    ledger = Ledger()
    starts = [(0, 1), (0, BLOCK - 1), (1, 0), (1, 1), (3, 0), (3, BLOCK - 1)]
    starts += [(20 + number, 0) for number in range(others)]
    for block, offset in starts:
        position = block * BLOCK + offset
        ledger.open_run(emission_of(), SourceRun(SOURCE, position, position + 1), 0)
    for cohort in ledger.cohorts():
        register.add(cohort)
    for begin in (0, 1, BLOCK - 1):
        run = SourceRun(SOURCE, first * BLOCK + begin, last * BLOCK + at + 1)
        expected = [cohort for cohort in ledger.cohorts() if run.start <= cohort.start < run.end]
        assert sorted(register.cohorts_spanning(run), key=lambda cohort: cohort.start) == expected
    assert list(register.cohorts_spanning(SourceRun(SOURCE + 1, 0, 9 * BLOCK))) == []
