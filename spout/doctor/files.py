"""What files say, without a broker: topics.yaml, the installed Spark, and who owns our import names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

from acker.config.topics import Topics
from acker.provisioning.topic_times import long_needs
from spout.doctor.codes import HORIZON, NAMES, SPARK, TOPICS_FILE, CheckResult
from spout.doctor.on_executor import version_of

OURS: Final = "windhover"
IMPORT_NAMES: Final = ("spout", "acker", "replay")
SPARKS: Final = ("4.2", "4.3")
"""The releases of Spark on which the tests run."""

_CORE_JAR: Final = re.compile(r"spark-core_[\d.]+-(\d+\.\d+\.\d+)")


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What files say.

    Attributes:
        file: the path of topics.yaml.
        topics: what it says; None: `problem` says what is wrong with it.
        pyspark: version of the installed package; empty: there is none.
        spark_home: SPARK_HOME of the environment; empty: it is not set.
        spark_home_version: version of the Spark in that folder; empty: none was found there.
        owners: of each import name the other distributions that install it, as ``name version``.
        shadows: of each import name a file that is imported in place of ours.
    """

    file: str
    topics: Topics | None
    problem: str
    pyspark: str
    spark_home: str
    spark_home_version: str
    owners: Mapping[str, Sequence[str]]
    shadows: Mapping[str, str]


def file_facts(
    file: Path, topics: Topics | None, problem: str, environ: Mapping[str, str], path: Sequence[str]
) -> FileFacts:
    """Look at files; `topics` is what the caller has read, `path` where programs look for packages."""
    home = environ.get("SPARK_HOME", "")
    return FileFacts(
        str(file),
        topics,
        problem,
        version_of("pyspark"),
        home,
        spark_version_in(Path(home)) if home else "",
        other_owners(path),
        shadowing_files(path),
    )


def spark_version_in(home: Path) -> str:
    """Return the version of the Spark in a folder, from the name of its core's jar; empty: there is none."""
    names = sorted(each.name for each in (home / "jars").glob("spark-core_*.jar"))
    found = _CORE_JAR.match(names[0]) if names else None
    return found[1] if found else ""


def other_owners(path: Sequence[str]) -> dict[str, list[str]]:
    """Return the other distributions on a path that install a package or module by one of our names."""
    owners: dict[str, list[str]] = {}
    for each in distributions(path=list(path)):
        if (each.name or "").lower() == OURS:
            continue
        tops = {file.parts[0].removesuffix(".py") for file in each.files or ()}
        for name in IMPORT_NAMES:
            if name in tops:
                owners.setdefault(name, []).append(f"{each.name} {each.version}")
    return owners


def judge_files(facts: FileFacts) -> Iterator[CheckResult]:
    if facts.topics is None:
        cure = TOPICS_FILE.cure.format(file=facts.file)
        yield TOPICS_FILE.failed(facts.file, facts.problem, cure=cure)
    else:
        inputs = ", ".join(facts.topics.inputs) or "none"
        yield TOPICS_FILE.ok(facts.file, f"right; its inputs are: {inputs}")
    yield from _judge_spark(facts)
    yield from _judge_names(facts)
    if facts.topics is not None:
        long = list(long_needs(facts.topics))
        for each in long:
            yield HORIZON.warning(f"topic {each.topic}", each.text)
        if not long:
            yield HORIZON.ok(facts.file, "no record may be needed for longer")


def _judge_spark(facts: FileFacts) -> Iterator[CheckResult]:
    release = ".".join(facts.pyspark.split(".")[:2])
    if not facts.pyspark:
        yield SPARK.failed("pyspark", "is not installed")
    elif release not in SPARKS:
        yield SPARK.failed("pyspark", facts.pyspark)
    elif facts.spark_home and facts.spark_home_version != facts.pyspark:
        there = facts.spark_home_version or "no Spark"
        yield SPARK.failed(
            "pyspark",
            f"{facts.pyspark}, and SPARK_HOME ({facts.spark_home}) holds {there}",
            expected="one version of both",
            cure="unset SPARK_HOME",
        )
    else:
        yield SPARK.ok("pyspark", facts.pyspark)


def _judge_names(facts: FileFacts) -> Iterator[CheckResult]:
    for name in IMPORT_NAMES:
        others = list(facts.owners.get(name, ()))
        if others:
            cure = NAMES.cure.format(other=" ".join(each.rpartition(" ")[0] for each in others))
            yield NAMES.failed(name, f"also owned by {', '.join(others)}", cure=cure)
        elif name in facts.shadows:
            at = facts.shadows[name]
            yield NAMES.failed(name, f"is imported from {at}", cure=f"mv {at} {at}.old")
        else:
            yield NAMES.ok(name, "windhover's")


def shadowing_files(path: Sequence[str]) -> dict[str, str]:
    """Return of each import name the file that a program with this path imports in place of ours."""
    ours = Path(__file__).resolve().parents[2]
    found = {}
    for name in IMPORT_NAMES:
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.origin and ours not in Path(spec.origin).resolve().parents:
            found[name] = spec.origin
    return found
