"""Counts the outcome of every record from outside: from the topics alone, without the processes.

The observer reads the verdicts, the replay topic and the dead letters of one input, and keeps a flag for each
record of the source topic. The demo's final table and its checks use it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from acker.config.topics import Input, Topics
from acker.identity import input_id_of, is_replay, offset_of, partition_of
from acker.kafka.port import Log, Record, TopicPartition
from acker.wire import events
from acker.wire.codec import wire_codec
from replay.records.headers import location, parse_lineage
from spout.runtime.follow import Follower

POLL_RECORDS_MAX = 5_000


@dataclass(slots=True)
class OutcomeCounts:
    """The counts so far; of roots, except where a name has records. Acks in wall time, ms; 0: none yet."""

    acked: int = 0
    absent: int = 0
    lost_by_reason: Counter[str] = field(default_factory=Counter)
    repeated_verdicts: int = 0
    copies: int = 0
    dead_letters: int = 0
    records_done: int = 0
    first_ack_ms: int = 0
    last_ack_ms: int = 0

    @property
    def settled(self) -> int:
        """Records and copies that have a verdict; ABSENT positions (markers of transactions) are neither."""
        return self.acked + sum(self.lost_by_reason.values())


class OutcomeObserver:
    """Follows one input from the beginning of its topics."""

    def __init__(self, log: Log, topics: Topics, source: Input) -> None:
        self.counts = OutcomeCounts()
        self.dead_lines: list[bytes] = []
        self.copies_by_origin: Counter[str] = Counter()
        self._source = source
        self._codec = wire_codec()
        self._verdict_topic = topics.ack_topics.verdict
        infos = log.topics([source.topic, source.replay_topic, source.dead_letter.topic])
        self._partitions = infos[source.topic].partitions
        self._done = [np.zeros(0, np.bool_) for _ in range(self._partitions)]
        self._verdict_seen: dict[int, np.ndarray] = {}
        self._origins: dict[tuple[int, int], str] = {}
        self._acked_copies: set[tuple[int, int]] = set()
        self._killed_at_wall: int | None = None
        self._lost_across_kill: list[tuple[events.SourceRun, int | None]] = []
        self._acked_at: dict[int, list[tuple[int, int, int]]] = {}
        numbers = range(topics.acker.partitions)
        self._acks = Follower(log, [TopicPartition(topics.ack_topics.ack, p) for p in numbers])
        places = [TopicPartition(self._verdict_topic, p) for p in numbers]
        for name in (source.replay_topic, source.dead_letter.topic):
            places += [TopicPartition(name, p) for p in range(infos[name].partitions)]
        self._reader = log.reader(committed=True)
        self._reader.assign(log.starts(places))
        self._places = places
        self._log = log

    def step(self, timeout_ms: int) -> int:
        """Read new records; wait at most `timeout_ms` for the first one. Return how many were read."""
        records = self._reader.poll(timeout_ms, POLL_RECORDS_MAX)
        for record in records:
            self._read(record)
        self._note_acks()
        return len(records)

    def read_to_end(self, timeout_ms: int) -> bool:
        """Read up to the present stable ends; return whether that was done within `timeout_ms`."""
        self._note_acks()
        ends = self._log.stable_ends(self._places)
        slice_ms = 50
        for _ in range(max(1, timeout_ms // slice_ms)):
            if all(self._reader.position(tp) >= end for tp, end in ends.items()):
                return True
            self.step(slice_ms)
        return False

    def origins_done(self) -> int:
        """Count the records of the source topic that ended acked or as a dead letter."""
        return int(sum(int(flags.sum()) for flags in self._done))

    def note_kill(self, wall_ms: int) -> None:
        """Note that the acker was killed at a wall time; everything read so far counts as before it."""
        self._killed_at_wall = wall_ms

    def lost_across_kill(self) -> set[str]:
        """Return the records, as origins, that the acker's kill may have cost.

        One of their roots was open at the kill and is lost, and not because its batch took longer than its
        timeout: either it did not time out, or the acks that complete it came in time.
        """
        return {
            origin
            for run, due_wall in self._lost_across_kill
            for position in range(run.start, run.end)
            if due_wall is None or self._was_acked(run.source, position, due_wall)
            if (origin := self._origin_of(run.source, offset_of(position))) is not None
        }

    def close(self) -> None:
        self._acks.close()
        self._reader.close()

    def _read(self, record: Record) -> None:
        if record.topic == self._verdict_topic:
            event = self._codec.decode(record.value)
            if isinstance(event, events.Verdicts):
                before = self.counts.acked
                self._settle(event)
                if self.counts.acked > before:
                    self.counts.first_ack_ms = self.counts.first_ack_ms or record.timestamp_ms
                    self.counts.last_ack_ms = max(self.counts.last_ack_ms, record.timestamp_ms)
            return
        origin = parse_lineage(record.headers, record.topic, record.partition, record.offset).origin
        if record.topic == self._source.replay_topic:
            self.counts.copies += 1
            self.copies_by_origin[origin] += 1
            self._origins[record.partition, record.offset] = origin
            if (record.partition, record.offset) in self._acked_copies:
                self._finish_origin(origin)
        else:
            self.counts.dead_letters += 1
            self.dead_lines.append(record.value or b"")
            self._finish_origin(origin)

    def _settle(self, verdicts: events.Verdicts) -> None:
        for run in verdicts.acked:
            if input_id_of(run.source) == self._source.id:
                self.counts.acked += self._first_verdicts(run)
                self._finish_run(run)
        for run in verdicts.absent:
            if input_id_of(run.source) == self._source.id:
                self.counts.absent += self._first_verdicts(run)
        for lost in verdicts.lost:
            if input_id_of(lost.source) == self._source.id:
                open_at_kill = self._killed_at_wall is not None and lost.emitted_wall <= self._killed_at_wall
                timed_out = lost.reason is events.Reason.TIMED_OUT
                due_wall = lost.emitted_wall + self._source.timeout_ms if timed_out else None
                for start, end in events.runs_of(np.sort(events.positions(lost.positions))):
                    run = events.SourceRun(lost.source, start, end)
                    self.counts.lost_by_reason[lost.reason.value] += self._first_verdicts(run)
                    if open_at_kill:
                        self._lost_across_kill.append((run, due_wall))

    def _note_acks(self) -> None:
        """Remember when roots were acked completely; the ackers shorten that log while it is read."""
        for record in self._acks.read():
            event = self._codec.decode(record.value)
            if isinstance(event, events.Acks) and input_id_of(event.source) == self._source.id:
                found = self._acked_at.setdefault(event.source, [])
                found += [(start, end, record.timestamp_ms) for start, end in event.runs]

    def _was_acked(self, source: int, position: int, before_wall: int) -> bool:
        return any(
            start <= position < end and at_wall < before_wall
            for start, end, at_wall in self._acked_at.get(source, ())
        )

    def _origin_of(self, source: int, offset: int) -> str | None:
        if is_replay(source):
            return self._origins.get((partition_of(source), offset))
        return location(self._source.topic, partition_of(source), offset)

    def _first_verdicts(self, run: events.SourceRun) -> int:
        """Mark the roots of a run as settled; count new ones, and count repeated ones separately."""
        start, end = offset_of(run.start), offset_of(run.start) + (run.end - run.start)
        seen = _grown(self._verdict_seen.get(run.source, np.zeros(0, np.bool_)), end)
        self._verdict_seen[run.source] = seen
        again = int(seen[start:end].sum())
        seen[start:end] = True
        self.counts.repeated_verdicts += again
        return (end - start) - again

    def _finish_run(self, run: events.SourceRun) -> None:
        partition, start = partition_of(run.source), offset_of(run.start)
        end = start + (run.end - run.start)
        if not is_replay(run.source):
            self._done[partition] = _grown(self._done[partition], end)
            self._done[partition][start:end] = True
            return
        for offset in range(start, end):
            self._acked_copies.add((partition, offset))
            origin = self._origins.get((partition, offset))
            if origin is not None:
                self._finish_origin(origin)

    def _finish_origin(self, origin: str) -> None:
        place, _, offset = origin.rpartition("@")
        partition = int(place.rpartition("/")[2])
        self._done[partition] = _grown(self._done[partition], int(offset) + 1)
        self._done[partition][int(offset)] = True


def _grown(flags: np.ndarray, size: int) -> np.ndarray:
    if len(flags) >= size:
        return flags
    grown = np.zeros(max(size, 2 * len(flags)), np.bool_)
    grown[: len(flags)] = flags
    return grown
