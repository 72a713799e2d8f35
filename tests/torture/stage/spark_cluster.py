"""A Spark standalone cluster on this machine: a master and workers, whose executors can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark

from spout.local import java
from spout.local.broker_settings import HOST
from spout.local.embedded import free_port
from spout.local.jars import cache_directory
from spout.local.spark_session import home_without_zip
from spout.runtime import tether
from tests.torture.schedule import SPARK_WORKERS, Deed, Victim
from tests.torture.stage.family import Member, family_of, signal_all

EXECUTOR_MEMORY: Final = "1g"
CORES_OF_EXECUTOR: Final = 1

_EXECUTOR_CLASS: Final = b"CoarseGrainedExecutorBackend"
_JVM: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# what Spark's own start scripts open of Java's modules, as far as master and worker need it
_OPENED: Final = ("java.base/java.lang", "java.base/java.nio", "java.base/sun.nio.ch", "java.base/java.util")


class SparkCluster:
    """A master, and a worker with one executor for each number up to `workers`.

    Start it from the main thread: it dies with that.
    """

    def __init__(
        self,
        folder: Path,
        workers: int,
        environ: Mapping[str, str],
        different: Mapping[str, str] | None = None,
        home: Path | None = None,
    ) -> None:
        """Prepare.

        Args:
            folder: for logs and for the files of executors.
            workers: up to 2.
            environ: environment of this process, whose JAVA_HOME and PATH say which Java.
            different: variables that the last worker alone has.
            home: of Spark; None: PySpark's, without the zip that makes its Python processes slow to start.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._java = java.find(environ)
        cache = cache_directory(environ)
        self._home = home or home_without_zip(Path(pyspark.__file__).parent, environ, cache)
        self._environ = {
            **environ,
            "SPARK_HOME": str(self._home),
            "SPARK_SCALA_VERSION": _scala_version(self._home),
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_LOCAL_IP": HOST,
            "JAVA_HOME": str(java.java_home_for_spark(self._java, cache)),
        }
        self._different = different or {}
        self._port = free_port()
        self._numbers = range(1, workers + 1)
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: dict[Victim, subprocess.Popen[bytes]] = {}
        self._frozen: list[Member] = []

    @property
    def master(self) -> str:
        """The value of `spark.master`."""
        return f"spark://{HOST}:{self._port}"

    @property
    def java_home(self) -> str:
        """The value of JAVA_HOME for drivers."""
        return self._environ["JAVA_HOME"]

    def __enter__(self) -> Self:
        self._master = self._start("master.Master", "--port", str(self._port), log="spark-master.log")
        for worker in SPARK_WORKERS[: len(self._numbers)]:
            self._start_worker(worker)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        for worker in self._workers.values():
            signal_all(family_of(worker.pid), signal.SIGKILL)
        for process in (*self._workers.values(), *([self._master] if self._master else ())):
            tether.kill(process)

    def executors(self) -> list[Member]:
        """List the JVMs of all executors, the oldest first."""
        found = [
            member
            for worker in self._workers.values()
            for member in family_of(worker.pid)
            if _EXECUTOR_CLASS in _command_of(member.pid)
        ]
        return sorted(found, key=lambda member: member.started)

    def strike(self, victim: Victim, deed: Deed) -> None:
        """Begin a blow; of the executors it falls on the oldest."""
        if victim in SPARK_WORKERS:
            tether.kill(self._workers[victim])
            return
        for member in self.executors()[:1]:
            if deed is Deed.KILL:
                os.kill(member.pid, signal.SIGKILL)
            else:
                self._frozen = family_of(member.pid)
                signal_all(self._frozen, signal.SIGSTOP)

    def heal(self, victim: Victim) -> None:
        """End a blow; Spark itself starts an executor in the place of one that died."""
        if victim in SPARK_WORKERS:
            self._start_worker(victim)
        else:
            self.release()

    def release(self) -> None:
        """Let no executor stay stopped."""
        signal_all(self._frozen, signal.SIGCONT)
        self._frozen = []

    def _start_worker(self, worker: Victim) -> None:
        is_last = worker is SPARK_WORKERS[len(self._numbers) - 1]
        self._workers[worker] = self._start(
            *("worker.Worker", self.master, "--cores", str(CORES_OF_EXECUTOR), "--memory", EXECUTOR_MEMORY),
            *("--work-dir", str(self._folder / "work")),
            log=f"{worker.value.lower().replace(' ', '-')}.log",
            further=self._different if is_last else {},
        )

    def _start(
        self, program: str, *arguments: str, log: str, further: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        opened = [f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED]
        command = [
            *(str(self._java.executable), *_JVM, *opened, "-cp", f"{self._home / 'jars'}/*"),
            *(f"org.apache.spark.deploy.{program}", *arguments, "--host", HOST, "--webui-port", "0"),
        ]
        environ = {**self._environ, **(further or {})}
        return tether.spawn(tether.Command(command, self._folder / log, self._folder, environ))


def _scala_version(home: Path) -> str:
    """Return which Scala Spark's jars are built with; a worker cannot start an executor without."""
    (core,) = (home / "jars").glob("spark-core_*.jar")
    return core.name.split("_")[1].split("-")[0]


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
