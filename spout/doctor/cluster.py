"""Asks each executor of a Spark cluster, by short tasks, what `spout.doctor.executors` judges."""

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
"""So often all executors are asked, at most: in the first round their Python starts.

The second one measures clocks more exactly, since the workers are warm. The others are for
executors whose cores were busy.
"""

HOLD_S: Final = (1.0, 0.3)
"""How long a task of the first round keeps its core, and a task of any later one."""

ROUND_S: Final = 20.0
"""How long the tasks of a round may take; then they are cancelled."""

TASKS_MAX: Final = 256
"""How many tasks a round has at most."""

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

    task_end: TaskEnd
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
    """Decides how long to wait for a cluster's executors; times are of a monotonic clock, in s.

    The first one may take `EXECUTORS_S`. All start at once, but on busy machines they come one
    after another: if the first one took 10 s, each further one may come 5 s after the one before.
    """

    def __init__(self, began_s: float, now_s: float) -> None:
        """Begin to wait; the application asked for executors at `began_s`."""
        self.count = 0
        self._began_s = began_s
        self._deadline_s = now_s + EXECUTORS_S
        self._pause_max_s = 0.0

    def is_over(self, executor_count: int, now_s: float) -> bool:
        """Record how many executors there are now, and return whether to wait for no more."""
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
        """Ask every executor, and return its tasks by id and host; empty: there is no executor.

        Each task is a job of its own, so that one that fails ends no other. There are as many at
        once as the cluster has cores, and each keeps its core for a while: so each executor gets
        one, unless other work has its cores. Then it has no task.
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
                # after two rounds only an executor that has not answered yet is worth another
                every_executor_answered = all(self._tasks_by_executor.values())
                if round_number >= len(HOLD_S) and every_executor_answered:
                    break
                core_count = sum(executor.cores for executor in executors)
                task_count = max(1, min(TASKS_MAX, core_count))
                hold_s = HOLD_S[min(round_number, len(HOLD_S) - 1)]
                self._collect([pool.submit(self._run_task, hold_s) for _ in range(task_count)])
        return self._tasks_by_executor

    def _wait_for_executors(self) -> bool:
        """Wait for the first executor, and for more soon after it; return whether any came."""
        application_age_s = (self._wall_ms() - self._context.startTime) / 1000
        executor_wait = ExecutorWait(time.monotonic() - application_age_s, time.monotonic())
        while not executor_wait.is_over(len(executors_of(self._context)), time.monotonic()):
            time.sleep(0.1)
        return executor_wait.count > 0

    def _collect(self, futures: Sequence[Future[_EndedTask | None]]) -> None:
        """Wait for tasks, and keep their answers; a task that does not end in time is cancelled."""
        _, running = wait(futures, ROUND_S)
        if running:
            # it ends all jobs of this application, so each future ends soon
            self._context.cancelAllJobs()
        for future in futures:
            ended = future.result()
            if ended is not None:  # None: it ran on no executor
                executor = (ended.task_end.executor, ended.task_end.host)
                self._tasks_by_executor.setdefault(executor, []).append(ended.task)

    def _run_task(self, hold_s: float) -> _EndedTask | None:
        """Run one task, which keeps its core for `hold_s`; None: it was on no executor."""
        job_group = f"windhover-doctor-{next(self._job_numbers)}"
        # Spark pickles these two for the task; `self` cannot be pickled
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
        """Wait until Spark has noted where the task of a job group ran; None: it did not."""
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
    """Return the first line of an error's text that is not empty, else the name of its class."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
