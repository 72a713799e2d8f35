"""A shuffle by the number of a partition, where Spark shuffles by hashes alone: in 4.0.

Spark puts a row into partition ``pmod(hash(key), n)``. So each partition gets a key of its own,
whose hash leads there: of four partitions perhaps the keys 4, 1, 0 and 7.

Source: Spark's `HashPartitioning` and `Murmur3_x86_32.hashInt`.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

_SEED: Final = 42
_MASK: Final = 0xFFFF_FFFF


def hashed_to_partitions(rows: DataFrame, partition_count: int, partition_column: str) -> DataFrame:
    """Return rows after a shuffle into `partition_count` partitions.

    Spark shuffles by the hash of a key. So each row gets a key whose hash leads to its partition.

    `partition_column`: the name of the column that has, for each row, the number of its partition.
    """
    keys = sql.array(*(sql.lit(key) for key in keys_of_partitions(partition_count)))
    key_index = sql.col(partition_column).cast("int") + 1  # element_at counts from 1
    return rows.repartition(partition_count, sql.element_at(keys, key_index))


@cache
def keys_of_partitions(partitions: int) -> tuple[int, ...]:
    """Return, by partition, the lowest number whose hash Spark puts into that partition."""
    key_by_partition: dict[int, int] = {}
    key = 0
    while len(key_by_partition) < partitions:
        key_by_partition.setdefault(spark_hash(key) % partitions, key)
        key += 1
    return tuple(key_by_partition[partition] for partition in range(partitions))


def spark_hash(number: int) -> int:
    """Return Spark's ``hash`` of an int that is not negative; it has 32 bits and a sign."""
    # the one word of the number
    word = number * 0xCC9E2D51 & _MASK
    word = (word << 15 | word >> 17) & _MASK
    word = word * 0x1B873593 & _MASK
    value = _SEED ^ word
    value = (value << 13 | value >> 19) & _MASK
    value = (value * 5 + 0xE6546B64) & _MASK
    # the length in bytes, then every bit moves every other one
    value ^= 4
    value ^= value >> 16
    value = value * 0x85EBCA6B & _MASK
    value ^= value >> 13
    value = value * 0xC2B2AE35 & _MASK
    value ^= value >> 16
    return value - (1 << 32) if value >> 31 else value
