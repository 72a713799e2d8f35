"""Storm's acker, case by case (sections A, B and I), on the real service over the in-memory log.

``docs/design/conformance.md`` has the cases, and says which of them do not apply.
"""

from __future__ import annotations

import random

import pytest

from acker.config.limits import AckerLimits
from acker.ledger.output import AckerEventKind
from acker.ledger.sessions import UNSENT_MS_MAX
from acker.wire.events import Lost, Verdicts
from tests.support.worlds.acker_world import SOURCE, TIMEOUT_MS, TOPICS, World, Writer, edge


@pytest.fixture
def world() -> World:
    """An acker with one partition."""
    return World()


@pytest.fixture
def writer(world: World) -> Writer:
    """A session that has taken its group at clock 0."""
    writer = world.session()
    writer.take()
    world.settle()
    return writer


def lost_of(world: World) -> list[Lost]:
    """Return all lost entries, in order."""
    return [lost for event in world.answers() if isinstance(event, Verdicts) for lost in event.lost]


def test_a_root_whose_contributions_fold_to_its_edge_is_acked_and_gone(world: World, writer: Writer) -> None:
    """S1, S5: partial acks give nothing; the last one gives one verdict and leaves no state."""
    writer.init((10, 11))
    writer.acks(values=[(10, 77)], seq=1)
    world.settle()
    assert world.of() == {}
    assert world.status().open_roots == 1
    writer.acks(values=[(10, 77 ^ edge(10))], seq=2)
    world.settle()
    assert world.of() == {10: "ACKED"}
    assert (world.status().open_roots, world.status().ranges) == (0, 0)


def test_a_failed_root_gets_its_verdict_at_once_and_the_rest_is_late(world: World, writer: Writer) -> None:
    """S7, S8, S9, S57, S58."""
    writer.init((0, 3))
    writer.fails(1, operator="split", error="ValueError", message="bad line")
    world.settle()
    writer.fails(1, seq=1)
    writer.acks(runs=[(0, 3)], seq=1)
    world.settle()
    assert world.of() == {0: "ACKED", 1: "FAILED", 2: "ACKED"}
    assert world.status().counts.late == 2
    lost = lost_of(world)[0]
    assert (lost.operator, lost.error, lost.message) == ("split", "ValueError", "bad line")


def test_a_fail_wins_over_a_complete_fold_of_the_same_step(world: World, writer: Writer) -> None:
    """S10: storm acks; here fail beats zero as long as no verdict has been given."""
    writer.init((5, 6))
    writer.acks(runs=[(5, 6)])
    writer.fails(5)
    world.settle()
    assert world.of() == {5: "FAILED"}


def test_an_absent_root_stays_absent_though_its_fold_is_complete(world: World, writer: Writer) -> None:
    """FAILED goes before ABSENT before ACKED."""
    writer.init((0, 4))
    writer.acks(runs=[(0, 4)], absent=[(2, 3)])
    writer.acks(runs=[], absent=[(1, 3)], seq=1)
    writer.fails(2)
    world.settle()
    assert world.of() == {0: "ACKED", 1: "ABSENT", 2: "FAILED", 3: "ACKED"}


def test_a_record_that_comes_twice_counts_once(world: World, writer: Writer) -> None:
    """S11, S12, S168: before and after completion."""
    writer.init((7, 8))
    first = writer.acks(values=[(7, 9)], seq=1)
    world.write_raw(TOPICS.ack, first)
    world.settle()
    world.write_raw(TOPICS.ack, first)
    last = writer.acks(values=[(7, 9 ^ edge(7))], seq=2)
    world.write_raw(TOPICS.ack, last)
    world.settle()
    world.write_raw(TOPICS.ack, last)
    world.settle()
    assert world.of() == {7: "ACKED"}
    assert world.status().counts.repeated_records == 4


