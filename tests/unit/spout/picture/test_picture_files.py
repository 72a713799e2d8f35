"""A picture in a file: whole or not at all, without secrets; what is something else is refused by name."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from acker.errors import NewerPicture, NoPicture, NoRoom
from spout.picture.database import Picture, open_picture, time_column
from spout.picture.query import Query
from spout.picture.schema import APPLICATION_ID, TABLES, VALUE_BYTES_MAX, VERSION, Holds

SECRET = "password=hunter2-hunter2"


def picture(**options: bool) -> Picture:
    made = Picture(has_payloads=options.pop("has_payloads", True), **options)
    made.insert("inputs", [{"input": "sentences"}])
    return made


@pytest.mark.parametrize("name", ["a.picture", "a b?#%.picture", "grün", "no UTF-8 \udcff"])
def test_a_file_has_what_the_picture_had_and_only_its_owner_reads_it(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    with closing(picture()) as made:
        made.describe(read_at_ms=0, since_ms=None, cluster="c")
        made.write_file(path)
        whole = list(made.connection.iterdump())
    with closing(open_picture(path)) as opened:
        assert list(opened.iterdump()) == whole
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            opened.execute("DELETE FROM inputs")
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_of_the_same_name_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.picture"
    for _ in range(2):
        with closing(picture()) as made:
            made.write_file(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["missing", "a folder", "empty", "text", "another database", "cut"])
def test_a_file_that_is_no_picture_is_refused_with_what_writes_one(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    match kind:
        case "a folder":
            path.mkdir()
        case "empty":
            path.touch()
        case "text":
            path.write_text("inputs: {}\n" * 500, encoding="utf-8")
        case "another database":
            with closing(sqlite3.connect(path)) as other:
                other.execute("CREATE TABLE inputs (input)")
        case "cut":
            with closing(picture()) as made:
                made.write_file(path)
            path.write_bytes(path.read_bytes()[:5_000])
    with pytest.raises(NoPicture, match=r"`windhover picture --out") as refused:
        open_picture(path)
    assert str(path) in str(refused.value)
    assert refused.value.exit_code == 2


def test_a_picture_that_lacks_a_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.picture"
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        other.execute("CREATE TABLE inputs (input)")
    with pytest.raises(NoPicture, match="lacks table ackers; make it again"):
        open_picture(path)


def test_a_picture_of_a_newer_version_is_refused_by_its_version(tmp_path: Path) -> None:
    path = tmp_path / "a.picture"
    with closing(picture()) as made:
        made.connection.execute(f"PRAGMA user_version = {VERSION + 1}")
        made.write_file(path)
    with pytest.raises(NewerPicture, match=rf"a newer Windhover made it \(tables of version {VERSION + 1}"):
        open_picture(path)


FULL_DISK = """
import resource, sys
from pathlib import Path
from acker.errors import NoRoom
from spout.picture.database import Picture

made = Picture(has_payloads=True)
made.insert("inputs", [{"input": "x" * 1_000} for _ in range(1_000)])
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    made.write_file(Path(sys.argv[1]))
except NoRoom as error:
    print(error)
"""


def test_without_room_nothing_is_left_and_the_error_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "a.picture"
    path.write_text("what was there before", encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout.startswith(f"{path}: cannot be written: ")
    assert "Make room, or name a file elsewhere with --out" in ended.stdout
    assert path.read_text(encoding="utf-8") == "what was there before"
    assert list(tmp_path.iterdir()) == [path]


FULL_DISK_OF_A_KEPT_PICTURE = """
import resource, sqlite3, sys
from pathlib import Path
from spout.picture.database import Picture

kept = Picture(has_payloads=True, file=Path(sys.argv[1]))
kept.connection.execute("PRAGMA cache_size = 10")  # the file is written before the transaction ends
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
try:
    with kept.transaction():
        kept.insert("inputs", [{"input": "x" * 1_000} for _ in range(1_000)])
except sqlite3.Error as error:
    print(error)
