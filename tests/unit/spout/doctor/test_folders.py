"""The doctor on disks that are nearly full, and on the folder of a checkpoint."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest

from acker.config.topics import parse
from acker.identity import source_of
from spout.cli import main as cli
from spout.doctor import machine
from spout.doctor.codes import CHECKPOINT, DISK, CheckCode, CheckHealth, CheckResult
from spout.doctor.files import CheckpointFacts, checkpoint_facts, judge_checkpoint, local_folder
from spout.doctor.machine import DiskFacts, disk_facts, judge_disks
from spout.planning.journal import Journal, SourceMark

GIB: Final = 1 << 30
FILE: Final = parse(
    "inputs: {a: {id: 1, group: g}, b: {id: 2, group: g}, c: {id: 3, group: h}}",
    file="topics.yaml",
    environ={},
)
ROOMY: Final = DiskFacts("checkpoint", "/data", "", 50 * GIB, 100 * GIB, 900, 1_000)


def judged(disk: DiskFacts) -> tuple[CheckCode, CheckHealth]:
    (result,) = judge_disks([disk])
    return result.code, result.health


@pytest.mark.parametrize(
    ("disk", "expected"),
    [
        (ROOMY, (DISK, CheckHealth.OK)),
        (replace(ROOMY, free_bytes=9 * GIB), (DISK, CheckHealth.WARNING)),
        (replace(ROOMY, free_bytes=300 * GIB, size_bytes=4_000 * GIB), (DISK, CheckHealth.OK)),
        (replace(ROOMY, free_bytes=2 * GIB, size_bytes=4 * GIB), (DISK, CheckHealth.OK)),
        (replace(ROOMY, free_bytes=50 << 20), (DISK, CheckHealth.FAILED)),
        (replace(ROOMY, free_bytes=0), (DISK, CheckHealth.FAILED)),
        (replace(ROOMY, free_files=5), (DISK, CheckHealth.WARNING)),
        (replace(ROOMY, free_files=0, files=0), (DISK, CheckHealth.OK)),
        (replace(ROOMY, problem="this user may not write into /data"), (DISK, CheckHealth.FAILED)),
    ],
    ids=["room", "a tenth", "large", "small", "full", "nothing left", "files", "files not counted", "right"],
)
def test_a_disk_that_is_nearly_full_is_found(
    disk: DiskFacts, expected: tuple[CheckCode, CheckHealth]
) -> None:
    """D2704: by its space, and by the files that it can still hold."""
    assert judged(disk) == expected


def test_the_disks_of_temporary_files_of_spark_and_of_the_checkpoint_are_looked_at(tmp_path: Path) -> None:
    """D2704: a folder that is made later is on the disk of the one above it."""
    checkpoint = tmp_path / "not" / "there" / "yet"
    disks = disk_facts({"SPARK_LOCAL_DIRS": f"{tmp_path}, {tmp_path}/b"}, checkpoint)
    assert [disk.folder for disk in disks] == [
        tempfile.gettempdir(),
        str(tmp_path),
        f"{tmp_path}/b",
        str(checkpoint),
    ]
    assert all(disk.size_bytes > 0 and not disk.problem for disk in disks)
    assert len(disk_facts({}, local_folder("s3a://bucket/checkpoint"))) == 1


def test_a_full_disk_is_seen_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """D2704: it said that all was well, and the query ended with `No space left on device`."""
    full = SimpleNamespace(f_bavail=10, f_blocks=10_000_000, f_frsize=4_096, f_favail=0, f_files=0)
    monkeypatch.setattr(
        machine, "os", SimpleNamespace(statvfs=lambda _: full, access=os.access, W_OK=2, X_OK=1)
    )
    file = tmp_path / "topics.yaml"
    file.write_text("inputs: {a: {id: 1, group: g}}")

    code = cli.run(["doctor", "--only", "files", "--config", str(file)])

    out = capsys.readouterr().out
    assert code == 1
    assert "failed   WH015 disk, folder of temporary files" in out
    assert "the disk is full: 0 MiB of 38.1 GiB are free" in out


def checkpoint_in(folder: Path, *sources: int, batch: int = 12) -> Path:
    """Write what Spark writes: of a query with a stream of each source, whose last batch is under way."""
    (folder / "offsets").mkdir(parents=True)
    (folder / "commits").mkdir()
    (folder / "metadata").write_text('{"id":"11111111-2222-3333-4444-555555555555"}')
    marks = {source: SourceMark(0, 5) for source in sources}
    journal = Journal("session", 1, 0, 1, marks, ())
    lines = ["v1", '{"batchWatermarkMs":0}', "-", json.dumps(journal.to_json()), '{"other":1}']
    (folder / "offsets" / str(batch)).write_text("\n".join(lines if sources else lines[:3]))
    (folder / "offsets" / f".{batch}.crc").write_text("x")
    (folder / "commits" / str(batch - 1)).write_text("v1\n{}")
    return folder


def checked(folder: object) -> CheckResult:
    return judge_checkpoint(checkpoint_facts(str(folder)), FILE)


def test_a_checkpoint_is_said_to_be_of_its_query_group_and_inputs(tmp_path: Path) -> None:
    """D2705: with copies of one of them, which are of the same input."""
    sources = source_of(1, 0), source_of(1, 0, replay=True), source_of(2, 3)
    folder = checkpoint_in(tmp_path / "c", *sources)
    for name in (folder, f"file://{folder}", f"file:{folder}"):
        result = checked(name)
        assert result.health is CheckHealth.OK
        assert result.observed == (
            "of Spark's query 11111111-2222-3333-4444-555555555555: batch 12 was planned, batch 11 is written"
            "; of group g, inputs a, b"
        )


def without_metadata(folder: Path) -> Path:
    (folder / "metadata").unlink()
    return folder


def damaged(folder: Path, name: str) -> Path:
    (folder / name).write_bytes(b"\xff{")
    return folder


def with_a_file(folder: Path) -> Path:
    folder.write_text("")
    return folder


def test_what_cannot_be_used_as_a_checkpoint_is_found(tmp_path: Path) -> None:
    """D2705"""
    (tmp_path / "empty").mkdir()
    wrong = {
        "is not there": tmp_path / "no",
        "is a file, and no folder": with_a_file(tmp_path / "file"),
        "no input of id 9": checkpoint_in(tmp_path / "other", source_of(9, 0)),
        "metadata: is damaged": damaged(checkpoint_in(tmp_path / "m", source_of(1, 0)), "metadata"),
        "offsets/12: is damaged": damaged(checkpoint_in(tmp_path / "o", source_of(1, 0)), "offsets/12"),
    }
    for words, folder in wrong.items():
        result = checked(folder)
        assert (result.code, result.health) == (CHECKPOINT, CheckHealth.FAILED), words
        assert words.rpartition(": ")[2] in result.observed
        assert str(folder) in result.cure
    doubtful = {
        "no query has begun in it": tmp_path / "empty",
        "no stream of Windhover is in it": checkpoint_in(tmp_path / "strange"),
    }
    for words, folder in doubtful.items():
        result = checked(folder)
        assert (result.code, result.health) == (CHECKPOINT, CheckHealth.WARNING), words
        assert words in result.observed


def test_a_checkpoint_of_another_user_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D2705: root may read all, so the right is taken away where it is asked for."""
    folder = checkpoint_in(tmp_path / "c", source_of(1, 0))
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != folder)
    result = checked(folder)
    assert result.health is CheckHealth.FAILED
    assert "may not read it" in result.observed


