"""The replay worker: turns each lost root into one new copy on the replay topic, or into one dead letter.

Any number of workers share the verdict partitions as a consumer group. The group only decides which worker
should try a partition; the worker becomes its owner by the partition's transactional id. So a worker that
learns too late that a partition has moved cannot write for it any more.

Roots of an input that cannot go on are put aside: they wait in `_ack_due`, counted and reported, while the
other inputs go on. An input cannot go on if topics.yaml does not have it (until `ReplayService.take_topics`),
if its breaker has paused it, or if one of its topics is missing, forbidden or takes no copy at all. A single
record that is refused holds up nothing else (`replay.worker.refusals`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import copy
from dataclasses import fields
from functools import partial
from typing import Final

from acker.config.limits import ReplayLimits
from acker.config.topics import Topics
from acker.errors import Aborted, Damaged, Disagreement, Fenced, LogError, Unreachable, WindhoverError
from acker.kafka.port import Log, Membership, Reader, TopicPartition
from acker.kafka.reading import poll_past_damage
from acker.service.partition_counts import PartitionCounts
from acker.service.passed_over import damage_passed_over
from acker.service.silent import SilentPartitions
from acker.waits import SilentBroker, SteadyMs, steady_ms
from replay.worker.partition import VerdictPartition, paused_text
from replay.worker.report import Counters, ReplayStatus, Report, Written
from replay.worker.worker import Worker

PAUSE_LIMITS: Final = 2
"""A member may pause for this many times the limit `hung_ms` before it loses its place in the group."""


class ReplayService:
    """A replay worker. The caller runs the loop around `step`."""

    def __init__(
        self,
        log: Log,
        topics: Topics,
        *,
        jitter: Callable[[], float],
        limits: ReplayLimits | None = None,
        report: Report = lambda _event: None,
        at: Callable[[str], None] = lambda _operation: None,
        written: Written | None = None,
        clock_ms: SteadyMs = steady_ms,
    ) -> None:
        """Prepare a worker; it sends no request to the cluster before the first step.

        `at` is called with the name of each operation that a step begins; a watchdog sees by it what hangs.
        `written` is called for each copy and each dead letter, once it is committed. `clock_ms` measures for
        how long the broker does not answer.
        """
        self._limits = limits or topics.replay.limits
        self._fixed_limits = limits
        self._make = partial(Worker, log, jitter=jitter, report=report, at=at, written=written)
        self._topics = topics
        self._worker = self._make(topics, limits=self._limits)
        self._membership: Membership | None = None
        self._reader: Reader | None = None
        self._partitions: dict[int, VerdictPartition] = {}
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._share = 0
        self._is_assignment_stale = False
        self._counts: PartitionCounts | None = None
        self._status_ms = 0
        self._fenced_ms: dict[int, int] = {}
        self._silent = SilentPartitions(self._limits.operation_timeout_ms, self._limits.unreachable_ms)
        self._damaged: dict[int, Damaged] = {}
        self._aborts: dict[int, int] = {}
        self._broker = SilentBroker(clock_ms)

    def step(self, now_ms: int) -> bool:
        """Do one round, of bounded size, for all owned partitions; return whether anything was done.

        1. Poll the group; open new partitions, drop lost ones. If there is no partition to read, wait here.
        2. For each partition, write what is due, and take over lost roots.
        3. Read verdicts. If there was nothing else to do, wait for them, at most `poll_ms`.

        Raises:
            ConfigError: topics.yaml and the broker disagree about the ack topics.
            DataLoss: verdicts that were not taken over are no longer in the log.
            UnknownVersion: a newer Windhover wrote to the verdict topic or to `_ack_due`.
            Unreachable: the broker has not answered for longer than the limit `unreachable_ms`.
            LogError: the broker aborted too many transactions in a row.
            Damaged: of each of our partitions an ack topic has a damaged batch.
        """
        try:
            worked = self._round(now_ms)
        except Unreachable as error:
            self._is_assignment_stale = True  # read again what a failed poll has fetched and not returned
            if self._broker.failed():
                self._worker.report("unreachable", error=str(error))
            if self._broker.silent_ms > self._limits.unreachable_ms:
                raise
            return False
        self._broker.answered()
        return worked

    def _round(self, now_ms: int) -> bool:
        self._status_ms = now_ms
        opened = self._follow_group(now_ms)
        worked = [self._advance(number, now_ms) for number in sorted(self._partitions)]
        busy = opened or any(worked)
        self._report_aside(now_ms)
        return self._read(now_ms, 0 if busy else self._wait_ms(now_ms)) or busy

    def take_topics(self, topics: Topics) -> None:
        """Go on with a newer topics.yaml: its inputs, their policies, and the limits; nothing is written.

        All partitions are opened again, so that every waiting root is checked against the new file. Raises
        `Disagreement`: a running worker cannot change something; it goes on as before.
        """
        limits = self._fixed_limits or topics.replay.limits
        for name, here, there in (
            ("kafka", self._topics.kafka, topics.kafka),
            ("acker.partitions", self._topics.acker.partitions, topics.acker.partitions),
            ("acker.topic_prefix", self._topics.ack_topics, topics.ack_topics),
            ("acker.replay_group", self._topics.acker.replay_group, topics.acker.replay_group),
            ("replay.limits.stop", self._limits.stop_ms, limits.stop_ms),
            ("replay.limits.step, or four times operation_timeout,", self._limits.hung_ms, limits.hung_ms),
        ):
            if here != there:
                raise Disagreement(f"{name} has changed, which a running worker cannot: start it again")
        for number in sorted(self._partitions):
            self._drop(number, "partition_left")
        before = self._worker
        before.fetcher.close()
        self._topics = topics
        self._limits = limits
        self._worker = self._make(
            topics, limits=self._limits, counters=before.counters, cuts=before.cuts, clocks=before.clocks
        )
        self._counts = None
        self._worker.report("topics_taken", inputs=len(topics.inputs))

    def close(self) -> None:
        try:
            for partition in self._partitions.values():
                self._worker.at(f"the last commit of partition {partition.number}")
                try:
                    partition.finish()
                    self._commit_soon(partition)
                except WindhoverError as error:
                    # The next owner, or this worker's next start, reads those verdicts again; they contain no
                    # lost roots. And this error must not hide the one that ends the worker.
                    self._worker.report("not_committed", partition=partition.number, error=str(error))
                finally:
                    partition.close()
        finally:
            self._worker.at("leaving the group")
            self._partitions.clear()
            self._worker.fetcher.close()
            for open_one in (self._reader, self._membership):
                if open_one is not None:
                    open_one.close()
            self._reader = self._membership = None

    def status(self) -> ReplayStatus:
        worker, owned = self._worker, self._partitions.values()
        waiting = [p.waiting for p in owned]
        next_due = [due for each in owned if (due := each.next_due_ms) is not None]
        aside = Counter[str]()
        for each in owned:
            aside.update({worker.name_of(of): count for of, count in each.aside(self._status_ms).items()})
        return ReplayStatus(
            partitions=tuple(sorted(self._partitions)),
            assigned=self._share,
            waiting=sum(map(len, waiting)),
            waiting_bytes=sum(each.memory_bytes for each in waiting),
            next_due_ms=min(next_due, default=None),
            fetched_records=worker.fetcher.read_records,
            fetched_bytes=worker.fetcher.read_bytes,
            aside=aside.total(),
            aside_by_input=dict(aside),
            held_up=sum(len(each.held_up) for each in owned),
            paused=tuple(sorted({worker.name_of(of) for each in owned for of in each.pauses})),
            breaker_used={
                worker.name_of(of): breaker.used(self._status_ms) for of, breaker in worker.breakers.items()
            },
            **{each.name: copy(getattr(worker.counters, each.name)) for each in fields(Counters)},
        )

    def _report_aside(self, now_ms: int) -> None:
        found: dict[int, tuple[int, str]] = {}
        for partition in self._partitions.values():
            for input_id, count in partition.aside(now_ms).items():
                pause = partition.pauses.get(input_id)
                before, why = found.get(input_id, (0, ""))
                refused = partition.refused_aside().get(input_id)
                if pause is not None:
                    why = paused_text(self._worker.name_of(input_id), pause)
                elif refused is not None and self._worker.is_ready(input_id, now_ms):
                    why = f"what is written for them is refused ({refused.why}); see `windhover topics check`"
                found[input_id] = before + count, why
        self._worker.report_aside(found, now_ms)

    def _follow_group(self, now_ms: int) -> bool:
        """Open partitions that the group assigned, drop those that it took back; True if one was opened."""
        self._worker.at("asking the group what is ours")
        if self._counts is None:
            self._counts = self._worker.check_topics(now_ms)
        if self._membership is None:
            topics, pause_ms = [self._worker.names.verdict], PAUSE_LIMITS * self._limits.hung_ms
            self._membership = self._worker.log.join(self._worker.group, topics, pause_ms=pause_ms)
        owned = self._membership.poll(0 if self._assigned else self._wait_ms(now_ms))
        self._counts.require(owned)
        self._counts.step(now_ms)
        self._share = len(owned)
        for number in set(self._partitions) - owned:
            self._drop(number, "partition_left")
        self._worker.leave(owned)
        pause_ms, is_out = self._limits.fenced_pause_ms, self._membership.is_out
        self._fenced_ms = {
            number: at_ms
            for number, at_ms in self._fenced_ms.items()
            if number in owned and (is_out or 0 <= now_ms - at_ms < pause_ms)
        }
        self._damaged = {n: error for n, error in self._damaged.items() if n in owned}
        missing = owned - self._partitions.keys() - self._fenced_ms.keys()
        opened = self._silent.in_turn(missing, now_ms, others_work=bool(self._partitions))
        for number in opened:
            self._worker.at(f"taking over partition {number}")
            try:
                partition = VerdictPartition(self._worker, number)
            except Unreachable as error:
                self._silent.failed(number, now_ms)
                if not self._partitions:
                    raise
                self._worker.report("unreachable", partition=number, error=str(error))
                break
            except Damaged as error:
                self._leave_damaged(number, error, now_ms)
                break
            self._partitions[number] = partition
            self._damaged.pop(number, None)
            self._is_assignment_stale = True
            self._worker.report(
                "partition_opened",
                partition=number,
                offset=partition.progress.next,
                waiting=len(partition.waiting),
            )
        return bool(opened)

    def _advance(self, number: int, now_ms: int) -> bool:
        try:
            self._worker.at(f"partition {number}")
            partition = self._partitions[number]
            worked = partition.step(now_ms)
            self._commit_soon(partition)
            if worked:
                self._aborts.pop(number, None)
            return worked
        except Fenced:
            self._worker.counters.fenced += 1
            self._fenced_ms[number] = now_ms
            self._drop(number, "fenced")
        except Aborted as error:
            self._worker.counters.aborted += 1
            self._drop(number, "aborted", error=str(error))
            self._aborts[number] = self._aborts.get(number, 0) + 1
            if self._aborts[number] > self._limits.aborts_max:
                raise LogError(
                    f"{self._aborts[number]} transactions in a row were aborted for partition {number} of"
                    f" {self._worker.names.verdict}, the last one because: {error}"
                ) from error
        except Unreachable as error:
            self._drop(number, "unreachable", error=str(error))
        except Damaged as error:
            self._drop(number, "partition_left")
            self._leave_damaged(number, error, now_ms)
        return True

    def _leave_damaged(self, number: int, error: Damaged, now_ms: int) -> None:
        """Leave a partition alone for a while of which an ack topic cannot be read; the others go on.

        Raises the error where none of the partitions that the group has assigned to us can be read.
        """
        self._silent.failed(number, now_ms)
        self._damaged[number] = error
        if len(self._damaged) >= self._share:
            raise error
        self._worker.report("damaged", partition=number, error=str(error))

    def _commit_soon(self, partition: VerdictPartition) -> None:
        if self._membership is not None:
            self._membership.commit_soon({partition.reads: partition.progress.next})

    def _drop(self, number: int, why: str, **fields: str | int) -> None:
        self._worker.at(f"giving up partition {number}")
        partition = self._partitions.pop(number)
        self._is_assignment_stale = True
        partition.close()
        self._worker.report(why, partition=number, **fields)

    def _wait_ms(self, now_ms: int) -> int:
        due = [found for p in self._partitions.values() if (found := p.next_due_ms) is not None]
        return max(0, min([self._limits.poll_ms, *(found - now_ms for found in due)]))

    def _read(self, now_ms: int, wait_ms: int) -> bool:
        self._worker.at("reading verdicts")
        reading = {p.reads: p for p in self._partitions.values() if p.wants_verdicts}
        if self._reader is None:
            self._reader = self._worker.log.reader(committed=True, patient=True)
        if self._is_assignment_stale or reading.keys() != self._assigned:
            self._reader.assign({name: p.intake.read_to for name, p in reading.items()})
            self._assigned, self._is_assignment_stale = frozenset(reading), False
        if not reading:
            return False
        on_damage = damage_passed_over(self._worker.log, self._limits.operation_timeout_ms)
        most = self._limits.verdict_records_max
        try:
            records = poll_past_damage(self._reader, wait_ms, most, on_damage)
        except Damaged as error:
            self._drop(error.partition, "partition_left")
            self._leave_damaged(error.partition, error, now_ms)
            return True
        if clock_news := self._worker.clocks.polled(records, now_ms):
            self._worker.report("clocks_differ", error=clock_news)
        for record in records:
            partition = reading[TopicPartition(record.topic, record.partition)]
            partition.offer(record, now_ms)
            partition.intake.read_to = record.offset + 1  # a later one may raise, and is read again
        for name, partition in reading.items():
            partition.intake.read_to = max(partition.intake.read_to, self._reader.position(name))
        return bool(records)
