"""The acker: shares the acker partitions with other ackers, and gives the verdicts of those that it owns.

The caller runs the loop around `AckerService.step`, and provides the clock and the signals. One step:

1. asks the consumer group which partitions this process owns; gives up lost ones, restores one new one;
2. fetches contributions, and the inits and fails that must be applied before them
   (``acker.service.step_reader``);
3. for each partition with new records: applies them, lets ticks and takes count, and commits all in one
   transaction (``acker.service.partition``), those of several partitions side by side;
4. at times deletes what the logs need no more.

A transaction that takes longer than `PATIENCE_MS` is left to itself (``acker.service.silent``). The
next steps are for the other partitions, until one of them finds that it is over.
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
from acker.ledger.output import AckerEvent, AckerEventKind, AckerStatus, Counts
from acker.ledger.tally import VerdictTally
from acker.service.core import PartitionCore
from acker.service.partition import PartitionAcker, QuarantineForm
from acker.service.partition_counts import PartitionCounts
from acker.service.restore import Restore
from acker.service.silent import SilentPartitions, Takeover, WritesUnderWay
from acker.service.state import state_codec
from acker.service.step_reader import StepOffsets, StepReader
from acker.waits import SilentBroker, SteadyMs, steady_ms
from acker.wire.codec import wire_codec


@dataclass(slots=True)
class Retention:
    """Deletes, every `interval_ms`, records below those that are still needed.

    Verdicts younger than `keep_ms` or above the commit of the `replay_group` stay; without a commit all.
    """

    log: Log
    topics: AckTopics
    replay_group: str
    interval_ms: int
    keep_ms: int
    _last_ms: int | None = None
    _deleted: dict[TopicPartition, int] = field(default_factory=dict)

    def step(self, ackers: Iterable[PartitionAcker], now_ms: int) -> None:
        if self._last_ms is None:
            self._last_ms = now_ms
        if 0 <= now_ms - self._last_ms < self.interval_ms:
            return
        self._last_ms = now_ms
        bounds: dict[TopicPartition, int] = {}
        for acker in ackers:
            bounds |= acker.needed
        verdicts = [place for place in bounds if place.topic == self.topics.verdict]
        readable = self._readable(verdicts, now_ms)
        for place in verdicts:
            if place in readable:
                bounds[place] = min(bounds[place], readable[place])
            else:
                del bounds[place]
        bounds = {place: offset for place, offset in bounds.items() if offset > self._deleted.get(place, 0)}
        if bounds:
            troubles = self.log.delete_before(bounds)  # there it is tried again next time
            self._deleted |= {place: offset for place, offset in bounds.items() if place not in troubles}

    def _readable(self, verdicts: list[TopicPartition], now_ms: int) -> dict[TopicPartition, int]:
        """Return up to where verdicts are old and taken over; one without a leader is missing."""
        if not verdicts:
            return {}
        replayed = self.log.committed(self.replay_group, verdicts)
        young = self.log.bounds(max(0, now_ms - self.keep_ms), verdicts).offsets
        return {where: min(replayed.get(where, 0), offset) for where, offset in young.items()}


PAUSE_LIMITS: Final = 2
"""A member may pause for this many times the limit `hung_ms` before it loses its place in the group: by then
a process that hangs has ended, and one with much to restore keeps its place."""

_TakeoverError = Fenced | Unreachable | Damaged

LEFT_ALONE_MS: Final = 3_000
"""A partition that did not come up is left alone so long, at first. Where its broker is cut off,
others lead in its place after some ten seconds. A try holds up the others while one question is asked.
"""

PATIENCE_MS: Final = 500
"""The partitions of a process wait for each other's transactions so long. One takes some 20 ms, and on
a busy machine up to 500; to leave one to itself costs its partition two requests more.
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
        at: Callable[[str], None] = lambda _operation: None,
        clock_ms: SteadyMs = steady_ms,
    ) -> None:
        """Join the ackers of a cluster.

        Args:
            group: of the ackers; also the stem of their transactional ids.
            replay_group: of the replay workers; verdicts above its commit are not deleted.
            tally: counts the verdicts; None: a plain one.
            report: called with each `AckerEvent`, in the thread that calls `step`.
            at: called with the name of each operation that a step begins; a watchdog sees by it what hangs.
            clock_ms: measures for how long the broker does not answer.

        Raises `TopicError`: an ack topic is missing; `Disagreement`: it does not have N partitions.
        """
        self._log = log
        self._topics = topics
        self._group = group
        self._limits = limits or AckerLimits()
        self._report = report
        self._at = at
        counted = (topics.init, topics.ack, topics.fail, topics.verdict, topics.state, topics.quarantine)
        self._counts = PartitionCounts(log, counted, partitions)
        self._restore = Restore(log, topics, partitions, self._limits, wire_codec(), state_codec(), at)
        interval_ms = self._limits.retention_interval_ms
        self._retention = Retention(log, topics, replay_group, interval_ms, verdict_retention_ms)
        self._owned: dict[int, PartitionAcker] = {}
        self._writes = WritesUnderWay(log, clock_ms)
        self._takeovers: dict[int, Takeover] = {}
        self._assigned = 0
        self._fenced_ms: dict[int, int] = {}
        self._silent = SilentPartitions(LEFT_ALONE_MS, self._limits.unreachable_ms)
        self._troubles: dict[int, dict[str, str]] = {}
        self._restores: dict[int, int] = {}
        self._forms: dict[int, QuarantineForm] = {}  # of partitions whose quarantined records were refused
        self._past = Counts()
        self._tally = tally or VerdictTally()
        self._waiting_since_ms: dict[int, int] = {}
        self._restored = self._restored_ms = 0
        self._damaged: dict[int, Damaged] = {}
        self._broker = SilentBroker(clock_ms)
        self._is_amid_step = False
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
            worked = self._round(now_ms)
            if not self._waits_for_writes():  # else nothing was asked that could be answered
                self._broker.answered()
        except Unreachable as error:
            worked = False
            if self._broker.failed():
                self._report(AckerEvent(_kind_of(error), -1, str(error)))
            if self._broker.silent_ms > self._limits.unreachable_ms:
                raise
        self._is_amid_step = False
        return worked

    def close(self) -> None:
        """Commit what steps have put off, end what is under way, and leave the group.

        What an error has cut short is not written: contributions may be read and not folded, or verdicts
        given that were in the transaction that failed. A restart reads it all again.
        """
        try:
            self._write_last()
            for takeover in self._takeovers.values():
                self._at("leaving a partition that was not taken over yet")
                with suppress(WindhoverError):  # it is another owner's
                    takeover.fencing.result()
                takeover.transactions.close()
            for number in list(self._owned):
                self._give_up(number)
        finally:
            self._at("leaving the group")
            self._reader.close()
            self._membership.close()

    def _write_last(self) -> None:
        """Commit what steps have put off, and wait for all transactions that are under way."""
        changed = [acker for acker in self._ready() if acker.unwritten_since_ms is not None]
        for ackers in self._in_turns([] if self._is_amid_step else changed, "last commit of"):
            self._writes.begin(ackers, None)
            self._writes.wait(_numbers(ackers), self._limits.operation_ms)
        if self._writes.numbers():
            self._at(f"last commit of {_names(self._writes.numbers())}")
        for acker, outcome in self._writes.take_all():
            if isinstance(outcome, WindhoverError):  # it must not hide what ends the acker
                number = acker.core.partition
                self._report(AckerEvent(AckerEventKind.ABORTED, number, str(outcome)))
            else:
                self._membership.commit_soon(acker.done)

    def status(self) -> AckerStatus:
        cores = [acker.core for acker in self._owned.values()]
        counts = Counts()
        counts.add(self._past)
        for core in cores:
            counts.add(core.ledger.counts)
        cohorts = [cohort for core in cores for cohort in core.ledger.cohorts()]
        owners = {group.owner for core in cores for group in core.sessions.groups.values()}
        return AckerStatus(
            partitions=tuple(sorted(self._owned)),
            assigned=self._assigned,
            open_roots=sum(core.ledger.open for core in cores),
            ranges=len(cohorts),
            never_expiring=sum(c.roots.open for c in cohorts if c.emission.timeout_ms <= 0),
            sessions=tuple(sorted(f"{owner.group}/{owner.id}" for owner in owners)),
            pending=sum(len(core.sessions.line) for core in cores),
            counts=counts,
            restored=self._restored,
            restored_ms=self._restored_ms,
            verdicts=self._tally.copy(),
            standing=self._standing(),
        )

    def _standing(self) -> dict[str, str]:
        """Return which partitions of the ack topics do not go on, each with why."""
        standing = {partition.name: str(partition) for partition in self._reader.standing()}
        for troubles in self._troubles.values():
            standing |= {name: f"{name} {text}" for name, text in troubles.items()}
        for number, acker in self._owned.items():
            if acker.full:
                name = f"{self._topics.state}/{number}"
                standing[name] = f"{name} stands: {acker.full}"
        return standing

    # -- the round

    def _round(self, now_ms: int) -> bool:
        self._at("asking the group what is ours")
        self._counts.step(now_ms)
        has_finished = self._finish_writes(now_ms)
        moved = self._share(now_ms) or has_finished
        if not self._owned:
            return moved
        try:
            worked = self._work(now_ms) or moved
        except Damaged as error:
            self._lose(error.partition, AckerEventKind.DAMAGED, error)
            self._leave_damaged(error.partition, error, now_ms)
            return True
        except OutOfRange as error:
            self._lose_shortened(error, now_ms)
            return True
        if not self._writes.numbers():  # else a broker is silent, and would hold up all
            self._at("shortening logs")
            self._retention.step(self._owned.values(), now_ms)
        return worked

    def _work(self, now_ms: int) -> bool:
        """Fetch, apply, count and commit for all partitions; return whether anything was done.

        Partitions whose transaction is under way are left out.
        """
        ready = self._ready()
        if not ready:
            self._at(f"waiting for {_names(self._writes.numbers())}")
            self._writes.wait(self._writes.numbers()[:1], self._limits.poll_ms)
            return False
        self._at("fetching contributions")
        is_quiet = all(acker.is_quiet for acker in ready)
        self._report_news(self._reader.fetch(now_ms, is_quiet=is_quiet))
        if self._reader.clock_news:
            self._report(AckerEvent(AckerEventKind.CLOCK, -1, self._reader.clock_news))
        applied = [self._apply(acker.core.partition, acker.core, now_ms) for acker in ready]
        self._find_ends(ready)
        counted = [self._count(acker, now_ms) for acker in ready]
        due = [acker for acker in ready if acker.must_write(now_ms)]
        self._commit(due, now_ms)
        return any(applied) or any(counted) or bool(due)

    def _ready(self) -> list[PartitionAcker]:
        """Return the partitions whose transactions are over."""
        return [acker for number, acker in self._owned.items() if number not in self._writes]

    def _waits_for_writes(self) -> bool:
        """Return whether no partition can do anything before a transaction is over."""
        return bool(self._owned) and not self._ready()

    def _report_news(self, news: StandingNews) -> None:
        for partition in news.stand:
            event = AckerEvent(AckerEventKind.STANDS, partition.place.partition, str(partition))
            self._report(event)
        for place in news.go_on:
            detail = f"{place.topic}/{place.partition} goes on"
            self._report(AckerEvent(AckerEventKind.GOES_ON, place.partition, detail))

    def _apply(self, number: int, core: PartitionCore, now_ms: int) -> bool:
        self._at(f"partition {number}")
        fetched = self._reader.take(number)
        core.read_inits(fetched.inits)
        core.apply_fails(fetched.fails)
        self._tally.note(fetched.acks)
        core.apply_acks(fetched.acks)
        offsets = self._reader.positions(number)
        core.pass_to(init_next=offsets.init, fail_next=offsets.fail, ack_next=offsets.ack)
        has_read_acks = bool(fetched.fails or fetched.acks)
        has_read = has_read_acks or bool(fetched.inits)
        if has_read:
            self._owned[number].changed(now_ms, has_read_acks=has_read_acks)
        return has_read

    def _find_ends(self, ready: Iterable[PartitionAcker]) -> None:
        """Find out up to where contributions come before ticks and takes: one request for all partitions."""
        waiting = _numbers(acker for acker in ready if acker.core.sessions.waits_for_ends())
        if waiting:
            self._at("looking for the ends of contributions")
            for number, barrier in self._reader.barriers(waiting).items():
                self._owned[number].core.set_ends(barrier.ack, barrier.fail)

    def _count(self, acker: PartitionAcker, now_ms: int) -> bool:
        """Count the ticks and takes of a partition whose turn has come; return whether there were any."""
        counted = acker.core.count()
        if counted:
            acker.changed(now_ms, has_read_acks=False)
        return counted

    def _commit(self, due: list[PartitionAcker], now_ms: int) -> None:
        """Commit partitions, some at a time; what takes long is finished by a later step."""
        for ackers in self._in_turns(due, "committing"):
            self._writes.begin(ackers, now_ms)
            self._writes.wait(_numbers(ackers), PATIENCE_MS)
            self._finish_writes(now_ms)
        self._reader.hold(self._writes.numbers())

    def _in_turns(self, due: list[PartitionAcker], doing: str) -> Iterator[list[PartitionAcker]]:
        """Yield partitions, `commits_at_once` in each turn; `doing` names the work where it hangs.

        Each waits for the broker some 20 ms, and computes little.
        """
        for first_index in range(0, len(due), self._limits.commits_at_once):
            ackers = due[first_index : first_index + self._limits.commits_at_once]
            self._at(f"{doing} {_names(_numbers(ackers))}")
            yield ackers

    def _finish_writes(self, now_ms: int) -> bool:
        """Report what has committed, give those up that failed; return whether there were any."""
        overdue = self._writes.overdue(self._limits.hung_ms)
        if overdue:  # past all its deadlines: who watches this thread may see that it hangs
            self._at(f"committing {_names(overdue)}")
            self._writes.wait(overdue, 2 * self._limits.hung_ms)
        finished = self._writes.take_finished()
        failed: list[tuple[int, WindhoverError]] = []
        for acker, outcome in finished:
            number = acker.core.partition
            self._reader.release(number)
            if isinstance(outcome, WindhoverError):
                failed.append((number, outcome))
                continue
            self._membership.commit_soon(acker.done)
            self._restores.pop(number, None)
            if acker.has_quarantined:  # the next one may fit
                self._forms.pop(number, None)
                acker.quarantine_form = QuarantineForm.WHOLE
            self._tally.add(outcome.settled, now_ms)
            self._tally.add_too_late(outcome.too_late)
            for event in outcome.events:
                self._report(event)
        for number, error in failed:
            self._failed(number, error, now_ms)
        return bool(finished)

    def _failed(self, number: int, error: WindhoverError, now_ms: int) -> None:
        """Give a partition up whose commit failed, or raise what cannot pass."""
        if isinstance(error, Fenced):
            self._fenced_ms[number] = now_ms
            self._lose(number, AckerEventKind.FENCED, error)
        elif isinstance(error, PartitionStands):  # it is tried again, however often
            self._troubles[number] = {}
            self._lose(number, AckerEventKind.STANDS, error)
        elif isinstance(error, Aborted | Unreachable):
            if isinstance(error, RecordRefused) and self._owned[number].has_quarantined:
                self._copy_less(number, error)
            self._lose(number, AckerEventKind.ABORTED, error)
            self._restores[number] = self._restores.get(number, 0) + 1
            if self._restores[number] > self._limits.restore_attempts:
                raise error
        else:
            raise error

    def _copy_less(self, number: int, error: RecordRefused) -> None:
        """Make the next owner copy less of what it quarantines, since one copy must not end the acker."""
        form = self._forms[number] = self._owned[number].quarantine_form.lesser()
        detail = f"of records that cannot be applied {form.name.lower()} is copied now: {error.reason}"
        self._report(AckerEvent(AckerEventKind.NOT_COPIED, number, detail))

    # -- which partitions this process owns

    def _share(self, now_ms: int) -> bool:
        """Give up what the group took back, restore one partition it assigned; whether there was any.

        Raises `Unreachable`: the partition does not come up, and no other one works.
        """
        ours = self._membership.poll(0 if self._owned else self._limits.poll_ms)
        self._counts.require(ours)
        self._assigned = len(ours)
        self._time_restores(ours, now_ms)
        # one whose transaction is under way is given up when that is over
        gone = [number for number in _numbers(self._ready()) if number not in ours]
        for number in gone:
            self._give_up(number)
            self._report(AckerEvent(AckerEventKind.LOST, number, "the group has taken it back"))
        self._forget_others(ours, now_ms)
        missing = ours - self._owned.keys() - self._fenced_ms.keys()
        in_turn = self._silent.in_turn(missing, now_ms, others_work=bool(self._owned))
        new = [number for number in in_turn if number not in self._takeovers][:1]
        has_fenced = self._end_takeovers(ours, now_ms)
        for number in new:
            self._try_to_own(number, now_ms)
        if new or has_fenced or gone:
            self._assign()
        return bool(new or has_fenced or gone)

    def _forget_others(self, ours: frozenset[int], now_ms: int) -> None:
        """Forget what is known of partitions that are not ours any more, and fences that are over."""
        for number, since_ms in list(self._fenced_ms.items()):
            is_over = not 0 <= now_ms - since_ms < self._limits.fenced_ms
            if number not in ours or (is_over and not self._membership.is_out):
                del self._fenced_ms[number]
        self._troubles = {number: self._troubles[number] for number in self._troubles.keys() & ours}
        still_damaged = (self._damaged.keys() & ours) - self._owned.keys()
        self._damaged = {number: self._damaged[number] for number in still_damaged}

    def _try_to_own(self, number: int, now_ms: int) -> None:
        """Fence a partition's former owner and restore it; leave it alone for a while if that fails.

        The fencing waits for the former owner's transaction. If that takes long, a later step goes on.

        Raises `Unreachable` if no other one works, and `Damaged` if none can be read.
        """
        self._at(f"taking over partition {number}")
        try:
            self._require_leaders(number)
            transactions = self._log.transactions(f"{self._group}-{number}")
            fence = partial(transactions.init, self._limits.operation_ms)
            with ExitStack() as undo:
                undo.callback(transactions.close)
                if self._owned:
                    fencing = self._log.begin(fence)
                    if not fencing.is_over(PATIENCE_MS):
                        self._takeovers[number] = Takeover(transactions, fencing)
                        undo.pop_all()
                        return
                    fencing.result()
                else:  # nobody is held up, and a signal may end the wait
                    fence()
                self._own(number, transactions)
                undo.pop_all()
        except (Fenced, Unreachable, Damaged) as error:
            self._not_owned(number, error, now_ms)

    def _end_takeovers(self, ours: frozenset[int], now_ms: int) -> bool:
        """Restore partitions whose former owner is fenced by now; return whether there were any."""
        takeovers = self._takeovers.items()
        fenced = [number for number, takeover in takeovers if takeover.fencing.is_over()]
        for number in fenced:
            transactions, fencing = self._takeovers.pop(number)
            with ExitStack() as undo:
                undo.callback(transactions.close)
                try:
                    fencing.result()
                    if number in ours:
                        self._at(f"restoring partition {number}")
                        self._require_leaders(number)  # which may have changed meanwhile
                        self._own(number, transactions)
                        undo.pop_all()
                except (Fenced, Unreachable, Damaged) as error:
                    self._not_owned(number, error, now_ms)
        return bool(fenced)

    def _not_owned(self, number: int, error: _TakeoverError, now_ms: int) -> None:
        """Leave a partition alone for a while that cannot be had; raise as `_try_to_own` does."""
        if isinstance(error, Fenced):
            self._fenced_ms[number] = now_ms
            self._report(AckerEvent(AckerEventKind.FENCED, number, str(error)))
        elif isinstance(error, Unreachable):
            self._silent.failed(number, now_ms)
            if not self._owned:
                raise error
            self._report(AckerEvent(_kind_of(error), number, str(error)))
        else:
            self._report(AckerEvent(AckerEventKind.DAMAGED, number, str(error)))
            self._leave_damaged(number, error, now_ms)

    def _lose_shortened(self, error: OutOfRange, now_ms: int) -> None:
        """Give up partitions whose logs begin above what we have read: a later owner has shortened them.

        So it is where this process stood still, and the group has handed its partitions to others. If it was
        no owner who deleted the records, the next restore says so (`DataLoss`). Raises the error where all
        logs begin where they should.
        """
        read = {place: offset for acker in self._ready() for place, offset in acker.done.items()}
        starts = self._log.bounds(Bound.START, read).offsets
        shortened = {place.partition for place, start in starts.items() if start > read[place]}
        if not shortened:
            raise error
        for number in sorted(shortened):
            self._fenced_ms[number] = now_ms
            taken = Fenced(
                f"partition {number}: {error}; another acker has taken the partition over and shortened its"
                " logs while this one stood still"
            )
            self._lose(number, AckerEventKind.FENCED, taken)

    def _leave_damaged(self, number: int, error: Damaged, now_ms: int) -> None:
        """Leave a partition alone for a while of which an ack topic cannot be read; the others go on.

        Raises the error where none of the partitions that the group has assigned to us can be read.
        """
        self._silent.failed(number, now_ms)
        self._damaged[number] = error
        if len(self._damaged) >= self._assigned:
            raise error

    def _time_restores(self, ours: frozenset[int], now_ms: int) -> None:
        """Record how long partitions that the last step restored had waited, and which wait now."""
        waits_no_more = [
            number for number in self._waiting_since_ms if number in self._owned or number not in ours
        ]
        for number in waits_no_more:
            since_ms = self._waiting_since_ms.pop(number)
            if number in self._owned:
                took_ms = max(0, now_ms - since_ms)
                self._restored += 1
                self._restored_ms += took_ms
                self._owned[number].restored(took_ms, now_ms)
        for number in ours - self._owned.keys():
            self._waiting_since_ms.setdefault(number, now_ms)

    def _own(self, number: int, transactions: Transactions) -> None:
        """Restore a partition whose former owner is fenced."""
        core = self._restore.core(number)
        self._past.restores += 1
        self._owned[number] = PartitionAcker(
            core, transactions, self._topics, self._limits, self._restore.stored
        )
        self._owned[number].quarantine_form = self._forms.get(number, QuarantineForm.WHOLE)
        if core.init_next:  # else nothing was ever read, and there is no progress to publish
            self._membership.commit_soon(self._owned[number].done)
        detail = f"{core.ledger.open} open roots, contributions from offset {core.ack_next} on"
        self._report(AckerEvent(AckerEventKind.RESTORED, number, detail))

    def _require_leaders(self, number: int) -> None:
        """Find out within some seconds that a partition cannot come up: a try takes longer.

        Raises `PartitionStands`: a log that it reads or writes has no leader.
        """
        topics = self._topics
        names = [topics.init, topics.fail, topics.ack, topics.verdict, topics.state]
        if number in self._troubles:  # perhaps it had something to write there
            names.append(topics.quarantine)
        places = [TopicPartition(name, number) for name in names]
        troubles = self._log.bounds(Bound.END, places).troubles
        if not troubles:
            self._troubles.pop(number, None)
            return
        troubles_by_name = {
            f"{place.topic}/{place.partition}": text for place, text in sorted(troubles.items())
        }
        self._troubles[number] = troubles_by_name
        texts = "; ".join(f"{name} {text}" for name, text in troubles_by_name.items())
        raise PartitionStands(
            f"acker partition {number} waits: {texts}; start what is missing, and it gives its verdicts"
        )

    def _assign(self) -> None:
        """Read what the partitions need that are owned now, and nothing of others."""
        starts: dict[int, StepOffsets] = {}
        for number, acker in self._owned.items():
            core = acker.core
            starts[number] = StepOffsets(init=core.init_next, fail=core.fail_next, ack=core.ack_next)
        self._reader.assign(starts)

    def _lose(self, number: int, kind: AckerEventKind, error: WindhoverError) -> None:
        """Give a partition up for an error, and report it."""
        self._give_up(number)
        self._assign()
        self._report(AckerEvent(kind, number, str(error)))

    def _give_up(self, number: int) -> None:
        """End a partition's transactions and forget what was fetched of it; its counts stay."""
        self._at(f"giving up partition {number}")
        acker = self._owned.pop(number)
        self._reader.drop(number)
        self._past.add(acker.core.ledger.counts)
        acker.close()


def _kind_of(error: Unreachable) -> AckerEventKind:
    """Return the kind of the event that tells of an error: a partition stands, or the broker is away."""
    return AckerEventKind.STANDS if isinstance(error, PartitionStands) else AckerEventKind.UNREACHABLE


def _numbers(ackers: Iterable[PartitionAcker]) -> list[int]:
    return [acker.core.partition for acker in ackers]


def _names(numbers: Iterable[int]) -> str:
    """Name partitions, as what a step waits for is called."""
    return f"partition {', '.join(map(str, numbers))}"
