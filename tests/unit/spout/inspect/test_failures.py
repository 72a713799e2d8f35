"""Failures by bolt and cause: counted from the verdicts, with the share that a replay repairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from acker.errors import TopicError
from acker.kafka.port import TopicPartition
from acker.kafka.read_to_end import Follower
from acker.ledger.tally import OTHERS
from acker.wire.causes import HELD
from acker.wire.verdict import Verdict
from replay.records.headers import parse_lineage
from spout.inspect.failures import GROUPS_MAX, FailureLog, LogFigures, share_text
from tests.support.worlds.replay_world import COPIES, LETTERS, World, topics

THRICE = topics(attempts=3, waits="initial: 0s")
INPUT = THRICE.input("sentences")
BEGAN_MS = 1_000_000


@pytest.fixture
def world() -> World:
    made = World()
    made.cluster.now_ms = made.now_ms
    return made


def of(world: World, since_ms: int = 0) -> FailureLog:
    found = FailureLog(world.cluster.log(), THRICE, [INPUT], since_ms)
    found.read()
    return found


def rows(world: World, since_ms: int = 0) -> dict[tuple[str | None, str], dict[str, Any]]:
    return {(row["operator"], row["cause"]): row for row in of(world, since_ms).rows(world.now_ms)}


def ack(world: World, number: int) -> None:
    copy = world.copies()[number]
    world.ack(world.emission_of(copy).source, copy.offset, copy.offset + 1)


def test_failures_are_counted_by_bolt_and_cause_with_their_first_and_last(world: World) -> None:
    world.lose(world.emit(b"a"), world.emit(b"b"))
    world.now_ms += 60_000
    world.cluster.now_ms = world.now_ms
    world.lose(world.emit(b"c"))
    world.lose(world.emit(b"d"), error="NoSuchOrder(OrderError, LookupError)", operator="count")
    world.lose(world.emit(b"e"), error="", operator="count")
    world.lose(world.emit(b"f"), reason=Verdict.TIMED_OUT)
    world.now_ms += 60_000
    found = rows(world)
    assert {name: row["failures"] for name, row in found.items()} == {
        ("split", "ValueError"): 3,
        ("count", "NoSuchOrder"): 1,
        ("count", "FailTuple"): 1,
        (None, "TIMED_OUT"): 1,
    }
    row = found["split", "ValueError"]
    assert (row["first"], row["last"]) == ("1970-01-01T00:16:40Z", "1970-01-01T00:17:40Z")
    assert row["per_minute"] == pytest.approx(1.5)
    assert (row["acked_at_2"], row["dead"]) == (None, 0)
    assert next(iter(found)) == ("split", "ValueError"), "those with the most failures first"
    later = rows(world, BEGAN_MS + 1)
    assert later["split", "ValueError"]["failures"] == 1


def test_the_share_of_an_attempt_is_of_its_settled_replays_alone(world: World) -> None:
    worker = world.worker(of=THRICE)
    world.lose(*(world.emit(b"%d" % number) for number in range(4)))
    world.settle(worker)
    ack(world, 0)
    assert rows(world)["split", "ValueError"]["acked_at_2"] == 1.0, "three are not settled"
    copies = world.copies()
    world.lose(*(world.emission_of(copies[number]) for number in (1, 2)))
    world.settle(worker)
    row = rows(world)["split", "ValueError"]
    assert (row["failures"], row["acked_at_2"], row["acked_at_3"]) == (6, pytest.approx(1 / 3), None)
    ack(world, 4)
    world.lose(world.emission_of(world.copies()[5]), error="KeyError")
    world.settle(worker)
    found = rows(world)
    assert (found["split", "ValueError"]["acked_at_3"], found["split", "ValueError"]["dead"]) == (0.5, 0)
    assert (found["split", "KeyError"]["failures"], found["split", "KeyError"]["dead"]) == (1, 1)
    assert share_text(1 / 3) == "33.3 %"


def test_each_group_names_the_record_that_failed_last_and_which_attempt_that_was(world: World) -> None:
    """D1412: also where a later attempt was acked; a copy is named by the record that it is of."""
    worker = world.worker(of=THRICE)
    world.lose(*(world.emit(b"%d" % number) for number in range(4)), error="HUNG")
    row = rows(world)["split", "HUNG"]
    assert (row["last_record"], row["last_attempt"]) == ("sentences/0@3", 1)
    world.settle(worker)
    copies = world.copies()
    origins = {copy.offset: parse_lineage(copy.headers, *copy[:3]).origin for copy in copies}
    world.now_ms += 1_000
    world.cluster.now_ms = world.now_ms
    world.lose(world.emission_of(copies[1]), error="HUNG")
    ack(world, 0)
    world.settle(worker)
    row = rows(world)["split", "HUNG"]
    assert (row["failures"], row["acked_at_2"]) == (5, 0.5)
    assert (row["last_record"], row["last_attempt"]) == (origins[copies[1].offset], 2)
    ack(world, 4)
    assert rows(world)["split", "HUNG"]["last_attempt"] == 2
    world.lose(world.emission_of(copies[2]), reason=Verdict.TIMED_OUT)
    row = rows(world)[None, "TIMED_OUT"]
    assert (row["last_record"], row["last_attempt"]) == (origins[copies[2].offset], 2)


def test_what_is_read_in_pieces_is_the_same(world: World) -> None:
    worker = world.worker(of=THRICE)
    found = of(world)
    world.lose(*(world.emit(b"%d" % number) for number in range(2)))
    found.read()
    world.settle(worker)
    found.read()
    ack(world, 0)
    found.read()
    (row,) = found.rows(world.now_ms)
    assert (row["failures"], row["acked_at_2"]) == (2, 1.0)
    assert rows(world)["split", "ValueError"]["acked_at_2"] == 1.0


def test_more_records_than_one_reading_takes_in_are_counted_all_the_same(world: World) -> None:
    for _ in range(5):
        world.lose(world.emit(b"a"))
    found = FailureLog(world.cluster.log(), THRICE, [INPUT], 0, read_max=2)
    assert list(found.read_all()) == [0.4, 0.8]
    (row,) = found.rows(world.now_ms)
    assert (row["failures"], found.all_notes()) == (5, [])


def test_partitions_that_were_added_count_for_who_has_read_the_others(world: World) -> None:
    once = topics(attempts=2, waits="initial: 0s")
    found = FailureLog(world.cluster.log(), once, [once.input("sentences")], 0)
    found.read()
    for topic in ("sentences", COPIES, LETTERS):
        world.cluster.add_partitions(topic, 3)
    worker = world.worker(of=once)
    world.lose(world.emit(b"a", partition=2), world.emit(b"b", partition=2))
    world.settle(worker)
    one, other = (world.emission_of(copy) for copy in world.records(COPIES, 2))
    world.ack(one.source, one.offset, one.offset + 1)
    world.lose(other)
    world.settle(worker)
    found.read()
    (row,) = found.rows(world.now_ms)
    assert (row["acked_at_2"], row["dead"], found.is_whole) == (0.5, 1, True)


def test_copies_that_were_settled_before_the_time_are_not_read(world: World) -> None:
    """A replay topic keeps every copy for ever: to count ten minutes, all of years were read and held."""
    worker = world.worker(of=THRICE)
    world.lose(*(world.emit(b"a") for _ in range(20)))
    world.settle(worker)
    copies = [world.emission_of(copy) for copy in world.copies()]
    world.ack(copies[0].source, 0, 18)
    since_ms = world.now_ms = world.cluster.now_ms = world.now_ms + 600_000
    world.ack(copies[0].source, copies[18].offset, copies[18].offset + 1)
    log = world.cluster.log()
    log.commit("g", {TopicPartition(COPIES, 0): copies[18].offset}, "")
    found = FailureLog(log, THRICE, [INPUT], since_ms, read_max=4)
    steps = list(found.read_all())
    assert (len(steps), found.is_whole) == (0, True)
    world.lose(copies[19])
    found.read()
    shares = {row["cause"]: row["acked_at_2"] for row in found.rows(world.now_ms)}
    assert shares == {"ValueError": 0.5}


class Silent(LogFigures):
    """Its topics have more, and nothing of it comes."""

    is_whole = False
    fraction_read = 0.4

    def _followers(self) -> Sequence[Follower]:
        return ()

    def read(self) -> None:
        """Find nothing."""


def test_figures_of_a_part_say_so_where_nothing_more_comes() -> None:
    assert list(Silent().read_all()) == [0.4]
    (note,) = Silent().partial_notes()
    assert note.startswith("the figures are of a part: of one of the topics 40 % are read")


def test_a_root_that_waits_for_order_did_not_fail(world: World) -> None:
    world.lose(world.emit(b"a"), error=HELD, operator="")
    assert rows(world) == {}


def test_a_missing_topic_makes_its_values_unknown_and_the_rest_goes_on(world: World) -> None:
    world.lose(world.emit(b"a"))
    world.cluster.delete_topic(LETTERS)
    found = of(world)
    (row,) = found.rows(world.now_ms)
    assert (row["failures"], row["dead"]) == (1, None)
    assert [note for note in found.all_notes() if LETTERS in note]
    world.cluster.delete_topic("_ack_verdict")
    with pytest.raises(TopicError, match="_ack_verdict is missing"):
        of(world)


def test_where_older_verdicts_are_gone_the_rate_is_of_the_rest_and_a_note_says_so(world: World) -> None:
    world.lose(world.emit(b"a"))
    world.now_ms += 600_000
    world.cluster.now_ms = world.now_ms
    world.lose(world.emit(b"b"))
    world.cluster.log().delete_before({TopicPartition("_ack_verdict", 0): 2})
    world.now_ms += 60_000
    found = of(world, 1)
    (row,) = found.rows(world.now_ms)
    assert (row["failures"], row["per_minute"]) == (1, pytest.approx(1.0))
    assert found.all_notes() == ["verdicts before 1970-01-01T00:26:40Z are no longer in the log"]
    log = world.cluster.log()
    log.delete_before(log.ends([TopicPartition("_ack_verdict", number) for number in range(2)]))
    assert of(world, 1).all_notes() == ["older verdicts are no longer in the log"]


def test_no_more_groups_are_kept_than_their_limit(world: World) -> None:
    root = world.emit(b"a")
    for number in range(GROUPS_MAX + 5):
        world.lose(root, error=f"Error{number}")
    found = rows(world)
    assert len(found) == GROUPS_MAX + 1
    assert found[None, OTHERS]["failures"] == 5


def test_a_replay_that_waited_for_order_counts_for_the_failure_that_it_repairs(world: World) -> None:
    worker = world.worker(of=THRICE)
    world.lose(world.emit(b"a"))
    world.settle(worker)
    world.lose(world.emission_of(world.copies()[0]), error=HELD, operator="")
    world.settle(worker, until_ms=world.now_ms + 3_600_000)
    assert len(world.copies()) == 2
    ack(world, 1)
    found = rows(world)
    assert list(found) == [("split", "ValueError")]
    assert (found["split", "ValueError"]["failures"], found["split", "ValueError"]["acked_at_2"]) == (1, 1.0)


def test_what_a_rule_drops_is_counted_apart_from_what_died(world: World) -> None:
    """D1202: `failures` showed a cause that drops every record as one that loses none."""
    dropping = topics(more=", causes: [{error: ValueError, then: drop}]")
    worker = world.worker(of=dropping)
    world.lose(world.emit(b"a"), world.emit(b"b"))
    world.settle(worker)
    (row,) = rows(world).values()
    assert (row["failures"], row["dead"], row["dropped"]) == (2, 0, 2)
