"""The arrays of a range against one number for each root, in each form that the range can take."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from acker.hot_paths import Indices, as_array
from acker.identity import I64, U64, root_edges_of_run
from acker.ledger.roots import SPARSE_SHARE, Roots

SOURCE, START = 65_539, 1_000
DENSE_BYTES, SPARSE_BYTES = 8 + 1, 4 + 8


class RootsScript:
    """Draws operations; `missing` has what each open root misses, by its index."""

    def __init__(self, seed: int, size: int) -> None:
        self.random = Random(seed)
        self.size = size
        self.edges = root_edges_of_run(SOURCE, START, START + size).tolist()
        self.missing: dict[int, int] = dict(enumerate(self.edges))
        self.roots = Roots(SOURCE, START, size)
        self.has_contributions = False
        self.operations = [self.fold, self.fold_run, self.xor, self.complete_run, self.complete_edges]
        self.operations += [self.xor_edges, self.settle, self.settle_run, self.load, self.fold, self.fold_run]

    # -- what is drawn

    def some(self) -> list[int]:
        """Draw indices, ascending and distinct; often of open roots, sometimes all."""
        kind = self.random.random()
        if kind < 0.05:
            return list(range(self.size))
        if kind < 0.1:
            return sorted(self.missing)
        count = self.random.choice([0, 1, 2, 5, self.size // 3])
        return sorted(self.random.sample(range(self.size), min(count, self.size)))

    def run(self) -> tuple[int, int]:
        """Draw a run; sometimes exactly what is open, or the whole."""
        if self.missing and self.random.random() < 0.2:
            return min(self.missing), max(self.missing) + 1
        first = self.random.randrange(self.size)
        return first, min(self.size, first + self.random.choice([1, 2, 5, self.size]))

    def given(self, named: list[int]) -> list[int]:
        """Draw what is contributed: nothing that fits, or what a root misses; one kind for all, or mixed."""
        share = self.random.choice([0.0, 0.5, 1.0])
        return [
            self.missing.get(index, 3) if self.random.random() < share else self.random.getrandbits(64)
            for index in named
        ]

    # -- what a root does

    def contribute(self, named: list[int], given: list[int], *, settles: bool) -> tuple[int, list[int]]:
        """Add to the model; return how many counted and what they settled."""
        counted = [(index, value) for index, value in zip(named, given, strict=True) if index in self.missing]
        for index, value in counted:
            self.missing[index] ^= value
        complete = sorted({index for index, _ in counted if not self.missing[index]}) if settles else []
        self.take(complete)
        return len(counted), complete

    def take(self, named: list[int]) -> list[int]:
        """Settle in the model; return those that were open."""
        return [index for index in named if self.missing.pop(index, None) is not None]

    def note_values(self) -> None:
        """Remember that the range cannot be without values any more."""
        self.has_contributions = bool(self.missing)

    # -- operations

    def fold(self) -> None:
        """Contribute to scattered roots, also to one of them several times."""
        named = self.some()
        is_distinct = self.random.random() < 0.6
        if not is_distinct:
            named = [self.random.choice(named or [0]) for _ in range(2 * len(named))]
        given = self.given(named)
        self.note_values()
        counted, hits = self.roots.fold(array(named), edges(given), is_distinct=is_distinct)
        assert (counted, listed(hits)) == self.contribute(named, given, settles=True)

    def fold_run(self) -> None:
        """Contribute to neighbours."""
        first, end = self.run()
        given = self.given(list(range(first, end)))
        self.note_values()
        counted, hits = self.roots.fold(range(first, end), edges(given))
        assert (counted, listed(hits)) == self.contribute(list(range(first, end)), given, settles=True)

    def xor(self) -> None:
        """Contribute, and settle none."""
        named = self.some()
        given = [self.random.getrandbits(64) for _ in named]
        self.note_values()
        assert self.roots.xor(array(named), edges(given)) == self.contribute(named, given, settles=False)[0]

    def xor_edges(self) -> None:
        """Contribute edges, and settle none, where a root misses something else."""
        named = [index for index in self.some() if self.missing.get(index) != self.edges[index]]
        given = [self.edges[index] for index in named]
        self.note_values()
        assert self.roots.xor_edges(array(named)) == self.contribute(named, given, settles=False)[0]

    def complete_run(self) -> None:
        """Contribute edges to neighbours."""
        first, end = self.run()
        given = self.edges[first:end]
        counted, hits = self.roots.complete_run(first, end)
        assert (counted, listed(hits)) == self.contribute(list(range(first, end)), given, settles=True)

    def complete_edges(self) -> None:
        """Contribute edges to scattered roots."""
        named = self.some()
        given = [self.edges[index] for index in named]
        counted, hits = self.roots.complete_edges(array(named))
        assert (counted, listed(hits)) == self.contribute(named, given, settles=True)

    def settle(self) -> None:
        """Settle scattered roots."""
        named = self.some()
        assert listed(self.roots.settle(array(named))) == self.take(named)

    def settle_run(self) -> None:
        """Settle neighbours."""
        first, end = self.run()
        assert listed(self.roots.settle_run(first, end)) == self.take(list(range(first, end)))

    def load(self) -> None:
        """Carry the range through State."""
        if self.missing and self.random.random() < 0.2:
            carried = Roots(SOURCE, START, self.size)
            carried.load(as_array(self.roots.open_at()), self.roots.missing())
            self.roots = carried
            self.has_contributions = True

    # -- what is compared

    def compare(self) -> None:
        """Assert that the arrays have what the model has, and are no larger than their form allows."""
        roots = self.roots
        assert roots.open_count == len(self.missing)
        assert listed(roots.open_at()) == sorted(self.missing)
        assert roots.missing().tolist() == [self.missing[index] for index in sorted(self.missing)]
        named = [*range(self.size), *reversed(range(self.size))]
        assert roots.is_open(array(named)).tolist() == [index in self.missing for index in named]
        if not self.missing:
            assert roots.bytes == 0
            return
        assert roots.has_contributions == self.has_contributions
        if SPARSE_SHARE * roots.open_count <= self.size:
            assert roots.bytes == roots.open_count * (SPARSE_BYTES if roots.has_contributions else 4)
        else:
            assert roots.bytes <= max(DENSE_BYTES * self.size, SPARSE_BYTES * roots.open_count)


def array(named: list[int]) -> I64:
    """Return indices as an array."""
    return np.array(named, np.int64)


def edges(given: list[int]) -> U64:
    """Return contributions as an array."""
    return np.array(given, np.uint64)


def listed(hits: Indices) -> list[int]:
    """Return hits as a list."""
    return as_array(hits).tolist()


@pytest.mark.parametrize("size", [1, 3, 16, 64])
@pytest.mark.parametrize("seed", range(8))
def test_a_range_says_in_every_form_what_one_number_for_each_root_says(seed: int, size: int) -> None:
    """Neighbours, scattered roots, repeated ones, settled ones, all, none; carried through State."""
    script = RootsScript(seed, size)
    for _ in range(60):
        script.random.choice(script.operations)()
        script.compare()
    script.roots.settle_all()
    script.missing.clear()
    script.compare()
