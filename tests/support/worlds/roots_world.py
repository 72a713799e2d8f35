"""A cluster in memory with open roots of many kinds: of two groups, copies, held and rewound ones."""

from __future__ import annotations

from typing import Final

from acker.identity import position_at
from spout.planning.journal import BEGINNING, Journal
from tests.support.worlds.planning import COPIES, World, batch

YAML: Final = """
acker: {partitions: 3}
inputs:
  sentences:
    id: 1
    group: g
    topic: lines
    partitions: 2
    timeout: 4s
    retry: {attempts: 3, initial: 1s, jitter: 0}
  orders: {id: 2, group: h, partitions: 1, timeout: 0}
  clicks: {id: 3, group: u, partitions: 1, ackers: 0}
"""


def world_of_roots() -> tuple[World, Journal]:
    """Return a world in which roots of both groups are open, and where the last batch ended.

    1. Two roots of `orders` never time out; nobody runs the query of group `h` any more.
    2. `sentences` is rewound, so that its roots are of the second generation.
    3. Three of these wait for their bolts, two more for Spark's state, and a copy of a record that
       failed is open, too.
    """
    world = World(YAML)
    world.start_replays()
    inputs = world.topics.inputs

    # 1. roots that never time out
    orders = world.ready(inputs=(inputs["orders"],))
    world.produce(2, topic="orders")
    batch(orders, BEGINNING, world)
    world.run(500)
    world.kill(orders)

    # 2. a rewind
    world.produce(10, topic="lines")
    former = world.ready(inputs=(inputs["sentences"],))
    world.publish(BEGINNING, batch(former, BEGINNING, world))
    world.run(500)
    world.kill(former)
    world.rewind(0)

    # 3. roots that wait
    sentences = world.ready(inputs=(inputs["sentences"],))
    end = batch(sentences, BEGINNING, world)
    world.publish(BEGINNING, end, skip=(_again(2), _again(3), _again(7)), fail=(_again(5),))
    world.run(1_500)
    start, end = end, batch(sentences, end, world)
    world.publish(start, end, skip=(0,), of=COPIES)
    world.produce(4, topic="lines", partition=1)
    start, end = end, batch(sentences, end, world)
    world.publish_held(start, end, held=(1, 2))
    world.run(300)
    return world, end


def _again(offset: int) -> int:
    """Return the position of a record in the second generation."""
    return position_at(1, offset)
