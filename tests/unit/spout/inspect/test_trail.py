"""One record looked up: every attempt, where it is now, and what was not read is said to be unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from acker.config.settings import Input
from acker.errors import OutOfRange, UsageError
from acker.identity import Root, acker_partition, source_of
from acker.kafka.port import Outgoing, TopicPartition
from acker.wire.codec import wire_codec
from acker.wire.events import Acks, PositionRun, pack_positions, pack_values
from acker.wire.verdict import Verdict
from replay.handling.letter_handling import Order, RateLimit
from replay.handling.redrive import Redrive
from replay.records.due import Loss, left_out_entry
from replay.records.letters import Filter, LetterAction
from replay.worker.fetch import Absence
from spout.inspect.dead_letters import carry_out, filters_of_inputs
from spout.inspect.diagnosis import explained
from spout.inspect.story import Evidence, attempts_of
from spout.inspect.trail import EvidenceReader, InputRecord, RootValue
from spout.planning.journal import BEGINNING, Journal
from spout.planning_process.planner import Planner
from tests.support.worlds.planning import COPIES, World, batch, emit_ten, yaml_of
from tests.support.worlds.replay_world import FailOnce, When

LETTERS = "sentences.g.dlq"
YAML = yaml_of(timeout="4s", retry="{attempts: 2, initial: 1s, jitter: 0}", dead_letter="{max_ratio: 1}")


@pytest.fixture
def world() -> World:
    return World(YAML)


def inspected(world: World, place: str = "sentences/0@3", **bounds: int) -> dict[str, Any]:
    """Look a record up."""
    trail = EvidenceReader(world.cluster.log(), world.topics, **bounds)
    (here,) = trail.records_at(place)
    return whole(trail, here, world.now_ms)


def whole(trail: EvidenceReader, here: InputRecord, now_ms: int) -> dict[str, Any]:
    evidence = trail.read_evidence(here)
    return explained(evidence, trail.circumstances(here, evidence, now_ms), now_ms)


def states(story: dict[str, Any]) -> list[tuple[int, str, str]]:
    """Return attempt, root and state of each attempt."""
    return [(row["attempt"], row["root"], row["state"]) for row in story["attempts"]]


def again(
    world: World, planner: Planner, end: Journal, of: int = COPIES, **published: tuple[int, ...]
) -> Journal:
    """Let copies be emitted and published."""
    following = batch(planner, end, world)
    world.publish(end, following, of=of, **published)
    world.run(1_500)
    return following


def handle(world: World, meant: Sequence[tuple[Input, Filter]], order: Order) -> None:
    """Carry an order out."""
    redrive = Redrive(world.cluster.log(), world.topics, meant, order, RateLimit(None, world.now_ms))
    carry_out(redrive, clock=lambda: world.now_ms, sleep_ms=lambda _: None, progress=lambda _: None)


def test_a_record_that_is_not_there_yet_or_not_emitted_yet_says_so(world: World) -> None:
    assert inspected(world)["now"] == "not written yet: the topic ends before it"
    world.produce(10)
    story = inspected(world)
    assert (story["now"], story["payload"], story["in_the_log"]) == ("unknown", "3", "there")
    assert "has no State" in story["not_read"][0]
    world.ready()
    assert inspected(world)["now"] == "in the log, not emitted yet"


def test_an_acked_record_is_done_and_names_its_verdict(world: World) -> None:
    emit_ten(world)
    story = inspected(world)
    assert story["now"] == "done: fully processed"
    (attempt,) = story["attempts"]
    assert (attempt["attempt"], attempt["root"], attempt["state"]) == (1, "sentences/0@3", "ACKED")
    assert attempt["verdict"].startswith("_ack_verdict/")
    assert attempt["settled"].startswith("2027-01-15T08:00:0")
    assert story["not_read"] == []


def test_an_attempt_is_called_by_the_topic_of_its_record_and_not_by_its_input() -> None:
    """It had the input's name until it was lost, and then the topic's, as the record itself."""
    world = World(yaml_of(topic="lines"))
    world.produce(10, topic="lines")
    end = batch(world.ready(), BEGINNING, world)
    world.publish(BEGINNING, end, skip=(3,))
    world.run(1_000)
    for place in ("sentences/0@3", "lines/0@3"):
        story = inspected(world, place)
        assert (story["record"], story["input"]) == ("lines/0@3", "sentences")
        assert states(story) == [(1, "lines/0@3", "pending")]


def test_an_open_record_is_pending_and_tells_how_long_it_has(world: World) -> None:
    emit_ten(world, skip=(3,))
    story = inspected(world)
    assert story["now"].startswith("pending: open for 1.0 s, times out in 3.")
    assert story["now"].endswith("; nothing of it was acked yet")
    assert states(story) == [(1, "sentences/0@3", "pending")]
    assert story["attempts"][0]["age_ms"] == 1_000


def test_an_open_record_of_which_a_part_was_acked_says_so(world: World) -> None:
    """What a bolt emitted and nobody acked is outstanding, however many batches acked the rest."""
    _, end = emit_ten(world, skip=(3,))
    acks = Acks(
        "q/late", 1, "g", end.session, end.epoch, 1 << 16, 0, (), pack_positions(np.array([3])),
        pack_values(np.array([77], np.uint64)), (), b"", end.now,
    )  # fmt: skip
    producer = world.log.producer()
    owner = acker_partition(1 << 16, 3, 3)
    producer.send(Outgoing("_ack_ack", owner, wire_codec().encode(acks)))
    producer.flush(0)
    world.run(1_500)
    assert inspected(world)["now"].endswith("; acked in part by a batch: some tuple of it is outstanding")


def test_an_emission_that_no_state_of_the_acker_has_yet_is_planned(world: World) -> None:
    world.produce(10)
    planner = world.ready()
    batch(planner, BEGINNING, world)
    assert inspected(world)["now"] == "planned: announced to the ackers"


def test_a_lost_record_is_followed_through_its_whole_life(world: World) -> None:
    """Lost, waiting, a copy, pending again, dead; every place it was at is told of."""
    planner, end = emit_ten(world, fail=(3,))
    story = inspected(world)
    assert story["now"] == "lost (FAILED); no replay worker has taken it over yet"
    assert (story["attempts"][0]["error"], story["attempts"][0]["message"]) == ("ValueError", "boom")

    world.start_replays()
    world.run(300)
    story = inspected(world)
    assert story["now"].startswith("waiting for its replay, due in ")
    assert story["waiting"][0]["becomes"] == "attempt 2"

    world.run(1_500)
    story = inspected(world)
    assert story["now"] == "on the replay topic as a copy at sentences.g.replay/0@0, not emitted yet"
    assert states(story) == [
        (1, "sentences/0@3", "FAILED"),
        (2, "sentences.g.replay/0@0", "not emitted"),
    ]

    following = batch(planner, end, world)
    world.run(1_500)
    assert inspected(world)["now"].startswith("pending: open for 1.5 s")

    world.publish(end, following, fail=(0,), of=COPIES)
    world.run(1_500)
    story = inspected(world)
    assert story["now"] == "dead letter at sentences.g.dlq/0@0"
    assert states(story) == [(1, "sentences/0@3", "FAILED"), (2, "sentences.g.replay/0@0", "FAILED")]
    assert [row["dead"] for row in story["dead_letters"]] == ["ATTEMPTS"]
    assert story["waiting"] == []


def test_a_record_that_is_replayed_while_its_topics_are_read_is_found_where_it_went(world: World) -> None:
    """Its copy comes when the copies were read already, and then it waits no longer."""
    world.start_replays()
    emit_ten(world, fail=(3,))
    assert inspected(world)["now"].startswith("waiting for its replay")
    meanwhile = When("poll", lambda: world.run(2_500), skip=1)  # the first one fetches the record itself
    trail = EvidenceReader(world.cluster.log(meanwhile), world.topics)
    (here,) = trail.records_at("sentences/0@3")
    story = whole(trail, here, world.now_ms)
    assert story["now"] == "on the replay topic as a copy at sentences.g.replay/0@0, not emitted yet"


def test_a_second_life_is_shown_with_the_first_and_ends_acked(world: World) -> None:
    world.start_replays()
    planner, end = emit_ten(world, fail=(3,))
    world.run(1_500)
    end = again(world, planner, end, fail=(0,))
    order = Order(LetterAction.REPLAYED, Filter(), "kim", "")
    handle(world, [(world.topics.input("sentences"), Filter())], order)
    assert (
        inspected(world)["now"] == "on the replay topic as a copy at sentences.g.replay/0@2, not emitted yet"
    )
    again(world, planner, end)
    story = inspected(world)
    assert story["now"] == "done: fully processed"
    assert states(story) == [
        (1, "sentences/0@3", "FAILED"),
        (2, "sentences.g.replay/0@0", "FAILED"),
        (1, "sentences.g.replay/0@2", "ACKED"),
    ]
    assert story["dead_letters"][0]["handled"].startswith("REPLAYED ")


def test_a_dropped_letter_says_who_dropped_it_and_why(world: World) -> None:
    world.start_replays()
    planner, end = emit_ten(world, fail=(3,))
    world.run(1_500)
    again(world, planner, end, fail=(0,))
    one = world.topics.input("sentences")
    order = Order(LetterAction.DROPPED, Filter(), "kim", "test data")
    handle(world, filters_of_inputs([one], ["sentences/0@3"], Filter()), order)
    assert inspected(world)["now"] == "dropped by kim: test data"


def test_letters_are_found_in_a_topic_that_got_more_partitions_the_last_one_last() -> None:
    """The first went where the topic of three partitions had it go, the second where that of four did."""
    world = World(YAML.replace("partitions: 2", "partitions: 6"))
    world.cluster.delete_topic(LETTERS)
    world.cluster.create_topic(LETTERS, 3)
    world.start_replays()
    world.produce(4, partition=5)
    planner = world.ready()
    end = batch(planner, BEGINNING, world)
    world.publish(BEGINNING, end, fail=(3,), of=(1 << 16) + 5)
    world.run(2_500)
    end = again(world, planner, end, fail=(0,), of=COPIES + 5)
    world.cluster.add_partitions(LETTERS, 4)
    assert inspected(world, "sentences/5@3")["now"] == f"dead letter at {LETTERS}/2@0"
    order = Order(LetterAction.REPLAYED, Filter(), "kim", "")
    handle(world, [(world.topics.input("sentences"), Filter())], order)
    assert world.replays is not None
    world.replays.close()
    world.start_replays()
    for _ in range(2):
        end = again(world, planner, end, fail=tuple(range(1, 10)), of=COPIES + 5)
        world.run(2_500)
    story = inspected(world, "sentences/5@3")
    first, last = (row["letter"] for row in story["dead_letters"])
    assert (first, story["now"]) == (f"{LETTERS}/2@0", f"dead letter at {last}")
    assert last.startswith(f"{LETTERS}/1@")


def test_what_a_rule_drops_is_dropped_and_no_dead_letter() -> None:
    """It left a note in the dead-letter topic, which is no letter; while it waits for it, that is said."""
    world = World(YAML.replace("jitter: 0}", "jitter: 0, causes: [{error: ValueError, then: drop}]}"))
    world.start_replays()
    emit_ten(world, fail=(3,))
    story = inspected(world)
    place = "sentences.g.dlq/0@0"
    assert story["now"] == f"dropped: a rule drops what fails by ValueError; its note is {place}"
    assert (story["dead_letters"], [row["letter"] for row in story["dropped"]]) == ([], [place])


def test_what_was_not_read_is_unknown_and_said(world: World) -> None:
    """With a bound of one record neither the verdict nor the copies can be told of, nor are they made up."""
    planner, end = emit_ten(world)
    world.produce(5)
    following = batch(planner, end, world)
    world.publish(end, following)
    world.run(1_500)
    story = inspected(world, records_max=1)
    assert story["now"] == "settled, how is unknown"
    assert states(story) == [(1, "sentences/0@3", "settled, how is unknown")]
    assert any(note.endswith("older verdicts are unknown") for note in story["not_read"])


def test_attempts_whose_records_were_not_read_stand_as_the_history_tells(world: World) -> None:
    world.start_replays()
    planner, end = emit_ten(world, fail=(3,))
    world.run(1_500)
    again(world, planner, end, fail=(0,))
    world.log.delete_before({TopicPartition("sentences.g.replay", 0): 2})
    assert states(inspected(world)) == [
        (1, "sentences/0@3", "FAILED"),
        (2, "sentences.g.replay/0@0", "FAILED"),
    ]
    assert inspected(world)["now"].startswith("dead letter at")


def test_a_record_that_left_the_log_is_gone_and_its_story_is_shown_all_the_same(world: World) -> None:
    emit_ten(world)
    world.log.delete_before({TopicPartition("sentences", 0): 5})
    story = inspected(world)
    assert (story["in_the_log"], story["payload"]) == ("gone: retention or compaction took it", None)
    assert story["now"] == "done: fully processed"


@pytest.mark.parametrize("skip", range(6))
def test_a_log_that_is_shortened_while_it_is_read_is_read_again(world: World, skip: int) -> None:
    emit_ten(world)
    log = world.cluster.log(FailOnce("poll", OutOfRange("gone"), skip=skip))
    trail = EvidenceReader(log, world.topics)
    (here,) = trail.records_at("sentences/0@3")
    assert whole(trail, here, world.now_ms)["now"] == "done: fully processed"


def test_each_generation_that_emitted_a_record_is_shown(world: World) -> None:
    """After a rewind a record is emitted again; one that the rewind left out is not made up."""
    planner, _ = emit_ten(world)
    world.kill(planner)
    world.rewind(2)
    fresh = world.ready()
    batch(fresh, BEGINNING, world)
    world.run(1_500)
    assert states(inspected(world)) == [
        (1, "sentences/0@3", "ACKED"),
        (1, "sentences/0@3 (generation 1)", "pending"),
    ]
    assert states(inspected(world, "sentences/0@1")) == [(1, "sentences/0@1", "ACKED")]


def test_a_record_that_a_reset_left_out_says_so(world: World) -> None:
    """Neither generation emitted it, whatever the ackers know of positions behind it."""
    planner, _ = emit_ten(world)
    world.kill(planner)
    world.produce(4)
    world.rewind("latest")
    left_out = "in the log, and left out: the group begins behind it"
    assert inspected(world, "sentences/0@11")["now"] == left_out
    fresh = world.ready()
    world.produce(2)
    batch(fresh, BEGINNING, world)
    world.run(1_500)
    assert inspected(world, "sentences/0@11")["now"] == left_out
    assert inspected(world, "sentences/0@14")["now"].startswith("pending")


def test_a_record_is_found_by_a_copy_of_it_and_by_its_dead_letter(world: World) -> None:
    world.start_replays()
    planner, end = emit_ten(world, fail=(3,))
    world.run(1_500)
    again(world, planner, end, fail=(0,))
    for place in ("sentences.g.replay/0@0", "sentences.g.dlq/0@0", "sentences/0@3"):
        assert inspected(world, place)["record"] == "sentences/0@3"
    for wrong, why in (
        ("sentences.g.dlq/0@9", "no copy or dead letter"),
        ("nope/0@9", "no tracked input"),
        ("sentences", "is no place"),
        ("sentences/7@0", "has partitions 0 to 1 only"),
        ("sentences.g.replay/7@0", r"sentences\.g\.replay has partitions 0 to 1 only"),
        ("sentences.g.dlq/7@0", r"sentences\.g\.dlq has partitions 0 to \d only"),
    ):
        with pytest.raises(UsageError, match=why):
            inspected(world, wrong)


def test_a_place_names_a_topic_though_another_input_has_its_name() -> None:
    """The commands print places by their topics, and who copies one would see another record."""
    head = "acker: {partitions: 3}\ninputs:\n"
    inputs = ("sentences: {id: 1, group: g, topic: lines}", "words: {id: 2, group: h, topic: sentences}")
    world = World(head + "".join(f"  {one}\n" for one in inputs))
    trail = EvidenceReader(world.cluster.log(), world.topics)
    found = [(str(here), here.input.name) for here in trail.records_at("sentences/0@3")]
    assert found == [("lines/0@3", "sentences"), ("sentences/0@3", "words")]
    assert [str(here) for here in trail.records_at("lines/0@3")] == ["lines/0@3"]


def test_records_are_found_by_their_key_from_a_time_on(world: World) -> None:
    producer = world.log.producer()
    for number in range(6):
        producer.send(
            Outgoing("sentences", number % 2, b"v", b"k%d" % (number // 2), timestamp_ms=number + 1)
        )
    producer.flush(0)
    trail = EvidenceReader(world.cluster.log(), world.topics)
    one = world.topics.input("sentences")
    assert [str(here) for here in trail.with_key(one, b"k2", 0, 10)[0]] == ["sentences/0@2", "sentences/1@2"]
    assert trail.with_key(one, b"k0", 3, 10) == ([], [])
    found, notes = trail.with_key(one, b"k2", 0, 1)
    assert (len(found), notes) == (1, ["1 more records have that key"])
    bounded = EvidenceReader(world.cluster.log(), world.topics, records_max=1)
    assert all("unknown" in note for note in bounded.with_key(one, b"k2", 0, 10)[1])


def test_a_record_is_found_by_a_key_that_looks_like_hexadecimal_digits(world: World) -> None:
    world.produce(2, keys=[b"0xFf", b"\xff"])
    trail, one = EvidenceReader(world.cluster.log(), world.topics), world.topics.input("sentences")
    found = {key: trail.search([one], key, "1h", world.now_ms)[0] for key in ("0xFf", "%FF", "0xff")}
    shown = {key: [str(here) for here in each] for key, each in found.items()}
    assert shown == {"0xFf": ["sentences/0@0"], "%FF": ["sentences/0@1"], "0xff": []}


@pytest.mark.parametrize(
    "topic",
    ["sentences", "sentences.g.replay", "sentences.g.dlq", "_ack_init", "_ack_ack", "_ack_verdict",
     "_ack_state", "_ack_due"],
)  # fmt: skip
def test_a_missing_topic_is_named_and_the_rest_of_the_story_goes_on(world: World, topic: str) -> None:
    emit_ten(world, skip=(3,), fail=(4,))
    whole = {place: inspected(world, place) for place in ("sentences/0@3", "sentences/0@4")}
    world.cluster.delete_topic(topic)
    for place, before in whole.items():
        story = inspected(world, place)
        assert any(topic in note for note in story["not_read"]) or story["in_the_log"].startswith("unknown")
        if topic == "sentences":
            assert (story["payload"], story["committed"]) == (None, None)
        else:
            assert (story["payload"], story["committed"]) == (before["payload"], before["committed"])
        if topic not in ("_ack_state", "_ack_verdict", "_ack_init"):
            assert states(story) == states(before)


def test_what_was_acked_of_a_root_that_timed_out_is_unknown_without_its_topic(world: World) -> None:
    emit_ten(world, skip=(3, 4), then_ms=6_000)
    world.cluster.delete_topic("_ack_ack")
    story = inspected(world)
    assert states(story) == [(1, "sentences/0@3", "TIMED_OUT")]
    assert "what was acked of it can no longer be read" in story["why"]
    assert [note for note in story["not_read"] if "_ack_ack" in note] == [
        "topic _ack_ack is missing: what was acked there is unknown; run `windhover topics create`"
    ]


@pytest.mark.parametrize(("read", "says"), [((), "7"), ((3, 4), "5"), ((2, 3, 4, 5, 6, 7, 8), "")])
def test_losses_that_no_history_tells_any_more_are_counted(read: tuple[int, ...], says: str) -> None:
    """Histories of earlier copies tell some of those that the last one left out."""
    losses = {n: Loss(n, Verdict.FAILED, "split", "E", "bad", n * 10, 1, f"t/0@{n}") for n in range(1, 11)}
    kept = [losses[n] for n in sorted({1, *read, 9, 10})]
    history = sorted([*kept, left_out_entry(losses[8], 7)], key=lambda loss: loss.emitted_ms)
    every = attempts_of(Evidence("t/0@0", "t", "g", Absence.GONE, True, [], history=history), 0)
    rows = [row for row in every if row["state"] == "LEFT_OUT"]
    assert [row["message"] for row in rows] == ([f"losses left out here: {says}"] if says else [])
    assert [row["attempt"] for row in every if row["root"]] == sorted({1, *read, 9, 10})


def acks_of(source: int, run: PositionRun) -> Acks:
    """Make what a batch acks of a block: whole roots."""
    return Acks("lane", 5, "g", "s1", 1, source, 0, (run,), b"", b"", (), b"", 0)


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ({"seq": 6}, (1, True)),
        ({"lane": "another"}, (1, True)),
        ({}, (0, False)),  # the acker has the first record of a batch for a block, and fails this one
    ],
)
def test_the_value_of_a_root_is_that_of_the_first_record_of_each_batch(
    later: dict[str, Any], expected: tuple[int, bool]
) -> None:
    source = source_of(1, 0)
    first = acks_of(source, PositionRun(10, 11))
    repeated = replace(first, runs=(PositionRun(10, 12),), **later)
    value = RootValue(Root(source, 11))
    for acks in (first, repeated, repeated):
        value.add(acks)
    assert (value.batch_count, value.is_whole) == expected


def test_records_of_other_blocks_and_sources_do_not_count_for_a_batch() -> None:
    source = source_of(1, 0)
    own = acks_of(source, PositionRun(10, 11))
    value = RootValue(Root(source, 10))
    for acks in (replace(own, block=1, runs=()), replace(own, source=source_of(1, 1)), own):
        value.add(acks)
    assert (value.batch_count, value.is_whole) == (1, True)
