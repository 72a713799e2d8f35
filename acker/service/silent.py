"""Partitions of a process that wait for a broker, while the others go on.

One partition without a leader, or with a silent one, must not hold up the others of its process.

* `SilentPartitions`: a partition that does not come up is left alone for a while, twice as long each
  time. The others wait only during a try, up to a request's deadline.
* `WritesUnderWay`: a transaction is made beside the steps. Kafka has committed it when each partition
  that it writes to has a marker, so one silent leader delays it by 15 s and more. Until it is over
  nothing is applied to its acker partition.
* `FencingUnderWay`: so is the begin of a restore, which waits for the former owner's transaction to end.

A partition is an acker partition, by its number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from acker.errors import WindhoverError
from acker.kafka.port import Log, Transactions, UnderWay
from acker.ledger.output import StepOutput
from acker.service.partition import PartitionAcker, PreparedWrite
from acker.waits import SteadyMs


class _Try(NamedTuple):
    """When it was tried last to own a partition, wall time, and how long it is left alone from
    then on.
    """

    tried_ms: int
    wait_ms: int


class SilentPartitions:
    """The partitions of a process that did not come up, and when each is tried again."""

    def __init__(self, wait_ms: int, wait_ms_max: int) -> None:
        """Leave a partition alone for `wait_ms` after its first try."""
        self._wait_ms = wait_ms
        self._wait_ms_max = wait_ms_max
        self._last_tries: dict[int, _Try] = {}  # by partition; one that was never tried is missing

    def partitions_to_try(self, partitions: Collection[int], now_ms: int, *, others_work: bool) -> list[int]:
        """Return which of `partitions` the process tries to own now, the one tried longest ago
        first.

        `partitions` are those that it should own and does not. A partition that failed is left
        alone for a while, since each try holds up the partitions that work. If there are no such
        (`others_work`), none is left alone. The tries of all but `partitions` are forgotten:
        those came up, or are another process's.
        """
        self._last_tries = {
            partition: last_try for partition, last_try in self._last_tries.items() if partition in partitions
        }
        longest_ago_first = sorted(partitions, key=self._sort_key_of)
        if not others_work:
            return longest_ago_first
        return [partition for partition in longest_ago_first if not self._is_left_alone(partition, now_ms)]

    def record_failure(self, partition: int, now_ms: int) -> None:
        """Record that a partition did not come up: it is left alone twice as long as the time before."""
        last_try = self._last_tries.get(partition)
        wait_ms = self._wait_ms if last_try is None else 2 * last_try.wait_ms
        self._last_tries[partition] = _Try(now_ms, min(wait_ms, self._wait_ms_max))

    def _sort_key_of(self, partition: int) -> tuple[int, int, int]:
        """Return what a partition is sorted by: those that were never tried come first."""
        tried_ms, wait_ms = self._last_tries.get(partition, _Try(-1, 0))
        return tried_ms, wait_ms, partition

    def _is_left_alone(self, partition: int, now_ms: int) -> bool:
        """Return whether it is too early to try a partition again."""
        last_try = self._last_tries.get(partition)
        # a clock that went back ends the wait
        return last_try is not None and 0 <= now_ms - last_try.tried_ms < last_try.wait_ms


class FencingUnderWay(NamedTuple):
    """The fencing of a partition's former owner, which goes on beside the steps.

    Nothing else is called on `transactions` until `fencing` is over.
    """

    transactions: Transactions
    fencing: UnderWay[None]


@dataclass(frozen=True, slots=True)
class _Write:
    """The transaction of one acker partition, which another thread makes since `begun_ms` (steady
    clock).
    """

    acker: PartitionAcker
    prepared: PreparedWrite
    transaction: UnderWay[None]
    begun_ms: int

    def wait_for_output_or_error(self) -> StepOutput | WindhoverError:
        """Wait until the transaction has ended.

        Returns the step's output, or why it was not written. If it was written, the partition's
        `acker` takes note of that. An error is returned, not raised: one failed transaction
        must not hide those of other partitions.
        """
        try:
            self.transaction.result()  # waits, and raises what has ended the transaction
        except WindhoverError as error:
            return error
        return self.acker.record_written(self.prepared)


class WritesUnderWay:
    """The transactions of a process that are under way, one of a partition at most."""

    def __init__(self, log: Log, clock_ms: SteadyMs) -> None:
        """Begin with none; `clock_ms` measures how long they take."""
        self._log = log
        self._clock_ms = clock_ms
        self._writes: dict[int, _Write] = {}  # by partition, the one begun first comes first

    def __contains__(self, partition: int) -> bool:
        return partition in self._writes

    def partitions(self) -> tuple[int, ...]:
        """Return the partitions with a transaction under way.

        The one that was begun first comes first.
        """
        return tuple(self._writes)

    def begin(self, ackers: Iterable[PartitionAcker], now_ms: int | None) -> None:
        """Begin to write the output of partitions, each by a transaction in a thread of its own.

        `now_ms` is the wall time that State shall have; None: it has none. Until its transaction is
        over, nothing may be applied to a partition.
        """
        for acker in ackers:
            prepared = acker.prepare(now_ms)
            # another thread makes the transaction; this one does not wait for it
            transaction = self._log.begin(partial(acker.write_transaction, prepared))
            write = _Write(acker, prepared, transaction, self._clock_ms())
            self._writes[acker.core.partition] = write

    def wait(self, partitions: Iterable[int], wait_ms: int) -> None:
        """Wait until the transactions of some partitions are over, `wait_ms` at most for all
        together.
        """
        until_ms = self._clock_ms() + wait_ms
        for partition in partitions:
            ms_left = max(0, until_ms - self._clock_ms())
            self._writes[partition].transaction.is_over(ms_left)  # waits up to `ms_left`

    def overdue(self, limit_ms: int) -> list[int]:
        """Return the partitions whose transaction has taken longer than a limit (ms), and is not
        over.
        """
        now_ms = self._clock_ms()
        return [
            partition
            for partition, write in self._writes.items()
            if now_ms - write.begun_ms > limit_ms and not write.transaction.is_over()
        ]

    def take_finished_outcomes(self) -> list[tuple[PartitionAcker, StepOutput | WindhoverError]]:
        """Remove the transactions that are over; return what was written, or why it was not."""
        finished: list[_Write] = []
        for partition, write in list(self._writes.items()):
            if write.transaction.is_over():
                finished.append(self._writes.pop(partition))
        return [(write.acker, write.wait_for_output_or_error()) for write in finished]

    def take_all(self) -> list[tuple[PartitionAcker, StepOutput | WindhoverError]]:
        """Wait for all transactions, each until its own deadline; see `take_finished_outcomes`."""
        writes, self._writes = self._writes, {}
        return [(write.acker, write.wait_for_output_or_error()) for write in writes.values()]
