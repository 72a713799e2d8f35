"""Follows one record through the topics: reads the evidence for its story (`spout.inspect.story`).

It reads topics only, and calls no process. Of each partition at most the last `RECORDS_MAX` records are read
(see `spout.runtime.tails`); where there are more, the story shows it.

Source: docs/design/protocol.md, sections 2, 4 and 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    WIRE_BLOCK_BITS,
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
from acker.service.view import NO_STATE, AckerView, ViewReader
from acker.units import any_time_text, named_past_ms
from acker.untrusted import UntrustedName, in_sentence
from acker.wire.checks import read_verdicts, wrong_acks
from acker.wire.codec import wire_codec
from acker.wire.events import Acks, Event, Init, SourceRun, Verdicts, positions, values
from acker.wire.lateness import TooLate, read_too_late
from acker.wire.passed_calls import PassedCall, read_passed_calls
from acker.wire.stacks import read_stack
from acker.wire.verdict import Verdict
from replay.handling.letter_box import LetterBox, letter_partitions
from replay.records.dead_letter import OUR_PREFIXES
from replay.records.due import Due, Loss, Progress, history_of
from replay.records.due_fold import DueFold, EntriesByRoot, of_roots, whole_entry
from replay.records.headers import (
    Lineage,
    RecordPlace,
    location,
    parse_lineage,
    parse_location,
    parted_headers,
    root_name,
)
from replay.records.letters import Filter, Letter
from replay.records.movers import mover_record, mover_text
from replay.worker.fetch import Absence, Fetcher
from spout.inspect.diagnosis import Circumstances
from spout.inspect.letter_rows import hexadecimal_note, parse_key
from spout.inspect.overview import MISSING, Questions, live_query, missing_brokers
from spout.inspect.readings import Reading, first_present, if_it_lives
from spout.inspect.story import (
    NOT_EMITTED,
    SETTLED,
    Evidence,
    LateBy,
    LoggedVerdict,
    PassedHere,
    TracedEmission,
    is_letter_of,
    may_follow,
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


class RootValue:
    """The value of a root as an acker has it, from acks in the log: 0 when all of its tree is acked."""

    def __init__(self, root: Root) -> None:
        """Begin without an ack."""
        self._root = root
        self._block = root.position >> WIRE_BLOCK_BITS
        self._value = int(root_edge(*root))
        # the batches whose record for the root's block was read, by lane and number
        self._batches_read = set[tuple[str, int]]()
        self.batch_count = 0
        """How many batches acked part of the root."""

    def add(self, acks: Acks) -> None:
        """Count what a record acks of the root.

        Only the first record of a batch for the root's block counts, as for an acker: a record may
        come twice, and another one under its number says nothing.
        """
        batch = (acks.lane, acks.seq)
        is_of_block = acks.source == self._root.source and acks.block == self._block
        if not is_of_block or batch in self._batches_read:
            return
        self._batches_read.add(batch)
        contribution = _contribution_of(acks, self._root)
        if contribution is not None:
            self.batch_count += 1
            self._value ^= contribution

    @property
    def is_whole(self) -> bool:
        """Whether they acked all of it."""
        return self._value == 0


class Decided(NamedTuple):
    """The verdicts of roots, and what is noted of some of them; it is filled while a log is read.

    `too_late` has what a watermark dropped of them, or of their batch; `passed` the calls of bolts that
    worked on them, did not return, and passed when they were made again.
    """

    verdicts: dict[Root, LoggedVerdict]
    too_late: dict[Root, TooLate]
    passed: dict[Root, tuple[PassedHere, ...]]

    def record_too_late(self, note: TooLate, roots: Iterable[Root]) -> None:
        """Record what a note says of roots.

        A note that names a root counts before one that only names its batch.
        """
        for root in roots:
            if note.names(*root):
                self.too_late[root] = note
            elif note.may_have_dropped(*root):
                self.too_late.setdefault(root, note)

    def record_calls(self, calls: Iterable[PassedCall], roots: Iterable[Root], at_ms: int) -> None:
        """Record the calls of one batch that passed; an acker has written that at `at_ms`."""
        all_roots = list(roots)
        for call in calls:
            passed = PassedHere(call.bolt, call.error, call.explanation, at_ms)
            for root in all_roots:
                if _holds(call.runs, root):
                    self.passed[root] = (*self.passed.get(root, ()), passed)


class AckTopicSearch:
    """Finds roots in the ack topics."""

    def __init__(self, tails: Tails, topics: AckTopics, partitions: int) -> None:
        self._tails = tails
        self._topics = topics
        self._partitions = partitions

    def acker_of(self, root: Root) -> int:
        """Return the acker partition of a root."""
        return acker_partition(root.source, root.position, self._partitions)

    def is_announced(self, root: Root, from_offset: int) -> bool:
        """Return whether ``_ack_init`` has, from an offset on, an Init with a root."""
        what_is_unknown = "what was announced there is unknown"
        records = self._tails.read_rest(self._topics.init, self.acker_of(root), from_offset, what_is_unknown)
        for record in records:
            event = event_of(record)
            if isinstance(event, Init) and _holds(event.runs, root):
                return True
        return False

    def former_contributions(self, root: Root, emitted_ms: int) -> Contributions | None:
        """Find the records of ``_ack_ack`` that acked a settled root; None when some were not read.

        They are deleted some day: what is left counts only where the log begins before the root's emission.
        """
        if self._tails.add_note_if_missing(self._topics.ack, ACKS_LACK):
            return None
        place = TopicPartition(self._topics.ack, self.acker_of(root))
        start = self._tails.log.starts([place])[place]
        log_begins_before_root = self._tails.log.offsets_at([place], emitted_ms)[place] > start
        if log_begins_before_root or start == 0:
            return self.contributions(root, start)
        return None

    def contributions(self, root: Root, from_offset: int, session: str | None = None) -> Contributions | None:
        """Find the records of ``_ack_ack`` from an offset on that ack a root, of one session or any.

        None: some were not read.
        """
        acker = self.acker_of(root)
        note_count = len(self._tails.notes)
        records = self._tails.read_rest(self._topics.ack, acker, from_offset, ACKS_LACK)
        # a new note says that records were not read
        if self._topics.ack in self._tails.missing or len(self._tails.notes) > note_count:
            return None
        value = RootValue(root)
        for record in records:
            event = event_of(record)
            if not isinstance(event, Acks) or event.source != root.source:
                continue
            if wrong_acks(event, acker, self._partitions):
                continue
            if session is None or event.session == session:
                value.add(event)
        return Contributions(value.batch_count, value.is_whole)

    def decided(self, roots: Iterable[Root]) -> Decided:
        """Find the verdicts of roots and what is noted behind them, as far back as the log is read."""
        decided = Decided({}, {}, {})
        notes_counted = set[tuple[str, int, int]]()
        for acker, own_roots in self._by_acker(roots).items():
            for record in self._tails.read_last(self._topics.verdict, acker, "older verdicts are unknown"):
                event = read_verdicts(record.value)
                if event is None:
                    continue
                for root in own_roots:
                    verdict = _verdict_on(event, root, record)
                    if verdict is not None:
                        decided.verdicts[root] = verdict
                if not record.headers:
                    continue
                too_late = read_too_late(record.headers)
                if too_late is not None:
                    decided.record_too_late(too_late, own_roots)
                passed = read_passed_calls(record.headers)
                # an acker that begins again may write a note twice
                if passed is not None and (passed.lane, passed.seq, acker) not in notes_counted:
                    notes_counted.add((passed.lane, passed.seq, acker))
                    decided.record_calls(passed.calls, own_roots, record.timestamp_ms)
        return decided

    def waiting(self, roots: Iterable[Root]) -> tuple[dict[Root, Due], DueFold[Due]]:
        """Find the dues of roots in ``_ack_due``, and progress and pauses of their partitions of it."""
        roots_by_acker = self._by_acker(roots)
        all_roots = [root for own_roots in roots_by_acker.values() for root in own_roots]
        entries = EntriesByRoot[Due]()
        fold = DueFold(whole_entry, entries, wants=of_roots(all_roots))
        for acker in roots_by_acker:
            for record in self._tails.read_last(self._topics.due, acker, "what waited before is unknown"):
                fold.put(record)
        # nobody looks for the entry of a root in another partition than its own
        dues = {root: due for (acker, root), due in entries.waiting.items() if acker == self.acker_of(root)}
        return dues, fold

    def _by_acker(self, roots: Iterable[Root]) -> dict[int, list[Root]]:
        roots_by_acker: dict[int, list[Root]] = {}
        for root in roots:
            roots_by_acker.setdefault(self.acker_of(root), []).append(root)
        return roots_by_acker


class Trail:
    """Reads the stories of records of one installation."""

    def __init__(self, log: Log, topics: Topics, *, records_max: int = RECORDS_MAX) -> None:
        """Prepare; of one partition at most `records_max` records are read for one search."""
        self._log = log
        self._topics = topics
        self._limits = topics.replay.limits
        self._records_max = records_max
        acker = topics.acker
        self._view_reader = ViewReader(log, acker.topics, acker.partitions, acker.limits)

    def follow(self, followed: InputRecord) -> Evidence:
        """Read everything about one record; what a missing topic would have is unknown.

        1. The record, its copies and its dead letters.
        2. The ackers' state of each emission: open, not emitted, settled.
        3. Verdicts, and the emissions that wait for a replay.
        4. Of one that timed out, what was acked.

        What waited may become a copy or a dead letter between 1 and 3; then all is read once more.
        """
        infos = self._infos(followed)
        evidence_before: Evidence | None = None
        for _ in range(_TRIES - 1):
            try:
                evidence = self._follow(followed, infos)
            except OutOfRange:
                continue
            if evidence_before is not None or not _is_nowhere(evidence):
                return evidence
            evidence_before = evidence
        return self._follow(followed, infos)

    def _follow(self, followed: InputRecord, infos: Mapping[str, TopicInfo | None]) -> Evidence:
        """Read everything about a record once, in the steps of `follow`.

        `infos` are by the name of the topic; None: it is missing.
        """
        missing = frozenset(name for name, info in infos.items() if info is None)
        tails = Tails(self._log, self._limits.operation_timeout_ms, self._records_max, missing=missing)
        input = followed.input
        place = TopicPartition(input.topic, followed.partition)

        # 1. the record, its copies and its dead letters
        record: Record | Absence | None = None
        committed: int | None = None
        end = stable_end = followed.offset + 1
        if input.topic not in missing:
            end = self._log.ends([place])[place]  # first: a record may be committed in the meantime
            record, stable_end = self._record(input.topic, followed.partition, followed.offset)
        what_is_unknown = "older copies are unknown"
        all_copies = tails.read_last(input.replay_topic, followed.partition, what_is_unknown)
        copies = [
            copy for copy in all_copies if parse_lineage(copy.headers, *copy[:3]).origin == str(followed)
        ]
        letters, stacks = self._letters(followed, tails)

        # 2. the ackers' state of each emission
        ack_topics = AckTopicSearch(tails, self._topics.ack_topics, self._topics.acker.partitions)
        reader = _Emissions(self._view_reader, ack_topics, tails, infos)
        emissions = reader.of(followed, copies, is_written=followed.offset < end)

        # 3. verdicts, and what waits; 4. of a root that timed out, what was acked
        roots = [emission.root for emission in emissions]
        decided = ack_topics.decided(roots)
        dues, fold = ack_topics.waiting(roots)
        emissions = [self._with_decided(emission, decided, ack_topics) for emission in emissions]
        # of former generations the ackers have nothing: only what a verdict or a note says counts
        emissions = [
            emission
            for emission in emissions
            if not (emission.former and emission.state in (NOT_EMITTED, SETTLED))
        ]
        emissions = _by_generation(emissions)

        taken_over: bool | None = None
        if emissions and self._topics.ack_topics.due not in missing:
            last_root = emissions[-1].root
            progress = fold.progress.get(ack_topics.acker_of(last_root))
            taken_over = _taken_over(decided.verdicts.get(last_root), progress)
        if input.topic not in missing:
            committed = self._log.committed(input.group, [place]).get(place)
        pause = fold.paused().get(input.id)
        without_note = [name for name in sorted(missing) if not any(name in note for note in tails.notes)]
        histories = [history_of(copy.headers) for copy in copies]
        histories += [letter.history for letter in letters]
        histories += [due.history for due in dues.values()]
        return Evidence(
            place=str(followed),
            input=input.name,
            group=input.group,
            record=record,
            written=followed.offset < stable_end,
            emissions=emissions,
            letters=letters,
            stacks=stacks,
            dues=dues,
            taken_over=taken_over,
            committed=committed,
            history=_joined(histories),
            notes=[*tails.notes, *(MISSING.format(name) for name in without_note)],
            paused=pause.why if pause else "",
            missing=sorted(missing),
            uncommitted=stable_end <= followed.offset < end,
            recreated=reader.is_recreated,
        )

    def _with_decided(
        self, emission: TracedEmission, decided: Decided, ack_topics: AckTopicSearch
    ) -> TracedEmission:
        """Return an emission with its verdict, what was too late of it, and calls that passed at last."""
        root = emission.root
        if root in decided.verdicts:
            emission = _with_acks(replace(emission, verdict=decided.verdicts[root]), ack_topics)
        too_late = decided.too_late.get(root)
        if too_late is not None:
            emission = replace(emission, late=too_late, late_by=self._late_by(too_late))
        if root in decided.passed:
            emission = replace(emission, passed=decided.passed[root])
        return emission

    def circumstances(
        self,
        followed: InputRecord,
        evidence: Evidence,
        now_ms: int,
        brokers: Sequence[MissingBroker] | None = None,
    ) -> Circumstances:
        """Read what is around a record: which processes live, and how much of its input is pending.

        No error of Kafka is raised: what it hides is unknown. `now_ms` is wall time; `brokers` are those that
        are missing, and None where nobody has asked for them yet.
        """
        input = followed.input
        acker = self._topics.acker
        ask = Questions(self._log)
        open_in = evidence.emissions[-1].open if evidence.emissions else None
        session = SessionName(open_in.epoch, open_in.session) if open_in is not None else None
        query = ask(live_query, self._log, self._topics, input.group, now_ms, session)
        if brokers is None:
            brokers = missing_brokers(self._log, self._topics)
        missing = broker_names(brokers)

        def members(group: str) -> Reading[int]:
            return if_it_lives(ask(self._log.members, group).then(len), missing)

        return Circumstances(
            query_lives=if_it_lives(query.then(lambda signs: signs.lives), missing),
            session_lives=if_it_lives(query.then(lambda signs: signs.session_lives), missing),
            ackers=members(acker.group),
            replay_workers=members(acker.replay_group),
            pending=ask(self._pending, input),
            pending_max=input.max_spout_pending,
            is_read=query.value is None or query.value.names_input(input),
            stopped=input.stopped,
        )

    def _late_by(self, note: TooLate) -> LateBy:
        inputs = self._topics.inputs_of(note.group)
        moved_by = mover_text(note.mover, inputs, note.wall)
        text = f"the watermark {any_time_text(note.watermark)}, moved by {moved_by}"
        return LateBy(text, mover_record(note.mover, inputs))

    def _pending(self, input: Input) -> int:
        """Return how many roots of an input are open; `Unreachable`: an acker has no State."""
        pending_count = 0
        for number in range(self._topics.acker.partitions):
            view = self._view_reader.view(number)
            if view is None:
                raise Unreachable(NO_STATE.format(number))
            for open_range in view.open_ranges():
                if input_id_of(open_range.source) == input.id:
                    pending_count += len(open_range.at)
        return pending_count

    def origin(self, text: str) -> list[InputRecord]:
        """Find the record of a place: of the record itself, of one of its copies, or of its dead letter.

        Raises:
            UsageError: it is no place, or of no input; or there is no such copy or dead letter.
        """
        parsed = parse_location(text)
        inputs = [input for input in self._topics.inputs.values() if input.tracked]
        if parsed is None:
            raise UsageError(
                f"'{UntrustedName(text)}' is no place of a record; give one such as sentences/3@1042"
            )
        name, partition, offset = parsed
        # several groups may read one topic
        readers = [input for input in inputs if name in (input.name, input.topic)]
        if readers:
            return [InputRecord(input, partition, offset) for input in readers]
        for input in inputs:
            if name in (input.replay_topic, input.dead_letter.topic):
                return [self._origin_of_copy(input, name, partition, offset, text)]
        names = ", ".join(input.name for input in inputs) or "none"
        raise UsageError(f"no tracked input of topics.yaml is called '{UntrustedName(name)}'; it has {names}")

    def _origin_of_copy(
        self, input: Input, topic: str, partition: int, offset: int, text: str
    ) -> InputRecord:
        """Return the record of which a copy or dead letter is; `text` is its place as people wrote it."""
        _require(self._log.topics([topic]).get(topic), partition)
        record, _ = self._record(topic, partition, offset)
        origin = None
        if isinstance(record, Record):
            origin = parse_location(parse_lineage(record.headers, topic, partition, offset).origin)
        if origin is None or origin[0] != input.topic:
            raise UsageError(f"there is no copy or dead letter of {input.name} at {text}")
        _, origin_partition, origin_offset = origin
        return InputRecord(input, origin_partition, origin_offset)

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
        records: list[InputRecord] = []
        notes: list[str] = []
        for input in inputs:
            room = RECORDS_SHOWN - len(records)
            records_of_input, notes_of_input = self.with_key(input, key_bytes, since_ms, room)
            records += records_of_input
            notes += notes_of_input
        if not records:
            notes.append(f"no record with key {in_sentence(show_bytes(key_bytes))} was found")
            notes += hexadecimal_note(key)
        return records, notes

    def with_key(
        self, input: Input, key: bytes | None, since_ms: int, limit: int
    ) -> tuple[list[InputRecord], list[str]]:
        """Find records by their key, which may be null, from a wall time on.

        Returns:
            The first of them, at most `limit`, and notes on what was not read.
        """
        info = self._log.topics([input.topic]).get(input.topic)
        if info is None:
            raise TopicError(MISSING.format(input.topic))
        places = [TopicPartition(input.topic, number) for number in range(info.partitions)]
        tails = Tails(self._log, self._limits.operation_timeout_ms, self._records_max)
        what_is_unknown = "records of that key there are unknown"
        records: list[InputRecord] = []
        for place, from_offset in self._log.offsets_at(places, since_ms).items():
            since = tails.read_from(place.topic, place.partition, from_offset, what_is_unknown)
            with_key = [record for record in since if record.key == key]
            records += [InputRecord(input, record.partition, record.offset) for record in with_key]
        if len(records) > limit:
            tails.notes.append(f"{len(records) - limit:,} more records have that key")
        return records[:limit], tails.notes

    def _infos(self, followed: InputRecord) -> Mapping[str, TopicInfo | None]:
        """Return the topics that may have something of a record; None: there is none of that name."""
        input = followed.input
        ours = self._topics.ack_topics
        names = [*input.topic_names()]
        names += [ours.init, ours.ack, ours.verdict, ours.state, ours.due]
        infos = self._log.topics(names)
        _require(infos.get(input.topic), followed.partition)
        return {name: infos.get(name) for name in names}

    def _record(self, topic: str, partition: int, offset: int) -> tuple[Record | Absence, int]:
        """Fetch a record, or why there is none; and return where its partition's committed records end."""
        place = TopicPartition(topic, partition)
        stable_end = self._log.stable_ends([place])[place]
        record_place = RecordPlace(topic, partition, offset)
        with closing(Fetcher(self._log, self._limits)) as fetcher:
            return fetcher.fetch([record_place])[record_place], stable_end

    def _letters(self, followed: InputRecord, tails: Tails) -> tuple[list[Letter], dict[str, str]]:
        """Return the letters of a record, oldest first, and by their places the stacks of what failed it."""
        topic = followed.input.dead_letter.topic
        info = self._log.topics([topic]).get(topic)
        box = LetterBox(Filter(places=frozenset((str(followed),)), handled=True))
        stacks: dict[str, str] = {}
        partition_count = info.partitions if info else 1
        for number in sorted(letter_partitions(followed.partition, partition_count)):
            for record in tails.read_last(topic, number, "older dead letters are unknown"):
                box.put(record)
                if parse_lineage(record.headers, *record[:3]).origin != str(followed):
                    continue
                stack = read_stack(parted_headers(record.headers, OUR_PREFIXES).added)
                if stack:
                    stacks[record.place] = stack
        return sorted(box.letters, key=lambda letter: letter.died_ms), stacks


