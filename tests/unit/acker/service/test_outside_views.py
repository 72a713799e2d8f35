"""Views from outside: what was settled since State, when it is read anew, and what a claim says of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from acker.config.limits import AckerLimits
from acker.errors import Disagreement, Fenced, OutOfRange
from acker.identity import input_id_of
from acker.kafka.port import Outgoing, TopicPartition
from acker.service.freeing import TRIES, Freeing
from acker.service.view import AckerView, ViewReader
from acker.wire.events import SourceRun, Verdicts
from tests.support.memory.clients import FailingByPlan, MemoryTransactions
from tests.support.memory.cluster import MemoryCluster, MemoryLog, NoFaults
from tests.support.worlds.acker_world import CODEC, GROUP, SOURCE, TOPICS, World, Writer, edge

VERDICT = TopicPartition(TOPICS.verdict, 0)


def begun(*, at_once: bool = False) -> tuple[World, Writer]:
    """Return a world with ten open roots; `at_once`: the acker has not read anything of it yet."""
    world = World()
    writer = world.session()
    writer.take()
    writer.init((0, 10))
    if not at_once:
        world.settle()
    return world, writer


def reader_of(world: World, partitions: int = 1) -> ViewReader:
    return ViewReader(world.cluster.log(), TOPICS, partitions, AckerLimits())


def view_of(reader: ViewReader) -> AckerView:
    view = reader.view(0)
    assert view is not None
    return view


def open_in(view: AckerView) -> list[int]:
    return [open_range.start + int(index) for open_range in view.open_ranges() for index in open_range.at]


def test_without_a_state_there_is_no_view() -> None:
    assert reader_of(World()).view(0) is None


def test_roots_that_settled_one_after_the_other_are_one_run() -> None:
    world, writer = begun()
    reader = reader_of(world)
    for position in range(6):
        writer.acks(values=[(position, edge(position))], seq=position)
        world.settle()
        assert open_in(view_of(reader)) == list(range(position + 1, 10))
    writer.fails(8)
    world.settle()
    assert open_in(view_of(reader)) == [6, 7, 9]
    assert reader._settled_runs[0].runs == [SourceRun(SOURCE, 0, 6), SourceRun(SOURCE, 8, 9)]


def test_verdicts_of_the_first_transaction_are_in_a_view() -> None:
    """The first of them has offset 0."""
    world, writer = begun(at_once=True)
    writer.acks(values=[(3, edge(3))])
    world.step()
    view = view_of(reader_of(world))
    assert open_in(view) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_verdicts_of_a_transaction_that_was_aborted_are_none() -> None:
    world, writer = begun()
    writer.acks(values=[(3, edge(3))])
    world.settle()
    transactions = world.cluster.log().transactions("other")
    transactions.init(1_000)
    transactions.begin()
    value = CODEC.encode(Verdicts((SourceRun(SOURCE, 0, 10),), (), ()))
    transactions.send(Outgoing(*VERDICT, value))
    transactions.abort(1_000)
    assert len(open_in(view_of(reader_of(world)))) == 9


def test_a_view_is_behind_where_a_tick_waits() -> None:
    world, writer = begun()
    assert not view_of(reader_of(world)).is_behind
    writer.tick(5)
    assert view_of(reader_of(world)).is_behind


def test_a_view_has_the_deadline_that_was_moved() -> None:
    world, writer = begun()
    [before] = view_of(reader_of(world)).open_ranges()
    writer.acks(touched=list(range(10)), touched_at=9_000)
    world.settle()
    [after] = view_of(reader_of(world)).open_ranges()
    assert before.left_ms is not None
    assert after.left_ms == before.left_ms + 9_000


def test_another_number_of_partitions_is_refused() -> None:
    world, _ = begun()
    with pytest.raises(Disagreement, match=r"topics.yaml says 2"):
        reader_of(world, 2).view(0)


class ShortenedMeanwhile(MemoryLog):
    """A log of which the start has moved at each question, some times."""

    def __init__(self, cluster: MemoryCluster, times: int) -> None:
        """Fail so many times."""
        super().__init__(cluster, NoFaults())
        self.times = times

    def stable_ends(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Fail, or answer."""
        self.times -= 1
        if self.times >= 0:
            raise OutOfRange("shortened")
        return super().stable_ends(partitions)


@pytest.mark.parametrize(("times", "is_read"), [(0, True), (1, True), (2, True), (3, False)])
def test_a_log_may_be_shortened_twice_while_it_is_read(times: int, is_read: bool) -> None:
    world, _ = begun()
    reader = ViewReader(ShortenedMeanwhile(world.cluster, times), TOPICS, 1, AckerLimits())
    if is_read:
        assert len(open_in(view_of(reader))) == 10
    else:
        with pytest.raises(OutOfRange):
            reader.view(0)


# freeing ---------------------------------------------------------------------------------------------------


def is_ours(input_id: int, group: str) -> bool:
    return (input_id, group) == (input_id_of(SOURCE), GROUP)


def freeing(log: MemoryLog) -> Freeing:
    return Freeing(log, TOPICS, 1, "windhover-acker", AckerLimits())


@pytest.mark.parametrize("is_begun", [True, False])
def test_a_claim_says_what_it_has(is_begun: bool) -> None:
    world = World()
    writer = world.session()
    writer.take()
    if is_begun:
        writer.init((0, 10))
        writer.init((10, 13))
    world.settle()
    [claim] = freeing(world.cluster.log()).read_claims(is_ours)
    assert claim.open_roots == (13 if is_begun else 0)
    begun_text = "some of it initialised, 13 roots open" if is_begun else "nothing of it initialised, 0 roots"
    assert begun_text in str(claim)
    assert freeing(world.cluster.log()).read_claims(lambda _id, _group: False) == []


class NotedWriters(MemoryLog):
    """Notes the writers that it made."""

    writers: list[MemoryTransactions]

    def transactions(self, transactional_id: str) -> MemoryTransactions:
        """Make a writer."""
        self.writers.append(super().transactions(transactional_id))
        return self.writers[-1]


@pytest.mark.parametrize(("times", "is_freed"), [(0, True), (1, True), (TRIES - 1, True), (TRIES, False)])
def test_an_acker_may_take_its_partition_back_some_times(times: int, is_freed: bool) -> None:
    world, _ = begun()
    log = NotedWriters(world.cluster, FailingByPlan("commit", Fenced("another"), [True] * times))
    log.writers = []
    claims = freeing(log).read_claims(is_ours)
    if is_freed:
        assert freeing(log).free(is_ours, claims, [GROUP]) == 1
        assert freeing(log).read_claims(is_ours) == []
    else:
        with pytest.raises(Fenced):
            freeing(log).free(is_ours, claims, [GROUP])
    assert len(log.writers) == times + is_freed
    assert all(writer._is_closed for writer in log.writers)
