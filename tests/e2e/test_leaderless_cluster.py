"""A broker dies that alone had some partitions: what needs them waits, all else goes on, and it is said."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

import spout
from acker.config.topics import Topics, load_topics
from acker.errors import TopicError
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Bound, Outgoing, TopicPartition
from acker.provisioning.provision import create_topics
from spout.cli import main as cli
from spout.local.embedded_cluster import EmbeddedCluster
from spout.runtime.child import Child
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.by_turns,
    pytest.mark.timeout(900),
]

ACKERS = 4
PARTITIONS = 5
EACH = 20
LOST_BROKER = 2
"""The number of the broker that dies; the others have all else."""

SOON_S = 40.0
"""An election, and a question that waits for it."""
LATE_S = 180.0

YAML = """
kafka: {bootstrap.servers: "%s"}
acker: {partitions: 4, topic_prefix: "%s"}
inputs:
  lines: {id: 1, topic: "%slines", group: "%sg", partitions: 5, timeout: 60s, retry: {initial: 1s}}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


class Installation:
    """Topics of which some partitions are on one broker alone, and that broker."""

    def __init__(self, cluster: EmbeddedCluster, prefix: str, folder: Path) -> None:
        self.config = folder / "topics.yaml"
        self.config.write_text(YAML % (cluster.bootstrap, prefix, prefix, prefix))
        self.topics: Topics = load_topics(self.config, {})
        self.input = self.topics.input("lines")
        self._broker = cluster.brokers[LOST_BROKER - 1]
        self._others = [broker for broker in cluster.brokers if broker is not self._broker]
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        self.log = KafkaLog(self.topics.kafka)
        self.lost: list[TopicPartition] = []

    def create(self, lost: dict[str, tuple[int, int]]) -> None:
        """Create all topics; `lost` has for some how many partitions there are, and which one is lost."""
        for topic, (count, number) in lost.items():
            replicas = [[LOST_BROKER] if n == number else [1] for n in range(count)]
            policy = (
                "compact" if topic in (self.topics.ack_topics.state, self.topics.ack_topics.due) else "delete"
            )
            settings = {"min.insync.replicas": "1", "retention.ms": "-1", "cleanup.policy": policy}
            wanted = NewTopic(topic, count, replica_assignment=replicas, config=settings)
            self._admin.create_topics([wanted])[topic].result(60)
            self.lost.append(TopicPartition(topic, number))

        def missing() -> object:
            try:  # a broker hears of a topic after another one has made it
                return self.log.bounds(Bound.END, self.lost).troubles
            except TopicError as error:
                return error

        eventually(lambda: not missing(), told=missing)
        create_topics(self.topics)

    def produce(self, partitions: Sequence[int], count: int = EACH) -> None:
        producer = self.log.producer()
        for partition in partitions:
            for number in range(count):
                producer.send(Outgoing(self.input.topic, partition, b"%d" % number))
        producer.flush(30_000)
        producer.close()

    def lose(self) -> None:
        """Kill the broker, and wait until each of the others knows that it is dead.

        They learn it one after the other, and a client asks any of them. Where one still names the former
        leader, a command finds "no answer from its leader" where the test looks for "no leader".
        """
        self._broker.kill()

        def is_known() -> bool:
            troubles = self.log.bounds(Bound.END, self.lost).troubles
            return all("no leader" in troubles.get(place, "") for place in self.lost)

        eventually(is_known)
        for broker in self._others:
            eventually(partial(self._is_leaderless_for, broker.bootstrap))

    def _is_leaderless_for(self, bootstrap: str) -> bool:
        """Return whether one broker names no leader of what is lost; a new client asks the one it has."""
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        for place in self.lost:
            metadata = admin.list_topics(place.topic, timeout=30)
            if metadata.topics[place.topic].partitions[place.partition].leader >= 0:
                return False
        return True

    def find(self) -> None:
        """Start the broker again, and wait until it leads what it has alone.

        Before, it answers NOT_LEADER_FOR_PARTITION to who reads and writes there.
        """
        if self._broker.pid is None:
            self._broker.restart()
            eventually(lambda: not self.log.bounds(Bound.END, self.lost).troubles)


@pytest.fixture
def installation(cluster: EmbeddedCluster, prefix: str, tmp_path: Path) -> Iterator[Installation]:
    made = Installation(cluster, prefix, tmp_path)
    yield made
    made.find()
    made.log.close()


