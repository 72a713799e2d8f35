"""Keyed bolts on Spark's state store: `applyInPandasWithState`, with held tuples and anchors in the
state.

Spark calls `KeyedTask` for each key. It calls the bolt, and returns rows: what the bolt emitted,
and what it did to its tuples, as texts that `spout.held.keyed_exit` reads.
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
from pyspark.sql.types import DataType, FractionalType

from acker.errors import TupleError, UsageError
from spout.bolts.bolts import bolt_name, check_bolt, invoke, stop_on
from spout.bolts.hooks import BoltContext
from spout.bolts.keyed_bolt import KeyedBolt, KeyedCollector, KeyedTuple
from spout.bolts.outputs import arrow_output, zone_of_session, zone_or_utc
from spout.execution.calls import ClockNs
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
    unhashable_map_key,
)
from spout.publishing.delayed import by_key
from spout.publishing.report_accumulator import TaskName, task_name
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
"""Name of a column of the key, by its number."""

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
        text: what the bolt did to the anchored tuples; the forms are in
            `spout.held.keyed_exit`. None: it emitted the row.
        anchors: source, position and edge of each.
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
    >>> sessions = by_user.transform(spout.hold(None)).transform(spout.keyed(Sessions(), by=["user"]))
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
        name: the operator's name in causes, unique in the query; None: the
            bolt's class.

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
        is_held = ANCHOR in rows.columns and rows.schema[ANCHOR].dataType.simpleString() == HELD
        if not is_held:
            raise UsageError(f"{operator!r}: these rows are not held; put spout.hold(None) before it")
        schema = arrow_output(operator, bolt.output, zone_of_session(rows.sparkSession))
        stage = stage_of_keyed_bolt(operator, schema, tracked=bool(streams_read(rows)))
        key = [sql.col(field).alias(KEY.format(number)) for number, field in enumerate(key_fields)]
        # in backticks, since a name of a column may have a dot
        fields = [sql.col(f"`{name}`") for name in rows.columns if name != ANCHOR]
        keyed_rows = rows.select(*key, sql.struct(*fields).alias(TUPLE), ANCHOR)
        # all tuples are of one stream, Spark's rows, in one column
        reported = reported_by_keyed_bolt(
            keyed_rows, operator, bolt, schema, streams={TUPLE: SPARK}, keys={TUPLE: key_fields}
        )
        return with_keyed_stage(reported, operator, stage)

    return attach


def reported_by_keyed_bolt(
    rows: DataFrame,
    operator: str,
    bolt: KeyedBolt,
    schema: pa.Schema,
    streams: Streams,
    keys: Mapping[str, Sequence[str]],
) -> DataFrame:
    """Return the rows in which a keyed bolt emits and reports (`ReportedRow`), by those that it
    gets.

    Args:
        rows: the columns of the key, those of `streams`, and the anchors. If
            the key is `ONE_KEY` alone, all tuples have the key ().
        operator: the bolt's name in causes.
        schema: the bolt's output.
        streams: what the bolt reads: the stream in each column.
        keys: for each column of `streams`, the fields of its tuples that are
            the key.

    Raises:
        UsageError: a map has keys that no dictionary of Python can have, or a key has arrays of
            arrays that may have no form in pandas.
    """
    zone = zone_or_utc(rows.sparkSession)
    first_stream = next(iter(streams))
    key_names = rows.columns[: rows.columns.index(first_stream)]
    types = {name: rows.schema[name].dataType for name in (*key_names, *streams)}
    for column_type in types.values():
        _refuse_key_without_hash(operator, column_type)
    for key_name in key_names:
        _refuse_nested_arrays(operator, types[key_name])
    encoded_streams = [name for name in streams if needs_encoding(types[name])]
    task = KeyedTask(
        operator,
        bolt,
        schema,
        tracked=bool(streams_read(rows)),
        streams=streams,
        keys=keys,
        decoders={name: TupleDecoder(types[name], zone) for name in encoded_streams},
        has_one_key=key_names == [ONE_KEY],
        are_floats=tuple(isinstance(types[name], FractionalType) for name in key_names),
        have_times=tuple(has_times(types[name]) for name in key_names),
        lose_nulls=tuple(loses_nulls(types[name]) for name in key_names),
    )
    readable_keys: list[Column] = []
    for name in key_names:
        is_nullable = rows.schema[name].nullable
        normal = normal_key(sql.col(name), types[name], is_nullable=is_nullable)
        readable_keys.append(readable_key(normal, types[name]).alias(name))
    encoded_columns = [encoded_column(sql.col(name), types[name]).alias(name) for name in streams]
    encoded_rows = rows.select(*readable_keys, *encoded_columns, ANCHOR)

    def run(key: Any, frames: Iterable[PandasFrame], state: GroupState) -> Iterator[PandasFrame]:
        return task(key, frames, state)

    has_ticks = bolt.tick_ms or bolt.tick_every_ms
    grouped = encoded_rows.groupBy(*key_names)
    return grouped.applyInPandasWithState(
        run,
        outputStructType=f"{EMITTED} binary, {REPORT} string, {ANCHOR} {ANCHORS}",
        stateStructType="held binary",
        outputMode="append",
        timeoutConf=GroupStateTimeout.ProcessingTimeTimeout if has_ticks else GroupStateTimeout.NoTimeout,
    )


def _refuse_key_without_hash(operator: str, column_type: DataType) -> None:
    """Raise `UsageError` if a map, within a type, has structs or arrays as keys."""
    unhashable = unhashable_map_key(column_type)
    if unhashable is not None:
        raise UsageError(
            f"{operator!r}: a map has keys of the type {unhashable.simpleString()}, of which Python has no"
            " dictionary; pass map_entries(...) of it, an array of its pairs"
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
    # what is no name at all, as 5, is refused below
    names = (by,) if isinstance(by, str) or not isinstance(by, Sequence) else tuple(by)
    if not names:
        raise UsageError(f'{bolt!r}: a key needs a column: by=["user"]')
    if not all(isinstance(name, str) for name in names):
        raise UsageError(f'{bolt!r}: by={by!r}; give the columns of the key by name: by=["user"]')
    return names


class ReceivedTuples(NamedTuple):
    """The tuples that arrived for one key.

    `unreadable`: those with a value that Python cannot represent, and what was
    raised for it.
    """

    tuples: list[KeyedTuple]
    unreadable: list[tuple[KeyedTuple, Exception]]


@dataclass(frozen=True, slots=True)
class KeyedTask:
    """The function that Spark calls for each key, with the values that it needs.

    Attributes:
        schema: of what the bolt emits.
        tracked: whether the rows come from a tracked stream; a single tuple
            of a topology may still be unanchored.
        streams: the stream in each column.
        keys: for each column of `streams`, the fields of its tuples that are
            the key.
        decoders: for each column of `streams` whose values are encoded
            (`spout.held.keyed_values`); those of other columns stay as they
            are.
        has_one_key: whether all tuples have the key ().
        are_floats: for each column of the key whether it is of floats; a NaN
            in another one is a null.
        have_times: for each column of the key whether it has times.
        lose_nulls: for each column of the key whether it has NaN in place of
            nulls.
        _prepared: the one task for which the bolt was prepared; empty before
            that. A list, since the class itself is frozen.
    """

    name: str
    bolt: KeyedBolt
    schema: pa.Schema
    now_ns: ClockNs = time.perf_counter_ns
    tracked: bool = False
    streams: Streams = field(default_factory=lambda: {TUPLE: SPARK})
    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    decoders: Mapping[str, TupleDecoder] = field(default_factory=dict)
    has_one_key: bool = False
    are_floats: tuple[bool, ...] = ()
    have_times: tuple[bool, ...] = ()
    lose_nulls: tuple[bool, ...] = ()
    _prepared: list[TaskName] = field(default_factory=list)
    _tracebacks: Tracebacks = field(default_factory=Tracebacks)

    def __call__(
        self, key: tuple[Any, ...], frames: Iterable[PandasFrame], state: GroupState
    ) -> Iterator[PandasFrame]:
        """Yield one frame with what the bolt did to one key: with new tuples,
        at a tick, or both.

        1. Read what the state holds, and the tuples that arrived.
        2. Find out whether a tick is due.
        3. Call the bolt; tuples that cannot be read fail.
        4. Write the state, and report.

        Args:
            key: its values as pandas has them.
            frames: the rows that arrived for it, in several frames if they are
                many.
            state: what the key holds; afterwards it has what is still held,
                and the time of the next tick.
        """
        # step 1; a key whose timeout has passed got no tuples
        batch_ms = state.getCurrentProcessingTimeMs()
        tick_due_ms, held = _read_state(state)
        self._complete_older(held)
        arrived = ReceivedTuples(tuples=[], unreadable=[])
        if not state.hasTimedOut:
            for frame in frames:
                self._read_frame(frame, batch_ms, arrived)
        held += arrived.tuples
        key = () if self.has_one_key else self._as_in_tuples(self._with_nulls(key), held)
        # step 2; the time in the state is later where the clock was set back,
        # or the bolt had a longer interval before
        interval_ms = self.bolt.tick_every_ms
        tick_due_ms = min(tick_due_ms, batch_ms + interval_ms)
        is_tick_due = bool(interval_ms and tick_due_ms) and batch_ms >= tick_due_ms
        # step 3; there is nothing new for the bolt if none of the tuples that
        # arrived can be read
        self._prepare_bolt()
        began_ns = self.now_ns()
        executes = not state.hasTimedOut and bool(arrived.tuples or not arrived.unreadable)
        ticks = state.hasTimedOut or is_tick_due
        outcome = self._call_bolt(key, held, executes=executes, ticks=ticks)
        for received, read_error in arrived.unreadable:
            if not self.tracked and received.anchor is None:
                raise read_error  # nothing is tracked
            cause = cause_of(self.name, read_error, self._tracebacks)
            outcome.failed.append((received, cause))
        took_ns = self.now_ns() - began_ns
        # step 4
        if not interval_ms:
            tick_due_ms = 0
        elif is_tick_due or not tick_due_ms:
            tick_due_ms = batch_ms + interval_ms
        wait_ms = _timeout_ms(self.bolt.tick_ms, tick_due_ms - batch_ms)
        _write_state(state, outcome.held, tick_due_ms, wait_ms)
        counts = counts_of(arrived.tuples, outcome, batch_ms, took_ns, self.name)
        yield self._frame(reported_rows(outcome, counts))

    def _call_bolt(
        self, key: tuple[Any, ...], held: Sequence[KeyedTuple], *, executes: bool, ticks: bool
    ) -> KeyedCollector:
        """Call the bolt for one key, and return what it did to its tuples.

        If it raises, all of them failed.

        Args:
            executes: whether its `execute` is called.
            ticks: whether its `tick` is called behind that, for what is still
                held.
        """
        collector = KeyedCollector(self.name, held, self._check, self.schema.names, self._tracebacks)
        outcome = collector
        try:
            if executes:
                invoke(self.name, self.bolt.execute, key, held, collector)
            if ticks and collector.held:
                invoke(self.name, self.bolt.tick, key, collector.held, collector)
        except BaseException as error:  # whatever user code raises fails all held tuples of the key
            stop_on(self.name, self.bolt, with_class(error))
            if not self.tracked and any(held_tuple.anchor is None for held_tuple in held):
                raise  # nothing is tracked
            # what the call did until then does not count: it emits nothing
            # and acks nothing
            outcome = KeyedCollector(self.name, (), tracebacks=self._tracebacks)
            cause = cause_of(self.name, error, self._tracebacks)
            outcome.failed = [(held_tuple, cause) for held_tuple in held]
        # the bolt may have kept it, and what it does by it from now on would
        # be lost
        collector.is_closed = True
        return outcome

    def _complete_older(self, held: Sequence[KeyedTuple]) -> None:
        """Set in tuples from the state what earlier versions did not write:
        their stream, zones of times.
        """
        if len(self.streams) == 1:
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
        if self._prepared != [task]:
            self.bolt.prepare(BoltContext(self.name, task.partition, task.batch))
            self._prepared[:] = [task]
            self._tracebacks.clear()

    def _with_nulls(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a key with its nulls: pandas has NaN for them in columns
        that are not of floats, too.
        """
        values: list[Any] = []
        for value, is_float in zip_longest(key, self.are_floats):
            is_nan = isinstance(value, float) and math.isnan(value)
            values.append(None if is_nan and not is_float else value)
        return tuple(values)

    def _as_in_tuples(self, key: tuple[Any, ...], held: Sequence[KeyedTuple]) -> tuple[Any, ...]:
        """Return a key with the times, and the nulls among floats, of a tuple that has it.

        In the key itself Spark gives times without a zone: the hour that is
        there twice in autumn could be either. And pandas has NaN for nulls
        among floats.
        """
        if not held or not any((*self.have_times, *self.lose_nulls)):
            return key
        held_tuple = held[0]
        column = self._column_of(held_tuple)
        values: list[Any] = []
        parts = zip_longest(key, self.keys[column], self.have_times, self.lose_nulls)
        for value, name, has_time, loses_null in parts:
            if has_time:
                decoder = self.decoders[column]  # columns with times are encoded
                values.append(held_tuple.values.get(name, decoder.localize(value)))
            elif loses_null:
                values.append(normal_floats(held_tuple.values.get(name, value)))
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
        """Return the column of the stream that a tuple came by; the first one
        if it is none of them now.
        """
        for column, stream in self.streams.items():
            if stream == held.came_from:
                return column
        return next(iter(self.streams))

    def _read_frame(self, frame: PandasFrame, batch_ms: int, arrived: ReceivedTuples) -> None:
        """Add the tuples of a frame to `arrived`: to its `tuples`, or to
        `unreadable`.
        """
        columns = [frame[column] for column in self.streams]
        for row_anchor, *structs in zip(frame[ANCHOR], *columns, strict=True):
            anchor: tuple[int, int, int] | None = None  # None: the tuple has no root
            if row_anchor is not None:
                anchor = row_anchor["source"], row_anchor["position"], row_anchor["edge"]
            for (column, stream), struct in zip(self.streams.items(), structs, strict=True):
                if struct is None:  # the row is of another stream
                    continue
                # PySpark 4.2 has a Row, 4.3 a dictionary
                values = struct if isinstance(struct, dict) else struct.asDict()
                received = KeyedTuple(values, anchor, batch_ms, stream)
                try:
                    if column in self.decoders:
                        received.values = self.decoders[column].decode(values)
                        self.decoders[column].check_key(values, self.keys.get(column, ()))
                except (OverflowError, UnicodeDecodeError) as error:
                    arrived.unreadable.append((received, error))
                else:
                    arrived.tuples.append(received)

    def _check(self, values: Sequence[Any]) -> None:
        """Refuse an emission that does not fit the output, by a `TupleError`."""
        wrong_size = size_error(values, self.schema.names, self.name)
        if wrong_size is not None:
            raise wrong_size
        for misfit in misfits([values], self.schema, self.name):
            raise TupleError(text_of(misfit.error)) from misfit.error

    def _frame(self, rows: Iterable[ReportedRow]) -> PandasFrame:
        """Return rows of a report as pandas has them: an object in each cell."""
        import pandas as pd  # type: ignore[import-untyped]  # only workers need it

        cells = [self._cells_of(row) for row in rows]
        return pd.DataFrame(cells, columns=pd.Index([EMITTED, REPORT, ANCHOR]), dtype=object)

    def _cells_of(self, row: ReportedRow) -> list[Any]:
        """Return the cells of a row: the emitted row as bytes, the text of the report, and the
        anchors.
        """
        emitted = None if row.values is None else packed_row(row.values, self.schema, self.name)
        anchors = [dict(zip(HELD_TYPE.names, anchor, strict=True)) for anchor in row.anchors]
        return [emitted, row.text, anchors]


