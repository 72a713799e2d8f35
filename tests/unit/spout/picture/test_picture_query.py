"""What a person asks a picture: it is answered, and nothing happens beside reading it."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from threading import Timer

import pytest

from acker.errors import QueryRefused
from spout.picture.database import Picture, open_picture
from spout.picture.query import Query

SECRET = "what nobody but the owner of this file may read"


@pytest.fixture(params=["in memory", "a file"])
def connection(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Give the two databases that are asked: that of a command, and one in a file."""
    with closing(Picture(has_payloads=True)) as picture:
        picture.insert("letters", [{"input": "sentences", "payload_json": '{"customer": {"id": 17}}'}])
        if request.param == "in memory":
            yield picture.connection
            return
        picture.write_file(tmp_path / "a.picture")
    with closing(open_picture(tmp_path / "a.picture")) as opened:
        yield opened


@pytest.fixture
def query(connection: sqlite3.Connection) -> Query:
    return Query(connection, lambda: 0)


def state_of(connection: sqlite3.Connection) -> list[str]:
    """Return all that a database has; the fence is taken down for it."""
    connection.set_authorizer(None)
    return list(connection.iterdump())


WAYS_OUT = {
    "insert": "INSERT INTO letters (input) VALUES ('x')",
    "insert of a select": "INSERT INTO letters SELECT * FROM letters",
    "update": "UPDATE letters SET input = 'x'",
    "delete": "DELETE FROM letters",
    "delete in a with": "WITH a AS (SELECT 1) DELETE FROM letters",
    "returning": "DELETE FROM letters RETURNING *",
    "replace": "REPLACE INTO letters (input) VALUES ('x')",
    "create table": "CREATE TABLE mine (a)",
    "create table as": "CREATE TABLE mine AS SELECT * FROM letters",
    "create temp table": "CREATE TEMP TABLE mine (a)",
    "create view": "CREATE VIEW mine AS SELECT 1",
    "create temp view": "CREATE TEMP VIEW mine AS SELECT 1",
    "create index": "CREATE INDEX mine ON letters (input)",
    "create trigger": "CREATE TRIGGER mine AFTER INSERT ON letters BEGIN SELECT 1; END",
    "create virtual table": "CREATE VIRTUAL TABLE mine USING fts5(a)",
    "create r-tree": "CREATE VIRTUAL TABLE mine USING rtree(a, b, c)",
    "drop": "DROP TABLE letters",
    "alter": "ALTER TABLE letters RENAME TO mine",
    "reindex": "REINDEX",
    "analyze": "ANALYZE",
    "vacuum": "VACUUM",
    "vacuum into": "VACUUM INTO '{file}'",
    "attach": "ATTACH '{file}' AS other",
    "attach in memory": "ATTACH ':memory:' AS other",
    "attach by uri": "ATTACH 'file:{file}?mode=rwc' AS other",
    "detach": "DETACH main",
    "begin": "BEGIN IMMEDIATE",
    "savepoint": "SAVEPOINT a",
    "pragma": "PRAGMA table_list",
    "pragma of its files": "PRAGMA database_list",
    "pragma that allows writing": "PRAGMA query_only = OFF",
    "pragma of the schema": "PRAGMA writable_schema = ON",
    "pragma of the temporary folder": "PRAGMA temp_store_directory = '{file}'",
    "pragma as a table": "SELECT * FROM pragma_database_list",
    "pragma as a table with an argument": "SELECT * FROM pragma_table_info('letters')",
    "pragma behind explain": "EXPLAIN PRAGMA query_only = OFF",
    "the schema itself": "UPDATE sqlite_master SET sql = ''",
    "load an extension": "SELECT load_extension('{file}')",
    "load an extension, unquoted": "SELECT LOAD_EXTENSION('{file}', 'f')",
    "an extension in a subquery": "SELECT * FROM letters WHERE 1 = (SELECT load_extension('{file}'))",
    "read a file": "SELECT readfile('{file}')",
    "write a file": "SELECT writefile('{file}', 'x')",
    "edit a file": "SELECT edit('x', 'vi')",
    "list a folder": "SELECT * FROM fsdir('/')",
    "read csv": "SELECT * FROM read_csv('{file}')",
    "csv as a table": "SELECT * FROM csv('{file}')",
    "copy": "COPY letters TO '{file}'",
    "copy from": "COPY letters FROM '{file}'",
    "a file as a table": "SELECT * FROM '{file}'",
    "pages of the database": "SELECT * FROM sqlite_dbpage",
    "statistics of pages": "SELECT path FROM dbstat",
    "a tokenizer": "SELECT fts3_tokenizer('a')",
    "the options of the library": "SELECT sqlite_compileoption_get(1)",
    "a command of the shell": ".shell ls",
    "a command of the shell to read": ".read {file}",
    "two statements": "SELECT 1; DELETE FROM letters",
    "a comment that hides one": "SELECT 1 /* */ ; PRAGMA query_only = OFF",
}
"""By name: what somebody may try in order to do more than read the picture."""


