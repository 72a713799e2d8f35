"""Topologies that end in a keyed bolt, in a real Spark on a real broker: what is held, and until when."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from acker.errors import UsageError
from spout.builder.flux import load_topology
from spout.builder.submitted import DRAIN_SECONDS, SubmittedTopology
from spout.builder.topology import TopologyBuilder
from spout.planning_process.status import PlannerStatus
from tests.support.bolts.keyed_topology_bolts import Again, Both, Count, Refuses, Together, Total, Words
from tests.support.brokers import Broker
from tests.support.waiting import eventually
from tests.support.worlds.stream_worlds import (
    DEADLINE_S,
    SubmittedWorld,
    config_of,
    serving,
    spout_of,
    wait_for_spout,
)

pytestmark = pytest.mark.slow

INPUTS = ("ticks", "fails", "restart", "yaml", "wide", "paused", "behind", "together")
TRIGGER = {"processingTime": "200 milliseconds"}


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SubmittedWorld]:
    """Make the topics of all tests here, and run an acker and a replay worker for them."""
    folder = tmp_path_factory.mktemp("keyed-topologies")
    config = config_of(folder, broker, INPUTS)
    made = SubmittedWorld(f"{folder.name}-", config.read_text(), spark, folder)
    with serving(config, "acker", "replay"):
        yield made
    made.log.close()


@pytest.fixture(autouse=True)
def all_ended(world: SubmittedWorld) -> Iterator[None]:
    """End what a test leaves running."""
    yield
    while world.submitted:
        world.submitted.pop().kill()


class Written:
    """What a sink got: how many tuples of each word were counted."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __call__(self, batch: DataFrame, _batch_id: int) -> None:
        """Add up a batch."""
        for row in batch.collect():
            self.counts[row.word] += row.tuples


def counting(world: SubmittedWorld, name: str, gate: Path) -> TopologyBuilder:
    """Build the word count: lines, words, and a keyed bolt that holds them until a file is there."""
    builder = TopologyBuilder()
    builder.set_spout("lines", world.topics, name, startingOffsets="earliest")
    builder.set_bolt("split", Words()).shuffle_grouping("lines")
    builder.set_bolt("count", Count(str(gate))).fields_grouping("split", "word")
    return builder


def submit(
    world: SubmittedWorld, builder: TopologyBuilder, sink: Any = None, **options: Any
) -> SubmittedTopology:
    """Submit a topology that runs a batch five times a second at most."""
    return world.submit(builder, sink=sink, trigger=TRIGGER, **options)


def batches(checkpoint: Path, log: str) -> set[str]:
    """Return the numbers of the batches that Spark has begun, or ended."""
    return {path.name for path in (checkpoint / log).iterdir() if path.name.isdigit()}


def wait_until_held(running: SubmittedTopology, tuples: int) -> PlannerStatus:
    """Wait until so many tuples were published as received, and then for a status of some time after."""
    eventually(lambda: running.status().count("executed", "count") == tuples, DEADLINE_S, told=running.status)
    since = spout_of(running).wall
    return wait_for_spout(running, lambda status: status.wall > since + 1_500)


def test_tuples_are_held_until_a_tick_acks_them(world: SubmittedWorld) -> None:
    """Rule 3, P52: no root is acked while the keyed bolt holds one of its tuples; then all are."""
    gate, written = world.folder / "ticks-open", Written()
    world.produce("ticks", "the hawk waits", "the hawk hovers", "", "end")
    running = submit(world, counting(world, "ticks", gate), written)
    held = wait_until_held(running, 7)
    # the empty line has no word to wait for
    assert (held.acked, held.pending, held.failed) == (1, 3, 0)
    assert not written.counts
    gate.touch()
    found = wait_for_spout(running, lambda status: status.acked == 4)
    assert (found.pending, found.failed, found.replayed) == (0, 0, 0)
    assert written.counts == {"the": 2, "hawk": 2, "waits": 1, "hovers": 1, "end": 1}
    eventually(lambda: running.status().count("acked", "count") == 7)
    status = running.status()
    assert status.count("executed", "count", "split") == status.count("acked", "count", "split") == 7
    assert status.count("transferred", "split") == 7
    assert status.count("emitted", "count") == 5
    assert running.stop().state == "stopped"


