"""What becomes of a driver that was replaced while it was stopped, and what waits for brokers and drivers."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.torture.judging.causes import Strike
from tests.torture.schedule import Blow, Deed, Victim
from tests.torture.stage.parts import Driver, Part
from tests.torture.torturer import DRIVER_STARTS_MS_MAX, ZOMBIE_ENDS_MS_MAX, Torturer


class Child:
    """A process that does what the test says."""

    pid = None

    def __init__(self) -> None:
        """Run, and be ready."""
        self.lives = True
        self.works = True
        self.ends_cleanly = True

    def alive(self) -> bool:
        """Whether it runs."""
        return self.lives

    def ready(self) -> bool:
        """Whether it works."""
        return self.works

    def start(self) -> None:
        """Run."""
        self.lives = True

    def stop(self) -> bool:
        """End."""
        self.lives = False
        return self.ends_cleanly

    def kill(self) -> None:
        """End."""
        self.lives = False

    def how_it_ended(self, _seconds: float = 0.0) -> str:
        """Say what happened."""
        return "did not end"


class Brokers:
    """Brokers that do what the test says."""

    def __init__(self) -> None:
        """Be well."""
        self.well = True

    def are_well(self) -> bool:
        """Whether they are."""
        return self.well

    def strike(self, _victim: Victim, _deed: Deed) -> None:
        """Be not."""
        self.well = False

    def heal(self, _victim: Victim, _deed: Deed) -> bool:
        """Need a while still; nothing was moved."""
        return _deed is not Deed.MOVE


class Cluster:
    """Three brokers, an acker, and a driver whose tasks run on executors."""

    def __init__(self, tmp_path: Path) -> None:
        """Let everything be well."""
        self.now_ms = 0
        self.acker, self.child, self.brokers = Child(), Child(), Brokers()
        anything: Any = Mock()
        acker: Any = self.acker
        child: Any = self.child
        brokers: Any = self.brokers
        driver = Driver(
            Victim.DRIVER, child, None, anything, make=Mock(return_value=child), checkpoints=tmp_path
        )
        parts = {Victim.DRIVER: driver, Victim.ACKER_1: Part(Victim.ACKER_1, acker, None, anything)}
        self.strangers = Mock()
        self.torturer = Torturer(
            brokers,
            parts,
            driver,
            None,
            anything,
            strangers=self.strangers,
            clock=lambda: self.now_ms,
            grace_ms=0,
        )

    def hit(self, victim: Victim, deed: Deed) -> None:
        """Let a blow fall that is over at once."""
        blow = Blow(self.now_ms, victim, deed, 0)
        self.torturer.strike(blow)
        self.torturer.relent(blow)


class Scene:
    """A driver, and whoever takes its place."""

    def __init__(self, tmp_path: Path) -> None:
        """Freeze the driver and put another one beside it, which has not come up yet."""
        self.now_ms = 0
        self.first, self.second = Child(), Child()
        self.second.works = False
        anything: Any = Mock()
        first: Any = self.first
        driver = Driver(
            Victim.DRIVER,
            first,
            anything,
            anything,
            make=Mock(return_value=self.second),
            checkpoints=tmp_path,
        )
        self.torturer = Torturer(
            anything, {Victim.DRIVER: driver}, driver, None, clock=lambda: self.now_ms, grace_ms=0
        )
        blow = Blow(0, Victim.DRIVER, Deed.ZOMBIE, 5_000)
        self.torturer.strike(blow)
        self.torturer.relent(blow)

    def look(self, after_ms: int) -> None:
        """Let time pass, a second at a time, looking all the while."""
        for _ in range(after_ms // 1_000):
            self.now_ms += 1_000
            self.torturer.look()


def test_a_zombie_is_the_driver_until_the_other_one_works(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.look(2 * ZOMBIE_ENDS_MS_MAX)
    assert not scene.torturer.survivors
    assert not scene.torturer.is_well
    scene.second.works = True
    scene.look(2_000)
    scene.first.lives = False
    scene.look(1_000)
    assert not scene.torturer.survivors
    assert scene.torturer.is_well


def test_a_zombie_that_does_not_end_beside_another_driver_is_a_finding(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.second.works = True
    scene.look(ZOMBIE_ENDS_MS_MAX - 2_000)
    assert not scene.torturer.survivors
    scene.look(4_000)
    assert scene.torturer.survivors == ["did not end"]
    assert not scene.first.lives


def test_no_broker_is_hurt_before_all_copies_are_in_sync_again(tmp_path: Path) -> None:
    scene = Cluster(tmp_path)
    scene.hit(Victim.BROKER, Deed.KILL)
    next_one = Blow(0, Victim.BROKER_2, Deed.STOP, 0)
    scene.now_ms = 9_000
    scene.torturer.look()
    assert scene.torturer.waits(next_one)
    assert not scene.torturer.waits(Blow(0, Victim.EXECUTOR, Deed.KILL, 0))
    assert not scene.torturer.is_well
    scene.brokers.well = True
    scene.torturer.look()
    assert not scene.torturer.waits(next_one)
    assert scene.torturer.strikes == [Strike(Victim.BROKER, Deed.KILL, 0, 9_000)]
    assert scene.torturer.is_well


def test_coordinators_that_could_not_be_moved_are_no_blow(tmp_path: Path) -> None:
    scene = Cluster(tmp_path)
    scene.hit(Victim.COORDINATORS, Deed.ELECT)
    scene.hit(Victim.COORDINATORS, Deed.MOVE)
    assert scene.torturer.spared == 1
    assert +scene.torturer.blows == {(Victim.COORDINATORS, Deed.ELECT): 1}


@pytest.mark.parametrize("victim", [Victim.EXECUTOR, Victim.DRIVER, Victim.TEMPORARY_FILES])
def test_neither_driver_nor_executor_is_hurt_while_a_restarted_driver_has_not_come_back(
    tmp_path: Path, victim: Victim
) -> None:
    scene = Cluster(tmp_path)
    scene.child.works = False
    scene.hit(Victim.DRIVER, Deed.STOP)
    assert scene.child.lives
    blow = Blow(0, victim, Deed.KILL, 0)
    assert scene.torturer.waits(blow)
    scene.child.works = True
    scene.torturer.look()
    assert not scene.torturer.waits(blow)


def test_a_service_that_does_not_end_by_sigterm_is_a_finding(tmp_path: Path) -> None:
    scene = Cluster(tmp_path)
    scene.hit(Victim.ACKER_1, Deed.STOP)
    assert scene.torturer.endings == []
    scene.acker.ends_cleanly = False
    scene.hit(Victim.ACKER_1, Deed.STOP)
    assert len(scene.torturer.endings) == 1
    assert scene.acker.lives


def test_a_cleaner_rests_while_a_driver_starts(tmp_path: Path) -> None:
    """A blow within a commit starts one while the cleaner is at work; PySpark would wait for ever."""
    cluster = Cluster(tmp_path)
    cleaner = cluster.strangers
    cluster.torturer.strike(Blow(0, Victim.TEMPORARY_FILES, Deed.CLEAN, 5_000))
    cluster.torturer.look()
    assert cleaner.step.call_count == 1
    cluster.child.works = False
    cluster.hit(Victim.DRIVER, Deed.KILL)
    cluster.torturer.look()
    assert cleaner.step.call_count == 1
    cluster.child.works = True
    cluster.torturer.look()  # sees that the driver works
    cluster.torturer.look()
    assert cleaner.step.call_count == 2


def test_a_driver_that_does_not_come_to_work_is_killed_and_is_a_finding(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.child.works = False
    cluster.hit(Victim.DRIVER, Deed.KILL)
    cluster.now_ms = DRIVER_STARTS_MS_MAX - 1
    cluster.torturer.look()
    assert cluster.torturer.endings == []
    cluster.now_ms = DRIVER_STARTS_MS_MAX
    cluster.torturer.look()
    assert cluster.torturer.endings == ["driver: did not end"]
    assert cluster.child.lives, "another one is started"
    cluster.torturer.look()
    assert len(cluster.torturer.endings) == 1, "the other one has its time, too"
