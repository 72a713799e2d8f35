"""Acker and replay worker whose clocks are hours off, on a real broker: they work, and say so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import spout
from acker.config import topics as topics_yaml
from acker.config.topics import Topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing
from acker.provisioning.provision import create_topics
from spout.cli.common import wall_ms
from spout.inspect.overview import Overview
from spout.runtime.child import Child
from tests.support.brokers import Broker, set_topic
from tests.support.waiting import eventually
from tests.torture.stage.clock import SteppedClock

LIMITS = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
HOUR_MS = 3_600_000
DEADLINE_S = 60.0
WAIT_MS = 20_000
YAML = """
kafka: {bootstrap.servers: "%(bootstrap)s"}
acker: {partitions: 2, topic_prefix: "%(prefix)s"}
inputs:
  sentences:
    {id: 1, group: "%(prefix)sg", topic: "%(prefix)ssentences", partitions: 2, retry: {initial: 100ms}}
"""


@pytest.fixture
def config(broker: Broker, prefix: str, tmp_path: Path) -> Path:
    path = tmp_path / "topics.yaml"
    path.write_text(YAML % {"bootstrap": broker.bootstrap, "prefix": prefix})
    return path


@pytest.fixture
def topics(config: Path) -> Topics:
    """Make the topics; each own one takes only what is dated to the millisecond, if its writer dates it."""
    found = topics_yaml.load_topics(config, {})
    create_topics(found)
    for name in found.ack_topics.names():
        for limit in LIMITS:
            set_topic(found.kafka["bootstrap.servers"], name, limit, "1")
    return found


@pytest.fixture
def clock(tmp_path: Path) -> SteppedClock:
    return SteppedClock(tmp_path / "skew")


@pytest.fixture
def services(config: Path, topics: Topics, clock: SteppedClock) -> Iterator[tuple[Child, Child]]:
    environ = clock.environ(os.environ)
    with Child("acker", config, environ=environ) as acker, Child("replay", config, environ=environ) as replay:
        acker.wait_ready()
        replay.wait_ready()
        yield acker, replay


def produce(topics: Topics, count: int) -> None:
    with closing(KafkaLog(topics.kafka)) as log:
        producer = log.producer()
        for number in range(count):
            producer.send(Outgoing(topics.input("sentences").topic, number % 2, b"%d" % number))
        producer.flush(WAIT_MS)
        producer.close()


@pytest.mark.sample(2)
@pytest.mark.parametrize("ahead_ms", [2 * HOUR_MS, -2 * HOUR_MS], ids=["ahead", "behind"])
def test_everybody_works_and_names_the_clock(
    config: Path, topics: Topics, services: tuple[Child, Child], clock: SteppedClock, ahead_ms: int
) -> None:
    """D401, D404, D407, D408, D409: all is written, whatever a machine's clock says, and views name it."""
    clock.step(ahead_ms)
    produce(topics, 20)
    with spout.KafkaSpout(topics, "sentences") as made, made.client("worker") as client:
        items = [*client.open(20, wait_ms=WAIT_MS)]
        while len(items) < 20:
            items += client.open(20 - len(items), wait_ms=WAIT_MS)
        assert client.confirm(items[:10], wait_ms=WAIT_MS) == 10
        # what is open lets the session tick, and by these records the services compare the clocks
        logs = [service.log for service in services]
        eventually(
            lambda: "acker.clocks_differ" in logs[0].read_text(),
            DEADLINE_S,
            told=lambda: logs[0].read_text()[-3_000:],
        )
        with closing(KafkaLog(topics.kafka)) as log, closing(Overview(log, topics)) as overview:
            clocks = overview.snapshot(wall_ms()).clocks
        assert {whose.partition(" of ")[0] for whose in clocks} == {"the acker", "the replay worker"}
        check = [sys.executable, "-m", "spout.cli", "check", "--config", str(config)]
        report = subprocess.run(
            check, env=clock.environ(os.environ), capture_output=True, text=True, check=False, timeout=60
        )
        assert client.confirm(items[10:], wait_ms=WAIT_MS) == 10
    assert "this machine's clock is 2.0 h" in report.stdout
    assert "no query" not in report.stdout
    which_way = "ahead of" if ahead_ms > 0 else "behind"
    assert f"{which_way} the broker's" in logs[0].read_text()
    assert [service.exit_code for service in services] == [None, None]
