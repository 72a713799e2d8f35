"""The two kinds of cluster of the contract suite, with what a test does to a cluster besides the port."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from acker.errors import LogError, TopicError
from acker.kafka.cluster import KafkaLog
from acker.kafka.port import (
    Log,
    Membership,
    OffsetReader,
    Outgoing,
    Picker,
    Producer,
    Reader,
    Record,
    TopicPartition,
    Transactions,
)
from spout.local.embedded_cluster import EmbeddedCluster
from tests.support.damage import Damage, batches, spoil
from tests.support.memory.cluster import MemoryCluster, MemoryMembership
from tests.support.odd_records import OddRecord, append_odd
from tests.support.raw_records import Codec, RawRecord, encode_batch, produce
from tests.support.waiting import eventually, settled

TIMEOUT_MS = 20_000
DEADLINE_S = 30.0
T = TypeVar("T")


class Cluster(ABC):
    """A cluster under test. Names of topics, groups and transactions are made unique by `name`."""

    def __init__(self, prefix: str) -> None:
        """Begin with nothing opened."""
        self._prefix = prefix
        self._opened: list[Reader | Picker | OffsetReader | Producer | Transactions | Membership] = []
        self.log = self.new_log()

    @abstractmethod
    def new_log(self) -> Log:
        """Make another client's view."""

    def new_patient_log(self) -> Log:
        """Make a view of a client that is taken for dead only when its test has long ended."""
        return self.new_log()

    @abstractmethod
    def create(
        self,
        topic: str,
        partitions: int = 1,
        *,
        compacted: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; `settings` are further ones of it."""

    @abstractmethod
    def delete(self, topic: str) -> None:
        """Delete a topic and wait until it is gone."""

    @abstractmethod
    def write_raw(self, place: TopicPartition, odd: OddRecord) -> int:
        """Let a program of others write a record, which our clients might not; return its offset."""

    @abstractmethod
    def write_odd_batch(self, place: TopicPartition, odds: Sequence[OddRecord], codec: Codec) -> int:
        """The same of records that lie in one packed batch; return the first one's offset."""

    @abstractmethod
    def write_batch(self, place: TopicPartition, values: Sequence[bytes], codec: Codec = Codec.NONE) -> range:
        """Write records that lie in one batch; return their offsets."""

    @abstractmethod
    def damage(self, place: TopicPartition, offsets: range, damage: Damage) -> None:
        """Damage the batch that `write_batch` wrote at some offsets, where the broker has it."""

    @abstractmethod
    def mend(self, place: TopicPartition, offsets: range, damage: Damage) -> None:
        """Undo what `damage` did."""

    @abstractmethod
    def vanish(self, member: Membership) -> None:
        """Let a member die without a word; the test does not poll it any more."""

    def name(self, name: str) -> str:
        """Make a name unique."""
        return self._prefix + name

    def topic(
        self,
        partitions: int = 1,
        *,
        compacted: bool = False,
        name: str = "topic",
        settings: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic and return its name."""
        topic = self.name(name)
        self.create(topic, partitions, compacted=compacted, settings=settings)
        return topic

    def reader(self, positions: Mapping[TopicPartition, int], *, committed: bool = True) -> Reader:
        """Make a reader with an assignment."""
        reader = self.log.reader(committed=committed)
        self._opened.append(reader)
        reader.assign(positions)
        return reader

    def picker(self, positions: Mapping[TopicPartition, int]) -> Picker:
        """Make a picker with an assignment."""
        picker = self.log.picker()
        self._opened.append(picker)
        picker.assign(positions)
        return picker

    def offset_reader(self, positions: Mapping[TopicPartition, int]) -> OffsetReader:
        """Make a reader of offsets with an assignment."""
        reader = self.log.offset_reader()
        self._opened.append(reader)
        reader.assign(positions)
        return reader

    def producer(self) -> Producer:
        """Make a producer."""
        producer = self.log.producer()
        self._opened.append(producer)
        return producer

    def owner(self, name: str = "owner") -> Transactions:
        """Make and initialise a transactional producer."""
        owner = self.log.transactions(self.name(name))
        self._opened.append(owner)
        owner.init(TIMEOUT_MS)
        return owner

    def member(self, group: str, topics: Iterable[str], log: Log | None = None) -> Membership:
        """Join a group."""
        member = (log or self.log).join(self.name(group), list(topics))
        self._opened.append(member)
        return member

    def write(self, *records: Outgoing) -> None:
        """Write records outside transactions, durably."""
        producer = self.producer()
        for record in records:
            producer.send(record)
        producer.flush(TIMEOUT_MS)

    def commit(self, owner: Transactions, *records: Outgoing) -> None:
        """Write records in one transaction, and wait until its markers are written."""
        owner.begin()
        for record in records:
            owner.send(record)
        owner.commit(TIMEOUT_MS)
        self.settled({TopicPartition(record.topic, record.partition) for record in records})

    def settled(self, partitions: Iterable[TopicPartition]) -> None:
        """Wait until no transaction is open."""
        settled(self.log, partitions)

    def close(self) -> None:
        """Close everything that was opened."""
        for each in self._opened:
            with suppress(LogError):
                each.close()
        self.log.close()


class InMemoryCluster(Cluster):
    """The in-memory cluster."""

    def __init__(self, prefix: str) -> None:
        """Begin an empty cluster, whose clock stands at the present time."""
        self.memory = MemoryCluster(now_ms=int(time.time() * 1000))
        super().__init__(prefix)

    def new_log(self) -> Log:
        """Make another client's view."""
        return self.memory.log()

    def create(
        self,
        topic: str,
        partitions: int = 1,
        *,
        compacted: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic."""
        self.memory.create_topic(topic, partitions, compacted, settings)

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self.memory.delete_topic(topic)

    def write_raw(self, place: TopicPartition, odd: OddRecord) -> int:
        """Append a record as a reader must see it."""
        return append_odd(self.memory, place, odd)

    def write_odd_batch(self, place: TopicPartition, odds: Sequence[OddRecord], codec: Codec) -> int:
        """Append records as a reader must see them; a log in memory has no codecs."""
        return min(append_odd(self.memory, place, odd) for odd in odds)

    def write_batch(self, place: TopicPartition, values: Sequence[bytes], codec: Codec = Codec.NONE) -> range:
        """Append records one after the other."""
        start = self.log.ends([place])[place]
        self.write(*(Outgoing(*place, value) for value in values))
        return range(start, start + len(values))

    def damage(self, place: TopicPartition, offsets: range, damage: Damage) -> None:
        """Let nobody read these offsets."""
        self.memory.partition(place).damage(offsets.start, offsets.stop)

    def mend(self, place: TopicPartition, offsets: range, damage: Damage) -> None:
        """Let all offsets be read again."""
        self.memory.partition(place).mend()

    def vanish(self, member: Membership) -> None:
        """Let the member's session time out."""
        if not isinstance(member, MemoryMembership):
            raise TypeError(f"{member} is not a member of this cluster")
        member.vanish()


class KafkaCluster(Cluster):
    """A real broker."""

    def __init__(self, prefix: str, bootstrap: str, data: Path | None = None) -> None:
        """Connect to a broker; `data` is where it keeps what is written."""
        self._bootstrap = bootstrap
        self._data = data
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        super().__init__(prefix)

    def new_log(self) -> Log:
        """Make another client's view; who does not poll for six seconds is taken for dead."""
        return self._client({"max.poll.interval.ms": "6000", "session.timeout.ms": "6000"})

    def new_patient_log(self) -> Log:
        """Make a view of a client that is taken for dead after five minutes."""
        return self._client({"max.poll.interval.ms": "300000", "session.timeout.ms": "300000"})

    def _client(self, patience: Mapping[str, str]) -> KafkaLog:
        settings = {"bootstrap.servers": self._bootstrap, **patience}
        return KafkaLog(settings, operation_timeout_ms=TIMEOUT_MS)

    def create(
        self,
        topic: str,
        partitions: int = 1,
        *,
        compacted: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic."""
        policy = "compact" if compacted else "delete"
        # tests write records of 1970
        config = {"cleanup.policy": policy, "retention.ms": "-1", **(settings or {})}
        wanted = NewTopic(topic, partitions, 1, config=config)

        def is_made() -> bool:
            """A broker with ZooKeeper still has a topic for a moment when it names it no more."""
            try:
                _all_done(self._admin.create_topics([wanted]))
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                return False
            return True

        eventually(is_made)
        places = [TopicPartition(topic, partition) for partition in range(partitions)]

        def is_there() -> bool:
            """A broker tells of a topic before it has made its logs."""
            with suppress(TopicError):
                return bool(self.log.ends(places))
            return False

        eventually(is_there)

    def delete(self, topic: str) -> None:
        """Delete a topic and wait until it is gone."""
        _all_done(self._admin.delete_topics([topic]))
        eventually(lambda: topic not in self.log.topics([topic]))

    def write_raw(self, place: TopicPartition, odd: OddRecord) -> int:
        """Send a batch of one record over a socket."""
        return produce(self._bootstrap, place, encode_batch([odd.record]))

    def write_odd_batch(self, place: TopicPartition, odds: Sequence[OddRecord], codec: Codec) -> int:
        """Send one packed batch over a socket."""
        return produce(self._bootstrap, place, encode_batch([odd.record for odd in odds], codec))

    def write_batch(self, place: TopicPartition, values: Sequence[bytes], codec: Codec = Codec.NONE) -> range:
        """Send a batch over a socket."""
        batch = encode_batch([RawRecord(value) for value in values], codec)
        start = produce(self._bootstrap, place, batch)
        return range(start, start + len(values))

    def damage(self, place: TopicPartition, offsets: range, damage: Damage) -> None:
        """Change the bytes in the broker's file; it runs on, and sends what is there."""
        if self._data is None:
            raise ValueError("the folder of the broker's data is needed to damage it")
        [batch] = [each for each in batches(self._data, place) if each.start == offsets.start]
        spoil(batch, damage)

    def mend(self, place: TopicPartition, offsets: range, damage: Damage) -> None:
        """Change the same bytes in the same way once more; that undoes the kinds that change single bits."""
        self.damage(place, offsets, damage)

    def vanish(self, member: Membership) -> None:
        """Do nothing: a member that is not polled is dead to the group after six seconds."""


LOST: Final = 1
"""The partition of a spread topic that can lose its leader."""


class Spread(Protocol):
    """A cluster with topics of three partitions, of which one may be without a leader."""

    @property
    def cluster(self) -> Cluster:
        """The cluster, all of whose topics are made by `spread_topic`."""

    def spread_topic(self, name: str = "topic") -> str:
        """Create a topic of three partitions, each of them on another broker alone."""

    def lose_leader(self) -> None:
        """Let partition `LOST` of each topic lose its leader."""

    def elect_leader(self) -> None:
        """Let it have its leader again."""


class MemorySpread:
    """The in-memory cluster as `Spread`."""

    def __init__(self, prefix: str) -> None:
        """Begin an empty cluster."""
        self.cluster = InMemoryCluster(prefix)
        self._topics: list[str] = []

    def spread_topic(self, name: str = "topic") -> str:
        """Create a topic."""
        self._topics.append(self.cluster.topic(3, name=name))
        return self._topics[-1]

    def lose_leader(self) -> None:
        """Take it away."""
        for topic in self._topics:
            self.cluster.memory.lose_leader(topic, LOST)

    def elect_leader(self) -> None:
        """Give it back."""
        for topic in self._topics:
            self.cluster.memory.elect_leader(topic, LOST)


class KafkaSpread:
    """Three real brokers as `Spread`."""

    def __init__(self, prefix: str, brokers: EmbeddedCluster) -> None:
        """Connect to brokers, all of which answer."""
        self.cluster = KafkaCluster(prefix, brokers.bootstrap)
        self._brokers = brokers
        self._admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 0})

    def spread_topic(self, name: str = "topic") -> str:
        """Create a topic, with partition n on broker n + 1."""
        topic = self.cluster.name(name)
        settings = {"min.insync.replicas": "1", "retention.ms": "-1"}
        wanted = NewTopic(topic, 3, replica_assignment=[[1], [2], [3]], config=settings)
        _all_done(self._admin.create_topics([wanted]))
        eventually(lambda: self.cluster.log.ends([TopicPartition(topic, number) for number in range(3)]))
        return topic

    def lose_leader(self) -> None:
        """Kill the broker."""
        self._brokers.brokers[LOST].kill()

    def elect_leader(self) -> None:
        """Start it again."""
        if self._brokers.brokers[LOST].pid is None:
            self._brokers.brokers[LOST].restart()


def _all_done(futures: Mapping[str, Any]) -> None:
    for future in futures.values():
        future.result(DEADLINE_S)


def read_until(reader: Reader, positions: Mapping[TopicPartition, int]) -> list[Record]:
    """Read until a reader's positions have reached the given ones."""
    found: list[Record] = []

    def arrived() -> bool:
        if all(reader.position(p) >= offset for p, offset in positions.items()):
            return True
        found.extend(reader.poll(100))
        return False

    eventually(arrived)
    return found


def pick_all(
    picker: Picker, wanted: Mapping[TopicPartition, Sequence[int]], positions: Mapping[TopicPartition, int]
) -> list[Record]:
    """Pick until a picker's positions have reached the given ones; return what was wanted, sorted."""
    found: list[Record] = []

    def arrived() -> bool:
        if all(picker.position(p) >= offset for p, offset in positions.items()):
            return True
        found.extend(picker.pick(100, wanted).records)
        return False

    eventually(arrived)
    return sorted(found)


def offsets_until(
    reader: OffsetReader, positions: Mapping[TopicPartition, int]
) -> dict[TopicPartition, list[int]]:
    """Read until a reader's positions have reached the given ones; return the offsets that came."""
    found: dict[TopicPartition, list[int]] = {place: [] for place in positions}

    def arrived() -> bool:
        if all(reader.position(place) >= offset for place, offset in positions.items()):
            return True
        for place, offsets in reader.offsets(100).items():
            found[place] += offsets
        return False

    eventually(arrived)
    return found


def read_count(reader: Reader, count: int) -> list[Record]:
    """Read until at least `count` records have come."""
    found: list[Record] = []

    def arrived() -> bool:
        found.extend(reader.poll(100))
        return len(found) >= count

    eventually(arrived)
    return found


def first_error(reader: Reader, kind: type[Exception]) -> Exception:
    """Poll until an error of a kind comes, and return it."""
    caught: list[Exception] = []

    def failed() -> bool:
        try:
            reader.poll(100)
        except kind as error:
            caught.append(error)
        return bool(caught)

    eventually(failed)
    return caught[0]


def values(records: Iterable[Record]) -> list[bytes | None]:
    """Return the values of records."""
    return [record.value for record in records]
