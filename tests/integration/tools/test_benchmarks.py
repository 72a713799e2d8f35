"""Benchmarks on a broker of their own: each prints every figure that it promises."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks.services import idle
from benchmarks.services.planning import FEW, PlanningOptions
from benchmarks.services.planning import run as run_planning
from benchmarks.streams.latency import CONTESTANTS, LatencyOptions
from benchmarks.streams.latency import run as run_latency
from tests.support.programs import ROOT

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.by_turns]


@pytest.fixture(autouse=True)
def brokers_start_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no broker optimise its machine code, as in other tests: nothing is measured here, only tried."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


def test_planning_has_every_figure_of_both_installations(capsys: pytest.CaptureFixture[str]) -> None:
    """It plans what it says it plans: each batch has all records, and is acked."""
    assert run_planning(PlanningOptions(partitions=8, ackers=6, batches=2, seconds=1), json=True) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]
    sizes = {name.split(":")[0] for name in figures}
    assert sizes == {"/".join(map(str, FEW)), "8/6"}
    assert len(figures) == 2 * 6
    assert all(value > 0 for name, value in figures.items() if name.endswith("batches"))


@pytest.mark.spark
def test_idle_sees_what_an_idle_installation_sends() -> None:
    """In a process of its own: it stops its Spark, and the one of the tests is in this process."""
    short = ("--seconds", "2", "--rounds", "1", "--warm", "0", "--late", "1")
    command = [sys.executable, "-m", "benchmarks", "idle", *short, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])["figures"]
    services = {f"{part}: {what}" for part in idle.PARTS for what in ("CPU", "requests")}
    assert services < set(figures)
    assert all(figures[f"{part}: requests"] > 0 for part in (*idle.PARTS, *idle.QUERIES))
    assert all(figures[f"{name}: a record is planned after"] > 0 for name in idle.QUERIES)


@pytest.mark.spark
@pytest.mark.parametrize("pipeline", ["exact-kafka", "exact-postgres"])
def test_tracking_has_the_figures_of_stores_that_write_exactly_once(pipeline: str) -> None:
    """And of a restart; in a process of its own."""
    small = ("--records", "2000", "--lead-in", "2000", "--batch", "1000", "--rounds", "1", "--warm", "0")
    command = [sys.executable, "-m", "benchmarks", "tracking", "--pipeline", pipeline, *small, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    contestants = {f"{pipeline} {how}" for how in ("tracked", "untracked", "connector")}
    assert contestants < {sample["name"] for sample in report["samples"]}
    figures = report["figures"]
    assert all(figures[f"{name}: from a restart to what is done first"] > 0 for name in contestants)
    assert figures[f"{pipeline}: throughput, tracked to untracked"] > 0


def test_latency_has_the_percentiles_of_contestants_without_spark(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_latency(LatencyOptions(200, 2, 1, ("alone",), warm_seconds=0.5), json=True) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])["figures"]
    for name in CONTESTANTS:
        parts = [figures[f"{name}, produced to durably confirmed, p{part}"] for part in (50, 90, 99)]
        assert 0 < parts[0] <= parts[1] <= parts[2]
