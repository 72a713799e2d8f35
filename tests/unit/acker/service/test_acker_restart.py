"""Kill, fence, abort, restore: a crash costs no replay (rule 7), and what is missing is an error."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from acker.config.limits import AckerLimits
from acker.config.settings import VERDICT_RETENTION_MS
from acker.errors import Aborted, DataLoss, Disagreement, LogError, TopicError, Unreachable
from acker.identity import U64, root_edges_of_run
from acker.kafka.port import Outgoing, TopicPartition
from acker.ledger.output import AckerEventKind
from acker.service.service import AckerService
from acker.service.state import StatePart, part_key, state_codec
from acker.service.step_reader import BURST, StepReader
from acker.wire.events import Acks, pack_positions, pack_values
from tests.support.memory.clients import NoFaults
from tests.support.memory.cluster import LeaderlessLog, MemoryCluster
from tests.support.memory.cut import CuttingLog
from tests.support.worlds.acker_world import SOURCE, TIMEOUT_MS, TOPICS, World, Writer, edge

CARRY_AT_ONCE = AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0, refold_bytes=0)


class Once:
    """Lets one call of an operation go wrong."""

    def __init__(self, moment: str, operation: str, error: Exception, times: int = 1) -> None:
        self._moment, self._operation, self._error, self.times = moment, operation, error, times

    def before(self, operation: str) -> None:
        """Fail without effect."""
        self._maybe("before", operation)

    def after(self, operation: str) -> None:
        """Fail although the effect stands."""
        self._maybe("after", operation)

    def _maybe(self, moment: str, operation: str) -> None:
        if self.times and (moment, operation) == (self._moment, self._operation):
            self.times -= 1
            raise self._error


class Meanwhile:
    """Lets something else happen just before an operation, once."""

    def __init__(self, operation: str, action: Callable[[], None]) -> None:
        self._operation = operation
        self._actions = [action]

    def before(self, operation: str) -> None:
        """Act."""
        if operation == self._operation and self._actions:
            self._actions.pop()()

    def after(self, operation: str) -> None:
        """Do nothing."""


@pytest.fixture
def world() -> World:
    """An acker with one partition."""
    return World()


def begin(world: World) -> Writer:
    """Return a session that has taken its group."""
    writer = world.session()
    writer.take()
    world.settle()
    return writer


def half_done(world: World) -> Writer:
    """Leave roots in every state: acked, partly contributed, untouched, failed, touched."""
    writer = begin(world)
    writer.init((32_760, 32_780))
    writer.acks(runs=[(32_760, 32_763)], values=[(32_763, 5)], touched=[32_764], touched_at=9_000, seq=1)
    writer.acks(values=[(32_770, 6)], seq=1)
    writer.fails(32_771)
    world.settle()
    return writer


def finish(world: World, writer: Writer) -> dict[int, str]:
    """Complete what can be completed, let the rest expire."""
    writer.acks(values=[(32_763, 5 ^ edge(32_763))], seq=2)
    writer.acks(values=[(32_770, 6 ^ edge(32_770))], runs=[(32_772, 32_775)], seq=2)
    writer.tick(TIMEOUT_MS)
    world.settle()
    assert 32_764 not in world.of()
    writer.tick(TIMEOUT_MS + 9_000)
    world.settle()
    return world.of()


EXPECTED = {
    **dict.fromkeys(range(32_760, 32_780), "TIMED_OUT"),
    **dict.fromkeys([32_760, 32_761, 32_762, 32_763, 32_770, 32_772, 32_773, 32_774], "ACKED"),
    32_771: "FAILED",
}


@pytest.mark.parametrize("refold", [0, 1 << 30], ids=["carried by value", "folded again"])
def test_a_killed_acker_gives_the_verdicts_that_it_would_have_given(refold: int) -> None:
    """S35, S169, P55, P56: once each, also when it is killed again and again."""
    world = World(limits=AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0, refold_bytes=refold))
    writer = half_done(world)
    for _ in range(3):
        world.crash()
        world.settle()
    assert world.status().open_roots == 16
    assert finish(world, writer) == EXPECTED
    assert world.status().open_roots == 0


def test_a_contribution_that_was_dropped_before_its_init_stays_dropped_after_a_restart(world: World) -> None:
    """A record below the position at which a range was initialised does not count for it."""
    writer = begin(world)
    writer.init((0, 1))
    writer.acks(values=[(0, 5)], seq=1)
    writer.acks(runs=[(5, 6)], touched=[6], touched_at=99_999, seq=2)
    world.settle()
    writer.init((1, 10))
    world.settle()
    world.crash()
    writer.acks(runs=[(5, 6)], seq=3)
    writer.tick(TIMEOUT_MS)
    world.settle()
    assert (world.of()[5], world.of()[6]) == ("ACKED", "TIMED_OUT")


def test_what_came_since_a_range_was_carried_is_not_folded_into_it_again() -> None:
    """Roots carried by value are left out of what a restart reads again."""
    world = World(limits=AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0, refold_bytes=2 * 4_096))
    writer = begin(world)
    for position in range(6):
        writer.init((position, position + 1))
        writer.acks(values=[(position, 5)], seq=position)
        world.settle()
    assert 0 < world.status().counts.carried < 6
    writer.acks(values=[(0, 6), (5, 6)], seq=6)
    world.settle()
    world.crash()
    writer.acks(values=[(position, 5 ^ edge(position)) for position in range(6)], seq=7)
    world.settle()
    assert world.of() == dict.fromkeys(range(1, 5), "ACKED")
    writer.acks(values=[(0, 6), (5, 6)], seq=8)
    world.settle()
    assert world.of() == dict.fromkeys(range(6), "ACKED")
    assert world.status().open_roots == 0


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_unknown_outcome_of_a_commit_is_looked_up(world: World, moment: str) -> None:
    """S169: killed between writing and knowing."""
    world.crash(Once(moment, "commit", Unreachable("drawn")))
    assert finish(world, half_done(world)) == EXPECTED


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_unknown_outcome_of_a_commit_with_verdicts_is_looked_up(world: World, moment: str) -> None:
    """They are committed with their State, or neither is."""
    writer = half_done(world)
    world.crash(Once(moment, "commit", Unreachable("drawn")))
    assert finish(world, writer) == EXPECTED


def test_verdicts_that_are_committed_without_their_state_are_not_given_again(world: World) -> None:
    """A delayed commit of the transaction before ends this one early; State tells of no verdict at all."""
    writer = begin(world)
    writer.init((0, 5))
    world.settle()
    flushes = iter([False])

    def is_last(record: Outgoing | None) -> bool:
        return record is None and next(flushes, False)

    world.crash(log=CuttingLog(world.cluster, NoFaults(), is_last))
    writer.tick(1)
    world.settle()
    flushes = iter([True])
    writer.acks(runs=[(0, 3)], seq=1)
    world.settle()
    assert AckerEventKind.ABORTED in {event.kind for event in world.events}
    writer.acks(runs=[(3, 5)], seq=2)
    world.settle()
    assert world.of() == dict.fromkeys(range(5), "ACKED")
    assert world.status().open_roots == 0


def test_an_aborted_transaction_leads_to_a_restore_and_in_the_end_to_an_error(world: World) -> None:
    """Rule 10: a named number of times. A part of it may be committed, so it is not written again."""
    world.crash(Once("before", "commit", Aborted("drawn"), times=3))
    assert finish(world, half_done(world)) == EXPECTED
    assert AckerEventKind.ABORTED in {event.kind for event in world.events}
    world.crash(Once("before", "commit", Aborted("drawn"), times=1_000))
    world.session("s2", 2).take()
    with pytest.raises(Aborted):
        world.settle()


def test_a_fenced_owner_drops_its_partition_and_writes_nothing(world: World) -> None:
    """A zombie: the new owner has restored, the old one goes on with its step."""
    writer = half_done(world)

    def take_over() -> None:
        world.crash()
        world.settle()

    world.crash(Meanwhile("commit", take_over))
    zombie = world.acker
    writer.tick(TIMEOUT_MS - 1)
    while AckerEventKind.FENCED not in {event.kind for event in world.events}:
        zombie.step(1)
    assert zombie.status().partitions == ()
    zombie.close()
    assert finish(world, writer) == EXPECTED


class Pause:
    """Lets a process stand still before its next poll, once `meanwhile` is set; that happens then."""

    meanwhile: Callable[[], None] | None = None

    def before(self, operation: str) -> None:
        """Stand still, once."""
        if operation == "poll" and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()

    def after(self, operation: str) -> None:
        """Do nothing."""


@pytest.mark.parametrize("partitions", [1, 3])
def test_an_acker_that_stood_still_gives_up_what_its_successor_has_shortened(partitions: int) -> None:
    """D501: stopped and continued by signals, it ended with "the position is not in the log"."""
    world = World(partitions=partitions)
    writer = half_done(world)
    pause = Pause()
    world.crash(pause)
    world.settle()
    paused = world.acker

    def succeed() -> None:
        world.crash()
        writer.acks(values=[(32_763, 5 ^ edge(32_763))], seq=2)
        writer.tick(TIMEOUT_MS + 9_000)
        world.settle()
        world.now_ms += world.limits.retention_interval_ms
        world.step()

    pause.meanwhile = succeed
    for _ in range(3):
        paused.step(world.now_ms)
        world.step()
    assert set(paused.status().partitions).isdisjoint(world.acker.status().partitions)
    assert AckerEventKind.FENCED in {event.kind for event in world.events}
    paused.close()
    assert world.of()[32_763] == "ACKED"
    writer.init((40_000, 40_001), now=TIMEOUT_MS + 9_000)
    writer.acks(runs=[(40_000, 40_001)], seq=3)
    world.settle()
    assert world.of()[40_000] == "ACKED"


@pytest.mark.parametrize("topic", [TOPICS.init, TOPICS.ack, TOPICS.fail])
def test_records_that_are_deleted_before_a_living_acker_are_missed_by_name(world: World, topic: str) -> None:
    """D502: nobody has taken its place, so a restore of its own finds out what is missing."""
    writer = half_done(world)
    pause = Pause()
    world.crash(pause)
    world.settle()

    def lose() -> None:
        writer.init((40_000, 40_002))
        writer.fails(32_772, seq=5)
        writer.acks(runs=[(32_772, 32_773)], seq=5)
        where = TopicPartition(topic, 0)
        world.writer_log.delete_before({where: world.writer_log.ends([where])[where]})

    pause.meanwhile = lose
    world.step()
    world.now_ms += world.limits.fenced_ms
    with pytest.raises(DataLoss, match=topic):
        world.settle()


def test_transactions_for_inits_and_ticks_alone_are_put_off_and_a_restart_reads_them_again() -> None:
    world = World(limits=AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=1_000))
    writer = begin(world)
    committed = world.acker.status().counts.transactions
    writer.init((0, 4))
    writer.tick(5_000)
    world.settle()
    assert world.acker.status().counts.transactions == committed
    world.crash()
    world.settle()
    assert world.acker.status().open_roots == 4
    writer.tick(TIMEOUT_MS)
    world.settle()
    assert world.of()[3] == "TIMED_OUT", "a verdict waits for nothing"


def test_what_was_put_off_is_committed_in_time_and_when_the_acker_leaves() -> None:
    world = World(limits=AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=1_000))
    writer = begin(world)
    inits = TopicPartition(TOPICS.init, 0)

    def left() -> int:
        """Count the records of the first topic that a restart would read."""
        committed = world.writer_log.committed("windhover-acker", [inits])[inits]
        return world.writer_log.ends([inits])[inits] - committed

    writer.init((0, 4))
    world.settle()
    assert left() == 1
    world.now_ms += 1_000
    world.settle()
    assert left() == 0
    writer.tick(5_000)
    world.settle()
    assert left() == 1
    world.acker.close()
    assert left() == 0


class Coordinator:
    """Answers no commit of offsets as long as it is away."""

    def __init__(self) -> None:
        self.is_away = True

    def before(self, operation: str) -> None:
        if operation == "commit_soon" and self.is_away:
            raise Unreachable("the coordinator has moved")

    def after(self, operation: str) -> None:
        """Let every answer come."""


def test_verdicts_do_not_wait_for_the_groups_offsets_and_those_follow(world: World) -> None:
    """A coordinator that goes away holds nothing back; nor does a restart need what it has."""
    coordinator = Coordinator()
    world.crash(coordinator)
    assert finish(world, half_done(world)) == EXPECTED
    places = [TopicPartition(topic, 0) for topic in (TOPICS.init, TOPICS.ack, TOPICS.fail)]
    assert world.writer_log.committed("windhover-acker", places) == {}
    coordinator.is_away = False
    world.settle()
    ends = world.writer_log.ends(places)
    assert world.writer_log.committed("windhover-acker", places) == ends
    world.crash()
    world.settle()
    assert world.of() == EXPECTED


def test_a_fresh_owner_commits_the_offsets_that_its_predecessor_did_not(world: World) -> None:
    """Though it finds nothing to do: tools would show a lag that is none."""
    world.crash(Coordinator())
    assert finish(world, half_done(world)) == EXPECTED
    world.crash()
    world.settle()
    places = [TopicPartition(topic, 0) for topic in (TOPICS.init, TOPICS.ack, TOPICS.fail)]
    assert world.writer_log.committed("windhover-acker", places) == world.writer_log.ends(places)


def test_a_log_that_refuses_while_an_acker_leaves_does_not_hide_why_it_leaves() -> None:
    world = World(limits=AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=1_000))
    refusal = Once("before", "commit", LogError("the producer is dead"), times=0)
    world.crash(refusal)
    writer = begin(world)
    writer.tick(5_000)
    world.settle()
    refusal.times = 1
    world.acker.close()
    assert world.events[-1].detail == "the producer is dead"


def paced(world: World) -> Writer:
    """Ack one root after another until the acker lets contributions wait; some `BURST` it counts at once."""
    writer = begin(world)
    writer.init((0, 100))
    for position in range(BURST + 1):
        assert len(world.of()) == position
        writer.acks(runs=[(position, position + 1)], seq=position)
        world.settle()
    return writer


def test_contributions_that_trickle_in_share_a_transaction() -> None:
    """Some after a rest are counted at once; what comes behind them waits for `pace_ms`, a verdict too."""
    world = World(limits=AckerLimits(poll_ms=0, pace_ms=1_000, put_off_ms=10_000))
    writer = paced(world)
    before = world.acker.status().counts.transactions
    for position in (11, 12):
        writer.acks(runs=[(position, position + 1)], seq=position)
        world.settle()
    assert world.acker.status().counts.transactions == before
    assert len(world.of()) == BURST + 1
    world.now_ms += 1_000
    world.settle()
    assert world.acker.status().counts.transactions == before + 1
    assert world.of() == dict.fromkeys(range(BURST + 3), "ACKED")


def test_contributions_that_one_step_cannot_hold_do_not_wait() -> None:
    world = World(limits=AckerLimits(poll_ms=0, pace_ms=60_000, put_off_ms=0, step_records=1))
    writer = begin(world)
    writer.init((0, 40))
    for position in range(40):
        writer.acks(runs=[(position, position + 1)], seq=position)
    world.settle()
    assert world.of() == dict.fromkeys(range(40), "ACKED")


def test_a_fail_waits_with_the_contributions_and_wins() -> None:
    """It is applied before those that come later, as ever."""
    world = World(limits=AckerLimits(poll_ms=0, pace_ms=1_000, put_off_ms=0))
    writer = paced(world)
    writer.fails(50, seq=50)
    writer.acks(runs=[(50, 51)], seq=51)
    world.settle()
    assert 50 not in world.of()
    world.now_ms += 1_000
    world.settle()
    assert world.of()[50] == "FAILED"


def test_a_clock_that_was_set_back_lets_no_contribution_wait() -> None:
    world = World(limits=AckerLimits(poll_ms=0, pace_ms=1_000, put_off_ms=0))
    world.now_ms = 1_000_000
    writer = paced(world)
    world.now_ms = 0
    writer.acks(runs=[(50, 51)], seq=50)
    world.settle()
    assert world.of()[50] == "ACKED"


def test_a_partition_that_was_given_up_is_read_no_more_though_the_next_restore_fails() -> None:
    """Seed 41461 and on, profile `rough`: an acker ended by a KeyError.

    The group took one partition and gave another; the broker did not answer the restore of that one, so the
    readers were never told, and brought a record of the partition that was gone.
    """
    world = World(partitions=2)
    inbox = StepReader(world.cluster.log(), TOPICS, world.limits)
    inbox.assign({0: (0, 0, 0), 1: (0, 0, 0)})
    for partition in (0, 1):
        world.write_raw(TOPICS.ack, b"there", partition)
    inbox.forget(1)
    inbox.fetch(0)
    assert [record.value for record in inbox.take_ready(0).acks] == [b"there"]
    assert list(inbox.records) == [0]


def test_marks_survive_a_restart(world: World) -> None:
    """Of contributions and of fails: a repeat is known as one, and as another where its content differs."""
    writer = begin(world)
    writer.init((0, 4))
    writer.fails(0, seq=1)
    writer.acks(runs=[(1, 2)], seq=1)
    world.settle()
    world.crash()
    writer.fails(2, seq=1)
    writer.acks(runs=[(3, 4)], seq=1)
    world.settle()
    assert {position: given[0][1] for (_, position), given in world.outcomes().items()} == {
        0: "ValueError",
        1: "",
        2: "NONDETERMINISTIC",
        3: "NONDETERMINISTIC",
    }


def test_verdicts_of_a_transaction_that_was_never_committed_settle_nothing(world: World) -> None:
    writer = half_done(world)
    world.crash(Once("before", "commit", Unreachable("gone")))
    writer.acks(values=[(32_763, 5 ^ edge(32_763))], seq=2)
    world.settle()
    assert world.of()[32_763] == "ACKED"


def test_a_step_that_has_read_contributions_is_committed_at_once() -> None:
    """Otherwise one that was dropped could come after its init in a restart."""
    world = World(limits=AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=60_000))
    writer = begin(world)
    writer.init((0, 2))
    world.settle()
    before = world.status().counts.transactions
    writer.acks(values=[(0, 5)])
    world.settle()
    assert world.status().counts.transactions == before + 1


def test_a_new_owner_ends_the_old_ones_transaction_before_it_looks(world: World) -> None:
    """What the old owner commits until it is fenced is known to the new one."""
    writer = half_done(world)
    old = world.acker
    writer.acks(values=[(32_763, 5 ^ edge(32_763))], seq=2)

    world.crash(Meanwhile("init", lambda: old._step_partitions(1)))
    world.settle()
    assert world.of()[32_763] == "ACKED"
    assert world.status().counts.acked == 0
    assert finish(world, writer) == EXPECTED


def test_an_acker_without_a_broker_waits_and_in_the_end_says_so(world: World) -> None:
    """It is told once; nothing is lost meanwhile."""
    world.crash(Once("before", "poll", Unreachable("gone"), times=3))
    writer = world.session()
    writer.take()
    for _ in range(3):
        world.step()
    world.settle()
    assert len(world.taken()) == 1
    assert [event.kind for event in world.events].count(AckerEventKind.UNREACHABLE) == 1
    world.crash(Once("before", "membership", Unreachable("gone"), times=1_000))
    world.step()
    world.now_ms += world.limits.unreachable_ms + 1
    with pytest.raises(Unreachable):
        world.step()


@pytest.fixture
def leaderless() -> tuple[World, LeaderlessLog]:
    """An acker that has just started, on a cluster where two of three partitions of State have no leader."""
    world = World(partitions=3)
    log = LeaderlessLog(world.cluster, NoFaults())
    log.without(TOPICS.state, 0, 1)
    world.crash(log=log)
    return world, log


def test_a_partition_without_a_leader_does_not_hold_up_the_others(
    leaderless: tuple[World, LeaderlessLog],
) -> None:
    """It comes up by itself when it has one."""
    world, log = leaderless
    world.session().take()
    for _ in range(10):
        world.step()
    assert world.status().partitions == (2,)
    assert [len(world.taken(number)) for number in range(3)] == [0, 0, 1]
    log.without(TOPICS.state, 0)
    for _ in range(4):
        world.now_ms += world.limits.operation_ms
        world.settle()
    assert world.status().partitions == (1, 2)
    silent = [event.partition for event in world.events if event.kind is AckerEventKind.UNREACHABLE]
    assert set(silent) == {-1, 0}
    assert len(silent) < 8  # it is tried less and less often, since the others wait meanwhile
    log.without(TOPICS.state)
    world.now_ms += world.limits.unreachable_ms
    world.settle()
    assert [len(world.taken(number)) for number in range(3)] == [1, 1, 1]


def test_an_acker_of_whose_partitions_none_has_a_leader_ends(leaderless: tuple[World, LeaderlessLog]) -> None:
    world, log = leaderless
    log.without(TOPICS.state, 0, 1, 2)
    world.settle()
    world.now_ms += world.limits.unreachable_ms + 1
    with pytest.raises(Unreachable):
        world.step()


def test_a_second_acker_takes_its_share_and_gives_it_back_on_leaving() -> None:
    """P16, P22: partitions move, roots stay."""
    world = World(partitions=2)
    writer = begin(world)
    runs = [(block << 16, (block << 16) + 3) for block in range(6)]
    for run in runs:
        writer.init(run)
    world.settle()
    other = world.start()
    for _ in range(20):
        other.step(world.now_ms)
        world.step()
    assert (world.status().partitions, other.status().partitions) == ((0,), (1,))
    assert world.status().open_roots + other.status().open_roots == 18
    for seq, run in enumerate(runs):
        writer.acks(runs=[run], seq=seq)
    for _ in range(20):
        other.step(world.now_ms)
        world.step()
    other.close()
    world.settle()
    assert world.status().partitions == (0, 1)
    assert set(world.of().values()) == {"ACKED"}
    assert len(world.of()) == 18


def test_logs_are_shortened_to_what_a_restart_needs(world: World) -> None:
    """P20: deletes below the safe positions; verdicts below the replay group's commit and after 7 days."""
    limits = world.limits
    writer = half_done(world)
    log = world.writer_log
    verdict = TopicPartition(TOPICS.verdict, 0)
    log.commit("windhover-replay", {verdict: log.stable_ends([verdict])[verdict]})
    world.now_ms = VERDICT_RETENTION_MS + 10
    world.step()
    world.now_ms += limits.retention_interval_ms
    world.step()
    wheres = [TopicPartition(topic, 0) for topic in TOPICS.names()]
    starts, ends = log.starts(wheres), log.ends(wheres)
    assert starts[TopicPartition(TOPICS.init, 0)] == ends[TopicPartition(TOPICS.init, 0)]
    assert starts[TopicPartition(TOPICS.ack, 0)] == 0
    assert 0 < starts[verdict] < ends[verdict]
    world.crash()
    world.settle()
    assert world.status().open_roots == 16
    writer.acks(values=[(32_763, 5 ^ edge(32_763))], seq=2)
    world.settle()
    assert world.status().open_roots == 15


