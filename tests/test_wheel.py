"""What a user installs: the product, and none of the tools that prove and measure it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from email.message import Message
from email.parser import Parser
from pathlib import Path, PurePosixPath

import pytest
from packaging.requirements import Requirement

from spout.distribution import DISTRIBUTION, wheel_name
from spout.doctor.machine import PYTHONS
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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as `uv build --wheel` makes it."""
    folder = tmp_path_factory.mktemp("dist")
    uv = shutil.which("uv") or lacking("uv is not in the PATH")
    command = [uv, "build", "--wheel", "--python", sys.executable, "--out-dir", str(folder), str(PROJECT)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def of_info(wheel: Path, name: str) -> str:
    """Return a file of the metadata of a wheel."""
    with zipfile.ZipFile(wheel) as content:
        (path,) = [path for path in content.namelist() if path.endswith(f".dist-info/{name}")]
        return content.read(path).decode()


def metadata_of(wheel: Path) -> Message:
    return Parser().parsestr(of_info(wheel, "METADATA"))


def test_the_wheel_holds_the_product_and_nothing_else(wheel: Path) -> None:
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


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    """Its name, which is free on PyPI; its licence, with the text; that it has types; what runs it."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = metadata_of(wheel)
    assert wheel.name == wheel_name(project["version"])
    assert (metadata["Name"], metadata["Version"]) == (DISTRIBUTION, project["version"])
    assert metadata["Summary"] == project["description"]
    assert (metadata["License-Expression"], metadata.get_all("License-File")) == ("Apache-2.0", ["LICENSE"])
    assert of_info(wheel, "licenses/LICENSE") == (PROJECT / "LICENSE").read_text(encoding="utf-8")
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata["Requires-Python"] == ">=3.11"
    assert "windhover = spout.cli.foreign:begin" in of_info(wheel, "entry_points.txt")
    classifiers = metadata.get_all("Classifier", [])
    assert {"Typing :: Typed", "Operating System :: POSIX :: Linux"} <= set(classifiers)
    pythons = {text.rpartition(" ")[2] for text in classifiers if ":: Python :: 3." in text}
    assert pythons == {f"{major}.{minor}" for major, minor in PYTHONS}, "what the doctor takes as tested"


def test_the_wheel_needs_what_the_project_needs_and_no_tool_of_its_tests(wheel: Path) -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = metadata_of(wheel)
    needs = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    plain = {need.name for need in needs if "extra ==" not in str(need.marker)}
    assert plain == {Requirement(text).name for text in project["dependencies"]}
    extras = metadata.get_all("Provides-Extra", [])
    assert set(extras) == project["optional-dependencies"].keys()
    of_extras = {need.name for need in needs} - plain
    assert of_extras == {
        Requirement(text).name for texts in project["optional-dependencies"].values() for text in texts
    }
