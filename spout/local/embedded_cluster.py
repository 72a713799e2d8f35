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
    refuse_data_of_others,
    require_free,
)
from spout.local.jars import make_folder
from spout.runtime.forks import Owner
from spout.serving.hosts import PORT_MAX

BROKERS_MAX: Final = 9
"""A test machine has no memory for more: a broker takes some 350 MB."""


class EmbeddedCluster:
    """Brokers on this machine, each of them a controller too; of three one may be lost.

    ::

        with EmbeddedCluster() as cluster:
            AdminClient({"bootstrap.servers": cluster.bootstrap})
            cluster.brokers[0].kill()
            cluster.brokers[0].restart()

    Topics have a replica on each broker, three at most, and two must have a write
    (`min.insync.replicas`). Each broker can be killed, stopped in order (then it hands its partitions
    over first) and started again at its address; it answers when most brokers run. `start` and
    `stop` do this for all of them. The brokers are
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
        """Choose ports, and make the folder and the brokers; none is started before `start`.

        The class describes the arguments. Raises `UsageError`: there are no such brokers or ports,
        or the directory has the data of another number of brokers.
        """
        # 1. refuse what cannot be
        if not 1 <= brokers <= BROKERS_MAX:
            raise UsageError(f"{brokers} brokers: must be 1 to {BROKERS_MAX}")
        if port and port + brokers - 1 > PORT_MAX:
            raise UsageError(
                f"port {port}: {brokers} brokers have the ports from there on, and {PORT_MAX} is the"
                f" last; name {PORT_MAX - brokers + 1} or a lower one"
            )
        # 2. the directory, and what an earlier cluster has left in it
        self._owner_process = Owner("this cluster", "Start and end it there")
        self._named_directory = directory  # None: it is removed at the end
        self._has_answered = False
        self.directory = (directory or Path(tempfile.mkdtemp(prefix="windhover-kafka-"))).resolve()
        make_folder(self.directory, OF_A_BROKER, OWNER_ALONE)
        refuse_data_of_others(self.directory, brokers)
        id_file = self.directory / "cluster-id"
        if not id_file.exists():
            id_file.write_text(new_cluster_id(), encoding="ascii")
        self._cluster_id = id_file.read_text(encoding="ascii")
        # 3. the brokers
        self._named_ports = range(port, port + brokers) if port else range(0)
        self._report = progress or (lambda _sentence: None)
        self._settings = {**settings_of_a_cluster(brokers), **(settings or {})}
        self._make_brokers(brokers)

    def _make_brokers(self, broker_count: int) -> None:
        """Choose ports, and make the brokers with them (anew); set `bootstrap` and `brokers`."""
        # two ports for each broker: one for clients, which may be named, and one for controllers
        chosen_count = 2 * broker_count - len(self._named_ports)
        ports = [*self._named_ports, *free_ports(chosen_count, besides=self._named_ports)]
        client_ports = ports[:broker_count]
        node_ids = range(1, broker_count + 1)
        controller_ports = dict(zip(node_ids, ports[broker_count:], strict=True))
        self.bootstrap = ",".join(f"{HOST}:{port}" for port in client_ports)
        brokers: list[EmbeddedBroker] = []
        for node_id, port in zip(node_ids, client_ports, strict=True):
            broker = EmbeddedBroker(
                self.directory / f"broker-{node_id}",
                port,
                progress=self._report,
                settings=self._settings,
                member=Member(node_id, controller_ports, self._cluster_id),
            )
            brokers.append(broker)
        self.brokers = tuple(brokers)

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.push(self)
            self.start()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all brokers: in order if their data is kept, else at once, with their folder."""
        # a forked process leaves the context too, and the cluster is not its own
        if not self._owner_process.is_here:
            return
        if self._named_directory is not None:
            self.stop()
        else:
            self.kill()
            shutil.rmtree(self.directory, ignore_errors=True)

    def start(self) -> None:
        """Start all brokers, and wait until each answers; errors as `EmbeddedBroker.start`.

        Where another process takes a port that was chosen here before Kafka does, others are chosen for all
        (`bootstrap` and `brokers` are new then), unless they have answered once.
        """
        for named_port in self._named_ports:
            require_free(named_port)
        for starts_left in reversed(range(STARTS_MAX)):  # after this one
            try:
                self._start_once()
            except Unreachable:
                taken_ports = [broker.taken_port() for broker in self.brokers]
                taken_port = next(filter(None, taken_ports), None)
                if taken_port is None or not starts_left:
                    raise
                if self._has_answered or taken_port in self._named_ports:
                    raise UsageError(IN_USE.format(taken_port)) from None
                self._report(f"another process has taken port {taken_port}: Kafka is started with other ones")
                self._make_brokers(len(self.brokers))
            else:
                self._has_answered = True
                return

    def _start_once(self) -> None:
        """Launch all brokers, and wait until each answers; if one does not, all are killed."""
        with ExitStack() as undo:
            undo.callback(self.kill)
            for broker in self.brokers:
                broker.launch()
            for broker in self.brokers:
                broker.wait_until_it_answers(self.brokers)
            undo.pop_all()

    def stop(self) -> None:
        """Shut all brokers down together; one that finds no majority of controllers is killed."""
        with ThreadPoolExecutor(len(self.brokers)) as threads:
            stops = [threads.submit(broker.stop) for broker in self.brokers]
            for stop in stops:
                stop.result()  # raises what was raised in the thread

    def kill(self) -> None:
        """End all brokers by SIGKILL, as a power cut would."""
        for broker in self.brokers:
            broker.kill()
