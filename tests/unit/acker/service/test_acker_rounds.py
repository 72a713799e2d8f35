"""The rounds of an acker process: what it does in which order, what it counts, and what it leaves behind."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from acker.config.limits import AckerLimits
from acker.errors import Aborted, Disagreement, Fenced, Unreachable
from acker.kafka.port import Outgoing, TopicPartition
from acker.kafka.standing import StandingNews
from acker.ledger.output import AckerEvent, AckerEventKind, Counts
from acker.ledger.tally import VerdictTally
from acker.service.partition import RESTORE_WRITTEN_AFTER_MS
from acker.service.partition_counts import CHECK_EVERY_MS
from acker.service.service import PAUSE_LIMITS, AckerService
from acker.service.state_notes import read_notes
from acker.service.step_reader import StepReader
from acker.wire.events import Tick
from acker.wire.lateness import TooLate, too_late_header
from tests.support.memory.clients import MemoryMembership, NoFaults
from tests.support.memory.cluster import Faults, MemoryCluster, MemoryLog
from tests.support.worlds.acker_world import CODEC, GROUP, TOPICS, World, edge

LIMITS = AckerLimits(poll_ms=40, pace_ms=0, put_off_ms=0, fenced_ms=10_000, unreachable_ms=60_000)


class NotedMembership(MemoryMembership):
    """Notes how long it is polled, and what is committed."""

    def __init__(self, *arguments: object) -> None:
        """Be a place in a group."""
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.waits_ms: list[int] = []
        self.commits: list[dict[TopicPartition, int]] = []

    def poll(self, timeout_ms: int) -> frozenset[int]:
        self.waits_ms.append(timeout_ms)
        return super().poll(timeout_ms)

    def commit_soon(self, offsets: dict[TopicPartition, int]) -> None:  # type: ignore[override]
        self.commits.append(dict(offsets))
        super().commit_soon(offsets)


class Once(NoFaults):
    """Raises at an operation, as often as `errors` has one; notes all operations."""

    def __init__(self) -> None:
        """Raise nothing yet."""
        self.errors: list[tuple[str, Exception]] = []
        self.operations: list[str] = []

    def before(self, operation: str) -> None:
        """Fail without effect."""
        self.operations.append(operation)
        if self.errors and self.errors[0][0] == operation:
            raise self.errors.pop(0)[1]


class NotedLog(MemoryLog):
    """Has noted memberships and writers."""

    def __init__(self, cluster: MemoryCluster, faults: Faults) -> None:
        """Look at a cluster."""
        super().__init__(cluster, faults)
        self.memberships: list[NotedMembership] = []
        self.pauses_ms: list[int] = []
        self.writers: list[object] = []

    def join(self, group: str, topics: list[str], *, pause_ms: int = 0) -> NotedMembership:  # type: ignore[override]
        self.pauses_ms.append(pause_ms)
        self.memberships.append(NotedMembership(self._broker, self._faults, group, tuple(topics)))
        return self.memberships[-1]

    def transactions(self, transactional_id: str):  # type: ignore[no-untyped-def]
        self.writers.append(super().transactions(transactional_id))
        return self.writers[-1]


@dataclass
class Process:
    """An acker of some partitions, whose operations are noted."""

    partitions: int = 1
    limits: AckerLimits = LIMITS
    operations: list[str] = field(default_factory=list)
    tally: VerdictTally = field(default_factory=VerdictTally)
    faults: Once = field(default_factory=Once)

    def __post_init__(self) -> None:
        self.world = World(self.partitions, self.limits)
        self.world.acker._membership.vanish()  # type: ignore[attr-defined]  # the in-memory one can
        self.start()

    def start(self) -> None:
        self.log = NotedLog(self.world.cluster, self.faults)
        self.acker = self.world.acker = AckerService(
            self.log, TOPICS, self.partitions, group="windhover-acker", limits=self.limits, tally=self.tally,
            report=self.world.events.append, name_operation=self.operations.append,
            clock_ms=lambda: self.world.now_ms,
        )  # fmt: skip

    def steps(self, count: int = 1, ms: int = 1) -> None:
        for _ in range(count):
            self.world.now_ms += ms
            self.acker.step(self.world.now_ms)

    def begin(self) -> None:
        """Own all partitions, with a session and three open roots in the first one."""
        self.writer = self.world.session()
        self.writer.take()
        self.writer.init((0, 3))
        self.world.settle()
        self.clear()

    def clear(self) -> None:
        self.operations.clear()
        self.world.events.clear()
        self.log.memberships[-1].commits.clear()
        self.log.memberships[-1].waits_ms.clear()

    def kinds(self) -> list[AckerEventKind]:
        return [event.kind for event in self.world.events]


@pytest.fixture
def process() -> Process:
    return Process()


# the order -------------------------------------------------------------------------------------------------

QUIET = ["asking the group what is ours", "fetching contributions", "partition 0", "shortening logs"]


def test_a_process_says_what_it_does_before_it_does_it(process: Process) -> None:
    """A watchdog names by it what hangs."""
    process.steps()
    assert process.operations == [
        "asking the group what is ours", "taking over partition 0",
        "restoring: looking for verdicts without State", *QUIET[1:],
    ]  # fmt: skip
    process.begin()
    process.steps()
    assert process.operations == QUIET
    process.operations.clear()
    process.writer.acks(values=[(0, edge(0))])
    process.steps()
    assert process.operations == [*QUIET[:3], "committing partition 0", QUIET[3]]
    process.operations.clear()
    process.writer.tick(5)
    process.steps()
    assert process.operations == [
        *QUIET[:3], "looking for the ends of contributions", "committing partition 0", QUIET[3],
    ]  # fmt: skip
    process.operations.clear()
    process.acker.close()
    assert process.operations == ["giving up partition 0", "leaving the group"]


def test_a_restore_says_what_it_reads(process: Process) -> None:
    process.begin()
    process.writer.acks(values=[(0, edge(0)), (1, 5)])
    process.world.settle()
    process.log.memberships[-1].vanish()
    process.start()
    process.clear()
    process.steps()
    assert process.operations[1:4] == [
        "taking over partition 0", "restoring: verdicts", "restoring: contributions",
    ]  # fmt: skip
    assert process.acker.status().counts.restores == 1


def test_several_partitions_are_committed_some_at_a_time() -> None:
    process = Process(5, AckerLimits(poll_ms=40, pace_ms=0, put_off_ms=0, commits_at_once=2))
    process.steps(5)
    process.clear()
    process.world.session().take()
    process.steps()
    committing = [text for text in process.operations if text.startswith("committing")]
    assert committing == [
        "committing partition 0, 1", "committing partition 2, 3", "committing partition 4",
    ]  # fmt: skip


def test_the_group_is_waited_for_only_while_nothing_is_owned(process: Process) -> None:
    process.steps(3)
    assert process.log.memberships[0].waits_ms == [LIMITS.poll_ms, 0, 0]
    assert process.log.pauses_ms == [PAUSE_LIMITS * LIMITS.hung_ms]
    assert process.log.pauses_ms[0] > LIMITS.hung_ms


def test_a_step_says_whether_anything_was_done(process: Process) -> None:
    process.begin()
    assert process.acker.step(100) is False
    process.writer.tick(5)
    assert process.acker.step(101) is True
    assert process.acker.step(102) is False


def test_one_partition_with_work_is_work() -> None:
    process = Process(3, AckerLimits(poll_ms=40, pace_ms=0, put_off_ms=900_000))
    process.begin()
    process.world.write(TOPICS.init, Tick(GROUP, "s1", 1, 9), 1)
    process.world.now_ms += 1
    assert process.acker.step(process.world.now_ms) is True


def test_a_process_is_quiet_where_all_partitions_are(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(2)
    process.begin()
    flags: list[bool] = []
    fetch = StepReader.fetch

    def noted(reader: StepReader, now_ms: int, *, is_quiet: bool) -> StandingNews:
        flags.append(is_quiet)
        return fetch(reader, now_ms, is_quiet=is_quiet)

    monkeypatch.setattr(StepReader, "fetch", noted)
    process.steps()
    process.writer.acks(runs=[(0, 3)])
    process.steps(2)
    assert flags == [False, False, True]


def test_an_init_alone_is_work() -> None:
    process = Process(limits=AckerLimits(poll_ms=40, pace_ms=0, put_off_ms=900_000))
    process.begin()
    process.writer.init((3, 5))
    process.world.now_ms += 1
    assert process.acker.step(process.world.now_ms) is True
    assert process.acker.step(process.world.now_ms) is False


# what is counted -------------------------------------------------------------------------------------------


def test_status_counts_what_partitions_did_that_were_given_up(process: Process) -> None:
    process.begin()
    process.world.session("s0", 0).tick(5)
    process.world.settle()
    status = process.acker.status()
    assert (status.partitions, status.assigned, status.restored) == ((0,), 1, 1)
    assert status.counts.refused == 1
    before = status.counts.transactions
    assert before > 0
    process.faults.errors = [("commit", Fenced("another"))]
    process.writer.tick(50)
    process.steps()
    assert process.kinds() == [AckerEventKind.FENCED]
    counts = process.acker.status().counts
    assert (counts.refused, counts.transactions, counts.restores) == (1, before, 1)
    assert process.acker.status().partitions == ()
    assert process.acker.status().assigned == 1


def test_status_is_empty_before_the_first_step(process: Process) -> None:
    status = process.acker.status()
    assert (status.partitions, status.assigned, status.restored, status.restored_ms) == ((), 0, 0, 0)
    assert status.counts == Counts()


@pytest.mark.parametrize(("timeout_ms", "is_never"), [(-1, True), (0, True), (1, False), (2, False)])
def test_status_counts_roots_that_never_expire(timeout_ms: int, is_never: bool, process: Process) -> None:
    process.begin()
    process.writer.init((3, 5), timeout_ms=timeout_ms)
    process.world.settle()
    status = process.acker.status()
    assert (status.open_roots, status.never_expiring) == (5, 2 if is_never else 0)


@pytest.mark.parametrize("waited_ms", [0, 1, 700])
def test_status_says_how_long_restores_took(waited_ms: int) -> None:
    """From the assignment on to the step behind the restore; of two partitions both."""
    process = Process(2)
    process.world.now_ms = 50_000
    process.steps(1, 0)
    process.steps(2, waited_ms)
    status = process.acker.status()
    assert (status.restored, status.restored_ms) == (2, 3 * waited_ms)
    process.steps(3, 1_000)
    assert process.acker.status().restored == 2


def test_verdicts_and_what_came_too_late_are_tallied(process: Process) -> None:
    process.begin()
    process.writer.acks(values=[(0, edge(0))])
    process.writer.fails(1)
    note = TooLate(GROUP, "q/s1", 7, True, 5, 6, 8, 9, (), (), ())
    value = process.writer.acks(values=[(2, 5)], seq=9)
    producer = process.world.writer_log.producer()
    producer.send(Outgoing(TOPICS.ack, 0, value, None, (too_late_header(note),)))
    producer.flush(1_000)
    process.world.settle()
    # a record that is written again is a repeat, so its note is passed over
    tally = process.acker.status().verdicts
    assert tally.too_late == {}
    [of_input] = tally.inputs.values()
    assert (sum(of_input.took_counts), sum(of_input.failures.values())) == (1, 1)
    late = CODEC.encode(replace(CODEC.decode(value), seq=10))  # type: ignore[type-var]
    producer.send(Outgoing(TOPICS.ack, 0, late, None, (too_late_header(note),)))
    producer.flush(1_000)
    process.world.settle()
    assert process.acker.status().verdicts.too_late[GROUP].rows == 8


# giving up -------------------------------------------------------------------------------------------------


def test_a_process_that_closes_leaves_nothing_open(process: Process) -> None:
    process.begin()
    process.writer.tick(5)
    process.acker.close()
    assert process.log.open_readers == set()
    assert [writer._is_closed for writer in process.log.writers] == [True]  # type: ignore[attr-defined]
    assert process.world.cluster.members("windhover-acker") == []


def test_a_process_may_close_before_its_first_step(process: Process) -> None:
    process.acker.close()
    assert process.operations == ["leaving the group"]
    assert process.log.open_readers == set()


@pytest.mark.parametrize("is_amid_step", [False, True])
def test_what_was_put_off_is_committed_at_the_end_unless_a_step_was_cut_short(is_amid_step: bool) -> None:
    """Contributions may be read and not folded then."""
    process = Process(limits=AckerLimits(poll_ms=40, pace_ms=0, put_off_ms=5_000))
    process.begin()
    process.steps(1, 10_000)
    process.clear()
    process.writer.tick(20)
    process.steps(2)
    assert not any(text.startswith("committing") for text in process.operations)
    if is_amid_step:
        process.faults.errors = [("ends", KeyboardInterrupt())]  # type: ignore[list-item]
        process.writer.acks(values=[(1, edge(1))])
        with pytest.raises(KeyboardInterrupt):
            process.steps()
    process.acker.close()
    assert any("last commit of" in text for text in process.operations) is not is_amid_step
    assert bool(process.log.memberships[-1].commits) is not is_amid_step


def test_a_partition_that_another_acker_took_is_left_alone_for_a_while(process: Process) -> None:
    """Else the two would fence each other on and on."""
    process.begin()
    process.faults.errors = [("commit", Fenced("another"))]
    process.writer.tick(50)
    process.steps()
    fenced_ms = process.world.now_ms
    for after_ms, is_owned in (
        (0, False),
        (1, False),
        (LIMITS.fenced_ms - 1, False),
        (LIMITS.fenced_ms, True),
    ):
        process.world.now_ms = fenced_ms + after_ms
        process.acker.step(process.world.now_ms)
        is_owned = process.acker.status().partitions == (0,)
        assert is_owned is (after_ms == LIMITS.fenced_ms)


def test_a_partition_that_another_acker_took_is_left_to_it_until_the_group_has_shared_anew() -> None:
    """D1011: who was put out owns by what it was told before; each would fence the other on and on."""
    process = Process(2)
    process.begin()
    process.faults.errors = [("commit", Fenced("another"))]
    process.world.write(TOPICS.init, Tick(GROUP, "s1", 1, 9), 1)
    membership = process.log.memberships[-1]
    membership.is_out = True
    process.steps()
    for _ in range(3):
        process.steps(1, 2 * LIMITS.fenced_ms)
        assert process.acker.status().partitions == (0,), "of the others nobody has taken any"
    membership.is_out = False
    process.steps()
    assert process.acker.status().partitions == (0, 1)


def test_a_clock_that_is_set_back_leaves_no_partition_alone(process: Process) -> None:
    process.begin()
    process.faults.errors = [("commit", Fenced("another"))]
    process.writer.tick(50)
    process.steps()
    process.acker.step(process.world.now_ms - 5)
    assert process.acker.status().partitions == (0,)


def test_restores_that_fail_again_and_again_end_the_process_and_one_commit_begins_anew() -> None:
    process = Process(limits=AckerLimits(poll_ms=40, pace_ms=0, put_off_ms=0, restore_attempts=2))
    process.begin()
    for number in range(4):
        # two failures, then a commit: that may go on for ever
        process.writer.tick(50 + number)
        process.faults.errors = [("commit", Aborted("no")), ("commit", Aborted("no"))]
        process.steps(8)
        assert process.faults.errors == []
    process.writer.tick(90)
    process.faults.errors = [("commit", Aborted("no"))] * 3
    with pytest.raises(Aborted):
        process.steps(12)


def test_a_partition_that_is_given_up_is_read_no_more() -> None:
    process = Process(2)
    process.begin()
    process.faults.errors = [("commit", Fenced("another"))]
    process.world.write(TOPICS.init, Tick(GROUP, "s1", 1, 9), 1)
    process.steps()
    assert process.acker.status().partitions == (0,)
    assert set(process.acker._reader.records) == {0}


def test_a_partition_that_was_fenced_while_it_came_up_is_left_alone_too(process: Process) -> None:
    process.faults.errors = [("init", Fenced("another"))]
    process.steps()
    [event] = process.world.events
    assert (event.kind, event.partition) == (AckerEventKind.FENCED, 0)
    process.steps()
    assert process.acker.status().partitions == ()
    process.steps(1, LIMITS.fenced_ms)
    assert process.acker.status().partitions == (0,)
    assert [writer._is_closed for writer in process.log.writers] == [True, False]  # type: ignore[attr-defined]


def test_a_restore_is_named_in_state(process: Process) -> None:
    process.begin()
    process.log.memberships[-1].vanish()
    process.start()
    process.steps(2, 70)
    process.steps(1, RESTORE_WRITTEN_AFTER_MS)
    record = process.world.read(TOPICS.state)[-1]
    restored = read_notes(record.headers).restored
    assert restored is not None
    assert restored.took_ms == 70


def test_a_partition_that_should_not_be_there_ends_the_process_at_once(process: Process) -> None:
    process.begin()
    for name in TOPICS.names():
        process.world.cluster.add_partitions(name, 2)
    process.log.memberships[-1].poll = lambda _timeout_ms: frozenset({0, 1})  # type: ignore[method-assign]
    with pytest.raises(Disagreement, match="has 2 partitions"):
        process.steps()


# the broker is away ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("step_ms", [LIMITS.unreachable_ms, LIMITS.unreachable_ms + 1])
def test_a_broker_may_be_away_for_a_time(step_ms: int, process: Process) -> None:
    process.begin()
    process.faults.errors = [("topics", Unreachable("away"))] * 9
    process.world.now_ms += CHECK_EVERY_MS
    process.steps()
    assert process.kinds() == [AckerEventKind.UNREACHABLE]
    assert process.world.events[0].partition == -1
    if step_ms > LIMITS.unreachable_ms:
        with pytest.raises(Unreachable):
            process.steps(1, step_ms)
    else:
        process.steps(1, step_ms)
        # it answers, and is away again: the time begins anew
        process.faults.errors = []
        process.steps()
        process.faults.errors = [("topics", Unreachable("away"))]
        process.steps(1, CHECK_EVERY_MS)
        assert process.kinds() == [AckerEventKind.UNREACHABLE] * 2


def test_partitions_that_are_added_end_the_process(process: Process) -> None:
    process.begin()
    process.world.cluster.add_partitions(TOPICS.ack, 2)
    with pytest.raises(Disagreement, match="has 2 partitions"):
        process.steps(2, CHECK_EVERY_MS)


def told(events: list[AckerEvent], kind: AckerEventKind) -> list[AckerEvent]:
    return [event for event in events if event.kind is kind]


def test_a_restored_partition_says_what_it_has_and_publishes_how_far_it_is(process: Process) -> None:
    process.steps()
    [event] = told(process.world.events, AckerEventKind.RESTORED)
    assert event.detail == "0 open roots, contributions from offset 0 on"
    # nothing was ever read: there is nothing to publish
    assert process.log.memberships[-1].commits == []
    process.begin()
    process.writer.acks(values=[(0, edge(0))])
    process.world.settle()
    process.log.memberships[-1].vanish()
    process.start()
    process.clear()
    process.steps()
    [event] = told(process.world.events, AckerEventKind.RESTORED)
    assert event.detail == "2 open roots, contributions from offset 1 on"
    [commit] = process.log.memberships[-1].commits
    assert commit[TopicPartition(TOPICS.ack, 0)] == 1
