"""Replay workers that are killed, fenced and cut off: each lost root becomes one copy or one dead letter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from acker.errors import Aborted, DataLoss, LogError, TopicError, Unreachable
from acker.identity import Root, position_at, source_of
from acker.kafka.port import Outgoing, TopicPartition, Transactions
from acker.service.passed_over import passed_over_mark
from acker.wire.codec import MAGIC
from acker.wire.verdict import Verdict
from replay.handling.resume import resume
from replay.records.due import PROGRESS_KEY, Pause, due_codec, pause_key, root_key
from replay.worker.service import ReplayService
from tests.support.memory.clients import Faults, MemoryTransactions, NoFaults
from tests.support.memory.cluster import LeaderlessLog, MemoryCluster
from tests.support.worlds.replay_world import (
    COPIES,
    INPUT_ID,
    LIMITS,
    Client,
    Crash,
    CrashAt,
    FailOnce,
    When,
    World,
    header,
    limits,
    topics,
)


@pytest.fixture
def world() -> World:
    return World()


class Outage(NoFaults):
    """No answer to an operation as long as it lasts; `late`: what was asked for is done all the same."""

    def __init__(self, operation: str, *, late: bool = False) -> None:
        """Answer, until `lasts` is set."""
        self._operation, self._late = operation, late
        self.lasts = False

    def before(self, operation: str) -> None:
        """Fail what is asked for."""
        self._answer(operation, late=False)

    def after(self, operation: str) -> None:
        """Fail the answer."""
        self._answer(operation, late=True)

    def _answer(self, operation: str, *, late: bool) -> None:
        if self.lasts and operation == self._operation and late == self._late:
            raise Unreachable("no answer")


def outcomes(world: World) -> tuple[Counter[bytes | None], Counter[bytes | None]]:
    """Count copies and dead letters by payload."""
    return Counter(copy.value for copy in world.copies()), Counter(letter.value for letter in world.letters())


def lose_some(world: World) -> None:
    """Lose five roots on both verdict partitions: three to be replayed, two to be buried."""
    tired = (("windhover.attempt", b"3"), ("windhover.origin", b"sentences/0@70"))
    world.lose(world.emit(b"failed"), world.emit(b"failed too"))
    world.lose(world.emit(b"put back", partition=1), reason=Verdict.ABANDONED, verdict_partition=1)
    world.lose(world.emit(b"dead", topic=COPIES, headers=tired))
    world.lose(world.emit(b"dead too", topic=COPIES, headers=tired, partition=1), verdict_partition=1)


def run(world: World, service: ReplayService) -> bool:
    """Run a worker until all is done; False if it crashed."""
    try:
        world.settle(service, until_ms=world.now_ms + 10_000)
    except Crash:
        return False
    return True


@pytest.mark.parametrize("kept_bytes", [64 << 20, 0], ids=["kept in memory", "read again"])
def test_a_worker_killed_at_any_call_and_started_again_writes_each_outcome_once(kept_bytes: int) -> None:
    """Rule 7: every single place where the process can end, before and after each call's effect."""
    crashes, narrow = 0, limits(waiting_bytes_max=kept_bytes)
    for n in range(10_000):
        world = World()
        lose_some(world)
        first = world.worker(CrashAt(n), limits=narrow)
        if run(world, first):
            break
        crashes += 1
        world.kill(first)
        assert run(world, world.worker(limits=narrow))
        copies, letters = outcomes(world)
        copies -= Counter([b"dead", b"dead too"])  # they were emitted there by the test
        assert copies == Counter([b"failed", b"failed too", b"put back"]), f"killed at call {n}"
        assert letters == Counter([b"dead", b"dead too"]), f"killed at call {n}"
    assert crashes > 50


