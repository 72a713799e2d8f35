"""A page whose topics.yaml changes while it is served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from acker.config.topics import Topics, load_topics
from spout.inspect.overview import Snapshot
from spout.ui import watch as pages_watch
from spout.ui.watch import ServedPages, Site, TopicsFile, Watch
from tests.support.worlds.planning import World, yaml_of

BEFORE = "inputs: {lines: {id: 1, group: g, partitions: 4}}"
AFTER = "inputs: {lines: {id: 1, group: g, partitions: 4}, words: {id: 2, group: g2, partitions: 4}}"
BROKEN = "inputs: {lines: {id: 1, group: g, partition: 4}}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "topics.yaml"
    path.write_text(BEFORE)
    return path


def file_of(path: Path) -> TopicsFile:
    return TopicsFile(path, partial(load_topics, path, {}))


def test_a_file_that_changes_is_loaded_once(path: Path) -> None:
    """D1301: the page went on showing the file of its start."""
    file = file_of(path)
    assert file.load_if_changed(may_change=True) is None
    path.write_text(AFTER)
    topics = file.load_if_changed(may_change=True)
    assert topics is not None
    assert list(topics.inputs) == ["lines", "words"]
    assert file.load_if_changed(may_change=True) is None
    assert file.note == ""


def test_a_file_that_cannot_be_loaded_is_named_until_it_can_be(path: Path) -> None:
    """D1302: what is shown is then older than the file, and the page says so."""
    file = file_of(path)
    path.write_text(BROKEN)
    assert file.load_if_changed(may_change=True) is None
    assert "this page shows what it was" in file.note
    assert "partition" in file.note
    path.write_text(AFTER)
    assert file.load_if_changed(may_change=True) is not None
    assert file.note == ""


def test_a_file_that_is_taken_away_for_a_moment_changes_nothing(path: Path) -> None:
    """D1301: as an editor does, or a mounted volume."""
    file = file_of(path)
    path.unlink()
    assert file.load_if_changed(may_change=True) is None
    path.write_text(BEFORE)
    assert file.load_if_changed(may_change=True) is None


def test_a_change_waits_for_a_redrive_that_runs_here(path: Path) -> None:
    """D1303: it would be cut off."""
    file = file_of(path)
    path.write_text(AFTER)
    assert file.load_if_changed(may_change=False) is None
    assert "when the redrive that runs here has ended" in file.note
    assert file.load_if_changed(may_change=True) is not None
    assert file.note == ""


@pytest.mark.parametrize("first", [BEFORE, BROKEN])
@pytest.mark.parametrize("may_change", [True, False])
def test_a_file_that_is_changed_back_during_a_redrive_has_the_note_of_before(
    path: Path, first: str, may_change: bool
) -> None:
    file = file_of(path)
    path.write_text(first)
    assert file.load_if_changed(may_change=True) is None
    note = file.note
    path.write_text(AFTER)
    assert file.load_if_changed(may_change=False) is None
    assert "when the redrive that runs here has ended" in file.note
    path.write_text(first)
    assert file.load_if_changed(may_change=may_change) is None
    assert file.note == note
    path.write_text(AFTER)
    assert file.load_if_changed(may_change=True) is not None
    assert file.note == ""


class Pages:
    """Builds pages, and notes which are open."""

    def __init__(self) -> None:
        self.opened: list[list[str]] = []
        self.closed: list[list[str]] = []

    def build(self, stack: ExitStack, topics: Topics) -> ServedPages:
        names = list(topics.inputs)
        self.opened.append(names)
        stack.callback(self.closed.append, names)

        async def application(_scope: Any, _receive: Any, send: Callable[[list[str]], None]) -> None:
            send(names)

        return ServedPages(application, Watch(lambda at_ms: Snapshot(at_ms, ()), topics, lambda: 1_000))


def test_the_pages_of_a_new_file_take_the_place_of_the_former_ones(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D1301: requests go to the new ones, which have read; the former ones end, and are closed."""
    monkeypatch.setattr(pages_watch, "FILE_EVERY_S", 0.0)
    pages, answers = Pages(), list[list[str]]()
    site = Site(pages.build, load_topics(path, {}), file_of(path))

    async def request() -> list[str]:
        await site(None, None, answers.append)
        return answers[-1]

    async def serve() -> None:
        reading = asyncio.create_task(site.run())
        assert await request() == ["lines"]
        path.write_text(AFTER)
        async with asyncio.timeout(30):
            while await request() == ["lines"]:
                await asyncio.sleep(0.01)
        assert await request() == ["lines", "words"]
        site.is_over = lambda: True
        await reading

    asyncio.run(serve())
    assert pages.closed == [["lines"]]
    site.close()
    assert pages.closed == pages.opened == [["lines"], ["lines", "words"]]


def test_each_page_says_that_its_file_cannot_be_loaded() -> None:
    """D1302: at the head of each page."""
    world = World(yaml_of())
    watch = Watch(lambda at_ms: Snapshot(at_ms, ()), world.topics, lambda: world.now_ms)
    watch.file_note = "topics.yaml has changed and cannot be read"
    watch.read()
    assert watch.latest.file_note == watch.file_note