def test_what_a_keyed_bolt_fails_comes_again(world: SubmittedWorld) -> None:
    """Rule 5: alone where it fails one tuple, with all that the key holds where it raises."""
    gate, written = world.folder / "fails-open", Written()
    gate.touch()
    world.produce("fails", "hawk fails", "raises", "kite")
    running = submit(world, counting(world, "fails", gate), written)
    found = wait_for_spout(running, lambda status: status.acked == 3 and not status.pending)
    # of the positions that were read of replay topics some are marks of transactions
    assert (found.failed, found.replayed - found.absent) == (2, 2)
    # the other word of a line that failed was acked, and is counted again when the line comes again
    eventually(lambda: written.counts == {"hawk": 2, "fails": 1, "raises": 1, "kite": 1}, DEADLINE_S)
    eventually(lambda: running.status().count("failed", "count") == 2)


def test_what_is_held_outlives_a_kill_and_a_stop(world: SubmittedWorld) -> None:
    """Rules 3 and 6: a restart from the checkpoint holds on; nothing is emitted again, or acked early."""
    gate, written = world.folder / "restart-open", Written()
    checkpoint = world.folder / "restart"

    def begin() -> SubmittedTopology:
        return submit(world, counting(world, "restart", gate), written, checkpoint=checkpoint)

    world.produce("restart", "the hawk", "the kite")
    running = begin()
    assert wait_until_held(running, 4).pending == 2
    assert running.kill().state == "killed"

    world.produce("restart", "the end")
    running = begin()
    held = wait_until_held(running, 2)
    assert (held.emitted, held.acked, held.pending) == (1, 0, 3)
    began = time.monotonic()
    last = running.stop()
    assert time.monotonic() - began < DRAIN_SECONDS  # it waits for nothing that is held
    assert (last.state, last.spout and last.spout.pending) == ("stopped", 3)
    assert batches(checkpoint, "offsets") == batches(checkpoint, "commits")  # and interrupts no tick
    assert not written.counts

    running = begin()
    wait_for_spout(running, lambda status: status.pending == 3)
    gate.touch()
    found = wait_for_spout(running, lambda status: not status.pending)
    assert (found.emitted, found.acked, found.failed, found.replayed) == (0, 3, 0, 0)
    assert written.counts == {"the": 3, "hawk": 1, "kite": 1, "end": 1}


def test_a_paused_topology_ticks_on(world: SubmittedWorld) -> None:
    """S70: nothing new is emitted, and what is held is acked when its bolt does."""
    gate, written = world.folder / "paused-open", Written()
    world.produce("paused", "hawk")
    running = submit(world, counting(world, "paused", gate), written)
    assert wait_until_held(running, 1).pending == 1
    running.pause()
    eventually(lambda: running.status().state == "inactive", DEADLINE_S)
    world.produce("paused", "kite")
    gate.touch()
    found = wait_for_spout(running, lambda status: status.acked == 1)
    assert (found.emitted, found.pending) == (1, 0)
    running.resume()
    wait_for_spout(running, lambda status: status.acked == 2)
    assert written.counts == {"hawk": 1, "kite": 1}


def test_a_topology_from_a_file_may_end_in_a_keyed_bolt(world: SubmittedWorld) -> None:
    """The word count again, as `windhover submit` runs it, but for its Spark session; nothing is written."""
    folder = world.folder / "yaml"
    folder.mkdir()
    (folder / "topics.yaml").write_text(world.text)
    gate = folder / "open"
    (folder / "topology.yaml").write_text(
        f"""
name: keyed-word-count
spouts:
  - {{id: lines, inputs: [yaml], options: {{startingOffsets: earliest}}}}
bolts:
  - {{id: split, className: "tests.support.bolts.keyed_topology_bolts:Words"}}
  - {{id: count, className: "tests.support.bolts.keyed_topology_bolts:Count", constructorArgs: ["{gate}"]}}
streams:
  - {{from: lines, to: split, grouping: {{type: shuffle}}}}
  - {{from: split, to: count, grouping: {{type: fields, args: [word]}}}}
trigger: {{processingTime: 200 milliseconds}}
"""
    )
    found = load_topology(folder / "topology.yaml", {})
    world.produce("yaml", "to be or not to be")
    running = world.submit(found.builder, sink=found.sink, **found.options)
    assert wait_until_held(running, 6).pending == 1
    gate.touch()
    assert wait_for_spout(running, lambda status: status.acked == 1).pending == 0


