"""What a replay worker reports: events for the log, counters (docs/design/protocol.md, rules 10 and 11)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from acker.config.settings import Input
from acker.kafka.port import Outgoing
from replay.records.due import Due


@dataclass(frozen=True, slots=True)
class ReplayEvent:
    """Something that is worth a line in the log, with details in `fields`.

    `name` is ``partition_opened``, ``partition_left``, ``fenced``,
    ``aborted``, ``unreachable``, ``not_committed`` (at the end), ``mended``
    (once per root), ``undecodable`` (once per topic and flaw),
    ``dead_lettered`` and ``dropped`` (once per record), ``put_aside`` (at
    once, and again from time to time), ``goes_on`` (after ``put_aside``),
    ``held_up`` (roots in a damaged batch, likewise), ``damaged`` (an ack
    topic's partition, each time that it is tried), ``paused`` (by the breaker,
    once per partition), or ``topics_taken``.
    """

    name: str
    fields: Mapping[str, str | int] = field(default_factory=dict)


Report = Callable[[ReplayEvent], None]


class Written(Protocol):
    """Is called for each copy and each dead letter that a worker has committed."""

    def __call__(self, due: Due, record: Outgoing, input: Input, is_copy: bool, now_ms: int, /) -> None:
        """Take note of the record that was written for a lost root at a wall time; a copy, or a letter."""


@dataclass(slots=True)
class Counters:
    """Totals since the worker started. What a transaction writes is counted only after its commit.

    Attributes:
        lost: lost roots accepted from `_ack_verdict`.
        held: those of them that were blocked behind an earlier record
            (`ordering`).
        replayed: copies written.
        without_payload: dead letters without payload.
        dropped: roots that a rule dropped. They are notes on the dead-letter
            topics, not in `dead_lettered`.
        absent: lost roots that never had a record: markers of transactions,
            aborted records.
        undecodable: records of the verdict topic and of `_ack_due` that cannot
            be read.
        aborted: transactions that were aborted, whose work is done again.
        fenced: partitions that were lost since another worker became their
            owner.
        waiting_full: steps in which nothing was accepted, since as many roots
            wait as `waiting_max`.
    """

    lost: int = 0
    held: int = 0
    replayed: int = 0
    dead_lettered: int = 0
    without_payload: int = 0
    dropped: int = 0
    absent: int = 0
    undecodable: int = 0
    aborted: int = 0
    fenced: int = 0
    waiting_full: int = 0
    replayed_by_input: Counter[str] = field(default_factory=Counter)
    dead_lettered_by_input: Counter[str] = field(default_factory=Counter)
    dropped_by_input: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, kw_only=True)
class ReplayStatus(Counters):
    """A worker at one moment, with copies of its counters; what ends in ``_by_input`` is by an input's name.

    Attributes:
        partitions: verdict partitions that the worker owns and has restored,
            ascending.
        assigned: how many partitions the group has assigned to it.
        waiting: roots that wait for their due time, or for their input to go
            on.
        next_due_ms: earliest due time (wall time) of an input that can go on;
            None if there is none.
        fetched_records: records read to write copies and dead letters, with
            those read between them.
        aside: those of `waiting` whose input cannot go on (see
            `ReplayService`), or whose copy or dead letter is refused. In
            `aside_by_input` an input that topics.yaml does not have is
            ``id 7``.
        held_up: those of `waiting` whose record lies in a damaged batch, and
            that are tried again at times.
        paused: names of inputs that their breaker has paused in some
            partition, ascending.
        breaker_used: by an input's name the share of the allowed dead letters
            that there were; 1: it is open.
    """

    partitions: tuple[int, ...]
    assigned: int
    waiting: int
    waiting_bytes: int
    next_due_ms: int | None
    fetched_records: int
    fetched_bytes: int
    aside: int
    aside_by_input: Mapping[str, int]
    held_up: int = 0
    paused: tuple[str, ...]
    breaker_used: Mapping[str, float]
