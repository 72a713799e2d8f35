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
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from acker.errors import TrackingError, UsageError
from acker.kafka.port import DamagedRun
from acker.wire.events import SourceRun
from spout.planning.order import NotAcked
from spout.planning.plan import BatchPlan

CLEANED_WRITES_MAX = 10
"""So often a message is written where a cleaner of temporary files takes the folder away meanwhile."""


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
