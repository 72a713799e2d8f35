"""A tuple as a bolt receives it, with its places in the trees of its roots; pure.

Source: docs/design/protocol.md, section 5.2; Storm's ``Tuple``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set, Sized
from dataclasses import dataclass
from enum import Enum
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from acker.errors import TupleError
from acker.identity import Root
from acker.wire.causes import class_name

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULT_STREAM = "default"
"""The stream of a component that names none, as Storm calls it."""

Values = Sequence[Any] | Mapping[str, Any]
"""The values of an emission: in the order of the stream's fields, or by field name."""

SHOWN_CHARACTERS_MAX = 60
"""A value is cut to this length in a message."""

TEXT_CHARACTERS_MAX = 1 << 16
"""Of a longer text of an exception only its begin is used: a cause keeps 500 bytes of it."""

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class StreamId(NamedTuple):
    """An output stream: the component that emits it, and its name there."""

    component: str
    stream: str = DEFAULT_STREAM

    def __str__(self) -> str:
        if self.stream == DEFAULT_STREAM:
            return self.component
        return f"{self.component}/{self.stream}"


SPARK = StreamId("spark")
"""Stands in `came_from` for rows that reached a bolt through Spark's own operators."""


def short_repr(value: object) -> str:
    """Return a value's text for a message: cut, without addresses, so that
    all processes show the same.
    """
    try:
        text = repr(value)
    except BaseException as error:  # noqa: BLE001 - code of the user, which was only to be shown
        text = f"<no repr: {class_name(type(error))}>"
    return _ADDRESS.sub("", text)[:SHOWN_CHARACTERS_MAX]


def text_of(error: BaseException) -> str:
    """Return the text of an exception, without addresses, even where its own
    ``__str__`` raises; of a text of megabytes the begin.
    """
    try:
        return _ADDRESS.sub("", str(error)[:TEXT_CHARACTERS_MAX])
    except BaseException as raised:  # noqa: BLE001 - code of the user, which was only to be shown
        return f"<no text: {class_name(type(raised))}>"


def by_names(row: tuple[Any, ...], fields: Sequence[str]) -> tuple[Any, ...]:
    """Return a row in the order of fields, where it names its values by just
    these, in another order.

    Spark's ``Row(b=2, a=1)`` and named tuples name them. All other tuples are
    in order as they are.
    """
    names = getattr(row, "__fields__", None) or getattr(row, "_fields", None)
    if not isinstance(names, list | tuple) or list(names) == list(fields):
        return row
    if len(names) != len(fields) or set(names) != set(fields):
        return row
    if len(row) != len(names):
        # `Row("b", "a")(2)` names two values and has one: the check of the size refuses it
        return row
    values = dict(zip(names, row, strict=True))
    return tuple([values[name] for name in fields])


def values_in_order(values: Any, fields: Sequence[str] | None, bolt: str) -> Sequence[Any]:
    """Return the values of an emission in the order of its fields.

    A tuple is returned as it is, unless it names its values and has them in
    another order; a list as a tuple, since it may change; a mapping where the
    stream's `fields` are not known stays one.

    Raises `TupleError`: a mapping does not have exactly the stream's fields,
    the values have no order (a set), or this is one value in place of a row.
    """
    if isinstance(values, list):
        return tuple(values)
    if isinstance(values, tuple):
        return values if fields is None else by_names(values, fields)
    if isinstance(values, Mapping):
        if fields is None:
            return dict(values)  # type: ignore[return-value]  # the order is not known here
        return _mapping_in_order(values, fields, bolt)
    if isinstance(values, Set):
        raise TupleError(
            f"bolt {bolt!r} emitted {short_repr(values)} for a row, a {type(values).__name__},"
            f" which has no order; emit a tuple of its values{_whose_fields(fields)}"
        )
    if isinstance(values, str | bytes | bytearray) or not isinstance(values, Sized):
        raise TupleError(
            f"bolt {bolt!r} emitted {short_repr(values)} for a row;"
            f" emit a tuple of its values{_whose_fields(fields)}"
        )
    # it has a length, so it is a sequence
    return list(values)  # type: ignore[call-overload, no-any-return]


