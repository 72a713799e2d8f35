"""The open roots of inputs, oldest first: ``windhover roots``.

Source: docs/design/protocol.md, section 5.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from acker.config.settings import Input
from acker.identity import generation_of, input_id_of, is_replay, offset_of, partition_of
from acker.service.view import ViewReader
from replay.records.headers import location
from spout.inspect.letter_rows import moment
from spout.inspect.readings import OLD_MS
from spout.inspect.tables import Column, count, span

ROOTS: Final = (
    Column("root", "root"),
    Column("group", "group"),
    Column("open for", "age_ms", span),
    Column("emitted", "emitted"),
    Column("times out in", "left_ms", span),
    Column("session", "session"),
    Column("acker", "acker", count),
    Column("as of", "as_of_ms", span),
)

NEVER: Final = "never"
"""The text for a root that never times out."""


@dataclass(frozen=True, slots=True)
class OpenRoots:
    """Open roots.

    Attributes:
        rows: those to show.
        total: how many there are of that age in all.
        unknown: acker partitions without a State.
        old_ms: by acker partition the age of a State that is so old that more roots may be open.
    """

    rows: Sequence[Mapping[str, Any]]
    total: int
    unknown: Sequence[int]
    old_ms: Mapping[int, int]


def open_roots(
    observer: ViewReader, inputs: Iterable[Input], *, older_than_ms: int, limit: int, now_ms: int
) -> OpenRoots:
    """Collect the oldest open roots of some inputs from all acker partitions, at most `limit`.

    Only roots that have been open for `older_than_ms` or longer count; `now_ms` is wall time.
    """
    names = {one.id: one for one in inputs}
    views = [observer.view(number) for number in range(observer.partitions)]
    ages_ms = {each.partition: now_ms - each.at_ms for each in views if each is not None and each.is_behind}
    old_ms = {number: age_ms for number, age_ms in ages_ms.items() if age_ms >= OLD_MS}
    ranges = [
        (found, view)
        for view in views
        if view is not None
        for found in view.open_ranges()
        if input_id_of(found.source) in names and now_ms - found.emitted_ms >= older_than_ms
    ]
    ranges.sort(key=lambda each: (each[0].emitted_ms, each[0].source, each[0].first))
    rows: list[Mapping[str, Any]] = []
    for found, view in ranges:
        one = names[input_id_of(found.source)]
        shared = {
            "input": one.name,
            "group": found.group,
            "age_ms": max(0, now_ms - found.emitted_ms),
            "emitted": moment(found.emitted_ms),
            "in_state": found.in_state,
            # without an acker nothing times out
            "left_ms": NEVER
            if found.left_ms is None
            else None
            if view.partition in old_ms
            else found.left_ms,
            "session": f"{found.epoch}/{found.session}",
            "acker": view.partition,
            "as_of_ms": max(0, now_ms - view.at_ms),
        }
        first = found.at[: limit - len(rows)]
        rows += [{"root": root_name(one, found.source, found.start + int(at)), **shared} for at in first]
    unknown = [number for number, view in enumerate(views) if view is None]
    return OpenRoots(rows, sum(len(found.at) for found, _ in ranges), unknown, old_ms)


def root_name(one: Input, source: int, position: int) -> str:
    """Return a root's name for people: its record's place, and its generation if that is not the first."""
    topic = one.replay_topic if is_replay(source) else one.topic
    generation = generation_of(position)
    place = location(topic, partition_of(source), offset_of(position))
    return f"{place} (generation {generation})" if generation else place
