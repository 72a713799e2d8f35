"""Queries that end by themselves, on each version of Spark."""

from __future__ import annotations

from typing import Final

from pyspark.sql.streaming.readwriter import DataStreamWriter

import spout
from spout.spark.planning_reader import PlanningReader

HAS_AVAILABLE_NOW: Final = "AvailableNowTrigger" not in PlanningReader.refused_triggers
"""Whether a query of a tracked stream may have the trigger `availableNow`: from Spark 4.2 on."""


def run_to_end(writer: DataStreamWriter, timeout_s: float, *, tracked: bool = True) -> bool:
    """Run a query until all that its input has now is done: by Spark's trigger, or else by `run_once`.

    Return whether it is done; False: it took longer, and was stopped. `tracked`: whether its stream
    is; the trigger is refused only for those.
    """
    if tracked and not HAS_AVAILABLE_NOW:
        return spout.run_once(writer.start(), timeout_s=timeout_s)
    query = writer.trigger(availableNow=True).start()
    if query.awaitTermination(int(timeout_s)):
        return True
    query.stop()
    return False
