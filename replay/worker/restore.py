"""Reads, for a new owner of a verdict partition, from `_ack_due` what waits and what is taken over.

Of a waiting root only the due time is decoded here; the rest is decoded when it is due. If there is garbage
under a root's key, the topic is read once more to find what must be repaired (`replay.worker.mending`).

Source: docs/design/protocol.md, section 5.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from acker.errors import CodecError, UnknownVersion
from acker.identity import Root
from acker.kafka.port import Record, TopicPartition
from acker.kafka.reading import read_piece
from acker.service.passed_over import marked_offset
from acker.wire.checks import wrong_source
from replay.records.due import Pause, Progress, flaw_of, parse_root_key, pause_key
from replay.worker.mending import SPOILED_MAX, Mend, last_words, mends_of
from replay.worker.table import DueTable
from replay.worker.worker import Worker, newer


class Restored(NamedTuple):
    """The contents of a partition of `_ack_due`.

    Attributes:
        table: the roots that wait, except those in `mends`.
        progress: how far the verdicts are taken over; None if nothing ever was.
        mends: the entries to write again, since garbage was written over them.
        pauses: the pauses, by the ids of their inputs.
    """

    table: DueTable
    progress: Progress | None
    mends: Sequence[Mend]
    pauses: Mapping[int, Pause]


def restore(worker: Worker, due: TopicPartition) -> Restored:
    """Read a partition of `_ack_due` to its stable end; the last record of each key counts.

    Raises:
        UnknownVersion: a newer worker wrote to it.
        Unreachable: the broker does not answer.
    """
    table, progress = DueTable(), None
    pauses: dict[bytes, Pause] = {}
    spoiled: dict[Root, int] = {}
    for record in _stored(worker, due):
        root, flaw = parse_root_key(record.key), ""
        if record.value is None:
            if root is not None:
                table.remove(root, record.offset)
                spoiled.pop(root, None)
            pauses.pop(record.key or b"", None)
            continue
        try:
            if root is None:
                value = worker.dues.decode(record.value)
                flaw = flaw_of(record.key, value)
                progress = value if isinstance(value, Progress) and not flaw else progress
                if isinstance(value, Pause) and not flaw:
                    pauses[pause_key(value.input)] = value
            else:
                of, due_ms = worker.dues.glance(record.value)
                flaw = wrong_source(root.source) if of == root else "the key is not that of the value"
                if not flaw:
                    table.put(root, record.offset, due_ms)
                    spoiled.pop(root, None)
        except UnknownVersion as error:
            flaw = newer(worker.log, record, error)
        except CodecError as error:
            flaw = "" if marked_offset(record) is not None else str(error)
        if flaw:
            worker.undecodable(*due, record.offset, flaw)
        if flaw and root is not None and len(spoiled) < SPOILED_MAX:
            spoiled[root] = record.offset
    words = last_words(_stored(worker, due), spoiled) if spoiled else {}
    mends = mends_of(worker, due, spoiled, words)
    for mend in mends:
        table.remove(mend.root, spoiled[mend.root])  # it waits again under its new offset, once written
    return Restored(table, progress, mends, {pause.input: pause for pause in pauses.values()})


def _stored(worker: Worker, due: TopicPartition) -> Iterator[Record]:
    start, end = worker.log.starts([due])[due], worker.log.stable_ends([due])[due]
    return read_piece(
        worker.log, due, start, end, committed=True, wait_ms=worker.limits.operation_timeout_ms,
        alive=lambda: worker.at(f"reading what waits in partition {due.partition}"),
    )  # fmt: skip