def test_a_worker_killed_again_and_again_writes_each_outcome_once() -> None:
    for n in range(8, 60, 3):
        world = World()
        lose_some(world)
        for attempt in range(1_000):
            worker = world.worker(CrashAt(n + attempt))
            if run(world, worker):
                break
            world.kill(worker)
        copies, letters = outcomes(world)
        assert copies[b"failed"] == copies[b"failed too"] == copies[b"put back"] == 1
        assert letters == Counter([b"dead", b"dead too"])


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    "operation", ["init", "commit", "commit_soon", "poll", "topics", "starts", "stable_ends"]
)
def test_an_answer_that_is_lost_costs_no_copy_and_makes_none_twice(
    world: World, operation: str, late: bool
) -> None:
    lose_some(world)
    for skip in range(4):
        faults = FailOnce(operation, Unreachable("no answer"), late=late, skip=skip)
        worker = world.worker(faults)
        world.settle(worker, until_ms=world.now_ms + 10_000)
        worker.close()
    assert run(world, world.worker())
    copies, letters = outcomes(world)
    assert copies[b"failed"] == copies[b"failed too"] == copies[b"put back"] == 1
    assert letters == Counter([b"dead", b"dead too"])


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("operation", ["poll", "membership"])
def test_a_worker_goes_on_where_it_was_when_the_broker_is_back(
    world: World, operation: str, late: bool
) -> None:
    """Also where a poll took records out and did not hand them over."""
    outage = Outage(operation, late=late)
    worker = world.worker(outage, limits=limits(unreachable_ms=60_000))
    worker.step(world.now_ms)
    lose_some(world)
    outage.lasts = True
    for _ in range(6):
        assert not worker.step(world.now_ms)
        world.now_ms += 10_000
    outage.lasts = False
    assert run(world, worker)
    copies, letters = outcomes(world)
    assert copies[b"failed"] == copies[b"failed too"] == copies[b"put back"] == 1
    assert letters == Counter([b"dead", b"dead too"])
    assert [event.name for event in world.events].count("unreachable") == 1


@pytest.mark.parametrize("skip", range(8))
def test_verdicts_that_are_read_again_behind_an_outage_are_taken_over_once(world: World, skip: int) -> None:
    """The broker is silent when the mark is looked for of a record that came with them in one poll."""
    world.lose(world.emit(b"failed"))
    place = TopicPartition("_ack_verdict", 0)
    offset = world.cluster.log().ends([place])[place]
    world.garbage(MAGIC + bytes(8))
    writer = world.cluster.log().producer()
    writer.send(passed_over_mark(place, offset, "garbage", "me"))
    writer.flush(0)
    worker = world.worker(FailOnce("stable_ends", Unreachable("no answer"), skip=skip))
    worker.step(world.now_ms)
    assert run(world, worker)
    assert outcomes(world) == (Counter([b"failed"]), Counter())
    assert (worker.status().lost, worker.status().undecodable) == (1, 1)


def test_a_worker_ends_when_the_broker_is_away_for_too_long(world: World) -> None:
    outage = Outage("poll")
    worker = world.worker(outage, limits=limits(unreachable_ms=60_000))
    worker.step(world.now_ms)
    outage.lasts = True
    worker.step(world.now_ms)
    world.now_ms += 60_000
    worker.step(world.now_ms)
    world.now_ms += 1
    with pytest.raises(Unreachable, match="no answer"):
        worker.step(world.now_ms)


@pytest.mark.parametrize("skip", range(4))
def test_an_aborted_transaction_is_made_again(world: World, skip: int) -> None:
    lose_some(world)
    faults = FailOnce("commit", Aborted("the coordinator moved"), skip=skip)
    worker = world.worker(faults)
    assert run(world, worker)
    copies, letters = outcomes(world)
    assert copies[b"failed"] == copies[b"failed too"] == copies[b"put back"] == 1
    assert letters == Counter([b"dead", b"dead too"])
    assert worker.status().aborted == int(faults.happened)


def test_transactions_that_are_aborted_again_and_again_end_the_worker(world: World) -> None:
    class Always(FailOnce):
        def before(self, operation: str) -> None:
            self.happened = False
            super().before(operation)

    lose_some(world)
    worker = world.worker(Always("commit", Aborted("record too large")), limits=limits(aborts_max=3))
    with pytest.raises(LogError, match="4 transactions in a row"):
        world.settle(worker)


def test_a_partition_that_moves_is_gone_on_with_by_its_new_owner(world: World) -> None:
    first = world.worker()
    lose_some(world)
    world.settle(first)
    assert first.status().partitions == (0, 1)
    second = world.worker()
    world.settle(first, second)
    assert (first.status().partitions, second.status().partitions) == ((0,), (1,))
    world.settle(first, second, until_ms=world.now_ms + 10_000)
    copies, letters = outcomes(world)
    assert copies[b"failed"] == copies[b"failed too"] == copies[b"put back"] == 1
    assert letters == Counter([b"dead", b"dead too"])


