"""The loop of a service's process: steps until a signal arrives.

The first SIGTERM or SIGINT lets the running step finish; then the service is closed, which
commits and leaves the group. The second signal ends the process at once; nothing is lost, since
everything that matters is in the log. A thread watches all the time that nothing hangs
(`spout.runtime.step_watch`).

As long as the process has had no partition there is nothing to finish: it may look for a broker
that is away, or for its place in the group. So there the first signal ends the step, too,
within the seconds that one call into Kafka's client takes.

A SIGHUP lets a service load topics.yaml again between two steps, if it supports this; otherwise
the signal is only logged. A wrong file changes nothing either.
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
    """What the loop of a service gets from outside.

    Attributes:
        part: acker or replay; the names of events begin with it.
        clock: returns wall time, ms.
        log: logs an event with fields.
        publish: gets the status, for the metrics.
        steps: watches that no step hangs.
        reload: has a service read topics.yaml again; None: it cannot.
        notify: gets ``READY=1`` and ``STOPPING=1`` for systemd.
    """

    part: str
    clock: Callable[[], int]
    log: Callable[..., Any]
    publish: Callable[[Any], None]
    steps: StepWatch
    reload: Callable[[Any], None] | None = None
    notify: Callable[[str], None] = lambda _state: None


class StepInterrupted(BaseException):
    """A signal came while there was nothing to finish.

    No `except Exception` on its way may keep it.
    """


class Signals:
    """Records the first SIGTERM or SIGINT, and SIGHUP, as long as the context lasts.

    A second SIGTERM or SIGINT acts as usual, at once.

    Attributes:
        interrupts_step: whether the first one also raises `StepInterrupted`, in whatever the main
            thread does.
        interrupted_operation: what the loop did when an error, or `StepInterrupted`, ended it;
            empty: none has.
        received: the number of the first SIGTERM or SIGINT; None: there was none.
        asks_for_reload: whether a SIGHUP came; who has acted on it sets it back.
    """

    def __init__(self, *, interrupts_step: bool = False) -> None:
        self.interrupts_step = interrupts_step
        self.interrupted_operation = ""
        self.received: int | None = None
        self.asks_for_reload = False
        self._former_handlers: dict[int, Any] = {}  # by signal

    def __enter__(self) -> Self:
        """Take the signals over."""
        for number in SIGNALS:
            self._former_handlers[number] = signal.signal(number, self._receive)
        self._former_handlers[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._hang_up)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former_handlers.items():
            signal.signal(number, handler)

    def _hang_up(self, _number: int, _frame: FrameType | None) -> None:
        self.asks_for_reload = True

    def _receive(self, received: int, _frame: FrameType | None) -> None:
        """Keep the first signal; the next one acts as usual, which ends the process."""
        self.received = received
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        if self.interrupts_step:
            raise StepInterrupted


def run_until_signalled(make: Callable[[], Service], surroundings: Surroundings) -> int:
    """Create a service, step it until a signal arrives, and return 143 (SIGTERM) or 130 (SIGINT).

    An error of the service is raised after the service was closed.
    """
    with Signals(interrupts_step=True) as signals, surroundings.steps as steps:
        interrupted_operation = ""  # empty: the signal interrupted nothing
        try:
            service = make()
            surroundings.notify("READY=1")
            _step_until_signalled(service, surroundings, signals)
        except StepInterrupted:
            # the loop has noted its operation, since closing the service was another one;
            # `make` has not
            interrupted_operation = signals.interrupted_operation or steps.doing
        signals.interrupts_step = False
        if signals.received is None:  # a signal ends the loop, and a signal raises
            raise RuntimeError("the loop of a service ended without a signal")
        surroundings.notify("STOPPING=1")
        fields: dict[str, object] = {"signal": signal.Signals(signals.received).name}
        if interrupted_operation:
            fields |= {"without_partitions": True, "doing": interrupted_operation}
        surroundings.log(f"{surroundings.part}.stopping", **fields)
        if not interrupted_operation:
            # a service that was interrupted is closed already, or was never made
            service.close()
        surroundings.log(f"{surroundings.part}.stopped")
        return 128 + signals.received


def _step_until_signalled(service: Service, surroundings: Surroundings, signals: Signals) -> None:
    """Step a service until a signal arrives.

    If it raises, or a signal interrupts it, close it here; else the caller closes it.
    """
    status_log = _StatusLog(surroundings)
    try:
        while signals.received is None:
            if signals.asks_for_reload:
                signals.asks_for_reload = False
                _reload(service, surroundings)
            now_ms = surroundings.clock()
            service.step(now_ms)
            surroundings.steps.record_step_end()
            status_log.publish_status_if_due(service, now_ms)
            # a service that once had a partition has something to finish, so its steps are not
            # interrupted any more
            if status_log.owned_partitions:
                signals.interrupts_step = False
    except BaseException:
        signals.interrupts_step = False
        signals.interrupted_operation = surroundings.steps.doing
        # Raise the first error; to leave the group is only a courtesy to the other members.
        with suppress(WindhoverError):
            service.close()
        raise


def _reload(service: Service, surroundings: Surroundings) -> None:
    """Have a service load topics.yaml again, and log whether it did.

    A wrong file changes nothing.
    """
    part = surroundings.part
    if surroundings.reload is None:
        cure = f"start this process again to give the {part} another topics.yaml"
        surroundings.log(f"{part}.not_reloaded", why=f"SIGHUP changes nothing here; {cure}")
        return
    try:
        surroundings.reload(service)
    except (ConfigError, UsageError) as error:
        surroundings.log(f"{part}.not_reloaded", why=str(error))
        return
    surroundings.log(f"{part}.reloaded")


class _StatusLog:
    """Logs when partitions come and go, and the status every `STATUS_EVERY_MS`.

    Attributes:
        owned_partitions: those of the process, as of the last status that was read.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        # wall times at which the status was first read, last read and last logged
        self._first_read_ms: int | None = None  # None: it was not read yet
        self._last_read_ms = 0
        self._last_logged_ms = 0
        self.owned_partitions: tuple[int, ...] = ()
        # True until the process has partitions, or has logged that it is a standby
        self._awaits_partitions = True

    def publish_status_if_due(self, service: Service, now_ms: int) -> None:
        """Read and publish the status, and log it every `STATUS_EVERY_MS`.

        It is read at the first call, at every call while partitions are awaited, and else every
        `READ_STATUS_EVERY_MS`.
        """
        # Absolute differences here and below: the wall clock may be set back, and then the next
        # status comes early, not late.
        is_recent = abs(now_ms - self._last_read_ms) < READ_STATUS_EVERY_MS
        if self._first_read_ms is None:
            self._first_read_ms = self._last_logged_ms = now_ms
        elif is_recent and not self._awaits_partitions:
            return
        self._last_read_ms = now_ms
        status = service.status()
        self._surroundings.publish(status)
        self._record_partitions(status.partitions, running_ms=now_ms - self._first_read_ms)
        if abs(now_ms - self._last_logged_ms) >= STATUS_EVERY_MS:
            self._last_logged_ms = now_ms
            step_age_s = round(self._surroundings.steps.age_s, 3)
            self._log("status", **flatten(status), last_step_age_s=step_age_s)

    def _record_partitions(self, owned_partitions: tuple[int, ...], running_ms: int) -> None:
        """Record and log a change of partitions.

        Log once if there are still none after `STANDBY_AFTER_MS`. `running_ms`: for how long the
        loop has run.
        """
        if owned_partitions != self.owned_partitions:
            has_first_ones = bool(owned_partitions) and not self.owned_partitions
            self.owned_partitions = owned_partitions
            self._awaits_partitions = False
            event = "ready" if has_first_ones else "partitions"
            self._log(event, partitions=list(owned_partitions))
        elif self._awaits_partitions and running_ms >= STANDBY_AFTER_MS:
            self._awaits_partitions = False
            self._log("standby")

    def _log(self, event: str, **fields: Any) -> None:
        """Log an event of this part."""
        self._surroundings.log(f"{self._surroundings.part}.{event}", **fields)
