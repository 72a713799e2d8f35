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
from acker.identity import WIRE_BLOCK_BITS, Root, acker_partition, input_id_of, root_edge
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
from spout.inspect.trail import contribution_of, events_of
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
    """Roots that were emitted together, and how long they took.

    Attributes:
        start: first position; `end`: behind the last one.
        emitted_ms: wall time.
        acked: how many roots were acked after so many ms; likewise `failed`, and `late`: they timed out, and
            after so many ms all of their acks were in the log.
        timed_out: how many timed out, those of `late` among them.
        left: roots that were abandoned, blocked, or had no record: a timeout means nothing for them.
    """

    start: int
    end: int
    emitted_ms: int
    timeout_ms: int
    acked: Counter[int] = field(default_factory=Counter)
    failed: Counter[int] = field(default_factory=Counter)
    late: Counter[int] = field(default_factory=Counter)
    timed_out: int = 0
    left: int = 0


@dataclass(slots=True)
class LateRoot:
    """A root that timed out, and what its acks are in the log so far.

    Attributes:
        missing: the XOR value without them; 0: all are there.
        seen: which acks, by lane and number, so that none counts twice where records are read again.
    """

    cohort: TimedCohort
    missing: int
    seen: set[tuple[str, int]] = field(default_factory=set)


def shares_timed_out(
    cohorts: Iterable[TimedCohort], timeouts_ms: Sequence[int], now_ms: int
) -> list[float | None]:
    """Return for each timeout the share of the roots that would have timed out; None without any such root.

    Only roots that were emitted so long ago count: of younger ones it is not known yet. `now_ms` is wall
    time.
    """
    roots: list[tuple[int, int]] = []
    settled: list[tuple[int, int, int]] = []
    for each in cohorts:
        age_ms = now_ms - each.emitted_ms
        roots.append((age_ms, each.end - each.start - each.left))
        for times in (each.acked, each.failed, each.late):
            settled += [(age_ms, took_ms, found) for took_ms, found in times.items()]
    ages_ms, sizes = np.array(roots, np.int64).reshape(-1, 2).T
    of_ms, took_ms_, counts = np.array(settled, np.int64).reshape(-1, 3).T
    shares: list[float | None] = []
    for timeout_ms in timeouts_ms:
        all_ = int(sizes[ages_ms >= timeout_ms].sum())
        in_time = int(counts[(of_ms >= timeout_ms) & (took_ms_ <= timeout_ms)].sum())
        shares.append((all_ - in_time) / all_ if all_ else None)
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
    passed = 0
    for took_ms in sorted(times):
        passed += times[took_ms]
        if passed >= share * total:
            return took_ms
    return None


