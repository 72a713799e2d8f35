"""The doctor finds what keeps other commands from working, and goes on with its other checks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from spout.cli import main as cli
from spout.doctor.client_kinds import judge_clients
from spout.doctor.codes import CLIENT, TOPICS_FILE, CheckHealth

PROJECT = Path(__file__).resolve().parents[4]
INPUT = "inputs: {a: {id: 1, group: g}}"
AWAY = "bootstrap.servers: '127.0.0.1:1'"
WRONG = {
    "no file": (f"kafka: {{{AWAY}, security.protocol: SSL, ssl.ca.location: /no/such.pem}}", "/no/such.pem"),
    "no such setting": (f"kafka: {{{AWAY}, sesion.timeout.ms: 6000}}", "sesion.timeout.ms"),
    "a value out of range": (f"kafka: {{{AWAY}, socket.timeout.ms: 1}}", "socket.timeout.ms"),
    "no such function": (
        f"kafka: {{{AWAY}, security.protocol: SASL_PLAINTEXT, sasl.mechanism: OAUTHBEARER,"
        " oauth_cb: 'nobody:knows'}",
        "nobody",
    ),
}


@pytest.mark.parametrize(("kafka", "named"), WRONG.values(), ids=WRONG)
def test_settings_of_which_no_client_can_be_made_are_a_finding(
    kafka: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """D2701: with its cure; what else there is to check is checked, and an archive is written."""
    file, archive = tmp_path / "topics.yaml", tmp_path / "report.zip"
    file.write_text(f"{kafka}\n{INPUT}\n")

    code = cli.run(["doctor", "--config", str(file), "-o", "json", "--bundle", str(archive)])

    rows = json.loads(capsys.readouterr().out)
    assert code == 1
    (finding,) = (row for row in rows if row["health"] == "failed" and named in row["observed"])
    assert finding["code"] in (TOPICS_FILE.code, CLIENT.code)
    assert finding["cure"]
    assert {"WH001", "WH011", "WH012"} <= {row["code"] for row in rows}
    if finding["code"] == CLIENT.code:
        assert {row["health"] for row in rows if row["code"] == "WH024"} == {"unknown"}
    assert "results.json" in zipfile.ZipFile(archive).namelist()


def test_settings_are_judged_without_a_broker() -> None:
    """D2701"""
    right, wrong = {"bootstrap.servers": "127.0.0.1:1"}, {"sesion.timeout.ms": "6000"}
    assert [result.health for result in judge_clients("topics.yaml", right)] == [CheckHealth.OK]
    results = judge_clients("topics.yaml", {**right, **wrong})
    assert [(result.code, result.health) for result in results] == [(CLIENT, CheckHealth.FAILED)]


@pytest.fixture(params=["a package", "a file", "a folder"])
def somebody_elses(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder in which `acker` is not ours."""
    if request.param == "a file":
        (tmp_path / "acker.py").write_text("x = 1")
    else:
        (tmp_path / "acker").mkdir()
        (tmp_path / "acker" / "errors.py").write_text("x = 1")
    if request.param == "a package":
        (tmp_path / "acker" / "__init__.py").write_text("")
    (tmp_path / "topics.yaml").write_text(f"kafka: {{{AWAY}}}\n{INPUT}\n")
    return tmp_path


def run_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, which comes before ours where Python looks for packages."""
    code = f"import sys; sys.path.append({str(PROJECT)!r});from spout.cli.foreign import begin; begin()"
    return subprocess.run(
        [sys.executable, "-c", code, *words], cwd=folder, capture_output=True, text=True, check=False
    )


def test_a_package_of_somebody_else_is_a_finding_and_no_trace(somebody_elses: Path) -> None:
    """D2702"""
    ran = run_in(somebody_elses, "doctor", "--only", "files", "-o", "json")

    assert "Traceback" not in ran.stderr
    rows = json.loads(ran.stdout)
    is_folder = (
        not (somebody_elses / "acker.py").exists() and not (somebody_elses / "acker" / "__init__.py").exists()
    )
    # a folder without __init__.py gives way to a package
    failed = [row["object"] for row in rows if row["code"] == "WH012" and row["health"] == "failed"]
    assert failed == ([] if is_folder else ["acker"])
    assert {"WH001", "WH010", "WH013"} <= {row["code"] for row in rows}


def test_another_command_ends_with_the_cure(somebody_elses: Path) -> None:
    """D2702"""
    if not (somebody_elses / "acker.py").exists() and not (somebody_elses / "acker" / "__init__.py").exists():
        pytest.skip("a folder without __init__.py gives way to a package")
    ran = run_in(somebody_elses, "validate", "topics.yaml")

    assert ran.returncode == 4
    assert ran.stderr.startswith(f"windhover: the package acker is imported from {somebody_elses}")
    assert "rename or uninstall it" in ran.stderr


def test_a_checkout_finds_a_package_of_somebody_else_before_anything_is_installed(
    somebody_elses: Path,
) -> None:
    """D2703: `python -m spout.doctor` ended with a traceback."""
    ran = subprocess.run(
        [sys.executable, "-m", "spout.doctor"],
        cwd=somebody_elses,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.stderr == ""
    lines = ran.stdout.splitlines()
    is_ours = not any((somebody_elses / name).exists() for name in ("acker.py", "acker/__init__.py"))
    found = [line for line in lines if "WH012 import names, acker: is imported from" in line]
    assert len(found) == (0 if is_ours else 1)
    assert any("WH003 Java" in line for line in lines)
    assert ran.returncode == (0 if is_ours else 1)
