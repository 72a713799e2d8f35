"""One verdict partition in the hands of one worker: the two transactions of a lost root.

First transaction: the verdicts' progress, and each lost root into `_ack_due` with its due time and history.
Second transaction, at the due time: the copy or the dead letter, and the tombstone in `_ack_due`. Both run
under one transactional id, named after the partition: a new owner fences the old one with it and ends what
that one left open, reads `_ack_due` to its stable end, and then knows exactly what waits.

What is kept in memory changes only after a commit. When a transaction was aborted, or it is not known what
became of it, the partition is dropped and opened again: what is durable says what is still to be done.

Source: DESIGN.md, section 5.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from acker.errors import CodecError, DataLoss, Disagreement, Unreachable, WindhoverError
from acker.events import Verdicts
from acker.log import Outgoing, Record, TopicPartition
from replay.due import PROGRESS_KEY, Due, Progress, parse_root_key, root_key
from replay.intake import Batch, Intake, flaw_of
from replay.outcome import Outcome, outcomes_of
from replay.schedule import Schedule
from replay.takeover import dues_of
from replay.worker import Worker

_POLL_MS = 100


class VerdictPartition:
    """A verdict partition that this worker owns."""

    def __init__(self, worker: Worker, number: int) -> None:
        """Take the partition over.

        1. End the transaction of a predecessor and fence it.
        2. Read `_ack_due` to its stable end: what waits, and how far the verdicts are taken over.
        3. Compare that with what the verdict log still holds.

        Raises:
            DataLoss: verdicts that were not taken over are no longer in the log.
            Disagreement: the verdict log ends before what was taken over.
            Unreachable: the broker does not answer.
        """
        self.number = number
        self.schedule = Schedule()
        self._worker = worker
        self._verdict = TopicPartition(worker.names.verdict, number)
        self._due = TopicPartition(worker.names.due, number)
        self._progress_ms = 0
        self._transactions = worker.log.transactions(f"{worker.group}-{number}")
        try:
            self._transactions.init(worker.limits.operation_timeout_ms)
            self.intake = Intake(self._begin(self._restore()))
        except WindhoverError:
            self._transactions.close()
            raise

    @property
    def reads(self) -> TopicPartition:
        """The partition of the verdict topic."""
        return self._verdict

    @property
    def wants_verdicts(self) -> bool:
        """Whether there is room for more verdicts."""
        return self._room > 0 and len(self.intake) < self._worker.limits.verdict_records_max

    @property
    def _room(self) -> int:
        limits = self._worker.limits
        if self.schedule.memory_bytes >= limits.waiting_bytes_max:
            return 0
        return min(limits.intake_max, limits.waiting_max - len(self.schedule))

    def offer(self, record: Record, now_ms: int) -> None:
        """Take in a record of the verdict topic; answers to sessions are not for us."""
        try:
            event = self._worker.verdicts.decode(record.value)
        except CodecError as error:
            self._worker.undecodable(*self._verdict, record.offset, str(error))
            return
        if not isinstance(event, Verdicts):
            return
        flaw = flaw_of(event)
        if flaw:
            self._worker.undecodable(*self._verdict, record.offset, flaw)
            return
        for source, start, end in event.acked:
            self._worker.acked(source, end - start, now_ms)
        self.intake.offer(record.offset, event)

    def step(self, now_ms: int) -> bool:
        """Write what is due, then take over what was lost; True if anything was done.

        Raises:
            Aborted: a transaction was aborted; drop the partition and open it again.
            Fenced: another worker owns the partition; drop it.
            BreakerOpen: too large a share of an input dies.
            Disagreement: a root is of an input that topics.yaml does not have.
            TopicError: a topic to write to is missing.
            Unreachable: it is not known what the broker did; drop the partition and open it again.
        """
        fired = self._fire(now_ms)
        return self._take_over(now_ms) or fired

    def finish(self) -> None:
        """Commit how far the verdicts are taken over, where that was put off."""
        batch = self.intake.peek(0)
        if batch.progress != self.intake.progress:
            self._commit_progress(batch, [])

    def close(self) -> None:
        """Leave; a transaction that is open is ended by the next owner."""
        self._transactions.close()

    def _take_over(self, now_ms: int) -> bool:
        """Run the first transaction.

        1. Take a batch of lost roots off the verdicts, as many as there is room for.
        2. Decide what becomes of each.
        3. Write them with the progress.
        4. Let them wait.
        """
        room = self._room
        if room <= 0:
            return False
        batch = self.intake.peek(room)
        interval_ms = self._worker.limits.position_interval_ms
        put_off = not batch.roots and now_ms - self._progress_ms < interval_ms
        if batch.progress == self.intake.progress or put_off:
            return False
        dues = dues_of(self._worker, batch.roots, now_ms)
        encoded = [(due, self._worker.dues.encode(due)) for due in dues]
        self._commit_progress(
            batch, [Outgoing(*self._due, value, root_key(due.root)) for due, value in encoded]
        )
        self._progress_ms = now_ms
        self._worker.counters.lost += len(batch.roots)
        self._worker.counters.absent += len(batch.roots) - len(dues)
        for due, value in encoded:
            self.schedule.put(due.root, due.due_ms, value)
        return True

    def _commit_progress(self, batch: Batch, dues: Sequence[Outgoing]) -> None:
        progress = Outgoing(*self._due, self._worker.dues.encode(batch.progress), PROGRESS_KEY)
        self._transact((*dues, progress), {self._verdict: batch.progress.next})
        self.intake.advance(batch.progress)

    def _fire(self, now_ms: int) -> bool:
        """Run the second transaction.

        1. Take what is due off the schedule, where it stays until the commit.
        2. Fetch the records and build copies and dead letters.
        3. Write them with their tombstones.
        4. Forget them.
        """
        waiting = self.schedule.due(now_ms, self._worker.limits.fire_max)
        if not waiting:
            return False
        dues = [due for entry in waiting if isinstance(due := self._worker.dues.decode(entry.value), Due)]
        outcomes = outcomes_of(self._worker, dues, now_ms)
        written = [outcome.written for outcome in outcomes if outcome.written is not None]
        tombstones = [Outgoing(*self._due, None, root_key(outcome.due.root)) for outcome in outcomes]
        self._transact((*written, *tombstones), {})
        for outcome in outcomes:
            self.schedule.remove(outcome.due.root)
            self._count(outcome, now_ms)
        return True

    def _count(self, outcome: Outcome, now_ms: int) -> None:
        counters, due, name = self._worker.counters, outcome.due, outcome.input.name
        if outcome.written is None:
            counters.absent += 1
            return
        if outcome.dead is None:
            counters.replayed += 1
            counters.replayed_by_input[name] = counters.replayed_by_input.get(name, 0) + 1
            return
        counters.dead_lettered += 1
        counters.without_payload += not outcome.has_payload
        counters.dead_lettered_by_input[name] = counters.dead_lettered_by_input.get(name, 0) + 1
        self._worker.breaker_of(outcome.input).dead(1, now_ms)
        self._worker.tell(
            "dead_lettered", input=name, root=due.origin, attempt=due.attempt, reason=outcome.dead.value
        )

    def _transact(self, records: Iterable[Outgoing], offsets: Mapping[TopicPartition, int]) -> None:
        transactions = self._transactions
        transactions.begin()
        for record in records:
            transactions.send(record)
        if offsets:
            transactions.send_offsets(self._worker.group, offsets)
        transactions.commit(self._worker.limits.operation_timeout_ms)

    def _restore(self) -> Progress | None:
        """Read `_ack_due` to its stable end; the last record of each key counts."""
        stored: Progress | None = None
        for record in self._stored():
            root = parse_root_key(record.key)
            if record.value is None:
                if root is not None:
                    self.schedule.remove(root)
                continue
            try:
                value = self._worker.dues.decode(record.value)
            except CodecError as error:
                self._worker.undecodable(*self._due, record.offset, str(error))
                continue
            if isinstance(value, Progress):
                stored = value
            elif root == value.root:
                self.schedule.put(value.root, value.due_ms, record.value)
            else:
                self._worker.undecodable(*self._due, record.offset, "the key is not that of the value")
        return stored

    def _stored(self) -> Iterable[Record]:
        log, limits = self._worker.log, self._worker.limits
        start, end = log.starts([self._due])[self._due], log.stable_ends([self._due])[self._due]
        if start >= end:
            return
        reader = log.reader(committed=True)
        try:
            reader.assign({self._due: start})
            patience_ms = limits.operation_timeout_ms
            while (position := reader.position(self._due)) < end:
                yield from reader.poll(_POLL_MS)
                moved = reader.position(self._due) != position
                patience_ms = limits.operation_timeout_ms if moved else patience_ms - _POLL_MS
                if patience_ms < 0:
                    raise Unreachable(f"{self._due.topic}/{self.number} does not answer at offset {position}")
        finally:
            reader.close()

    def _begin(self, stored: Progress | None) -> Progress:
        log, worker = self._worker.log, self._worker
        if stored is None:
            committed = log.committed(worker.group, [self._verdict])
            stored = Progress(committed.get(self._verdict, 0), 0)
        start, end = log.starts([self._verdict])[self._verdict], log.ends([self._verdict])[self._verdict]
        name = f"{self._verdict.topic}/{self.number}"
        if stored.next < start:
            raise DataLoss(
                f"verdicts {stored.next} to {start} of {name} are no longer in the log and were never taken"
                f" over; commit offset {start} for group {worker.group} to give up what they say"
            )
        if stored.next > end:
            raise Disagreement(
                f"{name} ends at {end}, before {stored.next}, up to which it is taken over: the topic was"
                f" created again; delete and create {self._due.topic} as well"
            )
        return stored
