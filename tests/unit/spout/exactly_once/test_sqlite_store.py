"""The store in a file: one transaction, whatever dies in it, and one writer, whoever is slow."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from acker.errors import StoreFenced, Unreachable, UsageError
from spout.exactly_once.sqlite_store import SQLiteStore
from spout.exactly_once.store import BatchKey, LastBatch, StoreGrant
from tests.support.forking import in_a_fork

STATEMENTS: Final = 10
"""More than a commit of two rows has; behind the last one the child ends by itself."""

DIED: Final = ""
"""What a child says that was killed."""

BROKEN_TEXT: Final = pa.array([b"whole", b"\xff"], pa.binary()).view(pa.string())
"""A column of texts as Arrow has it, of which the second is no UTF-8."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "words.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute('CREATE TABLE words (word TEXT, count INTEGER, "a ""b""" BLOB)')
    return file


def rows_of(*words: str) -> pa.Table:
    return pa.table({"word": list(words), "count": list(range(len(words)))})


def words_in(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [word for (word,) in connection.execute("SELECT word FROM words ORDER BY rowid")]


def key_of(epoch: int, batch: int = 0, group: str = "g") -> BatchKey:
    return BatchKey(group, epoch, "s", "q", batch)


def test_a_new_store_grants_what_it_is_asked_for_and_has_no_batch(path: Path) -> None:
    assert SQLiteStore(path, "words").open("g", 7) == StoreGrant(7, None)
    assert SQLiteStore(path, "words").open("g", 3) == StoreGrant(8, None)
    assert SQLiteStore(path, "words").open("g", 20) == StoreGrant(20, None)


def test_rows_key_and_publication_are_there_together(path: Path) -> None:
    store = SQLiteStore(path, "words")
    store.open("g", 7)
    store.commit(key_of(7), rows_of("the", "hawk"), b"first")
    store.commit(key_of(7, batch=1), rows_of("waits"), b"second")

    assert words_in(path) == ["the", "hawk", "waits"]
    assert store.open("g", 7) == StoreGrant(8, LastBatch(key_of(7, batch=1), b"second"))


def test_a_batch_without_rows_keeps_its_publication(path: Path) -> None:
    store = SQLiteStore(path, "words")
    store.open("g", 1)
    store.commit(key_of(1), rows_of(), b"all failed")

    assert words_in(path) == []
    assert store.open("g", 1).last_batch == LastBatch(key_of(1), b"all failed")


def test_of_two_writers_the_one_that_opened_first_writes_nothing_any_more(path: Path) -> None:
    first, second = SQLiteStore(path, "words"), SQLiteStore(path, "words")
    first.open("g", 1)
    second.open("g", 1)

    with pytest.raises(StoreFenced, match=r"epoch 2 is granted, and this one has 1; nothing of batch 0"):
        first.commit(key_of(1), rows_of("early"), b"1")
    second.commit(key_of(2), rows_of("late"), b"2")
    assert words_in(path) == ["late"]
    assert second.open("g", 1).last_batch == LastBatch(key_of(2), b"2")


@pytest.mark.parametrize(
    ("change", "now"),
    [
        ("DELETE FROM windhover_sink", "it has nothing of the group now, and this one has 2"),
        ("UPDATE windhover_sink SET granted_epoch = 1", "it has epoch 1 now, and this one has 2"),
        ("DROP TABLE windhover_sink", "it has nothing of the group now, and this one has 2"),
    ],
    ids=["emptied", "restored", "replaced"],
)
def test_who_emptied_or_restored_the_store_is_not_called_a_later_start(
    path: Path, change: str, now: str
) -> None:
    store = SQLiteStore(path, "words")
    store.open("g", 1)
    store.open("g", 1)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(change)

    with pytest.raises(
        StoreFenced, match=f"was emptied, replaced or restored .*: {now}; nothing of"
    ) as fenced:
        store.commit(key_of(2), rows_of("lost"), b"2")
    assert "a later start" not in str(fenced.value)
    assert words_in(path) == []


def test_a_writer_that_never_opened_the_store_writes_nothing(path: Path) -> None:
    store = SQLiteStore(path, "words")
    store.open("g", 1)

    with pytest.raises(StoreFenced):
        store.commit(key_of(1, group="another"), rows_of("stray"), b"1")
    assert words_in(path) == []


def test_groups_do_not_fence_each_other(path: Path) -> None:
    store = SQLiteStore(path, "words")
    store.open("g", 1)
    store.open("another", 5)
    store.commit(key_of(1), rows_of("mine"), b"1")
    store.commit(key_of(5, group="another"), rows_of("its"), b"2")

    assert words_in(path) == ["mine", "its"]
    assert store.open("g", 1).last_batch == LastBatch(key_of(1), b"1")


def dies_at(number: int, store: SQLiteStore, work: str) -> str:
    """Let a child die without a word before the statement of this number; return what it said."""

    class Dying(sqlite3.Connection):
        """Counts the statements of its process."""

        count = 0

        def execute(self, *args: Any) -> sqlite3.Cursor:
            self._next()
            return super().execute(*args)

        def executemany(self, *args: Any) -> sqlite3.Cursor:
            self._next()
            return super().executemany(*args)

        def _next(self) -> None:
            Dying.count += 1
            if Dying.count > number:
                os._exit(9)

    connect = sqlite3.connect

    def call() -> object:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sqlite3, "connect", lambda *args, **kw: connect(*args, **kw, factory=Dying))
            if work == "open":
                return store.open("g", 1).epoch
            store.commit(key_of(1, batch=4), rows_of("the", "hawk"), b"new")
            return "committed"

    return in_a_fork(call)


