"""Text of any kind where topics.yaml, a header or a journalled offset should be."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from acker.config.topics import parse
from acker.errors import ConfigError, Disagreement
from replay.records.due import HISTORY_MAX, history_json, parse_history, parse_last_loss
from replay.records.headers import build_headers, lineage_of, our_values, parse_lineage
from spout.planning.journal import journal_of
from tests.support.garbage import HEADERS, HISTORY, JOURNAL, LOSS, YAML, mutated

PIECES = (
    "&a ", "*a ", "<<: ", "!!int ", "!", "${A}", "${", '"', "'", "[", "{", "}", "\n", "\n  ", ": ", "- ", "|",
    "1e400", ".nan", "0o9", "1:60:60", "9" * 5_000, "[" * 50, "\x00", "\t", "%", "@", "0x", "é", "\u2028",
)  # fmt: skip


@st.composite
def spoilt(draw: st.DrawFn) -> str:
    """Draw a file that is right or nearly so, spoilt in a few places."""
    text = draw(st.sampled_from(YAML))
    for _ in range(draw(st.integers(0, 4))):
        at, gone = draw(st.integers(0, len(text))), draw(st.sampled_from((0, 1, 2, 8)))
        text = text[:at] + draw(st.sampled_from(PIECES) | st.text(max_size=5)) + text[at + gone :]
    return text


@settings(max_examples=150, deadline=None)
@given(text=spoilt(), value=st.sampled_from(["1", "[[[", "\x00", "9" * 5_000, "!!int x", ""]))
def test_only_a_config_error_comes_out_of_topics_yaml(text: str, value: str) -> None:
    """Each line of it names the file."""
    try:
        parse(text, file="topics.yaml", environ={"A": value})
    except ConfigError as error:
        told = str(error).split("\n")
    else:
        return
    assert all(line.startswith("topics.yaml") for line in told)


PLACES = (
    ("v",), ("session",), ("epoch",), ("now",), ("tasks",), ("sources",), ("sources", "65536"),
    ("sources", "65536", "from"), ("sources", "65536", "gaps"), ("ranges",), ("ranges", 0), ("ranges", 0, 1),
    ("topics",), ("topics", "sentences"),
)  # fmt: skip
ODD = (
    None,
    True,
    -1,
    1.5,
    float("nan"),
    float("inf"),
    "x",
    "1",
    "inf",
    1 << 63,
    [],
    {},
    [1],
    [[1]],
    {"a": 1},
)


@settings(max_examples=200, deadline=None)
@given(where=st.sampled_from(PLACES), odd=st.sampled_from(ODD))
def test_an_offset_that_is_not_ours_is_refused_by_name(where: tuple[Any, ...], odd: object) -> None:
    """A checkpoint of another query, or one that somebody edited: nothing of it reaches the planner."""
    offset: Any = json.loads(json.dumps(JOURNAL))
    within = offset
    for key in where[:-1]:
        within = within[key]
    within[where[-1]] = odd
    try:
        journal = journal_of(offset)
    except Disagreement:
        return
    assert journal_of(json.loads(json.dumps(journal.to_json()))) == journal


@settings(max_examples=150, deadline=None)
@given(
    headers=st.lists(
        st.tuples(
            st.sampled_from([name for name, _ in HEADERS] + ["windhover.", "x", ""]),
            st.none() | mutated([value for _, value in HEADERS]) | st.just("\u0663".encode()),
        ),
        max_size=9,
    )
)
def test_no_header_of_anybody_raises(headers: list[tuple[str, bytes | None]]) -> None:
    """What cannot be read counts as missing, and the attempts are within their bounds."""
    lineage = parse_lineage(tuple(headers), "sentences", 3, 1_042)
    assert 0 <= lineage.abandoned < lineage.attempt
    assert lineage_of(our_values(tuple(headers)), "sentences", 3, 1_042) == lineage
    again = parse_lineage(build_headers(lineage), "sentences", 3, 1_042)
    assert (again.origin, again.attempt, again.abandoned) == (
        lineage.origin,
        lineage.attempt,
        lineage.abandoned,
    )


ODD_HISTORIES = (
    HISTORY, b"[" * 100_000, b'[{"a":' * 20_000, b"[NaN]", b"9" * 100_000, b"\xff\xfe[\x00",
    json.dumps([{**LOSS, "operator": "\ud800"}]).encode(),
    json.dumps([{**LOSS, "attempt": 10**300}]).encode(),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(value=mutated(ODD_HISTORIES))
def test_no_history_of_anybody_raises(value: bytes) -> None:
    """What comes out is bounded, and comes out of what it writes again."""
    history = parse_history(value)
    assert len(history) <= HISTORY_MAX
    assert parse_last_loss(value) == history[-1:]
    assert parse_history(history_json(history)) == history
