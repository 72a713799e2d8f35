"""Temporary folders of drivers: those of the killed are removed by the next, those of the living are not."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spout.streaming.application import OwnFolder

KILLED = """
import os, signal
from spout.streaming.application import OwnFolder
own = OwnFolder("windhover-tests-")
print(own.name, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    command = [sys.executable, "-c", KILLED]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    left = Path(done.stdout.strip())
    assert (done.returncode, left.parent, left.is_dir()) == (-signal.SIGKILL, tmp_path, True)
    stranger = tmp_path / "windhover-tests-older"
    stranger.mkdir()
    with OwnFolder("windhover-tests-") as first:
        assert not left.exists()
        with OwnFolder("windhover-tests-") as second:
            assert Path(first).is_dir(), "its process lives"
        assert not Path(second).exists()
    assert list(tmp_path.iterdir()) == [stranger], "without a lock nobody knows whose it is"
