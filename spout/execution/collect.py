"""Runs a bolt in a test, without Spark: the same code that calls it in a
task, for tuples of the test.

What a task would publish as a failure is raised here, so that a test sees the
exception itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from acker.errors import TupleError, UsageError
from spout.bolts.bolts import (
    AnyBolt,
    bolt_name,
    check_bolt,
    declared_streams,
    invoke,
    raise_if_it_ends_query,
)
from spout.bolts.ddl_types import read_ddl
from spout.bolts.hooks import BoltContext
from spout.bolts.keyed_bolt import KeyedBolt, KeyedCollector, KeyedTuple
from spout.bolts.outputs import arrow_output
from spout.execution.bolt_work import BoltWork
from spout.topology.stage_pass import BoltPass, StreamPass
from spout.topology.stages import SinkOutput
from spout.tuples.exact import python_values
from spout.tuples.failures import Cause, FailTuple, RejectTuple, Undecodable
from spout.tuples.raised import Tracebacks
from spout.tuples.rows import ListRows, batch_of, misfits, size_error
from spout.tuples.tuple import DEFAULT_STREAM, Delivery, StreamId, Tuple, text_of

_ZONE: Final = "UTC"
"""Zone of the times that a bolt emits; in Spark it is that of the session."""

_SPECIAL_FAILURES: Final = (Undecodable, RejectTuple)
"""Exceptions that a bolt may pass to `fail` without raising them; any other
one becomes a `FailTuple`.
"""


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

    Each row is checked against the bolt's `output`, and is as Spark would
    have it: an int that is emitted as ``double`` is a float. The bolt is
    prepared before the first tuple and cleaned up behind the last one.

    Args:
        bolt: a `BasicBolt`, `Bolt`, `ArrowBolt` or `KeyedBolt`. Each tuple is
            a call, or an Arrow batch, of its own; a keyed bolt has one call
            for each key, with all tuples of that key.
        tuples: as `tuple_of` makes them. An ArrowBolt gets columns of the
            types that PyArrow finds in them.
        by: for a keyed bolt, the fields of the key, as in `keyed`; none: all
            tuples have one key.
        stream: of a bolt that declares several, the stream whose rows are
            returned; all are checked.
        may_leave_open: whether the bolt may leave a tuple neither acked nor
            failed. A keyed bolt always may.

    Raises:
        Exception: what the bolt raised, or failed a tuple with; by a text:
            `FailTuple`. Or a row does not fit the output: `TupleError`, or
            what PyArrow says of the value.
        TupleError: a tuple was left open.
        UsageError: the bolt is a class, has no output that can be read, or no
            such stream.
    """
    name = bolt_name(bolt, None)
    check_bolt(name, bolt)
    if isinstance(bolt, KeyedBolt):
        key_fields = (by,) if isinstance(by, str) else tuple(by)
        return _collect_keyed(name, bolt, tuples, key_fields)
    if by:
        raise UsageError(
            f"bolt {name!r} is no KeyedBolt, so that its tuples have no key; leave by={by!r} out"
        )
    streams = _streams(name, bolt)
    if stream not in streams:
        declared = ", ".join(streams) or "no stream"
        raise UsageError(f"bolt {name!r} has no stream {stream!r}; it declares {declared}")
    bolt_pass = BoltPass(name, bolt, streams, tasks=0)
    work = BoltWork(bolt_pass, _first_task(name), tracked=False)
    # in the place of what keeps tracebacks as texts, so that a test sees the exceptions themselves
    exceptions = _RaisedExceptions()
    work.collector.tracebacks = exceptions
    rows: list[tuple[Any, ...]] = []
    for index, received in enumerate(tuples):
        # each tuple is a root of its own: the empty path is the root itself
        root = Delivery(index, path=())
        work.call_bolt(_as_row(received), [(root,)])
        _raise_failure_of(work, exceptions)
        rows += _pop_rows(work, stream)
    # a bolt may emit, and fail what it has kept, in its cleanup too
    work.cleanup()
    _raise_failure_of(work, exceptions)
    rows += _pop_rows(work, stream)
    if not may_leave_open and (work.collector.open_tuples or work.collector.left_open):
        raise TupleError(
            f"bolt {name!r} neither acked nor failed a tuple, so that its record would time out and come"
            " again; if it means to, call collect(..., may_leave_open=True)"
        )
    return rows


def _first_task(name: str) -> BoltContext:
    """Return the context of the first task of the first batch."""
    return BoltContext(name, partition=0, batch_id=0)


class _RaisedExceptions(Tracebacks):
    """Keeps the exceptions themselves in place of their tracebacks.

    `by_error`: the first one of each class, by the name that a cause has for the class
    (`Cause.error`).
    """

    __slots__ = ("by_error",)

    def __init__(self) -> None:
        super().__init__()
        self.by_error: dict[str, BaseException] = {}

    def keep(self, operator: str, error: str, place: str, raised: BaseException) -> None:
        """Keep the first exception of each class: a test stops at it."""
        self.by_error.setdefault(error, raised)


