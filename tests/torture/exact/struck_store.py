"""The store of a tortured driver, which may kill or stop its own process in the middle of a commit.

Nobody outside knows when a commit begins. So the torturer leaves an *order* in the folder of the run, the
number of a signal. The driver takes it when it begins the next commit, and sends the signal to itself after a
time that is drawn from 0 to somewhat more than a commit usually takes: so it falls into each part of one.
"""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path
from typing import Final

import pyarrow as pa

import spout
from acker.config.topics import Topics
from spout.exactly_once.store import BatchKey, Store, StoreGrant

TABLE: Final = "torture_rows"
"""The table of the rows, or their topic."""

DATABASE: Final = "rows.sqlite"
SQLITE: Final = "sqlite"
KAFKA: Final = "kafka"
POSTGRES: Final = "postgres"
SINKS: Final = (SQLITE, KAFKA, POSTGRES)

ORDER: Final = "commit.order"

_USUAL_S: Final = 0.05
"""What a commit takes before one was seen."""

_PAST_THE_END: Final = 1.2
"""The signal comes at most so many times later than a commit usually ends."""

_WEIGHT_OF_LAST: Final = 0.3


class Order:
    """A file that tells the driver to signal itself in its next commit."""

    def __init__(self, folder: Path) -> None:
        """Keep where it is: in the folder of the run."""
        self._path = folder / ORDER

    def give(self, signal_number: int) -> None:
        """Order it; the file is there whole, or not at all."""
        draft = self._path.with_suffix(".draft")
        draft.write_text(str(signal_number), encoding="ascii")
        draft.rename(self._path)

    def take(self) -> int | None:
        """Return the number of the signal, once; None: nothing is ordered."""
        try:
            signal_number = int(self._path.read_text(encoding="ascii"))
            self._path.unlink()
        except FileNotFoundError:
            return None
        return signal_number

    def withdraw(self) -> None:
        """Order nothing, if nobody has taken it yet."""
        self._path.unlink(missing_ok=True)

    def is_given(self) -> bool:
        """Return whether nobody has taken it yet."""
        return self._path.exists()


class StruckStore:
    """A store whose process is signalled in the middle of a commit, when it is ordered."""

    def __init__(self, store: Store, order: Order) -> None:
        """Keep the store and where orders come from."""
        self._store = store
        self._order = order
        self._usual_s = _USUAL_S

    def open(self, group: str, epoch_min: int) -> StoreGrant:
        """Open the store."""
        return self._store.open(group, epoch_min)

    def commit(self, key: BatchKey, rows: pa.Table, publication: bytes) -> None:
        """Commit, and perhaps get no further."""
        signal_number = self._order.take()
        if signal_number is not None:
            delay_s = random.SystemRandom().uniform(0, _PAST_THE_END * self._usual_s)
            threading.Timer(delay_s, os.kill, (os.getpid(), signal_number)).start()
        began_s = time.monotonic()
        self._store.commit(key, rows, publication)
        took_s = time.monotonic() - began_s
        if signal_number is None:
            self._usual_s += _WEIGHT_OF_LAST * (took_s - self._usual_s)


def store_of(sink: str, topics: Topics, folder: Path) -> Store:
    """Return the store that the driver's argument names: a kind, and after a colon how to connect."""
    kind, _, dsn = sink.partition(":")
    if kind == SQLITE:
        return spout.SQLiteStore(folder / DATABASE, TABLE)
    if kind == KAFKA:
        return spout.KafkaStore(topics, TABLE, key="origin", value="json")
    return spout.PostgresStore(dsn, TABLE)
