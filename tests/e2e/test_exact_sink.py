"""A query that writes exactly once, whose driver is killed between each two steps, or stopped, or slow.

The store is the judge.
"""

from __future__ import annotations

import itertools
import json
import signal
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from acker.config.topics import Topics, load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import TopicPartition
from tests.support.bolts.exact_sink_job import COLUMNS, DATABASE, INPUT_OF_ROWS, KAFKA, SQLITE, TABLE, Point
from tests.support.brokers import Broker
from tests.support.programs import running
from tests.support.servers.postgres import postgres
from tests.support.waiting import committed
from tests.support.worlds.stream_worlds import config_of, produce_lines, serving
from tests.torture.stage.family import family_of, is_stopped, signal_all

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.by_turns]

LINES = 240
INPUT = (
    '  lines: {{id: 99, topic: "{prefix}lines", group: "{prefix}lines", partitions: 2, timeout: 60s,'
    " retry: {{attempts: 3, initial: 100ms, multiplier: 1, max_abandoned: 100}},"
    " dead_letter: {{max_ratio: 1}}}}"
)
# nobody reads it but the test: it has a topic for the rows
ROWS_INPUT = '  rows: {{id: 98, topic: "{prefix}rows", group: "{prefix}rows", partitions: 2}}'
SELECT = f"SELECT line, evaluation, ordinal, rows FROM {TABLE}"
POINTS = [point for point in Point if point not in (Point.NOWHERE, Point.STOPPED, Point.ASLEEP)]
"""Where it is killed."""


class StoredRow(NamedTuple):
    """A row that the bolt has emitted: which evaluation of the line, and which of its rows."""

    evaluation: str
    ordinal: int
    rows: int


def lines_of(number: int) -> list[str]:
    """Return lines: a tenth fails always, a tenth every second time or so."""
    kinds = itertools.cycle(["bad", "flaky", *["good"] * 8])
    return [f"{kind} {n}" for n, kind in zip(range(number), kinds, strict=False)]


class Sink(NamedTuple):
    """A store of the query: what names it to the job, and what reads line, evaluation, ordinal, rows back."""

    argument: str
    read: Callable[[], list[tuple[Any, ...]]]


@contextmanager
def in_sqlite(topics: Topics, folder: Path) -> Iterator[Sink]:
    """Make a table in a file."""
    with closing(sqlite3.connect(folder / DATABASE)) as connection:
        connection.execute(f"CREATE TABLE {TABLE} ({COLUMNS})")
        yield Sink(SQLITE, lambda: connection.execute(SELECT).fetchall())


@contextmanager
def in_kafka(topics: Topics, folder: Path) -> Iterator[Sink]:
    """Write into the topic of an input, of which committed records count."""
    topic = topics.input(INPUT_OF_ROWS).topic
    with closing(KafkaLog(topics.kafka)) as log:

        def read() -> list[tuple[Any, ...]]:
            records = committed(log, [TopicPartition(topic, part) for part in range(2)])
            rows = [json.loads(record.value or b"") for record in records]
            return [(row["line"], row["evaluation"], row["ordinal"], row["rows"]) for row in rows]

        yield Sink(KAFKA, read)


@contextmanager
def in_postgres(topics: Topics, folder: Path) -> Iterator[Sink]:
    """Make a table in a server of this test's own."""
    with postgres() as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {TABLE} ({COLUMNS})")
        yield Sink(dsn, lambda: connection.execute(SELECT).fetchall())


MakeSink = Callable[[Topics, Path], AbstractContextManager[Sink]]


def rows_by_line_of(rows: Iterable[tuple[Any, ...]]) -> dict[str, list[StoredRow]]:
    """Return the rows of each line."""
    rows_by_line: dict[str, list[StoredRow]] = defaultdict(list)
    for line, *row in rows:
        rows_by_line[line].append(StoredRow(*row))
    return rows_by_line


def wrong_lines(lines: Sequence[str], dead: set[str], rows_by_line: dict[str, list[StoredRow]]) -> list[str]:
    """Return the lines of which the store has something else than the rows of one evaluation, or none."""
    wrong: list[str] = []
    for line in lines:
        rows = sorted(rows_by_line.get(line, []))
        if line in dead:
            is_right = not rows
        else:
            evaluations = {row.evaluation for row in rows}
            is_whole = bool(rows) and [row.ordinal for row in rows] == list(range(rows[0].rows))
            is_right = len(evaluations) == 1 and is_whole
        if not is_right:
            wrong.append(f"{line}: {rows}{' and a dead letter' if line in dead else ''}")
    return wrong


def produced_lines(topics: Topics) -> list[str]:
    """Write the lines, and return them."""
    lines = lines_of(LINES)
    with closing(KafkaLog(topics.kafka)) as log:
        produce_lines(log, topics.input("lines").topic, lines)
    return lines


