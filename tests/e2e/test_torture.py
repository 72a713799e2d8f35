"""Real kills, judged from the topics: in CI five minutes on one broker and two on a cluster, at home one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.spark]

IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}
MINUTES = float(os.environ.get("WINDHOVER_TORTURE_MINUTES", "5" if IN_CI else "1"))
SEED = int(os.environ.get("WINDHOVER_TORTURE_SEED", "11"))
"""The default draws a zombie, a frozen part, a cut and a silent network, a full disk and a stepped clock."""
CLUSTER_MINUTES = float(os.environ.get("WINDHOVER_TORTURE_CLUSTER_MINUTES", "2" if IN_CI else "1"))
AROUND_SECONDS = 600
"""What is done before the first blow and after the last one takes one minute; draining may take five."""


def tortured(minutes: float, *options: str) -> dict[str, Any]:
    """Run the command, see that all checks held, and return what it reports."""
    command = [sys.executable, "-m", "tests.torture", "--minutes", str(minutes), "--seed", str(SEED)]
    done = subprocess.run([*command, *options, "--json"], capture_output=True, text=True, check=False)
    told = f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, told
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert report["held"], told
    assert report["failed_checks"] == {}
    assert report["lost"] == 0
    assert report["records"] > 0
    return report


@pytest.mark.timeout(MINUTES * 60 + AROUND_SECONDS)
def test_nothing_is_lost_or_done_twice_by_any_kill() -> None:
    """S35, P54, rules 1 to 9: on a real broker and a real Spark, with every part killed at random."""
    report = tortured(MINUTES)
    assert report["kills"] >= 5 * MINUTES, report
    if (SEED, MINUTES) == (11, 5.0):
        assert any("another driver on a fresh checkpoint" in blow for blow in report["blows"]), report


@pytest.mark.timeout(CLUSTER_MINUTES * 60 + AROUND_SECONDS)
def test_nothing_is_lost_or_done_twice_when_a_cluster_loses_its_parts_in_turn() -> None:
    """Three brokers of one cluster and Spark standalone with two workers: each broker, leader, executor."""
    report = tortured(CLUSTER_MINUTES, "--brokers", "3", "--spark-workers", "2")
    assert any(blow.startswith("broker") for blow in report["blows"]), report
    assert all(recovery["open"] == 0 for recovery in report["recoveries"].values()), report
