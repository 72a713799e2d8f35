"""A process that has imported what no planted bug changes, and runs pytest in forks of itself.

Python, pytest and the libraries take two thirds of a run that ends with its first test. Each line of stdin
is a run: ``[arguments of pytest, file for its output, limit in seconds]``. The line of stdout behind it is
pytest's exit code, or ``null`` where the limit was over and the run was killed. Nothing of the project is
imported here.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

import pytest

LIBRARIES: Final = (
    *("confluent_kafka.admin", "fastavro", "hypothesis.stateful", "isal.igzip", "numpy", "pandas"),
    *("prometheus_client", "pyarrow", "pydantic", "pyspark.sql.datasource", "pyspark.sql.functions"),
    *("structlog", "truststore", "typer.testing", "xml.etree.ElementTree", "yaml"),
)


def run(arguments: Sequence[str], output: Path, limit_s: float) -> int | None:
    """Run pytest in a fork; return its exit code, None if it was killed because it took too long."""
    child = os.fork()
    if child == 0:
        _be_pytest(arguments, output)
    descriptor = os.pidfd_open(child)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    ended = bool(poll.poll(limit_s * 1_000))
    os.close(descriptor)
    if not ended:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if ended else None


def _be_pytest(arguments: Sequence[str], output: Path) -> None:
    """Run pytest with its output in a file, and end."""
    code = 70
    try:
        written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(written, 1)
        os.dup2(written, 2)
        sys.argv = ["pytest", *arguments]
        code = int(pytest.main(list(arguments)))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # not by an exception: a fork would go on in the loop below
        os._exit(code)


def main() -> None:
    """Serve until stdin ends."""
    for library in LIBRARIES:
        importlib.import_module(library)
    for plugin in entry_points(group="pytest11"):
        plugin.load()
    # pytest collects garbage five times at its end; of what is here none is, and a fork shares it untouched
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        arguments, output, limit_s = json.loads(line)
        sys.stdout.write(json.dumps(run(arguments, Path(output), limit_s)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
