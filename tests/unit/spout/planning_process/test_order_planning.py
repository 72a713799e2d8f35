"""How the planning process keeps the order of an input: what waits holds back what stands behind it."""

from __future__ import annotations

import math
import re
from contextlib import closing, suppress

import pytest

from acker.errors import Unreachable, UsageError
from acker.identity import acker_partition, is_replay, position_at, source_of
from acker.kafka.port import Record, TopicPartition
from acker.wire.causes import HELD
from spout.builder.tuple_metrics import root_metrics
from spout.group.due import DueEntries
from spout.inspect.diagnosis import diagnose
from spout.inspect.overview import Overview, notes_on
from spout.inspect.trail import EvidenceReader
from spout.planning.journal import BEGINNING, batch_ranges, journal_of
from spout.planning.order import LOST_FEW, ROOM_FIRST, NotAcked, line_of_key
from tests.support.holes import Aborted, Each, write_stretches
from tests.support.worlds.order_world import OrderWorld, attempt_of
from tests.support.worlds.planning import FlushesLeft

A, B, C = b"a", b"b", b"c"


def fails_first(*origins: int, times: int = 1) -> object:
    """Make a bolt that fails some records of partition 0, each so many times."""
    left = dict.fromkeys(origins, times)

    def bolt(_record: Record, partition: int, origin: int) -> str:
        if partition or not left.get(origin):
            return ""
        left[origin] -= 1
        return "ValueError"

    return bolt


def test_by_key_a_failed_record_holds_back_its_key_and_nothing_else() -> None:
    """P32: it comes next in its key, and then the key goes on."""
    world = OrderWorld("key")
    world.produce(9, keys=(A, B, C))
    world.bolt = fails_first(0)  # type: ignore[assignment]
    world.rest()
    assert world.succeeded(key=A) == [0, 3, 6]
    assert world.succeeded()[:6] == [1, 2, 4, 5, 7, 8]
    assert {ran.key for ran in world.held()} == {A}
    assert world.letters() == []


def test_by_partition_a_failed_record_holds_back_all_behind_it_in_its_partition_alone() -> None:
    world = OrderWorld("partition")
    world.produce(9, keys=(A, B, C))
    world.produce(3, partition=1)
    world.bolt = fails_first(4, times=2)  # type: ignore[assignment]
    world.rest()
    assert world.succeeded() == list(range(9))
    assert world.succeeded(partition=1) == [0, 1, 2]
    assert [ran.batch for ran in world.ran if ran.partition == 1] == [world.ran[0].batch] * 3


def test_without_order_what_comes_later_does_not_wait() -> None:
    world = OrderWorld("none")
    world.produce(3, keys=(A,))
    world.plan()
    assert world.running is not None
    assert world.running.order == {}
    assert [task.order for task in world.tasks()] == [{}]


def test_a_later_batch_holds_back_what_stands_behind_a_record_that_waits() -> None:
    """It is not handed to any bolt, and runs behind the one that it waited for."""
    world = OrderWorld("key")
    world.produce(2, keys=(A, B))
    world.bolt = fails_first(0, times=2)  # type: ignore[assignment]
    world.live(300)
    world.produce(4, keys=(A, B))
    world.live(200)
    assert world.succeeded() == [1, 3, 5]
    world.rest()
    assert world.succeeded(key=A) == [0, 2, 4]
    executed = [ran.origin for ran in world.ran if ran.key == A and ran.failed != "HELD"]
    assert executed == [0, 0, 0, 2, 4]


def test_a_held_chain_drains_in_one_batch_once_its_head_is_through() -> None:
    world = OrderWorld("key")
    world.produce(50, keys=(A,))
    world.bolt = fails_first(0)  # type: ignore[assignment]
    world.rest()
    assert world.succeeded() == list(range(50))
    chain = {ran.batch for ran in world.ran if ran.origin and not ran.failed}
    assert len(chain) == 1


def test_a_dead_letter_releases_what_stands_behind_it() -> None:
    world = OrderWorld("key", attempts=2)
    world.produce(6, keys=(A, B))
    world.bolt = fails_first(0, times=100)  # type: ignore[assignment]
    world.rest()
    assert world.succeeded(key=A) == [2, 4]
    (letter,) = world.letters()
    assert letter.value == b"0"


