"""Which tests run on another version of Python, and how its environment comes about.

The tests are those of `acker`, `replay` and `spout` that need no server, and one on a real Spark, whose
workers are processes of that Python too. What is installed is what `uv.lock` has for that version.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.matrix.versions import PROJECT, Outcome, run_pytest

PYTHONS: Final = ("3.12", "3.13", "3.14")
"""The releases of Python behind that of `uv.lock`'s environment, 3.11."""

ANSWER_S_MAX: Final = 30
"""How long a program may take to print its version."""

WITHOUT_SERVER: Final = ("tests/unit/acker", "tests/unit/replay", "tests/unit/spout")
ON_SPARK: Final = ("tests/integration/spark/test_keyed_spark.py::test_whole_numbers_stay_whole_beside_nulls",)

QUICK_WITHOUT_SERVER: Final = (
    "tests/unit/acker/config",
    "tests/unit/acker/wire",
    "tests/unit/spout/bolts",
    "tests/unit/spout/cli",
    "tests/unit/spout/isolation",
    "tests/unit/spout/link",
    "tests/unit/spout/tuples",
)
"""What CI has time for: processes, pickles, sockets, times, what users' code is read by."""

_NO_SERVER: Final = "not slow and not kafka and not spark and not docker"


def make_python_environment(folder: Path, python: str) -> Path:
    """Make an environment of one Python, with all else as the lock has it; return its program.

    `python` is a version such as 3.13, which uv has to have, or the path of a program.
    """
    environment = folder / f"python-{re.sub(r'[^0-9A-Za-z.]+', '-', python).strip('-')}"
    subprocess.run(
        # compiling all modules takes longer than the tests save by it
        ["uv", "sync", "--quiet", "--locked", "--group", "dev", "--no-compile-bytecode", "--python", python],
        cwd=PROJECT,
        env={**os.environ, "UV_PROJECT_ENVIRONMENT": str(environment)},
        check=True,
    )
    return environment / "bin" / "python"


def newest_python(programs: Iterable[str | Path] | None = None) -> Path | None:
    """Return the newest Python of `PYTHONS` that this machine has; None: it has none of them.

    `programs` are those that are tried; unset: those of the PATH and of pyenv.
    """
    tried = installed_programs() if programs is None else programs
    program_by_release: dict[str, Path] = {}
    for program in tried:
        # a file of that name may be pyenv's shim for a Python that is not switched on
        asks = [str(program), "-c", "import platform; print('.'.join(platform.python_version_tuple()[:2]))"]
        try:
            ended = subprocess.run(asks, capture_output=True, text=True, timeout=ANSWER_S_MAX, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if ended.returncode == 0:
            program_by_release.setdefault(ended.stdout.strip(), Path(program))
    for release in reversed(PYTHONS):
        if release in program_by_release:
            return program_by_release[release]
    return None


def installed_programs() -> list[Path]:
    """Return the programs of this machine that have the name of one of `PYTHONS`."""
    programs: list[Path] = []
    for release in PYTHONS:
        on_path = shutil.which(f"python{release}")
        if on_path is not None:
            programs.append(Path(on_path))
        pyenv = Path.home() / ".pyenv" / "versions"
        programs += sorted(pyenv.glob(f"{release}.*/bin/python{release}"))
    return programs


def run_on_python(python: Path, folder: Path, *, is_quick: bool = False) -> Outcome:
    """Run the tests by the Python of an environment; the log of each part is kept in the folder.

    The exit code is the first one of a part that fell; both parts run in any case.
    """
    program = "import platform; print(platform.python_version())"
    version = subprocess.check_output([str(python), "-c", program], text=True).strip()
    without_server = QUICK_WITHOUT_SERVER if is_quick else WITHOUT_SERVER
    parts = [
        run_pytest(python, ["-m", _NO_SERVER, *without_server], folder / f"python-{version}.log"),
        run_pytest(python, ["-m", "slow or not slow", *ON_SPARK], folder / f"python-{version}-spark.log"),
    ]
    counts = "; on Spark ".join(counts for counts, _exit_code in parts)
    exit_codes = [exit_code for _counts, exit_code in parts if exit_code]
    return Outcome(version, counts, exit_codes[0] if exit_codes else 0)
