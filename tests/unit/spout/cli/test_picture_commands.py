"""`windhover sql` and `windhover picture` as they are called: output, exit codes, and wrong calls."""

from __future__ import annotations

import csv
import io
import json
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from acker.config.topics import Topics
from acker.errors import Unreachable
from acker.kafka.port import Log
from spout.cli import main as cli
from spout.cli import picture as cli_picture
from spout.picture.query import Answer, Query
from tests.support.hostile import unseen
from tests.support.worlds.replay_world import NoBroker, World, topics

ONCE = topics(attempts=1)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Let the commands see a cluster in memory with three dead letters, of hostile keys."""
    made = World()
    for topic in ("_ack_init", "_ack_state", "_ack_quarantine"):
        made.cluster.create_topic(topic, 2)
    worker = made.worker(of=ONCE)
    keys = (b"k0", b"\x1b[2J", 'grün,"x"'.encode())
    made.lose(*(made.emit(b'{"n": %d}' % number, key=key) for number, key in enumerate(keys)))
    made.settle(worker)
    worker.close()

    @contextmanager
    def opened(_config: Path, _command: str) -> Iterator[tuple[Topics, Log]]:
        yield ONCE, made.cluster.log()

    monkeypatch.setattr(cli_picture, "opened", opened)
    monkeypatch.setattr(cli_picture, "wall_ms", lambda: made.now_ms)
    return made


@pytest.mark.parametrize("arguments", [["sql", "SELECT count(*) FROM failures"], ["picture", "--out", "out"]])
def test_a_cluster_that_answers_nothing_is_an_error_and_no_picture_without_rows(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: list[str],
) -> None:
    """`SELECT count(*)` was 0, with exit code 0."""

    @contextmanager
    def opened(_config: Path, _command: str) -> Iterator[tuple[Topics, Log]]:
        yield ONCE, world.cluster.log(NoBroker())

    monkeypatch.setattr(cli_picture, "opened", opened)
    monkeypatch.chdir(tmp_path)
    assert cli.run(arguments) == Unreachable.exit_code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "no broker answers" in printed.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("topic", ["_ack_verdict", "_ack_due", "_ack_init"])
def test_one_topic_that_does_not_answer_is_a_hole_beside_the_rest(
    world: World, capsys: pytest.CaptureFixture[str], topic: str
) -> None:
    world.cluster.lose_leader(topic, 0)
    assert cli.run(["sql", "--csv", "SELECT count(*) FROM letters"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "3"
    assert cli.run(["sql", "--csv", f"SELECT topic FROM unknown WHERE topic = '{topic}'"]) == 0
    assert topic in capsys.readouterr().out.splitlines()[1:]


@pytest.mark.usefixtures("world")
def test_a_picture_of_an_older_version_is_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It lacks a table that was added since; asked, it says that."""
    path = tmp_path / "nightly"
    assert cli.run(["picture", "--out", str(path)]) == 0
    with closing(sqlite3.connect(path)) as older:
        older.execute("DROP TABLE outcomes")
    assert cli.run(["sql", "--picture", str(path), "SELECT 1"]) == 2
    assert "lacks table outcomes; make it again" in capsys.readouterr().err
    assert cli.run(["picture", "--out", str(path)]) == 0
    assert cli.run(["sql", "--picture", str(path), "SELECT 1"]) == 0


