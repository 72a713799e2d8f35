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
from typing import Final, NamedTuple

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
    may_come_from,
)
from spout.inspect.tables import UNKNOWN
from spout.planning.session import SessionName
from spout.runtime.tails import RECORDS_MAX, Tails

RECORDS_SHOWN: Final = 10
"""How many records of one key are shown, the first ones."""

ACKS_LACK: Final = "what was acked there is unknown"

_READINGS_MAX: Final = 3
"""How often a record is read at most: an acker may shorten its logs at the same time."""


class InputRecord(NamedTuple):
    """A record of an input."""

    input: Input
    partition: int
    offset: int

    def __str__(self) -> str:
        return location(self.input.topic, self.partition, self.offset)


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


class RootVerdicts(NamedTuple):
    """The verdicts of some roots, and what is noted beside them; filled while the log is read.

    Attributes:
        too_late: what a watermark dropped of a root, or of its batch.
        passed: the calls of bolts that worked on a root, did not return, and passed when they were
            made again.
    """

    verdicts: dict[Root, LoggedVerdict]
    too_late: dict[Root, TooLate]
    passed: dict[Root, tuple[PassedHere, ...]]

    def record_too_late(self, note: TooLate, roots: Iterable[Root]) -> None:
        """Record for each of some roots what the note says of it: dropped, or perhaps dropped.

        A note that names a root counts before one that only names its batch.
        """
        for root in roots:
            if note.names(*root):
                self.too_late[root] = note
            elif note.may_have_dropped(*root):
                self.too_late.setdefault(root, note)

    def record_calls(self, calls: Iterable[PassedCall], roots: Iterable[Root], at_ms: int) -> None:
        """Record for each of some roots which calls of one batch worked on it, and passed at last.

        `at_ms` is the wall time at which an acker has written that.
        """
        all_roots = list(roots)
        for call in calls:
            passed = PassedHere(call.bolt, call.error, call.explanation, at_ms)
            for root in all_roots:
                if _has_root(call.runs, root):
                    self.passed[root] = (*self.passed.get(root, ()), passed)


