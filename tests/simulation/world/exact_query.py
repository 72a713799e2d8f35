"""A Spark application that writes exactly once: rows, acks and the batch's key in one transaction of a store.

Between evaluation and transaction an executor may be lost: then a task is evaluated again, and its rows come
from that evaluation, while the batch was settled by the one before.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from acker.errors import RowsChanged, UsageError
from spout.exactly_once.store import BatchKey, StoreGrant
from spout.exactly_once.writer import ExactWriter, settled_batch
from spout.group.opening import GrantEpoch
from spout.publishing.publish import BatchLane, PublicationRecords
from tests.simulation.truth.facts import SinkRow
from tests.simulation.world.exact_store import ExactStore, rooted
from tests.simulation.world.process import Process
from tests.simulation.world.query import QueryProcess, Running
from tests.support.reports import reported


class StoreClient:
    """The store as one process sees it, which may meet a fault before and after each call."""

    def __init__(self, store: ExactStore, process: Process, on_commit: Callable[[], None]) -> None:
        """See a store; `on_commit` is called in each transaction that commits."""
        self._store = store
        self._process = process
        self._on_commit = on_commit

    def open(self, group: str, epoch_min: int) -> StoreGrant:
        """Open the store."""
        self._process.before("store_open")
        grant = self._store.open(group, epoch_min)
        self._process.world.tell("store opened", self._process.name, group, grant.epoch)
        self._process.after("store_open")
        return grant

    def commit(self, key: BatchKey, rows: pa.Table, publication: bytes) -> None:
        """Commit a batch."""
        self._process.before("store_commit")
        self._store.commit(key, rows, publication)
        self._process.world.tell("stored", self._process.name, *key, rows.num_rows)
        self._on_commit()
        self._process.after("store_commit")


class ExactQueryProcess(QueryProcess):
    """One application that runs one query, with the store of its group."""

    def grant_epoch(self) -> GrantEpoch:
        """Return what opens the store, before the session takes its group."""
        self._to_publish: PublicationRecords | None = None
        self._runs_again = False
        client = StoreClient(self.world.exact_store, self, self._note_stored)
        topics = self.world.topics.ack_topics
        self._writer = ExactWriter(client, self._input.group, topics, self._publisher.write)
        return self._writer.open

    def _advance(self, running: Running) -> None:
        if self._runs_again:
            self._runs_again, running.phase = False, "read"
        else:
            super()._advance(running)

    def _read(self, running: Running) -> None:
        """Evaluate a batch of this start; what an earlier one planned has no roots that could be acked."""
        if not self._writer.is_own(running.end.epoch):
            self.world.tell("not of this start", self.name, running.batch)
            return
        super()._read(running)

    def _sink(self, running: Running) -> None:
        """Commit rows and publication; where a task reported twice, begin again."""
        outcome = running.outcome
        if outcome is None:
            return
        if running.tasks and self.world.happens("lost", self.name):
            self._lose(running, self.rng.randrange(len(running.tasks)))
        for (source, position), evaluation in running.results.items():
            self.world.truth.evaluated(running.end.session, source, position, evaluation)
        query_batch = BatchLane(self.checkpoint.query, running.batch)
        try:
            batch = settled_batch(query_batch, running.reports, lambda: outcome)
            self._to_publish = self._writer.commit(batch, rooted(_rows_of(running)))
        except RowsChanged:
            self.world.tell("rows changed", self.name, running.batch)
            running.outcome, self._runs_again = None, True

    def _lose(self, running: Running, number: int) -> None:
        """Lose the executor of a task: it runs again, its rows come from that run, and it reports again."""
        again = self._task(running.tasks[number])
        running.rows |= again.rows
        attempt = self._stage * 100 + len(running.tasks) + number
        running.reports.append(reported(self._stage, attempt, number, again.report))

    def _note_stored(self) -> None:
        """Note that what the batch under way did stands from here on."""
        running = self._running
        if running is None:
            raise UsageError("rows are stored, and no batch is under way")
        for evaluation in running.results.values():
            evaluation.written = True
        end = running.end
        self.world.remote_of(self.checkpoint.group).receive(end.session, end.epoch, running.sent)

    def _publish(self, running: Running) -> None:
        if running.outcome is None or self._to_publish is None:
            return
        self._publisher.write(self._to_publish)
        self._to_publish = None
        for evaluation in running.results.values():
            evaluation.published_at = self.world.truth.at
        self._planner.restart_clock(running.end)
        self.after("publish")


def _rows_of(running: Running) -> list[SinkRow]:
    return [row for rows in running.rows.values() for row in rows]
