"""What the demo lays at the door of the acker that it kills."""

from __future__ import annotations

import numpy as np

from acker.kafka.port import Outgoing
from acker.wire.events import Acks, Lost, PositionRun, Verdicts, pack_positions, pack_values
from acker.wire.verdict import Verdict
from spout.demo.observer import OutcomeObserver
from tests.support.worlds.replay_world import Emission, World, codec, topics

EMITTED, KILLED, DUE, LATE = 10_000, 11_000, 40_000, 41_000
"""Wall time, ms; the input's timeout is 30 s."""


def acked(world: World, root: Emission, at_ms: int) -> None:
    """Say in `_ack_ack`, at a time, that a root is whole."""
    nothing = np.array([], np.int64)
    event = Acks(
        "q/s", 1, "g", "s", 1, root.source, 0, (PositionRun(root.offset, root.offset + 1),),
        pack_positions(nothing), pack_values(nothing.astype(np.uint64)), (), b"", 0,
    )  # fmt: skip
    producer = world.cluster.log().producer()
    producer.send(Outgoing("_ack_ack", 0, codec().encode(event), timestamp_ms=at_ms))
    producer.flush(0)


def lost(world: World, root: Emission, reason: Verdict) -> None:
    """Say that a root was lost."""
    at = pack_positions(np.array([root.offset]))
    why = Lost(
        reason, "g", root.topic, world.topic_id(root.topic), "", "", "", 0, EMITTED, 0, root.source, at
    )
    world.verdict(Verdicts((), (), (why,)))


def test_a_kill_is_charged_with_what_was_acked_in_time_and_lost_and_with_nothing_else() -> None:
    world = World()
    world.cluster.create_topic("_ack_ack", 2)
    whole, slow, never, taken = (world.emit(b"line") for _ in range(4))
    observer = OutcomeObserver(world.cluster.log(), topics(), topics().inputs["sentences"])
    observer.record_kill(KILLED)
    acked(world, whole, DUE - 1)
    acked(world, slow, LATE)
    for root in (whole, slow, never):
        lost(world, root, Verdict.TIMED_OUT)
    lost(world, taken, Verdict.ABANDONED)
    observer.read_to_end(10_000)
    assert observer.lost_across_kill() == {f"sentences/0@{root.offset}" for root in (whole, taken)}
    assert observer.outcomes.counts.lost_by_reason == {"TIMED_OUT": 3, "ABANDONED": 1}


def test_what_was_emitted_after_the_kill_is_not_charged_to_it() -> None:
    world = World()
    world.cluster.create_topic("_ack_ack", 2)
    root = world.emit(b"line")
    observer = OutcomeObserver(world.cluster.log(), topics(), topics().inputs["sentences"])
    observer.record_kill(EMITTED - 1)
    acked(world, root, DUE - 1)
    lost(world, root, Verdict.TIMED_OUT)
    observer.read_to_end(10_000)
    assert observer.lost_across_kill() == set()
