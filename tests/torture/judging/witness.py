"""Reads every topic that tells what became of the records, from before the first blow to after the last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from acker.config.topics import Input, Topics
from acker.errors import Unreachable
from acker.kafka.port import Log, TopicInfo, TopicPartition
from spout.demo.judge import Outcomes, uncommitted
from tests.support.waiting import eventually
from tests.torture.judging.evidence import Evidence, Names
from tests.torture.judging.recording import Recording

POLL_RECORDS_MAX: Final = 5_000


class Witness:
    """Follows the input's topics and the ackers' from their beginnings; the ackers shorten theirs later."""

    def __init__(self, log: Log, topics: Topics, source: Input) -> None:
        """Begin to read."""
        names = Names(
            source=source.topic,
            replay=source.replay_topic,
            dead_letters=source.dead_letter.topic,
            init=topics.ack_topics.init,
            ack=topics.ack_topics.ack,
            fail=topics.ack_topics.fail,
            verdict=topics.ack_topics.verdict,
        )
        self.evidence = Evidence(names, Outcomes(source.id, source.topic, source.replay_topic))
        self._recording = Recording()
        self._log = log
        self._infos: Mapping[str, TopicInfo] = {}
        eventually(lambda: self._knows(names), told=lambda: f"known are {sorted(self._infos)}")
        infos = self._infos
        self._partitions = [TopicPartition(name, p) for name in infos for p in range(infos[name].partitions)]
        self._source_partitions = [place for place in self._partitions if place.topic == source.topic]
        self._group = source.group
        self._reader = log.reader(committed=True)
        # from the first record on, or not at all: a rule that misses a take calls its roots unknown
        self._reader.assign(dict.fromkeys(self._partitions, 0))

    def _knows(self, names: Names) -> bool:
        """Look for the topics: one of several brokers may not know yet what another one has created."""
        self._infos = self._log.topics(names)
        return self._infos.keys() == set(names)

    def step(self, timeout_ms: int) -> int:
        """Read what there is; return how many records. A broker that is away is waited for.

        Raises:
            OutOfRange: the ackers have deleted what was not read yet.
        """
        try:
            records = self._reader.poll(timeout_ms, POLL_RECORDS_MAX)
        except Unreachable:
            return 0
        for record in records:
            self.evidence.read(record)
            self._recording.read(record)
        return len(records)

    def has_read_all(self) -> bool:
        """Tell whether everything committed up to now was read."""
        ends = self._log.stable_ends(self._partitions)
        return all(self._reader.position(place) >= end for place, end in ends.items())

    def recording(self) -> Recording:
        """Return everything that was read, with where the partitions end and the group has come to."""
        ends = self._log.stable_ends(self._partitions)
        commits = self._log.committed(self._group, self._source_partitions)
        self._recording.infos = self._infos
        self._recording.ends = ends
        self._recording.commits = commits
        return self._recording

    def open_roots(self) -> int:
        """Count roots without a verdict."""
        return len(self.evidence.stories.keys() - self.evidence.verdicts.keys())

    def uncommitted(self) -> dict[str, str]:
        """Name the source's partitions whose committed offset is not at the end, each with where it is."""
        ends = self._log.stable_ends(self._source_partitions)
        committed = self._log.committed(self._group, self._source_partitions)
        return uncommitted(ends, committed)

    def unfinished(self) -> int:
        """Count records that have neither an acked root nor a dead letter."""
        numbers, outcomes = self.evidence.numbers, self.evidence.outcomes
        return sum(not outcomes.has_ended(origin) for origin in numbers)

    def close(self) -> None:
        """Leave."""
        self._reader.close()
