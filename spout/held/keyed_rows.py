"""Keyed bolts on Spark's state store: `applyInPandasWithState` with the anchors in the state."""

from __future__ import annotations

import io
import json
import math
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat, zip_longest
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import DataType, FractionalType

from acker.errors import TupleError, UsageError
from spout.bolts.bolts import bolt_name, check_bolt, invoke, stop_on
from spout.bolts.hooks import BoltContext
from spout.bolts.keyed_bolt import KeyedBolt, KeyedCollector, KeyedTuple
from spout.bolts.outputs import parse_output
from spout.execution.bolt_work import ClockNs
from spout.held.keyed_exit import ACKED, REPORT, RESET, behind_keyed, counts_text, lone_stage
from spout.publishing.delayed import by_key
from spout.publishing.ledger import TaskName, task_name
from spout.spark.private import arrow_schema_of, arrow_type_of, pandas_converter_of
from spout.streaming.query_plan import streams_read
from spout.tuples.anchor_columns import ANCHORS, HELD_TYPE
from spout.tuples.columns import ANCHOR
from spout.tuples.counts import Counted, Counts, Tally, What
from spout.tuples.failures import cause_of
from spout.tuples.raised import Tracebacks
from spout.tuples.rows import check_nulls, size_error
from spout.tuples.tuple import SPARK, StreamId, short_repr

PandasFrame = Any  # pandas ships no types

MOVED = {"spout.keyed_bolt": "spout.bolts.keyed_bolt"}
"""Modules in the states of earlier versions, each with the module that has its classes now."""

ONE_KEY = "_key"
"""The column by which Spark groups tuples that all have one key; Spark's state needs a column."""

KEY: Final = "_key{}"
"""Name of a column of the key, by its number."""

TUPLE: Final = "_windhover_tuple"
"""The column with the tuples of a DataFrame."""

Streams = Mapping[str, StreamId]
"""What a keyed bolt reads: the stream in each column of structs, which is null in the rows of the others.

Tuples come as structs, since a column of numbers with a null among them would come as floats.
"""

ReportedRow = tuple[Sequence[Any], str | None, Iterable[tuple[int, int, int]]]
"""Values of a row, the text of its report, and its anchors: source, position and edge."""


def keyed(
    bolt: KeyedBolt, *, by: str | Sequence[str], name: str | None = None
) -> Callable[[DataFrame], DataFrame]:
    """Return a function for `DataFrame.transform` with which a bolt holds the tuples of each key.

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

    Use it behind `spout.hold(None)`, as the last operator, in output mode ``append``. Held tuples are in the
    query's checkpoint and survive a restart. A record that is held for longer than `held_timeout` of its
    input is replayed, unless the bolt resets it (`KeyedCollector.reset_timeout`). The acks of a call take
    effect when the micro-batch with that call's rows is written. `stream_status` counts the bolt like other
    bolts; the time to a tuple's ack includes the time for which it was held. Spark's Python state is slow,
    some thousand keys a second: if an aggregate is enough, `collect_anchors` in it is ten times as fast.

    Args:
        bolt: the bolt; every task works on a copy of it.
        by: the columns of the key, or a single one.
        name: the operator's name in causes, unique in the query; None: the bolt's class.

    Raises:
        UsageError: `bolt` is no `KeyedBolt`, one of its methods would never run (a generator, `async`), `by`
            has no column, or the rows were not held.
    """
    called = bolt_name(bolt, name)
    check_bolt(called, bolt)
    if not isinstance(bolt, KeyedBolt):
        raise UsageError(
            f"{type(bolt).__name__!r} is no KeyedBolt; derive it from one, or attach it by spout.bolt, which"
            " keeps no key"
        )
    columns = key_columns(called, by)
    output = parse_output(called, bolt.output)

    def attach(rows: DataFrame) -> DataFrame:
        if ANCHOR not in rows.columns or f"array<{rows.schema[ANCHOR].dataType.simpleString()}>" != ANCHORS:
            raise UsageError(f"{called!r}: these rows are not held; put spout.hold(None) before it")
        stage = lone_stage(called, arrow_schema_of(output), tracked=bool(streams_read(rows)))
        key = [sql.col(name).alias(KEY.format(number)) for number, name in enumerate(columns)]
        fields = sql.struct(*(sql.col(f"`{name}`") for name in rows.columns if name != ANCHOR))
        keyed_rows = rows.select(*key, fields.alias(TUPLE), ANCHOR)
        return behind_keyed(held_by_key(keyed_rows, called, bolt, {TUPLE: SPARK}), called, stage)

    return attach


