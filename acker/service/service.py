"""The acker: shares the acker partitions with other ackers, and gives the verdicts of those that it owns.

The caller runs the loop around `AckerService.step`, and provides the clock and the signals. One
step:

1. asks the consumer group which partitions this process owns; gives up lost ones, restores one new one.
   The transactions of a partition's former owner are ended first: it is *fenced*;
2. fetches contributions, and the inits and fails that must be applied before them
   (``acker.service.step_reader``);
3. for each partition with new records: applies them, lets ticks and takes count, and commits all in one
   transaction (``acker.service.partition``), those of several partitions side by side;
4. at times deletes what the logs need no more.

A transaction that takes longer than `PATIENCE_MS` is left to itself (``acker.service.silent``). The
next steps are for the other partitions, until one of them finds that it is over.

A partition is an acker partition, by its number; a place is a partition of one topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from acker.config.limits import AckerLimits
from acker.config.settings import VERDICT_RETENTION_MS, AckTopics
from acker.errors import (
    Aborted,
    Damaged,
    Fenced,
    OutOfRange,
    PartitionStands,
    RecordRefused,
    Unreachable,
    WindhoverError,
)
from acker.kafka.port import Bound, Log, TopicPartition, Transactions
from acker.kafka.standing import StandingNews
from acker.ledger.cohort import RootCohort, Session
from acker.ledger.output import AckerEvent, AckerEventKind, AckerStatus, Counts, StepOutput
from acker.ledger.tally import VerdictTally
from acker.service.core import PartitionCore
from acker.service.partition import PartitionAcker, QuarantineForm
from acker.service.partition_counts import PartitionCounts
from acker.service.restore import Restore
from acker.service.silent import FencingUnderWay, SilentPartitions, WritesUnderWay
from acker.service.state import state_codec
from acker.service.step_reader import StepOffsets, StepReader
from acker.waits import SilentBroker, SteadyMs, steady_ms
from acker.wire.codec import wire_codec


@dataclass(slots=True)
class Retention:
    """Deletes, every `interval_ms`, records below those that are still needed.

    Verdicts younger than `keep_ms` or above the commit of the `replay_group` stay; without a commit
    all.
    """

    log: Log
    topics: AckTopics
    replay_group: str
    interval_ms: int
    keep_ms: int
    _deleted_at_ms: int | None = None
    # by place, the offset before which all is deleted
    _deleted_ends: dict[TopicPartition, int] = field(default_factory=dict)

    def delete_if_due(self, ackers: Iterable[PartitionAcker], now_ms: int) -> None:
        """Delete what no restart and no replay worker needs, if `interval_ms` are over, by wall time."""
        if self._deleted_at_ms is None:  # the first call begins the interval
            self._deleted_at_ms = now_ms
        # a clock that was set back makes it due
        if 0 <= now_ms - self._deleted_at_ms < self.interval_ms:
            return
        self._deleted_at_ms = now_ms
        # 1. what a restart needs; verdicts also as long as they are young or not replayed
        first_needed: dict[TopicPartition, int] = {}
        for acker in ackers:
            first_needed |= acker.needed_offsets
        verdict_places = [place for place in first_needed if place.topic == self.topics.verdict]
        deletable_ends = self._deletable_ends(verdict_places, now_ms)
        for place in verdict_places:
            if place in deletable_ends:
                first_needed[place] = min(first_needed[place], deletable_ends[place])
            else:  # it has no leader that could say it: keep all
                del first_needed[place]
        # 2. delete below these offsets, where that is more than was deleted before
        new_ends = {
            place: offset
            for place, offset in first_needed.items()
            if offset > self._deleted_ends.get(place, 0)
        }
        if new_ends:
            troubles = self.log.delete_before(new_ends)
            for place, offset in new_ends.items():
                if place not in troubles:  # else it is tried again next time
                    self._deleted_ends[place] = offset

    def _deletable_ends(self, verdict_places: list[TopicPartition], now_ms: int) -> dict[TopicPartition, int]:
        """Return by place the offset below which verdicts are old, and were read by the replay workers.

        A place without a leader is missing.
        """
        if not verdict_places:
            return {}
        replayed_ends = self.log.committed(self.replay_group, verdict_places)
        # by place, the offset of the first verdict that is younger than `keep_ms`
        first_young = self.log.bounds(max(0, now_ms - self.keep_ms), verdict_places).offsets
        # a place without a commit of the replay workers keeps all: 0
        return {place: min(replayed_ends.get(place, 0), offset) for place, offset in first_young.items()}


PAUSE_LIMITS: Final = 2
"""A member may pause for this many times the limit `hung_ms` before it loses its place in the group: by then
a process that hangs has ended, and one with much to restore keeps its place."""

_OwnershipError = Fenced | Unreachable | Damaged
"""Why a partition cannot be owned now."""

LEFT_ALONE_MS: Final = 3_000
"""A partition that did not come up is left alone so long, at first. Where its broker is cut off,
others lead in its place after some ten seconds. A try holds up the others while one question is
asked.
"""

PATIENCE_MS: Final = 2_000
"""The partitions of a process wait for each other's transactions so long. One takes some 20 ms, and on
a very busy machine up to a second. To leave one to itself is for silence alone: its partition is
read anew afterwards, which costs two requests.
"""


class AckerService:
    """One acker process: a member of the ackers' consumer group."""

    def __init__(
        self,
        log: Log,
        topics: AckTopics,
        partitions: int,
        *,
        group: str,
        replay_group: str = "windhover-replay",
        verdict_retention_ms: int = VERDICT_RETENTION_MS,
        limits: AckerLimits | None = None,
        tally: VerdictTally | None = None,
        report: Callable[[AckerEvent], None] = lambda _event: None,
        name_operation: Callable[[str], None] = lambda _operation: None,
        clock_ms: SteadyMs = steady_ms,
    ) -> None:
        """Join the ackers of a cluster.

        Args:
            group: of the ackers; also the stem of their transactional ids.
            replay_group: of the replay workers; verdicts above its commit are not deleted.
            tally: counts the verdicts; None: a plain one.
            report: called with each `AckerEvent`, in the thread that calls `step`.
            name_operation: called with the name of each operation that a step begins; a watchdog sees by it
                what hangs.
            clock_ms: measures for how long the broker does not answer.

        Raises `TopicError`: an ack topic is missing; `Disagreement`: it does not have N partitions.
        """
        self._log = log
        self._topics = topics
        self._group = group
        self._limits = limits or AckerLimits()
        self._report = report
        self._name_operation = name_operation
        checked_topics = (
            topics.init,
            topics.ack,
            topics.fail,
            topics.verdict,
            topics.state,
            topics.quarantine,
        )
        self._partition_counts = PartitionCounts(log, checked_topics, partitions)  # checks them
        self._restore = Restore(
            log, topics, partitions, self._limits, wire_codec(), state_codec(), name_operation
        )
        interval_ms = self._limits.retention_interval_ms
        self._retention = Retention(log, topics, replay_group, interval_ms, verdict_retention_ms)
        # All mappings are by partition.
        self._owned_ackers: dict[int, PartitionAcker] = {}
        self._writes = WritesUnderWay(log, clock_ms)
        self._fencing_by_partition: dict[int, FencingUnderWay] = {}
        self._assigned_count = 0  # how many partitions the group has assigned to us
        # when another owner fenced us; such a partition is not tried for the limit `fenced_ms`
        self._fenced_at_ms: dict[int, int] = {}
        self._silent_partitions = SilentPartitions(LEFT_ALONE_MS, self._limits.unreachable_ms)
        # by acker partition, then by the name of a log that has no leader: why, in words that
        # follow its name; an empty inner dict: the next restore checks which log it is
        self._trouble_texts_by_partition: dict[int, dict[str, str]] = {}
        self._failed_commits: dict[int, int] = {}  # how many failed one after the other
        # how much is copied of what a partition quarantines; one that may copy all is missing
        self._quarantine_forms: dict[int, QuarantineForm] = {}
        self._past_counts = Counts()  # of partitions that were given up
        self._tally = tally or VerdictTally()
        self._waiting_since_ms: dict[int, int] = {}  # when the group assigned what is not restored yet
        # how many restores there were, and the ms that they took together
        self._restored_count = self._restored_ms = 0
        self._damage_by_partition: dict[int, Damaged] = {}  # why a partition could not be read
        self._broker = SilentBroker(clock_ms)  # for how long no broker has answered
        self._is_amid_step = False  # it stays true where an error ended the step
        self._reader = StepReader(log, topics, self._limits)
        pause_ms = PAUSE_LIMITS * self._limits.hung_ms
        self._membership = log.join(group, [topics.init, topics.ack, topics.fail], pause_ms=pause_ms)

    def step(self, now_ms: int) -> bool:
        """Do one round, of bounded size, for all partitions owned; return whether anything was done.

        If not, the step has waited for a short time.

        Raises:
            Unreachable: the broker has not answered for longer than the limit `unreachable_ms`.
            Disagreement: State or the broker contradicts topics.yaml.
            TopicError: an ack topic is missing.
            DataLoss: records that are still needed are no longer in the log.
            LogError: the log refused an operation for good.
            Damaged: of each partition that is ours an ack topic has a damaged batch.
        """
        self._is_amid_step = True
        try:
            has_worked = self._do_round(now_ms)
            if not self._waits_for_writes():  # else nothing was asked that could be answered
                self._broker.record_answer()
        except Unreachable as error:
            has_worked = False
            if self._broker.record_failure():  # the first failure since an answer
                self._report(AckerEvent(_kind_of(error), -1, str(error)))  # -1: of no single partition
            if self._broker.silent_ms > self._limits.unreachable_ms:
                raise
        self._is_amid_step = False
        return has_worked

    def close(self) -> None:
        """Write what steps have put off, wait for transactions that are under way, and leave the
        group.

        What an error has cut short is not written: contributions may be read and not folded, or
        verdicts given that were in the transaction that failed. A restart reads it all again.
        """
        try:
            self._write_last()
            # partitions whose former owner is fenced while we leave: nothing of them was restored
            # yet
            for fencing_under_way in self._fencing_by_partition.values():
                self._name_operation("leaving a partition that was not taken over yet")
                with suppress(WindhoverError):  # another process is the owner by now
                    fencing_under_way.fencing.result()
                fencing_under_way.transactions.close()
            for partition in list(self._owned_ackers):
                self._give_up(partition)
        finally:
            self._name_operation("leaving the group")
            self._reader.close()
            self._membership.close()

    def _write_last(self) -> None:
        """Write what steps have put off, and wait for all transactions that are under way."""
        to_write: list[PartitionAcker] = []
        if not self._is_amid_step:  # what a step has left half done must not be written
            to_write = [acker for acker in self._ready_ackers() if acker.unwritten_since_ms is not None]
        for ackers in self._commit_turns(to_write, "last commit of"):
            # None: no wall time is known here, so that State says nothing of this machine's clock
            self._writes.begin(ackers, now_ms=None)
            self._writes.wait(_partitions_of(ackers), self._limits.operation_ms)
        if self._writes.partitions():
            self._name_operation(f"last commit of {_partitions_text(self._writes.partitions())}")
        for acker, outcome in self._writes.take_all():
            if isinstance(outcome, WindhoverError):
                # reported, since raised it would hide what ends the acker
                partition = acker.core.partition
                self._report(AckerEvent(AckerEventKind.ABORTED, partition, str(outcome)))
            else:
                self._membership.commit_soon(acker.read_offsets)

    def status(self) -> AckerStatus:
        """Return what the process owns and has done, for metrics and `status`."""
        cores = [acker.core for acker in self._owned_ackers.values()]
        counts = Counts()
        counts.add(self._past_counts)
        for core in cores:
            counts.add(core.ledger.counts)
        cohorts: list[RootCohort] = []
        owners: set[Session] = set()
        for core in cores:
            cohorts += core.ledger.cohorts()
            owners |= {group.owner for group in core.sessions.groups.values()}
        without_timeout = [cohort for cohort in cohorts if cohort.emission.timeout_ms <= 0]
        return AckerStatus(
            partitions=tuple(sorted(self._owned_ackers)),
            assigned=self._assigned_count,
            open_roots=sum(core.ledger.open_count for core in cores),
            ranges=len(cohorts),
            never_expiring=sum(cohort.roots.open_count for cohort in without_timeout),
            sessions=tuple(sorted(f"{owner.group}/{owner.id}" for owner in owners)),
            pending=sum(len(core.sessions.queue) for core in cores),
            counts=counts,
            restored=self._restored_count,
            restored_ms=self._restored_ms,
            verdicts=self._tally.copy(),
            standing=self._reason_by_standing_place(),
        )

    def _reason_by_standing_place(self) -> dict[str, str]:
        """Return by name, like ``_ack_init/3``, the partitions of ack topics that do not go on.

        Each has a sentence that says why. There are three reasons: a log goes on and its reader
        does not, a log has no leader, State is full.
        """
        reasons_by_name = {standing.name: str(standing) for standing in self._reader.standing()}
        for troubles in self._trouble_texts_by_partition.values():
            reasons_by_name |= {name: f"{name} {text}" for name, text in troubles.items()}
        for partition, acker in self._owned_ackers.items():
            if acker.why_full:
                name = f"{self._topics.state}/{partition}"
                reasons_by_name[name] = f"{name} stands: {acker.why_full}"
        return reasons_by_name

    # -- the round

    def _do_round(self, now_ms: int) -> bool:
        """Do one round: finish writes, follow the group, step all partitions, delete what is not needed.

        Returns whether anything was done. A partition that cannot be read is given up.
        """
        self._name_operation("asking the group what is ours")
        self._partition_counts.check_if_due(now_ms)
        has_finished = self._finish_writes(now_ms)
        has_changed_owner = self._follow_assignment(now_ms)
        if not self._owned_ackers:
            return has_changed_owner or has_finished
        try:
            has_stepped = self._step_partitions(now_ms)
        except Damaged as error:
            self._give_up_for(error.partition, AckerEventKind.DAMAGED, error)
            self._leave_damaged_alone(error.partition, error, now_ms)
            return True
        except OutOfRange as error:
            self._give_up_shortened(error, now_ms)
            return True
        if not self._writes.partitions():  # else a broker is silent, and would hold up all
            self._name_operation("shortening logs")
            self._retention.delete_if_due(self._owned_ackers.values(), now_ms)
        return has_stepped or has_changed_owner or has_finished

    def _step_partitions(self, now_ms: int) -> bool:
        """Fetch, apply, let ticks and takes count, and write, for all partitions.

        Returns whether it did any. Partitions whose transaction is under way
        are left out.
        """
        ready_ackers = self._ready_ackers()
        if not ready_ackers:
            partitions_under_way = self._writes.partitions()
            self._name_operation(f"waiting for {_partitions_text(partitions_under_way)}")
            oldest = partitions_under_way[:1]  # the one whose transaction began first
            self._writes.wait(oldest, self._limits.poll_ms)
            return False
        self._name_operation("fetching contributions")
        is_quiet = all(acker.is_quiet for acker in ready_ackers)
        standing_news = self._reader.fetch(now_ms, is_quiet=is_quiet)
        self._report_standing(standing_news)
        if self._reader.clock_news:  # set by the fetch
            self._report(AckerEvent(AckerEventKind.CLOCK, -1, self._reader.clock_news))
        # lists: each function is called for all partitions, whatever it returns for the first
        applied = [self._apply_fetched(acker.core, now_ms) for acker in ready_ackers]
        self._set_barriers(ready_ackers)
        ticked = [self._apply_ticks(acker, now_ms) for acker in ready_ackers]
        due = [acker for acker in ready_ackers if acker.must_write(now_ms)]
        self._commit(due, now_ms)
        return any(applied) or any(ticked) or bool(due)

    def _ready_ackers(self) -> list[PartitionAcker]:
        """Return the owned partitions that have no transaction under way."""
        return [acker for partition, acker in self._owned_ackers.items() if partition not in self._writes]

    def _waits_for_writes(self) -> bool:
        """Return whether each partition has a transaction under way, so that none can do
        anything.
        """
        return bool(self._owned_ackers) and not self._ready_ackers()

    def _report_standing(self, news: StandingNews) -> None:
        """Report which partitions of the ack topics stand from now on, and which go on again."""
        for standing in news.stand:
            event = AckerEvent(AckerEventKind.STANDS, standing.partition.partition, str(standing))
            self._report(event)
        for place in news.go_on:
            detail = f"{place.topic}/{place.partition} goes on"
            self._report(AckerEvent(AckerEventKind.GOES_ON, place.partition, detail))

    def _apply_fetched(self, core: PartitionCore, now_ms: int) -> bool:
        """Apply the records that were fetched of a partition; return whether there were any.

        The order is that of `acker.service.core`: inits, fails, contributions.
        """
        partition = core.partition
        self._name_operation(f"partition {partition}")
        fetched = self._reader.take_ready(partition)
        core.read_inits(fetched.inits)
        core.apply_fails(fetched.fails)
        # before the records are applied, so that their verdicts have the times of first emissions
        self._tally.record_headers(fetched.acks)
        core.apply_acks(fetched.acks)
        offsets = self._reader.taken_offsets(partition)
        core.move_next_offsets(init_next=offsets.init, fail_next=offsets.fail, ack_next=offsets.ack)
        has_read_acks_or_fails = bool(fetched.fails or fetched.acks)
        has_read = has_read_acks_or_fails or bool(fetched.inits)
        if has_read:
            acker = self._owned_ackers[partition]
            acker.record_change(now_ms, has_read_acks_or_fails=has_read_acks_or_fails)
        return has_read

    def _set_barriers(self, ready_ackers: Iterable[PartitionAcker]) -> None:
        """Set where contributions and fails end now as the barrier of ticks and takes that were
        just read.

        Contributions and fails below the barrier are applied before the tick or take counts. One
        request asks for the ends of all partitions; there is none if no tick or take waits for it.
        """
        waiting_partitions = [
            acker.core.partition for acker in ready_ackers if acker.core.sessions.lacks_barrier()
        ]
        if waiting_partitions:
            self._name_operation("looking for the ends of contributions")
            for partition, barrier in self._reader.read_barriers(waiting_partitions).items():
                self._owned_ackers[partition].core.set_barrier(barrier.ack, barrier.fail)

    def _apply_ticks(self, acker: PartitionAcker, now_ms: int) -> bool:
        """Apply the ticks and takes whose barrier is reached; return whether there were any."""
        has_applied = acker.core.apply_reached_ticks()
        if has_applied:
            acker.record_change(now_ms, has_read_acks_or_fails=False)
        return has_applied

    def _commit(self, due: list[PartitionAcker], now_ms: int) -> None:
        """Write the output of some partitions, each in a transaction, some of them at a time.

        A transaction that takes longer than `PATIENCE_MS` is finished by a later step. Until then
        its partition is not read.
        """
        for ackers in self._commit_turns(due, "committing"):
            self._writes.begin(ackers, now_ms)
            self._writes.wait(_partitions_of(ackers), PATIENCE_MS)
            self._finish_writes(now_ms)
        self._reader.pause(self._writes.partitions())

    def _commit_turns(self, due: list[PartitionAcker], doing: str) -> Iterator[list[PartitionAcker]]:
        """Yield the partitions whose transactions are made side by side, `commits_at_once` in
        each turn.

        Each waits for the broker some 20 ms, and computes little. `doing` begins the name of the
        operation that the watchdog reports if a turn hangs.
        """
        for first_index in range(0, len(due), self._limits.commits_at_once):
            ackers = due[first_index : first_index + self._limits.commits_at_once]
            self._name_operation(f"{doing} {_partitions_text(_partitions_of(ackers))}")
            yield ackers

    def _finish_writes(self, now_ms: int) -> bool:
        """Take note of transactions that are over; return whether there were any.

        What was written is reported. A partition whose transaction failed is given up.
        """
        overdue_partitions = self._writes.overdue(self._limits.hung_ms)
        if overdue_partitions:
            # Past all their deadlines, so they hang. This thread waits longer than the limit of its
            # watchdog, `hung_ms`, so that the watchdog reports it.
            self._name_operation(f"committing {_partitions_text(overdue_partitions)}")
            self._writes.wait(overdue_partitions, 2 * self._limits.hung_ms)
        finished = self._writes.take_finished_outcomes()
        # Handling an error may raise it. So first all outputs that were written are recorded.
        partitions_and_errors: list[tuple[int, WindhoverError]] = []
        for acker, outcome in finished:
            partition = acker.core.partition
            # `_commit` has paused it if its transaction took long
            self._reader.resume(partition)
            if isinstance(outcome, WindhoverError):
                partitions_and_errors.append((partition, outcome))
                continue
            self._record_commit(acker, outcome, now_ms)
        for partition, error in partitions_and_errors:
            self._handle_failed_commit(partition, error, now_ms)
        return bool(finished)

    def _record_commit(self, acker: PartitionAcker, output: StepOutput, now_ms: int) -> None:
        """Count and report what a partition has written.

        Lets the group commit up to where the partition has been read.
        """
        partition = acker.core.partition
        self._membership.commit_soon(acker.read_offsets)
        # only failures in a row are counted
        self._failed_commits.pop(partition, None)
        if acker.has_quarantined:  # the broker took it: the next records may be copied whole again
            self._quarantine_forms.pop(partition, None)
            acker.quarantine_form = QuarantineForm.WHOLE
        self._tally.add(output.settled, now_ms)
        self._tally.add_too_late(output.too_late)
        for event in output.events:
            self._report(event)

    def _handle_failed_commit(self, partition: int, error: WindhoverError, now_ms: int) -> None:
        """Give a partition up whose transaction failed; a later step restores it.

        Raises `error` if a restore cannot help, or if `restore_attempts` of them did not.
        """
        if isinstance(error, Fenced):
            self._fenced_at_ms[partition] = now_ms
            self._give_up_for(partition, AckerEventKind.FENCED, error)
        elif isinstance(error, PartitionStands):  # it is restored again, however often
            # without a name yet: the next restore looks for the logs without a leader
            self._trouble_texts_by_partition[partition] = {}
            self._give_up_for(partition, AckerEventKind.STANDS, error)
        elif isinstance(error, Aborted | Unreachable):
            if isinstance(error, RecordRefused) and self._owned_ackers[partition].has_quarantined:
                self._reduce_quarantine_copies(partition, error)
            self._give_up_for(partition, AckerEventKind.ABORTED, error)
            self._failed_commits[partition] = self._failed_commits.get(partition, 0) + 1
            if self._failed_commits[partition] > self._limits.restore_attempts:
                raise error
        else:
            raise error

    def _reduce_quarantine_copies(self, partition: int, error: RecordRefused) -> None:
        """Make a partition write less of each record to the quarantine, from its next restore on.

        The broker has refused what it wrote there, and that must not end the acker.
        """
        form = self._quarantine_forms[partition] = self._owned_ackers[partition].quarantine_form.lesser()
        detail = f"of records that cannot be applied {form.name.lower()} is copied now: {error.reason}"
        self._report(AckerEvent(AckerEventKind.NOT_COPIED, partition, detail))

    # -- which partitions this process owns

    def _follow_assignment(self, now_ms: int) -> bool:
        """Give up what the group took back, and restore one partition that it assigned.

        Returns whether a partition was given up or tried. Raises `Unreachable`: the partition does
        not come up, and no other one works.
        """
        # 1. ask the group; the wait is for a first assignment
        wait_ms = 0 if self._owned_ackers else self._limits.poll_ms
        assigned_partitions = self._membership.poll(wait_ms)
        self._partition_counts.require(assigned_partitions)  # raises if a number is not below N
        self._assigned_count = len(assigned_partitions)
        self._record_restore_times(assigned_partitions, now_ms)
        # 2. give up what others have; one whose transaction is under way when that is over
        ready_partitions = _partitions_of(self._ready_ackers())
        taken_back = [number for number in ready_partitions if number not in assigned_partitions]
        for partition in taken_back:
            self._give_up(partition)
            self._report(AckerEvent(AckerEventKind.LOST, partition, "the group has taken it back"))
        self._forget_partitions_of_others(assigned_partitions, now_ms)
        # 3. restore what is missing
        missing = assigned_partitions - self._owned_ackers.keys() - self._fenced_at_ms.keys()
        to_try = self._silent_partitions.partitions_to_try(
            missing, now_ms, others_work=bool(self._owned_ackers)
        )
        # One at a time: a restore may take seconds, in which the others wait.
        # `_fencing_by_partition` has those that are waited for already.
        to_own_now = [number for number in to_try if number not in self._fencing_by_partition][:1]
        # First those whose fencing was begun in an earlier step. Whether the fencing of a former
        # owner was over, well or not:
        has_fenced = self._own_fenced_partitions(assigned_partitions, now_ms)
        for partition in to_own_now:
            self._try_to_own(partition, now_ms)
        has_changed = bool(to_own_now or has_fenced or taken_back)
        if has_changed:
            self._assign()
        return has_changed

    def _forget_partitions_of_others(self, assigned_partitions: frozenset[int], now_ms: int) -> None:
        """Forget what is recorded of partitions that the group no longer assigns to us.

        Of those that we own again it is forgotten, too. A partition from which another owner
        fenced us may be tried again when `fenced_ms` are over. That does not hold while the
        group has put us out (`is_out`): what it assigned to us is not ours then.
        """
        for partition, since_ms in list(self._fenced_at_ms.items()):
            # a clock that was set back ends the wait, too
            is_wait_over = not 0 <= now_ms - since_ms < self._limits.fenced_ms
            may_try_again = is_wait_over and not self._membership.is_out
            if partition not in assigned_partitions or may_try_again:
                del self._fenced_at_ms[partition]
        self._trouble_texts_by_partition = {
            partition: self._trouble_texts_by_partition[partition]
            for partition in self._trouble_texts_by_partition.keys() & assigned_partitions
        }
        # damage also ends when the partition is restored
        not_restored = assigned_partitions - self._owned_ackers.keys()
        still_damaged = self._damage_by_partition.keys() & not_restored
        self._damage_by_partition = {
            partition: self._damage_by_partition[partition] for partition in still_damaged
        }

    def _try_to_own(self, partition: int, now_ms: int) -> None:
        """Fence a partition's former owner and restore it; leave it alone for a while if that fails.

        The fencing waits for the former owner's transaction. If that takes long,
        `_own_fenced_partitions` goes on in a later step.

        Raises `Unreachable` if this process owns no other partition, and `Damaged` if none of those
        that are assigned to it can be read.
        """
        self._name_operation(f"taking over partition {partition}")
        try:
            self._require_leaders(partition)
            transactions = self._log.transactions(f"{self._group}-{partition}")
            fence = partial(transactions.init, self._limits.operation_ms)
            with ExitStack() as undo:
                undo.callback(transactions.close)  # unless `pop_all` takes it out
                if self._owned_ackers:
                    fencing = self._log.begin(fence)
                    if not fencing.is_over(PATIENCE_MS):
                        under_way = FencingUnderWay(transactions, fencing)
                        self._fencing_by_partition[partition] = under_way
                        undo.pop_all()
                        return
                    fencing.result()
                else:  # no other partition waits meanwhile; and in this thread a signal may end it
                    fence()
                self._restore_and_own(partition, transactions)
                undo.pop_all()  # the transactions stay open: the partition is ours
        except (Fenced, Unreachable, Damaged) as error:
            self._handle_failed_ownership(partition, error, now_ms)

    def _own_fenced_partitions(self, assigned_partitions: frozenset[int], now_ms: int) -> bool:
        """Restore partitions whose former owner's fencing is over by now.

        Returns whether there were any. If the fencing failed, the partition is left alone for a
        while; `_handle_failed_ownership` may raise its error.
        """
        fenced = [
            partition
            for partition, fencing_under_way in self._fencing_by_partition.items()
            if fencing_under_way.fencing.is_over()
        ]
        for partition in fenced:
            transactions, fencing = self._fencing_by_partition.pop(partition)
            with ExitStack() as undo:
                undo.callback(transactions.close)  # unless `pop_all` takes it out
                try:
                    fencing.result()  # raises what has ended the fencing
                    # else the group has taken it back meanwhile
                    if partition in assigned_partitions:
                        self._name_operation(f"restoring partition {partition}")
                        self._require_leaders(partition)  # again: leaders may have changed meanwhile
                        self._restore_and_own(partition, transactions)
                        undo.pop_all()
                except (Fenced, Unreachable, Damaged) as error:
                    self._handle_failed_ownership(partition, error, now_ms)
        return bool(fenced)

    def _handle_failed_ownership(self, partition: int, error: _OwnershipError, now_ms: int) -> None:
        """Report why a partition cannot be owned now, and leave it alone for a while.

        After a `Fenced` that is `fenced_ms`; after the others it is longer each time. Raises
        `error`: it is an `Unreachable`, and this process owns no partition; or it is a `Damaged`,
        and none of the assigned partitions can be read.
        """
        if isinstance(error, Fenced):
            self._fenced_at_ms[partition] = now_ms
            self._report(AckerEvent(AckerEventKind.FENCED, partition, str(error)))
        elif isinstance(error, Unreachable):
            self._silent_partitions.record_failure(partition, now_ms)
            if not self._owned_ackers:
                raise error  # no partition works, so the caller has to see that the broker is away
            self._report(AckerEvent(_kind_of(error), partition, str(error)))
        else:  # `Damaged`
            self._report(AckerEvent(AckerEventKind.DAMAGED, partition, str(error)))
            # raises if no partition can be read
            self._leave_damaged_alone(partition, error, now_ms)

    def _give_up_shortened(self, error: OutOfRange, now_ms: int) -> None:
        """Give up partitions whose logs begin above what we have read of them.

        Mostly a later owner has shortened these logs: this process stood still, and the group has
        assigned its partitions to others. If it was no owner who deleted the records, the next
        restore says so (`DataLoss`). Raises `error` again if no log begins above what we have read.
        """
        read_offsets: dict[TopicPartition, int] = {}
        for acker in self._ready_ackers():
            read_offsets |= acker.read_offsets
        starts = self._log.bounds(Bound.START, read_offsets).offsets
        shortened = {place.partition for place, start in starts.items() if start > read_offsets[place]}
        if not shortened:
            raise error
        for partition in sorted(shortened):
            # as if it had fenced us: it is left alone for a while
            self._fenced_at_ms[partition] = now_ms
            taken = Fenced(
                f"partition {partition}: {error}; another acker has taken the partition over and shortened"
                " its logs while this one stood still"
            )
            self._give_up_for(partition, AckerEventKind.FENCED, taken)

    def _leave_damaged_alone(self, partition: int, error: Damaged, now_ms: int) -> None:
        """Leave a partition alone for a while of which an ack topic cannot be read; the others go on.

        Raises the error where none of the partitions that the group has assigned to us can be read.
        """
        self._silent_partitions.record_failure(partition, now_ms)
        self._damage_by_partition[partition] = error
        if len(self._damage_by_partition) >= self._assigned_count:
            raise error

    def _record_restore_times(self, assigned_partitions: frozenset[int], now_ms: int) -> None:
        """Record how long the partitions that the last step restored took since their assignment.

        Also record since when each partition waits that is assigned and not restored.
        """
        no_longer_waiting = [
            partition
            for partition in self._waiting_since_ms
            if partition in self._owned_ackers or partition not in assigned_partitions
        ]
        for partition in no_longer_waiting:
            since_ms = self._waiting_since_ms.pop(partition)
            if partition in self._owned_ackers:
                took_ms = max(0, now_ms - since_ms)
                self._restored_count += 1
                self._restored_ms += took_ms
                self._owned_ackers[partition].record_restore(took_ms, now_ms)
        for partition in assigned_partitions - self._owned_ackers.keys():
            self._waiting_since_ms.setdefault(partition, now_ms)

    def _restore_and_own(self, partition: int, transactions: Transactions) -> None:
        """Restore a partition whose former owner is fenced; from now on this process owns it."""
        core = self._restore.restore(partition)
        self._past_counts.restores += 1
        acker = PartitionAcker(core, transactions, self._topics, self._limits, self._restore.state_codec)
        acker.quarantine_form = self._quarantine_forms.get(partition, QuarantineForm.WHOLE)
        self._owned_ackers[partition] = acker
        if core.init_next:  # else nothing was ever read, and there is no progress to publish
            self._membership.commit_soon(acker.read_offsets)
        open_count = core.ledger.open_count
        detail = f"{open_count} open roots, contributions from offset {core.ack_next} on"
        self._report(AckerEvent(AckerEventKind.RESTORED, partition, detail))

    def _require_leaders(self, partition: int) -> None:
        """Raise `PartitionStands` if a log that a partition reads or writes has no leader.

        It takes some seconds to find that out here; a restore would wait for the leader until its
        deadline. Which logs these are is kept for `status`, until all have a leader.
        """
        topics = self._topics
        names = [topics.init, topics.fail, topics.ack, topics.verdict, topics.state]
        # The last transaction of the partition, or the last try here, met a missing leader: it may
        # be that of the quarantine, which only some transactions write.
        if partition in self._trouble_texts_by_partition:
            names.append(topics.quarantine)
        places = [TopicPartition(name, partition) for name in names]
        troubles = self._log.bounds(Bound.END, places).troubles  # only a leader knows where a log ends
        if not troubles:
            self._trouble_texts_by_partition.pop(partition, None)
            return
        troubles_by_name = {
            f"{place.topic}/{place.partition}": text for place, text in sorted(troubles.items())
        }
        self._trouble_texts_by_partition[partition] = troubles_by_name
        texts = "; ".join(f"{name} {text}" for name, text in troubles_by_name.items())
        raise PartitionStands(
            f"acker partition {partition} waits: {texts}; start what is missing, and it gives its verdicts"
        )

    def _assign(self) -> None:
        """Make the reader read the owned partitions, and no others."""
        starts: dict[int, StepOffsets] = {}
        for partition, acker in self._owned_ackers.items():
            core = acker.core
            starts[partition] = StepOffsets(init=core.init_next, fail=core.fail_next, ack=core.ack_next)
        self._reader.assign(starts)

    def _give_up_for(self, partition: int, kind: AckerEventKind, error: WindhoverError) -> None:
        """Give a partition up for an error, and report it."""
        self._give_up(partition)
        self._assign()
        self._report(AckerEvent(kind, partition, str(error)))

    def _give_up(self, partition: int) -> None:
        """Close a partition's transactions, and forget what was fetched of it; its counts are kept."""
        self._name_operation(f"giving up partition {partition}")
        acker = self._owned_ackers.pop(partition)
        self._reader.forget(partition)
        self._past_counts.add(acker.core.ledger.counts)
        acker.close()


def _kind_of(error: Unreachable) -> AckerEventKind:
    """Return the kind of the event that tells of an error: a partition stands, or the broker is away."""
    return AckerEventKind.STANDS if isinstance(error, PartitionStands) else AckerEventKind.UNREACHABLE


def _partitions_of(ackers: Iterable[PartitionAcker]) -> list[int]:
    return [acker.core.partition for acker in ackers]


def _partitions_text(partitions: Iterable[int]) -> str:
    """Return the name of partitions in the name of an operation, such as "partition 3, 5"."""
    return f"partition {', '.join(map(str, partitions))}"
