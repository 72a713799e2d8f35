"""Which group has a source, in which generation, and what is refused to a take; freed and forgotten again."""

from __future__ import annotations

import pytest

from acker.identity import position_at, source_of
from acker.ledger.cohort import Session
from acker.ledger.sessions import (
    FREE,
    GENERATION_FIRST_MAX,
    GENERATION_STEP_MAX,
    NO_ROOM,
    SIBLING_MS,
    Barrier,
    Sessions,
    SourceGeneration,
)
from acker.wire.events import Take, TakeSource

LINES, LINES_1, COPIES, WORDS = (
    source_of(1, 0),
    source_of(1, 1),
    source_of(1, 0, replay=True),
    source_of(2, 0),
)


def named(source: int, topic: str, generation: int = 0, offset: int = 0) -> TakeSource:
    """Describe a source as a session does."""
    return TakeSource(source, topic, f"id of {topic}", generation, position_at(generation, offset))


def take(*sources: TakeSource, group: str = "g", session: str = "s", epoch: int = 1) -> Take:
    """Make a take of a group."""
    return Take(group, session, epoch, 0, 1, sources)


def entry(topic: str, generation: int = 0, offset: int = 0, group: str = "g") -> SourceGeneration:
    """Return what is kept of a source."""
    return SourceGeneration(group, topic, f"id of {topic}", generation, position_at(generation, offset))


def taken(*takes: Take, sources_max: int = 100, groups_max: int = 100) -> Sessions:
    """Return sessions that have read takes."""
    sessions = Sessions(4, sources_max, groups_max)
    for each in takes:
        assert sessions.objection_to(each) == ""
        sessions.record_take(each)
    return sessions


# -- generations


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        (named(LINES, "lines", 5, 9), entry("lines", 5, 7)),
        (named(LINES, "lines", 4, 9), entry("lines", 5, 7)),
        (named(LINES, "lines", 6, 9), entry("lines", 6, 9)),
    ],
)
def test_the_first_description_of_the_highest_generation_counts(
    source: TakeSource, kept: SourceGeneration
) -> None:
    sessions = taken(take(named(LINES, "lines", 5, 7)), take(source))
    assert sessions.sources == {LINES: kept}
    assert sessions.sources_of("g") == [(LINES, kept)]
    assert sessions.sources_of("other") == []


def test_the_sources_of_a_group_are_ascending() -> None:
    sessions = taken(take(named(WORDS, "words"), named(LINES_1, "lines"), named(LINES, "lines")))
    assert [number for number, _ in sessions.sources_of("g")] == [LINES, LINES_1, WORDS]


@pytest.mark.parametrize("step", [GENERATION_STEP_MAX, GENERATION_STEP_MAX + 1])
def test_a_generation_rises_by_a_few_at_once(step: int) -> None:
    sessions = taken(take(named(LINES, "lines", 5)))
    objection = sessions.objection_to(take(named(LINES, "lines", 5 + step)))
    is_refused = step > GENERATION_STEP_MAX
    expected = f"source {LINES} may go to generation {5 + GENERATION_STEP_MAX} now, and not to {5 + step}"
    assert objection == (expected if is_refused else "")


@pytest.mark.parametrize("generation", [0, GENERATION_FIRST_MAX, GENERATION_FIRST_MAX + 1])
def test_a_source_begins_in_a_generation_that_rewinds_can_have_reached(generation: int) -> None:
    objection = taken().objection_to(take(named(LINES, "lines", generation)))
    assert bool(objection) is (generation > GENERATION_FIRST_MAX)


def test_a_generation_begins_at_a_position_of_its_own() -> None:
    wrong = named(LINES, "lines", 2)._replace(from_=position_at(1, 0))
    assert taken().objection_to(take(wrong)).startswith(f"generation 2 of source {LINES} cannot begin at")
    sessions = taken(take(named(LINES, "lines", 2)))
    assert sessions.objection_to(take(wrong)) == "", "it is not a new one, so what is kept counts"


# -- refused takes


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (take(named(LINES, "other")), "input 1 is topic lines, not other"),
        (take(named(LINES_1, "other")), "input 1 is topic lines, not other"),
        (take(named(LINES_1, "lines"), group="h"), "input 1 is of group g, not of h"),
        (take(named(WORDS, "words"), named(source_of(2, 1), "verbs")), "input 2 is named with two topics"),
        (
            take(named(WORDS, "words"), named(WORDS + 1, "words"), named(WORDS + 2, "verbs")),
            "input 2 is named",
        ),
    ],
)
def test_what_contradicts_earlier_takes_or_itself_is_refused(refused: Take, why: str) -> None:
    sessions = taken(take(named(LINES, "lines")))
    assert sessions.objection_to(refused).startswith(why)
    assert sessions.sources == {LINES: entry("lines")}


def test_copies_are_of_another_topic_of_the_same_input() -> None:
    sessions = taken(take(named(LINES, "lines"), named(COPIES, "lines.g.replay"), named(WORDS, "words")))
    assert sessions.objection_to(take(named(COPIES, "lines.g.replay"), named(WORDS, "words"))) == ""
    assert sessions.objection_to(take(named(COPIES, "lines"))).startswith("input 1 is topic lines.g.replay")


