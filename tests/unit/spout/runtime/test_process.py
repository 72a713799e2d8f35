"""The endless loop: it ends by a signal, closes the service, and says when it is ready."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from acker.errors import ConfigError, Unreachable
from spout.runtime.process import (
    STANDBY_AFTER_MS,
    STATUS_EVERY_MS,
    Signals,
    Surroundings,
    run_until_signalled,
)
from spout.runtime.step_watch import StepWatch


@dataclass(frozen=True)
class Owned:
    partitions: tuple[int, ...]


class Scripted:
    """A service that does one scripted thing in each step, and owns what the script says."""

    def __init__(self, *script: tuple[int, ...] | int | Exception) -> None:
        self.script = list(script)
        self.owned: tuple[int, ...] = ()
        self.closed = 0

    def step(self, now_ms: int) -> bool:
        match self.script.pop(0):
            case int() as number:
                os.kill(os.getpid(), number)
            case Exception() as error:
                raise error
            case tuple() as owned:
                self.owned = owned
        return True

    def close(self) -> None:
        self.closed += 1

    def status(self) -> Owned:
        return Owned(self.owned)


class Watched:
    """A loop's surroundings: a clock that moves by `tick_ms` a step, and what was told and published."""

    def __init__(self, tick_ms: int = 1000) -> None:
        self.told: list[str] = []
        self.fields: dict[str, dict[str, object]] = {}
        self.published: list[Owned] = []
        self.notified: list[str] = []
        self._now_ms = 0
        self._tick_ms = tick_ms

    def clock(self) -> int:
        self._now_ms += self._tick_ms
        return self._now_ms

    def tell(self, event: str, **fields: object) -> None:
        self.told.append(event)
        self.fields[event] = fields

    def run(self, make: Callable[[], Scripted], reload: Callable[[Scripted], None] | None = None) -> int:
        steps = StepWatch("acker", 60_000, 20_000, self.tell)
        around = Surroundings(
            "acker", self.clock, self.tell, self.published.append, steps, reload, self.notified.append
        )
        return run_until_signalled(make, around)


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_lets_the_step_finish_closes_the_service_and_gives_its_exit_code(
    number: signal.Signals, exit_code: int
) -> None:
    service, watched = Scripted((0, 1), int(number)), Watched()

    assert watched.run(lambda: service) == exit_code
    assert (service.script, service.closed) == ([], 1)
    assert watched.told == ["acker.ready", "acker.stopping", "acker.stopped"]
    assert watched.notified == ["READY=1", "STOPPING=1"]


def test_signal_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]

    Watched().run(lambda: Scripted(int(signal.SIGTERM)))

    after = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    assert after == before


def test_after_the_first_signal_a_second_one_has_its_ordinary_effect() -> None:
    seen: list[object] = []

    class Closing(Scripted):
        def close(self) -> None:
            seen.extend(signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT))

    Watched().run(lambda: Closing(int(signal.SIGTERM)))

    assert seen == [signal.SIG_DFL, signal.SIG_DFL]


def test_a_signal_while_the_service_is_made_ends_it_there() -> None:
    """D2401: it may look for a broker that is away; after 20 s it counted as hung, with exit code 70."""
    watched = Watched()
    came_back: list[bool] = []

    def make() -> Scripted:
        os.kill(os.getpid(), signal.SIGTERM)
        came_back.append(True)
        return Scripted()

    assert watched.run(make) == 143
    assert not came_back
    assert watched.told == ["acker.stopping", "acker.stopped"]
    assert watched.fields["acker.stopping"] == {
        "signal": "SIGTERM",
        "without_partitions": True,
        "doing": "starting",
    }


class Looking(Scripted):
    """A service whose steps look for a broker that is away, until a signal comes."""

    came_back = False

    def step(self, now_ms: int) -> bool:
        """Be interrupted there, unless it has a partition to finish."""
        super().step(now_ms)
        if self.script:
            return True
        os.kill(os.getpid(), signal.SIGINT)
        self.came_back = True
        return True


@pytest.mark.parametrize(("script", "finishes"), [([(), ()], False), ([(0,), ()], True)])
def test_a_signal_interrupts_a_step_of_who_never_had_a_partition(
    script: list[tuple[int, ...]], finishes: bool
) -> None:
    """D2401: one that had a partition finishes its step, though it has none now."""
    service, watched = Looking(*script), Watched()
    assert watched.run(lambda: service) == 130
    assert (service.came_back, service.closed) == (finishes, 1)
    assert watched.told[-2:] == ["acker.stopping", "acker.stopped"]


def test_a_hangup_lets_the_service_read_its_file_again_between_two_steps() -> None:
    """Before, it ended the process."""
    service, watched = Scripted((1,), int(signal.SIGHUP), (1,), int(signal.SIGTERM)), Watched()
    reloaded: list[int] = []

    assert watched.run(lambda: service, lambda one: reloaded.append(len(one.script))) == 143
    assert reloaded == [2]
    assert "acker.reloaded" in watched.told


def test_a_hangup_with_a_wrong_file_or_of_who_cannot_reload_is_logged_and_changes_nothing() -> None:
    def wrong(_service: Scripted) -> None:
        raise ConfigError("topics.yaml:3: it is wrong")

    for reload in (wrong, None):
        service, watched = Scripted((1,), int(signal.SIGHUP), (1,), int(signal.SIGTERM)), Watched()
        assert watched.run(lambda one=service: one, reload) == 143
        assert watched.told.count("acker.not_reloaded") == 1
        assert service.closed == 1


def test_an_error_of_the_service_closes_it_and_surfaces() -> None:
    service = Scripted((0,), Unreachable("the broker is away"))

    with pytest.raises(Unreachable, match="the broker is away"):
        Watched().run(lambda: service)
    assert service.closed == 1


def test_partitions_that_come_and_go_are_logged_and_ready_comes_with_the_first() -> None:
    watched = Watched()

    watched.run(lambda: Scripted((), (1,), (1, 2), (), (3,), int(signal.SIGTERM)))

    partitions = [event for event in watched.told if event in ("acker.ready", "acker.partitions")]
    assert partitions == ["acker.ready", "acker.partitions", "acker.partitions", "acker.ready"]


def test_a_member_without_partitions_says_once_that_it_stands_by() -> None:
    watched = Watched(tick_ms=STANDBY_AFTER_MS // 2)

    watched.run(lambda: Scripted((), (), (), (), (), int(signal.SIGTERM)))

    assert watched.told.count("acker.standby") == 1
    assert "acker.ready" not in watched.told


def test_the_status_is_logged_now_and_then_and_published_more_often() -> None:
    watched = Watched(tick_ms=STATUS_EVERY_MS // 2)

    watched.run(lambda: Scripted((1,), (1,), (1,), (1,), (1,), int(signal.SIGTERM)))

    assert watched.told.count("acker.status") == 2
    assert watched.fields["acker.status"] == {"partitions": (1,), "last_step_age_s": 0.0}
    assert len(watched.published) == 6


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_noted_and_raises_nothing_where_something_is_to_be_finished(
    number: signal.Signals,
) -> None:
    """The page and the driver of a topology: they end in order."""
    with Signals() as signals:
        signal.raise_signal(number)
        assert signals.received == number
