"""The mailbox between a driver, its planning process and its tasks: one small file for each kind of message.

Spark's callbacks carry offsets and errors, and nothing else. Driver and planning process run on one machine,
so they leave each other files in a folder of the application (the status where the user wants it). A file
needs no port, survives its writer, and is replaced whole, so nobody reads half of one.

A cleaner of temporary files may remove any of them, or the folder, at any time. So a file is only a message,
and the state is in the processes: a file that is not there changes nothing that was read before, and the
driver writes again what is missing of its own (`Mailbox.restore`).

| message | file | from | to |
|---|---|---|---|
| published: what is not acked, what is held | ``<session>`` | the sink, or the follower | planning process |
| what holds until it changes: `DriverState` | ``<stream>.driver`` | the driver | planning process |
| it waits for Spark's first worker | ``<stream>.asks`` | planning process | the driver |
| how many cores there are | ``cores`` | the driver, after a batch | planning process |
| the last batch has ended | ``<stream>.idle`` | planning process | the driver |
| the status | ``<stream>.status.json`` | planning process | the driver, operators |
| the batch is run again | ``<stream>.again`` | planning process | tasks on this machine, the sink |

Source: docs/design/protocol.md, sections 5.1 and 5.2 ("The ledger that is published").
"""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from acker.config.settings import UNREACHABLE_MS
from acker.errors import Damaged, TrackingError, UsageError, unreadable_kind
from acker.kafka.port import DamagedRun
from acker.listing import and_more
from acker.wire.events import SourceRun
from spout.planning.journal import Journal
from spout.planning.order import NotAcked
from spout.planning.plan import BatchPlan

LATE_MS = 5_000
"""A batch without a message after this time went past the sink; a sink in a thread of its own has so long."""

FOLLOWER_LATE_MS = 10_000
"""The same where a follower publishes, beyond what it may wait for fails and then for acks to be durable:
then it says that it failed; only one that is gone says nothing."""


CLEANED_WRITES_MAX = 10
"""So often a message is written where a cleaner of temporary files takes the folder away meanwhile."""


def damage_cure(start: int, end: int, why: str) -> str:
    """Return what becomes of offsets of a source that cannot be read for a reason, and what to do."""
    until = "until a whole replica leads the partition"
    if unreadable_kind(why).is_of_the_writer:
        until = "since no replica has it otherwise; its writer should cut what it writes"
    return (
        f"all else was handed out. Offsets {start} to {end} are FAILED, and wait in the replay worker"
        f" {until}. Start it again to go on behind them; with on_data_loss: skip for the input it goes on by"
        " itself, and they are absent"
    )


class Published(NamedTuple):
    """A batch is published.

    `not_acked` are the roots that are not acked by that, and `held` those of which Spark's state holds
    tuples; None: unknown. `damaged` are offsets that could not be read, for which the query is to end.
    """

    not_acked: tuple[NotAcked, ...] | None
    damaged: tuple[DamagedRun, ...] = ()
    held: tuple[SourceRun, ...] | None = ()


@dataclass(frozen=True, slots=True)
class DriverState:
    """What holds for a planning process until the driver changes it.

    Attributes:
        follower: None: no follower publishes the stream; else why it could not, empty while it can.
        is_inactive: no batch is planned.
        is_for_good: nor may Spark run one without records.
        has_workers: the process for which Spark has run a task since it asked; empty: none.
    """

    follower: str | None = None
    is_inactive: bool = False
    is_for_good: bool = False
    has_workers: str = ""


