"""The one endless loop: a service's steps until a signal comes.

The first SIGTERM or SIGINT lets the running step finish; then the service is closed, which commits and
leaves the group. The second one ends the process at once: everything that counts is in the log, so nothing
is lost by it. All that time a thread watches that nothing hangs (`spout.runtime.step_watch`).

A SIGHUP lets a service read topics.yaml again, between two steps, where it can; else it is told and changes
nothing. A file that is wrong changes nothing either.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Protocol, Self

from acker.errors import ConfigError, UsageError, WindhoverError
from spout.runtime.metrics import flatten
from spout.runtime.step_watch import SIGNALS, StepWatch

STANDBY_AFTER_MS = 10_000
"""A member without partitions says so after this long; a rebalance takes less."""

STATUS_EVERY_MS = 60_000
"""How often the status is logged."""

LOOK_EVERY_MS = 500
"""How often the status is looked at, for metrics and for partitions that came or went."""


class Status(Protocol):
    """What the loop needs of a status."""

    @property
    def partitions(self) -> tuple[int, ...]:
        """Partition numbers that the service owns now."""


class Service(Protocol):
    """An acker or a replay worker."""

    def step(self, now_ms: int) -> bool:
        """Do one bounded round; wait a little when there is nothing to do."""

    def close(self) -> None:
        """Finish, commit, leave."""

    def status(self) -> Status:
        """Return what it owns and has counted."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the loop does not make itself.

    Attributes:
        part: acker or replay; begins the name of each event.
        clock: wall time, milliseconds.
        tell: logs an event with fields.
        publish: hands a status to the metrics.
        steps: watches that no step hangs.
        reload: lets the service go on with topics.yaml as it is now; None: it cannot.
    """

    part: str
    clock: Callable[[], int]
    tell: Callable[..., Any]
    publish: Callable[[Any], None]
    steps: StepWatch
    reload: Callable[[Any], None] | None = None


class Signals:
    """Notes the first SIGTERM or SIGINT, as a context; the second one has its ordinary effect at once.

    Attributes:
        received: that signal; None as long as there was none.
        hung_up: whether a SIGHUP came that nobody has answered.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self.hung_up = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._previous = {number: signal.signal(number, self._note) for number in SIGNALS}
        self._previous[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._hang_up)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _hang_up(self, _number: int, _frame: FrameType | None) -> None:
        self.hung_up = True

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.received = number
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)


def run_until_signalled(make: Callable[[], Service], around: Surroundings) -> int:
    """Make a service and step it until a signal comes.

    Args:
        make: makes the service; called with the signals noted already, so that it can be ended cleanly.
        around: name, clock, log and metrics.

    Returns:
        The exit code after a clean stop: 143 for SIGTERM, 130 for SIGINT.

    Raises:
        WindhoverError: what the service raised; it was closed before.
    """
    with Signals() as signals, around.steps as steps:
        service = make()
        watch = _Watch(around)
        try:
            while signals.received is None:
                if signals.hung_up:
                    signals.hung_up = False
                    _reload(service, around)
                now_ms = around.clock()
                service.step(now_ms)
                steps.stepped()
                watch.look(service, now_ms)
        except BaseException:
            # The first error is the one to tell; leaving the group is only a courtesy to the others.
            with suppress(WindhoverError):
                service.close()
            raise
        around.tell(f"{around.part}.stopping", signal=signal.Signals(signals.received).name)
        service.close()
        around.tell(f"{around.part}.stopped")
        return 128 + signals.received


def _reload(service: Service, around: Surroundings) -> None:
    """Let the service read topics.yaml again; what is wrong with it is told, and changes nothing."""
    part = around.part
    if around.reload is None:
        why = f"SIGHUP changes nothing here; start this process again to give the {part} another topics.yaml"
        around.tell(f"{part}.not_reloaded", why=why)
        return
    try:
        around.reload(service)
    except (ConfigError, UsageError) as error:
        around.tell(f"{part}.not_reloaded", why=str(error))
        return
    around.tell(f"{part}.reloaded")


class _Watch:
    """Tells when partitions come and go, and now and then the status."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._begun_ms: int | None = None
        self._looked_ms = 0
        self._told_ms = 0
        self._owned: tuple[int, ...] = ()
        self._waiting = True

    def look(self, service: Service, now_ms: int) -> None:
        """Look at the status if it is time to."""
        if self._begun_ms is None:
            self._begun_ms = self._told_ms = now_ms
        elif not self._waiting and abs(now_ms - self._looked_ms) < LOOK_EVERY_MS:
            return
        self._looked_ms = now_ms
        status = service.status()
        self._around.publish(status)
        self._partitions(status.partitions, now_ms - self._begun_ms)
        # A wall clock may be set back; then the next status comes at once rather than late.
        if abs(now_ms - self._told_ms) >= STATUS_EVERY_MS:
            self._told_ms = now_ms
            self._tell("status", **flatten(status), last_step_age_s=round(self._around.steps.age_s, 3))

    def _partitions(self, owned: tuple[int, ...], since_ms: int) -> None:
        if owned != self._owned:
            ready = owned and not self._owned
            self._owned = owned
            self._waiting = False
            self._tell("ready" if ready else "partitions", partitions=list(owned))
        elif self._waiting and since_ms >= STANDBY_AFTER_MS:
            self._waiting = False
            self._tell("standby")

    def _tell(self, event: str, **fields: Any) -> None:
        self._around.tell(f"{self._around.part}.{event}", **fields)
