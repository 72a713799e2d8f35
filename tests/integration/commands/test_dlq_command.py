"""A dead letter's whole life by the operators' commands, with a real broker, acker and replay worker.

The query is played by the test: it plans batches as Spark's source runner does, and publishes what became of
them. A record dies, is looked at, is replayed, dies again with both histories, and its third life ends well.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from acker.config.topics import load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Log
from acker.provisioning.provision import create_topics
from spout.cli import main as cli
from spout.planning.journal import BEGINNING, Journal, batch_ranges
from spout.runtime.child import Child
from tests.support.brokers import KFAKE, Broker
from tests.support.memory.cluster import Faults
from tests.support.worlds.planning import COPIES, World, batch

DEADLINE_S = 40.0
SOURCE = 1 << 16


class Live(World):
    """A group on a real broker; time passes by itself."""

    def __init__(self, config: Path) -> None:
        """Create the topics; acker and replay worker are processes of their own."""
        self.topics = load_topics(config, {})
        create_topics(self.topics)
        self.planners, self.told, self.replays, self.acker = [], [], None, None
        self.advice = []
        self._names = self._seq = 0
        self.log = KafkaLog(self.topics.kafka)

    @property
    def now_ms(self) -> int:
        """Wall time."""
        return time.time_ns() // 1_000_000

    def client(self, faults: Faults | None) -> Log:
        """Make a client."""
        return self.log

    def run(self, ms: int) -> None:
        """Step the planning processes until some time is over."""
        until_ms = self.now_ms + ms
        while self.now_ms < until_ms:
            for planner in self.planners:
                planner.step(planner.poll(20), self.now_ms)

    def emit(self, start: Journal, source: int) -> Journal:
        """Plan a batch as soon as there is something of a source to emit."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            end = batch(self.planners[0], start, self)
            if any(run.source == source for run in batch_ranges(start, end)):
                return end
            start = end
            self.run(100)
        raise TimeoutError(f"nothing of source {source} was emitted")


@pytest.fixture
def live(broker: Broker, prefix: str, tmp_path: Path) -> Iterator[Live]:
    config = tmp_path / "topics.yaml"
    config.write_text(f"""
kafka: {{bootstrap.servers: '{broker.bootstrap}'}}
acker: {{partitions: 2, topic_prefix: '{prefix}'}}
inputs:
  sentences:
    id: 1
    group: g
    topic: {prefix}s
    partitions: 1
    timeout: 30s
    retry: {{attempts: 1}}
    dead_letter: {{max_ratio: 1}}
""")
    world = Live(config)
    with Child("acker", config) as acker, Child("replay", config) as replay:
        acker.wait_ready()
        replay.wait_ready()
        yield world
        for planner in world.planners:
            planner.close()
    world.log.close()


