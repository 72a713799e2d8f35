"""`KafkaSpout`: reads a group without Spark, as Storm's ``ISpout``, and makes Kestrel's clients.

Source: docs/design/protocol.md, section 5.1; docs/design/conformance.md,
section H.
"""

from __future__ import annotations

import logging
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Condition
from types import TracebackType
from typing import Final, NoReturn, Self

from prometheus_client import Metric

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.errors import UsageError
from acker.identity import Root
from acker.kafka.cluster import KafkaLog
from spout.builder.tuple_metrics import root_metrics
from spout.group.presence import Who
from spout.runtime.endpoints import serve
from spout.runtime.metrics import Scraped, counter, gauge
from spout.runtime.tracing import configured_spans
from spout.standalone.client import Client
from spout.standalone.engine import FORK_CURE, Engine
from spout.standalone.items import Item, shortened
from spout.standalone.queues import ClientLimits, SpoutStatus
from spout.standalone.service import SpoutService
from spout.tuples.tuple import MessageId

OPEN_MS: Final = 90_000
"""How long `KafkaSpout.open` waits; after 60 s the ackers themselves count as unreachable."""

MAX_OPEN: Final = 100_000
"""How many records of one input a client may have open at once."""

TUPLE_CLIENT: Final = "spout"
"""The name of the client with which `next_tuple` opens records."""

_LOGGER = logging.getLogger("windhover.spout")


