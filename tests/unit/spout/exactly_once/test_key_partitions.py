"""Keys are where Java's clients have them, however many are computed at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spout.exactly_once.key_partitions import KEYLESS_RUN, key_partitions, murmur2

OF_KAFKA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""From Kafka's own test, ``UtilsTest.testMurmur2``."""


def binary(*keys: bytes | None) -> pa.BinaryArray:
    return pa.array(keys, pa.binary())


def test_hashes_are_those_of_kafka() -> None:
    assert murmur2(binary(*OF_KAFKA)).astype(np.int32).tolist() == list(OF_KAFKA.values())


def test_a_slice_of_an_array_has_the_hashes_of_its_own_keys() -> None:
    keys = binary(b"zero", None, *OF_KAFKA, b"", b"last")
    whole = murmur2(keys)
    for start in range(len(keys)):
        assert murmur2(keys.slice(start)).tolist() == whole[start:].tolist()
        assert murmur2(keys.slice(start, 1)).tolist() == [whole[start]]
    assert murmur2(binary()).tolist() == []


@pytest.mark.parametrize("count", [1, 2, 3, 100])
def test_a_key_has_the_partition_that_java_computes(count: int) -> None:
    expected = [(number & 0x7FFFFFFF) % count for number in OF_KAFKA.values()]
    assert key_partitions(binary(*OF_KAFKA), count, shift=5).tolist() == expected


def test_rows_without_a_key_take_turns_in_runs() -> None:
    keys = binary(*[None] * (2 * KEYLESS_RUN + 1))
    partitions = key_partitions(keys, 2, shift=3).tolist()
    assert partitions == [1] * KEYLESS_RUN + [0] * KEYLESS_RUN + [1]


def test_a_row_without_a_key_moves_no_key() -> None:
    with_gaps = key_partitions(binary(None, b"abc", None, b""), 7, shift=0).tolist()
    assert with_gaps[1::2] == key_partitions(binary(b"abc", b""), 7, shift=0).tolist()
    assert with_gaps[::2] == [0, 0]
