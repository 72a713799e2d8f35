"""How long records take from their emission to their verdict, from the log alone: ``windhover latency``.

An `Init` has when roots were emitted, a verdict's record when they were settled. Ackers delete inits that
they have read, every `retention_interval_ms`, so the log reaches back a minute or two; whoever reads on sees
more.
A root that timed out may be acked all the same, too late: where all its acks are still in the log, they say
when. So it can be computed how many roots another timeout would have let time out.

The log has one verdict for a whole tree: how long each bolt took is not in it, but in its driver's metrics.

Source: docs/design/protocol.md, sections 3 rule 8 and 4.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, assert_never

import numpy as np

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.errors import TopicError
from acker.identity import WIRE_BLOCK_BITS, Root, Source, acker_partition, input_id_of
from acker.kafka.port import Log, Record, TopicPartition
from acker.kafka.read_to_end import READ_MAX, Follower, pass_damage
from acker.wire.causes import HELD
from acker.wire.checks import read_verdicts, wrong_acks
from acker.wire.events import Acks, Init, Verdicts, positions
from acker.wire.verdict import Verdict
from spout.inspect.failures import LogFigures, offsets_since, share_text
from spout.inspect.letter_rows import moment
from spout.inspect.overview import MISSING
from spout.inspect.tables import Column, count, span
from spout.inspect.trail import RootValue, event_of
from spout.runtime.tails import Tails

QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99_9": 0.999}

COHORTS_MAX: Final = 100_000
"""Ranges of roots that are kept of one input, the newest ones."""

LATE_MAX: Final = 10_000
"""Roots that timed out whose later acks are looked for, the newest ones."""

LATE_ACKS_MAX: Final = 1_000_000
"""So many acks of them are remembered in all; the oldest roots are given up for it."""

LATE_FOR_MS: Final = 3_600_000
"""A root that was emitted so long ago is given up: acks are read as long as one is looked for."""

TRIED_FROM_MS: Final = 100
TRIED_MAX: Final = 100
"""Timeouts that are compared: 100 of them reach to a day."""

CLOCKS_APART_MS: Final = 60_000
"""Verdicts are read from this long before the first emission, since clocks of machines differ."""

BY_BOLT: Final = (
    "the log has one verdict for a whole tree; what each bolt took is in the metrics of its driver: name it"
    " with `--driver HOST:PORT`"
)

LATENCY: Final = (
    Column("input", "input"),
    Column("emitted", "emitted", count),
    Column("acked", "acked", count),
    *(Column(name.replace("_", "."), f"{name}_ms", span, "-") for name in QUANTILES),
    Column("timeout", "timeout_ms", span),
    Column("timed out", "timed_out", count),
    Column("acked late", "late", count),
    Column("late p50", "late_p50_ms", span, "-"),
    Column("would time out", "would_time_out", share_text),
)


@dataclass(slots=True)
class TimedCohort:
    """A cohort: the roots of one run that were emitted together, and how long they took.

    Attributes:
        start: first position; `end`: behind the last one.
        emitted_ms: wall time.
        acked: how many roots were acked after so many ms; likewise `failed`, and `late`: they timed out, and
            after so many ms all of their acks were in the log.
        timed_out: how many timed out, those of `late` among them.
        not_counted: roots that were abandoned, blocked, or had no record: a timeout means nothing
            for them.
    """

    start: int
    end: int
    emitted_ms: int
    timeout_ms: int
    acked: Counter[int] = field(default_factory=Counter)
    failed: Counter[int] = field(default_factory=Counter)
    late: Counter[int] = field(default_factory=Counter)
    timed_out: int = 0
    not_counted: int = 0


@dataclass(slots=True)
class LateRoot:
    """A root that timed out, and its value by the acks that were read so far."""

    cohort: TimedCohort
    value: RootValue


def _emission_time_ms(init: Init, appended_ms: int) -> int:
    """Return when the roots of an init were emitted, wall time.

    `init.wall` is what its writer's machine showed. Roots are emitted before the record of their
    init is appended: if the wall time is later, that machine's clock was ahead, by a minute or by
    years, and the time of the record counts. Below 0 the record has none. Ackers are not so strict:
    they keep a wall time of up to two hours ahead (`emission_wall`), which would count here.
    """
    return init.wall if appended_ms < 0 else min(init.wall, appended_ms)


def shares_timed_out(
    cohorts: Iterable[TimedCohort], timeouts_ms: Sequence[int], now_ms: int
) -> list[float | None]:
    """Return for each timeout the share of the roots that would have timed out; None without any such root.

    For a timeout of 8 s only roots count that were emitted 8 s ago or earlier: of younger ones
    nobody knows it yet. `now_ms` is wall time.
    """
    emitted_rows: list[tuple[int, int]] = []
    settled_rows: list[tuple[int, int, int]] = []
    for cohort in cohorts:
        age_ms = now_ms - cohort.emitted_ms
        # a timeout means nothing for what was abandoned, blocked or had no record: it is left out
        emitted_rows.append((age_ms, cohort.end - cohort.start - cohort.not_counted))
        for counts_by_time in (cohort.acked, cohort.failed, cohort.late):
            settled_rows += [(age_ms, took_ms, count) for took_ms, count in counts_by_time.items()]
    emitted_ages_ms, emitted_counts = np.array(emitted_rows, np.int64).reshape(-1, 2).T
    settled_ages_ms, times_ms, settled_counts = np.array(settled_rows, np.int64).reshape(-1, 3).T
    shares: list[float | None] = []
    for timeout_ms in timeouts_ms:
        emitted_count = int(emitted_counts[emitted_ages_ms >= timeout_ms].sum())
        is_in_time = (settled_ages_ms >= timeout_ms) & (times_ms <= timeout_ms)
        in_time_count = int(settled_counts[is_in_time].sum())
        shares.append((emitted_count - in_time_count) / emitted_count if emitted_count else None)
    return shares


def time_bounds(longest_ms: int) -> list[int]:
    """Return the bounds of a histogram: 0, 1, 2, 5, 10 ms and so on, up to the first at or above a time."""
    bounds = [0]
    while bounds[-1] < longest_ms:
        exponent, step = divmod(len(bounds) - 1, 3)
        bounds.append((1, 2, 5)[step] * 10**exponent)
    return bounds


def quantile(times: Mapping[int, int], share: float) -> int | None:
    """Return the time below or at which a share of some roots took; None without any root.

    `times` has how many roots took each time.
    """
    total = sum(times.values())
    count_so_far = 0
    for took_ms in sorted(times):
        count_so_far += times[took_ms]
        if count_so_far >= share * total:
            return took_ms
    return None


class CompletionLog(LogFigures):
    """The times of the roots of inputs; each call of `read` takes in what is new in the log."""

    def __init__(self, log: Log, topics: Topics, inputs: Sequence[Input], read_max: int = READ_MAX) -> None:
        """Begin where the log of inits begins; a step of `read` reads at most `read_max` records.

        Raises:
            TopicError: an ack topic is missing.
        """
        names = topics.ack_topics
        infos = log.topics([names.init, names.verdict, names.ack])
        for name in (names.init, names.verdict, names.ack):
            if name not in infos:
                raise TopicError(MISSING.format(name))
        self._log = log
        self._topics = topics
        self._read_max = read_max
        self._acker_numbers = range(topics.acker.partitions)
        self._inputs = {input.id: input for input in inputs}
        self._init_follower = Follower(
            log, self._partitions_of(names.init), read_max, committed=False, on_damage=pass_damage
        )
        self._verdict_follower: Follower | None = None
        self._first_emission_ms: int | None = None
        self._cohorts_by_source: dict[int, list[TimedCohort]] = {}
        """By source its cohorts, ascending by their first position."""
        self._uncounted_verdicts: list[tuple[int, Verdicts]] = []
        """Verdicts that wait until all inits were read, each behind the wall time of its record."""
        self._timed_out_roots: dict[Root, LateRoot] = {}
        """Roots that timed out, and of which acks are still to be read; the oldest ones first."""
        self._acks_read_to: dict[int, int] = {}
        """By acker partition, up to which offset of `_ack_ack` was read for these roots."""
        self._new_roots_since_ms: dict[int, int] = {}
        """By acker partition, when the oldest of its roots was emitted that came since then."""
        self._unread_ack_notes: list[str] = []
        """What the last call could not read of the late acks."""
        self._settled_without_init = Counter[int]()
        """By input id, how many roots were settled whose init is no longer in the log."""

    def _followers(self) -> Sequence[Follower | None]:
        return [self._init_follower, self._verdict_follower]

    @property
    def is_whole(self) -> bool:
        """Whether the last `read` took in all that there was, of the verdicts on the first init, too."""
        # without an init no verdict matters
        reads_verdicts = self._verdict_follower is not None or self._first_emission_ms is None
        return super().is_whole and reads_verdicts

    def read(self) -> None:
        """Take in what is new of the log, in each of the steps 1 to 3 at most `read_max` records.

        1. Read inits: the earliest emission says from when on verdicts matter.
        2. Read verdicts, and keep them.
        3. Read inits once more: what got a verdict in 2 may have been emitted since 1.
        4. Count the verdicts. While inits are left to read, all of them wait for a later call.
        5. Read acks of roots that timed out.
        """
        # 1
        self._read_inits()
        # 2
        if self._verdict_follower is None and self._first_emission_ms is not None:
            self._verdict_follower = self._open_verdicts(self._first_emission_ms)
        if self._verdict_follower is not None:
            for record in self._verdict_follower.read():
                verdicts = read_verdicts(record.value)
                if verdicts is not None:
                    self._uncounted_verdicts.append((record.timestamp_ms, verdicts))
        # 3
        self._read_inits()
        if not self._init_follower.is_whole:
            return
        # 4
        for written_ms, verdicts in self._uncounted_verdicts:
            self._count_verdicts(verdicts, written_ms)
        self._uncounted_verdicts = []
        # 5
        self._read_late_acks()

    def _open_verdicts(self, first_emission_ms: int) -> Follower:
        """Open what reads the verdicts on all that was emitted at a wall time or later."""
        partitions = self._partitions_of(self._topics.ack_topics.verdict)
        since_ms = max(0, first_emission_ms - CLOCKS_APART_MS)
        first_offsets = offsets_since(self._log, partitions, since_ms)
        return Follower(
            self._log,
            partitions,
            self._read_max,
            first_offsets=first_offsets,
            on_damage=pass_damage,
        )

    def cohorts(self, input: Input) -> list[TimedCohort]:
        """Return the cohorts of an input and of its copies: roots that were emitted together."""
        cohorts: list[TimedCohort] = []
        for source, cohorts_of_source in self._cohorts_by_source.items():
            if input_id_of(source) == input.id:
                cohorts += cohorts_of_source
        return cohorts

    def rows(self, now_ms: int, timeout_ms: int | None = None) -> list[dict[str, Any]]:
        """Return a row for each input; `would_time_out` is for `timeout_ms`, or its own; wall time now."""
        return [self._row(input, now_ms, timeout_ms) for input in self._inputs.values()]

    def notes(self) -> list[str]:
        """Return what is unknown, as of the last `read`."""
        notes = [
            f"{self._inputs[input_id].name}: {count:,} roots were settled whose emission is no longer in the"
            " log; how long they took is unknown"
            for input_id, count in self._settled_without_init.items()
        ]
        notes += self._unread_ack_notes
        return [*notes, *self.partial_note()]

    def _row(self, input: Input, now_ms: int, timeout_ms: int | None) -> dict[str, Any]:
        """Return the row of an input; see `rows`. Times are ms; a timeout of 0 is none."""
        cohorts = self.cohorts(input)
        acked = Counter[int]()
        late = Counter[int]()
        for cohort in cohorts:
            acked.update(cohort.acked)
            late.update(cohort.late)
        # a timeout of 0 is none: nothing would time out
        tested_timeout_ms = input.timeout_ms if timeout_ms is None else timeout_ms
        longest_ms = max([input.timeout_ms, tested_timeout_ms, *acked, *late])
        bounds = time_bounds(longest_ms)
        timeouts_ms = set(_timeouts_to_compare(longest_ms))
        if tested_timeout_ms:
            timeouts_ms.add(tested_timeout_ms)
        compared_timeouts_ms = sorted(timeouts_ms)
        *shares, would_time_out = shares_timed_out(
            cohorts, [*compared_timeouts_ms, tested_timeout_ms], now_ms
        )
        times = {f"{name}_ms": quantile(acked, share) for name, share in QUANTILES.items()}
        late_times = {f"late_{name}_ms": quantile(late, share) for name, share in QUANTILES.items()}
        return {
            "input": input.name,
            "emitted": sum(cohort.end - cohort.start for cohort in cohorts),
            "acked": acked.total(),
            **times,
            "max_ms": max(acked, default=None),
            "timeout_ms": input.timeout_ms or "never",
            "timed_out": sum(cohort.timed_out for cohort in cohorts),
            "late": late.total(),
            **late_times,
            "tested_timeout_ms": tested_timeout_ms,
            "would_time_out": would_time_out if tested_timeout_ms else 0.0,
            "since": moment(min((cohort.emitted_ms for cohort in cohorts), default=None)),
            "histogram": [
                {
                    "from_ms": low,
                    "to_ms": high,
                    "acked": _between(acked, low, high),
                    "late": _between(late, low, high),
                }
                for low, high in pairwise(bounds)
            ],
            "timeouts": [
                {"timeout_ms": compared_ms, "would_time_out": share}
                for compared_ms, share in zip(compared_timeouts_ms, shares, strict=True)
            ],
            "by_bolt": None,
            "unknown": {"by_bolt": BY_BOLT},
        }

    def _partitions_of(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of an ack topic: one for each acker partition."""
        return [TopicPartition(topic, number) for number in self._acker_numbers]

    def _read_inits(self) -> None:
        """Take in the inits that are new: each of their runs is a cohort."""
        for record in self._init_follower.read():
            init = event_of(record)
            if not isinstance(init, Init):
                continue
            emitted_ms = _emission_time_ms(init, record.timestamp_ms)
            if self._first_emission_ms is None or emitted_ms < self._first_emission_ms:
                self._first_emission_ms = emitted_ms
            for source, start, end in init.runs:
                if input_id_of(source) in self._inputs:
                    self._add_cohort(source, TimedCohort(start, end, emitted_ms, init.timeout_ms))

    def _add_cohort(self, source: int, cohort: TimedCohort) -> None:
        """Add roots that were emitted together, without those that an earlier init has named.

        A process that does not know what was announced may announce it again. So beside the cohort
        [5, 8) the new one [3, 10) adds [3, 5) and [8, 10).
        """
        cohorts = self._cohorts_by_source.setdefault(source, [])
        # they stay sorted; the cohort before this index may reach into the new one
        index = bisect_right(cohorts, cohort.start, key=lambda earlier: earlier.start)
        start = max(cohort.start, cohorts[index - 1].end) if index else cohort.start
        while start < cohort.end:
            is_last = index == len(cohorts) or cohorts[index].start >= cohort.end
            end = cohort.end if is_last else cohorts[index].start
            if start < end:
                cohorts.insert(index, TimedCohort(start, end, cohort.emitted_ms, cohort.timeout_ms))
                index += 1
            if is_last:
                break
            start = cohorts[index].end
            index += 1
        del cohorts[:-COHORTS_MAX]

    def _count_verdicts(self, verdicts: Verdicts, decided_ms: int) -> None:
        """Count in their cohorts how the roots of a record of verdicts ended, and after how long.

        `decided_ms` is the wall time of the record.
        """
        for verdict, runs in verdicts.done():
            for source, start, end in runs:
                for cohort, root_count in self._count_by_cohort(source, start, end):
                    match verdict:
                        case Verdict.ACKED:
                            cohort.acked[max(0, decided_ms - cohort.emitted_ms)] += root_count
                        case Verdict.ABSENT:
                            cohort.not_counted += root_count
                        case _:
                            assert_never(verdict)
        for lost in verdicts.lost:
            for position in positions(lost.positions).tolist():
                for cohort, root_count in self._count_by_cohort(lost.source, position, position + 1):
                    if lost.error == HELD:  # blocked: its time says nothing of a timeout
                        cohort.not_counted += root_count
                        continue
                    match lost.reason:
                        case Verdict.FAILED:
                            cohort.failed[max(0, decided_ms - cohort.emitted_ms)] += root_count
                        case Verdict.TIMED_OUT:
                            cohort.timed_out += root_count
                            root = Root(Source(lost.source), position)
                            self._begin_ack_search(root, cohort)
                        case Verdict.ABANDONED:
                            cohort.not_counted += root_count
                        case _:
                            assert_never(lost.reason)

    def _count_by_cohort(self, source: int, start: int, end: int) -> Iterator[tuple[TimedCohort, int]]:
        """Yield the cohorts that have some of the positions [start, end), each with how many of them.

        Positions without a cohort are counted in `_settled_without_init`: the log has their inits
        no more.
        """
        if input_id_of(source) not in self._inputs:
            return
        cohorts = self._cohorts_by_source.get(source, [])
        # cohorts are sorted: the first that matters may begin before `start` and reach behind it
        first_index = max(0, bisect_right(cohorts, start, key=lambda cohort: cohort.start) - 1)
        end_index = bisect_left(cohorts, end, key=lambda cohort: cohort.start)
        count_without_cohort = end - start
        for cohort in cohorts[first_index:end_index]:
            shared_count = min(end, cohort.end) - max(start, cohort.start)
            if shared_count > 0:
                count_without_cohort -= shared_count
                yield cohort, shared_count
        if count_without_cohort:
            self._settled_without_init[input_id_of(source)] += count_without_cohort

    def _begin_ack_search(self, root: Root, cohort: TimedCohort) -> None:
        """Order the acks of a root that timed out to be read, from its emission on."""
        self._timed_out_roots[root] = LateRoot(cohort, RootValue(root))
        acker = self._acker_of(root)
        since_ms = self._new_roots_since_ms.get(acker, cohort.emitted_ms)
        self._new_roots_since_ms[acker] = min(since_ms, cohort.emitted_ms)

    def _read_late_acks(self) -> None:
        """Find when roots that timed out were acked, if all of their acks are still in the log.

        1. Give up the oldest roots beyond the limits.
        2. Of each acker partition that has some, read from the emission of the oldest new one on, else from
           where the last call ended. An ack that is read again counts once.
        """
        self._give_up_oldest_roots()
        blocks_by_acker: dict[int, dict[tuple[int, int], list[Root]]] = {}
        for root in self._timed_out_roots:
            roots_by_block = blocks_by_acker.setdefault(self._acker_of(root), {})
            block = (root.source, root.position >> WIRE_BLOCK_BITS)
            roots_by_block.setdefault(block, []).append(root)
        ack_reader = Tails(self._log, self._topics.replay.limits.operation_timeout_ms)
        for acker, roots_by_block in blocks_by_acker.items():
            from_offset = self._first_ack_offset(acker)
            what_is_unknown = "late acks there are unknown"
            ack_topic = self._topics.ack_topics.ack
            records = ack_reader.read_rest(ack_topic, acker, from_offset, what_is_unknown)
            self._count_late_acks(acker, roots_by_block, records)
            self._new_roots_since_ms.pop(acker, None)
        self._unread_ack_notes = ack_reader.notes

    def _give_up_oldest_roots(self) -> None:
        """Forget the oldest of the roots that timed out, as far as they are beyond the limits."""
        roots = self._timed_out_roots.values()
        newest_ms = max((late.cohort.emitted_ms for late in roots), default=0)
        ack_count = sum(late.value.batch_count for late in roots)
        for root, late in list(self._timed_out_roots.items()):  # the oldest ones come first
            is_old = newest_ms - late.cohort.emitted_ms > LATE_FOR_MS
            if is_old or len(self._timed_out_roots) > LATE_MAX or ack_count > LATE_ACKS_MAX:
                ack_count -= late.value.batch_count
                del self._timed_out_roots[root]
        # a partition without roots is read no further; its next root begins at its own emission
        ackers = {self._acker_of(root) for root in self._timed_out_roots}
        for acker in self._acks_read_to.keys() - ackers:
            del self._acks_read_to[acker]

    def _first_ack_offset(self, acker: int) -> int:
        """Return the offset of `_ack_ack` from which the acks of an acker partition are read."""
        read_to = self._acks_read_to.get(acker)
        since_ms = self._new_roots_since_ms.get(acker)
        if since_ms is None:  # each of its roots was there in the last call, which read up to here
            return read_to or 0
        place = TopicPartition(self._topics.ack_topics.ack, acker)
        offset_since = self._log.offsets_at([place], max(0, since_ms - CLOCKS_APART_MS))[place]
        return offset_since if read_to is None else min(offset_since, read_to)

    def _acker_of(self, root: Root) -> int:
        """Return the acker partition of a root."""
        return acker_partition(root.source, root.position, len(self._acker_numbers))

    def _count_late_acks(
        self, acker: int, roots_by_block: Mapping[tuple[int, int], Sequence[Root]], records: Iterable[Record]
    ) -> None:
        """Count a root that timed out as acked late, once all of its acks were read.

        Args:
            acker: the acker partition of the records.
            roots_by_block: the roots by their source and wire block, as a record of acks is of one.
            records: of `_ack_ack`.
        """
        for record in records:
            self._acks_read_to[acker] = max(self._acks_read_to.get(acker, 0), record.offset + 1)
            acks = event_of(record)
            if not isinstance(acks, Acks) or wrong_acks(acks, acker, len(self._acker_numbers)):
                continue
            for root in roots_by_block.get((acks.source, acks.block), ()):
                late = self._timed_out_roots.get(root)
                if late is None:
                    continue  # an earlier record has acked the last of it
                late.value.add(acks)
                if late.value.is_whole:
                    cohort = self._timed_out_roots.pop(root).cohort
                    cohort.late[max(0, record.timestamp_ms - cohort.emitted_ms)] += 1


def _between(times: Mapping[int, int], low_ms: int, high_ms: int) -> int:
    """Count the roots that took longer than `low_ms` and at most `high_ms`; 0 ms is in the first part."""
    return sum(
        root_count
        for took_ms, root_count in times.items()
        if low_ms < took_ms <= high_ms or took_ms == low_ms == 0
    )


def _timeouts_to_compare(longest_ms: int) -> list[int]:
    """Return timeouts from a tenth of a second to twice the longest time, each 15 % longer."""
    timeouts_ms = [TRIED_FROM_MS]
    while timeouts_ms[-1] < 2 * longest_ms and len(timeouts_ms) < TRIED_MAX:
        timeouts_ms.append(int(timeouts_ms[-1] * 1.15))
    return timeouts_ms
