"""One verdict partition in the hands of one worker: the two transactions of a lost root.

First transaction: the verdicts' progress, and each lost root into `_ack_due` with its due time and history.
The progress in `_ack_due` is the truth; the group's offset of the verdicts only follows it (`done`).
Second transaction, at the due time: the copy or the dead letter, and the tombstone in `_ack_due`. Both run
under one transactional id, named after the partition: a new owner fences the old one with it and ends what
that one left open, reads `_ack_due` to its stable end, and then knows exactly what waits.

What is kept in memory changes only after a commit. When a transaction was aborted, or it is not known what
became of it, the partition is dropped and opened again: what is durable says what is still to be done.

Source: DESIGN.md, section 5.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from acker.answer_checks import wrong_verdicts
from acker.collection import uncollected
from acker.errors import CodecError, DataLoss, Disagreement, UnknownVersion, WindhoverError
from acker.events import Verdicts
from acker.log import Outgoing, Record, TopicPartition
from acker.made import made
from replay.due import PROGRESS_KEY, Due, Progress, key_of
from replay.intake import Batch, Intake
from replay.known import known_of
from replay.outcome import Outcome, outcomes_of
from replay.restore import restore
from replay.schedule import Entry, Schedule
from replay.takeover import dues_of
from replay.waiting import Waiting
from replay.worker import Worker, newer

_outgoing = made(Outgoing)


class VerdictPartition:
    """A verdict partition that this worker owns."""

    def __init__(self, worker: Worker, number: int) -> None:
        """Take the partition over.

        1. End the transaction of a predecessor and fence it.
        2. Read `_ack_due` to its stable end: what waits, how far the verdicts are taken over, and what the
           first step has to mend, since somebody else wrote over it.
        3. Compare that with what the verdict log still holds.

        Raises:
            DataLoss: verdicts that were not taken over are no longer in the log.
            Disagreement: the verdict log ends before what was taken over.
            UnknownVersion: a newer Windhover wrote to `_ack_due`.
            Unreachable: the broker does not answer.
        """
        self.number = number
        self._worker = worker
        self._verdict = TopicPartition(worker.names.verdict, number)
        self._due = TopicPartition(worker.names.due, number)
        self._progress_ms = 0
        self._placed: list[int] = []
        self._transactions = worker.log.transactions(f"{worker.group}-{number}")
        try:
            self._transactions.init(worker.limits.operation_timeout_ms)
            restored = restore(worker, self._due)
            self._mends = restored.mends
            schedule = Schedule()
            schedule.add_all(restored.table.entries())
            self.waiting = Waiting(schedule, worker.limits.waiting_bytes_max)
            self.intake = Intake(self._begin(restored.progress))
        except WindhoverError:
            self._transactions.close()
            raise

    @property
    def reads(self) -> TopicPartition:
        """The partition of the verdict topic."""
        return self._verdict

    @property
    def done(self) -> Mapping[TopicPartition, int]:
        """Up to where the verdicts are durably taken over."""
        return {self._verdict: self.intake.progress.next}

    @property
    def wants_verdicts(self) -> bool:
        """Whether there is room for more verdicts."""
        return self._room > 0 and len(self.intake) < self._worker.limits.verdict_records_max

    @property
    def _room(self) -> int:
        limits = self._worker.limits
        return min(limits.intake_max, limits.waiting_max - len(self.waiting))

    def offer(self, record: Record, now_ms: int) -> None:
        """Take in a record of the verdict topic; answers to sessions are not for us.

        Raises:
            UnknownVersion: a newer acker wrote it. Passing over it would lose what it says was lost.
        """
        try:
            event = self._worker.verdicts.decode(record.value)
        except UnknownVersion as error:
            raise newer(record, error) from error
        except CodecError as error:
            self._worker.undecodable(*self._verdict, record.offset, str(error))
            return
        if not isinstance(event, Verdicts):
            return
        flaw = wrong_verdicts(event)
        if flaw:
            self._worker.undecodable(*self._verdict, record.offset, flaw)
            return
        for source, start, end in event.acked:
            self._worker.acked(source, end - start, now_ms)
        self.intake.offer(record.offset, event)

    def step(self, now_ms: int) -> bool:
        """Mend, write what is due, take over what was lost; True if anything was done.

        Raises:
            Aborted: a transaction was aborted; drop the partition and open it again.
            Fenced: another worker owns the partition; drop it.
            BreakerOpen: too large a share of an input dies.
            Disagreement: a root is of an input that topics.yaml does not have.
            TopicError: a topic to write to is missing.
            Unreachable: it is not known what the broker did; drop the partition and open it again.
        """
        with uncollected():
            worked = self._mend()
            worked = self._fire(now_ms) or worked
            return self._take_over(now_ms) or worked

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
        self._commit_progress(batch, [Outgoing(*self._due, value, key_of(due)) for due, value in encoded])
        self._progress_ms = now_ms
        self._worker.counters.lost += len(batch.roots)
        self._worker.counters.held += sum(due.last_was_held for due in dues)
        self._worker.counters.absent += len(batch.roots) - len(dues)
        for (due, value), offset in zip(encoded, self._placed, strict=True):
            self.waiting.put(due, offset, len(value))
        return True

    def _commit_progress(self, batch: Batch, dues: Sequence[Outgoing]) -> None:
        self._transact((*dues, self._written(batch.progress)))
        self.intake.advance(batch.progress)

    def _written(self, progress: Progress) -> Outgoing:
        return Outgoing(*self._due, self._worker.dues.encode(progress), PROGRESS_KEY)

    def _fire(self, now_ms: int) -> bool:
        """Run the second transaction.

        1. Take what is due.
        2. Know of each what `_ack_due` holds.
        3. Fetch the records and build copies and dead letters.
        4. Write them with their tombstones.
        5. Forget them; the rest goes on waiting.

        What fails before the transaction leaves all waiting; where that fails, the partition is dropped. That
        `_ack_due` no longer holds a root tells nothing before it is known that no other worker took it out.
        """
        taken = self.waiting.take(now_ms, self._worker.limits.fire_max)
        if not taken:
            return False
        try:
            known = known_of(self._worker, self._due, self.waiting.kept(taken))
            outcomes = outcomes_of(self._worker, [due for due in known.values() if due is not None], now_ms)
        except WindhoverError as error:
            self.waiting.done((), taken)
            if isinstance(error, DataLoss):
                self._require_owned()
            raise
        if outcomes:
            written = [outcome.written for outcome in outcomes if outcome.written is not None]
            topic, number = self._due
            tombstones = [
                _outgoing((topic, number, None, key_of(outcome.due), (), None)) for outcome in outcomes
            ]
            self._transact((*written, *tombstones))
        left = () if len(outcomes) == len(taken) else _left(taken, known, outcomes)
        self.waiting.done([entry for entry in taken if entry not in left] if left else taken, left)
        self._count_copies(outcomes)
        for outcome in outcomes:
            if not outcome.is_copy:
                self._count(outcome, now_ms)
        return bool(outcomes)

    def _mend(self) -> bool:
        """Write what was written over again, and let the roots that it is about wait."""
        if not self._mends:
            return False
        self._transact([mend.written for mend in self._mends])
        waiting = [mend for mend in self._mends if mend.due is not None]
        for mend, offset in zip(waiting, self._placed, strict=True):
            if mend.due is not None:
                self.waiting.put(mend.due, offset, len(mend.written.value or b""))
        for mend in self._mends:
            self._worker.tell("mended", partition=self.number, root=mend.name)
        self._mends = ()
        return True

    def _count_copies(self, outcomes: Iterable[Outcome]) -> None:
        counters = self._worker.counters
        copied = Counter(outcome.input.name for outcome in outcomes if outcome.is_copy)
        counters.replayed += copied.total()
        counters.replayed_by_input.update(copied)

    def _count(self, outcome: Outcome, now_ms: int) -> None:
        """Count and tell what became of a root of which there is no copy."""
        counters, due, name = self._worker.counters, outcome.due, outcome.input.name
        if outcome.dead is None:
            counters.absent += 1
            return
        fields: dict[str, str | int] = {"input": name, "root": due.origin, "attempt": due.attempt}
        fields["reason"] = outcome.dead.value
        if not outcome.dies:
            counters.dropped += 1
            counters.dropped_by_input[name] += 1
            self._worker.tell("dropped", **fields)
            return
        counters.dead_lettered += 1
        counters.without_payload += not outcome.has_payload
        counters.dead_lettered_by_input[name] += 1
        self._worker.breaker_of(outcome.input).dead(1, now_ms)
        self._worker.tell("dead_lettered", **fields)

    def _transact(self, records: Iterable[Outgoing]) -> None:
        """Run one transaction, of at least one record; `_placed` are then the offsets, in order, of the roots
        that it lets wait."""
        records = list(records)
        transactions, self._placed = self._transactions, []
        transactions.begin()
        waiting = [record for record in records if self._waits(record)]
        for record in waiting:
            transactions.send(record, self._placed.append)
        transactions.send_all([each for each in records if not self._waits(each)] if waiting else records)
        transactions.commit(self._worker.limits.operation_timeout_ms)

    def _waits(self, record: Outgoing) -> bool:
        """Tell whether a record lets a root wait."""
        return record.value is not None and record.topic == self._due.topic and record.key != PROGRESS_KEY

    def _require_owned(self) -> None:
        """Commit what is committed once more; a transaction without a record would ask nobody.

        Raises:
            Fenced: another worker owns the partition.
        """
        self._transact([self._written(self.intake.progress)])

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


def _left(
    taken: Iterable[Entry], known: Mapping[int, Due | None], outcomes: Iterable[Outcome]
) -> frozenset[Entry]:
    """Return what goes on waiting: of which nothing was read, or nothing written."""
    ended = {id(outcome.due) for outcome in outcomes}
    return frozenset(
        entry
        for entry in taken
        if entry.offset not in known or ((due := known[entry.offset]) is not None and id(due) not in ended)
    )
