"""What each operation of a ledger counts, settles, pins and marks as changed, position by position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise

import numpy as np
import pytest

from acker.identity import root_edges_of_run, source_of
from acker.ledger.cohort import InitEmission, Pin, RootCohort, Session
from acker.ledger.contribution import FEW_RUNS, Contribution
from acker.ledger.ledger import Ledger
from acker.ledger.verdicts import LossCause
from acker.wire.events import Acks, PositionRun, SourceRun, Verdicts, pack_positions, pack_values
from acker.wire.verdict import Verdict

SESSION, OTHER = Session("g", 1, "a"), Session("g", 2, "b")
SOURCE, BESIDE = source_of(1, 0), source_of(2, 3)
BLOCK = 32_768
CAUSE = LossCause(Verdict.FAILED, "split", "ValueError", "", 0)
RUNS = (PositionRun(98, 104), PositionRun(108, 113))
"""Of ten roots from 100 on, of which the first two have their verdict: 4 are named that never were or have
their verdict, 4 that are open, and 3 that have no init yet."""

NAMED = np.array([position for run in RUNS for position in range(*run)])
EDGES = np.concatenate([root_edges_of_run(SOURCE, *run) for run in RUNS])


def emission_of(session: Session = SESSION) -> InitEmission:
    """Return an emission with a timeout."""
    return InitEmission(session, "lines", "id", 0, 0, 30_000)


def opened() -> tuple[Ledger, RootCohort]:
    """Return a ledger with ten roots, of which two failed already, and nothing noted as changed."""
    ledger = Ledger()
    ledger.open_run(emission_of(), SourceRun(SOURCE, 100, 110), 0)
    ledger.fail(SESSION, SOURCE, np.arange(100, 102), CAUSE)
    [cohort] = ledger.cohorts()
    cohort.bin_number = 4
    return ledger, cohort


def counted(ledger: Ledger) -> dict[str, int]:
    """Return the counts that are not 0."""
    return {name: count for name, count in asdict(ledger.counts).items() if count}


def contribution(
    runs: Sequence[PositionRun], scattered: np.ndarray | None, values: np.ndarray
) -> Contribution:
    """Contribute to runs and positions."""
    packed = (b"", b"") if scattered is None else (pack_positions(scattered), pack_values(values))
    return Contribution(Acks("q", 1, "g", "a", 1, SOURCE, 0, tuple(runs), *packed, (), b"", 0))


BEFORE = {"initialised": 10, "failed": 2}
MISSED = {"late": 4, "above": 3}


@pytest.mark.parametrize(
    ("operation", "counts", "is_settled"),
    [
        ("fail", {"failed": 6, **MISSED}, True),
        ("absent", {"absent": 4, **MISSED}, True),
        ("fold runs", {"acked": 4, "folded": 4, **MISSED}, True),
        ("fold edges", {"acked": 4, "folded": 4, **MISSED}, True),
        ("fold others", {"folded": 4, **MISSED}, False),
    ],
)
def test_what_is_named_is_settled_or_late_or_has_no_root_yet(
    operation: str, counts: dict[str, int], is_settled: bool
) -> None:
    """Each position is counted once."""
    ledger, cohort = opened()
    match operation:
        case "fail":
            ledger.fail(SESSION, SOURCE, NAMED, CAUSE)
        case "absent":
            ledger.settle_absent(SESSION, SOURCE, RUNS)
        case "fold runs":
            ledger.fold(SESSION, contribution(RUNS, None, EDGES), Pin(7, 70))
        case "fold edges":
            ledger.fold(SESSION, contribution((), NAMED, EDGES), Pin(7, 70))
        case _:
            ledger.fold(SESSION, contribution((), NAMED, EDGES + np.uint64(1)), Pin(7, 70))
    assert counted(ledger) == {**BEFORE, **counts}
    left = [104, 105, 106, 107] if is_settled else list(range(102, 110))
    assert [100 + index for index in cohort.roots.open_at()] == left
    assert ledger.open_count == len(left)
    assert ledger.take_changed_bins() == {4}
    assert ledger.take_changed_bins() == set()


@pytest.mark.parametrize("operation", ["fail", "absent", "fold"])
def test_what_is_named_of_another_session_is_late(operation: str) -> None:
    ledger, _ = opened()
    if operation == "fail":
        ledger.fail(OTHER, SOURCE, NAMED, CAUSE)
    elif operation == "absent":
        ledger.settle_absent(OTHER, SOURCE, RUNS)
    else:
        ledger.fold(OTHER, contribution(RUNS, None, EDGES), Pin(7, 70))
    assert counted(ledger) == {**BEFORE, "late": 8, "above": 3}
    assert (ledger.open_count, ledger.take_changed_bins()) == (8, set())


@pytest.mark.parametrize("by_source", [False, True])
def test_all_open_roots_of_a_session_or_of_some_sources_are_abandoned(by_source: bool) -> None:
    """By the clock of their session; roots of other sources and sessions stay open."""
    ledger, _ = opened()
    ledger.open_run(emission_of(SESSION if by_source else OTHER), SourceRun(BESIDE, 5, 8), 0)
    ledger.open_run(emission_of(OTHER if by_source else SESSION), SourceRun(SOURCE, 110, 112), 0)
    if by_source:
        ledger.abandon_sources({SOURCE}, lambda session: 70 if session == SESSION else 90)
    else:
        ledger.abandon(SESSION, 70)
    assert counted(ledger) == {"initialised": 15, "failed": 2, "abandoned": 10}
    assert ledger.open_count == 3
    assert [cohort.roots.source for cohort in ledger.cohorts()] == [BESIDE]
    lost = [entry for record in ledger.take_settled().records() for entry in record.lost]
    abandoned: Counter[int] = Counter()
    for entry in lost:
        if entry.reason is Verdict.ABANDONED:
            abandoned[entry.decided_at] += len(entry.positions) // 8
    assert abandoned == ({70: 8, 90: 2} if by_source else {70: 10})


def test_roots_that_time_out_are_counted_and_the_others_are_due_later() -> None:
    ledger, _ = opened()
    ledger.touch(SESSION, SOURCE, np.arange(105, 107), 5_000, Pin(7, 70))
    for clock_ms, timed_out in ((29_999, 0), (30_000, 6), (34_999, 6), (35_000, 8)):
        ledger.expire(SESSION, clock_ms)
        assert ledger.counts.timed_out == timed_out
    assert (ledger.open_count, ledger.ranges) == (0, 0)


def test_a_run_becomes_a_range_for_each_block_that_it_lies_in() -> None:
    ledger = Ledger()
    ledger.open_run(emission_of(), SourceRun(SOURCE, BLOCK - 2, 3 * BLOCK + 1), 0)
    ends = [(cohort.start, cohort.end) for cohort in ledger.cohorts()]
    borders = [BLOCK - 2, BLOCK, 2 * BLOCK, 3 * BLOCK, 3 * BLOCK + 1]
    assert ends == list(pairwise(borders))
    for end in (3 * BLOCK + 1, BLOCK):
        ledger.open_run(emission_of(), SourceRun(SOURCE, end - 1, end), 0)
    ledger.open_run(emission_of(), SourceRun(SOURCE, 3 * BLOCK + 1, 3 * BLOCK + 1), 0)
    assert len(list(ledger.cohorts())) == 4
    assert ledger.watermark(SOURCE) == 3 * BLOCK + 1
    assert counted(ledger) == {"initialised": 2 * BLOCK + 3, "ignored": 2}


def test_an_empty_run_opens_nothing_and_moves_no_watermark() -> None:
    ledger = Ledger()
    for start, end in ((500, 500), (0, 0), (7, 5)):
        ledger.open_run(emission_of(), SourceRun(SOURCE, start, end), 0)
    assert (ledger.watermark(SOURCE), ledger.open_count, counted(ledger)) == (0, 0, {})


# -- what a restart has to read again


def three_ranges() -> tuple[Ledger, list[RootCohort]]:
    """Return a ledger with three ranges of ten roots."""
    ledger = Ledger()
    for start in (100, 120, 140):
        ledger.open_run(emission_of(), SourceRun(SOURCE, start, start + 10), 0)
    return ledger, list(ledger.cohorts())


@pytest.mark.parametrize("way", ["touch", "fold"])
def test_the_oldest_contribution_that_a_restart_needs_is_that_of_an_open_range_that_state_has_not(
    way: str,
) -> None:
    """In the order in which the ranges were named first, not in that of their positions."""
    ledger, cohorts = three_ranges()
    assert ledger.oldest_ack_pinned() is None
    for offset, number in enumerate((1, 0, 2, 1)):
        named = np.array([cohorts[number].start + 3])
        if way == "touch":
            ledger.touch(SESSION, SOURCE, named, 9 + offset, Pin(offset, 10 * offset))
        else:
            ledger.fold(
                SESSION, contribution((), named, np.array([5 + offset], np.uint64)), Pin(offset, 10 * offset)
            )
    assert [cohort.ack_pin for cohort in cohorts] == [Pin(1, 10), Pin(0, 0), Pin(2, 20)]
    assert ledger.oldest_ack_pinned() is cohorts[1]
    cohorts[1].bin_number = 4  # State carries it by value now
    assert ledger.oldest_ack_pinned() is cohorts[0]
    ledger.fail(SESSION, SOURCE, np.arange(100, 110), CAUSE)
    assert ledger.oldest_ack_pinned() is cohorts[2]
    cohorts[2].bin_number = 5
    assert ledger.oldest_ack_pinned() is None


def test_a_touch_that_moves_nothing_needs_not_be_read_again() -> None:
    ledger, cohorts = three_ranges()
    cohorts[0].bin_number = 4
    ledger.touch(SESSION, SOURCE, np.array([103]), 0, Pin(1, 10))
    assert (cohorts[0].ack_pin, ledger.oldest_ack_pinned(), ledger.take_changed_bins()) == (None, None, set())


def test_the_oldest_verdict_that_a_restart_needs_is_that_of_the_lowest_offset() -> None:
    """Whatever the order in which the verdicts came."""
    ledger, cohorts = three_ranges()
    assert ledger.oldest_verdict_pinned() is None
    for offset, number in ((9, 0), (5, 2), (7, 1), (3, 0)):
        ledger.verdict_end_pin = Pin(offset, 10 * offset)
        at = cohorts[number].start + offset
        ledger.fail(SESSION, SOURCE, np.array([at]), CAUSE)
    assert [cohort.verdict_pin for cohort in cohorts] == [Pin(9, 90), Pin(7, 70), Pin(5, 50)]
    assert ledger.oldest_verdict_pinned() is cohorts[2]
    cohorts[2].bin_number = 4
    assert ledger.oldest_verdict_pinned() is cohorts[1]
    ledger.abandon(SESSION, 0)
    assert ledger.oldest_verdict_pinned() is None


@pytest.mark.parametrize(("end", "is_kept"), [(105, False), (110, False), (111, True)])
def test_only_a_verdict_above_the_watermark_is_kept_until_its_init(end: int, is_kept: bool) -> None:
    """A run that ends at the watermark needs nothing of an init that comes."""
    ledger, _ = opened()
    ledger.settle_logged(Verdicts((SourceRun(SOURCE, 104, end),), (), ()), Pin(7, 70))
    assert ledger.first_pin_without_init == (Pin(7, 70) if is_kept else None)


# -- records with several runs


@pytest.mark.parametrize("more", [0, FEW_RUNS])
@pytest.mark.parametrize("empty", [(100, 100), (105, 105), (110, 110)])
def test_runs_beside_a_range_and_empty_ones_within_it_cost_it_nothing(
    empty: tuple[int, int], more: int
) -> None:
    """A record names several ranges; one that it only surrounds keeps no byte for its roots."""
    ledger = Ledger()
    ledger.open_run(emission_of(), SourceRun(SOURCE, 100, 110), 0)
    [cohort] = ledger.cohorts()
    around = [(90 - 2 * number, 91 - 2 * number) for number in range(more, 0, -1)]
    runs = [
        PositionRun(*run) for run in (*around, (95, 100), empty, (110, 115)) if run[0] < run[1] or not more
    ]
    ledger.fold(SESSION, contribution(sorted(runs), None, EDGES), Pin(7, 70))
    assert counted(ledger) == {"initialised": 10, "late": 5 + more, "above": 5}
    if not more:
        assert cohort.roots.bytes == 0
    assert cohort.roots.open_count == 10
