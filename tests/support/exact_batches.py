"""Keys of batches that a test writes into a store."""

from __future__ import annotations

from spout.exactly_once.store import BatchKey


def key_of(epoch: int = 1, batch: int = 0, group: str = "g") -> BatchKey:
    """Return the key of a batch of one session and query."""
    return BatchKey(group, epoch, "s", "q", batch)
