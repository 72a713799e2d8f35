"""Fetches Kafka's jars once, from a Maven repository, and checks each by SHA-256.

`jars.lock` lists every jar that a broker and its tools need. The folder of a list is filled under another
name and renamed when every checksum is right, so a folder that exists is complete. The environment's proxies
are used, and the machine's certificates are trusted.

The repository is that of `MIRROR`, else the mirror of Maven Central in ``~/.m2/settings.xml``, else Maven
Central.

Source: https://maven.apache.org/guides/mini/guide-mirror-settings.html, and ``settings.html`` beside it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from http.client import HTTPException
from importlib import resources
from pathlib import Path
from typing import Final, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import (
    HTTPBasicAuthHandler,
    HTTPPasswordMgrWithDefaultRealm,
    HTTPSHandler,
    OpenerDirector,
    build_opener,
)
from xml.etree import ElementTree

import truststore

from acker.errors import Unreachable, UsageError
from acker.redaction import HIDDEN, cut
from acker.untrusted import Untrusted

Progress = Callable[[int, int], None]
"""Called with the number of jars that are fetched, and the number of all."""

MIRROR = "WINDHOVER_MAVEN_MIRROR"
"""Environment variable: address of a Maven repository to use instead of Maven Central."""

CACHE = "WINDHOVER_CACHE"
"""Environment variable: folder for fetched files; default `windhover` under XDG_CACHE_HOME or ~/.cache."""

SETTINGS: Final = Path(".m2/settings.xml")
"""Maven's settings, in the home directory."""

MAVEN_CENTRAL: Final = "https://repo1.maven.org/maven2"

FETCHED_AT_ONCE: Final = 6
SILENT_SECONDS_MAX: Final = 30.0
"""A repository that sends nothing for this long counts as unreachable."""

_CHUNK: Final = 1 << 20
_SCHEMES: Final = ("http://", "https://", "file:")
_VARIABLE: Final = re.compile(r"\$\{env\.([^}]+)\}")


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of the lock file: a jar of a Maven repository, and the SHA-256 of its content."""

    sha256: str
    group: str
    artifact: str
    version: str

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path(self) -> str:
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file}"


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Return the folder for everything that is fetched once."""
    if named := environ.get(CACHE):
        return Path(named)
    base = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home()) / ".cache"
    return Path(base) / "windhover"


