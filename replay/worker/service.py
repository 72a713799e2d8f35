"""The replay worker: turns each lost root into one new copy on the replay topic, or into one dead letter.

Any number of workers share the verdict partitions as a consumer group. The
group only decides which worker should try a partition; the worker becomes its
owner by the partition's transactional id. So a worker that learns too late
that a partition has moved cannot write for it any more.

Roots of an input that cannot go on are *put aside*: they wait in `_ack_due`,
counted and reported, while the other inputs go on. An input cannot go on if
topics.yaml does not have it (until `ReplayService.take_topics`), if its
breaker has paused it, or if one of its topics is missing, forbidden or takes
no copy at all. A single record that is refused holds up nothing else
(`replay.worker.refusals`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from dataclasses import fields
from functools import partial
from typing import Final

from acker.config.limits import ReplayLimits
from acker.config.topics import Topics
from acker.errors import Aborted, Damaged, Disagreement, Fenced, LogError, Unreachable, WindhoverError
from acker.kafka.port import Log, Membership, Reader, TopicPartition
from acker.kafka.read_to_end import poll_past_damage
from acker.service.partition_counts import PartitionCounts
from acker.service.passed_over import damage_handler
from acker.service.silent import SilentPartitions
from acker.waits import SilentBroker, SteadyMs, steady_ms
from replay.worker.partition import VerdictPartition, paused_text
from replay.worker.refused_aside import AsideCount
from replay.worker.report import Counters, ReplayStatus, Report, Written
from replay.worker.worker import Worker

PAUSE_PER_HUNG_LIMIT: Final = 2
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
        note_operation: Callable[[str], None] = lambda _operation: None,
        on_written: Written | None = None,
        clock_ms: SteadyMs = steady_ms,
    ) -> None:
        """Prepare a worker; it sends no request to the cluster before the first step.

        `note_operation` is called with the name of each operation that a step
        begins; a watchdog sees by it what hangs. `on_written` is called for each
        copy and each dead letter, once it is committed. `clock_ms` measures
        for how long the broker does not answer.
        """
        self._limits = limits or topics.replay.limits
        self._fixed_limits = limits  # None: those of topics.yaml
        self._make_worker = partial(
            Worker,
            log,
            jitter=jitter,
            report=report,
            note_operation=note_operation,
            on_written=on_written,
        )
        self._topics = topics
        self._worker = self._make_worker(topics, limits=self._limits)
        self._membership: Membership | None = None
        # verdict partitions that the group has assigned to us, opened or not
        self._assigned_count = 0
        # the reader of verdicts, and the partitions that it reads. It is stale if
        # these are to be assigned again, from where `VerdictPartition.intake`
        # goes on
        self._reader: Reader | None = None
        self._read_partitions: frozenset[TopicPartition] = frozenset()
        self._is_reader_stale = False
        self._partition_counts: PartitionCounts | None = None
        self._round_ms = 0  # wall time of the last round
        # all of these are by the number of a verdict partition
        self._partitions: dict[int, VerdictPartition] = {}  # those that are open
        # when another owner fenced us, wall time
        self._fenced_at_ms_by_partition: dict[int, int] = {}
        self._damage_by_partition: dict[int, Damaged] = {}  # why an ack topic cannot be read there
        self._aborts_in_a_row_by_partition: dict[int, int] = {}
        # which partitions could not be opened lately, and when each is tried again
        self._partitions_left_alone = SilentPartitions(
            self._limits.operation_timeout_ms, self._limits.unreachable_ms
        )
        self._broker_silence = SilentBroker(clock_ms)  # for how long the whole broker has not answered

    def step(self, now_ms: int) -> bool:
        """Do one round, of bounded size, for all owned partitions; return whether anything was done.

        Return False, too, if the broker does not answer.

        1. Poll the group; open new partitions, drop lost ones. If there is no
           partition to read, wait here.
        2. For each partition, write what is due, and accept lost roots.
        3. Read verdicts. If there was nothing else to do, wait for them, at
           most `poll_ms`.

        Raises:
            ConfigError: topics.yaml and the broker disagree about the ack
                topics.
            DataLoss: verdicts that were not accepted are no longer in the log.
            UnknownVersion: a newer Windhover wrote to the verdict topic or to
                `_ack_due`.
            Unreachable: the broker has not answered for longer than the limit
                `unreachable_ms`.
            LogError: the broker aborted too many transactions in a row.
            Damaged: of each of our partitions an ack topic has a damaged
                batch.
        """
        try:
            worked = self._run_round(now_ms)
        except Unreachable as error:
            # a poll that failed may have fetched records without returning them:
            # the reader is assigned again, and reads them once more
            self._is_reader_stale = True
            # true for the first failure of a silence: the others are not reported
            if self._broker_silence.record_failure():
                self._worker.report("unreachable", error=str(error))
            if self._broker_silence.silent_ms > self._limits.unreachable_ms:
                raise
            return False
        self._broker_silence.record_answer()
        return worked

    def _run_round(self, now_ms: int) -> bool:
        """Do what `step` does while the broker answers; return whether anything was done."""
        self._round_ms = now_ms
        is_busy = self._follow_group(now_ms)
        for number in sorted(self._partitions):
            is_busy = self._step_partition(number, now_ms) or is_busy
        self._report_aside(now_ms)
        wait_ms = 0 if is_busy else self._wait_for_verdicts_ms(now_ms)
        has_read = self._read_verdicts(now_ms, wait_ms)
        return has_read or is_busy

    def take_topics(self, topics: Topics) -> None:
        """Go on with a newer topics.yaml: its inputs, their policies, and the limits; nothing is written.

        All partitions are opened again, so that every waiting root is checked
        against the new file. Raises `Disagreement`: a running worker cannot
        change something; it goes on as before.
        """
        limits = self._fixed_limits or topics.replay.limits
        # of each setting: its name, what the worker runs with, and what the new
        # file has in its place
        for name, running, in_file in (
            ("kafka", self._topics.kafka, topics.kafka),
            ("acker.partitions", self._topics.acker.partitions, topics.acker.partitions),
            ("acker.topic_prefix", self._topics.ack_topics, topics.ack_topics),
            ("acker.replay_group", self._topics.acker.replay_group, topics.acker.replay_group),
            ("replay.limits.stop", self._limits.stop_ms, limits.stop_ms),
            ("replay.limits.step, or four times operation_timeout,", self._limits.hung_ms, limits.hung_ms),
        ):
            if running != in_file:
                raise Disagreement(f"{name} has changed, which a running worker cannot: start it again")
        for number in sorted(self._partitions):
            self._drop_partition(number, "partition_left")
        former_worker = self._worker
        former_worker.fetcher.close()
        self._topics = topics
        self._limits = limits
        self._worker = self._make_worker(
            topics,
            limits=self._limits,
            counters=former_worker.counters,
            cut_copies_by_partition=former_worker.cut_copies_by_partition,
            clock_watch=former_worker.clock_watch,
        )
        self._partition_counts = None  # the topics are checked again
        self._worker.report("topics_taken", inputs=len(topics.inputs))

    def close(self) -> None:
        """Commit progress that was delayed, give up all partitions, and leave the group."""
        try:
            for partition in self._partitions.values():
                self._worker.note_operation(f"the last commit of partition {partition.number}")
                try:
                    partition.finish()
                    self._commit_progress_soon(partition)
                except WindhoverError as error:
                    # The next owner, or this worker's next start, reads those
                    # verdicts again. They have no lost roots: only a progress
                    # that passes none is delayed. And this error must not hide
                    # the one that ends the worker.
                    self._worker.report("not_committed", partition=partition.number, error=str(error))
                finally:
                    partition.close()
        finally:
            self._worker.note_operation("leaving the group")
            self._partitions.clear()
            self._worker.fetcher.close()
            for client in (self._reader, self._membership):
                if client is not None:
                    client.close()
            self._reader = self._membership = None

    def status(self) -> ReplayStatus:
        """Return the worker as it was at the time of its last round; nothing is asked for."""
        worker = self._worker
        owned = self._partitions.values()
        aside_by_input = Counter[str]()
        paused: set[str] = set()
        for partition in owned:
            for input_id, aside_count in partition.aside_count_by_input(self._round_ms).items():
                aside_by_input[worker.name_of(input_id)] += aside_count
            paused.update(map(worker.name_of, partition.pauses))
        breaker_used: dict[str, float] = {}
        for input_id, breaker in worker.breakers.items():
            breaker_used[worker.name_of(input_id)] = breaker.used_share(self._round_ms)
        # copies, since the counters go on
        counters = {field.name: copy(getattr(worker.counters, field.name)) for field in fields(Counters)}
        return ReplayStatus(
            partitions=tuple(sorted(self._partitions)),
            assigned=self._assigned_count,
            waiting=sum(len(partition.waiting) for partition in owned),
            waiting_bytes=sum(partition.waiting.memory_bytes for partition in owned),
            next_due_ms=min(self._next_dues_ms(), default=None),
            fetched_records=worker.fetcher.read_records,
            fetched_bytes=worker.fetcher.read_bytes,
            aside=aside_by_input.total(),
            aside_by_input=dict(aside_by_input),
            held_up=sum(len(partition.damaged_run_by_entry_offset) for partition in owned),
            paused=tuple(sorted(paused)),
            breaker_used=breaker_used,
            **counters,
        )

    def _report_aside(self, now_ms: int) -> None:
        """Report inputs with roots that are put aside: how many in all partitions, and why."""
        aside_by_input: dict[int, AsideCount] = {}
        for partition in self._partitions.values():
            refused_by_input = partition.refused_aside_by_input()
            for input_id, aside_count in partition.aside_count_by_input(now_ms).items():
                # summed over the partitions that were counted so far
                sum_before = aside_by_input.get(input_id, AsideCount())
                why = sum_before.why  # empty: `Worker.report_aside` says why
                pause = partition.pauses.get(input_id)
                refused = refused_by_input.get(input_id)
                # a pause counts more than a refusal; the last partition that has a
                # reason counts
                if pause is not None:
                    why = paused_text(self._worker.name_of(input_id), pause)
                elif refused is not None and self._worker.is_ready(input_id, now_ms):
                    why = f"what is written for them is refused ({refused.why}); see `windhover topics check`"
                root_count = sum_before.root_count + aside_count
                aside_by_input[input_id] = AsideCount(root_count, why)
        self._worker.report_aside(aside_by_input, now_ms)

    def _follow_group(self, now_ms: int) -> bool:
        """Open partitions that the group assigned, and drop those that it took back.

        Return whether one was opened, or tried.

        1. Make sure that the topics are as topics.yaml has them, and that we
           are a member of the group.
        2. Poll the group.
        3. Drop what is not ours any more.
        4. Open what is ours and is not open, except what cannot be now.
        """
        # 1. topics and membership
        self._worker.note_operation("asking the group what is ours")
        if self._partition_counts is None:
            self._partition_counts = self._worker.check_topics(now_ms)
        if self._membership is None:
            topics = [self._worker.ack_topics.verdict]
            pause_ms = PAUSE_PER_HUNG_LIMIT * self._limits.hung_ms
            self._membership = self._worker.log.join(self._worker.group, topics, pause_ms=pause_ms)
        # 2. what is ours. Without a partition to read, wait for the group here;
        # otherwise `_read_verdicts` waits.
        wait_ms = 0 if self._read_partitions else self._wait_for_verdicts_ms(now_ms)
        assigned = self._membership.poll(wait_ms)
        # an ack topic with other than N partitions stops the worker: roots
        # would wait in other partitions than those where they are looked for
        self._partition_counts.require(assigned)
        self._partition_counts.check_if_due(now_ms)
        self._assigned_count = len(assigned)
        # 3. drop
        for number in set(self._partitions) - assigned:
            self._drop_partition(number, "partition_left")
        self._worker.forget_pauses_except(assigned)
        # is_out: whether the group has put this worker out
        self._forget_old_troubles(assigned, now_ms, is_out=self._membership.is_out)
        # 4. open. A partition whose owner fenced us is not tried as long as its
        # fence is remembered (`_forget_old_troubles`).
        unopened = assigned - self._partitions.keys() - self._fenced_at_ms_by_partition.keys()
        to_open = self._partitions_left_alone.partitions_to_try(
            unopened, now_ms, others_work=bool(self._partitions)
        )
        self._open_partitions(to_open, now_ms)
        return bool(to_open)

    def _forget_old_troubles(self, assigned: Collection[int], now_ms: int, *, is_out: bool) -> None:
        """Forget fences that are over, and damage of partitions that are not ours any more.

        `is_out`: the group has put this worker out. Then who fenced it owns the
        partition by right, and the fence is not over however old it is.
        """
        for number, fenced_at_ms in list(self._fenced_at_ms_by_partition.items()):
            is_recent = 0 <= now_ms - fenced_at_ms < self._limits.fenced_pause_ms
            if number not in assigned or not (is_out or is_recent):
                del self._fenced_at_ms_by_partition[number]
        for number in self._damage_by_partition.keys() - assigned:
            del self._damage_by_partition[number]

    def _open_partitions(self, numbers: Iterable[int], now_ms: int) -> None:
        """Open partitions one by one, up to the first that cannot be opened.

        To find that out may take seconds, which the open ones must not wait
        for again and again. Raises `Unreachable`: none is open.
        """
        for number in numbers:
            self._worker.note_operation(f"taking over partition {number}")
            try:
                partition = VerdictPartition(self._worker, number)
            except Unreachable as error:
                self._partitions_left_alone.record_failure(number, now_ms)
                if not self._partitions:  # perhaps no broker answers
                    raise
                self._worker.report("unreachable", partition=number, error=str(error))
                break
            except Damaged as error:
                self._leave_damaged_alone(number, error, now_ms)
                break
            self._partitions[number] = partition
            self._damage_by_partition.pop(number, None)
            self._is_reader_stale = True
            self._worker.report(
                "partition_opened",
                partition=number,
                offset=partition.progress.next,
                waiting=len(partition.waiting),
            )

    def _step_partition(self, number: int, now_ms: int) -> bool:
        """Do one step of a partition; drop it after an error that concerns it alone.

        Return whether anything was done. Raises `LogError`: too many
        transactions in a row were aborted.
        """
        try:
            self._worker.note_operation(f"partition {number}")
            partition = self._partitions[number]
            has_worked = partition.step(now_ms)
            self._commit_progress_soon(partition)
            if has_worked:
                self._aborts_in_a_row_by_partition.pop(number, None)
            return has_worked
        except Fenced:
            self._worker.counters.fenced += 1
            self._fenced_at_ms_by_partition[number] = now_ms
            self._drop_partition(number, "fenced")
        except Aborted as error:
            self._worker.counters.aborted += 1
            self._drop_partition(number, "aborted", error=str(error))
            abort_count = self._aborts_in_a_row_by_partition.get(number, 0) + 1
            self._aborts_in_a_row_by_partition[number] = abort_count
            if abort_count > self._limits.aborts_max:
                raise LogError(
                    f"{abort_count} transactions in a row were aborted for partition {number} of"
                    f" {self._worker.ack_topics.verdict}, the last one because: {error}"
                ) from error
        except Unreachable as error:
            self._drop_partition(number, "unreachable", error=str(error))
        except Damaged as error:
            self._drop_partition(number, "partition_left")
            self._leave_damaged_alone(number, error, now_ms)
        return True

    def _leave_damaged_alone(self, number: int, error: Damaged, now_ms: int) -> None:
        """Leave a partition alone for a while, since an ack topic cannot be read there.

        The others go on. Raise the error if that is so for each partition that
        the group assigned to us.
        """
        self._partitions_left_alone.record_failure(number, now_ms)
        self._damage_by_partition[number] = error
        if len(self._damage_by_partition) >= self._assigned_count:
            raise error
        self._worker.report("damaged", partition=number, error=str(error))

    def _commit_progress_soon(self, partition: VerdictPartition) -> None:
        """Have the progress of a partition committed as the group's offset; do not wait for that.

        It follows the progress in `_ack_due`, which is the one that counts.
        """
        if self._membership is not None:
            self._membership.commit_soon({partition.verdict_partition: partition.progress.next})

    def _drop_partition(self, number: int, event: str, **fields: str | int) -> None:
        """Give up a partition that is open, and report it by an event with these fields."""
        self._worker.note_operation(f"giving up partition {number}")
        partition = self._partitions.pop(number)
        self._is_reader_stale = True
        partition.close()
        self._worker.report(event, partition=number, **fields)

    def _wait_for_verdicts_ms(self, now_ms: int) -> int:
        """Return how long the worker may wait for verdicts: at most until the next root is due."""
        waits_ms = [due_ms - now_ms for due_ms in self._next_dues_ms()]
        return max(0, min([self._limits.poll_ms, *waits_ms]))

    def _next_dues_ms(self) -> list[int]:
        """Return, for each partition in which a root waits, when the first is due; wall time in ms."""
        next_dues_ms = [partition.next_due_ms for partition in self._partitions.values()]
        return [due_ms for due_ms in next_dues_ms if due_ms is not None]

    def _read_verdicts(self, now_ms: int, wait_ms: int) -> bool:
        """Read verdicts for the partitions that have room; return whether there was anything.

        1. Have the reader read those partitions.
        2. Poll; a partition whose verdicts cannot be read is left alone.
        3. Queue the lost roots of what was read, and record how far that is.
        """
        self._worker.note_operation("reading verdicts")
        # 1. which partitions
        readable: dict[TopicPartition, VerdictPartition] = {}
        for partition in self._partitions.values():
            if partition.wants_verdicts:
                readable[partition.verdict_partition] = partition
        # also without a partition: then the reader is to stop reading
        reader = self._assigned_reader(readable)
        if not readable:
            return False
        # 2. poll
        on_damage = damage_handler(self._worker.log, self._limits.operation_timeout_ms)
        records_max = self._limits.verdict_records_max
        try:
            records = poll_past_damage(reader, wait_ms, records_max, on_damage)
        except Damaged as error:
            self._drop_partition(error.partition, "partition_left")
            self._leave_damaged_alone(error.partition, error, now_ms)
            return True  # a partition was dropped, so something was done
        # 3. queue
        clock_difference = self._worker.clock_watch.compare(records, now_ms)
        if clock_difference:
            self._worker.report("clocks_differ", error=clock_difference)
        for record in records:
            partition = readable[TopicPartition(record.topic, record.partition)]
            partition.record_verdicts(record, now_ms)
            # after each record: if a later one raises, it is read again from there
            partition.intake.read_to = record.offset + 1
        # behind the last record may be markers of transactions, which are no
        # records: the reader's position is behind them, too
        for topic_partition, partition in readable.items():
            position = reader.position(topic_partition)
            partition.intake.read_to = max(partition.intake.read_to, position)
        return bool(records)

    def _assigned_reader(self, readable: Mapping[TopicPartition, VerdictPartition]) -> Reader:
        """Return the reader of verdicts; it reads these partitions from where their intakes end.

        They are assigned again only if they are others than at the last call,
        or the reader is stale: what it has fetched would be lost.
        """
        if self._reader is None:
            self._reader = self._worker.log.reader(committed=True, patient=True)
        if self._is_reader_stale or readable.keys() != self._read_partitions:
            next_offsets: dict[TopicPartition, int] = {}
            for topic_partition, partition in readable.items():
                next_offsets[topic_partition] = partition.intake.read_to
            self._reader.assign(next_offsets)
            self._read_partitions = frozenset(readable)
            self._is_reader_stale = False
        return self._reader