def test_no_verdict_is_deleted_before_a_replay_worker_has_read_it(world: World) -> None:
    """Without a commit of the replay group nothing of the verdict log goes."""
    half_done(world)
    world.now_ms = VERDICT_RETENTION_MS + 10
    world.step()
    world.now_ms += 2 * world.limits.retention_interval_ms
    world.step()
    verdict = TopicPartition(TOPICS.verdict, 0)
    assert world.writer_log.starts([verdict])[verdict] == 0


@pytest.mark.parametrize("topic", [TOPICS.init, TOPICS.ack, TOPICS.fail])
def test_a_log_that_begins_above_what_is_needed_is_an_error(world: World, topic: str) -> None:
    """Never a silent skip."""
    writer = half_done(world)
    world.acker.close()
    writer.tick(1)
    writer.fails(32_772, seq=5)
    writer.acks(runs=[(32_772, 32_773)], seq=5)
    where = TopicPartition(topic, 0)
    world.writer_log.delete_before({where: world.writer_log.ends([where])[where]})
    world.acker = world.start()
    with pytest.raises(DataLoss, match=topic):
        world.settle()


def test_a_first_start_on_logs_that_were_cut_is_an_error() -> None:
    """No State, and the takes are gone: nothing says what was open."""
    world = World()
    world.session().take()
    world.writer_log.delete_before({TopicPartition(TOPICS.init, 0): 1})
    with pytest.raises(DataLoss):
        world.settle()


