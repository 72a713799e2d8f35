"""Failures by bolt and cause, from the log alone: ``windhover failures``.

Verdicts say what failed, when, at which bolt and by which error. A copy on a replay topic says of which
failure it is the replay, and its verdict whether the replay helped; a dead letter says that none did. A root
that waits for order did not fail, and does not count.

Source: docs/design/protocol.md, sections 3 rule 11 and 5.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, assert_never

from acker.config.retry_settings import CauseRule
from acker.config.settings import Input
from acker.config.topics import Topics
from acker.errors import TopicError
from acker.identity import input_id_of, is_replay, offset_of, partition_of, source_of
from acker.kafka.port import Bound, Log, Record, TopicPartition
from acker.kafka.read_to_end import READ_MAX, Follower, pass_damage
from acker.kafka.standing import all_answers
from acker.ledger.tally import OTHERS
from acker.units import UNITS_MS
from acker.untrusted import Untrusted, UntrustedName
from acker.wire.causes import EXPLICIT, HELD, error_class, error_classes
from acker.wire.checks import read_verdicts
from acker.wire.events import Lost, SourceRun, Verdicts, positions
from acker.wire.passed_calls import read_passed_calls
from acker.wire.verdict import LostVerdict, Verdict
from replay.records.due import Loss, history_of, left_out_by
from replay.records.headers import parse_lineage
from replay.records.letters import Letter, parse_letter
from replay.records.places import record_place, run_places
from spout.inspect.letter_rows import moment, name_field
from spout.inspect.overview import MISSING, Questions
from spout.inspect.readings import Reading
from spout.inspect.summary import VerdictCounts
from spout.inspect.tables import Column, count

GROUPS_MAX: Final = 1_000
"""Groups of failures that are counted apart; what comes after them is counted under `OTHERS`."""

SHARE_ATTEMPTS: Final = (2, 3)
"""The attempts of which the share that succeeds is shown."""


def share_text(value: float) -> str:
    """Format a share; one that is not 0 is never shown as 0."""
    if 0 < value < 0.001:
        return "< 0.1 %"
    return f"{100 * value:.1f} %"


FAILURES: Final = (
    Column("input", "input"),
    Column("bolt", "operator"),
    Column("cause", "cause"),
    Column("failures", "failures", count),
    Column("a minute", "per_minute", lambda value: f"{value:.1f}"),
    Column("first", "first"),
    Column("last", "last"),
    Column("acked at 2", "acked_at_2", share_text, "-"),
    Column("acked at 3", "acked_at_3", share_text, "-"),
    Column("dead", "dead", count),
    Column("dropped", "dropped", count),
    Column("passed", "passed", count),
    Column("last record", "last_record", str, "-"),
)


class FailureGroup(NamedTuple):
    """Failures of one input at one bolt by one cause; `operator` is None where the log cannot tell it."""

    input: str
    operator: str | None
    cause: str


class Attempt(NamedTuple):
    """A copy on a replay topic: of which failure it is the replay, as which attempt, and of which record."""

    group: FailureGroup
    attempt: int
    origin: str


@dataclass(slots=True)
class _Tally:
    """Failures of one group; `last` is the source and the position of the root that it had last."""

    failures: int = 0
    first_ms: int = -1
    last_ms: int = -1
    dead: int = 0
    dropped: int = 0
    passed: int = 0
    acked: Counter[int] = field(default_factory=Counter)
    lost: Counter[int] = field(default_factory=Counter)
    last: tuple[int, int] | None = None

    def put(self, root: tuple[int, int], at_ms: int) -> None:
        """Note a root, by source and position, of which a verdict said something at a wall time."""
        self.first_ms = at_ms if self.first_ms < 0 else min(self.first_ms, at_ms)
        if at_ms >= self.last_ms:
            self.last_ms, self.last = at_ms, root

    def share(self, attempt: int) -> float | None:
        """Return which share of the settled replays that were this attempt was acked; None without any."""
        settled = self.acked[attempt] + self.lost[attempt]
        return self.acked[attempt] / settled if settled else None


def offsets_since(log: Log, places: Sequence[TopicPartition], since_ms: int) -> Mapping[TopicPartition, int]:
    """Return for each partition the offset of its first record at or after a wall time, or its end."""
    what = "what was decided"
    starts = all_answers(log.bounds(Bound.START, places), what)
    since = all_answers(log.bounds(since_ms, places), what)
    return {place: max(starts[place], since[place]) for place in places}


class LogFigures:
    """Figures that are counted from topics; each call of `read` takes in what is new in them."""

    def _followers(self) -> Sequence[Follower | None]:
        """Return what reads them; None for a topic that is missing, or not read yet."""
        raise NotImplementedError

    def read(self) -> None:
        """Take in what is new, at most as much of each topic as a reader is made for."""
        raise NotImplementedError

    def read_all(self) -> Iterator[float]:
        """Read until all is read, or nothing more comes; yield the share before each next step."""
        self.read()
        before = -1.0
        while not self.is_whole and (progress := self._progress()) > before:
            before = progress
            yield self.share_read
            self.read()

    def _progress(self) -> float:
        """Return what grows while something comes: one reader may begin where another one has got to."""
        return sum(each.share_read for each in self._followers() if each is not None)

    def partial(self) -> list[str]:
        """Return that the figures are of a part alone, as of the last `read`; empty: they are of all."""
        if self.is_whole:
            return []
        reasons = [each.why_not_whole() for each in self._followers() if each is not None]
        named = "; ".join(filter(None, reasons))
        share = int(100 * self.share_read)
        why = named or f"of one of the topics {share} % are read, and then nothing came"
        return [f"the figures are of a part: {why}"]

    @property
    def is_whole(self) -> bool:
        """Whether the last `read` took in all that there was."""
        return all(each is None or each.is_whole for each in self._followers())

    @property
    def share_read(self) -> float:
        """Which part of a topic the last `read` took in, of that which is read least."""
        return min(1.0 if each is None else each.share_read for each in self._followers())

    def close(self) -> None:
        for each in self._followers():
            if each is not None:
                each.close()


class FailureLog(LogFigures):
    """Counts the failures since a time; each call of `read` takes in what is new in the log.

    Attributes:
        notes: sentences on what is unknown.
    """

    def __init__(
        self, log: Log, topics: Topics, inputs: Sequence[Input], since_ms: int, read_max: int = READ_MAX
    ) -> None:
        """Begin at a wall time; of one topic `read` reads at most `read_max` records.

        Raises:
            TopicError: the topic of the verdicts does not exist.
        """
        self._log = log
        self._inputs = {one.id: one for one in inputs}
        self._since_ms = since_ms
        self._read_max = read_max
        names = topics.ack_topics.verdict
        of_inputs = [name for one in inputs for name in (one.replay_topic, one.dead_letter.topic)]
        infos = log.topics([names, *of_inputs])
        if names not in infos:
            raise TopicError(MISSING.format(names))

        places = [TopicPartition(names, number) for number in range(infos[names].partitions)]
        first = offsets_since(log, places, since_ms)
        self._is_cut = any(0 < start == first[place] for place, start in log.starts(places).items())
        self.notes = [
            f"{MISSING.format(name)}; what it would show is unknown"
            for name in of_inputs
            if name not in infos
        ]
        with ExitStack() as undo:

            def letter_partitions(topic: str) -> Follower | None:
                if topic not in infos:
                    return None
                places = [TopicPartition(topic, number) for number in range(infos[topic].partitions)]
                first = offsets_since(log, places, since_ms)
                return undo.enter_context(closing(_follower(log, places, read_max, first)))

            self._verdicts = undo.enter_context(closing(_follower(log, places, read_max, first)))
            self._letters = {one.id: letter_partitions(one.dead_letter.topic) for one in inputs}
            undo.pop_all()
        self._copies: dict[int, Follower] = {}
        """Of each input, once the verdicts show from where on copies matter."""
        self._replay_topics = {
            one.id: infos[one.replay_topic].partitions for one in inputs if one.replay_topic in infos
        }
        self._committed: dict[int, Mapping[TopicPartition, int]] = {}
        self._first_ms: int | None = None
        self._tallies: dict[FailureGroup, _Tally] = {}
        self._replays: dict[int, dict[int, Attempt]] = {}
        self._last_copies: dict[tuple[int, int], Attempt] = {}
        """Of the last roots of the tallies, those that are copies."""
        self._settled: list[tuple[int, int, int, Verdict | None]] = []
        """Runs of copies: source, offsets, and their verdict; None: it says nothing of how they end."""
        self._passed: dict[FailureGroup, str] = {}
        self._noted: set[tuple[str, int]] = set()

    def _followers(self) -> Sequence[Follower | None]:
        return [self._verdicts, *self._copies.values(), *self._letters.values()]

    def read(self) -> None:
        """Take in what is new; copies are read after the verdicts, so that none lacks its copy."""
        self._follow_new_partitions()
        if len(self._copies) < len(self._replay_topics):
            self._committed = {number: self._committed_of(number) for number in self._replay_topics}
        for record in self._verdicts.read():
            self._put_verdicts(record)
        for number in self._replay_topics if self._verdicts.is_whole else ():
            if number not in self._copies:
                self._copies[number] = self._copies_of(number)
        for input_id, letters in self._letters.items():
            for record in letters.read() if letters else ():
                self._put_letter(self._inputs[input_id], record)
        for input_id, copies in self._copies.items():
            for record in copies.read():
                self._put_copy(self._inputs[input_id], record)
        if len(self._copies) < len(self._replay_topics) or not all(
            each.is_whole for each in self._copies.values()
        ):
            return
        lasts = {tally.last for tally in self._tallies.values()}
        self._last_copies = {place: copy for place, copy in self._last_copies.items() if place in lasts}
        for source, start, end, verdict in self._settled:
            replays = self._replays.get(source, {})
            within = range(start, end) if end - start < len(replays) else list(replays)
            for offset in within:
                if start <= offset < end and offset in replays:
                    copy = replays.pop(offset)
                    if (source, offset) in lasts:
                        self._last_copies[source, offset] = copy
                    self._count_copy(copy, verdict)
        self._settled = []

    def _count_copy(self, copy: Attempt, verdict: Verdict | None) -> None:
        """Count how an attempt after a failure ended."""
        match verdict:
            case Verdict.ACKED:
                self._tally(copy.group).acked[copy.attempt] += 1
            case Verdict.FAILED | Verdict.TIMED_OUT | Verdict.ABANDONED:
                self._tally(copy.group).lost[copy.attempt] += 1
            case Verdict.ABSENT | None:
                pass
            case _:
                assert_never(verdict)

    def _committed_of(self, number: int) -> Mapping[TopicPartition, int]:
        """Return up to where all copies of an input have verdicts; empty where that is unknown."""
        one, partitions = self._inputs[number], range(self._replay_topics[number])
        places = [TopicPartition(one.replay_topic, partition) for partition in partitions]
        return Questions(self._log)(self._log.committed, one.group, places).value or {}

    def _copies_of(self, number: int) -> Follower:
        """Return what reads the copies of an input that are open, or have got one of the verdicts.

        A copy has the time of its record, so no offset of a replay topic can be found by time; and its topic
        keeps all copies for ever.
        """
        lowest: dict[int, int] = {}
        for source, start, _, _ in self._settled:
            if input_id_of(source) == number:
                lowest[partition_of(source)] = min(start, lowest.get(partition_of(source), start))
        partitions = range(self._replay_topics[number])
        places = [TopicPartition(self._inputs[number].replay_topic, partition) for partition in partitions]
        first = dict(self._log.starts(places))
        for place, start in first.items():
            open_from = self._committed[number].get(place, start)
            first[place] = max(start, min(open_from, lowest.get(place.partition, open_from)))
        return _follower(self._log, places, self._read_max, first)

    def _follow_new_partitions(self) -> None:
        followed = [
            (topic, follower)
            for one in self._inputs.values()
            for topic, follower in (
                (one.replay_topic, self._copies.get(one.id)),
                (one.dead_letter.topic, self._letters[one.id]),
            )
            if follower is not None
        ]
        infos = self._log.topics([topic for topic, _ in followed])
        for topic, follower in followed:
            if topic in infos:
                follower.follow([TopicPartition(topic, number) for number in range(infos[topic].partitions)])

    def rows(self, now_ms: int) -> list[dict[str, Any]]:
        """Return a row for each bolt and cause, those with the most failures first; `now_ms` is wall time."""
        began_ms = self._since_ms
        if (self._is_cut or not began_ms) and self._first_ms is not None:
            began_ms = max(began_ms, self._first_ms)
        minutes = max(1, now_ms - began_ms) / UNITS_MS["m"]
        ordered = sorted(self._tallies.items(), key=lambda item: (-item[1].failures, -item[1].dead))
        by_name = {one.name: one.id for one in self._inputs.values()}
        return [
            {
                "input": group.input,
                "operator": None if group.operator is None else name_field(group.operator),
                "cause": name_field(group.cause),
                "failures": tally.failures,
                "per_minute": tally.failures / minutes,
                "first": moment(tally.first_ms) or "",
                "last": moment(tally.last_ms) or "",
                **{f"acked_at_{each}": tally.share(each) for each in SHARE_ATTEMPTS},
                "dead": tally.dead if self._letters[by_name[group.input]] else None,
                "dropped": tally.dropped if self._letters[by_name[group.input]] else None,
                "passed": tally.passed,
                **self._last_record(tally),
                "since": moment(began_ms),
            }
            for group, tally in ordered
        ]

    def _last_record(self, tally: _Tally) -> dict[str, Any]:
        """Return the record of the last root of a group, and which of its attempts that was.

        None: the group has letters alone, or the copy is no longer on its replay topic.
        """
        if tally.last is None:
            return {"last_record": None, "last_attempt": None}
        source, position = tally.last
        if not is_replay(source):
            return {
                "last_record": record_place(source, position, list(self._inputs.values())),
                "last_attempt": 1,
            }
        copy = self._last_copies.get(tally.last)
        origin, attempt = (None, None) if copy is None else (name_field(copy.origin), copy.attempt)
        return {"last_record": origin, "last_attempt": attempt}

    def all_notes(self) -> list[str]:
        """Return what is unknown, as of the last `read`."""
        older = "older verdicts" if self._first_ms is None else f"verdicts before {moment(self._first_ms)}"
        cut = f"{older} are no longer in the log"
        return [*self.notes, *self._passed.values(), *([cut] if self._is_cut else []), *self.partial()]

    def _put_verdicts(self, record: Record) -> None:
        event = read_verdicts(record.value)
        if event is None:
            return
        at_ms = record.timestamp_ms
        self._first_ms = at_ms if self._first_ms is None else min(self._first_ms, at_ms)
        self._put_passed(record, at_ms)
        for done, runs in event.done():
            for source, start, end in runs:
                self._settle(source, start, end, done)
        for lost in event.lost:
            one = self._inputs.get(input_id_of(lost.source))
            if one is None:
                continue
            at = positions(lost.positions)
            verdict = None if lost.error == HELD else lost.reason
            for position in at.tolist() if is_replay(lost.source) else ():
                self._settle(lost.source, position, position + 1, verdict)
            if lost.error != HELD:
                tally = self._tally(group_of(one.name, lost.reason, lost.operator, lost.error))
                tally.failures += len(at)
                tally.put((lost.source, int(offset_of(int(at[-1])))), at_ms)

    def _put_passed(self, record: Record, at_ms: int) -> None:
        """Count the records of calls that hung, or ended their process, and passed when they came again.

        None of them failed. An acker may write a note twice, so its batch counts once.
        """
        note = read_passed_calls(record.headers) if record.headers else None
        if note is None or (note.lane, note.seq) in self._noted:
            return
        self._noted.add((note.lane, note.seq))
        for call in note.calls:
            runs_by_input: dict[str, list[SourceRun]] = {}
            for run in call.runs:
                if (one := self._inputs.get(input_id_of(run.source))) is not None:
                    runs_by_input.setdefault(one.name, []).append(run)
            for name, runs in runs_by_input.items():
                group = FailureGroup(name, call.bolt, call.error)
                tally = self._tally(group)
                tally.passed += sum(run.end - run.start for run in runs)
                tally.put((runs[-1].source, int(offset_of(runs[-1].end - 1))), at_ms)
                self._passed[group] = (
                    f"{name}: a call of bolt {UntrustedName(call.bolt)} {Untrusted(call.how)} at"
                    f" {moment(at_ms)} and passed when it was made again:"
                    f" {run_places(runs, list(self._inputs.values()))}"
                )

    def _settle(self, source: int, start: int, end: int, verdict: Verdict | None) -> None:
        if is_replay(source) and input_id_of(source) in self._inputs:
            self._settled.append((source, int(offset_of(start)), int(offset_of(end - 1)) + 1, verdict))

    def _put_letter(self, one: Input, record: Record) -> None:
        found = parse_letter(record)
        if not isinstance(found, Letter) or (loss := _last(found.history)) is None:
            return
        tally = self._tally(_group_of_loss(one, loss))
        if found.is_note:
            tally.dropped += 1
        else:
            tally.dead += 1

    def _put_copy(self, one: Input, record: Record) -> None:
        lineage = parse_lineage(record.headers, *record[:3])
        attempt = lineage.attempt - lineage.held
        loss = _last(history_of(record.headers))
        if attempt > 1 and loss is not None:
            source = source_of(one.id, record.partition, replay=True)
            copy = Attempt(_group_of_loss(one, loss), attempt, lineage.origin)
            self._replays.setdefault(source, {})[record.offset] = copy

    def _tally(self, group: FailureGroup) -> _Tally:
        if group not in self._tallies and len(self._tallies) >= GROUPS_MAX:
            group = FailureGroup(group.input, None, OTHERS)
        return self._tallies.setdefault(group, _Tally())


CAUSE_KEPT_MS: Final = 3_600_000
"""A cause that failed nothing for this long is new when it fails something again."""

CAUSE_NEW_MS: Final = 900_000
"""A cause is new for this long."""


def reading_text(what: str, share: float) -> str:
    """Describe why something is unknown that a page still reads; `share` of it is read."""
    return f"reading {what}, {int(100 * share)} % read"


class SeenCause(NamedTuple):
    """A cause: when it failed something first and last, wall time, and how many failures there were."""

    group: FailureGroup
    first_ms: int
    last_ms: int
    failures: int


class FirstFailures:
    """Since when each cause fails records, as the verdicts say.

    Attributes:
        counts: how many roots got which verdict.
    """

    def __init__(self, log: Log, topics: Topics, now_ms: int, read_max: int = READ_MAX) -> None:
        """Begin so long ago that who begins now, and who began long ago, find the same causes new.

        `now_ms` is wall time; one call of `read` reads at most `read_max` records.
        """
        self._since_ms = max(0, now_ms - CAUSE_KEPT_MS - CAUSE_NEW_MS)
        self._names = {one.id: one.name for one in topics.inputs.values()}
        self._rules = {name: source.retry.causes for name, source in topics.inputs.items()}
        names, numbers = topics.ack_topics.verdict, range(topics.acker.partitions)
        places = [TopicPartition(names, number) for number in numbers]
        first = offsets_since(log, places, self._since_ms)
        self._verdicts = _follower(log, places, read_max, first)
        self._seen: dict[FailureGroup, SeenCause] = {}
        self.counts = VerdictCounts()

    def read(self, now_ms: int) -> Reading[Sequence[SeenCause]]:
        """Take in what is new; return all causes, which are unknown before all was read."""
        for record in self._verdicts.read():
            if (event := read_verdicts(record.value)) is not None:
                self._put(event, record.timestamp_ms)
        kept = {each.group: each for each in self._seen.values() if now_ms - each.last_ms < CAUSE_KEPT_MS}
        self._seen = kept
        if not self._verdicts.is_whole:
            since, share = moment(self._since_ms), self._verdicts.share_read
            why = self._verdicts.why_not_whole() or reading_text(f"verdicts since {since}", share)
            return Reading(unknown=why)
        self.counts.counted_to_ms = now_ms
        return Reading(tuple(kept.values()))

    def _put(self, event: Verdicts, at_ms: int) -> None:
        for verdict, runs in event.done():
            for source, start, end in runs:
                if (name := self._names.get(input_id_of(source))) is not None:
                    self.counts.add(name, at_ms, end - start, verdict)
        for lost in event.lost:
            name = self._names.get(input_id_of(lost.source))
            if name is None or not _is_failure(lost):
                continue
            group = group_of(name, lost.reason, lost.operator, lost.error)
            count = len(positions(lost.positions))
            self.counts.add(name, at_ms, count, lost.reason)
            if has_rule(self._rules[name], lost):
                continue  # whoever wrote the file has foreseen it
            was = self._seen.get(group)
            if was is None or at_ms - was.last_ms >= CAUSE_KEPT_MS:
                was = SeenCause(group, at_ms, at_ms, 0)
            if group in self._seen or len(self._seen) < GROUPS_MAX:
                self._seen[group] = SeenCause(group, was.first_ms, at_ms, was.failures + count)

    def close(self) -> None:
        self._verdicts.close()


def has_rule(rules: Iterable[CauseRule], lost: Lost) -> bool:
    """Return whether one of an input's rules of `causes` fits a failure; a root that timed out has none."""
    match lost.reason:
        case Verdict.FAILED:
            classes = error_classes(lost.error)
            return any(
                rule.error in (None, *classes) and rule.operator in (None, lost.operator) for rule in rules
            )
        case Verdict.TIMED_OUT | Verdict.ABANDONED:
            return False
        case _:
            assert_never(lost.reason)


