"""The replay worker on the in-memory log."""

from __future__ import annotations

import numpy as np
import pytest

from acker.config import topics as topics_yaml
from acker.errors import DataLoss, Disagreement
from acker.kafka.port import Outgoing, TopicPartition
from acker.wire.codec import wire_codec
from acker.wire.events import Lost, Taken, Verdicts, pack_positions
from acker.wire.verdict import Verdict
from tests.support.worlds.replay_world import (
    COPIES,
    LETTERS,
    TOPIC,
    When,
    World,
    header,
    history,
    limits,
    topics,
)


@pytest.fixture
def world() -> World:
    return World()


def test_a_failed_root_becomes_one_copy_after_its_back_off(world: World) -> None:
    root = world.emit(b"to be", key=b"k", headers=(("trace", b"1"), ("none", None)), partition=1)
    worker = world.worker()
    world.lose(root)
    lost_at_ms = world.now_ms
    world.settle(worker, until_ms=lost_at_ms + 999)
    opened = [event.fields for event in world.events if event.name == "partition_opened"]
    assert opened == [{"partition": number, "offset": 0, "waiting": 0} for number in (0, 1)]
    assert world.copies() == []
    world.settle(worker, until_ms=lost_at_ms + 1_000)
    (copy,) = world.copies()
    assert (copy.partition, copy.key, copy.value, copy.timestamp_ms) == (1, b"k", b"to be", 77)
    assert copy.headers[:2] == (("trace", b"1"), ("none", None))
    assert header(copy, "windhover.origin") == "sentences/1@0"
    assert header(copy, "windhover.attempt") == "2"
    assert header(copy, "windhover.abandoned") == "0"
    assert header(copy, "windhover.reason") == "FAILED"
    assert header(copy, "windhover.cause") == "ValueError: bad line"
    assert header(copy, "windhover.operator") == "split"
    assert header(copy, "windhover.first-emitted") == str(lost_at_ms - 250)
    assert history(copy) == [
        {
            "attempt": 1,
            "reason": "FAILED",
            "operator": "split",
            "error": "ValueError",
            "message": "bad line",
            "emitted_ms": lost_at_ms - 250,
            "age_ms": 200,
            "root": "sentences/1@0",
        }
    ]


def test_a_record_of_nulls_is_copied_as_it_is(world: World) -> None:
    root = world.emit(None, key=None)
    worker = world.worker()
    world.lose(root)
    world.settle(worker, until_ms=world.now_ms + 60_000)
    (copy,) = world.copies()
    assert (copy.key, copy.value) == (None, None)


def test_jitter_only_adds_to_the_back_off(world: World) -> None:
    root = world.emit(b"x")
    worker = world.worker(jitter=0.5)
    world.lose(root)
    lost_at_ms = world.now_ms
    world.settle(worker, until_ms=lost_at_ms + 1_099)
    assert world.copies() == []
    world.settle(worker, until_ms=lost_at_ms + 1_100)
    assert len(world.copies()) == 1


