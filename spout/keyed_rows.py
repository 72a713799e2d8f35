"""Keyed bolts on Spark's state store: `applyInPandasWithState` with the anchors in the state.

::

    sessions = lines.transform(spout.hold(None)).transform(spout.keyed(Session(), by=["user"]))
    query = spout.start(sessions.writeStream.outputMode("append").format("parquet")...)

Source: DESIGN.md, section 5.2.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import _create_converter_from_pandas, to_arrow_type
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import DataType, StructType

from acker.errors import TupleError, UsageError
from spout.bolts import BatchCollector, BoltContext
from spout.collector import Cause, cause_of
from spout.holding import ANCHORS, HandsOn, ack_anchors
from spout.keyed_bolt import KeyedBolt, KeyedCollector, KeyedTuple
from spout.ledger import task_name
from spout.options import ANCHOR
from spout.rows import size_error

PandasFrame = Any  # pandas ships no types

SAID = "_windhover_said"
"""What a row says: null: it was emitted; empty: it only acks; else why the tuples that it carries failed."""

Said = tuple[Sequence[Any], str | None, list[KeyedTuple]]
"""Values, what the row says, and the tuples that it carries."""


def keyed(
    bolt: KeyedBolt, *, by: str | Sequence[str], name: str | None = None
) -> Callable[[DataFrame], DataFrame]:
    """Make a function for `DataFrame.transform` that lets a bolt hold the tuples of each key.

    >>> class Sessions(spout.KeyedBolt):
    ...     output = "user string, lines int"
    ...     tick_ms = 60_000
    ...     def tick(self, key, held, collector):
    ...         collector.emit((*key, len(held)))
    ...         collector.ack(*held)
    >>> lines = spout.read_stream(spark, topics, "sentences", delayed_acks=True)
    >>> by_user = lines.selectExpr("CAST(key AS string) AS user", "value", "_windhover")
    >>> sessions = by_user.transform(spout.hold(None)).transform(spout.keyed(Sessions(), by=["user"]))
    >>> sessions.dtypes
    [('user', 'string'), ('lines', 'int')]

    It stands behind `spout.hold(None)`, last, in output mode ``append``. What it holds stands in the query's
    checkpoint and survives a restart; a record whose timeout passes meanwhile comes again. What it acks in a
    call is acked when the micro-batch with that call's rows is written. Spark's Python state is slow, some
    thousand keys a second: where an aggregate will do, `collect_anchors` in one is ten times as fast.

    Args:
        bolt: the bolt; every task works on a copy of it.
        by: columns of the key, or the only one.
        name: the operator's name in causes, unique in the query; None: the bolt's class.

    Raises:
        UsageError: it is no `KeyedBolt`, no column is named, or the rows were not held.
    """
    if not isinstance(bolt, KeyedBolt):
        raise UsageError(
            f"{type(bolt).__name__!r} is no KeyedBolt; derive it from one, or attach it by spout.bolt, which"
            " keeps no key"
        )
    called = name or type(bolt).__name__
    columns = columns_of(called, by)

    def attach(rows: DataFrame) -> DataFrame:
        if ANCHOR not in rows.columns or f"array<{rows.schema[ANCHOR].dataType.simpleString()}>" != ANCHORS:
            raise UsageError(f"{called!r}: these rows are not held; put spout.hold(None) before it")
        schema = StructType.fromDDL(bolt.output)
        if not isinstance(schema, StructType):
            raise UsageError(f"{called!r}: output = {bolt.output!r} is no schema; name fields and types")
        task = KeyedTask(called, bolt, tuple(Field.of(each.name, each.dataType) for each in schema.fields))

        def run(key: Any, parts: Iterable[PandasFrame], state: GroupState) -> Iterator[PandasFrame]:
            return task(key, parts, state)

        timeout = GroupStateTimeout.ProcessingTimeTimeout if bolt.tick_ms else GroupStateTimeout.NoTimeout
        said = rows.groupBy(*columns).applyInPandasWithState(
            run, f"{bolt.output}, {SAID} string, {ANCHOR} {ANCHORS}", "held binary", "append", timeout
        )
        return said.transform(ack_anchors(unwrap(bolt.output), name=called))

    return attach


def columns_of(bolt: str, by: str | Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a key.

    Raises:
        UsageError: there are none, or they are no names.
    """
    names = (by,) if isinstance(by, str) else tuple(by) if isinstance(by, Sequence) else (by,)
    if not names:
        raise UsageError(f'{bolt!r}: a key needs a column: by=["user"]')
    if not all(isinstance(name, str) for name in names):
        raise UsageError(f'{bolt!r}: by={by!r}; give the columns of the key by name: by=["user"]')
    return names


