"""An acker process end to end: records through the broker, verdicts back."""

from __future__ import annotations

import time

from acker.config.topics import Topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Log
from benchmarks.measure import Figure
from benchmarks.services.wire import Session, WireWriter
from benchmarks.settled import Settled
from benchmarks.world import INPUT, World
from spout.runtime.child import Child

READY_SECONDS_MAX = 60.0
VERDICT_SECONDS_MAX = 120.0


def through_the_broker(world: World, roots: int) -> list[Figure]:
    """Ack `roots` roots by runs, then as many by packed values; from the first record to the last verdict."""
    log = KafkaLog(world.topics.kafka)
    writer = writer_for(log, world.topics)
    with Child("acker", world.config) as acker:
        acker.wait_ready(READY_SECONDS_MAX)
        writer.take()
        by_runs = _rate(log, world.topics, writer, 0, roots, packed=False)
        packed = _rate(log, world.topics, writer, roots, 2 * roots, packed=True)
    writer.close()
    log.close()
    return [
        Figure("end to end through the broker, runs", by_runs, "million/s"),
        Figure("end to end through the broker, packed values", packed, "million/s"),
    ]


def writer_for(log: Log, topics: Topics) -> WireWriter:
    """Make a writer for the first session of the benchmark's input."""
    source = topics.inputs[INPUT]
    topic_id = log.topics([source.topic])[source.topic].id
    session = Session(source.group, "bench-session", 1, source.id, source.topic, topic_id)
    return WireWriter(log, topics.ack_topics, topics.acker.partitions, session)


def _rate(log: Log, topics: Topics, writer: WireWriter, start: int, end: int, *, packed: bool) -> float:
    settled = Settled(log, topics, topics.inputs[INPUT])
    writer.init(start, end)
    writer.flush()
    records = list(writer.encoded_acks(start, end, seq=start, packed=packed))
    started = time.monotonic()
    writer.send_encoded(records)
    writer.flush()
    _, last_at = settled.wait_for(end - start, VERDICT_SECONDS_MAX)
    return (end - start) / (last_at - started) / 1e6