def test_a_root_that_fails_every_time_is_tried_attempts_times_and_then_buried_once(world: World) -> None:
    """S109, S112, S117, P26, P34, S134: back-off doubles; attempts count the first one; the origin stays."""
    root = world.emit(b"poison", key=b"k", headers=(("trace", b"1"),), partition=1)
    worker = world.worker()
    begin_ms, waits = world.now_ms, []
    for _ in range(2):
        lost_at_ms = world.now_ms
        world.lose(root)
        before = len(world.copies())
        while len(world.copies()) == before:
            world.settle(worker, until_ms=world.now_ms + 100)
        waits.append(world.now_ms - lost_at_ms)
        root = world.emission_of(world.copies()[-1])
    world.lose(root, message="at last")
    world.settle(worker, until_ms=world.now_ms + 600_000)
    assert waits == [1_000, 2_000]
    assert [header(copy, "windhover.attempt") for copy in world.copies()] == ["2", "3"]
    assert {header(copy, "windhover.origin") for copy in world.copies()} == {"sentences/1@0"}
    (letter,) = world.letters()
    assert (letter.key, letter.value, letter.partition) == (b"k", b"poison", 1)
    assert header(letter, "trace") == "1"
    assert header(letter, "windhover.dead") == "ATTEMPTS"
    assert header(letter, "windhover.attempt") == "3"
    assert header(letter, "windhover.origin") == "sentences/1@0"
    assert header(letter, "windhover.first-emitted") == str(begin_ms - 250)
    assert header(letter, "windhover.missing") is None
    assert [(loss["attempt"], loss["root"]) for loss in history(letter)] == [
        (1, "sentences/1@0"),
        (2, f"{COPIES}/1@0"),
        (3, f"{COPIES}/1@2"),
    ]
    assert history(letter)[-1]["message"] == "at last"
    status = worker.status()
    assert (status.replayed_by_input, status.dead_lettered_by_input) == ({"sentences": 2}, {"sentences": 1})
    assert {
        name: header(letter, f"__dlq.errors.{name}") for name in ("topic", "partition", "offset", "group")
    } == {
        "topic": "sentences",
        "partition": "1",
        "offset": "0",
        "group": "g",
    }
    assert header(letter, "__dlq.errors.delivery.count") == "3"
    assert header(letter, "__dlq.errors.message") == (
        "given up after 3 emissions; the last FAILED by split: ValueError: at last"
    )
    status = worker.status()
    assert (status.lost, status.replayed, status.dead_lettered, status.waiting) == (3, 2, 1, 0)


def test_a_timed_out_root_counts_as_an_attempt(world: World) -> None:
    """P23: a timeout, then a failure of the copy: the limit counts both."""
    worker = world.worker(of=topics(attempts=2))
    world.lose(world.emit(b"slow"), reason=Verdict.TIMED_OUT)
    world.settle(worker, until_ms=world.now_ms + 60_000)
    (copy,) = world.copies()
    assert (header(copy, "windhover.reason"), header(copy, "windhover.cause")) == ("TIMED_OUT", "")
    world.lose(world.emission_of(copy))
    world.settle(worker, until_ms=world.now_ms + 60_000)
    assert [loss["reason"] for loss in history(world.letters()[0])] == ["TIMED_OUT", "FAILED"]


def test_an_abandoned_root_comes_back_at_once_the_first_time_and_with_back_off_later(world: World) -> None:
    worker = world.worker()
    root, begin_ms = world.emit(b"x"), world.now_ms
    world.lose(root, reason=Verdict.ABANDONED)
    world.settle(worker, until_ms=begin_ms)
    (copy,) = world.copies()
    assert (header(copy, "windhover.attempt"), header(copy, "windhover.abandoned")) == ("2", "1")
    world.lose(world.emission_of(copy), reason=Verdict.ABANDONED)
    world.settle(worker, until_ms=begin_ms + 999)
    assert len(world.copies()) == 1
    world.settle(worker, until_ms=begin_ms + 1_000)
    assert header(world.copies()[-1], "windhover.abandoned") == "2"


def test_a_root_abandoned_more_often_than_max_abandoned_is_buried(world: World) -> None:
    """Rule 9: `max_abandoned` ends a loop in which every session dies of the same record."""
    worker = world.worker(of=topics(attempts=1))
    root = world.emit(b"x")
    for _ in range(3):
        world.lose(root, reason=Verdict.ABANDONED)
        world.settle(worker, until_ms=world.now_ms + 60_000)
        root = world.emission_of(world.copies()[-1])
    assert len(world.copies()) == 2
    (letter,) = world.letters()
    assert (header(letter, "windhover.dead"), header(letter, "windhover.abandoned")) == ("ABANDONED", "3")


def test_abandonments_use_up_no_attempts(world: World) -> None:
    worker = world.worker(of=topics(attempts=2))
    root = world.emit(b"x")
    for reason in (Verdict.ABANDONED, Verdict.FAILED, Verdict.ABANDONED, Verdict.FAILED):
        assert world.letters() == []
        world.lose(root, reason=reason)
        world.settle(worker, until_ms=world.now_ms + 60_000)
        root = world.emission_of(world.copies()[-1])
    assert header(world.letters()[0], "windhover.dead") == "ATTEMPTS"


