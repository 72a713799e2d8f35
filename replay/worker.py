"""What the partitions of one replay worker share, and the two questions that they ask of the log.

Source: DESIGN.md, section 5.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Final

from acker.codec import Codec, wire_codec
from acker.errors import Disagreement, TopicError, UnknownVersion
from acker.events import Event, Lost
from acker.identity import input_id_of
from acker.log import Log, Record, TopicInfo
from acker.partition_counts import PartitionCounts
from acker.told import Told
from acker.topics import AckTopics, Input, Topics
from replay.backoff import Backoff
from replay.breaker import Breaker
from replay.causes import Action, Rule
from replay.disposition import Policy
from replay.due import due_codec
from replay.fetch import Fetcher
from replay.limits import ReplayLimits
from replay.report import Counters, ReplayEvent, Report

MESSAGE_BYTES_MAX: Final = 1_048_588
"""Kafka's default of ``max.message.bytes``, for a topic that does not say."""


def unwatched(_what: str) -> None:
    """Let nobody watch."""


class Worker:
    """The log, the policy of each input, the limits, and what is counted."""

    def __init__(
        self,
        log: Log,
        topics: Topics,
        jitter: Callable[[], float],
        limits: ReplayLimits,
        report: Report,
        at: Callable[[str], None] = unwatched,
    ) -> None:
        """Prepare what is shared; asks nothing of the log yet.

        `at` is called with each bounded thing that is begun, for whoever watches that none hangs.
        """
        self.at = at
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
        self._told = Told()
        self._counts: PartitionCounts | None = None
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

    def tracked(self, source: int) -> Input | None:
        """Return the tracked input that a source is of; None if topics.yaml has none."""
        found = self._inputs.get(input_id_of(source))
        return found if found is not None and found.tracked else None

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
        if self._told.is_first(topic, error):
            self.tell("undecodable", topic=topic, partition=partition, offset=offset, error=error)

    def check_counts(self, owned: Iterable[int], now_ms: int) -> None:
        """Look now and then whether the broker's N is still ours, once `check_topics` has.

        Args:
            owned: partition numbers that the group gave us; looks at once where N does not have one.
            now_ms: wall time.

        Raises:
            Disagreement: an ack topic has another number of partitions than topics.yaml says.
            TopicError: one is gone.
            Unreachable: the broker does not answer.
        """
        if self._counts is not None:
            self._counts.require(owned)
            self._counts.step(now_ms)

    def same_topics(self, roots: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
        """Ask the broker which of some (topic, topic id) are still so."""
        pairs = set(roots)
        return unchanged(pairs, self.log.topics({name for name, _ in pairs}) if pairs else {})

    def writable(self, inputs: Iterable[Input], also: Iterable[str] = ()) -> dict[str, TopicInfo]:
        """Ask the broker for the replay and dead-letter topics of some inputs, with their settings.

        Args:
            inputs: whose topics must exist.
            also: names of topics that may be missing, asked for in one go with them.

        Raises:
            TopicError: a replay or dead-letter topic is missing.
        """
        return self._there(inputs, also, settings=True)

    def _there(self, inputs: Iterable[Input], also: Iterable[str], *, settings: bool) -> dict[str, TopicInfo]:
        wanted = {name for found in inputs for name in (found.replay_topic, found.dead_letter.topic)}
        infos = dict(self.log.topics(wanted | set(also), settings=settings))
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
        self._counts = PartitionCounts(self.log, (self.names.verdict, self.names.due), self.partitions)
        tracked = [found for found in self._inputs.values() if found.tracked]
        infos = self._there(tracked, (found.topic for found in tracked), settings=False)
        for found in tracked:
            source, copies = infos.get(found.topic), infos[found.replay_topic]
            if source is not None and copies.partitions < source.partitions:
                raise TopicError(
                    f"topic {found.replay_topic} has {copies.partitions} partitions, its source"
                    f" {found.topic} {source.partitions}; give it as many"
                )


def newer(record: Record, error: UnknownVersion) -> UnknownVersion:
    """Say what to do about a record that a newer version wrote."""
    place = f"{record.topic}/{record.partition}@{record.offset}"
    return UnknownVersion(
        f"{place}: {error}: a newer Windhover wrote it; run a replay worker of that version"
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
        backoff=Backoff(retry.initial_ms, retry.multiplier, retry.max_ms, retry.jitter, retry.delays or ()),
        time_limit_ms=retry.time_limit_ms,
        count_timed_out=retry.count_timed_out,
        count_abandoned=retry.count_abandoned,
        rules=tuple(Rule(rule.error, rule.operator, Action(rule.then)) for rule in retry.causes),
        hold_ms=found.hold_ms,
    )


def _breaker(found: Input, limits: ReplayLimits) -> Breaker:
    return Breaker(
        found.name,
        max_ratio=found.dead_letter.max_ratio,
        max_consecutive=found.dead_letter.max_consecutive,
        window_ms=limits.breaker_window_ms,
        dead_min=limits.breaker_dead_min,
    )