@pytest.mark.parametrize("moment", range(2))
def test_a_worker_overtaken_in_the_middle_of_a_transaction_writes_nothing_of_it(
    world: World, moment: int
) -> None:
    """A zombie that is about to commit its first, or its second, transaction when another takes over."""
    successor = world.worker()

    def take_over() -> None:
        world.silence(zombie)
        successor.step(world.now_ms)

    zombie = world.worker(When("commit", take_over, skip=moment))
    world.lose(world.emit(b"x"))
    world.settle(zombie, until_ms=world.now_ms + 10_000)
    assert zombie.status().fenced == 1
    world.settle(zombie, successor, until_ms=world.now_ms + 10_000)
    assert [copy.value for copy in world.copies()] == [b"x"]


def test_a_fenced_worker_takes_the_partition_back_after_a_pause(world: World) -> None:
    worker = world.worker()
    world.lose(world.emit(b"x"))
    world.settle(worker)
    world.cluster.expire_transaction("windhover-replay-0")
    world.settle(worker, until_ms=world.now_ms + 1_500)
    assert worker.status().fenced == 1
    assert worker.status().partitions == (1,)
    world.settle(worker, until_ms=world.now_ms + 10_000)
    assert worker.status().partitions == (0, 1)
    world.settle(worker, until_ms=world.now_ms + 10_000)
    assert len(world.copies()) == 1


def test_a_fenced_worker_that_was_put_out_leaves_the_partition_until_the_group_has_shared_anew(
    world: World,
) -> None:
    """D1011: it owns by what it was told before, and would fence whoever was given the partition."""
    worker = world.worker()
    world.lose(world.emit(b"x"))
    world.settle(worker)
    world.cluster.expire_transaction("windhover-replay-0")
    membership = worker._membership
    assert membership is not None
    membership.is_out = True
    world.settle(worker, until_ms=world.now_ms + 60_000)
    assert worker.status().partitions == (1,), "of the other one nobody has taken any"
    membership.is_out = False
    world.settle(worker, until_ms=world.now_ms + 10_000)
    assert worker.status().partitions == (0, 1)


def test_what_waits_survives_compaction_and_restart(world: World) -> None:
    first = world.worker()
    done = world.emit(b"done")
    world.lose(done, reason=Verdict.ABANDONED)
    world.lose(world.emit(b"waits"))
    world.settle(first)
    first.close()
    world.cluster.compact("_ack_due", drop_tombstones=True)
    second = world.worker()
    world.settle(second)
    assert second.status().waiting == 1
    world.settle(second, until_ms=world.now_ms + 10_000)
    assert [copy.value for copy in world.copies()] == [b"done", b"waits"]


def test_a_group_offset_that_expired_costs_nothing(world: World) -> None:
    """A committed offset is never the only copy of a truth; `_ack_due` holds the progress too."""
    first = world.worker()
    world.lose(world.emit(b"x"), reason=Verdict.ABANDONED)
    world.settle(first)
    first.close()
    world.cluster.log().commit("windhover-replay", {TopicPartition("_ack_verdict", 0): 0})
    world.settle(world.worker(), until_ms=world.now_ms + 10_000)
    assert len(world.copies()) == 1


def test_a_large_verdict_record_is_taken_over_exactly_once_across_a_kill(world: World) -> None:
    roots = [world.emit(b"%d" % number) for number in range(10)]
    world.lose(*roots)
    first = world.worker(limits=limits(intake_max=3))
    first.step(world.now_ms)
    first.step(world.now_ms)
    assert first.status().waiting == 3
    world.kill(first)
    world.settle(world.worker(limits=limits(intake_max=4)), until_ms=world.now_ms + 10_000)
    assert [copy.value for copy in world.copies()] == [b"%d" % number for number in range(10)]


def test_what_there_is_no_room_for_in_memory_is_read_again_when_it_is_due(world: World) -> None:
    worker = world.worker(limits=limits(waiting_bytes_max=0, fire_max=7))
    world.lose(*[world.emit(b"%d" % number) for number in range(100)])
    world.settle(worker)
    assert (worker.status().waiting, worker.status().waiting_bytes) == (100, 1_600)
    world.settle(worker, until_ms=world.now_ms + 10_000)
    assert [copy.value for copy in world.copies()] == [b"%d" % number for number in range(100)]
    assert (worker.status().waiting, worker.status().waiting_bytes) == (0, 0)


