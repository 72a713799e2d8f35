"""Dead letters in an operator's hands: found, shown, emitted again, or given up for good; each once."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from acker.errors import Fenced, TopicError, Unreachable, UsageError
from acker.kafka.port import Headers, Outgoing
from acker.notation import parse_bytes, parse_text
from acker.wire.verdict import Verdict
from replay.handling.letter_box import find_letters
from replay.handling.letter_handling import CHUNK_MAX, Left, LetterHandling, Order, RateLimit
from replay.handling.redrive import Redrive, RedriveProgress
from replay.records import headers
from replay.records.dead_letter import DEAD
from replay.records.due import Loss
from replay.records.letters import Filter, KeyIs, LetterAction, parse_letter
from spout.inspect.dead_letters import (
    carry_out,
    filters_of_inputs,
    inputs_named,
    parse_filter,
)
from spout.inspect.letter_rows import (
    LIST,
    PREVIEW_CHARACTERS,
    bytes_field,
    bytes_text,
    loss_row,
    parse_key,
)
from spout.inspect.tables import OutputFormat, absent_text, encoded
from spout.questions.letters import details_of, letters_read
from spout.questions.redrives import redrive_rows
from tests.support.memory.clients import Faults, NoFaults
from tests.support.worlds.replay_world import (
    COPIES,
    LETTERS,
    LIMITS,
    Crash,
    CrashAt,
    FailOnce,
    World,
    header,
    history,
    topics,
)

ONE_LIFE = topics(attempts=1)
PLENTY = 200
INPUT = ONE_LIFE.input("sentences")


@pytest.fixture
def world() -> World:
    return World()


def let_die(world: World, *values: bytes | None, key: bytes | None = None, headers: Headers = ()) -> None:
    """Let records die on their first failure."""
    worker = world.worker(of=ONE_LIFE)
    roots = [world.emit(value, key=key, headers=headers) for value in values]
    world.lose(*roots)
    world.settle(worker)
    worker.close()


def listed(
    world: World, wanted: Filter = Filter(), *places: str  # noqa: B008  # frozen
) -> list[dict[str, Any]]:  # fmt: skip
    """Return the letters that are meant, as rows of the list."""
    filters = filters_of_inputs([INPUT], places, wanted)
    with letters_read(world.cluster.log(), ONE_LIFE, filters) as letters:
        return letters.rows()


def shown(world: World) -> dict[str, Any]:
    """Return all details of the first letter."""
    place = listed(world)[0]["letter"]
    (details,) = details_of(world.cluster.log(), ONE_LIFE, [place])
    return details


def counts(world: World, wanted: Filter, now_ms: int) -> list[dict[str, Any]]:
    """Return how many letters are meant, by kind and value."""
    with letters_read(world.cluster.log(), ONE_LIFE, [(INPUT, wanted)]) as letters:
        return letters.counts(now_ms)


def do(
    world: World, action: LetterAction = LetterAction.REPLAYED, *places: str, faults: Faults | None = None,
    wanted: Filter = Filter(), chunk: int = CHUNK_MAX, name: str = "r",  # noqa: B008  # frozen
) -> RedriveProgress:  # fmt: skip
    """Carry an order out, in transactions of so many letters."""
    redrive = Redrive(
        world.cluster.log(faults),
        ONE_LIFE,
        filters_of_inputs([INPUT], places, wanted),
        Order(action, wanted, "kim", "fixed in 1.3", name),
        RateLimit(None, world.now_ms, chunk),
    )
    return carry_out(redrive, clock=lambda: world.now_ms, sleep_ms=lambda _: None, progress=lambda _: None)


def test_a_letter_tells_what_it_died_of_and_where_it_began(world: World) -> None:
    let_die(world, b"a b", key=b"k", headers=(("trace", b"1"),))
    row = listed(world)[0]
    assert (row["letter"], row["origin"], row["input"]) == (f"{LETTERS}/0@0", "sentences/0@0", "sentences")
    assert (row["dead"], row["error"], row["operator"], row["message"]) == (
        "ATTEMPTS",
        "ValueError",
        "split",
        "bad line",
    )
    assert (row["key"], row["attempts"], row["handled"]) == ("k", 1, "")
    details = shown(world)
    assert (details["payload"], details["payload_bytes"]) == ("a b", 3)
    assert details["headers"] == [{"name": "trace", "value": "1"}]
    assert details["history"][0]["root"] == "sentences/0@0"
    assert details["timestamp"] == "1970-01-01T00:00:00.077Z"
    assert {"name": "windhover.dead", "value": "ATTEMPTS"} in details["windhover"]


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (Filter(error="ValueError"), 1),
        (Filter(error="TIMED_OUT"), 1),
        (Filter(error="KeyError"), 0),
        (Filter(operator="split"), 1),
        (Filter(operator=""), 1),
        (Filter(dead="ATTEMPTS"), 2),
        (Filter(dead="GONE"), 0),
        (Filter(key=KeyIs(b"k")), 1),
        (Filter(key=KeyIs(None)), 1),
        (Filter(key=KeyIs(b"other")), 0),
        (Filter(since_ms=1_000_000), 2),
        (Filter(since_ms=1_000_001), 1),
        (Filter(until_ms=1_000_001), 1),
    ],
)
def test_letters_are_found_by_what_they_died_of_by_key_and_by_time(
    world: World, wanted: Filter, count: int
) -> None:
    let_die(world, b"a", key=b"k")
    world.now_ms += 5_000
    worker = world.worker(of=ONE_LIFE)
    world.lose(world.emit(b"b"), reason=Verdict.TIMED_OUT)
    world.settle(worker)
    assert len(listed(world, wanted)) == count


@pytest.mark.parametrize("key", [b"0xFf", b"\xff"])
def test_a_letter_is_found_by_the_key_that_its_row_shows(world: World, key: bytes) -> None:
    let_die(world, b"a", key=key)
    (letter,) = listed(world)
    shown = letter["key"]
    assert len(listed(world, parse_filter({"key": shown}, world.now_ms))) == 1
    assert not listed(world, parse_filter({"key": "0xfe"}, world.now_ms))


def test_letters_are_found_by_their_own_place_and_by_their_origin_under_both_names(world: World) -> None:
    let_die(world, b"a", b"b", b"c")
    for place in (f"{LETTERS}/0@1", "sentences/0@1"):
        assert [row["origin"] for row in listed(world, Filter(), place)] == ["sentences/0@1"]
    assert not listed(world, Filter(), "sentences/0@7")
    with pytest.raises(UsageError, match="no place of a letter"):
        listed(world, Filter(), "letters/0@1")
    with pytest.raises(UsageError, match="no tracked input"):
        inputs_named(ONE_LIFE, ["nope"])
    assert inputs_named(ONE_LIFE, [LETTERS]) == [INPUT]


def test_a_replayed_letter_is_the_record_as_it_was_and_begins_anew_with_its_history(world: World) -> None:
    """What Windhover and KIP-1191 wrote beside it is gone; key, own headers, time and partition are there."""
    let_die(world, b"a b", key=b"k", headers=(("trace", b"1"), ("trace", b"2")))
    assert do(world).handled_count == 1
    (copy,) = world.copies()
    assert (copy.value, copy.key, copy.partition, copy.timestamp_ms) == (b"a b", b"k", 0, 77)
    assert [(name, value) for name, value in copy.headers if name == "trace"] == [
        ("trace", b"1"),
        ("trace", b"2"),
    ]
    assert not [name for name, _ in copy.headers if name.startswith("__dlq")]
    assert (header(copy, "windhover.origin"), header(copy, "windhover.attempt")) == ("sentences/0@0", "1")
    assert header(copy, "windhover.letter") == f"{LETTERS}/0@0"
    assert header(copy, "windhover.dead") is None
    lineage = headers.parse_lineage(copy.headers, *copy[:3])
    assert (lineage.attempt, lineage.abandoned, lineage.reason) == (1, 0, "FAILED")
    assert [loss["root"] for loss in history(copy)] == ["sentences/0@0"]


def test_a_letter_that_is_replayed_and_dies_again_tells_of_both_lives(world: World) -> None:
    """It has all its attempts again, and the new letter keeps the history of the first life."""
    two = topics(attempts=2, waits="initial: 0s")
    worker = world.worker(of=two)
    world.lose(world.emit(b"a"))
    world.settle(worker)
    world.lose(world.emission_of(world.copies()[-1]))
    world.settle(worker)
    assert len(world.letters()) == 1
    assert do(world).handled_count == 1
    for lives in (2, 3):
        assert len(world.copies()) == lives
        world.lose(world.emission_of(world.copies()[-1]), message="still bad")
        world.settle(worker)
    again = shown(world)
    assert [row["letter"] for row in listed(world)] == [again["letter"]] == [f"{LETTERS}/0@8"]
    assert [(loss["attempt"], loss["message"]) for loss in again["history"]] == [
        (1, "bad line"),
        (2, "bad line"),
        (1, "still bad"),
        (2, "still bad"),
    ]
    assert again["origin"] == "sentences/0@0"


def test_a_handled_letter_is_listed_no_more_but_stays_with_who_did_it_and_why(world: World) -> None:
    let_die(world, b"a", b"b")
    assert do(world, LetterAction.DROPPED, "sentences/0@0").handled_count == 1
    assert world.copies() == []
    assert [row["letter"] for row in listed(world)] == [f"{LETTERS}/0@1"]
    every = find_letters(world.cluster.log(), INPUT, Filter(handled=True), wait_ms=100).letters
    assert len(every) == 2
    mark = every[0].mark
    assert mark is not None
    assert (mark.action, mark.by, mark.why) == (LetterAction.DROPPED, "kim", "fixed in 1.3")
    assert mark.at_ms == world.now_ms
    handled = listed(world, Filter(handled=True))[0]["handled"]
    assert handled.startswith("DROPPED 1970-01-01T00:16:40Z by kim")
    assert world.letters()[0].value == b"a"
    assert do(world).handled_count == 1, "the other one"
    assert do(world).handled_count == 0
    assert do(world, wanted=Filter(handled=True)).handled_count == 2


def test_redrives_of_one_second_are_listed_in_the_order_in_which_they_began(world: World) -> None:
    let_die(world, b"a", b"b")
    assert world.now_ms % 1_000 == 0, "a time without a fraction"
    for name, place in (("first", "sentences/0@0"), ("second", "sentences/0@1")):
        do(world, LetterAction.DROPPED, place, name=name)
        world.now_ms += 1
    rows = redrive_rows(world.cluster.log(), ONE_LIFE, [INPUT])
    assert [row["redrive"] for row in rows] == ["first", "second"]


class Polls(NoFaults):
    """Lets a command poll no more often than its end can take."""

    def __init__(self, left: int) -> None:
        self._left = left

    def before(self, operation: str) -> None:
        self._left -= operation == "poll"
        assert self._left >= 0, "it does not end"


def test_redrives_are_listed_though_the_topic_of_their_copies_was_made_again(world: World) -> None:
    """One partition ended before the redrive's copies, another had new ones: the command ran for ever."""
    world.emit(b"old", topic="sentences.g.replay")
    let_die(world, b"a", b"b")
    do(world, name="first")
    let_die(world, b"c")
    do(world, name="second")
    world.cluster.delete_topic("sentences.g.replay")
    world.cluster.create_topic("sentences.g.replay", 2)
    world.emit(b"new", topic="sentences.g.replay", partition=1)
    rows = redrive_rows(world.cluster.log(Polls(1_000)), ONE_LIFE, [INPUT])
    assert [(row["redrive"], row["open"], row["not_found"]) for row in rows] == [
        ("first", 0, 2),
        ("second", 0, 1),
    ]


