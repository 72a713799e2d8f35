"""The judge of what became of each record, by which demo, simulation and torture count and judge."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from acker.identity import source_of
from acker.kafka.port import Record, TopicPartition
from acker.wire.events import Lost, SourceRun, Verdicts, pack_positions
from acker.wire.verdict import Verdict
from replay.records.due import Loss, history_json
from replay.records.headers import HISTORY, Lineage, build_headers
from spout.demo.judge import (
    Outcomes,
    SettledRun,
    roots_of_run,
    settled_runs,
    uncommitted,
)
from tests.support.flaws import check_none, replacement_flaw, replacement_flaws, verdict_flaw, verdict_flaws

SOURCE = source_of(1, 0)
REPLAY = source_of(1, 0, replay=True)
OTHER_INPUT = source_of(2, 0)


def outcomes(*events: SettledRun | Record) -> Outcomes:
    """Return what became of the records of an input, after these verdicts, copies and dead letters."""
    judge = Outcomes(1, "t", "t.replay")
    for event in events:
        if isinstance(event, Record):
            judge.record_replacement(event)
        else:
            judge.record_verdict(event)
    return judge


def replacement(topic: str, offset: int, of: str = "t/0@7") -> Record:
    """Return a copy or a dead letter of the record t/0@7, that stands for a root of it."""
    history = (HISTORY, history_json((Loss(1, Verdict.FAILED, "", "", "", 0, 0, of),)))
    return Record(topic, 0, offset, None, b"", (*build_headers(Lineage("t/0@7", attempt=2)), history), 0)


LOST = SettledRun(SOURCE, 7, 8, "FAILED")
COPY = replacement("t.replay", 0)
COPY_ACKED = SettledRun(REPLAY, 0, 1, "ACKED")
LETTER = replacement("t.dlq", 3)


@pytest.mark.parametrize("order", list(permutations((LOST, COPY, COPY_ACKED))))
def test_a_record_ends_when_its_copy_is_acked_whatever_is_read_first(
    order: tuple[SettledRun | Record, ...],
) -> None:
    judge = outcomes(*order)
    assert judge.has_ended("t/0@7")
    assert (judge.ended_records, judge.extra_ends_by_origin) == (1, {})
    assert list(replacement_flaws(judge, lambda root: True)) == []
    assert not outcomes(LOST, COPY).has_ended("t/0@7")


def test_a_record_that_is_acked_and_a_dead_letter_ended_twice() -> None:
    assert outcomes(LOST, COPY, COPY_ACKED, LETTER).extra_ends_by_origin == {"t/0@7": 1}


def test_of_two_verdicts_the_first_one_counts() -> None:
    judge = outcomes(SettledRun(SOURCE, 0, 5, "ACKED"), SettledRun(SOURCE, 4, 6, "TIMED_OUT"))
    assert (judge.counts.acked, judge.counts.lost_by_reason, judge.counts.repeated_verdicts) == (
        5,
        {"TIMED_OUT": 1},
        1,
    )
    initialised = set(roots_of_run(SOURCE, 0, 6))
    assert list(verdict_flaws(judge, initialised)) == ["t/0@4 is ACKED and then TIMED_OUT"]


def test_a_root_that_is_open_at_the_end_and_one_that_never_began_are_named() -> None:
    judge = outcomes(SettledRun(SOURCE, 1, 2, "ABSENT"))
    assert sorted(verdict_flaws(judge, set(roots_of_run(SOURCE, 2, 3)))) == [
        "t/0@1 was never initialised",
        "t/0@2 never got a verdict",
    ]


def test_verdicts_of_another_input_are_no_concern() -> None:
    assert outcomes(SettledRun(OTHER_INPUT, 0, 9, "ACKED")).counts.settled == 0


def test_the_runs_of_a_verdict_record_keep_its_order() -> None:
    at = pack_positions(np.array([9, 3, 4]))
    lost = Lost(Verdict.ABANDONED, "g", "t", "id", "", "", "", 0, 0, 0, SOURCE, at)
    runs = settled_runs(Verdicts((SourceRun(SOURCE, 0, 2),), (SourceRun(SOURCE, 2, 3),), (lost,)))
    assert [(run.start, run.end, run.verdict) for run in runs] == [
        (0, 2, "ACKED"),
        (2, 3, "ABSENT"),
        (9, 10, "ABANDONED"),
        (3, 5, "ABANDONED"),
    ]


@pytest.mark.parametrize(
    ("verdict", "replacements", "has_record", "text"),
    [
        ("ACKED", 0, True, ""),
        ("FAILED", 1, True, ""),
        ("ABANDONED", 0, False, ""),
        ("FAILED", 0, True, "is FAILED and has neither copy nor dead letter"),
        ("TIMED_OUT", 2, True, "became a copy or dead letter 2 times"),
        ("ABANDONED", 1, False, "is no record, and has a copy or dead letter"),
        ("ACKED", 1, True, "has a copy or dead letter, and was not lost: its verdict is ACKED"),
    ],
)
def test_a_lost_root_becomes_one_copy_or_one_dead_letter(
    verdict: str, replacements: int, has_record: bool, text: str
) -> None:
    assert replacement_flaw(verdict, replacements, has_record=has_record) == text


def test_a_copy_of_a_root_that_was_not_lost_is_found() -> None:
    (flaw,) = replacement_flaws(outcomes(SettledRun(SOURCE, 7, 8, "ACKED"), COPY), lambda root: True)
    assert flaw.startswith("t/0@7 has a copy or dead letter, and was not lost")


def test_a_root_has_one_verdict() -> None:
    assert verdict_flaw(["ACKED"]) == ""
    assert verdict_flaw([]) == "never got a verdict"
    assert verdict_flaw(["ACKED"], initialised=False) == "was never initialised"
    assert verdict_flaw(["ACKED", "FAILED"]) == "is ACKED and then FAILED"


def test_a_partition_that_is_not_committed_to_its_end_is_named() -> None:
    first, second, empty = (TopicPartition("t", number) for number in range(3))
    assert uncommitted({first: 4, second: 4, empty: 0}, {first: 4}) == {"t/1": "none of 4"}


def test_a_check_names_how_many_flaws_there_are_and_the_first() -> None:
    assert check_none("all is well", []).passed
    check = check_none("all is well", ["b", "a"])
    assert (check.passed, check.found) == (False, "2, the first: a")