class Rows:
    """What the sink of a query has got, by partition."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int]] = []

    def write(self, batch: DataFrame, _number: int) -> None:
        self.rows += [(row.partition, row.offset) for row in batch.select("partition", "offset").collect()]

    def of(self, *partitions: int) -> int:
        return len([row for row in self.rows if row[0] in partitions])


def test_a_query_hands_out_the_records_of_the_sound_partitions(
    spark: SparkSession, installation: Installation, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """O409, O410: at a start and while it runs; 0 of 80 came, and the query ended after 53 s."""
    lost, sound = 4, (0, 1, 2, 3)
    installation.create({installation.input.topic: (PARTITIONS, lost)})
    installation.produce(range(PARTITIONS))
    installation.lose()
    rows, status_path = Rows(), tmp_path / "status.json"
    frame = spout.read_stream(spark, installation.topics, "lines", status_path=str(status_path))

    def stands() -> list[str]:
        return list(json.loads(status_path.read_text())["stands"])

    with Child("acker", installation.config) as acker, Child("replay", installation.config):
        acker.wait_ready()
        begun_s = time.monotonic()
        query = (
            frame.writeStream.foreachBatch(spout.sink(rows.write))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            eventually(lambda: rows.of(*sound) == 80, LATE_S, told=lambda: (rows.rows, query.exception()))
            took_s = time.monotonic() - begun_s
            assert took_s < SOON_S
            assert stands() == [f"{installation.input.topic}/{lost}"]
            installation.produce(sound, 5)
            eventually(lambda: rows.of(*sound) == 100, SOON_S, told=query.exception)
            installation.find()
            eventually(lambda: rows.of(lost) == 20, LATE_S, told=lambda: (stands(), query.exception()))
            eventually(lambda: stands() == [], SOON_S)

            installation.lose()
            installation.produce(sound, 5)
            eventually(lambda: rows.of(*sound) == 120, SOON_S, told=query.exception)
            installation.find()
            installation.produce([lost], 5)
            eventually(lambda: rows.of(lost) == 25, LATE_S, told=query.exception)
        finally:
            query.stop()
    assert len(rows.rows) == len(set(rows.rows))


def test_a_spout_hands_out_the_records_of_the_sound_partitions(installation: Installation) -> None:
    """O415: of a source, and of its replay topic, at a start."""
    lost = 4
    topics = installation.topics
    installation.create(
        {installation.input.topic: (PARTITIONS, lost), installation.input.replay_topic: (PARTITIONS, 3)}
    )
    installation.produce(range(PARTITIONS))
    installation.lose()
    got: list[tuple[int, int]] = []
    with Child("acker", installation.config) as acker:
        acker.wait_ready()
        begun_s = time.monotonic()
        with spout.KafkaSpout(topics, "lines") as spout_, spout_.client("one") as client:

            def work() -> None:
                items = client.open(100, wait_ms=200)
                got.extend((int(item["partition"]), int(item["offset"])) for item in items)
                client.confirm(items)

            eventually(lambda: len(got) == 80, LATE_S, step=work)
            assert time.monotonic() - begun_s < SOON_S
            installation.find()
            eventually(lambda: len(got) == 100, LATE_S, step=work)
    assert len(set(got)) == 100


def test_commands_name_it_at_once(installation: Installation, capsys: pytest.CaptureFixture[str]) -> None:
    """O417: each question waited for half a minute, and named three addresses of which two answer."""
    topic, ack = installation.input.topic, installation.topics.ack_topics.ack
    installation.create({topic: (PARTITIONS, 4), ack: (ACKERS, 1)})
    installation.produce(range(PARTITIONS))
    installation.lose()
    config = ["--config", str(installation.config)]
    for command, code in ((["status"], 0), (["check"], 2), (["machinery"], 0)):
        begun_s = time.monotonic()
        assert cli.run([*command, *config]) == code
        took_s = time.monotonic() - begun_s
        said = "".join(capsys.readouterr())
        assert f"{ack}/1 has no leader: its replicas are on broker 2" in said
        if command != ["machinery"]:
            assert f"{topic}/4 has no leader: its replicas are on broker 2" in said
        assert took_s < 20, (command, took_s)
    assert cli.run(["offsets", "reset", "lines", "--to", "earliest", *config]) == 3
    assert f"{topic}/4 has no leader" in capsys.readouterr().err


LOOKS = (
    "roots",
    "failures",
    "latency",
    "inspect lines/4@0",
    "inspect lines/0@0",
    "dlq list",
    "dlq stats",
    "dlq redrives",
    "dlq show lines/4@0",
    "dlq replay lines/4@0",
    "replay resume lines",
    "acker free lines",
    "offsets reset lines --to latest --partition 0",
)
OF_THE_FILE = ("topics check", "topics repair")
NEEDS_NONE = ("roots", "dlq redrives", "acker free", "offsets reset", "topics check")
"""These read no partition that is lost: State, partition 0 of what is asked for, or settings of topics."""


def test_every_command_ends_soon_and_names_what_it_cannot_read(
    installation: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    """O421: with a partition lost of the source, of dead letters and of each ack topic that is read."""
    names, own = installation.topics.ack_topics, installation.input
    ours = (names.init, names.ack, names.verdict, names.due)
    installation.create(
        {
            own.topic: (PARTITIONS, 4),
            own.dead_letter.topic: (PARTITIONS, 4),
            **dict.fromkeys(ours, (ACKERS, 1)),
        }
    )
    installation.produce(range(PARTITIONS))
    installation.lose()
    calls = [[*look.split(), "--config", str(installation.config)] for look in LOOKS]
    calls += [[*command.split(), str(installation.config)] for command in OF_THE_FILE]
    answers: dict[str, tuple[int, float, str]] = {}
    for call in calls:
        begun_s = time.monotonic()
        code = cli.run(call)
        took_s = time.monotonic() - begun_s
        answers[" ".join(call[:-1])] = code, took_s, "".join(capsys.readouterr())
    wrong = {
        call: answer
        for call, answer in answers.items()
        if answer[1] > SOON_S
        or "defect" in answer[2]
        or ("has no leader" not in answer[2] and not call.startswith(NEEDS_NONE))
    }
    assert not wrong, "\n".join(f"{call}: {answer}" for call, answer in wrong.items())
