"""What commands printed for recorded installations: text, JSON and exit codes, by their words.

``python -m tests.support.recorded`` writes ``tests/data/recorded_commands.json`` anew. Do that only where
the change is meant: a command that answers in another way has to say the same.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Final, NamedTuple
from unittest.mock import patch
from urllib.parse import quote

from acker.config.topics import Topics
from acker.kafka.port import Log, TopicPartition
from acker.notation import show_text
from spout.cli import dlq as cli_dlq
from spout.cli import main as cli
from tests.support.memory.cluster import MemoryCluster
from tests.support.odd_records import ODD_RECORDS, append_odd
from tests.support.page_server import client_of
from tests.support.worlds.letters_world import (
    NOW_MS,
    ORDERS,
    SENTENCES,
    TOPICS,
    LettersWorld,
    recorded_details,
    recorded_letters,
)
from tests.support.worlds.redrives_world import UNSEEN_NAME, recorded_redrives

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

REDRIVE_COMMANDS: Final = (
    "dlq redrives",
    "dlq redrives --input orders",
    "dlq redrives --input sentences.g.dlq --input orders.h.dlq",
    "dlq redrives --input nowhere",
    "dlq redrives --since 2d",
    "dlq redrives --since 5h",
    "dlq redrives --since 1m",
    f"dlq redrives --since {LATE}",
    "dlq redrives --since yesterday",
    "dlq redrives -o json",
    "dlq redrives -o json --since 2d",
    "dlq redrives -o json --since 1m",
    "/redrives",
    "/redrives?since=30d",
    "/redrives?since=1m",
    "/redrives?since=yesterday",
    "/redrives/r-old",
    "/redrives/r1",
    "/redrives/r2",
    "/redrives/r3",
    "/redrives/r4",
    f"/redrives/{quote(show_text(UNSEEN_NAME), safe='')}",
    "/redrives/r-nobody",
)
"""Commands, and addresses of pages as programs read them."""

_DETAILED_PLACES: Final = (
    *(f"{SENTENCES}/0@{offset}" for offset in range(9)),
    f"{SENTENCES}/1@0",
    "sentences/1@7",
    f"{ORDERS}/1@0",
)

DETAIL_COMMANDS: Final = (
    *(f"dlq show {place}" for place in _DETAILED_PLACES),
    f"dlq show {' '.join(_DETAILED_PLACES)} -o json",
    f"dlq show {SENTENCES}/0@3 orders/1@100 {SENTENCES}/1@0",
    f"dlq show {SENTENCES}/0@3 {SENTENCES}/0@3 -o yaml",
    f"dlq show {SENTENCES}/0@9",
    f"dlq show {SENTENCES}/0@99",
    f"dlq show {SENTENCES}/7@0",
    "dlq show sentences/0@4711",
    "dlq show nowhere",
    "dlq show",
    f"/letter/{SENTENCES}/1@0",
    "/letter/sentences/1@7",
    f"/letter/{SENTENCES}/0@99",
    "/letter/nowhere",
)

FEW_DETAIL_COMMANDS: Final = (
    f"dlq show {SENTENCES}/0@0",
    f"dlq show {ORDERS}/1@0",
    "dlq show sentences/1@7 -o json",
    f"/letter/{SENTENCES}/0@0",
)

FEW_REDRIVE_COMMANDS: Final = (
    "dlq redrives",
    "dlq redrives --input sentences",
    "dlq redrives -o json --since 1m",
    "/redrives/r1",
    "/redrives/r2",
)


class Printed(NamedTuple):
    """What a command printed, line by line, and its exit code; of a page its status, and its JSON."""

    exit_code: int
    out: list[str]
    err: list[str]


class Situation(NamedTuple):
    """An installation, what befalls it, and the commands that are called then."""

    recorded_world: Callable[[], LettersWorld]
    befall: Callable[[MemoryCluster], None]
    commands: tuple[str, ...]


def whole(cluster: MemoryCluster) -> None:
    """Leave the installation as it is."""


def without_topic(cluster: MemoryCluster) -> None:
    """Let one of the dead-letter topics be missing."""
    cluster.delete_topic(ORDERS)


def without_leader(cluster: MemoryCluster) -> None:
    """Let one partition of the dead letters have no leader."""
    cluster.lose_leader(ORDERS, 1)


def without_copies(cluster: MemoryCluster) -> None:
    """Let the topic of an input's copies be missing."""
    cluster.delete_topic(TOPICS.input("sentences").replay_topic)