def test_verdicts_without_state_are_an_error_but_aborted_ones_are_none(world: World) -> None:
    """Aborted records do not count."""
    writes = world.writer_log.transactions("windhover-acker-0")
    writes.init(1_000)
    writes.begin()
    writes.send(Outgoing(TOPICS.verdict, 0, b"aborted"))
    writes.abort(1_000)
    half_done(world)
    world.cluster.delete_topic(TOPICS.state)
    world.cluster.create_topic(TOPICS.state, 1, compacted=True)
    world.crash()
    with pytest.raises(Disagreement, match="no State"):
        world.settle()


def test_a_state_of_another_n_is_an_error_that_names_the_way_out(world: World) -> None:
    """Every process stops when broker, topics.yaml and State disagree."""
    begin(world)
    for name in TOPICS.names():
        records = world.read(name)
        world.cluster.delete_topic(name)
        world.cluster.create_topic(name, 2, compacted=name == TOPICS.state)
        for record in records:
            producer = world.writer_log.producer()
            producer.send(Outgoing(name, 0, record.value, record.key))
            producer.flush(1)
    world.partitions = 2
    world.crash()
    with pytest.raises(Disagreement, match=r"acker\.partitions: 1"):
        world.settle()


def test_the_brokers_partition_count_must_be_n() -> None:
    """The message says what to set, or what to begin anew."""
    cluster = MemoryCluster()
    for name in TOPICS.names():
        cluster.create_topic(name, 4)
    with pytest.raises(Disagreement, match=r"set acker\.partitions to 4"):
        AckerService(cluster.log(), TOPICS, 8, group="g")
    cluster.delete_topic(TOPICS.quarantine)
    with pytest.raises(TopicError, match="topics create"):
        AckerService(cluster.log(), TOPICS, 4, group="g")


