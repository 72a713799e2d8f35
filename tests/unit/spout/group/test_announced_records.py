"""Every record that a planning process writes for its group: to whom, with what, and behind which flush."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pytest

from acker.config.topics import parse
from acker.errors import Unreachable
from acker.identity import ACKER_BLOCK_BITS, WIRE_BLOCK_BITS, acker_partition, source_of
from acker.kafka.port import Headers, Outgoing, TopicPartition
from acker.ledger.verdicts import RECORD_BUDGET_BYTES, SOURCE_BYTES
from acker.root_sets.root_set import NO_ROOTS, RootSet
from acker.wire.clusters import CLUSTER
from acker.wire.codec import wire_codec
from acker.wire.events import Acks, Event, Init, PositionRun, SourceRun, Take, TakeSource, Tick, positions
from acker.wire.leader_epochs import LEADER_EPOCHS
from acker.writer_clocks import CLOCK
from spout.group.announce import (
    INIT_RUNS_MAX,
    LEAVE_MS,
    PARTITIONS_EACH,
    SIGNS_AT,
    Announcer,
    PlannerContext,
)
from spout.group.presence import LEAVES_HEADER, READS_HEADER, WHO_HEADER, Who
from spout.group.sources import SourceSpec
from spout.planning.session import SessionName
from tests.support.worlds.planning import WALL_MS, YAML

TOPICS: Final = parse(YAML, file="topics.yaml", environ={})
PARTITIONS: Final = TOPICS.acker.partitions
NAME: Final = SessionName(4, "s")
WHO: Final = Who("web-1", "words", 4711, WALL_MS)
A: Final[int] = source_of(1, 0)
B: Final[int] = source_of(1, 1)
BLOCK: Final = 1 << ACKER_BLOCK_BITS
DURABLE_MS: Final = 1_234


@dataclass
class Sent:
    """One record as it was sent, by which producer."""

    producer: int
    topic: str
    partition: int
    event: Event
    headers: dict[str, bytes | None]
    value: bytes


@dataclass
class Wire:
    """A log whose producers note what they do, in order.

    Attributes:
        notes: what was sent, or of a flush its producer and its limit.
    """

    notes: list[Sent | tuple[int, int]] = field(default_factory=list)
    producers: int = 0
    closed: list[int] = field(default_factory=list)

    def cluster_id(self) -> str:
        """Return the cluster's id."""
        return "c1"

    def producer(self) -> Any:
        """Make one that notes what it does."""
        number = self.producers
        self.producers += 1

        def send(record: Outgoing) -> None:
            headers: Headers = record.headers
            event = wire_codec().decode(record.value)
            sent = Sent(number, record.topic, record.partition, event, dict(headers), record.value or b"")
            self.notes.append(sent)

        return SimpleNamespace(
            send=send,
            flush=lambda limit_ms: self.notes.append((number, limit_ms)),
            close=lambda: self.closed.append(number),
        )

    def announcer(self, partitions: int = PARTITIONS, reads: Sequence[int] = (2, 1)) -> Announcer:
        """Open it."""
        log: Any = self
        return Announcer(log, TOPICS.ack_topics, "g", partitions, WHO, durable_ms=DURABLE_MS, reads=reads)

    def sent(self) -> list[Sent]:
        """Return the records."""
        return [note for note in self.notes if isinstance(note, Sent)]

    def shape(self) -> str:
        """Return what was done as letters: s for a record, f for a flush."""
        return "".join("s" if isinstance(note, Sent) else "f" for note in self.notes)


def specs(timeout_ms: int = 4_000) -> dict[int, SourceSpec]:
    source = TOPICS.input("sentences").model_copy(update={"timeout_ms": timeout_ms})
    return {
        number: SourceSpec(number, TopicPartition("sentences", number & 0xFFFF), "id-1", source)
        for number in (A, B)
    }


def take_source(topic: str, topic_id: str, number: int = 1) -> TakeSource:
    return TakeSource(number, topic, topic_id, 0, 0)


