"""The command as a process: exit codes, signals, readiness, and what it loads."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from acker.config.topics import load_topics
from acker.provisioning.provision import create_topics
from spout.cli import main as cli
from spout.local.embedded import free_port
from tests.support.brokers import Broker

PROJECT = Path(__file__).resolve().parents[3]
WRONG = "kafka: {sasl.password: hunter2}\ninputs: {a: {id: 0, group: g}}\n"
NOBODY = "kafka: {bootstrap.servers: '%s'}\ninputs: {a: {id: 1, group: g}}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "topics.yaml"


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address that refuses connections: its port is taken, so no other program can listen there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def test_a_broker_that_is_not_there_ends_with_3_and_its_address(
    file: Path, nobody: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(NOBODY % nobody)

    assert cli.run(["topics", "check", str(file)]) == 3

    (line,) = capsys.readouterr().err.splitlines()
    assert nobody in line
    assert "refused" in line


def test_the_module_runs_as_the_command_does(file: Path) -> None:
    file.write_text(WRONG)

    ended = subprocess.run(
        [sys.executable, "-m", "spout.cli", "validate", str(file)],
        capture_output=True,
        text=True,
        cwd=PROJECT,
        check=False,
    )

    assert ended.returncode == 4
    assert ended.stderr.startswith(f"windhover: {file}:2: inputs.a.id = 0")


def test_a_service_refuses_a_wrong_file_before_it_loads_kafka_or_spark(file: Path) -> None:
    file.write_text(WRONG)
    program = (
        "import json, sys\n"
        "from spout.cli import main as cli\n"
        f"codes = [cli.run([part, 'run', '--config', {str(file)!r}]) for part in ('acker', 'replay')]\n"
        "print(json.dumps([codes, 'confluent_kafka' in sys.modules, 'pyspark' in sys.modules]))\n"
    )

    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=PROJECT, check=True
    )

    assert json.loads(ended.stdout) == [[4, 4], False, False]


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command as a process of its own; it is killed at the end if it is still there."""
    command = [sys.executable, "-m", "spout.cli", *arguments]
    with subprocess.Popen(command, cwd=PROJECT, stderr=subprocess.PIPE, text=True) as started:
        try:
            yield started
        finally:
            started.kill()


def wait_for(started: subprocess.Popen[str], event: str) -> dict[str, object]:
    """Read the log until an event; the process ending first fails the test."""
    if started.stderr is None:
        raise AssertionError("its log is not read")
    seen = []
    for line in started.stderr:
        seen.append(line)
        if line.startswith("{") and (found := json.loads(line))["event"] == event:
            return dict(found)
    raise AssertionError(f"{event} did not come; the log: {''.join(seen)}")


@pytest.mark.parametrize(
    ("part", "number", "exit_code"), [("acker", signal.SIGTERM, 143), ("replay", signal.SIGINT, 130)]
)
def test_a_part_says_that_it_is_ready_serves_metrics_and_ends_cleanly_on_a_signal(
    broker: Broker, prefix: str, file: Path, part: str, number: signal.Signals, exit_code: int
) -> None:
    file.write_text(
        f"kafka: {{bootstrap.servers: '{broker.bootstrap}'}}\n"
        f"acker: {{partitions: 1, topic_prefix: '{prefix}'}}\n"
        f"inputs: {{a: {{id: 1, group: g, topic: '{prefix}a', partitions: 1}}}}\n"
    )
    create_topics(load_topics(file, {}))
    port = free_port()

    with process(part, "run", "--config", str(file), "--metrics-port", str(port)) as started:
        ready = wait_for(started, f"{part}.ready")
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            metrics = answer.read().decode()
        for probe in ("livez", "readyz"):
            with urlopen(f"http://127.0.0.1:{port}/{probe}", timeout=10) as answer:
                assert answer.read() == b"ok\n"
        started.send_signal(number)
        wait_for(started, f"{part}.stopped")

        assert started.wait(30) == exit_code
    assert ready["partitions"] == [0]
    assert f"windhover_{part}_partitions 1.0" in metrics


def test_the_page_tells_systemd_that_it_is_ready_and_goes_on_while_no_broker_answers(
    file: Path, nobody: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(NOBODY % nobody)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    port = free_port()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        with process("ui", "--config", str(file), "--port", str(port)) as started:
            assert [systemd.recv(64) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
            with urlopen(f"http://127.0.0.1:{port}/livez", timeout=10) as answer:
                assert answer.read() == b"ok\n"
            started.send_signal(signal.SIGTERM)
            assert started.wait(30) == 128 + signal.SIGTERM
