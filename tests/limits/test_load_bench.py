"""``python -m benchmarks load`` measures what it says: small here, and each part checks its own outcome."""

from __future__ import annotations

import json

import pytest

from benchmarks.services import load


def test_the_bench_prints_every_figure_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    small = load.Sizes(usual_records=10, tree_tuples=2_000, batch_positions=10_000, causes=100)
    assert load.run(100_000, json=True, sizes=small) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    parts = {name.split(":")[0] for name in printed["figures"]}
    assert parts == {"pending", "burst", "straggler", "tree", "partitions"}
    assert printed["figures"]["straggler: bytes of State, with"] < 1_000
