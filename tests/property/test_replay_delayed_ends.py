"""What ends a transaction of a replay worker late, at any moment, loses no root and copies none twice.

A late commit ends the next transaction: what it has written so far is committed, the rest is refused. A late
abort undoes a later one: what is sent then to a partition that was in it is refused, and what is sent to
another one is in a new transaction. Only of what a killed worker has written may there be two. A dead letter
counts as a copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random

import pytest

from acker.errors import Aborted, TopicError, Unreachable
from acker.kafka.port import Outgoing, TopicPartition, Transactions
from acker.wire.verdict import Verdict
from replay.records.due import ROOT_KEY_BYTES
from replay.worker.service import ReplayService
from tests.support.memory.broker import MemoryBroker
from tests.support.memory.clients import MemoryTransactions, NoFaults
from tests.support.worlds.replay_world import Client, World, limits, topics

SEEDS = 60
MOMENTS = 100


class Delays:
    """Draws what comes late; `cuts_copies`: also a commit in the transaction of copies."""

    def __init__(self, seed: int, *, cuts_copies: bool) -> None:
        """Draw by a seed."""
        self.draw = Random(seed)
        self.cuts_copies = cuts_copies
        self.cut_share = self.draw.choice((0.02, 0.05, 0.2))
        self.refused_share = self.draw.choice((0.0, 0.3))
        self.are_over = False

    def happens(self, share: float) -> bool:
        """Draw whether something happens."""
        return not self.are_over and self.draw.random() < share


class DelayedTransactions(MemoryTransactions):
    """Transactions that may be ended by what was asked for before."""

    has_committed = has_copies = is_late = is_refused = False
    left: frozenset[TopicPartition] = frozenset()

    def __init__(self, delays: Delays, broker: MemoryBroker, transactional_id: str) -> None:
        """Let `delays` draw."""
        super().__init__(broker, NoFaults(), transactional_id)
        self._delays = delays

    def begin(self) -> None:
        """Open a transaction."""
        super().begin()
        self.has_copies = self.is_refused = False
        self.left = frozenset()

    def send(self, record: Outgoing, placed: Callable[[int], None] | None = None) -> None:
        """Send a record, unless its partition has left the transaction."""
        self._come_late()
        if TopicPartition(record.topic, record.partition) in self.left:
            self.is_refused = True
            return
        super().send(record, placed)
        is_tombstone = record.value is None and len(record.key or b"") == ROOT_KEY_BYTES
        self.has_copies |= record.topic != "_ack_due" or is_tombstone
        self._cut()

    def send_all(self, records: Iterable[Outgoing]) -> None:
        """Send some records."""
        for record in records:
            self.send(record)

    def flush(self, timeout_ms: int) -> None:
        """Wait for what was sent."""
        super().flush(timeout_ms)
        self._come_late()
        self._cut()

    def commit(self, timeout_ms: int) -> None:
        """Commit, unless a record was refused, or a topic of the copies is."""
        if self.is_refused:
            self._end(committed=False)
            raise Aborted("a partition has left the transaction")
        if self.has_copies and self._delays.happens(self._delays.refused_share):
            raise TopicError("there is no such topic")
        super().commit(timeout_ms)
        self.has_committed = True

    def abort(self, timeout_ms: int) -> None:
        """Abort, and perhaps once more, later."""
        was_open = self._in_transaction
        super().abort(timeout_ms)
        self.is_late = was_open and self._delays.happens(0.7)

    def _come_late(self) -> None:
        if self.is_late and self._delays.happens(0.3):
            self.is_late = False
            self.left = frozenset(self._owned().touched)
            self._broker.end_transaction(self._id, committed=False)

    def _cut(self) -> None:
        may_be = self.has_committed and (self._delays.cuts_copies or not self.has_copies)
        if may_be and self._delays.happens(self._delays.cut_share):
            self._end(committed=True)
            raise self._delays.draw.choice((Aborted, Unreachable))("the rest is refused")


class DelayedClient(Client):
    """A client with such transactions."""

    delays: Delays

    def transactions(self, transactional_id: str) -> Transactions:
        """Make them."""
        return DelayedTransactions(self.delays, self._broker, transactional_id)


def copies_of(delays: Delays, *, kills: bool) -> tuple[Counter[bytes | None], int]:
    """Lose roots while all that comes late; return how many copies each has, and how many roots there are."""
    world, draw, count = World(), delays.draw, 0
    of = topics(attempts=draw.choice((1, 3)))

    def started() -> ReplayService:
        client = DelayedClient(world.cluster, NoFaults())
        client.delays = delays
        bounds = limits(
            waiting_max=draw.choice((3, 5, 1_000)),
            intake_max=draw.choice((1, 2, 100)),
            fire_max=draw.choice((1, 3, 100)),
            verdict_records_max=draw.choice((1, 2, 100)),
            aborts_max=1_000,
        )
        return world.worker(client=client, limits=bounds, of=of)

    worker = started()
    for _ in range(MOMENTS):
        match draw.choices(("lose", "wait", "kill", "go on"), (5, 5, int(kills), 10))[0]:
            case "lose":
                roots = [world.emit(b"%d" % number) for number in range(count, count + draw.randint(1, 5))]
                count += len(roots)
                world.lose(*roots, reason=draw.choice((Verdict.FAILED, Verdict.ABANDONED)))
            case "wait":
                world.now_ms += draw.choice((1, 100, 1_100, 3_000))
            case "kill":
                world.kill(worker)
                worker = started()
        world.cluster.now_ms = world.now_ms
        worker.step(world.now_ms)
    delays.are_over = True
    world.settle(worker, until_ms=world.now_ms + 400_000)
    assert worker.status().waiting == 0
    return Counter(each.value for each in (*world.copies(), *world.letters())), count


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("cuts_copies", "kills"), [(False, True), (True, False), (True, True)], ids=["kills", "cuts", "both"]
)
def test_what_ends_a_transaction_late_loses_no_root_and_doubles_none(cuts_copies: bool, kills: bool) -> None:
    for seed in range(SEEDS):
        copies, count = copies_of(Delays(seed, cuts_copies=cuts_copies), kills=kills)
        roots = Counter(b"%d" % number for number in range(count))
        assert not roots - copies, f"seed {seed}: lost"
        assert (cuts_copies and kills) or copies == roots, f"seed {seed}: twice"