def _require(info: TopicInfo | None, partition: int) -> None:
    """Refuse with a `UsageError` a partition that a topic does not have; None: there is no such topic."""
    if info is not None and partition >= info.partitions:
        raise UsageError(f"topic {info.name} has partitions 0 to {info.partitions - 1} only")


def _with_acks(emission: TracedEmission, ack_topics: AckTopicSearch) -> TracedEmission:
    """Return an emission; one that timed out with what was acked of it: somebody asks who was late."""
    if emission.loss is None:
        return emission
    match emission.loss.reason:
        case Verdict.FAILED | Verdict.ABANDONED:
            return emission
        case Verdict.TIMED_OUT:
            acked = ack_topics.former_contributions(emission.root, emission.loss.emitted_ms)
            return replace(emission, batches=acked.batches if acked else None)
        case _:
            assert_never(emission.loss.reason)


class _Emissions:
    """Reads the ackers' state of a record's emissions."""

    def __init__(
        self,
        view_reader: ViewReader,
        ack_topics: AckTopicSearch,
        tails: Tails,
        infos: Mapping[str, TopicInfo | None],
    ) -> None:
        self._view_reader = view_reader
        self._ack_topics = ack_topics
        self._tails = tails
        self._infos = infos
        self._views: dict[int, AckerView | None] = {}
        self.is_recreated = False
        """Whether the record's topic was created again since the ackers know it."""

    def of(
        self, followed: InputRecord, copies: Sequence[Record], *, is_written: bool
    ) -> list[TracedEmission]:
        """Return the record's emissions, one for each generation that may have it, then its copies'.

        Where its topic was created again, what `is_written` there is not emitted: the next generation has it.
        """
        input = followed.input
        source = source_of(input.id, followed.partition, replay=False)
        copies_source = source_of(input.id, followed.partition, replay=True)
        view = self._view(Root(source, position_at(0, followed.offset)))
        first_position, self.is_recreated = self._first(view, source, input.topic)
        present = generation_of(first_position)
        has_present = is_written or not self.is_recreated
        emissions: list[TracedEmission] = []
        for generation in range(present + 1 if has_present else present):
            is_former = generation < present
            root = Root(source, position_at(generation, followed.offset))
            # The present generation may begin behind the record; for former ones there are only verdicts.
            if is_former or root.position >= first_position:
                emission = self._emission(input, root, Lineage(str(followed)), str(followed))
                emissions.append(replace(emission, former=is_former))
        first_of_copies, _ = self._first(view, copies_source, input.replay_topic)
        generation_of_copies = generation_of(first_of_copies)
        for copy in copies:
            root = Root(copies_source, position_at(generation_of_copies, copy.offset))
            lineage = parse_lineage(copy.headers, *copy[:3])
            emission = self._emission(input, root, lineage, location(*copy[:3]))
            emissions.append(replace(emission, history=history_of(copy.headers)))
        return emissions

    def _first(self, view: AckerView | None, source: int, topic: str) -> tuple[int, bool]:
        """Return what `first_present` does; of a source that the ackers do not know, all is present."""
        latest = view.sources().get(source) if view else None
        if latest is None:
            return 0, False
        info = self._infos[topic]
        return first_present(latest, "" if info is None else info.id)

    def _emission(self, input: Input, root: Root, lineage: Lineage, place: str) -> TracedEmission:
        """Return one emission with what its acker has of it: open, not emitted yet, or settled."""
        view = self._view(root)
        name = root_name(place, generation_of(root.position))
        is_copy = place != lineage.origin
        emission = TracedEmission(root, name, place, lineage, is_copy)
        if view is None:
            return emission
        watermark = view.watermark(root.source)
        open_in = view.find(root.source, root.position)
        announced = root.position >= watermark and self._ack_topics.is_announced(root, view.next_init)
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
        """Return what the acker of a root has, read once; None: it is unknown, and a note says why."""
        acker = self._ack_topics.acker_of(root)
        if acker in self._views:
            return self._views[acker]
        names = self._view_reader.topics
        missing_topics = sorted(self._tails.missing & {names.state, names.verdict, names.init})
        view = None
        if missing_topics:
            self._tails.notes.append(f"what the acker has is unknown: it needs {', '.join(missing_topics)}")
        else:
            view = self._view_reader.view(acker)
            if view is None:
                self._tails.notes.append(f"acker partition {acker} has no State: what it knows is unknown")
        self._views[acker] = view
        return view


