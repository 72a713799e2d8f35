"""A bolt that holds the tuples of a key across micro-batches, with its tuples and its collector.

What a call emits and what it acks is written with the same micro-batch: either the row is
written and the tuples are acked, or neither happens. So an emission for the sink needs no
anchor. An emission that other bolts work on is anchored like any other, on tuples that the key
holds: what these bolts fail is replayed.

Source: docs/design/protocol.md, section 5.2; Storm's tick tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from acker.errors import TupleError
from acker.identity import Position, Root, Source, child_edge, subscription_key
from spout.bolts.bolts import Stopping
from spout.bolts.hooks import BoltContext
from spout.tuples.failures import Cause, cause_of
from spout.tuples.raised import Tracebacks
from spout.tuples.tuple import DEFAULT_STREAM, SPARK, StreamId, Values, values_in_order


class KeyedTuple:
    """A tuple that is held: its values, by name.

    >>> held = spout.KeyedTuple({"user": "u1", "action": "enter"}, None)
    >>> held["action"], held.source_component
    ('enter', 'spark')

    Attributes:
        anchor: its root's source and position, and its edge; None where nothing is tracked.
        children: how many emissions were anchored on it, over all micro-batches.
        since_ms: wall time, ms, at which the micro-batch of this tuple began; 0: unknown.
        source_component: name of the spout or bolt that emitted it; ``spark`` behind Spark's
            own operators, and for what an older version held for a bolt that reads several
            streams now.
        source_stream: name of the stream that it was emitted on.
        values: its values, by name.
    """

    __slots__ = ("anchor", "children", "since_ms", "source_component", "source_stream", "values")

    def __init__(
        self,
        values: Mapping[str, Any],
        anchor: tuple[int, int, int] | None,
        since_ms: int = 0,
        came_from: StreamId = SPARK,
    ) -> None:
        """Make a tuple that no emission is anchored on yet.

        Args:
            values: by name.
            anchor: source and position of its root, and its edge; None where nothing is tracked.
            since_ms: wall time, ms, at which its micro-batch began; 0: unknown.
            came_from: the component that emitted it, and the stream.
        """
        self.values = values
        self.anchor = anchor
        self.children = 0  # emissions that are anchored on it
        self.since_ms = since_ms
        self.source_component, self.source_stream = came_from

    @property
    def came_from(self) -> StreamId:
        """The component that emitted it, and the stream."""
        return StreamId(self.source_component, self.source_stream)

    @property
    def root(self) -> Root | None:
        """The emission that it descends from; None where nothing is tracked.

        >>> from acker.identity import is_replay, offset_of, partition_of
        >>> held = spout.KeyedTuple({"action": "enter"}, (3 << 16 | 1, 1042, 7))
        >>> source, position = held.root
        >>> partition_of(source), offset_of(position), is_replay(source)
        (1, 1042, False)

        A replay of the record is another root: one of the replay topic.
        """
        if self.anchor is None:
            return None
        source, position, _edge = self.anchor
        return Root(Source(source), Position(position))

    def __getitem__(self, field: str) -> Any:
        """Return a value. Raises KeyError for an unknown name."""
        try:
            return self.values[field]
        except KeyError:
            names = ", ".join(self.values)
            raise KeyError(f"no field {field!r} in a held tuple; its fields are: {names}") from None

    def __repr__(self) -> str:
        return f"KeyedTuple({dict(self.values)})"

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        """Restore a tuple from a state store.

        An older version may have written no `since_ms`, source or `children`.
        """
        self.since_ms = self.children = 0
        self.source_component, self.source_stream = SPARK
        # of an object with slots pickle writes a pair: None for its dictionary, which it has not,
        # and the values of the slots
        _, values_by_slot = state
        for name, value in values_by_slot.items():
            setattr(self, name, value)


class KeyedCollector:
    """Collects what one call of a keyed bolt does.

    >>> enter, leave = (spout.KeyedTuple({"action": each}, None) for each in ("enter", "leave"))
    >>> collector = spout.KeyedCollector("Sessions", [enter, leave])
    >>> collector.ack(enter)
    >>> collector.fail(leave, "nobody was there")
    >>> collector.held
    []
    >>> collector.ack(enter)
    Traceback (most recent call last):
    ...
    acker.errors.TupleError: bolt 'Sessions' acked KeyedTuple({'action': 'enter'}), which ...

    Attributes:
        emissions: rows in the order of the bolt's `output`.
        anchors: of each emission: source, position and edge, once for each tuple with a root.
        acked: tuples that are done.
        failed: tuples that failed, with their causes.
        touched: tuples whose timeouts were reset.
    """

    __slots__ = (
        "_bolt",
        "_check_values",
        "_emission_subscription",
        "_fields",
        "_held_by_id",
        "acked",
        "anchors",
        "emissions",
        "failed",
        "is_closed",
        "touched",
        "tracebacks",
    )

    def __init__(
        self,
        bolt: str,
        held: Sequence[KeyedTuple],
        check_values: Callable[[Sequence[Any]], None] | None = None,
        fields: Sequence[str] | None = None,
        tracebacks: Tracebacks | None = None,
    ) -> None:
        """Collect for the bolt of this name and the tuples that it may settle.

        Args:
            bolt: the bolt's name.
            held: the tuples.
            check_values: raises if the values of an emission do not fit the bolt's `output`;
                nothing is checked if it is None.
            fields: names of the fields of `output`; None: unknown, and a mapping is kept as it is.
            tracebacks: keeps the tracebacks of the exceptions by which tuples fail.
        """
        self._bolt = bolt
        # the key of the subscription over which an emission is the child of a held tuple
        self._emission_subscription = subscription_key(bolt, DEFAULT_STREAM, "")
        self._fields = fields
        self._check_values = check_values
        # by identity: two tuples may be equal
        self._held_by_id = {id(held_tuple): held_tuple for held_tuple in held}
        # True: the call has returned, and a later call of this collector raises
        self.is_closed = False
        self.emissions: list[Sequence[Any]] = []
        # of each emission: source, position and edge, once for each tuple with a root
        self.anchors: list[tuple[tuple[int, int, int], ...]] = []
        self.acked: list[KeyedTuple] = []
        self.failed: list[tuple[KeyedTuple, Cause]] = []
        self.touched: list[KeyedTuple] = []  # tuples whose timeouts were reset
        self.tracebacks = tracebacks or Tracebacks()

    @property
    def held(self) -> list[KeyedTuple]:
        """Return the tuples that are neither acked nor failed.

        The key still holds them in the next micro-batch.
        """
        return list(self._held_by_id.values())

    def emit(self, values: Values, anchors: KeyedTuple | Iterable[KeyedTuple] = ()) -> None:
        """Emit one row; it is written with the batch in which the tuples of this call are acked.

        >>> enter = spout.KeyedTuple({"action": "enter"}, None)
        >>> collector = spout.KeyedCollector("Sessions", [enter])
        >>> collector.emit(("u1", 1), anchors=enter)
        >>> collector.ack(enter)
        >>> collector.emit(("u1", 2), anchors=enter)
        Traceback (most recent call last):
        ...
        acker.errors.TupleError: bolt 'Sessions' emitted on KeyedTuple({'action': 'enter'}), ...

        Args:
            values: in the order of the bolt's `output`, or a mapping by field name.
            anchors: held tuples whose trees it joins, for the bolts behind this one in a
                topology: if one of them fails the row, the records of these tuples are
                replayed. Emit before you ack them.

        Raises:
            TupleError: the number of values is not that of the fields of `output`, a value has
                another type than its field, or the key does not hold an anchor.
        """
        self._check_open("emitted")
        row = values_in_order(values, self._fields, self._bolt)
        if self._check_values is not None:
            self._check_values(row)
        anchor_tuples = [anchors] if isinstance(anchors, KeyedTuple) else anchors
        distinct = dict.fromkeys(anchor_tuples)  # each once, in order
        self._check_held(distinct, "emitted on")
        self.emissions.append(row if isinstance(row, Mapping) else tuple(row))
        # each tuple counts the row among its children; one without an anchor is not tracked
        anchors_of_row = [
            self._count_child(held, held.anchor) for held in distinct if held.anchor is not None
        ]
        self.anchors.append(tuple(anchors_of_row))

    def ack(self, *tuples: KeyedTuple) -> None:
        """Ack tuples: the key does not hold them any more.

        The ack is sent when this batch is written.

        Raises `TupleError`: the key does not hold one of them: it was acked or failed before,
        or has another key.
        """
        for held_tuple in tuples:
            self._release(held_tuple, "acked")
            self.acked.append(held_tuple)

    def fail(self, tuple: KeyedTuple, cause: BaseException | str | None = None) -> None:
        """Fail the record that a tuple descends from.

        It is replayed; `TupleError`: as for `ack`.
        """
        self._release(tuple, "failed")
        self.failed.append((tuple, cause_of(self._bolt, cause, self.tracebacks)))

    def reset_timeout(self, *tuples: KeyedTuple) -> None:
        """Start the timeouts anew of the records that these held tuples descend from.

        What a keyed bolt holds times out after `held_timeout` of its input, three days by
        default. So only a bolt that holds for longer needs it.

        >>> enter = spout.KeyedTuple({"action": "enter"}, None)
        >>> collector = spout.KeyedCollector("Sessions", [enter])
        >>> collector.reset_timeout(enter)
        >>> collector.held
        [KeyedTuple({'action': 'enter'})]

        It takes effect when this batch is written. It changes nothing for a record that has a
        verdict by then, or for a record of this same batch, whose timeout has only begun.

        Raises:
            TupleError: as for `ack`.
        """
        self._check_held(tuples, "reset the timeout of")
        self.touched.extend(tuples)

    def _count_child(
        self,
        parent: KeyedTuple,
        parent_anchor: tuple[int, int, int],
    ) -> tuple[int, int, int]:
        """Count one more emission on a held tuple; return the emission's anchor.

        `parent_anchor` is the anchor of the held tuple. Both have source, position and edge.
        """
        source, position, parent_edge = parent_anchor
        ordinal = parent.children
        parent.children += 1
        edge = child_edge(parent_edge, self._emission_subscription, ordinal)
        # a bigint of Spark has a sign
        signed_edge = edge - (1 << 64) if edge >> 63 else edge
        return source, position, signed_edge

    def _check_open(self, action: str) -> None:
        """Raise `TupleError` if the call has returned.

        The message says what the bolt did (`action`).
        """
        if self.is_closed:
            whose_call = "of a call that had returned; use this call's"
            raise TupleError(f"bolt {self._bolt!r} {action} by the collector {whose_call}")

    def _check_held(self, tuples: Iterable[KeyedTuple], action: str) -> None:
        """Raise `TupleError` if the key does not hold a tuple, or the call has returned.

        The message says what the bolt did (`action`).
        """
        self._check_open(action)
        for held_tuple in tuples:
            if id(held_tuple) not in self._held_by_id:
                why = "which it does not hold"
                raise TupleError(f"bolt {self._bolt!r} {action} {held_tuple!r}, {why}")

    def _release(self, released: KeyedTuple, action: str) -> None:
        """Remove a tuple from those that the key holds; `TupleError`: it does not hold it."""
        self._check_held([released], action)
        del self._held_by_id[id(released)]


class KeyedBolt(Stopping):
    """Holds tuples in Spark's state store until it acks or fails them.

    >>> class Sessions(spout.KeyedBolt):
    ...     output = "user string, actions int"
    ...     tick_ms = 60_000
    ...     def execute(self, key, held, collector):
    ...         if held[-1]["action"] == "leave":
    ...             collector.emit((*key, len(held)))
    ...             collector.ack(*held)
    >>> held = [spout.KeyedTuple({"action": each}, None) for each in ("enter", "look", "leave")]
    >>> collector = spout.KeyedCollector("Sessions", held)
    >>> Sessions().execute(("u1",), held, collector)
    >>> collector.emissions
    [('u1', 3)]

    An exception that escapes `execute` or `tick` fails all tuples that the key holds, with its
    class as the cause. If `stops_on` names it, it ends the query instead; the key then holds
    the same tuples as before.
    """

    output: ClassVar[str] = ""
    """What it emits, as Spark DDL; without it, it is refused where it is attached."""

    tick_ms: ClassVar[int] = 0
    """`tick` is called for a key that got no tuple for this long; 0: never."""

    tick_every_ms: ClassVar[int] = 0
    """`tick` is called at this interval for each key that holds tuples, even if it gets new ones.

    0: never.

    As Storm's ``topology.tick.tuple.freq.secs``. The interval begins when the key begins to
    hold tuples, and `tick` is called in the first micro-batch after it.
    """

    def prepare(self, context: BoltContext) -> None:
        """Get ready for the keys of one task; called once in each."""

    def execute(
        self,
        key: tuple[Any, ...],
        held: Sequence[KeyedTuple],
        collector: KeyedCollector,
    ) -> None:
        """Work on all tuples that a key holds, oldest batch first; called when it got new ones."""
        raise NotImplementedError

    def tick(
        self,
        key: tuple[Any, ...],
        held: Sequence[KeyedTuple],
        collector: KeyedCollector,
    ) -> None:
        """Work on the tuples that a key holds, at a tick.

        Unless you override it, it acks all of them.
        """
        collector.ack(*held)
