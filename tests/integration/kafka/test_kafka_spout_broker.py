"""The Kestrel view on a real broker: clients in threads, a process that dies, records that time out."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import spout
from acker.config import topics as topics_yaml
from acker.errors import SessionRefused, SessionSuperseded
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import Outgoing, TopicPartition
from acker.provisioning.provision import create_topics
from spout.runtime.child import Child
from tests.support.brokers import Broker
from tests.support.holes import Aborted, Each, Records, write_stretches
from tests.support.waiting import eventually

# all of them, for they share an installation
pytestmark = pytest.mark.both_brokers

WAIT_MS = 20_000

YAML = """
kafka: {bootstrap.servers: "%(bootstrap)s"}
acker: {partitions: 4, topic_prefix: "%(prefix)s"}
inputs:
  shared: {id: 1, group: "%(prefix)sg1", topic: "%(prefix)sshared", partitions: 4}
  doomed: {id: 2, group: "%(prefix)sg2", topic: "%(prefix)sdoomed", partitions: 4,
          retry: {attempts: 5, initial: 100ms}}
  hasty: {id: 3, group: "%(prefix)sg3", topic: "%(prefix)shasty", partitions: 1, timeout: 1s,
          retry: {attempts: 5, initial: 100ms}}
  forked: {id: 5, group: "%(prefix)sg5", topic: "%(prefix)sforked", partitions: 1}
  contested: {id: 4, group: "%(prefix)sg4", topic: "%(prefix)scontested", partitions: 4}
  holed: {id: 6, group: "%(prefix)sg6", topic: "%(prefix)sholed", partitions: 1}
"""

HOLDER = """
import sys, time, spout
with spout.KafkaSpout(spout.load(sys.argv[1]), "doomed") as spout_, spout_.client("doomed") as client:
    items = []
    while len(items) < 8:
        items += client.open(8 - len(items), wait_ms=20_000)
    client.confirm(items[:2], wait_ms=20_000)
    print(",".join(item["value"].decode() for item in items), flush=True)
    time.sleep(60)
"""


FORKER = """
import multiprocessing, os, sys, spout
from acker.errors import UsageError

def work(client):
    client.confirm(client.open(1))

