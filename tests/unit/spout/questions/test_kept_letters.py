"""Dead letters that a page keeps in a file: what it shows is what a reader without a file shows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from acker.config.settings import Input
from acker.config.topics import Topics, parse
from acker.errors import NoPicture, NoRoom, TopicError, Unreachable
from acker.kafka.port import Outgoing, TopicPartition
from replay.records.letters import Filter, LetterAction
from spout.picture import letter_tables
from spout.picture.database import open_picture
from spout.questions import kept_letters
from spout.questions.kept_letters import KeptLetters
from spout.questions.letters import ReadsLetters, letters_read
from tests.support.memory.cluster import NoFaults
from tests.support.page_server import client_of
from tests.support.worlds.letters_world import (
    DROPPED,
    GONE,
    HOUR_MS,
    NOW_MS,
    ORDERS,
    SENTENCES,
    TIMED_OUT,
    TOPICS,
    Kind,
    LettersWorld,
    recorded_letters,
)

EVENTS = ("die", "die", "die", "handle", "other", "delete", "again", "grow", "restart", "configure")
KINDS = (Kind(), Kind(error="KeyError"), TIMED_OUT, GONE, DROPPED)
FILTERS = (
    Filter(),
    Filter(handled=True),
    Filter(error="KeyError"),
    Filter(since_ms=NOW_MS - 2 * HOUR_MS),
)


def topics_of(**topic_by_input: str) -> Topics:
    """Return a topics.yaml with these inputs, each with its dead-letter topic."""
    lines = [
        f"  {name}: {{id: {id}, group: g, partitions: 2, dead_letter: {{topic: {topic}}}}}"
        for id, (name, topic) in enumerate(topic_by_input.items(), start=1)
    ]
    text = "\n".join(["acker: {partitions: 2}", "inputs:", *lines, ""])
    return parse(text, file="topics.yaml", environ={})


SWAPPED = topics_of(sentences=ORDERS, orders=SENTENCES)
CONFIGURATIONS = (
    TOPICS,
    SWAPPED,
    topics_of(sentences=SENTENCES),
    topics_of(sentences=ORDERS),
    topics_of(lines=SENTENCES, orders=ORDERS),
)


class Unread(NoFaults):
    """A broker that says where logs end, and gives no record."""

    def before(self, operation: str) -> None:
        if operation == "poll":
            raise Unreachable("no broker gives a record")


class Answer(NamedTuple):
    """What a page shows of letters."""

    rows: list[dict[str, Any]]
    counts: list[dict[str, Any]]
    total: int
    left_unread: list[str]


def answer(
    world: LettersWorld,
    reads: ReadsLetters,
    meant: Filter,
    topics: Topics = TOPICS,
    inputs: Sequence[str] | None = None,
) -> Answer:
    """Ask for the letters of inputs; None: of all."""
    filters: list[tuple[Input, Filter]] = [
        (input, meant) for input in topics.inputs.values() if inputs is None or input.name in inputs
    ]
    with reads(world.cluster.log(), topics, filters) as letters:
        return Answer(letters.rows(), letters.counts(NOW_MS), letters.total, list(letters.left_unread))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "letters"


@pytest.fixture
def kept(path: Path) -> Iterator[KeptLetters]:
    with closing(KeptLetters(path)) as kept:
        yield kept


def compared(
    world: LettersWorld,
    kept: KeptLetters,
    topics: Topics = TOPICS,
    inputs: Sequence[str] | None = None,
) -> None:
    """Require the same answers with the file and without it."""
    for meant in FILTERS:
        expected = answer(world, letters_read, meant, topics, inputs)
        assert answer(world, kept.letters_read, meant, topics, inputs) == expected


def change(path: Path, statement: str) -> None:
    """Change something in a file that no page has."""
    with closing(sqlite3.connect(path)) as file:
        file.execute(statement)
        file.commit()


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The places of the records that are read for the tables."""
    places: list[str] = []
    parse_letter = letter_tables.parse_letter

    def counted(record: Any, **options: bool) -> Any:
        places.append(record.place)
        return parse_letter(record, **options)

    monkeypatch.setattr(letter_tables, "parse_letter", counted)
    return places


def test_of_a_recorded_installation_the_file_has_what_the_topics_have(kept: KeptLetters) -> None:
    world = recorded_letters()
    compared(world, kept)
    filters = [(input, Filter()) for input in TOPICS.inputs.values()]
    with kept.letters_read(world.log, TOPICS, filters) as letters:
        kept_others = letters.other_records
    with letters_read(world.log, TOPICS, filters) as letters:
        assert kept_others == letters.other_records > 0