def test_a_command_that_is_repeated_writes_nothing_twice_wherever_it_died(world: World) -> None:
    """A copy and its letter's mark stand in one transaction, whose fate is known before marks are read."""
    let_die(world, *(b"%d" % number for number in range(5)))
    for crashes in range(PLENTY):
        with contextlib.suppress(Crash):
            do(world, faults=CrashAt(crashes), chunk=2)
            break
    assert 10 < crashes < PLENTY - 1
    assert sorted(copy.value or b"" for copy in world.copies()) == [b"%d" % number for number in range(5)]
    assert listed(world) == []


def test_an_open_transaction_of_one_who_died_is_not_taken_for_done(world: World) -> None:
    """It holds back the stable end until somebody ends it: whoever opens next does."""
    let_die(world, b"a", b"b")
    dead = LetterHandling(
        world.cluster.log(FailOnce("commit", Unreachable("gone"))),
        INPUT,
        Order(LetterAction.REPLAYED, Filter(), "kim", ""),
        transactional_id_prefix="windhover-replay",
        limits=LIMITS,
    )
    dead.open()
    with pytest.raises(Unreachable):
        dead.step(1, world.now_ms)
    assert do(world).handled_count == 2
    assert len(world.copies()) == 2


def test_of_two_who_handle_letters_at_once_the_first_is_fenced(world: World) -> None:
    let_die(world, b"a", b"b", b"c")
    order = Order(LetterAction.REPLAYED, Filter(), "kim", "")
    first, second = (
        LetterHandling(
            world.cluster.log(), INPUT, order, transactional_id_prefix="windhover-replay", limits=LIMITS
        )
        for _ in range(2)
    )
    assert first.open() == 3
    assert first.step(1, world.now_ms) == 1
    assert second.open() == 2
    with pytest.raises(Fenced):
        first.step(1, world.now_ms)
    assert second.step(9, world.now_ms) == 2
    first.close()
    second.close()
    assert [copy.value for copy in world.copies()] == [b"a", b"b", b"c"]


