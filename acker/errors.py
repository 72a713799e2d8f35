"""Every error that Windhover raises, classed by what the caller must do.

::

    WindhoverError
    ├── UsageError               exit 2: the call itself is wrong; correct it
    │   ├── QueryRefused         a query is wrong, takes too long, or would do more than read
    │   ├── NoPicture            a file is no picture, or cannot be read
    │   └── NewerPicture         a newer Windhover made the picture; ask it with that one
    ├── NoRoom                   exit 1: a file cannot be written; make room, or name another place
    ├── Unreachable              exit 3: Kafka, or a part of Windhover, does not answer; start it, or wait
    │   └── PartitionStands      some partitions do not go on, while Kafka answers for others
    ├── ConfigError              exit 4: topics.yaml, or what the topics are, is wrong; correct it
    │   ├── TopicError           a topic is missing or has settings that lose data
    │   ├── NotAuthenticated     the broker does not accept our credentials, or we not its certificate
    │   ├── NotAuthorized        the broker does not let us do what is needed; grant the right
    │   └── Disagreement         broker, topics.yaml and stored state say different things
    ├── CheckFailed              exit 1: a check that the command makes did not hold
    ├── CodecError               a record of the wire cannot be read; it is quarantined
    │   └── UnknownVersion       a newer Windhover wrote it; run that one
    ├── DataLoss                 a record that is still needed is no longer in the log
    ├── SessionError             two sessions want one group
    │   ├── SessionRefused       a higher session holds the group
    │   └── SessionSuperseded    a higher session took the group while this one ran
    ├── TrackingError            a batch cannot be published; its query must stop
    ├── TupleError               a bolt broke a rule of the collector
    │   └── MessageIdUnknown     a bolt asked what a tuple descends from where nobody knows
    ├── BoltStopped              a bolt raised what it stops on; mend what it needs, start the query again
    ├── ReplaysStand             lost roots of an input wait for somebody; run the command, start again
    ├── WorkerLost               bolts end their process, and no record can be failed for it
    └── LogError                 the log refused an operation
        ├── Fenced               another process owns this transactional id; give the partition up
        ├── Aborted              the transaction was aborted; restore and go on
        │   └── RecordRefused    the settings of a topic refuse a record of it; correct them
        ├── OutOfRange           a position is not in the log
        └── Damaged              offsets of one partition cannot be read; the rest of the log can

A message says what happened, to what, and the next step. Secrets never stand in one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class WindhoverError(Exception):
    """Base of all errors of Windhover. `exit_code` is what a command ends with.

    >>> try:
    ...     spout.load("no-such-file.yaml")
    ... except WindhoverError as error:
    ...     print(type(error).__name__, error.exit_code)
    UsageError 2
    """

    exit_code = 1


class UsageError(WindhoverError):
    """The call itself is wrong: an argument, a file that is not there, a port that is in use."""

    exit_code = 2


class QueryRefused(UsageError):
    """A query on a picture is wrong, takes too long, or would do more than read."""


class NoPicture(UsageError):
    """A file is no picture, or cannot be read."""


class NewerPicture(UsageError):
    """A newer Windhover made a picture, so its tables are others; ask it with that version."""


class NoRoom(WindhoverError):
    """A file cannot be written whole: its disk is full, or refuses it. Nothing of it is left."""


class Unreachable(WindhoverError):
    """Something that must answer does not: the broker, an acker, a Java runtime."""

    exit_code = 3


class PartitionStands(Unreachable):
    """Partitions do not go on while others do: without a leader, or since nothing reaches their reader."""


class ConfigError(WindhoverError):
    """What topics.yaml says is wrong, or cannot be had from this broker."""

    exit_code = 4


class TopicError(ConfigError):
    """A topic is missing, or has settings under which records would be lost."""


class NotAuthenticated(ConfigError):
    """The broker does not accept who we say we are, or its certificate is none that we trust."""


class NotAuthorized(ConfigError):
    """The broker knows us and does not let us do what is needed: a right is missing."""


class Disagreement(ConfigError):
    """Broker, topics.yaml and stored state say different things; going on would mix two worlds."""


class CheckFailed(WindhoverError):
    """A check that a command makes at its end did not hold."""


class CodecError(WindhoverError):
    """A record of the wire cannot be read."""


class UnknownVersion(CodecError):
    """A record of the wire is of a kind or version that this Windhover does not know."""


class DataLoss(WindhoverError):
    """A record that is still needed is no longer in the log."""


class SessionError(WindhoverError):
    """Two sessions want one group."""


class SessionRefused(SessionError):
    """A higher session holds the group; this one may not start."""


class SessionSuperseded(SessionError):
    """A higher session took the group while this one ran; this one must stop."""


class StoreFenced(SessionError):
    """A later start has opened the store, or somebody restored it; this one writes no more, and must stop."""


class TrackingError(WindhoverError):
    """What a micro-batch did cannot be published, so nothing of it may be acked; the query must stop."""


class RowsChanged(TrackingError):
    """The rows of a micro-batch are no longer those that were settled; run the batch again."""


class TupleError(WindhoverError):
    """A bolt broke a rule of the collector: it acked twice, or emitted on an anchor that it had acked."""


class MessageIdUnknown(TupleError):
    """A bolt asked for the message id of a tuple of which only the tree is known; its query ends."""


class BoltStopped(WindhoverError):
    """A bolt raised what it names in `stops_on`: its query ends, and no tuple is failed for it."""


class WorkerLost(WindhoverError):
    """Bolts end the process that they work in, and no record can be failed for it, or too many would be."""


class ReplaysStand(WindhoverError):
    """Lost roots of an input are not replayed until somebody runs a command: it is paused, or put aside."""


class LogError(WindhoverError):
    """The log refused an operation for good."""


class Fenced(LogError):
    """Another process owns this transactional id now; give the partition up."""


class Aborted(LogError):
    """The transaction cannot be committed and was aborted; restore, or write it again."""


TIME_REFUSED: Final = "INVALID_TIMESTAMP"
"""The `reason` of a record whose time its topic does not take begins with this."""


class RecordRefused(Aborted):
    """The settings of a topic, or of the client, refuse a record, and would so again; correct them.

    `reason` is the broker's, or the client's, own words.
    """

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason or text

    @property
    def is_for_its_time(self) -> bool:
        """Whether the topic does not take the record's time: the clock that gave it may be wrong."""
        return self.reason.startswith(TIME_REFUSED)


