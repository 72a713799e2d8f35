"""What ``python -m benchmarks failing`` counts on."""

from __future__ import annotations

import os

from benchmarks.measure import cpu_seconds_by_program, cpu_seconds_of_tree
from benchmarks.streams.failing import failing_count
from benchmarks.world import PARTITIONS


def test_as_many_records_fail_as_have_an_offset_that_says_so() -> None:
    """A round that waited for others would never end."""
    for records in (0, 1, 7, 2_003, 10_000):
        offsets = [number // PARTITIONS for number in range(records)]
        for fail_every in (2, 3, 1_000):
            assert failing_count(records, fail_every) == sum(offset % fail_every == 0 for offset in offsets)
        assert failing_count(records, 0) == 0


def test_the_cpu_of_all_programs_is_that_of_the_tree() -> None:
    """What no program is named for is the driver's: so no process is left out."""
    cpu_before = cpu_seconds_of_tree(os.getpid())
    by_program = cpu_seconds_by_program(os.getpid())
    cpu_after = cpu_seconds_of_tree(os.getpid())
    rounding = 1e-6  # sums in another order
    assert cpu_before - rounding <= sum(by_program.values()) <= cpu_after + rounding
    assert "driver's Python" in by_program
