"""The page as a process, and its commands, beside real services on a real broker."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from contextlib import closing
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from acker.config.topics import load_topics
from acker.provisioning.provision import create_topics
from spout.cli import main as cli
from spout.local.embedded import free_port
from tests.support.brokers import Broker
from tests.support.programs import running
from tests.support.worlds.plays import Stagehand, text_for

ENDS_S = 8.0
"""Two seconds for streams, two for what reads, and those of a busy machine; a reading takes up to 30 s."""

YAML = """
kafka: {{bootstrap.servers: "{bootstrap}"}}
acker: {{partitions: 1, topic_prefix: "{prefix}"}}
inputs: {{lines: {{id: 1, group: "{prefix}g", topic: "{prefix}lines", partitions: 1}}}}
"""


def ask(address: str, accept: str = "text/html") -> int:
    """Return the status of an answer; 0: there is none."""
    try:
        with urlopen(Request(address, headers={"accept": accept}), timeout=60) as answer:
            answer.read()
            return int(answer.status)
    except (OSError, HTTPException):  # the latter where a stream ends in the middle
        return 0


@pytest.mark.sample(2)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_page_ends_within_seconds_of_a_signal_although_its_readings_wait_for_the_broker(
    broker: Broker, prefix: str, tmp_path: Path, number: signal.Signals
) -> None:
    config = tmp_path / "topics.yaml"
    config.write_text(YAML.format(bootstrap=broker.bootstrap, prefix=prefix), encoding="utf-8")
    create_topics(load_topics(config, {}))
    page = f"http://127.0.0.1:{(port := free_port())}"
    arguments = ["-m", "spout.cli", "ui", "--config", str(config), "--port", str(port)]
    with running(arguments, tmp_path / "log") as started:
        started.until(lambda: ask(f"{page}/readyz") == 200)
        broker.kill()
        try:
            for path, accept in (("/", "text/event-stream"), ("/record/lines/0@0", "text/html")):
                threading.Thread(target=ask, args=(page + path, accept), daemon=True).start()
            started.until(lambda: "the broker does not answer" in started.said)
            began = time.monotonic()
            started.send(number)
            assert started.ended() == 128 + number
            assert time.monotonic() - began < ENDS_S
        finally:
            broker.restart()


BROKEN = """
import sys, time
from pathlib import Path
from acker.config.topics import load_topics
from spout.ui.serve import PageAddress, ShownInstallation, serve_pages

class BrokenLog:
    def share_deadline(self):
        pass

    def topics(self, names, settings=False):
        raise ArithmeticError("a defect of ours")

    def close(self):
        time.sleep(600)

topics = load_topics(Path(sys.argv[1]), {})
shown = ShownInstallation(lambda _: BrokenLog(), topics)
sys.exit(serve_pages(shown, PageAddress("127.0.0.1", 0), time.time_ns, print))
"""


def test_the_page_that_a_defect_ends_has_failed_and_says_why_although_something_waits(tmp_path: Path) -> None:
    config = tmp_path / "topics.yaml"
    config.write_text(YAML.format(bootstrap="127.0.0.1:1", prefix="p"), encoding="utf-8")
    with running(["-c", BROKEN, str(config)], tmp_path / "log") as started:
        assert started.ended() == 1
        assert "ArithmeticError: a defect of ours" in started.said


def test_the_machinery_names_the_processes_and_the_restore_of_the_one_that_came_last(
    broker: Broker, prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "topics.yaml"
    config.write_text(text_for({"bootstrap.servers": broker.bootstrap}, prefix), encoding="utf-8")
    create_topics(topics := load_topics(config, {}))

    def machinery() -> dict[str, Any]:
        capsys.readouterr()
        assert cli.run(["machinery", "--config", str(config), "-o", "json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    def acker_partition() -> dict[str, Any]:
        [found] = machinery()["acker_partitions"]
        return dict(found)

    services = ["-m", "spout.cli"]
    acker = [*services, "acker", "run", "--config", str(config)]
    host = socket.gethostname()
    with (
        closing(Stagehand(topics)) as stagehand,
        running([*services, "replay", "run", "--config", str(config)], tmp_path / "replay") as replays,
    ):
        with running(acker, tmp_path / "first") as first:
            stagehand.open_roots()
            first.until(lambda: acker_partition()["restore_ms"] is not None)
            before = acker_partition()
            assert before["acker"].startswith(f"windhover-acker-{host}-")

            def is_taken_over() -> bool:
                [worker] = machinery()["workers"]
                is_named = worker["worker"].startswith(f"windhover-replay-{host}-")
                return is_named and (worker["partitions"], worker["not_taken_over"]) == ([0], 0)

            replays.until(is_taken_over)
        ended_ms = time.monotonic_ns() // 1_000_000
        with running(acker, tmp_path / "second") as second:

            def is_restored_again() -> bool:
                after = acker_partition()
                young_ms = time.monotonic_ns() // 1_000_000 - ended_ms
                return after["acker"] not in ("nobody", before["acker"], None) and (
                    after["restored_ago_ms"] < young_ms
                )

            second.until(is_restored_again)
            assert acker_partition()["restore_ms"] >= 0