class Typed:
    """A terminal at which somebody types."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *lines: str, is_terminal: bool = True) -> None:
        typed = io.StringIO("".join(f"{line}\n" for line in lines))
        typed.isatty = lambda: is_terminal  # type: ignore[method-assign]
        monkeypatch.setattr("sys.stdin", typed)


def test_an_answer_is_a_table_json_or_csv(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    query = shlex.quote("SELECT offset, key, redrive FROM letters ORDER BY offset")
    assert cli.run(shlex.split(f"sql {query}")) == 0
    table = capsys.readouterr().out
    assert "│ 0      │ k0" in table
    assert "│ NULL    │" in table
    assert "\x1b" not in table
    assert cli.run(shlex.split(f"sql --json {query}")) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[0] == {"offset": 0, "key": "k0", "redrive": None}
    assert rows[2]["key"] == 'grün,"x"'
    assert cli.run(shlex.split(f"sql --csv {query}")) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert list(csv.reader(io.StringIO(printed)))[2:] == [["1", "%1B[2J", ""], ["2", 'grün,"x"', ""]]


def test_columns_of_one_name_are_told_apart_and_no_row_is_said(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["sql", "--json", "SELECT 1 AS n, 2 AS n, 3 AS n"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"n": 1, "n_2": 2, "n_3": 3}]
    assert cli.run(["sql", "SELECT 1 WHERE 0"]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "no row" in printed.err


def test_holes_and_rows_that_are_not_shown_stand_on_stderr(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["sql", "--limit", "2", "--json", "SELECT offset FROM letters"]) == 0
    printed = capsys.readouterr()
    assert len(json.loads(printed.out)) == 2
    assert "there are more than 2 rows; see --limit" in printed.err
    assert "2 holes in what is known: `windhover sql 'SELECT * FROM unknown'`" in printed.err


def test_at_a_prompt_a_bad_query_ends_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Typed(
        monkeypatch, "SELEKT 1;", "SELECT count(*) AS n", "FROM letters;", "DROP TABLE letters;", "SELECT 7"
    )
    assert cli.run(["sql", "--csv"]) == 0
    printed = capsys.readouterr()
    assert printed.out.replace("windhover> ", "").split() == ["n", "3", "7", "7"]
    assert "SQLite cannot run the query" in printed.err
    assert "a picture can only be read" in printed.err


def test_queries_come_by_a_pipe_and_a_bad_one_ends_with_2(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Typed(monkeypatch, "SELECT ';' AS a;", "SELECT 2", "  AS b", is_terminal=False)
    assert cli.run(["sql", "--csv"]) == 0
    assert capsys.readouterr().out == "a\n;\nb\n2\n"
    Typed(monkeypatch, "SELEKT 1;", "SELECT 2;", is_terminal=False)
    assert cli.run(["sql", "--csv"]) == 2
    assert capsys.readouterr().out == ""


def test_a_picture_in_a_file_answers_without_a_broker_and_has_no_payloads(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.picture"
    assert cli.run(["picture", "--out", str(path)]) == 0
    assert "bytes, without payloads" in capsys.readouterr().out
    monkeypatch.delattr(cli_picture, "opened")
    assert cli.run(["sql", "--picture", str(path), "--json", "SELECT key, payload FROM letters LIMIT 1"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"key": "k0", "payload": None}]
    assert b'{"n"' not in path.read_bytes()


def test_payloads_are_in_a_file_that_is_made_with_them(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.picture"
    assert cli.run(["picture", "--out", str(path), "--with-payloads"]) == 0
    assert "bytes, with payloads" in capsys.readouterr().out
    query = "SELECT sum(payload_json ->> '$.n') FROM letters"
    assert cli.run(["sql", "--picture", str(path), "--csv", query]) == 0
    assert capsys.readouterr().out.split()[-1] == "3"


def test_a_file_that_is_something_else_is_not_replaced(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "topics.yaml"
    path.write_text("inputs: {}\n", encoding="utf-8")
    assert cli.run(["picture", "--out", str(path)]) == 2
    assert "is no picture" in capsys.readouterr().err
    assert path.read_text(encoding="utf-8") == "inputs: {}\n"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("sql --json --csv 'SELECT 1'", "give --json or --csv, not both"),
        ("sql --picture no.picture 'SELECT 1'", "no.picture: there is no such file"),
        ("sql --picture no.picture --since 2h 'SELECT 1'", "a file is as it is: ask with WHERE"),
        ("sql --since yesterday 'SELECT 1'", "--since yesterday"),
        ("sql --input nowhere 'SELECT 1'", "no tracked input of topics.yaml is called 'nowhere'"),
        ("sql --limit 0 'SELECT 1'", "Invalid value for '--limit'"),
        ("sql 'DELETE FROM letters'", "changing a table is refused: a picture can only be read, by SELECT"),
        ("picture", "Missing option '--out'"),
    ],
)
def test_a_wrong_call_ends_with_2_and_says_what_is_right(
    world: World, arguments: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(shlex.split(arguments)) == 2
    assert error in " ".join(capsys.readouterr().err.split())


def test_only_what_an_option_wants_is_read(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.now_ms += 7_200_000
    world.cluster.now_ms = world.now_ms
    for since, count in (("1h", "0"), ("3h", "3")):
        assert cli.run(["sql", "--since", since, "--csv", "SELECT count(*) FROM letters"]) == 0
        assert capsys.readouterr().out.split()[-1] == count
    for option in (["--input", "sentences"], ["--group", "g"]):
        assert cli.run(["sql", *option, "--csv", "SELECT count(*) FROM letters"]) == 0
        assert capsys.readouterr().out.split()[-1] == "3"


def test_the_name_of_a_column_is_a_text_and_no_markup(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["[/x]", "[bold]y[/bold]", "\x1b[2J", "\u202e"]
    query = ", ".join(f'1 AS "{name}"' for name in names)
    assert cli.run(["sql", f"SELECT {query}"]) == 0
    printed = capsys.readouterr().out
    assert "[/x]" in printed
    assert "[bold]y[/bold]" in printed
    assert unseen(printed) == []


def test_a_number_without_end_is_json(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["sql", "--json", "SELECT 1e999 AS n"]) == 0
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == [{"n": "Infinity"}]


def test_ctrl_c_at_a_prompt_ends_the_query_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """D3228."""
    ask = Query.ask

    def interrupted(query: Query, sql: str, rows_max: int) -> Answer:
        if "endless" in sql:
            raise KeyboardInterrupt
        return ask(query, sql, rows_max)

    monkeypatch.setattr(Query, "ask", interrupted)
    Typed(monkeypatch, "SELECT 'endless';", "SELECT 7;")
    assert cli.run(["sql", "--csv"]) == 0
    printed = capsys.readouterr()
    assert printed.out.replace("windhover> ", "").split() == ["7", "7"]
    assert "the query was ended" in printed.err


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_pipe_that_is_no_text_is_refused(
    encoding: str, world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    piped = io.TextIOWrapper(io.BytesIO(b'SELECT "\xff"; SELECT 2'), encoding=encoding)
    monkeypatch.setattr("sys.stdin", piped)
    assert cli.run(["sql", "--csv"]) == 2
    assert "SQLite cannot run the query" in capsys.readouterr().err


def test_a_folder_that_is_missing_is_named_before_anything_is_read(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """D3230."""
    monkeypatch.delattr(cli_picture, "opened")
    assert cli.run(["picture", "--out", str(tmp_path / "nowhere" / "a.picture")]) == 1
    assert f"there is no folder {tmp_path}/nowhere; make it" in capsys.readouterr().err
    assert cli.run(["picture", "--out", str(tmp_path)]) == 2
    assert "is a folder, and no picture" in capsys.readouterr().err


HANGING = """
import sqlite3, sys
from spout.cli import picture as module
from spout.picture.query import Query

module.GRACE_S = 0.2
query = Query(sqlite3.connect(":memory:"), module._monotonic_ms, query_ms_max=100)
sql = "SELECT trim(printf('%.*c', 4000000, 'a'), printf('%.*c', 200000, 'b') || 'a')"
module._ask_and_print(query, sql, module._Form(False, False, 10))
"""


def test_a_step_of_sqlite_that_does_not_end_ends_the_command() -> None:
    """D3228."""
    ended = subprocess.run(
        [sys.executable, "-c", HANGING], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "SQLite does not end the query at its limit, so the command ends" in ended.stderr
