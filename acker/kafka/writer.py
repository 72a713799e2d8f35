"""Writing to Kafka: a plain producer, and a transactional one. Both idempotent, with acks=all.

A record that is refused is remembered, and raised where the caller waits:
`flush` for the plain producer, `commit` for a transaction, which then is
aborted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import islice, repeat
from operator import length_hint
from types import MappingProxyType
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from acker.errors import WindhoverError
from acker.hot_paths import tuple_maker
from acker.kafka.client import SILENT, Background, Deadline, KafkaClient, Use
from acker.kafka.port import (
    Operation,
    Outgoing,
    OutgoingColumns,
    TopicPartition,
    UnreadableName,
    unwritable,
)

DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "compression.type": "lz4",
        "linger.ms": 5,
        "batch.size": 1_000_000,
        # the topic's max.message.bytes decides, not librdkafka's default of
        # 1,000,000: a copy or a dead letter is larger than its record by its
        # headers
        "message.max.bytes": 100_000_000,  # `acker.kafka.reader.VALUE_BYTES_MAX`
        "queue.buffering.max.messages": 1_000_000,
        # with the default of 100 ms a transaction waits that long for the end
        # of the one before
        "retry.backoff.ms": 5,
        "retry.backoff.max.ms": 200,
        # So often it is asked who leads; by default every five minutes. While
        # a broker is cut off in silence, a producer that rests does not
        # notice that others lead by then. It would send its next records to
        # the silent one, and wait ten seconds (`SILENT_BROKER_MS`).
        "topic.metadata.refresh.interval.ms": 3_000,
    }
)
FORCED: Mapping[str, Any] = MappingProxyType(
    {
        "acks": "all",
        "enable.idempotence": True,
        # A broker that knows nothing of a producer takes any sequence number
        # for its first. With two requests under way it may refuse the first
        # for a moment (no leader yet, a damaged batch) and take the second;
        # librdkafka concludes that the first was written too, and reports it
        # as delivered.
        "max.in.flight.requests.per.connection": 1,
        "topic.metadata.propagation.max.ms": 5000,
    }
)

CONNECT_MS: Final = 1000
"""How long a producer's first call waits for a connection before it goes on without one."""

FIRST_POLL_S: Final = 0.005
"""So often a flush asks whether the first records are durable."""

SERVED_EVERY: Final = 1_000
"""Records between two polls for callbacks: a poll costs more than queueing one; others may run."""

_make_partition = tuple_maker(TopicPartition)

DeliveryCallback = Callable[[KafkaError | None, Message], None]
"""Gets the delivery report of one record: its error, or None, and the message."""


