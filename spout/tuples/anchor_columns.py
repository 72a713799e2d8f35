"""Columns of anchors that stay valid after their batch: one for a held row,
an array for a joined row.

A held row carries one anchor. A row that Spark builds from several held rows
carries an array: `collect_anchors` builds it from the rows of a group,
`join_anchors` from the sides of a join. `spout.ack_anchors` acks what is in
such an array.

Source: docs/design/protocol.md, section 5.2; ``spout.publishing.delayed``.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from acker.errors import UsageError
from spout.tuples.columns import ANCHOR

UNTIL = "_windhover_until"
"""The column with the event time, ms, at which a watermark drops the row."""

EDGE = "_windhover_edge"
"""The column with the edge of a held row, until its anchor is put together."""

HELD_TYPE = pa.struct([("source", pa.int64()), ("position", pa.int64()), ("edge", pa.int64())])
"""An anchor that stays valid after its batch: 24 bytes, and 16 of Spark's
own, a row in Spark's state.
"""

HELD = "struct<source:bigint,position:bigint,edge:bigint>"
"""The same type, of the anchor of a held row, as Spark DDL."""

ANCHORS = f"array<{HELD}>"
"""The type of what `collect_anchors` and `join_anchors` return, as Spark DDL."""


def collect_anchors() -> Column:
    """Return the aggregate that keeps the anchors of a group's rows, for
    `groupBy(...).agg(...)`.

    >>> lines = spout.read_stream(spark, topics, "sentences", delayed_acks=True)
    >>> held = lines.transform(spout.hold(None))
    >>> counts = held.groupBy("key").agg(sql.count("*").alias("lines"), spout.collect_anchors())
    >>> counts.columns
    ['key', 'lines', '_windhover']

    Such an aggregate can also join several topics: read them by one
    `read_stream` of one group, and group by what they share; the row is then
    anchored on the tuples of all of them (``examples/stream_join.py``). For
    Spark's own joins see `join_anchors`. Put each array into only one row of
    the result: an anchor that two batches ack counts as never acked, or as
    acked by the first of them.
    """
    return sql.collect_list(ANCHOR).alias(ANCHOR)


def join_anchors(*sides: DataFrame) -> Column:
    """Return the column with the anchors of all sides of a join, for `DataFrame.select`.

    >>> lines = spout.read_stream(spark, topics, "sentences", delayed_acks=True)
    >>> words = lines.selectExpr("CAST(value AS string) AS line", "partition", "_windhover")
    >>> left = words.filter("partition = 0").transform(spout.hold(None, name="left"))
    >>> right = words.filter("partition = 1").transform(spout.hold(None, name="right"))
    >>> both = left.join(right, "line").select("line", spout.join_anchors(left, right))
    >>> both.transform(spout.ack_anchors()).columns
    ['line']

    Each side is held by itself, under its own name. So a record that goes
    into both sides is done when both have acked it. A side that an outer join
    leaves empty adds no anchor. You need this function only where a third
    side or an aggregate follows: `ack_anchors` directly behind a join calls
    it by itself.

    Args:
        sides: the DataFrames that were joined. Each is a result of `hold`, or
            has the column of `collect_anchors` or of this function;
            `withWatermark`, `alias` and filters may follow on it.

    Raises `UsageError`: there are no sides, or one of them was not held.
    """
    if not sides:
        example = "join_anchors(left, right)"
        raise UsageError(f"join_anchors needs the DataFrames that were joined: {example}")
    types = [_anchor_type_of(side) for side in sides]
    columns = [side[ANCHOR] for side in sides]
    return joined_anchors(columns, types)


def joined_anchors(columns: Sequence[Column], types: Sequence[str]) -> Column:
    """Concatenate columns of anchors into one array; a null adds no anchor.

    `types` of the columns, one for one: HELD or ANCHORS.
    """
    no_anchors = sql.array().cast(ANCHORS)
    arrays: list[Column] = []
    for column, column_type in zip(columns, types, strict=True):
        if column_type == ANCHORS:
            arrays.append(sql.coalesce(column, no_anchors))
        else:  # a single anchor, or null
            arrays.append(sql.array_compact(sql.array(column)))
    return sql.concat(*arrays).alias(ANCHOR)


def with_one_anchor_column(rows: DataFrame, operator: str) -> DataFrame:
    """Return rows with one column of anchors, an array.

    A join leaves a column of anchors for each side: these are concatenated.

    Raises `UsageError`, which names `operator`: the rows have no such column,
    or one of anchors that are valid only in their batch.
    """
    types = anchor_types_of(rows)
    if not types or not {HELD, ANCHORS}.issuperset(types):
        raise UsageError(
            f"{operator!r}: the rows carry no anchors that Spark's state may keep: put"
            " spout.hold(...) before an aggregate with .agg(..., spout.collect_anchors()), or one"
            " on each side of a join"
        )
    if types == [ANCHORS]:
        return rows
    # Columns of one name differ only by their positions. So each one is renamed to the number of
    # its position, and those that are no anchors get their names back.
    numbered_names = [f"{ANCHOR}_{number}" for number in range(len(rows.columns))]
    columns: list[Column] = []
    anchor_columns: list[Column] = []
    for numbered_name, name in zip(numbered_names, rows.columns, strict=True):
        if name == ANCHOR:
            anchor_columns.append(sql.col(numbered_name))
        else:
            columns.append(sql.col(numbered_name).alias(name))
    anchors = joined_anchors(anchor_columns, types)
    return rows.toDF(*numbered_names).select(*columns, anchors)


def anchor_types_of(rows: DataFrame) -> list[str]:
    """Return the type, as Spark DDL, of each column of anchors; a join may
    have left several.
    """
    return [field.dataType.simpleString() for field in rows.schema.fields if field.name == ANCHOR]


def _anchor_type_of(side: DataFrame) -> str:
    """Return the type of a side's only column of anchors: HELD or ANCHORS.

    Raises `UsageError`: it has no column of these types, or several.
    """
    types = anchor_types_of(side)
    if len(types) > 1:
        cure = "name the sides of each join"
        raise UsageError(f"join_anchors: a side has several columns of anchors; {cure}")
    if not types or types[0] not in (HELD, ANCHORS):
        columns = ", ".join(side.columns)
        raise UsageError(
            f"join_anchors: the side with the columns {columns} is not held, so Spark's state would"
            " have it without anchors; put spout.hold(..., name=...) on each side before the join"
        )
    return types[0]
