"""What a run left behind that ended before its batch was published does not count in the next run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from acker.errors import TrackingError
from spout.publishing.blob import encode
from spout.publishing.report_accumulator import LedgerParam, Value, task_name
from spout.streaming.application import Application, Stream
from tests.support.reports import reported, task_report


class FakeContext:
    """Keeps an accumulator's value, as a SparkContext's driver does."""

    master = "local[2]"

    def accumulator(self, value: Value, _param: object) -> Any:
        """Return an accumulator that nobody adds to but the test."""
        return SimpleNamespace(value=value)


def stream(name: str, group: str, *, tracked: bool = True) -> Stream:
    """Make a `read_stream` call."""
    return Stream(name, group, tracked, 1, cast("Any", None), cast("Any", None))


def application(*streams: Stream, operators: dict[str, str]) -> Application:
    """Make one whose batch 3 of query q has a report of each stream, by the pass that reported."""
    made = Application(cast("Any", FakeContext()))
    made.streams |= {each.id: each for each in streams}
    made.ledger.accumulator.value["q", 3] = {
        str(number): (name, encode(reported(number, number, 0, task_report(operator))))
        for number, (name, operator) in enumerate(operators.items())
    }
    return made


def test_of_two_runs_of_a_group_the_one_that_was_read_later_counts() -> None:
    """Seen on a busy machine: a restart in one application was refused as reading two streams."""
    found = application(
        stream("old", "g"), stream("new", "g"), operators={"new": "split", "old": "split"}
    ).reports("q", 3)
    assert found.streams == {"new"}
    assert [report.task.stage for report in found.tasks] == [0]


def test_two_groups_of_one_batch_are_both_seen() -> None:
    """So that a query which reads two is refused by name."""
    found = application(stream("a", "g"), stream("b", "h"), operators={"a": "split", "b": "count"})
    assert found.reports("q", 3).streams == {"a", "b"}


def test_a_run_that_is_started_again_counts_though_its_group_was_read_later() -> None:
    """The later call of `read_stream` never ran."""
    found = application(stream("old", "g"), stream("unused", "g"), operators={"old": "split"})
    assert found.reports("q", 3).streams == {"old"}


def test_what_bolts_report_of_a_batch_that_was_planned_untracked_does_not_count() -> None:
    """A query without tracking ended in it, and is tracked from now on; a stream beside it counts."""
    found = application(stream("a", "g"), stream("b", "h"), operators={"a": "keep", "b": "split"})
    found.ledger.accumulator.value["q", 3]["read"] = ("a", b"")
    assert [report.operator for report in found.reports("q", 3).tasks] == ["split"]
    del found.ledger.accumulator.value["q", 3]["1"]
    assert found.reports("q", 3).nothing_to_publish


def test_a_query_that_is_forgotten_leaves_nothing_and_others_all() -> None:
    ledger = application(stream("a", "g"), operators={"a": "split"}).ledger
    ledger.accumulator.value["q", 4] = ledger.accumulator.value["other", 3] = {}
    ledger.forget_all("q")
    assert list(ledger.accumulator.value) == [("other", 3)]


def test_what_tasks_report_of_no_batch_is_logged_and_hurts_no_other_query(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Spark runs a job without the batch's name for a thread that the sink's function has made."""
    found = application(stream("a", "g"), operators={"a": "split"})
    value = found.ledger.accumulator.value
    LedgerParam().addInPlace(value, {task_name()[:2]: {"of-a-thread": ("b", encode(task_report("b")))}})
    assert [report.operator for report in found.reports("q", 3).tasks] == ["split"]
    assert list(value) == [("q", 3)]
    assert "reports_without_batch" in caplog.text


def test_what_tasks_report_of_no_batch_stops_their_own_query() -> None:
    """Rule 3: a record that failed in this evaluation would be acked by another one of the same batch."""
    found = application(stream("a", "g"), stream("b", "h"), operators={"a": "split"})
    value = found.ledger.accumulator.value
    value["r", 5] = {"1": ("b", encode(task_report("b")))}
    own = {"of-a-thread": ("b", encode(task_report("b")))}
    LedgerParam().addInPlace(value, {task_name()[:2]: own})
    assert found.reports("q", 3).streams == {"a"}
    with pytest.raises(TrackingError, match=r"thread .* batch 5, .*InheritableThread"):
        found.reports("r", 5)
    assert found.reports("r", 5).streams == {"b"}, "it runs again, without the thread"
