"""Finds the first value of a column that a store's table would change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

ValueTest = Callable[[Any], bool]
"""Returns whether a column would change a value, which is not null."""


def index_of_first(values: Sequence[Any], test: ValueTest | None) -> int | None:
    """Return the index of the first value for which a test is true; None: for none of them.

    A null is passed over. Without a test (None) no value is meant.
    """
    if test is None:
        return None
    for index, value in enumerate(values):
        if value is not None and test(value):
            return index
    return None