@pytest.mark.parametrize("way", WAYS_OUT)
def test_no_statement_changes_anything_or_reaches_a_file(
    way: str, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    before = state_of(connection)
    file = tmp_path / "other"
    file.write_text(SECRET, encoding="utf-8")
    folder_before = sorted(tmp_path.iterdir())
    asked = Query(connection, lambda: 0)
    with pytest.raises(QueryRefused) as refused:
        asked.ask(WAYS_OUT[way].format(file=file))
    assert SECRET not in str(refused.value)
    assert file.read_text(encoding="utf-8") == SECRET
    assert sorted(tmp_path.iterdir()) == folder_before
    assert state_of(connection) == before


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM letters", "CREATE TABLE mine (a)", "PRAGMA writable_schema = ON", "VACUUM INTO '{file}'"],
)
def test_the_first_fence_holds_where_the_second_one_is_open(
    statement: str, connection: sqlite3.Connection, tmp_path: Path
) -> None:
    """The connection itself only reads: an authorizer that forgets an action lets nothing be changed."""
    before = state_of(connection)
    Query(connection, lambda: 0)
    connection.set_authorizer(None)
    with suppress(sqlite3.Error):
        connection.execute(statement.format(file=tmp_path / "copy"))
    assert state_of(connection) == before


READS = {
    "SELECT count(*) FROM letters": [[1]],
    "SELECT l.input FROM letters AS l WHERE l.input LIKE 'sent%'": [["sentences"]],
    "SELECT payload_json ->> '$.customer.id' FROM letters": [[17]],
    "SELECT json_extract(payload_json, '$.customer.id') FROM letters": [[17]],
    "SELECT j.key, j.value FROM letters, json_each(payload_json, '$.customer') AS j": [["id", 17]],
    "WITH mine AS (SELECT input FROM letters) SELECT count(*) FROM mine": [[1]],
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT sum(i) FROM n": [
        [6]
    ],
    "SELECT row_number() OVER (ORDER BY input) FROM letters": [[1]],
    "SELECT datetime('2026-07-01', '+1 day')": [["2026-07-02 00:00:00"]],
    "SELECT count(*) FROM sqlite_schema WHERE name = 'letters'": [[1]],
    "SELECT NULL, 1.5, 'grün', x'FF00'": [[None, 1.5, "grün", "%FF%00"]],
    "SELECT CAST(x'C328' AS text)": [["\\xc3("]],
    "SELECT 1;": [[1]],
    "VALUES (1), (2)": [[1], [2]],
    "": [],
    "-- nothing": [],
}
"""By query: its answer."""


@pytest.mark.parametrize("sql", READS)
def test_what_reads_is_answered(sql: str, query: Query) -> None:
    assert query.ask(sql).rows == READS[sql]


@pytest.mark.parametrize(
    "sql", ["SELEKT 1", "SELECT nothing FROM letters", "SELECT * FROM nothing", "SELECT '", "\0"]
)
def test_bad_sql_is_a_clear_error_with_a_cure_and_the_next_query_is_answered(sql: str, query: Query) -> None:
    with pytest.raises(QueryRefused, match=r"cannot run the query: .*`windhover sql") as refused:
        query.ask(sql)
    assert refused.value.exit_code == 2
    assert query.ask("SELECT 1").rows == [[1]]


def test_a_refused_statement_is_named(query: Query) -> None:
    with pytest.raises(
        QueryRefused, match=r"^opening another database is refused: a picture can only be read"
    ):
        query.ask("ATTACH 'x' AS y")
    with pytest.raises(QueryRefused, match=r"^function load_extension is refused"):
        query.ask("SELECT load_extension('x')")
    with pytest.raises(QueryRefused, match="SQLite cannot run the query"):
        query.ask("SELECT nothing")


def test_of_too_many_rows_the_first_ones_come_and_the_answer_says_so(query: Query) -> None:
    three = "VALUES (1), (2), (3)"
    assert query.ask(three, rows_max=2) == (["column1"], [[1], [2]], True)
    assert query.ask(three, rows_max=3) == (["column1"], [[1], [2], [3]], False)


