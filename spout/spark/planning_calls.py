"""What a streaming source of ours does for Spark's planning, however Spark calls it.

Each version of Spark has calls of its own for the reader of a Python source. The classes that
translate them derive from `PlanningCalls`: see `spout.spark.planning_reader`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from pyspark.sql.datasource import InputPartition

Offset = dict[str, Any]
"""An offset as Spark journals it: JSON."""


class PlanningCalls(ABC):
    """What a source implements; Spark's own calls are in the subclass for the version of Spark.

    Attributes:
        refused_triggers: why a query may not have a trigger, with the cure, by its class; empty:
            it may have any.
    """

    refused_triggers: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @property
    @abstractmethod
    def rows_max(self) -> int | None:
        """How many records a batch may have; None: no limit."""

    @abstractmethod
    def stop_at_ends(self) -> None:
        """Have the query end when everything up to the present ends is read and settled."""

    @abstractmethod
    def plan_batch(self, start: Offset, rows_max: int | None) -> Offset:
        """Plan the next batch, which begins at `start`, and return its end.

        Returns `start` itself if there is nothing to do. `rows_max` None: no limit.
        """

    @abstractmethod
    def tasks_of_batch(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the tasks of the batch between two offsets, which Spark is about to run."""
