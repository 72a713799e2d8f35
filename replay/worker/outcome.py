"""From `_ack_due` to the replay topic or the dead-letter topic: builds what is written for each due root."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from acker.config.topics import Input
from acker.errors import TopicError, UnreadableKind
from acker.identity import Position, Root, Source, input_id_of, offset_of, partition_of
from acker.kafka.port import Outgoing, Record, TopicInfo, record_bytes
from replay.policy.disposition import DeadReason
from replay.records.copies import build_copy
from replay.records.dead_letter import Death, LetterTopic, build_dead_letter
from replay.records.due import HISTORY_BYTES_MAX, HISTORY_MAX, Due, RefusedRoot, was_a_record
from replay.worker.fetch import Absence, cannot_be_read, lost_in_a_cut, record_place, took_the_place
from replay.worker.worker import Worker, bytes_max, keeps_times, unchanged

OUR_HEADERS_BYTES_MAX: Final = 6 * HISTORY_BYTES_MAX + 200 * HISTORY_MAX + 10_000
"""A copy is at most so many bytes larger than its record; a character takes up to 6 bytes in JSON. To compute
the exact size would cost more than to build the copy."""


class RootOutcome(NamedTuple):
    """What is written for one root of an input; `dead` is None for a copy.

    `written` is None if there probably never was a record. Then only the tombstone is written; so it is if
    `is_there`: it was committed with a transaction that was cut. `why` has the broker's words on the copy of
    a record that dies because it was refused.
    """

    due: Due
    input: Input
    written: Outgoing | None
    dead: DeadReason | None
    has_payload: bool = True
    is_there: bool = False
    why: str = ""

    @property
    def root(self) -> Root:
        return Root(Source(self.due.source), Position(self.due.position))

    @property
    def is_copy(self) -> bool:
        return self.dead is None and self.written is not None

    @property
    def is_sent(self) -> bool:
        """Whether its transaction has a copy or a dead letter of it."""
        return self.written is not None and not self.is_there

    @property
    def dies(self) -> bool:
        """Whether the breaker counts it; it does not count what a rule drops."""
        return self.dead not in (None, DeadReason.DROPPED)


def outcomes_of(
    worker: Worker, dues: Sequence[Due], refused: Mapping[Root, str], now_ms: int
) -> list[RootOutcome]:
    """Read the records of due roots and build what to write, for each input in the order of the origins.

    Left out are roots whose payload did not fit into one fetch, whose input cannot go on or is another
    group's now, or whose record lies in a damaged batch, unless the input's `on_data_loss` is skip.
    `refused` has the broker's words on the copies of those roots that die for it.
    """
    dues = sorted(worker.own_dues(dues), key=_rank)
    if not dues:
        return []
    parts = worker.apart(
        dues,
        lambda due: input_id_of(due.source),
        lambda of_inputs: _outcomes(worker, of_inputs, refused, now_ms),
        now_ms,
    )
    return [outcome for part in parts for outcome in part]


def _rank(due: Due) -> tuple[int, str, int, int]:
    topic, _, place = due.origin.rpartition("/")
    partition, _, offset = place.partition("@")
    try:
        return input_id_of(due.source), topic, int(partition), int(offset)
    except ValueError:  # its origin is unknown
        return input_id_of(due.source), "", 0, 0


def _outcomes(
    worker: Worker, dues: Sequence[Due], refused: Mapping[Root, str], now_ms: int
) -> list[RootOutcome]:
    """Return outcomes in the same order.

    Raises `Disagreement` as `Worker.input_of`; `TopicError`: a topic is missing, or has too few partitions.
    """
    owners = {key: worker.input_of(*key) for key in dict.fromkeys((due.source, due.group) for due in dues)}
    unique = {owner.id: owner for owner in owners.values()}
    topics = {(due.topic, due.topic_id) for due in dues}
    infos = worker.topics_of(unique.values(), {topic for topic, _ in topics}, settings=True)
    skipping = {key for key, owner in owners.items() if not owner.fails_on_loss()}
    fetched = _fetch_records(worker, dues, unchanged(topics, infos), now_ms)
    fetched = [root for root in fetched if root.is_readable or (root.due.source, root.due.group) in skipping]
    build = _Build(infos, refused, lambda topic: worker.letter_ms(topic, now_ms))
    return [build.outcome(due, owners[due.source, due.group], record, dead) for due, record, dead in fetched]


class _FetchedRoot(NamedTuple):
    """A due root, its record or why there is none, and why that makes it a dead letter, if it does."""

    due: Due
    record: Record | Absence
    dead: DeadReason | None

    @property
    def is_readable(self) -> bool:
        return not cannot_be_read(self.record)


_DEAD_OF: Final = {
    Absence.GONE: DeadReason.GONE,
    **{Absence[kind.name]: DeadReason[kind.name] for kind in UnreadableKind},
}


def _fetch_records(
    worker: Worker, dues: Sequence[Due], same_topics: set[tuple[str, str]], now_ms: int
) -> list[_FetchedRoot]:
    """Fetch the records of due roots, in the order of `dues`; those that did not fit are left out.

    `same_topics` are the names and ids of topics that are there still. It is asked again after the fetch,
    since in a topic that was made anew meanwhile an offset is another record.
    """
    targets = [
        (due, record_place((due.topic, partition_of(due.source), offset_of(due.position)))) for due in dues
    ]
    places = [place for due, place in targets if (due.topic, due.topic_id) in same_topics]
    answers = worker.fetch_readable(places, now_ms)
    same_topics = worker.same_topics(same_topics)
    never = {place: due.leader_epoch for due, place in targets if answers.get(place) is Absence.NEVER}
    cut_off = lost_in_a_cut(worker.log, never)
    fetched: list[_FetchedRoot] = []
    for due, place in targets:
        if due.dead == DeadReason.UNREADABLE:
            fetched.append(_FetchedRoot(due, Absence.GONE, DeadReason.UNREADABLE))
        elif (due.topic, due.topic_id) not in same_topics:
            fetched.append(_FetchedRoot(due, Absence.GONE, DeadReason.RECREATED))
        elif (record := answers.get(place)) is not None:
            if record is Absence.NEVER and was_a_record(due):
                record = Absence.GONE
            is_another = isinstance(record, Record) and took_the_place(record, due.leader_epoch)
            if is_another or place in cut_off:
                fetched.append(_FetchedRoot(due, Absence.GONE, DeadReason.RECREATED))
                continue
            dead = _DEAD_OF.get(record) if isinstance(record, Absence) else None
            fetched.append(_FetchedRoot(due, record, dead))
    return fetched


class _Build:
    """Builds copies and dead letters; `letter_ms` returns the time of a letter in a topic."""

    def __init__(
        self, infos: Mapping[str, TopicInfo], refused: Mapping[Root, str], letter_ms: Callable[[str], int]
    ) -> None:
        self._infos = infos
        self._refusal_by_root = refused
        self._rooms = {name: bytes_max(info) for name, info in infos.items()}
        self._keeps_times = {name: keeps_times(info) for name, info in infos.items()}
        policies = {name: info.settings.get("cleanup.policy", "") for name, info in infos.items()}
        self._compacted = {name for name, policy in policies.items() if "compact" in policy}
        self._letter_ms = letter_ms

    def outcome(
        self, due: Due, owner: Input, answer: Record | Absence, dead: DeadReason | None
    ) -> RootOutcome:
        """Return what is written for a root: nothing, a copy, or a dead letter.

        `answer` is its record, or why there is none.

        Raises `TopicError`: the replay topic cannot take the copy.
        """
        if answer is Absence.NEVER:
            return RootOutcome(due, owner, None, None, has_payload=False)
        record = None if isinstance(answer, Absence) else answer
        death = self._death(due, record, dead)
        if death is None and record is not None:
            copies, room = self._infos[owner.replay_topic], self._rooms[owner.replay_topic]
            copy = build_copy(due, record, copies.name, keeps_times=self._keeps_times[copies.name])
            if copy.partition >= copies.partitions:
                raise TopicError(
                    f"topic {owner.replay_topic} has no partition {copy.partition}, as its source"
                    f" {owner.topic} has; run `windhover topics create`"
                )
            if copy.key is None and copies.name in self._compacted:
                raise TopicError(
                    f"topic {owner.replay_topic} is compacted, so it takes no record without a key, and would"
                    " replace copies of one key by the last one; set cleanup.policy=delete"
                )
            if record_bytes(record) <= room - OUR_HEADERS_BYTES_MAX or record_bytes(copy) <= room:
                return RootOutcome(due, owner, copy, dead=None)
            death = Death(DeadReason.TOO_LARGE)
        info = self._infos[owner.dead_letter.topic]
        topic = LetterTopic(info.name, info.partitions, self._rooms[info.name])
        death = death or Death(DeadReason.GONE)
        letter = build_dead_letter(due, death, record, topic, self._letter_ms(topic.name))
        has_payload = record is not None and (letter.key, letter.value) == (record.key, record.value)
        return RootOutcome(due, owner, letter, death.reason, has_payload, why=death.why)

    def _death(self, due: Due, record: Record | None, dead: DeadReason | None) -> Death | None:
        """Return why a root dies, whatever its copy is like; the first reason counts. None: it may live.

        1. `dead`: what became of its record.
        2. Its entry says so: its policy gave it up, or the worker before put its dead letter aside.
        3. The broker refused its copy.
        4. No client can write the names of its headers.
        """
        why = due.copy_why if isinstance(due, RefusedRoot) else ""
        if dead is not None:
            return Death(dead, why)
        if due.dead:
            return Death(DeadReason(due.dead), why)
        if self._refusal_by_root:
            why = self._refusal_by_root.get(Root(Source(due.source), Position(due.position)), "")
            if why:
                return Death(DeadReason.REFUSED, why)
        if record is not None and record.unreadable_names:
            return Death(DeadReason.UNWRITABLE, why)
        return None


def bounded(
    worker: Worker, outcomes: Sequence[RootOutcome], now_ms: int
) -> tuple[list[RootOutcome], list[Input]]:
    """Leave out dead letters that the breakers do not allow now; return also the inputs to be paused."""
    dying = {outcome.input.id: outcome.input for outcome in outcomes if outcome.dies}
    if not dying:
        return list(outcomes), []
    room = {input_id: worker.breakers[input_id].room(now_ms) for input_id in dying}
    to_pause = [input for input_id, input in dying.items() if not room[input_id]]
    allowed: list[RootOutcome] = []
    for outcome in outcomes:
        if outcome.dies:
            if not room[outcome.input.id]:
                continue
            room[outcome.input.id] -= 1
        allowed.append(outcome)
    return allowed, to_pause
