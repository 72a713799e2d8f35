"""Keyed bolts on Spark's state store: `applyInPandasWithState`, with held tuples and anchors in the
state.

Spark calls `KeyedTask` for each key in a micro-batch. It calls the bolt, and returns rows: what the
bolt emitted, and what it did to its tuples, as texts that `spout.held.keyed_exit` reads.

A *tick* is a call of the bolt for what a key holds, without a new tuple: when the key got none for
`KeyedBolt.tick_ms`, or every `KeyedBolt.tick_every_ms`. (It is not the tick of a session.)
"""

from __future__ import annotations

import io
import json
import math
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import DataType, FractionalType, StructType

from acker.errors import TupleError, UsageError
from spout.bolts.bolts import bolt_name, check_bolt, invoke, raise_if_it_ends_query
from spout.bolts.hooks import BoltContext
from spout.bolts.keyed_bolt import KeyedBolt, KeyedCollector, KeyedTuple
from spout.bolts.outputs import arrow_output, zone_of_session, zone_or_utc
from spout.execution.calls import ClockNs
from spout.held.key_paths import FieldPath, field_path, value_at
from spout.held.keyed_exit import (
    ACKED,
    EMITTED,
    REPORT,
    RESET,
    counts_text,
    packed_row,
    stage_of_keyed_bolt,
    with_keyed_stage,
)
from spout.held.keyed_values import (
    TupleDecoder,
    encoded_column,
    has_times,
    loses_nulls,
    needs_encoding,
    nested_array_within,
    normal_floats,
    normal_key,
    readable_key,
    type_around_array,
    unhashable_map_key,
)
from spout.publishing.delayed import by_key
from spout.publishing.report_accumulator import TaskName, task_name
from spout.spark.versions import CARRIES_NESTED_ARRAYS, FRAMES_KEEP_WHOLE_NUMBERS, INSTALLED
from spout.streaming.query_plan import streams_read
from spout.tuples.anchor_columns import ANCHORS, HELD, HELD_TYPE
from spout.tuples.columns import ANCHOR
from spout.tuples.counts import Counted, Counts, Tally, What
from spout.tuples.failures import cause_of, with_class
from spout.tuples.raised import Tracebacks
from spout.tuples.rows import misfits, size_error
from spout.tuples.tuple import SPARK, StreamId, text_of

PandasFrame = Any  # pandas ships no types

MOVED = {"spout.keyed_bolt": "spout.bolts.keyed_bolt"}
"""Modules in the states of earlier versions, each with the module that has its classes now."""

ONE_KEY = "_key"
"""The column by which Spark groups tuples that all have one key; Spark's
state needs a column.
"""

KEY: Final = "_key{}"
"""Name of a column of the key, with its number among them: ``_key0``, ``_key1``."""

TUPLE: Final = "_windhover_tuple"
"""The column with the tuples of a DataFrame."""

Streams = Mapping[str, StreamId]
"""What a keyed bolt reads: the stream in each column of structs, which is
null in the rows of the others.

Tuples come as structs, since a column of numbers with a null among them would
come as floats.
"""


class ReportedRow(NamedTuple):
    """A row that a call of the bolt returns to Spark.

    Attributes:
        values: of an emitted row, by the output's fields; None: the bolt did
            not emit it.
        text: what the bolt did to the anchored tuples, in one of the forms of
            `spout.held.keyed_exit`. None: it emitted the row.
        anchors: of the tuples: source, position and edge of each.
    """

    values: Sequence[Any] | None
    text: str | None
    anchors: Iterable[tuple[int, int, int]]