class Field(NamedTuple):
    """A field of a keyed bolt's output, and what Spark makes of its values.

    Spark converts the rows of all keys of a task at once, where a value that does not fit ends the query. So
    each is converted on its own before, as that of any other bolt is.

    Attributes:
        name: of the field.
        kind: its type.
        arrow: its type in Arrow.
    """

    name: str
    kind: DataType
    arrow: pa.DataType

    @classmethod
    def of(cls, name: str, kind: DataType) -> Field:
        """Make one."""
        return cls(name, kind, to_arrow_type(kind, timezone="UTC"))

    def check(self, value: Any) -> None:
        """Convert a value.

        Raises:
            Exception: whatever Spark's and Arrow's conversions raise: it does not fit.
        """
        if value is not None and pa.types.is_nested(self.arrow):
            value = self._plain(value)
        pa.array([value], self.arrow, from_pandas=True)

    def _plain(self, value: Any) -> Any:
        """Return a nested value as Spark hands it to Arrow."""
        import pandas as pd  # type: ignore[import-untyped]  # only workers need it

        convert = _create_converter_from_pandas(
            self.kind, timezone="UTC", error_on_duplicated_field_names=False
        )
        return convert(pd.Series([value], dtype=object)).iloc[0]


@dataclass(frozen=True, slots=True)
class KeyedTask:
    """The function that Spark calls for each key, with what it needs.

    Attributes:
        name: the operator.
        bolt: the bolt.
        fields: its output.
    """

    name: str
    bolt: KeyedBolt
    fields: tuple[Field, ...]

    def __call__(
        self, key: tuple[Any, ...], parts: Iterable[PandasFrame], state: GroupState
    ) -> Iterator[PandasFrame]:
        """Work on one key: on what came, or on a tick."""
        held: list[KeyedTuple] = pickle.loads(state.get[0]) if state.exists else []
        call = self.bolt.tick if state.hasTimedOut else self.bolt.execute
        if not state.hasTimedOut:
            held += [each for part in parts for each in _tuples(part)]
        collector = KeyedCollector(self.name, held, self._check)
        place = task_name()
        self.bolt.prepare(BoltContext(self.name, place.partition, place.batch))
        try:
            call(key, held, collector)
        except Exception as error:  # whatever user code raises fails what the key holds
            if any(each.anchor is None for each in held):
                raise  # nothing is tracked
            yield self._frame([_failed(len(self.fields), held, cause_of(self.name, error))])
            collector = KeyedCollector(self.name, ())
        _keep(state, collector.held, self.bolt.tick_ms)
        yield self._frame(_said(len(self.fields), collector))

    def _check(self, values: Sequence[Any]) -> None:
        """Refuse an emission that does not fit the output.

        Raises:
            TupleError: it does not.
        """
        wrong = size_error(values, [field.name for field in self.fields], self.name)
        if wrong is not None:
            raise wrong
        for field, value in zip(self.fields, values, strict=True):
            try:
                field.check(value)
            except Exception as error:
                raise TupleError(
                    f"bolt {self.name!r} emitted {value!r:.60} as {field.name!r}, which is"
                    f" {field.kind.simpleString()}: {error}"
                ) from error

    def _frame(self, rows: Iterable[Said]) -> PandasFrame:
        import pandas as pd

        columns = [*(field.name for field in self.fields), SAID, ANCHOR]
        return pd.DataFrame(
            [[*values, said, _anchors(tuples)] for values, said, tuples in rows],
            columns=pd.Index(columns),
            dtype=object,
        )


def _tuples(part: PandasFrame) -> Iterator[KeyedTuple]:
    """Read the rows that came for a key."""
    names = [name for name in part.columns if name != ANCHOR]
    for values, anchor in zip(part[names].itertuples(index=False, name=None), part[ANCHOR], strict=True):
        found = None if anchor is None else (anchor["source"], anchor["position"], anchor["edge"])
        yield KeyedTuple(dict(zip(names, values, strict=True)), found)


def _anchors(tuples: Iterable[KeyedTuple]) -> list[dict[str, int]]:
    return [
        dict(zip(("source", "position", "edge"), each.anchor, strict=True))
        for each in tuples
        if each.anchor is not None
    ]


def _said(width: int, collector: KeyedCollector) -> Iterator[Said]:
    """Return the rows of one call: what was emitted, what is acked, and each failure."""
    for values in collector.emissions:
        yield values, None, []
    if collector.acked:
        yield [None] * width, "", collector.acked
    for each, cause in collector.failed:
        yield _failed(width, [each], cause)


def _failed(width: int, tuples: list[KeyedTuple], cause: Cause) -> Said:
    return [None] * width, json.dumps(cause), tuples


def _keep(state: GroupState, held: Sequence[KeyedTuple], tick_ms: int) -> None:
    """Store what is held on."""
    if not held:
        if state.exists:
            state.remove()
        return
    state.update((pickle.dumps(list(held), protocol=5),))
    if tick_ms:
        state.setTimeoutDuration(tick_ms)


def unwrap(ddl: str) -> HandsOn:
    """Make the bolt that hands on what was emitted, and fails what failed."""

    class Unwrap(HandsOn):
        output = ddl

        def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
            place = batch.schema.get_field_index(SAID)
            said = batch.column(place)
            emitted = pc.indices_nonzero(pc.is_null(said))
            collector.emit(batch.remove_column(place).take(emitted).columns, emitted)
            for row, why in enumerate(said.to_pylist()):
                if why:
                    collector.failures.append((row, Cause(*json.loads(why))))

    return Unwrap()