def sized(size: int, number: int) -> TakeSource:
    """Return a source that takes so many bytes; a character of its id takes two."""
    rest = size - SOURCE_BYTES
    ids = rest // 4
    return take_source("t" * (rest - 2 * ids), "\u00e9" * ids, number)


@pytest.mark.parametrize("more", [0, 1])
def test_a_take_is_cut_where_a_record_is_full_to_the_byte(more: int) -> None:
    """Each record is filled anew, and to its last byte."""
    quarter = RECORD_BUDGET_BYTES // 4
    row = [RECORD_BUDGET_BYTES - 3 * quarter + more, quarter, quarter, quarter]
    sizes = [*row, *row, *row]
    expected: list[list[int]] = [[]]
    used = 0
    for number, size in enumerate(sizes):
        if used + size > RECORD_BUDGET_BYTES:
            expected.append([])
            used = 0
        expected[-1].append(number)
        used += size
    wire = Wire()
    wire.announcer().send_take(NAME, 5, [sized(size, n) for n, size in enumerate(sizes)], [1])
    takes = [note.event for note in wire.sent()]
    assert [[s.source for s in take.sources] for take in takes if isinstance(take, Take)] == expected


def test_a_take_says_who_writes_and_is_durable_when_the_call_returns() -> None:
    wire = Wire()
    wire.announcer().send_take(NAME, 5, [take_source("t", "id")], iter([0, 2]))
    assert wire.shape() == "ssf"
    assert wire.notes[-1] == (0, DURABLE_MS)
    first, second = wire.sent()
    assert (first.topic, first.partition, second.partition) == (TOPICS.ack_topics.init, 0, 2)
    assert first.event == Take("g", "s", 4, 5, PARTITIONS, (take_source("t", "id"),))
    assert Who.read(tuple(first.headers.items())) == WHO
    assert first.headers.keys() == {WHO_HEADER, CLUSTER}
    assert first.headers[CLUSTER] == b"c1"


def test_a_take_of_no_source_is_one_record_and_asks() -> None:
    wire = Wire()
    wire.announcer().send_take(SessionName(0, "q"), 5, [], [0])
    assert [note.event for note in wire.sent()] == [Take("g", "q", 0, 5, PARTITIONS, ())]


def test_takes_together_are_waited_for_at_the_end_even_where_an_error_comes() -> None:
    wire = Wire()
    announcer = wire.announcer()
    with announcer.together():
        announcer.send_take(NAME, 5, [], [0])
        announcer.send_take(NAME, 5, [], [1])
        assert wire.shape() == "ss"
    assert wire.shape() == "ssf"
    with pytest.raises(Unreachable), announcer.together():
        raise Unreachable("gone")
    announcer.send_take(NAME, 5, [], [0])
    assert wire.shape() == "ssfsf"


def test_a_process_that_has_announced_nothing_waits_for_nothing() -> None:
    wire = Wire()
    announcer = wire.announcer()
    with announcer.together():
        pass
    announcer.send_absent(NAME, "lane", 1, 0, RootSet.of_runs([SourceRun(A, 0, 1)]))
    assert wire.shape() == "sf"


def other_block(source: int, start: int = 0) -> int:
    """Return the first block from `start` on whose successor has a higher owner."""
    return next(
        block
        for block in range(start, start + 100)
        if acker_partition(source, block * BLOCK, PARTITIONS)
        < acker_partition(source, (block + 1) * BLOCK, PARTITIONS)
    )


def test_an_init_has_all_that_an_acker_must_know_of_its_roots() -> None:
    wire = Wire()
    runs = [SourceRun(A, 2, 5), SourceRun(A, 7, 9)]
    wire.announcer().send_init(NAME, 50, WALL_MS, RootSet.of_runs(runs), specs(), epochs={A: 3}, grace_ms=700)
    assert wire.shape() == "sf"
    [note] = wire.sent()
    assert (note.topic, note.partition) == (TOPICS.ack_topics.init, acker_partition(A, 2, PARTITIONS))
    assert note.event == Init("g", "s", 4, 50, WALL_MS, 4_700, PARTITIONS, "sentences", "id-1", tuple(runs))
    assert note.headers.keys() == {WHO_HEADER, CLUSTER, LEADER_EPOCHS}
    rows = np.frombuffer(note.headers[LEADER_EPOCHS] or b"", "<i8").reshape(-1, 3)
    assert rows[0].tolist() == [A, 2, 3]


