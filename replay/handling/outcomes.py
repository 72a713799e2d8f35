"""Follows what became of the letters that redrives of one input wrote to its replay topic.

A redrive's copy is a new root. Its verdict, the copies that a replay worker makes of it, and the dead letter
that it becomes name it, so the log shows the outcome of each letter at any time, to any process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple, assert_never

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.errors import TopicError
from acker.identity import input_id_of, is_replay, offset_of, partition_of
from acker.kafka.port import Log, Record, TopicPartition
from acker.kafka.read_to_end import Follower, pass_damage, read_piece
from acker.wire.checks import read_verdicts
from acker.wire.verdict import DoneVerdict, Verdict
from replay.records.due import parse_history
from replay.records.headers import HISTORY, header_text, our_values, parse_location
from replay.records.letters import LETTER, Letter, LetterAction, Mark, parse_letter
from replay.records.redrives import AUDIT_PARTITION, RedriveBegun, RedriveEnded, parse_audit, redrive_of


class LetterOutcome(StrEnum):
    """What became of a letter that is replayed."""

    OPEN = "OPEN"
    """It is not settled."""
    ACKED = "ACKED"
    DIED = "DIED"
    """It is a dead letter again."""
    GONE = "GONE"
    """Its copy had left the replay topic before a query read it."""
    UNKNOWN = "UNKNOWN"
    """Its copy or its verdict is no longer in the log."""


class RedriveRecord(NamedTuple):
    """A redrive by its audit records; `is_over`: a later one of the same input began, and so ended it."""

    begun: RedriveBegun
    ended: RedriveEnded | None
    is_over: bool

    @property
    def state(self) -> str:
        """Return a `RedriveEnd`, ``INTERRUPTED``, or ``NOT ENDED``: it runs, or was killed."""
        if self.ended is not None:
            return self.ended.end
        return "INTERRUPTED" if self.is_over else "NOT ENDED"


def find_redrives(log: Log, input: Input, *, wait_ms: int, since_ms: int = 0) -> list[RedriveRecord]:
    """Read the redrives of an input that began at `since_ms` or later, the oldest first.

    Raises `TopicError`: its dead-letter topic does not exist.
    """
    place = existing_places(log, input.dead_letter.topic)[AUDIT_PARTITION]
    first_offset = max(log.starts([place])[place], log.offsets_at([place], since_ms)[place])
    end = log.stable_ends([place])[place]
    begun: dict[str, RedriveBegun] = {}
    ended: dict[str, RedriveEnded] = {}
    piece = read_piece(log, place, first_offset, end, committed=True, wait_ms=wait_ms, on_damage=pass_damage)
    for record in piece:
        event = parse_audit(record)
        if isinstance(event, RedriveBegun):
            begun[event.redrive] = event
        elif event is not None:
            ended.setdefault(event.redrive, event)
    # redrives of an input follow each other: a later one shows that those before it are over
    newest = next(reversed(begun), "")
    return [RedriveRecord(event, ended.get(redrive), redrive != newest) for redrive, event in begun.items()]


class RedriveOutcomes:
    """The outcomes of an input's redrives; each call of `read` adds what is new in the log."""

    def __init__(self, log: Log, topics: Topics, input: Input, redrives: Iterable[RedriveBegun]) -> None:
        """Begin where the first of some redrives began; errors as for `existing_places`."""
        # by redrive, for each followed topic, the end of each partition when the redrive began
        ends = {
            begun.redrive: (begun.verdicts_from, begun.letters_from, begun.copies_from) for begun in redrives
        }
        first_offsets: list[dict[TopicPartition, int]] = []
        self._cut = set[str]()
        """The redrives of which a part is no longer in the log."""
        for topic_number, topic in enumerate(followed_topics(topics, input)):
            places = existing_places(log, topic)
            log_starts, log_ends = log.starts(places), log.ends(places)
            topic_offsets: dict[TopicPartition, int] = {}
            for place in places:
                needed: dict[str, int] = {}
                for redrive, ends_by_topic in ends.items():
                    topic_ends = ends_by_topic[topic_number]
                    # a partition that the topic got later was empty when the redrive began
                    is_there = place.partition < len(topic_ends)
                    needed[redrive] = topic_ends[place.partition] if is_there else 0
                    # behind the end of a topic that was created again, what was there is gone
                    if not log_starts[place] <= needed[redrive] <= log_ends[place]:
                        self._cut.add(redrive)
                earliest = min(needed.values(), default=0)
                topic_offsets[place] = min(max(log_starts[place], earliest), log_ends[place])
            first_offsets.append(topic_offsets)
        self._input = input
        # when all is asked: nobody closes them if a question fails
        self._verdicts, self._letters, self._copies = (
            Follower(log, list(offsets), first=offsets, on_damage=pass_damage) for offsets in first_offsets
        )
        self._settled: list[tuple[int, int, int, LetterOutcome]] = []
        self._dead: list[tuple[int, int]] = []
        self._roots: dict[int, dict[int, tuple[str, str]]] = {}
        self._outcomes: dict[tuple[str, str], LetterOutcome] = {}
        self._handled: dict[tuple[str, str], LetterAction] = {}

    @property
    def is_whole(self) -> bool:
        """Whether the last `read` took in all that there was."""
        return self._verdicts.is_whole and self._letters.is_whole and self._copies.is_whole

    @property
    def share_read(self) -> float:
        """How much the last `read` took in, at most 1 for each of three topics."""
        return self._verdicts.share_read + self._letters.share_read + self._copies.share_read

    def read(self) -> None:
        """Read what is new: copies last, so that they include those of all verdicts and letters."""
        for record in self._verdicts.read():
            self._settled.extend(self._verdicts_on_copies(record))
        for record in self._letters.read():
            self._put_letter(record)
        for record in self._copies.read():
            self._put_copy(record)
        if not self._copies.is_whole:
            return
        for partition, start, end, outcome in self._settled:
            roots = self._roots.get(partition, {})
            # whichever is shorter: the run of the verdict, or the redrive's copies in the partition
            offsets = range(start, end) if end - start < len(roots) else list(roots)
            for offset in offsets:
                if start <= offset < end and offset in roots:
                    self._outcomes[roots[offset]] = outcome
        for partition, offset in self._dead:
            if (letter := self._roots.get(partition, {}).get(offset)) is not None:
                self._outcomes[letter] = LetterOutcome.DIED
        self._settled, self._dead = [], []

    def letters(self, redrive: str) -> Mapping[str, LetterOutcome]:
        """Return the outcome of each letter that a redrive replays, by the letter's place."""
        without_copy = LetterOutcome.UNKNOWN if self.is_whole else LetterOutcome.OPEN
        outcomes = {
            letter: self._outcomes.get((name, letter), without_copy)
            for (name, letter), action in self._handled.items()
            if name == redrive and action is LetterAction.REPLAYED
        }
        if redrive in self._cut:  # the verdict of an open one may be in what is no longer there
            for letter, outcome in outcomes.items():
                if outcome is LetterOutcome.OPEN:
                    outcomes[letter] = LetterOutcome.UNKNOWN
        return outcomes

    def count(self, redrive: str) -> Counter[LetterOutcome]:
        return Counter(self.letters(redrive).values())

    def handled(self, redrive: str) -> int:
        return sum(name == redrive for name, _ in self._handled)

    def close(self) -> None:
        for follower in (self._verdicts, self._letters, self._copies):
            follower.close()

    def _verdicts_on_copies(self, record: Record) -> Iterator[tuple[int, int, int, LetterOutcome]]:
        event = read_verdicts(record.value)
        if event is None:
            return
        for verdict, runs in event.done():
            outcome = _outcome_of(verdict)
            for source, start, end in runs:
                if is_replay(source) and input_id_of(source) == self._input.id:
                    yield partition_of(source), int(offset_of(start)), int(offset_of(end - 1)) + 1, outcome

    def _put_letter(self, record: Record) -> None:
        entry = parse_letter(record)
        if isinstance(entry, Mark) and entry.redrive:
            self._handled[entry.redrive, entry.letter] = entry.action
        elif isinstance(entry, Letter) and entry.history:
            topic, partition, offset = parse_location(entry.history[-1].root) or ("", -1, -1)
            if topic == self._input.replay_topic:
                self._dead.append((partition, offset))

    def _put_copy(self, record: Record) -> None:
        """Note a redrive's own copy, or a replay worker's copy of it."""
        ours = our_values(record.headers)
        roots = self._roots.setdefault(record.partition, {})
        if redrive := redrive_of(record.headers):
            letter = redrive, header_text(ours.get(LETTER))
            self._outcomes.setdefault(letter, LetterOutcome.OPEN)
            roots[record.offset] = letter
        elif history := parse_history(ours.get(HISTORY)):
            topic, partition, offset = parse_location(history[-1].root) or ("", -1, -1)
            if topic != self._input.replay_topic:
                return
            letter_before = self._roots.get(partition, {}).get(offset)
            if letter_before is not None:
                roots[record.offset] = letter_before


def _outcome_of(verdict: DoneVerdict) -> LetterOutcome:
    match verdict:
        case Verdict.ACKED:
            return LetterOutcome.ACKED
        case Verdict.ABSENT:
            return LetterOutcome.GONE
        case _:
            assert_never(verdict)


def followed_topics(topics: Topics, input: Input) -> tuple[str, str, str]:
    """Return the topics that outcomes are read from: of verdicts, of letters, of copies."""
    return topics.ack_topics.verdict, input.dead_letter.topic, input.replay_topic


def existing_places(log: Log, topic: str) -> list[TopicPartition]:
    """Return the partitions of a topic; `TopicError` if it does not exist."""
    info = log.topics([topic]).get(topic)
    if info is None:
        raise TopicError(f"topic {topic} does not exist; run `windhover topics create`")
    return [TopicPartition(topic, number) for number in range(info.partitions)]
