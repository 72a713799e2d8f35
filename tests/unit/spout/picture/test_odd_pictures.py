"""Each kind of odd record in each topic of a picture: it ends no reading, and hides no neighbour."""

from __future__ import annotations

from typing import Final

import pytest

from acker.kafka.port import TopicPartition
from tests.support.odd_records import ODD_RECORDS, append_odd
from tests.support.pictures import picture_of, rows_of, values_of
from tests.support.worlds.odd_world import ALWAYS_FAILS, LETTERS, OddWorld
from tests.support.worlds.replay_world import World, topics

READ: Final = ("_ack_init", "_ack_verdict", "_ack_state", "_ack_due", "_ack_quarantine", LETTERS)
"""Every topic of which a picture reads the records."""

HAVE_NO_RECORD_THAT_MEANS_NOTHING: Final = ("_ack_init", "_ack_verdict")
"""Topics in which each record that nobody can read is a hole."""


@pytest.mark.parametrize("topic", READ)
def test_no_odd_record_ends_a_reading_and_its_neighbours_are_there(topic: str) -> None:
    """O120: all kinds one behind the other, amid sound records."""
    world = OddWorld()
    world.write([ALWAYS_FAILS, b"a"])
    world.work(3)
    before = picture_of(world.log, world.topics, world.now_ms)
    place = TopicPartition(topic, 0)
    for odd in ODD_RECORDS:
        append_odd(world.cluster, place, odd)
    made = picture_of(world.log, world.topics, world.now_ms)
    for table in ("verdicts", "failures", "letters", "inputs"):
        assert rows_of(before, table) == rows_of(made, table)[: len(rows_of(before, table))], table
    assert values_of(made, "SELECT count(*) FROM letters WHERE dead = 'ATTEMPTS'") == [(1,)]
    (read_to,) = {row["read_to"] for row in rows_of(made, "partitions") if row["topic"] == topic} or {None}
    assert topic == "_ack_state" or read_to == world.log.ends([place])[place]
    if topic in HAVE_NO_RECORD_THAT_MEANS_NOTHING:
        holes = [row for row in rows_of(made, "unknown") if row["topic"] == topic]
        assert len(holes) == len(ODD_RECORDS)


def test_a_key_and_a_payload_of_any_bytes_are_written_as_all_commands_write_them() -> None:
    """So that a key that an answer shows can be given to `dlq list --key`."""
    once = topics(attempts=1)
    world = World()
    worker = world.worker(of=once)
    contents = ((b"\xff\n", b"\xff"), (b"", b""), (None, None), (b"key", b"{}"))
    world.lose(*(world.emit(value, key=key) for key, value in contents))
    world.settle(worker)
    made = picture_of(world.cluster.log(), once, world.now_ms)
    letters = values_of(made, "SELECT key, payload, payload_json FROM letters ORDER BY origin_offset")
    assert letters == [("%FF%0A", "%FF", None), ("", "", None), (None, None, None), ("key", "{}", "{}")]
