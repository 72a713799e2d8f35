"""The tables of a picture: their columns, and what each of them means; pure.

docs/reference/picture.md is made of these texts, and the database of these names. The rules are:

- A position is `topic, partition, offset`. A row about neighbouring positions has `end_offset`,
  too: the offset behind the last of them.
- A time is UTC, and ends with `_at`. A duration ends with `_ms`, a size with `_bytes`.
- NULL is not known, or there is none, as the column says. What nobody could read is a row of
  `unknown`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

VERSION: Final = 1
"""Of the tables. A column that is gone, or means something else, needs a higher one."""

APPLICATION_ID: Final = 0x57484F56
"""What marks a database as a picture, in the header of the file; in ASCII it is ``WHOV``."""

KEPT_APPLICATION_ID: Final = 0x57484F4C
"""What marks the file in which a page keeps tables, and which is no picture; in ASCII ``WHOL``."""

VALUE_BYTES_MAX: Final = 3 << 20
"""The longest text of a column: a megabyte of a record, each byte of it as an escape. A longer one is
left out, since a query could not read it; four of them are in a row of `letters`."""


class ColumnKind(StrEnum):
    """What a column holds; the value is what the reference page calls it."""

    TEXT = "text"
    NUMBER = "number"
    FLAG = "0 or 1"
    TIME = "time"
    JSON = "JSON"


class Holds(StrEnum):
    """Whose words a column holds, so that it is known what a file for others must leave out."""

    FACT = "fact"
    """What Windhover knows of a record: its place, its times, what became of it."""
    MESSAGE = "message"
    """What a program or a person wrote about it: secrets are cut out of it."""
    PAYLOAD = "payload"
    """What the record itself holds: it is left out unless somebody asks for it."""


class TableColumn(NamedTuple):
    """A column: its name, what it holds, and its meaning for people."""

    name: str
    kind: ColumnKind
    meaning: str
    holds: Holds = Holds.FACT


class Table(NamedTuple):
    """A table: its name, what one row is, and its columns."""

    name: str
    row: str
    columns: tuple[TableColumn, ...]


def _text(name: str, meaning: str, holds: Holds = Holds.FACT) -> TableColumn:
    return TableColumn(name, ColumnKind.TEXT, meaning, holds)


def _json(name: str, meaning: str, holds: Holds) -> TableColumn:
    return TableColumn(name, ColumnKind.JSON, meaning, holds)


def _number(name: str, meaning: str) -> TableColumn:
    return TableColumn(name, ColumnKind.NUMBER, meaning)


def _flag(name: str, meaning: str) -> TableColumn:
    return TableColumn(name, ColumnKind.FLAG, meaning)


def _time(name: str, meaning: str) -> TableColumn:
    return TableColumn(name, ColumnKind.TIME, meaning)


_INPUT: Final = _text("input", "the input's name; NULL: topics.yaml has no input of that id")

_PLACE: Final = (
    _text("topic", "the topic: of the input, or its replay topic for a copy"),
    _number("partition", "the partition of that topic"),
    _number("offset", "the offset of the record there"),
)

_RUN: Final = (
    *_PLACE[:2],
    _number("offset", "the first offset of the run"),
    _number("end_offset", "the offset behind the last one of the run"),
    _number("generation", "0, and one more with each rewind of the group"),
)

_ORIGIN: Final = (
    _text("origin_topic", "where the record was emitted first; NULL: it is not known"),
    _number("origin_partition", "the partition of that topic"),
    _number("origin_offset", "the offset of the record there"),
)

_LETTER: Final = (
    _text("topic", "the dead-letter topic"),
    _number("partition", "the partition of that topic"),
    _number("offset", "the offset of the letter there"),
)

_SESSION: Final = (
    _text("consumer_group", "the group that reads the input"),
    _number("epoch", "of the session: of two sessions the higher one owns the group"),
    _text("session", "the id of the session"),
)

_CAUSE: Final = (
    _text("operator", "the bolt that failed it; empty: nobody did"),
    _text("error", "the class of the exception, or a cause of Windhover's own, such as `HELD`"),
    _text("message", "the message of the exception, with file and line", Holds.MESSAGE),
)

PICTURE: Final = Table(
    "picture",
    "the picture itself; it has one row",
    (
        _number("version", "of these tables"),
        _text("windhover", "the version of Windhover that made it"),
        _time("read_at", "when the topics were read last"),
        _time("since_at", "records before this time were left out; NULL: none was"),
        _text("cluster", "Kafka's id of the cluster; NULL: it is not known"),
        _flag("has_payloads", "whether payloads and headers are in it"),
    ),
)

INPUTS: Final = Table(
    "inputs",
    "an input of topics.yaml",
    (
        _text("input", "its name"),
        _number("id", "its number in the records of the ack topics"),
        _text("consumer_group", "the group that reads it"),
        _text("topic", "the topic that it reads"),
        _text("replay_topic", "the topic of its copies"),
        _text("dead_letter_topic", "the topic of its dead letters"),
        _text("ordering", "`none`, `key` or `partition`"),
        _number("timeout_ms", "how long a root may be open; 0: for ever"),
        _number("attempts_max", "how often a record is emitted at most"),
        _flag("is_tracked", "0: nothing of it is tracked or replayed"),
        _text("stopped", "why it is stopped on purpose; empty: it is not"),
        _time("paused_at", "since when its replays are paused; NULL: they are not"),
        _text("pause_why", "why they are paused", Holds.MESSAGE),
    ),
)

SESSIONS: Final = Table(
    "sessions",
    "a session of a group, as long as its signs of life are in the log",
    (
        *_SESSION,
        _flag("is_owner", "whether it owns the group; NULL: no acker partition has said that yet"),
        _time("began_at", "its first sign that is still in the log"),
        _time("seen_at", "its last sign"),
        _time("left_at", "when it ended in order; NULL: it did not, or not yet"),
        _text("application", "what its program calls itself"),
        _text("host", "the machine on which it runs, or ran"),
        _number("process", "the number of its process there"),
    ),
)

EMISSIONS: Final = Table(
    "emissions",
    "neighbouring roots that were emitted together, and are all in one state. All that are open are"
    " here, others for a minute or two",
    (
        _INPUT,
        *_RUN,
        _text(
            "state",
            "`open`: without a verdict; `settled`: with one; `announced`: no acker has read it yet",
        ),
        *_SESSION,
        _time("emitted_at", "when they were emitted"),
        _time("times_out_at", "when the first of them times out; NULL: never"),
        _flag("is_held", "whether Spark's state holds them, so that they time out later"),
        _number("acker", "their acker partition"),
    ),
)

VERDICTS: Final = Table(
    "verdicts",
    "neighbouring roots that got the same verdict together",
    (
        _INPUT,
        *_RUN,
        _text("verdict", "`ACKED`, `ABSENT`, `FAILED`, `TIMED_OUT` or `ABANDONED`"),
        _time("decided_at", "when the acker wrote it"),
        _number("acker", "their acker partition"),
    ),
)

FAILURES: Final = Table(
    "failures",
    "neighbouring roots that were lost together by one cause; `verdicts` has them, too",
    (
        _INPUT,
        *_RUN,
        _text("verdict", "`FAILED`, `TIMED_OUT` or `ABANDONED`"),
        *_CAUSE,
        _flag("is_blocked", "1: no bolt failed them, they wait behind an earlier record"),
        _time("emitted_at", "when they were emitted"),
        _time("decided_at", "when the acker wrote the verdict"),
        _number("age_ms", "from the emission to the verdict, by the session's clock"),
        _number("acker", "their acker partition"),
    ),
)

WAITING: Final = Table(
    "waiting",
    "a lost root that waits for its replay, or to become a dead letter",
    (
        _INPUT,
        *_PLACE,
        _number("generation", "0, and one more with each rewind of the group"),
        *_ORIGIN,
        _number("attempt", "which emission of the record was lost, from 1"),
        _time("due_at", "when it is replayed, or dies; NULL: no replay worker has accepted it yet"),
        _text("dead", "why it becomes a dead letter; empty: it is replayed"),
        _flag("is_blocked", "1: it waits behind an earlier record of its key or partition"),
        _flag("is_aside", "1: it waits for somebody: its input cannot go on, or a topic refuses"),
        _text("verdict", "how the emission was lost"),
        *_CAUSE,
        _time("lost_at", "when the emission was lost; NULL: it is not known"),
        _time("first_emitted_at", "when the record was emitted first"),
        _number("acker", "its partition of `_ack_due`"),
        _text("entry", "its key there, in hexadecimal digits; NULL: it has no entry yet"),
    ),
)

LETTERS: Final = Table(
    "letters",
    "a dead letter, or the note that a rule dropped a record",
    (
        _INPUT,
        *_LETTER,
        *_ORIGIN,
        _text("key", "the key of the record, as all commands show it; NULL: it has none"),
        _time("died_at", "when it was given up"),
        _text("dead", "why it was given up, such as `ATTEMPTS`"),
        _text("verdict", "how its last emission was lost"),
        *_CAUSE,
        _number("attempts", "how often it was emitted"),
        _flag("is_note", "1: a rule dropped the record, so there is nothing to handle"),
        _text("missing", "why there is no payload; empty: there is one", Holds.MESSAGE),
        _text("consumer_group", "the group that gave it up"),
        _text("cause", "why its last emission was lost, in one text", Holds.MESSAGE),
        _number("abandoned", "how many of its emissions were abandoned"),
        _number("timed_out", "how many of its emissions timed out"),
        _time("first_emitted_at", "when the record was emitted first; NULL: it is not known"),
        _time("record_at", "the record's own time; NULL: it is not known"),
        _number("letter_bytes", "what the letter takes in its topic"),
        _number("payload_bytes", "what its payload takes of that; NULL: there is none"),
        _text("handled", "`REPLAYED` or `DROPPED`; NULL: nobody has handled it"),
        _time("handled_at", "when it was handled"),
        _text("handled_by", "who did it", Holds.MESSAGE),
        _text("handled_why", "the reason that they gave", Holds.MESSAGE),
        _text("redrive", "the redrive that handled it"),
        _json(
            "history",
            "a list of its losses, the oldest first: `attempt`, `reason`, `operator`, `error`,"
            " `message`, `emitted_ms`, `age_ms`, `root`",
            Holds.MESSAGE,
        ),
        _text("stack", "where the exception was raised that failed it last", Holds.MESSAGE),
        _json("headers", "a list of the record's own headers: `name`, `value`", Holds.PAYLOAD),
        _text("payload", "the payload, as all commands show it", Holds.PAYLOAD),
        _json("payload_json", "the payload itself, if it is JSON; else NULL", Holds.PAYLOAD),
    ),
)

REDRIVES: Final = Table(
    "redrives",
    "an order to replay or drop dead letters of one input",
    (
        _INPUT,
        _text("redrive", "its id"),
        _text("action", "`REPLAYED` or `DROPPED`"),
        _text("state", "how it ended: `DONE`, `CANCELLED` and so on; or `NOT ENDED`"),
        _time("begun_at", "when it began"),
        _text("begun_by", "who gave the order", Holds.MESSAGE),
        _text("why", "the reason that they gave", Holds.MESSAGE),
        _text("which", "the letters that were meant", Holds.MESSAGE),
        _number("letters", "how many letters were meant"),
        _number("handled", "how many it has handled"),
        _time("ended_at", "when it ended; NULL: it has not said so"),
        _text("ended_by", "who ended it", Holds.MESSAGE),
        _number("acked", "how many of its copies were acked when it ended"),
        _number("died", "how many had died again by then"),
    ),
)

OUTCOMES: Final = Table(
    "outcomes",
    "a letter that a redrive handled, and what became of it",
    (
        _INPUT,
        _text("redrive", "the id of the redrive"),
        *_LETTER,
        _text(
            "outcome",
            "`OPEN`: its copy is not settled; `ACKED`; `DIED`: it is a dead letter again;"
            " `GONE`: its copy left the replay topic unread; `UNKNOWN`: its copy or its verdict is"
            " no longer in the log; NULL: it was dropped, or not all copies were read",
        ),
    ),
)

ACKERS: Final = Table(
    "ackers",
    "an acker partition",
    (
        _number("acker", "its number"),
        _text("process", "the acker that has it; NULL: none has, or it is not known"),
        _time("state_at", "when its *State*, which a restart needs, was written; NULL: never"),
        _flag("is_behind", "1: there are records that its State does not know yet"),
        _number("open_roots", "how many roots are open in it"),
        _number("state_bytes", "what its State takes"),
        _time("restored_at", "when an acker restored it last; NULL: its State does not say so"),
        _number("restored_ms", "how long that took"),
    ),
)

WORKERS: Final = Table(
    "workers",
    "the work of one replay worker: a partition of `_ack_verdict`",
    (
        _number("partition", "its number"),
        _text("process", "the replay worker that has it; NULL: none has, or it is not known"),
        _number("next_offset", "the verdicts below it are accepted"),
        _number("lag", "how many offsets are behind that; NULL: it is not known"),
        _number("due_roots", "roots that were accepted, and wait"),
        _number("new_roots", "lost roots that were not accepted yet"),
    ),
)

PARTITIONS: Final = Table(
    "partitions",
    "a partition of a topic, and up to where it was read",
    (
        _text("topic", "the topic"),
        _number("partition", "its number"),
        _INPUT,
        _text("holds", "`records`, `copies`, `dead letters`, `verdicts` and so on"),
        _number("start_offset", "where its log begins"),
        _number("end_offset", "where its log ends"),
        _number("committed_offset", "what the group has committed; NULL: nothing is known"),
        _number("read_from", "the offset from which on it was read; NULL: it was not read"),
        _number("read_to", "the offset up to which it was read"),
    ),
)

UNKNOWN: Final = Table(
    "unknown",
    "a hole in what is known: it is a row here, and never a 0 elsewhere",
    (
        _text("what", "the table, or the column, of which something is not known"),
        _text("topic", "where the hole is; NULL: everywhere"),
        _number("partition", "the partition of that topic; NULL: all of them"),
        _number("offset", "the first offset that is not known; NULL: all of them"),
        _number("end_offset", "the offset behind the last one; NULL: all of them"),
        _text("why", "why it is not known, and what to do", Holds.MESSAGE),
    ),
)

TABLES: Final[Mapping[str, Table]] = {
    table.name: table
    for table in (
        INPUTS, SESSIONS, EMISSIONS, VERDICTS, FAILURES, WAITING, LETTERS, REDRIVES, OUTCOMES,
        ACKERS, WORKERS, PARTITIONS, UNKNOWN, PICTURE,
    )
}  # fmt: skip
"""By name, in the order of the reference page."""

INDEXES: Final = (
    "CREATE INDEX letters_by_place ON letters (topic, partition, offset)",
    "CREATE INDEX letters_by_redrive ON letters (redrive)",
    "CREATE INDEX waiting_by_entry ON waiting (acker, entry)",
)
"""For the loader: a mark, or a tombstone, comes with the place or the key of what it changes."""

_SQL_TYPES: Final[Mapping[ColumnKind, str]] = {
    ColumnKind.TEXT: "TEXT",
    ColumnKind.NUMBER: "INTEGER",
    ColumnKind.FLAG: "INTEGER",
    ColumnKind.TIME: "TEXT",
    ColumnKind.JSON: "TEXT",
}


def statements() -> list[str]:
    """Return the statements of SQL that make an empty picture."""
    lines: list[str] = []
    for table in TABLES.values():
        # quoted, since `partition` and others are words of SQL, too
        columns = [f'"{column.name}" {_SQL_TYPES[column.kind]}' for column in table.columns]
        lines.append(f"CREATE TABLE {table.name} ({', '.join(columns)})")
    return [*lines, *INDEXES]


def reference_lines() -> list[str]:
    """Return the lines of docs/reference/picture.md that describe the tables, in Markdown."""
    lines: list[str] = []
    for table in TABLES.values():
        lines += [f"## {table.name}", "", f"One row is {table.row}.", ""]
        lines += ["| column | holds | meaning |", "|---|---|---|"]
        for column in table.columns:
            left_out = " *(left out of a file)*" if column.holds is Holds.PAYLOAD else ""
            lines.append(f"| `{column.name}` | {column.kind} | {column.meaning}{left_out} |")
        lines.append("")
    return lines
