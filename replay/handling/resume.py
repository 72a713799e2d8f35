"""Lets an input go on that its breaker has paused: ``windhover replay resume``.

An input is paused in a verdict partition by a record of `_ack_due` (`replay.records.due.Pause`), and only the
owner of the partition's transactional id writes there. So this takes each paused partition over as a new
worker does: it ends and fences the transaction of its owner. It writes the tombstone and leaves. The owner
starts again after its pause, and finds the input no longer paused.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from acker.config.topics import Topics
from acker.kafka.port import Log, Outgoing, TopicPartition
from acker.service.passed_over import read_ours
from replay.records.due import DueView, Pause, pause_key


def pauses(log: Log, topics: Topics) -> Mapping[int, Mapping[int, Pause]]:
    """Return what is paused: by the partition of `_ack_due`, and the id of the input."""
    wait_ms = topics.replay.limits.operation_timeout_ms
    paused: dict[int, Mapping[int, Pause]] = {}
    for number in range(topics.acker.partitions):
        place, found = TopicPartition(topics.ack_topics.due, number), DueView()
        start, end = log.starts([place])[place], log.stable_ends([place])[place]
        for record in read_ours(log, place, start, end, committed=True, wait_ms=wait_ms):
            found.put(record)
        if inputs := found.pauses():
            paused[number] = inputs
    return paused


def resume(log: Log, topics: Topics, input_id: int) -> Mapping[int, Pause]:
    """Let an input go on wherever it is paused; return the ended pauses by partition.

    Raises `Aborted` (repeat the command), `NotAuthorized` or `TopicError` (`_ack_due` is missing).
    """
    ended: dict[int, Pause] = {}
    timeout_ms = topics.replay.limits.operation_timeout_ms
    for number, found in pauses(log, topics).items():
        if input_id not in found:
            continue
        with closing(log.transactions(f"{topics.acker.replay_group}-{number}")) as transactions:
            transactions.init(timeout_ms)
            transactions.begin()
            transactions.send(Outgoing(topics.ack_topics.due, number, None, pause_key(input_id)))
            transactions.commit(timeout_ms)
        ended[number] = found[input_id]
    return ended
