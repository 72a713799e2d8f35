"""Is each log still the one that was read? Compared at the start, and when a partition has another leader.

After an unclean leader election a log is shorter than it was, and grows again with other records under the
same offsets (`acker.kafka.epochs`). What was read of a source is kept with an epoch of its leader in which
the log had all of that: in the cursor, in the journal, and with the group's commits. Each answer about an end
has the epoch of the leader that gave it. Where this is another one than is kept, the leader is asked up to
which offset its log is the same:

========================  ==========================================================================
what it says              what happens
========================  ==========================================================================
all of it                 the epoch of this leader is kept from now on
less                      the log was cut: an error, or with `on_data_loss: skip` a new generation
nothing yet               the source takes no part until it is known; others do
========================  ==========================================================================

What is kept without an epoch, by former versions, is not compared; the first answer gives it one. A
`ReadTo` is what is kept: an offset, and an epoch of the leader whose log had all below it.

Source: docs/design/protocol.md, section 5.1, "A log that was cut".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from acker.identity import generation_of, offset_of, position_at
from acker.kafka.epochs import unknown_epoch
from acker.kafka.port import NO_EPOCH, Log, ReadTo, TopicPartition
from acker.waits import PassedTime
from spout.group.running_session import RunningSession
from spout.group.sources import SourceSpec
from spout.planning.intake import SourceCursor
from spout.planning.journal import Journal

OLDER_LEADER_MS_MAX: Final = 60_000
"""So long a leader may have a lower epoch than one before it, as one that is late with its metadata does.
One that keeps it is of a cluster whose metadata began again."""


class Cut(NamedTuple):
    """A log that was cut: positions [start, end) of a source were read, and are others or gone."""

    source: int
    start: int
    end: int


class Compared(NamedTuple):
    """What a comparison found: logs that were cut, and sources of which that is not known yet."""

    cuts: tuple[Cut, ...] = ()
    unknown: Collection[int] = ()


class _KeptReadTo(NamedTuple):
    """What a process before kept of a source, if less than was initialised.

    It counts for one generation.
    """

    generation: int
    read_to: ReadTo


class Continuity:
    """Compares the logs of one session's sources with what was read of them."""

    def __init__(self, log: Log, specs: Mapping[int, SourceSpec], session: RunningSession) -> None:
        """Begin with the epochs in the cursors of the session, the state of a group that is owned."""
        self._log = log
        self._spec_by_source = specs
        self._session = session
        self._restored_by_source: dict[int, _KeptReadTo] = {}
        # The time that has passed here. Logs are compared once a batch, so between two comparisons
        # much time may pass; a clock that was set ahead counts for half of what a leader is given.
        self._passed_time = PassedTime(between_ms_max=OLDER_LEADER_MS_MAX // 2)
        # by source: since when its leader has a lower epoch than one before, by `_passed_time`
        self._older_since_ms_by_source: dict[int, int] = {}

    def restore(self, read_to_by_source: Mapping[int, ReadTo]) -> None:
        """Begin with what was kept of sources by a process before: in a journal, or with the
        group's commits.

        It may be less than the ackers know to be initialised, and is then compared as it is. Where it is
        more, the group was rewound since, and it says nothing of what is read now. Sources that are
        not read any more are passed over.
        """
        for source, read_to in read_to_by_source.items():
            cursor = self._session.cursors.get(source)
            if cursor is None:
                continue
            next_offset = offset_of(cursor.next)
            if read_to.offset == next_offset:
                cursor.leader_epoch = read_to.leader_epoch
            elif offset_of(cursor.from_) < read_to.offset < next_offset:
                self._restored_by_source[source] = _KeptReadTo(generation_of(cursor.from_), read_to)

    def compare(self, epochs: Mapping[TopicPartition, int], now_ms: int) -> Compared:
        """Compare logs whose leaders have other epochs than are kept; keep the new epochs of whole logs.

        `epochs` are of the leaders that answered now. Raises `Disagreement`: a leader knows no such epoch.
        """
        # 1. compare the epochs
        passed_ms = self._passed_time.read(now_ms)
        # by source with a newer leader: what was read of its log under the older one
        to_compare: dict[int, ReadTo] = {}
        unknown: set[int] = set()
        for source, cursor in self._session.cursors.items():
            spec = self._spec_by_source.get(source)
            epoch = None if spec is None else epochs.get(spec.place)
            if spec is None or epoch is None:  # it is not read now, or its leader did not answer
                continue
            read_to = self._kept_of(source, cursor)
            if read_to is None:  # of a former version: from now on there is an epoch to compare with
                cursor.leader_epoch = epoch
            elif epoch < read_to.leader_epoch:
                # this broker does not know yet that it is no leader any more
                unknown.add(source)
                self._require_patience(spec, read_to.leader_epoch, passed_ms)
            elif epoch > read_to.leader_epoch:
                to_compare[source] = read_to
            else:
                self._keep(source, cursor, epoch)
        for source in self._older_since_ms_by_source.keys() - unknown:
            del self._older_since_ms_by_source[source]
        if not to_compare:
            return Compared(unknown=unknown)
        # 2. ask leaders with a higher epoch up to where their logs are the same
        read_to_by_place: dict[TopicPartition, ReadTo] = {}
        for source, read_to in to_compare.items():
            read_to_by_place[self._spec_by_source[source].place] = read_to
        intact_to_by_place = self._log.intact_to(read_to_by_place)
        # 3. what is no longer the same was cut
        cuts: list[Cut] = []
        for source, read_to in to_compare.items():
            place = self._spec_by_source[source].place
            cursor = self._session.cursors[source]
            intact_to = intact_to_by_place.get(place)
            if intact_to is None:
                unknown.add(source)  # this leader could not say
            elif intact_to < read_to.offset:
                first_lost = position_at(generation_of(cursor.from_), intact_to)
                cuts.append(Cut(source, start=first_lost, end=cursor.next))
            else:
                self._keep(source, cursor, epochs[place])
        return Compared(tuple(cuts), unknown)

    def _kept_of(self, source: int, cursor: SourceCursor) -> ReadTo | None:
        """Return what is kept of a source, to be compared; None where no epoch is known."""
        restored = self._restored_by_source.get(source)
        if restored is not None and restored.generation == generation_of(cursor.from_):
            return restored.read_to
        if cursor.leader_epoch == NO_EPOCH:
            return None
        return ReadTo(offset_of(cursor.next), cursor.leader_epoch)

    def _keep(self, source: int, cursor: SourceCursor, epoch: int) -> None:
        """Keep the epoch of a leader whose log has all that was read of a source."""
        self._restored_by_source.pop(source, None)
        cursor.leader_epoch = epoch

    def _require_patience(self, spec: SourceSpec, epoch: int, passed_ms: int) -> None:
        """Raise `Disagreement` where the leader has been older than `epoch` for too long."""
        since_ms = self._older_since_ms_by_source.setdefault(spec.source, passed_ms)
        if passed_ms - since_ms >= OLDER_LEADER_MS_MAX:
            raise unknown_epoch(spec.place, epoch)


def kept_read_to(
    journal: Journal, committed: Mapping[int, ReadTo], cursors: Mapping[int, SourceCursor]
) -> dict[int, ReadTo]:
    """Return by source what was kept of it: in the journal, else with the group's `committed` offsets.

    A journal of another generation does not count: who rewound the group has decided where it goes
    on.
    """
    read_to_by_source = dict(committed)
    for source, mark in journal.sources.items():
        cursor = cursors.get(source)
        if cursor is None or generation_of(mark.from_) != generation_of(cursor.from_):
            continue
        if mark.leader_epoch != NO_EPOCH:
            read_to_by_source[source] = ReadTo(offset_of(mark.next), mark.leader_epoch)
    return read_to_by_source