def test_headers_of_a_source_record_that_look_like_ours_are_not_believed(world: World) -> None:
    worker = world.worker()
    forged = (("windhover.attempt", b"99"), ("windhover.origin", b"other/0@5"), ("mine", b"1"))
    world.lose(world.emit(b"x", headers=forged))
    world.settle(worker, until_ms=world.now_ms + 60_000)
    (copy,) = world.copies()
    assert header(copy, "windhover.attempt") == "2"
    assert header(copy, "windhover.origin") == "sentences/0@0"
    assert header(copy, "mine") == "1"


def test_a_replay_record_with_garbage_for_headers_counts_as_a_first_emission(world: World) -> None:
    worker = world.worker()
    garbage = (
        ("windhover.attempt", b"\xff\xfe"),
        ("windhover.origin", None),
        ("windhover.history", b"[[[[{"),
        ("windhover.abandoned", b"-1"),
    )
    world.lose(world.emit(b"x", topic=COPIES, headers=garbage))
    world.settle(worker, until_ms=world.now_ms + 60_000)
    copy = world.copies()[-1]
    assert header(copy, "windhover.attempt") == "2"
    assert header(copy, "windhover.origin") == f"{COPIES}/0@0"


def test_copies_come_in_the_order_of_their_due_times(world: World) -> None:
    """S107, S115: two that are due in one step both come, in the order of their origins."""
    worker = world.worker()
    roots = [world.emit(b"%d" % number) for number in range(4)]
    world.lose(roots[2], roots[1])
    world.settle(worker, until_ms=world.now_ms + 500)
    world.lose(roots[0])
    world.lose(roots[3], reason=Verdict.ABANDONED)
    world.settle(worker, until_ms=world.now_ms + 60_000)
    assert [copy.value for copy in world.copies()] == [b"3", b"1", b"2", b"0"]


def test_a_record_that_retention_removed_is_buried_without_payload_and_says_so(world: World) -> None:
    """S150, P10: no spin, no loss without a trace, the others go on."""
    gone, there = world.emit(b"old", key=b"k"), world.emit(b"new")
    world.cluster.delete_before(TopicPartition(TOPIC, 0), 1)
    worker = world.worker()
    world.lose(gone, there)
    world.settle(worker, until_ms=world.now_ms + 60_000)
    assert [copy.value for copy in world.copies()] == [b"new"]
    (letter,) = world.letters()
    assert (letter.key, letter.value) == (None, None)
    assert header(letter, "windhover.dead") == "GONE"
    assert header(letter, "windhover.missing") == "the record is no longer in the log"
    assert header(letter, "windhover.origin") == "sentences/0@0"
    assert len(history(letter)) == 1
    assert worker.status().without_payload == 1


def test_a_copy_that_retention_removed_is_buried_without_payload(world: World) -> None:
    worker = world.worker()
    world.lose(world.emit(b"x"))
    world.settle(worker, until_ms=world.now_ms + 60_000)
    (copy,) = world.copies()
    world.cluster.delete_before(TopicPartition(COPIES, 0), copy.offset + 1)
    world.lose(world.emission_of(copy))
    world.settle(worker, until_ms=world.now_ms + 60_000)
    (letter,) = world.letters()
    assert (header(letter, "windhover.dead"), letter.value) == ("GONE", None)


@pytest.mark.parametrize("topic", [TOPIC, COPIES])
def test_where_there_never_was_a_record_nothing_is_buried(world: World, topic: str) -> None:
    """A marker was initialised with its neighbours, and lost with its session before a task had read it.

    Found by killing a query whose replays were on their way: each transaction of copies left a dead letter.
    """
    there = world.emit(b"there", topic=topic)
    writer = world.cluster.log().transactions("elsewhere")
    writer.init(0)
    writer.begin()
    writer.send(Outgoing(topic, 0, b"aborted"))
    writer.abort(0)
    worker = world.worker()
    world.lose(there, there._replace(offset=1), there._replace(offset=2), reason=Verdict.ABANDONED)
    world.settle(worker, until_ms=world.now_ms + 60_000)
    assert [copy.value for copy in world.copies() if header(copy, "windhover.origin")] == [b"there"]
    assert world.letters() == []
    assert (worker.status().absent, worker.status().waiting) == (2, 0)