class AckTopicSearch:
    """Finds roots in the ack topics."""

    def __init__(self, log_reader: Tails, topics: AckTopics, partitions: int) -> None:
        """Read by `log_reader`, which keeps notes; `partitions` counts the acker partitions."""
        self._log_reader = log_reader
        self._topics = topics
        self._partitions = partitions

    def acker_of(self, root: Root) -> int:
        """Return the acker partition of a root."""
        return acker_partition(root.source, root.position, self._partitions)

    def is_announced(self, root: Root, from_offset: int) -> bool:
        """Return whether an init from an offset of ``_ack_init`` on names a root as emitted."""
        what_is_unknown = "what was announced there is unknown"
        acker = self.acker_of(root)
        records = self._log_reader.read_rest(self._topics.init, acker, from_offset, what_is_unknown)
        for record in records:
            event = event_of(record)
            if isinstance(event, Init) and _has_root(event.runs, root):
                return True
        return False

    def value_of_settled(self, root: Root, emitted_ms: int) -> RootValue | None:
        """Return the value of a settled root by all acks of it; None: some of them were not read.

        Acks are deleted some day: what is left counts only where the log begins before the root's
        emission, at `emitted_ms` (wall time).
        """
        if self._log_reader.add_note_if_missing(self._topics.ack, ACKS_LACK):
            return None
        place = TopicPartition(self._topics.ack, self.acker_of(root))
        start = self._log_reader.log.starts([place])[place]
        first_at_emission = self._log_reader.log.offsets_at([place], emitted_ms)[place]
        log_begins_before_root = first_at_emission > start
        if log_begins_before_root or start == 0:
            return self.value_of(root, start)
        return None

    def value_of(self, root: Root, offset: int, session: str | None = None) -> RootValue | None:
        """Return the value of a root by the acks from `offset` of ``_ack_ack`` on.

        Acks of one session count; None for `session`: of any. None is returned if some records were
        not read.
        """
        acker = self.acker_of(root)
        note_count = len(self._log_reader.notes)
        records = self._log_reader.read_rest(self._topics.ack, acker, offset, ACKS_LACK)
        # a new note says that records were not read
        is_missing = self._topics.ack in self._log_reader.missing
        if is_missing or len(self._log_reader.notes) > note_count:
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
        return value

    def find_verdicts(self, roots: Iterable[Root]) -> RootVerdicts:
        """Find the verdicts of roots and the notes beside them, as far back as the log is read."""
        root_verdicts = RootVerdicts({}, {}, {})
        # by lane, batch number and acker partition
        calls_counted = set[tuple[str, int, int]]()
        for acker, own_roots in self._by_acker(roots).items():
            what_is_unknown = "older verdicts are unknown"
            for record in self._log_reader.read_last(self._topics.verdict, acker, what_is_unknown):
                event = read_verdicts(record.value)
                if event is None:
                    continue
                for root in own_roots:
                    verdict = _verdict_on(event, root, record)
                    if verdict is not None:
                        root_verdicts.verdicts[root] = verdict
                if not record.headers:
                    continue
                too_late = read_too_late(record.headers)
                if too_late is not None:
                    root_verdicts.record_too_late(too_late, own_roots)
                passed = read_passed_calls(record.headers)
                # an acker that begins again may write a note twice
                if passed is not None and (passed.lane, passed.seq, acker) not in calls_counted:
                    calls_counted.add((passed.lane, passed.seq, acker))
                    root_verdicts.record_calls(passed.calls, own_roots, record.timestamp_ms)
        return root_verdicts

    def find_dues(self, roots: Iterable[Root]) -> tuple[dict[Root, Due], DueFold[Due]]:
        """Find the entries of roots in ``_ack_due``; return them, and what else the partitions say.

        The second value has the progress of replay workers, and which inputs are paused.
        """
        roots_by_acker = self._by_acker(roots)
        all_roots = [root for own_roots in roots_by_acker.values() for root in own_roots]
        entries = EntriesByRoot[Due]()
        fold = DueFold(whole_entry, entries, keeps_key=of_roots(all_roots))
        for acker in roots_by_acker:
            for record in self._log_reader.read_last(
                self._topics.due, acker, "what waited before is unknown"
            ):
                fold.put(record)
        # nobody looks for the entry of a root in another partition than its own
        dues = {root: due for (acker, root), due in entries.waiting.items() if acker == self.acker_of(root)}
        return dues, fold

    def _by_acker(self, roots: Iterable[Root]) -> dict[int, list[Root]]:
        """Return roots by acker partition, which is their partition of each ack topic, too."""
        roots_by_acker: dict[int, list[Root]] = {}
        for root in roots:
            roots_by_acker.setdefault(self.acker_of(root), []).append(root)
        return roots_by_acker


