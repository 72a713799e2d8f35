"""A source full of odd records, read by queries with each form of a bolt, on a real broker.

Beside the odd records lie sound ones, records that fail once or always, one that ends its process, aborted
transactions, other holes, and a damaged batch. Each record is judged by itself: it came to the sink as plain
Python says, or it is a dead letter with its bytes and its reason.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spout
from acker.config.topics import load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Headers, Outgoing, Record, TopicPartition
from acker.units import TIME_MS_MAX, TIME_MS_MIN
from replay.records.headers import ORIGIN
from spout.local.embedded import EmbeddedBroker
from tests.support.bolts import odd_bolts
from tests.support.bolts.odd_bolts import NO_TIME, POISON, fails_at, seen_of
from tests.support.brokers import Broker
from tests.support.damage import Damage, batches, spoil
from tests.support.odd_records import ODD_RECORDS, OddRecord, odd_headers, odd_record
from tests.support.raw_records import Codec, RawRecord, encode_batch, produce
from tests.support.waiting import committed, eventually
from tests.support.worlds.stream_worlds import config_of, serving

DEADLINE_S = 400.0
WAIT_MS = 30_000
SEED = 40
LARGE_BYTES = 5_000
"""A record of so many bytes is a batch of its own."""

SMALL_IN_BATCH = 4
DAMAGED_RECORDS = 20
PARTITIONS = 2
INPUT = (
    '  {name}: {{{{id: {id}, topic: "{{prefix}}odd", group: "{{prefix}}{name}", partitions: 2, timeout: 10m,'
    " on_data_loss: skip, retry: {{{{attempts: 2, initial: 100ms}}}}, dead_letter: {{{{max_ratio: 1}}}}}}}}"
)

Place = tuple[int, int]
"""Partition and offset."""


class Outcome(NamedTuple):
    """What must become of a record.

    Attributes:
        attempt: the one that is acked; 0: it is a dead letter.
        dead: why it is one.
        cause: what the cause of the letter says.
    """

    attempt: int
    dead: str = ""
    cause: str = ""


class OddSource:
    """The topic, and what lies at each of its places that can be read."""

    def __init__(self, broker: Broker, topic: str) -> None:
        assert isinstance(broker, EmbeddedBroker)
        self.topic = topic
        self.records: dict[Place, OddRecord] = {}
        self._broker = broker
        self._codecs = cycle(Codec)
        self._transactions = 0

    def write(self, partition: int, odds: Sequence[OddRecord]) -> int:
        """Write a batch; return the offset of its first record."""
        # Arrow's lz4 writes more than one block in a form that Kafka does not know
        is_large = sum(odd.record.size for odd in odds) >= LARGE_BYTES
        codec = Codec.NONE if is_large else next(self._codecs)
        batch = encode_batch([odd.record for odd in odds], codec)
        first = produce(self._broker.bootstrap, TopicPartition(self.topic, partition), batch)
        self.records |= {(partition, first + number): odd for number, odd in enumerate(odds)}
        return first

    def give_up(self, partition: int, odds: Sequence[OddRecord]) -> None:
        """Write records in a transaction that is aborted."""
        self._transactions += 1
        with closing(KafkaLog({"bootstrap.servers": self._broker.bootstrap})) as log:
            owner = log.transactions(f"{self.topic}-{self._transactions}")
            owner.init(WAIT_MS)
            owner.begin()
            for odd in odds:
                owner.send(Outgoing(self.topic, partition, odd.record.value, odd.record.key, odd.headers))
            owner.flush(WAIT_MS)
            owner.abort(WAIT_MS)
            owner.close()

    def damage(self, partition: int, first: int) -> None:
        """Damage the batch that begins at an offset, on the broker's disk."""
        place = TopicPartition(self.topic, partition)
        [batch] = [batch for batch in batches(self._broker.directory / "data", place) if batch.start == first]
        spoil(batch, Damage.VALUE)
        for offset in range(batch.start, batch.end):
            del self.records[partition, offset]


def sound(number: int) -> OddRecord:
    """Return a record of the regular kind."""
    traced = (("traceparent", b"00-%032x-%016x-01" % (number + 1, number + 1)),)
    headers: Headers = traced if number % 3 == 0 else ()
    raw = RawRecord(b"sound %d" % number, b"k%d" % (number % 5), [(n.encode(), v) for n, v in headers])
    return OddRecord("sound", raw, headers)


