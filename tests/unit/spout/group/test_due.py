"""What a planning process takes from `_ack_due` as waiting."""

from __future__ import annotations

from contextlib import closing

import pytest

from acker.kafka.port import Outgoing
from replay.records.due import due_codec, root_key
from spout.group.due import DueEntries
from tests.support.garbage import DUE
from tests.support.memory.cluster import MemoryCluster


@pytest.mark.parametrize(("value", "count"), [(b"garbage", 1), (None, 0)])
def test_a_root_whose_entry_somebody_wrote_over_waits_until_its_tombstone(
    value: bytes | None, count: int
) -> None:
    """Its replay worker has it, and an heir writes it again: what is behind it in order may not pass."""
    cluster = MemoryCluster()
    cluster.create_topic("_ack_due", 1)
    log = cluster.log()
    producer = log.producer()
    with closing(DueEntries(log, "_ack_due", 1, [DUE.source >> 16])) as entries:
        for each in (due_codec().encode(DUE), value):
            producer.send(Outgoing("_ack_due", 0, each, root_key(DUE)))
        producer.flush(0)
        assert entries.read()
        assert len(entries.waiting_of(DUE.source)) == count
