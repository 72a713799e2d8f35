"""A store in topics of Kafka.

Theory of operation
===================

There is one transactional id for each group, and a group has one partition of `_ack_sink`
(`spout.exactly_once.sink_records`).

`open`
    1. `init_transactions` ends the transaction of the writer before: an open one is aborted, one
       that is being committed is committed. From here on the broker takes nothing from that writer.
       Both is true when the call returns, so what that writer did stands in the log, or never will.
    2. The partition is read up to its end. Only committed records count, and the end is the high
       watermark: transactions of other groups may be open in the same partition, and hide what is
       behind their first record until they end. So `open` waits for them, and no group whose batch
       is behind such a transaction is taken for one without a batch.
    3. An epoch above the one that is read is written, in a transaction. So epochs rise from start
       to start, also if a start dies here. Of two starts that open at once the one that came later
       to (1) fences the other, wherever that one is. An opener that sleeps after (1) for long finds
       itself fenced in (3), and has granted nothing.

`commit`
    One transaction has the rows, and behind them the key and the publication in `_ack_sink`: behind
    them, so that other groups wait in (2) for as short a time as can be. An epoch that is not ours
    is refused here; that somebody has opened the store since, by the broker.

A transaction that the client aborts, for instance since its coordinator has moved, is begun again:
nothing of it is visible, and whoever opened the store meanwhile has fenced us.

Source: docs/design/protocol.md, section 3 (rule 12); Kafka 4.0, KIP-98, KIP-360.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from acker.config.topics import Topics
from acker.errors import (
    Aborted,
    ConfigError,
    Fenced,
    LogError,
    NotAuthorized,
    RecordRefused,
    StoreFenced,
    TopicError,
    Unreachable,
    UsageError,
    WindhoverError,
)
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Log, TopicPartition, Transactions
from acker.kafka.read_to_end import read_piece
from acker.provisioning.topic_specs import MARKER_BYTES, MESSAGE_BYTES
from acker.untrusted import UntrustedName
from spout.exactly_once.column_names import refuse_columns_of_one_name
from spout.exactly_once.kafka_rows import RecordColumns
from spout.exactly_once.sink_records import SinkState, read_state, sink_partition, state_records
from spout.exactly_once.store import BatchKey, LastBatch, StoreGrant
from spout.exactly_once.value_encoding import JSON, encoding_of

CLIENT_ID: Final = "windhover-exactly-once"

TIMEOUT_SETTING: Final = "transaction.timeout.ms"

TRANSACTION_MS: Final = 60_000
"""How long a transaction may be open if topics.yaml does not say it; librdkafka's default."""

CLEANUP_MS: Final = 15_000
"""So much longer it may take until a broker has ended a transaction of somebody who died: it looks
every ten seconds (`transaction.abort.timed.out.transaction.cleanup.interval.ms`)."""

LINGER_MS: Final = 200
"""So long rows wait for others of their partition; by default 5. The commit at their end waits for
nothing, so no batch takes longer for it. Rows of 100 bytes in four partitions came to the broker in
half as many requests, and cost it half of the CPU seconds."""

TRIES_MAX: Final = 3
"""So often a transaction is begun that the client aborts."""

_TOPIC_NAME: Final = re.compile("[a-zA-Z0-9._-]{1,249}")

_TIMEOUT_REFUSED: Final = "INVALID_TRANSACTION_TIMEOUT"


@dataclass(frozen=True, slots=True)
class _Writer:
    """The owner of a group's transactional id, and the epoch that it was granted."""

    transactions: Transactions
    epoch: int


