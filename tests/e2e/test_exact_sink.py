"""A query that writes exactly once, whose driver is killed between each two steps; the store is the judge."""

from __future__ import annotations

import itertools
import signal
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from acker.config.topics import load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import TopicPartition
from tests.support.bolts.exact_sink_job import COLUMNS, DATABASE, TABLE, Point
from tests.support.brokers import Broker
from tests.support.programs import running
from tests.support.waiting import committed
from tests.support.worlds.stream_worlds import config_of, produce_lines, serving

pytestmark = [pytest.mark.slow, pytest.mark.spark]

LINES = 240
INPUT = (
    '  lines: {{id: 99, topic: "{prefix}lines", group: "{prefix}lines", partitions: 2, timeout: 60s,'
    " retry: {{attempts: 3, initial: 100ms, multiplier: 1, max_abandoned: 100}},"
    " dead_letter: {{max_ratio: 1}}}}"
)
POINTS = [point for point in Point if point is not Point.NOWHERE]


class StoredRow(NamedTuple):
    """A row that the bolt has emitted: which evaluation of the line, and which of its rows."""

    evaluation: str
    ordinal: int
    rows: int


def lines_of(number: int) -> list[str]:
    """Return lines: a tenth fails always, a tenth every second time or so."""
    kinds = itertools.cycle(["bad", "flaky", *["good"] * 8])
    return [f"{kind} {n}" for n, kind in zip(range(number), kinds, strict=False)]


def stored_rows(database: Path) -> dict[str, list[StoredRow]]:
    """Return the rows of each line."""
    rows_by_line: dict[str, list[StoredRow]] = defaultdict(list)
    with closing(sqlite3.connect(database)) as connection:
        for line, *row in connection.execute(f"SELECT line, evaluation, ordinal, rows FROM {TABLE}"):
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


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("is_fresh", [False, True], ids=["same checkpoint", "fresh checkpoint"])
def test_each_acked_record_is_in_the_store_once_wherever_the_driver_is_killed(
    is_fresh: bool, broker: Broker, tmp_path: Path
) -> None:
    """D3202: each start is killed at another point, and finds what the one before has left."""
    config = config_of(tmp_path, broker, [], INPUT)
    topics = load_topics(config, {})
    lines = lines_of(LINES)
    log = KafkaLog(topics.kafka)
    produce_lines(log, topics.input("lines").topic, lines)
    database = tmp_path / DATABASE
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(f"CREATE TABLE {TABLE} ({COLUMNS})")
    with serving(config, "acker", "replay"):
        for number, point in enumerate([*POINTS, Point.NOWHERE]):
            checkpoint = tmp_path / f"checkpoint{number if is_fresh else ''}"
            arguments = ("-m", "tests.support.bolts.exact_sink_job", config, tmp_path, checkpoint, point)
            with running(arguments, tmp_path / f"log{number}") as job:
                code = job.ended()
            expected = 0 if point is Point.NOWHERE else -signal.SIGKILL
            assert code == expected, (point, job.said[-4_000:])
        letters = [TopicPartition(topics.input("lines").dead_letter.topic, part) for part in range(2)]
        dead = {(record.value or b"").decode() for record in committed(log, letters)}
    log.close()
    rows_by_line = stored_rows(database)
    assert wrong_lines(lines, dead, rows_by_line) == []
    assert {line for line in lines if line.startswith("bad")} <= dead
    assert all(not line.startswith("good") for line in dead)
