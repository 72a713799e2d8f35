"""What one record contributes, against the list of all its positions and values."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest

from acker.hot_paths import as_array
from acker.identity import WIRE_BLOCK_BITS, root_edge, source_of
from acker.ledger.cohort import InitEmission, RootCohort, Session
from acker.ledger.contribution import FEW_RUNS, Contribution, clip, count_at_or_above
from acker.ledger.roots import Roots
from acker.wire.events import Acks, PositionRun, pack_positions, pack_values

SOURCE = source_of(1, 3)
BLOCK = 1 << WIRE_BLOCK_BITS
EMISSION = InitEmission(Session("g", 1, "a"), "lines", "id", 0, 0, 0)
BLOCKS = (0, 5)
SHAPES = (
    "ordered",
    "unordered",
    "repeated",
    "runs overlap",
    "runs cover positions",
    "empty runs",
    "many runs",
)


def acks(
    block: int, runs: list[PositionRun], scattered: list[int], contributions: list[int] | None = None
) -> Acks:
    """Write a record."""
    positions, values = (
        np.array(scattered, np.int64),
        np.array(contributions or [7] * len(scattered), np.uint64),
    )
    return Acks(
        "q",
        1,
        "g",
        "a",
        1,
        SOURCE,
        block,
        tuple(runs),
        pack_positions(positions),
        pack_values(values),
        (),
        b"",
        0,
    )


def drawn(random: Random, shape: str, block: int) -> Acks:
    """Draw a record of one block, near the block's start."""
    block_start = block * BLOCK
    count = {"many runs": random.choice([FEW_RUNS, FEW_RUNS + 1, FEW_RUNS + 4])}.get(
        shape, random.randrange(4)
    )
    runs: list[PositionRun] = []
    start = block_start + random.randrange(3)
    for _ in range(count):
        start += random.randint(-2, 2) if shape == "runs overlap" and runs else random.randrange(3)
        start = max(block_start, start)
        end = start + random.randint(0 if shape == "empty runs" else 1, 3)
        runs.append(PositionRun(start, end))
        start = end
    drawn_positions = random.sample(range(block_start, block_start + 40), random.randrange(8))
    if random.random() < 0.3:
        drawn_positions = list(range(min(drawn_positions, default=block_start + 1), block_start + 12))
    if shape not in {"runs cover positions", "runs overlap"}:
        covered = {position for run in runs for position in range(run.start, run.end)}
        drawn_positions = [position for position in drawn_positions if position not in covered]
    if shape == "repeated":
        drawn_positions += drawn_positions[:3]
    if shape not in {"unordered", "repeated"}:
        drawn_positions.sort()
    values = [
        random.choice([root_edge(SOURCE, position), random.getrandbits(64)]) for position in drawn_positions
    ]
    return acks(block, runs, drawn_positions, values)


def contributions_of(record: Acks) -> list[tuple[int, int]]:
    """Return each position with its value."""
    scattered = np.frombuffer(record.positions, "<i8").tolist()
    values = np.frombuffer(record.values, "<u8").tolist()
    in_runs = [position for run in record.runs for position in range(run.start, run.end)]
    return [(position, root_edge(SOURCE, position)) for position in in_runs] + list(
        zip(scattered, values, strict=True)
    )


def cohort_of(random: Random, block: int) -> tuple[RootCohort, dict[int, int]]:
    """Draw a range around a record's positions, some of its roots settled; and what each misses."""
    start = block * BLOCK + random.randrange(20)
    size = random.randrange(1, 30)
    roots = Roots(SOURCE, start, size)
    missing = {position: root_edge(SOURCE, position) for position in range(start, start + size)}
    if random.random() < 0.5:
        contributed_indices = sorted(random.sample(range(size), random.randrange(size)))
        values = np.array([random.getrandbits(64) for _ in contributed_indices], np.uint64)
        roots.xor(np.array(contributed_indices, np.int64), values)
        for index, value in zip(contributed_indices, values.tolist(), strict=True):
            missing[start + index] ^= value
    settled = sorted(random.sample(range(size), random.randrange(size)))
    roots.settle(np.array(settled, np.int64))
    for index in settled:
        del missing[start + index]
    return RootCohort(roots, EMISSION, 0, 1), missing


