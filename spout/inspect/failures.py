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
from replay.records.due import Loss, history_of, left_out_count
from replay.records.headers import parse_lineage
from replay.records.letters import Letter, parse_letter
from replay.records.places import record_place, run_places
from spout.inspect.letter_rows import moment, name_field
from spout.inspect.overview import MISSING, Questions
from spout.inspect.readings import Reading
from spout.inspect.summary import VerdictCounts
from spout.inspect.tables import Column, count

GROUPS_MAX: Final = 1_000
"""How many groups of failures have their own figures; later ones are counted under `OTHERS`."""

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


class FailureCopy(NamedTuple):
    """A copy on a replay topic that was made after a failure.

    Attributes:
        group: of that failure.
        attempt: the number of this emission, those left out in which it only waited for its order.
        origin: the place of the record.
    """

    group: FailureGroup
    attempt: int
    origin: str


class _RootPlace(NamedTuple):
    """A root by its source and its offset there."""

    source: int
    offset: int


class _SettledRun(NamedTuple):
    """Copies of one source, offsets [start, end), that got a verdict.

    None for the verdict: it says nothing about how they end, since it only lets them wait for their
    order.
    """

    source: int
    start: int
    end: int
    verdict: Verdict | None


@dataclass(slots=True)
class _Tally:
    """What is counted of one group of failures.

    Attributes:
        first_ms: wall time of the first verdict that is counted, -1: there is none. Likewise
            `last_ms`.
        passed: records of calls that failed, and passed when they were made again.
        acked: how many replays were acked, by their attempt.
        lost: how many replays were lost again, by their attempt.
        last_root: the root of the newest verdict; None: there is none.
    """

    failures: int = 0
    first_ms: int = -1
    last_ms: int = -1
    dead: int = 0
    dropped: int = 0
    passed: int = 0
    acked: Counter[int] = field(default_factory=Counter)
    lost: Counter[int] = field(default_factory=Counter)
    last_root: _RootPlace | None = None

    def record_time(self, root: _RootPlace, at_ms: int) -> None:
        """Record that a verdict at a wall time said something of a root."""
        self.first_ms = at_ms if self.first_ms < 0 else min(self.first_ms, at_ms)
        if at_ms >= self.last_ms:
            self.last_ms, self.last_root = at_ms, root

    def acked_share(self, attempt: int) -> float | None:
        """Return the share of an attempt's settled replays that was acked; None: there are none."""
        settled = self.acked[attempt] + self.lost[attempt]
        return self.acked[attempt] / settled if settled else None


def offsets_since(log: Log, places: Sequence[TopicPartition], since_ms: int) -> Mapping[TopicPartition, int]:
    """Return for each partition the offset of its first record at or after a wall time, or its end."""
    what = "what was decided"
    starts = all_answers(log.bounds(Bound.START, places), what)
    offsets_at_time = all_answers(log.bounds(since_ms, places), what)
    return {place: max(starts[place], offsets_at_time[place]) for place in places}


class LogFigures:
    """Figures that are counted from topics; each call of `read` counts what is new in them."""

    def _followers(self) -> Sequence[Follower | None]:
        """Return what reads the topics; None for a topic that is missing, or not read yet."""
        raise NotImplementedError

    def read(self) -> None:
        """Count what is new, at most as much of each topic as a reader is made for."""
        raise NotImplementedError

    def read_all(self) -> Iterator[float]:
        """Read until all is read, or until a read brings nothing more.

        Before each further read, yield `fraction_read`: the share that is read of the topic that is
        least read, 0 to 1.
        """
        self.read()
        sum_before = -1.0  # less than any sum
        while not self.is_whole:
            sum_of_shares = self._sum_of_shares()
            if sum_of_shares <= sum_before:  # the last read brought nothing
                return
            sum_before = sum_of_shares
            yield self.fraction_read
            self.read()

    def _sum_of_shares(self) -> float:
        """Return a number that grows as long as something is read of any topic.

        It is the sum of the shares that were read, since topics take turns: the least share stays
        as it is while another topic is read.
        """
        return sum(follower.fraction_read for follower in self._followers() if follower is not None)

    def partial_notes(self) -> list[str]:
        """Return that the figures are of a part alone, as of the last `read`; empty: they are of all."""
        if self.is_whole:
            return []
        reasons = [follower.why_not_whole() for follower in self._followers() if follower is not None]
        share = int(100 * self.fraction_read)
        why = "; ".join(filter(None, reasons))
        why = why or f"of one of the topics {share} % are read, and then nothing came"
        return [f"the figures are of a part: {why}"]

    @property
    def is_whole(self) -> bool:
        """Whether the last `read` counted all that there was."""
        return all(follower is None or follower.is_whole for follower in self._followers())

    @property
    def fraction_read(self) -> float:
        """Which part of a topic was read, of the topic of which the smallest part was."""
        return min(1.0 if follower is None else follower.fraction_read for follower in self._followers())

    def close(self) -> None:
        """Close what reads the topics."""
        for follower in self._followers():
            if follower is not None:
                follower.close()


