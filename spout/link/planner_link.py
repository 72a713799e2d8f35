"""The driver's end: what it sends the planning processes of a stream, and what they ask.

A stream may have two planning processes for a moment: Spark has started another one, and the one
before has not ended yet. Each gets the driver's state and the last published batches when it
connects, and whatever changes then. A process is named by the id that it has drawn
(`Hello.process`).

Source: docs/design/protocol.md, sections 5.1 ("Planning") and 5.2 ("The ledger that is published").
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from acker.errors import Unreachable, WindhoverError
from acker.kafka.port import DamagedRun
from acker.wire.events import SourceRun
from spout.link.connection import Connection
from spout.link.messages import (
    BatchPublished,
    DriverState,
    PlannerState,
    Published,
    batch_name,
    from_frame,
    keep_last_of_session,
    mark_path,
    to_frame,
)
from spout.planning.order import NotAcked
from spout.planning.plan import BatchPlan

AGAIN_MAX: Final = 64
"""How many batches that were run again are remembered; the sink asks about the one that it has just
written."""


OpenStore = Callable[[int], int]
"""Opens the store of a stream, and returns the epoch that it grants: its argument, or a higher one."""


class EpochQuestion(NamedTuple):
    """A planning process that may take the group only when the store has granted an epoch.

    The epoch has to be `epoch_min` or higher. `process` is the id of the planning process.
    """

    process: str
    epoch_min: int


@dataclass(frozen=True, slots=True)
class _Grant:
    """The answer to an `EpochQuestion`: an epoch, or in `not_granted` why there is none.

    Neither: the question has no answer yet.
    """

    epoch: int = 0
    not_granted: str = ""


_NO_GRANT: Final = _Grant()


@dataclass(slots=True)
class _PlanningProcess:
    """A planning process that is connected.

    Attributes:
        process: its id.
        knows_batches: whether it was sent all published batches; before that it gets no state.
        state: what it has said last.
    """

    process: str
    knows_batches: bool = False
    state: PlannerState = field(default_factory=PlannerState)


class PlannerLink:
    """What the driver and the planning processes of one `read_stream` call have said to each other.

    Attributes:
        mark: the file that exists while a batch is run again; only its path goes to the tasks.
        status_path: the status file, where the user names no other.
        group: of the stream.
    """

    def __init__(self, folder: Path, stream: str, group: str = "") -> None:
        """Begin without a connection.

        `folder` is the application's, `stream` the id of the stream.
        """
        self.mark = mark_path(folder, stream)
        self.status_path = folder / f"{stream}.status.json"
        self.group = group
        self._state = DriverState()
        # the last batch that was published of each session, as it is sent
        self._published_frame_by_session: dict[str, bytes] = {}
        self._process_by_connection: dict[Connection, _PlanningProcess] = {}
        # dicts without values keep the order in which keys came, as sets do not
        self._processes_asking_for_workers: dict[str, None] = {}
        self._processes_with_workers: set[str] = set()
        self._processes_asking_for_trigger: dict[str, None] = {}
        self._trigger_by_process: dict[str, str] = {}
        self._open_store: OpenStore | None = None  # None: no store takes the rows
        self._epoch_min_by_process: dict[str, int] = {}  # of an `EpochQuestion`
        self._grant_by_process: dict[str, _Grant] = {}
        # the last of the driver's `pauses` in which Spark has ended its last batch
        self._last_idle_pause = 0
        self._request_count = 0  # of requests to end
        self._drained_end = 0  # the last of them for which nothing was left to do
        self._batches_run_again: dict[str, None] = {}  # by `batch_name`, the oldest first
        self._lock = threading.Lock()  # held for moments, never while something is sent

    # -- what the driver says

    def put_published(
        self,
        plan: BatchPlan,
        not_acked: Sequence[NotAcked] | None = None,
        damaged: Sequence[DamagedRun] = (),
        held: Sequence[SourceRun] | None = (),
    ) -> None:
        """Send all planning processes that a batch is published; nothing, if it has no positions.

        Args:
            plan: the batch.
            not_acked: its roots that are not acked; None: unknown, or nobody needs them.
            damaged: runs of offsets that could not be read, for which the query is to end.
            held: roots of which Spark's state holds tuples; None: unknown.
        """
        # no root is in it, so no process waits for its publication
        if not plan.ranges:
            return
        published = Published(
            None if not_acked is None else tuple(not_acked),
            tuple(damaged),
            None if held is None else tuple(held),
        )
        name = batch_name(plan.session, plan.ranges)
        frame = to_frame(BatchPublished(plan.session, name, published))
        with self._lock:
            keep_last_of_session(self._published_frame_by_session, plan.session, frame)
            connections = tuple(self._process_by_connection)
        for connection in connections:
            self._send_published(connection, plan.session)

    def set_follower_failure(self, failure: str | None) -> None:
        """Send whether a follower, a thread of the driver, publishes the stream's batches.

        `failure` is why it cannot; empty: it does; None: there is no follower.
        """
        self._change_state(lambda state: replace(state, follower=failure))

    @property
    def follower_failure(self) -> str | None:
        """Why the stream's follower failed, empty while it has not; None: there is none."""
        return self._state.follower

    def put_cores(self, cores: int) -> None:
        """Send how many cores the application has now: executors come and go."""
        self._change_state(lambda state: replace(state, cores=cores))

    def deactivate(self, *, for_good: bool = False) -> None:
        """Send that no batch is to be planned, as Storm's deactivate.

        `for_good`: Spark may not run a batch without records either, so that whoever ends the
        query interrupts no batch. Where bolts tick, Spark runs such batches all the time.
        """
        self._change_state(
            lambda state: replace(
                state,
                is_inactive=True,
                is_for_good=for_good or state.is_for_good,
                pauses=state.pauses + 1,
            )
        )

    def activate(self) -> None:
        """Send that batches are to be planned again."""
        self._change_state(lambda state: replace(state, is_inactive=False, is_for_good=False))

    @property
    def is_inactive(self) -> bool:
        """Whether no batch is to be planned."""
        return self._state.is_inactive

    @property
    def is_idle(self) -> bool:
        """Whether the topology is inactive and nothing of it runs."""
        return self._state.is_inactive and self._last_idle_pause == self._state.pauses

    def request_end(self) -> None:
        """Send that the query ends once all that is before the present ends of its inputs is done.

        `is_drained` shows when that is so.
        """
        self._request_count += 1
        end_number = self._request_count
        self._change_state(lambda state: replace(state, end_number=end_number))

    def drop_request(self) -> None:
        """Send that a query which starts from now on reads without end."""
        self._change_state(lambda state: replace(state, end_number=0))

    @property
    def end_number(self) -> int:
        """The number of the request to end that holds; 0: none does."""
        return self._state.end_number

    @property
    def is_drained(self) -> bool:
        """Whether nothing is left to do of what `request_end` was called for last."""
        return self._request_count > 0 and self._drained_end == self._request_count

    def answer_that_workers_run(self, process: str) -> None:
        """Answer a planning process that asked for workers: Spark has run a task."""
        with self._lock:
            self._processes_with_workers.add(process)
        self._send_state_to_all()

    def put_trigger(self, process: str, trigger: str) -> None:
        """Answer a planning process with the class of its query's trigger."""
        with self._lock:
            self._trigger_by_process[process] = trigger
        self._send_state_to_all()

    def expect_store(self, open_store: OpenStore) -> None:
        """Send that a store takes the stream's rows.

        A planning process then asks for an epoch before it takes the group. `open_store` opens
        it; of several calls that of the last one counts.
        """
        self._open_store = open_store
        self._change_state(lambda state: replace(state, has_store=True))

    @property
    def has_store(self) -> bool:
        """Whether a store takes the stream's rows."""
        return self._state.has_store

    def epoch_questions(self) -> list[EpochQuestion]:
        """Return the questions for an epoch that have no answer yet."""
        with self._lock:
            return [
                EpochQuestion(process, epoch_min)
                for process, epoch_min in self._epoch_min_by_process.items()
                if process not in self._grant_by_process
            ]

    def grant_epoch(self, question: EpochQuestion) -> None:
        """Open the store for a planning process.

        Answer with the epoch that the store grants, or with the error. It takes as long as the
        store
        does.
        """
        # the answer if something else is raised than a WindhoverError
        grant = _Grant(not_granted="the driver has ended the attempt; see its log")
        try:
            grant = self._grant_of_store(question.epoch_min)
        except WindhoverError as error:
            grant = _Grant(not_granted=f"{type(error).__name__}: {error}")
        finally:  # in any case: without an answer the query would wait for minutes
            with self._lock:
                self._grant_by_process[question.process] = grant
            self._send_state_to_all()

    def _grant_of_store(self, epoch_min: int) -> _Grant:
        """Open the store, and return what it grants; `WindhoverError`: it cannot be opened."""
        if self._open_store is None:
            raise Unreachable("the driver has no store for this stream")
        return _Grant(epoch=self._open_store(epoch_min))

    def _change_state(self, changed: Callable[[DriverState], DriverState]) -> None:
        """Change the driver's state, and send it if it is another one than before.

        Call it without `_lock`: frames are made under that lock, too.
        """
        with self._lock:
            new_state = changed(self._state)
            if new_state == self._state:
                return
            self._state = new_state
        self._send_state_to_all()

    def _send_state_to_all(self) -> None:
        """Send each planning process the driver's state, with the answers to its own questions."""
        with self._lock:
            connections = tuple(self._process_by_connection)
        for connection in connections:
            self._send_state(connection)

    def _send_state(self, connection: Connection) -> None:
        """Send one planning process the driver's state, unless it has ended."""
        with suppress(OSError):  # the thread of the connection sees it, and handles it
            connection.send(lambda: self._state_frame(connection))

    def _send_published(self, connection: Connection, session: str) -> None:
        """Send one planning process the last published batch of a session."""
        with suppress(OSError):
            connection.send(lambda: self._published_frame_by_session.get(session, b""))

    def _state_frame(self, connection: Connection) -> bytes:
        """Return the frame with the driver's state for one planning process.

        Empty: the process has gone, or is sent the published batches first (`add_connection`).
        """
        with self._lock:
            receiver = self._process_by_connection.get(connection)
            if receiver is None or not receiver.knows_batches:
                return b""
            connected_processes = self._process_by_connection.values()
            # one process may have two connections for a moment: its own are none of others
            others = [other for other in connected_processes if other.process != receiver.process]
            grant = self._grant_by_process.get(receiver.process, _NO_GRANT)
            state = replace(
                self._state,
                has_workers=receiver.process in self._processes_with_workers,
                others_run_again=any(other.state.runs_again for other in others),
                granted_epoch=grant.epoch,
                not_granted=grant.not_granted,
                trigger=self._trigger_by_process.get(receiver.process, ""),
            )
            return to_frame(state)

    # -- what the planning processes say

    def add_connection(self, connection: Connection, process: str) -> None:
        """Send a planning process that has connected the published batches, then the state.

        From then on it gets every change.
        """
        planning_process = _PlanningProcess(process)
        with self._lock:
            self._process_by_connection[connection] = planning_process
            sessions = tuple(self._published_frame_by_session)
        for session in sessions:
            self._send_published(connection, session)
        # The state comes last, also if it changes meanwhile: a process that has it has all batches.
        planning_process.knows_batches = True
        self._send_state(connection)

    def remove_connection(self, connection: Connection) -> None:
        """Remove a planning process that has gone; the batches that it ran again are remembered."""
        with self._lock:
            process = self._process_by_connection.pop(connection, None)
        if process is not None and process.state.runs_again:
            # now others may remove the mark
            self._send_state_to_all()

    def handle_frame(self, connection: Connection, frame: bytes) -> None:
        """Keep what a planning process says.

        `ValueError`: the frame is no message of such a process.
        """
        state = from_frame(frame)
        if not isinstance(state, PlannerState):
            raise ValueError(f"a planning process says {type(state).__name__}")
        with self._lock:
            sender = self._process_by_connection.get(connection)
            if sender is None:
                return
            former_state = sender.state
            sender.state = state
            # of two processes the older one may send a lower number later
            self._last_idle_pause = max(self._last_idle_pause, state.idle_pause)
            self._drained_end = max(self._drained_end, state.drained_end)
            if state.asks_for_workers:
                self._processes_asking_for_workers[sender.process] = None
            if state.asks_for_trigger:
                self._processes_asking_for_trigger[sender.process] = None
            if state.asks_for_epoch:
                self._epoch_min_by_process[sender.process] = state.asks_for_epoch
            if state.runs_again:
                self._batches_run_again[state.runs_again] = None
            while len(self._batches_run_again) > AGAIN_MAX:
                oldest_batch = next(iter(self._batches_run_again))
                del self._batches_run_again[oldest_batch]
        if former_state.runs_again != state.runs_again:
            # others keep the mark while this one runs a batch again
            self._send_state_to_all()

    def processes_waiting_for_workers(self) -> list[str]:
        """Return the ids of the planning processes that wait for Spark's first task.

        Those that have an answer are left out.
        """
        with self._lock:
            return [
                process
                for process in self._processes_asking_for_workers
                if process not in self._processes_with_workers
            ]

    def processes_waiting_for_trigger(self) -> list[str]:
        """Return the ids of the planning processes that wait for their query's trigger."""
        with self._lock:
            return [
                process
                for process in self._processes_asking_for_trigger
                if process not in self._trigger_by_process
            ]

    def runs_again(self, plan: BatchPlan) -> bool:
        """Return whether a batch was planned by another process than the one that runs it.

        Before, the messages that have arrived are handled. The answer is of the batch: a second
        planning process that comes or goes changes nothing.
        """
        with self._lock:
            connections = tuple(self._process_by_connection)
        for connection in connections:
            with suppress(OSError, EOFError, ValueError):  # the connection's thread sees the same
                connection.handle_arrived(partial(self.handle_frame, connection))
        return batch_name(plan.session, plan.ranges) in self._batches_run_again
