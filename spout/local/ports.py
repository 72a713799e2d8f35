"""Ports of this machine on which a server can listen."""

from __future__ import annotations

import socket
from collections.abc import Collection
from typing import Final

from acker.errors import UsageError
from spout.local.broker_settings import HOST

_PORTS: Final = range(20_000, 32_000)
"""Below the ports that Linux uses for outgoing connections, 32,768 and up."""


def free_port(besides: Collection[int] = ()) -> int:
    """Return a port on which nobody listens, and which no outgoing connection can take before it is used."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        first = int(probe.getsockname()[1]) % len(_PORTS)
    for step in range(len(_PORTS)):
        port = _PORTS[(first + step) % len(_PORTS)]
        if port not in besides and is_free(port):
            return port
    raise UsageError(f"no free port between {_PORTS.start} and {_PORTS.stop} on {HOST}")


def is_free(port: int) -> bool:
    """Whether a server could listen on a port now; closing connections of an earlier server do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
