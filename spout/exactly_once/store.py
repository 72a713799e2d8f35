"""A store: it takes the rows of a batch and what is acked for them in one transaction.

A store keeps two things of a group, beside its rows:

- the *epoch* that it granted last. Each `open` is granted a higher one. It is two numbers in one:
  only the writer that has the last epoch may commit, and the writer's session takes the group
  under it. So of two starts the later one both ends the writer of the other and has the higher
  session, in whatever order their `Take`s arrive.
- its last batch: the key, and the publication, from the same transaction as the rows.

Source: docs/design/protocol.md, section 3 (rule 12).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import pyarrow as pa

from acker.errors import StoreFenced, UsageError


class BatchKey(NamedTuple):
    """Names a micro-batch for ever; epoch and session are of the session that planned it.

    >>> spout.BatchKey("word-count", epoch=3, session="5f-store", query="q", batch=7).batch
    7
    """

    group: str
    epoch: int
    session: str
    query: str
    batch: int


class LastBatch(NamedTuple):
    """The last batch that a store has of a group, with what is to be published for it.

    >>> key = spout.BatchKey("word-count", epoch=3, session="5f-store", query="q", batch=7)
    >>> spout.LastBatch(key, publication=b"bytes").key.epoch
    3
    """

    key: BatchKey
    publication: bytes


class StoreGrant(NamedTuple):
    """What `Store.open` returns.

    >>> spout.StoreGrant(epoch=4, last_batch=None).epoch
    4

    Attributes:
        epoch: of the writer, and of its session; higher than any that was granted before.
        last_batch: None: the store has no batch of the group.
    """

    epoch: int
    last_batch: LastBatch | None


class Store(Protocol):
    """What a store must do; each call is one transaction, and is durable when it returns.

    >>> class Nowhere:
    ...     def open(self, group, epoch_min):
    ...         return spout.StoreGrant(epoch_min, last_batch=None)
    ...     def commit(self, key, rows, publication):
    ...         print(key.batch, rows.num_rows)
    >>> store: spout.Store = Nowhere()
    >>> store.open("word-count", epoch_min=3).epoch
    3
    """

    def open(self, group: str, epoch_min: int) -> StoreGrant:
        """Grant an epoch of `epoch_min` or more; no writer with a lower one commits from here on.

        Raises:
            StoreFenced: another start opened the store at the same time, and has fenced this one.
            Unreachable: the store does not answer. It may have granted an epoch all the same.
            UsageError, ConfigError: the store cannot take the rows, since a table or a right is
                missing; no writer is fenced.
        """

    def commit(self, key: BatchKey, rows: pa.Table, publication: bytes) -> None:
        """Add the rows, and put key and publication in place of the last batch's; all or nothing.

        Args:
            key: names the batch.
            rows: those of its roots that are acked.
            publication: the acks and fails that are published for the batch, once it is written.

        Raises:
            StoreFenced: the store has granted another epoch than the key's; nothing is written.
            UsageError, ConfigError, Aborted: the store does not take the rows; nothing is written.
            Unreachable: the store does not answer. All may be written, or nothing.
        """


def refuse_exact(write: object, where: str) -> None:
    """Refuse a store, or an exact sink, where a function that writes a batch's rows is needed.

    `where` says for the message who needs it. Raises `UsageError`: `write` is one.
    """
    is_store = all(callable(getattr(write, method, None)) for method in ("open", "commit"))
    if is_store or getattr(write, "is_exact", False):
        raise UsageError(
            f"{where} does not write exactly once, as a store is written: give"
            " foreachBatch(spout.exact_sink(store, rows)) the rows of bolts on a DataFrame"
        )


def fenced_error(store: str, key: BatchKey, granted_epoch: int) -> StoreFenced:
    """Return the error of a batch whose epoch is not the one that a database has granted last.

    Args:
        store: names the database, for people.
        key: of the batch.
        granted_epoch: what the database has of the group; 0: it has nothing of the group.
    """
    if granted_epoch > key.epoch:
        later_start = f"a later start has opened {store} for group {key.group}"
        reason = f"{later_start}: epoch {granted_epoch} is granted"
        cure = "Let one query read the group"
    else:
        # epochs only rise, so this one was taken away: by a backup, a new file, an emptied table
        now = "it has nothing of the group now"
        if granted_epoch:
            now = f"it has epoch {granted_epoch} now"
        reason = f"{store} was emptied, replaced or restored since this start opened it: {now}"
        cure = (
            f"Before you start the query of group {key.group} again, read what became of its rows in"
            " docs/guide/exactly_once.md"
        )
    return StoreFenced(
        f"{reason}, and this one has {key.epoch}; nothing of batch {key.batch} is written. {cure}"
    )


def refuse_left_out(table: str, batch_rows: int, written_rows: int) -> None:
    """Refuse a batch of which the table has not taken each row once, though it raised nothing.

    Args:
        table: its name, and that of its database, for people.
        batch_rows: how many rows the batch has.
        written_rows: how many rows the database says that it has inserted.

    Raises `UsageError`: a trigger left rows out, or wrote others in their place.
    """
    if written_rows != batch_rows:
        raise UsageError(
            f"the table {table} took {written_rows:,} of the {batch_rows:,} rows of the batch: a"
            " trigger or a rule of the table leaves rows out, and their records would be acked;"
            " nothing of the batch is written. Let a bolt leave them out, or write into a table"
            " without that rule"
        )
