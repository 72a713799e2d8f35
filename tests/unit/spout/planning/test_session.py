"""A session's order, its clock, and what N answers come to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from acker.wire.events import SourceRun, Taken, TakenSource
from spout.planning.session import Answers, SessionClock, SessionName

SOURCE = 65_536


def taken(
    *, part: int = 0, parts: int = 1, asked_by: str = "me", refused: str = "", **other: object
) -> Taken:
    """Make an answer to session ``me`` of group ``g``."""
    values: dict[str, object] = {"session": "me", "epoch": 2, "clock": 0, "sources": (), "open": ()}
    return Taken(group="g", asked_by=asked_by, refused=refused, part=part, parts=parts, **{**values, **other})  # type: ignore[arg-type]


def known(next_: int, *, generation: int = 0, from_: int = 0, topic_id: str = "id") -> TakenSource:
    """Make what an acker partition knows of the source."""
    return TakenSource(SOURCE, topic_id, generation, from_, next_)


def test_sessions_are_ordered_by_epoch_then_id() -> None:
    """Two that drew the same epoch are still ordered."""
    assert SessionName(2, "a") < SessionName(2, "b") < SessionName(3, "a")
    assert str(SessionName(2, "a")) == "2/a"


def test_a_look_adds_at_most_a_second_however_long_the_process_slept() -> None:
    """Rule 8."""
    clock = SessionClock(5_000, 100_000)
    assert clock.advance(100_400, idle=False) == 5_400
    clock.record_sent()
    assert clock.advance(160_400, idle=False) == 6_400


def test_all_looks_since_the_last_tick_together_add_at_most_a_second() -> None:
    clock = SessionClock(0, 0)
    assert [clock.advance(wall_ms, idle=False) for wall_ms in (600, 1_200, 1_800)] == [600, 1_000, 1_000]
    clock.record_sent()
    assert clock.advance(2_400, idle=False) == 1_600


def test_the_clock_stands_still_while_nothing_looked_before_it_began() -> None:
    """What passed while the session was down is not counted."""
    assert SessionClock(5_000, 999_000).advance(999_010, idle=False) == 5_010


def test_an_idle_clock_stands_still() -> None:
    """Found by the simulation: what an idle process adds, its successor is not told, and emits far behind it.

    When the idle one emitted again, a root of the successor timed out up to 2.7 s early.
    """
    clock = SessionClock(5_000, 100_000)
    assert clock.advance(100_100, idle=True) == 5_000
    assert clock.advance(900_000, idle=True) == 5_000
    assert clock.advance(900_010, idle=False) == 5_010


@given(st.integers(0, 10**6), st.lists(st.tuples(st.integers(0, 10**6), st.booleans()), max_size=30))
def test_the_clock_never_falls_and_is_never_fast(start: int, looks: list[tuple[int, bool]]) -> None:
    """Whatever wall time does, it gains at most what passed on the wall."""
    clock = SessionClock(start, 0)
    wall_ms, now = 0, start
    for looked_ms, idle in looks:
        found = clock.advance(looked_ms, idle=idle)
        assert found >= now
        assert found - now <= min(1_000, max(0, looked_ms - wall_ms))
        wall_ms, now = looked_ms, found


def test_answers_are_whole_when_every_partition_sent_all_its_parts() -> None:
    """Section 4: an answer's parts follow each other; part 0 begins a new answer."""
    answers = Answers("g", "me", 2, [SOURCE])
    assert not answers.add_part(0, taken(part=1, parts=2, sources=(known(5),)))
    assert not answers.add_part(0, taken(part=0, parts=2, sources=(known(5),)))
    assert not answers.add_part(
        0, taken(part=0, parts=2, sources=(known(5),), open=(SourceRun(SOURCE, 1, 2),))
    )
    assert answers.missing == [0, 1]
    assert answers.add_part(0, taken(part=1, parts=2, open=(SourceRun(SOURCE, 3, 4),)))
    assert answers.add_part(1, taken(sources=(known(9),), clock=70))
    assert answers.missing == []
    assert answers.pending_runs == (SourceRun(SOURCE, 1, 2), SourceRun(SOURCE, 3, 4))
    assert answers.highest_clock == 70


def test_answers_to_others_and_to_an_earlier_take_do_not_count() -> None:
    """Another group's, another session's, and one that does not know a source that was named."""
    answers = Answers("g", "me", 1, [SOURCE])
    assert not answers.add_part(0, taken(asked_by="me?", refused="a question"))
    assert not answers.add_part(0, taken(sources=()))
    assert answers.add_part(0, taken(sources=(known(0),)))
    assert not answers.add_part(0, taken(sources=(known(7),)))
    assert answers.sources()[SOURCE].watermarks == {0: 0}


def test_the_highest_generation_of_all_answers_counts_with_its_lowest_from() -> None:
    """Section 4: and that generation's topic id."""
    high = 1 << 48
    answers = Answers("g", "me", 3, [SOURCE])
    answers.add_part(0, taken(sources=(known(70, topic_id="old"),)))
    answers.add_part(1, taken(sources=(known(high + 9, generation=1, from_=high + 4, topic_id="new"),)))
    answers.add_part(2, taken(sources=(known(0, generation=1, from_=high + 2, topic_id="new"),)))
    found = answers.sources()[SOURCE]
    assert (found.generation, found.topic_id, found.from_) == (1, "new", high + 2)
    assert found.watermarks == {0: 70, 1: high + 9, 2: 0}


def test_a_refusal_names_the_holder() -> None:
    """A session that is refused learns by whom."""
    answers = Answers("g", "me", 2, [SOURCE])
    answers.add_part(0, taken(session="other", epoch=9, refused="lower"))
    answers.add_part(1, taken(sources=(known(0),)))
    assert answers.refusals == {0: "lower"}
    assert answers.owner == SessionName(9, "other")
