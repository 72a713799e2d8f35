"""A trigger with which a query would not end rightly ends it before its group is taken."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from acker.config.topics import parse
from acker.errors import Unreachable, UsageError
from spout.planning.journal import BEGINNING, Journal
from spout.spark.reader_with_memory import NO_AVAILABLE_NOW, ReaderWithMemory
from spout.streaming import keeper, source
from spout.streaming.application import OwnFolder
from spout.streaming.keeper import Keeper, KeptStream
from spout.streaming.options import SourceOptions
from spout.streaming.source import Runner
from tests.support.linked import LinkedDriver, linked_driver
from tests.support.waiting import eventually

YAML = """
kafka: {bootstrap.servers: "127.0.0.1:1"}
acker: {partitions: 1}
inputs:
  a: {id: 1, group: g, partitions: 1}
"""


class Opened(Exception):
    """The planner was asked to take its group."""


class Planner:
    """Says by an error that it was opened."""

    is_open = False

    def open(self, *_arguments: object, **_more: object) -> None:
        raise Opened


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[LinkedDriver]:
    """A driver of the stream that the runners of these tests read."""
    with linked_driver(tmp_path) as driver:
        yield driver


def runner_of(driver: LinkedDriver, **more: Any) -> Runner:
    """Return the runner of a planning process on Spark 4.0 or 4.1."""
    topics = parse(YAML, file="topics.yaml", environ={})
    options = SourceOptions(topics, ("a",), "stream", sink_folder=str(driver.folder), driver=driver.address)
    planner: Any = Planner()
    return Runner(options, planner, refused_triggers=ReaderWithMemory.refused_triggers, **more)


def answered_by(driver: LinkedDriver, trigger: str) -> threading.Thread:
    """Answer the question for the trigger once it comes, in a thread."""

    def answer() -> None:
        eventually(driver.link.processes_waiting_for_trigger, 60)
        driver.link.put_trigger(driver.link.processes_waiting_for_trigger()[0], trigger)

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


@pytest.mark.parametrize("call", ["plan", "begin_batch"])
@pytest.mark.parametrize(
    ("trigger", "error"), [("AvailableNowTrigger", UsageError), ("ProcessingTimeTrigger", Opened)]
)
def test_a_query_that_would_end_too_early_takes_no_group_and_says_the_cure(
    driver: LinkedDriver, call: str, trigger: str, error: type[Exception]
) -> None:
    """Also where its first batch is one that runs again."""
    answering = answered_by(driver, trigger)
    runner = runner_of(driver)
    calls = {
        "plan": lambda: runner.plan(BEGINNING, None),
        "begin_batch": lambda: runner.begin_batch(Journal("s", 1, 0, 1, {}, ())),
    }
    try:
        with pytest.raises(error) as raised:
            calls[call]()
        if error is UsageError:
            assert str(raised.value) == f"group g: {NO_AVAILABLE_NOW}"
    finally:
        answering.join(60)
        runner._driver_link.close()
        runner._kafka_log.close()


def test_the_cure_names_what_ends_a_query_and_the_version_that_needs_no_cure() -> None:
    assert re.search(
        r"needs Spark 4\.2 or later.*Leave the trigger out, and call spout\.run_once\(query\)",
        NO_AVAILABLE_NOW,
    )


def test_a_driver_that_says_no_trigger_is_waited_for_in_vain_and_not_for_ever(
    driver: LinkedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "TRIGGER_MS_MAX", 50)
    monkeypatch.setattr(source, "DRIVER_WAIT_MS", 10)
    runner = runner_of(driver)
    try:
        with pytest.raises(Unreachable, match="which trigger the query has; see the driver's log"):
            runner.plan(BEGINNING, None)
    finally:
        runner._driver_link.close()
        runner._kafka_log.close()


def test_the_driver_answers_once_spark_has_the_query(
    driver: LinkedDriver,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The planning process may ask before the query is listed, and while the JVM does not answer."""
    answers: list[str | Exception] = ["", Py4JError("not now"), "OneTimeTrigger"]
    asked: list[tuple[object, str]] = []

    def trigger_of_reader(session: object, stream_id: str) -> str:
        asked.append((session, stream_id))
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(keeper, "trigger_of_reader", trigger_of_reader)
    session: Any = SimpleNamespace()
    folder = OwnFolder(f"windhover-{tmp_path.name}-")
    serving = Keeper(folder, lambda: [KeptStream(driver.link, session, "stream")], lambda _session: None)
    planner = driver.planner()
    serving.step()
    assert asked == [], "nobody asks"
    planner.ask_for_trigger()
    eventually(driver.link.processes_waiting_for_trigger)
    with caplog.at_level(logging.DEBUG):
        for _ in range(4):
            serving.step()
    eventually(lambda: planner.trigger == "OneTimeTrigger")
    assert "the trigger of stream stream cannot be asked for: not now" in caplog.text
    assert asked == [(session, "stream")] * 3
    folder.cleanup()
