"""One verdict partition and the worker that owns it: the two transactions of a lost root.

The first transaction *accepts* lost roots: it writes to `_ack_due` each one
with its due time and history (an *entry*), and the *progress*: how far the
verdicts are accepted. This progress is the truth; the group's offset of the
verdicts only follows it. The second transaction, at the due time, *fires*
roots: it writes the copy or the dead letter, and a tombstone to `_ack_due`.
Both run under the transactional id of the partition. With this id a new owner
fences the old one and ends its transaction; then it reads `_ack_due` to its
stable end, and so has exactly what waits.

If too many records of an input would become dead letters, it is paused: a
record in `_ack_due` keeps every owner of the partition from it until a person
resumes it (`replay.handling.resume`).

A root is *foreign* if another group emitted it under the id of an input of
ours. It is *put aside* if it has to wait for a person: its input cannot go on,
it is foreign, or its topic refuses what is written for it.

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
from acker.identity import Root, input_id_of
from acker.kafka.port import DamagedRun, Outgoing, Record, TopicPartition
from acker.listing import offsets_text
from acker.service.passed_over import offset_to_pass_over
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
from replay.worker.accept import Batch, Intake, entries_of_lost_roots
from replay.worker.cut import CutCopies, SentCopy
from replay.worker.entries import restore
from replay.worker.firing import Firing, Firings
from replay.worker.narrowing import AtFault
from replay.worker.outcome import RootOutcome
from replay.worker.refusals import Refusals
from replay.worker.refused_aside import AsideCount
from replay.worker.waiting import DueRoot, DueRoots
from replay.worker.worker import Worker, require_newer_passed_over

_outgoing = tuple_maker(Outgoing)

_OWNER_CHECK_MS: Final = 1_000
"""How often the owner of a partition with a paused input checks that it still is the owner."""


class VerdictPartition:
    """A verdict partition that this worker owns.

    Attributes:
        number: of the verdict partition, and of its partition of `_ack_due`.
        verdict_partition: the partition of `_ack_verdict` that it reads.
        intake: verdict records that were read and are not accepted yet.
        waiting: the roots that have an entry in `_ack_due`.
        damaged_run_by_entry_offset: of each waiting root whose record could not be
            read, by the offset of its entry, the damaged offsets around the
            record.
        progress: how far verdicts are accepted, as `_ack_due` says; `intake`
            may be further.
        pauses: of paused inputs, by an input's id.
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
        self.verdict_partition = TopicPartition(worker.ack_topics.verdict, number)
        self._due_partition = TopicPartition(worker.ack_topics.due, number)
        self._progress_written_at_ms = 0  # wall time
        self._owner_checked_at_ms = 0  # wall time
        self._has_aborted_once = False  # since this was opened; see `_run_transaction`
        self._refusals = Refusals(worker.limits, worker.refused_in_a_row_by_input)
        self.damaged_run_by_entry_offset: dict[int, DamagedRun] = {}
        # of each foreign root that waits, by the offset of its entry: the id of
        # the input
        self._input_id_by_foreign_entry_offset: dict[int, int] = {}
        # a record that changes nothing; the broker takes it only from the owner
        self._record_of_owner = Outgoing(*self._due_partition, None, OWNER_KEY)
        self._transactions = worker.log.transactions(f"{worker.group}-{number}")
        try:
            # 1. fence the former owner
            self._transactions.init(worker.limits.operation_timeout_ms)
            # 2. read `_ack_due`
            restored = restore(worker, self._due_partition)
            self._entries_to_mend = restored.mends
            # roots that are accepted although the progress has not passed
            # them: a transaction that was cut wrote their entries, and not the
            # progress that follows these
            self._accepted_past_progress = set(restored.roots_past_progress)
            self._cut_copies = worker.cut_copies_by_partition.setdefault(number, CutCopies())
            self._cut_copies.forget_all_but_waiting(restored.table)
            self._firings = Firings(worker, self._due_partition, self._refusals, self._cut_copies)
            self.waiting = DueRoots(restored.table.by_input(), worker.limits.waiting_bytes_max)
            # an input that was paused when we owned the partition last, and is
            # paused no more, was resumed
            former_pauses = worker.pauses_by_partition.get(number, {})
            for input_id in former_pauses.keys() & worker.breakers.keys():
                if input_id not in restored.pauses:
                    worker.breakers[input_id].close()
            self.pauses = worker.pauses_by_partition[number] = dict(restored.pauses)
            # 3. check the progress
            self.progress = restored.progress or self._committed_progress()
            self._verdicts_end_at_open = self._require_verdicts_from(self.progress)
            self.intake = Intake(self.progress)
            if self.progress.next >= self._verdicts_end_at_open:  # nothing can be accepted again
                self._accepted_past_progress.clear()
        except WindhoverError:
            self._transactions.close()
            raise

    @property
    def next_due_ms(self) -> int | None:
        """The wall time (ms) at which the next root can be fired; None if there is none.

        Left out are inputs that are paused, or not in topics.yaml. An input
        that is left alone after a trouble can go on when that ends.
        """
        times_ms: list[int] = []
        for input_id, due_ms in self.waiting.next_due_ms_by_input().items():
            ready_ms = self._worker.ready_ms(input_id)  # None: topics.yaml does not have the input
            if ready_ms is not None and input_id not in self.pauses:
                times_ms.append(max(due_ms, ready_ms))
        return min(times_ms, default=None)

    def aside_count_by_input(self, now_ms: int) -> Mapping[int, int]:
        """Return how many roots are put aside, by the id of their input.

        If an input cannot go on, all its waiting roots are. Otherwise only
        those that a topic refuses, and the foreign ones, are.
        """
        count_by_input = Counter(self._input_id_by_foreign_entry_offset.values())
        for input_id, refused in self.refused_aside_by_input().items():
            count_by_input[input_id] += refused.root_count
        for input_id, waiting_count in self.waiting.count_by_input().items():
            if input_id in self.pauses or not self._worker.is_ready(input_id, now_ms):
                # all that wait, in place of the counts above
                count_by_input[input_id] = waiting_count
        return count_by_input

    def refused_aside_by_input(self) -> Mapping[int, AsideCount]:
        """Return, by the input's id, how many roots a topic refuses, so that they wait, and why."""
        return self._refusals.roots_aside.count_by_input()

    @property
    def wants_verdicts(self) -> bool:
        """Whether there is room for further lost roots, in memory and in the next transaction."""
        records_max = self._worker.limits.verdict_records_max
        return self._room_for_lost_roots > 0 and len(self.intake) < records_max

    @property
    def _room_for_lost_roots(self) -> int:
        """How many lost roots may be accepted in one transaction now; 0 or less: none."""
        limits = self._worker.limits
        return min(limits.intake_max, limits.waiting_max - len(self.waiting))

    def record_verdicts(self, record: Record, now_ms: int) -> None:
        """Queue the lost roots of a verdict record, and count its acked roots for the breakers.

        Answers to sessions are ignored, and so is what cannot be decoded, which
        is reported.

        Raises `UnknownVersion`: perhaps a newer acker wrote it; to pass over
        it would lose its lost roots. Raises `Disagreement`: it was written in
        another cluster, where its roots are others.
        """
        require_cluster(record.place, record.headers, record.value, self._worker.cluster_id)
        verdicts = self._decode_verdicts(record)
        if verdicts is None:
            return
        for source, start, end in verdicts.acked:  # runs of positions [start, end)
            breaker = self._worker.breakers.get(input_id_of(source))
            if breaker is not None:  # else topics.yaml does not have the input
                breaker.count_acked(end - start, now_ms)
        leader_epochs = read_epochs(record.headers)
        stack_by_cause = read_stacks(record.headers)
        self.intake.add(record.offset, verdicts, leader_epochs, stack_by_cause)

    def _decode_verdicts(self, record: Record) -> Verdicts | None:
        """Return the verdicts of a record; None if it has none, or is flawed, which is reported."""
        try:
            event = self._worker.wire_codec.decode(record.value)
        except UnknownVersion as error:
            flaw = require_newer_passed_over(self._worker.log, record, error)
        except CodecError as error:
            if offset_to_pass_over(record) is not None:
                return None  # no flawed record, but an operator's mark on another one
            flaw = str(error)
        else:
            if not isinstance(event, Verdicts):
                return None
            flaw = wrong_verdicts(event)
            if not flaw:
                return event
        self._worker.report_undecodable(*self.verdict_partition, record.offset, flaw)
        return None

    def step(self, now_ms: int) -> bool:
        """Mend entries, write what is due, accept what was lost; return whether anything was done.

        Raises `Aborted`, `Fenced` or `Unreachable`: drop the partition, and
        open it again unless it was `Fenced`.
        """
        with uncollected():
            interval_ms = self._owner_check_interval_ms()
            # abs: a clock that was set back must not delay the check for long
            if interval_ms and abs(now_ms - self._owner_checked_at_ms) >= interval_ms:
                self._owner_checked_at_ms = now_ms
                self._require_owned()
            has_mended = self._mend_entries(now_ms)
            # due roots go first: they make room for new ones
            has_fired = self._fire_due_roots(now_ms)
            has_accepted = self._accept_lost_roots(now_ms)
            return has_mended or has_fired or has_accepted

    def _owner_check_interval_ms(self) -> int:
        """Return how often, in ms, to check that we own the partition still; 0: never.

        Each transaction shows whether we do. But an operator who resumes a
        paused input, or drops foreign roots, fences us while nothing may be
        written for long.
        """
        if self.pauses:
            return _OWNER_CHECK_MS
        may_be_dropped = bool(self._input_id_by_foreign_entry_offset)
        for input_id in self.waiting.count_by_input():
            # None: topics.yaml does not have the input
            may_be_dropped = may_be_dropped or self._worker.ready_ms(input_id) is None
        return self._worker.limits.input_retry_ms if may_be_dropped else 0

    def finish(self) -> None:
        """Commit the progress past verdicts without lost roots, if that was delayed."""
        batch = self.intake.next_batch(limit=0)
        if batch.progress != self.intake.progress:
            self._commit_batch(batch, entries=[], now_ms=None)

    def close(self) -> None:
        self._transactions.close()

    def _accept_lost_roots(self, now_ms: int) -> bool:
        """Run the first transaction: write lost roots to `_ack_due`.

        Return whether there was anything to write.

        1. Take as many roots as there is room for.
        2. Decide when each is replayed, or that it dies.
        3. Write the entries and the progress.
        4. Count them, and let them wait in memory.
        """
        worker = self._worker
        # 1. which roots
        if self._room_for_lost_roots <= 0:
            worker.counters.waiting_full += 1
            return False
        batch = self._next_batch(now_ms)
        if batch is None:
            return False
        # roots that a cut transaction has accepted are not accepted again
        accepted = self._accepted_past_progress
        roots = [lost_root for lost_root in batch.roots if lost_root.root not in accepted]
        # 2. what becomes of them
        entries = entries_of_lost_roots(worker, roots, now_ms)
        # 3. write it
        values = [worker.due_codec.encode(entry) for entry in entries]
        entry_records: list[Outgoing] = []
        for entry, value in zip(entries, values, strict=True):
            headers = stack_header(entry.stack)
            key = root_key(entry)
            entry_records.append(worker.waiting_record(self._due_partition, key, value, headers))
        entry_offsets = self._commit_batch(batch, entry_records, now_ms)
        # 4. count it, and remember it
        self._progress_written_at_ms = now_ms
        worker.counters.lost += len(roots)
        worker.counters.held += sum(entry.last_was_blocked for entry in entries)
        worker.counters.absent += len(roots) - len(entries)  # they never had a record
        for entry, value, offset in zip(entries, values, entry_offsets, strict=True):
            self.waiting.put(entry, offset, value_bytes=len(value) + len(entry.stack))
        return True

    def _next_batch(self, now_ms: int) -> Batch | None:
        """Return the lost roots to accept next; None: no verdict came, or it can wait.

        A batch without lost roots changes only the progress; it is written once
        every `position_interval_ms`.
        """
        batch = self.intake.next_batch(self._room_for_lost_roots)
        if batch.progress == self.intake.progress:  # no verdict came
            return None
        # a difference below 0 shows that the clock was set back: write it now
        since_progress_ms = now_ms - self._progress_written_at_ms
        # how often a progress alone is written
        interval_ms = self._worker.limits.position_interval_ms
        if not batch.roots and 0 <= since_progress_ms < interval_ms:
            return None
        return batch

    def _commit_batch(self, batch: Batch, entries: Sequence[Outgoing], now_ms: int | None) -> Sequence[int]:
        """Write the entries and the progress of a batch in one transaction.

        A cut transaction may have written entries without the progress behind
        them. As long as the verdicts of such roots are still to come, no progress
        is written: the next owner knows that they are accepted, since their
        entries are behind the last progress in `_ack_due`.

        Return the offsets that the entries got, in their order. `now_ms` None:
        the progress record says no time.
        """
        # accepted by a cut transaction, and their verdicts are still to come
        accepted_past = self._accepted_past_progress
        if accepted_past:
            roots_of_batch = (lost_root.root for lost_root in batch.roots)
            accepted_past = accepted_past.difference(roots_of_batch)
        if batch.progress.next >= self._verdicts_end_at_open:
            # all verdicts that a former owner can have read are accepted now:
            # entries that are left were written for another reason
            accepted_past = set()
        records = [*entries]
        if not accepted_past:
            records.append(self._progress_record(batch.progress, now_ms))
        entry_offsets = self._run_transaction(records)
        self.intake.record_committed(batch.progress)
        self._accepted_past_progress = accepted_past
        if not accepted_past:
            self.progress = batch.progress
        return entry_offsets

    def _progress_record(self, progress: Progress, now_ms: int | None) -> Outgoing:
        """Return the record of a progress; `now_ms` is what this machine's clock says, where it is known."""
        value = self._worker.due_codec.encode(progress)
        return self._worker.waiting_record(self._due_partition, PROGRESS_KEY, value, clock_header(now_ms))

    def _fire_due_roots(self, now_ms: int) -> bool:
        """Run the second transaction: write copies and dead letters of due roots.

        Return whether anything was written, or decided about refused copies.

        1. Choose which due roots are tried together.
        2. Prepare what is written for them.
        3. Write it, and behind it the progress, so that the next owner keeps
           few of the entries. If no more records of an input may become dead
           letters, write its pause, too.
        4. Remove what is done from memory; the rest goes on waiting, what is
           held up (in a damaged batch) for some time.

        An error before the transaction leaves all roots waiting; an error of
        the transaction makes the caller drop the partition, except where a
        topic is missing or refuses a record: that is one input's. If an entry
        is missing in `_ack_due`, first make sure that we still own the
        partition, since another owner may have removed the entry.
        """
        # 1. which roots
        chosen = self._choose_due_roots(now_ms)
        if not chosen:  # None: nothing is due; empty: it was decided about refused copies
            return chosen is not None
        # 2. what is written
        try:
            entries_in_memory = self.waiting.entries_in_memory(chosen)
            firing = self._firings.prepare(chosen, entries_in_memory, now_ms)
        except WindhoverError as error:
            self.waiting.put_back(chosen)
            if isinstance(error, DataLoss):
                self._require_owned()
            raise
        # 3. write it
        has_written = bool(firing.input_ids or firing.pauses)
        entry_offsets: Sequence[int] = ()
        if has_written:
            try:
                copies = _copies_to_send(firing.outcomes)
                copy_partitions = {copy.topic_partition for _, copy in copies}
                self._cut_copies.record_ends(self._worker.log, copy_partitions, now_ms)
                entry_offsets = self._write_firing(firing, now_ms)
            except (TopicError, NotAuthorized, RecordRefused) as error:
                self.waiting.put_back(chosen)
                self._abort_refused(firing, error, now_ms)
                return True
        # 4. what is done is removed
        self._record_committed(firing, entry_offsets, now_ms)
        return has_written

    def _choose_due_roots(self, now_ms: int) -> Sequence[DueRoot] | None:
        """Take the due roots that the next transaction tries out of those that wait.

        Return None if no root is due. Return none of them if all that are due
        are suspects (`replay.worker.refusals`): then it was decided whether
        they die, and the next step tries others.
        """
        worker = self._worker
        ready_inputs = self._ready_inputs(now_ms)
        inputs = self._refusals.choose_next_inputs(ready_inputs, worker.input_ids_to_try_alone)
        taken = self.waiting.take(now_ms, worker.limits.fire_max, inputs)
        if not taken:
            return None
        chosen = self._refusals.choose_next_roots(taken, inputs)
        if len(chosen) < len(taken):
            chosen_offsets = {root.offset for root in chosen}
            self.waiting.put_back(root for root in taken if root.offset not in chosen_offsets)
        if not chosen:  # all that are due are suspects
            (input_id,) = inputs  # an input with suspects is tried alone
            at_fault = self._refusals.decide_about_suspects(input_id)
            self._leave_alone_if_topic_refuses(input_id, at_fault, now_ms)
        return chosen

    def _delay_roots_in_damage(
        self, entry_by_offset: Mapping[int, Due | None], now_ms: int
    ) -> Mapping[int, int]:
        """Record which roots cannot go on since their record lies in a damaged batch.

        Report the batch. `entry_by_offset` has, by offset, the entries of roots that were due and
        are not done, for any reason. Return, by entry offset, the wall time (ms)
        at which the root is tried again.
        """
        worker = self._worker
        due_ms_by_entry_offset: dict[int, int] = {}
        input_by_run: dict[DamagedRun, int] = {}  # by a damaged run: the id of the input
        for entry_offset, entry in entry_by_offset.items():
            if entry is None:  # it cannot be read, and is not about a root of ours
                continue
            put_off = worker.damaged_batches.put_off_run_at(*entry.place, now_ms)
            if put_off is not None:
                self.damaged_run_by_entry_offset[entry_offset] = put_off.damaged_run
                due_ms_by_entry_offset[entry_offset] = put_off.until_ms
                input_by_run[put_off.damaged_run] = input_id_of(entry.source)
        # all waiting roots in the run, also those of former transactions
        root_count_by_run = Counter(self.damaged_run_by_entry_offset.values())
        for run, input_id in input_by_run.items():
            if worker.damaged_batches.record_report_if_due(run, now_ms):
                worker.report(
                    "held_up",
                    input=worker.name_of(input_id),
                    roots=root_count_by_run[run],
                    damaged=str(run),
                    why=run.why,
                    next_step=held_up_cure(unreadable_kind(run.why)),
                )
        return due_ms_by_entry_offset

    def _delay_foreign_roots(
        self, entry_by_offset: Mapping[int, Due | None], now_ms: int
    ) -> Mapping[int, int]:
        """Record which of these roots are foreign, and delay them.

        `entry_by_offset` has, by offset, the entries of roots that were due and
        are not done. A root is foreign if another group emitted it under the id
        of the input. A newer topics.yaml may give the input their group, so
        they are tried again after `input_retry_ms`; without the delay they
        would take the places of other roots in each transaction.

        Return, by entry offset, the wall time (ms) at which the root is tried
        again.
        """
        due_ms_by_entry_offset: dict[int, int] = {}
        for offset, entry in entry_by_offset.items():
            # None: an entry that cannot be read, and is not about a root of ours
            if entry is not None and self._worker.is_of_other_group(entry.source, entry.group):
                self._input_id_by_foreign_entry_offset[offset] = input_id_of(entry.source)
                due_ms_by_entry_offset[offset] = now_ms + self._worker.limits.input_retry_ms
        return due_ms_by_entry_offset

    def _ready_inputs(self, now_ms: int) -> Sequence[int]:
        """Return the ids of the inputs that have due roots and can go on."""
        ready: list[int] = []
        for input_id, due_ms in self.waiting.next_due_ms_by_input().items():
            is_paused = input_id in self.pauses
            if due_ms <= now_ms and not is_paused and self._worker.is_ready(input_id, now_ms):
                ready.append(input_id)
        return ready

    def _write_firing(self, firing: Firing, now_ms: int) -> Sequence[int]:
        """Write a firing in one transaction: copies, letters, tombstones, new entries, progress, pauses.

        Return the offsets that the new entries got, in their order.
        """
        waiting_record = self._worker.waiting_record
        outcomes = firing.outcomes
        # copies and letters, and the tombstones of their roots
        records = [copy.record for _, copy in _copies_to_send(outcomes)]
        records += [_tombstone(self._due_partition, outcome.entry) for outcome in outcomes]
        # new entries of roots that wait on
        for offset, decision in firing.decision_by_offset.items():
            entry = firing.entry_by_offset[offset]
            if entry is None:
                # unreadable, and not about a root of ours: nothing is decided about it
                continue
            if decision is None:  # there never was a record
                records.append(waiting_record(self._due_partition, root_key(entry), None))
            else:
                headers = stack_header(decision.entry.stack)
                key = root_key(entry)
                records.append(waiting_record(self._due_partition, key, decision.value, headers))
        # the next owner keeps in memory which entries are behind the last
        # progress, so it is repeated here; see `_commit_batch` for when not
        if not self._accepted_past_progress:
            records.append(self._progress_record(self.progress, now_ms))
        for pause in firing.pauses:
            value = self._worker.due_codec.encode(pause)
            records.append(waiting_record(self._due_partition, pause_key(pause.input), value))
        try:
            entry_offsets = self._run_transaction(records)
        except WindhoverError:
            self._cut_copies.record_doubtful(_copies_to_send(outcomes))
            raise
        self._cut_copies.forget_committed(outcome.root for outcome in outcomes)
        return entry_offsets

    def _record_committed(self, firing: Firing, entry_offsets: Sequence[int], now_ms: int) -> None:
        """Change in memory what was committed: what is done, what waits on, and what was refused or not.

        `entry_offsets` are those of the firing's new entries; none if nothing
        had to be written.
        """
        refusals = self._refusals
        done_offsets = firing.done_offsets()
        # which of them were put aside: asked before `forget_done` forgets it
        aside_offsets: Collection[int] = ()
        if refusals.roots_aside:
            aside_offsets = {offset for offset in done_offsets if refusals.roots_aside.has(offset)}
        # 1. what is done leaves the memory, and what waits on gets its new offset
        self._remove_done_and_put_back_rest(firing, done_offsets, now_ms)
        refusals.forget_done(done_offsets)
        self._put_new_entries(firing, entry_offsets)
        # 2. inputs whose topics have taken something are in trouble no more
        input_ids_with_copies: set[int] = set()
        for outcome in firing.outcomes:
            if outcome.is_copy and outcome.is_sent:
                input_ids_with_copies.add(outcome.input.id)
        self._worker.record_success(firing.input_ids, input_ids_with_copies)
        # 3. searches for refused records go on
        if refusals.has_refused_lately:
            for input_id in firing.input_ids:
                accepted = firing.count_accepted_of(input_id, aside_offsets)
                refusals.record_accepted(input_id, accepted)
        # 4. counters and reports
        self._count_firing(firing, now_ms)

    def _remove_done_and_put_back_rest(
        self, firing: Firing, done_offsets: Collection[int], now_ms: int
    ) -> None:
        """Remove the roots of a firing that are done; put its others back among those that wait.

        Foreign ones, and those in a damaged batch, are put back for a while.
        """
        for root in firing.chosen_roots:
            self.damaged_run_by_entry_offset.pop(root.offset, None)
            self._input_id_by_foreign_entry_offset.pop(root.offset, None)
        if len(done_offsets) == len(firing.chosen_roots):
            self.waiting.remove(firing.chosen_roots)
            return
        done_roots: list[DueRoot] = []
        remaining: list[DueRoot] = []
        for root in firing.chosen_roots:
            if root.offset in done_offsets:
                done_roots.append(root)
            else:
                remaining.append(root)
        self.waiting.remove(done_roots)
        entry_by_offset: dict[int, Due | None] = {}
        for root in remaining:
            # what is behind the stable end, or did not fit into the fetch, has
            # no entry here
            if root.offset in firing.entry_by_offset:
                entry_by_offset[root.offset] = firing.entry_by_offset[root.offset]
        damaged_due_ms_by_entry_offset = self._delay_roots_in_damage(entry_by_offset, now_ms)
        foreign_due_ms_by_entry_offset = self._delay_foreign_roots(entry_by_offset, now_ms)
        due_ms_by_entry_offset = {**damaged_due_ms_by_entry_offset, **foreign_due_ms_by_entry_offset}
        self.waiting.put_back(remaining, due_ms_by_entry_offset)

    def _put_new_entries(self, firing: Firing, entry_offsets: Sequence[int]) -> None:
        """Add the roots of new entries to those that wait, under the offsets of the entries."""
        new_entries = [decision for decision in firing.decision_by_offset.values() if decision is not None]
        for (entry, value), offset in zip(new_entries, entry_offsets, strict=True):
            self.waiting.put(entry, offset, value_bytes=len(value))
            if isinstance(entry, RefusedRoot):
                self._refusals.roots_aside.put(input_id_of(entry.source), offset, entry)

    def _abort_refused(self, firing: Firing, error: WindhoverError, now_ms: int) -> None:
        """Abort a transaction that the broker refused, and record which input or record is refused.

        A transaction of several inputs only shows that each of them must be
        tried alone.
        """
        self._has_aborted_once = True
        with suppress(WindhoverError):  # if the abort fails, the next transaction raises that
            self._transactions.abort(self._worker.limits.operation_timeout_ms)
        if len(firing.input_ids) > 1:
            # it is not clear whose fault it is: each input is tried alone
            self._worker.input_ids_to_try_alone |= firing.input_ids
            return
        for input_id in firing.input_ids:  # one, or none where only a pause was written
            self._worker.input_ids_to_try_alone.discard(input_id)
            sent = [outcome for outcome in firing.outcomes if outcome.is_sent]
            if isinstance(error, RecordRefused) and sent:
                self._record_refused_firing(input_id, firing, sent, error, now_ms)
            else:
                # no single record is refused (the topic is missing or forbidden):
                # the whole input is left alone, and a search for refused records
                # would show nothing
                self._refusals.end_search(input_id)
                self._worker.record_trouble(input_id, error, now_ms)

    def _record_refused_firing(
        self,
        input_id: int,
        firing: Firing,
        sent: Sequence[RootOutcome],
        error: RecordRefused,
        now_ms: int,
    ) -> None:
        """Record that the broker refused the firing of one input: of its copies and letters `sent`.

        1. Roots that are put aside were tried: they are left alone for longer.
        2. Several were sent: fewer of them are tried next.
        3. One was sent: its copy becomes a suspect, or its dead letter is put
           aside.
        """
        roots_aside = self._refusals.roots_aside
        tried_aside = [root for root in firing.chosen_roots if roots_aside.has(root.offset)]
        if tried_aside:
            wait_ms = roots_aside.record_try_refused(input_id, len(tried_aside), error.reason)
            if wait_ms:  # 0: fewer of them are tried at once
                self._delay_roots_aside(input_id, tried_aside[0], now_ms, now_ms + wait_ms)
        elif len(sent) > 1:
            root_count = firing.root_count_of(input_id)
            self._refusals.record_refused_together(input_id, root_count)
        else:
            (outcome,) = sent
            self._record_refused_alone(firing.offset_of(outcome), outcome, error, now_ms)

    def _record_refused_alone(
        self, offset: int, outcome: RootOutcome, error: RecordRefused, now_ms: int
    ) -> None:
        """Record that the broker refused the only copy or dead letter of a transaction.

        A copy's root becomes a suspect; a letter is put aside by the next
        transaction. Report a letter, and a copy that is too old for its topic,
        since these are put aside. `offset` is that of the root's entry.
        """
        record = outcome.record_to_write
        if record is None:  # it cannot be: only what was sent is refused; for the types alone
            return
        why = f"{record.topic}: {error.reason}"
        is_too_old = outcome.is_copy and self._worker.is_too_old(record, now_ms)
        if outcome.is_copy:
            input_id = outcome.input.id
            at_fault = self._refusals.record_refused_copy(input_id, offset, why, is_too_old=is_too_old)
            self._leave_alone_if_topic_refuses(input_id, at_fault, now_ms)
        else:
            # the topic does not take our clock's time: its letters get the
            # broker's from now on
            if error.is_for_its_time:
                self._worker.letter_topics_on_broker_time.add(record.topic)
            self._refusals.record_refused_letter(outcome.input.id, offset, why)
        if is_too_old or not outcome.is_copy:
            name = outcome.input.name
            origin = outcome.entry.origin
            self._worker.report("put_aside", input=name, roots=1, root=origin, why=why)

    def _leave_alone_if_topic_refuses(self, input_id: int, at_fault: AtFault, now_ms: int) -> None:
        """Leave an input alone for a while if its replay topic takes no copies at all."""
        if at_fault is AtFault.TOPIC:
            why = self._refusals.why_no_copy(input_id)
            text = f"every copy that was tried is refused ({why}); see `windhover topics check`"
            error = TopicError(text)
            self._worker.record_trouble(input_id, error, now_ms, only_copies_refused=True)

    def _delay_roots_aside(self, input_id: int, tried: DueRoot, now_ms: int, until_ms: int) -> None:
        """Delay the due roots of an input that are put aside until `until_ms`, wall time.

        `tried` is the one that was tried; it is due 1 ms after the others, so
        that another one is tried first then.
        """
        put_back: list[DueRoot] = []
        for root in self.waiting.take(now_ms, self._worker.limits.fire_max, [input_id]):
            if root == tried:
                put_back.append(DueRoot(until_ms + 1, root.offset))
            elif self._refusals.roots_aside.has(root.offset):
                put_back.append(DueRoot(until_ms, root.offset))
            else:
                put_back.append(root)
        self.waiting.put_back(put_back)

    def _mend_entries(self, now_ms: int) -> bool:
        """Write anew the entries that were flawed when the partition was opened.

        Return whether there were any. They are written once; so later calls do
        nothing.
        """
        if not self._entries_to_mend:
            return False
        records = [mend.written for mend in self._entries_to_mend]
        if not self._accepted_past_progress:
            records.append(self._progress_record(self.progress, now_ms))
        # a tombstone, for a root that waits no more, has no offset among these
        entry_offsets = iter(self._run_transaction(records))
        for mend in self._entries_to_mend:
            if mend.entry is not None:
                value_bytes = len(mend.written.value or b"")
                self.waiting.put(mend.entry, next(entry_offsets), value_bytes)
            self._worker.report("mended", partition=self.number, root=mend.name)
        self._entries_to_mend = ()
        return True

    def _count_firing(self, firing: Firing, now_ms: int) -> None:
        """Count and report what a committed transaction wrote; remember and report its pauses."""
        counters = self._worker.counters
        copies_by_input = Counter(outcome.input.name for outcome in firing.outcomes if outcome.is_copy)
        counters.replayed += copies_by_input.total()
        counters.replayed_by_input.update(copies_by_input)
        # decision None: the root was put aside, and there never was a record
        counters.absent += sum(decision is None for decision in firing.decision_by_offset.values())
        for outcome in firing.outcomes:
            if not outcome.is_copy:
                self._count_and_report_without_copy(outcome, now_ms)
            written = outcome.record_to_write
            if self._worker.on_written is not None and written is not None:
                self._worker.on_written(outcome.entry, written, outcome.input, outcome.is_copy, now_ms)
        self._pause_inputs(firing.pauses)

    def _pause_inputs(self, pauses: Iterable[Pause]) -> None:
        """Remember that inputs are paused in this partition, and report it."""
        for pause in pauses:
            self.pauses[pause.input] = pause
            name = self._worker.name_of(pause.input)
            self._worker.report("paused", input=name, partition=self.number, why=paused_text(name, pause))

    def _count_and_report_without_copy(self, outcome: RootOutcome, now_ms: int) -> None:
        """Count and report a root that got no copy: it never had a record, was dropped, or died."""
        counters = self._worker.counters
        if outcome.dead_reason is None:  # no copy and no letter: there never was a record
            counters.absent += 1
            return
        entry = outcome.entry
        name = outcome.input.name
        fields: dict[str, str | int] = {
            "input": name,
            "root": entry.origin,
            "attempt": entry.attempt,
            "reason": outcome.dead_reason.value,
        }
        if outcome.why_copy_refused:
            fields["why"] = outcome.why_copy_refused
        if not outcome.counts_for_breaker:  # a rule drops it, which no breaker counts
            counters.dropped += 1
            counters.dropped_by_input[name] += 1
            self._worker.report("dropped", **fields)
            return
        counters.dead_lettered += 1
        if not outcome.has_payload:
            counters.without_payload += 1
        counters.dead_lettered_by_input[name] += 1
        self._worker.breakers[outcome.input.id].count_dead(1, now_ms)
        self._worker.report("dead_lettered", **fields)

    def _run_transaction(self, records: Iterable[Outgoing]) -> Sequence[int]:
        """Run one transaction, if there is a record.

        Copies and dead letters are in the log before the tombstones of their
        roots are sent: if a part of the transaction is committed alone
        (`acker.service.partition` says when), no root is lost.

        After an abort there is a second danger. The request to abort may be
        delayed, and arrive during a later transaction: it undoes the copies
        that were sent by then. The tombstones behind them must not be
        committed. The broker refuses a record for a partition that has left the
        transaction. So after an abort each transaction begins with a record for
        `_ack_due`: if a late abort comes, the tombstones are refused.

        Return the offsets of the entries (records of `_ack_due` under a root's
        key, with a value), in their order.
        """
        records = tuple(records)
        if not records:
            return []
        copies_and_letters: list[Outgoing] = []
        entries: list[Outgoing] = []
        other_due_records: list[Outgoing] = []  # tombstones, the progress, pauses
        for record in records:
            if record.topic != self._due_partition.topic:
                copies_and_letters.append(record)
            # a root's key and a value: an entry; without a value it is a tombstone
            elif len(record.key or b"") == ROOT_KEY_BYTES and record.value is not None:
                entries.append(record)
            else:
                other_due_records.append(record)
        entry_offsets: list[int] = []
        transactions = self._transactions
        timeout_ms = self._worker.limits.operation_timeout_ms
        transactions.begin()
        if self._has_aborted_once:
            # makes `_ack_due` a part of the transaction before a copy is; see above
            transactions.send_all([self._record_of_owner])
            transactions.flush(timeout_ms)
        # the copies are in the log before a tombstone is sent
        transactions.send_all(copies_and_letters)
        transactions.flush(timeout_ms)
        for record in entries:
            transactions.send(record, entry_offsets.append)  # called with the record's offset
        transactions.send_all(other_due_records)
        transactions.commit(timeout_ms)
        return entry_offsets

    def _require_owned(self) -> None:
        """Raise `Fenced` if somebody else owns the partition."""
        # a transaction without a record would not reach the broker
        self._run_transaction([self._record_of_owner])

    def _committed_progress(self) -> Progress:
        """Return the progress that the group committed: what to begin with if `_ack_due` has none."""
        committed = self._worker.log.committed(self._worker.group, [self.verdict_partition])
        return Progress(committed.get(self.verdict_partition, 0), skip=0)

    def _require_verdicts_from(self, progress: Progress) -> int:
        """Return where the log of the verdicts ends; require that it has those from `progress` on.

        Raises `DataLoss`: it begins behind the progress; `Disagreement`: it
        ends before it.
        """
        log = self._worker.log
        start = log.starts([self.verdict_partition])[self.verdict_partition]
        end = log.ends([self.verdict_partition])[self.verdict_partition]
        name = f"{self.verdict_partition.topic}/{self.number}"
        if progress.next < start:
            raise DataLoss(
                f"{name}: the verdicts at {offsets_text(progress.next, start)} are no longer in the"
                f" log and were never taken over; commit offset {start} for group"
                f" {self._worker.group} to give up what they say"
            )
        if progress.next > end:
            raise Disagreement(
                f"{name} ends at {end}, before {progress.next}, up to which it is accepted: the topic was"
                f" created again; delete and create {self._due_partition.topic} as well"
            )
        return end


def _tombstone(due_partition: TopicPartition, entry: Due) -> Outgoing:
    """Return the record of `_ack_due` that ends a root's wait; unlike others it names no cluster."""
    topic, partition = due_partition
    value, headers, timestamp_ms = None, (), None
    return _outgoing((topic, partition, value, root_key(entry), headers, timestamp_ms))


def _copies_to_send(outcomes: Iterable[RootOutcome]) -> Iterator[tuple[Root, SentCopy]]:
    """Yield the copies and dead letters that a transaction has to write, with their roots.

    Left out are those that are in the log already, from a transaction of which
    only a part was committed.
    """
    for outcome in outcomes:
        if outcome.record_to_write is not None and not outcome.is_committed:
            yield outcome.root, SentCopy(outcome.record_to_write, outcome.dead_reason)


def paused_text(name: str, pause: Pause) -> str:
    """Return why an input is paused, and what to do; `name` is the input's."""
    return (
        f"{pause.why}; correct what fails them, then run `windhover replay resume {name}`: what is no dead"
        " letter yet waits, and nothing is lost"
    )
