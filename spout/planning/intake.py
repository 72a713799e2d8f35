"""Choose the records of a batch: replays first, then fair shares of the inputs; a pure function.

Source: docs/design/protocol.md, section 5.1, "Planning".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from acker.identity import generation_of, is_replay, position_at
from acker.wire.events import PositionRun, SourceRun
from spout.planning.cursor import SourceCursor
from spout.planning.shares import fair_shares, near_block_end


@dataclass(frozen=True, slots=True)
class Room:
    """How many records may be taken.

    Attributes:
        total: from all sources together; None: any number.
        by_input: how many more roots of an input may become pending, by its id.
    """

    total: int | None
    by_input: Mapping[int, int]


def choose(
    cursors: Mapping[int, SourceCursor], ends: Mapping[int, int], input_ids: Mapping[int, int], room: Room,
    caps: Mapping[int, int] = MappingProxyType({}),
) -> list[SourceRun]:  # fmt: skip
    """Choose free positions to emit.

    Args:
        cursors: the free positions of each source.
        ends: by source, the offset below which it may be read now.
        input_ids: by source, the id of its input.
        room: how many records may be taken.
        caps: for some sources, how many records may be taken at most.

    Returns:
        Runs, ascending by source and start; empty if there are no records, or there is no room.
    """
    limits = {source: _limit(cursor, ends.get(source, 0)) for source, cursor in cursors.items()}
    free = {source: cursor.free_below(limits[source]) for source, cursor in cursors.items()}
    free |= {source: min(free[source], cap) for source, cap in caps.items()}
    left = dict(room.by_input)
    total = sum(free.values()) if room.total is None else room.total
    shares: dict[int, int] = {}
    for replay in (True, False):
        wanted = {source: count for source, count in free.items() if is_replay(source) == replay and count}
        granted = _gated(wanted, input_ids, left)
        taken = fair_shares(granted, total)
        total -= sum(taken.values())
        for source, count in taken.items():
            left[input_ids[source]] -= count
        shares |= taken
    runs: list[SourceRun] = []
    for source, count in sorted(shares.items()):
        runs += _first(source, cursors[source].free_runs(limits[source]), count, free[source])
    return runs


def _limit(cursor: SourceCursor, end: int) -> int:
    return position_at(generation_of(cursor.from_), end)


def _gated(
    wanted: Mapping[int, int], input_ids: Mapping[int, int], left: Mapping[int, int]
) -> dict[int, int]:
    """Distribute the room of each input over its sources."""
    granted: dict[int, int] = {}
    for input_id in sorted({input_ids[source] for source in wanted}):
        own = {source: count for source, count in wanted.items() if input_ids[source] == input_id}
        granted |= fair_shares(own, left[input_id])
    return granted


def _first(source: int, free: list[PositionRun], count: int, available: int) -> list[SourceRun]:
    """Return the first `count` free positions; if more are available, end at a near end of a block."""
    runs: list[SourceRun] = []
    leaves_some = count < available
    for start, end in free:
        if count <= 0:
            break
        taken = min(end - start, count)
        if leaves_some and taken == count:
            taken = near_block_end(start, taken)
        runs.append(SourceRun(source, start, start + taken))
        count -= end - start
    return runs
