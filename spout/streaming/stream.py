"""The public entry: from topics to DataFrames, and from DataFrames to bolts.

A bolt directly behind `read_stream`, or directly behind another bolt, joins it: the DataFrame
is built again with one more bolt in the same Python pass, inside the source's read task where
possible. Behind Spark's own operators a bolt runs in its own `mapInArrow`, and finds its roots
by the hidden column ``_windhover``.

Source: docs/design/protocol.md, sections 5.1 and 5.2.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from acker.config import topics as topics_yaml
from acker.config.topics import Input, Topics
from acker.errors import UsageError
from acker.units import time_ms
from spout.bolts.bolts import (
    AnyBolt,
    ArrowBolt,
    BasicBolt,
    Bolt,
    bolt_name,
    check_bolt,
    check_hooks,
    check_runs,
)
from spout.bolts.groupings import Grouping
from spout.bolts.hooks import TaskHook
from spout.bolts.outputs import output_schema, zone_of_session, zone_or_utc
from spout.isolation.safety import (
    Safety,
    bolt_timeout_ms,
    idle_limit_ms,
    idle_warning,
    refuse_idle_limit,
    tried_once,
)
from spout.runtime.tracing import configured_spans
from spout.spark.arrow_types import spark_type_of
from spout.streaming.application import Application, refuse_workers, require_classic
from spout.streaming.frames import Node, node_behind_spark, node_of
from spout.streaming.options import SourceOptions
from spout.topology.chain import Step
from spout.tuples.anchors import AnchorForm
from spout.tuples.columns import ANCHOR, HEADERS_TYPE, SOURCE_COLUMNS
from spout.tuples.tuple import Tuple

_LOGGER = logging.getLogger("windhover.spout")


class ReadOptions(TypedDict, total=False):
    """Options of `read_stream`.

    An option of Spark's Kafka connector has the same name and meaning here.
    """

    startingOffsets: str
    maxOffsetsPerTrigger: int
    minPartitions: int
    includeHeaders: bool
    failOnDataLoss: bool
    tracked: bool
    tracked_when: Callable[[Tuple], object]
    delayed_acks: bool
    take_over: bool
    status_path: str | Path | None


def load(path: str | Path, environ: Mapping[str, str] | None = None) -> Topics:
    """Read topics.yaml.

    >>> topics = spout.load("topics.yaml", {"KAFKA_BOOTSTRAP": "kafka-1:9092"})
    >>> topics.kafka["bootstrap.servers"], topics.input("sentences").group
    ('kafka-1:9092', 'word-count')

    `environ` has the values for ``${NAME}`` in the file; None: the environment of this process.
    Raises `ConfigError`: a value is not possible; the message has the file, the key, the value
    and the cure.
    """
    environ = os.environ if environ is None else environ
    return topics_yaml.load_topics(Path(path), environ, _LOGGER.warning)


def read_stream(
    spark: SparkSession,
    topics: Topics,
    inputs: str | Sequence[str],
    **options: Unpack[ReadOptions],
) -> DataFrame:
    """Read inputs of one group as a stream.

    >>> lines = spout.read_stream(spark, topics, "sentences", startingOffsets="earliest")
    >>> lines.isStreaming, lines.columns[:5]
    (True, ['key', 'value', 'topic', 'partition', 'offset'])

    Args:
        spark: the session; a classic one, not Spark Connect.
        topics: topics.yaml, as `load` returns it.
        inputs: name of an input, or of several of one group.
        options: ``startingOffsets`` (earliest, latest or an ISO 8601 time, for a group without
            history), ``maxOffsetsPerTrigger``, ``minPartitions``, ``includeHeaders``,
            ``failOnDataLoss``; ``tracked`` (False: this query takes no part in the guarantee),
            ``tracked_when`` (a function of a tuple: a record for which it is false is best
            effort, as Storm's emit without a message id: whatever its bolts do, it is acked
            with its micro-batch; one for which it raises fails), ``delayed_acks`` (True: rows
            may be held across micro-batches by `spout.hold`; 16 bytes more per row),
            ``take_over`` (True: take the group even from a query that is alive, which then
            ends; and go on with a new session from a checkpoint that is refused, or older than
            what its query did), ``status_path`` (a file for the planner's status; without it
            only `spout.stream_status` finds the status).

    Returns:
        A DataFrame with the columns of Spark's Kafka connector, and the hidden column
        ``_windhover``. Write it by ``foreachBatch(spout.sink(...))``, or start it with
        `spout.start`: a query that ends a batch without one of them is stopped with an error.

    Raises:
        UsageError: no such input, inputs of several groups, an unknown option, or a running
            query of this application reads the group already; or Spark would end a worker
            before `bolt_timeout`.
    """
    # 1. check the arguments, and that workers can start
    names = (inputs,) if isinstance(inputs, str) else tuple(inputs)
    group, tracked = _group_and_tracked(topics, names, options)
    context = require_classic(spark).sparkContext
    let_workers_be_this_python(context)
    application = Application.of(spark)
    refuse_workers(context.pythonExec, context.getConf().get("spark.submit.pyFiles") or "")
    read_inputs = tuple(topics.input(name) for name in names)
    _check_idle_limit(spark, read_inputs)
    # 2. register the stream
    root_form = AnchorForm.WIDE if options.get("delayed_acks") else AnchorForm.PACKED
    stream = application.new_stream(spark, topics, group, tracked=tracked, root_form=root_form)
    link = application.link(stream)
    stream.inputs = read_inputs
    stream.safety = Safety(bolt_timeout_ms(stream.inputs), str(link.mark))
    stream.status_path = Path(options.get("status_path") or link.status_path)
    if tracked and tried_once(context.master or ""):
        _LOGGER.warning(
            "tasks_are_tried_once master=%s: a record that kills or hangs the worker ends the"
            " query, and is isolated when it is started again; with local[2,3], or on a"
            " cluster, it is isolated at once",
            context.master,
        )
    # 3. the columns of its rows
    types_by_column = dict(SOURCE_COLUMNS)
    if options.get("includeHeaders"):
        types_by_column["headers"] = HEADERS_TYPE
    columns = tuple(types_by_column)  # without the hidden one
    if tracked:
        types_by_column[ANCHOR] = spark_type_of(root_form.type).simpleString()
    # 4. the source, which Spark loads
    source = SourceOptions(
        topics=topics,
        inputs=names,
        stream=stream.id,
        starting_offsets=options.get("startingOffsets"),
        max_offsets_per_trigger=options.get("maxOffsetsPerTrigger"),
        min_partitions=options.get("minPartitions"),
        parallelism=application.cores,
        fail_on_data_loss=options.get("failOnDataLoss"),
        tracked=tracked,
        tracked_when=options.get("tracked_when"),
        take_over=bool(options.get("take_over")),
        application=f"{context.appName} ({context.applicationId})",
        status_path=os.fspath(stream.status_path),
        sink_folder=os.fspath(application.sink_folder),
        driver=application.address,
        schema=", ".join(f"{column} {kind}" for column, kind in types_by_column.items()),
        columns=columns,
        anchored=tracked,
        zone=zone_or_utc(spark),
        root_form=root_form,
        traced=tracked and configured_spans() is not None,
        safety=stream.safety,
        ledger=application.ledger.accumulator,
        awaits_workers=tracked,
    )
    return Node(spark, stream if tracked else None, options=source).frame(anchored=True)


def _check_idle_limit(spark: SparkSession, read_inputs: Sequence[Input]) -> None:
    """Raise `UsageError` if Spark would end a worker before `bolt_timeout` has passed.

    Warn if it may end one later.
    """
    idle_ms = idle_limit_ms(spark.conf.getAll)
    refuse_idle_limit(bolt_timeout_ms(read_inputs), idle_ms)
    warning = idle_warning(idle_ms)
    if warning:
        _LOGGER.warning(warning)


def let_workers_be_this_python(context: SparkContext) -> None:
    """Make Spark's workers on this machine run this Python, unless a setting chooses another.

    Without `PYSPARK_PYTHON` Spark runs the `python3` of the PATH, which may not have this package.
    """
    is_local = (context.master or "").startswith("local")
    is_set = "PYSPARK_PYTHON" in os.environ or context.getConf().get("spark.pyspark.python") is not None
    if not is_local or is_set or context.pythonExec == sys.executable:
        return
    default_python = shutil.which(context.pythonExec)
    if default_python is None or Path(default_python).parent != Path(sys.executable).parent:
        _LOGGER.warning(
            "workers_run_this_python path=%s: PYSPARK_PYTHON is not set, and %s is %s, not of this"
            " environment; set PYSPARK_PYTHON to choose one",
            sys.executable,
            context.pythonExec,
            default_python or "not there",
        )
    context.pythonExec = sys.executable


def _group_and_tracked(topics: Topics, names: Sequence[str], options: ReadOptions) -> tuple[str, bool]:
    """Return the group of some inputs, and whether they are tracked.

    Raises `UsageError`: an option of `read_stream` is wrong, or the inputs do not go together.
    """
    argument: object = topics  # whoever has no type checker may pass anything
    if not isinstance(argument, Topics):
        raise UsageError(f'read_stream reads {argument!r}; give it what spout.load("topics.yaml") returns')
    _check_options(options)
    if not names:
        raise UsageError(f"read_stream needs the name of an input: {', '.join(topics.inputs)}")
    read_inputs = [topics.input(name) for name in names]
    for read_input in read_inputs:
        read_input.require_not_stopped()
    groups = sorted({read_input.group for read_input in read_inputs})
    if len(groups) > 1:
        raise UsageError(f"{', '.join(names)} belong to groups {', '.join(groups)}; one call reads one group")
    _check_values(options)
    # `ackers` is 0 for an input whose records nobody tracks
    ackers = {read_input.ackers for read_input in read_inputs}
    if len(ackers) > 1:
        raise UsageError(f"{', '.join(names)}: some have ackers: 0, some have not; read them by two groups")
    _check_ordering(read_inputs, options)
    is_tracked = bool(options.get("tracked", True)) and ackers != {0}
    return groups[0], is_tracked


def _check_options(options: ReadOptions) -> None:
    """Raise `UsageError` for an unknown option, or a `tracked_when` that would never run."""
    unknown = sorted(set(options) - set(ReadOptions.__annotations__))
    if unknown:
        allowed = ", ".join(ReadOptions.__annotations__)
        raise UsageError(f"read_stream has no option {', '.join(unknown)}; it has {allowed}")
    if options.get("tracked_when") is not None:
        check_runs("tracked_when", options["tracked_when"])


def _check_values(options: ReadOptions) -> None:
    """Raise `UsageError` if a value of an option has the wrong type, or is not possible."""
    for option in ("maxOffsetsPerTrigger", "minPartitions"):
        number = options.get(option)
        if number is None:
            continue
        # True is an int in Python, and no number of records
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise UsageError(f"{option}={number!r}: it is a number of at least 1")
    for option in ("includeHeaders", "failOnDataLoss", "tracked", "delayed_acks", "take_over"):
        flag = options.get(option)
        if not isinstance(flag, bool | None):
            raise UsageError(f"{option}={flag!r}: it is True or False")
    start = options.get("startingOffsets")
    if start in (None, "earliest", "latest", "committed"):
        return
    try:
        time_ms(str(start))
    except ValueError as error:
        raise UsageError(
            f"startingOffsets={start!r}: {error}; give earliest, latest, or a time such as"
            " 2026-07-01T00:00:00Z, for all partitions"
        ) from error


def _check_ordering(read_inputs: Sequence[Input], options: ReadOptions) -> None:
    """Raise `UsageError` if an input has an ordering, and an option does not go with that."""
    ordered_names = [read_input.name for read_input in read_inputs if read_input.ordered]
    if not ordered_names:
        return
    wrong_option = ""
    if not options.get("tracked", True):
        wrong_option = "tracked=False"
    elif options.get("delayed_acks"):
        wrong_option = "delayed_acks=True"
    if wrong_option:
        raise UsageError(
            f"input {ordered_names[0]} has an ordering, which does not go with {wrong_option}:"
            " its next batch waits for the verdicts of the one before; leave the option out, or"
            " set ordering: none"
        )


def bolt(
    instance: AnyBolt,
    *,
    grouping: Grouping | None = None,
    name: str | None = None,
    anchored: bool = False,
    hooks: Sequence[TaskHook] = (),
) -> Callable[[DataFrame], DataFrame]:
    """Return a function for `DataFrame.transform` that lets a bolt work on the rows.

    It works on rows of a file or a table as well, where nothing is tracked:

    >>> lines = spark.createDataFrame([(b"the hawk",)], "value binary")
    >>> lines.transform(spout.bolt(SplitSentence())).collect()
    [Row(word='the'), Row(word='hawk')]

    Args:
        instance: the bolt; every task works on a copy of it.
        grouping: `fields` or `shuffle` to send tuples to other tasks first; None: they stay
            where they are.
        name: the bolt's name in causes and metrics, unique in the topology; None: its class's name.
        anchored: whether its rows keep the hidden column, for another bolt behind Spark's own
            operators.
        hooks: observers of the bolt, called for each tuple; every task works on copies of them.
            Its counts need no hook: see `spout.stream_status`.

    Raises:
        UsageError: `instance` is no bolt, one of its methods would never run (a generator,
            `async`), or the name is not allowed.
    """
    name_of_bolt = bolt_name(instance, name)
    check_bolt(name_of_bolt, instance)
    if not isinstance(instance, BasicBolt | Bolt | ArrowBolt):
        raise UsageError(f"{name_of_bolt} is no BasicBolt, Bolt or ArrowBolt; derive it from one of them")
    if not name_of_bolt or "+" in name_of_bolt or "/" in name_of_bolt:
        raise UsageError(f"a bolt cannot be called {name_of_bolt!r}: not empty, without + and /")
    task_hooks = check_hooks(name_of_bolt, hooks)

    def attach(rows: DataFrame) -> DataFrame:
        """Return the rows that the bolt emits for `rows`."""
        zone = zone_of_session(rows.sparkSession)
        output = output_schema(name_of_bolt, instance, zone)
        step = Step(name_of_bolt, instance, output, task_hooks)
        # how the rows were built; None: not by this package's last operator
        node = node_of(rows)
        if node is None:
            # behind Spark's own operators, or another source
            grouped_rows = rows if grouping is None else grouping.apply(rows)
            node = node_behind_spark(grouped_rows, step)
        elif name_of_bolt in node.names:
            raise UsageError(
                f"two bolts are called {name_of_bolt!r}; give one of them a name: bolt(..., name=...)"
            )
        elif grouping is None:
            node = node.extended(step)
        else:
            node = node.grouped(step, grouping)
        return node.frame(anchored=anchored)

    return attach
