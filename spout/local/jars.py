"""Fetches Kafka's jars once, from a Maven repository, and checks each by SHA-256.

`jars.lock` lists every jar that a broker and its tools need. The folder of a list is filled under
another name and renamed when every checksum is right, so a folder that exists is complete. The
environment's proxies are used, and the machine's certificates are trusted.

The repository is that of `MIRROR`, else the mirror of Maven Central in ``~/.m2/settings.xml``, else
Maven Central.

Source: https://maven.apache.org/guides/mini/guide-mirror-settings.html, and ``settings.html``
beside it.
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
from dataclasses import dataclass, field
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
"""Environment variable: folder of fetched files; else `windhover` in XDG_CACHE_HOME or ~/.cache."""

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
        """Return the name of its file."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path(self) -> str:
        """Return its path in a Maven repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file}"


def home_directory(environ: Mapping[str, str]) -> Path | None:
    """Return the user's folder; None: there is none, as where a container runs under a bare number.

    >>> home_directory({"HOME": "/home/kim"})
    PosixPath('/home/kim')
    """
    named_folder = environ.get("HOME")
    if named_folder:
        return Path(named_folder)
    try:
        return Path.home()
    except RuntimeError:  # the number has no name
        return None


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Return the folder for everything that is fetched once.

    Raises `UsageError`: the environment names none, and the user has no folder.
    """
    named_folder = environ.get(CACHE)
    if named_folder:
        return Path(named_folder)
    caches = environ.get("XDG_CACHE_HOME")
    if caches:
        return Path(caches) / "windhover"
    home = home_directory(environ)
    if home is None:
        raise UsageError(
            f"user {os.getuid()} has no folder on this machine, so what is fetched once has no"
            f" place: name one in {CACHE}, or set HOME"
        )
    return home / ".cache" / "windhover"


class FolderUse(NamedTuple):
    """What is kept in a folder, and what to do if it cannot be; both are parts of a message."""

    contents: str
    cure: str


FOR_FETCHED_FILES: Final = FolderUse("what is fetched once", f"name another in {CACHE}")