def test_a_root_whose_commit_is_not_yet_marked_is_waited_for(world: World) -> None:
    """A commit is answered before its markers are written: what lies behind the stable end is not lost."""
    worker = world.worker(of=topics(attempts=1), limits=limits(waiting_bytes_max=0))
    world.lose(world.emit(b"x"))
    other = world.cluster.log().transactions("open")
    other.init(0)
    other.begin()
    other.send(Outgoing("_ack_due", 0, None, b"somebody else's"))
    world.settle(worker)
    for _ in range(10):
        worker.step(world.now_ms)
    assert (worker.status().waiting, world.letters()) == (1, [])
    other.abort(0)
    world.settle(worker)
    assert [letter.value for letter in world.letters()] == [b"x"]


def test_what_is_kept_in_memory_has_its_bytes_counted(world: World) -> None:
    worker = world.worker(limits=limits(waiting_bytes_max=2_000))
    world.lose(*[world.emit(b"%d" % number) for number in range(100)])
    world.settle(worker)
    assert 1_600 < worker.status().waiting_bytes <= 1_600 + 2_000
    world.settle(worker, until_ms=world.now_ms + 10_000)
    assert len(world.copies()) == 100
    assert worker.status().waiting_bytes == 0


def test_a_root_that_somebody_deleted_from_the_due_topic_stops_the_worker(world: World) -> None:
    """It would be lost silently."""
    worker = world.worker(limits=limits(waiting_bytes_max=0))
    world.lose(world.emit(b"x"))
    world.settle(worker)
    producer = world.cluster.log().producer()
    producer.send(Outgoing("_ack_due", 0, None, world.records("_ack_due", 0)[0].key))
    producer.flush(0)
    world.cluster.compact("_ack_due", drop_tombstones=True)
    with pytest.raises(DataLoss, match="offset 0 of _ack_due/0, which no longer holds it"):
        world.settle(worker, until_ms=world.now_ms + 10_000)


def test_a_value_that_cannot_be_read_when_it_is_due_is_told_and_holds_nothing_back(world: World) -> None:
    """A restart glances at its due time only."""
    first = world.worker()
    world.lose(world.emit(b"x"), world.emit(b"y"))
    world.settle(first)
    first.close()
    (due, *_) = world.records("_ack_due", 0)
    producer = world.cluster.log().producer()
    producer.send(Outgoing("_ack_due", 0, (due.value or b"")[:20], due.key))
    producer.flush(0)
    worker = world.worker()
    world.settle(worker, until_ms=world.now_ms + 10_000)
    assert [copy.value for copy in world.copies()] == [b"y"]
    assert worker.status().undecodable == 1


def test_garbage_in_the_due_topic_is_counted_and_harms_nothing(world: World) -> None:
    producer = world.cluster.log().producer()
    for key, value in [(b"what", b"ever"), (b"x" * 12, b"\xc3\x02nonsense"), (b"short", None)]:
        producer.send(Outgoing("_ack_due", 0, value, key))
    producer.flush(0)
    worker = world.worker()
    world.lose(world.emit(b"x"))
    world.settle(worker, until_ms=world.now_ms + 10_000)
    assert len(world.copies()) == 1
    assert worker.status().undecodable == 2


def test_closing_commits_what_was_put_off(world: World) -> None:
    worker = world.worker(limits=limits(position_interval_ms=60_000))
    world.ack(65_536, 0, 5)
    world.settle(worker)
    world.ack(65_536, 5, 9)
    world.settle(worker)
    worker.close()
    verdict = TopicPartition("_ack_verdict", 0)
    log = world.cluster.log()
    assert log.committed("windhover-replay", [verdict]) == log.ends([verdict])


def test_a_log_that_refuses_while_a_worker_leaves_does_not_hide_why_it_leaves(world: World) -> None:
    refusal = FailOnce("commit", LogError("the producer is dead"), skip=1)
    worker = world.worker(refusal, limits=limits(position_interval_ms=60_000))
    for end in (5, 9):
        world.ack(65_536, end - 4, end)
        world.settle(worker)
    worker.close()
    assert refusal.happened
    assert [event.fields["error"] for event in world.events if event.name == "not_committed"] == [
        "the producer is dead"
    ]


