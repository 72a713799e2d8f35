"""What files say, without a broker: topics.yaml, the installed Spark, our names, a checkpoint.

Spark keeps in a checkpoint the id of its query (``metadata``) and a file for each batch: in
``offsets`` what it was to contain, in ``commits`` that it was written. The offset of our
source names its sources.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Final

from acker.config.topics import Topics
from acker.errors import WindhoverError
from acker.provisioning.topic_times import long_retention_findings
from spout.distribution import is_windhover
from spout.doctor.codes import CHECKPOINT, HORIZON, NAMES, SPARK, TOPICS_FILE, CheckResult
from spout.doctor.on_executor import version_of

if TYPE_CHECKING:
    from spout.planning.journal import Journal

IMPORT_NAMES: Final = ("spout", "acker", "replay")
SPARKS: Final = ("4.0", "4.1", "4.2", "4.3")
"""The releases of Spark on which the tests run."""

_CORE_JAR: Final = re.compile(r"spark-core_[\d.]+-(\d+\.\d+\.\d+)")

OFFSET_BYTES_MAX: Final = 64 << 20
"""A file of offsets that is larger is not read."""

_ADDRESS: Final = re.compile(r"(?!file:)[a-z][a-z0-9+.-]+://", re.I)
"""Begins the name of a folder that is not on this machine, such as s3a://data/c."""


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
    """Look at files; the caller has loaded `topics`. Python looks for packages in `path`."""
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
    """Return the version of the Spark in a folder, by the name of its core's jar; empty: none."""
    names = sorted(jar.name for jar in (home / "jars").glob("spark-core_*.jar"))
    core_jar = _CORE_JAR.match(names[0]) if names else None
    return core_jar[1] if core_jar else ""


def other_owners(path: Sequence[str]) -> dict[str, list[str]]:
    """Return by import name which other distributions install a package or module of that name.

    Each is a text ``name version``. A name that is ours alone is left out. `path` is a list of
    folders as `sys.path` is one.
    """
    owners: dict[str, list[str]] = {}
    for distribution in distributions(path=list(path)):
        if is_windhover(distribution.name or ""):
            continue
        # None: the distribution does not say which files are its own
        top_names = {file.parts[0].removesuffix(".py") for file in distribution.files or ()}
        for name in IMPORT_NAMES:
            if name in top_names:
                owners.setdefault(name, []).append(f"{distribution.name} {distribution.version}")
    return owners


def judge_files(facts: FileFacts) -> Iterator[CheckResult]:
    """Judge topics.yaml, the installed Spark, and who owns our import names."""
    if facts.topics is None:
        cure = TOPICS_FILE.cure.format(file=facts.file)
        yield TOPICS_FILE.failed(facts.file, facts.problem, cure=cure)
    else:
        inputs = ", ".join(facts.topics.inputs) or "none"
        yield TOPICS_FILE.ok(facts.file, f"right; its inputs are: {inputs}")
    yield from _judge_spark(facts)
    yield from _judge_names(facts)
    if facts.topics is not None:
        # inputs that may need a record for longer than Kafka keeps it by default
        findings = list(long_retention_findings(facts.topics))
        for finding in findings:
            yield HORIZON.warning(f"topic {finding.topic}", finding.text)
        if not findings:
            yield HORIZON.ok(facts.file, "no record may be needed for longer")


def _judge_spark(facts: FileFacts) -> Iterator[CheckResult]:
    """Judge whether PySpark is of a tested release, and SPARK_HOME has the same version."""
    release = ".".join(facts.pyspark.split(".")[:2])
    if not facts.pyspark:
        yield SPARK.failed("pyspark", "is not installed")
    elif release not in SPARKS:
        yield SPARK.failed("pyspark", facts.pyspark)
    elif facts.spark_home and facts.spark_home_version != facts.pyspark:
        home_content = facts.spark_home_version or "no Spark"
        yield SPARK.failed(
            "pyspark",
            f"{facts.pyspark}, and SPARK_HOME ({facts.spark_home}) holds {home_content}",
            expected="one version of both",
            cure="unset SPARK_HOME",
        )
    else:
        yield SPARK.ok("pyspark", facts.pyspark)


def _judge_names(facts: FileFacts) -> Iterator[CheckResult]:
    """Judge whether our packages are imported from here, and no other package has their names."""
    for name in IMPORT_NAMES:
        owners = list(facts.owners.get(name, ()))
        if owners:
            names_alone = [owner.rpartition(" ")[0] for owner in owners]  # without the versions
            cure = NAMES.cure.format(other=" ".join(names_alone))
            yield NAMES.failed(name, f"also owned by {', '.join(owners)}", cure=cure)
        elif name in facts.shadows:
            file = facts.shadows[name]
            yield NAMES.failed(name, f"is imported from {file}", cure=f"mv {file} {file}.old")
        else:
            yield NAMES.ok(name, "windhover's")


def shadowing_files(path: Sequence[str]) -> dict[str, str]:
    """Return by import name the file that Python imports by this path in place of ours."""
    our_folder = Path(__file__).resolve().parents[2]
    shadows = {}
    for name in IMPORT_NAMES:
        spec = PathFinder.find_spec(name, path)
        if spec is None or not spec.origin:
            continue
        if our_folder not in Path(spec.origin).resolve().parents:
            shadows[name] = spec.origin
    return shadows


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """What is in the folder of a checkpoint.

    Attributes:
        problem: why it cannot be used; empty: it can.
        unknown: why nobody here can look into it; empty: somebody can.
        query: Spark's id of the query; empty: none has begun in it.
        planned: number of its last batch; -1: none.
        written: number of the last batch that was written; -1: none.
        journals: the offsets of our sources in the last batch.
    """

    folder: str
    problem: str = ""
    unknown: str = ""
    query: str = ""
    planned: int = -1
    written: int = -1
    journals: Sequence[Journal] = ()