def test_a_writer_that_dies_at_any_statement_of_a_commit_leaves_all_or_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    for number in range(STATEMENTS):
        path = tmp_path / f"{number}.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE words (word TEXT, count INTEGER)")
        store = SQLiteStore(path, "words")
        store.open("g", 1)
        store.commit(key_of(1, batch=3), rows_of("before"), b"old")
        said.append(dies_at(number, store, "commit"))

        last = store.open("g", 1).last_batch
        assert last is not None
        is_whole = last == LastBatch(key_of(1, batch=4), b"new")
        assert is_whole or last == LastBatch(key_of(1, batch=3), b"old")
        assert words_in(path) == (["before", "the", "hawk"] if is_whole else ["before"])
        assert is_whole == (said[-1] == "committed")
    assert said[0] == DIED
    assert said[-1] == "committed"


def test_a_start_that_dies_at_any_statement_of_open_leaves_a_store_that_opens(tmp_path: Path) -> None:
    said: list[str] = []
    for number in range(STATEMENTS):
        path = tmp_path / f"{number}.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE words (word TEXT, count INTEGER)")
        store = SQLiteStore(path, "words")
        said.append(dies_at(number, store, "open"))
        assert store.open("g", 1).epoch == (1 if said[-1] == DIED else 2)
    assert said[0] == DIED
    assert said[-1] == "1"


def test_names_of_tables_and_columns_may_be_odd(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute('CREATE TABLE "select \'x\'; --" ("a ""b""" BLOB, [group] TEXT)')
    store = SQLiteStore(path, "select 'x'; --")
    store.open("g", 1)
    store.commit(key_of(1), pa.table({'a "b"': [b"\x00", None], "group": ["x", None]}), b"1")

    with closing(sqlite3.connect(path)) as connection:
        assert list(connection.execute("SELECT * FROM \"select 'x'; --\"")) == [(b"\x00", "x"), (None, None)]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (pa.table({"word": ["a"], "length": [1]}), "no column named length; give the table words"),
        (pa.table({"word": ["a"], "count": [[1]]}), r"none that SQLite has.*make it a whole number"),
        (pa.table({"count": pa.array([1 << 63], pa.uint64())}), "none that SQLite has"),
        (pa.table({"word": BROKEN_TEXT}), "row 1 of the batch has in word, which is a string"),
    ],
    ids=["a column too many", "a list", "a number that is too large", "no UTF-8"],
)
def test_rows_that_the_table_does_not_take_are_refused_and_nothing_is_written(
    path: Path, rows: pa.Table, why: str
) -> None:
    store = SQLiteStore(path, "words")
    store.open("g", 1)

    with pytest.raises(UsageError, match=why):
        store.commit(key_of(1), pa.concat_tables([rows]), b"1")
    assert words_in(path) == []
    assert store.open("g", 1).last_batch is None


