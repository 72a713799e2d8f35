"""What looks at a group is not ended by what somebody wrote in the group's name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from acker.config.settings import AckTopics
from acker.config.topics import Topics, parse
from acker.kafka.port import Log, Outgoing
from spout.cli import check as cli_check
from spout.cli import inspect as cli_inspect
from spout.cli import main as cli
from tests.support.forged import FORGERIES, Forgery, Plot
from tests.support.memory.cluster import MemoryCluster
from tests.support.worlds.acker_world import World

NOW_MS = 1_800_000_000_000
YAML = "acker: {partitions: 1}\ninputs:\n  lines: {id: 1, group: _ack_init-g0, partitions: 1}\n"
COMMANDS = ("status", "roots", "machinery", "failures", "latency", "check", "inspect lines/0@12")
UNEXPECTED = 1
"""The exit code of a command that fell over; `check` has it for a warning."""


BELIEVED = [forgery for forgery in FORGERIES if not forgery.why]
"""What ackers have put into State; the others are in the quarantine."""


@pytest.mark.sample(5)
@pytest.mark.parametrize("forgery", BELIEVED, ids=lambda forgery: forgery.name)
def test_no_forged_record_ends_a_command_that_looks(
    forgery: Forgery, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """O1808: times from before 1970 and positions of other worlds are shown, or said to be none."""
    cluster = MemoryCluster(NOW_MS)
    for topic in ("lines", "lines._ack_init-g0.replay", "lines._ack_init-g0.dlq"):
        cluster.create_topic(topic, 1)
    world = World(cluster=cluster, now_ms=NOW_MS)
    producer = world.writer_log.producer()
    for number in range(20):
        producer.send(Outgoing("lines", 0, b"%d" % number))
    producer.flush(0)
    topics = parse(YAML, file="topics.yaml", environ={})
    plot = Plot(world.writer_log, AckTopics.with_prefix(""), world.settle, lambda: NOW_MS, [forgery])
    plot.forge()

    @contextmanager
    def opened(config: Path, command: str) -> Iterator[tuple[Topics, Log]]:
        yield topics, cluster.log()

    for module in (cli_inspect, cli_check):
        monkeypatch.setattr(module, "opened", opened)
    monkeypatch.setattr(cli_inspect, "wall_ms", lambda: NOW_MS)
    for command in COMMANDS:
        exit_code = cli.run(command.split())
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err, (command, printed.err)
        assert exit_code != UNEXPECTED or command == "check", (command, printed.err)
