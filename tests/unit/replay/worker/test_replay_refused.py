"""A record that the broker refuses is found among many, and dies or waits alone; the others go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from acker.errors import RecordRefused
from acker.kafka.port import Outgoing, Transactions
from acker.wire.verdict import Verdict
from replay.worker.service import ReplayService
from tests.support.memory.clients import MemoryTransactions, NoFaults
from tests.support.worlds.replay_world import (
    COPIES,
    LETTERS,
    Client,
    Crash,
    CrashAt,
    Emission,
    World,
    header,
    limits,
    topics,
)

HOUR_MS = 3_600_000
TOMORROW_MS = 100_000_000
DAYS_MS = 10 * TOMORROW_MS
REFUSED_MAX = limits().refused_max
ROOTS = 100
WORDS = f"{COPIES}: INVALID_TIMESTAMP: Broker: Invalid timestamp"
NO_LIMIT = str((1 << 63) - 1)
AFTER = "message.timestamp.after.max.ms"
RUNS = {
    "one at the head": {0},
    "one amid": {50},
    "one at the end": {99},
    "neighbours": {33, 34},
    "some": {3, 17, 18, 60, 98},
    "a run at the head": set(range(20)),
    "a run amid": set(range(40, 60)),
    "a run at the end": set(range(80, 100)),
    "each third": set(range(0, 100, 3)),
    "half": set(range(0, 100, 2)),
    "all but thirty": set(range(100)) - set(range(2, 90, 3)),
}


def limited(world: World, topic: str = COPIES, **settings: str) -> None:
    """Make a topic anew, by default with the time limit that brokers have."""
    world.cluster.delete_topic(topic)
    named = {name.replace("_", "."): value for name, value in settings.items()} or {AFTER: str(HOUR_MS)}
    world.cluster.create_topic(topic, 2, settings=named)


def lose_dated(world: World, bad: Iterable[int], count: int = ROOTS) -> None:
    """Lose roots, some of which are dated behind what the replay topic takes."""
    dated = set(bad)
    roots = [
        world.emit(b"%d" % number, timestamp_ms=TOMORROW_MS if number in dated else 77)
        for number in range(count)
    ]
    world.lose(*roots)


def numbers(values: Iterable[Any]) -> list[int]:
    """Return which records there are, ascending; more than once, if there are more."""
    return sorted(int(record.value) for record in values)


class Counting(Client):
    """A client that counts how many transactions its workers end."""

    ended = 0

    def transactions(self, transactional_id: str) -> Transactions:
        client = self

        class Counted(MemoryTransactions):
            def commit(self, timeout_ms: int) -> None:
                client.ended += 1
                super().commit(timeout_ms)

        return Counted(self._broker, self._faults, transactional_id)


@pytest.fixture
def world() -> World:
    """Return a world whose replay topic takes nothing that is dated more than an hour ahead."""
    made = World()
    limited(made)
    return made


@pytest.mark.parametrize("bad", RUNS.values(), ids=RUNS)
def test_the_records_that_are_refused_die_alone_with_the_brokers_words(world: World, bad: set[int]) -> None:
    """O201: before, one of a hundred held up ninety-nine, for ever."""
    client = Counting(world.cluster, NoFaults())
    worker = world.worker(client=client)
    lose_dated(world, bad)
    world.settle(worker, until_ms=world.now_ms + 10_000)
    assert numbers(world.copies()) == [number for number in range(ROOTS) if number not in bad]
    assert numbers(world.letters()) == sorted(bad)
    for letter in world.letters():
        assert header(letter, "windhover.dead") == "REFUSED"
        assert WORDS in (header(letter, "__dlq.errors.message") or "")
        assert header(letter, "windhover.timestamp") == str(TOMORROW_MS)
    status = worker.status()
    assert (status.waiting, status.aside, status.dead_lettered) == (0, 0, len(bad))
    assert client.ended <= 20 + 16 * len(bad)


@pytest.mark.parametrize("count", [1, 2, REFUSED_MAX - 1])
def test_a_few_records_that_have_no_neighbours_die_too(world: World, count: int) -> None:
    """O202: that nothing else is due must not keep them."""
    worker = world.worker()
    lose_dated(world, range(count), count)
    world.settle(worker, until_ms=world.now_ms + 10_000)
    assert numbers(world.letters()) == list(range(count))
    assert world.copies() == []


@pytest.mark.parametrize("count", [REFUSED_MAX, ROOTS])
def test_a_topic_that_takes_no_copy_is_the_inputs_trouble(world: World, count: int) -> None:
    """O203: no dead letter is written; when somebody corrects the topic, all of them go on by themselves."""
    client = Counting(world.cluster, NoFaults())
    worker = world.worker(client=client)
    lose_dated(world, range(count), count)
    world.settle(worker, until_ms=world.now_ms + 30_000)
    assert world.letters() == world.copies() == []
    assert worker.status().aside_by_input == {"sentences": count}
    (told, *_) = [event.fields for event in world.events if event.name == "put_aside"]
    assert WORDS in str(told["why"])
    assert "windhover topics check" in str(told["why"])
    retries = 10
    assert client.ended <= retries * (REFUSED_MAX + 16)
    limited(world, **{AFTER.replace(".", "_"): NO_LIMIT})
    world.settle(worker, until_ms=world.now_ms + 60_000)
    assert numbers(world.copies()) == list(range(count))
    assert world.letters() == []


def test_records_that_are_refused_one_after_the_other_do_not_all_die(world: World) -> None:
    """O203: each is due alone, so nothing shows whether the topic takes others; the tenth one waits."""
    worker = world.worker()
    for number in range(2 * REFUSED_MAX):
        world.lose(world.emit(b"%d" % number, timestamp_ms=TOMORROW_MS))
        world.settle(worker, until_ms=world.now_ms + 2_000)
    assert numbers(world.letters()) == list(range(REFUSED_MAX - 1))
    assert worker.status().aside_by_input == {"sentences": REFUSED_MAX + 1}
    world.lose(world.emit(b"20", timestamp_ms=77))
    world.settle(worker, until_ms=world.now_ms + 120_000)
    assert numbers(world.copies()) == [20]
    assert numbers(world.letters()) == list(range(20))
    assert worker.status().aside == 0


def test_a_worker_killed_at_any_call_amid_the_search_writes_each_outcome_once() -> None:
    """O204: what it had found is found again."""
    bad, count = {1, 5, 6}, 9
    for call in range(10_000):
        world = World()
        limited(world)
        lose_dated(world, bad, count)
        worker = world.worker(CrashAt(call))
        try:
            world.settle(worker, until_ms=world.now_ms + 10_000)
        except Crash:
            world.kill(worker)
            world.settle(world.worker(), until_ms=world.now_ms + 10_000)
            is_over = False
        else:
            is_over = True
        assert numbers(world.copies()) == [0, 2, 3, 4, 7, 8], f"killed at call {call}"
        assert numbers(world.letters()) == sorted(bad), f"killed at call {call}"
        if is_over:
            assert call > 50
            return


def test_what_is_due_in_both_partitions_is_searched_in_each(world: World) -> None:
    """Copies that one partition wrote show for the other, too, that the topic takes some."""
    worker = world.worker()
    for partition in range(2):
        roots = [
            world.emit(b"%d" % (10 * partition + number), partition=partition, timestamp_ms=stamp_ms)
            for number, stamp_ms in enumerate((TOMORROW_MS, 77, TOMORROW_MS))
        ]
        world.lose(*roots, verdict_partition=partition)
    world.settle(worker, until_ms=world.now_ms + 10_000)
    assert numbers(world.copies()) == [1, 11]
    assert numbers(world.letters()) == [0, 2, 10, 12]


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("old", [{0}, {7}, {0, 1, 2, 19}])
def test_a_copy_that_is_too_old_for_its_topic_waits_alone_until_that_is_corrected(
    world: World, old: set[int], is_restarted: bool
) -> None:
    """O212: every copy becomes too old some time, so the topic is wrong, and the record does not die."""
    before = "message_timestamp_before_max_ms"
    limited(world, **{before: str(HOUR_MS)})
    world.now_ms = DAYS_MS
    worker = world.worker()
    stamps_ms = [77 if number in old else DAYS_MS for number in range(20)]
    world.lose(
        *(world.emit(b"%d" % number, timestamp_ms=stamp_ms) for number, stamp_ms in enumerate(stamps_ms))
    )
    world.settle(worker, until_ms=world.now_ms + 20_000)
    assert numbers(world.copies()) == [number for number in range(20) if number not in old]
    assert (world.letters(), worker.status().aside_by_input) == ([], {"sentences": len(old)})
    named = {str(event.fields["root"]) for event in world.events if "root" in event.fields}
    assert named == {f"sentences/0@{number}" for number in old}
    if is_restarted:
        world.kill(worker)
        worker = world.worker()
        world.settle(worker, until_ms=world.now_ms + 1_000)
        assert worker.status().aside_by_input == {"sentences": len(old)}
    limited(world, **{before: NO_LIMIT})
    world.settle(worker, until_ms=world.now_ms + 120_000)
    assert numbers(world.copies()) == sorted(old)
    assert {header(copy, "windhover.attempt") for copy in world.copies()} == {"2"}
    assert (worker.status().waiting, worker.status().aside) == (0, 0)


class Refusing(Client):
    """A client whose transactions are refused for what some condition says of a record."""

    refuses: Callable[[Outgoing], bool] = staticmethod(lambda _record: False)

    def transactions(self, transactional_id: str) -> Transactions:
        client = self

        class Refusing(MemoryTransactions):
            def send(self, record: Outgoing, placed: Callable[[int], None] | None = None) -> None:
                if client.refuses(record):
                    self._refused = self._refused or RecordRefused("refused", "POLICY_VIOLATION: by the test")
                else:
                    super().send(record, placed)

        return Refusing(self._broker, self._faults, transactional_id)


def letters_refused(world: World, refuses: Callable[[Outgoing], bool]) -> tuple[Refusing, ReplayService]:
    """Start a worker whose broker refuses some dead letters."""
    client = Refusing(world.cluster, NoFaults())
    client.refuses = lambda record: record.topic == LETTERS and refuses(record)  # type: ignore[method-assign]
    return client, world.worker(client=client, of=topics(attempts=1))


def lose_numbered(world: World, count: int) -> list[Emission]:
    """Lose roots that all are to die."""
    roots = [world.emit(b"%d" % number) for number in range(count)]
    world.lose(*roots)
    return roots


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("bad", [{0}, {7}, {19}, {3, 4, 5, 11}])
def test_a_dead_letter_that_is_refused_waits_alone_until_the_topic_takes_it(
    world: World, bad: set[int], is_restarted: bool
) -> None:
    """O205: named in the log and in `_ack_due`; the others are written."""
    client, worker = letters_refused(world, lambda record: int(record.value or b"0") in bad)
    lose_numbered(world, 20)
    world.settle(worker, until_ms=world.now_ms + 30_000)
    assert numbers(world.letters()) == [number for number in range(20) if number not in bad]
    assert worker.status().aside_by_input == {"sentences": len(bad)}
    named = {str(event.fields["root"]) for event in world.events if "root" in event.fields}
    assert {f"sentences/0@{number}" for number in bad} <= named
    whys = [str(event.fields["why"]) for event in world.events if event.name == "put_aside"]
    told = "what is written for them is refused (sentences.g.dlq: POLICY_VIOLATION: by the test)"
    assert any(told in why for why in whys)
    if is_restarted:
        worker.close()
        client = Refusing(world.cluster, NoFaults())
        worker = world.worker(client=client, of=topics(attempts=1))
    client.refuses = lambda _record: False  # type: ignore[method-assign]
    world.settle(worker, until_ms=world.now_ms + 200_000)
    assert numbers(world.letters()) == list(range(20))
    assert {header(letter, "windhover.dead") for letter in world.letters()} == {"ATTEMPTS"}
    assert (worker.status().waiting, worker.status().aside) == (0, 0)


def test_a_copy_and_its_dead_letter_that_are_both_refused_wait_and_keep_both_reasons(world: World) -> None:
    """O205: a schema, say, that both topics ask for."""
    client = Refusing(world.cluster, NoFaults())
    client.refuses = lambda record: record.value == b"5"  # type: ignore[method-assign]
    worker = world.worker(client=client)
    lose_numbered(world, 20)
    world.settle(worker, until_ms=world.now_ms + 30_000)
    assert numbers(world.copies()) == [number for number in range(20) if number != 5]
    assert (world.letters(), worker.status().aside) == ([], 1)
    client.refuses = lambda _record: False  # type: ignore[method-assign]
    world.settle(worker, until_ms=world.now_ms + 200_000)
    (letter,) = world.letters()
    assert (letter.value, header(letter, "windhover.dead")) == (b"5", "REFUSED")
    assert "sentences.g.replay: POLICY_VIOLATION: by the test" in (
        header(letter, "__dlq.errors.message") or ""
    )


def test_a_topic_that_takes_no_letter_holds_up_no_copy_and_is_not_asked_for_each(world: World) -> None:
    """O206: after ten letters the others are put aside untried, and one is tried from time to time."""
    client, worker = letters_refused(world, lambda _record: True)
    lose_numbered(world, 200)
    world.settle(worker, until_ms=world.now_ms + 5_000)
    assert worker.status().aside_by_input == {"sentences": 200}
    refused = worker.status().aborted
    world.settle(worker, until_ms=world.now_ms + 300_000)
    asked = sum(event.name == "put_aside" and "root" in event.fields for event in world.events)
    assert asked == REFUSED_MAX
    assert worker.status().aborted == refused == 0
    world.lose(world.emit(b"1000"), reason=Verdict.ABANDONED)
    world.settle(worker, until_ms=world.now_ms + 1_000)
    assert numbers(world.copies()) == [1_000]
    client.refuses = lambda _record: False  # type: ignore[method-assign]
    world.settle(worker, until_ms=world.now_ms + 200_000)
    assert Counter(numbers(world.letters())) == Counter(range(200))
    assert worker.status().aside == 0


def test_letters_that_are_written_do_not_end_the_trouble_of_a_topic_that_takes_no_copy(world: World) -> None:
    """O203: else it would be tried every second, and each time be logged as over."""
    worker = world.worker(of=topics(attempts=2))
    lose_dated(world, range(ROOTS), ROOTS)
    tired = (("windhover.attempt", b"2"), ("windhover.origin", b"sentences/0@70"))
    for _ in range(60):
        world.lose(world.emit(b"dead", topic=COPIES, headers=tired))
        world.settle(worker, until_ms=world.now_ms + 1_000)
    assert len(world.letters()) > 10
    names = [event.name for event in world.events]
    assert names.count("put_aside") < 10  # once for each try: after 1, 2, 4 and more seconds
    assert names.count("goes_on") == 0
