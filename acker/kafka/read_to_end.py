"""Reads partitions to their ends: a piece of one as a restart needs it, or again and again what is new.

Source: docs/design/protocol.md, section 5.3 and rule 10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from acker.errors import Damaged, DataLoss, OutOfRange, Unreachable
from acker.kafka.port import Bound, Log, OffsetAnswers, Reader, Record, TopicPartition
from acker.kafka.standing import named_troubles

OnDamage = Callable[[Damaged], int | None]
"""Called where a batch cannot be read. It raises, or returns up to which offset the partition may be passed
over; None: as far as it is damaged."""


def raise_damage(error: Damaged) -> int | None:
    """Pass over nothing: whoever needs the log needs all of it."""
    raise error


def pass_damage(error: Damaged) -> int | None:
    """Pass over what cannot be read, for who shows the rest; `Log.passed_over` tells what is left out."""
    return None


def poll_past_damage(
    reader: Reader, timeout_ms: int, max_records: int, on_damage: OnDamage
) -> Sequence[Record]:
    """Poll a reader, and let it pass over a damaged batch where `on_damage` allows it; none came then.

    Raises `Damaged`: a batch may not be passed over, or is damaged further than may be.
    """
    try:
        return reader.poll(timeout_ms, max_records)
    except Damaged as error:
        allowed_to = on_damage(error)
        run = reader.pass_over(TopicPartition(error.topic, error.partition))
        while allowed_to is not None and run.end > allowed_to:
            allowed_to = on_damage(Damaged(run.topic, run.partition, allowed_to, run.why))
        return ()


PIECE_RECORDS: Final = 1_000
"""So many records of a piece are in memory at a time."""

POLLS: Final = 20
"""An answer is waited for in this many polls, so that a reader that moves on is never given up."""


def read_piece(
    log: Log,
    partition: TopicPartition,
    start: int,
    end: int,
    *,
    committed: bool,
    wait_ms: int,
    alive: Callable[[], None] = lambda: None,
    on_damage: OnDamage = raise_damage,
) -> Iterator[Record]:
    """Yield the records of a partition in [start, end), where `end` is one that `Log` returned.

    `alive` is called before each poll, so that a long read does not count as hung.

    Raises:
        Unreachable: nothing came for `wait_ms`, short of the end.
        OutOfRange: `start` is not there.
        Damaged: `on_damage` does not let a damaged batch be passed over; what lies before it was yielded.
    """
    if start >= end:
        return
    reader = log.reader(committed=committed)
    try:
        reader.assign({partition: start})
        idle = 0
        while (at := reader.position(partition)) < end:
            alive()
            log.note_progress(partition, at, end)
            records = poll_past_damage(reader, max(1, wait_ms // POLLS), PIECE_RECORDS, on_damage)
            within = not records or records[-1].offset < end
            yield from records if within else [record for record in records if record.offset < end]
            idle = 0 if reader.position(partition) > at else idle + 1
            if idle >= POLLS:
                raise Unreachable(
                    f"{partition.topic}/{partition.partition}: nothing after offset {at} for {wait_ms} ms,"
                    f" though it goes on to {end}"
                )
    finally:
        reader.close()


def require_start(log: Log, partition: TopicPartition, needed: int, what: str) -> None:
    """Raise `DataLoss` where a log no longer holds what a restart needs."""
    start = log.starts([partition])[partition]
    if start > needed:
        raise DataLoss(
            f"{partition.topic}/{partition.partition} begins at {start}, but {what} are needed from {needed}"
            " on: records were deleted that the acker had not finished; do not set a retention on the ack"
            " topics. What was open there can be had again by `windhover offsets reset`"
        )


PATIENCE_MS: Final = 5_000
"""A call ends early when no record arrives for this long."""

POLL_MS: Final = 100

READ_MAX: Final = 1_000_000
"""How many records one call reads; while there are more, counts are unknown."""


class Follower:
    """Reads the records of some partitions, in order, each once: each call what is new, up to `read_max`."""

    def __init__(
        self,
        log: Log,
        places: Sequence[TopicPartition],
        read_max: int = READ_MAX,
        *,
        first: Mapping[TopicPartition, int] | None = None,
        committed: bool = True,
        patience_ms: int = PATIENCE_MS,
        on_damage: OnDamage = raise_damage,
    ) -> None:
        """Begin at the log starts, or at `first`; `committed`: read nothing behind an open transaction."""
        self._on_damage = on_damage
        self._log = log
        self._read_max = read_max
        self._patience_ms = patience_ms
        self._bound = Bound.STABLE_END if committed else Bound.END
        self._at: dict[TopicPartition, int] = {} if first is None else dict(first)
        self._unbegun = set(places) - self._at.keys()
        starts = log.bounds(Bound.START, self._unbegun) if self._unbegun else OffsetAnswers({}, {})
        self._reader = log.reader(committed=committed)  # last: nobody closes it if a question fails
        self._reader.assign(self._at)
        self._begin(starts)
        self.answers = OffsetAnswers({}, starts.troubles)
        self._stuck: Mapping[TopicPartition, int] = {}
        self.is_whole = False

    def follow(self, places: Sequence[TopicPartition]) -> None:
        """Read these partitions as well, from their log starts, where they are new."""
        self._unbegun |= {place for place in places if place not in self._at}
        if self._unbegun:
            self._begin(self._log.bounds(Bound.START, self._unbegun))

    def _begin(self, starts: OffsetAnswers) -> None:
        """Read partitions from where their logs begin; those that do not say it follow later."""
        if starts.offsets:
            positions = {place: self._reader.position(place) for place in self._at}
            self._reader.assign({**positions, **starts.offsets})
            self._at |= starts.offsets
            self._unbegun -= starts.offsets.keys()

    def read(self) -> Iterator[Record]:
        """Yield the records since the last call; afterwards `is_whole` shows whether these were all.

        A partition without a leader holds up no other; then they were not all, and `known` names it.
        Raises `Damaged`: `on_damage` does not let a damaged batch be passed over; call again for the rest.
        """
        self.is_whole = False
        if self._unbegun:
            self._begin(self._log.bounds(Bound.START, self._unbegun))
        self._stuck = {}
        self.answers = self._log.bounds(self._bound, [*self._at, *self._unbegun])
        ends = {place: end for place, end in self.answers.offsets.items() if place in self._at}
        poll_ms = min(POLL_MS, self._patience_ms)
        left, idle_ms = self._read_max, 0
        behind = self._behind(ends)
        while behind:
            place = min(behind)
            self._log.note_progress(place, self._reader.position(place), behind[place])
            if left <= 0:
                return
            if idle_ms >= self._patience_ms:
                self._stuck = behind
                return
            try:
                records = poll_past_damage(self._reader, poll_ms, min(left, 1_000), self._on_damage)
            except OutOfRange:
                # What was deleted meanwhile is lost for every reader: go on where the log begins now.
                starts = self._log.bounds(Bound.START, self._at).offsets
                positions = {place: self._reader.position(place) for place in self._at}
                self._reader.assign({place: max(starts.get(place, 0), at) for place, at in positions.items()})
                records = ()
            left -= len(records)
            before, behind = behind, self._behind(behind)
            # of a partition that ends in a marker only its position comes, and of each by itself
            idle_ms = 0 if records or len(behind) < len(before) else idle_ms + poll_ms
            yield from records
        self.is_whole = not self.answers.troubles and not self._unbegun

    def why_not_whole(self) -> str:
        """Name the partitions that kept the last call from reading all; empty: there is more to read."""
        if self.answers.troubles:
            return named_troubles(self.answers.troubles)
        return "; ".join(
            f"{place.topic}/{place.partition} stands at {self._reader.position(place):,} of {end:,}"
            for place, end in sorted(self._stuck.items())
        )

    def _behind(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {place: end for place, end in ends.items() if self._reader.position(place) < end}

    @property
    def share_read(self) -> float:
        """Which part is read of what there was at the last call of `read`."""
        ends = {place: end for place, end in self.answers.offsets.items() if place in self._at}
        total = sum(max(0, end - self._at[place]) for place, end in ends.items())
        left = sum(max(0, end - self._reader.position(place)) for place, end in ends.items())
        return (total - left) / total if total else 1.0

    def close(self) -> None:
        self._reader.close()
