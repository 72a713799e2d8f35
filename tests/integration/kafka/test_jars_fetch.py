"""Fetching jars, from a repository that is a folder."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from acker.errors import Unreachable, UsageError
from spout.local.jars import Jar, Repository


@pytest.fixture
def jars(tmp_path: Path) -> list[Jar]:
    """Three jars in a Maven repository in `tmp_path/repository`."""
    made = []
    for name in ("one", "two", "three"):
        raw = name.encode() * 1000
        folder = tmp_path / "repository" / "org" / "example" / name / "1.0"
        folder.mkdir(parents=True)
        (folder / f"{name}-1.0.jar").write_bytes(raw)
        made.append(Jar(hashlib.sha256(raw).hexdigest(), "org.example", name, "1.0"))
    return made


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """That repository, with an empty cache."""
    return Repository(tmp_path / "cache", f"file://{tmp_path}/repository")


def test_jars_are_fetched_once_and_progress_is_told(
    repository: Repository, jars: list[Jar], tmp_path: Path
) -> None:
    told: list[tuple[int, int]] = []
    folder = repository.fetch(jars, lambda fetched, total: told.append((fetched, total)))
    assert {path.name for path in folder.iterdir()} == {jar.file for jar in jars}
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]
    nowhere = replace(repository, mirror=f"file://{tmp_path}/nowhere")
    assert nowhere.fetch(jars, lambda *now: told.append(now)) == folder
    assert len(told) == 4


def test_a_jar_that_was_damaged_in_the_cache_is_fetched_again(
    repository: Repository, jars: list[Jar]
) -> None:
    folder = repository.fetch(jars)
    (folder / jars[1].file).write_bytes(b"damaged")
    assert repository.fetch(jars) == folder
    assert (folder / jars[1].file).read_bytes() == b"two" * 1000


def test_a_jar_with_another_content_is_refused_and_nothing_is_kept(
    repository: Repository, jars: list[Jar]
) -> None:
    wrong = [*jars[:2], replace(jars[2], sha256="00" * 32)]
    with pytest.raises(UsageError, match=r"three-1\.0\.jar has SHA-256 .*WINDHOVER_MAVEN_MIRROR"):
        repository.fetch(wrong)
    assert list(repository.cache.glob("jars-*")) == []
    assert list(repository.cache.glob("fetching-*")) == []


def test_a_jar_that_the_repository_lacks_is_named(repository: Repository, jars: list[Jar]) -> None:
    missing = Jar("00" * 32, "org.example", "four", "1.0")
    with pytest.raises(Unreachable, match=r"org\.example:four:1\.0: not found.*mirror"):
        repository.fetch([*jars, missing])


def test_a_repository_that_does_not_answer_is_named(repository: Repository, jars: list[Jar]) -> None:
    silent = replace(repository, mirror="http://127.0.0.1:9/maven")
    with pytest.raises(Unreachable, match=r"http://127\.0\.0\.1:9/maven did not deliver Kafka's jars"):
        silent.fetch(jars)


def test_a_fetch_ends_at_its_deadline(repository: Repository, jars: list[Jar]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes connections, and says nothing
        mirror = f"http://127.0.0.1:{silent.getsockname()[1]}/maven"
        with pytest.raises(Unreachable, match="did not deliver"):
            replace(repository, mirror=mirror, timeout_ms=1).fetch(jars)


class Guarded(SimpleHTTPRequestHandler):
    """Serves files to who logs in as `me` with the password `pass`."""

    def do_GET(self) -> None:
        """Answer."""
        if self.headers.get("Authorization") == "Basic bWU6cGFzcw==":
            super().do_GET()
        else:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="jars"')
            self.send_header("Content-Length", "0")
            self.end_headers()


class Cutting(SimpleHTTPRequestHandler):
    """Ends each file in its middle."""

    def do_GET(self) -> None:
        """Promise 3,000 bytes, and send ten."""
        self.send_response(200)
        self.send_header("Content-Length", "3000")
        self.end_headers()
        self.wfile.write(b"0123456789")


@contextmanager
def serving(handler: type[SimpleHTTPRequestHandler], folder: Path) -> Iterator[str]:
    """Serve a folder by HTTP; its address is given."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_jars_come_from_the_mirror_of_mavens_settings_with_its_login(jars: list[Jar], tmp_path: Path) -> None:
    with serving(Guarded, tmp_path / "repository") as url:
        (tmp_path / ".m2").mkdir()
        (tmp_path / ".m2/settings.xml").write_text(
            f"<settings><mirrors><mirror><id>m</id><mirrorOf>*</mirrorOf><url>{url}</url></mirror></mirrors>"
            "<servers><server><id>m</id><username>me</username><password>pass</password></server></servers>"
            "</settings>"
        )
        repository = Repository.of({"HOME": str(tmp_path)})
        folder = repository.fetch(jars)
        assert {path.name for path in folder.iterdir()} == {jar.file for jar in jars}
        nobody = replace(repository, cache=tmp_path / "other", username="")
        with pytest.raises(Unreachable, match=r"the mirror of .*settings\.xml, did not deliver .*401"):
            nobody.fetch(jars)


def test_a_jar_that_is_cut_off_is_not_kept(repository: Repository, jars: list[Jar], tmp_path: Path) -> None:
    with serving(Cutting, tmp_path) as url:
        cut = replace(repository, mirror=url)
        with pytest.raises(Unreachable, match="it was cut off after 10 of 3000 bytes"):
            cut.fetch(jars)
    assert [path.name for path in cut.cache.iterdir()] == ["jars.flock"]
    assert len(list(repository.fetch(jars).iterdir())) == len(jars)
