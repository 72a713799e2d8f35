"""The open roots of inputs, oldest first: ``windhover roots``.

Source: docs/design/protocol.md, section 5.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from acker.config.settings import Input
from acker.identity import generation_of, input_id_of, is_replay, offset_of, partition_of
from acker.service.view import AckerView, OpenRange, ViewReader
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
        total: how many roots of that age are open.
        unknown: acker partitions without a State.
        old_ms: by acker partition the age of a State that is so old that more roots may be open.
    """

    rows: Sequence[Mapping[str, Any]]
    total: int
    unknown: Sequence[int]
    old_ms: Mapping[int, int]


def open_roots(
    view_reader: ViewReader, inputs: Iterable[Input], *, older_than_ms: int, limit: int, now_ms: int
) -> OpenRoots:
    """Read the States of all acker partitions; return the oldest open roots of some inputs.

    At most `limit` roots are rows. Only roots that have been open for `older_than_ms` or longer
    count; `now_ms` is wall time.
    """
    inputs_by_id = {input.id: input for input in inputs}
    view_by_acker = {number: view_reader.view(number) for number in range(view_reader.partitions)}
    unknown = [number for number, view in view_by_acker.items() if view is None]
    old_ms: dict[int, int] = {}
    ranges: list[tuple[OpenRange, AckerView]] = []
    for number, view in view_by_acker.items():
        if view is None:
            continue
        age_ms = now_ms - view.at_ms
        if view.is_behind and age_ms >= OLD_MS:
            old_ms[number] = age_ms
        for open_range in view.open_ranges():
            is_of_inputs = input_id_of(open_range.source) in inputs_by_id
            if is_of_inputs and now_ms - open_range.emitted_ms >= older_than_ms:
                ranges.append((open_range, view))

    def age_order(range_and_view: tuple[OpenRange, AckerView]) -> tuple[int, int, int]:
        open_range, _view = range_and_view
        return open_range.emitted_ms, open_range.source, open_range.first

    ranges.sort(key=age_order)
    rows: list[Mapping[str, Any]] = []
    for open_range, view in ranges:
        input = inputs_by_id[input_id_of(open_range.source)]
        row_of_range = _row_of_range(input, open_range, view, now_ms, is_old=view.partition in old_ms)
        for index in open_range.at[: limit - len(rows)]:
            name = root_name(input, open_range.source, open_range.start + int(index))
            rows.append({"root": name, **row_of_range})
    total = sum(len(open_range.at) for open_range, _view in ranges)
    return OpenRoots(rows, total, unknown, old_ms)


def _row_of_range(
    input: Input, open_range: OpenRange, view: AckerView, now_ms: int, *, is_old: bool
) -> dict[str, Any]:
    """Return what the rows of all roots of a range have in common; `is_old`: the State that has it is."""
    left_ms: int | str | None = open_range.left_ms
    if left_ms is None:
        left_ms = NEVER
    elif is_old:
        left_ms = None  # without an acker nothing times out, so it is unknown
    return {
        "input": input.name,
        "group": open_range.group,
        "age_ms": max(0, now_ms - open_range.emitted_ms),
        "emitted": moment(open_range.emitted_ms),
        "in_state": open_range.in_state,
        "left_ms": left_ms,
        "session": f"{open_range.epoch}/{open_range.session}",
        "acker": view.partition,
        "as_of_ms": max(0, now_ms - view.at_ms),
    }


def root_name(input: Input, source: int, position: int) -> str:
    """Return a root's name for people: its record's place, and its generation if that is not the first."""
    topic = input.replay_topic if is_replay(source) else input.topic
    generation = generation_of(position)
    place = location(topic, partition_of(source), offset_of(position))
    return f"{place} (generation {generation})" if generation else place
