"""All that read `_ack_due` read the same generated logs, and agree with one plain table.

Replay workers write the topic. Here strangers do, too: garbage, entries that are cut off or belong to another
root, and what a newer version wrote, which an operator lets pass. What such a record says must not depend on
who reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from functools import cache
from typing import Final, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from acker.config import topics as topics_yaml
from acker.config.topics import Topics
from acker.identity import (
    Position,
    Root,
    Source,
    acker_partition,
    first_source,
    input_id_of,
    is_replay,
    offset_of,
    partition_of,
    source_of,
)
from acker.kafka.port import Outgoing, Record, TopicPartition
from acker.service.passed_over import passed_over_mark
from replay.handling.dropping import Dropping
from replay.handling.resume import pauses
from replay.records.due import (
    OWNER_KEY,
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
from replay.records.due_fold import (
    DueFold,
    EntriesByRoot,
    KeyFilter,
    due_ms_of,
    every_root,
    no_root,
    of_input,
    of_roots,
    progress_and_pauses,
    whole_entry,
)
from replay.records.headers import RecordPlace
from replay.worker.entries import restore
from replay.worker.worker import Worker
from spout.group.due import DueEntries, DueWatch
from spout.inspect.trail import AckTopicSearch
from spout.inspect.waiting_roots import WaitingRoots
from spout.runtime.tails import Tails
from tests.support.garbage import DUE
from tests.support.memory.cluster import MemoryCluster

PARTITIONS: Final = 2
YAML: Final = """
acker: {partitions: 2}
inputs:
  plain: {id: 1, group: g, partitions: 1}
  lines: {id: 2, group: g, partitions: 1, ordering: partition}