@pytest.mark.parametrize("reason", [Verdict.FAILED, Verdict.TIMED_OUT])
def test_a_compacted_record_is_buried_without_payload(world: World, reason: Verdict) -> None:
    """S127. That it failed proves that it was there; otherwise the topic's cleanup policy says so."""
    world.cluster.delete_topic(TOPIC)
    world.cluster.create_topic(TOPIC, 2, compacted=True)
    roots = [world.emit(b"%d" % number, key=b"same") for number in range(3)]
    world.cluster.compact(TOPIC)
    worker = world.worker()
    world.lose(*roots, reason=reason)
    world.settle(worker, until_ms=world.now_ms + 60_000)
    assert [copy.value for copy in world.copies()] == [b"2"]
    assert [header(letter, "windhover.origin") for letter in world.letters()] == [
        "sentences/0@0",
        "sentences/0@1",
    ]


def test_a_root_of_a_topic_that_was_created_again_is_never_confused_with_the_new_record(world: World) -> None:
    root, worker = world.emit(b"before"), world.worker()
    world.lose(root)
    world.settle(worker)
    world.cluster.delete_topic(TOPIC)
    world.cluster.create_topic(TOPIC, 2)
    world.emit(b"after")
    world.settle(worker, until_ms=world.now_ms + 60_000)
    assert world.copies() == []
    (letter,) = world.letters()
    assert (header(letter, "windhover.dead"), letter.value) == ("RECREATED", None)


def test_a_topic_that_is_created_again_between_fetch_and_copy_is_noticed(world: World) -> None:
    def create_again() -> None:
        world.cluster.delete_topic(TOPIC)
        world.cluster.create_topic(TOPIC, 2)

    # topics are asked for at the start, at the takeover, before the fetch, and before the copy
    worker = world.worker(When("topics", create_again, skip=3))
    world.lose(world.emit(b"before"), reason=Verdict.ABANDONED)
    world.settle(worker)
    assert world.copies() == []
    (letter,) = world.letters()
    assert (header(letter, "windhover.dead"), letter.value) == ("RECREATED", None)


def test_a_root_of_a_deleted_topic_is_buried_without_payload(world: World) -> None:
    root, worker = world.emit(b"before"), world.worker()
    world.lose(root)
    world.settle(worker)
    world.cluster.delete_topic(TOPIC)
    world.settle(worker, until_ms=world.now_ms + 60_000)
    assert header(world.letters()[0], "windhover.dead") == "RECREATED"


def test_a_record_whose_copy_is_larger_than_the_replay_topic_takes_is_buried_whole(world: World) -> None:
    world.cluster.delete_topic(COPIES)
    world.cluster.create_topic(COPIES, 2, settings={"max.message.bytes": "2000"})
    worker = world.worker()
    world.lose(world.emit(b"x" * 1_900))
    world.settle(worker, until_ms=world.now_ms + 60_000)
    (letter,) = world.letters()
    assert (header(letter, "windhover.dead"), letter.value) == ("TOO_LARGE", b"x" * 1_900)


def test_a_dead_letter_that_its_topic_does_not_take_leaves_its_payload_behind_and_says_so(
    world: World,
) -> None:
    world.cluster.delete_topic(LETTERS)
    world.cluster.create_topic(LETTERS, 2, settings={"max.message.bytes": "2000"})
    worker = world.worker(of=topics(attempts=1))
    world.lose(world.emit(b"x" * 1_900))
    world.settle(worker)
    (letter,) = world.letters()
    assert (letter.value, header(letter, "windhover.dead")) == (None, "ATTEMPTS")
    assert "more than sentences.g.dlq takes" in (header(letter, "windhover.missing") or "")
    assert worker.status().without_payload == 1


