"""Each example's program as a user runs it, beside a broker, an acker and a replay worker.

A Spark of its own takes longer to start than an example to run. So one that is interrupted and one that ends
are processes of their own, and the others run one after the other in the main thread of a process with one
Spark. What the examples' functions do with failures and restarts is judged in
tests/integration/commands/test_examples.py.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow.dataset as ds
import pytest

from acker.config.topics import Topics, load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing
from acker.provisioning.provision import create_topics
from spout.runtime.child import Child
from tests.support.bolts.examples_job import ENDED, FAILED, INTERRUPTED
from tests.support.brokers import Broker
from tests.support.programs import ROOT, Program, running

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.by_turns]

EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
AT = "2026-11-21T10:0{}:{} {}"

Rows = list[tuple[object, ...]]


@dataclass(frozen=True)
class Case:
    """What is produced for an example that writes files, by input, and the rows that it has to write."""

    lines: dict[str, Sequence[str]]
    rows: Rows
    kind: str = "parquet"
    columns: tuple[str, ...] | None = None


TO_FILES = {
    "enrichment": Case(
        {"visits": [f"user{n} 10.0.0.{n}" for n in range(40)]},
        sorted((f"user{n} from {('AT', 'CH', 'DE')[n % 3]}",) for n in range(40)),
        "json",
        ("visit",),
    ),
    "sessions": Case({"actions": ["u1 enter", "u2 enter", "u1 leave"]}, [("u1", "enter leave")]),
    "sql_only": Case(
        {"orders": [json.dumps({"id": n, "total": 5.0 * n}) for n in range(4)]}, [(2, 10.0), (3, 15.0)]
    ),
    "stream_join": Case(
        {
            "purchases": [AT.format(0, "01", "p1 10")],
            "payments": [AT.format(0, "03", "p1 8"), AT.format(2, "00", "p3 1")],
        },
        [("p1", 8.0)],
    ),
    "stream_stream_join": Case(
        {
            "shown": [AT.format(0, "01", "a1"), AT.format(0, "02", "a2"), AT.format(9, "00", "a3")],
            "clicked": [AT.format(0, "03", "a1"), AT.format(9, "01", "a3")],
        },
        [("a1", True), ("a2", False), ("a3", True)],
    ),
    "windowed_aggregation": Case(
        {"clicks": [AT.format(0, "01", "a"), AT.format(0, "02", "a"), AT.format(2, "00", "d")]},
        [("a", 2)],
        columns=("page", "clicks"),
    ),
}
ENDING = {
    "diamond_join": {"14 characters, 3 words", "15 characters, 3 words"},
    "exactly_once": {"2  the", "2  hawk", "1  waits", "1  hovers"},
    "word_count": {"2  the", "2  hawk", "1  waits", "1  hovers"},
}
"""Examples that print what is there now and end, with what they print."""

ALONE = "sql_only", "word_count"
"""One that is interrupted, and one that ends: each is a process with a Spark of its own."""

UNTIL_STOPPED = {
    "single_join": (
        {"genders": ["1 female", "2 male", "3 female"], "ages": ["2 22", "1 21"]},
        {"female, 21", "male, 22"},
    ),
    "rolling_top_words": (
        {"words": ["the", "hawk", "the", "kite", "hawk", "the"]},
        {"1. the 3", "2. hawk 2", "3. kite 1"},
    ),
}
"""Examples that print until they are interrupted: what is produced for them, and lines that they print."""

COUNTED = {
    "exactly_once_kafka": ({"lines": ["the hawk waits", "the hawk hovers"]}, ENDING["exactly_once"]),
}
"""Examples that print what their topics have and end: what is produced for them, and what they print."""

RUN_WITH_A_DATABASE = {
    "exactly_once_postgres": "test_postgres_sink.py",
    "opaque_counts": "test_postgres_sink.py",
    "postgres_sink": "test_postgres_sink.py",
}
"""Examples that have a test of their own."""


@pytest.fixture(scope="module")
def environ(broker: Broker) -> dict[str, str]:
    """What the examples' topics.yaml takes from the environment."""
    return {"KAFKA_BOOTSTRAP": broker.bootstrap, "PREFIX": "run-"}


