"""Names the records of sources as people know them: by input, topic, partition and offset; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from acker.config.settings import Input
from acker.identity import (
    I64,
    OFFSET_BITS,
    OFFSET_MAX,
    generation_of,
    input_id_of,
    offset_of,
    partition_of,
)
from acker.root_sets.root_set import RootSet
from replay.records.headers import parse_location
from replay.records.places import topic_of
from spout.picture.database import Row, RowGroup


class SourceName(NamedTuple):
    """What people call a source.

    Attributes:
        input: the input's name; None: topics.yaml has none of that id.
        topic: its topic, or its replay topic for copies; None: it is not known.
        is_chosen: whether the picture is about that input.
    """

    input: str | None
    topic: str | None
    partition: int
    is_chosen: bool


class SourceNames:
    """The names of all sources of a topics.yaml.

    Attributes:
        inputs: those that the picture is about.
        stranger_ids: ids of inputs that roots had, and that topics.yaml lacks.
    """

    def __init__(self, inputs: Iterable[Input], chosen_names: Iterable[str] | None) -> None:
        """Prepare to name the sources of inputs.

        `chosen_names` are those of the inputs that the picture is about; None: it is about all.
        """
        self._input_by_id = {input.id: input for input in inputs}
        self._chosen_names = None if chosen_names is None else frozenset(chosen_names)
        self.inputs = [input for input in self._input_by_id.values() if self._is_chosen(input.name)]
        # ids of inputs that roots have, and topics.yaml lacks
        self.stranger_ids: set[int] = set()
        # by source; even a million roots have few sources
        self._name_by_source: dict[int, SourceName] = {}

    def _is_chosen(self, name: str | None) -> bool:
        """Return whether the picture is about an input; None: about roots of no input."""
        return self._chosen_names is None or name in self._chosen_names

    def name_of(self, source: int) -> SourceName:
        """Return what people call a source."""
        name = self._name_by_source.get(source)
        if name is None:
            name = self._name_by_source[source] = self._find_name(source)
        return name

    def _find_name(self, source: int) -> SourceName:
        """Find the name of a source; record its input's id in `stranger_ids` if no input has it."""
        input_id = input_id_of(source)
        partition = partition_of(source)
        input = self._input_by_id.get(input_id)
        if input is None:
            self.stranger_ids.add(input_id)
            is_chosen = self._is_chosen(None)
            return SourceName(input=None, topic=None, partition=partition, is_chosen=is_chosen)
        topic = topic_of(input, source)
        return SourceName(input.name, topic, partition, self._is_chosen(input.name))

    def source_row(self, source: int) -> Row | None:
        """Return a source's columns `input`, `topic` and `partition`.

        None: the picture is not about its input.
        """
        name = self.name_of(source)
        if not name.is_chosen:
            return None
        return {"input": name.input, "topic": name.topic, "partition": name.partition}

    def rows_of_roots(self, roots: RootSet) -> Iterator[RowGroup]:
        """Yield a group of rows for each source that the picture is about.

        It has a row for each run of the source's roots; these differ in `RUN_COLUMNS`.
        """
        for source in roots.sources():
            row = self.source_row(source)
            if row is not None:
                _sources, starts, ends = roots.table[roots.rows_of_source(source)].T
                yield RowGroup(row, run_rows(starts, ends))

    def root_row(self, source: int, position: int) -> Row | None:
        """Return the columns of `source_row` with `offset` and `generation`; None as there."""
        row = self.source_row(source)
        if row is None:
            return None
        offset = int(offset_of(position))
        return {**row, "offset": offset, "generation": generation_of(position)}


RUN_COLUMNS: Final = ("offset", "end_offset", "generation")
"""The columns in which rows about runs of one source differ."""


def run_rows(starts: I64, ends: I64) -> list[list[int]]:
    """Return for each run [start, end) its first offset, its end offset and its generation.

    These are the columns `RUN_COLUMNS`; `starts` and `ends` have the shape (n,). A run is of one
    generation, so its offsets are neighbours as its positions are.
    """
    # the end may be the first position of the next generation: so the offset of the last root counts
    end_offsets = ((ends - 1) & OFFSET_MAX) + 1
    values: list[list[int]] = np.column_stack(
        [starts & OFFSET_MAX, end_offsets, starts >> OFFSET_BITS]
    ).tolist()
    return values


def origin_row(place: str) -> Mapping[str, str | int | None]:
    """Return the columns of an origin, ``topic/partition@offset``; NULL: it is none."""
    topic, partition, offset = parse_location(place) or (None, None, None)
    return {"origin_topic": topic, "origin_partition": partition, "origin_offset": offset}
