"""A forked child: how it ends is told, it is waited for with a limit, and does not outlive its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spout.execution.guards import CallMemory, ChildProgress, Phase
from spout.isolation import child_process
from spout.isolation.child_process import Channel, ChildEnded, ChildProcess, Why
from spout.tuples.poison import Call
from tests.support.waiting import Watch

CALL = Call("bolt", 1, 0, 0, 1, frozenset({7}))
Start = Callable[..., ChildProcess]


@pytest.fixture
def memory() -> CallMemory:
    """Be the memory that parent and child share."""
    return CallMemory(["bolt"])


@pytest.fixture
def start(memory: CallMemory) -> Iterator[Start]:
    """Start children that end with the test."""
    started: list[ChildProcess] = []

    def make(serve: Callable[[Channel], None], limit_ms: int = 0, on: CallMemory = memory) -> ChildProcess:
        started.append(ChildProcess(serve, on, limit_ms))
        return started[-1]

    yield make
    for child in started:
        child.close()


def for_ever() -> None:
    """Wait until somebody ends this process."""
    threading.Event().wait()


def test_frames_of_any_size_go_there_and_back(start: Start) -> None:
    def echo(channel: Channel) -> None:
        while frame := channel.receive():
            channel.send(frame[::-1])

    child = start(echo)
    for size in (1, 1_000, 5_000_000):
        assert child.ask(b"a" + b"b" * size) == b"b" * size + b"a"


def test_an_answer_that_was_sent_counts_though_its_sender_died_behind_it(start: Start) -> None:
    def answers_and_dies(channel: Channel) -> None:
        channel.send(b"done")
        os.kill(os.getpid(), signal.SIGKILL)

    child = start(answers_and_dies)
    assert child.ask() == b"done"
    with pytest.raises(ChildEnded, match="SIGKILL"):
        child.ask(b"more")


def test_a_death_in_the_middle_of_an_answer_is_a_death(start: Start) -> None:
    def dies_within(channel: Channel) -> None:
        channel._socket.sendall(b"\0\0\0\0\0\0\0\x08four")
        os._exit(0)

    with pytest.raises(ChildEnded, match="exit status 0"):
        start(dies_within).ask()


def test_a_grandchild_that_keeps_the_socket_does_not_hide_a_death(start: Start) -> None:
    def forks_and_dies(channel: Channel) -> None:
        if os.fork() == 0:
            channel.receive()  # ends with the test
            os._exit(0)
        os._exit(4)

    with pytest.raises(ChildEnded, match="exit status 4"):
        start(forks_and_dies).ask()


def test_a_call_that_returned_at_the_last_moment_is_not_blamed(start: Start) -> None:
    """Between the look at the clock and the kill a child may have gone on to an innocent tuple."""

    class Late(CallMemory):
        gone_on = False

        @property
        def progress(self) -> ChildProgress:
            seen = super().progress
            try:
                os.kill(child.pid, 0)
            except ProcessLookupError:
                return seen._replace(write_count=seen.write_count + 1)
            return seen

    late = Late(["bolt"])

    def hangs(channel: Channel) -> None:
        late.write_call(Phase.EXECUTE, CALL)
        for_ever()

    child = start(hangs, 100, late)
    with pytest.raises(ChildEnded) as ended:
        child.ask()
    assert ended.value.why is Why.SPARED


def test_a_call_that_lasts_too_long_is_ended_and_known(start: Start, memory: CallMemory) -> None:
    def hangs(channel: Channel) -> None:
        memory.write_call(Phase.EXECUTE, CALL)
        for_ever()

    with pytest.raises(ChildEnded) as ended:
        start(hangs, 100).ask()
    assert ended.value.why is Why.HUNG
    assert memory.read_last_call() == (Phase.EXECUTE, CALL)


def test_a_child_that_ended_by_itself_is_not_taken_for_one_that_hung(
    start: Start, memory: CallMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a while until an end is seen: a large process leaves slowly, one that crashed dumps core."""

    def exits(channel: Channel) -> None:
        memory.write_call(Phase.EXECUTE, CALL)
        os._exit(3)

    def waitpid(pid: int, options: int) -> tuple[int, int]:
        return (0, 0) if options & os.WNOHANG else waits(pid, options)  # who only looks, looks too early

    waits = os.waitpid
    monkeypatch.setattr(os, "waitpid", waitpid)
    child = start(exits, 100)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ChildEnded) as ended:
        child.ask()
    assert (ended.value.how, ended.value.why) == ("exit status 3", Why.DIED)


@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.CLEANUP, Phase.IDLE])
def test_a_child_that_does_nothing_is_given_up(
    start: Start, memory: CallMemory, phase: Phase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "QUIET_MS", 100)

    def waits(channel: Channel) -> None:
        memory.write_call(phase, CALL)
        for_ever()

    with pytest.raises(ChildEnded) as ended:
        start(waits, 50).ask()
    assert ended.value.why is Why.QUIET


def test_a_child_that_closes_its_socket_is_ended(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "CLOSED_MS", 50)

    def closes(channel: Channel) -> None:
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # whatever number the socket has
        for_ever()

    with pytest.raises(ChildEnded, match="closed its socket"):
        start(closes).ask()


def test_a_child_dies_before_its_parent_where_memory_runs_out(start: Start) -> None:
    def waits(channel: Channel) -> None:
        channel.send(b"up")
        for_ever()

    child = start(waits)
    child.ask()
    assert Path(f"/proc/{child.pid}/oom_score_adj").read_text().strip() == "1000"


def test_a_child_does_not_outlive_a_parent_that_was_killed() -> None:
    program = """
import threading
from spout.isolation.child_process import ChildProcess
from spout.execution.guards import CallMemory

def serve(channel):
    channel.send(b"up")
    threading.Event().wait()

child = ChildProcess(serve, CallMemory(["bolt"]), 0)
child.ask()
print(child.pid, flush=True)
threading.Event().wait()
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        child = Watch(int(parent.stdout.readline()))
    finally:
        parent.kill()
        parent.wait()
    assert child.ended()
