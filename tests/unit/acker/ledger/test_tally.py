"""What an acker counts of its verdicts, and that it stays small."""

from __future__ import annotations

import numpy as np
import pytest

from acker.identity import Position, Root, Source, copies_source, source_of
from acker.kafka.port import Record
from acker.ledger.cohort import InitEmission, Session
from acker.ledger.tally import BOUNDS_MS, CAUSES_MAX, OTHERS, PARTS_MAX, EmissionTimes, VerdictTally
from acker.ledger.verdicts import LossCause, VerdictSet
from acker.wire.causes import EXPLICIT, HELD
from acker.wire.events import FIRST_EMISSIONS, SourceRun, pack_root_numbers
from acker.wire.lateness import TooLate
from acker.wire.verdict import Verdict

NOW_MS = 1_800_000_000_000
EMISSION = InitEmission(Session("g", 1, "s"), "sentences", "t", 0, NOW_MS, 4_000)
SOURCE = source_of(1, 3)
COPIES = copies_source(SOURCE)


def lost(reason: Verdict = Verdict.FAILED, operator: str = "split", error: str = "ValueError") -> VerdictSet:
    """Lose two roots for a cause."""
    verdicts = VerdictSet()
    verdicts.lose(
        LossCause(reason, operator, error, "order-4711 has no words", 0), EMISSION, SOURCE, 7, range(2)
    )
    return verdicts


def test_roots_count_by_their_verdict_and_failures_by_operator_and_class() -> None:
    tally = VerdictTally()
    tally.add(
        [
            lost(),
            lost(error="NoSuchOrder(OrderError, LookupError)"),
            lost(error=""),
            lost(Verdict.TIMED_OUT, "", ""),
            lost(Verdict.ABANDONED, "", ""),
            lost(error=HELD),
        ],
        NOW_MS,
    )
    found = tally.inputs[1]
    assert found.verdicts == {"FAILED": 6, "TIMED_OUT": 2, "ABANDONED": 2, "BLOCKED": 2}
    assert found.failures == {("split", "ValueError"): 2, ("split", "NoSuchOrder"): 2, ("split", EXPLICIT): 2}


@pytest.mark.parametrize("varies", ["operator", "error"])
def test_ten_thousand_causes_are_a_hundred_and_the_others_together(varies: str) -> None:
    tally = VerdictTally()
    for number in range(10_000):
        tally.add([lost(**{varies: f"Error{number}"})], NOW_MS)  # type: ignore[arg-type]
    failures = tally.inputs[1].failures
    assert len(failures) == CAUSES_MAX + 1
    assert failures[OTHERS, OTHERS] == 2 * (10_000 - CAUSES_MAX)
    assert failures.total() == tally.inputs[1].verdicts["FAILED"] == 20_000


def test_acked_roots_count_in_the_class_of_their_time_with_the_last_as_an_example() -> None:
    tally = VerdictTally()
    for took_ms, start in ((10, 0), (11, 5), (BOUNDS_MS[-1] + 1, 9)):
        settled = VerdictSet()
        settled.ack(EMISSION, SOURCE, start, range(1, 4))
        tally.add([settled], NOW_MS + took_ms)
    found = tally.inputs[1]
    assert found.verdicts == {"ACKED": 9}
    assert (found.took_counts[:2], found.took_counts[-1], sum(found.took_counts)) == ([3, 3], 3, 9)
    assert found.took_total_ms == 3 * (10 + 11 + BOUNDS_MS[-1] + 1)
    assert found.slow_roots[1] == (Root(Source(SOURCE), 6), 11, NOW_MS + 11)  # type: ignore[arg-type]


def record_of(*headers: tuple[str, bytes | None]) -> Record:
    return Record("_ack_ack", 0, 0, None, b"", headers)


