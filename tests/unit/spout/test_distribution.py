"""The distribution has another name than the command and the packages, and all who read its data know it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from spout.distribution import DISTRIBUTION, installed_version, is_windhover, wheel_name
from spout.doctor.files import other_owners
from spout.doctor.on_executor import PACKAGES, answer
from spout.runtime.metrics import build_info

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_name_and_the_version_are_those_of_the_project() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    assert installed_version() == PROJECT["version"]
    # the name of somebody else on PyPI
    assert DISTRIBUTION != "windhover"
    assert PROJECT["scripts"].keys() == {"windhover"}


def test_everything_that_reports_a_version_reports_that_of_the_project() -> None:
    (sample,) = build_info().samples
    assert sample.labels == {"version": PROJECT["version"]}
    assert PACKAGES[0] == DISTRIBUTION
    assert answer([], 0.0)["packages"][DISTRIBUTION] == PROJECT["version"]


@pytest.mark.parametrize("distribution", ["windhover-kafka", "windhover_kafka", "Windhover.Kafka"])
def test_the_distribution_is_recognised_however_a_tool_spells_it(distribution: str, tmp_path: Path) -> None:
    assert is_windhover(distribution)
    install(tmp_path, distribution)
    assert other_owners([str(tmp_path)]) == {}


@pytest.mark.parametrize("distribution", ["windhover", "windhover-kafka-tools", "kafka"])
def test_a_distribution_of_another_name_is_somebody_elses(distribution: str, tmp_path: Path) -> None:
    """Among them the one that we installed under our former name: both have the same packages."""
    assert not is_windhover(distribution)
    install(tmp_path, distribution)
    assert other_owners([str(tmp_path)]) == {"acker": [f"{distribution} 1.0"]}


def install(folder: Path, distribution: str) -> None:
    """Write what an installer leaves behind of a distribution with the package `acker`."""
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "RECORD").write_text("acker/__init__.py,,\n")


def test_the_lock_knows_the_project_by_its_name() -> None:
    """`uv sync --locked` would refuse the lock; this says why."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
    [ours] = [package["name"] for package in lock["package"] if package["source"] == {"editable": "."}]
    assert ours == DISTRIBUTION


def test_the_file_of_a_wheel_has_the_name_that_tools_give_it() -> None:
    """PEP 427: what separates words becomes an underscore."""
    assert wheel_name("1.2.3") == "windhover_kafka-1.2.3-py3-none-any.whl"