def _mapping_in_order(values: Mapping[Any, Any], fields: Sequence[str], bolt: str) -> Sequence[Any]:
    """Return the values of a mapping in the order of fields; `TupleError`: it
    has not just these.
    """
    missing = [name for name in fields if name not in values]
    unknown = [short_repr(name) for name in values if name not in fields]
    if not missing and not unknown:
        return [values[name] for name in fields]
    faults: list[str] = []
    if missing:
        faults.append(f"without {', '.join(missing)}")
    if unknown:
        faults.append(f"with the unknown {', '.join(unknown)}")
    all_faults = " and ".join(faults)
    raise TupleError(f"bolt {bolt!r} emitted a mapping {all_faults}{_whose_fields(fields)}")


def _whose_fields(fields: Sequence[str] | None) -> str:
    """Return how an error goes on with the fields of the stream; empty: they are not known."""
    return "" if fields is None else f", whose fields are {', '.join(fields)}"


class Delivery(NamedTuple):
    """One delivery of a tuple: its place in the tree of its root.

    A *subscription* is one bolt's receiving of one stream; the *ordinal*
    numbers the deliveries that one tuple's emissions have on it.

    Attributes:
        root: the root's index in the batch's plan.
        path: for each hop from the spout on, the key of the subscription and
            the ordinal. The empty path is the root itself.
    """

    root: int
    path: tuple[tuple[int, int], ...]

    def child(self, subscription: int, ordinal: int) -> Delivery:
        """Return the delivery one hop further."""
        return Delivery(self.root, (*self.path, (subscription, ordinal)))


@dataclass(frozen=True, slots=True)
class MessageId:
    """What a tuple descends from.

    >>> line.message_id.origin, line.message_id.attempt
    ('sentences/3@1042', 1)

    Attributes:
        root: the root of this tuple's tree; each attempt has another one.
        attempt: 1 for the first emission of the record.
        origin: ``topic/partition@offset`` of the first emission: the same in
            every attempt. Together with a number that the bolt gives to each
            row it emits, it identifies the row in all attempts, as long as
            its topic is the same.
        first_emitted_ms: wall time of the first emission, or None in the
            first attempt.
        record_id: text by which no other record is called, the same in every
            attempt. It tells apart what origins do not: records of a topic
            that was created again, of another cluster, and of a log that was
            cut and grew again. It is Kafka's id of the topic, the place, and
            the epoch of the leader that wrote the record; do not take it
            apart. On a copy that a former version wrote it is the origin.
    """

    root: Root
    attempt: int
    origin: str
    first_emitted_ms: int | None
    record_id: str = ""


class Rows(Protocol):
    """Rows from which tuples read their values: of a topic, of a bolt before,
    or of a DataFrame.
    """

    names: Sequence[str]
    came_from: StreamId

    def __len__(self) -> int: ...

    def value(self, name: str, row: int) -> Any:
        """Return one value. Raises KeyError for an unknown name."""

    def message_id(self, row: int, /) -> MessageId:
        """Return what the row descends from. Raises MessageIdUnknown where
        only its tree is available.
        """

    def arrow(self, fields: Sequence[str] | None) -> pa.RecordBatch:
        """Return the named columns; None: all, but not the headers of records."""


