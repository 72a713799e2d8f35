"""What a link does where a connection, a batch that is run again, or the driver ends; and what it leaves."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from acker.wire.events import SourceRun
from spout.link import connection as connection_of_link
from spout.link import driver_socket
from spout.link.connection import Connection
from spout.link.messages import SESSIONS_MAX, keep_last_of_session
from tests.support.linked import LinkedDriver, linked_driver, others_run_again
from tests.support.waiting import eventually

FIRST = (SourceRun(65_536, 0, 10),)
NEVER_MS = 600_000
"""A limit that no test reaches."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make the driver's folder."""
    path = tmp_path / "sinks"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def driver(folder: Path) -> Iterator[LinkedDriver]:
    """A driver that listens in a folder."""
    with linked_driver(folder) as driver:
        yield driver


def driver_has_gone(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if line.startswith("driver_has_gone")]


def test_a_session_that_speaks_again_is_kept_before_those_that_are_silent() -> None:
    said: dict[str, int] = {}
    for number in range(SESSIONS_MAX):
        keep_last_of_session(said, str(number), number)
    keep_last_of_session(said, "0", -1)
    keep_last_of_session(said, "new", 7)
    assert len(said) == SESSIONS_MAX
    assert said["0"] == -1
    assert "1" not in said


def test_a_mark_stays_while_another_process_that_came_first_runs_a_batch_again(
    driver: LinkedDriver,
) -> None:
    """D306: the second one is there before the first one says it, so that the driver has to say it on."""
    first, second = driver.planner("first"), driver.planner("second")
    first.report_that_it_runs_again("s", FIRST)
    eventually(lambda: others_run_again(second))
    second.report_that_it_plans()
    assert driver.link.mark.exists()
    first.report_that_it_plans()
    eventually(lambda: not others_run_again(second))
    assert not driver.link.mark.exists()


def test_a_process_that_plans_without_a_mark_says_nothing_of_one(
    driver: LinkedDriver, caplog: pytest.LogCaptureFixture
) -> None:
    planner = driver.planner()
    planner.report_that_it_plans()
    assert not driver.link.mark.exists()
    assert [line for line in caplog.messages if "mark of a batch" in line] == []


def test_a_driver_that_stays_away_is_not_logged_each_time_it_is_looked_for(
    driver: LinkedDriver, caplog: pytest.LogCaptureFixture
) -> None:
    planner = driver.planner()
    driver.end()
    eventually(lambda: len(driver.threads()) == 1)  # the planner's; so nobody listens any more
    eventually(lambda: planner.has_gone)
    lines = driver_has_gone(caplog)
    changes = planner.changes
    eventually(lambda: planner.changes > changes + 2)  # it looks for the driver again
    assert lines
    assert driver_has_gone(caplog) == lines


def test_a_process_that_closes_its_own_link_does_not_log_that_the_driver_has_gone(
    driver: LinkedDriver, caplog: pytest.LogCaptureFixture
) -> None:
    driver.planner().close()
    eventually(lambda: len(driver.threads()) == 1)  # the one that listens
    assert driver_has_gone(caplog) == []


def test_connections_that_have_ended_do_not_count_among_those_that_are_open(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(driver_socket, "CONNECTIONS_MAX", 2)
    with linked_driver(folder) as driver:
        for _ in range(4):
            driver.planner().close()
            eventually(lambda: len(driver.threads()) == 1)
        assert driver.planner().is_connected
    assert "connections are open" not in caplog.text


def test_the_end_of_the_application_ends_its_connections_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when the thread of a connection looks next."""
    monkeypatch.setattr(driver_socket, "READ_MS", NEVER_MS)
    with linked_driver(folder) as driver:
        planner = driver.planner()
        driver.end()
        eventually(lambda: planner.has_gone)
        assert not planner.is_connected


def test_the_thread_that_listens_leaves_ctrl_c_to_the_main_thread(driver: LinkedDriver) -> None:
    """Else Python may learn of it when the query has ended by itself."""
    (listening,) = driver.threads()

    def blocks_sigint() -> bool:
        status = Path(f"/proc/self/task/{listening.native_id}/status").read_text()
        blocked = next(line for line in status.splitlines() if line.startswith("SigBlk:"))
        return bool(int(blocked.split()[1], 16) >> (signal.SIGINT - 1) & 1)

    eventually(blocks_sigint)


def test_closing_a_connection_wakes_the_thread_that_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_of_link, "SEND_MS_MAX", NEVER_MS)
    one, two = socket.socketpair()
    with two:
        connection = Connection(one)
        waiting = threading.Thread(target=connection.wait, args=(NEVER_MS,), daemon=True)
        waiting.start()
        connection.close()
        waiting.join(30)
        assert not waiting.is_alive()
