"""A membership in a consumer group: which partition numbers are ours. Nothing is read here.

The consumer subscribes, and answers every assignment by assigning itself
nothing: it stays a member and fetches no record. The range assignor gives
one partition number of topics of equal size to one member. A rebalance first
revokes everything (the eager protocol); what is ours again a moment later
must not be dropped and restored, so a revocation alone changes nothing, and
the assignment that follows does.

If the coordinator was silent for a session, the group has put the member out.
That changes nothing either: it joins again, and waits until the session of
its former self is over. Until then it goes on with what it had. A member that
gets one of its partitions fences it there.
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
"""The group's offsets are committed so often at most: no record waits for them."""

COMMIT_PATIENCE_S: Final = 60.0
"""The answer to a commit of offsets counts as lost if it has not come after so long."""

COORDINATOR_MS: Final = 6_000
"""After so long a request has failed. A coordinator whose log waits for a
silent broker keeps heartbeats for 5 s (`offsets.commit.timeout.ms`), and then
says that it is no coordinator. If the silent broker is asked for another one,
a second broker must be asked before the session is over: 5 s and 6 s are less
than 15 s.
"""

DEFAULTS = MappingProxyType(
    {
        "socket.timeout.ms": COORDINATOR_MS,
        # A killed member's partitions move this long after its last
        # heartbeat. A broker that dies is missed by its cluster after 9 s
        # (broker.session.timeout.ms), and the group has another coordinator
        # some two seconds later: a member whose session is shorter is put
        # out before, joins as a new one, and waits for the session of
        # its own former self.
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

# errors of a member that was put out of the group; it joins again by itself
_REJOIN_ERRORS: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError._MAX_POLL_EXCEEDED,
    }
)


