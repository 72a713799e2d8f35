"""One input's trouble is its own: what waits of it is put aside, and the others go on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

import pytest

from acker.config import topics as topics_yaml
from acker.config.topics import Topics
from acker.errors import Disagreement, NotAuthorized, Unreachable
from acker.identity import copies_source, source_of
from acker.kafka.port import Outgoing, Picker, TopicPartition, Transactions
from acker.wire.verdict import Verdict
from replay.handling.resume import pauses, resume
from replay.worker.service import ReplayService
from tests.support.memory.clients import MemoryPicker, MemoryTransactions, NoFaults
from tests.support.worlds.replay_world import Client, Crash, CrashAt, Emission, World, header, limits

OTHER, OTHER_COPIES, OTHER_LETTERS = "words", "words.h.replay", "words.h.dlq"
NEWER = """
acker: {partitions: 2}
inputs:
  sentences:
    {id: 1, group: g, retry: {attempts: 3, initial: 1s, jitter: 0},
     dead_letter: {max_ratio: 1.0, max_consecutive: %(row)s}}
  words:
    {id: 2, group: h,
     retry: {attempts: 2, initial: 2s, jitter: 0, causes: [{error: LookupError, then: dead_letter}]},
     dead_letter: {max_ratio: 1.0, max_consecutive: %(row)s}}
