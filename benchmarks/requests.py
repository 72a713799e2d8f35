"""Counts what clients ask a broker, from the bytes that they send through a proxy.

Source: Kafka's protocol guide, "Request Header": length, API key, version, number, name of the client.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping

from rich.console import Console
from rich.table import Table

KINDS: Mapping[int, str] = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    8: "OffsetCommit",
    9: "OffsetFetch",
    10: "FindCoordinator",
    11: "JoinGroup",
    12: "Heartbeat",
    14: "SyncGroup",
    18: "ApiVersions",
    21: "DeleteRecords",
    22: "InitProducerId",
    24: "AddPartitionsToTxn",
    26: "EndTxn",
}
"""Kafka's API keys; others are shown as numbers."""


def is_of(client: str, name: str) -> bool:
    """Return whether a client has this name, alone or with a group, or a host and a process, behind it."""
    return client == name or client.startswith(f"{name}-")


class Requests:
    """Counts the requests in what clients send: by client.id and API key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, int]] = Counter()

    def connection(self) -> Callable[[bytes], None]:
        """Return what gets the bytes of one connection, in pieces of any size."""
        held = bytearray()

        def seen(data: bytes) -> None:
            held.extend(data)
            while len(held) >= 4 and len(held) >= 4 + (size := int.from_bytes(held[:4])):
                request = bytes(held[4 : 4 + size])
                del held[: 4 + size]
                name = request[10 : 10 + int.from_bytes(request[8:10])].decode()
                with self._lock:
                    self._counts[name, int.from_bytes(request[:2])] += 1

        return seen

    def take(self) -> Counter[tuple[str, int]]:
        """Return the counts since the last call."""
        with self._lock:
            taken, self._counts = self._counts, Counter()
        return taken


def print_kinds(console: Console, rates: Mapping[tuple[str, int], float], unit: str = "a second") -> None:
    """Print requests a second by client and kind."""
    table = Table("client", "requests", unit)
    for (client, key), rate in sorted(rates.items()):
        table.add_row(client, KINDS.get(key, str(key)), f"{rate:,.2f}")
    console.print(table)
