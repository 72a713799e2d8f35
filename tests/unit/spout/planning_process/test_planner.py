"""The planning process on the in-memory log, with a real acker behind it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from acker.errors import DataLoss, Disagreement, SessionRefused, SessionSuperseded, Unreachable
from acker.identity import source_of
from acker.kafka.port import Outgoing, TopicPartition
from acker.wire.codec import wire_codec
from acker.wire.events import Lost, PositionRun, SourceRun, Verdicts, pack_positions
from acker.wire.verdict import DONE_VERDICTS, LOST_VERDICTS, Verdict
from spout.group import due
from spout.group.running_session import SIBLING_MS
from spout.group.starting import COMMITTED_BY
from spout.planning.journal import BEGINNING, Journal, SourceMark
from spout.planning.session import STEP_MS_MAX
from spout.planning_process.batches import FIRST_BATCH_CURE
from tests.support.memory.clients import Failing, NoFaults
from tests.support.worlds.planning import STEP_MS, WHO, YAML, FlushesLeft, World, batch, positions

A, B = source_of(1, 0), source_of(1, 1)
REPLAY = source_of(1, 0, replay=True)


class Looks(NoFaults):
    """Counts the requests for ends."""

    count = 0

    def before(self, operation: str) -> None:
        """Count one."""
        self.count += operation == "stable_ends"


def test_a_first_session_emits_everything_from_the_beginning_once() -> None:
    """S51: the whole way: question, take, init, acks, verdicts, commit."""
    world = World()
    world.produce(30)
    world.produce(12, partition=1)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    assert positions(BEGINNING, end) == [(A, 0, 30), (B, 0, 12)]
    assert (end.session, end.epoch) == ("s1", 1)
    assert batch(planner, end, world) is end
    assert planner.status(world.now_ms).pending == 42
    world.publish(BEGINNING, end)
    world.run(4_000)
    status = planner.status(world.now_ms)
    assert (status.pending, status.acked, status.emitted) == (0, 42, 42)
    assert (world.committed(), world.committed(partition=1)) == (30, 12)


def test_asking_again_before_spark_journalled_gives_the_same_batch() -> None:
    """`latestOffset` may be called twice with one start."""
    world = World()
    world.produce(10)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.produce(5)
    assert batch(planner, BEGINNING, world) is end
    assert positions(end, batch(planner, end, world)) == [(A, 10, 15)]


def test_nothing_is_emitted_while_as_many_are_pending_as_may_be() -> None:
    """S65, S122, P60: at the limit nothing new; one ack later as many as were settled."""
    world = World(YAML.replace("200000", "10"))
    world.produce(30)
    planner = world.ready()
    first = batch(planner, BEGINNING, world)
    assert positions(BEGINNING, first) == [(A, 0, 10)]
    assert planner.status(world.now_ms).limit_hits == 0
    assert batch(planner, first, world) is first
    assert planner.status(world.now_ms).limit_hits == 1
    world.publish(BEGINNING, first, skip=range(4, 10))
    world.run(500)
    assert positions(first, batch(planner, first, world)) == [(A, 10, 14)]
    assert planner.status(world.now_ms).limit_hits == 1


def test_a_limit_of_spark_holds_for_the_batch() -> None:
    """`maxOffsetsPerTrigger`, shared fairly."""
    world = World()
    world.produce(30)
    world.produce(30, partition=1)
    planner = world.ready()
    assert positions(BEGINNING, batch(planner, BEGINNING, world, 20)) == [(A, 0, 10), (B, 0, 10)]


def test_each_batch_is_cut_for_the_cores_that_there_are_when_it_is_planned() -> None:
    """On a cluster executors come when the query is built, and later."""
    world = World()
    world.produce(30)
    planner = world.ready()
    first = planner.plan(BEGINNING, 10, world.now_ms, 2)
    world.publish(BEGINNING, first)
    second = planner.plan(first, 10, world.now_ms, 6)
    assert (first.tasks, second.tasks) == (2, 6)


def test_a_first_batch_of_a_minute_does_not_make_those_behind_it_crawl() -> None:
    """With a timeout of 4 s and 100,000 records/s; the status tells what one took and what comes next."""
    world = World()
    world.produce(60_000)
    planner = world.ready()
    start, now_ms, sizes, told = BEGINNING, world.now_ms, [], []
    for _ in range(5):
        end = planner.plan(start, None, now_ms, 2)
        sizes.append(sum(stop - first for _, first, stop in positions(start, end)))
        now_ms += 200 + sizes[-1] // 100 if told else 60_000
        start = end
        told.append(planner.status(now_ms))
    assert sizes[:2] == [10_000, 1_000]
    assert sizes[3] >= 10_000
    assert [(each.batch_ms, each.batch_records_max) for each in told[:2]] == [(0, 10_000), (60_000, 1_000)]


def test_a_restart_goes_on_behind_what_was_journalled_and_keeps_its_session() -> None:
    """P14, S160: nothing that was settled is emitted again."""
    world = World()
    world.produce(10)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end, skip=[3])
    world.run(1_000)
    world.kill(planner)
    world.produce(5)
    again = world.ready(end)
    status = again.status(world.now_ms)
    assert (status.session, status.epoch, status.pending) == ("s1", 1, 1)
    assert positions(end, batch(again, end, world)) == [(A, 10, 15)]
    assert world.lost("ABANDONED") == 0
    world.run(3_500)
    assert world.committed() == 3


def test_an_input_that_a_query_reads_from_now_on_begins_as_its_start_says() -> None:
    """Its group has no history there, be the checkpoint fresh or not."""
    other = "  words: {id: 2, group: g, partitions: 2, start: latest}\n"
    world = World(YAML + other)
    for topic in ("sentences", "words"):
        world.produce(10, topic=topic)
    planner = world.ready(inputs=(world.topics.inputs["sentences"],))
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end)
    world.run(1_000)
    world.kill(planner)
    again = world.ready(end)
    world.produce(3, topic="words")
    assert positions(end, batch(again, end, world)) == [(source_of(2, 0), 10, 13)]


def test_a_query_that_is_untracked_from_now_on_reads_the_gaps_that_a_crash_has_left() -> None:
    world = World()
    world.produce(100)
    gap = PositionRun(10, 20)
    end = Journal("s9", 1, 5, 1, {A: SourceMark(0, 50, (gap,)), B: SourceMark(0, 0)}, ())
    planner = world.planner(end, tracked=False)
    assert positions(end, batch(planner, end, world)) == [(A, *gap), (A, 50, 100)]


def test_a_take_is_repeated_where_the_wall_clock_has_stepped_back() -> None:
    world = World()
    world.kill_acker()
    planner = world.planner()
    takes = world.takes()
    planner.step((), world.now_ms - 3_600_000)
    assert world.takes() == 2 * takes


def test_a_restart_that_shall_wake_what_is_held_begins_with_an_empty_batch() -> None:
    """Spark runs no batch of its own accord, for ticks, before the source has had one."""
    world = World()
    world.produce(10)
    end = batch(world.ready(wakes=True), BEGINNING, world)
    world.publish(BEGINNING, end)
    world.run(1_000)
    assert batch(world.ready(end), end, world) == end
    again = world.ready(end, wakes=True)
    first = batch(again, end, world)
    assert first != end
    assert positions(end, first) == []
    assert batch(again, first, world) == first
    world.produce(5)
    assert positions(first, batch(again, first, world)) == [(A, 10, 15)]


def test_what_a_restart_emits_has_a_second_more_while_the_process_before_may_live() -> None:
    """Found by the simulation: a process that gave way told its clock, and a root was 0.3 s early by it."""
    world = World()
    timeout_ms = next(iter(world.topics.inputs.values())).timeout_ms
    world.produce(10)
    end = batch(world.ready(), BEGINNING, world)
    world.produce(10)
    again = world.ready(end)
    later = batch(again, end, world)
    world.run(SIBLING_MS + 1_000)  # and the acker partitions answer
    world.produce(10)
    batch(again, later, world)
    assert [init.timeout_ms - timeout_ms for init in world.inits()] == [0, STEP_MS_MAX, 0]


def test_a_restart_whose_answers_come_far_apart_asks_for_the_clock_once_more() -> None:
    """Found by the simulation: the first answer was 6 s old, and what was emitted by its clock was early."""
    world = World()
    world.produce(10)
    first = world.ready()
    end = batch(first, BEGINNING, world)
    answers = world.answers()
    world.kill(first)
    again = world.make()
    again.open(end, world.now_ms)
    world.run(STEP_MS)  # the acker answers its question, and then dies
    world.kill_acker()
    takes = world.takes()
    again.step(again.poll(0), world.now_ms)
    again.step(answers[:1], world.now_ms)
    again.step(answers[1:], world.now_ms + STEP_MS_MAX)
    assert not again.is_ready
    assert world.takes() - takes == 2 * len(answers)
    again.step(answers, world.now_ms + STEP_MS_MAX)
    assert again.is_ready


def test_what_was_initialised_and_not_journalled_is_planned_first_and_as_it_is() -> None:
    """A crash between the Init and Spark's journal."""
    world = World()
    world.produce(10)
    planner = world.ready()
    first = batch(planner, BEGINNING, world)
    world.produce(10)
    batch(planner, first, world)
    world.kill(planner)
    world.produce(5)
    again = world.ready(first)
    end = batch(again, first, world)
    assert positions(first, end) == [(A, 10, 20), (A, 20, 25)]
    world.publish(BEGINNING, first)
    world.publish(first, end)
    world.run(1_000)
    assert again.status(world.now_ms).pending == 0
    assert again.status(world.now_ms).acked == 25


