"""Runs the named test of each mutant, in copies of the tree: the bug must make it fall."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from enum import StrEnum
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Final, NamedTuple

from tests.mutants.mutant import Misplanted, Mutant

PROJECT: Final = Path(__file__).resolve().parents[2]
COPIED: Final = ("acker", "replay", "spout", "tests", "benchmarks", "examples", "docs")
COPIED_FILES: Final = ("pyproject.toml", "README.md", "topics.yaml")

LIMIT_S: Final = 120
"""The test of a mutant may take so long; one that hangs with the bug does not say what is wrong."""

_PASSED, _FELL = 0, 1
"""The exit codes of pytest by which it has run tests; with any other it has run none."""


class Fate(StrEnum):
    """What became of a mutant."""

    FELL = "fell"
    SURVIVED = "survived"
    """Its test passes in spite of the bug: the rule is not tested."""
    HUNG = "hung"
    """Its test does not end, so that nobody learns what is wrong."""
    ERROR = "error"
    """It cannot be planted, or its test cannot be run."""


class Verdict(NamedTuple):
    """What became of a mutant, in how many seconds, and the last of what pytest printed."""

    mutant: Mutant
    fate: Fate
    seconds: float
    output: str = ""

    def __str__(self) -> str:
        text = f"{self.fate:<8} {self.seconds:5.1f} s  {self.mutant.name}"
        if self.fate is Fate.FELL:
            return text
        cure = {
            Fate.SURVIVED: f"{self.mutant.test} passes with the bug in {self.mutant.file}; mend the test",
            Fate.HUNG: f"{self.mutant.test} took longer than {LIMIT_S} s; let it fail instead",
        }
        return f"{text}\n    {cure.get(self.fate, self.output)}"


class Tree:
    """A copy of the project, in which bugs are planted."""

    def __init__(self, folder: Path) -> None:
        """Copy the project into a new folder."""
        self._folder = folder
        ignored = shutil.ignore_patterns("__pycache__", ".pytest_cache")
        for name in COPIED:
            shutil.copytree(PROJECT / name, folder / name, ignore=ignored)
        for name in COPIED_FILES:
            shutil.copy(PROJECT / name, folder / name)
        # by their content, not their time: a bug is planted and taken out within a second
        compiled = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash"]
        subprocess.run([*compiled, "acker", "replay", "spout"], cwd=folder, check=True)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        self._runner = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.warm"], cwd=folder, text=True,
            env=environment | {"PYTHONPATH": str(folder)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def close(self) -> None:
        """End the process that runs the tests."""
        self._runner.communicate(timeout=LIMIT_S)

    def judge(self, mutant: Mutant) -> Verdict:
        """Plant a bug, run its test, and take the bug out."""
        began = monotonic()
        path = self._folder / mutant.file
        try:
            planted = mutant.planted(self._folder)
        except Misplanted as error:
            return Verdict(mutant, Fate.ERROR, 0, str(error))
        before = path.read_text(encoding="utf-8")
        path.write_text(planted, encoding="utf-8")
        try:
            code, output = self.run([mutant.test], LIMIT_S)
        except subprocess.TimeoutExpired:
            return Verdict(mutant, Fate.HUNG, monotonic() - began)
        finally:
            path.write_text(before, encoding="utf-8")
        fate = {_FELL: Fate.FELL, _PASSED: Fate.SURVIVED}.get(code, Fate.ERROR)
        return Verdict(mutant, fate, monotonic() - began, output)

    def run(self, tests: Sequence[str], limit_s: float) -> tuple[int, str]:
        """Run tests in the copy; return pytest's exit code and the last of what it printed."""
        output = self._folder / "output-of-pytest"
        arguments = ["-q", "-x", "--tb=line", "-n0", "-p", "no:cacheprovider", "-m", "slow or not slow"]
        # what was imported before pytest began is a library
        arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning", *tests]
        if self._runner.stdin is None or self._runner.stdout is None:
            raise RuntimeError("tests.mutants.warm was started without pipes")
        self._runner.stdin.write(json.dumps([arguments, str(output), limit_s]) + "\n")
        self._runner.stdin.flush()
        answer = self._runner.stdout.readline()
        if not answer:
            raise RuntimeError(f"tests.mutants.warm ended with exit code {self._runner.wait(LIMIT_S)}")
        code: int | None = json.loads(answer)
        if code is None:
            raise subprocess.TimeoutExpired(arguments, limit_s)
        return code, output.read_text(encoding="utf-8", errors="replace")[-2_000:]


@contextmanager
def copied_tree() -> Iterator[Tree]:
    """Copy the project, for as long as the context lasts."""
    with TemporaryDirectory(prefix="windhover-mutants-") as folder:
        tree = Tree(Path(folder))
        with closing(tree):
            yield tree


def judged(mutants: Sequence[Mutant], jobs: int) -> Iterator[Verdict]:
    """Judge mutants, several at a time, each copy of the tree with one of them; yield as they end."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="windhover-mutants-"))
        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        trees: Queue[Tree] = Queue()
        for number in range(jobs):
            trees.put(stack.enter_context(closing(Tree(Path(folder) / str(number)))))

        def judge(mutant: Mutant) -> Verdict:
            tree = trees.get()
            try:
                return tree.judge(mutant)
            finally:
                trees.put(tree)

        yield from pool.map(judge, mutants)


def failing_without(mutants: Iterable[Mutant]) -> str:
    """Run the tests of mutants without a bug; return what pytest printed, empty if all pass."""
    tests = sorted({mutant.test for mutant in mutants})
    with copied_tree() as tree:
        code, output = tree.run(tests, LIMIT_S * len(tests))
    return "" if code == _PASSED else output
