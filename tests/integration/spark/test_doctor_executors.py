"""The doctor's job on a real cluster of two workers, of which one has each fault in turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import py4j
import pyspark
import pytest

from spout.doctor.codes import (
    EXECUTOR_CLOCKS,
    EXECUTOR_PACKAGES,
    EXECUTOR_PYTHON,
    EXECUTOR_REACH,
    EXECUTORS,
    CheckCode,
    CheckHealth,
)
from spout.local.embedded import free_port
from tests.support.brokers import Broker
from tests.support.waiting import eventually
from tests.torture.stage.clock import SteppedClock
from tests.torture.stage.spark_cluster import SparkCluster

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(300)]

PYTHON = "python-of-workers"
OTHERS_UNKNOWN = [
    (each, CheckHealth.UNKNOWN) for each in (EXECUTOR_PACKAGES, EXECUTOR_REACH, EXECUTOR_CLOCKS)
]


def results(master: str, servers: str, folder: Path, python: str = sys.executable) -> list[dict[str, str]]:
    """Run the doctor's job as a process, whose Spark ends with it."""
    (folder / "topics.yaml").write_text(
        f"kafka: {{bootstrap.servers: '{servers}'}}\ninputs: {{a: {{id: 1, group: g}}}}\n"
    )
    environ = {**os.environ, "PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-m", "spout.cli", "doctor", "--only", "executors", "-o", "json"]
    ended = subprocess.run(
        [*command, "--master", master], capture_output=True, text=True, cwd=folder, env=environ, check=False
    )
    assert ended.returncode in (0, 1), ended.stderr
    found: list[dict[str, str]] = json.loads(ended.stdout)
    return found


def wrong(found: list[dict[str, str]]) -> set[tuple[str, str]]:
    return {(each["code"], each["health"]) for each in found if each["health"] != "ok"}


def expected(*pairs: tuple[CheckCode, CheckHealth]) -> set[tuple[str, str]]:
    return {(code.code, str(health)) for code, health in pairs}


def bare_python(folder: Path) -> Path:
    """Return an interpreter that has PySpark, as Spark brings it along, and nothing else."""
    venv.create(folder / "bare", symlinks=True)
    modules = folder / "modules"
    modules.mkdir()
    for module in (pyspark, py4j):
        (modules / module.__name__).symlink_to(Path(str(module.__file__)).parent)
    return folder / "bare" / "bin" / "python"


def named(folder: Path, python: Path) -> str:
    """Return a PATH on which the workers' Python is this one; the first call of a folder makes it."""
    folder.mkdir()
    (folder / PYTHON).write_text(f'#!/bin/sh\nexec {python} "$@"\n')
    (folder / PYTHON).chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def is_ready(folder: Path) -> bool:
    """Whether the master of a cluster has both workers."""
    logs = [path.read_text() for path in folder.glob("spark-worker-*.log")]
    return len(logs) == 2 and all("Successfully registered with master" in text for text in logs)


def test_a_master_that_does_not_answer_fails_and_nothing_else_could_be_told(tmp_path: Path) -> None:
    nobody = f"spark://127.0.0.1:{free_port()}"
    assert wrong(results(nobody, "127.0.0.1:1", tmp_path)) == expected(
        (EXECUTORS, CheckHealth.FAILED), (EXECUTOR_PYTHON, CheckHealth.UNKNOWN), *OTHERS_UNKNOWN
    )


def test_a_worker_without_the_package_whose_clock_differs_and_a_broker_out_of_reach(
    broker: Broker, tmp_path: Path
) -> None:
    right, bare = tmp_path / "right", tmp_path / "bare-path"
    path = named(right, Path(sys.executable))
    clock = SteppedClock(tmp_path / "clock")
    clock.step(-60_000)
    lacking = clock.environ({"PATH": named(bare, bare_python(tmp_path))})
    lacking["PYTHONPATH"] += os.pathsep + str(tmp_path / "modules")
    away = f"127.0.0.1:{free_port()}"
    with SparkCluster(tmp_path / "cluster", 2, {**os.environ, "PATH": path}, lacking) as cluster:
        eventually(lambda: is_ready(tmp_path / "cluster"))
        found = results(cluster.master, f"{broker.bootstrap},{away}", tmp_path, PYTHON)
    assert wrong(found) == expected(
        (EXECUTOR_PACKAGES, CheckHealth.FAILED),
        (EXECUTOR_CLOCKS, CheckHealth.FAILED),
        (EXECUTOR_REACH, CheckHealth.FAILED),
    ), found
    of = {code: [each for each in found if each["code"] == code] for code, _ in wrong(found)}
    assert [each["health"] for each in of[EXECUTOR_REACH.code]] == ["failed", "failed"]
    assert all(away in each["observed"] for each in of[EXECUTOR_REACH.code])
    for code in (EXECUTOR_PACKAGES, EXECUTOR_CLOCKS):
        assert sorted(each["health"] for each in of[code.code]) == ["failed", "ok"]
    (missing,) = [each for each in of[EXECUTOR_PACKAGES.code] if each["health"] == "failed"]
    assert "No module named 'spout'" in missing["observed"]
    assert str(tmp_path / "bare" / "bin" / "python") in missing["cure"]


def test_a_worker_that_has_no_such_python_fails_and_the_other_one_answers(
    broker: Broker, tmp_path: Path
) -> None:
    path = named(tmp_path / "right", Path(sys.executable))
    different = {"PATH": os.environ["PATH"]}
    with SparkCluster(tmp_path / "cluster", 2, {**os.environ, "PATH": path}, different) as cluster:
        eventually(lambda: is_ready(tmp_path / "cluster"))
        found = results(cluster.master, broker.bootstrap, tmp_path, PYTHON)
    assert wrong(found) == expected((EXECUTOR_PYTHON, CheckHealth.FAILED), *OTHERS_UNKNOWN), found
    pythons = {each["health"]: each["observed"] for each in found if each["code"] == EXECUTOR_PYTHON.code}
    assert sorted(pythons) == ["failed", "ok"], found
    assert f'Cannot run program "{PYTHON}"' in pythons["failed"]
