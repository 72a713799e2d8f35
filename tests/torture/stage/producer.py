"""Writes numbered records at a steady rate, and remembers which of them the broker acknowledged.

Now and then it aborts a transaction, so that the topic holds records and markers that nobody may see. When
the broker is away it waits; a record that it has no word of is left open, it may be in the topic or not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from acker.errors import LogError, Unreachable
from acker.kafka.port import Log, Producer, TopicPartition, Transactions
from tests.support.raw_records import encode_batch, produce_at_any
from tests.torture.workload import odd_of, raw_record, record_of, undone_record

SLICE_MS: Final = 100
FLUSH_MS_MAX: Final = 60_000
UNDONE_EVERY_MS: Final = 7_000
UNDONE_RECORDS: Final = 5
ABORT_MS_MAX: Final = 30_000
TRANSACTIONAL_ID: Final = "windhover-torture-undone"


class NumberedProducer:
    """A thread that writes until it is told to stop.

    Attributes:
        durable: numbers of the records that the broker acknowledged.
    """

    def __init__(
        self,
        log: Log,
        topic: str,
        partitions: int,
        records_per_second: float,
        clock: Callable[[], int],
        bootstrap: str,
    ) -> None:
        """Prepare; `start` begins to write.

        Args:
            log: writes what a client can write.
            topic: its name; it has so many `partitions`.
            partitions: see `topic`.
            records_per_second: the steady rate.
            clock: in ms; it need not be wall time.
            bootstrap: the addresses of all brokers: what no client can write is sent to them byte by byte.
        """
        self.durable: set[int] = set()
        self._log = log
        self._topic = topic
        self._partitions = partitions
        self._rate = records_per_second
        self._burst = max(1, int(records_per_second))
        self._clock = clock
        self._addresses = bootstrap.split(",")
        self._number = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="windhover-torture-producer", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write what was begun, and end.

        Raises:
            Unreachable: the last records are not acknowledged.
        """
        self._stopping.set()
        self._thread.join((FLUSH_MS_MAX + ABORT_MS_MAX) / 1000)
        if self._thread.is_alive():
            raise Unreachable(f"the producer could not end within {(FLUSH_MS_MAX + ABORT_MS_MAX) // 1000} s")

    def _run(self) -> None:
        producer = self._log.producer()
        begun_ms = self._clock()
        undone_ms = begun_ms
        asked = 0
        while not self._stopping.wait(SLICE_MS / 1000):
            now_ms = self._clock()
            due = int((now_ms - begun_ms) * self._rate / 1000) - asked
            asked += due
            # what could not be written while the broker was away is not made up for
            producer = self._write(producer, min(due, self._burst))
            if now_ms - undone_ms >= UNDONE_EVERY_MS:
                undone_ms = now_ms
                self._abort_some()
        producer.close()

    def _write(self, producer: Producer, count: int) -> Producer:
        """Write the next records; return the producer to go on with."""
        numbers = range(self._number, self._number + count)
        self._number += count
        odd = {number: odd_of(number) for number in numbers}
        raw = {number for number, kind in odd.items() if kind is not None and not kind.can_be_copied}
        for number in raw:
            place = TopicPartition(self._topic, number % self._partitions)
            if produce_at_any(self._addresses, place, encode_batch([raw_record(number)])) is not None:
                self.durable.add(number)
        by_client = [number for number in numbers if number not in raw]
        for number in by_client:
            producer.send(record_of(number, self._topic, self._partitions))
        try:
            producer.flush(FLUSH_MS_MAX)
        except (Unreachable, LogError):
            producer.close()
            return self._log.producer()
        self.durable.update(by_client)
        return producer

    def _abort_some(self) -> None:
        """Write some records in a transaction and abort it; if the broker goes away meanwhile, it will."""
        transactions = self._log.transactions(TRANSACTIONAL_ID)
        with suppress(Unreachable, LogError):
            self._write_and_abort(transactions)
        transactions.close()

    def _write_and_abort(self, transactions: Transactions) -> None:
        transactions.init(ABORT_MS_MAX)
        transactions.begin()
        for number in range(self._number, self._number + UNDONE_RECORDS):
            transactions.send(undone_record(number, self._topic, self._partitions))
        self._number += UNDONE_RECORDS
        transactions.abort(ABORT_MS_MAX)