class Mailbox:
    """The messages of one `read_stream` call; what cannot be written raises a TrackingError.

    Driver and planning process have one for all the time: it remembers what was read, or written, last.

    Attributes:
        again: the file that is there while a batch is run again; only its path goes to the tasks.
        status_path: the status file, where the user names no other.
    """

    def __init__(self, folder: Path, stream: str, group: str = "") -> None:
        self.again = folder / f"{stream}.again"
        self.status_path = folder / f"{stream}.status.json"
        self.group = group
        self._folder = folder
        self._asks = folder / f"{stream}.asks"
        self._cores = folder / "cores"
        self._state_path = folder / f"{stream}.driver"
        self._idle = folder / f"{stream}.idle"
        self._state = DriverState()
        self._published: Path | None = None
        self._written: dict[Path, str] = {}
        self._writing = threading.RLock()  # a follower's thread and the user's may write at once

    def restore(self) -> None:
        """Write again what the driver has written and somebody has removed."""
        with self._writing:
            for path, text in self._written.items():
                if not path.exists():
                    self._put(path, text)

    def put_published(
        self,
        plan: BatchPlan,
        not_acked: Sequence[NotAcked] | None = None,
        damaged: Sequence[DamagedRun] = (),
        held: Sequence[SourceRun] | None = (),
    ) -> None:
        """Say that a batch is published; `not_acked` None: nobody can tell what is not, or needs to know.

        `damaged`: what the query is to end for. `held`: see `Published`.
        """
        if plan.ranges:
            message = {"batch": _name(plan.ranges), "not_acked": not_acked, "held": held, "damaged": damaged}
            path = self._folder / plan.session
            with self._writing:
                if self._published is not None and self._published != path:
                    self._written.pop(self._published, None)  # of a session that has ended
                self._published = path
                self._write(path, json.dumps(message))

    def published(self, session: str, ranges: Sequence[SourceRun]) -> Published | None:
        """Return the message about a batch with these ranges, if it is the session's last one."""
        message = json.loads(_text(self._folder / session) or "{}")
        if message.get("batch") != _name(ranges):
            return None
        rows, runs = message["not_acked"], message["held"]
        return Published(
            None if rows is None else tuple(NotAcked(*row) for row in rows),
            tuple(DamagedRun(*run) for run in message.get("damaged", ())),
            None if runs is None else tuple(SourceRun(*run) for run in runs),
        )

    def put_follower(self, failure: str = "") -> None:
        """Say that a follower publishes the batches of the stream, or why it could not."""
        self._change(follower=failure)

    def drop_follower(self) -> None:
        """Say that no follower publishes the stream any more.

        Where the folder is gone, it is not made again, since the driver may have removed it at its end.
        """
        if self._folder.is_dir():
            self._change(follower=None)
            return
        with self._writing:
            self._state = replace(self._state, follower=None)
            self._written[self._state_path] = json.dumps(asdict(self._state))

    def follower(self) -> str | None:
        """Return why the stream's follower failed, empty while it has not; None: there is none."""
        return self._read_state().follower

    def put_again(self) -> None:
        """Say that the batch is run again; call it now and then, since a cleaner may remove the mark."""
        if not self.again.exists():
            with suppress(FileNotFoundError):  # the driver is about to make the folder again
                self.again.touch()

    def drop_again(self) -> None:
        self.again.unlink(missing_ok=True)

    def ask_for_workers(self, process: str) -> None:
        """Ask whether Spark has workers; call it again while `has_workers` is False."""
        with suppress(FileNotFoundError):  # the driver is about to make the folder again
            if _text(self._asks) != process:
                _replace(self._asks, process)

    def asks_for_workers(self) -> str | None:
        """Return the process that asked last whether Spark has workers; None: nobody has."""
        return _text(self._asks)

    def put_workers(self, process: str) -> None:
        """Answer a process that Spark has run a task."""
        self._change(has_workers=process)

    def has_workers(self, process: str) -> bool:
        """Return whether Spark has run a task since a process has asked."""
        return self._read_state().has_workers == process

    def put_cores(self, cores: int) -> None:
        """Say how many cores the application has now: executors come and go."""
        if self.cores() != cores:
            with self._writing:
                self._write(self._cores, str(cores))

    def cores(self) -> int | None:
        """Return how many cores there were when the last batch ended; None: no batch has."""
        text = _text(self._cores)
        return None if text is None else int(text)

    def deactivate(self, *, for_good: bool = False) -> None:
        """Let no batch be planned, as Storm's deactivate; UsageError if that cannot be written.

        `for_good`: nor may Spark run one without records, as it does all the time where bolts tick: whoever
        ends the query then interrupts none.
        """
        try:
            self._idle.unlink(missing_ok=True)
            self._change(is_inactive=True, is_for_good=for_good or self._state.is_for_good)
        except (OSError, TrackingError) as error:
            raise UsageError(f"the topology stays active: {error}") from error

    def activate(self) -> None:
        self._change(is_inactive=False, is_for_good=False)
        self._idle.unlink(missing_ok=True)

    def is_inactive(self) -> bool:
        return self._read_state().is_inactive

    def is_for_good(self) -> bool:
        """Return whether Spark may not run a batch without records either."""
        return self._read_state().is_for_good

    def put_idle(self) -> None:
        """Answer that the last batch has ended, since Spark asks for the next one only then."""
        if not self._idle.exists():
            with suppress(FileNotFoundError):  # the driver is about to make the folder again
                self._idle.touch()

    def is_idle(self) -> bool:
        """Return whether the topology is inactive and nothing of it runs."""
        return self.is_inactive() and self._idle.exists()

    def _change(self, **changes: Any) -> None:
        """Write a changed state; where that cannot be written, the former one holds."""
        with self._writing:
            state = replace(self._state, **changes)
            self._write(self._state_path, json.dumps(asdict(state)))
            self._state = state

    def _read_state(self) -> DriverState:
        """Return the driver's state; where its file is gone, as it was read last."""
        if (text := _text(self._state_path)) is not None:
            self._state = DriverState(**json.loads(text))
        return self._state

    def _write(self, path: Path, text: str) -> None:
        self._put(path, text)
        self._written[path] = text

    def _put(self, path: Path, text: str) -> None:
        try:
            for _ in range(CLEANED_WRITES_MAX):
                with suppress(FileNotFoundError):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    _replace(path, text)
                    return
            raise FileNotFoundError(errno.ENOENT, "the folder is removed again and again")
        except OSError as error:
            raise TrackingError(
                f"{path} cannot be written ({error.strerror}), so the planner of group {self.group} cannot"
                " know that its batch was published; make room there, then start the query again"
            ) from error