class EvidenceReader:
    """Reads what the topics of one installation have about single records."""

    def __init__(self, log: Log, topics: Topics, *, records_max: int = RECORDS_MAX) -> None:
        """Prepare; of one partition at most `records_max` records are read for one search."""
        self._log = log
        self._topics = topics
        self._limits = topics.replay.limits
        self._records_max = records_max
        acker = topics.acker
        self._view_reader = ViewReader(log, acker.topics, acker.partitions, acker.limits)

    def read_evidence(self, followed: InputRecord) -> Evidence:
        """Read everything about one record; what a missing topic would have is unknown.

        1. The record, its copies and its dead letters.
        2. The ackers' state of each emission: open, not emitted, settled.
        3. Verdicts, and the emissions that wait for a replay.
        4. Of one that timed out, what was acked.

        What waited may become a copy or a dead letter between 1 and 3; then all is read once more.
        """
        infos = self._infos(followed)
        evidence_before: Evidence | None = None
        for _ in range(_READINGS_MAX - 1):
            try:
                evidence = self._read_once(followed, infos)
            except OutOfRange:  # an acker has shortened a log that was just being read
                continue
            if evidence_before is not None or not _has_no_later_record(evidence):
                return evidence
            evidence_before = evidence
        return self._read_once(followed, infos)

    def _read_once(self, followed: InputRecord, info_by_topic: Mapping[str, TopicInfo | None]) -> Evidence:
        """Read everything about a record once, in the steps of `read_evidence`.

        `info_by_topic` are by the name of the topic; None: it is missing.
        """
        missing = frozenset(name for name, info in info_by_topic.items() if info is None)
        wait_ms = self._limits.operation_timeout_ms
        log_reader = Tails(self._log, wait_ms, self._records_max, missing=missing)
        input = followed.input
        place = TopicPartition(input.topic, followed.partition)

        # 1. the record, its copies and its dead letters
        record: Record | Absence | None = None
        # end: behind all records; stable_end: behind those of ended transactions
        end = stable_end = followed.offset + 1  # of a missing topic: as if the record were there
        if input.topic not in missing:
            end = self._log.ends([place])[place]  # first: a record may be committed in the meantime
            record, stable_end = self._record(input.topic, followed.partition, followed.offset)
        what_is_unknown = "older copies are unknown"
        copies_of_partition = log_reader.read_last(input.replay_topic, followed.partition, what_is_unknown)
        copies = [copy for copy in copies_of_partition if _lineage_of(copy).origin == str(followed)]
        letters, stacks = self._letters(followed, log_reader)

        # 2. the ackers' state of each emission
        acker = self._topics.acker
        ack_topics = AckTopicSearch(log_reader, acker.topics, acker.partitions)
        emission_reader = _EmissionReader(self._view_reader, ack_topics, log_reader, info_by_topic)
        emissions = emission_reader.read_all(followed, copies, is_written=followed.offset < end)

        # 3. verdicts, and what waits; 4. of a root that timed out, what was acked
        roots = [emission.root for emission in emissions]
        verdicts = ack_topics.find_verdicts(roots)
        dues, due_fold = ack_topics.find_dues(roots)
        emissions = [self._with_verdict(emission, verdicts, ack_topics) for emission in emissions]
        # for a former generation the ackers have no state, so an emission without a verdict or a note is
        # left out
        emissions = [
            emission
            for emission in emissions
            if not (emission.former and emission.state in (NOT_EMITTED, SETTLED))
        ]
        emissions = _by_generation(emissions)

        # None: unknown, since there is no verdict or no _ack_due
        taken_over: bool | None = None
        if emissions and self._topics.ack_topics.due not in missing:
            last_root = emissions[-1].root
            progress = due_fold.progress.get(ack_topics.acker_of(last_root))
            taken_over = _taken_over(verdicts.verdicts.get(last_root), progress)
        committed: int | None = None
        if input.topic not in missing:
            committed = self._log.committed(input.group, [place]).get(place)
        pause = due_fold.paused().get(input.id)
        missing_without_note = [
            name for name in sorted(missing) if not any(name in note for note in log_reader.notes)
        ]
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
            history=_joined_history(histories),
            notes=[*log_reader.notes, *(MISSING.format(name) for name in missing_without_note)],
            paused=pause.why if pause else "",
            missing=sorted(missing),
            uncommitted=stable_end <= followed.offset < end,
            recreated=emission_reader.is_recreated,
        )

    def _with_verdict(
        self, emission: TracedEmission, root_verdicts: RootVerdicts, ack_topics: AckTopicSearch
    ) -> TracedEmission:
        """Return an emission with its verdict, what a watermark dropped of it, and its passed calls.

        These are calls of bolts that hung or died on it, and passed when they were repeated. For a
        root that timed out, it also has how many batches acked a part of it: how far it came.
        """
        root = emission.root
        if root in root_verdicts.verdicts:
            emission = replace(emission, verdict=root_verdicts.verdicts[root])
        loss = emission.loss
        if loss is not None and loss.reason is Verdict.TIMED_OUT:
            # None: not all acks of the root were read
            root_value = ack_topics.value_of_settled(root, loss.emitted_ms)
            emission = replace(emission, batches=root_value.batch_count if root_value else None)
        too_late = root_verdicts.too_late.get(root)
        if too_late is not None:
            emission = replace(emission, late=too_late, late_by=self._late_by(too_late))
        if root in root_verdicts.passed:
            emission = replace(emission, passed=root_verdicts.passed[root])
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
        # whether that one lives matters, since its process has to ack the root
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
            pending=ask(self._open_root_count, input),
            pending_max=input.max_spout_pending,
            is_read=query.value is None or query.value.may_read_input(input),
            stopped=input.stopped,
        )

    def _late_by(self, note: TooLate) -> LateBy:
        """Describe the watermark of a note, and what moved it there."""
        inputs = self._topics.inputs_of(note.group)
        moved_by = mover_text(note.mover, inputs, note.wall)
        text = f"the watermark {any_time_text(note.watermark)}, moved by {moved_by}"
        return LateBy(text, mover_record(note.mover, inputs))

    def _open_root_count(self, input: Input) -> int:
        """Read how many roots of an input are open.

        Raises `Unreachable`: an acker partition has no State, so its open roots are unknown.
        """
        pending_count = 0
        for number in range(self._topics.acker.partitions):
            view = self._view_reader.view(number)
            if view is None:
                raise Unreachable(NO_STATE.format(number))
            for open_range in view.open_ranges():
                if input_id_of(open_range.source) == input.id:
                    pending_count += len(open_range.at)
        return pending_count

    def records_at(self, text: str) -> list[InputRecord]:
        """Return the records that a person means by a place, one of each group that reads them.

        It is the place of the record itself, of one of its copies, or of its dead letter.

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
        _require_partition(self._log.topics([topic]).get(topic), partition)
        record, _ = self._record(topic, partition, offset)
        origin = None
        if isinstance(record, Record):
            origin = parse_location(_lineage_of(record).origin)
        if origin is None or origin[0] != input.topic:
            raise UsageError(f"there is no copy or dead letter of {input.name} at {text}")
        _, origin_partition, origin_offset = origin
        return InputRecord(input, origin_partition, origin_offset)

    def search(
        self,
        inputs: Iterable[Input],
        key: str,
        since: str | None,
        now_ms: int,
        option_prefix: str = "",
    ) -> tuple[list[InputRecord], list[str]]:
        """Find records of inputs by a key as people write it, from a time on, or so long before `now_ms`.

        Returns:
            The first `RECORDS_SHOWN` of them, and notes on what was not read.

        Raises:
            UsageError: key or time cannot be parsed, or there is no time. It names both
                with `option_prefix` before: ``--from`` in a command, ``from`` on a page.
        """
        if not since:
            raise UsageError(
                f"a key needs a time to search from: give {option_prefix}from 2026-07-01T00:00:00Z, or 2h"
            )
        since_ms = named_past_ms(f"{option_prefix}from", since, now_ms)
        key_bytes = parse_key(key, option_prefix)
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
        log_reader = Tails(self._log, self._limits.operation_timeout_ms, self._records_max)
        what_is_unknown = "records of that key there are unknown"
        records: list[InputRecord] = []
        for place, from_offset in self._log.offsets_at(places, since_ms).items():
            records_since = log_reader.read_from(*place, from_offset, what_is_unknown)
            with_key = [record for record in records_since if record.key == key]
            records += [InputRecord(input, record.partition, record.offset) for record in with_key]
        if len(records) > limit:
            log_reader.notes.append(f"{len(records) - limit:,} more records have that key")
        return records[:limit], log_reader.notes

    def _infos(self, followed: InputRecord) -> Mapping[str, TopicInfo | None]:
        """Return the topics that may have something of a record; None: there is none of that name."""
        input = followed.input
        ours = self._topics.ack_topics
        names = [*input.topic_names()]
        names += [ours.init, ours.ack, ours.verdict, ours.state, ours.due]
        infos = self._log.topics(names)
        _require_partition(infos.get(input.topic), followed.partition)
        return {name: infos.get(name) for name in names}

    def _record(self, topic: str, partition: int, offset: int) -> tuple[Record | Absence, int]:
        """Fetch a record, or why there is none; and return where its partition's committed records end."""
        place = TopicPartition(topic, partition)
        stable_end = self._log.stable_ends([place])[place]
        record_place = RecordPlace(topic, partition, offset)
        with closing(Fetcher(self._log, self._limits)) as fetcher:
            return fetcher.fetch([record_place])[record_place], stable_end

    def _letters(
        self,
        followed: InputRecord,
        log_reader: Tails,
    ) -> tuple[list[Letter], dict[str, str]]:
        """Return the letters of a record, oldest first, and by their places the stacks of what failed it."""
        topic = followed.input.dead_letter.topic
        info = self._log.topics([topic]).get(topic)
        box = LetterBox(Filter(places=frozenset((str(followed),)), handled=True))
        stacks: dict[str, str] = {}
        partition_count = info.partitions if info else 1
        for number in sorted(letter_partitions(followed.partition, partition_count)):
            for record in log_reader.read_last(topic, number, "older dead letters are unknown"):
                box.put(record)
                if _lineage_of(record).origin != str(followed):
                    continue
                stack = read_stack(parted_headers(record.headers, OUR_PREFIXES).added)
                if stack:
                    stacks[record.place] = stack
        return sorted(box.letters, key=lambda letter: letter.died_ms), stacks