def test_a_dead_letter_goes_to_the_source_partition_modulo_those_of_its_topic(world: World) -> None:
    """P29"""
    world.cluster.delete_topic(LETTERS)
    world.cluster.create_topic(LETTERS, 1)
    worker = world.worker(of=topics(attempts=1))
    world.lose(world.emit(b"a", partition=0))
    world.lose(world.emit(b"b", partition=1), verdict_partition=1)
    world.settle(worker)
    letters = world.letters(partition=0)
    assert sorted(header(letter, "__dlq.errors.partition") or "" for letter in letters) == ["0", "1"]


def test_acked_roots_and_answers_to_sessions_move_the_commit_and_nothing_else(world: World) -> None:
    """S149, P38: the group has no lag, also behind a transaction's marker."""
    worker = world.worker()
    world.ack(65_536, 0, 10)
    taken = Taken("g", "s", 1, "s", "", 0, 1, 0, (), ())
    world.garbage(wire_codec().encode(taken))
    world.ack(65_536, 10, 20)
    world.settle(worker)
    verdict = TopicPartition("_ack_verdict", 0)
    log = world.cluster.log()
    assert log.committed("windhover-replay", [verdict]) == log.ends([verdict])
    assert world.copies() == world.letters() == []


def test_garbage_among_the_verdicts_is_counted_told_once_and_passed(world: World) -> None:
    """What cannot be read holds nothing back."""
    worker = world.worker()
    for _ in range(2):
        world.garbage(b"\x00nonsense")
    world.garbage(None)
    world.lose(world.emit(b"x"))
    world.settle(worker, until_ms=world.now_ms + 60_000)
    assert len(world.copies()) == 1
    assert worker.status().undecodable == 3
    assert len([event for event in world.events if event.name == "undecodable"]) == 1


@pytest.mark.parametrize("wrong", ["emitted_at", "emitted_wall", "decided_at"])
def test_a_verdict_with_a_time_that_is_none_is_passed_over(world: World, wrong: str) -> None:
    """The age of the two farthest from each other has 65 bits, so that no entry could be written."""
    worker = world.worker()
    root = world.emit(b"x")
    for number in (-(1 << 63), (1 << 63) - 1):
        times = {"emitted_at": 0, "emitted_wall": 0, "decided_at": 0, wrong: number}
        if wrong == "emitted_at":
            times["decided_at"] = -1 - number
        where = pack_positions(np.array([root.offset]))
        lost = Lost(
            Verdict.TIMED_OUT, "g", TOPIC, world.topic_id(TOPIC), "", "", "",
            source=root.source, positions=where, **times,
        )  # fmt: skip
        world.verdict(Verdicts((), (), (lost,)))
    world.lose(world.emit(b"y"))
    world.settle(worker, until_ms=world.now_ms + 60_000)
    assert [copy.value for copy in world.copies()] == [b"y"]
    assert worker.status().undecodable == 2


def test_an_input_id_that_another_group_had_is_put_aside(world: World) -> None:
    worker = world.worker()
    world.lose(world.emit(b"x"), group="elder")
    world.settle(worker)
    assert world.copies() == []
    assert worker.status().aside_by_input == {"sentences": 1}
    (told,) = [event for event in world.events if event.name == "put_aside"]
    assert "were emitted by group elder" in str(told.fields["why"])


@pytest.mark.parametrize("strange", [1, 20])
def test_what_another_group_emitted_under_an_inputs_id_holds_up_nothing_of_the_input(
    world: World, strange: int
) -> None:
    """O1810: before, the input was left alone for up to a minute, again and again."""
    worker = world.worker(limits=limits(fire_max=3))
    for number in range(strange):
        world.lose(world.emit(b"x%d" % number), group="stranger", reason=Verdict.ABANDONED)
    world.settle(worker)
    for number in range(5):
        world.lose(world.emit(b"own%d" % number), reason=Verdict.ABANDONED)
        at_ms = world.now_ms
        world.settle(worker, until_ms=at_ms + 100)
        assert world.copies()[number:][0].value == b"own%d" % number
        world.settle(worker, until_ms=at_ms + 20_000)
    assert len(world.copies()) == 5
    assert worker.status().aside_by_input == {"sentences": strange}
    named = [event for event in world.events if event.name == "put_aside"]
    assert len(named) == 2
    assert {event.fields["roots"] for event in named[1:]} == {strange}
    world.kill(worker)
    restarted = world.worker()
    world.settle(restarted)
    assert restarted.status().aside_by_input == {"sentences": strange}


