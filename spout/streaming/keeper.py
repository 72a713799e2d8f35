"""A thread of the driver that serves its planning processes as long as the SparkContext lives.

It makes the application's folder again where a cleaner of temporary files has removed it, and
lets Spark run a first task for a planning process that asks for workers. It tells a process the
trigger of its query, if it asks for that, and opens the store for one that asks whether it may
take a group that is written exactly once. The planning process emits nothing before: a root's
timeout begins when it is emitted, and Spark may look for executors, or start Python on a busy
machine, for minutes.

Source: docs/design/protocol.md, section 5.1 ("Planning").
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pyspark import InheritableThread

from spout.link.planner_link import EpochQuestion, PlannerLink
from spout.spark.connect_back import SPARK_ERRORS, RunningQuery, SlowStarts, tried_twice
from spout.spark.threads import leave_sigint_to_the_main_thread
from spout.streaming.query_plan import trigger_of_reader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_LOGGER = logging.getLogger("windhover.spout")

KEEP_EVERY_S = 0.1
"""How often the thread looks: for one file, which nobody notices."""

QUERIES_EVERY_S = 1.0
"""How often it asks Spark for the queries that run: some calls of the JVM; a slow start takes
10 s."""

_JOB = "windhover: waits for Spark's first worker"


class Folder(Protocol):
    """The folder of the application."""

    def restore(self) -> bool:
        """Make the folder again if it is gone.

        Return whether it is there. False: it is removed for good.
        """


class KeptStream(NamedTuple):
    """The link of a stream, the session in which its query runs, and the id that its plan shows."""

    link: PlannerLink
    session: SparkSession
    id: str = ""


class Keeper:
    """Serves the streams of one application."""

    def __init__(
        self,
        folder: Folder,
        streams: Callable[[], Sequence[KeptStream]],
        start_worker: Callable[[SparkSession], None] | None = None,
    ) -> None:
        """Serve nothing yet; `run` or `step` does.

        Args:
            folder: the application's.
            streams: returns the streams that are served now.
            start_worker: runs a first task of Spark, and returns when it has ended; None:
                `start_a_worker`.
        """
        self._folder = folder
        self._streams = streams
        self._start_worker = start_worker or start_a_worker
        # ids of the planning processes for which a first task has run, or is being run
        self._processes_with_worker: set[str] = set()
        # ids of those for which a store is open, or is being opened
        self._processes_with_grant: set[str] = set()
        self._has_warned_of_folder = False  # it cannot be restored
        self._has_warned_of_threads = False  # none can be started
        self._slow_starts = SlowStarts()

    def run(self, is_over: Callable[[], bool]) -> None:
        """Serve until the SparkContext has ended, in a thread of its own."""

        def serve() -> None:
            """Step every `KEEP_EVERY_S`, and check for slow starts every `QUERIES_EVERY_S`."""
            leave_sigint_to_the_main_thread()
            next_check_s = time.monotonic()
            while not is_over():
                self.step()
                if time.monotonic() >= next_check_s:
                    self.log_slow_starts()
                    next_check_s = time.monotonic() + QUERIES_EVERY_S
                time.sleep(KEEP_EVERY_S)

        threading.Thread(target=serve, name="windhover-keeper", daemon=True).start()

    def step(self) -> None:
        """Make the folder again if it is gone, and answer the processes that ask for something."""
        try:
            if not self._folder.restore():
                return
            self._has_warned_of_folder = False
        except OSError as error:
            if not self._has_warned_of_folder:  # once: the next step tries again
                _LOGGER.warning("folder_cannot_be_restored: %s", error)
            self._has_warned_of_folder = True
        for stream in self._streams():
            for process in stream.link.processes_waiting_for_workers():
                if process not in self._processes_with_worker:
                    self._start_worker_for(stream, process)
            for process in stream.link.processes_waiting_for_trigger():
                self._answer_trigger(stream, process)
            for question in stream.link.epoch_questions():
                if question.process not in self._processes_with_grant:
                    self._start_grant(stream.link, question)

    def _answer_trigger(self, stream: KeptStream, process: str) -> None:
        """Send a planning process its query's trigger, if Spark has the query by now.

        If not, the next step tries again.
        """
        try:
            trigger = trigger_of_reader(stream.session, stream.id)
        except (*SPARK_ERRORS, ConnectionError) as error:  # the JVM ends, or the query does
            _LOGGER.debug("the trigger of stream %s cannot be asked for: %s", stream.id, error)
            return
        if trigger:
            stream.link.put_trigger(process, trigger)

    def _start_worker_for(self, stream: KeptStream, process: str) -> None:
        """Start a thread that runs a first task for a planning process.

        In a thread, since Spark may need minutes to start its first worker.
        """
        self._processes_with_worker.add(process)
        try:
            # Spark's kind of thread: it gives its connection to the JVM back
            InheritableThread(target=self._run_first_task, args=(stream, process), daemon=True).start()
        except RuntimeError as error:  # no thread: the process waits no longer, and plans
            _LOGGER.warning("no_worker_started: %s", error)
            stream.link.answer_that_workers_run(process)

    def _start_grant(self, link: PlannerLink, question: EpochQuestion) -> None:
        """Start a thread that opens a store, and sends the epoch that this grants to a process.

        In a thread, since the store may not answer for a minute.
        """
        self._processes_with_grant.add(question.process)
        opening_thread = threading.Thread(
            target=link.grant_epoch, args=(question,), name="windhover-opens-store", daemon=True
        )
        try:
            opening_thread.start()
        except RuntimeError as error:  # no thread: the next step tries again
            self._processes_with_grant.discard(question.process)
            if not self._has_warned_of_threads:
                _LOGGER.warning("store_not_opened group=%s: %s", link.group, error)
            self._has_warned_of_threads = True

    def log_slow_starts(self) -> None:
        """Log the queries that have ended since the last call because Python started too slowly."""
        # several streams may be of one session
        sessions = {id(stream.session): stream.session for stream in self._streams()}
        try:
            active_queries: list[RunningQuery] = []
            for session in sessions.values():
                active_queries += session.streams.active
            self._slow_starts.log_ended(active_queries)
        except (*SPARK_ERRORS, ConnectionError) as error:  # the JVM ends
            _LOGGER.debug("the queries cannot be listed: %s", error)

    def _run_first_task(self, stream: KeptStream, process: str) -> None:
        """Run a first task of Spark for a planning process, and answer it.

        It is answered that Spark has workers, even if the task failed.
        """
        try:
            tried_twice("starting a first worker", lambda: self._start_worker(stream.session))
        except SPARK_ERRORS as error:
            # the query's own tasks will fail by the same, and Spark says it there
            _LOGGER.warning("no_worker_started: %s", str(error).partition("\n")[0])
        finally:
            # in any case: without an answer the query would emit nothing for ten minutes
            stream.link.answer_that_workers_run(process)


def start_a_worker(session: SparkSession) -> None:
    """Run one task of Spark in Python, and wait for its end; it imports what a read task needs."""
    session.sparkContext.setJobDescription(_JOB)
    session.range(0, 1, 1, 1).mapInArrow(_import_reading, "id long").collect()


def _import_reading(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Import what a read task needs, and yield the rows as they are."""
    import spout.streaming.read_task  # noqa: F401 - a read task imports it, for a second on a busy machine

    yield from batches
