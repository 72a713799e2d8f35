"""The writer of one start of a query: it opens the store, and commits batches in it.

Theory of operation
===================

1. Before the session takes its group, `open` fences every earlier writer of the group, and
   publishes what the store has of the last batch, as the session that wrote it. The acker applies
   it before the `Take`, so none of the batch's acked roots is abandoned. Of older batches nothing
   can be missing: a writer begins no batch before the publication of the one before it is durable.
2. The session takes the group under the epoch that the store granted. Each start is a session of
   its own: what the one before left open is abandoned, and comes again as copies. Two processes of
   one session would each have a clock, and roots of the one could time out by the other's.
3. A batch that an earlier start planned is neither evaluated nor written (`is_own`). Either the
   store has it, or its roots are abandoned. A batch in which a task reported twice is not settled
   (`settled_batch`): the rows may be of the other run.
4. `commit` takes the rows of the roots that the batch acks, the key and the publication, in one
   transaction. While the batch is under way the session's clock stands still
   (`spout.group.running_session`), so none of its roots times out before they are published.
5. What `commit` returns is published. If that fails, or the outcome of the commit is not known,
   the run ends, and the next start finds in the store what became of it.

Source: docs/design/protocol.md, section 3 (rule 12).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from acker.config.settings import AckTopics
from acker.errors import RowsChanged, UsageError
from spout.exactly_once.acked_roots import acked_roots, refuse_held, without_open
from spout.exactly_once.publication_bytes import packed_publication, unpacked_publication
from spout.exactly_once.rooted_rows import RootedRows
from spout.exactly_once.store import BatchKey, Store
from spout.publishing.fold import BatchOutcome, TaskReport
from spout.publishing.publish import (
    BatchLane,
    PublicationRecords,
    ack_records,
    publication_of,
)


@dataclass(frozen=True, slots=True)
class SettledBatch:
    """A batch that was evaluated and settled; `settled_batch` makes one.

    Attributes:
        query: id of the query.
        batch: Spark's number of it.
        outcome: what became of its roots.
    """

    query: str
    batch: int
    outcome: BatchOutcome

    @property
    def key(self) -> BatchKey:
        plan = self.outcome.plan
        return BatchKey(plan.group, plan.epoch, plan.session, self.query, self.batch)

    @property
    def lane(self) -> BatchLane:
        """The sequence of messages that ackers number: one for each query and session."""
        return BatchLane(f"{self.query}/{self.outcome.plan.session}", self.batch)


def settled_batch(
    query_batch: BatchLane, reports: Iterable[TaskReport], settle: Callable[[], BatchOutcome]
) -> SettledBatch:
    """Settle a batch each of whose tasks ran once; return it with what became of its roots.

    Args:
        query_batch: id of the query, and number of the batch.
        reports: all that its tasks reported.
        settle: computes from these reports what became of the batch's roots.

    Raises `RowsChanged`: two runs of a task reported; nothing is settled.
    """
    refuse_repeated_tasks(reports)
    return SettledBatch(query_batch.name, query_batch.seq, settle())


def refuse_repeated_tasks(reports: Iterable[TaskReport]) -> None:
    """Refuse a batch of which Spark ran a task twice, where both runs have reported.

    Bolts may do something else in each run. The roots were settled by what one of them did, and the
    rows to be written may be of the other.

    Raises `RowsChanged`: there is such a task.
    """
    # A task is named by the first bolt that runs in it, and its partition. Each of its runs has
    # another stage, or another number: Spark calls that the task's attempt.
    runs_by_task: dict[tuple[str, int], set[tuple[int, int]]] = {}
    for report in reports:
        task = report.first_bolt, report.task.partition
        run = report.task.stage, report.task.attempt
        runs_by_task.setdefault(task, set()).add(run)
    repeated_tasks = sorted(task for task, runs in runs_by_task.items() if len(runs) > 1)
    if repeated_tasks:
        operator, partition = repeated_tasks[0]
        raise RowsChanged(
            f"{len(repeated_tasks)} tasks of the batch reported twice, the first one that of"
            f" {operator} for partition {partition}: an executor was lost, or Spark evaluated the"
            " batch apart, and the rows may be of another run than what was settled. Nothing is"
            " written"
        )


class ExactWriter:
    """Writes the batches of one start of a query into a store."""

    def __init__(
        self,
        store: Store,
        group: str,
        topics: AckTopics,
        publish: Callable[[PublicationRecords], None],
    ) -> None:
        """Prepare; the store is not touched before `open`.

        Args:
            store: has the group's rows.
            group: the group that the query reads.
            topics: names of the ack topics.
            publish: writes records, and returns when they are durable.
        """
        self._store = store
        self._group = group
        self._topics = topics
        self._publish = publish
        self._epoch: int | None = None

    def open(self, epoch_min: int) -> int:
        """Fence the earlier writers, publish the last batch, and return the epoch of the session.

        Args:
            epoch_min: the lowest epoch that the session may have.

        Raises:
            StoreFenced: another start opened the store at the same time.
            Unreachable: store or broker do not answer.
            TrackingError: the store's last publication cannot be read.
        """
        grant = self._store.open(self._group, epoch_min)
        if grant.last_batch is not None:
            self._publish(unpacked_publication(grant.last_batch.publication))
        self._epoch = grant.epoch
        return grant.epoch

    def is_own(self, epoch: int) -> bool:
        """Return whether this start has planned a batch; any other is not even evaluated.

        `epoch` is that of the session that planned it.
        """
        return epoch == self._epoch

    def commit(self, batch: SettledBatch, rows: RootedRows) -> PublicationRecords:
        """Commit a batch, and return what is to be published now.

        Raises:
            StoreFenced: a later start has opened the store; nothing is written.
            TrackingError: the batch holds tuples, or a row has no root of it.
            Unreachable: the store does not answer; nobody knows whether the batch is written.
        """
        outcome = batch.outcome
        if not self.is_own(outcome.plan.epoch):
            raise UsageError(f"another start has planned batch {batch.batch}; it cannot be written")
        refuse_held(outcome)
        rows.refuse_strangers(outcome.plan.roots())
        # rows of roots that failed or are left open are written with the copy of their record
        rows_of_acked = rows.of_roots(acked_roots(outcome))
        publication = publication_of(without_open(outcome), batch.lane)
        records = ack_records(publication, self._topics, outcome.plan.partitions)
        self._store.commit(batch.key, rows_of_acked.table, packed_publication(records))
        return records
