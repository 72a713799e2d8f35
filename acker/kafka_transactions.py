"""Transactions of Kafka under one transactional id.

librdkafka knows three ends of a transaction that did not commit: one that must be aborted (`Aborted`,
after it was), one whose producer is dead because another owner of the id was initialised (`Fenced`), and
one whose outcome is unknown when the deadline is over (`Unreachable`). A refused record makes the
transaction one of the first kind.

The group offsets go with the metadata of a consumer that never joined (generation -1, no member id): the
broker then checks the producer's epoch alone, whoever is a member of the group meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from acker.errors import Aborted, Fenced, LogError
from acker.kafka_client import Deadline, KafkaClient
from acker.kafka_writer import GroupMetadata, KafkaWriter, doing
from acker.log import Outgoing, TopicPartition


class KafkaTransactions(KafkaWriter):
    """Writes in transactions; implements `acker.log.Transactions`."""

    def __init__(self, client: KafkaClient, transactional_id: str, metadata: GroupMetadata) -> None:
        """Make a producer; nothing happens at the broker before `init`.

        Args:
            client: settings and deadlines.
            transactional_id: whose former owner `init` fences.
            metadata: gives a group's metadata for `send_offsets`.
        """
        super().__init__(client, {"transactional.id": transactional_id})
        self._id = transactional_id
        self._metadata = metadata
        self._in_transaction = False
        self._fenced: str = ""
        self._patience_ms: int | None = None

    def init(self, timeout_ms: int) -> None:
        """Fence the predecessor and abort its transaction."""
        deadline = self._client.deadline(timeout_ms)
        self._patience_ms = timeout_ms
        self._connect(timeout_ms)
        self._call("taking over", deadline, lambda: self._producer.init_transactions(_seconds(deadline)))

    def begin(self) -> None:
        """Open a transaction."""
        self._call("beginning", self._client.deadline(0), self._producer.begin_transaction)
        self._in_transaction = True
        self._refused = None

    def send(self, record: Outgoing) -> None:
        """Queue a record into the open transaction."""
        self._require_open()
        try:
            self._produce(record)
        except KafkaException as error:
            self._refused = self._refused or self._client.error(error.args[0], doing(record))
        self._serve()

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Add a group's next offsets to the open transaction; it may take as long as `init` might.

        After a cut network librdkafka may go on asking a coordinator that does not hear it. A new owner of
        the id, which has a producer of its own, is answered at once.
        """
        self._require_open()
        positions = [confluent_kafka.TopicPartition(p.topic, p.partition, o) for p, o in offsets.items()]
        metadata = self._metadata(group)
        deadline = self._client.deadline(self._patience_ms)
        self._call(
            f"adding offsets of {group} to",
            deadline,
            lambda: self._producer.send_offsets_to_transaction(positions, metadata, _seconds(deadline)),
        )

    def commit(self, timeout_ms: int) -> None:
        """Commit the open transaction, or abort it if a record of it was refused."""
        self._require_open()
        deadline = self._client.deadline(timeout_ms)
        if self._refused is None:
            self._call("committing", deadline, lambda: self._producer.commit_transaction(_seconds(deadline)))
        else:
            self._undo(deadline)
            raise Aborted(f"transaction of {self._id} aborted: {self._refused}")
        self._in_transaction = False

    def abort(self, timeout_ms: int) -> None:
        """Undo the open transaction, if there is one."""
        if self._in_transaction:
            self._undo(self._client.deadline(timeout_ms))

    def _undo(self, deadline: Deadline) -> None:
        self._call("aborting", deadline, lambda: self._producer.abort_transaction(_seconds(deadline)))
        self._in_transaction = False

    def _call(self, what: str, deadline: Deadline, call: Callable[[], None]) -> None:
        """Make a call of the transactional API, and leave no half-dead transaction behind."""
        if self._fenced:
            raise Fenced(self._fenced)
        try:
            self._client.retry(f"{what} a transaction of {self._id}", deadline, lambda: self._fatal(call))
        except Fenced as fenced:
            self._fenced = str(fenced)
            self._in_transaction = False
            raise
        except Aborted:
            if what != "aborting":
                self._undo(self._client.deadline())
            raise

    def _fatal(self, call: Callable[[], None]) -> None:
        """Call, and put what killed the producer in the place of the news that it is dead."""
        try:
            call()
        except KafkaException as error:
            if error.args[0].code() == KafkaError._FATAL:
                self._producer.poll(0)  # raises what killed it, the first time
            raise

    def _require_open(self) -> None:
        if self._fenced:
            raise Fenced(self._fenced)
        if not self._in_transaction:
            raise LogError(f"transactional id {self._id} has no open transaction; call begin first")


def _seconds(deadline: Deadline) -> float:
    # 0 would mean "do not wait at all", and less than 0 "for ever"
    return max(deadline.left_s, 0.001)
