"""Real kills, judged from the topics: five minutes of them in CI, one at home."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.spark]

IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}
MINUTES = float(os.environ.get("WINDHOVER_TORTURE_MINUTES", "5" if IN_CI else "1"))
SEED = int(os.environ.get("WINDHOVER_TORTURE_SEED", "11"))
"""The default draws a zombie, a frozen part, a cut and a silent network, a full disk and a stepped clock."""
AROUND_SECONDS = 600
"""What is done before the first blow and after the last one takes one minute; draining may take five."""


@pytest.mark.timeout(MINUTES * 60 + AROUND_SECONDS)
def test_nothing_is_lost_or_done_twice_by_any_kill() -> None:
    """S35, P54, rules 1 to 9: on a real broker and a real Spark, with every part killed at random."""
    command = [sys.executable, "-m", "tests.torture", "--minutes", str(MINUTES), "--seed", str(SEED)]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    told = f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, told
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["held"], told
    assert report["failed_checks"] == {}
    assert report["kills"] >= 5 * MINUTES, told
    assert report["lost"] == 0
    if (SEED, MINUTES) == (11, 5.0):
        assert any("another driver on a fresh checkpoint" in blow for blow in report["blows"]), told
    assert report["records"] > 0
