"""The sections of topics.yaml below its top level, as frozen values.

Every key carries its unit, range and meaning, and the name that Storm has for it; the table in
docs/reference/topics.md and the messages of refused files are made of them. A duration is written with its
unit and kept as int milliseconds in a field that ends in ``_ms``.

Source: docs/design/protocol.md, section 7.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import ValidationInfo
from pydantic import field_validator as validates

from acker.config.keys import (
    GROUP_CHARACTERS_MAX,
    NAME_CHARACTERS_MAX,
    NAME_KEY,
    TOPIC_CHARACTERS_MAX,
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
    key,
)
from acker.config.limits import AckerLimits
from acker.config.retry_settings import Retry
from acker.id_ranges import INPUT_ID_MAX, PARTITION_MAX
from acker.units import UNITS_MS, duration_text

_ACK_TOPICS: Final = ("init", "ack", "fail", "verdict", "state", "due", "quarantine")
_DAY: Final = UNITS_MS["d"]
VERDICT_RETENTION_MS: Final = 7 * _DAY
UNREACHABLE_MS: Final = 5 * UNITS_MS["m"]
"""How long a query's writes wait at most for a broker; librdkafka gives a record up after as long."""

_TOPIC_RANGE: Final = f"1 to {TOPIC_CHARACTERS_MAX} letters, digits, dots, underscores, hyphens"
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
        return cls(*(f"{prefix}_ack_{name}" for name in _ACK_TOPICS))

    def names(self) -> tuple[str, ...]:
        return (self.init, self.ack, self.fail, self.verdict, self.state, self.due, self.quarantine)


class AckerSettings(Section):
    """The section ``acker``: what all processes of one installation share."""

    partitions: Whole = key(
        "N, the number of partitions of each ack topic; fixed for life, since a root's partition is "
        "computed from it. At most N acker and N replay processes share the work.",
        unit="partitions", range="a whole number, 1 to 1024", storm="topology.acker.executors",
        default=4, ge=1, le=1024,
    )  # fmt: skip
    topic_prefix: TopicPrefix = key(
        "Stands before _ack_init and the other ack topics, so that installations share one cluster.",
        range=f"0 to {NAME_CHARACTERS_MAX} letters, digits, dots, underscores, hyphens", default="",
    )  # fmt: skip
    group: GroupName = key(
        "Consumer group of the ackers. Default: topic_prefix, then windhover-acker.",
        range=_GROUP_RANGE, default_factory=lambda data: f"{data['topic_prefix']}windhover-acker",
    )  # fmt: skip
    replay_group: GroupName = key(
        "Consumer group of the replay workers. Default: topic_prefix, then windhover-replay.",
        range=_GROUP_RANGE, default_factory=lambda data: f"{data['topic_prefix']}windhover-replay",
    )  # fmt: skip
    replication_factor: Whole = key(
        "Copies of each partition of every topic that `windhover topics create` makes; "
        "-1 takes the broker's default. From 3 on, two of them must have each write.",
        unit="copies", range="-1, or a whole number, 1 to 32767", default=-1, ge=-1, le=32767,
    )  # fmt: skip
    verdict_retention_ms: DurationMs = key(
        "How long verdicts are kept beyond the time at which nothing needs them any more.",
        unit="duration", range="a duration, 1h to 365d", alias="verdict_retention",
        default=duration_text(VERDICT_RETENTION_MS), ge=UNITS_MS["h"], le=365 * _DAY,
    )  # fmt: skip
    limits: AckerLimits = key("How far one acker may go.", range="a section", default_factory=AckerLimits)

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

    topic: TopicName = key("Topic of the dead letters. Default: <topic>.<group>.dlq.", range=_TOPIC_RANGE)
    max_ratio: Ratio = key(
        "Share of settled roots that may die, over the breaker's window, before the input is paused.",
        unit="share", range="a number, 0 to 1", default=0.1, ge=0, le=1, allow_inf_nan=False,
    )  # fmt: skip
    max_consecutive: Whole = key(
        "Dead letters in a row, without a root that was acked between them, before the input is paused.",
        unit="dead letters", range="a whole number, 1 to 1000000000", default=1000, ge=1, le=1_000_000_000,
    )  # fmt: skip


