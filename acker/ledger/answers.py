"""Answers to a `Take`: what the session may build on, or why not, in parts that fit the wire.

Source: docs/design/protocol.md, section 4, "Take and Taken" and "Fine print".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from acker.ledger.cohort import Session
from acker.ledger.sessions import KnownSource, Sessions
from acker.ledger.verdicts import RECORD_BUDGET_BYTES, RUN_BYTES
from acker.wire.events import SourceRun, Taken, TakenSource

SOURCE_BYTES: Final = 40
"""A source on the wire, without its topic id: five numbers of at most 10 bytes, most of them shorter."""

Watermark = Callable[[int], int]


def accepted(
    sessions: Sessions,
    watermark: Watermark,
    session: Session,
    before_ms: int | None,
    open_runs: Sequence[SourceRun],
) -> list[Taken]:
    """Answer a session that has taken its group.

    Args:
        sessions: what this acker partition knows.
        watermark: the watermark of a source, 0 before any init.
        session: the session.
        before_ms: the clock of the session before it; None for a restart, which is told its own.
        open_runs: its open roots.
    """
    clock_ms = sessions.clock(session).read_ms if before_ms is None else before_ms
    sources = _sources(sessions.sources_of(session.group), watermark)
    cuts = _cut(sources, open_runs)
    return [
        Taken(
            session.group, session.id, session.epoch, session.id, "", part, len(cuts), clock_ms,
            tuple(some_sources), tuple(some_runs),
        )
        for part, (some_sources, some_runs) in enumerate(cuts)
    ]  # fmt: skip


def refusal(sessions: Sessions, watermark: Watermark, group: str, asked_by: str, why: str) -> Taken:
    """Answer a session that does not get a group, naming the session that holds it.

    A refusal is one part; of more than some 12,000 sources only the first are told.

    Args:
        sessions: what this acker partition knows.
        watermark: the watermark of a source, 0 before any init.
        group: the group asked for.
        asked_by: id of the session that asked.
        why: why not; not empty.
    """
    known = sessions.groups.get(group)
    holder = known.holder if known else Session(group, 0, "")
    sources, _ = _cut(_sources(sessions.sources_of(group), watermark), ())[0]
    clock_ms = sessions.clock(holder).read_ms
    return Taken(group, holder.id, holder.epoch, asked_by, why, 0, 1, clock_ms, tuple(sources), ())


def _sources(known: Sequence[tuple[int, KnownSource]], watermark: Watermark) -> list[TakenSource]:
    return [
        TakenSource(number, source.topic_id, source.generation, source.from_, watermark(number))
        for number, source in known
    ]


def _cut(
    sources: Sequence[TakenSource], runs: Sequence[SourceRun]
) -> list[tuple[list[TakenSource], list[SourceRun]]]:
    """Spread sources, then runs, over as few parts as fit; one part at least."""
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
