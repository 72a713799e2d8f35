"""A submitted topology: its DataFrame, its status, and how it is paused, resumed and ended.

Source: docs/design/protocol.md, section 5.2; Storm's ``activate``, ``deactivate`` and ``kill``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import Metric
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from acker.errors import UsageError
from acker.waits import LongWait
from spout.bolts.outputs import arrow_output, zone_of_session, zone_or_utc
from spout.builder.compiled import Compiled, SubmitOptions, WriteBatch
from spout.builder.settled import SettledWatch
from spout.builder.tuple_metrics import root_metrics, tuple_metrics
from spout.held.keyed_entry import EntryTask, attach_keyed_bolt, keyed_streams
from spout.link.planner_link import PlannerLink
from spout.planning_process.status import PlannerStatus, read_status
from spout.runtime.endpoints import serve
from spout.runtime.forks import Owner
from spout.runtime.metrics import Scraped, counter, gauge
from spout.sinks.foreach_batch import sink as publishing
from spout.spark.renamed import to_partitions
from spout.streaming.application import Application, Stream, require_classic
from spout.streaming.frames import Node, narrowed, node_of, through
from spout.streaming.map_task import MapTask
from spout.streaming.stream import read_stream
from spout.streaming.unfit_rules import log_unfit_rules
from spout.topology.explain import explain
from spout.topology.graph import Graph
from spout.topology.keyed_graph import check_trigger
from spout.topology.stage_pass import Parts, passes_of
from spout.tuples.columns import COLUMN, TASK, TO
from spout.tuples.counts import Counts, What, count_of
from spout.tuples.failures import Cause

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

DRAIN_SECONDS = 60.0
"""How long `SubmittedTopology.stop` waits for what is running, by default."""

_LOGGER = logging.getLogger("windhover.spout")

POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class TopologyStatus:
    """A topology as it is now; `SubmittedTopology.status` returns it.

    >>> status = spout.TopologyStatus("active", spout=None, counts={})
    >>> status.state, status.count("acked", "split")
    ('active', 0)

    Attributes:
        state: ``inactive`` (nothing runs: it was submitted inactive, or is paused),
            ``deactivating`` (paused; a batch still runs), ``active``, ``finished`` (its trigger
            ended it), ``stopped``, ``killed``, or ``failed``.
        spout: the planning process's counts of pending, acked and failed roots; None before it
            runs.
        counts: counts of the components' work in published batches, by kind, component and stream.
        errors: the last errors that bolts reported by ``report_error``, the newest last.
        error: why it failed, else empty.
        isolated: how many records crashed or hung a worker and were therefore failed, by error.
    """

    state: str
    spout: PlannerStatus | None
    counts: Counts
    errors: tuple[Cause, ...] = ()
    error: str = ""
    isolated: Mapping[str, int] = field(default_factory=dict)

    def count(self, what: What | str, component: str, source: str | None = None) -> int:
        """Add up a component's work: ``emitted``, ``transferred``, ``executed``, ``acked`` or ``failed``.

        Args:
            what: one of these five.
            component: name of a spout or bolt.
            source: count only tuples that this component emitted; None: all.
        """
        return count_of(self.counts, what, component, source)


_PREFIX: Final = "windhover_topology"


def topology_metrics(
    status: TopologyStatus, group: str, now_ms: int, graph: Graph | None = None
) -> Iterator[Metric]:
    """Yield the metrics of a topology that reads a group; `now_ms` is wall time.

    `graph` None: who reads which stream is left out.
    """
    labels = ["group", "operator", "source", "stream", "grouping"]
    # by the values of the labels; a metric of 1 only shows that there is such a subscription
    subscription_samples: dict[tuple[str, ...], float] = {}
    for subscription in graph.subscriptions if graph else ():
        producer = subscription.producer
        values_of_labels = (
            group,
            subscription.consumer,
            producer.component,
            producer.stream,
            subscription.kind.value,
        )
        subscription_samples[values_of_labels] = 1.0
    yield gauge(f"{_PREFIX}_edge", "1: the operator reads the stream", subscription_samples, labels)
    yield from tuple_metrics(_PREFIX, {(group,): status.counts})
    isolated = {(group, error): float(count) for error, count in status.isolated.items()}
    text = "records that ended or hung a worker"
    yield counter(f"{_PREFIX}_isolated", text, isolated, ["group", "cause"])
    yield from root_metrics(_PREFIX, {(group,): status.spout}, now_ms)


@dataclass(frozen=True, slots=True)
class TopologyFrame:
    """The DataFrame of a topology, and what belongs to it.

    Attributes:
        stream: the tracked stream that it reads.
        link: tells the planning process to pause or to go on.
        status_path: the file with the planning process's status.
    """

    rows: DataFrame
    stream: Stream
    link: PlannerLink
    status_path: Path


def frame_of(spark: SparkSession, compiled: Compiled) -> TopologyFrame:
    """Return the DataFrame of a topology: one chain of stages, with one shuffle between each and
    the next.

    1. Read the inputs of all spouts as one stream.
    2. Find out what the tasks of each stage do.
    3. Put the stages one behind the other. At the stage of a keyed bolt Spark shuffles by its
       key, and keeps its state.

    Raises `UsageError`: as `spout.read_stream`.
    """
    # step 1
    joined_spout = compiled.read
    application = Application.of(spark)
    options: Any = dict(joined_spout.options)
    bolt_names = set(compiled.bolts)
    if compiled.keyed is not None:
        options["delayed_acks"] = True  # a keyed bolt acks in later batches
        bolt_names.add(compiled.layout.keyed_bolt)
    # how read_stream has built its rows
    node = node_of(read_stream(spark, joined_spout.topics, joined_spout.inputs, **options))
    if node is None or node.options is None:
        raise UsageError("read_stream returned rows that are not its own")
    stream = application.streams[node.options.stream]
    # rules of topics.yaml that name a bolt which the topology lacks
    log_unfit_rules(stream, bolt_names)
    # step 2
    input_ids_by_spout: dict[str, tuple[int, ...]] = {}
    for spout, names in compiled.inputs.items():
        input_ids_by_spout[spout] = tuple(joined_spout.topics.input(name).id for name in names)
    parts = Parts(
        bolts=compiled.bolts,
        schemas=compiled.schemas,
        inputs=input_ids_by_spout,
        hooks=compiled.hooks,
        tracked=stream.tracked,
    )
    stages = passes_of(compiled.layout, parts)
    # step 3; the first stage runs in the source's read task, each other one behind a shuffle. Tasks
    # report to an accumulator of Spark, the ledger.
    ledger = application.ledger.accumulator if stream.tracked else None
    rows = Node(spark, node.stream, options=narrowed(node.options, stages[0])).read()
    partition_counts_behind = compiled.layout.partitions[1:]
    stage_pairs = zip(pairwise(stages), partition_counts_behind, strict=True)
    for (stage_before, stage), partition_count in stage_pairs:
        if compiled.keyed is not None and stage.keyed_stream is not None:
            streams_read = keyed_streams(compiled.layout, stage)
            entry_task = EntryTask(
                compiled.layout.keyed_bolt, stage_before.name, streams_read, stream.id, ledger
            )
            rows = attach_keyed_bolt(rows, stage_before, entry_task, compiled.keyed, stage)
        else:
            task = MapTask(stage, stream.id, ledger, stream.safety)
            shuffled_rows = to_partitions(rows, partition_count, TASK)
            rows = through(shuffled_rows, task, stage.leaving_schema)
    status_path = Path(node.options.status_path or "")
    return TopologyFrame(rows, stream, application.link(stream), status_path)


class SubmittedTopology:
    """A handle of a topology, in the driver; `TopologyBuilder.submit` returns it.

    >>> builder = spout.TopologyBuilder()
    >>> builder.set_spout("lines", topics, "sentences", startingOffsets="earliest")
    >>> split = builder.set_bolt("split", SplitSentence()).shuffle_grouping("lines")
    >>> running = builder.submit(spark, checkpoint=folder)
    >>> spout.run_once(running)
    True
    >>> status = running.status()
    >>> status.state, status.count("acked", "split"), status.count("emitted", "split")
    ('finished', 2, 6)
    """

    def __init__(self, compiled: Compiled, frame: TopologyFrame, options: SubmitOptions) -> None:
        """Keep what is to run; Spark's query is not started before `resume`."""
        self._compiled = compiled
        self._frame = frame
        self._options = options
        self._query: StreamingQuery | None = None  # None: it was never active
        self._final_state = ""  # empty: it was not ended yet
        cure = "Only the driver's own process can talk to Spark"
        self._owner_process = Owner("this topology", cure)

    @property
    def query(self) -> StreamingQuery | None:
        """Spark's query; None before the topology is active for the first time."""
        return self._query

    def resume(self) -> None:
        """Activate: new tuples are emitted. This starts a topology that was submitted inactive.

        Raises `UsageError`: it was stopped or killed.
        """
        self._check_not_ended("resumed")
        self._frame.link.activate()
        if self._query is None:
            self._query = self._start()

    def pause(self) -> None:
        """Deactivate: no new tuples and no replays are emitted.

        Acks still flow, and offsets are committed. It returns at once. A batch that runs goes
        on; `status` shows when it has ended.

        Raises `UsageError`: it was stopped or killed.
        """
        self._check_not_ended("paused")
        self._frame.link.deactivate()

    def stop(self, timeout_s: float = DRAIN_SECONDS) -> TopologyStatus:
        """Drain, then end: no new tuples are emitted, running batches finish, and their roots are settled.

        It does not wait for tuples that a keyed bolt holds: their roots stay open, and they are
        in the checkpoint.

        Args:
            timeout_s: the query ends after this time at the latest. Roots that are pending then
                stay open, and a restart from the checkpoint goes on with them.

        Returns:
            The last status.
        """
        self._owner_process.check()
        if self._query is None or not self._query.isActive:
            return self._end("stopped")
        deadline_s = time.monotonic() + timeout_s
        has_keyed_bolt = self._compiled.keyed is not None
        # for good: Spark runs batches without records for a bolt that ticks, and one of these would
        # be interrupted by the end
        self._frame.link.deactivate(for_good=has_keyed_bolt)
        self._wait_until(self._is_idle, deadline_s)
        # the watch begins now: a status of before the last batch must not count
        watch = SettledWatch(has_keyed_bolt=has_keyed_bolt)
        self._wait_until(lambda: self._is_settled(watch), deadline_s)
        return self._end("stopped")

    def kill(self) -> TopologyStatus:
        """End at once. A running batch is interrupted.

        A restart from the checkpoint runs it again.
        """
        self._owner_process.check()
        return self._end("killed")

    def await_termination(self, timeout_s: int | None = None) -> bool:
        """Wait until the query ends; return whether it has ended.

        Raises:
            pyspark.errors.StreamingQueryException: it failed.
        """
        self._owner_process.check()
        if self._query is None:
            return bool(self._final_state)
        if timeout_s is None:
            self._query.awaitTermination()
            return True
        return bool(self._query.awaitTermination(timeout_s))

    def status(self) -> TopologyStatus:
        """Return the current status."""
        self._owner_process.check()
        failure = None if self._query is None else self._query.exception()
        work = self._frame.stream.work
        return TopologyStatus(
            state="failed" if failure is not None else self._state(),
            spout=None if self._query is None else read_status(self._frame.status_path),
            counts=work.counts,
            errors=work.errors,
            error="" if failure is None else str(failure),
            isolated=work.isolated,
        )

    def explain(self) -> str:
        """Return the compiled plan as text: stages, shuffles, and where edges are carried."""
        return explain(self._compiled.layout)

    def _start(self) -> StreamingQuery:
        """Start Spark's query with the options of `submit`."""
        options = self._options
        write = publishing(_sink_writer(self._compiled), deterministic=bool(options.get("deterministic")))
        writer = self._frame.rows.writeStream.foreachBatch(write)
        if options.get("checkpoint") is not None:
            writer = writer.option("checkpointLocation", str(options["checkpoint"]))
        if "name" in options:
            writer = writer.queryName(options["name"])
        if "trigger" in options:
            writer = writer.trigger(**options["trigger"])
        return writer.start()

    def _state(self) -> str:
        """Return the state of a topology that has not failed; see `TopologyStatus`."""
        if self._final_state:
            return self._final_state
        if self._query is None:
            return "inactive"
        if not self._query.isActive:
            return "finished"
        if not self._frame.link.is_inactive:
            return "active"
        return "inactive" if self._is_idle() else "deactivating"

    def _is_idle(self) -> bool:
        """Return whether no batch runs and none will begin: it is inactive, or has ended."""
        if self._query is None or not self._query.isActive:
            return True
        link = self._frame.link
        # is_idle: the planning process has reported that the last batch before the pause has ended.
        # It may not have reported yet: then the topology is paused, and Spark runs no batch now
        is_between_batches = not self._query.status["isTriggerActive"]
        return link.is_idle or (link.is_inactive and is_between_batches)

    def _is_settled(self, watch: SettledWatch) -> bool:
        """Read the status; return whether no root is pending, except those that a keyed bolt
        holds.

        `watch` judges by the statuses that were written since it was made. Also True where nothing
        will be settled any more: the query has ended, or is not tracked.
        """
        if self._query is None or not self._query.isActive or not self._frame.stream.tracked:
            return True
        return watch.record_status(read_status(self._frame.status_path))

    def _wait_until(self, condition: Callable[[], bool], deadline_s: float) -> None:
        """Wait until a condition is true, or the deadline, a time of `time.monotonic`, has passed.

        Log once a minute what it waits for.
        """
        wait = LongWait()
        while not condition() and time.monotonic() < deadline_s:
            time.sleep(POLL_SECONDS)
            now_s = time.monotonic()
            # None: it is not time for a line of the log
            waited_ms = wait.record_wait("end", int(now_s * 1000))
            if waited_ms is not None:
                status = read_status(self._frame.status_path)
                waited_s = waited_ms // 1000
                _LOGGER.warning(
                    "waits_for_its_end waited_s=%d most_s=%d pending=%s: a batch runs, or roots"
                    " have no verdict yet; see `windhover roots`",
                    waited_s,
                    waited_s + max(0, int(deadline_s - now_s)),
                    "unknown" if status is None else status.pending,
                )

    def _end(self, state: str) -> TopologyStatus:
        """End the query, and return its last status.

        A query that had ended by itself is "finished".
        """
        if not self._final_state:
            has_finished = self._query is not None and not self._query.isActive
            self._final_state = "finished" if has_finished else state
        if self._query is not None:
            self._query.stop()
        return self.status()

    def _check_not_ended(self, action: str) -> None:
        """Raise `UsageError` if the topology was ended, or this process was forked from the driver.

        `action`: what cannot be done to an ended topology, as a participle: "paused".
        """
        self._owner_process.check()
        if self._final_state:  # stopped, killed or finished
            raise UsageError(
                f"the topology was {self._final_state} and cannot be {action}; submit it again,"
                " with its checkpoint"
            )