def test_an_unjournalled_root_that_timed_out_meanwhile_is_left_to_its_replay() -> None:
    """Rule 1: emitted again only through the replay topic."""
    world = World()
    world.produce(10)
    planner = world.ready()
    first = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, first)
    world.produce(10)
    batch(planner, first, world)
    world.run(6_000)
    assert world.lost("TIMED_OUT") == 10
    world.kill(planner)
    again = world.ready(first)
    assert batch(again, first, world) is first
    world.run(3_500)
    assert world.committed() == 20


def test_a_fresh_checkpoint_takes_over_and_what_was_open_is_abandoned() -> None:
    """Rule 9; P22."""
    world = World()
    world.produce(10)
    old = world.ready()
    end = batch(old, BEGINNING, world)
    world.publish(BEGINNING, end, skip=[2, 5])
    world.run(1_000)
    world.kill(old)
    world.produce(4)
    new = world.ready()
    assert (new.status(0).session, new.status(0).epoch) == ("s2", 2)
    assert positions(BEGINNING, batch(new, BEGINNING, world)) == [(A, 10, 14)]
    world.run(500)
    assert world.lost("ABANDONED") == 2
    assert world.committed() == 10


def test_a_session_that_was_taken_over_stops_and_says_by_whom() -> None:
    """A running query whose group another one took."""
    world = World()
    world.ready()
    new = world.make(who=WHO, take_over=True)
    new.open(BEGINNING, world.now_ms)
    with pytest.raises(
        SessionSuperseded, match=r"2/s2 \(words on host web-1, .*\) took.*1/s1.*take_over=True"
    ):
        world.run(2_000)


