"""The bolts of a source travel through the planning process as bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.cloudpickle import dumps

from acker.config.topics import parse
from spout.streaming.frames import narrowed
from spout.streaming.options import SourceOptions
from spout.streaming.source import WindhoverSource
from spout.topology.chain import Chain, Step

PROJECT = Path(__file__).resolve().parents[4]

A_USERS_MODULE = """
from spout import BasicBolt

class Copies(BasicBolt):
    output = "value binary"

    def execute(self, tuple, collector):
        collector.emit((tuple["value"],))
"""

PASSES_IT_ON = """
import json, pickle, sys
source = pickle.loads(sys.stdin.buffer.read())
passed = pickle.dumps(source.source_options)
loaded = [name for name in ("users", "spout.topology", "spout.execution") if name in sys.modules]
stage = pickle.loads(passed).sealed_stage.stage
print(json.dumps([loaded, [type(each.bolt).__name__ for each in stage.bolts]]))
"""


def test_a_process_that_passes_a_source_on_imports_no_bolt_and_a_task_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "users.py").write_text(A_USERS_MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    import users  # type: ignore[import-not-found]  # it is written here

    topics = parse("inputs: {lines: {id: 1, group: g}}", file="topics.yaml", environ={})
    chain = Chain((Step("copies", users.Copies(), pa.schema([("value", pa.binary())])),))
    options = narrowed(SourceOptions(topics, ("lines",), "s"), chain.stage)
    source = dumps(WindhoverSource.of(options, 1))  # type: ignore[no-untyped-call]  # the package's stubs

    ended = subprocess.run(
        [sys.executable, "-c", PASSES_IT_ON],
        input=source,
        capture_output=True,
        cwd=PROJECT,
        env={"PYTHONPATH": f"{PROJECT}:{tmp_path}"},
        check=True,
    )

    assert json.loads(ended.stdout) == [[], ["Copies"]]
