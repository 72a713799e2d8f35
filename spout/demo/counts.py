"""The demo's sink: a table of words that is upserted by row identity.

A word's identity is the origin of its line (the first emission, which a replayed copy names in its headers)
and its ordinal in the line. A line that is replayed writes the same rows again, so nothing counts twice.
Rows are kept as they come, in columns; of those with one identity the last one counts.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acker.errors import CheckFailed

COLUMNS = ("origin", "ordinal", "word")


class WordTable:
    """A table (origin, ordinal) -> word."""

    def __init__(self) -> None:
        """Begin empty."""
        self._written: list[pa.Table] = []

    def upsert(self, rows: pa.Table) -> None:
        """Write rows with the columns ``origin`` and ``ordinal`` (integers) and ``word``; all or none."""
        self._written.append(rows.select(COLUMNS))

    def counts(self) -> Counter[str]:
        """Count the words of all identities."""
        if not self._written:
            return Counter()
        rows = pa.concat_tables(self._written).combine_chunks()
        origins, ordinals = (rows.column(name).to_numpy() for name in COLUMNS[:2])
        order = np.lexsort((ordinals, origins))  # stable: what was written last comes last of its identity
        is_last = np.ones(len(order), np.bool_)
        by_origin, by_ordinal = origins[order], ordinals[order]
        is_last[:-1] = (by_origin[1:] != by_origin[:-1]) | (by_ordinal[1:] != by_ordinal[:-1])
        counted = pc.value_counts(rows.column("word").take(pa.array(order[is_last])))
        return Counter(dict(zip(*(counted.field(part).to_pylist() for part in (0, 1)), strict=True)))


def first_difference(expected: Counter[str], found: Counter[str]) -> str:
    """Name the first word, in alphabetical order, whose counts differ; empty when none does."""
    for word in sorted(expected.keys() | found.keys()):
        if expected[word] != found[word]:
            return f"{word!r} was counted {found[word]} times, and stands {expected[word]} times in the text"
    return ""


def require_equal(expected: Counter[str], found: Counter[str]) -> None:
    """Compare two counts.

    Raises:
        CheckFailed: a word was counted more or less often than it stands in the text.
    """
    difference = first_difference(expected, found)
    if difference:
        raise CheckFailed(difference)
