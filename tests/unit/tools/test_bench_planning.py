"""``python -m benchmarks planning`` plans what it says it plans: each batch has all records, and is acked."""

from __future__ import annotations

import json

import pytest

from benchmarks.services.planning import FEW, PlanningOptions, run


@pytest.mark.kafka
@pytest.mark.slow
def test_the_bench_prints_every_figure_of_both_installations_as_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(PlanningOptions(partitions=8, ackers=6, batches=2, seconds=1), json=True) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]
    sizes = {name.split(":")[0] for name in figures}
    assert sizes == {"/".join(map(str, FEW)), "8/6"}
    assert len(figures) == 2 * 6
    assert all(value > 0 for name, value in figures.items() if name.endswith("batches"))