def without_verdicts(cluster: MemoryCluster) -> None:
    """Let the topic of the verdicts be missing."""
    cluster.delete_topic("_ack_verdict")


def without_leader_of_copies(cluster: MemoryCluster) -> None:
    """Let one partition of an input's copies have no leader."""
    cluster.lose_leader(TOPICS.input("sentences").replay_topic, 1)


def without_leader_of_audits(cluster: MemoryCluster) -> None:
    """Let the partition that has the audit records of one input have no leader."""
    cluster.lose_leader(ORDERS, 0)


def with_odd_records(cluster: MemoryCluster) -> None:
    """Let others write records that nobody expects into all topics that redrives are read from."""
    for topic in (SENTENCES, TOPICS.input("sentences").replay_topic, "_ack_verdict"):
        for odd in ODD_RECORDS:
            append_odd(cluster, TopicPartition(topic, 0), odd)


def with_cleaned_letters(cluster: MemoryCluster) -> None:
    """Let the first part of the log of letters and redrives be deleted."""
    cluster.log().delete_before({TopicPartition(SENTENCES, 0): 15, TopicPartition(SENTENCES, 1): 15})


_LETTERS: Final = ("dlq stats", "dlq stats --input sentences", "dlq list")

SITUATIONS: Final[Mapping[str, Situation]] = {
    "whole": Situation(recorded_letters, whole, COMMANDS),
    "without a topic": Situation(recorded_letters, without_topic, _LETTERS),
    "without a leader": Situation(recorded_letters, without_leader, _LETTERS),
    "details": Situation(recorded_details, whole, DETAIL_COMMANDS),
    **{
        f"details {befall.__name__.replace('_', ' ')}": Situation(
            recorded_details, befall, FEW_DETAIL_COMMANDS
        )
        for befall in (without_topic, without_leader, with_odd_records)
    },
    "redrives": Situation(recorded_redrives, whole, REDRIVE_COMMANDS),
    **{
        f"redrives {befall.__name__.replace('_', ' ')}": Situation(
            recorded_redrives, befall, FEW_REDRIVE_COMMANDS
        )
        for befall in (
            without_topic,
            without_leader,
            without_copies,
            without_verdicts,
            without_leader_of_copies,
            without_leader_of_audits,
            with_odd_records,
            with_cleaned_letters,
        )
    },
}


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


def page_of(world: LettersWorld, address: str) -> Printed:
    """Ask for a page as programs do."""
    client, _jobs = client_of(world)
    answer = client.get(address, headers={"accept": "application/json"})
    return Printed(answer.status_code, json.dumps(answer.json(), indent=1).splitlines(), [])


def printed_in(situation: str) -> dict[str, Printed]:
    """Run all commands of a situation, by their words."""
    recorded_world, befall, commands = SITUATIONS[situation]
    world = recorded_world()
    befall(world.cluster)
    printed: dict[str, Printed] = {}
    for words in commands:
        is_page = words.startswith("/")
        printed[words] = page_of(world, words) if is_page else printed_by(world.cluster, words)
    return printed


def recorded(path: Path = PATH) -> Mapping[str, Mapping[str, Printed]]:
    """Return what was recorded in a file, by situation and the words of the command."""
    document = json.loads(path.read_text(encoding="utf-8"))
    return {
        situation: {words: Printed(*printed) for words, printed in by_words.items()}
        for situation, by_words in document.items()
    }


def write_recorded(path: Path, printed_by_situation: Mapping[str, Mapping[str, Printed]]) -> None:
    """Write what `recorded` reads."""
    text = json.dumps(printed_by_situation, indent=1, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    write_recorded(PATH, {situation: printed_in(situation) for situation in SITUATIONS})
