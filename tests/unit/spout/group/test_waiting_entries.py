"""What waits in `_ack_due` after any history of entries, tombstones and pauses, held against plain tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acker.errors import Disagreement, UnknownVersion
from acker.identity import position_at, source_of
from acker.kafka.port import Outgoing, TopicPartition
from acker.service.passed_over import passed_over_mark
from acker.wire.causes import HELD
from acker.wire.clusters import CLUSTER
from replay.records.due import (
    PROGRESS_KEY,
    Aside,
    Due,
    Pause,
    Progress,
    RefusedRoot,
    due_codec,
    pause_key,
    root_key,
)
from replay.records.headers import RecordPlace
from spout.group.due import DueEntries, DueReader, DueWatch, StandingInput, WaitingRoot
from tests.support.garbage import DUE
from tests.support.memory.cluster import MemoryCluster

PARTITIONS: Final = 2
FIELDS: Final = {name: getattr(DUE, name) for name in DUE.__dataclass_fields__}


def due_of(number: int, input_id: int, due_ms: int, *, kind: str = "") -> Due:
    """Return the entry of a root; `kind`: why it was put aside."""
    fields = {**FIELDS, "source": source_of(input_id, 0), "position": number, "due_ms": due_ms, "group": "g"}
    if kind == "aside":
        return Aside(**fields)
    if kind == "copy":
        return RefusedRoot(**fields, copy_why="too large")
    if kind == "letter":
        return RefusedRoot(**{**fields, "dead": "ATTEMPTS"}, copy_why="c", letter_why="no room")
    return Due(**fields)


WHY: Final = {
    "": "",
    "aside": "their input could not go on",
    "copy": "what is written for them is refused (too large)",
    "letter": "what is written for them is refused (no room)",
}


class Topic:
    """The topic, and who writes to it."""

    def __init__(self) -> None:
        """Create it."""
        self.cluster = MemoryCluster()
        self.cluster.create_topic("_ack_due", PARTITIONS)
        self.log = self.cluster.log()
        self._producer = self.log.producer()

    def put(self, partition: int, key: bytes, value: bytes | None, cluster: str = "memory") -> None:
        """Write a record."""
        headers = ((CLUSTER, cluster.encode()),)
        self._producer.send(Outgoing("_ack_due", partition, value, key, headers))
        self._producer.flush(0)

    def put_due(self, partition: int, due: Due) -> None:
        """Write a root's entry."""
        self.put(partition, root_key(due), due_codec().encode(due))

    def end(self, partition: int, key: bytes) -> None:
        """Write a tombstone."""
        self.put(partition, key, None)

    def pause(self, partition: int, input_id: int, why: str = "paused") -> None:
        """Pause an input in a partition."""
        self.put(partition, pause_key(input_id), due_codec().encode(Pause(input_id, 5, why)))

    def watch(self) -> DueWatch:
        """Begin to follow what group g waits for."""
        sources = frozenset(int(source_of(input_id, 0)) for input_id in (1, 2))
        return DueWatch(self.log, "_ack_due", PARTITIONS, "g", sources)


PARTITION = st.integers(0, PARTITIONS - 1)
INPUT = st.integers(1, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), PARTITION, INPUT, st.integers(0, 2), st.sampled_from(list(WHY))),
        st.tuples(st.just("end"), PARTITION, INPUT, st.integers(0, 2), st.just("")),
        st.tuples(st.sampled_from(["pause", "resume"]), PARTITION, INPUT, st.just(0), st.just("")),
    ),
    max_size=14,
)


@given(STEPS)
def test_what_is_waited_for_agrees_with_plain_tables(steps: Sequence[tuple[str, int, int, int, str]]) -> None:
    """Input 3 is not read here. Each partition has pauses of its own."""
    topic = Topic()
    waiting: dict[tuple[int, int, int], tuple[int, str]] = {}
    pauses: set[tuple[int, int]] = set()
    with closing(topic.watch()) as watch:
        for due_ms, (step, partition, input_id, number, kind) in enumerate(steps):
            changes = watch.changes
            name = (partition, input_id, number)
            before = (dict(waiting), set(pauses))
            match step:
                case "put":
                    topic.put_due(partition, due_of(number, input_id, due_ms, kind=kind))
                    if input_id != 3:
                        waiting[name] = (due_ms, kind)
                case "end":
                    topic.end(partition, root_key(due_of(number, input_id, 0)))
                    waiting.pop(name, None)
                case "pause":
                    topic.pause(partition, input_id)
                    pauses.add((partition, input_id))
                case _:
                    topic.end(partition, pause_key(input_id))
                    pauses.discard((partition, input_id))
            assert watch.read()
            if before != (waiting, pauses):
                assert watch.changes > changes
            elif step in ("end", "resume"):
                assert watch.changes == changes
            assert watch.waiting_count == len(waiting)
            free = [
                due
                for (partition, input_id, _), (due, why) in waiting.items()
                if not why and (partition, input_id) not in pauses
            ]
            assert watch.next_due_ms() == min(free, default=None)
            stand: dict[int, int] = {}
            for (partition, input_id, _), (_, why) in waiting.items():
                if why or (partition, input_id) in pauses:
                    stand[input_id] = stand.get(input_id, 0) + 1
            standing = watch.standing()
            assert {input_id: entry.roots for input_id, entry in standing.items()} == stand
            for input_id, entry in standing.items():
                paused = any(
                    (partition, input_id) in pauses for partition, other, _ in waiting if other == input_id
                )
                assert (entry.pause is not None) == paused
                assert entry.input_id == input_id
                assert entry.why in ({"paused"} if paused else set(WHY.values()) - {""})