def test_a_second_init_of_a_position_is_ignored(world: World, writer: Writer) -> None:
    """S13, S14, P54: the tree stays pending, the part above the watermark opens."""
    writer.init((0, 10))
    writer.init((5, 15))
    world.settle()
    assert world.status().open_roots == 15
    assert world.status().counts.ignored == 5
    writer.acks(runs=[(0, 15)])
    writer.init((0, 15))
    world.settle()
    assert world.of() == dict.fromkeys(range(15), "ACKED")
    assert world.status().open_roots == 0


def test_a_touched_root_lives_longer_and_only_that_root(world: World, writer: Writer) -> None:
    """S16, S19, S21, S37."""
    writer.init((0, 3), now=0)
    writer.acks(runs=[], touched=[1], touched_at=10_000)
    writer.tick(TIMEOUT_MS)
    world.settle()
    assert world.of() == {0: "TIMED_OUT", 2: "TIMED_OUT"}
    writer.tick(TIMEOUT_MS + 9_999)
    world.settle()
    assert 1 not in world.of()
    writer.tick(TIMEOUT_MS + 10_000)
    world.settle()
    assert world.of()[1] == "TIMED_OUT"


def test_a_root_that_is_touched_again_and_again_lives_until_a_timeout_behind_the_last(
    world: World, writer: Writer
) -> None:
    """S62, P30: touched each fifth of the timeout for three timeouts, and then no more."""
    writer.init((0, 2), now=0)
    last = 3 * TIMEOUT_MS
    for seq, now in enumerate(range(TIMEOUT_MS // 5, last + 1, TIMEOUT_MS // 5)):
        writer.acks(runs=[], touched=[0], touched_at=now, seq=seq)
        writer.tick(now)
        world.settle()
        assert world.of() == ({} if now < TIMEOUT_MS else {1: "TIMED_OUT"})
    writer.tick(last + TIMEOUT_MS - 1)
    world.settle()
    assert world.of() == {1: "TIMED_OUT"}
    writer.tick(last + TIMEOUT_MS)
    world.settle()
    assert world.of() == {0: "TIMED_OUT", 1: "TIMED_OUT"}
    assert world.status().open_roots == 0


def test_a_fail_that_comes_after_the_timeout_changes_nothing(world: World, writer: Writer) -> None:
    """P40: the root that timed out is failed itself; it is lost once, and counts once."""
    writer.init((0, 2), now=0)
    writer.acks(runs=[(1, 2)])
    writer.tick(TIMEOUT_MS)
    world.settle()
    writer.fails(0, seq=1)
    world.settle()
    writer.tick(2 * TIMEOUT_MS)
    world.settle()
    assert world.outcomes() == {(SOURCE, 0): [("TIMED_OUT", "")], (SOURCE, 1): [("ACKED", "")]}
    assert [lost.reason.value for lost in lost_of(world)] == ["TIMED_OUT"]
    assert (world.status().counts.late, world.status().counts.timed_out) == (1, 1)


def test_a_touch_never_moves_a_deadline_back_and_revives_nothing(world: World, writer: Writer) -> None:
    """S17, S63."""
    writer.init((0, 2), now=5_000)
    writer.acks(runs=[(0, 1)], touched=[1], touched_at=1_000)
    world.settle()
    writer.acks(touched=[0], touched_at=50_000, seq=1)
    writer.tick(TIMEOUT_MS + 5_000)
    world.settle()
    assert world.of() == {0: "ACKED", 1: "TIMED_OUT"}


def test_a_touch_of_a_root_that_has_no_init_yet_does_nothing(world: World, writer: Writer) -> None:
    """S15: it moves no deadline of the root that comes later."""
    writer.acks(runs=[], touched=[3], touched_at=50_000)
    world.settle()
    writer.init((0, 5), now=0)
    writer.tick(TIMEOUT_MS)
    world.settle()
    assert world.of() == dict.fromkeys(range(5), "TIMED_OUT")


def test_a_root_expires_at_its_deadline_and_not_before(world: World, writer: Writer) -> None:
    """S18, S36, S59, S33: never early; Storm drops it silently, here it has a verdict."""
    writer.init((0, 2), now=1_000)
    writer.tick(TIMEOUT_MS + 999)
    world.settle()
    assert world.of() == {}
    writer.acks(runs=[(0, 1)])
    writer.tick(TIMEOUT_MS + 1_000)
    world.settle()
    assert world.of() == {0: "ACKED", 1: "TIMED_OUT"}
    lost = lost_of(world)[0]
    assert (lost.emitted_at, lost.emitted_wall, lost.decided_at) == (1_000, 1_001_000, TIMEOUT_MS + 1_000)


def test_contributions_after_the_deadline_leave_nothing_behind(world: World, writer: Writer) -> None:
    """S20, S23, S34, P24, P25: storm keeps an orphan until it rotates out."""
    writer.fails(99)
    writer.tick(500)
    world.settle()
    writer.init((0, 1), now=500)
    writer.tick(TIMEOUT_MS + 500)
    world.settle()
    writer.acks(runs=[(0, 1)], seq=1)
    world.settle()
    status = world.status()
    assert (status.open_roots, status.ranges, status.counts.late, status.counts.above) == (0, 0, 1, 1)


def test_a_timeout_of_zero_never_expires_and_the_status_says_so(world: World, writer: Writer) -> None:
    """S41, S61."""
    writer.init((0, 4), timeout_ms=0)
    writer.acks(touched=[1], touched_at=5)
    writer.tick(1 << 40)
    world.settle()
    assert world.of() == {}
    assert world.status().never_expiring == 4


def test_what_is_no_record_is_counted_and_skipped(world: World, writer: Writer) -> None:
    """S25."""
    writer.init((0, 1))
    world.write_raw(TOPICS.ack, b"\xc3\x01nonsense")
    world.write_raw(TOPICS.fail, b"")
    writer.acks(runs=[(0, 1)])
    world.settle()
    assert world.of() == {0: "ACKED"}
    assert world.status().counts.quarantined_records == 2


def test_contributions_commute(world: World, writer: Writer) -> None:
    """S26, S27, P49: a hundred edges in any order; one verdict, and never before the last."""
    writer.init((0, 1))
    draw = random.Random(1)
    edges = [draw.getrandbits(64) for _ in range(99)]
    last = edge(0)
    for value in edges:
        last ^= value
    shuffled = [*edges, last]
    draw.shuffle(shuffled)
    for seq, value in enumerate(shuffled[:-1]):
        writer.acks(values=[(0, value)], seq=seq)
    world.settle()
    assert world.of() == {}
    writer.acks(values=[(0, shuffled[-1])], seq=1_000)
    world.settle()
    assert world.of() == {0: "ACKED"}


def test_a_shared_child_completes_or_fails_both_its_roots(world: World, writer: Writer) -> None:
    """S29, S31, P52."""
    writer.init((0, 4))
    writer.acks(values=[(p, edge(p) ^ 55) for p in range(4)], seq=1)
    world.settle()
    assert world.of() == {}
    writer.acks(values=[(0, 55), (1, 55)], seq=2)
    writer.fails(2, 3)
    world.settle()
    assert world.of() == {0: "ACKED", 1: "ACKED", 2: "FAILED", 3: "FAILED"}


def test_a_position_named_twice_in_a_record_contributes_both_values(world: World, writer: Writer) -> None:
    """A record that is not canonical folds all the same: the XOR of all that it says."""
    writer.init((0, 3))
    writer.acks(values=[(1, 6), (0, edge(0) ^ 3), (1, 6 ^ edge(1)), (0, 3)], seq=1)
    writer.acks(runs=[(2, 3), (1, 3)], values=[(2, 8)], seq=2)
    world.settle()
    assert world.of() == {0: "ACKED", 1: "ACKED"}
    writer.acks(values=[(2, 8 ^ edge(2))], seq=3)
    world.settle()
    assert world.of()[2] == "ACKED"


def test_many_runs_of_a_record_complete_just_their_roots(world: World, writer: Writer) -> None:
    """More runs than are folded one by one."""
    writer.init((0, 1_000))
    writer.acks(values=[(4, 1)], seq=1)
    writer.acks(runs=[(start, start + 2) for start in range(0, 1_000, 4)], seq=2)
    world.settle()
    expected = {position: "ACKED" for position in range(1_000) if position % 4 < 2 and position != 4}
    assert world.of() == expected
    writer.acks(values=[(4, 1)], seq=3)
    world.settle()
    assert world.of()[4] == "ACKED"


def test_a_contribution_counts_only_for_roots_of_its_session(world: World, writer: Writer) -> None:
    """S136, P7: also while the take that will abandon them waits."""
    writer.init((0, 2))
    world.settle()
    world.session("other", 0).acks(runs=[(0, 2)])
    world.settle()
    assert world.of() == {}
    assert world.status().counts.late == 2


def test_a_million_roots_of_a_cohort_expire_together(world: World, writer: Writer) -> None:
    """S39, S40: one operation for all; with one root left, memory for about one root."""
    writer.init((0, 1_000_000))
    for block in range(31):
        first, end = block << 15, min((block + 1) << 15, 1_000_000)
        writer.acks(runs=[(first + (block == 3), end)], seq=block)
    world.settle()
    cohort = next(iter(world.acker._owned_ackers[0].core.ledger.cohorts()))
    assert (world.status().open_roots, world.status().ranges) == (1, 1)
    assert cohort.roots.bytes < 100
    writer.init((1_000_000, 2_000_000))
    writer.tick(TIMEOUT_MS)
    world.settle()
    assert world.status().counts.timed_out == 1_000_001
    assert world.status().open_roots == 0


def test_an_acker_that_was_down_times_nothing_out_that_was_acked(world: World, writer: Writer) -> None:
    """Rule 8, S35, P55, P19: a tick counts only when what was in the log before it is applied."""
    writer.init((0, 3))
    world.settle()
    writer.tick(TIMEOUT_MS + 1)
    writer.acks(runs=[(0, 2)])
    writer.fails(2)
    writer.tick(3_600_000)
    world.crash()
    world.settle()
    assert world.of() == {0: "ACKED", 1: "ACKED", 2: "FAILED"}


def test_a_tick_waits_for_all_that_was_in_the_log_before_it() -> None:
    """Rule 8: though one step cannot apply it all."""
    world = World(limits=AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0, step_records=100))
    writer = world.session()
    writer.take()
    writer.init((0, 700))
    for position in range(700):
        writer.acks(runs=[(position, position + 1)], seq=position)
    writer.tick(TIMEOUT_MS)
    world.settle()
    assert world.of() == dict.fromkeys(range(700), "ACKED")
    assert world.status().counts.transactions > 3


def test_a_take_waits_for_all_that_was_in_the_log_before_it() -> None:
    """The roots of the session before are abandoned only where nothing completes them."""
    world = World(limits=AckerLimits(poll_ms=0, pace_ms=0, put_off_ms=0, step_records=100))
    writer = world.session()
    writer.take()
    writer.init((0, 700))
    for position in range(699):
        writer.acks(runs=[(position, position + 1)], seq=position)
    world.session("s2", 2).take()
    world.settle()
    assert world.of() == {**dict.fromkeys(range(699), "ACKED"), 699: "ABANDONED"}
    assert len(world.taken()) == 2


def test_a_repeat_with_other_content_fails_the_open_roots_that_it_names(world: World, writer: Writer) -> None:
    """NONDETERMINISTIC: those only in the first record keep what they had, the first CRC stays."""
    writer.init((0, 6))
    first = writer.acks(runs=[(0, 1)], values=[(1, 5), (2, 6)], seq=4)
    world.settle()
    writer.acks(runs=[(0, 1)], values=[(2, 7)], absent=[(3, 4)], touched=[4], seq=4)
    world.settle()
    world.write_raw(TOPICS.ack, first)
    world.settle()
    assert {p: r for (_, p), r in world.outcomes().items()} == {
        0: [("ACKED", "")],
        2: [("FAILED", "NONDETERMINISTIC")],
        3: [("FAILED", "NONDETERMINISTIC")],
        4: [("FAILED", "NONDETERMINISTIC")],
    }
    assert [event.kind for event in world.events].count(AckerEventKind.NONDETERMINISTIC) == 1
    assert all(lost.operator == "" for lost in lost_of(world))
    writer.acks(values=[(1, 5 ^ edge(1))], seq=5)
    world.settle()
    assert world.of()[1] == "ACKED"


def test_a_repeat_of_fails_with_other_content_fails_what_it_names(world: World, writer: Writer) -> None:
    """The marks of acks and fails are apart: an ack of the same batch and block is no repeat of the fail."""
    writer.init((0, 4))
    writer.fails(0, seq=1)
    writer.acks(runs=[(1, 2)], seq=1)
    writer.fails(2, seq=1)
    world.settle()
    assert {p: r for (_, p), r in world.outcomes().items()} == {
        0: [("FAILED", "ValueError")],
        1: [("ACKED", "")],
        2: [("FAILED", "NONDETERMINISTIC")],
    }


def test_a_batch_before_the_last_is_ignored(world: World, writer: Writer) -> None:
    """Lower seqs are ignored, whatever their content; another lane has seqs of its own."""
    writer.init((0, 3))
    writer.acks(runs=[(0, 1)], seq=5)
    writer.acks(runs=[(1, 2)], seq=4)
    writer.acks(runs=[(2, 3)], seq=4, lane="other/s1")
    world.settle()
    assert world.of() == {0: "ACKED", 2: "ACKED"}


def test_verdicts_are_canonical(world: World, writer: Writer) -> None:
    """Runs merged and ascending over blocks and records; lost roots by emission, source, position."""
    other = SOURCE + 1
    writer.take(sources=(SOURCE, other))
    world.settle()
    writer.init((0, 40_000), now=7)
    writer.init((0, 10), source=other, now=5)
    for number, (first, end) in enumerate([(20, 32_768), (10, 20), (0, 10)]):
        writer.acks(runs=[(first, end)], seq=0, lane=f"{number}/s1")
    writer.acks(runs=[(32_768, 39_998)], seq=0)
    writer.acks(runs=[(0, 2)], source=other)
    writer.tick(TIMEOUT_MS + 7 + UNSENT_MS_MAX)
    world.settle()
    found = [event for event in world.answers() if isinstance(event, Verdicts)]
    assert len(found) == 1
    assert [tuple(run) for run in found[0].acked] == [(SOURCE, 0, 39_998), (other, 0, 2)]
    assert [(lost.emitted_at, lost.source, len(lost.positions) // 8) for lost in found[0].lost] == [
        (5, other, 8),
        (7, SOURCE, 2),
    ]


def test_a_long_list_of_lost_roots_is_cut_into_records_below_the_limit(world: World, writer: Writer) -> None:
    """Every root once, no record of 900,000 bytes or more."""
    writer.init((0, 150_000))
    writer.tick(TIMEOUT_MS)
    world.settle()
    sizes = [len(record.value or b"") for record in world.read(TOPICS.verdict)]
    assert max(sizes) < 900_000
    assert world.of() == dict.fromkeys(range(150_000), "TIMED_OUT")


def test_a_root_belongs_to_the_same_partition_for_every_writer() -> None:
    """S32: with several partitions each root is decided once, in its own."""
    world = World(partitions=4)
    writer = world.session()
    writer.take()
    for block in range(8):
        writer.init((block << 16, (block << 16) + 5))
        writer.acks(runs=[(block << 16, (block << 16) + 5)], seq=block)
    world.settle()
    assert world.of() == {(block << 16) + i: "ACKED" for block in range(8) for i in range(5)}
    assert world.status().partitions == (0, 1, 2, 3)