@pytest.fixture(scope="module")
def topics(environ: dict[str, str]) -> Iterator[Topics]:
    """Make the topics of examples/topics.yaml, and run an acker and a replay worker for them."""
    config = ROOT / "examples" / "topics.yaml"
    found = load_topics(config, environ)
    create_topics(found)
    with serving(config, environ):
        yield found


@contextmanager
def serving(config: Path, environ: dict[str, str]) -> Iterator[None]:
    """Run an acker and a replay worker with an environment of their own as long as the context lasts."""
    everything = {**os.environ, **environ}
    with (
        Child("acker", config, environ=everything) as acker,
        Child("replay", config, environ=everything) as replay,
    ):
        acker.wait_ready()
        replay.wait_ready()
        yield


def produce(topics: Topics, lines: dict[str, Sequence[str]]) -> None:
    """Write lines, half of them to each partition of their input."""
    log = KafkaLog(topics.kafka)
    producer = log.producer()
    for name, values in lines.items():
        for number, value in enumerate(values):
            producer.send(Outgoing(topics.input(name).topic, number % 2, value.encode()))
    producer.flush(30_000)
    producer.close()
    log.close()


def committed(folder: Path) -> list[str]:
    """Return the files that Spark's file sink has committed; others are there that it still writes."""
    logs = [path for path in (folder / "_spark_metadata").glob("[0-9]*") if not path.name.startswith(".")]
    entries = [line for path in logs for line in path.read_text().splitlines()[1:]]
    return sorted({unquote(urlparse(json.loads(entry)["path"]).path) for entry in entries})


def rows_in(folder: Path, case: Case) -> Rows:
    """Read the distinct rows that have been written up to now."""
    files = committed(folder)
    if not files:
        return []
    table = ds.dataset(files, format=case.kind).to_table(columns=case.columns and list(case.columns))
    return sorted({tuple(row.values()) for row in table.to_pylist()})


def test_every_example_is_run() -> None:
    assert sorted([*TO_FILES, *ENDING, *COUNTED, *UNTIL_STOPPED, *RUN_WITH_A_DATABASE]) == EXAMPLES