def test_an_acked_copy_took_the_time_since_its_record_was_emitted_first() -> None:
    """Attempt 3 of one took 70 s in all, of the other no record has it: its time begins with the copy."""
    tally, settled = VerdictTally(), VerdictSet()
    settled.ack(EMISSION, COPIES, 10, range(1, 4))
    value = pack_root_numbers(COPIES, np.array([13, 11]), np.array([NOW_MS - 20_000, NOW_MS - 70_000]))
    tally.record_headers([record_of(("other", b"x"), (FIRST_EMISSIONS, value))])
    tally.add([settled], NOW_MS + 40)
    found = tally.inputs[1]
    assert found.verdicts == {"ACKED": 3}
    took_ms = (40, 20_040, 70_040)
    assert found.took_total_ms == sum(took_ms)
    assert sum(found.took_counts) == 3
    places = {each.took_ms: each.root.position for each in found.slow_roots if each is not None}
    assert places == dict(zip(took_ms, (12, 13, 11), strict=True))
    tally.add([settled], NOW_MS + 40)
    assert found.took_total_ms == sum(took_ms) + 3 * 40, "it is forgotten with the verdict"


def test_what_is_no_header_of_copies_is_passed_over() -> None:
    tally, settled = VerdictTally(), VerdictSet()
    settled.ack(EMISSION, COPIES, 10, range(1, 2))
    other = pack_root_numbers(SOURCE, np.array([11]), np.array([0]))
    none = pack_root_numbers(COPIES, np.array([], np.int64), np.array([], np.int64))
    garbage = (None, b"", b"x" * 23, b"x" * 8)
    tally.record_headers([record_of((FIRST_EMISSIONS, value)) for value in (other, none, *garbage)])
    tally.add([settled], NOW_MS + 40)
    assert tally.inputs[1].took_total_ms == 40


def test_of_too_many_copies_that_wait_the_oldest_are_forgotten() -> None:
    firsts = EmissionTimes(times_max=2)
    for position in range(5):
        firsts.add(COPIES, np.array([position]), np.array([1_000 + position]))
    assert firsts.take(COPIES, np.array([0, 2]), 7).tolist() == [7, 7]
    assert firsts.take(COPIES, np.array([3, 4, 9]), 7).tolist() == [1_003, 1_004, 7]
    assert firsts.take(COPIES, np.array([3, 4]), 7).tolist() == [7, 7]


def test_of_copies_that_come_one_by_one_and_are_never_acked_little_is_kept() -> None:
    """Apart, a million of them took half a gigabyte, and each was dearer to note than the one before."""
    firsts = EmissionTimes()
    for position in range(3 * PARTS_MAX):
        firsts.add(COPIES, np.array([position]), np.array([1_000 + position]))
    assert len(firsts._parts_by_source[COPIES]) <= PARTS_MAX
    every = np.arange(3 * PARTS_MAX)
    assert firsts.take(COPIES, every, 7).tolist() == (1_000 + every).tolist()


def test_a_copy_does_not_change_any_more() -> None:
    tally = VerdictTally()
    tally.add([lost()], NOW_MS)
    copied = tally.copy()
    tally.add([lost()], NOW_MS)
    assert copied.inputs[1].verdicts == {"FAILED": 2}
    assert tally.inputs[1].verdicts == {"FAILED": 4}


def test_absent_roots_count_by_input_beside_all_others() -> None:
    """Of several inputs, runs and steps; a source and its copies are one input."""
    settled, later = VerdictSet(), VerdictSet()
    for source, start, hits in ((SOURCE, 7, range(2, 5)), (SOURCE, 100, range(1)), (COPIES, 7, range(2))):
        settled.absent.add(source, start, hits)
    settled.absent.add(source_of(2, 0), 50, np.array([1, 3, 4]))
    later.absent.add(SOURCE, 300, range(10))
    tally = VerdictTally()
    tally.add([settled], NOW_MS)
    assert {number: found.verdicts for number, found in tally.inputs.items()} == {
        1: {"ABSENT": 6},
        2: {"ABSENT": 3},
    }
    tally.add([later, lost()], NOW_MS)
    assert tally.inputs[1].verdicts == {"ABSENT": 16, "FAILED": 2}
    of_input = tally.inputs[1]
    assert sum(of_input.took_counts) == of_input.took_total_ms == 0, "only what was acked took a time"


