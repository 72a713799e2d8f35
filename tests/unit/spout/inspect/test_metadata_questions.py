"""A view asks once which brokers are missing: each question takes its time where one is silent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from acker.config.topics import Topics
from acker.kafka.port import Log
from spout.cli import check as cli_check
from spout.cli import inspect as cli_inspect
from spout.cli import main as cli
from tests.support.memory.clients import NoFaults
from tests.support.worlds.planning import World, emit_ten


class Questions(NoFaults):
    """Counts what a command asks."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def before(self, operation: str) -> None:
        """Count an operation."""
        self.counts[operation] += 1


@pytest.mark.parametrize(
    "command",
    [
        *("roots", "roots --group g", "failures", "latency", "status", "machinery", "check"),
        *("inspect sentences/0@3", "inspect --key 3 --from 1d --input sentences"),
    ],
)
@pytest.mark.parametrize("is_emitted", [False, True], ids=["nothing is open", "roots are open"])
def test_which_brokers_are_missing_is_asked_once(
    monkeypatch: pytest.MonkeyPatch, command: str, is_emitted: bool
) -> None:
    """D1009: `roots` asked three times, `failures` and `latency` twice, `inspect` once more a record."""
    world = World()
    if is_emitted:
        emit_ten(world, skip=(3,))
    else:
        world.ready()
    questions = Questions()

    @contextmanager
    def opened(config: Path, command: str) -> Iterator[tuple[Topics, Log]]:
        yield world.topics, world.cluster.log(questions)

    for module in (cli_inspect, cli_check):
        monkeypatch.setattr(module, "opened", opened)
        monkeypatch.setattr(module, "wall_ms", lambda: world.now_ms)
    cli.run(command.split())
    assert questions.counts["missing_brokers"] == 1
