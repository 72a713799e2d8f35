"""What becomes of a driver that was replaced while it was stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

from spout.torture.parts import Driver
from spout.torture.schedule import Blow, Deed, Victim
from spout.torture.torturer import ZOMBIE_ENDS_MS_MAX, Torturer


class Child:
    """A process that does what the test says."""

    pid = None

    def __init__(self) -> None:
        """Run, and be ready."""
        self.lives = True
        self.works = True

    def alive(self) -> bool:
        """Whether it runs."""
        return self.lives

    def ready(self) -> bool:
        """Whether it works."""
        return self.works

    def start(self) -> None:
        """Run already."""

    def kill(self) -> None:
        """End."""
        self.lives = False

    def obituary(self, _seconds: float) -> str:
        """Say what happened."""
        return "did not end"


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
