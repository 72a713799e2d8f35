"""A driver signals itself within a commit when it is ordered, and the torturer goes on with what is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from spout.exactly_once.store import BatchKey, StoreGrant
from tests.support.waiting import eventually
from tests.torture.exact.rows import StoredRow
from tests.torture.exact.struck_store import Order, StruckStore
from tests.torture.exact.torturing import StruckFromOutside
from tests.torture.schedule import (
    CHANCES,
    CHANCES_WITH_STORE,
    IN_COMMIT,
    KILLS,
    ON_STORES,
    Blow,
    Deed,
    Victim,
    draw,
)
from tests.torture.stage.family import is_stopped
from tests.torture.stage.parts import Driver
from tests.torture.torturer import Torturer

HALF_HOUR_MS = 30 * 60_000
KEY = BatchKey("g", 1, "s", "q", 0)

COMMITTER = """
import sys, time
from pathlib import Path
import pyarrow as pa
from spout.exactly_once.store import BatchKey
from tests.torture.exact.struck_store import Order, StruckStore

class Slow:
    def open(self, group, epoch_min): ...
    def commit(self, key, rows, publication):
        time.sleep(0.05)

store = StruckStore(Slow(), Order(Path(sys.argv[1])))
while True:
    store.commit(BatchKey("g", 1, "s", "q", 0), pa.table({}), b"")
"""


class Kept:
    """A store that counts its commits."""

    def __init__(self) -> None:
        """Begin with none, and take commits."""
        self.commits = 0
        self.refuses = False
        self.answers = True

    def open(self, group: str, epoch_min: int) -> StoreGrant:
        """Grant."""
        return StoreGrant(epoch_min, None)

    def commit(self, key: BatchKey, rows: pa.Table, publication: bytes) -> None:
        """Count."""
        self.commits += 1

    argument = "kept"

    def refuse(self) -> None:
        """Refuse."""
        self.refuses = True

    def accept(self) -> bool:
        """Take commits again, if it answers."""
        self.refuses = self.refuses and not self.answers
        return self.answers

    def rows(self) -> list[StoredRow]:
        """Have none."""
        return []


@pytest.fixture
def committer(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that commits without end."""
    with subprocess.Popen([sys.executable, "-c", COMMITTER, str(tmp_path)]) as process:
        yield process
        process.kill()


class Pair:
    """A driver that is a process, and the one that takes its place."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        """Begin with a store that takes commits."""
        self.first, self.second = Mock(pid=process.pid), Mock(pid=None)
        # a driver that was started again lives
        self.first.alive = lambda: self.first.start.called or process.poll() is None
        self.second.alive.return_value = True
        self.driver = Driver(
            Victim.DRIVER, self.first, None, Mock(), make=lambda _path: self.second, checkpoints=folder
        )
        self.store = Kept()
        anything: Any = Mock()
        self.now_ms = 0
        self.torturer = Torturer(
            anything, {Victim.DRIVER: self.driver}, self.driver, None,
            store=StruckFromOutside(self.store, Order(folder)), clock=self.clock, grace_ms=0,
        )  # fmt: skip

    def clock(self) -> int:
        """Let a millisecond pass with each look at the clock."""
        self.now_ms += 1
        return self.now_ms


def test_an_order_is_carried_out_once(tmp_path: Path) -> None:
    order, kept = Order(tmp_path), Kept()
    store = StruckStore(kept, order)
    received: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _frame: received.append(number))
    try:
        store.commit(KEY, pa.table({}), b"")
        order.give(signal.SIGUSR1)
        assert order.is_given()
        store.commit(KEY, pa.table({}), b"")
        assert not order.is_given()
        eventually(lambda: received)
        store.commit(KEY, pa.table({}), b"")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (received, kept.commits) == ([signal.SIGUSR1], 3)


def test_an_order_that_is_withdrawn_is_not_carried_out(tmp_path: Path) -> None:
    order = Order(tmp_path)
    order.withdraw()
    order.give(signal.SIGKILL)
    order.withdraw()
    assert order.take() is None
    assert list(tmp_path.iterdir()) == []


def test_a_driver_that_killed_itself_in_a_commit_is_started_again(
    tmp_path: Path, committer: subprocess.Popen[bytes]
) -> None:
    pair = Pair(committer, tmp_path)
    blow = Blow(0, Victim.DRIVER, Deed.KILL_IN_COMMIT, 10_000)
    pair.torturer.strike(blow)
    eventually(lambda: committer.poll() is not None)
    pair.torturer.look()
    pair.first.start.assert_called_once_with()
    assert committer.returncode == -signal.SIGKILL
    pair.torturer.relent(blow)
    assert (pair.torturer.kills, pair.torturer.spared, pair.torturer.driver_endings) == (1, 0, 0)


@pytest.mark.parametrize("deed", sorted(IN_COMMIT - {Deed.KILL_IN_COMMIT}))
def test_a_driver_that_stopped_itself_in_a_commit_is_a_zombie_until_the_blow_is_over(
    deed: Deed, tmp_path: Path, committer: subprocess.Popen[bytes]
) -> None:
    pair = Pair(committer, tmp_path)
    blow = Blow(0, Victim.DRIVER, deed, 10_000)
    pair.torturer.strike(blow)
    eventually(lambda: is_stopped(committer.pid))
    pair.torturer.look()
    assert pair.driver.child is pair.second
    assert pair.driver.number == (2 if deed is Deed.ZOMBIE_IN_COMMIT_TAKEN_OVER else 1)
    pair.second.start.assert_called_once_with()
    pair.torturer.relent(blow)
    eventually(lambda: not is_stopped(committer.pid))
    assert pair.torturer.spared == 0


@pytest.mark.parametrize("deed", sorted(IN_COMMIT))
def test_a_driver_that_commits_nothing_is_spared(deed: Deed, tmp_path: Path) -> None:
    alive = Mock(pid=os.getpid())
    alive.poll.return_value = None
    pair = Pair(alive, tmp_path)
    blow = Blow(0, Victim.DRIVER, deed, 10_000)
    pair.torturer.strike(blow)
    pair.torturer.look()
    pair.torturer.relent(blow)
    assert (pair.torturer.spared, +pair.torturer.blows) == (1, {})
    assert list(tmp_path.iterdir()) == []
    assert pair.driver.child is pair.first


def test_a_store_that_could_not_be_told_to_take_commits_again_is_told_later(tmp_path: Path) -> None:
    alive = Mock(pid=os.getpid())
    alive.poll.return_value = None
    pair = Pair(alive, tmp_path)
    blow = Blow(0, Victim.STORE, Deed.REFUSE, 1_000)
    pair.torturer.strike(blow)
    assert pair.store.refuses
    pair.store.answers = False
    pair.torturer.relent(blow)
    pair.torturer.look()
    assert pair.store.refuses
    pair.store.answers = True
    pair.torturer.look()
    assert not pair.store.refuses


@pytest.mark.parametrize("seed", range(20))
def test_half_an_hour_with_a_store_has_every_blow_on_it(seed: int) -> None:
    blows = draw(seed, HALF_HOUR_MS, chances=CHANCES_WITH_STORE)
    assert {blow.deed for blow in blows} >= ON_STORES
    assert sum(blow.deed in KILLS for blow in blows) >= 180


def test_without_a_store_there_is_no_blow_on_one() -> None:
    deeds = {chance.deed for chance in CHANCES}
    assert not deeds & ON_STORES
    assert {chance.deed for chance in CHANCES_WITH_STORE} == deeds | ON_STORES
