"""From `_ack_due` to the replay topic or the dead-letter topic: builds what is written for each due root."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from acker.config.topics import Input
from acker.errors import TopicError
from acker.identity import Root, input_id_of
from acker.kafka.port import Outgoing, Record, TopicInfo, record_bytes
from replay.policy.disposition import DeadReason
from replay.records.copies import build_copy
from replay.records.dead_letter import Death, LetterTopic, build_dead_letter
from replay.records.due import HISTORY_BYTES_MAX, HISTORY_MAX, Due, RefusedRoot, was_a_record
from replay.records.headers import RecordPlace
from replay.worker.fetch import (
    Absence,
    cannot_be_read,
    find_cut_off,
    is_of_later_leader,
)
from replay.worker.worker import TopicVersion, Worker, bytes_max, keeps_times, unchanged_topics

OUR_HEADERS_BYTES_MAX: Final = 6 * HISTORY_BYTES_MAX + 200 * HISTORY_MAX + 10_000
"""A copy is at most so many bytes larger than its record; a character takes up to 6 bytes in JSON.

To compute the exact size would cost more than to build the copy.
"""


class RootOutcome(NamedTuple):
    """What is written for one root that is due.

    Attributes:
        entry: the root's entry in `_ack_due`.
        input: that of the root.
        record_to_write: the copy or the dead letter; None if there probably never was
            a record. Then only the tombstone of the root is written.
        dead_reason: why the root dies; None for a copy.
        has_payload: whether a dead letter has the record's key and value.
        is_committed: whether `record_to_write` is in the log already, from a
            transaction that was cut. Then only the tombstone is written, too.
        why_copy_refused: the broker's words on the copy, if the root dies since
            it was refused.
    """

    entry: Due
    input: Input
    record_to_write: Outgoing | None
    dead_reason: DeadReason | None
    has_payload: bool = True
    is_committed: bool = False
    why_copy_refused: str = ""

    @property
    def root(self) -> Root:
        """The root that this is the outcome of."""
        return self.entry.root

    @property
    def is_copy(self) -> bool:
        """Whether `record_to_write` is a copy; else it is a dead letter, or there is none."""
        return self.dead_reason is None and self.record_to_write is not None

    @property
    def is_sent(self) -> bool:
        """Whether the transaction that ends its wait has to write a copy or a dead letter."""
        return self.record_to_write is not None and not self.is_committed

    @property
    def counts_for_breaker(self) -> bool:
        """Whether it is a death that the breaker counts; it does not count what a rule drops."""
        return self.dead_reason not in (None, DeadReason.DROPPED)


def outcomes_of(
    worker: Worker, entries: Sequence[Due], why_refused_by_root: Mapping[Root, str], now_ms: int
) -> list[RootOutcome]:
    """Read the records of due roots and build what to write, for each input in the order of the origins.

    Left out are roots whose payload did not fit into one fetch, whose input
    cannot go on or is another group's now, or whose record lies in a damaged
    batch, unless the input's `on_data_loss` is skip: they go on waiting.

    `why_refused_by_root` has the broker's words on the copies of those roots
    that die for it.
    """
    # in the order of the source records, as a bolt would have got them
    entries = sorted(worker.record_and_leave_out_foreign(entries), key=_order_of_origin)
    if not entries:
        return []
    # all at once; if that fails, input by input
    outcomes_by_call = worker.act_together_or_input_by_input(
        entries,
        lambda entry: input_id_of(entry.source),
        lambda of_call: _build_outcomes(worker, of_call, why_refused_by_root, now_ms),
        now_ms,
    )
    return list(chain.from_iterable(outcomes_by_call))


def _order_of_origin(entry: Due) -> tuple[int, str, int, int]:
    """Return what due roots are sorted by: input id, then topic, partition and offset of the origin.

    That of ``sentences/3@1042`` and input 7 is ``(7, "sentences", 3, 1042)``.
    """
    input_id = input_id_of(entry.source)
    topic, _, partition_and_offset = entry.origin.rpartition("/")
    partition, _, offset = partition_and_offset.partition("@")
    try:
        return input_id, topic, int(partition), int(offset)
    except ValueError:  # its origin is unknown
        return input_id, "", 0, 0


def _build_outcomes(
    worker: Worker, entries: Sequence[Due], why_refused_by_root: Mapping[Root, str], now_ms: int
) -> list[RootOutcome]:
    """Build the outcomes of due roots, in their order.

    A root is left out if its payload did not fit into one fetch, or if its
    record lies in a damaged batch and the input's `on_data_loss` is not skip.

    Raises `Disagreement`: topics.yaml does not have an input, or has it with
    another group; `TopicError`: a topic is missing, or has too few partitions.
    """
    # by (source, group) of a due root: its input
    input_by_source_and_group: dict[tuple[int, str], Input] = {}
    for entry in entries:
        source_and_group = (entry.source, entry.group)
        if source_and_group not in input_by_source_and_group:
            input_by_source_and_group[source_and_group] = worker.input_of(entry.source, entry.group)
    input_by_id = {input.id: input for input in input_by_source_and_group.values()}
    # topics of lost emissions: their ids show whether they were created again
    topic_versions = {(entry.topic, entry.topic_id) for entry in entries}
    topic_names = {name for name, _ in topic_versions}
    info_by_topic = worker.fetch_topics(input_by_id.values(), topic_names, settings=True)
    builder = _OutcomeBuilder(
        info_by_topic, why_refused_by_root, lambda topic: worker.letter_time_ms(topic, now_ms)
    )
    unchanged = unchanged_topics(topic_versions, info_by_topic)
    fetched_roots = _fetch_records(worker, entries, unchanged, now_ms)
    outcomes: list[RootOutcome] = []
    for entry, answer, reason_if_missing in fetched_roots:
        input = input_by_source_and_group[entry.source, entry.group]
        if cannot_be_read(answer) and input.fails_on_loss():
            continue  # on_data_loss is fail: the root waits until the batch can be read
        outcomes.append(builder.build(entry, input, answer, reason_if_missing))
    return outcomes


class _FetchedRoot(NamedTuple):
    """A due root, and its record or why there is none.

    `reason_if_missing` is why the root dies for want of its record; None: it does
    not, since the record is there, or there never was one.
    """

    entry: Due
    answer: Record | Absence
    reason_if_missing: DeadReason | None


def _fetch_records(
    worker: Worker, entries: Sequence[Due], unchanged: set[TopicVersion], now_ms: int
) -> list[_FetchedRoot]:
    """Fetch the records of due roots, in their order; those that did not fit are left out.

    `unchanged` are the topics that are there still under their ids.

    1. Fetch the records of those topics.
    2. Ask the broker for the topics again: in one that was created again
       meanwhile an offset is another record.
    3. Where there is no record, the log may have been cut: then there was one.
    """
    places = [entry.place for entry in entries]
    # 1. records
    to_read: list[RecordPlace] = []
    for entry, place in zip(entries, places, strict=True):
        if (entry.topic, entry.topic_id) in unchanged:
            to_read.append(place)
    answers = worker.fetch_readable(to_read, now_ms)
    # 2. topics that were created again
    unchanged = worker.fetch_unchanged(unchanged)
    # 3. logs that were cut
    epoch_without_record: dict[RecordPlace, int] = {}
    for entry, place in zip(entries, places, strict=True):
        if answers.get(place) is Absence.NEVER:
            epoch_without_record[place] = entry.leader_epoch
    cut_off = find_cut_off(worker.log, epoch_without_record)

    fetched_roots: list[_FetchedRoot] = []
    for entry, place in zip(entries, places, strict=True):
        if entry.dead == DeadReason.UNREADABLE:
            fetched_roots.append(_FetchedRoot(entry, Absence.GONE, DeadReason.UNREADABLE))
        elif (entry.topic, entry.topic_id) not in unchanged or place in cut_off:
            fetched_roots.append(_FetchedRoot(entry, Absence.GONE, DeadReason.RECREATED))
        elif place in answers:  # else it did not fit into the fetch
            fetched_roots.append(_fetched_root(entry, answers[place]))
    return fetched_roots


def _fetched_root(entry: Due, answer: Record | Absence) -> _FetchedRoot:
    """Return a due root with what was fetched for it, and what that means for the root.

    A record that a later leader wrote in its place is another record. A place
    that never had one, by the log, had one if the root's history proves it.
    """
    if isinstance(answer, Record):
        if is_of_later_leader(answer, entry.leader_epoch):
            return _FetchedRoot(entry, Absence.GONE, DeadReason.RECREATED)
        return _FetchedRoot(entry, answer, reason_if_missing=None)
    if answer is Absence.NEVER and was_a_record(entry):
        answer = Absence.GONE
    return _FetchedRoot(entry, answer, answer.dead_reason)


class _OutcomeBuilder:
    """Builds copies and dead letters."""

    def __init__(
        self,
        info_by_topic: Mapping[str, TopicInfo],
        why_refused_by_root: Mapping[Root, str],
        letter_time_of_topic: Callable[[str], int],
    ) -> None:
        """Prepare for some topics.

        Args:
            info_by_topic: what the broker says of each topic, settings
                included, by the topic's name.
            why_refused_by_root: of each root that dies since the broker refused
                its copy, the broker's words.
            letter_time_of_topic: called with the name of a dead-letter topic;
                returns the time (ms) that a letter gets there.
        """
        self._info_by_topic = info_by_topic
        self._why_refused_by_root = why_refused_by_root
        self._letter_time_of_topic = letter_time_of_topic
        # of each topic, by its name
        self._bytes_max_by_topic = {name: bytes_max(info) for name, info in info_by_topic.items()}
        # whether the topic keeps the times that we write
        self._keeps_times_by_topic: dict[str, bool] = {}
        self._compacted_topics: set[str] = set()
        for name, info in info_by_topic.items():
            self._keeps_times_by_topic[name] = keeps_times(info)
            if "compact" in info.settings.get("cleanup.policy", ""):
                self._compacted_topics.add(name)

    def build(
        self,
        entry: Due,
        input: Input,
        answer: Record | Absence,
        reason_if_missing: DeadReason | None,
    ) -> RootOutcome:
        """Return what is written for a root: nothing, a copy, or a dead letter.

        `answer` is its record, or why there is none. `reason_if_missing` is why
        the root dies if its record is missing; None: it is there, or there
        never was one.

        Raises `TopicError`: the replay topic cannot take the copy.
        """
        # 1. nothing: there never was a record, so only the root's wait ends
        if answer is Absence.NEVER:
            return RootOutcome(
                entry,
                input,
                record_to_write=None,
                dead_reason=None,
                has_payload=False,
            )
        # 2. a copy, if the root may live, and its copy fits
        record = None if isinstance(answer, Absence) else answer
        death = self._death(entry, record, reason_if_missing)
        if death is None and record is not None:
            copy = self._copy(entry, input, record)
            if self._fits(record, copy):
                return RootOutcome(entry, input, copy, dead_reason=None)
            death = Death(DeadReason.TOO_LARGE)
        # so `record` is None; for an `Absence` that is not NEVER
        # `reason_if_missing` is set, so this does not happen in fact
        if death is None:
            death = Death(DeadReason.GONE)
        # 3. else a dead letter
        info = self._info_by_topic[input.dead_letter.topic]
        topic = LetterTopic(info.name, info.partitions, self._bytes_max_by_topic[info.name])
        letter_time_ms = self._letter_time_of_topic(topic.name)
        letter = build_dead_letter(entry, death, record, topic, letter_time_ms)
        # `build_dead_letter` leaves the payload out of a letter that is too large
        has_payload = record is not None and (letter.key, letter.value) == (record.key, record.value)
        return RootOutcome(
            entry,
            input,
            letter,
            death.reason,
            has_payload,
            why_copy_refused=death.why,
        )

    def _fits(self, record: Record, copy: Outgoing) -> bool:
        """Return whether the copy of a record is not too large for its topic."""
        copy_bytes_max = self._bytes_max_by_topic[copy.topic]
        # this costs less than to measure the copy, and is enough for nearly all
        is_small = record_bytes(record) <= copy_bytes_max - OUR_HEADERS_BYTES_MAX
        return is_small or record_bytes(copy) <= copy_bytes_max

    def _copy(self, entry: Due, input: Input, record: Record) -> Outgoing:
        """Return the copy of a record for the input's replay topic.

        Raises `TopicError`: the topic cannot take it, however large it is.
        """
        topic = self._info_by_topic[input.replay_topic]
        topic_keeps_times = self._keeps_times_by_topic[topic.name]
        copy = build_copy(entry, record, topic.name, keeps_times=topic_keeps_times)
        if copy.partition >= topic.partitions:
            raise TopicError(
                f"topic {input.replay_topic} has no partition {copy.partition}, as its source"
                f" {input.topic} has; run `windhover topics create`"
            )
        if copy.key is None and topic.name in self._compacted_topics:
            raise TopicError(
                f"topic {input.replay_topic} is compacted, so it takes no record without a key, and would"
                " replace copies of one key by the last one; set cleanup.policy=delete"
            )
        return copy

    def _death(
        self,
        entry: Due,
        record: Record | None,
        reason_if_missing: DeadReason | None,
    ) -> Death | None:
        """Return why a root dies, whatever its copy is like; the first reason counts. None: it may live.

        1. `reason_if_missing`: its record is missing.
        2. Its entry says so: its policy gave it up, or the worker before put
           its dead letter aside.
        3. The broker refused its copy.
        4. No client can write the names of its headers.
        """
        why = entry.copy_why if isinstance(entry, RefusedRoot) else ""
        if reason_if_missing is not None:
            return Death(reason_if_missing, why)
        if entry.dead:
            return Death(DeadReason(entry.dead), why)
        if self._why_refused_by_root:  # nearly always nothing was refused
            why = self._why_refused_by_root.get(entry.root, "")
            if why:
                return Death(DeadReason.REFUSED, why)
        if record is not None and record.unreadable_names:
            return Death(DeadReason.UNWRITABLE, why)
        return None


def leave_out_by_breaker(
    worker: Worker, outcomes: Sequence[RootOutcome], now_ms: int
) -> tuple[list[RootOutcome], list[Input]]:
    """Leave out dead letters that the breakers do not allow now; return also the inputs to pause.

    To be paused are inputs with dead letters of which not even one is allowed.
    Of the others the first ones are allowed, and the rest goes on waiting.
    """
    dying = [outcome for outcome in outcomes if outcome.counts_for_breaker]
    input_by_id = {outcome.input.id: outcome.input for outcome in dying}
    if not input_by_id:  # nothing dies
        return list(outcomes), []
    # by an input's id: how many more dead letters its breaker allows
    allowed_letters_by_input: dict[int, int] = {}
    inputs_to_pause: list[Input] = []
    for input_id, input in input_by_id.items():
        allowed_letters = worker.breakers[input_id].allow_letters_or_open(now_ms)
        allowed_letters_by_input[input_id] = allowed_letters
        if not allowed_letters:
            inputs_to_pause.append(input)
    allowed: list[RootOutcome] = []
    for outcome in outcomes:
        if outcome.counts_for_breaker:  # copies, and what a rule drops, are always allowed
            if not allowed_letters_by_input[outcome.input.id]:
                continue
            allowed_letters_by_input[outcome.input.id] -= 1
        allowed.append(outcome)
    return allowed, inputs_to_pause
