"""A log that was cut, and a topic that was created again, on a real broker."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, but the package has no __all__
    AdminClient,
    NewTopic,
)

import spout
from acker.config.topics import Topics, parse
from acker.errors import Disagreement
from acker.identity import generation_of, offset_of
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Bound, Outgoing, TopicPartition
from acker.provisioning.provision import create_topics
from spout.group.sources import PlannerSpec
from spout.inspect.operate import GroupSession, moves_of_rewind, run_to_end
from spout.local.embedded import EmbeddedBroker
from spout.planning.journal import BEGINNING, Journal, batch_ranges, journal_of
from spout.planning_process.planner import Planner
from spout.runtime.child import Child
from tests.support.cut_log import cut_log
from tests.support.waiting import committed, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

READ, CUT, GROWN = 15, 10, 20

YAML = """
kafka: {bootstrap.servers: "%s"}
acker: {partitions: 1, topic_prefix: "%s"}
inputs:
  lines: {id: 1, topic: "%slines", group: "%sg", partitions: 1, retry: {attempts: 5, initial: 100ms}}
"""


@pytest.fixture(scope="module")
def own_broker() -> Iterator[EmbeddedBroker]:
    """A broker that may be stopped."""
    with EmbeddedBroker() as broker:
        yield broker


class Installation:
    """One input on a broker."""

    def __init__(self, broker: EmbeddedBroker, prefix: str, folder: Path) -> None:
        """Create its topics."""
        self.broker = broker
        self.config = folder / "topics.yaml"
        self.config.write_text(YAML % (broker.bootstrap, prefix, prefix, prefix))
        self.topics: Topics = parse(self.config.read_text(), file="topics.yaml", environ={})
        create_topics(self.topics)
        self.log = KafkaLog(self.topics.kafka)
        self.place = TopicPartition(self.topics.input("lines").topic, 0)
        self.group = self.topics.input("lines").group

    def write(self, count: int, name: str) -> None:
        """Write records, each in a batch of its own."""
        producer = self.log.producer()
        for number in range(count):
            producer.send(Outgoing(*self.place, f"{name} {number}".encode()))
            producer.flush(30_000)
        producer.close()

    def cut_and_grow(self) -> None:
        """Lose the last records, and write others."""
        cut_log(self.broker, self.place, CUT)
        eventually(lambda: not self.log.bounds(Bound.END, [self.place]).troubles)
        self.write(GROWN, "new")

    def create_topic_again(self) -> None:
        """Delete the topic, and create it."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        admin.delete_topics([self.place.topic], operation_timeout=30)[self.place.topic].result(30)

        def is_made() -> bool:
            try:
                admin.create_topics([NewTopic(self.place.topic, 1, 1)])[self.place.topic].result(30)
            except KafkaException:
                return False
            return True

        eventually(is_made)

    def planner(self, journal: Journal, *, fails: bool) -> Planner:
        """Begin to read it untracked."""
        spec = PlannerSpec(
            tuple(self.topics.inputs.values()),
            self.topics.ack_topics,
            1,
            tracked=False,
            fail_on_data_loss=fails,
        )
        planner = Planner(self.log, spec, new_id=uuid.uuid4().hex)
        planner.open(journal, now_ms())
        return planner

    def reset(self) -> None:
        """Do as `windhover offsets reset --to earliest`."""
        plan = moves_of_rewind(self.log, self.topics.input("lines"), "earliest")
        log = KafkaLog(self.topics.kafka)
        operation = GroupSession(log, self.topics, self.group, new_id="r", rewind=plan)
        run_to_end(operation, now_ms)


def now_ms() -> int:
    """Wall time."""
    return time.time_ns() // 1_000_000


def rows_of(installation: Installation, count: int) -> dict[str, dict[str, bytes]]:
    """Read records, confirm them, and return the rows that upserts by record id and by origin leave."""
    rows: dict[str, dict[str, bytes]] = {"record_id": {}, "origin": {}}
    with spout.KafkaSpout(installation.topics, "lines") as lines, lines.client("lines") as client:
        seen = 0
        while seen < count:
            for item in client.open(count - seen, wait_ms=20_000):
                rows["record_id"][item.message_id.record_id] = item["value"]
                rows["origin"][item.message_id.origin] = item["value"]
                assert client.confirm(item)
                seen += 1
        commit = {installation.place: count}
        eventually(lambda: installation.log.committed(installation.group, commit) == commit)
    return rows