@pytest.mark.parametrize(("timeout_ms", "grace_ms", "sent_ms"), [(0, 700, 0), (4_000, 0, 4_000)])
def test_roots_without_a_timeout_get_none_by_a_grace(timeout_ms: int, grace_ms: int, sent_ms: int) -> None:
    wire = Wire()
    roots = RootSet.of_runs([SourceRun(A, 0, 1)])
    wire.announcer().send_init(NAME, 0, 0, roots, specs(timeout_ms), grace_ms=grace_ms)
    assert [note.event.timeout_ms for note in wire.sent() if isinstance(note.event, Init)] == [sent_ms]


def test_an_init_of_nothing_writes_and_waits_for_nothing() -> None:
    wire = Wire()
    wire.announcer().send_init(NAME, 0, 0, NO_ROOTS, specs())
    assert wire.notes == []


def runs_over(source: int, first_block: int, blocks: int) -> list[SourceRun]:
    return [SourceRun(source, first_block * BLOCK + 9, (first_block + blocks) * BLOCK - 9)]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(
    "runs",
    [
        runs_over(A, 0, 1),
        runs_over(A, 0, 12),
        [*runs_over(A, 0, 12), *runs_over(B, 3, 12)],
        [*runs_over(A, 0, 2), *runs_over(B, 0, 9)],
        [*runs_over(A, other_block(A), 2), *runs_over(B, other_block(B), 1)],
    ],
    ids=["one part", "one source", "two sources", "one with more parts", "one with one part"],
)
def test_a_part_of_a_source_is_sent_when_those_before_it_are_durable(
    runs: Sequence[SourceRun], together: bool
) -> None:
    """Of a source by rising acker partition; parts of several sources are waited for together."""
    wire = Wire()
    announcer = wire.announcer()
    if together:
        with announcer.together():
            announcer.send_init(NAME, 0, 0, RootSet.of_runs(runs), specs())
            assert isinstance(wire.notes[-1], Sent), "the last ones are waited for at the end"
    else:
        announcer.send_init(NAME, 0, 0, RootSet.of_runs(runs), specs())
    flushes = 0
    sent_at: dict[int, list[tuple[int, int]]] = {}  # by source: the flushes before a part, and its owner
    for note in wire.notes:
        if not isinstance(note, Sent):
            flushes += 1
            continue
        assert isinstance(note.event, Init)
        for source in {run.source for run in note.event.runs}:
            sent_at.setdefault(source, []).append((flushes, note.partition))
    for parts in sent_at.values():
        assert parts == sorted(parts, key=lambda part: part[1]), "by rising acker partition"
        assert [before for before, _ in parts] == list(range(len(parts))), "each behind a flush"
    assert flushes == max(map(len, sent_at.values()))
    assert wire.shape()[-1] == "f"


def test_an_init_of_too_many_runs_is_cut_and_its_pieces_follow_each_other() -> None:
    owner = acker_partition(A, 0, PARTITIONS)
    runs = [SourceRun(A, 2 * n, 2 * n + 1) for n in range(INIT_RUNS_MAX + 1)]
    wire = Wire()
    wire.announcer().send_init(NAME, 0, 0, RootSet.of_runs(runs), specs())
    assert wire.shape() == "sfsf"
    assert {note.partition for note in wire.sent()} == {owner}
    pieces = [note.event.runs for note in wire.sent() if isinstance(note.event, Init)]
    assert [len(piece) for piece in pieces] == [INIT_RUNS_MAX, 1]
    assert [run for piece in pieces for run in piece] == runs