def counts_of(
    arrived: Sequence[KeyedTuple],
    collector: KeyedCollector,
    batch_ms: int,
    took_ns: int,
    bolt: str,
) -> Counts:
    """Return the counts of one call; a tuple that waited over several batches
    counts with all that time.

    Args:
        arrived: the tuples that were new in this call.
        collector: what the bolt did to them, and to those that it held.
        took_ns: how long the call took.
    """
    tally = Tally()
    tuples_by_stream = Counter(received.came_from for received in arrived)
    for stream, tuple_count in tuples_by_stream.items():
        # the call's time is shared: of 3 tuples that took 9 ms, each took 3
        time_ns = took_ns * tuple_count // len(arrived)
        tally.add(Counted(What.EXECUTED, bolt, stream), tuple_count, time_ns)
    failed = [failed_tuple for failed_tuple, _ in collector.failed]
    for what, tuples in ((What.ACKED, collector.acked), (What.FAILED, failed)):
        for done_tuple in tuples:
            since_ms = done_tuple.since_ms  # 0: a state of an older version does not have it
            waited_ms = max(0, batch_ms - since_ms) if since_ms else 0
            counted = Counted(what, bolt, done_tuple.came_from)
            tally.add(counted, count=1, total_ns=waited_ms * 1_000_000 + took_ns)
    return tally.counts()


