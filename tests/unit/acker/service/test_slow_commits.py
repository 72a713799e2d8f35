"""A transaction, or a takeover, of one acker partition takes long: it holds up no other.

Whatever becomes of it, each root has one verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Event
from typing import TypeVar

import pytest

from acker.config.limits import AckerLimits
from acker.errors import Aborted, Fenced, LogError, RecordRefused, Unreachable, WindhoverError
from acker.identity import acker_partition
from acker.kafka.cluster import ThreadCall
from acker.kafka.port import Transactions, UnderWay
from acker.ledger.output import AckerEventKind
from acker.service.partition import PartitionAcker
from acker.service.service import PATIENCE_MS, AckerService
from acker.wire.events import Tick
from tests.support.memory.clients import FailingByPlan, Faults, MemoryCall, MemoryTransactions, NoFaults
from tests.support.memory.cluster import MemoryLog
from tests.support.worlds.acker_world import GROUP, SOURCE, TOPICS, World, edge

T = TypeVar("T")

PARTITIONS = 3
SLOW = 0
SOUND = (1, 2)
WAIT_S = 8.0
FETCHED = 200

LIMITS = AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0)


def first_of(partition: int) -> int:
    """Return the first position of a block that an acker partition owns."""
    blocks = (block << 16 for block in range(100))
    return next(position for position in blocks if acker_partition(SOURCE, position, PARTITIONS) == partition)


def partition_of(call: Callable[[], T]) -> int:
    """Return of which acker partition a call is that an acker begins."""
    assert isinstance(call, partial)
    owner = call.func.__self__  # type: ignore[attr-defined]  # of a bound method
    if isinstance(owner, PartitionAcker):
        return owner.core.partition
    return int(owner._id.rsplit("-", 1)[-1])


class NotedCall(MemoryCall[T]):
    """A call that notes how long somebody waits for it."""

    def __init__(self, call: Callable[[], T], may_be_made: Callable[[], bool]) -> None:
        """Begin the call."""
        self.waits_ms: list[int] = []
        super().__init__(call, may_be_made)

    def is_over(self, wait_ms: int = 0) -> bool:
        """Note the wait."""
        self.waits_ms.append(wait_ms)
        return super().is_over(wait_ms)


class GatedLog(MemoryLog):
    """What is begun for partitions that are `shut` is not over before they are opened."""

    def __init__(self, world: World, faults: Faults | None = None) -> None:
        """Look at a world's cluster, with all open."""
        super().__init__(world.cluster, faults or NoFaults())
        self.shut: set[int] = set()
        self.calls: list[tuple[int, NotedCall[object]]] = []
        self.writers: list[MemoryTransactions] = []

    def begin(self, call: Callable[[], T]) -> UnderWay[T]:
        """Begin a call, and note it."""
        number = partition_of(call)
        noted = NotedCall(call, lambda: number not in self.shut)
        self.calls.append((number, noted))  # type: ignore[arg-type]  # whatever it returns
        return noted

    def transactions(self, transactional_id: str) -> Transactions:
        """Make a writer, and note it."""
        writer = super().transactions(transactional_id)
        assert isinstance(writer, MemoryTransactions)
        self.writers.append(writer)
        return writer


class Installation:
    """An acker of three partitions that owns all of them, with a hundred open roots in each."""

    def __init__(self, limits: AckerLimits = LIMITS, faults: Faults | None = None) -> None:
        """Let the acker come up."""
        self.world = World(PARTITIONS, limits)
        self.log = GatedLog(self.world, faults)
        self.world.crash(log=self.log)
        self.writer = self.world.session()
        self.writer.take()
        for partition in range(PARTITIONS):
            self.writer.init((first_of(partition), first_of(partition) + 100))
        self.world.settle()
        self.world.events.clear()
        self.log.calls.clear()
        self.acked: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)

    def ack(self, *partitions: int) -> None:
        """Ack the next root of each partition."""
        for partition in partitions:
            number = self.acked[partition]
            position = first_of(partition) + number
            self.writer.acks(values=[(position, edge(position))], seq=1_000 * partition + number)
            self.acked[partition] += 1

    def steps(self, count: int = 3) -> None:
        """Let the acker work."""
        for _ in range(count):
            self.world.step()

    def verdicts(self) -> list[int]:
        """Return how many roots of each partition are acked in the log; none has more than one verdict."""
        counts = [0] * PARTITIONS
        for position, outcome in self.world.of().items():
            assert outcome == "ACKED"
            counts[acker_partition(SOURCE, position, PARTITIONS)] += 1
        return counts

    def kinds(self) -> list[AckerEventKind]:
        """Return what was reported."""
        return [event.kind for event in self.world.events]