def test_a_letter_that_is_replayed_has_its_time_limit_anew(world: World) -> None:
    """It died two days ago; its next failure is not behind a limit of an hour."""
    limited = topics(attempts=2, waits="initial: 0s", more=", time_limit: 1h")
    let_die(world, b"a")
    world.now_ms += 2 * 24 * 3_600_000
    assert do(world).handled_count == 1
    copies = len(world.copies())
    world.lose(world.emission_of(world.copies()[-1]))
    world.settle(world.worker(of=limited))
    assert len(world.copies()) == copies + 1


def test_a_letter_tells_how_many_of_its_emissions_timed_out(world: World) -> None:
    twice = topics(attempts=2, waits="initial: 0s")
    worker = world.worker(of=twice)
    world.lose(world.emit(b"a"), reason=Verdict.TIMED_OUT)
    world.settle(worker)
    world.lose(world.emission_of(world.copies()[0]))
    world.settle(worker)
    details = shown(world)
    assert (details["attempts"], details["timed_out"], details["abandoned"]) == (2, 1, 0)


@pytest.mark.parametrize(("age_ms", "shown"), [(0, None), (1, 1), (30_000, 30_000)])
def test_how_long_a_lost_emission_took_is_unknown_where_its_clock_did_not_move(
    age_ms: int, shown: int | None
) -> None:
    """D1305: a root that was abandoned was shown as lost after 0 ms."""
    loss = Loss(1, Verdict.ABANDONED, "", "", "", 1_000_000, age_ms, "sentences/0@0")
    assert loss_row(loss)["age_ms"] == shown