def test_a_waiting_root_of_an_input_that_left_topics_yaml_goes_on_waiting(world: World) -> None:
    first = world.worker()
    world.lose(world.emit(b"x"))
    world.settle(first)
    first.close()
    without = topics_yaml.parse("acker: {partitions: 2}", file="topics.yaml", environ={})
    second = world.worker(of=without)
    world.settle(second, until_ms=world.now_ms + 60_000)
    assert second.status().aside_by_input == {"id 1": 1}
    world.kill(second)
    world.settle(world.worker(), until_ms=world.now_ms + 60_000)
    assert len(world.copies()) == 1


def test_verdicts_deleted_before_they_were_taken_over_are_an_error(world: World) -> None:
    world.lose(world.emit(b"x"))
    world.cluster.delete_before(TopicPartition("_ack_verdict", 0), 1)
    with pytest.raises(DataLoss, match="_ack_verdict/0"):
        world.settle(world.worker())


def test_a_verdict_topic_that_was_created_again_is_an_error(world: World) -> None:
    worker = world.worker()
    world.lose(world.emit(b"x"))
    world.settle(worker)
    worker.close()
    world.cluster.delete_topic("_ack_verdict")
    world.cluster.create_topic("_ack_verdict", 2)
    with pytest.raises(Disagreement, match="created again"):
        world.settle(world.worker())


def test_a_missing_replay_topic_is_told_before_anything_is_taken_over(world: World) -> None:
    world.cluster.delete_topic(COPIES)
    world.worker().step(world.now_ms)
    (told,) = [event for event in world.events if event.name == "put_aside"]
    assert "topics sentences.g.replay are missing" in str(told.fields["why"])


def test_a_replay_topic_with_fewer_partitions_than_its_source_is_told(world: World) -> None:
    world.cluster.delete_topic(COPIES)
    world.cluster.create_topic(COPIES, 1)
    world.worker().step(world.now_ms)
    (told,) = [event for event in world.events if event.name == "put_aside"]
    assert "give it as many" in str(told.fields["why"])


def test_a_change_of_policy_leaves_what_waits_as_it_was_decided(world: World) -> None:
    first = world.worker()
    world.lose(world.emit(b"early"))
    lost_at_ms = world.now_ms
    world.settle(first)
    first.close()
    second = world.worker(of=topics(attempts=1, waits="initial: 1h, max: 2h"))
    world.lose(world.emit(b"late"))
    world.settle(second, until_ms=lost_at_ms + 999)
    assert world.copies() == []
    world.settle(second, until_ms=lost_at_ms + 1_000)
    assert [copy.value for copy in world.copies()] == [b"early"]
    assert [letter.value for letter in world.letters()] == [b"late"]


def test_the_breaker_pauses_its_input_by_the_count_in_a_row_and_the_rest_waits(world: World) -> None:
    """P62: the consecutive count."""
    worker = world.worker(of=topics(attempts=1, max_consecutive=3))
    world.lose(*[world.emit(b"%d" % number) for number in range(5)])
    world.settle(worker)
    assert len(world.letters()) == 3
    assert (worker.status().paused, worker.status().waiting) == (("sentences",), 2)
    (told,) = [event for event in world.events if event.name == "paused"]
    assert "3 records in a row" in str(told.fields["why"])
    assert "windhover replay resume sentences" in str(told.fields["why"])


