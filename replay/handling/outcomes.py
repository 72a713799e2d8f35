"""Follows what became of the letters that redrives of one input wrote to its replay topic.

A redrive's copy is a new root. Its verdict, the copies that a replay worker
makes of it, and the dead letter that it becomes name it, so the log shows the
outcome of each letter at any time, to any process.

Three topics are followed: those of verdicts, of letters and of copies. A
redrive writes a *mark* behind each letter that it handles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from enum import StrEnum
from typing import NamedTuple, assert_never

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.errors import TopicError
from acker.identity import input_id_of, is_replay, offset_of, partition_of
from acker.kafka.port import Log, Record, TopicPartition
from acker.kafka.read_to_end import PATIENCE_MS, Follower, pass_damage, read_piece
from acker.wire.checks import read_verdicts
from acker.wire.verdict import DoneVerdict, Verdict
from replay.records.due import Loss, parse_last_loss
from replay.records.headers import HISTORY, header_text, our_values, parse_location
from replay.records.letters import LETTER, Letter, LetterAction, Mark, parse_letter
from replay.records.redrives import (
    AUDIT_PARTITION,
    REDRIVE,
    RedriveBegun,
    RedriveEnded,
    parse_audit,
)


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


class BegunRedrive(NamedTuple):
    """A redrive by the two records that it writes when it begins and when it ends.

    Attributes:
        ended: None: it runs, or did not write its end.
        is_over: a later redrive of the same input began, and so ended it.
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


class AuditStart(NamedTuple):
    """The partition with the audit records of an input, and from which offset on they are read."""

    partition: TopicPartition
    offset: int


def audit_start(log: Log, input: Input, since_ms: int = 0) -> AuditStart:
    """Return where to begin to read the audit records of an input's redrives, begin and end.

    They have the redrives that began at `since_ms` (wall time) or later.

    Raises `TopicError`: its dead-letter topic does not exist.
    """
    partition = existing_partitions(log, input.dead_letter.topic)[AUDIT_PARTITION]
    log_start = log.starts([partition])[partition]  # it counts if `since_ms` is 0
    offset_at_since = log.offsets_at([partition], since_ms)[partition]
    return AuditStart(partition, max(log_start, offset_at_since))


def find_redrives(log: Log, input: Input, *, wait_ms: int) -> list[BegunRedrive]:
    """Read the redrives of an input, the oldest first.

    Raises `TopicError`: its dead-letter topic does not exist.
    """
    partition, start = audit_start(log, input)
    records = read_piece(
        log,
        partition,
        start,
        log.stable_ends([partition])[partition],
        committed=True,
        wait_ms=wait_ms,
        on_damage=pass_damage,
    )
    begun_by_redrive_id: dict[str, RedriveBegun] = {}
    ended_by_redrive_id: dict[str, RedriveEnded] = {}
    for record in records:
        event = parse_audit(record)
        if isinstance(event, RedriveBegun):
            begun_by_redrive_id[event.redrive] = event
        elif event is not None:
            # it may have two, if it ended just before somebody cancelled it: the
            # first one counts
            ended_by_redrive_id.setdefault(event.redrive, event)
    # a redrive fences the one before it: if a later one began, those before it
    # are over
    newest_redrive_id = next(reversed(begun_by_redrive_id), "")
    redrives: list[BegunRedrive] = []
    for redrive_id, begun in begun_by_redrive_id.items():
        is_over = redrive_id != newest_redrive_id
        redrives.append(BegunRedrive(begun, ended_by_redrive_id.get(redrive_id), is_over))
    return redrives


class _SettledCopies(NamedTuple):
    """Copies of the replay topic that have a verdict: offsets [start, end) of a partition."""

    partition: int
    start: int
    end: int
    outcome: LetterOutcome


class _Copy(NamedTuple):
    """A copy by its place in the replay topic."""

    partition: int
    offset: int


class _HandledLetter(NamedTuple):
    """A letter that a redrive handled: the id of the redrive, and the place of the letter."""

    redrive: str
    place: str


class FollowedLetter(NamedTuple):
    """A letter that a redrive handled, and what became of it.

    Attributes:
        redrive: the id of the redrive.
        place: ``topic/partition@offset`` of the letter.
        outcome: None: it was dropped, so nothing becomes of it.
    """

    redrive: str
    place: str
    outcome: LetterOutcome | None


