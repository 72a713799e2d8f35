"""Answers to a `Take`: the sources and open roots of the session, or why it is refused.

Source: docs/design/protocol.md, section 4, "Take and Taken" and "Fine print".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final

from acker.ledger.cohort import Session
from acker.ledger.sessions import Sessions
from acker.ledger.verdicts import RUN_BYTES, in_records
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
    runs = ((1, run, RUN_BYTES) for run in open_runs)
    cuts = in_records(2, chain(_sources(sessions, watermark, session.group), runs)) or [((), ())]
    group, epoch, own = session
    return [
        Taken(group, own, epoch, own, "", part, len(cuts), clock_ms, *rows) for part, rows in enumerate(cuts)
    ]


def refusal(sessions: Sessions, watermark: Watermark, group: str, asked_by: str, why: str) -> Taken:
    """Answer a session that does not get a group; the answer names the session that owns it.

    A refusal has one part: of more than some 12,000 sources it contains only the first. `why` is not empty.
    """
    entry = sessions.groups.get(group)
    owner = entry.owner if entry else Session(group, 0, "")
    cuts = in_records(1, _sources(sessions, watermark, group)) or [((),)]
    clock_ms = sessions.clock(owner).read_ms
    return Taken(group, owner.id, owner.epoch, asked_by, why, 0, 1, clock_ms, cuts[0][0], ())


def _sources(sessions: Sessions, watermark: Watermark, group: str) -> Iterator[tuple[int, TakenSource, int]]:
    """Yield the sources of a group as rows of `in_records`."""
    for number, source in sessions.sources_of(group):
        row = TakenSource(number, source.topic_id, source.generation, source.from_, watermark(number))
        yield 0, row, SOURCE_BYTES + len(source.topic_id.encode())
