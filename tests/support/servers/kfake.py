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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from spout.local.jars import cache_directory, make_folder, written_whole
from tests.support.lacking import lacking
from tests.support.servers.process_broker import ProcessBroker

SOURCE: Final = Path(__file__).parents[2] / "brokers" / "kfake"
GO: Final = "WINDHOVER_GO"
"""Environment variable: the program `go` to build with; else the one in the PATH."""

BUILD_S_MAX: Final = 1_500
"""A first build compiles Go's own library, too: two minutes on two quiet cores."""
UNOPTIMISED: Final = "-gcflags=github.com/twmb/franz-go/...=-N -l"
"""Go's compiler takes most of a build for generated code, and tests need no fast broker."""


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


class KfakeBroker(ProcessBroker):
    """One kfake, at one address and with one folder of data over all its restarts."""

    def __init__(self, program: Path, folder: Path) -> None:
        super().__init__(folder)
        self._program = program

    def command(self) -> Sequence[str]:
        """Return what starts it: its program, with its port and the folder of its data."""
        return [str(self._program), "-port", str(self.port), "-data", str(self.directory / "data")]


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
