"""The in-memory Kafka with somebody watching, and clients whose every effect may go wrong.

`WatchedCluster` tells a `Watch` of each record, each end of a transaction and each commit of offsets, in the
order in which they happen. `Client` is the view of one process: before and after each effect its process
asks the world what happens to it (``World.effect``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Protocol, TypeVar

from acker.errors import Unreachable
from acker.kafka.port import (
    Membership,
    Outgoing,
    Producer,
    Reader,
    Record,
    TopicPartition,
    Transactions,
    UnderWay,
)
from tests.support.memory.broker import MemoryBroker
from tests.support.memory.clients import (
    Faults,
    MemoryCall,
    MemoryMembership,
    MemoryProducer,
    MemoryReader,
    MemoryTransactions,
)
from tests.support.memory.cluster import MemoryCluster, MemoryLog
from tests.support.memory.partition import MemoryPartition

T = TypeVar("T")


class Watch(Protocol):
    """Is told what happens in the cluster."""

    def appended(self, where: TopicPartition, offset: int, record: Outgoing, owner: str | None) -> None:
        """A record was appended; `owner` is the transactional id in whose transaction it stands."""

    def ended(self, where: TopicPartition, owner: str, offsets: Sequence[int], *, committed: bool) -> None:
        """A transaction ended in a partition where it had written records."""

    def kept(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str) -> None:
        """A group's offsets were committed."""


class WatchedPartition(MemoryPartition):
    """A partition that tells what is written to it."""

    __slots__ = ("_held", "_watch")

    def __init__(self, name: TopicPartition, watch: Watch) -> None:
        """Begin an empty log."""
        super().__init__(name)
        self._watch = watch
        self._held: dict[int, Record] = {}

    def begin_at(self, offset: int) -> None:
        """Let an empty log begin at an offset, as one does whose first records are deleted."""
        self.start = self._base = offset

    def append(self, record: Outgoing, now_ms: int, owner: str | None = None) -> int:
        """Append a record and tell of it."""
        offset = super().append(record, now_ms, owner)
        if owner is None:
            self._held[offset] = self._records[-1]
        self._watch.appended(self.name, offset, record, owner)
        return offset

    def end_transaction(self, owner: str, now_ms: int, *, committed: bool) -> None:
        """End an owner's transaction here and tell of it."""
        offsets = self._open.get(owner)
        written = [self._records[offset - self._base] for offset in offsets or () if offset >= self._base]
        super().end_transaction(owner, now_ms, committed=committed)
        if committed:
            self._held.update((record.offset, record) for record in written)
        if offsets is not None:
            self._watch.ended(self.name, owner, offsets, committed=committed)

    def cut(self, offset: int) -> None:
        """Lose what was written from an offset on; what comes there next is another record."""
        super().cut(offset)
        self._held = {held: record for held, record in self._held.items() if held < offset}

    def ever_held(self, offset: int) -> bool:
        """Tell whether a committed record has ever stood at an offset, whatever became of it."""
        return offset in self._held

    def original(self, offset: int) -> Record | None:
        """Return the committed record that was written at an offset, whatever became of it."""
        return self._held.get(offset)

    def visible(self, offset: int) -> Record | None:
        """Return the committed record at an offset below the stable end; None where there is none."""
        if not self.start <= offset < self.stable_end:
            return None
        found, _ = self.read(offset, 1, committed=True)
        return found[0] if found and found[0].offset == offset else None


class WatchedCluster(MemoryCluster):
    """A cluster that tells what happens in it."""

    def __init__(self, watch: Watch, now_ms: int) -> None:
        """Begin without topics."""
        super().__init__(now_ms)
        self._watch = watch

    def new_partition(self, name: TopicPartition) -> WatchedPartition:
        """Make a partition that is watched."""
        return WatchedPartition(name, self._watch)

    def at(self, topic: str, partition: int) -> WatchedPartition:
        """Return a partition."""
        found = self.partition(TopicPartition(topic, partition))
        if not isinstance(found, WatchedPartition):
            raise TypeError(f"{topic} was made by another cluster")
        return found

    def open_transactions(self) -> list[str]:
        """Return the transactional ids that have something open."""
        return [name for name, state in self._transactions.items() if state.touched]

    def _keep(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        metadata: str,
        epochs: Mapping[TopicPartition, int],
    ) -> None:
        super()._keep(group, offsets, metadata, epochs)
        self._watch.kept(group, offsets, metadata)


