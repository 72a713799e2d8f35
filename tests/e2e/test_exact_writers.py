"""Real stores, and writers that are killed and stopped within their commits; no Spark, so they are many."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.programs import ROOT
from tests.torture.exact.struck_store import SINKS

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

STRIKES = 15


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("sink", SINKS)
def test_each_acked_root_has_its_rows_once_however_writers_die(sink: str) -> None:
    """D3253: the product's writer and a real store, judged by what was published."""
    options = ("--sink", sink, "--strikes", str(STRIKES), "--seed", "3")
    command = [sys.executable, "-m", "tests.torture.exact", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    printed = f"{' '.join(command)}\n{done.stdout}\n{done.stderr[-4_000:]}"
    assert done.stdout.strip(), printed
    report = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, report["held"]) == (0, True), printed
    counts = [report[name] for name in ("rows_missing", "rows_twice", "rows_of_dead")]
    assert counts == [0, 0, 0], printed
    assert report["strikes"] == STRIKES, printed
    assert report["rows"] > report["acked"] > 0, printed
