"""The streaming source as Spark sees it: a thin shell around the planner, with one thread and one lock.

Spark's source runner calls `latestOffset`, `partitions` and the others one after another in one thread. A
second thread, a daemon, reads verdicts, ticks and commits all the time, since the session clock must move
while a batch runs. The first callback with a session starts it; for a batch that runs again after a crash
that is `partitions`. An error in the thread is raised by the next `latestOffset`, so that the query fails.

The reader is pickled for the workers that read; only its options go with it.

Source: docs/design/protocol.md, section 5.1.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from acker.config.settings import longest_unreachable_ms
from acker.errors import UsageError, WindhoverError
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
from spout.streaming.options import SourceOptions, batch_tasks, planner_spec, tasks_now

if TYPE_CHECKING:
    import pyarrow as pa

POLL_MS = 50
"""How long the thread waits for verdicts before it checks the clock again."""

IDLE_POLL_MS = TICK_EVERY_MS
"""The same where nothing is pending: the session's clock stands still, and a tick may come so long after the
first Init, as after any other tick.
"""

DRIVER_WAIT_MS = 1_000
"""How long a callback waits for the driver before it looks at the clock again; a message wakes it at once."""

IDLE_MS = 50
"""How long `latestOffset` waits when there is nothing to do: with the default trigger Spark calls again at
once.
"""

ASKING_SECONDS = 1.0
"""So long `latestOffset` asks for the ends of all partitions when it is called; then it waits until a record
comes. Not sooner: see `Arrivals.wait`.
"""

ARRIVAL_MS = 500
"""How long it waits then, before it returns to Spark, which may want to end the query. Each return costs some
1 ms of CPU."""

ENDING_MS_MAX = 600_000
"""How long Spark gets no batches while somebody ends the query, at most; that process may have died."""

WORKERS_MS_MAX = 600_000
"""How long the first batch waits for Spark's first task, at most: then timeouts may run."""

STATUS_EVERY_MS = 250

JOIN_SECONDS = 5.0

_LOGGER = logging.getLogger("windhover.spout")


