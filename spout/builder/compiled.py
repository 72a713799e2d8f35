"""A topology that can run, and how it is to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import pyarrow as pa

from acker.config.topics import Topics
from spout.bolts.bolts import AnyBolt
from spout.bolts.hooks import TaskHook
from spout.bolts.keyed_bolt import KeyedBolt
from spout.topology.stages import Layout
from spout.tuples.collector import StreamId

WriteBatch = Callable[[Any, int], object]
"""Writes one micro-batch of a stream: gets its rows, a DataFrame, and its id."""

Sink = WriteBatch | Mapping[Any, WriteBatch] | None
"""Who gets what leaves a topology: one function, or one for each component or (component, stream)."""

ParseOutput = Callable[[str, str], pa.Schema]
"""Returns the Arrow schema of a bolt's name and an output in Spark's DDL."""


@dataclass(frozen=True, slots=True)
class Spout:
    """What `set_spout` was given."""

    topics: Topics
    inputs: tuple[str, ...]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A topology that can run.

    Attributes:
        layout: its stages.
        bolts: each bolt, by name.
        schemas: fields of each stream.
        inputs: names of the inputs of each spout.
        read: what all spouts together read.
        sinks: who gets which stream.
        hooks: what watches every bolt.
        keyed: the bolt that ends it, if it holds tuples by key; `bolts` has all others.
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
