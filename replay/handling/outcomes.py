"""Follows what became of the letters that redrives of one input wrote to its replay topic.

A redrive's copy is a new root. Its verdict, the copies that a replay worker
makes of it, and the dead letter that it becomes name it, so the log shows the
outcome of each letter at any time, to any process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    """A redrive by its audit records.

    `ended` is None if it runs, or did not write its end. `is_over`: a later
    redrive of the same input began, and so ended it.
    """

    begun: RedriveBegun
    ended: RedriveEnded | None
    is_over: bool

    @property
    def may_run(self) -> bool:
        """Whether it may run still; else it has ended, or a later one has ended it."""
        return self.ended is None and not self.is_over

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
    # redrives of an input follow each other: a later one shows that those
    # before it are over
    newest_redrive = next(reversed(begun), "")
    redrives: list[RedriveRecord] = []
    for redrive, begun_record in begun.items():
        is_over = redrive != newest_redrive
        redrives.append(RedriveRecord(begun_record, ended.get(redrive), is_over))
    return redrives


class _SettledCopies(NamedTuple):
    """Copies of the replay topic that have a verdict: offsets [start, end) of a partition."""

    partition: int
    start: int
    end: int
    outcome: LetterOutcome


_Letter = tuple[str, str]
"""A letter that a redrive handled: the id of the redrive, and the place of the letter."""


class RedriveOutcomes:
    """The outcomes of an input's redrives; each call of `read` adds what is new in the log."""

    def __init__(self, log: Log, topics: Topics, input: Input, redrives: Iterable[RedriveBegun]) -> None:
        """Begin where the first of some redrives began; errors as for `existing_places`."""
        redrives = list(redrives)
        # by redrive, for each followed topic, the end of each partition when
        # the redrive began
        verdict_ends = {begun.redrive: begun.verdicts_from for begun in redrives}
        letter_ends = {begun.redrive: begun.letters_from for begun in redrives}
        copy_ends = {begun.redrive: begun.copies_from for begun in redrives}
        self._incomplete_redrives = set[str]()  # ids of those of which a part is no longer in the log
        verdict_topic, letter_topic, replay_topic = followed_topics(topics, input)
        first_verdicts = self._first_offsets(log, verdict_topic, verdict_ends)
        first_letters = self._first_offsets(log, letter_topic, letter_ends)
        first_copies = self._first_offsets(log, replay_topic, copy_ends)
        self._input = input
        # only now, when all is asked: nobody closes them if a question fails
        self._verdicts = _follower(log, first_verdicts)
        self._letters = _follower(log, first_letters)
        self._copies = _follower(log, first_copies)
        # what was read and is not compared with the copies yet: copies that
        # have a verdict, and partition and offset of those that became dead
        # letters
        self._settled_copies: list[_SettledCopies] = []
        self._died_copies: list[tuple[int, int]] = []
        # by partition of the replay topic, and offset of a copy there: the
        # letter that the copy descends from
        self._letter_by_copy: dict[int, dict[int, _Letter]] = {}
        self._outcomes: dict[_Letter, LetterOutcome] = {}
        self._handled: dict[_Letter, LetterAction] = {}

    def _first_offsets(
        self, log: Log, topic: str, ends_by_redrive: Mapping[str, Sequence[int]]
    ) -> dict[TopicPartition, int]:
        """Return from where to read each partition of a topic.

        Record redrives of which something is gone.

        `ends_by_redrive` has, by redrive, where each partition ended when the
        redrive began, by the partition's number.
        """
        places = existing_places(log, topic)
        log_starts = log.starts(places)
        log_ends = log.ends(places)
        first_offsets: dict[TopicPartition, int] = {}
        for place in places:
            ends_at_begin: list[int] = []
            for redrive, ends in ends_by_redrive.items():
                # a partition that the topic got later was empty when the
                # redrive began
                end = ends[place.partition] if place.partition < len(ends) else 0
                ends_at_begin.append(end)
                # before the start of the log, retention has removed records of
                # the redrive; behind its end, the topic was created again
                if not log_starts[place] <= end <= log_ends[place]:
                    self._incomplete_redrives.add(redrive)
            earliest = max(log_starts[place], min(ends_at_begin, default=0))
            first_offsets[place] = min(earliest, log_ends[place])
        return first_offsets

    @property
    def is_whole(self) -> bool:
        """Whether the last `read` took in all that there was."""
        return self._verdicts.is_whole and self._letters.is_whole and self._copies.is_whole

    @property
    def share_read(self) -> float:
        """How much the last `read` took in, at most 1 for each of three topics."""
        return self._verdicts.share_read + self._letters.share_read + self._copies.share_read

    def read(self) -> None:
        """Read what is new, and set the outcomes that follow from it.

        Copies are read last, so that they include those of all verdicts and letters that were read
        before.
        """
        for record in self._verdicts.read():
            self._settled_copies.extend(self._verdicts_on_copies(record))
        for record in self._letters.read():
            self._record_letter(record)
        for record in self._copies.read():
            self._record_copy(record)
        # what was read of verdicts and letters waits until all copies are read
        if not self._copies.is_whole:
            return
        for settled in self._settled_copies:
            self._record_settled_copies(settled)
        for partition, offset in self._died_copies:
            letter = self._letter_by_copy.get(partition, {}).get(offset)
            if letter is not None:
                self._outcomes[letter] = LetterOutcome.DIED
        self._settled_copies = []
        self._died_copies = []

    def _record_settled_copies(self, settled: _SettledCopies) -> None:
        """Set the outcome of the letters whose copies are in a run of copies that has a verdict."""
        settled_offsets = range(settled.start, settled.end)
        letter_by_offset = self._letter_by_copy.get(settled.partition, {})
        # a run may have a million copies of others, and a redrive a million copies
        # behind it: the shorter of both is walked through
        candidates: Iterable[int] = settled_offsets
        if len(letter_by_offset) <= len(settled_offsets):
            candidates = letter_by_offset
        for offset in candidates:
            if offset in settled_offsets and offset in letter_by_offset:
                self._outcomes[letter_by_offset[offset]] = settled.outcome

    def letters(self, redrive: str) -> Mapping[str, LetterOutcome]:
        """Return the outcome of each letter that a redrive replays, by the letter's place."""
        without_copy = LetterOutcome.UNKNOWN if self.is_whole else LetterOutcome.OPEN
        outcomes: dict[str, LetterOutcome] = {}
        for (redrive_of_letter, letter), action in self._handled.items():
            if redrive_of_letter != redrive or action is not LetterAction.REPLAYED:
                continue
            outcome = self._outcomes.get((redrive, letter), without_copy)
            # the verdict of an open one may be in what is no longer there
            if outcome is LetterOutcome.OPEN and redrive in self._incomplete_redrives:
                outcome = LetterOutcome.UNKNOWN
            outcomes[letter] = outcome
        return outcomes

    def count(self, redrive: str) -> Counter[LetterOutcome]:
        """Return how many letters of a redrive have each outcome."""
        return Counter(self.letters(redrive).values())

    def handled(self, redrive: str) -> int:
        """Return how many letters a redrive has handled."""
        return sum(redrive_of_letter == redrive for redrive_of_letter, _ in self._handled)

    def close(self) -> None:
        """Close the readers of the three topics."""
        for follower in (self._verdicts, self._letters, self._copies):
            follower.close()

    def _verdicts_on_copies(self, record: Record) -> Iterator[_SettledCopies]:
        """Yield which copies of the input a verdict record settles without a loss, and by which
        outcome.
        """
        event = read_verdicts(record.value)
        if event is None:  # the record has no verdicts
            return
        for verdict, runs in event.done():
            outcome = _outcome_of(verdict)
            for source, start, end in runs:
                if is_replay(source) and input_id_of(source) == self._input.id:
                    start_offset = int(offset_of(start))
                    end_offset = int(offset_of(end - 1)) + 1
                    yield _SettledCopies(partition_of(source), start_offset, end_offset, outcome)

    def _record_letter(self, record: Record) -> None:
        """Take in a record of the dead-letter topic: a redrive's mark, or a letter that a copy became."""
        entry = parse_letter(record)
        if isinstance(entry, Mark) and entry.redrive:
            self._handled[entry.redrive, entry.letter] = entry.action
        elif isinstance(entry, Letter) and entry.history:
            # the last loss names the root that died, by its place
            topic, partition, offset = parse_location(entry.history[-1].root) or ("", -1, -1)
            if topic == self._input.replay_topic:
                self._died_copies.append((partition, offset))

    def _record_copy(self, record: Record) -> None:
        """Take in a record of the replay topic: a redrive's own copy, or a replay worker's copy of it."""
        ours = our_values(record.headers)
        letters = self._letter_by_copy.setdefault(record.partition, {})
        redrive = redrive_of(record.headers)
        if redrive:
            letter = (redrive, header_text(ours.get(LETTER)))
            self._outcomes.setdefault(letter, LetterOutcome.OPEN)
            letters[record.offset] = letter
            return
        history = parse_history(ours.get(HISTORY))
        if not history:
            return
        # the last loss names the copy before this one, which descends from the
        # same letter
        topic, partition, offset = parse_location(history[-1].root) or ("", -1, -1)
        if topic != self._input.replay_topic:
            return
        letter_of_former = self._letter_by_copy.get(partition, {}).get(offset)
        if letter_of_former is not None:
            letters[record.offset] = letter_of_former


def _follower(log: Log, first_offsets: Mapping[TopicPartition, int]) -> Follower:
    """Return a reader of some partitions, each from an offset on, that passes over what is damaged."""
    return Follower(log, list(first_offsets), first=first_offsets, on_damage=pass_damage)


def _outcome_of(verdict: DoneVerdict) -> LetterOutcome:
    """Return the outcome of a letter whose copy has a verdict, and is not lost."""
    match verdict:
        case Verdict.ACKED:
            return LetterOutcome.ACKED
        case Verdict.ABSENT:  # the copy was there once, since the redrive wrote it
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
