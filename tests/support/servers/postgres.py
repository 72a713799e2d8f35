"""A PostgreSQL of the tests, at a socket in a folder of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.lacking import lacking

DEBIAN: Final = Path("/usr/lib/postgresql")
"""Debian keeps each version's programs below it, and none of these two in the PATH."""

SECONDS_MAX: Final = 120
"""For each of PostgreSQL's own commands."""


def _program(name: str) -> str:
    """Find a program of PostgreSQL."""
    in_path = shutil.which(name)
    if in_path is not None:
        return in_path
    of_debian = sorted(str(path) for path in DEBIAN.glob(f"*/bin/{name}"))
    if not of_debian:
        lacking(f"PostgreSQL's {name} is not here; install Debian's package postgresql")
    return of_debian[0]


@contextmanager
def postgres() -> Iterator[str]:
    """Run a server, and yield its connection string; it refuses to run as root."""
    initdb, pg_ctl = _program("initdb"), _program("pg_ctl")
    user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    folder = Path(tempfile.mkdtemp(prefix="windhover-pg-"))
    try:
        shutil.chown(folder, user)

        def run(*command: str) -> None:
            # its output into a file: a server that it starts keeps a pipe open for good
            with (folder / "said").open("ab") as said:
                code = subprocess.run(
                    command, user=user, cwd=folder, check=False, timeout=SECONDS_MAX,
                    stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                ).returncode  # fmt: skip
            assert code == 0, (folder / "said").read_text()

        data = str(folder / "data")
        run(initdb, "--pgdata", data, "--username", "words", "--auth", "trust", "--no-sync")
        options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
        log = str(folder / "log")
        run(pg_ctl, "start", "--wait", "--timeout", "100", "-D", data, "-l", log, "-o", options)
        try:
            yield f"host={folder} user=words dbname=postgres"
        finally:
            run(pg_ctl, "stop", "-D", data, "--mode", "immediate")
    finally:
        shutil.rmtree(folder)
