"""Asks a Spark cluster what `spout.doctor.executors` judges, by tasks of a second or two on each executor."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Final, NamedTuple

from py4j.protocol import Py4JError
from pyspark import SparkContext, cloudpickle
from pyspark.errors import PySparkException

from acker.errors import WindhoverError
from spout.doctor import on_executor
from spout.doctor.executors import ClusterFacts, ExecutorAnswer, ExecutorTask, spark_servers
from spout.inspect.readings import Reading
from spout.local.spark_session import cluster_session
from spout.spark.private import TaskEnd, executors_of, task_ends_of

EXECUTORS_S: Final = 20.0
"""How long a cluster may take for the first executor."""

MORE_S: Final = 1.0
"""An executor may come this long after the one before it, at least; see `ExecutorWait`."""

ROUNDS: Final = 4
"""Of the first one Python starts; the second one, in warm workers, tells clocks to a part of a second."""

HOLD_S: Final = (1.0, 0.3)
ROUND_S: Final = 20.0
TASKS_MAX: Final = 256
NOTED_S: Final = 3.0
"""How long Spark may take to note where a task ran."""

SETTINGS: Final[Mapping[str, str]] = {
    "spark.task.maxFailures": "1",  # a failure belongs to the executor that it was on
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
}

Servers = Sequence[tuple[str, int]]


class _EndedTask(NamedTuple):
    """A task, and where it ran."""

    end: TaskEnd
    task: ExecutorTask


def cluster_facts(
    master: str,
    servers: Reading[Servers],
    shipped: Iterable[Path],
    wall_ms: Callable[[], int],
) -> ClusterFacts:
    """Start an application on a cluster, ask each of its executors, and end it."""
    driver = ExecutorAnswer(**on_executor.answer((), 0))
    masters = spark_servers(master)
    if masters:
        # Spark itself would look for a master that does not answer for a minute
        unreachable = on_executor.answer(masters, 0)["unreachable"]
        if len(unreachable) == len(masters):
            text = "; ".join(f"{server}: {why}" for server, why in unreachable.items())
            return ClusterFacts(master, Reading(unknown=text), driver, servers)
    try:
        session = cluster_session("windhover-doctor", master, SETTINGS)
    except (PySparkException, Py4JError, WindhoverError) as error:
        return ClusterFacts(master, Reading(unknown=_first_line(error)), driver, servers)
    try:
        for package in shipped:
            session.sparkContext.addPyFile(str(package))
        tasks = _Tasks(session.sparkContext, servers.value or (), wall_ms).ask_all()
    finally:
        session.stop()
    if not tasks:
        text = f"it gave this application no executor within {EXECUTORS_S:.0f} s"
        return ClusterFacts(master, Reading(unknown=text), driver, servers)
    count = "1 executor" if len(tasks) == 1 else f"{len(tasks)} executors"
    return ClusterFacts(master, Reading(f"gave {count}"), driver, servers, tasks)


class ExecutorWait:
    """Decides how long a cluster's executors are waited for. Times are seconds of a monotonic clock.

    The first one may take `EXECUTORS_S`. All start at once, and on busy machines they come one after another:
    so each of the others may come later than the one before by half of what the first one took.
    """

    def __init__(self, began_s: float, now_s: float) -> None:
        """Begin to wait; the application asked for executors at `began_s`."""
        self.count = 0
        self._began_s = began_s
        self._deadline_s = now_s + EXECUTORS_S
        self._pause_max_s = 0.0

    def is_over(self, executor_count: int, now_s: float) -> bool:
        """Take note of how many executors there are now, and return whether no more are waited for."""
        if executor_count > self.count:
            if self.count == 0:
                half_of_first_s = (now_s - self._began_s) / 2
                self._pause_max_s = min(max(half_of_first_s, MORE_S), EXECUTORS_S)
            self.count = executor_count
            self._deadline_s = now_s + self._pause_max_s
        return now_s >= self._deadline_s


class _Tasks:
    """Runs tasks on executors, and keeps what they answer by executor and machine."""

    def __init__(self, context: SparkContext, servers: Servers, wall_ms: Callable[[], int]) -> None:
        self._context = context
        self._servers = list(servers)
        self._wall_ms = wall_ms
        self._tasks_by_executor: dict[tuple[str, str], list[ExecutorTask]] = {}
        self._job_numbers = itertools.count(1)
        cloudpickle.register_pickle_by_value(on_executor)  # type: ignore[no-untyped-call]  # a machine may lack Windhover

    def ask_all(self) -> Mapping[tuple[str, str], Sequence[ExecutorTask]]:
        """Ask every executor, as far as its cores are free; empty: the cluster gave no executor.

        Each task is a job of its own, so that one that fails ends no other. There are as many at once as
        the cluster has cores, and each keeps its core for a while: so each executor gets one.
        """
        with ThreadPoolExecutor(TASKS_MAX) as pool:
            # with dynamic allocation no executor comes without a job
            first_task = pool.submit(self._run_task, 0.0)
            if not self._wait_for_executors():
                self._context.cancelAllJobs()
                return {}
            self._collect([first_task])
            for round_number in range(ROUNDS):
                executors = executors_of(self._context)
                for executor in executors:
                    self._tasks_by_executor.setdefault((executor.id, executor.host), [])
                if round_number >= len(HOLD_S) and all(self._tasks_by_executor.values()):
                    break
                core_count = sum(executor.cores for executor in executors)
                task_count = max(1, min(TASKS_MAX, core_count))
                hold_s = HOLD_S[min(round_number, len(HOLD_S) - 1)]
                self._collect([pool.submit(self._run_task, hold_s) for _ in range(task_count)])
        return self._tasks_by_executor

    def _wait_for_executors(self) -> bool:
        """Wait for the first executor, and for those that come soon after it; return whether any came."""
        age_s = (self._wall_ms() - self._context.startTime) / 1000
        executor_wait = ExecutorWait(time.monotonic() - age_s, time.monotonic())
        while not executor_wait.is_over(len(executors_of(self._context)), time.monotonic()):
            time.sleep(0.1)
        return executor_wait.count > 0

    def _collect(self, sent: Sequence[Future[_EndedTask | None]]) -> None:
        """Wait for tasks, and keep their answers; a task that does not end in time is cancelled."""
        _, running = wait(sent, ROUND_S)
        if running:
            self._context.cancelAllJobs()
        for future in sent:
            ended = future.result()
            if ended is not None:
                executor = (ended.end.executor, ended.end.host)
                self._tasks_by_executor.setdefault(executor, []).append(ended.task)

    def _run_task(self, hold_s: float) -> _EndedTask | None:
        """Run one task, which keeps its core for `hold_s`; None: it was on no executor."""
        job_group = f"windhover-doctor-{next(self._job_numbers)}"
        # the task takes along these two, and not this object
        servers = self._servers
        answer_question = on_executor.answer
        self._context.setJobGroup(job_group, "what each executor has", interruptOnCancel=True)
        answer = None
        error = ""
        sent_ms = self._wall_ms()
        try:
            one_partition = self._context.parallelize([0], 1)
            [fields] = one_partition.map(lambda _: answer_question(servers, hold_s)).collect()
            answer = ExecutorAnswer(**fields)
        except (PySparkException, Py4JError) as raised:
            error = str(raised)
        received_ms = self._wall_ms()
        end = self._task_end(job_group)
        if end is None:
            return None
        return _EndedTask(end, ExecutorTask(sent_ms, received_ms, answer, end.error or error))

    def _task_end(self, job_group: str) -> TaskEnd | None:
        """Wait until Spark has noted where the task of a job group ran; None: it does not know in time."""
        deadline_s = time.monotonic() + NOTED_S
        tracker = self._context.statusTracker()
        while time.monotonic() < deadline_s:
            for job in tracker.getJobIdsForGroup(job_group):
                job_info = tracker.getJobInfo(job)
                for stage in job_info.stageIds if job_info else ():
                    task_ends = task_ends_of(self._context, stage)
                    if task_ends:
                        return task_ends[0]
            time.sleep(0.05)
        return None


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
