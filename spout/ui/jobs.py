"""Redrives that the page carries out, each in a thread and by a client of its own.

A job is the same `Redrive` as that of ``windhover dlq replay``, with the same audit records. When
the page ends, its jobs are cancelled between two transactions. A page that is killed leaves what
it has done, each letter once; the redrive then has no end in the log, and another one handles the
remaining letters.

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
"""How long the end of the page waits for all jobs; a cancelled one ends after its transaction."""


class Actions(NamedTuple):
    """What the page may change something with.

    Attributes:
        token: who sends it may change something.
        by: who did so, in the audit records, where a form does not say it.
    """

    token: str
    by: str


class RedriveJob:
    """One redrive that runs in this process.

    Attributes:
        input_names: the inputs whose letters it handles.
        progress: as of its last step.
        problem: why it stopped before all letters were handled; empty: it did not.
    """

    def __init__(
        self,
        open_log: Callable[[], Log],
        topics: Topics,
        filters: Sequence[tuple[Input, Filter]],
        order: Order,
        rate: float | None,
        clock: Callable[[], int],
    ) -> None:
        """Start the thread of a redrive.

        Args:
            filters: which letters of each input live again.
            rate: letters a second; None: as fast as it can.
            clock: returns wall time in ms.

        Raises:
            UsageError: `rate` cannot be a rate.
        """
        self.input_names = frozenset(input.name for input, _filter in filters)
        self.progress = RedriveProgress()
        self.problem = ""
        self._open_log = open_log
        self._topics = topics
        self._filters = filters
        self._order = order
        self._rate_limit = RateLimit(rate, clock())
        self._clock = clock
        self._cancelled = threading.Event()
        thread_name = f"redrive {order.redrive}"
        self._thread = threading.Thread(target=self._run, name=thread_name, daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def cancel(self) -> None:
        """End the job after its present step."""
        self._cancelled.set()

    def join(self, timeout_s: float) -> None:
        """Wait until the job has ended, for `timeout_s` at most."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        """Carry the redrive out; this is all that the thread does."""
        try:
            with closing(self._open_log()) as log:
                redrive = Redrive(log, self._topics, self._filters, self._order, self._rate_limit)

                def after_step(progress: RedriveProgress) -> None:
                    self.progress = progress
                    if self._cancelled.is_set():
                        redrive.cancel()

                carry_out(
                    redrive,
                    clock=self._clock,
                    sleep_ms=lambda wait_ms: self._sleep(redrive, wait_ms),
                    progress=after_step,
                )
        except WindhoverError as error:
            self.problem = str(error)
        except Exception as error:
            self.problem = f"{type(error).__name__}: {Untrusted(str(error))}"
            text = "redrive %s ended by an error that is not expected"
            _LOGGER.exception(text, self._order.redrive)

    def _sleep(self, redrive: Redrive, wait_ms: int) -> None:
        """Sleep between two steps; if the job is cancelled meanwhile, cancel the redrive."""
        if self._cancelled.wait(wait_ms / 1_000):
            redrive.cancel()


class RedriveJobs:
    """The jobs of this process, by the id of the redrive."""

    def __init__(self, open_log: Callable[[], Log], topics: Topics, clock: Callable[[], int]) -> None:
        """Prepare; `clock` returns wall time in ms."""
        self._open_log = open_log
        self._topics = topics
        self._clock = clock
        self._jobs: dict[str, RedriveJob] = {}  # by the id of the redrive

    def start(self, filters: Sequence[tuple[Input, Filter]], order: Order, rate: float | None) -> RedriveJob:
        """Start a redrive; the arguments are those of `RedriveJob`.

        Raises:
            UsageError: a redrive of this process handles letters of one of the inputs: the two
                would fence each other. Or `rate` cannot be a rate.
        """
        input_names = {input.name for input, _filter in filters}
        for redrive, job in self._jobs.items():
            shared_names = job.input_names & input_names
            if job.is_running and shared_names:
                names = ", ".join(sorted(shared_names))
                raise UsageError(
                    f"redrive {redrive} handles letters of {names}: wait for its end, or cancel it"
                )
        job = RedriveJob(self._open_log, self._topics, filters, order, rate, self._clock)
        self._jobs[order.redrive] = job
        return job

    def find(self, redrive: str) -> RedriveJob | None:
        """Return the job of a redrive by its id; None: it has never run in this process."""
        return self._jobs.get(redrive)

    def is_idle(self) -> bool:
        """Return whether no redrive runs here."""
        return not any(job.is_running for job in self._jobs.values())

    def close(self) -> None:
        """Cancel all jobs, and wait until they have written their ends, `JOBS_STOP_S` at most."""
        for job in self._jobs.values():
            job.cancel()
        deadline_s = time.monotonic() + JOBS_STOP_S
        for job in self._jobs.values():
            job.join(max(0.0, deadline_s - time.monotonic()))
