"""The public way in: topics to DataFrames, and bolts onto DataFrames.

`read_stream` returns an ordinary streaming DataFrame; `bolt` makes a function for `DataFrame.transform`. A
bolt directly behind `read_stream`, or behind another bolt, is joined to it: the DataFrame is built anew with
one more bolt in the same Python pass, inside the source's read task where that can be. Behind Spark's own
operators it runs in a `mapInArrow` of its own, and finds its roots by the hidden column ``_windhover``.

Source: DESIGN.md, sections 5.1 and 5.2.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from acker import topics as topics_yaml
from acker.errors import UsageError
from acker.topics import Topics
from spout.application import Application
from spout.bolts import AnyBolt, ArrowBolt, BasicBolt, Bolt
from spout.frames import Node, loose, node_of
from spout.groupings import Grouping
from spout.options import ANCHOR, HEADERS_TYPE, SOURCE_COLUMNS, SourceOptions
from spout.steps import Step


class ReadOptions(TypedDict, total=False):
    """Options of `read_stream`; those that Spark's Kafka connector has are called and mean the same."""

    startingOffsets: str
    maxOffsetsPerTrigger: int
    minPartitions: int
    includeHeaders: bool
    failOnDataLoss: bool
    tracked: bool
    take_over: bool
    status_path: str | Path | None


def load(path: str | Path, environ: Mapping[str, str] | None = None) -> Topics:
    """Read topics.yaml.

    Args:
        path: the file.
        environ: what ``${NAME}`` in it stands for; None: the environment of this process.

    Raises:
        ConfigError: the file says something that cannot be; file, key, value and cure stand in the message.
    """
    return topics_yaml.load(Path(path), os.environ if environ is None else environ)


def read_stream(
    spark: SparkSession, topics: Topics, inputs: str | Sequence[str], **options: Unpack[ReadOptions]
) -> DataFrame:
    """Read inputs of one group as a stream.

    Args:
        spark: the session; a classic one, not Spark Connect.
        topics: topics.yaml, as `load` returns it.
        inputs: name of an input, or of several of one group.
        options: ``startingOffsets`` (earliest, latest or an ISO 8601 time, for a group without history),
            ``maxOffsetsPerTrigger``, ``minPartitions``, ``includeHeaders``, ``failOnDataLoss``; ``tracked``
            (False: this query takes no part in the guarantee), ``take_over`` (True: keep a checkpoint whose
            session was refused, and draw a new one), ``status_path`` (a file for the planner's status).

    Returns:
        A DataFrame with the columns of Spark's Kafka connector, and the hidden column ``_windhover``. Write
        it by ``foreachBatch(spout.sink(...))``: a query that ends a batch past it is stopped with an error.

    Raises:
        UsageError: no such input, inputs of several groups, an unknown option, or a group that a query of
            this application reads already.
    """
    names = (inputs,) if isinstance(inputs, str) else tuple(inputs)
    wanted = _source_options(topics, names, options)
    application = Application.of(spark)
    stream = application.new_stream(spark, topics, wanted["group"], tracked=wanted["tracked"])
    columns = dict(SOURCE_COLUMNS) | ({"headers": HEADERS_TYPE} if options.get("includeHeaders") else {})
    schema = {**columns, ANCHOR: "bigint"} if stream.tracked else columns
    status_path = options.get("status_path")
    source = SourceOptions(
        topics=topics,
        inputs=names,
        stream=stream.id,
        starting_offsets=options.get("startingOffsets"),
        max_offsets_per_trigger=options.get("maxOffsetsPerTrigger"),
        min_partitions=options.get("minPartitions"),
        parallelism=spark.sparkContext.defaultParallelism,
        include_headers=bool(options.get("includeHeaders")),
        fail_on_data_loss=options.get("failOnDataLoss"),
        tracked=stream.tracked,
        take_over=bool(options.get("take_over")),
        status_path=None if status_path is None else os.fspath(status_path),
        sink_folder=os.fspath(application.sink_folder),
        schema=", ".join(f"{name} {kind}" for name, kind in schema.items()),
        columns=tuple(columns),
        anchored=stream.tracked,
        ledger=application.ledger.accumulator,
    )
    return Node(spark, stream if stream.tracked else None, options=source).frame(anchored=True)


