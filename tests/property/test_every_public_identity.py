"""Names of roots, and edges: a number gives back the parts it is made of; arrays say what numbers say."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from acker.identity import (
    ACKER_BLOCK_BITS,
    GENERATION_MAX,
    INPUT_ID_MAX,
    OFFSET_MAX,
    PARTITION_MAX,
    acker_partition,
    acker_partitions,
    child_edge,
    child_edges,
    copies_source,
    first_source,
    generation_of,
    input_id_of,
    is_replay,
    mix64,
    mix64_in_place,
    offset_of,
    partition_of,
    position_at,
    root_edge,
    root_edges,
    root_edges_of_run,
    source_of,
    subscription_key,
)

NUMBERS = st.integers(0, (1 << 64) - 1)
SOURCES = st.builds(
    source_of, st.integers(1, INPUT_ID_MAX), st.integers(0, PARTITION_MAX), replay=st.booleans()
)
POSITIONS = st.builds(position_at, st.integers(0, GENERATION_MAX), st.integers(0, OFFSET_MAX))
ORDINALS = st.integers(0, (1 << 32) - 1)


def unmixed(mixed: int) -> int:
    """Return what `mix64` mixed: each of its steps can be undone, so no two numbers have one result."""
    mask = (1 << 64) - 1
    z = mixed
    z ^= (z >> 31) ^ (z >> 62)
    z = z * pow(0x94D049BB133111EB, -1, 1 << 64) & mask
    z ^= (z >> 27) ^ (z >> 54)
    z = z * pow(0xBF58476D1CE4E5B9, -1, 1 << 64) & mask
    z ^= (z >> 30) ^ (z >> 60)
    return (z - 0x9E3779B97F4A7C15) & mask


@given(NUMBERS, st.integers(-2, 2))
def test_mixing_can_be_undone_and_goes_modulo_two_to_the_64(number: int, rounds: int) -> None:
    assert unmixed(mix64(number)) == number
    assert mix64(number + (rounds << 64)) == mix64(number)


@given(st.lists(NUMBERS, max_size=20))
def test_an_array_is_mixed_as_its_numbers_are(numbers: list[int]) -> None:
    values = np.array(numbers, np.uint64)
    mix64_in_place(values)
    assert values.tolist() == [mix64(number) for number in numbers]


@given(st.integers(1, INPUT_ID_MAX), st.integers(0, PARTITION_MAX), st.booleans())
def test_a_source_gives_back_its_input_its_partition_and_whether_it_replays(
    input_id: int, partition: int, replays: bool
) -> None:
    source = source_of(input_id, partition, replay=replays)
    assert (input_id_of(source), partition_of(source), is_replay(source)) == (input_id, partition, replays)
    first, copies = source_of(input_id, partition), source_of(input_id, partition, replay=True)
    assert (first_source(source), copies_source(source)) == (first, copies)
    assert first != copies


@given(st.integers(0, GENERATION_MAX), st.integers(0, OFFSET_MAX), st.integers(0, OFFSET_MAX))
def test_a_position_gives_back_its_generation_and_its_offset_and_a_later_generation_is_higher(
    generation: int, offset: int, other: int
) -> None:
    position = position_at(generation, offset)
    assert (generation_of(position), offset_of(position)) == (generation, offset)
    if generation < GENERATION_MAX:
        assert position_at(generation + 1, other) > position


@given(SOURCES, POSITIONS, st.integers(1, 1_024))
def test_neighbours_of_a_block_have_one_acker_partition(source: int, position: int, partitions: int) -> None:
    number = acker_partition(source, position, partitions)
    assert 0 <= number < partitions
    first = position >> ACKER_BLOCK_BITS << ACKER_BLOCK_BITS
    last = first + (1 << ACKER_BLOCK_BITS) - 1
    assert acker_partition(source, first, partitions) == acker_partition(source, last, partitions) == number


@given(SOURCES, st.lists(POSITIONS, min_size=1, max_size=20))
def test_edges_of_roots_are_the_same_one_by_one_and_together_and_never_zero(
    source: int, positions: list[int]
) -> None:
    edges = root_edges(source, np.array(positions, np.int64)).tolist()
    assert edges == [root_edge(source, position) for position in positions]
    assert all(edges)
    assert len(set(edges)) == len(set(positions))
    start = min(positions[0], (1 << 63) - 8)
    assert root_edges_of_run(source, start, start + 7).tolist() == [
        root_edge(source, position) for position in range(start, start + 7)
    ]


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, (1 << 64) - 1), ORDINALS), min_size=1, max_size=10),
    st.text(max_size=5),
    st.text(max_size=5),
)
def test_edges_of_children_are_the_same_one_by_one_and_together(
    children: list[tuple[int, int]], producer: str, consumer: str
) -> None:
    key = subscription_key(producer, "default", consumer)
    assert 0 <= key < 1 << 32
    parents = np.array([parent for parent, _ in children], np.uint64)
    ordinals = np.array([ordinal for _, ordinal in children], np.int64)
    edges = child_edges(parents, key, ordinals).tolist()
    assert edges == [child_edge(parent, key, ordinal) for parent, ordinal in children]
    assert all(edges)
    only = child_edges(parents, key, ordinals[:1]).tolist()
    assert only == [child_edge(parent, key, children[0][1]) for parent, _ in children]


@given(st.lists(st.tuples(SOURCES, POSITIONS), max_size=20), st.integers(1, 1_000))
def test_arrays_of_roots_have_the_acker_partitions_of_each_root(
    roots: list[tuple[int, int]], partitions: int
) -> None:
    sources, positions = np.array(roots, np.int64).reshape(-1, 2).T
    assert acker_partitions(sources, positions, partitions).tolist() == [
        acker_partition(source, position, partitions) for source, position in roots
    ]