"""
QUICK = limits(input_retry_ms=64_000)


@cache
def newer(row: int = 1_000) -> Topics:
    """The topics.yaml that has a second input."""
    return topics_yaml.parse(NEWER % {"row": row}, file="topics.yaml", environ={})


class Two(World):
    """A world with the topics of a second input."""

    def __init__(self) -> None:
        super().__init__()
        for name in (OTHER, OTHER_COPIES, OTHER_LETTERS):
            self.cluster.create_topic(name, 2)

    def other(self, value: bytes, topic: str = OTHER) -> Emission:
        found = self.emit(value, topic=topic)
        source = source_of(2, found.partition)
        return found._replace(source=copies_source(source) if topic == OTHER_COPIES else source)

    def lose_other(self, *roots: Emission, error: str = "ValueError") -> None:
        self.lose(*roots, group="h", error=error)

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for record in self.records(topic)]

    def told(self, name: str) -> list[str]:
        return [str(event.fields.get("why", "")) for event in self.events if event.name == name]


@pytest.fixture
def world() -> Two:
    return Two()


def test_roots_of_an_input_that_topics_yaml_lacks_wait_and_the_others_go_on(world: Two) -> None:
    """Before, the first of them ended every replay worker."""
    worker = world.worker()
    world.lose_other(world.other(b"w"))
    world.lose(world.emit(b"s"))
    world.settle(worker, until_ms=world.now_ms + 30_000)
    assert [copy.value for copy in world.copies()] == [b"s"]
    status = worker.status()
    assert (status.waiting, status.aside, status.aside_by_input) == (1, 1, {"id 2": 1})
    verdict = TopicPartition("_ack_verdict", 0)
    assert world.cluster.log().committed("windhover-replay", [verdict])[verdict] == 4
    (why,) = world.told("put_aside")
    assert "no input with id 2, of group h" in why
    assert "SIGHUP" in why
    world.settle(worker, until_ms=world.now_ms + 60_000)
    assert len(world.told("put_aside")) == 2


@pytest.mark.parametrize("is_started_again", [False, True])
def test_a_newer_topics_yaml_decides_what_was_put_aside(world: Two, is_started_again: bool) -> None:
    """By its own policy: rules that name a class above the one that was raised fit as well."""
    worker = world.worker()
    world.lose_other(world.other(b"w0"), world.other(b"w1"))
    world.lose_other(world.other(b"final"), error="KeyError(LookupError)")
    world.settle(worker, until_ms=world.now_ms + 10_000)
    assert worker.status().aside == 3
    if is_started_again:
        worker.close()
        worker = world.worker(of=newer())
    else:
        worker.take_topics(newer())
    world.settle(worker)
    at_ms = world.now_ms
    world.settle(worker, until_ms=at_ms + 1_999)
    assert world.values(OTHER_COPIES) == []
    world.settle(worker, until_ms=at_ms + 2_000)
    assert world.values(OTHER_COPIES) == [b"w0", b"w1"]
    assert world.values(OTHER_LETTERS) == [b"final"]
    (letter,) = world.records(OTHER_LETTERS)
    assert (header(letter, "windhover.dead"), header(letter, "windhover.origin")) == ("CAUSE", "words/0@2")
    assert (worker.status().waiting, worker.status().aside) == (0, 0)


@pytest.mark.parametrize("later_ms", [1, 60_000])
def test_what_was_put_aside_is_replayed_before_what_was_abandoned_after_it(world: Two, later_ms: int) -> None:
    """O1702: oldest first, also where a worker with a newer topics.yaml takes over in between.

    Seeds 9002301 (ordered) and 9006041: what was put aside got the time of its decision, one root after the
    other, and what was taken over meanwhile went before it.
    """
    older = world.worker()
    aside = [world.other(b"w%d" % number) for number in range(3)]
    world.lose(*aside, group="h", reason=Verdict.ABANDONED)
    world.settle(older)
    assert older.status().aside == 3
    older.close()
    world.now_ms += later_ms
    world.lose(world.other(b"w3"), group="h", reason=Verdict.ABANDONED)
    world.settle(world.worker(of=newer(), limits=limits(fire_max=1)))
    assert world.values(OTHER_COPIES) == [b"w0", b"w1", b"w2", b"w3"]


def test_a_lost_copy_of_an_unknown_input_keeps_its_attempt_while_it_is_aside(world: Two) -> None:
    first = world.worker(of=newer())
    world.lose_other(world.other(b"w"))
    world.settle(first, until_ms=world.now_ms + 10_000)
    (copy,) = world.records(OTHER_COPIES)
    first.close()
    older = world.worker()
    lost = Emission(copies_source(source_of(2, 0)), OTHER_COPIES, 0, copy.offset)
    world.lose_other(lost)
    world.settle(older)
    assert older.status().aside == 1
    older.take_topics(newer())
    world.settle(older, until_ms=world.now_ms + 10_000)
    (letter,) = world.records(OTHER_LETTERS)
    assert (letter.value, header(letter, "windhover.attempt")) == (b"w", "2")


def test_a_crash_at_any_moment_of_aside_and_decision_leaves_one_copy(world: Two) -> None:
    for number in range(200):
        one = Two()
        one.lose_other(one.other(b"w"), one.other(b"v"))
        one.lose(one.emit(b"s"))
        older = one.worker(CrashAt(number))
        fell = crashed(one, older)
        if not fell:
            older = one.worker(CrashAt(number), of=newer())
            fell = crashed(one, older)
        again = one.worker()
        one.settle(again, until_ms=one.now_ms + 5_000)
        again.close()
        one.settle(one.worker(of=newer()), until_ms=one.now_ms + 20_000)
        assert sorted(one.values(OTHER_COPIES)) == [b"v", b"w"], f"crash at call {number}"
        assert one.values("sentences.g.replay") == [b"s"]
        assert one.values(OTHER_LETTERS) == []
        if not fell:
            return
    raise AssertionError("it always crashed")


def crashed(world: Two, worker: ReplayService) -> bool:
    """Let a worker run until it crashes; tell whether it did. Its partitions are free afterwards."""
    try:
        world.settle(worker, until_ms=world.now_ms + 10_000)
    except Crash:
        return True
    finally:
        world.kill(worker)
    return False


def test_a_running_worker_refuses_what_it_cannot_change(world: Two) -> None:
    worker = world.worker()
    world.settle(worker)
    with pytest.raises(Disagreement, match=r"acker\.partitions has changed"):
        worker.take_topics(topics_yaml.parse("acker: {partitions: 3}", file="t", environ={}))
    step = "acker: {partitions: 2}\nreplay: {limits: {step: 10m}}"
    other = world.worker(limits=None)
    slower = topics_yaml.parse(step, file="t", environ={})
    with pytest.raises(Disagreement, match=r"replay\.limits\.step.* has changed"):
        other.take_topics(slower)
    world.lose(world.emit(b"s"))
    world.settle(worker, until_ms=world.now_ms + 10_000)
    assert [copy.value for copy in world.copies()] == [b"s"]


def waits_alone(world: Two, worker: ReplayService) -> str:
    """Lose a record of each input, of which the second one's must wait alone; return why it does."""
    world.lose_other(world.other(b"w"))
    world.lose(world.emit(b"s"))
    world.settle(worker, until_ms=world.now_ms + 30_000)
    assert [copy.value for copy in world.copies()] == [b"s"]
    assert worker.status().aside_by_input == {"words": 1}
    return world.told("put_aside")[0]