def test_a_checkpoint_of_a_lower_session_is_refused_and_told_the_way_out() -> None:
    """Rule 9: the older of two sessions."""
    world = World()
    world.produce(10)
    old = world.ready()
    end = batch(old, BEGINNING, world)
    world.kill(old)
    world.ready()
    with pytest.raises(SessionRefused, match=r"1/s1.*2/s2.*take_over"):
        world.ready(end)


def test_take_over_keeps_a_refused_checkpoint_and_draws_a_new_session() -> None:
    """The option named in the refusal."""
    world = World()
    world.produce(10)
    old = world.ready()
    end = batch(old, BEGINNING, world)
    world.kill(old)
    middle = world.ready()
    world.produce(3)
    second = batch(middle, BEGINNING, world)
    world.kill(middle)
    world.produce(2)
    again = world.ready(end, take_over=True)
    assert (again.status(0).session, again.status(0).epoch) == ("s3", 3)
    found = batch(again, end, world)
    assert positions(end, found) == [(A, 13, 15)]
    assert positions(BEGINNING, second) == [(A, 10, 13)]


def test_take_over_changes_nothing_for_a_checkpoint_that_is_not_refused() -> None:
    """The option may stay set."""
    world = World()
    world.produce(10)
    old = world.ready()
    end = batch(old, BEGINNING, world)
    world.kill(old)
    assert world.ready(end, take_over=True).status(0).session == "s1"


def test_a_root_that_nobody_acks_times_out_by_the_ticks_never_early_and_at_most_a_second_late() -> None:
    """Rule 8; S59, S60, P21."""
    world = World()
    world.produce(5)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    emitted_ms = world.now_ms
    world.publish(BEGINNING, end, skip=[4])
    while not world.lost("TIMED_OUT"):
        world.run(100)
        assert world.now_ms - emitted_ms < 6_000
        status = planner.status(world.now_ms)
        assert (status.wall, status.oldest_pending_ms) in (
            (world.now_ms, world.now_ms - emitted_ms),
            (world.now_ms, 0),  # its verdict has come
        )
    assert 4_000 <= world.now_ms - emitted_ms <= 5_000
    world.run(3_500)
    status = planner.status(world.now_ms)
    assert (status.timed_out, status.oldest_pending_ms) == (1, 0)
    assert world.committed() == 5


