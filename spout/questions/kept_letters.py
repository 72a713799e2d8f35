"""Keeps the dead letters of a page in a file, so that its next start reads only what is new.

The file has the table `letters`, and up to where each partition was read: the *mark*. A question
first forgets the topics that no input has now, or another input than then. Then it goes through
these steps for each input that it is about:

1. Where each partition begins and ends in the log.
2. Whether reading can go on from the marks. If the topic was created again, or a log ends before
   its mark, all letters of the topic are forgotten.
3. Letters that retention has taken are forgotten, and those behind the mark: who was killed between
   4 and 5 had read them, and reads them again.
4. What is behind the mark is read.
5. The new marks are written.

So a letter is in the file once, whenever the process is killed.

Source: docs/design/picture.md.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Lock
from typing import Final

from acker.config.settings import Input
from acker.config.topics import Topics
from acker.errors import NoPicture, NoRoom
from acker.hot_paths import uncollected
from acker.kafka.port import Log, TopicPartition
from acker.untrusted import Untrusted
from replay.handling.letter_box import letter_starts
from replay.records.letters import Filter
from spout.picture.database import Picture, refuse_other_than_file
from spout.picture.loader import PictureLoader, PicturePart
from spout.picture.schema import KEPT_APPLICATION_ID
from spout.questions.asking import limits_of_question
from spout.questions.letters import InputFilters, LetterPicture, choose_letters

KEPT_BYTES_MAX: Final = 1 << 30
"""What the file takes at most; letters beyond that are not read, and a note says so."""

_SQLITE: Final = b"SQLite format 3\0"
_HEADER_BYTES: Final = 100
_APPLICATION_ID_AT: Final = 68
"""How the file of a database begins, and where its application id is.

Source: SQLite's "Database File Format", section 1.3."""

_MARKS: Final = """
CREATE TABLE IF NOT EXISTS marks (
    topic TEXT, partition INTEGER, topic_id TEXT, input TEXT, next_offset INTEGER,
    other_records INTEGER,
    PRIMARY KEY (topic, partition)
)
"""