def held_by_key(rows: DataFrame, called: str, bolt: KeyedBolt, streams: Streams) -> DataFrame:
    """Put a keyed bolt behind rows with the anchors of held tuples; it returns rows with reports.

    The columns before the first of `streams` are the key; where it is `ONE_KEY`, all tuples have the key ().
    """
    output = parse_output(called, bolt.output)
    fields = tuple(Field.of(each.name, each.dataType, nullable=each.nullable) for each in output.fields)
    key = rows.columns[: rows.columns.index(next(iter(streams)))]
    task = KeyedTask(
        called,
        bolt,
        fields,
        tracked=bool(streams_read(rows)),
        streams=streams,
        one_key=key == [ONE_KEY],
        floats=tuple(isinstance(rows.schema[name].dataType, FractionalType) for name in key),
    )

    def run(key: Any, parts: Iterable[PandasFrame], state: GroupState) -> Iterator[PandasFrame]:
        return task(key, parts, state)

    ticks = bolt.tick_ms or bolt.tick_every_ms
    timeout = GroupStateTimeout.ProcessingTimeTimeout if ticks else GroupStateTimeout.NoTimeout
    return rows.groupBy(*key).applyInPandasWithState(
        run, f"{bolt.output}, {REPORT} string, {ANCHOR} {ANCHORS}", "held binary", "append", timeout
    )


