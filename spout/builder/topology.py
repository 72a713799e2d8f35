"""Storm's `TopologyBuilder`: spouts, bolts and groupings, compiled to one Spark query.

The graph is checked and cut into stages without Spark (`spout.topology.graph`,
`spout.topology.stages`); `spout.builder.submitted` builds the DataFrame and runs it.

Source: docs/design/protocol.md, section 5.2; Storm's ``TopologyBuilder`` and ``InputDeclarer``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, Unpack

import pyarrow as pa

from acker.config.topics import Topics
from acker.errors import UsageError
from spout.bolts.bolts import (
    AnyBolt,
    ArrowBolt,
    BasicBolt,
    Bolt,
    check_bolt,
    check_hooks,
    check_runs,
    declared_streams,
)
from spout.bolts.ddl import field_names
from spout.bolts.hooks import TaskHook
from spout.bolts.keyed_bolt import KeyedBolt
from spout.builder.compiled import Compiled, ParseOutput, SinkFunctions, Spout, WriteBatch
from spout.exactly_once.store import refuse_exact
from spout.topology.explain import explain
from spout.topology.graph import Component, Graph, Kind, OutputStream, Subscription
from spout.topology.keyed_graph import check_keyed
from spout.topology.stages import layout
from spout.tuples.casts import with_zone
from spout.tuples.columns import SOURCE_COLUMNS
from spout.tuples.messages import ARROW_TYPES
from spout.tuples.tuple import DEFAULT_STREAM, StreamId

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spout.builder.compiled import SubmitOptions
    from spout.builder.submitted import SubmittedTopology
    from spout.streaming.stream import ReadOptions


@dataclass(slots=True)
class DeclaredBolt:
    """A bolt with its parallelism and its subscriptions."""

    bolt: AnyBolt | KeyedBolt
    parallelism: int | None
    subscriptions: list[Subscription] = field(default_factory=list)


class BoltDeclarer:
    """Declares which streams a bolt reads, and how its tuples find its tasks.

    Each call adds one subscription. `TopologyBuilder.set_bolt` returns it.

    >>> builder = spout.TopologyBuilder()
    >>> builder.set_spout("lines", topics, "sentences")
    >>> split = builder.set_bolt("split", SplitSentence())
    >>> isinstance(split.shuffle_grouping("lines"), spout.BoltDeclarer)
    True
    >>> builder.set_bolt("upper", Upper(), parallelism=3).all_grouping("split")
    <spout.builder.topology.BoltDeclarer object at ...>
    """

    def __init__(self, name: str, subscriptions: list[Subscription]) -> None:
        self._name = name
        self._subscriptions = subscriptions

    def shuffle_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> Self:
        """Distribute tuples evenly. Without a `parallelism` of the bolt they stay in their task."""
        return self._add(component, stream, Kind.SHUFFLE)

    def fields_grouping(self, component: str, *fields: str, stream: str = DEFAULT_STREAM) -> Self:
        """Send tuples with equal values of the fields to one task."""
        return self._add(component, stream, Kind.FIELDS, fields)

    def partial_key_grouping(
        self,
        component: str,
        *fields: str,
        stream: str = DEFAULT_STREAM,
    ) -> Self:
        """Send each tuple to one of two tasks.

        Tuples with equal values of the fields have the same two. So the tuples of a frequent
        value do not load one task alone.
        """
        return self._add(component, stream, Kind.PARTIAL_KEY, fields)

    def all_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> Self:
        """Send each tuple to all tasks."""
        return self._add(component, stream, Kind.ALL)

    def global_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> Self:
        """Send all tuples to task 0."""
        return self._add(component, stream, Kind.GLOBAL)

    def none_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> Self:
        """Declare that the task does not matter: the same as `shuffle_grouping`."""
        return self._add(component, stream, Kind.NONE)

    def local_or_shuffle_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> Self:
        """Keep tuples in their task, whatever the parallelism.

        Another grouping of the bolt may move it behind a shuffle; then they are distributed evenly.
        """
        return self._add(component, stream, Kind.LOCAL_OR_SHUFFLE)

    def direct_grouping(self, component: str, stream: str = DEFAULT_STREAM) -> Self:
        """Leave the task to the emitter: ``emit_direct`` on a stream that it declares as direct."""
        return self._add(component, stream, Kind.DIRECT)

    def _add(self, component: str, stream: str, kind: Kind, fields: Sequence[str] = ()) -> Self:
        """Add a subscription; `UsageError`: a field is no text."""
        for name in fields:
            if not isinstance(name, str):
                raise UsageError(
                    f"bolt {self._name!r} groups {component} by {name!r}; give the fields'"
                    f' names one by one: {kind}_grouping("{component}", "word")'
                )
        subscription = Subscription(StreamId(component, stream), self._name, kind, tuple(fields))
        self._subscriptions.append(subscription)
        return self


class TopologyBuilder:
    """Collects spouts and bolts; `submit` runs them.

    >>> builder = spout.TopologyBuilder()
    >>> builder.set_spout("lines", topics, "sentences")
    >>> split = builder.set_bolt("split", SplitSentence()).shuffle_grouping("lines")
    >>> upper = builder.set_bolt("upper", Upper(), parallelism=2).fields_grouping("split", "word")
    >>> print(builder.explain(sink=print))
    stage 0: one Python pass, in the source's read task
      spout lines
      bolt split
        <- lines, shuffle: stays in its task, edges are folded there
    shuffle by task: split; edges are carried
    stage 1: one Python pass, 2 tasks
      bolt upper
        <- split, fields(word): to one of 2 tasks
      sink <- upper; acked when the batch is written
    """

    def __init__(self) -> None:
        self._spouts: dict[str, Spout] = {}
        self._bolts: dict[str, DeclaredBolt] = {}
        self._hooks: list[TaskHook] = []

    def set_spout(
        self,
        name: str,
        topics: Topics,
        inputs: str | Sequence[str],
        **read_options: Unpack[ReadOptions],
    ) -> None:
        """Add a spout.

        Args:
            name: the component's name.
            topics: topics.yaml, as `spout.load` returns it.
            inputs: name of an input, or of several. Spouts of one topology read inputs of one
                group.
            read_options: as of `spout.read_stream`. They apply to the whole query, so where
                several spouts set an option they must agree.

        Raises `UsageError`: the name is taken or not allowed.
        """
        self._check_name(name)
        names = (inputs,) if isinstance(inputs, str) else tuple(inputs)
        self._spouts[name] = Spout(topics, names, MappingProxyType(dict(read_options)))

    def set_bolt(
        self,
        name: str,
        bolt: AnyBolt | KeyedBolt,
        parallelism: int | None = None,
    ) -> BoltDeclarer:
        """Add a bolt; call methods of the returned declarer to subscribe it.

        A `KeyedBolt` reads each of its streams by a fields grouping. The fields are its key: of
        each stream as many, of the same types. Or it reads by a global grouping: then all
        tuples have one key, (). Bolts may read its output; none of them is a `KeyedBolt`, or
        reads a bolt before it.

        Args:
            name: the component's name in causes, counts and subscriptions.
            bolt: every task works on a copy of it.
            parallelism: how many tasks it has behind a grouping that moves tuples; None: one
                for each core, and with a shuffle grouping tuples stay in their task.

        Raises `UsageError`: the name is taken or not allowed; `bolt` is no bolt, or one of its
        methods would never run (a generator, `async`); or `parallelism` is no whole number of
        at least 1.
        """
        self._check_name(name)
        check_bolt(name, bolt)
        if not isinstance(bolt, BasicBolt | Bolt | ArrowBolt | KeyedBolt):
            raise UsageError(
                f"bolt {name!r} is a {type(bolt).__name__}, no BasicBolt, Bolt, ArrowBolt or"
                " KeyedBolt; derive it from one of them"
            )
        if parallelism is not None and (type(parallelism) is not int or parallelism < 1):
            range_text = "it is a whole number of tasks, at least 1"
            raise UsageError(f"bolt {name!r}: parallelism={parallelism!r}; {range_text}")
        declared_bolt = DeclaredBolt(bolt, parallelism)
        self._bolts[name] = declared_bolt
        return BoltDeclarer(name, declared_bolt.subscriptions)

    def add_hook(self, hook: TaskHook) -> None:
        """Observe every bolt with a hook, as Storm's ``topology.auto.task.hooks``."""
        self._hooks += check_hooks("every", [hook])

    def compile(
        self, parse: ParseOutput, sink: SinkFunctions = None, *, cores: int, zone: str = "UTC"
    ) -> Compiled:
        """Check the topology and cut it into stages, without Spark.

        Args:
            parse: reads the schema of a bolt's output.
            sink: see `submit`, also for errors.
            cores: how many tasks a bolt without `parallelism` has.
            zone: bolts get the times of records in it.
        """
        joined_spout = joined_spouts(self._spouts)
        graph, schemas = self.unchecked_graph(parse, zone)
        graph = graph.checked()
        sinks = sinks_of(graph, sink)
        input_names = joined_spout.inputs
        ordered_inputs = [name for name in input_names if joined_spout.topics.input(name).ordered]
        check_keyed(graph, sinks, joined_spout.options, ordered_inputs, self._hooks, schemas)
        keyed_bolt: KeyedBolt | None = None  # `check_keyed` has refused a second one
        other_bolts: dict[str, AnyBolt] = {}
        for name, declared_bolt in self._bolts.items():
            if isinstance(declared_bolt.bolt, KeyedBolt):
                keyed_bolt = declared_bolt.bolt
            else:
                other_bolts[name] = declared_bolt.bolt
        return Compiled(
            layout=layout(graph, tuple(sinks), cores),
            bolts=other_bolts,
            schemas=schemas,
            inputs={name: spout.inputs for name, spout in self._spouts.items()},
            read=joined_spout,
            sinks=sinks,
            hooks=tuple(self._hooks),
            keyed=keyed_bolt,
        )

    def unchecked_graph(
        self, parse: ParseOutput, zone: str = "UTC"
    ) -> tuple[Graph, dict[StreamId, pa.Schema]]:
        """Return the graph, not checked yet, and the schemas of its streams.

        `parse` and `zone` are as for `compile`. Raises `UsageError`: a bolt cannot declare its
        streams as it does.
        """
        schemas: dict[StreamId, pa.Schema] = {}
        components: dict[str, Component] = {}
        # 1. spouts, which all emit the columns of records
        columns = list(SOURCE_COLUMNS)
        if any(spout.options.get("includeHeaders") for spout in self._spouts.values()):
            columns.append("headers")
        type_by_column = {column: with_zone(ARROW_TYPES[column], zone) for column in columns}
        spout_schema = pa.schema(list(type_by_column.items()))
        for name in self._spouts:
            schemas[StreamId(name)] = spout_schema
            output_streams = {DEFAULT_STREAM: OutputStream(tuple(columns))}
            components[name] = Component(name, output_streams, is_spout=True)
        # 2. bolts
        subscriptions: list[Subscription] = []
        for name, declared_bolt in self._bolts.items():
            output_streams = {}
            for stream, declared in declared_streams(name, declared_bolt.bolt).items():
                schema = parse(name, declared.output)
                schemas[StreamId(name, stream)] = schema
                output_streams[stream] = OutputStream(tuple(schema.names), declared.is_direct)
            components[name] = Component(
                name,
                output_streams,
                declared_bolt.parallelism,
                is_keyed=isinstance(declared_bolt.bolt, KeyedBolt),
            )
            subscriptions += declared_bolt.subscriptions
        return Graph(components, tuple(subscriptions)), schemas

    def explain(self, cores: int = 2, sink: SinkFunctions = None) -> str:
        """Return the compiled plan as text, without Spark.

        It shows stages and shuffles, and where edges are carried.

        Args:
            cores: how many tasks a bolt without `parallelism` has.
            sink: see `submit`.
        """
        return explain(self.compile(names_only, sink, cores=cores).layout)

    def submit(
        self,
        spark: SparkSession,
        *,
        sink: SinkFunctions = None,
        **options: Unpack[SubmitOptions],
    ) -> SubmittedTopology:
        """Run the topology as one streaming query.

        Args:
            spark: the session; a classic one, not Spark Connect.
            sink: gets the rows that no bolt reads: for one such stream a function of a batch's
                rows and its id, as for `spout.sink`; for several a mapping from component, or
                (component, stream), to function. None: nothing is written.
            options: ``checkpoint`` (a folder; None: a temporary one, so that a restart is a new
                session), ``name``, ``trigger`` (arguments of Spark's `trigger`, such as
                ``{"availableNow": True}``), ``active`` (False: nothing is started before
                `resume`), ``deterministic`` (see `spout.sink`), ``metrics_port`` (a port, or an
                address with a port), and ``metrics_hosts`` (names of this machine by which
                others ask for the metrics).

        Raises `UsageError`: it cannot run; the message has the reason and the cure.
        """
        from spout.builder.submitted import submit

        return submit(partial(self.compile, sink=sink), spark, options)

    def _check_name(self, name: str) -> None:
        """Raise `UsageError` if a component has the name already, or none may have it."""
        if name in self._spouts or name in self._bolts:
            raise UsageError(f"two components are called {name!r}; give one of them another name")
        if not name or "+" in name or "/" in name:
            raise UsageError(f"a component cannot be called {name!r}: not empty, without + and /")


