"""Which tests run on another version of Spark, how its environment comes about, and how it ends.

The tests are those on real brokers and Spark that touch what differs: `spout/spark`. All versions
run the same ones.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).resolve().parents[2]

RELEASES: Final = ("4.0", "4.1", "4.2", "4.3")
"""The releases of Spark that `pyproject.toml` allows, oldest first; `uv.lock` has the last one."""

_ALWAYS: Final = ("tests/unit/spout/spark", "tests/integration/spark/test_restarts_spark.py")

QUICK: Final = (
    *_ALWAYS,
    "tests/integration/spark/test_keyed_spark.py::test_whole_numbers_stay_whole_beside_nulls",
    "tests/integration/spark/test_sink_shuffles.py::test_empty_partitions_do_not_stand_for_others",
)
"""What CI has time for: what differs from version to version, and restarts from a checkpoint."""

RING: Final = (
    *_ALWAYS,
    "tests/integration/spark/test_bolts_spark.py",
    "tests/integration/spark/test_delayed_spark.py",
    "tests/integration/spark/test_damage_spark.py",
    "tests/integration/spark/test_every_type_spark.py",
    "tests/integration/spark/test_exact_sink_spark.py",
    "tests/integration/spark/test_holes_spark.py",
    "tests/integration/spark/test_keyed_spark.py",
    "tests/integration/spark/test_keyed_topology_spark.py",
    "tests/integration/spark/test_quiet_topics_spark.py",
    "tests/integration/spark/test_run_once_spark.py",
    "tests/integration/spark/test_sink_shuffles.py",
    "tests/integration/spark/test_source_spark.py",
    "tests/integration/spark/test_stream_joins_spark.py",
    "tests/integration/spark/test_topology_spark.py",
)
"""What a version has to pass before a page names it."""

_SUMMARY: Final = re.compile(r"\d+ (?:x?passed|x?failed|error|skipped)\w*")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run of tests ended with: the version that they ran on, pytest's counts, and its exit code."""

    version: str
    counts: str
    exit_code: int


def make_environment(folder: Path, spark: str) -> Path:
    """Make an environment with one version of Spark, and all else as the lock has it.

    Return its Python. `spark` is a version such as 4.0, of which the newest is taken, or 4.0.5.
    """
    wanted = spark if spark.count(".") > 1 else f"{spark}.*"
    exported = _uv("export", "--locked", "--group", "dev", "--no-emit-project", "--no-hashes")
    requirements = folder / "requirements.txt"
    others = [line for line in exported.splitlines() if not line.startswith("pyspark==")]
    requirements.write_text("\n".join(others), encoding="utf-8")
    environment = folder / f"spark-{spark}"
    _uv("venv", "--quiet", "--allow-existing", str(environment))
    in_environment = {"VIRTUAL_ENV": str(environment)}
    _uv("pip", "install", "-q", "-r", str(requirements), f"pyspark=={wanted}", environment=in_environment)
    _uv("pip", "install", "-q", "--no-deps", "--editable", str(PROJECT), environment=in_environment)
    return environment / "bin" / "python"


def run_tests(python: Path, tests: Sequence[str], folder: Path) -> Outcome:
    """Run tests by the Python of an environment; their output goes into a log in the folder."""
    asks = [str(python), "-c", "import pyspark; print(pyspark.__version__)"]
    version = subprocess.run(asks, check=True, capture_output=True, text=True).stdout.strip()
    log = folder / f"spark-{version}.log"
    return Outcome(version, *run_pytest(python, ["-m", "slow or not slow", *tests], log))


def run_pytest(python: str | Path, arguments: Sequence[str], log: Path) -> tuple[str, int]:
    """Run pytest in one process, its output goes into a file; return its counts and its exit code."""
    command = [str(python), "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", *arguments]
    with log.open("w", encoding="utf-8") as output:
        ended = subprocess.run(command, cwd=PROJECT, stdout=output, stderr=subprocess.STDOUT, check=False)
    return counts_of(log.read_text(encoding="utf-8")), ended.returncode


def counts_of(output: str) -> str:
    """Return pytest's counts of its last line, such as ``1 failed, 12 passed``; empty: it has none."""
    lines = output.strip().splitlines() or [""]
    return ", ".join(_SUMMARY.findall(lines[-1]))


def _uv(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Run uv in the project; return what it prints."""
    ended = subprocess.run(
        ["uv", *arguments],
        cwd=PROJECT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return ended.stdout
