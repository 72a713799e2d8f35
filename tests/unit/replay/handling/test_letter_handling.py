"""Letters in transactions: which are tried together, which are left as they are, and how one ends."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest

from acker.errors import LogError, TopicError, Unreachable
from acker.kafka.port import (
    Headers,
    Log,
    Outgoing,
    Picked,
    Picker,
    TopicPartition,
    Transactions,
    record_bytes,
)
from replay.handling.letter_handling import Left, LetterHandling, Order
from replay.records.dead_letter import DEAD
from replay.records.letters import Filter, LetterAction
from tests.support.memory.clients import MemoryPicker, NoFaults
from tests.support.memory.cluster import MemoryLog
from tests.support.worlds.replay_world import COPIES, LETTERS, LIMITS, FailOnce, World, topics

ONE_LIFE = topics(attempts=1)
INPUT = ONE_LIFE.input("sentences")
FIRST = TopicPartition(LETTERS, 0)
REFUSED_MS = 1 << 45
"""The time of a record of which the replay topic takes no copy."""


@pytest.fixture
def world() -> World:
    return World()


def let_die(world: World, *values: bytes, partition: int = 0, refused: Collection[int] = ()) -> None:
    """Let records of a partition die; of some, by their indices, the copies will be refused."""
    worker = world.worker(of=ONE_LIFE)
    roots = [
        world.emit(value, partition=partition, timestamp_ms=REFUSED_MS if index in refused else 77)
        for index, value in enumerate(values)
    ]
    world.lose(*roots)
    world.settle(worker)
    worker.close()


def put(world: World, value: bytes | None, **headers: bytes) -> None:
    """Write a letter that no worker wrote, with some headers by the ends of their names."""
    ours: Headers = ((DEAD, b"ATTEMPTS"), *((f"windhover.{name}", text) for name, text in headers.items()))
    producer = world.cluster.log().producer()
    producer.send(Outgoing(LETTERS, 0, value, None, ours))
    producer.flush(0)


def make_copies_anew(world: World, **settings: str) -> None:
    """Let the replay topic be created again with other settings."""
    world.cluster.delete_topic(COPIES)
    names = {name.replace("_", "."): value for name, value in settings.items()}
    world.cluster.create_topic(COPIES, 2, settings=names)


def handling(
    world: World,
    log: Log | None = None,
    which: Filter = Filter(),  # noqa: B008  # frozen
    **limits: int,
) -> LetterHandling:
    """Prepare a handler; it is not opened."""
    order = Order(LetterAction.REPLAYED, which, "kim", "fixed")
    limits_of_handler = LIMITS.model_copy(update=limits)
    return LetterHandling(
        log or world.cluster.log(), INPUT, order, transactional_id_prefix="w", limits=limits_of_handler
    )


def stepped(one: LetterHandling, room: int = 100) -> list[int]:
    """Open a handler and step it until it is done; return how many letters each step handled."""
    one.open()
    counts: list[int] = []
    while not one.is_done:
        counts.append(one.step(room, 5))
        assert len(counts) < 100, "it does not end"
    return counts


def test_before_it_is_opened_there_is_nothing_to_do_and_nobody_is_fenced(world: World) -> None:
    let_die(world, b"a", b"b")
    first = handling(world)
    first.open()
    second = handling(world)
    assert (second.is_done, second.handled_count, second.left_out_count) == (True, 0, 0)
    assert not second.left_by_why
    assert first.step(1, 5) == 1
    second.close()
    assert first.step(1, 5) == 1


@pytest.mark.parametrize(
    ("bad", "counts"),
    [
        ({0}, [0, 0, 0, 0, 1, 2, 4]),
        ({7}, [0, 4, 0, 2, 0, 1, 0]),
        (set(), [8]),
    ],
    ids=["first", "last", "none"],
)
def test_a_transaction_that_is_refused_is_halved_and_each_that_is_not_lets_the_next_be_twice_as_large(
    world: World, bad: set[int], counts: list[int]
) -> None:
    let_die(world, *(b"%d" % number for number in range(8)), refused=bad)
    make_copies_anew(world, message_timestamp_after_max_ms="1000")
    one = handling(world)
    assert stepped(one) == counts
    assert (one.handled_count, one.left_by_why[Left.REFUSED]) == (8 - len(bad), len(bad))


def test_letters_that_are_refused_in_a_row_are_counted_from_the_last_one_that_was_handled(
    world: World,
) -> None:
    let_die(world, *(b"%d" % number for number in range(9)), refused={0, 1, 3, 4, 6, 7})
    make_copies_anew(world, message_timestamp_after_max_ms="1000")
    one = handling(world, refused_max=3)
    stepped(one)
    assert (one.handled_count, one.left_by_why) == (3, {Left.REFUSED: 6})


def test_too_many_refused_letters_in_a_row_are_the_topics_trouble(world: World) -> None:
    let_die(world, *(b"%d" % number for number in range(9)), refused=range(9))
    make_copies_anew(world, message_timestamp_after_max_ms="1000")
    one = handling(world, refused_max=3)
    with pytest.raises(TopicError, match="3 letters in a row are refused"):
        stepped(one)
    assert one.left_by_why == {Left.REFUSED: 2}
    assert not one.is_done


def test_letters_behind_those_that_are_left_are_handled_in_the_same_transaction(world: World) -> None:
    """One without payload, one of a partition that the replay topic lacks, and two that can be replayed."""
    put(world, None, missing=b"it is gone")
    put(world, b"x", origin=b"sentences/2@7")
    let_die(world, b"a", b"b")
    one = handling(world)
    assert stepped(one) == [2]
    assert one.left_by_why == {Left.NO_PAYLOAD: 1, Left.NO_PARTITION: 1}
    assert [copy.value for copy in world.copies()] == [b"a", b"b"]


def test_a_letter_that_left_the_topic_since_it_was_found_is_left(world: World) -> None:
    let_die(world, b"a", b"b")
    one = handling(world)
    assert one.open() == 2
    world.cluster.log().delete_before({FIRST: 1})
    assert one.step(9, 5) == 1
    assert (one.left_by_why, one.is_done) == ({Left.GONE: 1}, True)
    assert [copy.value for copy in world.copies()] == [b"b"]


def test_a_copy_may_have_just_the_size_that_its_topic_takes(world: World) -> None:
    let_die(world, b"x" * 3_000)
    assert stepped(handling(world)) == [1]
    size = max(record_bytes(copy) for copy in world.copies())
    every = Filter(handled=True)
    make_copies_anew(world, max_message_bytes=f"{size - 1}")
    small = handling(world, which=every)
    assert (stepped(small), small.left_by_why) == ([0], {Left.TOO_LARGE: 1})
    make_copies_anew(world, max_message_bytes=f"{size}")
    assert stepped(handling(world, which=every)) == [1]


class LastFirst(MemoryPicker):
    """Brings the records of the last partition first, one at a time, as the brokers may."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Turn the order of the partitions round."""
        super().assign(dict(reversed(positions.items())))

    def pick(
        self, timeout_ms: int, wanted: Mapping[TopicPartition, Sequence[int]], max_records: int = 1000
    ) -> Picked:
        """Read one record."""
        return super().pick(timeout_ms, wanted, 1)