def test_what_a_rule_dropped_is_no_letter_that_waits(world: World) -> None:
    """It left a note, which is found by its reason."""
    dropping = topics(more=", causes: [{error: ValueError, then: drop}]")
    worker = world.worker(of=dropping)
    world.lose(world.emit(b"a"))
    world.settle(worker)
    assert listed(world) == []
    assert len(listed(world, Filter(dead="DROPPED"))) == 1
    assert len(listed(world, Filter(notes=True))) == 1, "D1202: dlq stats counts it"
    assert listed(world, Filter(notes=True, error="KeyError")) == []


def test_what_cannot_be_emitted_again_is_left_and_counted(world: World) -> None:
    """A letter without payload, one too large for the replay topic, one whose partition is not there."""
    let_die(world, b"a")
    world.cluster.delete_topic(INPUT.replay_topic)
    world.cluster.create_topic(INPUT.replay_topic, 2, settings={"max.message.bytes": "10000"})
    log = world.cluster.log()
    known = world.letters()[0].headers
    producer = log.producer()
    producer.send(Outgoing(LETTERS, 0, None, None, (*known, ("windhover.missing", b"it is gone"))))
    producer.send(Outgoing(LETTERS, 0, b"x" * 10_000, None, known))
    elsewhere = tuple(header for header in known if header[0] != headers.ORIGIN)
    producer.send(Outgoing(LETTERS, 0, b"y", None, (*elsewhere, (headers.ORIGIN, b"sentences/9@3"))))
    producer.send(Outgoing(LETTERS, 0, b"somebody else's"))
    producer.flush(0)
    outcome = do(world)
    assert outcome.handled_count == 1
    assert outcome.left_by_why == {Left.NO_PAYLOAD: 1, Left.TOO_LARGE: 1, Left.NO_PARTITION: 1}
    assert find_letters(world.cluster.log(), INPUT, Filter(), wait_ms=100).other_record_count == 1
    assert len(listed(world)) == 3
    assert do(world, LetterAction.DROPPED).handled_count == 3
    assert listed(world) == []