def _source_options(topics: Topics, names: Sequence[str], options: ReadOptions) -> dict[str, Any]:
    """Check what `read_stream` was asked for; return group and whether anything is tracked."""
    unknown = sorted(set(options) - set(ReadOptions.__annotations__))
    if unknown:
        known = ", ".join(ReadOptions.__annotations__)
        raise UsageError(f"read_stream has no option {', '.join(unknown)}; it has {known}")
    if not names:
        raise UsageError(f"read_stream needs the name of an input: {', '.join(topics.inputs)}")
    read = [topics.input(name) for name in names]
    groups = sorted({each.group for each in read})
    if len(groups) > 1:
        raise UsageError(f"{', '.join(names)} belong to groups {', '.join(groups)}; one call reads one group")
    for option in ("maxOffsetsPerTrigger", "minPartitions"):
        value = options.get(option)
        if value is not None and (not isinstance(value, int) or value < 1):
            raise UsageError(f"{option}={value!r}: it is a number of at least 1")
    ackers = {each.ackers for each in read}
    if len(ackers) > 1:
        raise UsageError(f"{', '.join(names)}: some have ackers: 0, some have not; read them by two groups")
    return {"group": groups[0], "tracked": bool(options.get("tracked", True)) and ackers != {0}}


def bolt(
    instance: AnyBolt, *, grouping: Grouping | None = None, name: str | None = None, anchored: bool = False
) -> Callable[[DataFrame], DataFrame]:
    """Make a function for `DataFrame.transform` that lets a bolt work on the rows.

    Args:
        instance: the bolt; every task works on a copy of it.
        grouping: `fields` or `shuffle` to bring tuples to other tasks first; None: they stay where they are.
        name: what it is called in causes and metrics, unique in the topology; None: its class's name.
        anchored: whether its rows keep the hidden column, for a further bolt behind Spark's own operators.

    Raises:
        UsageError: it is no bolt, or its name cannot be one.
    """
    called = type(instance).__name__ if name is None else name
    if not isinstance(instance, BasicBolt | Bolt | ArrowBolt):
        raise UsageError(f"{called} is no BasicBolt, Bolt or ArrowBolt; derive it from one of them")
    if not called or "+" in called or "/" in called:
        raise UsageError(f"a bolt cannot be called {called!r}: not empty, without + and /")

    def attach(rows: DataFrame) -> DataFrame:
        step = Step(called, instance, to_arrow_schema(_output_of(called, instance)))
        node = node_of(rows)
        if node is not None and called in node.names:
            raise UsageError(f"two bolts are called {called!r}; give one of them a name: bolt(..., name=...)")
        if node is None:
            node = loose(rows if grouping is None else grouping.apply(rows), step)
        elif grouping is None:
            node = node.extended(step)
        else:
            node = node.grouped(step, grouping)
        return node.frame(anchored=anchored)

    return attach


def _output_of(name: str, instance: AnyBolt) -> StructType:
    """Read a bolt's output as Spark does.

    Raises:
        UsageError: it is no DDL, or names the hidden column.
    """
    try:
        output = StructType.fromDDL(instance.output)
    except PySparkException as error:
        raise UsageError(f"bolt {name!r}: output = {instance.output!r} is no schema: {error}") from error
    if not isinstance(output, StructType) or not output.fields or ANCHOR in output.names:
        raise UsageError(
            f'bolt {name!r}: output = {instance.output!r}; name fields and types, as "word string", and none'
            f" called {ANCHOR}"
        )
    return output
