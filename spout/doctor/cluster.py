"""Asks a Spark cluster what `spout.doctor.executors` judges, by tasks of a second or two on each executor."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Final

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
"""Executors that come within this of the one before are waited for at least; see `ExecutorWait`."""

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


def cluster_facts(
    master: str,
    servers: Reading[Servers],
    shipped: Iterable[Path],
    wall_ms: Callable[[], int],
) -> ClusterFacts:
    """Start an application on a cluster, ask each of its executors, and end it."""
    driver = ExecutorAnswer(**on_executor.answer((), 0))
    if masters := spark_servers(master):
        away = on_executor.answer(masters, 0)["unreachable"]
        if len(away) == len(masters):
            text = "; ".join(f"{server}: {why}" for server, why in away.items())
            return ClusterFacts(master, Reading(unknown=text), driver, servers)
    try:
        session = cluster_session("windhover-doctor", master, SETTINGS)
    except (PySparkException, Py4JError, WindhoverError) as error:
        return ClusterFacts(master, Reading(unknown=_first_line(error)), driver, servers)
    try:
        for each in shipped:
            session.sparkContext.addPyFile(str(each))
        tasks = _Tasks(session.sparkContext, servers.value or (), wall_ms).all()
    finally:
        session.stop()
    if not tasks:
        text = f"it gave this application no executor within {EXECUTORS_S:.0f} s"
        return ClusterFacts(master, Reading(unknown=text), driver, servers)
    count = "1 executor" if len(tasks) == 1 else f"{len(tasks)} executors"
    return ClusterFacts(master, Reading(f"gave {count}"), driver, servers, tasks)


class ExecutorWait:
    """How long a cluster's executors are waited for.

    The first one may take `EXECUTORS_S`. All start at once, and on busy machines they come one after another:
    so each of the others may come later than the one before by half of what the first one took.
    """

    def __init__(self, began_s: float, now_s: float) -> None:
        """Begin to wait; the application asked for executors at `began_s`."""
        self.count = 0
        self._began_s = began_s
        self._until_s = now_s + EXECUTORS_S
        self._more_s = 0.0

    def is_over(self, count: int, now_s: float) -> bool:
        """Tell whether it is over, with so many executors there."""
        if count > self.count:
            self._more_s = self._more_s or min(max((now_s - self._began_s) / 2, MORE_S), EXECUTORS_S)
            self.count, self._until_s = count, now_s + self._more_s
        return now_s >= self._until_s


class _Tasks:
    """Tasks on executors, by executor and machine."""

    def __init__(self, context: SparkContext, servers: Servers, wall_ms: Callable[[], int]) -> None:
        self._context = context
        self._servers = list(servers)
        self._wall_ms = wall_ms
        self._found: dict[tuple[str, str], list[ExecutorTask]] = {}
        self._numbers = itertools.count(1)
        cloudpickle.register_pickle_by_value(on_executor)  # type: ignore[no-untyped-call]  # a machine may lack Windhover

    def all(self) -> Mapping[tuple[str, str], Sequence[ExecutorTask]]:
        """Ask every executor, as far as its cores are free; none: the cluster gave no executor.

        Each task is a job of its own, so that one that fails ends no other. There are as many at once as
        the cluster has cores, and each keeps its core for a while: so each executor gets one.
        """
        with ThreadPoolExecutor(TASKS_MAX) as pool:
            first = pool.submit(self._one, 0.0)  # with dynamic allocation no executor comes without a job
            if not self._wait_for_executors():
                self._context.cancelAllJobs()
                return {}
            self._note([first])
            for number in range(ROUNDS):
                executors = executors_of(self._context)
                for each in executors:
                    self._found.setdefault((each.id, each.host), [])
                if number >= len(HOLD_S) and all(self._found.values()):
                    break
                slots = min(TASKS_MAX, sum(each.cores for each in executors))
                hold_s = HOLD_S[min(number, len(HOLD_S) - 1)]
                self._note([pool.submit(self._one, hold_s) for _ in range(max(1, slots))])
        return self._found

    def _wait_for_executors(self) -> bool:
        """Wait for the first executor, and for those that come soon after it."""
        past_s = (self._wall_ms() - self._context.startTime) / 1000
        wait_for = ExecutorWait(time.monotonic() - past_s, time.monotonic())
        while not wait_for.is_over(len(executors_of(self._context)), time.monotonic()):
            time.sleep(0.1)
        return wait_for.count > 0

    def _note(self, sent: Sequence[Future[tuple[TaskEnd, ExecutorTask] | None]]) -> None:
        """Wait for tasks; what does not end in time is cancelled, and says nothing."""
        _, left = wait(sent, ROUND_S)
        if left:
            self._context.cancelAllJobs()
        for each in sent:
            if (found := each.result()) is not None:
                end, task = found
                self._found.setdefault((end.executor, end.host), []).append(task)

    def _one(self, hold_s: float) -> tuple[TaskEnd, ExecutorTask] | None:
        """Run one task; None: it was on no executor."""
        group, servers = f"windhover-doctor-{next(self._numbers)}", self._servers
        answer = on_executor.answer  # the task takes along this function, and not this object
        self._context.setJobGroup(group, "what each executor has", interruptOnCancel=True)
        sent_ms, error = self._wall_ms(), ""
        found = None
        try:
            [fields] = self._context.parallelize([0], 1).map(lambda _: answer(servers, hold_s)).collect()
            found = ExecutorAnswer(**fields)
        except (PySparkException, Py4JError) as raised:
            error = str(raised)
        received_ms = self._wall_ms()
        end = self._end_of(group)
        return None if end is None else (end, ExecutorTask(sent_ms, received_ms, found, end.error or error))

    def _end_of(self, group: str) -> TaskEnd | None:
        """Return where the task of a job group ran; Spark notes it a moment later."""
        until, tracker = time.monotonic() + NOTED_S, self._context.statusTracker()
        while time.monotonic() < until:
            for job in tracker.getJobIdsForGroup(group):
                info = tracker.getJobInfo(job)
                for stage in info.stageIds if info else ():
                    if ends := task_ends_of(self._context, stage):
                        return ends[0]
            time.sleep(0.05)
        return None


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
