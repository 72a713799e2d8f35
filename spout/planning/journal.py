"""The offset of the streaming source, which Spark journals for each batch, as JSON.

``{"v": 1, "session", "epoch", "now", "tasks", "sources": {"<source>": {"from", "next", "gaps", "epoch"}},
"ranges": [[source, start, end], ...], "topics": {"<name>": "<Kafka's id>"},
"order": {"<source>": {"by", "waiting", "most"}}, "waits": [source, ...], "at", "cluster"}``

Older offsets have no `topics`, no `at` and no `cluster`; `order` and `waits` are missing if they
are empty, and the `epoch` of a source where none is known. Spark compares offsets as text, so the
order of keys is fixed. `ranges` cannot be computed from the `next` and `gaps` of two offsets:
between them may be a takeover or a new generation.

The offset before the first batch is empty and names no session. When Spark runs batch 0 again in a
new process, it requests that offset again; if that process created another session, this would take
the group over from the very batch that runs again.

Source: docs/design/protocol.md, section 5.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from acker.errors import Disagreement
from acker.kafka.port import NO_EPOCH
from acker.root_sets.position_set import PositionSet
from acker.untrusted import is_whole_number
from acker.wire.events import PositionRun, SourceRun
from spout.planning.order import LineUp, line_up_of

VERSION = 1

POSITIONS_END: Final = (1 << 63) - 1
"""Behind every position: they are int64, as an end is."""


class SourceMark(NamedTuple):
    """Which records of a source were emitted: [from_, next) of its generation, without the gaps.

    `leader_epoch` is an epoch of its leader in which the log had all of these, or `NO_EPOCH`.
    """

    from_: int
    next: int
    gaps: tuple[PositionRun, ...] = ()
    leader_epoch: int = NO_EPOCH

    def emitted(self, start: int, end: int) -> list[PositionRun]:
        """Return the parts of [start, end) that were emitted, ascending."""
        return self.not_emitted().outside(start, end)

    def not_emitted(self) -> PositionSet:
        """Return the gaps, and all from `next` on; what is before `from_` counts as emitted."""
        return PositionSet([*self.gaps, (self.next, POSITIONS_END)])


@dataclass(frozen=True, slots=True)
class Journal:
    """One offset of the source.

    Attributes:
        session, epoch: of the session that emitted the batch; empty before the
            first batch, and without tracking.
        now: session clock of the batch's last Init, ms.
        tasks: the largest number of read tasks of the batch.
        sources: what was emitted of each source, including this batch.
        ranges: what the batch emits, ascending by source and start; empty: it has no record.
        topics: Kafka's id of each topic that has one of the sources, by which
            a re-created one is noticed.
        order: for each partition that the batch reads in order, by its
            source: which records are blocked.
        at_ms: wall time at which the clock was `now`, ms; 0: unknown. A batch
            that emits nothing has the offset of the one before, and Spark's
            time of it shows how far the clock has moved since.
        cluster: id of the cluster in which the batch was planned; empty:
            unknown.
        waits: sources that were left out when the group began, since they had
            no leader, and do not take part yet: they begin where the others
            did.
    """

    session: str
    epoch: int
    now: int
    tasks: int
    sources: Mapping[int, SourceMark]
    ranges: tuple[SourceRun, ...]
    topics: Mapping[str, str] = field(default_factory=dict)
    order: Mapping[int, LineUp] = field(default_factory=dict)
    at_ms: int = 0
    waits: tuple[int, ...] = ()
    cluster: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the offset as Spark journals it; `journal_of` reads it."""
        order = {str(source): line_up.to_json() for source, line_up in sorted(self.order.items())}
        return {
            "v": VERSION,
            "session": self.session,
            "epoch": self.epoch,
            "now": self.now,
            "tasks": self.tasks,
            "sources": {str(source): _json_of(mark) for source, mark in sorted(self.sources.items())},
            "ranges": [list(run) for run in self.ranges],
            "topics": dict(sorted(self.topics.items())),
            # what older versions did not have is left out while there is none
            **({"order": order} if order else {}),
            **({"waits": list(self.waits)} if self.waits else {}),
            **({"at": self.at_ms} if self.at_ms else {}),
            **({"cluster": self.cluster} if self.cluster else {}),
        }


BEGINNING = Journal("", 0, 0, 1, MappingProxyType({}), ())
"""The offset before the first batch."""


def journal_of(offset: Mapping[str, Any]) -> Journal:
    """Read an offset that Spark journalled; `Disagreement`: this version of Windhover cannot.

    Keys that older versions did not write have the value that stands for *unknown* or *none*.
    """
    try:
        if offset["v"] != VERSION:
            raise Disagreement(
                f"the checkpoint holds offsets of version {offset['v']}, this Windhover reads version"
                f" {VERSION}; go on with the version that wrote it, or start with a fresh checkpoint"
            )
        return Journal(
            session=_text(offset["session"]),
            epoch=_number(offset["epoch"]),
            now=_number(offset["now"]),
            tasks=_number(offset["tasks"], least=1),
            sources=MappingProxyType(
                {int(source): _mark_of(mark) for source, mark in offset["sources"].items()}
            ),
            ranges=tuple(SourceRun(_number(source), *_run_of(ends)) for source, *ends in offset["ranges"]),
            topics={_text(name): _text(topic_id) for name, topic_id in offset.get("topics", {}).items()},
            order={int(source): line_up_of(value) for source, value in offset.get("order", {}).items()},
            at_ms=_number(offset.get("at", 0)),
            waits=tuple(_number(source) for source in offset.get("waits", ())),
            cluster=_text(offset.get("cluster", "")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Disagreement(
            f"the checkpoint holds an offset that is not Windhover's ({type(error).__name__}: {error});"
            " name the checkpoint of this query, or start with a fresh one"
        ) from error


def _json_of(mark: SourceMark) -> dict[str, Any]:
    """Return the mark of a source as JSON, without an epoch where none is known.

    `_mark_of` reads it.
    """
    value: dict[str, Any] = {
        "from": mark.from_,
        "next": mark.next,
        "gaps": [list(gap) for gap in mark.gaps],
    }
    if mark.leader_epoch != NO_EPOCH:
        value["epoch"] = mark.leader_epoch
    return value


def _mark_of(value: Mapping[str, Any]) -> SourceMark:
    """Read the mark of a source; errors as `journal_of` catches them."""
    gaps = tuple(_run_of(ends) for ends in value["gaps"])
    epoch = _number(value["epoch"]) if "epoch" in value else NO_EPOCH
    return SourceMark(_number(value["from"]), _number(value["next"]), gaps, epoch)


def _run_of(ends: Sequence[Any]) -> PositionRun:
    """Read a run, [start, end]."""
    start, end = ends
    return PositionRun(_number(start), _number(end, least=start))


def _number(value: Any, least: int = 0) -> int:
    """Return a value; `ValueError`: it is no int64 from `least` on."""
    if not is_whole_number(value, least, 1 << 63):
        raise ValueError(f"{value!r:.40} is no number that stands there")
    return value


def _text(value: Any) -> str:
    """Return a value; `ValueError`: it is no text."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} is no text")
    return value


def batch_ranges(start: Journal, end: Journal) -> tuple[SourceRun, ...]:
    """Return what the batch between two offsets emits.

    It is a pure function of them, and nothing where they are equal.
    """
    return () if start == end else end.ranges