def test_a_spout_that_was_down_for_an_hour_times_nothing_out_that_was_not_due() -> None:
    """Rule 8: the clock stands still while the session is down."""
    world = World()
    world.produce(5)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.run(1_000)
    world.kill(planner)
    world.run(500)
    world.cluster.now_ms += 3_600_000
    world.ready(end)
    world.run(2_000)
    assert world.lost("TIMED_OUT") == 0
    world.publish(BEGINNING, end)
    world.run(4_000)
    assert world.lost("TIMED_OUT") == 0
    assert world.committed() == 5


def test_replays_are_emitted_before_new_records() -> None:
    """The replay topic is a source of the same session."""
    world = World()
    world.produce(4)
    planner = world.ready()
    first = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, first, fail=[2])
    world.run(1_000)
    assert planner.status(world.now_ms).failed == 1
    replay_topic = world.topics.input("sentences").replay_topic
    world.produce(1, topic=replay_topic)
    world.produce(3)
    second = batch(planner, first, world, 2)
    assert positions(first, second) == [(A, 4, 5), (REPLAY, 0, 1)]
    world.publish(first, second)
    world.run(4_000)
    assert world.committed(replay_topic) == 1
    assert planner.status(world.now_ms).replayed == 1


def test_nothing_beyond_an_open_transaction_is_emitted() -> None:
    """docs/design/protocol.md, section 5.1: up to the last stable offset."""
    world = World()
    world.produce(3)
    writer = world.log.transactions("t")
    writer.init(0)
    writer.begin()
    writer.send(Outgoing("sentences", 0, b"open"))
    world.produce(2)
    planner = world.ready()
    first = batch(planner, BEGINNING, world)
    assert positions(BEGINNING, first) == [(A, 0, 3)]
    writer.commit(0)
    assert positions(first, batch(planner, first, world)) == [(A, 3, 7)]


def test_records_that_left_the_log_stop_the_query_by_default() -> None:
    """docs/design/protocol.md, section 5.1: decided once, in planning."""
    world = World()
    world.produce(10)
    planner = world.ready(start="earliest")
    first = batch(planner, BEGINNING, world, 2)
    world.log.delete_before({TopicPartition("sentences", 0): 6})
    with pytest.raises(DataLoss, match=r"sentences/0.*2 to 5.*on_data_loss"):
        batch(planner, first, world)


def test_with_skip_records_that_left_the_log_are_settled_as_absent_and_counted() -> None:
    """Rule 5: they need a durable verdict as well."""
    world = World(YAML + "    on_data_loss: skip\n")
    world.produce(10)
    planner = world.ready()
    first = batch(planner, BEGINNING, world, 2)
    world.publish(BEGINNING, first)
    world.log.delete_before({TopicPartition("sentences", 0): 6})
    second = batch(planner, first, world)
    assert positions(first, second) == [(A, 6, 10)]
    assert world.told[-1] == "records_left_the_log"
    world.publish(first, second)
    world.run(4_000)
    status = planner.status(world.now_ms)
    assert (status.lost_from_log, status.absent, status.acked, status.pending) == (4, 4, 6, 0)
    assert [run for verdicts in world.verdicts() for run in verdicts.absent] == [SourceRun(A, 2, 6)]
    assert world.committed() == 10


@pytest.mark.parametrize(("start", "first"), [("committed", 4), ("earliest", 0), ("latest", 10), (0, 0)])
def test_a_group_without_history_begins_where_it_is_told(start: str | int, first: int) -> None:
    """P15, S141."""
    world = World()
    world.produce(10)
    world.log.commit("g", {TopicPartition("sentences", 0): 4})
    planner = world.ready(start=start)
    world.produce(1)
    assert positions(BEGINNING, batch(planner, BEGINNING, world)) == [(A, first, 11)]


