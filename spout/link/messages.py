"""What driver and planning processes say to each other, as JSON of a fixed schema; pure.

A message says what holds; the state is in the two processes. So whoever connects again hears
all of it once more, and nothing is lost with a connection.

| message | from | to |
|---|---|---|
| `DriverState`: what holds until the driver changes it | driver | planning process |
| `BatchPublished`: a batch is published, what of it is not acked, what is held | driver | planning process |
| `PlannerState`: what it asks, what it runs again, whether it is idle | planning process | driver |

Source: docs/design/protocol.md, sections 5.1 and 5.2 ("The ledger that is published").
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar, cast

from acker.kafka.port import DamagedRun
from acker.wire.events import SourceRun
from spout.link.connection import MESSAGE_BYTES_MAX
from spout.planning.order import NotAcked

SESSIONS_MAX: Final = 2
"""For how many sessions both ends keep the last batch: a stream has one, and perhaps the one before."""


class Published(NamedTuple):
    """What the driver says of a published batch.

    `not_acked` are the roots that the batch has not acked, `held` those of which Spark's state
    holds tuples; None: unknown. `damaged` are runs of offsets that could not be read, for which
    the query is to end.
    """

    not_acked: tuple[NotAcked, ...] | None
    damaged: tuple[DamagedRun, ...] = ()
    held: tuple[SourceRun, ...] | None = ()


@dataclass(frozen=True, slots=True)
class BatchPublished:
    """The last batch of a session that is published; `batch` is its `batch_name`."""

    session: str
    batch: str
    published: Published


@dataclass(frozen=True, slots=True)
class DriverState:
    """What holds for a planning process until the driver changes it.

    Attributes:
        follower: why the thread that publishes the stream could not; empty: it can; None: there
            is no such thread.
        is_inactive: no batch is planned.
        is_for_good: Spark may not run a batch without records either.
        pauses: how often the stream was made inactive so far.
        cores: how many cores there were when the last batch ended; None: no batch has ended.
        has_workers: Spark has run a task since this process has asked.
        others_run_again: another planning process of the stream, which lives, runs a batch again.
        has_store: a store takes the rows and their acks: who takes the group asks first.
        granted_epoch: what the store has granted to this planning process; 0: nothing yet.
        not_granted: why the store could not be opened for it; empty: it could, or was not asked.
        trigger: the class of its query's trigger, as Spark names it; empty: it was not asked for.
        end_number: the number of the request to end at the present ends of the inputs; 0: none.
    """

    follower: str | None = None
    is_inactive: bool = False
    is_for_good: bool = False
    pauses: int = 0
    cores: int | None = None
    has_workers: bool = False
    others_run_again: bool = False
    has_store: bool = False
    granted_epoch: int = 0
    not_granted: str = ""
    trigger: str = ""
    end_number: int = 0


@dataclass(frozen=True, slots=True)
class PlannerState:
    """What holds for the driver until the planning process changes it.

    Attributes:
        asks_for_workers: it waits until Spark has run a task.
        idle_pause: the last of the driver's `pauses` in which Spark has ended its last batch; 0:
            none.
        runs_again: `batch_name` of the batch that it runs again, which another process planned;
            empty: it runs none again.
        asks_for_epoch: the lowest epoch with which it may take the group, once the store is open;
            0: it does not ask.
        asks_for_trigger: it plans nothing before it knows its query's trigger.
        drained_end: the driver's `end_number` for which nothing is left to do; 0: there is none.
    """

    asks_for_workers: bool = False
    idle_pause: int = 0
    runs_again: str = ""
    asks_for_epoch: int = 0
    asks_for_trigger: bool = False
    drained_end: int = 0


@dataclass(frozen=True, slots=True)
class Hello:
    """Who has connected: the stream, and the number that its planning process has drawn."""

    stream: str
    process: str


V = TypeVar("V")

Message = DriverState | BatchPublished | PlannerState | Hello


def keep_last_of_session(by_session: dict[str, V], session: str, value: V) -> None:
    """Keep `value` as the last one of a session; drop all but the last `SESSIONS_MAX` sessions."""
    by_session.pop(session, None)  # so that the session moves to the end of the dict
    by_session[session] = value
    while len(by_session) > SESSIONS_MAX:
        oldest_session = next(iter(by_session))
        del by_session[oldest_session]


def batch_name(session: str, ranges: Sequence[SourceRun]) -> str:
    """Return the name of a batch: its session and its first position, ``s1/65536@42``.

    A session emits each position once, so no two batches of it have one name.
    """
    first_position = f"{ranges[0].source}@{ranges[0].start}" if ranges else ""
    return f"{session}/{first_position}"


def mark_path(folder: Path, stream: str) -> Path:
    """Return the path of the mark, a file that exists while a batch of a stream is run again.

    Tasks look for it, since they have no connection.
    """
    return folder / f"{stream}.again"


_KINDS: Final[Mapping[type[Message], str]] = {
    DriverState: "driver",
    BatchPublished: "published",
    PlannerState: "planner",
    Hello: "hello",
}


def to_frame(message: Message, bytes_max: int = MESSAGE_BYTES_MAX) -> bytes:
    """Return a message as the bytes of a frame, of `bytes_max` at most.

    If a batch has too many roots for that, the message says that it is unknown which are acked,
    and which are held. Of too many damaged runs it names only the first ones, at least one.
    """
    fields: dict[str, object] = {"kind": _KINDS[type(message)]}
    if not isinstance(message, BatchPublished):
        return json.dumps(fields | asdict(message)).encode()
    # 1. all of the batch
    fields |= {"session": message.session, "batch": message.batch, **message.published._asdict()}
    frame = json.dumps(fields).encode()
    # 2. without the roots; None: unknown
    if len(frame) > bytes_max:
        fields |= {"not_acked": None, "held": None}
        frame = json.dumps(fields).encode()
    # 3. with a half, a quarter and so on of the damaged runs
    damaged = message.published.damaged
    while len(frame) > bytes_max and len(damaged) > 1:
        damaged = damaged[: len(damaged) // 2]
        frame = json.dumps(fields | {"damaged": damaged}).encode()
    return frame


def from_frame(frame: bytes) -> Message:
    """Return the message in a frame; `ValueError`: the frame has none."""
    try:
        values: object = json.loads(frame)
    except RecursionError:
        raise ValueError("this is no message, but nested deep") from None
    if not isinstance(values, dict):
        raise ValueError("this is no message")
    fields = _Fields(values)
    message = _message_of(fields.text("kind"), fields)
    fields.refuse_others()
    return message


def _message_of(kind: str, fields: _Fields) -> Message:
    """Return the message of a kind, made of its fields; `ValueError`: one is missing or wrong."""
    match kind:
        case "driver":
            return DriverState(
                follower=fields.text_or_none("follower"),
                is_inactive=fields.flag("is_inactive"),
                is_for_good=fields.flag("is_for_good"),
                pauses=fields.number("pauses"),
                cores=fields.number_or_none("cores"),
                has_workers=fields.flag("has_workers"),
                others_run_again=fields.flag("others_run_again"),
                has_store=fields.flag("has_store"),
                granted_epoch=fields.number("granted_epoch"),
                not_granted=fields.text("not_granted"),
                trigger=fields.text("trigger"),
                end_number=fields.number("end_number"),
            )
        case "published":
            return BatchPublished(fields.text("session"), fields.text("batch"), _published_of(fields))
        case "planner":
            return PlannerState(
                asks_for_workers=fields.flag("asks_for_workers"),
                idle_pause=fields.number("idle_pause"),
                runs_again=fields.text("runs_again"),
                asks_for_epoch=fields.number("asks_for_epoch"),
                asks_for_trigger=fields.flag("asks_for_trigger"),
                drained_end=fields.number("drained_end"),
            )
        case "hello":
            return Hello(fields.text("stream"), fields.text("process"))
        case _:
            raise ValueError(f"there is no message {kind!r}")


def _published_of(fields: _Fields) -> Published:
    """Return what a message says of a published batch: its rows of numbers as roots and runs."""
    # `rows` has checked how many columns a row has, not their types
    not_acked = cast("list[tuple[int, int, int | None, int]] | None", fields.rows("not_acked", 4))
    held = cast("list[tuple[int, int, int]] | None", fields.rows("held", 3))
    damaged = cast("list[tuple[str, int, int, int, str]] | None", fields.rows("damaged", 5))
    return Published(
        None if not_acked is None else tuple(NotAcked(*row) for row in not_acked),
        tuple(DamagedRun(*row) for row in damaged or ()),
        None if held is None else tuple(SourceRun(*row) for row in held),
    )


class _Fields:
    """The fields of a message; each is taken once, by its type.

    Every method raises `ValueError`: the field is missing, or of another type.
    """

    def __init__(self, values: dict[str, object]) -> None:
        """Begin with the fields as JSON has them."""
        self._values = values

    def text(self, name: str) -> str:
        """Take a field that is a text."""
        value = self._take(name)
        if not isinstance(value, str):
            raise ValueError(f"{name} is no text")
        return value

    def text_or_none(self, name: str) -> str | None:
        """Take a field that is a text, or null."""
        return None if self._drop_none(name) else self.text(name)

    def flag(self, name: str) -> bool:
        """Take a field that is true or false."""
        value = self._take(name)
        if not isinstance(value, bool):
            raise ValueError(f"{name} is neither true nor false")
        return value

    def number(self, name: str) -> int:
        """Take a field that is a whole number."""
        value = self._take(name)
        # in Python True is an int
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{name} is no whole number")
        return value

    def number_or_none(self, name: str) -> int | None:
        """Take a field that is a whole number, or null."""
        return None if self._drop_none(name) else self.number(name)

    def rows(self, name: str, columns: int) -> list[list[object]] | None:
        """Take a field that is a list of rows with so many columns, or null."""
        if self._drop_none(name):
            return None
        value = self._take(name)
        if not isinstance(value, list):
            raise ValueError(f"{name} is no list")
        if not all(isinstance(row, list) and len(row) == columns for row in value):
            raise ValueError(f"a row of {name} has not {columns} columns")
        return value

    def refuse_others(self) -> None:
        """Raise `ValueError` if there are fields that nobody has taken."""
        if self._values:
            raise ValueError(f"a message has no fields {', '.join(sorted(self._values))}")

    def _take(self, name: str) -> object:
        """Remove a field, and return its value."""
        if name not in self._values:
            raise ValueError(f"a message without {name}")
        return self._values.pop(name)

    def _drop_none(self, name: str) -> bool:
        """Remove a field whose value is None; return whether it was."""
        is_none = name in self._values and self._values[name] is None
        if is_none:
            del self._values[name]
        return is_none
