"""How the wire names sources, positions, roots, edges and acker partitions.

Every identity is computed, never drawn at random. So a task that Spark runs twice, a restarted acker and a
program in another language all compute the same number.

=================  =========================================================================
source             int32: ``input id << 16 | partition``; a replay topic has ``input id + 16384``
position           int64: ``generation << 48 | offset``; the positions of a source only rise
root               (source, position): one emission of one record
root edge          ``mix64(mix64(source) + position)``
child edge         ``mix64(parent_edge + mix64(crc32(subscription) << 32 | ordinal))``
acker partition    ``mix64(mix64(source) + (position >> 16)) % N``
=================  =========================================================================

An edge that is computed as 0 becomes 1, since the fold of a completed tree is 0.

Source: docs/design/protocol.md, section 2; SplitMix64 is from Steele, Lea and Flood, "Fast splittable
pseudorandom number generators" (2014).
"""

from __future__ import annotations

import zlib
from typing import NamedTuple, NewType

import numpy as np
import numpy.typing as npt

from acker.id_ranges import INPUT_ID_MAX, PARTITION_MAX

Source = NewType("Source", int)
Position = NewType("Position", int)
Offset = NewType("Offset", int)
Edge = NewType("Edge", int)

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

REPLAY_ID_OFFSET = 16_384
GENERATION_MAX = (1 << 15) - 1
OFFSET_BITS = 48
OFFSET_MAX = (1 << OFFSET_BITS) - 1

ACKER_BLOCK_BITS = 16
"""Blocks of 2^16 = 65,536 neighbouring positions share an acker partition."""

WIRE_BLOCK_BITS = 15
"""An Acks or Fails record is about one block of 2^15 = 32,768 positions, so it stays below 900,000 bytes."""

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_M1 = 0xBF58476D1CE4E5B9
_M2 = 0x94D049BB133111EB

# One block of intermediate values (256 KiB) stays in the second-level cache. Mixing whole arrays at once
# would be limited by memory, and twenty times slower.
_CHUNK = 32_768


class Root(NamedTuple):
    """One emission of one record."""

    source: Source
    position: Position


def mix64(x: int) -> int:
    """Mix 64 bits as SplitMix64 does: any integer modulo 2^64, to one in [0, 2^64)."""
    z = (x + _GAMMA) & _MASK
    z = ((z ^ (z >> 30)) * _M1) & _MASK
    z = ((z ^ (z >> 27)) * _M2) & _MASK
    return z ^ (z >> 31)


def source_of(input_id: int, partition: int, *, replay: bool = False) -> Source:
    """Return the source of one partition (0 to 65,535) of an input (1 to 16,383), or of its replay topic."""
    if not 1 <= input_id <= INPUT_ID_MAX:
        raise ValueError(f"input id {input_id} is not in 1..{INPUT_ID_MAX}")
    if not 0 <= partition <= PARTITION_MAX:
        raise ValueError(f"partition {partition} is not in 0..{PARTITION_MAX}")
    return Source((input_id + (REPLAY_ID_OFFSET if replay else 0)) << 16 | partition)


def input_id_of(source: int) -> int:
    """Return the id of a source's input (1 to 16,383); a replay source belongs to the input it replays."""
    wire_id = source >> 16
    return wire_id - REPLAY_ID_OFFSET if wire_id >= REPLAY_ID_OFFSET else wire_id


def partition_of(source: int) -> int:
    return source & PARTITION_MAX


def is_replay(source: int) -> bool:
    return source >> 16 >= REPLAY_ID_OFFSET


def first_source(source: int) -> Source:
    """Return the source of the first emissions (the input topic) for the same input and partition."""
    return Source(source - (REPLAY_ID_OFFSET << 16) if is_replay(source) else source)


def copies_source(source: int) -> Source:
    """Return the source of the copies (the replay topic) for the same input and partition."""
    return Source(source if is_replay(source) else source + (REPLAY_ID_OFFSET << 16))