def _require_partition(info: TopicInfo | None, partition: int) -> None:
    """Raise `UsageError` if a topic lacks a partition; None: there is no topic to compare with."""
    if info is not None and partition >= info.partitions:
        raise UsageError(f"topic {info.name} has partitions 0 to {info.partitions - 1} only")


class _EmissionReader:
    """Reads what the ackers' States and newer records say of a record's emissions.

    Attributes:
        is_recreated: whether the record's topic was created again since the ackers know it.
    """

    def __init__(
        self,
        view_reader: ViewReader,
        ack_topics: AckTopicSearch,
        log_reader: Tails,
        infos: Mapping[str, TopicInfo | None],
    ) -> None:
        self._view_reader = view_reader
        self._ack_topics = ack_topics
        self._log_reader = log_reader
        self._infos = infos
        # by acker partition: those that were read; None: it has no State, or nobody could read it
        self._view_by_acker: dict[int, AckerView | None] = {}
        self.is_recreated = False

    def read_all(
        self, followed: InputRecord, copies: Sequence[Record], *, is_written: bool
    ) -> list[TracedEmission]:
        """Return the record's emissions, one for each generation that may have it, then its copies'.

        `is_written`: its topic has reached its offset. If the topic was created again, it is to be
        emitted in the next generation then.
        """
        input = followed.input
        source = source_of(input.id, followed.partition, replay=False)
        copies_source = source_of(input.id, followed.partition, replay=True)
        view = self._view(Root(source, position_at(0, followed.offset)))
        first_position, self.is_recreated = self._first_position_now(view, source, input.topic)
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
        first_of_copies, _ = self._first_position_now(view, copies_source, input.replay_topic)
        generation_of_copies = generation_of(first_of_copies)
        for copy in copies:
            root = Root(copies_source, position_at(generation_of_copies, copy.offset))
            lineage = _lineage_of(copy)
            emission = self._emission(input, root, lineage, location(*copy[:3]))
            emissions.append(replace(emission, history=history_of(copy.headers)))
        return emissions

    def _first_position_now(self, view: AckerView | None, source: int, topic: str) -> tuple[int, bool]:
        """Return the first position of a source's present log, and whether its topic was created again.

        (0, False) if no acker has the source in its State.
        """
        latest = view.sources().get(source) if view else None
        if latest is None:
            return 0, False
        info = self._infos[topic]
        # without an id the topic counts as the one of before
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
        # its value by the acks in the log; None: they do not say it, or nobody acks it yet
        value: RootValue | None = None
        if announced:
            value = self._ack_topics.value_of(root, view.next_ack)
        elif open_in is not None and not open_in.carried:
            value = self._ack_topics.value_of(root, open_in.ack_from, open_in.session)
        return replace(
            emission,
            watermark=watermark,
            open=open_in,
            announced=announced,
            batches=value.batch_count if value else None,
            is_acked_whole=value is not None and value.is_whole,
        )

    def _view(self, root: Root) -> AckerView | None:
        """Return what the acker of a root has, read once; None: it is unknown, and a note says why."""
        acker = self._ack_topics.acker_of(root)
        if acker in self._view_by_acker:
            return self._view_by_acker[acker]
        names = self._view_reader.topics
        needed_topics = {names.state, names.verdict, names.init}
        missing_topics = sorted(self._log_reader.missing & needed_topics)
        view = None
        if missing_topics:
            self._log_reader.notes.append(
                f"what the acker has is unknown: it needs {', '.join(missing_topics)}"
            )
        else:
            view = self._view_reader.view(acker)
            if view is None:
                self._log_reader.notes.append(
                    f"acker partition {acker} has no State: what it knows is unknown"
                )
        self._view_by_acker[acker] = view
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
        earlier_copies = [copy for copy in copies if not may_come_from(copy.history, present)]
        copies_of_present = [copy for copy in copies if may_come_from(copy.history, present)]
    return [*former, *earlier_copies, present, *copies_of_present]


