"""Follows one record through the topics: reads the evidence for its story (`spout.inspect.story`).

It reads topics only, and calls no process. Of each partition at most the last `RECORDS_MAX` records are read
(see `spout.runtime.tails`); where there are more, the story shows it.

Source: docs/design/protocol.md, sections 2, 4 and 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import reduce
from operator import xor
from typing import Final, NamedTuple, assert_never

import numpy as np

from acker.config.settings import AckTopics, Input
from acker.config.topics import Topics
from acker.errors import CodecError, OutOfRange, TopicError, Unreachable, UsageError
from acker.identity import (
    Root,
    acker_partition,
    generation_of,
    input_id_of,
    position_at,
    root_edge,
    source_of,
)
from acker.kafka.port import Log, MissingBroker, Record, TopicInfo, TopicPartition, broker_names
from acker.notation import show_bytes
from acker.service.view import AckerView, OpenRange, ViewReader
from acker.units import any_time_text, named_past_ms
from acker.untrusted import UntrustedName, in_sentence
from acker.wire.checks import read_verdicts, wrong_acks
from acker.wire.codec import wire_codec
from acker.wire.events import Acks, Init, SourceRun, Verdicts, positions, values
from acker.wire.lateness import TooLate, read_too_late
from acker.wire.passed_calls import PassedCall, read_passed_calls
from acker.wire.stacks import read_stack
from acker.wire.verdict import Verdict
from replay.handling.letter_box import LetterBox, letters_of
from replay.records.dead_letter import OUR_PREFIXES
from replay.records.due import Due, Loss, Progress, history_of
from replay.records.due_fold import DueFold, EntriesByRoot, of_roots, whole_entry
from replay.records.headers import Lineage, location, parse_lineage, parse_location, parted_headers
from replay.records.letters import Filter, Letter
from replay.records.movers import mover_record, mover_text
from replay.worker.fetch import Absence, Fetcher, RecordPlace
from spout.group.presence import Presence
from spout.inspect.diagnosis import Circumstances
from spout.inspect.letter_rows import hexadecimal_note, parse_key
from spout.inspect.open_roots import root_name
from spout.inspect.overview import MISSING, Questions, missing_brokers
from spout.inspect.readings import NO_STATE, Reading, first_present, if_it_lives
from spout.inspect.story import (
    NOT_EMITTED,
    SETTLED,
    Evidence,
    LateBy,
    LoggedVerdict,
    PassedHere,
    TracedEmission,
    follows,
    is_of,
)
from spout.inspect.tables import UNKNOWN
from spout.planning.session import SessionName
from spout.runtime.tails import RECORDS_MAX, Tails

RECORDS_SHOWN: Final = 10
"""How many records of one key are shown, the first ones."""

ACKS_LACK: Final = "what was acked there is unknown"

_TRIES: Final = 3
"""How often the reading begins again, when an acker shortens its logs at the same time."""


class InputRecord(NamedTuple):
    """A record of an input."""

    input: Input
    partition: int
    offset: int

    def __str__(self) -> str:
        return location(self.input.topic, self.partition, self.offset)


class Contributions(NamedTuple):
    """How many batches acked part of a root, and whether together they acked all of it."""

    batches: int
    is_whole: bool


class Decided(NamedTuple):
    """The verdicts of roots, and what is noted of some of them.

    `too_late` has what a watermark dropped of them, or of their batch; `passed` the calls of bolts that
    worked on them, did not return, and passed when they were made again.
    """

    verdicts: dict[Root, LoggedVerdict]
    too_late: dict[Root, TooLate]
    passed: dict[Root, tuple[PassedHere, ...]]

    def note(self, note: TooLate, roots: Iterable[Root]) -> None:
        """Take in a note; one that names a root counts before one that only names its batch."""
        for root in roots:
            if note.names(*root):
                self.too_late[root] = note
            elif note.may_have_dropped(*root):
                self.too_late.setdefault(root, note)

    def note_calls(self, calls: Iterable[PassedCall], roots: Iterable[Root], at_ms: int) -> None:
        """Take in the calls of one batch that passed; an acker has written that at `at_ms`."""
        members = list(roots)
        for call in calls:
            passed = PassedHere(call.bolt, call.error, call.how, at_ms)
            for root in members:
                if _holds(call.runs, root):
                    self.passed[root] = (*self.passed.get(root, ()), passed)


class AckTopicSearch:
    """Finds roots in the ack topics."""

    def __init__(self, tails: Tails, topics: AckTopics, partitions: int) -> None:
        self._tails = tails
        self._topics = topics
        self._partitions = partitions

    def acker_of(self, root: Root) -> int:
        return acker_partition(root.source, root.position, self._partitions)

    def announced(self, root: Root, since: int) -> bool:
        """Return whether ``_ack_init`` has, from an offset on, an Init with a root."""
        lacking = "what was announced there is unknown"
        records = self._tails.rest(self._topics.init, self.acker_of(root), since, lacking)
        return any(isinstance(event, Init) and _holds(event.runs, root) for event in events_of(records))

    def former_contributions(self, root: Root, emitted_ms: int) -> Contributions | None:
        """Find the records of ``_ack_ack`` that acked a settled root; None when some were not read.

        They are deleted some day: what is left counts only where the log begins before the root's emission.
        """
        if self._tails.lacks(self._topics.ack, ACKS_LACK):
            return None
        where = TopicPartition(self._topics.ack, self.acker_of(root))
        start = self._tails.log.starts([where])[where]
        is_older = self._tails.log.offsets_at([where], emitted_ms)[where] > start
        return self.contributions(root, start) if is_older or start == 0 else None

    def contributions(self, root: Root, first: int, session: str | None = None) -> Contributions | None:
        """Find the records of ``_ack_ack`` from an offset on that ack a root, of one session or any.

        None: some were not read.
        """
        acker, unread = self.acker_of(root), len(self._tails.notes)
        records = self._tails.rest(self._topics.ack, acker, first, ACKS_LACK)
        if self._topics.ack in self._tails.missing or len(self._tails.notes) > unread:
            return None
        edge, batches, seen = int(root_edge(*root)), 0, set[tuple[str, int, int]]()
        for event in events_of(records):
            if (
                not isinstance(event, Acks)
                or event.source != root.source
                or wrong_acks(event, acker, self._partitions)
            ):
                continue
            name = event.lane, event.seq, event.block
            if session not in (None, event.session) or name in seen:
                continue
            seen.add(name)
            value = contribution_of(event, root)
            batches += value is not None
            edge ^= value or 0
        return Contributions(batches, edge == 0)

    def decided(self, roots: Iterable[Root]) -> Decided:
        """Find the verdicts of roots and what is noted behind them, as far back as the log is read."""
        found = Decided({}, {}, {})
        read_notes = set[tuple[str, int, int]]()
        for number, members in self._by_acker(roots).items():
            for record in self._tails.last(self._topics.verdict, number, "older verdicts are unknown"):
                event = read_verdicts(record.value)
                if event is None:
                    continue
                for root in members:
                    verdict = _verdict_on(event, root, record)
                    if verdict is not None:
                        found.verdicts[root] = verdict
                note = read_too_late(record.headers) if record.headers else None
                if note is not None:
                    found.note(note, members)
                passed = read_passed_calls(record.headers) if record.headers else None
                # an acker that begins again may write a note twice
                if passed is not None and (passed.lane, passed.seq, number) not in read_notes:
                    read_notes.add((passed.lane, passed.seq, number))
                    found.note_calls(passed.calls, members, record.timestamp_ms)
        return found

    def waiting(self, roots: Iterable[Root]) -> tuple[dict[Root, Due], DueFold[Due]]:
        """Find the dues of roots in ``_ack_due``, and progress and pauses of their partitions of it."""
        roots_by_acker = self._by_acker(roots)
        all_roots = [root for members in roots_by_acker.values() for root in members]
        entries = EntriesByRoot[Due]()
        fold = DueFold(whole_entry, entries, wants=of_roots(all_roots))
        for number in roots_by_acker:
            for record in self._tails.last(self._topics.due, number, "what waited before is unknown"):
                fold.put(record)
        # nobody looks for the entry of a root in another partition than its own
        dues = {root: due for (number, root), due in entries.waiting.items() if number == self.acker_of(root)}
        return dues, fold

    def _by_acker(self, roots: Iterable[Root]) -> dict[int, list[Root]]:
        found: dict[int, list[Root]] = {}
        for root in roots:
            found.setdefault(self.acker_of(root), []).append(root)
        return found


class Trail:
    """Reads the stories of records of one installation."""

    def __init__(self, log: Log, topics: Topics, *, records_max: int = RECORDS_MAX) -> None:
        """Prepare; of one partition at most `records_max` records are read for one search."""
        self._log = log
        self._topics = topics
        self._limits = topics.replay.limits
        self._records_max = records_max
        acker = topics.acker
        self._observer = ViewReader(log, acker.topics, acker.partitions, acker.limits)

    def follow(self, here: InputRecord) -> Evidence:
        """Read everything about one record; what a missing topic would have is unknown.

        1. The record, its copies and its dead letters.
        2. The ackers' state of each emission: open, not emitted, settled.
        3. Verdicts, and the emissions that wait for a replay.
        4. Of one that timed out, what was acked.

        What waited may become a copy or a dead letter between 1 and 3; then all is read once more.
        """
        infos = self._infos(here)
        before: Evidence | None = None
        for _ in range(_TRIES - 1):
            try:
                found = self._follow(here, infos)
            except OutOfRange:
                continue
            if before is not None or not _is_nowhere(found):
                return found
            before = found
        return self._follow(here, infos)

    def _follow(self, here: InputRecord, infos: Mapping[str, TopicInfo | None]) -> Evidence:
        missing = frozenset(name for name, info in infos.items() if info is None)
        tails = Tails(self._log, self._limits.operation_timeout_ms, self._records_max, missing=missing)
        one = here.input
        record: Record | Absence | None = None
        place = TopicPartition(one.topic, here.partition)
        end = stable = here.offset + 1
        if one.topic not in missing:
            end = self._log.ends([place])[place]  # first: a record may be committed in the meantime
            record, stable = self._record(one.topic, here.partition, here.offset)
        copies = [
            copy
            for copy in tails.last(one.replay_topic, here.partition, "older copies are unknown")
            if parse_lineage(copy.headers, *copy[:3]).origin == str(here)
        ]
        letters, stacks = self._letters(here, tails)
        ack_topics = AckTopicSearch(tails, self._topics.ack_topics, self._topics.acker.partitions)
        found = _Emissions(self._observer, ack_topics, tails, infos)
        emissions = found.of(here, copies, is_written=here.offset < end)
        verdicts, too_late, passed = ack_topics.decided(each.root for each in emissions)
        dues, fold = ack_topics.waiting(each.root for each in emissions)
        emissions = [
            _with_acks(replace(each, verdict=verdicts[each.root]), ack_topics)
            if each.root in verdicts
            else each
            for each in emissions
        ]
        emissions = [
            replace(each, late=note, late_by=self._late_by(note))
            if (note := too_late.get(each.root)) is not None
            else each
            for each in emissions
        ]
        emissions = [
            replace(emission, passed=passed[emission.root]) if emission.root in passed else emission
            for emission in emissions
        ]
        emissions = [each for each in emissions if not (each.former and each.state in (NOT_EMITTED, SETTLED))]
        emissions = _by_generation(emissions)
        last = emissions[-1].root if emissions else None
        unnamed = [name for name in sorted(missing) if not any(name in note for note in tails.notes)]
        return Evidence(
            place=str(here),
            input=one.name,
            group=one.group,
            record=record,
            written=here.offset < stable,
            emissions=emissions,
            letters=letters,
            stacks=stacks,
            dues=dues,
            taken_over=(
                _taken_over(verdicts.get(last), fold.progress.get(ack_topics.acker_of(last)))
                if last and self._topics.ack_topics.due not in missing
                else None
            ),
            committed=None if one.topic in missing else self._log.committed(one.group, [place]).get(place),
            history=_joined(
                [
                    *(history_of(copy.headers) for copy in copies),
                    *(letter.history for letter in letters),
                    *(due.history for due in dues.values()),
                ]
            ),
            notes=[*tails.notes, *(MISSING.format(name) for name in unnamed)],
            paused=pause.why if (pause := fold.paused().get(one.id)) else "",
            missing=sorted(missing),
            uncommitted=stable <= here.offset < end,
            recreated=found.is_recreated,
        )

    def around(
        self,
        here: InputRecord,
        evidence: Evidence,
        now_ms: int,
        brokers: Sequence[MissingBroker] | None = None,
    ) -> Circumstances:
        """Read what is around a record: which processes live, and how much of its input is pending.

        No error of Kafka is raised: what it hides is unknown. `now_ms` is wall time; `brokers` are those that
        are missing, and None where nobody has asked for them yet.
        """
        one, acker = here.input, self._topics.acker
        ask = Questions(self._log)
        last = evidence.emissions[-1] if evidence.emissions else None
        lives = ask(self._lives, one, last.open if last else None, now_ms)
        if brokers is None:
            brokers = missing_brokers(self._log, self._topics)
        missing = broker_names(brokers)

        def members(group: str) -> Reading[int]:
            return if_it_lives(ask(self._log.members, group).then(len), missing)

        return Circumstances(
            query_lives=if_it_lives(lives.then(lambda found: found[0]), missing),
            session_lives=if_it_lives(lives.then(lambda found: found[1]), missing),
            ackers=members(acker.group),
            replay_workers=members(acker.replay_group),
            pending=ask(self._pending, one),
            pending_max=one.max_spout_pending,
            is_read=lives.value is None or lives.value[2],
            stopped=one.stopped,
        )

    def _late_by(self, note: TooLate) -> LateBy:
        inputs = self._topics.inputs_of(note.group)
        moved_by = mover_text(note.mover, inputs, note.wall)
        text = f"the watermark {any_time_text(note.watermark)}, moved by {moved_by}"
        return LateBy(text, mover_record(note.mover, inputs))

    def _lives(self, one: Input, open_in: OpenRange | None, now_ms: int) -> tuple[bool, bool, bool]:
        """Return whether a query of a group lives, whether the session of an open root does, and whether the
        query reads the input, as far as it says that.
        """
        acker = self._topics.acker
        with closing(Presence(self._log, acker.topics.init, acker.partitions, one.group, now_ms)) as presence:
            query, inputs = presence.last_ms is not None, presence.inputs()
            is_read = inputs is None or one.id in inputs
            if open_in is None:
                return query, query, is_read
            return query, presence.wait_ms(SessionName(open_in.epoch, open_in.session)) > 0, is_read

    def _pending(self, one: Input) -> int:
        views = [self._observer.view(number) for number in range(self._topics.acker.partitions)]
        if None in views:
            raise Unreachable(NO_STATE.format(views.index(None)))
        ranges = (found for view in views if view is not None for found in view.open_ranges())
        return sum(len(found.at) for found in ranges if input_id_of(found.source) == one.id)

    def origin(self, text: str) -> list[InputRecord]:
        """Find the record of a place: of the record itself, of one of its copies, or of its dead letter.

        Raises:
            UsageError: it is no place, or of no input; or there is no such copy or dead letter.
        """
        parsed = parse_location(text)
        inputs = [one for one in self._topics.inputs.values() if one.tracked]
        if parsed is None:
            raise UsageError(
                f"'{UntrustedName(text)}' is no place of a record; give one such as sentences/3@1042"
            )
        name, partition, offset = parsed
        own = [one for one in inputs if name in (one.name, one.topic)]
        if own:
            return [InputRecord(one, partition, offset) for one in own]
        for one in inputs:
            if name in (one.replay_topic, one.dead_letter.topic):
                _require(self._log.topics([name]).get(name), partition)
                record, _ = self._record(name, partition, offset)
                begun = parse_lineage(record.headers, *parsed).origin if isinstance(record, Record) else ""
                topic, number, at = parse_location(begun) or ("", -1, -1)
                if topic == one.topic:
                    return [InputRecord(one, number, at)]
                raise UsageError(f"there is no copy or dead letter of {one.name} at {text}")
        names = ", ".join(one.name for one in inputs) or "none"
        raise UsageError(f"no tracked input of topics.yaml is called '{UntrustedName(name)}'; it has {names}")

    def search(
        self, inputs: Iterable[Input], key: str, since: str | None, now_ms: int, option: str = ""
    ) -> tuple[list[InputRecord], list[str]]:
        """Find records of inputs by a key as people write it, from a time on, or so long before `now_ms`.

        Returns:
            The first `RECORDS_SHOWN` of them, and notes on what was not read.

        Raises:
            UsageError: key or time cannot be parsed, or there is no time; with `option` before their names.
        """
        if not since:
            raise UsageError(
                f"a key needs a time to search from: give {option}from 2026-07-01T00:00:00Z, or 2h"
            )
        since_ms = named_past_ms(f"{option}from", since, now_ms)
        key_bytes = parse_key(key, option)
        found: list[InputRecord] = []
        notes: list[str] = []
        for one in inputs:
            more, unread = self.with_key(one, key_bytes, since_ms, RECORDS_SHOWN - len(found))
            found += more
            notes += unread
        if not found:
            notes += [
                f"no record with key {in_sentence(show_bytes(key_bytes))} was found",
                *hexadecimal_note(key),
            ]
        return found, notes

    def with_key(
        self, one: Input, key: bytes | None, since_ms: int, limit: int
    ) -> tuple[list[InputRecord], list[str]]:
        """Find records by their key, which may be null, from a wall time on.

        Returns:
            The first of them, at most `limit`, and notes on what was not read.
        """
        info = self._log.topics([one.topic]).get(one.topic)
        if info is None:
            raise TopicError(MISSING.format(one.topic))
        places = [TopicPartition(one.topic, number) for number in range(info.partitions)]
        tails = Tails(self._log, self._limits.operation_timeout_ms, self._records_max)
        lacking = "records of that key there are unknown"
        found = [
            InputRecord(one, record.partition, record.offset)
            for place, first in self._log.offsets_at(places, since_ms).items()
            for record in tails.since(*place, first, lacking)
            if record.key == key
        ]
        if len(found) > limit:
            tails.notes.append(f"{len(found) - limit:,} more records have that key")
        return found[:limit], tails.notes

    def _infos(self, here: InputRecord) -> Mapping[str, TopicInfo | None]:
        """Return the topics that may have something of a record; None: there is none of that name."""
        one = here.input
        ours = self._topics.ack_topics
        names = [one.topic, one.replay_topic, one.dead_letter.topic]
        names += [ours.init, ours.ack, ours.verdict, ours.state, ours.due]
        infos = self._log.topics(names)
        _require(infos.get(one.topic), here.partition)
        return {name: infos.get(name) for name in names}

    def _record(self, topic: str, partition: int, offset: int) -> tuple[Record | Absence, int]:
        place = TopicPartition(topic, partition)
        end = self._log.stable_ends([place])[place]
        found = RecordPlace(topic, partition, offset)
        with closing(Fetcher(self._log, self._limits)) as fetcher:
            return fetcher.fetch([found])[found], end

    def _letters(self, here: InputRecord, tails: Tails) -> tuple[list[Letter], dict[str, str]]:
        """Return the letters of a record, and by their places the stacks of what failed it."""
        topic = here.input.dead_letter.topic
        info = self._log.topics([topic]).get(topic)
        box = LetterBox(Filter(places=frozenset((str(here),)), handled=True))
        stacks: dict[str, str] = {}
        for number in sorted(letters_of(here.partition, info.partitions if info else 1)):
            for record in tails.last(topic, number, "older dead letters are unknown"):
                box.put(record)
                ours = parted_headers(record.headers, OUR_PREFIXES).added
                if parse_lineage(record.headers, *record[:3]).origin == str(here) and read_stack(ours):
                    stacks[record.place] = read_stack(ours)
        return sorted(box.letters, key=lambda each: each.died_ms), stacks


def _require(info: TopicInfo | None, partition: int) -> None:
    """Refuse with a `UsageError` a partition that a topic does not have; None: there is no such topic."""
    if info is not None and partition >= info.partitions:
        raise UsageError(f"topic {info.name} has partitions 0 to {info.partitions - 1} only")


def _with_acks(one: TracedEmission, ack_topics: AckTopicSearch) -> TracedEmission:
    if one.loss is None:
        return one
    match one.loss.reason:
        case Verdict.FAILED | Verdict.ABANDONED:
            return one
        case Verdict.TIMED_OUT:
            acked = ack_topics.former_contributions(one.root, one.loss.emitted_ms)
            return replace(one, batches=acked.batches if acked else None)
        case _:
            assert_never(one.loss.reason)


class _Emissions:
    """The ackers' state of a record's emissions."""

    def __init__(
        self,
        observer: ViewReader,
        ack_topics: AckTopicSearch,
        tails: Tails,
        infos: Mapping[str, TopicInfo | None],
    ) -> None:
        self._observer = observer
        self._ack_topics = ack_topics
        self._tails = tails
        self._infos = infos
        self._views: dict[int, AckerView | None] = {}
        self.is_recreated = False
        """Whether the record's topic was created again since the ackers know it."""

    def of(self, here: InputRecord, copies: Sequence[Record], *, is_written: bool) -> list[TracedEmission]:
        """Return the record's emissions, one for each generation that may have it, then its copies'.

        Where its topic was created again, what `is_written` there is not emitted: the next generation has it.
        """
        one = here.input
        source, replay = (source_of(one.id, here.partition, replay=copy) for copy in (False, True))
        view = self._view(Root(source, position_at(0, here.offset)))
        first, self.is_recreated = self._first(view, source, one.topic)
        present = generation_of(first)
        found: list[TracedEmission] = []
        for generation in range(present + (is_written or not self.is_recreated)):
            root = Root(source, position_at(generation, here.offset))
            # The present generation may begin behind the record; for former ones there are only verdicts.
            if generation < present or root.position >= first:
                one_of = self._emission(one, root, Lineage(str(here)), str(here))
                found.append(replace(one_of, former=generation < present))
        present = generation_of(self._first(view, replay, one.replay_topic)[0])
        for copy in copies:
            root = Root(replay, position_at(present, copy.offset))
            lineage = parse_lineage(copy.headers, *copy[:3])
            history = history_of(copy.headers)
            emission = self._emission(one, root, lineage, location(*copy[:3]))
            found.append(replace(emission, history=history))
        return found

    def _first(self, view: AckerView | None, source: int, topic: str) -> tuple[int, bool]:
        """Return what `first_present` does; of a source that the ackers do not know, all is present."""
        latest = view.sources().get(source) if view else None
        if latest is None:
            return 0, False
        info = self._infos[topic]
        return first_present(latest, "" if info is None else info.id)

    def _emission(self, one: Input, root: Root, lineage: Lineage, place: str) -> TracedEmission:
        view = self._view(root)
        emission = TracedEmission(
            root, root_name(one, root.source, root.position), place, lineage, place != lineage.origin
        )
        if view is None:
            return emission
        watermark = view.watermark(root.source)
        open_in = view.find(root.source, root.position)
        announced = root.position >= watermark and self._ack_topics.announced(root, view.next_init)
        acked = None
        if announced:
            acked = self._ack_topics.contributions(root, view.next_ack)
        elif open_in is not None and not open_in.carried:
            acked = self._ack_topics.contributions(root, open_in.ack_from, open_in.session)
        return replace(
            emission,
            watermark=watermark,
            open=open_in,
            announced=announced,
            batches=acked.batches if acked else None,
            is_acked_whole=bool(acked and acked.is_whole),
        )

    def _view(self, root: Root) -> AckerView | None:
        number = self._ack_topics.acker_of(root)
        if number not in self._views:
            names = self._observer.topics
            lacking = sorted(self._tails.missing & {names.state, names.verdict, names.init})
            self._views[number] = None if lacking else self._observer.view(number)
            if lacking:
                self._tails.notes.append(f"what the acker has is unknown: it needs {', '.join(lacking)}")
            elif self._views[number] is None:
                self._tails.notes.append(f"acker partition {number} has no State: what it knows is unknown")
        return self._views[number]