Command = Callable[..., tuple[int, str]]


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command; what it gives back is its exit code and its stdout."""

    def run(*arguments: str) -> tuple[int, str]:
        exit_code = cli.run([*arguments, "--config", str(tmp_path / "topics.yaml")])
        return exit_code, capsys.readouterr().out

    return run


def rows(command: Command, *arguments: str) -> list[dict[str, Any]]:
    """Run a command that prints JSON."""
    exit_code, said = command(*arguments, "-o", "json")
    assert exit_code == 0, said
    found: list[dict[str, Any]] = json.loads(said)
    return found


def until(live: Live, what: str, look: Callable[[], bool]) -> None:
    """Wait for something, while the query goes on."""
    deadline = time.monotonic() + DEADLINE_S
    while not look():
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not within {DEADLINE_S} s")
        live.run(200)


def test_a_letter_lives_and_dies_by_the_command(
    live: Live, command: Command, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """What is given up is done for its group, and comes back by an operator's order only."""
    topic = live.topics.input("sentences").topic
    live.produce(5, topic=topic)
    live.planner()
    until(live, "the group is taken", lambda: live.planners[0].is_ready)

    # emitted and open: told of as pending, by every command that looks
    end = live.emit(BEGINNING, SOURCE)
    until(live, "the acker tells of it", lambda: rows(command, "status")[0]["pending"] == 5)
    assert [row["root"] for row in rows(command, "roots")][:2] == [f"{topic}/0@0", f"{topic}/0@1"]
    assert command("roots", "--exit-code")[0] == 5
    assert command("roots", "--older-than", "1h", "--exit-code")[0] == 0
    assert rows(command, "inspect", "sentences/0@2")[0]["now"].startswith("pending: open for")

    # it dies
    live.publish(BEGINNING, end, fail=(2,))
    until(live, "it dies", lambda: len(rows(command, "dlq", "list")) == 1)
    (letter,) = rows(command, "dlq", "list", "--cause", "ValueError", "--operator", "split", "--since", "1h")
    assert (letter["origin"], letter["dead"], letter["message"]) == (f"{topic}/0@2", "ATTEMPTS", "boom")
    assert rows(command, "dlq", "list", "--cause", "KeyError") == []
    assert command("dlq", "list", "--exit-code")[0] == 5
    (shown,) = rows(command, "dlq", "show", "sentences/0@2")
    assert (shown["payload"], shown["letter"], len(shown["history"])) == ("2", letter["letter"], 1)
    assert command("dlq", "show", letter["letter"])[1].count("boom") >= 2

    # a dry run changes nothing; then it is replayed, once
    assert "1 letter would be replayed" in command("dlq", "replay", letter["letter"])[1]
    replay = ("dlq", "replay", letter["letter"], "--execute", "--by", "kim", "--why", "fixed", "--rate", "50")
    assert "1 letter replayed" in command(*replay)[1]
    assert "0 letters replayed" in command(*replay)[1]
    assert rows(command, "dlq", "list") == []
    assert "not emitted yet" in rows(command, "inspect", letter["letter"])[0]["now"]

    # it dies again, and tells of both lives
    after = live.emit(end, COPIES)
    copy = next(run.start for run in batch_ranges(end, after) if run.source == COPIES)
    live.publish(end, after, fail=(copy,), of=COPIES)
    until(live, "it dies again", lambda: len(rows(command, "dlq", "list")) == 1)
    (again,) = rows(command, "dlq", "show", "sentences/0@2")[1:]
    assert [loss["root"] for loss in again["history"]] == [f"{topic}/0@2", f"{topic}.g.replay/0@{copy}"]
    assert rows(command, "inspect", "sentences/0@2")[0]["now"] == f"dead letter at {again['letter']}"

    # by another way of calling it, and by a filter: its third life ends well
    ran = subprocess.run(
        [sys.executable, "-m", "spout.cli", "dlq", "replay", "--cause", "ValueError", "--execute",
         "--config", str(tmp_path / "topics.yaml")],
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout.strip()) == (0, "1 letter replayed"), ran.stderr
    last = live.emit(after, COPIES)
    live.publish(after, last)
    story = "inspect", "sentences/0@2"
    until(live, "it is acked", lambda: rows(command, *story)[0]["now"] == "done: fully processed")
    (told,) = rows(command, *story)
    assert [row["state"] for row in told["attempts"]] == ["FAILED", "FAILED", "ACKED"]
    assert [row["handled"][:9] for row in told["dead_letters"]] == ["REPLAYED ", "REPLAYED "]
    assert told["not_read"] == []
    found = rows(command, "dlq", "redrives")
    assert [(row["acked"], row["died"], row["open"], row["state"]) for row in found] == [
        (0, 1, 0, "DONE"),
        (1, 0, 0, "DONE"),
    ]
    assert (found[0]["by"], found[0]["why"]) == ("kim", "fixed")

    # and nothing is left. Kfake lets the last copy be read before the marker of its transaction, so
    # that the marker alone, at 3, may be a batch of its own there
    progress = last

    def is_done() -> bool:
        nonlocal progress
        following = batch(live.planners[0], progress, live)
        if batch_ranges(progress, following):
            assert request.config.getoption("--broker") == KFAKE
            live.publish(progress, following)
        progress = following
        row = rows(command, "status")[0]
        return (row["lag"], row["pending"], row["replays_due"], row["dead_letters"]) == (0, 0, 0, 0)

    until(live, "nothing is left", is_done)
    assert rows(command, "status")[0]["emitted"] == 5
    exit_code, said = command("dlq", "stats", "--all", "-o", "yaml")
    assert (exit_code, yaml.safe_load(said)[0]["letters"]) == (0, 2)
    assert "sentences/0" in command("status")[1]

    # and the picture has all of it, without a hole
    def asked(query: str) -> list[dict[str, Any]]:
        exit_code, printed = command("sql", "--json", query)
        assert exit_code == 0, printed
        answer: list[dict[str, Any]] = json.loads(printed)
        return answer

    assert asked("SELECT * FROM unknown") == []
    lost = "SELECT sum(end_offset - offset) AS roots FROM verdicts WHERE verdict = 'FAILED'"
    assert asked(lost) == [{"roots": 2}]
    letters = "SELECT origin_offset, error, payload, handled FROM letters"
    life = {"origin_offset": 2, "error": "ValueError", "payload": "2", "handled": "REPLAYED"}
    assert asked(letters) == [life, life]
    assert asked("SELECT begun_by, state, handled FROM redrives")[0] == {
        "begun_by": "kim", "state": "DONE", "handled": 1,
    }  # fmt: skip
    assert asked("SELECT is_owner FROM sessions") == [{"is_owner": 1}]
    assert asked("SELECT count(process) AS acker_count FROM ackers") == [{"acker_count": 2}]
    workers = "SELECT sum(lag) AS lag, sum(due_roots) AS due, count(process) AS count FROM workers"
    assert asked(workers) == [{"lag": 0, "due": 0, "count": 2}]