def checkpoint_facts(folder: str) -> CheckpointFacts:
    """Read what Spark has written into a folder; nothing is changed."""
    path = local_folder(folder)
    if path is None:
        why = "it is not on this machine; name a folder, or copy it here"
        return CheckpointFacts(folder, unknown=why)
    try:
        if not path.exists():
            return CheckpointFacts(folder, "is not there")
        if not path.is_dir():
            return CheckpointFacts(folder, "is a file, and no folder")
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            return CheckpointFacts(folder, "this user may not read it, or not write into it")
        return _read_checkpoint(folder, path)
    except OSError as error:
        file = error.filename or folder
        return CheckpointFacts(folder, f"{file} cannot be read: {error.strerror}")
    except (ValueError, KeyError, TypeError, WindhoverError) as error:
        return CheckpointFacts(folder, f"is damaged, or of another version: {error}")


def _read_checkpoint(folder: str, path: Path) -> CheckpointFacts:
    """Read the id of the query, its last batches, and where our sources stand in the last one."""
    metadata = path / "metadata"
    query = ""
    if metadata.exists():
        query = str(json.loads(metadata.read_text(encoding="utf-8"))["id"])
    planned = _last_batch(path / "offsets")
    written = _last_batch(path / "commits")
    if planned < 0:
        return CheckpointFacts(folder, query=query, written=written)
    file = path / "offsets" / str(planned)
    if file.stat().st_size > OFFSET_BYTES_MAX:
        return CheckpointFacts(folder, unknown=f"{file} has more than {OFFSET_BYTES_MAX} bytes")
    lines = file.read_text(encoding="utf-8").splitlines()
    # line 1 has the version of the file, line 2 the batch, each further line the plan of a source
    journals = [journal for line in lines[2:] if (journal := _journal(line)) is not None]
    return CheckpointFacts(folder, query=query, planned=planned, written=written, journals=journals)


def _last_batch(folder: Path) -> int:
    """Return the highest batch id that has a file in a folder; -1: there is none."""
    if not folder.is_dir():
        return -1
    return max((int(file.name) for file in folder.iterdir() if file.name.isdigit()), default=-1)


def _journal(line: str) -> Journal | None:
    """Parse the line of a source in a file of offsets; None: it is of another kind of source."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    if not isinstance(value, dict) or not {"session", "ranges"} <= value.keys():
        return None
    from spout.planning.journal import journal_of  # it loads NumPy, which only a checkpoint needs

    return journal_of(value)


def judge_checkpoint(facts: CheckpointFacts, topics: Topics | None) -> CheckResult:
    """Judge whether a checkpoint can be used, and say whose it is; `topics` as in `FileFacts`."""
    subject = f"folder {facts.folder}"
    cure = CHECKPOINT.cure.format(folder=shlex.quote(facts.folder))
    if facts.unknown:
        return CHECKPOINT.unknown(subject, facts.unknown)
    if facts.problem:
        return CHECKPOINT.failed(subject, facts.problem, cure=cure)
    if not facts.query:
        text = "no query has begun in it: the first one that does begins at the group's commit"
        return CHECKPOINT.warning(subject, text, cure=cure)
    batches = f"batch {facts.planned} was planned" if facts.planned >= 0 else "no batch was planned"
    batches += f", batch {facts.written} is written" if facts.written >= 0 else ", none is written"
    query = f"of Spark's query {facts.query}: {batches}"
    if facts.planned >= 0 and not facts.journals:
        return CHECKPOINT.warning(subject, f"{query}; no stream of Windhover is in it", cure=cure)
    from acker.identity import input_id_of  # it loads NumPy, as `journal_of` does

    ids = sorted({input_id_of(source) for journal in facts.journals for source in journal.sources})
    if topics is None or not ids:
        inputs = ", ".join(map(str, ids)) or "none"
        return CHECKPOINT.ok(subject, f"{query}; inputs by their ids: {inputs}")
    inputs_by_id = {input.id: input for input in topics.inputs.values()}
    unlisted = [id for id in ids if id not in inputs_by_id]
    if unlisted:
        numbers = ", ".join(map(str, unlisted))
        text = f"{query}; this topics.yaml has no input of id {numbers}, from which it has read"
        return CHECKPOINT.failed(subject, text, cure=cure)
    groups = sorted({inputs_by_id[id].group for id in ids})
    inputs = ", ".join(inputs_by_id[id].name for id in ids)
    return CHECKPOINT.ok(subject, f"{query}; of group {', '.join(groups)}, inputs {inputs}")


def local_folder(name: str) -> Path | None:
    """Return the folder of a name as Spark takes it; None: it is not on this machine.

    >>> str(local_folder("file:///data/c")), str(local_folder("/data/c")), local_folder("s3a://data/c")
    ('/data/c', '/data/c', None)
    """
    if _ADDRESS.match(name):
        return None
    return Path(re.sub(r"^file:(//)?(?=/)", "", name))