def keyed(
    bolt: KeyedBolt, *, by: str | Sequence[str], name: str | None = None
) -> Callable[[DataFrame], DataFrame]:
    """Return a function for `DataFrame.transform` with which a bolt holds the
    tuples of each key.

    >>> class Sessions(spout.KeyedBolt):
    ...     output = "user string, lines int"
    ...     tick_ms = 60_000
    ...     def execute(self, key, held, collector):
    ...         pass  # wait for the tick
    ...     def tick(self, key, held, collector):
    ...         collector.emit((*key, len(held)))
    ...         collector.ack(*held)
    >>> lines = spout.read_stream(spark, topics, "sentences", delayed_acks=True)
    >>> by_user = lines.selectExpr("CAST(key AS string) AS user", "value", "_windhover")
    >>> held = by_user.transform(spout.hold(None))
    >>> sessions = held.transform(spout.keyed(Sessions(), by=["user"]))
    >>> sessions.dtypes
    [('user', 'string'), ('lines', 'int')]

    Use it behind `spout.hold(None)`, as the last operator, in output mode
    ``append``. Held tuples are in the query's checkpoint and survive a
    restart. A record that is held for longer than `held_timeout` of its input
    is replayed, unless the bolt resets it (`KeyedCollector.reset_timeout`).
    The acks of a call take effect when the micro-batch with that call's rows
    is written. `stream_status` counts the bolt like other bolts; the time to
    a tuple's ack includes the time for which it was held. Spark's Python
    state is slow, some thousand keys a second: if an aggregate is enough,
    `collect_anchors` in it is ten times as fast.

    Args:
        bolt: the bolt; every task works on a copy of it.
        by: the columns of the key, or a single one.
        name: the operator's name in causes, unique in the query; None: the name of the bolt's
            class.

    Raises:
        UsageError: `bolt` is no `KeyedBolt`, one of its methods would never
            run (a generator, `async`), `by` has no column, or the rows were
            not held.
    """
    operator = bolt_name(bolt, name)
    check_bolt(operator, bolt)
    if not isinstance(bolt, KeyedBolt):
        raise UsageError(
            f"{type(bolt).__name__!r} is no KeyedBolt; derive it from one, or attach it by spout.bolt, which"
            " keeps no key"
        )
    key_fields = key_columns(operator, by)

    def attach(rows: DataFrame) -> DataFrame:
        """Return what the bolt emits for held rows."""
        are_held = ANCHOR in rows.columns and rows.schema[ANCHOR].dataType.simpleString() == HELD
        if not are_held:
            raise UsageError(f"{operator!r}: these rows are not held; put spout.hold(None) before it")
        schema = arrow_output(operator, bolt.output, zone_of_session(rows.sparkSession))
        stage = stage_of_keyed_bolt(operator, schema, tracked=bool(streams_read(rows)))
        # the columns of the key are named _key0, _key1, so that no name of the tuple's fields is in
        # their way
        key_columns_of_rows = [
            sql.col(field).alias(KEY.format(number)) for number, field in enumerate(key_fields)
        ]
        # in backticks, since a name of a column may have a dot
        fields = [sql.col(f"`{name}`") for name in rows.columns if name != ANCHOR]
        keyed_rows = rows.select(*key_columns_of_rows, sql.struct(*fields).alias(TUPLE), ANCHOR)
        # rows in which the bolt emits and reports
        reported_rows = rows_reported_by_keyed_bolt(
            keyed_rows,
            operator,
            bolt,
            schema,
            streams={TUPLE: SPARK},  # all tuples are Spark's rows, in one column
            key_paths={TUPLE: _key_paths(operator, keyed_rows, key_fields)},
        )
        return with_keyed_stage(reported_rows, operator, stage)

    return attach


