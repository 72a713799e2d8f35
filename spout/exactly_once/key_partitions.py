"""The partition of each key, as Java's clients compute it; many keys at once.

Spark's Kafka sink, Kafka Streams and Kafka Connect all write by it. So what is written by them and
by `KafkaStore` has its keys in the same partitions.

Source: Kafka 4.0, ``org.apache.kafka.common.utils.Utils.murmur2`` and ``BuiltInPartitioner``.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

U32 = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]

_SEED: Final = np.uint32(0x9747B28C)
_M: Final = np.uint32(0x5BD1E995)
_POSITIVE: Final = np.uint32(0x7FFFFFFF)

KEYLESS_RUN: Final = 1_000
"""So many neighbouring rows without a key go into one partition: they are sent in one batch."""


def key_partitions(keys: pa.BinaryArray, count: int, shift: int) -> I64:
    """Return a partition for each key, of `count`.

    Rows without a key go into one partition after another, a run of them into each. The first run
    goes into the partition `shift`, modulo `count`.
    """
    by_key = ((murmur2(keys) & _POSITIVE) % np.uint32(count)).astype(np.int64)
    if not keys.null_count:
        return by_key
    rows = np.arange(len(keys), dtype=np.int64)
    keyless = (rows // KEYLESS_RUN + shift) % count
    is_keyless = keys.is_null().to_numpy(zero_copy_only=False)
    return np.where(is_keyless, keyless, by_key)


def murmur2(keys: pa.BinaryArray) -> U32:
    """Return the hash of each key, as an unsigned number; of a null that of no bytes."""
    ends = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    starts = ends[:-1].astype(np.int64)
    lengths = ends[1:] - starts
    buffer = keys.buffers()[2]
    data = np.frombuffer(buffer, np.uint8) if buffer is not None else np.empty(0, np.uint8)
    hashes = _SEED ^ lengths.astype(np.uint32)
    # word by word over all keys that are long enough to have it
    for word in range(int(lengths.max(initial=0)) // 4):
        rows = np.flatnonzero(lengths >= 4 * (word + 1))
        mixed = _little_endian(data, starts[rows] + 4 * word, 4) * _M
        mixed ^= mixed >> np.uint32(24)
        hashes[rows] = hashes[rows] * _M ^ mixed * _M
    for tail_bytes in (1, 2, 3):
        rows = np.flatnonzero(lengths % 4 == tail_bytes)
        tail_starts = starts[rows] + lengths[rows] - tail_bytes
        hashes[rows] = (hashes[rows] ^ _little_endian(data, tail_starts, tail_bytes)) * _M
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes


def _little_endian(data: npt.NDArray[np.uint8], starts: I64, count: int) -> U32:
    """Return the number that `count` bytes from each start are, the lowest byte first."""
    numbers = np.zeros(len(starts), np.uint32)
    for index in range(count):
        numbers |= data[starts + index].astype(np.uint32) << np.uint32(8 * index)
    return numbers
