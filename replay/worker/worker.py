"""What the partitions of one replay worker share: the log, the inputs with their policies, and the counters.

Trouble with one input must not stop others. If one of its topics is missing or
forbidden, refuses a record, or does not answer while the broker does, the
worker leaves the input alone for a while (`Trouble`): its roots wait, *put
aside*. So do *foreign* roots, which another group emitted under the id of an
input.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from acker.clock_watch import ClockWatch
from acker.config.limits import ReplayLimits
from acker.config.retry_settings import CauseRule, Retry, RetrySchedule
from acker.config.topics import AckTopics, Input, Topics
from acker.errors import ConfigError, Disagreement, TopicError, UnknownVersion, Unreachable, WindhoverError
from acker.identity import input_id_of
from acker.kafka.port import Headers, Log, Outgoing, Record, TopicInfo, TopicPartition
from acker.provisioning.topic_specs import AGE_LIMITS, MESSAGE_BYTES, NO_LIMIT
from acker.service.partition_counts import PartitionCounts
from acker.service.passed_over import require_passed_over
from acker.untrusted import UntrustedName
from acker.wire.checks import LogOnce
from acker.wire.clusters import cluster_header
from acker.wire.codec import wire_codec
from replay.policy.breaker import Breaker
from replay.policy.damage import DamagedBatches
from replay.policy.disposition import Action, Backoff, Policy, Rule
from replay.records.due import Due, Pause, due_codec
from replay.records.headers import RecordPlace
from replay.worker.cut import CutCopies
from replay.worker.fetch import Absence, Answers, Fetcher, absence_by_damage
from replay.worker.refusals import RefusedInARow
from replay.worker.refused_aside import AsideCount, next_wait_ms
from replay.worker.report import Counters, ReplayEvent, Report, Written

ERRORS_OF_ONE_INPUT: Final = (ConfigError, Unreachable)
"""The errors that may concern one input alone: its topics are missing, forbidden or without a leader."""

TopicVersion = tuple[str, str]
"""A topic's name and the id that Kafka gave it when it was created; created again it has another
id.
"""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why an input cannot go on, and how long it is left alone.

    Attributes:
        until_ms: wall time at which it is tried again.
        wait_ms: from the error to `until_ms`.
        only_copies_refused: its replay topic takes no copy. So only a copy that is
            written shows that the trouble is over, and no dead letter.
    """

    why: str
    until_ms: int
    wait_ms: int
    only_copies_refused: bool = False


