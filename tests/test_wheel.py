"""What a user installs: the product, and none of the tools that prove and measure it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path, PurePosixPath

from tests.support.lacking import lacking

PROJECT = Path(__file__).resolve().parents[1]
PACKAGES = ("acker", "replay", "spout")
BUILD_SECONDS_MAX = 120

DATA = {
    "acker/py.typed",
    "replay/py.typed",
    "spout/py.typed",  # the packages carry their types
    "spout/local/jars.lock",  # the broker that `up` and the demo start
    "spout/demo/topics.yaml",  # what the demo runs
}
"""What is neither code nor a schema."""

PAGE = ("spout/ui/static/", "spout/ui/templates/")
"""Folders of what the page is made of."""


def test_the_wheel_holds_the_product_and_nothing_else(tmp_path: Path) -> None:
    uv = shutil.which("uv") or lacking("uv is not in the PATH")
    command = [uv, "build", "--wheel", "--python", sys.executable, "--out-dir", str(tmp_path), str(PROJECT)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}

    code = {
        path.relative_to(PROJECT).as_posix() for each in PACKAGES for path in (PROJECT / each).rglob("*.py")
    }
    schemas = {name for name in names if name.endswith(".avsc")}
    page = {path.relative_to(PROJECT).as_posix() for folder in PAGE for path in (PROJECT / folder).iterdir()}
    questions = {name for name in names if name.endswith(".sql")}
    assert names == code | schemas | page | questions | DATA
    assert "spout/questions/letter_counts.sql" in questions
    assert Counter(PurePosixPath(name).parent.as_posix() for name in schemas) == {
        "acker/wire/schemas": 11,
        "replay/records/schemas": 10,
        "spout/exactly_once/schemas": 3,
    }