def position_at(generation: int, offset: int) -> Position:
    """Join a generation (0 to 32,767) and an offset (0 to 2^48 - 1) to a position."""
    if not 0 <= generation <= GENERATION_MAX:
        raise ValueError(f"generation {generation} is not in 0..{GENERATION_MAX}")
    if not 0 <= offset <= OFFSET_MAX:
        raise ValueError(f"offset {offset} is not in 0..{OFFSET_MAX}")
    return Position(generation << OFFSET_BITS | offset)


def generation_of(position: int) -> int:
    return position >> OFFSET_BITS


def offset_of(position: int) -> Offset:
    return Offset(position & OFFSET_MAX)


def acker_partition(source: int, position: int, partitions: int) -> int:
    """Return the acker partition, 0 to ``partitions`` - 1, that keeps a root."""
    return mix64(mix64(source) + (position >> ACKER_BLOCK_BITS)) % partitions


def acker_partitions(sources: I64, positions: I64, partitions: int) -> I64:
    """Return the acker partition of each root, one for one, as `acker_partition` does."""
    mixed = sources.astype(np.uint64)
    mix64_in_place(mixed)
    mixed += (positions >> ACKER_BLOCK_BITS).astype(np.uint64)
    mix64_in_place(mixed)
    return (mixed % np.uint64(partitions)).astype(np.int64)


def root_edge(source: int, position: int) -> Edge:
    """Return the edge of a root. The root is complete when the XOR of its contributions equals this edge."""
    return Edge(mix64(mix64(source) + position) or 1)


def subscription_key(producer: str, stream: str, consumer: str) -> int:
    """Return the 32-bit key of a subscription: which component emits, on which stream, to which one."""
    return zlib.crc32(f"{producer}/{stream}/{consumer}".encode())


def child_edge(parent: int, subscription: int, ordinal: int) -> Edge:
    """Return the edge of one delivery; `ordinal` counts earlier ones of the parent there, 0 to 2^32 - 1."""
    return Edge(mix64(parent + mix64(subscription << 32 | ordinal)) or 1)


def mix64_in_place(values: U64) -> None:
    """Mix every value of a contiguous uint64 array as `mix64` does, in place.

    NumPy wraps modulo 2^64. It goes through the array in chunks that stay in
    the processor's cache.
    """
    scratch = np.empty(min(_CHUNK, len(values)), np.uint64)
    for start in range(0, len(values), _CHUNK):
        z = values[start : start + _CHUNK]
        s = scratch[: len(z)]
        z += np.uint64(_GAMMA)
        np.right_shift(z, np.uint64(30), out=s)
        z ^= s
        z *= np.uint64(_M1)
        np.right_shift(z, np.uint64(27), out=s)
        z ^= s
        z *= np.uint64(_M2)
        np.right_shift(z, np.uint64(31), out=s)
        z ^= s


def _mixed_to_edges(values: U64) -> U64:
    mix64_in_place(values)
    if not values.all():
        values[values == 0] = 1
    return values


def root_edges(sources: int | I64, positions: I64) -> U64:
    """Return the root edge of each position, of one source or of one each: uint64, same length and order."""
    edges = positions.astype(np.uint64)
    if isinstance(sources, int):
        edges += np.uint64(mix64(sources))
    else:
        mixed = sources.astype(np.uint64)
        mix64_in_place(mixed)
        edges += mixed
    return _mixed_to_edges(edges)


def root_edges_of_run(source: int, start: int, end: int) -> U64:
    """Return the root edges of the positions [start, end), uint64, in order."""
    edges = np.arange(start, end, dtype=np.uint64)
    edges += np.uint64(mix64(source))
    return _mixed_to_edges(edges)


def child_edges(parents: U64, subscription: int, ordinals: npt.NDArray[np.integer]) -> U64:
    """Return the edge of each delivery of one subscription, as uint64.

    Delivery i has the parent edge ``parents[i]``. ``ordinals[i]`` counts the earlier deliveries of the same
    parent there; if `ordinals` has one element, it is that of all deliveries.
    """
    edges = ordinals.astype(np.uint64)
    edges |= np.uint64(subscription << 32)  # as in `child_edge`: an ordinal has 32 bits
    mix64_in_place(edges)
    return _mixed_to_edges(edges + parents)
