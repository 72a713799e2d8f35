"""The program that runs tests on other brokers: which tests, what a broker is excused for, and its Go."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from spout.cli import main as windhover
from tests.brokers.__main__ import app
from tests.brokers.ring import LACKS, LEFT_OUT, RING, lack_of
from tests.matrix.versions import PROJECT
from tests.support.servers import kfake
from tests.support.servers.kafka_releases import LOCKS, RELEASES, jars_of, version_of

PAGE = PROJECT / "docs" / "operate" / "which-kafka.md"


def test_the_tests_of_the_ring_exist() -> None:
    assert [name for name in RING if not (PROJECT / name).exists()] == []


def test_what_a_broker_is_excused_for_are_tests_of_the_ring() -> None:
    for node_id in (node_id for lacks in LACKS.values() for node_id in lacks):
        file, _, function = node_id.partition("[")[0].partition("::")
        assert file.startswith(RING)
        tree = ast.parse((PROJECT / file).read_text(encoding="utf-8"))
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_what_is_left_out_for_a_broker_is_a_file_of_the_ring() -> None:
    for file in (file for files in LEFT_OUT.values() for file in files):
        assert file.startswith(RING)
        assert (PROJECT / file).is_file()


def test_the_page_names_whatever_a_broker_is_excused_for() -> None:
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    excuses = [*LACKS.values(), *LEFT_OUT.values()]
    reasons = {reason for lacks in excuses for reason in lacks.values()}
    assert sorted(reason for reason in reasons if reason not in page) == []


def test_each_release_of_kafka_has_a_list_of_jars_of_one_version_of_it() -> None:
    assert sorted(path.stem for path in LOCKS.glob("*.lock")) == sorted(RELEASES)
    for release in RELEASES:
        versions = {jar.version for jar in jars_of(release) if jar.group == "org.apache.kafka"}
        assert versions == {version_of(release)}
        assert version_of(release).startswith(f"{release}.")


@pytest.mark.parametrize("release", RELEASES)
def test_the_page_names_each_version_of_kafka_that_the_ring_can_run(release: str) -> None:
    assert version_of(release) in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("node_id", "lack"),
    [
        ("f.py::test_a", "all of it"),
        ("f.py::test_a[kafka]", "all of it"),
        ("f.py::test_b[kafka]", "one of it"),
        ("f.py::test_b[kafka-1]", None),
        ("f.py::test_ab", None),
        ("g.py::test_a", None),
    ],
)
def test_a_lack_is_one_of_a_test_or_of_its_function(node_id: str, lack: str | None) -> None:
    assert lack_of({"f.py::test_a": "all of it", "f.py::test_b[kafka]": "one of it"}, node_id) == lack


def test_an_unknown_kind_of_broker_ends_with_2_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert windhover.run(["kfake", "1.0"], app, "brokers") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "1.0: must be of" in line


def _go_of(folder: Path, version: str) -> Path:
    """Write a program `go` that says its version and nothing else."""
    program = folder / "go"
    program.write_text(f"#!/bin/sh\necho {version}\n", encoding="ascii")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(("version", "is_new_enough"), [
    ("go1.26.0", True), ("go1.26.8", True), ("go1.27", True), ("go2.0", True),
    ("go1.25.9", False), ("go1.9", False), ("devel", False),
])  # fmt: skip
def test_a_go_that_is_too_old_is_named_with_the_version_that_is_needed(
    version: str, is_new_enough: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = _go_of(tmp_path, version)
    monkeypatch.setenv(kfake.GO, str(program))
    if is_new_enough:
        assert kfake.find_go() == str(program)
    else:
        with pytest.raises(kfake.GoLacking):
            kfake.find_go()


def test_without_go_the_reason_names_the_version_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(kfake.GO, raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(kfake.GoLacking, match=r"install 1\.26\.0 or newer"):
        kfake.find_go()