def make_folder(
    path: Path,
    use: tuple[str, str] = ("what is fetched once", f"name another in {CACHE}"),
    mode: int = 0o777,
) -> None:
    """Make a folder unless it is there; `UsageError`: nothing can be written in it.

    `use` is what is kept there, and what to do if it cannot be. `mode`: the rights of one that is made, as
    far as the user's mask leaves them; one that is there keeps its own.
    """
    try:
        path.mkdir(mode, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        what, cure = use
        raise UsageError(f"folder {path} cannot keep {what}: {error.strerror}; {cure}") from error


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give the place to write a file or folder, which is then renamed: nobody finds half of it at `path`."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as folder:
        draft = Path(folder) / path.name
        yield draft
        draft.replace(path)


def parse_lock(text: str) -> tuple[Jar, ...]:
    """Parse lines of `SHA256  group/as/path/artifact/version/file.jar`."""
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
    return parse_lock(resources.files("spout.local").joinpath("jars.lock").read_text(encoding="ascii"))


def mismatches(folder: Path, jars: Sequence[Jar]) -> list[str]:
    """Return a line for each jar that is missing in a folder, or has other content."""
    found = []
    for jar in jars:
        path = folder / jar.file
        if not path.is_file():
            found.append(f"{jar.file} is missing")
        elif (sha256 := hashlib.sha256(path.read_bytes()).hexdigest()) != jar.sha256:
            found.append(f"{jar.file} has SHA-256 {sha256}, not {jar.sha256}")
    return found


class MirrorAddress(NamedTuple):
    """The address of a repository, and the login that stood in it: nobody gets it who does not ask."""

    url: str
    username: str = ""
    password: str = ""


_ADDRESS_FORM: Final = (
    "it begins with http://, https:// or file:, and in a password before the host / is %2F, and @ is %40"
)


def _mirror_address(text: str) -> MirrorAddress | None:
    """Split the login off an address, as Python's client does not; None: it is no http, https or file one."""
    if not text.startswith(_SCHEMES):
        return None
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # what stands behind the colon is no port: the end of a password, most likely
        return None
    if parts.username is None:
        return MirrorAddress(text)
    if "@" in parts.path:
        return None
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname or ""
    plain = parts._replace(netloc=host if port is None else f"{host}:{port}")
    return MirrorAddress(plain.geturl(), unquote(parts.username), unquote(parts.password or ""))


def _shown_address(text: str) -> str:
    """Return an address for people; of one that cannot be read, what stands before its host is hidden."""
    scheme, _, host = text.rpartition("@")
    if host == text:
        return str(Untrusted(cut(text)))
    begin = re.match(r"[a-z]+://", scheme, re.IGNORECASE)
    return str(Untrusted(cut(f"{begin[0] if begin else ''}{HIDDEN}@{host}")))


def _is_for_central(pattern: str) -> bool:
    parts = [part.strip() for part in pattern.split(",")]
    return "!central" not in parts and not {"central", "external:*", "*"}.isdisjoint(parts)


@dataclass(frozen=True, slots=True)
class Repository:
    """Where jars come from, and where they are kept.

    Attributes:
        mirror: address of a Maven repository; None: Maven Central.
        timeout_ms: limits the time to fetch them all.
        settings: Maven's settings that name the mirror, or None.
    """

    cache: Path
    mirror: str | None = None
    timeout_ms: int = 900_000
    settings: Path | None = None
    username: str = ""
    password: str = field(default="", repr=False)

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Repository:
        """Build it from the environment, and from Maven's settings in its HOME.

        Raises `UsageError`: the mirror is no http, https or file address, or Maven's settings cannot be read.
        """
        cache, named = cache_directory(environ), environ.get(MIRROR)
        if not named:
            return cls._of_settings(cache, Path(environ.get("HOME") or Path.home()) / SETTINGS, environ)
        address = _mirror_address(named)
        if address is None:
            raise UsageError(f"{MIRROR}='{_shown_address(named)}' is no address; {_ADDRESS_FORM}")
        return cls(cache, address.url, username=address.username, password=address.password)

    @classmethod
    def _of_settings(cls, cache: Path, path: Path, environ: Mapping[str, str]) -> Repository:
        """Return the mirror of Maven Central that Maven's settings name; where they name none, Maven Central.

        As in Maven, a mirror of `central` by name goes before one of everything, ``${env.NAME}`` is a
        variable of the environment, and the server with the mirror's id has its login. A password that Maven
        has encrypted is left out.
        """
        try:
            settings = ElementTree.fromstring(path.read_bytes())
        except FileNotFoundError:
            return cls(cache)
        except (OSError, ElementTree.ParseError) as error:
            raise UsageError(f"{path} cannot be read: {error}. Mend it, or set {MIRROR}.") from error

        def text(entry: ElementTree.Element, name: str) -> str:
            written = (entry.findtext(f"{{*}}{name}") or "").strip()
            return _VARIABLE.sub(lambda match: environ.get(match[1], match[0]), written)

        mirrors = list(settings.iterfind("{*}mirrors/{*}mirror"))
        by_name = [each for each in mirrors if text(each, "mirrorOf") == "central"]
        chosen = next(
            (each for each in (*by_name, *mirrors) if _is_for_central(text(each, "mirrorOf"))), None
        )
        if chosen is None:
            return cls(cache)
        url = text(chosen, "url")
        address = _mirror_address(url)
        if address is None:
            raise UsageError(
                f"{path}: the mirror of Maven Central is '{_shown_address(url)}', which is no address;"
                f" {_ADDRESS_FORM}. Mend it, or set {MIRROR}."
            )
        plain = cls(cache, address.url, settings=path, username=address.username, password=address.password)
        for server in settings.iterfind("{*}servers/{*}server"):
            if text(server, "id") == text(chosen, "id") and "{" not in text(server, "password"):
                return replace(plain, username=text(server, "username"), password=text(server, "password"))
        return plain

    def __str__(self) -> str:
        mirror = _shown_address(self.mirror or "Maven Central")
        return mirror if self.settings is None else f"{mirror}, the mirror of {self.settings},"

    def fetch(self, jars: Sequence[Jar], progress: Progress | None = None) -> Path:
        """Return a folder with exactly the jars of the list; if it does not exist yet, they are fetched.

        Raises:
            Unreachable: the repository does not answer, or lacks a jar.
            UsageError: the repository delivers content with another checksum than the list has, or nothing
                can be written where it is kept; what is there already is only read.
        """
        digest = hashlib.sha256("".join(jar.sha256 for jar in jars).encode()).hexdigest()[:12]
        folder = self.cache / f"jars-{digest}"
        if not mismatches(folder, jars):
            return folder
        make_folder(self.cache)
        with _locked(self.cache / "jars.flock"):
            if mismatches(folder, jars):
                with tempfile.TemporaryDirectory(dir=self.cache, prefix="fetching-") as work:
                    self._fetch_into(Path(work) / "jars", jars, progress or (lambda _fetched, _total: None))
                    shutil.rmtree(folder, ignore_errors=True)
                    os.rename(Path(work) / "jars", folder)
        return folder

    def _fetch_into(self, folder: Path, jars: Sequence[Jar], progress: Progress) -> None:
        folder.mkdir()
        progress(0, len(jars))
        deadline = time.monotonic() + self.timeout_ms / 1000
        opener = self._opener()
        threads = ThreadPoolExecutor(FETCHED_AT_ONCE, thread_name_prefix="windhover-jars")
        try:
            fetching = [threads.submit(self._fetch_jar, opener, jar, folder, deadline) for jar in jars]
            for number, fetched in enumerate(as_completed(fetching), 1):
                fetched.result()
                progress(number, len(jars))
        finally:
            threads.shutdown(cancel_futures=True)
        if wrong := mismatches(folder, jars):
            raise UsageError(
                f"{self} delivers jars that are not those of jars.lock: "
                f"{'; '.join(wrong)}. Nothing of it is used; name another repository in {MIRROR}."
            )

    def _opener(self) -> OpenerDirector:
        """Trust the machine's certificates; tell the password to nobody but the repository, if it asks."""
        passwords = HTTPPasswordMgrWithDefaultRealm()
        if self.mirror and self.username:
            passwords.add_password(None, self.mirror, self.username, self.password)
        context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return build_opener(HTTPSHandler(context=context), HTTPBasicAuthHandler(passwords))

    def _fetch_jar(self, opener: OpenerDirector, jar: Jar, folder: Path, deadline: float) -> None:
        url = f"{(self.mirror or MAVEN_CENTRAL).rstrip('/')}/{jar.path}"
        try:
            left = max(0.001, min(SILENT_SECONDS_MAX, deadline - time.monotonic()))
            with opener.open(url, timeout=left) as answer, (folder / jar.file).open("wb") as file:
                while chunk := answer.read(_CHUNK):
                    file.write(chunk)
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"not all is here after {self.timeout_ms / 1000:g} s")
                size, came = answer.headers.get("Content-Length"), file.tell()
                if size is not None and came < int(size):  # `read` says nothing of it
                    raise ConnectionError(f"it was cut off after {came} of {size} bytes")
        except (OSError, HTTPException) as error:
            lacks = isinstance(error, HTTPError) and error.code == HTTPStatus.NOT_FOUND
            lacks |= isinstance(error, URLError) and isinstance(error.reason, FileNotFoundError)
            name = f"{jar.group}:{jar.artifact}:{jar.version}"
            raise Unreachable(
                f"{self} did not deliver Kafka's jars: "
                f"{name}: {'not found' if lacks else Untrusted(cut(str(error)))}. Check the network, "
                f"or name a mirror of Maven Central in {MIRROR}."
            ) from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock between processes; the kernel releases it when the process dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def print_folder() -> None:
    """Fetch Kafka's jars if they are not here yet, and print their folder: `python -m spout.local.jars`."""
    folder = Repository.of(os.environ).fetch(kafka_jars())
    sys.stdout.write(f"{folder}\n")


if __name__ == "__main__":
    print_folder()
