"""What a picture says of the letters that redrives handled: each outcome, and what nobody knows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest

from acker.errors import TopicError
from acker.kafka.port import Log, TopicPartition
from acker.kafka.read_to_end import Follower
from replay.handling import outcomes
from spout.picture.database import Picture
from spout.picture.loader import PictureLoader, PicturePart
from spout.picture.reading import Limits
from spout.questions.redrives import redrive_details, redrive_rows
from tests.support.pictures import picture_of, rows_of, values_of
from tests.support.worlds.letters_world import HOUR_MS, NOW_MS, ORDERS, SENTENCES, TOPICS, Kind
from tests.support.worlds.redrives_world import RedrivesWorld, recorded_redrives

COUNTS = "SELECT redrive, outcome, count(*) FROM outcomes GROUP BY redrive, outcome ORDER BY redrive, outcome"


def test_each_letter_of_a_redrive_has_the_outcome_that_its_page_shows() -> None:
    world = recorded_redrives()
    made = picture_of(world.log, TOPICS, NOW_MS)
    for redrive in ("r-old", "r1", "r3", "r4"):
        told = [
            (letter["letter"], letter["outcome"])
            for row in redrive_details(world.log, TOPICS, redrive)
            for letter in row["outcomes"]
        ]
        rows = [row for row in rows_of(made, "outcomes") if row["redrive"] == redrive]
        assert told == [
            (f"{row['topic']}/{row['partition']}@{row['offset']}", row["outcome"]) for row in rows
        ]
    dropped = "SELECT count(*) FROM outcomes WHERE redrive = 'r2' AND outcome IS NULL"
    assert values_of(made, dropped) == [(3,)]
    all_outcomes = {outcome for _redrive, outcome, _count in values_of(made, COUNTS)}
    assert all_outcomes == {None, "ACKED", "DIED", "GONE", "OPEN", "UNKNOWN"}
    assert values_of(made, "SELECT * FROM outcomes WHERE redrive = 'r-nobody'") == []


def test_without_the_copies_of_an_input_its_outcomes_are_a_hole_and_the_rest_is_there() -> None:
    world = recorded_redrives()
    world.cluster.delete_topic(TOPICS.input("sentences").replay_topic)
    made = picture_of(world.log, TOPICS, NOW_MS)
    assert values_of(made, "SELECT DISTINCT input FROM outcomes") == [("orders",)]
    assert values_of(made, "SELECT count(*) FROM redrives") == [(7,)]
    holes = values_of(made, "SELECT topic, why FROM unknown WHERE what = 'outcomes'")
    assert holes == [
        (SENTENCES, "topic sentences.g.replay does not exist; run `windhover topics create`"),
    ]


def test_numbers_of_some_outcomes_are_not_shown_as_those_of_all() -> None:
    world = recorded_redrives()
    world.cluster.delete_topic(TOPICS.input("sentences").replay_topic)
    with pytest.raises(TopicError, match=r"sentences\.g\.replay does not exist"):
        redrive_rows(world.log, TOPICS, list(TOPICS.inputs.values()))
    assert len(redrive_rows(world.log, TOPICS, [TOPICS.input("orders")])) == 2


def test_a_picture_that_follows_has_later_redrives_and_what_became_of_their_letters() -> None:
    world = RedrivesWorld()
    letters = [world.let_die(SENTENCES, 0, Kind(), HOUR_MS, b"k") for _ in range(2)]
    picture = Picture(has_payloads=False)
    loader = PictureLoader(world.log, TOPICS, picture, lambda: 0)
    with closing(picture), closing(loader):
        loader.read(NOW_MS)
        assert values_of(picture, COUNTS) == []
        world.begin(SENTENCES, "r1", HOUR_MS)
        copy = world.replay(letters[0], "r1")
        loader.read(NOW_MS)
        assert values_of(picture, COUNTS) == [("r1", "OPEN", 1)]
        world.settle(copy)
        world.begin(SENTENCES, "r2", HOUR_MS)
        world.replay(letters[1], "r2")
        loader.read(NOW_MS)
        assert values_of(picture, COUNTS) == [("r1", "ACKED", 1), ("r2", "OPEN", 1)]


def test_outcomes_behind_a_limit_are_a_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    world = recorded_redrives()
    passed_ms = [0]

    def slow_follower(log: Log, places: Sequence[TopicPartition], **options: Any) -> Follower:
        passed_ms[0] += 1_000
        return Follower(log, places, read_max=1, **options)

    monkeypatch.setattr(outcomes, "Follower", slow_follower)
    picture = Picture(has_payloads=False)
    limits = Limits(time_ms_max=3_000)
    loader = PictureLoader(world.log, TOPICS, picture, lambda: passed_ms[0], limits=limits)
    with closing(picture), closing(loader):
        loader.read(NOW_MS)
        holes = values_of(picture, "SELECT topic, why FROM unknown WHERE what = 'outcomes'")
        # what is not read yet may be settled
        assert values_of(picture, "SELECT count(*) FROM outcomes WHERE outcome = 'OPEN'") == [(0,)]
    why = "what became of the redrives of {} is not read to its end: the time of one reading is over"
    assert holes == [(SENTENCES, why.format("sentences")), (ORDERS, why.format("orders"))]
    assert list(loader.left_unread)[:1] == [f"{SENTENCES}: {why.format('sentences')}"]


def test_nothing_is_read_of_redrives_once_the_time_of_a_reading_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = recorded_redrives()
    reads: list[str] = []
    monkeypatch.setattr(outcomes.RedriveOutcomes, "read", lambda _: reads.append("read"))
    picture = Picture(has_payloads=False)
    loader = PictureLoader(world.log, TOPICS, picture, lambda: 0, limits=Limits(time_ms_max=0))
    with closing(picture), closing(loader):
        loader.read(NOW_MS)
    assert reads == []


def test_a_record_that_only_redrives_wrote_is_read_without_letters() -> None:
    world = recorded_redrives()
    made = picture_of(world.log, TOPICS, NOW_MS, parts={PicturePart.OUTCOMES})
    assert values_of(made, "SELECT count(*) FROM letters") == [(0,)]
    assert values_of(made, "SELECT DISTINCT handled FROM redrives") == [(None,)]
    whole = picture_of(world.log, TOPICS, NOW_MS)
    assert values_of(made, COUNTS) == values_of(whole, COUNTS)


def test_a_batch_of_copies_that_nobody_can_read_hides_no_other_copy() -> None:
    """Its letters have no copy that anybody can find."""
    world = recorded_redrives()
    place = TopicPartition(TOPICS.input("sentences").replay_topic, 0)
    world.cluster.partition(place).damage(0, 1)
    made = picture_of(world.log, TOPICS, NOW_MS)
    first = "SELECT outcome FROM outcomes WHERE redrive = 'r1' ORDER BY rowid LIMIT 2"
    assert values_of(made, first) == [("UNKNOWN",), ("ACKED",)]
    (hole,) = values_of(made, f"SELECT what, offset FROM unknown WHERE topic = '{place.topic}'")
    assert hole == ("partitions, outcomes", 0)