def test_a_checkpoint_on_another_machine_is_unknown() -> None:
    """D2705: nothing is said of what nobody has seen."""
    for name in ("hdfs://name/c", "s3a://bucket/c", "abfss://x@y/c"):
        assert checked(name).health is CheckHealth.UNKNOWN


def test_a_query_that_has_planned_nothing_yet_is_right() -> None:
    facts = CheckpointFacts("/c", query="11111111")
    result = judge_checkpoint(facts, None)
    assert result.health is CheckHealth.OK
    assert "no batch was planned, none is written" in result.observed


def test_the_command_takes_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """D2705"""
    file = tmp_path / "topics.yaml"
    file.write_text("inputs: {a: {id: 1, group: g}}")
    folder = checkpoint_in(tmp_path / "c", source_of(1, 0))

    cli.run(["doctor", "--only", "files", "--config", str(file), "--checkpoint", str(folder), "-o", "json"])

    rows = json.loads(capsys.readouterr().out)
    (row,) = (row for row in rows if row["code"] == CHECKPOINT.code)
    assert row["health"] == "ok"
    assert str(folder) in {row["object"].rpartition(" ")[2] for row in rows if row["code"] == DISK.code}
    assert cli.run(["doctor", "--only", "live", "--config", str(file), "--checkpoint", str(folder)]) == 2
