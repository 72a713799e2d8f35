"""Runs a bolt in a test, without Spark: the same code that calls it in a task, for tuples of the test.

What a task would publish as a failure is raised here, so that a test sees the exception itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from acker.errors import TupleError, UsageError
from spout.bolts.bolts import AnyBolt, bolt_name, check_bolt, declared_streams, invoke, stop_on
from spout.bolts.ddl_types import read_ddl
from spout.bolts.hooks import BoltContext
from spout.bolts.keyed_bolt import KeyedBolt, KeyedCollector, KeyedTuple
from spout.bolts.outputs import arrow_output
from spout.execution.bolt_work import BoltWork
from spout.topology.stage_pass import BoltPass, StreamPass
from spout.topology.stages import SinkOutput
from spout.tuples.failures import Cause, FailTuple, RejectTuple, Undecodable
from spout.tuples.raised import Tracebacks
from spout.tuples.rows import ListRows, batch_of, misfits, python_values, size_error
from spout.tuples.tuple import DEFAULT_STREAM, Delivery, StreamId, Tuple, text_of

_ZONE: Final = "UTC"
"""Zone of the times that a bolt emits; in Spark it is that of the session."""

_FAILURES: Final = (Undecodable, RejectTuple)
"""What a bolt may fail a tuple with, without raising it, and what is more than a `FailTuple`."""


def collect(
    bolt: AnyBolt | KeyedBolt,
    *tuples: Tuple,
    by: str | Sequence[str] = (),
    stream: str = DEFAULT_STREAM,
    may_leave_open: bool = False,
) -> list[tuple[Any, ...]]:
    """Return the rows that a bolt of any form emits for tuples, without Spark and Kafka.

    >>> line = spout.tuple_of({"value": b"the hawk"})
    >>> spout.collect(SplitSentence(), line)
    [('the',), ('hawk',)]

    Each row is checked against the bolt's `output`, and is as Spark would have it: an int that is emitted as
    ``double`` is a float. The bolt is prepared before the first tuple and cleaned up behind the last one.

    Args:
        bolt: a `BasicBolt`, `Bolt`, `ArrowBolt` or `KeyedBolt`. Each tuple is a call, or an Arrow batch, of
            its own; a keyed bolt has one call for each key, with all tuples of that key.
        tuples: as `tuple_of` makes them. An ArrowBolt gets columns of the types that PyArrow finds in them.
        by: for a keyed bolt, the fields of the key, as in `keyed`; none: all tuples have one key.
        stream: of a bolt that declares several, the stream whose rows are returned; all are checked.
        may_leave_open: whether the bolt may leave a tuple neither acked nor failed. A keyed bolt always may.

    Raises:
        Exception: what the bolt raised, or failed a tuple with; by a text: `FailTuple`. Or a row does not fit
            the output: `TupleError`, or what PyArrow says of the value.
        TupleError: a tuple was left open.
        UsageError: the bolt is a class, has no output that can be read, or no such stream.
    """
    name = bolt_name(bolt, None)
    check_bolt(name, bolt)
    if isinstance(bolt, KeyedBolt):
        return _collect_keyed(name, bolt, tuples, (by,) if isinstance(by, str) else tuple(by))
    if by:
        raise UsageError(
            f"bolt {name!r} is no KeyedBolt, so that its tuples have no key; leave by={by!r} out"
        )
    streams = _streams(name, bolt)
    if stream not in streams:
        declared = ", ".join(streams) or "no stream"
        raise UsageError(f"bolt {name!r} has no stream {stream!r}; it declares {declared}")
    work = BoltWork(BoltPass(name, bolt, streams, 0, ()), BoltContext(name, 0, 0), tracked=False)
    raised = work.collector.tracebacks = _Raised()
    rows: list[tuple[Any, ...]] = []
    for number, received in enumerate(tuples):
        work.receive(_rows_of(received, bolt), [(Delivery(number, ()),)])
        _raise_failure(work.collector.failures, raised)
        rows += _taken(work, stream)
    work.cleanup()
    _raise_failure(work.collector.failures, raised)
    rows += _taken(work, stream)
    if not may_leave_open and (work.collector.open or work.collector.left_open):
        raise TupleError(
            f"bolt {name!r} neither acked nor failed a tuple, so that its record would time out and come"
            " again; if it means to, call collect(..., may_leave_open=True)"
        )
    return rows


class _Raised(Tracebacks):
    """Keeps the exceptions themselves, by what a cause calls them."""

    __slots__ = ("by_error",)

    def __init__(self) -> None:
        super().__init__()
        self.by_error: dict[str, BaseException] = {}

    def keep(self, operator: str, error: str, place: str, raised: BaseException) -> None:
        self.by_error.setdefault(error, raised)


def _raise_failure(failures: Sequence[tuple[int, Cause]], raised: _Raised) -> None:
    """Raise the first failure of a tuple, if there is any."""
    for _root, cause in failures:
        if (original := raised.by_error.get(cause.error)) is not None:
            raise original
        raise _failure(cause)


def _failure(cause: Cause) -> Exception:
    """Build the exception for a tuple that was failed by a text, or by an exception that nobody raised."""
    for kind in _FAILURES:
        if kind.__name__ in cause.error:
            return kind(cause.message)
    return FailTuple(f"{cause.error}: {cause.message}" if cause.error else cause.message)


def _streams(name: str, bolt: AnyBolt) -> Mapping[str, StreamPass]:
    """Return the streams of a bolt, each as one that leaves the task, so that all its rows are converted."""
    declared = declared_streams(name, bolt)
    on_frame = declared.keys() == {DEFAULT_STREAM}
    streams = {}
    for stream, (output, direct) in declared.items():
        id_ = StreamId(name, stream)
        schema = arrow_output(name, output, _ZONE, read_ddl)
        streams[stream] = StreamPass(
            id_, schema, "", (), (SinkOutput(0, id_, 0),), direct=direct, on_frame=on_frame and not direct
        )
    return streams


def _rows_of(received: Tuple, bolt: AnyBolt) -> ListRows:
    """Return a tuple of the test as rows of a task."""
    names, values = received.fields, received.values
    batch = pa.RecordBatch.from_pylist([dict(zip(names, values, strict=True))])
    return ListRows(names, [values], lambda _row: received.message_id, received.came_from, batch)


def _taken(work: BoltWork, stream: str) -> list[tuple[Any, ...]]:
    """Return what a bolt emitted on a stream since this was called last."""
    rows: list[tuple[Any, ...]] = []
    for block in work.take():
        if block.stream.id.stream == stream and block.batch is not None:
            rows += _rows_in(block.batch)
    return rows


def _rows_in(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return list(zip(*map(python_values, batch.columns), strict=True))


def _collect_keyed(
    name: str, bolt: KeyedBolt, tuples: Sequence[Tuple], by: Sequence[str]
) -> list[tuple[Any, ...]]:
    schema = arrow_output(name, bolt.output, _ZONE, read_ddl)

    def check(values: Sequence[Any]) -> None:
        if (wrong := size_error(values, schema.names, name)) is not None:
            raise wrong
        for misfit in misfits([values], schema, name):
            raise TupleError(text_of(misfit.error)) from misfit.error

    held_by_key: dict[tuple[Any, ...], list[KeyedTuple]] = {}
    for received in tuples:
        values = dict(zip(received.fields, received.values, strict=True))
        key = tuple(received[field] for field in by)
        held_by_key.setdefault(key, []).append(KeyedTuple(values, None, 0, received.came_from))
    bolt.prepare(BoltContext(name, 0, 0))
    rows: list[tuple[Any, ...]] = []
    for key, held in held_by_key.items():
        raised = _Raised()
        collector = KeyedCollector(name, held, check, schema.names, raised)
        try:
            invoke(name, bolt.execute, key, held, collector)
        except Exception as error:
            stop_on(name, bolt, error)
            raise
        collector.is_closed = True
        _raise_failure([(0, cause) for _tuple, cause in collector.failed], raised)
        rows += _rows_in(batch_of(collector.emissions, schema, name))
    return rows
