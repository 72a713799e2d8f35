"""A process that runs pytest once, keeps the collected tests, and judges each edit in a fork of itself.

It serves requests, one JSON object a line, over a socket whose descriptor is its first argument; the others
are pytest's. Requests and answers:

| request | answer |
|---|---|
| (start) | ``{"tests": [node ids]}`` |
| ``{"map": file, "tests": [node ids]}`` | ``{}`` when the file is written; see `coverage_map.CoverageMap` |
| ``{"judge": edit, "tests": [[node id, limit in s]]}`` | ``{"fate": ..., "test": node id}`` |
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, NoReturn, TextIO

import coverage
import pytest

from tests.mutation.edits import Edit
from tests.mutation.swap import Functions, Unswappable
from tests.mutation.verdict import Fate

PROJECT: Final = Path(__file__).resolve().parents[2]
MEASURED: Final = ("acker", "replay", "spout")

STARVED_MIN_S: Final = 0.1
"""A process that had to wait so long for a processor has more time; what is less is nothing to speak of."""

_KILLED, _SURVIVED, _UNSWAPPABLE = 10, 11, 12
"""Exit codes of a fork that judged an edit; with any other it was ended by the edit itself."""


class Host:
    """A plugin of pytest that serves requests in place of running the collected tests."""

    def __init__(self, requests: TextIO, answers: TextIO) -> None:
        self._requests = requests
        self._answers = answers
        self._failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.append(report.nodeid)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Serve until the other end closes the socket."""
        items = {item.nodeid: item for item in session.items}
        functions = Functions()
        # a fork shares what nobody touches; the collector would touch all of it
        gc.collect()
        gc.freeze()
        self._answer(tests=list(items))
        for line in self._requests:
            request = json.loads(line)
            if "map" in request:
                chosen = [items[test] for test in request["tests"]]
                self._write_map(chosen, Path(request["map"]))
                self._answer()
            else:
                tests = [(items[test], limit_s) for test, limit_s in request["tests"]]
                edit = Edit(*request["judge"])
                fate, test = self._judge(edit, tests, functions)
                self._answer(fate=fate, test=test)
        return True

    def _answer(self, **answer: object) -> None:
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()

    # judging ------------------------------------------------------------------------------------------------

    def _judge(
        self, edit: Edit, tests: Sequence[tuple[pytest.Item, float]], functions: Functions
    ) -> tuple[Fate, str]:
        """Return what becomes of an edit, and the test that fell or hung."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            self._run_edited(edit, [item for item, _ in tests], functions, writer)
        os.close(writer)
        begun = 0
        with os.fdopen(reader, "rb", buffering=0) as progress:
            # the child writes one byte before each test; its end closes the pipe
            limit_s = 10.0
            while is_ready(progress, limit_s, lambda: _starved_s(child)):
                if not progress.read(1):
                    _, status = os.waitpid(child, 0)
                    test = tests[max(0, begun - 1)][0].nodeid
                    match os.waitstatus_to_exitcode(status):
                        case code if code == _SURVIVED:
                            return Fate.SURVIVED, ""
                        case code if code == _UNSWAPPABLE:
                            return Fate.UNSWAPPABLE, ""
                        case _:
                            return Fate.KILLED, test
                limit_s = tests[begun][1]
                begun += 1
        _kill_group(child)
        return Fate.HUNG, tests[max(0, begun - 1)][0].nodeid

    def _run_edited(
        self, edit: Edit, items: Sequence[pytest.Item], functions: Functions, progress: int
    ) -> NoReturn:
        """Swap the edited code, run tests until one falls, and end with what that means."""
        code = _KILLED
        try:
            os.setpgid(0, 0)
            path = PROJECT / edit.file
            text = path.read_text(encoding="utf-8")
            functions.swap(str(path), text, edit.applied(text))
            for _ in self._run(items, progress):
                if self._failed:
                    break
            code = _KILLED if self._failed else _SURVIVED
        except Unswappable:
            code = _UNSWAPPABLE
        finally:
            # whatever ends the run: a fork must not go on in the loop of its parent
            os._exit(code)

    def _run(self, items: Sequence[pytest.Item], progress: int | None = None) -> Iterator[pytest.Item]:
        """Run tests one by one; yield each behind its run."""
        for number, item in enumerate(items):
            if progress is not None:
                os.write(progress, b".")
            following = items[number + 1] if number + 1 < len(items) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            yield item

    # the map ------------------------------------------------------------------------------------------------

    def _write_map(self, items: Sequence[pytest.Item], path: Path) -> None:
        """Write which lines each test runs, and how long it takes; those that fail are left out."""
        child = os.fork()
        if child == 0:
            try:
                path.write_text(json.dumps(self._mapped(items)), encoding="utf-8")
            finally:
                os._exit(0)
        os.waitpid(child, 0)

    def _mapped(self, items: Sequence[pytest.Item]) -> dict[str, Any]:
        include = [f"{PROJECT / package}/*" for package in MEASURED]
        measured = coverage.Coverage(data_file=None, include=include, config_file=False)
        seconds: dict[str, float] = {}
        measured.start()
        began = time.perf_counter()
        runs = self._run(items)
        for item in items:
            measured.switch_context(item.nodeid)
            next(runs)
            seconds[item.nodeid] = time.perf_counter() - began
            began = time.perf_counter()
        measured.stop()
        data = measured.get_data()
        lines: dict[str, dict[int, list[str]]] = {}
        for file in data.measured_files():
            by_line = data.contexts_by_lineno(file)
            lines[str(Path(file).relative_to(PROJECT))] = {
                line: [test for test in tests if test and test not in self._failed]
                for line, tests in by_line.items()
            }
        return {"seconds": seconds, "lines": lines, "failed": self._failed}


def is_ready(progress: IO[bytes], limit_s: float, read_starved_s: Callable[[], float]) -> bool:
    """Wait for progress of a process, or its end; return False: there is none within its limit.

    `read_starved_s` returns how long it has waited for a processor so far. That time does not count: on a
    busy machine every edit would seem to hang.
    """
    starved_before_s = read_starved_s()
    left_s = limit_s
    while True:
        if select.select([progress], [], [], left_s)[0]:
            return True
        starved_s = read_starved_s()
        left_s = starved_s - starved_before_s
        starved_before_s = starved_s
        if left_s < STARVED_MIN_S:
            return False


def _starved_s(process: int) -> float:
    """Return how long a process was ready to run and had no processor, so far; 0 where nobody says it."""
    try:
        _, waited_ns, _ = Path(f"/proc/{process}/schedstat").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return 0.0
    return int(waited_ns) / 1e9


def _kill_group(process: int) -> None:
    """Kill a fork with all that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)


def main() -> int:
    """Collect what the arguments name, and serve."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    requests = connection.makefile("r", encoding="utf-8")
    answers = connection.makefile("w", encoding="utf-8")
    arguments = ["-q", "-n0", "-p", "no:cacheprovider", "-o", "timeout=0", *sys.argv[2:]]
    return int(pytest.main(arguments, plugins=[Host(requests, answers)]))


if __name__ == "__main__":
    sys.exit(main())
