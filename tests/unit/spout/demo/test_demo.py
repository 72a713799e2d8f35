"""The demo's pure parts: its text, its table, its checks."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace
from inspect import signature
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from acker.errors import UsageError
from replay.records.headers import Lineage, build_headers
from spout.bolts.bolts import BatchCollector
from spout.cli.main import demo
from spout.demo.judge import Check, OutcomeCounts
from spout.demo.report import DemoOutcome, DemoProgress, checks, first_difference, report_rows, status_line
from spout.demo.stage import DemoOptions, longer_timeout_ms, refuse_records, reserved_port
from spout.demo.words import (
    ALWAYS_FAILS,
    FAILS_TWICE,
    NEVER_ACKED_AT_FIRST,
    CheckLine,
    SplitSentence,
    WordTable,
    count_words,
    demo_lines,
    lines_of_file,
    origin_number,
    python_topics,
    special_keys_by_line,
)
from spout.local.embedded import is_free
from spout.planning_process.status import PlannerStatus
from spout.tuples.messages import ARROW_TYPES
from tests.support.worlds.planning import World, yaml_of

GOOD = DemoOutcome(
    records=10, acked=9, replayed=4, timed_out=1, failed=4, dead_lettered=1, absent=0, pending=0, lost=0,
    duplicates_from_acker_kill=0, other_replays=0, acker_kills=1, counts_correct=True, committed_to_end=True,
    seconds=1.0, ack_seconds=0.5, records_per_second=10.0, bootstrap="127.0.0.1:1",
)  # fmt: skip


def judge(outcome: DemoOutcome = GOOD, **changed: object) -> list[Check]:
    facts: dict[str, object] = {
        "expected_words": Counter(a=2),
        "counted_words": Counter(a=2),
        "uncommitted": {},
        "lost_across_kill": [],
        "repeated_verdicts": 0,
    }
    return [check for check in checks(outcome, **{**facts, **changed}) if not check.passed]  # type: ignore[arg-type]  # a table of keywords


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
    kinds = Counter(special_keys_by_line(50_000).values())
    assert kinds == {ALWAYS_FAILS: 1, FAILS_TWICE: 5, NEVER_ACKED_AT_FIRST: 5}


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


def test_an_input_that_has_records_is_refused_with_its_topic_their_number_and_the_cure() -> None:
    world = World(yaml_of())
    source = world.topics.input("sentences")
    refuse_records(world.log, source, "kafka:9092")
    world.produce(7, partition=1)
    with pytest.raises(UsageError, match=r"topic sentences at kafka:9092 has had 7 records, .* by --config"):
        refuse_records(world.log, source, "kafka:9092")


def test_a_reserved_port_is_free_for_nobody_else_before_it_is_closed() -> None:
    reserved = reserved_port()
    port = reserved.getsockname()[1]
    assert not is_free(port)
    reserved.close()
    assert is_free(port)


def test_the_command_has_the_default_number_of_lines() -> None:
    assert signature(demo).parameters["records"].default == DemoOptions().records


def test_a_port_beside_another_broker_is_refused() -> None:
    """It would mean nothing there."""
    with pytest.raises(UsageError, match=r"--port 9092.*--bootstrap"):
        DemoOptions(bootstrap="kafka:9092", port=9092)


def words(*rows: tuple[int, int, str]) -> pa.Table:
    return pa.table(dict(zip(("origin", "ordinal", "word"), map(list, zip(*rows, strict=True)), strict=True)))


def test_a_word_that_is_written_again_counts_once() -> None:
    table = WordTable()
    assert table.counts() == Counter()
    table.upsert(words((1, 0, "a"), (1, 1, "b"), (2, 0, "a")))
    table.upsert(words((1, 1, "b"), (1, 0, "a")))
    assert table.counts() == count_words(["a b", "a"])


def test_of_rows_of_one_identity_the_last_one_counts() -> None:
    """A sink that counted the first one would hide a bolt that does something else on a re-run."""
    table = WordTable()
    table.upsert(words((1, 0, "a"), (2, 0, "c")))
    table.upsert(words((1, 0, "b")))
    assert table.counts() == Counter(b=1, c=1)


def test_lines_keep_the_place_of_their_first_emission_and_special_ones_do_what_their_key_says() -> None:
    copy = build_headers(Lineage("sentences/1@5", attempt=2))
    rows = [
        ("sentences", 3, 9, None, b"plain line", ()),
        ("sentences", 0, 1, NEVER_ACKED_AT_FIRST, b"one two three four", ()),
        ("sentences", 0, 2, ALWAYS_FAILS, b"a", ()),
        ("sentences", 0, 3, FAILS_TWICE, b"b", ()),
        ("replay", 2, 0, FAILS_TWICE, b"c", copy),
        ("replay", 2, 1, NEVER_ACKED_AT_FIRST, b"one two three four", copy),
    ]
    columns = [list(column) for column in zip(*rows, strict=True)]
    columns[5] = [[{"key": key, "value": value} for key, value in headers] for headers in columns[5]]
    types = [ARROW_TYPES[name] for name in CheckLine.fields]
    arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
    collector = BatchCollector("check", rows=len(rows))
    CheckLine().execute(pa.RecordBatch.from_arrays(arrays, names=list(CheckLine.fields)), collector)
    origins, lines = (column.to_pylist() for column in collector.columns[0])
    assert origins == [(3 << 48) + 9, 1, 2, 3, (1 << 48) + 5, (1 << 48) + 5]
    assert lines == ["plain line", "one two", "a", "b", "c", "one two three four"]
    assert [row for row, _ in collector.failures] == [2, 3, 4]
    assert collector.left_open == [1]


def test_lines_of_all_partitions_are_split_with_the_ordinal_of_each_word() -> None:
    rows = pa.record_batch({"origin": [7, origin_number("t/3@9")], "line": [" the  hawk", "waits"]})
    collector = BatchCollector("split", rows=2)
    SplitSentence().execute(rows, collector)
    assert [column.to_pylist() for column in collector.columns[0]] == [
        [7, 7, (3 << 48) + 9],
        [0, 1, 0],
        ["the", "hawk", "waits"],
    ]
    assert collector.parents[0].tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    "outcome",
    [GOOD, replace(GOOD, acked=7, lost=2, pending=2, other_replays=1, duplicates_from_acker_kill=1)],
)
def test_the_lines_of_the_table_add_up(outcome: DemoOutcome) -> None:
    """Those that are indented to the one above them."""
    rows = report_rows(outcome)
    heads = [number for number, (name, _) in enumerate(rows) if not name.startswith(" ")]
    sums = 0
    for head, end in pairwise([*heads, len(rows)]):
        parts = [value for _, value in rows[head + 1 : end]]
        if parts:
            sums += 1
            assert sum(map(int, parts)) == rows[head][1], rows[head][0]
    assert sums == 3


def test_the_line_says_that_it_is_throttled_when_a_batch_took_too_long() -> None:
    status = PlannerStatus("running", "g", pending=12_000, batch_ms=3_100)
    line = status_line(status, OutcomeCounts(copies=3, dead_letters=1), 52_000.4, 5_000)
    assert line == (
        "52,000 records/s  pending 12,000  replayed 3  dead 1  throttled: batch took 3.1 s of 5 s timeout"
    )
    assert "throttled" not in status_line(replace(status, batch_ms=1_300), OutcomeCounts(), 0, 5_000)
    assert "throttled" not in status_line(status, OutcomeCounts(), 0, 0)


def test_where_there_is_no_terminal_plain_lines_are_printed(tmp_path: Path) -> None:
    out = io.StringIO()
    with DemoProgress(Console(file=out, width=40), tmp_path / "none", 10, 5_000) as progress:
        progress.show(4, OutcomeCounts())
        progress.show(5, OutcomeCounts())
    assert out.getvalue() == "4 of 10  0 records/s  pending 0  replayed 0  dead 0\n"


def test_the_first_word_that_differs_is_named() -> None:
    assert first_difference(Counter(a=1, b=2), Counter(a=1, b=2)) == ""
    assert "'b' was counted 1 times, and stands 2" in first_difference(Counter(a=1, b=2), Counter(a=1, b=1))
    assert "'c' was counted 1 times, and stands 0" in first_difference(Counter(a=1), Counter(a=1, c=1))


def test_a_demo_that_went_well_passes_every_check() -> None:
    assert judge() == []


@pytest.mark.parametrize(
    ("failed", "name"),
    [
        (judge(counted_words=Counter(a=3)), "every word was counted exactly"),
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


@pytest.mark.parametrize(
    ("timeout_ms", "job_s", "longer_ms"),
    [
        (5_000, 0.2, 0),
        (5_000, 0.41, 0),
        (5_000, 0.42, 6_000),
        (5_000, 3.7, 45_000),
        (0, 3.7, 0),
        (60_000, 3.7, 0),
    ],
)
def test_a_slow_machine_gets_a_longer_timeout(timeout_ms: int, job_s: float, longer_ms: int) -> None:
    assert longer_timeout_ms(timeout_ms, job_s) == longer_ms
