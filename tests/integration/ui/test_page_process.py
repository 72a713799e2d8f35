"""The page as a process: it ends when it is asked to, whatever Kafka does."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from acker.config.topics import load_topics
from acker.provisioning.provision import create_topics
from spout.local.embedded import free_port
from tests.support.brokers import Broker
from tests.support.programs import running

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
    except OSError:
        return 0


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