def make_folder(path: Path, use: FolderUse = FOR_FETCHED_FILES, mode: int = 0o777) -> None:
    """Make a folder unless it is there; `UsageError`: nothing can be written in it.

    `mode`: the rights of one that is made, as far as the user's mask leaves them; one that is there
    keeps its own.
    """
    try:
        path.mkdir(mode, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        message = f"folder {path} cannot keep {use.contents}: {error.strerror}; {use.cure}"
        raise UsageError(message) from error


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a path at which to write a file or folder, and rename it to `path` when the body has
    ended.

    So nobody finds half of it there.
    """
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as folder:
        draft = Path(folder) / path.name
        yield draft
        draft.replace(path)


def parse_lock(text: str) -> tuple[Jar, ...]:
    """Return the jars in lines of `SHA256  group/as/path/artifact/version/file.jar`.

    Raises `ValueError`: a line is none of these.
    """
    jars: list[Jar] = []
    for line in filter(None, text.splitlines()):
        sha256, path = line.split()
        *group_folders, artifact, version, file = path.split("/")
        jar = Jar(sha256, ".".join(group_folders), artifact, version)
        if jar.file != file or len(sha256) != 64:
            raise ValueError(f"jars.lock: not a jar with its checksum: {line!r}")
        jars.append(jar)
    return tuple(jars)


def kafka_jars() -> tuple[Jar, ...]:
    """Return the jars of a broker and its tools."""
    return parse_lock(resources.files("spout.local").joinpath("jars.lock").read_text(encoding="ascii"))


def mismatches(folder: Path, jars: Sequence[Jar]) -> list[str]:
    """Return a line for each jar that is missing in a folder, or has other content."""
    lines: list[str] = []
    for jar in jars:
        path = folder / jar.file
        if not path.is_file():
            lines.append(f"{jar.file} is missing")
            continue
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        if sha256 != jar.sha256:
            lines.append(f"{jar.file} has SHA-256 {sha256}, not {jar.sha256}")
    return lines


class MirrorAddress(NamedTuple):
    """The address of a repository without the login in it, and that login; empty: it has none."""

    url: str
    username: str = ""
    password: str = ""


_ADDRESS_FORM: Final = (
    "it begins with http://, https:// or file:, and in a password before the host / is %2F, and @ is %40"
)


def _mirror_address(text: str) -> MirrorAddress | None:
    """Split an address into one without its login, and the login; None: it is no such address.

    Python's client does not take a login within an address, which begins with http, https or file.
    """
    if not text.startswith(_SCHEMES):
        return None
    try:
        address = urlsplit(text)
        port = address.port
    except ValueError:
        # what stands behind the colon is no port: the end of a password, most likely
        return None
    if address.username is None:
        return MirrorAddress(text)
    if "@" in address.path:  # a / in the password has ended the host
        return None
    host = address.hostname or ""
    if ":" in host:  # IPv6
        host = f"[{host}]"
    without_login = address._replace(netloc=host if port is None else f"{host}:{port}")
    password = unquote(address.password or "")
    return MirrorAddress(without_login.geturl(), unquote(address.username), password)


def _shown_address(text: str) -> str:
    """Return an address for people, in which all between the scheme and the last @ is hidden."""
    scheme_and_login, _, host = text.rpartition("@")
    if host == text:  # there is no @
        return str(Untrusted(cut(text)))
    scheme_match = re.match(r"[a-z]+://", scheme_and_login, re.IGNORECASE)
    scheme = scheme_match[0] if scheme_match else ""
    return str(Untrusted(cut(f"{scheme}{HIDDEN}@{host}")))


def _is_for_central(pattern: str) -> bool:
    """Return whether a mirror with this `mirrorOf` is one of Maven Central."""
    names = [name.strip() for name in pattern.split(",")]
    return "!central" not in names and not {"central", "external:*", "*"}.isdisjoint(names)


@dataclass(frozen=True, slots=True)
class Repository:
    """Where jars come from, and where they are kept.

    Attributes:
        cache: the folder in which each list of jars has a folder.
        mirror: address of a Maven repository; None: Maven Central.
        timeout_ms: limits the time to fetch them all.
        settings: Maven's settings that name the mirror; None: the environment names it, or nobody.
        username: this and `password` are for the mirror, if it asks; empty: there is no login.
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

        Raises `UsageError`: the mirror is no http, https or file address, or Maven's settings cannot
        be read.
        """
        cache = cache_directory(environ)
        mirror = environ.get(MIRROR)
        if not mirror:
            home = home_directory(environ)
            if home is None:
                return cls(cache)
            return cls._of_settings(cache, home / SETTINGS, environ)
        address = _mirror_address(mirror)
        if address is None:
            raise UsageError(f"{MIRROR}='{_shown_address(mirror)}' is no address; {_ADDRESS_FORM}")
        return cls(cache, address.url, username=address.username, password=address.password)

    @classmethod
    def _of_settings(cls, cache: Path, path: Path, environ: Mapping[str, str]) -> Repository:
        """Return the mirror of Maven Central that Maven's settings name; else Maven Central itself.

        As in Maven, a mirror of `central` by name goes before one of everything, ``${env.NAME}`` is
        a variable of the environment, and the server with the mirror's id has its login. A password
        that Maven has encrypted is left out.
        """
        # 1. the settings
        try:
            settings = ElementTree.fromstring(path.read_bytes())
        except FileNotFoundError:
            return cls(cache)
        except (OSError, ElementTree.ParseError) as error:
            message = f"{path} cannot be read: {error}. Mend it, or set {MIRROR}."
            raise UsageError(message) from error

        def text_of(element: ElementTree.Element, name: str) -> str:
            """Return the text of a child with its variables replaced; empty: there is none."""
            text = (element.findtext(f"{{*}}{name}") or "").strip()
            return _VARIABLE.sub(lambda match: environ.get(match[1], match[0]), text)

        # 2. the mirror: the first one that names `central`, else the first one that may stand for it
        # (the sort is stable)
        mirrors = list(settings.iterfind("{*}mirrors/{*}mirror"))
        mirrors.sort(key=lambda mirror: text_of(mirror, "mirrorOf") != "central")
        central_mirrors = [mirror for mirror in mirrors if _is_for_central(text_of(mirror, "mirrorOf"))]
        if not central_mirrors:
            return cls(cache)
        mirror = central_mirrors[0]
        url = text_of(mirror, "url")
        address = _mirror_address(url)
        if address is None:
            raise UsageError(
                f"{path}: the mirror of Maven Central is '{_shown_address(url)}', which is no"
                f" address; {_ADDRESS_FORM}. Mend it, or set {MIRROR}."
            )
        # 3. the login: the server's, else that in the address
        username = address.username
        password = address.password
        for server in settings.iterfind("{*}servers/{*}server"):
            is_encrypted = "{" in text_of(server, "password")
            if text_of(server, "id") == text_of(mirror, "id") and not is_encrypted:
                username = text_of(server, "username")
                password = text_of(server, "password")
                break
        return cls(cache, address.url, settings=path, username=username, password=password)

    def __str__(self) -> str:
        """Name it in a message: its address without the login, and who has named it."""
        mirror = _shown_address(self.mirror or "Maven Central")
        return mirror if self.settings is None else f"{mirror}, the mirror of {self.settings},"

    def fetch(self, jars: Sequence[Jar], progress: Progress | None = None) -> Path:
        """Return a folder with exactly the jars of the list; fetch them if it does not exist yet.

        Raises:
            Unreachable: the repository does not answer, or lacks a jar.
            UsageError: the repository delivers content with another checksum than the list has, or
                nothing can be written where it is kept; what is there already is only read.
        """
        # another list of jars has another folder
        checksums = "".join(jar.sha256 for jar in jars)
        digest = hashlib.sha256(checksums.encode()).hexdigest()[:12]
        folder = self.cache / f"jars-{digest}"
        if not mismatches(folder, jars):
            return folder
        make_folder(self.cache)
        with _locked(self.cache / "jars.flock"):
            # another process may have fetched them meanwhile
            if mismatches(folder, jars):
                with tempfile.TemporaryDirectory(dir=self.cache, prefix="fetching-") as draft_folder:
                    draft = Path(draft_folder) / "jars"
                    self._fetch_into(draft, jars, progress or (lambda _fetched, _total: None))
                    shutil.rmtree(folder, ignore_errors=True)
                    os.rename(draft, folder)
        return folder

    def _fetch_into(self, folder: Path, jars: Sequence[Jar], progress: Progress) -> None:
        """Make a folder and fetch all jars into it, some at once; check them."""
        folder.mkdir()
        progress(0, len(jars))
        deadline_s = time.monotonic() + self.timeout_ms / 1000
        opener = self._opener()
        threads = ThreadPoolExecutor(FETCHED_AT_ONCE, thread_name_prefix="windhover-jars")
        try:
            fetches = [threads.submit(self._fetch_jar, opener, jar, folder, deadline_s) for jar in jars]
            for fetched_count, fetch in enumerate(as_completed(fetches), start=1):
                fetch.result()  # raises what was raised in the thread
                progress(fetched_count, len(jars))
        finally:
            threads.shutdown(cancel_futures=True)
        wrong_jars = mismatches(folder, jars)
        if wrong_jars:
            raise UsageError(
                f"{self} delivers jars that are not those of jars.lock: "
                f"{'; '.join(wrong_jars)}. Nothing of it is used; name another repository in {MIRROR}."
            )

    def _opener(self) -> OpenerDirector:
        """Return a client that trusts the machine's certificates.

        It gives the password to nobody but the repository, if that asks.
        """
        passwords = HTTPPasswordMgrWithDefaultRealm()
        if self.mirror and self.username:
            passwords.add_password(None, self.mirror, self.username, self.password)
        context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return build_opener(HTTPSHandler(context=context), HTTPBasicAuthHandler(passwords))

    def _fetch_jar(self, opener: OpenerDirector, jar: Jar, folder: Path, deadline_s: float) -> None:
        """Write a jar into a folder; `Unreachable`: it did not come as a whole before the
        deadline.
        """
        url = f"{(self.mirror or MAVEN_CENTRAL).rstrip('/')}/{jar.path}"
        try:
            timeout_s = max(0.001, min(SILENT_SECONDS_MAX, deadline_s - time.monotonic()))
            with opener.open(url, timeout=timeout_s) as answer, (folder / jar.file).open("wb") as file:
                while chunk := answer.read(_CHUNK):
                    file.write(chunk)
                    if time.monotonic() > deadline_s:
                        raise TimeoutError(f"not all is here after {self.timeout_ms / 1000:g} s")
                promised_bytes = answer.headers.get("Content-Length")
                received_bytes = file.tell()
                # `read` does not raise where the connection ends too early
                if promised_bytes is not None and received_bytes < int(promised_bytes):
                    raise ConnectionError(f"it was cut off after {received_bytes} of {promised_bytes} bytes")
        except (OSError, HTTPException) as error:
            why = "not found" if _is_not_found(error) else str(Untrusted(cut(str(error))))
            raise Unreachable(
                f"{self} did not deliver Kafka's jars: "
                f"{jar.group}:{jar.artifact}:{jar.version}: {why}. Check the network, "
                f"or name a mirror of Maven Central in {MIRROR}."
            ) from error


def _is_not_found(error: Exception) -> bool:
    """Return whether a repository, or a folder that is one, lacks a file."""
    if isinstance(error, HTTPError):
        return error.code == HTTPStatus.NOT_FOUND
    return isinstance(error, URLError) and isinstance(error.reason, FileNotFoundError)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes while the body runs.

    The kernel releases it when the process dies.
    """
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def print_folder() -> None:
    """Fetch Kafka's jars if they are not here, and print their folder: `python -m spout.local.jars`."""
    folder = Repository.of(os.environ).fetch(kafka_jars())
    sys.stdout.write(f"{folder}\n")


if __name__ == "__main__":
    print_folder()