"""
INPUTS: Final = (1, 2, 9)
"""Id 9 is of no input in the topics.yaml."""

ROOTS: Final = (
    Root(source_of(1, 0), Position(3)),
    Root(source_of(1, 0, replay=True), Position(4)),
    Root(source_of(2, 0), Position(5)),
    Root(source_of(2, 0, replay=True), Position(6)),
    Root(source_of(9, 0), Position(7)),
)
NEWER: Final = b"\xc3\x01" + b"\x07" * 8 + b"what nobody knows yet"
FIELDS: Final = {name: getattr(DUE, name) for name in Due.__dataclass_fields__}

Name = tuple[int, Root]
"""A partition of `_ack_due`, and the root under whose key a record is there."""


class Said(NamedTuple):
    """One record, and what a plain reading finds in it.

    Attributes:
        entry: the entry of the key's root.
        due_ms: when the entry is due, which can be read of one that is cut off, too.
        told: the pause or progress that belongs under the key.
    """

    partition: int
    key: bytes | None
    value: bytes | None
    root: Root | None = None
    entry: Due | None = None
    due_ms: int | None = None
    told: Pause | Progress | None = None


def due_of(root: Root, due_ms: int, group: str) -> Due:
    fields = {**FIELDS, "source": root.source, "position": root.position, "due_ms": due_ms, "group": group}
    return Due(**{**fields, "origin": f"sentences/0@{root.position + 40}"})


def records_of_a_root(partition: int, root: Root) -> list[Said]:
    """Return all that is written under the key of a root, by whomever."""
    key, other = root_key(root), ROOTS[(ROOTS.index(root) + 1) % len(ROOTS)]
    records = [
        Said(partition, key, None, root),
        Said(partition, key, b"garbage", root),
        Said(partition, key, NEWER, root),
        Said(partition, key, due_codec().encode(due_of(other, 1, "g")), root),
        Said(partition, key, due_codec().encode(Pause(1, 1, "under a root's key")), root),
    ]
    for due_ms in (1, 2):
        plain, strange = due_of(root, due_ms, "g"), due_of(root, due_ms, "stranger")
        fields = {name: getattr(plain, name) for name in FIELDS}
        entries = [
            plain,
            strange,
            Aside(**fields, error="E"),
            RefusedRoot(**fields, copy_why="too large"),
        ]
        records += [Said(partition, key, due_codec().encode(entry), root, entry, due_ms) for entry in entries]
        for flawed in (Due(**{**fields, "dead": "BORED"}), Aside(**{**fields, "history": ()})):
            records.append(Said(partition, key, due_codec().encode(flawed), root, None, due_ms))
        records.append(Said(partition, key, due_codec().encode(plain)[:40], root, None, due_ms))
    return records


def records_of_no_root(partition: int) -> list[Said]:
    """Return all that is written under other keys; half of it is where it belongs."""
    entry = due_codec().encode(due_of(ROOTS[0], 1, "g"))
    keys = (pause_key(1), pause_key(2), PROGRESS_KEY, OWNER_KEY, None)
    records = [Said(partition, key, value) for key in keys for value in (None, b"garbage", NEWER, entry)]
    for input_id in (1, 2):
        for since_ms in (1, 2):
            pause = Pause(input_id, since_ms, f"for the {since_ms}. time")
            records += [
                Said(partition, pause_key(input_id), due_codec().encode(pause), told=pause),
                Said(partition, pause_key(3 - input_id), due_codec().encode(pause)),
            ]
    for progress in (Progress(5, 0), Progress(9, 2)):
        records += [
            Said(partition, PROGRESS_KEY, due_codec().encode(progress), told=progress),
            Said(partition, OWNER_KEY, due_codec().encode(progress)),
        ]
    records.append(Said(partition, PROGRESS_KEY, due_codec().encode(Progress(-1, 0))))
    return records


OF_NO_ROOT: Final = [said for partition in range(PARTITIONS) for said in records_of_no_root(partition)]
OF_ROOTS: Final = [
    [said for partition in range(PARTITIONS) for said in records_of_a_root(partition, root)] for root in ROOTS
]
KINDS: Final = [*OF_ROOTS, OF_NO_ROOT, OF_NO_ROOT]


class Table:
    """What a log comes to. The last record of each key that says something counts, in each partition alone.

    Attributes:
        entries: of those who read entries whole.
        due_ms: of those who read only when a root is due; there a flawed entry waits until its time has come.
        ended: what has a tombstone, and nothing that can be read above it.
        spoiled: what has something above its entry or tombstone that cannot be read.
        behind: what was written behind the last progress.
    """

    def __init__(self, log: Sequence[Said]) -> None:
        self.entries: dict[Name, Due] = {}
        self.due_ms: dict[Name, int] = {}
        self.ended: set[Name] = set()
        self.spoiled: set[Name] = set()
        self.behind: set[Name] = set()
        self.pauses: dict[tuple[int, int], Pause] = {}
        self.progress: dict[int, Progress] = {}
        for said in log:
            if said.root is not None:
                self._take_of_root(said, (said.partition, said.root))
            elif said.value is None:
                for input_id in INPUTS:
                    if said.key == pause_key(input_id):
                        self.pauses.pop((said.partition, input_id), None)
            elif isinstance(said.told, Pause):
                self.pauses[said.partition, said.told.input] = said.told
            elif isinstance(said.told, Progress):
                self.progress[said.partition] = said.told
                self.behind = {name for name in self.behind if name[0] != said.partition}

    def _take_of_root(self, said: Said, name: Name) -> None:
        if said.value is None:
            self.entries.pop(name, None)
            self.due_ms.pop(name, None)
            self.ended.add(name)
        if said.entry is not None:
            self.entries[name] = said.entry
            self.ended.discard(name)
        if said.due_ms is not None:
            self.due_ms[name] = said.due_ms
        if said.value is None or said.due_ms is not None:
            self.spoiled.discard(name)
            self.behind.add(name)
        else:
            self.spoiled.add(name)

    def paused_in(self, number: int) -> Mapping[int, Pause]:
        return {
            input_id: pause for (partition, input_id), pause in self.pauses.items() if partition == number
        }

    def is_paused(self, partition: int, root: Root) -> bool:
        return (partition, input_id_of(root.source)) in self.pauses


class World:
    """A cluster that has a log, at whose end all of a newer version is marked as passed over; its table."""

    def __init__(self, log: Sequence[Said]) -> None:
        self.table = Table(log)
        self.roots: dict[tuple[int, int], Root | None] = {}
        self.records = [Record("_ack_due", said.partition, 0, said.key, said.value) for said in log]
        cluster = MemoryCluster()
        cluster.create_topic("_ack_due", PARTITIONS)
        cluster.create_topic("_ack_verdict", PARTITIONS)
        self.log = cluster.log()
        producer, ends = self.log.producer(), Counter[int]()
        marks: list[Outgoing] = []
        for said in log:
            offset = ends[said.partition]
            producer.send(Outgoing("_ack_due", said.partition, said.value, said.key))
            self.roots[said.partition, offset] = said.root
            if said.value == NEWER:
                place = TopicPartition("_ack_due", said.partition)
                marks.append(passed_over_mark(place, offset, "it is garbage", "kim"))
            ends[said.partition] += 1
        for mark in marks:
            producer.send(mark)
        producer.flush(0)


LOGS: Final = (
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=2)
    .flatmap(lambda kinds: st.lists(st.one_of(*map(st.sampled_from, kinds)), max_size=12))
    .map(World)
)
"""Few keys in one log, so that most of them are written several times."""


@cache
def installation() -> Topics:
    return topics_yaml.parse(YAML, file="topics.yaml", environ={})


def home_of(root: Root) -> int:
    return acker_partition(root.source, root.position, PARTITIONS)


WANTED: Final[Sequence[tuple[KeyFilter, Collection[Root]]]] = (
    (every_root, ROOTS),
    (no_root, ()),
    (of_input(1), ROOTS[:2]),
    *((of_roots([root]), (root,)) for root in ROOTS),
)


@given(LOGS, st.sampled_from(WANTED))
def test_a_fold_has_of_the_roots_that_are_wanted_what_the_table_has(
    world: World, wanted: tuple[KeyFilter, Collection[Root]]
) -> None:
    table, (wants, roots) = world.table, wanted
    entries, times = EntriesByRoot[Due](), EntriesByRoot[int]()
    folds = (
        DueFold(whole_entry, entries, keeps_key=wants),
        DueFold(due_ms_of, times, keeps_key=wants),
        progress_and_pauses(),
    )
    for fold in folds:
        for record in world.records:
            fold.put(record)
        assert fold.progress == table.progress
        assert fold.paused_by_partition() == table.pauses
        assert fold.paused().keys() == {input_id for _, input_id in table.pauses}
    assert entries.waiting == {name: due for name, due in table.entries.items() if name[1] in roots}
    assert times.waiting == {name: due_ms for name, due_ms in table.due_ms.items() if name[1] in roots}


@given(LOGS)
def test_a_new_owner_finds_what_waits_and_mends_what_was_written_over(world: World) -> None:
    table, limits = world.table, installation().replay.limits
    for number in range(PARTITIONS):
        worker = Worker(world.log, installation(), lambda: 0.0, limits, lambda _: None, lambda _: None)
        restored = restore(worker, TopicPartition("_ack_due", number))
        mends: dict[Root, Due | str | None] = {}
        for partition, root in table.spoiled:
            if partition != number:
                continue
            if (partition, root) in table.entries:
                mends[root] = table.entries[partition, root]
            elif (partition, root) in table.ended:
                mends[root] = None
            elif input_id_of(root.source) != 9 and home_of(root) == number:
                mends[root] = "UNREADABLE"
        assert mends == {
            mend.root: mend.entry.dead if mend.entry is not None and mend.entry.dead else mend.entry
            for mend in restored.mends
        }
        assert {
            world.roots[number, offset]: due_ms
            for rows in restored.table.by_input().values()
            for due_ms, offset in rows.tolist()
        } == {
            root: due_ms
            for (partition, root), due_ms in table.due_ms.items()
            if partition == number and root not in mends
        }
        assert restored.progress == table.progress.get(number)
        past_progress = {root for partition, root in table.behind if partition == number}
        assert restored.roots_past_progress == past_progress
        assert restored.pauses == table.paused_in(number)


@given(LOGS)
def test_a_query_that_ends_waits_for_the_roots_of_its_own_group(world: World) -> None:
    table = world.table
    sources = frozenset(int(root.source) for root in ROOTS if input_id_of(root.source) != 9)
    with closing(DueWatch(world.log, "_ack_due", PARTITIONS, "g", sources)) as watch:
        assert watch.read()
        ours = [
            (due.due_ms, input_id_of(root.source), type(due) is not Due or table.is_paused(partition, root))
            for (partition, root), due in table.entries.items()
            if due.group == "g" and root.source in sources
        ]
        assert watch.waiting_count == len(ours)
        assert watch.next_due_ms() == min((due_ms for due_ms, _, stands in ours if not stands), default=None)
        assert {input_id: entry.roots for input_id, entry in watch.standing().items()} == Counter(
            input_id for _, input_id, stands in ours if stands
        )
        for number in range(PARTITIONS):
            assert watch.taken_over_to[number] == table.progress.get(number, Progress(0, 0)).next


@given(LOGS)
def test_what_is_read_in_order_waits_behind_the_same_roots(world: World) -> None:
    with closing(DueEntries(world.log, "_ack_due", PARTITIONS, [2])) as entries:
        assert entries.read()
        for source in {first_source(root.source) for root in ROOTS}:
            places = [
                RecordPlace(due.topic, partition_of(root.source), offset_of(root.position))
                for (_, root), due in world.table.entries.items()
                if first_source(root.source) == source and input_id_of(source) == 2
            ]
            assert Counter(root.place for root in entries.waiting_of(source)) == Counter(places)


@given(LOGS)
def test_an_operator_resumes_and_drops_what_the_owner_has(world: World) -> None:
    table = world.table
    paused = pauses(world.log, installation())
    assert {number: paused.get(number, {}) for number in range(PARTITIONS)} == {
        number: table.paused_in(number) for number in range(PARTITIONS)
    }
    for input_id in INPUTS:
        assert {
            (strange.due_partition.partition, Root(Source(due.source), Position(due.position))): due
            for strange in Dropping(world.log, installation(), input_id).find()
            for due in strange.roots
        } == {
            (partition, root): due
            for (partition, root), due in table.entries.items()
            if input_id_of(root.source) == input_id and (due.group != "g" or input_id == 9)
        }


@given(LOGS)
def test_the_story_of_a_record_has_what_waits_of_it(world: World) -> None:
    """Each root is looked for in its own partition, and no other is read."""
    table, topics = world.table, installation().ack_topics
    for root in ROOTS:
        dues, fold = AckTopicSearch(Tails(world.log, 1_000), topics, PARTITIONS).find_dues([root])
        home = home_of(root)
        assert dues.get(root) == table.entries.get((home, root))
        assert fold.progress.get(home) == table.progress.get(home)
        assert fold.paused() == table.paused_in(home)


@given(LOGS)
def test_a_view_counts_what_waits_and_what_cannot_be_read(world: World) -> None:
    """What cannot be read counts as one that waits: a new owner mends it, or makes a dead letter of it."""
    table = world.table
    with closing(WaitingRoots(world.log, installation(), 1_000)) as roots:
        waiting = roots.read()
    names = table.due_ms.keys() | table.spoiled
    assert waiting.due == Counter((input_id_of(root.source), 0) for _, root in names)
    firsts = Counter[tuple[int, int, int]]()
    copies = Counter[tuple[int, int, int]]()
    for partition, root in names:
        seen = firsts if not is_replay(root.source) else copies
        at = (input_id_of(root.source), int(root.position), table.due_ms.get((partition, root), 0))
        seen[at] += 1
    columns = [
        (input_id, offset, due_ms)
        for (input_id, _), where in waiting.offsets.items()
        for offset, due_ms in zip(where.offsets.tolist(), where.due_ms.tolist(), strict=True)
    ]
    assert Counter(at for at in columns if at[1] < 40) == firsts
    assert (
        Counter(
            (input_id, offset, due_ms)
            for (input_id, _), where in waiting.copies.items()
            for offset, due_ms in zip(where.offsets.tolist(), where.due_ms.tolist(), strict=True)
        )
        == copies
    )
    assert waiting.pauses.keys() == {input_id for _, input_id in table.pauses}
    for number, replays in enumerate(waiting.partitions):
        assert replays.due == sum(1 for where, _ in names if where == number)
        assert replays.next == table.progress.get(number, Progress(0, 0)).next
