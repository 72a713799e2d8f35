"""What a record of `_ack_due` says, and what a log of them comes to, whoever reads it."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from acker.errors import CodecError, UnknownVersion
from acker.identity import Position, Root, Source, source_of
from acker.kafka.port import Record, TopicPartition
from acker.service.passed_over import passed_over_mark
from replay.records.due import (
    OWNER_KEY,
    PROGRESS_KEY,
    Aside,
    Due,
    Pause,
    Progress,
    RefusedRoot,
    Stored,
    due_codec,
    pause_key,
    root_key,
)
from replay.records.due_fold import (
    DueFold,
    DueStep,
    EntriesByRoot,
    Flawed,
    KeyFilter,
    due_ms_of,
    every_root,
    no_root,
    of_input,
    of_roots,
    progress_and_pauses,
    whole_entry,
)
from tests.support.garbage import DUE

ROOT = Root(source_of(1, 3), Position(1_042))
COPY = Root(source_of(1, 3, replay=True), Position(1_042))
OTHER = Root(source_of(2, 3), Position(1_042))
FIELDS = {field.name: getattr(DUE, field.name) for field in fields(Due)}
NEWER = b"\xc3\x01" + b"\x07" * 8


def entry_of(root: Root, due_ms: int = 99) -> Due:
    return replace(DUE, source=root.source, position=root.position, due_ms=due_ms)


def record(key: bytes | None, value: Stored | bytes | None, partition: int = 0) -> Record:
    encoded = value if value is None or isinstance(value, bytes) else due_codec().encode(value)
    return Record("_ack_due", partition, 1, key, encoded)


def fold_of(wants: KeyFilter = every_root) -> tuple[DueFold[Due], dict[tuple[int, Root], Due]]:
    """Return a fold of whole entries, and what waits in it."""
    entries = EntriesByRoot[Due]()
    return DueFold(whole_entry, entries, keeps_key=wants), entries.waiting


# -- roots


@pytest.mark.parametrize(
    "entry",
    [DUE, Aside(**FIELDS, error="E"), RefusedRoot(**FIELDS, copy_why="too large")],
    ids=["due", "aside", "refused"],
)
def test_a_root_waits_by_its_last_entry_until_its_tombstone(entry: Due) -> None:
    fold, waiting = fold_of()
    assert fold.put(record(root_key(ROOT), entry_of(ROOT, 5))) is DueStep.WAITS
    assert fold.put(record(root_key(ROOT), entry)) is DueStep.WAITS
    assert waiting == {(0, ROOT): entry}
    assert fold.put(record(root_key(ROOT), None)) is DueStep.ENDED
    assert waiting == {}
    assert fold.put(record(root_key(ROOT), None)) is DueStep.ENDED, (
        "of what ended, compaction leaves the tombstone"
    )


def test_each_partition_is_a_log_of_its_own() -> None:
    fold, waiting = fold_of()
    for partition in (0, 1):
        fold.put(record(root_key(ROOT), entry_of(ROOT, partition), partition))
        fold.put(record(pause_key(1), Pause(1, partition, "why"), partition))
        fold.put(record(PROGRESS_KEY, Progress(partition, 0), partition))
    fold.put(record(root_key(ROOT), None, 1))
    fold.put(record(pause_key(1), None, 1))
    assert waiting == {(0, ROOT): entry_of(ROOT, 0)}
    assert fold.paused_by_partition() == {(0, 1): Pause(1, 0, "why")}
    assert fold.progress == {0: Progress(0, 0), 1: Progress(1, 0)}


IMPOSSIBLE: list[tuple[Stored | bytes, str]] = [
    (b"", "not a single-object Avro record"),
    (b"garbage", "not a single-object Avro record"),
    (NEWER, "unknown schema fingerprint"),
    (entry_of(OTHER), "the key is not that of the value"),
    (entry_of(COPY), "the key is not that of the value"),
    (replace(DUE, dead="BORED"), "'BORED' is no reason to die"),
    (Aside(**{**FIELDS, "history": ()}), "it has no loss"),
    (due_codec().encode(DUE)[:40], "Due does not decode"),
    (Pause(1, 5, "why"), "it tells of no root that waits"),
    (Progress(5, 0), "it tells of no root that waits"),
]


@pytest.mark.parametrize(("value", "why"), IMPOSSIBLE)
def test_what_cannot_be_an_entry_changes_nothing_and_says_why(value: Stored | bytes, why: str) -> None:
    fold, waiting = fold_of()
    flawed = record(root_key(ROOT), value)
    for beneath in ({}, {(0, ROOT): DUE}):
        if beneath:
            fold.put(record(root_key(ROOT), DUE))
        said = fold.put(flawed)
        assert isinstance(said, Flawed)
        assert said.root == ROOT
        assert why in said.why
        assert waiting == beneath


def test_who_only_needs_the_time_of_an_entry_looks_no_further() -> None:
    """A worker keeps the times of a million roots; what else is wrong with one it finds when it is due."""
    entries = EntriesByRoot[int]()
    fold = DueFold(due_ms_of, entries)
    for flawed in (replace(DUE, dead="BORED"), due_codec().encode(DUE)[:40]):
        assert fold.put(record(root_key(ROOT), flawed)) is DueStep.WAITS
        assert entries.waiting.pop((0, ROOT)) == 99
    of_no_input = Root(Source(0), Position(1))
    impossible: list[tuple[Root, Stored | bytes, str]] = [
        (ROOT, b"garbage", "not a single-object"),
        (ROOT, entry_of(OTHER), "the key is not that of the value"),
        (ROOT, Pause(1, 5, "why"), "it tells of no root that waits"),
        (of_no_input, replace(DUE, source=0, position=1), "source 0 is of no input"),
    ]
    for root, value, why in impossible:
        said = fold.put(record(root_key(root), value))
        assert isinstance(said, Flawed)
        assert why in said.why
    assert entries.waiting == {}


def test_an_entry_that_a_reader_wants_none_of_takes_the_place_of_the_one_before() -> None:
    entries = EntriesByRoot[Due]()

    def of_group(found: Record, root: Root) -> Due | None:
        due = whole_entry(found, root)
        return due if due.group == "word-count" else None

    fold = DueFold(of_group, entries)
    fold.put(record(root_key(ROOT), DUE))
    assert fold.put(record(root_key(ROOT), replace(DUE, group="another"))) is DueStep.WAITS
    assert entries.waiting == {}


@pytest.mark.parametrize(
    ("wants", "kept"),
    [
        (every_root, [ROOT, COPY, OTHER]),
        (no_root, []),
        (of_roots([COPY]), [COPY]),
        (of_roots([ROOT, OTHER]), [ROOT, OTHER]),
        (of_roots([]), []),
        (of_input(1), [ROOT, COPY]),
        (of_input(2), [OTHER]),
        (of_input(3), []),
    ],
)
def test_a_reader_keeps_the_roots_that_it_wants_and_decodes_no_other(
    wants: KeyFilter, kept: list[Root]
) -> None:
    fold, waiting = fold_of(wants)
    for root in (ROOT, COPY, OTHER):
        said = fold.put(record(root_key(root), b"garbage"))
        assert isinstance(said, Flawed) == (root in kept)
        said = fold.put(record(root_key(root), entry_of(root)))
        assert said is (DueStep.WAITS if root in kept else DueStep.NOTHING)
    assert [root for _, root in waiting] == kept
    fold.put(record(pause_key(1), Pause(1, 5, "why")))
    fold.put(record(PROGRESS_KEY, Progress(7, 1)))
    assert (fold.paused(), fold.progress) == ({1: Pause(1, 5, "why")}, {0: Progress(7, 1)})
    for root in (ROOT, COPY, OTHER):
        assert fold.put(record(root_key(root), None)) is (DueStep.ENDED if root in kept else DueStep.NOTHING)
    assert waiting == {}


# -- progress and pauses


def test_the_last_progress_counts_and_the_pauses_that_no_tombstone_ended() -> None:
    fold = progress_and_pauses()
    assert (fold.progress, fold.paused(), fold.paused_by_partition()) == ({}, {}, {})
    assert fold.put(record(PROGRESS_KEY, Progress(5, 0))) == Progress(5, 0)
    assert fold.put(record(PROGRESS_KEY, Progress(7, 2))) == Progress(7, 2)
    assert fold.put(record(pause_key(3), Pause(3, 50, "why"))) == Pause(3, 50, "why")
    fold.put(record(pause_key(4), Pause(4, 60, "why")))
    assert fold.progress == {0: Progress(7, 2)}
    assert fold.paused().keys() == {3, 4}
    assert fold.put(record(pause_key(3), None)) is DueStep.RESUMED
    assert fold.put(record(pause_key(3), None)) is DueStep.NOTHING
    assert fold.paused() == {4: Pause(4, 60, "why")}


def test_of_pauses_in_several_partitions_the_latest_is_shown() -> None:
    fold = progress_and_pauses()
    for partition, since_ms in ((0, 1), (1, 2), (0, 3)):
        fold.put(record(pause_key(3), Pause(3, since_ms, "why"), partition))
    assert fold.paused() == {3: Pause(3, 3, "why")}
    assert fold.paused_by_partition() == {(0, 3): Pause(3, 3, "why"), (1, 3): Pause(3, 2, "why")}


@pytest.mark.parametrize(
    "value", [b"", b"garbage", NEWER, DUE], ids=["empty", "garbage", "newer", "an entry"]
)
def test_what_cannot_be_read_takes_no_progress_back_and_ends_no_pause(value: bytes | Due) -> None:
    fold = progress_and_pauses()
    fold.put(record(PROGRESS_KEY, Progress(5, 1)))
    fold.put(record(pause_key(3), Pause(3, 50, "why")))
    for key in (PROGRESS_KEY, pause_key(3), OWNER_KEY, None):
        said = fold.put(record(key, value))
        assert isinstance(said, Flawed)
        assert said.root is None
    for told in (Pause(4, 60, "under the key of another input"), Progress(9, 0)):
        assert isinstance(fold.put(record(pause_key(3), told)), Flawed)
    assert isinstance(fold.put(record(PROGRESS_KEY, Progress(9, -1))), Flawed)
    assert fold.put(record(PROGRESS_KEY, None)) is DueStep.NOTHING
    assert fold.put(record(OWNER_KEY, None)) is DueStep.NOTHING
    assert (fold.progress, fold.paused()) == ({0: Progress(5, 1)}, {3: Pause(3, 50, "why")})


def test_a_mark_says_nothing() -> None:
    fold, waiting = fold_of()
    mark = passed_over_mark(TopicPartition("_ack_due", 0), 7, "it is garbage", "kim")
    assert fold.put(record(mark.key, mark.value)) is DueStep.NOTHING
    assert (waiting, fold.progress, fold.paused()) == ({}, {}, {})


# -- a newer version


@pytest.mark.parametrize("key", [root_key(ROOT), PROGRESS_KEY, pause_key(1), OWNER_KEY, None])
def test_what_a_newer_version_wrote_stops_who_acts_by_it_and_is_flawed_for_the_others(
    key: bytes | None,
) -> None:
    newer = record(key, NEWER)

    def stop(found: Record, error: UnknownVersion) -> str:
        assert found is newer
        raise error

    acting = DueFold(whole_entry, EntriesByRoot[Due](), on_newer=stop)
    with pytest.raises(UnknownVersion):
        acting.put(newer)
    passed = DueFold(
        whole_entry, EntriesByRoot[Due](), on_newer=lambda _record, _error: "an operator knows it"
    )
    said = passed.put(newer)
    assert isinstance(said, Flawed)
    assert said.why == "an operator knows it"
    assert isinstance(fold_of()[0].put(newer), Flawed)


def test_a_whole_entry_is_one_of_the_root_of_its_key() -> None:
    assert whole_entry(record(root_key(ROOT), DUE), ROOT) == DUE
    for root in (OTHER, None):
        with pytest.raises(CodecError, match="the key is not that of the value"):
            whole_entry(record(root_key(OTHER), DUE), root)
    with pytest.raises(CodecError, match="it tells of no root that waits"):
        whole_entry(record(pause_key(1), Pause(1, 5, "why")), None)