@pytest.mark.parametrize("missing", [OTHER_COPIES, OTHER_LETTERS])
def test_an_input_whose_topic_is_missing_waits_alone_and_goes_on_when_it_is_there(
    world: Two, missing: str
) -> None:
    """Before, the worker ended, at its start or at the first root that was due."""
    worker = world.worker(of=newer(), limits=QUICK)
    world.settle(worker)
    world.cluster.delete_topic(missing)
    assert f"topics {missing} are missing" in waits_alone(world, worker)
    world.cluster.create_topic(missing, 2)
    world.settle(worker, until_ms=world.now_ms + 64_000)
    assert world.values(OTHER_COPIES) == [b"w"]
    assert worker.status().aside == 0
    assert [event.fields["input"] for event in world.events if event.name == "goes_on"] == ["words"]


class Troubled(Client):
    """A client that meets trouble with the second input as long as `is_over` is not set."""

    is_over = False

    def meets(self, topics: Iterable[str], error: Exception) -> None:
        """Raise an error where one of the topics is the second input's."""
        if not self.is_over and not {OTHER, OTHER_COPIES}.isdisjoint(topics):
            raise error


class MayNotWrite(Troubled):
    """Its transactions take no record of the second input."""

    def transactions(self, transactional_id: str) -> Transactions:
        client = self

        class Refusing(MemoryTransactions):
            def send_all(self, records: Iterable[Outgoing]) -> None:
                records = list(records)
                error = NotAuthorized(f"topic {OTHER_COPIES}: Write is missing")
                client.meets((record.topic for record in records), error)
                super().send_all(records)

        return Refusing(self._broker, self._faults, transactional_id)


class Silent(Troubled):
    """Its pickers get nothing of the second input."""

    def picker(self) -> Picker:
        client = self

        class Unanswered(MemoryPicker):
            def assign(self, positions: Mapping[TopicPartition, int]) -> None:
                error = Unreachable(f"no record of {OTHER} was sent")
                client.meets((place.topic for place in positions), error)
                super().assign(positions)

        return Unanswered(self.reader(committed=True))


@pytest.mark.parametrize(
    ("kind", "why"),
    [(MayNotWrite, f"topic {OTHER_COPIES}: Write is missing"), (Silent, "no record of words was sent")],
)
def test_an_input_in_trouble_waits_alone(world: Two, kind: type[Troubled], why: str) -> None:
    """A broker refuses a whole transaction; a partition is without a leader while all else answers."""
    client = kind(world.cluster, NoFaults())
    worker = world.worker(of=newer(), limits=QUICK, client=client)
    assert why in waits_alone(world, worker)
    client.is_over = True
    world.settle(worker, until_ms=world.now_ms + 64_000)
    assert world.values(OTHER_COPIES) == [b"w"]