@pytest.mark.parametrize("kind", ["aside", "copy", "letter"])
def test_an_input_that_stands_says_why(kind: str) -> None:
    topic = Topic()
    with closing(topic.watch()) as watch:
        topic.put_due(1, due_of(1, 1, 5, kind=kind))
        topic.put_due(1, due_of(2, 1, 5))
        watch.read()
        assert watch.standing() == {1: StandingInput(1, 1, WHY[kind], None)}
        topic.pause(0, 1, "by hand")
        watch.read()
        assert watch.standing()[1].pause is None, "what waits in a partition is paused there, or not"
        topic.pause(1, 1, "by hand")
        watch.read()
        assert watch.standing() == {1: StandingInput(1, 2, "by hand", Pause(1, 5, "by hand"))}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_pause_in_one_partition_is_named_before_what_was_put_aside_in_another(
    order: tuple[int, int],
) -> None:
    topic = Topic()
    with closing(topic.watch()) as watch:
        topic.pause(order[0], 1, "by hand")
        for partition in (0, 1):
            topic.put_due(partition, due_of(partition, 1, 5, kind="" if partition == order[0] else "aside"))
        watch.read()
        [entry] = watch.standing().values()
        assert (entry.roots, entry.pause) == (2, Pause(1, 5, "by hand"))
        assert entry.why == "by hand"


def test_roots_of_another_group_or_of_a_replay_topic_that_is_not_read_are_not_waited_for() -> None:
    topic = Topic()
    with closing(topic.watch()) as watch:
        topic.put_due(0, replace(due_of(1, 1, 5), group="another"))
        topic.put_due(0, replace(due_of(1, 1, 5), source=source_of(1, 0, replay=True)))
        watch.read()
        assert (watch.waiting_count, watch.changes) == (0, 0)


def test_a_root_whose_entry_another_group_wrote_over_is_not_waited_for() -> None:
    """The last entry counts, as it does for the replay worker, and for who reads after a compaction."""
    topic = Topic()
    with closing(topic.watch()) as watch:
        topic.put_due(0, due_of(1, 1, 5))
        topic.put_due(0, replace(due_of(1, 1, 5), group="another"))
        watch.read()
        assert (watch.waiting_count, watch.next_due_ms()) == (0, None)
        topic.put_due(0, due_of(1, 1, 7))
        watch.read()
        assert (watch.waiting_count, watch.next_due_ms()) == (1, 7)


def test_all_is_replayed_when_nothing_waits_and_every_lost_root_was_taken_over() -> None:
    topic = Topic()
    with closing(topic.watch()) as watch:
        watch.read()
        assert watch.taken_over_to == {0: 0, 1: 0}
        assert watch.has_replayed_all({})
        assert watch.not_taken_over({1: 4, 0: 1}) == [0, 1]
        topic.put(1, PROGRESS_KEY, due_codec().encode(Progress(4, 0)))
        watch.read()
        assert watch.taken_over_to == {0: 0, 1: 4}
        assert watch.not_taken_over({1: 4, 0: 0}) == []
        assert watch.not_taken_over({1: 5}) == [1]
        assert watch.has_replayed_all({1: 4})
        assert not watch.has_replayed_all({1: 5})
        topic.put_due(0, due_of(1, 1, 5))
        watch.read()
        assert not watch.has_replayed_all({1: 4})


def test_every_record_about_a_root_that_is_waited_for_is_counted_once() -> None:
    """While the number is the same, no replay worker has done anything."""
    topic = Topic()
    due = due_of(1, 1, 5)
    with closing(topic.watch()) as watch:
        topic.pause(0, 1)
        assert (watch.read(), watch.changes) == (True, 1)
        topic.put_due(0, due)
        assert (watch.read(), watch.changes) == (True, 2)
        topic.end(0, pause_key(1))
        assert (watch.read(), watch.changes) == (True, 3)
        topic.end(0, root_key(due))
        assert (watch.read(), watch.changes) == (True, 4)


