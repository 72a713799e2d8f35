"""What other people run beside a driver: a listener, a cleaner of temporary files, a consumer in its group.

Call it from the main thread.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spout.runtime import tether
from tests.torture.schedule import Victim

STRANGERS: Final = (Victim.LISTENERS, Victim.TEMPORARY_FILES, Victim.GROUP)
"""Victims that are hurt by what other people run."""

SLEEPING: Final = "listener.sleeps"
"""While the run's folder has a file of this name, the driver's listener sleeps in each event."""

TEMPORARY: Final = "tmp"
"""The folder, in the run's folder, that a driver uses for temporary files."""


@dataclass(frozen=True, slots=True)
class Joined:
    """The group that a stranger joins: the brokers, the group, and the topic that it reads."""

    bootstrap: str
    group: str
    topic: str


class Strangers:
    """A listener that sleeps, a cleaner, and a consumer; each is at rest until it is struck."""

    def __init__(self, folder: Path, joined: Joined, environ: Mapping[str, str]) -> None:
        """Keep where the run is, which group is joined, and the environment of the consumer."""
        self._folder = folder
        self._joined = joined
        self._environ = environ
        self._is_cleaning = False
        self._consumer: subprocess.Popen[bytes] | None = None

    def strike(self, victim: Victim) -> None:
        """Begin a blow on one of `STRANGERS`."""
        match victim:
            case Victim.LISTENERS:
                (self._folder / SLEEPING).touch()
            case Victim.TEMPORARY_FILES:
                self._is_cleaning = True
            case _:
                self._join()

    def heal(self, victim: Victim) -> None:
        """End a blow."""
        match victim:
            case Victim.LISTENERS:
                (self._folder / SLEEPING).unlink(missing_ok=True)
            case Victim.TEMPORARY_FILES:
                self._is_cleaning = False
            case _:
                self._leave()

    def step(self) -> None:
        """Remove the driver's temporary files, if it is their turn."""
        if self._is_cleaning:
            shutil.rmtree(self._folder / TEMPORARY, ignore_errors=True)
            # a cleaner leaves /tmp itself alone
            (self._folder / TEMPORARY).mkdir(exist_ok=True)

    def release(self) -> None:
        """End every blow."""
        for victim in STRANGERS:
            self.heal(victim)

    def _join(self) -> None:
        joined = self._joined
        program = ("-m", "tests.torture.stage.stranger", joined.bootstrap, joined.group, joined.topic)
        command = tether.Command(
            [sys.executable, *program], self._folder / "stranger.log", environ=self._environ
        )
        self._consumer = tether.spawn(command)

    def _leave(self) -> None:
        if self._consumer is not None:
            tether.kill(self._consumer)
            self._consumer = None