RECORDED: Final = {
    "init": "cc6b294523fd2a1dea203317309220c0b3e3f7a4a8c2e88f34de23c2081ff4ec",
    "absent": "b703dbbdc9444c0492f2765d7b1d5224b2a3dad97e4b2331f66c67a23459c58b",
    "resets": "aea8ca3bf4540556e28ad26e78c34530a0960cf588019c546629ebe2e156f40b",
}
"""SHA-256 of all records, in order, as they were before root sets cut them by acker partition and block."""


def far_runs() -> list[SourceRun]:
    """Return runs of two sources, ascending: of many acker blocks, and more of one than an init may have."""
    short = [SourceRun(A, 3 * n, 3 * n + 1 + n % 2) for n in range(2 * INIT_RUNS_MAX)]
    return [
        *short,
        *(SourceRun(A, (2 * n + 5) * BLOCK - n, (2 * n + 6) * BLOCK + n) for n in range(1, 40)),
        SourceRun(B, 9, 9 * BLOCK),
        SourceRun(B, 12 * BLOCK, 15 * BLOCK),
    ]


def some_runs() -> list[SourceRun]:
    """Return a few runs of two sources, ascending, that reach over the ends of wire blocks."""
    return [
        *(SourceRun(A, n * BLOCK // 2 - 7, n * BLOCK // 2 + n) for n in range(1, 12)),
        SourceRun(B, 0, BLOCK + 1),
    ]


def test_records_are_those_of_before_byte_for_byte_and_in_their_order() -> None:
    """An acker of an earlier version, and one that reads them again, sees no other cut and no other order."""
    digests: dict[str, str] = {}
    for kind in RECORDED:
        wire = Wire()
        announcer = wire.announcer()
        if kind == "init":
            announcer.send_init(
                NAME, 7, WALL_MS, RootSet.of_runs(far_runs()), specs(), epochs={A: 3}, grace_ms=1
            )
        elif kind == "absent":
            announcer.send_absent(NAME, "lane", 9, 5, RootSet.of_runs(some_runs()))
        else:
            announcer.reset_timeouts(NAME, "lane", 9, 5, RootSet.of_runs(some_runs()))
        digest = sha256()
        for note in wire.notes:
            what = (note.topic, note.partition, note.value.hex()) if isinstance(note, Sent) else "flush"
            digest.update(repr(what).encode())
        digests[kind] = digest.hexdigest()
    assert digests == RECORDED


@pytest.mark.parametrize("wall_ms", [None, WALL_MS])
def test_a_tick_names_its_inputs_and_the_first_one_the_clock(wall_ms: int | None) -> None:
    wire = Wire()
    wire.announcer().send_tick(NAME, 77, [0, 2], wall_ms)
    assert wire.shape() == "ssf"
    assert [(note.topic, note.partition, note.event) for note in wire.sent()] == [
        (TOPICS.ack_topics.init, partition, Tick("g", "s", 4, 77)) for partition in (0, 2)
    ]
    assert [note.headers.get(CLOCK) for note in wire.sent()] == [
        None if wall_ms is None else b"%d" % wall_ms,
        None,
    ]
    assert [note.headers[READS_HEADER] for note in wire.sent()] == [b"1,2", b"1,2"]
    assert all(note.headers.keys() >= {WHO_HEADER, CLUSTER} for note in wire.sent())


def test_the_last_sign_of_a_process_is_waited_for_but_briefly() -> None:
    wire = Wire()
    wire.announcer(partitions=2 * PARTITIONS_EACH).send_goodbye(NAME, 77)
    [note] = wire.sent()
    assert (note.partition, note.event) == (SIGNS_AT, Tick("g", "s", 4, 77))
    assert note.headers.keys() == {WHO_HEADER, LEAVES_HEADER}
    assert wire.notes[1:] == [(note.producer, LEAVE_MS)]


def contribution(note: Sent) -> tuple[object, ...]:
    assert isinstance(note.event, Acks)
    acks = note.event
    assert (acks.group, acks.session, acks.epoch, acks.lane) == ("g", "s", 4, "lane")
    assert (acks.runs, acks.positions, acks.values, acks.touched_at) == ((), b"", b"", 5)
    assert note.topic == TOPICS.ack_topics.ack
    assert note.partition == acker_partition(acks.source, acks.block << WIRE_BLOCK_BITS, PARTITIONS)
    return acks.seq, acks.source, acks.block, acks.absent, positions(acks.touched).tolist()


FAR_BLOCK: Final = next(
    block
    for block in range(4, 100, 2)
    if acker_partition(A, block << WIRE_BLOCK_BITS, PARTITIONS) != acker_partition(A, 0, PARTITIONS)
)
"""A wire block of another acker partition than the first one; the block behind it is of the same."""

EDGE: Final = (FAR_BLOCK + 1) << WIRE_BLOCK_BITS
CONTRIBUTED: Final = [SourceRun(B, 1, 3), SourceRun(A, EDGE - 2, EDGE + 1), SourceRun(A, EDGE + 4, EDGE + 5)]


def test_what_left_the_log_is_said_block_by_block_to_the_owners() -> None:
    wire = Wire()
    wire.announcer().send_absent(NAME, "lane", 9, 5, RootSet.of_runs(CONTRIBUTED))
    assert wire.shape() == "sssf"
    assert [contribution(note) for note in wire.sent()] == [
        (9, A, FAR_BLOCK, (PositionRun(EDGE - 2, EDGE),), []),
        (9, A, FAR_BLOCK + 1, (PositionRun(EDGE, EDGE + 1), PositionRun(EDGE + 4, EDGE + 5)), []),
        (9, B, 0, (PositionRun(1, 3),), []),
    ]


def test_timeouts_begin_anew_block_by_block_with_the_owners() -> None:
    wire = Wire()
    wire.announcer().reset_timeouts(NAME, "lane", 9, 5, RootSet.of_runs(CONTRIBUTED))
    assert wire.shape() == "sssf"
    assert [contribution(note) for note in wire.sent()] == [
        (9, A, FAR_BLOCK, (), [EDGE - 2, EDGE - 1]),
        (9, A, FAR_BLOCK + 1, (), [EDGE, EDGE + 4]),
        (9, B, 0, (), [1, 2]),
    ]


def test_a_contribution_waits_for_the_inits_before_it() -> None:
    wire = Wire()
    announcer = wire.announcer()
    with announcer.together():
        announcer.send_init(NAME, 0, 0, RootSet.of_runs([SourceRun(A, 0, 3)]), specs())
        roots = RootSet.of_runs([SourceRun(A, 0, 3), SourceRun(B, 0, 3)])
        announcer.reset_timeouts(NAME, "lane", 1, 5, roots)
        assert wire.shape() == "sfssf"
    assert wire.shape() == "sfssf"


@pytest.mark.parametrize(("partitions", "producers"), [(1, 1), (8, 1), (9, 2), (16, 2), (17, 3)])
def test_so_many_acker_partitions_share_a_producer_and_all_are_flushed_and_closed(
    partitions: int, producers: int
) -> None:
    wire = Wire()
    announcer = wire.announcer(partitions)
    announcer.send_tick(NAME, 0, range(partitions))
    announcer.close()
    assert wire.producers == producers
    flushed = [note for note in wire.notes if not isinstance(note, Sent)]
    assert flushed == [(number, DURABLE_MS) for number in range(producers)]
    assert wire.closed == list(range(producers))
    by_producer: dict[int, set[int]] = {}
    for note in wire.sent():
        by_producer.setdefault(note.producer, set()).add(note.partition)
    assert sorted(p for owned in by_producer.values() for p in owned) == list(range(partitions))


def test_sources_that_are_left_out_are_no_longer_read_and_keep_their_first_time() -> None:
    sources = specs()
    nothing: Any = None
    context = PlannerContext(nothing, nothing, sources, nothing, nothing, nothing, nothing, nothing)
    left: Mapping[int, int] = {B: 5}
    context.leave_out(left)
    assert list(sources) == [A]
    assert context.left_out == {B: 5}
