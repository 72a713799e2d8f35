"""Which tests run on another version of Python, and how its environment comes about.

The tests are those of `acker`, `replay` and `spout` that need no server, and one on a real Spark, whose
workers are processes of that Python too. What is installed is what `uv.lock` has for that version.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

from tests.matrix.versions import PROJECT, Outcome, run_pytest

PYTHONS: Final = ("3.12", "3.13", "3.14")
"""The releases of Python behind that of `uv.lock`'s environment, 3.11."""

WITHOUT_SERVER: Final = ("tests/unit/acker", "tests/unit/replay", "tests/unit/spout")
ON_SPARK: Final = ("tests/integration/spark/test_keyed_spark.py::test_whole_numbers_stay_whole_beside_nulls",)

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


def run_on_python(python: Path, folder: Path) -> Outcome:
    """Run the tests by the Python of an environment; the log of each part is kept in the folder.

    The exit code is the first one of a part that fell; both parts run in any case.
    """
    program = "import platform; print(platform.python_version())"
    version = subprocess.check_output([str(python), "-c", program], text=True).strip()
    parts = [
        run_pytest(python, ["-m", _NO_SERVER, *WITHOUT_SERVER], folder / f"python-{version}.log"),
        run_pytest(python, ["-m", "slow or not slow", *ON_SPARK], folder / f"python-{version}-spark.log"),
    ]
    counts = "; on Spark ".join(counts for counts, _exit_code in parts)
    exit_codes = [exit_code for _counts, exit_code in parts if exit_code]
    return Outcome(version, counts, exit_codes[0] if exit_codes else 0)
