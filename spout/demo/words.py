"""The demo's word count: its text, its bolts, and the table that they fill.

The record key decides what happens to a line, so the text stays unchanged: the plain count, by
which the demo is judged, reads the same lines. `CountWord` is behind a fields grouping, so that
the demo's trees have three levels and cross a shuffle.

A word's identity is the origin of its line (the first emission, which is in the headers of a
replayed copy) and its ordinal in the line. A line that is replayed writes the same rows again,
so nothing counts twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from pydoc_data import topics as pydoc_topics

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acker.errors import UsageError
from acker.identity import OFFSET_BITS, position_at
from replay.records.headers import parse_lineage
from spout.bolts.bolts import ArrowBolt, BatchCollector

ALWAYS_FAILS = b"always-fails"
"""Key of the line that fails at every attempt and becomes a dead letter."""

FAILS_TWICE = b"fails-twice"
"""Key of a line that fails at its first two attempts."""

NEVER_ACKED_AT_FIRST = b"never-acked-at-first"
"""Key of a line that is neither acked nor failed at its first attempt, and times out."""

PLAIN = b""
"""Key of every other line."""

SPECIAL_LINES_MAX = 5
"""How many lines there are of each of the two kinds that succeed in the end; the third kind has one line."""


@dataclass(frozen=True, slots=True)
class DemoLine:
    """One record of the demo: its key, which decides what happens to it, and its text."""

    key: bytes
    text: str


def python_topics() -> list[str]:
    """Return the lines of the English text that every CPython has, without blank ones."""
    lines = (line.strip() for text in pydoc_topics.topics.values() for line in text.splitlines())
    return [line for line in lines if line]


def lines_of_file(path: Path) -> list[str]:
    """Return the lines of a text file, without blank ones.

    Raises `UsageError`: it cannot be read, or has blank lines alone.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--input {path}: {error.strerror}; name a text file that can be read") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"--input {path}: byte {error.start} is not UTF-8; name a UTF-8 text file"
        ) from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise UsageError(f"--input {path}: the file holds no line that is not blank; name one with text")
    return lines


