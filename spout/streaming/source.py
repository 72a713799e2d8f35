"""The streaming source as Spark sees it: a shell around the planner, with a thread and a lock.

Spark's source runner calls `latestOffset`, `partitions` and the others one after another in one
thread. A second thread, a daemon, reads verdicts, ticks and commits all the time, since the
session clock must move while a batch runs. The first callback with a session starts it; for a
batch that runs again after a crash that is `partitions`. An error in the thread is raised by
the next `latestOffset`, so that the query fails.

The reader is pickled for the workers that read; only its options go with it.

A batch is *published* once the driver has written what the batch acked and failed; the driver
tells this process so over their link. A batch *runs again* if the process that planned it has
ended in it.

Source: docs/design/protocol.md, section 5.1.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from acker.config.settings import longest_unreachable_ms
from acker.errors import SessionRefused, Unreachable, UsageError, WindhoverError
from acker.kafka.cluster import KafkaLog
from acker.waits import LongWait
from spout.group.presence import Who
from spout.link.driver_link import DriverLink
from spout.link.messages import Hello, mark_path
from spout.planning.journal import BEGINNING, Journal, journal_of
from spout.planning.plan import ReadTask
from spout.planning_process.planner import TICK_EVERY_MS, Planner
from spout.planning_process.sink_watch import SinkWatch
from spout.planning_process.status import write_status
from spout.spark.planning_calls import Offset
from spout.spark.planning_reader import PlanningReader
from spout.streaming.options import SourceOptions, batch_tasks, planner_spec, tasks_now

if TYPE_CHECKING:
    import pyarrow as pa

POLL_MS = 50
"""How long the thread waits for verdicts before it checks the clock again."""

IDLE_POLL_MS = TICK_EVERY_MS
"""How long it waits where nothing is pending: then the session's clock stands still. The first
tick may come this long after the first Init, as it may come this long after any other tick.
"""

DRIVER_WAIT_MS = 1_000
"""How long a callback waits for the driver before it looks at the clock again; a message wakes
it at once."""

IDLE_MS = 50
"""How long `latestOffset` waits when there is nothing to do: with the default trigger Spark
calls again at once.
"""

ASKING_SECONDS = 1.0
"""After the last batch `latestOffset` asks for the ends of all partitions for this long, at
each call. After that it waits until a record comes (`Arrivals.wait` has the reason for not
doing so at once).
"""

ARRIVAL_MS = 500
"""How long `latestOffset` waits for a record before it returns to Spark, which may want to end
the query. Each return costs some 1 ms of CPU."""

ENDING_MS_MAX = 600_000
"""How long Spark gets no batches while somebody ends the query, at most; that process may have
died."""

WORKERS_MS_MAX = 600_000
"""How long the first batch waits for Spark's first task, at most: then timeouts may run."""

STORE_MS_MAX = 600_000
"""How long a process waits until the driver has opened the store, at most; each call to a store has
a shorter limit of its own."""

TRIGGER_MS_MAX = 60_000
"""How long a process waits until the driver has said its query's trigger, at most."""

STATUS_EVERY_MS = 250
"""The status file is written at most this often."""

JOIN_SECONDS = 5.0
"""How long `stop` waits for the thread to end, and then for the lock."""

_LOGGER = logging.getLogger("windhover.spout")


