"""Topologies in a real Spark on a real broker: what comes out, what is acked, how one is paused and ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from pyspark.sql import DataFrame, SparkSession

import spout
from acker.errors import UsageError
from examples import diamond_join, word_count
from spout.builder.flux import load_topology
from spout.builder.topology import TopologyBuilder
from spout.local.embedded import free_port
from spout.runtime.scrape import read_metrics
from spout.ui.graph import OUT, Drivers
from tests.support.bolts.topology_bolts import Gather, Measure, Pass, Sort
from tests.support.brokers import Broker
from tests.support.monitoring import expressions, metrics_named
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

INPUTS = ("count", "file", "diamond", "sort", "pause", "kill")


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SubmittedWorld]:
    """Make the topics of all tests here, and run one acker for them."""
    folder = tmp_path_factory.mktemp("topologies")
    config = config_of(folder, broker, INPUTS)
    made = SubmittedWorld(f"{folder.name}-", config.read_text(), spark, folder)
    with serving(config, "acker"):
        yield made
    made.log.close()


@pytest.fixture(autouse=True)
def all_ended(world: SubmittedWorld) -> Iterator[None]:
    """End what a test leaves running."""
    yield
    while world.submitted:
        world.submitted.pop().kill()


def test_the_word_count_of_the_examples_counts(world: SubmittedWorld) -> None:
    """S82: each line is acked when its words were counted, behind a fields grouping."""
    world.produce("count", "the hawk waits", "The hawk hovers", "", "the end")
    counts = word_count.count(world.spark, world.named("count"), world.folder)
    assert counts == {"the": 3, "hawk": 2, "end": 1, "hovers": 1, "waits": 1}


def test_a_topology_from_a_file_runs(world: SubmittedWorld, capsys: pytest.CaptureFixture[str]) -> None:
    """The word count again, as `windhover submit` runs it, but for its Spark session."""
    (world.folder / "file").mkdir()
    (world.folder / "file" / "topics.yaml").write_text(world.text.replace("  file: {", "  sentences: {"))
    path = world.folder / "file" / "topology.yaml"
    text = (Path(word_count.__file__).with_suffix(".yaml")).read_text()
    path.write_text(text.replace("../topics.yaml", "topics.yaml"))
    world.produce("file", "to be or not to be")
    found = load_topology(path, {})
    running = world.submit(found.builder, sink=found.sink, **found.options)
    assert spout.run_once(running, timeout_s=DEADLINE_S)
    assert spout_of(running).acked == 1
    words = capsys.readouterr().out.split()
    assert dict(zip(words[1::2], map(int, words[::2]), strict=True)) == {"to": 2, "be": 2, "or": 1, "not": 1}


def test_the_diamond_of_the_examples_acks_a_line_when_both_halves_were_joined(world: SubmittedWorld) -> None:
    """S31: what one half fails, fails the line; its other half is held in vain."""
    world.produce("diamond", "a bb ccc", "  ", "d")
    rows: list[tuple[object, ...]] = []

    def write(batch: DataFrame, _batch_id: int) -> None:
        rows.extend(tuple(row)[1:] for row in batch.collect())

    running = world.submit(diamond_join.topology(world.named("diamond")), sink=write)
    found = wait_for_spout(running, lambda status: status.acked + status.failed == 3)
    assert (found.acked, found.failed, found.pending) == (2, 1, 0)
    assert sorted(rows) == [(1, 1), (8, 3)]


def test_streams_go_their_own_ways_and_all_that_is_done_is_counted(world: SubmittedWorld) -> None:
    """S54, S55, S74: three streams of a bolt, one of them direct, one for the sink alone."""
    builder = TopologyBuilder()
    builder.set_spout("lines", world.topics, "sort", startingOffsets="earliest")
    builder.set_bolt("sort", Sort()).local_or_shuffle_grouping("lines")
    builder.set_bolt("measure", Measure(), parallelism=3).direct_grouping("sort", "long")
    gather = builder.set_bolt("gather", Gather(), parallelism=2)
    gather.global_grouping("sort").all_grouping("measure")
    rows: dict[str, list[tuple[object, ...]]] = {"gather": [], "bad": []}

    def into(name: str) -> Callable[[DataFrame, int], None]:
        return lambda batch, _: rows[name].extend(tuple(row) for row in batch.collect())

    world.produce("sort", "a hawk", "bad day", "it hovers", "is broken", "lost")
    sink = {"gather": into("gather"), ("sort", "bad"): into("bad")}
    port = free_port()
    running = world.submit(builder, sink=sink, metrics_port=port)
    found = wait_for_spout(running, lambda status: status.acked + status.failed == 4)
    assert (found.acked, found.failed, found.pending) == (3, 1, 1)
    # what was published is counted next
    eventually(lambda: running.status().count("emitted", "lines") == 5)
    long = {("hawk", 1), ("hovers", 0), ("lost", 1)}
    short = {(word, "sort/default", 0) for word in ("a", "it", "is")}
    copied = {(word, "measure/default", task) for word, _ in long for task in (0, 1)}
    assert set(rows["gather"]) == short | copied
    assert rows["bad"] == [("bad day",)]
    status = running.status()
    assert [error.message for error in status.errors] == ["bad line 'bad day'"]
    assert status.count("emitted", "lines") == status.count("executed", "sort") == 5
    assert status.count("executed", "measure") == 4
    assert (status.count("acked", "measure"), status.count("failed", "measure")) == (3, 1)
    assert status.count("transferred", "measure") == status.count("executed", "gather", "measure") == 6
    assert (status.count("acked", "gather"), status.count("executed", "gather")) == (7, 9)
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        metrics = answer.read().decode().splitlines()
    group = f'group="{found.group}"'
    labels = f'{group},operator="measure",source="sort",stream="long"'
    acked = f"windhover_topology_roots_acked_total{{{group}}} 3.0"
    assert {f"windhover_topology_executed_total{{{labels}}} 4.0", acked} <= set(metrics)
    series = {line.partition("{")[0] for line in metrics}
    of_panels = {name for each in expressions() for name in metrics_named(each)}
    assert {name for name in of_panels if name.startswith("windhover_topology_")} <= series
    (graph,), problems = Drivers([f"127.0.0.1:{port}"], read_metrics).read(0)
    assert (graph.group, problems) == (found.group, {})
    assert {edge[:5] for edge in graph.edges} == {
        ("lines", "default", "sort", "local_or_shuffle", 5),
        ("sort", "long", "measure", "direct", 4),
        ("sort", "default", "gather", "global", 3),
        ("measure", "default", "gather", "all", 6),
        ("sort", "bad", OUT, "", 1),
        ("gather", "default", OUT, "", 9),
    }, "the page draws the graph from its driver"
    assert {node.name: node.failed for node in graph.nodes if node.failed} == {"measure": 1}


def test_a_topology_is_submitted_inactive_paused_resumed_and_drained(world: SubmittedWorld) -> None:
    """S70, S71, S140, P17, P18: paused, it emits nothing, and acks still flow; nothing comes twice."""
    holding, released = threading.Event(), threading.Event()
    lines: list[str] = []

    def write(batch: DataFrame, _batch_id: int) -> None:
        found = [row.line for row in batch.collect()]
        if "hold" in found:
            holding.set()
            assert released.wait(DEADLINE_S)
        lines.extend(found)

    def build() -> TopologyBuilder:
        builder = TopologyBuilder()
        builder.set_spout("lines", world.topics, "pause", startingOffsets="earliest")
        builder.set_bolt("pass", Pass()).shuffle_grouping("lines")
        return builder

    checkpoint = world.folder / "pause"
    world.produce("pause", "one")
    running = world.submit(build(), sink=write, checkpoint=checkpoint, active=False)
    assert (running.status().state, running.query) == ("inactive", None)
    with pytest.raises(UsageError, match=r"submitted with active=False.*resume it first"):
        spout.run_once(running)
    running.resume()
    wait_for_spout(running, lambda status: status.acked == 1)

    world.produce("pause", "hold")
    assert holding.wait(DEADLINE_S)
    running.pause()
    world.produce("pause", "while it was paused")
    assert running.status().state == "deactivating"
    wait_for_spout(running, lambda status: status.pending == 1)
    released.set()
    found = wait_for_spout(running, lambda status: status.acked == 2)
    eventually(lambda: running.status().state == "inactive", DEADLINE_S)
    later = wait_for_spout(running, lambda status: status.wall > found.wall + 1_000)
    assert (later.emitted, later.pending, lines) == (2, 0, ["one", "hold"])
    assert running.query is not None
    with pytest.raises(UsageError, match="the topology is paused, so there would be no end: resume it"):
        spout.run_once(running)
    assert running.query.isActive

    running.resume()
    wait_for_spout(running, lambda status: status.acked == 3)
    last = running.stop()
    assert (last.state, last.spout and last.spout.pending) == ("stopped", 0)
    with pytest.raises(UsageError, match="was stopped and cannot be resumed"):
        running.resume()
    world.produce("pause", "after the restart")
    again = world.submit(build(), sink=write, checkpoint=checkpoint)
    assert spout.run_once(again, timeout_s=DEADLINE_S)
    assert again.status().state == "finished"
    assert lines == ["one", "hold", "while it was paused", "after the restart"]


def test_a_killed_topology_goes_on_from_its_checkpoint(world: SubmittedWorld) -> None:
    """The batch that was given up is run again, under the same id."""
    holding, given_up = threading.Event(), threading.Event()
    batches: list[tuple[int, list[str]]] = []

    def write(batch: DataFrame, batch_id: int) -> None:
        batches.append((batch_id, [row.line for row in batch.collect()]))
        if not given_up.is_set() and batches[-1][1]:
            holding.set()
            given_up.wait(DEADLINE_S)
            raise OSError("the sink is gone")

    def build() -> TopologyBuilder:
        builder = TopologyBuilder()
        builder.set_spout("lines", world.topics, "kill", startingOffsets="earliest")
        builder.set_bolt("pass", Pass()).none_grouping("lines")
        return builder

    world.produce("kill", "one")
    running = world.submit(build(), sink=write, checkpoint=world.folder / "kill")
    assert holding.wait(DEADLINE_S)
    threading.Timer(0.5, given_up.set).start()
    assert running.kill().state in ("killed", "failed")
    again = world.submit(build(), sink=write, checkpoint=world.folder / "kill")
    # not `acked`: the verdict may come before the new process has taken its group, and count for nobody
    place = f"{world.topics.input('kill').topic}/0"
    found = wait_for_spout(again, lambda status: status.committed.get(place) == 1)
    assert (found.emitted, found.pending) == (0, 0)
    assert batches[-1] == batches[0]