def test_what_was_blocked_hides_no_other_loss_of_its_step() -> None:
    """The causes of one step: blocked ones before, between and behind others."""
    step = VerdictSet()
    for number, error in enumerate((HELD, "ValueError", HELD, "KeyError")):
        cause = LossCause(Verdict.FAILED, "split", error, f"{number}", 0)
        step.lose(cause, EMISSION, SOURCE, 10 * number, range(1 + number))
    tally = VerdictTally()
    tally.add([step], NOW_MS)
    assert tally.inputs[1].verdicts == {"BLOCKED": 1 + 3, "FAILED": 2 + 4}
    assert tally.inputs[1].failures == {("split", "ValueError"): 2, ("split", "KeyError"): 4}


@pytest.mark.parametrize("passed_ms", [-3_600_000, -1, 0, 1, 2])
@pytest.mark.parametrize("source", [SOURCE, COPIES])
def test_a_root_took_no_less_than_no_time_though_a_clock_stepped_back(source: int, passed_ms: int) -> None:
    """Of first emissions and copies; the clock that stands gives 0 as well."""
    settled = VerdictSet()
    settled.ack(EMISSION, source, 5, range(3))
    tally = VerdictTally()
    tally.add([settled], EMISSION.wall_ms + passed_ms)
    assert tally.inputs[1].took_total_ms == 3 * max(0, passed_ms)
    [slow] = [each for each in tally.inputs[1].slow_roots if each is not None]
    assert slow == (Root(Source(source), Position(5)), max(0, passed_ms), EMISSION.wall_ms + passed_ms)


def test_headers_of_copies_are_joined_when_they_are_too_many_and_not_before() -> None:
    """To join them each time would make each dearer to note than the one before."""
    firsts = EmissionTimes()
    parts = []
    for position in range(2 * PARTS_MAX):
        firsts.add(COPIES, np.array([position]), np.array([position]))
        parts.append(len(firsts._parts_by_source[COPIES]))
    joined_every = [1 + number % PARTS_MAX for number in range(2 * PARTS_MAX)]
    assert parts[:PARTS_MAX] == joined_every[:PARTS_MAX]
    assert parts[PARTS_MAX] == 1


@pytest.mark.parametrize("parts", [[2, 1], [1, 2], [4], [5], [3, 3]])
def test_copies_are_forgotten_only_where_they_are_twice_as_many_as_may_wait(parts: list[int]) -> None:
    """Of two; then the last ones stay."""
    firsts = EmissionTimes(times_max=2)
    given = np.arange(sum(parts))
    for part in np.split(given, np.cumsum(parts)[:-1]):
        firsts.add(COPIES, part, 100 + part)
    kept = given if len(given) <= 4 else given[-2:]
    assert firsts.take(COPIES, given, 7).tolist() == [100 + at if at in kept else 7 for at in given.tolist()]


def note_of(group: str, rows: int = 3) -> TooLate:
    """Return a note of rows that a watermark of a group dropped, and of two roots."""
    roots = (SourceRun(SOURCE, 4, 6),)
    return TooLate(group, "query", 1, True, 5, 6, rows, 7, (SourceRun(SOURCE, 1, 2),), roots, ())


def test_what_came_too_late_counts_by_group_and_a_copy_keeps_it() -> None:
    tally = VerdictTally()
    tally.add_too_late([note_of("g"), note_of("other"), note_of("g", 4)])
    copied = tally.copy()
    assert copied.too_late == tally.too_late
    tally.add_too_late([note_of("g", 5)])
    counted = {group: (counts.roots, counts.rows) for group, counts in tally.too_late.items()}
    assert counted == {"g": (6, 12), "other": (2, 3)}
    assert (copied.too_late["g"].roots, copied.too_late["g"].rows) == (4, 7)


def test_a_thousand_groups_that_came_too_late_are_a_hundred_and_the_others_together() -> None:
    """A group that has its own count keeps it."""
    tally = VerdictTally()
    for number in range(1_000):
        tally.add_too_late([note_of(f"g{number}")])
    tally.add_too_late([note_of("g0"), note_of(f"g{CAUSES_MAX - 1}"), note_of(f"g{CAUSES_MAX}")])
    assert len(tally.too_late) == CAUSES_MAX + 1
    assert tally.too_late[OTHERS].roots == 2 * (1_000 - CAUSES_MAX + 1)
    for number in (0, CAUSES_MAX - 1):
        assert tally.too_late[f"g{number}"].roots == 4
    assert tally.too_late["g1"].roots == 2