class CutLog(Client):
    """A client one of whose transactions a delayed commit of the one before ends, before a record of it."""

    is_cut = False

    def __init__(self, cluster: MemoryCluster, before: Callable[[Outgoing], bool], faults: Faults) -> None:
        super().__init__(cluster, faults)
        self.before = before

    def transactions(self, transactional_id: str) -> Transactions:
        log = self

        class Cut(MemoryTransactions):
            def send_all(self, records: Iterable[Outgoing]) -> None:
                for record in records:
                    if not log.is_cut and log.before(record):
                        log.is_cut = True
                        self._end(committed=True)
                        raise Aborted("the transaction is not open any more")
                    super().send(record)

        return Cut(self._broker, self._faults, transactional_id)


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("reason", [Verdict.FAILED, Verdict.ABANDONED])
def test_a_takeover_that_a_delayed_commit_cuts_gives_one_copy_of_each_root(
    world: World, is_killed: bool, reason: Verdict
) -> None:
    """What waits behind the last progress is taken over, though the progress does not say so."""
    world.lose(world.emit(b"x"), world.emit(b"y"), reason=reason)
    client = CutLog(world.cluster, lambda record: record.key == PROGRESS_KEY, NoFaults())
    worker = world.worker(client=client)
    while not client.is_cut:
        worker.step(world.now_ms)
    if is_killed:
        world.kill(worker)
        worker = world.worker()
    world.settle(worker, until_ms=world.now_ms + 10_000)
    assert [copy.value for copy in world.copies()] == [b"x", b"y"]
    assert worker.status().waiting == 0
    world.lose(world.emit(b"z"))
    world.settle(worker, until_ms=world.now_ms + 10_000)
    assert [copy.value for copy in world.copies()] == [b"x", b"y", b"z"]


def progress_records(world: World) -> int:
    """Count the records of `_ack_due` that have a progress."""
    return sum(record.key == PROGRESS_KEY for record in world.records("_ack_due"))


def test_a_takeover_that_was_cut_and_is_read_again_in_parts_gives_one_copy_of_each_root(world: World) -> None:
    """Its worker is killed behind the first part, whose progress does not pass what waits of the others."""
    world.lose(*(world.emit(value) for value in (b"x", b"y", b"z")))
    client = CutLog(world.cluster, lambda record: record.key == PROGRESS_KEY, NoFaults())
    worker = world.worker(client=client, limits=limits(waiting_max=4))  # room for one more than these
    while not progress_records(world):
        worker.step(world.now_ms)
    assert client.is_cut
    world.kill(worker)
    worker = world.worker()
    world.settle(worker, until_ms=world.now_ms + 10_000)
    assert [copy.value for copy in world.copies()] == [b"x", b"y", b"z"]
    assert worker.status().waiting == 0


def test_what_a_cut_takeover_left_and_an_owner_replayed_is_not_taken_over_again(world: World) -> None:
    """That owner dies before it reads the verdicts; compaction leaves only tombstones of what it replayed."""
    at_once = topics(waits="initial: 0s, max: 0s")
    client = CutLog(world.cluster, lambda record: False, NoFaults())
    worker = world.worker(of=at_once, client=client)
    world.lose(world.emit(b"x"))
    world.settle(worker)
    client.before = lambda record: record.key == PROGRESS_KEY
    world.lose(world.emit(b"y"), world.emit(b"z"))
    while not client.is_cut:
        worker.step(world.now_ms)
    world.kill(worker)
    worker = world.worker(of=at_once)
    worker.step(world.now_ms)
    assert [copy.value for copy in world.copies()] == [b"x", b"y", b"z"]
    world.kill(worker)
    world.cluster.compact("_ack_due")
    world.settle(world.worker(of=at_once))
    assert [copy.value for copy in world.copies()] == [b"x", b"y", b"z"]


