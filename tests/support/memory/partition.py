"""One partition of the in-memory log: records, control records, transactions, retention, compaction.

Every offset has a slot and a state. A slot never moves while it is in the log, so an offset is found by
subtraction; retention only raises the log start, and the front of the lists is given back in large steps.

============  =====================================================================
state         who sees the slot
============  =====================================================================
``VISIBLE``   everybody; read_committed readers once it lies below the stable end
``ABORTED``   read_uncommitted readers only
``HIDDEN``    nobody: a commit or abort marker, or a record that was compacted away
============  =====================================================================

A damaged batch is a range of offsets at which reading stops, whatever the slots in it hold.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from acker.kafka.port import Outgoing, Record, TimestampType, TopicPartition

DAMAGE_TEXT: Final = "its checksum is wrong; in memory"
VISIBLE: Final = 0
ABORTED: Final = 1
HIDDEN: Final = 2

_TRIM_SLOTS = 4096
"""Deleted slots that are kept at least, so that giving memory back costs a constant for each record."""


class MemoryPartition:
    """A partition's log. Offsets are what Kafka would give, markers of transactions included."""

    __slots__ = (
        "_base",
        "_damaged",
        "_epochs",
        "_open",
        "_records",
        "_states",
        "name",
        "start",
        "timestamp_type",
    )

    def __init__(self, name: TopicPartition) -> None:
        """Begin an empty log at offset 0."""
        self.name = name
        self.start = 0
        self.timestamp_type = TimestampType.CREATED
        self._base = 0
        self._epochs = [(0, 0)]  # leader epochs, and where each begins
        self._records: list[Record] = []
        self._states = bytearray()
        self._open: dict[str, list[int]] = {}
        self._damaged: list[tuple[int, int, str]] = []

    @property
    def end(self) -> int:
        """The high watermark: the offset that the next record gets."""
        return self._base + len(self._records)

    @property
    def leader_epoch(self) -> int:
        """The epoch of the present leader."""
        return self._epochs[-1][0]

    def begin_epoch(self) -> None:
        """Let another leader be elected, as at a restart; the log stays."""
        self._epochs.append((self.leader_epoch + 1, self.end))

    def end_of_epoch(self, epoch: int) -> int | None:
        """Return where the records of an epoch, or of lower ones, end; None: no epoch is so low or high."""
        if epoch == self.leader_epoch:
            return self.end
        return next((start for higher, start in self._epochs if higher > epoch >= self._epochs[0][0]), None)

    @property
    def stable_end(self) -> int:
        """The last stable offset: that of the first record of the oldest open transaction, or the end."""
        for offsets in list(self._open.values()):  # another thread may begin a transaction meanwhile
            return max(offsets[0], self.start)
        return self.end

    def append(self, record: Outgoing, now_ms: int, owner: str | None = None) -> int:
        """Append one record and return its offset.

        Args:
            record: what to write; its topic and partition are assumed to be this one.
            now_ms: the timestamp of a record without one.
            owner: the transactional id of the open transaction that it belongs to, if any.
        """
        offset = self.end
        if owner is not None:
            self._open.setdefault(owner, []).append(offset)
        kind, stamp_ms = self.timestamp_type, record.timestamp_ms
        if kind is TimestampType.APPENDED or stamp_ms is None:
            stamp_ms = now_ms
        self._put(
            Record(
                *self.name,
                offset,
                record.key,
                record.value,
                record.headers,
                stamp_ms,
                kind,
                self.leader_epoch,
            ),
            VISIBLE,
        )
        return offset

    def end_transaction(self, owner: str, now_ms: int, *, committed: bool) -> None:
        """Write the marker that ends an owner's transaction here; nothing happens if it wrote nothing."""
        offsets = self._open.pop(owner, None)
        if offsets is None:
            return
        if not committed:
            for offset in offsets:
                if offset >= self._base:
                    self._states[offset - self._base] = ABORTED
        self._put(Record(*self.name, self.end, None, None, (), now_ms), HIDDEN)

    def read(self, position: int, limit: int, *, committed: bool) -> tuple[list[Record], int]:
        """Read up to `limit` records from a position in [start, end].

        Returns:
            The records, and the position behind them and behind what nobody may see there.
        """
        stop = self._until_damage(position, self.stable_end if committed else self.end) - self._base
        index = position - self._base
        found: list[Record] = []
        while index < stop and len(found) < limit:
            upper = min(stop, index + limit - len(found))
            states = self._states[index:upper]
            if not any(states):
                found += self._records[index:upper]
            else:
                seen = ABORTED if not committed else VISIBLE
                found += [r for r, s in zip(self._records[index:upper], states, strict=True) if s <= seen]
            index = upper
        hidden_from = ABORTED if committed else HIDDEN
        while index < stop and self._states[index] >= hidden_from:
            index += 1
        return found, max(index + self._base, position)

    def damage(self, start: int, end: int, why: str = DAMAGE_TEXT) -> None:
        """Let nobody read the offsets [start, end) any more, as those of a batch that is damaged on disk.

        With another `why` they are what that says: `acker.errors.unreadable_kind`.
        """
        self._damaged.append((start, end, why))

    def mend(self) -> None:
        """Let all be read again: another replica leads the partition."""
        self._damaged.clear()

    def damage_at(self, position: int) -> tuple[int, int, str] | None:
        """Return the damaged offsets among which a position is, and why; None: it can be read."""
        return next((damage for damage in self._damaged if damage[0] <= position < damage[1]), None)

    def _until_damage(self, position: int, stop: int) -> int:
        starts = [start for start, end, _ in self._damaged if end > position]
        return max(position, min([stop, *starts]))

    def first_at(self, timestamp_ms: int) -> int:
        """Return the first offset whose timestamp is at or after `timestamp_ms`, or the end."""
        for record in self._records[self.start - self._base :]:
            if record.timestamp_ms >= timestamp_ms:
                return record.offset
        return self.end

    def delete_before(self, offset: int) -> None:
        """Raise the log start to an offset in [0, end]; it never falls."""
        self.start = max(self.start, offset)
        trim = self.start - self._base
        if trim >= _TRIM_SLOTS and trim * 2 >= len(self._records):
            del self._records[:trim]
            del self._states[:trim]
            self._base = self.start

    def cut(self, offset: int) -> None:
        """Lose what was written from an offset on, as by an unclean election of another leader."""
        del self._records[offset - self._base :]
        del self._states[offset - self._base :]
        # what is written there from now on is whole
        self._damaged = [
            (start, min(end, offset), why) for start, end, why in self._damaged if start < offset
        ]
        before = self.leader_epoch
        kept = [(epoch, start) for epoch, start in self._epochs if start < offset]
        self._epochs = [*(kept or self._epochs[:1]), (before + 1, offset)]

    def compact(
        self,
        *,
        drop_tombstones: bool,
        young_ms: int | None = None,
        keys: Container[bytes | None] | None = None,
    ) -> None:
        """Keep the last committed record of each key below the stable end; offsets stay as they are.

        Args:
            keys: records of other keys stay, as in segments that are not cleaned yet; None: of all keys.
            drop_tombstones: whether a last record without a value goes as well, as Kafka has it once
                ``delete.retention.ms`` is over.
            young_ms: such a record stays all the same if it was written at or after this time; None: none.
        """
        last: dict[bytes | None, int] = {}
        first, stop = self.start - self._base, self.stable_end - self._base
        for index in range(first, stop):
            if self._states[index] == VISIBLE:
                last[self._records[index].key] = index
        for index in range(first, stop):
            record = self._records[index]
            if keys is not None and (self._states[index] != VISIBLE or record.key not in keys):
                continue
            kept = self._states[index] == VISIBLE and last[record.key] == index
            is_old = young_ms is None or record.timestamp_ms < young_ms
            if not kept or (drop_tombstones and is_old and record.value is None):
                self._states[index] = HIDDEN
                self._records[index] = record._replace(key=None, value=None, headers=())

    def _put(self, record: Record, state: int) -> None:
        self._records.append(record)
        self._states.append(state)