def _has_no_later_record(evidence: Evidence) -> bool:
    """Return whether the last emission was lost and accepted, and no later record of it was read.

    Neither its entry nor its dead letter was; a copy would be the last emission itself.

    A replay worker may have written its copy or letter while one topic was read after another.
    """
    if not evidence.emissions:
        return False
    newest = evidence.emissions[-1]
    was_taken_over = newest.loss is not None and bool(evidence.taken_over)
    waits = newest.root in evidence.dues
    has_letter = any(is_letter_of(letter, newest) for letter in evidence.letters)
    return was_taken_over and not waits and not has_letter


def _taken_over(verdict: LoggedVerdict | None, progress: Progress | None) -> bool | None:
    """Return whether a replay worker has read a verdict; None for the result: there is no verdict.

    None for the progress: no worker has written any, so it has read nothing.
    """
    if verdict is None:
        return None
    return progress is not None and progress.next > verdict.offset


def _joined_history(histories: Iterable[tuple[Loss, ...]]) -> tuple[Loss, ...]:
    """Return the losses of several histories of one record, each once, in the order of emission.

    A later history repeats the losses of those before it. One that is full lacks those in its
    middle, which an earlier one may have.
    """
    losses = {(loss.root, loss.attempt, loss.emitted_ms): loss for history in histories for loss in history}
    return tuple(sorted(losses.values(), key=lambda loss: loss.emitted_ms))


