"""`spout.fail_when`: fails the records of the rows for which a condition of Spark SQL is true.

Spark evaluates the condition into a column, the *flag* of a row; a bolt behind it fails the flagged
rows and passes on the others.

The *hidden column* has the anchors of the rows (`ANCHOR`).
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkTypeError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from acker.errors import UsageError
from spout.bolts.bolts import ArrowBolt, BatchCollector
from spout.bolts.outputs import zone_or_utc
from spout.spark.arrow_types import arrow_schema_of
from spout.streaming.frames import node_behind_spark, node_of
from spout.topology.chain import Step
from spout.tuples.columns import ANCHOR

FLAG = "_windhover_fails"
"""The column with the flags: the results of the condition."""

NAME_MAX = 60
"""How many characters of a reason become the operator's name."""

_WATERMARK = "spark.watermarkDelayMs"


class FailWhen(ArrowBolt):
    """Fails the rows whose flag is true, and emits all others without it."""

    def __init__(self, reason: str) -> None:
        """Prepare; `reason` is the message of the failures."""
        self._reason = reason

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit each row without its flag, anchored on itself; fail the flagged ones."""
        flag_index = batch.schema.get_field_index(FLAG)
        visible = batch.remove_column(flag_index)
        parents = pa.array(range(batch.num_rows))
        collector.emit(visible.columns, parents)  # what is emitted for a row that fails is dropped
        is_failed = pc.fill_null(batch.column(flag_index), False)
        for row in pc.indices_nonzero(is_failed).to_pylist():
            collector.fail(row, self._reason)


def fail_when(
    condition: Column | str, reason: str, *, name: str | None = None
) -> Callable[[DataFrame], DataFrame]:
    """Return a function for `DataFrame.transform` that fails the records of some rows.

    >>> orders = spark.createDataFrame([(1, 9.5), (2, -1.0)], "id int, total double")
    >>> orders.transform(spout.fail_when("total < 0", "a negative total")).collect()
    [Row(id=1, total=9.5)]

    If any row of a record matches, the record is failed with this reason when
    its micro-batch is published: it is replayed, and in the end becomes a
    dead letter. The matching row is dropped; the record's other rows pass,
    and so do rows for which the condition is null. Where nothing is tracked,
    matching rows are only dropped.

    Args:
        condition: a column of booleans, or SQL text such as ``"total < 0"``.
        reason: the cause's message in verdict, replay headers and dead
            letter.
        name: the operator's name there, unique in the query; None:
            ``fail_when: `` and the reason.

    Raises:
        UsageError: `withWatermark` is called before it (Spark drops the mark
            from rows that pass through Python: call it behind), or the hidden
            column was dropped from a tracked stream.
    """
    operator = f"fail_when: {reason[:NAME_MAX]}" if name is None else name
    # in names of operators + joins components, and / divides them
    operator = operator.replace("+", " ").replace("/", " ")
    flag = sql.expr(condition) if isinstance(condition, str) else condition

    def attach(rows: DataFrame) -> DataFrame:
        """Return the rows for which the condition is not true, without their flags."""
        anchored = with_anchors(rows, operator)
        step = Step(operator, FailWhen(reason), visible_schema(anchored, operator))
        flagged = anchored.withColumn(FLAG, flag)
        # the node of a bolt behind Spark's own operators: here those that compute the flag
        failing_node = node_behind_spark(flagged, step)
        # with the hidden column only if the user had it in the rows
        return failing_node.frame(anchored=ANCHOR in rows.columns)

    return attach


def visible_schema(rows: DataFrame, operator: str) -> pa.Schema:
    """Return the Arrow schema of rows without the hidden column.

    Raises `UsageError`: Arrow has no type for a column; the message names the `operator`.
    """
    fields = [field for field in rows.schema.fields if field.name != ANCHOR]
    zone = zone_or_utc(rows.sparkSession)
    try:
        return arrow_schema_of(StructType(fields), zone)
    except PySparkTypeError as error:
        raise UsageError(
            f"{operator!r}: Arrow does not carry a column of these rows: {error}; drop it before, or cast it"
        ) from error


def with_anchors(rows: DataFrame, operator: str) -> DataFrame:
    """Return rows with the hidden column; rows that are not tracked are returned as they are.

    Raises `UsageError`: `withWatermark` is called before the `operator`, and
    its mark on the column would be lost in Python.
    """
    node = node_of(rows)  # None: Spark's own operators made the rows
    anchored = rows
    # the rows of an operator of this package are shown without the column, and made again with it
    if node is not None and ANCHOR not in rows.columns:
        anchored = node.frame(anchored=True)
    for field in anchored.schema.fields:
        if _WATERMARK in (field.metadata or {}):
            raise UsageError(
                f"{operator!r} stands behind withWatermark({field.name!r}, ...), whose mark counts behind"
                " bolts and spout.hold alone (Spark drops it from rows that pass through Python);"
                f' call it behind: .withWatermark("{field.name}", ...)'
            )
    return anchored
