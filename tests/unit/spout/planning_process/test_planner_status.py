"""The status file of a planning process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from spout.planning_process.status import PlannerStatus, read_status, write_status


def test_a_status_is_read_as_it_was_written_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path, status = tmp_path / "s.status.json", PlannerStatus("running", "g", committed={"t/0": 7})
    assert read_status(path) is None
    write_status(path, replace(status, pending=3))
    write_status(path, status)
    assert read_status(path) == status
    assert [file.name for file in tmp_path.iterdir()] == ["s.status.json"]
    path.write_text('{"state": "running", "group": "g", "of_another_version": 1}', encoding="utf-8")
    assert read_status(path) == PlannerStatus("running", "g")


def test_two_threads_that_write_one_status_at_once_bend_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two queries may be given one file: one writes in the middle of the other's writing, and it is whole."""
    path = tmp_path / "status.json"
    one, two = PlannerStatus("running", "one"), PlannerStatus("running", "two")
    read: list[PlannerStatus | None] = []

    def interrupted(written: Path, text: str, encoding: str) -> int:
        with written.open("w", encoding=encoding) as file:
            if not read:
                read.append(None)
                with ThreadPoolExecutor(1) as other:
                    other.submit(write_status, path, two).result(timeout=10)
            return file.write(text)

    def replaced(beside: Path, target: Path) -> Path:
        read.append(read_status(path))
        return replace_file(beside, target)

    replace_file = Path.replace
    monkeypatch.setattr(Path, "write_text", interrupted)
    monkeypatch.setattr(Path, "replace", replaced)
    write_status(path, one)
    assert read == [None, None, two]  # before the first thread wrote, and after either has written beside
    assert read_status(path) == one
