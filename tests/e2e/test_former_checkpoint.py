"""A whole installation of a former commit, checkpoint and topics, goes on with today's code, and back."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from acker.config.topics import Topics, load_topics
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing, TopicPartition
from acker.wire.checks import read_verdicts
from acker.wire.events import positions
from spout.local.embedded import EmbeddedBroker
from tests.support.former import FOLDER
from tests.support.programs import ROOT, running
from tests.support.waiting import committed, eventually
from tests.support.worlds.stream_worlds import serving

pytestmark = [pytest.mark.slow, pytest.mark.spark]

COMMIT = "8a65839"
SETTLED, OPEN = 20, 10
DEADLINE_S = 60
KEPT: Mapping[str, str] = {"log.retention.ms": "-1"}
"""The broker's clock is later than the records': by its own default they are too old."""


class Installation:
    """What the former commit left; the services are today's, since ackers are replaced first."""

    def __init__(self, folder: Path, broker: EmbeddedBroker) -> None:
        config = folder / "topics.yaml"
        config.write_text(config.read_text().replace("${KAFKA_BOOTSTRAP}", broker.bootstrap))
        self.config = config
        self.topics: Topics = load_topics(config, {})
        self.log = KafkaLog(self.topics.kafka)
        self._folder = folder
        self._produced = SETTLED + OPEN
        self._runs = 0

    def produce(self, count: int) -> set[str]:
        """Write records, half of them to each partition, and return their values."""
        values = [f"r{self._produced + number}" for number in range(count)]
        producer = self.log.producer()
        for number, value in enumerate(values):
            producer.send(Outgoing("sentences", number % 2, value.encode()))
        producer.flush(30_000)
        producer.close()
        self._produced += count
        return set(values)

    def run(self, code: Path) -> dict[int, set[str]]:
        """Let the query read everything with the packages of a folder; return what it wrote, by batch."""
        self._runs += 1
        log = self._folder / f"run{self._runs}.log"
        environ = {"PYTHONPATH": str(code)}
        with running([self._folder / "job.py", "run"], log, folder=self._folder, environ=environ) as program:
            assert program.ended() == 0, program.said[-4_000:]
        assert f"code {code}/" in program.said
        batches = re.findall(r"^wrote (\d+)(.*)$", program.said, re.MULTILINE)
        return {int(number): set(values.split()) for number, values in batches}

    def verdicts(self) -> tuple[int, int]:
        """Return how many roots were acked, and how many lost, ever."""
        topic = self.topics.ack_topics.verdict
        places = [TopicPartition(topic, number) for number in range(self.topics.acker.partitions)]
        found = [read_verdicts(record.value) for record in committed(self.log, places)]
        events = [event for event in found if event is not None]
        acked = sum(run.end - run.start for event in events for run in event.acked)
        return acked, sum(len(positions(each.positions)) for event in events for each in event.lost)


@pytest.mark.timeout(300)
def test_a_query_of_a_former_version_goes_on_with_its_checkpoint_and_back(tmp_path: Path) -> None:
    """Killed in a batch: today's code runs the same batch under its number, and nothing is replayed."""
    with tarfile.open(FOLDER / f"{COMMIT}.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    former = tmp_path / "code"
    with EmbeddedBroker(tmp_path / "kafka", settings=KEPT) as broker:
        installation = Installation(tmp_path, broker)
        assert installation.verdicts() == (SETTLED, 0)
        with serving(installation.config, "acker", "replay"):
            opened = {f"r{number}" for number in range(SETTLED, SETTLED + OPEN)}
            after = installation.produce(6)
            assert installation.run(ROOT) == {1: opened, 2: after}
            back = installation.produce(4)
            assert installation.run(former) == {3: back}
            eventually(lambda: sum(installation.verdicts()) == SETTLED + OPEN + 10, DEADLINE_S)
        assert installation.verdicts() == (SETTLED + OPEN + 10, 0)
        installation.log.close()