def _by_generation(emissions: Sequence[TracedEmission]) -> list[TracedEmission]:
    """Let the copies of former generations come before the present emission of their record.

    A rewind emits the record again, whatever became of its copies. Only what was lost has copies of its own,
    and their histories have that loss.
    """
    firsts = [each for each in emissions if not each.copy]
    copies = [each for each in emissions if each.copy]
    if not firsts or not generation_of(firsts[-1].root.position) or firsts[-1].state in (SETTLED, UNKNOWN):
        return [*firsts, *copies]
    *former, present = firsts
    is_own = {copy.root: present.loss is not None and follows(copy.history, present) for copy in copies}
    return [
        *former,
        *(copy for copy in copies if not is_own[copy.root]),
        present,
        *(copy for copy in copies if is_own[copy.root]),
    ]


def _is_nowhere(evidence: Evidence) -> bool:
    """Tell whether the last emission was lost and taken over, and neither waits nor has a copy or letter."""
    last = evidence.emissions[-1] if evidence.emissions else None
    return (
        last is not None
        and last.loss is not None
        and bool(evidence.taken_over)
        and last.root not in evidence.dues
        and not any(is_of(letter, last) for letter in evidence.letters)
    )


def _taken_over(verdict: LoggedVerdict | None, progress: Progress | None) -> bool | None:
    if verdict is None:
        return None
    return progress is not None and progress.next > verdict.offset