@pytest.mark.parametrize(
    ("offset", "by", "first"), [(3, COMMITTED_BY, 3), (5, COMMITTED_BY, 5), (6, COMMITTED_BY, 0), (3, "", 0)]
)
def test_copies_that_were_settled_under_another_prefix_are_not_emitted_again(
    offset: int, by: str, first: int
) -> None:
    """The ackers know nothing of them; a commit of another program, or of another log, says nothing."""
    world = World()
    world.produce(5, topic="sentences.g.replay")
    world.log.commit("g", {TopicPartition("sentences.g.replay", 0): offset}, by)
    planner = world.ready()
    world.produce(1, topic="sentences.g.replay")
    assert positions(BEGINNING, batch(planner, BEGINNING, world)) == [
        (source_of(1, 0, replay=True), first, 6)
    ]


@pytest.mark.parametrize("moved_to", [2, 8])
def test_a_committed_offset_that_someone_moved_is_refused_with_the_way_out(moved_to: int) -> None:
    """P15, as docs/design/protocol.md, section 5.1 has it."""
    world = World()
    world.produce(10)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end)
    world.run(4_000)
    world.kill(planner)
    world.log.commit("g", {TopicPartition("sentences", 0): moved_to})
    for journal in (BEGINNING, end):
        with pytest.raises(Disagreement, match="offsets reset"):
            world.ready(journal)
        world.planners.clear()


def test_a_commit_of_another_program_from_before_the_first_session_is_not_a_move() -> None:
    """The group began there; a crash before the spout's first commit changes nothing."""
    world = World()
    world.produce(10)
    world.log.commit("g", {TopicPartition("sentences", 0): 4})
    planner = world.ready(start="earliest")
    end = batch(planner, BEGINNING, world)
    world.kill(planner)
    assert world.ready(end).is_ready


def test_a_committed_offset_that_expired_is_no_reason_to_stop() -> None:
    """Group commits expire: never the only copy of a truth."""
    world = World()
    world.produce(10)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.kill(planner)
    assert world.committed() is None
    assert positions(end, batch(world.ready(end), end, world)) == []


def test_a_topic_that_was_re_created_stops_the_query_naming_the_way_out() -> None:
    """Section 4: another topic id for the same generation."""
    world = World()
    world.produce(10)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.kill(planner)
    world.cluster.delete_topic("sentences")
    world.cluster.create_topic("sentences", 2)
    with pytest.raises(Disagreement, match=r"re-created.*offsets reset"):
        world.ready(end)


def test_without_an_acker_the_start_gives_up_after_a_minute() -> None:
    """Section 4: the take is repeated every 5 s, for 60 s; the log says soon what it waits for."""
    world = World()
    world.acker = None
    world.planner()
    world.run(11_000)
    assert world.told == ["waits_for_ackers"]
    with pytest.raises(Unreachable, match="acker run"):
        world.run(49_000)
    assert world.told == ["waits_for_ackers"]
    assert world.log.ends([TopicPartition("_ack_init", 0)])[TopicPartition("_ack_init", 0)] == 12


def test_an_acker_that_comes_late_is_enough() -> None:
    """The take is repeated."""
    world = World()
    world.acker = None
    planner = world.planner()
    world.run(20_000)
    world.start_acker()
    world.run(6_000)
    assert planner.is_ready


def test_another_number_of_acker_partitions_is_refused() -> None:
    """Section 4: every process stops when broker and topics.yaml disagree."""
    world = World()
    with pytest.raises(Disagreement, match=r"has 3 partitions, topics\.yaml says acker\.partitions: 5"):
        world.planner(partitions=5)


def test_an_untracked_query_announces_nothing_and_settles_what_it_emits() -> None:
    """S53, S79, S148, S52, S68, S144: offsets still commit."""
    world = World()
    world.acker = None
    world.produce(10)
    planner = world.ready(tracked=False)
    end = batch(planner, BEGINNING, world)
    assert positions(BEGINNING, end) == [(A, 0, 10)]
    assert end.session == ""
    assert batch(planner, end, world) is end
    world.run(3_500)
    assert (world.committed(), planner.status(world.now_ms).pending) == (10, 0)
    assert not any(world.log.ends([TopicPartition("_ack_init", p) for p in range(3)]).values())
    world.kill(planner)
    world.produce(2)
    again = world.ready(end, tracked=False)
    assert positions(end, batch(again, end, world)) == [(A, 10, 12)]


def test_tracking_begins_where_an_untracked_run_of_the_checkpoint_ended() -> None:
    """`ackers: 0` taken back."""
    world = World()
    world.produce(10)
    planner = world.ready(tracked=False)
    end = batch(planner, BEGINNING, world)
    planner.close()
    world.kill(planner)
    world.produce(2)
    tracked = world.ready(end)
    assert positions(end, batch(tracked, end, world)) == [(A, 10, 12)]


