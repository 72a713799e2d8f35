"""A topology that can run, and the options with which it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import pyarrow as pa

from acker.config.topics import Topics
from spout.bolts.bolts import AnyBolt
from spout.bolts.hooks import TaskHook
from spout.bolts.keyed_bolt import KeyedBolt
from spout.topology.stages import Layout
from spout.tuples.tuple import StreamId

WriteBatch = Callable[[Any, int], object]
"""Writes one micro-batch of a stream: gets its rows, a DataFrame, and its id."""

SinkFunctions = WriteBatch | Mapping[Any, WriteBatch] | None
"""The function that gets the rows that leave a topology, or one for each component or
(component, stream)."""

ParseOutput = Callable[[str, str], pa.Schema]
"""Returns the Arrow schema of an output in Spark's DDL; the first argument is the bolt's name,
for errors."""


@dataclass(frozen=True, slots=True)
class Spout:
    """The arguments of `set_spout`."""

    topics: Topics
    inputs: tuple[str, ...]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A topology that can run.

    Attributes:
        bolts: all bolts by name, without the `KeyedBolt`.
        schemas: the Arrow schema of each stream.
        inputs: the names of the inputs that each spout reads, by the spout's name.
        read: all spouts together, as one.
        sinks: the function that gets each stream.
        hooks: observers of every bolt.
        keyed: the `KeyedBolt`; None: there is none.
    """

    layout: Layout
    bolts: Mapping[str, AnyBolt]
    schemas: Mapping[StreamId, pa.Schema]
    inputs: Mapping[str, tuple[str, ...]]
    read: Spout
    sinks: Mapping[StreamId, WriteBatch]
    hooks: tuple[TaskHook, ...]
    keyed: KeyedBolt | None = None


class SubmitOptions(TypedDict, total=False):
    """Options of `TopologyBuilder.submit`."""

    checkpoint: str | Path | None
    name: str
    trigger: Mapping[str, Any]
    active: bool
    deterministic: bool
    metrics_port: int | str | None
    metrics_hosts: Sequence[str]
