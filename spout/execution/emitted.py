"""What bolts emitted, with the places of each row; and the collectors of a `BasicBolt`.

The *places* of a tuple are its `Deliveries`: one for each root that it descends from, with the path
from the root to the tuple.

A rich bolt emits by its `OutputCollector`, one `Sent` after the other, each with anchors of its
own. What a `BasicBolt` or an `ArrowBolt` emits descends from one input row each, its *parent*, so
the number of that row is enough, and places are computed for all rows together.

The *outlets* of a stream are the subscriptions of the bolts that read it. A grouping may send each
tuple to several tasks of such a bolt: then the outlet has several *copies*, and each copy of a
tuple has places of its own. The *ordinal* in a place numbers the deliveries of one parent on one
subscription.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import pyarrow as pa

from acker.errors import TupleError
from acker.identity import I64
from spout.bolts.collectors import (
    BasicCollector,
    Emit,
    EmittedStream,
    OutputCollector,
    Sent,
    one_stream_error,
)
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
        arrow_rows: the same as Arrow rows, where somebody needs them so
            (`StreamPass.needs_arrow_rows`); else None.
        places_by_copy: for each outlet and copy of it, in their order, the
            places of each tuple in its trees.
        tasks: `(n,) int64`: on a direct stream the task of each tuple; else
            None.
    """

    stream: StreamPass
    rows: Rows
    arrow_rows: pa.RecordBatch | None
    places_by_copy: Sequence[Sequence[Deliveries]]
    tasks: I64 | None = None


def emissions_of_sent(
    stream: StreamPass,
    sent: Sequence[Sent],
    arrow_rows: pa.RecordBatch | None,
) -> Emissions:
    """Return what an `OutputCollector` has sent on one stream, with the places of each.

    `arrow_rows`: the same as Arrow rows, where somebody needs them so; else None.
    """

    # of the tuple that it is anchored on first; without an anchor this raises
    def message_id_of(row: int) -> MessageId:
        anchors = sent[row].anchors
        return anchors[0].message_id if anchors else unknown_id(row)

    values = [emission.values for emission in sent]
    rows = ListRows(stream.schema.names, values, message_id_of, stream.id, arrow_rows)
    places_by_copy: list[Sequence[Deliveries]] = []
    if sent:  # `_places_of_copy` needs an emission
        # in the order in which `Sent.ordinals` has the copies of all outlets
        for outlet in stream.emitted_stream.outlets:
            for _copy in range(outlet.receiving_tasks):
                copy_number = len(places_by_copy)
                places_of_copy = _places_of_copy(sent, copy_number, outlet.subscription)
                places_by_copy.append(places_of_copy)
    tasks: I64 | None = None
    if stream.direct:
        tasks = np.array([emission.task for emission in sent], np.int64)
    return Emissions(stream, rows, arrow_rows, places_by_copy, tasks)


def _places_of_copy(
    sent: Sequence[Sent],
    copy_number: int,
    subscription: int,
) -> Sequence[Deliveries]:
    """Return the places of one copy of each emission.

    Args:
        sent: at least one emission.
        copy_number: counted over all outlets.
        subscription: the key of the copy's outlet.
    """
    anchors = sent[0].anchors
    places_of_block = anchors[0].places if anchors else ()
    # most bolts anchor each emission on one tuple of the same block
    have_one_anchor_each = all(
        len(emission.anchors) == 1 and emission.anchors[0].places is places_of_block for emission in sent
    )
    if not have_one_anchor_each:
        return [emission.deliveries(copy_number, subscription) for emission in sent]
    # their places are arrays, if those of the block are
    parents = np.array([emission.anchors[0].row for emission in sent], np.int64)
    # with one anchor, an emission has one ordinal for each copy
    ordinals = np.array([emission.ordinals[copy_number] for emission in sent])
    return children_of(places_of_block, parents, subscription, ordinals)