def _replace(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def _name(ranges: Sequence[SourceRun]) -> str:
    """Name a batch by its first position: a session emits each one once."""
    return f"{ranges[0].source}@{ranges[0].start}"


class SinkWatch:
    """Whether the sink still owes the last batch that this process has planned.

    A tracked stream that is written past `spout.sink` is never acked: all of its roots would time out and
    come again until they are dead letters, and no error would say why. When Spark asks for the next batch,
    the sink has returned, so the message of this one is there, or comes within `late_ms` from a follower. A
    batch without positions, or of an earlier process, owes none.

    Attributes:
        not_acked: which roots of the last batch are not acked by its publication; None: unknown.
        damaged: what could not be read of the last batch, and the query is to end for.
    """

    def __init__(self, mailbox: Mailbox, *, durable_ms: int = UNREACHABLE_MS) -> None:
        """`durable_ms`: as for `Publisher`."""
        self._mailbox = mailbox
        self._follower_late_ms = 2 * durable_ms + FOLLOWER_LATE_MS
        self._owed: Journal | None = None
        self.not_acked: tuple[NotAcked, ...] | None = None
        self.damaged: tuple[DamagedRun, ...] = ()

    def planned(self, end: Journal) -> None:
        """Note the offset behind a batch that was planned."""
        self._owed = end if end.session and end.ranges else None
        self.not_acked = None

    def is_owed(self, start: Journal) -> bool:
        """Return whether the batch that ends at `start` has ended and is not published."""
        if self._owed is None or start != self._owed:
            return False
        found = self._mailbox.published(self._owed.session, self._owed.ranges)
        if found is not None:
            self._owed, self.not_acked, self.damaged = None, found.not_acked, found.damaged
        return self._owed is not None

    @property
    def late_ms(self) -> int:
        return LATE_MS if self._mailbox.follower() is None else self._follower_late_ms

    def failure(self) -> TrackingError | None:
        """Return why the stream's follower could not publish a batch; None: it could."""
        failure = self._mailbox.follower()
        return TrackingError(failure) if failure else None

    def damage(self) -> Damaged | None:
        """Return the error that ends the query behind a batch of which a part could not be read."""
        if not self.damaged:
            return None
        run, *others = self.damaged
        more = and_more(len(others), "such batches")
        cure = ", ".join(filter(None, [damage_cure(run.start, run.end, run.why), more]))
        return Damaged(run.topic, run.partition, run.start, run.why, cure)

    def refusal(self) -> TrackingError:
        """Return the error of a batch that is owed for good."""
        if self._mailbox.follower() is not None:
            return TrackingError(
                f"group {self._mailbox.group}: Spark has committed a batch, and the driver has not published"
                f" it within {self.late_ms / 1000:.0f} s, nor said why: its thread windhover-follows-"
                f"{self._mailbox.group} has ended or hangs. The batch's records come again; start the query"
                " again, and keep the driver's log"
            )
        return TrackingError(
            f"group {self._mailbox.group}: a batch of its tracked stream has ended and nothing of it was"
            " acked or failed, so all of its records would time out and come again; write it with"
            " foreachBatch(spout.sink(write)), start it with spout.start(...), or read it with tracked=False"
        )


@dataclass(frozen=True, slots=True)
class PlannerStatus:
    """A planning process as it is now; roots are counted while this process ran.

    Attributes:
        state: ``idle``, ``taking`` (waiting for ackers), ``running``, ``failed``, or ``closed``; Spark kills
            the process at the end of a query, so the last one that is written is mostly ``running``.
        session, epoch: of the session; empty before there is one.
        emitted: roots emitted, copies on replay topics included.
        replayed: of these, copies on replay topics.
        pending: roots without a verdict.
        late: verdicts for roots that were settled before.
        unknown: verdicts for roots that this session never emitted.
        undecodable: records of the verdict topic that no acker wrote; they were passed over.
        lost_from_log: records that left the log before they were read (`on_data_loss: skip`).
        oldest_pending_ms: how long the longest pending root has waited, ms; 0: none is pending.
        batch_ms: how long the last batch took whose end was seen, ms; 0: none yet.
        batch_records_max: how many records the next batch may hold, so that it ends within a quarter of the
            timeout; 0: any number.
        limit_hits: how often a batch was chosen while an input had `max_spout_pending` roots pending.
        committed: offset committed last, by ``topic/partition``.
        held: roots that were blocked behind a record that waits (`ordering`); they are among `failed`.
        held_now: of each partition of an ordered input how many of its records wait behind another, by
            ``topic/partition``, when it was last looked at.
        waits: what partitions of ordered inputs wait for, those that go on left out.
        stands: partitions that have no leader, or of which nothing arrives, by ``topic/partition``, and why.
        error: why it stopped; empty while it runs.
        wall: when this was written, wall time in ms.
    """

    state: str
    group: str
    session: str = ""
    epoch: int = 0
    batches: int = 0
    emitted: int = 0
    replayed: int = 0
    pending: int = 0
    acked: int = 0
    absent: int = 0
    failed: int = 0
    timed_out: int = 0
    abandoned: int = 0
    late: int = 0
    unknown: int = 0
    undecodable: int = 0
    lost_from_log: int = 0
    oldest_pending_ms: int = 0
    batch_ms: int = 0
    batch_records_max: int = 0
    limit_hits: int = 0
    clock: int = 0
    committed: Mapping[str, int] = field(default_factory=dict)
    commit_failures: int = 0
    held: int = 0
    held_now: Mapping[str, int] = field(default_factory=dict)
    stands: Mapping[str, str] = field(default_factory=dict)
    waits: Mapping[str, str] = field(default_factory=dict)
    error: str = ""
    wall: int = 0


_FIELDS = frozenset(each.name for each in fields(PlannerStatus))


def write_status(path: Path, status: PlannerStatus) -> None:
    """Replace the status file; raise OSError if its folder is not there or cannot be written."""
    _replace(path, json.dumps(asdict(status)) + "\n")


def read_status(path: Path) -> PlannerStatus | None:
    """Return what a status file says; None: the planning process has not written one yet.

    A file that the user names may still be another version's.
    """
    if (text := _text(path)) is None:
        return None
    return PlannerStatus(**{name: value for name, value in json.loads(text).items() if name in _FIELDS})