class FailureLog(LogFigures):
    """Counts the failures since a time; each call of `read` counts what is new in the log.

    Verdicts are read first, and tell from where on copies matter; then letters and copies. A
    verdict on a copy waits until the copy was read, which says of which failure it is the replay.

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
        self._inputs = {input.id: input for input in inputs}
        self._since_ms = since_ms
        self._read_max = read_max
        verdict_topic = topics.ack_topics.verdict
        topics_of_inputs: list[str] = []
        for input in inputs:
            topics_of_inputs += [input.replay_topic, input.dead_letter.topic]
        infos = log.topics([verdict_topic, *topics_of_inputs])
        if verdict_topic not in infos:
            raise TopicError(MISSING.format(verdict_topic))
        self.notes = [
            f"{MISSING.format(topic)}; what it would show is unknown"
            for topic in topics_of_inputs
            if topic not in infos
        ]

        def places_of(topic: str) -> list[TopicPartition]:
            return [TopicPartition(topic, number) for number in range(infos[topic].partitions)]

        places = places_of(verdict_topic)
        first_offsets = offsets_since(log, places, since_ms)
        # whether verdicts since that time may have been deleted: a log that begins behind offset 0
        # begins at the first of them
        self._is_log_cut = any(
            0 < start == first_offsets[place] for place, start in log.starts(places).items()
        )
        with ExitStack() as undo:  # closes what is open already, if one cannot be opened
            self._verdict_follower = undo.enter_context(
                closing(_open_follower(log, places, read_max, first_offsets))
            )
            # by input id; None: the topic is missing
            self._letter_followers: dict[int, Follower | None] = {}
            for input in inputs:
                letters = None
                if input.dead_letter.topic in infos:
                    places = places_of(input.dead_letter.topic)
                    first_offsets = offsets_since(log, places, since_ms)
                    letters = _open_follower(log, places, read_max, first_offsets)
                    undo.enter_context(closing(letters))
                self._letter_followers[input.id] = letters
            undo.pop_all()
        # by input id, once the verdicts show from where on copies matter
        self._copy_followers: dict[int, Follower] = {}
        # by input id: how many partitions its replay topic has, if there is one
        self._replay_partition_counts = {
            input.id: infos[input.replay_topic].partitions for input in inputs if input.replay_topic in infos
        }
        # by input id: up to where all its copies have verdicts
        self._committed_copies_by_input: dict[int, Mapping[TopicPartition, int]] = {}
        self._first_verdict_ms: int | None = None
        self._tallies: dict[FailureGroup, _Tally] = {}
        # by source, then by offset: copies that were read, and whose verdicts were not counted yet
        self._unsettled_copies: dict[int, dict[int, FailureCopy]] = {}
        # of the last roots of the tallies, those that are copies
        self._last_copies: dict[_RootPlace, FailureCopy] = {}
        # verdicts on copies, which wait until all copies were read
        self._settled_runs: list[_SettledRun] = []
        # by group: of the last call that failed, and passed when it was made again
        self._note_by_passed_call: dict[FailureGroup, str] = {}
        # lane and number of the batches whose notes on such calls were counted
        self._counted_note_batches: set[tuple[str, int]] = set()

    def _followers(self) -> Sequence[Follower | None]:
        of_inputs = [*self._copy_followers.values(), *self._letter_followers.values()]
        return [self._verdict_follower, *of_inputs]

    def read(self) -> None:
        """Count what is new.

        1. Ask up to where all copies have verdicts: step 2 reads all of these verdicts.
        2. Read verdicts: they say from where on copies matter.
        3. Read dead letters.
        4. Read copies, so that each verdict on a copy has its copy. Once all were read, count how
           the copies ended.
        """
        self._follow_new_partitions()
        # 1
        if len(self._copy_followers) < len(self._replay_partition_counts):
            for input_id in self._replay_partition_counts:
                committed = self._ask_committed_copies(input_id)
                self._committed_copies_by_input[input_id] = committed
        # 2
        for record in self._verdict_follower.read():
            self._count_verdicts(record)
        if self._verdict_follower.is_whole:
            for input_id in self._replay_partition_counts:
                if input_id not in self._copy_followers:
                    self._copy_followers[input_id] = self._open_copy_follower(input_id)
        # 3
        for input_id, letters in self._letter_followers.items():
            if letters is not None:
                for record in letters.read():
                    self._count_letter(self._inputs[input_id], record)
        # 4
        for input_id, copies in self._copy_followers.items():
            for record in copies.read():
                self._keep_copy(self._inputs[input_id], record)
        has_all_followers = len(self._copy_followers) == len(self._replay_partition_counts)
        if has_all_followers and all(copies.is_whole for copies in self._copy_followers.values()):
            self._count_settled_copies()

    def _count_settled_copies(self) -> None:
        """Count how copies ended, now that all were read, and forget those that have a verdict.

        A copy that is the last root of a group is kept in `_last_copies`: `rows` shows its record.
        """
        last_roots = {tally.last_root for tally in self._tallies.values()}
        kept_roots = self._last_copies.keys() & last_roots
        self._last_copies = {root: self._last_copies[root] for root in kept_roots}
        for source, start, end, verdict in self._settled_runs:
            copies = self._unsettled_copies.get(source, {})
            # the shorter way: through the offsets of the run, or through all copies of the source
            offsets = range(start, end) if end - start < len(copies) else list(copies)
            for offset in offsets:
                if start <= offset < end and offset in copies:
                    copy = copies.pop(offset)
                    root = _RootPlace(source, offset)
                    if root in last_roots:
                        self._last_copies[root] = copy
                    self._count_replay(copy, verdict)
        self._settled_runs = []

    def _count_replay(self, copy: FailureCopy, verdict: Verdict | None) -> None:
        """Count how an attempt after a failure ended."""
        match verdict:
            case Verdict.ACKED:
                self._tally_of(copy.group).acked[copy.attempt] += 1
            case Verdict.FAILED | Verdict.TIMED_OUT | Verdict.ABANDONED:
                self._tally_of(copy.group).lost[copy.attempt] += 1
            # ABSENT: the log has no such record. None: it waited for its order. Neither says how the
            # attempt ended
            case Verdict.ABSENT | None:
                pass
            case _:
                assert_never(verdict)

    def _ask_committed_copies(self, input_id: int) -> Mapping[TopicPartition, int]:
        """Ask up to where all copies of an input have verdicts; empty where that is unknown."""
        input = self._inputs[input_id]
        ask = Questions(self._log)
        committed = ask(self._log.committed, input.group, self._replay_partitions_of(input_id))
        return committed.value or {}

    def _replay_partitions_of(self, input_id: int) -> list[TopicPartition]:
        """Return the partitions of the replay topic of an input."""
        topic = self._inputs[input_id].replay_topic
        numbers = range(self._replay_partition_counts[input_id])
        return [TopicPartition(topic, number) for number in numbers]

    def _open_copy_follower(self, input_id: int) -> Follower:
        """Open what reads those copies of an input that have no verdict yet, or one that was read.

        It begins at the lowest of their offsets. A time names no offset of a replay topic, since a
        copy has the time of its record; and the topic keeps all copies for ever.
        """
        # by partition: the lowest offset that got one of the verdicts
        first_settled: dict[int, int] = {}
        for run in self._settled_runs:
            if input_id_of(run.source) == input_id:
                number = partition_of(run.source)
                first_settled[number] = min(run.start, first_settled.get(number, run.start))
        places = self._replay_partitions_of(input_id)
        first_offsets = dict(self._log.starts(places))
        for place, start in first_offsets.items():
            # a group that has committed nothing may have all copies open
            first_open = self._committed_copies_by_input[input_id].get(place, start)
            first_read = min(first_open, first_settled.get(place.partition, first_open))
            first_offsets[place] = max(start, first_read)
        return _open_follower(self._log, places, self._read_max, first_offsets)

    def _follow_new_partitions(self) -> None:
        """Read topics of inputs in all of their partitions, also in those that were added since."""
        followers: list[tuple[str, Follower]] = []
        for input in self._inputs.values():
            copies, letters = self._copy_followers.get(input.id), self._letter_followers[input.id]
            if copies is not None:
                followers.append((input.replay_topic, copies))
            if letters is not None:
                followers.append((input.dead_letter.topic, letters))
        infos = self._log.topics([topic for topic, _follower in followers])
        for topic, follower in followers:
            if topic in infos:
                numbers = range(infos[topic].partitions)
                follower.follow([TopicPartition(topic, number) for number in numbers])

    def rows(self, now_ms: int) -> list[dict[str, Any]]:
        """Return a row for each bolt and cause, those with the most failures first; `now_ms` is wall time."""
        began_ms = self._since_ms
        # of a log that begins later, the rate is of the time that the log has
        if (self._is_log_cut or not began_ms) and self._first_verdict_ms is not None:
            began_ms = max(began_ms, self._first_verdict_ms)
        minutes = max(1, now_ms - began_ms) / UNITS_MS["m"]
        id_by_name = {input.name: input.id for input in self._inputs.values()}
        rows = []
        for group, tally in self._tallies.items():
            has_letters = self._letter_followers[id_by_name[group.input]] is not None
            row = {
                "input": group.input,
                "operator": None if group.operator is None else name_field(group.operator),
                "cause": name_field(group.cause),
                "failures": tally.failures,
                "per_minute": tally.failures / minutes,
                "first": moment(tally.first_ms) or "",
                "last": moment(tally.last_ms) or "",
                **{f"acked_at_{attempt}": tally.acked_share(attempt) for attempt in SHARE_ATTEMPTS},
                "dead": tally.dead if has_letters else None,
                "dropped": tally.dropped if has_letters else None,
                "passed": tally.passed,
                **self._last_record(tally),
                "since": moment(began_ms),
            }
            rows.append((tally, row))
        rows.sort(key=lambda tally_and_row: (-tally_and_row[0].failures, -tally_and_row[0].dead))
        return [row for _tally, row in rows]

    def _last_record(self, tally: _Tally) -> dict[str, Any]:
        """Return the columns `last_record` and `last_attempt` of a group: of its last root.

        They are None if the group has letters alone, or the copy is no longer on its replay topic.
        """
        root = tally.last_root
        if root is None:
            return {"last_record": None, "last_attempt": None}
        if not is_replay(root.source):
            place = record_place(root.source, root.offset, list(self._inputs.values()))
            return {"last_record": place, "last_attempt": 1}
        copy = self._last_copies.get(root)
        if copy is None:
            return {"last_record": None, "last_attempt": None}
        return {"last_record": name_field(copy.origin), "last_attempt": copy.attempt}

    def all_notes(self) -> list[str]:
        """Return what is unknown, as of the last `read`."""
        cut_notes = []
        if self._is_log_cut:
            older = "older verdicts"
            if self._first_verdict_ms is not None:
                older = f"verdicts before {moment(self._first_verdict_ms)}"
            cut_notes = [f"{older} are no longer in the log"]
        return [*self.notes, *self._note_by_passed_call.values(), *cut_notes, *self.partial_notes()]

    def _count_verdicts(self, record: Record) -> None:
        """Count the failures in a record of verdicts, and keep its verdicts on copies for later."""
        verdicts = read_verdicts(record.value)
        if verdicts is None:
            return
        at_ms = record.timestamp_ms
        first_ms = self._first_verdict_ms
        self._first_verdict_ms = at_ms if first_ms is None else min(first_ms, at_ms)
        self._count_passed_calls(record, at_ms)
        for verdict, runs in verdicts.done():
            for source, start, end in runs:
                self._keep_verdict(source, start, end, verdict)
        for lost in verdicts.lost:
            input = self._inputs.get(input_id_of(lost.source))
            if input is None:
                continue
            lost_positions = positions(lost.positions)
            is_blocked = lost.error == HELD  # it waits for its order, and did not fail
            verdict_on_copy = None if is_blocked else lost.reason
            if is_replay(lost.source):
                for position in lost_positions.tolist():
                    self._keep_verdict(lost.source, position, position + 1, verdict_on_copy)
            if not is_blocked:
                tally = self._tally_of(group_of(input.name, lost.reason, lost.operator, lost.error))
                tally.failures += len(lost_positions)
                last_offset = int(offset_of(int(lost_positions[-1])))
                tally.record_time(_RootPlace(lost.source, last_offset), at_ms)

    def _count_passed_calls(self, record: Record, at_ms: int) -> None:
        """Count the records of calls that failed, and passed when they were made again.

        A header of a record of verdicts has a note of such calls: they hung, or ended their
        process. None of their records failed. An acker may write a note twice, so each batch
        counts once.
        """
        note = read_passed_calls(record.headers) if record.headers else None
        if note is None or (note.lane, note.seq) in self._counted_note_batches:
            return
        self._counted_note_batches.add((note.lane, note.seq))
        for call in note.calls:
            runs_by_input: dict[str, list[SourceRun]] = {}
            for run in call.runs:
                input = self._inputs.get(input_id_of(run.source))
                if input is not None:
                    runs_by_input.setdefault(input.name, []).append(run)
            for name, runs in runs_by_input.items():
                group = FailureGroup(name, call.bolt, call.error)
                tally = self._tally_of(group)
                tally.passed += sum(run.end - run.start for run in runs)
                last_run = runs[-1]
                last_root = _RootPlace(last_run.source, int(offset_of(last_run.end - 1)))
                tally.record_time(last_root, at_ms)
                explanation = Untrusted(call.explanation)
                self._note_by_passed_call[group] = (
                    f"{name}: a call of bolt {UntrustedName(call.bolt)} {explanation} at"
                    f" {moment(at_ms)} and passed when it was made again:"
                    f" {run_places(runs, list(self._inputs.values()))}"
                )

    def _keep_verdict(self, source: int, start: int, end: int, verdict: Verdict | None) -> None:
        """Keep a verdict on positions [start, end) of a source, if they are copies of an input.

        None for the verdict: they were blocked, and did not fail.
        """
        if is_replay(source) and input_id_of(source) in self._inputs:
            # a run is of one generation, so its offsets are neighbours as well
            start_offset, end_offset = int(offset_of(start)), int(offset_of(end - 1)) + 1
            self._settled_runs.append(_SettledRun(source, start_offset, end_offset, verdict))

    def _count_letter(self, input: Input, record: Record) -> None:
        """Count a dead letter, or the note of a dropped record, under the failure that was its last."""
        letter = parse_letter(record)
        loss = _last_failure_in(letter.history) if isinstance(letter, Letter) else None
        if not isinstance(letter, Letter) or loss is None:
            return
        tally = self._tally_of(_group_of_loss(input, loss))
        if letter.is_note:
            tally.dropped += 1
        else:
            tally.dead += 1

    def _keep_copy(self, input: Input, record: Record) -> None:
        """Keep a copy that is a replay after a failure, until its verdict is counted."""
        lineage = parse_lineage(record.headers, record.topic, record.partition, record.offset)
        # emissions in which it waited for its order count for nothing: it did not fail there
        attempt = lineage.attempt - lineage.held
        loss = _last_failure_in(history_of(record.headers))
        if attempt > 1 and loss is not None:
            source = source_of(input.id, record.partition, replay=True)
            copy = FailureCopy(_group_of_loss(input, loss), attempt, lineage.origin)
            self._unsettled_copies.setdefault(source, {})[record.offset] = copy

    def _tally_of(self, group: FailureGroup) -> _Tally:
        """Return the tally of a group; beyond `GROUPS_MAX` that of all others of the input."""
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
        """Begin at the first verdict of the last `CAUSE_KEPT_MS` + `CAUSE_NEW_MS`, 75 minutes.

        A cause is new if it failed nothing for `CAUSE_KEPT_MS` before. So each first failure of the
        last `CAUSE_NEW_MS` is compared with the full `CAUSE_KEPT_MS` before it: the same causes are
        new as for a reader that began yesterday. One `read` takes at most `read_max` records.
        `now_ms` is wall time.
        """
        self._since_ms = max(0, now_ms - CAUSE_KEPT_MS - CAUSE_NEW_MS)
        self._input_name_by_id = {input.id: input.name for input in topics.inputs.values()}
        self._cause_rules_by_input = {name: input.retry.causes for name, input in topics.inputs.items()}
        topic = topics.ack_topics.verdict
        places = [TopicPartition(topic, number) for number in range(topics.acker.partitions)]
        first_offsets = offsets_since(log, places, self._since_ms)
        self._verdict_follower = _open_follower(log, places, read_max, first_offsets)
        # by input, operator and error: when the cause failed something, and how often
        self._cause_by_group: dict[FailureGroup, SeenCause] = {}
        self.counts = VerdictCounts()

    def read(self, now_ms: int) -> Reading[Sequence[SeenCause]]:
        """Read what is new, and return the causes that failed something within `CAUSE_KEPT_MS`.

        They are unknown before all verdicts were read. `now_ms` is wall time.
        """
        for record in self._verdict_follower.read():
            event = read_verdicts(record.value)
            if event is not None:
                self._count(event, record.timestamp_ms)
        self._cause_by_group = {
            group: cause
            for group, cause in self._cause_by_group.items()
            if now_ms - cause.last_ms < CAUSE_KEPT_MS
        }
        if not self._verdict_follower.is_whole:
            since, share = moment(self._since_ms), self._verdict_follower.fraction_read
            why = self._verdict_follower.why_not_whole()
            return Reading(unknown=why or reading_text(f"verdicts since {since}", share))
        self.counts.counted_to_ms = now_ms
        return Reading(tuple(self._cause_by_group.values()))

    def _count(self, verdicts: Verdicts, at_ms: int) -> None:
        """Count the verdicts of a record, which was written at a wall time, and their causes."""
        for verdict, runs in verdicts.done():
            for source, start, end in runs:
                name = self._input_name_by_id.get(input_id_of(source))
                if name is not None:
                    self.counts.add(name, at_ms, end - start, verdict)
        for lost in verdicts.lost:
            name = self._input_name_by_id.get(input_id_of(lost.source))
            if name is None or not _is_failure(lost):
                continue
            root_count = len(positions(lost.positions))
            self.counts.add(name, at_ms, root_count, lost.reason)
            if has_rule(self._cause_rules_by_input[name], lost):
                continue  # a rule of `causes` in topics.yaml is about this failure, so it is not new
            group = group_of(name, lost.reason, lost.operator, lost.error)
            cause = self._cause_by_group.get(group)
            # beyond GROUPS_MAX causes no further one is followed, so that memory stays bounded
            if cause is None and len(self._cause_by_group) >= GROUPS_MAX:
                continue
            # a cause that comes back after so long counts as a new one
            if cause is None or at_ms - cause.last_ms >= CAUSE_KEPT_MS:
                cause = SeenCause(group, first_ms=at_ms, last_ms=at_ms, failures=0)
            failures = cause.failures + root_count
            self._cause_by_group[group] = cause._replace(last_ms=at_ms, failures=failures)

    def close(self) -> None:
        """Close what reads the verdicts."""
        self._verdict_follower.close()


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
    """Return whether roots count as failures: they failed or timed out, and were not blocked."""
    match lost.reason:
        case Verdict.FAILED:
            return lost.error != HELD  # HELD: blocked
        case Verdict.TIMED_OUT:
            return True
        case Verdict.ABANDONED:  # another session took the group
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


def _group_of_loss(input: Input, loss: Loss) -> FailureGroup:
    """Return the group of a failure that a history has."""
    return group_of(input.name, loss.reason, loss.operator, loss.error)


def _last_failure_in(history: Sequence[Loss]) -> Loss | None:
    """Return the last loss of a history that was a failure; None: it has none."""
    failures = [loss for loss in history if loss.error != HELD and not left_out_count(loss)]
    return failures[-1] if failures else None


def _open_follower(
    log: Log, places: Sequence[TopicPartition], read_max: int, first_offsets: Mapping[TopicPartition, int]
) -> Follower:
    """Open what reads partitions from these offsets on, and passes damaged batches by."""
    return Follower(log, places, read_max, first_offsets=first_offsets, on_damage=pass_damage)
