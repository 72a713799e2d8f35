"""What a watermark dropped: the driver notes it beside its acks, and the ackers keep it for who asks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from acker.identity import acker_partition, source_of
from acker.kafka.port import Outgoing, Record, TopicPartition
from acker.service.view import ViewReader
from acker.wire.checks import CLOCK_AHEAD_MS_MAX
from acker.wire.codec import wire_codec
from acker.wire.events import Acks, SourceRun, Verdicts
from acker.wire.lateness import (
    TOO_LATE,
    LateCounts,
    Mover,
    TooLate,
    read_too_late,
    too_late_codec,
    too_late_header,
)
from spout.planning.journal import BEGINNING, Journal
from spout.publishing.fold import LateNote
from tests.support.worlds.planning import COPIES, World, batch, yaml_of

A = source_of(1, 0)
YAML = yaml_of(timeout="4s", max_spout_pending="200000", retry="{initial: 100ms, jitter: 0}")
MOVER = Mover(1_924_992_000_000, (SourceRun(A, 3, 4),))
NOTE = LateNote(1_800_000_001_000, 1_924_991_990_000, 8, MOVER)
SOME = TooLate("g", "q/s1", 7, True, 5, 6, 8, 9, MOVER.runs, (SourceRun(A, 1, 2),), (SourceRun(A, 0, 9),))


def notes_in(world: World) -> list[TooLate]:
    """Return what the verdict log notes."""
    return [note for record in decided(world) if (note := read_too_late(record.headers)) is not None]


def decided(world: World) -> list[Record]:
    reader = world.log.reader(committed=True)
    verdict = world.topics.ack_topics.verdict
    reader.assign({TopicPartition(verdict, number): 0 for number in range(world.topics.acker.partitions)})
    return list(reader.poll(0, 100_000))


def counts_of(world: World, group: str = "g") -> list[LateCounts]:
    """Return what each acker partition has counted of a group that it knows."""
    acker = world.topics.acker
    reader = ViewReader(world.cluster.log(), acker.topics, acker.partitions, acker.limits)
    views = [view for number in range(acker.partitions) if (view := reader.view(number)) is not None]
    return [view.too_late[group] for view in views if group in view.too_late]


def world_with_late_records(**options: bool) -> tuple[World, Journal]:
    """Return a world in which two of ten records came too late, one of them with a held tuple as well."""
    world = World(YAML)
    world.start_replays()
    world.produce(10)
    end = batch(world.ready(), BEGINNING, world)
    world.publish_held(BEGINNING, end, held=(4,), late=(1, 4), note=NOTE, **options)
    world.run(1_000)
    return world, end


def test_an_acker_writes_behind_its_verdicts_what_contributions_note_of_a_watermark() -> None:
    """O1501: of a root that is still open as well; it is no verdict, and changes none."""
    world, _ = world_with_late_records()
    [note] = notes_in(world)
    assert (note.group, note.watermark, note.rows, note.first) == ("g", NOTE.watermark_ms, 8, True)
    assert note.mover == MOVER
    assert [note.names(A, at) for at in (0, 1, 4, 5)] == [False, True, True, False]
    assert [note.may_have_dropped(A, at) for at in (0, 9, 10)] == [True, True, False]
    [planner] = world.planners
    status = planner.status(world.now_ms)
    assert (status.acked, status.pending, status.undecodable) == (9, 1, 0)
    assert world.lost("FAILED") == 0


def test_a_record_that_is_failed_as_too_late_is_noted_as_well_and_replayed() -> None:
    """A replay worker passes over the record that has nothing but the note."""
    world, end = world_with_late_records(fails_late=True)
    assert [note.root_count for note in notes_in(world)] == [2]
    assert world.lost("FAILED") == 2
    world.run(2_000)
    copies = batch(world.planners[0], end, world)
    assert [run.source for run in copies.ranges] == [COPIES]


def test_ackers_count_what_came_too_late_and_know_it_after_a_restart() -> None:
    """O1502: the rows of a batch count once, and a repeated record notes nothing again."""
    world, end = world_with_late_records()
    own = next(counts for counts in counts_of(world) if counts.newest_note is not None)
    assert (own.roots, own.rows) == (2, 8)
    assert own.newest_note is not None
    assert (own.newest_note.mover, own.newest_note.roots, own.newest_note.batch) == (MOVER, (), ())
    nothing = [counts for counts in counts_of(world) if counts.newest_note is None]
    assert nothing == [LateCounts()] * 2, "what is 0 is known to be 0"
    tally = world.acker.status().verdicts if world.acker else None
    assert tally is not None
    assert (tally.too_late["g"].roots, tally.too_late["g"].rows) == (2, 8)

    world.kill_acker()
    world.start_acker()
    world.run(15_000)
    world._seq -= 1
    world.publish_held(BEGINNING, end, held=(4,), late=(1, 4), note=NOTE)
    world.run(1_000)
    assert len(notes_in(world)) == 1
    world.produce(5)
    following = batch(world.planners[0], end, world)
    world.publish_held(end, following, late=(0,), note=NOTE._replace(row_count=1))
    world.run(1_000)
    assert sum(counts.roots for counts in counts_of(world)) == 3
    assert sum(counts.rows for counts in counts_of(world)) == 9


@pytest.mark.parametrize("note", [replace(SOME, group="other"), None])
def test_a_note_of_another_group_or_of_nobody_is_passed_over(note: TooLate | None) -> None:
    world = World(YAML)
    world.produce(10)
    end = batch(world.ready(), BEGINNING, world)
    header = (TOO_LATE, b"garbage") if note is None else too_late_header(note)
    acks = Acks("q/x", 9, "g", end.session, end.epoch, A, 0, (), b"", b"", (), b"", end.now)
    producer = world.log.producer()
    owner = acker_partition(A, 0, world.topics.acker.partitions)
    producer.send(Outgoing(world.topics.ack_topics.ack, owner, wire_codec().encode(acks), headers=(header,)))
    producer.flush(1_000)
    world.publish(BEGINNING, end)
    world.run(1_000)
    assert notes_in(world) == []
    assert world.planners[0].status(world.now_ms).acked == 10


def test_a_note_comes_back_as_it_was_written_and_garbage_counts_as_none() -> None:
    header = too_late_header(SOME)
    assert read_too_late([("windhover.traces", b"x"), header]) == SOME
    assert read_too_late([]) is None
    value = header[1]
    bad = [None, b"", value[:-1], value + b"x", wire_codec().encode(Verdicts((), (), ()))]
    bad.append(too_late_codec().encode(replace(SOME, rows=-1)))
    bad.append(too_late_codec().encode(replace(SOME, roots=(SourceRun(A, 5, 4),))))
    assert [read_too_late([(TOO_LATE, each)]) for each in bad] == [None] * len(bad)


def test_what_moved_a_watermark_is_one_record_or_the_runs_in_which_it_lies() -> None:
    assert MOVER.record == SourceRun(A, 3, 4)
    assert Mover(9, (SourceRun(A, 3, 5),)).record is None
    assert Mover(9, (SourceRun(A, 3, 4), SourceRun(A, 8, 9))).record is None
    assert replace(SOME, moved_by=()).mover is None


def test_a_note_that_is_dated_ahead_of_its_record_counts_nothing() -> None:
    """O1502: it would be the last note of its group for good. The acks beside it count."""
    world = World(YAML)
    world.produce(10)
    end = batch(world.ready(), BEGINNING, world)
    ahead = NOTE._replace(wall_ms=world.now_ms + CLOCK_AHEAD_MS_MAX + 60_000)
    world.publish_held(BEGINNING, end, late=(1,), note=ahead)
    world.run(1_000)
    assert notes_in(world) == []
    assert sum(counts.roots for counts in counts_of(world)) == 0
    assert world.planners[0].status(world.now_ms).acked == 10


def test_rows_of_a_batch_in_several_blocks_count_once() -> None:
    """O1502: each block says them, since any of its records may have been among them."""
    world = World(YAML)
    world.produce(10)
    world.produce(10, partition=1)
    end = batch(world.ready(), BEGINNING, world)
    world.publish_held(BEGINNING, end, note=NOTE)
    world.run(1_000)
    assert [note.rows for note in notes_in(world)] == [8, 8]
    assert sum(counts.rows for counts in counts_of(world)) == 8
