"""A local Spark's Python processes import the installed PySpark, whose bytecode Python keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from spout.local.spark_session import home_without_zip


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A PySpark as pip installs it."""
    home = tmp_path / "pyspark"
    for name in ("bin", "jars", "sbin", "python/lib"):
        (home / name).mkdir(parents=True)
    (home / "python" / "lib" / "pyspark.zip").touch()
    (home / "jars" / "spark-core.jar").touch()
    return home


def test_the_home_has_all_of_spark_but_the_zip(installed: Path, tmp_path: Path) -> None:
    home = home_without_zip(installed, {}, tmp_path / "cache")
    assert (home / "jars" / "spark-core.jar").exists()
    assert {each.name for each in home.iterdir()} == {"bin", "jars", "sbin"}
    assert not list((tmp_path / "cache").glob(".*")), "nothing half made is left"


def test_it_is_made_once_and_again_when_its_pyspark_has_moved(installed: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = home_without_zip(installed, {}, cache)
    made = first.stat().st_ino
    assert home_without_zip(installed, {"SPARK_HOME": str(first)}, cache) == first, "a child inherits it"
    assert first.stat().st_ino == made
    moved = installed.rename(tmp_path / "elsewhere")
    second = home_without_zip(moved, {"SPARK_HOME": str(first)}, cache)
    assert (second / "jars" / "spark-core.jar").exists()


def test_a_spark_home_that_somebody_has_set_is_kept(installed: Path, tmp_path: Path) -> None:
    assert home_without_zip(installed, {"SPARK_HOME": "/opt/spark"}, tmp_path) == Path("/opt/spark")
