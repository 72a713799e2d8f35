"""Replays dead letters, or drops them for good, as somebody orders; each of them once.

A letter is *handled* when its copy is written, or it is dropped: then a *mark*, a record behind it
in its topic, says so. A letter that cannot be handled is *left* as it is.

A command that does so may die half-way and be repeated, and two people may give it at the same
time. So every copy is written in one transaction with the mark of its letter, under one
transactional id for each dead-letter topic. It begins by ending and fencing the transaction of an
earlier handler; only then it reads which letters have a mark.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Final

from acker.config.limits import ReplayLimits
from acker.config.settings import Input
from acker.errors import LogError, RecordRefused, TopicError, Unreachable, UsageError
from acker.hot_paths import uncollected
from acker.kafka.port import Log, Outgoing, Record, TopicInfo, record_bytes
from replay.handling.letter_box import KEPT_MAX, find_letters
from replay.records.headers import RecordPlace
from replay.records.letters import Filter, Letter, LetterAction, Mark, copy_of_letter, mark_record
from replay.worker.fetch import Absence, Fetcher
from replay.worker.worker import bytes_max, keeps_times

CHUNK_MAX: Final = 2_000
"""So many letters are handled in one transaction at most; those of one transaction are its chunk."""

RATE_MIN: Final = 0.001
"""Letters a second: one in about a quarter of an hour."""


class Left(StrEnum):
    """Why a letter was left as it is."""

    NO_PAYLOAD = "it has no payload: the record was gone, too large for this topic, or dropped by a rule"
    GONE = "it has left the dead-letter topic meanwhile"
    TOO_LARGE = "with its history it is larger than the replay topic takes; raise its max.message.bytes"
    REFUSED = "the broker refuses its copy, or its mark; see `windhover topics check`"
    NO_PARTITION = "the replay topic lacks its partition; run `windhover topics create`"


@dataclass(frozen=True, slots=True)
class Order:
    """What to do with which letters, by whom, and why (may be empty).

    `redrive` is the id of the redrive that carries it out; empty: none does.
    """

    action: LetterAction
    which: Filter
    by: str
    why: str
    redrive: str = ""


class LetterHandling:
    """Carries an order out for one input; `open` it, then `step` it until it `is_done`.

    Attributes:
        handled_count: how many letters were handled.
        left_by_why: by why, how many letters were tried and left as they are.
        left_out_count: how many match beyond those that are kept in memory:
            they are not even tried.
    """

    def __init__(
        self,
        log: Log,
        input: Input,
        order: Order,
        *,
        transactional_id_prefix: str,
        limits: ReplayLimits,
        kept_max: int = KEPT_MAX,
    ) -> None:
        """Prepare; nothing is written or fenced before `open`.

        Args:
            transactional_id_prefix: the transactional id is this, `-letters-`,
                and the dead-letter topic.
            kept_max: at most so many letters are kept in memory; further ones
                are counted in `left_out_count`, and not tried.
        """
        self._log = log
        self._input = input
        self._order = order
        self._limits = limits
        self._kept_max = kept_max
        self._fetcher = Fetcher(log, limits)
        transactional_id = f"{transactional_id_prefix}-letters-{input.dead_letter.topic}"
        self._transactions = log.transactions(transactional_id)
        self._letters_to_try: deque[Letter] = deque()
        self._replay_topic: TopicInfo | None = None  # None: open() was not called yet
        self._chunk_max = CHUNK_MAX  # so many letters may be in the next transaction
        self._refused_in_a_row = 0  # letters that were refused, each alone, since one was handled
        self.handled_count = 0
        # by why: letters that were tried and left as they are
        self.left_by_why: Counter[Left] = Counter()
        self.left_out_count = 0  # letters that match, and did not fit into kept_max

    @property
    def is_done(self) -> bool:
        """Whether no letter is to be tried any more."""
        return not self._letters_to_try

    def open(self) -> int:
        """Fence other handlers, find the letters, and return how many are to be tried.

        Raises `TopicError`: a topic is missing; `Unreachable`: a transaction
        stays open among the letters.
        """
        topic = self._input.replay_topic
        self._replay_topic = self._log.topics([topic], settings=True).get(topic)
        if self._replay_topic is None:
            raise TopicError(
                f"replay topic {topic} of input {self._input.name} does not exist; run `windhover topics"
                " create`"
            )
        self.fence()
        box = find_letters(
            self._log,
            self._input,
            self._order.which,
            wait_ms=self._limits.operation_timeout_ms,
            kept_max=self._kept_max,
            waits_for_open=True,
        )
        self._letters_to_try = deque(box.letters)
        self.left_out_count = box.left_out_count
        return len(self._letters_to_try)

    def fence(self) -> None:
        """End and fence the transaction of another handler of this topic."""
        self._transactions.init(self._limits.operation_timeout_ms)

    @uncollected()
    def step(self, room: int, now_ms: int) -> int:
        """Handle letters in one transaction; return how many, at most `CHUNK_MAX`, without those left out.

        A transaction that the broker refuses for one of its letters is written by halves, one a
        step, until the letter is alone: it is left as it is, and the others are handled.

        Raises:
            Aborted: nothing of the transaction was written; repeat the order.
            Fenced: somebody else handles letters of this topic now.
            Unreachable: it is not known whether the transaction was committed;
                repeat the order.
            TopicError: too many letters in a row are refused, each alone;
                correct the topic, then repeat.
        """
        # 1. build what is to be written
        chunk = list(islice(self._letters_to_try, min(room, self._chunk_max)))
        tried = self._build_copies(chunk)
        marks: list[Outgoing] = []
        copies_to_write: list[Outgoing] = []
        whys_left: list[Left] = []
        for letter, copy in tried:
            if isinstance(copy, Left):  # it has no copy, and this says why
                whys_left.append(copy)
                continue
            marks.append(self._mark(letter, now_ms))
            if copy is not None:  # None: it is dropped, and gets only a mark
                copies_to_write.append(copy)
        # 2. write it; if it is refused, the next step has half as many letters
        if marks:
            try:
                self.write(marks, copies_to_write)
            except RecordRefused as error:
                self._chunk_max = max(1, len(chunk) // 2)
                if len(chunk) == 1:
                    self._leave_refused(error)
                return 0
            self._chunk_max = min(CHUNK_MAX, 2 * len(chunk))
            self._refused_in_a_row = 0
        # 3. count, also those that were left as they are
        for _letter in chunk:
            self._letters_to_try.popleft()
        # a letter whose payload did not fit into the fetch is the first of the next step
        tried_places = {letter.place for letter, _ in tried}
        unfetched = [letter for letter in chunk if letter.place not in tried_places]
        self._letters_to_try.extendleft(reversed(unfetched))
        self.left_by_why.update(whys_left)
        self.handled_count += len(marks)
        return len(marks)

    def _leave_refused(self, error: RecordRefused) -> None:
        """Leave the first letter as it is, which was refused alone, and try it no more.

        Raises `TopicError`: it is one of too many in a row.
        """
        self._refused_in_a_row += 1
        if self._refused_in_a_row >= self._limits.refused_max:
            raise TopicError(f"{self._refused_in_a_row} letters in a row are refused, the last one: {error}")
        self._letters_to_try.popleft()
        self.left_by_why[Left.REFUSED] += 1

    def close(self) -> None:
        """Close the clients; a transaction that is open is aborted."""
        self._fetcher.close()
        try:
            self._transactions.abort(self._limits.operation_timeout_ms)
        except (LogError, Unreachable):
            pass  # the next who opens, or the broker in a minute, ends the transaction
        finally:
            self._transactions.close()

    def _build_copies(self, chunk: Sequence[Letter]) -> list[tuple[Letter, Outgoing | Left | None]]:
        """Return each letter with its copy, or with why it is left as it is; None: it is dropped.

        `chunk` are the letters of the next transaction.

        A letter whose payload did not fit into one fetch is missing. It may be any one: of several
        partitions the broker may send the last one first.
        """
        if self._order.action is LetterAction.DROPPED:
            return [(letter, None) for letter in chunk]
        topic = self._input.dead_letter.topic
        place_by_letter = {
            letter.place: RecordPlace(topic, letter.partition, letter.offset)
            for letter in chunk
            if not letter.missing
        }
        answers = self._fetcher.fetch(place_by_letter.values())
        copies: list[tuple[Letter, Outgoing | Left | None]] = []
        for letter in chunk:
            if letter.missing:
                copies.append((letter, Left.NO_PAYLOAD))
                continue
            answer = answers.get(place_by_letter[letter.place])
            if answer is None:  # it did not fit into the fetch
                continue
            if isinstance(answer, Absence):
                copies.append((letter, Left.GONE))
            else:
                copies.append((letter, self._build_copy_or_why_not(letter, answer)))
        return copies

    def _build_copy_or_why_not(self, letter: Letter, record: Record) -> Outgoing | Left:
        """Build the copy of a letter from its record on the dead-letter topic.

        Return why the letter is left as it is if the replay topic cannot take
        the copy.
        """
        topic = self._replay_topic
        # None: open() was not called yet; for the types alone, since step()
        # follows open()
        if topic is None or letter.origin_partition >= topic.partitions:
            return Left.NO_PARTITION
        # whether the topic keeps the times that we write (it does not with
        # LogAppendTime)
        topic_keeps_times = keeps_times(topic)
        copy = copy_of_letter(
            letter, record, topic.name, redrive=self._order.redrive, keeps_times=topic_keeps_times
        )
        if record_bytes(copy) > bytes_max(topic):
            return Left.TOO_LARGE
        return copy

    def _mark(self, letter: Letter, now_ms: int) -> Outgoing:
        """Return the record that says that a letter is handled, how, by whom and why."""
        order = self._order
        mark = Mark(
            letter=letter.place,
            action=order.action,
            by=order.by,
            why=order.why,
            at_ms=now_ms,
            redrive=order.redrive,
        )
        return mark_record(letter, self._input.dead_letter.topic, mark)

    def write(self, records: Sequence[Outgoing], copies: Sequence[Outgoing] = ()) -> None:
        """Write copies, then records in one transaction of the handler; it raises what `step` does.

        The copies are in the log before a mark is sent: if a part of the
        transaction is committed alone (`acker.service.partition` says when),
        no letter counts as handled whose copy is not there.
        """
        timeout_ms = self._limits.operation_timeout_ms
        self._transactions.begin()
        self._transactions.send_all(copies)
        self._transactions.flush(timeout_ms)
        self._transactions.send_all(records)
        self._transactions.commit(timeout_ms)


class RateLimit:
    """How many letters may be handled now, so that there are at most so many in a second.

    By the rate each letter takes its time: at 10 a second, 100 ms. So after 3
    letters the next one may be handled 300 ms later. Time in which none was
    handled, since they were looked for or too many were open, is not made up
    for, except for a second of it.
    """

    def __init__(
        self,
        letters_per_second: float | None,
        now_ms: int,
        at_once_max: int = CHUNK_MAX,
    ) -> None:
        """Begin at a wall time `now_ms`; None for the rate: there is no limit.

        Raises `UsageError`: the rate is below `RATE_MIN`, or no finite number.
        """
        rate = letters_per_second
        if rate is not None and not RATE_MIN <= rate < math.inf:
            raise UsageError(f"rate {rate:g}: give {RATE_MIN} letters a second or more, or none for no limit")
        self._letters_per_second = rate
        self._at_once_max = at_once_max
        self._next_allowed_ms: float = now_ms  # wall time from which the next one may be handled
        self._last_letters_cost_ms = 0.0  # the time that those handled last take by the rate

    def allowed_letters(self, now_ms: int) -> int:
        """Return how many letters may be handled now, at most `at_once_max`.

        With 10 letters a second, and the next one allowed since 250 ms, 3 may
        be handled: those that were allowed 250, 150 and 50 ms ago.
        """
        if self._letters_per_second is None:
            return self._at_once_max
        # Letters that were not handled in time are caught up with, but only
        # those of the last second: the next letter counts as allowed for 1 s at
        # most, less the time of one letter.
        letter_ms = 1_000 / self._letters_per_second
        catch_up_ms = max(0.0, 1_000 - letter_ms)
        self._next_allowed_ms = max(self._next_allowed_ms, now_ms - catch_up_ms)
        # the last letters moved it ahead by their own time at most; if it is
        # further ahead, the clock was set back
        self._next_allowed_ms = min(self._next_allowed_ms, now_ms + self._last_letters_cost_ms)
        # + 1: the letter that is allowed at `_next_allowed_ms` itself
        late_ms = now_ms - self._next_allowed_ms
        allowed = math.floor(late_ms * self._letters_per_second / 1_000) + 1
        return max(0, min(self._at_once_max, allowed))

    def record_handled(self, count: int) -> None:
        """Record that so many letters were handled."""
        if self._letters_per_second is not None:
            # at 10 a second 3 letters take 300 ms, whenever they were handled
            self._last_letters_cost_ms = count * 1_000 / self._letters_per_second
            self._next_allowed_ms += self._last_letters_cost_ms

    def wait_ms(self, now_ms: int) -> int:
        """Return how long to wait until one more may be handled; 0: it may be now."""
        if self.allowed_letters(now_ms):
            return 0
        return max(1, math.ceil(self._next_allowed_ms - now_ms))