def _is_failure(lost: Lost) -> bool:
    """Return whether bolts, or the time that they took, let roots be lost; no blocked root was."""
    match lost.reason:
        case Verdict.FAILED:
            return lost.error != HELD
        case Verdict.TIMED_OUT:
            return True
        case Verdict.ABANDONED:
            return False
        case _:
            assert_never(lost.reason)


def group_of(name: str, verdict: LostVerdict, operator: str, error: str) -> FailureGroup:
    """Return the group of a failure of an input; which bolt let a root time out is unknown."""
    match verdict:
        case Verdict.FAILED:
            return FailureGroup(name, operator, error_class(error) or EXPLICIT)
        case Verdict.TIMED_OUT:
            return FailureGroup(name, None, error_class(error) or verdict.value)
        case Verdict.ABANDONED:
            return FailureGroup(name, operator, error_class(error) or verdict.value)
        case _:
            assert_never(verdict)


def _group_of_loss(one: Input, loss: Loss) -> FailureGroup:
    return group_of(one.name, loss.reason, loss.operator, loss.error)


def _last(history: Sequence[Loss]) -> Loss | None:
    """Return the last loss that was a failure; None: there is none."""
    failures = [loss for loss in history if loss.error != HELD and not left_out_by(loss)]
    return failures[-1] if failures else None


def _follower(
    log: Log, places: Sequence[TopicPartition], read_max: int, first: Mapping[TopicPartition, int]
) -> Follower:
    return Follower(log, places, read_max, first=first, on_damage=pass_damage)