def test_a_killed_acker_costs_the_planner_nothing() -> None:
    """Rule 7; P55."""
    world = World()
    world.produce(10)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.run(500)
    world.kill_acker()
    world.publish(BEGINNING, end)
    world.run(6_000)
    world.start_acker()
    world.run(1_500)
    assert world.lost("TIMED_OUT") == 0
    assert planner.status(world.now_ms).acked == 10


def test_commits_that_fail_are_counted_and_made_up_for() -> None:
    world = World()
    world.produce(10)
    refused = Failing("commit_offsets", Unreachable("the broker is gone"))
    planner = world.ready(faults=refused)
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end)
    refused.is_on = True
    world.run(20_000)
    failures = planner.status(world.now_ms).commit_failures
    assert failures > 1
    assert not world.committed()
    refused.is_on = False
    world.run(10_000)
    assert (world.committed(), planner.status(world.now_ms).commit_failures) == (10, failures)


def test_closing_commits_what_is_settled() -> None:
    """S140, P18: deactivate commits."""
    world = World()
    world.produce(10)
    planner = world.ready()
    world.run(100)
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end, skip=[7])
    world.run(500)
    planner.close()
    assert world.committed() == 7
    assert planner.status(world.now_ms).state == "closed"


def test_a_batch_over_half_of_the_timeout_is_told() -> None:
    """docs/design/protocol.md, section 5.1: warns over half, errors over the whole."""
    world = World()
    world.produce(4)
    planner = world.ready()
    ends = [BEGINNING]
    for took_ms in (500, 2_500, 4_500):
        ends.append(batch(planner, ends[-1], world))
        world.run(took_ms)
        world.publish(*ends[-2:])
        world.produce(4)
    batch(planner, ends[-1], world)
    assert world.told == ["session_began", "batch_over_half_the_timeout", "batch_over_timeout"]


def test_a_first_batch_over_half_of_the_timeout_is_no_warning() -> None:
    """D103: all that is cold starts in it, and nothing of it has timed out."""
    world = World()
    world.produce(4)
    planner = world.ready()
    first = batch(planner, BEGINNING, world)
    world.run(2_500)
    world.publish(BEGINNING, first)
    world.produce(4)
    batch(planner, first, world)
    assert world.told == ["session_began"]


def test_a_first_batch_over_the_timeout_names_the_start_as_its_cause() -> None:
    """D104: slower bolts or a lower `max_spout_pending` have no part in it."""
    world = World()
    world.produce(4)
    planner = world.ready()
    first = batch(planner, BEGINNING, world)
    world.run(4_500)
    batch(planner, first, world)
    assert world.advice == [FIRST_BATCH_CURE]


def test_a_query_that_ends_when_all_is_done_waits_for_verdicts_and_leaves_later_records() -> None:
    """P17: `availableNow`."""
    world = World()
    world.produce(10)
    planner = world.ready(stops_at_ends=True)
    world.produce(5)
    end = batch(planner, BEGINNING, world)
    assert positions(BEGINNING, end) == [(A, 0, 10)]
    assert batch(planner, end, world) is end
    assert not planner.is_drained()
    world.publish(BEGINNING, end)
    world.run(500)
    assert planner.is_drained()


def test_a_query_that_ends_when_all_is_done_waits_for_the_replays_of_what_failed() -> None:
    """`availableNow`: nothing pending or due."""
    world = World(YAML + "    retry: {initial: 2s, jitter: 0.0}\n")
    world.start_replays()
    world.produce(10)
    planner = world.ready(stops_at_ends=True)
    first = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, first, fail=[4])
    world.run(1_000)
    assert planner.status(world.now_ms).pending == 0
    assert not planner.is_drained()
    world.run(1_800)
    assert not planner.is_drained()
    second = batch(planner, first, world)
    assert positions(first, second) == [(REPLAY, 0, 2)]  # the copy, and its transaction's marker
    world.publish(first, second, absent=[SourceRun(REPLAY, 1, 2)])
    world.run(500)
    assert planner.is_drained()
    status = planner.status(world.now_ms)
    assert (status.acked, status.failed, status.absent) == (10, 1, 1)
    assert world.committed(world.topics.input("sentences").replay_topic) == 2


