"""Whoever asks where a log ends goes no further than a transaction that is open there: it may still commit.

Records that somebody else commits behind it are there, and cannot be read before it ends. So the log has an
end that can be read, and one behind all that was written. Who begins at the second one has passed over what
the transaction commits.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

import pytest

from acker.identity import offset_of, source_of
from acker.kafka.port import Outgoing, Transactions
from spout.inspect.operate import RewindTarget, moves_of_rewind
from spout.inspect.overview import Overview
from spout.planning.journal import BEGINNING
from tests.support.worlds.planning import World, batch, positions

A = source_of(1, 0)
READABLE = 10
"""Records in front of the transaction: up to here all can be read."""

IN_IT = 3
BEHIND = pytest.mark.parametrize("behind", [0, 4], ids=["at the end", "with records behind it"])
ENDS = pytest.mark.parametrize("commits", [True, False], ids=["commits", "aborts"])


@dataclass
class Open:
    """A world whose input has records, a transaction that is open, and perhaps records behind it."""

    world: World
    writer: Transactions
    end: int

    def finish(self, *, commits: bool) -> None:
        """End the transaction; from now on all can be read."""
        if commits:
            self.writer.commit(0)
        else:
            self.writer.abort(0)


def open_transaction(behind: int, topic: str = "sentences", partition: int = 0) -> Open:
    world = World()
    world.produce(READABLE, topic=topic, partition=partition)
    writer = world.log.transactions("somebody's")
    writer.init(0)
    writer.begin()
    for number in range(IN_IT):
        writer.send(Outgoing(topic, partition, b"open %d" % number))
    writer.flush(0)
    world.produce(behind, topic=topic, partition=partition)
    return Open(world, writer, READABLE + IN_IT + behind)


@BEHIND
@pytest.mark.parametrize(
    ("to", "is_time", "first"),
    [("latest", False, READABLE), (99, False, READABLE), (READABLE + 1, False, READABLE), (4, False, 4),
     ("earliest", False, 0), ("latest", True, READABLE)],
)  # fmt: skip
@pytest.mark.parametrize("partitions", [(), (0,)], ids=["all", "this partition"])
def test_a_reset_goes_no_further_than_an_open_transaction(
    behind: int, to: RewindTarget, is_time: bool, first: int, partitions: tuple[int, ...]
) -> None:
    """A time of the future is behind all of it, and so is an offset that the log does not have."""
    opened = open_transaction(behind)
    world = opened.world
    at_ms = world.now_ms + 60_000 if is_time else None
    plan = moves_of_rewind(world.log, world.topics.input("sentences"), to, at_ms=at_ms, partitions=partitions)
    assert {move.place.partition: move.offset for move in plan}[0] == first


@BEHIND
@ENDS
def test_a_query_behind_a_reset_to_the_latest_reads_what_the_transaction_commits(
    behind: int, commits: bool
) -> None:
    opened = open_transaction(behind)
    world = opened.world
    world.rewind("latest")
    opened.finish(commits=commits)
    planner = world.ready()
    [(_, start, end)] = positions(BEGINNING, batch(planner, BEGINNING, world))
    assert (offset_of(start), offset_of(end)) == (READABLE, opened.end + 1), "up to its marker"


@BEHIND
@ENDS
@pytest.mark.parametrize("is_tracked", [True, False], ids=["tracked", "untracked"])
def test_a_group_that_starts_at_the_latest_reads_what_the_transaction_commits(
    behind: int, commits: bool, is_tracked: bool
) -> None:
    opened = open_transaction(behind)
    planner = opened.world.ready(start="latest", tracked=is_tracked)
    start = batch(planner, BEGINNING, opened.world)
    assert positions(BEGINNING, start) == []
    opened.finish(commits=commits)
    end = batch(planner, start, opened.world)
    assert positions(start, end) == [(A, READABLE, opened.end + 1)]


@BEHIND
@ENDS
def test_a_query_that_ends_reads_up_to_the_transaction_and_ends(behind: int, commits: bool) -> None:
    """What commits later came later, whatever its offset: the next run has it."""
    opened = open_transaction(behind)
    world = opened.world
    planner = world.ready(stops_at_ends=True)
    opened.finish(commits=commits)
    end = batch(planner, BEGINNING, world)
    assert positions(BEGINNING, end) == [(A, 0, READABLE)]
    world.publish(BEGINNING, end)
    world.run(1_000)
    assert planner.is_drained()


@BEHIND
def test_the_lag_counts_what_can_be_read(behind: int) -> None:
    """Who has read all that can be read has none."""
    opened = open_transaction(behind)
    world = opened.world
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end)
    world.run(4_000)
    with closing(Overview(world.log, world.topics)) as overview:
        snapshot = overview.snapshot(world.now_ms)
    assert [row["lag"] for row in snapshot.rows()] == [0, 0]
