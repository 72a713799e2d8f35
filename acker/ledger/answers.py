"""Answers to a `Take`: the sources and open roots of the session, or why it is refused.

An answer is cut into parts, each small enough for one record.

Source: docs/design/protocol.md, section 4, "Take and Taken" and "Fine print".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from acker.ledger.cohort import Session
from acker.ledger.sessions import Sessions, SourceGeneration
from acker.ledger.verdicts import RECORD_BUDGET_BYTES, RUN_BYTES
from acker.wire.events import SourceRun, Taken, TakenSource

SOURCE_BYTES: Final = 40
"""A source on the wire, without its topic id: a few numbers of at most 10 bytes, most of them shorter."""

Watermark = Callable[[int], int]


def accepted(
    sessions: Sessions,
    watermark: Watermark,
    session: Session,
    before_ms: int | None,
    open_runs: Sequence[SourceRun],
) -> list[Taken]:
    """Answer a session that owns its group now, and has these open roots.

    `before_ms` is what the former owner's clock showed; None for a restart, whose answer has its own clock.
    """
    clock_ms = sessions.clock(session).read_ms if before_ms is None else before_ms
    sources = _sources(sessions.sources_of(session.group), watermark)
    cuts = _cut(sources, open_runs)
    return [
        Taken(
            session.group,
            session.id,
            session.epoch,
            session.id,
            "",
            part,
            len(cuts),
            clock_ms,
            tuple(some_sources),
            tuple(some_runs),
        )
        for part, (some_sources, some_runs) in enumerate(cuts)
    ]


def refusal(sessions: Sessions, watermark: Watermark, group: str, asked_by: str, why: str) -> Taken:
    """Answer a session that does not get a group; the answer names the session that owns it.

    A refusal has one part: of more than some 12,000 sources it contains only the first. `why` is not empty.
    """
    entry = sessions.groups.get(group)
    owner = entry.owner if entry else Session(group, 0, "")
    sources, _ = _cut(_sources(sessions.sources_of(group), watermark), ())[0]
    clock_ms = sessions.clock(owner).read_ms
    return Taken(group, owner.id, owner.epoch, asked_by, why, 0, 1, clock_ms, tuple(sources), ())


def _sources(generations: Sequence[tuple[int, SourceGeneration]], watermark: Watermark) -> list[TakenSource]:
    return [
        TakenSource(number, source.topic_id, source.generation, source.from_, watermark(number))
        for number, source in generations
    ]


def _cut(
    sources: Sequence[TakenSource], runs: Sequence[SourceRun]
) -> list[tuple[list[TakenSource], list[SourceRun]]]:
    cuts: list[tuple[list[TakenSource], list[SourceRun]]] = [([], [])]
    used = 0
    for source in sources:
        needed = SOURCE_BYTES + len(source.topic_id.encode())
        if used + needed > RECORD_BUDGET_BYTES:
            cuts.append(([], []))
            used = 0
        cuts[-1][0].append(source)
        used += needed
    for run in runs:
        if used + RUN_BYTES > RECORD_BUDGET_BYTES:
            cuts.append(([], []))
            used = 0
        cuts[-1][1].append(run)
        used += RUN_BYTES
    return cuts