def _raise_failure_of(work: BoltWork, exceptions: _RaisedExceptions) -> None:
    """Raise the first failure of a bolt; do nothing if there is none."""
    causes = [cause for _root, cause in work.collector.failures]
    _raise_first(causes, exceptions)


def _raise_first(causes: Sequence[Cause], exceptions: _RaisedExceptions) -> None:
    """Raise what the first cause is about: the exception itself if one was raised.

    Do nothing if there is no cause.
    """
    if not causes:
        return
    first_cause = causes[0]
    exception = exceptions.by_error.get(first_cause.error)
    if exception is None:
        exception = _exception_of(first_cause)
    raise exception


def _exception_of(cause: Cause) -> Exception:
    """Return an exception for a cause whose tuple was failed by a text, or by an exception that
    nobody raised.
    """
    for exception_class in _SPECIAL_FAILURES:
        if exception_class.__name__ in cause.error:
            return exception_class(cause.message)
    if not cause.error:  # failed by a text
        return FailTuple(cause.message)
    return FailTuple(f"{cause.error}: {cause.message}")


def _streams(name: str, bolt: AnyBolt) -> Mapping[str, StreamPass]:
    """Return the streams of a bolt, by name, as in a task without other bolts.

    Each is an output of the sink: then its rows are converted to the types of the bolt's output,
    and a row that does not fit is refused, as in a task.
    """
    declared = declared_streams(name, bolt)
    has_default_alone = declared.keys() == {DEFAULT_STREAM}
    streams: dict[str, StreamPass] = {}
    for stream_name, (output, is_direct) in declared.items():
        stream_id = StreamId(name, stream_name)
        streams[stream_name] = StreamPass(
            id=stream_id,
            schema=arrow_output(name, output, _ZONE, read_ddl),
            column="",  # rows go to no other stage, in which they would need a column
            routes=(),
            outputs=(SinkOutput(number=0, stream=stream_id, stage=0),),
            direct=is_direct,
            # as for a bolt on a DataFrame, which has the default stream alone
            on_frame=has_default_alone and not is_direct,
        )
    return streams


def _as_row(received: Tuple) -> ListRows:
    """Return a tuple of the test as the one row of a task."""
    names, values = received.fields, received.values
    batch = pa.RecordBatch.from_pylist([dict(zip(names, values, strict=True))])
    return ListRows(names, [values], lambda _row: received.message_id, received.came_from, batch)


def _pop_rows(work: BoltWork, stream: str) -> list[tuple[Any, ...]]:
    """Remove all that a bolt has emitted since the last call, and return the rows of one stream."""
    rows: list[tuple[Any, ...]] = []
    for emissions in work.pop_emissions():
        if emissions.stream.id.stream == stream and emissions.arrow_rows is not None:
            rows += _python_rows(emissions.arrow_rows)
    return rows


def _python_rows(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Return the rows of a batch as tuples of Python values."""
    columns = [python_values(column) for column in batch.columns]
    return list(zip(*columns, strict=True))


def _collect_keyed(
    name: str, bolt: KeyedBolt, tuples: Sequence[Tuple], by: Sequence[str]
) -> list[tuple[Any, ...]]:
    """Return the rows that a keyed bolt emits: one call for each key, in the
    order of their first tuples.
    """
    schema = arrow_output(name, bolt.output, _ZONE, read_ddl)

    def check_emission(values: Sequence[Any]) -> None:
        """Raise where an emission does not fit the output."""
        wrong_size = size_error(values, schema.names, name)
        if wrong_size is not None:
            raise wrong_size
        for misfit in misfits([values], schema, name):
            raise TupleError(text_of(misfit.error)) from misfit.error

    tuples_by_key = _tuples_by_key(tuples, by)
    bolt.prepare(_first_task(name))
    rows: list[tuple[Any, ...]] = []
    for key, held_tuples in tuples_by_key.items():
        exceptions = _RaisedExceptions()
        collector = KeyedCollector(name, held_tuples, check_emission, schema.names, exceptions)
        try:
            invoke(name, bolt.execute, key, held_tuples, collector)
        except Exception as error:
            raise_if_it_ends_query(name, bolt, error)
            raise
        collector.is_closed = True
        causes = [cause for _failed_tuple, cause in collector.failed]
        _raise_first(causes, exceptions)
        rows += _python_rows(batch_of(collector.emissions, schema, name))
    return rows


def _tuples_by_key(
    tuples: Sequence[Tuple],
    by: Sequence[str],
) -> dict[tuple[Any, ...], list[KeyedTuple]]:
    """Return tuples as a keyed bolt holds them, by the values of their key's fields.

    `by`: the fields of the key; none: all tuples have the key ().
    """
    tuples_by_key: dict[tuple[Any, ...], list[KeyedTuple]] = {}
    for received in tuples:
        values = dict(zip(received.fields, received.values, strict=True))
        key = tuple(received[field] for field in by)
        held_tuple = KeyedTuple(values, anchor=None, came_from=received.came_from)
        tuples_by_key.setdefault(key, []).append(held_tuple)
    return tuples_by_key
