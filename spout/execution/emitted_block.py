"""What a bolt emitted on one stream while it worked on its inbox, column by column.

A rich bolt's emissions come one by one, with anchors of their own. Those of a `BasicBolt` all descend from
the tuple that it was called for, so a row number for each is enough, and places are computed by the column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spout.bolts.emitting import Emits, Sent, TopologyCollector
from spout.execution.passes import ordinals_of
from spout.tuples.collector import DEFAULT_STREAM, BasicCollector, MessageId, Rows, Tuple, Values
from spout.tuples.places import Deliveries, children_of, kept_of
from spout.tuples.rows import FindId, unknown_id


@dataclass(frozen=True, slots=True)
class Block:
    """Emissions on one stream.

    Attributes:
        stream: its name.
        values: of each emission, one for each field.
        parcels: for each subscription and copy of it, the places of each emission in its trees.
        tasks: the task of each emission on a direct stream, else -1.
        anchored_on: returns the places of a row's anchors.
        find_id: returns the message id of a row's first anchor.
    """

    stream: str
    values: Sequence[Sequence[Any]]
    parcels: Sequence[Sequence[Deliveries]]
    tasks: Sequence[int]
    anchored_on: Callable[[int], Deliveries]
    find_id: FindId

    def kept(self, rows: Sequence[int]) -> Block:
        """Return the block with these of its rows alone."""
        return Block(
            self.stream,
            [self.values[row] for row in rows],
            [kept_of(parcel, rows) for parcel in self.parcels],
            [self.tasks[row] for row in rows],
            lambda row: self.anchored_on(rows[row]),
            lambda row: self.find_id(rows[row]),
        )


def blocks_of(sent: Sequence[Sent], streams: Mapping[str, Emits]) -> list[Block]:
    """Sort emissions that came one by one into a block for each stream."""
    by_stream: dict[str, list[Sent]] = {}
    for each in sent:
        by_stream.setdefault(each.stream, []).append(each)
    return [_block(stream, emissions, streams[stream]) for stream, emissions in by_stream.items()]


def _block(stream: str, emissions: Sequence[Sent], emits: Emits) -> Block:
    def anchored_on(row: int) -> Deliveries:
        return tuple(each for anchor in emissions[row].anchors for each in anchor.deliveries)

    def find_id(row: int) -> MessageId:
        anchors = emissions[row].anchors
        return anchors[0].message_id if anchors else unknown_id(row)

    keys = [outlet.subscription for outlet in emits.outlets for _ in range(outlet.copies)]
    return Block(
        stream,
        [each.values for each in emissions],
        [_parcel(emissions, number, key) for number, key in enumerate(keys)],
        [each.task for each in emissions],
        anchored_on,
        find_id,
    )


def _parcel(emissions: Sequence[Sent], number: int, key: int) -> Sequence[Deliveries]:
    """Return the places of emissions on the subscription of this number and key."""
    first = emissions[0].anchors
    places = first[0].places if first else ()
    if all(len(each.anchors) == 1 and each.anchors[0].places is places for each in emissions):
        parents = np.array([each.anchors[0].row for each in emissions], np.int64)
        return children_of(places, parents, key, np.array([each.ordinals[number][0] for each in emissions]))
    return [
        tuple(
            [
                parent.child(key, ordinal)
                for anchor, ordinal in zip(each.anchors, each.ordinals[number], strict=True)
                for parent in anchor.deliveries
            ]
        )
        for each in emissions
    ]


class PlacedTuple(Tuple):
    """A tuple that a `BasicBolt` receives: it can tell its places in its trees."""

    __slots__ = ("_places",)

    def __init__(self, rows: Rows, row: int, places: Sequence[Deliveries]) -> None:
        """Look at one row; `places` are those of all rows."""
        self._rows = rows  # as Tuple does: a call for each tuple of a stream would be felt
        self._row = row
        self._places = places

    @property
    def deliveries(self) -> Deliveries:
        """Its places in its trees."""
        return self._places[self._row]


class _Emitted:
    """Emissions on one stream: of each its values, its row, and on a direct stream its task."""

    __slots__ = ("parents", "tasks", "values", "width")

    def __init__(self, emits: Emits) -> None:
        self.width = len(emits.fields)
        self.values: list[Sequence[Any]] = []
        self.parents: list[int] = []
        self.tasks: list[int] | None = [] if emits.direct else None

    def drop(self, row: int) -> None:
        """Forget what was emitted last, for a row."""
        count = len(self.parents)
        while count and self.parents[count - 1] == row:
            count -= 1
        del self.values[count:], self.parents[count:]
        if self.tasks is not None:
            del self.tasks[count:]


class BlockCollector(BasicCollector):
    """Collects what a `BasicBolt` emits for the rows of one inbox; `row` is the one that it works on."""

    __slots__ = ("_collector", "_emitted", "row")

    def __init__(self, collector: TopologyCollector) -> None:
        """Check emissions as a collector of a rich bolt does."""
        super().__init__(self._emit)
        self._collector = collector
        self._emitted: dict[str, _Emitted] = {}
        self.row = 0

    def _emit(self, values: Values, /, stream: str = DEFAULT_STREAM) -> None:
        emitted = self._emitted.get(stream)
        if (
            (type(values) is not tuple and type(values) is not list)
            or emitted is None
            or len(values) != emitted.width
            or emitted.tasks is not None
        ):
            emits, values = self._collector.checked(values, stream)
            emitted = emitted or self._begin(stream, emits)
        emitted.values.append(values)
        emitted.parents.append(self.row)

    def emit_direct(self, task: int, values: Values, stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple to a task; see `BasicCollector.emit_direct`."""
        emits, row = self._collector.checked(values, stream, task)
        emitted = self._begin(stream, emits)
        emitted.values.append(row)
        emitted.parents.append(self.row)
        if emitted.tasks is not None:
            emitted.tasks.append(task)

    def report_error(self, error: BaseException | str) -> None:
        """Show an error in the topology's status."""
        self._collector.report_error(error)

    @property
    def is_empty(self) -> bool:
        """Whether everything that was emitted was taken."""
        return not self._emitted

    def drop(self) -> None:
        """Forget what was emitted for this row: its call failed."""
        for emitted in self._emitted.values():
            emitted.drop(self.row)

    def blocks(self, streams: dict[str, Emits], rows: Rows, places: Sequence[Deliveries]) -> list[Block]:
        """Return what was emitted for all rows, and begin anew."""
        emitted, self._emitted = self._emitted, {}
        return [
            _born(stream, found, streams[stream], rows, places)
            for stream, found in emitted.items()
            if found.values
        ]

    def _begin(self, stream: str, emits: Emits) -> _Emitted:
        return self._emitted.setdefault(stream, _Emitted(emits))


def _born(stream: str, emitted: _Emitted, emits: Emits, rows: Rows, places: Sequence[Deliveries]) -> Block:
    """Place what was emitted below the rows that it descends from."""
    parents = emitted.parents
    born_of = np.array(parents, np.int64)
    nth = ordinals_of(born_of, len(rows))
    parcels = [
        children_of(places, born_of, outlet.subscription, nth * outlet.copies + copy)
        for outlet in emits.outlets
        for copy in range(outlet.copies)
    ]
    return Block(
        stream, emitted.values, parcels, emitted.tasks or [-1] * len(parents),
        lambda row: places[parents[row]], lambda row: rows.message_id(parents[row]),
    )  # fmt: skip