topics = spout.load(sys.argv[1])
unopened = spout.KafkaSpout(topics, "contested")
with spout.KafkaSpout(topics, "forked") as lines, lines.client("parent") as client:
    items = []
    while len(items) < 8:
        items += client.open(8 - len(items), wait_ms=20_000)
    if os.fork() == 0:
        try:
            print("confirmed in the child:", client.confirm(items))
        except UsageError as error:
            print("child:", error, flush=True)
        sys.exit(5)  # it leaves the contexts of the parent, and destroys its objects
    print("exit code of the child:", os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
    if os.fork() == 0:
        unopened.open()
    print("exit code of the second:", os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
    worker = multiprocessing.get_context("fork").Process(target=work, args=(client,))
    worker.start()
    worker.join(20)
    print("exit code of the worker:", worker.exitcode, flush=True)
    print("confirmed by the parent:", client.confirm(items, wait_ms=20_000))
unopened.close()
"""


class Installation:
    """Topics on a broker, an acker and a replay worker."""

    def __init__(self, bootstrap: str, prefix: str, config: Path) -> None:
        self.config = config
        config.write_text(YAML % {"bootstrap": bootstrap, "prefix": prefix})
        self.topics = topics_yaml.load_topics(config, {})
        create_topics(self.topics)
        self.log = KafkaLog(self.topics.kafka)

    def produce(self, name: str, count: int) -> None:
        """Write numbers to the topic of an input, to its partitions in turn."""
        found = self.topics.input(name)
        producer = self.log.producer()
        for number in range(count):
            producer.send(Outgoing(found.topic, number % (found.partitions or 1), b"%d" % number))
        producer.flush(30_000)
        producer.close()

    def committed(self, name: str) -> int:
        """Return how many records of an input lie below the group's offsets."""
        found = self.topics.input(name)
        places = [TopicPartition(found.topic, partition) for partition in range(found.partitions or 1)]
        return sum(self.log.committed(found.group, places).values())


@pytest.fixture(scope="module")
def installation(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("kafka-spout")
    made = Installation(broker.bootstrap, "kafka-spout-", folder / "topics.yaml")
    with Child("acker", made.config) as acker, Child("replay", made.config) as replay:
        acker.wait_ready()
        replay.wait_ready()
        yield made
    made.log.close()


def number_of(item: spout.Item) -> int:
    return int(item["value"])


def work(client: spout.Client, seen: list[int], goes_on: Callable[[], bool], batch: bool) -> None:
    """Open and confirm as long as there is something to do; abort one in seven the first time."""
    while goes_on():
        items = client.open(20, wait_ms=200)
        late = [item for item in items if number_of(item) % 7 == 0 and number_of(item) not in seen]
        client.abort(late)
        seen += [number_of(item) for item in late]
        if batch and not late:
            assert client.confirm(items) == len(items)
            seen += [number_of(item) for item in items]
        else:
            seen += [number_of(item) for item in items if client.confirm(item)]


def test_clients_in_many_threads_confirm_each_record_once(installation: Installation) -> None:
    """P47, S154, S155: threads with clients of their own, and two threads that share one."""
    records = 2_000
    installation.produce("shared", records)
    with spout.KafkaSpout(installation.topics, "shared") as spout_:
        seen: list[list[int]] = [[] for _ in range(4)]
        shared = spout_.client("shared")
        clients = [spout_.client("a"), spout_.client("b"), shared, shared]
        status = spout_.status
        threads = [
            threading.Thread(
                target=work,
                args=(client, seen[place], lambda: status().group.acked < records, place % 2 == 0),
            )
            for place, client in enumerate(clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        group = status().group
        assert (group.acked, group.emitted, group.pending, group.late) == (records, records, 0, 0)
        assert {number for found in seen for number in found} == set(range(records))
        assert status().waiting == {"shared": 0}
    assert installation.committed("shared") == records


def test_what_a_killed_process_had_open_comes_again_and_what_it_confirmed_does_not(
    installation: Installation,
) -> None:
    """S159, S160, P22: another process takes over; open records come as copies, oldest first."""
    installation.produce("doomed", 40)
    program = [sys.executable, "-c", HOLDER, str(installation.config)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as doomed:
        assert doomed.stdout is not None
        held = [int(number) for number in doomed.stdout.readline().split(",")]
        doomed.kill()
    assert len(held) == 8
    with spout.KafkaSpout(installation.topics, "doomed") as spout_, spout_.client("heir") as client:
        came: list[spout.Item] = []
        while {number_of(item) for item in came} < set(range(40)) - set(held[:2]):
            items = client.open(10, wait_ms=WAIT_MS)
            assert items
            came += items
            client.confirm(items, wait_ms=WAIT_MS)
        copies = [item for item in came if item.message_id.attempt > 1]
        # What the killed process had planned ahead and not handed out comes as copies too.
        assert set(held[2:]) <= {number_of(item) for item in copies}
        assert not set(held[:2]) & {number_of(item) for item in came}
        assert len(came) == 38
        eventually(lambda: installation.committed("doomed") == 40)


def test_a_record_that_is_held_too_long_is_taken_away_and_comes_again(installation: Installation) -> None:
    """S59, P24, S164: the late confirmation counts nothing; the copy is the second attempt."""
    installation.produce("hasty", 1)
    with spout.KafkaSpout(installation.topics, "hasty") as spout_, spout_.client("slow") as client:
        began = time.monotonic()  # before it is emitted, from when its time counts
        items = client.open(1, wait_ms=WAIT_MS)
        eventually(lambda: not items[0].is_open)
        assert time.monotonic() - began >= 1
        assert client.confirm(items, wait_ms=WAIT_MS) == 0
        copy = client.open(1, wait_ms=WAIT_MS)[0]
        assert (copy["value"], copy.message_id.attempt) == (b"0", 2)
        assert copy.message_id.origin == items[0].message_id.origin
        assert client.confirm(copy, wait_ms=WAIT_MS) == 1


def test_a_spout_that_another_one_took_over_says_so_in_every_call(installation: Installation) -> None:
    """Rule 9: one session holds a group; the other one stops, by name, and nothing hangs."""
    installation.produce("contested", 4)
    first = spout.KafkaSpout(installation.topics, "contested").open()
    client = first.client("a")
    items = client.open(2, wait_ms=WAIT_MS)
    with pytest.raises(SessionRefused, match=r"held by .*KafkaSpout of .*, process \d+.*take_over=True"):
        spout.KafkaSpout(installation.topics, "contested").open()
    with spout.KafkaSpout(installation.topics, "contested", take_over=True) as second:
        with pytest.raises(SessionSuperseded, match=r"KafkaSpout of .*took group"):
            eventually(lambda: client.open(1, wait_ms=200) and False)
        with pytest.raises(SessionSuperseded):
            client.confirm(items)
        with pytest.raises(SessionSuperseded):
            first.next_tuple()
        first.close()
        found = [second.next_tuple(wait_ms=WAIT_MS) for _ in range(4)]
        assert sorted(number_of(each) for each in found if each is not None) == [0, 1, 2, 3]


def test_a_hole_is_passed_at_once_whatever_a_client_asks_for(installation: Installation) -> None:
    """O501: before 100,000 aborted records one that asked for one stood still, since each counted."""
    place = TopicPartition(installation.topics.input("holed").topic, 0)
    stretches = [Aborted(100_000), Records(2), Each(3), Aborted(20_000)]
    assert write_stretches(installation.log, place, stretches) == 5
    with spout.KafkaSpout(installation.topics, "holed") as spout_, spout_.client("a") as client:
        for number in range(5):
            [item] = client.open(1, wait_ms=WAIT_MS)
            assert (number_of(item), client.confirm(item, wait_ms=WAIT_MS)) == (number, 1)
        eventually(lambda: installation.committed("holed") == 120_010)
        eventually(lambda: spout_.status().group.absent == 120_005)  # the status is up to 250 ms old


def test_a_child_of_a_fork_says_so_and_the_parent_goes_on(installation: Installation) -> None:
    """O701: the child confirmed 8 records, none of which was; to leave the context it waited for good."""
    installation.produce("forked", 8)
    done = subprocess.run(
        [sys.executable, "-c", FORKER, str(installation.config)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    said = done.stdout.splitlines()
    assert [line for line in said if not line.startswith("child:")] == [
        "exit code of the child: 5",
        "exit code of the second: 1",
        "exit code of the worker: 1",
        "confirmed by the parent: 8",
    ], done.stdout + done.stderr
    [told] = [line for line in said if line.startswith("child:")]
    assert "client 'parent' was made in process" in told
    assert "this KafkaSpout was made in process" in done.stderr, "the second one, which was not open yet"
    assert done.returncode == 0