@pytest.fixture
def installation(own_broker: EmbeddedBroker, prefix: str, tmp_path: Path) -> Iterator[Installation]:
    """An input of its own."""
    made = Installation(own_broker, prefix, tmp_path)
    yield made
    made.log.close()


def test_planning_finds_that_a_log_was_cut_and_grew_again(installation: Installation) -> None:
    """O606, O607, O610: while it runs, at a start from the checkpoint, and with skip it goes on."""
    installation.write(READ, "old")
    planner = installation.planner(BEGINNING, fails=True)
    end = planner.plan(BEGINNING, None, now_ms())
    assert [(offset_of(run.start), offset_of(run.end)) for run in batch_ranges(BEGINNING, end)] == [(0, READ)]

    installation.cut_and_grow()
    with pytest.raises(Disagreement, match=rf"other records from offset {CUT} on, .* read it to {READ}"):
        planner.plan(end, None, now_ms())
    planner.close()

    end = journal_of(end.to_json())
    with pytest.raises(Disagreement, match="the log was cut"):
        installation.planner(end, fails=True).plan(end, None, now_ms())

    skipping = installation.planner(end, fails=False)
    assert skipping.plan(end, None, now_ms()) == end
    skipping.step((), now_ms())
    (run,) = batch_ranges(end, skipping.plan(end, None, now_ms()))
    assert (generation_of(run.start), offset_of(run.start), offset_of(run.end)) == (1, CUT, CUT + GROWN)


def test_a_spout_finds_by_its_commits_that_a_log_was_cut(installation: Installation) -> None:
    """O607: each of its starts is a new session, without a checkpoint."""
    installation.write(READ, "old")
    with Child("acker", installation.config) as acker:
        acker.wait_ready()
        rows_of(installation, READ)
        installation.cut_and_grow()
        acker.wait_ready()
        with pytest.raises(Disagreement, match=rf"from offset {CUT} on"):
            rows_of(installation, GROWN)


def test_no_copy_is_made_of_a_record_that_took_the_place_before_the_verdict_was_read(
    installation: Installation,
) -> None:
    """O622: a client failed it, the log was cut, and only then a replay worker runs."""
    own = installation.topics.input("lines")
    installation.write(READ, "old")
    with Child("acker", installation.config) as acker:
        acker.wait_ready()
        with spout.KafkaSpout(installation.topics, "lines") as lines, lines.client("lines") as client:
            seen = 0
            while seen < READ:
                for item in client.open(READ - seen, wait_ms=20_000):
                    seen += 1
                    is_kept = int(item["value"].split()[1]) < CUT - 1
                    assert client.confirm(item) if is_kept else client.fail(item, "boom")
            eventually(lambda: lines.status().group.pending == 0)
        installation.cut_and_grow()
        with Child("replay", installation.config) as replay:
            replay.wait_ready()
            letters, copies = (TopicPartition(name, 0) for name in (own.dead_letter.topic, own.replay_topic))
            eventually(lambda: len(committed(installation.log, [letters, copies])) == READ - CUT + 1)
        records = committed(installation.log, [letters])
        assert [dict(letter.headers)["windhover.dead"] for letter in records] == [b"RECREATED"] * len(records)
        assert {letter.value for letter in records} == {None}
        # the record before the cut was not lost
        (copy,) = committed(installation.log, [copies])
        assert copy.value == f"old {CUT - 1}".encode()


def test_six_rows_stay_six_when_the_topic_is_created_again(installation: Installation) -> None:
    """O1205: by record id; by origin three of them are replaced, as the pages say."""
    with Child("acker", installation.config) as acker:
        acker.wait_ready()
        installation.write(3, "old")
        first = rows_of(installation, 3)
        installation.create_topic_again()
        installation.write(3, "new")
        installation.reset()
        second = rows_of(installation, 3)
    assert len({**first["record_id"], **second["record_id"]}) == 6
    assert len({**first["origin"], **second["origin"]}) == 3