def _by_generation(emissions: Sequence[TracedEmission]) -> list[TracedEmission]:
    """Return emissions with the copies of former generations before the present one of their record.

    A rewind emits the record again, whatever became of its copies. Only what was lost has copies of its own,
    and their histories have that loss.
    """
    of_the_record = [emission for emission in emissions if not emission.copy]
    copies = [emission for emission in emissions if emission.copy]
    if not of_the_record:
        return copies
    *former, present = of_the_record
    is_first_generation = generation_of(present.root.position) == 0
    if is_first_generation or present.state in (SETTLED, UNKNOWN):
        return [*of_the_record, *copies]
    earlier_copies = copies
    copies_of_present: list[TracedEmission] = []
    if present.loss is not None:
        earlier_copies = [copy for copy in copies if not may_follow(copy.history, present)]
        copies_of_present = [copy for copy in copies if may_follow(copy.history, present)]
    return [*former, *earlier_copies, present, *copies_of_present]


def _is_nowhere(evidence: Evidence) -> bool:
    """Return whether the last emission was lost and taken over, and is in no later topic yet."""
    if not evidence.emissions:
        return False
    newest = evidence.emissions[-1]
    was_taken_over = newest.loss is not None and bool(evidence.taken_over)
    waits = newest.root in evidence.dues
    has_letter = any(is_letter_of(letter, newest) for letter in evidence.letters)
    return was_taken_over and not waits and not has_letter


