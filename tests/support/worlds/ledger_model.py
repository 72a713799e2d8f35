"""What a ledger must decide, count and keep, as one plain entry for each root; and a script that drives both.

The model knows positions one by one: no array, no block, no form of a range. Of what a restart needs it
knows the first record that a range depends on. Where the ledger may keep more than it must (a place in the
log for a range that a restart would not need), the model has both bounds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import numpy as np

from acker.identity import I64, WIRE_BLOCK_BITS, root_edge, source_of
from acker.ledger.cohort import InitEmission, Pin, RootCohort, Session
from acker.ledger.contribution import Contribution
from acker.ledger.ledger import Ledger
from acker.ledger.verdicts import LossCause, VerdictSet
from acker.wire.events import (
    Acks,
    Lost,
    PositionRun,
    SourceRun,
    Verdicts,
    pack_positions,
    pack_values,
    positions,
)
from acker.wire.verdict import Verdict

SOURCES = (source_of(1, 0), source_of(1, 0, replay=True), source_of(2, 7))
SESSIONS = (Session("g", 1, "a"), Session("g", 2, "b"), Session("h", 1, "a"))
BLOCK = 1 << WIRE_BLOCK_BITS
NEAR = 6
"""Positions are drawn so near to the ends of ranges and blocks, so that they meet."""

Place = tuple[int, int]
"""A source and a position."""


@dataclass
class OpenRoot:
    """A root without a verdict; `deadline_ms` is None without a timeout."""

    range: Range
    missing: int
    deadline_ms: int | None


@dataclass(eq=False)
class Range:
    """An emitted range, cut at blocks.

    Attributes:
        ack_pin_min: the place that a restart must at least read from; None: none.
        ack_pin_max: what the ledger may keep at most; None: nothing.
    """

    emission: InitEmission
    ack_from: int
    start: int
    ack_pin_min: Pin | None = None
    ack_pin_max: Pin | None = None
    verdict_pin: Pin | None = None
    bin_number: int | None = None


@dataclass
class LedgerModel:
    """All roots of one acker partition."""

    open: dict[Place, OpenRoot] = field(default_factory=dict)
    watermarks: dict[int, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    verdicts: dict[Place, tuple[object, ...]] = field(default_factory=dict)
    ahead: list[SourceRun] = field(default_factory=list)
    first_pin_without_init: Pin | None = None
    verdict_end_pin: Pin = field(default_factory=lambda: Pin(0, 0))
    ranges: list[Range] = field(default_factory=list)
    changed_min: set[int] = field(default_factory=set)
    changed_max: set[int] = field(default_factory=set)

    def init(self, emission: InitEmission, run: SourceRun, ack_from: int) -> None:
        """Open what was never opened."""
        watermark = self.watermarks.get(run.source, 0)
        fresh = [position for position in range(run.start, run.end) if position >= watermark]
        self.counts["ignored"] += run.end - run.start - len(fresh)
        self.counts["initialised"] += len(fresh)
        ranges: dict[int, Range] = {}
        for position in fresh:
            piece = ranges.setdefault(position // BLOCK, Range(emission, ack_from, position))
            due_ms = emission.at_ms + emission.timeout_ms if emission.timeout_ms else None
            self.open[run.source, position] = OpenRoot(piece, root_edge(run.source, position), due_ms)
        self.ranges += ranges.values()
        if fresh:
            self.watermarks[run.source] = run.end
        settled_before = [
            (run.source, position)
            for position in fresh
            if any(seen.source == run.source and seen.start <= position < seen.end for seen in self.ahead)
        ]
        self._settle_logged(settled_before, self.first_pin_without_init or self.verdict_end_pin)

    def fail(self, session: Session, source: int, named: list[int], cause: LossCause) -> None:
        """Settle as lost."""
        hits = self._open_of(session, source, named)
        self.counts["failed"] += len(hits)
        self._count_missed(source, named, len(hits))
        self._lose(hits, cause)

    def absent(self, session: Session, source: int, runs: list[PositionRun]) -> None:
        """Settle as absent."""
        named = members(runs)
        hits = self._open_of(session, source, named)
        self.counts["absent"] += len(hits)
        self._count_missed(source, named, len(hits))
        self._decide(hits, ("ABSENT",))

    def fold(self, session: Session, record: Acks, pin: Pin) -> None:
        """Add up, and settle what is complete."""
        source = record.source
        named = contributions_of(record)
        counting = [
            (position, value)
            for position, value in named
            if (root := self.open.get((source, position))) and root.range.emission.session == session
        ]
        self._add(source, counting)
        self.counts["folded"] += len(counting)
        self._count_missed(source, [position for position, _ in named], len(counting))
        touched = {(source, position) for position, _ in counting}
        complete = sorted(place for place in touched if not self.open[place].missing)
        self.counts["acked"] += len(complete)
        ranges = {id(self.open[place].range): self.open[place].range for place in sorted(touched)}
        waiting = {id(self.open[place].range) for place in touched if self.open[place].missing}
        self._decide(complete, ("ACKED",))
        for key, piece in ranges.items():
            self._pin(piece, pin, must=key in waiting)

    def refold(self, session: Session, record: Acks, pin: Pin) -> None:
        """Add up again; nothing is settled."""
        source = record.source
        counting = [
            (position, value)
            for position, value in contributions_of(record)
            if (root := self.open.get((source, position))) and self._is_live(root.range, session, pin)
        ]
        self._add(source, counting)
        for position, _ in counting:
            self._pin(self.open[source, position].range, pin, must=True)

    def touch(
        self, session: Session, source: int, named: list[int], at_ms: int, pin: Pin, *, again: bool
    ) -> None:
        """Move deadlines, never backwards."""
        for place in self._open_of(session, source, named):
            root = self.open[place]
            if again and not self._is_live(root.range, session, pin):
                continue
            if root.deadline_ms is not None:
                due_ms = at_ms + root.range.emission.timeout_ms
                self._pin(root.range, pin, must=due_ms > root.deadline_ms)
                root.deadline_ms = max(root.deadline_ms, due_ms)

    def expire(self, session: Session, clock_ms: int) -> None:
        """Settle what is due."""
        due = [
            place
            for place, root in self.open.items()
            if root.range.emission.session == session
            and root.deadline_ms is not None
            and root.deadline_ms <= clock_ms
        ]
        self.counts["timed_out"] += len(due)
        self._lose(due, LossCause(Verdict.TIMED_OUT, "", "", "", clock_ms))

    def abandon(self, sessions: set[Session], sources: set[int], clocks_ms: dict[Session, int]) -> None:
        """Settle all of some sessions and sources, each by the clock of its session."""
        for place, root in list(self.open.items()):
            session = root.range.emission.session
            if session in sessions and place[0] in sources:
                self.counts["abandoned"] += 1
                self._lose([place], LossCause(Verdict.ABANDONED, "", "", "", clocks_ms[session]))

    def settle_logged(self, runs: list[SourceRun], pin: Pin) -> None:
        """Settle what has its verdict in the log, and keep what was never opened."""
        for run in runs:
            start = max(run.start, self.watermarks.get(run.source, 0))
            if start < run.end:
                self.ahead.append(SourceRun(run.source, start, run.end))
                self.first_pin_without_init = self.first_pin_without_init or pin
            hits = [
                place for place in self.open if place[0] == run.source and run.start <= place[1] < run.end
            ]
            self._settle_logged(hits, pin)

    def _open_of(self, session: Session, source: int, named: list[int]) -> list[Place]:
        places = sorted({(source, position) for position in named})
        return [
            place
            for place in places
            if place in self.open and self.open[place].range.emission.session == session
        ]

    def _is_live(self, piece: Range, session: Session, pin: Pin) -> bool:
        return piece.emission.session == session and piece.bin_number is None and piece.ack_from <= pin.offset

    def _add(self, source: int, counting: list[tuple[int, int]]) -> None:
        for position, value in counting:
            self.open[source, position].missing ^= value

    def _count_missed(self, source: int, named: list[int], counted: int) -> None:
        above = sum(position >= self.watermarks.get(source, 0) for position in named)
        self.counts["above"] += above
        self.counts["late"] += len(named) - counted - above

    def _lose(self, places: list[Place], cause: LossCause) -> None:
        self._decide(places, tuple(cause))

    def _decide(self, places: list[Place], verdict: tuple[object, ...]) -> None:
        for place in places:
            emission = self.open[place].range.emission
            of_loss = (emission.session.group, emission.topic, emission.at_ms, emission.wall_ms)
            self.verdicts[place] = verdict if len(verdict) == 1 else (*verdict, *of_loss)
        self._settle_logged(places, self.verdict_end_pin)

    def _settle_logged(self, places: list[Place], pin: Pin) -> None:
        ranges = [self.open.pop(place).range for place in places]
        for piece in ranges:
            if piece.bin_number is not None:
                self.changed_min.add(piece.bin_number)
                self.changed_max.add(piece.bin_number)
            piece.verdict_pin = piece.verdict_pin or pin
        left = {id(root.range) for root in self.open.values()}
        self.ranges = [piece for piece in self.ranges if id(piece) in left]

    def _pin(self, piece: Range, pin: Pin, *, must: bool) -> None:
        if piece.bin_number is not None:
            self.changed_max.add(piece.bin_number)
            if must:
                self.changed_min.add(piece.bin_number)
        piece.ack_pin_max = piece.ack_pin_max or pin
        if must:
            piece.ack_pin_min = piece.ack_pin_min or pin


def members(runs: list[PositionRun] | tuple[PositionRun, ...]) -> list[int]:
    """Return the positions of runs, each as often as it comes."""
    return [position for run in runs for position in range(run.start, run.end)]


def contributions_of(record: Acks) -> list[tuple[int, int]]:
    """Return position and value of each contribution of a record."""
    edges = [(position, root_edge(record.source, position)) for position in members(record.runs)]
    packed = np.frombuffer(record.values, "<u8").tolist()
    return edges + list(zip(positions(record.positions).tolist(), packed, strict=True))


def verdicts_of(settled: VerdictSet) -> dict[Place, tuple[object, ...]]:
    """Return the verdict of each root as a reader of the log sees it."""
    found: dict[Place, tuple[object, ...]] = {}
    for record in settled.records():
        for word, runs in (("ACKED", record.acked), ("ABSENT", record.absent)):
            found |= {
                (run.source, position): (word,) for run in runs for position in range(run.start, run.end)
            }
        for lost in record.lost:
            cause = (lost.reason, lost.operator, lost.error, lost.message, lost.decided_at)
            emission = (lost.group, lost.topic, lost.emitted_at, lost.emitted_wall)
            found |= {(lost.source, each): (*cause, *emission) for each in positions(lost.positions).tolist()}
    return found


class LedgerScript:
    """Draws operations, and does each to the ledger and to the model."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.ledger = Ledger()
        self.model = LedgerModel()
        self.offset = 0
        self.now_ms = 1_000
        self.clocks_ms = dict.fromkeys(SESSIONS, 0)
        self.bins = 0
        self.operations = (
            [self.init] * 6
            + [self.fold] * 9
            + [self.complete] * 5
            + [self.touch] * 3
            + [self.fail, self.fail, self.absent, self.absent, self.expire, self.expire]
            + [
                self.logged,
                self.refold,
                self.refold,
                self.retouch,
                self.retouch,
                self.carry,
                self.forget_verdicts_ahead,
            ]
        )

    def step(self) -> None:
        """Do one operation; now and then give up a session or sources."""
        self.now_ms += self.random.randrange(300)
        self.offset += self.random.randrange(1, 4)
        self.ledger.verdict_end_pin = self.model.verdict_end_pin = Pin(self.offset * 2, self.offset * 200)
        operation = self.random.choice(self.operations)
        if self.random.random() < 0.02:
            operation = self.random.choice([self.abandon, self.abandon_sources])
        operation()

    # -- what is drawn

    @property
    def pin(self) -> Pin:
        """Return the place of the record at hand."""
        return Pin(self.offset, self.offset * 100)

    def source(self) -> int:
        """Draw a source."""
        return self.random.choice(SOURCES)

    def session(self, source: int) -> Session:
        """Draw a session, mostly one that has open roots of a source."""
        sessions = [
            root.range.emission.session for place, root in self.model.open.items() if place[0] == source
        ]
        return self.random.choice([*sessions, *SESSIONS])

    def around(self, source: int) -> int:
        """Draw a position near the watermark, near an open root, or near a block's end."""
        watermark = self.ledger.watermark(source)
        edges = [watermark, watermark, (watermark // BLOCK) * BLOCK]
        edges += [position for number, position in self.model.open if number == source][:: 1 + len(edges)]
        return max(0, self.random.choice(edges) + self.random.randint(-NEAR, NEAR))

    def in_block(self, source: int, count: int) -> tuple[int, list[int]]:
        """Draw positions of one block, in any order, some twice."""
        first = self.around(source)
        block = first // BLOCK
        near = [first + self.random.randint(-NEAR, 3 * NEAR) for _ in range(count)]
        return block, [max(block * BLOCK, min((block + 1) * BLOCK - 1, position)) for position in near]

    def runs_in_block(self, source: int, count: int) -> tuple[int, list[PositionRun]]:
        """Draw ascending runs of one block; sometimes with overlaps, empty ones and neighbours."""
        block, named = self.in_block(source, 1)
        start, end = max(block * BLOCK, named[0] - NEAR), (block + 1) * BLOCK
        is_odd = self.random.random() < 0.2
        runs: list[PositionRun] = []
        for _ in range(count):
            start = min(end, max(block * BLOCK, start + self.random.randint(-2 if is_odd else 0, 3)))
            stop = min(end, start + self.random.randint(0 if is_odd else 1, 4))
            if stop > start or is_odd:
                runs.append(PositionRun(start, stop))
            start = stop
        return block, runs

    def values_at(self, source: int, named: list[int]) -> list[int]:
        """Draw values; two in five are what a root misses, or its edge."""
        return [
            self.random.choice(
                [
                    self.random.getrandbits(64),
                    self.random.getrandbits(2),
                    self.random.getrandbits(64),
                    root_edge(source, position),
                    self.missing(source, position),
                ]
            )
            for position in named
        ]

    def missing(self, source: int, position: int) -> int:
        """Return what a root misses."""
        root = self.model.open.get((source, position))
        return root.missing if root else 5

    def record(self) -> Acks:
        """Draw a record: runs, positions, or both; in order and apart, or as another program may write it."""
        source = self.source()
        block, runs = self.runs_in_block(source, self.random.choice([0, 0, 1, 1, 2, 3, 7, 8, 9, 12]))
        drawn = self.random.choice([0, 0, 1, 3, 6])
        _, named = (block, []) if not drawn else self.in_block(source, drawn)
        named = [position for position in named if position // BLOCK == block]
        if self.random.random() < 0.7:
            named = sorted(set(named))
        if self.random.random() < 0.5:
            covered = set(members(runs))
            named = [position for position in named if position not in covered]
        if self.random.random() < 0.3 and named:
            first = named[0]
            end = min((block + 1) * BLOCK, first + self.random.randint(1, 9))
            named = [position for position in range(first, end) if position not in set(members(runs))]
        return self.acks(source, block, runs, named, self.values_at(source, named))

    def acks(
        self, source: int, block: int, runs: list[PositionRun], named: list[int], given: list[int]
    ) -> Acks:
        """Write a record."""
        at, contributed = np.array(named, np.int64), np.array(given, np.uint64)
        packed = pack_positions(at), pack_values(contributed)
        return Acks("q", 1, "g", "a", 1, source, block, tuple(runs), *packed, (), b"", 0)

    # -- operations

    def init(self) -> None:
        """Emit a range; sometimes several blocks further."""
        source = self.source()
        start = self.around(source) if self.random.random() < 0.5 else self.ledger.watermark(source)
        if self.random.random() < 0.2:
            start = (start // BLOCK + self.random.choice([1, 1, 2, 40])) * BLOCK - self.random.randint(
                0, NEAR
            )
        run = SourceRun(source, start, start + self.random.choice([0, 1, 2, 5, 9, 40]))
        session, timeout_ms = self.random.choice(SESSIONS), self.random.choice([0, 1, 500, 2_000])
        emission = InitEmission(session, "t", "id", self.now_ms, self.now_ms + 7, timeout_ms)
        ack_from = self.offset + self.random.choice([-2, 0, 0, 1, 4])
        self.ledger.open_run(emission, run, ack_from)
        self.model.init(emission, run, ack_from)

    def fold(self) -> None:
        """Contribute what is drawn."""
        record = self.record()
        self._fold(self.session(record.source), record)

    def complete(self) -> None:
        """Contribute to roots of one range what they miss."""
        if not self.model.ranges:
            return
        piece = self.random.choice(self.model.ranges)
        places = [place for place, root in self.model.open.items() if root.range is piece]
        begin = self.random.randrange(len(places))
        places = places[begin : begin + self.random.choice([1, 2, 5, 30])]
        if self.random.random() < 0.3:
            places = places[::2]
        source, named = places[0][0], [position for _, position in places]
        given = [self.missing(source, position) for position in named]
        record = self.acks(source, named[0] // BLOCK, [], named, given)
        self._fold(piece.emission.session, record)

    def _fold(self, session: Session, record: Acks) -> None:
        contribution = Contribution(record)
        assert not contribution.is_outside
        self.ledger.fold(session, contribution, self.pin)
        self.model.fold(session, record, self.pin)

    def refold(self) -> None:
        """Contribute what was read before."""
        record = self.record()
        session = self.session(record.source)
        self.ledger.refold(session, Contribution(record), self.pin)
        self.model.refold(session, record, self.pin)

    def touch(self) -> None:
        """Touch roots."""
        self._touch(again=False)

    def retouch(self) -> None:
        """Touch roots by what was read before."""
        self._touch(again=True)

    def _touch(self, *, again: bool) -> None:
        source = self.source()
        session = self.session(source)
        _, drawn = self.in_block(source, self.random.choice([0, 1, 3, 12]))
        named = sorted(set(drawn))
        at_ms = self.now_ms - self.random.choice([0, 0, 100, 900])
        method = self.ledger.retouch if again else self.ledger.touch
        method(session, source, as_positions(named), at_ms, self.pin)
        self.model.touch(session, source, named, at_ms, self.pin, again=again)

    def fail(self) -> None:
        """Fail roots."""
        source = self.source()
        session = self.session(source)
        _, drawn = self.in_block(source, self.random.choice([0, 1, 1, 4, 12]))
        named = sorted(set(drawn))
        error = self.random.choice(["ValueError", "KeyError"])
        cause = LossCause(Verdict.FAILED, "split", error, "no", self.now_ms // 1_000)
        self.ledger.fail(session, source, as_positions(named), cause)
        self.model.fail(session, source, named, cause)

    def absent(self) -> None:
        """Tell that records are not there."""
        source = self.source()
        session = self.session(source)
        _, runs = self.runs_in_block(source, self.random.choice([0, 1, 2, 3]))
        runs = [run for number, run in enumerate(runs) if number == 0 or run.start >= runs[number - 1].end]
        self.ledger.settle_absent(session, source, runs)
        self.model.absent(session, source, runs)

    def expire(self) -> None:
        """Move the clock of a session."""
        session = self.random.choice(SESSIONS)
        due_ms = [
            root.deadline_ms
            for root in self.model.open.values()
            if root.range.emission.session == session and root.deadline_ms is not None
        ]
        drawn = self.random.choice([*due_ms, self.now_ms]) - self.random.choice([0, 0, 1])
        clock_ms = self.clocks_ms[session] = max(self.clocks_ms[session], drawn)
        self.ledger.expire(session, clock_ms)
        self.model.expire(session, clock_ms)

    def abandon(self) -> None:
        """Give up a session."""
        session = self.random.choice(SESSIONS)
        self.ledger.abandon(session, self.now_ms)
        self.model.abandon({session}, set(SOURCES), dict.fromkeys(SESSIONS, self.now_ms))

    def abandon_sources(self) -> None:
        """Give up sources."""
        sources = set(self.random.sample(SOURCES, self.random.choice([1, 2])))
        self.ledger.abandon_sources(sources, self.clocks_ms.__getitem__)
        self.model.abandon(set(SESSIONS), sources, self.clocks_ms)

    def logged(self) -> None:
        """Read verdicts again: of acked and absent roots as runs of any length, of lost ones as positions."""
        source = self.source()
        reach = self.random.choice([1, 3, 9, BLOCK + 3, 5 * BLOCK, 90 * BLOCK])
        start = max(0, self.around(source) - self.random.choice([0, reach]))
        run = SourceRun(source, start, start + reach)
        if reach > BLOCK and self.random.random() < 0.7:
            run = SourceRun(source, start, min(run.end, max(start + 1, self.ledger.watermark(source))))
        drawn = sorted(self.around(source) for _ in range(self.random.choice([0, 1, 4])))
        packed = pack_positions(as_positions(drawn))
        lost = Lost(Verdict.FAILED, "g", "t", "id", "", "", "", 0, 0, 0, source, packed)
        kinds: list[tuple[SourceRun, ...]] = [(run,), ()]
        self.random.shuffle(kinds)
        self.ledger.settle_logged(Verdicts(*kinds, (lost,) if drawn else ()), self.pin)  # type: ignore[call-arg]
        singles = [SourceRun(source, position, position + 1) for position in drawn]
        self.model.settle_logged([run, *singles], self.pin)

    def forget_verdicts_ahead(self) -> None:
        """End a restart."""
        if self.random.random() < 0.3:
            self.ledger.forget_verdicts_ahead()
            self.model.ahead, self.model.first_pin_without_init = [], None

    def carry(self) -> None:
        """Let State carry a range by value."""
        pairs = zip(self.model.ranges, self.ledger.cohorts(), strict=True)
        free = [(piece, cohort) for piece, cohort in pairs if piece.bin_number is None]
        if free:
            self.bins += 1
            piece, cohort = self.random.choice(free)
            piece.bin_number = cohort.bin_number = self.bins % 5

    # -- what is compared

    def compare(self) -> None:
        """Assert that both have decided, counted and kept the same."""
        assert verdicts_of(self.ledger.take_settled()) == self.model.verdicts
        self.model.verdicts = {}
        counted = {name: getattr(self.ledger.counts, name) for name in self.model.counts}
        assert counted == dict(self.model.counts)
        assert self.ledger.open_count == len(self.model.open)
        assert self.ledger.ranges == len(self.model.ranges)
        assert self.ledger.first_pin_without_init == self.model.first_pin_without_init
        cohorts = list(self.ledger.cohorts())
        for cohort, piece in zip(cohorts, self.model.ranges, strict=True):
            self._compare_range(cohort, piece)
        changed = self.ledger.take_changed_bins()
        assert self.model.changed_min <= changed <= self.model.changed_max
        self.model.changed_min, self.model.changed_max = set(), set()
        self._compare_pins(cohorts)
        for session in SESSIONS:
            self._compare_session(session)

    def _compare_range(self, cohort: RootCohort, piece: Range) -> None:
        roots = {place[1]: root for place, root in self.model.open.items() if root.range is piece}
        open_at = [cohort.start + index for index in cohort.roots.open_at()]
        assert (cohort.start, open_at) == (piece.start, sorted(roots))
        assert cohort.roots.missing().tolist() == [roots[position].missing for position in open_at]
        assert cohort.verdict_pin == piece.verdict_pin
        if cohort.ack_pin is None or piece.ack_pin_max is None:
            assert cohort.ack_pin is piece.ack_pin_min is None
            return
        assert piece.ack_pin_max <= cohort.ack_pin
        assert piece.ack_pin_min is None or cohort.ack_pin <= piece.ack_pin_min

    def _compare_pins(self, cohorts: list[RootCohort]) -> None:
        free = [cohort for cohort in cohorts if cohort.bin_number is None]
        acks = [cohort.ack_pin for cohort in free if cohort.ack_pin is not None]
        first = self.ledger.oldest_ack_pinned()
        assert (first and first.ack_pin) == min(acks, default=None)
        verdicts = [cohort.verdict_pin.offset for cohort in free if cohort.verdict_pin is not None]
        first = self.ledger.oldest_verdict_pinned()
        assert (first and first.verdict_pin and first.verdict_pin.offset) == min(verdicts, default=None)

    def _compare_session(self, session: Session) -> None:
        places = [
            (source, position)
            for (source, position), root in self.model.open.items()
            if root.range.emission.session == session
        ]
        runs = self.ledger.open_runs(session)
        assert [(run.source, p) for run in runs for p in range(run.start, run.end)] == sorted(places)
        assert (session in self.ledger.sessions(session.group)) == bool(places)


def as_positions(named: list[int]) -> I64:
    """Return positions as an array."""
    return np.array(named, np.int64)