class KafkaMembership:
    """A membership in a consumer group; implements `acker.kafka.port.Membership`.

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

        `client_id` is what the group's other members and `Log.members` know
        this one by. `pause_ms` is how long it may go without a `poll`, at
        least the session's timeout; None: as librdkafka has it.
        """
        self._client = client
        self._group = group
        self._topics = tuple(topics)
        self._owned_partitions: frozenset[int] = frozenset()
        self.is_out = False
        self._has_checked_counts = False
        # by partition, the offset from which the group goes on: as it should
        # be committed, as the commit under way has it, as it is committed
        self._offsets_to_commit: dict[TopicPartition, int] = {}
        self._offsets_under_way: dict[TopicPartition, int] = {}
        self._committed_offsets: dict[TopicPartition, int] = {}
        self._commit_sent_s: float | None = None  # None: none was sent yet
        self._background = Background(client.clock)
        self._has_joined = False
        self._long_wait = LongWait()
        forced = {**FORCED, "client.id": client_id, "group.id": group, "on_commit": self._on_commit}
        defaults = dict(DEFAULTS)
        if pause_ms is not None:
            session_ms = int(client.settings.get("session.timeout.ms") or DEFAULTS["session.timeout.ms"])
            defaults["max.poll.interval.ms"] = max(pause_ms, session_ms)
        self._consumer: Consumer = client.make_client(Consumer, defaults, forced, self._background)
        self._consumer.subscribe(
            list(topics),
            on_assign=self._on_assign,
            on_revoke=lambda consumer, _: consumer.unassign(),
            on_lost=self._on_lost,
        )

    def poll(self, timeout_ms: int) -> frozenset[int]:
        """Stay in the group, send a commit that is due, and return the owned partitions' numbers.

        The client calls `_on_assign` and `_on_lost` meanwhile. See `acker.kafka.port.Membership`.
        """
        self._require_equal_counts()
        doing = f"in group {self._group} of {', '.join(self._topics)}"
        try:
            event = self._consumer.poll(timeout_ms / 1000)
        except KafkaException as error:  # only what is fatal for the whole client
            raise self._client.error(error.args[0], doing) from error
        cause = None if event is None else event.error()
        # other errors pass: librdkafka tries again, or joins again
        if cause is not None and not cause.retriable() and cause.code() not in _REJOIN_ERRORS:
            use = Use(Operation.READ, topic=", ".join(self._topics), group=self._group)
            raise self._client.error(cause, doing, use=use)
        # either nothing is new or no broker answers: raise in the second case
        if event is None:
            doing = f"in group {self._group}"
            self._client.require_answers(self._consumer, self._topics[0], doing, self._background)
        self._send_commit(COMMIT_EVERY_S)
        if not self._has_joined:
            self._log_long_wait()
        return self._owned_partitions

    def commit_soon(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._offsets_to_commit.update(offsets)
        self._send_commit(COMMIT_EVERY_S)

    def close(self) -> None:
        """Leave the group at once; librdkafka waits for the answer to a last commit."""
        self._send_commit(0)
        self._owned_partitions = frozenset()
        self._consumer.close()

    def _send_commit(self, every_s: float) -> None:
        """Send a commit of the offsets that have changed, `every_s` seconds after the last one at
        least.

        While a commit is under way, the next one waits for its answer, at
        most `COMMIT_PATIENCE_S`.
        """
        if self.is_out:  # other members may have our partitions, and know newer offsets
            return
        now_s = self._client.clock()
        since_commit_s = math.inf if self._commit_sent_s is None else now_s - self._commit_sent_s
        pause_s = COMMIT_PATIENCE_S if self._offsets_under_way else every_s
        if since_commit_s < pause_s:
            return
        self._forget_offsets_of_others()
        changed_offsets = self._changed_offsets()
        if not changed_offsets:
            return
        self._commit_sent_s = now_s
        self._offsets_under_way = {}  # an earlier commit that is still here was never answered
        requested = [
            confluent_kafka.TopicPartition(*topic_partition, offset)
            for topic_partition, offset in changed_offsets.items()
        ]
        with suppress(KafkaException):  # a later poll sends it again
            self._consumer.commit(offsets=requested, asynchronous=True)
            self._offsets_under_way = changed_offsets

    def _changed_offsets(self) -> dict[TopicPartition, int]:
        """Return the offsets that the group does not have yet."""
        return {
            topic_partition: offset
            for topic_partition, offset in self._offsets_to_commit.items()
            if self._committed_offsets.get(topic_partition) != offset
        }

    def _forget_offsets_of_others(self) -> None:
        """Forget the offsets of partitions that this member does not own any more."""
        # 1. offsets of partitions that another member may own, and commit, now
        for topic_partition in list(self._offsets_to_commit):
            if topic_partition.partition not in self._owned_partitions:
                del self._offsets_to_commit[topic_partition]
        # 2. without these, the offset of a partition that comes back is committed again, whatever
        # others have committed since
        for topic_partition in list(self._committed_offsets):
            if topic_partition not in self._offsets_to_commit:
                del self._committed_offsets[topic_partition]

    def _on_commit(self, error: KafkaError | None, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """Record the answer to the commit under way; offsets that were refused are sent again."""
        sent_offsets, self._offsets_under_way = self._offsets_under_way, {}
        if error is None and all(partition.error is None for partition in partitions):
            self._committed_offsets |= sent_offsets

    def _log_long_wait(self) -> None:
        """Log once a minute that the group has not answered yet.

        A member that has joined gets an answer, even if it gets no partition.
        """
        # "group" is the reason of the wait: there is only one
        waited_ms = self._long_wait.record_wait("group", int(self._client.clock() * 1000))
        if waited_ms is not None:
            _log.warning(
                "group %s has not let this member in for %d s; a member that hangs holds up all: see"
                " `kafka-consumer-groups.sh --describe --members --group %s`",
                self._group,
                waited_ms // 1000,
                self._group,
            )

    def _require_equal_counts(self) -> None:
        """Raise `TopicError` if the topics have not the same number of partitions; asked once."""
        if self._has_checked_counts:
            return
        counts_by_topic = {
            topic: self._client.partition_count(self._consumer, topic, self._background)
            for topic in self._topics
        }
        if len(set(counts_by_topic.values())) != 1:
            sizes = ", ".join(f"{topic} has {count}" for topic, count in counts_by_topic.items())
            raise TopicError(f"group {self._group} needs topics with as many partitions each: {sizes}")
        self._has_checked_counts = True

    def _on_assign(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """Own the partition numbers that were assigned of every topic; fetch nothing of them."""
        numbers_by_topic: dict[str, set[int]] = {}
        for partition in partitions:
            numbers_by_topic.setdefault(partition.topic, set()).add(partition.partition)
        numbers = [numbers_by_topic.get(topic, set()) for topic in self._topics]
        self._owned_partitions = frozenset(set.intersection(*numbers))
        self._has_joined = True
        self.is_out = False
        consumer.assign([])

    def _on_lost(self, consumer: Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """Remember that the group has put this member out; it keeps what it owned, see `is_out`."""
        self.is_out = True
        consumer.unassign()
        _log.warning(
            "group %s has put this member out, since its coordinator was silent or this process stood still;"
            " it joins again, and goes on with its partitions until others take them",
            self._group,
        )
