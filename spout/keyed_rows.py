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
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import StructType

from acker.errors import UsageError
from spout.bolts import BatchCollector, BoltContext
from spout.collector import Cause, cause_of
from spout.holding import ANCHORS, HandsOn, ack_anchors
from spout.keyed_bolt import KeyedBolt, KeyedCollector, KeyedTuple
from spout.ledger import task_name
from spout.options import ANCHOR

PandasFrame = Any  # pandas ships no types

SAID = "_windhover_said"
"""What a row says: null: it was emitted; empty: it only acks; else why the tuples that it carries failed."""

Said = tuple[Sequence[Any], str | None, list[KeyedTuple]]
"""Values, what the row says, and the tuples that it carries."""


def keyed(bolt: KeyedBolt, *, by: Sequence[str], name: str | None = None) -> Callable[[DataFrame], DataFrame]:
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
        by: columns of the key.
        name: the operator's name in causes, unique in the query; None: the bolt's class.

    Raises:
        UsageError: the rows were not held.
    """
    called = name or type(bolt).__name__

    def attach(rows: DataFrame) -> DataFrame:
        if ANCHOR not in rows.columns or f"array<{rows.schema[ANCHOR].dataType.simpleString()}>" != ANCHORS:
            raise UsageError(f"{called!r}: these rows are not held; put spout.hold(None) before it")
        schema = StructType.fromDDL(bolt.output)
        if not isinstance(schema, StructType):
            raise UsageError(f"{called!r}: output = {bolt.output!r} is no schema; name fields and types")
        task = KeyedTask(called, bolt, tuple(schema.names))

        def run(key: Any, parts: Iterable[PandasFrame], state: GroupState) -> Iterator[PandasFrame]:
            return task(key, parts, state)

        timeout = GroupStateTimeout.ProcessingTimeTimeout if bolt.tick_ms else GroupStateTimeout.NoTimeout
        said = rows.groupBy(*by).applyInPandasWithState(
            run, f"{bolt.output}, {SAID} string, {ANCHOR} {ANCHORS}", "held binary", "append", timeout
        )
        return said.transform(ack_anchors(unwrap(bolt.output), name=called))

    return attach


@dataclass(frozen=True, slots=True)
class KeyedTask:
    """The function that Spark calls for each key, with what it needs.

    Attributes:
        name: the operator.
        bolt: the bolt.
        fields: names of its output.
    """

    name: str
    bolt: KeyedBolt
    fields: tuple[str, ...]

    def __call__(
        self, key: tuple[Any, ...], parts: Iterable[PandasFrame], state: GroupState
    ) -> Iterator[PandasFrame]:
        """Work on one key: on what came, or on a tick."""
        held: list[KeyedTuple] = pickle.loads(state.get[0]) if state.exists else []
        call = self.bolt.tick if state.hasTimedOut else self.bolt.execute
        if not state.hasTimedOut:
            held += [each for part in parts for each in _tuples(part)]
        collector = KeyedCollector(self.name, held)
        place = task_name()
        self.bolt.prepare(BoltContext(self.name, place.partition, place.batch))
        try:
            call(key, held, collector)
        except Exception as error:  # whatever user code raises fails what the key holds
            if any(each.anchor is None for each in held):
                raise  # nothing is tracked
            yield self._frame([_failed(self.fields, held, cause_of(self.name, error))])
            collector = KeyedCollector(self.name, ())
        _keep(state, collector.held, self.bolt.tick_ms)
        yield self._frame(_said(self.fields, collector))

    def _frame(self, rows: Iterable[Said]) -> PandasFrame:
        import pandas as pd  # type: ignore[import-untyped]  # only workers need it

        columns = [*self.fields, SAID, ANCHOR]
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


def _said(fields: Sequence[str], collector: KeyedCollector) -> Iterator[Said]:
    """Return the rows of one call: what was emitted, what is acked, and each failure."""
    for values in collector.emissions:
        yield values, None, []
    if collector.acked:
        yield [None] * len(fields), "", collector.acked
    for each, cause in collector.failed:
        yield _failed(fields, [each], cause)


def _failed(fields: Sequence[str], tuples: list[KeyedTuple], cause: Cause) -> Said:
    return [None] * len(fields), json.dumps(cause), tuples


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
