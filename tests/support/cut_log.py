"""A log that was cut, on a real broker: what an unclean leader election does, without a second broker.

The broker is stopped, the last batches are taken out of the segment file, and what Kafka computes from it
(indexes, snapshots of producers, the mark of a clean shutdown) is removed. At its start the broker recovers
the log as after a crash. Each start raises the epochs of leaders, so what is written then has a higher one.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from acker.kafka.port import TopicPartition
from spout.local.embedded import EmbeddedBroker

_COMPUTED: Final = ("*.index", "*.timeindex", "*.txnindex", "*.snapshot")
_BATCH_HEAD: Final = struct.Struct(">qi")
"""Of a batch: the offset of its first record, and how many bytes follow."""


def cut_log(broker: EmbeddedBroker, place: TopicPartition, offset: int) -> None:
    """Lose the batches of a partition from an offset on, which begins one; the broker is restarted."""
    broker.stop()
    data = broker.directory / "data"
    folder = data / f"{place.topic}-{place.partition}"
    segments = sorted(folder.glob("*.log"))
    for segment in segments:
        _cut_segment(segment, offset)
    for pattern in _COMPUTED:
        for path in folder.glob(pattern):
            path.unlink()
    (data / ".kafka_cleanshutdown").unlink(missing_ok=True)
    broker.start()


def _cut_segment(path: Path, offset: int) -> None:
    content = path.read_bytes()
    at = 0
    while at + _BATCH_HEAD.size <= len(content):
        first, length = _BATCH_HEAD.unpack_from(content, at)
        if length <= 0 or first >= offset:
            break
        at += _BATCH_HEAD.size + length
    with path.open("r+b") as file:
        file.truncate(at)
