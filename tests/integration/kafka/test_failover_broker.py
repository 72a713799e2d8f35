"""The steps of docs/operate/failover.md on two brokers: from one cluster to another that has its records."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

import spout
from acker.config.topics import Topics, parse
from acker.errors import Unreachable
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing, Record, TopicPartition
from acker.provisioning.provision import create_topics
from spout.group.starting import COMMITTED_BY
from spout.inspect.operate import GroupSession, moves_of_rewind, run_to_end
from spout.local.embedded import EmbeddedBroker
from spout.runtime.child import Child
from tests.support.waiting import committed, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RECORDS = 12
WAIT = {"bad 3", "bad 7"}
"""What fails in the former cluster, and waits there for its replay."""
SHIFT = 7
"""In the other cluster each record has an offset that is higher by this."""

YAML = """
kafka: {bootstrap.servers: "%s"}
acker: {partitions: 2, topic_prefix: "%s"}
inputs:
  lines: {id: 1, topic: "%slines", group: "%sg", partitions: 1, retry: {initial: 10m, max: 10m}}
"""


class Site:
    """One cluster, with what an installation has there."""

    def __init__(self, broker: EmbeddedBroker, prefix: str, folder: Path) -> None:
        """Create the topics."""
        self.config = folder / f"{broker.bootstrap.rpartition(':')[2]}.yaml"
        self.config.write_text(YAML % (broker.bootstrap, prefix, prefix, prefix))
        self.topics: Topics = parse(self.config.read_text(), file="topics.yaml", environ={})
        create_topics(self.topics)
        self.log = KafkaLog(self.topics.kafka)
        self.lines = TopicPartition(self.topics.input("lines").topic, 0)
        self.group = self.topics.input("lines").group

    def write(self, records: list[Outgoing]) -> None:
        """Write records."""
        with closing(self.log.producer()) as producer:
            for record in records:
                producer.send(record)
            producer.flush(30_000)

    def read(self, topic: str, partitions: int) -> list[Record]:
        """Return the committed records of a topic."""
        return committed(self.log, [TopicPartition(topic, number) for number in range(partitions)])

    def reset(self, to: str) -> None:
        """Do as `windhover offsets reset lines --to TO --execute`."""
        at_ms = int(datetime.fromisoformat(to).timestamp() * 1000)
        plan = moves_of_rewind(self.log, self.topics.input("lines"), "earliest", at_ms=at_ms)
        operation = GroupSession(
            KafkaLog(self.topics.kafka), self.topics, self.group, new_id="r", rewind=plan
        )
        run_to_end(operation, lambda: time.time_ns() // 1_000_000)


def mirror(former: Site, here: Site, topic: str, partitions: int) -> None:
    """Copy a topic as mirroring tools do: keys, values, headers and times, and no offsets."""
    here.write(
        [
            Outgoing(topic, record.partition, record.value, record.key, record.headers, record.timestamp_ms)
            for record in former.read(topic, partitions)
        ]
    )


def run_former(site: Site) -> None:
    """Read all records in the former cluster; some fail, and wait in `_ack_due` when it is lost."""
    site.write(
        [
            Outgoing(*site.lines, (f"bad {n}" if f"bad {n}" in WAIT else f"good {n}").encode())
            for n in range(RECORDS)
        ]
    )
    with Child("acker", site.config) as acker, Child("replay", site.config) as replay:
        acker.wait_ready()
        replay.wait_ready()
        with spout.KafkaSpout(site.topics, "lines") as lines, lines.client("lines") as client:
            seen = 0
            while seen < RECORDS:
                for item in client.open(RECORDS - seen, wait_ms=20_000):
                    is_bad = item["value"].decode() in WAIT
                    assert client.fail(item, "boom") if is_bad else client.confirm(item)
                    seen += 1
            commit = {site.lines: RECORDS}
            eventually(lambda: site.log.committed(site.group, commit) == commit)
        due = site.topics.ack_topics.due
        eventually(lambda: sum((r.key or b"").startswith(b"\0") for r in site.read(due, 2)) >= len(WAIT))


@pytest.fixture
def sites(prefix: str, tmp_path: Path) -> Iterator[tuple[Site, Site]]:
    """The former cluster and the other one, to which source records and the group's commit were carried."""
    with EmbeddedBroker() as first, EmbeddedBroker() as second:
        former, here = Site(first, prefix, tmp_path), Site(second, prefix, tmp_path)
        run_former(former)
        here.write([Outgoing(*here.lines, b"older") for _ in range(SHIFT)])
        here.log.delete_before({here.lines: SHIFT})
        mirror(former, here, here.lines.topic, 1)
        here.log.commit(here.group, {here.lines: RECORDS + SHIFT}, COMMITTED_BY)
        yield former, here
        former.log.close()
        here.log.close()


def values_of(site: Site, count: int, wait_ms: int) -> list[str]:
    """Read and confirm records until there are so many, or none comes for a while."""
    values: list[str] = []
    with spout.KafkaSpout(site.topics, "lines") as lines, lines.client("lines") as client:
        while len(values) < count and (items := client.open(count - len(values), wait_ms=wait_ms)):
            for item in items:
                values.append(item["value"].decode())
                assert client.confirm(item)
    return values


def test_who_begins_where_the_line_says_loses_nothing(
    sites: tuple[Site, Site], caplog: pytest.LogCaptureFixture
) -> None:
    """D2306: at the commit what waited is left out, and the line names it; behind the reset all is there."""
    _, here = sites
    with Child("acker", here.config) as acker:
        acker.wait_ready()
        with caplog.at_level(logging.WARNING):
            assert values_of(here, 1, 3_000) == []
        lines = [text for text in caplog.messages if text.startswith("commit_without_state")]
        assert len(lines) == 1
        assert f"committed={here.lines.topic}/0@{RECORDS + SHIFT}" in lines[0]
        named = re.search(r"offsets reset lines --to (\S+) --execute", lines[0])
        assert named is not None
        here.reset(named[1])
        assert set(values_of(here, RECORDS, 20_000)) >= WAIT


def test_mirrored_ack_topics_stop_acker_and_replay_worker_by_name(sites: tuple[Site, Site]) -> None:
    """D2301: whatever their offsets are."""
    former, here = sites
    names = here.topics.ack_topics
    clusters = [site.log.cluster_id() for site in sites]
    for topic, kind in ((names.state, "acker"), (names.due, "replay")):
        mirror(former, here, topic, 2)
        with Child(kind, here.config) as child, pytest.raises(Unreachable) as ended:
            child.wait_ready()
        assert re.search(
            rf"{topic}/\d@\d+ is not of this cluster: .*{clusters[0]}.*{clusters[1]}", str(ended.value)
        )
