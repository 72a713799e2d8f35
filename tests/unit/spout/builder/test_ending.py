"""`spout.run_once`: its steps with the planning process and Spark, and what it refuses."""

from __future__ import annotations

import threading
from typing import Any
from unittest.mock import patch

import pytest

import spout
from acker.errors import UsageError
from spout.builder import ending
from spout.builder.submitted import SubmittedTopology


class Link:
    """The link of a stream; the query lets its planning process be drained."""

    group = "g"

    def __init__(self) -> None:
        self.end_number = 0
        self.is_drained = False
        self.is_inactive = False

    def request_end(self) -> None:
        """Request it."""
        self.end_number += 1

    def drop_request(self) -> None:
        """Drop it."""
        self.end_number = 0


class Query:
    """A query that may end, or fail, at a step of `run_once`; it notes the steps in `steps`.

    `hangs`: the batches without records, and its end, wait until it is stopped.
    """

    hangs = False

    def __init__(self, link: Link, ends_at: str = "", error: Exception | None = None) -> None:
        self.steps: list[str] = []
        self._link = link
        self._ends_at = ends_at
        self._error = error
        self._is_active = True
        self._stopped = threading.Event()

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        """Look; at each look the planning process gets nearer to its end."""
        self._step("look")
        if self.steps.count("look") == 3 and self._is_active:
            self._link.is_drained = True
        return self._is_active

    def processAllAvailable(self) -> None:  # noqa: N802 - Spark's name
        """Return at once."""
        self._step("batches without records")
        self._hang()
        if self._error is not None and not self._is_active:
            raise self._error

    def stop(self) -> None:
        """End."""
        self._step("stop")
        self._is_active = False
        self._stopped.set()

    def awaitTermination(self) -> None:  # noqa: N802 - Spark's name
        """Return at once."""
        self._step("await")
        self._hang()

    def _hang(self) -> None:
        if self.hangs:
            assert self._stopped.wait(60), "nobody stopped it"

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if name == self._ends_at:
            self._is_active = False


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Link:
    """The link of stream ``s``, which the plan of every query shows."""
    link = Link()
    monkeypatch.setattr(ending, "POLL_S", 0.0)
    shows(monkeypatch, ["s"])
    monkeypatch.setattr(ending, "link_of", {"s": link}.get)
    return link


def shows(
    monkeypatch: pytest.MonkeyPatch,
    streams: list[str],
    *,
    trigger: str = "ProcessingTimeTrigger",
    has_ticks: bool = False,
) -> None:
    """Set what the plan of every query shows."""
    execution: Any = type("Execution", (), {"analyzedPlan": lambda _: None})()
    monkeypatch.setattr(ending, "java_query", lambda _query: execution)
    monkeypatch.setattr(ending, "nodes", lambda _plan: ["", *streams])
    monkeypatch.setattr(ending, "stream_of", lambda node: node)
    monkeypatch.setattr(ending, "ticks", lambda _node: has_ticks)
    monkeypatch.setattr(ending, "trigger_of", lambda _query: trigger)


def test_it_waits_until_nothing_is_left_then_for_batches_without_records_and_stops(
    link: Link,
) -> None:
    query: Any = Query(link)
    assert spout.run_once(query) is True
    steps = [step for step in query.steps if step != "look"]
    assert steps == ["batches without records", "stop", "await"]
    looks = query.steps.index("batches without records")
    assert looks >= 3, "not before the planning process is drained"


def test_a_query_that_is_started_behind_it_reads_without_end(link: Link) -> None:
    query: Any = Query(link)
    spout.run_once(query)
    assert link.end_number == 0


@pytest.mark.parametrize("ends_at", ["look", "batches without records"])
def test_a_query_that_somebody_stops_meanwhile_is_not_done(link: Link, ends_at: str) -> None:
    query: Any = Query(link, ends_at)
    assert spout.run_once(query) is False


@pytest.mark.parametrize("trigger", ["ProcessingTimeTrigger", "AvailableNowTrigger"])
def test_a_query_that_is_not_done_in_time_is_stopped(
    link: Link, monkeypatch: pytest.MonkeyPatch, trigger: str
) -> None:
    """Whether this call or Spark itself ends it."""
    shows(monkeypatch, ["s"], trigger=trigger)
    query: Any = Query(link)
    query.hangs = True
    assert spout.run_once(query, timeout_s=0.01) is False
    assert "stop" in query.steps
    assert link.end_number == 0


def test_a_query_that_is_done_in_time_is_done(link: Link) -> None:
    query: Any = Query(link)
    assert spout.run_once(query, timeout_s=3600) is True
    assert query.steps.count("stop") == 1


def test_what_fails_the_query_is_raised_and_the_request_is_dropped(link: Link) -> None:
    query: Any = Query(link, "look", ConnectionError("the table is away"))
    with pytest.raises(ConnectionError, match="the table is away"):
        spout.run_once(query)
    assert query.steps[-1] == "stop"
    assert link.end_number == 0


def test_a_query_that_ends_by_itself_is_waited_for(
    link: Link,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shows(monkeypatch, ["s"], trigger="AvailableNowTrigger")
    query: Any = Query(link)
    assert spout.run_once(query) is True
    assert query.steps == ["await", "stop"], "also if the wait is interrupted"


@pytest.mark.parametrize(
    ("plan", "cure"),
    [
        ({"streams": []}, "this one does not: end it by query.stop\\(\\)"),
        ({"streams": ["s", "t"]}, "this one does not: end it by query.stop\\(\\)"),
        ({"streams": ["of another application"]}, "this one does not: end it by query.stop\\(\\)"),
        ({"streams": ["s"], "trigger": "OneTimeTrigger"}, "group g: .*leave the trigger out"),
        ({"streams": ["s"], "has_ticks": True}, "group g: .*end it by query.stop\\(\\)"),
    ],
    ids=["none", "two", "another", "once", "ticks"],
)
def test_a_query_that_would_not_end_rightly_is_refused_and_goes_on(
    link: Link, monkeypatch: pytest.MonkeyPatch, plan: dict[str, Any], cure: str
) -> None:
    shows(monkeypatch, **plan)
    query: Any = Query(link)
    with pytest.raises(UsageError, match=cure):
        spout.run_once(query)
    assert query.steps == []
    assert link.end_number == 0


def test_a_topology_that_is_paused_is_refused_since_it_would_never_be_done(link: Link) -> None:
    query: Any = Query(link)
    link.is_inactive = True
    with pytest.raises(UsageError, match=r"group g: the topology is paused.*resume it first"):
        spout.run_once(query)
    assert query.steps == []
    link.is_inactive = False
    assert spout.run_once(query) is True


def test_of_a_topology_its_query_is_ended_and_one_that_was_never_active_is_refused(link: Link) -> None:
    topology = SubmittedTopology.__new__(SubmittedTopology)
    query: Any = Query(link)
    for topology_query, error in ((query, None), (None, r"submitted with active=False.*resume it first")):
        with patch.object(SubmittedTopology, "query", topology_query):
            if error is None:
                assert spout.run_once(topology) is True
                continue
            with pytest.raises(UsageError, match=error):
                spout.run_once(topology)
    assert query.steps.count("stop") == 1