class KafkaSpout:
    """Reads inputs of one group, without Spark; every record is acked, replayed, or a dead letter.

    Use Kestrel's verbs with any number of clients in one process, or Storm's
    methods tuple by tuple:

    >>> with spout.KafkaSpout(topics, "sentences") as lines:
    ...     with lines.client("worker-1") as client:
    ...         items = client.open(1, wait_ms=30_000)
    ...         print(client.confirm(items, wait_ms=10_000))
    ...     tuple = lines.next_tuple(wait_ms=30_000)
    ...     print(lines.ack(tuple.message_id), lines.ack(tuple.message_id))
    1
    True False

    One process owns a group, and each start is a new session. While another
    process owns the group and is alive, `open` is refused; a process that is
    silent for 10 s counts as dead. ``take_over=True`` takes the group from a
    live process too: its open records are replayed here, the oldest first, and
    every call there raises `SessionSuperseded`. All methods may be called from
    several threads.

    Args:
        topics: topics.yaml, as `spout.load` returns it.
        inputs: name of an input, or of several of one group.
        take_over: whether to take the group from an owner that is alive.
        runner: what drives it; None: two threads of its own.

    Raises:
        UsageError: no such input, inputs of several groups, an input with
            ``ackers: 0``, one with an ``ordering``, or one that is stopped on
            purpose.
    """

    def __init__(
        self,
        topics: Topics,
        inputs: str | Sequence[str],
        *,
        take_over: bool = False,
        runner: Engine | None = None,
    ) -> None:
        names = (inputs,) if isinstance(inputs, str) else tuple(inputs)
        if not names:
            raise UsageError(f"KafkaSpout needs the name of an input: {', '.join(topics.inputs)}")
        chosen_inputs = [topics.input(name) for name in names]
        for input in chosen_inputs:
            input.require_not_stopped()
        for input in chosen_inputs:
            if input.ordered:
                raise UsageError(
                    f"input {input.name} has an ordering, which KafkaSpout does not keep: clients confirm as"
                    " they like; read it by read_stream, or set ordering: none"
                )
        self._engine = runner or _make_engine(topics, chosen_inputs, take_over=take_over)
        self._client_names: set[str] = set()
        # what `next_tuple` returned, as long as it is open
        self._tuple_by_root: dict[Root, Item] = {}
        self._tuple_client = self.client(TUPLE_CLIENT)
        self._was_opened = False

    # -- Storm's methods

    def open(self, *, wait_ms: int = OPEN_MS) -> Self:
        """Take the group and begin; the open records of the session before this one are replayed.

        Raises:
            Unreachable: no acker, or no broker, answers in time.
            SessionRefused: another process owns the group, and is alive.
        """
        self._refuse_behind_fork()
        if self._was_opened:
            raise UsageError("this spout was opened before; make another one")
        self._was_opened = True
        with ExitStack() as undo:
            undo.callback(self._engine.stop)
            self._engine.start(wait_ms)
            undo.pop_all()  # it has begun: nothing is undone
        return self

    def next_tuple(self, *, wait_ms: int = 0) -> Item | None:
        """Return the oldest record that no client has open as a tuple, from the inputs in turn.

        Pass the tuple's `message_id` to `ack` or `fail`. None: no record came
        within `wait_ms`, or the spout is deactivated.
        """
        items = self._tuple_client.open_any(1, wait_ms=wait_ms)
        if not items:
            return None
        self._forget_timed_out()
        item = items[0]
        self._tuple_by_root[item.message_id.root] = item
        return item

    def ack(self, message_id: MessageId | Root | Item, *, wait_ms: int | None = None) -> bool:
        """Ack a tuple that `next_tuple` returned; return whether it was pending.

        Args:
            message_id: the tuple's, or the root in it, or the tuple itself. An
                id of a tuple that `next_tuple` did not return, or that is
                settled or timed out, changes nothing.
            wait_ms: as in `Client.confirm`.

        Raises:
            UsageError: it is none of these.
            TupleError: a client has the tuple open, or it is of another spout.
        """
        item = self._forget_tuple_of("ack", message_id)
        return item is not None and self._tuple_client.confirm(item, wait_ms=wait_ms) > 0

    def fail(self, message_id: MessageId | Root | Item, why: BaseException | str | None = None) -> bool:
        """Fail a tuple, which is replayed after a back-off; return whether it was pending."""
        item = self._forget_tuple_of("fail", message_id)
        return item is not None and self._tuple_client.fail(item, why) > 0

    def reset_timeout(self, message_id: MessageId | Root | Item) -> bool:
        """Begin a tuple's timeout anew, since work on it goes on; return whether it was pending."""
        item = self._tuple_of("reset_timeout", message_id)
        return item is not None and self._tuple_client.reset_timeout(item) > 0

    def deactivate(self) -> None:
        """Emit no tuple and open no item until `activate`; open items may be settled meanwhile."""
        with self._engine.guard:
            self._engine.queues.is_active = False

    def activate(self) -> None:
        """Go on after `deactivate`."""
        with self._engine.guard:
            self._engine.queues.is_active = True
            self._engine.guard.notify_all()
            self._engine.wake_planning()

    def close(self) -> None:
        """Publish what was settled, commit, and leave; the next session gets the open records.

        Raises:
            Unreachable: what was settled is not durable in time; what does not
                become so is replayed.
            WindhoverError: the error that stopped the spout, unless a call has
                raised it before.
        """
        if self._was_opened:
            with self._engine.guard:
                self._engine.queues.close()
            self._engine.stop()

    # -- Kestrel's clients

    def client(
        self, name: str | None = None, *, max_open: int = MAX_OPEN, auto_abort_ms: int | None = None
    ) -> Client:
        """Return a new client.

        Args:
            name: unique among the open clients; it is the operator in the
                causes of items that the client fails. None: a random name.
            max_open: how many records of one input it may have open at once; 1
                or more.
            auto_abort_ms: items that it has not settled after this time are
                put back; None: it keeps them until the root times out.

        Raises `UsageError`: an open client has this name, or a number is below
        1.
        """
        if max_open < 1 or (auto_abort_ms is not None and auto_abort_ms < 1):
            raise UsageError(f"max_open={max_open}, auto_abort_ms={auto_abort_ms}: each is 1 or more")
        with self._engine.guard:
            client_name = name or f"client-{uuid.uuid4().hex[:8]}"
            if client_name in self._client_names:
                raise UsageError(
                    f"there is a client {client_name!r} already; close it, or give this one another name"
                )
            self._client_names.add(client_name)
        limits = ClientLimits(client_name, max_open, auto_abort_ms)
        return Client(self._engine, limits, on_close=self._client_names.discard)

    def status(self) -> SpoutStatus:
        """Return the current status: pending roots, verdicts, waiting and open items.

        Waiting and open items are counted now. What the planner counts (`group`)
        is up to 250 ms old, so it can still lack an item just confirmed.
        """
        return self._engine.status()

    def serve_metrics(self, port: int | str, allow_hosts: Sequence[str] = ()) -> None:
        """Serve the metrics of this spout to Prometheus, until the process ends.

        Args:
            port: 1 to 65,535; or an address with a port, such as
                ``"127.0.0.1:9100"``, to limit who can reach it.
            allow_hosts: names of this machine by which others ask for the
                metrics; its own name, ``localhost`` and addresses in numbers
                need none.

        Raises `UsageError`: the port is in use, the address is not of this
        machine, or a host is none.
        """
        self._refuse_behind_fork()
        serve(
            Scraped(lambda: spout_metrics(self.status(), self._engine.now_ms())),
            port,
            allow_hosts=allow_hosts,
        )

    def __reduce__(self) -> NoReturn:
        raise UsageError(f"a KafkaSpout cannot be sent to another process. {FORK_CURE}")

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # an error that ends a forked child is not hidden
        if error is None or self._engine.fork_refusal is None:
            self.close()

    def _refuse_behind_fork(self) -> None:
        """Refuse a call in a process that was forked from the one that made this spout."""
        if self._engine.fork_refusal is not None:
            self._engine.fork_refusal.refuse()

    def _tuple_of(self, verb: str, message_id: object) -> Item | None:
        """Return the tuple that is meant; None: `next_tuple` did not return it, or it is settled.

        Raises `UsageError`: it is no message id; `verb` is the method that was
        called with it.
        """
        self._refuse_behind_fork()
        if isinstance(message_id, Item):
            return message_id
        root = message_id.root if isinstance(message_id, MessageId) else message_id
        if not isinstance(root, Root):
            raise UsageError(
                f"{verb}: {shortened(message_id)} is no message id; pass `tuple.message_id`, or the tuple"
                " itself, of what `next_tuple` returned"
            )
        return self._tuple_by_root.get(root)

    def _forget_tuple_of(self, verb: str, message_id: object) -> Item | None:
        """Do as `_tuple_of`, and forget the tuple, since it is settled now."""
        item = self._tuple_of(verb, message_id)
        if item is not None:
            root = item.message_id.root
            if self._tuple_by_root.get(root) == item:
                # another thread may have acked it in the meantime
                self._tuple_by_root.pop(root, None)
        return item

    def _forget_timed_out(self) -> None:
        """Forget tuples that are not open any more, such as timed-out ones, once they are many."""
        if len(self._tuple_by_root) > 2 * self._tuple_client.open_total() + 1_000:
            for root, item in list(self._tuple_by_root.items()):
                if not item.is_open:
                    self._tuple_by_root.pop(root, None)


