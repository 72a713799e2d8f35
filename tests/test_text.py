"""The text of the product gets no harder to read: names, lines and docstrings that a reader stumbles over.

tests/data/text_allowances.csv has how many of them each file may have that is not rewritten yet. The list can
only be lowered: a file that has fewer than it may have falls, too, until the list says so.
"""

from __future__ import annotations

import ast

import pytest

from tests.support.text import (
    LINE_COLUMNS_MAX,
    NOTHING_WRONG,
    TextCounts,
    allowances,
    bound_names,
    counts_of,
    product_counts,
)

LIST = "tests/data/text_allowances.csv"
REWRITE = "`python -m tests.support.text` writes the list"


def differences(now: dict[str, TextCounts], allowed: dict[str, TextCounts]) -> tuple[list[str], list[str]]:
    """Return the lines about what has become more, and those about what has become less."""
    more, fewer = [], []
    for path in sorted(now.keys() | allowed.keys()):
        counts, limits = now.get(path, NOTHING_WRONG), allowed.get(path, NOTHING_WRONG)
        for kind, count, limit in zip(TextCounts._fields, counts, limits, strict=True):
            line = f"{path}: {kind} {count}, and the list has {limit}"
            if count > limit:
                more.append(line)
            elif count < limit:
                fewer.append(line)
    return more, fewer


def test_no_file_becomes_harder_to_read() -> None:
    more, _ = differences(product_counts(), allowances())
    assert not more, (
        "give each name the noun that it is, break lines at 100 columns, begin docstrings with the effect:\n"
        + "\n".join(more)
    )


def test_what_was_rewritten_is_taken_from_the_list() -> None:
    _, fewer = differences(product_counts(), allowances())
    assert not fewer, f"fewer than {LIST} allows; {REWRITE}:\n" + "\n".join(fewer)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("found = 1", TextCounts(1, 0, 0)),
        ("def f(each): pass", TextCounts(1, 0, 0)),
        ("lambda of: of", TextCounts(1, 0, 0)),
        ("[one for one in ()]", TextCounts(1, 0, 0)),
        ("class A:\n    first: int", TextCounts(1, 0, 0)),
        ("self._at = 1", TextCounts(1, 0, 0)),
        ("try: pass\nexcept OSError as other: pass", TextCounts(1, 0, 0)),
        ("match 1:\n    case named: pass", TextCounts(1, 0, 0)),
        ("if (kept := 1): pass", TextCounts(1, 0, 0)),
        ("print(found, each)", NOTHING_WRONG),
        ("first_position = last_seen = 1", NOTHING_WRONG),
        ("#" * LINE_COLUMNS_MAX, NOTHING_WRONG),
        ("#" * (LINE_COLUMNS_MAX + 1), TextCounts(0, 1, 0)),
        ('def f():\n    """Tell whether."""', TextCounts(0, 0, 1)),
        ('class A:\n    """Say. what."""', TextCounts(0, 0, 1)),
        ('"""Note, that."""', TextCounts(0, 0, 1)),
        ('def f():\n    """Telling names."""', NOTHING_WRONG),
    ],
)
def test_what_a_reader_stumbles_over_is_counted(text: str, counts: TextCounts) -> None:
    assert counts_of(text) == counts


def test_names_that_are_only_read_are_not_bound() -> None:
    assert list(bound_names(ast.parse("a = b; c.d = e; f(g=h)"))) == ["a", "d"]


def test_both_directions_of_a_difference_are_told() -> None:
    now = {"a.py": TextCounts(2, 0, 0), "new.py": TextCounts(0, 1, 0)}
    allowed = {"a.py": TextCounts(1, 0, 1), "gone.py": TextCounts(0, 0, 3)}
    more, fewer = differences(now, allowed)
    assert more == [
        "a.py: vague_names 2, and the list has 1",
        "new.py: long_lines 1, and the list has 0",
    ]
    assert fewer == [
        "a.py: weak_docstrings 0, and the list has 1",
        "gone.py: weak_docstrings 0, and the list has 3",
    ]
