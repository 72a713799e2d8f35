"""The sections of topics.yaml below its top level, as frozen values.

Every key carries its unit, range, meaning and example, and the name that Storm has for it. The
blocks in docs/reference/topics.md, `windhover explain` and the messages of refused files are made
of them. A duration is written with its unit and kept as int milliseconds in a field that ends in
``_ms``.

Source: docs/design/protocol.md, section 7.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from typing import Final, Literal

from pydantic import ValidationInfo
from pydantic import field_validator as validates

from acker.config.keys import (
    GROUP_CHARACTERS_MAX,
    NAME_CHARACTERS_MAX,
    NAME_KEY,
    TOPIC_CHARACTERS_MAX,
    WHY_CHARACTERS_MAX,
    DurationMs,
    GroupName,
    InputName,
    Ratio,
    Section,
    StartAt,
    StopReason,
    TimeoutMs,
    TopicName,
    TopicPrefix,
    Whole,
    WholeOrNone,
    duration,
    key,
    ratio,
    whole,
)
from acker.config.limits import AckerLimits
from acker.config.retry_settings import Retry
from acker.errors import UsageError
from acker.id_ranges import INPUT_ID_MAX, PARTITION_MAX
from acker.units import UNITS_MS, duration_text

_DAY: Final = UNITS_MS["d"]
VERDICT_RETENTION_MS: Final = 7 * _DAY
UNREACHABLE_MS: Final = 5 * UNITS_MS["m"]
"""How long a query's writes wait at most for a broker.