def test_an_owner_of_a_paused_input_repeats_no_progress_before_what_stands_behind_it(world: World) -> None:
    """It proves every second that it still is the owner, and is killed before it reads the verdicts again."""
    world.send_due(pause_key(INPUT_ID), due_codec().encode(Pause(INPUT_ID, 5, "3 in a row")))
    client = CutLog(world.cluster, lambda record: False, NoFaults())
    worker = world.worker(client=client)
    worker.step(world.now_ms)
    client.before = lambda record: record.key == PROGRESS_KEY
    world.lose(world.emit(b"x"), world.emit(b"y"))
    while not client.is_cut:
        worker.step(world.now_ms)
    worker.step(world.now_ms)
    assert worker.status().paused == ("sentences",)
    world.kill(worker)
    resume(world.cluster.log(), topics(), INPUT_ID)
    worker = world.worker()
    world.settle(worker, until_ms=world.now_ms + 10_000)
    assert [copy.value for copy in world.copies()] == [b"x", b"y"]


def fire_and_cut(world: World, before: Callable[[Outgoing], bool], faults: Faults) -> ReplayService:
    """Lose two roots, and cut the transaction of their copies before one of its records."""
    world.lose(world.emit(b"x", key=b"k", headers=(("h", None),)), world.emit(b"y"))
    client = CutLog(world.cluster, before, faults)
    worker = world.worker(client=client)
    world.settle(worker)
    world.now_ms += 2_000
    while not client.is_cut:
        worker.step(world.now_ms)
    return worker


KEY_OF_Y = root_key(Root(source_of(INPUT_ID, 0), position_at(0, 1)))


def test_tombstones_stand_before_a_progress_though_no_verdict_comes(world: World) -> None:
    """An owner keeps in memory what stands behind it: that would be millions where a stream has stopped."""
    worker = fire_and_cut(world, lambda record: record.key == KEY_OF_Y, NoFaults())
    world.settle(worker)
    assert (len(world.copies()), worker.status().waiting) == (2, 0)
    assert world.records("_ack_due", 0)[-1].key == PROGRESS_KEY


@pytest.mark.parametrize("fails_again", [False, True])
@pytest.mark.parametrize(
    ("before", "committed", "replayed"),
    [
        (lambda record: record.value == b"x", [], 2),
        (lambda record: record.value == b"y", [b"x"], 2),
        (lambda record: record.value is None, [b"x", b"y"], 2),
        (lambda record: record.key == KEY_OF_Y, [b"x", b"y"], 1),
    ],
    ids=["before the copies", "between the copies", "before the tombstones", "between the tombstones"],
)
def test_a_second_transaction_that_a_delayed_commit_cuts_gives_one_copy_of_each_root(
    world: World,
    before: Callable[[Outgoing], bool],
    committed: list[bytes],
    replayed: int,
    fails_again: bool,
) -> None:
    """The worker finds the copies that it wrote, though their roots still wait."""
    again = FailOnce("commit", Aborted("an election"), skip=1 if fails_again else 99)
    worker = fire_and_cut(world, before, again)
    assert [copy.value for copy in world.copies()] == committed
    world.settle(worker)
    assert again.happened == fails_again
    assert [copy.value for copy in world.copies()] == [b"x", b"y"]
    assert (worker.status().waiting, worker.status().replayed) == (0, replayed)


@pytest.mark.parametrize("committed", [1, 2])
def test_dead_letters_of_a_transaction_that_a_delayed_commit_cuts_are_written_once(
    world: World, committed: int
) -> None:
    world.lose(world.emit(b"x"), world.emit(b"y"))
    until = (lambda record: record.value == b"y") if committed == 1 else lambda record: record.value is None
    worker = world.worker(client=CutLog(world.cluster, until, NoFaults()), of=topics(attempts=1))
    while not world.letters():
        worker.step(world.now_ms)
    assert len(world.letters()) == committed
    world.settle(worker)
    assert [letter.value for letter in world.letters()] == [b"x", b"y"]
    assert (worker.status().waiting, worker.status().dead_lettered) == (0, 2)


def test_a_worker_that_takes_another_topics_yaml_knows_of_the_copies_that_it_wrote(world: World) -> None:
    """Where a topic refuses a copy, somebody corrects the file."""
    worker = fire_and_cut(world, lambda record: record.value == b"y", NoFaults())
    worker.take_topics(topics(attempts=4))
    world.settle(worker)
    assert [copy.value for copy in world.copies()] == [b"x", b"y"]


