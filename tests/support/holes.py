"""Partitions with holes: positions at which a topic has no record that anybody may read."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final, NamedTuple

from acker.kafka.port import Log, Outgoing, TopicPartition
from tests.support.waiting import settled

WAIT_MS: Final = 60_000
_OWNERS: Final = itertools.count(1)


class Records(NamedTuple):
    """So many records, one behind the other."""

    count: int


class Aborted(NamedTuple):
    """So many records of a transaction that was aborted, and its marker."""

    count: int


class Each(NamedTuple):
    """So many records, each in a transaction of its own: every second position holds a marker."""

    count: int


Stretch = Records | Aborted | Each


def write_stretches(log: Log, place: TopicPartition, stretches: Sequence[Stretch]) -> int:
    """Write stretches to a partition, one behind the other; return how many records can be read of them.

    The values are numbers, which rise.
    """
    written = 0
    for stretch in stretches:
        match stretch:
            case Records(count):
                producer = log.producer()
                for number in range(written, written + count):
                    producer.send(_numbered(place, number))
                producer.flush(WAIT_MS)
                producer.close()
                written += count
            case Aborted(count):
                _in_transactions(log, [[Outgoing(*place, b"never")] * count], commits=False)
            case Each(count):
                single = [[_numbered(place, number)] for number in range(written, written + count)]
                _in_transactions(log, single, commits=True)
                written += count
    settled(log, [place])
    return written


def _numbered(place: TopicPartition, number: int) -> Outgoing:
    return Outgoing(*place, b"%d" % number)


def _in_transactions(log: Log, groups: Sequence[Sequence[Outgoing]], *, commits: bool) -> None:
    owner = log.transactions(f"holes-{next(_OWNERS)}")
    owner.init(WAIT_MS)
    for group in groups:
        owner.begin()
        owner.send_all(group)
        owner.flush(WAIT_MS)
        if commits:
            owner.commit(WAIT_MS)
        else:
            owner.abort(WAIT_MS)
    owner.close()