def test_a_page_that_starts_again_reads_only_what_is_new(path: Path, parsed: list[str]) -> None:
    world = LettersWorld()
    first = world.let_die(SENTENCES, 0, Kind(), HOUR_MS, b"k")
    with closing(KeptLetters(path)) as kept:
        answer(world, kept.letters_read, Filter())
    assert parsed == [first]
    parsed.clear()
    second = world.let_die(SENTENCES, 0, Kind(), HOUR_MS, b"k")
    with closing(KeptLetters(path)) as kept:
        seen = answer(world, kept.letters_read, Filter())
        assert parsed == [second]
        answer(world, kept.letters_read, Filter())
    assert parsed == [second]
    assert [row["letter"] for row in seen.rows] == [first, second]


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_to_the_topics_the_file_has_what_they_have(path: Path, seed: int) -> None:
    random, world, topics = Random(seed), LettersWorld(), TOPICS
    letters = [world.let_die(SENTENCES, 0, Kind(), HOUR_MS, b"k")]
    kept = KeptLetters(path)
    for _ in range(25):
        topic, partition = random.choice([SENTENCES, ORDERS]), random.randrange(2)
        match random.choice(EVENTS):
            case "die":
                age_ms = random.randrange(1, 5 * HOUR_MS)
                letters.append(world.let_die(topic, partition, random.choice(KINDS), age_ms, b"k"))
            case "handle":
                world.handle(random.choice(letters), random.choice(list(LetterAction)))
            case "other":
                world.put(Outgoing(topic, partition, b"somebody else's"))
            case "delete":
                place = TopicPartition(topic, partition)
                end = world.log.ends([place])[place]
                world.log.delete_before({place: random.randint(0, end)})
            case "again":
                world.cluster.delete_topic(topic)
                world.cluster.create_topic(topic, 2)
            case "grow":
                count = world.log.topics([topic])[topic].partitions
                world.cluster.add_partitions(topic, count + 1)
            case "restart":
                kept.close()
                kept = KeptLetters(path)
            case "configure":
                topics = random.choice(CONFIGURATIONS)
        if random.random() < 0.5:
            compared(world, kept, topics, random.choice([None, [next(iter(topics.inputs))]]))
    compared(world, kept, topics)
    kept.close()


def test_who_was_killed_before_the_marks_were_written_has_each_letter_once(path: Path) -> None:
    world = LettersWorld()
    for _ in range(3):
        world.let_die(SENTENCES, 0, Kind(), HOUR_MS, b"k")
    with closing(KeptLetters(path)) as kept:
        answer(world, kept.letters_read, Filter())
    change(path, "UPDATE marks SET next_offset = 1 WHERE next_offset = 3")
    with closing(KeptLetters(path)) as kept:
        compared(world, kept)


def test_a_log_that_ends_before_its_mark_is_read_from_its_start(path: Path) -> None:
    world = LettersWorld()
    world.let_die(SENTENCES, 0, Kind(), HOUR_MS, b"k")
    with closing(KeptLetters(path)) as kept:
        answer(world, kept.letters_read, Filter())
    change(path, "UPDATE marks SET next_offset = 9 WHERE next_offset = 1")
    change(path, "UPDATE letters SET error = 'of the log that was cut'")
    with closing(KeptLetters(path)) as kept:
        compared(world, kept)


def test_a_log_that_was_cut_and_grows_while_nobody_reads_is_read_from_its_start(path: Path) -> None:
    """The first reading forgets what it had, and fails; the next one has to forget the mark, too."""
    world = LettersWorld()
    world.let_die(SENTENCES, 0, Kind(), HOUR_MS, b"k")
    with closing(KeptLetters(path)) as kept:
        answer(world, kept.letters_read, Filter())
    change(path, "UPDATE marks SET next_offset = 2 WHERE next_offset = 1")
    with closing(KeptLetters(path)) as kept:
        filters = [(input, Filter()) for input in TOPICS.inputs.values()]
        with (
            pytest.raises(Unreachable, match="no broker"),
            kept.letters_read(world.cluster.log(Unread()), TOPICS, filters),
        ):
            pass
        world.let_die(SENTENCES, 0, Kind(), HOUR_MS, b"k")
        compared(world, kept)


def test_of_a_topic_that_was_created_again_nothing_is_kept(kept: KeptLetters) -> None:
    world = LettersWorld()
    world.let_die(SENTENCES, 0, Kind(), HOUR_MS, b"k")
    compared(world, kept)
    world.cluster.delete_topic(SENTENCES)
    world.cluster.create_topic(SENTENCES, 2)  # with as many partitions, so its id alone tells
    world.let_die(SENTENCES, 0, Kind(error="KeyError"), HOUR_MS, b"k")
    compared(world, kept)


def test_an_input_with_another_name_has_its_letters(path: Path, kept: KeptLetters) -> None:
    world = LettersWorld()
    world.let_die(SENTENCES, 0, Kind(), HOUR_MS, b"k")
    compared(world, kept)
    lines = "lines: {id: 1, topic: sentences, group: g, partitions: 2}"
    text = f"acker: {{partitions: 2}}\ninputs:\n  {lines}\n"
    renamed = parse(text, file="topics.yaml", environ={})
    compared(world, kept, renamed)
    assert answer(world, kept.letters_read, Filter(), renamed).rows[0]["input"] == "lines"