def test_a_query_that_takes_too_long_is_ended(connection: sqlite3.Connection) -> None:
    times_ms = iter(range(0, 10_000_000, 1_000))
    query = Query(connection, lambda: next(times_ms), query_ms_max=5_000)
    endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    with pytest.raises(QueryRefused, match="takes longer than 5 s, and was ended"):
        query.ask(endless)
    assert query.ask("SELECT 1").rows == [[1]]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT group_concat(printf('%.*c', 10000000, 'x')) FROM (VALUES (1), (2))",
        "SELECT replace(hex(printf('%.*c', 10000000, 'x')), '7', 'seven')",
        "SELECT 1" + " + 1" * 2_000_000,
    ],
    ids=["one text", "one text from others", "the query itself"],
)
def test_a_value_or_a_query_of_any_size_is_refused(sql: str, query: Query) -> None:
    with pytest.raises(QueryRefused):
        query.ask(sql)
    assert query.ask("SELECT 1").rows == [[1]]


NUMBERS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
ENDLESS = f"{NUMBERS} SELECT count(*) FROM n"


def test_ctrl_c_ends_a_query_and_the_next_one_is_answered(connection: sqlite3.Connection) -> None:
    """D3228: SQLite swallows what is raised while it asks whether to go on."""
    query = Query(connection, lambda: time.monotonic_ns() // 1_000_000)
    typed = Timer(0.2, os.kill, [os.getpid(), signal.SIGINT])
    # a shell that starts the tests in the background lets them ignore it
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        typed.start()
        with pytest.raises(KeyboardInterrupt):
            query.ask(ENDLESS)
        typed.join()
    finally:
        signal.signal(signal.SIGINT, handler)
    assert query.ask("SELECT 1").rows == [[1]]


def test_an_answer_of_any_size_is_refused_at_the_row_that_is_too_much(query: Query) -> None:
    """D3228."""
    many = f"{NUMBERS} SELECT printf('%.*c', {{}}, 'x') FROM n"
    with pytest.raises(QueryRefused, match=r"the answer is larger than 64 MB, at row 5: ask for fewer"):
        query.ask(many.format(16_000_000))
    with pytest.raises(QueryRefused, match=r"the answer is larger than 64 MB, at row 6[0-9],"):
        query.ask(many.format(1_000), rows_max=1_000_000)
    assert query.ask("SELECT 1").rows == [[1]]


HUNGRY = """
from spout.picture import query as module
from spout.picture.database import Picture
from acker.errors import QueryRefused

module.MEMORY_BYTES_MAX = 64 << 20
query = module.Query(Picture(has_payloads=True).connection, lambda: 0)
# 200 MB, so that a query without the limit ends, and takes no machine's whole memory
large = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 20000)"
text = "printf('%.*c', 10000, 'x') || i"
for sql in (
    f"{large} SELECT length(max(x)) FROM (SELECT {text} AS x FROM n ORDER BY x DESC)",
    f"{large} SELECT i, count(*) FROM n GROUP BY {text}",
    f"{large} SELECT DISTINCT {text} FROM n LIMIT -1 OFFSET 1000000000",
):
    try:
        query.ask(sql)
    except QueryRefused as error:
        print(error)
print(query.ask("SELECT 1").rows)
"""


def test_a_query_that_sorts_or_groups_more_than_the_limit_is_refused() -> None:
    """D3228: in a process of its own, since SQLite never raises its limit again."""
    ended = subprocess.run(
        [sys.executable, "-c", HUNGRY], capture_output=True, text=True, check=True, timeout=100
    )
    *refusals, answer = ended.stdout.splitlines()
    assert answer == "[[1]]"
    assert [refusal.partition(" SQLite")[0] for refusal in refusals] == [
        "the query takes more memory than"
    ] * 3


def test_a_number_without_end_is_a_text_that_json_can_have(query: Query) -> None:
    [row] = query.ask("SELECT 1e999, -1e999, 1.5").rows
    assert row == ["Infinity", "-Infinity", 1.5]
    assert json.loads(json.dumps(row, allow_nan=False)) == row


def test_a_pattern_that_would_be_compared_for_hours_is_refused(query: Query) -> None:
    """D3228: SQLite looks at no clock within one comparison."""
    with pytest.raises(QueryRefused, match="pattern too complex"):
        query.ask("SELECT printf('%.*c', 1000000, 'a') LIKE '%' || printf('%.*c', 40000, 'a') || 'b'")
