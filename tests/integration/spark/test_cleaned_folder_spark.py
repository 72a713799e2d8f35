"""A cleaner of temporary files removes what driver and planning process write, while all runs."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import spout
from spout.builder.topology import TopologyBuilder
from spout.streaming.application import Application
from tests.support.bolts.sample_bolts import NoOrigin
from tests.support.brokers import Broker
from tests.support.waiting import eventually
from tests.support.worlds.stream_worlds import DEADLINE_S, StreamWorld, config_of, stream_world

pytestmark = pytest.mark.slow

CLEANED_FOR_S = 5.0
"""How long the folder is removed again and again."""

CLEAN_EVERY_S = 0.05


@pytest.fixture(scope="module")
def world(
    spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StreamWorld]:
    """Make the topics of all tests here, and run an acker and a replay worker for them."""
    folder = tmp_path_factory.mktemp("cleaned")
    config = config_of(folder, broker, ("files", "function", "paused"))
    with stream_world(spark, config, "acker", "replay") as made:
        yield made


def clean(world: StreamWorld) -> None:
    """Remove the folder of the application, again and again, whatever is written meanwhile."""
    folder = Application.of(world.spark).sink_folder
    over = threading.Event()
    threading.Timer(CLEANED_FOR_S, over.set).start()
    while not over.wait(CLEAN_EVERY_S):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("name", ["files", "function"])
def test_a_query_goes_on_while_its_messages_are_removed(world: StreamWorld, name: str) -> None:
    """D303: whoever publishes; each record is acked once, and none comes again."""
    rows = world.read(name).transform(spout.bolt(NoOrigin(), name="split"))
    writer = rows.writeStream.option("checkpointLocation", str(world.folder / name))
    if name == "files":
        query = spout.start(writer.format("noop"))
    else:
        query = writer.foreachBatch(spout.sink(lambda batch, _batch_id: batch.collect())).start()
    try:
        world.produce(name, "a", "b")
        world.wait_for(name, 2, query)
        cleaner = threading.Thread(target=clean, args=(world,))
        cleaner.start()
        for said in range(4, 14, 2):
            world.produce(name, "c", "d")
            world.wait_for(name, said, query)
        cleaner.join()
        world.produce(name, "e", "f")
        assert len(world.wait_for(name, 14, query).acked) == 14
        assert query.exception() is None
        assert world.copies(name) == []
    finally:
        query.stop()


def test_a_paused_topology_stays_paused_while_its_messages_are_removed(world: StreamWorld) -> None:
    """D301: it emits when it is resumed, and not before."""
    builder = TopologyBuilder()
    builder.set_spout("lines", world.topics, "paused", startingOffsets="earliest")
    builder.set_bolt("split", NoOrigin()).shuffle_grouping("lines")
    running = builder.submit(world.spark, checkpoint=world.folder / "paused")
    try:
        world.produce("paused", "a", "b")
        eventually(lambda: world.published("paused").said == 2, DEADLINE_S, told=running.status)
        running.pause()
        eventually(lambda: running.status().state == "inactive", DEADLINE_S, told=running.status)
        world.produce("paused", "c", "d")
        clean(world)
        eventually(lambda: running.status().state == "inactive", DEADLINE_S, told=running.status)
        assert world.published("paused").said == 2
        running.resume()
        eventually(lambda: world.published("paused").said == 4, DEADLINE_S, told=running.status)
    finally:
        running.kill()
