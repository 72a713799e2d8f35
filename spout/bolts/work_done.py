"""Counts and errors of the bolts of one stream, over all published batches; kept in the driver."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping

from spout.tuples.collector import Cause
from spout.tuples.counts import Counts, added

ERRORS_KEPT = 100
"""The last errors that bolts reported, for the status."""


class WorkDone:
    """Adds up counts. One thread publishes while others read them."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._lock = threading.Lock()
        self._counts: Counts = {}
        self._errors: deque[Cause] = deque(maxlen=ERRORS_KEPT)
        self._isolated: Counter[str] = Counter()

    def add(self, counts: Counts, errors: tuple[Cause, ...], isolated: Mapping[str, int]) -> None:
        """Add a published batch; `isolated`: number of records that killed or hung a process, by error."""
        if counts or errors or isolated:
            with self._lock:
                self._counts = added([self._counts, counts])
                self._errors.extend(errors)
                self._isolated.update(isolated)

    @property
    def isolated(self) -> Mapping[str, int]:
        """Number of records that killed or hung a process, by error."""
        with self._lock:
            return dict(self._isolated)

    @property
    def counts(self) -> Counts:
        """All counts, by what is counted, component and stream."""
        return self._counts

    @property
    def errors(self) -> tuple[Cause, ...]:
        """The last errors that bolts reported, the newest last."""
        with self._lock:
            return tuple(self._errors)