def shut(limits: AckerLimits = LIMITS, faults: Faults | None = None) -> Installation:
    """Let the transaction of a partition be under way, which acks one root."""
    installed = Installation(limits, faults)
    installed.log.shut = {SLOW}
    installed.ack(*range(PARTITIONS))
    installed.steps()
    return installed


# -- a transaction is under way


class BlockingTransactions(MemoryTransactions):
    """Waits at its commit as a client of a silent broker does; see `BlockingLog`."""

    log: BlockingLog

    def commit(self, timeout_ms: int) -> None:
        """Wait, and commit."""
        if self._id.endswith(f"-{SLOW}") and self.log.blocks:
            self.log.waits.set()
            self.log.goes_on.wait(WAIT_S)
            self.log.waits.clear()
        super().commit(timeout_ms)


class BlockingLog(MemoryLog):
    """Makes what is begun in threads, and lets the commit of one partition wait."""

    def __init__(self, world: World) -> None:
        """Look at a world's cluster."""
        super().__init__(world.cluster, NoFaults())
        self.blocks = False
        self.waits, self.goes_on = Event(), Event()

    def begin(self, call: Callable[[], T]) -> UnderWay[T]:
        """Begin a thread."""
        return ThreadCall(call)

    def transactions(self, transactional_id: str) -> Transactions:
        """Make a writer."""
        writer = BlockingTransactions(self._broker, self._faults, transactional_id)
        writer.log = self
        return writer


def test_a_partition_whose_commit_waits_holds_up_no_other() -> None:
    """D1013: before, a step waited for the transactions of all its partitions."""
    installed = Installation()
    log = BlockingLog(installed.world)
    installed.world.crash(log=log)
    installed.steps()
    log.blocks = True
    try:
        for _ in range(3):
            installed.ack(*range(PARTITIONS))
            installed.steps(1)
        assert log.waits.is_set(), "it still waits"
        assert installed.verdicts() == [0, 3, 3]
        assert installed.world.status().partitions == (0, 1, 2)
    finally:
        log.goes_on.set()
    for _ in range(200):
        installed.steps(1)
        if installed.verdicts() == [3, 3, 3]:
            break
    assert installed.verdicts() == [3, 3, 3]


def test_nothing_is_applied_to_a_partition_before_its_transaction_is_over() -> None:
    """D1013: it is not read either, so it takes no room of the others; then it goes on where it was."""
    installed = shut(AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0, step_records=5))
    for _ in range(20):
        installed.ack(*range(PARTITIONS))
    installed.steps(20)
    assert installed.verdicts() == [0, 21, 21]
    assert [number for number, _ in installed.log.calls].count(SLOW) == 1
    installed.log.shut.clear()
    installed.steps(20)
    assert installed.verdicts() == [21, 21, 21]
    assert installed.kinds() == []
    assert installed.world.status().counts.late == 0


def test_fails_and_ticks_wait_for_the_transaction_of_their_partition_too() -> None:
    """D1013: and have their effect afterwards."""
    installed = shut()
    for partition in range(PARTITIONS):
        installed.writer.fails(first_of(partition) + 50, seq=partition)
    installed.writer.tick(5)
    installed.steps(6)
    failed = [position for position, outcome in installed.world.of().items() if outcome == "FAILED"]
    assert sorted(failed) == sorted(first_of(partition) + 50 for partition in SOUND)
    installed.log.shut.clear()
    installed.steps(6)
    assert installed.world.of()[first_of(SLOW) + 50] == "FAILED"
    assert installed.world.of()[first_of(SLOW)] == "ACKED"