def test_an_input_whose_topic_refuses_a_copy_waits_alone_until_the_topic_is_corrected(world: Two) -> None:
    """A topic of somebody's own may limit the age of records, or take none without a key."""
    world.cluster.delete_topic(OTHER_COPIES)
    world.cluster.create_topic(OTHER_COPIES, 2, compacted=True)
    worker = world.worker(of=newer(), limits=QUICK)
    assert OTHER_COPIES in waits_alone(world, worker)
    world.cluster.delete_topic(OTHER_COPIES)
    world.cluster.create_topic(OTHER_COPIES, 2)
    world.settle(worker, until_ms=world.now_ms + 64_000)
    assert world.values(OTHER_COPIES) == [b"w"]


def test_the_search_for_refused_records_of_one_input_holds_up_no_other(world: Two) -> None:
    """O207: before, an input that was to be tried alone was tried until nothing of it was due."""
    world.cluster.delete_topic(OTHER_COPIES)
    world.cluster.create_topic(OTHER_COPIES, 2, settings={"message.timestamp.after.max.ms": "1000"})
    worker = world.worker(of=newer(), limits=QUICK)
    tomorrow_ms = world.now_ms + 86_400_000
    for number in range(200):
        stamp_ms = tomorrow_ms if number % 2 else 77
        root = world.emit(b"w", topic=OTHER, timestamp_ms=stamp_ms)
        world.lose_other(root._replace(source=source_of(2, 0)))
    world.settle(worker)
    world.now_ms += 2_000
    for _ in range(4):
        worker.step(world.now_ms)
    world.lose(world.emit(b"s"))
    for _ in range(4):
        worker.step(world.now_ms)
    world.now_ms += 1_000
    for _ in range(2):
        worker.step(world.now_ms)
    assert [copy.value for copy in world.copies()] == [b"s"]
    assert 0 < len(world.values(OTHER_COPIES)) < 100
    world.settle(worker, until_ms=world.now_ms + 10_000)
    assert len(world.values(OTHER_LETTERS)) == len(world.values(OTHER_COPIES)) == 100
    assert worker.status().aside == 0


def test_the_breaker_pauses_one_input_and_the_others_go_on(world: Two) -> None:
    """Before, it stopped the worker for all of them."""
    worker = world.worker(of=newer(row=3))
    world.lose_other(*[world.other(b"%d" % number) for number in range(5)], error="LookupError")
    world.lose(world.emit(b"s"))
    world.settle(worker, until_ms=world.now_ms + 10_000)
    assert world.values(OTHER_LETTERS) == [b"0", b"1", b"2"]
    assert [copy.value for copy in world.copies()] == [b"s"]
    assert (worker.status().paused, worker.status().aside_by_input) == (("words",), {"words": 2})
    assert "windhover replay resume words" in world.told("put_aside")[0]


def test_a_pause_outlives_the_worker_and_ends_by_resume_alone(world: Two) -> None:
    worker = world.worker(of=newer(row=3))
    world.lose_other(*[world.other(b"%d" % number) for number in range(5)], error="LookupError")
    world.settle(worker)
    world.kill(worker)
    again = world.worker(of=newer(row=3))
    world.settle(again, until_ms=world.now_ms + 10_000)
    assert (len(world.values(OTHER_LETTERS)), again.status().paused) == (3, ("words",))
    log = world.cluster.log()
    assert list(pauses(log, newer())) == [0]
    assert list(resume(log, newer(), 2)) == [0]
    assert dict(pauses(log, newer())) == {}
    assert dict(resume(log, newer(), 2)) == {}
    for _ in range(3):
        world.settle(again, until_ms=world.now_ms + 2_000)
    assert sorted(world.values(OTHER_LETTERS)) == [b"0", b"1", b"2", b"3", b"4"]
    assert again.status().paused == ()


