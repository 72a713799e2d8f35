"""What the driver knows of the streams of one Spark application.

One `Application` belongs to one SparkContext and is stored on it, so that `spout.sink` finds what
`spout.read_stream` made without being handed anything.

Source: DESIGN.md, sections 5.1 (one session of a group in an application) and 5.2.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark import SparkContext
from pyspark.sql import SparkSession

from acker.errors import UsageError
from acker.kafka_log import KafkaLog
from acker.topics import Topics
from spout.ledger import Ledger
from spout.publisher import Publisher

_ATTRIBUTE = "_windhover"


@dataclass(slots=True)
class Stream:
    """One `read_stream` call.

    Attributes:
        id: names it in blobs.
        group: the group whose records it reads.
        tracked: whether what its bolts do is published.
        publisher: writes its batches' records.
        loose: bolts that are attached behind Spark's own operators, by name.
        queries: ids of the queries that run it, as far as their batches were seen.
    """

    id: str
    group: str
    tracked: bool
    publisher: Publisher
    loose: set[str] = field(default_factory=set)
    queries: set[str] = field(default_factory=set)


class Application:
    """The streams and the ledger of one SparkContext."""

    def __init__(self, context: SparkContext) -> None:
        """Register the ledger's accumulator."""
        self._context = context
        self.ledger = Ledger(context)
        self.streams: dict[str, Stream] = {}
        self._folder = TemporaryDirectory(prefix="windhover-sinks-")

    @property
    def sink_folder(self) -> Path:
        """Where sinks leave the marks of what they have published, for as long as the application lives."""
        return Path(self._folder.name)

    @staticmethod
    def of(session: SparkSession) -> Application:
        """Return the application of a session's SparkContext; the first call makes it."""
        context = session.sparkContext
        kept = vars(context)
        if _ATTRIBUTE not in kept:
            kept[_ATTRIBUTE] = Application(context)
        found = kept[_ATTRIBUTE]
        if not isinstance(found, Application):
            raise UsageError(f"SparkContext.{_ATTRIBUTE} was overwritten with a {type(found).__name__}")
        return found

    def new_stream(self, session: SparkSession, topics: Topics, group: str, *, tracked: bool) -> Stream:
        """Register a `read_stream` call.

        Raises:
            UsageError: a query of this application reads the group now.
        """
        active = {query.id for query in session.streams.active}
        for stream in self.streams.values():
            if stream.group != group or not (tracked and stream.tracked):
                continue
            if not active & stream.queries:
                stream.publisher.close()  # its query has ended; should it start again, this opens again
            else:
                raise UsageError(
                    f"group {group!r} is read by a query of this application already; read several inputs of"
                    " a group by one read_stream, or stop that query first"
                )
        publisher = Publisher(
            lambda: KafkaLog(topics.kafka, client_id=f"windhover-bolts-{group}"), topics.ack_topics
        )
        stream = Stream(uuid.uuid4().hex[:12], group, tracked, publisher)
        self.streams[stream.id] = stream
        return stream

    def tasks_of(self, stage: int) -> int | None:
        """Return how many tasks a stage had; None when Spark no longer knows."""
        info = self._context.statusTracker().getStageInfo(stage)
        return None if info is None else int(info.numTasks)

    def stream_of(self, query: str) -> Stream | None:
        """Return the stream that a query was seen to run."""
        return next((each for each in self.streams.values() if query in each.queries), None)
