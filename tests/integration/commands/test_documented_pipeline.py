"""The test of a whole pipeline in docs/guide/testing.md runs as a user would run it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[3] / "examples" / "testing"
DEADLINE_S = 280


def test_the_test_of_a_pipeline_passes(tmp_path: Path) -> None:
    """D2116: in a folder of its own, as a user's project is one."""
    project = tmp_path / "project"
    shutil.copytree(FOLDER, project, ignore=shutil.ignore_patterns("__pycache__"))
    binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project,
        env={**environ, "PATH": binaries},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 passed" in ended.stdout