def test_the_breaker_opens_by_the_share_of_dead_letters_among_settled_roots(world: World) -> None:
    """P62: the ratio."""
    few = limits(breaker_dead_min=2, breaker_settled_min=1)
    worker = world.worker(of=topics(attempts=1, max_ratio=0.1), limits=few)
    world.ack(65_536, 0, 90)
    world.lose(*[world.emit(b"%d" % number) for number in range(20)])
    world.settle(worker)
    assert len(world.letters()) == 10
    (told,) = [event for event in world.events if event.name == "paused"]
    assert "10 of 100 roots" in str(told.fields["why"])


def test_a_small_stream_is_paused_when_too_many_of_its_last_roots_die(world: World) -> None:
    """D603: by the default limits; 20 of the last 110 are more than a tenth, whenever they were settled."""
    worker = world.worker(of=topics(attempts=1, max_ratio=0.1), limits=None)
    world.ack(65_536, 0, 90)
    world.settle(worker)
    world.now_ms += 3_600_000
    world.lose(*[world.emit(b"%d" % number) for number in range(200)])
    world.settle(worker)
    assert len(world.letters()) == 20
    assert worker.status().paused == ("sentences",)


def test_acked_roots_between_dead_letters_keep_the_breaker_closed(world: World) -> None:
    worker = world.worker(of=topics(attempts=1, max_consecutive=2))
    for _ in range(5):
        world.lose(world.emit(b"x"))
        world.settle(worker)
        world.ack(65_536, 0, 1)
        world.settle(worker)
    assert len(world.letters()) == 5


def test_one_verdict_record_may_name_more_roots_than_one_transaction_holds(world: World) -> None:
    roots = [world.emit(b"%d" % number) for number in range(10)]
    worker = world.worker(limits=limits(intake_max=3, fire_max=4))
    world.lose(*roots)
    world.settle(worker, until_ms=world.now_ms + 60_000)
    assert [copy.value for copy in world.copies()] == [b"%d" % number for number in range(10)]


def test_one_transaction_may_take_the_rest_of_a_verdict_record_and_the_first_of_the_next(
    world: World,
) -> None:
    roots = [world.emit(b"%d" % number) for number in range(10)]
    worker = world.worker(limits=limits(intake_max=3))
    world.lose(*roots[:4])
    world.lose(*roots[4:])
    world.settle(worker, until_ms=world.now_ms + 60_000)
    assert sorted(copy.value or b"" for copy in world.copies()) == [b"%d" % number for number in range(10)]


def test_no_more_roots_wait_than_the_limit_and_the_rest_stays_in_the_verdicts(world: World) -> None:
    worker = world.worker(limits=limits(waiting_max=4))
    world.lose(*[world.emit(b"%d" % number) for number in range(10)])
    world.settle(worker)
    status = worker.status()
    assert (status.waiting, status.lost) == (4, 4)
    assert status.waiting_full > 0
    world.settle(worker, until_ms=world.now_ms + 600_000)
    assert len(world.copies()) == 10
    assert worker.status().replayed_by_input == {"sentences": 10}


def test_payloads_larger_than_one_fetch_are_copied_in_several_rounds(world: World) -> None:
    worker = world.worker(limits=limits(fetch_bytes_max=1_000))
    roots = [world.emit(b"%d" % number * 400) for number in range(9)]
    world.lose(*roots)
    world.settle(worker, until_ms=world.now_ms + 60_000)
    assert [copy.value for copy in world.copies()] == [b"%d" % number * 400 for number in range(9)]
    assert 9 * 400 <= worker.status().fetched_bytes < 2 * 9 * 400


def test_entries_larger_than_one_fetch_are_read_in_several_rounds(world: World) -> None:
    """All that are due would take too much memory, with long histories, and wait for payloads again."""
    first = world.worker()
    world.lose(*(world.emit(b"%d" % number) for number in range(1_600)))
    world.settle(first)
    world.kill(first)
    worker = world.worker(limits=limits(fetch_bytes_max=1))
    world.now_ms += 2_000
    while not world.copies():
        worker.step(world.now_ms)
    assert worker.status().fetched_records <= 1_000  # a first poll has 500: of entries, then of payloads
    world.settle(worker)
    assert sorted(int(copy.value or b"") for copy in world.copies()) == list(range(1_600))
