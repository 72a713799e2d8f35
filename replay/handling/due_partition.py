"""One partition of `_ack_due`, for commands: what it has, and how to write there.

Only the owner of the partition's transactional id writes to it. A command that
does takes it over as a new replay worker would: it ends and fences the
transaction of its owner, which starts again after its pause.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from acker.config.topics import Topics
from acker.kafka.port import Log, Record, TopicPartition, Transactions
from acker.service.passed_over import read_ack_topic
from acker.wire.clusters import require_cluster


def due_records(log: Log, topics: Topics, number: int) -> Iterator[Record]:
    """Yield the records that are committed in a partition of `_ack_due` now, in its order.

    `number` is that of the partition. It is read while one iterates.

    Raises `Disagreement`: a record was written in another cluster.
    """
    own_cluster = log.cluster_id()
    due_partition = TopicPartition(topics.ack_topics.due, number)
    start = log.starts([due_partition])[due_partition]
    end = log.stable_ends([due_partition])[due_partition]
    wait_ms = topics.replay.limits.operation_timeout_ms
    for record in read_ack_topic(log, due_partition, start, end, committed=True, wait_ms=wait_ms):
        require_cluster(record.place, record.headers, record.value, own_cluster)
        yield record


@contextmanager
def own_partition(log: Log, topics: Topics, number: int) -> Iterator[Transactions]:
    """Fence the owner of a partition of `_ack_due`, and own it until the context ends.

    Yields what writes to it.
    """
    with closing(log.transactions(f"{topics.acker.replay_group}-{number}")) as transactions:
        transactions.init(topics.replay.limits.operation_timeout_ms)
        yield transactions
