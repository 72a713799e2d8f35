"""What becomes of a root after another program wrote over its entry in `_ack_due`.

Only replay workers may write there. If there is garbage under a root's key, compaction will sooner or later
remove the entry that a worker wrote before it. So a new owner of the partition writes that entry again while
it is still there, and the root goes on waiting, or stays done. If no sound entry is left, nobody can find out
what became of the root. Then it becomes a dead letter without payload, since its topic id and attempt are
lost: one dead letter too many is better than a record that is lost silently.

A key that is not of a root of a tracked input is ignored.

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
"""So many keys are repaired at once; further ones are reported, and the next owner repairs them."""

UNKNOWN_MS = -1
"""Stands for an unknown time."""


class Mend(NamedTuple):
    """What to write under the key of a root: an entry; a tombstone if `due` is None. People read `name`."""

    root: Root
    name: str
    due: Due | None
    written: Outgoing


def last_words(records: Iterable[Record], spoiled: Mapping[Root, int]) -> dict[Root, Record]:
    """Return for each spoiled key the last sound record or tombstone among some records; some keys have none.

    A record of an unknown version is not sound: a reader that came so far was allowed to pass over it.
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
    """Return what to write for each spoiled key, so that `_ack_due` is right again."""
    mends: list[Mend] = []
    for root in spoiled:
        word = words.get(root)
        value = sound(word) if word is not None and word.value is not None else None
        due = value if isinstance(value, Due) else None
        if word is None:
            due = unreadable_due(worker, root, place.partition)
            if due is None:
                continue
        written = None if due is None else worker.dues.encode(due)
        mends.append(Mend(root, _name(worker, root), due, Outgoing(*place, written, root_key(root))))
    return mends


def unreadable_due(worker: Worker, root: Root, partition: int) -> Due | None:
    """Return an entry that makes a dead letter of a root of which only the key is left.

    Returns:
        The entry; None if the key is not of a tracked input, or does not belong into this partition.
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
