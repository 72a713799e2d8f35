"""The archive of ``windhover doctor --bundle``: what a report of a defect needs; no secrets."""

from __future__ import annotations

import os
import platform
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from acker.config.topics import Topics
from acker.errors import UsageError, WindhoverError
from acker.kafka.cluster import KafkaLog
from acker.provisioning.admin import KafkaAdmin
from acker.provisioning.provision import topics_needed
from acker.units import time_text
from spout.doctor import on_executor
from spout.doctor.codes import REACHABLE, CheckHealth, CheckResult
from spout.doctor.redaction import Redactor, redacted_log, redacted_topics
from spout.inspect.overview import Overview, missing_broker_texts, missing_processes
from spout.inspect.tables import OutputFormat, encoded
from spout.ui.attention import problems

LOG_LINES: Final = 200
"""So many last lines of a log are in the archive."""


@dataclass(frozen=True, slots=True)
class BundleSources:
    """What an archive is made of.

    Attributes:
        file: the path of topics.yaml, which may be missing.
        topics: what it says; None: it cannot be read.
        results: what the doctor found out.
        logs: log files of our processes.
        now_ms: wall time.
    """

    file: Path
    topics: Topics | None
    results: Sequence[CheckResult]
    logs: Sequence[Path]
    now_ms: int


def write_bundle(path: Path, sources: BundleSources, environ: Mapping[str, str]) -> list[str]:
    """Write the archive, for its owner's eyes alone, and return the names in it.

    Raises `UsageError`: the file is there already, or it or a log cannot be written or read.
    """
    parts = dict(_archive_files(sources, environ))
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with (
                os.fdopen(descriptor, "wb") as file,
                zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
            ):
                for name, text in parts.items():
                    archive.writestr(name, text)
        except BaseException:
            path.unlink()  # somebody would send a part of an archive, and nobody could read it
            raise
    except FileExistsError as error:
        raise UsageError(f"--bundle {path}: it is there already; name another file") from error
    except OSError as error:
        raise UsageError(f"--bundle {path}: cannot be written: {error.strerror}") from error
    return list(parts)


def _archive_files(sources: BundleSources, environ: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    """Yield name and text of each file of the archive, without secrets."""
    try:
        text = sources.file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        text = ""  # topics.yaml of the archive then has no line of the file
    redactor = Redactor(text, environ)

    def as_json(value: Any) -> str:
        """Return a value as JSON without secrets, with a line end."""
        return encoded(redactor.value(value), OutputFormat.JSON) + "\n"

    yield "results.json", as_json([result.row() for result in sources.results])
    yield "versions.json", as_json(_versions(sources.now_ms))
    yield "topics.yaml", encoded(redacted_topics(text, redactor), OutputFormat.YAML)
    yield "status.json", as_json(_ask_broker(sources, _status))
    yield "topics.json", as_json(_ask_broker(sources, _topics))
    for number, log in enumerate(sources.logs, 1):
        lines = redacted_log(_last_lines(log), redactor)
        yield f"logs/{number}-{log.name}", "\n".join([*lines, ""])


def _versions(now_ms: int) -> dict[str, Any]:
    """Return what this machine has: Python, packages, and which of them cannot be imported."""
    answer = on_executor.answer((), 0)
    names = ("python", "executable", "packages", "broken")
    versions = {name: answer[name] for name in names}
    return {"at": time_text(now_ms), "platform": platform.platform(), **versions}


def _ask_broker(sources: BundleSources, read: Callable[[Topics, int], Any]) -> Any:
    """Ask the broker, unless the doctor has found that it does not answer."""
    if sources.topics is None:
        return {"unknown": "topics.yaml cannot be read"}
    reach_healths = {result.health for result in sources.results if result.code is REACHABLE}
    # FAILED and OK: one of several brokers is missing, and another one answers
    if CheckHealth.FAILED in reach_healths and CheckHealth.OK not in reach_healths:
        return {"unknown": f"{REACHABLE.code} failed"}
    try:
        return read(sources.topics, sources.now_ms)
    except WindhoverError as error:
        return {"unknown": str(error)}


def _status(topics: Topics, now_ms: int) -> dict[str, Any]:
    """Read what the page and ``windhover status`` show."""
    with (
        closing(KafkaLog(topics.kafka, client_id="windhover-doctor")) as log,
        closing(Overview(log, topics)) as overview,
    ):
        snapshot = overview.snapshot(now_ms)
    rows = snapshot.rows()
    return {
        "partitions": rows,
        "attention": [problem.text for problem in problems(snapshot, topics)],
        "brokers": missing_broker_texts(snapshot.missing_brokers),
        "processes": missing_processes(rows, topics),
        "missing": list(snapshot.missing),
        "of_no_input": list(snapshot.of_no_input),
    }


def _topics(topics: Topics, now_ms: int) -> list[dict[str, Any]]:
    """Return a row for each of our topics that exists; `now_ms` is not needed."""
    descriptions = KafkaAdmin(topics.kafka).topics(topics_needed(topics))
    return [
        {
            "topic": topic.name,
            "id": topic.id,
            "partitions": topic.partitions,
            "copies": topic.replication,
            "settings": dict(topic.settings),
        }
        for topic in descriptions.values()
    ]


def _last_lines(path: Path) -> Iterable[str]:
    """Return the last `LOG_LINES` lines of a log; `UsageError`: it cannot be read."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return deque(file, LOG_LINES)
    except OSError as error:
        raise UsageError(f"--log {path}: cannot be read: {error.strerror}") from error