class Worker:
    """The log, the policy and the breaker of each input by its id, the limits, and the counters.

    Attributes:
        ack_topics: the names of the ack topics.
        group: the consumer group of the replay workers.
        partition_count: of each ack topic.
        jitter: returns a random number in [0, 1), for back-offs.
        counters: totals, which the parts of the worker count up.
        on_written: called for what is written, once it is committed; or None.
        policies, breakers: by an input's id.
        pauses_by_partition: of each partition that is ours, the paused inputs
            by their ids, when it was open last.
        cut_copies_by_partition: of each partition the copies of transactions
            that did not end well.
        input_ids_to_try_alone: the inputs of a transaction that the broker refused,
            which is one input's fault; each is tried alone.
        refused_in_a_row_by_input: of each input by its id, how many of its
            records were refused since one was accepted.
        clock_watch: compares this machine's clock with the broker's.
        damaged_batches: batches that could not be read lately.
        letter_topics_on_broker_time: dead-letter topics that did not take the
            time of this machine's clock; their letters get the broker's.
        why_foreign_wait_by_input: by an input's id, what is wrong with foreign
            roots of the input.
    """

    def __init__(
        self,
        log: Log,
        topics: Topics,
        jitter: Callable[[], float],
        limits: ReplayLimits,
        report: Report,
        note_operation: Callable[[str], None],
        counters: Counters | None = None,
        cut_copies_by_partition: dict[int, CutCopies] | None = None,
        on_written: Written | None = None,
        clock_watch: ClockWatch | None = None,
    ) -> None:
        """Prepare what is shared; send no request. The arguments are those of `ReplayService`.

        A worker that goes on from an earlier one, with another topics.yaml,
        shares its counters, its clock watch, and `cut_copies_by_partition`: so
        a copy that the earlier one wrote is still looked for.
        """
        self.log = log
        self.limits = limits
        self.jitter = jitter
        # called with the name of each operation that begins, for the watchdog
        self.note_operation = note_operation
        self.on_written = on_written  # called for each committed copy and letter
        self._report = report
        # from topics.yaml
        self.ack_topics: AckTopics = topics.ack_topics
        self.group = topics.acker.replay_group
        self.partition_count = topics.acker.partitions
        self._inputs: dict[int, Input] = {}  # by an input's id
        self.policies: dict[int, Policy] = {}  # by an input's id
        self.breakers: dict[int, Breaker] = {}  # by an input's id
        for input in topics.inputs.values():
            self._inputs[input.id] = input
            self.policies[input.id] = policy_of(input)
            self.breakers[input.id] = Breaker(
                max_ratio=input.dead_letter.max_ratio,
                max_consecutive=input.dead_letter.max_consecutive,
                window_ms=limits.breaker_window_ms,
                dead_min=limits.breaker_dead_min,
                settled_min=limits.breaker_settled_min,
            )
        # tools
        self.wire_codec = wire_codec()
        self.due_codec = due_codec()
        self.fetcher = Fetcher(log, limits)
        self.counters = counters or Counters()
        self.clock_watch = clock_watch or ClockWatch()
        self._undecodable_reported = LogOnce()
        self._cluster_id: str | None = None  # None: it was not asked for
        # what was found out about partitions and topics
        self.pauses_by_partition: dict[int, dict[int, Pause]] = {}
        self.cut_copies_by_partition = {} if cut_copies_by_partition is None else cut_copies_by_partition
        self.damaged_batches = DamagedBatches(limits.input_retry_ms)
        self.letter_topics_on_broker_time: set[str] = set()
        # what was found out about inputs; mappings are by an input's id
        self.input_ids_to_try_alone: set[int] = set()
        self.refused_in_a_row_by_input: dict[int, RefusedInARow] = {}
        self.why_foreign_wait_by_input: dict[int, str] = {}
        self._trouble_by_input: dict[int, Trouble] = {}
        # when it was reported last that the input cannot go on, wall time
        self._aside_reported_at_ms_by_input: dict[int, int] = {}
        # who emitted roots of an input that is not in topics.yaml
        self._group_by_unknown_input: dict[int, str] = {}

    @property
    def cluster_id(self) -> str:
        """Kafka's id of the cluster; it is asked for once."""
        if self._cluster_id is None:
            self._cluster_id = self.log.cluster_id()
        return self._cluster_id

    def waiting_record(
        self, due_partition: TopicPartition, key: bytes, value: bytes | None, headers: Headers = ()
    ) -> Outgoing:
        """Return a record for a partition of `_ack_due`, which says in which cluster it is written."""
        return Outgoing(*due_partition, value, key, (*headers, *cluster_header(self.cluster_id)))

    def forget_pauses_except(self, owned: Collection[int]) -> None:
        """Forget the pauses of all partitions but the owned ones: their new owners keep those.

        The breaker of an input that is paused in no partition of ours any more
        is closed.
        """
        forgotten_input_ids: set[int] = set()
        for number in self.pauses_by_partition.keys() - owned:
            forgotten_input_ids.update(self.pauses_by_partition.pop(number))
        # not those that are paused in a partition of ours, too
        unpaused_input_ids = forgotten_input_ids.difference(*self.pauses_by_partition.values())
        for input_id in unpaused_input_ids & self.breakers.keys():
            self.breakers[input_id].close()

    def input_of(self, source: int, group: str) -> Input:
        """Return the input of a root that a group emitted.

        Raises `Disagreement`: topics.yaml does not have the input, or has it
        with another group.
        """
        input_id = input_id_of(source)
        input = self._inputs.get(input_id)
        if input is None:
            self._group_by_unknown_input[input_id] = group  # reports of the input name the group
            raise Disagreement(self._unknown_input_text(input_id))
        if input.group != group:
            raise Disagreement(_other_group_text(input, group))
        return input

    def is_of_other_group(self, source: int, group: str) -> bool:
        """Return whether a root has the id of an input in topics.yaml, and another group emitted it."""
        input_of_id = self._inputs.get(input_id_of(source))
        return input_of_id is not None and input_of_id.group != group

    def record_and_leave_out_foreign(self, entries: Sequence[Due]) -> list[Due]:
        """Return due roots without the foreign ones; record why these wait.

        So they hold up none of the input's own.
        """
        own_entries: list[Due] = []
        for entry in entries:
            if not self.is_of_other_group(entry.source, entry.group):
                own_entries.append(entry)
                continue
            input_id = input_id_of(entry.source)
            why = _other_group_text(self._inputs[input_id], entry.group)
            self.why_foreign_wait_by_input[input_id] = why
        return own_entries

    def _unknown_input_text(self, input_id: int) -> str:
        """Return what to do about roots of an input that topics.yaml does not have."""
        group = self._group_by_unknown_input.get(input_id)
        of_group = f", of group {group}" if group else ""
        return (
            f"topics.yaml has no input with id {input_id}{of_group}; give the"
            " replay workers a topics.yaml with all inputs of the installation, then send them SIGHUP or"
            f" start them again; where no input ever had it, `windhover replay drop --id {input_id}` shows"
            " the roots, and drops them"
        )

    def name_of(self, input_id: int) -> str:
        """Return an input's name, or a text like ``id 7`` if topics.yaml does not have the input."""
        input = self._inputs.get(input_id)
        return f"id {input_id}" if input is None else input.name

    def ready_ms(self, input_id: int) -> int | None:
        """Return from when on an input may be tried, wall time in ms; 0: now.

        None: topics.yaml does not have it.
        """
        if input_id not in self._inputs:
            return None
        trouble = self._trouble_by_input.get(input_id)
        return 0 if trouble is None else trouble.until_ms

    def is_ready(self, input_id: int, now_ms: int) -> bool:
        """Return whether topics.yaml has an input, and it is not left alone after a trouble."""
        if input_id not in self._inputs:
            return False
        trouble = self._trouble_by_input.get(input_id)
        if trouble is None:
            return True
        # more than `wait_ms` can only be left if the clock was set back: then
        # it is tried now
        is_left_alone = 0 < trouble.until_ms - now_ms <= trouble.wait_ms
        return not is_left_alone

    def record_trouble(
        self, input_id: int, error: WindhoverError, now_ms: int, *, only_copies_refused: bool = False
    ) -> None:
        """Record an error that concerns one input: it is left alone, twice as long as the last time.

        `only_copies_refused`: its topic takes no copy; see `Trouble`.

        Raises `Unreachable` if the broker does not answer at all: then the
        error concerns all inputs.
        """
        if isinstance(error, Unreachable):
            self._require_broker_answers()
        former_trouble = self._trouble_by_input.get(input_id)
        former_wait_ms = None if former_trouble is None else former_trouble.wait_ms
        wait_ms = next_wait_ms(former_wait_ms, self.limits.input_retry_ms)
        until_ms = now_ms + wait_ms
        trouble = Trouble(str(error), until_ms, wait_ms, only_copies_refused)
        self._trouble_by_input[input_id] = trouble

    def _require_broker_answers(self) -> None:
        """Raise `Unreachable` if the broker does not answer a question about a topic of ours either."""
        self.log.stable_ends([TopicPartition(self.ack_topics.due, 0)])

    def record_success(
        self,
        input_ids: Iterable[int],
        input_ids_with_copies: Collection[int],
    ) -> None:
        """Record that a transaction was committed; report the inputs whose trouble that ends.

        `input_ids_with_copies` are those of which it had a copy.
        """
        for input_id in input_ids:
            self.input_ids_to_try_alone.discard(input_id)
            trouble = self._trouble_by_input.get(input_id)
            if trouble is None:
                continue
            if trouble.only_copies_refused and input_id not in input_ids_with_copies:
                continue  # dead letters alone do not show that the topic takes copies again
            del self._trouble_by_input[input_id]
            self._aside_reported_at_ms_by_input.pop(input_id, None)
            self.report("goes_on", input=self.name_of(input_id))

    def report_aside(self, aside_by_input: Mapping[int, AsideCount], now_ms: int) -> None:
        """Report inputs with roots that are put aside: at once, and then every `input_retry_ms`.

        `aside_by_input` has all of them, by their ids.
        """
        for input_id, aside in aside_by_input.items():
            reported_at_ms = self._aside_reported_at_ms_by_input.get(input_id)
            # abs: a clock that was set back must not keep a report back for long
            if reported_at_ms is None or abs(now_ms - reported_at_ms) >= self.limits.input_retry_ms:
                self._aside_reported_at_ms_by_input[input_id] = now_ms
                name = self.name_of(input_id)
                why = aside.why or self._why_input_aside(input_id)
                self.report("put_aside", input=name, roots=aside.root_count, why=why)
        for input_id in self._aside_reported_at_ms_by_input.keys() - aside_by_input.keys():
            del self._aside_reported_at_ms_by_input[input_id]

    def _why_input_aside(self, input_id: int) -> str:
        """Return why roots of an input are put aside: its last error, foreign roots, or topics.yaml."""
        trouble = self._trouble_by_input.get(input_id)
        if trouble is not None and trouble.why:
            return trouble.why
        return self.why_foreign_wait_by_input.get(input_id) or self._unknown_input_text(input_id)

    def act_together_or_input_by_input(
        self,
        items: Sequence[T],
        input_id_of_item: Callable[[T], int],
        act: Callable[[Sequence[T]], R],
        now_ms: int,
    ) -> list[R]:
        """Call `act` with all items; if it fails, call it for each input with its items.

        It is called again only after an error that may be one input's. An input
        that fails alone is left alone for a while (`record_trouble`), so its
        items have no result.

        Args:
            input_id_of_item: returns the id of an item's input.
            act: asks the broker something about the items.

        Return the results: one if the first call did not fail; otherwise one for
        each input whose call did not fail, which may be none. Raises
        `Unreachable`: the broker does not answer at all.
        """
        # 1. all at once
        items_by_input: dict[int, list[T]] = {}  # filled if the call with all items fails
        try:
            return [act(items)]
        except ERRORS_OF_ONE_INPUT as error:
            for item in items:
                items_by_input.setdefault(input_id_of_item(item), []).append(item)
            if len(items_by_input) <= 1:  # to act on the one input again would fail again
                for input_id in items_by_input:
                    self.record_trouble(input_id, error, now_ms)
                return []
        # 2. input by input
        results: list[R] = []
        for input_id, items_of_input in items_by_input.items():
            self.note_operation(f"asking for {self.name_of(input_id)} alone")
            try:
                results.append(act(items_of_input))
            except ERRORS_OF_ONE_INPUT as error:
                self.record_trouble(input_id, error, now_ms)
        return results

    def tracked_input(self, source: int) -> Input | None:
        """Return the tracked input of a source; None if topics.yaml does not have it."""
        input = self._inputs.get(input_id_of(source))
        return input if input is not None and input.tracked else None

    def report(self, name: str, **fields: str | int) -> None:
        """Report an event that an operator should see; `ReplayEvent` lists the names."""
        self._report(ReplayEvent(name, fields))

    def fetch_readable(self, places: Collection[RecordPlace], now_ms: int) -> Answers:
        """Fetch records as `Fetcher.fetch` does, but not from runs that are put off.

        Their records count as absent until the run is tried again
        (`DamagedBatches`). Put off the runs that this fetch meets as damaged.
        """
        answers: dict[RecordPlace, Record | Absence] = {}
        for place in places:
            put_off_run = self.damaged_batches.put_off_run_at(*place, now_ms)
            if put_off_run is not None:
                answers[place] = absence_by_damage(put_off_run.damaged_run)
        to_fetch = [place for place in places if place not in answers]
        if to_fetch:
            fetched = self.fetcher.fetch_past_damage(to_fetch)
            answers.update(fetched.answers)
            self.damaged_batches.put_off(fetched.damaged_runs, now_ms)
        return answers

    def report_undecodable(self, topic: str, partition: int, offset: int, error: str) -> None:
        """Count a record that cannot be decoded, and report the first of each topic and error."""
        self.counters.undecodable += 1
        if self._undecodable_reported.add_if_new(topic, error):
            self.report("undecodable", topic=topic, partition=partition, offset=offset, error=error)

    def fetch_unchanged(self, topics: Iterable[TopicVersion]) -> set[TopicVersion]:
        """Ask the broker which topics are still there under their ids; return those."""
        versions = set(topics)
        if not versions:
            return set()
        info_by_topic = self.log.topics({topic for topic, _ in versions})
        return unchanged_topics(versions, info_by_topic)

    def fetch_topics(
        self, inputs: Iterable[Input], other_topics: Iterable[str], *, settings: bool
    ) -> dict[str, TopicInfo]:
        """Fetch what the broker says about the replay and dead-letter topics of some inputs, and others.

        Other topics may be missing. Raises `TopicError`: a topic of an input
        is missing.

        Args:
            settings: fetch the settings of the topics, too.
        """
        required: set[str] = set()
        for input in inputs:
            required |= {input.replay_topic, input.dead_letter.topic}
        info_by_topic = dict(self.log.topics(required | set(other_topics), settings=settings))
        missing = sorted(required - set(info_by_topic))
        if missing:
            raise TopicError(f"topics {', '.join(missing)} are missing; run `windhover topics create`")
        return info_by_topic

    def letter_time_ms(self, topic: str, now_ms: int) -> int:
        """Return the time of a dead letter: now, by a clock that the topic takes.

        A topic that takes no time of the future refuses each letter of a
        machine whose clock is ahead: it gets the broker's time, if that is
        known.
        """
        if topic not in self.letter_topics_on_broker_time:
            return now_ms
        broker_ms = self.clock_watch.broker_ms(now_ms)
        return now_ms if broker_ms is None else broker_ms

    def is_too_old(self, copy: Outgoing, now_ms: int) -> bool:
        """Return whether a copy is older than its topic takes; no replay topic should have such a limit."""
        info = self.log.topics([copy.topic], settings=True).get(copy.topic)
        if info is None or not copy.timestamp_ms:  # 0 and None are the present time
            return False
        age_ms = now_ms - copy.timestamp_ms
        for name in AGE_LIMITS:
            age_ms_max = info.settings.get(name, NO_LIMIT)
            if age_ms_max != NO_LIMIT and age_ms > int(age_ms_max):
                return True
        return False

    def check_topics(self, now_ms: int) -> PartitionCounts:
        """Compare the topics with topics.yaml.

        Report each input with a missing or too small topic, and leave it alone
        for a while.

        Return the counts of the ack topics' partitions; the caller checks them
        again from time to time. Raises `Disagreement` or `TopicError`: the ack
        topics do not have `acker.partitions` partitions.
        """
        counts = PartitionCounts(
            self.log, (self.ack_topics.verdict, self.ack_topics.due), self.partition_count
        )
        tracked = [input for input in self._inputs.values() if input.tracked]
        self.act_together_or_input_by_input(
            tracked, lambda input: input.id, self._require_enough_partitions, now_ms
        )
        # troubles of this check alone: it runs before any other operation of a
        # worker. roots=0: how many wait is not read yet
        for input_id, trouble in self._trouble_by_input.items():
            self._aside_reported_at_ms_by_input[input_id] = now_ms
            self.report("put_aside", input=self.name_of(input_id), roots=0, why=trouble.why)
        return counts

    def _require_enough_partitions(self, inputs: Sequence[Input]) -> None:
        """Raise `TopicError` if a replay or dead-letter topic is missing.

        So does a replay topic with fewer partitions than the input's topic.
        """
        info_by_topic = self.fetch_topics(inputs, (input.topic for input in inputs), settings=False)
        for input in inputs:
            # the input's topic may be missing: that concerns its query, and
            # copies can be written without it
            input_topic_info = info_by_topic.get(input.topic)
            replay_topic_info = info_by_topic[input.replay_topic]
            if input_topic_info is None:
                continue
            if replay_topic_info.partitions < input_topic_info.partitions:
                raise TopicError(
                    f"topic {input.replay_topic} has {replay_topic_info.partitions} partitions, its"
                    f" source {input.topic} {input_topic_info.partitions}; give it as many"
                )


