"""Franz-go's kfake as a broker of the tests: another implementation of Kafka's protocol, in Go.

Its program is `tests/brokers/kfake`. It is built once for each content of that folder, into the
folder for everything that is fetched once.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from spout.local.broker_settings import HOST
from spout.local.embedded import free_port, in_thread
from spout.local.jars import cache_directory, make_folder, written_whole
from spout.runtime import tether
from tests.support.lacking import lacking
from tests.support.waiting import eventually

SOURCE: Final = Path(__file__).parents[2] / "brokers" / "kfake"
GO: Final = "WINDHOVER_GO"
"""Environment variable: the program `go` to build with; else the one in the PATH."""

BUILD_S_MAX: Final = 1_500
"""A first build compiles Go's own library, too: two minutes on two quiet cores."""
UNOPTIMISED: Final = "-gcflags=github.com/twmb/franz-go/...=-N -l"
"""Go's compiler takes most of a build for generated code, and tests need no fast broker."""

STOP_MS: Final = 15_000
ANSWER_S: Final = 2.0


class GoLacking(Exception):
    """This machine has no Go, or one that is too old."""


def least_go(go_mod: str) -> tuple[int, ...]:
    """Return the version of Go that a go.mod asks for, such as (1, 26, 0)."""
    return _version(re.search(r"^go (\S+)$", go_mod, re.MULTILINE))


def _version(match: re.Match[str] | None) -> tuple[int, ...]:
    if match is None:
        raise GoLacking("it does not tell its version")
    return tuple(int(number) for number in match[1].split("."))


def find_go() -> str:
    """Return the program `go`; raise `GoLacking` if there is none that is new enough."""
    program = os.environ.get(GO) or shutil.which("go")
    least = least_go((SOURCE / "go.mod").read_text(encoding="utf-8"))
    least_text = ".".join(map(str, least))
    if program is None:
        raise GoLacking(f"there is no Go; install {least_text} or newer, or name its program in {GO}")
    output = subprocess.run([program, "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout
    version = _version(re.match(r"go(\d+(?:\.\d+)*)", output))
    if version < least:
        raise GoLacking(f"{program} is {output.strip()}, and kfake needs {least_text} or newer")
    return program


def build() -> Path:
    """Return the built program; the first call for this content of its folder builds it."""
    content = hashlib.sha256()
    for name in ("go.mod", "go.sum", "main.go"):
        content.update((SOURCE / name).read_bytes())
    folder = cache_directory(os.environ) / "kfake"
    make_folder(folder)
    program = folder / f"kfake-{content.hexdigest()[:16]}"
    if not program.exists():
        go = find_go()
        with written_whole(program) as draft:
            command = [go, "build", UNOPTIMISED, "-o", str(draft), "."]
            subprocess.run(command, cwd=SOURCE, check=True, timeout=BUILD_S_MAX)
    return program


class KfakeBroker:
    """One kfake, at one address and with one folder of data over all its restarts."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._program = program
        self._folder = folder
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None  # None: it does not run

    @property
    def bootstrap(self) -> str:
        """The value of `bootstrap.servers` for a client on this machine."""
        return f"{HOST}:{self._port}"

    @property
    def log(self) -> Path:
        """The file with what it writes, over all its starts."""
        return self._folder / "kfake.log"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        data = str(self._folder / "data")
        arguments = [str(self._program), "-port", str(self._port), "-data", data]
        self._process = tether.spawn(tether.Command(arguments, self.log, self._folder))
        eventually(self._answers, told=lambda: tether.last_lines(self.log))

    def _answers(self) -> bool:
        process = self._process
        if process is None or process.poll() is not None:
            raise AssertionError(f"kfake does not run; its log ends with:\n{tether.last_lines(self.log)}")

        def ask() -> bool:
            client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            try:
                return bool(client.list_topics(timeout=ANSWER_S).brokers)
            except KafkaException:
                return False

        return in_thread(ask)

    def stop(self) -> None:
        """End it in order; if it does not run, do nothing."""
        if self._process is not None:
            tether.stop(self._process, STOP_MS)
            self._process = None

    def kill(self) -> None:
        """End it by SIGKILL."""
        if self._process is not None:
            tether.kill(self._process)
            self._process = None

    def restart(self) -> None:
        """Start it again, at the same address and with its data."""
        self.stop()
        self.start()


@contextmanager
def kfake() -> Iterator[KfakeBroker]:
    """Run a kfake as long as the context lasts; what is missing to build it, a test says."""
    try:
        program = build()
    except GoLacking as error:
        lacking(f"kfake cannot be built: {error}")
    with tempfile.TemporaryDirectory(prefix="windhover-kfake-") as folder:
        broker = KfakeBroker(program, Path(folder))
        try:
            broker.start()
            yield broker
        finally:
            broker.stop()


if __name__ == "__main__":
    print(build())  # noqa: T201
