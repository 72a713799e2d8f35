"""What is shown of a key can be given back, to every command and page, and finds just that record."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
import yaml
from starlette.testclient import TestClient

from acker.config.topics import Topics
from acker.kafka.port import Log
from acker.notation import show_bytes
from spout.cli import dlq as cli_dlq
from spout.cli import inspect as cli_inspect
from spout.cli import main as cli
from spout.inspect.letter_rows import KEY_CHARACTERS_MAX
from spout.planning.journal import BEGINNING
from tests.support.page_server import client_of
from tests.support.worlds.planning import World, batch, yaml_of

YAML = yaml_of(retry="{attempts: 1}", dead_letter="{max_ratio: 1, max_consecutive: 1000}")
JSON = {"accept": "application/json"}

KEYS: tuple[bytes | None, ...] = (
    None, b"null", b"NULL", b"", b'""', b"none", b"unknown", b"-",
    b"\xff", b"0xff", b"0xFF", b"%FF", b"%ff", rb"\xff", b"\xff\xfe", b"0xfffe",
    b"a\nb", rb"a\nb", b"a%0Ab", b"a b", b"a  b", b" a", b"a ", b"a", b"a\t", b"a\x00", b"a\x1b[31m",
    "é".encode(), "e\u0301".encode(), "\u0301".encode(), b"\xe9", "a\u202eb".encode(), "a\u200bb".encode(),
    "\x85".encode(), "\x9b".encode(), b"\x9b", "\u2028".encode(), "🙂".encode(), "👩\u200d🚀".encode(),
    b"'a'", b'"a"', b"a\\", b"`a`", b"$(a)", b"<b>a</b>", b"&amp;", b"--all", b"-x", b"[bold]a[/bold]",
    b"[/]",
    b"3f2504e0-4f89-11d3-9a0c-0305e82c3301-3f2504e0-4f89-11d3-9a0c-0305e82c3301",
    b"x" * 31, b"x" * 61, b"x" * 1_500, "…".encode(), "a… (2 bytes)".encode(), "a%… (2 bytes)".encode(),
)  # fmt: skip
"""Keys that look alike in one form or another."""

ORIGINS = {key: f"sentences/0@{offset}" for offset, key in enumerate(KEYS)}


def world_of(monkeypatch: pytest.MonkeyPatch) -> World:
    """Let each key have a record that died, and the commands see them."""
    world = World(YAML)
    world.start_replays()
    world.produce(len(KEYS), keys=KEYS)
    end = batch(world.ready(), BEGINNING, world)
    world.publish(BEGINNING, end, fail=range(len(KEYS)))
    world.run(5_000)

    @contextmanager
    def opened(config: Path, command: str) -> Iterator[tuple[Topics, Log]]:
        yield world.topics, world.cluster.log()

    for module in (cli_dlq, cli_inspect):
        monkeypatch.setattr(module, "opened", opened)
        monkeypatch.setattr(module, "wall_ms", lambda: world.now_ms)
    return world


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield world_of(monkeypatch)


@pytest.fixture(scope="module")
def client(world: World) -> TestClient:
    return client_of(world)[0]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert cli.run(list(arguments)) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def shown_in_json(capsys: pytest.CaptureFixture[str]) -> list[str]:
    rows = json.loads(run(capsys, "dlq", "list", "-o", "json"))
    return [text_of(row["key"]) for row in rows]


def shown_in_yaml(capsys: pytest.CaptureFixture[str]) -> list[str]:
    rows = yaml.safe_load(run(capsys, "dlq", "list", "-o", "yaml"))
    return [text_of(row["key"]) for row in rows]


def shown_in_the_table(capsys: pytest.CaptureFixture[str]) -> list[str]:
    heads, *rows = (
        [cell.strip(" ") for cell in re.split("[┃│]", line)]
        for line in run(capsys, "dlq", "list").splitlines()
        if line[:1] in ("┃", "│")
    )
    return [row[heads.index("key")] for row in rows]


def shown_alone(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return re.findall(r"^ +key  (.*)$", run(capsys, "dlq", "show", *ORIGINS.values()), re.MULTILINE)


def shown_by_inspect(capsys: pytest.CaptureFixture[str]) -> list[str]:
    stories = [run(capsys, "inspect", origin) for origin in ORIGINS.values()]
    return [key for story in stories for key in re.findall(r"^ +key  (.*)$", story, re.MULTILINE)]


def text_of(field: str | None) -> str:
    """Return what `jq -r` prints of a field; no text at all is the empty key, too."""
    return "null" if field is None else field or '""'


WAYS_TO_SHOW = (shown_in_json, shown_in_yaml, shown_in_the_table, shown_alone, shown_by_inspect)


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("way", WAYS_TO_SHOW)
def test_all_show_a_key_by_the_same_text(
    capsys: pytest.CaptureFixture[str], way: Callable[[pytest.CaptureFixture[str]], list[str]]
) -> None:
    """O1604"""
    assert way(capsys) == [show_bytes(key) for key in KEYS]


@pytest.mark.sample(8)
@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_a_key_as_it_was_shown_finds_its_record_alone(
    capsys: pytest.CaptureFixture[str], key: bytes | None
) -> None:
    """O1604: its letter, its story, and the letter that a redrive would let live again."""
    shown = show_bytes(key)

    (letter,) = json.loads(run(capsys, "dlq", "list", "--key", shown, "-o", "json"))
    (story,) = json.loads(run(capsys, "inspect", "--key", shown, "--from", "1h", "-o", "json"))
    redrive = run(capsys, "dlq", "replay", "--key", shown)

    assert (letter["origin"], story["record"]) == (ORIGINS[key], ORIGINS[key])
    assert ORIGINS[key] in redrive
    assert "1 letter would be replayed" in redrive


def test_the_page_shows_a_key_by_the_same_text(client: TestClient) -> None:
    """O1605"""
    page = client.get("/letters").text
    rows = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    letters = [
        [html.unescape(cell) for cell in re.findall(r"<td[^>]*>(?:<a[^>]*>)?([^<]*)", row)]
        for row in rows
        if "sentences.g.dlq" in row
    ]

    assert [cells[6] for cells in reversed(letters)] == [show_bytes(key) for key in KEYS]
    for key, origin in list(ORIGINS.items())[:12]:
        story = html.unescape(client.get(f"/record/{origin}").text)
        assert f"key {show_bytes(key)}\n" in story
        letter = html.unescape(client.get(f"/letter/{origin}").text)
        assert f"key {show_bytes(key)}\n" in letter


@pytest.mark.sample(8)
@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_the_page_finds_the_record_of_a_key_as_it_shows_it(client: TestClient, key: bytes | None) -> None:
    """O1605"""
    query = urlencode({"key": show_bytes(key), "from": "1h"})

    (letter,) = client.get(f"/letters?{query}", headers=JSON).json()
    (story,) = client.get(f"/record?{query}", headers=JSON).json()
    (sample,) = client.get(f"/redrives/new?{query}", headers=JSON).json()["sample"]

    assert {letter["origin"], story["record"], sample["origin"]} == {ORIGINS[key]}


def test_a_byte_that_somebody_types_into_an_address_is_that_byte(client: TestClient) -> None:
    (letter,) = client.get("/letters?key=%FF", headers=JSON).json()

    assert letter["origin"] == ORIGINS[b"\xff"]
    page = client.get("/letters?key=%FF").text
    assert 'name="key" value="%FF"' in page


def test_the_group_of_a_key_leads_to_its_letters(client: TestClient) -> None:
    """O1605"""
    page = client.get("/letters").text
    links = [html.unescape(link) for link in re.findall(r'href="(/letters\?key=[^"]*)"', page)]

    assert len(links) == 10, "the largest groups are shown"
    found = [client.get(link, headers=JSON).json() for link in links]

    assert [len(rows) for rows in found] == [1] * 10
    assert len({rows[0]["origin"] for rows in found}) == 10


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("output", ["json", "yaml"])
def test_json_and_yaml_tell_all_keys_apart(capsys: pytest.CaptureFixture[str], output: str) -> None:
    """O1602"""
    rows = yaml.safe_load(run(capsys, "dlq", "list", "-o", output))

    assert len(rows) == len(KEYS)
    keys = {row["origin"]: row["key"] for row in rows}
    assert len(set(keys.values())) == len(KEYS)
    assert keys[ORIGINS[None]] is None


@pytest.mark.parametrize("key", ["50 %", "a%…", "a%… (5 bytes)"])
def test_a_key_that_nothing_has_shown_is_refused(
    client: TestClient, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    """O1603"""
    for arguments in (["dlq", "list"], ["inspect", "--from", "1h"]):
        assert cli.run([*arguments, "--key", key]) == 2
        error = capsys.readouterr().err
        assert f"key {key}" in error
        assert "%25" in error or "-o json" in error
    for path in ("/letters", "/record"):
        assert client.get(f"{path}?{urlencode({'key': key, 'from': '1h'})}").status_code == 404


@pytest.mark.usefixtures("world")
def test_a_key_in_hexadecimal_digits_is_a_text_and_a_note_says_how_bytes_are_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run(["dlq", "list", "--key", "0xfe00"]) == 0
    assert "bytes that are no text are given as %FE%00" in capsys.readouterr().err
    assert cli.run(["inspect", "--key", "0xfe00", "--from", "1h"]) == 0
    assert "bytes that are no text are given as %FE%00" in capsys.readouterr().err


def test_of_a_key_that_no_screen_holds_a_part_is_shown_and_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """O1603"""
    world = World(YAML)
    world.start_replays()
    key = b"k" * (KEY_CHARACTERS_MAX + 1)
    world.produce(1, keys=[key])
    end = batch(world.ready(), BEGINNING, world)
    world.publish(BEGINNING, end, fail=[0])
    world.run(5_000)

    @contextmanager
    def opened(config: Path, command: str) -> Iterator[tuple[Topics, Log]]:
        yield world.topics, world.cluster.log()

    monkeypatch.setattr(cli_dlq, "opened", opened)
    (whole,) = json.loads(run(capsys, "dlq", "list", "-o", "json"))
    assert whole["key"] == key.decode()
    (shown,) = re.findall(r"k+%…[^│\n]*\)", run(capsys, "dlq", "list"))
    assert cli.run(["dlq", "list", "--key", shown]) == 2
    assert "-o json" in capsys.readouterr().err