def _taken_over(verdict: LoggedVerdict | None, progress: Progress | None) -> bool | None:
    """Return whether a replay worker has read a verdict; None: there is no verdict."""
    if verdict is None:
        return None
    return progress is not None and progress.next > verdict.offset


def _joined(histories: Iterable[tuple[Loss, ...]]) -> tuple[Loss, ...]:
    """Join histories: each repeats the one before it, and a full one drops its middle."""
    losses = {(loss.root, loss.attempt, loss.emitted_ms): loss for history in histories for loss in history}
    return tuple(sorted(losses.values(), key=lambda loss: loss.emitted_ms))


def event_of(record: Record) -> Event | None:
    """Decode the event of a record of an ack topic; None: it cannot be read, and an acker quarantines it."""
    try:
        return wire_codec().decode(record.value)
    except CodecError:
        return None


def _contribution_of(event: Acks, root: Root) -> int | None:
    """Return what a record contributes to a root; None: nothing."""
    rows = np.flatnonzero(positions(event.positions) == root.position)
    contributions = [int(value) for value in values(event.values)[rows]]
    # a run names roots whose whole tree was acked in one batch: each contributes its own edge
    contributions += [int(root_edge(*root)) for run in event.runs if run.start <= root.position < run.end]
    return reduce(xor, contributions) if contributions else None


def _holds(runs: Sequence[SourceRun], root: Root) -> bool:
    """Return whether a root is in one of some runs."""
    return any(run.source == root.source and run.start <= root.position < run.end for run in runs)


def _verdict_on(event: Verdicts, root: Root, record: Record) -> LoggedVerdict | None:
    """Return what a record of verdicts says of a root; None: nothing."""
    place = location(*record[:3])
    for verdict, runs in event.done():
        if _holds(runs, root):
            return LoggedVerdict(verdict, place, record.offset, record.timestamp_ms)
    for lost in event.lost:
        if lost.source == root.source and (positions(lost.positions) == root.position).any():
            return LoggedVerdict(lost.reason, place, record.offset, record.timestamp_ms, lost)
    return None
