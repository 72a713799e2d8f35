"""What waits, is paused and is accepted after a log of `_ack_due`: one *fold* for all its readers.

A fold is given the records one by one, in the order of the log (`DueFold.put`), and has then what
they mean together. A root waits as long as it has an *entry*. What one record means (`Meaning`)
follows from its key and its value alone:

====================  =====================  =========================================================
key                   value                  what it means
====================  =====================  =========================================================
a root's              none, a tombstone      `DueStep.ENDED`: the root waits no more
a root's              the root's entry       `DueStep.WAITS`: the root waits, as its entry has it
``pause/<input id>``  none, a tombstone      `DueStep.RESUMED`, if the input was paused there
``pause/<input id>``  the input's `Pause`    the `Pause`
``progress``          a `Progress`           the `Progress`
a mark's              its text               `DueStep.NOTHING` (see `acker.service.passed_over`)
any other             none                   `DueStep.NOTHING`
any                   anything else          `Flawed`
====================  =====================  =========================================================

1. The last record of a key counts. The same key in another partition is another key.
2. What is flawed changes nothing: the record beneath it counts on. Compaction may remove that one, so the
   next owner of the partition writes it again, or makes a dead letter of the root (`replay.worker.entries`).
3. What a newer version wrote is flawed, too, for those who only look. Those who act by it stop there:
   `on_newer` raises, unless an operator lets it be passed over.

Readers differ in which roots they want, in what they keep of an entry, and in where they keep it. One that
keeps_key a single root keeps no other; one that has a million of them keeps a few bytes of each.

Source: docs/design/protocol.md, sections 4 and 5.4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum, auto
from functools import lru_cache
from typing import Final, Generic, NamedTuple, Protocol, TypeVar, assert_never

from acker.errors import CodecError, UnknownVersion
from acker.identity import Root, input_id_of
from acker.kafka.port import Record
from acker.service.passed_over import offset_to_pass_over
from acker.wire.checks import wrong_source
from replay.records.due import (
    ROOT_KEY_BYTES,
    Due,
    Pause,
    Progress,
    due_codec,
    flaw_of,
    flaw_of_entry,
    root_key,
    root_of_key,
)

E = TypeVar("E")
Kept = TypeVar("Kept", contravariant=True)

EntryName = tuple[int, bytes]
"""The partition of `_ack_due` and the key there, which name an entry until its tombstone."""


def name_of(record: Record) -> EntryName:
    """Return which entry a record of `_ack_due` is about."""
    return record.partition, record.key or b""


class DueStep(Enum):
    """What a record means where no more is to be known of it; see the table above."""

    WAITS = auto()
    ENDED = auto()
    RESUMED = auto()
    NOTHING = auto()


# what nearly all of a million records at a start mean: a member of an enum takes four times as long to
# look up
_WAITS: Final = DueStep.WAITS
_NOTHING: Final = DueStep.NOTHING


class Flawed(NamedTuple):
    """A record that says nothing, and why; `root` is that of its key, None: the key is of no root."""

    why: str
    root: Root | None


Meaning = DueStep | Pause | Progress | Flawed

KeyFilter = Callable[[bytes], bool]
"""Whether a reader keeps_key a root, by the key alone: of the others nothing is decoded."""

ReadEntry = Callable[[Record, Root], E | None]
"""Returns what a reader keeps of the entry of a root; None: it keeps_key none of it.

