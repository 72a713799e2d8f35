"""A command whose outputs are closed, or take nothing, ends without a trace, and with the cure."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from spout.cli.main import run

PROJECT = Path(__file__).resolve().parents[4]
COMMANDS = ("validate topics.yaml", "--help", "explain timeout", "dlq --help")
FULL = Path("/dev/full")
HAS_FULL = pytest.mark.skipif(not FULL.exists(), reason="only Linux has /dev/full")


def windhover(shell: str, *, command: str = COMMANDS[0]) -> subprocess.CompletedProcess[str]:
    """Run a command as a line of a shell, in which `W` is the command."""
    call = f'"{sys.executable}" -m spout.cli {command}'
    environ = {**os.environ, "PYTHONPATH": str(PROJECT)}
    environ.pop("PYTHONUNBUFFERED", None)  # with it nothing is left to be flushed at the end
    return subprocess.run(
        ["sh", "-c", shell.replace("W", call)],
        capture_output=True,
        text=True,
        cwd=PROJECT,
        env=environ,
        check=False,
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_as_one_whose_output_nobody_reads(closed: str) -> None:
    ended = windhover(f"W {closed}")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert bool(ended.stdout) == (">&-" not in closed.replace("2>&-", ""))


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_file_never_gets_the_descriptor_of_a_closed_stream(closed: str, tmp_path: Path) -> None:
    """What C code reports on stderr would be written into a store, or to a broker."""
    numbers = tmp_path / "numbers"
    program = (
        "from spout.cli import main; main.run(['--version']);"
        f"f = open({str(numbers)!r}, 'w'); f.write(str(f.fileno()))"
    )
    subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -c "$0" {closed}', program], check=True, cwd=PROJECT, timeout=60
    )
    assert int(numbers.read_text()) > 2


@HAS_FULL
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_said_and_is_no_defect(command: str) -> None:
    ended = windhover("W > /dev/full", command=command)
    assert ended.returncode == 1
    expected = "windhover: No space left on device; free some space, or send the output elsewhere\n"
    assert ended.stderr == expected


@HAS_FULL
def test_an_error_that_cannot_be_printed_has_its_exit_code() -> None:
    assert windhover("W 2> /dev/full", command="validate nowhere.yaml").returncode == 2
    # for a monitor 1 would be a warning
    assert windhover("W 2> /dev/full", command="check --config nowhere.yaml").returncode == 3


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            OSError(errno.EMFILE, "Too many open files", "numpy/\u202e.py"),
            "windhover: numpy/%E2%80%AE.py: Too many open files; this process may open no more files:"
            " let it open more, as by `ulimit -n 1024`\n",
        ),
        (
            OSError(errno.EROFS, "Read-only file system", "/a"),
            "windhover: /a: Read-only file system; name a file that can be written\n",
        ),
    ],
)
def test_what_the_machine_refuses_is_said_with_its_cure(
    error: OSError, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = typer.Typer()

    @tool.command()
    def fail() -> None:
        raise error

    assert run([], tool) == 1
    assert capsys.readouterr().err == text


def test_a_reader_that_goes_away_gets_no_trace() -> None:
    ended = windhover("W | head -n 1")
    assert (ended.returncode, ended.stderr) == (0, "")
