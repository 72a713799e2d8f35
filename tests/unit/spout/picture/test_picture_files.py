"""A picture in a file: whole or not at all, without secrets; what is something else is refused by name."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from acker.errors import NewerPicture, NoPicture, NoRoom
from spout.picture.database import Picture, open_picture, time_column
from spout.picture.schema import APPLICATION_ID, TABLES, VERSION, Holds

SECRET = "password=hunter2-hunter2"


def picture(**options: bool) -> Picture:
    made = Picture(has_payloads=options.pop("has_payloads", True), **options)
    made.insert("inputs", [{"input": "sentences"}])
    return made


@pytest.mark.parametrize("name", ["a.picture", "a b?#%.picture", "grün"])
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