def _make_engine(topics: Topics, inputs: Sequence[Input], *, take_over: bool) -> Engine:
    """Return an engine that reads inputs from the cluster of topics.yaml, as a new session."""
    session_id = uuid.uuid4().hex[:16]
    who = Who.here(f"KafkaSpout of {Path(sys.argv[0]).name}", time.time_ns() // 1_000_000)

    def connect() -> KafkaLog:
        return KafkaLog(topics.kafka, client_id=f"windhover-spout-{inputs[0].group}")

    def make_service(guard: Condition) -> SpoutService:
        return SpoutService(
            connect,
            lambda: connect().message_reader(),
            topics,
            inputs,
            guard,
            new_id=session_id,
            report=_report,
            take_over=take_over,
            who=who,
            spans=configured_spans(),
        )

    return Engine(make_service)


def _report(event: str, fields: Mapping[str, object]) -> None:
    """Write an event of the spout to the log."""
    levels = {"partition_stands": logging.ERROR, "session_began": logging.INFO}
    level = levels.get(event, logging.WARNING)
    fields_text = " ".join(f"{name}={value}" for name, value in fields.items())
    _LOGGER.log(level, "%s %s", event, fields_text)


_PREFIX = "windhover_spout"


def spout_metrics(status: SpoutStatus, now_ms: int) -> Iterator[Metric]:
    """Yield the metrics of a spout; `now_ms` is wall time.

    Clients, whose names may be random, count together.
    """
    group = status.group.group
    yield from root_metrics(_PREFIX, {(group,): status.group}, now_ms)
    open_by_input: dict[str, int] = {}
    for name, open_by_client in status.open.items():
        open_by_input[name] = sum(open_by_client.values())
    text = "records that are ready to be opened"
    yield _gauge_by_input("waiting_records", text, status.waiting, group)
    text = "records that clients have open"
    yield _gauge_by_input("open_records", text, open_by_input, group)
    text = "records that were settled after their root had timed out"
    yield counter(f"{_PREFIX}_settled_late", text, {(group,): status.late}, ["group"])


def _gauge_by_input(name: str, text: str, count_by_input: Mapping[str, int], group: str) -> Metric:
    """Return a gauge with a count for each input of a group, by the input's name."""
    samples = {(input_name, group): float(count) for input_name, count in count_by_input.items()}
    return gauge(f"{_PREFIX}_{name}", text, samples, ["input", "group"])
