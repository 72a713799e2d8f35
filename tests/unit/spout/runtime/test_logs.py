"""Logs: JSON lines on stderr, the event first, without secrets."""

from __future__ import annotations

import inspect
import json
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import structlog

from acker.kafka import client as kafka_client
from acker.ledger.output import AckerEventKind
from replay.worker.report import ReplayEvent
from spout.cli import main
from spout.runtime import logs, process, step_watch


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_is_json_with_the_event_first(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure()

    structlog.get_logger().info("acker.ready", partitions=[0, 1])

    captured = capsys.readouterr()
    line = json.loads(captured.err)
    assert captured.out == ""
    assert list(line)[:3] == ["event", "level", "time"]
    assert (line["event"], line["partitions"]) == ("acker.ready", [0, 1])


def test_a_log_on_a_full_disk_ends_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = False
    with suppress(OSError), Path("/dev/full").open("w", encoding="utf-8") as full:  # its close fails
        monkeypatch.setattr(sys, "stderr", full)
        logs.configure()
        logs.log_event("acker.ready", partitions=[0, 1])
        logs.log_event("acker.paused")
        goes_on = True
    assert goes_on


def test_a_field_whose_name_says_secret_is_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure()

    structlog.get_logger().info("x", **{"sasl.password": "hunter2", "token": "hunter2", "root": "a/0@1"})

    captured = capsys.readouterr().err
    assert "hunter2" not in captured
    assert json.loads(captured)["root"] == "a/0@1"


def test_warnings_of_libraries_are_json_lines_too(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure()

    logging.getLogger("library").warning("broker %s is away", 1)
    logging.getLogger("library").info("chatter")

    assert json.loads(capsys.readouterr().err)["event"] == "broker 1 is away"


def test_a_silenced_command_shows_nothing_of_its_libraries(capsys: pytest.CaptureFixture[str]) -> None:
    logs.silence()

    logging.getLogger("library").error("broker is away")

    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("event", "level"),
    [("acker.ready", "info"), ("acker.partition_fenced", "warning"), ("replay.dead_lettered", "warning")],
)
def test_an_event_that_a_person_may_want_to_look_at_is_a_warning(
    event: str, level: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure()

    logs.log_event(event, partition=1)

    assert json.loads(capsys.readouterr().err)["level"] == level


def test_every_event_that_is_to_warn_is_one_that_a_service_tells() -> None:
    told = {kind.value for kind in AckerEventKind}
    told |= set(re.findall(r"``([a-z_]+)``", ReplayEvent.__doc__ or ""))
    told |= set(re.findall(r'"\{self\._part\}\.([a-z_]+)"', inspect.getsource(step_watch)))
    told |= set(re.findall(r'"\{part\}\.([a-z_]+)"', inspect.getsource(process)))
    told |= set(re.findall(r'"ui\.([a-z_]+)"', inspect.getsource(main)))

    assert logs.WARNINGS.issubset(told)


def librdkafka(text: str) -> logging.LogRecord:
    return logging.LogRecord(logs.LIBRDKAFKA, logging.WARNING, "", 0, text, None, None)


def test_a_line_of_librdkafka_comes_once_a_minute_for_each_kind_and_the_next_counts_the_others() -> None:
    """80 s without a broker were 6,400 lines in each log."""
    now_s = 0.0
    recurring = logs.Recurring(lambda: now_s)
    shown: list[logging.LogRecord] = []
    for attempt in range(6_400):
        now_s = attempt / 80
        for broker in (1, 2, 3):
            line = librdkafka(f"kafka client: 10.0.0.{broker}:9092/{broker}: refused (after {attempt}ms)")
            shown += [line] if recurring.filter(line) else []

    assert [getattr(line, "repeated", 0) for line in shown] == [0, 3 * 4_800 - 1]


def test_what_librdkafka_logs_and_reports_is_shown_once() -> None:
    recurring = logs.Recurring(lambda: 0.0)

    assert not recurring.filter(librdkafka("FAIL [rdkafka#consumer-1] [thrd:a]: a: Connect failed"))
    assert recurring.filter(librdkafka("SESSTMOUT [rdkafka#consumer-1] [thrd:main]: timed out"))


def test_lines_of_others_are_shown_each_time() -> None:
    recurring = logs.Recurring(lambda: 0.0)
    line = logging.LogRecord("spout", logging.WARNING, "", 0, "again", None, None)

    assert [recurring.filter(line), recurring.filter(line)] == [True, True]


def test_the_logger_of_librdkafka_has_one_name() -> None:
    assert logs.LIBRDKAFKA == kafka_client.LIBRDKAFKA


def test_extra_fields_of_a_library_are_fields(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure()

    logging.getLogger("acker.any").warning("the broker does not answer", extra={"seconds": 3.0})

    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["seconds"]) == ("the broker does not answer", 3.0)