def test_what_is_not_state_in_the_state_topic_is_an_error(world: World) -> None:
    """Nothing is guessed."""
    begin(world)
    producer = world.writer_log.producer()
    producer.send(Outgoing(TOPICS.state, 0, b"nonsense", part_key(0, 0)))
    producer.flush(1)
    world.crash()
    with pytest.raises(Disagreement, match="cannot be read as State"):
        world.settle()


def test_compaction_of_the_state_log_changes_nothing() -> None:
    """Keys are (partition, part); bins that emptied are gone."""
    world = World(limits=CARRY_AT_ONCE)
    writer = half_done(world)
    world.cluster.compact(TOPICS.state, drop_tombstones=True)
    world.crash()
    world.settle()
    assert finish(world, writer) == EXPECTED
    world.cluster.compact(TOPICS.state, drop_tombstones=True)
    assert [record.key for record in world.read(TOPICS.state)] == [part_key(0, 0)]


def test_a_large_state_spans_several_records() -> None:
    """Thousands of lanes whose names do not compress to nothing."""
    world = World()
    writer = begin(world)
    draw = np.random.default_rng(1)
    writer.init((0, 1_000), timeout_ms=0)
    for lane in range(2_400):
        writer.acks(absent=[(0, 1)], lane=f"{lane}{draw.bytes(400).hex()}/s1")
    world.settle()
    parts = [state_codec().decode(record.value) for record in world.read(TOPICS.state)]
    assert max(part.parts for part in parts if isinstance(part, StatePart)) > 1
    opened = world.status().open_roots
    world.crash()
    world.settle()
    assert world.status().open_roots == opened


