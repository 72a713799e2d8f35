"""Reads partitions to their ends: a piece of one as a restart needs it, or again and again what is
new.

Source: docs/design/protocol.md, section 5.3 and rule 10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from acker.errors import Damaged, DataLoss, OutOfRange, Unreachable
from acker.kafka.port import Bound, Log, OffsetAnswers, Reader, Record, TopicPartition
from acker.kafka.standing import named_troubles

OnDamage = Callable[[Damaged], int | None]
"""Called at a batch that cannot be read. It raises, or returns the offset up
to which the partition may be passed over; None: as far as it is damaged."""


def raise_damage(error: Damaged) -> int | None:
    """Pass over nothing: the caller needs the whole log."""
    raise error


def pass_damage(error: Damaged) -> int | None:
    """Pass over all that cannot be read: the caller shows the rest, and `Log.passed_over` what is missing."""
    return None


def poll_past_damage(
    reader: Reader, timeout_ms: int, max_records: int, on_damage: OnDamage
) -> Sequence[Record]:
    """Poll a reader; if a batch is damaged, pass over it as far as `on_damage` allows, and return
    nothing.

    Raises `Damaged`: `on_damage` raised it, since the batch may not be passed
    over, or not to its end.
    """
    try:
        return reader.poll(timeout_ms, max_records)
    except Damaged as error:
        allowed_end = on_damage(error)
        run = reader.pass_over(TopicPartition(error.topic, error.partition))
        # the damage may go on behind what is allowed: ask again for the rest of it
        while allowed_end is not None and run.end > allowed_end:
            allowed_end = on_damage(Damaged(run.topic, run.partition, allowed_end, run.why))
        return ()


PIECE_RECORDS: Final = 1_000
"""One poll returns so many records at most: these are in memory at a time."""

POLLS: Final = 20
"""A reader is given up after so many polls that did not move it; together they take the wait."""


def read_piece(
    log: Log,
    partition: TopicPartition,
    start: int,
    end: int,
    *,
    committed: bool,
    wait_ms: int,
    report_alive: Callable[[], None] = lambda: None,
    on_damage: OnDamage = raise_damage,
) -> Iterator[Record]:
    """Yield the records of a partition in [start, end), where `end` is one that `Log` returned.

    `report_alive` is called before each poll, so that a long read does not count as hung.

    Raises:
        Unreachable: the position did not move for `wait_ms`, short of the
            end.
        OutOfRange: `start` is not in the log.
        Damaged: `on_damage` does not let a damaged batch be passed over; what
            lies before it was yielded.
    """
    if start >= end:
        return
    reader = log.reader(committed=committed)
    poll_ms = max(1, wait_ms // POLLS)
    try:
        reader.assign({partition: start})
        idle_polls = 0
        position = start
        while position < end:
            report_alive()
            log.log_progress(partition, position, end)
            records = poll_past_damage(reader, poll_ms, PIECE_RECORDS, on_damage)
            if records and records[-1].offset >= end:  # written after `end` was asked for
                records = [record for record in records if record.offset < end]
            yield from records
            # control records move the position without a record
            former_position = position
            position = reader.position(partition)
            idle_polls = 0 if position > former_position else idle_polls + 1
            if idle_polls >= POLLS:
                raise Unreachable(
                    f"{partition.name}: nothing after offset {position} for"
                    f" {wait_ms} ms, though it goes on to {end}"
                )
    finally:
        reader.close()


def require_start(log: Log, partition: TopicPartition, needed_offset: int, what: str) -> None:
    """Raise `DataLoss` if a log begins behind the offset from which a restart needs it.

    `what` names the records that it needs there, for the message: "verdicts".
    """
    start = log.starts([partition])[partition]
    if start > needed_offset:
        raise DataLoss(
            f"{partition.name} begins at {start}, but {what} are needed from"
            f" {needed_offset}"
            " on: records were deleted that the acker had not finished; do not set a retention on the ack"
            " topics. What was open there can be had again by `windhover offsets reset`"
        )


PATIENCE_MS: Final = 5_000
"""A call of `Follower.read` ends early if it does not go on for so long."""

POLL_MS: Final = 100
"""How long one poll of a follower waits."""

READ_MAX: Final = 1_000_000
"""How many records one call reads; while there are more, counts are unknown."""


class Follower:
    """Reads the records of some partitions, in order, each once.

    Each call of `read` yields those that are new, up to `read_max`.

    Attributes:
        answers: how far each partition goes, as of the last call of `read`;
            or why that is unknown.
        is_whole: whether the last call of `read` yielded all records that
            there were.
    """

    def __init__(
        self,
        log: Log,
        partitions: Sequence[TopicPartition],
        read_max: int = READ_MAX,
        *,
        first_offsets: Mapping[TopicPartition, int] | None = None,
        committed: bool = True,
        patience_ms: int = PATIENCE_MS,
        on_damage: OnDamage = raise_damage,
    ) -> None:
        """Ask for the log starts, and read the partitions from there.

        Args:
            first_offsets: by partition the offset from which it is read
                instead; None: all begin at their log starts.
            committed: whether to read nothing behind an open transaction.
            patience_ms: see `PATIENCE_MS`.
            on_damage: what to do at a batch that cannot be read.
        """
        self._on_damage = on_damage
        self._log = log
        self._read_max = read_max
        self._patience_ms = patience_ms
        self._bound = Bound.STABLE_END if committed else Bound.END
        # by partition that is read, the offset at which that began
        self._start_by_partition: dict[TopicPartition, int] = {}
        if first_offsets is not None:
            self._start_by_partition |= first_offsets
        # partitions that are not read yet, since nobody could say their log start
        self._unbegun_partitions = set(partitions) - self._start_by_partition.keys()
        starts = OffsetAnswers({}, {})
        if self._unbegun_partitions:
            starts = log.bounds(Bound.START, self._unbegun_partitions)
        # made after the question: if that fails, nobody would close it
        self._reader = log.reader(committed=committed)
        self._reader.assign(self._start_by_partition)
        self._begin(starts)
        # nothing is read yet, so the ends are not asked for
        self.answers = OffsetAnswers({}, starts.troubles)
        # by partition, the end that the last call of `read` did not reach in `patience_ms`
        self._unreached_ends: Mapping[TopicPartition, int] = {}
        self.is_whole = False

    def follow(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions as well, from their log starts.

        Those that are read already go on.
        """
        self._unbegun_partitions |= {
            partition for partition in partitions if partition not in self._start_by_partition
        }
        if self._unbegun_partitions:
            self._begin(self._log.bounds(Bound.START, self._unbegun_partitions))

    def _begin(self, starts: OffsetAnswers) -> None:
        """Begin to read partitions at their log starts, which are the answers `starts`.

        One without an answer is tried again by the next `read`.
        """
        if starts.offsets:
            # `assign` replaces all: those that are read already go on at their positions
            self._reader.assign({**self.positions(), **starts.offsets})
            self._start_by_partition |= starts.offsets
            self._unbegun_partitions -= starts.offsets.keys()

    def positions(self) -> dict[TopicPartition, int]:
        """Return by partition the offset up to which it is read."""
        position_of = self._reader.position
        return {partition: position_of(partition) for partition in self._start_by_partition}

    def read(self) -> Iterator[Record]:
        """Yield the records since the last call; afterwards `is_whole` shows whether these were
        all.

        A partition without a leader holds up no other: `is_whole` is False
        then, and `why_not_whole` names it.

        Raises `Damaged`: `on_damage` does not let a damaged batch be passed
        over; call again for the rest.
        """
        self.is_whole = False
        if self._unbegun_partitions:
            self._begin(self._log.bounds(Bound.START, self._unbegun_partitions))
        self._unreached_ends = {}
        partitions = [*self._start_by_partition, *self._unbegun_partitions]
        self.answers = self._log.bounds(self._bound, partitions)
        poll_ms = min(POLL_MS, self._patience_ms)
        idle_ms = 0
        remaining_count = self._read_max
        unreached_ends = self._unreached(self._end_by_partition())
        while unreached_ends:
            # only for the line of the log: the poll reads all partitions
            partition = min(unreached_ends)
            position = self._reader.position(partition)
            self._log.log_progress(partition, position, unreached_ends[partition])
            if remaining_count <= 0:  # there is more than one call reads
                return
            if idle_ms >= self._patience_ms:
                self._unreached_ends = unreached_ends  # for `why_not_whole`
                return
            poll_records = min(remaining_count, PIECE_RECORDS)
            try:
                records = poll_past_damage(self._reader, poll_ms, poll_records, self._on_damage)
            except OutOfRange:  # what was to be read next was deleted meanwhile
                self._skip_deleted()
                records = ()
            remaining_count -= len(records)
            former_count = len(unreached_ends)
            unreached_ends = self._unreached(unreached_ends)
            # A partition that ends in control records reaches its end without a record.
            went_on = bool(records) or len(unreached_ends) < former_count
            idle_ms = 0 if went_on else idle_ms + poll_ms
            yield from records
        # a partition whose end or start no leader has answered may have more
        self.is_whole = not self.answers.troubles and not self._unbegun_partitions

    def _skip_deleted(self) -> None:
        """Go on where the logs begin now: what was deleted meanwhile is lost for every reader.

        A partition that is read beyond its log start goes on where it is.
        """
        starts = self._log.bounds(Bound.START, self._start_by_partition).offsets
        positions = self.positions()
        for partition, start in starts.items():
            positions[partition] = max(positions[partition], start)
        self._reader.assign(positions)

    def why_not_whole(self) -> str:
        """Return which partitions kept the last call of `read` from reading all, and why.

        Empty: none did, there was only more than one call reads.
        """
        if self.answers.troubles:
            return named_troubles(self.answers.troubles)
        return "; ".join(
            f"{partition.name} stands at {self._reader.position(partition):,} of {end:,}"
            for partition, end in sorted(self._unreached_ends.items())
        )

    def _end_by_partition(self) -> dict[TopicPartition, int]:
        """Return the ends, as of the last call of `read`, of the partitions that are read."""
        ends = self.answers.offsets
        begun = [partition for partition in self._start_by_partition if partition in ends]
        return {partition: ends[partition] for partition in begun}

    def _unreached(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return those of the ends that the reader has not reached."""
        position_of = self._reader.position
        return {partition: end for partition, end in ends.items() if position_of(partition) < end}

    @property
    def fraction_read(self) -> float:
        """The share, 0 to 1, that is read of what there was at the last call of `read`.

        That is the offsets between the starts of the partitions and their ends. A
        partition whose start or end was not answered is left out. If no other has a record, the
        share is 0: nobody knows whether there is something to read.
        """
        total_count = 0
        unread_count = 0
        for partition, end in self._end_by_partition().items():
            total_count += max(0, end - self._start_by_partition[partition])
            unread_count += max(0, end - self._reader.position(partition))
        if not total_count:
            is_unknown = bool(self.answers.troubles or self._unbegun_partitions)
            return 0.0 if is_unknown else 1.0  # 1: there was nothing to read
        return (total_count - unread_count) / total_count

    def close(self) -> None:
        """Close the reader; the follower cannot be used any more."""
        self._reader.close()