def test_inputs_whose_ids_are_neighbours_have_topics_of_their_own() -> None:
    inputs = [named(source_of(number, 0), f"topic-{number}") for number in range(1, 9)]
    sessions = taken(take(*inputs))
    assert sessions.objection_to(take(*inputs)) == ""
    assert [kept.topic for _, kept in sessions.sources_of("g")] == [
        f"topic-{number}" for number in range(1, 9)
    ]


@pytest.mark.parametrize(("sources_max", "has_room"), [(2, False), (3, False), (4, True)])
def test_there_is_room_for_so_many_sources_and_those_that_are_there_are_always_taken(
    sources_max: int, has_room: bool
) -> None:
    """A take is refused as a whole."""
    sessions = taken(take(named(LINES, "lines"), named(LINES_1, "lines")), sources_max=sources_max)
    more = take(named(LINES, "lines"), named(WORDS, "words"), named(WORDS + 1, "words"))
    expected = f"more than {sources_max} sources{NO_ROOM}"
    assert sessions.objection_to(more) == ("" if has_room else expected)
    assert sessions.objection_to(take(named(LINES, "lines"))) == ""
    assert sessions.objection_to(take()) == ""


@pytest.mark.parametrize(("groups_max", "has_room"), [(1, False), (2, True)])
def test_there_is_room_for_so_many_groups_and_those_that_are_there_are_always_taken(
    groups_max: int, has_room: bool
) -> None:
    sessions = taken(take(), groups_max=groups_max)
    expected = f"more than {groups_max} groups{NO_ROOM}"
    assert sessions.objection_to(take(group="h")) == ("" if has_room else expected)
    assert sessions.objection_to(take(session="t")) == ""


# -- freed sources, forgotten groups


@pytest.mark.parametrize("has_positions", [False, True])
def test_the_next_take_of_any_group_has_a_freed_input_in_the_generation_that_was_kept(
    has_positions: bool,
) -> None:
    """Where positions are initialised, since these only rise; everything of other inputs stays."""
    sessions = taken(take(named(LINES, "lines", 3), named(LINES_1, "lines", 3), named(WORDS, "words", 3)))
    sessions.free_sources([LINES, LINES_1], {LINES: 4} if has_positions else {})
    kept = {LINES: SourceGeneration(FREE, "", "", 4, position_at(4, 0))} if has_positions else {}
    assert sessions.sources == {**kept, WORDS: entry("words", 3)}
    assert sessions.sources_of("g") == [(WORDS, entry("words", 3))]
    other = take(named(LINES, "orders", 0, 9), group="h")
    assert sessions.objection_to(other) == ""
    sessions.record_take(other)
    assert sessions.sources[LINES] == entry("orders", 4 if has_positions else 0, 9, group="h")
    assert sessions.objection_to(take(named(LINES, "lines"))) == "input 1 is of group h, not of g"
    assert sessions.objection_to(take(named(WORDS, "words"), group="h")) == "input 2 is of group g, not of h"


@pytest.mark.parametrize(("generation", "begins_in"), [(3, 4), (4, 4), (5, 5)])
def test_a_freed_source_goes_on_where_it_was_unless_a_take_knows_of_a_later_generation(
    generation: int, begins_in: int
) -> None:
    sessions = taken(take(named(LINES, "lines", 3)))
    sessions.free_sources([LINES], {LINES: 4})
    sessions.record_take(take(named(LINES, "lines", generation, 9)))
    assert sessions.sources[LINES] == entry("lines", begins_in, 9)


def test_a_forgotten_group_leaves_nothing_in_the_line_and_the_others_their_order() -> None:
    sessions = taken(take(), take(group="h"), take(group="i"))
    for group, now_ms in (("h", 5), ("g", 6), ("i", 7), ("g", 8)):
        sessions.record_tick(Session(group, 1, "s"), now_ms)
    sessions.set_barrier(Barrier(1, 1))
    sessions.forget_group("g")
    assert sessions.groups.keys() == {"h", "i"}
    line = [(item.session.group, item.is_take, item.now_ms, item.barrier) for item in sessions.queue]
    barrier = Barrier(1, 1)
    assert line == [
        ("h", True, 0, barrier),
        ("i", True, 0, barrier),
        ("h", False, 5, barrier),
        ("i", False, 7, barrier),
    ]
    sessions.forget_group("unknown")
    assert len(sessions.queue) == 4
    assert [item.session.group for item in sessions.pop_reached(barrier)] == ["h", "i", "h", "i"]


def test_a_session_is_shared_until_its_clock_has_moved_on() -> None:
    """It is told of those alone of which two processes may live; a restore tells it again."""
    sessions = taken(take(), take(group="h"), take())
    first, other = Session("g", 1, "s"), Session("h", 1, "s")
    assert sessions.shared_until_ms() == {first: SIBLING_MS}
    sessions.record_tick(first, SIBLING_MS - 1)
    assert sessions.shared_until_ms() == {first: SIBLING_MS}
    sessions.record_tick(first, SIBLING_MS)
    assert sessions.shared_until_ms() == {}
    for stranger in (Session("unknown", 1, "s"), Session("g", 9, "t")):
        sessions.set_shared_until(stranger, 77)
        assert sessions.shared_until_ms() == {}
    sessions.set_shared_until(other, 5)
    assert sessions.shared_until_ms() == {other: 5}
