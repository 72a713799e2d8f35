"""What the bolts of one stream did in all batches that were published; kept in the driver."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping

from spout.tuples.collector import Cause
from spout.tuples.counts import Counts, added

ERRORS_KEPT = 100
"""The last errors that bolts reported, for the status."""


class WorkDone:
    """Adds up counts; one thread publishes while others look."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._lock = threading.Lock()
        self._counts: Counts = {}
        self._errors: deque[Cause] = deque(maxlen=ERRORS_KEPT)
        self._isolated: Counter[str] = Counter()

    def add(self, counts: Counts, errors: tuple[Cause, ...], isolated: Mapping[str, int]) -> None:
        """Add what a published batch did; `isolated`: records that ended or hung a process, by error."""
        if counts or errors or isolated:
            with self._lock:
                self._counts = added([self._counts, counts])
                self._errors.extend(errors)
                self._isolated.update(isolated)

    @property
    def isolated(self) -> Mapping[str, int]:
        """Records that ended or hung a process, by error."""
        with self._lock:
            return dict(self._isolated)

    @property
    def counts(self) -> Counts:
        """Everything that was done, by what, component and stream."""
        return self._counts

    @property
    def errors(self) -> tuple[Cause, ...]:
        """The last errors that bolts reported, the newest last."""
        with self._lock:
            return tuple(self._errors)
