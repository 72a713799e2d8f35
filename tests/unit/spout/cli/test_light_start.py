"""A command's first output comes soon: it loads only what it needs."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[4]
HEAVY = ("confluent_kafka", "numpy", "pandas", "pyarrow", "pyspark", "structlog")

SPARKS = ("pandas", "pyarrow", "pyspark", "py4j", "starlette", "uvicorn")
WITH_SPARK = {
    "submit_topology", "_until_all_is_done", "_session", "shipped_files", "_executor_results",  # a driver
    "up", "demo", "ui",  # they run other processes, or serve the page
}  # fmt: skip
"""Functions of commands that may load all of it."""

PROGRAM = """
import json, sys
from spout.cli import main
code = main.run(sys.argv[1:])
print(json.dumps([code, [name for name in {heavy!r} if name in sys.modules]]))
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["--help"],
        ["dlq", "--help"],
        ["validate", "topics.yaml"],
        ["acls", "topics.yaml"],
        ["explain", "timeout"],
        ["doctor", "--pre"],
        ["doctor", "--only", "files"],
    ],
    ids=" ".join,
)
def test_a_command_without_broker_and_spark_loads_nothing_heavy(arguments: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(heavy=HEAVY), *arguments],
        capture_output=True,
        text=True,
        cwd=PROJECT,
        check=True,
    )
    assert json.loads(ended.stdout.splitlines()[-1]) == [0, []]


def imports_of_commands() -> list[str]:
    """Return the modules that commands import when they run, but for those that start Spark or the page."""
    found = set[str]()
    for path in sorted((PROJECT / "spout" / "cli").glob("*.py")):
        functions = [
            node
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.FunctionDef) and node.name not in WITH_SPARK
        ]
        for function in functions:
            found |= {
                node.module for node in ast.walk(function) if isinstance(node, ast.ImportFrom) and node.module
            }
    return sorted(found)


def test_a_command_that_needs_a_broker_alone_loads_no_spark_and_nothing_of_its_weight() -> None:
    """NumPy is allowed: the open roots that such a command reads are arrays."""
    modules = imports_of_commands()
    assert {"spout.inspect.overview", "spout.inspect.dead_letters", "spout.doctor.broker"} <= set(modules)
    program = (
        "import importlib, json, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print(json.dumps([name for name in {SPARKS!r} if name in sys.modules]))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=PROJECT, check=True
    )
    assert json.loads(ended.stdout) == []


ON_A_TERMINAL = """
import io, json, os, sys
from spout.cli import main

class Terminal(io.StringIO):
    def isatty(self):
        return True

    def write(self, text):
        if super().write(text) == 0:  # it refuses bytes, too, which typer tries
            return
        print(json.dumps([text, [name for name in {heavy!r} if name in sys.modules]]))
        sys.stdout.flush()
        os._exit(0)  # before anything is asked

sys.stderr = Terminal()
main.run(sys.argv[1:])
"""

ASKING = (
    ["status"],
    ["roots"],
    ["inspect", "sentences/0@1"],
    ["failures"],
    ["latency"],
    ["dlq", "list"],
    ["dlq", "stats"],
    ["dlq", "show", "sentences/0@1"],
    ["dlq", "redrives"],
    ["release", "word-count"],
    ["offsets", "reset", "sentences", "--to", "earliest"],
    ["replay", "resume", "sentences"],
)


@pytest.mark.sample(4)
@pytest.mark.parametrize("arguments", ASKING, ids=" ".join)
def test_on_a_terminal_a_command_names_the_brokers_before_it_loads_what_asks_them(
    arguments: list[str],
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ON_A_TERMINAL.format(heavy=HEAVY), *arguments],
        capture_output=True,
        text=True,
        cwd=PROJECT,
        check=True,
        env={**os.environ, "KAFKA_BOOTSTRAP": "127.0.0.1:1"},
    )
    assert json.loads(ended.stdout) == ["asking 127.0.0.1:1 ...\n", []]


COUNTED = """
import io, os, sys

calls = 0

def numbered_call(_frame, event, _argument):
    global calls
    calls += event in ("call", "c_call")

class FirstOutput(io.StringIO):
    def isatty(self):
        return True

    def write(self, text):
        if text:
            sys.setprofile(None)
            os.write(1, str(calls).encode())
            os._exit(0)
        return 0

sys.stdout = sys.stderr = FirstOutput()
sys.setprofile(numbered_call)
{program}
"""
COMMAND = "from spout.cli import main; main.run(sys.argv[1:])"
LIBRARIES = "import pydantic, typer, yaml; print('loaded')"
CALLS_RATIO_MAX = 4.5
"""A command's calls before its first output, to those that loading the libraries takes; 3.7 on 2026-11-30."""


def calls_before_the_first_output(program: str, arguments: Sequence[str] = ()) -> int:
    """Run a program on a terminal; return how many calls of Python came before its first output."""
    ended = subprocess.run(
        [sys.executable, "-c", COUNTED.format(program=program), *arguments],
        capture_output=True,
        text=True,
        cwd=PROJECT,
        check=True,
        env={**os.environ, "KAFKA_BOOTSTRAP": "127.0.0.1:1"},
    )
    return int(ended.stdout)


@pytest.fixture(scope="module")
def calls_of_the_libraries() -> int:
    return calls_before_the_first_output(LIBRARIES)


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["validate"], ["acls"], ["doctor"], ["doctor", "--pre", "-o", "json"], ["status"]],
    ids=" ".join,
)
def test_few_calls_come_before_the_first_output(arguments: list[str], calls_of_the_libraries: int) -> None:
    """A busy machine changes no number of calls. `python -m benchmarks first-output` measures seconds."""
    calls = calls_before_the_first_output(COMMAND, arguments)
    assert calls_of_the_libraries < calls <= CALLS_RATIO_MAX * calls_of_the_libraries