def joined_spouts(spouts: Mapping[str, Spout]) -> Spout:
    """Return one spout with the inputs and options of several, since a query reads one stream.

    Raises `UsageError`: they do not go together.
    """
    if not spouts:
        example = 'builder.set_spout("lines", topics, "sentences")'
        raise UsageError(f"a topology needs a spout: {example}")
    topics = next(iter(spouts.values())).topics
    # names of spouts, of several for one group the first
    spout_by_input: dict[str, str] = {}
    spout_by_group: dict[str, str] = {}
    options: dict[str, Any] = {}
    for name, spout in spouts.items():
        if spout.topics != topics:
            rule = "one topology reads one installation"
            raise UsageError(f"spout {name!r} reads another topics.yaml; {rule}")
        for input_name in spout.inputs:
            first_spout = spout_by_input.setdefault(input_name, name)
            if first_spout != name:
                raise UsageError(
                    f"spouts {first_spout!r} and {name!r} both read input {input_name!r}, so its"
                    f" records would be emitted twice; let all bolts read from {first_spout!r}"
                )
            spout_by_group.setdefault(topics.input(input_name).group, name)
        for option, value in spout.options.items():
            first_value = options.setdefault(option, value)
            if first_value != value:
                raise UsageError(
                    f"spout {name!r} says {option}={value!r}, another one {first_value!r};"
                    " read options hold for the whole topology"
                )
    if len(spout_by_group) > 1:
        names = [f"{name!r} of group {group!r}" for group, name in spout_by_group.items()]
        raise UsageError(
            f"spouts {' and '.join(names)} belong to several groups, and a topology"
            " publishes for one: give the inputs one group in topics.yaml, or submit a topology"
            " for each group"
        )
    return Spout(topics, tuple(spout_by_input), MappingProxyType(options))


