"""What `dlq show` says of a letter: all of it, of any size, and of no other letter anything."""

from __future__ import annotations

import pytest

from acker.kafka.port import TimestampType
from replay.records.letters import LetterAction
from replay.records.record_time import RecordTime
from spout.picture import database, letter_tables
from spout.picture.loader import PicturePart
from spout.questions.letters import details_of
from tests.support.pictures import picture_of, rows_of, values_of
from tests.support.worlds.letters_world import (
    HOUR_MS,
    NOW_MS,
    SENTENCES,
    TOPICS,
    Kind,
    LettersWorld,
    recorded_details,
)


@pytest.fixture
def world() -> LettersWorld:
    return LettersWorld()


def test_a_payload_of_any_size_is_whole(world: LettersWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture that people ask leaves it out, since a query could not read it."""
    monkeypatch.setattr(letter_tables, "PAYLOAD_BYTES_MAX", 1)
    monkeypatch.setattr(database, "VALUE_BYTES_MAX", 1_000)
    value = b"\xff" * 5_000
    places = [world.let_die(SENTENCES, 0, Kind(), HOUR_MS, b"k", value) for _ in range(2)]
    for details in details_of(world.log, TOPICS, places):
        assert details["payload"] == "%FF" * len(value)
        assert details["payload_bytes"] == len(value)


@pytest.mark.parametrize(
    ("time_ms", "shown"),
    [
        (1_700_000_000_000_000, "1700000000000000 ms after 1970"),
        (-(1 << 60), "1152921504606846976 ms before 1970"),
        (1_782_864_000_987, "2026-07-01T00:00:00.987Z"),
        (0, "1970-01-01T00:00:00Z"),
    ],
)
def test_a_time_that_no_calendar_has_is_shown_and_is_a_hole_of_a_picture(
    world: LettersWorld, time_ms: int, shown: str
) -> None:
    """A producer may count microseconds; somebody who looks for it needs the number."""
    time = RecordTime(time_ms, TimestampType.CREATED)
    letter = world.let_die(SENTENCES, 0, Kind(), HOUR_MS, b"k", record_time=time)
    other = world.let_die(SENTENCES, 0, Kind(), HOUR_MS, b"k")
    details = details_of(world.log, TOPICS, [letter, other])
    assert details[0]["timestamp"] == shown
    assert details[1]["timestamp"] != shown
    made = picture_of(world.log, TOPICS, NOW_MS)
    holes = values_of(made, "SELECT why FROM unknown WHERE what = 'letters.record_at'")
    assert [why.partition(": ")[2] for (why,) in holes] == [shown] * ("1970" in shown and "Z" not in shown)


def test_only_letters_that_are_named_are_kept(world: LettersWorld) -> None:
    """Behind a letter there may be millions of others, which would all be in memory."""
    letters = [world.let_die(SENTENCES, 0, Kind(), HOUR_MS, b"%d" % number) for number in range(4)]
    for letter in letters[1:3]:
        world.handle(letter, LetterAction.DROPPED, "r1")
    world.begin_redrive(SENTENCES, "r1")
    made = picture_of(
        world.log,
        TOPICS,
        NOW_MS,
        parts={PicturePart.LETTERS, PicturePart.LETTER_DETAILS},
        letter_places={"sentences": frozenset({letters[1], "sentences/0@103"})},
    )
    assert values_of(made, "SELECT key, handled FROM letters") == [("1", "DROPPED"), ("3", None)]
    assert values_of(made, "SELECT redrive, handled FROM redrives") == [("r1", 2)]


def test_a_picture_has_what_the_command_shows() -> None:
    world = recorded_details()
    made = picture_of(world.log, TOPICS, NOW_MS)
    (row,) = rows_of(made, "SELECT * FROM letters WHERE partition = 1 AND topic = 'sentences.g.dlq'")
    (details,) = details_of(world.log, TOPICS, [f"{SENTENCES}/1@0"])
    for column, field in (
        ("cause", "cause"),
        ("abandoned", "abandoned"),
        ("timed_out", "timed_out"),
        ("payload_bytes", "payload_bytes"),
        ("letter_bytes", "bytes"),
        ("stack", "stack"),
    ):
        assert row[column] == details[field], column
    assert row["consumer_group"] == "g\x1b[2J"
    names = [header["name"] for header in details["windhover"]]
    assert names[:2] == ["windhover.dead", "windhover.origin"]
