"""What a bolt emitted, as blocks of one stream, with the places of each row.

A rich bolt's emissions come one by one, with anchors of their own. Those of a
`BasicBolt` and an `ArrowBolt` all descend from one input row each, their
*parent*, so the number of that row is enough, and places are computed by the
column.

The *outlets* of a stream are the subscriptions of the bolts that read it. A
grouping may send each tuple to several tasks of such a bolt: then the outlet
has several *copies*, and each copy of a tuple has a place of its own in the
trees of its roots. The *ordinal* in that place numbers the deliveries of one
parent on one subscription.
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
from spout.tuples.places import Deliveries, children_of, ordinals_for_children
from spout.tuples.rows import ArrowRows, ListRows, unknown_id
from spout.tuples.tuple import DEFAULT_STREAM, AnchoredTuple, MessageId, Rows, Values, text_of

T = TypeVar("T")


class Emissions(NamedTuple):
    """Rows that a bolt emitted on one stream.

    Attributes:
        rows: the tuples, for bolts of this stage.
        batch: the same as Arrow rows, where somebody needs them so
            (`StreamPass.as_arrow`); else None.
        places_by_copy: for each outlet and copy of it, in their order, the
            places of each tuple in its trees.
        tasks: `(n,) int64`: on a direct stream the task of each tuple; else
            None.
    """

    stream: StreamPass
    rows: Rows
    batch: pa.RecordBatch | None
    places_by_copy: Sequence[Sequence[Deliveries]]
    tasks: I64 | None = None


def emissions_by_hand(stream: StreamPass, sent: Sequence[Sent], batch: pa.RecordBatch | None) -> Emissions:
    """Return as one block the emissions that came one by one, each with anchors of its own.

    Args:
        sent: all of one stream.
        batch: the same as Arrow rows, where somebody needs them so; else None.
    """

    def find_id(row: int) -> MessageId:
        anchors = sent[row].anchors
        return anchors[0].message_id if anchors else unknown_id(row)

    values = [emission.values for emission in sent]
    rows = ListRows(stream.schema.names, values, find_id, stream.id, batch)
    places_by_copy: list[Sequence[Deliveries]] = []
    if sent:
        # in the order in which `Sent.ordinals` counts the copies of all outlets
        for outlet in stream.emits.outlets:
            for _copy in range(outlet.copies):
                number = len(places_by_copy)
                places_by_copy.append(_places_of_copy(sent, number, outlet.subscription))
    tasks = None
    if stream.direct:
        tasks = np.array([emission.task for emission in sent], np.int64)
    return Emissions(stream, rows, batch, places_by_copy, tasks)


def _places_of_copy(sent: Sequence[Sent], number: int, subscription: int) -> Sequence[Deliveries]:
    """Return the places of emissions for one copy on one outlet.

    Args:
        sent: at least one emission.
        number: of the copy, counted over all outlets.
        subscription: the outlet's key.
    """
    first_anchors = sent[0].anchors
    places = first_anchors[0].places if first_anchors else ()
    have_one_anchor_each = all(
        len(emission.anchors) == 1 and emission.anchors[0].places is places for emission in sent
    )
    if not have_one_anchor_each:
        return [emission.deliveries(number, subscription) for emission in sent]
    # all are anchored on rows of one block: their places can be arrays, if
    # those of the block are
    parents = np.array([emission.anchors[0].row for emission in sent], np.int64)
    ordinals = np.array([emission.ordinals[number] for emission in sent])
    return children_of(places, parents, subscription, ordinals)


def emissions_by_row(emitted: EmittedRows, inputs: Rows, places: Sequence[Deliveries]) -> Emissions:
    """Return as one block rows that each descend from one input row.

    Args:
        inputs: the rows that the bolt was called for.
        places: of each input row.
    """
    stream, values, parents, tasks, batch = emitted

    def find_id(row: int) -> MessageId:
        return inputs.message_id(int(parents[row]))

    rows: Rows
    if values is None:
        rows = ArrowRows(batch, find_id, stream.id)
    else:
        rows = ListRows(stream.schema.names, values, find_id, stream.id, batch)
    outlets = stream.emits.outlets
    # of each emission the number among those of its parent; 0: nobody reads the stream
    ordinals = ordinals_for_children(places, parents, len(inputs)) if outlets else 0
    places_by_copy: list[Sequence[Deliveries]] = []
    for outlet in outlets:
        for copy in range(outlet.copies):
            # emission 5 of an input row has with three copies the ordinals
            # 15, 16 and 17
            ordinals_of_copy = ordinals * outlet.copies + copy
            places_of_copy = children_of(places, parents, outlet.subscription, ordinals_of_copy)
            places_by_copy.append(places_of_copy)
    return Emissions(stream, rows, batch, places_by_copy, tasks)


class EmittedValues(NamedTuple):
    """What was emitted on one stream, as it was emitted: for each row its values, in order.

    `parents` and `tasks` are as in `EmittedRows`.
    """

    stream: str
    values: list[Sequence[Any]]
    parents: I64
    tasks: I64 | None


class RowCollector(BasicCollector):
    """Collects what a `BasicBolt` emits for many input rows; the same one in all of a task.

    Attributes:
        values: the values of the emissions, in order.
        ends: how many emissions there were when the bolt was done with each
            input row: [2, 2, 5] where it emitted two rows for the first one,
            none for the second, three for the third.
    """

    __slots__ = ("_report", "ends", "values")

    def __init__(self, report: Callable[[BaseException | str], None]) -> None:
        self.values: list[Sequence[Any]] = []
        self.ends: list[int] = []
        self._report = report
        super().__init__(self._emit_function())

    def _emit_function(self) -> Emit:
        """Return what a bolt calls as ``collector.emit``."""
        # list.append itself, since a call in between would cost as much as
        # the tuple: it takes no stream
        return cast("Emit", self.values.append)

    def report_error(self, error: BaseException | str) -> None:
        self._report(error)

    def drop_current_row(self) -> None:
        """Remove what was emitted for the input row that is worked on: its call failed."""
        emissions_before = self.ends[-1] if self.ends else 0
        del self.values[emissions_before:]

    def pop_with_parents(self, worked_rows: I64) -> tuple[list[Sequence[Any]], I64]:
        """Remove all emissions; return them, and the number of each one's input row, `(n,) int64`.

        `worked_rows`: the numbers of the input rows that the bolt was called
        for, one for each of `ends`.
        """
        borders = np.array([0, *self.ends], np.int64)
        emitted_by_row = borders[1:] - borders[:-1]
        parents = np.repeat(worked_rows, emitted_by_row)
        self.ends.clear()
        return pop_first(self.values, len(parents)), parents

    def pop_by_stream(self, worked_rows: I64) -> list[EmittedValues]:
        """Remove all emissions, and return those of each stream together.

        `worked_rows`: as in `pop_with_parents`.
        """
        values, parents = self.pop_with_parents(worked_rows)
        return [EmittedValues(DEFAULT_STREAM, values, parents, tasks=None)]

    def in_words_of_bolts(self, bolt: str, error: BaseException) -> BaseException:
        """Return an error in the words of a collector, where it is in those
        of `list.append`.
        """
        if type(error) is not TypeError or not text_of(error).startswith("list.append() takes "):
            return error
        return one_stream_error(bolt).with_traceback(error.__traceback__)


class StreamCollector(RowCollector):
    """Collects what a `BasicBolt` of a topology emits, on any of its streams;
    each emission is checked.
    """

    __slots__ = ("_collector", "_emits_by_stream", "_has_default_alone", "_streams", "_tasks")

    def __init__(self, collector: OutputCollector, emits_by_stream: Mapping[str, Emits]) -> None:
        self._collector = collector
        self._emits_by_stream = emits_by_stream
        self._has_default_alone = (
            list(emits_by_stream) == [DEFAULT_STREAM] and not emits_by_stream[DEFAULT_STREAM].direct
        )
        # of each emission its stream and its task (-1: no direct one); both
        # stay empty where the bolt has no stream but the default one
        self._streams: list[str] = []
        self._tasks: list[int] = []
        super().__init__(collector.report_error)

    def _emit_function(self) -> Emit:
        """Return what a bolt calls as ``collector.emit``; it checks what may be wrong."""
        # bound here, since they are called for each tuple
        append_values = self.values.append
        append_stream = self._streams.append
        append_task = self._tasks.append
        check = self._collector.checked
        if not self._has_default_alone:

            def emit(values: Values, /, stream: str = DEFAULT_STREAM) -> None:
                append_values(check(values, stream))
                append_stream(stream)
                append_task(-1)

            return emit
        width = len(self._emits_by_stream[DEFAULT_STREAM].fields)

        def emit_on_default(values: Values, /, stream: str = DEFAULT_STREAM) -> None:
            # a tuple of the right size needs no check, and nearly every
            # emission is one
            if type(values) is not tuple or len(values) != width or stream != DEFAULT_STREAM:
                values = check(values, stream)
            append_values(values)

        return emit_on_default

    def emit_direct(self, task: int, values: Values, stream: str = DEFAULT_STREAM) -> None:
        row = self._collector.checked(values, stream, task)
        self.values.append(row)
        self._streams.append(stream)
        self._tasks.append(task)

    def drop_current_row(self) -> None:
        super().drop_current_row()
        del self._streams[len(self.values) :], self._tasks[len(self.values) :]

    def pop_by_stream(self, worked_rows: I64) -> list[EmittedValues]:
        """Remove all emissions, and return those of each stream together."""
        if self._has_default_alone:  # then streams and tasks were not kept
            return super().pop_by_stream(worked_rows)
        values, parents = self.pop_with_parents(worked_rows)
        tasks = np.array(pop_first(self._tasks, len(values)), np.int64)
        streams = pop_first(self._streams, len(values))
        numbers_by_stream: dict[str, list[int]] = {}
        for number, stream in enumerate(streams):
            numbers_by_stream.setdefault(stream, []).append(number)
        emitted: list[EmittedValues] = []
        for stream, numbers in numbers_by_stream.items():
            is_direct = self._emits_by_stream[stream].direct
            of_stream = EmittedValues(
                stream,
                values=[values[number] for number in numbers],
                parents=parents[numbers],
                tasks=tasks[numbers] if is_direct else None,
            )
            emitted.append(of_stream)
        return emitted

    def in_words_of_bolts(self, bolt: str, error: BaseException) -> BaseException:
        return error  # it never calls `list.append` for a bolt


class TreeCollector(BasicCollector):
    """Passes on what a `BasicBolt` emits, anchored on its input, where hooks
    watch each tuple.

    Attributes:
        current: the input that ``execute`` works on; None: it does not run.
    """

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
        """Return the tuple that ``execute`` works on; `TupleError`: it does not run."""
        if self.current is None:
            raise too_late(self._bolt)
        return self.current


def pop_first(elements: list[T], count: int) -> list[T]:
    """Remove the first `count` elements of a list, and return them; what
    another thread adds meanwhile stays in it.
    """
    first_elements = elements[:count]
    del elements[:count]
    return first_elements


def too_late(bolt: str) -> TupleError:
    """Return the error for an emission that no call of ``execute`` made."""
    return TupleError(
        f"bolt {bolt!r} emitted while no call of execute ran, in cleanup or from another thread; there is no"
        " input to anchor on: make it a Bolt, which keeps its tuples until its work is done"
    )