def _joined(histories: Iterable[tuple[Loss, ...]]) -> tuple[Loss, ...]:
    """Join histories: each repeats the one before it, and a full one drops its middle."""
    losses = {(loss.root, loss.attempt, loss.emitted_ms): loss for history in histories for loss in history}
    return tuple(sorted(losses.values(), key=lambda loss: loss.emitted_ms))


def events_of(records: Iterable[Record]) -> Iterator[object]:
    """Yield the events of records; one that cannot be read is left to the acker."""
    codec = wire_codec()
    for record in records:
        try:
            yield codec.decode(record.value)
        except CodecError:
            continue  # the acker quarantines it


def contribution_of(event: Acks, root: Root) -> int | None:
    """Return what a record contributes to a root; None: nothing."""
    at = np.flatnonzero(positions(event.positions) == root.position)
    parts = [int(value) for value in values(event.values)[at]]
    parts += [int(root_edge(*root)) for run in event.runs if run.start <= root.position < run.end]
    return reduce(xor, parts) if parts else None


def _holds(runs: Sequence[SourceRun], root: Root) -> bool:
    return any(run.source == root.source and run.start <= root.position < run.end for run in runs)


def _verdict_on(event: Verdicts, root: Root, record: Record) -> LoggedVerdict | None:
    place = location(*record[:3])
    for verdict, runs in event.done():
        if _holds(runs, root):
            return LoggedVerdict(verdict, place, record.offset, record.timestamp_ms)
    for lost in event.lost:
        if lost.source == root.source and (positions(lost.positions) == root.position).any():
            return LoggedVerdict(lost.reason, place, record.offset, record.timestamp_ms, lost)
    return None
