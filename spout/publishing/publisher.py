"""Writes a batch's records to the ack topics; the only place that acks and fails, in the driver.

Source: docs/design/protocol.md, section 4, order (a): the fails are durable before the acks are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from acker.config.settings import UNREACHABLE_MS, AckTopics
from acker.identity import WIRE_BLOCK_BITS, acker_partition
from acker.kafka.port import Log, Outgoing, Producer
from acker.wire.codec import wire_codec
from acker.wire.events import Acks, Fails
from spout.publishing.publish import Publication


class Publisher:
    """Publishes the batches of one stream."""

    def __init__(
        self, open_log: Callable[[], Log], topics: AckTopics, *, durable_ms: int = UNREACHABLE_MS
    ) -> None:
        """Prepare; the log is opened by the first batch.

        Args:
            open_log: opens the cluster.
            topics: names of the ack topics.
            durable_ms: how long fails, and then acks, of a batch wait until they are durable; after that the
                query fails, and starts again.
        """
        self._durable_ms = durable_ms
        self._open_log = open_log
        self._topics = topics
        self._codec = wire_codec()
        self._log: Log | None = None
        self._producer: Producer | None = None

    def publish(self, publication: Publication, partitions: int) -> None:
        """Write a batch's records and wait until they are durable.

        Args:
            publication: what to write.
            partitions: N, the number of acker partitions.

        Raises:
            Unreachable: the records are not durable yet; publishing them again is safe.
        """
        for topic, records in ((self._topics.fail, publication.fails), (self._topics.ack, publication.acks)):
            self._send(topic, records, partitions)

    def close(self) -> None:
        """Leave the log."""
        if self._producer is not None and self._log is not None:
            self._producer.close()
            self._log.close()
        self._producer = self._log = None

    def _send(self, topic: str, records: Iterable[Acks | Fails], partitions: int) -> None:
        sent = False
        producer = self._open()
        for record in records:
            partition = acker_partition(record.source, record.block << WIRE_BLOCK_BITS, partitions)
            producer.send(Outgoing(topic, partition, self._codec.encode(record)))
            sent = True
        if sent:
            producer.flush(self._durable_ms)

    def _open(self) -> Producer:
        if self._producer is None:
            self._log = self._open_log()
            self._producer = self._log.producer()
        return self._producer
