"""What a replay worker tells: events for the log, counters for status and metrics.

Source: docs/design/protocol.md, section 3 rules 10 and 11.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ReplayEvent:
    """Something that is worth a line in the log.

    Attributes:
        name: ``partition_opened``, ``partition_left``, ``fenced``, ``aborted``, ``unreachable``,
            ``not_committed`` (at the end), ``mended`` (once per root), ``undecodable`` (once per topic and
            flaw), ``dead_lettered`` (once per record), ``dropped`` (likewise), ``put_aside`` (an input whose
            roots wait since it cannot go on; once, and again now and then), ``paused`` (an input by its
            breaker; once per partition), ``goes_on`` (an input that could not), ``topics_taken`` (a newer
            topics.yaml).
        fields: what it concerns: ``partition``, ``offset``, ``root``, ``attempt``, ``reason``, ``error``,
            ``input``, ``roots``, ``why``.
    """

    name: str
    fields: Mapping[str, str | int] = field(default_factory=dict)


Report = Callable[[ReplayEvent], None]


def silent(event: ReplayEvent) -> None:
    """Drop an event: the report of a worker that nobody listens to."""


@dataclass(slots=True)
class Counters:
    """What a worker has done since it started; only what a transaction has committed counts."""

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
    replayed_by_input: Counter[str] = field(default_factory=Counter)
    dead_lettered_by_input: Counter[str] = field(default_factory=Counter)
    dropped_by_input: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class ReplayStatus:
    """A worker at one moment.

    Attributes:
        partitions: verdict partitions owned and restored, ascending.
        waiting: roots that wait for their due time, or for their input to go on.
        waiting_bytes: memory of those, estimated.
        next_due_ms: wall time of the earliest; None when nothing waits.
        lost: lost roots taken over.
        held: those of them that were held back behind a record that waits (`ordering`).
        replayed: copies written.
        dead_lettered: dead letters written.
        without_payload: those of them that have no payload.
        dropped: roots that a rule dropped: notes on the dead-letter topics, not among the dead letters.
        absent: lost roots that never had a record: markers of transactions, aborted records.
        undecodable: records of the verdict and due topics that cannot be read.
        aborted: transactions that were aborted and made again.
        fenced: partitions that another worker took.
        fetched_records: records read to copy or bury some of them, those between the wanted ones too.
        fetched_bytes: their size.
        replayed_by_input: as `replayed`, by name of the input; likewise `dead_lettered_by_input` and
            `dropped_by_input`.
        aside: those of `waiting` whose input cannot go on: topics.yaml does not have it, it is paused, or a
            topic of it is missing or forbidden.
        aside_by_input: the same, by name of the input, or ``id 7`` where topics.yaml has none.
        paused: inputs that their breaker has paused in some partition, by name, ascending.
    """

    partitions: tuple[int, ...]
    waiting: int
    waiting_bytes: int
    next_due_ms: int | None
    lost: int
    held: int
    replayed: int
    dead_lettered: int
    without_payload: int
    dropped: int
    absent: int
    undecodable: int
    aborted: int
    fenced: int
    fetched_records: int
    fetched_bytes: int
    replayed_by_input: Mapping[str, int]
    dead_lettered_by_input: Mapping[str, int]
    dropped_by_input: Mapping[str, int]
    aside: int = 0
    aside_by_input: Mapping[str, int] = field(default_factory=dict)
    paused: tuple[str, ...] = ()