def test_resume_reaches_the_worker_whose_breaker_opened_and_that_has_nothing_to_do(world: Two) -> None:
    worker = world.worker(of=newer(row=3))
    world.lose_other(*[world.other(b"%d" % number) for number in range(5)], error="LookupError")
    world.settle(worker, until_ms=world.now_ms + 5_000)
    resume(world.cluster.log(), newer(), 2)
    for _ in range(3):
        world.settle(worker, until_ms=world.now_ms + 2_000)
    assert sorted(world.values(OTHER_LETTERS)) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_partition_that_comes_later_leaves_the_breaker_open(world: Two) -> None:
    """Before, it closed the breaker: each partition that moved here allowed more dead letters."""
    worker, leaving = world.worker(of=newer(row=3)), world.worker(of=newer(row=3))
    world.settle(worker, leaving)
    (here,), (there,) = worker.status().partitions, leaving.status().partitions
    roots = [world.other(b"%d" % number) for number in range(8)]
    for root in roots[:4]:
        world.lose(root, group="h", error="LookupError", verdict_partition=here)
    world.settle(worker)
    assert worker.status().paused == ("words",)
    for root in roots[4:]:
        world.lose(root, group="h", error="LookupError", verdict_partition=there)
    world.kill(leaving)
    world.settle(worker, until_ms=world.now_ms + 10_000)
    assert worker.status().partitions == (0, 1)
    assert world.values(OTHER_LETTERS) == [b"0", b"1", b"2"]
    for _ in range(2):
        resume(world.cluster.log(), newer(), 2)
        for _ in range(3):
            world.settle(worker, until_ms=world.now_ms + 2_000)
    assert len(world.values(OTHER_LETTERS)) == 8


def test_after_a_resume_a_worker_that_the_paused_partition_has_left_counts_anew(world: Two) -> None:
    """Before, its breaker stayed open: it paused the input again instead of writing one dead letter."""
    worker = world.worker(of=newer(row=2))
    for root in [world.other(b"%d" % number) for number in range(3)]:
        world.lose(root, group="h", error="LookupError", verdict_partition=1)
    world.settle(worker)
    assert (worker.status().paused, len(world.values(OTHER_LETTERS))) == (("words",), 2)
    owner = world.worker(of=newer(row=2))
    world.settle(worker, owner)
    assert (worker.status().partitions, owner.status().partitions) == ((0,), (1,))
    assert (worker.status().paused, owner.status().paused) == ((), ("words",))
    resume(world.cluster.log(), newer(), 2)
    for _ in range(3):
        world.settle(worker, owner, until_ms=world.now_ms + 2_000)
    assert world.values(OTHER_LETTERS) == [b"0", b"1", b"2"]
    world.lose(world.other(b"3"), group="h", error="LookupError", verdict_partition=0)
    world.settle(worker, owner, until_ms=world.now_ms + 2_000)
    assert world.values(OTHER_LETTERS) == [b"0", b"1", b"2", b"3"]
    assert worker.status().paused == ()


def test_a_breaker_stays_open_while_its_worker_has_another_paused_partition(world: Two) -> None:
    worker = world.worker(of=newer(row=2))
    for number, partition in enumerate((0, 0, 0, 1)):
        root = world.other(b"%d" % number)
        world.lose(root, group="h", error="LookupError", verdict_partition=partition)
        world.settle(worker)
    owner = world.worker(of=newer(row=2))
    world.settle(worker, owner)
    assert (worker.status().paused, owner.status().paused) == (("words",), ("words",))
    assert worker.status().breaker_used["words"] == 1


def test_copies_that_are_due_in_one_step_stand_in_the_order_of_their_origins(world: Two) -> None:
    """Before, in that of their due times, and of their losses where those were equal."""
    worker = world.worker(of=newer())
    roots = [world.emit(b"s%d" % number) for number in range(4)]
    words = [world.other(b"w%d" % number) for number in range(3)]
    for root in (roots[2], roots[0], roots[3], roots[1]):
        world.lose(root)
        world.now_ms += 3
        world.settle(worker)
    world.lose_other(*reversed(words))
    world.settle(worker)
    world.now_ms += 10_000
    world.settle(worker)
    assert [copy.value for copy in world.copies()] == [b"s0", b"s1", b"s2", b"s3"]
    assert world.values(OTHER_COPIES) == [b"w0", b"w1", b"w2"]