@pytest.mark.slow
def test_a_key_as_a_command_has_shown_it_finds_its_record_by_the_command_line(
    live: Live, tmp_path: Path
) -> None:
    """O1604: also as the bytes that a shell hands on, which need be no text."""
    keys = [
        None,
        b"null",
        b"",
        b"\xff",
        b"0xff",
        b"%FF",
        b"a\nb",
        "e\u0301".encode(),
        "\u202ea".encode(),
        b" a",
    ]
    topic = live.topics.inputs["sentences"].topic
    live.produce(len(keys), topic=topic, keys=keys)
    live.ready()
    end = live.emit(BEGINNING, SOURCE)
    live.publish(BEGINNING, end, fail=range(len(keys)))

    def listed(*more: str | bytes) -> list[dict[str, Any]]:
        words: list[str | bytes] = [sys.executable, "-m", "spout.cli", "dlq", "list", "-o", "json", *more]
        found = subprocess.run(words, cwd=tmp_path, capture_output=True, timeout=60, check=True)
        return list(json.loads(found.stdout))

    deadline = time.monotonic() + DEADLINE_S
    while len(rows := listed()) < len(keys):
        assert time.monotonic() < deadline, rows
        live.run(200)
    shown = {row["origin"]: "null" if row["key"] is None else row["key"] for row in rows}
    assert [shown[f"{topic}/0@{offset}"] for offset in range(len(keys))] == [
        "null", "%6Eull", "", "%FF", "0xff", "%25FF", "a%0Ab", "e%CC%81", "%E2%80%AEa", "%20a",
    ]  # fmt: skip
    for origin, key in shown.items():
        assert [row["origin"] for row in listed("--key", key)] == [origin]
    assert [row["origin"] for row in listed(b"--key=\xff")] == [f"{topic}/0@3"]
    assert [row["origin"] for row in listed("--key", "a\nb")] == [f"{topic}/0@6"]
