"""Why a tuple failed: what a bolt raises to fail it, and the cause that is published; pure.

Source: docs/design/protocol.md, section 3 rule 11.
"""

from __future__ import annotations

from acker.errors import TupleError
from acker.wire.causes import Cause as Cause
from acker.wire.causes import class_name, error_text, with_code_line
from spout.tuples.poison import Isolated
from spout.tuples.raised import Tracebacks, place_of
from spout.tuples.tuple import short_repr, text_of

ERRORS_MAX = 20
"""Errors that the bolts of one task may report with their text; more are counted only."""


class FailTuple(Exception):
    """Raise it in a bolt to fail the input tuple; its text is the cause's message.

    >>> class LookUp(spout.BasicBolt):
    ...     def execute(self, tuple, collector):
    ...         raise spout.FailTuple("the service is busy")
    >>> LookUp().execute(line, spout.BasicCollector(print))
    Traceback (most recent call last):
    ...
    spout.tuples.failures.FailTuple: the service is busy
    """


class RejectTuple(FailTuple):
    """Raise it, or fail with it, when no replay can help: the record becomes
    a dead letter at once.

    >>> class Order(spout.BasicBolt):
    ...     output = "id int"
    ...     def execute(self, tuple, collector):
    ...         if not tuple["value"].isdigit():
    ...             raise spout.RejectTuple(f"{tuple['value']!r} is no order")
    ...         collector.emit((int(tuple["value"]),))
    >>> Order().execute(line, spout.BasicCollector(print))
    Traceback (most recent call last):
    ...
    spout.tuples.failures.RejectTuple: b'the hawk waits' is no order
    """


class Undecodable(RejectTuple):
    """Raise it when a bolt cannot decode a record: it becomes a dead letter
    at once, which keeps the bytes.

    >>> import json
    >>> class Parse(spout.BasicBolt):
    ...     output = "id int"
    ...     def execute(self, tuple, collector):
    ...         try:
    ...             collector.emit((json.loads(tuple["value"])["id"],))
    ...         except ValueError as error:
    ...             raise spout.Undecodable("no JSON") from error
    >>> Parse().execute(line, spout.BasicCollector(print))
    Traceback (most recent call last):
    ...
    spout.tuples.failures.Undecodable: no JSON
    """


def with_class(error: BaseException) -> BaseException:
    """Return an exception, or one in its place if it raises when asked for its class."""
    try:
        isinstance(error, FailTuple)
    except BaseException:  # noqa: BLE001 - code of the user, which was only to be asked
        text = f"an exception, {class_name(type(error))}, does not say of which class it is"
        return TupleError(text).with_traceback(error.__traceback__)
    return error


def cause_of(
    operator: str,
    why: BaseException | str | None,
    tracebacks: Tracebacks | None = None,
) -> Cause:
    """Build the cause of a failed tuple: of an exception its class, message
    and place, of an explicit fail the message alone.

    Example, of the bolt `split`: the text "busy", or ``FailTuple("busy")``,
    has no class and the message "busy"; a `KeyError` in line 12 of split.py
    has its class, and the place split.py:12 in its message.

    Args:
        operator: the bolt.
        why: what it gave, or raised; None: it failed the tuple without a
            word.
        tracebacks: keeps the traceback of an exception that was raised; None:
            it is not kept.

    Raises:
        TupleError: `why` is something else, as an exception's class.
    """
    if isinstance(why, BaseException):
        why = with_class(why)
    if why is None or isinstance(why, str):
        return Cause.of(operator, "", why or "")
    if not isinstance(why, BaseException):
        raise TupleError(
            f"bolt {operator!r} gave {short_repr(why)}, a {type(why).__name__}, as a cause; give a"
            " text or an exception"
        )
    text = text_of(why)
    if isinstance(why, Isolated):  # no code raised it: its process died or hung
        return Cause.of(operator, why.error, text)
    if type(why) is FailTuple:  # a fail by a text; its subclasses have a meaning of their own
        return Cause.of(operator, "", text)
    place = place_of(why)
    was_raised = why.__traceback__ is not None
    if not was_raised or tracebacks is None:
        return Cause.of(operator, error_text(type(why)), with_code_line(text, place))
    # where no line of the author's raised it, its place is where the bolt's
    # code begins
    return _keep_traceback(operator, why, text, place or tracebacks.code_place, tracebacks)


def cause_of_output(operator: str, why: BaseException, tracebacks: Tracebacks) -> Cause:
    """Build the cause of an output that does not fit; its place is the bolt's
    code, which has returned.
    """
    place = place_of(why) or tracebacks.code_place
    return _keep_traceback(operator, why, text_of(why), place, tracebacks)


def _keep_traceback(
    operator: str,
    why: BaseException,
    text: str,
    place: str,
    tracebacks: Tracebacks,
) -> Cause:
    """Keep the traceback of an exception, and return the cause that it is kept under.

    `text` and `place` are the cause's.
    """
    cause = Cause.of(operator, error_text(type(why)), with_code_line(text, place))
    tracebacks.keep(cause.operator, cause.error, place, why)
    return cause