def special_keys_by_line(records: int) -> dict[int, bytes]:
    """Return the keys of the special ones among `records` lines, by the line's index.

    All other lines are plain. Small demos have fewer special ones: below four lines none, below
    eighty one of each kind.
    """
    if records < 4:
        return {}
    lines_of_each_kind = min(SPECIAL_LINES_MAX, max(1, records // 40))
    # in the first fifth: their attempts, back-off and timeouts take seconds, in which the other
    # lines go through
    first_lines = max(4, records // 5)
    keys_by_line = {first_lines // 3: ALWAYS_FAILS}
    plain_indices = [index for index in range(first_lines) if index not in keys_by_line]
    # Spread evenly, so that they meet different batches, partitions and acker states: with one line
    # of each of the two kinds, those at a quarter and at a half of the plain ones.
    special_count = 2 * lines_of_each_kind
    special_indices: list[int] = []
    for number in range(special_count):
        index_among_plain = len(plain_indices) * (number + 1) // (special_count + 2)
        special_indices.append(plain_indices[index_among_plain])
    # by turns one of each kind; of few lines the same one may be drawn several times
    for number, index in enumerate(dict.fromkeys(special_indices)):
        keys_by_line[index] = FAILS_TWICE if number % 2 == 0 else NEVER_ACKED_AT_FIRST
    return keys_by_line


def demo_lines(text: list[str], records: int) -> Iterator[DemoLine]:
    """Yield `records` lines of the text, which begins again at its end.

    Special lines have their key.
    """
    special_keys = special_keys_by_line(records)
    for index, line in enumerate(islice(cycle(text), records)):
        yield DemoLine(special_keys.get(index, PLAIN), line)


def count_words(lines: Iterable[str]) -> Counter[str]:
    """Return how often each word is in some lines, counted without bolts.

    The demo is compared with it.
    """
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line.split())
    return counts


FAILING_ATTEMPTS = 2
"""At how many attempts a line with the key `FAILS_TWICE` fails."""


class PoisonLineError(Exception):
    """The line fails at every attempt."""


class FlakyLineError(Exception):
    """The line fails now and will succeed later."""


class CheckLine(ArrowBolt):
    """Passes lines on with their origin; fails, or leaves open, the lines whose key requires it."""

    output = "origin long, line string"
    fields = ("topic", "partition", "offset", "key", "value", "windhover")

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit (origin, line) for every line; fail or leave open those whose key requires it."""
        # 1. lines and origins of all rows at once, as if no row were a copy
        lines = batch.column("value").cast(pa.string())
        # as `origin_number` has them: the partition above the bits of the offset
        partitions = batch.column("partition").to_numpy().astype(np.int64)
        origins = batch.column("offset").to_numpy() + (partitions << OFFSET_BITS)
        # 2. copies and special lines, which have headers or a key, one by one
        is_copy = pc.greater(pc.list_value_length(batch.column("windhover")), 0)
        is_special = pc.or_(is_copy, batch.column("key").is_valid()).to_numpy(zero_copy_only=False)
        half_lines_by_row: dict[int, str] = {}
        for row in np.flatnonzero(is_special).tolist():
            topic, partition, offset, key, value, headers = (column[row].as_py() for column in batch.columns)
            pairs = tuple((header["key"], header["value"]) for header in headers)
            # origin and attempt: of a copy by its headers, else by the record itself
            lineage = parse_lineage(pairs, topic, partition, offset)
            origins[row] = origin_number(lineage.origin)
            if key == ALWAYS_FAILS:
                collector.fail(row, PoisonLineError("this line fails at every attempt"))
            elif key == FAILS_TWICE and lineage.attempt <= FAILING_ATTEMPTS:
                collector.fail(row, FlakyLineError(f"this line fails at attempt {lineage.attempt}"))
            elif key == NEVER_ACKED_AT_FIRST and lineage.attempt == 1:
                collector.leave_open(row)
                words = value.decode().split()
                # the first half is written now, and again, with the rest, when the line is replayed
                half_lines_by_row[row] = " ".join(words[: len(words) // 2])
        # 3. a line for each row; what is emitted on one that failed is not delivered
        if half_lines_by_row:
            lines = pa.array([half_lines_by_row.get(row, line) for row, line in enumerate(lines.to_pylist())])
        collector.emit([pa.array(origins), lines], np.arange(batch.num_rows))


class SplitSentence(ArrowBolt):
    """Split lines into words."""

    output = "origin long, ordinal int, word string"
    fields = ("origin", "line")

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit (origin, ordinal, word) for every word, anchored on its line."""
        words = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(batch.column("line")))
        parents = pc.list_parent_indices(words).to_numpy(zero_copy_only=False)
        lengths = pc.list_value_length(words).to_numpy(zero_copy_only=False)
        # A word's ordinal is its distance from the first word of its line: of lines of 2 and 3
        # words, whose first words are 0 and 2 of all, the ordinals are 0, 1, 0, 1, 2.
        first_indices = np.cumsum(lengths) - lengths  # of each line: [0, 2]
        first_index_by_word = np.repeat(first_indices, lengths)  # [0, 0, 2, 2, 2]
        ordinals = pa.array(np.arange(len(parents)) - first_index_by_word, pa.int32())
        origins = batch.column("origin").take(pa.array(parents))
        collector.emit([origins, ordinals, pc.list_flatten(words)], parents)


class CountWord(ArrowBolt):
    """Passes every word on to the table that counts it.

    The same word always goes to the same task.
    """

    output = "origin long, ordinal int, word string"
    fields = ("origin", "ordinal", "word")

    def execute(self, batch: pa.RecordBatch, collector: BatchCollector) -> None:
        """Emit each word with its identity; the table counts identities, so a replay counts once."""
        collector.emit(batch.columns, np.arange(batch.num_rows))


def origin_number(origin: str) -> int:
    """Return partition and offset of an origin (``topic/partition@offset``) as one number.

    The partition stands above the bits of the offset.
    """
    topic_and_partition, _, offset = origin.rpartition("@")
    partition = topic_and_partition.rpartition("/")[2]
    return position_at(int(partition), int(offset))


COLUMNS = ("origin", "ordinal", "word")


class WordTable:
    """A table with a word for each identity (origin, ordinal).

    Of several rows of one the last counts.
    """

    def __init__(self) -> None:
        self._upserts: list[pa.Table] = []  # in the order in which they were written

    def upsert(self, rows: pa.Table) -> None:
        """Write rows with the columns ``origin`` and ``ordinal`` (integers) and ``word``.

        All are written, or none.
        """
        self._upserts.append(rows.select(COLUMNS))

    def counts(self) -> Counter[str]:
        """Return how often each word is in the table."""
        if not self._upserts:
            return Counter()
        rows = pa.concat_tables(self._upserts).combine_chunks()
        origins = rows.column("origin").to_numpy()
        ordinals = rows.column("ordinal").to_numpy()
        # by origin, then by ordinal; it is stable: of one identity the row that was written last
        # comes last
        order = np.lexsort((ordinals, origins))
        sorted_origins = origins[order]
        sorted_ordinals = ordinals[order]
        # a row is the last of its identity if the one behind it has another
        is_last = np.ones(len(order), np.bool_)
        has_other_origin = sorted_origins[1:] != sorted_origins[:-1]
        has_other_ordinal = sorted_ordinals[1:] != sorted_ordinals[:-1]
        is_last[:-1] = has_other_origin | has_other_ordinal
        last_words = rows.column("word").take(pa.array(order[is_last]))
        counted = pc.value_counts(last_words)
        words = counted.field("values").to_pylist()
        counts = counted.field("counts").to_pylist()
        return Counter(dict(zip(words, counts, strict=True)))
