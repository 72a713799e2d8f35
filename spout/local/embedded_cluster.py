"""Several Kafka brokers on this machine that are one cluster, for tests and experiments."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from acker.errors import Unreachable, UsageError
from spout.local.broker_settings import HOST, Member, settings_of_a_cluster
from spout.local.embedded import (
    IN_USE,
    OF_A_BROKER,
    OWNER_ALONE,
    STARTS_MAX,
    EmbeddedBroker,
    Report,
    free_ports,
    new_cluster_id,
    require_free,
)
from spout.local.jars import make_folder
from spout.runtime.forks import Owner
from spout.serving.hosts import PORT_MAX

BROKERS_MAX: Final = 9
"""A test machine has no memory for more: a broker takes some 350 MB."""


class EmbeddedCluster:
    """Brokers on this machine, each of them a controller too; with three, the loss of one is no outage.

    ::

        with EmbeddedCluster() as cluster:
            AdminClient({"bootstrap.servers": cluster.bootstrap})
            cluster.brokers[0].kill()
            cluster.brokers[0].restart()

    Topics get a copy on each broker, three at most, and two must have a write (`min.insync.replicas`). Each
    broker can be killed, stopped in order (then it hands its partitions over first) and started again at its
    address; it answers when most brokers run. `start` and `stop` do this for all of them. The brokers are
    killed when the process that started them ends; start them from the main thread.

    Args:
        directory: where the brokers' folders are; the next cluster with this directory finds them, and needs
            the same number of brokers. None: a temporary folder that is removed at the end.
        brokers: how many, 1 to `BROKERS_MAX`; as many as the directory has, if it has any.
        port: of the first broker, 1 to 65,535; the others get the next ones. None: free ones.
        progress: as for `EmbeddedBroker`, like `settings`.
    """

    def __init__(
        self,
        directory: Path | None = None,
        brokers: int = 3,
        port: int | None = None,
        *,
        progress: Report | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        if not 1 <= brokers <= BROKERS_MAX:
            raise UsageError(f"{brokers} brokers: must be 1 to {BROKERS_MAX}")
        if port and port + brokers - 1 > PORT_MAX:
            raise UsageError(
                f"port {port}: {brokers} brokers have the ports from there on, and {PORT_MAX} is the last;"
                f" name {PORT_MAX - brokers + 1} or a lower one"
            )
        self._owner = Owner("this cluster", "Start and end it there")
        self._kept = directory
        self._has_answered = False
        self.directory = (directory or Path(tempfile.mkdtemp(prefix="windhover-kafka-"))).resolve()
        make_folder(self.directory, OF_A_BROKER, OWNER_ALONE)
        found = len(list(self.directory.glob("broker-*"))) or int((self.directory / "data").exists())
        if found not in (0, brokers):
            raise UsageError(
                f"{self.directory} holds the data of {found} broker{'s' * (found > 1)}, not of {brokers};"
                " give that number, or another directory"
            )
        id_file = self.directory / "cluster-id"
        if not id_file.exists():
            id_file.write_text(new_cluster_id(), encoding="ascii")
        self._cluster_id = id_file.read_text(encoding="ascii")
        self._named = range(port, port + brokers) if port else range(0)
        self._report = progress or (lambda _sentence: None)
        self._settings = {**settings_of_a_cluster(brokers), **(settings or {})}
        self._choose_ports(brokers)

    def _choose_ports(self, brokers: int) -> None:
        """Make the brokers anew: each of them knows the controllers of all."""
        ports = [*self._named, *free_ports(2 * brokers - len(self._named), besides=self._named)]
        numbers = range(1, brokers + 1)
        controllers = dict(zip(numbers, ports[brokers:], strict=True))
        self.bootstrap = ",".join(f"{HOST}:{each}" for each in ports[:brokers])
        self.brokers = tuple(
            EmbeddedBroker(
                self.directory / f"broker-{node_id}",
                port,
                progress=self._report,
                settings=self._settings,
                member=Member(node_id, controllers, self._cluster_id),
            )
            for node_id, port in zip(numbers, ports, strict=False)
        )

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.push(self)
            self.start()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._owner.is_here:
            return
        if self._kept is not None:
            self.stop()
        else:
            self.kill()
            shutil.rmtree(self.directory, ignore_errors=True)

    def start(self) -> None:
        """Start all brokers, and wait until each answers; errors as `EmbeddedBroker.start`.

        Where another process takes a port that was chosen here before Kafka does, others are chosen for all
        (`bootstrap` and `brokers` are new then), unless they have answered once.
        """
        for port in self._named:
            require_free(port)
        for starts_left in reversed(range(STARTS_MAX)):
            try:
                self._start()
            except Unreachable:
                port = next(filter(None, (each.taken_port() for each in self.brokers)), 0)
                if not port or not starts_left:
                    raise
                if self._has_answered or port in self._named:
                    raise UsageError(IN_USE.format(port)) from None
                self._report(f"another process has taken port {port}: Kafka is started with other ones")
                self._choose_ports(len(self.brokers))
            else:
                self._has_answered = True
                return

    def _start(self) -> None:
        with ExitStack() as undo:
            undo.callback(self.kill)
            for broker in self.brokers:
                broker.launch()
            for broker in self.brokers:
                broker.wait_until_it_answers(self.brokers)
            undo.pop_all()

    def stop(self) -> None:
        """Shut all brokers down together; a broker that finds no majority of controllers is killed."""
        with ThreadPoolExecutor(len(self.brokers)) as threads:
            for stopped in [threads.submit(broker.stop) for broker in self.brokers]:
                stopped.result()

    def kill(self) -> None:
        """End all brokers by SIGKILL, as a power cut would."""
        for broker in self.brokers:
            broker.kill()
