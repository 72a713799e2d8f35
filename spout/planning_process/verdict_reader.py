"""Reads `_ack_verdict` for a planning process, from where it ends when the process starts.

Source: docs/design/protocol.md, section 5.1.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing

from acker.config.settings import AckTopics
from acker.errors import CodecError, UnknownVersion, Unreachable
from acker.kafka.port import Bound, Log, Record, TopicPartition
from acker.kafka.read_to_end import Follower, poll_past_damage
from acker.kafka.standing import StandingNews, StandingPartition, StandingWatch
from acker.root_sets.root_set import RootSet
from acker.service.partition_counts import PartitionCounts
from acker.service.passed_over import damage_handler, offset_to_pass_over, require_passed_over
from acker.wire.checks import LogOnce, wrong_taken, wrong_verdicts
from acker.wire.clusters import require_cluster
from acker.wire.codec import wire_codec
from acker.wire.events import SourceRun, Taken, Verdicts
from spout.group.announce import Report

POLL_RECORDS_MAX = 1_000


class VerdictReader:
    """Follows all acker partitions from now on, and reads single questions from what they wrote
    before.

    Attributes:
        undecodable_count: how many records no acker wrote, which were passed over.
    """

    def __init__(self, log: Log, topics: AckTopics, partitions: int, report: Report) -> None:
        """Begin at the ends as they are now; `report` what is passed over, once for each kind.

        Raises `TopicError`: an ack topic is missing; `Disagreement`: the ack topics have not
        `partitions`.
        """
        names = (topics.init, topics.ack, topics.fail, topics.verdict)
        self._partition_counts = PartitionCounts(log, names, partitions)
        self.undecodable_count = 0
        self._report = report
        self._reported = LogOnce()
        self._codec = wire_codec()
        self._log = log
        self._cluster_id = log.cluster_id()
        self._is_read_to_end = True  # whether the last poll left nothing to read
        self._standing_watch = StandingWatch(log, Bound.STABLE_END)
        # what to do with a record batch that cannot be read: pass it over if an operator has said
        # so
        self._on_damage = damage_handler(log)
        places = [TopicPartition(topics.verdict, partition) for partition in range(partitions)]
        self._first_offsets = log.ends(places)
        self._reader = log.reader(committed=True, patient=True)  # last: nobody closes it if a question fails
        self._reader.assign(self._first_offsets)

    def poll(self, wait_ms: int) -> Sequence[Record]:
        """Return the next records, at most `POLL_RECORDS_MAX`; wait for them at most so long."""
        records = poll_past_damage(self._reader, wait_ms, POLL_RECORDS_MAX, self._on_damage)
        self._is_read_to_end = len(records) < POLL_RECORDS_MAX
        return records

    def read_lost_before(
        self, taken_over: Mapping[int, int], sources: Collection[int]
    ) -> dict[int, int] | None:
        """Read where a process before this one lost roots that no replay worker has taken over.

        Args:
            taken_over: by acker partition, the offset below which replay workers have read all
                verdicts.
            sources: those whose roots count.

        Returns:
            By acker partition the offset behind the last verdict of a lost root, as in
            `DueWatch.has_replayed_all`. None: the broker was too slow; call it again.
        """
        # verdicts from the first offset on were polled by this process, which knows what they lost
        unread_places: list[TopicPartition] = []
        for place, first_offset in self._first_offsets.items():
            if taken_over[place.partition] < first_offset:
                unread_places.append(place)
        if not unread_places:
            return {}
        begin_offsets: dict[TopicPartition, int] = {}
        for place, log_start in self._log.starts(unread_places).items():
            # retention may have removed the records behind those that were taken over
            begin_offsets[place] = max(log_start, taken_over[place.partition])
        follower = Follower(
            self._log,
            unread_places,
            read_max=sys.maxsize,
            first_offsets=begin_offsets,
            on_damage=self._on_damage,
        )
        lost_below: dict[int, int] = {}
        with closing(follower):
            for record in follower.read():
                if is_lost_of(self.decode(record), sources):
                    lost_below[record.partition] = record.offset + 1
            return lost_below if follower.is_whole else None

    def find_acked(self, roots: RootSet, since_ms: int, patience_ms: int) -> SourceRun | None:
        """Search for `roots` that were ACKED before this process began; return their first run.

        None: none of them was. Verdicts are read from the wall time `since_ms` on, and only of the
        acker partitions that own the roots.

        Raises `Unreachable`: the broker had more, and sent nothing for `patience_ms`.
        """
        sources = set(roots.sources())
        owners = roots.by_acker_partition(len(self._first_offsets)).keys()
        places = [place for place in self._first_offsets if place.partition in owners]
        follower = Follower(
            self._log,
            places,
            read_max=sys.maxsize,
            first_offsets=self._log.offsets_at(places, max(0, since_ms)),
            patience_ms=patience_ms,
            on_damage=self._on_damage,
        )
        with closing(follower):
            for record in follower.read():
                place = TopicPartition(record.topic, record.partition)
                # what came since this process began may be of another driver, at its last batch
                is_old = record.offset < self._first_offsets[place]
                event = self.decode(record) if is_old else None
                if not isinstance(event, Verdicts):
                    continue
                acked_of_sources = [run for run in event.acked if run.source in sources]
                acked = RootSet.of_runs(acked_of_sources) & roots
                if acked:
                    return acked.runs()[0]
            # the broker had more, so one of them may have been ACKED there
            if not follower.is_whole:
                raise Unreachable(f"{places[0].topic}: the broker sent no records for {patience_ms} ms")
        return None

    def check_standing(self, now_ms: int) -> StandingNews:
        """Check how far the partitions have come.

        Return which stand now, or go on again, to be reported.

        From time to time this compares the number of partitions with ours, and raises as `__init__`
        does.
        """
        self._partition_counts.check_if_due(now_ms)
        positions = {place: self._reader.position(place) for place in self._first_offsets}
        return self._standing_watch.check_positions(positions, now_ms, is_drained=self._is_read_to_end)

    def standing(self) -> tuple[StandingPartition, ...]:
        """Return which partitions stand: nothing settles the roots of these acker partitions here."""
        return self._standing_watch.standing()

    def decode(self, record: Record) -> Taken | Verdicts | None:
        """Return what a record says, an answer or verdicts; None: it is passed over.

        A record that no acker wrote is passed over and counted. One that an operator has marked to be passed
        over (`windhover topics repair`), and the mark itself, are passed over, too.

        Raises:
            UnknownVersion: a newer acker wrote it, and nobody has marked it: what it settles would stay
                pending for ever.
            Disagreement: it was written in another cluster, and mirrored: it would settle other records.
        """
        require_cluster(record.place, record.headers, record.value, self._cluster_id)
        try:
            event = self._codec.decode(record.value)
        except UnknownVersion as error:
            cure = "a newer acker wrote it, run the spout with the version of the ackers"
            self._pass_over(record, require_passed_over(self._log, record, error, cure))
            return None
        except CodecError as error:
            if offset_to_pass_over(record) is None:
                self._pass_over(record, str(error))
            return None
        if not isinstance(event, Verdicts | Taken):
            self._pass_over(record, f"{type(event).__name__} does not belong into this topic")
            return None
        why_wrong = wrong_verdicts(event) if isinstance(event, Verdicts) else wrong_taken(event)
        if why_wrong:
            self._pass_over(record, why_wrong)
            return None
        return event

    def _pass_over(self, record: Record, why: str) -> None:
        """Count a record that no acker wrote; report the first of its kind."""
        self.undecodable_count += 1
        if self._reported.add_if_new(record.topic, why):
            self._report("undecodable", {"record": record.place, "error": why})

    def close(self) -> None:
        """Read no more."""
        self._reader.close()


def is_lost_of(event: Taken | Verdicts | None, sources: Collection[int]) -> bool:
    """Return whether a record of the verdict log says that a root of these sources is lost."""
    return isinstance(event, Verdicts) and any(lost.source in sources for lost in event.lost)
