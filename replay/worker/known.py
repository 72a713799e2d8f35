"""Gets the entries of due roots from memory, or reads them from `_ack_due` again.

Source: docs/design/protocol.md, section 5.4.
"""

from __future__ import annotations

from collections.abc import Mapping

from acker.errors import CodecError, DataLoss, UnknownVersion
from acker.kafka.port import Record, TopicPartition
from replay.records.due import Due, flaw_of, parse_root_key
from replay.worker.fetch import Absence, Wanted
from replay.worker.mending import unreadable_due
from replay.worker.worker import Worker, newer


def known_of(
    worker: Worker, place: TopicPartition, kept: Mapping[int, Due | None]
) -> Mapping[int, Due | None]:
    """Return the entry of `_ack_due` at each offset; None if it is unreadable and not about a root of ours.

    Entries behind the stable end are left out: the broker confirms a commit before it writes the markers.

    Args:
        worker: with what to read.
        place: the partition of `_ack_due`.
        kept: the entry in memory for each offset; None if memory does not have it.

    Raises:
        DataLoss: an entry is no longer in `_ack_due`.
        UnknownVersion: a newer worker wrote an entry.
    """
    known = {offset: due for offset, due in kept.items() if due is not None}
    if len(known) == len(kept):
        return known
    end = worker.log.stable_ends([place])[place]
    missing = {Wanted(*place, offset) for offset in kept if offset not in known and offset < end}
    read: dict[int, Due | None] = {}
    while missing:
        worker.at("reading what is due")
        answers = worker.fetcher.fetch(missing, why=False)
        read.update({where.offset: _read(worker, where, found) for where, found in answers.items()})
        missing -= answers.keys()
    return {offset: known.get(offset) or read[offset] for offset in kept if offset in known or offset in read}


def _read(worker: Worker, place: Wanted, found: Record | Absence) -> Due | None:
    """Return the entry at a place. An unreadable one is reported, and its root becomes a dead letter."""
    if isinstance(found, Absence):
        raise DataLoss(
            f"a root waits at offset {place.offset} of {place.topic}/{place.partition}, which no longer"
            " holds it: somebody deleted from the topic, or wrote to it under the root's key. Start the"
            " replay worker again: of a root whose key is still there it makes a dead letter"
        )
    try:
        due = worker.dues.decode(found.value)
    except UnknownVersion as error:
        flaw = newer(worker.log, found, error)
    except CodecError as error:
        flaw = str(error)
    else:
        flaw = flaw_of(found.key, due)
        if isinstance(due, Due) and not flaw:
            return due
    if flaw:
        worker.undecodable(*place, flaw)
    root = parse_root_key(found.key)
    return root and unreadable_due(worker, root, place.partition)
