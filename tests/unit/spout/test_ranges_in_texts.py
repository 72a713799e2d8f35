"""Texts that name a range of offsets: the last one is in it, and one offset is no range."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from acker.kafka.partition_troubles import damage_text
from acker.kafka.port import DamagedRun, Outgoing, TopicPartition
from replay.handling.repair import Unreadable
from spout.planning_process.sink_watch import damage_cure
from spout.runtime.tails import Tails
from tests.support.memory.cluster import MemoryCluster

WHY = "its checksum is wrong"
PLACE = TopicPartition("lines", 0)


def note_of_unread(start: int, end: int) -> str:
    """Return the note of a reader that reads one record, the last one, of a log from `start` on."""
    cluster = MemoryCluster()
    cluster.create_topic("lines", 1)
    log = cluster.log()
    producer = log.producer()
    for _ in range(end + 1):
        producer.send(Outgoing(*PLACE, b"v"))
    producer.flush(0)
    log.delete_before({PLACE: start})
    tails = Tails(log, wait_ms=1_000, records_max=1)
    assert [record.offset for record in tails.read_last(*PLACE, "what it was")] == [end]
    [note] = tails.notes
    return note


TEXTS: dict[str, Callable[[int, int], str]] = {
    "damaged run": lambda start, end: str(DamagedRun("lines", 0, start, end, WHY)),
    "trouble": lambda start, end: damage_text(DamagedRun("lines", 0, start, end, WHY)),
    "cure": lambda start, end: damage_cure(start, end, WHY),
    "unreadable batch": lambda start, end: str(Unreadable(PLACE, start, 0, "", WHY, False, end)),
    "unread": note_of_unread,
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize(("end", "expected"), [(6, "5"), (7, "5 to 6"), (15, "5 to 14")])
def test_the_last_offset_of_a_range_is_in_it(name: str, end: int, expected: str) -> None:
    text = TEXTS[name](5, end)
    [shown] = re.findall(r"(?<=[@ ])5(?: to \d+)?", text)
    assert shown == expected, text
    assert ("offset 5" in text) == (end == 6 and "@" not in text)