def rows_reported_by_keyed_bolt(
    rows: DataFrame,
    operator: str,
    bolt: KeyedBolt,
    schema: pa.Schema,
    streams: Streams,
    key_paths: Mapping[str, Sequence[FieldPath]],
) -> DataFrame:
    """Return the rows in which a keyed bolt emits and reports (`ReportedRow`).

    1. Refuse keys that pandas or Python cannot have.
    2. Make the function that Spark calls for each key.
    3. Encode what pandas cannot represent, and group the rows by key.

    Args:
        rows: what the bolt gets: first the columns of the key, then those of `streams`, then the
            anchors. If the key is `ONE_KEY` alone, all tuples have the key ().
        operator: the bolt's name in causes.
        schema: the bolt's output.
        streams: what the bolt reads: the stream in each column.
        key_paths: for each column of `streams`, the ways to the values of its tuples that are
            the key.

    Raises:
        UsageError: a map has keys that no dictionary of Python can have, a key has arrays of
            arrays that may have no form in pandas, or this version of Spark cannot carry a type.
    """
    # step 1
    zone = zone_or_utc(rows.sparkSession)
    first_stream_column = next(iter(streams))
    key_names = rows.columns[: rows.columns.index(first_stream_column)]
    types = {name: rows.schema[name].dataType for name in (*key_names, *streams)}
    for name, column_type in types.items():
        _refuse_key_without_hash(operator, column_type)
        if not CARRIES_NESTED_ARRAYS:
            refuse_type_around_array(operator, name, column_type)
    for key_name in key_names:
        _refuse_nested_arrays(operator, types[key_name])
    # step 2
    encoded_streams = [name for name in streams if needs_encoding(types[name])]
    task = KeyedTask(
        operator,
        bolt,
        schema,
        tracked=bool(streams_read(rows)),
        streams=streams,
        key_paths=key_paths,
        decoders={name: TupleDecoder(types[name], zone) for name in encoded_streams},
        has_one_key=key_names == [ONE_KEY],
        key_forms=tuple(KeyForm.of(types[name]) for name in key_names),
    )

    def run(key: Any, frames: Iterable[PandasFrame], state: GroupState) -> Iterator[PandasFrame]:
        return task(key, frames, state)

    # step 3
    readable_keys: list[Column] = []
    for name in key_names:
        is_nullable = rows.schema[name].nullable
        normal = normal_key(sql.col(name), types[name], is_nullable=is_nullable)
        readable_keys.append(readable_key(normal, types[name]).alias(name))
    encoded_columns = [encoded_column(sql.col(name), types[name]).alias(name) for name in streams]
    anchor = encoded_column(sql.col(ANCHOR), rows.schema[ANCHOR].dataType)
    encoded_rows = rows.select(*readable_keys, *encoded_columns, anchor.alias(ANCHOR))
    timeout_kind = GroupStateTimeout.NoTimeout
    if bolt.tick_ms or bolt.tick_every_ms:  # Spark calls for a key without a tuple, too
        timeout_kind = GroupStateTimeout.ProcessingTimeTimeout
    grouped = encoded_rows.groupBy(*key_names)
    return grouped.applyInPandasWithState(
        run,
        outputStructType=f"{EMITTED} binary, {REPORT} string, {ANCHOR} {ANCHORS}",
        stateStructType="held binary",
        outputMode="append",
        timeoutConf=timeout_kind,
    )


def _refuse_key_without_hash(operator: str, column_type: DataType) -> None:
    """Raise `UsageError` if a map, within the type of a column, has structs or arrays as keys."""
    unhashable = unhashable_map_key(column_type)
    if unhashable is not None:
        raise UsageError(
            f"{operator!r}: a map has keys of the type {unhashable.simpleString()}, of which Python has no"
            " dictionary; pass map_entries(...) of it, an array of its pairs"
        )


def refuse_type_around_array(operator: str, name: str, column_type: DataType) -> None:
    """Raise `UsageError` if the type of a column, by its name, has arrays within arrays or maps."""
    around_array = type_around_array(column_type)
    if around_array is not None:
        raise UsageError(
            f"{operator!r}: PySpark {INSTALLED} cannot carry the type {around_array.simpleString()}"
            f" of {name!r} to a keyed bolt: its worker may crash where an inner array is empty"
            " (SPARK-55056). Pass to_json(...) of it, a string, let the bolt before emit such a"
            " string, or use Spark 4.2 or later"
        )