@pytest.mark.parametrize(
    ("topics_then", "topics_now"),
    [
        (topics_of(sentences=SENTENCES), topics_of(sentences=ORDERS)),
        (TOPICS, SWAPPED),
        (TOPICS, topics_of(lines=ORDERS, sentences=SENTENCES)),
    ],
)
def test_letters_of_a_topic_that_an_input_had_before_are_forgotten(
    path: Path, topics_then: Topics, topics_now: Topics
) -> None:
    """They are read again if topics.yaml is changed back, with those that died meanwhile."""
    world = LettersWorld()
    for topic in (SENTENCES, ORDERS):
        world.let_die(topic, 0, Kind(), HOUR_MS, b"k")
    for topics in (topics_then, topics_now, topics_then):
        with closing(KeptLetters(path)) as kept:
            # one input alone first: the other ones' letters are not read anew with it
            compared(world, kept, topics, ["sentences"])
            compared(world, kept, topics)
        world.let_die(ORDERS, 1, Kind(error="KeyError"), HOUR_MS, b"k")


def test_a_topic_that_no_input_has_any_more_takes_no_room(path: Path, kept: KeptLetters) -> None:
    world = LettersWorld()
    world.let_die(ORDERS, 0, Kind(), HOUR_MS, b"k")
    compared(world, kept)
    compared(world, kept, topics_of(sentences=SENTENCES))
    kept.close()
    with closing(sqlite3.connect(path)) as file:
        for table in ("letters", "marks"):
            rows = file.execute(f"SELECT count(*) FROM {table} WHERE topic = ?", [ORDERS]).fetchone()
            assert rows == (0,), table


def test_an_answer_about_a_part_is_none_and_the_next_one_is_whole(kept: KeptLetters) -> None:
    world = LettersWorld()
    world.let_die(ORDERS, 0, Kind(), HOUR_MS, b"k")
    world.let_die(ORDERS, 1, Kind(), HOUR_MS, b"k")
    world.cluster.lose_leader(ORDERS, 1)
    with pytest.raises(Unreachable, match="has no leader"):
        answer(world, kept.letters_read, Filter())
    world.cluster.elect_leader(ORDERS, 1)
    world.cluster.delete_topic(ORDERS)
    with pytest.raises(TopicError, match="does not exist"):
        answer(world, kept.letters_read, Filter())
    world.cluster.create_topic(ORDERS, 2)
    world.let_die(ORDERS, 0, Kind(), HOUR_MS, b"k")
    compared(world, kept)


def test_letters_beyond_the_room_are_not_read_and_a_note_says_so(
    kept: KeptLetters, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = LettersWorld()
    world.let_die(SENTENCES, 0, Kind(), HOUR_MS, b"k")
    monkeypatch.setattr(kept_letters, "KEPT_BYTES_MAX", 1)
    seen = answer(world, kept.letters_read, Filter())
    assert seen.total == 0
    assert seen.left_unread[0].startswith(f"{SENTENCES}: these records are not read: the picture has")
    monkeypatch.undo()
    compared(world, kept)


def test_the_file_is_for_its_owner_and_for_one_page(path: Path, kept: KeptLetters) -> None:
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(NoRoom, match="database is locked"):
        KeptLetters(path)


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_file_that_others_may_read_is_for_its_owner_from_now_on(path: Path, is_begun: bool) -> None:
    path.touch()
    if is_begun:
        KeptLetters(path).close()
    path.chmod(0o644)
    KeptLetters(path).close()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"some notes", b"SQLite format 3\0" + b"\0" * 200])
def test_a_file_with_something_else_is_refused_and_stays(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(NoPicture, match="is no file in which a page keeps letters"):
        KeptLetters(path)
    assert path.read_bytes() == content
    with pytest.raises(NoPicture, match="is a folder"):
        KeptLetters(path.parent)


def test_a_damaged_file_is_an_error_that_says_what_to_do(path: Path) -> None:
    KeptLetters(path).close()
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"\xff" * (len(content) - 100))
    with pytest.raises(NoRoom, match="delete the file; it is made anew"):
        KeptLetters(path)


def test_a_file_of_another_version_is_made_anew(path: Path) -> None:
    world = LettersWorld()
    world.let_die(SENTENCES, 0, Kind(), HOUR_MS, b"k")
    with closing(KeptLetters(path)) as kept:
        answer(world, kept.letters_read, Filter())
    change(path, "ALTER TABLE letters DROP COLUMN stack")
    with closing(KeptLetters(path)) as kept:
        compared(world, kept)


def test_nobody_takes_the_file_for_a_picture(path: Path) -> None:
    KeptLetters(path).close()
    with pytest.raises(NoPicture, match="is no picture of Windhover"):
        open_picture(path)


def test_the_pages_show_with_the_file_what_they_show_without_it(kept: KeptLetters) -> None:
    world = recorded_letters()
    for address in ("/letters", "/letters?all=on&error=ValueError", "/redrives/new?input=orders"):
        answers = []
        for reads in (letters_read, kept.letters_read):
            client, _jobs = client_of(world, reads_letters=reads)
            answers.append(client.get(address, headers={"accept": "application/json"}).json())
        assert answers[0] == answers[1]
        assert answers[0]