def test_what_was_held_has_all_its_attempts() -> None:
    """Held twenty times, then failed as often as `attempts` allows less one, and done."""
    world = OrderWorld("key", attempts=4)
    world.produce(2, keys=(A,))
    world.bolt = fails_first(0, times=3)  # type: ignore[assignment]
    tried: list[int] = []
    first = world.bolt

    def bolt(record: Record, partition: int, origin: int) -> str:
        if origin == 0:
            return first(record, partition, origin)
        tried.append(attempt_of(record))
        return "ValueError" if len(tried) < 4 else ""

    world.bolt = bolt
    world.rest()
    assert world.succeeded() == [0, 1]
    assert len(tried) == 4
    assert world.letters() == []


def test_after_a_restart_the_same_is_held_back() -> None:
    world = OrderWorld("key")
    world.produce(4, keys=(A, B))
    world.bolt = fails_first(0, times=2)  # type: ignore[assignment]
    world.live(300)
    world.restart()
    world.produce(4, keys=(A, B))
    world.rest()
    assert world.succeeded(key=A) == [0, 2, 4, 6]


def test_nothing_new_is_emitted_with_copies_that_a_process_before_has_initialised() -> None:
    """Seed 1566, profile `ordered`: what was emitted with them was acked before they were."""
    world = OrderWorld("partition")
    world.produce(1)
    world.bolt = fails_first(0)  # type: ignore[assignment]
    while not world.records("sentences.g.replay"):
        world.live(100)
    while world.spout.plan(world.done, None, world.now_ms) == world.done:
        world.run(100)
    world.restart()  # the plan was never journalled
    world.produce(1)
    while not world.plan():
        world.run(100)
    assert world.running is not None
    assert [is_replay(run.source) for run in batch_ranges(world.done, world.running)] == [True]
    world.rest()
    assert world.succeeded() == [0, 1]


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_records_that_a_process_before_has_initialised_are_emitted_alone(ordering: str) -> None:
    """Seed 13189, profile `ordered`: the same of new records."""
    world = OrderWorld(ordering)
    world.produce(1, keys=(A,))
    world.rest()
    world.produce(2, keys=(A,))
    while world.spout.plan(world.done, None, world.now_ms) == world.done:
        world.run(100)
    world.restart()
    world.produce(1, keys=(A,))
    while not world.plan():
        world.run(100)
    assert world.running is not None
    assert [run.end - run.start for run in batch_ranges(world.done, world.running)] == [2]
    world.rest()
    assert world.succeeded() == [0, 1, 2, 3]


@pytest.mark.parametrize("ordering", ["key", "partition"])
@pytest.mark.parametrize("limit", [None, 1])
def test_what_is_free_below_initialised_records_is_emitted_before_them(
    ordering: str, limit: int | None
) -> None:
    """O1703. Seed 9031735, profile `ordered`: InOrder, 65536 was acked two batches before 65532.

    A process died between the parts of one init: the later block is initialised, the earlier one is not. The
    next process planned what was initialised alone, and then what stands before it.
    """
    world, first = OrderWorld(ordering), 65_536 - 2
    generation, partition = next(
        (generation, number)
        for generation in range(1, 9)
        for number in (0, 1)  # the later block is announced first
        if acker_partition(source_of(1, number), position_at(generation, first), 2) == 1
        and acker_partition(source_of(1, number), position_at(generation, 65_536), 2) == 0
    )
    log = world.cluster.partition(TopicPartition("sentences", partition))
    log._base = log.start = first
    world.kill(world.spout)
    world.run(11_000)
    for _ in range(generation):
        world.rewind("latest")
    faults = FlushesLeft()
    world.spout = world.ready(faults=faults)
    world.produce(1, partition=1 - partition, keys=(B,))
    world.rest()
    world.produce(4, partition=partition, keys=(A,))
    faults.left = 1
    with suppress(Unreachable):
        while not world.plan():
            world.run(100)
    world.running = None
    world.restart()
    while not world.spout.is_drained() or world.running is not None:
        world.live(100, limit=limit)
    assert world.succeeded(partition) == [first, first + 1, first + 2, first + 3]
    batches = [ran.batch for ran in world.ran if ran.partition == partition]
    assert batches == sorted(batches)
    assert world.acked()[-4:] == [
        (source_of(1, partition), position_at(generation, first + n)) for n in range(4)
    ]