def _refuse_nested_arrays(operator: str, column_type: DataType) -> None:
    """Raise `UsageError` if a key has arrays of arrays that could end the query."""
    nested_array = nested_array_within(column_type)
    if nested_array is not None:
        raise UsageError(
            f"{operator!r}: a key has values of the type {nested_array.simpleString()}, and where such"
            " arrays differ in length pandas has no form of them; group by to_json(...) of it"
        )


def key_columns(bolt: str, by: str | Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a key; `UsageError`: there are none, or they are no names."""
    if isinstance(by, str):
        return (by,)
    # what is neither a name nor a sequence, as 5, is refused below
    names = tuple(by) if isinstance(by, Sequence) else (by,)
    if not names:
        raise UsageError(f'{bolt!r}: a key needs a column: by=["user"]')
    if not all(isinstance(name, str) for name in names):
        raise UsageError(f'{bolt!r}: by={by!r}; give the columns of the key by name: by=["user"]')
    return names


def _key_paths(bolt: str, rows: DataFrame, names: Sequence[str]) -> list[FieldPath]:
    """Return the ways to the values of the key in a tuple, by the names of its columns.

    `rows`: first the columns of the key, in that order, then `TUPLE`.

    Raises `UsageError`: a value of the key is no field of the tuple, and the key itself would not
    have its time or its null (`KeyForm`).
    """
    tuple_type = rows.schema[TUPLE].dataType
    if not isinstance(tuple_type, StructType):
        raise TypeError(f"{TUPLE} is no struct")
    paths: list[FieldPath] = []
    for number, name in enumerate(names):
        path = field_path(tuple_type, name)
        form = KeyForm.of(rows.schema[KEY.format(number)].dataType)
        if path is None and (form.has_times or form.loses_nulls):
            raise UsageError(
                f"{bolt!r}: by={name!r} is a time, or a number that may be null, within a map or"
                f" an array; give it a column of its own: rows.withColumn('key', expr({name!r})),"
                " and by='key'"
            )
        paths.append(path or ())
    return paths


class KeyForm(NamedTuple):
    """What pandas makes of the values in one column of a key.

    Attributes:
        is_float: whether it is of numbers with a fraction. A NaN is a number there; in any other
            column pandas has it for a null.
        has_times: whether it has timestamps, which pandas gives without a zone.
        loses_nulls: whether pandas has NaN for its nulls, beside a NaN that is a number.
    """

    is_float: bool = False
    has_times: bool = False
    loses_nulls: bool = False

    @classmethod
    def of(cls, column_type: DataType) -> KeyForm:
        """Return the form of a column of a type."""
        is_float = isinstance(column_type, FractionalType)
        return cls(is_float, has_times(column_type), loses_nulls(column_type))


class NewTuples(NamedTuple):
    """The tuples that came for one key in a micro-batch.

    Attributes:
        readable: those that the bolt gets.
        unreadable: those with a value that Python cannot represent, each with what was raised for
            it.
    """

    readable: list[KeyedTuple]
    unreadable: list[tuple[KeyedTuple, Exception]]


class StoredTuples(NamedTuple):
    """What Spark's state has for one key.

    Attributes:
        tick_due_ms: wall time, ms, at which the bolt's next tick at its interval is due; 0: none
            is.
        tuples: those that are held.
    """

    tick_due_ms: int
    tuples: list[KeyedTuple]


@dataclass(frozen=True, slots=True)
class KeyedTask:
    """The function that Spark calls for each key, with the values that it needs.

    Attributes:
        schema: of what the bolt emits.
        tracked: whether the rows come from a tracked stream; a single tuple
            of a topology may still be unanchored.
        streams: the stream in each column.
        key_paths: for each column of `streams`, the ways to the values of its tuples that
            are the key.
        decoders: for each column of `streams` whose values are encoded
            (`spout.held.keyed_values`); those of other columns stay as they
            are.
        has_one_key: whether all tuples have the key ().
        key_forms: for each column of the key what pandas makes of it; columns that it leaves out
            have no form that matters.
        _prepared_tasks: the one task for which the bolt was prepared; empty before
            that. A list, since the class itself is frozen.
    """

    name: str
    bolt: KeyedBolt
    schema: pa.Schema
    now_ns: ClockNs = time.perf_counter_ns
    tracked: bool = False
    streams: Streams = field(default_factory=lambda: {TUPLE: SPARK})
    key_paths: Mapping[str, Sequence[FieldPath]] = field(default_factory=dict)
    decoders: Mapping[str, TupleDecoder] = field(default_factory=dict)
    has_one_key: bool = False
    key_forms: tuple[KeyForm, ...] = ()
    _prepared_tasks: list[TaskName] = field(default_factory=list)
    _tracebacks: Tracebacks = field(default_factory=Tracebacks)

    def __call__(
        self, key: tuple[Any, ...], frames: Iterable[PandasFrame], state: GroupState
    ) -> Iterator[PandasFrame]:
        """Yield one frame with what the bolt did to one key: with new tuples, at a tick, or both.

        1. Read what the state holds, and the new tuples.
        2. Find out whether a tick is due.
        3. Call the bolt; tuples that cannot be read fail.
        4. Write the state, and report.

        Args:
            key: its values as pandas has them.
            frames: the rows that came for it, in several frames if they are
                many.
            state: what the key holds; afterwards it has what is still held,
                and the time of the next tick.
        """
        # step 1
        batch_ms = state.getCurrentProcessingTimeMs()
        stored = _read_state(state)
        self._complete_older(stored.tuples)
        # if Spark calls since the key's timeout has passed, it got no tuples
        new = NewTuples([], []) if state.hasTimedOut else self._read_frames(frames, batch_ms)
        held = [*stored.tuples, *new.readable]
        key_of_tuples: tuple[Any, ...] = ()
        if not self.has_one_key:
            key_of_tuples = self._with_values_of_tuple(self._with_nulls(key), held)
        # step 2; the time in the state is too late where the clock was set back,
        # or where the bolt had a longer interval before
        interval_ms = self.bolt.tick_every_ms
        tick_due_ms = min(stored.tick_due_ms, batch_ms + interval_ms)
        is_tick_due = bool(interval_ms and tick_due_ms) and batch_ms >= tick_due_ms
        # step 3; if none of the new tuples can be read, there is nothing new for the bolt
        self._prepare_bolt()
        began_ns = self.now_ns()
        calls_execute = not state.hasTimedOut and bool(new.readable or not new.unreadable)
        calls_tick = state.hasTimedOut or is_tick_due
        outcome = self._call_bolt(key_of_tuples, held, calls_execute=calls_execute, calls_tick=calls_tick)
        self._fail_unreadable(new, outcome)
        took_ns = self.now_ns() - began_ns
        # step 4
        next_tick_ms = tick_due_ms
        if not interval_ms:
            next_tick_ms = 0
        elif is_tick_due or not tick_due_ms:
            next_tick_ms = batch_ms + interval_ms
        timeout_ms = _timeout_ms(self.bolt.tick_ms, next_tick_ms - batch_ms)
        _write_state(state, outcome.held, next_tick_ms, timeout_ms)
        counts = counts_of(new.readable, outcome, batch_ms, took_ns, self.name)
        yield self._report_frame(reported_rows(outcome, counts))

    def _call_bolt(
        self,
        key: tuple[Any, ...],
        held: Sequence[KeyedTuple],
        *,
        calls_execute: bool,
        calls_tick: bool,
    ) -> KeyedCollector:
        """Call the bolt for one key, and return the collector with what it did to its tuples.

        If it raises, all of them failed.

        Args:
            calls_execute: whether its `execute` is called.
            calls_tick: whether its `tick` is called behind that, for what is still
                held.
        """
        collector = KeyedCollector(self.name, held, self._check_emission, self.schema.names, self._tracebacks)
        outcome = collector
        try:
            if calls_execute:
                invoke(self.name, self.bolt.execute, key, held, collector)
            if calls_tick and collector.held:
                invoke(self.name, self.bolt.tick, key, collector.held, collector)
        except BaseException as error:  # whatever user code raises fails all held tuples of the key
            raise_if_it_ends_query(self.name, self.bolt, with_class(error))
            if not self.tracked and any(held_tuple.anchor is None for held_tuple in held):
                raise  # nothing is tracked
            # another collector, since what the call emitted and acked until then does not count
            outcome = KeyedCollector(self.name, (), tracebacks=self._tracebacks)
            cause = cause_of(self.name, error, self._tracebacks)
            outcome.failed = [(held_tuple, cause) for held_tuple in held]
        # the bolt may have kept the collector, and what it does by it from now on would be lost
        collector.is_closed = True
        return outcome

    def _fail_unreadable(self, new: NewTuples, outcome: KeyedCollector) -> None:
        """Add the tuples that cannot be read to those that failed.

        Raises what was raised for the first one if nothing is tracked.
        """
        for unreadable_tuple, read_error in new.unreadable:
            if not self.tracked and unreadable_tuple.anchor is None:
                raise read_error
            cause = cause_of(self.name, read_error, self._tracebacks)
            outcome.failed.append((unreadable_tuple, cause))

    def _complete_older(self, held: Sequence[KeyedTuple]) -> None:
        """Set in tuples what states of earlier versions lack: stream, and zones of times."""
        if len(self.streams) == 1:  # of several nobody knows which it was
            [stream] = self.streams.values()
            for held_tuple in held:
                if held_tuple.came_from == SPARK:
                    held_tuple.source_component = stream.component
                    held_tuple.source_stream = stream.stream
        if self.decoders:
            for held_tuple in held:
                held_tuple.values = self._with_zones(held_tuple)

    def _prepare_bolt(self) -> None:
        """Call the bolt's `prepare` once in each task, before its first key."""
        task = task_name()
        if self._prepared_tasks != [task]:
            self.bolt.prepare(BoltContext(self.name, task.partition, task.batch))
            self._prepared_tasks[:] = [task]
            self._tracebacks.clear()

    def _with_nulls(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a key with its nulls, for which pandas has NaN in columns of any type."""
        values: list[Any] = []
        for value, form in zip_longest(key, self.key_forms, fillvalue=KeyForm()):
            is_nan = isinstance(value, float) and math.isnan(value)
            values.append(None if is_nan and not form.is_float else value)
        return tuple(values)

    def _with_values_of_tuple(self, key: tuple[Any, ...], held: Sequence[KeyedTuple]) -> tuple[Any, ...]:
        """Return a key with the times, and the nulls among floats, of the first tuple that has it.

        In the key itself Spark gives times without a zone: the hour that is
        there twice in autumn could be either. And pandas has NaN for nulls
        among floats.
        """
        needs_tuple = any(form.has_times or form.loses_nulls for form in self.key_forms)
        if not held or not needs_tuple:
            return key
        held_tuple = held[0]
        column = self._column_of(held_tuple)
        values: list[Any] = []
        for value, path, form in zip(key, self.key_paths[column], self.key_forms, strict=True):
            if form.has_times:
                decoder = self.decoders[column]  # columns with times are encoded
                values.append(value_at(held_tuple.values, path, decoder.localize(value)))
            elif form.loses_nulls:
                values.append(normal_floats(value_at(held_tuple.values, path, value)))
            else:
                values.append(value)
        return tuple(values)

    def _with_zones(self, held: KeyedTuple) -> Mapping[str, Any]:
        """Return the values of a tuple from the state, with a zone for times
        that an earlier version kept without one.
        """
        decoder = self.decoders.get(self._column_of(held))
        return held.values if decoder is None else decoder.with_zones(held.values)

    def _column_of(self, held: KeyedTuple) -> str:
        """Return the column of the stream that a tuple came by.

        The first column, if the bolt does not read that stream any more.
        """
        for column, stream in self.streams.items():
            if stream == held.came_from:
                return column
        return next(iter(self.streams))

    def _read_frames(self, frames: Iterable[PandasFrame], batch_ms: int) -> NewTuples:
        """Return the tuples in frames; `batch_ms`: wall time at which their micro-batch began."""
        new = NewTuples(readable=[], unreadable=[])
        for frame in frames:
            self._read_frame(frame, batch_ms, new)
        return new

    def _read_frame(self, frame: PandasFrame, batch_ms: int, new: NewTuples) -> None:
        """Add the tuples of a frame to `new`.

        Those that Python can represent are added to `readable`, the others to `unreadable`.
        `batch_ms`: wall time at which the micro-batch began.
        """
        columns = [frame[column] for column in self.streams]
        for row_anchor, *structs in zip(frame[ANCHOR], *columns, strict=True):
            anchor: tuple[int, int, int] | None = None  # None: the tuple has no root
            if row_anchor is not None:
                anchor = row_anchor["source"], row_anchor["position"], row_anchor["edge"]
                if not FRAMES_KEEP_WHOLE_NUMBERS:
                    source, position, edge = anchor  # each as its digits
                    anchor = int(source), int(position), int(edge)
            for (column, stream), struct in zip(self.streams.items(), structs, strict=True):
                if struct is None:  # the row is of another stream
                    continue
                # PySpark 4.2 has a Row, 4.3 a dictionary
                values = struct if isinstance(struct, dict) else struct.asDict()
                received = KeyedTuple(values, anchor, batch_ms, stream)
                try:
                    if column in self.decoders:
                        received.values = self.decoders[column].decode(values)
                        # by the encoded values: a time of the key that pandas cannot count in ns
                        # fails the tuple, since its key is a substitute
                        self.decoders[column].check_key(values, self.key_paths.get(column, ()))
                except (OverflowError, UnicodeDecodeError) as error:
                    new.unreadable.append((received, error))
                else:
                    new.readable.append(received)

    def _check_emission(self, values: Sequence[Any]) -> None:
        """Refuse an emission that does not fit the output, by a `TupleError`."""
        wrong_size = size_error(values, self.schema.names, self.name)
        if wrong_size is not None:
            raise wrong_size
        for misfit in misfits([values], self.schema, self.name):
            raise TupleError(text_of(misfit.error)) from misfit.error

    def _report_frame(self, rows: Iterable[ReportedRow]) -> PandasFrame:
        """Return rows of a report as a frame of pandas, with an object in each cell."""
        import pandas as pd  # type: ignore[import-untyped]  # only workers need it

        cells = [self._cells_of(row) for row in rows]
        return pd.DataFrame(cells, columns=pd.Index([EMITTED, REPORT, ANCHOR]), dtype=object)

    def _cells_of(self, row: ReportedRow) -> list[Any]:
        """Return the cells of a row: the emitted row as bytes or None, text, and anchors."""
        emitted: bytes | None = None
        if row.values is not None:
            emitted = packed_row(row.values, self.schema, self.name)
        anchors = [dict(zip(HELD_TYPE.names, anchor, strict=True)) for anchor in row.anchors]
        return [emitted, row.text, anchors]


def counts_of(
    new_tuples: Sequence[KeyedTuple],
    collector: KeyedCollector,
    batch_ms: int,
    took_ns: int,
    bolt: str,
) -> Counts:
    """Return the counts of one call, with the times of its tuples.

    The time of an acked or failed tuple includes that for which it was held.

    Args:
        new_tuples: the tuples that were new in this call.
        collector: what the bolt did to them, and to those that it held.
        batch_ms: wall time at which the micro-batch of the call began.
        took_ns: how long the call took.
    """
    tally = Tally()
    count_by_stream = Counter(new_tuple.came_from for new_tuple in new_tuples)
    for stream, tuple_count in count_by_stream.items():
        # the call's time is shared: of 3 tuples that took 9 ms, each took 3
        time_ns = took_ns * tuple_count // len(new_tuples)
        tally.add(Counted(What.EXECUTED, bolt, stream), tuple_count, time_ns)
    failed = [failed_tuple for failed_tuple, _ in collector.failed]
    for what, done_tuples in ((What.ACKED, collector.acked), (What.FAILED, failed)):
        for done_tuple in done_tuples:
            waited_ms = 0
            if done_tuple.since_ms:  # 0: unknown, in a state of an older version
                waited_ms = max(0, batch_ms - done_tuple.since_ms)  # the clock may be set back
            counted = Counted(what, bolt, done_tuple.came_from)
            tally.add(counted, count=1, total_ns=waited_ms * 1_000_000 + took_ns)
    return tally.counts()


def reported_rows(collector: KeyedCollector, counts: Counts) -> Iterator[ReportedRow]:
    """Yield the rows of one call: emissions; acked, reset and failed tuples;
    tracebacks; counts.

    Example, of a call that emitted one row, acked two tuples and failed one:

    1. the row's values, no text, and the anchors of the emission;
    2. no values, the text `ACKED`, and two anchors;
    3. no values, the cause as JSON, and one anchor;
    4. no values, the counts as JSON, and no anchor.
    """
    for values, anchors in zip(collector.emissions, collector.anchors, strict=True):
        yield ReportedRow(values, None, anchors)
    tuples_by_text = {ACKED: collector.acked, RESET: collector.touched}
    failed_by_cause = by_key((cause, failed_tuple) for failed_tuple, cause in collector.failed)
    for cause, failed in failed_by_cause.items():
        tuples_by_text[json.dumps(cause)] = failed
    for text, tuples in tuples_by_text.items():
        if not tuples:
            continue
        # a tuple of a topology may have no root: nothing is reported of it
        anchors_of_tuples = [
            reported_tuple.anchor for reported_tuple in tuples if reported_tuple.anchor is not None
        ]
        yield ReportedRow(None, text, anchors_of_tuples)
    raised = collector.tracebacks.take()
    if raised:
        yield ReportedRow(None, json.dumps(list(raised)), [])
    if counts:
        yield ReportedRow(None, counts_text(counts), [])


class _StateReader(pickle.Unpickler):
    """Reads states of earlier versions too, which had the classes in other modules."""

    def find_class(self, module: str, name: str) -> Any:
        return super().find_class(MOVED.get(module, module), name)


def _read_state(state: GroupState) -> StoredTuples:
    """Return what the state of a key has; nothing is held if there is no state."""
    if not state.exists:
        return StoredTuples(tick_due_ms=0, tuples=[])
    contents = _StateReader(io.BytesIO(state.get[0])).load()
    if isinstance(contents, tuple):
        return StoredTuples(*contents)
    # a state of an earlier version has the tuples alone
    return StoredTuples(tick_due_ms=0, tuples=contents)


def _timeout_ms(idle_ms: int, until_tick_ms: int) -> int:
    """Return after which time Spark calls for a key that gets no tuple; 0: never.

    Spark calls then for one of two ticks, whichever is sooner. One that is not above 0 does not
    come: of 60,000 and -5 the timeout is 60,000.

    Args:
        idle_ms: the bolt's `tick_ms`; 0: it has no such tick.
        until_tick_ms: time until its tick at an interval; below 0: it has no interval.
    """
    waits_ms = [wait_ms for wait_ms in (idle_ms, until_tick_ms) if wait_ms > 0]
    return min(waits_ms, default=0)


def _write_state(state: GroupState, held: Sequence[KeyedTuple], tick_due_ms: int, timeout_ms: int) -> None:
    """Write the held tuples to the state; a key that holds none has no state, and gets no tick.

    Args:
        tick_due_ms: wall time at which the bolt's next tick at its interval is due; 0:
            never.
        timeout_ms: after which time Spark calls for the key if it gets no tuple; 0:
            never.
    """
    if not held:
        if state.exists:
            state.remove()
        return
    # a plain tuple, which earlier versions read, too
    contents = pickle.dumps((tick_due_ms, list(held)), protocol=5)
    state.update((contents,))
    if timeout_ms:
        state.setTimeoutDuration(timeout_ms)
