"""A transaction that is committed in part, and an acker that ends within a step: each root has one verdict.

How it comes to that is in ``tests.support.memory.cut``.
"""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from acker.config.limits import AckerLimits
from acker.errors import Disagreement, NotAuthorized
from acker.kafka.port import Outgoing, Transactions
from acker.ledger.output import AckerEventKind
from acker.service.state import BIN_PART, part_key
from tests.support.memory.clients import MemoryTransactions, NoFaults
from tests.support.memory.cluster import MemoryLog
from tests.support.memory.cut import CuttingLog
from tests.support.worlds.acker_world import TIMEOUT_MS, TOPICS, World, Writer, edge

CARRY_AT_ONCE = AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0, refold_bytes=0)
PUT_OFF = AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=60_000)


def begin(world: World) -> Writer:
    writer = world.session()
    writer.take()
    world.settle()
    return writer


def cut_behind(world: World, key: bytes | None, writer: Writer) -> None:
    """Let another acker go on, of which a transaction is cut behind a record of State, or at the flush."""
    is_due, places = False, [key]

    def is_last(record: Outgoing | None) -> bool:
        if record is not None and record.topic != TOPICS.state:
            return False
        return bool(places) and places[0] == (record and record.key) and places.pop() == key

    world.crash(log=CuttingLog(world.cluster, NoFaults(), lambda record: is_due and is_last(record)))
    writer.tick(1)
    world.settle()
    is_due = True


def test_verdicts_of_carried_roots_without_their_state_are_not_given_again() -> None:
    """State carries the roots by value, as they were before the verdicts."""
    world = World(limits=CARRY_AT_ONCE)
    writer = begin(world)
    writer.init((0, 5))
    writer.acks(values=[(position, 5) for position in range(5)], seq=0)
    world.settle()
    assert world.status().counts.carried
    cut_behind(world, None, writer)
    writer.acks(values=[(position, 5 ^ edge(position)) for position in range(3)], seq=1)
    world.settle()
    writer.tick(TIMEOUT_MS)
    world.settle()
    assert world.of() == dict.fromkeys(range(3), "ACKED") | dict.fromkeys((3, 4), "TIMED_OUT")
    assert world.status().open_roots == 0


def test_a_bin_that_is_committed_without_its_state_counts_for_nothing() -> None:
    """Its values have contributions that a restart reads again."""
    world = World(limits=CARRY_AT_ONCE)
    writer = begin(world)
    writer.init((0, 2))
    writer.acks(values=[(0, 5), (1, 5)], seq=0)
    world.settle()
    cut_behind(world, part_key(0, BIN_PART), writer)
    writer.acks(values=[(0, 6), (1, 5 ^ edge(1))], seq=1)
    world.settle()
    writer.acks(values=[(0, 5 ^ 6 ^ edge(0))], seq=2)
    world.settle()
    assert world.of() == dict.fromkeys(range(2), "ACKED")


def test_a_bin_that_was_emptied_without_its_state_does_not_stop_the_acker() -> None:
    world = World(limits=CARRY_AT_ONCE)
    writer = begin(world)
    writer.init((0, 2))
    writer.init((2, 4))
    writer.acks(values=[(0, 5), (2, 5)], seq=0)
    world.settle()
    cut_behind(world, part_key(0, BIN_PART), writer)
    writer.acks(values=[(0, 5 ^ edge(0)), (1, edge(1))], seq=1)
    world.settle()
    writer.acks(values=[(2, 5 ^ edge(2)), (3, edge(3))], seq=2)
    world.settle()
    assert world.of() == dict.fromkeys(range(4), "ACKED")


def cut_a_state_of_two_pieces(world: World) -> Writer:
    """Let a transaction be cut behind the first piece of State, and the acker give the partition up."""
    writer = begin(world)
    draw = np.random.default_rng(1)
    writer.init((0, 1_000), timeout_ms=0)
    for lane in range(2_400):
        writer.acks(absent=[(0, 1)], lane=f"{lane}{draw.bytes(400).hex()}/s1")
    world.settle()
    assert {record.key for record in world.read(TOPICS.state)} == {part_key(0, 0), part_key(0, 1)}
    cut_behind(world, part_key(0, 0), writer)
    writer.acks(runs=[(1, 3)], seq=1)
    while AckerEventKind.ABORTED not in {event.kind for event in world.events}:
        world.step()
    return writer


def test_a_piece_of_a_state_without_the_others_counts_for_nothing() -> None:
    world = World()
    cut_a_state_of_two_pieces(world)
    world.settle()
    assert world.of() == {0: "ABSENT", 1: "ACKED", 2: "ACKED"}
    assert world.status().open_roots == 997


def test_compaction_behind_the_next_state_leaves_a_state_that_is_whole() -> None:
    world = World()
    writer = cut_a_state_of_two_pieces(world)
    world.settle()
    world.cluster.compact(TOPICS.state)
    world.crash()
    writer.acks(runs=[(3, 4)], seq=2)
    world.settle()
    assert world.of() == {0: "ABSENT", 1: "ACKED", 2: "ACKED", 3: "ACKED"}
    assert world.status().open_roots == 996


