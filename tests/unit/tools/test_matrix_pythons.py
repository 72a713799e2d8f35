"""The tests that another version of Python runs, and which Python of a machine it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.matrix.pythons import ON_SPARK, QUICK_WITHOUT_SERVER, WITHOUT_SERVER, newest_python
from tests.matrix.versions import PROJECT


def test_the_tests_of_a_python_exist() -> None:
    files = [name.partition("::")[0] for name in (*WITHOUT_SERVER, *QUICK_WITHOUT_SERVER, *ON_SPARK)]
    assert [name for name in files if not (PROJECT / name).exists()] == []


def program_that_prints(folder: Path, name: str, version: str, exit_code: int = 0) -> Path:
    """Return a program that prints a version as Python does, and ends with the code."""
    program = folder / name
    program.write_text(f"#!/bin/sh\necho {version}\nexit {exit_code}\n", encoding="utf-8")
    program.chmod(0o700)
    return program


@pytest.mark.parametrize(
    ("versions", "newest"),
    [
        (["3.12", "3.14", "3.13"], "3.14"),
        (["3.13", "3.12"], "3.13"),
        (["3.11", "3.12"], "3.12"),  # 3.11 is that of the lock's environment
        (["3.11", "3.10", "3.15"], None),
        ([], None),
    ],
)
def test_the_newest_python_is_one_that_is_supported(
    tmp_path: Path, versions: list[str], newest: str | None
) -> None:
    programs = {version: program_that_prints(tmp_path, version, version) for version in versions}
    assert newest_python(programs.values()) == programs.get(newest or "")


def test_a_program_that_is_not_there_or_fails_is_no_python(tmp_path: Path) -> None:
    shim = program_that_prints(tmp_path, "shim", "3.14", exit_code=127)
    python = program_that_prints(tmp_path, "python", "3.12")
    assert newest_python([tmp_path / "nothing", shim, python]) == python