class KafkaStore:
    """Writes rows into topics of Kafka; readers of committed records see a batch whole, or not.

    >>> store = spout.KafkaStore(topics, "words", key="word", value="json")
    >>> store.open("word-count", epoch_min=1).epoch
    1
    >>> store.close()
    """

    def __init__(
        self,
        topics: Topics,
        topic: str,
        *,
        value: str | Mapping[str, Any] = JSON,
        key: str | None = None,
        headers: str | None = None,
        timestamp: str | None = None,
        topic_column: str | None = None,
        connect: Callable[[], Log] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; nothing is connected before the first call.

        Args:
            topics: what `spout.load` returned; the topics of the rows are in the same cluster.
            topic: where the rows go. Whoever uses the store creates it.
            value: what the values are made of. ``json``: an object with all columns, except those
                of headers, time and topic. An Avro schema of a record, as a mapping: these columns
                by the schema, without a header. Otherwise the name of a column of bytes.
            key: name of the column of the keys, bytes or text. A null, or None: a record without a
                key. Keys have the partitions that Java's clients compute for them.
            headers: name of a column array<struct<key string, value binary>>.
            timestamp: name of a column of times, or of milliseconds since 1970; 0 is refused. A
                null, or None: the present time.
            topic_column: name of a column with the topic of each row; a null is `topic`.
            connect: makes the view of the cluster; None: by the settings of `topics`.
            clock: monotonic seconds.

        Raises `UsageError`: Windhover writes the topic for itself, or the schema is none of Avro's.
        """
        self._topics = topics
        encode = encoding_of(value, key)
        self._columns = RecordColumns(topic, encode, key, headers, timestamp, topic_column)
        self._purpose_by_topic = _purpose_by_topic(topics)
        self._refuse_own_topics([topic])
        self._connect = connect or (lambda: KafkaLog(store_settings(topics), client_id=CLIENT_ID))
        self._clock = clock
        self._log: Log | None = None
        self._writers: dict[str, _Writer] = {}
        # topics that take the mark of a transaction, as far as this was read since the last `open`
        self._topics_with_room: set[str] = set()
        self._transaction_ms = int(topics.kafka.get(TIMEOUT_SETTING, TRANSACTION_MS))

    def open(self, group: str, epoch_min: int) -> StoreGrant:
        """Grant an epoch; see `Store.open`.

        Raises:
            TopicError: `_ack_sink` or the topic of the rows is missing, or takes no mark of a
                transaction. No writer is fenced.
            StoreFenced: another start opened the store meanwhile.
            Unreachable: Kafka does not answer, or a transaction of another group does not end.
            TrackingError, UnknownVersion: what `_ack_sink` has of the group cannot be read.
            ConfigError: the broker takes no transaction that may be open for so long.
        """
        log = self._connected()
        # the settings of topics may have changed since the last `open`
        self._topics_with_room.clear()
        # called for its errors: no writer is fenced if a topic is missing
        self._partitions_by_topic(log, [self._topics.ack_topics.sink, self._columns.topic])
        # a group's transactional id is that of one client
        self._close_writer(group)
        transactions = log.transactions(self._topics.ack_topics.sink_transactional_id(group))
        try:
            with self._store_fenced_for_fenced(group, "no epoch is granted"):
                self._fence_earlier_writer(transactions)
                state = self._read_state(log, group)
                epoch = max(epoch_min, state.granted_epoch + 1)
                partition = self._state_partition(group)
                records = tuple(state_records(partition, group, epoch, state.last_batch))
                self._write_in_transaction(transactions, lambda begun: begun.send_all(records))
        except BaseException:
            transactions.close()
            raise
        self._writers[group] = _Writer(transactions, epoch)
        return StoreGrant(epoch, state.last_batch)

    def commit(self, key: BatchKey, rows: pa.Table, publication: bytes) -> None:
        """Write a batch; see `Store.commit`.

        Raises:
            StoreFenced: a later start has opened the store, or the transaction took longer than the
                broker lets one be open.
            UsageError: the rows lack a column, or a value of them cannot be written.
            TopicError: a topic of the rows is missing, or takes no mark of a transaction.
            RecordRefused: a topic refuses a record, as one that is too large.
            Unreachable: Kafka does not answer; nobody knows whether the batch is written.
        """
        writer = self._writers.get(key.group)
        granted = writer.epoch if writer is not None else 0
        if writer is None or granted != key.epoch:
            raise StoreFenced(
                f"epoch {granted} is granted to this store for group {key.group}, and the batch has"
                f" {key.epoch}: nothing of batch {key.batch} is written. Let one query read the"
                " group"
            )
        refuse_columns_of_one_name(rows)
        topics = self._columns.topics_of(rows)
        self._refuse_own_topics(topics, rows)
        partitions = self._partitions_by_topic(self._connected(), topics, rows)
        last_batch = LastBatch(key, publication)

        def send(transactions: Transactions) -> None:
            for columns in self._columns.records(rows, partitions, key.batch):
                transactions.send_columns(columns)
            # behind the rows, so that other groups wait for this transaction as briefly as can be
            partition = self._state_partition(key.group)
            transactions.send_all(state_records(partition, key.group, key.epoch, last_batch))

        with (
            self._closing_dead_writer(key.group),
            self._store_fenced_for_fenced(key.group, f"nothing of batch {key.batch} is written"),
            self._naming_largest_row(rows, topics),
        ):
            self._write_in_transaction(writer.transactions, send)

    def close(self) -> None:
        """Disconnect; a later `open` connects again."""
        for group in tuple(self._writers):
            self._close_writer(group)
        if self._log is not None:
            self._log.close()
            self._log = None

    def _connected(self) -> Log:
        if self._log is None:
            self._log = self._connect()
        return self._log

    def _state_partition(self, group: str) -> TopicPartition:
        return sink_partition(self._topics.ack_topics.sink, self._topics.acker.partitions, group)

    def _fence_earlier_writer(self, transactions: Transactions) -> None:
        """End the transaction of the writer before, and fence that writer; step 1 of `open`.

        Raises `ConfigError`: the broker takes no transaction that may be open for so long.
        """
        try:
            transactions.init(self._transaction_ms)
        except LogError as error:
            if _TIMEOUT_REFUSED not in str(error):
                raise
            raise ConfigError(
                f"the broker takes no transaction that may be open for {self._transaction_ms} ms:"
                f" lower `kafka.{TIMEOUT_SETTING}` in topics.yaml, or raise"
                f" transaction.max.timeout.ms of the broker ({error})"
            ) from error

    def _read_state(self, log: Log, group: str) -> SinkState:
        """Read the state of a group; step 2 of `open`.

        Raises `Unreachable`: Kafka does not answer, or another group's transaction does not end.
        """
        partition = self._state_partition(group)
        # Both are read after the fence. The end is that of all records: transactions of other
        # groups that are still open lie below it.
        start = log.starts([partition])[partition]
        end = log.ends([partition])[partition]
        # so long it may take until the broker has ended each of them
        wait_ms = self._transaction_ms + CLEANUP_MS
        records = read_piece(log, partition, start, end, committed=True, wait_ms=wait_ms)
        try:
            return read_state(records, group)
        except Unreachable as error:
            raise Unreachable(
                f"{error}; if Kafka answers, another group's transaction is open there: its query"
                f" ends it, or the broker after {TIMEOUT_SETTING}. If none does, see"
                " `kafka-transactions.sh find-hanging`"
            ) from error

    def _write_in_transaction(self, transactions: Transactions, send: Callable[[Transactions], None]) -> None:
        """Write what `send` sends in one transaction; begin it again if the client aborts it.

        After `TRIES_MAX` aborted transactions it raises `Aborted`: nothing is written.
        """
        for earlier_tries in range(TRIES_MAX):
            transactions.begin()
            try:
                send(transactions)
            except BaseException:
                # what is wrong with the records is the error to raise
                with suppress(WindhoverError):
                    transactions.abort(self._transaction_ms)
                raise
            try:
                transactions.commit(self._transaction_ms)
            except RecordRefused:
                raise  # it would be refused again
            except Aborted:
                if earlier_tries + 1 == TRIES_MAX:
                    raise
            else:
                return

    @contextmanager
    def _store_fenced_for_fenced(self, group: str, effect: str) -> Iterator[None]:
        """Raise `StoreFenced` in place of a `Fenced` of the block, with what may have fenced us.

        `effect` says for the message what does not come about: "no epoch is granted".
        """
        begun_s = self._clock()
        try:
            yield
        except Fenced as error:
            took_ms = int((self._clock() - begun_s) * 1000)
            other_reason = ""
            if took_ms >= self._transaction_ms:
                other_reason = (
                    f", or the broker has ended the transaction, which took {took_ms:,} ms, and may"
                    f" take {self._transaction_ms:,}: raise `kafka.{TIMEOUT_SETTING}` in"
                    " topics.yaml, or let a batch have fewer rows"
                )
            raise StoreFenced(
                f"a later start has opened the store of group {group}{other_reason};"
                f" {effect}. Let one query read the group ({error})"
            ) from error

    @contextmanager
    def _closing_dead_writer(self, group: str) -> Iterator[None]:
        """Close the writer of a group if the block raises that nothing can be written by it."""
        try:
            yield
        except (StoreFenced, Unreachable):
            self._close_writer(group)
            raise

    def _close_writer(self, group: str) -> None:
        writer = self._writers.pop(group, None)
        if writer is not None:
            writer.transactions.close()

    def _refuse_own_topics(self, names: Iterable[str], rows: pa.Table | None = None) -> None:
        """Raise `UsageError` if a topic of rows is one that Windhover writes itself.

        `rows` are those of a batch, of which the message names one; None: there is no batch.
        """
        for name in names:
            if name in self._purpose_by_topic:
                raise UsageError(
                    f"the topic {name} is {self._purpose_by_topic[name]}, and rows there would be"
                    f" taken for what Windhover writes; give another topic{self._row_text(rows, name)}"
                )

    def _partitions_by_topic(
        self, log: Log, names: Iterable[str], rows: pa.Table | None = None
    ) -> dict[str, int]:
        """Return how many partitions each topic has.

        Args:
            log: the view of the cluster.
            names: of the topics, at least one.
            rows: of a batch, of which the message names one; None: there is no batch.

        Raises `TopicError`: a topic is missing, or takes no mark of a transaction.
        """
        infos = log.topics([name for name in names if _may_be_topic(name)])
        for name in names:
            if name in infos:
                continue
            # the message of a missing topic; what helps depends on whose it is
            cure = "create it, or let the driver's user describe it"
            if name == self._topics.ack_topics.sink:
                cure = "run `windhover topics create`"
            elif not _may_be_topic(name):
                cure = "no topic can have that name"
            shown = UntrustedName(name) if name else "without a name"
            raise TopicError(
                f"rows cannot be written: there is no topic {shown}; {cure}{self._row_text(rows, name)}"
            )
        self._require_room_for_marks(log, infos.keys() - self._topics_with_room, rows)
        return {name: info.partitions for name, info in infos.items()}

    def _require_room_for_marks(self, log: Log, names: Collection[str], rows: pa.Table | None) -> None:
        """Raise `TopicError` if a topic takes no mark of a transaction, else remember the topics.

        The broker would say that the transaction is committed, and try for ever to write the mark:
        nobody could read the rows, and the next transaction would wait for good.
        """
        # one by one: whoever may write rows need not have the right to read the settings of each
        for name in names:
            settings: Mapping[str, str] = {}
            # who may not read them is not refused: Kafka's default has room
            with suppress(NotAuthorized):
                info = log.topics([name], settings=True).get(name)
                settings = {} if info is None else info.settings
            limit_bytes = int(settings.get("max.message.bytes", MESSAGE_BYTES))
            if limit_bytes < MARKER_BYTES:
                raise TopicError(
                    f"rows cannot be written: the topic {UntrustedName(name)} has"
                    f" max.message.bytes={limit_bytes}, and no transaction can end there, since its"
                    f" mark has {MARKER_BYTES} bytes; set it to {MESSAGE_BYTES}"
                    f"{self._row_text(rows, name)}"
                )
        self._topics_with_room |= set(names)

    def _row_text(self, rows: pa.Table | None, topic: str) -> str:
        """Return the end of a message about a topic: which row of a batch names it.

        Empty: there is no batch, or its rows name no topic.
        """
        row_number = None if rows is None else self._columns.row_of_topic(rows, topic)
        if row_number is None:
            return ""
        return f" (row {row_number} of the batch has it in {self._columns.topic_column})"

    @contextmanager
    def _naming_largest_row(self, rows: pa.Table, topics: Iterable[str]) -> Iterator[None]:
        """Raise a `RecordRefused` of the block anew, with the largest row and with cures.

        The client does not say which record was refused.
        """
        try:
            yield
        except RecordRefused as error:
            largest = self._columns.largest(rows)
            raise RecordRefused(
                f"{error}; nothing of the batch is written. It has {rows.num_rows:,} rows for"
                f" {', '.join(topics)}: raise max.message.bytes there, or make its rows smaller; the"
                f" largest is row {largest.row}, with {largest.bytes:,} bytes. If the limit is below"
                " 1,000,000 bytes, lower `kafka.batch.size` in topics.yaml, too",
                error.reason,
            ) from error


def _may_be_topic(name: str) -> bool:
    """Return whether Kafka lets a topic have a name."""
    return _TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


def store_settings(topics: Topics) -> dict[str, Any]:
    """Return the settings of the store's clients: those of topics.yaml, and what it leaves open."""
    return {"linger.ms": LINGER_MS, **topics.kafka}


def _purpose_by_topic(topics: Topics) -> dict[str, str]:
    """Return what each topic is that Windhover writes for itself, by its name."""
    purposes = dict.fromkeys(topics.ack_topics.names(), "an ack topic")
    for input in topics.inputs.values():
        purposes[input.replay_topic] = f"the replay topic of {input.name}"
        purposes[input.dead_letter.topic] = f"the dead-letter topic of {input.name}"
    return purposes
