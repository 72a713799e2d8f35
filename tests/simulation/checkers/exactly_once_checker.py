"""Exactly once: what a store holds, and what became of the roots of its rows."""

from __future__ import annotations

from collections.abc import Sequence

from acker.wire.events import Lost
from acker.wire.verdict import Verdict
from tests.simulation.truth.checker import Checker
from tests.simulation.truth.facts import COMPLETE, RootTruth, SinkRow
from tests.simulation.truth.truth import Truth


class ExactlyOnce(Checker):
    """Rule 12. Every record of a run has a row at least, so that an acked one without rows is seen."""

    rule = "a store has the rows of each acked record once, and no other row"

    def __init__(self) -> None:
        """Begin with an empty store."""
        self._stored: set[tuple[int, int]] = set()
        self._first_emissions: dict[tuple[int, int], RootTruth] = {}

    def stored(self, truth: Truth, rows: Sequence[SinkRow]) -> None:
        """Refuse rows of a record whose rows are there, and rows that no single evaluation made."""
        rows_by_root: dict[tuple[int, int], list[SinkRow]] = {}
        for row in rows:
            rows_by_root.setdefault((row.source, row.position), []).append(row)
        for place, rows_of_root in rows_by_root.items():
            root = truth.roots.get(place)
            if root is None:
                raise self.broken(f"there are rows of {place}, which was never emitted")
            self._refuse_parts(root, rows_of_root)
            if root.verdict not in (None, Verdict.ACKED):
                raise self.broken(f"rows of {root} are stored, and it is {root.verdict}")
            first = root.emissions[0]
            other = self._first_emissions.setdefault((first.source, first.position), root)
            if other is not root or place in self._stored:
                raise self.broken(f"the rows of {first} are stored twice: of {other}, and of {root}")
            self._stored.add(place)

    def verdict(
        self, truth: Truth, partition: int, place: tuple[int, int], root: RootTruth | None, kind: Verdict,
        lost: Lost | None,
    ) -> None:  # fmt: skip
        """An acked root has its rows in the store, and any other one has none there."""
        if root is None or not truth.is_exact:
            return
        if kind is Verdict.ACKED and place not in self._stored:
            raise self.broken(f"{root} is ACKED, and its rows are not stored")
        if kind is not Verdict.ACKED and place in self._stored:
            raise self.broken(f"{root} is {kind}, and its rows are stored")

    def _refuse_parts(self, root: RootTruth, rows: Sequence[SinkRow]) -> None:
        """Refuse rows of a root unless they are all the rows of one evaluation that acked it."""
        ordinals = sorted(row.ordinal for row in rows)
        evaluations = {row.evaluation for row in rows}
        results = {row.result for row in rows}
        if ordinals != list(range(rows[0].total)) or len(evaluations) > 1 or results != {COMPLETE}:
            raise self.broken(f"of {root} these rows are stored: {list(map(tuple, rows))}")
