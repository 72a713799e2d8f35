"""The collector of a bolt in a topology: several streams, several subscribers of each; pure.

An emission is delivered to each task that receives it, once for each of its anchors. Each of these deliveries
has its own edge, since the ordinal counts the deliveries of one parent on one subscription.

Source: docs/design/protocol.md, section 2 ("child edge").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from acker.errors import TupleError
from spout.tuples.collector import (
    DEFAULT_STREAM,
    AnchoredTuple,
    Cause,
    Delivery,
    OutputCollector,
    Rows,
    Tuple,
    Values,
    row_of,
)


class Outlet(NamedTuple):
    """One subscription, for the bolt that emits on it.

    Attributes:
        subscription: its key.
        tasks: how many tasks the consumer has.
        copies: to how many of them each tuple is sent.
    """

    subscription: int
    tasks: int = 1
    copies: int = 1


class Emits(NamedTuple):
    """One stream of a bolt: the names of its fields, its subscriptions, whether its emitter names the task,
    and whether the bolt works on a DataFrame, where it has no other.
    """

    fields: tuple[str, ...]
    outlets: tuple[Outlet, ...] = ()
    direct: bool = False
    on_frame: bool = False


class InTree(AnchoredTuple):
    """A tuple with the time at which the bolt received it."""

    __slots__ = ("since_ns",)

    def __init__(
        self, rows: Rows, row: int, places: Sequence[tuple[Delivery, ...]], receiver: str, since_ns: int = 0
    ) -> None:
        """Receive a tuple in the bolt `receiver`, at `since_ns`; for the rest see `AnchoredTuple`."""
        super().__init__(rows, row, places, receiver)
        self.since_ns = since_ns


class Sent(NamedTuple):
    """An emission.

    Attributes:
        values: one for each field.
        stream: name of the stream.
        anchors: its anchors, each once.
        ordinals: for each copy on each outlet, the ordinals of its deliveries, one for each anchor.
        task: on a direct stream the task that receives it, else -1.
    """

    values: Sequence[Any]
    stream: str
    anchors: tuple[InTree, ...]
    ordinals: Sequence[Sequence[int]]
    task: int = -1


def one_stream_error(bolt: str) -> TupleError:
    """Build the error for a stream that a bolt on a DataFrame names; it names the cure."""
    return TupleError(
        f"bolt {bolt!r} named a stream in emit; a bolt on DataFrames has one stream: emit the values alone,"
        " or declare streams in a bolt of a TopologyBuilder"
    )


class Observer(Protocol):
    """Is called for each thing that a bolt does."""

    def emitted(self, sent: Sent) -> None:
        """React to an emission."""

    def acked(self, received: AnchoredTuple) -> None:
        """React to an ack."""

    def failed(self, received: AnchoredTuple, cause: Cause) -> None:
        """React to a fail."""


class TopologyCollector(OutputCollector):
    """Collects what a bolt of a topology does. `sent`: the emissions since the list was last emptied."""

    __slots__ = ("_observer", "_streams", "sent")

    def __init__(self, bolt: str, streams: Mapping[str, Emits], observer: Observer) -> None:
        """Collect for the bolt of this name, with these streams."""
        super().__init__(bolt, 0)
        self._streams = streams
        self._observer = observer
        self.sent: list[Sent] = []

    def emit(
        self, values: Values, anchors: Tuple | Iterable[Tuple] = (), stream: str = DEFAULT_STREAM
    ) -> None:
        """Emit one tuple; see `OutputCollector.emit`."""
        emits, row = self.checked(values, stream)
        self._send(emits, row, stream, -1, anchors)

    def emit_direct(
        self,
        task: int,
        values: Values,
        anchors: Tuple | Iterable[Tuple] = (),
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit one tuple to a task; see `OutputCollector.emit_direct`."""
        emits, row = self.checked(values, stream, task)
        self._send(emits, row, stream, task, anchors)

    def checked(self, values: Values, stream: str, task: int | None = None) -> tuple[Emits, Sequence[Any]]:
        """Return the stream of an emission, and its values in the order of the stream's fields.

        Args:
            values: what is emitted.
            stream: name of the stream.
            task: the task of `emit_direct`; None for `emit`.

        Raises:
            TupleError: the bolt has no such stream, the stream has other fields, a direct stream got no task,
                another one got a task, or no consumer has such a task.
        """
        emits, row = self._stream(stream, values)
        if task is None:
            if emits.direct:
                raise TupleError(
                    f"bolt {self._bolt!r} emitted on {stream!r} without a task; it is direct: use emit_direct"
                )
            return emits, row
        if not emits.direct:
            raise TupleError(
                f"bolt {self._bolt!r} named a task on stream {stream!r}, which is not direct; emit there, or"
                " declare it with direct=True"
            )
        most = min((outlet.tasks for outlet in emits.outlets), default=task + 1)
        if not 0 <= task < most:
            raise TupleError(
                f"bolt {self._bolt!r} emitted to task {task} on stream {stream!r}; its consumers have tasks 0"
                f" to {most - 1}"
            )
        return emits, row

    def ack(self, received: Tuple) -> None:
        """Settle an input tuple; see `OutputCollector.ack`."""
        super().ack(received)
        if isinstance(received, AnchoredTuple):
            self._observer.acked(received)

    def refuse(self, received: AnchoredTuple, named: Cause) -> None:
        """Fail an input tuple; see `OutputCollector.refuse`."""
        super().refuse(received, named)
        self._observer.failed(received, named)

    def _distinct(self, anchors: Tuple | Iterable[Tuple]) -> tuple[InTree, ...]:
        """Return the anchors of an emission, each once; mostly there is only one."""
        if isinstance(anchors, InTree):
            self._own(anchors, "emitted on")
            return (anchors,)
        return tuple([each for each in self._anchors(anchors) if isinstance(each, InTree)])

    def named(self, stream: str) -> Emits:
        """Return a stream.

        Raises:
            TupleError: the bolt has none of this name.
        """
        emits = self._streams.get(stream)
        if emits is not None:
            return emits
        if any(each.on_frame for each in self._streams.values()):
            raise one_stream_error(self._bolt)
        known = ", ".join(self._streams) or "none"
        raise TupleError(
            f"bolt {self._bolt!r} emitted on stream {stream!r}, which it does not declare; it has {known}"
        )

    def _stream(self, stream: str, values: Values) -> tuple[Emits, Sequence[Any]]:
        emits = self.named(stream)
        row = row_of(values, emits.fields, self._bolt)
        if len(row) != len(emits.fields):
            where = "" if emits.on_frame else f" on stream {stream!r}"
            raise TupleError(
                f"bolt {self._bolt!r} emitted {len(row)} values{where}, whose fields are"
                f" {', '.join(emits.fields)}"
            )
        return emits, row

    def _send(
        self, emits: Emits, values: Sequence[Any], stream: str, task: int, anchors: Tuple | Iterable[Tuple]
    ) -> None:
        distinct = self._distinct(anchors)
        ordinals = [
            [anchor.bear(outlet.subscription) for anchor in distinct]
            for outlet in emits.outlets
            for _ in range(outlet.copies)
        ]
        sent = Sent(values, stream, distinct, ordinals, task)
        self.sent.append(sent)
        self._observer.emitted(sent)
