"""A record that is too large to be worked on: a read task leaves it out, and nothing beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Message

from acker.kafka import reader
from spout.streaming import consume
from spout.streaming.consume import KeptConsumers, Share, TaskReader, Together

LARGE_BYTES = 1_000
CHUNK = 6


class LogOf:
    """Stands for a `RangeReader` of records with these sizes; its offsets are their numbers."""

    sizes: tuple[int, ...] = ()

    def __init__(self, *_arguments: object) -> None:
        self.lost = 0
        self.damaged: list[object] = []

    def chunks(self) -> Iterator[list[Message]]:
        """Return the records in chunks of `CHUNK`."""
        records = [
            Message(topic="lines", partition=0, offset=offset, value=bytes(size))
            for offset, size in enumerate(self.sizes)
        ]
        for begin in range(0, len(records), CHUNK):
            yield records[begin : begin + CHUNK]


class NothingTogether(Together):
    """Leaves all to `RangeReader`."""

    def read(self, *_arguments: object) -> dict[Share, consume.FirstRecords]:
        return {}


@pytest.mark.parametrize("large", [(), (0,), (5,), (3,), (2, 3), (1, 4), (7,), tuple(range(9))])
def test_all_but_records_that_are_too_large_are_handed_out(
    monkeypatch: pytest.MonkeyPatch, large: tuple[int, ...]
) -> None:
    """O1913: each is noted before what lies behind it, by its place; no chunk is empty."""
    sizes = tuple(LARGE_BYTES + 1 if offset in large else LARGE_BYTES for offset in range(9))
    monkeypatch.setattr(LogOf, "sizes", sizes)
    monkeypatch.setattr(reader, "VALUE_BYTES_MAX", LARGE_BYTES)
    monkeypatch.setattr(consume, "RangeReader", LogOf)
    share = Share("lines", 0, 0, 9)
    task = TaskReader({"bootstrap.servers": "kafka"}, [share], KeptConsumers(0), NothingTogether())
    seen: list[int] = []
    for chunk in task.chunks(share):
        offsets = [message.offset() or 0 for message in chunk]
        noted = [run.start for run in task.damaged]
        assert offsets, "a chunk without records"
        assert [offset for offset in large if offset < offsets[0]] == noted
        seen += offsets
    assert seen == [offset for offset in range(9) if offset not in large]
    assert [(run.topic, run.partition, run.start, run.end) for run in task.damaged] == [
        ("lines", 0, offset, offset + 1) for offset in large
    ]
    assert all("a record of 1,001 bytes" in run.why for run in task.damaged)
