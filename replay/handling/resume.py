"""Resumes an input that its breaker has paused: ``windhover replay resume``.

An input is paused in a verdict partition by a record of `_ack_due` (`replay.records.due.Pause`). So
this takes each paused partition over (`replay.handling.due_partition`), writes the tombstone and
leaves. The owner starts again after its pause, and finds the input no longer paused.
"""

from __future__ import annotations

from collections.abc import Mapping

from acker.config.topics import Topics
from acker.kafka.port import Log, Outgoing
from replay.handling.due_partition import due_records, own_partition
from replay.records.due import Pause, pause_key
from replay.records.due_fold import progress_and_pauses


def pauses(log: Log, topics: Topics) -> Mapping[int, Mapping[int, Pause]]:
    """Return what is paused: by the number of a partition, and the id of the input.

    A partition in which nothing is paused is missing.
    """
    pauses_by_partition: dict[int, Mapping[int, Pause]] = {}
    for number in range(topics.acker.partitions):
        fold = progress_and_pauses()
        for record in due_records(log, topics, number):
            fold.put(record)
        pauses_by_input = fold.paused()
        if pauses_by_input:
            pauses_by_partition[number] = pauses_by_input
    return pauses_by_partition


def resume(log: Log, topics: Topics, input_id: int) -> Mapping[int, Pause]:
    """End the pauses of an input wherever it is paused; return them by the partition's number.

    Raises `Aborted` (repeat the command), `NotAuthorized` or `TopicError`
    (`_ack_due` is missing).
    """
    ended_by_partition: dict[int, Pause] = {}
    timeout_ms = topics.replay.limits.operation_timeout_ms
    for number, pauses_by_input in pauses(log, topics).items():
        if input_id not in pauses_by_input:
            continue
        with own_partition(log, topics, number) as transactions:
            transactions.begin()
            tombstone = Outgoing(topics.ack_topics.due, number, value=None, key=pause_key(input_id))
            transactions.send(tombstone)
            transactions.commit(timeout_ms)
        ended_by_partition[number] = pauses_by_input[input_id]
    return ended_by_partition