class KafkaWriter:
    """What the plain producer and the transactional one have in common: a client and its queue."""

    def __init__(self, client: KafkaClient, forced: Mapping[str, Any]) -> None:
        """Make the client's producer with these `forced` settings; nothing is connected yet."""
        self._client = client
        self._background = Background(client.clock)
        self._has_tried_to_connect = False  # it tries once; then each call waits by itself
        # of the first refused record, until it was raised; None: there is none to be raised
        self._first_refusal: WindhoverError | None = None
        # partitions with records that are not known to be durable
        self._written_partitions: set[TopicPartition] = set()
        settings = {**FORCED, **SILENT, **forced}
        self._producer: confluent_kafka.Producer = client.make_client(
            confluent_kafka.Producer, DEFAULTS, settings, self._background
        )

    def _connect(self, timeout_ms: float) -> None:
        """Wait a moment for a broker, at the first call only.

        Raises `NotAuthenticated`: the broker does not let us in.

        librdkafka asks for its producer id as soon as it is needed; if no
        broker is connected just then, it tries again after half a second.
        """
        if self._has_tried_to_connect:
            return
        self._has_tried_to_connect = True
        with suppress(KafkaException):  # no broker is there yet; the call that follows has a deadline
            if self._producer.cluster_id(min(timeout_ms, CONNECT_MS) / 1000):
                self._background.record_answer()
        with suppress(KafkaException):  # what kills the producer is raised by the call that follows
            self._producer.poll(0)  # so that `background` gets what its threads have reported
        self._require_login()

    def _require_login(self) -> None:
        """Raise `NotAuthenticated` if the only answer so far is that the broker does not let us in."""
        if self._background.is_hopeless:
            text = "no answer"
            raise self._client.unreachable_error("connecting", CONNECT_MS, text, self._background)

    def _enqueue(self, record: Outgoing, on_delivery: DeliveryCallback | None = None) -> None:
        """Queue one record. While the queue is full, wait, at most the time of one operation.

        Raises:
            KafkaException: the client refuses the record.
            Unreachable: the queue stays full.
        """
        topic, partition, value, key, headers, timestamp_ms = record
        # `_make_partition` is a `TopicPartition` without the checks of its constructor: this is
        # done for each record
        self._written_partitions.add(_make_partition((topic, partition)))
        deadline: Deadline | None = None  # set when the queue is full: mostly it is not
        while True:
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    on_delivery=on_delivery,
                    timestamp=timestamp_ms or 0,  # 0: the present time
                    headers=_client_headers(record) if headers else None,
                )
            except BufferError:
                deadline = deadline or self._client.deadline()
                if deadline.is_over:
                    text = "the queue stays full"
                    raise self._client.unreachable_error(
                        writing_text(record), deadline.timeout_ms, text
                    ) from None
                self._producer.flush(0.05)  # s: makes room, and sends what waits
            else:
                return

    def _enqueue_columns(self, columns: OutgoingColumns) -> None:
        """Queue records given by columns; remember the first that the client refuses.

        The loop over the records is one of C: one takes 0.6 us in it, and 2 us in a loop of ours.

        Raises `Unreachable`: the queue stays full.
        """
        self._written_partitions.update(
            _make_partition((columns.topic, partition)) for partition in set(columns.partitions)
        )
        values = iter(columns.values)
        topics = repeat(columns.topic)
        # `map` is lazy: a call is made when its result is taken
        arguments = _arguments_behind_values(columns)
        produce_calls = map(self._producer.produce, topics, values, *arguments)
        record_count = len(columns.values)
        while length_hint(values):  # how many values were not taken yet
            try:
                # make the next calls, and keep none of their results
                deque(islice(produce_calls, SERVED_EVERY), maxlen=0)
            except (BufferError, KafkaException):
                # The record of the call that raised is the last one that was taken from the
                # columns: the queue was full, or the client refuses it, as it will again.
                failed_index = record_count - length_hint(values) - 1
                self._enqueue_or_remember(columns.record(failed_index))
            self._run_callbacks(columns.topic)

    def _enqueue_or_remember(self, record: Outgoing, on_delivery: DeliveryCallback | None = None) -> None:
        """Queue one record as `_enqueue` does; remember it if the client refuses the record.

        Raises `Unreachable`: the queue stays full.
        """
        try:
            self._enqueue(record, on_delivery)
        except KafkaException as error:
            self._remember_refusal(error.args[0], writing_text(record), record.topic)

    def _run_callbacks(self, topic: str, timeout_s: float = 0) -> None:
        """Poll the client, so that it calls back for delivery reports.

        An error that it raises counts as one of writing to `topic`.
        """
        try:
            self._producer.poll(timeout_s)
        except KafkaException as error:
            self._remember_refusal(error.args[0], f"writing to {topic}", topic)

    def _remember_refusal(self, cause: KafkaError, doing: str, topic: str = "") -> None:
        """Remember the error of a refused record, to be raised when the caller waits.

        Only the first one is remembered.
        """
        if self._first_refusal is None:
            self._first_refusal = self._client.error(cause, doing, use=Use(Operation.WRITE, topic=topic))

    def _unacknowledged(self, doing: str, timeout_ms: int, record_count: int) -> WindhoverError:
        """Return the error of records that are not durable in time.

        It names the partitions without a leader, if these hold records up.
        `doing` begins the message.
        """
        partitions = self._written_partitions
        leaderless_texts = self._client.leaderless_troubles(self._producer, partitions)
        if leaderless_texts:
            doing_within = f"{doing} within {timeout_ms} ms"
            return self._client.partition_stands_error(doing_within, leaderless_texts)
        text = f"{record_count} records are not acknowledged"
        return self._client.unreachable_error(doing, timeout_ms, text, self._background)

    def close(self) -> None:
        """Drop the client, with what was not delivered; an open transaction stays as it is.

        A second call does nothing.
        """
        # the client ends with its last reference; its own close() would abort, and wait
        vars(self).pop("_producer", None)


