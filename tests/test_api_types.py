"""The type hints of the public API, as the checkers of users read them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documented import NAMES

ROOT = Path(__file__).parents[1]
USES = ROOT / "tests" / "support" / "api_uses.py"
DEADLINE_S = 180
NOWHERE = "http://127.0.0.1:9"
"""A proxy that nobody runs: a checker that wants to fetch something fails."""

WRONG = """
import spout
from acker.config.topics import Topics

def uses(topics: Topics) -> None:
    spout.KafkaSpout(topics, 1)
    spout.fields("word", partitions="4")
    spout.bolt(object())
"""


def checked(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a checker as a user does, without a network."""
    proxies = {"HTTPS_PROXY": NOWHERE, "HTTP_PROXY": NOWHERE, "NO_PROXY": ""}
    environ = os.environ | proxies | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def mypy(path: Path) -> subprocess.CompletedProcess[str]:
    """Check a file with mypy, from what it remembers of the project where that was checked before."""
    return checked("mypy", "--strict", str(path))


def pyright(path: Path) -> subprocess.CompletedProcess[str]:
    """Check a file with pyright, on the Node that its package brings."""
    return checked("pyright", "--outputjson", "--pythonpath", sys.executable, str(path))


@pytest.mark.parametrize("name", NAMES)
def test_the_file_of_uses_leaves_no_public_name_out(name: str) -> None:
    text = USES.read_text(encoding="utf-8")
    assert f"spout.{name}" in text or f"import {name}" in text or f", {name}" in text


@pytest.mark.timeout(2 * DEADLINE_S + 20)
def test_mypy_accepts_user_code_and_finds_what_is_wrong_in_it(tmp_path: Path) -> None:
    found = mypy(USES)
    assert found.returncode == 0, found.stdout + found.stderr
    (tmp_path / "wrong.py").write_text(WRONG)
    found = mypy(tmp_path / "wrong.py")
    assert found.stdout.count("[arg-type]") == 3, found.stdout + found.stderr


@pytest.mark.timeout(2 * DEADLINE_S + 20)
def test_pyright_accepts_user_code_and_finds_what_is_wrong_in_it(tmp_path: Path) -> None:
    found = pyright(USES)
    assert found.returncode == 0, found.stdout + found.stderr
    assert json.loads(found.stdout)["summary"]["filesAnalyzed"] == 1
    (tmp_path / "wrong.py").write_text(WRONG)
    found = pyright(tmp_path / "wrong.py")
    rules = [each.get("rule") for each in json.loads(found.stdout)["generalDiagnostics"]]
    assert rules == ["reportArgumentType"] * 3, found.stdout