@pytest.mark.parametrize("is_restart", [True, False])
def test_a_query_that_ends_when_all_is_done_waits_for_what_a_process_before_lost(is_restart: bool) -> None:
    """Its verdict stands before this process reads; that of an abandoned root comes before its `Taken`."""
    world = World(YAML + "    retry: {initial: 2s, jitter: 0.0}\n")
    world.produce(10)
    before = world.ready()
    first = batch(before, BEGINNING, world)
    world.publish(BEGINNING, first, fail=[4] if is_restart else (), skip=() if is_restart else [4])
    world.run(1_000)
    world.kill(before)
    at = first if is_restart else BEGINNING
    planner = world.ready(at, stops_at_ends=True, take_over=True)
    assert not planner.is_drained()
    assert not planner.is_drained()
    assert world.told.count("waits_for_replays") == 1
    world.start_replays()
    world.run(3_500)
    second = batch(planner, at, world)
    assert positions(at, second) == [(REPLAY, 0, 2)]
    world.publish(at, second, absent=[SourceRun(REPLAY, 1, 2)])
    world.run(500)
    assert planner.is_drained()


def test_a_query_that_ends_waits_for_no_loss_of_another_group() -> None:
    """Which may have no replay worker for now."""
    world = World(YAML + "  words: {id: 2, group: h, partitions: 1, timeout: 1s}\n")
    world.produce(3, topic="words")
    other = world.ready(inputs=(world.topics.inputs["words"],))
    batch(other, BEGINNING, world)
    world.run(3_000)
    planner = world.ready(inputs=(world.topics.inputs["sentences"],), stops_at_ends=True)
    world.produce(3, topic="words")
    assert world.lost("TIMED_OUT") == 3
    assert planner.is_drained()