def test_contributions_that_wait_for_their_inits_wait_on_behind_the_transaction() -> None:
    """D1013: a step had read contributions, and not yet all inits before them, when a commit took long."""
    limits = AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0, step_records=2)
    installed = Installation(limits)
    installed.log.shut = {SLOW}
    first = first_of(SLOW)
    for number in range(3 * FETCHED):  # a fetch does not reach the inits behind them
        installed.world.write(TOPICS.init, Tick(GROUP, "s1", 1, number), SLOW)
    installed.writer.init((first + 100, first + 120))
    installed.writer.acks(runs=[(first + 100, first + 120)])
    installed.steps(1)
    assert [number for number, _ in installed.log.calls] == [SLOW], "ticks were read"
    installed.ack(*SOUND)
    installed.steps(3)
    assert installed.verdicts() == [0, 1, 1], "they do not wait for the inits of the other one"
    installed.log.shut.clear()
    installed.steps(10)
    assert installed.verdicts() == [20, 1, 1]
    assert installed.world.status().counts.above == 0


@pytest.mark.parametrize("error", [Aborted("refused"), Unreachable("no answer"), RecordRefused("too large")])
def test_a_transaction_that_fails_late_restores_its_partition(error: WindhoverError) -> None:
    """D1013: as one that fails at once."""
    failing = FailingByPlan("commit", error, [])
    installed = shut(faults=failing)
    failing._plan = iter([True])
    installed.log.shut.clear()
    installed.steps(8)
    assert failing.failures == 1
    assert installed.kinds() == [AckerEventKind.ABORTED, AckerEventKind.RESTORED]
    assert installed.verdicts() == [1, 1, 1]


def test_an_error_for_good_ends_the_acker_when_the_transaction_is_over() -> None:
    failing = FailingByPlan("commit", LogError("drawn"), [])
    installed = shut(faults=failing)
    failing._plan = iter([True])
    installed.log.shut.clear()
    with pytest.raises(LogError, match="drawn"):
        installed.steps(2)


# -- a partition is taken away, or the process ends


@pytest.mark.parametrize("is_fenced", [False, True])
def test_a_partition_that_is_taken_away_ends_its_transaction_first(*, is_fenced: bool) -> None:
    """D1015: committed before another owner has come, or fenced by it. Each root has one verdict."""
    installed = shut()
    world, first = installed.world, installed.world.acker
    second = world.start()
    share_anew(first, second, world)
    assert SLOW in first.status().partitions, "it is not given up yet"
    writer = installed.log.writers[SLOW]
    assert not writer._is_closed
    if is_fenced:
        for _ in range(4):
            second.step(world.now_ms)
    installed.log.shut.clear()
    first.step(world.now_ms)
    assert SLOW not in first.status().partitions
    assert writer._is_closed
    told = [event.kind for event in world.events if event.partition == SLOW]
    assert (AckerEventKind.FENCED if is_fenced else AckerEventKind.LOST) in told
    for _ in range(8):
        second.step(world.now_ms)
        first.step(world.now_ms)
    assert installed.verdicts() == [1, 1, 1]


def share_anew(first: AckerService, second: AckerService, world: World) -> None:
    """Let the group put the first acker out, and give all to the second one."""
    second._membership.poll(0)
    first._membership.vanish()  # type: ignore[attr-defined]  # the in-memory one can
    assert second._membership.poll(0) == {0, 1, 2}
    first.step(world.now_ms)


def test_a_process_that_ends_waits_for_its_transactions() -> None:
    """D1015: also where another partition has put off something, and is committed with them."""
    installed = shut(AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=60_000))
    installed.writer.tick(1)
    installed.steps(2)
    installed.world.acker.close()  # `result` waits, whatever is shut
    assert installed.verdicts() == [1, 1, 1]
    assert all(writer._is_closed for writer in installed.log.writers)
    assert installed.kinds() == []


@pytest.mark.parametrize("error", [Aborted("refused"), Fenced("another")])
def test_a_process_that_ends_reports_what_did_not_commit(error: WindhoverError) -> None:
    failing = FailingByPlan("commit", error, [])
    installed = shut(faults=failing)
    failing._plan = iter([True])
    installed.world.acker.close()
    assert installed.kinds() == [AckerEventKind.ABORTED]


# -- nothing but that is to be done


def alone() -> Installation:
    """Let the transactions of all partitions be under way."""
    installed = Installation(AckerLimits(poll_ms=40, pace_ms=0, put_off_ms=0))
    installed.log.shut = set(range(PARTITIONS))
    installed.ack(*range(PARTITIONS))
    installed.steps(1)
    return installed


