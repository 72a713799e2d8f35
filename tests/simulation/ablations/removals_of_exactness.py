"""How the safeguards of exactly once are taken out. See `removals`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

import spout.exactly_once.writer
from acker.root_sets.root_set import RootSet
from spout.exactly_once.publication_bytes import unpacked_publication
from spout.exactly_once.rooted_rows import RootedRows
from spout.exactly_once.store import BatchKey
from spout.exactly_once.writer import ExactWriter, SettledBatch
from spout.group.running_session import RunningSession
from spout.publishing.fold import BatchOutcome, TaskReport
from spout.publishing.publish import PublicationRecords
from tests.simulation.truth.facts import SinkRow
from tests.simulation.world.exact_store import ExactStore

Replaced = list[tuple[Any, str, Any]]


def fence() -> Replaced:
    """Let every writer commit, whoever has opened the store since."""

    def refuse_fenced(self: ExactStore, key: BatchKey) -> None:
        pass

    return [(ExactStore, "refuse_fenced", refuse_fenced)]


def publication_kept() -> Replaced:
    """Commit the rows alone."""

    def commit(self: ExactStore, key: BatchKey, rows: pa.Table, publication: bytes) -> None:
        self.refuse_fenced(key)
        self._tell([SinkRow(**row) for row in rows.to_pylist()])

    return [(ExactStore, "commit", commit)]


def not_acked() -> Replaced:
    """Write the rows of all roots of a batch."""

    def acked_roots(outcome: BatchOutcome) -> RootSet:
        return RootSet.of_runs(outcome.plan.ranges)

    return [(spout.exactly_once.writer, "acked_roots", acked_roots)]


def open_contribute() -> Replaced:
    """Let a root that was left open contribute what was done of it."""

    def without_open(outcome: BatchOutcome) -> BatchOutcome:
        return outcome

    return [(spout.exactly_once.writer, "without_open", without_open)]


def clock() -> Replaced:
    """Let the clock move while a batch is under way."""

    def stop_clock(self: RunningSession, now_ms: int) -> None:
        pass

    return [(RunningSession, "stop_clock", stop_clock)]


def ran_twice() -> Replaced:
    """Write whatever rows come, though a task reported twice."""

    def refuse_repeated_tasks(reports: Iterable[TaskReport]) -> None:
        pass

    return [(spout.exactly_once.writer, "refuse_repeated_tasks", refuse_repeated_tasks)]


class _PublishesFirst:
    """A store that publishes a batch before it commits."""

    def __init__(self, writer: ExactWriter) -> None:
        self._writer = writer
        self._store = writer._store

    def commit(self, key: BatchKey, rows: pa.Table, publication: bytes) -> None:
        self._writer._publish(unpacked_publication(publication))
        self._store.commit(key, rows, publication)


def committed_first() -> Replaced:
    """Publish a batch before the store has it."""
    original = ExactWriter.commit

    def commit(self: ExactWriter, batch: SettledBatch, rows: RootedRows) -> PublicationRecords:
        store = self._store
        self._store = _PublishesFirst(self)  # type: ignore[assignment]
        try:
            return original(self, batch, rows)
        finally:
            self._store = store

    return [(ExactWriter, "commit", commit)]
