"""What a topology with a keyed bolt must look like; pure.

A keyed bolt's tuples wait in Spark's state store, so it is the last thing that the topology's one query
does: behind it nothing can be anchored, since its tuples are acked when its rows are written, and beside it
the sink gets nothing, since what passes by the state store would be another branch of the query, which reads
and runs everything again.

Source: docs/design/protocol.md, section 5.2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from acker.errors import UsageError
from spout.bolts.hooks import TaskHook
from spout.bolts.keyed_bolt import KeyedBolt
from spout.topology.graph import Component, Graph, Kind, Subscription
from spout.tuples.collector import SPARK, StreamId
from spout.tuples.counts import Counted, Counts, What

_RECEIVED = frozenset({What.EXECUTED, What.ACKED, What.FAILED})


def check_keyed(
    graph: Graph,
    sinks: Collection[StreamId],
    options: Mapping[str, object],
    ordered: Collection[str],
    hooks: Collection[TaskHook],
) -> None:
    """See that a topology with keyed bolts can run; without one there is nothing to see.

    Args:
        graph: the topology, checked.
        sinks: the streams that the sink gets.
        options: of `read_stream`, as the spouts have them.
        ordered: names of the inputs that are read in order.
        hooks: what watches every bolt.

    Raises:
        UsageError: it cannot; the message names the bolt and the cure.
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
    for each in graph.subscriptions:
        if each.producer.component == name:
            raise UsageError(
                f"bolt {each.consumer!r} reads from {name!r}, a KeyedBolt, whose tuples are acked when its"
                f" rows are written: let {name!r} do that work itself, or write its rows to a topic and read"
                " it by a spout"
            )
    _check_input(keyed[0], graph.inputs_of(name))
    _check_read(name, options, ordered, hooks)
    for stream in sinks:
        if stream.component != name:
            raise UsageError(
                f"the sink gets {stream} beside {name!r}, a KeyedBolt, behind whose state Spark has no other"
                f" rows: let {stream.component!r} write by itself, or submit a topology of its own for it,"
                f' and give the sink {name!r} alone: sink={{"{name}": write}}'
            )


def _check_input(keyed: Component, inputs: Collection[Subscription]) -> None:
    """See that a keyed bolt reads one stream, by fields."""
    name = keyed.name
    if len(inputs) > 1:
        streams = " and ".join(str(each.producer) for each in inputs)
        raise UsageError(
            f"bolt {name!r}, a KeyedBolt, reads {streams}, and holds tuples of one stream: let a bolt before"
            " it read them and emit both on one stream, by local_or_shuffle_grouping"
        )
    for each in inputs:
        if each.kind is not Kind.FIELDS:
            raise UsageError(
                f"bolt {name!r}, a KeyedBolt, reads {each.producer} by {each.kind}; it holds tuples by key:"
                f' read it by .fields_grouping("{each.producer.component}", ...) with the fields of the key'
            )
        if len(set(each.fields)) < len(each.fields):
            raise UsageError(f"bolt {name!r} names a field of its key twice: {', '.join(each.fields)}")
    if keyed.parallelism is not None:
        raise UsageError(
            f"bolt {name!r}, a KeyedBolt, has parallelism={keyed.parallelism}; it has as many tasks as"
            " spark.sql.shuffle.partitions says when its checkpoint begins: leave parallelism out"
        )


def _check_read(
    bolt: str, options: Mapping[str, object], ordered: Collection[str], hooks: Collection[TaskHook]
) -> None:
    """See that what is read may be held, and that nobody expects to watch who holds it."""
    if options.get("delayed_acks", True) is not True:
        raise UsageError(
            f"bolt {bolt!r} is a KeyedBolt, which acks in a later batch; leave delayed_acks="
            f"{options['delayed_acks']!r} out of the spout's options"
        )
    if hooks:
        raise UsageError(
            f"bolt {bolt!r} is a KeyedBolt, which hooks cannot watch, and TopologyBuilder.add_hook watches"
            " every bolt: add the hook in the prepare of those that it shall watch, by context.add_hook"
        )
    for name in ordered:
        raise UsageError(
            f"bolt {bolt!r} is a KeyedBolt, and input {name!r} has an ordering: its next batch waits for the"
            " verdicts on what the bolt holds; set ordering: none"
        )


def check_trigger(keyed: Subscription | None, bolt: KeyedBolt | None, trigger: Mapping[str, object]) -> None:
    """See that a keyed bolt's ticks come: Spark runs their batches only while the query goes on.

    Raises:
        UsageError: the query ends when nothing is pending any more, and its bolt waits for ticks.
    """
    if keyed is None or bolt is None or not trigger.get("availableNow"):
        return
    if bolt.tick_ms or bolt.tick_every_ms:
        raise UsageError(
            f"bolt {keyed.consumer!r} is a KeyedBolt that ticks, and with the trigger availableNow Spark runs"
            " no batch for ticks while the source waits for the last verdicts: leave the trigger out, and"
            " stop the topology when nothing is pending; or let the bolt ack in execute, without ticks"
        )


def told_of(counts: Counts, keyed: Subscription | None) -> Counts:
    """Name what a keyed bolt has received by the stream that it reads; Spark's operator hands it on."""
    if keyed is None:
        return counts
    return {_named(counted, keyed): measure for counted, measure in counts.items()}


def _named(counted: Counted, keyed: Subscription) -> Counted:
    what, component, stream = counted
    is_received = component == keyed.consumer and what in _RECEIVED and stream == SPARK
    return Counted(what, component, keyed.producer) if is_received else counted
