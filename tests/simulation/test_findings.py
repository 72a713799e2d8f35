"""What the simulation has found: each finding as the shortest history that shows it, with its story.

The seeds are those of the time when a finding was made; what they draw has changed since.
"""

from __future__ import annotations

from collections.abc import Callable

from acker.config.limits import AckerLimits
from acker.identity import acker_partition, generation_of, position_at, source_of
from acker.kafka.port import Outgoing
from acker.ledger.output import AckerEvent
from acker.ledger.sessions import UNSENT_MS_MAX
from acker.service.service import AckerService
from acker.wire.codec import wire_codec
from acker.wire.events import Init, Take, Taken, TakeSource, Tick
from acker.wire.verdict import Verdict
from replay.records.due import Progress
from replay.worker.accept import Intake
from spout.group.presence import Who, sign_headers
from spout.group.running_session import SIBLING_MS
from spout.planning.journal import BEGINNING, Journal, batch_ranges
from spout.planning.session import STEP_MS_MAX, SessionClock
from spout.planning_process.planner import Planner
from tests.support.memory.clients import NoFaults
from tests.support.worlds import acker_world, planning, replay_world
from tests.support.worlds.acker_world import TIMEOUT_MS
from tests.support.worlds.planning import batch


class When(NoFaults):
    """Lets something happen just before the n-th call of an operation."""

    def __init__(self, operation: str, n: int, happens: Callable[[], None]) -> None:
        self._operation, self.left, self._happens = operation, n, happens

    def before(self, operation: str) -> None:
        if operation == self._operation:
            self.left -= 1
            if self.left == 0:
                self._happens()


def test_a_record_that_is_taken_over_in_part_is_not_begun_anew_by_the_next_worker() -> None:
    """Seed 57: CrashCostsNoReplay, a root became two copies.

    A verdict record named four lost roots; the first transaction had room for one of them, and the worker
    died. The next one wrote its progress before it had read the record again, and with it that nothing of
    the record was taken over yet: all four were taken over, the first one for the second time.
    """
    world = replay_world.World()
    roots = [world.emit(b"%d" % number) for number in range(4)]
    world.lose(*roots, reason=Verdict.ABANDONED)
    first = world.worker(limits=replay_world.limits(intake_max=1))
    while first.status().replayed < 1:
        first.step(world.now_ms)
    world.kill(first)
    world.settle(world.worker(), until_ms=world.now_ms + 60_000)

    assert sorted(copy.value for copy in world.copies() if copy.value) == [b"0", b"1", b"2", b"3"]


def test_a_worker_that_was_overtaken_before_it_reads_what_is_due_gives_the_partition_up() -> None:
    """Seeds 427479 and 527659: NothingBlocks, a replay worker ended with DataLoss.

    It was held on its way to read a root off `_ack_due`. Another one made the copy meanwhile, the topic was
    compacted, and the first one called for a person because the root was gone.
    """
    world = replay_world.World()
    world.lose(world.emit(b"x"))
    first = world.worker()
    world.settle(first)
    world.kill(first)

    def overtake() -> None:
        world.silence(late)
        world.settle(world.worker(), until_ms=world.now_ms + 60_000)
        world.cluster.compact("_ack_due", drop_tombstones=True)

    held = When("stable_ends", 0, overtake)
    late = world.worker(held)
    world.settle(late)
    world.now_ms += 30_000
    held.left = 1
    late.step(world.now_ms)

    assert (late.status().fenced, len(world.copies())) == (1, 1)


def test_progress_stands_where_it_was_until_the_record_that_was_begun_is_read() -> None:
    """The same, in the queue alone."""
    intake = Intake(Progress(17, 1))

    assert intake.next_batch(10).progress == Progress(17, 1)


def test_a_tick_adds_at_most_a_second_to_the_tick_before_it() -> None:
    """Seeds 15 and 72, without any fault: HonestDeadlines, a root timed out 1,125 ms late.

    A tick is due after half a second. A look shortly before that and a look after a long sleep each added
    their part, so that one tick could tell 1.5 s more than the one before.
    """
    clock = SessionClock(5_000, 100_000)
    clock.advance(100_000, idle=False)
    clock.record_sent()
    clock.advance(100_499, idle=False)

    assert clock.advance(160_000, idle=False) == 5_000 + STEP_MS_MAX


