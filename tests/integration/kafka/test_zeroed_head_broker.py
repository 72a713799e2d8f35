"""A batch whose head is all zeros on its broker's disk: what becomes of who reads it, and the way past it.

librdkafka 2.16 ends the process there, where one answer of the broker has that batch behind another one.
Where each answer has a single batch, the broker itself finds the head and says so.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from textwrap import dedent

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but the package has no __all__
    AdminClient,
    NewTopic,
)

from acker.kafka.port import TopicPartition
from spout.local.embedded import EmbeddedBroker
from tests.support.damage import Damage, batches, spoil
from tests.support.raw_records import RawRecord, encode_batch, produce
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BATCHES = 30
BATCH_RECORDS = 10
RECORDS = BATCHES * BATCH_RECORDS
ZEROED_FROM = BATCH_RECORDS
PLACE = TopicPartition("zeroed", 0)
ONE_BATCH_AN_ANSWER = {"max.partition.fetch.bytes": "1"}

BEGIN = """
    import json, sys
    from acker.errors import Damaged
    from acker.kafka.cluster import KafkaLog
    from acker.kafka.port import TopicPartition
    from spout.streaming.consume import Share, TaskReader

    settings = json.loads(sys.argv[1])
    place, end = TopicPartition("zeroed", 0), int(sys.argv[2])
    offsets, left_out = [], []
"""
READER = """
    reader = KafkaLog(settings).reader(committed=True)
    reader.assign({place: 0})
    while reader.position(place) < end:
        try:
            offsets += [record.offset for record in reader.poll(100)]
        except Damaged as error:
            print(error)
            left_out.append(reader.pass_over(place))
"""
READ_TASK = """
    share = Share(*place, 0, end, True)
    task = TaskReader(settings, [share])
    offsets = [message.offset() for chunk in task.chunks(share) for message in chunk]
    left_out = task.damaged
"""
END = """
    print(json.dumps([offsets, [[run.start, run.end, run.why] for run in left_out]]))
"""
WAYS = pytest.mark.parametrize("way", [READER, READ_TASK], ids=["reader", "read_task"])
"""Ackers, planners, replay workers behind their verdicts, and a `KafkaSpout` read by the first one."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A broker with a topic of which the second batch is all zeros."""
    with EmbeddedBroker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for done in admin.create_topics([NewTopic(PLACE.topic, 1, 1)]).values():
            done.result()
        eventually((broker.directory / "data" / f"{PLACE.topic}-0").is_dir)
        for _ in range(BATCHES):
            # index entries lie 4 KiB apart, and the broker can begin to read at each of them
            produce(broker.bootstrap, PLACE, encode_batch([RawRecord(b"x" * 500)] * BATCH_RECORDS))
        spoil(batches(broker.directory / "data", PLACE)[1], Damage.ZEROS)
        yield broker.bootstrap


def run(way: str, settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Read the topic to its end in a process of its own."""
    program = dedent(BEGIN) + dedent(way) + dedent(END)
    command = [sys.executable, "-c", program, json.dumps(settings), str(RECORDS)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@WAYS
def test_the_client_ends_the_process_and_names_no_place(bootstrap: str, way: str) -> None:
    """O381: docs/reference/limits.md says so; where this falls, the client was mended."""
    done = run(way, {"bootstrap.servers": bootstrap})
    assert done.returncode == -signal.SIGABRT
    assert "rd_slice_narrow_copy: Assertion" in done.stderr


@WAYS
def test_with_one_batch_in_each_answer_it_is_a_damaged_batch_like_others(bootstrap: str, way: str) -> None:
    """O382: named with its first offset and passed over; all else is handed out."""
    done = run(way, {"bootstrap.servers": bootstrap, **ONE_BATCH_AN_ANSWER})
    assert done.returncode == 0, done.stderr
    offsets, [[start, end, why]] = json.loads(done.stdout.splitlines()[-1])
    assert start == ZEROED_FROM
    assert start + BATCH_RECORDS <= end < start + 4 * BATCH_RECORDS, "up to the next entry of the index"
    assert "the broker cannot read its head" in why
    assert offsets == [*range(start), *range(end, RECORDS)]
    if way is READER:
        assert f"zeroed/0@{ZEROED_FROM}: a batch there is damaged" in done.stdout