class Backwards(MemoryLog):
    """A log whose partitions are read from the last to the first."""

    def picker(self) -> Picker:
        """Make a reader of single records."""
        return LastFirst(self.reader(committed=True))


def test_letters_are_handled_in_whatever_order_their_partitions_are_read(world: World) -> None:
    """Before, a step ended at the first letter that was not fetched: it did nothing, and so did the next."""
    let_die(world, b"a", b"b")
    let_die(world, b"c", b"d", partition=1)
    one = handling(world, log=Backwards(world.cluster, NoFaults()), fetch_bytes_max=1)
    assert stepped(one) == [1, 1, 1, 1]
    assert one.handled_count == 4
    assert [copy.value for copy in world.copies()] == [b"a", b"b", b"c", b"d"]
    assert stepped(handling(world)) == []


class Broken(NoFaults):
    """No answer to a commit comes, and none to what is asked when all is closed."""

    def __init__(self, at_end: Exception) -> None:
        self._at_end = at_end

    def before(self, operation: str) -> None:
        """Fail."""
        if operation == "commit":
            raise Unreachable("no answer")
        if operation == "abort":
            raise self._at_end


class Kept(MemoryLog):
    """A log that remembers its transactional writers."""

    def __init__(self, world: World, faults: NoFaults) -> None:
        super().__init__(world.cluster, faults)
        self.writers: list[Transactions] = []

    def transactions(self, transactional_id: str) -> Transactions:
        """Make one, and remember it."""
        self.writers.append(super().transactions(transactional_id))
        return self.writers[-1]


def test_a_transaction_that_is_open_when_it_is_closed_is_ended(world: World) -> None:
    """Else whoever reads the letters waits for it."""
    let_die(world, b"a")
    one = handling(world, log=world.cluster.log(FailOnce("commit", Unreachable("no answer"))))
    one.open()
    with pytest.raises(Unreachable):
        one.step(1, 5)
    log = world.cluster.log()
    assert log.stable_ends([FIRST]) != log.ends([FIRST])
    one.close()
    assert log.stable_ends([FIRST]) == log.ends([FIRST])


@pytest.mark.parametrize("error", [LogError("refused"), Unreachable("no answer")])
def test_all_is_closed_though_the_transaction_cannot_be_ended(world: World, error: Exception) -> None:
    let_die(world, b"a")
    log = Kept(world, Broken(error))
    one = handling(world, log=log)
    one.open()
    with pytest.raises(Unreachable):
        one.step(1, 5)
    one.close()
    assert not log.open_readers
    (writer,) = log.writers
    with pytest.raises(LogError, match="is closed"):
        writer.begin()


def test_a_letter_of_which_nobody_knows_the_origin_goes_to_the_partition_that_it_is_in(world: World) -> None:
    put(world, b"x")
    assert stepped(handling(world)) == [1]
    assert [(copy.partition, copy.value) for copy in world.copies()] == [(0, b"x")]


def test_no_letter_is_handled_while_an_open_transaction_may_hide_its_mark(world: World) -> None:
    let_die(world, b"a")
    killed = world.cluster.log().transactions("windhover-replay-0")
    killed.init(0)
    killed.begin()
    killed.send(Outgoing(LETTERS, 0, b"never committed"))
    with pytest.raises(Unreachable, match="goes on to"):
        handling(world).open()
    killed.abort(0)
    assert stepped(handling(world)) == [1]
