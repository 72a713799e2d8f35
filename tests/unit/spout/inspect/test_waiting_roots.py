"""Lost roots that wait: those that a worker has taken over, and those of verdicts that none has."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from acker.identity import source_of
from acker.kafka.port import Outgoing, TopicPartition
from acker.wire.codec import wire_codec
from acker.wire.events import Lost, Verdicts, pack_positions
from acker.wire.verdict import Verdict
from replay.records.due import PROGRESS_KEY, Aside, Due, Progress, due_codec, root_key
from spout.inspect.overview import Overview
from spout.inspect.waiting_roots import WaitingRoots
from spout.planning.journal import BEGINNING
from tests.support.garbage import DUE
from tests.support.worlds.planning import World, batch, yaml_of


def world_with_two_lost() -> World:
    """Of ten records two failed, in one verdict; a replay is due in ten seconds, and no worker runs."""
    world = World(yaml_of(timeout="10m", retry="{attempts: 2, initial: 10s, jitter: 0}"))
    world.produce(10)
    end = batch(world.ready(), BEGINNING, world)
    world.publish(BEGINNING, end, fail=(2, 3), skip=(4, 5, 6))
    world.run(1_000)
    return world


def read_lost(world: World, number: int) -> list[int]:
    """Return the offsets of those verdicts of an acker partition that lost something."""
    place = TopicPartition(world.topics.ack_topics.verdict, number)
    reader = world.log.reader(committed=True)
    reader.assign({place: 0})
    events = [(each.offset, wire_codec().decode(each.value)) for each in reader.poll(0, 1_000)]
    return [offset for offset, event in events if isinstance(event, Verdicts) and event.lost]


def test_verdicts_that_no_worker_has_taken_over_are_read_once_and_piece_by_piece() -> None:
    """While the workers are away these are many; each reading goes on where the one before ended."""
    world = world_with_two_lost()
    producer, codec = world.log.producer(), wire_codec()
    for number in (4, 5, 6):
        at = pack_positions(np.array([number]))
        lost = Lost(Verdict.FAILED, "g", "sentences", "", "b", "E", "", 0, 0, 0, 65_536, at)
        producer.send(Outgoing(world.topics.ack_topics.verdict, 0, codec.encode(Verdicts((), (), (lost,)))))
    producer.flush(1_000)
    with closing(Overview(world.cluster.log(), world.topics, read_max=2)) as overview:
        unknown = overview.snapshot(world.now_ms).partitions[0].replays_due.unknown
        assert re.match(r"_ack_verdict has more records than are read at once, \d+ % are read", unknown)
        for _ in range(10):
            found = overview.snapshot(world.now_ms)
            if found.partitions[0].replays_due.value is not None:
                break
        assert found.partitions[0].replays_due.value == 5
        assert sum(each.untaken for each in found.to_replay.value or ()) == 5
        world.start_replays()
        world.run(500)
        found = overview.snapshot(world.now_ms)
        while found.to_replay.value is None:
            found = overview.snapshot(world.now_ms)
        assert sum(each.untaken for each in found.to_replay.value) == 0
        assert sum(each.due for each in found.to_replay.value) == 5
        assert found.partitions[0].replays_due.value == 5


@pytest.mark.parametrize(
    "over",
    [
        pytest.param(b"garbage", id="garbage"),
        pytest.param(b"\xc3\x01" + bytes(8), id="of a newer version"),
        pytest.param(due_codec().encode(DUE), id="the entry of another root"),
    ],
)
@pytest.mark.parametrize("is_copy", [False, True])
def test_an_entry_that_somebody_wrote_over_is_shown_as_it_was(over: bytes, is_copy: bool) -> None:
    """Its replay worker has it, and an heir writes it again; it was shown without its time."""
    world = World()
    root = replace(
        DUE, source=source_of(1, 0, replay=is_copy), position=7, due_ms=5_000, origin="sentences/0@3"
    )
    aside = Aside(**{name: getattr(root, name) for name in Due.__dataclass_fields__}, error="E")
    producer = world.log.producer()
    for value in (due_codec().encode(aside), over):
        producer.send(Outgoing(world.topics.ack_topics.due, 1, value, root_key(root)))
    producer.flush(1_000)
    with closing(WaitingRoots(world.cluster.log(), world.topics, 1_000)) as roots:
        waiting = roots.read()
        at = waiting.offsets[1, 0]
        assert (at.offsets.tolist(), at.due_ms.tolist()) == ([3 if is_copy else 7], [5_000])
        assert (waiting.due, waiting.aside) == ({(1, 0): 1}, {(1, 0): 1})
        producer.send(Outgoing(world.topics.ack_topics.due, 1, None, root_key(root)))
        producer.send(Outgoing(world.topics.ack_topics.due, 0, over, root_key(root)))
        producer.flush(1_000)
        assert (roots.read().due, roots.read().aside) == ({(1, 0): 1}, {}), "nothing is known beneath it"


def test_a_verdict_that_is_taken_over_in_part_has_the_rest_of_its_roots_left() -> None:
    world = world_with_two_lost()
    names, log = world.topics.ack_topics, world.cluster.log()
    with closing(Overview(log, world.topics)) as overview:
        assert overview.snapshot(world.now_ms).partitions[0].replays_due.value == 2
        [number] = [n for n in range(3) if read_lost(world, n)]
        [offset] = read_lost(world, number)
        producer = world.log.producer()
        producer.send(Outgoing(names.due, number, due_codec().encode(Progress(offset, 1)), PROGRESS_KEY))
        producer.flush(1_000)
        assert overview.snapshot(world.now_ms).partitions[0].replays_due.value == 1


@pytest.mark.parametrize("over", [b"garbage", None, due_codec().encode(Progress(-1, 0))])
def test_what_somebody_else_writes_under_progress_is_no_sign_of_a_worker(over: bytes | None) -> None:
    """The clock of a replay worker is compared with the broker's by the time of its progress."""
    world = World()
    names, producer = world.topics.ack_topics, world.log.producer()
    with closing(WaitingRoots(world.cluster.log(), world.topics, 1_000)) as roots:
        producer.send(Outgoing(names.due, 1, over, PROGRESS_KEY))
        producer.flush(1_000)
        assert roots.read().written == {}
        progress = due_codec().encode(Progress(3, 0))
        producer.send(Outgoing(names.due, 1, progress, PROGRESS_KEY, timestamp_ms=77))
        producer.send(Outgoing(names.due, 1, over, PROGRESS_KEY))
        producer.flush(1_000)
        assert [(number, at.written_ms) for number, at in roots.read().written.items()] == [(1, 77)]
