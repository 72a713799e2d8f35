"""One input in one sentence, summed up over its partitions, and its last fifteen minutes; pure.

Source: docs/operate/page.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.untrusted import UntrustedName
from acker.wire.verdict import Verdict
from spout.inspect.overview import Snapshot
from spout.inspect.readings import (
    HELD_BY_SPARK,
    STOPPED_ON_PURPOSE,
    DeadRecords,
    PartitionState,
    Reading,
    joined,
)
from spout.inspect.tables import UNKNOWN, span

DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class InputSummary:
    """An input at one moment.

    Attributes:
        timeout_ms: 0: its records never time out.
        oldest_ms: the age of the oldest pending root that Spark's state does not hold.
        in_state: how many pending roots Spark's state holds.
        dead: letters that nobody has handled.
        stopped: as in `PartitionState`.
    """

    name: str
    group: str
    timeout_ms: int
    pending: Reading[int]
    pending_max: int
    oldest_ms: Reading[int]
    in_state: Reading[int]
    lag: Reading[int]
    due: Reading[int]
    dead: Reading[int]
    dead_today: Reading[int]
    partitions: Sequence[PartitionState]
    stopped: str = ""

    def sentence(self) -> str:
        """Return it as the overview shows it; what is unknown is called so.

        Where a State is old, more may be pending by now than what it has.
        """
        pending_text = _text(self.pending)
        pending_count = sum(state.pending.value or 0 for state in self.partitions)
        if pending_count and any(state.is_old for state in self.partitions):
            pending_text = f"at least {pending_count:,}"
        in_state_text = ""
        if self.in_state.value:
            in_state_text = f", {self.in_state.value:,} of them {HELD_BY_SPARK}"
        # of roots that Spark's state holds no age is shown: their timeouts were moved
        has_others = self.pending.value != 0 and (not in_state_text or self.oldest_ms.value != 0)
        oldest_text = ""
        if has_others:
            limit = f" of {span(self.timeout_ms)}" if self.timeout_ms else ""
            oldest_text = f", oldest {_text(self.oldest_ms, span)}{limit}"
        stopped = f"; {STOPPED_ON_PURPOSE}: {self.stopped}" if self.stopped else ""
        return (
            f"{UntrustedName(self.group)} on {self.name}: {pending_text} pending{in_state_text}"
            f"{oldest_text}; {_text(self.due)} due;"
            f" {_text(self.dead)} dead, {_text(self.dead_today)} of them today{stopped}"
        )


def summaries(snapshot: Snapshot, topics: Topics) -> list[InputSummary]:
    """Return a summary of each tracked input, in the order of topics.yaml. Today is the day in UTC."""
    states_by_input: dict[str, list[PartitionState]] = {}
    for state in snapshot.partitions:
        states_by_input.setdefault(state.input, []).append(state)
    return [_summary(topics.inputs[name], states, snapshot.at_ms) for name, states in states_by_input.items()]


SERIES_MS: Final = 900_000
SERIES_EVERY_MS: Final = 5_000

FIGURES_DRAWN: Final = ("pending", "due", "lag")
"""The figures of an `InputSummary` of which the overview draws the last fifteen minutes."""


class Point(NamedTuple):
    """A figure at a wall time; None where it was unknown."""

    at_ms: int
    value: int | None


class History:
    """The last fifteen minutes of `FIGURES_DRAWN` of each input."""

    def __init__(self) -> None:
        # by (input, figure): its points, the oldest first
        self._series: dict[tuple[str, str], list[Point]] = {}
        self._recorded_ms = 0  # wall time of the last reading that was recorded

    def record(self, snapshot: Snapshot, topics: Topics) -> Mapping[tuple[str, str], Sequence[Point]]:
        """Record the figures of a reading, and drop older points; return the points by input and figure.

        A reading within `SERIES_EVERY_MS` of the last recorded one is left out. Where the clock was
        set back, points of the future are dropped.
        """
        now_ms = snapshot.at_ms
        if not 0 <= now_ms - self._recorded_ms < SERIES_EVERY_MS:
            self._recorded_ms = now_ms
            for summary in summaries(snapshot, topics):
                for figure in FIGURES_DRAWN:
                    points = self._series.get((summary.name, figure), [])
                    points = [point for point in points if 0 <= now_ms - point.at_ms <= SERIES_MS]
                    value = getattr(summary, figure).value
                    self._series[summary.name, figure] = [*points, Point(now_ms, value)]
        return dict(self._series)


RATES_EVERY_MS: Final = 10_000
"""How long the time is whose verdicts are one point of a series: longer than most micro-batches."""


class RateSeries(NamedTuple):
    """How many roots of an input got which verdict, one point for each `RATES_EVERY_MS`; None: unknown.

    `first_ms` is the wall time at which the first point begins. Copies are roots too.
    """

    first_ms: int
    acked: Sequence[int | None]
    failed: Sequence[int | None]
    timed_out: Sequence[int | None]


class VerdictCounts:
    """How many roots of some inputs got which verdict in the last fifteen minutes, and when.

    Attributes:
        counted_to_ms: wall time up to which all verdicts were counted.
    """

    def __init__(self) -> None:
        # by (input, wall time in steps of `RATES_EVERY_MS`)
        self._counts: dict[tuple[str, int], Counter[Verdict]] = {}
        self.counted_to_ms = 0

    def add(self, name: str, at_ms: int, roots: int, verdict: Verdict) -> None:
        """Count roots of an input that got a verdict at a wall time."""
        self._counts.setdefault((name, at_ms // RATES_EVERY_MS), Counter())[verdict] += roots

    def series(self, names: Iterable[str], now_ms: int) -> dict[str, RateSeries]:
        """Return the series of each input, up to the last step that is over; drop older counts.

        A step is unknown where not all of its verdicts were counted yet.
        """
        # the step in which `now_ms` lies is not over: it is left out
        end_step = now_ms // RATES_EVERY_MS
        first_step = end_step - SERIES_MS // RATES_EVERY_MS
        counted_to_step = self.counted_to_ms // RATES_EVERY_MS
        # the key is an input and a step of RATES_EVERY_MS
        self._counts = {
            (name, step): counts for (name, step), counts in self._counts.items() if step >= first_step
        }

        def counts_by_step(name: str, verdict: Verdict) -> list[int | None]:
            counts: list[int | None] = []
            for step in range(first_step, end_step):
                of_step = self._counts.get((name, step), Counter[Verdict]())
                counts.append(of_step[verdict] if step < counted_to_step else None)
            return counts

        return {
            name: RateSeries(
                first_ms=first_step * RATES_EVERY_MS,
                acked=counts_by_step(name, Verdict.ACKED),
                failed=counts_by_step(name, Verdict.FAILED),
                timed_out=counts_by_step(name, Verdict.TIMED_OUT),
            )
            for name in names
        }


def _summary(input: Input, states: Sequence[PartitionState], now_ms: int) -> InputSummary:
    """Return the summary of an input from the states of its partitions; a figure needs all of them."""
    midnight_ms = now_ms - now_ms % DAY_MS

    def letters_of_today(*dead: DeadRecords) -> int:
        return sum(int((of_partition.died_ms >= midnight_ms).sum()) for of_partition in dead)

    return InputSummary(
        name=input.name,
        group=input.group,
        timeout_ms=input.timeout_ms,
        pending=joined(_total, *(state.pending for state in states)),
        pending_max=input.max_spout_pending,
        oldest_ms=joined(_greatest, *(state.oldest_ms for state in states)),
        in_state=joined(_total, *(state.in_state for state in states)),
        lag=joined(_total, *(state.lag for state in states)),
        due=joined(_total, *(state.replays_due for state in states)),
        dead=joined(_total, *(state.dead_letters for state in states)),
        dead_today=joined(letters_of_today, *(state.dead_at for state in states)),
        partitions=states,
        stopped=states[0].stopped,  # it is the same in all of them
    )


def _total(*counts: int) -> int:
    return sum(counts)


def _greatest(*ages_ms: int) -> int:
    return max(ages_ms, default=0)


def _text(reading: Reading[int], text_of: Callable[[int], str] = "{:,}".format) -> str:
    return UNKNOWN if reading.value is None else text_of(reading.value)