def test_a_root_whose_copy_cannot_be_looked_for_gets_a_second_one(world: World) -> None:
    """Behind an open transaction nobody reads; a copy too many is better than a lost record."""
    other = world.cluster.log().transactions("another")
    other.init(0)
    other.begin()
    other.send(Outgoing(COPIES, 0, b"open"))
    worker = fire_and_cut(world, lambda record: record.value == b"y", NoFaults())
    world.settle(worker)
    other.commit(0)
    assert [copy.value for copy in world.copies()] == [b"open", b"x", b"x", b"y"]


class LateAbort(MemoryTransactions):
    """A request to abort comes once more, behind the n-th flush after it: it ends a later transaction.

    What is sent then to a partition that was in it is refused, what is sent to others is in a new one.
    """

    gone: frozenset[TopicPartition] = frozenset()
    left: int | None = None
    is_refused = False

    def __init__(self, behind: int, *args: Any) -> None:
        super().__init__(*args)
        self.behind = behind

    def abort(self, timeout_ms: int) -> None:
        super().abort(timeout_ms)
        self.left = self.behind

    def flush(self, timeout_ms: int) -> None:
        super().flush(timeout_ms)
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                self.gone = frozenset(self._owned().touched)
                self._broker.end_transaction(self._id, committed=False)

    def send(self, record: Outgoing, placed: Callable[[int], None] | None = None) -> None:
        if TopicPartition(record.topic, record.partition) in self.gone:
            self.is_refused = True
        else:
            super().send(record, placed)

    def commit(self, timeout_ms: int) -> None:
        if self.is_refused:
            self._end(committed=False)
            raise Aborted("the transaction is not open any more")
        super().commit(timeout_ms)


@pytest.mark.parametrize("behind", range(1, 7))
def test_a_delayed_abort_loses_no_copy(world: World, behind: int) -> None:
    """An input's topic is refused, its transaction is aborted, and the abort comes again later."""

    class LateLog(Client):
        def transactions(self, transactional_id: str) -> Transactions:
            return LateAbort(behind, self._broker, self._faults, transactional_id)

    refused = FailOnce("commit", TopicError("no such topic"), skip=1)
    worker = world.worker(client=LateLog(world.cluster, refused))
    world.lose(world.emit(b"x"))
    world.settle(worker, until_ms=world.now_ms + 100_000)
    assert refused.happened
    world.lose(world.emit(b"y"))
    world.settle(worker, until_ms=world.now_ms + 100_000)
    world.lose(world.emit(b"z"))
    world.settle(worker, until_ms=world.now_ms + 100_000)
    assert [copy.value for copy in world.copies()] == [b"x", b"y", b"z"]


class LeaderlessClient(LeaderlessLog, Client):
    """A client of a cluster in which a partition has no leader."""


@pytest.mark.parametrize("number", [0, 1])
def test_a_partition_without_a_leader_does_not_hold_up_the_others(world: World, number: int) -> None:
    """It comes up by itself when it has one."""
    client = LeaderlessClient(world.cluster, NoFaults())
    client.without("_ack_due", number)
    worker = world.worker(client=client)
    for verdict_partition, value in enumerate((b"x", b"y")):
        world.lose(world.emit(value), verdict_partition=verdict_partition)
    worker.step(world.now_ms)
    world.settle(worker, until_ms=world.now_ms + 10_000)
    assert [copy.value for copy in world.copies()] == [b"y" if number == 0 else b"x"]
    assert worker.status().partitions == (1 - number,)
    client.without("_ack_due")
    world.now_ms += LIMITS.unreachable_ms
    world.settle(worker, until_ms=world.now_ms + 10_000)
    assert {copy.value for copy in world.copies()} == {b"x", b"y"}


def test_attempts_go_on_counting_across_restarts(world: World) -> None:
    root = world.emit(b"x")
    for _ in range(2):
        worker = world.worker()
        world.lose(root)
        world.settle(worker)
        world.kill(worker)
        worker = world.worker(of=topics())
        world.settle(worker, until_ms=world.now_ms + 10_000)
        worker.close()
        root = world.emission_of(world.copies()[-1])
    assert [header(copy, "windhover.attempt") for copy in world.copies()] == ["2", "3"]