Raises `CodecError`: the record is flawed; `UnknownVersion`: a newer version wrote it."""

OnNewer = Callable[[Record, UnknownVersion], str]
"""Returns the flaw of a record that a newer version wrote; raises: the reader must not go on."""


def every_root(_key: bytes) -> bool:
    """Want every root; a `KeyFilter`."""
    return True


no_root: Final[KeyFilter] = frozenset[bytes]().__contains__
"""For who keeps_key pauses and progress only."""


def of_roots(roots: Collection[Root]) -> KeyFilter:
    """Return a filter for who keeps_key these roots."""
    return frozenset(map(root_key, roots)).__contains__


def of_input(input_id: int) -> KeyFilter:
    """Return a filter for who keeps_key the roots of one input, copies among them."""
    return lambda key: input_id_of(root_of_key(key).source) == input_id


def whole_entry(record: Record, root: Root | None) -> Due:
    """Decode an entry of `_ack_due`, and check all of it; a `ReadEntry`.

    `root` is that of the record's key; None: the key is of no root.

    Raises `CodecError`: it is flawed, or about another root; `UnknownVersion`.
    """
    stored = due_codec().decode(record.value)
    if not isinstance(stored, Due):
        raise CodecError("it tells of no root that waits")
    flaw = flaw_of_entry(root, stored)
    if flaw:
        raise CodecError(flaw)
    return stored


def due_ms_of(record: Record, root: Root) -> int:
    """Read when an entry is due (wall time), and check only that it is the root's; a `ReadEntry`.

    Another flaw is found when the root is due: then it becomes a dead letter.
    """
    root_in_value, due_ms = due_codec().read_root_and_due_ms(record.value or b"")
    if root_in_value != root:
        raise CodecError("the key is not that of the value")
    flaw = _flaw_of_source(root.source)
    if flaw:
        raise CodecError(flaw)
    return due_ms


_flaw_of_source = lru_cache(maxsize=1_024)(wrong_source)
"""Of a million roots most have one of a few sources."""


def flaw_of_newer(_record: Record, error: UnknownVersion) -> str:
    """Go on behind a record of a newer version; the replay worker reports it."""
    return str(error)


class Entries(Protocol[Kept]):
    """Where a reader keeps the entries of roots that wait.

    Each is kept until the next `put` or `end` of its partition and key.
    """

    def put(self, record: Record, root: Root, entry: Kept) -> None:
        """Keep the entry of a root, in place of an earlier one."""

    def end(self, record: Record, root: Root) -> None:
        """Remove the entry of a root that waits no more, if there is one."""


class EntriesByRoot(Generic[E]):
    """Keeps what waits: in `waiting`, by the partition of `_ack_due` and the root."""

    def __init__(self) -> None:
        """Begin without an entry."""
        self.waiting: dict[tuple[int, Root], E] = {}

    def put(self, record: Record, root: Root, entry: E) -> None:
        """Keep the entry of a root, in place of an earlier one."""
        self.waiting[record.partition, root] = entry

    def end(self, record: Record, root: Root) -> None:
        """Remove the entry of a root that waits no more, if there is one."""
        self.waiting.pop((record.partition, root), None)


class DueFold(Generic[E]):
    """Folds the records of any partitions of `_ack_due`, those of each partition in their order.

    What waits is where `kept_entries` keeps it.

    Attributes:
        progress: the last one of each partition, by its number; no tombstone takes it back.
        pause_changes: how many records paused an input, or let it go on.
    """

    def __init__(
        self,
        read_entry: ReadEntry[E],
        kept_entries: Entries[E],
        *,
        keeps_key: KeyFilter = every_root,
        on_newer: OnNewer = flaw_of_newer,
    ) -> None:
        """Begin with a log of which nothing is read.

        Args:
            read_entry: returns what is kept of an entry.
            kept_entries: where entries are kept; the fold calls its `put` and
                `end`.
            keeps_key: returns whether the root of this key is kept; entries of
                the others are not decoded.
            on_newer: returns why a record of a newer version counts as flawed,
                or raises if the reader must not go on.
        """
        self.progress: dict[int, Progress] = {}  # by the number of the partition
        self.pause_changes = 0
        self._pauses: dict[EntryName, Pause] = {}  # of inputs that are paused; the latest one last
        self._read_entry = read_entry
        self._kept_entries = kept_entries
        self._keeps_key = keeps_key
        self._on_newer = on_newer

    def put(self, record: Record) -> Meaning:
        """Fold in the next record of its partition, and return what it means.

        Raises what `on_newer` raises.
        """
        key = record.key
        if key is None or len(key) != ROOT_KEY_BYTES:
            return self._put_pause_or_progress(record, key or b"")
        if not self._keeps_key(key):
            return _NOTHING
        root = root_of_key(key)
        if record.value is None:
            self._kept_entries.end(record, root)
            return DueStep.ENDED
        try:
            entry = self._read_entry(record, root)
        except UnknownVersion as error:
            return Flawed(why=self._on_newer(record, error), root=root)
        except CodecError as error:
            return Flawed(why=str(error), root=root)
        if entry is None:
            # it stands in the place of one that the reader may have kept
            self._kept_entries.end(record, root)
        else:
            self._kept_entries.put(record, root, entry)
        return _WAITS

    def paused_by_partition(self) -> dict[tuple[int, int], Pause]:
        """Return what is paused, by the partition of `_ack_due` and the id of the input."""
        return {(partition, pause.input): pause for (partition, _key), pause in self._pauses.items()}

    def paused(self) -> dict[int, Pause]:
        """Return the inputs that are paused in some partition, by their ids; the latest pause of each."""
        return {pause.input: pause for pause in self._pauses.values()}

    def _put_pause_or_progress(self, record: Record, key: bytes) -> Meaning:
        """Fold in a record whose key is of no root, and return what it means.

        That is a pause, the end of one, the progress, a mark on another record, or nothing of ours.
        """
        entry_name = record.partition, key
        # 1. a tombstone
        if record.value is None:
            was_paused = self._pauses.pop(entry_name, None) is not None
            if not was_paused:  # the tombstone under `owner` is one that ends no pause, too
                return _NOTHING
            self.pause_changes += 1
            return DueStep.RESUMED
        # 2. what cannot be decoded, or not under this key
        try:
            stored = due_codec().decode(record.value)
        except UnknownVersion as error:
            return Flawed(why=self._on_newer(record, error), root=None)
        except CodecError as error:
            # an operator's mark on another record; its value is a text, so it
            # cannot be decoded
            if offset_to_pass_over(record) is not None:
                return _NOTHING
            return Flawed(why=str(error), root=None)
        flaw = flaw_of(record.key, stored)
        # an entry under such a key always has a flaw (`flaw_of`): the second
        # test is for the types alone
        if flaw or isinstance(stored, Due):
            return Flawed(why=flaw, root=None)
        # 3. a progress or a pause
        match stored:
            case Progress():
                self.progress[record.partition] = stored
            case Pause():
                self._pauses.pop(entry_name, None)  # so that the latest pause is the last one
                self._pauses[entry_name] = stored
                self.pause_changes += 1
            case _:
                assert_never(stored)
        return stored


def progress_and_pauses() -> DueFold[Due]:
    """Return a fold for who keeps_key the progress and the pauses, and no roots."""
    return DueFold(whole_entry, EntriesByRoot[Due](), keeps_key=no_root)
