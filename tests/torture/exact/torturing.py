"""What is done to a driver that writes exactly once, and to its store.

Call it from the main thread.
"""

from __future__ import annotations

import signal
from enum import Enum, auto

from tests.torture.exact.stores import TorturedStore
from tests.torture.exact.struck_store import Order
from tests.torture.schedule import Deed
from tests.torture.stage.family import Member, is_stopped
from tests.torture.stage.parts import Driver


class Blown(Enum):
    """What became of an order to the driver."""

    WAITS = auto()
    """It was not carried out yet."""
    FELL = auto()
    """The driver is dead, or stopped, in the middle of a commit."""


class StruckFromOutside:
    """Gives orders to the driver, one at a time, and lets the store refuse commits."""

    def __init__(self, store: TorturedStore, order: Order) -> None:
        """Begin without an order, and with a store that takes commits."""
        self._store = store
        self._order = order
        self._refuses = False
        self._to_accept = False
        self.deed: Deed | None = None
        self.family: list[Member] = []
        """The driver's processes when the order was given: a dead one has none."""

    def order(self, deed: Deed, driver: Driver) -> None:
        """Let the driver do something of `IN_COMMIT` to itself in its next commit."""
        self.deed = deed
        self.family = driver.family()
        self._order.give(signal.SIGKILL if deed is Deed.KILL_IN_COMMIT else signal.SIGSTOP)

    def look(self, driver: Driver) -> Blown:
        """Return what became of the order."""
        if self._order.is_given():
            return Blown.WAITS
        if self.deed is Deed.KILL_IN_COMMIT:
            fell = not driver.child.alive()
        else:
            fell = driver.child.pid is not None and is_stopped(driver.child.pid)
        return Blown.FELL if fell else Blown.WAITS

    @property
    def is_taken(self) -> bool:
        """Whether the driver has taken an order that it has not carried out yet, as far as was seen."""
        return self.deed is not None and not self._order.is_given()

    def over(self) -> None:
        """Take the order back, if nobody has taken it."""
        self._order.withdraw()
        self.deed = None

    def refuse(self) -> None:
        """Let the store refuse commits."""
        self._to_accept = False
        self._store.refuse()

    def accept(self) -> None:
        """Let the store take commits again, now or as soon as it can be told."""
        self._to_accept = not self._store.accept()

    def step(self) -> None:
        """Go on with what could not be told the store."""
        if self._to_accept:
            self.accept()
