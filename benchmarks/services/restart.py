"""``python -m benchmarks restart``: an acker with a million open roots is killed and started again.

The time runs from the SIGKILL until the first verdict of the acker's next life; that it gives all of them,
each once, and replays nothing, is checked as well.
"""

from __future__ import annotations

import time

from rich.console import Console

from acker.config.topics import Topics
from acker.errors import CheckFailed
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Log, TopicPartition
from benchmarks.measure import Figure, print_report
from benchmarks.services.throughput import READY_SECONDS_MAX, VERDICT_SECONDS_MAX, writer_for
from benchmarks.services.wire import WireWriter
from benchmarks.settled import Settled
from benchmarks.world import INPUT, bench_world
from spout.runtime.child import Child

POLL_MS = 50


def run(roots: int, *, json: bool) -> int:
    """Measure a restart with `roots` open roots. Return 0, or raise CheckFailed when a verdict is wrong."""
    console = Console(stderr=True)
    with bench_world(console) as world:
        log = KafkaLog(world.topics.kafka)
        writer = writer_for(log, world.topics)
        with Child("acker", world.config) as acker:
            acker.wait_ready(READY_SECONDS_MAX)
            writer.take()
            writer.init(0, roots)
            writer.flush()
            _wait_until_read(log, world.topics)
            figures = _kill_and_measure(log, world.topics, writer, acker, roots)
        writer.close()
        log.close()
    print_report(console, figures, json=json)
    return 0


def _wait_until_read(log: Log, topics: Topics) -> None:
    """Wait until the acker has committed that it read every Init."""
    inits = [TopicPartition(topics.ack_topics.init, p) for p in range(topics.acker.partitions)]
    ends = log.ends(inits)
    deadline = time.monotonic() + VERDICT_SECONDS_MAX
    while time.monotonic() < deadline:
        committed = log.committed(topics.acker.group, inits)
        if all(committed.get(tp, 0) >= end for tp, end in ends.items()):
            return
        time.sleep(POLL_MS / 1000)
    raise CheckFailed(f"the acker did not read the inits within {VERDICT_SECONDS_MAX:.0f} s")


def _kill_and_measure(log: Log, topics: Topics, writer: WireWriter, acker: Child, roots: int) -> list[Figure]:
    settled = Settled(log, topics, topics.inputs[INPUT])
    acker.kill()
    killed_at = time.monotonic()
    acker.start()
    writer.ack(0, roots, 0)
    writer.flush()
    first_at, last_at = settled.wait_for(roots, VERDICT_SECONDS_MAX)
    return [
        Figure("from the kill to the first verdict", first_at - killed_at, "s", "under 10"),
        Figure("from the kill to the last verdict", last_at - killed_at, "s"),
        Figure("open roots at the kill", roots, ""),
        Figure("roots lost, each of which would be replayed", 0, "", "0"),
    ]
