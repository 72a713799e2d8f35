"""The demo's pure parts: its text, its table, its checks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from acker.errors import UsageError
from spout.demo.checks import Check, Outcome, checks
from spout.demo.counts import WordTable, first_difference
from spout.demo.stage import DemoOptions
from spout.demo.text import (
    ALWAYS_FAILS,
    FAILS_TWICE,
    NEVER_ACKED_AT_FIRST,
    count_words,
    demo_lines,
    keys_at,
    lines_of_file,
    python_topics,
)

GOOD = Outcome(
    records=10, acked=9, replayed=4, timed_out=1, failed=3, dead_lettered=1, absent=0, pending=0, lost=0,
    duplicates_from_acker_kill=0, other_replays=0, acker_kills=1, counts_correct=True, committed_to_end=True,
    seconds=1.0, records_per_second=10.0, bootstrap="127.0.0.1:1",
)  # fmt: skip


def judge(outcome: Outcome = GOOD, **changed: object) -> list[Check]:
    facts: dict[str, object] = {
        "expected_words": Counter(a=2),
        "found_words": Counter(a=2),
        "uncommitted": {},
        "lost_across_kill": [],
        "repeated_verdicts": 0,
    }
    return [check for check in checks(outcome, **{**facts, **changed}) if not check.held]  # type: ignore[arg-type]  # a table of keywords


def test_pythons_own_text_is_there_without_blank_lines() -> None:
    lines = python_topics()
    assert len(lines) > 5_000
    assert all(line.strip() == line and line for line in lines)


@pytest.mark.parametrize("records", [1, 3, 4, 10, 100, 50_000])
def test_every_demo_has_the_records_that_were_asked_for_and_at_most_one_poison_line(records: int) -> None:
    lines = list(demo_lines(["one two", "three"], records))
    keys = Counter(line.key for line in lines)
    assert len(lines) == records
    assert keys[ALWAYS_FAILS] == (1 if records >= 4 else 0)
    assert keys[FAILS_TWICE] == keys[NEVER_ACKED_AT_FIRST] or records < 40


def test_a_large_demo_has_five_lines_of_each_kind_that_succeeds_in_the_end() -> None:
    assert Counter(keys_at(50_000).values()) == {ALWAYS_FAILS: 1, FAILS_TWICE: 5, NEVER_ACKED_AT_FIRST: 5}


def test_text_is_repeated_as_often_as_the_records_ask() -> None:
    assert [line.text for line in demo_lines(["a", "b"], 5)] == ["a", "b", "a", "b", "a"]


@pytest.mark.parametrize(
    ("content", "said"), [(None, "No such file"), (b"", "no line"), (b" \n\n", "no line"), (b"\xff", "UTF-8")]
)
def test_input_that_cannot_be_read_is_refused_with_its_name(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    path = tmp_path / "text"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=said) as error:
        lines_of_file(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("options", [{"records": 0}, {"records": -1}, {"rate": 0.0}])
def test_options_out_of_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="--r"):
        DemoOptions(**options)  # type: ignore[arg-type]  # one of several keywords


def test_a_port_beside_another_broker_is_refused() -> None:
    """It would mean nothing there."""
    with pytest.raises(UsageError, match=r"--port 9092.*--bootstrap"):
        DemoOptions(bootstrap="kafka:9092", port=9092)


def test_a_word_that_is_written_again_counts_once(tmp_path: Path) -> None:
    table = WordTable(tmp_path / "words")
    rows = [("t/0@1", 0, "a"), ("t/0@1", 1, "b"), ("t/0@2", 0, "a")]
    table.upsert(rows)
    table.upsert(rows[:2])
    assert table.counts() == count_words(["a b", "a"])
    table.close()


def test_the_first_word_that_differs_is_named() -> None:
    assert first_difference(Counter(a=1, b=2), Counter(a=1, b=2)) == ""
    assert "'b' was counted 1 times, and stands 2" in first_difference(Counter(a=1, b=2), Counter(a=1, b=1))
    assert "'c' was counted 1 times, and stands 0" in first_difference(Counter(a=1), Counter(a=1, c=1))


def test_a_demo_that_went_well_passes_every_check() -> None:
    assert judge() == []


@pytest.mark.parametrize(
    ("failed", "name"),
    [
        (judge(found_words=Counter(a=3)), "every word was counted exactly"),
        (judge(replace(GOOD, lost=1)), "every record ended acked or dead-lettered"),
        (judge(repeated_verdicts=1), "every root has one verdict"),
        (judge(lost_across_kill=["t/0@1"]), "the acker's kill caused no replay"),
        (judge(uncommitted={"t/0": "1 of 2"}), "the committed offsets have reached the end"),
        (judge(replace(GOOD, pending=1)), "nothing is pending"),
    ],
)
def test_each_check_fails_by_name_when_what_it_demands_is_not_so(failed: list[Check], name: str) -> None:
    assert [check.name for check in failed] == [name]
    assert failed[0].found
