"""What Spark journals for a batch: the offset of the streaming source, as JSON.

``{"v": 1, "session", "epoch", "now", "tasks", "sources": {"<source>": {"from", "next", "gaps"}},
"ranges": [[source, start, end], ...]}``

`sources` says what was emitted up to here: [from, next) without the gaps. `ranges` is what the batch that
ends here emits. It could not be computed from two offsets' `next` and `gaps`: a takeover or a new generation
lies between them wherever positions were initialised by a session that this checkpoint never knew.
Spark compares offsets as text, so the order of keys is fixed.

The offset before the first batch is empty and names no session. Spark asks for it again when it re-runs
batch 0 in a new process, where drawing another session would take over from the very batch that is re-run.

Source: DESIGN.md, section 5.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from acker.errors import Disagreement
from acker.events import Run, SourceRun

VERSION = 1


class SourceMark(NamedTuple):
    """How far a source is emitted.

    Attributes:
        from_: first position of the source's generation for the group.
        next: first position behind everything emitted.
        gaps: positions below `next` that are not emitted yet, ascending.
    """

    from_: int
    next: int
    gaps: tuple[Run, ...] = ()

    def emitted(self, start: int, end: int) -> list[Run]:
        """Return what of [start, end) was emitted, ascending."""
        found: list[Run] = []
        end = min(end, self.next)
        for gap in self.gaps:
            if start < min(gap.start, end):
                found.append(Run(start, min(gap.start, end)))
            start = max(start, gap.end)
        return [*found, Run(start, end)] if start < end else found


@dataclass(frozen=True, slots=True)
class Journal:
    """One offset of the source.

    Attributes:
        session: id of the session that emitted the batch; empty before the first batch, and without tracking.
        epoch: the session's epoch.
        now: session clock of the batch's last Init, ms.
        tasks: how many read tasks the batch is cut into at most.
        sources: how far each source is emitted, the batch included.
        ranges: what the batch emits, ascending by source and start.
    """

    session: str
    epoch: int
    now: int
    tasks: int
    sources: Mapping[int, SourceMark]
    ranges: tuple[SourceRun, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the dict that Spark journals."""
        return {
            "v": VERSION,
            "session": self.session,
            "epoch": self.epoch,
            "now": self.now,
            "tasks": self.tasks,
            "sources": {
                str(source): {"from": mark.from_, "next": mark.next, "gaps": [list(gap) for gap in mark.gaps]}
                for source, mark in sorted(self.sources.items())
            },
            "ranges": [list(run) for run in self.ranges],
        }


BEGINNING = Journal("", 0, 0, 1, MappingProxyType({}), ())
"""The offset before the first batch."""


def journal_of(offset: Mapping[str, Any]) -> Journal:
    """Read an offset that Spark journalled.

    Raises:
        Disagreement: it is not one that this version of Windhover can read.
    """
    try:
        if offset["v"] != VERSION:
            raise Disagreement(
                f"the checkpoint holds offsets of version {offset['v']}, this Windhover reads version"
                f" {VERSION}; go on with the version that wrote it, or start with a fresh checkpoint"
            )
        return Journal(
            session=offset["session"],
            epoch=offset["epoch"],
            now=offset["now"],
            tasks=offset["tasks"],
            sources=MappingProxyType({int(name): _mark(mark) for name, mark in offset["sources"].items()}),
            ranges=tuple(SourceRun(*run) for run in offset["ranges"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Disagreement(
            f"the checkpoint holds an offset that is not Windhover's ({type(error).__name__}: {error});"
            " name the checkpoint of this query, or start with a fresh one"
        ) from error


def _mark(mark: Mapping[str, Any]) -> SourceMark:
    return SourceMark(mark["from"], mark["next"], tuple(Run(*gap) for gap in mark["gaps"]))


def batch_ranges(start: Journal, end: Journal) -> tuple[SourceRun, ...]:
    """Return what the batch between two offsets emits; a pure function of them."""
    return () if start == end else end.ranges
