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
from spout.inspect.readings import HELD_BY_SPARK, STOPPED_ON_PURPOSE, PartitionState, Reading, joined
from spout.inspect.tables import UNKNOWN, span

DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class InputSummary:
    """An input at one moment; `timeout_ms` 0: its records never time out. Dead are unhandled letters.

    `oldest_ms` is of what Spark's state does not hold, and `in_state` how many roots it holds. `stopped` is
    as in `PartitionState`.
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
        pending = _shown(self.pending)
        found = sum(each.pending.value or 0 for each in self.partitions)
        if found and any(each.is_old for each in self.partitions):
            pending = f"at least {found:,}"
        limit = f" of {span(self.timeout_ms)}" if self.timeout_ms else ""
        held = f", {self.in_state.value:,} of them {HELD_BY_SPARK}" if self.in_state.value else ""
        has_others = self.pending.value != 0 and (not held or self.oldest_ms.value != 0)
        oldest = f", oldest {_shown(self.oldest_ms, span)}{limit}" if has_others else ""
        stopped = f"; {STOPPED_ON_PURPOSE}: {self.stopped}" if self.stopped else ""
        return (
            f"{UntrustedName(self.group)} on {self.name}: {pending} pending{held}{oldest};"
            f" {_shown(self.due)} due;"
            f" {_shown(self.dead)} dead, {_shown(self.dead_today)} of them today{stopped}"
        )


def summaries(snapshot: Snapshot, topics: Topics) -> list[InputSummary]:
    """Return a summary of each tracked input, in the order of topics.yaml. Today is the day in UTC."""
    of: dict[str, list[PartitionState]] = {}
    for each in snapshot.partitions:
        of.setdefault(each.input, []).append(each)
    return [_summary(topics.inputs[name], states, snapshot.at_ms) for name, states in of.items()]


SERIES_MS: Final = 900_000
SERIES_EVERY_MS: Final = 5_000

DRAWN: Final = ("pending", "due", "lag")
"""The figures of an input of which the overview draws the last fifteen minutes."""

Point = tuple[int, int | None]
"""A wall time, and the value; None where it was unknown."""


class History:
    """The last fifteen minutes of the figures in `DRAWN`, of each input; the older ones are dropped."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str], list[Point]] = {}
        self._put_ms = 0

    def put(self, snapshot: Snapshot, topics: Topics) -> Mapping[tuple[str, str], Sequence[Point]]:
        """Take a reading unless the last one is too young; return the points by input and figure.

        Where the clock was set back, those that are later than it are dropped.
        """
        now_ms = snapshot.at_ms
        if not 0 <= now_ms - self._put_ms < SERIES_EVERY_MS:
            self._put_ms = now_ms
            for one in summaries(snapshot, topics):
                for name in DRAWN:
                    points = self._series.get((one.name, name), [])
                    kept = [each for each in points if 0 <= now_ms - each[0] <= SERIES_MS]
                    self._series[one.name, name] = [*kept, (now_ms, getattr(one, name).value)]
        return dict(self._series)


RATES_EVERY_MS: Final = 10_000
"""The verdicts of so long a time are one point of a series: longer than most micro-batches."""


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
        self._counts: dict[tuple[str, int], Counter[Verdict]] = {}
        self.counted_to_ms = 0

    def add(self, name: str, at_ms: int, roots: int, verdict: Verdict) -> None:
        """Count roots of an input that got a verdict at a wall time."""
        self._counts.setdefault((name, at_ms // RATES_EVERY_MS), Counter())[verdict] += roots

    def series(self, names: Iterable[str], now_ms: int) -> dict[str, RateSeries]:
        """Return those of each input, up to the last point that is over; older ones are dropped."""
        end = now_ms // RATES_EVERY_MS
        points = range(end - SERIES_MS // RATES_EVERY_MS, end)
        counted = range(points.start, self.counted_to_ms // RATES_EVERY_MS)
        self._counts = {of: found for of, found in self._counts.items() if of[1] >= points.start}

        def counts(name: str, verdict: Verdict) -> list[int | None]:
            nothing = Counter[Verdict]()
            return [
                self._counts.get((name, at), nothing)[verdict] if at in counted else None for at in points
            ]

        return {
            name: RateSeries(
                points.start * RATES_EVERY_MS,
                counts(name, Verdict.ACKED),
                counts(name, Verdict.FAILED),
                counts(name, Verdict.TIMED_OUT),
            )
            for name in names
        }


def _summary(one: Input, states: Sequence[PartitionState], now_ms: int) -> InputSummary:
    midnight_ms = now_ms - now_ms % DAY_MS
    # the dead letters of an input are read together, and each of its partitions has its own
    return InputSummary(
        one.name,
        one.group,
        one.timeout_ms,
        pending=joined(_total, *(each.pending for each in states)),
        pending_max=one.max_spout_pending,
        oldest_ms=joined(lambda *ages: max(ages, default=0), *(each.oldest_ms for each in states)),
        in_state=joined(_total, *(each.in_state for each in states)),
        lag=joined(_total, *(each.lag for each in states)),
        due=joined(_total, *(each.replays_due for each in states)),
        dead=joined(_total, *(each.dead_letters for each in states)),
        dead_today=joined(
            lambda *dead: sum(int((each.died_ms >= midnight_ms).sum()) for each in dead),
            *(each.dead_at for each in states),
        ),
        partitions=states,
        stopped=states[0].stopped,
    )


def _total(*parts: int) -> int:
    return sum(parts)


def _shown(reading: Reading[int], text: Callable[[int], str] = "{:,}".format) -> str:
    return UNKNOWN if reading.value is None else text(reading.value)