class FollowedTopics(NamedTuple):
    """The topics that outcomes are read from, by their names."""

    verdicts: str
    letters: str
    copies: str


class RedriveOutcomes:
    """The outcomes of an input's redrives; each call of `read` adds what is new in the log."""

    def __init__(
        self,
        log: Log,
        topics: Topics,
        input: Input,
        redrives: Iterable[RedriveBegun],
        *,
        patience_ms: int = PATIENCE_MS,
    ) -> None:
        """Begin where the first of some redrives began; errors as for `existing_partitions`.

        `patience_ms`: a call of `read` gives a topic up if nothing of it comes for so long.
        """
        redrives = list(redrives)
        followed = followed_topics(topics, input)
        # where each topic ended when a redrive began, by the redrive's id
        verdict_ends = {begun.redrive: begun.verdicts_from for begun in redrives}
        letter_ends = {begun.redrive: begun.letters_from for begun in redrives}
        copy_ends = {begun.redrive: begun.copies_from for begun in redrives}
        verdicts_beginning = _where_to_begin(log, followed.verdicts, verdict_ends)
        letters_beginning = _where_to_begin(log, followed.letters, letter_ends)
        copies_beginning = _where_to_begin(log, followed.copies, copy_ends)
        # of which a part is no longer in the log
        self._incomplete_redrives = (
            verdicts_beginning.incomplete_redrives
            | letters_beginning.incomplete_redrives
            | copies_beginning.incomplete_redrives
        )
        self._input = input
        # Readers of the three topics. Made only now, when all is asked: nobody
        # would close them if a question failed.
        self._verdict_reader = _follower(log, verdicts_beginning.first_offsets, patience_ms)
        self._letter_reader = _follower(log, letters_beginning.first_offsets, patience_ms)
        self._copy_reader = _follower(log, copies_beginning.first_offsets, patience_ms)
        # copies that were settled without a loss, and copies that became dead
        # letters: read, and not compared with `_letter_by_copy` yet
        self._settled_copies: list[_SettledCopies] = []
        self._died_copies: list[_Copy] = []
        # by partition of the replay topic, and offset of a copy there: the
        # letter that the copy descends from
        self._letter_by_copy: dict[int, dict[int, _HandledLetter]] = {}
        self._outcome_by_letter: dict[_HandledLetter, LetterOutcome] = {}
        self._action_by_letter: dict[_HandledLetter, LetterAction] = {}

    @property
    def _readers(self) -> tuple[Follower, Follower, Follower]:
        """The readers of the three topics."""
        return self._verdict_reader, self._letter_reader, self._copy_reader

    @property
    def is_whole(self) -> bool:
        """Whether the last `read` read all that there was."""
        return all(reader.is_whole for reader in self._readers)

    def why_not_whole(self) -> str:
        """Return what kept the last `read` from reading all; empty: there is more to read."""
        whys = [reader.why_not_whole() for reader in self._readers if not reader.is_whole]
        return "; ".join(why for why in whys if why)

    def read(self) -> None:
        """Read what is new, and set the outcomes that follow from it.

        Copies are read last, so that they include those of all verdicts and letters that were read
        before.
        """
        for record in self._verdict_reader.read():
            self._settled_copies.extend(self._copies_settled_by(record))
        for record in self._letter_reader.read():
            self._record_letter_or_mark(record)
        for record in self._copy_reader.read():
            self._record_copy(record)
        # what was read of verdicts and letters waits until all copies are read:
        # only these tell which letter a copy descends from
        if not self._copy_reader.is_whole:
            return
        for settled in self._settled_copies:
            self._set_outcome_of(settled)
        for copy in self._died_copies:
            letter = self._letter_of(copy)
            if letter is not None:
                self._outcome_by_letter[letter] = LetterOutcome.DIED
        self._settled_copies = []
        self._died_copies = []

    def _letter_of(self, copy: _Copy) -> _HandledLetter | None:
        """Return the letter that a copy descends from; None: no redrive's letter."""
        letter_by_offset = self._letter_by_copy.get(copy.partition, {})
        return letter_by_offset.get(copy.offset)

    def _set_outcome_of(self, settled: _SettledCopies) -> None:
        """Set the outcome of the letters whose copies are among those that have a verdict."""
        settled_offsets = range(settled.start, settled.end)
        letter_by_offset = self._letter_by_copy.get(settled.partition, {})
        # a run may have a million copies of others, and a redrive a million copies
        # behind it: the shorter of both is walked through
        candidates: Iterable[int] = settled_offsets
        if len(letter_by_offset) <= len(settled_offsets):
            candidates = letter_by_offset
        for offset in candidates:
            if offset in settled_offsets and offset in letter_by_offset:
                self._outcome_by_letter[letter_by_offset[offset]] = settled.outcome

    def letters(self) -> Iterator[FollowedLetter]:
        """Yield each letter that a redrive has handled, with what became of it so far."""
        outcome_if_no_copy = self._outcome_if_no_copy_was_read()
        for letter, action in self._action_by_letter.items():
            outcome: LetterOutcome | None = None  # None stays for a letter that was dropped
            if action is LetterAction.REPLAYED:
                outcome = self._outcome_of(letter, outcome_if_no_copy)
            yield FollowedLetter(letter.redrive, letter.place, outcome)

    def _outcome_if_no_copy_was_read(self) -> LetterOutcome:
        """Return the outcome of letters whose copy was not read; until all is read, it may come."""
        return LetterOutcome.UNKNOWN if self.is_whole else LetterOutcome.OPEN

    def _outcome_of(
        self,
        letter: _HandledLetter,
        outcome_if_no_copy: LetterOutcome,
    ) -> LetterOutcome:
        """Return the outcome of a letter that a redrive replays.

        `outcome_if_no_copy` is `_outcome_if_no_copy_was_read`, which a caller
        asks for once for all letters.
        """
        outcome = self._outcome_by_letter.get(letter, outcome_if_no_copy)
        # the verdict of an open one may be in the part that is no longer in the log
        if outcome is LetterOutcome.OPEN and letter.redrive in self._incomplete_redrives:
            return LetterOutcome.UNKNOWN
        return outcome

    def outcome_by_letter(self, redrive: str) -> Mapping[str, LetterOutcome]:
        """Return the outcome of each letter that a redrive replays, by the letter's place.

        A letter that it drops has none.
        """
        outcome_if_no_copy = self._outcome_if_no_copy_was_read()
        outcomes: dict[str, LetterOutcome] = {}
        for letter, action in self._action_by_letter.items():
            if letter.redrive == redrive and action is LetterAction.REPLAYED:
                outcomes[letter.place] = self._outcome_of(letter, outcome_if_no_copy)
        return outcomes

    def count_by_outcome(self, redrive: str) -> Counter[LetterOutcome]:
        """Return how many letters of a redrive have each outcome."""
        return Counter(self.outcome_by_letter(redrive).values())

    def handled_count(self, redrive: str) -> int:
        """Return how many letters a redrive has handled, so far as it was read."""
        return sum(letter.redrive == redrive for letter in self._action_by_letter)

    def close(self) -> None:
        """Close the readers of the three topics."""
        for reader in self._readers:
            reader.close()

    def _copies_settled_by(self, record: Record) -> Iterator[_SettledCopies]:
        """Yield the copies of the input that a verdict record settles without a loss."""
        verdicts = read_verdicts(record.value)
        if verdicts is None:  # an answer to a session, or it cannot be read
            return
        for verdict, runs in verdicts.done():  # runs of positions [start, end)
            outcome = _outcome_by_verdict(verdict)
            for source, start, end in runs:
                if is_replay(source) and input_id_of(source) == self._input.id:
                    first_offset = int(offset_of(start))
                    # by the last position, not by `end`: the position behind it
                    # may be of the next generation, with offset 0
                    last_offset = int(offset_of(end - 1))
                    partition = partition_of(source)
                    yield _SettledCopies(partition, first_offset, last_offset + 1, outcome)

    def _record_letter_or_mark(self, record: Record) -> None:
        """Record what the dead-letter topic says of a redrive: its mark, or that a copy died.

        Whether the copy descends from a redrive is found out later.
        """
        entry = parse_letter(record, last_loss_only=True)
        if isinstance(entry, Mark) and entry.redrive:
            self._action_by_letter[_HandledLetter(entry.redrive, entry.letter)] = entry.action
        elif isinstance(entry, Letter):
            died_copy = self._copy_lost_last(entry.history)
            if died_copy is not None:
                self._died_copies.append(died_copy)

    def _record_copy(self, record: Record) -> None:
        """Record which letter a copy on the replay topic descends from, if from one of a redrive.

        A redrive wrote it, or a replay worker made it of an earlier copy.
        """
        our_header_values = our_values(record.headers)
        letter_by_offset = self._letter_by_copy.setdefault(record.partition, {})
        redrive = header_text(our_header_values.get(REDRIVE))
        # 1. a redrive wrote it: its headers name the letter
        if redrive:
            letter = _HandledLetter(redrive, header_text(our_header_values.get(LETTER)))
            # do not replace an outcome that was set before
            self._outcome_by_letter.setdefault(letter, LetterOutcome.OPEN)
            letter_by_offset[record.offset] = letter
            return
        # 2. a replay worker wrote it: its last loss is that of an earlier copy, if
        # that was one
        earlier_copy = self._copy_lost_last(parse_last_loss(our_header_values.get(HISTORY)))
        letter_of_earlier_copy = None if earlier_copy is None else self._letter_of(earlier_copy)
        if letter_of_earlier_copy is not None:
            letter_by_offset[record.offset] = letter_of_earlier_copy

    def _copy_lost_last(self, history: Sequence[Loss]) -> _Copy | None:
        """Return the copy whose loss is the last one of a history; None: that was no copy of the input."""
        if not history:
            return None
        lost_root = parse_location(history[-1].root)
        if lost_root is None or lost_root.topic != self._input.replay_topic:
            return None
        return _Copy(lost_root.partition, lost_root.offset)


