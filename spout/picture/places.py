"""Names the records of sources as people know them: by input, topic, partition and offset; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from acker.config.settings import Input
from acker.identity import generation_of, input_id_of, offset_of, partition_of
from acker.wire.events import SourceRun
from replay.records.headers import parse_location
from replay.records.places import topic_of
from spout.picture.database import Row


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

    def __init__(self, inputs: Iterable[Input], chosen_names: Iterable[str] | None = None) -> None:
        """Know these inputs; `chosen_names` are those that the picture is about, None: all."""
        self._input_by_id = {input.id: input for input in inputs}
        self._chosen_names = None if chosen_names is None else frozenset(chosen_names)
        self.inputs = [input for input in self._input_by_id.values() if self._is_chosen(input.name)]
        self.stranger_ids: set[int] = set()
        # by source: a million roots have few
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

    def run_row(self, run: SourceRun) -> Row | None:
        """Return the columns that name a run of roots; None: the picture is not about its input.

        A run is of one generation, so its offsets are neighbours as its positions are.
        """
        name = self.name_of(run.source)
        if not name.is_chosen or run.start >= run.end:
            return None
        return {
            "input": name.input,
            "topic": name.topic,
            "partition": name.partition,
            "offset": int(offset_of(run.start)),
            "end_offset": int(offset_of(run.end - 1)) + 1,
            "generation": generation_of(run.start),
        }

    def root_row(self, source: int, position: int) -> Row | None:
        """Return the columns that name one root; None: the picture is not about its input."""
        row = self.run_row(SourceRun(source, position, position + 1))
        if row is None:
            return None
        return {name: value for name, value in row.items() if name != "end_offset"}


def origin_row(place: str) -> Mapping[str, str | int | None]:
    """Return the columns of an origin, ``topic/partition@offset``; NULL: it is none."""
    topic, partition, offset = parse_location(place) or (None, None, None)
    return {"origin_topic": topic, "origin_partition": partition, "origin_offset": offset}