@pytest.mark.parametrize("reader", [0, 1], ids=["watch", "entries"])
def test_what_a_newer_version_wrote_stops_until_somebody_lets_it_be_passed_over(reader: int) -> None:
    topic = Topic()
    topic.put(0, root_key(due_of(1, 1, 5)), b"\xc3\x01" + bytes(8) + b"x")
    for is_passed_over in (False, True):
        if is_passed_over:
            mark = passed_over_mark(TopicPartition("_ack_due", 0), 0, "it is garbage", "me")
            topic.put(0, mark.key or b"", mark.value)
        with closing(READERS[reader](topic)) as follower:
            if is_passed_over:
                assert follower.read()
            else:
                with pytest.raises(UnknownVersion, match="_ack_due/0@0"):
                    follower.read()


def test_what_cannot_be_read_changes_nothing_of_what_waits() -> None:
    topic = Topic()
    with closing(topic.watch()) as watch:
        topic.put_due(0, due_of(1, 1, 5))
        topic.put(0, root_key(due_of(1, 1, 5)), b"garbage")
        watch.read()
        assert (watch.waiting_count, watch.next_due_ms()) == (1, 5)


@contextmanager
def following(topic: Topic) -> Iterator[DueEntries]:
    with closing(DueEntries(topic.log, "_ack_due", PARTITIONS, [1, 2])) as entries:
        yield entries


def test_a_root_that_waits_is_found_by_the_partition_of_its_first_emission_until_its_tombstone() -> None:
    topic = Topic()
    first = source_of(1, 3)
    copy = replace(
        due_of(0, 1, 5), source=source_of(1, 3, replay=True), position=position_at(2, 9),
        topic="sentences.g.replay", origin="sentences/3@1042",
    )  # fmt: skip
    plain = replace(due_of(0, 1, 5), source=first, position=7, origin="?", topic="sentences")
    with following(topic) as entries:
        topic.put_due(0, copy)
        topic.put_due(1, plain)
        topic.put_due(1, replace(plain, source=source_of(3, 3)))
        assert entries.read()
        assert sorted(entries.waiting_of(first), key=lambda root: root.place) == [
            WaitingRoot(None, RecordPlace("sentences", 3, 7), False),
            WaitingRoot(RecordPlace("sentences", 3, 1042), RecordPlace("sentences.g.replay", 3, 9), False),
        ]
        assert entries.waiting_of(source_of(1, 4)) == []
        blocked = replace(plain, history=(plain.history[0]._replace(error=HELD),))
        topic.put_due(1, blocked)
        topic.end(0, root_key(copy))
        topic.end(0, root_key(replace(plain, position=8)))
        entries.read()
        assert entries.waiting_of(first) == [WaitingRoot(None, RecordPlace("sentences", 3, 7), True)]
        topic.put(1, root_key(plain), b"garbage")
        entries.read()
        assert len(entries.waiting_of(first)) == 1
        topic.end(1, root_key(plain))
        entries.read()
        assert entries.waiting_of(first) == []


# the partitions are read in any order: in one of them the tombstone would be read last
@pytest.mark.parametrize("ended", [0, 1])
def test_a_tombstone_in_another_partition_ends_nothing(ended: int) -> None:
    """Whoever may write to one partition lets no record pass one that waits in another."""
    topic = Topic()
    due = due_of(1, 1, 5)
    with following(topic) as entries:
        topic.put_due(0, due)
        topic.put_due(1, due)
        topic.end(ended, root_key(due))
        entries.read()
        assert len(entries.waiting_of(due.source)) == 1
        topic.end(1 - ended, root_key(due))
        entries.read()
        assert entries.waiting_of(due.source) == []


READERS: Final[list[Callable[[Topic], DueReader]]] = [
    lambda topic: topic.watch(),
    lambda topic: DueEntries(topic.log, "_ack_due", PARTITIONS, [1]),
]


@pytest.mark.parametrize("reader", READERS, ids=["watch", "entries"])
def test_a_reader_follows_each_partition_and_says_which_has_no_end(
    reader: Callable[[Topic], DueReader],
) -> None:
    topic = Topic()
    topic.put_due(1, due_of(1, 1, 5))
    with closing(reader(topic)) as follower:
        assert follower.read()
        assert follower.answers().offsets == {
            TopicPartition("_ack_due", 0): 0,
            TopicPartition("_ack_due", 1): 1,
        }
        topic.cluster.lose_leader("_ack_due", 1)
        assert not follower.read()
        assert follower.answers().troubles.keys() == {TopicPartition("_ack_due", 1)}
        assert topic.log.open_readers
    assert not topic.log.open_readers


@pytest.mark.parametrize("reader", READERS, ids=["watch", "entries"])
def test_an_entry_of_another_cluster_is_refused(reader: Callable[[Topic], DueReader]) -> None:
    topic = Topic()
    due = due_of(1, 1, 5)
    topic.put(1, root_key(due), due_codec().encode(due), "elsewhere")
    with closing(reader(topic)) as follower, pytest.raises(Disagreement, match="_ack_due/1@0"):
        follower.read()
