"""Redrives that the page carries out, each in a thread and by a client of its own.

A job is the same `Redrive` as that of ``windhover dlq replay``, with the same audit records. When the page
ends, its jobs are cancelled between two transactions. A page that is killed leaves what it has done, each
letter once; the redrive then has no end in the log, and another one handles the others.

Source: docs/operate/page.md.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.errors import UsageError, WindhoverError
from acker.kafka.port import Log
from acker.untrusted import Untrusted
from replay.handling.letter_handling import Order, RateLimit
from replay.handling.redrive import Redrive, RedriveProgress
from replay.records.letters import Filter
from spout.inspect.dead_letters import carry_out

_LOGGER = logging.getLogger("windhover.ui")

JOBS_STOP_S: Final = 10.0
"""A job that is cancelled ends within a transaction; who ends the page waits so long for all of them."""


class Actions(NamedTuple):
    """That the page may change something, for who has `token`; `by` is who does so, where nobody says it."""

    token: str
    by: str


class RedriveJob:
    """One redrive that runs here.

    Attributes:
        progress: as of its last step.
        problem: why it ended before its end; empty: it did not.
    """

    def __init__(
        self,
        open_log: Callable[[], Log],
        topics: Topics,
        meant: Sequence[tuple[Input, Filter]],
        order: Order,
        rate: float | None,
        clock: Callable[[], int],
    ) -> None:
        """Start it. `rate` is in letters a second (`UsageError`: it is none), and `clock` wall time."""
        self.inputs = frozenset(one.name for one, _ in meant)
        self.progress = RedriveProgress()
        self.problem = ""
        self._open_log, self._topics, self._meant, self._order = open_log, topics, meant, order
        self._pace, self._clock = RateLimit(rate, clock()), clock
        self._cancelled = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"redrive {order.redrive}", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def cancel(self) -> None:
        """Let it end after its present step."""
        self._cancelled.set()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            with closing(self._open_log()) as log:
                redrive = Redrive(log, self._topics, self._meant, self._order, self._pace)

                def put(progress: RedriveProgress) -> None:
                    self.progress = progress
                    if self._cancelled.is_set():
                        redrive.cancel()

                carry_out(
                    redrive,
                    clock=self._clock,
                    sleep_ms=lambda wait_ms: self._sleep(redrive, wait_ms),
                    progress=put,
                )
        except WindhoverError as error:
            self.problem = str(error)
        except Exception as error:
            self.problem = f"{type(error).__name__}: {Untrusted(str(error))}"
            _LOGGER.exception("redrive %s ended by an error that is not expected", self._order.redrive)

    def _sleep(self, redrive: Redrive, wait_ms: int) -> None:
        if self._cancelled.wait(wait_ms / 1_000):
            redrive.cancel()


class RedriveJobs:
    """The jobs of this process, by the id of the redrive."""

    def __init__(self, open_log: Callable[[], Log], topics: Topics, clock: Callable[[], int]) -> None:
        self._open_log, self._topics, self._clock = open_log, topics, clock
        self._jobs: dict[str, RedriveJob] = {}

    def start(self, meant: Sequence[tuple[Input, Filter]], order: Order, rate: float | None) -> RedriveJob:
        """Start a redrive.

        Raises:
            UsageError: one of this process handles letters of an input of `meant`; the two would fence each
                other; or the rate is none.
        """
        for name, job in self._jobs.items():
            if job.is_running and (both := job.inputs & {one.name for one, _ in meant}):
                raise UsageError(
                    f"redrive {name} handles letters of {', '.join(sorted(both))}: wait for its end, or"
                    " cancel it"
                )
        job = RedriveJob(self._open_log, self._topics, meant, order, rate, self._clock)
        self._jobs[order.redrive] = job
        return job

    def find(self, redrive: str) -> RedriveJob | None:
        return self._jobs.get(redrive)

    def is_idle(self) -> bool:
        """Return whether no redrive runs here."""
        return not any(job.is_running for job in self._jobs.values())

    def close(self) -> None:
        """Cancel all, and wait until they have written their ends."""
        for job in self._jobs.values():
            job.cancel()
        until = time.monotonic() + JOBS_STOP_S
        for job in self._jobs.values():
            job.join(max(0.0, until - time.monotonic()))
