"""How an exception's class is told on the wire, so that a rule can name one of its parents."""

from __future__ import annotations

import json

import pytest

from acker.wire.causes import (
    EXPLICIT,
    PARENTS_MAX,
    TEXT_BYTES_MAX,
    Cause,
    error_class,
    error_classes,
    error_text,
)
from acker.wire.stacks import CauseKey, key_of
from spout.tuples.failures import FailTuple, RejectTuple, Undecodable, cause_of


class OrderError(Exception):
    """An exception of a bolt's own."""


class NoSuchOrder(OrderError, LookupError):
    """One with two parents, of which Python knows the second."""


class ConnectionError(OrderError):  # named as a built-in one, on purpose
    """One that only its name shares with Python's."""


class E(Exception):
    """One in capitals, as Windhover's own causes are."""


class Warning(Exception):  # likewise, and without a parent that is told
    """One more."""


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ValueError, "ValueError"),
        (UnicodeDecodeError, "UnicodeDecodeError"),
        (json.JSONDecodeError, "JSONDecodeError(ValueError)"),
        (OrderError, "OrderError"),
        (NoSuchOrder, "NoSuchOrder(OrderError, LookupError)"),
        (ConnectionError, "ConnectionError(OrderError)"),
        (Warning, "Warning()"),
        (E, "E()"),
        (RejectTuple, "RejectTuple(FailTuple)"),
        (Undecodable, "Undecodable(RejectTuple, FailTuple)"),
    ],
)
def test_a_class_is_told_with_the_parents_that_another_python_cannot_know(
    kind: type[Exception], text: str
) -> None:
    assert error_text(kind) == text
    assert error_class(text) == kind.__name__
    assert error_classes(text) == tuple(parent.__name__ for parent in kind.__mro__[:-1])


def test_an_explicit_fail_counts_as_fail_tuple() -> None:
    assert (
        cause_of("split", "not now")
        == cause_of("split", FailTuple("not now"))
        == Cause("split", "", "not now")
    )
    assert error_classes("") == (EXPLICIT, "Exception", "BaseException")
    assert FailTuple.__name__ == EXPLICIT


def test_a_rejection_names_its_class_and_keeps_its_message() -> None:
    """P31"""
    assert cause_of("parse", Undecodable("byte 7")) == Cause(
        "parse", "Undecodable(RejectTuple, FailTuple)", "byte 7"
    )


def test_a_cause_of_windhovers_own_is_no_exception() -> None:
    assert error_classes("BATCH_SKIPPED") == ("BATCH_SKIPPED",)


@pytest.mark.parametrize("text", ["(", "()", "A(", "A(,", ")", "A(B", "A B(C))", "\x00"])
def test_no_text_is_too_strange_to_be_read(text: str) -> None:
    assert isinstance(error_class(text), str)
    assert error_classes(text)[-1] == "BaseException"


def test_a_long_line_of_parents_is_cut() -> None:
    kind: type[Exception] = OrderError
    for number in range(20):
        kind = type(f"Error{number}", (kind,), {})
    assert error_text(kind).count(",") == PARENTS_MAX - 1


@pytest.mark.parametrize("text", ["x" * TEXT_BYTES_MAX, "x" * (TEXT_BYTES_MAX + 1), "é" * TEXT_BYTES_MAX])
def test_each_text_of_a_cause_is_cut(text: str) -> None:
    cut = text.encode()[:TEXT_BYTES_MAX].decode("utf-8", "ignore")
    assert Cause.of(text, text, text) == (cut, cut, cut)
    assert Cause.of("split", "ValueError", "no") == ("split", "ValueError", "no")


def test_a_cause_that_is_cut_again_stays_as_it_is() -> None:
    """The spout cuts it, and so does the acker, which cannot know who wrote the record."""
    cause = Cause.of("s" * 600, "E" * 600, f"{'no words, ' * 60} (split.py:12)")
    assert Cause.of(*cause) == cause
    assert len(cause.message.encode()) == TEXT_BYTES_MAX


def test_the_stack_of_a_cause_is_found_by_what_was_cut() -> None:
    """Another program may write longer texts than ours: an acker finds the stack by them all the same."""
    texts = "s" * 600, "E" * 600, f"{'no words, ' * 60} (split.py:12)"
    assert key_of(*Cause.of(*texts)) == CauseKey.of(*texts[:2], "split.py:12")
