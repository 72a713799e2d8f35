"""An input that the living query of its group does not read: the views say so, and start nothing else."""

from __future__ import annotations

from contextlib import closing

import pytest

from acker.kafka.port import Outgoing
from acker.wire.codec import wire_codec
from acker.wire.events import Tick
from spout.group.presence import READS_HEADER, SIGN_EVERY_MS, read_inputs, sign_headers
from spout.inspect.diagnosis import explained
from spout.inspect.overview import Overview, Snapshot
from spout.inspect.trail import EvidenceReader
from spout.ui.attention import Thresholds, problems
from tests.support.worlds.planning import WHO, YAML, World

TWO = YAML + "  words: {id: 2, group: g, partitions: 1, timeout: 4s}\n"


def reading(*names: str) -> World:
    """Return a world in which a query reads these inputs, while each has a record."""
    world = World(TWO)
    world.produce(1)
    world.produce(1, topic="words")
    world.ready(inputs=tuple(world.topics.inputs[name] for name in names), who=WHO)
    world.run(2 * SIGN_EVERY_MS)
    return world


def snapshot_of(world: World) -> Snapshot:
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        return overview.snapshot(world.now_ms)


def test_an_input_that_the_query_reads_no_more_is_named() -> None:
    """D2403: as a warning, with what helps; not as a group without a query."""
    world = reading("sentences")
    snapshot = snapshot_of(world)
    assert list(snapshot.unread) == ["words"]
    text = snapshot.unread["words"]
    assert text.startswith("no query reads input words: the one of group g that lives reads sentences")
    assert text in snapshot.troubles()
    flags = [flag.name for flag in problems(snapshot, world.topics)]
    assert "unread: words" in flags
    assert not [name for name in flags if name.startswith("silent: group")]
    critical = problems(snapshot, world.topics, Thresholds(strangers=False))
    assert "unread: words" not in [flag.name for flag in critical]


@pytest.mark.parametrize(("names", "is_unread"), [(("sentences",), True), (("sentences", "words"), False)])
def test_a_record_of_it_is_not_waited_for(names: tuple[str, ...], is_unread: bool) -> None:
    """D2403: `inspect` said that the query has not come so far."""
    world = reading(*names)
    trail = EvidenceReader(world.cluster.log(), world.topics)
    here = trail.records_at("words/0@0")[0]
    evidence = trail.read_evidence(here)
    story = explained(evidence, trail.circumstances(here, evidence, world.now_ms), world.now_ms)
    assert ("no query reads input words" in str(story["why"])) is is_unread


def test_nothing_is_said_where_all_is_read_or_nothing_is_left() -> None:
    """D2403"""
    assert not snapshot_of(reading("sentences", "words")).unread
    world = World(TWO)
    world.produce(1)
    world.ready(inputs=(world.topics.inputs["sentences"],), who=WHO)
    world.run(2 * SIGN_EVERY_MS)
    assert not snapshot_of(world).unread


def test_a_process_of_a_former_version_does_not_say_what_it_reads() -> None:
    """D2403: then it may read all."""
    world = World(TWO)
    world.produce(1, topic="words")
    tick = wire_codec().encode(Tick("g", "s1", 1, world.now_ms))
    producer = world.log.producer()
    producer.send(Outgoing(world.topics.ack_topics.init, 0, tick, headers=sign_headers(WHO)))
    producer.flush(0)
    assert not snapshot_of(world).unread


def test_what_a_stranger_writes_in_its_place_is_not_believed() -> None:
    """It is as if nothing was said."""
    assert read_inputs(((READS_HEADER, b"1,two"),)) is None
    assert read_inputs(((READS_HEADER, None),)) is None
    assert read_inputs(sign_headers(None, reads=[2, 1])) == {1, 2}