def fill(source: OddSource, drawn: int) -> None:
    """Write odd records of all kinds, each behind a sound one, and all that may lie beside them."""
    random_ = random.Random(SEED)
    many = odd_headers("headers_30000", [(b"h", b"1")] * 30_000, ["h"] * 30_000)
    poison = OddRecord("poison", RawRecord(POISON, b"k"), ())
    odds = [*ODD_RECORDS, many]
    small = [odd for odd in odds if odd.record.size < LARGE_BYTES]
    parts: list[list[OddRecord]] = [[odd] for odd in odds if odd.record.size >= LARGE_BYTES]
    parts += [small[at : at + SMALL_IN_BATCH] for at in range(0, len(small), SMALL_IN_BATCH)]
    # each in a batch of its own, since its time may be as far from others as can be
    parts += [[odd_record(random_)] for _ in range(drawn)]
    parts.insert(len(parts) // 2, [poison])
    copied = [odd for odd in small if odd.can_be_copied]
    for number, part in enumerate(parts):
        source.write(number % PARTITIONS, [sound(number)])
        source.write(number % PARTITIONS, part)
        if number % 10 == 3:
            source.give_up(number % PARTITIONS, list(islice(copied, number, number + 3)))
    damaged = source.write(1, [sound(number) for number in range(DAMAGED_RECORDS)])
    source.write(1, [sound(number) for number in range(DAMAGED_RECORDS)])
    source.damage(1, damaged)


def outcome_of(odd: OddRecord, origin: str, *, is_keyed: bool) -> Outcome:
    """Return what must become of a record, by what the bolts do at its place."""
    bolts = {"row": "ReadsRows", "hand": "HandsOn", "columns": "HandsColumnsOn"}
    first, second = fails_at(origin, 1), fails_at(origin, 2)
    if odd.record.value == POISON and not is_keyed:
        return Outcome(0, "ATTEMPTS", "WORKER_DIED")
    if not first:
        return Outcome(1)
    if not odd.can_be_copied:
        return Outcome(0, "UNWRITABLE", "")
    if not second:
        return Outcome(2)
    return Outcome(0, "ATTEMPTS", "" if is_keyed else bolts[second])


def time_of(odd: OddRecord) -> str:
    """Return a record's time as a tuple has it."""
    time_ms = odd.record.timestamp_ms
    if time_ms is None or not TIME_MS_MIN <= time_ms <= TIME_MS_MAX:
        return NO_TIME
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)).isoformat()


class Query:
    """A query, and what it has written."""

    def __init__(self, name: str, make_rows: Callable[[], DataFrame], folder: Path) -> None:
        self.name = name
        self.rows: list[dict[str, Any]] = []
        self._make_rows = make_rows
        self._checkpoint = str(folder / f"{name}-checkpoint")
        self.query = self._start()

    def _start(self) -> StreamingQuery:
        writer = self._make_rows().writeStream.foreachBatch(spout.sink(self._write))
        return writer.option("checkpointLocation", self._checkpoint).start()

    def check(self) -> None:
        """Raise the error of a query that has ended; start it again if the machine was too busy for Spark."""
        error = self.query.exception()
        if error is None:
            return
        if "connect back" not in str(error):
            raise error
        self.query = self._start()

    def stop(self) -> None:
        """End it."""
        self.query.stop()

    def _write(self, batch: DataFrame, _batch_id: int) -> None:
        self.rows += [row.asDict() for row in batch.collect()]


def by_each_form(spark: SparkSession, topics: spout.Topics) -> DataFrame:
    """Read by row, by hand and in columns, with headers and traces."""
    rows = spout.read_stream(
        spark, topics, "passed", startingOffsets="earliest", includeHeaders=True, maxOffsetsPerTrigger=80
    )
    for bolt in (odd_bolts.ReadsRows(), odd_bolts.HandsOn(), odd_bolts.HandsColumnsOn()):
        rows = rows.transform(spout.bolt(bolt, hooks=[odd_bolts.Traces()]))
    return rows


def by_key(spark: SparkSession, topics: spout.Topics) -> DataFrame:
    """Hold by the records' keys."""
    rows = spout.read_stream(
        spark, topics, "keyed", startingOffsets="earliest", includeHeaders=True, delayed_acks=True
    )
    read = rows.transform(spout.bolt(odd_bolts.ReadsKeys()))
    return read.transform(spout.hold(None)).transform(spout.keyed(odd_bolts.HoldsByKey(), by="key"))


