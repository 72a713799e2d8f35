"""A topology as a graph: spouts, bolts, their streams, and who subscribes to what; pure.

`Graph.checked` refuses what cannot run, naming the component and the cure: an unknown producer,
stream or field, a cycle (with its path), a direct grouping of a stream that is not direct, and
two subscriptions whose names have one CRC-32, since the edges of a tree are distinguished by
it.

Source: docs/design/protocol.md, sections 2 ("child edge") and 5.2; Storm's ``TopologyBuilder``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum

from acker.errors import UsageError
from acker.identity import subscription_key
from spout.tuples.tuple import StreamId


class Kind(StrEnum):
    """How the tuples of a stream find the tasks of a bolt, as Storm's groupings."""

    SHUFFLE = "shuffle"
    FIELDS = "fields"
    PARTIAL_KEY = "partial_key"
    ALL = "all"
    GLOBAL = "global"
    NONE = "none"
    LOCAL_OR_SHUFFLE = "local_or_shuffle"
    DIRECT = "direct"


BY_FIELDS = frozenset({Kind.FIELDS, Kind.PARTIAL_KEY})
"""Groupings that name fields."""


@dataclass(frozen=True, slots=True)
class OutputStream:
    """A stream that a component declares.

    Attributes:
        fields: their names.
        direct: whether its emitter names the task that gets a tuple (direct grouping).
    """

    fields: tuple[str, ...]
    direct: bool = False


@dataclass(frozen=True, slots=True)
class Component:
    """A spout or a bolt.

    Attributes:
        streams: what it emits, by the streams' names.
        parallelism: in how many tasks a bolt is to run; None: nobody said so.
        is_keyed: whether it is a bolt that holds tuples by key across micro-batches.
    """

    name: str
    streams: Mapping[str, OutputStream]
    parallelism: int | None = None
    is_spout: bool = False
    is_keyed: bool = False


@dataclass(frozen=True, slots=True)
class Subscription:
    """One bolt that reads one stream. `fields` are those that the grouping names."""

    producer: StreamId
    consumer: str
    kind: Kind
    fields: tuple[str, ...] = ()

    @property
    def key(self) -> int:
        """Return the number from which its edges are computed, a CRC-32 of the names."""
        return subscription_key(self.producer.component, self.producer.stream, self.consumer)

    def __str__(self) -> str:
        """Print as ``split -> count, fields(word)``."""
        by = f"({', '.join(self.fields)})" if self.fields else ""
        return f"{self.producer} -> {self.consumer}, {self.kind}{by}"


