"""The loop of a service's process: steps until a signal arrives.

The first SIGTERM or SIGINT lets the running step finish; then the service is closed, which commits and leaves
the group. The second signal ends the process at once; nothing is lost, since everything that matters is in
the log. A thread watches all the time that nothing hangs (`spout.runtime.step_watch`).

As long as the process has had no partition there is nothing to finish: it may look for a broker that is away,
or for its place in the group. So there the first signal ends the step, too, within the seconds that one call
into Kafka's client takes.

A SIGHUP lets a service load topics.yaml again between two steps, if it supports this; otherwise the signal is
only logged. A wrong file changes nothing either.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol, Self

from acker.errors import ConfigError, UsageError, WindhoverError
from spout.runtime.endpoints import OwnedPartitions
from spout.runtime.metrics import flatten
from spout.runtime.step_watch import SIGNALS, StepWatch

STANDBY_AFTER_MS = 10_000
"""A member without partitions logs that after this time; a rebalance takes less."""

STATUS_EVERY_MS = 60_000
"""How often the status is logged."""

READ_STATUS_EVERY_MS = 500
"""How often the status is read, for metrics and to notice changes of partitions."""


class Service(Protocol):
    """An acker or a replay worker."""

    def step(self, now_ms: int) -> bool:
        """Do one bounded round; wait a little if there is nothing to do."""

    def close(self) -> None:
        """Finish, commit and leave the group."""

    def status(self) -> OwnedPartitions:
        """Return its partitions and its counts."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the loop gets from outside; `clock` is wall time in ms.

    `part`, acker or replay, begins each event's name; `publish` gets the status for the metrics; `reload`
    takes the present topics.yaml, None: it cannot; `notify` gets ``READY=1`` and ``STOPPING=1`` for systemd.
    """

    part: str
    clock: Callable[[], int]
    log: Callable[..., Any]
    publish: Callable[[Any], None]
    steps: StepWatch
    reload: Callable[[Any], None] | None = None
    notify: Callable[[str], None] = lambda _state: None


class StepInterrupted(BaseException):
    """A signal came while there was nothing to finish. No `except Exception` on its way may keep it."""


class Signals:
    """Notes the first SIGTERM or SIGINT, and SIGHUP, as a context; a second one acts as usual, at once.

    Attributes:
        interrupts: whether the first one raises `StepInterrupted` as well, in whatever the main thread does.
        interrupted: what the loop did when an error, or that, ended it.
    """

    def __init__(self, *, interrupts: bool = False) -> None:
        self.interrupts = interrupts
        self.interrupted = ""
        self.received: int | None = None
        self.hung_up = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._previous = {number: signal.signal(number, self._note) for number in SIGNALS}
        self._previous[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._hang_up)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _hang_up(self, _number: int, _frame: FrameType | None) -> None:
        self.hung_up = True

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.received = number
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        if self.interrupts:
            raise StepInterrupted


def run_until_signalled(make: Callable[[], Service], around: Surroundings) -> int:
    """Create a service, step it until a signal arrives, and return 143 (SIGTERM) or 130 (SIGINT).

    An error of the service is raised after the service was closed.
    """
    with Signals(interrupts=True) as signals, around.steps as steps:
        doing = ""
        try:
            service = make()
            around.notify("READY=1")
            _step_until_signalled(service, around, signals)
        except StepInterrupted:
            doing = signals.interrupted or steps.doing
        signals.interrupts = False
        if signals.received is None:  # it is what ends the loop, and what raises
            raise RuntimeError("the loop of a service ended without a signal")
        around.notify("STOPPING=1")
        without_partitions = {"without_partitions": True, "doing": doing} if doing else {}
        name = signal.Signals(signals.received).name
        around.log(f"{around.part}.stopping", signal=name, **without_partitions)
        if not doing:
            service.close()
        around.log(f"{around.part}.stopped")
        return 128 + signals.received


def _step_until_signalled(service: Service, around: Surroundings, signals: Signals) -> None:
    """Step until a signal arrives; close the service where it raises, and where a signal interrupts it."""
    watch = _Watch(around)
    try:
        while signals.received is None:
            if signals.hung_up:
                signals.hung_up = False
                _reload(service, around)
            now_ms = around.clock()
            service.step(now_ms)
            around.steps.stepped()
            watch.check(service, now_ms)
            signals.interrupts = signals.interrupts and not watch.owned
    except BaseException:
        signals.interrupts = False
        signals.interrupted = around.steps.doing
        # Raise the first error; to leave the group is only a courtesy to the other members.
        with suppress(WindhoverError):
            service.close()
        raise


def _reload(service: Service, around: Surroundings) -> None:
    part = around.part
    if around.reload is None:
        why = f"SIGHUP changes nothing here; start this process again to give the {part} another topics.yaml"
        around.log(f"{part}.not_reloaded", why=why)
        return
    try:
        around.reload(service)
    except (ConfigError, UsageError) as error:
        around.log(f"{part}.not_reloaded", why=str(error))
        return
    around.log(f"{part}.reloaded")


class _Watch:
    """Logs when partitions come and go, and the status every `STATUS_EVERY_MS`; `owned` are those of now."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._begun_ms: int | None = None
        self._read_ms = 0
        self._logged_ms = 0
        self.owned: tuple[int, ...] = ()
        self._waiting = True

    def check(self, service: Service, now_ms: int) -> None:
        if self._begun_ms is None:
            self._begun_ms = self._logged_ms = now_ms
        elif not self._waiting and abs(now_ms - self._read_ms) < READ_STATUS_EVERY_MS:
            return
        self._read_ms = now_ms
        status = service.status()
        self._around.publish(status)
        self._partitions(status.partitions, now_ms - self._begun_ms)
        # The wall clock may be set back; then the next status comes early, not late.
        if abs(now_ms - self._logged_ms) >= STATUS_EVERY_MS:
            self._logged_ms = now_ms
            self._log("status", **flatten(status), last_step_age_s=round(self._around.steps.age_s, 3))

    def _partitions(self, owned: tuple[int, ...], since_ms: int) -> None:
        if owned != self.owned:
            ready = owned and not self.owned
            self.owned = owned
            self._waiting = False
            self._log("ready" if ready else "partitions", partitions=list(owned))
        elif self._waiting and since_ms >= STANDBY_AFTER_MS:
            self._waiting = False
            self._log("standby")

    def _log(self, event: str, **fields: Any) -> None:
        self._around.log(f"{self._around.part}.{event}", **fields)
