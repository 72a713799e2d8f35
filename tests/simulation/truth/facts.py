"""The values of the truth: roots, evaluations, sessions, and what an acker partition was told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from acker.identity import generation_of, offset_of, partition_of
from acker.kafka.port import Outgoing, Record
from acker.wire.causes import HELD
from acker.wire.events import Lost, SourceRun
from acker.wire.verdict import Verdict

COMPLETE: Final = "complete"
FAILED: Final = "failed"
OPEN: Final = "open"


class Broken(AssertionError):
    """A rule was broken.

    Attributes:
        rule: name of the checker.
    """

    def __init__(self, rule: str, message: str) -> None:
        """Say which rule, and what broke it."""
        super().__init__(f"{rule}: {message}")
        self.rule = rule


class Holder(NamedTuple):
    """A session as the order of sessions has it."""

    epoch: int
    id: str


class Stamp(NamedTuple):
    """A tick that counts: where it stands, the session's clock, and the time."""

    at: int
    clock_ms: int
    now_ms: int


@dataclass(slots=True, eq=False)
class Evaluation:
    """What one evaluation of a batch did to a root.

    Attributes:
        result: COMPLETE, FAILED or OPEN.
        remote: edges that another lane must ack before the root is complete.
        causes: what failed it.
        written: whether the sink wrote it.
        published_at: when its records were durable; None when they are not.
    """

    result: str
    remote: frozenset[int] = frozenset()
    causes: frozenset[tuple[str, str, str]] = frozenset()
    written: bool = False
    published_at: int | None = None


@dataclass(slots=True, eq=False)
class RootTruth:
    """One initialised root.

    Attributes:
        emitted_at: what its init says; `clock_ms` is the session's clock then, which is never lower.
        missing: what the contributions written so far lack; 0 when complete.
        complete_at: when the completing contribution was written; likewise `absent_at`.
        failed_at: when the first record that fails it was written.
        causes: what those records say.
        touches: (at, touched_at) of each record that resets its timeout.
        verdict: its verdict, None while it is open.
        copies: its copies and dead letters.
        parent: the root whose copy it is; None for a first emission.
        verdict_number: which verdict it got, of all.
        waits_since_ms: since when a replay worker surely knows that it is lost; None where none is sure to.
        is_shared: whether its session had taken the group once more shortly before: another process may live.
        is_cut: whether the log lost it; `cut_record` is the record that it had, None if there was none.
    """

    source: int
    position: int
    partition: int
    group: str
    holder: Holder
    topic: str
    topic_id: str
    emitted_at: int
    wall: int
    timeout_ms: int
    clock_ms: int
    at: int
    now_ms: int
    attempt: int
    origin: str
    missing: int
    parent: RootTruth | None = None
    complete_at: int | None = None
    absent_at: int | None = None
    failed_at: int | None = None
    causes: set[tuple[str, str, str]] = field(default_factory=set)
    touches: list[tuple[int, int]] = field(default_factory=list)
    verdict: Verdict | None = None
    verdict_at: int = 0
    verdict_ms: int = 0
    lost: Lost | None = None
    copies: list[Outgoing] = field(default_factory=list)
    verdict_number: int = 0
    waits_since_ms: int | None = None
    is_shared: bool = False
    is_cut: bool = False
    cut_record: Record | None = None

    def is_like(self, other: RootTruth) -> bool:
        """Whether it is open, in the session of another one."""
        return self.verdict is None and (self.group, self.holder) == (other.group, other.holder)

    @property
    def emissions(self) -> list[RootTruth]:
        """All emissions of its record so far, the first one first, itself last."""
        found, root = [self], self.parent
        while root is not None:
            found.append(root)
            root = root.parent
        return found[::-1]

    @property
    def abandoned(self) -> int:
        """How many emissions of its record before it were abandoned."""
        return sum(root.verdict == Verdict.ABANDONED for root in self.emissions[:-1])

    @property
    def held(self) -> int:
        """How many emissions of its record before it were held (`ordering`)."""
        return sum(root.was_held for root in self.emissions[:-1])

    @property
    def was_held(self) -> bool:
        """Whether it was lost because it stood behind a record that waited."""
        return self.lost is not None and self.lost.error == HELD

    def __str__(self) -> str:
        """Print as ``topic/partition@offset``, with the generation where it is not the first."""
        generation = generation_of(self.position)
        suffix = f" (generation {generation})" if generation else ""
        return f"{self.location}{suffix}"

    @property
    def location(self) -> str:
        """Where the record stands."""
        return f"{self.topic}/{partition_of(self.source)}@{offset_of(self.position)}"


@dataclass(slots=True)
class KnownSource:
    """A source as the takes of one acker partition name it."""

    group: str
    topic: str
    topic_id: str
    generation: int
    from_: int


@dataclass(slots=True)
class AckerPartition:
    """What ``_ack_init`` of one partition says; nothing else decides who may initialise what."""

    holders: dict[str, Holder] = field(default_factory=dict)
    known: dict[int, KnownSource] = field(default_factory=dict)
    watermarks: dict[int, int] = field(default_factory=dict)
    clocks: dict[tuple[str, Holder], int] = field(default_factory=dict)
    ticks: dict[tuple[str, Holder], list[Stamp]] = field(default_factory=dict)
    takes: dict[str, list[tuple[int, Holder]]] = field(default_factory=dict)
    begun: dict[tuple[str, Holder], int] = field(default_factory=dict)
    shared_until: dict[tuple[str, Holder], int] = field(default_factory=dict)
    unanswered: dict[tuple[str, str], int] = field(default_factory=dict)
    marks: dict[tuple[str, str, Holder, str], tuple[int, dict[tuple[int, int], int]]] = field(
        default_factory=dict
    )


class Journalled(NamedTuple):
    """A batch that Spark's checkpoint holds.

    Attributes:
        query: id of the checkpoint.
        batch: its number.
        group: the group.
        holder: the session.
        ranges: what it emits.
        opened_at: when the process that planned it was started.
    """

    query: str
    batch: int
    group: str
    holder: Holder
    ranges: tuple[SourceRun, ...]
    opened_at: int


class SinkRow(NamedTuple):
    """A row of a root: a store keeps it, and the judge reads it there.

    Attributes:
        evaluation: which one made it, where the bolts behave differently at each; else empty.
        result: what that evaluation did to its root; OPEN too where another lane is still to ack a part.
        ordinal: which one it is of the `total` that the evaluation made of the root, from 0.
    """

    source: int
    position: int
    evaluation: str
    result: str
    ordinal: int
    total: int


class SpoutLook(NamedTuple):
    """A planning thread that has read all verdicts and was not disturbed.

    Attributes:
        process: its name.
        group: the group.
        holder: the session.
        wall_ms: the time by its clock when its step began, which is what the step goes by.
        ended_ms: when it ended; it may have been held in between.
        since_ms: since when it has not been disturbed, by the same clock.
    """

    process: str
    group: str
    holder: Holder
    wall_ms: int
    ended_ms: int
    since_ms: int
