"""A broker of the tests that is a process of its own, at one address and with one folder."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from spout.local.broker_settings import HOST
from spout.local.embedded import free_port, in_thread
from spout.runtime import tether
from tests.support.waiting import TIMEOUT_S, eventually

STOP_MS: Final = 15_000
ANSWER_S: Final = 2.0


class ProcessBroker(ABC):
    """One broker, at one address and with one folder over all its restarts."""

    start_s_max: ClassVar[float] = TIMEOUT_S
    """How long a start may take."""

    def __init__(self, folder: Path) -> None:
        self.directory = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None  # None: it does not run

    @abstractmethod
    def command(self) -> Sequence[str]:
        """Return what starts it: a program and its arguments."""

    @property
    def bootstrap(self) -> str:
        """The value of `bootstrap.servers` for a client on this machine."""
        return f"{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        """The file with what it writes, over all its starts."""
        return self.directory / "broker.log"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = tether.spawn(tether.Command(self.command(), self.log, self.directory))
        eventually(self._answers, self.start_s_max, told=lambda: tether.last_lines(self.log))

    def _answers(self) -> bool:
        process = self._process
        if process is None or process.poll() is not None:
            log_end = tether.last_lines(self.log)
            raise AssertionError(f"the broker does not run; {self.log} ends with:\n{log_end}")

        def ask() -> bool:
            client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            try:
                return bool(client.list_topics(timeout=ANSWER_S).brokers)
            except KafkaException:
                return False

        return in_thread(ask)

    def stop(self) -> None:
        """End it in order; if it does not run, do nothing."""
        if self._process is not None:
            tether.stop(self._process, STOP_MS)
            self._process = None

    def kill(self) -> None:
        """End it by SIGKILL."""
        if self._process is not None:
            tether.kill(self._process)
            self._process = None

    def restart(self) -> None:
        """Start it again, at the same address and with its data."""
        self.stop()
        self.start()