def missing_in(cohort: RootCohort) -> dict[int, int]:
    """Return what each open root of a range misses."""
    positions = (as_array(cohort.roots.open_at()) + cohort.start).tolist()
    return dict(zip(positions, cohort.roots.missing().tolist(), strict=True))


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_contribution_counts_at_each_root_as_its_list_of_positions_does(shape: str, block: int) -> None:
    """As a canonical record, and as another program may write it; for all of a range, its start, its end."""
    random = Random(f"{shape} {block}")
    for _ in range(60):
        record = drawn(random, shape, block)
        listed = contributions_of(record)
        contribution = Contribution(record)
        named = [position for position, _ in listed]
        assert contribution.count == len(listed)
        nowhere = block * BLOCK
        bounds = (min(named), max(named) + 1) if named else (nowhere, nowhere)
        assert (contribution.start, contribution.end) == bounds
        assert not contribution.is_outside
        for settles in (False, True):
            cohort, missing = cohort_of(random, block)
            counting = [(position, value) for position, value in listed if position in missing]
            for position, value in counting:
                missing[position] ^= value
            if settles:
                counted, hits = contribution.fold_and_settle(cohort)
                complete = {position for position, _ in counting if not missing[position]}
                missing = {position: value for position, value in missing.items() if position not in complete}
                found = [cohort.start + index for part in hits for index in as_array(part).tolist()]
                assert sorted(found) == sorted(complete)
            else:
                counted = contribution.fold_unsettled(cohort)
            assert counted == len(counting)
            assert missing_in(cohort) == missing


@pytest.mark.parametrize("shape", SHAPES)
def test_only_what_is_no_canonical_record_is_flattened(shape: str) -> None:
    """A run costs 16 bytes; flattened it costs as much for each root."""
    random = Random(shape)
    for _ in range(60):
        record = drawn(random, shape, 0)
        in_runs = [position for run in record.runs for position in range(run.start, run.end)]
        named = set(np.frombuffer(record.positions, "<i8").tolist())
        is_canonical = not named & set(in_runs) and all(
            before.end <= after.start for before, after in pairwise(record.runs)
        )
        contribution = Contribution(record)
        assert tuple(contribution.runs) == (record.runs if is_canonical else ())
        assert len(contribution.positions) == contribution.count - (len(in_runs) if is_canonical else 0)
        assert len(contribution.positions) == len(contribution.values)


@pytest.mark.parametrize("block", [0, 1, 5])
@pytest.mark.parametrize("kind", ["position", "run"])
@pytest.mark.parametrize(
    ("offset", "outside"), [(-1, True), (0, False), (BLOCK - 1, False), (BLOCK, True), (BLOCK + 1, True)]
)
def test_a_position_outside_the_block_is_noticed_at_each_end(
    block: int, kind: str, offset: int, outside: bool
) -> None:
    """Such a record would change roots that another check has not seen; beside others inside."""
    position = block * BLOCK + offset
    if position < 0:
        return
    inside = block * BLOCK + 9
    alone = (
        acks(block, [], [position])
        if kind == "position"
        else acks(block, [PositionRun(position, position + 1)], [])
    )
    assert Contribution(alone).is_outside is outside
    both = acks(block, [PositionRun(inside, inside + 1)], [position])
    if kind == "run":
        both = acks(block, [PositionRun(position, position + 1)], [inside])
    assert Contribution(both).is_outside is outside
    unordered = acks(block, [], [inside, position, inside + 1])
    assert Contribution(unordered).is_outside is outside


@pytest.mark.parametrize("block", [0, 5])
def test_a_record_without_positions_lies_nowhere_and_not_outside(block: int) -> None:
    for runs in ([], [PositionRun(block * BLOCK + 4, block * BLOCK + 4)]):
        contribution = Contribution(acks(block, runs, []))
        assert (contribution.start, contribution.end) == (block * BLOCK, block * BLOCK)
        assert (contribution.count, contribution.is_outside) == (0, False)


def test_positions_are_cut_to_those_of_a_range() -> None:
    cohort = RootCohort(Roots(SOURCE, 100, 10), EMISSION, 0, 1)
    named = np.array([98, 99, 100, 104, 109, 110, 111])
    assert clip(named, cohort).tolist() == [0, 4, 9]


def test_what_is_not_below_the_watermark_is_counted_in_runs_and_at_positions() -> None:
    runs = [PositionRun(5, 9), PositionRun(9, 12), PositionRun(20, 23)]
    assert count_at_or_above(10, runs, None) == 2 + 3
    assert count_at_or_above(10, runs, np.array([9, 10, 11])) == 5 + 2
    assert count_at_or_above(30, runs, np.array([9])) == 0