class Tuple:
    """A tuple as a bolt receives it: its values by name or position, and what it descends from.

    `line` is the tuple of a record, as the first bolt behind `read_stream`
    receives it:

    >>> line["value"], line["offset"]
    (b'the hawk waits', 1042)
    >>> line.fields
    ('key', 'value', 'topic', 'partition', 'offset', 'timestamp', 'timestampType')
    >>> line.value(1) == line[1] == line.values[1] and "word" not in line
    True

    A ``timestamp`` is a `datetime` with the time zone of the Spark session
    (in a `spout.KafkaSpout` UTC), before and behind Spark's own operators:
    its clock shows what a UDF reads.
    """

    __slots__ = ("_row", "_rows")

    def __init__(self, rows: Rows, row: int) -> None:
        self._rows = rows
        self._row = row

    def __getitem__(self, field: str | int) -> Any:
        """Return a value by field name (else `KeyError`) or position (else `IndexError`)."""
        try:
            name = self._rows.names[field] if isinstance(field, int) else field
            return self._rows.value(name, self._row)
        except LookupError as error:
            raise self._lookup_error(field, error) from None

    def value(self, position: int) -> Any:
        """Return a value by position, as Storm's ``getValue``; `IndexError`: there is none."""
        return self[index(position)]

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

        Raises `MessageIdUnknown`: the bolt is not in the pass directly behind
        `read_stream`. Let a bolt there emit what you need as a field. If this
        exception escapes the bolt, it ends the query.
        """
        return self._rows.message_id(self._row)

    @property
    def came_from(self) -> StreamId:
        """The component that emitted it, and the stream."""
        return self._rows.came_from

    @property
    def source_component(self) -> str:
        """Name of the spout or bolt that emitted it; ``spark`` behind Spark's own operators."""
        return self._rows.came_from.component

    @property
    def source_stream(self) -> str:
        """Name of the stream that it was emitted on."""
        return self._rows.came_from.stream

    def __contains__(self, field: object) -> bool:
        return field in self._rows.names

    def __len__(self) -> int:
        return len(self._rows.names)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def _lookup_error(self, field: str | int, error: LookupError) -> LookupError:
        """Return the error for a field that could not be read; the same one
        if the tuple has the field, so that the value itself raised it.
        """
        size = len(self.fields)
        is_position = isinstance(field, int) and -size <= field < size
        if is_position or field in self.fields:
            return error
        names = ", ".join(self.fields)
        what_is_there = f"a tuple of {self.came_from}; its fields are: {names}"
        return type(error)(f"no field {field!r} in {what_is_there}")

    def __repr__(self) -> str:
        return f"Tuple({dict(zip(self.fields, self.values, strict=True))})"


class PlacedTuple(Tuple):
    """A tuple as a task gives it to a bolt, with its places in its trees."""

    __slots__ = ("places",)

    def __init__(self, rows: Rows, row: int, places: Sequence[tuple[Delivery, ...]]) -> None:
        """Take one row; `places` has the deliveries of each of the rows; an
        unanchored row has none.
        """
        self._rows = rows  # as Tuple does: a call for each tuple of a stream would be felt
        self._row = row
        self.places = places

    @property
    def row(self) -> int:
        return self._row

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        return self.places[self._row]


class TupleState(Enum):
    """What the bolt that received a tuple has done with it."""

    OPEN = "open"
    ACKED = "acked"
    FAILED = "failed"


class AnchoredTuple(PlacedTuple):
    """A tuple that is acked and failed by hand.

    Attributes:
        receiver: the bolt that received it.
        since_ns: when its ``execute`` began, by a steady clock.
        state: what that bolt has done with it.
    """

    __slots__ = ("_child_count_by_subscription", "receiver", "since_ns", "state")

    def __init__(
        self,
        rows: Rows,
        row: int,
        places: Sequence[tuple[Delivery, ...]],
        receiver: str,
        since_ns: int = 0,
    ) -> None:
        """Take one row; see the attributes, and `PlacedTuple`."""
        self._rows = rows  # as PlacedTuple does: a call for each tuple of a stream would be felt
        self._row = row
        self.places = places
        self.receiver = receiver
        self.since_ns = since_ns
        self.state = TupleState.OPEN
        # by subscription: how many tuples are anchored on this one; None: no tuple is
        self._child_count_by_subscription: dict[int, int] | None = None

    @property
    def children(self) -> Iterator[Delivery]:
        """The deliveries of the tuples that are anchored on it."""
        child_counts = self._child_count_by_subscription or {}
        for subscription, child_count in child_counts.items():
            for ordinal in range(child_count):
                for parent in self.deliveries:
                    yield parent.child(subscription, ordinal)

    def count_child(self, subscription: int) -> int:
        """Count one more tuple that is anchored on this one, for one subscription; return its
        ordinal.
        """
        if self._child_count_by_subscription is None:
            # made here, since most tuples have no children, and a dictionary
            # is larger than a tuple
            self._child_count_by_subscription = {}
        ordinal = self._child_count_by_subscription.get(subscription, 0)
        self._child_count_by_subscription[subscription] = ordinal + 1
        return ordinal
