"""Finds the first value of a column that a store's table would change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

ValueTest = Callable[[Any], bool]
"""Tells whether a value, which is none of null, would be changed."""


def first_row(values: Sequence[Any], is_meant: ValueTest | None) -> int | None:
    """Return the index of the first value that is meant, None: there is none; a null is never.

    `is_meant` None: no value can be, and none is looked at.
    """
    if is_meant is None:
        return None
    for row, value in enumerate(values):
        if value is not None and is_meant(value):
            return row
    return None
