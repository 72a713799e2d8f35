"""Each partition has a key whose hash leads there, as Spark computes it."""

from __future__ import annotations

import pytest

from spout.spark.hashed_partitions import keys_of_partitions, spark_hash


def test_hashes_are_those_of_spark() -> None:
    """Spark's ``SELECT hash(0), hash(1), hash(42)``."""
    assert [spark_hash(number) for number in (0, 1)] == [933_211_791, -559_580_957]


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 200])
def test_each_partition_has_one_key_that_leads_there(partitions: int) -> None:
    keys = keys_of_partitions(partitions)
    # Spark's pmod is never negative, as Python's
    assert [spark_hash(key) % partitions for key in keys] == list(range(partitions))
