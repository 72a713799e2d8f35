"""What somebody writes in another's name, on a real broker: from the harm to the healing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import spout
from acker.config import topics as topics_yaml
from acker.config.topics import Topics
from acker.errors import Disagreement
from acker.identity import source_of
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing, TopicPartition
from acker.ledger.cohort import Session
from acker.ledger.sessions import Clock
from acker.provisioning.provision import create_topics
from acker.service.partition import PartitionAcker
from acker.service.restore import Restore
from acker.service.service import AckerService
from acker.service.state import state_codec
from acker.wire.codec import wire_codec
from acker.wire.events import Event, Init, SourceRun, Take, TakeSource, Tick
from spout.cli import main as cli
from spout.runtime.child import Child
from tests.support.brokers import Broker
from tests.support.forged import FORGERIES, STAMPED, UNHARMED, Plot
from tests.support.waiting import eventually

YAML = """
kafka: {bootstrap.servers: "%(bootstrap)s", session.timeout.ms: 6000}
acker: {partitions: %(partitions)s, topic_prefix: "%(prefix)s", group: "%(prefix)sackers"}
inputs:
  lines: {id: 1, group: "%(prefix)sg", topic: "%(prefix)slines", partitions: 1, timeout: 1s}
"""
DEADLINE_S = 60.0
WAIT_MS = 30_000
FAR = 1 << 53


def installed(broker: Broker, prefix: str, folder: Path, partitions: int = 1) -> tuple[Topics, Path]:
    """Make an installation; return its topics.yaml, read and as a file."""
    config = folder / "topics.yaml"
    config.write_text(YAML % {"bootstrap": broker.bootstrap, "prefix": prefix, "partitions": partitions})
    topics = topics_yaml.load_topics(config, {})
    create_topics(topics)
    return topics, config


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def works_off(service: AckerService, log: KafkaLog, topics: Topics) -> Callable[[], None]:
    """Return what lets an acker of this process read all that there is, and let it count."""
    names = topics.ack_topics

    def work() -> None:
        places = [TopicPartition(name, 0) for name in (names.init, names.ack, names.fail)]
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            service.step(wall_ms())
            acker = service._owned_ackers.get(0)
            if acker is None or acker.unwritten_since_ms is not None or acker.core.sessions.queue:
                continue
            read = (acker.core.init_next, acker.core.ack_next, acker.core.fail_next)
            if read == tuple(log.ends(places)[place] for place in places):
                return
        raise TimeoutError(f"the acker did not come to the ends: {service.status()}")

    return work


@pytest.mark.slow
def test_forged_records_do_what_the_table_says_and_new_sessions_have_all_again(
    broker: Broker, tmp_path: Path
) -> None:
    """O1801, O1806: all at once, and those that claim a time of their own, which the broker overrules."""
    topics, _ = installed(broker, "forged-", tmp_path)
    forgeries = (*FORGERIES, *STAMPED)
    with closing(KafkaLog(topics.kafka)) as log, closing(KafkaLog(topics.kafka)) as own:
        with closing(AckerService(own, topics.ack_topics, 1, group=topics.acker.group)) as service:
            plot = Plot(log, topics.ack_topics, works_off(service, log, topics), wall_ms, forgeries)
            plot.forge()
            plot.go_on()
            reasons = plot.reasons()
            for forgery, victim, place in zip(forgeries, plot.victims, plot.places, strict=True):
                reason = reasons.get(place, "")
                outcomes = plot.outcomes(victim)
                assert (forgery.why in reason, bool(reason)) == (True, bool(forgery.why)), forgery.name
                assert (outcomes == UNHARMED) == forgery.goes_on, (forgery.name, outcomes)
        with closing(AckerService(own, topics.ack_topics, 1, group=topics.acker.group)) as service:
            plot.work = works_off(service, log, topics)
            for forgery, successor in zip(forgeries, plot.succeed(), strict=True):
                assert plot.outcomes(successor) == {0: "ACKED", 1: "TIMED_OUT"}, forgery.name


class Installation:
    """An installation whose acker and replay worker are processes, and whose input has records."""

    def __init__(self, broker: Broker, prefix: str, folder: Path) -> None:
        self.topics, self.config = installed(broker, prefix, folder, partitions=2)
        self.log = KafkaLog(self.topics.kafka)
        self.group = f"{prefix}g"
        self.produced = 0

    def produce(self, count: int) -> None:
        producer = self.log.producer()
        for number in range(self.produced, self.produced + count):
            producer.send(Outgoing(self.topics.input("lines").topic, 0, b"%d" % number))
        producer.flush(WAIT_MS)
        self.produced += count

    def write(self, *events: Event) -> None:
        """Write to both partitions of `_ack_init`, whoever's name it is in."""
        producer = self.log.producer()
        for event in events:
            for partition in (0, 1):
                value = wire_codec().encode(event)
                producer.send(Outgoing(self.topics.ack_topics.init, partition, value))
        producer.flush(WAIT_MS)

    def reads_one(self) -> None:
        """Let a spout wait for a record."""
        with spout.KafkaSpout(self.topics, "lines") as spout_, spout_.client("a") as client:
            client.open(1, wait_ms=WAIT_MS)

    def works(self) -> None:
        """Let a spout read ten records, and confirm nine: the other one times out and comes again.

        Nothing else may be unread: the one that comes again would not be the next one.
        """
        self.produce(10)
        with spout.KafkaSpout(self.topics, "lines") as spout_, spout_.client("a") as client:
            items: list[spout.Item] = []
            while len(items) < 10:
                items += client.open(10 - len(items), wait_ms=WAIT_MS)
            assert client.confirm(items[1:], wait_ms=WAIT_MS) == 9
            [again] = client.open(1, wait_ms=WAIT_MS)
            assert again["value"] == items[0]["value"]
            assert client.confirm(again, wait_ms=WAIT_MS) == 1