@dataclass(frozen=True, slots=True)
class Graph:
    """Components in the order in which they were set, and subscriptions as they were declared."""

    components: Mapping[str, Component]
    subscriptions: tuple[Subscription, ...] = ()
    order: tuple[str, ...] = field(default=())
    """Names of the components, every producer before its consumers; empty before `checked`."""

    def checked(self) -> Graph:
        """Return the graph with its `order`.

        Raises `UsageError`: it cannot run; the message names what is wrong, and the cure.
        """
        if not any(component.is_spout for component in self.components.values()):
            raise UsageError('a topology needs a spout: builder.set_spout("lines", topics, "sentences")')
        for subscription in self.subscriptions:
            self.check(subscription)
        self._refuse_equal_keys()
        for component in self.components.values():
            if not component.is_spout and not self.inputs_of(component.name):
                raise UsageError(
                    f"bolt {component.name!r} reads nothing; subscribe it:"
                    f' builder.set_bolt({component.name!r}, …).shuffle_grouping("…")'
                )
        return Graph(self.components, self.subscriptions, tuple(self._ordered()))

    def inputs_of(self, bolt: str) -> tuple[Subscription, ...]:
        """Return what a bolt subscribes to; empty for a spout."""
        subscriptions = self.subscriptions
        return tuple(subscription for subscription in subscriptions if subscription.consumer == bolt)

    @property
    def keyed_bolt(self) -> str:
        """Return the name of the keyed bolt; empty without one."""
        for component in self.components.values():
            if component.is_keyed:
                return component.name
        return ""

    def behind(self, bolt: str) -> frozenset[str]:
        """Return the components that read what a bolt emits, directly or not; only once `checked`."""
        reached_names = {bolt}
        for name in self.order:  # producers come first, so one pass is enough
            producers = {subscription.producer.component for subscription in self.inputs_of(name)}
            if producers & reached_names:
                reached_names.add(name)
        return frozenset(reached_names - {bolt})

    def stream(self, name: StreamId, reader: str) -> OutputStream:
        """Return a stream; `UsageError`: there is none of this name, and `reader` reads it."""
        component = self.components.get(name.component)
        if component is None:
            hint = _nearest(name.component, self.components)
            raise UsageError(f"{reader} reads from {name.component!r}, which was never set{hint}")
        stream = component.streams.get(name.stream)
        if stream is None:
            kind = "spout" if component.is_spout else "bolt"
            hint = _nearest(name.stream, component.streams)
            raise UsageError(
                f"{reader} reads stream {name.stream!r}, which {kind} {name.component!r} does"
                f" not declare{hint}"
            )
        return stream

    def unread(self) -> tuple[StreamId, ...]:
        """Return the streams of bolts that no bolt subscribes to, in order."""
        read_streams = {subscription.producer for subscription in self.subscriptions}
        unread_streams: list[StreamId] = []
        for component in self.components.values():
            if component.is_spout:
                continue
            for stream_name in component.streams:
                stream_id = StreamId(component.name, stream_name)
                if stream_id not in read_streams:
                    unread_streams.append(stream_id)
        return tuple(unread_streams)

    def check(self, subscription: Subscription) -> None:
        """Raise `UsageError` if its stream or a field does not exist, or its grouping does not
        fit.
        """
        bolt = f"bolt {subscription.consumer!r}"
        stream = self.stream(subscription.producer, bolt)
        unknown_fields = [name for name in subscription.fields if name not in stream.fields]
        if unknown_fields:
            names = ", ".join(stream.fields) or "none"
            raise UsageError(
                f"{bolt} groups {subscription.producer} by {', '.join(unknown_fields)};"
                f" its fields are: {names}"
            )
        if subscription.kind in BY_FIELDS and not subscription.fields:
            raise UsageError(f"{bolt} groups {subscription.producer} by fields and names none")
        if stream.direct and subscription.kind is not Kind.DIRECT:
            raise UsageError(
                f"{bolt} reads {subscription.producer} by {subscription.kind}; it is a direct"
                " stream, whose emitter names the task: read it by direct_grouping"
            )
        if subscription.kind is Kind.DIRECT and not stream.direct:
            raise UsageError(
                f"{bolt} reads {subscription.producer} by direct grouping, and its emitter"
                " names no task: declare the stream with direct=True and emit by emit_direct"
            )

    def _refuse_equal_keys(self) -> None:
        """Raise `UsageError` if two subscriptions have one key: their edges could not be
        distinguished.

        They are one subscription twice, or pairs of names that have one CRC-32.
        """
        subscriptions_by_key: dict[int, Subscription] = {}
        for subscription in self.subscriptions:
            earlier = subscriptions_by_key.setdefault(subscription.key, subscription)
            if earlier is subscription:
                continue
            has_same_producer = earlier.producer == subscription.producer
            if has_same_producer and earlier.consumer == subscription.consumer:
                raise UsageError(
                    f"bolt {subscription.consumer!r} subscribes to {subscription.producer}"
                    f" twice, by {earlier.kind} and by {subscription.kind}; keep one"
                )
            raise UsageError(
                f"the subscriptions {earlier} and {subscription} have one CRC-32"
                f" ({subscription.key:#010x}), so their edges could not be distinguished;"
                f" rename {subscription.consumer!r}"
            )

    def _ordered(self) -> Iterator[str]:
        """Yield the components, every producer before its consumers.

        Raises `UsageError`: there is a cycle.
        """
        producers_by_name: dict[str, set[str]] = {}
        for name in self.components:
            subscriptions = self.inputs_of(name)
            producers_by_name[name] = {subscription.producer.component for subscription in subscriptions}
        while producers_by_name:
            # those whose producers were all yielded before
            next_names = [
                name
                for name, producers in producers_by_name.items()
                if not producers & producers_by_name.keys()
            ]
            if not next_names:
                path = " -> ".join(_cycle(producers_by_name))
                raise UsageError(
                    f"the topology has a cycle: {path}; a tree that never ends cannot be acked."
                    " Write what goes round to a topic, and read it by a spout"
                )
            for name in next_names:
                del producers_by_name[name]
                yield name


def _cycle(producers_by_name: Mapping[str, Collection[str]]) -> list[str]:
    """Return a cycle, in the direction of the tuples, its first component again at the end.

    Each component has a producer among the others, so going from producer to producer ends in a
    cycle.
    """
    path = [next(iter(producers_by_name))]  # against the direction of the tuples
    while True:
        producers = producers_by_name[path[-1]]
        producer = next(name for name in producers if name in producers_by_name)
        if producer in path:
            cycle = path[path.index(producer) :]
            return [producer, *reversed(cycle)]
        path.append(producer)


def _nearest(name: str, names: Collection[str]) -> str:
    """Return the end of a message about a name that is unknown: the nearest known one, or all of them."""
    near_names = get_close_matches(name, names, n=1)
    if near_names:
        return f"; did you mean {near_names[0]!r}?"
    return f"; there are: {', '.join(names) or 'none'}"