def test_a_session_raises_the_generation_of_acker_partitions_that_a_reset_did_not_reach() -> None:
    """Seed 799: EmittedOnce, a position was planned and never initialised.

    A reset died when it had told one of three acker partitions of the new generation. The session that
    opened then worked in that generation, as it should; but its take had named the old one, so the other
    partitions refused its inits, and what they should have kept stayed pending for ever.
    """
    world = planning.World()
    world.produce(4)
    world.produce(4, partition=1)
    before = world.ready()
    start = batch(before, BEGINNING, world)
    world.publish(BEGINNING, start)
    world.run(1_000)
    world.kill(before)
    fresh = world.planner()
    world.run(planning.STEP_MS)  # the ackers answer its question, and then the reset comes
    topic_id = world.log.topics(["sentences"])["sentences"].id
    sources = tuple(
        TakeSource(65_536 + partition, "sentences", topic_id, 1, position_at(1, 0)) for partition in (0, 1)
    )
    take = Take("g", "reset", start.epoch + 1, world.now_ms, 3, sources)
    elsewhere = (acker_partition(65_536, position_at(1, 0), 3) + 1) % 3
    producer = world.log.producer()
    dead = Who.here("windhover offsets reset", world.now_ms)._replace(pid=0)
    signed = Outgoing(
        world.topics.ack_topics.init, elsewhere, wire_codec().encode(take), headers=sign_headers(dead)
    )
    producer.send(signed)
    producer.flush(0)
    while not fresh.is_ready:
        world.run(planning.STEP_MS)
    end = batch(fresh, BEGINNING, world)
    world.publish(BEGINNING, end)
    world.run(1_000)

    assert {generation_of(run.start) for run in end.ranges} == {1}
    assert fresh.status(world.now_ms).pending == 0


def test_an_acker_that_was_overtaken_in_the_middle_of_a_restore_gives_the_partition_up() -> None:
    """Seeds 488 and 1804: NothingBlocks, an acker ended with Disagreement, another one with DataLoss.

    It had read that there is no State, and was held; the group gave the partition to another one, which
    gave verdicts and wrote State. The first one found verdicts without State and called for a person,
    though all it had lost was the partition.
    """
    world = planning.World()
    world.kill_acker()
    told: list[AckerEvent] = []

    def overtake() -> None:
        late._membership.vanish()  # type: ignore[attr-defined]
        world.start_acker()
        world.ready()

    names, settings = world.topics.ack_topics, world.topics.acker
    late = AckerService(
        world.cluster.log(When("stable_ends", 3, overtake)), names, settings.partitions,
        group=settings.group, limits=AckerLimits(poll_ms=0, pace_ms=0), report=told.append,
    )  # fmt: skip
    late.step(world.now_ms)

    assert [event.kind.value for event in told] == ["partition_fenced"]


def test_a_process_is_not_told_a_clock_from_before_the_last_emission() -> None:
    """Seed 11391: HonestDeadlines, a root timed out after 3.3 s of its session's life, by a clock of 10 s.

    A process emitted at a clock that had jumped forward while nothing was open, and was replaced before its
    first tick. Its successor was told the clock of the last tick, seconds before, and what it emitted was
    due at once when the clock of the first emission was heard of again.
    """
    world = acker_world.World()
    writer = world.session()
    writer.take(now=100)
    writer.init((0, 1), now=11_000)
    writer.take()
    world.settle()
    answers = [answer for answer in world.taken() if isinstance(answer, Taken)]

    assert [answer.clock for answer in answers] == [0, 11_000]


def test_what_a_process_with_a_slow_clock_emits_has_its_whole_timeout() -> None:
    """Seed 12823: HonestDeadlines, a root timed out 2.9 s after its emission instead of 6 s.

    Two processes of one session lived for some seconds; the slower one emitted after the faster one had
    ticked, with a deadline that the session's clock had almost reached.
    """
    world = acker_world.World()
    writer = world.session()
    writer.take(now=100)
    writer.init((0, 1), now=100)
    writer.tick(5_000)
    writer.init((1, 2), now=500)
    writer.tick(500 + TIMEOUT_MS)
    world.settle()
    early = set(world.of())
    writer.tick(5_000 + TIMEOUT_MS + UNSENT_MS_MAX)
    world.settle()

    assert (early, world.of()) == ({0}, {0: "TIMED_OUT", 1: "TIMED_OUT"})


