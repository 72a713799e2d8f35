"""Makes a picture of an installation's topics, and follows them.

A reading goes through the topics in this order:

1. `_ack_due`: what waits, and up to where replay workers have accepted verdicts.
2. `_ack_verdict`: what became of roots; those behind that point wait, too.
3. The dead-letter topics; and what became of the letters that redrives handled.
4. `_ack_init`, and the ackers' State: what was emitted, what is open, and who owns the groups.
5. `_ack_quarantine`: what ackers could not apply.
6. Where the inputs' own topics begin and end, and what their groups have committed.

1 comes before 2, so that no root that a worker accepts meanwhile is missing in both.

What is not read: `_ack_ack` and `_ack_fail`, since `_ack_verdict` says what became of them; and the
records of the inputs' topics and replay topics, since a picture is about those that died. Of a
replay topic the copies are read that were written since the first redrive began.

A reading changes the database as a whole or not at all. It raises no error of Kafka's: what it
could not read is a row of `unknown`.

Source: docs/design/picture.md; docs/design/protocol.md, section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.errors import Unreachable, WindhoverError
from acker.kafka.port import Bound, Log, Record, TopicPartition
from acker.service.passed_over import WHY_HEADER
from acker.untrusted import Untrusted
from replay.records.due import Progress
from replay.records.headers import header_text
from spout.picture.database import Picture, Row
from spout.picture.holes import Hole, Holes
from spout.picture.letter_tables import LetterTables
from spout.picture.outcome_table import OutcomeTable
from spout.picture.places import SourceNames
from spout.picture.reading import DEFAULT_LIMITS, Limits, LogReading, ReadMark, TopicUse
from spout.picture.verdict_tables import TABLES_OF_VERDICTS, VerdictTables
from spout.picture.waiting_table import WaitingTable

if TYPE_CHECKING:
    from spout.picture.emission_tables import EmissionTables

# compacted: newer records say what those said that are gone
DUE: Final = TopicUse("waiting roots", "waiting, workers", may_begin_late=True, reads_all=True)
VERDICTS: Final = TopicUse("verdicts", TABLES_OF_VERDICTS)
QUARANTINE: Final = TopicUse("quarantined records", "unknown")


class PicturePart(Enum):
    """What a command may read of a picture by itself; the numbers are of the steps above.

    The tables of a part that is not read are empty, and no row of `unknown` says so.
    """

    ROOTS = auto()
    """1. and 2.: `verdicts`, `failures`, `waiting`."""
    LETTERS = auto()
    """3.: `letters` and `redrives`."""
    OUTCOMES = auto()
    """3.: `outcomes` and `redrives`, but how many letters a redrive has handled by its marks."""
    LETTER_DETAILS = auto()
    """3.: `cause`, `history` and other columns of `letters` that a list of them does not show."""
    OPEN_ROOTS = auto()
    """4.: the open roots among `emissions`, and `ackers` without their processes."""
    EMISSIONS = auto()
    """4.: `emissions`, `sessions`, `ackers`."""
    PLACES = auto()
    """5. and 6.: `inputs`, `partitions`, `workers`, `picture`, and what ackers could not apply."""


ALL_PARTS: Final = frozenset(PicturePart)


class PictureLoader:
    """Fills a picture; each call of `read` adds what is new in the topics."""

    def __init__(
        self,
        log: Log,
        topics: Topics,
        picture: Picture,
        clock_ms: Callable[[], int] = lambda: 0,
        *,
        limits: Limits = DEFAULT_LIMITS,
        input_names: Iterable[str] | None = None,
        parts: Collection[PicturePart] = ALL_PARTS,
        letter_starts: Mapping[TopicPartition, int] | None = None,
        followed_redrive: str | None = None,
        letter_places: Mapping[str, Set[str]] | None = None,
    ) -> None:
        """Begin with nothing read.

        Args:
            clock_ms: returns the time that passes, in ms; by default none does, so that no time
                ends a reading: a command is ended by whoever runs it.
            input_names: the names of the inputs that the picture is about; None: all.
            parts: what is read of it.
            letter_starts: the partitions of dead-letter topics that are read, and from which offset
                on; None: all of them, from their starts or the time that is wanted.
            letter_places: by the name of an input the letters that are kept, by their own places or
                those of their records; None: all.
            followed_redrive: the id of the redrive whose letters `outcomes` is about; None: all.
        """
        self._log = log
        self._topics = topics
        self._picture = picture
        self._limits = limits
        self._parts = parts
        self._letter_starts = letter_starts
        self._followed_redrive = followed_redrive
        self._names = SourceNames(topics.inputs.values(), input_names)
        self._holes = Holes()
        self._topic_reader = LogReading(log, limits, clock_ms, self._holes, picture)
        self._waiting = WaitingTable(picture, self._names, self._holes)
        self._verdicts = VerdictTables(picture, self._names, self._holes)
        self._letters = LetterTables(
            picture,
            self._holes,
            has_letters=PicturePart.LETTERS in parts,
            has_details=PicturePart.LETTER_DETAILS in parts,
            places_by_input=letter_places,
        )
        self._outcomes = OutcomeTable(log, topics, picture)
        self._emissions: EmissionTables | None = None
        if PicturePart.EMISSIONS in parts or PicturePart.OPEN_ROOTS in parts:
            # what reads States takes a tenth of a second to load: only where it is needed
            from spout.picture.emission_tables import EmissionTables

            self._emissions = EmissionTables(log, topics, picture, self._names, self._holes)
        # by verdict partition, as of this reading: up to where a worker has accepted; and the ends
        self._progress: dict[int, Progress] = {}

    def read(self, now_ms: int) -> None:
        """Read what is new; `now_ms` is wall time."""
        self._read(now_ms, raises_errors=False)

    def _read(self, now_ms: int, *, raises_errors: bool) -> None:
        """Read what is new, in the steps of the module, in one transaction of the database."""
        self._holes.begin_reading()
        self._topic_reader.begin(raises_errors=raises_errors)
        with self._picture.transaction():
            if PicturePart.ROOTS in self._parts:
                # 1. and 2. what waits, and what became of roots
                self._read_due()
                self._read_verdicts()
            # 3. dead letters, and what became of those that redrives handled
            for input in self._names.inputs:
                if input.tracked:
                    self._read_letters(input)
            self._letters.write_redrives()
            if PicturePart.OUTCOMES in self._parts:
                self._outcomes.begin_reading()
                for input in self._names.inputs:
                    redrives = self._letters.redrives_of(input, self._followed_redrive)
                    self._outcomes.read(input, redrives, self._topic_reader)
            if self._emissions is not None:
                # 4. what is emitted, and what is open
                if PicturePart.EMISSIONS in self._parts:
                    self._emissions.read(self._topic_reader)
                else:
                    self._emissions.read_open_roots(self._topic_reader)
            if PicturePart.PLACES in self._parts:
                # 5. what ackers could not apply
                topic = self._topics.ack_topics.quarantine
                for record in self._topic_reader.records(topic, QUARANTINE):
                    self._note_quarantined(record)
                # 6. the partitions, and what is known now
                self._write_partitions()
                self._write_inputs()
                self._picture.describe(now_ms, self._limits.since_ms, self._cluster())
            self._topic_reader.note_passed_over()
            for input_id in sorted(self._names.stranger_ids):
                why = f"roots have the input id {input_id}, and topics.yaml has no such input"
                self._holes.note(Hole("inputs", why))
            for (table, column), count in self._picture.left_out_counts.items():
                why = f"{count:,} texts are left out, since a query could not read them: they are too long"
                self._holes.note(Hole(f"{table}.{column}", why))
            self._picture.replace("unknown", self._holes.rows())

    def read_or_raise(self, now_ms: int) -> None:
        """Read what is new; raise the first error that keeps the reading from any of it, at once.

        For commands whose answer would be wrong about a part of the topics.
        """
        self._read(now_ms, raises_errors=True)

    @property
    def errors(self) -> Sequence[WindhoverError]:
        """What kept the last reading from topics, for a command that needs all that it reads."""
        return self._topic_reader.errors

    @property
    def no_answer(self) -> Unreachable | None:
        """Why the last reading found out nothing; None: the cluster said something of a topic."""
        if self._topic_reader.has_answer:
            return None
        return next((error for error in self.errors if isinstance(error, Unreachable)), None)

    @property
    def left_unread(self) -> Sequence[str]:
        """What the last reading left unread because of a limit."""
        return self._topic_reader.left_unread

    @property
    def other_letter_records(self) -> int:
        """How many records of dead-letter topics are not Windhover's."""
        return self._letters.other_records

    def read_to(self) -> Mapping[TopicPartition, int]:
        """Return up to where each partition was read."""
        marks = self._topic_reader.marks()
        return {place: mark.read_to for place, mark in marks.items() if mark.read_to is not None}

    def close(self) -> None:
        """Close what reads the topics; the picture stays open."""
        self._topic_reader.close()
        self._outcomes.close()

    def _read_due(self) -> None:
        """Read what waits, and find up to where each replay worker has accepted verdicts."""
        for record in self._topic_reader.records(self._topics.ack_topics.due, DUE):
            self._waiting.put_record(record)
        self._waiting.flush()
        self._progress = {}
        if not self._topic_reader.is_whole(self._topics.ack_topics.due):
            return  # up to where workers have accepted is unknown, and `unknown` says why
        self._progress = dict(self._waiting.progress)
        without_progress = [
            TopicPartition(self._topics.ack_topics.verdict, number)
            for number in range(self._topics.acker.partitions)
            if number not in self._progress
        ]
        if not without_progress:
            return
        # a worker that has written no progress begins at its group's commit
        try:
            committed = self._log.committed(self._topics.acker.replay_group, without_progress)
        except WindhoverError as error:
            self._holes.note(Hole("workers.next_offset", str(error)))
            return
        for partition in without_progress:
            self._progress[partition.partition] = Progress(committed.get(partition, 0), 0)

    def _read_verdicts(self) -> None:
        """Read the verdicts within the limits, and all that no replay worker has accepted, however old."""
        topic = self._topics.ack_topics.verdict
        # by partition: records from this offset on are read though they are older than `since_ms`
        needed_from: dict[TopicPartition, int] = {}
        for number, progress in self._progress.items():
            # the first verdict record that is not accepted whole
            needed_from[TopicPartition(topic, number)] = progress.next
        for record in self._topic_reader.records(topic, VERDICTS, needed_from):
            self._verdicts.put(record, self._progress.get(record.partition))
        self._verdicts.flush()
        self._verdicts.write_new_roots(self._progress)

    def _read_letters(self, input: Input) -> None:
        """Read an input's dead-letter topic: its letters and marks, or its audit records alone."""
        tables = "letters, redrives"
        if PicturePart.OUTCOMES in self._parts:
            tables += ", outcomes"  # the marks behind letters say which of them are followed
        use = TopicUse(holds="dead letters", tables=tables, input=input.name)
        topic = input.dead_letter.topic
        starts = None
        if self._letter_starts is not None:
            all_starts = self._letter_starts.items()
            starts = {place: start for place, start in all_starts if place.topic == topic}
        records = self._topic_reader.records(topic, use, starts=starts)
        if PicturePart.LETTERS in self._parts:
            for record in records:
                self._letters.put(input, record)
            self._letters.flush()
        elif PicturePart.OUTCOMES in self._parts:
            for record in records:
                self._letters.put_audit(input, record)

    def _note_quarantined(self, record: Record) -> None:
        """Record in `unknown` that an acker has quarantined a record, which is in no table."""
        why = header_text(dict(record.headers).get(WHY_HEADER))
        self._holes.note_record(
            "a quarantined record", record, f"an acker could not apply it: {Untrusted(why)}"
        )

    def _write_partitions(self) -> None:
        """Write the tables `partitions` and `workers`."""
        marks = self._topic_reader.marks()
        rows: list[Row] = []
        for place, mark in sorted(marks.items()):
            use = self._topic_reader.use_of(place.topic)
            rows.append(_partition_row(place, use, mark, committed_offset=None))
        for input in self._names.inputs:
            use = TopicUse(holds="records", tables="partitions", input=input.name)
            rows += self._partitions_of(input, input.topic, use)
            if input.tracked:
                use = TopicUse(holds="copies", tables="partitions, outcomes", input=input.name)
                rows += self._partitions_of(input, input.replay_topic, use)
        self._picture.replace("partitions", rows)
        self._picture.replace("workers", self._worker_rows(marks))

    def _partitions_of(self, input: Input, topic: str, use: TopicUse) -> list[Row]:
        """Return the rows of `partitions` about a topic that an input's group reads."""
        places = self._topic_reader.places_of(topic, use)
        if not places:
            return []
        try:
            starts = self._log.bounds(Bound.START, places)
            ends = self._log.bounds(Bound.STABLE_END, places)
        except WindhoverError as error:
            self._holes.note(Hole("partitions", str(error), topic))
            return []
        for place, why in {**starts.troubles, **ends.troubles}.items():
            self._holes.note(Hole("partitions", f"the partition {why}", *place))
        committed = self._committed(input.group, places, topic)
        return [
            _partition_row(
                place,
                use,
                ReadMark(starts.offsets.get(place), ends.offsets.get(place), None, None),
                committed.get(place),
            )
            for place in places
        ]

    def _committed(
        self, group: str, places: Iterable[TopicPartition], topic: str
    ) -> Mapping[TopicPartition, int]:
        """Ask for the commits of a group; empty: unknown, and a row of `unknown` says why."""
        try:
            return self._log.committed(group, places)
        except WindhoverError as error:
            self._holes.note(Hole("partitions.committed_offset", str(error), topic))
            return {}

    def _worker_rows(self, marks: Mapping[TopicPartition, ReadMark]) -> list[Row]:
        """Return the rows of `workers`: what each verdict partition still has for its worker."""
        from spout.picture.acker_tables import members_by_partition

        process_by_partition = members_by_partition(
            self._log, self._topics.acker.replay_group, "workers.process", self._holes
        )
        # a root that a worker has accepted has an entry in `_ack_due`, and a new one has none
        query = "SELECT acker, count(entry), count(*) - count(entry) FROM waiting GROUP BY acker"
        counts_by_partition = {
            acker: (due_count, new_count)
            for acker, due_count, new_count in self._picture.connection.execute(query)
        }
        rows: list[Row] = []
        for number in range(self._topics.acker.partitions):
            mark = marks.get(TopicPartition(self._topics.ack_topics.verdict, number))
            progress = self._progress.get(number)
            next_offset = None if progress is None else progress.next
            lag = None
            if next_offset is not None and mark is not None and mark.end is not None:
                lag = max(0, mark.end - next_offset)
            due_count, new_count = None, None  # not known, as the progress is
            if progress is not None:
                due_count, new_count = counts_by_partition.get(number, (0, 0))
            rows.append(
                {
                    "partition": number,
                    "process": process_by_partition.get(number),
                    "next_offset": next_offset,
                    "lag": lag,
                    "due_roots": due_count,
                    "new_roots": new_count,
                }
            )
        return rows

    def _write_inputs(self) -> None:
        """Write the table `inputs`: what topics.yaml says, and which inputs are paused."""
        pauses = self._waiting.pauses()
        rows: list[Row] = []
        for input in self._names.inputs:
            pause = pauses.get(input.id)
            rows.append(
                {
                    "input": input.name,
                    "id": input.id,
                    "consumer_group": input.group,
                    "topic": input.topic,
                    "replay_topic": input.replay_topic,
                    "dead_letter_topic": input.dead_letter.topic,
                    "ordering": input.ordering,
                    "timeout_ms": input.timeout_ms,
                    "attempts_max": input.retry.attempts,
                    "is_tracked": input.tracked,
                    "stopped": input.stopped,
                    "paused_at": None if pause is None else pause.since_ms,
                    "pause_why": None if pause is None else pause.why,
                }
            )
        self._picture.replace("inputs", rows)

    def _cluster(self) -> str | None:
        """Ask for the cluster's id; None: it has none, or `unknown` says why nobody knows it."""
        try:
            return self._log.cluster_id() or None
        except WindhoverError as error:
            self._holes.note(Hole("picture.cluster", str(error)))
            return None


def _partition_row(
    place: TopicPartition,
    use: TopicUse,
    mark: ReadMark,
    committed_offset: int | None,
) -> Row:
    """Return the row of `partitions` of a partition."""
    return {
        "topic": place.topic,
        "partition": place.partition,
        "input": use.input,
        "holds": use.holds,
        "start_offset": mark.start,
        "end_offset": mark.end,
        "committed_offset": committed_offset,
        "read_from": mark.read_from,
        "read_to": mark.read_to,
    }
