"""What a topology with a keyed bolt must look like; pure.

A keyed bolt's tuples wait in Spark's state store, and nothing passes by it: what did would be another branch
of the query, which reads and runs everything again. So the bolts behind it read its rows alone, and so does
the sink. There is one keyed bolt, since Spark runs no such operator behind another.
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
    """Raise `UsageError` if a topology with a keyed bolt cannot run; it names the bolt and the cure.

    Args:
        options: of `read_stream`, as the spouts have them.
        ordered: names of the inputs that are read in order.
        hooks: what watches every bolt.
        schemas: the fields of each stream; a type that is not parsed is Arrow's null.
    """
    keyed = [each for each in graph.components.values() if each.is_keyed]
    if not keyed:
        return
    if len(keyed) > 1:
        found = " and ".join(repr(each.name) for each in keyed)
        raise UsageError(
            f"bolts {found} are KeyedBolts, and a topology has one: let one bolt do the work of both, or"
            " submit a topology for each, which reads by a group of its own"
        )
    name = keyed[0].name
    behind = graph.behind(name)
    for each in graph.subscriptions:
        if each.consumer in behind and each.producer.component not in {name, *behind}:
            raise UsageError(
                f"bolt {each.consumer!r} reads {each.producer}, and also what comes after {name!r}, a"
                f" KeyedBolt: Spark has no rows of before it there. Let {name!r} read {each.producer}, too,"
                f" and emit what {each.consumer!r} needs; or do this work in two bolts"
            )
    _check_input(keyed[0], graph.inputs_of(name))
    _check_keys(name, graph.inputs_of(name), schemas)
    _check_read(name, options, ordered, hooks)
    for stream in sinks:
        if stream.component not in {name, *behind}:
            raise UsageError(
                f"the sink gets {stream} beside {name!r}, a KeyedBolt: Spark has no rows of before it"
                f" there. Let {stream.component!r} write by itself, or submit a topology of its own for it,"
                f' and give the sink only {name!r} and what reads from it: sink={{"{name}": write}}'
            )


def _check_input(keyed: Component, inputs: Collection[Subscription]) -> None:
    name = keyed.name
    for each in inputs:
        if each.kind not in (Kind.FIELDS, Kind.GLOBAL):
            raise UsageError(
                f"bolt {name!r}, a KeyedBolt, reads {each.producer} by {each.kind}; it holds tuples by key:"
                f' read it by .fields_grouping("{each.producer.component}", ...) with the fields of the key,'
                f' or by .global_grouping("{each.producer.component}") as one key, ()'
            )
        if len(set(each.fields)) < len(each.fields):
            raise UsageError(f"bolt {name!r} names a field of its key twice: {', '.join(each.fields)}")
    if keyed.parallelism is not None:
        raise UsageError(
            f"bolt {name!r}, a KeyedBolt, has parallelism={keyed.parallelism}; it has as many tasks as"
            " spark.sql.shuffle.partitions says when its checkpoint begins: leave parallelism out"
        )


def _check_keys(bolt: str, inputs: Sequence[Subscription], schemas: Mapping[StreamId, pa.Schema]) -> None:
    """See that the streams of a keyed bolt have keys of the same types, so that equal keys meet."""
    first = inputs[0]
    for each in inputs[1:]:
        types = [[schemas[s.producer].field(name).type for name in s.fields] for s in (first, each)]
        is_open = any(pa.types.is_null(kind) for kinds in types for kind in kinds)
        if len(first.fields) == len(each.fields) and (is_open or types[0] == types[1]):
            continue
        named = [
            ", ".join(f"{name} ({kind})" for name, kind in zip(s.fields, kinds, strict=True)) or "no field"
            for s, kinds in zip((first, each), types, strict=True)
        ]
        raise UsageError(
            f"bolt {bolt!r}, a KeyedBolt, groups {first.producer} by {named[0]} and {each.producer} by"
            f" {named[1]}, and tuples of both meet by equal keys: group both by as many fields, in one order,"
            " and emit each of them with one type (see the"
            f" output of {each.producer.component!r}, or let a bolt before {bolt!r} convert it)"
        )


def _check_read(
    bolt: str, options: Mapping[str, object], ordered: Collection[str], hooks: Collection[TaskHook]
) -> None:
    if options.get("delayed_acks", True) is not True:
        raise UsageError(
            f"bolt {bolt!r} is a KeyedBolt, which acks in a later batch; leave delayed_acks="
            f"{options['delayed_acks']!r} out of the spout's options"
        )
    if hooks:
        raise UsageError(
            f"bolt {bolt!r} is a KeyedBolt, which hooks cannot watch, and TopologyBuilder.add_hook adds a"
            " hook to every bolt: add it in the prepare of the other bolts instead, by context.add_hook"
        )
    for name in ordered:
        raise UsageError(
            f"bolt {bolt!r} is a KeyedBolt, and input {name!r} has an ordering: its next batch waits for the"
            " verdicts on what the bolt holds; set ordering: none"
        )


def check_trigger(name: str, bolt: KeyedBolt | None, trigger: Mapping[str, object]) -> None:
    """Raise `UsageError` if the query ends when nothing is pending, and its keyed bolt waits for ticks."""
    if bolt is not None and trigger.get("availableNow") and (bolt.tick_ms or bolt.tick_every_ms):
        raise UsageError(
            f"bolt {name!r} is a KeyedBolt that ticks, and with the trigger availableNow Spark runs"
            " no batch for ticks while the source waits for the last verdicts: leave the trigger out, and"
            " stop the topology when nothing is pending; or let the bolt ack in execute, without ticks"
        )
