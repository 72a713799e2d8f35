"""What the driver remembers about the streams of one Spark application, which has one SparkContext.

A *stream* is one `read_stream` call. The *link* of a stream connects this driver with the
planning processes of its queries.

Source: docs/design/protocol.md, sections 5.1 (one session of a group in an application) and 5.2.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from acker.config.settings import longest_unreachable_ms
from acker.config.topics import Input, Topics
from acker.errors import UsageError
from acker.kafka.cluster import KafkaLog
from spout.isolation.safety import Safety
from spout.link.connection import DriverAddress
from spout.link.driver_socket import DriverSocket
from spout.link.planner_link import PlannerLink
from spout.publishing.batch_warnings import LeftOpen
from spout.publishing.publish import Publisher
from spout.publishing.report_accumulator import BatchReports, ReportLedger, TracebackLog
from spout.publishing.watermarks import TooLateLog, Watermarks
from spout.runtime.forks import Owner, register_for_forks
from spout.spark.private import has_ended, most_tasks, session_uuid
from spout.spark.versions import INSTALLED, RUNS_ON
from spout.streaming.keeper import Keeper, KeptStream
from spout.tuples.anchors import AnchorForm
from spout.tuples.counts import Counts, sum_of_counts
from spout.tuples.failures import Cause

ERRORS_KEPT = 100
"""The last errors that bolts reported, for the status."""

_LOCK = "lock"
_WHY_NO_CONNECT = (
    "what bolts did comes back through an accumulator, which Spark Connect does not have."
    ' Run the driver beside Spark: SparkSession.builder.master("local[*]"), or spark-submit on a'
    " cluster"
)


def require_classic(session: object) -> SparkSession:
    """Return a session as a `SparkSession` that runs in this process, the driver's.

    Raises `UsageError`: it is a session of Spark Connect, or no session.
    """
    if isinstance(session, SparkSession):
        return session
    raise UsageError(
        f"{type(session).__module__}.{type(session).__name__} is no classic Spark session. Found is"
        f" PySpark {INSTALLED}, and wanted is {RUNS_ON}: {_WHY_NO_CONNECT}"
    )


def refuse_connect(settings: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Raise `UsageError` if a setting, or a variable that PySpark reads, turns Spark Connect on."""
    reasons: list[str] = []
    if "spark.remote" in settings:
        reasons.append("spark.remote")
    variables = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
    reasons += [variable for variable in variables if variable in environ]
    mode = settings.get("spark.api.mode", environ.get("SPARK_API_MODE"))
    if str(mode).lower() == "connect":
        reasons.append("spark.api.mode=connect (or SPARK_API_MODE)")
    if reasons:
        raise UsageError(f"{', '.join(reasons)}: this would be no classic Spark session: {_WHY_NO_CONNECT}")


def refuse_workers(python: str, shipped_files: str) -> None:
    """Raise `UsageError` if Spark's Python workers could not start, or not import what is shipped.

    The planning process on this machine is one of them. `shipped_files` are as for
    ``--py-files``: paths, separated by commas.
    """
    wheels = [path for path in shipped_files.split(",") if path.strip().endswith(".whl")]
    if wheels:
        raise UsageError(
            f"--py-files {wheels[0]}: Spark puts .zip, .egg, .jar and .py files on the path of"
            " its workers, and no wheel. Install it into the environment of the workers; or"
            " ship its modules, if they are all Python, as a zip: `pip install --no-deps"
            " --target modules` with it, then `cd modules && zip -r ../modules.zip .`"
        )
    # a bare name, such as python3, is looked for in the PATH of each machine
    if "/" in python and not os.access(python, os.X_OK):
        raise UsageError(
            f"{python}, the Python of Spark's workers (PYSPARK_PYTHON, spark.pyspark.python),"
            f" is no program that this machine can run from {Path.cwd()}: one worker, which"
            " plans the batches, runs beside the driver. Spark brings --files and --archives to"
            " executors alone: put a PEX here too, or the unpacked archive, under the same"
            " relative path and executable, or name an interpreter that has the same path on"
            " every machine"
        )


