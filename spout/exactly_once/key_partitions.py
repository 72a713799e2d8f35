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
"""What has no key among so many neighbouring rows goes into one partition, in one batch."""


def key_partitions(keys: pa.BinaryArray, count: int, shift: int) -> I64:
    """Return the partition of each row, by its key; the topic has `count` partitions.

    What has no key among the first `KEYLESS_RUN` rows goes into the partition `shift`, modulo
    `count`; what has none among the next ones into the partition behind it, and so on. Rows with a
    key count, too.
    """
    partitions_by_hash = ((murmur2(keys) & _POSITIVE) % np.uint32(count)).astype(np.int64)
    if not keys.null_count:
        return partitions_by_hash
    rows = np.arange(len(keys), dtype=np.int64)
    # with shift 2 and 3 partitions: rows 0 to 999 go into 2, rows 1,000 to 1,999 into 0
    partitions_in_turn = (rows // KEYLESS_RUN + shift) % count
    is_keyless = keys.is_null().to_numpy(zero_copy_only=False)
    return np.where(is_keyless, partitions_in_turn, partitions_by_hash)


def murmur2(keys: pa.BinaryArray) -> U32:
    """Return the hash of each key, as an unsigned number.

    The hash of a null means nothing: Arrow may keep bytes beneath it.
    """
    # Arrow's second buffer: key n is the bytes borders[n] to borders[n + 1] of the third one
    all_borders = np.frombuffer(keys.buffers()[1], np.int32)
    borders = all_borders[keys.offset : keys.offset + len(keys) + 1]
    starts = borders[:-1].astype(np.int64)
    lengths = borders[1:] - starts
    buffer = keys.buffers()[2]  # None: no key has a byte
    data = np.frombuffer(buffer, np.uint8) if buffer is not None else np.empty(0, np.uint8)
    hashes = _SEED ^ lengths.astype(np.uint32)
    # 4 bytes at a time, of all keys that are long enough to have them
    for word in range(int(lengths.max(initial=0)) // 4):
        rows = np.flatnonzero(lengths >= 4 * (word + 1))
        mixed = _little_endian(data, starts[rows] + 4 * word, 4) * _M
        mixed ^= mixed >> np.uint32(24)
        hashes[rows] = hashes[rows] * _M ^ mixed * _M
    # then the 1, 2 or 3 bytes that are left at the end of a key
    for rest_bytes in (1, 2, 3):
        rows = np.flatnonzero(lengths % 4 == rest_bytes)
        rest_starts = starts[rows] + lengths[rows] - rest_bytes
        hashes[rows] = (hashes[rows] ^ _little_endian(data, rest_starts, rest_bytes)) * _M
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes


def _little_endian(data: npt.NDArray[np.uint8], starts: I64, count: int) -> U32:
    """Return for each start the number in the `count` bytes from there, the lowest byte first."""
    numbers = np.zeros(len(starts), np.uint32)
    for byte in range(count):
        numbers |= data[starts + byte].astype(np.uint32) << np.uint32(8 * byte)
    return numbers
