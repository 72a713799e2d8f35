"""Runs hosts, maps the tests, and judges edits, several at a time."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from tests.mutation.coverage_map import CoverageMap
from tests.mutation.edits import Edit
from tests.mutation.host import PROJECT
from tests.mutation.verdict import Fate, Verdict


class HostProcess:
    """One host, from outside."""

    def __init__(self, folder: Path, arguments: Sequence[str]) -> None:
        """Start a host that collects what pytest's arguments name; `folder` is its own."""
        ours, theirs = socket.socketpair()
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        self._printed = folder / "printed"
        with self._printed.open("w") as printed:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.mutation.host", str(theirs.fileno()), *arguments,
                 f"--basetemp={folder / 'tests'}", "-o", "tmp_path_retention_policy=none"],
                cwd=PROJECT, env=environment, pass_fds=[theirs.fileno()], stdout=printed, stderr=printed,
            )  # fmt: skip
        theirs.close()
        self._socket = ours
        self._requests = ours.makefile("w", encoding="utf-8")
        self._answers = ours.makefile("r", encoding="utf-8")
        self.tests: list[str] = []

    def __enter__(self) -> Self:
        self.tests = self._read()["tests"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._requests.close()
        self._answers.close()
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def map(self, tests: Sequence[str], path: Path) -> None:
        """Let the host write a map of tests into a file."""
        self._ask(map=str(path), tests=tests)

    def judge(self, edit: Edit, tests: Sequence[tuple[str, float]]) -> Verdict:
        """Return what becomes of an edit."""
        answer = self._ask(judge=edit, tests=tests)
        return Verdict(edit, Fate(answer["fate"]), answer["test"])

    def _ask(self, **request: object) -> dict[str, Any]:
        self._requests.write(json.dumps(request) + "\n")
        self._requests.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            printed = self._printed.read_text(encoding="utf-8", errors="replace")[-2_000:]
            raise RuntimeError(f"a host of the mutation tester has ended:\n{printed}")
        answer: dict[str, Any] = json.loads(line)
        return answer


class Hosts:
    """Several hosts that have collected the same tests."""

    def __init__(self, jobs: int, arguments: Sequence[str]) -> None:
        self._jobs = jobs
        self._arguments = arguments
        self._stack = ExitStack()
        self._hosts: list[HostProcess] = []
        self._folder = Path()

    def __enter__(self) -> Self:
        self._folder = Path(self._stack.enter_context(TemporaryDirectory(prefix="windhover-mutation-")))
        started = []
        for number in range(self._jobs):
            folder = self._folder / str(number)
            folder.mkdir()
            started.append(HostProcess(folder, self._arguments))
        self._hosts = [self._stack.enter_context(host) for host in started]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def mapped(self, kept: Path | None = None) -> CoverageMap:
        """Return which lines the collected tests run; files are dealt out among the hosts.

        `kept`: the map is read from this file, and written there if it is not there yet.
        """
        result = CoverageMap()
        if kept is not None and kept.exists():
            result.add(kept)
            result.keep_only(self._hosts[0].tests)
            return result
        files: dict[str, list[str]] = {}
        for test in self._hosts[0].tests:
            files.setdefault(test.split("::")[0], []).append(test)
        shares = [list[str]() for _ in self._hosts]
        for number, tests in enumerate(files.values()):
            shares[number % len(shares)] += tests
        paths = [self._folder / f"map-{number}" for number in range(len(shares))]
        with ThreadPoolExecutor(len(self._hosts)) as pool:
            list(pool.map(HostProcess.map, self._hosts, shares, paths))
        for path in paths:
            result.add(path)
        if kept is not None:
            result.write(kept)
        return result

    def judged(
        self, edits: Sequence[Edit], tests_of: Callable[[Edit], Sequence[tuple[str, float]]]
    ) -> Iterator[Verdict]:
        """Judge edits; yield their verdicts in the same order, as soon as they are there."""
        free: Queue[HostProcess] = Queue()
        for host in self._hosts:
            free.put(host)

        def judge(edit: Edit) -> Verdict:
            tests = tests_of(edit)
            if not tests:
                return Verdict(edit, Fate.NOT_RUN)
            host = free.get()
            try:
                return host.judge(edit, tests)
            finally:
                free.put(host)

        with ThreadPoolExecutor(len(self._hosts)) as pool:
            yield from pool.map(judge, edits)
