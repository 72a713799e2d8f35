"""One verdict partition and the worker that owns it: the two transactions of a lost root.

The first transaction writes to `_ack_due` each lost root with its due time and
history, and the progress of the verdicts. This progress is the truth; the
group's offset of the verdicts only follows it. The second transaction, at the
due time, writes the copy or the dead letter, and a tombstone to `_ack_due`.
Both run under the transactional id of the partition. With this id a new owner
fences the old one and ends its transaction; then it reads `_ack_due` to its
stable end, and so has exactly what waits.

If too many records of an input would become dead letters, it is paused: a note
in `_ack_due` keeps every owner of the partition from it until a person resumes
it (`replay.handling.resume`).

The state in memory changes only after a commit. When a transaction was
aborted, or its end is uncertain, the partition is dropped and opened again:
`_ack_due` then shows what is still to be done.
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
    unreadable_kind,
)
from acker.hot_paths import tuple_maker, uncollected
from acker.identity import Root, input_id_of, offset_of, partition_of
from acker.kafka.port import DamagedRun, Outgoing, Record, TopicPartition
from acker.service.passed_over import marked_offset
from acker.wire.checks import wrong_verdicts
from acker.wire.clusters import require_cluster
from acker.wire.events import Verdicts
from acker.wire.leader_epochs import read_epochs
from acker.wire.stacks import read_stacks, stack_header
from acker.writer_clocks import clock_header
from replay.policy.damage import held_up_cure
from replay.records.due import (
    OWNER_KEY,
    PROGRESS_KEY,
    ROOT_KEY_BYTES,
    Due,
    Pause,
    Progress,
    RefusedRoot,
    pause_key,
    root_key,
)
from replay.worker.accept import Batch, Intake, dues_of
from replay.worker.cut import CutCopies, SentCopy
from replay.worker.entries import restore
from replay.worker.firing import Firing, Firings
from replay.worker.narrowing import AtFault
from replay.worker.outcome import RootOutcome
from replay.worker.refusals import Refusals
from replay.worker.refused_aside import AsideCount
from replay.worker.waiting import DueRoot, DueRoots
from replay.worker.worker import Worker, newer

_outgoing = tuple_maker(Outgoing)

_OWNER_CHECK_MS: Final = 1_000
"""How often the owner of a partition with a paused input checks that it still is the owner."""


class VerdictPartition:
    """A verdict partition that this worker owns.

    Attributes:
        reads: its place.
        held_up: by their offsets in `_ack_due`, waiting roots whose records
            lie in a damaged batch, and that.
        progress: how far verdicts are accepted, as `_ack_due` says; `intake`
            may be further.
        pauses: by an input's id.
    """

    def __init__(self, worker: Worker, number: int) -> None:
        """Become the owner: fence the former one, read `_ack_due` to its stable end, check the progress.

        Raises:
            DataLoss: verdicts that were not accepted are no longer in the log.
            Disagreement: the verdict log ends before the progress.
            UnknownVersion: a newer Windhover wrote to `_ack_due`.
        """
        self.number = number
        self._worker = worker
        self.reads = TopicPartition(worker.names.verdict, number)
        self._due = TopicPartition(worker.names.due, number)
        self._progress_written_ms = 0  # wall time, as below
        self._owner_checked_ms = 0
        self._was_undone = False  # whether a transaction was aborted; see `_transact`
        self._refusals = Refusals(worker.limits, worker.in_a_row)
        self.held_up: dict[int, DamagedRun] = {}
        # by the offset of an entry, the id of an input under which a strange
        # group emitted the root
        self._strangers: dict[int, int] = {}
        self._proof = Outgoing(*self._due, None, OWNER_KEY)  # a record that changes nothing
        self._verdicts_end = 0
        self._transactions = worker.log.transactions(f"{worker.group}-{number}")
        try:
            self._transactions.init(worker.limits.operation_timeout_ms)
            restored = restore(worker, self._due)
            self._mends = restored.mends
            # roots that a cut transaction wrote behind the last progress, and
            # the progress has not passed
            self._unpassed = set(restored.behind)
            self._cut = worker.cuts.setdefault(number, CutCopies())
            self._cut.keep(restored.table)
            self._firings = Firings(worker, self._due, self._refusals, self._cut)
            self.waiting = DueRoots(restored.table.by_input(), worker.limits.waiting_bytes_max)
            for input_id in worker.pauses.get(number, {}).keys() & worker.breakers.keys():
                if input_id not in restored.pauses:  # it was resumed
                    worker.breakers[input_id].close()
            self.pauses = worker.pauses[number] = dict(restored.pauses)
            self.progress = restored.progress or self._committed_progress()
            self._verdicts_end = self._require_verdicts(self.progress)
            self.intake = Intake(self.progress)
            if self.progress.next >= self._verdicts_end:  # nothing can be accepted again
                self._unpassed.clear()
        except WindhoverError:
            self._transactions.close()
            raise

    @property
    def next_due_ms(self) -> int | None:
        """The wall time (ms) at which the next root is due whose input can go on; None if there is none."""
        times_ms: list[int] = []
        for input_id, due_ms in self.waiting.next_due().items():
            ready_ms = self._worker.ready_ms(input_id)
            if ready_ms is not None and input_id not in self.pauses:
                times_ms.append(max(due_ms, ready_ms))
        return min(times_ms, default=None)

    def aside(self, now_ms: int) -> Mapping[int, int]:
        """Return how many roots cannot go on, by the id of their input.

        These are all of an input that cannot go on; of any other one those
        that wait until a topic takes them, and those that a strange group
        emitted.
        """
        counts = Counter(self._strangers.values())
        for input_id, refused in self.refused_aside().items():
            counts[input_id] += refused.roots
        for input_id, waiting_count in self.waiting.counts().items():
            if input_id in self.pauses or not self._worker.is_ready(input_id, now_ms):
                counts[input_id] = waiting_count
        return counts

    def refused_aside(self) -> Mapping[int, AsideCount]:
        """Return how many roots wait until a topic takes them, by the input's id, and why."""
        return self._refusals.aside.counts()

    @property
    def wants_verdicts(self) -> bool:
        """Whether there is room for further lost roots, in memory and in the next transaction."""
        return self._room > 0 and len(self.intake) < self._worker.limits.verdict_records_max

    @property
    def _room(self) -> int:
        """How many lost roots may be accepted in one transaction now; 0 or less: none."""
        limits = self._worker.limits
        return min(limits.intake_max, limits.waiting_max - len(self.waiting))

    def offer(self, record: Record, now_ms: int) -> None:
        """Queue the lost roots of a record of the verdict topic; answers to sessions are ignored.

        Raises `UnknownVersion`: perhaps a newer acker wrote it; to pass over
        it would lose its lost roots. Raises `Disagreement`: it was written in
        another cluster, where its roots are others.
        """
        require_cluster(record.place, record.headers, record.value, self._worker.cluster_id)
        try:
            event = self._worker.wire_codec.decode(record.value)
        except UnknownVersion as error:
            self._worker.undecodable(*self.reads, record.offset, newer(self._worker.log, record, error))
            return
        except CodecError as error:
            if marked_offset(record) is None:  # a mark that lets a record pass is no flawed one
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
        epochs = read_epochs(record.headers)
        self.intake.offer(record.offset, event, epochs, read_stacks(record.headers))

    def step(self, now_ms: int) -> bool:
        """Repair entries, write what is due, accept what was lost; True if anything was done.

        Raises `Aborted`, `Fenced` or `Unreachable`: drop the partition, and
        open it again unless it was `Fenced`.
        """
        with uncollected():
            check_ms = self._owner_check_ms()
            if check_ms and abs(now_ms - self._owner_checked_ms) >= check_ms:
                self._owner_checked_ms = now_ms
                self._require_owned()  # whoever resumes an input, or drops roots of strangers, fences us
            worked = self._mend(now_ms)
            worked = self._fire(now_ms) or worked
            return self._accept(now_ms) or worked

    def _owner_check_ms(self) -> int:
        """Return how often, in ms, to check that we own the partition still; 0: what we write shows it.

        Where nothing but roots of strangers wait, which an operator may drop,
        nothing is written for long.
        """
        if self.pauses:
            return _OWNER_CHECK_MS
        may_be_dropped = bool(self._strangers)
        for input_id in self.waiting.counts():
            may_be_dropped |= self._worker.ready_ms(input_id) is None  # topics.yaml does not have the input
        return self._worker.limits.input_retry_ms if may_be_dropped else 0

    def finish(self) -> None:
        """Commit the progress of the verdicts, if that was delayed."""
        batch = self.intake.peek(0)
        if batch.progress != self.intake.progress:
            self._commit_progress(batch, [])

    def close(self) -> None:
        self._transactions.close()

    def _accept(self, now_ms: int) -> bool:
        """Run the first transaction: write what was lost to `_ack_due`; return whether there was anything."""
        room = self._room
        if room <= 0:
            self._worker.counters.waiting_full += 1
            return False
        batch = self.intake.peek(room)
        if batch.progress == self.intake.progress:
            return False
        # progress alone is written now and then; below 0 the clock was set
        # back
        since_progress_ms = now_ms - self._progress_written_ms
        if not batch.roots and 0 <= since_progress_ms < self._worker.limits.position_interval_ms:
            return False
        # what a cut transaction has written already is not accepted again
        roots = [root for root in batch.roots if (root.lost.source, root.position) not in self._unpassed]
        dues = dues_of(self._worker, roots, now_ms)
        values = [self._worker.due_codec.encode(due) for due in dues]
        entries: list[Outgoing] = []
        for due, value in zip(dues, values, strict=True):
            headers = stack_header(due.stack)
            entries.append(self._worker.waiting_record(self._due, root_key(due), value, headers))
        entry_offsets = self._commit_progress(batch, entries, now_ms)
        self._progress_written_ms = now_ms
        self._worker.counters.lost += len(roots)
        self._worker.counters.held += sum(due.last_was_blocked for due in dues)
        self._worker.counters.absent += len(roots) - len(dues)
        for due, value, offset in zip(dues, values, entry_offsets, strict=True):
            self.waiting.put(due, offset, len(value) + len(due.stack))
        return True

    def _commit_progress(
        self, batch: Batch, entries: Sequence[Outgoing], now_ms: int | None = None
    ) -> Sequence[int]:
        """Write entries, and the progress once it has passed all that a cut transaction left behind it.

        The next owner accepts again what is before a progress and not passed
        by it.

        Return the offsets that the entries got, in their order.
        """
        unpassed = self._unpassed
        if unpassed:
            unpassed = unpassed.difference((root.lost.source, root.position) for root in batch.roots)
        if batch.progress.next >= self._verdicts_end:  # what is left was written for another reason
            unpassed = set()
        records = [*entries]
        if not unpassed:
            records.append(self._progress_record(batch.progress, now_ms))
        entry_offsets = self._transact(records)
        self.intake.advance(batch.progress)
        self._unpassed = unpassed
        if not unpassed:
            self.progress = batch.progress
        return entry_offsets

    def _progress_record(self, progress: Progress, now_ms: int | None) -> Outgoing:
        """Return the record of a progress; `now_ms` is what this machine's clock says, where it is known."""
        value = self._worker.due_codec.encode(progress)
        return self._worker.waiting_record(self._due, PROGRESS_KEY, value, clock_header(now_ms))

    def _fire(self, now_ms: int) -> bool:
        """Run the second transaction; return whether anything was written, or found out.

        1. Take the due roots of inputs that can go on, and choose which of
           them are tried together (`replay.worker.refusals`).
        2. Prepare what is written for them.
        3. Write it, and behind it the progress, so that the next owner keeps
           few of the entries. If no more records of an input may become dead
           letters, write its pause, too.
        4. Remove what is done from memory; the rest goes on waiting, what is
           held up for some time.

        An error before the transaction leaves all roots waiting; an error of
        the transaction makes the caller drop the partition, except where a
        topic is missing or refuses a record: that is one input's. If an entry
        is missing in `_ack_due`, first make sure that we still own the
        partition, since another owner may have removed the entry.
        """
        worker = self._worker
        inputs = self._refusals.in_turn(self._ready(now_ms), worker.refused_inputs)
        taken = self.waiting.take(now_ms, worker.limits.fire_max, inputs)
        if not taken:
            return False
        chosen = self._refusals.choose(taken, inputs)
        if len(chosen) < len(taken):
            offsets = {entry.offset for entry in chosen}
            self.waiting.put_back(entry for entry in taken if entry.offset not in offsets)
        if not chosen:  # of the one input that is tried alone nothing is due but suspects
            (input_id,) = inputs
            self._conclude(input_id, self._refusals.ran_out(input_id), now_ms)
            return True
        try:
            firing = self._firings.prepare(chosen, self.waiting.in_memory(chosen), now_ms)
        except WindhoverError as error:
            self.waiting.put_back(chosen)
            if isinstance(error, DataLoss):
                self._require_owned()
            raise
        has_written = bool(firing.inputs or firing.pauses)
        entry_offsets: Sequence[int] = ()
        if has_written:
            try:
                copies = _new_copies(firing.outcomes)
                self._cut.begin(worker.log, {copy.place for _, copy in copies}, now_ms)
                entry_offsets = self._write(firing, now_ms)
            except (TopicError, NotAuthorized, RecordRefused) as error:
                self.waiting.put_back(chosen)
                self._refused(firing, error, now_ms)
                return True
        self._follow(firing, entry_offsets, now_ms)
        return has_written

    def _hold_up(self, not_done: Mapping[int, Due | None], now_ms: int) -> Mapping[int, int]:
        """Record and report roots that lie in a damaged batch.

        `not_done` are, by offset, the entries of roots that were due; most
        were left for other reasons.

        Return by the offset of an entry when its root is tried again, wall
        time in ms.
        """
        worker = self._worker
        until_ms: dict[int, int] = {}
        input_by_run: dict[DamagedRun, int] = {}
        for entry_offset, due in not_done.items():
            if due is None:
                continue
            partition, offset = partition_of(due.source), offset_of(due.position)
            holding = worker.damaged.holding(due.topic, partition, offset, now_ms)
            if holding is not None:
                self.held_up[entry_offset] = holding.run
                until_ms[entry_offset] = holding.until_ms
                input_by_run[holding.run] = input_id_of(due.source)
        for run, input_id in input_by_run.items():
            if worker.damaged.is_to_report(run, now_ms):
                worker.report(
                    "held_up",
                    input=worker.name_of(input_id),
                    roots=sum(held_up_run == run for held_up_run in self.held_up.values()),
                    damaged=str(run),
                    why=run.why,
                    next_step=held_up_cure(unreadable_kind(run.why)),
                )
        return until_ms

    def _put_off_strangers(self, not_done: Mapping[int, Due | None], now_ms: int) -> Mapping[int, int]:
        """Record roots that a strange group emitted; return by their offsets when they are looked at again.

        `not_done` are, by offset, the entries of roots that were due and are
        not done. Until they are looked at again they take no place in a
        transaction. The input may get that group by a newer topics.yaml.
        """
        until_ms: dict[int, int] = {}
        for offset, due in not_done.items():
            if due is not None and self._worker.is_strangers(due.source, due.group):
                self._strangers[offset] = input_id_of(due.source)
                until_ms[offset] = now_ms + self._worker.limits.input_retry_ms
        return until_ms

    def _ready(self, now_ms: int) -> Sequence[int]:
        """Return the ids of the inputs that have due roots and can go on."""
        ready: list[int] = []
        for input_id, due_ms in self.waiting.next_due().items():
            is_paused = input_id in self.pauses
            if due_ms <= now_ms and not is_paused and self._worker.is_ready(input_id, now_ms):
                ready.append(input_id)
        return ready

    def _write(self, firing: Firing, now_ms: int) -> Sequence[int]:
        """Write a firing in one transaction: copies, letters, tombstones, new entries, progress, pauses.

        Return the offsets that the new entries got, in their order.
        """
        due_topic, due_partition = self._due
        waiting_record = self._worker.waiting_record
        outcomes = firing.outcomes
        records = [copy.record for _, copy in _new_copies(outcomes)]
        for outcome in outcomes:
            tombstone = _outgoing((due_topic, due_partition, None, root_key(outcome.due), (), None))
            records.append(tombstone)
        for offset, decision in firing.decisions.items():
            due = firing.entries[offset]
            if due is not None:
                if decision is None:  # a tombstone
                    records.append(waiting_record(self._due, root_key(due), None))
                else:
                    headers = stack_header(decision.due.stack)
                    records.append(waiting_record(self._due, root_key(due), decision.value, headers))
        if not self._unpassed:
            records.append(self._progress_record(self.progress, now_ms))
        for pause in firing.pauses:
            value = self._worker.due_codec.encode(pause)
            records.append(waiting_record(self._due, pause_key(pause.input), value))
        try:
            entry_offsets = self._transact(records)
        except WindhoverError:
            self._cut.refused(_new_copies(outcomes))
            raise
        self._cut.committed(outcome.root for outcome in outcomes)
        return entry_offsets

    def _follow(self, firing: Firing, entry_offsets: Sequence[int], now_ms: int) -> None:
        """Change in memory what was committed: what is done, what waits on, and what was refused or not.

        `entry_offsets` are those of the firing's new entries; none if nothing
        had to be written.
        """
        done = firing.done()
        aside = self._refusals.aside
        were_aside = {offset for offset in done if aside.has(offset)} if aside else ()
        self._remove_done(firing, done, now_ms)
        self._refusals.done(done)
        self._put_new_entries(firing, entry_offsets)
        copied_inputs: set[int] = set()
        for outcome in firing.outcomes:
            if outcome.is_copy and outcome.is_sent:
                copied_inputs.add(outcome.input.id)
        self._worker.works(firing.inputs, copied_inputs)
        if self._refusals.has_refused_lately:
            for input_id in firing.inputs:
                self._refusals.accepted(input_id, firing.accepted(input_id, were_aside))
        self._count_firing(firing, now_ms)

    def _remove_done(self, firing: Firing, done: Collection[int], now_ms: int) -> None:
        """Remove the entries at the offsets `done`; put the others of a firing back, some for a while."""
        for entry in firing.chosen:
            self.held_up.pop(entry.offset, None)
            self._strangers.pop(entry.offset, None)
        if len(done) == len(firing.chosen):
            self.waiting.remove(firing.chosen)
            return
        done_roots: list[DueRoot] = []
        remaining: list[DueRoot] = []
        for entry in firing.chosen:
            if entry.offset in done:
                done_roots.append(entry)
            else:
                remaining.append(entry)
        self.waiting.remove(done_roots)
        # what was not read yet, or did not fit into the fetch, has no entry
        # here
        offsets = [entry.offset for entry in remaining if entry.offset in firing.entries]
        entries = {offset: firing.entries[offset] for offset in offsets}
        held_up_until_ms = self._hold_up(entries, now_ms)
        strangers_until_ms = self._put_off_strangers(entries, now_ms)
        self.waiting.put_back(remaining, {**held_up_until_ms, **strangers_until_ms})

    def _put_new_entries(self, firing: Firing, entry_offsets: Sequence[int]) -> None:
        """Add the roots to those that wait whose new entries were written, by the offsets of these."""
        new_entries = [decision for decision in firing.decisions.values() if decision is not None]
        for (due, value), offset in zip(new_entries, entry_offsets, strict=True):
            self.waiting.put(due, offset, len(value))
            if isinstance(due, RefusedRoot):
                self._refusals.aside.put(input_id_of(due.source), offset, due)

    def _refused(self, firing: Firing, error: WindhoverError, now_ms: int) -> None:
        """Abort a transaction that the broker refused, and find out what it refused: an input, or a record.

        A transaction of several inputs only shows that each of them must be
        tried alone.
        """
        self._was_undone = True
        with suppress(WindhoverError):  # the next transaction raises it again
            self._transactions.abort(self._worker.limits.operation_timeout_ms)
        if len(firing.inputs) > 1:
            self._worker.refused_inputs |= firing.inputs
            return
        for input_id in firing.inputs:
            self._worker.refused_inputs.discard(input_id)
            sent = [outcome for outcome in firing.outcomes if outcome.is_sent]
            if isinstance(error, RecordRefused) and sent:
                self._refused_records(input_id, firing, sent, error, now_ms)
            else:
                self._refusals.forget(input_id)
                self._worker.trouble(input_id, error, now_ms)

    def _refused_records(
        self,
        input_id: int,
        firing: Firing,
        sent: Sequence[RootOutcome],
        error: RecordRefused,
        now_ms: int,
    ) -> None:
        """Record that a transaction of one input was refused, which `sent` copies and dead letters.

        1. Roots that were put aside were tried: they are left alone for
           longer.
        2. Several were sent: fewer of them are tried next.
        3. One was sent: its copy becomes a suspect, or its dead letter is put
           aside.
        """
        refusals = self._refusals
        were_aside = [entry for entry in firing.chosen if refusals.aside.has(entry.offset)]
        if were_aside:
            wait_ms = refusals.aside.refused(input_id, len(were_aside), error.reason)
            if wait_ms:
                self._put_off(input_id, were_aside[0], now_ms, now_ms + wait_ms)
            return
        if len(sent) > 1:
            refusals.refused_together(input_id, firing.root_count_of(input_id))
            return
        (outcome,) = sent
        record = outcome.written
        if record is None:
            return
        offset = firing.offset_of(outcome)
        why = f"{record.topic}: {error.reason}"
        is_too_old = outcome.is_copy and self._worker.is_too_old(record, now_ms)
        if outcome.is_copy:
            at_fault = refusals.refused_copy(input_id, offset, why, is_too_old=is_too_old)
            self._conclude(input_id, at_fault, now_ms)
        else:
            if error.is_of_time:
                self._worker.letter_topics_by_broker.add(record.topic)
            refusals.refused_letter(input_id, offset, why)
        if is_too_old or not outcome.is_copy:
            name = outcome.input.name
            self._worker.report("put_aside", input=name, roots=1, root=outcome.due.origin, why=why)

    def _conclude(self, input_id: int, at_fault: AtFault, now_ms: int) -> None:
        """Leave an input alone for a while if the fault is its topic's, which takes no copies."""
        if at_fault is AtFault.TOPIC:
            why = self._refusals.why_no_copy(input_id)
            text = f"every copy that was tried is refused ({why}); see `windhover topics check`"
            self._worker.trouble(input_id, TopicError(text), now_ms, is_of_copies=True)

    def _put_off(self, input_id: int, tried: DueRoot, now_ms: int, until_ms: int) -> None:
        """Leave the due roots of an input alone that were put aside, until `until_ms`.

        `tried` is the one that was tried; it comes back 1 ms after the others,
        so that another one is tried first then.
        """
        put_back: list[DueRoot] = []
        for entry in self.waiting.take(now_ms, self._worker.limits.fire_max, [input_id]):
            if entry == tried:
                put_back.append(DueRoot(until_ms + 1, entry.offset))
            elif self._refusals.aside.has(entry.offset):
                put_back.append(DueRoot(until_ms, entry.offset))
            else:
                put_back.append(entry)
        self.waiting.put_back(put_back)

    def _mend(self, now_ms: int) -> bool:
        """Write the entries anew that the new owner found flawed; return whether there were any."""
        if not self._mends:
            return False
        records = [mend.written for mend in self._mends]
        if not self._unpassed:
            records.append(self._progress_record(self.progress, now_ms))
        offsets = iter(self._transact(records))
        for mend in self._mends:
            if mend.due is not None:  # else its root waits no more: a tombstone was written
                self.waiting.put(mend.due, next(offsets), len(mend.written.value or b""))
            self._worker.report("mended", partition=self.number, root=mend.name)
        self._mends = ()
        return True

    def _count_firing(self, firing: Firing, now_ms: int) -> None:
        """Count and report what a committed transaction wrote, and remember its pauses."""
        counters = self._worker.counters
        copies_by_input = Counter(outcome.input.name for outcome in firing.outcomes if outcome.is_copy)
        counters.replayed += copies_by_input.total()
        counters.replayed_by_input.update(copies_by_input)
        counters.absent += sum(decision is None for decision in firing.decisions.values())
        for outcome in firing.outcomes:
            if not outcome.is_copy:
                self._count_without_copy(outcome, now_ms)
            if self._worker.written is not None and outcome.written is not None:
                self._worker.written(outcome.due, outcome.written, outcome.input, outcome.is_copy, now_ms)
        for pause in firing.pauses:
            self.pauses[pause.input] = pause
            name = self._worker.name_of(pause.input)
            self._worker.report("paused", input=name, partition=self.number, why=paused_text(name, pause))

    def _count_without_copy(self, outcome: RootOutcome, now_ms: int) -> None:
        """Count and report a root that has got no copy: it never had a record, was dropped, or died."""
        counters = self._worker.counters
        due = outcome.due
        name = outcome.input.name
        if outcome.dead is None:
            counters.absent += 1
            return
        fields: dict[str, str | int] = {
            "input": name,
            "root": due.origin,
            "attempt": due.attempt,
            "reason": outcome.dead.value,
        }
        if outcome.why:
            fields["why"] = outcome.why
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

    def _transact(self, records: Iterable[Outgoing]) -> Sequence[int]:
        """Run one transaction, if there is a record.

        Copies and dead letters are in the log before the tombstones of their
        roots are sent: if a part of the transaction is committed alone
        (`acker.service.partition` says when), no root is lost.

        A request to abort may be delayed, too, and undo the copies of a later
        transaction: tombstones that follow would be committed without them.
        But the broker takes no record for a partition that has left the
        transaction. So after an abort `_ack_due` is a part of each transaction
        before the copies are.

        Return the offsets of the entries that let roots wait, in their order.
        """
        transactions = self._transactions
        records = tuple(records)
        entry_offsets: list[int] = []
        if not records:
            return entry_offsets
        transactions.begin()
        timeout_ms = self._worker.limits.operation_timeout_ms
        copies_and_letters: list[Outgoing] = []
        entries: list[Outgoing] = []  # those that let roots wait
        other_due_records: list[Outgoing] = []  # tombstones, the progress, pauses
        for record in records:
            if record.topic != self._due.topic:
                copies_and_letters.append(record)
            elif len(record.key or b"") == ROOT_KEY_BYTES and record.value is not None:
                entries.append(record)
            else:
                other_due_records.append(record)
        if self._was_undone:
            transactions.send_all([self._proof])
            transactions.flush(timeout_ms)
        transactions.send_all(copies_and_letters)
        transactions.flush(timeout_ms)
        for record in entries:
            transactions.send(record, entry_offsets.append)
        transactions.send_all(other_due_records)
        transactions.commit(timeout_ms)
        return entry_offsets

    def _require_owned(self) -> None:
        """Raise `Fenced` if another worker owns the partition."""
        self._transact([self._proof])  # a transaction without a record would not reach the broker

    def _committed_progress(self) -> Progress:
        """Return the progress that the group committed: what to begin with if `_ack_due` has none."""
        committed = self._worker.log.committed(self._worker.group, [self.reads])
        return Progress(committed.get(self.reads, 0), skip=0)

    def _require_verdicts(self, progress: Progress) -> int:
        """Return where the log of the verdicts ends.

        Raises `DataLoss` or `Disagreement`: it begins behind the progress, or
        ends before it.
        """
        log = self._worker.log
        start = log.starts([self.reads])[self.reads]
        end = log.ends([self.reads])[self.reads]
        name = f"{self.reads.topic}/{self.number}"
        if progress.next < start:
            raise DataLoss(
                f"verdicts {progress.next} to {start} of {name} are no longer in the log and were never taken"
                f" over; commit offset {start} for group {self._worker.group} to give up what they say"
            )
        if progress.next > end:
            raise Disagreement(
                f"{name} ends at {end}, before {progress.next}, up to which it is accepted: the topic was"
                f" created again; delete and create {self._due.topic} as well"
            )
        return end


def _new_copies(outcomes: Iterable[RootOutcome]) -> Iterator[tuple[Root, SentCopy]]:
    """Yield the copies and dead letters that are written now, without those that are there already."""
    for outcome in outcomes:
        if outcome.written is not None and not outcome.is_committed:
            yield outcome.root, SentCopy(outcome.written, outcome.dead)


def paused_text(name: str, pause: Pause) -> str:
    """Return a text about why an input is paused, and what to do."""
    return (
        f"{pause.why}; correct what fails them, then run `windhover replay resume {name}`: what is no dead"
        " letter yet waits, and nothing is lost"
    )