def test_what_a_process_with_a_slow_clock_emits_outlives_what_the_other_one_has_not_told_yet() -> None:
    """Seed 529199: HonestDeadlines, a root timed out after 1,184 ms of 1,500.

    A process that had been replaced woke up and emitted. What its clock lagged behind the last tick was added
    to the timeout; but the clock of the other one stood ahead of its last tick.
    """
    world = acker_world.World()
    writer = world.session()
    writer.take(now=100)
    writer.init((0, 1), now=100)
    writer.tick(5_000)
    writer.init((1, 2), now=4_999)
    writer.tick(5_000 + UNSENT_MS_MAX + TIMEOUT_MS - 1)
    world.settle()
    early = set(world.of())
    writer.tick(5_000 + UNSENT_MS_MAX + TIMEOUT_MS)
    world.settle()

    assert (early, set(world.of())) == ({0}, {0, 1})


def test_what_a_zombie_emits_outlives_what_its_successor_has_not_told_yet() -> None:
    """O1701. Seed 7101375: HonestDeadlines, a root timed out after 2,556 ms of 3,000.

    A restart had sent the clock with which it began. The process before it, whose clock stood there too,
    emitted; and the restart's next tick had the second that had passed since its first one.
    """
    world = acker_world.World()
    process_before = world.session()
    process_before.take(now=3_735)
    restart = world.session()
    restart.take(now=9_999)
    restart.tick(3_735)
    process_before.init((0, 1), now=3_735)
    restart.tick(3_735 + UNSENT_MS_MAX)
    restart.tick(3_735 + UNSENT_MS_MAX + TIMEOUT_MS - 1)
    world.settle()
    early = set(world.of())
    restart.tick(3_735 + UNSENT_MS_MAX + TIMEOUT_MS)
    world.settle()

    assert (early, world.of()) == (set(), {0: "TIMED_OUT"})


def test_a_restart_does_not_take_the_answer_to_its_predecessor_for_its_own() -> None:
    """Seed 528092: EmittedOnce, a position stood in two batches of a query.

    A restart died before it was answered. The process before it was held, woke up, and emitted; then came
    another restart, and with it the answer to the first one, which did not know of that emission.
    """
    world = planning.World()
    world.produce(5)
    first = world.ready()
    end = batch(first, BEGINNING, world)
    world.publish(BEGINNING, end)
    world.kill_acker()
    opened: list[tuple[Planner, Journal]] = []

    def emit_and_restart() -> None:
        behind = batch(first, end, world)
        opened.append((world.planner(behind), behind))

    held = When("commit", 0, emit_and_restart)
    names, settings = world.topics.ack_topics, world.topics.acker
    world.acker = AckerService(
        world.cluster.log(held),
        names,
        settings.partitions,
        group=settings.group,
        limits=AckerLimits(poll_ms=0, pace_ms=0),
    )
    world.run(1_000)
    world.kill(first)
    world.produce(5)
    producer = world.log.producer()
    take = wire_codec().encode(Take("g", end.session, end.epoch, world.now_ms, 3, ()))
    for partition in range(3):
        producer.send(Outgoing(names.init, partition, take))
    producer.flush(0)
    assert acker_partition(source_of(1, 0), position_at(0, 5), 3) == 1
    held.left = 1  # of acker partition 0, when all takes are read
    world.run(planning.STEP_MS)
    [(last, _)] = opened
    while not last.is_ready:
        world.run(planning.STEP_MS)

    assert last.first_uninitialised_positions()[source_of(1, 0)] == 10


def test_an_init_tells_the_clock_so_that_the_first_tick_after_it_adds_at_most_a_second() -> None:
    """Seed 32496 of the profile `rough`: HonestDeadlines, a root timed out 1,387 ms late.

    Spark asked for one batch after another while the planning thread did not get its turn; each question
    looked at the clock, and nobody had been told it since it had jumped.
    """
    world = planning.World()
    world.produce(2)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    for _ in range(5):
        world.cluster.now_ms += 1_200
        batch(planner, end, world)
    planner.step((), world.now_ms)
    topic = world.topics.ack_topics.init
    events = world._events(topic)
    [emitted] = {event.now for event in events if isinstance(event, Init)}
    told = [event.now for event in events if isinstance(event, Tick)]

    assert told
    assert max(told) <= emitted + STEP_MS_MAX