def submit(
    compiled_for: Callable[..., Compiled], spark: SparkSession, options: SubmitOptions
) -> SubmittedTopology:
    """Compile a topology and run it; see `TopologyBuilder.submit`.

    `compiled_for` is `TopologyBuilder.compile`, which has its sink already.
    """
    unknown = sorted(set(options) - set(SubmitOptions.__annotations__))
    if unknown:
        allowed = ", ".join(SubmitOptions.__annotations__)
        raise UsageError(f"submit has no option {', '.join(unknown)}; it has {allowed}")
    cores = require_classic(spark).sparkContext.defaultParallelism
    zone = zone_of_session(spark)
    compiled = compiled_for(
        lambda bolt, output: arrow_output(bolt, output, zone),
        cores=cores,
        zone=zone_or_utc(spark),
    )
    check_trigger(compiled.layout.keyed_bolt, compiled.keyed, options.get("trigger", {}))
    frame = frame_of(spark, compiled)
    submitted = SubmittedTopology(compiled, frame, options)
    port = options.get("metrics_port")
    if port is not None:
        group = frame.link.group
        graph = compiled.layout.graph

        def collect() -> Iterator[Metric]:
            return topology_metrics(submitted.status(), group, time.time_ns() // 1_000_000, graph)

        serve(Scraped(collect), port, allow_hosts=options.get("metrics_hosts", ()))
    if options.get("active", True):
        submitted.resume()
    return submitted


def _sink_writer(compiled: Compiled) -> WriteBatch:
    """Return the function that writes the rows of a batch's last stage to all sinks."""
    outputs = compiled.layout.outputs
    if not outputs:
        return _run_bolts_alone
    if len(outputs) == 1:
        return compiled.sinks[outputs[0].stream]
    # The rows of all outputs come together. Each has in the column `TO` the number of its output,
    # and its values in the struct of its stream, whose column has the stream's index in its name.
    stream_ids = list(compiled.schemas)

    def write(rows: DataFrame, batch_id: int) -> None:
        """Give each sink the rows of its stream, as they were emitted."""
        rows.persist()  # each sink evaluates the batch, but its bolts should run once
        try:
            for output in outputs:
                column = COLUMN.format(stream_ids.index(output.stream))
                output_rows = rows.filter(sql.col(TO) == output.number).select(f"{column}.*")
                compiled.sinks[output.stream](output_rows, batch_id)
        finally:
            rows.unpersist()

    return write


def _run_bolts_alone(rows: DataFrame, _batch_id: int) -> None:
    """Evaluate a batch, so that its bolts run; write nothing."""
    rows.write.format("noop").mode("overwrite").save()
