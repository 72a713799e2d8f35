"""The rows that a torture writes exactly once, and what can be wrong with those of a store; pure.

A row says which emission of a record it is of, which evaluation of the bolt made it, and how many rows that
evaluation made. So a store tells by itself whether it has an evaluation whole, twice, or beside another one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from spout.demo.judge import Check, Emission
from tests.support.flaws import check_none

COLUMNS: Final = ("origin", "attempt", "evaluation", "ordinal", "rows")
"""Names of a row's columns, as bolts and stores have them."""

ROWS_MAX: Final = 4
"""An evaluation makes one to so many rows, so that a record without rows is always one that lacks them."""


class StoredRow(NamedTuple):
    """A row of a store: the emission that it is of, the evaluation that made it, its place among `rows`."""

    origin: str
    attempt: int
    evaluation: str
    ordinal: int
    rows: int

    @property
    def emission(self) -> Emission:
        """Which emission of which record it is of."""
        return Emission(self.origin, self.attempt)


@dataclass(slots=True)
class RowFaults:
    """What is wrong with the rows of a store, a sentence each.

    Attributes:
        missing: acked records that lack rows.
        twice: acked records with a row twice, or with rows of several evaluations.
        not_acked: rows of an emission that is not acked: of a dead letter, or one that was lost.
    """

    missing: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    not_acked: list[str] = field(default_factory=list)

    def checks(self) -> tuple[Check, ...]:
        """Return what must hold."""
        return (
            check_none("each acked record has its rows in the store", self.missing),
            check_none("no acked record has a row in the store twice", self.twice),
            check_none("the store has no row of what is not acked", self.not_acked),
        )

    def counts(self) -> Mapping[str, int]:
        """Return how many there are of each, by what the report calls them."""
        return {
            "rows_missing": len(self.missing),
            "rows_twice": len(self.twice),
            "rows_of_dead": len(self.not_acked),
        }


def row_faults(acked: Set[Emission], stored: Iterable[StoredRow]) -> RowFaults:
    """Compare what a store has with what is acked by the topics."""
    faults = RowFaults()
    rows_by_emission: dict[Emission, list[StoredRow]] = defaultdict(list)
    for row in stored:
        rows_by_emission[row.emission].append(row)
    acked_of_origin: dict[str, list[int]] = defaultdict(list)
    for emission in sorted(acked):
        _add_faults_of_acked(faults, emission, rows_by_emission.get(emission, []))
        if emission in rows_by_emission:
            acked_of_origin[emission.origin].append(emission.attempt)
    for origin, attempts in acked_of_origin.items():
        if len(attempts) > 1:
            faults.twice.append(f"{origin} is acked, and has rows, at attempts {attempts}")
    for emission in sorted(rows_by_emission.keys() - acked):
        faults.not_acked.append(
            f"{emission.origin}, attempt {emission.attempt}: {len(rows_by_emission[emission])} rows"
        )
    return faults


def _add_faults_of_acked(faults: RowFaults, emission: Emission, rows: list[StoredRow]) -> None:
    """Add what is wrong with the rows of an emission that is acked."""
    name = f"{emission.origin}, attempt {emission.attempt}"
    evaluations = {row.evaluation for row in rows}
    if len(evaluations) > 1:
        faults.twice.append(f"{name}: rows of {len(evaluations)} evaluations")
    if not rows:
        faults.missing.append(f"{name}: no row")
    for evaluation in sorted(evaluations):
        of_evaluation = [row for row in rows if row.evaluation == evaluation]
        ordinals = [row.ordinal for row in of_evaluation]
        expected = set(range(of_evaluation[0].rows))
        if len(set(ordinals)) < len(ordinals):
            faults.twice.append(f"{name}: rows {sorted(ordinals)}")
        if set(ordinals) != expected:
            faults.missing.append(f"{name}: rows {sorted(ordinals)} of {len(expected)}")
