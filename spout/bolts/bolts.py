"""The three forms of a bolt.

`BasicBolt` is the usual one: emissions are anchored on the input, which is acked when `execute`
returns and failed when it raises. `Bolt` is Storm's rich bolt: it anchors, acks and fails by
hand. `ArrowBolt` is a `BasicBolt` for whole Arrow batches: for work that PyArrow or NumPy can
do on many rows at once.

A bolt is pickled once, when the query is built, and every task works on an instance of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from acker.errors import BoltStopped, MessageIdUnknown, TupleError, UsageError
from acker.wire.causes import class_name
from spout.bolts.collectors import BasicCollector, OutputCollector
from spout.bolts.ddl import field_names
from spout.bolts.hooks import BoltContext, TaskHook
from spout.tuples.failures import Cause, FailTuple, cause_of
from spout.tuples.poison import Isolated
from spout.tuples.raised import Tracebacks
from spout.tuples.tuple import DEFAULT_STREAM, Tuple, text_of, values_in_order


class DeclaredStream(NamedTuple):
    """A stream as a bolt declares it.

    Attributes:
        output: its fields, as Spark DDL.
        is_direct: whether the bolt names the task of each tuple.
    """

    output: str
    is_direct: bool


class OutputDeclarer:
    """Collects the streams that a bolt declares.

    >>> class Sort(spout.BasicBolt):
    ...     def declare(self, declarer):
    ...         declarer.declare("word string")
    ...         declarer.declare("line binary", stream="errors")
    >>> declarer = spout.OutputDeclarer()
    >>> Sort().declare(declarer)
    >>> declarer.streams["errors"]
    DeclaredStream(output='line binary', is_direct=False)
    """

    def __init__(self) -> None:
        self.streams: dict[str, DeclaredStream] = {}

    def declare(self, output: str, *, stream: str = DEFAULT_STREAM, direct: bool = False) -> None:
        """Declare a stream.

        Args:
            output: its fields, as Spark DDL: ``"word string, length int"``.
            stream: its name.
            direct: whether the bolt names the task of each tuple, by ``emit_direct``.

        Raises `UsageError`: a stream of this name was declared before, or the name is not allowed.
        """
        if stream in self.streams:
            raise UsageError(f"stream {stream!r} is declared twice; give one of them another name")
        if not stream or "/" in stream or "+" in stream:
            raise UsageError(f"a stream cannot be called {stream!r}: not empty, without + and /")
        self.streams[stream] = DeclaredStream(output, direct)


class Stopping:
    """Which exceptions end the query. All kinds of bolts derive from it."""

    stops_on: ClassVar[tuple[type[Exception], ...]] = ()
    """Exceptions that end the query instead of failing the input. In Storm they end the worker.

    Name here what is wrong for all records, so that no replay helps: a service that is gone, a
    right that is missing. Nothing of the batch is published, and the batch runs again when the
    query is started again.
    """

    def __init_subclass__(cls) -> None:
        """Check `stops_on` when the class is defined, before a first record fails.

        Raises `UsageError`: it is not a tuple of exception classes.
        """
        super().__init_subclass__()
        if not isinstance(cls.stops_on, tuple) or not all(map(_is_exception_class, cls.stops_on)):
            what_it_is = "a tuple of exception classes, as (OSError,)"
            raise UsageError(f"{cls.__name__}.stops_on is {cls.stops_on!r}; it is {what_it_is}")


def _is_exception_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


class _Declares(Stopping):
    """What all forms of a bolt declare."""

    output: ClassVar[str] = ""
    """The fields that it emits on the default stream, as Spark DDL.

    Example: ``"word string, length int not null"``. A bolt without an output is refused where it is
    attached, unless it overrides `declare`.
    """

    def declare(self, declarer: OutputDeclarer) -> None:
        """Declare the output streams. If you do not override it: `output` on the default stream.

        Override it for several streams, or for none; such a bolt needs a `TopologyBuilder`.
        """
        declarer.declare(self.output)


class BasicBolt(_Declares):
    """Works on one tuple at a time; anchors and acks by itself.

    >>> class SplitSentence(spout.BasicBolt):
    ...     output = "word string"
    ...     def execute(self, tuple, collector):
    ...         for word in tuple["value"].decode().split():
    ...             collector.emit((word,))
    >>> words = []
    >>> SplitSentence().execute(line, spout.BasicCollector(words.append))
    >>> words
    [('the',), ('hawk',), ('waits',)]

    An exception that `stops_on` names ends the query. Any other exception fails the tuple:

    >>> class LookUp(spout.BasicBolt):
    ...     output = "known boolean"
    ...     stops_on = (ConnectionError,)
    ...     def execute(self, tuple, collector):
    ...         if tuple["value"] != b"the hawk hovers":
    ...             raise ConnectionRefusedError("no answer")
    >>> try:
    ...     spark.createDataFrame([(b"the hawk waits",)], "value binary").transform(
    ...         spout.bolt(LookUp(), name="look up")).collect()
    ... except Exception as error:
    ...     "bolt 'look up' stops on ConnectionRefusedError: no answer" in str(error)
    True
    """

    def prepare(self, context: BoltContext) -> None:
        """Get ready for the tuples of one task; called once in each."""

    def execute(self, tuple: Tuple, collector: BasicCollector) -> None:
        """Work on one tuple and emit what follows from it.

        Raises `FailTuple`: the tuple cannot be processed now; it is replayed later. Any other
        exception fails it too, with its class as the cause, unless `stops_on` names it. Nothing
        that a failed call emitted is delivered.
        """
        raise NotImplementedError

    def cleanup(self) -> None:
        """Release what `prepare` acquired; called after the last tuple of a task."""


class Bolt(_Declares):
    """Anchors, acks and fails by hand, as Storm's rich bolt.

    An exception that escapes `execute` fails the input, or ends the query if `stops_on` names
    it. A tuple that is neither acked nor failed when the task ends keeps its root pending until
    the root times out.

    >>> class Pairs(spout.Bolt):
    ...     output = "both string"
    ...     def prepare(self, context, collector):
    ...         self.collector, self.held = collector, []
    ...     def execute(self, tuple):
    ...         self.held.append(tuple)
    ...         if len(self.held) == 2:
    ...             both = " ".join(held_tuple["word"] for held_tuple in self.held)
    ...             self.collector.emit([both], anchors=self.held)
    ...             while self.held:
    ...                 self.collector.ack(self.held.pop())
    >>> words = spark.createDataFrame([("hawk",), ("waits",)], "word string").coalesce(1)
    >>> words.transform(spout.bolt(Pairs())).collect()
    [Row(both='hawk waits')]
    """

    def prepare(self, context: BoltContext, collector: OutputCollector) -> None:
        """Get ready for the tuples of one task, and keep the collector."""
        raise NotImplementedError

    def execute(self, tuple: Tuple) -> None:
        """Work on one tuple. It may be kept, and acked with a later one or in `cleanup`."""
        raise NotImplementedError

    def cleanup(self) -> None:
        """End a task: the last chance to emit, ack and fail what was kept."""


class BatchCollector:
    """Collects what an `ArrowBolt` does with one batch.

    >>> import pyarrow as pa
    >>> collector = spout.BatchCollector("upper", rows=3)
    >>> collector.emit([pa.array(["HAWK", "WAITS"])], parents=pa.array([0, 2]))
    >>> collector.fail(1, "no word")
    >>> collector.failures
    [(1, Cause(operator='upper', error='', message='no word'))]
    """

    __slots__ = (
        "_bolt",
        "_row_count",
        "columns",
        "failures",
        "is_closed",
        "left_open",
        "parents",
        "streams",
        "tracebacks",
    )

    def __init__(self, bolt: str, rows: int, tracebacks: Tracebacks | None = None) -> None:
        """Collect for a bolt and a batch of `rows` rows.

        `tracebacks` keeps those of what the bolt raises.
        """
        self._bolt = bolt
        self._row_count = rows
        # The first three have one entry for each call of `emit`. Columns are as emitted, a sequence
        # or a mapping. They are Any: who tries a bolt knows which of the two it emits, and the
        # type checker would refuse both uses of a union.
        self.columns: list[Any] = []
        self.parents: list[npt.NDArray[np.int64]] = []
        self.streams: list[str] = []
        self.failures: list[tuple[int, Cause]] = []  # failed rows, by number
        self.left_open: list[int] = []  # numbers of rows
        self.is_closed = False  # True: the call has returned, and its rows are acked or failed
        self.tracebacks = tracebacks or Tracebacks()

    def emit(
        self,
        columns: Sequence[pa.Array] | Mapping[str, pa.Array],
        parents: pa.Array | npt.NDArray[np.integer],
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit rows, each anchored on one input row.

        Args:
            columns: one array for each field of the stream (by default of the bolt's `output`),
                all of the same length; or a mapping of field names to such arrays.
            parents: `(n,)` integers: for each row the number of the input row that it descends
                from.
            stream: one of the streams that the bolt declares. All but the default one need a
                `TopologyBuilder`.

        Raises `TupleError`: lengths differ, a parent is not a row of the batch, `columns` has
        no order, or ``execute`` has returned.
        """
        self._check_open("emitted")
        if isinstance(columns, Mapping):
            arrays: Sequence[Any] = list(columns.values())
        else:
            # Raises where they have no order. The names of the fields, here None, are for mappings.
            arrays = values_in_order(columns, None, self._bolt)
            columns = arrays
        parent_rows = self._parent_rows(parents)
        lengths = [len(column) for column in arrays]
        if any(length != len(parent_rows) for length in lengths):
            what = f"columns of {lengths} rows with {len(parent_rows)} parents"
            raise TupleError(f"bolt {self._bolt!r} emitted {what}")
        self.columns.append(columns)
        self.parents.append(parent_rows)
        self.streams.append(stream)

    def _parent_rows(self, parents: pa.Array | npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Return the `parents` of an emission as `(n,) int64`.

        Raises `TupleError`: they are no whole numbers, or one is no row of the batch.
        """
        parent_rows = np.asarray(parents)
        # an empty list has another type
        are_whole_numbers = parent_rows.dtype.kind in "iu" or not parent_rows.size
        if parent_rows.ndim != 1 or not are_whole_numbers:
            raise TupleError(
                f"bolt {self._bolt!r} emitted with parents of {parent_rows.dtype}, shape"
                f" {parent_rows.shape}; they are (n,) numbers of rows"
            )
        parent_rows = parent_rows.astype(np.int64)
        last_row = self._row_count - 1
        if len(parent_rows) and (parent_rows.min() < 0 or parent_rows.max() > last_row):
            raise TupleError(f"bolt {self._bolt!r} anchored on a row that is not in 0..{last_row}")
        return parent_rows

    def fail(self, row: int, cause: BaseException | str | None = None) -> None:
        """Fail one input row; what was emitted on it is not delivered.

        Raises `TupleError`: the batch has no such row.
        """
        own_row = self._row_of_batch(row, "failed")
        self.failures.append((own_row, cause_of(self._bolt, cause, self.tracebacks)))

    def leave_open(self, row: int) -> None:
        """Neither ack nor fail one input row, as a `Bolt` may; what was emitted on it is delivered.

        Its record is replayed after its timeout.

        Raises:
            TupleError: the batch has no such row.
        """
        self.left_open.append(self._row_of_batch(row, "left open"))

    def _check_open(self, action: str) -> None:
        """Raise `TupleError` if the call has returned.

        The message says what the bolt did (`action`).
        """
        if self.is_closed:
            raise TupleError(
                f"bolt {self._bolt!r} {action} by the collector of a call that had returned,"
                " whose rows are acked: do it before execute returns, or make it a Bolt, which"
                " acks by hand"
            )

    def _row_of_batch(self, row: int, action: str) -> int:
        """Return a row's number as an int: the caller may have one of NumPy, or 1.0.

        Raises `TupleError`, which says what the bolt did (`action`): the batch has no such row, or
        the call is over.
        """
        self._check_open(action)
        if row != int(row) or not 0 <= row < self._row_count:
            batch_text = f"a batch of {self._row_count}"
            raise TupleError(f"bolt {self._bolt!r} {action} row {row} of {batch_text}")
        return int(row)

    def join(self, collected: BatchCollector, first_row: int) -> None:
        """Add what another collector has collected for a part of this batch.

        The part begins at `first_row`, and the other collector counts its rows from 0: so its row
        2 is row `first_row` + 2 of this batch.
        """
        self.columns += collected.columns
        self.parents += [parents + first_row for parents in collected.parents]
        self.streams += collected.streams
        self.failures += [(row + first_row, cause) for row, cause in collected.failures]
        self.left_open += [row + first_row for row in collected.left_open]


class ArrowBolt(_Declares):
    """Works on Arrow batches; every input row is acked unless it is failed, or left open.

    >>> import pyarrow as pa
    >>> import pyarrow.compute as pc
    >>> class Upper(spout.ArrowBolt):
    ...     output = "word string"
    ...     fields = ("word",)
    ...     def execute(self, batch, collector):
    ...         rows = pa.array(range(batch.num_rows))
    ...         collector.emit([pc.utf8_upper(batch.column("word"))], parents=rows)
    >>> collector = spout.BatchCollector("upper", rows=2)
    >>> Upper().execute(pa.record_batch({"word": ["hawk", "waits"]}), collector)
    >>> [column.to_pylist() for column in collector.columns[0]]
    [['HAWK', 'WAITS']]
    """

    fields: ClassVar[tuple[str, ...] | None] = None
    """The input columns that it reads; None reads all of them. Naming them saves time."""

    def prepare(self, context: BoltContext) -> None:
        """Get ready for the batches of one task; called once in each."""

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Work on one batch.

        Raises `Exception`: any exception fails every row of the batch, with its class as the
        cause, or ends the query if `stops_on` names it.
        """
        raise NotImplementedError

    def cleanup(self) -> None:
        """Release what `prepare` acquired; called after the last batch of a task."""


AnyBolt = BasicBolt | Bolt | ArrowBolt

_BASE_MODULES = ("spout.bolts.bolts", "spout.bolts.keyed_bolt")
"""Modules of the base classes. A method that comes from there was not overridden."""


def bolt_name(bolt: object, name: str | None) -> str:
    """Return `name`, or if that is None the name of the bolt's class."""
    if name is not None:
        return name
    return bolt.__name__ if isinstance(bolt, type) else type(bolt).__name__


def check_bolt(name: str, bolt: object) -> None:
    """Raise `UsageError` if a bolt cannot run: a method is missing, or would not run its author's
    code, or an output is wrong.
    """
    _refuse_class(f"bolt {name!r}", bolt)
    if isinstance(bolt, Stopping):  # it derives from one of our classes
        required_methods = {"execute": "for every tuple"}  # by name: when it is called
        if isinstance(bolt, Bolt):
            required_methods = {"prepare": "with the collector of each task"} | required_methods
        for method, when in required_methods.items():
            if getattr(bolt, method).__module__ in _BASE_MODULES:
                raise UsageError(
                    f"bolt {name!r}: {type(bolt).__name__} has no {method}; define it, since it"
                    f" is called {when}"
                )
    _check_methods_run(name, bolt, "declare", "prepare", "execute", "tick", "cleanup")
    for declared in declared_streams(name, bolt).values():
        field_names(name, declared.output)


def declared_streams(name: str, bolt: object) -> dict[str, DeclaredStream]:
    """Return the streams that a bolt declares, by their names; `name` is the bolt's.

    Raises `UsageError`: it declares one twice, or by a name that none may have.
    """
    declarer = OutputDeclarer()
    try:
        if isinstance(bolt, _Declares):
            bolt.declare(declarer)
        elif isinstance(bolt, Stopping):  # a keyed bolt, which has one stream
            declarer.declare(getattr(bolt, "output", ""))
    except UsageError as error:
        raise UsageError(f"bolt {name!r}: {error}") from error
    return declarer.streams


def check_hooks(name: str, hooks: Iterable[TaskHook]) -> tuple[TaskHook, ...]:
    """Return the hooks of a bolt as a tuple, checked as `check_bolt` checks a bolt."""
    if isinstance(hooks, TaskHook) or not isinstance(hooks, Iterable):
        raise UsageError(f"bolt {name!r}: hooks={hooks!r}; give a list of hooks: hooks=[Slow()]")
    checked_hooks = tuple(hooks)
    for hook in checked_hooks:
        _refuse_class(f"a hook of bolt {name!r}", hook)
        if not isinstance(hook, TaskHook):
            raise UsageError(f"bolt {name!r}: {hook!r} is no hook; derive it from spout.TaskHook")
        _check_methods_run(name, hook, "prepare", "emit", "execute", "ack", "fail", "cleanup")
    return checked_hooks


def check_runs(what: str, function: object) -> None:
    """Raise `UsageError` if a call of a function would not run its code: it is async, or a
    generator.

    The message calls it `what`.
    """
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(
            f"{what} is async, and nothing awaits it, so its code would never run: write a"
            " plain def, and call asyncio.run(...) in it for what must be awaited"
        )
    if inspect.isgeneratorfunction(function):
        raise UsageError(
            f"{what} has a yield, and nothing iterates over it, so its code would never run:"
            " make it a plain function, and write a call such as collector.emit(...) in place"
            " of each yield"
        )


def invoke(bolt: str, method: Callable[..., object], *arguments: object) -> None:
    """Call a method of a bolt or of one of its hooks.

    Raises `TupleError`: it returned something else than None.
    """
    returned = method(*arguments)
    if returned is not None:
        raise returned_error(bolt, method, returned)


def returned_error(bolt: str, method: Callable[..., object], returned: object) -> TupleError:
    """Return the error of a method that returned something else than None; `bolt`: its name.

    If it returned a coroutine, that is closed.
    """
    # a method has both attributes; a callable that the author has put in its place may lack them
    owner = type(getattr(method, "__self__", None)).__name__
    method_name = f"{owner}.{getattr(method, '__name__', 'execute')}"
    if inspect.iscoroutine(returned):
        returned.close()  # nobody will await it, and Python would print a second warning about that
    is_generator = inspect.isgenerator(returned) or inspect.isasyncgen(returned)
    cure = "emit rows by the collector, and return nothing"
    if inspect.isawaitable(returned) or is_generator:
        replacement = "asyncio.run(...), or collector.emit(...) in place of each yield"
        cure = f"its code has not run: call {replacement}"
    class_of_returned = type(returned).__name__
    return TupleError(
        f"bolt {bolt!r}: {method_name} returned a {class_of_returned}, which nobody takes; {cure}"
    )


def _refuse_class(what: str, value: object) -> None:
    """Raise `UsageError` if a class was given in place of an instance.

    The message calls it `what`.
    """
    if isinstance(value, type):
        class_text = value.__name__
        raise UsageError(f"{what}: {class_text} is a class; pass an instance: {class_text}()")


def _check_methods_run(name: str, owner: object, *methods: str) -> None:
    """Raise `UsageError` if a call of a method of a bolt, or of its hook, would not run its code.

    `name`: of the bolt. A method that the owner does not have is passed over.
    """
    for method in methods:
        check_runs(f"bolt {name!r}: {type(owner).__name__}.{method}", getattr(owner, method, None))


def ends_query(bolt: Stopping, error: BaseException) -> bool:
    """Return whether an exception that escaped a bolt ends the query.

    `FailTuple` never does. `Isolated` does not either: it replaces a call that would end its
    process, so the bolt itself raised nothing. `MessageIdUnknown` always does: it is a mistake
    in the topology, for which each record would become a dead letter.
    """
    if isinstance(error, FailTuple | Isolated):
        return False
    return isinstance(error, (*bolt.stops_on, MessageIdUnknown))


def raise_if_it_ends_query(name: str, bolt: Stopping, error: BaseException) -> None:
    """Raise `BoltStopped` if an exception that escaped a bolt ends the query (`ends_query`).

    `MessageIdUnknown` has the cure in its own message: a restart does not help, since the topology
    is wrong. `name`: of the bolt.
    """
    if isinstance(error, MessageIdUnknown):
        raise BoltStopped(f"bolt {name!r}: {error}") from error
    if ends_query(bolt, error):
        raise BoltStopped(
            f"bolt {name!r} stops on {class_name(type(error))}: {text_of(error)}; mend what it"
            " needs, and start the query again from its checkpoint"
        ) from error