def test_a_keyed_bolt_stands_behind_shuffles_and_joins_and_beside_other_ends(world: SubmittedWorld) -> None:
    """S31: words go two ways and come together, anchored on both; another bolt reads them and writes itself.

    A tuple of two tuples of one root is held by both edges.
    """
    gate, written = world.folder / "wide-open", Written()
    builder = TopologyBuilder()
    builder.set_spout("lines", world.topics, "wide", startingOffsets="earliest")
    builder.set_bolt("split", Words()).shuffle_grouping("lines")
    builder.set_bolt("left", Again(), parallelism=2).shuffle_grouping("split")
    builder.set_bolt("right", Again(), parallelism=2).fields_grouping("split", "length")
    both = builder.set_bolt("both", Both(), parallelism=2)
    both.fields_grouping("left", "word").fields_grouping("right", "word")
    builder.set_bolt("count", Count(str(gate))).fields_grouping("both", "word", "length")
    builder.set_bolt("audit", Again(), parallelism=2).all_grouping("both")
    world.produce("wide", "the hawk waits", "end", "a kite hovers")
    running = submit(world, builder, {"count": written})
    assert wait_until_held(running, 7).pending == 3
    eventually(lambda: running.status().count("acked", "audit") == 14)
    gate.touch()
    found = wait_for_spout(running, lambda status: status.acked == 3)
    assert (found.pending, found.failed) == (0, 0)
    assert written.counts == dict.fromkeys(("the", "hawk", "waits", "end", "a", "kite", "hovers"), 1)


def test_bolts_behind_a_keyed_bolt_fail_and_ack_what_it_held(world: SubmittedWorld) -> None:
    """Rules 3 and 5: a count that a bolt behind fails is of records that earlier batches emitted."""
    gate, refused, written = (world.folder / name for name in ("behind-open", "behind-refused", "written"))
    written.touch()  # only the first of the two refuses
    counts, totals = Written(), Written()
    builder = counting(world, "behind", gate)
    builder.set_bolt("refuse", Refuses(str(refused))).shuffle_grouping("count")
    again = builder.set_bolt("again", Refuses(str(written)), parallelism=3)
    again.fields_grouping("refuse", "word")
    builder.set_bolt("total", Total()).global_grouping("again")
    world.produce("behind", "the hawk", "refused kite", "the end")
    running = submit(world, builder, {"count": counts, "total": totals})
    assert wait_until_held(running, 6).pending == 3
    gate.touch()
    found = wait_for_spout(running, lambda status: status.acked == 3 and not status.pending)
    assert (found.failed, found.replayed - found.absent) == (1, 1)
    # the other word of the line came again with it
    eventually(lambda: counts.counts == {"the": 2, "hawk": 1, "end": 1, "refused": 2, "kite": 2}, DEADLINE_S)
    eventually(lambda: totals.counts == {"total": 7}, DEADLINE_S)
    status = running.status()
    assert status.count("executed", "refuse", "count") == status.count("emitted", "count")
    assert (status.count("failed", "refuse"), status.count("failed", "again")) == (1, 0)
    assert (
        status.count("acked", "total") == status.count("emitted", "again") == status.count("acked", "again")
    )


def test_all_tuples_have_one_key_behind_a_global_grouping(world: SubmittedWorld) -> None:
    """A tick comes once, and not for each word."""
    gate, totals = world.folder / "together-open", Written()
    builder = TopologyBuilder()
    builder.set_spout("lines", world.topics, "together", startingOffsets="earliest")
    builder.set_bolt("split", Words()).shuffle_grouping("lines")
    builder.set_bolt("count", Together(str(gate))).global_grouping("split")
    world.produce("together", "the hawk", "the kite")
    running = submit(world, builder, totals)
    assert wait_until_held(running, 4).pending == 2
    gate.touch()
    assert wait_for_spout(running, lambda status: status.acked == 2).pending == 0
    assert totals.counts == {"key () of 4": 4}


def test_a_query_that_ends_with_its_records_has_no_ticks(world: SubmittedWorld) -> None:
    """It is refused before anything is read."""
    with pytest.raises(UsageError, match="'count' is a KeyedBolt that ticks, and with the trigger available"):
        world.submit(counting(world, "ticks", world.folder), trigger={"availableNow": True})