class Stage:
    """A process with one Spark, in which an example runs as if it were the process's own program."""

    def __init__(self, program: Program, pipe: int) -> None:
        self._program = program
        self._pipe = pipe
        self._begin = 0
        self._file = ""

    def run(self, folder: Path, name: str, *arguments: Path) -> None:
        """Begin with an example, and end the one of a test that failed before it had ended its own."""
        if self._file and not self._over():
            self.interrupt()
        self._begin = len(self._program.said)
        self._file = str(ROOT / "examples" / f"{name}.py")
        os.write(self._pipe, json.dumps([str(folder), self._file, *map(str, arguments)]).encode() + b"\n")

    def said(self) -> set[str]:
        """Return the lines of the example up to now, without the blanks around them."""
        return {line.strip() for line in self._program.said[self._begin :].splitlines()}

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition while the example runs."""
        self._program.until(lambda: condition() or self._over())
        assert condition(), f"{self._file} ended too early:\n{self._program.said[self._begin :][-4_000:]}"

    def interrupt(self) -> None:
        """Let Ctrl-C end the example."""
        self._program.send(signal.SIGINT)
        self.until(lambda: f"{INTERRUPTED}{self._file}" in self.said())

    def ended(self) -> bool:
        """Whether the example has ended by itself."""
        return f"{ENDED}{self._file}" in self.said()

    def _over(self) -> bool:
        """Whether it has come to any end."""
        return not self.said().isdisjoint(f"{end}{self._file}" for end in (ENDED, FAILED, INTERRUPTED))


@pytest.fixture(scope="module")
def stage(environ: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("stage")
    os.mkfifo(folder / "pipe")
    # opened for both, a pipe waits for nobody at its other end
    pipe = os.open(folder / "pipe", os.O_RDWR)
    module = ("-m", "tests.support.bolts.examples_job", folder / "pipe")
    with running(module, folder / "log", environ={**environ, "PYTHONPATH": str(ROOT)}) as program:
        yield Stage(program, pipe)
    os.close(pipe)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", [name for name in TO_FILES if name not in ALONE])
def test_an_example_writes_its_rows_until_it_is_interrupted(
    name: str, topics: Topics, stage: Stage, tmp_path: Path
) -> None:
    case = TO_FILES[name]
    produce(topics, case.lines)
    stage.run(tmp_path, name, tmp_path / "out", tmp_path / "checkpoint")
    stage.until(lambda: rows_in(tmp_path / "out", case) == case.rows)
    stage.interrupt()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", UNTIL_STOPPED)
def test_an_example_prints_its_rows_until_it_is_interrupted(
    name: str, topics: Topics, stage: Stage, tmp_path: Path
) -> None:
    lines, printed = UNTIL_STOPPED[name]
    produce(topics, lines)
    stage.run(tmp_path, name, tmp_path / "checkpoint")
    stage.until(lambda: printed <= stage.said())
    stage.interrupt()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", COUNTED)
def test_an_example_reads_what_it_has_written_and_ends(
    name: str, topics: Topics, stage: Stage, tmp_path: Path
) -> None:
    """Twice, each time with a fresh checkpoint: the second run finds what the first one has written."""
    lines, printed = COUNTED[name]
    produce(topics, lines)
    for _ in range(2):
        stage.run(tmp_path, name)
        stage.until(stage.ended)
        assert printed <= stage.said()


@pytest.mark.timeout(400)
def test_an_example_starts_a_spark_of_its_own_and_ctrl_c_ends_its_process(
    topics: Topics, environ: dict[str, str], tmp_path: Path
) -> None:
    case = TO_FILES[ALONE[0]]
    produce(topics, case.lines)
    arguments = (ROOT / "examples" / f"{ALONE[0]}.py", tmp_path / "out", tmp_path / "checkpoint")
    with running(arguments, tmp_path / "log", folder=tmp_path, environ=environ) as example:
        example.until(lambda: rows_in(tmp_path / "out", case) == case.rows)
        example.send(signal.SIGINT)
        assert example.ended() != 0
        assert "KeyboardInterrupt" in example.said


@contextmanager
def sentences(broker: Broker, prefix: str, folder: Path) -> Iterator[None]:
    """Have a topics.yaml in a folder, lines in its input, and its services, as long as the context lasts."""
    config = folder / "topics.yaml"
    config.write_text(
        f'kafka: {{bootstrap.servers: "{broker.bootstrap}"}}\n'
        f'acker: {{partitions: 2, topic_prefix: "{prefix}"}}\n'
        f'inputs: {{sentences: {{id: 1, topic: "{prefix}s", group: "{prefix}g", partitions: 2}}}}\n'
    )
    topics = load_topics(config, {})
    create_topics(topics)
    produce(topics, {"sentences": ["the hawk waits", "the hawk hovers"]})
    with serving(config, {}):
        yield


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", [name for name in ENDING if name not in ALONE])
def test_an_example_counts_what_is_there_and_ends(
    name: str, broker: Broker, prefix: str, stage: Stage, tmp_path: Path
) -> None:
    """With the topics.yaml of the folder that it is run in."""
    with sentences(broker, prefix, tmp_path):
        stage.run(tmp_path, name)
        stage.until(stage.ended)
        assert ENDING[name] <= stage.said()


@pytest.mark.timeout(400)
def test_an_example_that_ends_ends_its_process(broker: Broker, prefix: str, tmp_path: Path) -> None:
    """With the topics.yaml of the folder that it is run in."""
    program = (ROOT / "examples" / f"{ALONE[1]}.py",)
    with (
        sentences(broker, prefix, tmp_path),
        running(program, tmp_path / "log", folder=tmp_path) as example,
    ):
        assert example.ended() == 0, example.said
        assert ENDING[ALONE[1]] <= {line.strip() for line in example.said.splitlines()}
