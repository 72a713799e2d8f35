"""deploy/systemd: the units as systemd itself reads them, without running them."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from acker.config.limits import AckerLimits, ReplayLimits
from spout.cli.main import app
from spout.runtime.endpoints import NOTIFY_EVERY_S
from tests.support.lacking import lacking

SYSTEMD = Path(__file__).parents[3] / "deploy" / "systemd"
UNITS = ("windhover-acker.service", "windhover-replay.service", "windhover-page.service")
COMMON = "windhover-.service.d/common.conf"
PROGRAM = "/opt/windhover/bin/windhover"
EXPOSURE_MAX = 15
"""Of 100, as `systemd-analyze security` counts; a unit without any hardening has 96."""


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    if not shutil.which("systemd-analyze"):
        lacking("systemd-analyze is not installed")
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """Copy the units, with a program that exists here."""
    folder = tmp_path / "units"
    shutil.copytree(SYSTEMD, folder)
    for name in UNITS:
        text = (folder / name).read_text()
        assert PROGRAM in text
        (folder / name).write_text(text.replace(PROGRAM, sys.executable))
    return folder


def settings(name: str) -> dict[str, str]:
    """Return the keys of a unit and of what all units share; each stands once."""
    lines = [*(SYSTEMD / name).read_text().splitlines(), *(SYSTEMD / COMMON).read_text().splitlines()]
    pairs = [line.partition("=")[::2] for line in lines if line and line[0] not in "#["]
    assert len(pairs) == len(dict(pairs))
    return dict(pairs)


def test_systemd_has_nothing_to_say_against_the_units(units: Path) -> None:
    verified = analyze("verify", *(str(units / name) for name in UNITS))
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")


@pytest.mark.parametrize("file", [UNITS[0], COMMON])
def test_a_key_that_is_misspelled_is_found(units: Path, file: str) -> None:
    (units / file).write_text((units / file).read_text().replace("[Service]\n", "[Service]\nWatchdog=1\n"))
    verified = analyze("verify", str(units / UNITS[0]))
    assert "Unknown key 'Watchdog' in section [Service]" in verified.stderr


@pytest.mark.parametrize("name", UNITS)
def test_a_service_can_do_little_besides_its_work(units: Path, name: str) -> None:
    judged = analyze("security", "--offline=true", f"--threshold={EXPOSURE_MAX}", str(units / name))
    assert judged.returncode == 0, judged.stdout


@pytest.mark.parametrize("name", UNITS)
def test_the_command_of_every_unit_is_one_of_windhover(name: str) -> None:
    program, *arguments = shlex.split(settings(name)["ExecStart"])
    assert program == PROGRAM
    result = CliRunner().invoke(app, [*arguments, "--help"])
    assert result.exit_code == 0, result.output
    assert all(each in result.output for each in arguments if each.startswith("--"))


@pytest.mark.parametrize(("name", "limits"), [(UNITS[0], AckerLimits()), (UNITS[1], ReplayLimits())])
def test_systemd_waits_longer_than_the_process_takes_to_end_itself(
    name: str, limits: AckerLimits | ReplayLimits
) -> None:
    """The process knows what hung, and writes a trace; systemd comes after it."""
    unit = settings(name)
    assert unit["Type"] == "notify"
    assert float(unit["WatchdogSec"]) * 1_000 > limits.hung_ms
    assert float(unit["TimeoutStopSec"]) * 1_000 > limits.stop_ms
    assert unit["SuccessExitStatus"] == str(128 + 15)


def test_the_watchdog_of_the_page_allows_for_many_of_its_signs_to_be_missed() -> None:
    assert float(settings("windhover-page.service")["WatchdogSec"]) >= 10 * NOTIFY_EVERY_S