class WindhoverSource(DataSource):
    """The data source ``windhover``.

    `spout.read_stream` registers a class of its own for each stream.
    """

    FORMAT: ClassVar[str] = "windhover"
    source_options: ClassVar[SourceOptions | None] = None
    session: ClassVar[int] = 1

    @classmethod
    def of(cls, options: SourceOptions, session: int) -> type[WindhoverSource]:
        """Return a subclass with options; it is pickled as a whole, since no module defines it.

        It is for one Spark `session`, numbered from 1: a format name is registered in only one
        session.
        """
        return type(cls.__name__, (cls,), {"source_options": options, "session": session})

    @classmethod
    def name(cls) -> str:
        return cls.FORMAT if cls.session == 1 else f"{cls.FORMAT}_{cls.session}"

    def schema(self) -> str | StructType:
        return self._source_options.schema

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Create the reader; Spark creates one in the planning process and one for the workers."""
        return WindhoverReader(self._source_options)

    @property
    def _source_options(self) -> SourceOptions:
        if self.source_options is None:
            raise UsageError(
                'format("windhover") is built by spout.read_stream(spark, topics, "input"); call that'
            )
        return self.source_options


class SparkTask(InputPartition):
    """A read task as the type that Spark requires."""

    def __init__(self, task: ReadTask, *, runs_again: bool) -> None:
        """Keep a task.

        `runs_again`: another process planned its batch, and the query ended in that.
        """
        self.task = task
        self.runs_again = runs_again


class WindhoverReader(PlanningReader):
    """The reader: in the planning process its callbacks plan, in a worker `read` reads."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._runner: Runner | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Drop the runner: workers only read."""
        return {"_options": self._options, "_runner": None}

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the offset before the first batch; it has no session."""
        return BEGINNING.to_json()

    @property
    def rows_max(self) -> int | None:
        """How many records a batch may have (`maxOffsetsPerTrigger`); None: any number."""
        return self._options.max_offsets_per_trigger

    def stop_at_ends(self) -> None:
        """Read the inputs and their replays up to the ends that they have now."""
        self._running().stop_at_ends()

    def plan_batch(self, start: Offset, rows_max: int | None) -> Offset:
        """Plan the next batch and return its end.

        Returns `start` itself where no batch is planned: Spark takes an equal offset for no batch.
        """
        start_journal = journal_of(start)
        end_journal = self._running().plan(start_journal, rows_max)
        if end_journal == start_journal:
            return start
        return end_journal.to_json()

    def tasks_of_batch(self, start: Offset, end: Offset) -> Sequence[SparkTask]:
        """Take the group for the batch between two offsets, and return its tasks.

        The tasks are a pure function of the offsets: they come again where the batch runs again.
        """
        start_journal = journal_of(start)
        end_journal = journal_of(end)
        runs_again = self._running().begin_batch(end_journal)
        tasks = batch_tasks(self._options, start_journal, end_journal)
        return [SparkTask(task, runs_again=runs_again) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a task's records in a worker; return the rows that its bolts emit."""
        # a worker imports this; the planning process, which pickles the reader, needs none of it
        from spout.streaming.read_task import read

        if not isinstance(partition, SparkTask):
            raise TypeError(f"the source was given a {type(partition).__name__} to read, not its own task")
        return read(partition.task, self._options, runs_again=partition.runs_again)

    def commit(self, end: Offset) -> None:
        """Do nothing: offsets are committed when their records are settled, not when a batch ends."""

    def stop(self) -> None:
        """Commit what is settled, and leave the group."""
        if self._runner is not None:
            self._runner.stop()

    def _running(self) -> Runner:
        """Return the runner, which the first call creates."""
        if self._runner is None:
            # untracked records have nothing that a query could end too early for
            refused_triggers = self.refused_triggers if self._options.tracked else {}
            self._runner = Runner(self._options, refused_triggers=refused_triggers)
        return self._runner