class OutOfRange(LogError):
    """A position to read from is not in the log (retention ran ahead, or the topic was re-created)."""


TOO_LARGE: Final = "it is too large: "
"""The `why` of a record that nobody can work on begins with this; its batch is whole."""

NOT_UNPACKED: Final = "its records do not unpack"
"""The `why` of a batch that its reader cannot unpack begins with this; its checksum is right."""


class UnreadableKind(StrEnum):
    """Why offsets cannot be read; also the cause of the roots that lie there."""

    DAMAGED = "DAMAGED"
    """The batch is damaged on its broker's disk; another replica may have it whole."""
    OVERSIZED = "OVERSIZED"
    """The record has more bytes than any reader can handle; so it has on every replica."""
    NOT_UNPACKED = "NOT_UNPACKED"
    """The batch was written so that it does not unpack, or to more than a reader takes; on every replica."""

    @property
    def phrase(self) -> str:
        """What a sentence says of a record, behind "it" or "the record"."""
        return _PHRASES[self]

    @property
    def event(self) -> str:
        """The name under which logs report it where a query or a `KafkaSpout` comes upon it."""
        return _EVENTS[self]

    @property
    def is_of_the_writer(self) -> bool:
        """Whether it was written so: no other replica and no later start can read it."""
        return self is not UnreadableKind.DAMAGED


_PHRASES: Final = {
    UnreadableKind.DAMAGED: "lies in a batch that is damaged on its broker's disk",
    UnreadableKind.OVERSIZED: "is larger than any reader can handle",
    UnreadableKind.NOT_UNPACKED: "lies in a batch that does not unpack, or to more than a reader takes",
}

_EVENTS: Final = {
    UnreadableKind.DAMAGED: "batch_is_damaged",
    UnreadableKind.OVERSIZED: "record_is_too_large",
    UnreadableKind.NOT_UNPACKED: "batch_does_not_unpack",
}


def unreadable_kind(why: str) -> UnreadableKind:
    """Return why offsets cannot be read, by the `why` of their reader."""
    if why.startswith(TOO_LARGE):
        return UnreadableKind.OVERSIZED
    if why.startswith(NOT_UNPACKED):
        return UnreadableKind.NOT_UNPACKED
    return UnreadableKind.DAMAGED


class Damaged(LogError):
    """Offsets of one partition cannot be read; what lies before and beside them can.

    A batch is damaged where its broker keeps it, or does not unpack, or a
    record is larger than anybody can work on: `UnreadableKind`.

    Attributes:
        topic, partition: where.
        first: the first offset that cannot be read.
        why: what the client found, in its words.
    """

    def __init__(self, topic: str, partition: int, first: int, why: str, cure: str = "") -> None:
        """Make the error; `cure` is the way out of a caller that knows what the topic is for."""
        match unreadable_kind(why):
            case UnreadableKind.DAMAGED:
                what = f"a batch there is damaged on its broker's disk ({why})"
                way_out = "bring back a replica of the partition that is whole"
            case UnreadableKind.OVERSIZED:
                what = f"the record there cannot be handled, since {why}"
                way_out = "let its writer cut it, and delete it there"
            case UnreadableKind.NOT_UNPACKED:
                what = f"a batch there cannot be handled: {why}"
                way_out = "let its writer send smaller batches, and delete it there"
        super().__init__(
            f"{topic}/{partition}@{first}: {what}; what lies before it and in other partitions can be read:"
            f" {cure or way_out}"
        )
        self.topic = topic
        self.partition = partition
        self.first = first
        self.why = why

    def with_cure(self, cure: str) -> Damaged:
        """Return the same error with another way out."""
        return Damaged(self.topic, self.partition, self.first, self.why, cure)