After as long librdkafka gives a record up.
"""

_CHARACTERS: Final = "letters, digits, dots, underscores, hyphens"
_TOPIC_RANGE: Final = f"1 to {TOPIC_CHARACTERS_MAX} {_CHARACTERS}"
_GROUP_RANGE: Final = f"1 to {GROUP_CHARACTERS_MAX} printable characters"


@dataclass(frozen=True, slots=True)
class AckTopics:
    """Names of the topics that Windhover keeps for itself, N partitions each."""

    init: str
    ack: str
    fail: str
    verdict: str
    state: str
    due: str
    quarantine: str
    sink: str

    @classmethod
    def with_prefix(cls, prefix: str) -> AckTopics:
        """Name them all: the prefix, then ``_ack_init`` and so on."""
        return cls(*(f"{prefix}_ack_{field.name}" for field in fields(cls)))

    @property
    def prefix(self) -> str:
        """The `acker.topic_prefix` with which they are named."""
        return self.init.removesuffix("_ack_init")

    def names(self) -> tuple[str, ...]:
        return astuple(self)

    def sink_transactional_id(self, group: str) -> str:
        """Return the id of whoever writes exactly once into Kafka what a group reads.

        No name of a topic has a slash. So the first one ends the topic's name, and no two
        installations have the same id, whatever their prefixes and groups are.
        """
        return f"{self.sink}/{group}"


class AckerSettings(Section):
    """The section ``acker``: what all processes of one installation share."""

    partitions: Whole = whole(4, (1, 1024), "partitions", "8", storm="topology.acker.executors")
    """How many partitions each ack topic has. At most so many ackers, and so many replay workers,
    share the work. The number is fixed for life, since the partition of a root is computed from
    it."""
    topic_prefix: TopicPrefix = key(
        range=f"0 to {NAME_CHARACTERS_MAX} {_CHARACTERS}", example="staging.", default=""
    )
    """The text before `_ack_init` and the names of the other ack topics. With it several
    installations can share one cluster."""
    group: GroupName = key(
        range=_GROUP_RANGE,
        example="my-ackers",
        default_factory=lambda data: f"{data['topic_prefix']}windhover-acker",
    )
    """The consumer group of the ackers."""
    replay_group: GroupName = key(
        range=_GROUP_RANGE,
        example="my-replay-workers",
        default_factory=lambda data: f"{data['topic_prefix']}windhover-replay",
    )
    """The consumer group of the replay workers."""
    replication_factor: Whole = key(
        unit="copies", range="-1, or a whole number, 1 to 32767", example="3", default=-1, ge=-1, le=32767
    )
    """How many copies each partition has in topics that `windhover topics create` makes. -1: the
    broker's default. If it is 3 or more, two copies must have a write before it counts
    (`min.insync.replicas`)."""
    verdict_retention_ms: DurationMs = duration(duration_text(VERDICT_RETENTION_MS), "1h to 365d", "14d")
    """How long an acker keeps each verdict at least. It keeps a verdict longer that a replay
    worker or an open range of roots still needs. `windhover inspect` and the page can show the
    history of a record for so long."""
    limits: AckerLimits = key(range="a section", default_factory=AckerLimits)
    """How far one acker may go."""

    @validates("replication_factor")
    @classmethod
    def _some_copy(cls, value: int) -> int:
        if value == 0:
            raise ValueError("keeps no copy")
        return value

    @property
    def topics(self) -> AckTopics:
        return AckTopics.with_prefix(self.topic_prefix)


class DeadLetter(Section):
    """The section ``dead_letter`` of an input: where records go that are given up, and how many may."""

    topic: TopicName = key(range=_TOPIC_RANGE, example="orders.dead")
    """The topic of the dead letters."""
    max_ratio: Ratio = ratio(0.1, (0, 1), "share", "0.25")
    """The breaker pauses the input if a larger share of its roots than this become dead letters,
    over `replay.limits.breaker_window`."""
    max_consecutive: Whole = whole(1000, (1, 1_000_000_000), "dead letters", "100")
    """The breaker pauses the input after so many dead letters in a row, without an acked root
    between them."""


class Input(Section):
    """One section below ``inputs``: one group that reads one topic."""

    name: InputName = key(range=f"1 to {NAME_CHARACTERS_MAX} {_CHARACTERS}, not a sign first", alias=NAME_KEY)
    """The key of the section: the input's name, as in roots and commands."""
    id: Whole = key(range=f"a whole number, 1 to {INPUT_ID_MAX}", example="7", ge=1, le=INPUT_ID_MAX)
    """The number of the input in Windhover's records. It is unique in the installation. Never use
    it again for another input."""
    group: GroupName = key(range=_GROUP_RANGE, example="billing", storm="consumer group (KafkaSpoutConfig)")
    """The Kafka consumer group under which Windhover commits offsets."""
    topic: TopicName = key(
        range=_TOPIC_RANGE, example="shop.orders", default_factory=lambda data: data["name"]
    )
    """The topic that the input reads."""
    partitions: WholeOrNone = whole(None, (1, PARTITION_MAX + 1), "partitions", "6")
    """How many partitions the topic gets if `windhover topics create` makes it. Without this key
    the topic must exist."""
    timeout_ms: TimeoutMs = duration(
        "30s", "500ms to 30d", "2m", or_never=True, storm="topology.message.timeout.secs"
    )
    """How long a root may stay open. After this time it is lost, and is replayed. 0: for ever. It
    should be longer than a few micro-batches."""
    held_timeout_ms: DurationMs = duration("3d", "500ms to 365d", "7d")
    """How long a root may stay open while Spark's state holds it (`hold`, `keyed`), if that is
    longer than `timeout`. It must cover the longest window and the longest quiet time of the
    topic. The topic must keep its records for longer."""
    bolt_timeout_ms: TimeoutMs = duration(0, "500ms to 30d", "1m", or_never=True)
    """How long a bolt may work on one tuple, or an `ArrowBolt` on one batch. After this time its
    process is ended, and the tuple fails with the cause HUNG. 0: for ever. A query that reads
    several inputs takes the longest of theirs."""
    max_spout_pending: Whole = whole(
        1_000_000, (1, 100_000_000), "roots", "200000", storm="topology.max.spout.pending"
    )
    """How many roots of the group may be open at once.

    At this number the query reads no new record.
    """
    start: StartAt = key(
        unit="time",
        range="committed, earliest, latest, or a time such as 2026-07-01T00:00:00Z",
        example="earliest",
        storm="FirstPollOffsetStrategy",
        default="committed",
    )
    """Where a group begins that has no history here. `committed`: at its committed offsets, or at
    the first record if it has none. `earliest`: at the first record. `latest`: after the last one.
    Or at a time."""
    unreachable_ms: DurationMs = duration("5m", "1s to 5m", "2m")
    """How long the broker may take to store what a query emits, acks and fails. After this time
    the query fails. A query that reads several inputs takes the longest of theirs."""
    on_data_loss: Literal["fail", "skip"] = key(range="fail or skip", example="skip", default="fail")
    """What a query does if a record that it still needs has left the log. `fail`: the query fails.
    `skip`: it counts the record and goes on. If a log was cut, an input with `ordering` always
    stops."""
    ackers: Whole = key(
        range="0 or 1", example="0", storm="topology.acker.executors: 0", default=1, ge=0, le=1
    )
    """Whether Windhover tracks every record. 0: best effort; it tracks and replays nothing."""
    stopped: StopReason = key(
        range=f"a text of one line, at most {WHY_CHARACTERS_MAX} characters",
        example='"the warehouse moves until Monday"',
        default="",
    )
    """Why the input is stopped on purpose. While a text stands here, no query and no `KafkaSpout`
    of the input starts, and nothing that follows from that is an alarm. Empty: it is not stopped.
    """
    ordering: Literal["none", "key", "partition"] = key(
        range="none, key or partition", example="key", default="none"
    )
    """Which later records wait while an earlier one waits for its replay. `none`: no others.
    `key`: the later records of its key. `partition`: all later records of its partition."""
    max_held: Whole = whole(100_000, (1, 100_000), "records", "10000")
    """How many records of a partition may be blocked or wait for their replay, with those that the
    running batch has taken. Only inputs with `ordering` use it. At this number the partition
    waits. It is never more than `max_spout_pending`."""
    hold_ms: DurationMs = duration("1s", "10ms to 1h", "5s")
    """How often a blocked record is tried again. Only inputs with `ordering` use it."""
    retry: Retry = key(range="a section", default_factory=Retry)
    """When a lost root is emitted again."""
    replay_topic: TopicName = key(
        range=_TOPIC_RANGE,
        example="orders.again",
        default_factory=lambda data: f"{data['topic']}.{data['group']}.replay",
    )
    """The topic of the copies that are emitted again. Each input has its own."""
    dead_letter: DeadLetter = key(range="a section", default_factory=dict)
    """Where records go that are given up."""

    @validates("dead_letter", mode="before")
    @classmethod
    def _with_topic_name(cls, value: object, info: ValidationInfo) -> object:
        """Return the section with the name of its topic, where the file does not give it."""
        if not isinstance(value, dict):
            return value  # no section: pydantic refuses it after this
        # `topic` and `group` are missing here if they were refused: then the whole input is
        # refused, so any name will do
        if "topic" not in info.data or "group" not in info.data:
            return {"topic": "unknown", **value}
        return {"topic": f"{info.data['topic']}.{info.data['group']}.dlq", **value}

    @validates("ordering")
    @classmethod
    def _is_tracked(cls, value: str, info: ValidationInfo) -> str:
        """Return the ordering.

        Raises `ValueError` if an input has one whose records are not tracked.
        """
        if value != "none" and info.data.get("ackers") == 0:
            raise ValueError(
                "needs tracking, and ackers is 0: nothing is replayed, so nothing waits; set ackers: 1"
            )
        return value

    def require_not_stopped(self) -> None:
        """Raise `UsageError` if the input is stopped on purpose: then nobody begins to read it."""
        if self.stopped:
            raise UsageError(
                f"input {self.name} is stopped on purpose: {self.stopped}; to start it again, remove"
                f" `inputs.{self.name}.stopped` from topics.yaml"
            )

    def fails_on_loss(self, override: bool | None = None) -> bool:
        """Return whether a record of it that left the log stops the query.

        A query may override that.
        """
        return self.on_data_loss == "fail" if override is None else override

    def topic_names(self) -> tuple[str, str, str]:
        """Return the names of its topic, its replay topic and its dead-letter topic."""
        return self.topic, self.replay_topic, self.dead_letter.topic

    @property
    def held_longer_ms(self) -> int:
        """How much longer a root may stay open that Spark's state holds, in ms; 0: no longer than others."""
        return max(0, self.held_timeout_ms - self.timeout_ms) if self.timeout_ms else 0

    @property
    def ordered(self) -> bool:
        """Whether records of it wait for those before them."""
        return self.ordering != "none"

    @property
    def blocked_max(self) -> int:
        """How many records of a partition may be blocked or wait."""
        return min(self.max_held, self.max_spout_pending)

    @property
    def tracked(self) -> bool:
        return self.ackers == 1


def longest_unreachable_ms(inputs: Iterable[Input]) -> int:
    """Return how long a query that reads some inputs waits until what it writes is durable, in ms."""
    return max((source.unreachable_ms for source in inputs), default=UNREACHABLE_MS)
