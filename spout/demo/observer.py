"""Reads what became of every record of an input, from its topics alone."""

from __future__ import annotations

from typing import NamedTuple, assert_never

from acker.config.topics import Input, Topics
from acker.identity import Root, input_id_of
from acker.kafka.port import Log, TopicPartition
from acker.kafka.read_to_end import Follower
from acker.wire import events
from acker.wire.codec import wire_codec
from acker.wire.verdict import Verdict
from spout.demo.judge import Outcomes, SettledRun, settled_runs

POLL_RECORDS_MAX = 5_000


class AckedRun(NamedTuple):
    """Positions [start, end) of a source whose last acks were written at wall time `wall_ms`."""

    start: int
    end: int
    wall_ms: int


class LossAcrossKill(NamedTuple):
    """Roots that were emitted before the acker's kill, and whose loss was read after it.

    `due_wall_ms` is when their timeout passed; None: they did not time out.
    """

    run: SettledRun
    due_wall_ms: int | None


class OutcomeObserver:
    """Follows one input from the beginning of its topics.

    Attributes:
        outcomes: what became of its roots and records so far.
        first_ack_ms: wall time at which the first ACKED verdicts were written; 0: none yet.
        last_ack_ms: the same of the last ones so far.
        dead_letter_lines: the payload of each dead letter, in the order in which they were read.
    """

    def __init__(self, log: Log, topics: Topics, observed: Input) -> None:
        """Open readers at the beginning of the input's verdicts, acks, copies and dead letters."""
        self.outcomes = Outcomes(observed.id, observed.topic, observed.replay_topic)
        self.first_ack_ms = 0
        self.last_ack_ms = 0
        self.dead_letter_lines: list[bytes] = []
        self._input = observed
        self._codec = wire_codec()
        self._verdict_topic = topics.ack_topics.verdict
        self._killed_wall_ms: int | None = None  # None: the acker was not killed
        self._losses_across_kill: list[LossAcrossKill] = []
        self._acked_runs_by_source: dict[int, list[AckedRun]] = {}
        acker_partitions = range(topics.acker.partitions)
        # those that `_reader` reads: of verdicts, copies and dead letters
        self._partitions = [TopicPartition(self._verdict_topic, number) for number in acker_partitions]
        topics_of_lost = [observed.replay_topic, observed.dead_letter.topic]
        for name, info in log.topics(topics_of_lost).items():
            self._partitions += [TopicPartition(name, number) for number in range(info.partitions)]
        starts = log.starts(self._partitions)
        ack_partitions = [TopicPartition(topics.ack_topics.ack, number) for number in acker_partitions]
        self._ack_reader = Follower(log, ack_partitions)
        # opened last: nobody would close it if a request before it raised
        self._reader = log.reader(committed=True)
        self._reader.assign(starts)
        self._log = log

    def read_new_records(self, timeout_ms: int) -> int:
        """Read new records; return how many were read, 0: none came within `timeout_ms`."""
        records = self._reader.poll(timeout_ms, POLL_RECORDS_MAX)
        for record in records:
            if record.topic == self._verdict_topic:
                event = self._codec.decode(record.value)
                if isinstance(event, events.Verdicts):
                    self._record_verdicts(event, record.timestamp_ms)
                continue
            self.outcomes.record_replacement(record)
            if record.topic == self._input.dead_letter.topic:
                self.dead_letter_lines.append(record.value or b"")
        self._record_acks()
        return len(records)

    def read_to_end(self, timeout_ms: int) -> bool:
        """Read all records that are committed now.

        Return whether that was done within `timeout_ms`.
        """
        self._record_acks()
        ends = self._log.stable_ends(self._partitions)
        poll_ms = 50
        for _ in range(max(1, timeout_ms // poll_ms)):
            if all(self._reader.position(partition) >= end for partition, end in ends.items()):
                return True
            self.read_new_records(poll_ms)
        return False

    def record_kill(self, wall_ms: int) -> None:
        """Record that the acker was killed at a wall time.

        Losses that were read before this call are not counted as the kill's.
        """
        self._killed_wall_ms = wall_ms

    def lost_across_kill(self) -> set[str]:
        """Return the origins of the records that may have been lost by the acker's kill.

        One of their roots was open at the kill, and is lost. Left out are roots that timed out
        because their batch took longer than the timeout: the acks that complete them did not come
        in time.
        """
        origins: set[str] = set()
        for loss in self._losses_across_kill:
            due_wall_ms = loss.due_wall_ms
            for root in loss.run.roots():
                # a root that did not time out (None) is lost by something else than a slow batch
                batch_was_slow = due_wall_ms is not None and not self._was_acked(root, due_wall_ms)
                emission = self.outcomes.emission_of(root)
                if not batch_was_slow and emission is not None:
                    origins.add(emission.origin)
        return origins

    def close(self) -> None:
        """Close both readers."""
        self._ack_reader.close()
        self._reader.close()

    def _record_verdicts(self, verdicts: events.Verdicts, written_ms: int) -> None:
        """Record verdicts that an acker wrote at the wall time `written_ms`."""
        acked_before = self.outcomes.counts.acked
        killed_ms = self._killed_wall_ms
        for run in settled_runs(verdicts):
            self.outcomes.record_verdict(run)
            lost = run.lost
            if lost is None or input_id_of(run.source) != self._input.id:
                continue  # these roots are not lost, or of another input
            # emitted before the kill, and settled after it: they were open at the kill
            if killed_ms is not None and lost.emitted_wall <= killed_ms:
                self._losses_across_kill.append(LossAcrossKill(run, self._due_wall_ms(lost)))
        # verdicts of other inputs change no count
        if self.outcomes.counts.acked > acked_before:
            self.first_ack_ms = self.first_ack_ms or written_ms
            self.last_ack_ms = max(self.last_ack_ms, written_ms)

    def _due_wall_ms(self, lost: events.Lost) -> int | None:
        """Return the wall time at which the timeout of lost roots passed.

        None: they did not time out.
        """
        match lost.reason:
            case Verdict.TIMED_OUT:
                return lost.emitted_wall + self._input.timeout_ms
            case Verdict.FAILED | Verdict.ABANDONED:
                return None
            case _:
                assert_never(lost.reason)

    def _record_acks(self) -> None:
        """Record when roots were acked completely.

        It is called often, since the ackers delete the records of `_ack_ack` that they have read.
        """
        for record in self._ack_reader.read():
            event = self._codec.decode(record.value)
            if isinstance(event, events.Acks) and input_id_of(event.source) == self._input.id:
                acked_runs = self._acked_runs_by_source.setdefault(event.source, [])
                acked_runs += [AckedRun(start, end, record.timestamp_ms) for start, end in event.runs]

    def _was_acked(self, root: Root, before_wall_ms: int) -> bool:
        """Return whether the last ack of a root was written before a wall time."""
        return any(
            run.start <= root.position < run.end and run.wall_ms < before_wall_ms
            for run in self._acked_runs_by_source.get(root.source, ())
        )
