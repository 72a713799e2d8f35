"""``python -m benchmarks latency``: each contestant has its percentiles, and no other name is taken."""

from __future__ import annotations

import json

import pytest

from acker.errors import UsageError
from benchmarks.streams.latency import CONTESTANTS, LatencyOptions, run


def test_a_pipeline_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UsageError, match="no pipeline narrow; there are split, grouped, alone"):
        run(LatencyOptions(pipelines=("narrow", "split")), json=True)


@pytest.mark.kafka
@pytest.mark.slow
def test_contestants_without_spark_have_their_percentiles(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(LatencyOptions(200, 8, 1, ("alone",)), json=True) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]
    for name in CONTESTANTS:
        parts = [figures[f"{name}, produced to durably confirmed, p{part}"] for part in (50, 90, 99)]
        assert 0 < parts[0] <= parts[1] <= parts[2]
