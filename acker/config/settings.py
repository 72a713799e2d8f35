"""The sections of topics.yaml below its top level, as frozen values.

Every key carries its unit, range and meaning, and the name that Storm has for it; the table in
docs/reference/topics.md and the messages of refused files are made of them. A duration is written with its
unit and kept as int milliseconds in a field that ends in ``_ms``.

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
    TimeoutMs,
    TopicName,
    TopicPrefix,
    Whole,
    WholeOrNone,
    Why,
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
"""How long a query's writes wait at most for a broker; librdkafka gives a record up after as long."""

_CHARACTERS: Final = "letters, digits, dots, underscores, hyphens"
_TOPIC_RANGE: Final = f"1 to {TOPIC_CHARACTERS_MAX} {_CHARACTERS}"
_GROUP_RANGE: Final = f"1 to {GROUP_CHARACTERS_MAX} printable characters"


@dataclass(frozen=True, slots=True)
class AckTopics:
    """Names of the topics that ackers and replay workers keep, N partitions each."""

    init: str
    ack: str
    fail: str
    verdict: str
    state: str
    due: str
    quarantine: str

    @classmethod
    def with_prefix(cls, prefix: str) -> AckTopics:
        """Name them all: the prefix, then ``_ack_init`` and so on."""
        return cls(*(f"{prefix}_ack_{field.name}" for field in fields(cls)))

    def names(self) -> tuple[str, ...]:
        return astuple(self)


class AckerSettings(Section):
    """The section ``acker``: what all processes of one installation share."""

    partitions: Whole = whole(4, (1, 1024), "partitions", storm="topology.acker.executors")
    """N, the number of partitions of each ack topic; fixed for life, since a root's partition is computed
    from it. At most N acker and N replay processes share the work."""
    topic_prefix: TopicPrefix = key(range=f"0 to {NAME_CHARACTERS_MAX} {_CHARACTERS}", default="")
    """Stands before _ack_init and the other ack topics, so that installations share one cluster."""
    group: GroupName = key(
        range=_GROUP_RANGE, default_factory=lambda data: f"{data['topic_prefix']}windhover-acker"
    )
    """Consumer group of the ackers. Default: topic_prefix, then windhover-acker."""
    replay_group: GroupName = key(
        range=_GROUP_RANGE, default_factory=lambda data: f"{data['topic_prefix']}windhover-replay"
    )
    """Consumer group of the replay workers. Default: topic_prefix, then windhover-replay."""
    replication_factor: Whole = key(
        unit="copies", range="-1, or a whole number, 1 to 32767", default=-1, ge=-1, le=32767
    )
    """Copies of each partition of every topic that `windhover topics create` makes; -1 takes the broker's
    default. From 3 on, two of them must have each write."""
    verdict_retention_ms: DurationMs = duration(duration_text(VERDICT_RETENTION_MS), "1h to 365d")
    """How long verdicts are kept beyond the time at which nothing needs them any more."""
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

    topic: TopicName = key(range=_TOPIC_RANGE)
    """Topic of the dead letters. Default: <topic>.<group>.dlq."""
    max_ratio: Ratio = ratio(0.1, (0, 1), "share")
    """Share of settled roots that may die, over the breaker's window, before the input is paused."""
    max_consecutive: Whole = whole(1000, (1, 1_000_000_000), "dead letters")
    """Dead letters in a row, without a root that was acked between them, before the input is paused."""