class KeptLetters:
    """The dead letters of a page, in a file that no other process uses meanwhile."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it; one that another version of Windhover made is made anew.

        Raises:
            NoPicture: the name is that of something else.
            NoRoom: the file cannot be used: it is damaged, or another process has it.
        """
        self._path = path
        # the pages of a newer topics.yaml begin before those of the former one end
        self._lock = Lock()
        with self._errors_named():
            self._picture = _opened(path)
            self._picture.connection.execute(_MARKS)

    @contextmanager
    def letters_read(
        self,
        log: Log,
        topics: Topics,
        filters: InputFilters,
    ) -> Iterator[LetterPicture]:
        """Read what is new of the inputs' letters; else as `spout.questions.letters.letters_read`.

        Letters that are none of Windhover's are counted even if retention has taken them since.
        """
        with self._lock, self._errors_named():
            self._forget_former_topics(topics)
            left_unread: list[str] = []
            other_records = 0
            for input, _meant in filters:
                left_unread += self._read_new(log, topics, input)
                other_records += self._other_records(input)
            total = choose_letters(self._picture, filters)
            yield LetterPicture(self._picture, total, other_records, left_unread)

    def close(self) -> None:
        """Close the file, which stays."""
        with self._lock:
            self._picture.close()

    def _forget_former_topics(self, topics: Topics) -> None:
        """Delete what is kept of topics that no input has now, or another input than then.

        No letter is in the file without a mark of its topic, so the marks name all topics.
        """
        present_names = {(input.dead_letter.topic, input.name) for input in topics.inputs.values()}
        execute = self._picture.connection.execute
        kept_names = set(execute("SELECT DISTINCT topic, input FROM marks"))
        with self._picture.transaction():
            for topic, _name in kept_names - present_names:
                execute("DELETE FROM letters WHERE topic = ?", [topic])
                execute("DELETE FROM marks WHERE topic = ?", [topic])

    def _read_new(self, log: Log, topics: Topics, input: Input) -> Sequence[str]:
        """Read an input's new letters into the file, in the steps of the module.

        Return a text for each partition that was left unread because of a limit.
        """
        topic = input.dead_letter.topic
        # 1. where each partition begins and ends; the id comes first: if the topic is created again
        # meanwhile, its letters are kept under the former id, and the next request forgets them
        info = log.topics([topic]).get(topic)
        topic_id = "" if info is None else info.id
        starts = letter_starts(log, input, Filter())
        ends = log.stable_ends(starts)
        # 2. and 3. what the log has no more, and what lies behind the marks
        marks = self._marks_of(input, topic_id, ends)
        first_offsets: dict[TopicPartition, int] = {}
        for place, start in starts.items():
            first_offsets[place] = max(start, marks.get(place, start))
        other_records = self._other_records(input) if marks else 0
        with self._picture.transaction():
            self._forget(topic, starts, first_offsets)
            self._write_marks(input, topic_id, first_offsets, other_records)
        # 4. what is new
        loader = PictureLoader(
            log,
            topics,
            self._picture,
            limits=limits_of_question(topics, KEPT_BYTES_MAX),
            input_names=[input.name],
            parts={PicturePart.LETTERS},
            letter_starts=first_offsets,
        )
        with closing(loader), uncollected():
            loader.read_or_raise(now_ms=0)  # nothing that is read here depends on it
            read_to = loader.read_to()
        # 5. the new marks
        other_records += loader.other_letter_records
        with self._picture.transaction():
            self._write_marks(input, topic_id, {**first_offsets, **read_to}, other_records)
        return loader.left_unread

    def _marks_of(
        self, input: Input, topic_id: str, ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return up to where each partition of an input's topic was read.

        Empty: none was, or all are to be read anew, since the topic was created again or a log ends
        before its mark. With 5 records read of a log that ends at 3, somebody has cut it, and what
        has come since may stand where other letters stood.

        Args:
            topic_id: Kafka's id of the topic now; empty: it is missing.
            ends: where the logs of its partitions end now.
        """
        topic = input.dead_letter.topic
        marks: dict[TopicPartition, int] = {}
        query = "SELECT partition, topic_id, next_offset FROM marks WHERE topic = ?"
        mark_rows = self._picture.connection.execute(query, [topic])
        for partition, id_then, next_offset in mark_rows:
            place = TopicPartition(topic, partition)
            if id_then != topic_id or next_offset > ends.get(place, -1):
                return {}
            marks[place] = next_offset
        return marks

    def _write_marks(
        self,
        input: Input,
        topic_id: str,
        next_offsets: Mapping[TopicPartition, int],
        other_records: int,
    ) -> None:
        """Write up to where each partition of an input's topic was read, in place of its marks."""
        topic = input.dead_letter.topic
        mark_rows = [
            (topic, place.partition, topic_id, input.name, next_offset, other_records)
            for place, next_offset in next_offsets.items()
        ]
        connection = self._picture.connection
        connection.execute("DELETE FROM marks WHERE topic = ?", [topic])
        connection.executemany("INSERT INTO marks VALUES (?, ?, ?, ?, ?, ?)", mark_rows)

    def _forget(
        self,
        topic: str,
        starts: Mapping[TopicPartition, int],
        first_offsets: Mapping[TopicPartition, int],
    ) -> None:
        """Delete the letters of a topic that its logs lack now, and those that are read anew.

        `starts` are the first offsets of its logs, `first_offsets` those that are read next.
        """
        execute = self._picture.connection.execute
        execute("DELETE FROM letters WHERE topic = ? AND partition >= ?", [topic, len(starts)])
        for place, start in starts.items():
            of_partition = "DELETE FROM letters WHERE topic = ? AND partition = ?"
            execute(f"{of_partition} AND offset < ?", [*place, start])
            execute(f"{of_partition} AND offset >= ?", [*place, first_offsets[place]])

    def _other_records(self, input: Input) -> int:
        """Return how many records of an input's topic are no letters; each of its marks says it."""
        query = "SELECT max(other_records) FROM marks WHERE topic = ?"
        topic = input.dead_letter.topic
        (other_records,) = self._picture.connection.execute(query, [topic]).fetchone()
        return other_records or 0

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        """Raise `NoRoom` in place of an error of the database."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise NoRoom(
                f"{self._path}: cannot be used ({Untrusted(str(error))}): make room, end the other"
                " page that keeps letters there, or delete the file; it is made anew"
            ) from error


def _opened(path: Path) -> Picture:
    """Open the file of a picture for this process alone, or make it."""
    refuse_other_than_file(path)
    if _is_begun(path):
        picture = _picture_of(path)
        if picture.has_its_tables():
            return picture
        picture.close()
        path.unlink()  # another version made it
    path.touch(mode=0o600)
    return _picture_of(path)


def _is_begun(path: Path) -> bool:
    """Return whether letters are kept in a file; `NoPicture`: something else is."""
    if not path.exists() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    application_id = int.from_bytes(header[_APPLICATION_ID_AT : _APPLICATION_ID_AT + 4], "big")
    if not header.startswith(_SQLITE) or application_id != KEPT_APPLICATION_ID:
        raise NoPicture(f"{path}: is no file in which a page keeps letters; give --keep another")
    return True


def _picture_of(path: Path) -> Picture:
    """Open the database of a file, which has it or is empty, and let only its owner read it."""
    path.chmod(0o600)  # it has keys, and messages of errors
    return Picture(has_payloads=False, file=path)