def emissions_of_rows(
    emitted: EmittedRows,
    inputs: Rows,
    places: Sequence[Deliveries],
) -> Emissions:
    """Return emitted rows, each with the places of a child of its input row.

    Args:
        emitted: each row has the number of its input row, its parent.
        inputs: the rows that the bolt was called for.
        places: of each input row.
    """
    stream, values, parents, tasks, arrow_rows = emitted

    def message_id_of(row: int) -> MessageId:
        return inputs.message_id(int(parents[row]))

    rows: Rows
    if values is None:  # the bolt emitted Arrow rows
        rows = ArrowRows(arrow_rows, message_id_of, stream.id)
    else:
        rows = ListRows(stream.schema.names, values, message_id_of, stream.id, arrow_rows)
    # the subscriptions of the bolts that read the stream
    outlets = stream.emitted_stream.outlets
    places_by_copy: list[Sequence[Deliveries]] = []
    if outlets:
        # the number of each emission among those of its parent
        emission_numbers = ordinals_for_children(places, parents, len(inputs))
        for outlet in outlets:
            for copy in range(outlet.receiving_tasks):
                # with three copies, emission 5 of an input row has the ordinals 15, 16 and 17
                ordinals_of_copy = emission_numbers * outlet.receiving_tasks + copy
                places_of_copy = children_of(places, parents, outlet.subscription, ordinals_of_copy)
                places_by_copy.append(places_of_copy)
    return Emissions(stream, rows, arrow_rows, places_by_copy, tasks)


class RowCollector(BasicCollector):
    """Collects what a `BasicBolt` emits for the rows of a block; a task has one for all blocks.

    Attributes:
        values: the values of the emissions, in order.
        ends: of each input row that is done, how many emissions there were at its end:
            [2, 2, 5] where the bolt emitted two rows for the first one, none for the second, three
            for the third.
    """

    __slots__ = ("_report", "_streams", "ends", "values")

    def __init__(
        self, streams: Mapping[str, StreamPass], report: Callable[[BaseException | str], None]
    ) -> None:
        """Collect for one task.

        Args:
            streams: of the bolt, by name.
            report: is called with errors that the bolt reports.
        """
        self._streams = streams
        self.values: list[Sequence[Any]] = []
        self.ends: list[int] = []
        self._report = report
        super().__init__(self._emit_function())

    def _emit_function(self) -> Emit:
        """Return what a bolt calls as ``collector.emit``."""
        # list.append itself, since a call in between would cost as much as
        # the tuple: so it takes no stream
        return cast("Emit", self.values.append)

    def report_error(self, error: BaseException | str) -> None:
        self._report(error)

    def drop_current_row(self) -> None:
        """Remove what was emitted for the input row that is worked on: its call failed."""
        emissions_before = self.ends[-1] if self.ends else 0
        del self.values[emissions_before:]

    def pop_with_parents(self, called_rows: I64) -> tuple[list[Sequence[Any]], I64]:
        """Remove all emissions; return their values, and the input row of each, `(n,) int64`.

        `called_rows`: the numbers of the input rows for which the bolt was called, one for each of
        `ends`.
        """
        # of the ends [2, 2, 5] and the called rows [0, 1, 3] the parents are [0, 0, 3, 3, 3]
        borders = np.array([0, *self.ends], np.int64)
        emission_count_by_row = borders[1:] - borders[:-1]
        parents = np.repeat(called_rows, emission_count_by_row)
        self.ends.clear()
        return pop_first(self.values, len(parents)), parents

    def pop_by_stream(self, called_rows: I64) -> list[EmittedRows]:
        """Remove all emissions; return those of each stream together, not checked against it yet.

        `called_rows`: as in `pop_with_parents`.
        """
        values, parents = self.pop_with_parents(called_rows)
        return [EmittedRows(self._streams[DEFAULT_STREAM], values, parents)]

    def reworded_error(self, bolt: str, error: BaseException) -> BaseException:
        """Return an error as one about ``collector.emit``, where it is one about `list.append`.

        The collector's `emit` is the method `append` of a list, since a call in between would cost
        as much as the tuple. So a bolt that names a stream, ``emit(values, "late")``, raises:
        list.append() takes exactly one argument. Any other error is returned as it is.

        `bolt`: its name.
        """
        if type(error) is not TypeError or not text_of(error).startswith("list.append() takes "):
            return error
        return one_stream_error(bolt).with_traceback(error.__traceback__)


