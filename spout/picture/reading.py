"""Reads the topics of a picture, each behind what was read before, within limits.

What cannot be read ends nothing: it becomes a hole, and the caller gets the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from acker.errors import TopicError, Unreachable, WindhoverError
from acker.identity import OFFSET_MAX
from acker.kafka.port import Bound, Log, Record, TopicPartition
from acker.kafka.read_to_end import PATIENCE_MS, Follower, pass_damage
from spout.picture.database import Picture
from spout.picture.holes import Hole, Holes

PIECE_RECORDS: Final = 10_000
"""So many records are read between two looks at the clock."""


class Limits(NamedTuple):
    """How much one reading takes.

    Attributes:
        records_max: of each topic.
        time_ms_max: of all topics together.
        since_ms: only records of this wall time or later; None: all that there are.
        picture_bytes_max: once a picture takes so much, no further records are read into it.
        patience_ms: a topic is given up if nothing more of it comes for so long.
    """

    records_max: int = 1_000_000
    time_ms_max: int = 120_000
    since_ms: int | None = None
    picture_bytes_max: int = 2 << 30
    patience_ms: int = PATIENCE_MS


DEFAULT_LIMITS: Final = Limits()


class ReadMark(NamedTuple):
    """How far a partition was read: from `read_from` up to `read_to`; its log has [`start`, `end`).

    None: the broker did not say it.
    """

    start: int | None
    end: int | None
    read_from: int | None
    read_to: int | None


class TopicUse(NamedTuple):
    """What a topic is read for.

    Attributes:
        holds: what its records are, for people.
        tables: the tables that lack something where it cannot be read.
        input: the name of its input; None: it is an ack topic.
        may_begin_late: a log that begins behind 0 lacks nothing that a table would have.
        reads_all: it is read from its start, whatever time is wanted.
    """

    holds: str
    tables: str
    input: str | None = None
    may_begin_late: bool = False
    reads_all: bool = False


class LogReading:
    """Reads topics, each record once, over any number of readings.

    Attributes:
        errors: what kept this reading from topics, or partitions; each is a hole, too.
        left_unread: what this reading left unread because of a limit; likewise.
        has_answer: whether the cluster has said of any topic what it is, or that it is missing.
    """

    def __init__(
        self,
        log: Log,
        limits: Limits,
        clock_ms: Callable[[], int],
        holes: Holes,
        picture: Picture,
    ) -> None:
        """Prepare to read for a picture; `clock_ms` returns a time that only rises, in ms."""
        self._log = log
        self._limits = limits
        self._clock_ms = clock_ms
        self._holes = holes
        self._picture = picture
        self.errors: list[WindhoverError] = []
        self.left_unread: list[str] = []
        self.has_answer = False
        self._raises_errors = False
        self._deadline_ms = clock_ms() + limits.time_ms_max
        self._follower_by_topic: dict[str, Follower] = {}
        self._use_by_topic: dict[str, TopicUse] = {}
        # topics of which this reading has read all that there was
        self._topics_read_whole: set[str] = set()
        # by partition: where its log began at the last reading
        self._log_start_by_place: dict[TopicPartition, int] = {}
        # by partition: the offset from which it was read
        self._read_from_by_place: dict[TopicPartition, int] = {}

    def begin(self, *, raises_errors: bool = False) -> None:
        """Begin a reading: its time counts from now on, and it has no errors and left nothing unread yet.

        `raises_errors`: the first error is raised, since the caller needs all records.
        """
        self._raises_errors = raises_errors
        self._deadline_ms = self._clock_ms() + self._limits.time_ms_max
        self._topics_read_whole = set()
        self.errors = []
        self.left_unread = []
        self.has_answer = False  # True as soon as the cluster answers a question about a topic

    def is_whole(self, topic: str) -> bool:
        """Return whether this reading has read all that there was of a topic."""
        return topic in self._topics_read_whole

    def places_of(self, topic: str, use: TopicUse) -> Sequence[TopicPartition]:
        """Return the partitions of a topic; none: it cannot be read, and `unknown` says why."""
        self._use_by_topic[topic] = use
        try:
            info = self._log.topics([topic]).get(topic)
        except WindhoverError as error:
            self.note_error(Hole(use.tables, str(error), topic), error)
            return ()
        self.has_answer = True
        if info is None:
            why = "the topic is missing; run `windhover topics create`"
            self.note_error(Hole(use.tables, why, topic), TopicError(f"{topic}: {why}"))
            return ()
        return [TopicPartition(topic, number) for number in range(info.partitions)]

    def records(
        self,
        topic: str,
        use: TopicUse,
        needed_from: Mapping[TopicPartition, int] | None = None,
        starts: Mapping[TopicPartition, int] | None = None,
    ) -> Iterator[Record]:
        """Yield the records of a topic that were not read yet, by partition in their order.

        Args:
            use: what the topic is read for: its tables get a hole for what cannot be read.
            needed_from: by partition, the offset from which on all records are needed, however old.
            starts: only these partitions are read, from these offsets on; None: all of them. Both
                count when the topic is first read; later calls read on.
        """
        places = self.places_of(topic, use)
        if starts is not None:
            places = [place for place in places if place in starts]
        if not places:
            return
        try:
            follower = self._follower_by_topic.get(topic)
            if follower is None:
                follower = self._open_follower(places, use, needed_from or {}, starts or {})
                self._follower_by_topic[topic] = follower
            else:
                self._note_deleted(follower, use)
                self._follow_new(follower, places)
            yield from self._records_within_limits(follower)
            if follower.is_whole:
                self._topics_read_whole.add(topic)
            self._note_unread(follower, use)
        except WindhoverError as error:
            self.note_error(Hole(use.tables, str(error), topic), error)

    def note_error(self, hole: Hole, error: WindhoverError) -> None:
        """Record what cannot be read, as a hole and as the error of a command that needs it.

        Raises `error`: the caller of this reading needs all of it.
        """
        self._holes.note(hole)
        self.errors.append(error)
        if self._raises_errors:
            raise error

    @property
    def patience_ms(self) -> int:
        """How long a topic may send nothing before it is given up."""
        return self._limits.patience_ms

    def _open_follower(
        self,
        places: Sequence[TopicPartition],
        use: TopicUse,
        needed_from: Mapping[TopicPartition, int],
        named_starts: Mapping[TopicPartition, int],
    ) -> Follower:
        """Open what reads partitions from their starts on, or from later offsets.

        Args:
            needed_from: as in `records`.
            named_starts: offsets before which nothing is read.
        """
        starts = self._log.bounds(Bound.START, places).offsets
        self._log_start_by_place |= starts
        first_of_time = starts
        if self._limits.since_ms is not None and not use.reads_all:
            first_of_time = self._log.bounds(self._limits.since_ms, places).offsets
        first_offsets: dict[TopicPartition, int] = {}
        for place in starts.keys() & first_of_time.keys():
            # what is needed is read although it is older than the time that is wanted
            offset = min(first_of_time[place], needed_from.get(place, OFFSET_MAX))
            first_offsets[place] = max(starts[place], offset, named_starts.get(place, 0))
        self._read_from_by_place |= first_offsets
        return Follower(
            self._log,
            places,
            read_max=PIECE_RECORDS,
            first_offsets=first_offsets,
            patience_ms=self._limits.patience_ms,
            on_damage=pass_damage,
        )

    def _note_deleted(self, follower: Follower, use: TopicUse) -> None:
        """Record in `unknown` what was deleted before a reading got to it, since the last one."""
        read_to = follower.positions()
        starts = self._log.bounds(Bound.START, read_to).offsets
        for place, start in starts.items():
            if start > read_to[place] and not use.may_begin_late:
                self._holes.note_deleted(use.tables, place, read_to[place], start)
        self._log_start_by_place |= starts

    def _follow_new(self, follower: Follower, places: Sequence[TopicPartition]) -> None:
        """Read partitions, too, that the topic has got since."""
        new_places = [place for place in places if place not in self._read_from_by_place]
        if new_places:
            starts = self._log.bounds(Bound.START, new_places).offsets
            self._log_start_by_place |= starts
            self._read_from_by_place |= starts
            follower.follow(new_places)

    def _records_within_limits(self, follower: Follower) -> Iterator[Record]:
        """Yield the records of a follower, in pieces, until all are read or a limit is reached."""
        record_count = 0
        while record_count < self._limits.records_max and not self.why_it_ends():
            count_before = record_count
            for record in follower.read():
                record_count += 1
                yield record
            # a piece without a record: nothing more comes
            if follower.is_whole or record_count == count_before:
                return

    def _note_unread(self, follower: Follower, use: TopicUse) -> None:
        """Record in `unknown` what the picture lacks of a topic.

        These are records that its log has no more, and those that this reading did not come to.
        """
        read_to = follower.positions()
        for place, start in self._starts_of(read_to).items():
            # one that is read from a later time on lacks nothing that was wanted
            is_read_from_start = start == self._read_from_by_place.get(place)
            if start > 0 and is_read_from_start and not use.may_begin_late:
                why = f"its log begins at offset {start:,}: earlier records were deleted"
                self._holes.note(Hole(use.tables, why, *place, 0, start))
        limit = self._limit_reached(follower)  # empty: no limit was reached
        why_unread = f"these records are not read: {limit or 'nothing more of them came'}"
        # without an answer for the end of any partition the whole topic is a hole
        if not follower.is_whole and not follower.answers.offsets and read_to:
            topic = next(iter(read_to)).topic
            self._note_left(Hole(use.tables, why_unread, topic), limit)
        for place, why in follower.answers.troubles.items():
            error = Unreachable(f"{place.topic}/{place.partition} {why}")
            self.note_error(Hole(use.tables, f"the partition {why}", *place), error)
        for place, end in follower.answers.offsets.items():
            # each partition of which records are left up to its end
            if read_to.get(place, end) < end:
                self._note_left(Hole(use.tables, why_unread, *place, read_to[place], end), limit)

    def _note_left(self, hole: Hole, limit: str) -> None:
        """Record what was not read, because of a limit; if `limit` is empty, because of Kafka."""
        if limit:
            self.note_cut(hole)
        else:
            self.note_error(hole, Unreachable(_place_and_why(hole)))

    def note_cut(self, hole: Hole) -> None:
        """Record what is left unread because of a limit, as a hole and as a note of a command."""
        self._holes.note(hole)
        self.left_unread.append(_place_and_why(hole))

    def _limit_reached(self, follower: Follower) -> str:
        """Return which limit kept this reading from records; empty: none did."""
        limit = self.why_it_ends()
        if limit or follower.is_whole or follower.why_not_whole():
            return limit
        return "the limit of one reading is reached"

    def why_it_ends(self) -> str:
        """Return why no topic is read any further; empty: it is."""
        if self._clock_ms() >= self._deadline_ms:
            return "the time of one reading is over"
        if self._picture.size_bytes >= self._limits.picture_bytes_max:
            return "the picture has as much as it may have; read less, by --since or --input"
        return ""

    def _starts_of(self, places: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where the logs of some partitions began when they were opened."""
        places_with_start = places.keys() & self._log_start_by_place.keys()
        return {place: self._log_start_by_place[place] for place in places_with_start}

    def note_passed_over(self) -> None:
        """Record what no reader could read of the topics so far."""
        for run in self._log.passed_over():
            use = self._use_by_topic.get(run.topic)
            if use is not None:
                self._holes.note_passed_over(use.tables, run)

    def marks(self) -> dict[TopicPartition, ReadMark]:
        """Return how far each partition was read that was asked for in any reading."""
        marks: dict[TopicPartition, ReadMark] = {}
        for follower in self._follower_by_topic.values():
            for place, position in follower.positions().items():
                end = follower.answers.offsets.get(place)
                start = self._log_start_by_place.get(place)
                marks[place] = ReadMark(start, end, self._read_from_by_place.get(place), position)
        return marks

    def use_of(self, topic: str) -> TopicUse:
        """Return what a topic is read for."""
        return self._use_by_topic[topic]

    def close(self) -> None:
        for follower in self._follower_by_topic.values():
            follower.close()


def _place_and_why(hole: Hole) -> str:
    """Return where a hole in a topic is, and why, as a text."""
    where = hole.topic
    if hole.partition is not None:
        where = f"{hole.topic}/{hole.partition}@{hole.offset}"
    return f"{where}: {hole.why}"