class _Beginning(NamedTuple):
    """Where to begin to read a topic: by partition, the first offset to read.

    `incomplete_redrives` has the ids of redrives of which a part is no longer
    in the log.
    """

    first_offsets: Mapping[TopicPartition, int]
    incomplete_redrives: Set[str]


def _where_to_begin(log: Log, topic: str, ends_by_redrive: Mapping[str, Sequence[int]]) -> _Beginning:
    """Return where to begin to read a topic, so that all of some redrives is read that is still there.

    `ends_by_redrive` has, by the id of a redrive, the end of each partition
    when it began, by the partition's number.
    """
    partitions = existing_partitions(log, topic)
    log_starts = log.starts(partitions)
    log_ends = log.ends(partitions)
    first_offsets: dict[TopicPartition, int] = {}
    incomplete_redrives: set[str] = set()
    for partition in partitions:
        start, end = log_starts[partition], log_ends[partition]
        ends_at_begin: list[int] = []
        for redrive, ends in ends_by_redrive.items():
            # a partition that the topic got later was empty when the redrive
            # began
            end_at_begin = ends[partition.partition] if partition.partition < len(ends) else 0
            ends_at_begin.append(end_at_begin)
            # before the start of the log, retention has removed records of the
            # redrive; behind its end, the topic was created again
            if not start <= end_at_begin <= end:
                incomplete_redrives.add(redrive)
        earliest = max(start, min(ends_at_begin, default=0))
        first_offsets[partition] = min(earliest, end)
    return _Beginning(first_offsets, incomplete_redrives)