def one_beside_another(world: planning.World) -> tuple[Planner, Planner, Journal]:
    """Let a process emit beside its successor, which sleeps; return both, and what they begin at."""
    world.produce(5)
    first = world.ready()
    end = batch(first, BEGINNING, world)
    world.publish(BEGINNING, end)
    world.run(1_000)
    second = world.ready(end)
    world.produce(5)
    batch(first, end, world)
    world.kill(second)  # it sleeps
    return first, second, end


def test_what_a_process_emits_beside_the_one_before_it_is_not_early_by_its_clock() -> None:
    """Seed 25086 of the profile `ordered`: HonestDeadlines, a root timed out after 0.4 s of its session.

    The process before lived on with roots open and told its clock; the one behind it slept for some seconds
    and emitted by a clock that stood behind. The third one went on from the higher clock.
    """
    world = planning.World()
    first, second, end = one_beside_another(world)
    world.run(6_000)
    world.planners.append(second)
    world.produce(5, partition=1)
    behind = batch(second, end, world)
    world.run(500)
    world.kill(first)
    world.kill(second)
    third = world.ready(behind)
    own = third.sources.keys() - {run.source for run in batch_ranges(end, behind)[:1]}
    world.run(2_500)
    early = {lost.source for verdicts in world.verdicts() for lost in verdicts.lost} & own
    world.run(8_000)
    late = {lost.source for verdicts in world.verdicts() for lost in verdicts.lost} & own

    assert (early, late) == (set(), {source_of(1, 1)})


def test_a_restart_goes_on_from_what_the_process_before_told_last() -> None:
    """The same: when the process before is gone for certain, its clock is asked for, and is ours."""
    world = planning.World()
    first, second, _ = one_beside_another(world)
    world.run(SIBLING_MS - 1_000)
    told = first.status(world.now_ms).clock
    world.kill(first)
    world.planners.append(second)
    world.run(500)
    behind = second.status(world.now_ms).clock
    world.run(1_500)
    still_behind = second.status(world.now_ms).clock
    world.run(SIBLING_MS)  # its sleep does not count: who sleeps cannot tell it from a clock that is set

    assert behind < told - 2_000
    assert still_behind < told
    assert second.status(world.now_ms).clock >= told


def test_a_record_that_completes_the_last_open_root_of_a_range_leaves_the_settled_ones_alone() -> None:
    """Seed 2001206 of the profile `rough`: OneVerdict, a root was ACKED and FAILED in one record.

    A batch that ran again failed a root that its first run had acked; the acker died in between and read the
    fails before the acks, as it should. The acks named two runs. The first one settled the last open root of
    the emitted range, whose arrays were given up with it; so the second one, the failed root, looked open.
    """
    world = acker_world.World()
    writer = world.session()
    writer.take()
    writer.init((0, 4))
    writer.fails(2)
    writer.acks(runs=[(0, 1), (2, 3)], absent=[(1, 2), (3, 4)])
    world.settle()

    assert world.of() == {0: "ACKED", 1: "ABSENT", 2: "FAILED", 3: "ABSENT"}
    assert (world.status().open_roots, world.status().counts.late) == (0, 1)


def test_what_timed_out_stays_so_when_the_last_root_of_its_range_is_acked_in_two_runs() -> None:
    """The same without a crash: a touched root lives on, and its ack comes beside late ones."""
    world = acker_world.World()
    writer = world.session()
    writer.take()
    writer.init((0, 4))
    writer.acks(touched=[0], touched_at=TIMEOUT_MS)
    world.settle()
    for now in range(0, TIMEOUT_MS + 1, 1_000):
        writer.tick(now)
    world.settle()
    writer.acks(runs=[(0, 1), (2, 4)], seq=1)
    world.settle()

    assert world.of() == {0: "ACKED", 1: "TIMED_OUT", 2: "TIMED_OUT", 3: "TIMED_OUT"}