class Runner:
    """Drives a planner, under one lock: a daemon thread steps it, Spark's callbacks plan with it."""

    def __init__(
        self,
        options: SourceOptions,
        planner: Planner | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        refused_triggers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Connect to Kafka; the first callback with a session starts the thread.

        `refused_triggers`: as `PlanningCalls` has them.
        """
        self._options = options
        self._kafka_log = KafkaLog(
            options.topics.kafka,
            client_id=f"windhover-spout-{options.group}",
        )
        self._planner = planner or Planner(
            self._kafka_log,
            planner_spec(options),
            new_id=uuid.uuid4().hex[:16],
            report=_report,
            who=Who.here(options.application, _now_ms()),
        )
        # guards the planner and what is kept here; notified after each step of the thread
        self._condition = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run_planner, name="windhover-planner", daemon=True)
        self._error: BaseException | None = None  # ends the query at the next callback
        # a file that exists while a batch runs again; None: there is no folder for it
        mark = mark_path(Path(options.sink_folder), options.stream) if options.sink_folder else None
        this_process = Hello(options.stream, uuid.uuid4().hex[:16])
        self._driver_link = DriverLink(options.driver, this_process, options.group, mark)
        self._driver_link.start()
        # how long a record of acks may take to be durable
        durable_ms = longest_unreachable_ms(options.read)
        self._sink_watch = SinkWatch(self._driver_link, durable_ms=durable_ms)
        # whether the query ends at the ends that its inputs have now (`availableNow`,
        # `spout.run_once`)
        self._stops_at_ends = False
        # of the driver's last request to end whose ends were read; 0: of none
        self._end_request_number = 0
        self._status_written_ms = 0  # wall time
        # whether `plan` was called: before, a batch that Spark runs was planned by another process
        self._was_plan_called = False
        # whether Spark has run a task since this process began
        self._has_workers = not options.awaits_workers
        self._refused_triggers = refused_triggers  # empty: none is, or the query's was looked at
        self._clock_s = clock_s
        # since when there was nothing to plan, by clock_s; None: the last call planned a batch
        self._idle_since_s: float | None = None

    def begin_batch(self, end: Journal) -> bool:
        """Take the group for a batch that Spark is about to run.

        Return whether another process had planned the batch; then the batch is marked as one
        that runs again.
        """
        self._driver_link.wait_for_state()
        self._refuse_trigger()
        if not self._planner.is_open:
            # before the group is taken: from then on the clock of the batch's roots moves
            self._wait_for_workers()
        # a process that has planned no batch gets one only where the process before has ended
        runs_again = not self._was_plan_called
        self.take_group(end, runs_again=runs_again)
        if runs_again:
            self._driver_link.report_that_it_runs_again(end.session, end.ranges)
        return runs_again

    def take_group(self, journal: Journal, *, runs_again: bool = False) -> None:
        """Take the group for the session of an offset (`Planner.open`), and start the thread.

        Does nothing where that was done before, or an error is kept.
        """
        with self._condition:
            if self._planner.is_open or self._error is not None:
                return
            try:
                grant_epoch = self._ask_for_epoch if self._driver_link.has_store else None
                now_ms = _now_ms()
                self._planner.open(journal, now_ms, runs_again=runs_again, grant_epoch=grant_epoch)
            except WindhoverError as error:
                self._error = error
                raise
            self._thread.start()

    def _ask_for_epoch(self, epoch_min: int) -> int:
        """Have the driver open the store; return the epoch that the store grants.

        It is `epoch_min` or more. Call it with the lock, which is free while this waits.

        Raises:
            SessionRefused: the store cannot be opened.
            Unreachable: the driver does not answer, or the query is being ended.
        """
        self._driver_link.ask_for_epoch(epoch_min)
        deadline_ms = self._clock_ms() + STORE_MS_MAX
        wait = LongWait()
        while not self._driver_link.granted_epoch:
            if self._driver_link.not_granted:
                raise SessionRefused(
                    f"group {self._options.group} is not taken, since its store cannot be opened:"
                    f" {self._driver_link.not_granted}"
                )
            if self._stopping.is_set() or self._clock_ms() >= deadline_ms:
                raise Unreachable(
                    f"group {self._options.group}: the driver has not opened the store within"
                    f" {wait.waited_ms(self._clock_ms()) // 1000} s; see the driver's log, and"
                    " whether the store answers"
                )
            self._condition.wait(POLL_MS / 1000)
            self._warn_of_wait(
                wait,
                "waits_for_store",
                "the driver opens the store; the group is not taken before, and nothing times out",
            )
        return self._driver_link.granted_epoch

    def stop_at_ends(self) -> None:
        """Have the query end when everything up to the present ends is read and settled."""
        self._stops_at_ends = True
        self._planner.stop_at_ends()

    def plan(self, start: Journal, rows_max: int | None) -> Journal:
        """Plan the next batch and return its end.

        Returns `start` if there is nothing to plan, or the driver is ending the query. Waits
        until the ackers are ready, and until the batch before is published. `rows_max` None: no
        limit.
        """
        # 1. take the group, once the driver has answered and tasks can run
        self._driver_link.wait_for_state()
        self._refuse_trigger()
        self._driver_link.catch_up()
        if start.session:
            # the query goes on from a checkpoint: roots may be pending. Before the group is
            # taken: from
            # then on their timeouts run
            self._wait_for_workers()
        self.take_group(start)
        self._was_plan_called = True
        self._driver_link.report_that_it_plans()
        self._stop_at_ends_if_requested()
        # 2. wait: for records, tasks, the ackers, and the publication of the batch before
        if self._waits_without_records():
            return start
        self._wait_for_workers()
        with self._condition:
            while not self._planner.is_ready:
                self._wait_for_step(POLL_MS)
        # without the lock: the thread goes on meanwhile
        self._wait_for_sink(start)
        # 3. pass on what the driver has published of that batch, and plan
        with self._condition:
            self._record_held_roots_if_published()
            self._restart_clock_if_published()
            self._end_query_for_damage()
            if self._sink_watch.not_acked is not None:
                self._planner.record_publication(start, self._sink_watch.not_acked)
                self._sink_watch.not_acked = None
            end = self._plan_or_wait(start, rows_max)
            self._record_plan(start, end)
            return end

    def _stop_at_ends_if_requested(self) -> None:
        """Read the present ends if there is a new request of the driver to end the query there."""
        end_number = self._driver_link.end_number
        if end_number <= self._end_request_number:
            return
        with self._condition:  # the thread steps the planner meanwhile
            self.stop_at_ends()
        self._end_request_number = end_number

    def _plan_or_wait(self, start: Journal, rows_max: int | None) -> Journal:
        """Plan a batch, and return its end; `start`: there is nothing to plan.

        Where there is nothing, it waits once and tries again. A query that stops at the ends
        waits until something is due or the query ends.
        """
        end = self._plan_once(start, rows_max)
        if end != start:
            return end
        if self._stops_at_ends:
            return self._plan_until_drained(start, rows_max)
        self._wait_for_step(IDLE_MS)
        return self._plan_once(start, rows_max)

    def _record_plan(self, start: Journal, end: Journal) -> None:
        """Record whether there was anything to plan: then `end` is another offset than `start`.

        The batch before `end` is one that the sink has to publish. Without a batch, this keeps
        since when there is none, and warns where verdicts are long in coming.
        """
        if end != start:
            self._idle_since_s = None
            self._sink_watch.expect(end)
            return
        if self._idle_since_s is None:
            self._idle_since_s = self._clock_s()
        if not self._stops_at_ends:
            self._planner.report_verdict_wait(_now_ms())

    def _end_query_for_damage(self) -> None:
        """Keep and raise the error of the last batch, if some of it could not be read.

        Inputs that skip such records have no error.
        """
        damage = self._sink_watch.damage_error()
        if damage is not None:
            self._error = damage
            self._write_status(_now_ms(), force=True)
            self._raise_kept_error()

    def _wait_for_workers(self) -> None:
        """Wait until Spark has run a task since this process began, for `WORKERS_MS_MAX` at most.

        What is emitted before would only age, since no worker could receive it.
        """
        if self._has_workers:
            return
        event = "waits_for_workers"
        wait = LongWait()
        wait.record_wait(event, self._clock_ms())
        while wait.waited_ms(self._clock_ms()) < WORKERS_MS_MAX:
            # read first: a message that comes after this line ends the wait below
            changes_seen = self._driver_link.changes
            if self._driver_link.has_workers:
                break
            self._driver_link.ask_for_workers()
            self._wait_for_driver(changes_seen)
            self._warn_of_wait(
                wait,
                event,
                "Spark has run no task yet. Nothing is emitted and no timeout runs; see in"
                " Spark's UI whether it has executors, and what they do",
            )
        self._has_workers = True

    def _refuse_trigger(self) -> None:
        """Raise `UsageError` if the query has one of the triggers that are refused.

        With these it would end before its records are settled. The driver, which has the query,
        is asked for the trigger; `Unreachable`: it has not answered within `TRIGGER_MS_MAX`.
        """
        if not self._refused_triggers:
            return
        wait = LongWait()
        wait.record_wait("waits_for_trigger", self._clock_ms())
        self._driver_link.ask_for_trigger()
        while not self._driver_link.trigger:
            if wait.waited_ms(self._clock_ms()) >= TRIGGER_MS_MAX:
                raise Unreachable(
                    f"group {self._options.group}: the driver has not said within"
                    f" {TRIGGER_MS_MAX // 1000} s which trigger the query has; see the driver's log"
                )
            changes_seen = self._driver_link.changes
            # once more: the answer may have come before `changes_seen` was read
            if not self._driver_link.trigger:
                self._wait_for_driver(changes_seen)
        why_refused = self._refused_triggers.get(self._driver_link.trigger)
        if why_refused is not None:
            raise UsageError(f"group {self._options.group}: {why_refused}")
        self._refused_triggers = {}

    def _clock_ms(self) -> int:
        """Return the time of `clock_s`, which is no wall time."""
        return int(self._clock_s() * 1000)

    def _warn_of_wait(self, wait: LongWait, event: str, text: str) -> None:
        """Record that a wait goes on, and log `text`, which has the cure, once a minute."""
        waited_ms = wait.record_wait(event, self._clock_ms())
        if waited_ms is not None:
            waited_s = waited_ms // 1000
            _LOGGER.warning("%s group=%s waited_s=%d: %s", event, self._options.group, waited_s, text)

    def _waits_without_records(self) -> bool:
        """Wait for a record, once there was nothing to plan for `ASKING_SECONDS`.

        Return whether none came. False: a record came, or this did not wait. Then the caller
        asks for the ends of all partitions.
        """
        if self._idle_since_s is None or self._clock_s() - self._idle_since_s < ASKING_SECONDS:
            return False
        if self._stops_at_ends or self._driver_link.is_inactive:
            return False
        # without the lock: the thread goes on meanwhile
        has_records = self._planner.wait_for_records(ARRIVAL_MS)
        if has_records:
            self._idle_since_s = None
            return False
        self._raise_kept_error()
        return True

    def _plan_until_drained(self, start: Journal, rows_max: int | None) -> Journal:
        """Wait until there is a replay to plan, and return the end of its batch.

        Returns `start` when nothing is pending or due: Spark, or the driver, ends the query.
        """
        while not self._planner.is_drained():
            self._wait_for_step(IDLE_MS)
            end = self._plan_once(start, rows_max)
            if end != start:
                return end
        # Spark kills this process now: what is settled is committed, and the status written, before
        self._planner.leave()
        self._write_status(_now_ms(), force=True)
        self._driver_link.put_drained(self._end_request_number)
        return start

    def stop(self) -> None:
        """End the thread, close the planner, and disconnect from the driver.

        Each wait has a limit.
        """
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(JOIN_SECONDS)
        # a thread that hangs may hold the lock: then the process ends without a last status
        if self._condition.acquire(timeout=JOIN_SECONDS):
            try:
                # a thread that still runs uses the planner, so it is not closed
                if self._planner.is_open and not self._thread.is_alive():
                    self._planner.close()
                # also where the thread has written one just before: this one has the closed planner
                self._write_status(_now_ms(), force=True)
            finally:
                self._condition.release()
        else:
            _LOGGER.warning("planner_not_closed group=%s: its thread hangs", self._options.group)
        self._driver_link.close()
        self._kafka_log.close()

    def _plan_once(self, start: Journal, rows_max: int | None) -> Journal:
        """Plan a batch without waiting for records; return its end, or `start`.

        Call it with the lock. No batch is planned where the driver has paused or is ending the
        query; where it ends the query, this waits for that.
        """
        self._raise_kept_error()
        if self._driver_link.is_inactive:
            self._wait_for_end_of_query()
            return start
        tasks_max = tasks_now(self._options, self._driver_link.cores)
        return self._planner.plan(start, rows_max, _now_ms(), tasks_max)

    def _wait_for_end_of_query(self) -> None:
        """Report to the driver that no batch runs; wait while it ends the query for good.

        Returns at once where the driver only pauses the query.
        """
        self._driver_link.put_idle()
        deadline_ms = self._clock_ms() + ENDING_MS_MAX
        wait = LongWait()
        # to return would let Spark run a batch without records, which the end would interrupt
        while self._driver_link.ends_for_good and self._clock_ms() < deadline_ms:
            self._wait_for_step(IDLE_MS)
            # in each round: the driver may have begun another pause, and its number is part of the
            # report
            self._driver_link.put_idle()
            self._warn_of_wait(wait, "waits_for_its_end", "the driver ends the query; no batch is planned")

    def _wait_for_sink(self, start: Journal) -> None:
        """Wait until the batch that ends at `start` is published.

        Raises `TrackingError`: it was not published within `SinkWatch.late_ms`, or the driver has
        reported why it cannot be.
        """
        deadline_s = time.monotonic() + self._sink_watch.late_ms / 1000
        wait = LongWait()
        # read first: a message that comes after this line ends the wait below
        changes_seen = self._driver_link.changes
        while True:
            failure = self._sink_watch.follower_error()
            if failure is None and not self._sink_watch.check_owed(start):
                return
            left_s = deadline_s - time.monotonic()
            if failure is not None or left_s <= 0:
                # kept, so that the status has it; `_wait_for_driver` raises it
                with self._condition:
                    self._error = failure or self._sink_watch.late_error()
                    self._write_status(_now_ms(), force=True)
            self._wait_for_driver(changes_seen, int(left_s * 1000) + 1)
            changes_seen = self._driver_link.changes
            self._warn_of_wait(
                wait,
                "waits_for_publication",
                "Spark has ended a batch, and the driver has not published yet what it acked"
                " and failed; see the driver's log, and whether the broker answers",
            )

    def _record_held_roots_if_published(self) -> None:
        """Record which roots of the batch under way Spark's state holds, once it is published.

        The driver says so then; before, nothing happens.
        """
        batch = self._planner.under_way  # the offset behind it; None: no batch is
        if batch is None:
            return
        published = self._driver_link.published(batch.session, batch.ranges)
        if published is not None:
            self._planner.record_held_roots(published.held)

    def _restart_clock_if_published(self) -> None:
        """Start the session's clock again, once a batch that goes into a store is published.

        Until then the clock stands, so that none of the batch's roots times out.
        """
        batch = self._planner.unpublished  # the offset behind it; None: no store waits for a batch
        if batch is None:
            return
        published = self._driver_link.published(batch.session, batch.ranges)
        if published is not None:
            self._planner.restart_clock(batch)

    def _wait_for_driver(self, changes_seen: int, wait_ms: int = DRIVER_WAIT_MS) -> None:
        """Wait for a change beyond the `changes_seen` of the driver, for `DRIVER_WAIT_MS` at most.

        Call it without the lock. Raises the error that is kept.
        """
        self._raise_kept_error()
        self._driver_link.wait(changes_seen, min(wait_ms, DRIVER_WAIT_MS))
        self._raise_kept_error()

    def _wait_for_step(self, wait_ms: int) -> None:
        """Wait for a step of the thread, for `wait_ms` at most, and raise the error that is kept.

        Call it with the lock, which is free meanwhile.
        """
        self._raise_kept_error()
        self._condition.wait(wait_ms / 1000)
        self._raise_kept_error()

    def _raise_kept_error(self) -> None:
        """Raise what ended the thread, or what is to end the query."""
        if self._error is not None:
            raise self._error

    def _run_planner(self) -> None:
        """Step the planner until `stop`; this is what the thread runs.

        An error that ends it is kept for the next callback.
        """
        try:
            while not self._stopping.is_set():
                wait_ms = IDLE_POLL_MS if self._planner.is_idle else POLL_MS
                verdict_records = self._planner.poll(wait_ms)
                if not self._planner.is_reading:
                    # then `poll` returned at once
                    self._stopping.wait(wait_ms / 1000)
                with self._condition:
                    now_ms = _now_ms()
                    if not self._stopping.is_set():
                        self._record_held_roots_if_published()
                        self._restart_clock_if_published()
                        self._planner.step(verdict_records, now_ms)
                    self._write_status(now_ms)
                    self._driver_link.keep_mark()
                    self._condition.notify_all()
        except BaseException as error:  # noqa: BLE001 - a thread's top: it surfaces at the next latestOffset
            with self._condition:
                self._error = error
                _LOGGER.error("planner stopped: %s", error)
                self._write_status(_now_ms(), force=True)
                self._condition.notify_all()
            self._driver_link.wake()

    def _write_status(self, now_ms: int, *, force: bool = False) -> None:
        """Write the status file, at most every `STATUS_EVERY_MS` unless `force`.

        A driver that ends the query once nothing is pending reads this status, and then Spark
        kills this process; so the settled offsets are committed before.
        """
        path = self._options.status_path
        if path is None:
            return
        # negative where the wall clock was set back: then it is written, and counts anew
        is_recent = 0 <= now_ms - self._status_written_ms < STATUS_EVERY_MS
        if is_recent and not force:
            return
        self._status_written_ms = now_ms
        status = self._planner.status(now_ms, str(self._error or ""))
        if status.state == "running" and not status.pending and self._driver_link.is_inactive:
            self._planner.leave()
        try:
            write_status(Path(path), status)
        except OSError as error:
            if Path(self._options.sink_folder).is_dir():  # a driver that has ended has removed it
                _LOGGER.warning("the status file cannot be written: %s", error)


def _now_ms() -> int:
    """Return the wall time."""
    return time.time_ns() // 1_000_000


def _report(event: str, fields: Mapping[str, object]) -> None:
    """Log an event of the planner: its name first, then its fields."""
    levels = {
        "batch_over_timeout": logging.ERROR,
        "partition_stands": logging.ERROR,
        "session_began": logging.INFO,
    }
    level = levels.get(event, logging.WARNING)
    fields_text = " ".join(f"{name}={value}" for name, value in fields.items())
    _LOGGER.log(level, "%s %s", event, fields_text)
