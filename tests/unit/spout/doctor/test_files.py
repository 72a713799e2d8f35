"""What files say: topics.yaml, Spark, and the owners of our import names, each wrong once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from acker.config.topics import parse
from spout.doctor.codes import HORIZON, NAMES, SPARK, TOPICS_FILE, CheckCode, CheckHealth, CheckResult
from spout.doctor.files import (
    FileFacts,
    file_facts,
    judge_files,
    other_owners,
    shadowing_files,
    spark_version_in,
)

TOPICS = parse("inputs: {a: {id: 1, group: g}}", file="topics.yaml", environ={})
RIGHT = FileFacts("topics.yaml", TOPICS, "", "4.3.0", "", "", {}, {})


def wrong(facts: FileFacts) -> list[tuple[CheckCode, CheckHealth]]:
    return [(each.code, each.health) for each in judge_files(facts) if each.health is not CheckHealth.OK]


def the(facts: FileFacts, code: CheckCode) -> CheckResult:
    (found,) = [
        each for each in judge_files(facts) if each.code is code and each.health is not CheckHealth.OK
    ]
    return found


def test_right_files_pass() -> None:
    assert wrong(RIGHT) == []


def test_a_wrong_topics_yaml_fails_with_its_problems_and_nothing_is_judged_by_it() -> None:
    facts = replace(RIGHT, topics=None, problem="topics.yaml:1: inputs.a.id = 0: is too low")
    assert wrong(facts) == [(TOPICS_FILE, CheckHealth.FAILED)]
    assert the(facts, TOPICS_FILE).cure == "windhover validate topics.yaml"


@pytest.mark.parametrize("version", ["", "3.5.1", "3.9.0", "4.4.0", "4.10.0"])
def test_another_spark_fails(version: str) -> None:
    assert wrong(replace(RIGHT, pyspark=version)) == [(SPARK, CheckHealth.FAILED)]


def test_a_spark_home_of_another_version_fails(tmp_path: Path) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "spark-core_2.13-4.2.0.jar").touch()
    assert spark_version_in(tmp_path) == "4.2.0"
    assert spark_version_in(tmp_path / "nowhere") == ""

    facts = file_facts(Path("topics.yaml"), TOPICS, "", {"SPARK_HOME": str(tmp_path)}, [])
    facts = replace(facts, pyspark="4.3.0")
    assert (SPARK, CheckHealth.FAILED) in wrong(facts)
    assert "4.3.0, and SPARK_HOME" in the(facts, SPARK).observed
    assert wrong(replace(facts, pyspark="4.2.0")) == []


@pytest.mark.parametrize("version", ["4.0.0", "4.1.4", "4.2.0", "4.3.0"])
def test_each_spark_that_pip_allows_passes(version: str) -> None:
    assert wrong(replace(RIGHT, pyspark=version)) == []


def test_another_distribution_that_owns_a_name_fails_and_is_named(tmp_path: Path) -> None:
    info = tmp_path / "replay_tools-2.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: replay-tools\nVersion: 2.1\n")
    (info / "RECORD").write_text("replay/__init__.py,,\nreplay_tools-2.1.dist-info/METADATA,,\n")
    assert other_owners([str(tmp_path)]) == {"replay": ["replay-tools 2.1"]}

    facts = file_facts(Path("topics.yaml"), TOPICS, "", {}, [str(tmp_path)])
    assert (NAMES, CheckHealth.FAILED) in wrong(facts)
    cure = "pip uninstall replay-tools && pip install --force-reinstall --no-deps windhover-kafka"
    assert the(facts, NAMES).cure == cure


def test_a_file_of_the_user_that_hides_our_package_fails_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "spout.py").touch()
    assert shadowing_files([str(tmp_path)]) == {"spout": str(tmp_path / "spout.py")}

    facts = file_facts(Path("topics.yaml"), TOPICS, "", {}, [str(tmp_path)])
    assert (NAMES, CheckHealth.FAILED) in wrong(facts)
    assert the(facts, NAMES).subject == "spout"


def test_a_record_that_may_be_needed_longer_than_topics_keep_it_is_a_warning() -> None:
    topics = parse("inputs: {a: {id: 1, group: g, timeout: 0}}", file="topics.yaml", environ={})
    facts = replace(RIGHT, topics=topics)
    assert wrong(facts) == [(HORIZON, CheckHealth.WARNING)]
    assert "set its retention.ms -1" in the(facts, HORIZON).observed
