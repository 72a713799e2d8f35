"""Processes that die with the one that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from spout.runtime import tether
from tests.support.waiting import Watch, eventually

FOREVER = ("tail", "-f", "/dev/null")

# starts one tethered process that starts another one, and writes down the number of each
GENERATIONS = """
import os, pathlib, signal, sys
from spout.runtime import tether
folder, level = pathlib.Path(sys.argv[1]), int(sys.argv[2])
if level < 3:
    again = [sys.executable, __file__, str(folder), str(level + 1)]
    child = tether.spawn(tether.Command(again, folder / "log"))
(folder / f"{level}.draft").write_text(str(os.getpid()))
(folder / f"{level}.draft").rename(folder / f"{level}.pid")
signal.pause()
"""


def script(folder: Path, text: str) -> Path:
    """Write a Python program."""
    path = folder / "program.py"
    path.write_text(text)
    return path


def test_a_kill_of_the_parent_takes_children_and_their_children_along(tmp_path: Path) -> None:
    program = [sys.executable, str(script(tmp_path, GENERATIONS)), str(tmp_path), "1"]
    parent = subprocess.Popen(program, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    with parent:
        files = [tmp_path / f"{level}.pid" for level in (1, 2, 3)]
        eventually(lambda: all(file.exists() for file in files))
        watches = [Watch(int(file.read_text())) for file in files]
        parent.send_signal(signal.SIGKILL)
    assert [watch.ended() for watch in watches] == [True, True, True]
    for watch in watches:
        watch.close()


def test_a_process_that_is_asked_to_end_and_does_has_ended_cleanly(tmp_path: Path) -> None:
    process = tether.spawn(tether.Command(FOREVER, tmp_path / "log"))
    assert tether.stop(process, 10_000)
    assert process.returncode == -signal.SIGTERM


def test_a_process_that_will_not_end_is_killed_at_the_deadline(tmp_path: Path) -> None:
    deaf = "from signal import *; signal(SIGTERM, SIG_IGN); print('deaf', flush=True); pause()"
    process = tether.spawn(tether.Command([sys.executable, "-c", deaf], tmp_path / "log"))
    eventually(lambda: tether.last_lines(tmp_path / "log") == "deaf")
    assert not tether.stop(process, 100)
    assert process.returncode == -signal.SIGKILL


def test_a_process_that_had_failed_before_has_not_ended_cleanly(tmp_path: Path) -> None:
    process = tether.spawn(tether.Command(["sh", "-c", "echo why >&2; exit 4"], tmp_path / "log"))
    process.wait()
    assert not tether.stop(process, 100)
    assert tether.last_lines(tmp_path / "log") == "why"


def test_ctrl_c_in_a_terminal_does_not_reach_a_child(tmp_path: Path) -> None:
    process = tether.spawn(tether.Command(FOREVER, tmp_path / "log"))
    assert os.getpgid(process.pid) != os.getpgid(0)
    tether.kill(process)


def test_a_child_of_a_thread_is_refused(tmp_path: Path) -> None:
    caught: list[str] = []

    def start() -> None:
        with pytest.raises(RuntimeError) as error:
            tether.spawn(tether.Command(FOREVER, tmp_path / "log"))
        caught.append(str(error.value))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert len(caught) == 1
    assert "main thread" in caught[0]