def test_what_a_process_before_has_initialised_waits_through_a_restart_with_its_partition() -> None:
    """The batch of another partition is journalled meanwhile; it has not emitted what waits."""
    world, waits = OrderWorld("key"), source_of(1, 1)
    world.query = "by-hand"  # its batches have numbers of their own
    for partition in (0, 1):
        world.produce(2, partition=partition, keys=(A, B))
    world.run(500)
    assert world.plan()
    first, world.running = world.running, None
    assert first is not None
    world.publish(world.done, first, skip=(0,), of=waits)
    world.spout.record_publication(first, (NotAcked(waits, 0, line_of_key(A), 0),))
    world.done = first
    for partition in (0, 1):
        world.produce(2, partition=partition, keys=(A, B))
    while world.spout.plan(first, None, world.now_ms) == first:
        world.run(100)
    world.restart()  # the plan was never journalled
    while not world.plan():
        world.run(100)
    assert world.running is not None
    assert [run.source for run in batch_ranges(world.done, world.running)] == [source_of(1, 0)]
    world.execute()
    world.restart()
    world.publish(BEGINNING, first)
    world.rest()
    assert [world.succeeded(partition) for partition in (0, 1)] == [[2, 3], [2, 3]]
    assert world.lost("TIMED_OUT") == 0


def test_a_batch_that_is_run_again_holds_back_the_same() -> None:
    world = OrderWorld("key")
    world.produce(4, keys=(A, B))
    world.bolt = fails_first(0, times=3)  # type: ignore[assignment]
    world.live(300)
    world.produce(4, keys=(A, B))
    assert world.plan()
    first = world.tasks()
    ran = world.execute(end=False)
    world.run(2_000)
    assert world.tasks() == first
    again = world.execute()
    assert [each[:3] for each in again] == [each[:3] for each in ran]
    assert [each.origin for each in again if each.failed] == [each.origin for each in ran if each.failed]
    world.rest()
    assert sorted(set(world.succeeded(key=A))) == [0, 2, 4, 6]


def test_a_failure_that_the_task_cannot_see_still_holds_back_what_ran_behind_it() -> None:
    """Behind a shuffle a later record may run too early; it is not acked, and runs again in order."""
    world = OrderWorld("key")
    world.behind_a_shuffle = True
    world.produce(6, keys=(A, B))
    world.bolt = fails_first(0)  # type: ignore[assignment]
    world.rest()
    assert world.succeeded(key=A) == [2, 4, 0, 2, 4]
    assert world.succeeded(key=B) == [1, 3, 5]


def test_nothing_of_a_partition_is_planned_while_something_of_it_is_under_way() -> None:
    world = OrderWorld("partition")
    world.produce(2)
    world.run(2_000)
    assert world.plan()
    world.produce(2)
    world.produce(2, partition=1)
    world.execute(publish=False, end=False)
    world.done, world.running = world.running, None  # type: ignore[assignment]
    assert world.plan()
    assert [run.source & 0xFFFF for run in world.running.ranges] == [1]  # type: ignore[attr-defined]
    waits = world.spout.status(world.now_ms).waits
    assert waits == {"sentences/0": "waits for what is under way: 2 roots are pending"}


def test_what_was_lost_is_waited_for_until_a_replay_worker_has_taken_it_over() -> None:
    world = OrderWorld("key")
    world.names_not_acked = False
    world.produce(2, keys=(A,))
    world.live(1_500)
    assert world.succeeded() == [0, 1]
    world.produce(2, keys=(A,))
    world.bolt = fails_first(2)  # type: ignore[assignment]
    world.kill_replays()
    world.live(300)
    world.produce(2, keys=(A, B))
    world.live(1_000)
    assert world.succeeded() == [0, 1]
    assert "no replay worker has taken over" in world.spout.status(world.now_ms).waits["sentences/0"]
    world.start_replays()
    world.rest()
    assert world.succeeded(key=A) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("lost", [False, True])