print(kept.connection.execute("SELECT count(*) FROM inputs").fetchone())
"""


def test_without_room_for_a_kept_picture_the_error_says_so(tmp_path: Path) -> None:
    """SQLite has undone the transaction by itself then."""
    ended = subprocess.run(
        [sys.executable, "-c", FULL_DISK_OF_A_KEPT_PICTURE, str(tmp_path / "kept")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ended.stdout in ("database or disk is full\n(0,)\n", "disk I/O error\n(0,)\n")


def test_a_folder_that_is_not_there_is_an_error_of_room(tmp_path: Path) -> None:
    with closing(picture()) as made, pytest.raises(NoRoom, match="No such file or directory"):
        made.write_file(tmp_path / "nowhere" / "a.picture")


def test_a_file_for_others_has_no_payload_and_no_secret_in_any_column(tmp_path: Path) -> None:
    """Redaction is in one place: each column of the schema says whose words it holds."""
    path = tmp_path / "a.picture"
    filled_row = {"text": f"it failed: {SECRET}", "JSON": json.dumps([{"message": SECRET}])}
    with closing(picture(has_payloads=False, hides_secrets=True)) as made:
        for table in TABLES.values():
            texts = [column for column in table.columns if column.kind in ("text", "JSON")]
            made.insert(table.name, [{column.name: filled_row[column.kind] for column in texts}])
        made.write_file(path)
    kept = set()
    with closing(open_picture(path)) as opened:
        for table in TABLES.values():
            for column in table.columns:
                query = f"SELECT 1 FROM {table.name} WHERE \"{column.name}\" LIKE '%hunter2%'"
                if opened.execute(query).fetchall():
                    kept.add(column.holds)
        messages = opened.execute("SELECT message, history FROM letters").fetchall()
    assert kept == {Holds.FACT}
    assert messages == [("it failed: password=…", '[{"message": "password=…"}]')]


def test_a_payload_is_not_in_a_free_page_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.picture"
    with closing(picture(has_payloads=False)) as made:
        made.connection.execute("PRAGMA secure_delete = OFF")  # some builds of SQLite have it on
        made.insert("letters", [{"payload": "the payload itself", "payload_json": '{"a": "the payload"}'}])
        made.replace("letters", [])
        made.write_file(path)
    assert b"the payload" not in path.read_bytes()


def test_a_time_is_what_sqlites_own_functions_compare() -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        (is_later,) = database.execute(
            "SELECT ? > datetime(?, '-1 hour')", [time_column(3_600_001), time_column(7_200_000)]
        ).fetchone()
    assert is_later == 1
    assert time_column(-1) is None


def test_a_path_that_begins_with_two_slashes_is_that_file(tmp_path: Path) -> None:
    """D3230: in an address the first part behind them would be a host."""
    path = Path(f"/{tmp_path}/a.picture")
    assert str(path).startswith("//")
    with closing(picture()) as made:
        made.write_file(path)
    with closing(open_picture(path)) as opened:
        assert opened.execute("SELECT input FROM inputs").fetchall() == [("sentences",)]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_stays_and_its_file_is_written(is_there: bool, tmp_path: Path) -> None:
    """D3230."""
    target, link = tmp_path / "a.picture", tmp_path / "newest"
    link.symlink_to(target)
    for _ in range(1 + is_there):
        with closing(picture()) as made:
            made.write_file(link)
    assert link.is_symlink()
    assert not target.is_symlink()
    open_picture(link).close()
    assert sorted(tmp_path.iterdir()) == [target, link]


@pytest.mark.parametrize("kind", ["a folder", "this folder", "a pipe", "a device"])
def test_what_is_no_file_is_neither_read_nor_replaced(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D3230."""
    monkeypatch.chdir(tmp_path)
    path = {"this folder": Path("."), "a device": Path("/dev/null")}.get(kind, tmp_path / "it")
    if kind == "a folder":
        path.mkdir()
    if kind == "a pipe":
        os.mkfifo(path)
    before = path.stat().st_mode
    with closing(picture()) as made, pytest.raises(NoPicture, match=r"is (a folder|no file), and no picture"):
        made.write_file(path)
    with pytest.raises(NoPicture, match=r"is (a folder|no file), and no picture"):
        open_picture(path)
    assert path.stat().st_mode == before


def test_nothing_is_written_through_a_link_that_somebody_put_where_the_part_goes(tmp_path: Path) -> None:
    """D3230: the name of the part can be guessed, and the folder may be open to all."""
    victim = tmp_path / "victim"
    victim.write_text("mine", encoding="utf-8")
    path = tmp_path / "a.picture"
    path.with_name(f".{path.name}.{os.getpid()}.part").symlink_to(victim)
    with closing(picture()) as made, pytest.raises(NoRoom, match="File exists"):
        made.write_file(path)
    assert victim.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("text", ["x" * (VALUE_BYTES_MAX + 1), "\u20ac" * (VALUE_BYTES_MAX // 3 + 1)])
def test_a_text_that_no_query_could_read_is_left_out_and_counted(text: str) -> None:
    """D3229: it hides no neighbour; a text just below the limit is there, in each column of a row."""
    fits = "y" * VALUE_BYTES_MAX
    with closing(picture()) as made:
        made.insert(
            "letters",
            [
                {"payload": text},
                dict.fromkeys(("key", "payload", "headers", "message"), fits)
                | {"headers": json.dumps(fits[2:])},
            ],
        )
        asked = Query(made.connection, lambda: 0)
        assert asked.ask("SELECT length(payload) FROM letters ORDER BY 1").rows == [[None], [VALUE_BYTES_MAX]]
        assert len(asked.ask("SELECT * FROM letters ORDER BY input").rows) == 2
        assert dict(made.left_out_counts) == {("letters", "payload"): 1}


@pytest.mark.parametrize("number", [-(1 << 63), (1 << 63) - 1, 1 << 63, -(1 << 63) - 1])
def test_a_number_of_64_bits_is_there_and_a_longer_one_is_unknown(number: int) -> None:
    """D3229."""
    with closing(picture()) as made:
        made.insert("letters", [{"offset": number}])
        [(offset,)] = made.connection.execute("SELECT offset FROM letters").fetchall()
    assert offset == (number if -(1 << 63) <= number < 1 << 63 else None)