class KafkaProducer(KafkaWriter):
    """Writes outside transactions; implements `acker.kafka.port.Producer`."""

    def __init__(self, client: KafkaClient) -> None:
        super().__init__(client, {"delivery.report.only.error": True, "on_delivery": self._on_delivery})
        # the topic of the first record of all, until a flush has waited for that record; None:
        # nothing was sent yet, or it was waited for
        self._first_topic: str | None = None

    def send(self, record: Outgoing) -> None:
        """Queue a record; one that the client refuses is raised by the next `flush`."""
        if not self._has_tried_to_connect:
            self._first_topic = record.topic
        self._connect(self._client.operation_timeout_ms)
        self._enqueue_or_remember(record)
        self._run_callbacks(record.topic)

    def _await_first(self, topic: str) -> None:
        """Wait a moment until the first records are durable, or the broker does not let us in.

        The broker gives the producer its id with the first records, or refuses
        it, and then the producer is dead. A poll raises that. A flush would go
        on to call our delivery callback while the exception is set, and Python
        crashes then.
        """
        deadline = self._client.deadline(CONNECT_MS)
        # until the queue is empty, a record was refused, or the time is over
        while len(self._producer) and self._first_refusal is None and not deadline.is_over:
            self._run_callbacks(topic, FIRST_POLL_S)
            self._require_login()

    def flush(self, timeout_ms: int) -> None:
        """Wait until all is durable, and raise the first record that was refused."""
        deadline = self._client.deadline(timeout_ms)
        # only once: after the first record of all, see `_await_first`
        if self._first_topic is not None:
            topic, self._first_topic = self._first_topic, None
            self._await_first(topic)
        queued_count = self._flush_until(deadline)
        if not queued_count:  # an empty queue means that the broker has answered
            self._client.outage.record_answer()
        # a refused record goes first: it is refused however long one waits
        refusal, self._first_refusal = self._first_refusal, None
        if refusal is not None:
            raise refusal
        if queued_count:
            raise self._unacknowledged("writing", timeout_ms, queued_count)
        self._written_partitions.clear()

    def _flush_until(self, deadline: Deadline) -> int:
        """Wait until no record is queued, or the deadline is over.

        Return how many are queued then.
        """
        try:
            while True:
                queued_count = self._producer.flush(deadline.next_wait_s)
                if not queued_count or deadline.is_over:
                    return queued_count
                why = f"{queued_count} records are not acknowledged"
                self._client.outage.record_wait("writing", deadline.elapsed_ms, why)
        except KafkaException as error:
            raise self._client.error(error.args[0], "writing") from error

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        """Remember the error of a delivery report; only reports with an error are asked for."""
        if error is not None:
            topic = message.topic() or ""
            self._remember_refusal(error, f"writing {topic}/{message.partition()}", topic)


def _client_headers(record: Outgoing) -> list[tuple[str, str | bytes | None]]:
    """Return a record's headers as the client takes them.

    Raise `LogError` if it cannot write a name.
    """
    headers: list[tuple[str, str | bytes | None]] = list(record.headers)
    for name, _ in headers:
        if name.__class__ is UnreadableName or "\0" in name:
            raise unwritable(record)
    return headers


def _arguments_behind_values(columns: OutgoingColumns) -> tuple[Iterable[object], ...]:
    """Return, by columns, the arguments of `produce` that come behind the value.

    They are key, partition, and, if any record has headers or a time, also two callbacks,
    timestamp and headers. Raise `LogError` if a header name cannot be written.
    """
    keys: Iterable[object] = repeat(None) if columns.keys is None else columns.keys
    # mostly: shorter, since each further argument costs time for each record
    if columns.headers is None and columns.timestamps_ms is None:
        return keys, columns.partitions
    timestamps: Iterable[object] = repeat(0)  # 0: the present time
    if columns.timestamps_ms is not None:
        timestamps = [timestamp_ms or 0 for timestamp_ms in columns.timestamps_ms]
    headers = [_client_headers(record) if record.headers else None for record in columns.records()]
    no_callback = repeat(None)
    return keys, columns.partitions, no_callback, no_callback, timestamps, headers


def writing_text(record: Outgoing) -> str:
    """Return what messages say is done when a record is written: ``writing sentences/3``."""
    return f"writing {record.topic}/{record.partition}"
