"""Counts that a table keeps, of a batch that Spark runs again with other records, on a real Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import spout
from acker.config.topics import load_topics
from examples.opaque_counts import CountTable
from tests.support.bolts.fails_again import FailsAgain
from tests.support.brokers import Broker
from tests.support.servers.postgres import postgres
from tests.support.worlds.stream_worlds import (
    DEADLINE_S,
    VerdictWorld,
    config_of,
    serving,
    wait_for,
)

pytestmark = pytest.mark.slow

LINES = ("the hawk waits", "flaky the kite", "the hawk hovers", "kite")
INPUT = (
    '  lines: {{id: 9, topic: "{prefix}lines", group: "{prefix}lines", partitions: 2, timeout: 300s,'
    " retry: {{attempts: 5, initial: 100ms}}}}"
)
ADD = """
INSERT INTO plain_counts AS kept (word, count) VALUES (%s, %s)
ON CONFLICT (word) DO UPDATE SET count = kept.count + EXCLUDED.count
"""


class TwoTables:
    """The table of the example, and one that only adds; the driver dies behind the first batch."""

    def __init__(self, dsn: str) -> None:
        """Make the tables."""
        self.opaque = CountTable(dsn)
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._connection.execute("CREATE TABLE plain_counts (word text PRIMARY KEY, count bigint)")
        self._has_died = False

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch into both, and fail before it is published, once."""
        batch.persist()  # its bolts run once
        self.opaque.write(batch, batch_id)
        counts = Counter(row.word for row in batch.collect())
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.executemany(ADD, list(counts.items()))
        batch.unpersist()
        if counts and not self._has_died:
            self._has_died = True
            raise ConnectionError("the driver dies here")

    def plain_counts(self) -> dict[str, int]:
        """Return what the table has that only adds."""
        return dict(self._connection.execute("SELECT word, count FROM plain_counts").fetchall())

    def close(self) -> None:
        """Disconnect."""
        self.opaque.close()
        self._connection.close()


@pytest.fixture
def world(spark: SparkSession, broker: Broker, tmp_path: Path) -> Iterator[VerdictWorld]:
    """Make the topics, and run an acker and a replay worker for them."""
    config = config_of(tmp_path, broker, [], INPUT)
    world = VerdictWorld(load_topics(config, {}), spark, tmp_path)
    with serving(config, "acker", "replay"):
        yield world
    world.close()


def test_a_batch_that_comes_again_without_a_record_is_counted_right_and_plain_adding_is_wrong(
    world: VerdictWorld,
) -> None:
    """D3211: the line that fails in the second run of the batch comes in a later one."""
    (world.folder / "marks").mkdir()
    bolt = spout.bolt(FailsAgain(str(world.folder / "marks")), name="split")
    rows = world.read("lines").transform(bolt)
    world.produce("lines", *LINES)
    with postgres() as dsn:
        table = TwoTables(dsn)
        writer = rows.writeStream.foreachBatch(spout.sink(table.write))
        writer = writer.option("checkpointLocation", str(world.folder / "checkpoint"))
        with pytest.raises(StreamingQueryException, match="the driver dies here"):
            assert writer.start().awaitTermination(DEADLINE_S)
        query = writer.start()
        wait_for(query, lambda: world.verdicts("lines", replays=True))
        wait_for(query, lambda: list(world.verdicts("lines").values()).count("ACKED") == len(LINES) - 1)
        query.stop()
        right = Counter(word for line in LINES for word in line.split() if word != "flaky")
        assert table.opaque.counts() == right
        assert table.plain_counts() == {word: 2 * count for word, count in right.items()}
        table.close()
