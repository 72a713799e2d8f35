"""The judgement over a torture, on made-up topics: what is right holds, and each check is seen to fall."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from acker.wire.verdict import Verdict
from tests.support.worlds.torture_world import FIRST, REPLAY, SECOND, SOURCE, TIMEOUT_MS, World
from tests.torture.judging.causes import ENDS_WITHIN_MS, Cause, Strike
from tests.torture.judging.judge import RUN_AGAIN
from tests.torture.schedule import Deed, Victim
from tests.torture.workload import UNDONE, key_of, words_of
from tests.torture.writes import Write

PLAIN, FAILS_TWICE, POISON, NEVER_ACKED = 1, 50, 498, 105
OTHER = 2
T0 = 1_000_000
DUE = T0 + TIMEOUT_MS


def test_the_numbers_of_these_tests_are_of_the_kinds_that_they_stand_for() -> None:
    kinds = [key_of(number) for number in (PLAIN, FAILS_TWICE, POISON, NEVER_ACKED, OTHER)]
    assert kinds == [b"", b"fails-twice", b"always-fails", b"never-acked-at-first", b""]
    assert len(words_of(PLAIN)) == 2


def good() -> World:
    """A run in which everything happened that may happen."""
    world = World()
    world.take(FIRST, T0 - 10)
    world.complete(PLAIN, T0)
    # fails twice, with half of its words written each time
    world.produce(FAILS_TWICE)
    world.init(SOURCE, FAILS_TWICE, T0)
    world.lose(SOURCE, FAILS_TWICE, Verdict.FAILED, T0 + 300, "FlakyLineError")
    world.copy(FAILS_TWICE, 0)
    world.init(REPLAY, 0, T0 + 1_000)
    world.lose(REPLAY, 0, Verdict.FAILED, T0 + 1_300, "FlakyLineError")
    world.copy(FAILS_TWICE, 1, attempt=3, of="t.replay/0@0")
    world.complete_copy(FAILS_TWICE, 1, T0 + 2_000, attempt=3)
    # fails for ever
    world.produce(POISON)
    world.init(SOURCE, POISON, T0)
    world.lose(SOURCE, POISON, Verdict.FAILED, T0 + 300, "PoisonLineError")
    world.bury(POISON)
    # written and not acked at first
    world.produce(NEVER_ACKED)
    world.init(SOURCE, NEVER_ACKED, T0)
    world.write(NEVER_ACKED, T0 + 100)
    world.tick(DUE - 1)
    world.tick(DUE)
    world.lose(SOURCE, NEVER_ACKED, Verdict.TIMED_OUT, DUE + 50)
    world.copy(NEVER_ACKED, 2)
    world.complete_copy(NEVER_ACKED, 2, DUE + 1_000)
    return world


def test_a_run_in_which_all_went_by_the_rules_holds() -> None:
    judgement = good().judgement()
    assert [check for check in judgement.checks if not check.passed] == []
    assert judgement.counts["records"] == 4
    assert (judgement.counts["acked"], judgement.counts["dead_lettered"]) == (3, 1)
    assert judgement.replays["meant to fail"] == 3
    assert judgement.replays["meant to time out"] == 1
    assert judgement.duplicates == {"meant to time out": len(words_of(NEVER_ACKED))}


def acknowledged_and_gone(world: World) -> None:
    world.durable.add(777)


def lost(world: World) -> None:
    world.produce(OTHER)


def ended_twice(world: World) -> None:
    world.bury(PLAIN, of="t.replay/0@2")


def open_for_ever(world: World) -> None:
    world.init(SOURCE, 9_000, T0)


def two_verdicts(world: World) -> None:
    world.acked(SOURCE, PLAIN, T0 + 400)


def never_initialised(world: World) -> None:
    world.acked(SOURCE, 9_001, T0)


def acked_and_not_written(world: World) -> None:
    world.writes = [row for row in world.writes if (row.origin, row.ordinal) != (f"t/0@{PLAIN}", 1)]


def acked_before_it_was_written(world: World) -> None:
    world.writes = [row._replace(first_ms=T0 + 301) for row in world.writes if row.origin == f"t/0@{PLAIN}"]
    world.writes += [row for row in good().writes if row.origin != f"t/0@{PLAIN}"]


def wrong_word(world: World) -> None:
    world.writes.append(Write(f"t/0@{POISON}", 0, 1, "n1", T0, 1))


def word_beyond_the_end(world: World) -> None:
    world.writes.append(Write(f"t/0@{PLAIN}", 2, 1, "w7", T0, 1))


def undone_record_written(world: World) -> None:
    world.writes.append(Write("t/0@4711", 0, 1, UNDONE, T0, 1))


def lost_and_never_replaced(world: World) -> None:
    world.produce(OTHER)
    world.init(SOURCE, OTHER, T0)
    world.tick(DUE)
    world.lose(SOURCE, OTHER, Verdict.TIMED_OUT, DUE)


def replaced_twice(world: World) -> None:
    world.copy(NEVER_ACKED, 3)
    world.complete_copy(NEVER_ACKED, 3, DUE + 1_000)


def replaced_and_not_lost(world: World) -> None:
    world.copy(PLAIN, 3)


def timed_out_with_its_acks_in_the_log(world: World) -> None:
    lost_and_never_replaced(world)
    world.contribute(SOURCE, OTHER, DUE - 1)
    world.copy(OTHER, 3)
    world.complete_copy(OTHER, 3, DUE + 1_000)


def abandoned_with_its_acks_in_the_log(world: World) -> None:
    world.produce(OTHER)
    world.init(SOURCE, OTHER, T0)
    world.contribute(SOURCE, OTHER, T0 + 500)
    world.take(SECOND, T0 + 501)
    world.lose(SOURCE, OTHER, Verdict.ABANDONED, T0 + 600)


def timed_out_early(world: World) -> None:
    world.produce(OTHER)
    world.init(SOURCE, OTHER, T0 + 1)  # due a millisecond after the last tick
    world.lose(SOURCE, OTHER, Verdict.TIMED_OUT, DUE + 60)


def failed_for_no_reason(world: World) -> None:
    world.produce(OTHER)
    world.init(SOURCE, OTHER, T0)
    world.lose(SOURCE, OTHER, Verdict.FAILED, T0 + 300, "NONDETERMINISTIC")


def buried_where_no_record_is(world: World) -> None:
    world.init(SOURCE, 4711, T0)
    world.take(SECOND, T0 + 500)
    world.lose(SOURCE, 4711, Verdict.ABANDONED, T0 + 600)
    world.bury(4711)


def buried_where_no_copy_is(world: World) -> None:
    world.init(REPLAY, 4711, T0)
    world.take(SECOND, T0 + 500)
    world.lose(REPLAY, 4711, Verdict.ABANDONED, T0 + 600)
    world.bury(4711, of="t.replay/0@4711")


def written_again_for_no_reason(world: World) -> None:
    world.write(PLAIN, T0, attempt=2)


def behind(world: World) -> None:
    world.uncommitted["t/0"] = "3 of 4"


def service_ended(world: World) -> None:
    world.endings.append("acker 1: it ended")


def zombie_survived(world: World) -> None:
    world.survivors.append("the driver is not ready after 60 s")


@pytest.mark.parametrize(
    ("wrong", "check"),
    [
        (acknowledged_and_gone, "every acknowledged record is in its topic"),
        (lost, "every record ended acked or dead-lettered"),
        (ended_twice, "no record ended twice"),
        (open_for_ever, "every root has one verdict"),
        (two_verdicts, "every root has one verdict"),
        (never_initialised, "every root has one verdict"),
        (never_initialised, "no root was acked before its words were written"),
        (acked_and_not_written, "no root was acked before its words were written"),
        (acked_before_it_was_written, "no root was acked before its words were written"),
        (wrong_word, "every row is a word of its record, in its place"),
        (word_beyond_the_end, "every row is a word of its record, in its place"),
        (undone_record_written, "nothing of an aborted transaction was seen"),
        (lost_and_never_replaced, "every lost root has one copy or one dead letter"),
        (lost_and_never_replaced, "every record ended acked or dead-lettered"),
        (replaced_twice, "every lost root has one copy or one dead letter"),
        (replaced_twice, "no record ended twice"),
        (replaced_and_not_lost, "every lost root has one copy or one dead letter"),
        (timed_out_with_its_acks_in_the_log, "no acker lost a root whose acks it had in time"),
        (abandoned_with_its_acks_in_the_log, "no acker lost a root whose acks it had in time"),
        (timed_out_early, "no root timed out early"),
        (failed_for_no_reason, "every loss has a cause"),
        (buried_where_no_record_is, "every lost root has one copy or one dead letter"),
        (buried_where_no_copy_is, "every lost root has one copy or one dead letter"),
        (written_again_for_no_reason, "every row that was written again had a cause"),
        (behind, "the committed offsets have reached the end"),
        (service_ended, "no acker or replay worker ended by itself"),
        (zombie_survived, "every zombie ended by itself"),
    ],
)
def test_what_is_wrong_fells_its_check(wrong: Callable[[World], None], check: str) -> None:
    world = good()
    wrong(world)
    assert check in world.fallen()


def late(*strikes: Strike, contributed_ms: int = DUE + 2_000) -> World:
    """A plain record whose acks came after its deadline."""
    world = good()
    lost_and_never_replaced(world)
    world.contribute(SOURCE, OTHER, contributed_ms)
    world.copy(OTHER, 3)
    world.complete_copy(OTHER, 3, DUE + 3_000)
    world.strikes.extend(strikes)
    return world


@pytest.mark.parametrize(
    ("strikes", "cause"),
    [
        ((), Cause.SLOW_BATCH),
        ((Strike(Victim.ACKER_1, Deed.KILL, T0 + 1, DUE),), Cause.SLOW_BATCH),
        ((Strike(Victim.REPLAY_1, Deed.KILL, T0 + 1, DUE),), Cause.SLOW_BATCH),
        ((Strike(Victim.DRIVER, Deed.CLOCK, T0 + 1, DUE),), Cause.SLOW_BATCH),
        ((Strike(Victim.DRIVER, Deed.KILL, T0 - 500, T0 - 1),), Cause.SLOW_BATCH),
        ((Strike(Victim.DRIVER, Deed.KILL, DUE + 1, DUE + 9),), Cause.SLOW_BATCH),
        ((Strike(Victim.DRIVER, Deed.KILL, T0 - 500, T0),), Cause.DRIVER_AWAY),
        (
            (Strike(Victim.DRIVER, None, DUE, DUE + 9), Strike(Victim.BROKER, Deed.KILL, T0 - 9_000, T0 - 1)),
            Cause.DRIVER_AWAY,
        ),
        ((Strike(Victim.DRIVER, Deed.SILENCE, T0 + 1, DUE),), Cause.NETWORK_CUT),
        ((Strike(Victim.BROKER_3, Deed.STOP, T0 + 1, DUE),), Cause.BROKER_AWAY),
        ((Strike(Victim.COORDINATORS, Deed.MOVE, T0 + 1, DUE),), Cause.BROKER_AWAY),
        ((Strike(Victim.EXECUTOR, Deed.FREEZE, T0 + 1, DUE),), Cause.EXECUTOR_AWAY),
        ((Strike(Victim.SPARK_WORKER_2, Deed.KILL, T0 + 1, DUE),), Cause.EXECUTOR_AWAY),
        ((Strike(Victim.DRIVER, Deed.FULL_DISK, T0 + 1, DUE),), Cause.DISK_FULL),
        (
            (Strike(Victim.DRIVER, Deed.KILL, T0, DUE), Strike(Victim.BROKER, Deed.KILL, T0, DUE)),
            Cause.BROKER_AWAY,
        ),
    ],
)
def test_a_root_whose_acks_came_late_is_laid_to_what_kept_the_driver(
    strikes: tuple[Strike, ...], cause: Cause
) -> None:
    world = late(*strikes)
    assert world.fallen() == []
    assert world.judgement().replays[cause.value] == 1


@pytest.mark.parametrize(
    ("blows", "explained"),
    [
        ((), False),
        ((Strike(Victim.BROKER, Deed.KILL, DUE - 9, DUE - 1),), True),
        ((Strike(Victim.BROKER_2, Deed.KILL, DUE - 9, DUE - 1),), True),
        ((Strike(Victim.EXECUTOR, Deed.KILL, DUE - 9, DUE - 1),), False),
        ((Strike(Victim.SPARK_WORKER_1, Deed.KILL, DUE - 9, DUE - 1),), False),
        ((Strike(Victim.DRIVER, Deed.FULL_DISK, DUE - 9, DUE + 9),), True),
        ((Strike(Victim.DRIVER, Deed.SILENCE, DUE - 9, DUE - ENDS_WITHIN_MS),), True),
        ((Strike(Victim.DRIVER, Deed.SILENCE, DUE - 9, DUE - ENDS_WITHIN_MS - 1),), False),
        ((Strike(Victim.DRIVER, Deed.KILL, DUE + 1, DUE + 9),), False),
        ((Strike(Victim.DRIVER, Deed.CLOCK, DUE - 9, DUE + 9),), False),
        ((Strike(Victim.ACKER_1, Deed.KILL, DUE - 9, DUE + 9),), False),
        ((Strike(Victim.DRIVER, None, DUE - 9, DUE + 9),), False),
    ],
)
def test_a_driver_that_ends_by_itself_needs_a_blow_that_explains_it(
    blows: tuple[Strike, ...], explained: bool
) -> None:
    """Else whatever it loses would be laid to its being away, and allowed."""
    world = late(Strike(Victim.DRIVER, None, DUE, DUE + 9), *blows)
    assert world.fallen() == ([] if explained else ["no driver ended by itself without a blow"])


def never_acked(number: int = OTHER) -> World:
    """A record whose batch took too long, and of which no ack came though the next batch was planned."""
    world = good()
    world.produce(number)
    world.init(SOURCE, number, T0)
    world.lose(SOURCE, number, Verdict.TIMED_OUT, DUE + 50)
    world.copy(number, 3)
    world.complete_copy(number, 3, DUE + 3_000)
    return world


def test_a_root_whose_acks_never_came_though_its_batch_ended_is_a_fault() -> None:
    """Spark plans the next batch when the one before has ended, and its acks stand in the log by then."""
    world = never_acked()
    assert world.fallen() == ["no acks stayed away though their batch had ended"]
    assert world.judgement().replays[Cause.ACKS_AWAY.value] == 1


def test_acks_may_stay_away_where_a_blow_fell_before_the_next_batch_was_planned() -> None:
    """What was run again may have been skipped by the sink, which fails its roots."""
    world = never_acked()
    world.strikes.append(Strike(Victim.DRIVER, Deed.KILL, DUE + 100, DUE + 900))
    assert world.fallen() == []
    assert world.judgement().replays[Cause.SLOW_BATCH.value] == 1


def test_a_root_that_fails_on_purpose_has_no_acks_to_come() -> None:
    assert never_acked(FAILS_TWICE + 202).fallen() == []


def test_acks_may_still_come_while_no_further_batch_was_planned() -> None:
    world = good()
    world.produce(OTHER)
    world.init(SOURCE, OTHER, DUE + 2_000)
    world.tick(DUE + 2_000 + TIMEOUT_MS)
    world.lose(SOURCE, OTHER, Verdict.TIMED_OUT, DUE + 2_000 + TIMEOUT_MS)
    world.bury(OTHER)
    assert world.fallen() == []


def test_a_blow_on_the_driver_excuses_no_acker_that_had_the_acks_in_time() -> None:
    world = late(Strike(Victim.DRIVER, Deed.KILL, T0, DUE), contributed_ms=DUE - 1)
    assert world.fallen() == ["no acker lost a root whose acks it had in time"]


def test_a_root_that_was_open_when_its_session_was_taken_over_is_laid_to_that() -> None:
    world = good()
    world.produce(OTHER)
    world.init(SOURCE, OTHER, T0)
    world.take(SECOND, T0 + 500)
    world.contribute(SOURCE, OTHER, T0 + 600)
    world.lose(SOURCE, OTHER, Verdict.ABANDONED, T0 + 700)
    world.copy(OTHER, 3)
    world.complete_copy(OTHER, 3, T0 + 1_000)
    assert "no acker lost a root whose acks it had in time" not in world.fallen()
    assert world.judgement().replays["session taken over"] == 1


def test_an_init_of_a_session_that_was_overtaken_begins_nothing() -> None:
    world = good()
    world.take(SECOND, T0 + 500)
    world.init(SOURCE, 9_000, T0 + 501, session=FIRST)
    assert world.fallen() == []


def test_a_batch_that_was_run_again_is_counted_and_allowed() -> None:
    world = good()
    world.writes[0] = world.writes[0]._replace(times=3)
    judgement = world.judgement()
    assert judgement.held
    assert judgement.duplicates[RUN_AGAIN] == 2
