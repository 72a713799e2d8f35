"""An acker partition with more open ranges than its State may have: it waits, and never ends of it."""

from __future__ import annotations

import pytest

from acker.errors import CodecError
from acker.ledger.output import AckerEventKind
from acker.service import state as state_module
from acker.service.state import (
    State,
    StatePart,
    StoredEmission,
    StoredSession,
    encode_state,
    parts_of,
    state_codec,
    unpack_state,
)
from acker.service.view import ViewReader
from tests.support.worlds.acker_world import TIMEOUT_MS, TOPICS, World, Writer

RANGES_MAX = 20
BATCH = 10
"""Roots of each range."""


@pytest.fixture(autouse=True)
def few_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a State hold few ranges and other items: sessions and lanes are among them."""
    monkeypatch.setattr(state_module, "STATE_ITEMS_MAX", RANGES_MAX)


def writer_with(world: World, ranges: int) -> Writer:
    """Let a session emit ranges, each in an init of its own."""
    writer = world.session()
    writer.take()
    world.settle()
    emit(world, writer, 0, ranges)
    return writer


def emit(world: World, writer: Writer, first: int, ranges: int) -> None:
    for number in range(first, first + ranges):
        writer.init((number * BATCH, (number + 1) * BATCH))
    world.settle()


def events(world: World, kind: AckerEventKind) -> list[str]:
    return [event.detail for event in world.events if event.kind is kind]


def test_a_state_that_is_half_full_is_named_once_until_it_was_clearly_emptier() -> None:
    """O1931: with what takes the room and the cure."""
    world = World()
    writer = writer_with(world, RANGES_MAX // 2)
    [text] = events(world, AckerEventKind.FILLING)
    assert "10 live ranges" in text
    assert "windhover roots" in text
    writer.acks(runs=[(0, BATCH)])
    world.settle()
    emit(world, writer, 10, 1)
    assert len(events(world, AckerEventKind.FILLING)) == 1
    writer.acks(runs=[(BATCH, 8 * BATCH)], seq=2)
    world.settle()
    emit(world, writer, 11, 8)
    assert len(events(world, AckerEventKind.FILLING)) == 2
    view = ViewReader(world.writer_log, TOPICS, 1, world.limits).view(0)
    assert view is not None
    assert view.size.share >= 0.5


def test_a_full_state_holds_verdicts_back_until_acks_make_room() -> None:
    """O1932: the acker lives on, also behind a restart, and nothing is lost or said twice."""
    world = World()
    writer = writer_with(world, RANGES_MAX - 2)
    emit(world, writer, RANGES_MAX - 2, 10)
    [text] = events(world, AckerEventKind.FULL)
    assert "28 live ranges" in text
    assert "windhover release" in text
    assert list(world.status().standing) == [f"{TOPICS.state}/0"]
    before = len(world.read(TOPICS.verdict))
    writer.acks(runs=[(0, 2 * BATCH)])
    world.settle()
    assert len(world.read(TOPICS.verdict)) == before, "still too large"
    for _ in range(2):
        world.crash()
        world.settle()
    assert world.status().open_roots == 26 * BATCH
    writer.acks(runs=[(2 * BATCH, 15 * BATCH)], seq=2)
    world.settle()
    assert world.status().open_roots == 13 * BATCH
    assert dict(world.status().standing) == {}
    assert world.of() == dict.fromkeys(range(15 * BATCH), "ACKED")
    assert events(world, AckerEventKind.GOES_ON)[-1].startswith("State is small enough again")


def test_timeouts_make_room_in_a_full_state() -> None:
    """O1932: ticks are read on, so sessions that hold everything open do not hold the acker up for good."""
    world = World()
    writer = writer_with(world, RANGES_MAX + 5)
    assert events(world, AckerEventKind.FULL)
    writer.tick(2 * TIMEOUT_MS + 1)
    world.settle()
    assert world.status().open_roots == 0
    assert world.of() == dict.fromkeys(range((RANGES_MAX + 5) * BATCH), "TIMED_OUT")


def test_a_takeover_makes_room_in_a_full_state() -> None:
    """O1933: `windhover release` is such a one, and the way out where nothing else closes a range."""
    world = World()
    writer_with(world, RANGES_MAX + 5)
    world.crash()
    world.settle()
    assert list(world.status().standing) == [f"{TOPICS.state}/0"]
    world.session(session="s2", epoch=2).take()
    world.settle()
    assert world.status().open_roots == 0
    assert dict(world.status().standing) == {}
    assert set(world.of().values()) == {"ABANDONED"}


def test_what_readers_count_is_counted_by_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """O1902: emissions and sessions of a State count together; one more than may be read is not written."""
    few = 20_000
    monkeypatch.setattr(state_module, "STATE_ITEMS_MAX", few)
    emission = StoredEmission(0, "sentences", "id" * 11, 1 << 40, 1 << 40, TIMEOUT_MS)
    session = StoredSession("g", 1, "s", True, True, 1 << 40, 1 << 40)

    def state(emissions: int) -> State:
        return State(0, 1, 0, 0, 0, 0, 0, (), (session,), (), (), (), (emission,) * emissions, b"")

    parts: dict[int, StatePart] = {part.part: part for part in parts_of(state_codec(), state(few - 1))}
    assert unpack_state(state_codec(), parts) == state(few - 1)
    assert encode_state(state_codec(), state(few)).size.share > 1
    with pytest.raises(CodecError, match="20,001 other items"):
        parts_of(state_codec(), state(few))
