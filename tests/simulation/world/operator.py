"""The operator, the producer of source records, and what happens to the broker: all outside Windhover."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from acker.config.settings import Input
from acker.identity import generation_of, is_replay, position_at
from acker.kafka.port import Headers, Outgoing
from acker.wire.codec import wire_codec
from acker.wire.events import Take, TakeSource
from replay.records.headers import HISTORY
from spout.exactly_once.publication_bytes import unpacked_publication
from tests.simulation.world.durable import Checkpoint
from tests.simulation.world.process import Setting
from tests.simulation.world.stranger import Stranger

KINDS = ("poison", "flaky", "slow", "touch", "fickle", "remote")

CUT_MAX: Final = 6
"""So many offsets a cut loses at most; none is another leader's election."""

TOMBSTONES_MS: Final = 60_000
"""A tombstone stays for so long, by ``delete.retention.ms`` a day: who reads from the beginning meets the
tombstone of each value that he has read, however long he is stopped in between."""


class Operator:
    """Acts before each step of the scheduler."""

    def __init__(self, world: Setting) -> None:
        """Prepare to do what the options allow."""
        self.world = world
        self.rng = world.rng
        self.produced = 0
        self._codec = wire_codec()
        self._open: dict[int, int] = {}
        self._foreign = 0
        actions: dict[str, Callable[[], None]] = {
            "zombie": self._zombie, "sleep": self._sleep, "stall": self._stall, "away": self._away,
            "rebalance": self._rebalance, "expiry": self._expiry, "takeover": self._takeover,
            "rewind": self._rewind, "release": self._release, "retention": self._retention,
            "compaction": self._compaction, "garbage": self._garbage, "foreign": self._foreign_transaction,
            "forged": Stranger(world).write, "cut": self._cut,
        }  # fmt: skip
        self._actions = [(name, actions[name]) for name in actions if world.options.rate(name)]
        self._produce_share = min(1.0, 1.6 * world.options.records / max(1, world.options.steps))

    def act(self) -> None:
        """Produce, and do what is drawn."""
        if self.produced < self.world.options.records and self.rng.random() < self._produce_share:
            self._produce()
        for fault, action in self._actions:
            if self.world.happens(fault):
                action()

    def heal(self) -> None:
        """Write what is left to write, end what is open."""
        for number in list(self._open):
            self._end(number, committed=True)
        while self.produced < self.world.options.records:
            self._produce()
        for name in self.world.cluster.open_transactions():
            if name.startswith("foreign"):
                self.world.cluster.end_transaction(name, committed=False)

    # -- source records

    def _produce(self) -> None:
        """Write one source record; with markers some stand in transactions, of which some are aborted."""
        number = self.rng.randrange(self.world.options.source_partitions)
        log = self.world.cluster.at("lines", number)
        value = f"{self.produced}|{self._kind()}".encode()
        few = self.world.options.compacted_source or self.world.options.ordering != "none"
        key = b"%d" % self.rng.randrange(4 if few else 1_000)
        record = Outgoing("lines", number, value, key, _headers(self.produced))
        self.produced += 1
        if number not in self._open and not self.world.happens("markers"):
            log.append(record, self.world.now_ms)
            return
        owner = f"producer-{number}"
        self._open[number] = self._open.get(number, 0) + 1
        log.append(record, self.world.now_ms, owner)
        if self.rng.random() < 0.6:
            self._end(number, committed=self.rng.random() < 0.7)

    def _end(self, number: int, *, committed: bool) -> None:
        del self._open[number]
        self.world.cluster.at("lines", number).end_transaction(
            f"producer-{number}", self.world.now_ms, committed=committed
        )

    def _kind(self) -> str:
        for kind in KINDS:
            if self.world.happens(kind):
                return f"{kind}|{self.rng.randint(1, 3)}"
        return f"ok|{self.rng.randint(0, 2)}"

    # -- processes

    def _zombie(self) -> None:
        slot = self.rng.choice(self.world.slots)
        self.world.faults["zombie"] -= 1
        if slot.current is not None and not slot.current.is_busy:
            self.world.replace(slot.current)

    def _sleep(self) -> None:
        slot = self.rng.choice(self.world.slots)
        if slot.current is not None:
            slot.current.asleep_until_ms = self.world.now_ms + self.rng.randint(200, 10_000)
            self.world.tell("sleep", slot.current.name, slot.current.asleep_until_ms - self.world.now_ms)

    def _stall(self) -> None:
        wait_ms = self.rng.randint(1_000, 15_000)
        self.world.tell("stall", wait_ms)
        self.world.cluster.now_ms += wait_ms

    def _away(self) -> None:
        self.world.away_until_ms = self.world.now_ms + self.rng.randint(100, 3_000)
        self.world.tell("broker away")

    def _rebalance(self) -> None:
        slot = self.rng.choice(self.world.slots)
        if slot.current is not None:
            self.world.tell("rebalance", slot.current.name)
            slot.current.client.vanish()

    # -- the broker

    def _expiry(self) -> None:
        names = [name for name in self.world.cluster.open_transactions() if not name.startswith("foreign")]
        if names:
            name = self.rng.choice(names)
            self.world.tell("expiry", name)
            self.world.cluster.expire_transaction(name)

    def _retention(self) -> None:
        number = self.rng.randrange(self.world.options.source_partitions)
        log = self.world.cluster.at("lines", number)
        if self.world.options.compacted_source or log.end == log.start:
            return
        offset = self.rng.randint(log.start, log.stable_end)
        self.world.tell("retention", log.name, offset)
        log.delete_before(offset)

    def _cut(self) -> None:
        """Lose the last records of a source log, as an unclean election does; what is written next is other.

        Between transactions alone: what becomes of a half that is lost is for the broker's own tests.
        """
        number = self.rng.randrange(self.world.options.source_partitions)
        log = self.world.cluster.at("lines", number)
        if number in self._open or log.end == log.start:
            return
        offset = self.rng.randint(max(log.start, log.end - CUT_MAX), log.end)
        self.world.tell("cut", log.name, offset)
        self.world.truth.was_cut(log.name, offset)
        log.cut(offset)

    def _compaction(self) -> None:
        names = self.world.topics.ack_topics
        topics = [names.state, names.due]
        if self.world.options.compacted_source:
            topics.append("lines")
        topic = self.rng.choice(topics)
        self.world.tell("compaction", topic)
        young_ms = self.world.cluster.now_ms - TOMBSTONES_MS
        self.world.cluster.compact(topic, drop_tombstones=self.rng.random() < 0.5, young_ms=young_ms)

    def _garbage(self) -> None:
        names = self.world.topics.ack_topics
        topic = self.rng.choice((names.init, names.ack, names.fail))
        number = self.rng.randrange(self.world.options.partitions)
        self.world.tell("garbage", topic, number)
        self.world.cluster.at(topic, number).append(Outgoing(topic, number, b"garbage"), self.world.now_ms)

    def _foreign_transaction(self) -> None:
        """Leave a transaction of another program open in an ack topic; it ends some time later."""
        names = self.world.topics.ack_topics
        topic = self.rng.choice((names.ack, names.fail))
        number = self.rng.randrange(self.world.options.partitions)
        self._foreign += 1
        owner = f"foreign-{self._foreign}"
        log = self.world.cluster.at(topic, number)
        self.world.tell("foreign transaction", topic, number)
        log.append(Outgoing(topic, number, b"garbage"), self.world.now_ms, owner)
        committed = self.rng.random() < 0.5
        self.world.after_ms(
            self.rng.randint(100, 20_000),
            lambda: log.end_transaction(owner, self.world.now_ms, committed=committed),
        )

    # -- sessions

    def _takeover(self) -> None:
        """Start a query with a fresh checkpoint; the one before goes on until it notices."""
        group = self.rng.choice(sorted(self.world.queries))
        slot = self.world.queries[group]
        self.world.checkpoints[group] = Checkpoint(self.world.new_id("q"), group)
        self.world.tell("takeover", group)
        if slot.current is not None:
            self.world.replace(slot.current)

    def _rewind(self) -> None:
        """Begin a new generation of one source topic, as `windhover offsets reset` does."""
        found = self.rng.choice(list(self.world.topics.inputs.values()))
        log = self.world.cluster.at("lines", 0)
        first = self.rng.randint(log.start, log.stable_end)
        self._take(found, generation_step=1, first=first)

    def _release(self) -> None:
        """Take a group over without a successor, as `windhover release` does."""
        self._take(self.rng.choice(list(self.world.topics.inputs.values())), generation_step=0, first=None)

    def _take(self, found: Input, *, generation_step: int, first: int | None) -> None:
        """Write a take of the next epoch; it may die after some of the partitions."""
        truth = self.world.truth
        known = {
            s: one for part in truth.partitions for s, one in part.known.items() if one.group == found.group
        }
        held = [part.holders[found.group] for part in truth.partitions if found.group in part.holders]
        if not held or not known:
            return
        epoch = max(held).epoch + 1
        sources = []
        for source, one in sorted(known.items()):
            generation = max(
                part.known[source].generation for part in truth.partitions if source in part.known
            )
            from_ = one.from_
            if generation_step and not is_replay(source):
                generation += generation_step
                log = self.world.cluster.at("lines", source & 0xFFFF)
                offset = min(max(first or 0, log.start), log.stable_end)
                from_ = position_at(generation, offset)
            elif generation_of(from_) != generation:
                from_ = truth.froms[source, generation]
            sources.append(TakeSource(source, one.topic, one.topic_id, generation, from_))
        if self.world.options.exact:
            epoch = self._open_store(found, epoch)
        name = self.world.new_id("op")
        take = Take(found.group, name, epoch, self.world.now_ms, truth.count, tuple(sources))
        self.world.tell("reset" if generation_step else "release", found.group, epoch)
        value = self._codec.encode(take)
        topic = self.world.topics.ack_topics.init
        for number in range(self.rng.randint(1, truth.count) if self.rng.random() < 0.3 else truth.count):
            self.world.cluster.at(topic, number).append(Outgoing(topic, number, value), self.world.now_ms)

    def _open_store(self, found: Input, epoch_min: int) -> int:
        """Fence the writer of a group and publish its last batch, as all do that take the group."""
        grant = self.world.exact_store.open(found.group, epoch_min)
        if grant.last_batch is not None:
            records = unpacked_publication(grant.last_batch.publication)
            for record in (*records.fails, *records.acks):
                self.world.cluster.at(record.topic, record.partition).append(record, self.world.now_ms)
        return grant.epoch


def _headers(number: int) -> Headers:
    """Return a source record's own headers: two of one name, one without a value, perhaps one like ours."""
    own: Headers = (("line", b"%d" % number), ("line", b"again"), ("empty", None))
    return (*own, (HISTORY, b"of another pipeline")) if number % 3 == 0 else own