@pytest.fixture
def installation(broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Installation]:
    made = Installation(broker, f"{request.node.name[:30].strip('_')}-", tmp_path)
    with Child("replay", made.config) as replay:
        replay.wait_ready()
        yield made
    made.log.close()


@pytest.mark.slow
def test_an_id_that_a_stranger_claimed_is_freed_by_the_command(
    installation: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    """O1804: the running acker takes its partitions up again by itself."""
    with Child("acker", installation.config) as acker:
        acker.wait_ready()
        named = TakeSource(source_of(1, 0), "elsewhere", "id", 0, 0)
        run = SourceRun(source_of(1, 0), 0, 3)
        installation.write(
            Take("stranger", "x", 1, 0, 2, (named,)),
            Init("stranger", "x", 1, 0, 0, 0, 2, "elsewhere", "id", (run,)),
        )
        with pytest.raises(Disagreement, match=r"input 1 is of group stranger.*`windhover acker free`"):
            installation.reads_one()
        command = ["acker", "free", "lines", "--config", str(installation.config)]
        assert cli.run(command) == 0
        assert "input id 1 is of group stranger, topic elsewhere" in capsys.readouterr().out
        assert cli.run([*command, "--execute"]) == 0
        assert "acker partitions are changed" in capsys.readouterr().out
        installation.works()
        assert cli.run([*command, "--execute"]) == 0
        assert "no other group has the id" in capsys.readouterr().out


def test_a_forged_tick_and_a_forged_take_are_named_and_change_nothing(installation: Installation) -> None:
    """O1803"""
    with Child("acker", installation.config) as acker:
        acker.wait_ready()
        installation.works()
        group = installation.group
        installation.write(
            Tick(group, "x", 1, FAR), Take(group, "x", FAR, 0, 2, ()), Take(group, "x", 1, FAR, 2, ())
        )
        eventually(lambda: acker.log.read_text().count("acker.record_quarantined") >= 3)
        assert f"{installation.topics.ack_topics.init}/0@" in acker.log.read_text()
        installation.works()


@pytest.mark.sample(2)
@pytest.mark.parametrize("epoch", [FAR, 1])
def test_release_brings_a_group_back_that_was_harmed_in_former_days(
    installation: Installation, epoch: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """O1802: State has an owner and a clock as former ackers believed them."""
    with Child("acker", installation.config) as acker:
        acker.wait_ready()
        installation.works()
    harm(installation, Session(installation.group, epoch, "~forged"))
    with Child("acker", installation.config) as acker:
        acker.wait_ready()
        assert cli.run(["release", installation.group, "--config", str(installation.config)]) == 0
        printed = capsys.readouterr()
        assert f"group {installation.group} is released" in printed.out
        assert ("epoch_left_behind" in printed.err) == (epoch == FAR)
        assert "clock_left_behind" in printed.err
        installation.works()


def harm(installation: Installation, owner: Session) -> None:
    """Write State in which a group has an owner, with a clock near the end of the world."""
    topics = installation.topics
    names, settings = topics.ack_topics, topics.acker
    stored, log = state_codec(), installation.log
    for number in range(settings.partitions):
        transactions = log.transactions(f"{settings.group}-{number}")
        transactions.init(WAIT_MS)
        restore = Restore(log, names, settings.partitions, settings.limits, wire_codec(), stored)
        core = restore.restore(number)
        group = core.sessions.groups[owner.group]
        group.owner = owner
        group.clocks[owner] = Clock(FAR, FAR)
        with closing(PartitionAcker(core, transactions, names, settings.limits, stored)) as acker:
            acker.write()