FORMS: dict[str, Callable[[SparkSession, spout.Topics], DataFrame]] = {
    "passed": by_each_form,
    "keyed": by_key,
}


@pytest.fixture
def config(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topics.yaml with two inputs of one topic, which takes records of all times."""
    folder = tmp_path_factory.mktemp("odd")
    settings = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topic = NewTopic(f"{folder.name}-odd", PARTITIONS, 1, config=settings)
    for future in admin.create_topics([topic]).values():
        future.result()
    inputs = [INPUT.format(name=name, id=number) for number, name in enumerate(FORMS, 1)]
    return config_of(folder, broker, (), *inputs)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("drawn", [40, 1_500])
def test_each_record_of_an_odd_source_has_its_verdict_and_its_place(
    spark: SparkSession, broker: Broker, config: Path, drawn: int
) -> None:
    """O130: whatever form its bolt has; all others are acked, and no query ends."""
    topics = load_topics(config, {})
    source = OddSource(broker, topics.input("passed").topic)
    fill(source, drawn)
    with ExitStack() as stack:
        log = stack.enter_context(closing(KafkaLog(topics.kafka)))
        stack.enter_context(serving(config, "acker", "replay"))
        queries = [
            Query(name, partial(rows_of, spark, topics), config.parent) for name, rows_of in FORMS.items()
        ]
        for query in queries:
            stack.callback(query.stop)
        places = [TopicPartition(source.topic, partition) for partition in range(PARTITIONS)]
        ends = log.stable_ends(places)

        def is_done() -> bool:
            for query in queries:
                query.check()
            groups = [topics.input(query.name).group for query in queries]
            if any(log.committed(group, places) != ends for group in groups):
                return False
            return all(
                len(query.rows) + len(letters(log, topics, query.name)) >= len(source.records)
                for query in queries
            )

        eventually(is_done, DEADLINE_S, told=lambda: [len(query.rows) for query in queries])
        for query in queries:
            judge(source, query, letters(log, topics, query.name))


def letters(log: KafkaLog, topics: spout.Topics, name: str) -> dict[str, Record]:
    """Return the dead letters of an input, by the origin of their records."""
    topic = topics.input(name).dead_letter.topic
    found = committed(log, [TopicPartition(topic, partition) for partition in range(PARTITIONS)])
    return {(dict(letter.headers)[ORIGIN] or b"").decode(): letter for letter in found}


def judge(source: OddSource, query: Query, letters_by_origin: dict[str, Record]) -> None:
    """See what became of each record."""
    is_keyed = query.name == "keyed"
    wanted_of_all: set[Outcome] = set()
    rows_by_origin = {row["origin"]: row for row in query.rows}
    assert len(rows_by_origin) == len(query.rows), "a record came twice"
    wrong: list[tuple[str, str, object]] = []
    for (partition, offset), odd in source.records.items():
        origin = f"{source.topic}/{partition}@{offset}"
        row, letter = rows_by_origin.pop(origin, None), letters_by_origin.pop(origin, None)
        wanted = outcome_of(odd, origin, is_keyed=is_keyed)
        wanted_of_all.add(wanted)
        is_right = (row is None) != (letter is None)
        if row is not None:
            seen = seen_of(odd.record.key, odd.headers)
            is_right &= (row["attempt"], row["seen"], row["value"]) == (
                wanted.attempt,
                seen,
                odd.record.value,
            )
            if "time" in row and odd.record.timestamp_ms is not None:
                is_right &= row["time"] == time_of(odd)
        elif letter is not None:
            said = {name: (value or b"").decode("utf-8", "replace") for name, value in letter.headers}
            is_right &= wanted.attempt == 0 and said["windhover.dead"] == wanted.dead
            is_right &= wanted.cause in said["windhover.operator"] + said["windhover.cause"]
            is_right &= (letter.value, letter.key) == (odd.record.value, odd.record.key)
        if not is_right:
            wrong.append((origin, odd.kind, row or letter))
    assert wrong == []
    # acked at once, at the second attempt, UNWRITABLE; dead by each bolt, and by its end
    assert len(wanted_of_all) >= (4 if is_keyed else 7), wanted_of_all
    assert rows_by_origin == {}
    assert letters_by_origin == {}