@dataclass(slots=True)
class WorkDone:
    """Counts and errors of a stream's bolts, over all published batches.

    One thread adds, others read; each value is replaced whole, so that a reader needs no lock.

    Attributes:
        errors: the last ones that bolts reported, the newest last.
        isolated: how many records killed or hung a process, by error.
    """

    counts: Counts = field(default_factory=dict)
    errors: tuple[Cause, ...] = ()
    isolated: Mapping[str, int] = field(default_factory=dict)

    def add(self, counts: Counts, errors: tuple[Cause, ...], isolated: Mapping[str, int]) -> None:
        """Add what the bolts did in a published batch; the arguments are as the attributes."""
        self.counts = sum_of_counts([self.counts, counts])
        self.errors = (*self.errors, *errors)[-ERRORS_KEPT:]
        self.isolated = Counter(self.isolated) + Counter(isolated)


@dataclass(slots=True)
class Stream:
    """One `read_stream` call.

    Attributes:
        id: identifies the stream in blobs.
        partitions: N, the number of acker partitions.
        root_form: the form in which its roots have their anchors.
        late: how many tuples a watermark has dropped so far that `hold` would have held.
        dropped: how many other rows a watermark has dropped; Spark does not know their records.
        watermarks: which partitions have moved the watermarks of its query.
        names_behind_spark: names of the bolts that run behind Spark's own operators.
        queries: ids of the queries that read it; a query is added with its first batch.
        work: of its bolts, in the batches that were published.
        status_path: the file of the planning process's status.
        has_logged_rules: whether the rules of `causes` that fit nothing were logged.
    """

    id: str
    group: str
    tracked: bool
    partitions: int
    publisher: Publisher
    session: SparkSession
    root_form: AnchorForm = AnchorForm.PACKED
    late: int = 0
    dropped: int = 0
    names_behind_spark: set[str] = field(default_factory=set)
    queries: set[str] = field(default_factory=set)
    work: WorkDone = field(default_factory=WorkDone)
    status_path: Path | None = None
    safety: Safety = field(default_factory=Safety)
    inputs: tuple[Input, ...] = ()
    has_logged_rules: bool = False
    left_open: LeftOpen = field(default_factory=LeftOpen)
    watermarks: Watermarks = field(default_factory=Watermarks)
    too_late_log: TooLateLog = field(default_factory=TooLateLog)
    traceback_log: TracebackLog = field(default_factory=TracebackLog)


class OwnFolder(TemporaryDirectory[str]):
    """A temporary folder of this process, locked.

    The next process removes one that has lost its lock.
    """

    def __init__(self, prefix: str) -> None:
        """Make the folder, and remove those of processes that have ended.

        `prefix` begins their names.
        """
        _remove_orphans(prefix)
        super().__init__(prefix=prefix)
        self._is_owner = True  # not of a process that was forked since
        self._lock_descriptor = -1  # no lock is held
        self._lock_folder()
        register_for_forks(self)  # it calls `forked` in a child process

    def _lock_folder(self) -> None:
        """Lock the folder, for as long as this process lives."""
        new_lock = Path(self.name) / f"{_LOCK}.new"
        self._lock_descriptor = os.open(new_lock, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock_descriptor, fcntl.LOCK_EX)
        # named only now: a lock that `_remove_orphans` sees has been taken before
        new_lock.rename(new_lock.with_name(_LOCK))

    def restore(self) -> bool:
        """Make the folder and its lock again, if a cleaner of temporary files has removed them.

        Return whether they exist now. False: this process was forked, or has cleaned up, and
        nothing is made any more.
        """
        has_cleaned_up = not self._finalizer.alive  # type: ignore[attr-defined]  # it cleans up
        if not self._is_owner or has_cleaned_up:
            return False
        if (Path(self.name) / _LOCK).exists():
            return True
        Path(self.name).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._release_lock()
        self._lock_folder()
        return True

    def _release_lock(self) -> None:
        """Give the lock up, if it is held."""
        if self._lock_descriptor < 0:
            return
        descriptor = self._lock_descriptor
        self._lock_descriptor = -1  # before it is closed: the number may be another file's then
        os.close(descriptor)

    def forked(self) -> None:
        """Leave the folder to the parent process; called in a child that was forked."""
        self._finalizer.detach()  # type: ignore[attr-defined]  # it would remove the folder
        self._is_owner = False

    def cleanup(self) -> None:
        """Remove the folder, unless it is the parent process's."""
        if not self._is_owner:
            return
        super().cleanup()
        self._release_lock()