def sinks_of(graph: Graph, sink: SinkFunctions) -> dict[StreamId, WriteBatch]:
    """Return the function that gets each stream for the sink; empty: there is no sink.

    Raises `UsageError`: `sink` is one function, and no bolt reads none or several streams; or a
    key of it is no stream; or what it has is no function.
    """
    if sink is None:
        return {}
    if isinstance(sink, Mapping):
        return _sinks_by_name(graph, sink)
    unread_streams = graph.unread()
    if len(unread_streams) != 1:
        why = "every stream has a subscriber"
        if unread_streams:
            why = f"several are left: {', '.join(map(str, unread_streams))}"
        example = unread_streams[0].component if unread_streams else graph.order[-1]
        raise UsageError(
            f"the sink is one function, which gets the stream that no bolt reads, and {why};"
            f' say which: sink={{"{example}": write}}'
        )
    _check_write(sink)
    return {unread_streams[0]: sink}


def _sinks_by_name(graph: Graph, sink: Mapping[Any, WriteBatch]) -> dict[StreamId, WriteBatch]:
    """Return the function of each stream; errors as `sinks_of`.

    A key of `sink` is a component, or (component, stream).
    """
    write_by_stream: dict[StreamId, WriteBatch] = {}
    for key, write in sink.items():
        if isinstance(key, str):
            stream = StreamId(key)
        elif isinstance(key, tuple) and len(key) == 2:
            stream = StreamId(*key)
        else:
            raise UsageError(f"the sink of {key!r}: name a component, or (component, stream)")
        write_by_stream[stream] = write
    for stream, write in write_by_stream.items():
        graph.stream(stream, "the sink")  # raises where there is none
        _check_write(write)
    return write_by_stream


def _check_write(write: WriteBatch) -> None:
    """Raise `UsageError` if a sink's function is none, or a call of it would not run its code."""
    refuse_exact(write, "the sink of a topology")
    if not callable(write):
        raise UsageError(f"the sink is {write!r}, no function of a batch's rows and its id")
    check_runs(f"the sink's function {getattr(write, '__name__', write)}", write)


def names_only(bolt: str, output: str) -> pa.Schema:
    """Return an output's fields by their names, as a `ParseOutput`.

    All types are Arrow's null: for a plan they do not matter.
    """
    return pa.schema([(name, pa.null()) for name in field_names(bolt, output)])