def test_no_more_letters_are_kept_than_there_is_room_for_and_the_others_are_counted(world: World) -> None:
    let_die(world, *(b"%d" % number for number in range(5)))
    box = find_letters(world.cluster.log(), INPUT, Filter(), wait_ms=100, kept_max=3)
    assert (len(box.letters), box.left_out_count) == (3, 2)
    handling = LetterHandling(
        world.cluster.log(), INPUT, Order(LetterAction.REPLAYED, Filter(), "kim", ""),
            transactional_id_prefix="w",
        limits=LIMITS, kept_max=3,
    )  # fmt: skip
    assert (handling.open(), handling.left_out_count) == (3, 2)


def test_letters_beyond_those_that_are_kept_have_their_turn_when_it_is_repeated(world: World) -> None:
    """Before, letters that were handled took their place each time: they were never reached."""
    let_die(world, *(b"%d" % number for number in range(9)))
    found = []
    for _ in range(4):
        one = LetterHandling(
            world.cluster.log(), INPUT, Order(LetterAction.REPLAYED, Filter(), "kim", ""),
            transactional_id_prefix="w",
            limits=LIMITS, kept_max=4,
        )  # fmt: skip
        found.append((one.open(), one.left_out_count))
        while not one.is_done:
            one.step(3, world.now_ms)
        one.close()
    assert found == [(4, 5), (4, 1), (1, 0), (0, 0)]
    assert [copy.value for copy in world.copies()] == [b"%d" % number for number in range(9)]
    every = find_letters(world.cluster.log(), INPUT, Filter(handled=True), wait_ms=100, kept_max=4)
    assert ([each.mark is not None for each in every.letters], every.left_out_count) == ([True] * 4, 5)


def test_the_letters_that_are_kept_are_the_first_that_are_not_handled(world: World) -> None:
    """Before, a later letter took the room that a mark had made, and the one before it was left out."""
    let_die(world, b"a", b"b", b"c")
    drop = filters_of_inputs([INPUT], [f"{LETTERS}/0@{world.letters()[0].offset}"], Filter())[0][1]
    one = LetterHandling(
        world.cluster.log(),
        INPUT,
        Order(LetterAction.DROPPED, drop, "kim", ""),
        transactional_id_prefix="w",
        limits=LIMITS,
    )
    assert (one.open(), one.step(1, world.now_ms)) == (1, 1)
    one.close()
    let_die(world, b"d")
    producer = world.cluster.log().producer()
    producer.send(Outgoing(LETTERS, 0, b"somebody else's"))
    producer.flush(0)
    box = find_letters(world.cluster.log(), INPUT, Filter(), wait_ms=100, kept_max=2)
    values = {record.offset: record.value for record in world.letters()}
    assert [values[each.offset] for each in box.letters] == [b"b", b"c"]
    assert (box.left_out_count, box.other_record_count) == (1, 1)


