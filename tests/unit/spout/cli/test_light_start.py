"""A command's first output comes soon: it loads only what it needs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[4]
FIRST_OUTPUT_MS_MAX = 300
HEAVY = ("confluent_kafka", "numpy", "pandas", "pyarrow", "pyspark", "structlog")

SPARKS = ("pandas", "pyarrow", "pyspark", "py4j", "starlette", "uvicorn")
WITH_SPARK = {
    "submit_topology", "_session", "shipped_files", "_of_executors",  # a driver
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
        ["--version"], ["--help"], ["dlq", "--help"], ["validate", "topics.yaml"], ["acls", "topics.yaml"],
        ["doctor", "--pre"], ["doctor", "--only", "files"],
    ],
    ids=" ".join,
)  # fmt: skip
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["validate"], ["acls"], ["doctor"], ["doctor", "--pre", "-o", "json"]],
    ids=" ".join,
)
def test_the_first_output_comes_within_300_ms(arguments: list[str]) -> None:
    """The best of five starts: a machine that is busy is no slow command."""
    assert min(first_output_ms(arguments) for _ in range(5)) <= FIRST_OUTPUT_MS_MAX


def first_output_ms(arguments: list[str]) -> float:
    """Start a command as a process; return the time until its first byte."""
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "spout.cli", *arguments], stdout=subprocess.PIPE, cwd=PROJECT
    ) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.read(1)
            return (time.monotonic() - began) * 1000
        finally:
            started.kill()
