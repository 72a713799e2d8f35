"""What a bolt sees: tuples, message ids, causes of failure, and the collectors it emits to.

Pure: a collector remembers what a bolt did; `spout.passes` turns that into rows and `spout.fold` into
values. The rules of Storm's collector hold, and breaking one raises where Storm would let the root time
out:

* a tuple is settled once: acked or failed, by the bolt that received it;
* an emission is anchored on tuples that are not settled yet;
* what is neither acked nor failed keeps its root open until the root times out.

Source: DESIGN.md, section 5.2; Storm's ``OutputCollector`` and ``BasicOutputCollector``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

from acker.errors import TupleError
from acker.identity import Root

MESSAGE_BYTES_MAX = 500
"""A cause's message is cut here (UTF-8), so that 256 of them fit a record of the wire."""


class FailTuple(Exception):
    """Raise it in a bolt to fail the input tuple; its text is the cause's message."""


class Cause(NamedTuple):
    """Why a tuple failed. `error` is the exception's class, empty for an explicit fail."""

    operator: str
    error: str
    message: str


def cut(text: str, limit: int = MESSAGE_BYTES_MAX) -> str:
    """Cut a text to at most `limit` bytes of UTF-8, never inside a character."""
    data = text.encode("utf-8", "replace")
    return text if len(data) <= limit else data[:limit].decode("utf-8", "ignore")


def cause_of(operator: str, why: BaseException | str | None) -> Cause:
    """Name a failure: an exception's class and message, or an explicit fail's message alone."""
    if isinstance(why, FailTuple) or why is None or isinstance(why, str):
        return Cause(operator, "", cut(str(why or "")))
    return Cause(operator, type(why).__name__, cut(str(why)))


class Delivery(NamedTuple):
    """One delivery of a tuple of a root: its place in the tree.

    `root` is the root's place in the batch's plan; `path` names, hop by hop from the spout, the
    subscription's key and the ordinal on it. The empty path is the root itself.
    """

    root: int
    path: tuple[tuple[int, int], ...]

    def child(self, subscription: int, ordinal: int) -> Delivery:
        """Return the delivery that the `ordinal`-th emission on a subscription is."""
        return Delivery(self.root, (*self.path, (subscription, ordinal)))


@dataclass(frozen=True, slots=True)
class MessageId:
    """What a tuple descends from.

    Attributes:
        root: the emission that this tuple's tree belongs to; another one in each attempt.
        attempt: 1 for the first emission of the record.
        origin: ``topic/partition@offset`` of the first emission: the same in every attempt. With an
            ordinal of the bolt's own it is a row identity that a replay does not change.
        first_emitted_ms: wall time of the first emission, or None in the first attempt.
    """

    root: Root
    attempt: int
    origin: str
    first_emitted_ms: int | None


class Rows(Protocol):
    """Rows that tuples look at: of a topic, of a bolt before, or of a DataFrame."""

    names: Sequence[str]

    def __len__(self) -> int: ...

    def value(self, name: str, row: int) -> Any:
        """Return one value. Raises KeyError for an unknown name."""

    def message_id(self, row: int) -> MessageId:
        """Return what the row descends from. Raises TupleError where only the tree is known."""


class Tuple:
    """A tuple as a bolt receives it: its values by name or position, and what it descends from."""

    __slots__ = ("_row", "_rows")

    def __init__(self, rows: Rows, row: int) -> None:
        """Look at one row; nothing is read before it is asked for."""
        self._rows = rows
        self._row = row

    def __getitem__(self, field: str | int) -> Any:
        """Return a value by field name or position.

        Raises:
            KeyError: no field has this name.
            IndexError: no field has this position.
        """
        if isinstance(field, int):
            field = self._rows.names[field]
        return self._rows.value(field, self._row)

    def value(self, position: int) -> Any:
        """Return a value by position, as Storm's ``getValue``."""
        return self._rows.value(self._rows.names[position], self._row)

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields, in order."""
        return tuple(self._rows.names)

    @property
    def values(self) -> tuple[Any, ...]:
        """All values, in order of the fields."""
        return tuple(self._rows.value(name, self._row) for name in self._rows.names)

    @property
    def message_id(self) -> MessageId:
        """What the tuple descends from: root, attempt, origin.

        Raises:
            TupleError: the bolt is not in the pass directly behind `read_stream`; let a bolt there emit
                what is needed as a field.
        """
        return self._rows.message_id(self._row)

    def __contains__(self, field: object) -> bool:
        return field in self._rows.names

    def __len__(self) -> int:
        return len(self._rows.names)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __repr__(self) -> str:
        return f"Tuple({dict(zip(self.fields, self.values, strict=True))})"


class State(Enum):
    """Where a tuple stands with the bolt that received it."""

    OPEN = "open"
    ACKED = "acked"
    FAILED = "failed"


class AnchoredTuple(Tuple):
    """A tuple whose place in its trees is kept, because a rich bolt decides on it by hand."""

    __slots__ = ("children", "deliveries", "receiver", "state")

    def __init__(self, rows: Rows, row: int, deliveries: tuple[Delivery, ...], receiver: str) -> None:
        """Receive a tuple in the bolt named `receiver`; `deliveries` is empty for an unanchored one."""
        super().__init__(rows, row)
        self.deliveries = deliveries
        self.receiver = receiver
        self.state = State.OPEN
        self.children: list[Delivery] = []


class BasicCollector:
    """Collects what a `BasicBolt` emits; everything is anchored on the input."""

    __slots__ = ("emit",)

    emit: Callable[[Sequence[Any]], None]
    """Emit one tuple: its values in the order of the bolt's `output`."""

    def __init__(self, emit: Callable[[Sequence[Any]], None]) -> None:
        """Send every emission to `emit`."""
        self.emit = emit


