"""Another Spark than Windhover runs on is refused with what was found and what is wanted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

import spout
from acker.config.topics import parse
from acker.errors import UsageError
from spout.spark.versions import SPARK, SparkVersion, supported

YAML = """
kafka: {bootstrap.servers: "127.0.0.1:1"}
inputs:
  a: {id: 1, group: g, partitions: 1}
"""


@pytest.mark.parametrize(
    ("text", "version"), [("4.0.0", (4, 0)), ("4.1.4", (4, 1)), ("4.10.0.dev1", (4, 10))]
)
def test_versions_compare_by_their_first_two_numbers(text: str, version: tuple[int, int]) -> None:
    assert supported(text) == version
    assert SparkVersion.of("4.9.1") < SparkVersion.of("4.10.0")


@pytest.mark.parametrize("text", ["3.5.8", "3.0.0"])
def test_an_older_one_is_refused_with_both_versions_and_the_cure(text: str) -> None:
    with pytest.raises(
        UsageError, match=rf"^PySpark {text} is .* needs classic PySpark 4\.0 to .*pip install"
    ):
        supported(text)


@pytest.mark.parametrize("name", ["read_stream", "bolt", "start", "keyed"])
def test_beside_an_older_spark_the_error_is_that_and_no_missing_module(name: str, tmp_path: Path) -> None:
    """The package has a version here, and nothing else."""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text('__version__ = "3.5.3"\n', encoding="utf-8")
    root = Path(spout.__file__).parents[1]
    program = f"import spout\ntry: spout.{name}\nexcept Exception as e: print(type(e).__name__, e)"
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.stdout.startswith("UsageError PySpark 3.5.3 is installed, and Windhover needs"), result


class RemoteSession:
    """A session of Spark Connect, as far as it is asked."""

    @property
    def sparkContext(self) -> object:  # noqa: N802 - Spark's name
        raise AttributeError("[JVM_ATTRIBUTE_NOT_SUPPORTED] Attribute `sparkContext` is not supported")


def test_a_session_of_spark_connect_is_refused_with_both_versions_and_the_cure() -> None:
    session: Any = RemoteSession()
    topics = parse(YAML, file="topics.yaml", environ={})
    found = (
        rf"RemoteSession is no classic Spark session.*Found is PySpark {pyspark.__version__}, and wanted is"
    )
    with pytest.raises(UsageError, match=found + r" classic PySpark 4\.0 to .*Run the driver beside Spark"):
        spout.read_stream(session, topics, "a")


def test_this_process_runs_on_a_version_that_is_supported() -> None:
    assert SparkVersion.of(pyspark.__version__) == SPARK
