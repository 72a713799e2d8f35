"""A group in memory that is written exactly once into a file: acker, replay worker, and starts of the query.

The rows of a record are its words. A word that is named as bad fails its record, after its rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from acker.identity import is_replay, offset_of, partition_of
from acker.kafka.port import Outgoing, Record, TopicPartition
from acker.wire.events import SourceRun
from spout.exactly_once.rooted_rows import RootedRows
from spout.exactly_once.sqlite_store import SQLiteStore
from spout.exactly_once.writer import ExactWriter, SettledBatch
from spout.inspect.operate import GroupSession
from spout.planning.journal import BEGINNING, Journal, batch_ranges
from spout.publishing.publish import PublicationRecords, Publisher
from spout.streaming.options import plan_between
from spout.tuples.failures import Cause
from tests.support.outcomes import outcome_from
from tests.support.worlds.planning import FLUSH_MS, World, batch, yaml_of

ROUNDS_MAX = 100
BAD_WORD = "ValueError"
YAML = yaml_of(timeout="60s", retry="{attempts: 2, initial: 100ms, jitter: 0, max_abandoned: 2}")


class ExactWorld(World):
    """One cluster, one acker, one replay worker, and a store.

    Attributes:
        store: the file; whoever copies it has a backup.
        bad_words: those for which a record fails.
    """

    def __init__(self, folder: Path, text: str = YAML) -> None:
        """Make the store."""
        super().__init__(text)
        self.start_replays()
        self.store = folder / "store.sqlite"
        self.bad_words: set[str] = set()
        self._batches = 0
        self.make_store()

    def make_store(self) -> None:
        """Make the table of the rows, in a file that is not there."""
        with closing(sqlite3.connect(self.store)) as connection, connection:
            connection.execute("CREATE TABLE words (word TEXT, line TEXT)")

    def produce_words(self, *lines: str) -> None:
        """Append a record for each line."""
        producer = self.log.producer()
        for line in lines:
            producer.send(Outgoing("sentences", 0, line.encode()))
        producer.flush(FLUSH_MS)

    def words(self) -> list[str]:
        """Return what the store has, ascending."""
        with closing(sqlite3.connect(self.store)) as connection:
            return [word for (word,) in connection.execute("SELECT word FROM words ORDER BY 1")]

    def letters(self) -> list[str]:
        """Return the dead letters, in their order; what has no value marks those that were handled."""
        return [record.value.decode() for record in self.records("sentences.g.dlq") if record.value]

    def records(self, topic: str) -> list[Record]:
        """Return the committed records of a topic."""
        reader = self.log.reader(committed=True)
        reader.assign({TopicPartition(topic, partition): 0 for partition in range(2)})
        return list(reader.poll(0, 10_000))

    def copies(self) -> list[Record]:
        """Return the copies of lost records, in their order."""
        return self.records("sentences.g.replay")

    def next_batch(self) -> int:
        """Return a number that no batch has had."""
        self._batches += 1
        return self._batches

    def past_the_store(self, operation: GroupSession) -> None:
        """Step an operation on the group until it is done."""
        while not operation.step(self.now_ms):
            self.run(100)
        operation.finish()


class Evaluated(NamedTuple):
    """A batch that is settled, with the rows of its evaluation."""

    batch: SettledBatch
    rows: RootedRows


class ExactStart:
    """A start of the query, with a fresh checkpoint.

    Attributes:
        planner: its planning process.
    """

    def __init__(self, world: ExactWorld, *, take_over: bool = False) -> None:
        """Open the store, and take the group."""
        self._world = world
        self._publisher = Publisher(lambda: world.log, world.topics.ack_topics)
        store = SQLiteStore(world.store, "words")
        self._writer = ExactWriter(store, "g", world.topics.ack_topics, self._publisher.write)
        self.planner = world.ready(grant_epoch=self._writer.open, take_over=take_over)
        self._end: Journal = BEGINNING

    def evaluate(self) -> Evaluated | None:
        """Plan a batch and evaluate it. None: nothing was due."""
        start, self._end = self._end, batch(self.planner, self._end, self._world)
        if not batch_ranges(start, self._end):
            return None
        partitions = self._world.topics.acker.partitions
        plan = plan_between(
            start, self._end, "g", partitions, self._world.topics.input("sentences").timeout_ms
        )
        roots: list[tuple[int, int]] = []
        rows: list[dict[str, object]] = []
        failed: list[int] = []
        absent: list[SourceRun] = []
        for source, position in _places(plan.ranges):
            line = self._line(source, position)
            if line is None:
                absent.append(SourceRun(source, position, position + 1))
                continue
            words = line.split()
            roots += [(source, position)] * len(words)
            rows += [{"word": word, "line": line} for word in words]
            if not self._world.bad_words.isdisjoint(words):
                [index] = plan.index().of(source, np.array([position])).tolist()
                failed.append(index)
        causes = ((Cause("split", BAD_WORD, "bad word"), np.array(failed, np.int64)),) if failed else ()
        outcome = outcome_from(plan, causes, tuple(absent))
        rooted = _rooted(roots, rows)
        return Evaluated(SettledBatch("q", self._world.next_batch(), outcome), rooted)

    def commit(self, evaluated: Evaluated) -> PublicationRecords:
        """Commit a batch; return what is to be published."""
        return self._writer.commit(evaluated.batch, evaluated.rows)

    def publish(self, publication: PublicationRecords) -> None:
        """Publish the batch that was committed last."""
        self._publisher.write(publication)
        self.planner.restart_clock(self._end)

    def write_all(self) -> None:
        """Write batches until nothing is open or due."""
        self.planner.stop_at_ends()
        for _ in range(ROUNDS_MAX):
            evaluated = self.evaluate()
            if evaluated is not None:
                self.publish(self.commit(evaluated))
            self._world.run(500)
            if self.planner.is_drained():
                return
        raise TimeoutError("the query is not done")

    def die(self) -> None:
        """End, wherever it is."""
        self._world.kill(self.planner)
        # until the group is free for another one
        self._world.run(10_000)

    def _line(self, source: int, position: int) -> str | None:
        """Read the record at a position; None: there is none."""
        topic = self._world.topics.input("sentences").replay_topic if is_replay(source) else "sentences"
        reader = self._world.log.reader(committed=True)
        place = TopicPartition(topic, partition_of(source))
        reader.assign({place: offset_of(position)})
        for record in reader.poll(0, 1):
            if record.offset == offset_of(position):
                return (record.value or b"").decode()
        return None


def _places(ranges: Iterable[SourceRun]) -> Iterable[tuple[int, int]]:
    for run in ranges:
        for position in range(run.start, run.end):
            yield run.source, position


def _rooted(roots: list[tuple[int, int]], rows: list[dict[str, object]]) -> RootedRows:
    schema = pa.schema({"word": pa.string(), "line": pa.string()})
    sources = np.array([source for source, _ in roots], np.int64)
    positions = np.array([position for _, position in roots], np.int64)
    return RootedRows(pa.Table.from_pylist(rows, schema=schema), sources, positions)