class Emission(NamedTuple):
    """A tuple that a rich bolt emitted, its first anchor, and its deliveries (none: unanchored)."""

    values: Sequence[Any]
    anchor: Tuple | None
    deliveries: tuple[Delivery, ...]


class OutputCollector:
    """Collects what a `Bolt` does: emissions with anchors, acks, fails, timeouts reset.

    Attributes:
        emissions: what was emitted since the list was last taken.
        open: received tuples that are neither acked nor failed.
        failures: each failed delivery's root, by index, with its cause.
        touched: root indices whose timeout was reset.
    """

    __slots__ = ("_bolt", "_subscription", "emissions", "failures", "open", "touched")

    def __init__(self, bolt: str, subscription: int) -> None:
        """Collect for the bolt of this name; its emissions go out on one subscription."""
        self._bolt = bolt
        self._subscription = subscription
        self.emissions: list[Emission] = []
        self.open: set[AnchoredTuple] = set()
        self.failures: list[tuple[int, Cause]] = []
        self.touched: set[int] = set()

    def receive(self, received: AnchoredTuple) -> None:
        """Take a tuple in; called before the bolt's `execute`."""
        self.open.add(received)

    def emit(self, values: Sequence[Any], anchors: Tuple | Iterable[Tuple] = ()) -> None:
        """Emit one tuple.

        Args:
            values: in the order of the bolt's `output`.
            anchors: input tuples whose trees it joins; none: nobody waits for it.

        Raises:
            TupleError: an anchor was acked or failed before, or is no input of this bolt.
        """
        listed = (anchors,) if isinstance(anchors, Tuple) else anchors
        distinct = [self._own(anchor, "emitted on") for anchor in dict.fromkeys(listed)]
        deliveries: list[Delivery] = []
        for anchor in distinct:
            ordinal = len(anchor.children) // max(1, len(anchor.deliveries))
            born = [parent.child(self._subscription, ordinal) for parent in anchor.deliveries]
            anchor.children.extend(born)
            deliveries.extend(born)
        self.emissions.append(Emission(values, distinct[0] if distinct else None, tuple(deliveries)))

    def ack(self, received: Tuple) -> None:
        """Settle an input tuple: its part is done.

        Raises:
            TupleError: it was acked or failed before, or is no input of this bolt.
        """
        settled = self._own(received, "acked")
        settled.state = State.ACKED
        self.open.discard(settled)

    def fail(self, received: Tuple, cause: BaseException | str | None = None) -> None:
        """Fail an input tuple, and with it every root that it descends from.

        Raises:
            TupleError: it was acked or failed before, or is no input of this bolt.
        """
        self.refuse(self._own(received, "failed"), cause)

    def refuse(self, received: AnchoredTuple, cause: BaseException | str | None) -> None:
        """Fail an input tuple whatever was done to it before: an exception escaped its bolt."""
        received.state = State.FAILED
        self.open.discard(received)
        named = cause_of(self._bolt, cause)
        self.failures.extend((delivery.root, named) for delivery in received.deliveries)

    def reset_timeout(self, received: Tuple) -> None:
        """Let the timeout of the input's roots begin anew.

        Raises:
            TupleError: the tuple was acked or failed before, or is no input of this bolt.
        """
        tuple_ = self._own(received, "reset the timeout of")
        self.touched.update(delivery.root for delivery in tuple_.deliveries)

    def outstanding(self) -> Iterator[Delivery]:
        """List the deliveries by which the folded values miss their root edges.

        Every tuple that is not acked leaves out its own edge and those of what was emitted on it.
        """
        for received in self.open:
            yield from received.deliveries
            yield from received.children

    def _own(self, received: Tuple, did: str) -> AnchoredTuple:
        if not isinstance(received, AnchoredTuple) or received.receiver != self._bolt:
            raise TupleError(f"bolt {self._bolt!r} {did} {received!r}, which is no input of it")
        if received.state is not State.OPEN:
            raise TupleError(f"bolt {self._bolt!r} {did} {received!r}, which it had {received.state.value}")
        return received
