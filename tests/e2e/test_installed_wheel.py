"""The wheel in an environment that has nothing else: what it names as its needs is all that it needs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spout.distribution import DISTRIBUTION
from tests.support.lacking import lacking

ROOT = Path(__file__).parents[2]
INSTALL_SECONDS_MAX = 900
DEMO_SECONDS_MAX = 900
"""Deadlines, not measures: a machine that builds PySpark beside other tests takes minutes."""
DEMO_RECORDS = 2_000
FOREIGN = ("PYTHONPATH", "PYSPARK_PYTHON", "VIRTUAL_ENV", "SPARK_HOME", "PYTEST_CURRENT_TEST")
"""Variables by which the environment of the tests could reach into the other one."""


def run(command: list[str], folder: Path, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, without what ties this process to the environment of the tests."""
    environ = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=timeout_s, check=False
    )


def install(folder: Path) -> Path:
    """Build the wheel, and install it with its own needs into a new environment; return its programs.

    The versions are those of the lock, so that a release of today breaks no test.
    """
    uv = shutil.which("uv") or lacking("uv is not in the PATH")
    dist, environment, versions = folder / "dist", folder / "environment", folder / "versions.txt"
    export = [uv, "export", "--locked", "--quiet", "--all-extras", "--no-default-groups", "--no-hashes"]
    commands: list[list[str]] = [
        [uv, "build", "--quiet", "--wheel", "--python", sys.executable, "--out-dir", str(dist), str(ROOT)],
        [*export, "--no-emit-project", "--project", str(ROOT), "--output-file", str(versions)],
        [uv, "venv", "--quiet", "--python", sys.executable, str(environment)],
    ]
    for command in commands:
        ended = run(command, folder, INSTALL_SECONDS_MAX)
        assert ended.returncode == 0, ended.stderr
    [wheel] = dist.glob("*.whl")
    into = ["--python", str(environment), "--constraints", str(versions)]
    ended = run([uv, "pip", "install", "--quiet", *into, str(wheel)], folder, INSTALL_SECONDS_MAX)
    assert ended.returncode == 0, ended.stderr
    return environment / "bin"


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.timeout(2 * INSTALL_SECONDS_MAX + DEMO_SECONDS_MAX)
def test_the_demo_runs_from_the_wheel_in_an_empty_environment(tmp_path: Path) -> None:
    """In a folder without a topics.yaml: the demo brings its own along."""
    programs = install(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shown = "import importlib.metadata as m, acker; print(m.version({name!r}), acker.__file__)"
    origin = run([str(programs / "python"), "-c", shown.format(name=DISTRIBUTION)], elsewhere, 60)
    version, place = origin.stdout.split()
    assert Path(place).is_relative_to(tmp_path / "environment"), "not the checkout"
    printed = run([str(programs / "windhover"), "--version"], elsewhere, 60)
    assert printed.stdout == f"windhover {version}\n"

    demo = [str(programs / "windhover"), "demo", "--json", "--records", str(DEMO_RECORDS)]
    ended = run(demo, elsewhere, DEMO_SECONDS_MAX)
    assert ended.returncode == 0, ended.stdout[-2_000:] + ended.stderr[-4_000:]
    outcome = json.loads(ended.stdout.splitlines()[-1])
    assert (outcome["records"], outcome["pending"], outcome["lost"]) == (DEMO_RECORDS, 0, 0)
    assert outcome["counts_correct"] is True
    assert outcome["acked"] + outcome["dead_lettered"] == DEMO_RECORDS
