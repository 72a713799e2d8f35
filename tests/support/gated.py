"""A sink that waits for a file, so that a test can decide when a batch ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from examples.word_count import show
from tests.support.waiting import eventually

GATE = "WINDHOVER_TEST_GATE"
"""Environment variable: the file; it lets batches from the second one on end."""


def show_when_allowed(batch: DataFrame, batch_id: int) -> None:
    """Print a micro-batch, as the word count does; wait for the file where there is something to print."""
    rows = batch.collect()
    gate = Path(os.environ[GATE])
    if rows and gate.with_suffix(".closed").exists():
        sys.stdout.write("the sink waits\n")
        eventually(gate.exists)
    show(batch, batch_id)