def _lineage_of(copy: Record) -> Lineage:
    """Return what the headers of a copy or a dead letter say of the emissions before it."""
    return parse_lineage(copy.headers, copy.topic, copy.partition, copy.offset)


def event_of(record: Record) -> Event | None:
    """Decode the event of a record of an ack topic; None: it cannot be read, and an acker quarantines it."""
    try:
        return wire_codec().decode(record.value)
    except CodecError:
        return None


def _contribution_of(acks: Acks, root: Root) -> int | None:
    """Return what a record adds to a root's XOR value; None: it does not name the root."""
    indices = np.flatnonzero(positions(acks.positions) == root.position)
    contributions = [int(value) for value in values(acks.values)[indices]]
    # a run names roots whose whole tree was acked in one batch: each contributes its own edge
    own_runs = [run for run in acks.runs if run.start <= root.position < run.end]
    contributions += [int(root_edge(*root))] * len(own_runs)
    return reduce(xor, contributions) if contributions else None


def _has_root(runs: Sequence[SourceRun], root: Root) -> bool:
    """Return whether a root is in one of some runs."""
    return any(run.source == root.source and run.start <= root.position < run.end for run in runs)


def _verdict_on(verdicts: Verdicts, root: Root, record: Record) -> LoggedVerdict | None:
    """Return the verdict on a root that a record of verdicts has; None: it has none."""
    place = location(*record[:3])  # topic, partition and offset
    for verdict, runs in verdicts.done():
        if _has_root(runs, root):
            return LoggedVerdict(verdict, place, record.offset, record.timestamp_ms)
    for lost in verdicts.lost:
        if lost.source == root.source and (positions(lost.positions) == root.position).any():
            return LoggedVerdict(lost.reason, place, record.offset, record.timestamp_ms, lost)
    return None