def _follower(log: Log, first_offsets: Mapping[TopicPartition, int], patience_ms: int) -> Follower:
    """Return a reader of some partitions, each from an offset on, that passes over what is damaged."""
    return Follower(
        log,
        list(first_offsets),
        first_offsets=first_offsets,
        patience_ms=patience_ms,
        on_damage=pass_damage,
    )


def _outcome_by_verdict(verdict: DoneVerdict) -> LetterOutcome:
    """Return the outcome of a letter whose copy has a verdict, and is not lost."""
    match verdict:
        case Verdict.ACKED:
            return LetterOutcome.ACKED
        case Verdict.ABSENT:  # the copy was there once, since the redrive wrote it
            return LetterOutcome.GONE
        case _:
            assert_never(verdict)


def followed_topics(topics: Topics, input: Input) -> FollowedTopics:
    """Return the topics that the outcomes of an input's redrives are read from."""
    return FollowedTopics(
        verdicts=topics.ack_topics.verdict,
        letters=input.dead_letter.topic,
        copies=input.replay_topic,
    )


def existing_partitions(log: Log, topic: str) -> list[TopicPartition]:
    """Return the partitions of a topic, ascending; `TopicError` if it does not exist."""
    info = log.topics([topic]).get(topic)
    if info is None:
        raise TopicError(f"topic {topic} does not exist; run `windhover topics create`")
    return [TopicPartition(topic, number) for number in range(info.partitions)]