def test_a_payload_that_does_not_fit_into_one_fetch_waits_for_the_next_step(world: World) -> None:
    let_die(world, b"first", key=b"k")
    let_die(world, *(b"%d" % number for number in range(600)))
    let_die(world, b"last", key=b"k")
    handling = LetterHandling(
        world.cluster.log(),
        INPUT,
        Order(LetterAction.REPLAYED, Filter(key=KeyIs(b"k")), "kim", ""),
        transactional_id_prefix="w",
        limits=LIMITS.model_copy(update={"fetch_bytes_max": 100}),
    )
    assert handling.open() == 2
    assert [handling.step(10, world.now_ms), handling.step(10, world.now_ms)] == [1, 1]
    assert handling.is_done
    assert [copy.value for copy in world.copies()] == [b"first", b"last"]


def test_a_letter_is_found_by_its_origin_in_a_topic_that_got_more_partitions(world: World) -> None:
    """It went where the topic of one partition had it go."""
    world.cluster.delete_topic(LETTERS)
    world.cluster.create_topic(LETTERS, 1)
    root = world.emit(b"x", partition=1)
    world.lose(root)
    worker = world.worker(of=ONE_LIFE)
    world.settle(worker)
    world.cluster.add_partitions(LETTERS, 3)
    assert len(listed(world, Filter(), f"sentences/1@{root.offset}")) == 1


def test_a_rate_is_kept_from_the_first_second_on() -> None:
    pace = RateLimit(2, 0)
    handled = []
    for now_ms in range(0, 3_000, 100):
        room = pace.allowed_letters(now_ms)
        assert (pace.wait_ms(now_ms) == 0) is (room > 0)
        if room:
            pace.record_handled(1)
            handled.append(now_ms)
    assert handled == [0, 500, 1_000, 1_500, 2_000, 2_500]
    pace = RateLimit(0.5, 0)
    pace.record_handled(1)
    assert pace.allowed_letters(pace.wait_ms(0)) == 1
    assert pace.allowed_letters(pace.wait_ms(0) - 2) == 0


def test_a_rate_does_not_make_up_for_time_without_letters() -> None:
    """Before, what was looked for in a large topic for a minute came at once, a minute's letters."""
    for rate, most in ((100, 100), (2, 2), (0.5, 1)):
        pace = RateLimit(rate, 0)
        assert pace.allowed_letters(60_000) == most
        pace.record_handled(most)
        assert pace.allowed_letters(60_000) == 0
        assert pace.allowed_letters(60_000 + pace.wait_ms(60_000)) == 1
        assert pace.allowed_letters(180_000) == most


def test_letters_are_counted_by_what_they_died_of(world: World) -> None:
    let_die(world, b"a", b"b", key=b"k")
    do(world, LetterAction.DROPPED, "sentences/0@0")
    rows = counts(world, Filter(handled=True), world.now_ms + 7_200_000)
    counted = {(row["of"], row["value"]): row["letters"] for row in rows}
    assert counted == {
        ("input", "sentences"): 2, ("dead", "ATTEMPTS"): 2, ("error", "ValueError"): 2,
        ("operator", "split"): 2, ("age", "below 1 d"): 2, ("handled", "DROPPED"): 1, ("handled", "no"): 1,
        ("key", "k"): 2,
    }  # fmt: skip


def test_only_the_keys_with_the_most_letters_are_named_and_the_others_summed(world: World) -> None:
    for number in range(12):
        let_die(world, b"v", *([b"v"] if number == 5 else []), key=b"%d" % number)
    keys = [row for row in counts(world, Filter(), world.now_ms) if row["of"] == "key"]
    assert (keys[0]["value"], keys[0]["letters"]) == ("5", 2)
    assert (keys[-1]["value"], keys[-1]["letters"]) == ("(2 others)", 2)
    assert sum(row["letters"] for row in keys) == 13


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"null",
        b"\xff",
        b"0xff",
        b"%FF",
        b"a\n b ",
        "\u202e".encode(),
        b"x" * 5_000,
        bytes(range(256)),
    ],
    ids=lambda value: repr(value)[:12],
)
def test_a_letter_in_json_gives_back_payload_and_headers_exactly(world: World, value: bytes | None) -> None:
    """O1606: whole, however long they are; null is null."""
    let_die(world, value, key=value, headers=(("trace", value), ("a\nb %", b"1")))
    details = json.loads(encoded(shown(world), OutputFormat.JSON))

    fields = [details["key"], details["payload"], details["headers"][0]["value"]]
    assert [None if field is None else parse_bytes(field) for field in fields] == [value] * 3
    assert [field is None for field in fields] == [value is None] * 3
    assert parse_text(details["headers"][1]["name"]) == "a\nb %"


