"""The list of Kafka's jars, and where they come from and go to."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from acker.errors import UsageError
from spout.local.jars import (
    Jar,
    Repository,
    cache_directory,
    kafka_jars,
    mismatches,
    parse_lock,
)


def test_the_list_names_39_different_jars_of_one_kafka() -> None:
    jars = kafka_jars()
    assert len({jar.file for jar in jars}) == len(jars) == 39
    assert {jar.version for jar in jars if jar.group == "org.apache.kafka"} == {"4.3.1"}


def test_the_list_brings_what_lets_the_broker_log() -> None:
    assert "log4j-slf4j-impl" in {jar.artifact for jar in kafka_jars()}


def test_a_line_of_the_list_is_a_maven_path_with_a_checksum() -> None:
    sha256 = "ab" * 32
    jars = parse_lock(f"{sha256}  org/apache/kafka/kafka_2.13/4.3.1/kafka_2.13-4.3.1.jar\n\n")
    assert jars == (Jar(sha256, "org.apache.kafka", "kafka_2.13", "4.3.1"),)
    assert jars[0].file == "kafka_2.13-4.3.1.jar"
    assert jars[0].path == "org/apache/kafka/kafka_2.13/4.3.1/kafka_2.13-4.3.1.jar"


@pytest.mark.parametrize("line", ["ab  org/a/1/a-1.jar", f"{'ab' * 32}  org/a/1/b-1.jar"])
def test_a_line_that_does_not_fit_itself_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"jars\.lock"):
        parse_lock(line)


def test_a_jar_that_is_missing_or_changed_is_found(tmp_path: Path) -> None:
    contents = {"good": b"1", "changed": b"2", "missing": b"3"}
    jars = [Jar(hashlib.sha256(raw).hexdigest(), "org", name, "1") for name, raw in contents.items()]
    (tmp_path / "good-1.jar").write_bytes(b"1")
    (tmp_path / "changed-1.jar").write_bytes(b"x")
    changed, missing = mismatches(tmp_path, jars)
    assert changed.startswith("changed-1.jar has SHA-256")
    assert missing == "missing-1.jar is missing"


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"WINDHOVER_CACHE": "/c", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/c"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/windhover"),
        ({"HOME": "/h"}, "/h/.cache/windhover"),
    ],
)
def test_the_cache_is_where_the_environment_says(environ: dict[str, str], folder: str) -> None:
    assert cache_directory(environ) == Path(folder)


def test_a_mirror_that_is_no_address_is_refused() -> None:
    with pytest.raises(UsageError, match=r"WINDHOVER_MAVEN_MIRROR='mirror\.example' is no address"):
        Repository.of({"WINDHOVER_MAVEN_MIRROR": "mirror.example"})


def test_an_empty_mirror_is_none() -> None:
    assert Repository.of({"WINDHOVER_MAVEN_MIRROR": "", "HOME": "/h"}).mirror is None
