"""What `dlq stats` and `dlq list` say of the picture of letters: filters, limits, what nobody can read."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from acker.config import topics as topics_yaml
from acker.errors import TopicError, Unreachable
from replay.records.letters import Filter, KeyIs, LetterAction
from spout.inspect.dead_letters import filters_of_inputs
from spout.picture import letter_tables, reading
from spout.picture.database import Picture
from spout.picture.loader import PicturePart
from spout.questions import letters as letter_questions
from spout.questions.letters import letters_read
from spout.ui.jobs import Actions
from tests.support.memory.cluster import MemoryLog, NoFaults
from tests.support.page_server import client_of
from tests.support.pictures import picture_of, values_of
from tests.support.recorded import printed_by
from tests.support.worlds.letters_world import (
    GONE,
    HOUR_MS,
    NOW_MS,
    ORDERS,
    SENTENCES,
    TOPICS,
    Kind,
    LettersWorld,
    recorded_letters,
)

INPUTS = list(TOPICS.inputs.values())
EVERYTHING = Filter(handled=True)


def counted(world: LettersWorld, meant: Filter = EVERYTHING, log: MemoryLog | None = None) -> dict[str, int]:
    """Count letters; return how many there are by kind and value, such as ``key k``."""
    with letters_read(log or world.log, TOPICS, [(input, meant) for input in INPUTS]) as letters:
        rows = letters.counts(NOW_MS)
    return {f"{row['of']} {row['value']}": row["letters"] for row in rows}


@pytest.fixture
def world() -> LettersWorld:
    return LettersWorld()


def test_what_a_person_gave_is_a_value_and_no_part_of_a_query(world: LettersWorld) -> None:
    world.let_die(SENTENCES, 0, Kind(), HOUR_MS, b"k")
    quoting = "' OR 1 OR '"
    assert counted(world, Filter(error=quoting)) == {}
    assert counted(world, Filter(key=KeyIs(quoting.encode()))) == {}
    world.let_die(SENTENCES, 0, Kind(error=quoting), HOUR_MS, b"k")
    assert counted(world, Filter(error=quoting))["input sentences"] == 1


def test_the_key_of_a_record_that_could_not_be_read_is_not_the_key_null(world: LettersWorld) -> None:
    world.let_die(SENTENCES, 0, GONE, HOUR_MS, None)
    world.let_die(SENTENCES, 0, Kind(), HOUR_MS, None)
    assert counted(world)["key None"] == 1
    assert counted(world, Filter(key=KeyIs(None)))["input sentences"] == 1


def test_marks_are_known_however_the_letters_are_written(
    world: LettersWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = [world.let_die(SENTENCES, 0, Kind(), HOUR_MS, b"k") for _ in range(7)]
    for letter in letters[2:5]:
        world.handle(letter, LetterAction.DROPPED)
    for rows_buffered in (1, 3, 1_000):
        monkeypatch.setattr(letter_tables, "ROWS_BUFFERED", rows_buffered)
        assert (counted(world)["handled DROPPED"], counted(world, Filter())["handled no"]) == (3, 4)


def test_a_death_at_no_time_of_a_calendar_has_no_age(world: LettersWorld) -> None:
    """Its writer may count microseconds; such a letter was taken for one of this minute."""
    world.let_die(SENTENCES, 0, Kind(), NOW_MS - 1_782_900_000_000_000, b"k")
    with letters_read(world.log, TOPICS, [(input, EVERYTHING) for input in INPUTS]) as letters:
        rows = letters.counts(NOW_MS)
    (age,) = [row for row in rows if row["of"] == "age"]
    assert (age["value"], age["letters"], age["first"]) == ("unknown", 1, None)


def test_only_the_dead_letters_are_read(world: LettersWorld) -> None:
    world.let_die(SENTENCES, 0, Kind(), HOUR_MS, b"k")
    picture = picture_of(world.log, TOPICS, NOW_MS, parts={PicturePart.LETTERS})
    assert values_of(picture, "SELECT count(*), count(history) FROM letters") == [(1, 0)]
    for topic in ("_ack_init", "_ack_verdict", "_ack_state", "_ack_due", "_ack_quarantine"):
        world.cluster.delete_topic(topic)
    picture = picture_of(world.log, TOPICS, NOW_MS, parts={PicturePart.LETTERS, PicturePart.LETTER_DETAILS})
    assert values_of(picture, "SELECT count(*), count(history) FROM letters") == [(1, 1)]
    assert values_of(picture, "SELECT * FROM unknown") == []


class Silent(NoFaults):
    """Readers get nothing, as of a broker that is slow."""

    def before(self, operation: str) -> None:
        if operation == "poll":
            raise Unreachable("poll: no broker answers")


def test_numbers_of_a_part_are_not_shown_as_those_of_all() -> None:
    world = recorded_letters()
    with pytest.raises(Unreachable, match="no broker answers"):
        counted(world, log=world.cluster.log(Silent()))
    world.cluster.lose_leader(ORDERS, 1)
    with pytest.raises(Unreachable, match=r"orders\.h\.dlq/1 has no leader"):
        counted(world)
    world.cluster.delete_topic(SENTENCES)
    with pytest.raises(TopicError, match=r"sentences\.g\.dlq of input sentences does not exist"):
        counted(world)


def test_letters_beyond_the_memory_are_not_counted_and_a_note_says_so(
    world: LettersWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(100):
        world.let_die(SENTENCES, 0, Kind(), HOUR_MS, b"k")
    world.let_die(SENTENCES, 0, Kind(error="KeyError"), HOUR_MS, b"k")
    monkeypatch.setattr(reading, "PIECE_RECORDS", 10)
    monkeypatch.setattr(letter_tables, "ROWS_BUFFERED", 1)
    with closing(Picture(has_payloads=False)) as empty:
        monkeypatch.setattr(letter_questions, "LETTERS_BYTES_MAX", empty.size_bytes + 1)
    printed = printed_by(world.cluster, "dlq stats -o json --input sentences")
    rows = json.loads("\n".join(printed.out))
    (count,) = [row["letters"] for row in rows if row["of"] == "input"]
    assert 0 < count < 100
    (note,) = printed.err
    assert note.startswith(f"note: sentences.g.dlq/0@{count}: these records are not read: the picture has")
    client, _jobs = client_of(world, actions=Actions("secret", "ann"))
    trial = client.get("/redrives/new?input=sentences").text
    assert f"{count} letters would be emitted again" in trial
    assert "these records are not read: the picture has" in trial
    as_json = {"accept": "application/json"}
    assert client.get("/redrives/new?input=sentences", headers=as_json).json()["notes"] == [
        note.removeprefix("note: ")
    ]
    form = {"input": "sentences", "why": "repaired", "token": "secret"}
    # the letter that died of a KeyError lies behind the limit
    for error in ("", "KeyError"):
        refused = client.post(
            "/redrives", data={**form, "error": error}, headers={"origin": "http://localhost"}
        )
        assert refused.status_code == 404
        assert "not all letters were counted" in refused.text
        assert "<code>windhover dlq replay</code>" in refused.text


def test_a_letter_that_was_handled_is_left_out(world: LettersWorld) -> None:
    letter = world.let_die(SENTENCES, 0, Kind(), HOUR_MS, b"k")
    assert counted(world, Filter())["input sentences"] == 1
    world.handle(letter, LetterAction.REPLAYED)
    assert counted(world, Filter()) == {}


def test_a_place_means_the_letters_of_its_input_alone() -> None:
    """Two groups read one topic, so both have a letter of the same record."""
    text = "inputs: {%s: {id: 1, topic: lines, group: g}, %s: {id: 2, topic: lines, group: h}}"
    shared = topics_yaml.parse(text % ("one", "other"), file="topics.yaml", environ={})
    world = LettersWorld(shared)
    for input in shared.inputs.values():
        world.let_die(input.dead_letter.topic, 0, Kind(), HOUR_MS, b"k")
    inputs = list(shared.inputs.values())
    origins_of = {}
    for place in ("lines/0@100", "other/0@100", "lines.g.dlq/0@0"):
        filters = filters_of_inputs(inputs, [place, "one/0@7"], EVERYTHING)
        with letters_read(world.log, shared, filters) as letters:
            origins_of[place] = [(row["input"], row["origin"]) for row in letters.rows()]
    one, other = ("one", "lines/0@100"), ("other", "lines/0@100")
    assert origins_of == {"lines/0@100": [one, other], "other/0@100": [other], "lines.g.dlq/0@0": [one]}


def test_of_a_named_letter_only_its_partition_is_read_and_from_there_on(world: LettersWorld) -> None:
    """Before its offset there may be millions of others; here they would be counted as strangers."""
    world.put_strangers(SENTENCES, [b"one", b"two"])
    letter = world.let_die(SENTENCES, 0, Kind(), HOUR_MS, b"k")
    world.put_strangers(ORDERS, [b"three"])
    filters = filters_of_inputs(INPUTS, [letter], EVERYTHING)
    with letters_read(world.log, TOPICS, filters) as letters:
        assert (letters.total, letters.other_records) == (1, 0)


def test_of_too_many_letters_the_last_ones_are_listed(world: LettersWorld) -> None:
    for age_ms in (3_000, 1_000, 2_000):
        world.let_die(SENTENCES, 0, Kind(), age_ms, b"%d" % age_ms)
    with letters_read(world.log, TOPICS, [(input, EVERYTHING) for input in INPUTS]) as letters:
        assert [row["key"] for row in letters.rows()] == ["3000", "2000", "1000"]
        assert [row["key"] for row in letters.rows(2)] == ["2000", "1000"]
        assert letters.total == 3