def dead_lines(topics: Topics) -> set[str]:
    """Return the lines that are dead letters."""
    letters = [TopicPartition(topics.input("lines").dead_letter.topic, part) for part in range(2)]
    with closing(KafkaLog(topics.kafka)) as log:
        return {(record.value or b"").decode() for record in committed(log, letters)}


def job_of(folder: Path, checkpoint: Path, point: Point, sink: Sink) -> tuple[str | Path, ...]:
    """Return the arguments of Python that run the query once."""
    config = folder / "topics.yaml"
    return "-m", "tests.support.bolts.exact_sink_job", config, folder, checkpoint, point, sink.argument


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("is_fresh", [False, True], ids=["same checkpoint", "fresh checkpoint"])
@pytest.mark.parametrize("make_sink", [in_sqlite, in_kafka, in_postgres], ids=["sqlite", "kafka", "postgres"])
def test_each_acked_record_is_in_the_store_once_wherever_the_driver_is_killed(
    make_sink: MakeSink, is_fresh: bool, broker: Broker, tmp_path: Path
) -> None:
    """D3202: each start is killed at another point, and finds what the one before has left."""
    config = config_of(tmp_path, broker, [], INPUT, ROWS_INPUT)
    topics = load_topics(config, {})
    lines = produced_lines(topics)
    with make_sink(topics, tmp_path) as sink, serving(config, "acker", "replay"):
        for number, point in enumerate([*POINTS, Point.NOWHERE]):
            checkpoint = tmp_path / f"checkpoint{number if is_fresh else ''}"
            with running(job_of(tmp_path, checkpoint, point, sink), tmp_path / f"log{number}") as job:
                code = job.ended()
            expected = 0 if point is Point.NOWHERE else -signal.SIGKILL
            assert code == expected, (point, job.said[-4_000:])
        dead = dead_lines(topics)
        rows_by_line = rows_by_line_of(sink.read())
    assert wrong_lines(lines, dead, rows_by_line) == []
    assert {line for line in lines if line.startswith("bad")} <= dead
    assert all(not line.startswith("good") for line in dead)


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("is_fresh", [False, True], ids=["same checkpoint", "fresh checkpoint"])
@pytest.mark.parametrize("make_sink", [in_sqlite, in_kafka, in_postgres], ids=["sqlite", "kafka", "postgres"])
def test_a_driver_that_was_stopped_when_a_batch_was_settled_commits_nothing_behind_another_one(
    make_sink: MakeSink, is_fresh: bool, broker: Broker, tmp_path: Path
) -> None:
    """D3251: it goes on when the other one has written everything, and ends by name."""
    config = config_of(tmp_path, broker, [], INPUT, ROWS_INPUT)
    topics = load_topics(config, {})
    lines = produced_lines(topics)
    checkpoints = [tmp_path / "checkpoint0", tmp_path / f"checkpoint{int(is_fresh)}"]
    with make_sink(topics, tmp_path) as sink, serving(config, "acker", "replay"):
        first = job_of(tmp_path, checkpoints[0], Point.STOPPED, sink)
        with running(first, tmp_path / "log0") as sleeper, ExitStack() as stack:
            sleeper.until(lambda: is_stopped(sleeper.pid))
            family = family_of(sleeper.pid)
            stack.callback(signal_all, family, signal.SIGCONT)
            signal_all(family, signal.SIGSTOP)
            second = job_of(tmp_path, checkpoints[1], Point.NOWHERE, sink)
            with running(second, tmp_path / "log1") as successor:
                assert successor.ended() == 0, successor.said[-4_000:]
            stack.close()
            assert sleeper.ended() == 1, sleeper.said[-4_000:]
        dead = dead_lines(topics)
        rows_by_line = rows_by_line_of(sink.read())
    assert wrong_lines(lines, dead, rows_by_line) == []
    assert "StoreFenced" in sleeper.said


@pytest.mark.timeout(600)
def test_a_batch_that_takes_longer_than_its_roots_may_be_pending_is_written_once(
    broker: Broker, tmp_path: Path
) -> None:
    """D3208: between settling and commit no root times out."""
    config = config_of(tmp_path, broker, [], INPUT.replace("60s", "3s"), ROWS_INPUT)
    topics = load_topics(config, {})
    lines = produced_lines(topics)
    with in_sqlite(topics, tmp_path) as sink, serving(config, "acker", "replay"):
        with running(job_of(tmp_path, tmp_path / "checkpoint", Point.ASLEEP, sink), tmp_path / "log") as job:
            assert job.ended() == 0, job.said[-4_000:]
        dead = dead_lines(topics)
        rows_by_line = rows_by_line_of(sink.read())
    assert wrong_lines(lines, dead, rows_by_line) == []
