"""``python -m benchmarks first-output``: how long a command takes until a user sees something.

Each command is started in turn with a Python that only loads the libraries of every command, and is killed
at its first byte.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from statistics import median

from rich.console import Console

from acker.errors import CheckFailed
from benchmarks.measure import Figure, print_report

COMMANDS = (["--help"], ["validate"], ["acls"], ["doctor", "--pre", "-o", "json"], ["status"])
LIBRARIES = [sys.executable, "-c", "import pydantic, typer, yaml; print()"]
FIRST_OUTPUT_SECONDS_MAX = 60.0


def run(rounds: int, *, json: bool) -> int:
    """Measure each command `rounds` times. Return 0; raise CheckFailed if one says nothing in a minute."""
    figures = list[Figure]()
    for arguments in COMMANDS:
        command = [sys.executable, "-m", "spout.cli", *arguments]
        pairs = [(first_output_ms(command), first_output_ms(LIBRARIES)) for _ in range(rounds)]
        command_ms = median(of_command for of_command, _ in pairs)
        ratio = median(of_command / of_libraries for of_command, of_libraries in pairs)
        name = " ".join(["windhover", *arguments])
        figures += [
            Figure(f"{name}: first output", command_ms, "ms"),
            Figure(f"{name}: to loading the libraries", ratio, "times"),
        ]
    print_report(Console(stderr=True), figures, json=json)
    return 0


def first_output_ms(command: list[str]) -> float:
    """Start a process whose errors go to a terminal; return the time until its first byte of any kind."""
    terminal, errors_of_command = os.openpty()
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors_of_command) as process:
        try:
            os.close(errors_of_command)
            assert process.stdout is not None  # since it is a pipe
            streams = [process.stdout.fileno(), terminal]
            ready, _, _ = select.select(streams, [], [], FIRST_OUTPUT_SECONDS_MAX)
            if not ready:
                raise CheckFailed(f"{' '.join(command)} wrote nothing in {FIRST_OUTPUT_SECONDS_MAX:.0f} s")
            return (time.monotonic() - began) * 1000
        finally:
            process.kill()
            os.close(terminal)
