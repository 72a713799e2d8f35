"""What the partitions of one replay worker share, and the two questions that they ask of the log.

Source: DESIGN.md, section 5.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Final

from acker.codec import Codec, wire_codec
from acker.errors import Disagreement, TopicError
from acker.events import Event, Lost
from acker.identity import input_id_of
from acker.log import Log, TopicInfo
from acker.topics import AckTopics, Input, Topics
from replay.backoff import Backoff
from replay.breaker import Breaker
from replay.disposition import Policy
from replay.due import due_codec
from replay.fetch import Fetcher
from replay.limits import ReplayLimits
from replay.report import Counters, ReplayEvent, Report

MESSAGE_BYTES_MAX: Final = 1_048_588
"""Kafka's default of ``max.message.bytes``, for a topic that does not say."""


class Worker:
    """The log, the policy of each input, the limits, and what is counted."""

    def __init__(
        self, log: Log, topics: Topics, jitter: Callable[[], float], limits: ReplayLimits, report: Report
    ) -> None:
        """Prepare what is shared; asks nothing of the log yet."""
        self.log = log
        self.names: AckTopics = topics.ack_topics
        self.group = topics.acker.replay_group
        self.partitions = topics.acker.partitions
        self.jitter = jitter
        self.limits = limits
        self.verdicts = _verdict_codec()
        self.dues = due_codec()
        self.counters = Counters()
        self.fetcher = Fetcher(log, limits)
        self._report = report
        self._told: set[tuple[str, str]] = set()
        self._inputs = {found.id: found for found in topics.inputs.values()}
        self._policies = {found.id: _policy(found) for found in topics.inputs.values()}
        self._breakers = {found.id: _breaker(found, limits) for found in topics.inputs.values()}

    def input_of(self, source: int, group: str) -> Input:
        """Return the input that a lost root belongs to.

        Raises:
            Disagreement: topics.yaml has no such input, or has it under another group. The root stays where
                it is, in the verdicts or in `_ack_due`, so nothing is lost.
        """
        found = self._inputs.get(input_id_of(source))
        if found is None:
            raise Disagreement(
                f"group {group} lost a root of input id {input_id_of(source)}, which topics.yaml does not"
                " have; give the replay worker a topics.yaml with all inputs of the installation"
            )
        if found.group != group:
            raise Disagreement(
                f"input id {found.id} is group {group} in a verdict and group {found.group} in topics.yaml;"
                " an id is never used again: give the new input another one"
            )
        return found

    def policy_of(self, found: Input) -> Policy:
        """Return when an input's records are given up, and how long they wait until then."""
        return self._policies[found.id]

    def breaker_of(self, found: Input) -> Breaker:
        """Return the breaker of an input."""
        return self._breakers[found.id]

    def acked(self, source: int, count: int, now_ms: int) -> None:
        """Count acked roots of a source; one of an unknown input is nobody's."""
        breaker = self._breakers.get(input_id_of(source))
        if breaker is not None:
            breaker.acked(count, now_ms)

    def tell(self, name: str, **fields: str | int) -> None:
        """Report an event."""
        self._report(ReplayEvent(name, fields))

    def undecodable(self, topic: str, partition: int, offset: int, error: str) -> None:
        """Count a record that cannot be read, and tell it once per topic and flaw."""
        self.counters.undecodable += 1
        if (topic, error) not in self._told and len(self._told) < 100:
            self._told.add((topic, error))
            self.tell("undecodable", topic=topic, partition=partition, offset=offset, error=error)

    def same_topics(self, roots: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
        """Ask the broker which of some (topic, topic id) are still so."""
        pairs = set(roots)
        return unchanged(pairs, self.log.topics({name for name, _ in pairs}) if pairs else {})

    def writable(self, inputs: Iterable[Input], also: Iterable[str] = ()) -> dict[str, TopicInfo]:
        """Ask the broker for the replay and dead-letter topics of some inputs, in one go with others.

        Args:
            inputs: whose topics must exist.
            also: names of topics that may be missing.

        Raises:
            TopicError: a replay or dead-letter topic is missing.
        """
        wanted = {name for found in inputs for name in (found.replay_topic, found.dead_letter.topic)}
        infos = dict(self.log.topics(wanted | set(also)))
        missing = sorted(wanted - set(infos))
        if missing:
            raise TopicError(f"topics {', '.join(missing)} are missing; run `windhover topics create`")
        return infos

    def check_topics(self) -> None:
        """Compare the broker's topics with topics.yaml.

        Raises:
            TopicError: a topic is missing, or a replay topic has fewer partitions than its source topic.
            Disagreement: an ack topic has another number of partitions than topics.yaml says.
        """
        ours = (self.names.verdict, self.names.due)
        tracked = [found for found in self._inputs.values() if found.tracked]
        infos = self.writable(tracked, (*ours, *(found.topic for found in tracked)))
        for name in ours:
            if name not in infos:
                raise TopicError(f"topic {name} is missing; run `windhover topics create`")
            if infos[name].partitions != self.partitions:
                raise Disagreement(
                    f"topic {name} has {infos[name].partitions} partitions, topics.yaml says"
                    f" {self.partitions}; acker.partitions is fixed for life: set it back"
                )
        for found in tracked:
            source, copies = infos.get(found.topic), infos[found.replay_topic]
            if source is not None and copies.partitions < source.partitions:
                raise TopicError(
                    f"topic {found.replay_topic} has {copies.partitions} partitions, its source"
                    f" {found.topic} {source.partitions}; give it as many"
                )


def bytes_max(info: TopicInfo) -> int:
    """Return the largest record that a topic takes."""
    text = info.settings.get("max.message.bytes", "")
    return int(text) if text.isdecimal() else MESSAGE_BYTES_MAX


def unchanged(roots: Iterable[tuple[str, str]], infos: Mapping[str, TopicInfo]) -> set[tuple[str, str]]:
    """Return those (topic, topic id) that the broker still has."""
    return {(name, id_) for name, id_ in roots if name in infos and infos[name].id == id_}


def topic_of(lost: Lost) -> tuple[str, str]:
    """Return the topic, with Kafka's id of it, that lost roots are read from."""
    return lost.topic, lost.topic_id


@cache
def _verdict_codec() -> Codec[Event]:
    return wire_codec()


def _policy(found: Input) -> Policy:
    retry = found.retry
    return Policy(
        attempts=retry.attempts,
        max_abandoned=retry.max_abandoned,
        backoff=Backoff(retry.initial_ms, retry.multiplier, retry.max_ms, retry.jitter),
    )


def _breaker(found: Input, limits: ReplayLimits) -> Breaker:
    return Breaker(
        found.name,
        max_ratio=found.dead_letter.max_ratio,
        max_consecutive=found.dead_letter.max_consecutive,
        window_ms=limits.breaker_window_ms,
        dead_min=limits.breaker_dead_min,
    )