class Input(Section):
    """One section below ``inputs``: one group that reads one topic."""

    name: InputName = key(
        "The key of the section: the input's name, as in roots and commands.",
        range=f"1 to {NAME_CHARACTERS_MAX} letters, digits, dots, underscores, hyphens, not a sign first",
        alias=NAME_KEY,
    )  # fmt: skip
    id: Whole = key(
        "Number of the input on the wire; unique in the installation and never used again for another.",
        range=f"a whole number, 1 to {INPUT_ID_MAX}", ge=1, le=INPUT_ID_MAX,
    )  # fmt: skip
    group: GroupName = key(
        "Kafka consumer group under which offsets are committed.",
        range=_GROUP_RANGE, storm="consumer group (KafkaSpoutConfig)",
    )  # fmt: skip
    topic: TopicName = key(
        "Topic that is read. Default: the input's name.",
        range=_TOPIC_RANGE, default_factory=lambda data: data["name"],
    )  # fmt: skip
    partitions: Whole | None = key(
        "Partitions of the topic, for `windhover topics create`. Without it the topic must exist.",
        unit="partitions", range=f"a whole number, 1 to {PARTITION_MAX + 1}", default=None, ge=1,
        le=PARTITION_MAX + 1,
    )  # fmt: skip
    timeout_ms: TimeoutMs = key(
        "How long a root may stay open before it is lost and replayed; 0: for ever.",
        unit="duration", range="a duration, 500ms to 30d, or 0 for never",
        storm="topology.message.timeout.secs", alias="timeout", default="30s", ge=0, le=30 * _DAY,
    )  # fmt: skip
    bolt_timeout_ms: TimeoutMs = key(
        "How long a bolt may work on one tuple (an ArrowBolt: on one batch) before its process is ended and "
        "the tuple fails as HUNG; 0: for ever. A query that reads several inputs takes the longest.",
        unit="duration", range="a duration, 500ms to 30d, or 0 for never", alias="bolt_timeout", default=0,
        ge=0, le=30 * _DAY,
    )  # fmt: skip
    max_spout_pending: Whole = key(
        "Open roots of the group at which no new record is read.",
        unit="roots", range="a whole number, 1 to 100000000", storm="topology.max.spout.pending",
        default=1_000_000, ge=1, le=100_000_000,
    )  # fmt: skip
    start: StartAt = key(
        "Where a group begins that has no history here: at its committed offsets (else earliest), at the "
        "first record, behind the last, or at a time.",
        unit="time",
        range="committed, earliest, latest, or a time such as 2026-07-01T00:00:00Z",
        storm="FirstPollOffsetStrategy", default="committed",
    )  # fmt: skip
    unreachable_ms: DurationMs = key(
        "How long the broker may take to make durable what a query announces, acks and fails, before the "
        "query fails. A query that reads several inputs takes the longest.",
        unit="duration", range="a duration, 1s to 5m", alias="unreachable", default="5m", ge=UNITS_MS["s"],
        le=UNREACHABLE_MS,
    )  # fmt: skip
    on_data_loss: Literal["fail", "skip"] = key(
        "What happens when a record that is still needed has left the log: the query fails, or goes on and "
        "counts it.",
        range="fail or skip", default="fail",
    )  # fmt: skip
    ackers: Whole = key(
        "1: every record is tracked; 0: best effort, nothing is tracked or replayed.",
        range="0 or 1", storm="topology.acker.executors: 0", default=1, ge=0, le=1,
    )  # fmt: skip
    ordering: Literal["none", "key", "partition"] = key(
        "What a record that waits for its replay holds back: nothing, the later records of its key, or all "
        "later records of its partition.",
        range="none, key or partition", default="none",
    )  # fmt: skip
    max_held: Whole = key(
        "With ordering: records of a partition that may be held or wait for their replay, those that a batch "
        "takes from it counted in; at most max_spout_pending. When it is reached the partition waits.",
        unit="records", range="a whole number, 1 to 100000", default=10_000, ge=1, le=100_000,
    )  # fmt: skip
    hold_ms: DurationMs = key(
        "With ordering: how often records that are held come back to see whether they may go.",
        unit="duration", range="a duration, 10ms to 1h", alias="hold", default="1s", ge=10,
        le=UNITS_MS["h"],
    )  # fmt: skip
    retry: Retry = key("When a lost root is emitted again.", range="a section", default_factory=Retry)
    replay_topic: TopicName = key(
        "Topic of the copies that are emitted again; of this input alone. Default: <topic>.<group>.replay.",
        range=_TOPIC_RANGE, default_factory=lambda data: f"{data['topic']}.{data['group']}.replay",
    )  # fmt: skip
    dead_letter: DeadLetter = key(
        "Where records go that are given up.", range="a section", default_factory=dict
    )

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

    def fails_on_loss(self, override: bool | None = None) -> bool:
        """Tell whether a record of it that left the log stops the query; a query may override that."""
        return self.on_data_loss == "fail" if override is None else override

    @property
    def ordered(self) -> bool:
        """Whether records of it wait for those before them."""
        return self.ordering != "none"

    @property
    def blocked_max(self) -> int:
        """How many records of a partition may be held or wait; `max_held` within `max_spout_pending`."""
        return min(self.max_held, self.max_spout_pending)

    @property
    def tracked(self) -> bool:
        """Whether its records are tracked at all."""
        return self.ackers == 1


def longest_unreachable_ms(inputs: Iterable[Input]) -> int:
    """Return how long a query that reads some inputs waits until what it writes is durable, in ms."""
    return max((found.unreachable_ms for found in inputs), default=UNREACHABLE_MS)
