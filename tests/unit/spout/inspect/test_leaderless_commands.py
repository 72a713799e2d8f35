"""Every command that asks a cluster, while one partition of one topic has no leader."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from acker.config.topics import Topics
from acker.kafka.port import Log
from spout.cli import check as cli_check
from spout.cli import dlq as cli_dlq
from spout.cli import inspect as cli_inspect
from spout.cli import main as cli
from spout.cli import operate as cli_operate
from tests.support.worlds import planning

COMMANDS = (
    "status",
    "status -o json",
    "machinery",
    "machinery -o yaml",
    "check",
    "check -o json",
    "check -o prometheus",
    "roots",
    "failures",
    "latency",
    "inspect sentences/0@2",
    "inspect sentences/1@0",
    "dlq list",
    "dlq stats",
    "dlq redrives",
    "dlq show sentences/0@1",
    "dlq replay sentences/0@1",
    "dlq drop sentences/0@1 --reason old",
    "topics repair",
    "offsets reset sentences --to earliest",
    "offsets reset sentences --to 1h --partition 0",
    "replay resume sentences",
    "acker free sentences",
)

LOST = 0
"""The partition without a leader."""

SOON_S = 10.0
"""The in-memory cluster answers at once, so that a command that waits longer waits in vain."""

YAML = planning.yaml_of(
    timeout="4s", retry="{attempts: 1}", dead_letter="{max_ratio: 1, max_consecutive: 100}"
)
TOPICS = ("sentences", "sentences.g.replay", "sentences.g.dlq", "_ack_init", "_ack_ack", "_ack_verdict")
TOPICS += ("_ack_due", "_ack_state", "_ack_fail", "_ack_quarantine")


def world_with_letters() -> planning.World:
    """Return a world with an open root and dead letters."""
    world = planning.World(YAML)
    world.start_replays()
    planning.emit_ten(world, skip=(2,), fail=(1, 4), then_ms=2_000)
    return world


def let_see(monkeypatch: pytest.MonkeyPatch, world: planning.World) -> None:
    """Let the commands see a world's cluster, at its time."""

    @contextmanager
    def opened(config: Path, command: str) -> Iterator[tuple[Topics, Log]]:
        yield world.topics, world.cluster.log()

    for module in (cli, cli_dlq, cli_inspect, cli_check, cli_operate):
        monkeypatch.setattr(module, "opened", opened)
    for module in (cli_inspect, cli_check):
        monkeypatch.setattr(module, "wall_ms", lambda: world.now_ms)


def is_in_data(printed: str, topic: str) -> bool:
    """Return whether YAML or Prometheus' text names the lost partition of a topic."""
    as_yaml = f"topic: {topic}\n  partition: {LOST}\n"
    as_label = f'kind="no_answer",topic="{topic}",partition="{LOST}"'
    return as_yaml in printed or as_label in printed


@pytest.mark.sample(4)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_names_the_partition_that_it_needs_and_says_the_rest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """O421: or it needs it not, and says what it said before; none hangs, or ends as a defect."""
    world = world_with_letters()
    let_see(monkeypatch, world)
    sound_code = cli.run(command.split())
    sound = capsys.readouterr()
    for topic in world.cluster.log().topics(TOPICS):
        world.cluster.lose_leader(topic, LOST)
        begun_s = time.monotonic()
        code = cli.run(command.split())
        took_s = time.monotonic() - begun_s
        world.cluster.elect_leader(topic, LOST)

        harmed = capsys.readouterr()
        printed = harmed.out + harmed.err
        assert "defect" not in harmed.err
        assert took_s < SOON_S
        is_named = f"{topic}/{LOST} has no leader" in printed or is_in_data(printed, topic)
        is_as_before = (code, harmed.out, harmed.err) == (sound_code, sound.out, sound.err)
        assert is_named or is_as_before, (topic, code, printed, sound_code, sound)
