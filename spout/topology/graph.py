"""A topology as a graph: spouts, bolts, their streams, and who subscribes to what; pure.

`Graph.checked` refuses what cannot run, naming the component and the cure: an unknown producer, stream or
field, a cycle (with its path), a direct grouping of a stream that is not direct, and two subscriptions whose
names have one CRC-32, since the edges of a tree are distinguished by it.

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
    """A stream that a component declares: the names of its fields, and whether its emitter names the task."""

    fields: tuple[str, ...]
    direct: bool = False


@dataclass(frozen=True, slots=True)
class Component:
    """A spout or a bolt: its name, its streams, and for a bolt how many tasks were asked for, or None.

    `is_keyed`: it is a bolt that holds tuples by key across micro-batches.
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
        """The key of its edges."""
        return subscription_key(self.producer.component, self.producer.stream, self.consumer)

    def __str__(self) -> str:
        """Print as ``split -> count, fields(word)``."""
        by = f"({', '.join(self.fields)})" if self.fields else ""
        return f"{self.producer} -> {self.consumer}, {self.kind}{by}"


@dataclass(frozen=True, slots=True)
class Graph:
    """Components in the order in which they were set, and subscriptions in the order of their declaration."""

    components: Mapping[str, Component]
    subscriptions: tuple[Subscription, ...] = ()
    order: tuple[str, ...] = field(default=())
    """Names of the components, every producer before its consumers; `checked` finds it."""

    def checked(self) -> Graph:
        """Return the graph in order; `UsageError`: it cannot run; the message names what, and the cure."""
        if not any(each.is_spout for each in self.components.values()):
            raise UsageError('a topology needs a spout: builder.set_spout("lines", topics, "sentences")')
        for subscription in self.subscriptions:
            self.check(subscription)
        self._check_pairs()
        for component in self.components.values():
            if not component.is_spout and not self.inputs_of(component.name):
                raise UsageError(
                    f"bolt {component.name!r} reads nothing; subscribe it:"
                    f' builder.set_bolt({component.name!r}, …).shuffle_grouping("…")'
                )
        return Graph(self.components, self.subscriptions, tuple(self._ordered()))

    def inputs_of(self, bolt: str) -> tuple[Subscription, ...]:
        return tuple(each for each in self.subscriptions if each.consumer == bolt)

    @property
    def keyed(self) -> str:
        """The name of the keyed bolt; empty without one."""
        return next((each.name for each in self.components.values() if each.is_keyed), "")

    def behind(self, bolt: str) -> frozenset[str]:
        """Return the components that read what a bolt emits, directly or not; the graph must be in order."""
        found = {bolt}
        for name in self.order:
            if any(each.producer.component in found for each in self.inputs_of(name)):
                found.add(name)
        return frozenset(found - {bolt})

    def stream(self, name: StreamId, reader: str) -> OutputStream:
        """Return a stream; `UsageError`: there is none of this name, and `reader` reads it."""
        component = self.components.get(name.component)
        if component is None:
            near = _nearest(name.component, self.components)
            raise UsageError(f"{reader} reads from {name.component!r}, which was never set{near}")
        found = component.streams.get(name.stream)
        if found is None:
            kind = "spout" if component.is_spout else "bolt"
            near = _nearest(name.stream, component.streams)
            raise UsageError(
                f"{reader} reads stream {name.stream!r}, which {kind} {name.component!r} does"
                f" not declare{near}"
            )
        return found

    def unread(self) -> tuple[StreamId, ...]:
        """Return the streams of bolts that no bolt subscribes to, in order."""
        read = {each.producer for each in self.subscriptions}
        bolts = (each for each in self.components.values() if not each.is_spout)
        every = (StreamId(each.name, stream) for each in bolts for stream in each.streams)
        return tuple(stream for stream in every if stream not in read)

    def check(self, subscription: Subscription) -> None:
        """Raise `UsageError` if there is no such stream, or it is not read so."""
        bolt = f"bolt {subscription.consumer!r}"
        found = self.stream(subscription.producer, bolt)
        missing = [name for name in subscription.fields if name not in found.fields]
        if missing:
            names = ", ".join(found.fields) or "none"
            raise UsageError(
                f"{bolt} groups {subscription.producer} by {', '.join(missing)}; its fields are: {names}"
            )
        if subscription.kind in BY_FIELDS and not subscription.fields:
            raise UsageError(f"{bolt} groups {subscription.producer} by fields and names none")
        if found.direct and subscription.kind is not Kind.DIRECT:
            raise UsageError(
                f"{bolt} reads {subscription.producer} by {subscription.kind}; it is a direct stream, whose"
                " emitter names the task: read it by direct_grouping"
            )
        if subscription.kind is Kind.DIRECT and not found.direct:
            raise UsageError(
                f"{bolt} reads {subscription.producer} by direct grouping, and its emitter names no task:"
                " declare the stream with direct=True and emit by emit_direct"
            )

    def _check_pairs(self) -> None:
        keys: dict[int, Subscription] = {}
        for each in self.subscriptions:
            other = keys.setdefault(each.key, each)
            if other is each:
                continue
            if (other.producer, other.consumer) == (each.producer, each.consumer):
                raise UsageError(
                    f"bolt {each.consumer!r} subscribes to {each.producer} twice, by {other.kind} and by"
                    f" {each.kind}; keep one"
                )
            raise UsageError(
                f"the subscriptions {other} and {each} have one CRC-32 ({each.key:#010x}), so their edges"
                f" could not be distinguished; rename {each.consumer!r}"
            )

    def _ordered(self) -> Iterator[str]:
        """Yield the components, every producer before its consumers; `UsageError`: there is a cycle."""
        left = {name: {each.producer.component for each in self.inputs_of(name)} for name in self.components}
        while left:
            free = [name for name, before in left.items() if not before & left.keys()]
            if not free:
                path = " -> ".join(_cycle(left))
                raise UsageError(
                    f"the topology has a cycle: {path}; a tree that never ends cannot be acked. Write what"
                    " goes round to a topic, and read it by a spout"
                )
            for name in free:
                del left[name]
                yield name


def _cycle(producers: Mapping[str, Collection[str]]) -> list[str]:
    """Return a cycle, in the direction of the tuples, its first component again at the end."""
    path = [next(iter(producers))]
    while True:
        before = next(name for name in producers[path[-1]] if name in producers)
        if before in path:
            return [before, *reversed(path[path.index(before) :])]
        path.append(before)


def _nearest(name: str, names: Collection[str]) -> str:
    if near := get_close_matches(name, names, n=1):
        return f"; did you mean {near[0]!r}?"
    return f"; there are: {', '.join(names) or 'none'}"
