"""An acker as a process of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from acker.config.topics import load_topics
from acker.errors import Unreachable
from acker.provisioning.provision import create_topics
from spout.runtime.child import Child
from tests.support.brokers import Broker


@pytest.fixture
def config(broker: Broker, prefix: str, tmp_path: Path) -> Path:
    """A topics.yaml whose topics are there."""
    path = tmp_path / "topics.yaml"
    path.write_text(
        f"""
kafka: {{bootstrap.servers: "{broker.bootstrap}", session.timeout.ms: 6000}}
acker: {{partitions: 2, topic_prefix: "{prefix}"}}
inputs:
  lines: {{id: 1, topic: "{prefix}lines", group: "{prefix}g", partitions: 2}}
"""
    )
    create_topics(load_topics(path, os.environ))
    return path


def test_an_acker_that_is_killed_starts_again_and_leaves_when_asked(config: Path, tmp_path: Path) -> None:
    with Child("acker", config, log=tmp_path / "acker.kafka.port") as acker:
        acker.wait_ready()
        first = acker.pid
        acker.kill()
        assert not acker.alive()
        assert acker.exit_code == -9
        acker.start()
        acker.wait_ready()
        assert acker.alive()
        assert acker.pid != first
        assert acker.stop()
        assert acker.exit_code == 143
    assert (tmp_path / "acker.kafka.port").read_text().count('"event":"acker.ready"'.replace(":", ": ")) == 2


def test_a_child_that_cannot_start_says_why(tmp_path: Path) -> None:
    config = tmp_path / "topics.yaml"
    config.write_text("inputs: {a: {id: 0, group: g}}\n")
    with Child("replay", config) as replay, pytest.raises(Unreachable) as caught:
        replay.wait_ready()
    assert "the replay ended with exit code 4" in str(caught.value)
    assert "inputs.a.id" in str(caught.value)
    assert not replay.log.exists()
