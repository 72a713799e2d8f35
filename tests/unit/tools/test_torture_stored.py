"""What is wrong with the rows of a tortured store is seen, each kind by itself, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acker.wire.verdict import Verdict
from spout.demo.judge import Emission
from tests.support.worlds.torture_world import FIRST, NAMES, REPLAY, SOURCE, World
from tests.torture.exact.rows import RowFaults, StoredRow, row_faults
from tests.torture.judging.judge import Aftermath, Judgement, judge

T0 = 1_000_000
ACKED = Emission("t/0@1", 1)
ACKED_AGAIN = Emission("t/0@2", 3)
DEAD = Emission("t/0@3", 8)


def rows_of(emission: Emission, evaluation: str = "e", rows: int = 3) -> list[StoredRow]:
    """Return the rows of an evaluation, all of them."""
    return [StoredRow(*emission, evaluation, ordinal, rows) for ordinal in range(rows)]


RIGHT = [*rows_of(ACKED), *rows_of(ACKED_AGAIN, "f", 1)]

WRONG = {
    "no row": ("missing", RIGHT[3:]),
    "the first row is missing": ("missing", RIGHT[1:]),
    "a middle row is missing": ("missing", [RIGHT[0], *RIGHT[2:]]),
    "the last row is missing": ("missing", [*RIGHT[:2], RIGHT[3]]),
    "one row twice": ("twice", [*RIGHT, RIGHT[1]]),
    "all rows of a record twice": ("twice", [*RIGHT, RIGHT[3]]),
    "a second evaluation, whole": ("twice", [*RIGHT, *rows_of(ACKED, "g", 2)]),
    "rows of an attempt that is not acked": ("not_acked", [*RIGHT, *rows_of(Emission("t/0@2", 2), "g")]),
    "rows of a dead letter": ("not_acked", [*RIGHT, *rows_of(DEAD)]),
    "a row of a record that nobody knows": ("not_acked", [*RIGHT, *rows_of(Emission("t/9@9", 1), "h", 1)]),
}


def faults_by_kind(faults: RowFaults) -> dict[str, int]:
    """Return how many there are of each kind that there is."""
    kinds = {"missing": faults.missing, "twice": faults.twice, "not_acked": faults.not_acked}
    return {kind: len(sentences) for kind, sentences in kinds.items() if sentences}


def test_a_store_with_the_rows_of_one_evaluation_of_each_acked_record_is_right() -> None:
    faults = row_faults({ACKED, ACKED_AGAIN}, reversed(RIGHT))
    assert faults_by_kind(faults) == {}
    assert all(check.passed for check in faults.checks())
    assert set(faults.counts().values()) == {0}


@pytest.mark.parametrize("name", WRONG)
def test_each_fault_is_seen_and_no_other(name: str) -> None:
    kind, stored = WRONG[name]
    faults = row_faults({ACKED, ACKED_AGAIN}, stored)
    assert faults_by_kind(faults) == {kind: 1}
    assert [check.passed for check in faults.checks()].count(False) == 1
    assert sum(faults.counts().values()) == 1


def test_half_of_one_evaluation_and_half_of_another_is_neither_whole_nor_once() -> None:
    stored = [*rows_of(ACKED, "e")[:1], *rows_of(ACKED, "g")[1:]]
    assert faults_by_kind(row_faults({ACKED}, stored)) == {"missing": 2, "twice": 1}


def test_a_record_that_is_acked_at_two_attempts_has_its_rows_twice() -> None:
    again = Emission(ACKED.origin, 2)
    stored = [*rows_of(ACKED), *rows_of(again, "g")]
    assert faults_by_kind(row_faults({ACKED, again}, stored)) == {"twice": 1}


class TestOfARun:
    """The same from the topics of a run: a record that is acked at first, one as a copy, one dead letter."""

    def aftermath(self) -> Aftermath:
        """Return a run in which all went right, without its store."""
        world = World()
        world.take(FIRST, T0 - 10)
        world.produce(1)
        world.init(SOURCE, 1, T0)
        world.acked(SOURCE, 1, T0 + 300)
        for number, offset in ((2, 0), (3, 1)):
            world.produce(number)
            world.init(SOURCE, number, T0)
            world.lose(SOURCE, number, Verdict.FAILED, T0 + 300, "UnluckyLineError")
            if number == 2:
                world.copy(number, offset)
                world.init(REPLAY, offset, T0 + 400)
                world.acked(REPLAY, offset, T0 + 600)
            else:
                world.bury(number)
        return Aftermath(world.evidence, [], world.durable, [], {}, stored=[])

    def judged(self, stored: list[StoredRow]) -> Judgement:
        """Judge the run with what its store has."""
        return judge(replace(self.aftermath(), stored=stored))

    def test_the_rows_of_what_is_acked_are_right(self) -> None:
        """D3202: and the report counts them."""
        origin = f"{NAMES.source}/0@"
        stored = [*rows_of(Emission(f"{origin}1", 1)), *rows_of(Emission(f"{origin}2", 2), "f")]
        judgement = self.judged(stored)
        assert [check for check in judgement.checks if not check.passed] == []
        assert judgement.counts["rows"] == 6

    @pytest.mark.parametrize(
        ("emissions", "counts"),
        [
            ([(1, 1), (2, 2), (3, 1)], {"rows_missing": 0, "rows_twice": 0, "rows_of_dead": 1}),
            ([(1, 1), (2, 1)], {"rows_missing": 1, "rows_twice": 0, "rows_of_dead": 1}),
            ([(1, 1)], {"rows_missing": 1, "rows_twice": 0, "rows_of_dead": 0}),
            ([(1, 1), (1, 1), (2, 2)], {"rows_missing": 0, "rows_twice": 1, "rows_of_dead": 0}),
        ],
        ids=["dead", "lost attempt", "missing", "twice"],
    )
    def test_what_is_wrong_falls(self, emissions: list[tuple[int, int]], counts: dict[str, int]) -> None:
        """D3202: by the topics, not by what the store says of itself."""
        stored = [
            row
            for number, attempt in emissions
            for row in rows_of(Emission(f"{NAMES.source}/0@{number}", attempt))
        ]
        judgement = self.judged(stored)
        assert not judgement.held
        assert {name: judgement.counts[name] for name in counts} == counts
