"""What the listener makes of Spark's progress, without Spark."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from acker.errors import Unreachable
from acker.wire.events import SourceRun
from spout.planner.mailbox import Mailbox, SinkWatch
from spout.planning.journal import Journal, SourceMark
from spout.publishing.ledger import Reports
from spout.publishing.publish import BATCH_SKIPPED, Publication
from spout.sinks.query_listener import QueryListener, batch_journal
from spout.streaming.application import Application, Stream

SOURCE = 1 << 16
OTHER = {"startOffset": '{"topic":{"0":5}}', "endOffset": '{"topic":{"0":9}}'}


def offset(end: int, *ranges: SourceRun, session: str = "s") -> Journal:
    """Make the offset behind a batch."""
    return Journal(session, 1, 7, 2, MappingProxyType({SOURCE: SourceMark(0, end)}), ranges)


FIRST, SECOND = offset(10, SourceRun(SOURCE, 0, 10)), offset(15, SourceRun(SOURCE, 10, 15))


def progress(batch: int, start: Journal | None, end: Journal) -> dict[str, Any]:
    """Make what Spark reports of a batch, with a source that is not ours."""
    ours = {"startOffset": start and json.dumps(start.to_json()), "endOffset": json.dumps(end.to_json())}
    return {"id": "q", "runId": "r", "batchId": batch, "sources": [OTHER, ours]}


def test_the_batch_of_a_tracked_stream_is_found_among_other_sources() -> None:
    assert batch_journal(progress(0, None, FIRST)) == FIRST
    assert batch_journal(progress(1, FIRST, SECOND)) == SECOND
    assert batch_journal(progress(2, SECOND, SECOND)) is None, "a batch without data"
    assert batch_journal(progress(0, None, offset(10, session=""))) is None, "without tracking"
    assert batch_journal({"sources": [OTHER]}) is None


class FakeLedger:
    """A ledger to which no task has added anything."""

    def __init__(self) -> None:
        self.forgotten: list[str] = []

    def streams(self, query: str, batch: int) -> frozenset[str]:
        """Return no streams."""
        return frozenset()

    def read(self, query: str, batch: int, without: Collection[str] = ()) -> Reports:
        """Return no reports."""
        return Reports(frozenset(), (), untracked=False)

    def forget(self, query: str, batch: int) -> None:
        """Forget nothing."""

    def forget_all(self, query: str) -> None:
        """Note the query that is forgotten."""
        self.forgotten.append(query)


class KeepingPublisher:
    """Keeps what is published; says that Kafka is away when it is told to."""

    def __init__(self) -> None:
        self.published: list[Publication] = []
        self.is_away = False

    def publish(self, publication: Publication, partitions: int) -> None:
        """Keep it."""
        if self.is_away:
            raise Unreachable("no broker")
        self.published.append(publication)


class World:
    """A listener that follows one run of a query."""

    def __init__(self, folder: Path) -> None:
        self.publisher = KeepingPublisher()
        self.stream = Stream("stream", "g", True, 4, self.publisher, None)  # type: ignore[arg-type]
        self.application = Application.__new__(Application)
        self.ledger = FakeLedger()
        self.application.ledger = self.ledger  # type: ignore[assignment]
        self.application.streams = {"stream": self.stream}
        self.application.started, self.application.sunk = {}, set()
        self.application._folder = SimpleNamespace(name=str(folder))  # type: ignore[assignment]
        self.listener = QueryListener(self.application)
        self.watch = SinkWatch(Mailbox(folder, "stream", "g"))
        self.listener.start(self.stream, lambda: SimpleNamespace(id="q", runId="r"))  # type: ignore[arg-type, return-value]

    def report(self, batch: int, start: Journal | None, end: Journal) -> None:
        """Let Spark report a batch."""
        told = progress(batch, start, end)
        event = SimpleNamespace(progress=SimpleNamespace(runId="r", json=json.dumps(told)))
        self.listener.onQueryProgress(event)  # type: ignore[arg-type]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A listener over an empty folder."""
    return World(tmp_path)


def test_a_first_batch_that_no_task_read_was_written_before_and_fails_its_roots(
    world: World, tmp_path: Path
) -> None:
    """A file sink that runs a batch again skips it: what its bolts did in the first run is not known."""
    world.report(3, FIRST, SECOND)
    [publication] = world.publisher.published
    assert [cause.error for record in publication.fails for cause in record.causes] == [BATCH_SKIPPED]
    assert publication.acks == ()
    assert Mailbox(tmp_path, "stream", "g").published("s", SECOND.ranges)
    assert world.stream.queries == {"q"}


def test_a_later_batch_that_no_task_read_stops_the_query(world: World) -> None:
    world.report(0, None, FIRST)
    world.report(1, FIRST, SECOND)
    assert len(world.publisher.published) == 1
    assert "none of its records was read" in str(world.watch.failure())


def test_what_the_publisher_raises_reaches_the_planning_process(world: World, tmp_path: Path) -> None:
    world.publisher.is_away = True
    world.report(0, None, FIRST)
    assert "batch 0 of group g was written, and could not be published" in str(world.watch.failure())
    assert "no broker" in str(world.watch.failure())
    assert not Mailbox(tmp_path, "stream", "g").published("s", FIRST.ranges)


def test_a_batch_without_data_or_of_a_run_with_a_sink_of_ours_is_left_alone(world: World) -> None:
    world.report(0, FIRST, FIRST)
    world.application.sunk.add("r")
    world.report(1, FIRST, SECOND)
    assert (world.publisher.published, world.watch.failure()) == ([], None)


def test_a_run_that_has_ended_is_followed_no_more(world: World) -> None:
    assert world.application.started.keys() == {"q"}
    world.listener.onQueryTerminated(SimpleNamespace(id="q", runId="r"))  # type: ignore[arg-type]
    assert world.application.started == {}
    assert world.ledger.forgotten == ["q"], "what its tasks reported of a batch that failed"
    world.report(0, None, FIRST)
    assert world.publisher.published == []
    assert world.watch.failure() is None


def test_the_end_of_a_run_forgets_nothing_of_the_next_run_of_its_query(world: World) -> None:
    world.listener.start(world.stream, lambda: SimpleNamespace(id="q", runId="r2"))  # type: ignore[arg-type, return-value]
    world.listener.onQueryTerminated(SimpleNamespace(id="q", runId="r"))  # type: ignore[arg-type]
    assert world.ledger.forgotten == []