def test_a_query_that_ends_reads_a_long_list_of_what_is_due_piece_by_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call reads a piece and goes on in the next one; only what is read to its end is waited for."""
    monkeypatch.setattr(due, "READ_MAX", 2)
    world = World(YAML + "    retry: {initial: 1s, jitter: 0.0}\n")
    world.start_replays()
    world.produce(10)
    planner = world.ready(stops_at_ends=True)
    first = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, first, fail=[4, 5, 6])
    world.run(3_000)
    second = batch(planner, first, world)
    world.publish(first, second, absent=[SourceRun(REPLAY, 3, 4)])
    world.run(1_000)
    looks = 1
    while not planner.is_drained():
        looks += 1
        assert looks < 20
    assert looks > 1
    assert "waits_for_replays" not in world.told


def test_a_query_that_ends_when_all_is_done_waits_for_a_copy_that_is_being_written() -> None:
    """Its tombstone may be visible before it is: each topic of a transaction has a marker of its own."""
    world = World()
    world.produce(1)
    planner = world.ready(stops_at_ends=True)
    first = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, first)
    world.run(500)
    worker = world.log.transactions("windhover-replay-0")
    worker.init(0)
    worker.begin()
    worker.send(Outgoing(world.topics.input("sentences").replay_topic, 0, b"0"))
    assert not planner.is_drained()
    worker.commit(0)
    assert not planner.is_drained()
    second = batch(planner, first, world)
    assert positions(first, second) == [(REPLAY, 0, 2)]
    world.publish(first, second, absent=[SourceRun(REPLAY, 1, 2)])
    world.run(500)
    assert planner.is_drained()


def test_a_new_partition_is_read_from_its_start_without_a_restart() -> None:
    """S135: the session takes again and names it; nothing is abandoned."""
    world = World()
    world.produce(10)
    planner = world.ready()
    first = batch(planner, BEGINNING, world)
    world.cluster.add_partitions("sentences.g.replay", 3)
    world.cluster.add_partitions("sentences", 3)
    world.run(1_000)
    world.produce(4, partition=2)
    assert batch(planner, first, world) is first
    world.run(31_000)
    second = batch(planner, first, world)
    assert positions(first, second) == [(source_of(1, 2), 0, 4)]
    world.publish(first, second)
    world.run(3_500)
    assert world.committed(partition=2) == 4
    assert world.lost("ABANDONED") == 0


def test_who_has_read_all_waits_without_a_look_at_the_ends_until_a_record_or_a_copy_comes() -> None:
    """An idle query asks for nothing, and still misses nothing."""
    world = World()
    world.start_replays()
    looks = Looks()
    planner = world.ready(faults=looks)
    end = batch(planner, BEGINNING, world)
    assert planner.wait_for_records(0)  # a batch was planned: who knows what came meanwhile
    for topic in ("sentences", "sentences.g.replay"):
        before = looks.count
        assert batch(planner, end, world) is end
        assert looks.count == before + 1
        assert not planner.wait_for_records(0)
        assert not planner.wait_for_records(0)
        assert looks.count == before + 1
        world.produce(1, topic=topic)
        assert planner.wait_for_records(0)
        start, end = end, batch(planner, end, world)
        assert len(positions(start, end)) == 1
        world.publish(start, end)
        world.run(1_000)


def test_who_has_left_records_unread_does_not_wait_for_others() -> None:
    """There was no room for them, and a verdict makes room without any record."""
    world = World(YAML.replace("200000", "10"))
    world.produce(30)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    assert batch(planner, end, world) is end
    assert planner.wait_for_records(0)


def test_who_waits_for_records_looks_again_when_there_is_a_new_partition() -> None:
    """What was read to its end are not all partitions any more."""
    world = World()
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    assert batch(planner, end, world) is end
    assert not planner.wait_for_records(0)
    world.cluster.add_partitions("sentences.g.replay", 3)
    world.cluster.add_partitions("sentences", 3)
    world.run(31_000)
    assert planner.wait_for_records(0)


def test_a_root_that_was_decided_before_it_was_planned_is_not_emitted() -> None:
    """S131: a zombie of the session initialised it behind our `Taken`, and it timed out."""
    world = World()
    world.produce(10)
    zombie = world.ready()
    first = batch(zombie, BEGINNING, world)
    world.publish(BEGINNING, first)
    world.run(500)
    planner = world.ready(first)
    world.produce(10)
    batch(zombie, first, world)
    world.run(6_000)
    assert world.lost("TIMED_OUT") == 10
    world.produce(5)
    assert positions(first, batch(planner, first, world)) == [(A, 20, 25)]
    assert planner.status(world.now_ms).unknown == 10


@pytest.mark.parametrize("durable", [0, 1])
def test_a_crash_between_the_parts_of_an_init_loses_no_record(durable: int) -> None:
    """docs/design/protocol.md, section 5.1: some blocks may be initialised and others not."""
    world = World(YAML.replace("200000", "1000000").replace("4s", "0"))
    world.produce(300_000)
    faults = FlushesLeft()
    planner = world.make(faults)
    planner.open(BEGINNING, world.now_ms)
    world.run(1_000)
    first = batch(planner, BEGINNING, world, 10)
    faults.left = durable
    with pytest.raises(Unreachable):
        batch(planner, first, world)
    world.kill(planner)
    again = world.ready(first)
    assert again.status(world.now_ms).pending == 10 + sum(
        run.end - run.start for event in world.inits()[1:] for run in event.runs
    )
    end = batch(again, first, world)
    emitted = sorted(run[1:] for run in positions(first, end))
    assert emitted[0][0] == 10
    assert emitted[-1][1] == 300_000
    assert all(left[1] == right[0] for left, right in pairwise(emitted))
    world.publish(BEGINNING, first)
    world.publish(first, end)
    world.run(1_000)
    assert again.status(world.now_ms).pending == 0
    assert world.committed() == 300_000


def verdicts_on(verdict: Verdict, run: SourceRun) -> Verdicts:
    """Return a record that gives one verdict to some roots."""
    if verdict in LOST_VERDICTS:
        packed = pack_positions(np.arange(run.start, run.end))
        lost = Lost(verdict, "g", "sentences", "", "", "", "", 0, 0, 0, run.source, packed)
        return Verdicts((), (), (lost,))
    return Verdicts(**{done.lower(): (run,) if done is verdict else () for done in DONE_VERDICTS}, lost=())


@pytest.mark.parametrize("verdict", Verdict)
def test_the_status_counts_settled_roots_by_their_verdict(verdict: Verdict) -> None:
    world = World()
    world.produce(5)
    planner = world.ready()
    batch(planner, BEGINNING, world)
    world.kill_acker()
    producer = world.log.producer()
    record = wire_codec().encode(verdicts_on(verdict, SourceRun(A, 0, 3)))
    producer.send(Outgoing(world.topics.ack_topics.verdict, 0, record))
    producer.flush(1_000)
    world.run(1_000)
    status = planner.status(world.now_ms)
    assert status.pending == 2
    assert {each: getattr(status, each.lower()) for each in Verdict} == {
        each: 3 if each is verdict else 0 for each in Verdict
    }
