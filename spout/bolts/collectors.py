"""The collectors: what bolts emit, ack and fail; pure.

A collector only remembers what a bolt did. `spout.execution.bolt_work` turns that into rows,
and `spout.publishing.fold` into XOR values. The rules are those of Storm's collector. A bolt
that breaks one gets an exception, where Storm would let the root time out:

* a tuple is settled once: acked or failed, by the bolt that received it;
* an emission is anchored on tuples that are not settled yet;
* what is neither acked nor failed keeps its root open until the root times out.

An emission is delivered to each task that receives it, once for each of its anchors. Each of
these deliveries has its own edge, since the ordinal counts the deliveries of one parent on one
subscription.

Source: docs/design/protocol.md, sections 2 ("child edge") and 5.2; Storm's ``OutputCollector`` and
``BasicOutputCollector``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

from acker.errors import TupleError
from spout.tuples.failures import ERRORS_MAX, Cause, cause_of
from spout.tuples.raised import Tracebacks
from spout.tuples.tuple import (
    DEFAULT_STREAM,
    AnchoredTuple,
    Delivery,
    Tuple,
    TupleState,
    Values,
    values_in_order,
)


class Emit(Protocol):
    """How a `BasicBolt` emits: values in the order of the fields of a stream, or by their names."""

    def __call__(self, values: Values, /, stream: str = DEFAULT_STREAM) -> None: ...


class BasicCollector:
    """Collects what a `BasicBolt` emits; anchored on the input, so emit before `execute` returns.

    To try a bolt without Spark, append what it emits to a list:

    >>> words = []
    >>> collector = spout.BasicCollector(words.append)
    >>> collector.emit(("hawk",))
    >>> words
    [('hawk',)]
    """

    __slots__ = ("emit",)

    emit: Emit
    """Emit one tuple: its values in the order of the stream's fields.

    Or a mapping of them by field name: ``collector.emit({"word": "hawk"})``. Values are written
    some rows later: emit a new tuple, list or mapping each time, and change no list, dict or array
    in it afterwards, or the emitted row changes too. The default stream has the fields of the
    bolt's `output`; any other stream needs a `TopologyBuilder`.
    """

    def __init__(self, emit: Callable[..., None]) -> None:
        """Send every emission to `emit`: an `Emit`, or the ``append`` of a list."""
        self.emit = emit

    def emit_direct(self, task: int, values: Values, stream: str = DEFAULT_STREAM) -> None:
        """Emit one tuple to a task of the consumers of a direct stream.

        Raises `TupleError`: the stream is not declared as direct, or no consumer has such a task.
        """
        cure = "declare it so, in a bolt of a TopologyBuilder"
        raise TupleError(f"stream {stream!r} is not direct: {cure}")

    def report_error(self, error: BaseException | str) -> None:
        """Show an error in the status of the topology or stream; this does not fail the input."""


class Outlet(NamedTuple):
    """One subscription to a stream, as the bolt that emits on the stream needs it.

    Attributes:
        subscription: its key.
        tasks: how many tasks the consumer has.
        receiving_tasks: how many of them get each tuple: one, or all.
    """

    subscription: int
    tasks: int = 1
    receiving_tasks: int = 1


class EmittedStream(NamedTuple):
    """A stream on which a bolt emits, as its collector needs it.

    Attributes:
        fields: their names, in order.
        outlets: the subscriptions to it.
        direct: whether its emitter names the task.
        on_frame: whether the bolt works on a DataFrame, and has no other stream.
    """

    fields: tuple[str, ...]
    outlets: tuple[Outlet, ...] = ()
    direct: bool = False
    on_frame: bool = False


_NO_TASK = -1
"""The task of an emission on a stream that is not direct."""


class Sent(NamedTuple):
    """An emission.

    Attributes:
        anchors: its anchors, each once.
        ordinals: of its deliveries: for each task that receives it, over all outlets, one for each
            anchor. With the anchors a and b and two tasks they are of a, b, a, b.
        task: on a direct stream the task that receives it, else -1 (`_NO_TASK`).
    """

    values: Sequence[Any]
    stream: str
    anchors: tuple[AnchoredTuple, ...]
    ordinals: tuple[int, ...]
    task: int = _NO_TASK

    def deliveries(self, receiver: int, subscription: int) -> tuple[Delivery, ...]:
        """Return the deliveries of this emission to one of the tasks that receive it.

        Args:
            receiver: index of the task among those that receive it, over all outlets, from 0.
            subscription: key of the task's subscription.
        """
        # with 2 anchors the receivers 0, 1 and 2 have the ordinals [0:2], [2:4] and [4:6]; `zip`
        # ends with the anchors
        ordinals = self.ordinals[receiver * len(self.anchors) :]
        # an anchor has a delivery for each root that it descends from
        return tuple(
            [
                parent.child(subscription, ordinal)
                for anchor, ordinal in zip(self.anchors, ordinals, strict=False)
                for parent in anchor.deliveries
            ]
        )


def one_stream_error(bolt: str) -> TupleError:
    """Return the error of a bolt on DataFrames that named a stream in `emit`."""
    return TupleError(
        f"bolt {bolt!r} named a stream in emit, and a bolt on DataFrames has one stream: emit"
        " only the values, or put the bolt into a TopologyBuilder, where it can declare streams"
    )


class BoltObserver:
    """Is called for each thing that a bolt does; override what you want to see."""

    def emitted(self, sent: Sent) -> None:
        """React to an emission."""

    def acked(self, received: AnchoredTuple) -> None:
        """React to an input that the bolt acked."""

    def failed(self, received: AnchoredTuple, cause: Cause) -> None:
        """React to an input that failed."""


class OutputCollector:
    """Collects what a `Bolt` does: emissions with anchors, acks, fails, timeouts reset.

    Threads of the bolt may call it until ``cleanup`` returns, which waits for them.

    >>> class Orders(spout.Bolt):
    ...     output = "id int"
    ...     def prepare(self, context, collector):
    ...         self.collector = collector
    ...     def execute(self, tuple):
    ...         if not tuple["text"].isdigit():
    ...             return self.collector.fail(tuple, f"{tuple['text']!r} is no order")
    ...         self.collector.emit((int(tuple["text"]),), anchors=tuple)
    ...         self.collector.ack(tuple)
    >>> texts = spark.createDataFrame([("7",), ("x",)], "text string")
    >>> texts.transform(spout.bolt(Orders())).collect()
    [Row(id=7)]

    Attributes:
        sent: what was emitted since the list was last emptied.
        open_tuples: received tuples that are neither acked nor failed.
        left_open: deliveries of tuples that the bolt left open for good.
        failures: for each failed delivery the index of its root, and the cause.
        touched: indices of the roots whose timeouts were reset.
        errors: what `report_error` was called with, the first `ERRORS_MAX`.
        tracebacks: those of the exceptions by which tuples failed.
    """

    __slots__ = (
        "_bolt",
        "_lock",
        "_observer",
        "_streams",
        "_subscription_keys_by_stream",
        "errors",
        "failures",
        "left_open",
        "open_tuples",
        "sent",
        "touched",
        "tracebacks",
    )

    def __init__(
        self,
        bolt: str,
        streams: Mapping[str, EmittedStream],
        observer: BoltObserver | None = None,
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        """Collect what a bolt does.

        Args:
            bolt: its name.
            streams: those on which it emits, by name.
            observer: is called for all that it does.
            lock: for a bolt whose threads may emit on one tuple. Without it two deliveries could
                get one ordinal, and so one edge, which cancel each other.
        """
        self._bolt = bolt
        self._lock = lock or nullcontext()
        self._streams = streams
        # by stream: for each task that receives a tuple of it the key of its subscription; (a, b,
        # b) where two tasks receive it by the subscription b
        self._subscription_keys_by_stream: dict[str, tuple[int, ...]] = {}
        for name, emitted_stream in streams.items():
            keys: list[int] = []
            for outlet in emitted_stream.outlets:
                keys += [outlet.subscription] * outlet.receiving_tasks
            self._subscription_keys_by_stream[name] = tuple(keys)
        self._observer = observer or BoltObserver()
        self.sent: list[Sent] = []
        self.open_tuples: set[AnchoredTuple] = set()
        self.left_open: set[Delivery] = set()
        self.failures: list[tuple[int, Cause]] = []
        self.touched: set[int] = set()
        self.errors: list[Cause] = []
        self.tracebacks = Tracebacks()

    def receive(self, received: AnchoredTuple) -> None:
        """Add an input tuple to `open_tuples`; called before the bolt's `execute`."""
        self.open_tuples.add(received)

    def emit(
        self,
        values: Values,
        anchors: Tuple | Iterable[Tuple] = (),
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit one tuple.

        Args:
            values: in the order of the stream's fields (by default of the bolt's `output`), or
                by their names. They are written some rows later: change no list, dict or array
                among them afterwards.
            anchors: input tuples whose trees it joins. Without one no root waits for this tuple.
            stream: one of the streams that the bolt declares. All but the default one need a
                `TopologyBuilder`.

        Raises `TupleError`: an anchor was acked or failed before, or is no input of this bolt;
        or the bolt has no such stream, or the values do not fit its fields.
        """
        self._send(self.checked(values, stream), stream, _NO_TASK, anchors)

    def emit_direct(
        self,
        task: int,
        values: Values,
        anchors: Tuple | Iterable[Tuple] = (),
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit one tuple to a task of the consumers of a direct stream.

        Args:
            task: from 0, and below the number of tasks that `BoltContext.tasks` has for the
                consumer.
            values: see `emit`.
            anchors: see `emit`.
            stream: one that was declared as direct.

        Raises `TupleError`: as `emit`; or the stream is not direct, or no consumer has such a task.
        """
        self._send(self.checked(values, stream, task), stream, task, anchors)

    def report_error(self, error: BaseException | str) -> None:
        """Show an error in the status of the topology or stream; this does not fail a tuple."""
        if len(self.errors) < ERRORS_MAX:
            self.errors.append(cause_of(self._bolt, error))

    def ack(self, received: Tuple) -> None:
        """Ack an input tuple: this bolt is done with it.

        Raises `TupleError`: it was acked or failed before, or is no input of this bolt.
        """
        own_tuple = self._open_tuple(received, "acked")
        own_tuple.state = TupleState.ACKED
        self.open_tuples.discard(own_tuple)
        self._observer.acked(own_tuple)

    def fail(self, received: Tuple, cause: BaseException | str | None = None) -> None:
        """Fail an input tuple, and with it every root that it descends from.

        Raises `TupleError`: it was acked or failed before, or is no input of this bolt.
        """
        own_tuple = self._open_tuple(received, "failed")
        self.refuse(own_tuple, cause_of(self._bolt, cause, self.tracebacks))

    def refuse(self, received: AnchoredTuple, cause: Cause) -> None:
        """Fail an input tuple in any case, also if the bolt has acked or failed it before.

        So it is when an exception has escaped the bolt.
        """
        received.state = TupleState.FAILED
        # In this order: a report that the task makes meanwhile, on another thread, has the tuple
        # among the failed ones or the open ones, or both.
        self.failures.extend((delivery.root, cause) for delivery in received.deliveries)
        self.open_tuples.discard(received)
        self._observer.failed(received, cause)

    def reset_timeout(self, received: Tuple) -> None:
        """Start the timeouts of the input's roots anew.

        Raises `TupleError`: the tuple was acked or failed before, or is no input of this bolt.
        """
        own_tuple = self._open_tuple(received, "reset the timeout of")
        self.touched.update(delivery.root for delivery in own_tuple.deliveries)

    def outstanding(self) -> Iterator[Delivery]:
        """Yield the deliveries that are missing in the XOR values of the roots.

        They are those of the open tuples, and of what was emitted on them.
        """
        # a thread of the bolt may ack one meanwhile
        for received in tuple(self.open_tuples):
            yield from received.deliveries
            yield from received.children

    def checked(self, values: Values, stream: str, task: int | None = None) -> Sequence[Any]:
        """Return the values of an emission in the order of the stream's fields.

        `task`: of `emit_direct`. Raises `TupleError`: there is no such stream, it has other
        fields, or the task does not fit it.
        """
        emitted_stream = self._streams.get(stream) or self.stream_of(stream)
        fields = emitted_stream.fields
        row = values if type(values) is tuple else values_in_order(values, fields, self._bolt)
        if len(row) != len(fields):
            stream_text = "" if emitted_stream.on_frame else f" on stream {stream!r}"
            raise TupleError(
                f"bolt {self._bolt!r} emitted {len(row)} values{stream_text}, whose fields are"
                f" {', '.join(fields)}"
            )
        if task is None:
            if emitted_stream.direct:
                why = "without a task; it is direct: use emit_direct"
                raise TupleError(f"bolt {self._bolt!r} emitted on {stream!r} {why}")
            return row
        if not emitted_stream.direct:
            raise TupleError(
                f"bolt {self._bolt!r} named a task on stream {stream!r}, which is not direct;"
                " emit there, or declare it with direct=True"
            )
        # on a stream that nobody reads any task is allowed
        task_counts = [outlet.tasks for outlet in emitted_stream.outlets]
        task_count = min(task_counts, default=task + 1)
        if not 0 <= task < task_count or task != int(task):
            raise TupleError(
                f"bolt {self._bolt!r} emitted to task {task} on stream {stream!r}; its"
                f" consumers have tasks 0 to {task_count - 1}"
            )
        return row

    def stream_of(self, name: str) -> EmittedStream:
        """Return a stream of the bolt, by its name; `TupleError`: it has none of this name."""
        emitted_stream = self._streams.get(name)
        if emitted_stream is not None:
            return emitted_stream
        if any(own_stream.on_frame for own_stream in self._streams.values()):
            raise one_stream_error(self._bolt)
        names = ", ".join(self._streams) or "none"
        why = f"which it does not declare; it has {names}"
        raise TupleError(f"bolt {self._bolt!r} emitted on stream {name!r}, {why}")

    def _send(
        self,
        values: Sequence[Any],
        stream: str,
        task: int,
        anchors: Tuple | Iterable[Tuple],
    ) -> None:
        """Add an emission, with the ordinals of its deliveries, to `sent`.

        The arguments are as of `Sent`, but `anchors` may have one twice.
        """
        # a dictionary has each anchor once, in order
        anchor_tuples = (anchors,) if isinstance(anchors, Tuple) else dict.fromkeys(anchors)
        distinct = tuple([self._open_tuple(anchor, "emitted on") for anchor in anchor_tuples])
        keys = self._subscription_keys_by_stream[stream]
        with self._lock:
            # by receiving task, then by anchor, as `Sent.ordinals` has them
            ordinals = tuple([anchor.count_child(key) for key in keys for anchor in distinct])
        sent = Sent(values, stream, distinct, ordinals, task)
        self.sent.append(sent)
        self._observer.emitted(sent)

    def _open_tuple(self, received: Tuple, action: str) -> AnchoredTuple:
        """Return a tuple that this bolt received and has neither acked nor failed.

        Raises `TupleError`: it is none of these; the message says what the bolt did (`action`).
        """
        if isinstance(received, AnchoredTuple):
            if received in self.open_tuples:
                return received
            if received.receiver == self._bolt and received.state is not TupleState.OPEN:
                state = received.state.value  # acked or failed
                raise TupleError(f"bolt {self._bolt!r} {action} {received!r}, which it had {state}")
        # a tuple that a bolt kept beyond its task names a root by its index in another batch
        why = "which is no input of it in this task"
        raise TupleError(f"bolt {self._bolt!r} {action} {received!r}, {why}")