def key_columns(bolt: str, by: str | Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a key; `UsageError`: there are none, or they are no names."""
    names = (by,) if isinstance(by, str) else tuple(by) if isinstance(by, Sequence) else (by,)
    if not names:
        raise UsageError(f'{bolt!r}: a key needs a column: by=["user"]')
    if not all(isinstance(name, str) for name in names):
        raise UsageError(f'{bolt!r}: by={by!r}; give the columns of the key by name: by=["user"]')
    return names


class Field(NamedTuple):
    """A field of a keyed bolt's output."""

    name: str
    kind: DataType
    arrow: pa.Field

    @classmethod
    def of(cls, name: str, kind: DataType, *, nullable: bool = True) -> Field:
        return cls(name, kind, pa.field(name, arrow_type_of(kind), nullable))

    def check(self, value: Any, bolt: str) -> None:
        """Convert a value alone: Spark converts the rows of all keys together, and would end the query.

        Raises `Exception`: the value does not fit; any exception of Spark's or Arrow's conversions.
        """
        if value is not None and pa.types.is_nested(self.arrow.type):
            import pandas as pd  # type: ignore[import-untyped]  # only workers need it

            value = pandas_converter_of(self.kind)(pd.Series([value], dtype=object)).iloc[0]
        check_nulls(bolt, self.arrow, pa.array([value], self.arrow.type, from_pandas=True))


@dataclass(frozen=True, slots=True)
class KeyedTask:
    """The function that Spark calls for each key, with the values that it needs.

    Attributes:
        tracked: whether the rows come from a tracked stream; a single tuple of a topology may still be
            unanchored.
        floats: of each column of the key, whether it is of floats; a NaN in another one is a null.
        _prepared: the task for which the bolt was prepared, if it was.
    """

    name: str
    bolt: KeyedBolt
    fields: tuple[Field, ...]
    now_ns: ClockNs = time.perf_counter_ns
    tracked: bool = False
    streams: Streams = field(default_factory=lambda: {TUPLE: SPARK})
    one_key: bool = False
    floats: tuple[bool, ...] = ()
    _prepared: list[TaskName] = field(default_factory=list)
    _tracebacks: Tracebacks = field(default_factory=Tracebacks)

    def __call__(
        self, key: tuple[Any, ...], parts: Iterable[PandasFrame], state: GroupState
    ) -> Iterator[PandasFrame]:
        """Work on one key: on new tuples, on a tick, or on both."""
        key = () if self.one_key else self._with_nulls(key)
        batch_ms = state.getCurrentProcessingTimeMs()
        due_ms, held = _kept(state)
        if len(self.streams) == 1:  # an older version held tuples without it
            [stream] = self.streams.values()
            for each in held:
                if each.came_from == SPARK:
                    each.source_component, each.source_stream = stream
        arrived = () if state.hasTimedOut else parts
        new = [each for part in arrived for each in _tuples(part, self.streams, batch_ms)]
        held += new
        every_ms = self.bolt.tick_every_ms
        # it is later where the clock was set back, or the bolt had a longer interval before
        due_ms = min(due_ms, batch_ms + every_ms)
        is_due = bool(every_ms and due_ms) and batch_ms >= due_ms
        names = [each.name for each in self.fields]
        collector = first = KeyedCollector(self.name, held, self._check, names, self._tracebacks)
        place = task_name()
        if self._prepared != [place]:
            self.bolt.prepare(BoltContext(self.name, place.partition, place.batch))
            self._prepared[:] = [place]
            self._tracebacks.clear()
        began_ns = self.now_ns()
        try:
            if not state.hasTimedOut:
                invoke(self.name, self.bolt.execute, key, held, collector)
            if (state.hasTimedOut or is_due) and collector.held:
                invoke(self.name, self.bolt.tick, key, collector.held, collector)
        except Exception as error:  # whatever user code raises fails all held tuples of the key
            stop_on(self.name, self.bolt, error)
            if not self.tracked and any(each.anchor is None for each in held):
                raise  # nothing is tracked
            collector = KeyedCollector(self.name, (), tracebacks=self._tracebacks)
            cause = cause_of(self.name, error, self._tracebacks)
            collector.failed = [(each, cause) for each in held]
        first.is_closed = True
        took_ns = self.now_ns() - began_ns
        if not every_ms:
            due_ms = 0
        elif is_due or not due_ms:
            due_ms = batch_ms + every_ms
        waits = [each for each in (self.bolt.tick_ms, due_ms - batch_ms) if each and each > 0]
        _keep(state, collector.held, due_ms, min(waits, default=0))
        counts = counts_of(new, collector, batch_ms, took_ns, self.name)
        yield self._frame(reported_rows(len(self.fields), collector, counts))

    def _with_nulls(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            None if isinstance(value, float) and math.isnan(value) and not is_float else value
            for value, is_float in zip_longest(key, self.floats)
        )

    def _check(self, values: Sequence[Any]) -> None:
        """Check that an emission fits the output; `TupleError`: it does not."""
        wrong = size_error(values, [each.name for each in self.fields], self.name)
        if wrong is not None:
            raise wrong
        for each, value in zip(self.fields, values, strict=True):
            try:
                each.check(value, self.name)
            except Exception as error:
                raise TupleError(
                    f"bolt {self.name!r} emitted {short_repr(value)}, a {type(value).__name__},"
                    f" as {each.name!r}, which is {each.kind.simpleString()}: {error}"
                ) from error

    def _frame(self, rows: Iterable[ReportedRow]) -> PandasFrame:
        import pandas as pd

        columns = [*(each.name for each in self.fields), REPORT, ANCHOR]
        return pd.DataFrame(
            [
                [*values, text, [dict(zip(HELD_TYPE.names, each, strict=True)) for each in anchors]]
                for values, text, anchors in rows
            ],
            columns=pd.Index(columns),
            dtype=object,
        )


def counts_of(
    new: Sequence[KeyedTuple], collector: KeyedCollector, batch_ms: int, took_ns: int, bolt: str
) -> Counts:
    """Count the work of one call; a tuple that waited over several batches counts with all that time."""
    tally = Tally()
    for stream, tuples in Counter(each.came_from for each in new).items():
        tally.add(Counted(What.EXECUTED, bolt, stream), tuples, took_ns * tuples // len(new))
    failed = [each for each, _ in collector.failed]
    for what, settled in ((What.ACKED, collector.acked), (What.FAILED, failed)):
        for each in settled:
            waited_ms = max(0, batch_ms - each.since_ms) if each.since_ms else 0
            tally.add(Counted(what, bolt, each.came_from), 1, waited_ms * 1_000_000 + took_ns)
    return tally.counts()


def _tuples(part: PandasFrame, streams: Streams, batch_ms: int) -> Iterator[KeyedTuple]:
    for anchor, *structs in zip(part[ANCHOR], *(part[column] for column in streams), strict=True):
        found = None if anchor is None else (anchor["source"], anchor["position"], anchor["edge"])
        for stream, struct in zip(streams.values(), structs, strict=True):
            if struct is not None:  # PySpark 4.2 has a Row, 4.3 a dictionary
                values = struct if isinstance(struct, dict) else struct.asDict()
                yield KeyedTuple(values, found, batch_ms, stream)


def reported_rows(width: int, collector: KeyedCollector, counts: Counts) -> Iterator[ReportedRow]:
    """Yield the rows of one call: emissions; acked, reset and failed tuples; tracebacks; counts."""
    yield from zip(collector.emissions, repeat(None), collector.anchors, strict=False)
    nothing = [None] * width
    failed = by_key((cause, each) for each, cause in collector.failed)
    for text, tuples in (
        (ACKED, collector.acked),
        (RESET, collector.touched),
        *((json.dumps(cause), tuples) for cause, tuples in failed.items()),
    ):
        if tuples:
            yield nothing, text, [each.anchor for each in tuples if each.anchor is not None]
    if raised := collector.tracebacks.take():
        yield nothing, json.dumps(list(raised)), []
    if counts:
        yield nothing, counts_text(counts), []


class _Kept(pickle.Unpickler):
    """Reads states of earlier versions too, which had the classes in other modules."""

    def find_class(self, module: str, name: str) -> Any:
        return super().find_class(MOVED.get(module, module), name)


def _kept(state: GroupState) -> tuple[int, list[KeyedTuple]]:
    """Return when the next tick is due (0: never; older states have no such time), and the held tuples."""
    found = _Kept(io.BytesIO(state.get[0])).load() if state.exists else []
    return found if isinstance(found, tuple) else (0, found)


def _keep(state: GroupState, held: Sequence[KeyedTuple], due_ms: int, wait_ms: int) -> None:
    if not held:
        if state.exists:
            state.remove()
        return
    state.update((pickle.dumps((due_ms, list(held)), protocol=5),))
    if wait_ms:
        state.setTimeoutDuration(wait_ms)
