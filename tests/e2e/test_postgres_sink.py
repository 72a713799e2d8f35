"""The example with a sink in PostgreSQL, in a real one: each word once, whatever comes again."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from acker.config.topics import load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import TopicPartition
from examples.postgres_sink import WordTable
from tests.support.brokers import Broker
from tests.support.lacking import lacking
from tests.support.programs import ROOT, running
from tests.support.worlds.stream_worlds import config_of, produce_lines, serving

DEBIAN = Path("/usr/lib/postgresql")
"""Debian keeps each version's programs below it, and none of these two in the PATH."""

SECONDS_MAX = 120
"""For each of PostgreSQL's own commands."""

ROWS = [
    {"record_id": "sentences/0@7", "ordinal": 0, "word": "the"},
    {"record_id": "sentences/0@7", "ordinal": 1, "word": "hawk"},
    {"record_id": "sentences/1@7", "ordinal": 0, "word": "the"},
]


def program(name: str) -> str:
    """Find a program of PostgreSQL."""
    found = shutil.which(name) or next(iter(sorted(map(str, DEBIAN.glob(f"*/bin/{name}")))), None)
    return found or lacking(f"PostgreSQL's {name} is not here; install Debian's package postgresql")


@pytest.fixture
def database() -> Iterator[str]:
    """A PostgreSQL of this test alone, at a socket in its own folder; it refuses to run as root."""
    initdb, pg_ctl = program("initdb"), program("pg_ctl")
    user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    folder = Path(tempfile.mkdtemp(prefix="windhover-pg-"))
    try:
        shutil.chown(folder, user)

        def run(*command: str) -> None:
            # its output into a file: a server that it starts keeps a pipe open for good
            with (folder / "said").open("ab") as said:
                code = subprocess.run(
                    command, user=user, cwd=folder, check=False, timeout=SECONDS_MAX,
                    stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                ).returncode  # fmt: skip
            assert code == 0, (folder / "said").read_text()

        data = str(folder / "data")
        run(initdb, "--pgdata", data, "--username", "words", "--auth", "trust", "--no-sync")
        options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
        log = str(folder / "log")
        run(pg_ctl, "start", "--wait", "--timeout", "100", "-D", data, "-l", log, "-o", options)
        try:
            yield f"host={folder} user=words dbname=postgres"
        finally:
            run(pg_ctl, "stop", "-D", data, "--mode", "immediate")
    finally:
        shutil.rmtree(folder)


def test_rows_that_come_again_stand_once_and_a_batch_that_fails_writes_none(database: str) -> None:
    """At least once into the sink, each word once in the table; a restart finds it as it was."""
    table = WordTable(database)
    table.upsert(ROWS)
    table.upsert(ROWS[1:])
    assert table.counts() == {"the": 2, "hawk": 1}
    with pytest.raises(psycopg.Error):
        table.upsert(
            [{"record_id": "sentences/1@8", "ordinal": 0, "word": "lost"}, {**ROWS[0], "word": None}]
        )
    table.close()
    again = WordTable(database)
    again.upsert([{**ROWS[0], "word": "a"}])
    assert again.counts() == {"a": 1, "the": 1, "hawk": 1}
    again.close()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(400)
def test_the_example_writes_the_words_of_a_topic_and_their_lines_are_acked(
    broker: Broker, database: str, tmp_path: Path
) -> None:
    """As a user runs it, in the folder that has its topics.yaml."""
    topics = load_topics(config_of(tmp_path, broker, ["sentences"]), {})
    source, log = topics.input("sentences"), KafkaLog(topics.kafka)
    produce_lines(log, source.topic, ["the hawk waits", "the hawk hovers"])
    places = [TopicPartition(source.topic, number) for number in range(2)]
    example = (ROOT / "examples" / "postgres_sink.py",)
    with (
        serving(tmp_path / "topics.yaml", "acker"),
        running(example, tmp_path / "log", folder=tmp_path, environ={"DATABASE": database}) as program,
    ):
        program.until(lambda: log.committed(source.group, places) == dict.fromkeys(places, 1))
    log.close()
    table = WordTable(database)
    assert table.counts() == {"the": 2, "hawk": 2, "waits": 1, "hovers": 1}
    table.close()