def test_a_missing_table_is_named_before_a_writer_is_fenced(path: Path) -> None:
    SQLiteStore(path, "words").open("g", 1)

    with pytest.raises(UsageError, match=r"has no table wrods; create it"):
        SQLiteStore(path, "wrods").open("g", 1)
    SQLiteStore(path, "words").commit(key_of(1), rows_of("still"), b"1")
    assert words_in(path) == ["still"]


def test_a_file_that_another_writer_locks_is_unreachable_after_a_while(path: Path) -> None:
    store = SQLiteStore(path, "words", locked_s_max=0.05)
    store.open("g", 1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unreachable, match=r"cannot be written: database is locked"):
            store.commit(key_of(1), rows_of("late"), b"1")
    assert words_in(path) == []


def test_a_folder_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="unable to open database file"):
        SQLiteStore(tmp_path / "missing" / "words.db", "words").open("g", 1)


def test_a_file_that_is_gone_is_not_made_anew_by_a_writer(path: Path) -> None:
    store = SQLiteStore(path, "words")
    store.open("g", 1)
    path.unlink()
    with pytest.raises(Unreachable, match="unable to open database file"):
        store.commit(key_of(1), rows_of("lost"), b"1")
    assert not path.exists()


@pytest.mark.parametrize("name", ["a b%41#?x=1.db", "grün.db", ":memory:", "a\udcff.db", "file:x.db"])
def test_a_store_is_in_the_file_of_its_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect(tmp_path / "made.db")) as connection:
        connection.execute("CREATE TABLE words (word TEXT, count INTEGER)")
    os.rename(tmp_path / "made.db", name)
    store = SQLiteStore(name, "words")
    store.open("g", 1)
    store.commit(key_of(1), rows_of("hawk"), b"1")
    assert os.listdir(tmp_path) == [name]
    os.rename(name, tmp_path / "made.db")
    assert words_in(tmp_path / "made.db") == ["hawk"]


def test_a_path_with_a_null_byte_is_refused() -> None:
    with pytest.raises(UsageError, match="the path of the store has a null byte"):
        SQLiteStore("a\0b.db", "words")


@pytest.mark.parametrize("names", [["word", "word"], ["word", "WORD"]], ids=["same", "in another case"])
def test_rows_of_which_two_columns_have_one_name_are_refused(path: Path, names: list[str]) -> None:
    """SQLite would write the first one alone."""
    store = SQLiteStore(path, "words")
    store.open("g", 1)
    with pytest.raises(UsageError, match=r"2 columns of the rows are called word|are one for SQLite"):
        store.commit(key_of(1), pa.table([["a"], ["b"]], names=names), b"1")
    assert words_in(path) == []


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (sqlite3.SQLITE_FULL, Unreachable),
        (sqlite3.SQLITE_IOERR | 3 << 8, Unreachable),
        (sqlite3.SQLITE_CORRUPT, UsageError),
        (sqlite3.SQLITE_CONSTRAINT | 5 << 8, UsageError),
    ],
    ids=["full", "cannot be written", "damaged", "a rule of the table"],
)
def test_what_fails_for_the_file_and_not_for_its_rows_is_named_so(
    path: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception]
) -> None:
    """The codes have in their higher bytes what more SQLite knows."""
    store = SQLiteStore(path, "words")
    store.open("g", 1)

    class Failing(sqlite3.Connection):
        """Fails when rows are inserted."""

        def executemany(self, *_: Any) -> sqlite3.Cursor:
            failure = sqlite3.OperationalError("it failed")
            failure.sqlite_errorcode = code
            raise failure

    connect = sqlite3.connect
    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", lambda *args, **kw: connect(*args, **kw, factory=Failing))
        with pytest.raises(error, match="it failed") as raised:
            store.commit(key_of(1), rows_of("a"), b"1")
    about_rows = "does not take" in str(raised.value)
    assert about_rows == (code & 0xFF == sqlite3.SQLITE_CONSTRAINT)
    assert words_in(path) == []
    store.commit(key_of(1), rows_of("a"), b"1")
    assert words_in(path) == ["a"]