def test_a_million_open_roots_are_restored_without_a_verdict(world: World) -> None:
    """Bounded: State, then the contributions from the safe position on."""
    writer = begin(world)
    writer.init((0, 1_000_000))
    values = np.random.default_rng(3).integers(1, 1 << 62, 1_000_000).astype(np.uint64)

    def send(seq: int, of: U64) -> None:
        for first in range(0, 1_000_000, 32_768):
            at = np.arange(first, min(first + 32_768, 1_000_000))
            record = Acks(
                writer.lane, seq, writer.group, "s1", 1, SOURCE, first >> 15, (),
                pack_positions(at), pack_values(of[at]), (), b"", 0,
            )  # fmt: skip
            world.write(TOPICS.ack, record)

    send(1, values)
    world.settle()
    world.crash()
    world.settle()
    assert (world.status().open_roots, world.status().counts.acked) == (1_000_000, 0)
    send(2, values ^ root_edges_of_run(SOURCE, 0, 1_000_000))
    world.settle()
    assert (world.status().open_roots, world.status().counts.acked) == (0, 1_000_000)


def test_a_partition_that_the_group_gives_to_another_acker_is_lost_there_and_restored_here() -> None:
    world = World(partitions=3)
    half_done(world)
    events = world.events
    restored = [event.partition for event in events if event.kind is AckerEventKind.RESTORED]
    assert sorted(restored) == [0, 1, 2]
    first = world.acker
    events.clear()
    second = world.start()
    for _ in range(100):
        world.now_ms += 1
        first.step(world.now_ms)
        second.step(world.now_ms)
    lost = [event.partition for event in events if event.kind is AckerEventKind.LOST]
    assert lost == [event.partition for event in events if event.kind is AckerEventKind.RESTORED]
    assert sorted((*first.status().partitions, *second.status().partitions)) == [0, 1, 2]
    assert second.status().partitions == tuple(lost)
