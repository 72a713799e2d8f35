"""``python -m benchmarks idle``: what an acker and a replay worker cost while there is nothing to do.

Each is a process of its own, as in an installation. All their requests go through a proxy, which counts them
by client and kind; what the broker does for them is its own CPU time. The first round does not count: there
the processes still find their partitions.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from statistics import median
from typing import Final, Literal

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Figure, cpu_seconds_of_tree, print_report
from benchmarks.world import bench_world
from spout.runtime.child import Child
from tests.torture.stage.proxy import Proxy

READY_SECONDS_MAX: Final = 60.0
WARM_SECONDS: Final = 10.0
"""An owner asks for its partitions and topics for some seconds after it is ready."""

Part = Literal["acker", "replay"]
PARTS: Final[tuple[Part, ...]] = ("acker", "replay")

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


def run(seconds: int, rounds: int, *, json: bool) -> int:
    """Let both idle, and print medians of the rounds. Return 0."""
    console = Console(stderr=True)
    requests = Requests()
    with (
        Proxy(requests.connection) as proxy,
        bench_world(console, proxy=proxy) as world,
        ExitStack() as stack,
    ):
        children = {part: stack.enter_context(Child(part, world.config)) for part in PARTS}
        for child in children.values():
            child.wait_ready(READY_SECONDS_MAX)
        time.sleep(WARM_SECONDS)
        found = [_round(children, requests, seconds) for _ in range(rounds)]
    _print_kinds(console, [kinds for _, kinds in found])
    figures = []
    for part in PARTS:
        cpu = median(shares[part] for shares, _ in found)
        rate = median(sum(r for (name, _), r in kinds.items() if _is_of(name, part)) for _, kinds in found)
        figures += [
            Figure(f"{part}: CPU", 100 * cpu, "% of a core", "1"),
            Figure(f"{part}: requests", rate, "/s", "5"),
        ]
    print_report(console, figures, json=json)
    return 0


_Kinds = Mapping[tuple[str, int], float]


def _round(
    children: Mapping[Part, Child], requests: Requests, seconds: int
) -> tuple[Mapping[Part, float], _Kinds]:
    """Return the share of a core of each child, and requests a second by client and kind."""
    requests.take()
    before = {part: cpu_seconds_of_tree(child.pid or 0) for part, child in children.items()}
    began = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    after = {part: cpu_seconds_of_tree(child.pid or 0) for part, child in children.items()}
    counts = requests.take()
    shares = {part: (after[part] - before[part]) / took for part in children}
    return shares, {key: count / took for key, count in counts.items()}


def _is_of(client: str, part: Part) -> bool:
    return client == f"windhover-{part}"


def _print_kinds(console: Console, found: list[_Kinds]) -> None:
    table = Table("client", "requests", "a second (median)")
    for client, key in sorted(set().union(*found)):
        rate = median(kinds.get((client, key), 0.0) for kinds in found)
        table.add_row(client, KINDS.get(key, str(key)), f"{rate:,.2f}")
    console.print(table)
