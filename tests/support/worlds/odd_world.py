"""An installation in memory, with every reader that Windhover has, into whose topics others write.

Acker, replay worker and spout are stepped; the commands and the page look at the same log. A service may end
by an error of the project alone, which names the record, and which `topics repair` lets it pass: the world
does then what the error says, and starts the service again. Any other error comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Final, Literal, NamedTuple

import pytest
from starlette.testclient import TestClient

from acker.config.topics import Topics
from acker.errors import CodecError, WindhoverError
from acker.identity import source_of
from acker.kafka.port import Log, Outgoing, Record, TopicPartition
from acker.wire.codec import wire_codec
from acker.wire.events import Event, positions
from replay.handling.repair import find_unreadable, pass_over
from replay.worker.service import ReplayService
from spout.cli import check as cli_check
from spout.cli import dlq as cli_dlq
from spout.cli import inspect as cli_inspect
from spout.cli import main as cli
from spout.cli import operate as cli_operate
from spout.cli import picture as cli_picture
from spout.inspect.overview import Overview
from spout.planning.journal import Journal, batch_ranges
from spout.standalone.client import Client
from spout.ui.graph import Drivers
from spout.ui.jobs import Actions
from spout.ui.serve import LOOPBACK
from spout.ui.watch import CauseWatch, Watch
from tests.support.page_server import pages_of
from tests.support.worlds.kestrel_world import KestrelWorld
from tests.support.worlds.planning import STEP_MS, batch

SOURCE: Final = TopicPartition("sentences", 0)
REPLAY: Final = "sentences.g.replay"
LETTERS: Final = "sentences.g.dlq"
TOPICS: Final = (
    SOURCE.topic, REPLAY, LETTERS, "_ack_init", "_ack_ack", "_ack_fail", "_ack_verdict", "_ack_state",
    "_ack_due", "_ack_quarantine",
)  # fmt: skip
"""Every topic that somebody reads."""

TEXT: Final = """
acker: {partitions: 1}
inputs:
  sentences:
    id: 1
    group: g
    partitions: 1
    timeout: 4s
    max_spout_pending: 200000
    retry: {attempts: 2, initial: 100ms, max: 1s}
    dead_letter: {max_ratio: 1, max_consecutive: 1000000}