def test_a_process_that_can_only_wait_does_not_spin() -> None:
    """D1013: it waits for a transaction as long as for contributions, and keeps its place in the group."""
    installed = alone()
    calls = [call for _, call in installed.log.calls]
    assert [call.waits_ms.count(PATIENCE_MS) for call in calls] == [1, 1, 1]
    for call in calls:
        call.waits_ms.clear()
    installed.steps(5)
    assert calls[0].waits_ms.count(40) == 5
    installed.log.shut.clear()
    installed.steps(3)
    assert installed.verdicts() == [1, 1, 1]


def test_an_outage_goes_on_while_a_process_waits_for_transactions_alone() -> None:
    """Nobody has answered meanwhile; else an acker without a broker would never end."""
    installed = alone()
    world = installed.world
    assert world.acker._broker.record_failure()
    world.now_ms += LIMITS.unreachable_ms
    installed.steps(2)
    assert world.acker._broker.silent_ms > LIMITS.unreachable_ms
    installed.log.shut.clear()
    installed.steps(2)
    assert world.acker._broker.silent_ms == 0


def test_a_transaction_that_hangs_beyond_its_deadlines_is_waited_for_by_name() -> None:
    """Who watches the loop then sees what hangs."""
    installed = shut()
    operations: list[str] = []
    installed.world.acker._name_operation = operations.append
    installed.world.now_ms += LIMITS.hung_ms - 10
    installed.steps(1)
    assert f"committing partition {SLOW}" not in operations
    installed.world.now_ms += 20
    installed.steps(1)
    assert f"committing partition {SLOW}" in operations
    [call] = [call for number, call in installed.log.calls if number == SLOW]
    assert max(call.waits_ms) > LIMITS.hung_ms


# -- a takeover is under way


def taking_over() -> Installation:
    """Let an acker begin to take a partition over, while it owns the others."""
    installed = Installation()
    world = installed.world
    installed.log = GatedLog(world)
    world.crash(log=installed.log)
    world.step()  # the first one that is owned is had at once: nobody is held up
    [owned] = world.status().partitions
    assert owned == SLOW
    installed.log.shut = {1}
    installed.steps(4)
    assert world.status().partitions == (0, 2)
    return installed


def test_a_takeover_that_waits_holds_up_no_other() -> None:
    """D1014: before, all waited for up to 15 s, again and again."""
    installed = taking_over()
    for _ in range(3):
        installed.ack(*range(PARTITIONS))
        installed.steps(2)
    assert installed.verdicts() == [3, 0, 3]
    assert [number for number, _ in installed.log.calls].count(1) == 1
    installed.log.shut.clear()
    installed.steps(4)
    assert installed.world.status().partitions == (0, 1, 2)
    assert installed.verdicts() == [3, 3, 3]


def test_a_takeover_that_fails_late_is_tried_again_after_a_while() -> None:
    """D1014: as one that fails at once."""
    installed = taking_over()
    failing = FailingByPlan("init", Unreachable("no answer"), [True])
    installed.log.writers[-2]._faults = failing
    installed.log.shut.clear()
    installed.steps(4)
    assert failing.failures == 1
    assert AckerEventKind.UNREACHABLE in installed.kinds()
    assert installed.world.status().partitions == (0, 2)
    installed.world.now_ms += LIMITS.operation_ms
    installed.steps(2)
    assert installed.world.status().partitions == (0, 1, 2)


def test_a_partition_that_the_group_took_back_during_its_takeover_is_left_alone() -> None:
    """D1014: and its writer is closed when the takeover is over, not before."""
    installed = taking_over()
    world = installed.world
    world.acker._membership.vanish()  # type: ignore[attr-defined]  # the in-memory one can
    installed.steps(1)
    writer = next(writer for writer in installed.log.writers if writer._id.endswith("-1"))
    assert not writer._is_closed
    second = world.start()
    second._membership.poll(0)
    world.acker._membership.vanish()  # type: ignore[attr-defined]  # the in-memory one can
    installed.log.shut.clear()
    world.step()
    assert writer._is_closed
    assert 1 not in world.status().partitions


def test_a_process_that_ends_waits_for_its_takeover() -> None:
    """D1014: nobody may close a writer that another thread uses."""
    installed = taking_over()
    installed.world.acker.close()
    assert all(writer._is_closed for writer in installed.log.writers)
    assert installed.world.cluster.members("windhover-acker") == []
