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


def test_a_cache_that_has_all_is_only_read(tmp_path: Path) -> None:
    """Such as that of an image with a read-only root."""
    jar = Jar(hashlib.sha256(b"1").hexdigest(), "org", "good", "1")
    folder = tmp_path / f"jars-{hashlib.sha256(jar.sha256.encode()).hexdigest()[:12]}"
    folder.mkdir()
    (folder / "good-1.jar").write_bytes(b"1")
    (tmp_path / "jars.flock").mkdir()  # what cannot be opened to be written
    assert Repository(tmp_path).fetch([jar]) == folder


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


def test_a_user_without_a_folder_is_told_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container that runs under a bare number has no entry in its list of users."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    for ask in (cache_directory, Repository.of):
        with pytest.raises(UsageError, match="has no folder on this machine"):
            ask({})
    assert Repository.of({"WINDHOVER_CACHE": "/c"}) == Repository(Path("/c"))


def test_a_mirror_that_is_no_address_is_refused() -> None:
    with pytest.raises(UsageError, match=r"WINDHOVER_MAVEN_MIRROR='mirror\.example' is no address"):
        Repository.of({"WINDHOVER_MAVEN_MIRROR": "mirror.example"})


def test_an_empty_mirror_is_none() -> None:
    assert Repository.of({"WINDHOVER_MAVEN_MIRROR": "", "HOME": "/h"}).mirror is None


SETTINGS = """\
<settings xmlns="http://maven.apache.org/SETTINGS/1.2.0">
  <mirrors>{mirrors}</mirrors>
  <servers><server><id>works</id><username>me</username><password>{password}</password></server></servers>
</settings>
"""


def of_settings(home: Path, mirrors: str, password: str = "", **environ: str) -> Repository:
    """Build a repository where Maven's settings have these mirrors."""
    (home / ".m2").mkdir()
    (home / ".m2" / "settings.xml").write_text(SETTINGS.format(mirrors=mirrors, password=password))
    return Repository.of({"HOME": str(home), **environ})


def mirror(of: str, url: str, name: str = "other") -> str:
    """Write one mirror of the settings."""
    return f"<mirror><id>{name}</id><mirrorOf> {of} </mirrorOf><url>{url}</url></mirror>"


@pytest.mark.parametrize("of", ["central", "*", "external:*", "company,central", "*,!company"])
def test_the_mirror_of_mavens_settings_is_used(of: str, tmp_path: Path) -> None:
    found = of_settings(tmp_path, mirror(of, "https://maven.example/all"))
    assert found.mirror == "https://maven.example/all"
    assert str(found) == f"https://maven.example/all, the mirror of {tmp_path}/.m2/settings.xml,"


@pytest.mark.parametrize("of", ["company", "*,!central", "external:http:*"])
def test_a_mirror_of_other_repositories_is_not_used(of: str, tmp_path: Path) -> None:
    assert of_settings(tmp_path, mirror(of, "https://maven.example/all")).mirror is None


def test_a_mirror_of_central_by_name_goes_before_one_of_everything(tmp_path: Path) -> None:
    both = mirror("*", "https://every.example") + mirror("central", "https://central.example")
    assert of_settings(tmp_path, both).mirror == "https://central.example"


def test_the_environment_goes_before_mavens_settings_and_fills_them_in(tmp_path: Path) -> None:
    environ = {"WHERE": "maven.example", "SECRET": "pass"}
    found = of_settings(
        tmp_path, mirror("*", "https://${env.WHERE}/all", "works"), "${env.SECRET}", **environ
    )
    assert (found.mirror, found.username, found.password) == ("https://maven.example/all", "me", "pass")
    assert "pass" not in repr(found)
    named = {"HOME": str(tmp_path), "WINDHOVER_MAVEN_MIRROR": "file:///m"}
    assert Repository.of(named) == Repository(tmp_path / ".cache/windhover", "file:///m")


@pytest.mark.parametrize("password", ["{encrypted}", "${env.UNSET}"])
def test_a_password_that_only_maven_can_read_is_left_out(password: str, tmp_path: Path) -> None:
    found = of_settings(tmp_path, mirror("*", "https://maven.example", "works"), password)
    assert (found.mirror, found.username, found.password) == ("https://maven.example", "", "")


@pytest.mark.parametrize(
    ("mirrors", "wrong"),
    [("<", r"settings\.xml cannot be read: .*"), (mirror("*", "${where}"), r"Central is '\$\{where\}'")],
)
def test_settings_that_cannot_be_used_are_refused_with_the_cure(
    mirrors: str, wrong: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=rf"{wrong}.*Mend it, or set WINDHOVER_MAVEN_MIRROR"):
        of_settings(tmp_path, mirrors)
