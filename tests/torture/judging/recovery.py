"""How long a run needed after each fault until it worked again; pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from acker.identity import is_replay
from acker.wire.verdict import Verdict
from tests.torture.judging.causes import Strike
from tests.torture.judging.evidence import Evidence


@dataclass(frozen=True, slots=True)
class Recovery:
    """What faults of one kind cost: how many, and the seconds in the median and at most.

    A fault is over when each partition of the input has an acked root that was emitted after the fault
    began; that takes a batch or two even if nothing is broken. `open`: faults that were not over at the end.
    """

    faults: int
    median_s: float
    max_s: float
    open: int


def recoveries(evidence: Evidence, strikes: Iterable[Strike]) -> dict[str, Recovery]:
    """Measure the recovery from each kind of fault, by victim and deed."""
    partitions = _acked(evidence)
    found: dict[str, list[int | None]] = defaultdict(list)
    for strike in strikes:
        if strike.deed is not None:
            ends = [_first_after(acked, strike.began_ms) for acked in partitions]
            known = [end for end in ends if end is not None]
            lasted = max(known) - strike.began_ms if known and len(known) == len(ends) else None
            found[f"{strike.victim.kind}: {strike.deed}"].append(lasted)
    return {kind: _recovery(lasted) for kind, lasted in sorted(found.items())}


def _recovery(lasted_ms: Sequence[int | None]) -> Recovery:
    seconds = [each / 1000 for each in lasted_ms if each is not None]
    return Recovery(
        len(lasted_ms),
        round(median(seconds), 1) if seconds else 0.0,
        max(seconds, default=0.0),
        len(lasted_ms) - len(seconds),
    )


def _acked(evidence: Evidence) -> list[list[tuple[int, int]]]:
    """Return for each partition when roots began, and when the first of those or later ones was acked."""
    by_source: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for root, story in evidence.stories.items():
        verdict = evidence.verdicts.get(root)
        if verdict and verdict.kind is Verdict.ACKED and not is_replay(root.source):
            by_source[root.source].append((story.init_ms, verdict.at_ms))
    for acked in by_source.values():
        acked.sort()
        for place in range(len(acked) - 2, -1, -1):
            acked[place] = (acked[place][0], min(acked[place][1], acked[place + 1][1]))
    return list(by_source.values())


def _first_after(acked: Sequence[tuple[int, int]], at_ms: int) -> int | None:
    place = bisect_right(acked, at_ms, key=lambda each: each[0])
    return acked[place][1] if place < len(acked) else None
