"""What a bolt emitted, as blocks of one stream, with the places of each row.

A rich bolt's emissions come one by one, with anchors of their own. Those of a `BasicBolt` and an `ArrowBolt`
all descend from one input row each, so the number of that row is enough, and places are computed by the
column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import pyarrow as pa

from acker.errors import TupleError
from acker.identity import I64
from spout.bolts.collectors import BasicCollector, Emit, Emits, OutputCollector, Sent, one_stream_error
from spout.execution.calls import EmittedRows
from spout.topology.stage_pass import StreamPass
from spout.tuples.places import Deliveries, children_of, numbered
from spout.tuples.rows import ArrowRows, ListRows, unknown_id
from spout.tuples.tuple import DEFAULT_STREAM, AnchoredTuple, MessageId, Rows, Values

T = TypeVar("T")


class Emissions(NamedTuple):
    """Rows that a bolt emitted on one stream.

    Attributes:
        rows: the tuples, for bolts of this stage.
        batch: the same as Arrow rows, where somebody needs them so (`StreamPass.as_arrow`); else None.
        parcels: for each subscription and copy of it, the places of each tuple in its trees.
        tasks: `(n,) int64`: on a direct stream the task of each tuple; else None.
    """

    stream: StreamPass
    rows: Rows
    batch: pa.RecordBatch | None
    parcels: Sequence[Sequence[Deliveries]]
    tasks: I64 | None = None


def block_by_hand(stream: StreamPass, emissions: Sequence[Sent], batch: pa.RecordBatch | None) -> Emissions:

    def find_id(row: int) -> MessageId:
        anchors = emissions[row].anchors
        return anchors[0].message_id if anchors else unknown_id(row)

    values = [each.values for each in emissions]
    keys = [outlet.subscription for outlet in stream.emits.outlets for _ in range(outlet.copies)]
    return Emissions(
        stream,
        ListRows(stream.schema.names, values, find_id, stream.id, batch),
        batch,
        [_parcel(emissions, number, key) for number, key in enumerate(keys)] if emissions else [],
        np.array([each.task for each in emissions], np.int64) if stream.direct else None,
    )


def _parcel(emissions: Sequence[Sent], number: int, key: int) -> Sequence[Deliveries]:
    first = emissions[0].anchors
    places = first[0].places if first else ()
    if all(len(each.anchors) == 1 and each.anchors[0].places is places for each in emissions):
        parents = np.array([each.anchors[0].row for each in emissions], np.int64)
        return children_of(places, parents, key, np.array([each.ordinals[number] for each in emissions]))
    return [each.deliveries(number, key) for each in emissions]


def block_by_row(emitted: EmittedRows, source: Rows, places: Sequence[Deliveries]) -> Emissions:
    """Make a block of rows that each descend from one input row, of `source` with its `places`."""
    stream, values, parents, tasks, batch = emitted

    def find_id(row: int) -> MessageId:
        return source.message_id(int(parents[row]))

    rows: Rows
    if values is None:
        rows = ArrowRows(batch, find_id, stream.id)
    else:
        rows = ListRows(stream.schema.names, values, find_id, stream.id, batch)
    outlets = stream.emits.outlets
    ordinals = numbered(places, parents, len(source)) if outlets else 0
    parcels = [
        children_of(places, parents, outlet.subscription, ordinals * outlet.copies + copy)
        for outlet in outlets
        for copy in range(outlet.copies)
    ]
    return Emissions(stream, rows, batch, parcels, tasks)


class RowCollector(BasicCollector):
    """Collects what a `BasicBolt` emits for many input rows; the same one in all of a task.

    Attributes:
        values: the emissions, in order.
        ends: for each input row that was worked on, how many emissions there were then.
    """

    __slots__ = ("_report", "ends", "values")

    def __init__(self, report: Callable[[BaseException | str], None]) -> None:
        self.values: list[Sequence[Any]] = []
        self.ends: list[int] = []
        self._report = report
        super().__init__(self._emit_function())

    def _emit_function(self) -> Emit:
        # list.append itself, since a call in between would cost as much as the tuple: it takes no stream
        return cast("Emit", self.values.append)

    def report_error(self, error: BaseException | str) -> None:
        self._report(error)

    def drop(self) -> None:
        """Forget what was emitted for the input row that is worked on: its call failed."""
        del self.values[self.ends[-1] if self.ends else 0 :]

    def taken(self, rows: I64) -> tuple[list[Sequence[Any]], I64]:
        """Take the emissions, and for each the number of its input row, `(n,) int64`.

        `rows`: the numbers of the input rows that were worked on.
        """
        edges = np.array([0, *self.ends], np.int64)
        parents = np.repeat(rows, edges[1:] - edges[:-1])
        self.ends.clear()
        return taken_from(self.values, len(parents)), parents

    def by_stream(self, rows: I64) -> list[tuple[str, list[Sequence[Any]], I64, I64 | None]]:
        """Take for each stream its emissions, the input row of each, and on a direct one their tasks."""
        return [(DEFAULT_STREAM, *self.taken(rows), None)]

    def named(self, bolt: str, error: Exception) -> Exception:
        """Return an error in the words of a collector, where it is in those of `list.append`."""
        if type(error) is not TypeError or not str(error).startswith("list.append() takes "):
            return error
        return one_stream_error(bolt).with_traceback(error.__traceback__)


class StreamCollector(RowCollector):
    """Collects what a `BasicBolt` of a topology emits, on any of its streams; each emission is checked."""

    __slots__ = ("_collector", "_emits", "_has_one", "_streams", "_tasks")

    def __init__(self, collector: OutputCollector, streams: Mapping[str, Emits]) -> None:
        self._collector = collector
        self._emits = streams
        self._has_one = [(name, each.direct) for name, each in streams.items()] == [(DEFAULT_STREAM, False)]
        self._streams: list[str] = []
        self._tasks: list[int] = []
        super().__init__(collector.report_error)

    def _emit_function(self) -> Emit:
        append, named, tasks = self.values.append, self._streams.append, self._tasks.append
        check = self._collector.checked
        width = len(self._emits[DEFAULT_STREAM].fields) if self._has_one else -1

        def emit_on_one(values: Values, /, stream: str = DEFAULT_STREAM) -> None:
            if type(values) is not tuple or len(values) != width or stream != DEFAULT_STREAM:
                values = check(values, stream)
            append(values)

        def emit(values: Values, /, stream: str = DEFAULT_STREAM) -> None:
            append(check(values, stream))
            named(stream)
            tasks(-1)

        return emit_on_one if self._has_one else emit

    def emit_direct(self, task: int, values: Values, stream: str = DEFAULT_STREAM) -> None:
        row = self._collector.checked(values, stream, task)
        self.values.append(row)
        self._streams.append(stream)
        self._tasks.append(task)

    def drop(self) -> None:
        super().drop()
        del self._streams[len(self.values) :], self._tasks[len(self.values) :]

    def by_stream(self, rows: I64) -> list[tuple[str, list[Sequence[Any]], I64, I64 | None]]:
        if self._has_one:
            return super().by_stream(rows)
        values, parents = self.taken(rows)
        tasks = np.array(taken_from(self._tasks, len(values)), np.int64)
        streams = taken_from(self._streams, len(values))
        found: list[tuple[str, list[Sequence[Any]], I64, I64 | None]] = []
        for stream in dict.fromkeys(streams):
            here = [row for row, each in enumerate(streams) if each == stream]
            direct = tasks[here] if self._emits[stream].direct else None
            found.append((stream, [values[row] for row in here], parents[here], direct))
        return found

    def named(self, bolt: str, error: Exception) -> Exception:
        return error


class TreeCollector(BasicCollector):
    """Collects what a `BasicBolt` emits where each of its tuples is watched: anchored on `current`."""

    __slots__ = ("_bolt", "_collector", "current")

    def __init__(self, bolt: str, collector: OutputCollector) -> None:
        super().__init__(self._emit)
        self._bolt = bolt
        self._collector = collector
        self.current: AnchoredTuple | None = None

    def _emit(self, values: Values, /, stream: str = DEFAULT_STREAM) -> None:
        self._collector.emit(values, self._anchor(), stream)

    def emit_direct(self, task: int, values: Values, stream: str = DEFAULT_STREAM) -> None:
        self._collector.emit_direct(task, values, self._anchor(), stream)

    def report_error(self, error: BaseException | str) -> None:
        self._collector.report_error(error)

    def _anchor(self) -> AnchoredTuple:
        if self.current is None:
            raise too_late(self._bolt)
        return self.current


def taken_from(listed: list[T], count: int) -> list[T]:
    """Take the first elements out of a list; what another thread adds meanwhile stays in it."""
    found = listed[:count]
    del listed[:count]
    return found


def too_late(bolt: str) -> TupleError:
    return TupleError(
        f"bolt {bolt!r} emitted while no call of execute ran, in cleanup or from another thread; there is no"
        " input to anchor on: make it a Bolt, which keeps its tuples until its work is done"
    )
