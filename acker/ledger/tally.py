"""Verdicts counted by input, reason and cause, and how long acked roots took: for an acker's metrics.

Whatever fails, the tally stays small: of one input it counts at most `CAUSES_MAX` pairs of operator and error
class apart, and all others together. It has no message and no key. Of a root only the place is kept, of the
last one that took so long, as an example.

A time is that of one emission: from its `Init` to the step that gave the verdict. A copy is a new emission,
and an `Init` does not say when its record was emitted first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from acker.identity import Root, Source, input_id_of
from acker.ledger.verdicts import VerdictSet
from acker.wire.causes import EXPLICIT, HELD, error_class
from acker.wire.events import Reason

CAUSES_MAX: Final = 100

OTHERS: Final = "(others)"

BLOCKED: Final = "BLOCKED"
"""The reason under which roots count that failed only since they wait behind another one (`ordering`)."""

ACKED: Final = "ACKED"
ABSENT: Final = "ABSENT"
REASONS: Final = (ACKED, ABSENT, BLOCKED, *(reason.value for reason in Reason))
"""All reasons."""

BOUNDS_MS: Final = (
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000
)  # fmt: skip
"""Upper bounds of the classes of times; a last class has what took longer."""


class SlowRoot(NamedTuple):
    """A root that was acked, how long it took, and the wall time of its verdict."""

    root: Root
    took_ms: int
    at_ms: int


@dataclass(slots=True)
class InputTally:
    """What was decided about the roots of one input.

    Attributes:
        verdicts: roots by reason.
        failures: failed roots by operator and error class.
        took: acked roots by class of time, of shape (len(BOUNDS_MS) + 1,).
        took_ms: the times of all of them together.
        last: the last root of each class; None: there was none.
    """

    verdicts: Counter[str] = field(default_factory=Counter)
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    took: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))
    took_ms: int = 0
    last: list[SlowRoot | None] = field(default_factory=lambda: [None] * (len(BOUNDS_MS) + 1))

    def fail(self, operator: str, error: str, count: int) -> None:
        cause = operator, error_class(error) or EXPLICIT
        if cause not in self.failures and len(self.failures) >= CAUSES_MAX:
            cause = OTHERS, OTHERS
        self.failures[cause] += count

    def ack(self, took_ms: int, count: int, root: Root, now_ms: int) -> None:
        at = bisect_left(BOUNDS_MS, took_ms)
        self.took[at] += count
        self.took_ms += took_ms * count
        self.last[at] = SlowRoot(root, took_ms, now_ms)


class VerdictTally:
    """The tallies of all inputs, by their ids."""

    def __init__(self) -> None:
        self.inputs: dict[int, InputTally] = {}

    def add(self, settled: Sequence[VerdictSet], now_ms: int) -> None:
        """Count the verdicts of a step; `now_ms` is wall time."""
        for each in settled:
            for emission, source, first, count in each.completed:
                tally = self._of(source)
                tally.verdicts[ACKED] += count
                took_ms = max(0, now_ms - emission.wall_ms)
                tally.ack(took_ms, count, Root(Source(source), first), now_ms)
            for run in each.absent.runs():
                self._of(run.source).verdicts[ABSENT] += run.end - run.start
            for cause, source, count in each.lost_counts():
                tally = self._of(source)
                if cause.error == HELD:
                    tally.verdicts[BLOCKED] += count
                    continue
                tally.verdicts[cause.reason.value] += count
                if cause.reason is Reason.FAILED:
                    tally.fail(cause.operator, cause.error, count)

    def copy(self) -> VerdictTally:
        """Return a copy that later verdicts do not change."""
        other = VerdictTally()
        other.inputs = {
            number: InputTally(
                Counter(each.verdicts),
                Counter(each.failures),
                list(each.took),
                each.took_ms,
                list(each.last),
            )
            for number, each in self.inputs.items()
        }
        return other

    def _of(self, source: int) -> InputTally:
        return self.inputs.setdefault(input_id_of(source), InputTally())
