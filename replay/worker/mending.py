"""What becomes of a root whose entry in `_ack_due` somebody else has written over.

Only replay workers may write there. Where garbage stands under a root's own key all the same, compaction will
sooner or later remove what a worker wrote beneath it. So a new owner of the partition writes that again while
it is still there: the root goes on waiting, or stays ended. Where nothing sound is left nobody knows any more
what became of the root. It is buried without its payload, since neither the topic's id nor the attempt is
known: one dead letter too many is better than a record that is lost silently.

A key that is of no root of a tracked input was never ours, and is passed over.

Source: docs/design/protocol.md, section 3 rule 5 and section 5.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from acker.config.topics import Input
from acker.identity import Root, acker_partition, is_replay, offset_of, partition_of
from acker.kafka.port import Outgoing, Record, TopicPartition
from acker.wire.checks import wrong_source
from replay.policy.disposition import DeadReason
from replay.records.due import Due, parse_root_key, root_key, sound, sound_if_known
from replay.records.headers import location
from replay.worker.worker import Worker

SPOILED_MAX = 10_000
"""Keys that are mended at once; further ones are told, and mended by the next owner."""

UNKNOWN_MS = -1
"""A time that nobody knows."""


class Mend(NamedTuple):
    """What is written under the key of a root, which people call `name`; `due` None: the tombstone."""

    root: Root
    name: str
    due: Due | None
    written: Outgoing


def last_words(records: Iterable[Record], spoiled: Mapping[Root, int]) -> dict[Root, Record]:
    """Return of each spoiled key the last sound record, or the tombstone, of those given; some have none.

    One of an unknown version is not sound: who has read so far passes over it.
    """
    words: dict[Root, Record] = {}
    for record in records:
        root = parse_root_key(record.key)
        if root is None or root not in spoiled:
            continue
        if record.value is None or sound_if_known(record) is not None:
            words[root] = record
    return words


def mends_of(
    worker: Worker, place: TopicPartition, spoiled: Iterable[Root], words: Mapping[Root, Record]
) -> Sequence[Mend]:
    """Return what to write for each spoiled key, so that `_ack_due` says the truth again."""
    mends: list[Mend] = []
    for root in spoiled:
        word = words.get(root)
        value = sound(word) if word is not None and word.value is not None else None
        due = value if isinstance(value, Due) else None
        if word is None:
            due = unreadable(worker, root, place.partition)
            if due is None:
                continue
        written = None if due is None else worker.dues.encode(due)
        mends.append(Mend(root, _name(worker, root), due, Outgoing(*place, written, root_key(root))))
    return mends


def unreadable(worker: Worker, root: Root, partition: int) -> Due | None:
    """Return what lets a root be buried of which nothing but its key is known; None: it is not ours.

    Nor is one that belongs into another partition than the one it was found in.
    """
    owner = None if wrong_source(root.source) or root.position < 0 else worker.tracked(root.source)
    if owner is None or acker_partition(root.source, root.position, worker.partitions) != partition:
        return None
    return Due(
        source=root.source,
        position=root.position,
        due_ms=0,
        dead=DeadReason.UNREADABLE,
        group=owner.group,
        topic=_topic(owner, root),
        topic_id="",
        origin=_name(worker, root),
        attempt=1,
        abandoned=0,
        first_emitted_ms=UNKNOWN_MS,
        history=(),
    )


def _topic(owner: Input, root: Root) -> str:
    return owner.replay_topic if is_replay(root.source) else owner.topic


def _name(worker: Worker, root: Root) -> str:
    owner = worker.tracked(root.source)
    if owner is None:
        return f"source {root.source}, position {root.position}"
    return location(_topic(owner, root), partition_of(root.source), offset_of(root.position))
