"""An acker process end to end: records through the broker, verdicts back."""

from __future__ import annotations

import time

from acker.codec import wire_codec
from acker.errors import CheckFailed
from acker.events import Verdicts
from acker.kafka_log import KafkaLog
from acker.log import Log, Reader, TopicPartition
from acker.topics import Topics
from spout.bench.measure import Figure
from spout.bench.wire import Session, WireWriter
from spout.bench.world import INPUT, World
from spout.child import Child

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


def verdict_reader(log: Log, topics: Topics) -> Reader:
    """Make a reader of the verdicts that are yet to come."""
    verdicts = [TopicPartition(topics.ack_topics.verdict, p) for p in range(topics.acker.partitions)]
    reader = log.reader(committed=True)
    reader.assign(log.ends(verdicts))
    return reader


def wait_for_verdicts(reader: Reader, roots: int) -> tuple[float, float]:
    """Wait until so many roots are acked.

    Returns:
        When the first verdict came and when the last, in monotonic seconds.

    Raises:
        CheckFailed: a root was lost, or the verdicts did not come in time.
    """
    codec, acked, lost, first_at = wire_codec(), 0, 0, 0.0
    deadline = time.monotonic() + VERDICT_SECONDS_MAX
    while acked + lost < roots and time.monotonic() < deadline:
        for record in reader.poll(50):
            event = codec.decode(record.value)
            if isinstance(event, Verdicts):
                first_at = first_at or time.monotonic()
                acked += sum(run.end - run.start for run in event.acked)
                lost += sum(len(each.positions) // 8 for each in event.lost)
    if (acked, lost) != (roots, 0):
        raise CheckFailed(
            f"of {roots} roots {acked} were acked and {lost} lost in {VERDICT_SECONDS_MAX:.0f} s"
        )
    return first_at, time.monotonic()


def _rate(log: Log, topics: Topics, writer: WireWriter, start: int, end: int, *, packed: bool) -> float:
    reader = verdict_reader(log, topics)
    writer.init(start, end)
    writer.flush()
    records = list(writer.encoded_acks(start, end, seq=start, packed=packed))
    started = time.monotonic()
    writer.send_encoded(records)
    writer.flush()
    _, last_at = wait_for_verdicts(reader, end - start)
    reader.close()
    return (end - start) / (last_at - started) / 1e6
