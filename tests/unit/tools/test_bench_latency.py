"""``python -m benchmarks latency`` takes no name of a pipeline that there is not."""

from __future__ import annotations

import pytest

from acker.errors import UsageError
from benchmarks.streams.latency import LatencyOptions, run


def test_a_pipeline_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(
        UsageError, match="no pipeline narrow; there are split, grouped, exact-kafka, exact-postgres, alone"
    ):
        run(LatencyOptions(pipelines=("narrow", "split")), json=True)
