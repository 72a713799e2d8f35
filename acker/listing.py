"""Writes lists of which only the first items are named, and ranges of offsets; pure."""

from __future__ import annotations

from collections.abc import Sequence


def and_more(count: int, what: str = "") -> str:
    """Return how many items a sentence does not name; empty for none.

    >>> and_more(1_200), and_more(2, "runs"), and_more(0)
    ('and 1,200 more', 'and 2 more runs', '')
    """
    if count <= 0:
        return ""
    return f"and {count:,} more {what}".rstrip()


def first_of(texts: Sequence[str], named_max: int, separator: str = ", ", what: str = "") -> str:
    """Join the first `named_max` texts, and write how many more there are.

    `what` names what is counted.

    >>> first_of(["a", "b"], 2), first_of(["a", "b", "c"], 1), first_of(list("abcd"), 2, "; ")
    ('a, b', 'a, and 2 more', 'a; b; and 2 more')
    """
    parts = list(texts[:named_max])
    unnamed = and_more(len(texts) - named_max, what)
    if unnamed:
        parts.append(unnamed)
    return separator.join(parts)


def range_text(start: int, end: int) -> str:
    """Write the numbers from `start` to the one before `end` by the first and the last of them.

    >>> range_text(5, 6), range_text(5, 8)
    ('5', '5 to 7')
    """
    return f"{start}" if end - start == 1 else f"{start} to {end - 1}"


def offsets_text(start: int, end: int) -> str:
    """Write the offsets from `start` to the one before `end`.

    >>> offsets_text(5, 6), offsets_text(5, 8), offsets_text(1_000, 2_000)
    ('offset 5', 'offsets 5 to 7', 'offsets 1,000 to 1,999')
    """
    return f"offset {start:,}" if end - start == 1 else f"offsets {start:,} to {end - 1:,}"