def test_what_is_being_written_to_ack_due_is_waited_for_once_something_was_lost(
    monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    """Each second a replay worker writes its progress there, and the end of that is read a little later."""
    world = OrderWorld("key")
    world.names_not_acked = False
    world.produce(2, keys=(A,))
    world.live(1_500)
    world.bolt = fails_first(2 if lost else -1)  # type: ignore[assignment]
    monkeypatch.setattr(DueEntries, "read", lambda _self: False)
    world.produce(2, keys=(A,))
    assert world.plan(), "nothing waits, and nothing was lost so far"
    world.execute()
    world.run(1_500)
    world.produce(2, keys=(A,))
    assert world.plan() is not lost
    waits = {"sentences/0": "waits for what is under way: _ack_due is being read"}
    assert world.spout.status(world.now_ms).waits == (waits if lost else {})
    monkeypatch.undo()
    world.rest()
    assert world.succeeded() == [0, 1, 2, 3, 4, 5]


def test_ack_due_is_read_to_its_end_before_the_first_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction may have left a progress, and what waits behind it, since that was written again later."""
    world = OrderWorld("key")
    world.produce(2, keys=(A,))
    world.bolt = fails_first(0)  # type: ignore[assignment]
    world.live(100)
    read = DueEntries.read
    monkeypatch.setattr(DueEntries, "read", lambda entries: read(entries) and False)
    monkeypatch.setattr(DueEntries, "waiting_of", lambda _self, _source: ())
    world.restart()
    world.live(1_500)
    assert world.succeeded() == []
    monkeypatch.undo()
    world.rest()
    assert world.succeeded() == [0, 1]


def test_a_published_batch_is_followed_before_its_verdicts_and_only_keys_that_failed_are_held_back() -> None:
    world = OrderWorld("key")
    world.produce(4, keys=(A, B))
    world.bolt = fails_first(2)  # type: ignore[assignment]
    world.run(2_000)
    assert world.plan()
    world.execute()
    world.produce(4, keys=(A, B))
    assert world.plan(), "no verdict has come yet"
    assert world.spout.status(world.now_ms).pending == 8
    assert [ran.origin for ran in world.execute() if ran.failed] == [4, 6]
    world.rest()
    assert world.succeeded(key=A) == [0, 2, 4, 6]
    assert world.succeeded(key=B) == [1, 3, 5, 7]


def test_by_partition_a_published_batch_without_failures_is_followed_before_its_verdicts() -> None:
    world = OrderWorld("partition")
    world.produce(2)
    world.run(2_000)
    assert world.plan()
    world.execute()
    world.produce(2)
    assert world.plan()
    world.bolt = fails_first(2)  # type: ignore[assignment]
    world.execute()
    world.produce(2)
    assert not world.plan()
    assert world.spout.status(world.now_ms).waits == {"sentences/0": "waits for sentences/0@2"}
    world.rest()
    assert world.succeeded() == [0, 1, 2, 3, 4, 5]


def test_keys_go_on_behind_a_named_failure_while_no_replay_worker_runs() -> None:
    world = OrderWorld("key")
    world.produce(2, keys=(A, B))
    world.bolt = fails_first(0)  # type: ignore[assignment]
    world.kill_replays()
    world.live(1_000)
    world.produce(2, keys=(A, B))
    world.live(1_000)
    assert world.succeeded() == [1, 3]
    world.start_replays()
    world.rest()
    assert world.succeeded(key=A) == [0, 2]


def test_a_batch_that_was_published_when_its_roots_may_have_timed_out_is_waited_for() -> None:
    """A tick that was sent before the acks may be applied before them."""
    world = OrderWorld("key", timeout="5s")
    world.produce(2, keys=(A,))
    world.run(2_000)
    assert world.plan()
    world.run(4_900)
    world.spout.step((), world.now_ms + 600)  # the clock passes the deadline, and no acker has read it yet
    world.execute()
    world.produce(2, keys=(A,))
    assert not world.plan()
    world.rest()
    assert sorted(set(world.succeeded())) == [0, 1, 2, 3]
    assert [root for _, root in world.acked()][-2:] == [2, 3]


def test_nothing_of_the_batch_of_a_process_before_is_passed_though_it_was_published() -> None:
    world = OrderWorld("key")
    world.produce(2, keys=(A,))
    world.run(2_000)
    assert world.plan()
    world.restart()
    world.run(15_000)  # that process can no longer live
    world.execute()
    world.produce(2, keys=(A,))
    assert not world.plan()
    world.rest()
    assert world.succeeded() == [0, 1, 2, 3]


def test_a_batch_that_another_process_may_have_initialised_earlier_is_waited_for() -> None:
    """It times out by that Init, after that process is gone, and its verdicts are not read yet."""
    world = OrderWorld("key")
    world.produce(2, keys=(A,))
    world.run(500)
    assert world.plan()
    assert world.running is not None
    before, world.spout = world.spout, world.ready(journal_of(world.running.to_json()))
    world.execute()
    before.record_publication(world.done, ())
    world.run(200)
    world.produce(2, keys=(A,))
    assert before.plan(world.done, None, world.now_ms) != world.done
    world.run(300)
    world.kill(before)
    world.run(9_000)
    assert world.plan()
    world.produce(2, keys=(A,))
    assert world.acker is not None
    while not world.lost("TIMED_OUT"):
        world.cluster.now_ms += 100
        world.spout.step(world.spout.poll(0), world.now_ms)
        world.acker.step(world.now_ms)
    world.execute()
    assert not world.plan()
    world.rest()
    assert world.succeeded()[-4:] == [2, 3, 4, 5]


def test_what_is_held_is_bounded_and_then_the_partition_waits() -> None:
    world = OrderWorld("key", max_held=20)
    world.produce(500, keys=(A, B))
    world.bolt = fails_first(0, times=3)  # type: ignore[assignment]
    most = 0
    for _ in range(200):
        world.live(100)
        status = world.spout.status(world.now_ms)
        most = max(most, sum(status.held_now.values()) + 1)
        assert status.held_now in ({}, {"sentences/0": sum(status.held_now.values()), "sentences/1": 0})
    assert 15 < most <= 20
    assert "partition_waits" in world.told
    world.rest()
    assert "partition_goes_on" in world.told
    assert world.succeeded(key=A) == list(range(0, 500, 2))
    assert world.succeeded(key=B) == list(range(1, 500, 2))


def test_more_than_max_held_drain_in_order_when_it_was_set_lower() -> None:
    world = OrderWorld("key", max_held=1_000)
    world.produce(100, keys=(A, B, C))
    world.bolt = fails_first(*range(100))  # type: ignore[assignment]
    world.live(300)
    lower = OrderWorld("key", max_held=10).topics
    world.topics = lower
    world.restart()
    world.rest()
    for number, key in enumerate((A, B, C)):
        assert world.succeeded(key=key) == list(range(number, 100, 3))


def test_records_without_key_stand_in_no_line() -> None:
    world = OrderWorld("key")
    world.produce(4)
    world.bolt = fails_first(0)  # type: ignore[assignment]
    world.rest()
    assert world.succeeded() == [1, 2, 3, 0]
    assert world.held() == []


def test_a_record_that_left_the_log_holds_back_nobody() -> None:
    world = OrderWorld("key", attempts=2)
    world.names_not_acked = False
    world.produce(2, keys=(A, B))
    world.bolt = fails_first(0)  # type: ignore[assignment]
    world.live(200)
    place = next(iter({spec.place for spec in world.spout.sources.values() if spec.source == 65_536}))
    world.log.delete_before({place: 2})
    world.produce(2, keys=(A, B))
    world.rest()
    assert world.succeeded() == [1, 2, 3]
    assert len(world.letters()) == 1


def test_the_key_of_a_record_that_the_driver_named_is_not_read_again() -> None:
    """It is gone, and still its key waits for its dead letter."""
    world = OrderWorld("key")
    world.produce(2, keys=(A, B))
    world.bolt = fails_first(0)  # type: ignore[assignment]
    world.run(2_000)
    assert world.plan()
    world.execute()
    world.run(200)  # a replay worker has taken it over
    assert not world.spout.status(world.now_ms).pending
    place = next(iter({spec.place for spec in world.spout.sources.values() if spec.source == 65_536}))
    world.log.delete_before({place: 2})
    world.produce(2, keys=(A, B))
    assert world.plan()
    assert [ran.origin for ran in world.execute() if ran.failed] == [2]
    world.rest()
    assert world.succeeded() == [1, 3, 2]


def test_a_record_of_which_a_copy_is_left_holds_back_its_key() -> None:
    """Seed 25271, profile `ordered`: its source topic was compacted while its copy waited."""
    world = OrderWorld("key")
    world.produce(1, keys=(A,))
    world.bolt = fails_first(0, times=2)  # type: ignore[assignment]
    while sum(ran.failed != "" for ran in world.ran) < 2:
        world.live(100)
    place = next(iter({spec.place for spec in world.spout.sources.values() if spec.source == 65_536}))
    world.log.delete_before({place: 1})
    world.produce(1, keys=(A,))
    world.rest()
    assert world.succeeded() == [0, 1]
    assert {ran.origin for ran in world.held()} == {1}


def test_a_small_limit_takes_all_copies_and_lets_only_so_many_through() -> None:
    """Of copies that stay unread nobody would know whether they come first."""
    world = OrderWorld("key")
    world.produce(30, keys=(A,))
    world.bolt = fails_first(0)  # type: ignore[assignment]
    world.live(200)
    for _ in range(200):
        world.live(100, limit=5)
    assert world.succeeded() == list(range(30))
    batches = [ran.batch for ran in world.ran if not ran.failed and ran.origin]
    assert max(batches.count(batch) for batch in set(batches)) <= 5


def restart_behind_a_plan(world: OrderWorld, copies: int) -> None:
    """Restart behind a plan that was never journalled, when so many copies are written."""
    while world.spout.plan(world.done, None, world.now_ms) == world.done:
        world.run(100)
    world.start_replays()
    while len(world.records("sentences.g.replay")) < copies:
        world.run(100)
    world.restart()


def test_copies_wait_for_room_beside_what_a_process_before_has_initialised() -> None:
    """Seed 882, profile `ordered`: of two roots that might be pending four were."""
    world = OrderWorld("key", max_spout_pending=2)
    world.produce(2, keys=(A, B))
    world.bolt = fails_first(0, 1)  # type: ignore[assignment]
    world.live(200)
    world.kill_replays()
    world.produce(2, partition=1, keys=(A,))
    restart_behind_a_plan(world, copies=2)
    while not world.plan():
        world.run(100)
    assert world.running is not None
    assert sum(run.end - run.start for run in batch_ranges(world.done, world.running)) == 2
    world.rest()
    assert sorted(world.succeeded()) == [0, 1]
    assert world.succeeded(partition=1) == [0, 1]


def test_the_pace_counts_unordered_records_beside_copies_that_exceed_the_room() -> None:
    world = OrderWorld(more="  words: {id: 2, group: g, partitions: 1, timeout: 30s}\n")
    world.produce(10, keys=(A,))
    world.bolt = fails_first(*range(10))  # type: ignore[assignment]
    world.live(200)
    world.kill_replays()
    world.produce(1_000, topic="words")
    restart_behind_a_plan(world, copies=10)
    world.run(1_000)  # a replay worker reads the answer of the ackers
    assert world.plan(limit=1_001)
    assert world.running is not None
    assert sum(run.end - run.start for run in batch_ranges(world.done, world.running)) >= 1_010
    world.run(3_000)
    world.done, world.running = world.running, None
    world.produce(5_000, topic="words")
    assert world.plan()
    # 1,001 records took 3 s, 250 ms of it to start, and 7.5 s is a quarter of the timeout
    assert sum(run.end - run.start for run in batch_ranges(world.done, world.running)) == 2_730


def test_an_ordered_input_is_read_tracked() -> None:
    world = OrderWorld("key")
    with pytest.raises(UsageError, match="sentences has an ordering, which needs tracking"):
        world.make(tracked=False)


def rows_of(world: OrderWorld) -> list[tuple[object, object]]:
    """Return what `windhover status` says of order, of each partition."""
    overview = Overview(world.cluster.log(), world.topics)
    try:
        return [(row["held"], row["waits_for"]) for row in overview.snapshot(world.now_ms).rows()]
    finally:
        overview.close()


def test_status_tells_how_many_are_held_and_which_record_is_waited_for() -> None:
    world = OrderWorld("partition")
    world.produce(4)
    world.bolt = fails_first(1)  # type: ignore[assignment]
    assert rows_of(world) == [(0, ""), (0, "")]
    world.plan()
    world.execute()
    world.run(200)
    (held, waits), other = rows_of(world)
    assert (held, other) == (2, (0, ""))
    assert str(waits).startswith("sentences/0@1 first, due in ")
    world.rest()
    assert rows_of(world) == [(0, ""), (0, "")]


def test_status_prints_which_record_the_others_wait_for_and_how_many_are_blocked() -> None:
    world = OrderWorld("partition")
    world.produce(4)
    world.bolt = fails_first(1)  # type: ignore[assignment]
    world.plan()
    world.execute()
    world.run(200)
    with closing(Overview(world.cluster.log(), world.topics)) as overview:
        rows = overview.snapshot(world.now_ms).rows()
        (note,) = [note for note in notes_on(rows) if "waits for" in note]
    why_uncommitted = "all is settled, and not committed yet; if it stays so, no query of the group runs"
    waits = "waits for sentences/0@1 first"
    assert re.search(rf": {why_uncommitted}; {waits}, due in [^;]+; 2 blocked$", note), note


def test_status_says_none_of_what_is_not_ordered() -> None:
    assert rows_of(OrderWorld("none")) == [(None, ""), (None, "")]


def test_inspect_tells_behind_which_record_a_held_one_stands() -> None:
    world = OrderWorld("key")
    world.produce(3, keys=(A,))
    world.bolt = fails_first(0)  # type: ignore[assignment]
    world.plan()
    world.execute()
    world.run(100)
    told: list[str] = []
    while not told or told[-1].startswith("blocked"):
        trail = EvidenceReader(world.cluster.log(), world.topics)
        (here,) = trail.records_at("sentences/0@2")
        evidence = trail.read_evidence(here)
        told.append(diagnose(evidence, trail.circumstances(here, evidence, world.now_ms), world.now_ms).now)
        world.run(100)
    assert told[0] == "blocked: it waits for sentences/0@0; no replay worker has taken it over yet"
    assert told[1].startswith(
        "blocked: it waits for sentences/0@0; no bolt has seen it since. It is looked at again in "
    )


def test_held_records_and_waiting_partitions_are_metrics() -> None:
    world = OrderWorld("partition")
    world.produce(3)
    world.bolt = fails_first(0)  # type: ignore[assignment]
    world.live(300)
    status = world.spout.status(world.now_ms)
    assert status.held == 2
    found = {
        metric.name: metric.samples
        for metric in root_metrics("windhover_topology", {("g",): status}, world.now_ms)
    }
    held, waits = found["windhover_topology_held_now"], found["windhover_topology_waits"]
    assert {sample.labels["partition"]: sample.value for sample in held} == {"0": 2, "1": 0}
    assert {sample.labels["partition"]: sample.value for sample in waits} == {"0": 1, "1": 0}
    assert {sample.labels["topic"] for sample in held} == {"sentences"}


def test_batches_grow_while_little_is_lost_and_are_small_behind_much_that_was() -> None:
    world = OrderWorld("key", max_held=50_000)
    sizes: list[int] = []
    for records, failing in ((10_500, -1), (10_500, ROOM_FIRST), (10_500, -1)):
        world.produce(records, keys=(A,))
        world.bolt = fails_first(failing)  # type: ignore[assignment]
        assert world.plan()
        world.execute()
        sizes.append(len(world.ran) - sum(sizes))
    assert sizes == [ROOM_FIRST, 11_000, int(11_000 * math.sqrt(LOST_FEW / 11_000))]


def test_copies_that_are_lost_again_do_not_make_batches_small() -> None:
    """They would be in a batch of any size, and all other keys would go on in small ones."""
    world = OrderWorld("key", max_held=50_000, attempts=50)
    world.produce(ROOM_FIRST - 100, keys=(B,))
    world.produce(100, keys=(A,))
    world.bolt = lambda record, _partition, _origin: "Boom" if record.key == A else ""
    world.live(5_000)
    assert len(world.held()) > 200, "the first one fails again and again, the others wait for it"
    world.produce(2 * ROOM_FIRST, keys=(B,))
    world.ran.clear()
    assert world.plan()
    world.execute()
    assert sum(ran.key == B for ran in world.ran) == 2 * ROOM_FIRST


def test_copies_for_which_a_batch_has_no_room_leave_a_part_of_it_to_other_keys() -> None:
    """O507: a batch with room for 20 had all of 40 copies, of which 20 were executed, and nothing else."""
    world = OrderWorld("key")
    world.produce(40, keys=[b"bad %d" % number for number in range(40)])
    world.bolt = fails_first(*range(40), times=2)  # type: ignore[assignment]
    world.plan()
    world.execute()
    while len(world.records("sentences.g.replay")) < 40:
        world.run(100)
    world.produce(200, keys=(A, B))
    while not world.plan(limit=20):
        world.run(100)
    executed = world.execute()
    assert [ran.origin for ran in executed if ran.failed != HELD] == [*range(15), *range(40, 45)]
    assert len(executed) == 45


def test_a_new_record_does_not_pass_a_copy_of_its_key_for_which_a_batch_has_no_room() -> None:
    """O509: new records have a part of the batch of their own, and their line waits all the same."""
    world = OrderWorld("key")
    keys = [b"%d" % number for number in range(40)]
    world.produce(40, keys=keys)
    world.bolt = fails_first(*range(40), times=2)  # type: ignore[assignment]
    world.live(300)
    world.produce(80, keys=keys)
    for _ in range(300):
        world.live(100, limit=8)
    world.rest()
    for key, first in zip(keys, range(40), strict=True):
        assert world.succeeded(key=key) == [first, 40 + first, 80 + first]


@pytest.mark.parametrize("ordering", ["key", "partition"])
@pytest.mark.parametrize("topic", ["sentences", "sentences.g.replay"])
def test_a_hole_holds_up_no_partition_that_is_read_in_order(ordering: str, topic: str) -> None:
    """O501, O502: 30,000 aborted records, and a marker behind each of twenty others."""
    world = OrderWorld(ordering, max_held=50)
    world.produce(10, keys=(A, B))
    world.bolt = fails_first(3, 4)  # type: ignore[assignment]
    world.live(300)
    place = TopicPartition(topic, 0)
    write_stretches(world.log, place, [Aborted(30_000)])
    write_stretches(world.log, TopicPartition("sentences", 0), [Each(20)])
    batches = world.batches
    world.rest()
    assert sorted(world.succeeded(key=A)) == [0, 2, 4, 6, 8]
    assert len(world.succeeded()) == 30
    assert world.batches - batches <= 12


def test_a_hole_among_the_copies_holds_up_no_other_key_while_a_record_waits() -> None:
    """O502: it counted as 1,001 copies, so the partition waited as a whole for whatever record waited."""
    world = OrderWorld("key", max_held=100)
    world.produce(1, keys=(A,))
    world.bolt = fails_first(0, times=3)  # type: ignore[assignment]
    world.live(300)
    write_stretches(world.log, TopicPartition("sentences.g.replay", 0), [Aborted(1_000)])
    world.produce(20, keys=(B,))
    world.live(200)
    assert len(world.succeeded(key=B)) == 20
    assert world.succeeded(key=A) == []
