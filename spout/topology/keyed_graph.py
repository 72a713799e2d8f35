"""What a topology with a keyed bolt must look like; pure.

A keyed bolt's tuples wait in Spark's state store, and no row can go around that: it would be in
another branch of the query, which reads and runs everything again. So the bolts behind the keyed
bolt read nothing but what it or they emit, and so does the sink. There is one keyed bolt, since
Spark runs no such operator behind another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from acker.errors import UsageError
from spout.bolts.hooks import TaskHook
from spout.bolts.keyed_bolt import KeyedBolt
from spout.topology.graph import Component, Graph, Kind, Subscription
from spout.tuples.tuple import StreamId


def check_keyed(
    graph: Graph,
    sinks: Collection[StreamId],
    options: Mapping[str, object],
    ordered: Collection[str],
    hooks: Collection[TaskHook],
    schemas: Mapping[StreamId, pa.Schema],
) -> None:
    """Raise `UsageError` if a topology with a keyed bolt cannot run.

    It names the bolt and the cure.

    Args:
        sinks: the streams that the sink gets.
        options: of `read_stream`, as the spouts have them.
        ordered: names of the inputs that are read in order.
        hooks: what watches every bolt.
        schemas: the fields of each stream; a type that is not parsed is Arrow's null.
    """
    keyed_bolts = [component for component in graph.components.values() if component.is_keyed]
    if not keyed_bolts:
        return
    if len(keyed_bolts) > 1:
        names = " and ".join(repr(component.name) for component in keyed_bolts)
        raise UsageError(
            f"bolts {names} are KeyedBolts, and a topology has one: let one bolt do the work of"
            " both, or submit a topology for each, which reads by a group of its own"
        )
    keyed = keyed_bolts[0]
    _refuse_streams_around(graph, keyed.name)
    _check_input(keyed, graph.inputs_of(keyed.name))
    _check_keys(keyed.name, graph.inputs_of(keyed.name), schemas)
    _check_spout(keyed.name, options, ordered, hooks)
    _refuse_sinks_around(graph, keyed.name, sinks)


def _refuse_streams_around(graph: Graph, keyed: str) -> None:
    """Raise `UsageError` if a bolt behind the keyed one reads a stream that does not come from
    there.
    """
    components_behind = graph.behind(keyed)
    for subscription in graph.subscriptions:
        reader = subscription.consumer
        producer = subscription.producer
        if reader in components_behind and producer.component not in {keyed, *components_behind}:
            raise UsageError(
                f"bolt {reader!r} reads {producer}, and also what comes after {keyed!r}, a"
                f" KeyedBolt: Spark has no rows of before it there. Let {keyed!r} read"
                f" {producer}, too, and emit what {reader!r} needs; or do this work in two"
                " bolts"
            )


def _refuse_sinks_around(graph: Graph, keyed: str, sinks: Collection[StreamId]) -> None:
    """Raise `UsageError` if the sink gets a stream of neither the keyed bolt nor a bolt behind
    it.
    """
    components_behind = graph.behind(keyed)
    for stream in sinks:
        if stream.component not in {keyed, *components_behind}:
            raise UsageError(
                f"the sink gets {stream} beside {keyed!r}, a KeyedBolt: Spark has no rows of"
                f" before it there. Let {stream.component!r} write by itself, or submit a"
                f" topology of its own for it, and give the sink only {keyed!r} and what reads from"
                f' it: sink={{"{keyed}": write}}'
            )


def _check_input(keyed: Component, inputs: Collection[Subscription]) -> None:
    """Raise `UsageError` if the keyed bolt reads without a key, or says how many tasks it wants."""
    name = keyed.name
    for subscription in inputs:
        producer = subscription.producer
        if subscription.kind not in (Kind.FIELDS, Kind.GLOBAL):
            raise UsageError(
                f"bolt {name!r}, a KeyedBolt, reads {producer} by {subscription.kind}; it holds"
                f' tuples by key: read it by .fields_grouping("{producer.component}", ...) with the'
                f' fields of the key, or by .global_grouping("{producer.component}") as one key, ()'
            )
        fields = subscription.fields
        if len(set(fields)) < len(fields):
            raise UsageError(f"bolt {name!r} names a field of its key twice: {', '.join(fields)}")
    if keyed.parallelism is not None:
        raise UsageError(
            f"bolt {name!r}, a KeyedBolt, has parallelism={keyed.parallelism}; it has as many"
            " tasks as spark.sql.shuffle.partitions says when its checkpoint begins: leave"
            " parallelism out"
        )


def _check_keys(bolt: str, inputs: Sequence[Subscription], schemas: Mapping[StreamId, pa.Schema]) -> None:
    """Raise `UsageError` if streams of a keyed bolt have keys of unlike types, so that equal keys differ."""
    reference = inputs[0]
    reference_types = _key_types(reference, schemas)
    for subscription in inputs[1:]:
        types = _key_types(subscription, schemas)
        # a type that is not parsed may be any
        has_unknown_type = any(map(pa.types.is_null, [*reference_types, *types]))
        has_as_many = len(types) == len(reference_types)
        if has_as_many and (has_unknown_type or types == reference_types):
            continue
        reference_key = _key_text(reference, reference_types)
        key = _key_text(subscription, types)
        producer = subscription.producer
        raise UsageError(
            f"bolt {bolt!r}, a KeyedBolt, groups {reference.producer} by {reference_key} and"
            f" {producer} by {key}, and tuples of both meet by equal keys: group both by as"
            " many fields, in one order, and emit each of them with one type (see the output of"
            f" {producer.component!r}, or let a bolt before {bolt!r} convert it)"
        )


def _key_types(subscription: Subscription, schemas: Mapping[StreamId, pa.Schema]) -> list[pa.DataType]:
    """Return the types of the fields of a key."""
    schema = schemas[subscription.producer]
    return [schema.field(name).type for name in subscription.fields]


def _key_text(subscription: Subscription, types: Sequence[pa.DataType]) -> str:
    """Return the fields of a key with their types, for a message: ``word (string), at (timestamp[us])``."""
    fields = zip(subscription.fields, types, strict=True)
    return ", ".join(f"{name} ({field_type})" for name, field_type in fields) or "no field"


def _check_spout(
    bolt: str,
    options: Mapping[str, object],
    ordered: Collection[str],
    hooks: Collection[TaskHook],
) -> None:
    """Raise `UsageError` if a spout's option, an ordered input or a hook rules out acks in later
    batches.

    `ordered`: names of the inputs that are read in order.
    """
    if options.get("delayed_acks", True) is not True:
        raise UsageError(
            f"bolt {bolt!r} is a KeyedBolt, which acks in a later batch; leave delayed_acks="
            f"{options['delayed_acks']!r} out of the spout's options"
        )
    if hooks:
        raise UsageError(
            f"bolt {bolt!r} is a KeyedBolt, which hooks cannot watch, and"
            " TopologyBuilder.add_hook adds a hook to every bolt: add it in the prepare of the"
            " other bolts instead, by context.add_hook"
        )
    if ordered:
        name = next(iter(ordered))
        raise UsageError(
            f"bolt {bolt!r} is a KeyedBolt, and input {name!r} has an ordering: its next batch"
            " waits for the verdicts on what the bolt holds; set ordering: none"
        )


def check_trigger(name: str, bolt: KeyedBolt | None, trigger: Mapping[str, object]) -> None:
    """Raise `UsageError` if the query ends when nothing is pending, and its keyed bolt waits for ticks."""
    if bolt is not None and trigger.get("availableNow") and (bolt.tick_ms or bolt.tick_every_ms):
        raise UsageError(
            f"bolt {name!r} is a KeyedBolt that ticks, and with the trigger availableNow Spark"
            " runs no batch for ticks while the source waits for the last verdicts: leave the"
            " trigger out, and stop the topology when nothing is pending (`spout.run_once` does"
            " not end it either); or let the bolt ack in execute, without ticks"
        )
