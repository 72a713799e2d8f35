"""What README.md and docs/ tell a stranger to do works as it stands there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acker.config.topics import load
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing
from acker.provisioning import provision
from spout.cli.main import run
from spout.local.embedded import EmbeddedBroker
from spout.local.up import BOOTSTRAP
from spout.runtime.child import Child

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
NIGHT = (ROOT / "docs" / "operate" / "night.md").read_text(encoding="utf-8")
DEMO_SECONDS_MAX = 280
DEMO_RECORDS = 20_000
"""The demo's own number takes a minute of two cores."""
LINES = ["the hawk hovers", "the hawk waits"]


def commands(page: str = README) -> list[str]:
    """The commands of the console blocks of a page, without the prompt."""
    blocks = re.findall(r"```console\n(.*?)```", page, re.S)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaLog]:
    """A broker with the topics of topics.yaml, an acker, and lines to read; the README's own environment."""
    with EmbeddedBroker() as broker:
        monkeypatch.setenv(BOOTSTRAP, broker.bootstrap)
        monkeypatch.chdir(ROOT)
        topics = load(ROOT / "topics.yaml", {BOOTSTRAP: broker.bootstrap})
        provision.create_topics(topics)
        log = KafkaLog(topics.kafka)
        with Child("acker", ROOT / "topics.yaml") as acker:
            acker.wait_ready()
            producer = log.producer()
            for number, line in enumerate(LINES):
                producer.send(Outgoing("sentences", number, line.encode()))
            producer.flush(10_000)
            producer.close()
            yield log
        log.close()


def test_the_readme_names_the_two_commands() -> None:
    assert commands() == ["uv run windhover demo", "uv run --group dev pytest"]


def test_the_commands_of_an_operator_run(served: KafkaLog, capsys: pytest.CaptureFixture[str]) -> None:
    """On a group that nobody has taken yet: what is not known is said, and nothing is changed."""
    operators = [line.split() for line in commands(NIGHT)]
    assert {words[1] for words in operators} == {"status", "roots", "inspect", "dlq"}
    for program, *words in operators:
        assert program == "windhover"
        assert run(words) == 0, capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(DEMO_SECONDS_MAX + 20)
def test_the_demo_command_proves_every_check() -> None:
    """`uv run` itself is left out: the tests run in the environment that it makes."""
    _, _, command = commands()[0].partition("uv run windhover ")
    ran = subprocess.run(
        [sys.executable, "-m", "spout.cli", command, "--json", "--records", str(DEMO_RECORDS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEMO_SECONDS_MAX,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-2_000:] + ran.stderr[-4_000:]
    outcome: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    found = {name: outcome[name] for name in ("records", "dead_lettered", "pending", "lost")}
    assert found == {"records": DEMO_RECORDS, "dead_lettered": 1, "pending": 0, "lost": 0}
    assert outcome["duplicates_from_acker_kill"] == 0
    assert outcome["counts_correct"] is True
    assert outcome["committed_to_end"] is True


def test_the_test_command_finds_the_tests() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/unit/spout/demo/test_demo.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    assert "test_demo.py" in ran.stdout
