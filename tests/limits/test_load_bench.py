"""``python -m benchmarks load`` measures what it says: small here, and each part checks its own outcome."""

from __future__ import annotations

import json

import pytest

from benchmarks.services import load


def test_the_bench_prints_every_figure_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(load, "TREE_TUPLES", 2_000)
    monkeypatch.setattr(load, "BATCH_POSITIONS", 10_000)
    monkeypatch.setattr(load, "CAUSES", 100)
    monkeypatch.setattr(load, "USUAL_RECORDS", 10)
    assert load.run(100_000, json=True) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    parts = {name.split(":")[0] for name in printed["figures"]}
    assert parts == {"pending", "burst", "straggler", "tree", "partitions"}
    assert printed["figures"]["straggler: bytes of State, with"] < 1_000
