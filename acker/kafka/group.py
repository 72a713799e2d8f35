"""A place in a consumer group: which partition numbers are ours. Nothing is read here.

The consumer subscribes, and answers every assignment by assigning itself nothing: it keeps its place and
fetches no record. The range assignor gives one partition number of topics of equal size to one member.
A rebalance first revokes everything (the eager protocol); what is ours again a moment later must not be
dropped and restored, so a revocation alone changes nothing, and the assignment that follows does.

Nor does it change anything that the coordinator was silent for a session, and the member has lost its place:
it joins again, and waits until the session of its former self is over. Until then it goes on with what it
had. Whoever gets a partition of it fences it there.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException

from acker.config.kafka_bounds import SESSION_MS
from acker.errors import TopicError
from acker.kafka.client import CHECKED, LOGGED, Background, KafkaClient, Use
from acker.kafka.port import Operation, TopicPartition
from acker.waits import LongWait

_log = logging.getLogger(__name__)

COMMIT_EVERY_S: Final = 1.0
"""The group's offsets are committed so often at most: nobody who waits for a record waits for them."""

COMMIT_PATIENCE_S: Final = 60.0
"""An answer to a commit of offsets that is out for longer counts as lost."""

COORDINATOR_MS: Final = 6_000
"""After so long a request has failed. A coordinator whose log waits for a silent broker keeps
heartbeats for 5 s (`offsets.commit.timeout.ms`), and then says that it is no coordinator. If the silent
broker is asked for another one, a second broker must be asked before the session is over: 5 s and 6 s are
less than 15 s.
"""

DEFAULTS = MappingProxyType(
    {
        "socket.timeout.ms": COORDINATOR_MS,
        # A killed member's partitions move this long after its last heartbeat. A broker that dies is missed
        # by its cluster after 9 s (broker.session.timeout.ms), and the group has another coordinator some two
        # seconds later: a member whose session is shorter gives up its place before, joins as a new one, and
        # waits for the session of its own former self.
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": 1000,
    }
)
FORCED = MappingProxyType(
    {
        **LOGGED,
        **CHECKED,
        "partition.assignment.strategy": "range",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "topic.metadata.refresh.interval.ms": 10_000,
    }
)

# what a member gets to hear when it was put out of the group; it joins again by itself
_PASSING = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError._MAX_POLL_EXCEEDED,
    }
)


class KafkaMembership:
    """A place in a group; implements `acker.kafka.port.Membership`.

    Attributes:
        is_out: see `acker.kafka.port.Membership`.
    """

    def __init__(
        self,
        client: KafkaClient,
        group: str,
        topics: Sequence[str],
        *,
        client_id: str,
        pause_ms: int | None = None,
    ) -> None:
        """Begin to join; `poll` completes it.

        `client_id` is what the group's other members and `Log.members` know this one by. `pause_ms` counts
        only above the session's timeout.
        """
        self._client = client
        self._group = group
        self._topics = tuple(topics)
        self._owned: frozenset[int] = frozenset()
        self.is_out = False
        self._checked = False
        self._to_commit: dict[TopicPartition, int] = {}
        self._under_way: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._sent_s: float | None = None
        self._background = Background(client.clock)
        own = {"client.id": client_id, "group.id": group, "on_commit": self._answered}
        defaults = dict(DEFAULTS)
        if pause_ms is not None:
            session_ms = int(client.settings.get("session.timeout.ms") or DEFAULTS["session.timeout.ms"])
            defaults["max.poll.interval.ms"] = max(pause_ms, session_ms)
        self._has_joined = False
        self._long_wait = LongWait()
        self._consumer: Consumer = client.make(Consumer, defaults, {**FORCED, **own}, self._background)
        self._consumer.subscribe(
            list(topics),
            on_assign=self._assigned,
            on_revoke=lambda consumer, _: consumer.unassign(),
            on_lost=self._lost,
        )

    def poll(self, timeout_ms: int) -> frozenset[int]:
        self._check_topics()
        doing = f"in group {self._group} of {', '.join(self._topics)}"
        try:
            event = self._consumer.poll(timeout_ms / 1000)
        except KafkaException as error:  # only what is fatal for the whole client
            raise self._client.error(error.args[0], doing) from error
        cause = None if event is None else event.error()
        if cause is not None and not cause.retriable() and cause.code() not in _PASSING:
            use = Use(Operation.READ, topic=", ".join(self._topics), group=self._group)
            raise self._client.error(cause, doing, use=use)
        if event is None:
            doing = f"in group {self._group}"
            self._client.check_answers(self._consumer, self._topics[0], doing, self._background)
        self._send(COMMIT_EVERY_S)
        if not self._has_joined:
            self._say_that_it_waits()
        return self._owned

    def commit_soon(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._to_commit.update(offsets)
        self._send(COMMIT_EVERY_S)

    def close(self) -> None:
        """Leave the group at once; librdkafka waits for the answer to a last commit."""
        self._send(0)
        self._owned = frozenset()
        self._consumer.close()

    def _send(self, every_s: float) -> None:
        """Ask for the commit of what has changed, unless one is under way or was not long ago."""
        if self.is_out:  # others may have our partitions, and know more of them
            return
        now_s = self._client.clock()
        past_s = math.inf if self._sent_s is None else now_s - self._sent_s
        if past_s < (COMMIT_PATIENCE_S if self._under_way else every_s):
            return
        self._to_commit = {p: offset for p, offset in self._to_commit.items() if p.partition in self._owned}
        self._committed = {p: offset for p, offset in self._committed.items() if p in self._to_commit}
        due = {p: offset for p, offset in self._to_commit.items() if self._committed.get(p) != offset}
        if not due:
            return
        self._sent_s = now_s
        self._under_way = {}  # the answer to an earlier one is lost
        named = [confluent_kafka.TopicPartition(*place, offset) for place, offset in due.items()]
        with suppress(KafkaException):  # a later poll asks again
            self._consumer.commit(offsets=named, asynchronous=True)
            self._under_way = due

    def _answered(self, error: KafkaError | None, partitions: list[confluent_kafka.TopicPartition]) -> None:
        sent, self._under_way = self._under_way, {}
        if error is None and all(partition.error is None for partition in partitions):
            self._committed |= sent

    def _say_that_it_waits(self) -> None:
        """Write each minute that the group has not let this member in, be it without a partition."""
        waited_ms = self._long_wait.look("group", int(self._client.clock() * 1000))
        if waited_ms is not None:
            _log.warning(
                "group %s has not let this member in for %d s; a member that hangs holds up all: see"
                " `kafka-consumer-groups.sh --describe --members --group %s`",
                self._group,
                waited_ms // 1000,
                self._group,
            )

    def _check_topics(self) -> None:
        if self._checked:
            return
        counts = {
            topic: self._client.partitions_of(self._consumer, topic, self._background)
            for topic in self._topics
        }
        if len(set(counts.values())) != 1:
            sizes = ", ".join(f"{topic} has {count}" for topic, count in counts.items())
            raise TopicError(f"group {self._group} needs topics with as many partitions each: {sizes}")
        self._checked = True

    def _assigned(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        numbers = [{p.partition for p in partitions if p.topic == topic} for topic in self._topics]
        self._owned = frozenset(set.intersection(*numbers))
        self._has_joined = True
        self.is_out = False
        consumer.assign([])

    def _lost(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self.is_out = True
        consumer.unassign()
        _log.warning(
            "group %s has put this member out, since its coordinator was silent or this process stood still;"
            " it joins again, and goes on with its partitions until others take them",
            self._group,
        )
