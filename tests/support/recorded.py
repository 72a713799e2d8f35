"""What commands printed for recorded installations: text, JSON and exit codes, by their words.

``python -m tests.support.recorded`` writes ``tests/data/recorded_commands.json`` anew. Do that only where
the change is meant: a command that answers in another way has to say the same.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Final, NamedTuple
from unittest.mock import patch

from acker.config.topics import Topics
from acker.kafka.port import Log
from spout.cli import dlq as cli_dlq
from spout.cli import main as cli
from tests.support.memory.cluster import MemoryCluster
from tests.support.worlds.letters_world import NOW_MS, ORDERS, TOPICS, recorded_letters

PATH: Final = Path(__file__).parents[1] / "data" / "recorded_commands.json"

LATE: Final = "2026-07-01T09:30:00Z"
"""A time at which some of the letters had died."""

FILTERS: Final = (
    "",
    "--all",
    "--input orders",
    "--input orders.h.dlq --input sentences --all",
    "--cause ValueError",
    "--cause TIMED_OUT",
    "--cause E%1B[2JError",
    "--operator count",
    "--operator b%E2%80%AEt",
    "--reason DROPPED",
    "--reason gone --all",
    "--key key-3",
    "--key null",
    """--key '""'""",
    "--key %FF",
    "--since 2h",
    f"--since {LATE} --all",
    "--until 5h",
    "--since 4d --until 1h --cause KeyError",
    "--cause Nowhere",
)

COMMANDS: Final = (
    *(f"dlq {command} {words}".strip() for command in ("stats", "list") for words in FILTERS),
    "dlq list --limit 2",
    "dlq list --exit-code",
    "dlq list --cause Nowhere --exit-code",
    "dlq list orders/1@103 sentences.g.dlq/0@2",
    "dlq list --all orders/1@103",
    "dlq list nowhere",
    "dlq stats --input nowhere",
    "dlq stats --reason FAILED",
    "dlq stats -o json",
    "dlq stats --all -o json",
    "dlq stats --cause Nowhere -o json",
    "dlq list --all -o json",
)


class Printed(NamedTuple):
    """What a command printed, line by line, and its exit code."""

    exit_code: int
    out: list[str]
    err: list[str]


def whole(cluster: MemoryCluster) -> None:
    """Leave the installation as it is."""


def without_topic(cluster: MemoryCluster) -> None:
    """Let one of the dead-letter topics be missing."""
    cluster.delete_topic(ORDERS)


def without_leader(cluster: MemoryCluster) -> None:
    """Let one partition of the dead letters have no leader."""
    cluster.lose_leader(ORDERS, 1)


SITUATIONS: Final = {
    "whole": (whole, COMMANDS),
    "without a topic": (without_topic, ("dlq stats", "dlq stats --input sentences", "dlq list")),
    "without a leader": (without_leader, ("dlq stats", "dlq stats --input sentences", "dlq list")),
}
"""What befalls the installation, and the commands that are called then."""


def printed_by(cluster: MemoryCluster, words: str) -> Printed:
    """Run a command beside a cluster in memory."""

    @contextmanager
    def opened(_config: Path, _command: str) -> Iterator[tuple[Topics, Log]]:
        yield TOPICS, cluster.log()

    out, err = StringIO(), StringIO()
    with (
        patch.object(cli_dlq, "opened", opened),
        patch.object(cli_dlq, "wall_ms", lambda: NOW_MS),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        exit_code = cli.run(shlex.split(words))
    return Printed(exit_code, out.getvalue().splitlines(), err.getvalue().splitlines())


def printed_in(situation: str) -> dict[str, Printed]:
    """Run all commands of a situation, by their words."""
    befall, commands = SITUATIONS[situation]
    cluster = recorded_letters().cluster
    befall(cluster)
    return {words: printed_by(cluster, words) for words in commands}


def recorded() -> Mapping[str, Mapping[str, Printed]]:
    """Return what was recorded, by situation and the words of the command."""
    document = json.loads(PATH.read_text(encoding="utf-8"))
    return {
        situation: {words: Printed(*printed) for words, printed in by_words.items()}
        for situation, by_words in document.items()
    }


if __name__ == "__main__":
    of_situations = {situation: printed_in(situation) for situation in SITUATIONS}
    text = json.dumps(of_situations, indent=1, ensure_ascii=False)
    PATH.write_text(f"{text}\n", encoding="utf-8")
