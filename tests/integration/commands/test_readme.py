"""What README.md and docs/ tell a stranger to do works as it stands there."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from acker.config.topics import load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing
from acker.provisioning import provision
from spout.cli.main import run
from spout.local.embedded import EmbeddedBroker, free_port
from spout.local.up import BOOTSTRAP
from spout.runtime import tether
from spout.runtime.child import Child
from tests.support.lacking import lacking
from tests.support.programs import Program, running

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
NIGHT = (ROOT / "docs" / "operate" / "night.md").read_text(encoding="utf-8")
INSTALL_SECONDS_MAX = 120
DEMO_SECONDS_MAX = 280
DEMO_RECORDS = 20_000
"""The demo's own number takes a minute of two cores."""
PAGE = re.compile(r"^page: (http\S+)", re.MULTILINE)
LINES = ["the hawk hovers", "the hawk waits"]


def commands(page: str = README) -> list[str]:
    """The commands of the console blocks of a page, without the prompt."""
    blocks = re.findall(r"```console\n(.*?)```", page, re.S)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def pipeline(kind: str) -> list[str]:
    """The blocks of one kind in the README's first pipeline."""
    section = re.search(r"\n## A first pipeline\n(.*?)\n## ", README, re.S)
    assert section is not None, "README.md has no first pipeline"
    return re.findall(rf"```{kind}\n(.*?)```", section[1], re.S)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaLog]:
    """A broker with the topics of topics.yaml, an acker, and lines to read; the README's own environment."""
    with EmbeddedBroker() as broker:
        monkeypatch.setenv(BOOTSTRAP, broker.bootstrap)
        monkeypatch.chdir(ROOT)
        topics = load_topics(ROOT / "topics.yaml", {BOOTSTRAP: broker.bootstrap})
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


def edges_drawn(page: str) -> set[tuple[str, str]]:
    """Return the edges of all graphs on a page; none before it answers."""
    asked = Request(f"{page}topology", headers={"accept": "application/json"})
    try:
        with urlopen(asked, timeout=10) as answer:
            graphs = json.load(answer)
    except OSError:
        return set()
    return {(edge["source"], edge["operator"]) for graph in graphs for edge in graph["edges"]}


@pytest.mark.spark
@pytest.mark.timeout(DEMO_SECONDS_MAX + 20)
def test_the_demo_command_draws_its_graph_and_proves_every_check(tmp_path: Path) -> None:
    """`uv run` itself is left out: the tests run in the environment that it makes.

    It takes longer than others that are marked slow, and is not: a run without options has this one from end
    to end, on a real broker and a real Spark, in which an acker is killed.
    """
    _, _, command = commands()[0].partition("uv run windhover ")
    arguments = ["-m", "spout.cli", command, "--json", "--records", str(DEMO_RECORDS)]
    with running(arguments, tmp_path / "demo.log") as demo:
        demo.until(lambda: PAGE.search(demo.said))
        # at the address named last: where another page has the first one, this one gets another
        graph = {("spout", "check"), ("check", "split"), ("split", "count")}
        demo.until(lambda: edges_drawn(PAGE.findall(demo.said)[-1]) >= graph)
        assert demo.ended() == 0, demo.said[-4_000:]
        outcome: dict[str, Any] = json.loads(demo.said.splitlines()[-1])
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


def installed(folder: Path) -> Path:
    """Install the package as a wheel into a new environment; return the folder of its programs.

    What the package needs comes from the environment of the tests: it would take minutes to install.
    """
    uv = shutil.which("uv") or lacking("uv is not in the PATH")
    wheels, env = folder / "wheels", folder / ".venv"
    for words in (
        ["build", "--wheel", "--out-dir", wheels, ROOT],
        ["venv", "--python", sys.executable, env],
    ):
        subprocess.run([uv, *words], check=True, capture_output=True, timeout=INSTALL_SECONDS_MAX)
    wheel = next(wheels.glob("*.whl"))
    subprocess.run(
        [uv, "pip", "install", "--python", env, "--no-deps", wheel],
        check=True,
        capture_output=True,
        timeout=INSTALL_SECONDS_MAX,
    )
    site = next(env.glob("lib/python*/site-packages"))
    # a folder that a .pth file names is searched, but not for further .pth files: not for the checkout
    (site / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return env / "bin"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_first_pipeline_runs_as_it_stands_from_the_installed_package(tmp_path: Path) -> None:
    """In a new directory, the processes in README's order; Spark's workers find the package by themselves."""
    port = str(free_port())
    bin_folder = installed(tmp_path)
    for name, kind in (("topics.yaml", "yaml"), ("pipeline.py", "python")):
        (tmp_path / name).write_text(pipeline(kind)[0].replace("9092", port))
    commands = [shlex.split(line) for line in pipeline("sh")[1].replace("9092", port).splitlines()]
    assert [words[:3] for words in commands] == [
        ["uv", "run", "windhover"],
        ["uv", "run", "python"],
        ["uv", "run", "python"],
    ]
    # not the environment's folder before all others, as `uv run` would have it: python3 is another one
    environ = {
        name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "PYTHONPATH")
    }
    environ["PATH"] = os.defpath if shutil.which("java", path=os.defpath) else os.environ["PATH"]
    environ["PYTHONUNBUFFERED"] = "1"

    with ExitStack() as stack:

        def start(number: int) -> Program:
            program, *words = commands[number][2:]
            log = tmp_path / f"log{number}"
            command = tether.Command([str(bin_folder / program), *words], log, tmp_path, environ)
            process = tether.spawn(command)
            stack.callback(lambda: tether.stop(process, 60_000) if process.poll() is None else None)
            return Program(process, log)

        up = start(0)
        up.until(lambda: "\nready: " in up.said)
        query = start(1)
        assert start(2).ended() == 0
        words = [f"{word} sentences/" for word in ("the", "hawk", "waits")]
        query.until(lambda: all(word in query.said for word in words))
        assert "workers_run_this_python" in query.said
