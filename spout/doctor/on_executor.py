"""What the doctor asks on an executor. The code is sent there: a machine may lack Windhover.

So it imports only Python's standard library.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterable
from importlib import import_module, metadata
from typing import Any

PACKAGES = ("windhover-kafka", "confluent-kafka", "fastavro", "numpy", "pyarrow", "pyspark")
"""The distributions that a task needs, by their names."""

IMPORTED = ("spout.streaming.read_task", "confluent_kafka", "pyarrow")
"""Modules whose import needs all distributions."""

CONNECT_S = 2.0
"""How long a TCP connection to a broker may take."""


def answer(servers: Iterable[tuple[str, int]], hold_s: float) -> dict[str, Any]:
    """Return the fields of an `ExecutorAnswer` of this machine.

    Args:
        servers: host and port of each broker.
        hold_s: how long the task keeps its core at least, so that other tasks get other cores.
    """
    began_s = time.time()
    release_s = time.monotonic() + hold_s
    unreachable = {}
    for host, port in servers:
        why = _refusal(host, port)
        if why:
            unreachable[f"{host}:{port}"] = why
    facts = {
        "python": ".".join(map(str, sys.version_info[:3])),
        "executable": sys.executable,
        "packages": {name: version_of(name) for name in PACKAGES},
        "broken": {name: why for name in IMPORTED if (why := _import_error(name))},
        "unreachable": unreachable,
    }
    time.sleep(max(0.0, release_s - time.monotonic()))
    return {**facts, "began_ms": int(began_s * 1000), "ended_ms": int(time.time() * 1000)}


def version_of(name: str) -> str:
    """Return the version of a distribution; empty: not installed, but it may have been shipped."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _import_error(name: str) -> str:
    """Return why a module cannot be imported; empty: it can."""
    try:
        import_module(name)
    except ImportError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - code of a package that does not fit this machine
        return f"{type(error).__name__}: {error}"
    return ""


def _refusal(host: str, port: int) -> str:
    """Return why no TCP connection is possible; empty: one is."""
    try:
        socket.create_connection((host, port), CONNECT_S).close()
    except OSError as error:
        return str(error)
    return ""
