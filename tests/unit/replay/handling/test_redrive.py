"""Redrives: what becomes of each letter is followed, too many deaths stop one, and an audit record stays."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from acker.errors import Fenced, TopicError, Unreachable, UsageError
from acker.kafka.port import Log, Outgoing, TopicPartition, Transactions
from replay.handling.letter_handling import CHUNK_MAX, Left, Order, RateLimit
from replay.handling.outcomes import LetterOutcome, RedriveOutcomes, find_redrives
from replay.handling.redrive import (
    STALLED_MS,
    STEP_MS_MAX,
    Redrive,
    RedriveLimits,
    RedriveProgress,
    cancel_redrive,
    outcome_text,
)
from replay.records.letters import Filter, LetterAction, parse_letter
from replay.records.redrives import AUDIT, REDRIVE, RedriveEnd, parse_audit
from tests.support.memory.clients import MemoryTransactions, NoFaults
from tests.support.memory.cluster import MemoryLog
from tests.support.worlds.replay_world import COPIES, LETTERS, World, topics

ONE_LIFE = topics(attempts=1)
INPUT = ONE_LIFE.input("sentences")
LOST = LetterOutcome.DIED
STEPS_MAX = 3_000


@pytest.fixture
def world() -> World:
    """Return a world with twenty dead letters in two partitions."""
    made = World()
    worker = made.worker(of=ONE_LIFE)
    for partition in range(2):
        made.lose(*(made.emit(b"%d" % n, partition=partition) for n in range(10)))
    made.settle(worker)
    worker.close()
    return made


def redrive(
    world: World, name: str = "r1", *, rate: float | None = None, chunk: int = CHUNK_MAX,
    limits: RedriveLimits = RedriveLimits(), which: Filter = Filter(),  # noqa: B008  # frozen
    action: LetterAction = LetterAction.REPLAYED, log: Log | None = None,
) -> Redrive:  # fmt: skip
    order = Order(action, which, "kim", "fixed in 1.3", name)
    pace = RateLimit(rate, world.now_ms, chunk)
    return Redrive(log or world.cluster.log(), ONE_LIFE, [(INPUT, which)], order, pace, limits)


def drive(world: World, one: Redrive, between: Callable[[], object] = lambda: None) -> RedriveProgress:
    """Step a redrive to its end; something may happen between two steps."""
    for _ in range(STEPS_MAX):
        if one.is_done:
            one.close()
            return one.progress
        world.now_ms += max(1, one.step(world.now_ms))
        between()
    raise AssertionError(f"it does not end: {one.progress}")


class Query:
    """Acks the copies of a world once, in the order of the log, but those that it fails."""

    def __init__(self, world: World, fails: Callable[[bytes | None], bool] = lambda _: False) -> None:
        self._world, self._fails = world, fails
        self._seen: set[tuple[int, int]] = set()
        self._worker = world.worker(of=ONE_LIFE)

    def __call__(self) -> None:
        for copy in self._world.copies():
            place = copy.partition, copy.offset
            if place in self._seen:
                continue
            self._seen.add(place)
            root = self._world.emission_of(copy)
            if self._fails(copy.value):
                self._world.lose(root)
            else:
                self._world.ack(root.source, copy.offset, copy.offset + 1)
        self._world.settle(self._worker)


def outcomes(world: World, name: str = "r1") -> dict[str, LetterOutcome]:
    log = world.cluster.log()
    found = RedriveOutcomes(
        log, ONE_LIFE, INPUT, [each.begun for each in find_redrives(log, INPUT, wait_ms=100)]
    )
    found.read()
    assert found.is_whole
    return dict(found.outcome_by_letter(name))


def test_the_outcome_of_each_letter_is_known_and_summed_up(world: World) -> None:
    query = Query(world, lambda value: value in (b"3", b"4"))
    progress = drive(world, redrive(world, limits=RedriveLimits(wait_ms=60_000)), query)
    assert (progress.letter_count, progress.handled_count, progress.end) == (20, 20, RedriveEnd.DONE)
    assert outcome_text(progress.outcomes) == "16 acked, 4 died again"
    found = outcomes(world)
    assert len(found) == 20
    assert sorted(place for place, outcome in found.items() if outcome is LOST) == [
        f"{LETTERS}/{partition}@{offset}" for partition in range(2) for offset in (3, 4)
    ]


def test_a_letter_that_lives_several_attempts_has_the_outcome_of_the_last(world: World) -> None:
    """The worker's copies of a redrive's copy belong to the letter."""
    drive(world, redrive(world, which=Filter(places=frozenset(["sentences/0@0", "sentences/0@1"]))))
    thrice = topics(attempts=3, waits="initial: 0s")
    worker = world.worker(of=thrice)
    first, second = world.copies()
    world.lose(world.emission_of(first))
    world.settle(worker)
    world.lose(world.emission_of(world.copies()[-1]))
    world.settle(worker)
    assert set(outcomes(world).values()) == {LetterOutcome.OPEN}
    last = world.copies()[-1]
    assert last.offset not in (first.offset, second.offset)
    world.ack(world.emission_of(last).source, last.offset, last.offset + 1)
    assert list(outcomes(world).values()) == [LetterOutcome.ACKED, LetterOutcome.OPEN]


def test_what_died_again_in_a_partition_that_the_topic_got_later_is_no_open_letter() -> None:
    """A later redrive began behind it, and each is read from where it began itself."""
    world = World()
    world.cluster.delete_topic(LETTERS)
    world.cluster.create_topic(LETTERS, 1)
    worker = world.worker(of=ONE_LIFE)
    world.lose(world.emit(b"x", partition=1))
    world.settle(worker)
    drive(world, redrive(world))
    world.cluster.add_partitions(LETTERS, 2)
    (copy,) = world.copies()
    world.lose(world.emission_of(copy))
    world.settle(worker)
    drive(world, redrive(world, "r2"))
    assert outcomes(world) == {f"{LETTERS}/0@0": LOST}
    assert list(outcomes(world, "r2").values()) == [LetterOutcome.OPEN]


def test_a_redrive_whose_verdicts_are_gone_takes_nothing_from_a_later_one(world: World) -> None:
    drive(world, redrive(world, which=Filter(places=frozenset(["sentences/0@0"]))))
    (copy,) = world.copies()
    world.ack(world.emission_of(copy).source, copy.offset, copy.offset + 1)
    log = world.cluster.log()
    verdicts = [TopicPartition(ONE_LIFE.ack_topics.verdict, number) for number in range(2)]
    log.delete_before(log.ends(verdicts))
    drive(world, redrive(world, "r2", which=Filter(places=frozenset(["sentences/0@1"]))))
    assert set(outcomes(world).values()) == {LetterOutcome.UNKNOWN}
    assert set(outcomes(world, "r2").values()) == {LetterOutcome.OPEN}


def test_too_many_that_die_again_stop_it_and_the_others_stay_letters(world: World) -> None:
    limits = RedriveLimits(at_once=4, died_max=3)
    progress = drive(world, redrive(world, limits=limits), Query(world, lambda _: True))
    assert progress.end is RedriveEnd.DIED_AGAIN
    assert 3 <= progress.outcomes[LOST] <= progress.handled_count <= 8
    (record,) = find_redrives(world.cluster.log(), INPUT, wait_ms=100)
    assert record.state == "DIED_AGAIN"
    assert record.ended is not None
    assert record.ended.died == progress.outcomes[LOST]


def test_below_the_limit_all_are_handled(world: World) -> None:
    limits = RedriveLimits(at_once=4, died_max=3)
    progress = drive(world, redrive(world, limits=limits), Query(world, lambda value: value == b"3"))
    assert (progress.handled_count, progress.end) == (20, RedriveEnd.DONE)


def test_no_more_letters_are_open_than_may_be_and_without_a_query_it_stops(world: World) -> None:
    began_ms = world.now_ms
    progress = drive(world, redrive(world, limits=RedriveLimits(at_once=6)))
    assert (progress.handled_count, progress.end) == (6, RedriveEnd.STALLED)
    assert STALLED_MS <= world.now_ms - began_ms <= STALLED_MS + 2 * STEP_MS_MAX


def test_a_cancelled_one_ends_between_two_transactions(world: World) -> None:
    one = redrive(world, chunk=3)
    one.step(world.now_ms)
    one.step(world.now_ms)
    done = one.progress.handled_count
    assert 0 < done < 20
    one.cancel()
    progress = drive(world, one)
    assert (progress.handled_count, progress.end) == (done, RedriveEnd.CANCELLED)
    assert drive(world, redrive(world, "r2")).handled_count == 20 - done


def test_one_that_runs_elsewhere_is_cancelled_and_fenced(world: World) -> None:
    one = redrive(world, chunk=3)
    one.step(world.now_ms)
    log = world.cluster.log()
    with pytest.raises(UsageError, match="there is none"):
        cancel_redrive(log, ONE_LIFE, INPUT, "nope", "lee", world.now_ms)
    cancel_redrive(log, ONE_LIFE, INPUT, "r1", "lee", world.now_ms)
    with pytest.raises(Fenced):
        one.step(world.now_ms)
    (record,) = find_redrives(log, INPUT, wait_ms=100)
    assert record.ended is not None
    assert (record.state, record.ended.by) == ("CANCELLED", "lee")
    with pytest.raises(UsageError, match="it is CANCELLED"):
        cancel_redrive(log, ONE_LIFE, INPUT, "r1", "lee", world.now_ms)


def test_the_audit_record_says_who_why_which_and_how_many(world: World) -> None:
    which = Filter(error="ValueError", until_ms=world.now_ms + 1)
    drive(world, redrive(world, which=which), Query(world))
    (record,) = find_redrives(world.cluster.log(), INPUT, wait_ms=100)
    begun = record.begun
    assert (begun.by, begun.why, begun.letters, begun.action) == ("kim", "fixed in 1.3", 20, "REPLAYED")
    assert begun.which == "error ValueError; until 1970-01-01T00:16:40.001000Z"
    assert record.ended is not None
    assert (record.ended.end, record.ended.handled) == ("DONE", 20)
    assert record.ended.at_ms > begun.at_ms


def test_nothing_is_written_where_no_letter_is_meant(world: World) -> None:
    before = len(world.letters())
    assert drive(world, redrive(world, which=Filter(error="KeyError"))).handled_count == 0
    assert len(world.letters()) == before


def test_one_that_was_killed_is_interrupted_by_its_successor(world: World) -> None:
    killed = redrive(world, chunk=3)
    for _ in range(2):
        killed.step(world.now_ms)
    assert [each.state for each in find_redrives(world.cluster.log(), INPUT, wait_ms=100)] == ["NOT ENDED"]
    drive(world, redrive(world, "r2"))
    states = [each.state for each in find_redrives(world.cluster.log(), INPUT, wait_ms=100)]
    assert states == ["INTERRUPTED", "DONE"]
    assert len(outcomes(world, "r1")) + len(outcomes(world, "r2")) == 20


def test_what_left_the_log_is_unknown_and_never_open(world: World) -> None:
    drive(world, redrive(world))
    assert set(outcomes(world).values()) == {LetterOutcome.OPEN}
    world.cluster.log().delete_before({TopicPartition(COPIES, 0): world.copies(0)[-1].offset + 1})
    assert set(outcomes(world).values()) == {LetterOutcome.UNKNOWN}


def test_letters_that_were_dropped_have_an_audit_record_and_no_outcome(world: World) -> None:
    progress = drive(world, redrive(world, action=LetterAction.DROPPED))
    assert (progress.handled_count, progress.outcomes.total()) == (20, 0)
    (record,) = find_redrives(world.cluster.log(), INPUT, wait_ms=100)
    assert (record.begun.action, record.state) == ("DROPPED", "DONE")
    assert outcomes(world) == {}


def test_an_audit_record_that_somebody_else_wrote_is_passed_over(world: World) -> None:
    producer = world.cluster.log().producer()
    for text in (b"", b"[]", b'{"end": 1}', b'{"redrive": "x"}', b"\xff"):
        producer.send(Outgoing(LETTERS, 0, None, headers=((REDRIVE, b"x"), (AUDIT, text))))
    producer.flush(0)
    assert find_redrives(world.cluster.log(), INPUT, wait_ms=100) == []
    assert all(parse_audit(record) is None for record in world.letters())
    assert sum(parse_letter(record) is not None for record in world.letters()) == 20


def test_a_clock_that_is_set_back_holds_no_redrive_up(world: World) -> None:
    """Before, it handled nothing, and read of no letter what became of it, until that time came again."""
    query, start_ms = Query(world), world.now_ms
    back_ms = [3_600_000]

    def between() -> None:
        query()
        if world.now_ms > start_ms + 1_500 and back_ms:
            world.now_ms -= back_ms.pop()

    limits = RedriveLimits(at_once=5, wait_ms=60_000)
    progress = drive(world, redrive(world, rate=5, limits=limits), between)
    assert (progress.handled_count, progress.end, progress.outcomes[LetterOutcome.ACKED]) == (
        20,
        RedriveEnd.DONE,
        20,
    )
    assert not back_ms


class Torn(MemoryTransactions):
    """A transaction that ends before the copies that it did not flush have reached their broker."""

    late: tuple[Outgoing, ...] = ()

    def send_all(self, records: Iterable[Outgoing]) -> None:
        """Append records; copies are late."""
        listed = tuple(records)
        self.late += tuple(record for record in listed if record.topic == COPIES)
        super().send_all(record for record in listed if record.topic != COPIES)

    def flush(self, timeout_ms: int) -> None:
        """Append what is late."""
        super().send_all(self.late)

    def commit(self, timeout_ms: int) -> None:
        """Commit, as a delayed request to commit the transaction before does; nobody learns it."""
        super().commit(timeout_ms)
        if self.late:
            raise Unreachable("drawn")


class TornLog(MemoryLog):
    """A log whose transactions with copies are torn."""

    def transactions(self, transactional_id: str) -> Transactions:
        """Make an owner."""
        return Torn(self._broker, self._faults, transactional_id)


def test_no_letter_is_marked_whose_copy_a_transaction_that_ended_too_early_did_not_write(
    world: World,
) -> None:
    """The letter would count as replayed, and nobody would see it again."""
    with pytest.raises(Unreachable):
        drive(world, redrive(world, log=TornLog(world.cluster, NoFaults())))
    progress = drive(world, redrive(world, "r2"), between=Query(world))
    assert progress.handled_count == 0, "all have their marks"
    assert len(world.copies()) == 20


def test_letters_are_not_handled_while_an_open_transaction_may_hide_their_marks(world: World) -> None:
    """A replay worker was killed at a dead letter: nobody sees what stands behind it, a mark neither."""
    killed = world.cluster.log().transactions("windhover-replay-0")
    killed.init(0)
    killed.begin()
    killed.send_all(Outgoing(LETTERS, partition, b"never committed") for partition in range(2))
    for name in ("r1", "r2"):
        with pytest.raises(Unreachable, match="goes on to"):
            drive(world, redrive(world, name))
    assert world.copies() == []
    killed.abort(0)
    assert drive(world, redrive(world, "r3"), between=Query(world)).handled_count == 20
    assert drive(world, redrive(world, "r4"), between=Query(world)).handled_count == 0
    assert len(world.copies()) == 20


@pytest.mark.parametrize("bad", [{0}, {7}, {9}, {2, 3, 8}])
def test_a_letter_whose_copy_is_refused_is_left_alone_and_the_others_are_handled(bad: set[int]) -> None:
    """O208: before, the redrive ended, and so did each one after it."""
    world = World()
    worker = world.worker(of=ONE_LIFE)
    dated = [1 << 45 if number in bad else 77 for number in range(10)]
    world.lose(*(world.emit(b"%d" % number, timestamp_ms=stamp_ms) for number, stamp_ms in enumerate(dated)))
    world.settle(worker)
    world.cluster.delete_topic(COPIES)
    world.cluster.create_topic(COPIES, 2, settings={"message.timestamp.after.max.ms": "1000"})
    progress = drive(world, redrive(world), Query(world))
    assert (progress.handled_count, progress.end) == (10 - len(bad), RedriveEnd.DONE)
    assert progress.left_by_why == {Left.REFUSED: len(bad)}
    assert sorted(int(copy.value or b"") for copy in world.copies()) == sorted(set(range(10)) - bad)
    world.cluster.delete_topic(COPIES)
    world.cluster.create_topic(COPIES, 2)
    again = drive(world, redrive(world, "r2"))
    assert (again.letter_count, again.handled_count) == (len(bad), len(bad))
    assert sorted(int(copy.value or b"") for copy in world.copies()) == sorted(bad)


def test_a_redrive_to_a_topic_that_takes_no_copy_names_it(world: World) -> None:
    """O208: it does not try each of a hundred thousand letters."""
    world.cluster.delete_topic(COPIES)
    world.cluster.create_topic(COPIES, 2, settings={"message.timestamp.before.max.ms": "1000"})
    world.cluster.now_ms = world.now_ms
    with pytest.raises(TopicError, match=r"10 letters in a row are refused, .*INVALID_TIMESTAMP"):
        drive(world, redrive(world))
    assert world.copies() == []