def test_a_letter_that_has_nothing_of_its_record_has_no_key_that_is_null(world: World) -> None:
    """O1607: nobody knows it; so it is not found by the key null either."""
    let_die(world, b"a", key=None)
    producer = world.cluster.log().producer()
    headers_of_lost = ((DEAD, b"GONE"), ("windhover.missing", b"it is gone"))
    producer.send(Outgoing(LETTERS, 0, None, None, headers_of_lost))
    producer.flush(0)
    known, lost = find_letters(world.cluster.log(), INPUT, Filter(), wait_ms=100).letters
    known_row, lost_row = listed(world)

    assert [letter.has_key for letter in (known, lost)] == [True, False]
    assert listed(world, Filter(key=KeyIs(None))) == [known_row]
    by_null = find_letters(world.cluster.log(), INPUT, Filter(key=KeyIs(None)), wait_ms=100).letters
    assert [letter.place for letter in by_null] == [known.place], "what a redrive would take"
    column = next(column for column in LIST if column.key == "key")
    assert [absent_text(column, row) for row in (known_row, lost_row)] == ["null", "unknown"]


def test_a_field_of_bytes_is_null_empty_or_in_the_notation_and_people_see_a_part_of_it() -> None:
    fields = [bytes_field(value) for value in (None, b"", b"null", "grün".encode(), b"\xff\x00")]
    assert fields == [None, "", "%6Eull", "grün", "%FF%00"]
    assert [bytes_text(field) for field in fields] == ["null", '""', "%6Eull", "grün", "%FF%00"]
    assert parse_key(bytes_text(fields[-1])) == b"\xff\x00"
    long = "ü" * (PREVIEW_CHARACTERS + 1)
    field = bytes_field(long.encode())
    assert field == long
    assert bytes_text(field) == f"{long[:-1]}%… ({PREVIEW_CHARACTERS + 1:,} characters)"


def test_a_mark_that_names_nothing_changes_nothing(world: World) -> None:
    let_die(world, b"a")
    producer = world.cluster.log().producer()
    producer.send(Outgoing(LETTERS, 0, None, None, (("windhover.handled", b"REPLAYED"),)))
    producer.send(
        Outgoing(LETTERS, 0, None, None, (("windhover.handled", b"ATE"), ("windhover.letter", b"x/0@0")))
    )
    producer.flush(0)
    assert [parse_letter(record) for record in world.letters()[1:]] == [None, None]
    assert len(listed(world)) == 1


def test_a_topic_that_is_missing_is_named_with_the_cure(world: World) -> None:
    let_die(world, b"a")
    world.cluster.delete_topic(COPIES)
    with pytest.raises(TopicError, match=r"replay topic sentences.g.replay .* topics create"):
        do(world)
    world.cluster.delete_topic(LETTERS)
    with pytest.raises(TopicError, match=r"dead-letter topic sentences.g.dlq .* topics create"):
        find_letters(world.cluster.log(), INPUT, Filter(), wait_ms=10)


def test_what_the_header_of_a_history_holds_is_json(world: World) -> None:
    let_die(world, b"a")
    do(world)
    assert json.loads(header(world.copies()[0], "windhover.history") or "")[0]["error"] == "ValueError"


def test_a_letter_whose_history_left_losses_out_says_how_many(world: World) -> None:
    worker = world.worker(of=topics(attempts=103, waits="initial: 0s"))
    root = world.emit(b"x")
    while not world.letters():
        world.lose(root)
        world.settle(worker, until_ms=world.now_ms + 1_000)
        root = world.emission_of(world.copies()[-1])
    details = shown(world)
    assert (details["left_out"], len(details["history"])) == (4, 100)
    assert details["history"][1]["attempt"] == 5
    assert (details["history"][1]["reason"], details["history"][1]["message"]) == (
        "LEFT_OUT",
        "losses left out here: 4",
    )
    assert details["attempts"] == 103
