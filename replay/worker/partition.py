"""One verdict partition and the worker that owns it: the two transactions of a lost root.

The first transaction writes to `_ack_due` each lost root with its due time and history, and the progress of
the verdicts. This progress is the truth; the group's offset of the verdicts only follows it. The second
transaction, at the due time, writes the copy or the dead letter, and a tombstone to `_ack_due`. Both run
under the transactional id of the partition. With this id a new owner fences the old one and ends its
transaction; then it reads `_ack_due` to its stable end, and so has exactly what waits.

If too many records of an input would become dead letters, it is paused: a note in `_ack_due` keeps every
owner of the partition from it until a person resumes it (`replay.handling.resume`).

The state in memory changes only after a commit. When a transaction was aborted, or its end is uncertain, the
partition is dropped and opened again: `_ack_due` then shows what is still to be done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from acker.errors import (
    CodecError,
    DataLoss,
    Disagreement,
    NotAuthorized,
    RecordRefused,
    TopicError,
    UnknownVersion,
    WindhoverError,
)
from acker.hot_paths import tuple_maker, uncollected
from acker.identity import Root, input_id_of
from acker.kafka.port import Outgoing, Record, TopicPartition
from acker.service.passed_over import marked_offset
from acker.wire.checks import wrong_verdicts
from acker.wire.events import Verdicts
from replay.records.due import (
    OWNER_KEY,
    PROGRESS_KEY,
    ROOT_KEY_BYTES,
    Aside,
    Due,
    Pause,
    Progress,
    pause_key,
    root_key,
)
from replay.worker.cut import CutCopies, Written
from replay.worker.entries import entries_of, restore
from replay.worker.outcome import RootOutcome, bounded, outcomes_of
from replay.worker.takeover import Batch, Intake, decided, dues_of
from replay.worker.waiting import DueRoot, DueRoots
from replay.worker.worker import Worker, newer

_outgoing = tuple_maker(Outgoing)

_OWNER_CHECK_MS: Final = 1_000
"""How often the owner of a partition with a paused input checks that it still is the owner."""

_Decision = tuple[Due, bytes] | None
"""What becomes of a root that was put aside, also encoded; None if there never was a record."""


class VerdictPartition:
    """A verdict partition that this worker owns.

    Attributes:
        reads: its place.
        progress: how far verdicts are taken over, as `_ack_due` says; `intake` may be further.
        pauses: by an input's id.
    """

    def __init__(self, worker: Worker, number: int) -> None:
        """Become the owner: fence the former one, read `_ack_due` to its stable end, check the progress.

        Raises:
            DataLoss: verdicts that were not taken over are no longer in the log.
            Disagreement: the verdict log ends before the progress.
            UnknownVersion: a newer Windhover wrote to `_ack_due`.
        """
        self.number = number
        self._worker = worker
        self.reads = TopicPartition(worker.names.verdict, number)
        self._due = TopicPartition(worker.names.due, number)
        self._progress_ms = 0
        self._owned_ms = 0
        self._placed: list[int] = []
        self._was_undone = False
        self._strangers: dict[int, int] = {}  # by the offset of an entry, the id that a strange group used
        self._proof = Outgoing(*self._due, None, OWNER_KEY)
        self._verdicts_end = 0
        self._transactions = worker.log.transactions(f"{worker.group}-{number}")
        try:
            self._transactions.init(worker.limits.operation_timeout_ms)
            restored = restore(worker, self._due)
            self._mends = restored.mends
            self._behind = set(restored.behind)
            self._cut = worker.cuts.setdefault(number, CutCopies())
            self._cut.keep(restored.table)
            self.waiting = DueRoots(restored.table.by_input(), worker.limits.waiting_bytes_max)
            for input_id in worker.pauses.get(number, {}).keys() & worker.breakers.keys():
                if input_id not in restored.pauses:  # it was resumed
                    worker.breakers[input_id].close()
            self.pauses = worker.pauses[number] = dict(restored.pauses)
            self.progress = self._begin(restored.progress)
            self.intake = Intake(self.progress)
            if self.progress.next >= self._verdicts_end:  # nothing can be taken over again
                self._behind.clear()
        except WindhoverError:
            self._transactions.close()
            raise

    @property
    def next_due_ms(self) -> int | None:
        """The wall time (ms) at which the next root is due whose input can go on; None if there is none."""
        found = (
            max(due_ms, ready_ms)
            for each, due_ms in self.waiting.next_due().items()
            if each not in self.pauses and (ready_ms := self._worker.ready_ms(each)) is not None
        )
        return min(found, default=None)

    def aside(self, now_ms: int) -> Mapping[int, int]:
        """Return how many roots cannot go on, by the id of their input.

        These are all of an input that cannot go on; of any other one those that a strange group emitted.
        """
        counts = Counter(self._strangers.values())
        for input_id, count in self.waiting.counts().items():
            if input_id in self.pauses or not self._worker.is_ready(input_id, now_ms):
                counts[input_id] = count
        return counts

    @property
    def wants_verdicts(self) -> bool:
        return self._room > 0 and len(self.intake) < self._worker.limits.verdict_records_max

    @property
    def _room(self) -> int:
        limits = self._worker.limits
        return min(limits.intake_max, limits.waiting_max - len(self.waiting))

    def offer(self, record: Record, now_ms: int) -> None:
        """Read a record of the verdict topic; answers to sessions are ignored.

        Raises `UnknownVersion`: perhaps a newer acker wrote it; to pass over it would lose its lost roots.
        """
        try:
            event = self._worker.verdicts.decode(record.value)
        except UnknownVersion as error:
            self._worker.undecodable(*self.reads, record.offset, newer(self._worker.log, record, error))
            return
        except CodecError as error:
            if marked_offset(record) is None:
                self._worker.undecodable(*self.reads, record.offset, str(error))
            return
        if not isinstance(event, Verdicts):
            return
        flaw = wrong_verdicts(event)
        if flaw:
            self._worker.undecodable(*self.reads, record.offset, flaw)
            return
        for source, start, end in event.acked:
            breaker = self._worker.breakers.get(input_id_of(source))
            if breaker is not None:
                breaker.acked(end - start, now_ms)
        self.intake.offer(record.offset, event)

    def step(self, now_ms: int) -> bool:
        """Repair entries, write what is due, take over what was lost; True if anything was done.

        Raises `Aborted`, `Fenced` or `Unreachable`: drop the partition, and open it again unless it was
        `Fenced`.
        """
        with uncollected():
            if self.pauses and abs(now_ms - self._owned_ms) >= _OWNER_CHECK_MS:
                self._owned_ms = now_ms
                self._require_owned()  # whoever resumes an input fences us
            worked = self._mend()
            worked = self._fire(now_ms) or worked
            return self._take_over(now_ms) or worked

    def finish(self) -> None:
        """Commit the progress of the verdicts, if that was delayed."""
        batch = self.intake.peek(0)
        if batch.progress != self.intake.progress:
            self._commit_progress(batch, [])

    def close(self) -> None:
        self._transactions.close()

    def _take_over(self, now_ms: int) -> bool:
        """Run the first transaction."""
        room = self._room
        if room <= 0:
            self._worker.counters.waiting_full += 1
            return False
        batch = self.intake.peek(room)
        interval_ms = self._worker.limits.position_interval_ms
        put_off = not batch.roots and 0 <= now_ms - self._progress_ms < interval_ms
        if batch.progress == self.intake.progress or put_off:
            return False
        roots = [each for each in batch.roots if (each.lost.source, each.position) not in self._behind]
        dues = dues_of(self._worker, roots, now_ms)
        encoded = [(due, self._worker.dues.encode(due)) for due in dues]
        self._commit_progress(batch, [Outgoing(*self._due, value, root_key(due)) for due, value in encoded])
        self._progress_ms = now_ms
        self._worker.counters.lost += len(roots)
        self._worker.counters.held += sum(due.last_was_blocked for due in dues)
        self._worker.counters.absent += len(roots) - len(dues)
        for (due, value), offset in zip(encoded, self._placed, strict=True):
            self.waiting.put(due, offset, len(value))
        return True

    def _commit_progress(self, batch: Batch, dues: Sequence[Outgoing]) -> None:
        """Write entries, and the progress once it has passed all that a cut transaction left behind it.

        The next owner takes over again what is before a progress and not passed by it.
        """
        behind = self._behind
        if behind:
            behind = behind.difference((each.lost.source, each.position) for each in batch.roots)
        if batch.progress.next >= self._verdicts_end:  # what is left was written for another reason
            behind = set()
        self._transact(dues if behind else (*dues, self._written(batch.progress)))
        self.intake.advance(batch.progress)
        self._behind = behind
        if not behind:
            self.progress = batch.progress

    def _written(self, progress: Progress) -> Outgoing:
        return Outgoing(*self._due, self._worker.dues.encode(progress), PROGRESS_KEY)

    def _fire(self, now_ms: int) -> bool:
        """Run the second transaction.

        1. Take the due roots of inputs that can go on.
        2. Get their entries of `_ack_due`, from memory or from the log.
        3. Decide about roots that were put aside. For the others, fetch the records, and build copies and
           dead letters, except for those that are there already (`replay.worker.cut`).
        4. Write these with their tombstones, and new entries for roots that were put aside; behind these
           the progress, so that the next owner keeps few of them. If no more records of an input may become
           dead letters, write its pause, too.
        5. Remove what is done from memory; the rest goes on waiting.

        An error before the transaction leaves all roots waiting; an error of the transaction makes the caller
        drop the partition. If an entry is missing in `_ack_due`, first make sure that we still own the
        partition, since another owner may have removed the entry.
        """
        worker = self._worker
        taken = self.waiting.take(now_ms, worker.limits.fire_max, self._ready(now_ms))
        if not taken:
            return False
        try:
            entries = entries_of(worker, self._due, self.waiting.kept(taken))
            asides = {at: due for at, due in entries.items() if isinstance(due, Aside)}
            encode = worker.dues.encode
            decisions: dict[int, _Decision] = {
                at: None if due is None else (due, encode(due))
                for at, due in decided(worker, asides, now_ms).items()
            }
            dues = [due for at, due in entries.items() if due is not None and at not in asides]
            built = self._without_twins(outcomes_of(worker, dues, now_ms)) if dues else ()
            outcomes, open_ones = bounded(worker, built, now_ms)
        except WindhoverError as error:
            self.waiting.done((), taken)
            if isinstance(error, DataLoss):
                self._require_owned()
            raise
        pauses = [Pause(found.id, now_ms, worker.breakers[found.id].why) for found in open_ones]
        inputs = {outcome.input.id for outcome in outcomes}
        inputs |= {input_id_of(asides[at].source) for at in decisions}
        if inputs or pauses:
            try:
                self._cut.begin(worker.log, {copy[:2] for _, (copy, _) in _new_ones(outcomes)}, now_ms)
                self._write(outcomes, [(asides[at], found) for at, found in decisions.items()], pauses)
            except (TopicError, NotAuthorized, RecordRefused) as error:
                self.waiting.done((), taken)
                self._refused(inputs, error, now_ms)
                return True
        done = {*decisions, *(at for at, due in entries.items() if due is None)}
        if len(outcomes) + len(done) == len(taken):
            self.waiting.done(taken, ())
        else:
            ended = {id(outcome.due) for outcome in outcomes}
            done |= {at for at, due in entries.items() if id(due) in ended}
            left = [entry for entry in taken if entry.offset not in done]
            left = self._later_if_strangers(left, asides, now_ms)
            self.waiting.done([entry for entry in taken if entry.offset in done], left)
        for offset in decisions:
            self._strangers.pop(offset, None)
        waiting = [found for found in decisions.values() if found is not None]
        placed = self._placed if waiting else ()  # without `waiting` they are of another transaction
        for (due, value), offset in zip(waiting, placed, strict=True):
            self.waiting.put(due, offset, len(value))
        worker.works(inputs)
        self._count_all(outcomes, decisions, pauses, now_ms)
        return bool(inputs or pauses)

    def _later_if_strangers(
        self, left: Iterable[DueRoot], asides: Mapping[int, Aside], now_ms: int
    ) -> list[DueRoot]:
        """Return what goes on waiting; what a strange group emitted is looked at again after a while.

        Until then it takes no place in a transaction. The input may get that group by a newer topics.yaml.
        """
        later: list[DueRoot] = []
        for entry in left:
            aside = asides.get(entry.offset)
            if aside is not None and self._worker.is_strangers(aside.source, aside.group):
                self._strangers[entry.offset] = input_id_of(aside.source)
                entry = entry._replace(due_ms=now_ms + self._worker.limits.input_retry_ms)
            later.append(entry)
        return later

    def _ready(self, now_ms: int) -> Sequence[int]:
        ready = [
            each
            for each, due_ms in self.waiting.next_due().items()
            if due_ms <= now_ms and each not in self.pauses and self._worker.is_ready(each, now_ms)
        ]
        return [each for each in ready if each in self._worker.suspects][:1] or ready

    def _without_twins(self, outcomes: Sequence[RootOutcome]) -> Sequence[RootOutcome]:
        worker = self._worker
        there = self._cut.look(worker.log, worker.limits.operation_timeout_ms, worker.at)
        if not there:
            return outcomes
        return [
            each
            if (found := there.get(each.root)) is None
            else each._replace(written=found[0], dead=found[1], is_there=True)
            for each in outcomes
        ]

    def _write(
        self,
        outcomes: Sequence[RootOutcome],
        decisions: Sequence[tuple[Aside, _Decision]],
        pauses: Sequence[Pause],
    ) -> None:
        topic, number = self._due
        records = [each.written for each in outcomes if each.written is not None and not each.is_there]
        records += [_outgoing((topic, number, None, root_key(outcome.due), (), None)) for outcome in outcomes]
        records += [
            Outgoing(topic, number, found and found[1], root_key(aside)) for aside, found in decisions
        ]
        if not self._behind:  # as behind all entries
            records.append(self._written(self.progress))
        encode = self._worker.dues.encode
        records += [Outgoing(topic, number, encode(pause), pause_key(pause.input)) for pause in pauses]
        try:
            self._transact(records)
        except WindhoverError:
            self._cut.refused(_new_ones(outcomes))
            raise
        self._cut.committed(each.root for each in outcomes)

    def _refused(self, inputs: Collection[int], error: WindhoverError, now_ms: int) -> None:
        """Abort a transaction whose topic the broker refused; try each input alone to find whose it is."""
        self._was_undone = True
        with suppress(WindhoverError):  # the next transaction raises it again
            self._transactions.abort(self._worker.limits.operation_timeout_ms)
        if len(inputs) > 1:
            self._worker.suspects |= set(inputs)
            return
        for input_id in inputs:
            self._worker.suspects.discard(input_id)
            self._worker.trouble(input_id, error, now_ms)

    def _mend(self) -> bool:
        if not self._mends:
            return False
        behind_all = () if self._behind else (self._written(self.progress),)
        self._transact((*(mend.written for mend in self._mends), *behind_all))
        waiting = [mend for mend in self._mends if mend.due is not None]
        for mend, offset in zip(waiting, self._placed, strict=True):
            if mend.due is not None:
                self.waiting.put(mend.due, offset, len(mend.written.value or b""))
        for mend in self._mends:
            self._worker.report("mended", partition=self.number, root=mend.name)
        self._mends = ()
        return True

    def _count_all(
        self,
        outcomes: Sequence[RootOutcome],
        decisions: Mapping[int, _Decision],
        pauses: Iterable[Pause],
        now_ms: int,
    ) -> None:
        counters = self._worker.counters
        copied = Counter(outcome.input.name for outcome in outcomes if outcome.is_copy)
        counters.replayed += copied.total()
        counters.replayed_by_input.update(copied)
        counters.absent += sum(found is None for found in decisions.values())
        for outcome in outcomes:
            if not outcome.is_copy:
                self._count(outcome, now_ms)
            if self._worker.written is not None and outcome.written is not None:
                self._worker.written(outcome.due, outcome.written, outcome.input, outcome.is_copy, now_ms)
        for pause in pauses:
            self.pauses[pause.input] = pause
            name = self._worker.name_of(pause.input)
            self._worker.report("paused", input=name, partition=self.number, why=paused_text(name, pause))

    def _count(self, outcome: RootOutcome, now_ms: int) -> None:
        counters, due, name = self._worker.counters, outcome.due, outcome.input.name
        if outcome.dead is None:
            counters.absent += 1
            return
        fields: dict[str, str | int] = {"input": name, "root": due.origin, "attempt": due.attempt}
        fields["reason"] = outcome.dead.value
        if not outcome.dies:
            counters.dropped += 1
            counters.dropped_by_input[name] += 1
            self._worker.report("dropped", **fields)
            return
        counters.dead_lettered += 1
        counters.without_payload += not outcome.has_payload
        counters.dead_lettered_by_input[name] += 1
        self._worker.breakers[outcome.input.id].dead(1, now_ms)
        self._worker.report("dead_lettered", **fields)

    def _transact(self, records: Iterable[Outgoing]) -> None:
        """Run one transaction, if there is a record.

        Copies and dead letters are in the log before the tombstones of their roots are sent: if a part of the
        transaction is committed alone (`acker.service.partition` says when), no root is lost.

        A request to abort may be delayed, too, and undo the copies of a later transaction: tombstones that
        follow would be committed without them. But the broker takes no record for a partition that has left
        the transaction. So after an abort `_ack_due` is a part of each transaction before the copies are.

        Then `_placed` has, in order, the offsets of the entries that let roots wait.
        """
        transactions, self._placed = self._transactions, []
        records = tuple(records)
        if not records:
            return
        transactions.begin()
        timeout_ms = self._worker.limits.operation_timeout_ms
        elsewhere: list[Outgoing] = []
        waiting: list[Outgoing] = []
        others: list[Outgoing] = []
        for record in records:
            is_due, is_entry = record.topic == self._due.topic, len(record.key or b"") == ROOT_KEY_BYTES
            kind = waiting if is_entry and record.value is not None else others
            (kind if is_due else elsewhere).append(record)
        if self._was_undone:
            transactions.send_all([self._proof])
            transactions.flush(timeout_ms)
        transactions.send_all(elsewhere)
        transactions.flush(timeout_ms)
        for record in waiting:
            transactions.send(record, self._placed.append)
        transactions.send_all(others)
        transactions.commit(timeout_ms)

    def _require_owned(self) -> None:
        """Raise `Fenced` if another worker owns the partition."""
        self._transact([self._proof])  # a transaction without a record would not reach the broker

    def _begin(self, stored: Progress | None) -> Progress:
        log, worker = self._worker.log, self._worker
        if stored is None:
            committed = log.committed(worker.group, [self.reads])
            stored = Progress(committed.get(self.reads, 0), 0)
        start, end = log.starts([self.reads])[self.reads], log.ends([self.reads])[self.reads]
        self._verdicts_end = end
        name = f"{self.reads.topic}/{self.number}"
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


def _new_ones(outcomes: Iterable[RootOutcome]) -> Iterator[tuple[Root, Written]]:
    """Yield the copies and dead letters that are written now, without those that are there already."""
    return ((each.root, (each.written, each.dead)) for each in outcomes if each.written and not each.is_there)


def paused_text(name: str, pause: Pause) -> str:
    """Return a text about why an input is paused, and what to do."""
    return (
        f"{pause.why}; correct what fails them, then run `windhover replay resume {name}`: what is no dead"
        " letter yet waits, and nothing is lost"
    )
