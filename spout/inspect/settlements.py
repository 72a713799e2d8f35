"""Finds what the topics of ackers and replay workers have about a few roots.

Source: docs/design/protocol.md, sections 4 and 5.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from acker.config.settings import AckTopics
from acker.errors import CodecError
from acker.identity import Root, acker_partition
from acker.kafka.port import Record
from acker.service.view import OpenRange
from acker.wire.checks import read_verdicts, wrong_acks
from acker.wire.codec import wire_codec
from acker.wire.events import Acks, Init, SourceRun, Verdicts, positions
from replay.records.due import Due, DueView, Progress, root_key, sound_or_none
from replay.records.headers import location
from spout.inspect.lookup import Verdict
from spout.runtime.tails import Tails


class Settled(NamedTuple):
    """A verdict, and the offset of its record in the verdict log."""

    verdict: Verdict
    offset: int


class Waiting(NamedTuple):
    """The dues of some roots, and how far the verdicts of each acker partition are taken over."""

    dues: Mapping[Root, Due]
    progress: Mapping[int, Progress]


class Settlements:
    """Finds roots in the ack topics."""

    def __init__(self, tails: Tails, topics: AckTopics, partitions: int) -> None:
        """Prepare.

        Args:
            tails: reads the topics.
            topics: names of the ack topics.
            partitions: N.
        """
        self._tails = tails
        self._topics = topics
        self._partitions = partitions

    def acker_of(self, root: Root) -> int:
        """Return the acker partition of a root."""
        return acker_partition(root.source, root.position, self._partitions)

    def announced(self, root: Root, since: int) -> bool:
        """Return whether ``_ack_init`` has, from an offset on, an Init with a root."""
        codec = wire_codec()
        lacking = "what was announced there is unknown"
        for record in self._tails.rest(self._topics.init, self.acker_of(root), since, lacking):
            try:
                event = codec.decode(record.value)
            except CodecError:
                continue  # the acker quarantines it
            if isinstance(event, Init) and _holds(event.runs, root):
                return True
        return False

    def contributions(self, root: Root, open_in: OpenRange) -> int | None:
        """Count the records of ``_ack_ack`` that ack part of an open root; None when some were not read."""
        if open_in.carried:
            return None
        codec, unread, found = wire_codec(), len(self._tails.notes), 0
        records = self._tails.rest(
            self._topics.ack, self.acker_of(root), open_in.ack_from, "what was acked there is unknown"
        )
        if len(self._tails.notes) > unread:
            return None
        for record in records:
            try:
                event = codec.decode(record.value)
            except CodecError:
                continue  # the acker quarantines it
            if not isinstance(event, Acks) or event.session != open_in.session:
                continue
            if not wrong_acks(event, self.acker_of(root), self._partitions) and _contributes(event, root):
                found += 1
        return found

    def verdicts(self, roots: Iterable[Root]) -> dict[Root, Settled]:
        """Find the verdicts of roots, as far back as the log is read."""
        found: dict[Root, Settled] = {}
        for number, members in self._by_acker(roots).items():
            for record in self._tails.last(self._topics.verdict, number, "older verdicts are unknown"):
                event = read_verdicts(record.value)
                if event is None:
                    continue
                for root in members:
                    verdict = _verdict_on(event, root, record)
                    if verdict is not None:
                        found[root] = Settled(verdict, record.offset)
        return found

    def waiting(self, roots: Iterable[Root]) -> Waiting:
        """Find the dues of roots in ``_ack_due``."""
        dues: dict[Root, Due] = {}
        view = DueView()
        for number, members in self._by_acker(roots).items():
            keys = {root_key(root): root for root in members}
            for record in self._tails.last(self._topics.due, number, "what waited before is unknown"):
                view.put(record)
                if (root := keys.get(record.key or b"")) is None:
                    continue
                if record.value is None:
                    dues.pop(root, None)
                elif isinstance(value := sound_or_none(record), Due):
                    dues[root] = value
        return Waiting(dues, view.progress)

    def _by_acker(self, roots: Iterable[Root]) -> dict[int, list[Root]]:
        found: dict[int, list[Root]] = {}
        for root in roots:
            found.setdefault(self.acker_of(root), []).append(root)
        return found


def _contributes(event: Acks, root: Root) -> bool:
    if event.source != root.source:
        return False
    in_runs = any(run.start <= root.position < run.end for run in event.runs)
    return in_runs or bool((positions(event.positions) == root.position).any())


def _holds(runs: Sequence[SourceRun], root: Root) -> bool:
    return any(run.source == root.source and run.start <= root.position < run.end for run in runs)


def _verdict_on(event: Verdicts, root: Root, record: Record) -> Verdict | None:
    place = location(*record[:3])
    for says, runs in (("ACKED", event.acked), ("ABSENT", event.absent)):
        if _holds(runs, root):
            return Verdict(says, place, record.timestamp_ms)
    for lost in event.lost:
        if lost.source == root.source and (positions(lost.positions) == root.position).any():
            return Verdict(lost.reason.value, place, record.timestamp_ms, lost)
    return None