def _remove_orphans(prefix: str) -> None:
    """Remove the folders whose processes have ended, so that nobody holds their locks.

    `prefix` begins the names of the folders.
    """
    for lock in Path(tempfile.gettempdir()).glob(f"{prefix}*/{_LOCK}"):
        try:
            descriptor = os.open(lock, os.O_RDWR)
        except OSError:  # another process removes it, or it belongs to another user
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # its process is alive
            continue
        else:
            shutil.rmtree(lock.parent, ignore_errors=True)
        finally:
            os.close(descriptor)


class Application:
    """The streams and the ledger of one SparkContext.

    Attributes:
        started: the queries that `spout.start` started, by id, until their end is seen.
        sunk: run ids of the queries whose batches a `spout.sink` publishes.
        follower: publishes the batches of the other queries; None until `spout.start` is called
            first.
    """

    def __init__(self, context: SparkContext) -> None:
        """Make the folder and the socket; they serve from the first stream on."""
        self._context = context
        self.ledger = ReportLedger(context)
        self.streams: dict[str, Stream] = {}  # by id
        self._folder = OwnFolder("windhover-sinks-")
        self.started: dict[str, StreamingQuery] = {}
        self.sunk: set[str] = set()
        self.follower: object | None = None
        self._links: dict[str, PlannerLink] = {}  # by the stream's id
        self._socket = DriverSocket(self._folder.name, self._links.get, lambda: has_ended(context))
        self._keeper: Keeper | None = None
        self._session_numbers: dict[str, int] = {}  # by the session's UUID
        self._owner = Owner(
            "this Spark session",
            "Fork before the session starts, or use it in the driver's own process alone",
        )

    @property
    def sink_folder(self) -> Path:
        """The application's folder, with the driver's socket, status files and marks of batches."""
        return Path(self._folder.name)

    @property
    def address(self) -> DriverAddress:
        """Where planning processes find this driver."""
        return self._socket.address

    def link(self, stream: Stream) -> PlannerLink:
        """Return the link of a stream, which the first call creates."""
        link = self._links.get(stream.id)
        if link is None:
            new_link = PlannerLink(self.sink_folder, stream.id, stream.group)
            # two threads may come here at once: `setdefault` gives both the same link
            link = self._links.setdefault(stream.id, new_link)
        return link

    def tell_cores(self) -> None:
        """Send to the planning processes of all streams how many cores there are now."""
        cores = self.cores
        for stream in self.all_streams():
            self.link(stream).put_cores(cores)

    def _start_keeper(self) -> None:
        """Open the socket, and start the thread that serves the planning processes.

        Does nothing where both were done before.
        """
        with _CREATION_LOCK:
            if self._keeper is None:
                self._socket.start()
                keeper = Keeper(self._folder, self._kept_streams)
                keeper.run(lambda: has_ended(self._context))
                self._keeper = keeper

    def _kept_streams(self) -> list[KeptStream]:
        """Return the streams that the keeper serves."""
        streams = self.all_streams()
        return [KeptStream(self.link(stream), stream.session, stream.id) for stream in streams]

    @staticmethod
    def of(session: SparkSession) -> Application:
        """Return the application of a session's SparkContext; the first call creates it.

        Raises `UsageError`: the session is of Spark Connect, or of the process that this one
        was forked from.
        """
        context = require_classic(session).sparkContext
        application = _APPLICATIONS.get(context)
        if application is None:
            with _CREATION_LOCK:
                # looked up again, under the lock: another thread may have created it
                if context not in _APPLICATIONS:
                    _APPLICATIONS[context] = Application(context)
                application = _APPLICATIONS[context]
        application._owner.check()
        return application

    def number_of(self, session: SparkSession) -> int:
        """Return the number of a Spark session among those that read streams.

        They are numbered from 1, in the order in which they called this first.
        """
        with _CREATION_LOCK:
            next_number = len(self._session_numbers) + 1
            return self._session_numbers.setdefault(session_uuid(session), next_number)

    def new_stream(
        self,
        session: SparkSession,
        topics: Topics,
        group: str,
        *,
        tracked: bool,
        root_form: AnchorForm = AnchorForm.PACKED,
    ) -> Stream:
        """Register a `read_stream` call.

        Raises `UsageError`: a running query here reads the group already.
        """
        if tracked:
            self.refuse_second(group)
            for older_stream in self._tracked_streams(group):
                # its query has ended; a restart of the query opens the publisher again
                older_stream.publisher.close()
        publisher = Publisher(
            lambda: KafkaLog(topics.kafka, client_id=f"windhover-bolts-{group}"),
            topics.ack_topics,
            durable_ms=longest_unreachable_ms(topics.inputs_of(group)),
        )
        stream = Stream(
            id=uuid.uuid4().hex[:12],
            group=group,
            tracked=tracked,
            partitions=topics.acker.partitions,
            publisher=publisher,
            session=session,
            root_form=root_form,
        )
        self.streams[stream.id] = stream
        self._start_keeper()
        return stream

    def _tracked_streams(self, group: str) -> list[Stream]:
        """Return the tracked streams of a group, in the order of their `read_stream` calls."""
        streams = self.all_streams()
        return [stream for stream in streams if stream.group == group and stream.tracked]

    def refuse_second(self, group: str) -> None:
        """Raise `UsageError` if a query that runs in any session of the application reads a group."""
        for stream in self._tracked_streams(group):
            if not stream.queries:
                continue
            # A session lists only its own queries, and a query runs in the session that read
            # its stream.
            active_queries = {query.id for query in stream.session.streams.active}
            if stream.queries & active_queries:
                raise UsageError(
                    f"group {group!r} is read by a query of this application already; read"
                    " several inputs of a group by one read_stream, or stop that query first"
                )

    def reports(self, query_id: str, batch_id: int) -> BatchReports:
        """Return what tasks reported about a batch when its query evaluated it last.

        Raises `TrackingError`: some reports may be missing.

        A query that ended between the tasks of a batch and its publication leaves its reports
        behind, and its next run evaluates the batch again under the same id. A group has one
        query at a time, so if two streams of one group have reports, those of the stream that was
        read later count.
        """
        reported_ids = self.ledger.streams(query_id, batch_id)
        reported = [stream for stream in self.all_streams() if stream.id in reported_ids]
        # streams are in the order of their `read_stream` calls: of one key the last one stays
        newest_ids = {(stream.group, stream.tracked): stream.id for stream in reported}
        outdated_ids = {stream.id for stream in reported} - set(newest_ids.values())
        return self.ledger.read(query_id, batch_id, without=outdated_ids)

    @property
    def cores(self) -> int:
        """How many tasks the executors can run at once now; on a cluster executors come and go."""
        return self._context.defaultParallelism

    def tasks_of(self, stage_id: int) -> int | None:
        """Return how many tasks a stage of Spark had; None when Spark has forgotten the stage."""
        stage_info = self._context.statusTracker().getStageInfo(stage_id)
        if stage_info is None:
            return None
        # not 0: an executor was lost; the stage runs again, with the tasks whose output was lost
        if stage_info.currentAttemptId:
            return most_tasks(self._context, stage_id)
        return int(stage_info.numTasks)

    def all_streams(self) -> tuple[Stream, ...]:
        """Return the streams there are now; a copy, since another thread may register one."""
        return tuple(self.streams.values())


def link_of(stream_id: str) -> PlannerLink | None:
    """Return the link of a stream, by its id; None: no application of this process has read it."""
    for application in list(_APPLICATIONS.values()):
        stream = application.streams.get(stream_id)
        if stream is not None:
            application._owner.check()
            return application.link(stream)
    return None


_APPLICATIONS: Final[dict[SparkContext, Application]] = {}
"""By context. A process has few contexts, and one at a time; an application knows its own to
the end."""

_CREATION_LOCK: Final = threading.RLock()
"""Held while a thread creates what there may be only one of: the application of a context, its
keeper, the number of a session."""