def reported_rows(collector: KeyedCollector, counts: Counts) -> Iterator[ReportedRow]:
    """Yield the rows of one call: emissions; acked, reset and failed tuples;
    tracebacks; counts.

    Example, of a call that emitted one row, acked two tuples and failed one:
    the row's values with its anchors; no values, `ACKED` and two anchors; no
    values, the cause as JSON and one anchor; the counts.
    """
    for values, anchors in zip(collector.emissions, collector.anchors, strict=True):
        yield ReportedRow(values, None, anchors)
    tuples_by_text = {ACKED: collector.acked, RESET: collector.touched}
    failed_by_cause = by_key((cause, failed_tuple) for failed_tuple, cause in collector.failed)
    for cause, failed in failed_by_cause.items():
        tuples_by_text[json.dumps(cause)] = failed
    for text, tuples in tuples_by_text.items():
        if tuples:
            # a tuple of a topology may have no root: it is best effort
            anchors_of_tuples = [done_tuple.anchor for done_tuple in tuples if done_tuple.anchor is not None]
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


def _read_state(state: GroupState) -> tuple[int, list[KeyedTuple]]:
    """Return when the next tick is due, ms (0: it is not set), and the held tuples."""
    if not state.exists:
        return 0, []
    contents = _StateReader(io.BytesIO(state.get[0])).load()
    if isinstance(contents, tuple):
        return contents
    return 0, contents  # a state of an earlier version has the tuples alone


def _timeout_ms(idle_ms: int, until_due_ms: int) -> int:
    """Return after which time Spark calls for a key that gets no tuple; 0: never.

    The sooner of two ticks: after `idle_ms` without a tuple, or at the bolt's
    interval, which is due in `until_due_ms`. One that is not above 0 does not
    come: of 60,000 and -5 it is 60,000.
    """
    waits_ms = [wait_ms for wait_ms in (idle_ms, until_due_ms) if wait_ms and wait_ms > 0]
    return min(waits_ms, default=0)


def _write_state(state: GroupState, held: Sequence[KeyedTuple], tick_due_ms: int, wait_ms: int) -> None:
    """Write the held tuples to the state; a key that holds none has no state, and gets no tick.

    Args:
        tick_due_ms: when the bolt's next tick at its interval is due; 0:
            never.
        wait_ms: after which time Spark calls for the key without a tuple; 0:
            never.
    """
    if not held:
        if state.exists:
            state.remove()
        return
    contents = pickle.dumps((tick_due_ms, list(held)), protocol=5)
    state.update((contents,))
    if wait_ms:
        state.setTimeoutDuration(wait_ms)
