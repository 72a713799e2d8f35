"""A loop whose step hangs in C: it is found, told with a trace, and ended; and so is one that shall end."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import urlopen

import pytest

from spout.local.embedded import free_port
from spout.runtime.metrics import StatusCollector
from spout.runtime.step_watch import CHECK_S_MAX, LoopOperation, StepChecks, StepWatch
from spout.runtime.watchdog import EXIT_HUNG
from tests.support.waiting import eventually

PROGRAM = """
import ctypes, json, sys
from dataclasses import dataclass
from spout.runtime import endpoints, metrics, process
from spout.runtime.step_watch import StepWatch

library, hang_at, limit_ms, grace_ms, port = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
mutex = ctypes.create_string_buffer(64)
lock = getattr(ctypes, library)(None).pthread_mutex_lock

@dataclass(frozen=True)
class Status:
    partitions: tuple[int, ...] = (0,)

def hang_in_c():
    print("hangs", flush=True)
    lock(mutex)
    lock(mutex)  # no signal ends this wait

class Service:
    steps = 0
    def step(self, now_ms):
        steps.begin_operation("partition 3")
        self.steps += 1
        if hang_at == "step" and self.steps == 3:
            hang_in_c()
        elif hang_at != "step":
            print("steps", flush=True)
        return True
    def close(self):
        if hang_at == "close":
            hang_in_c()
    def status(self):
        return Status()

def tell(event, **fields):
    print(json.dumps({"event": event, **fields}, default=str), file=sys.stderr, flush=True)

steps = StepWatch("acker", limit_ms, grace_ms, tell)
collector = metrics.StatusCollector("acker", lambda _: (), lambda: steps.age_s)
if port:
    endpoints.serve(collector, port)
around = process.Surroundings("acker", lambda: 0, tell, collector.update, steps)
sys.exit(process.run_until_signalled(Service, around))
"""
HOUR_MS = 3_600_000


@contextmanager
def looping(
    library: str = "CDLL",
    hang_at: str = "step",
    limit_ms: int = HOUR_MS,
    grace_ms: int = HOUR_MS,
    port: int = 0,
) -> Iterator[subprocess.Popen[str]]:
    """Run a loop that hangs, in a process of its own; returns when it does, or has made a step."""
    call = [sys.executable, "-c", PROGRAM, library, hang_at, str(limit_ms), str(grace_ms), str(port)]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() in ("hangs\n", "steps\n")
            yield child
        finally:
            child.kill()


def test_a_step_that_hangs_in_c_is_logged_with_a_trace_and_ends_the_process() -> None:
    with looping(limit_ms=1_000) as child:
        _, said = child.communicate(timeout=60)
    assert child.returncode == EXIT_HUNG
    assert '"acker.step_slow"' in said
    assert '"acker.step_hung", "limit": "1s", "at": "partition 3"' in said
    assert "in hang_in_c" in said, "where it hangs"
    assert "in run_until_signalled" in said


def test_one_that_keeps_the_interpreters_lock_is_ended_by_an_alarm_with_a_trace() -> None:
    with looping("PyDLL", limit_ms=500) as child:
        _, said = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGALRM
    assert "in hang_in_c" in said


@pytest.mark.parametrize("hang_at", ["step", "close"])
def test_a_signal_ends_a_process_that_hangs_when_its_grace_is_over(hang_at: str) -> None:
    with looping(hang_at=hang_at, grace_ms=500) as child:
        child.send_signal(signal.SIGTERM)
        _, said = child.communicate(timeout=60)
    assert child.returncode == EXIT_HUNG
    assert '"acker.stop_hung", "grace": "500ms"' in said
    assert "in hang_in_c" in said


def test_a_second_signal_ends_a_process_that_hangs_at_once() -> None:
    with looping() as child:
        child.send_signal(signal.SIGTERM)

        def is_over() -> bool:
            child.send_signal(signal.SIGTERM)  # two signals at once may be one
            return child.poll() is not None

        eventually(is_over)
    # by the watch, or by the system where the loop had heard the first before it hung
    assert child.returncode in (128 + signal.SIGTERM, -signal.SIGTERM)


def test_the_age_of_the_last_step_grows_while_one_hangs() -> None:
    port = free_port()

    def age_s() -> float:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        name = "windhover_acker_last_step_age_seconds"
        return next(float(line.split()[1]) for line in lines if line.startswith(name))

    with looping(port=port):
        eventually(lambda: age_s() > 1.5)


def test_a_process_ends_cleanly_as_before() -> None:
    with looping(hang_at="never") as child:
        child.send_signal(signal.SIGTERM)
        _, said = child.communicate(timeout=60)
    assert child.returncode == 128 + signal.SIGTERM
    assert '"acker.stopped"' in said
    assert "hung" not in said


def test_what_takes_long_is_slow_first_and_hung_at_the_limit() -> None:
    look = StepChecks(limit_s=10, grace_s=5)
    at = LoopOperation("partition 3", 7)
    assert [look.add_time(at, 1) for _ in range(11)] == [""] * 5 + ["slow"] + [""] * 4 + ["hung"]
    assert look.operation_s == 10


def test_a_loop_that_gets_on_is_never_too_late_however_long_its_step_takes() -> None:
    look = StepChecks(limit_s=2, grace_s=5)
    found = [look.add_time(LoopOperation("restoring: contributions", number), 0.9) for number in range(100)]
    assert set(found) == {""}


def test_the_grace_begins_with_the_first_signal_and_ends_whatever_the_loop_is_at() -> None:
    look = StepChecks(limit_s=100, grace_s=3)
    assert not look.record_signal()
    assert [look.add_time(LoopOperation("x", number), 1) for number in range(3)] == ["", "", "stop"]
    assert look.record_signal()


def test_a_check_counts_for_little_however_long_nobody_could_check() -> None:
    """A process that was stopped for an hour, and goes on, has not hung."""
    now_s = [0.0]
    watch = StepWatch("acker", 60_000, 20_000, lambda *_, **__: None, clock=lambda: now_s[0])
    watch.begin_operation("partition 3")
    look = StepChecks(60, 20)
    watch.check(look)
    now_s[0] += 3_600
    watch.check(look)
    assert look.operation_s == CHECK_S_MAX
    assert watch.age_s == 3_600


def test_a_loop_goes_on_where_it_begins_an_operation_though_its_step_is_long() -> None:
    now_s, signs = [0.0], [0]

    def alive() -> None:
        signs[0] += 1

    watch = StepWatch("acker", 60_000, 20_000, print, clock=lambda: now_s[0], alive=alive)
    now_s[0] = 40.0
    assert watch.quiet_s == 40
    watch.begin_operation("restoring partition 1")
    now_s[0] = 45.0
    assert (watch.quiet_s, watch.age_s, signs) == (5, 45, [1])
    watch.record_step_end()
    assert (watch.quiet_s, watch.age_s, signs) == (0, 0, [2])


def test_who_does_not_know_the_age_of_a_step_serves_none() -> None:
    assert not list(StatusCollector("acker", lambda _: ()).collect())


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_loop_is_watched_in_a_process_with_more_files_than_select_takes() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, limits[1]), limits[1]))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    checking = set()

    def clock() -> float:
        checking.add(threading.current_thread().name)
        return time.monotonic()

    try:
        with StepWatch("acker", 60_000, 60_000, lambda event, **fields: None, clock=clock):
            eventually(lambda: "windhover-steps" in checking, 10)
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