class WindhoverSource(DataSource):
    """The data source ``windhover``; `spout.read_stream` registers a class of its own for each stream."""

    FORMAT: ClassVar[str] = "windhover"
    source_options: ClassVar[SourceOptions | None] = None
    session: ClassVar[int] = 1

    @classmethod
    def of(cls, options: SourceOptions, session: int) -> type[WindhoverSource]:
        """Return a subclass with options; it is pickled as a whole, since no module defines it.

        It is for one Spark `session`, numbered from 1: a format name is registered in only one session.
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

    def __init__(self, task: ReadTask, *, again: bool) -> None:
        self.task = task
        self.again = again


class WindhoverReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader: in the planning process its callbacks plan, in a worker `read` reads."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._runner: Runner | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Drop the runner: workers only read."""
        return {"_options": self._options, "_runner": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the offset before the first batch, which has no session."""
        return BEGINNING.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit that `maxOffsetsPerTrigger` sets."""
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read the inputs and their replays up to the ends that they have now."""
        self._running().stop_at_ends()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        """Plan the next batch and return its end; `start` itself when there is nothing to do."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        begin = journal_of(start)
        end = self._running().plan(begin, most)
        return start if end == begin else end.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[SparkTask]:
        """Return the tasks of the batch between two offsets: a pure function of them."""
        last = journal_of(end)
        again = self._running().begin_again(last)
        return [SparkTask(task, again=again) for task in batch_tasks(self._options, journal_of(start), last)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from spout.streaming.read_task import read

        if not isinstance(partition, SparkTask):
            raise TypeError(f"the source was given a {type(partition).__name__} to read, not its own task")
        return read(partition.task, self._options, again=partition.again)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: offsets are committed when their records are settled, not when a batch has ended."""

    def stop(self) -> None:
        """Commit what is settled, and leave the group."""
        if self._runner is not None:
            self._runner.stop()

    def _running(self) -> Runner:
        if self._runner is None:
            self._runner = Runner(self._options)
        return self._runner


class Runner:
    """Drives a planner: a daemon thread steps it, Spark's callbacks plan with it, under one lock."""

    def __init__(
        self,
        options: SourceOptions,
        planner: Planner | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Connect to Kafka; the first callback with a session starts the thread."""
        self._options = options
        self._log = KafkaLog(options.topics.kafka, client_id=f"windhover-spout-{options.group}")
        self._planner = planner or Planner(
            self._log,
            planner_spec(options),
            new_id=uuid.uuid4().hex[:16],
            report=_report,
            who=Who.here(options.application, _now_ms()),
        )
        self._lock = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="windhover-planner", daemon=True)
        self._error: BaseException | None = None
        self._driver = DriverLink(
            options.driver,
            Hello(options.stream, uuid.uuid4().hex[:16]),
            options.group,
            mark_path(Path(options.sink_folder), options.stream) if options.sink_folder else None,
        )
        self._driver.start()
        self._sink = SinkWatch(self._driver, durable_ms=longest_unreachable_ms(options.read))
        self._stops_at_ends = False
        self._published_ms = 0
        self._has_planned = False
        self._has_workers = not options.awaits_workers
        self._clock_s = clock_s
        self._idle_since: float | None = None

    def begin_again(self, journal: Journal) -> bool:
        """Begin; return whether another process had planned the batch, and mark the batch if so."""
        self._driver.require()
        if not self._planner.is_open:
            self._wait_for_workers()  # first: the clock of its roots moves when the group is taken
        self.begin(journal, runs_again=not self._has_planned)
        if not self._has_planned:
            self._driver.put_again(journal.session, journal.ranges)
        return not self._has_planned

    def begin(self, journal: Journal, *, runs_again: bool = False) -> None:
        """Take the group for the session of an offset, unless that is done already; see `Planner.open`."""
        with self._lock:
            if self._planner.is_open or self._error is not None:
                return
            try:
                self._planner.open(journal, _now_ms(), runs_again=runs_again)
            except WindhoverError as error:
                self._error = error
                raise
            self._thread.start()

    def stop_at_ends(self) -> None:
        """End the query when everything up to the present ends is read and settled."""
        self._stops_at_ends = True
        self._planner.stop_at_ends()

    def plan(self, start: Journal, limit: int | None) -> Journal:
        """Plan the next batch; before the first one, wait until the ackers are ready."""
        self._driver.require()
        self._driver.catch_up()
        if start.session:
            self._wait_for_workers()  # first: the clock of open roots moves when the group is taken
        self.begin(start)
        self._has_planned = True
        self._driver.drop_again()
        if self._stays_idle():
            return start
        self._wait_for_workers()
        with self._lock:
            while not self._planner.is_ready:
                self._wait(POLL_MS)
        self._wait_for_sink(start)  # without the lock: the thread goes on meanwhile
        with self._lock:
            self._note_held()
            if (damage := self._sink.damage()) is not None:
                self._error = damage
                self._publish(_now_ms(), force=True)
                self._raise_error()
            if self._sink.not_acked is not None:
                self._planner.note_published(start, self._sink.not_acked)
                self._sink.not_acked = None
            end = self._plan(start, limit)
            if end == start and self._stops_at_ends:
                end = self._plan_last(start, limit)
            elif end == start:
                self._wait(IDLE_MS)
                end = self._plan(start, limit)
            if end != start:
                self._idle_since = None
                self._sink.planned(end)
            elif self._idle_since is None:
                self._idle_since = self._clock_s()
            if end == start and not self._stops_at_ends:
                self._planner.note_nothing_to_plan(_now_ms())
            return end

    def _wait_for_workers(self) -> None:
        """Wait until Spark has run a task since this process began: what is emitted before would only age."""
        if self._has_workers:
            return
        event, wait = "waits_for_workers", LongWait()
        wait.look(event, self._clock_ms())
        while wait.waited_ms(self._clock_ms()) < WORKERS_MS_MAX:
            changes = self._driver.changes
            if self._driver.has_workers:
                break
            self._driver.ask_for_workers()
            self._wait_for_driver(changes)
            self._say(
                wait,
                event,
                "Spark has run no task yet. Nothing is emitted and no timeout runs; see in Spark's UI whether"
                " it has executors, and what they do",
            )
        self._has_workers = True

    def _clock_ms(self) -> int:
        return int(self._clock_s() * 1000)

    def _say(self, wait: LongWait, event: str, text: str) -> None:
        """Note that this process waits; write it each minute, with what helps."""
        waited_ms = wait.look(event, self._clock_ms())
        if waited_ms is not None:
            waited_s = waited_ms // 1000
            _LOGGER.warning("%s group=%s waited_s=%d: %s", event, self._options.group, waited_s, text)

    def _stays_idle(self) -> bool:
        """Wait for a record where there was nothing to plan for a while; return whether none came."""
        if self._idle_since is None or self._clock_s() - self._idle_since < ASKING_SECONDS:
            return False
        if self._stops_at_ends or self._driver.is_inactive:
            return False
        if self._planner.wait_for_records(ARRIVAL_MS):  # without the lock: the thread goes on meanwhile
            self._idle_since = None
            return False
        self._raise_error()
        return True

    def _plan_last(self, start: Journal, limit: int | None) -> Journal:
        """Wait for a replay to plan, or until nothing is pending or due; then the query ends.

        Spark kills this process when the query ends, so the last status is written here.
        """
        end = start
        while end == start and not self._planner.is_drained():
            self._wait(IDLE_MS)
            end = self._plan(start, limit)
        if end == start:
            self._planner.leave()
            self._publish(_now_ms(), force=True)
        return end

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(JOIN_SECONDS)
        if self._lock.acquire(timeout=JOIN_SECONDS):
            try:
                if self._planner.is_open and not self._thread.is_alive():
                    self._planner.close()
                self._publish(_now_ms())
            finally:
                self._lock.release()
        else:
            _LOGGER.warning("planner_not_closed group=%s: its thread hangs", self._options.group)
        self._driver.close()
        self._log.close()

    def _plan(self, start: Journal, limit: int | None) -> Journal:
        self._raise_error()
        if self._driver.is_inactive:
            self._driver.put_idle()
            deadline_ms, wait = self._clock_ms() + ENDING_MS_MAX, LongWait()
            while self._driver.is_for_good and self._clock_ms() < deadline_ms:
                self._wait(IDLE_MS)
                self._driver.put_idle()  # also in a pause that began meanwhile
                self._say(wait, "waits_for_its_end", "the driver ends the query; no batch is planned")
            return start
        return self._planner.plan(start, limit, _now_ms(), tasks_now(self._options, self._driver.cores))

    def _wait_for_sink(self, start: Journal) -> None:
        """Wait until the batch that ends at `start` is published; `TrackingError` if it was not."""
        late_at, wait = time.monotonic() + self._sink.late_ms / 1000, LongWait()
        changes = self._driver.changes  # before the look: what is said after it ends the wait
        while (failure := self._sink.failure()) or self._sink.is_owed(start):
            left_s = late_at - time.monotonic()
            if failure or left_s <= 0:
                with self._lock:
                    self._error = failure or self._sink.refusal()
                    self._publish(_now_ms(), force=True)
            self._wait_for_driver(changes, int(left_s * 1000) + 1)
            changes = self._driver.changes
            self._say(
                wait,
                "waits_for_publication",
                "Spark has ended a batch, and the driver has not published yet what it acked and failed; see"
                " the driver's log, and whether the broker answers",
            )

    def _note_held(self) -> None:
        """Let the planner know when a batch is published, where Spark's state may hold some of it."""
        batch = self._planner.under_way
        published = None if batch is None else self._driver.published(batch.session, batch.ranges)
        if published is not None:
            self._planner.note_held(published.held)

    def _wait_for_driver(self, changes: int, wait_ms: int = DRIVER_WAIT_MS) -> None:
        """Wait until the driver says more than it had at `changes`; do not hold the lock."""
        self._raise_error()
        self._driver.wait(changes, min(wait_ms, DRIVER_WAIT_MS))
        self._raise_error()

    def _wait(self, wait_ms: int) -> None:
        self._raise_error()
        self._lock.wait(wait_ms / 1000)
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _loop(self) -> None:
        """Step the planner; keep an error that ends the loop for the next callback."""
        try:
            while not self._stopping.is_set():
                wait_ms = IDLE_POLL_MS if self._planner.is_idle else POLL_MS
                records = self._planner.poll(wait_ms)
                if not self._planner.is_reading:
                    self._stopping.wait(wait_ms / 1000)
                with self._lock:
                    now_ms = _now_ms()
                    if not self._stopping.is_set():
                        self._note_held()
                        self._planner.step(records, now_ms)
                    self._publish(now_ms)
                    self._driver.keep_mark()
                    self._lock.notify_all()
        except BaseException as error:  # noqa: BLE001 - a thread's top: it surfaces at the next latestOffset
            with self._lock:
                self._error = error
                _LOGGER.error("planner stopped: %s", error)
                self._publish(_now_ms(), force=True)
                self._lock.notify_all()
            self._driver.wake()

    def _publish(self, now_ms: int, *, force: bool = False) -> None:
        """Write the status file, at most every `STATUS_EVERY_MS` unless `force`.

        A driver that ends the query once nothing is pending reads this status, and then Spark kills this
        process; so the settled offsets are committed before.
        """
        path = self._options.status_path
        if path is None or (not force and 0 <= now_ms - self._published_ms < STATUS_EVERY_MS):
            return
        self._published_ms = now_ms
        status = self._planner.status(now_ms, str(self._error or ""))
        if status.state == "running" and not status.pending and self._driver.is_inactive:
            self._planner.leave()
        try:
            write_status(Path(path), status)
        except OSError as error:
            if Path(self._options.sink_folder).is_dir():  # a driver that has ended has removed it
                _LOGGER.warning("the status file cannot be written: %s", error)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _report(event: str, fields: Mapping[str, object]) -> None:
    levels = {
        "batch_over_timeout": logging.ERROR,
        "partition_stands": logging.ERROR,
        "session_began": logging.INFO,
    }
    level = levels.get(event, logging.WARNING)
    _LOGGER.log(level, "%s %s", event, " ".join(f"{name}={value}" for name, value in fields.items()))