def require_newer_passed_over(log: Log, record: Record, error: UnknownVersion) -> str:
    """Raise the error for a record of an unknown version, unless an operator lets it be passed over.

    Then return the error's text. A mark behind the record in the same topic
    lets it pass (`acker.service.passed_over`).
    """
    cure = "a newer Windhover wrote it, run a replay worker of that version"
    return require_passed_over(log, record, error, cure)


def bytes_max(info: TopicInfo) -> int:
    """Return the size of the largest record that a topic takes, in bytes."""
    text = info.settings.get("max.message.bytes", "")
    return int(text) if text.isdecimal() else MESSAGE_BYTES


def keeps_times(info: TopicInfo) -> bool:
    """Return whether the records of a topic have the times that their writers give them."""
    return info.settings.get("message.timestamp.type") != "LogAppendTime"


def unchanged_topics(
    topics: Iterable[TopicVersion], info_by_topic: Mapping[str, TopicInfo]
) -> set[TopicVersion]:
    """Return the topics that are still there under their ids: not deleted, nor created again."""
    unchanged: set[TopicVersion] = set()
    for topic, topic_id in topics:
        info = info_by_topic.get(topic)
        if info is not None and info.id == topic_id:
            unchanged.add((topic, topic_id))
    return unchanged


def _other_group_text(input: Input, group: str) -> str:
    """Return what is wrong with lost roots that a group emitted under the id of another group's input."""
    return (
        f"roots of input id {input.id} were emitted by group {UntrustedName(group)}, and topics.yaml has it"
        f" as {input.name} of group {input.group}; they wait until it has group {UntrustedName(group)} again;"
        " what another group reads needs an input with its own id. `windhover replay drop` shows them, and"
        " drops them where nobody needs them"
    )


def policy_of(input: Input) -> Policy:
    """Return the policy by which lost roots of an input are replayed or given up."""
    retry = input.retry
    return Policy(
        attempts=retry.attempts,
        max_abandoned=retry.max_abandoned,
        backoff=_backoff(retry.schedule),
        time_limit_ms=retry.time_limit_ms,
        count_timed_out=retry.count_timed_out,
        count_abandoned=retry.count_abandoned,
        rules=tuple(_rule(retry, rule) for rule in retry.causes),
        hold_ms=input.hold_ms,
    )


def _rule(retry: Retry, rule: CauseRule) -> Rule:
    """Return a rule of topics.yaml with its own back-off, or that of `retry`."""
    schedule = retry.schedule_of(rule)
    return Rule(rule.error, rule.operator, Action(rule.then), schedule.attempts, _backoff(schedule))


def _backoff(schedule: RetrySchedule) -> Backoff:
    """Return the back-off of a schedule of topics.yaml."""
    return Backoff(
        schedule.initial_ms, schedule.multiplier, schedule.max_ms, schedule.jitter, schedule.delays
    )