class Weather(Faults, Protocol):
    """What may happen to a client's calls."""

    rng: Random

    def uneven(self) -> bool:
        """Tell whether a poll returns less than there is."""

    def lags(self) -> bool:
        """Tell whether a call that is under way is not over yet."""

    def duplicates(self) -> bool:
        """Tell whether a partition's records are appended twice by this flush."""

    def partial(self) -> bool:
        """Tell whether a flush makes only a part durable."""

    def late(self, deliver: Callable[[], None]) -> None:
        """Let what a flush left over be delivered some time later, while the process lives."""


class Client(MemoryLog):
    """What one process sees of the cluster."""

    def __init__(self, cluster: WatchedCluster, weather: Weather) -> None:
        """See a cluster through some weather."""
        super().__init__(cluster, weather)
        self._weather = weather
        self._places: list[MemoryMembership] = []

    def reader(self, *, committed: bool, patient: bool = False) -> Reader:
        """Make a reader."""
        return UnevenReader(self._broker, self._weather, committed=committed)

    def begin(self, call: Callable[[], T]) -> UnderWay[T]:
        """Begin a call; it is made in this step or in a later one."""
        return MemoryCall(call, lambda: not self._weather.lags())

    def producer(self) -> Producer:
        """Make a producer."""
        return WeatheredProducer(self._broker, self._weather)

    def transactions(self, transactional_id: str) -> Transactions:
        """Make a transactional producer."""
        return WeatheredTransactions(self._broker, self._weather, transactional_id)

    def join(self, group: str, topics: Sequence[str], *, pause_ms: int | None = None) -> Membership:
        """Join a group; the place is remembered, so that the group can lose it."""
        place = MemoryMembership(self._broker, self._weather, group, tuple(topics))
        self._places.append(place)
        return place

    def vanish(self) -> None:
        """Let the group give up on this process."""
        for place in self._places:
            place.vanish()


class UnevenReader(MemoryReader):
    """A reader that does not always return all there is."""

    def __init__(self, broker: MemoryBroker, weather: Weather, *, committed: bool) -> None:
        """Begin without partitions."""
        super().__init__(broker, weather, committed=committed)
        self._weather = weather

    def poll(self, timeout_ms: int, max_records: int = 1000) -> Sequence[Record]:
        """Return records, in uneven weather only a few."""
        if self._weather.uneven():
            self._turn = self._weather.rng.randrange(max(1, len(self._positions)))
            max_records = min(max_records, self._weather.rng.randint(1, 3))
        return super().poll(timeout_ms, max_records)


class WeatheredProducer(MemoryProducer):
    """A producer whose flushes may deliver a part, or deliver twice."""

    def __init__(self, broker: MemoryBroker, weather: Weather) -> None:
        """Begin with nothing queued."""
        super().__init__(broker, weather)
        self._weather = weather

    def flush(self, timeout_ms: int) -> None:
        """Append what was sent; of one partition always the first ones first.

        Raises:
            Unreachable: only a part is durable; the rest may come later.
        """
        if not self._queue:
            return
        self._weather.before("flush")
        if self._weather.partial():
            self._split()
            raise Unreachable("not everything was acknowledged")
        self._deliver()
        self._weather.after("flush")

    def close(self) -> None:
        """Lose what was not flushed."""
        self._queue = []

    def _split(self) -> None:
        """Deliver the first records of each partition, keep the others."""
        rng = self._weather.rng
        by_place: dict[tuple[str, int], list[Outgoing]] = {}
        for record in self._queue:
            by_place.setdefault((record.topic, record.partition), []).append(record)
        kept: list[Outgoing] = []
        now: list[Outgoing] = []
        for records in by_place.values():
            count = rng.randint(0, len(records))
            now += records[:count]
            kept += records[count:]
        self._queue = now
        self._deliver()
        self._queue = kept
        self._weather.late(self._deliver)

    def _deliver(self) -> None:
        queue, self._queue = self._queue, []
        places: dict[tuple[str, int], list[Outgoing]] = {}
        for record in queue:
            self._broker.check(record).append(record, self._broker.now_ms)
            places.setdefault((record.topic, record.partition), []).append(record)
        for records in places.values():
            if self._weather.duplicates():
                for record in records:
                    self._broker.check(record).append(record, self._broker.now_ms)


class WeatheredTransactions(MemoryTransactions):
    """A transactional producer that may be interrupted before each record."""

    def __init__(self, broker: MemoryBroker, weather: Weather, transactional_id: str) -> None:
        """Name the transactional id."""
        super().__init__(broker, weather, transactional_id)
        self._weather = weather

    def send(self, record: Outgoing, placed: Callable[[int], None] | None = None) -> None:
        """Append a record into the open transaction."""
        self._weather.before("send")
        super().send(record, placed)