def test_where_compaction_takes_a_piece_before_the_next_state_is_whole_nothing_is_guessed() -> None:
    """The piece of the cut transaction is all that is left of its key: the log would have to be rolled, and
    cleaned, before any acker has restored the partition.
    """
    world = World()
    cut_a_state_of_two_pieces(world)
    world.cluster.compact(TOPICS.state)
    with pytest.raises(Disagreement, match="_ack_state/0 holds pieces of a State but not all of them"):
        world.settle()


def test_verdicts_that_are_committed_without_the_inits_of_their_roots_are_not_given_again() -> None:
    """Init, acks and fails are read in one step, or the init was put off: the State before lacks the root."""
    world = World()
    writer = begin(world)
    cut_behind(world, None, writer)
    writer.init((0, 6))
    writer.acks(runs=[(0, 2)], absent=[(2, 3)], seq=1)
    writer.fails(3, 5)
    world.settle()
    writer.acks(runs=[(4, 5)], seq=2)
    world.settle()
    assert world.of() == {0: "ACKED", 1: "ACKED", 2: "ABSENT", 3: "FAILED", 4: "ACKED", 5: "FAILED"}
    assert world.status().open_roots == 0


def test_verdicts_without_their_inits_are_known_until_all_of_these_were_read_again() -> None:
    """A restart commits before it has come to the init, and is killed."""
    world = World()
    writer = begin(world)
    cut_behind(world, None, writer)
    for now in range(1_000):
        writer.tick(now)
    writer.init((0, 3))
    writer.acks(runs=[(0, 2)], seq=1)
    world.limits = world.limits.model_copy(update={"step_records": 1})
    while AckerEventKind.ABORTED not in {event.kind for event in world.events}:
        world.step()
    world.crash()
    while not world.status().counts.transactions:
        world.step()
    world.crash()
    world.settle()
    assert world.of() == {0: "ACKED", 1: "ACKED"}
    assert world.status().open_roots == 1


class Forbidden(MemoryTransactions):
    """Aborts its first transaction for a right that is missing."""

    was_refused = False

    def commit(self, timeout_ms: int) -> None:
        if not self.was_refused:
            self.was_refused = True
            self._end(committed=False)
            raise NotAuthorized("the right to Write on Topic _ack_quarantine is missing")
        super().commit(timeout_ms)


class ForbiddenOnce(MemoryLog):
    """A log of which one right is missing for a moment."""

    def transactions(self, transactional_id: str) -> Transactions:
        return Forbidden(self._broker, self._faults, transactional_id)


def test_an_acker_that_ends_by_a_refused_transaction_does_not_write_state_without_its_verdicts() -> None:
    world = World()
    writer = begin(world)
    writer.init((0, 5))
    world.settle()
    world.crash(log=ForbiddenOnce(world.cluster, NoFaults()))
    writer.acks(runs=[(0, 3)], seq=1)
    writer.fails(4)
    with pytest.raises(NotAuthorized):
        world.settle()
    world.acker.close()
    world.acker = world.start()
    world.settle()
    assert world.of() == {0: "ACKED", 1: "ACKED", 2: "ACKED", 4: "FAILED"}


def test_an_acker_that_ends_amid_contributions_does_not_write_that_it_has_read_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Memory runs out; inits that were put off wait for the last commit just then."""
    world = World(limits=PUT_OFF)
    writer = begin(world)
    writer.init((0, 10_000))
    world.settle()
    writer.acks(values=[(position, 5) for position in range(10_000)], seq=1)
    with monkeypatch.context() as patch:

        def none_left(*_: object, **__: object) -> None:
            raise OSError(12, "Cannot allocate memory")

        patch.setattr(mmap, "mmap", none_left)
        with pytest.raises(OSError, match="memory"):
            world.settle()
        world.acker.close()
    world.acker = world.start()
    writer.acks(values=[(position, 5 ^ edge(position)) for position in range(10_000)], seq=2)
    world.settle()
    assert world.of() == dict.fromkeys(range(10_000), "ACKED")


def test_bins_of_a_cut_transaction_are_written_anew_with_the_next_state() -> None:
    """Also those that its first step does not change; another restart finds State behind the cut bins."""
    world = World(limits=CARRY_AT_ONCE)
    writer = begin(world)
    writer.init((0, 65_536))
    for block in range(2):
        first = block * 32_768
        writer.acks(values=[(first + at, 5) for at in range(32_768)], seq=0)
    world.settle()
    cut_behind(world, part_key(0, BIN_PART + 1), writer)
    writer.acks(values=[(0, 6)], seq=1)
    writer.acks(values=[(32_768, 6)], seq=1)
    while AckerEventKind.ABORTED not in {event.kind for event in world.events}:
        world.step()
    world.limits = CARRY_AT_ONCE.model_copy(update={"step_records": 1})
    world.crash()
    while not world.status().counts.transactions:
        world.step()
    world.crash()
    world.settle()
    for first in (0, 32_768):
        writer.acks(values=[(first, 5 ^ 6 ^ edge(first))], seq=2)
    world.settle()
    assert world.of() == {0: "ACKED", 32_768: "ACKED"}
