"""What the simulation takes for a broken order, and what it does not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from acker.identity import source_of
from tests.simulation.checkers.order_checker import InOrder
from tests.simulation.truth.facts import Broken

SOURCE = source_of(1, 0)
INPUT = SimpleNamespace(ordered=True, ordering="partition")


class Known:
    """A truth in which every record is there."""

    def __init__(self) -> None:
        self.cluster: Any = SimpleNamespace(at=lambda *_: self)

    def visible(self, offset: int) -> object:
        """Return a record."""
        return SimpleNamespace(key=None)

    def input_of(self, root: object) -> object:
        """Return the one input."""
        return INPUT


class History:
    """Batches and verdicts of one partition, one after the other."""

    def __init__(self) -> None:
        self.checker = InOrder()
        self._truth: Any = Known()

    def batch(self, holder: str, start: int, end: int) -> None:
        """Journal a batch."""
        batch: Any = SimpleNamespace(group="g", holder=holder, ranges=[(SOURCE, start, end)])
        self.checker.journalled(self._truth, batch)

    def verdict(self, holder: str, kind: str, position: int, origin: int | None = None) -> None:
        """Decide a root; `origin` is another one where it is a copy."""
        root: Any = SimpleNamespace(
            group="g", holder=holder, source=SOURCE, position=position, topic="lines",
            origin=f"lines/0@{position if origin is None else origin}",
        )  # fmt: skip
        self.checker.verdict(self._truth, 0, (0, 0), root, kind, None)


def test_what_is_acked_behind_a_later_record_breaks_the_order() -> None:
    history = History()
    history.batch("s1", 0, 2)
    history.verdict("s1", "FAILED", 0)
    history.verdict("s1", "ACKED", 1)
    history.batch("s1", 100, 101)
    history.verdict("s1", "ACKED", 100, origin=0)
    with pytest.raises(Broken, match="were acked"):
        history.checker.end(Known())  # type: ignore[arg-type]  # all that it asks for


def test_what_a_takeover_puts_back_of_a_batch_comes_again_behind_what_was_acked_of_it() -> None:
    """Seed 40271: the takeover counted in one partition before the batch's acks, in another behind."""
    assert is_in_order("ABANDONED")
    assert not is_in_order("FAILED")


def is_in_order(kind: str) -> bool:
    """Whether records may come again behind a later one of their batch after verdicts of a kind."""
    history = History()
    history.batch("s1", 0, 3)
    history.verdict("s1", kind, 0)
    history.verdict("s1", kind, 1)
    history.verdict("s1", "ACKED", 2)
    history.batch("s2", 100, 102)
    history.verdict("s2", "ACKED", 100, origin=0)
    history.verdict("s2", "ACKED", 101, origin=1)
    try:
        history.checker.end(Known())  # type: ignore[arg-type]  # all that it asks for
    except Broken:
        return False
    return True


def test_a_takeover_excuses_no_later_batch() -> None:
    history = History()
    history.batch("s1", 0, 1)
    history.verdict("s1", "ABANDONED", 0)
    history.batch("s2", 1, 2)
    history.verdict("s2", "ACKED", 1)
    history.batch("s2", 100, 101)
    history.verdict("s2", "ACKED", 100, origin=0)
    with pytest.raises(Broken, match="were acked"):
        history.checker.end(Known())  # type: ignore[arg-type]  # all that it asks for