class StreamCollector(RowCollector):
    """Collects what a `BasicBolt` of a topology emits, on any of its streams.

    Each emission is checked against its stream when it is emitted.
    """

    __slots__ = (
        "_collector",
        "_emits_by_stream",
        "_has_default_alone",
        "_stream_by_emission",
        "_task_by_emission",
    )

    def __init__(
        self,
        streams: Mapping[str, StreamPass],
        collector: OutputCollector,
        emits_by_stream: Mapping[str, EmittedStream],
    ) -> None:
        """Collect for one task; `collector` checks emissions, and gets reported errors."""
        self._collector = collector
        self._emits_by_stream = emits_by_stream
        # True: the bolt has no stream but the default one, and does not name its tasks. Then the
        # next two lists stay empty
        self._has_default_alone = (
            list(emits_by_stream) == [DEFAULT_STREAM] and not emits_by_stream[DEFAULT_STREAM].direct
        )
        self._stream_by_emission: list[str] = []
        self._task_by_emission: list[int] = []  # -1: it was emitted without a task
        super().__init__(streams, collector.report_error)

    def _emit_function(self) -> Emit:
        """Return what a bolt calls as ``collector.emit``, which refuses what does not fit."""
        # bound here, since they are called for each tuple
        append_values = self.values.append
        append_stream = self._stream_by_emission.append
        append_task = self._task_by_emission.append
        check = self._collector.checked
        if not self._has_default_alone:

            def emit(values: Values, /, stream: str = DEFAULT_STREAM) -> None:
                append_values(check(values, stream))
                append_stream(stream)
                append_task(-1)  # the bolt names no task

            return emit
        field_count = len(self._emits_by_stream[DEFAULT_STREAM].fields)

        def emit_on_default(values: Values, /, stream: str = DEFAULT_STREAM) -> None:
            # a tuple of the right size needs no check, and nearly every
            # emission is one. Another stream than the default one is refused by `check`
            if type(values) is not tuple or len(values) != field_count or stream != DEFAULT_STREAM:
                values = check(values, stream)
            append_values(values)

        return emit_on_default

    def emit_direct(self, task: int, values: Values, stream: str = DEFAULT_STREAM) -> None:
        checked_values = self._collector.checked(values, stream, task)
        self.values.append(checked_values)
        self._stream_by_emission.append(stream)
        self._task_by_emission.append(task)

    def drop_current_row(self) -> None:
        super().drop_current_row()
        emission_count = len(self.values)
        del self._stream_by_emission[emission_count:]
        del self._task_by_emission[emission_count:]

    def pop_by_stream(self, called_rows: I64) -> list[EmittedRows]:
        """Remove all emissions; return those of each stream together, not checked against it yet."""
        if self._has_default_alone:  # then the stream of each emission was not kept
            return super().pop_by_stream(called_rows)
        values, parents = self.pop_with_parents(called_rows)
        tasks = np.array(pop_first(self._task_by_emission, len(values)), np.int64)
        streams = pop_first(self._stream_by_emission, len(values))
        emission_numbers_by_stream: dict[str, list[int]] = {}
        for emission_number, stream in enumerate(streams):
            emission_numbers_by_stream.setdefault(stream, []).append(emission_number)
        emitted_by_stream: list[EmittedRows] = []
        for stream, emission_numbers in emission_numbers_by_stream.items():
            is_direct = self._emits_by_stream[stream].direct
            emitted_rows = EmittedRows(
                self._streams[stream],
                values=[values[emission_number] for emission_number in emission_numbers],
                parents=parents[emission_numbers],
                tasks=tasks[emission_numbers] if is_direct else None,
            )
            emitted_by_stream.append(emitted_rows)
        return emitted_by_stream

    def reworded_error(self, bolt: str, error: BaseException) -> BaseException:
        return error  # its `emit` is no `list.append`


class TreeCollector(BasicCollector):
    """Passes what a `BasicBolt` emits on to an `OutputCollector`, anchored on the bolt's input.

    It is used where hooks watch each tuple.

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
            raise outside_execute_error(self._bolt)
        return self.current


def pop_first(elements: list[T], count: int) -> list[T]:
    """Remove the first `count` elements of a list, and return them; what
    another thread adds meanwhile stays in it.
    """
    first_elements = elements[:count]
    del elements[:count]
    return first_elements


def outside_execute_error(bolt: str) -> TupleError:
    """Return the error for an emission that a `BasicBolt` made while ``execute`` did not run."""
    return TupleError(
        f"bolt {bolt!r} emitted while no call of execute ran, in cleanup or from another thread; there"
        " is no input to anchor on: make it a Bolt, which keeps its tuples until its work is done"
    )