class Input(Section):
    """One section below ``inputs``: one group that reads one topic."""

    name: InputName = key(range=f"1 to {NAME_CHARACTERS_MAX} {_CHARACTERS}, not a sign first", alias=NAME_KEY)
    """The key of the section: the input's name, as in roots and commands."""
    id: Whole = key(range=f"a whole number, 1 to {INPUT_ID_MAX}", ge=1, le=INPUT_ID_MAX)
    """Number of the input on the wire; unique in the installation and never used again for another."""
    group: GroupName = key(range=_GROUP_RANGE, storm="consumer group (KafkaSpoutConfig)")
    """Kafka consumer group under which offsets are committed."""
    topic: TopicName = key(range=_TOPIC_RANGE, default_factory=lambda data: data["name"])
    """Topic that is read. Default: the input's name."""
    partitions: WholeOrNone = whole(None, (1, PARTITION_MAX + 1), "partitions")
    """Partitions of the topic, for `windhover topics create`. Without it the topic must exist."""
    timeout_ms: TimeoutMs = duration(
        "30s", "500ms to 30d", or_never=True, storm="topology.message.timeout.secs"
    )
    """How long a root may stay open before it is lost and replayed; 0: for ever."""
    held_timeout_ms: DurationMs = duration("3d", "500ms to 365d")
    """How long a root may stay open that Spark's state holds (`hold`, `keyed`), where that is longer than
    timeout. A topic may be quiet for so long while a window is open; its retention must be longer."""
    bolt_timeout_ms: TimeoutMs = duration(0, "500ms to 30d", or_never=True)
    """How long a bolt may work on one tuple (an ArrowBolt: on one batch) before its process is ended and the
    tuple fails as HUNG; 0: for ever. A query that reads several inputs takes the longest."""
    max_spout_pending: Whole = whole(1_000_000, (1, 100_000_000), "roots", storm="topology.max.spout.pending")
    """Open roots of the group at which no new record is read."""
    start: StartAt = key(
        unit="time",
        range="committed, earliest, latest, or a time such as 2026-07-01T00:00:00Z",
        storm="FirstPollOffsetStrategy",
        default="committed",
    )
    """Where a group begins that has no history here: at its committed offsets (else earliest), at the first
    record, behind the last, or at a time."""
    unreachable_ms: DurationMs = duration("5m", "1s to 5m")
    """How long the broker may take to make durable what a query announces, acks and fails, before the query
    fails. A query that reads several inputs takes the longest."""
    on_data_loss: Literal["fail", "skip"] = key(range="fail or skip", default="fail")
    """What happens when a record that is still needed has left the log: the query fails, or goes on and
    counts it. An ordered input stops at a log that was cut, whatever this says."""
    ackers: Whole = key(range="0 or 1", storm="topology.acker.executors: 0", default=1, ge=0, le=1)
    """1: every record is tracked; 0: best effort, nothing is tracked or replayed."""
    stopped: Why = key(range=f"a text of one line, at most {WHY_CHARACTERS_MAX} characters", default="")
    """Why the input is stopped on purpose. While it says something no query or KafkaSpout of the input
    starts, and that none lives, and what follows from that, is no alarm. Empty: it is not stopped."""
    ordering: Literal["none", "key", "partition"] = key(range="none, key or partition", default="none")
    """What a record that waits for its replay holds back: nothing, the later records of its key, or all later
    records of its partition."""
    max_held: Whole = whole(100_000, (1, 100_000), "records")
    """With ordering: records of a partition that may be blocked or wait for their replay, those that a batch
    takes from it counted in; at most max_spout_pending. When it is reached the partition waits."""
    hold_ms: DurationMs = duration("1s", "10ms to 1h")
    """With ordering: how often blocked records come back to see whether they may go."""
    retry: Retry = key(range="a section", default_factory=Retry)
    """When a lost root is emitted again."""
    replay_topic: TopicName = key(
        range=_TOPIC_RANGE, default_factory=lambda data: f"{data['topic']}.{data['group']}.replay"
    )
    """Topic of the copies that are emitted again; of this input alone. Default: <topic>.<group>.replay."""
    dead_letter: DeadLetter = key(range="a section", default_factory=dict)
    """Where records go that are given up."""

    @validates("dead_letter", mode="before")
    @classmethod
    def _name_dead_letters(cls, value: object, info: ValidationInfo) -> object:
        if not isinstance(value, dict):
            return value
        if "topic" not in info.data or "group" not in info.data:
            return {"topic": "unknown", **value}  # the input is refused for what is wrong there
        return {"topic": f"{info.data['topic']}.{info.data['group']}.dlq", **value}

    @validates("ordering")
    @classmethod
    def _is_tracked(cls, value: str, info: ValidationInfo) -> str:
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
        """Return whether a record of it that left the log stops the query; a query may override that."""
        return self.on_data_loss == "fail" if override is None else override

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