class CompletionLog(LogFigures):
    """The times of the roots of inputs; each call of `read` takes in what is new in the log."""

    def __init__(self, log: Log, topics: Topics, inputs: Sequence[Input], read_max: int = READ_MAX) -> None:
        """Begin where the log of inits begins; of one topic `read` reads at most `read_max` records.

        Raises:
            TopicError: an ack topic is missing.
        """
        names = topics.ack_topics
        infos = log.topics([names.init, names.verdict, names.ack])
        for name in (names.init, names.verdict, names.ack):
            if name not in infos:
                raise TopicError(MISSING.format(name))
        self._log, self._topics, self._read_max = log, topics, read_max
        self._numbers = range(topics.acker.partitions)
        self._inputs = {one.id: one for one in inputs}
        self._inits = Follower(
            log, self._places(names.init), read_max, committed=False, on_damage=pass_damage
        )
        self._verdicts: Follower | None = None
        self._first_ms: int | None = None
        self._sources: dict[int, list[TimedCohort]] = {}
        self._unplaced: list[tuple[int, Verdicts]] = []
        self._late: dict[Root, LateRoot] = {}
        self._acks_read: dict[int, int] = {}
        """Up to which offset the acks of an acker partition were read for all of these roots but the new."""
        self._acks_since_ms: dict[int, int] = {}
        """When the oldest new one of these roots was emitted, by acker partition."""
        self._acks_unread: list[str] = []
        self._before = Counter[int]()

    def _followers(self) -> Sequence[Follower | None]:
        return [self._inits, self._verdicts]

    @property
    def is_whole(self) -> bool:
        """Whether the last `read` took in all that there was, of the verdicts on the first init, too."""
        return super().is_whole and (self._verdicts is not None or self._first_ms is None)

    def read(self) -> None:
        """Take in what is new; inits are read after the verdicts, so that none lacks its init."""
        self._read_inits()
        if self._verdicts is None and self._first_ms is not None:
            places = self._places(self._topics.ack_topics.verdict)
            first = offsets_since(self._log, places, max(0, self._first_ms - CLOCKS_APART_MS))
            self._verdicts = Follower(self._log, places, self._read_max, first=first, on_damage=pass_damage)
        for record in self._verdicts.read() if self._verdicts else ():
            if (event := read_verdicts(record.value)) is not None:
                self._unplaced.append((record.timestamp_ms, event))
        self._read_inits()
        if not self._inits.is_whole:
            return
        for at_ms, event in self._unplaced:
            self._settle(event, at_ms)
        self._unplaced = []
        self._read_late_acks()

    def cohorts(self, one: Input) -> list[TimedCohort]:
        """Return the cohorts of an input, of copies too."""
        return [
            each for source, found in self._sources.items() if input_id_of(source) == one.id for each in found
        ]

    def rows(self, now_ms: int, timeout_ms: int | None = None) -> list[dict[str, Any]]:
        """Return a row for each input; `would_time_out` is for `timeout_ms`, or its own; wall time now."""
        return [self._row(one, now_ms, timeout_ms) for one in self._inputs.values()]

    def notes(self) -> list[str]:
        """Return what is unknown, as of the last `read`."""
        notes = [
            f"{self._inputs[number].name}: {found:,} roots were settled whose emission is no longer in the"
            " log; how long they took is unknown"
            for number, found in self._before.items()
        ]
        notes += self._acks_unread
        return [*notes, *self.partial()]

    def _row(self, one: Input, now_ms: int, timeout_ms: int | None) -> dict[str, Any]:
        found = self.cohorts(one)
        acked, late = Counter[int](), Counter[int]()
        for each in found:
            acked.update(each.acked)
            late.update(each.late)
        tested_ms = one.timeout_ms if timeout_ms is None else timeout_ms
        longest_ms = max([one.timeout_ms, tested_ms, *acked, *late])
        bounds = time_bounds(longest_ms)
        tried = sorted({*_tried(longest_ms), *([tested_ms] if tested_ms else [])})
        *shares, would_time_out = shares_timed_out(found, [*tried, tested_ms], now_ms)
        times = {f"{name}_ms": quantile(acked, share) for name, share in QUANTILES.items()}
        late_times = {f"late_{name}_ms": quantile(late, share) for name, share in QUANTILES.items()}
        return {
            "input": one.name,
            "emitted": sum(each.end - each.start for each in found),
            "acked": acked.total(),
            **times,
            "max_ms": max(acked, default=None),
            "timeout_ms": one.timeout_ms or "never",
            "timed_out": sum(each.timed_out for each in found),
            "late": late.total(),
            **late_times,
            "tested_timeout_ms": tested_ms,
            "would_time_out": would_time_out if tested_ms else 0.0,
            "since": moment(min((each.emitted_ms for each in found), default=None)),
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
                {"timeout_ms": at, "would_time_out": share} for at, share in zip(tried, shares, strict=True)
            ],
            "by_bolt": None,
            "unknown": {"by_bolt": BY_BOLT},
        }

    def _places(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for number in self._numbers]

    def _read_inits(self) -> None:
        for event in events_of(self._inits.read()):
            if not isinstance(event, Init):
                continue
            self._first_ms = event.wall if self._first_ms is None else min(self._first_ms, event.wall)
            for source, start, end in event.runs:
                if input_id_of(source) in self._inputs:
                    self._emit(source, TimedCohort(start, end, event.wall, event.timeout_ms))

    def _emit(self, source: int, cohort: TimedCohort) -> None:
        found = self._sources.setdefault(source, [])
        at = bisect_right(found, cohort.start, key=lambda each: each.start)
        start = max(cohort.start, found[at - 1].end) if at else cohort.start
        if start >= cohort.end:
            return  # announced again by a process that does not know that it was
        cohort.start = start
        found.insert(at, cohort)
        del found[:-COHORTS_MAX]

    def _settle(self, event: Verdicts, at_ms: int) -> None:
        for verdict, runs in event.done():
            for source, start, end in runs:
                for cohort, found in self._within(source, start, end):
                    match verdict:
                        case Verdict.ACKED:
                            cohort.acked[max(0, at_ms - cohort.emitted_ms)] += found
                        case Verdict.ABSENT:
                            cohort.left += found
                        case _:
                            assert_never(verdict)
        for lost in event.lost:
            for position in positions(lost.positions).tolist():
                for cohort, found in self._within(lost.source, position, position + 1):
                    if lost.error == HELD:
                        cohort.left += found
                        continue
                    match lost.reason:
                        case Verdict.FAILED:
                            cohort.failed[max(0, at_ms - cohort.emitted_ms)] += found
                        case Verdict.TIMED_OUT:
                            cohort.timed_out += found
                            self._seek_acks(Root(lost.source, position), cohort)  # type: ignore[arg-type]
                        case Verdict.ABANDONED:
                            cohort.left += found
                        case _:
                            assert_never(lost.reason)

    def _within(self, source: int, start: int, end: int) -> Iterator[tuple[TimedCohort, int]]:
        """Yield the cohorts that have some positions, each with how many of them."""
        if input_id_of(source) not in self._inputs:
            return
        found, left = self._sources.get(source, []), end - start
        at = max(0, bisect_right(found, start, key=lambda each: each.start) - 1)
        for cohort in found[at : bisect_left(found, end, key=lambda each: each.start)]:
            both = min(end, cohort.end) - max(start, cohort.start)
            if both > 0:
                left -= both
                yield cohort, both
        if left:
            self._before[input_id_of(source)] += left

    def _seek_acks(self, root: Root, cohort: TimedCohort) -> None:
        self._late[root] = LateRoot(cohort, int(root_edge(*root)))
        acker = self._acker_of(root)
        since_ms = self._acks_since_ms.get(acker, cohort.emitted_ms)
        self._acks_since_ms[acker] = min(since_ms, cohort.emitted_ms)

    def _read_late_acks(self) -> None:
        """Find when roots that timed out were acked, if all of their acks are still in the log.

        1. Give up the oldest roots beyond the limits.
        2. Of each acker partition that has some, read from the emission of the oldest new one on, else from
           where the last call ended. An ack that is read again counts once.
        """
        self._give_up()
        by_acker: dict[int, dict[tuple[int, int], list[Root]]] = {}
        for root in self._late:
            blocks = by_acker.setdefault(self._acker_of(root), {})
            blocks.setdefault((root.source, root.position >> WIRE_BLOCK_BITS), []).append(root)
        tails = Tails(self._log, self._topics.replay.limits.operation_timeout_ms)
        for acker, blocks in by_acker.items():
            first = self._first_ack(acker)
            records = tails.rest(self._topics.ack_topics.ack, acker, first, "late acks there are unknown")
            self._fold(acker, blocks, records)
            self._acks_since_ms.pop(acker, None)
        self._acks_unread = tails.notes

    def _give_up(self) -> None:
        """Of partitions that have no root left, the next one begins at its own emission."""
        newest_ms = max((each.cohort.emitted_ms for each in self._late.values()), default=0)
        acks = sum(len(each.seen) for each in self._late.values())
        for root, each in list(self._late.items()):
            is_old = newest_ms - each.cohort.emitted_ms > LATE_FOR_MS
            if is_old or len(self._late) > LATE_MAX or acks > LATE_ACKS_MAX:
                acks -= len(each.seen)
                del self._late[root]
        ackers = {self._acker_of(root) for root in self._late}
        self._acks_read = {acker: at for acker, at in self._acks_read.items() if acker in ackers}

    def _first_ack(self, acker: int) -> int:
        read = self._acks_read.get(acker)
        since_ms = self._acks_since_ms.get(acker)
        if since_ms is None:
            return read or 0
        place = TopicPartition(self._topics.ack_topics.ack, acker)
        at = self._log.offsets_at([place], max(0, since_ms - CLOCKS_APART_MS))[place]
        return at if read is None else min(at, read)

    def _acker_of(self, root: Root) -> int:
        return acker_partition(root.source, root.position, len(self._numbers))

    def _fold(
        self, acker: int, blocks: Mapping[tuple[int, int], Sequence[Root]], records: Iterable[Record]
    ) -> None:
        for record in records:
            self._acks_read[acker] = max(self._acks_read.get(acker, 0), record.offset + 1)
            for event in events_of([record]):
                if not isinstance(event, Acks) or wrong_acks(event, acker, len(self._numbers)):
                    continue
                name = event.lane, event.seq
                for root in blocks.get((event.source, event.block), ()):
                    found = self._late.get(root)
                    if found is None or name in found.seen:
                        continue
                    value = contribution_of(event, root)
                    if value is None:
                        continue
                    found.seen.add(name)
                    found.missing ^= value
                    if found.missing == 0:
                        cohort = self._late.pop(root).cohort
                        cohort.late[max(0, record.timestamp_ms - cohort.emitted_ms)] += 1


def _between(times: Mapping[int, int], low_ms: int, high_ms: int) -> int:
    """Count the roots that took longer than `low_ms` and at most `high_ms`; 0 ms is in the first part."""
    return sum(
        found for took_ms, found in times.items() if low_ms < took_ms <= high_ms or took_ms == low_ms == 0
    )


def _tried(longest_ms: int) -> list[int]:
    """Return timeouts to compare, from a tenth of a second to twice the longest time, each 15 % longer."""
    tried = [TRIED_FROM_MS]
    while tried[-1] < 2 * longest_ms and len(tried) < TRIED_MAX:
        tried.append(int(tried[-1] * 1.15))
    return tried
