"""Identity: vectors that programs in other languages must meet, and arrays that agree with scalars."""

from __future__ import annotations

import numpy as np
import pytest

from acker import identity
from acker.identity import (
    Root,
    acker_partition,
    child_edge,
    child_edges,
    generation_of,
    input_id_of,
    is_replay,
    mix64,
    offset_of,
    partition_of,
    position_at,
    root_edge,
    root_edges,
    root_edges_of_run,
    source_of,
    subscription_key,
)

VECTOR_ROOT = 0x8E2AF7212A240E35
VECTOR_CHILD = 0xECBE5ABBB5BD7DBC
VECTOR_PARTITIONS = [2, 0, 0, 0, 3, 1, 0, 2]


def test_mix64_is_splitmix64() -> None:
    """The first outputs of SplitMix64 seeded with 0, as published; the state advances by its gamma."""
    gamma = 0x9E3779B97F4A7C15
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert [mix64(step * gamma) for step in range(4)] == published


def test_vectors_of_names() -> None:
    """Any program must compute these."""
    source = source_of(1, 3)
    copy = source_of(1, 3, replay=True)
    position = position_at(2, 1042)
    assert (source, copy) == (65_539, 1_073_807_363)
    assert position == 562_949_953_422_354
    assert root_edge(source, position) == mix64(mix64(source) + position)
    assert subscription_key("spout", "default", "split") == 0x93F586D1
    edge = child_edge(root_edge(source, position), subscription_key("spout", "default", "split"), 7)
    assert (root_edge(source, position), edge) == (VECTOR_ROOT, VECTOR_CHILD)
    assert [acker_partition(source, n << 16, 4) for n in range(8)] == VECTOR_PARTITIONS


def test_names_come_apart_again() -> None:
    """A replay source belongs to its input; generation and offset share a position."""
    copy = source_of(16_383, 65_535, replay=True)
    assert (input_id_of(copy), partition_of(copy), is_replay(copy)) == (16_383, 65_535, True)
    assert copy < 1 << 31
    assert (input_id_of(source_of(1, 0)), is_replay(source_of(1, 0))) == (1, False)
    last = position_at(identity.GENERATION_MAX, identity.OFFSET_MAX)
    assert last == (1 << 63) - 1
    assert (generation_of(last), offset_of(last)) == (identity.GENERATION_MAX, identity.OFFSET_MAX)


@pytest.mark.parametrize(("input_id", "partition"), [(0, 0), (16_384, 0), (1, -1), (1, 65_536)])
def test_a_source_out_of_range_is_refused(input_id: int, partition: int) -> None:
    """Ids go from 1 to 16,383, partitions to 65,535."""
    with pytest.raises(ValueError, match="is not in"):
        source_of(input_id, partition)


@pytest.mark.parametrize(("generation", "offset"), [(-1, 0), (32_768, 0), (0, -1), (0, 1 << 48)])
def test_a_position_out_of_range_is_refused(generation: int, offset: int) -> None:
    """Generations go to 32,767, offsets to 2^48 - 1."""
    with pytest.raises(ValueError, match="is not in"):
        position_at(generation, offset)


def test_neighbours_share_an_acker_partition() -> None:
    """65,536 of them; every wire block lies within one."""
    for source in (source_of(1, 0), source_of(9, 12, replay=True)):
        for first in (0, 1 << 16, position_at(3, 5 << 16)):
            found = {acker_partition(source, first + step, 7) for step in (0, 1, 32_767, 32_768, 65_535)}
            assert len(found) == 1


def test_acker_partitions_share_the_work() -> None:
    """No partition gets less than half of its share of many blocks."""
    counts = np.bincount([acker_partition(source_of(1, 0), n << 16, 8) for n in range(8_000)], minlength=8)
    assert counts.min() > 500


@pytest.mark.parametrize("source", [source_of(1, 3), source_of(16_383, 65_535, replay=True)])
def test_arrays_of_edges_agree_with_single_ones(source: int) -> None:
    """Over a block border, and at the largest positions."""
    for start in (0, 32_700, position_at(32_767, identity.OFFSET_MAX) - 200):
        named = np.arange(start, start + 150, dtype=np.int64)
        expected = [root_edge(Root(source, p).source, p) for p in named.tolist()]  # type: ignore[arg-type]
        assert root_edges(source, named).tolist() == expected
        assert root_edges_of_run(source, start, start + 150).tolist() == expected


def test_arrays_of_child_edges_agree_with_single_ones() -> None:
    """One for one with parent and ordinal."""
    parents = np.array([0, 1, (1 << 64) - 1, 12345], np.uint64)
    ordinals = np.array([0, 1, (1 << 32) - 1, 7])
    key = subscription_key("a", "b", "c")
    expected = [child_edge(p, key, o) for p, o in zip(parents.tolist(), ordinals.tolist(), strict=True)]
    assert child_edges(parents, key, ordinals).tolist() == expected


def test_an_edge_is_never_zero() -> None:
    """The one number that mixes to 0 gives 1: 0 is what a completed tree folds to."""
    zero = (1 << 64) - identity._GAMMA
    assert mix64(zero) == 0
    assert child_edge((zero - mix64(0)) % (1 << 64), 0, 0) == 1
    parents = np.array([(zero - mix64(0)) % (1 << 64)], np.uint64)
    assert child_edges(parents, 0, np.array([0])).tolist() == [1]


def test_deliveries_of_one_tuple_have_edges_of_their_own() -> None:
    """S54: ordinals and subscriptions keep them apart."""
    keys = [subscription_key("spout", stream, "b") for stream in ("x", "y")]
    edges = {child_edge(99, key, ordinal) for key in keys for ordinal in range(1_000)}
    assert len(edges) == 2_000