"""
"""One partition of each, so that no service has another place to go on at."""

ALWAYS_FAILS: Final = b"fails"
"""A value of which the worker fails each attempt."""

UNEXPECTED_EXIT: Final = 1
"""The exit code of a command that fell over; `check` has it for a warning."""

FIRST_SOURCE: Final = source_of(1, 0)
OPEN_AT_ONCE: Final = 1_000
"""Fewer than a client may have open."""

_SETTLING_MS: Final = 1_000
_CODEC: Final = wire_codec()


class Ended(NamedTuple):
    """A service that ended by an error of the project."""

    service: str
    error: WindhoverError


class OddWorld(KestrelWorld):
    """An installation whose services end only where they must, and are started again then.

    Attributes:
        ended: what ended meanwhile, each by an error that names a record.
        confirmed: values that the worker confirmed.
        opened: offsets of the source's records that the worker has got.
    """

    def __init__(self, text: str = TEXT) -> None:
        """Start all of it; `text` is the topics.yaml."""
        self.ended: list[Ended] = []
        self.confirmed: list[bytes | None] = []
        self.opened: set[int] = set()
        self._client: Client | None = None
        super().__init__(text)
        self.start_replays()

    # --- time, and the services

    def run(self, ms: int) -> None:
        """Let time pass for all of them; start again what ended by a record that can be passed over."""
        for _ in range(max(1, ms // STEP_MS)):
            self.cluster.now_ms += STEP_MS
            self._step_or_mend("acker", self._step_acker, self.restart_acker)
            self._step_or_mend("replay", self._step_replays, self.restart_replays)
            for planner in self.planners:
                planner.step(planner.poll(0), self.now_ms)
            for engine in self.steps:
                engine.round()

    def _step_acker(self) -> None:
        assert self.acker is not None
        self.acker.step(self.now_ms)

    def _step_replays(self) -> None:
        assert self.replays is not None
        self.replays.step(self.now_ms)

    def _step_or_mend(self, service: str, step: Callable[[], None], restart: Callable[[], None]) -> None:
        try:
            step()
        except WindhoverError as error:
            self.mend(service, error)
            restart()

    def mend(self, service: str, error: WindhoverError) -> None:
        """Do what the error of a service says: let all readers pass over the records that it names.

        Raises:
            WindhoverError: the error itself, where it names no record that can be passed over.
        """
        log = self.cluster.log()
        unmarked = [
            unreadable for unreadable in find_unreadable(log, self.topics) if not unreadable.is_marked
        ]
        named = [place for place in unmarked if str(place).partition(":")[0] in str(error)]
        if not named:
            raise error
        self.ended.append(Ended(service, error))
        pass_over(log, named, "it stops its readers", "kim")

    def restart_acker(self) -> None:
        """Let the acker die, and start another, which restores its state from the topics."""
        self.kill_acker()
        self.start_acker()

    def restart_replays(self) -> None:
        """Let the replay worker die, and start another."""
        assert self.replays is not None
        membership = self.replays._membership
        if membership is not None:  # it has stepped since it was started
            membership.vanish()  # type: ignore[attr-defined]  # the in-memory one can
        self.replays = ReplayService(self.cluster.log(), self.topics, jitter=lambda: 0.0)

    def restart_all(self) -> None:
        """Start every service again, as after a loss of power."""
        if self._client is not None:
            self.kill_spout()
            self._client = None
        self.planners.clear()
        self.restart_acker()
        self.restart_replays()

    # --- records

    def write(self, values: Sequence[bytes], topic: str = SOURCE.topic) -> None:
        """Append sound records to a topic."""
        producer = self.log.producer()
        for value in values:
            producer.send(Outgoing(topic, 0, value, b"key"))
        producer.flush(0)

    def last_record(self, topic: str) -> Record | None:
        """Return the newest record of a topic that has a value."""
        records = [record for record in self.records(topic) if record.value is not None]
        return records[-1] if records else None

    def work(self, rounds: int) -> None:
        """Open and settle by a spout whatever comes: confirm it, or fail what always fails."""
        for _ in range(rounds):
            try:
                self._settle_what_comes()
                self.run(_SETTLING_MS)
            except WindhoverError as error:
                self.mend("spout", error)
                # what was confirmed before is published: a spout has a thread of its own for that
                self.latest.publish()
                self.kill_spout()
                self._client = None

    def _settle_what_comes(self) -> None:
        if self._client is None:
            self._client = self.spout().client("worker")
        items = self._client.open(OPEN_AT_ONCE)
        self.opened |= {item["offset"] for item in items if item["topic"] == SOURCE.topic}
        failing = [item for item in items if item["value"] == ALWAYS_FAILS]
        sound = [item for item in items if item["value"] != ALWAYS_FAILS]
        if failing:
            self._client.fail(failing, "ValueError: it always fails")
        if sound:
            self._client.confirm(sound)
            self.confirmed += [item["value"] for item in sound]

    def work_as_query(
        self, start: Journal, batches: int, is_failing: Callable[[int], bool] = lambda _: False
    ) -> Journal:
        """Plan and publish batches as a query does; return the last offset.

        All roots are acked, but those of the source whose positions fail.
        """
        for _ in range(batches):
            try:
                planner = self.planners[-1] if self.planners else self.ready(start)
                end = batch(planner, start, self)
                of_source = [run for run in batch_ranges(start, end) if run.source == FIRST_SOURCE]
                emitted = chain.from_iterable(range(run.start, run.end) for run in of_source)
                self.publish(start, end, fail=[position for position in emitted if is_failing(position)])
                start = end
                self.run(_SETTLING_MS)
            except WindhoverError as error:
                self.mend("query", error)
                self.planners.clear()
        return start

    # --- what became of it

    def roots(self, outcome: Literal["acked", "lost"]) -> set[tuple[int, int]]:
        """Return source and position of each root that was acked, or that was lost."""
        if outcome == "acked":
            runs = [run for verdicts in self.verdicts() for run in verdicts.acked]
            return {(run.source, position) for run in runs for position in range(run.start, run.end)}
        lost_together = [lost for verdicts in self.verdicts() for lost in verdicts.lost]
        return {
            (lost.source, position)
            for lost in lost_together
            for position in positions(lost.positions).tolist()
        }

    def _events(self, topic: str) -> list[Event]:
        events: list[Event] = []
        for record in self.records(topic):
            try:
                events.append(_CODEC.decode(record.value))
            except CodecError:
                continue  # an odd one
        return events

    # --- who looks

    @contextmanager
    def commands(self) -> Iterator[None]:
        """Let the commands look at this world."""

        @contextmanager
        def opened(_config: Path, _command: str) -> Iterator[tuple[Topics, Log]]:
            yield self.topics, self.cluster.log()

        with pytest.MonkeyPatch.context() as monkeypatch:
            for module in (cli, cli_check, cli_dlq, cli_inspect, cli_operate, cli_picture):
                monkeypatch.setattr(module, "opened", opened)
            for module in (cli_check, cli_dlq, cli_inspect, cli_picture):
                monkeypatch.setattr(module, "wall_ms", lambda: self.now_ms)
            yield

    def pages(self, paths: Sequence[str]) -> Mapping[str, int]:
        """Ask the page for each path; return its answers' codes."""
        with (
            closing(Overview(self.cluster.log(), self.topics)) as overview,
            closing(CauseWatch(self.cluster.log(), self.topics)) as causes,
        ):
            watch = Watch(overview.snapshot, self.topics, lambda: self.now_ms, causes.read, causes.rates)
            watch.read()
            pages, jobs = pages_of(self, watch, None, Actions("token", "kim"), Drivers((), lambda _: ()))
            client = TestClient(pages.application(LOOPBACK), base_url="http://localhost")
            try:
                return {path: client.get(path).status_code for path in paths}
            finally:
                jobs.close()
