"""Does what the schedule says, and starts again what ended by itself. Call it from the main thread.

A blow begins with `strike` and ends with `relent`. `look` supervises between blows, as a cluster's
supervisor would: a driver whose query failed is started again; so is a service, but one that ended by itself
is a finding.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from tests.torture.exact.torturing import Blown, StruckFromOutside
from tests.torture.judging.causes import Strike
from tests.torture.schedule import BROKERS, IN_COMMIT, KILLS, SPARK_WORKERS, Blow, Deed, Victim
from tests.torture.stage.brokers import Brokers
from tests.torture.stage.disk import SmallDisk
from tests.torture.stage.family import signal_all
from tests.torture.stage.parts import Driver, Part, Zombie
from tests.torture.stage.spark_cluster import SparkCluster
from tests.torture.stage.strangers import STRANGERS, Strangers

ZOMBIE_ENDS_MS_MAX: Final = 60_000
"""A driver that was replaced while it was stopped has this long to end, once the other one works."""

DRIVER_STARTS_MS_MAX: Final = 300_000
"""A driver that does not work so long after its start hangs. It is killed, which is a finding of the run."""

TAKEN_MS_MAX: Final = 10_000
"""A driver that took an order carries it out within so long."""


class Torturer:
    """Hurts the parts of a run, and keeps a record of it."""

    def __init__(
        self,
        brokers: Brokers,
        parts: Mapping[Victim, Part],
        driver: Driver,
        disk: SmallDisk | None,
        spark: SparkCluster | None = None,
        strangers: Strangers | None = None,
        *,
        store: StruckFromOutside | None = None,
        clock: Callable[[], int],
        grace_ms: int,
    ) -> None:
        """Begin with everything running and well.

        Args:
            brokers: the broker, or all of a cluster.
            parts: all other victims, the driver among them.
            driver: the driver.
            disk: the checkpoints' disk, None where it cannot be filled.
            spark: workers and executors, None where the driver runs its tasks itself.
            strangers: what other people run beside the driver, None where nothing does.
            store: where the driver writes exactly once, None where it does not.
            clock: wall time, ms.
            grace_ms: for how long after a recovery a late root may be laid to the blow.
        """
        self.strikes: list[Strike] = []
        self.endings: list[str] = []
        self.survivors: list[str] = []
        self.blows: Counter[tuple[Victim, Deed]] = Counter()
        self.driver_endings = 0
        self.spared = 0
        self._brokers = brokers
        self._spark = spark
        self._strangers = strangers
        self._store = store
        self._parts = parts
        self._driver = driver
        self._disk = disk
        self._clock = clock
        self._grace_ms = grace_ms
        self._recovering: list[tuple[Deed | None, int]] = []
        self._brokers_recovering: list[tuple[Victim, Deed, int]] = []
        self._zombies: list[Zombie] = []
        self._began: dict[Blow, int] = {}
        self._disk_is_full = False

    @property
    def kills(self) -> int:
        """How often SIGKILL was sent."""
        return sum(count for (_, deed), count in self.blows.items() if deed in KILLS)

    @property
    def has_stepped(self) -> bool:
        """Whether some wall clock was stepped."""
        return any(deed is Deed.CLOCK for _, deed in self.blows)

    @property
    def is_well(self) -> bool:
        """Whether the driver works, all copies are in sync, and no zombie is left."""
        return not self._recovering and not self._brokers_recovering and not self._zombies

    def waits(self, blow: Blow) -> bool:
        """Tell whether a blow is put off: one broker at a time is away, a driver comes back before it is hit
        again, and executors need one.
        """
        if blow.victim in (*BROKERS, Victim.COORDINATORS, Victim.STORE):
            return bool(self._brokers_recovering)
        needs_driver = (Victim.DRIVER, Victim.TEMPORARY_FILES, Victim.EXECUTOR, *SPARK_WORKERS)
        return blow.victim in needs_driver and bool(self._recovering)

    def strike(self, blow: Blow) -> None:
        """Begin a blow."""
        self.blows[blow.victim, blow.deed] += 1
        self._began[blow] = self._clock()
        if blow.deed in IN_COMMIT and self._store is not None:
            self._store.order(blow.deed, self._driver)
        elif blow.victim is Victim.STORE and self._store is not None:
            self._store.refuse()
        elif blow.victim in self._parts:
            self._strike_part(self._parts[blow.victim], blow)
        elif self._spark is not None and blow.victim in (Victim.EXECUTOR, *SPARK_WORKERS):
            self._spark.strike(blow.victim, blow.deed)
        elif self._strangers is not None and blow.victim in STRANGERS:
            self._strangers.strike(blow.victim)
        else:
            self._brokers.strike(blow.victim, blow.deed)

    def _strike_part(self, part: Part, blow: Blow) -> None:
        match blow.deed:
            case Deed.KILL:
                part.kill()
            case Deed.KILL_FAMILY:
                part.kill_family()
            case Deed.STOP:
                if not part.stop():
                    self.endings.append(f"{part.victim}: did not end by SIGTERM: {part.child.how_it_ended()}")
            case Deed.TAKE_OVER:
                part.kill()
                self._driver.take_over()
            case Deed.FREEZE:
                part.freeze()
            case Deed.ZOMBIE | Deed.ZOMBIE_TAKEN_OVER:
                self._replace_frozen(fresh=blow.deed is Deed.ZOMBIE_TAKEN_OVER)
            case Deed.CUT if part.proxy is not None:
                part.proxy.cut()
            case Deed.SILENCE if part.proxy is not None:
                part.proxy.silence()
            case Deed.CLOCK:
                part.clock.step(blow.amount_ms)
            case Deed.FULL_DISK:
                self._fill_disk(full=True)

    def relent(self, blow: Blow) -> None:
        """End a blow; its victim may need a while to come back."""
        began_ms = self._began.pop(blow)
        if blow.deed in IN_COMMIT and self._store is not None:
            self._end_order(blow, self._store)
            return
        if blow.victim is Victim.STORE and self._store is not None:
            self._store.accept()
        elif blow.victim in self._parts:
            self._heal_part(self._parts[blow.victim], blow.deed)
        elif self._spark is not None and blow.victim in (Victim.EXECUTOR, *SPARK_WORKERS):
            self._spark.heal(blow.victim)
        elif self._strangers is not None and blow.victim in STRANGERS:
            self._strangers.heal(blow.victim)
        else:
            if not self._brokers.heal(blow.victim, blow.deed):
                self.spared += 1
                self.blows[blow.victim, blow.deed] -= 1
            self._brokers_recovering.append((blow.victim, blow.deed, began_ms))
            return
        if blow.victim is Victim.DRIVER and blow.deed in {*KILLS, Deed.STOP}:
            self._recovering.append((blow.deed, began_ms))
        else:
            self._note(blow.victim, blow.deed, began_ms)

    def look(self) -> None:
        """Start again what ended by itself; notice a driver that works again, and zombies that have ended."""
        # A blow within a commit starts a driver at any time, so also while the cleaner is at work. It rests
        # meanwhile: PySpark waits for ever if somebody removes what its JVM writes while it starts.
        if self._strangers is not None and not self._recovering:
            self._strangers.step()
        if self._store is not None:
            self._store.step()
            self._look_into_commit(self._store)
        for part in self._parts.values():
            if part.wanted and not part.child.alive() and not (part is self._driver and self._disk_is_full):
                self._ended_by_itself(part)
        if self._recovering and self._driver.child.alive() and self._driver.child.ready():
            for deed, began_ms in self._recovering:
                self._note(Victim.DRIVER, deed, began_ms)
            self._recovering.clear()
        self._end_driver_that_hangs()
        if self._brokers_recovering and self._brokers.are_well():
            for victim, deed, began_ms in self._brokers_recovering:
                self._note(victim, deed, began_ms)
            self._brokers_recovering.clear()
        for zombie in list(self._zombies):
            self._look_at(zombie)

    def release(self) -> None:
        """Let no process stay stopped, and none behind that a killed driver had started."""
        for part in self._parts.values():
            part.thaw()
            if part.proxy is not None:
                part.proxy.heal()
        for zombie in self._zombies:
            signal_all(zombie.frozen, signal.SIGKILL)
        signal_all(self._driver.left, signal.SIGKILL)
        self._brokers.release()
        for others in (self._spark, self._strangers):
            if others is not None:
                others.release()

    # -- one blow

    def _heal_part(self, part: Part, deed: Deed) -> None:
        match deed:
            case Deed.KILL | Deed.KILL_FAMILY | Deed.TAKE_OVER | Deed.STOP:
                part.start()
            case Deed.FREEZE:
                part.thaw()
            case Deed.ZOMBIE | Deed.ZOMBIE_TAKEN_OVER:
                self._wake_zombie()
            case Deed.CUT | Deed.SILENCE if part.proxy is not None:
                part.proxy.heal()
            case Deed.CLOCK:
                part.clock.step(0)
            case Deed.FULL_DISK:
                self._fill_disk(full=False)

    def _end_driver_that_hangs(self) -> None:
        """Kill a driver that does not come to work, and start another; the run has a finding then."""
        if not self._recovering:
            return
        _, started_ms = self._recovering[-1]
        child = self._driver.child
        if self._clock() - started_ms < DRIVER_STARTS_MS_MAX or not child.alive():
            return
        self.endings.append(f"{Victim.DRIVER}: {child.how_it_ended(DRIVER_STARTS_MS_MAX / 1000)}")
        self._driver.kill()
        self._driver.start()
        self._recovering.append((None, self._clock()))

    def _look_into_commit(self, store: StruckFromOutside) -> None:
        """Go on with what the driver has done to itself, once it has."""
        if store.deed is None or store.look(self._driver) is Blown.WAITS:
            return
        if store.deed is Deed.KILL_IN_COMMIT:
            self._driver.left += store.family
            self._driver.start()
            self._recovering.append((store.deed, self._clock()))
        else:
            self._replace_frozen(fresh=store.deed is Deed.ZOMBIE_IN_COMMIT_TAKEN_OVER)
        store.over()

    def _end_order(self, blow: Blow, store: StruckFromOutside) -> None:
        """Take back what the driver did not come to do; wake the zombie of what it did."""
        deadline_ms = self._clock() + TAKEN_MS_MAX
        while store.is_taken and self._clock() < deadline_ms:
            self._look_into_commit(store)
        if store.deed is not None:
            store.over()
            self.spared += 1
            self.blows[blow.victim, blow.deed] -= 1
        elif blow.deed is not Deed.KILL_IN_COMMIT:
            self._wake_zombie()

    def _replace_frozen(self, *, fresh: bool) -> None:
        """Stop the driver and start another in its place, which does not know of it."""
        driver = self._driver
        driver.freeze()
        self._zombies.append(Zombie(driver.child, driver.frozen))
        driver.frozen = []
        if fresh:
            driver.take_over()
        else:
            driver.renew()
        driver.start()
        self._recovering.append((Deed.ZOMBIE, self._clock()))

    def _wake_zombie(self) -> None:
        for zombie in self._zombies:
            if zombie.thawed_ms is None:
                zombie.thawed_ms = self._clock()
                signal_all(zombie.frozen, signal.SIGCONT)

    def _look_at(self, zombie: Zombie) -> None:
        if zombie.thawed_ms is None:
            return
        if self._recovering or zombie.rival_since_ms is None:  # until another one works it is the driver
            zombie.rival_since_ms = self._clock()
        if zombie.child.alive() and self._clock() - zombie.rival_since_ms < ZOMBIE_ENDS_MS_MAX:
            return
        if zombie.child.alive():
            self.survivors.append(zombie.child.how_it_ended(ZOMBIE_ENDS_MS_MAX / 1000))
            zombie.child.kill()
        self._driver.left += zombie.frozen
        self._zombies.remove(zombie)
        self._note(Victim.DRIVER, Deed.ZOMBIE, zombie.thawed_ms)

    def _fill_disk(self, *, full: bool) -> None:
        if self._disk is None:
            return
        self._disk_is_full = full
        if full:
            self._disk.fill()
        else:
            self._disk.free()

    def _ended_by_itself(self, part: Part) -> None:
        if part is self._driver:
            self.driver_endings += 1
            self._recovering.append((None, self._clock()))
        else:
            self.endings.append(f"{part.victim}: {part.child.how_it_ended()}")
        part.start()

    def _note(self, victim: Victim, deed: Deed | None, began_ms: int) -> None:
        self.strikes.append(Strike(victim, deed, began_ms, self._clock() + self._grace_ms))
