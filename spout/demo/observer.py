"""Reads what became of every record of an input from its topics alone, for `spout.demo.judge.Outcomes`."""

from __future__ import annotations

from typing import assert_never

from acker.config.topics import Input, Topics
from acker.identity import Root, input_id_of
from acker.kafka.port import Log, TopicPartition
from acker.kafka.read_to_end import Follower
from acker.wire import events
from acker.wire.codec import wire_codec
from acker.wire.verdict import Verdict
from spout.demo.judge import Outcomes, SettledRun, settled_runs

POLL_RECORDS_MAX = 5_000


class OutcomeObserver:
    """Follows one input from the beginning of its topics.

    Attributes:
        outcomes: what became of its roots and records so far.
        first_ack_ms: wall time of the first record with ACKED verdicts, ms; 0: none yet. Likewise the last.
    """

    def __init__(self, log: Log, topics: Topics, source: Input) -> None:
        self.outcomes = Outcomes(source.id, source.topic, source.replay_topic)
        self.first_ack_ms = 0
        self.last_ack_ms = 0
        self.dead_lines: list[bytes] = []
        self._source = source
        self._codec = wire_codec()
        self._verdict_topic = topics.ack_topics.verdict
        self._killed_at_wall: int | None = None
        self._lost_across_kill: list[tuple[SettledRun, int | None]] = []
        self._acked_at: dict[int, list[tuple[int, int, int]]] = {}
        numbers = range(topics.acker.partitions)
        self._places = [TopicPartition(self._verdict_topic, p) for p in numbers]
        for name, info in log.topics([source.replay_topic, source.dead_letter.topic]).items():
            self._places += [TopicPartition(name, p) for p in range(info.partitions)]
        starts = log.starts(self._places)
        self._acks = Follower(log, [TopicPartition(topics.ack_topics.ack, p) for p in numbers])
        self._reader = log.reader(committed=True)  # last: nobody closes it if a question fails
        self._reader.assign(starts)
        self._log = log

    def step(self, timeout_ms: int) -> int:
        """Read new records; wait at most `timeout_ms` for the first one. Return how many were read."""
        records = self._reader.poll(timeout_ms, POLL_RECORDS_MAX)
        for record in records:
            if record.topic == self._verdict_topic:
                event = self._codec.decode(record.value)
                if isinstance(event, events.Verdicts):
                    self._settle(event, record.timestamp_ms)
                continue
            self.outcomes.replace(record)
            if record.topic == self._source.dead_letter.topic:
                self.dead_lines.append(record.value or b"")
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

    def note_kill(self, wall_ms: int) -> None:
        """Note that the acker was killed at a wall time; everything read so far counts as before it."""
        self._killed_at_wall = wall_ms

    def lost_across_kill(self) -> set[str]:
        """Return the records, as origins, that the acker's kill may have cost.

        One of their roots was open at the kill and is lost, and not because its batch took longer than its
        timeout: either it did not time out, or the acks that complete it came in time.
        """
        return {
            emission.origin
            for run, due_wall in self._lost_across_kill
            for root in run.roots()
            if due_wall is None or self._was_acked(root, due_wall)
            if (emission := self.outcomes.emission_of(root)) is not None
        }

    def close(self) -> None:
        self._acks.close()
        self._reader.close()

    def _settle(self, verdicts: events.Verdicts, at_ms: int) -> None:
        acked = self.outcomes.counts.acked
        for run in settled_runs(verdicts):
            self.outcomes.settle(run)
            lost, killed_at = run.lost, self._killed_at_wall
            if lost is None or killed_at is None or input_id_of(run.source) != self._source.id:
                continue
            if lost.emitted_wall <= killed_at:
                self._lost_across_kill.append((run, self._due_wall(lost)))
        if self.outcomes.counts.acked > acked:
            self.first_ack_ms = self.first_ack_ms or at_ms
            self.last_ack_ms = max(self.last_ack_ms, at_ms)

    def _due_wall(self, lost: events.Lost) -> int | None:
        """Return the wall time at which lost roots were due; None: they did not time out."""
        match lost.reason:
            case Verdict.TIMED_OUT:
                return lost.emitted_wall + self._source.timeout_ms
            case Verdict.FAILED | Verdict.ABANDONED:
                return None
            case _:
                assert_never(lost.reason)

    def _note_acks(self) -> None:
        """Remember when roots were acked completely; the ackers shorten that log while it is read."""
        for record in self._acks.read():
            event = self._codec.decode(record.value)
            if isinstance(event, events.Acks) and input_id_of(event.source) == self._source.id:
                found = self._acked_at.setdefault(event.source, [])
                found += [(start, end, record.timestamp_ms) for start, end in event.runs]

    def _was_acked(self, root: Root, before_wall: int) -> bool:
        return any(
            start <= root.position < end and at_wall < before_wall
            for start, end, at_wall in self._acked_at.get(root.source, ())
        )
